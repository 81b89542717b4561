//! Byte forms of a number: PostgreSQL's wire form in base 10,000, and our compact form for rows and `jsonb`.
//!
//! Compact form (frozen, drawn in `docs/formats/row.md`): one byte `b`, then the mantissa as the shortest
//! little-endian two's complement (none for zero). `b` < 0x40 is the scale itself; 0x40 says the scale follows as
//! `u16` little-endian; 0x41 NaN, 0x42 infinity, 0x43 -infinity, with nothing after them.

use num_bigint::{BigInt, Sign};

use super::{Class, Numeric, Repr, SCALE_MAX, pow10, pow10_big};
use crate::value::{ValueError, ValueErrorKind};

const LONG_SCALE: u8 = 0x40;
const NAN: u8 = 0x41;
const INFINITY: u8 = 0x42;
const NEG_INFINITY: u8 = 0x43;

const WIRE_NEGATIVE: u16 = 0x4000;
const WIRE_NAN: u16 = 0xc000;
const WIRE_INFINITY: u16 = 0xd000;
const WIRE_NEG_INFINITY: u16 = 0xf000;
/// PostgreSQL sends bits of its own header as the scale of infinities.
const WIRE_INFINITE_SCALE: u16 = 0x20;

impl Numeric {
    /// Appends the compact form.
    pub fn write_compact(&self, out: &mut Vec<u8>) {
        match self.class() {
            Class::Small(mantissa, scale) => {
                write_scale(scale, out);
                if mantissa == 0 {
                    return;
                }
                let bytes = mantissa.to_le_bytes();
                let sign_bits =
                    if mantissa < 0 { (!mantissa).leading_zeros() } else { mantissa.leading_zeros() };
                // One bit of the run of sign bits must stay.
                let length = 16 - ((sign_bits - 1) / 8) as usize;
                out.extend_from_slice(&bytes[..length]);
            }
            Class::Big(mantissa, scale) => {
                write_scale(scale, out);
                out.extend_from_slice(&mantissa.to_signed_bytes_le());
            }
            Class::NaN => out.push(NAN),
            Class::Infinity => out.push(INFINITY),
            Class::NegInfinity => out.push(NEG_INFINITY),
        }
    }

    /// Reads a compact form that fills `bytes` wholly; `None` when it is none.
    pub fn read_compact(bytes: &[u8]) -> Option<Numeric> {
        let (first, rest) = bytes.split_first()?;
        let (scale, mantissa) = match *first {
            short @ 0..LONG_SCALE => (u16::from(short), rest),
            LONG_SCALE => {
                let (scale, mantissa) = rest.split_first_chunk::<2>()?;
                (u16::from_le_bytes(*scale), mantissa)
            }
            NAN if rest.is_empty() => return Some(Numeric::NAN),
            INFINITY if rest.is_empty() => return Some(Numeric::INFINITY),
            NEG_INFINITY if rest.is_empty() => return Some(Numeric::NEG_INFINITY),
            _ => return None,
        };
        if scale > SCALE_MAX {
            return None;
        }
        let Some(last) = mantissa.last() else {
            return Some(Numeric::from_i128(0, scale));
        };
        if mantissa.len() <= 16 {
            let mut wide = if *last >= 0x80 { [0xff; 16] } else { [0; 16] };
            wide[..mantissa.len()].copy_from_slice(mantissa);
            return Some(Numeric::from_i128(i128::from_le_bytes(wide), scale));
        }
        Numeric::from_big(BigInt::from_signed_bytes_le(mantissa), scale).ok()
    }

