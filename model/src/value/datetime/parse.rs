//! Texts to dates, times and timestamps, in the forms PostgreSQL reads.
//!
//! Not here: intervals (`parse_interval`), output (`format`).

use super::calendar::{Civil, days_from_civil, days_in_month};
use super::lex::{Field, fields};
use super::zone::{Zone, abbreviation_offset};
use super::{DAY, Date, DateOrder, HOUR, MINUTE, SECOND, Time, Timestamp};
use crate::value::{Context, ValueError, ValueErrorKind};

/// Reads a date: `2024-01-15`, `January 15, 2024`, `20240115`, `infinity`, …
pub fn parse_date(text: &str, context: &Context) -> Result<Date, ValueError> {
    if let Some((days, [])) = iso_day(text.as_bytes()) {
        return Ok(Date(days as i32));
    }
    let decoded = decode(text, "date", context)?;
    match decoded.special {
        Some(Special::Infinity) => return Ok(Date::INFINITY),
        Some(Special::NegInfinity) => return Ok(Date::NEG_INFINITY),
        Some(Special::Epoch) => return Date::from_days(-super::UNIX_EPOCH_DAYS),
        Some(Special::Now) => {
            let now = context.now.ok_or_else(|| ValueError::invalid_datetime("date", text))?;
            return Date::from_days(context.zone.to_local(now).split().0 as i32);
        }
        Some(Special::Day(offset)) => {
            let now = context.now.ok_or_else(|| ValueError::invalid_datetime("date", text))?;
            return Date::from_days((context.zone.to_local(now).split().0 + offset) as i32);
        }
        None => {}
    }
    let days = decoded.days.ok_or_else(|| ValueError::invalid_datetime("date", text))?;
    let out_of_range =
        || ValueError::new(ValueErrorKind::DatetimeOverflow, format!("date out of range: \"{text}\""));
    if days < i64::from(Date::MIN.days()) || days > i64::from(Date::MAX.days()) {
        return Err(out_of_range());
    }
    Ok(Date(days as i32))
}

/// Reads a time of day: `10:00`, `10:00:00.5 PM`, `allballs`, the time of a timestamp.
pub fn parse_time(text: &str, context: &Context) -> Result<Time, ValueError> {
    let decoded = decode(text, "time", context)?;
    let invalid = || ValueError::invalid_datetime("time", text);
    match decoded.special {
        Some(Special::Now) => {
            let now = context.now.ok_or_else(invalid)?;
            return Ok(Time(context.zone.to_local(now).split().1));
        }
        Some(_) => return Err(invalid()),
        None => {}
    }
    Time::from_micros(decoded.time.ok_or_else(invalid)?).map_err(|_| ValueError::datetime_field(text))
}

/// Reads a timestamp; a zone in the text is ignored, as PostgreSQL ignores it.
pub fn parse_timestamp(text: &str, context: &Context) -> Result<Timestamp, ValueError> {
    if let Some((micros, [])) = iso_timestamp(text.as_bytes()) {
        return Ok(Timestamp(micros));
    }
    let decoded = decode(text, "timestamp", context)?;
    if let Some(special) = decoded.special {
        return special_timestamp(special, decoded.time, text, "timestamp", context);
    }
    local_micros(&decoded, text, "timestamp").and_then(|micros| in_range(micros, text))
}

/// Reads a timestamp with time zone; without a zone in the text the session's holds.
pub fn parse_timestamptz(text: &str, context: &Context) -> Result<Timestamp, ValueError> {
    let name = "timestamp with time zone";
    if let Some((local, zone)) = iso_timestamp(text.as_bytes())
        && let Some(offset) =
            iso_offset(zone).or_else(|| zone.is_empty().then(|| context.zone.offset_of_local(local)))
    {
        return Ok(Timestamp(local - i64::from(offset) * SECOND));
    }
    let decoded = decode(text, name, context)?;
    match decoded.special {
        Some(Special::Infinity) => return Ok(Timestamp::INFINITY),
        Some(Special::NegInfinity) => return Ok(Timestamp::NEG_INFINITY),
        Some(Special::Epoch) => return Ok(Timestamp(-super::UNIX_EPOCH_MICROS)),
        Some(Special::Now) => return context.now.ok_or_else(|| ValueError::invalid_datetime(name, text)),
        Some(special @ Special::Day(_)) => {
            let local = special_timestamp(special, decoded.time, text, name, context)?;
            return context.zone.to_instant(local);
        }
        None => {}
    }
    let local = local_micros(&decoded, text, name)?;
    let offset = match &decoded.zone {
        Some(ZoneField::Offset(seconds)) => *seconds,
        Some(ZoneField::Named(zone)) => zone.offset_of_local(local),
        None => context.zone.offset_of_local(local),
    };
    in_range(local.checked_sub(i64::from(offset) * SECOND).unwrap_or(i64::MAX - 1), text)
}

