//! Text and floating-point forms of a number.

use std::fmt::{self, Write};
use std::str::FromStr;

use super::bytes::digits_to_big;
use super::{Class, INTEGER_DIGITS_MAX, Numeric, SCALE_MAX, pow10_big};
use crate::value::ValueError;

impl FromStr for Numeric {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let trimmed = text.trim_matches(|c: char| c.is_ascii_whitespace() || c == '\x0b');
        let invalid = || ValueError::invalid_text("numeric", text);
        let (negative, unsigned) = match trimmed.as_bytes().first() {
            Some(b'-') => (true, &trimmed[1..]),
            Some(b'+') => (false, &trimmed[1..]),
            _ => (false, trimmed),
        };
        if !unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
            let infinite = unsigned.eq_ignore_ascii_case("infinity") || unsigned.eq_ignore_ascii_case("inf");
            return match (infinite, negative) {
                (true, false) => Ok(Numeric::INFINITY),
                (true, true) => Ok(Numeric::NEG_INFINITY),
                (false, _) if trimmed.eq_ignore_ascii_case("nan") => Ok(Numeric::NAN),
                (false, _) => Err(invalid()),
            };
        }
        parse_decimal(unsigned, negative).map_err(|refused| match refused {
            Refused::Syntax => invalid(),
            Refused::Overflow => ValueError::numeric_overflow(),
        })
    }
}

enum Refused {
    Syntax,
    Overflow,
}

fn parse_decimal(text: &str, negative: bool) -> Result<Numeric, Refused> {
    let (mantissa, exponent) = match text.find(['e', 'E']) {
        Some(at) => (&text[..at], parse_exponent(&text[at + 1..])?),
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() && fraction.is_empty() {
        return Err(Refused::Syntax);
    }
    if !whole.bytes().chain(fraction.bytes()).all(|byte| byte.is_ascii_digit()) {
        return Err(Refused::Syntax);
    }
    let scale = (fraction.len() as i64 - exponent).max(0);
    if scale > i64::from(SCALE_MAX) {
        return Err(Refused::Overflow);
    }
    let zeros = (exponent - fraction.len() as i64).max(0);
    if zeros == 0 && whole.len() + fraction.len() <= 38 {
        let digits = whole.bytes().chain(fraction.bytes());
        let value = digits.fold(0i128, |sum, digit| sum * 10 + i128::from(digit - b'0'));
        return Ok(Numeric::from_i128(if negative { -value } else { value }, scale as u16));
    }
    let digits: Vec<u8> = whole
        .bytes()
        .chain(fraction.bytes())
        .map(|byte| byte - b'0')
        .skip_while(|digit| *digit == 0)
        .collect();
    if digits.is_empty() {
        return Ok(Numeric::from_i128(0, scale as u16));
    }
    if digits.len() as i64 + zeros - scale > i64::from(INTEGER_DIGITS_MAX) {
        return Err(Refused::Overflow);
    }
    let mut value = digits_to_big(&digits) * pow10_big(zeros as u32);
    if negative {
        value = -value;
    }
    Numeric::from_big(value, scale as u16).map_err(|_| Refused::Overflow)
}

fn parse_exponent(text: &str) -> Result<i64, Refused> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Refused::Syntax);
    }
    match text.parse::<i64>() {
        Ok(exponent) if exponent.abs() < i64::from(i32::MAX / 2) => Ok(exponent),
        _ => Err(Refused::Overflow),
    }
}

impl Numeric {
    /// Appends the text form: all digits of the scale, never an exponent.
    pub fn write_text(&self, out: &mut String) {
        let start = out.len();
        let scale = match self.class() {
            // Writing to a String cannot fail.
            Class::Small(mantissa, scale) => {
                let _ = match i64::try_from(mantissa) {
                    Ok(short) => write!(out, "{short}"),
                    Err(_) => write!(out, "{mantissa}"),
                };
                scale
            }
            Class::Big(mantissa, scale) => {
                out.push_str(&mantissa.to_str_radix(10));
                scale
            }
            Class::NaN => return out.push_str("NaN"),
            Class::Infinity => return out.push_str("Infinity"),
            Class::NegInfinity => return out.push_str("-Infinity"),
        };
        if scale == 0 {
            return;
        }
        let scale = usize::from(scale);
        let digits_start = start + usize::from(out.as_bytes()[start] == b'-');
        let digits = out.len() - digits_start;
        if digits <= scale {
            out.insert_str(digits_start, &"0".repeat(scale - digits + 1));
        }
        let point = out.len() - scale;
        out.insert(point, '.');
    }

    /// The number nearest to a double, at its 15 significant digits, as PostgreSQL casts it.
    pub fn from_f64(value: f64) -> Numeric {
        from_float(value, 14)
    }

    /// The number nearest to a float, at its 6 significant digits, as PostgreSQL casts it.
    pub fn from_f32(value: f32) -> Numeric {
        from_float(f64::from(value), 5)
    }

    /// The nearest double; beyond its range an infinity.
    pub fn to_f64(&self) -> f64 {
        match self.class() {
            Class::Small(mantissa, scale) if mantissa.unsigned_abs() < 1 << 53 && scale <= 22 => {
                // Both sides are exact, so one division rounds once.
                mantissa as f64 / 10f64.powi(i32::from(scale))
            }
            Class::Small(..) | Class::Big(..) => self.to_string().parse().unwrap_or(f64::NAN),
            Class::NaN => f64::NAN,
            Class::Infinity => f64::INFINITY,
            Class::NegInfinity => f64::NEG_INFINITY,
        }
    }
}

fn from_float(value: f64, digits_after_first: usize) -> Numeric {
    if value.is_nan() {
        return Numeric::NAN;
    }
    if value.is_infinite() {
        return if value > 0.0 { Numeric::INFINITY } else { Numeric::NEG_INFINITY };
    }
    let text = format!("{value:.digits_after_first$e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    // As C's %g: without the zeros at the end.
    let mantissa =
        if mantissa.contains('.') { mantissa.trim_end_matches('0').trim_end_matches('.') } else { mantissa };
    format!("{mantissa}e{exponent}").parse().unwrap_or(Numeric::ZERO)
}

impl fmt::Display for Numeric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        self.write_text(&mut text);
        f.write_str(&text)
    }
}
