//! What expressions mean: on one row of values, and on a batch of columns.
//!
//! Invariants:
//! - Both ways give the same values and refuse the same rows; a batch may meet another row's error first.
//! - AND, OR, CASE, COALESCE evaluate an operand only for the rows that need it, so that `x <> 0 AND 1 / x > 2` is safe.
//! - A strict function is never called with a null; no kernel exists without a scalar body that means the same.
//! - Nothing waits here. Sub-queries were put into columns before ([`crate::execute`]), and who evaluates a volatile
//!   expression does so row by row.
//!
//! Not here: what functions do (`functions`).

mod batch;
mod kernel;
mod row;

#[cfg(test)]
mod tests;

use model::{Result, Value};

use crate::{batch::Batch, context::Context, expr::Expr};

pub use row::Row;

/// What an expression is evaluated with, besides its row.
pub struct Scope<'a> {
    /// Times, settings, parameters.
    pub context: &'a mut Context,
    /// What the row around a correlated plan hands in.
    pub outer: &'a [Value],
}

/// The value of an expression for one row.
pub fn value(context: &mut Context, expression: &Expr, row: &[Value]) -> Result<Value> {
    Scope { context, outer: &[] }.value(expression, row)
}

/// Whether a condition is true for one row; null is not.
pub fn is_true(context: &mut Context, condition: &Expr, row: &[Value]) -> Result<bool> {
    Ok(value(context, condition, row)?.as_bool() == Some(true))
}

/// The rows of a batch for which a condition is true.
pub fn filter(scope: &mut Scope<'_>, condition: &Expr, batch: &Batch) -> Result<Batch> {
    scope.filter(condition, batch)
}
