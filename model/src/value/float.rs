//! Floating-point numbers as SQL sees them: a total order, text forms of PostgreSQL.
//!
//! Output is the shortest text that reads back to the same bits (PostgreSQL's `extra_float_digits = 1`).

use std::cmp::Ordering;
use std::fmt::{LowerExp, Write};

/// A total order: -0 equals 0, NaN equals NaN and is greatest.
pub(crate) fn cmp(a: f64, b: f64) -> Ordering {
    match a.partial_cmp(&b) {
        Some(order) => order,
        None => a.is_nan().cmp(&b.is_nan()),
    }
}

/// Bits that are equal exactly when `cmp` says equal.
pub(crate) fn canonical_bits(value: f64) -> u64 {
    if value.is_nan() {
        f64::NAN.to_bits()
    } else if value == 0.0 {
        0
    } else {
        value.to_bits()
    }
}

/// Writes a double: fixed notation for exponents from -4 to 14, else `1e+20`.
pub(crate) fn write_f64(value: f64, out: &mut String) {
    write(value, value.is_nan(), value.is_infinite(), value < 0.0, 15, out);
}

/// Writes a float: fixed notation for exponents from -4 to 5, else `1e+06`.
pub(crate) fn write_f32(value: f32, out: &mut String) {
    write(value, value.is_nan(), value.is_infinite(), value < 0.0, 6, out);
}

fn write<F: LowerExp>(
    value: F,
    nan: bool,
    infinite: bool,
    negative: bool,
    digits_max: i32,
    out: &mut String,
) {
    if nan {
        return out.push_str("NaN");
    }
    if infinite {
        return out.push_str(if negative { "-Infinity" } else { "Infinity" });
    }
    let mut shortest = String::with_capacity(24);
    // Writing to a String cannot fail.
    let _ = write!(shortest, "{value:e}");
    let (mantissa, exponent) = shortest.split_once('e').unwrap_or((&shortest, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let (sign, mantissa) = match mantissa.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", mantissa),
    };
    out.push_str(sign);
    if !(-4..digits_max).contains(&exponent) {
        let direction = if exponent < 0 { '-' } else { '+' };
        let _ = write!(out, "{mantissa}e{direction}{:02}", exponent.abs());
        return;
    }
    let digits: String = mantissa.chars().filter(|digit| *digit != '.').collect();
    if exponent < 0 {
        out.push_str("0.");
        (1..-exponent).for_each(|_| out.push('0'));
        out.push_str(&digits);
        return;
    }
    let whole = exponent as usize + 1;
    if digits.len() <= whole {
        out.push_str(&digits);
        (digits.len()..whole).for_each(|_| out.push('0'));
    } else {
        out.push_str(&digits[..whole]);
        out.push('.');
        out.push_str(&digits[whole..]);
    }
}

/// What a floating-point text was not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    Syntax,
    Range,
}

/// Reads what C's `strtod` reads of decimal forms, with PostgreSQL's words for the specials.
pub(crate) fn parse_f64(text: &str) -> Result<f64, Refused> {
    let text = trim(text);
    if let Some(special) = special(text) {
        return Ok(special);
    }
    if let Some(hexadecimal) = hexadecimal(text) {
        return hexadecimal;
    }
    let value: f64 = decimal(text)?.parse().map_err(|_| Refused::Syntax)?;
    check(value.is_infinite(), value == 0.0, text)?;
    Ok(value)
}

