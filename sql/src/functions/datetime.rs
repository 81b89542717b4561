//! Dates, times, timestamps and intervals: arithmetic, fields, truncation, zones, the clock.
//!
//! `now()` and its siblings are the transaction's time, `statement_timestamp()` the statement's; both were read before the
//! statement ran. Only `clock_timestamp()` and `timeofday()` read the gateway's clock.

use model::{
    Code, Error, Result, Type, Value,
    value::{
        Date, Interval, Time, Timestamp, Zone,
        datetime::{UNIX_EPOCH_MICROS, fields, fields::DateField},
    },
};

use super::{Definitions, float, int4, text};
use crate::context::Context;

const D: Type = Type::Date;
const T: Type = Type::Time;
const TS: Type = Type::Timestamp;
const TZ: Type = Type::Timestamptz;
const IV: Type = Type::Interval;
const I: Type = Type::Int4;
const F: Type = Type::Float8;

pub(super) fn define(d: &mut Definitions) {
    clock(d);
    overlaps(d);
    of_dates(d);
    of_times(d);
    of_timestamps(d);
    of_intervals(d);
    taking_fields(d);
    truncating(d);
    making(d);
    zones(d);
}

fn date(value: &Value) -> Date {
    match value {
        Value::Date(date) => *date,
        other => unreachable!("resolution gave a date, not {:?}", other.natural_type()),
    }
}

fn time(value: &Value) -> Time {
    match value {
        Value::Time(time) => *time,
        other => unreachable!("resolution gave a time, not {:?}", other.natural_type()),
    }
}

fn moment(value: &Value) -> Timestamp {
    match value {
        Value::Timestamp(at) | Value::Timestamptz(at) => *at,
        other => unreachable!("resolution gave a timestamp, not {:?}", other.natural_type()),
    }
}

fn interval(value: &Value) -> Interval {
    match value {
        Value::Interval(interval) => *interval,
        other => unreachable!("resolution gave an interval, not {:?}", other.natural_type()),
    }
}

fn clock(d: &mut Definitions) {
    for name in ["now", "transaction_timestamp", "current_timestamp"] {
        d.scalar(name, (), TZ, |context, _| Ok(Value::Timestamptz(context.now))).stable();
    }
    d.scalar("statement_timestamp", (), TZ, |context, _| Ok(Value::Timestamptz(context.statement))).stable();
    d.scalar("clock_timestamp", (), TZ, |context, _| Ok(Value::Timestamptz(context.clock.wall()))).volatile();
    d.scalar("current_date", (), D, |context, _| Ok(Value::Date(local(context).date()))).stable();
    d.scalar("localtimestamp", (), TS, |context, _| Ok(Value::Timestamp(local(context)))).stable();
    d.scalar("localtime", (), T, |context, _| Ok(local(context).time().map_or(Value::Null, Value::Time)))
        .stable();
    d.scalar("timeofday", (), Type::Text, |context, _| {
        Ok(Value::text(super::io::write(context, &Value::Timestamptz(context.clock.wall()), TZ)))
    })
    .volatile();
}

/// The transaction's time on the session's local clock.
fn local(context: &Context) -> Timestamp {
    context.text.zone.to_local(context.now)
}

/// OVERLAPS: each side is two ends in any order, or one and how long it goes on.
fn overlaps(d: &mut Definitions) {
    for of in [TS, TZ, T] {
        for (first, second) in [(of, of), (of, IV), (IV, of), (IV, IV)] {
            let overlaps = d.scalar("overlaps", [of, first, of, second], Type::Bool, |context, a| {
                let first = side(context, &a[0], &a[1])?;
                let second = side(context, &a[2], &a[3])?;
                Ok(meet(first, second).map_or(Value::Null, Value::Bool))
            });
            overlaps.lenient().stable();
        }
    }
}