    /// Appends PostgreSQL's binary form (`numeric_send`).
    pub fn write_wire(&self, out: &mut Vec<u8>) {
        let header = |out: &mut Vec<u8>, digits: u16, weight: i16, sign: u16, scale: u16| {
            out.extend_from_slice(&digits.to_be_bytes());
            out.extend_from_slice(&weight.to_be_bytes());
            out.extend_from_slice(&sign.to_be_bytes());
            out.extend_from_slice(&scale.to_be_bytes());
        };
        let (groups, scale, negative) = match self.class() {
            Class::Small(mantissa, scale) => {
                (small_groups(mantissa.unsigned_abs(), scale), scale, mantissa < 0)
            }
            Class::Big(mantissa, scale) => {
                (big_groups(mantissa, scale), scale, mantissa.sign() == Sign::Minus)
            }
            Class::NaN => return header(out, 0, 0, WIRE_NAN, 0),
            Class::Infinity => return header(out, 0, 0, WIRE_INFINITY, WIRE_INFINITE_SCALE),
            Class::NegInfinity => return header(out, 0, 0, WIRE_NEG_INFINITY, WIRE_INFINITE_SCALE),
        };
        let Groups { digits, weight } = groups;
        header(out, digits.len() as u16, weight, if negative { WIRE_NEGATIVE } else { 0 }, scale);
        for digit in &digits {
            out.extend_from_slice(&digit.to_be_bytes());
        }
    }

    /// Reads PostgreSQL's binary form (`numeric_recv`).
    pub fn read_wire(bytes: &[u8]) -> Result<Numeric, ValueError> {
        let invalid = |message: &'static str| ValueError::new(ValueErrorKind::InvalidBinary, message);
        let (header, rest) = bytes.split_first_chunk::<8>().ok_or_else(ValueError::short_binary)?;
        let word = |index: usize| u16::from_be_bytes([header[index], header[index + 1]]);
        let (count, weight, sign, scale) = (word(0), word(2) as i16, word(4), word(6));
        match sign {
            0 | WIRE_NEGATIVE => {}
            WIRE_NAN => return Ok(Numeric::NAN),
            WIRE_INFINITY => return Ok(Numeric::INFINITY),
            WIRE_NEG_INFINITY => return Ok(Numeric::NEG_INFINITY),
            _ => return Err(invalid("invalid sign in external \"numeric\" value")),
        }
        if scale > SCALE_MAX {
            return Err(invalid("invalid scale in external \"numeric\" value"));
        }
        if rest.len() < usize::from(count) * 2 {
            return Err(ValueError::short_binary());
        }
        if rest.len() > usize::from(count) * 2 {
            return Err(ValueError::invalid_binary());
        }
        let mut text = Vec::with_capacity(usize::from(count) * 4);
        for pair in rest.chunks_exact(2) {
            let digit = u16::from_be_bytes([pair[0], pair[1]]);
            if digit > 9_999 {
                return Err(invalid("invalid digit in external \"numeric\" value"));
            }
            text.extend(
                [digit / 1000, digit / 100 % 10, digit / 10 % 10, digit % 10].map(|digit| digit as u8),
            );
        }
        // The digits mean text * 10^(4 * (weight + 1 - count)); cut or grow that to the scale.
        let shift = 4 * (i32::from(weight) + 1 - i32::from(count)) + i32::from(scale);
        let kept =
            if shift < 0 { text.len().saturating_sub(shift.unsigned_abs() as usize) } else { text.len() };
        let mut mantissa = digits_to_big(&text[..kept]);
        if shift > 0 {
            mantissa *= pow10_big(shift as u32);
        }
        if sign == WIRE_NEGATIVE {
            mantissa = -mantissa;
        }
        Numeric::from_big(mantissa, scale)
    }

    /// Bytes held outside the 24 inline ones.
    pub fn heap_size(&self) -> usize {
        match &self.0 {
            Repr::Big(big) => (big.mantissa.bits() / 8) as usize + 48,
            Repr::Small { .. } | Repr::NaN | Repr::Infinity | Repr::NegInfinity => 0,
        }
    }
}

fn write_scale(scale: u16, out: &mut Vec<u8>) {
    if scale < u16::from(LONG_SCALE) {
        out.push(scale as u8);
    } else {
        out.push(LONG_SCALE);
        out.extend_from_slice(&scale.to_le_bytes());
    }
}

/// Base-10,000 digits, most significant first, without zeros at either end.
struct Groups {
    digits: Vec<u16>,
    weight: i16,
}

