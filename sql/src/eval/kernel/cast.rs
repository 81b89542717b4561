//! Casts between numbers that cannot be told from their stored form.

use std::sync::Arc;

use model::{
    Result, Type,
    value::{Numeric, ValueError},
};

use crate::batch::{Column, Data};

/// Casts a column; none if no kernel fits.
pub(in crate::eval) fn cast(column: &Arc<Column>, to: Type, typmod: i32) -> Result<Option<Arc<Column>>> {
    let from = column.ty();
    if from == to && typmod < 0 {
        return Ok(Some(Arc::clone(column)));
    }
    let nulls = || column.nulls().to_vec();
    let cast = match column.data() {
        Data::Int(values) if from.is_integer() && to.is_integer() => {
            let (min, max, name) = match to {
                Type::Int2 => (i64::from(i16::MIN), i64::from(i16::MAX), "smallint"),
                Type::Int4 => (i64::from(i32::MIN), i64::from(i32::MAX), "integer"),
                _ => (i64::MIN, i64::MAX, "bigint"),
            };
            let outside = |value: &i64| *value < min || *value > max;
            // What stands in a null's place is anything.
            let refused = |(row, value): (usize, &i64)| outside(value) && !column.is_null(row);
            if values.iter().any(outside) && values.iter().enumerate().any(refused) {
                return Err(ValueError::out_of_range(name).into());
            }
            Column::ints(to, values.clone(), nulls())
        }
        Data::Int(values) if from.is_integer() && to == Type::Float8 => {
            Column::floats(to, values.iter().map(|value| *value as f64).collect(), nulls())
        }
        Data::Int(values) if from.is_integer() && to == Type::Numeric && typmod < 0 => {
            Column::numerics(values.iter().map(|value| Numeric::from(*value)).collect(), nulls())
        }
        Data::Float(values) if from == Type::Float4 && to == Type::Float8 => {
            Column::floats(to, values.clone(), nulls())
        }
        Data::Text(_) if typmod < 0 && is_plain_text(from) && is_plain_text(to) => {
            column.as_ref().clone().retyped(to)
        }
        _ => return Ok(None),
    };
    Ok(Some(Arc::new(cast)))
}

fn is_plain_text(ty: Type) -> bool {
    matches!(ty, Type::Text | Type::Varchar)
}
