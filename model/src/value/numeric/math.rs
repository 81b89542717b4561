//! Roots, exponentials, logarithms and powers, at PostgreSQL's result scales.
//!
//! Reckoned in fixed point over big integers with guard digits; results are rounded half away from zero. The work is
//! bounded by the result scale (at most 1,000 digits) and the 2,000-digit limit on magnitudes.

use std::f64::consts::{LN_10, LOG10_E};

use num_bigint::{BigInt, Sign};

use super::arith::{DISPLAY_SCALE_MAX, SIGNIFICANT_DIGITS_MIN, div_round};
use super::{Numeric, pow10_big};
use crate::value::{ValueError, ValueErrorKind};

/// Decimal exponent beyond which a result over- or underflows.
const RESULT_SCALE_MAX: f64 = 2_000.0;
/// Bits per decimal digit, rounded up.
const BITS_PER_DIGIT: f64 = 3.33;

fn clamp_scale(scale: i32, shown: &[i32]) -> u16 {
    shown.iter().copied().fold(scale, i32::max).clamp(0, DISPLAY_SCALE_MAX) as u16
}

fn shown_scale(number: &Numeric) -> i32 {
    i32::from(number.scale().unwrap_or(0))
}

fn logarithm_error(message: &'static str) -> ValueError {
    ValueError::new(ValueErrorKind::InvalidLogarithm, message)
}

fn power_error(message: &'static str) -> ValueError {
    ValueError::new(ValueErrorKind::InvalidPower, message)
}

impl Numeric {
    /// The square root.
    pub fn sqrt(&self) -> Result<Numeric, ValueError> {
        if self.is_nan() || (self.is_infinite() && self.signum() > 0) {
            return Ok(self.clone());
        }
        if self.signum() < 0 {
            return Err(power_error("cannot take square root of a negative number"));
        }
        let (weight, _) = self.first_group();
        let result_weight = (weight + 1) * 2 - 1;
        let scale = clamp_scale(SIGNIFICANT_DIGITS_MIN - result_weight, &[shown_scale(self)]);
        let Some(parts) = self.parts() else { return Ok(Numeric::NAN) };
        // Two digits more than shown, so that one rounding decides.
        let wanted = u32::from(scale) * 2 + 4;
        let shift = i64::from(wanted) - i64::from(parts.scale);
        let scaled = if shift >= 0 {
            parts.mantissa * pow10_big(shift as u32)
        } else {
            parts.mantissa / pow10_big(-shift as u32)
        };
        let root = BigInt::from(scaled.magnitude().sqrt());
        Numeric::from_big(div_round(root, &BigInt::from(100)), scale)
    }

    /// e to this power.
    pub fn exp(&self) -> Result<Numeric, ValueError> {
        if !self.is_finite() {
            let vanishes = self.is_infinite() && self.signum() < 0;
            return Ok(if vanishes { Numeric::ZERO } else { self.clone() });
        }
        let weight = (self.to_f64() * LOG10_E).clamp(-RESULT_SCALE_MAX, RESULT_SCALE_MAX);
        let scale = clamp_scale(SIGNIFICANT_DIGITS_MIN - weight as i32, &[shown_scale(self)]);
        self.exp_at(scale)
    }

    fn exp_at(&self, scale: u16) -> Result<Numeric, ValueError> {
        let value = self.to_f64();
        if value.abs() >= RESULT_SCALE_MAX * 3.0 {
            return if value > 0.0 {
                Err(ValueError::numeric_overflow())
            } else {
                Ok(Numeric::from_i128(0, scale))
            };
        }
        let bits = bits_for(i32::from(scale), value * LOG10_E);
        let x = self.to_fixed(bits);
        from_fixed(&exp_fixed(&x, bits), bits, scale)
    }

    /// The natural logarithm.
    pub fn ln(&self) -> Result<Numeric, ValueError> {
        self.check_logarithm()?;
        if !self.is_finite() {
            return Ok(self.clone());
        }
        let scale = clamp_scale(SIGNIFICANT_DIGITS_MIN - self.ln_weight(), &[shown_scale(self)]);
        self.ln_at(scale)
    }

    fn ln_at(&self, scale: u16) -> Result<Numeric, ValueError> {
        let bits = bits_for(i32::from(scale), 8.0);
        from_fixed(&self.ln_fixed(bits), bits, scale)
    }

    /// The logarithm to base 10.
    pub fn log10(&self) -> Result<Numeric, ValueError> {
        self.log(&Numeric::from(10))
    }

