//! Parts of dates and spans: `extract`, `date_trunc`, and `make_*`, which put parts together.

use std::str::FromStr;

use super::calendar::{
    Civil, EPOCH_JULIAN_DAY, civil_from_days, day_of_year, days_from_civil, days_in_month, iso_week,
    iso_week_start, weekday,
};
use super::{DAY, Date, HOUR, Interval, MINUTE, SECOND, Time, Timestamp, UNIX_EPOCH_MICROS, Zone};
use crate::value::{Numeric, ValueError, ValueErrorKind};

/// A part that `extract` and `date_trunc` name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "each variant is named as SQL names it")]
pub enum DateField {
    Microseconds,
    Milliseconds,
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Quarter,
    Year,
    Decade,
    Century,
    Millennium,
    IsoYear,
    Dow,
    IsoDow,
    Doy,
    Epoch,
    Julian,
    Timezone,
    TimezoneHour,
    TimezoneMinute,
}

impl DateField {
    /// The name as SQL prints it in messages.
    pub const fn name(self) -> &'static str {
        match self {
            DateField::Microseconds => "microseconds",
            DateField::Milliseconds => "milliseconds",
            DateField::Second => "second",
            DateField::Minute => "minute",
            DateField::Hour => "hour",
            DateField::Day => "day",
            DateField::Week => "week",
            DateField::Month => "month",
            DateField::Quarter => "quarter",
            DateField::Year => "year",
            DateField::Decade => "decade",
            DateField::Century => "century",
            DateField::Millennium => "millennium",
            DateField::IsoYear => "isoyear",
            DateField::Dow => "dow",
            DateField::IsoDow => "isodow",
            DateField::Doy => "doy",
            DateField::Epoch => "epoch",
            DateField::Julian => "julian",
            DateField::Timezone => "timezone",
            DateField::TimezoneHour => "timezone_hour",
            DateField::TimezoneMinute => "timezone_minute",
        }
    }
}

impl FromStr for DateField {
    type Err = ();

    /// Reads a field's name or abbreviation, in any case.
    fn from_str(name: &str) -> Result<Self, ()> {
        Ok(match name.to_ascii_lowercase().as_str() {
            "us" | "usec" | "usecs" | "usecond" | "useconds" | "microsecond" | "microseconds" => {
                DateField::Microseconds
            }
            "ms" | "msec" | "msecs" | "msecond" | "mseconds" | "millisecond" | "milliseconds" => {
                DateField::Milliseconds
            }
            "s" | "sec" | "secs" | "second" | "seconds" => DateField::Second,
            "m" | "min" | "mins" | "minute" | "minutes" => DateField::Minute,
            "h" | "hr" | "hrs" | "hour" | "hours" => DateField::Hour,
            "d" | "day" | "days" => DateField::Day,
            "w" | "week" | "weeks" => DateField::Week,
            "mon" | "mons" | "month" | "months" => DateField::Month,
            "qtr" | "quarter" => DateField::Quarter,
            "y" | "yr" | "yrs" | "year" | "years" => DateField::Year,
            "dec" | "decs" | "decade" | "decades" => DateField::Decade,
            "c" | "cent" | "century" | "centuries" => DateField::Century,
            "mil" | "mils" | "millennia" | "millennium" => DateField::Millennium,
            "isoyear" => DateField::IsoYear,
            "dow" => DateField::Dow,
            "isodow" => DateField::IsoDow,
            "doy" => DateField::Doy,
            "epoch" => DateField::Epoch,
            "j" | "jd" | "julian" => DateField::Julian,
            "timezone" => DateField::Timezone,
            "timezone_h" | "timezone_hour" => DateField::TimezoneHour,
            "timezone_m" | "timezone_minute" => DateField::TimezoneMinute,
            _ => return Err(()),
        })
    }
}

fn unsupported(field: DateField, of: &str) -> ValueError {
    let message = format!("unit \"{}\" not supported for type {of}", field.name());
    ValueError::new(ValueErrorKind::NotSupported, message)
}

fn scaled(micros: i64, scale: u16) -> Numeric {
    Numeric::from_parts(i128::from(micros), scale).unwrap_or(Numeric::NAN)
}

/// `extract(field from timestamp)`; `None` is SQL null, as for the day of an infinity.
pub fn extract_timestamp(field: DateField, value: Timestamp) -> Result<Option<Numeric>, ValueError> {
    extract(field, value, None, "timestamp without time zone")
}

