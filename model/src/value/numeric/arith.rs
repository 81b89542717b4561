//! Exact arithmetic: add, subtract, multiply, divide, remainder, rounding, conversions to integers.
//!
//! Result scales are PostgreSQL's: the larger for sums, the sum for products, at least 16 significant digits for
//! quotients.

use num_bigint::{BigInt, Sign};

use super::{Class, Numeric, Parts, Repr, SCALE_MAX, pow10, pow10_big};
use crate::value::ValueError;

/// Significant digits a quotient, root or logarithm has at least.
pub(super) const SIGNIFICANT_DIGITS_MIN: i32 = 16;
/// Most fractional digits such a result shows.
pub(super) const DISPLAY_SCALE_MAX: i32 = 1_000;

impl Numeric {
    /// The sum.
    #[inline]
    pub fn add(&self, other: &Numeric) -> Result<Numeric, ValueError> {
        if let (Class::Small(a, a_scale), Class::Small(b, b_scale)) = (self.class(), other.class())
            && let Some(sum) = add_small(a, a_scale, b, b_scale)
        {
            return Ok(sum);
        }
        self.add_slow(other)
    }

    fn add_slow(&self, other: &Numeric) -> Result<Numeric, ValueError> {
        let (Some(a), Some(b)) = (self.parts(), other.parts()) else {
            return Ok(match (&self.0, &other.0) {
                (Repr::NaN, _) | (_, Repr::NaN) => Numeric::NAN,
                (Repr::Infinity, Repr::NegInfinity) | (Repr::NegInfinity, Repr::Infinity) => Numeric::NAN,
                (Repr::Infinity, _) | (_, Repr::Infinity) => Numeric::INFINITY,
                _ => Numeric::NEG_INFINITY,
            });
        };
        let (a, b, scale) = align(a, b);
        Numeric::from_big(a + b, scale)
    }

    /// The difference.
    #[inline]
    pub fn sub(&self, other: &Numeric) -> Result<Numeric, ValueError> {
        self.add(&other.neg())
    }

    /// The product.
    #[inline]
    pub fn mul(&self, other: &Numeric) -> Result<Numeric, ValueError> {
        if let (Class::Small(a, a_scale), Class::Small(b, b_scale)) = (self.class(), other.class())
            && a_scale + b_scale <= SCALE_MAX
            && let Some(product) = a.checked_mul(b)
        {
            return Ok(Numeric::from_i128(product, a_scale + b_scale));
        }
        self.mul_slow(other)
    }

    fn mul_slow(&self, other: &Numeric) -> Result<Numeric, ValueError> {
        let (Some(a), Some(b)) = (self.parts(), other.parts()) else {
            if self.is_nan() || other.is_nan() {
                return Ok(Numeric::NAN);
            }
            return Ok(infinity_of_sign(self.signum() * other.signum()));
        };
        let scale = u32::from(a.scale) + u32::from(b.scale);
        let product = a.mantissa * b.mantissa;
        if scale > u32::from(SCALE_MAX) {
            let excess = scale - u32::from(SCALE_MAX);
            return Numeric::from_big(div_round(product, &pow10_big(excess)), SCALE_MAX);
        }
        Numeric::from_big(product, scale as u16)
    }

    /// The quotient, rounded half away from zero at PostgreSQL's scale for it.
    pub fn div(&self, other: &Numeric) -> Result<Numeric, ValueError> {
        if !self.is_finite() || !other.is_finite() {
            return self.div_special(other);
        }
        if other.is_zero() {
            return Err(ValueError::division_by_zero());
        }
        let scale = div_scale(self, other);
        self.div_at(other, scale)
    }

    fn div_special(&self, other: &Numeric) -> Result<Numeric, ValueError> {
        if self.is_nan() || other.is_nan() {
            return Ok(Numeric::NAN);
        }
        if self.is_infinite() {
            return match (other.is_infinite(), other.signum()) {
                (true, _) => Ok(Numeric::NAN),
                (false, 0) => Err(ValueError::division_by_zero()),
                (false, sign) => Ok(infinity_of_sign(self.signum() * sign)),
            };
        }
        Ok(Numeric::ZERO)
    }

