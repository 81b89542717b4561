//! Dates, times, timestamps and intervals as PostgreSQL counts them: from 2000-01-01, in days and microseconds,
//! on the proleptic Gregorian calendar.
//!
//! Invariants:
//! - A finite `Date` lies in 4714-11-24 BC … 5874897-12-31, a finite `Timestamp` in 4714-11-24 BC … 294276-12-31.
//! - A `Time` lies in 00:00:00 … 24:00:00.
//! - Nothing here reads a clock; "now" comes in with the `Context`.
//!
//! Files: `calendar` days to dates and back · `zone` time zones · `lex` words and numbers of a text · `parse` texts
//! to values · `parse_interval` · `format` values to texts · `fields` extract, truncate, make · `arith` sums,
//! differences, ages.

pub mod arith;
pub mod calendar;
pub mod fields;
mod format;
mod lex;
mod parse;
mod parse_interval;
pub mod zone;

use std::cmp::Ordering;

pub use format::{write_date, write_interval, write_time, write_timestamp, write_timestamptz};
pub use parse::{parse_date, parse_time, parse_timestamp, parse_timestamptz};
pub use parse_interval::parse_interval;
pub use zone::Zone;

use crate::value::ValueError;

/// Microseconds in a second.
pub const SECOND: i64 = 1_000_000;
/// Microseconds in a minute.
pub const MINUTE: i64 = 60 * SECOND;
/// Microseconds in an hour.
pub const HOUR: i64 = 60 * MINUTE;
/// Microseconds in a day.
pub const DAY: i64 = 24 * HOUR;
/// Days from 1970-01-01 to 2000-01-01.
pub const UNIX_EPOCH_DAYS: i32 = 10_957;
/// Microseconds from 1970-01-01 to 2000-01-01.
pub const UNIX_EPOCH_MICROS: i64 = UNIX_EPOCH_DAYS as i64 * DAY;

/// In which order the numbers of an ambiguous date stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Hash)]
pub enum DateOrder {
    /// Month, day, year.
    #[default]
    Mdy,
    /// Day, month, year.
    Dmy,
    /// Year, month, day.
    Ymd,
}

/// Days since 2000-01-01, or an infinity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Date(i32);

impl Date {
    /// Later than every date.
    pub const INFINITY: Date = Date(i32::MAX);
    /// Earlier than every date.
    pub const NEG_INFINITY: Date = Date(i32::MIN);
    /// 4714-11-24 BC.
    pub const MIN: Date = Date(-2_451_545);
    /// 5874897-12-31.
    pub const MAX: Date = Date(2_147_483_493 - 2_451_545);

    /// The date so many days after 2000-01-01; refused outside the calendar. The two extreme numbers are the
    /// infinities, as on the wire.
    pub fn from_days(days: i32) -> Result<Date, ValueError> {
        let date = Date(days);
        if date.is_finite() && !(Date::MIN..=Date::MAX).contains(&date) {
            return Err(ValueError::datetime_out_of_range("date"));
        }
        Ok(date)
    }

    /// Days since 2000-01-01; the extreme numbers for the infinities.
    pub const fn days(self) -> i32 {
        self.0
    }

    /// Whether this is not an infinity.
    pub const fn is_finite(self) -> bool {
        self.0 != i32::MAX && self.0 != i32::MIN
    }
}

/// Microseconds since midnight, 24:00:00 included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(i64);

impl Time {
    /// The time so many microseconds after midnight; refused outside one day.
    pub fn from_micros(micros: i64) -> Result<Time, ValueError> {
        if (0..=DAY).contains(&micros) {
            Ok(Time(micros))
        } else {
            Err(ValueError::datetime_out_of_range("time"))
        }
    }

    /// The time of day of any count of microseconds, whole days dropped.
    pub fn wrapping(micros: i64) -> Time {
        Time(micros.rem_euclid(DAY))
    }

    /// Microseconds since midnight.
    pub const fn micros(self) -> i64 {
        self.0
    }
}

/// Microseconds since 2000-01-01 00:00:00 (UTC for `timestamptz`), or an infinity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// Later than every timestamp.
    pub const INFINITY: Timestamp = Timestamp(i64::MAX);
    /// Earlier than every timestamp.
    pub const NEG_INFINITY: Timestamp = Timestamp(i64::MIN);
    /// 4714-11-24 00:00:00 BC.
    pub const MIN: Timestamp = Timestamp(-211_813_488_000_000_000);
    /// The last microsecond of 294276.
    pub const MAX: Timestamp = Timestamp(9_223_371_331_199_999_999);

    /// The timestamp so many microseconds after 2000-01-01; refused outside the range. The two extreme numbers are
    /// the infinities, as on the wire.
    pub fn from_micros(micros: i64) -> Result<Timestamp, ValueError> {
        let timestamp = Timestamp(micros);
        if timestamp.is_finite() && !(Timestamp::MIN..=Timestamp::MAX).contains(&timestamp) {
            return Err(ValueError::datetime_out_of_range("timestamp"));
        }
        Ok(timestamp)
    }

    /// The timestamp so many microseconds after 1970-01-01.
    pub fn from_unix_micros(micros: i64) -> Result<Timestamp, ValueError> {
        let shifted = micros.checked_sub(UNIX_EPOCH_MICROS);
        Timestamp::from_micros(shifted.ok_or_else(|| ValueError::datetime_out_of_range("timestamp"))?)
    }

    /// Microseconds since 2000-01-01; the extreme numbers for the infinities.
    pub const fn micros(self) -> i64 {
        self.0
    }

    /// Microseconds since 1970-01-01; saturates for the infinities.
    pub const fn unix_micros(self) -> i64 {
        self.0.saturating_add(UNIX_EPOCH_MICROS)
    }

    /// Whether this is not an infinity.
    pub const fn is_finite(self) -> bool {
        self.0 != i64::MAX && self.0 != i64::MIN
    }

    /// Day and time of day; meaningless for infinities.
    pub(crate) fn split(self) -> (i64, i64) {
        (self.0.div_euclid(DAY), self.0.rem_euclid(DAY))
    }
}

/// A span kept in three fields that do not convert into each other by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Interval {
    /// Months, years included.
    pub months: i32,
    /// Days.
    pub days: i32,
    /// Microseconds, hours included.
    pub micros: i64,
}

impl Interval {
    /// An interval of these fields.
    pub const fn new(months: i32, days: i32, micros: i64) -> Self {
        Interval { months, days, micros }
    }

    /// Its length with months of 30 days and days of 24 hours: what comparison sees.
    pub fn span_micros(self) -> i128 {
        (i128::from(self.months) * 30 + i128::from(self.days)) * i128::from(DAY) + i128::from(self.micros)
    }

    /// Compares as SQL does: by `span_micros`.
    pub fn cmp_sql(&self, other: &Interval) -> Ordering {
        self.span_micros().cmp(&other.span_micros())
    }
}

#[cfg(test)]
mod tests;