/// `YYYY-MM-DD`, by far the most frequent form: days since 2000-01-01 and what follows. Anything else, and days that
/// do not exist, are left to the general way.
fn iso_day(text: &[u8]) -> Option<(i64, &[u8])> {
    let ([a, b, c, d, b'-', e, f, b'-', g, h], rest) = text.split_first_chunk::<10>()? else { return None };
    let year = i64::from(two_digits(*a, *b)?) * 100 + i64::from(two_digits(*c, *d)?);
    let (month, day) = (two_digits(*e, *f)?, two_digits(*g, *h)?);
    let exists = year > 0 && (1..=12).contains(&month) && day > 0 && day <= days_in_month(year, month);
    exists.then(|| (days_from_civil(Civil { year, month, day }), rest))
}

/// `YYYY-MM-DD HH:MM:SS` with up to six digits of a fraction: microseconds since 2000-01-01 and what follows.
fn iso_timestamp(text: &[u8]) -> Option<(i64, &[u8])> {
    let (days, rest) = iso_day(text)?;
    let ([b' ' | b'T', a, b, b':', c, d, b':', e, f], mut rest) = rest.split_first_chunk::<9>()? else {
        return None;
    };
    let (hour, minute, second) = (two_digits(*a, *b)?, two_digits(*c, *d)?, two_digits(*e, *f)?);
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let mut micros =
        days * DAY + i64::from(hour) * HOUR + i64::from(minute) * MINUTE + i64::from(second) * SECOND;
    if let Some(digits) = rest.strip_prefix(b".") {
        let count = digits.iter().take_while(|digit| digit.is_ascii_digit()).count();
        if !(1..=6).contains(&count) {
            return None;
        }
        let fraction = digits[..count].iter().fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0'));
        micros += fraction * 10i64.pow(6 - count as u32);
        rest = &digits[count..];
    }
    Some((micros, rest))
}

/// `Z`, `+HH` or `+HH:MM` in seconds east.
fn iso_offset(text: &[u8]) -> Option<i32> {
    let (sign, hours, minutes) = match text {
        b"Z" => return Some(0),
        [sign @ (b'+' | b'-'), a, b] => (sign, two_digits(*a, *b)?, 0),
        [sign @ (b'+' | b'-'), a, b, b':', c, d] => (sign, two_digits(*a, *b)?, two_digits(*c, *d)?),
        _ => return None,
    };
    let seconds = i32::from(hours) * 3_600 + i32::from(minutes) * 60;
    let known = hours <= 15 && minutes <= 59;
    known.then_some(if *sign == b'-' { -seconds } else { seconds })
}

fn two_digits(tens: u8, ones: u8) -> Option<u8> {
    (tens.is_ascii_digit() && ones.is_ascii_digit()).then(|| (tens - b'0') * 10 + ones - b'0')
}

fn special_timestamp(
    special: Special,
    time: Option<i64>,
    text: &str,
    name: &str,
    context: &Context,
) -> Result<Timestamp, ValueError> {
    let now = || {
        context
            .now
            .map(|now| context.zone.to_local(now))
            .ok_or_else(|| ValueError::invalid_datetime(name, text))
    };
    Ok(match special {
        Special::Infinity => Timestamp::INFINITY,
        Special::NegInfinity => Timestamp::NEG_INFINITY,
        Special::Epoch => Timestamp(-super::UNIX_EPOCH_MICROS),
        Special::Now => now()?,
        Special::Day(offset) => Timestamp((now()?.split().0 + offset) * DAY + time.unwrap_or(0)),
    })
}

