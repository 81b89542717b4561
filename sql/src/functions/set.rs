//! Set-returning functions: series, elements of arrays, tables out of texts.

use model::{
    Code, Error, Result, Type, Value,
    value::{Interval, Numeric, Timestamp, Zone},
};

use super::{Accepts, Body, Definitions, Gives, RowIterator, array_of, boolean, int, numeric};

pub(super) fn define(d: &mut Definitions) {
    series(d);
    d.add(
        "unnest",
        [Accepts::Array],
        Gives::Element,
        Body::Set(&[("unnest", Gives::Element)], |_, a| {
            let values = array_of(&a[0]).values().to_vec();
            Ok(rows(values.into_iter().map(Ok)))
        }),
    );
    d.add(
        "generate_subscripts",
        [Accepts::Array, Accepts::Exact(Type::Int4), Accepts::Exact(Type::Bool)],
        Type::Int4,
        Body::Set(&[("generate_subscripts", Gives::Exact(Type::Int4))], |_, a| {
            let dimension = usize::try_from(int(&a[1]) - 1).ok();
            let Some(at) = dimension.and_then(|at| array_of(&a[0]).dimensions().get(at).copied()) else {
                return Ok(rows(std::iter::empty()));
            };
            let first = at.lower;
            let last = first + at.length - 1;
            let all = (first..=last).map(|subscript| Ok(Value::Int4(subscript)));
            Ok(if a.get(2).is_some_and(boolean) { rows(all.rev()) } else { rows(all) })
        }),
    )
    .optional(1);
    d.add(
        "string_to_table",
        [Type::Text, Type::Text, Type::Text],
        Type::Text,
        Body::Set(&[("string_to_table", Gives::Exact(Type::Text))], |context, a| {
            match super::array::string_to_array(context, a)? {
                Value::Array(array) => Ok(rows(array.values().to_vec().into_iter().map(Ok))),
                _ => Ok(rows(std::iter::empty())),
            }
        }),
    )
    .optional(1)
    .lenient();
}

/// Rows of one column.
pub(super) fn rows(values: impl Iterator<Item = Result<Value>> + Send + 'static) -> RowIterator {
    Box::new(values.map(|value| value.map(|value| vec![value])))
}

fn series(d: &mut Definitions) {
    const NAME: &str = "generate_series";
    for data_type in [Type::Int4, Type::Int8] {
        let body: super::SetReturning = match data_type {
            Type::Int4 => |_, a| integers(a, |value| i32::try_from(value).ok().map(Value::Int4)),
            _ => |_, a| integers(a, |value| Some(Value::Int8(value))),
        };
        let columns: &'static [(&'static str, Gives)] = match data_type {
            Type::Int4 => &[("generate_series", Gives::Exact(Type::Int4))],
            _ => &[("generate_series", Gives::Exact(Type::Int8))],
        };
        d.add(NAME, [data_type; 3], data_type, Body::Set(columns, body)).optional(1);
    }
    d.add(
        NAME,
        [Type::Numeric; 3],
        Type::Numeric,
        Body::Set(&[(NAME, Gives::Exact(Type::Numeric))], |_, a| {
            let (start, stop) = (numeric(&a[0]).clone(), numeric(&a[1]).clone());
            let step = a.get(2).map_or(Numeric::from(1_i64), |step| numeric(step).clone());
            if !(start.is_finite() && stop.is_finite() && step.is_finite()) {
                return Err(Error::new(Code::InvalidParameterValue, "start, stop and step must be finite"));
            }
            if step.is_zero() {
                return Err(zero_step());
            }
            let mut next = Some(start);
            Ok(rows(std::iter::from_fn(move || {
                let value = next.take()?;
                let order = value.cmp_sql(&stop);
                if (step.signum() > 0 && order.is_gt()) || (step.signum() < 0 && order.is_lt()) {
                    return None;
                }
                next = value.add(&step).ok();
                Some(Ok(Value::Numeric(value)))
            })))
        }),
    )
    .optional(1);
    d.add(
        NAME,
        [Type::Timestamp, Type::Timestamp, Type::Interval],
        Type::Timestamp,
        Body::Set(&[(NAME, Gives::Exact(Type::Timestamp))], |_, a| moments(a, None, Value::Timestamp)),
    );
    d.add(
        NAME,
        [Type::Timestamptz, Type::Timestamptz, Type::Interval],
        Type::Timestamptz,
        Body::Set(&[(NAME, Gives::Exact(Type::Timestamptz))], |context, a| {
            moments(a, Some(context.text.zone.clone()), Value::Timestamptz)
        }),
    )
    .stable();
}

fn zero_step() -> Error {
    Error::new(Code::InvalidParameterValue, "step size cannot equal zero")
}

fn integers(a: &[Value], wrap: fn(i64) -> Option<Value>) -> Result<RowIterator> {
    let (start, stop, step) = (int(&a[0]), int(&a[1]), a.get(2).map_or(1, int));
    if step == 0 {
        return Err(zero_step());
    }
    let mut next = Some(start);
    Ok(rows(std::iter::from_fn(move || {
        let value = next.take()?;
        if (step > 0 && value > stop) || (step < 0 && value < stop) {
            return None;
        }
        next = value.checked_add(step);
        wrap(value).map(Ok)
    })))
}

fn moments(a: &[Value], zone: Option<Zone>, wrap: fn(Timestamp) -> Value) -> Result<RowIterator> {
    let moment = |value: &Value| match value {
        Value::Timestamp(at) | Value::Timestamptz(at) => *at,
        other => unreachable!("resolution gave a timestamp, not {:?}", other.natural_type()),
    };
    let Value::Interval(step) = a[2] else { unreachable!("resolution gave an interval") };
    let (start, stop) = (moment(&a[0]), moment(&a[1]));
    let direction = step.cmp_sql(&Interval::default());
    if direction.is_eq() {
        return Err(zero_step());
    }
    let mut next = Some(start);
    Ok(rows(std::iter::from_fn(move || {
        let value = next.take()?;
        if (direction.is_gt() && value > stop) || (direction.is_lt() && value < stop) {
            return None;
        }
        next = match &zone {
            None => value.add_interval(step).ok(),
            Some(zone) => value.add_interval_in(step, zone).ok(),
        };
        Some(Ok(wrap(value)))
    })))
}
