//! Picking and joining rows of columns.

use std::sync::Arc;

use model::{Value, value::Numeric};

use super::{Batch, Column, Data, Texts};

/// The place that stands for "no row" in [`Column::gather_or_null`].
pub const NO_ROW: u32 = u32::MAX;

impl Column {
    /// The rows with these numbers, in this order.
    pub fn gather(&self, rows: &[u32]) -> Column {
        let data = match self.data() {
            Data::Bool(values) => Data::Bool(rows.iter().map(|row| values[*row as usize]).collect()),
            Data::Int(values) => Data::Int(rows.iter().map(|row| values[*row as usize]).collect()),
            Data::Float(values) => Data::Float(rows.iter().map(|row| values[*row as usize]).collect()),
            Data::Numeric(values) => {
                Data::Numeric(rows.iter().map(|row| values[*row as usize].clone()).collect())
            }
            Data::Text(texts) => {
                let mut gathered = Texts::with_capacity(rows.len());
                gathered.extend_gathered(texts, rows);
                Data::Text(gathered)
            }
            Data::Values(values) => {
                Data::Values(rows.iter().map(|row| values[*row as usize].clone()).collect())
            }
        };
        let nulls = if self.has_nulls() {
            rows.iter().map(|row| self.nulls()[*row as usize]).collect()
        } else {
            Vec::new()
        };
        Column::from_parts(self.ty(), data, nulls)
    }

    /// The rows with these numbers; [`NO_ROW`] gives null.
    pub fn gather_or_null(&self, rows: &[u32]) -> Column {
        if !rows.contains(&NO_ROW) {
            return self.gather(rows);
        }
        let mut gathered = Column::with_capacity(self.ty(), rows.len());
        for row in rows {
            match *row {
                NO_ROW => gathered.push_null(),
                row => gathered.push_from(self, row as usize),
            }
        }
        gathered
    }

    /// Appends the rows of another column of the same type.
    pub fn extend(&mut self, other: &Column) {
        if self.ty() != other.ty()
            && std::mem::discriminant(self.data()) != std::mem::discriminant(other.data())
        {
            for row in 0..other.len() {
                self.push_from(other, row);
            }
            return;
        }
        let before = self.len();
        let (data, nulls) = self.parts_mut();
        match (&mut *data, other.data()) {
            (Data::Bool(to), Data::Bool(from)) => to.extend_from_slice(from),
            (Data::Int(to), Data::Int(from)) => to.extend_from_slice(from),
            (Data::Float(to), Data::Float(from)) => to.extend_from_slice(from),
            (Data::Numeric(to), Data::Numeric(from)) => to.extend_from_slice(from),
            (Data::Text(to), Data::Text(from)) => to.extend_from(from),
            (Data::Values(to), Data::Values(from)) => to.extend_from_slice(from),
            _ => debug_assert!(false, "columns that are joined are stored alike"),
        }
        extend_nulls(nulls, before, other);
    }

    /// Appends some rows of another column of the same type.
    pub fn extend_selected(&mut self, other: &Column, rows: Option<&[u32]>) {
        match rows {
            None => self.extend(other),
            Some(rows) => self.extend(&other.gather(rows)),
        }
    }

    /// Takes the last rows away until `count` are left.
    pub fn truncate(&mut self, count: usize) {
        let (data, nulls) = self.parts_mut();
        match data {
            Data::Bool(values) => values.truncate(count),
            Data::Int(values) => values.truncate(count),
            Data::Float(values) => values.truncate(count),
            Data::Numeric(values) => values.truncate(count),
            Data::Text(texts) => texts.truncate(count),
            Data::Values(values) => values.truncate(count),
        }
        nulls.truncate(count);
    }

    /// Appends `count` nulls.
    pub fn push_nulls(&mut self, count: usize) {
        if count == 0 {
            return;
        }
        let before = self.len();
        let (data, nulls) = self.parts_mut();
        nulls.resize(before, false);
        nulls.resize(before + count, true);
        match data {
            Data::Bool(values) => values.resize(before + count, false),
            Data::Int(values) => values.resize(before + count, 0),
            Data::Float(values) => values.resize(before + count, 0.0),
            Data::Numeric(values) => values.resize(before + count, Numeric::ZERO),
            Data::Text(texts) => (0..count).for_each(|_| texts.push(b"")),
            Data::Values(values) => values.resize(before + count, Value::Null),
        }
    }
}

fn extend_nulls(nulls: &mut Vec<bool>, before: usize, other: &Column) {
    if nulls.is_empty() && !other.has_nulls() {
        return;
    }
    nulls.resize(before, false);
    if other.has_nulls() {
        nulls.extend_from_slice(other.nulls());
    } else {
        nulls.resize(before + other.len(), false);
    }
}

/// All rows of some batches with the same columns as one batch without a selection; `width` counts when there is none.
pub fn concat(batches: &[Batch], types: &[model::Type]) -> Batch {
    if let [batch] = batches {
        return batch.clone().compact();
    }
    let rows = batches.iter().map(Batch::len).sum();
    let mut columns: Vec<Column> = types.iter().map(|ty| Column::with_capacity(*ty, rows)).collect();
    for batch in batches {
        for (column, from) in columns.iter_mut().zip(batch.columns()) {
            column.extend_selected(from, batch.selection());
        }
    }
    Batch::new(columns.into_iter().map(Arc::new).collect(), rows)
}