fn local_micros(decoded: &Decoded, text: &str, name: &str) -> Result<i64, ValueError> {
    let days = decoded.days.ok_or_else(|| ValueError::invalid_datetime(name, text))?;
    let micros = days.checked_mul(DAY).and_then(|micros| micros.checked_add(decoded.time.unwrap_or(0)));
    micros.ok_or_else(|| timestamp_range(text))
}

fn in_range(micros: i64, text: &str) -> Result<Timestamp, ValueError> {
    let timestamp = Timestamp(micros);
    if !(Timestamp::MIN..=Timestamp::MAX).contains(&timestamp) {
        return Err(timestamp_range(text));
    }
    Ok(timestamp)
}

fn timestamp_range(text: &str) -> ValueError {
    ValueError::new(ValueErrorKind::DatetimeOverflow, format!("timestamp out of range: \"{text}\""))
}

#[derive(Clone, Copy, Debug)]
enum Special {
    Infinity,
    NegInfinity,
    Epoch,
    Now,
    /// `today` and its neighbours, in days from it.
    Day(i64),
}

enum ZoneField {
    /// Seconds east.
    Offset(i32),
    Named(Zone),
}

/// What a text says.
struct Decoded {
    special: Option<Special>,
    /// Days since 2000-01-01, from a complete date.
    days: Option<i64>,
    /// Microseconds since midnight.
    time: Option<i64>,
    zone: Option<ZoneField>,
}