/// The ends of one side, the earlier first, a missing one last; none if both are missing.
fn side(context: &Context, start: &Value, end: &Value) -> Result<Option<(i64, Option<i64>)>> {
    let end = match (start, end) {
        (Value::Null, Value::Interval(_)) => Value::Null,
        (Value::Time(start), Value::Interval(by)) => Value::Time(start.add_interval(*by)),
        (Value::Timestamp(start), Value::Interval(by)) => Value::Timestamp(start.add_interval(*by)?),
        (Value::Timestamptz(start), Value::Interval(by)) => {
            Value::Timestamptz(start.add_interval_in(*by, &context.text.zone)?)
        }
        (_, end) => end.clone(),
    };
    let micros = |value: &Value| match value {
        Value::Time(at) => Some(at.micros()),
        Value::Timestamp(at) | Value::Timestamptz(at) => Some(at.micros()),
        _ => None,
    };
    Ok(match (micros(start), micros(&end)) {
        (None, None) => None,
        (Some(only), None) | (None, Some(only)) => Some((only, None)),
        (Some(start), Some(end)) => Some((start.min(end), Some(start.max(end)))),
    })
}

/// Whether two sides have a moment in common, ends left out; unknown if a missing end decides.
fn meet(first: Option<(i64, Option<i64>)>, second: Option<(i64, Option<i64>)>) -> Option<bool> {
    let (mut first, mut second) = (first?, second?);
    if first.0 > second.0 {
        (first, second) = (second, first);
    }
    if first.0 == second.0 {
        return first.1.and(second.1).map(|_| true);
    }
    match first.1? {
        end if second.0 < end => Some(true),
        _ => second.1.map(|_| false),
    }
}

fn of_dates(d: &mut Definitions) {
    d.infix("+", D, I, D, |_, a| Ok(Value::Date(date(&a[0]).add_days(int4(&a[1]))?)));
    d.infix("+", I, D, D, |_, a| Ok(Value::Date(date(&a[1]).add_days(int4(&a[0]))?)));
    d.infix("-", D, I, D, |_, a| {
        let days = int4(&a[1])
            .checked_neg()
            .ok_or_else(|| Error::new(Code::DatetimeFieldOverflow, "date out of range"))?;
        Ok(Value::Date(date(&a[0]).add_days(days)?))
    });
    d.infix("-", D, D, I, |_, a| Ok(Value::Int4(date(&a[0]).days_since(date(&a[1]))?)));
    d.infix("+", D, T, TS, |_, a| Ok(Value::Timestamp(date(&a[0]).at(time(&a[1]))?)));
    d.infix("+", T, D, TS, |_, a| Ok(Value::Timestamp(date(&a[1]).at(time(&a[0]))?)));
    d.infix("+", D, IV, TS, |_, a| {
        Ok(Value::Timestamp(date(&a[0]).to_timestamp()?.add_interval(interval(&a[1]))?))
    });
    d.infix("+", IV, D, TS, |_, a| {
        Ok(Value::Timestamp(date(&a[1]).to_timestamp()?.add_interval(interval(&a[0]))?))
    });
    d.infix("-", D, IV, TS, |_, a| {
        Ok(Value::Timestamp(date(&a[0]).to_timestamp()?.add_interval(interval(&a[1]).neg()?)?))
    });
    d.scalar("isfinite", [D], Type::Bool, |_, a| Ok(Value::Bool(date(&a[0]).is_finite())));
}

fn of_times(d: &mut Definitions) {
    d.infix("+", T, IV, T, |_, a| Ok(Value::Time(time(&a[0]).add_interval(interval(&a[1])))));
    d.infix("+", IV, T, T, |_, a| Ok(Value::Time(time(&a[1]).add_interval(interval(&a[0])))));
    d.infix("-", T, IV, T, |_, a| Ok(Value::Time(time(&a[0]).add_interval(interval(&a[1]).neg()?))));
    d.infix("-", T, T, IV, |_, a| Ok(Value::Interval(time(&a[0]).since(time(&a[1])))));
}