/// `extract(field from timestamptz)` on the local clock of a zone.
pub fn extract_timestamptz(
    field: DateField,
    value: Timestamp,
    zone: &Zone,
) -> Result<Option<Numeric>, ValueError> {
    extract(field, value, Some(zone), "timestamp with time zone")
}

/// `extract(field from date)`; parts of a day are refused.
pub fn extract_date(field: DateField, value: Date) -> Result<Option<Numeric>, ValueError> {
    use DateField as F;
    match field {
        F::Microseconds | F::Milliseconds | F::Second | F::Minute | F::Hour => {
            return Err(unsupported(field, "date"));
        }
        F::Timezone | F::TimezoneHour | F::TimezoneMinute => return Err(unsupported(field, "date")),
        _ => {}
    }
    if !value.is_finite() {
        let infinite = if value == Date::INFINITY { Timestamp::INFINITY } else { Timestamp::NEG_INFINITY };
        return extract(field, infinite, None, "date");
    }
    let days = i64::from(value.days());
    Ok(Some(match field {
        F::Epoch => Numeric::from((days + i64::from(super::UNIX_EPOCH_DAYS)) * 86_400),
        F::Julian => Numeric::from(days + EPOCH_JULIAN_DAY),
        _ => Numeric::from(day_part(field, days)),
    }))
}

fn extract(
    field: DateField,
    value: Timestamp,
    zone: Option<&Zone>,
    of: &str,
) -> Result<Option<Numeric>, ValueError> {
    use DateField as F;
    let offset = match (field, zone) {
        (F::Timezone | F::TimezoneHour | F::TimezoneMinute, None) => return Err(unsupported(field, of)),
        (_, Some(zone)) => zone.offset_at(value),
        (_, None) => 0,
    };
    if !value.is_finite() {
        let infinity = if value == Timestamp::INFINITY { Numeric::INFINITY } else { Numeric::NEG_INFINITY };
        return Ok(match field {
            F::Year | F::Decade | F::Century | F::Millennium | F::IsoYear | F::Epoch | F::Julian => {
                Some(infinity)
            }
            _ => None,
        });
    }
    let local = zone.map_or(value, |zone| zone.to_local(value));
    let (days, micros) = local.split();
    Ok(Some(match field {
        F::Microseconds | F::Milliseconds | F::Second | F::Minute | F::Hour => clock_part(field, micros),
        F::Epoch => scaled(value.micros() + UNIX_EPOCH_MICROS, 6),
        F::Julian => {
            Numeric::from(days + EPOCH_JULIAN_DAY).add(&Numeric::from(micros).div(&Numeric::from(DAY))?)?
        }
        F::Timezone => Numeric::from(offset),
        F::TimezoneHour => Numeric::from(offset / 3_600),
        F::TimezoneMinute => Numeric::from(offset / 60 % 60),
        _ => Numeric::from(day_part(field, days)),
    }))
}

/// `extract(field from time)`.
pub fn extract_time(field: DateField, value: Time) -> Result<Numeric, ValueError> {
    use DateField as F;
    match field {
        F::Microseconds | F::Milliseconds | F::Second | F::Minute | F::Hour => {
            Ok(clock_part(field, value.micros()))
        }
        F::Epoch => Ok(scaled(value.micros(), 6)),
        _ => Err(unsupported(field, "time without time zone")),
    }
}

/// `extract(field from interval)`.
pub fn extract_interval(field: DateField, value: Interval) -> Result<Numeric, ValueError> {
    use DateField as F;
    let (years, months) = (value.months / 12, value.months % 12);
    Ok(match field {
        F::Microseconds | F::Milliseconds | F::Second | F::Minute => clock_part(field, value.micros),
        F::Hour => Numeric::from(value.micros / HOUR),
        F::Day => Numeric::from(value.days),
        F::Month => Numeric::from(months),
        F::Quarter => Numeric::from(months / 3 + 1),
        F::Year => Numeric::from(years),
        F::Decade => Numeric::from(years / 10),
        F::Century => Numeric::from(years / 100),
        F::Millennium => Numeric::from(years / 1_000),
        F::Epoch => {
            // A year is 365.25 days, a month 30; reckoned in quarters of a day.
            let quarters = 1_461 * i64::from(years) + 120 * i64::from(months) + 4 * i64::from(value.days);
            let seconds = i128::from(quarters * (86_400 / 4));
            let micros = seconds * i128::from(SECOND) + i128::from(value.micros);
            Numeric::from_parts(micros, 6).unwrap_or(Numeric::NAN)
        }
        _ => return Err(unsupported(field, "interval")),
    })
}

