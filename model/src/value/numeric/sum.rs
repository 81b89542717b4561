//! A running sum: what `sum` and `avg` over numerics keep per group.
//!
//! Sums of one scale stay in 128-bit integers, one checked addition per row; a row of a larger scale raises the
//! sum's scale once, an overflow moves it to big integers.

use super::{Class, Numeric, pow10};
use crate::value::ValueError;

/// A sum that grows row by row.
#[derive(Clone, Debug, Default)]
pub struct NumericSum {
    mantissa: i128,
    scale: u16,
    /// What did not fit the fast path: big numbers, NaN, infinities.
    spilled: Option<Numeric>,
}

impl NumericSum {
    /// Adds one number.
    #[inline]
    pub fn add(&mut self, number: &Numeric) -> Result<(), ValueError> {
        if let Class::Small(mantissa, scale) = number.class() {
            if scale == self.scale
                && let Some(sum) = self.mantissa.checked_add(mantissa)
            {
                self.mantissa = sum;
                return Ok(());
            }
            if self.add_scaled(mantissa, scale).is_some() {
                return Ok(());
            }
        }
        let spilled = self.spilled.take().unwrap_or(Numeric::ZERO);
        self.spilled = Some(spilled.add(number)?);
        Ok(())
    }

    fn add_scaled(&mut self, mantissa: i128, scale: u16) -> Option<()> {
        if scale > self.scale {
            let raised = self.mantissa.checked_mul(pow10(scale - self.scale)?)?;
            self.mantissa = raised.checked_add(mantissa)?;
            self.scale = scale;
        } else {
            let raised = mantissa.checked_mul(pow10(self.scale - scale)?)?;
            self.mantissa = self.mantissa.checked_add(raised)?;
        }
        Some(())
    }

    /// Adds another sum, as when partial aggregates meet.
    pub fn merge(&mut self, other: &NumericSum) -> Result<(), ValueError> {
        self.add(&Numeric::from_i128(other.mantissa, other.scale))?;
        match &other.spilled {
            Some(spilled) => self.add(spilled),
            None => Ok(()),
        }
    }

    /// Takes one number out again, as a moving window does.
    pub fn remove(&mut self, number: &Numeric) -> Result<(), ValueError> {
        self.add(&number.neg())
    }

    /// The sum so far.
    pub fn total(&self) -> Result<Numeric, ValueError> {
        let fast = Numeric::from_i128(self.mantissa, self.scale);
        match &self.spilled {
            Some(spilled) => spilled.add(&fast),
            None => Ok(fast),
        }
    }
}
