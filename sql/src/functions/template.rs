//! `to_char`, `to_date`, `to_timestamp`, `to_number`: values written and read by a template.
//!
//! A template is cut into parts once per call: quoted or plain text, and patterns with their `FM` and `TH` modifiers. What
//! PostgreSQL has and this does not (`TM`, locale names, `EEEE` input) is `0A000`.

use model::{
    Code, Error, Result, Type, Value,
    types::Typmod,
    value::{
        Numeric, Timestamp, Zone,
        datetime::{
            self, DAY,
            calendar::{self, Civil},
        },
    },
};

use super::{Definitions, float, int, numeric, text};
use crate::context::Context;

pub(super) fn define(d: &mut Definitions) {
    const T: Type = Type::Text;
    d.scalar("to_char", [Type::Timestamp, T], T, |_, a| written(&a[0], text(&a[1]), &Zone::utc()));
    d.scalar("to_char", [Type::Timestamptz, T], T, |context, a| {
        written(&a[0], text(&a[1]), &context.text.zone)
    })
    .stable();
    d.scalar("to_char", [Type::Interval, T], T, |_, a| written(&a[0], text(&a[1]), &Zone::utc()));
    d.scalar("to_char", [Type::Int4, T], T, |_, a| number(&Numeric::from(int(&a[0])), text(&a[1])));
    d.scalar("to_char", [Type::Int8, T], T, |_, a| number(&Numeric::from(int(&a[0])), text(&a[1])));
    d.scalar("to_char", [Type::Numeric, T], T, |_, a| number(numeric(&a[0]), text(&a[1])));
    for data_type in [Type::Float4, Type::Float8] {
        d.scalar("to_char", [data_type, T], T, |_, a| number(&Numeric::from_f64(float(&a[0])), text(&a[1])));
    }
    d.scalar("to_date", [T, T], Type::Date, |_, a| {
        Ok(Value::Date(read(text(&a[0]), text(&a[1]))?.local()?.date()))
    });
    d.scalar("to_timestamp", [T, T], Type::Timestamptz, |context, a| {
        let fields = read(text(&a[0]), text(&a[1]))?;
        let local = fields.local()?;
        Ok(Value::Timestamptz(match fields.offset_seconds {
            Some(seconds) => Zone::fixed(seconds)?.to_instant(local)?,
            None => context.text.zone.to_instant(local)?,
        }))
    })
    .stable();
    d.scalar("to_number", [T, T], Type::Numeric, to_number);
}

/// A piece of a template for dates.
struct Part<'a> {
    kind: Kind<'a>,
    /// `FM`: no padding.
    fill: bool,
    /// `TH` or `th`: an ordinal suffix.
    ordinal: Option<&'a str>,
}

enum Kind<'a> {
    Pattern(&'static str, &'a str),
    Text(&'a str),
}

/// The patterns, longer ones before their beginnings.
const PATTERNS: &[&str] = &[
    "A.D.", "AD", "A.M.", "AM", "B.C.", "BC", "CC", "DAY", "DDD", "DD", "DY", "D", "FF1", "FF2", "FF3",
    "FF4", "FF5", "FF6", "HH24", "HH12", "HH", "IDDD", "ID", "IW", "IYYY", "IYY", "IY", "I", "J", "MI", "MM",
    "MONTH", "MON", "MS", "OF", "P.M.", "PM", "Q", "RM", "SSSSS", "SSSS", "SS", "TZH", "TZM", "TZ", "US",
    "WW", "W", "Y,YYY", "YYYY", "YYY", "YY", "Y",
];

