//! Spellings of types: interval fields, aliases, modifiers and array suffixes, read and written.

use super::{Scalar, Type, Typmod, interval_range};
use crate::value::ValueError;

const INTERVAL_RANGES: [(&str, u16); 13] = {
    use interval_range::{DAY, HOUR, MINUTE, MONTH, SECOND, YEAR};
    [
        ("year", YEAR),
        ("month", MONTH),
        ("day", DAY),
        ("hour", HOUR),
        ("minute", MINUTE),
        ("second", SECOND),
        ("year to month", YEAR | MONTH),
        ("day to hour", DAY | HOUR),
        ("day to minute", DAY | HOUR | MINUTE),
        ("day to second", DAY | HOUR | MINUTE | SECOND),
        ("hour to minute", HOUR | MINUTE),
        ("hour to second", HOUR | MINUTE | SECOND),
        ("minute to second", MINUTE | SECOND),
    ]
};

pub(super) fn interval_name(typmod: Typmod) -> String {
    if typmod.is_none() {
        return "interval".to_owned();
    }
    let mut name = "interval".to_owned();
    if let Some(range) = typmod.interval_range()
        && let Some((fields, _)) = INTERVAL_RANGES.iter().find(|(_, bits)| *bits == range)
    {
        name.push(' ');
        name.push_str(fields);
    }
    if let Some(digits) = typmod.precision(Type::Interval) {
        name.push_str(&format!("({digits})"));
    }
    name
}

/// A type name cut into its words, its numbers in brackets and its array suffix.
struct Spelling {
    words: String,
    arguments: Vec<i32>,
    /// Whether any argument list was written.
    array: bool,
}

pub(super) fn parse_name(name: &str) -> Result<(Type, Typmod), ValueError> {
    let unknown = || ValueError::undefined_type(name);
    let spelling = spell(name).ok_or_else(unknown)?;
    let (scalar, typmod) = resolve(&spelling, name)?.ok_or_else(unknown)?;
    if spelling.array {
        return Ok((scalar.array().ok_or_else(unknown)?, typmod));
    }
    Ok((scalar, typmod))
}

fn spell(name: &str) -> Option<Spelling> {
    let mut words = String::new();
    let mut arguments = Vec::new();
    let mut array = false;
    let mut rest = name.trim();
    if let Some(inner) = rest.strip_prefix("pg_catalog.") {
        rest = inner;
    }
    while let Some(first) = rest.chars().next() {
        match first {
            '(' => {
                let close = rest.find(')')?;
                for argument in rest[1..close].split(',') {
                    arguments.push(argument.trim().parse().ok()?);
                }
                rest = rest[close + 1..].trim_start();
            }
            '[' => {
                let close = rest.find(']')?;
                let size = rest[1..close].trim();
                if !size.is_empty() && size.parse::<u32>().is_err() {
                    return None;
                }
                array = true;
                rest = rest[close + 1..].trim_start();
            }
            '"' => {
                let close = rest[1..].find('"')? + 1;
                if !words.is_empty() {
                    return None;
                }
                words.push_str(&rest[..=close]);
                rest = rest[close + 1..].trim_start();
            }
            _ => {
                let end = rest
                    .find(|c: char| c.is_whitespace() || matches!(c, '(' | '[' | '"'))
                    .unwrap_or(rest.len());
                if !words.is_empty() {
                    words.push(' ');
                }
                words.push_str(&rest[..end].to_ascii_lowercase());
                rest = rest[end..].trim_start();
            }
        }
    }
    if let Some(scalar) = words.strip_suffix(" array") {
        words.truncate(scalar.len());
        array = true;
    }
    Some(Spelling { words, arguments, array })
}

fn resolve(spelling: &Spelling, whole: &str) -> Result<Option<(Type, Typmod)>, ValueError> {
    let arguments = spelling.arguments.as_slice();
    let words = spelling.words.as_str();
    if let Some(fields) = words.strip_prefix("interval ") {
        let Some((_, range)) = INTERVAL_RANGES.iter().find(|(spelled, _)| *spelled == fields) else {
            return Ok(None);
        };
        let digits = arguments.first().map_or(0xffff, |digits| (*digits).clamp(0, 6) as u16);
        return Ok(Some((Type::Interval, Typmod::of_interval(*range, digits))));
    }
    let scalar = match words {
        "bool" | "boolean" => Type::Bool,
        "int2" | "smallint" => Type::Int2,
        "int" | "int4" | "integer" => Type::Int4,
        "int8" | "bigint" => Type::Int8,
        "float4" | "real" => Type::Float4,
        "float8" | "double precision" => Type::Float8,
        "float" => match arguments {
            [] | [25..=53] => return Ok(Some((Type::Float8, Typmod::NONE))),
            [1..=24] => return Ok(Some((Type::Float4, Typmod::NONE))),
            _ => return Err(ValueError::parameter("precision for type float must be between 1 and 53 bits")),
        },
        "numeric" | "decimal" | "dec" => Type::Numeric,
        "varchar" | "character varying" | "char varying" => Type::Varchar,
        "bpchar" | "char" | "character" => Type::Bpchar,
        "\"char\"" => Type::Char,
        "time" | "time without time zone" => Type::Time,
        "timestamp" | "timestamp without time zone" => Type::Timestamp,
        "timestamptz" | "timestamp with time zone" => Type::Timestamptz,
        _ => {
            let bare = words.trim_matches('"');
            let (bare, array) = match bare.strip_prefix('_') {
                Some(element) => (element, true),
                None => (bare, false),
            };
            let Some(scalar) = Scalar::ALL.iter().find(|scalar| scalar.facts().name == bare) else {
                return Ok(None);
            };
            if array { Type::Array(*scalar) } else { scalar.as_type() }
        }
    };
    Ok(Some((scalar, modifier(scalar, words, arguments, whole)?)))
}

fn modifier(scalar: Type, words: &str, arguments: &[i32], whole: &str) -> Result<Typmod, ValueError> {
    match (scalar, arguments) {
        (Type::Bpchar, []) if words != "bpchar" => Ok(Typmod::of_length(1)),
        (_, []) => Ok(Typmod::NONE),
        (Type::Varchar | Type::Bpchar, [length]) => {
            let named = if scalar == Type::Varchar { "varchar" } else { "char" };
            if *length < 1 {
                return Err(ValueError::parameter(format!("length for type {named} must be at least 1")));
            }
            if *length > 10_485_760 {
                return Err(ValueError::parameter(format!("length for type {named} cannot exceed 10485760")));
            }
            Ok(Typmod::of_length(*length))
        }
        (Type::Numeric, [precision] | [precision, _]) => {
            let scale = arguments.get(1).copied().unwrap_or(0);
            if !(1..=1000).contains(precision) {
                let message = format!("NUMERIC precision {precision} must be between 1 and 1000");
                return Err(ValueError::parameter(message));
            }
            if !(-1000..=1000).contains(&scale) {
                let message = format!("NUMERIC scale {scale} must be between -1000 and 1000");
                return Err(ValueError::parameter(message));
            }
            Ok(Typmod::of_numeric(*precision as u16, scale as i16))
        }
        (Type::Interval, [digits]) if *digits >= 0 => {
            Ok(Typmod::of_interval(interval_range::FULL, (*digits).min(6) as u16))
        }
        (Type::Time | Type::Timestamp | Type::Timestamptz, [digits]) if *digits >= 0 => {
            Ok(Typmod::of_precision((*digits).min(6)))
        }
        (Type::Vector, [dimensions @ 1..=16_000]) => Ok(Typmod(*dimensions)),
        _ => Err(ValueError::bad_type_modifier(whole)),
    }
}
