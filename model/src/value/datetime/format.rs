//! Dates, times, timestamps and intervals as text: ISO dates, PostgreSQL's interval style.

use std::fmt::Write;

use super::calendar::civil_from_days;
use super::{DAY, Date, HOUR, Interval, MINUTE, SECOND, Time, Timestamp, Zone};

/// Appends `2024-01-15`, `0044-03-15 BC`, `infinity`.
pub fn write_date(date: Date, out: &mut String) {
    if !date.is_finite() {
        return out.push_str(if date == Date::INFINITY { "infinity" } else { "-infinity" });
    }
    if write_day(i64::from(date.days()), out) {
        out.push_str(" BC");
    }
}

/// Appends `10:00:00.5`.
pub fn write_time(time: Time, out: &mut String) {
    write_clock(time.micros(), out);
}

/// Appends `2024-01-15 10:00:00`.
pub fn write_timestamp(timestamp: Timestamp, out: &mut String) {
    write_local(timestamp, None, out);
}

/// Appends the local clock of a zone and its offset: `2024-01-15 10:00:00+01`.
pub fn write_timestamptz(timestamp: Timestamp, zone: &Zone, out: &mut String) {
    write_local(zone.to_local(timestamp), Some(zone.offset_at(timestamp)), out);
}

fn write_local(local: Timestamp, offset: Option<i32>, out: &mut String) {
    if !local.is_finite() {
        return out.push_str(if local == Timestamp::INFINITY { "infinity" } else { "-infinity" });
    }
    let (days, micros) = local.split();
    let before_christ = write_day(days, out);
    out.push(' ');
    write_clock(micros, out);
    if let Some(offset) = offset {
        out.push(if offset < 0 { '-' } else { '+' });
        let size = i64::from(offset.unsigned_abs());
        push_two(size / 3_600, out);
        if size % 3_600 != 0 {
            out.push(':');
            push_two(size / 60 % 60, out);
        }
        if size % 60 != 0 {
            out.push(':');
            push_two(size % 60, out);
        }
    }
    if before_christ {
        out.push_str(" BC");
    }
}

/// Appends year, month and day; says whether the year is before Christ.
fn write_day(days: i64, out: &mut String) -> bool {
    let civil = civil_from_days(days);
    let (year, before_christ) = if civil.year > 0 { (civil.year, false) } else { (1 - civil.year, true) };
    if year < 10_000 {
        push_two(year / 100, out);
        push_two(year % 100, out);
    } else {
        // Writing to a String cannot fail.
        let _ = write!(out, "{year}");
    }
    out.push('-');
    push_two(i64::from(civil.month), out);
    out.push('-');
    push_two(i64::from(civil.day), out);
    before_christ
}

fn write_clock(micros: i64, out: &mut String) {
    push_two(micros / HOUR, out);
    out.push(':');
    push_two(micros / MINUTE % 60, out);
    out.push(':');
    push_seconds(micros % MINUTE, out);
}

fn push_seconds(micros: i64, out: &mut String) {
    push_two(micros / SECOND, out);
    let fraction = micros % SECOND;
    if fraction != 0 {
        let _ = write!(out, ".{fraction:06}");
        out.truncate(out.trim_end_matches('0').len());
    }
}

fn push_two(number: i64, out: &mut String) {
    let digit = |value: i64| char::from(b'0' + (value % 10) as u8);
    out.push(digit(number / 10));
    out.push(digit(number));
}

/// Appends `1 year 2 mons -3 days +04:05:06`.
pub fn write_interval(interval: Interval, out: &mut String) {
    let start = out.len();
    let mut after_negative = false;
    let units = [(interval.months / 12, "year"), (interval.months % 12, "mon"), (interval.days, "day")];
    for (count, unit) in units.into_iter().filter(|(count, _)| *count != 0) {
        if out.len() > start {
            out.push(' ');
        }
        let sign = if after_negative && count > 0 { "+" } else { "" };
        let plural = if count == 1 { "" } else { "s" };
        let _ = write!(out, "{sign}{count} {unit}{plural}");
        after_negative = count < 0;
    }
    if interval.micros == 0 && out.len() > start {
        return;
    }
    if out.len() > start {
        out.push(' ');
    }
    if interval.micros < 0 {
        out.push('-');
    } else if after_negative {
        out.push('+');
    }
    let size = interval.micros.unsigned_abs();
    let hours = size / HOUR.unsigned_abs();
    let _ = write!(out, "{hours:02}:");
    let rest = (size % HOUR.unsigned_abs()) as i64;
    push_two(rest / MINUTE, out);
    out.push(':');
    push_seconds(rest % MINUTE, out);
}

/// Rounds microseconds to so many fractional digits of a second, half away from zero.
pub(crate) fn round_micros(micros: i64, digits: u8) -> i64 {
    let step = 10i64.pow(6 - u32::from(digits.min(6)));
    if step == 1 {
        return micros;
    }
    let rest = micros % step;
    let down = micros - rest;
    if rest.abs() * 2 >= step { down.saturating_add(step * rest.signum()) } else { down }
}

impl Timestamp {
    /// Rounded to the digits of a `timestamp(p)` column.
    pub fn rounded(self, digits: u8) -> Timestamp {
        if self.is_finite() { Timestamp(round_micros(self.0, digits)) } else { self }
    }
}

impl Time {
    /// Rounded to the digits of a `time(p)` column.
    pub fn rounded(self, digits: u8) -> Time {
        Time(round_micros(self.0, digits).min(DAY))
    }
}
