//! Sums and differences of dates, timestamps and intervals; ages; justified intervals.
//!
//! A month added to the 31st lands on the last day of a shorter month. With a zone, months and days move the local
//! clock, hours move the instant, as PostgreSQL does.

use super::calendar::{Civil, civil_from_days, days_from_civil, days_in_month};
use super::{DAY, Date, Interval, SECOND, Time, Timestamp, Zone};
use crate::value::{ValueError, ValueErrorKind};

fn interval_range() -> ValueError {
    ValueError::datetime_out_of_range("interval")
}

fn timestamp_range() -> ValueError {
    ValueError::datetime_out_of_range("timestamp")
}

impl Date {
    /// The date so many days later.
    pub fn add_days(self, days: i32) -> Result<Date, ValueError> {
        if !self.is_finite() {
            return Ok(self);
        }
        let sum = self.0.checked_add(days).ok_or_else(|| ValueError::datetime_out_of_range("date"))?;
        if !(Date::MIN.0..=Date::MAX.0).contains(&sum) {
            return Err(ValueError::datetime_out_of_range("date"));
        }
        Ok(Date(sum))
    }

    /// Days from `other` to this date.
    pub fn days_since(self, other: Date) -> Result<i32, ValueError> {
        if !self.is_finite() || !other.is_finite() {
            let message = "cannot subtract infinite dates";
            return Err(ValueError::new(ValueErrorKind::DatetimeOverflow, message));
        }
        Ok(self.0 - other.0)
    }

    /// Midnight of this date.
    pub fn to_timestamp(self) -> Result<Timestamp, ValueError> {
        match self {
            Date::INFINITY => Ok(Timestamp::INFINITY),
            Date::NEG_INFINITY => Ok(Timestamp::NEG_INFINITY),
            Date(days) => {
                let error =
                    || ValueError::new(ValueErrorKind::DatetimeOverflow, "date out of range for timestamp");
                let micros = i64::from(days).checked_mul(DAY).ok_or_else(error)?;
                Timestamp::from_micros(micros).map_err(|_| error())
            }
        }
    }

    /// The instant of local midnight.
    pub fn to_timestamptz(self, zone: &Zone) -> Result<Timestamp, ValueError> {
        zone.to_instant(self.to_timestamp()?)
    }

    /// This date at a time of day.
    pub fn at(self, time: Time) -> Result<Timestamp, ValueError> {
        let midnight = self.to_timestamp()?;
        if !midnight.is_finite() {
            return Ok(midnight);
        }
        Timestamp::from_micros(midnight.0.checked_add(time.0).ok_or_else(timestamp_range)?)
    }
}

impl Time {
    /// The time an interval later; days and months do not matter, and midnight wraps around.
    pub fn add_interval(self, interval: Interval) -> Time {
        Time((i128::from(self.0) + i128::from(interval.micros)).rem_euclid(i128::from(DAY)) as i64)
    }

    /// The interval from `other` to this time.
    pub fn since(self, other: Time) -> Interval {
        Interval::new(0, 0, self.0 - other.0)
    }
}

impl Timestamp {
    /// The day of a local timestamp.
    pub fn date(self) -> Date {
        match self {
            Timestamp::INFINITY => Date::INFINITY,
            Timestamp::NEG_INFINITY => Date::NEG_INFINITY,
            _ => Date(self.split().0 as i32),
        }
    }

    /// The time of day of a local timestamp; `None` for infinities.
    pub fn time(self) -> Option<Time> {
        self.is_finite().then(|| Time(self.split().1))
    }

    /// The timestamp an interval later, without a zone.
    pub fn add_interval(self, interval: Interval) -> Result<Timestamp, ValueError> {
        if !self.is_finite() {
            return Ok(self);
        }
        let shifted = shift_local(self, interval.months, interval.days)?;
        add_micros(shifted, interval.micros)
    }

    /// The instant an interval later, where months and days move the local clock of the zone.
    pub fn add_interval_in(self, interval: Interval, zone: &Zone) -> Result<Timestamp, ValueError> {
        if !self.is_finite() {
            return Ok(self);
        }
        let mut instant = self;
        if interval.months != 0 {
            instant = zone.to_instant(shift_local(zone.to_local(instant), interval.months, 0)?)?;
        }
        if interval.days != 0 {
            instant = zone.to_instant(shift_local(zone.to_local(instant), 0, interval.days)?)?;
        }
        add_micros(instant, interval.micros)
    }

