//! Texts to intervals: verbose (`1 year 2 days ago`), clock (`1 day 02:03:04`), SQL (`1-2`), ISO 8601 (`P1Y2M`).

use std::borrow::Cow;

use super::parse::fraction_micros;
use super::{DAY, HOUR, Interval, MINUTE, SECOND};
use crate::types::{Typmod, interval_range};
use crate::value::{ValueError, ValueErrorKind};

/// Reads an interval. A modifier's field range decides what a bare number means and cuts what is finer.
pub fn parse_interval(text: &str, typmod: Typmod) -> Result<Interval, ValueError> {
    let range = typmod.interval_range().unwrap_or(interval_range::FULL);
    let trimmed = text.trim();
    let parsed = if trimmed.starts_with(['P', 'p']) { iso(&trimmed[1..]) } else { words(trimmed, range) };
    let total = parsed.map_err(|refused| match refused {
        Refused::Syntax => ValueError::invalid_datetime("interval", text),
        Refused::Range => ValueError::new(
            ValueErrorKind::IntervalOverflow,
            format!("interval field value out of range: \"{text}\""),
        ),
    })?;
    let interval = total.finish().ok_or_else(|| ValueError::datetime_out_of_range("interval"))?;
    Ok(interval.with_typmod(typmod))
}

enum Refused {
    Syntax,
    Range,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    Microsecond,
    Millisecond,
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Year,
    Decade,
    Century,
    Millennium,
}

/// The sum of the fields read so far, wider than an interval.
#[derive(Default)]
struct Total {
    months: i64,
    days: i64,
    micros: i128,
}

impl Total {
    fn finish(self) -> Option<Interval> {
        Some(Interval::new(
            i32::try_from(self.months).ok()?,
            i32::try_from(self.days).ok()?,
            i64::try_from(self.micros).ok()?,
        ))
    }

    fn negate(&mut self) {
        *self = Total { months: -self.months, days: -self.days, micros: -self.micros };
    }

    /// Adds `amount` of a unit; fractions go down to the finer fields as PostgreSQL spreads them.
    fn add(&mut self, amount: &Amount, unit: Unit) -> Result<(), Refused> {
        let whole = amount.whole;
        let fraction = amount.fraction();
        let checked =
            |value: Option<i64>| value.filter(|value| i32::try_from(*value).is_ok()).ok_or(Refused::Range);
        match unit {
            Unit::Microsecond => self.add_micros(whole, fraction, 1),
            Unit::Millisecond => self.add_micros(whole, fraction, 1_000),
            Unit::Second => {
                // Digits, not a double: 0.000001 s must be one microsecond.
                let exact = if amount.negative { -amount.fraction_micros } else { amount.fraction_micros };
                self.micros += i128::from(whole) * i128::from(SECOND) + i128::from(exact);
            }
            Unit::Minute => self.add_micros(whole, fraction, MINUTE),
            Unit::Hour => self.add_micros(whole, fraction, HOUR),
            Unit::Day => {
                self.days = checked(self.days.checked_add(whole))?;
                self.add_micros(0, fraction, DAY);
            }
            Unit::Week => {
                self.days = checked(whole.checked_mul(7).and_then(|days| self.days.checked_add(days)))?;
                self.add_days(fraction * 7.0);
            }
            Unit::Month => {
                self.months = checked(self.months.checked_add(whole))?;
                self.add_days(fraction * 30.0);
            }
            Unit::Year | Unit::Decade | Unit::Century | Unit::Millennium => {
                let months = match unit {
                    Unit::Year => 12,
                    Unit::Decade => 120,
                    Unit::Century => 1_200,
                    _ => 12_000,
                };
                // The field must fit an integer of years; whether the months do is seen at the end.
                checked(whole.checked_mul(months / 12))?;
                self.months += whole * months;
                self.months += (fraction * months as f64).round_ties_even() as i64;
            }
        }
        Ok(())
    }

    fn add_micros(&mut self, whole: i64, fraction: f64, unit: i64) {
        self.micros +=
            i128::from(whole) * i128::from(unit) + (fraction * unit as f64).round_ties_even() as i128;
    }

    /// Whole days of a fractional count, the rest as microseconds.
    fn add_days(&mut self, days: f64) {
        self.days += days.trunc() as i64;
        self.add_micros(0, days - days.trunc(), DAY);
    }
}

/// A number as written.
struct Amount {
    whole: i64,
    negative: bool,
    digits: String,
    fraction_micros: i64,
}