/// Parts of a date on the way to being one.
#[derive(Default)]
struct Parts {
    year: Option<i64>,
    year_digits: usize,
    /// Whether the year was written before the other numbers.
    year_first: bool,
    month: Option<i64>,
    day: Option<i64>,
    day_of_year: Option<i64>,
    julian: Option<i64>,
    bc: bool,
    /// Numbers of one to four digits, in the order written.
    loose: Vec<(i64, usize)>,
    half: Option<Half>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Half {
    Morning,
    Afternoon,
}

enum Refused {
    Syntax,
    Field,
    /// As `Field`, with PostgreSQL's hint on `datestyle`.
    Month,
    Zone(String),
    Displacement,
}

fn decode(text: &str, name: &str, context: &Context) -> Result<Decoded, ValueError> {
    decode_fields(text, name, context).map_err(|refused| match refused {
        Refused::Syntax => ValueError::invalid_datetime(name, text),
        Refused::Field => ValueError::datetime_field(text),
        Refused::Month => {
            ValueError::datetime_field(text).with_hint("Perhaps you need a different \"datestyle\" setting.")
        }
        Refused::Zone(zone) => ValueError::parameter(format!("time zone \"{zone}\" not recognized")),
        Refused::Displacement => {
            let message = format!("time zone displacement out of range: \"{text}\"");
            ValueError::new(ValueErrorKind::InvalidZoneOffset, message)
        }
    })
}

fn decode_fields(text: &str, name: &str, context: &Context) -> Result<Decoded, Refused> {
    let fields = fields(text).ok_or(Refused::Syntax)?;
    if fields.is_empty() {
        return Err(Refused::Syntax);
    }
    let mut parts = Parts::default();
    let mut decoded = Decoded { special: None, days: None, time: None, zone: None };
    let mut index = 0;
    let mut after_t = false;
    while let Some(field) = fields.get(index) {
        index += 1;
        match field {
            Field::Time(time) => set(&mut decoded.time, parse_clock(time)?)?,
            // Behind a time PostgreSQL would take it for a zone.
            Field::Date(_) if decoded.time.is_some() => return Err(Refused::Syntax),
            Field::Date(date) => parts.date(date)?,
            Field::Number(number) => {
                let digits = number.split('.').next().unwrap_or("").len();
                let timeless = decoded.time.is_none();
                let behind_date =
                    timeless && parts.is_complete() && matches!(digits, 4 | 6) && name != "date";
                let alone = timeless && name == "time" && digits >= 4 && parts.loose.is_empty();
                if after_t || behind_date || alone {
                    set(&mut decoded.time, compact_clock(number)?)?;
                } else if number.contains('.') {
                    parts.decimal(number)?;
                } else {
                    parts.number(number)?;
                }
                after_t = false;
            }
            Field::Offset(offset) => {
                if let Some(year) = year_behind_sign(offset, &parts, &decoded) {
                    parts.number(&year)?;
                } else if decoded.time.is_some() || parts.is_complete() {
                    set(&mut decoded.zone, ZoneField::Offset(parse_offset(offset)?))?;
                } else {
                    return Err(Refused::Syntax);
                }
            }
            Field::ZoneName(zone) => {
                let found = Zone::find(zone).ok_or_else(|| Refused::Zone(zone.clone()))?;
                set(&mut decoded.zone, ZoneField::Named(found))?;
            }
            Field::Word(word) => match word.as_str() {
                "t" if matches!(fields.get(index), Some(Field::Time(_) | Field::Number(_))) => after_t = true,
                "j" | "jd" | "julian" => match fields.get(index) {
                    Some(Field::Number(number)) => {
                        index += 1;
                        let day = number.parse().map_err(|_| Refused::Syntax)?;
                        parts.julian = Some(day);
                    }
                    _ => return Err(Refused::Syntax),
                },
                "infinity" => set(&mut decoded.special, Special::Infinity)?,
                "epoch" => set(&mut decoded.special, Special::Epoch)?,
                "now" => set(&mut decoded.special, Special::Now)?,
                "today" => set(&mut decoded.special, Special::Day(0))?,
                "tomorrow" => set(&mut decoded.special, Special::Day(1))?,
                "yesterday" => set(&mut decoded.special, Special::Day(-1))?,
                "allballs" => {
                    set(&mut decoded.time, 0)?;
                    set(&mut decoded.zone, ZoneField::Offset(0))?;
                }
                "am" => parts.half = Some(Half::Morning),
                "pm" => parts.half = Some(Half::Afternoon),
                "bc" if parts.bc => return Err(Refused::Syntax),
                "bc" => parts.bc = true,
                "ad" | "at" | "on" => {}
                "dst" => match &mut decoded.zone {
                    Some(ZoneField::Offset(seconds)) => *seconds += 3_600,
                    _ => return Err(Refused::Syntax),
                },
                _ => {
                    if let Some(month) = month(word) {
                        parts.named_month(month)?;
                    } else if is_weekday(word) {
                    } else if let Some(offset) = abbreviation_offset(word) {
                        // `utc+2` and `gmt-5` are POSIX zones, counted westward.
                        match fields.get(index) {
                            Some(Field::Offset(shift)) if decoded.time.is_some() || parts.is_complete() => {
                                index += 1;
                                set(&mut decoded.zone, ZoneField::Offset(offset - parse_offset(shift)?))?;
                            }
                            _ => set(&mut decoded.zone, ZoneField::Offset(offset))?,
                        }
                    } else if let Some(zone) = Zone::find(word) {
                        set(&mut decoded.zone, ZoneField::Named(zone))?;
                    } else {
                        return Err(Refused::Syntax);
                    }
                }
            },
        }
    }
    if let Some(half) = parts.half {
        decoded.time = Some(on_half(decoded.time.ok_or(Refused::Syntax)?, half)?);
    }
    if let Some(time) = decoded.time
        && !(0..=DAY).contains(&time)
    {
        return Err(Refused::Field);
    }
    if text.trim_start().starts_with('-') && matches!(decoded.special, Some(Special::Infinity)) {
        decoded.special = Some(Special::NegInfinity);
    }
    if decoded.special.is_some() {
        // A lone number beside a special word is ignored by PostgreSQL; a whole date is not.
        return if parts.is_complete() { Err(Refused::Syntax) } else { Ok(decoded) };
    }
    let has_date = parts.any();
    if name == "time"
        && !has_date
        && matches!(&decoded.zone, Some(ZoneField::Named(zone)) if !zone.is_fixed())
    {
        // Which offset such a zone has depends on the day.
        return Err(Refused::Syntax);
    }
    if has_date {
        decoded.days = parts.resolve(context.date_order)?;
        if decoded.days.is_none() && name != "time" {
            return Err(Refused::Syntax);
        }
    }
    Ok(decoded)
}

/// Sets what may be said once.
fn set<T>(slot: &mut Option<T>, value: T) -> Result<(), Refused> {
    if slot.replace(value).is_some() { Err(Refused::Syntax) } else { Ok(()) }
}

/// `jan 15 -2024`: PostgreSQL lets a sign join a date's parts.
fn year_behind_sign(offset: &str, parts: &Parts, decoded: &Decoded) -> Option<String> {
    let digits = offset.strip_prefix('-')?;
    let year = decoded.time.is_none()
        && parts.any()
        && !parts.is_complete()
        && digits.bytes().all(|b| b.is_ascii_digit());
    year.then(|| digits.to_owned())
}

fn on_half(time: i64, half: Half) -> Result<i64, Refused> {
    let hour = time / HOUR;
    if hour > 12 || hour == 0 && half == Half::Afternoon && time / MINUTE > 12 * 60 {
        return Err(Refused::Field);
    }
    Ok(match (half, hour) {
        (Half::Morning, 12) => time - 12 * HOUR,
        (Half::Afternoon, 0..12) => time + 12 * HOUR,
        _ => time,
    })
}

impl Parts {
    fn any(&self) -> bool {
        self.year.is_some()
            || self.month.is_some()
            || self.day.is_some()
            || self.julian.is_some()
            || self.day_of_year.is_some()
            || !self.loose.is_empty()
    }