/// The parts of a template; a template over [`TEMPLATE_BYTES_MAX`] is `54000`.
fn parts(template: &str) -> Result<Vec<Part<'_>>> {
    if template.len() > TEMPLATE_BYTES_MAX {
        return Err(Error::new(Code::ProgramLimitExceeded, "format string is too long"));
    }
    let mut parts = Vec::new();
    let mut rest = template;
    let mut fill = false;
    while !rest.is_empty() {
        if rest.get(..2).is_some_and(|start| start.eq_ignore_ascii_case("FM")) {
            fill = true;
            rest = &rest[2..];
            continue;
        }
        if let Some(quoted) = rest.strip_prefix('"') {
            let end = quoted.find('"').unwrap_or(quoted.len());
            parts.push(Part { kind: Kind::Text(&quoted[..end]), fill, ordinal: None });
            rest = quoted.get(end + 1..).unwrap_or("");
            continue;
        }
        let starts =
            |name: &&&str| rest.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name));
        if let Some(name) = PATTERNS.iter().find(starts) {
            let (spelled, after) = rest.split_at(name.len());
            let suffix = after.get(..2).filter(|suffix| suffix.eq_ignore_ascii_case("TH"));
            rest = &after[suffix.map_or(0, str::len)..];
            parts.push(Part { kind: Kind::Pattern(name, spelled), fill, ordinal: suffix });
            fill = false;
            continue;
        }
        let length = rest.chars().next().map_or(1, char::len_utf8);
        let (piece, after) = rest.split_at(length);
        parts.push(Part { kind: Kind::Text(piece), fill, ordinal: None });
        rest = after;
    }
    Ok(parts)
}

/// No template is longer: each of its patterns takes many times its bytes.
const TEMPLATE_BYTES_MAX: usize = 1 << 20;

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const ROMAN: [&str; 12] = ["I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII"];

/// The fields of a moment or an interval, as a template sees them.
struct Fields {
    year: i64,
    month: i64,
    day: i64,
    micros: i64,
    /// Days since 2000-01-01; none for an interval.
    days: Option<i64>,
    zone: String,
    offset: i32,
}

fn written(value: &Value, template: &str, zone: &Zone) -> Result<Value> {
    let fields = match value {
        Value::Interval(interval) => Fields {
            year: i64::from(interval.months / 12),
            month: i64::from(interval.months % 12),
            day: i64::from(interval.days),
            micros: interval.micros,
            days: None,
            zone: String::new(),
            offset: 0,
        },
        Value::Timestamp(at) | Value::Timestamptz(at) => {
            if !at.is_finite() {
                return Ok(Value::Null);
            }
            let zoned = matches!(value, Value::Timestamptz(_));
            let local = if zoned { zone.to_local(*at) } else { *at };
            let days = local.micros().div_euclid(DAY);
            let civil = calendar::civil_from_days(days);
            Fields {
                year: civil.year,
                month: i64::from(civil.month),
                day: i64::from(civil.day),
                micros: local.micros().rem_euclid(DAY),
                days: Some(days),
                zone: if zoned { zone.abbreviation_at(*at) } else { String::new() },
                offset: if zoned { zone.offset_at(*at) } else { 0 },
            }
        }
        other => unreachable!("resolution gave a timestamp or interval, not {:?}", other.natural_type()),
    };
    let mut out = String::new();
    for part in parts(template)? {
        match part.kind {
            Kind::Text(piece) => out.push_str(piece),
            Kind::Pattern(name, spelled) => {
                let piece = fields.write(name, spelled, part.fill)?;
                out.push_str(&piece);
                if let Some(suffix) = part.ordinal {
                    out.push_str(&ordinal(&piece, suffix));
                }
            }
        }
    }
    Ok(Value::text(out))
}

/// `st`, `nd`, `rd` or `th`, in the case of the suffix that asks for it.
fn ordinal(number: &str, suffix: &str) -> String {
    let digits = number.trim_start_matches(['-', ' ']);
    let teen = digits.len() >= 2 && digits.as_bytes()[digits.len() - 2] == b'1';
    let ending = match digits.bytes().last() {
        Some(b'1') if !teen => "st",
        Some(b'2') if !teen => "nd",
        Some(b'3') if !teen => "rd",
        _ => "th",
    };
    if suffix.starts_with('T') { ending.to_uppercase() } else { ending.to_owned() }
}

/// A name in the case its pattern was spelled in: `MONTH`, `Month` or `month`.
fn in_case(name: &str, spelled: &str) -> String {
    let mut letters = spelled.chars().filter(|letter| letter.is_alphabetic());
    match (letters.next(), letters.next()) {
        (Some(first), _) if first.is_lowercase() => name.to_lowercase(),
        (Some(_), Some(second)) if second.is_uppercase() => name.to_uppercase(),
        _ => name.to_owned(),
    }
}

