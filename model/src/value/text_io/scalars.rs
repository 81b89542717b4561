//! Text forms of scalar types other than numbers with fractions, dates and JSON, and the fitting into modifiers.

use std::fmt::Write;

use crate::types::{Type, Typmod};
use crate::value::{Bytea, Text, Value, ValueError, ValueErrorKind, trim_blanks};

fn trim(text: &str) -> &str {
    text.trim_matches(|c: char| c.is_ascii_whitespace() || c == '\x0b')
}

/// Reads `true`, `t`, `yes`, `on`, `1` and their like, and every unique prefix of the words.
pub fn parse_bool(text: &str) -> Result<bool, ValueError> {
    let word = trim(text).to_ascii_lowercase();
    let prefix = |whole: &str, shortest: usize| word.len() >= shortest && whole.starts_with(&word);
    if prefix("true", 1) || prefix("yes", 1) || word == "on" || word == "1" {
        return Ok(true);
    }
    if prefix("false", 1) || prefix("no", 1) || prefix("off", 2) || word == "0" {
        return Ok(false);
    }
    Err(ValueError::invalid_text("boolean", text))
}

/// Reads a decimal integer with an optional sign.
pub(super) fn parse_integer<I: TryFrom<i64>>(text: &str, type_name: &str) -> Result<I, ValueError> {
    let digits = trim(text);
    let unsigned = digits.strip_prefix(['+', '-']).unwrap_or(digits);
    if unsigned.is_empty() || !unsigned.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(ValueError::invalid_text(type_name, text));
    }
    let value = digits.parse::<i64>().ok().and_then(|value| I::try_from(value).ok());
    value.ok_or_else(|| ValueError::text_out_of_range(type_name, text))
}

/// Reads an OID: unsigned, or negative as its two's complement, as PostgreSQL takes it.
pub(super) fn parse_oid(text: &str, of: Type) -> Result<u32, ValueError> {
    let digits = trim(text);
    if digits == "-" && of != Type::Oid && !matches!(of, Type::Xid | Type::Cid) {
        return Ok(0);
    }
    let name = if of.is_oid() && !matches!(of, Type::Xid | Type::Cid) { "oid" } else { of.display_name() };
    let value: i64 = parse_integer(digits, name).map_err(|error| match error.kind() {
        ValueErrorKind::OutOfRange => ValueError::text_out_of_range(name, text),
        _ => ValueError::invalid_text(name, text),
    })?;
    u32::try_from(value)
        .or_else(|_| i32::try_from(value).map(|value| value as u32))
        .map_err(|_| ValueError::text_out_of_range(name, text))
}

/// Reads `(block,offset)`.
pub(super) fn parse_tid(text: &str) -> Result<Text, ValueError> {
    let invalid = || ValueError::invalid_text("tid", text);
    let (block, offset) = split_tid(trim(text)).ok_or_else(invalid)?;
    Ok(Text::from(format!("({block},{offset})")))
}

/// Block and offset of a tid's text.
pub(crate) fn split_tid(text: &str) -> Option<(u32, u16)> {
    let (block, offset) = text.strip_prefix('(')?.strip_suffix(')')?.split_once(',')?;
    Some((block.parse().ok()?, offset.parse().ok()?))
}

/// A text as its type holds it: cut names, one-byte chars, lengths checked.
pub(super) fn parse_text(text: &str, of: Type, typmod: Typmod) -> Result<Text, ValueError> {
    match of {
        Type::Name => Ok(Text::from(truncate_name(text))),
        Type::Char => Ok(parse_char(text)),
        Type::Varchar | Type::Bpchar => fit_length(text, of, typmod, Fit::Assign),
        _ => Ok(Text::from(text)),
    }
}

/// At most 63 bytes, cut between characters.
pub fn truncate_name(text: &str) -> &str {
    if text.len() < 64 {
        return text;
    }
    let end = (0..=63).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    &text[..end]
}

/// A `"char"`: the first byte, kept as the character of its number; `\ooo` names one above ASCII.
fn parse_char(text: &str) -> Text {
    let bytes = text.as_bytes();
    if let [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7'] = bytes {
        let byte = (a - b'0') << 6 | (b - b'0') << 3 | (c - b'0');
        return if byte == 0 { Text::default() } else { Text::from(char::from(byte).to_string()) };
    }
    bytes.first().map_or_else(Text::default, |byte| Text::from(char::from(*byte).to_string()))
}

