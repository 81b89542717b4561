//! Aggregates and the signatures of window functions.
//!
//! Nulls: an aggregate here is given only rows whose arguments it wants: [`super::Function::strict`] says that rows with a
//! null argument are left out before [`Accumulator::add`]. Over no rows the result is null, but for `count` (0).

use model::{
    Result, Type, Value,
    types::Scalar as Element,
    value::{
        Array, Interval, Jsonb, Numeric, NumericSum, ValueError,
        json::{self, ArrayBuilder, ObjectBuilder},
    },
};

use super::{Accepts, Accumulator, Body, Definitions, Gives, WindowFunction, boolean, float, int};
use crate::context::Context;

pub(super) fn define(d: &mut Definitions) {
    counting(d);
    sums(d);
    extremes(d);
    statistics(d);
    logic(d);
    collecting(d);
    windows(d);
}

fn counting(d: &mut Definitions) {
    d.add("count", (), Type::Int8, Body::Aggregate(|_| Box::new(Count(0))));
    d.add("count", [Accepts::Any], Type::Int8, Body::Aggregate(|_| Box::new(Count(0))));
}

struct Count(i64);

impl Accumulator for Count {
    fn add(&mut self, _: &mut Context, _: &[Value]) -> Result<()> {
        self.0 += 1;
        Ok(())
    }

    fn finish(&mut self) -> Result<Value> {
        Ok(Value::Int8(self.0))
    }
}

fn sums(d: &mut Definitions) {
    for narrow in [Type::Int2, Type::Int4] {
        d.add("sum", [narrow], Type::Int8, Body::Aggregate(|_| Box::new(IntegerSum::default())));
        d.add("avg", [narrow], Type::Numeric, Body::Aggregate(|_| Box::new(IntegerAverage::default())));
    }
    d.add("sum", [Type::Int8], Type::Numeric, Body::Aggregate(|_| Box::new(WideSum::default())));
    d.add("avg", [Type::Int8], Type::Numeric, Body::Aggregate(|_| Box::new(IntegerAverage::default())));
    d.add("sum", [Type::Numeric], Type::Numeric, Body::Aggregate(|_| Box::new(ExactSum::new(false))));
    d.add("avg", [Type::Numeric], Type::Numeric, Body::Aggregate(|_| Box::new(ExactSum::new(true))));
    d.add(
        "sum",
        [Type::Float4],
        Type::Float4,
        Body::Aggregate(|_| Box::new(FloatSum::new(FloatResult::Single))),
    );
    d.add(
        "sum",
        [Type::Float8],
        Type::Float8,
        Body::Aggregate(|_| Box::new(FloatSum::new(FloatResult::Double))),
    );
    for data_type in [Type::Float4, Type::Float8] {
        let average = Body::Aggregate(|_| Box::new(FloatSum::new(FloatResult::Average)));
        d.add("avg", [data_type], Type::Float8, average);
    }
    d.add("sum", [Type::Interval], Type::Interval, Body::Aggregate(|_| Box::new(IntervalSum::new(false))));
    d.add("avg", [Type::Interval], Type::Interval, Body::Aggregate(|_| Box::new(IntervalSum::new(true))));
}

#[derive(Default)]
struct IntegerSum {
    sum: i64,
    some: bool,
}

impl Accumulator for IntegerSum {
    fn add(&mut self, _: &mut Context, a: &[Value]) -> Result<()> {
        self.sum = self.sum.checked_add(int(&a[0])).ok_or_else(|| ValueError::out_of_range("bigint"))?;
        self.some = true;
        Ok(())
    }

    fn finish(&mut self) -> Result<Value> {
        Ok(if self.some { Value::Int8(self.sum) } else { Value::Null })
    }
}

#[derive(Default)]
struct WideSum {
    sum: i128,
    some: bool,
}

impl Accumulator for WideSum {
    fn add(&mut self, _: &mut Context, a: &[Value]) -> Result<()> {
        self.sum += i128::from(int(&a[0]));
        self.some = true;
        Ok(())
    }

    fn finish(&mut self) -> Result<Value> {
        Ok(if self.some { Value::Numeric(Numeric::from(self.sum)) } else { Value::Null })
    }
}

#[derive(Default)]
struct IntegerAverage {
    sum: i128,
    count: i64,
}

impl Accumulator for IntegerAverage {
    fn add(&mut self, _: &mut Context, a: &[Value]) -> Result<()> {
        self.sum += i128::from(int(&a[0]));
        self.count += 1;
        Ok(())
    }