    /// The quotient of finite numbers, rounded half away from zero to `scale` digits. The divisor is not zero.
    pub(super) fn div_at(&self, other: &Numeric, scale: u16) -> Result<Numeric, ValueError> {
        if let (Class::Small(a, a_scale), Class::Small(b, b_scale)) = (self.class(), other.class()) {
            let shift = i32::from(scale) + i32::from(b_scale) - i32::from(a_scale);
            if shift >= 0
                && let Some(dividend) = pow10(shift as u16).and_then(|factor| a.checked_mul(factor))
                // The one quotient that does not fit is this number by -1.
                && dividend != i128::MIN
            {
                return Ok(Numeric::from_i128(div_round_small(dividend, b), scale));
            }
        }
        let (Some(a), Some(b)) = (self.parts(), other.parts()) else {
            return self.div_special(other);
        };
        let shift = i64::from(scale) + i64::from(b.scale) - i64::from(a.scale);
        let quotient = if shift >= 0 {
            div_round(a.mantissa * pow10_big(shift as u32), &b.mantissa)
        } else {
            div_round(a.mantissa, &(b.mantissa * pow10_big(-shift as u32)))
        };
        Numeric::from_big(quotient, scale)
    }

    /// The quotient cut to an integer: SQL's `div(a, b)`.
    pub fn div_trunc(&self, other: &Numeric) -> Result<Numeric, ValueError> {
        let (Some(a), Some(b)) = (self.parts(), other.parts()) else {
            return self.div_special(other);
        };
        if other.is_zero() {
            return Err(ValueError::division_by_zero());
        }
        let (a, b, _) = align(a, b);
        Numeric::from_big(a / b, 0)
    }

    /// The remainder with the dividend's sign: SQL's `%`.
    pub fn rem(&self, other: &Numeric) -> Result<Numeric, ValueError> {
        if let (Class::Small(a, a_scale), Class::Small(b, b_scale)) = (self.class(), other.class())
            && a_scale == b_scale
            && b != 0
        {
            return Ok(Numeric::from_i128(a.wrapping_rem(b), a_scale));
        }
        let (Some(a), Some(b)) = (self.parts(), other.parts()) else {
            if self.is_nan() || other.is_nan() {
                return Ok(Numeric::NAN);
            }
            if self.is_infinite() {
                return if other.is_zero() { Err(ValueError::division_by_zero()) } else { Ok(Numeric::NAN) };
            }
            return Ok(self.clone());
        };
        if other.is_zero() {
            return Err(ValueError::division_by_zero());
        }
        let (a, b, scale) = align(a, b);
        Numeric::from_big(a % b, scale)
    }

    /// The negated number.
    #[inline]
    pub fn neg(&self) -> Numeric {
        match self.class() {
            Class::Small(mantissa, scale) => match mantissa.checked_neg() {
                Some(mantissa) => Numeric::from_i128(mantissa, scale),
                None => Numeric::from_big(-BigInt::from(mantissa), scale).unwrap_or(Numeric::NAN),
            },
            // A negated number has as many digits as before, so it fits.
            Class::Big(mantissa, scale) => Numeric::from_big(-mantissa, scale).unwrap_or(Numeric::NAN),
            Class::NaN => Numeric::NAN,
            Class::Infinity => Numeric::NEG_INFINITY,
            Class::NegInfinity => Numeric::INFINITY,
        }
    }

    /// The number without its sign.
    pub fn abs(&self) -> Numeric {
        if self.signum() < 0 { self.neg() } else { self.clone() }
    }

    /// -1, 0 or 1 as a number; NaN stays NaN.
    pub fn sign(&self) -> Numeric {
        if self.is_nan() { Numeric::NAN } else { Numeric::from(self.signum()) }
    }

    /// Rounds half away from zero to `digits` after the point; negative digits round before it.
    pub fn round(&self, digits: i32) -> Numeric {
        self.rescale(digits, Rounding::HalfAway)
    }

    /// Cuts to `digits` after the point; negative digits cut before it.
    pub fn trunc(&self, digits: i32) -> Numeric {
        self.rescale(digits, Rounding::Down)
    }

    /// The smallest integer not below.
    pub fn ceil(&self) -> Numeric {
        let whole = self.trunc(0);
        if self.signum() > 0 && whole.cmp_sql(self).is_lt() { whole.step(1) } else { whole }
    }

    /// The largest integer not above.
    pub fn floor(&self) -> Numeric {
        let whole = self.trunc(0);
        if self.signum() < 0 && whole.cmp_sql(self).is_gt() { whole.step(-1) } else { whole }
    }