    /// The logarithm to a base.
    pub fn log(&self, base: &Numeric) -> Result<Numeric, ValueError> {
        if self.is_nan() || base.is_nan() {
            return Ok(Numeric::NAN);
        }
        base.check_logarithm()?;
        self.check_logarithm()?;
        match (base.is_infinite(), self.is_infinite()) {
            (true, true) => return Ok(Numeric::NAN),
            (true, false) => return Ok(Numeric::ZERO),
            (false, true) => return Ok(Numeric::INFINITY),
            (false, false) => {}
        }
        let (base_weight, weight) = (base.ln_weight(), self.ln_weight());
        let scale = clamp_scale(
            SIGNIFICANT_DIGITS_MIN - (weight - base_weight),
            &[shown_scale(base), shown_scale(self)],
        );
        // The quotient loses what the smaller logarithm lacks in digits.
        let bits = bits_for(i32::from(scale) + 2 * base_weight.abs() + weight.abs(), 16.0);
        let divisor = base.ln_fixed(bits);
        if divisor == BigInt::ZERO {
            return Err(ValueError::division_by_zero());
        }
        from_fixed(&((self.ln_fixed(bits) << bits) / divisor), bits, scale)
    }

    fn check_logarithm(&self) -> Result<(), ValueError> {
        if self.is_nan() {
            return Ok(());
        }
        match self.signum() {
            0 => Err(logarithm_error("cannot take logarithm of zero")),
            1.. => Ok(()),
            _ => Err(logarithm_error("cannot take logarithm of a negative number")),
        }
    }

    /// Roughly the decimal exponent of the natural logarithm, as PostgreSQL estimates it.
    fn ln_weight(&self) -> i32 {
        let near_one = self.cmp_sql(&Numeric::from_i128(9, 1)).is_ge()
            && self.cmp_sql(&Numeric::from_i128(11, 1)).is_le();
        if near_one {
            let Ok(distance) = self.sub(&Numeric::ONE) else { return 0 };
            if distance.is_zero() {
                return 0;
            }
            let (weight, first) = distance.first_group();
            return weight * 4 + f64::from(first).log10() as i32;
        }
        let (weight, digits) = self.leading_groups(2);
        if digits == 0 {
            return 0;
        }
        let ln = f64::from(digits).ln() + f64::from((weight - 1) * 4) * LN_10;
        ln.abs().log10() as i32
    }

    /// This number to a power.
    pub fn power(&self, exponent: &Numeric) -> Result<Numeric, ValueError> {
        if !self.is_finite() || !exponent.is_finite() {
            return self.power_special(exponent);
        }
        if self.is_zero() && exponent.signum() < 0 {
            return Err(power_error("zero raised to a negative power is undefined"));
        }
        let whole = exponent.is_integer();
        if self.signum() < 0 && !whole {
            return Err(power_error(
                "a negative number raised to a non-integer power yields a complex result",
            ));
        }
        if whole && let Some(small) = exponent.to_i64().and_then(|whole| i32::try_from(whole).ok()) {
            return self.power_int(small, shown_scale(exponent));
        }
        if self.is_zero() {
            return Ok(Numeric::from_i128(0, SIGNIFICANT_DIGITS_MIN as u16));
        }
        let odd = whole && !exponent.rem(&Numeric::from(2))?.is_zero();
        let result = self.abs().power_real(exponent)?;
        Ok(if self.signum() < 0 && odd { result.neg() } else { result })
    }

    fn power_special(&self, exponent: &Numeric) -> Result<Numeric, ValueError> {
        // NaN^0 and 1^NaN are 1, as POSIX says.
        if self.is_nan() {
            return Ok(if exponent.is_zero() { Numeric::ONE } else { Numeric::NAN });
        }
        let is_one = self.cmp_sql(&Numeric::ONE).is_eq();
        if exponent.is_nan() {
            return Ok(if is_one { Numeric::ONE } else { Numeric::NAN });
        }
        if self.is_zero() && exponent.signum() < 0 {
            return Err(power_error("zero raised to a negative power is undefined"));
        }
        if self.signum() < 0 && self.is_finite() && !exponent.is_finite() {
            // An infinite exponent counts as an even integer.
            return self.abs().power_special(exponent);
        }
        if is_one || exponent.is_zero() {
            return Ok(Numeric::ONE);
        }
        if self.is_zero() {
            return Ok(Numeric::ZERO);
        }
        if exponent.is_infinite() {
            let grows = self.abs().cmp_sql(&Numeric::ONE).is_gt() == (exponent.signum() > 0);
            let is_one = self.abs().cmp_sql(&Numeric::ONE).is_eq();
            return Ok(match (is_one, grows) {
                (true, _) => Numeric::ONE,
                (false, true) => Numeric::INFINITY,
                (false, false) => Numeric::ZERO,
            });
        }
        if self.signum() < 0 && !exponent.is_integer() {
            return Err(power_error(
                "a negative number raised to a non-integer power yields a complex result",
            ));
        }
        if exponent.signum() < 0 {
            return Ok(Numeric::ZERO);
        }
        let odd = exponent.is_integer() && !exponent.rem(&Numeric::from(2))?.is_zero();
        Ok(if self.signum() < 0 && odd { Numeric::NEG_INFINITY } else { Numeric::INFINITY })
    }