    fn finish(&mut self) -> Result<Value> {
        if self.count == 0 {
            return Ok(Value::Null);
        }
        Ok(Value::Numeric(Numeric::from(self.sum).div(&Numeric::from(self.count))?))
    }
}

struct ExactSum {
    sum: NumericSum,
    count: i64,
    average: bool,
}

impl ExactSum {
    fn new(average: bool) -> Self {
        Self { sum: NumericSum::default(), count: 0, average }
    }
}

impl Accumulator for ExactSum {
    fn add(&mut self, _: &mut Context, a: &[Value]) -> Result<()> {
        self.count += 1;
        Ok(self.sum.add(super::numeric(&a[0]))?)
    }

    fn finish(&mut self) -> Result<Value> {
        if self.count == 0 {
            return Ok(Value::Null);
        }
        let total = self.sum.total()?;
        Ok(Value::Numeric(if self.average { total.div(&Numeric::from(self.count))? } else { total }))
    }
}

#[derive(Clone, Copy)]
enum FloatResult {
    Single,
    Double,
    Average,
}

struct FloatSum {
    sum: f64,
    count: i64,
    result: FloatResult,
}

impl FloatSum {
    fn new(result: FloatResult) -> Self {
        Self { sum: 0.0, count: 0, result }
    }
}

impl Accumulator for FloatSum {
    fn add(&mut self, _: &mut Context, a: &[Value]) -> Result<()> {
        let value = float(&a[0]);
        let sum = match self.result {
            // PostgreSQL adds real numbers in their own precision.
            FloatResult::Single => f64::from(self.sum as f32 + value as f32),
            FloatResult::Double | FloatResult::Average => self.sum + value,
        };
        if sum.is_infinite() && self.sum.is_finite() && value.is_finite() {
            return Err(model::Error::new(
                model::Code::NumericValueOutOfRange,
                "value out of range: overflow",
            ));
        }
        self.sum = sum;
        self.count += 1;
        Ok(())
    }

    fn finish(&mut self) -> Result<Value> {
        if self.count == 0 {
            return Ok(Value::Null);
        }
        Ok(match self.result {
            FloatResult::Single => Value::Float4(self.sum as f32),
            FloatResult::Double => Value::Float8(self.sum),
            FloatResult::Average => Value::Float8(self.sum / self.count as f64),
        })
    }
}

struct IntervalSum {
    sum: Option<Interval>,
    count: i64,
    average: bool,
}

impl IntervalSum {
    fn new(average: bool) -> Self {
        Self { sum: None, count: 0, average }
    }
}

impl Accumulator for IntervalSum {
    fn add(&mut self, _: &mut Context, a: &[Value]) -> Result<()> {
        let Value::Interval(value) = &a[0] else { unreachable!("resolution gave an interval") };
        self.sum = Some(match self.sum {
            None => *value,
            Some(sum) => sum.add(*value)?,
        });
        self.count += 1;
        Ok(())
    }

    fn finish(&mut self) -> Result<Value> {
        let Some(sum) = self.sum else { return Ok(Value::Null) };
        if !self.average {
            return Ok(Value::Interval(sum));
        }
        Ok(Value::Interval(sum.div(self.count as f64)?))
    }
}

fn extremes(d: &mut Definitions) {
    for data_type in [
        Type::Int2,
        Type::Int4,
        Type::Int8,
        Type::Float4,
        Type::Float8,
        Type::Numeric,
        Type::Text,
        Type::Bpchar,
        Type::Bytea,
        Type::Date,
        Type::Time,
        Type::Timestamp,
        Type::Timestamptz,
        Type::Interval,
        Type::Oid,
    ] {
        d.add("min", [data_type], data_type, Body::Aggregate(|_| Box::new(Extreme::smallest())));
        d.add("max", [data_type], data_type, Body::Aggregate(|_| Box::new(Extreme::largest())));
    }
    d.add("min", [Accepts::Array], Gives::Array, Body::Aggregate(|_| Box::new(Extreme::smallest())));
    d.add("max", [Accepts::Array], Gives::Array, Body::Aggregate(|_| Box::new(Extreme::largest())));
}

struct Extreme {
    best: Option<Value>,
    replaces: std::cmp::Ordering,
}

impl Extreme {
    fn smallest() -> Self {
        Self { best: None, replaces: std::cmp::Ordering::Less }
    }

    fn largest() -> Self {
        Self { best: None, replaces: std::cmp::Ordering::Greater }
    }
}