impl Amount {
    fn parse(text: &str) -> Result<Amount, Refused> {
        let negative = text.starts_with('-');
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        let (whole, digits) = unsigned.split_once('.').unwrap_or((unsigned, ""));
        let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if !plain(whole) || !plain(digits) || (whole.is_empty() && digits.is_empty()) {
            return Err(Refused::Syntax);
        }
        let whole: i64 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| Refused::Range)? };
        let whole = if negative { -whole } else { whole };
        Ok(Amount { whole, negative, digits: digits.to_owned(), fraction_micros: fraction_micros(digits) })
    }

    fn fraction(&self) -> f64 {
        if self.digits.is_empty() {
            return 0.0;
        }
        let fraction = format!("0.{}", self.digits).parse().unwrap_or(0.0);
        if self.negative { -fraction } else { fraction }
    }
}

/// The units met so far; each may be given once.
#[derive(Default)]
struct Said(u16);

impl Said {
    fn all_seconds(&mut self) -> Result<(), Refused> {
        [Unit::Second, Unit::Millisecond, Unit::Microsecond].into_iter().try_for_each(|unit| self.once(unit))
    }

    fn once(&mut self, unit: Unit) -> Result<(), Refused> {
        let bit = 1 << unit as u16;
        if self.0 & bit != 0 {
            return Err(Refused::Syntax);
        }
        self.0 |= bit;
        Ok(())
    }
}

/// What stands between blanks.
enum Token<'a> {
    Number(Cow<'a, str>),
    Clock(Cow<'a, str>),
    YearMonth(Cow<'a, str>),
    Word(String),
}

fn words(text: &str, range: u16) -> Result<Total, Refused> {
    let mut tokens = tokens(text)?;
    if tokens.is_empty() {
        return Err(Refused::Syntax);
    }
    let count = tokens.len();
    tokens.retain(|token| !matches!(token, Token::Word(word) if word == "ago"));
    let ago = tokens.len() < count;
    let mut total = Total::default();
    let mut seen = false;
    // From the right, so that a unit is known before its number.
    let mut unit: Option<Unit> = None;
    let mut unit_used = true;
    let mut said = Said::default();
    for token in tokens.iter().rev() {
        match token {
            Token::Word(word) => {
                if !unit_used {
                    return Err(Refused::Syntax);
                }
                unit = Some(unit_of(word).ok_or(Refused::Syntax)?);
                unit_used = false;
            }
            Token::Clock(clock) => {
                if !unit_used {
                    return Err(Refused::Syntax);
                }
                total.micros += i128::from(parse_clock(clock, range)?);
                [Unit::Hour, Unit::Minute].into_iter().try_for_each(|field| said.once(field))?;
                said.all_seconds()?;
                unit = Some(Unit::Day);
                seen = true;
            }
            Token::YearMonth(pair) => {
                let negative = pair.starts_with('-');
                let (years, months) =
                    pair.trim_start_matches(['+', '-']).split_once('-').ok_or(Refused::Syntax)?;
                let months: i64 = months.parse().map_err(|_| Refused::Syntax)?;
                let years: i64 = years.parse().map_err(|_| Refused::Range)?;
                if months >= 12 {
                    return Err(Refused::Range);
                }
                let size =
                    years.checked_mul(12).and_then(|size| size.checked_add(months)).ok_or(Refused::Range)?;
                total.months += if negative { -size } else { size };
                said.once(Unit::Month)?;
                unit_used = true;
                seen = true;
            }
            Token::Number(number) => {
                // The unit holds on to the left, where it is refused as given twice.
                let counted = unit.unwrap_or_else(|| default_unit(range));
                unit = Some(counted);
                let amount = Amount::parse(number)?;
                match counted {
                    // A fraction speaks for the finer units too.
                    Unit::Second if amount.fraction_micros != 0 => said.all_seconds()?,
                    _ => said.once(counted)?,
                }
                total.add(&amount, counted)?;
                unit_used = true;
                seen = true;
            }
        }
    }
    if !seen || !unit_used {
        return Err(Refused::Syntax);
    }
    if ago {
        total.negate();
    }
    Ok(total)
}

fn tokens(text: &str) -> Result<Vec<Token<'_>>, Refused> {
    let bytes = text.as_bytes();
    let mut tokens = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let start = at;
        match bytes[at] {
            byte if byte.is_ascii_whitespace() => at += 1,
            b'@' | b',' => at += 1,
            b'+' | b'-' | b'.' | b'0'..=b'9' => {
                at += 1;
                if matches!(bytes[start], b'+' | b'-') {
                    // A sign may stand apart from its number.
                    at += bytes[at..].iter().take_while(|byte| byte.is_ascii_whitespace()).count();
                }
                let digits = at;
                while at < bytes.len()
                    && (bytes[at].is_ascii_digit() || matches!(bytes[at], b'.' | b':' | b'-'))
                {
                    at += 1;
                }
                let apart = digits > start + 1;
                let piece = match (apart, bytes[start]) {
                    (true, b'-') => Cow::Owned(format!("-{}", &text[digits..at])),
                    (true, _) => Cow::Borrowed(&text[digits..at]),
                    (false, _) => Cow::Borrowed(&text[start..at]),
                };
                let unsigned = piece.trim_start_matches(['+', '-']);
                if piece.len() - unsigned.len() > 1 || unsigned.is_empty() {
                    return Err(Refused::Syntax);
                }
                tokens.push(if piece.contains(':') {
                    Token::Clock(piece)
                } else if unsigned.contains('-') {
                    Token::YearMonth(piece)
                } else {
                    Token::Number(piece)
                });
            }
            byte if byte.is_ascii_alphabetic() => {
                while at < bytes.len() && bytes[at].is_ascii_alphabetic() {
                    at += 1;
                }
                tokens.push(Token::Word(text[start..at].to_ascii_lowercase()));
            }
            _ => return Err(Refused::Syntax),
        }
        if tokens.len() > 25 {
            return Err(Refused::Syntax);
        }
    }
    Ok(tokens)
}