fn of_timestamps(d: &mut Definitions) {
    d.infix("+", TS, IV, TS, |_, a| Ok(Value::Timestamp(moment(&a[0]).add_interval(interval(&a[1]))?)));
    d.infix("+", IV, TS, TS, |_, a| Ok(Value::Timestamp(moment(&a[1]).add_interval(interval(&a[0]))?)));
    d.infix("-", TS, IV, TS, |_, a| {
        Ok(Value::Timestamp(moment(&a[0]).add_interval(interval(&a[1]).neg()?)?))
    });
    d.infix("-", TS, TS, IV, |_, a| Ok(Value::Interval(moment(&a[0]).since(moment(&a[1]))?)));
    d.infix("+", TZ, IV, TZ, |context, a| {
        Ok(Value::Timestamptz(moment(&a[0]).add_interval_in(interval(&a[1]), &context.text.zone)?))
    })
    .volatility = super::Volatility::Stable;
    d.infix("+", IV, TZ, TZ, |context, a| {
        Ok(Value::Timestamptz(moment(&a[1]).add_interval_in(interval(&a[0]), &context.text.zone)?))
    })
    .volatility = super::Volatility::Stable;
    d.infix("-", TZ, IV, TZ, |context, a| {
        Ok(Value::Timestamptz(moment(&a[0]).add_interval_in(interval(&a[1]).neg()?, &context.text.zone)?))
    })
    .volatility = super::Volatility::Stable;
    d.infix("-", TZ, TZ, IV, |_, a| Ok(Value::Interval(moment(&a[0]).since(moment(&a[1]))?)));
    for data_type in [TS, TZ] {
        d.scalar("isfinite", [data_type], Type::Bool, |_, a| Ok(Value::Bool(moment(&a[0]).is_finite())));
    }
    d.scalar("age", [TS, TS], IV, |_, a| Ok(Value::Interval(moment(&a[0]).age(moment(&a[1]))?)));
    d.scalar("age", [TZ, TZ], IV, |context, a| {
        let zone = &context.text.zone;
        Ok(Value::Interval(zone.to_local(moment(&a[0])).age(zone.to_local(moment(&a[1])))?))
    })
    .stable();
    d.scalar("age", [TS], IV, |context, a| Ok(Value::Interval(today(context)?.age(moment(&a[0]))?))).stable();
    d.scalar("age", [TZ], IV, |context, a| {
        Ok(Value::Interval(today(context)?.age(context.text.zone.to_local(moment(&a[0])))?))
    })
    .stable();
}

/// Local midnight of the transaction's day.
fn today(context: &Context) -> Result<Timestamp> {
    Ok(local(context).date().to_timestamp()?)
}

fn of_intervals(d: &mut Definitions) {
    d.infix("+", IV, IV, IV, |_, a| Ok(Value::Interval(interval(&a[0]).add(interval(&a[1]))?)));
    d.infix("-", IV, IV, IV, |_, a| Ok(Value::Interval(interval(&a[0]).sub(interval(&a[1]))?)));
    d.prefix("-", IV, IV, |_, a| Ok(Value::Interval(interval(&a[0]).neg()?)));
    d.infix("*", IV, F, IV, |_, a| Ok(Value::Interval(interval(&a[0]).mul(float(&a[1]))?)));
    d.infix("*", F, IV, IV, |_, a| Ok(Value::Interval(interval(&a[1]).mul(float(&a[0]))?)));
    d.infix("/", IV, F, IV, |_, a| Ok(Value::Interval(interval(&a[0]).div(float(&a[1]))?)));
    d.scalar("justify_hours", [IV], IV, |_, a| Ok(Value::Interval(interval(&a[0]).justify_hours()?)));
    d.scalar("justify_days", [IV], IV, |_, a| Ok(Value::Interval(interval(&a[0]).justify_days()?)));
    d.scalar("justify_interval", [IV], IV, |_, a| Ok(Value::Interval(interval(&a[0]).justify()?)));
    d.scalar("isfinite", [IV], Type::Bool, |_, _| Ok(Value::Bool(true)));
}