impl Accumulator for Extreme {
    fn add(&mut self, _: &mut Context, a: &[Value]) -> Result<()> {
        if self.best.as_ref().is_none_or(|best| a[0].cmp_sql(best) == self.replaces) {
            self.best = Some(a[0].clone());
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<Value> {
        Ok(self.best.take().unwrap_or(Value::Null))
    }

    fn heap_bytes(&self) -> usize {
        self.best.as_ref().map_or(0, Value::heap_size)
    }
}

/// What makes the state of an aggregate for one group.
type Make = fn(&[Type]) -> Box<dyn Accumulator>;

fn statistics(d: &mut Definitions) {
    const SPREADS: [(&str, Spread); 6] = [
        ("variance", Spread { root: false, sample: true }),
        ("var_samp", Spread { root: false, sample: true }),
        ("var_pop", Spread { root: false, sample: false }),
        ("stddev", Spread { root: true, sample: true }),
        ("stddev_samp", Spread { root: true, sample: true }),
        ("stddev_pop", Spread { root: true, sample: false }),
    ];
    fn exact<const ROOT: bool, const SAMPLE: bool>(_: &[Type]) -> Box<dyn Accumulator> {
        Box::new(ExactSpread::new(Spread { root: ROOT, sample: SAMPLE }))
    }
    fn approximate<const ROOT: bool, const SAMPLE: bool>(_: &[Type]) -> Box<dyn Accumulator> {
        Box::new(FloatSpread::new(Spread { root: ROOT, sample: SAMPLE }))
    }
    for (name, spread) in SPREADS {
        let (of_numbers, of_floats): (Make, Make) = match (spread.root, spread.sample) {
            (true, true) => (exact::<true, true>, approximate::<true, true>),
            (true, false) => (exact::<true, false>, approximate::<true, false>),
            (false, true) => (exact::<false, true>, approximate::<false, true>),
            (false, false) => (exact::<false, false>, approximate::<false, false>),
        };
        for data_type in [Type::Int2, Type::Int4, Type::Int8, Type::Numeric] {
            d.add(name, [data_type], Type::Numeric, Body::Aggregate(of_numbers));
        }
        for data_type in [Type::Float4, Type::Float8] {
            d.add(name, [data_type], Type::Float8, Body::Aggregate(of_floats));
        }
    }
    const PAIRS: [(&str, Make); 11] = [
        ("corr", |_| Box::new(Pair::new(|p| p.correlation()))),
        ("covar_pop", |_| Box::new(Pair::new(|p| Some(p.xy / p.count)))),
        ("covar_samp", |_| Box::new(Pair::new(|p| (p.count > 1.0).then(|| p.xy / (p.count - 1.0))))),
        ("regr_avgx", |_| Box::new(Pair::new(|p| Some(p.mean_x)))),
        ("regr_avgy", |_| Box::new(Pair::new(|p| Some(p.mean_y)))),
        ("regr_sxx", |_| Box::new(Pair::new(|p| Some(p.xx)))),
        ("regr_syy", |_| Box::new(Pair::new(|p| Some(p.yy)))),
        ("regr_sxy", |_| Box::new(Pair::new(|p| Some(p.xy)))),
        ("regr_slope", |_| Box::new(Pair::new(|p| (p.xx != 0.0).then(|| p.xy / p.xx)))),
        ("regr_intercept", |_| {
            Box::new(Pair::new(|p| (p.xx != 0.0).then(|| p.mean_y - p.mean_x * p.xy / p.xx)))
        }),
        ("regr_r2", |_| Box::new(Pair::new(|p| p.determination()))),
    ];
    for (name, make) in PAIRS {
        d.add(name, [Type::Float8, Type::Float8], Type::Float8, Body::Aggregate(make));
    }
    d.add("regr_count", [Type::Float8, Type::Float8], Type::Int8, Body::Aggregate(|_| Box::new(Count(0))));
}

#[derive(Clone, Copy)]
struct Spread {
    root: bool,
    sample: bool,
}

/// Exact: keeps the sums of values and squares, as PostgreSQL's numeric aggregates do.
struct ExactSpread {
    spread: Spread,
    count: i64,
    sum: NumericSum,
    squares: NumericSum,
}

impl ExactSpread {
    fn new(spread: Spread) -> Self {
        Self { spread, count: 0, sum: NumericSum::default(), squares: NumericSum::default() }
    }
}

impl Accumulator for ExactSpread {
    fn add(&mut self, _: &mut Context, a: &[Value]) -> Result<()> {
        let value = match &a[0] {
            Value::Numeric(number) => number.clone(),
            integer => Numeric::from(int(integer)),
        };
        self.count += 1;
        self.sum.add(&value)?;
        Ok(self.squares.add(&value.mul(&value)?)?)
    }

    fn finish(&mut self) -> Result<Value> {
        if self.count == 0 || (self.spread.sample && self.count == 1) {
            return Ok(Value::Null);
        }
        let count = Numeric::from(self.count);
        let (sum, squares) = (self.sum.total()?, self.squares.total()?);
        let deviation = count.mul(&squares)?.sub(&sum.mul(&sum)?)?;
        if deviation.is_zero() || deviation.signum() < 0 {
            return Ok(Value::Numeric(Numeric::from(0_i64)));
        }
        let divisor = if self.spread.sample {
            count.mul(&Numeric::from(self.count - 1))?
        } else {
            count.mul(&count)?
        };
        let variance = deviation.div(&divisor)?;
        Ok(Value::Numeric(if self.spread.root { variance.sqrt()? } else { variance }))
    }
}

/// Approximate: Youngs and Cramer's update, as PostgreSQL's float aggregates do.
struct FloatSpread {
    spread: Spread,
    count: f64,
    sum: f64,
    squares: f64,
}

impl FloatSpread {
    fn new(spread: Spread) -> Self {
        Self { spread, count: 0.0, sum: 0.0, squares: 0.0 }
    }
}

impl Accumulator for FloatSpread {
    fn add(&mut self, _: &mut Context, a: &[Value]) -> Result<()> {
        let value = float(&a[0]);
        self.count += 1.0;
        self.sum += value;
        if self.count > 1.0 {
            let shift = value * self.count - self.sum;
            self.squares += shift * shift / (self.count * (self.count - 1.0));
        } else if !value.is_finite() {
            self.squares = f64::NAN;
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<Value> {
        if self.count == 0.0 || (self.spread.sample && self.count <= 1.0) {
            return Ok(Value::Null);
        }
        let variance = self.squares / if self.spread.sample { self.count - 1.0 } else { self.count };
        Ok(Value::Float8(if self.spread.root { variance.sqrt() } else { variance }))
    }
}

/// Statistics of pairs (y, x).
struct Pair {
    result: fn(&Self) -> Option<f64>,
    count: f64,
    mean_x: f64,
    mean_y: f64,
    xx: f64,
    yy: f64,
    xy: f64,
}

impl Pair {
    fn new(result: fn(&Self) -> Option<f64>) -> Self {
        Self { result, count: 0.0, mean_x: 0.0, mean_y: 0.0, xx: 0.0, yy: 0.0, xy: 0.0 }
    }

    fn correlation(&self) -> Option<f64> {
        (self.xx != 0.0 && self.yy != 0.0).then(|| self.xy / (self.xx * self.yy).sqrt())
    }

    fn determination(&self) -> Option<f64> {
        if self.xx == 0.0 {
            return None;
        }
        Some(if self.yy == 0.0 { 1.0 } else { self.xy * self.xy / (self.xx * self.yy) })
    }
}

impl Accumulator for Pair {
    fn add(&mut self, _: &mut Context, a: &[Value]) -> Result<()> {
        let (y, x) = (float(&a[0]), float(&a[1]));
        self.count += 1.0;
        let (from_x, from_y) = (x - self.mean_x, y - self.mean_y);
        self.mean_x += from_x / self.count;
        self.mean_y += from_y / self.count;
        self.xx += from_x * (x - self.mean_x);
        self.yy += from_y * (y - self.mean_y);
        self.xy += from_x * (y - self.mean_y);
        Ok(())
    }

    fn finish(&mut self) -> Result<Value> {
        if self.count == 0.0 {
            return Ok(Value::Null);
        }
        Ok((self.result)(self).map_or(Value::Null, Value::Float8))
    }
}

fn logic(d: &mut Definitions) {
    for name in ["bool_and", "every"] {
        d.add(name, [Type::Bool], Type::Bool, Body::Aggregate(|_| Box::new(Fold::new(and))));
    }
    d.add("bool_or", [Type::Bool], Type::Bool, Body::Aggregate(|_| Box::new(Fold::new(or))));
    for data_type in [Type::Int2, Type::Int4, Type::Int8] {
        d.add(
            "bit_and",
            [data_type],
            data_type,
            Body::Aggregate(|_| Box::new(Fold::new(|l, r| bits(l, r, |l, r| l & r)))),
        );
        d.add(
            "bit_or",
            [data_type],
            data_type,
            Body::Aggregate(|_| Box::new(Fold::new(|l, r| bits(l, r, |l, r| l | r)))),
        );
        d.add(
            "bit_xor",
            [data_type],
            data_type,
            Body::Aggregate(|_| Box::new(Fold::new(|l, r| bits(l, r, |l, r| l ^ r)))),
        );
    }
}

fn and(left: &Value, right: &Value) -> Value {
    Value::Bool(boolean(left) && boolean(right))
}

fn or(left: &Value, right: &Value) -> Value {
    Value::Bool(boolean(left) || boolean(right))
}

fn bits(left: &Value, right: &Value, combine: fn(i64, i64) -> i64) -> Value {
    let combined = combine(int(left), int(right));
    // Bits of two numbers of one width fit that width.
    match left {
        Value::Int2(_) => Value::Int2(combined as i16),
        Value::Int4(_) => Value::Int4(combined as i32),
        _ => Value::Int8(combined),
    }
}

struct Fold {
    value: Option<Value>,
    combine: fn(&Value, &Value) -> Value,
}

impl Fold {
    fn new(combine: fn(&Value, &Value) -> Value) -> Self {
        Self { value: None, combine }
    }
}

impl Accumulator for Fold {
    fn add(&mut self, _: &mut Context, a: &[Value]) -> Result<()> {
        self.value = Some(match &self.value {
            None => a[0].clone(),
            Some(value) => (self.combine)(value, &a[0]),
        });
        Ok(())
    }

    fn finish(&mut self) -> Result<Value> {
        Ok(self.value.take().unwrap_or(Value::Null))
    }
}

fn collecting(d: &mut Definitions) {
    d.add(
        "string_agg",
        [Type::Text, Type::Text],
        Type::Text,
        Body::Aggregate(|_| Box::new(Joined::default())),
    )
    .lenient();
    d.add(
        "array_agg",
        [Accepts::NonArray],
        Gives::Array,
        Body::Aggregate(|types| {
            let element = types.first().and_then(|data_type| data_type.scalar()).unwrap_or(Element::Text);
            Box::new(Collected { element, values: Vec::new(), bytes: 0 })
        }),
    )
    .lenient();
    const ANY: Accepts = Accepts::Any;
    d.add("json_agg", [ANY], Type::Json, Body::Aggregate(|_| Box::new(JsonArray(None)))).lenient().stable();
    d.add("jsonb_agg", [ANY], Type::Jsonb, Body::Aggregate(|_| Box::new(JsonbArray::default())))
        .lenient()
        .stable();
    d.add("json_object_agg", [ANY, ANY], Type::Json, Body::Aggregate(|_| Box::new(JsonObject(None))))
        .lenient()
        .stable();
    d.add("jsonb_object_agg", [ANY, ANY], Type::Jsonb, Body::Aggregate(|_| Box::new(JsonbObject::default())))
        .lenient()
        .stable();
}

#[derive(Default)]
struct Joined(Option<String>);

impl Accumulator for Joined {
    fn add(&mut self, _: &mut Context, a: &[Value]) -> Result<()> {
        let Some(piece) = a[0].as_str() else { return Ok(()) };
        match &mut self.0 {
            None => self.0 = Some(piece.to_owned()),
            Some(joined) => {
                joined.push_str(a[1].as_str().unwrap_or_default());
                joined.push_str(piece);
                if joined.len() > super::text::TEXT_BYTES_MAX {
                    return Err(super::text::too_large());
                }
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<Value> {
        Ok(self.0.take().map_or(Value::Null, Value::text))
    }

    fn heap_bytes(&self) -> usize {
        self.0.as_ref().map_or(0, String::capacity)
    }
}

struct Collected {
    element: Element,
    values: Vec<Value>,
    bytes: usize,
}

impl Accumulator for Collected {
    fn add(&mut self, _: &mut Context, a: &[Value]) -> Result<()> {
        self.bytes += a[0].heap_size();
        self.values.push(a[0].clone());
        Ok(())
    }

    fn finish(&mut self) -> Result<Value> {
        if self.values.is_empty() {
            return Ok(Value::Null);
        }
        Ok(Value::Array(Array::from_values(self.element, std::mem::take(&mut self.values)).into()))
    }

    fn heap_bytes(&self) -> usize {
        self.bytes + self.values.capacity() * size_of::<Value>()
    }
}

/// `json_agg`: PostgreSQL puts `, ` between elements; the elements are written when they come.
struct JsonArray(Option<String>);

impl Accumulator for JsonArray {
    fn add(&mut self, context: &mut Context, a: &[Value]) -> Result<()> {
        let out = match &mut self.0 {
            None => self.0.insert("[".to_owned()),
            Some(out) => {
                out.push_str(", ");
                out
            }
        };
        super::json::write_json(context, &a[0], out)
    }

    fn finish(&mut self) -> Result<Value> {
        Ok(self.0.take().map_or(Value::Null, |out| Value::Json((out + "]").into())))
    }

    fn heap_bytes(&self) -> usize {
        self.0.as_ref().map_or(0, String::capacity)
    }
}

#[derive(Default)]
struct JsonbArray {
    builder: ArrayBuilder,
    bytes: usize,
    some: bool,
}

impl Accumulator for JsonbArray {
    fn add(&mut self, context: &mut Context, a: &[Value]) -> Result<()> {
        let element = super::json::to_jsonb(context, &a[0])?;
        self.bytes += element.as_bytes().len() + size_of::<Jsonb>();
        self.builder.push(&element);
        self.some = true;
        Ok(())
    }

    fn finish(&mut self) -> Result<Value> {
        if !self.some {
            return Ok(Value::Null);
        }
        Ok(Value::Jsonb(std::mem::take(&mut self.builder).try_finish()?))
    }

    fn heap_bytes(&self) -> usize {
        self.bytes
    }
}

/// `json_object_agg`: keeps duplicate keys, as PostgreSQL does.
struct JsonObject(Option<String>);

impl Accumulator for JsonObject {
    fn add(&mut self, context: &mut Context, a: &[Value]) -> Result<()> {
        let key = super::json::key_text(context, &a[0])?;
        let out = match &mut self.0 {
            None => self.0.insert("{ ".to_owned()),
            Some(out) => {
                out.push_str(", ");
                out
            }
        };
        json::write_string(&key, out);
        out.push_str(" : ");
        super::json::write_json(context, &a[1], out)
    }

    fn finish(&mut self) -> Result<Value> {
        Ok(self.0.take().map_or(Value::Null, |out| Value::Json((out + " }").into())))
    }

    fn heap_bytes(&self) -> usize {
        self.0.as_ref().map_or(0, String::capacity)
    }
}

#[derive(Default)]
struct JsonbObject {
    builder: ObjectBuilder,
    bytes: usize,
    some: bool,
}

impl Accumulator for JsonbObject {
    fn add(&mut self, context: &mut Context, a: &[Value]) -> Result<()> {
        let key = super::json::key_text(context, &a[0])?;
        let value = super::json::to_jsonb(context, &a[1])?;
        self.bytes += key.len() + value.as_bytes().len() + size_of::<Jsonb>();
        self.builder.set(&key, &value);
        self.some = true;
        Ok(())
    }

    fn finish(&mut self) -> Result<Value> {
        if !self.some {
            return Ok(Value::Null);
        }
        Ok(Value::Jsonb(std::mem::take(&mut self.builder).try_finish()?))
    }

    fn heap_bytes(&self) -> usize {
        self.bytes
    }
}

fn windows(d: &mut Definitions) {
    use WindowFunction::{
        CumeDist, DenseRank, FirstValue, Lag, LastValue, Lead, NthValue, Ntile, PercentRank, Rank, RowNumber,
    };
    for (name, gives, function) in [
        ("row_number", Type::Int8, RowNumber),
        ("rank", Type::Int8, Rank),
        ("dense_rank", Type::Int8, DenseRank),
        ("percent_rank", Type::Float8, PercentRank),
        ("cume_dist", Type::Float8, CumeDist),
    ] {
        d.add(name, (), gives, Body::Window(function));
    }
    d.add("ntile", [Type::Int4], Type::Int4, Body::Window(Ntile));
    for (name, function) in [("lag", Lag), ("lead", Lead)] {
        let parameters = [Accepts::Element, Accepts::Exact(Type::Int4), Accepts::Element];
        d.add(name, parameters, Gives::Element, Body::Window(function)).optional(2).lenient();
    }
    d.add("first_value", [Accepts::Element], Gives::Element, Body::Window(FirstValue)).lenient();
    d.add("last_value", [Accepts::Element], Gives::Element, Body::Window(LastValue)).lenient();
    let parameters = [Accepts::Element, Accepts::Exact(Type::Int4)];
    d.add("nth_value", parameters, Gives::Element, Body::Window(NthValue)).lenient();
}
