//! Exact decimals of any precision: PostgreSQL's `numeric`.
//!
//! A finite number is `mantissa / 10^scale`; the scale is also what is displayed, so `1.0` and `1.00` are two
//! representations of one value. Mantissas that fit 128 bits are kept inline and take the fast paths; larger ones
//! are shared big integers.
//!
//! Invariants:
//! - A mantissa that fits `i128` is always `Small`; so representation equality needs no conversion.
//! - `cmp`/`hash` see values (1.0 = 1.00, NaN = NaN and greatest); `==` sees representations.
//! - Scale ≤ 16383, at most 131072 digits before the point; above is `22003`.
//!
//! Not here: operators and casts as SQL sees them (`sql`).

mod arith;
mod bytes;
mod math;
mod sum;
mod text;

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use num_bigint::{BigInt, Sign};

pub use sum::NumericSum;

use crate::types::Typmod;
use crate::value::{ValueError, ValueErrorKind};

/// Largest display scale a stored number may have.
pub const SCALE_MAX: u16 = 16_383;
/// Most digits before the decimal point.
pub const INTEGER_DIGITS_MAX: u32 = 131_072;

/// An exact decimal, NaN or an infinity. 24 bytes, cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numeric(Repr);

/// The words of an inline mantissa are kept apart so that the whole stays aligned to 8.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Repr {
    Small { high: i64, low: u64, scale: u16 },
    Big(Arc<Big>),
    NaN,
    Infinity,
    NegInfinity,
}

#[derive(Debug, PartialEq, Eq)]
struct Big {
    mantissa: BigInt,
    scale: u16,
}

/// What a number is, with its digits at hand.
enum Class<'a> {
    Small(i128, u16),
    Big(&'a BigInt, u16),
    NaN,
    Infinity,
    NegInfinity,
}

/// A finite number with its digits as a big integer.
struct Parts {
    mantissa: BigInt,
    scale: u16,
}

impl Numeric {
    /// Zero without fractional digits.
    pub const ZERO: Numeric = Numeric::from_i128(0, 0);
    /// One without fractional digits.
    pub const ONE: Numeric = Numeric::from_i128(1, 0);
    /// Not a number; equal to itself and greater than all others.
    pub const NAN: Numeric = Numeric(Repr::NaN);
    /// Greater than every finite number.
    pub const INFINITY: Numeric = Numeric(Repr::Infinity);
    /// Less than every finite number.
    pub const NEG_INFINITY: Numeric = Numeric(Repr::NegInfinity);

    const fn from_i128(mantissa: i128, scale: u16) -> Self {
        Numeric(Repr::Small { high: (mantissa >> 64) as i64, low: mantissa as u64, scale })
    }

    /// `mantissa / 10^scale`; `None` when the scale is above `SCALE_MAX`.
    pub const fn from_parts(mantissa: i128, scale: u16) -> Option<Self> {
        if scale > SCALE_MAX { None } else { Some(Numeric::from_i128(mantissa, scale)) }
    }

    /// Digits and scale when the number is finite and its mantissa fits 128 bits.
    pub fn to_parts(&self) -> Option<(i128, u16)> {
        match self.class() {
            Class::Small(mantissa, scale) => Some((mantissa, scale)),
            Class::Big(..) | Class::NaN | Class::Infinity | Class::NegInfinity => None,
        }
    }

    fn from_big(mantissa: BigInt, scale: u16) -> Result<Self, ValueError> {
        if let Ok(small) = i128::try_from(&mantissa) {
            return Ok(Numeric::from_i128(small, scale));
        }
        // 435,000 bits are 130,948 digits: only beyond them can the limit be broken.
        if mantissa.bits() > 435_000
            && digits_of(&mantissa) > u64::from(INTEGER_DIGITS_MAX) + u64::from(scale)
        {
            return Err(ValueError::numeric_overflow());
        }
        Ok(Numeric(Repr::Big(Arc::new(Big { mantissa, scale }))))
    }