    /// Days and microseconds from `other` to this timestamp.
    pub fn since(self, other: Timestamp) -> Result<Interval, ValueError> {
        if !self.is_finite() || !other.is_finite() {
            let message = "cannot subtract infinite timestamps";
            return Err(ValueError::new(ValueErrorKind::DatetimeOverflow, message));
        }
        let micros = self.0.checked_sub(other.0).ok_or_else(interval_range)?;
        Interval::new(0, 0, micros).justify_hours()
    }

    /// Years, months, days and time from `other` to this local timestamp: `age`.
    pub fn age(self, other: Timestamp) -> Result<Interval, ValueError> {
        if !self.is_finite() || !other.is_finite() {
            return Err(timestamp_range());
        }
        let negative = self < other;
        let (later, earlier) = if negative { (other, self) } else { (self, other) };
        let ((later_days, later_micros), (earlier_days, earlier_micros)) = (later.split(), earlier.split());
        let (a, b) = (civil_from_days(later_days), civil_from_days(earlier_days));
        let mut micros = later_micros - earlier_micros;
        let mut days = i64::from(a.day) - i64::from(b.day);
        let mut months = (a.year - b.year) * 12 + i64::from(a.month) - i64::from(b.month);
        if micros < 0 {
            micros += DAY;
            days -= 1;
        }
        while days < 0 {
            // The lengths of months are those of the earlier date's month.
            days += i64::from(days_in_month(b.year, b.month));
            months -= 1;
        }
        let sign = if negative { -1 } else { 1 };
        Ok(Interval::new((months * sign) as i32, (days * sign) as i32, micros * sign))
    }

    /// The start of the bin of `stride` counted from `origin` that holds this timestamp: `date_bin`.
    pub fn bin(self, stride: Interval, origin: Timestamp) -> Result<Timestamp, ValueError> {
        if !self.is_finite() {
            return Ok(self);
        }
        if !origin.is_finite() {
            return Err(ValueError::new(ValueErrorKind::DatetimeOverflow, "origin out of range"));
        }
        if stride.months != 0 {
            let message = "timestamps cannot be binned into intervals containing months or years";
            return Err(ValueError::new(ValueErrorKind::NotSupported, message));
        }
        let step = i128::from(stride.days) * i128::from(DAY) + i128::from(stride.micros);
        if step <= 0 {
            let message = "stride must be greater than zero";
            return Err(ValueError::new(ValueErrorKind::DatetimeOverflow, message));
        }
        let distance = i128::from(self.0) - i128::from(origin.0);
        let start = i128::from(origin.0) + distance.div_euclid(step) * step;
        Timestamp::from_micros(i64::try_from(start).map_err(|_| timestamp_range())?)
    }
}

fn shift_local(local: Timestamp, months: i32, days: i32) -> Result<Timestamp, ValueError> {
    let (mut day, micros) = local.split();
    if months != 0 {
        let civil = civil_from_days(day);
        let month = civil.year * 12 + i64::from(civil.month) - 1 + i64::from(months);
        let (year, month) = (month.div_euclid(12), month.rem_euclid(12) as u8 + 1);
        day = days_from_civil(Civil { year, month, day: civil.day.min(days_in_month(year, month)) });
    }
    let shifted = (day + i64::from(days)).checked_mul(DAY).and_then(|start| start.checked_add(micros));
    finite(shifted)
}

fn add_micros(timestamp: Timestamp, micros: i64) -> Result<Timestamp, ValueError> {
    finite(timestamp.0.checked_add(micros))
}

/// A sum must not turn into an infinity.
fn finite(micros: Option<i64>) -> Result<Timestamp, ValueError> {
    let timestamp = Timestamp(micros.ok_or_else(timestamp_range)?);
    let inside = (Timestamp::MIN..=Timestamp::MAX).contains(&timestamp);
    if inside { Ok(timestamp) } else { Err(timestamp_range()) }
}

impl Interval {
    /// The sum, field by field.
    pub fn add(&self, other: Interval) -> Result<Interval, ValueError> {
        let sum = || {
            Some(Interval {
                months: self.months.checked_add(other.months)?,
                days: self.days.checked_add(other.days)?,
                micros: self.micros.checked_add(other.micros)?,
            })
        };
        sum().ok_or_else(interval_range)
    }

    /// The difference, field by field.
    pub fn sub(&self, other: Interval) -> Result<Interval, ValueError> {
        let difference = || {
            Some(Interval {
                months: self.months.checked_sub(other.months)?,
                days: self.days.checked_sub(other.days)?,
                micros: self.micros.checked_sub(other.micros)?,
            })
        };
        difference().ok_or_else(interval_range)
    }