impl Fields {
    fn write(&self, pattern: &str, spelled: &str, fill: bool) -> Result<String> {
        let padded = |number: i64, width: usize| {
            if fill {
                return number.to_string();
            }
            let sign = if number < 0 { "-" } else { "" };
            format!("{sign}{:0width$}", number.unsigned_abs())
        };
        let name = |name: &str, width: usize| {
            let name = in_case(name, spelled);
            if fill { name } else { format!("{name:<width$}") }
        };
        let needs_date = || {
            Error::new(Code::InvalidDatetimeFormat, "invalid format specification for an interval value")
                .with_hint("Intervals are not tied to specific calendar dates.")
        };
        let days = || self.days.ok_or_else(needs_date);
        let weekday = || days().map(|days| i64::from(calendar::weekday(days)));
        let day_of_year = || {
            let civil = Civil { year: self.year, month: self.month as u8, day: self.day as u8 };
            days().map(|_| calendar::day_of_year(civil))
        };
        let year = if self.days.is_some() && self.year <= 0 { 1 - self.year } else { self.year };
        let hour = self.micros / datetime::HOUR;
        let minute = self.micros / datetime::MINUTE % 60;
        let second = self.micros / datetime::SECOND % 60;
        let fraction = self.micros % datetime::SECOND;
        let twelve = if hour % 12 == 0 { 12 } else { hour % 12 };
        Ok(match pattern {
            "YYYY" => padded(year, 4),
            "YYY" => padded(year % 1000, 3),
            "YY" => padded(year % 100, 2),
            "Y" => padded(year % 10, 1),
            "Y,YYY" => format!("{},{:03}", year / 1000, year % 1000),
            "IYYY" => padded(calendar::iso_week(days()?).0, 4),
            "IYY" => padded(calendar::iso_week(days()?).0 % 1000, 3),
            "IY" => padded(calendar::iso_week(days()?).0 % 100, 2),
            "I" => padded(calendar::iso_week(days()?).0 % 10, 1),
            "CC" => padded(if year > 0 { (year - 1) / 100 + 1 } else { year / 100 - 1 }, 2),
            "MM" => padded(self.month, 2),
            "MONTH" => name(MONTHS[self.month_index()?], 9),
            "MON" => in_case(&MONTHS[self.month_index()?][..3], spelled),
            "RM" => {
                let roman = in_case(ROMAN[self.month_index()?], spelled);
                if fill { roman } else { format!("{roman:<4}") }
            }
            "DD" => padded(self.day, 2),
            "DDD" => padded(day_of_year()?, 3),
            "IDDD" => {
                let (iso_year, _) = calendar::iso_week(days()?);
                padded(days()? - calendar::iso_week_start(iso_year, 1) + 1, 3)
            }
            "D" => (weekday()? + 1).to_string(),
            "ID" => (if weekday()? == 0 { 7 } else { weekday()? }).to_string(),
            "DAY" => name(DAYS[weekday()? as usize], 9),
            "DY" => in_case(&DAYS[weekday()? as usize][..3], spelled),
            "W" => ((self.day - 1) / 7 + 1).to_string(),
            "WW" => padded((day_of_year()? - 1) / 7 + 1, 2),
            "IW" => padded(i64::from(calendar::iso_week(days()?).1), 2),
            "Q" => ((self.month_index()? / 3) + 1).to_string(),
            "J" => (days()? + 2_451_545).to_string(),
            "HH24" => padded(hour, 2),
            "HH12" | "HH" => padded(twelve, 2),
            "MI" => padded(minute, 2),
            "SS" => padded(second, 2),
            "SSSS" | "SSSSS" => padded(self.micros / datetime::SECOND, 1),
            "MS" => format!("{:03}", fraction / 1000),
            "US" | "FF6" => format!("{fraction:06}"),
            "FF1" => format!("{}", fraction / 100_000),
            "FF2" => format!("{:02}", fraction / 10_000),
            "FF3" => format!("{:03}", fraction / 1000),
            "FF4" => format!("{:04}", fraction / 100),
            "FF5" => format!("{:05}", fraction / 10),
            "AM" | "PM" => in_case(if hour % 24 >= 12 { "PM" } else { "AM" }, spelled),
            "A.M." | "P.M." => in_case(if hour % 24 >= 12 { "P.M." } else { "A.M." }, spelled),
            "AD" | "BC" => in_case(if self.year <= 0 { "BC" } else { "AD" }, spelled),
            "A.D." | "B.C." => in_case(if self.year <= 0 { "B.C." } else { "A.D." }, spelled),
            "TZ" => in_case(&self.zone, spelled),
            "TZH" => format!("{}{:02}", if self.offset < 0 { '-' } else { '+' }, self.offset.abs() / 3600),
            "TZM" => format!("{:02}", self.offset.abs() / 60 % 60),
            "OF" => {
                let minutes = self.offset.abs() / 60 % 60;
                let hours =
                    format!("{}{:02}", if self.offset < 0 { '-' } else { '+' }, self.offset.abs() / 3600);
                if minutes == 0 { hours } else { format!("{hours}:{minutes:02}") }
            }
            other => unreachable!("{other} is not in the list of patterns"),
        })
    }

