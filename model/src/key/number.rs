//! Numbers in keys: integers by length, floats by flipped bits, numerics by decimal exponent and digit pairs.

use super::{FLOAT, INTEGER, NUMERIC};
use crate::value::Numeric;

pub(super) const NEG_INFINITY: u8 = 0x01;
pub(super) const NEGATIVE: u8 = 0x02;
pub(super) const ZERO: u8 = 0x03;
pub(super) const POSITIVE: u8 = 0x04;
pub(super) const INFINITY: u8 = 0x05;
pub(super) const NAN: u8 = 0x06;

/// `INTEGER ± n`, then n bytes of the number, big-endian; negative ones count up from their least n-byte value.
pub(super) fn write_integer(out: &mut Vec<u8>, value: i64) {
    let magnitude = value.unsigned_abs();
    let length = (8 - magnitude.leading_zeros() / 8) as usize;
    if value >= 0 {
        out.push(INTEGER + length as u8);
        out.extend_from_slice(&magnitude.to_be_bytes()[8 - length..]);
    } else {
        out.push(INTEGER - length as u8);
        out.extend_from_slice(&(!magnitude).to_be_bytes()[8 - length..]);
    }
}

/// The number behind `INTEGER ± n` and its bytes; `None` when it is longer than needed or beyond 64 bits.
pub(super) fn read_integer(tag: u8, bytes: &[u8]) -> Option<i64> {
    let negative = tag < INTEGER;
    let mut wide = if negative { [0xff; 8] } else { [0; 8] };
    wide[8 - bytes.len()..].copy_from_slice(bytes);
    let magnitude = u64::from_be_bytes(wide);
    let magnitude = if negative { !magnitude } else { magnitude };
    if (8 - magnitude.leading_zeros() / 8) as usize != bytes.len() {
        return None;
    }
    if negative { 0i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() }
}

/// The bits of the double with the sign flipped, or all flipped when negative: a total order.
pub(super) fn write_float(out: &mut Vec<u8>, value: f64) {
    out.push(FLOAT);
    let bits = if value.is_nan() {
        u64::MAX
    } else {
        let bits = (value + 0.0).to_bits();
        if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
    };
    out.extend_from_slice(&bits.to_be_bytes());
}

pub(super) fn read_float(bytes: [u8; 8]) -> Option<f64> {
    let bits = u64::from_be_bytes(bytes);
    if bits == u64::MAX {
        return Some(f64::NAN);
    }
    let value = f64::from_bits(if bits >> 63 == 1 { bits & !(1 << 63) } else { !bits });
    let canonical = !value.is_nan() && value.to_bits() != (-0.0f64).to_bits();
    canonical.then_some(value)
}

/// Class, then for finite numbers 0.d₁d₂… × 10^e: the exponent as three bytes, digit pairs plus one, a zero byte;
/// all of it inverted when negative.
pub(super) fn write_numeric(out: &mut Vec<u8>, value: &Numeric) {
    out.push(NUMERIC);
    if value.is_nan() {
        return out.push(NAN);
    }
    if value.is_infinite() {
        return out.push(if value.signum() > 0 { INFINITY } else { NEG_INFINITY });
    }
    if value.is_zero() {
        return out.push(ZERO);
    }
    let negative = value.signum() < 0;
    out.push(if negative { NEGATIVE } else { POSITIVE });
    let start = out.len();
    let (digits, exponent) = value.decimal_digits();
    let sortable = (exponent + (1 << 23)) as u32;
    out.extend_from_slice(&sortable.to_be_bytes()[1..]);
    for pair in digits.chunks(2) {
        let low = pair.get(1).map_or(0, |digit| digit - b'0');
        out.push((pair[0] - b'0') * 10 + low + 1);
    }
    out.push(0);
    if negative {
        out[start..].iter_mut().for_each(|byte| *byte = !*byte);
    }
}

/// Reads what follows a finite class byte: the number and the bytes taken.
pub(super) fn read_finite(bytes: &[u8], negative: bool) -> Option<(Numeric, usize)> {
    let flip = if negative { 0xff } else { 0 };
    let (head, pairs) = bytes.split_first_chunk::<3>()?;
    let [a, b, c] = head.map(|byte| byte ^ flip);
    let exponent = i32::from_be_bytes([0, a, b, c]) - (1 << 23);
    let count = pairs.iter().position(|byte| byte ^ flip == 0)?;
    let mut digits = Vec::with_capacity(count * 2);
    for byte in &pairs[..count] {
        let pair = (byte ^ flip) - 1;
        if pair > 99 {
            return None;
        }
        digits.extend([b'0' + pair / 10, b'0' + pair % 10]);
    }
    let canonical = digits.first()? != &b'0' && pairs[count - 1] ^ flip != 1;
    let number = Numeric::from_decimal_digits(&digits, exponent, negative)?;
    canonical.then_some((number, 3 + count + 1))
}