fn clock_part(field: DateField, micros: i64) -> Numeric {
    match field {
        DateField::Microseconds => Numeric::from(micros % MINUTE),
        DateField::Milliseconds => scaled(micros % MINUTE, 3),
        DateField::Second => scaled(micros % MINUTE, 6),
        DateField::Minute => Numeric::from(micros / MINUTE % 60),
        _ => Numeric::from(micros / HOUR),
    }
}

/// Parts that a whole day has.
fn day_part(field: DateField, days: i64) -> i64 {
    let civil = civil_from_days(days);
    let year = civil.year;
    // SQL counts years without a zero.
    let shown = |year: i64| if year > 0 { year } else { year - 1 };
    match field {
        DateField::Day => i64::from(civil.day),
        DateField::Month => i64::from(civil.month),
        DateField::Quarter => (i64::from(civil.month) - 1) / 3 + 1,
        DateField::Week => i64::from(iso_week(days).1),
        DateField::IsoYear => shown(iso_week(days).0),
        DateField::Dow => i64::from(weekday(days)),
        DateField::IsoDow => (i64::from(weekday(days)) + 6) % 7 + 1,
        DateField::Doy => day_of_year(civil),
        DateField::Decade => year.div_euclid(10),
        DateField::Century => {
            if year > 0 {
                (year + 99) / 100
            } else {
                -((100 - year) / 100)
            }
        }
        DateField::Millennium => {
            if year > 0 {
                (year + 999) / 1_000
            } else {
                -((1_000 - year) / 1_000)
            }
        }
        _ => shown(year),
    }
}

/// `date_trunc(field, timestamp)`.
pub fn trunc_timestamp(field: DateField, value: Timestamp) -> Result<Timestamp, ValueError> {
    trunc_local(field, value, "timestamp without time zone")
}

/// `date_trunc(field, timestamptz)` on the local clock of a zone.
pub fn trunc_timestamptz(field: DateField, value: Timestamp, zone: &Zone) -> Result<Timestamp, ValueError> {
    let truncated = trunc_local(field, zone.to_local(value), "timestamp with time zone")?;
    match field {
        // Hours and finer keep the offset they have, so that the fold in autumn is not crossed.
        DateField::Hour
        | DateField::Minute
        | DateField::Second
        | DateField::Milliseconds
        | DateField::Microseconds
            if value.is_finite() =>
        {
            Timestamp::from_micros(truncated.micros() - i64::from(zone.offset_at(value)) * SECOND)
        }
        _ => zone.to_instant(truncated),
    }
}

fn trunc_local(field: DateField, value: Timestamp, of: &str) -> Result<Timestamp, ValueError> {
    use DateField as F;
    let step = match field {
        F::Microseconds => Some(1),
        F::Milliseconds => Some(1_000),
        F::Second => Some(SECOND),
        F::Minute => Some(MINUTE),
        F::Hour => Some(HOUR),
        F::Day => Some(DAY),
        F::Week | F::Month | F::Quarter | F::Year | F::Decade | F::Century | F::Millennium => None,
        _ => return Err(unsupported(field, of)),
    };
    if !value.is_finite() {
        return Ok(value);
    }
    if let Some(step) = step {
        return Timestamp::from_micros(value.micros() - value.micros().rem_euclid(step));
    }
    let (days, _) = value.split();
    let civil = civil_from_days(days);
    let first_of = |year: i64, month: u8| days_from_civil(Civil { year, month, day: 1 });
    let start = match field {
        F::Week => {
            let (year, week) = iso_week(days);
            iso_week_start(year, i64::from(week))
        }
        F::Month => first_of(civil.year, civil.month),
        F::Quarter => first_of(civil.year, (civil.month - 1) / 3 * 3 + 1),
        F::Year => first_of(civil.year, 1),
        F::Decade => first_of(civil.year.div_euclid(10) * 10, 1),
        F::Century => first_of((civil.year - 1).div_euclid(100) * 100 + 1, 1),
        _ => first_of((civil.year - 1).div_euclid(1_000) * 1_000 + 1, 1),
    };
    Timestamp::from_micros(
        start.checked_mul(DAY).ok_or_else(|| ValueError::datetime_out_of_range("timestamp"))?,
    )
}