    fn month_index(&self) -> Result<usize> {
        let index = usize::try_from(self.month - 1).ok().filter(|index| *index < 12);
        index.ok_or_else(|| Error::new(Code::InvalidDatetimeFormat, "an interval has no name of a month"))
    }
}

/// What `to_date` and `to_timestamp` found.
#[derive(Default)]
struct Found {
    year: Option<i64>,
    month: Option<i64>,
    day: Option<i64>,
    day_of_year: Option<i64>,
    julian: Option<i64>,
    iso_week: Option<(Option<i64>, i64)>,
    weekday: Option<i64>,
    hour: i64,
    minute: i64,
    second: i64,
    micros: i64,
    afternoon: Option<bool>,
    before_christ: bool,
    offset_seconds: Option<i32>,
}

fn read(source: &str, template: &str) -> Result<Found> {
    let mut found = Found::default();
    let mut rest = source.trim_start();
    let parts = parts(template)?;
    for (index, part) in parts.iter().enumerate() {
        match part.kind {
            Kind::Text(piece) => {
                let separator = |letter: char| !letter.is_alphanumeric();
                if piece.chars().all(separator) {
                    rest = rest.trim_start_matches(|letter: char| {
                        separator(letter) && letter != '-' && letter != '+'
                    });
                    if rest.starts_with('-') && piece.contains('-') {
                        rest = &rest[1..];
                    }
                } else {
                    // Plain text is skipped letter by letter, whatever it is.
                    let skip = piece.chars().count();
                    rest = rest.char_indices().nth(skip).map_or("", |(at, _)| &rest[at..]);
                }
            }
            Kind::Pattern(name, _) => {
                rest = rest.trim_start();
                let adjacent = matches!(parts.get(index + 1), Some(Part { kind: Kind::Pattern(..), .. }));
                rest = found.take(name, rest, adjacent)?;
                if part.ordinal.is_some() {
                    rest = rest.get(2..).unwrap_or("");
                }
            }
        }
    }
    Ok(found)
}

fn digits<'a>(source: &'a str, width: usize, pattern: &str) -> Result<(i64, &'a str)> {
    let signed = source.strip_prefix(['-', '+']).map_or(0, |_| 1);
    let count = source[signed..].bytes().take(width).take_while(u8::is_ascii_digit).count();
    if count == 0 {
        let shown: String = source.chars().take(width.min(10)).collect();
        let message = format!("invalid value \"{shown}\" for \"{pattern}\"");
        return Err(Error::new(Code::InvalidDatetimeFormat, message).with_detail("Value must be an integer."));
    }
    let (number, rest) = source.split_at(signed + count);
    let number = number.parse().map_err(|_| Error::new(Code::DatetimeFieldOverflow, "value out of range"))?;
    Ok((number, rest))
}