/// `extract` gives numeric, `date_part` the same number as a float.
fn taking_fields(d: &mut Definitions) {
    const NUMERIC: Type = Type::Numeric;
    const TEXT: Type = Type::Text;
    fn exact(a: &[Value], context: &Context) -> Result<Value> {
        let zone = &context.text.zone;
        let field = |of: &str| field(&a[0], of);
        let number = match &a[1] {
            Value::Date(date) => fields::extract_date(field("date")?, *date)?,
            Value::Time(time) => Some(fields::extract_time(field("time without time zone")?, *time)?),
            Value::Timestamp(at) => fields::extract_timestamp(field("timestamp without time zone")?, *at)?,
            Value::Timestamptz(at) => {
                fields::extract_timestamptz(field("timestamp with time zone")?, *at, zone)?
            }
            Value::Interval(interval) => Some(fields::extract_interval(field("interval")?, *interval)?),
            other => unreachable!("resolution gave a date or time, not {:?}", other.natural_type()),
        };
        Ok(number.map_or(Value::Null, Value::Numeric))
    }
    for data_type in [D, T, TS, TZ, IV] {
        d.scalar("extract", [TEXT, data_type], NUMERIC, |context, a| exact(a, context)).volatility =
            stability(data_type);
        d.scalar("date_part", [TEXT, data_type], F, |context, a| match exact(a, context)? {
            Value::Numeric(number) => Ok(Value::Float8(number.to_f64())),
            other => Ok(other),
        })
        .volatility = stability(data_type);
    }
}

fn stability(data_type: Type) -> super::Volatility {
    if data_type == TZ { super::Volatility::Stable } else { super::Volatility::Immutable }
}

fn field(name: &Value, of: &str) -> Result<DateField> {
    let name = text(name);
    name.parse::<DateField>().map_err(|()| {
        let message = format!("unit \"{name}\" not recognized for type {of}");
        Error::new(Code::InvalidParameterValue, message)
    })
}

fn truncating(d: &mut Definitions) {
    const TEXT: Type = Type::Text;
    d.scalar("date_trunc", [TEXT, TS], TS, |_, a| {
        Ok(Value::Timestamp(fields::trunc_timestamp(
            field(&a[0], "timestamp without time zone")?,
            moment(&a[1]),
        )?))
    });
    d.scalar("date_trunc", [TEXT, TZ], TZ, |context, a| {
        let unit = field(&a[0], "timestamp with time zone")?;
        Ok(Value::Timestamptz(fields::trunc_timestamptz(unit, moment(&a[1]), &context.text.zone)?))
    })
    .stable();
    d.scalar("date_trunc", [TEXT, TZ, TEXT], TZ, |_, a| {
        let unit = field(&a[0], "timestamp with time zone")?;
        Ok(Value::Timestamptz(fields::trunc_timestamptz(unit, moment(&a[1]), &zone(&a[2])?)?))
    })
    .stable();
    d.scalar("date_trunc", [TEXT, IV], IV, |_, a| {
        Ok(Value::Interval(fields::trunc_interval(field(&a[0], "interval")?, interval(&a[1]))?))
    });
    d.scalar("date_bin", [IV, TS, TS], TS, |_, a| {
        Ok(Value::Timestamp(moment(&a[1]).bin(interval(&a[0]), moment(&a[2]))?))
    });
    d.scalar("date_bin", [IV, TZ, TZ], TZ, |_, a| {
        Ok(Value::Timestamptz(moment(&a[1]).bin(interval(&a[0]), moment(&a[2]))?))
    });
}

