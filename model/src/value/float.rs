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
    if let Some(word) = special_word(value) {
        return out.push_str(word);
    }
    if write_whole(value, 1e15, out) {
        return;
    }
    let bits = value.to_bits();
    let (fraction, exponent) = (bits & ((1 << 52) - 1), (bits >> 52 & 0x7ff) as i32);
    let binary = Binary::new(fraction, exponent, 52, 1_075);
    write(
        value < 0.0 || bits >> 63 == 1,
        &shortest(value.abs(), &binary, |text| text.parse() == Ok(value.abs())),
        15,
        out,
    );
}

/// Writes a float: fixed notation for exponents from -4 to 5, else `1e+06`.
pub(crate) fn write_f32(value: f32, out: &mut String) {
    if let Some(word) = special_word(f64::from(value)) {
        return out.push_str(word);
    }
    if write_whole(f64::from(value), 1e6, out) {
        return;
    }
    let bits = value.to_bits();
    let (fraction, exponent) = (bits & ((1 << 23) - 1), (bits >> 23 & 0xff) as i32);
    let binary = Binary::new(u64::from(fraction), exponent, 23, 150);
    write(bits >> 31 == 1, &shortest(value.abs(), &binary, |text| text.parse() == Ok(value.abs())), 6, out);
}

/// Writes a whole number below the bound at which exponents begin; such numbers are exact and frequent.
fn write_whole(value: f64, bound: f64, out: &mut String) -> bool {
    let whole = value as i64;
    let fits = value.abs() < bound && whole as f64 == value && !(whole == 0 && value.is_sign_negative());
    if fits {
        // Writing to a String cannot fail.
        let _ = write!(out, "{whole}");
    }
    fits
}

fn special_word(value: f64) -> Option<&'static str> {
    if value.is_nan() {
        return Some("NaN");
    }
    value.is_infinite().then_some(if value < 0.0 { "-Infinity" } else { "Infinity" })
}

/// A float as `mantissa * 2^exponent`, and the smallest mantissa of its binade.
struct Binary {
    mantissa: u64,
    exponent: i32,
    first_of_binade: bool,
}

impl Binary {
    fn new(fraction: u64, biased: i32, width: u32, bias: i32) -> Self {
        let hidden = 1u64 << width;
        if biased == 0 {
            return Binary { mantissa: fraction, exponent: 1 - bias, first_of_binade: false };
        }
        let first_of_binade = fraction == 0 && biased > 1;
        Binary { mantissa: fraction | hidden, exponent: biased - bias, first_of_binade }
    }

    /// Whether a decimal lies exactly between this float and a neighbour. Readers may round it either way, so
    /// PostgreSQL does not write it, though it is shortest.
    fn is_boundary(&self, decimal: &Decimal) -> bool {
        let Some((odd, power)) = decimal.binary() else { return false };
        let between = |mantissa: u64, exponent: i32| {
            let zeros = mantissa.trailing_zeros();
            u128::from(mantissa >> zeros) == odd && exponent + zeros as i32 == power
        };
        let below = if self.first_of_binade {
            between(self.mantissa * 4 - 1, self.exponent - 2)
        } else {
            self.mantissa > 0 && between(self.mantissa * 2 - 1, self.exponent - 1)
        };
        below || between(self.mantissa * 2 + 1, self.exponent - 1)
    }

    fn equals(&self, decimal: &Decimal) -> bool {
        if self.mantissa == 0 {
            return true;
        }
        let zeros = self.mantissa.trailing_zeros();
        decimal.binary() == Some((u128::from(self.mantissa >> zeros), self.exponent + zeros as i32))
    }

    /// Whether the exact value could have so few digits that it ends in a tie.
    fn may_tie(&self) -> bool {
        self.exponent + self.mantissa.trailing_zeros() as i32 >= -24
    }
}

/// Decimal digits d₁d₂… and the exponent of the first: d₁.d₂… × 10^exponent.
struct Decimal {
    digits: String,
    exponent: i32,
}

impl Decimal {
    fn read(text: &str) -> Decimal {
        let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
        let mut digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
        while digits.len() > 1 && digits.ends_with('0') {
            digits.pop();
        }
        Decimal { digits, exponent: exponent.parse().unwrap_or(0) }
    }

    /// The value as an odd number times a power of two; `None` when it is none of at most 128 bits.
    fn binary(&self) -> Option<(u128, i32)> {
        let power = self.exponent + 1 - self.digits.len() as i32;
        // Seventeen digits cannot be divided by so many fives.
        if power < -25 {
            return None;
        }
        let mut number = u128::from(self.digits.parse::<u64>().ok().filter(|number| *number != 0)?);
        let fives = 5u128.checked_pow(power.unsigned_abs())?;
        if power >= 0 {
            number = number.checked_mul(fives)?;
        } else if number.is_multiple_of(fives) {
            number /= fives;
        } else {
            return None;
        }
        let zeros = number.trailing_zeros();
        Some((number >> zeros, power + zeros as i32))
    }
}

/// The shortest digits that read back to the value and to no neighbour, the closest of them, ties to the even digit.
fn shortest<F: LowerExp>(value: F, binary: &Binary, reads_back: impl Fn(&str) -> bool) -> Decimal {
    let decimal = Decimal::read(&format!("{value:e}"));
    if binary.is_boundary(&decimal) {
        for digits in decimal.digits.len()..17 {
            let text = format!("{value:.digits$e}");
            let longer = Decimal::read(&text);
            if reads_back(&text) && !binary.is_boundary(&longer) {
                return longer;
            }
        }
        return decimal;
    }
    if !binary.may_tie() || binary.equals(&decimal) {
        return decimal;
    }
    let exact = Decimal::read(&format!("{value:.40e}"));
    let count = decimal.digits.len();
    let odd = |digit: u8| digit % 2 == 1;
    if exact.digits.len() == count + 1
        && exact.digits.ends_with('5')
        && exact.digits[..count] != decimal.digits
    {
        // The exact value is halfway and was rounded up; the lower neighbour is meant when its digit is even.
        let lower = &exact.digits[..count];
        if lower.bytes().last().is_some_and(|digit| !odd(digit))
            && reads_back(&format!("{lower}e{}", exact.exponent + 1 - count as i32))
        {
            return Decimal::read(&format!("{}.{}e{}", &lower[..1], &lower[1..], exact.exponent));
        }
    }
    decimal
}

fn write(negative: bool, decimal: &Decimal, digits_max: i32, out: &mut String) {
    if negative {
        out.push('-');
    }
    let Decimal { digits, exponent } = decimal;
    if !(-4..digits_max).contains(exponent) {
        let direction = if *exponent < 0 { '-' } else { '+' };
        out.push_str(&digits[..1]);
        if digits.len() > 1 {
            out.push('.');
            out.push_str(&digits[1..]);
        }
        // Writing to a String cannot fail.
        let _ = write!(out, "e{direction}{:02}", exponent.abs());
        return;
    }
    if *exponent < 0 {
        out.push_str("0.");
        (1..-exponent).for_each(|_| out.push('0'));
        return out.push_str(digits);
    }
    let whole = *exponent as usize + 1;
    if digits.len() <= whole {
        out.push_str(digits);
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