impl Found {
    fn take<'a>(&mut self, pattern: &str, source: &'a str, adjacent: bool) -> Result<&'a str> {
        let number = |width: usize| digits(source, if adjacent { width } else { 9 }, pattern);
        let out_of_range = || {
            Error::new(
                Code::DatetimeFieldOverflow,
                format!("date/time field value out of range: \"{source}\""),
            )
        };
        let within = |value: i64, low: i64, high: i64| {
            if (low..=high).contains(&value) { Ok(value) } else { Err(out_of_range()) }
        };
        let named = |names: &[&str], width: Option<usize>| {
            let position = names.iter().position(|name| {
                let name = width.map_or(*name, |width| &name[..width]);
                source.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name))
            });
            let place = position.ok_or_else(|| {
                let shown: String = source.chars().take(9).collect();
                Error::new(
                    Code::InvalidDatetimeFormat,
                    format!("invalid value \"{shown}\" for \"{pattern}\""),
                )
                .with_detail("The given value did not match any of the allowed values for this field.")
            })?;
            Ok::<_, Error>((place as i64, &source[width.unwrap_or(names[place].len())..]))
        };
        let rest;
        match pattern {
            "YYYY" | "Y,YYY" | "IYYY" => {
                let plain = source.replacen(',', "", usize::from(pattern == "Y,YYY"));
                let (year, left) = digits(
                    if pattern == "Y,YYY" { &plain } else { source },
                    if adjacent { 4 } else { 9 },
                    pattern,
                )?;
                let used = source.len() - left.len() - usize::from(plain.len() < source.len());
                rest = &source[used.min(source.len())..];
                self.year = Some(year);
            }
            "YYY" | "YY" | "Y" | "IYY" | "IY" | "I" => {
                let (year, left) = number(pattern.trim_start_matches('I').len().max(1))?;
                // Years of fewer than four digits mean the one closest to 2020.
                self.year = Some(match year {
                    0..=69 => year + 2000,
                    70..=99 => year + 1900,
                    100..=519 => year + 2000,
                    520..=999 => year + 1000,
                    year => year,
                });
                rest = left;
            }
            "MM" => {
                let (month, left) = number(2)?;
                self.month = Some(within(month, 1, 12)?);
                rest = left;
            }
            "MONTH" | "MON" => {
                let (month, left) = named(&MONTHS, (pattern == "MON").then_some(3))?;
                self.month = Some(month + 1);
                rest = left;
            }
            "RM" => {
                let end = source.find(|letter: char| !letter.is_ascii_alphabetic()).unwrap_or(source.len());
                let place = ROMAN.iter().position(|roman| roman.eq_ignore_ascii_case(&source[..end]));
                self.month = Some(place.ok_or_else(out_of_range)? as i64 + 1);
                rest = &source[end..];
            }
            "DD" => {
                let (day, left) = number(2)?;
                self.day = Some(within(day, 1, 31)?);
                rest = left;
            }
            "DDD" | "IDDD" => {
                let (day, left) = number(3)?;
                self.day_of_year = Some(within(day, 1, 371)?);
                rest = left;
            }
            "D" | "ID" => {
                let (day, left) = number(1)?;
                self.weekday = Some(within(day, 1, 7)?);
                rest = left;
            }
            "DAY" | "DY" => rest = named(&DAYS, (pattern == "DY").then_some(3))?.1,
            "J" => {
                let (julian, left) = digits(source, 9, pattern)?;
                self.julian = Some(julian);
                rest = left;
            }
            "WW" | "W" | "Q" | "CC" => rest = number(2)?.1,
            "IW" => {
                let (week, left) = number(2)?;
                self.iso_week = Some((None, within(week, 1, 53)?));
                rest = left;
            }
            "HH24" | "HH12" | "HH" => {
                let (hour, left) = number(2)?;
                self.hour = if pattern == "HH24" { within(hour, 0, 23)? } else { within(hour, 1, 12)? };
                rest = left;
            }
            "MI" => {
                let (minute, left) = number(2)?;
                self.minute = within(minute, 0, 59)?;
                rest = left;
            }
            "SS" => {
                let (second, left) = number(2)?;
                self.second = within(second, 0, 59)?;
                rest = left;
            }
            "SSSS" | "SSSSS" => {
                let (second, left) = number(5)?;
                let second = within(second, 0, 86_399)?;
                (self.hour, self.minute, self.second) = (second / 3600, second / 60 % 60, second % 60);
                rest = left;
            }
            "MS" | "US" | "FF1" | "FF2" | "FF3" | "FF4" | "FF5" | "FF6" => {
                let width = match pattern {
                    "MS" => 3,
                    "US" => 6,
                    other => other[2..].parse().expect("FF is followed by a digit"),
                };
                let count = source.bytes().take(width).take_while(u8::is_ascii_digit).count();
                let (fraction, left) = digits(source, width, pattern)?;
                self.micros = fraction * 10_i64.pow(6 - count as u32);
                rest = left;
            }
            "AM" | "PM" | "A.M." | "P.M." => {
                let names = if pattern.contains('.') { ["A.M.", "P.M."] } else { ["AM", "PM"] };
                let (half, left) = named(&names, None)?;
                self.afternoon = Some(half == 1);
                rest = left;
            }
            "AD" | "BC" | "A.D." | "B.C." => {
                let names = if pattern.contains('.') { ["A.D.", "B.C."] } else { ["AD", "BC"] };
                let (era, left) = named(&names, None)?;
                self.before_christ = era == 1;
                rest = left;
            }
            "TZH" => {
                let (hours, left) = digits(source, 2, pattern)?;
                let sign = if source.starts_with('-') { -1 } else { 1 };
                let minutes = self.offset_seconds.unwrap_or(0);
                self.offset_seconds = Some(within(hours, -15, 15)? as i32 * 3600 + sign * minutes.abs());
                rest = left;
            }
            "TZM" => {
                let (minutes, left) = digits(source, 2, pattern)?;
                let hours = self.offset_seconds.unwrap_or(0);
                let sign = if hours < 0 { -1 } else { 1 };
                self.offset_seconds = Some(hours + sign * within(minutes, 0, 59)? as i32 * 60);
                rest = left;
            }
            other => {
                let message = format!("formatting field \"{other}\" is only supported in to_char");
                return Err(Error::unsupported(message, "Use TZH and TZM for zones."));
            }
        }
        Ok(rest)
    }

    fn local(&self) -> Result<Timestamp> {
        let days = self.day_number()?;
        let mut hour = self.hour;
        if let Some(afternoon) = self.afternoon {
            hour = hour % 12 + if afternoon { 12 } else { 0 };
        }
        let time = hour * datetime::HOUR
            + self.minute * datetime::MINUTE
            + self.second * datetime::SECOND
            + self.micros;
        let micros = days.checked_mul(DAY).and_then(|day| day.checked_add(time));
        let out_of_range = || Error::new(Code::DatetimeFieldOverflow, "timestamp out of range");
        Ok(Timestamp::from_micros(micros.ok_or_else(out_of_range)?)?)
    }

    /// Days since 2000-01-01.
    fn day_number(&self) -> Result<i64> {
        if let Some(julian) = self.julian {
            return Ok(julian - 2_451_545);
        }
        let year = match self.year {
            // PostgreSQL's year 0 stands for 1 BC.
            None => 0,
            Some(year) if self.before_christ => 1 - year,
            Some(year) => year,
        };
        if let Some((_, week)) = self.iso_week {
            return Ok(calendar::iso_week_start(year, week) + self.weekday.unwrap_or(1) - 1);
        }
        let first = calendar::days_from_civil(Civil { year, month: 1, day: 1 });
        if let (Some(day), None) = (self.day_of_year, self.month) {
            return Ok(first + day - 1);
        }
        let (month, day) = (self.month.unwrap_or(1), self.day.unwrap_or(1));
        let civil = Civil { year, month: month as u8, day: day as u8 };
        let days = calendar::days_from_civil(civil);
        if i64::from(calendar::civil_from_days(days).day) != day {
            return Err(Error::new(
                Code::DatetimeFieldOverflow,
                format!("date/time field value out of range: \"{year:04}-{month:02}-{day:02}\""),
            ));
        }
        Ok(days)
    }
}