    fn step(&self, by: i64) -> Numeric {
        self.add(&Numeric::from(by)).unwrap_or_else(|_| self.clone())
    }

    fn rescale(&self, digits: i32, rounding: Rounding) -> Numeric {
        let digits = digits.clamp(-131_072, i32::from(SCALE_MAX));
        match self.class() {
            Class::Small(mantissa, scale) => {
                let shift = digits - i32::from(scale);
                if shift == 0 {
                    return self.clone();
                }
                if shift > 0
                    && let Some(grown) = pow10(shift as u16).and_then(|factor| mantissa.checked_mul(factor))
                {
                    return Numeric::from_i128(grown, digits as u16);
                }
                if shift < 0 && digits >= 0 {
                    let Some(power) = pow10(-shift as u16) else {
                        return Numeric::from_i128(0, digits as u16);
                    };
                    return Numeric::from_i128(rounding.divide_small(mantissa, power), digits as u16);
                }
            }
            Class::Big(..) => {}
            Class::NaN | Class::Infinity | Class::NegInfinity => return self.clone(),
        }
        self.rescale_slow(digits, rounding)
    }

    fn rescale_slow(&self, digits: i32, rounding: Rounding) -> Numeric {
        let Some(Parts { mantissa, scale }) = self.parts() else {
            return self.clone();
        };
        let shift = digits - i32::from(scale);
        let shown = digits.max(0) as u16;
        let scaled = if shift >= 0 {
            mantissa * pow10_big(shift as u32)
        } else {
            let cut = rounding.divide(mantissa, &pow10_big(shift.unsigned_abs()));
            if digits < 0 { cut * pow10_big(digits.unsigned_abs()) } else { cut }
        };
        Numeric::from_big(scaled, shown).unwrap_or_else(|_| self.clone())
    }

    /// The nearest `bigint`, half away from zero; `None` outside its range or when not finite.
    pub fn to_i64(&self) -> Option<i64> {
        self.to_i128().and_then(|whole| i64::try_from(whole).ok())
    }

    /// The nearest 128-bit integer; `None` outside its range or when not finite.
    pub fn to_i128(&self) -> Option<i128> {
        match self.round(0).class() {
            Class::Small(mantissa, _) => Some(mantissa),
            Class::Big(..) | Class::NaN | Class::Infinity | Class::NegInfinity => None,
        }
    }

    /// Whether the value has no fractional part; false when not finite.
    pub fn is_integer(&self) -> bool {
        self.is_finite() && self.trunc(0).cmp_sql(self).is_eq()
    }

    /// The greatest common divisor.
    pub fn gcd(&self, other: &Numeric) -> Result<Numeric, ValueError> {
        let (Some(a), Some(b)) = (self.parts(), other.parts()) else {
            return Ok(Numeric::NAN);
        };
        let (mut a, mut b, scale) = align(a, b);
        while b != BigInt::ZERO {
            (a, b) = (b.clone(), a % b);
        }
        Numeric::from_big(BigInt::from(a.magnitude().clone()), scale)
    }

    /// The least common multiple.
    pub fn lcm(&self, other: &Numeric) -> Result<Numeric, ValueError> {
        let (Some(a), Some(b)) = (self.parts(), other.parts()) else {
            return Ok(Numeric::NAN);
        };
        let scale = a.scale.max(b.scale);
        if self.is_zero() || other.is_zero() {
            return Ok(Numeric::from_i128(0, scale));
        }
        let gcd = self.gcd(other)?;
        Ok(self.div_trunc(&gcd)?.mul(other)?.abs().round(i32::from(scale)))
    }
}

#[derive(Clone, Copy)]
enum Rounding {
    HalfAway,
    Down,
}

impl Rounding {
    fn divide_small(self, mantissa: i128, power: i128) -> i128 {
        match self {
            Rounding::HalfAway => div_round_small(mantissa, power),
            Rounding::Down => mantissa / power,
        }
    }

    fn divide(self, mantissa: BigInt, power: &BigInt) -> BigInt {
        match self {
            Rounding::HalfAway => div_round(mantissa, power),
            Rounding::Down => mantissa / power,
        }
    }
}