/// C's hexadecimal form, `0x1.8p3`; `None` when the text does not begin so.
fn hexadecimal(text: &str) -> Option<Result<f64, Refused>> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let body = unsigned.strip_prefix("0x").or_else(|| unsigned.strip_prefix("0X"))?;
    let (digits, exponent) = match body.find(['p', 'P']) {
        Some(at) => {
            (&body[..at], body[at + 1..].parse::<i32>().ok().filter(|exponent| exponent.abs() < 10_000))
        }
        None => (body, Some(0)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let Some(exponent) =
        exponent.filter(|_| plain(whole) && plain(fraction) && whole.len() + fraction.len() > 0)
    else {
        return Some(Err(Refused::Syntax));
    };
    // Sixteen digits are more than a double holds; the rest only moves the point.
    let kept: String =
        whole.chars().chain(fraction.chars()).skip_while(|digit| *digit == '0').take(15).collect();
    let skipped = whole.chars().chain(fraction.chars()).take_while(|digit| *digit == '0').count();
    let mantissa = u64::from_str_radix(&kept, 16).unwrap_or(0) as f64;
    let point = whole.len() as i32 - (skipped + kept.len()) as i32;
    // In two steps, so that neither power leaves the range before the product does.
    let power = point * 4 + exponent;
    let value = mantissa * 2f64.powi(power / 2) * 2f64.powi(power - power / 2);
    if value.is_infinite() || (value == 0.0 && mantissa != 0.0) {
        return Some(Err(Refused::Range));
    }
    Some(Ok(if text.starts_with('-') { -value } else { value }))
}

/// As `parse_f64`, rounded once to single precision.
pub(crate) fn parse_f32(text: &str) -> Result<f32, Refused> {
    let text = trim(text);
    if let Some(special) = special(text) {
        return Ok(special as f32);
    }
    if let Some(hexadecimal) = hexadecimal(text) {
        return hexadecimal.map(|value| value as f32);
    }
    let value: f32 = decimal(text)?.parse().map_err(|_| Refused::Syntax)?;
    check(value.is_infinite(), value == 0.0, text)?;
    Ok(value)
}

fn trim(text: &str) -> &str {
    text.trim_matches(|c: char| c.is_ascii_whitespace() || c == '\x0b')
}

fn special(text: &str) -> Option<f64> {
    let (sign, word) = match text.as_bytes().first() {
        Some(b'-') => (-1.0, &text[1..]),
        Some(b'+') => (1.0, &text[1..]),
        _ => (1.0, text),
    };
    if word.eq_ignore_ascii_case("infinity") || word.eq_ignore_ascii_case("inf") {
        return Some(sign * f64::INFINITY);
    }
    word.eq_ignore_ascii_case("nan").then_some(f64::NAN)
}

/// Only digits, a point and an exponent: Rust's parser also takes words that PostgreSQL does not.
fn decimal(text: &str) -> Result<&str, Refused> {
    let plain = !text.is_empty()
        && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'+' | b'-' | b'e' | b'E'));
    if plain { Ok(text) } else { Err(Refused::Syntax) }
}

fn check(infinite: bool, zero: bool, text: &str) -> Result<(), Refused> {
    let mantissa = text.split(['e', 'E']).next().unwrap_or("");
    let vanished = zero && mantissa.bytes().any(|byte| matches!(byte, b'1'..=b'9'));
    if infinite || vanished { Err(Refused::Range) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_are_written_as_postgresql_writes_them() {
        let cases = [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (0.1, "0.1"),
            (1e20, "1e+20"),
            (1e15, "1e+15"),
            (1e14, "100000000000000"),
            (123456789012345.6, "123456789012345.6"),
            (1e-4, "0.0001"),
            (1e-5, "1e-05"),
            (1.5e-7, "1.5e-07"),
            (f64::MAX, "1.7976931348623157e+308"),
            (5e-324, "5e-324"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Infinity"),
            (-1234.5, "-1234.5"),
        ];
        for (value, expected) in cases {
            let mut out = String::new();
            write_f64(value, &mut out);
            assert_eq!(out, expected);
        }
        let mut out = String::new();
        write_f32(1e6, &mut out);
        assert_eq!(out, "1e+06");
    }

    #[test]
    fn values_that_vanish_or_burst_are_out_of_range() {
        assert_eq!(parse_f64("1e400"), Err(Refused::Range));
        assert_eq!(parse_f64("1e-400"), Err(Refused::Range));
        assert_eq!(parse_f64("0e-400"), Ok(0.0));
        assert_eq!(parse_f64(" 1.5 "), Ok(1.5));
        assert_eq!(parse_f64("1e"), Err(Refused::Syntax));
        assert_eq!(parse_f64(""), Err(Refused::Syntax));
        assert_eq!(parse_f64("infinit"), Err(Refused::Syntax));
        assert_eq!(parse_f64("-inf"), Ok(f64::NEG_INFINITY));
        assert_eq!(parse_f32("1e39"), Err(Refused::Range));
    }
}