    fn known(&self) -> usize {
        usize::from(self.year.is_some())
            + usize::from(self.month.is_some())
            + usize::from(self.day.is_some())
            + self.loose.len()
    }

    fn is_complete(&self) -> bool {
        self.julian.is_some() || self.known() >= 3 || (self.year.is_some() && self.day_of_year.is_some())
    }

    fn named_month(&mut self, month: i64) -> Result<(), Refused> {
        set(&mut self.month, month)
    }

    /// A number by itself.
    fn number(&mut self, digits: &str) -> Result<(), Refused> {
        let value: i64 = digits.parse().map_err(|_| Refused::Field)?;
        match digits.len() {
            8 if !self.any() => {
                self.year = Some(value / 10_000);
                self.year_digits = 4;
                self.month = Some(value / 100 % 100);
                self.day = Some(value % 100);
            }
            6 if !self.any() => {
                self.year = Some(value / 10_000);
                self.year_digits = 2;
                self.month = Some(value / 100 % 100);
                self.day = Some(value % 100);
            }
            7 if !self.any() => return Err(Refused::Field),
            // `5 2024 March` has no place for the 5.
            3.. if self.month.is_none() && self.loose.len() == 1 => return Err(Refused::Syntax),
            3.. if self.year.is_none() => {
                self.year_first = self.loose.is_empty();
                self.year = Some(value);
                self.year_digits = digits.len();
            }
            _ if self.known() < 3 => self.loose.push((value, digits.len())),
            _ => return Err(Refused::Syntax),
        }
        Ok(())
    }

    /// `2024.015`: a year and its day.
    fn decimal(&mut self, number: &str) -> Result<(), Refused> {
        let (year, day) = number.split_once('.').unwrap_or((number, ""));
        if self.any() || year.len() < 4 || day.len() != 3 {
            return Err(Refused::Syntax);
        }
        self.year = Some(year.parse().map_err(|_| Refused::Syntax)?);
        self.year_digits = year.len();
        self.day_of_year = Some(day.parse().map_err(|_| Refused::Syntax)?);
        Ok(())
    }

    /// Parts joined by one separator.
    fn date(&mut self, date: &str) -> Result<(), Refused> {
        if self.any() && self.month.is_none() {
            return Err(Refused::Syntax);
        }
        let pieces: Vec<&str> = date.split(['-', '/', '.']).filter(|piece| !piece.is_empty()).collect();
        let numbers = |piece: &str| piece.bytes().all(|byte| byte.is_ascii_digit());
        if let [year, day] = pieces.as_slice()
            && numbers(year)
            && numbers(day)
            && year.len() >= 4
            && day.len() == 3
        {
            self.year = Some(year.parse().map_err(|_| Refused::Field)?);
            self.year_digits = year.len();
            self.day_of_year = Some(day.parse().map_err(|_| Refused::Field)?);
            return Ok(());
        }
        if pieces.len() < 2 || pieces.len() > 3 {
            return Err(Refused::Syntax);
        }
        for piece in &pieces {
            if !numbers(piece) {
                let month = month(piece).ok_or(Refused::Syntax)?;
                self.named_month(month)?;
            }
        }
        for piece in pieces.iter().filter(|piece| numbers(piece)) {
            let value: i64 = piece.parse().map_err(|_| Refused::Field)?;
            if piece.len() >= 3 && self.year.is_none() {
                self.year_first = self.loose.is_empty();
                self.year = Some(value);
                self.year_digits = piece.len();
            } else {
                self.loose.push((value, piece.len()));
            }
        }
        Ok(())
    }