    #[inline]
    fn class(&self) -> Class<'_> {
        match &self.0 {
            Repr::Small { high, low, scale } => {
                Class::Small((i128::from(*high) << 64) | i128::from(*low), *scale)
            }
            Repr::Big(big) => Class::Big(&big.mantissa, big.scale),
            Repr::NaN => Class::NaN,
            Repr::Infinity => Class::Infinity,
            Repr::NegInfinity => Class::NegInfinity,
        }
    }

    fn parts(&self) -> Option<Parts> {
        match self.class() {
            Class::Small(mantissa, scale) => Some(Parts { mantissa: BigInt::from(mantissa), scale }),
            Class::Big(mantissa, scale) => Some(Parts { mantissa: mantissa.clone(), scale }),
            Class::NaN | Class::Infinity | Class::NegInfinity => None,
        }
    }

    /// Whether this is NaN.
    pub fn is_nan(&self) -> bool {
        matches!(self.0, Repr::NaN)
    }

    /// Whether this is an infinity of either sign.
    pub fn is_infinite(&self) -> bool {
        matches!(self.0, Repr::Infinity | Repr::NegInfinity)
    }

    /// Whether this is neither NaN nor an infinity.
    pub fn is_finite(&self) -> bool {
        matches!(self.0, Repr::Small { .. } | Repr::Big(_))
    }

    /// Whether this is zero.
    pub fn is_zero(&self) -> bool {
        matches!(self.0, Repr::Small { high: 0, low: 0, .. })
    }

    /// -1, 0 or 1; NaN counts as 1 because it sorts above all.
    pub fn signum(&self) -> i32 {
        match self.class() {
            Class::Small(mantissa, _) => mantissa.signum() as i32,
            Class::Big(mantissa, _) => {
                if mantissa.sign() == Sign::Minus {
                    -1
                } else {
                    1
                }
            }
            Class::NaN | Class::Infinity => 1,
            Class::NegInfinity => -1,
        }
    }

    /// Displayed fractional digits; `None` for NaN and infinities.
    pub fn scale(&self) -> Option<u16> {
        match self.class() {
            Class::Small(_, scale) | Class::Big(_, scale) => Some(scale),
            Class::NaN | Class::Infinity | Class::NegInfinity => None,
        }
    }

    /// Fewest fractional digits that still hold the value; `None` for NaN and infinities.
    pub fn min_scale(&self) -> Option<u16> {
        self.trim_scale().scale()
    }

    /// The same value without trailing fractional zeros.
    pub fn trim_scale(&self) -> Numeric {
        match self.class() {
            Class::Small(mantissa, scale) => {
                let (mantissa, scale) = strip_small(mantissa, scale);
                Numeric::from_i128(mantissa, scale)
            }
            Class::Big(mantissa, scale) => {
                let (mantissa, scale) = strip_big(mantissa.clone(), scale);
                Numeric::from_big(mantissa, scale).unwrap_or_else(|_| self.clone())
            }
            Class::NaN | Class::Infinity | Class::NegInfinity => self.clone(),
        }
    }

    /// Rounds to the column's scale and refuses what its precision cannot hold.
    pub fn with_typmod(&self, typmod: Typmod) -> Result<Numeric, ValueError> {
        let Some((precision, scale)) = typmod.numeric() else {
            return Ok(self.clone());
        };
        let overflow = |detail: String| {
            ValueError::new(ValueErrorKind::OutOfRange, "numeric field overflow").with_detail(detail)
        };
        if self.is_nan() {
            return Ok(self.clone());
        }
        if self.is_infinite() {
            return Err(overflow(format!(
                "A field with precision {precision}, scale {scale} cannot hold an infinite value."
            )));
        }
        let rounded = self.round(i32::from(scale));
        let integer_digits_max = i32::from(precision) - i32::from(scale);
        if rounded.leading_exponent().is_some_and(|exponent| exponent > integer_digits_max) {
            let (base, power) = if integer_digits_max == 0 {
                ("1", String::new())
            } else {
                ("10^", integer_digits_max.to_string())
            };
            return Err(overflow(format!(
                "A field with precision {precision}, scale {scale} must round to an absolute value less than {base}{power}."
            )));
        }
        Ok(rounded)
    }

    /// The e with 10^(e-1) ≤ |self| < 10^e; `None` for zero and what is not finite.
    fn leading_exponent(&self) -> Option<i32> {
        match self.class() {
            Class::Small(0, _) => None,
            Class::Small(mantissa, scale) => {
                Some(small_digits(mantissa.unsigned_abs()) as i32 - i32::from(scale))
            }
            Class::Big(mantissa, scale) => Some(digits_of(mantissa) as i32 - i32::from(scale)),
            Class::NaN | Class::Infinity | Class::NegInfinity => None,
        }
    }

    /// Compares as SQL does: by value, NaN equal to itself and above infinity.
    #[inline]
    pub fn cmp_sql(&self, other: &Numeric) -> Ordering {
        match (self.class(), other.class()) {
            (Class::Small(a, a_scale), Class::Small(b, b_scale)) => {
                if a_scale == b_scale {
                    a.cmp(&b)
                } else {
                    cmp_small(a, a_scale, b, b_scale)
                }
            }
            _ => self.cmp_slow(other),
        }
    }

    fn cmp_slow(&self, other: &Numeric) -> Ordering {
        let rank = |number: &Numeric| match number.0 {
            Repr::NegInfinity => 0,
            Repr::Small { .. } | Repr::Big(_) => 1,
            Repr::Infinity => 2,
            Repr::NaN => 3,
        };
        match (self.parts(), other.parts()) {
            (Some(a), Some(b)) => {
                let scale = a.scale.max(b.scale);
                let a = a.mantissa * pow10_big(u32::from(scale - a.scale));
                let b = b.mantissa * pow10_big(u32::from(scale - b.scale));
                a.cmp(&b)
            }
            _ => rank(self).cmp(&rank(other)),
        }
    }

    /// Hashes so that values equal under `cmp_sql` hash alike.
    pub fn hash_sql<H: Hasher>(&self, state: &mut H) {
        match self.class() {
            Class::Small(mantissa, scale) => {
                let (mantissa, scale) = strip_small(mantissa, scale);
                mantissa.hash(state);
                scale.hash(state);
            }
            Class::Big(mantissa, scale) => {
                let (mantissa, scale) = strip_big(mantissa.clone(), scale);
                match i128::try_from(&mantissa) {
                    Ok(small) => small.hash(state),
                    Err(_) => mantissa.hash(state),
                }
                scale.hash(state);
            }
            Class::NaN => 1u8.hash(state),
            Class::Infinity => 2u8.hash(state),
            Class::NegInfinity => 3u8.hash(state),
        }
    }
}