/// A template for numbers, cut into what stands before and after the decimal point.
#[derive(Default)]
struct Digits {
    fill: bool,
    /// One per digit place, `0` or `9`, with separators and texts between.
    whole: Vec<Piece>,
    fraction: Vec<Piece>,
    point: bool,
    sign: Sign,
    ordinal: Option<bool>,
    shift: usize,
}

enum Piece {
    Digit { zero: bool },
    Group,
    Text(String),
}

#[derive(Default, PartialEq, Eq, Clone, Copy)]
enum Sign {
    /// A blank or minus before the first digit.
    #[default]
    Plain,
    Leading,
    Trailing,
    MinusTrailing,
    MinusLeading,
    Brackets,
}

fn digits_of(template: &str) -> Result<Digits> {
    let mut digits = Digits::default();
    let mut rest = template;
    while let Some(first) = rest.chars().next() {
        let starts =
            |name: &str| rest.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name));
        let empty = digits.whole.is_empty() && digits.fraction.is_empty() && !digits.point;
        let length;
        if starts("FM") {
            digits.fill = true;
            length = 2;
        } else if starts("MI") {
            digits.sign = if empty { Sign::MinusLeading } else { Sign::MinusTrailing };
            length = 2;
        } else if starts("PR") {
            digits.sign = Sign::Brackets;
            length = 2;
        } else if starts("SG") || starts("PL") || starts("RN") || starts("EEEE") {
            let name: String = rest.chars().take(2).collect();
            return Err(Error::unsupported(
                format!("numeric template pattern \"{name}\" is not supported"),
                "Use 9, 0, the decimal point, group separators, S, MI, PR, FM, TH and V.",
            ));
        } else if starts("TH") {
            digits.ordinal = Some(rest.starts_with('T'));
            length = 2;
        } else {
            let piece = match first.to_ascii_uppercase() {
                '9' => Some(Piece::Digit { zero: false }),
                '0' => Some(Piece::Digit { zero: true }),
                ',' | 'G' => Some(Piece::Group),
                '.' | 'D' => {
                    digits.point = true;
                    None
                }
                'S' => {
                    digits.sign = if empty { Sign::Leading } else { Sign::Trailing };
                    None
                }
                'V' => {
                    digits.shift = 1;
                    None
                }
                '"' => {
                    let end = rest[1..].find('"').map_or(rest.len(), |at| at + 2);
                    let quoted = rest[1..end].trim_end_matches('"').to_owned();
                    rest = &rest[end..];
                    let side = if digits.point { &mut digits.fraction } else { &mut digits.whole };
                    side.push(Piece::Text(quoted));
                    continue;
                }
                'L' => Some(Piece::Text(" ".to_owned())),
                _ => Some(Piece::Text(first.to_string())),
            };
            if let Some(piece) = piece {
                if digits.shift > 0 && matches!(piece, Piece::Digit { .. }) {
                    digits.shift += 1;
                }
                let side = if digits.point { &mut digits.fraction } else { &mut digits.whole };
                side.push(piece);
            }
            length = first.len_utf8();
        }
        rest = &rest[length..];
    }
    digits.shift = digits.shift.saturating_sub(1);
    Ok(digits)
}

