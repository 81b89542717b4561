//! Time zones: names, POSIX rules, fixed offsets; local time to UTC and back.
//!
//! Zone data is compiled in and the machine's own is never read, so that all nodes agree. Beyond its range (years -9999…9999) the rules repeat with the
//! calendar's cycle of 400 years, as PostgreSQL extrapolates them.
//!
//! Invariants:
//! - In a gap (spring) a local time is read with the offset before it, in a fold (autumn) with the one after it, as
//!   PostgreSQL does.

use std::fmt;
use std::sync::Arc;

use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};

use super::calendar::{Civil, civil_from_days, days_from_civil};
use super::{DAY, SECOND, Timestamp};
use crate::value::{ValueError, ValueErrorKind};

/// A time zone.
#[derive(Clone)]
pub struct Zone {
    name: Arc<str>,
    rule: Rule,
}

#[derive(Clone)]
enum Rule {
    /// Seconds east of UTC.
    Fixed(i32),
    Table(TimeZone),
}

/// Seconds in the calendar's cycle of 400 years, which is a whole number of weeks.
const CYCLE_SECS: i64 = 146_097 * 86_400;
/// Largest offset PostgreSQL takes: 15:59:59.
const OFFSET_SECS_MAX: i32 = 16 * 3_600 - 1;

/// What PostgreSQL's default abbreviations mean, in seconds east; those of zones that are a name of the zone data
/// too (`EST`, `MST`, `HST`) included.
const ABBREVIATIONS: &[(&str, i32)] = &[
    ("ACDT", 37_800),
    ("ACST", 34_200),
    ("ADT", -10_800),
    ("AEDT", 39_600),
    ("AEST", 36_000),
    ("AKDT", -28_800),
    ("AKST", -32_400),
    ("AST", -14_400),
    ("AWST", 28_800),
    ("BST", 3_600),
    ("BRT", -10_800),
    ("BRST", -7_200),
    ("CDT", -18_000),
    ("CEST", 7_200),
    ("CET", 3_600),
    ("CST", -21_600),
    ("EDT", -14_400),
    ("EEST", 10_800),
    ("EET", 7_200),
    ("EST", -18_000),
    ("GMT", 0),
    ("HKT", 28_800),
    ("HST", -36_000),
    ("ICT", 25_200),
    ("IDT", 10_800),
    ("IST", 7_200),
    ("JST", 32_400),
    ("KST", 32_400),
    ("MDT", -21_600),
    ("MSK", 10_800),
    ("MSD", 14_400),
    ("MST", -25_200),
    ("NDT", -9_000),
    ("NST", -12_600),
    ("NZDT", 46_800),
    ("NZST", 43_200),
    ("PDT", -25_200),
    ("PHT", 28_800),
    ("PKT", 18_000),
    ("PST", -28_800),
    ("SAST", 7_200),
    ("SGT", 28_800),
    ("UCT", 0),
    ("UT", 0),
    ("UTC", 0),
    ("WEST", 3_600),
    ("WET", 0),
    ("Z", 0),
    ("ZULU", 0),
];

/// The offset of an abbreviation in any case, in seconds east.
pub fn abbreviation_offset(word: &str) -> Option<i32> {
    ABBREVIATIONS.iter().find(|(name, _)| name.eq_ignore_ascii_case(word)).map(|(_, offset)| *offset)
}

impl Zone {
    /// Coordinated universal time.
    pub fn utc() -> Zone {
        Zone { name: Arc::from("UTC"), rule: Rule::Fixed(0) }
    }

    /// A fixed offset in seconds east of UTC, named as PostgreSQL names it: `<+02>-02`.
    pub fn fixed(seconds_east: i32) -> Result<Zone, ValueError> {
        if seconds_east.abs() > OFFSET_SECS_MAX {
            return Err(ValueError::new(
                ValueErrorKind::InvalidZoneOffset,
                "time zone displacement out of range",
            ));
        }
        let shown = |seconds: i32| {
            let (sign, size) = (if seconds < 0 { '-' } else { '+' }, seconds.unsigned_abs());
            let mut text = format!("{sign}{:02}", size / 3_600);
            if size % 3_600 != 0 {
                text.push_str(&format!(":{:02}", size / 60 % 60));
            }
            if size % 60 != 0 {
                text.push_str(&format!(":{:02}", size % 60));
            }
            text
        };
        let name = format!("<{}>{}", shown(seconds_east), shown(-seconds_east));
        Ok(Zone { name: Arc::from(name), rule: Rule::Fixed(seconds_east) })
    }

    /// A zone as `SET TIME ZONE` and `AT TIME ZONE` spell it: `Europe/Berlin`, `utc`, `CET`, `EST5EDT`, and POSIX
    /// offsets, which count westward (`+02` is two hours behind).
    pub fn parse(name: &str) -> Result<Zone, ValueError> {
        Zone::find(name).ok_or_else(|| ValueError::parameter(format!("time zone \"{name}\" not recognized")))
    }

    /// As `parse`, but first an abbreviation's fixed offset, as `AT TIME ZONE` looks names up.
    pub fn parse_with_abbreviations(name: &str) -> Result<Zone, ValueError> {
        match abbreviation_offset(name) {
            Some(offset) => Ok(Zone { name: Arc::from(name), rule: Rule::Fixed(offset) }),
            None => Zone::parse(name),
        }
    }

