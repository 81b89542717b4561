//! Ordered-set aggregates: `percentile_cont`, `percentile_disc`, `mode`, called with WITHIN GROUP.
//!
//! Invariants: rows come in the order of WITHIN GROUP, each with the call's direct argument first and the ordered value
//! last; rows with a null in them are left out before.

use model::{
    Code, Error, Result, Type, Value,
    types::Scalar as Element,
    value::{Array, Interval},
};

use super::{Accepts, Accumulator, Body, Definitions, Function, Gives, Volatility, float};
use crate::context::Context;

/// The aggregates of this file: no others take WITHIN GROUP, and these take nothing else.
pub(crate) fn is_ordered_set(name: &str) -> bool {
    matches!(name, "percentile_cont" | "percentile_disc" | "mode")
}

pub(super) fn define(d: &mut Definitions) {
    const F: Type = Type::Float8;
    const FS: Type = Type::Array(Element::Float8);
    for (of, many) in [(F, FS), (Type::Interval, Type::Array(Element::Interval))] {
        d.add("percentile_cont", [F, of], of, Body::Aggregate(|types| Percentile::make(types, true)));
        d.add("percentile_cont", [FS, of], many, Body::Aggregate(|types| Percentile::make(types, true)));
    }
    let discrete = Body::Aggregate(|types| Percentile::make(types, false));
    d.add("percentile_disc", [Accepts::Exact(F), Accepts::Element], Gives::Element, discrete);
    let discrete = Body::Aggregate(|types| Percentile::make(types, false));
    d.add("percentile_disc", [Accepts::Exact(FS), Accepts::Element], Gives::Array, discrete);
    d.add("mode", [Accepts::Element], Gives::Element, Body::Aggregate(|_| Box::new(Mode::default())));
}

/// What a percentile is, behind a check of the share it was asked for: shares are refused also where there are no rows. Only
/// the binder calls it, above the groups, so that a share which is not the same in a whole group is refused too.
pub(super) static CHECKED: Function = Function {
    name: "percentile",
    parameters: &[Accepts::Any, Accepts::Any],
    optional: 0,
    variadic: false,
    gives: Gives::Element,
    strict: false,
    volatility: Volatility::Immutable,
    body: Body::Scalar(|_, a| {
        if let Value::Float8(share) = a[0] {
            check_share(share)?;
        }
        Ok(a[1].clone())
    }),
};

fn check_share(share: f64) -> Result<()> {
    if (0.0..=1.0).contains(&share) {
        return Ok(());
    }
    let message = format!("percentile value {share} is not between 0 and 1");
    Err(Error::new(Code::NumericValueOutOfRange, message))
}

/// The value at a share of the ordered rows, or the values at several shares.
struct Percentile {
    /// Between two rows a value between them is made.
    continuous: bool,
    element: Element,
    asked: Option<Value>,
    values: Vec<Value>,
    bytes: usize,
}

impl Percentile {
    fn make(types: &[Type], continuous: bool) -> Box<dyn Accumulator> {
        let element = types.last().and_then(|of| of.scalar()).unwrap_or(Element::Text);
        Box::new(Self { continuous, element, asked: None, values: Vec::new(), bytes: 0 })
    }

    fn at(&self, share: &Value) -> Result<Value> {
        let share = float(share);
        check_share(share)?;
        let count = self.values.len();
        if !self.continuous {
            let place = (share * count as f64).ceil().max(1.0) as usize - 1;
            return Ok(self.values[place.min(count - 1)].clone());
        }
        let exact = share * (count - 1) as f64;
        let (low, high) = (&self.values[exact.floor() as usize], &self.values[exact.ceil() as usize]);
        between(low, high, exact - exact.floor())
    }
}

/// The value so far on the way from one to another.
fn between(low: &Value, high: &Value, share: f64) -> Result<Value> {
    if share == 0.0 {
        return Ok(low.clone());
    }
    if let (Value::Interval(low), Value::Interval(high)) = (low, high) {
        let way: Interval = high.sub(*low)?.mul(share)?;
        return Ok(Value::Interval(low.add(way)?));
    }
    let (low, high) = (float(low), float(high));
    Ok(Value::Float8(low + share * (high - low)))
}

impl Accumulator for Percentile {
    fn add(&mut self, _: &mut Context, a: &[Value]) -> Result<()> {
        self.asked.get_or_insert_with(|| a[0].clone());
        self.bytes += a[1].heap_size() + size_of::<Value>();
        self.values.push(a[1].clone());
        Ok(())
    }

    fn finish(&mut self) -> Result<Value> {
        match &self.asked {
            None => Ok(Value::Null),
            Some(Value::Array(shares)) => {
                let at = |share: &Value| if share.is_null() { Ok(Value::Null) } else { self.at(share) };
                let values: Result<Vec<Value>> = shares.values().iter().map(at).collect();
                let array = Array::new(self.element, shares.dimensions().to_vec(), values?)?;
                Ok(Value::Array(std::sync::Arc::new(array)))
            }
            Some(share) => self.at(share),
        }
    }

    fn heap_bytes(&self) -> usize {
        self.bytes
    }
}

/// The most frequent value; of several the first.
#[derive(Default)]
struct Mode {
    best: Option<(Value, u64)>,
    run: Option<(Value, u64)>,
}

impl Mode {
    fn end_run(&mut self) {
        let Some((value, count)) = self.run.take() else { return };
        if self.best.as_ref().is_none_or(|(_, most)| count > *most) {
            self.best = Some((value, count));
        }
    }
}

impl Accumulator for Mode {
    fn add(&mut self, _: &mut Context, a: &[Value]) -> Result<()> {
        match &mut self.run {
            Some((value, count)) if value.cmp_sql(&a[0]).is_eq() => *count += 1,
            _ => {
                self.end_run();
                self.run = Some((a[0].clone(), 1));
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<Value> {
        self.end_run();
        Ok(self.best.take().map_or(Value::Null, |(value, _)| value))
    }

    fn heap_bytes(&self) -> usize {
        [&self.best, &self.run].into_iter().flatten().map(|(value, _)| value.heap_size()).sum()
    }
}