/// The finest field of the range is what a bare number counts.
fn default_unit(range: u16) -> Unit {
    use interval_range::{DAY, FULL, HOUR, MINUTE, MONTH, SECOND, YEAR};
    match range {
        FULL => Unit::Second,
        _ if range & SECOND != 0 => Unit::Second,
        _ if range & MINUTE != 0 => Unit::Minute,
        _ if range & HOUR != 0 => Unit::Hour,
        _ if range & DAY != 0 => Unit::Day,
        _ if range & MONTH != 0 => Unit::Month,
        _ if range & YEAR != 0 => Unit::Year,
        _ => Unit::Second,
    }
}

fn unit_of(word: &str) -> Option<Unit> {
    Some(match word {
        "us" | "usec" | "usecs" | "usecond" | "useconds" | "microsecond" | "microseconds" | "microsecon" => {
            Unit::Microsecond
        }
        "ms" | "msec" | "msecs" | "msecond" | "mseconds" | "millisecond" | "milliseconds" | "millisecon" => {
            Unit::Millisecond
        }
        "s" | "sec" | "secs" | "second" | "seconds" => Unit::Second,
        "m" | "min" | "mins" | "minute" | "minutes" => Unit::Minute,
        "h" | "hr" | "hrs" | "hour" | "hours" => Unit::Hour,
        "d" | "day" | "days" => Unit::Day,
        "w" | "week" | "weeks" => Unit::Week,
        "mon" | "mons" | "month" | "months" => Unit::Month,
        "y" | "yr" | "yrs" | "year" | "years" => Unit::Year,
        "dec" | "decs" | "decade" | "decades" => Unit::Decade,
        "c" | "cent" | "century" | "centuries" => Unit::Century,
        "mil" | "mils" | "millennia" | "millennium" => Unit::Millennium,
        _ => return None,
    })
}

/// `4:05:06.7`, `4:05`; with a range of minutes to seconds two fields are those.
fn parse_clock(text: &str, range: u16) -> Result<i64, Refused> {
    let negative = text.starts_with('-');
    let unsigned = text.trim_start_matches(['+', '-']);
    let fields: Vec<&str> = unsigned.split(':').collect();
    let whole = |text: &str| -> Result<i64, Refused> {
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(Refused::Syntax);
        }
        text.parse().map_err(|_| Refused::Range)
    };
    let seconds = |text: &str| -> Result<i64, Refused> {
        let (digits, fraction) = text.split_once('.').unwrap_or((text, ""));
        let number = whole(digits)?;
        // A leap second's 60 passes; beyond it is no clock.
        if number > 60 { Err(Refused::Range) } else { Ok(number * SECOND + fraction_micros(fraction)) }
    };
    let minute_to_second = range == interval_range::MINUTE | interval_range::SECOND;
    let (hours, minutes, rest) = match fields.as_slice() {
        [minutes, rest] if minute_to_second || rest.contains('.') => (0, whole(minutes)?, seconds(rest)?),
        [hours, minutes] => (whole(hours)?, whole(minutes)?, 0),
        [hours, minutes, rest] => (whole(hours)?, whole(minutes)?, seconds(rest)?),
        _ => return Err(Refused::Syntax),
    };
    if minutes > 59 && !minute_to_second {
        return Err(Refused::Range);
    }
    let size = hours
        .checked_mul(HOUR)
        .and_then(|size| size.checked_add(minutes * MINUTE + rest))
        .ok_or(Refused::Range)?;
    Ok(if negative { -size } else { size })
}