    fn power_int(&self, exponent: i32, exponent_scale: i32) -> Result<Numeric, ValueError> {
        // log10 of the result, from the leading digits.
        let weight = if self.is_zero() {
            0.0
        } else {
            let (group, digits) = self.abs().leading_double();
            f64::from(exponent) * (digits.log10() + f64::from(group))
        };
        if weight > 4.0 * 32_768.0 {
            return Err(ValueError::numeric_overflow());
        }
        // Whole exponents show 16 fractional digits whatever the result's size.
        let scale = clamp_scale(SIGNIFICANT_DIGITS_MIN, &[shown_scale(self), exponent_scale]);
        if weight + 1.0 < -f64::from(scale) {
            return Ok(Numeric::from_i128(0, scale));
        }
        match exponent {
            0 => return Ok(Numeric::ONE.round(i32::from(scale))),
            1 => return Ok(self.round(i32::from(scale))),
            -1 => return Numeric::ONE.div_at(self, scale),
            _ if self.is_zero() => return Ok(Numeric::from_i128(0, scale)),
            _ => {}
        }
        // Floating decimals of as many digits as the result shows, and guards for the roundings in between.
        let digits =
            (weight.max(0.0) as u64) + u64::from(scale) + 16 + u64::from(exponent.unsigned_abs().ilog2());
        let Some(parts) = self.parts() else { return Ok(Numeric::NAN) };
        let mut square = Floating { mantissa: parts.mantissa, exponent: -i64::from(parts.scale) };
        let mut product = Floating { mantissa: BigInt::from(1), exponent: 0 };
        let mut rest = exponent.unsigned_abs();
        while rest > 0 {
            if rest & 1 == 1 {
                product = product.mul(&square, digits);
            }
            rest >>= 1;
            if rest > 0 {
                square = square.mul(&square.clone(), digits);
            }
        }
        if exponent < 0 { product.reciprocal(scale) } else { product.finish(scale) }
    }

    fn power_real(&self, exponent: &Numeric) -> Result<Numeric, ValueError> {
        // A first look at the size of the result, from eight digits of its logarithm.
        let rough_scale = (8 - self.ln_weight()).clamp(0, DISPLAY_SCALE_MAX) as u16;
        let rough = self.ln_at(rough_scale)?.to_f64() * exponent.to_f64();
        if rough.abs() > RESULT_SCALE_MAX * 3.01 {
            if rough > 0.0 {
                return Err(ValueError::numeric_overflow());
            }
            return Ok(Numeric::from_i128(0, DISPLAY_SCALE_MAX as u16));
        }
        let weight = rough * LOG10_E;
        let scale =
            clamp_scale(SIGNIFICANT_DIGITS_MIN - weight as i32, &[shown_scale(self), shown_scale(exponent)]);
        let exponent_digits = exponent.leading_exponent().unwrap_or(0).max(0);
        let bits = bits_for(i32::from(scale) + exponent_digits, weight.abs() + 8.0);
        let product = (self.ln_fixed(bits) * exponent.to_fixed(bits)) >> bits;
        from_fixed(&exp_fixed(&product, bits), bits, scale)
    }

    /// Decimal exponent and value of up to 16 leading digits, in groups of four.
    fn leading_double(&self) -> (i32, f64) {
        let (weight, _) = self.first_group();
        let (digits, exponent) = self.decimal_digits();
        let taken = digits.len().min(17);
        let value = digits[..taken].iter().fold(0.0, |sum, digit| sum * 10.0 + f64::from(digit - b'0'));
        // Shifted to where whole groups put it; the exact split does not matter to a logarithm.
        let power = exponent - taken as i32;
        (weight * 4, value * 10f64.powi(power - weight * 4))
    }

    /// The number in fixed point with `bits` fractional bits.
    fn to_fixed(&self, bits: u32) -> BigInt {
        self.parts()
            .map_or(BigInt::ZERO, |parts| (parts.mantissa << bits) / pow10_big(u32::from(parts.scale)))
    }