    /// The zone of this name, if there is one.
    pub fn find(name: &str) -> Option<Zone> {
        if ["utc", "gmt", "z", "zulu", "etc/utc"].iter().any(|utc| name.eq_ignore_ascii_case(utc)) {
            let name = if name.eq_ignore_ascii_case("etc/utc") {
                "Etc/UTC".to_owned()
            } else {
                name.to_ascii_uppercase()
            };
            return Some(Zone { name: Arc::from(name), rule: Rule::Fixed(0) });
        }
        if let Some(west) = posix_offset(name) {
            return Zone::fixed(-west).ok();
        }
        if let Ok(table) = TimeZoneDatabase::bundled().get(name)
            && let Some(known) = table.iana_name()
        {
            return Some(Zone { name: Arc::from(known), rule: Rule::Table(table) });
        }
        // A POSIX rule has digits; without them jiff would have to guess.
        if name.len() < 64 && name.bytes().any(|byte| byte.is_ascii_digit()) {
            let table = TimeZone::posix(name).ok()?;
            return Some(Zone { name: Arc::from(name), rule: Rule::Table(table) });
        }
        None
    }

    /// The names of all zones in the data, for `pg_timezone_names`.
    pub fn names() -> Vec<String> {
        TimeZoneDatabase::bundled().available().map(|name| name.as_str().to_owned()).collect()
    }

    /// The name, as `SHOW timezone` prints it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the offset is the same at all times.
    pub fn is_fixed(&self) -> bool {
        matches!(self.rule, Rule::Fixed(_))
    }

    /// Seconds east of UTC at an instant; 0 for infinities.
    pub fn offset_at(&self, instant: Timestamp) -> i32 {
        match &self.rule {
            Rule::Fixed(offset) => *offset,
            Rule::Table(table) if instant.is_finite() => table.to_offset(in_range(instant)).seconds(),
            Rule::Table(_) => 0,
        }
    }

    /// The abbreviation in force at an instant: `CET`, `CEST`, `+02`.
    pub fn abbreviation_at(&self, instant: Timestamp) -> String {
        match &self.rule {
            Rule::Table(table) if instant.is_finite() => {
                table.to_offset_info(in_range(instant)).abbreviation().to_owned()
            }
            Rule::Fixed(_) | Rule::Table(_) => {
                match self.name.strip_prefix('<').and_then(|name| name.split_once('>')) {
                    Some((abbreviation, _)) => abbreviation.to_owned(),
                    None => self.name.to_string(),
                }
            }
        }
    }

    /// The local clock at an instant. Infinities stay.
    pub fn to_local(&self, instant: Timestamp) -> Timestamp {
        if !instant.is_finite() {
            return instant;
        }
        Timestamp(instant.0 + i64::from(self.offset_at(instant)) * SECOND)
    }

    /// The instant at which local clocks show `local`; refused when that is outside the range of timestamps.
    pub fn to_instant(&self, local: Timestamp) -> Result<Timestamp, ValueError> {
        if !local.is_finite() {
            return Ok(local);
        }
        Timestamp::from_micros(local.0 - i64::from(self.offset_of_local(local.0)) * SECOND)
    }

    /// Seconds east of UTC that hold when local clocks show so many microseconds since 2000-01-01.
    pub(crate) fn offset_of_local(&self, local: i64) -> i32 {
        let table = match &self.rule {
            Rule::Fixed(offset) => return *offset,
            Rule::Table(table) => table,
        };
        let civil = civil_from_days(local.div_euclid(DAY));
        let seconds = local.rem_euclid(DAY) / SECOND;
        // The same day in the cycle within reach of the zone data.
        let year = if civil.year.abs() > 9_000 {
            civil.year.rem_euclid(400) + if civil.year > 0 { 8_400 } else { -8_800 }
        } else {
            civil.year
        };
        let datetime = jiff::civil::DateTime::new(
            year as i16,
            civil.month as i8,
            civil.day as i8,
            (seconds / 3_600) as i8,
            (seconds / 60 % 60) as i8,
            (seconds % 60) as i8,
            0,
        );
        let Ok(datetime) = datetime else { return 0 };
        match table.to_ambiguous_timestamp(datetime).offset() {
            AmbiguousOffset::Unambiguous { offset } => offset.seconds(),
            AmbiguousOffset::Gap { before, .. } => before.seconds(),
            AmbiguousOffset::Fold { after, .. } => after.seconds(),
        }
    }
}

/// The instant for the zone data, moved by whole cycles into its range.
fn in_range(instant: Timestamp) -> jiff::Timestamp {
    let mut seconds = instant.unix_micros().div_euclid(SECOND);
    let bound = |year| {
        (days_from_civil(Civil { year, month: 1, day: 1 }) + i64::from(super::UNIX_EPOCH_DAYS)) * 86_400
    };
    let (low, high) = (bound(-9_000), bound(9_000));
    if seconds >= high {
        seconds -= ((seconds - high) / CYCLE_SECS + 1) * CYCLE_SECS;
    } else if seconds < low {
        seconds += ((low - seconds) / CYCLE_SECS + 1) * CYCLE_SECS;
    }
    jiff::Timestamp::from_second(seconds).unwrap_or(jiff::Timestamp::UNIX_EPOCH)
}

/// `+02`, `-03:30`, `2`: seconds as written.
fn posix_offset(name: &str) -> Option<i32> {
    let (sign, digits) = match name.as_bytes().first()? {
        b'-' => (-1, &name[1..]),
        b'+' => (1, &name[1..]),
        _ => (1, name),
    };
    let mut seconds = 0;
    let mut unit = 3_600;
    for field in digits.split(':') {
        if field.is_empty()
            || field.len() > 2
            || !field.bytes().all(|byte| byte.is_ascii_digit())
            || unit == 0
        {
            return None;
        }
        seconds += field.parse::<i32>().ok()? * unit;
        unit /= 60;
    }
    Some(sign * seconds)
}

impl fmt::Debug for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Zone({})", self.name)
    }
}

impl PartialEq for Zone {
    fn eq(&self, other: &Zone) -> bool {
        self.name == other.name
    }
}

impl Eq for Zone {}