    /// Gives the loose numbers their places and checks the whole.
    fn resolve(mut self, order: DateOrder) -> Result<Option<i64>, Refused> {
        if let Some(julian) = self.julian {
            return Ok(Some(julian - super::calendar::EPOCH_JULIAN_DAY));
        }
        let loose = std::mem::take(&mut self.loose);
        let slots: Vec<Slot> = match (self.year.is_some(), self.month.is_some(), self.day.is_some()) {
            (true, true, false) => vec![Slot::Day],
            // After a year the month comes next, whatever the order.
            (true, false, false) if order == DateOrder::Dmy && !self.year_first => {
                vec![Slot::Day, Slot::Month]
            }
            (true, false, false) => vec![Slot::Month, Slot::Day],
            (false, true, false) => match order {
                DateOrder::Ymd => vec![Slot::Year, Slot::Day],
                DateOrder::Mdy | DateOrder::Dmy => vec![Slot::Day, Slot::Year],
            },
            (false, false, false) => match order {
                DateOrder::Mdy => vec![Slot::Month, Slot::Day, Slot::Year],
                DateOrder::Dmy => vec![Slot::Day, Slot::Month, Slot::Year],
                DateOrder::Ymd => vec![Slot::Year, Slot::Month, Slot::Day],
            },
            (false, true, true) => vec![Slot::Year],
            _ => Vec::new(),
        };
        if loose.len() > slots.len() {
            return Err(Refused::Syntax);
        }
        for ((value, digits), slot) in loose.into_iter().zip(slots) {
            match slot {
                Slot::Year => {
                    self.year = Some(value);
                    self.year_digits = digits;
                }
                Slot::Month => self.month = Some(value),
                Slot::Day => self.day = Some(value),
            }
        }
        self.check(order)
    }

    fn check(self, order: DateOrder) -> Result<Option<i64>, Refused> {
        let Some(written) = self.year else {
            return Ok(None);
        };
        let year = match (self.bc, self.year_digits) {
            (true, _) if written <= 0 => return Err(Refused::Field),
            (true, _) => 1 - written,
            (false, 0..=2) if written < 70 => written + 2_000,
            (false, 0..=2) => written + 1_900,
            (false, _) if written == 0 => return Err(Refused::Field),
            (false, _) => written,
        };
        if year > 10_000_000 {
            return Err(Refused::Field);
        }
        if let Some(day) = self.day_of_year {
            let first = days_from_civil(Civil { year, month: 1, day: 1 });
            // The 366th day of a common year is the next New Year's Day, as PostgreSQL has it.
            return if (1..=366).contains(&day) { Ok(Some(first + day - 1)) } else { Err(Refused::Field) };
        }
        let (Some(month), Some(day)) = (self.month, self.day) else {
            return Ok(None);
        };
        if !(1..=12).contains(&month) {
            return Err(if order == DateOrder::Ymd { Refused::Field } else { Refused::Month });
        }
        if !(1..=31).contains(&day) {
            return Err(Refused::Month);
        }
        let month = month as u8;
        if day > i64::from(days_in_month(year, month)) {
            return Err(Refused::Field);
        }
        Ok(Some(days_from_civil(Civil { year, month, day: day as u8 })))
    }
}

#[derive(Clone, Copy)]
enum Slot {
    Year,
    Month,
    Day,
}

/// `10:00`, `10:00:00.123456`; fractions beyond microseconds are rounded.
fn parse_clock(text: &str) -> Result<i64, Refused> {
    let mut pieces = text.split(':');
    let whole = |piece: Option<&str>| -> Result<i64, Refused> {
        let piece = piece.unwrap_or("");
        if piece.is_empty() || piece.len() > 9 {
            return Err(Refused::Syntax);
        }
        piece.parse().map_err(|_| Refused::Syntax)
    };
    let hour = whole(pieces.next())?;
    let second_piece = pieces.next().unwrap_or("");
    let third = pieces.next();
    if pieces.next().is_some() {
        return Err(Refused::Syntax);
    }
    let (minute, seconds) = match third {
        Some(third) => (whole(Some(second_piece))?, parse_seconds(third)?),
        None if second_piece.contains('.') => return Err(Refused::Syntax),
        None => (whole(Some(second_piece))?, 0),
    };
    clock(hour, minute, seconds)
}

/// `100000` or `1000`, with a fraction of seconds perhaps.
fn compact_clock(text: &str) -> Result<i64, Refused> {
    let (digits, fraction) = text.split_once('.').unwrap_or((text, ""));
    let number: i64 = digits.parse().map_err(|_| Refused::Syntax)?;
    match digits.len() {
        6 => {
            let seconds = parse_seconds(&format!("{:02}.{fraction}", number % 100))?;
            clock(number / 10_000, number / 100 % 100, seconds)
        }
        4 if fraction.is_empty() => clock(number / 100, number % 100, 0),
        _ => Err(Refused::Syntax),
    }
}

fn clock(hour: i64, minute: i64, seconds: i64) -> Result<i64, Refused> {
    let total = hour * HOUR + minute * MINUTE + seconds;
    if hour > 24 || minute > 59 || seconds >= 61 * SECOND || total > DAY {
        return Err(Refused::Field);
    }
    Ok(total)
}

/// Seconds with a fraction, in microseconds.
fn parse_seconds(text: &str) -> Result<i64, Refused> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if whole.is_empty() || whole.len() > 9 || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Refused::Syntax);
    }
    let whole: i64 = whole.parse().map_err(|_| Refused::Syntax)?;
    Ok(whole * SECOND + fraction_micros(fraction))
}