fn number(value: &Numeric, template: &str) -> Result<Value> {
    let form = digits_of(template)?;
    let count = |pieces: &[Piece]| pieces.iter().filter(|piece| matches!(piece, Piece::Digit { .. })).count();
    let (places, decimals) = (count(&form.whole), count(&form.fraction));
    let mut shifted = value.clone();
    for _ in 0..form.shift {
        shifted = shifted.mul(&Numeric::from(10_i64))?;
    }
    let negative = shifted.signum() < 0;
    let rounded = shifted.abs().round(decimals as i32);
    let mut written = String::new();
    rounded.write_text(&mut written);
    let (whole, fraction) = written.split_once('.').unwrap_or((&written, ""));
    let whole = if whole == "0" && places > 0 && decimals > 0 && !has_zero(&form.whole) { "" } else { whole };
    let negative = negative && !rounded.is_zero();

    let overflow = whole.len() > places || !value.is_finite();
    let mut out = String::new();
    let mut first = true;
    let sign_before = match form.sign {
        Sign::Plain => {
            if negative {
                "-"
            } else {
                " "
            }
        }
        Sign::Leading => {
            if negative {
                "-"
            } else {
                "+"
            }
        }
        Sign::MinusLeading => {
            if negative {
                "-"
            } else {
                " "
            }
        }
        Sign::Brackets => {
            if negative {
                "<"
            } else {
                " "
            }
        }
        Sign::Trailing | Sign::MinusTrailing => "",
    };
    let from_zero = form.whole.iter().scan(0, |seen, piece| {
        if let Piece::Digit { zero } = piece {
            *seen += 1;
            return Some((*seen - 1, *zero));
        }
        Some((usize::MAX, false))
    });
    let zero_from = from_zero.filter(|(_, zero)| *zero).map(|(at, _)| at).next();
    let mut place = 0;
    for piece in &form.whole {
        match piece {
            Piece::Digit { .. } => {
                let behind = places - place;
                let digit = if overflow {
                    Some('#')
                } else if behind <= whole.len() {
                    whole.as_bytes().get(whole.len() - behind).map(|byte| char::from(*byte))
                } else if zero_from.is_some_and(|from| place >= from) {
                    Some('0')
                } else {
                    None
                };
                match digit {
                    Some(digit) => {
                        if first {
                            out.push_str(sign_before);
                            first = false;
                        }
                        out.push(digit);
                    }
                    None if !form.fill => out.push(' '),
                    None => {}
                }
                place += 1;
            }
            Piece::Group if first => {
                if !form.fill {
                    out.push(' ');
                }
            }
            Piece::Group => out.push(','),
            Piece::Text(text) => out.push_str(text),
        }
    }
    if first {
        out.push_str(sign_before);
    }
    if form.point {
        out.push('.');
        let kept = if form.fill {
            let needed = form.fraction.iter().rposition(|piece| matches!(piece, Piece::Digit { zero: true }));
            let needed = needed.map_or(0, |at| count(&form.fraction[..=at]));
            fraction.trim_end_matches('0').len().max(needed)
        } else {
            decimals
        };
        let mut place = 0;
        for piece in &form.fraction {
            match piece {
                Piece::Digit { .. } => {
                    if overflow && place < kept {
                        out.push('#');
                    } else if place < kept {
                        out.push(fraction.as_bytes().get(place).map_or('0', |byte| char::from(*byte)));
                    }
                    place += 1;
                }
                Piece::Group => out.push(','),
                Piece::Text(text) => out.push_str(text),
            }
        }
    }
    if let Some(upper) = form.ordinal {
        let digits: String = out.chars().filter(char::is_ascii_digit).collect();
        out.push_str(&ordinal(&digits, if upper { "TH" } else { "th" }));
    }
    match form.sign {
        Sign::Trailing => out.push(if negative { '-' } else { '+' }),
        Sign::MinusTrailing => out.push(if negative { '-' } else { ' ' }),
        Sign::Brackets => out.push(if negative { '>' } else { ' ' }),
        Sign::Plain | Sign::Leading | Sign::MinusLeading => {}
    }
    if form.fill {
        out = out.trim().to_owned();
    }
    Ok(Value::text(out))
}

