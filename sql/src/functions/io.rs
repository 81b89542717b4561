//! Text forms of values, in the one place that the rest of the functions asks.

use model::{Result, Type, Value, types::Typmod};

use crate::context::Context;

/// The text form of a value that is not null.
pub(crate) fn write(_context: &Context, value: &Value, _of: Type) -> String {
    format!("{value:?}")
}

/// The value a text means.
pub(crate) fn parse(_context: &Context, source: &str, to: Type, _typmod: Typmod) -> Result<Value> {
    Err(model::Error::internal(format!("text of {to} cannot be read yet: {source}")))
}

/// A value cut or padded to its type's modifier.
pub(crate) fn fit(value: Value, _of: Type, _typmod: Typmod, _explicit: bool) -> Result<Value> {
    Ok(value)
}

/// Date arithmetic.
pub(crate) mod arith {
    use model::{
        Error, Result,
        value::{Date, Interval, Time, Timestamp, Zone, datetime::DAY},
    };

    fn later() -> Error {
        Error::internal("date arithmetic is on its way")
    }

    pub(crate) fn add_intervals(_: Interval, _: Interval) -> Result<Interval> {
        Err(later())
    }
    pub(crate) fn divide_interval(_: Interval, _: f64) -> Result<Interval> {
        Err(later())
    }
    pub(crate) fn timestamp_to_timestamptz(at: Timestamp, zone: &Zone) -> Result<Timestamp> {
        Ok(zone.to_instant(at)?)
    }
    pub(crate) fn date_to_timestamp(date: Date) -> Result<Timestamp> {
        Ok(Timestamp::from_micros(i64::from(date.days()) * DAY)?)
    }
    pub(crate) fn add_to_timestamp(_: Timestamp, _: Interval) -> Result<Timestamp> {
        Err(later())
    }
    pub(crate) fn add_to_timestamptz(_: Timestamp, _: Interval, _: &Zone) -> Result<Timestamp> {
        Err(later())
    }
    pub(crate) fn timestamp_to_date(at: Timestamp) -> Result<Date> {
        Ok(Date::from_days(at.micros().div_euclid(DAY) as i32)?)
    }
    pub(crate) fn timestamp_to_time(at: Timestamp) -> Option<Time> {
        Some(Time::wrapping(at.micros()))
    }
}