pub(super) fn write_char(text: &str, out: &mut String) {
    match text.chars().next() {
        Some(c) if !c.is_ascii() => {
            // Writing to a String cannot fail.
            let _ = write!(out, "\\{:03o}", c as u32 & 0xff);
        }
        Some(c) => out.push(c),
        None => {}
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fit {
    /// Too long is an error, save for blanks.
    Assign,
    /// Too long is cut.
    Cast,
}

fn fit_length(text: &str, of: Type, typmod: Typmod, fit: Fit) -> Result<Text, ValueError> {
    let Some(length) = typmod.length() else {
        return Ok(Text::from(text));
    };
    // A text of n bytes has at most n characters.
    let cut = if text.len() <= length { None } else { text.char_indices().nth(length).map(|(at, _)| at) };
    match cut {
        Some(at) => {
            let excess_is_blank = text[at..].bytes().all(|byte| byte == b' ');
            if fit == Fit::Assign && !excess_is_blank {
                return Err(ValueError::too_long(&of.name_with(typmod)));
            }
            Ok(Text::from(&text[..at]))
        }
        None if of == Type::Bpchar => {
            let missing = length - text.chars().count();
            if missing == 0 {
                Ok(Text::from(text))
            } else {
                Ok(Text::from(format!("{text}{}", " ".repeat(missing))))
            }
        }
        None => Ok(Text::from(text)),
    }
}

/// Fits a value of a type into a column's modifier: length, precision, scale, digits. `explicit` says that it is a
/// cast in an expression, which cuts texts, and not an assignment, which refuses them.
pub fn apply_typmod(value: Value, of: Type, typmod: Typmod, explicit: bool) -> Result<Value, ValueError> {
    if typmod.is_none() {
        return Ok(value);
    }
    let fit = if explicit { Fit::Cast } else { Fit::Assign };
    Ok(match (value, of) {
        (Value::Text(text), Type::Varchar) => Value::Text(fit_length(&text, of, typmod, fit)?),
        (Value::Text(text), Type::Bpchar) => Value::Text(fit_length(trim_blanks(&text), of, typmod, fit)?),
        (Value::Numeric(number), _) => Value::Numeric(number.with_typmod(typmod)?),
        (Value::Time(time), _) => {
            Value::Time(typmod.precision(of).map_or(time, |digits| time.rounded(digits)))
        }
        (Value::Timestamp(timestamp), _) => {
            Value::Timestamp(typmod.precision(of).map_or(timestamp, |digits| timestamp.rounded(digits)))
        }
        (Value::Timestamptz(timestamp), _) => {
            Value::Timestamptz(typmod.precision(of).map_or(timestamp, |digits| timestamp.rounded(digits)))
        }
        (Value::Interval(interval), _) => Value::Interval(interval.with_typmod(typmod)),
        (Value::Array(array), Type::Array(element)) => {
            let fitted = array
                .values()
                .iter()
                .map(|value| apply_typmod(value.clone(), element.as_type(), typmod, explicit));
            let values = fitted.collect::<Result<Vec<_>, _>>()?;
            let array = crate::value::Array::new(element, array.dimensions().to_vec(), values)?;
            Value::Array(std::sync::Arc::new(array))
        }
        (Value::Array(array), Type::Vector) => {
            super::arrays::check_embedding(array.len(), typmod)?;
            Value::Array(array)
        }
        (value, _) => value,
    })
}

/// Reads `\x6162` or the escape form, `ab\\\001`.
pub fn parse_bytea(text: &str) -> Result<Bytea, ValueError> {
    match text.strip_prefix("\\x") {
        Some(digits) => parse_hex(digits).map(Bytea::from),
        None => parse_escaped(text).map(Bytea::from),
    }
}

fn parse_hex(text: &str) -> Result<Vec<u8>, ValueError> {
    let mut bytes = Vec::with_capacity(text.len() / 2);
    let mut digits = text.chars();
    let value = |c: char| {
        c.to_digit(16).ok_or_else(|| ValueError::parameter(format!("invalid hexadecimal digit: \"{c}\"")))
    };
    while let Some(first) = digits.next() {
        if first.is_ascii_whitespace() {
            continue;
        }
        let high = value(first)?;
        let odd = || ValueError::parameter("invalid hexadecimal data: odd number of digits");
        let low = value(digits.next().ok_or_else(odd)?)?;
        bytes.push((high << 4 | low) as u8);
    }
    Ok(bytes)
}

fn parse_escaped(text: &str) -> Result<Vec<u8>, ValueError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        if *byte != b'\\' {
            bytes.push(*byte);
            rest = after;
            continue;
        }
        match after {
            [b'\\', after @ ..] => {
                bytes.push(b'\\');
                rest = after;
            }
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..] => {
                bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = after;
            }
            _ => {
                let message = "invalid input syntax for type bytea";
                return Err(ValueError::new(ValueErrorKind::InvalidText, message));
            }
        }
    }
    Ok(bytes)
}

const HEX: &[u8; 16] = b"0123456789abcdef";

fn push_hex(byte: u8, out: &mut String) {
    out.push(char::from(HEX[usize::from(byte >> 4)]));
    out.push(char::from(HEX[usize::from(byte & 15)]));
}

pub(super) fn write_hex(bytes: &[u8], out: &mut String) {
    out.reserve(bytes.len() * 2 + 2);
    out.push_str("\\x");
    bytes.iter().for_each(|byte| push_hex(*byte, out));
}

pub(super) fn write_escaped(bytes: &[u8], out: &mut String) {
    for byte in bytes {
        match byte {
            b'\\' => out.push_str("\\\\"),
            0x20..0x7f => out.push(char::from(*byte)),
            _ => {
                // Writing to a String cannot fail.
                let _ = write!(out, "\\{byte:03o}");
            }
        }
    }
}

/// Reads a UUID, with or without hyphens after groups of four digits, with or without braces.
pub fn parse_uuid(text: &str) -> Result<[u8; 16], ValueError> {
    let invalid = || ValueError::invalid_text("uuid", text);
    let inner = match text.strip_prefix('{') {
        Some(inner) => inner.strip_suffix('}').ok_or_else(invalid)?,
        None => text,
    };
    let mut bytes = [0; 16];
    let mut rest = inner.as_bytes();
    for (index, byte) in bytes.iter_mut().enumerate() {
        let ([high, low], after) = rest.split_first_chunk::<2>().ok_or_else(invalid)?;
        let digit = |digit: u8| char::from(digit).to_digit(16).ok_or_else(invalid);
        *byte = (digit(*high)? << 4 | digit(*low)?) as u8;
        rest = after;
        if index % 2 == 1 && index < 15 {
            rest = rest.strip_prefix(b"-").unwrap_or(rest);
        }
    }
    if rest.is_empty() { Ok(bytes) } else { Err(invalid()) }
}

pub(super) fn write_uuid(bytes: &[u8; 16], out: &mut String) {
    out.reserve(36);
    for (index, byte) in bytes.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            out.push('-');
        }
        push_hex(*byte, out);
    }
}