#[inline]
fn add_small(a: i128, a_scale: u16, b: i128, b_scale: u16) -> Option<Numeric> {
    if a_scale == b_scale {
        return Some(Numeric::from_i128(a.checked_add(b)?, a_scale));
    }
    if a_scale < b_scale {
        let a = a.checked_mul(pow10(b_scale - a_scale)?)?;
        return Some(Numeric::from_i128(a.checked_add(b)?, b_scale));
    }
    let b = b.checked_mul(pow10(a_scale - b_scale)?)?;
    Some(Numeric::from_i128(a.checked_add(b)?, a_scale))
}

fn align(a: Parts, b: Parts) -> (BigInt, BigInt, u16) {
    let scale = a.scale.max(b.scale);
    let grow = |parts: Parts| {
        if parts.scale == scale {
            parts.mantissa
        } else {
            parts.mantissa * pow10_big(u32::from(scale - parts.scale))
        }
    };
    (grow(a), grow(b), scale)
}

pub(super) fn infinity_of_sign(sign: i32) -> Numeric {
    match sign {
        0 => Numeric::NAN,
        1.. => Numeric::INFINITY,
        _ => Numeric::NEG_INFINITY,
    }
}

fn div_round_small(dividend: i128, divisor: i128) -> i128 {
    let quotient = dividend.wrapping_div(divisor);
    let rest = dividend.wrapping_rem(divisor);
    // |rest| < |divisor|, so comparing with the gap to the divisor cannot overflow.
    if rest.unsigned_abs() >= divisor.unsigned_abs() - rest.unsigned_abs() {
        quotient + if (dividend < 0) == (divisor < 0) { 1 } else { -1 }
    } else {
        quotient
    }
}

/// Divides and rounds half away from zero.
pub(super) fn div_round(dividend: BigInt, divisor: &BigInt) -> BigInt {
    let quotient = &dividend / divisor;
    let rest = &dividend - &quotient * divisor;
    let twice = rest.magnitude() << 1u8;
    if twice >= *divisor.magnitude() {
        let same_sign = (dividend.sign() == Sign::Minus) == (divisor.sign() == Sign::Minus);
        quotient + if same_sign { 1 } else { -1 }
    } else {
        quotient
    }
}

/// PostgreSQL reckons in digits of base 10,000; the scale of a quotient depends on the position and value of the
/// first such digit of each operand.
fn div_scale(a: &Numeric, b: &Numeric) -> u16 {
    let (a_weight, a_first) = a.first_group();
    let (b_weight, b_first) = b.first_group();
    let mut weight = a_weight - b_weight;
    if a_first <= b_first {
        weight -= 1;
    }
    let shown = i32::from(a.scale().unwrap_or(0).max(b.scale().unwrap_or(0)));
    (SIGNIFICANT_DIGITS_MIN - weight * 4).max(shown).clamp(0, DISPLAY_SCALE_MAX) as u16
}

impl Numeric {
    /// Position (0 = units) and value of the first non-zero digit in base 10,000; (0, 0) for zero.
    pub(super) fn first_group(&self) -> (i32, u32) {
        self.leading_groups(1)
    }

    /// Position of the first non-zero base-10,000 digit, and the value of the first `count` ≤ 2 of them.
    pub(super) fn leading_groups(&self, count: i32) -> (i32, u32) {
        let Some(exponent) = self.leading_exponent() else {
            return (0, 0);
        };
        let weight = (exponent - 1).div_euclid(4);
        let last = 4 * (weight - count + 1);
        // The wanted digits are floor(|m| * 10^-(scale + last)).
        let shift = i32::from(self.scale().unwrap_or(0)) + last;
        let value = match self.class() {
            Class::Small(mantissa, _) => {
                let mantissa = mantissa.unsigned_abs();
                match shift {
                    0.. => POWERS.get(shift as usize).map_or(0, |power| mantissa / power),
                    _ => mantissa * POWERS[shift.unsigned_abs() as usize],
                }
            }
            Class::Big(mantissa, _) => {
                let magnitude = BigInt::from(mantissa.magnitude().clone());
                let cut = if shift >= 0 {
                    magnitude / pow10_big(shift as u32)
                } else {
                    magnitude * pow10_big(shift.unsigned_abs())
                };
                u128::try_from(&cut).unwrap_or(0)
            }
            Class::NaN | Class::Infinity | Class::NegInfinity => 0,
        };
        (weight, value as u32)
    }
}

const POWERS: [u128; 39] = {
    let mut table = [1u128; 39];
    let mut index = 1;
    while index < table.len() {
        table[index] = table[index - 1] * 10;
        index += 1;
    }
    table
};