fn making(d: &mut Definitions) {
    d.scalar("make_date", [I, I, I], D, |_, a| {
        Ok(Value::Date(fields::make_date(int4(&a[0]), int4(&a[1]), int4(&a[2]))?))
    });
    d.scalar("make_time", [I, I, F], T, |_, a| {
        Ok(Value::Time(fields::make_time(int4(&a[0]), int4(&a[1]), float(&a[2]))?))
    });
    d.scalar("make_timestamp", [I, I, I, I, I, F], TS, |_, a| Ok(Value::Timestamp(make_timestamp(a)?)));
    d.scalar("make_timestamptz", [I, I, I, I, I, F], TZ, |context, a| {
        Ok(Value::Timestamptz(context.text.zone.to_instant(make_timestamp(a)?)?))
    })
    .stable();
    d.scalar("make_timestamptz", [I, I, I, I, I, F, Type::Text], TZ, |_, a| {
        Ok(Value::Timestamptz(zone(&a[6])?.to_instant(make_timestamp(a)?)?))
    })
    .stable();
    d.scalar("make_interval", [I, I, I, I, I, I, F], IV, |_, a| {
        let part = |at: usize| a.get(at).map_or(0, int4);
        let seconds = a.get(6).map_or(0.0, float);
        let clock = [part(4), part(5)];
        Ok(Value::Interval(fields::make_interval([part(0), part(1)], [part(2), part(3)], clock, seconds)?))
    })
    .optional(7);
    d.scalar("to_timestamp", [F], TZ, |_, a| {
        let seconds = float(&a[0]);
        if seconds.is_nan() {
            return Err(Error::new(Code::DatetimeFieldOverflow, "timestamp cannot be NaN"));
        }
        if seconds.is_infinite() {
            let at = if seconds > 0.0 { Timestamp::INFINITY } else { Timestamp::NEG_INFINITY };
            return Ok(Value::Timestamptz(at));
        }
        let micros = (seconds * 1e6).round();
        let out_of_range =
            || Error::new(Code::DatetimeFieldOverflow, format!("timestamp out of range: \"{seconds}\""));
        if micros.abs() >= i64::MAX as f64 {
            return Err(out_of_range());
        }
        let micros = (micros as i64).checked_sub(UNIX_EPOCH_MICROS).ok_or_else(out_of_range)?;
        Ok(Value::Timestamptz(Timestamp::from_micros(micros)?))
    });
}

fn make_timestamp(a: &[Value]) -> Result<Timestamp> {
    let day = fields::make_date(int4(&a[0]), int4(&a[1]), int4(&a[2]))?;
    Ok(day.at(fields::make_time(int4(&a[3]), int4(&a[4]), float(&a[5]))?)?)
}

fn zone(name: &Value) -> Result<Zone> {
    Ok(Zone::parse_with_abbreviations(text(name))?)
}

/// `AT TIME ZONE` is `timezone(zone, value)`.
fn zones(d: &mut Definitions) {
    const TEXT: Type = Type::Text;
    d.scalar("timezone", [TEXT, TZ], TS, |_, a| Ok(Value::Timestamp(zone(&a[0])?.to_local(moment(&a[1])))));
    d.scalar("timezone", [TEXT, TS], TZ, |_, a| {
        Ok(Value::Timestamptz(zone(&a[0])?.to_instant(moment(&a[1]))?))
    });
    d.scalar("timezone", [IV, TZ], TS, |_, a| Ok(Value::Timestamp(offset(&a[0])?.to_local(moment(&a[1])))));
    d.scalar("timezone", [IV, TS], TZ, |_, a| {
        Ok(Value::Timestamptz(offset(&a[0])?.to_instant(moment(&a[1]))?))
    });
}

fn offset(value: &Value) -> Result<Zone> {
    let offset = interval(value);
    if offset.months != 0 || offset.days != 0 {
        let message = "interval time zone must not include months or days";
        return Err(Error::new(Code::InvalidParameterValue, message));
    }
    let seconds = i32::try_from(offset.micros / 1_000_000).unwrap_or(i32::MAX);
    Ok(Zone::fixed(seconds)?)
}
