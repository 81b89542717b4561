//! `+ - * / %` on integers and doubles, `+ - *` on numerics.

use model::{
    Result, Type, Value,
    value::{Numeric, ValueError},
};

use super::{int_of, nulls_of};
use crate::{batch::Column, eval::batch::Lifted};

/// Computes; none if no kernel fits.
pub(super) fn arithmetic(
    symbol: &str,
    (left, left_ty): (&Lifted, Type),
    (right, right_ty): (&Lifted, Type),
    ty: Type,
    rows: usize,
) -> Result<Option<Column>> {
    if left_ty.is_integer() && right_ty.is_integer() && ty.is_integer() {
        return integers(symbol, left, right, ty, rows);
    }
    if left_ty == Type::Float8 && right_ty == Type::Float8 {
        return Ok(doubles(symbol, left, right, rows));
    }
    if left_ty == Type::Numeric && right_ty == Type::Numeric {
        return numerics(symbol, left, right, rows);
    }
    Ok(None)
}

/// One side of an operation: a value per row, or one for all.
enum Side<'a, T> {
    Column(&'a [T]),
    Constant(T),
}

impl<T: Clone> Side<'_, T> {
    #[inline]
    fn get(&self, row: usize) -> T {
        match self {
            Self::Column(values) => values[row].clone(),
            Self::Constant(value) => value.clone(),
        }
    }
}

fn int_side(lifted: &Lifted) -> Option<Side<'_, i64>> {
    match lifted {
        Lifted::Column(column) => column.as_ints().map(Side::Column),
        Lifted::Constant(value) => int_of(value).map(Side::Constant),
    }
}

fn float_side(lifted: &Lifted) -> Option<Side<'_, f64>> {
    match lifted {
        Lifted::Column(column) => column.as_floats().map(Side::Column),
        Lifted::Constant(value) => value.as_f64().map(Side::Constant),
    }
}

fn range_of(ty: Type) -> (i64, i64, &'static str) {
    match ty {
        Type::Int2 => (i64::from(i16::MIN), i64::from(i16::MAX), "smallint"),
        Type::Int4 => (i64::from(i32::MIN), i64::from(i32::MAX), "integer"),
        _ => (i64::MIN, i64::MAX, "bigint"),
    }
}

fn integers(symbol: &str, left: &Lifted, right: &Lifted, ty: Type, rows: usize) -> Result<Option<Column>> {
    let (Some(a), Some(b)) = (int_side(left), int_side(right)) else { return Ok(None) };
    let nulls = nulls_of(left, right);
    let (min, max, name) = range_of(ty);
    let mut values = Vec::with_capacity(rows);
    if matches!(symbol, "/" | "%") {
        for row in 0..rows {
            if !nulls.is_empty() && nulls[row] {
                values.push(0);
                continue;
            }
            let (a, b) = (a.get(row), b.get(row));
            if b == 0 {
                return Err(ValueError::division_by_zero().into());
            }
            let value = if symbol == "/" { a.checked_div(b) } else { Some(a.wrapping_rem(b)) };
            match value.filter(|value| (min..=max).contains(value)) {
                Some(value) => values.push(value),
                None => return Err(ValueError::out_of_range(name).into()),
            }
        }
        return Ok(Some(Column::ints(ty, values, nulls)));
    }
    let compute = |a: i64, b: i64| match symbol {
        "+" => a.overflowing_add(b),
        "-" => a.overflowing_sub(b),
        _ => a.overflowing_mul(b),
    };
    // No branch per row: what left the range is remembered and looked at once.
    let mut outside = false;
    match (&a, &b, symbol) {
        (Side::Column(a), Side::Column(b), "+") => {
            run(&mut values, a.iter().zip(*b), |(a, b)| a.overflowing_add(*b), min, max, &mut outside)
        }
        (Side::Column(a), Side::Constant(b), "+") => {
            run(&mut values, a.iter(), |a| a.overflowing_add(*b), min, max, &mut outside)
        }
        (Side::Column(a), Side::Constant(b), "*") => {
            run(&mut values, a.iter(), |a| a.overflowing_mul(*b), min, max, &mut outside)
        }
        _ => run(&mut values, 0..rows, |row| compute(a.get(row), b.get(row)), min, max, &mut outside),
    }
    if outside {
        let refused = |row: usize| {
            let (value, overflow) = compute(a.get(row), b.get(row));
            (nulls.is_empty() || !nulls[row]) && (overflow || !(min..=max).contains(&value))
        };
        if (0..rows).any(refused) {
            return Err(ValueError::out_of_range(name).into());
        }
    }
    Ok(Some(Column::ints(ty, values, nulls)))
}

#[inline]
fn run<I>(
    values: &mut Vec<i64>,
    items: impl Iterator<Item = I>,
    compute: impl Fn(I) -> (i64, bool),
    min: i64,
    max: i64,
    outside: &mut bool,
) {
    for item in items {
        let (value, overflow) = compute(item);
        *outside |= overflow | (value < min) | (value > max);
        values.push(value);
    }
}

/// Doubles: declines where a result left the range or vanished, so that the scalar body decides.
fn doubles(symbol: &str, left: &Lifted, right: &Lifted, rows: usize) -> Option<Column> {
    let (a, b) = (float_side(left)?, float_side(right)?);
    let nulls = nulls_of(left, right);
    let mut values = Vec::with_capacity(rows);
    for row in 0..rows {
        if !nulls.is_empty() && nulls[row] {
            values.push(0.0);
            continue;
        }
        let (a, b) = (a.get(row), b.get(row));
        let value = match symbol {
            "+" => a + b,
            "-" => a - b,
            "*" => a * b,
            "/" => a / b,
            _ => return None,
        };
        let vanished = value == 0.0 && matches!(symbol, "*" | "/");
        if !value.is_finite() || vanished {
            return None;
        }
        values.push(value);
    }
    Some(Column::floats(Type::Float8, values, nulls))
}

fn numerics(symbol: &str, left: &Lifted, right: &Lifted, rows: usize) -> Result<Option<Column>> {
    let compute: fn(&Numeric, &Numeric) -> Result<Numeric, ValueError> = match symbol {
        "+" => Numeric::add,
        "-" => Numeric::sub,
        "*" => Numeric::mul,
        _ => return Ok(None),
    };
    let nulls = nulls_of(left, right);
    let skip = |row: usize| !nulls.is_empty() && nulls[row];
    let mut values = Vec::with_capacity(rows);
    match (left, right) {
        (Lifted::Column(a), Lifted::Column(b)) => {
            let (Some(a), Some(b)) = (a.as_numerics(), b.as_numerics()) else { return Ok(None) };
            for (row, (a, b)) in a.iter().zip(b).enumerate() {
                values.push(if skip(row) { Numeric::ZERO } else { compute(a, b)? });
            }
        }
        (Lifted::Column(a), Lifted::Constant(Value::Numeric(b))) => {
            let Some(a) = a.as_numerics() else { return Ok(None) };
            for (row, a) in a.iter().enumerate() {
                values.push(if skip(row) { Numeric::ZERO } else { compute(a, b)? });
            }
        }
        (Lifted::Constant(Value::Numeric(a)), Lifted::Column(b)) => {
            let Some(b) = b.as_numerics() else { return Ok(None) };
            for (row, b) in b.iter().enumerate() {
                values.push(if skip(row) { Numeric::ZERO } else { compute(a, b)? });
            }
        }
        _ => return Ok(None),
    }
    Ok(Some(Column::numerics(values, nulls)))
}