    /// The natural logarithm in fixed point; this number is positive.
    fn ln_fixed(&self, bits: u32) -> BigInt {
        let Some(parts) = self.parts() else { return BigInt::ZERO };
        let divisor = pow10_big(u32::from(parts.scale));
        // self = m * 2^k with m near 1.
        let mut power = parts.mantissa.bits() as i64 - divisor.bits() as i64;
        let shift = i64::from(bits) - power;
        let mut m = if shift >= 0 {
            (parts.mantissa << shift as u64) / divisor
        } else {
            parts.mantissa / (divisor << (-shift) as u64)
        };
        let one = BigInt::from(1) << bits;
        // Into 3/4 … 3/2, where the series is shortest.
        while m > &one + (&one >> 1u8) {
            m >>= 1u8;
            power += 1;
        }
        while m < &one - (&one >> 2u8) {
            m <<= 1u8;
            power -= 1;
        }
        let ln_m = twice_atanh(&(((&m - &one) << bits) / (&m + &one)), bits);
        if power == 0 { ln_m } else { ln_m + ln_2(bits) * power }
    }
}

/// Fractional bits for so many decimal digits after the point of a result of this decimal weight, guards included.
fn bits_for(scale: i32, weight: f64) -> u32 {
    let digits = f64::from(scale.max(0)) + weight.max(0.0) + 24.0;
    (digits * BITS_PER_DIGIT) as u32
}

fn from_fixed(value: &BigInt, bits: u32, scale: u16) -> Result<Numeric, ValueError> {
    let divisor = BigInt::from(1) << bits;
    Numeric::from_big(div_round(value * pow10_big(u32::from(scale)), &divisor), scale)
}

/// 2 atanh(z) = 2 (z + z³/3 + z⁵/5 + …) for |z| ≤ 1/3.
fn twice_atanh(z: &BigInt, bits: u32) -> BigInt {
    let square = (z * z) >> bits;
    let mut power = z.clone();
    let mut sum = z.clone();
    let mut divisor = 3u64;
    loop {
        power = (&power * &square) >> bits;
        let term = &power / divisor;
        // A shifted negative number rests at -1, not at 0.
        if term.magnitude().bits() <= 1 {
            return sum << 1u8;
        }
        sum += term;
        divisor += 2;
    }
}

fn ln_2(bits: u32) -> BigInt {
    let one = BigInt::from(1) << bits;
    twice_atanh(&(one / 3), bits)
}

/// e^x in fixed point: x is halved until small, the series summed, the result squared back.
fn exp_fixed(x: &BigInt, bits: u32) -> BigInt {
    let guard = 32;
    let inner = bits + guard + (x.bits().saturating_sub(u64::from(bits)) as u32) * 2;
    let x = x << (inner - bits);
    let ln_2 = ln_2(inner);
    let power = i64::try_from(div_round(x.clone(), &ln_2)).unwrap_or(0);
    const HALVINGS: u32 = 8;
    let rest: BigInt = (x - ln_2 * power) >> HALVINGS;
    let one = BigInt::from(1) << inner;
    let mut sum = &one + &rest;
    let mut term = rest.clone();
    let mut index = 2u64;
    loop {
        term = ((&term * &rest) >> inner) / index;
        if term.magnitude().bits() <= 1 {
            break;
        }
        sum += &term;
        index += 1;
    }
    for _ in 0..HALVINGS {
        sum = (&sum * &sum) >> inner;
    }
    let shift = power - i64::from(inner - bits);
    if shift >= 0 { sum << shift as u64 } else { sum >> (-shift) as u64 }
}

/// A decimal of limited digits: `mantissa * 10^exponent`.
#[derive(Clone)]
struct Floating {
    mantissa: BigInt,
    exponent: i64,
}

impl Floating {
    fn mul(&self, other: &Floating, digits: u64) -> Floating {
        let mantissa = &self.mantissa * &other.mantissa;
        let exponent = self.exponent + other.exponent;
        let have = (mantissa.bits() as f64 * std::f64::consts::LOG10_2) as u64;
        if have <= digits + 8 {
            return Floating { mantissa, exponent };
        }
        let cut = have - digits;
        Floating { mantissa: div_round(mantissa, &pow10_big(cut as u32)), exponent: exponent + cut as i64 }
    }

    fn finish(self, scale: u16) -> Result<Numeric, ValueError> {
        let shift = self.exponent + i64::from(scale);
        if shift >= 0 {
            return Numeric::from_big(self.mantissa * pow10_big(shift as u32), scale);
        }
        Numeric::from_big(div_round(self.mantissa, &pow10_big(-shift as u32)), scale)
    }

    /// 1 / self, rounded once.
    fn reciprocal(self, scale: u16) -> Result<Numeric, ValueError> {
        if self.mantissa.sign() == Sign::NoSign {
            return Err(ValueError::division_by_zero());
        }
        // 10^scale / (m * 10^e)
        let shift = i64::from(scale) - self.exponent;
        let quotient = if shift >= 0 {
            div_round(pow10_big(shift as u32), &self.mantissa)
        } else {
            div_round(BigInt::from(1), &(self.mantissa * pow10_big(-shift as u32)))
        };
        Numeric::from_big(quotient, scale)
    }
}