/// `.5` to 500,000, rounded at the seventh digit to the even, as a double would be.
pub(super) fn fraction_micros(digits: &str) -> i64 {
    if digits.is_empty() {
        return 0;
    }
    format!("0.{digits}").parse::<f64>().map_or(0, |fraction| (fraction * 1e6).round_ties_even() as i64)
}

/// `+02`, `+02:30`, `+0230`, `+02:30:15` to seconds east.
fn parse_offset(text: &str) -> Result<i32, Refused> {
    let negative = text.starts_with('-');
    let digits = &text[1..];
    let fields: Vec<&str> = digits.split(':').collect();
    let number = |piece: &str| piece.parse::<i32>().map_err(|_| Refused::Syntax);
    let (hours, minutes, seconds) = match fields.as_slice() {
        [one] if one.len() <= 2 => (number(one)?, 0, 0),
        [one] if one.len() <= 4 => (number(one)? / 100, number(one)? % 100, 0),
        [one] if one.len() <= 6 => (number(one)? / 10_000, number(one)? / 100 % 100, number(one)? % 100),
        [hours, minutes] => (number(hours)?, number(minutes)?, 0),
        [hours, minutes, seconds] => (number(hours)?, number(minutes)?, number(seconds)?),
        _ => return Err(Refused::Displacement),
    };
    if hours > 15 || minutes > 59 || seconds > 59 {
        return Err(Refused::Displacement);
    }
    let size = hours * 3_600 + minutes * 60 + seconds;
    Ok(if negative { -size } else { size })
}

/// The number of a month's name or its first three letters.
pub(super) fn month(word: &str) -> Option<i64> {
    const MONTHS: [&str; 12] = [
        "january",
        "february",
        "march",
        "april",
        "may",
        "june",
        "july",
        "august",
        "september",
        "october",
        "november",
        "december",
    ];
    let word = if word == "sept" { "sep" } else { word };
    let position = MONTHS.iter().position(|name| *name == word || name[..3] == *word)?;
    Some(position as i64 + 1)
}

fn is_weekday(word: &str) -> bool {
    const DAYS: [&str; 7] = ["sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"];
    let abbreviated = ["tues", "weds", "wednes", "thur", "thurs"].contains(&word);
    abbreviated || DAYS.iter().any(|name| *name == word || name[..3] == *word)
}