/// `date_trunc(field, interval)`.
pub fn trunc_interval(field: DateField, value: Interval) -> Result<Interval, ValueError> {
    use DateField as F;
    let months = |step: i32| Interval::new(value.months / step * step, 0, 0);
    let clock = |step: i64| Interval { micros: value.micros - value.micros % step, ..value };
    Ok(match field {
        F::Millennium => months(12_000),
        F::Century => months(1_200),
        F::Decade => months(120),
        F::Year => months(12),
        F::Quarter => months(3),
        F::Month => months(1),
        F::Day => Interval { micros: 0, ..value },
        F::Hour => clock(HOUR),
        F::Minute => clock(MINUTE),
        F::Second => clock(SECOND),
        F::Milliseconds => clock(1_000),
        F::Microseconds => value,
        F::Week => {
            return Err(unsupported(field, "interval").with_detail("Months usually have fractional weeks."));
        }
        _ => return Err(unsupported(field, "interval")),
    })
}

/// `make_date(year, month, day)`; a negative year is before Christ.
pub fn make_date(year: i32, month: i32, day: i32) -> Result<Date, ValueError> {
    let refused = || {
        let message = format!("date field value out of range: {year}-{month:02}-{day:02}");
        ValueError::new(ValueErrorKind::DatetimeOverflow, message)
    };
    let astronomical = match year {
        0 => return Err(refused()),
        1.. => i64::from(year),
        _ => i64::from(year) + 1,
    };
    if !(1..=12).contains(&month) || day < 1 || day > i32::from(days_in_month(astronomical, month as u8)) {
        return Err(refused());
    }
    let days = days_from_civil(Civil { year: astronomical, month: month as u8, day: day as u8 });
    let date =
        i32::try_from(days).ok().and_then(|days| Date::from_days(days).ok()).filter(|date| date.is_finite());
    date.ok_or_else(|| {
        let message = format!("date out of range: {year}-{month:02}-{day:02}");
        ValueError::new(ValueErrorKind::DatetimeOverflow, message)
    })
}

/// `make_time(hour, minute, seconds)`.
pub fn make_time(hour: i32, minute: i32, seconds: f64) -> Result<Time, ValueError> {
    let refused = || {
        let message = format!("time field value out of range: {hour}:{minute:02}:{seconds:02}");
        ValueError::new(ValueErrorKind::DatetimeOverflow, message)
    };
    if !(0..=24).contains(&hour) || !(0..60).contains(&minute) || !(0.0..=60.0).contains(&seconds) {
        return Err(refused());
    }
    let micros = (seconds * SECOND as f64).round_ties_even() as i64;
    Time::from_micros(i64::from(hour) * HOUR + i64::from(minute) * MINUTE + micros).map_err(|_| refused())
}

/// `make_interval(years, months, weeks, days, hours, mins, secs)`.
pub fn make_interval(
    months: [i32; 2],
    days: [i32; 2],
    clock: [i32; 2],
    seconds: f64,
) -> Result<Interval, ValueError> {
    let out_of_range = || ValueError::datetime_out_of_range("interval");
    let [years, months] = months;
    let [weeks, days] = days;
    let [hours, minutes] = clock;
    let months = years.checked_mul(12).and_then(|sum| sum.checked_add(months)).ok_or_else(out_of_range)?;
    let days = weeks.checked_mul(7).and_then(|sum| sum.checked_add(days)).ok_or_else(out_of_range)?;
    let fraction = (seconds * SECOND as f64).round_ties_even();
    if !fraction.is_finite() || fraction.abs() > i64::MAX as f64 / 2.0 {
        return Err(out_of_range());
    }
    let micros =
        i64::from(hours).checked_mul(HOUR).and_then(|sum| sum.checked_add(i64::from(minutes) * MINUTE));
    let micros = micros.and_then(|sum| sum.checked_add(fraction as i64)).ok_or_else(out_of_range)?;
    Ok(Interval::new(months, days, micros))
}