fn small_groups(magnitude: u128, scale: u16) -> Groups {
    let pad = (4 - scale % 4) % 4;
    let Some(mut rest) = pow10(pad).and_then(|power| magnitude.checked_mul(power as u128)) else {
        return big_groups(&BigInt::from(magnitude), scale);
    };
    let mut digits = Vec::with_capacity(10);
    while rest != 0 {
        if let Ok(mut short) = u64::try_from(rest) {
            while short != 0 {
                digits.push((short % 10_000) as u16);
                short /= 10_000;
            }
            break;
        }
        digits.push((rest % 10_000) as u16);
        rest /= 10_000;
    }
    finish_groups(digits, (scale + pad) / 4)
}

fn big_groups(mantissa: &BigInt, scale: u16) -> Groups {
    let pad = (4 - scale % 4) % 4;
    let padded = BigInt::from(mantissa.magnitude().clone()) * pow10_big(u32::from(pad));
    let decimal = padded.magnitude().to_radix_le(10);
    let digits = decimal
        .chunks(4)
        .map(|group| group.iter().rev().fold(0u16, |sum, digit| sum * 10 + u16::from(*digit)));
    finish_groups(digits.collect(), (scale + pad) / 4)
}

/// `digits` come least significant first; `fraction` of them stand after the point.
fn finish_groups(mut digits: Vec<u16>, fraction: u16) -> Groups {
    while digits.last() == Some(&0) {
        digits.pop();
    }
    if digits.is_empty() {
        return Groups { digits, weight: 0 };
    }
    let weight = digits.len() as i32 - 1 - i32::from(fraction);
    let zeros = digits.iter().take_while(|digit| **digit == 0).count();
    digits.drain(..zeros);
    digits.reverse();
    Groups { digits, weight: weight as i16 }
}

/// Decimal digits (0–9), most significant first, to a number.
pub(super) fn digits_to_big(digits: &[u8]) -> BigInt {
    if digits.len() <= 38 {
        return BigInt::from(digits.iter().fold(0i128, |sum, digit| sum * 10 + i128::from(*digit)));
    }
    BigInt::from_radix_be(Sign::Plus, digits, 10).unwrap_or(BigInt::ZERO)
}

impl Numeric {
    /// ASCII digits without zeros at either end, and the e of 0.d₁d₂… × 10^e. Empty for zero and what is not finite.
    pub(crate) fn decimal_digits(&self) -> (Vec<u8>, i32) {
        let (mut digits, scale) = match self.class() {
            Class::Small(0, _) | Class::NaN | Class::Infinity | Class::NegInfinity => return (Vec::new(), 0),
            Class::Small(mantissa, scale) => match u64::try_from(mantissa.unsigned_abs()) {
                Ok(short) => (short.to_string().into_bytes(), scale),
                Err(_) => (mantissa.unsigned_abs().to_string().into_bytes(), scale),
            },
            Class::Big(mantissa, scale) => (mantissa.magnitude().to_str_radix(10).into_bytes(), scale),
        };
        let exponent = digits.len() as i32 - i32::from(scale);
        while digits.last() == Some(&b'0') {
            digits.pop();
        }
        (digits, exponent)
    }

    /// The inverse of `decimal_digits`, with the fewest fractional digits; `None` beyond the limits.
    pub(crate) fn from_decimal_digits(digits: &[u8], exponent: i32, negative: bool) -> Option<Numeric> {
        let end = digits.iter().rposition(|digit| *digit != b'0')? + 1;
        let values: Vec<u8> = digits[..end].iter().map(|digit| digit - b'0').collect();
        let scale = end as i64 - i64::from(exponent);
        if scale > i64::from(SCALE_MAX) || i64::from(exponent) > i64::from(super::INTEGER_DIGITS_MAX) {
            return None;
        }
        let mut mantissa = digits_to_big(&values);
        if scale < 0 {
            mantissa *= pow10_big(-scale as u32);
        }
        if negative {
            mantissa = -mantissa;
        }
        Numeric::from_big(mantissa, scale.max(0) as u16).ok()
    }
}
