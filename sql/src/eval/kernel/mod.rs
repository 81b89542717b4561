//! Typed kernels: loops over typed columns for what queries do most.
//!
//! Invariants:
//! - A kernel gives what the scalar body gives, errors included; where that takes a second look (a float that left the
//!   range), it declines and the scalar body decides.
//! - Nulls are skipped wherever their placeholder could raise an error.

mod arithmetic;
mod cast;
mod compare;
mod like;

use model::{Result, Type, Value};

use super::batch::Lifted;
use crate::{batch::Column, functions::Function};

pub(super) use cast::cast;

/// An operator of two operands, of which at most one is a constant; none if no kernel fits.
pub(super) fn operator(
    symbol: &str,
    left: (&Lifted, Type),
    right: (&Lifted, Type),
    ty: Type,
    rows: usize,
) -> Result<Option<Column>> {
    match symbol {
        "=" | "<>" | "<" | "<=" | ">" | ">=" => Ok(compare::compare(symbol, left, right, rows)),
        "+" | "-" | "*" | "/" | "%" => arithmetic::arithmetic(symbol, left, right, ty, rows),
        "~~" | "!~~" => Ok(like::like(left, right, symbol == "!~~", rows)),
        _ => Ok(None),
    }
}

/// A function call; none if no kernel fits.
pub(super) fn call(function: &Function, arguments: &[Lifted], rows: usize) -> Option<Column> {
    let [Lifted::Column(column)] = arguments else { return None };
    match function.name {
        "length" | "char_length" | "character_length" if column.ty() == Type::Text => {
            let texts = column.as_texts()?;
            let lengths = (0..rows).map(|row| texts.get_str(row).chars().count() as i64).collect();
            Some(Column::ints(Type::Int4, lengths, column.nulls().to_vec()))
        }
        _ => None,
    }
}

/// The nulls of a result that is null where an operand is.
fn nulls_of(left: &Lifted, right: &Lifted) -> Vec<bool> {
    let map = |lifted: &Lifted| match lifted {
        Lifted::Column(column) => column.nulls().to_vec(),
        Lifted::Constant(_) => Vec::new(),
    };
    let (mut nulls, right) = (map(left), map(right));
    if nulls.is_empty() {
        return right;
    }
    for (null, right) in nulls.iter_mut().zip(right) {
        *null |= right;
    }
    nulls
}

/// A constant's integer, as columns store it.
fn int_of(value: &Value) -> Option<i64> {
    crate::batch::int_of(value)
}