    /// Every field negated.
    pub fn neg(&self) -> Result<Interval, ValueError> {
        Interval::default().sub(*self)
    }

    /// Every field times a factor; what is left of months and days goes down to finer fields.
    pub fn mul(&self, factor: f64) -> Result<Interval, ValueError> {
        self.scale(|field| field * factor)
    }

    /// Every field divided; what is left of months and days goes down to finer fields.
    pub fn div(&self, divisor: f64) -> Result<Interval, ValueError> {
        if divisor == 0.0 {
            return Err(ValueError::division_by_zero());
        }
        self.scale(|field| field / divisor)
    }

    fn scale(&self, by: impl Fn(f64) -> f64) -> Result<Interval, ValueError> {
        let whole = |value: f64| -> Result<i32, ValueError> {
            let fits = value >= f64::from(i32::MIN) && value <= f64::from(i32::MAX);
            if fits { Ok(value as i32) } else { Err(interval_range()) }
        };
        // Doubles are settled at a millionth, as PostgreSQL settles them.
        let settle = |value: f64| (value * 1e6).round_ties_even() / 1e6;
        let (months, days) = (by(f64::from(self.months)), by(f64::from(self.days)));
        let (whole_months, mut whole_days) = (whole(months)?, whole(days)?);
        let month_days = settle((months - f64::from(whole_months)) * 30.0);
        let mut seconds = settle((days - f64::from(whole_days) + month_days - month_days.trunc()) * 86_400.0);
        if seconds.abs() >= 86_400.0 {
            let carried = (seconds / 86_400.0).trunc();
            whole_days = whole_days.checked_add(carried as i32).ok_or_else(interval_range)?;
            seconds -= carried * 86_400.0;
        }
        let days = whole_days.checked_add(month_days as i32).ok_or_else(interval_range)?;
        let micros = (by(self.micros as f64) + seconds * SECOND as f64).round_ties_even();
        if micros.is_nan() || micros < i64::MIN as f64 || micros >= i64::MAX as f64 {
            return Err(interval_range());
        }
        Ok(Interval::new(whole_months, days, micros as i64))
    }

    /// 24 hours become a day: `justify_hours`.
    pub fn justify_hours(self) -> Result<Interval, ValueError> {
        let carried = i32::try_from(self.micros / DAY).map_err(|_| interval_range())?;
        let mut days = self.days.checked_add(carried).ok_or_else(interval_range)?;
        let mut micros = self.micros % DAY;
        if days > 0 && micros < 0 {
            micros += DAY;
            days -= 1;
        } else if days < 0 && micros > 0 {
            micros -= DAY;
            days += 1;
        }
        Ok(Interval { days, micros, ..self })
    }

    /// 30 days become a month: `justify_days`.
    pub fn justify_days(self) -> Result<Interval, ValueError> {
        let mut months = self.months.checked_add(self.days / 30).ok_or_else(interval_range)?;
        let mut days = self.days % 30;
        if months > 0 && days < 0 {
            days += 30;
            months -= 1;
        } else if months < 0 && days > 0 {
            days -= 30;
            months += 1;
        }
        Ok(Interval { months, days, ..self })
    }

    /// Both, and all fields of one sign: `justify_interval`.
    pub fn justify(self) -> Result<Interval, ValueError> {
        let mut result = self;
        // Days first where that keeps the hours' carry from overflowing.
        if (result.days > 0 && result.micros > 0) || (result.days < 0 && result.micros < 0) {
            result = result.justify_days()?;
        }
        let carried = i32::try_from(result.micros / DAY).map_err(|_| interval_range())?;
        result.micros %= DAY;
        result.days = result.days.checked_add(carried).ok_or_else(interval_range)?;
        result.months = result.months.checked_add(result.days / 30).ok_or_else(interval_range)?;
        result.days %= 30;
        if result.months > 0 && (result.days < 0 || (result.days == 0 && result.micros < 0)) {
            result.days += 30;
            result.months -= 1;
        } else if result.months < 0 && (result.days > 0 || (result.days == 0 && result.micros > 0)) {
            result.days -= 30;
            result.months += 1;
        }
        if result.days > 0 && result.micros < 0 {
            result.micros += DAY;
            result.days -= 1;
        } else if result.days < 0 && result.micros > 0 {
            result.micros -= DAY;
            result.days += 1;
        }
        Ok(result)
    }
}