fn has_zero(pieces: &[Piece]) -> bool {
    pieces.iter().any(|piece| matches!(piece, Piece::Digit { zero: true }))
}

fn to_number(context: &mut Context, a: &[Value]) -> Result<Value> {
    let form = digits_of(text(&a[1]))?;
    let source = text(&a[0]);
    let negative = source.contains('-') || (form.sign == Sign::Brackets && source.contains('<'));
    let digits: String = source.chars().filter(|letter| letter.is_ascii_digit() || *letter == '.').collect();
    let signed = if negative { format!("-{digits}") } else { digits };
    super::io::parse(context, &signed, Type::Numeric, Typmod::NONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(value: &str, template: &str) -> String {
        let scale = value.split_once('.').map_or(0, |(_, fraction)| fraction.len() as u16);
        let mantissa: i128 = value.replace('.', "").parse().expect("a number");
        let value = Numeric::from_parts(mantissa, scale).expect("small");
        match number(&value, template).expect("a template") {
            Value::Text(text) => text.as_str().to_owned(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn numbers_are_written_as_postgresql_writes_them() {
        for (value, template, expected) in [
            ("485", "999", " 485"),
            ("-485", "999", "-485"),
            ("485", "9999", "  485"),
            ("1485", "9,999", " 1,485"),
            ("485", "9,999", "   485"),
            ("148.5", "999.999", " 148.500"),
            ("148.5", "FM999.999", "148.5"),
            ("148.5", "FM999.990", "148.500"),
            ("-485", "999MI", "485-"),
            ("485", "999MI", "485 "),
            ("485", "FM999MI", "485"),
            ("0.1", "0.9", " 0.1"),
            ("-0.1", "FM9.99", "-.1"),
            ("12", "FM9990", "12"),
            ("12", "0999", " 0012"),
            ("12345", "999", " ###"),
            ("482", "999th", " 482nd"),
            ("-12", "S999", " -12"),
            ("12", "99V999", " 12000"),
        ] {
            assert_eq!(shown(value, template), expected, "{value} {template}");
        }
    }

    #[test]
    fn a_date_is_read_by_its_template() {
        let days = |source: &str, template: &str| {
            read(source, template).and_then(|found| found.day_number()).map(|days| {
                let civil = calendar::civil_from_days(days);
                (civil.year, civil.month, civil.day)
            })
        };
        assert_eq!(days("05 Dec 2000", "DD Mon YYYY").expect("a date"), (2000, 12, 5));
        assert_eq!(days("20240229", "YYYYMMDD").expect("a date"), (2024, 2, 29));
        assert_eq!(days("2024-060", "YYYY-DDD").expect("a date"), (2024, 2, 29));
        assert!(days("2023-02-29", "YYYY-MM-DD").is_err());
        assert!(days("x", "YYYY").is_err());
    }
}