impl From<i64> for Numeric {
    fn from(value: i64) -> Self {
        Numeric::from_i128(i128::from(value), 0)
    }
}

impl From<i32> for Numeric {
    fn from(value: i32) -> Self {
        Numeric::from_i128(i128::from(value), 0)
    }
}

impl From<i128> for Numeric {
    fn from(value: i128) -> Self {
        Numeric::from_i128(value, 0)
    }
}

fn cmp_small(a: i128, a_scale: u16, b: i128, b_scale: u16) -> Ordering {
    if a.signum() != b.signum() {
        return a.cmp(&b);
    }
    let gap = a_scale.abs_diff(b_scale);
    if a_scale < b_scale {
        match pow10(gap).and_then(|factor| a.checked_mul(factor)) {
            Some(a) => a.cmp(&b),
            // |a| scaled up is beyond i128, so it is beyond |b|.
            None => {
                if a >= 0 {
                    if a == 0 { 0.cmp(&b) } else { Ordering::Greater }
                } else {
                    Ordering::Less
                }
            }
        }
    } else {
        cmp_small(b, b_scale, a, a_scale).reverse()
    }
}

const POW10: [i128; 39] = {
    let mut table = [1i128; 39];
    let mut index = 1;
    while index < table.len() {
        table[index] = table[index - 1] * 10;
        index += 1;
    }
    table
};

#[inline]
fn pow10(exponent: u16) -> Option<i128> {
    POW10.get(usize::from(exponent)).copied()
}

fn pow10_big(exponent: u32) -> BigInt {
    match POW10.get(exponent as usize) {
        Some(small) => BigInt::from(*small),
        None => BigInt::from(10u8).pow(exponent),
    }
}

/// Decimal digits of a positive number.
fn small_digits(value: u128) -> u32 {
    value.checked_ilog10().map_or(1, |log| log + 1)
}

/// Decimal digits of a big integer, without the sign; 1 for zero.
fn digits_of(value: &BigInt) -> u64 {
    if let Ok(small) = u128::try_from(value.magnitude()) {
        return u64::from(small_digits(small));
    }
    // Bits give the count to within one; one comparison decides.
    let estimate = ((value.bits() - 1) as f64 * std::f64::consts::LOG10_2) as u64;
    let mut digits = estimate.max(1);
    while *value.magnitude() >= *pow10_big(digits as u32).magnitude() {
        digits += 1;
    }
    digits
}

fn strip_small(mut mantissa: i128, mut scale: u16) -> (i128, u16) {
    if mantissa == 0 {
        return (0, 0);
    }
    // 64-bit divisions are several times faster, and most mantissas are that short.
    if let Ok(mut short) = i64::try_from(mantissa) {
        while scale > 0 && short % 10 == 0 {
            short /= 10;
            scale -= 1;
        }
        return (i128::from(short), scale);
    }
    while scale > 0 && mantissa % 10 == 0 {
        mantissa /= 10;
        scale -= 1;
    }
    (mantissa, scale)
}

fn strip_big(mut mantissa: BigInt, mut scale: u16) -> (BigInt, u16) {
    let mut step = scale;
    while step > 0 {
        let power = pow10_big(u32::from(step));
        while scale >= step && &mantissa % &power == BigInt::ZERO {
            mantissa /= &power;
            scale -= step;
        }
        step /= 2;
    }
    (mantissa, scale)
}

#[cfg(test)]
mod tests;
