//! Comparisons of columns with columns and constants.

use std::cmp::Ordering;

use model::{
    Type, Value,
    value::{Numeric, trim_blanks},
};

use super::{int_of, nulls_of};
use crate::{
    batch::{Column, Data, Texts},
    eval::batch::Lifted,
};

/// Compares; none if the types are not stored alike.
pub(super) fn compare(
    symbol: &str,
    (left, left_ty): (&Lifted, Type),
    (right, right_ty): (&Lifted, Type),
    rows: usize,
) -> Option<Column> {
    if !comparable(left_ty, right_ty) {
        return None;
    }
    let values = match (left, right) {
        (Lifted::Column(left), Lifted::Column(right)) => columns(symbol, left, right)?,
        (Lifted::Column(left), Lifted::Constant(right)) => constant(symbol, left, right)?,
        (Lifted::Constant(left), Lifted::Column(right)) => constant(mirrored(symbol), right, left)?,
        (Lifted::Constant(_), Lifted::Constant(_)) => return None,
    };
    debug_assert_eq!(values.len(), rows);
    Some(Column::bools(values, nulls_of(left, right)))
}

/// Whether stored values of two types can be compared as they are: integers of every width, but no date with a timestamp.
fn comparable(left: Type, right: Type) -> bool {
    let number = |ty: Type| ty.is_integer() || ty.is_oid();
    let float = |ty: Type| matches!(ty, Type::Float4 | Type::Float8);
    let text = |ty: Type| ty.is_text() && ty != Type::Bpchar;
    left == right
        || (number(left) && number(right))
        || (float(left) && float(right))
        || (text(left) && text(right))
}

fn mirrored(symbol: &str) -> &str {
    match symbol {
        "<" => ">",
        "<=" => ">=",
        ">" => "<",
        ">=" => "<=",
        symbol => symbol,
    }
}

fn columns(symbol: &str, left: &Column, right: &Column) -> Option<Vec<bool>> {
    Some(match (left.data(), right.data()) {
        (Data::Int(left), Data::Int(right)) => ordered(symbol, left.iter().zip(right)),
        (Data::Bool(left), Data::Bool(right)) => ordered(symbol, left.iter().zip(right)),
        (Data::Float(left), Data::Float(right)) => {
            by_order(symbol, left.iter().zip(right).map(|(left, right)| compare_floats(*left, *right)))
        }
        (Data::Numeric(left), Data::Numeric(right)) => {
            by_order(symbol, left.iter().zip(right).map(|(left, right)| left.cmp_sql(right)))
        }
        (Data::Text(left_texts), Data::Text(right_texts)) => {
            let (cut_left, cut_right) = (cut(left.ty()), cut(right.ty()));
            let pairs = left_texts.iter().zip(right_texts.iter());
            by_order(symbol, pairs.map(|(left, right)| cut_left(left).cmp(cut_right(right))))
        }
        _ => return None,
    })
}

fn constant(symbol: &str, left: &Column, right: &Value) -> Option<Vec<bool>> {
    Some(match left.data() {
        Data::Int(left) => {
            let right = int_of(right)?;
            match symbol {
                "=" => left.iter().map(|left| *left == right).collect(),
                "<>" => left.iter().map(|left| *left != right).collect(),
                "<" => left.iter().map(|left| *left < right).collect(),
                "<=" => left.iter().map(|left| *left <= right).collect(),
                ">" => left.iter().map(|left| *left > right).collect(),
                _ => left.iter().map(|left| *left >= right).collect(),
            }
        }
        Data::Bool(left) => {
            let right = right.as_bool()?;
            ordered(symbol, left.iter().map(|left| (left, &right)))
        }
        Data::Float(left) => {
            let right = right.as_f64()?;
            by_order(symbol, left.iter().map(|left| compare_floats(*left, right)))
        }
        Data::Numeric(left) => {
            let Value::Numeric(right) = right else { return None };
            numerics(symbol, left, right)
        }
        Data::Text(texts) => texts_with(symbol, texts, left.ty(), right)?,
        Data::Values(_) => return None,
    })
}

fn numerics(symbol: &str, left: &[Numeric], right: &Numeric) -> Vec<bool> {
    by_order(symbol, left.iter().map(|left| left.cmp_sql(right)))
}

fn texts_with(symbol: &str, texts: &Texts, ty: Type, right: &Value) -> Option<Vec<bool>> {
    let right = match right {
        Value::Text(text) => text.as_bytes(),
        Value::Bytea(bytes) => bytes,
        _ => return None,
    };
    let cut = cut(ty);
    let right = cut(right);
    Some(match symbol {
        "=" => texts.iter().map(|left| cut(left) == right).collect(),
        "<>" => texts.iter().map(|left| cut(left) != right).collect(),
        symbol => by_order(symbol, texts.iter().map(|left| cut(left).cmp(right))),
    })
}

/// What of a text counts: `character(n)` without the blanks at its end.
fn cut(ty: Type) -> fn(&[u8]) -> &[u8] {
    fn whole(bytes: &[u8]) -> &[u8] {
        bytes
    }
    fn trimmed(bytes: &[u8]) -> &[u8] {
        std::str::from_utf8(bytes).map_or(bytes, |text| trim_blanks(text).as_bytes())
    }
    if ty == Type::Bpchar { trimmed } else { whole }
}

fn ordered<'a, T: Ord + 'a>(symbol: &str, pairs: impl Iterator<Item = (&'a T, &'a T)>) -> Vec<bool> {
    match symbol {
        "=" => pairs.map(|(left, right)| left == right).collect(),
        "<>" => pairs.map(|(left, right)| left != right).collect(),
        "<" => pairs.map(|(left, right)| left < right).collect(),
        "<=" => pairs.map(|(left, right)| left <= right).collect(),
        ">" => pairs.map(|(left, right)| left > right).collect(),
        _ => pairs.map(|(left, right)| left >= right).collect(),
    }
}

fn by_order(symbol: &str, orders: impl Iterator<Item = Ordering>) -> Vec<bool> {
    match symbol {
        "=" => orders.map(Ordering::is_eq).collect(),
        "<>" => orders.map(Ordering::is_ne).collect(),
        "<" => orders.map(Ordering::is_lt).collect(),
        "<=" => orders.map(Ordering::is_le).collect(),
        ">" => orders.map(Ordering::is_gt).collect(),
        _ => orders.map(Ordering::is_ge).collect(),
    }
}

/// NaN equals NaN and is greatest, -0 equals 0.
fn compare_floats(left: f64, right: f64) -> Ordering {
    left.partial_cmp(&right).unwrap_or_else(|| left.is_nan().cmp(&right.is_nan()))
}