/// What follows the P: `1Y2M3W4DT5H6M7.8S`, or `0001-02-03T04:05:06`.
fn iso(text: &str) -> Result<Total, Refused> {
    let (date, time) = match text.find(['T', 't']) {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    };
    if text.is_empty() {
        return Err(Refused::Syntax);
    }
    let mut total = Total::default();
    iso_part(date, &mut total, false)?;
    if let Some(time) = time {
        iso_part(time, &mut total, true)?;
    }
    Ok(total)
}

fn iso_part(text: &str, total: &mut Total, is_time: bool) -> Result<(), Refused> {
    if text.is_empty() {
        return Ok(());
    }
    if !text.bytes().any(|byte| byte.is_ascii_alphabetic()) {
        return iso_alternative(text, total, is_time);
    }
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|c: char| c.is_ascii_alphabetic()).ok_or(Refused::Syntax)?;
        let amount = Amount::parse(&rest[..end])?;
        let unit = match (rest.as_bytes()[end].to_ascii_uppercase(), is_time) {
            (b'Y', false) => Unit::Year,
            (b'M', false) => Unit::Month,
            (b'W', false) => Unit::Week,
            (b'D', false) => Unit::Day,
            (b'H', true) => Unit::Hour,
            (b'M', true) => Unit::Minute,
            (b'S', true) => Unit::Second,
            _ => return Err(Refused::Syntax),
        };
        total.add(&amount, unit)?;
        rest = &rest[end + 1..];
    }
    Ok(())
}

fn iso_alternative(text: &str, total: &mut Total, is_time: bool) -> Result<(), Refused> {
    if is_time {
        if text.contains(':') {
            total.micros += i128::from(parse_clock(text, interval_range::FULL)?);
            return Ok(());
        }
        let (digits, fraction) = text.split_once('.').unwrap_or((text, ""));
        if digits.len() != 6 {
            return Err(Refused::Syntax);
        }
        let clock = format!("{}:{}:{}.{fraction}", &digits[..2], &digits[2..4], &digits[4..]);
        total.micros += i128::from(parse_clock(&clock, interval_range::FULL)?);
        return Ok(());
    }
    let fields: Vec<&str> = text.split('-').collect();
    let fields = match fields.as_slice() {
        [digits] if digits.len() == 8 => vec![&digits[..4], &digits[4..6], &digits[6..]],
        [_, _] | [_, _, _] => fields,
        _ => return Err(Refused::Syntax),
    };
    for (field, unit) in fields.iter().zip([Unit::Year, Unit::Month, Unit::Day]) {
        total.add(&Amount::parse(field)?, unit)?;
    }
    Ok(())
}

impl Interval {
    /// Cut to a modifier's field range and rounded to its digits.
    pub fn with_typmod(self, typmod: Typmod) -> Interval {
        use interval_range::{DAY as DAYS, HOUR as HOURS, MINUTE as MINUTES, MONTH, SECOND as SECONDS, YEAR};
        let mut kept = self;
        if let Some(range) = typmod.interval_range() {
            let finest =
                [SECONDS, MINUTES, HOURS, DAYS, MONTH, YEAR].into_iter().find(|field| range & field != 0);
            match finest {
                Some(YEAR) => kept = Interval::new(self.months / 12 * 12, 0, 0),
                Some(MONTH) => kept = Interval::new(self.months, 0, 0),
                Some(DAYS) => kept.micros = 0,
                Some(HOURS) => kept.micros -= self.micros % HOUR,
                Some(MINUTES) => kept.micros -= self.micros % MINUTE,
                _ => {}
            }
        }
        if let Some(digits) = typmod.precision(crate::types::Type::Interval) {
            kept.micros = super::format::round_micros(kept.micros, digits);
        }
        kept
    }
}
