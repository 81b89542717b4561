//! Batches: about a thousand rows at once, column by column.
//!
//! Invariants:
//! - All columns of a batch have the same number of physical rows. A selection lists the physical rows that count, in
//!   order; without one all of them do. What callers index by is always the *logical* row.
//! - A column's storage follows from its type alone ([`Data`]); a null's place holds a default that nothing reads.
//! - A value taken out of a column is the value that was put in: no width, scale or spelling is lost.
//!
//! Not here: what expressions mean (`eval`), where rows come from (`execute`).

mod column;
mod gather;
pub mod key;
pub mod stored;
mod text;
mod wire;

#[cfg(test)]
mod tests;

use std::{borrow::Cow, sync::Arc};

use model::{Type, Value};

pub(crate) use column::int_of;
pub use column::{Column, Data};
pub use gather::{NO_ROW, concat};
pub use text::Texts;

/// How many rows a batch aims at.
pub const ROWS: usize = 1024;

/// Some rows, column by column.
#[derive(Clone, Debug)]
pub struct Batch {
    columns: Vec<Arc<Column>>,
    rows: usize,
    selection: Option<Arc<[u32]>>,
}

impl Batch {
    /// Rows of these columns, which all have `rows` rows.
    pub fn new(columns: Vec<Arc<Column>>, rows: usize) -> Self {
        debug_assert!(
            columns.iter().all(|column| column.len() == rows),
            "columns of one batch are equally long"
        );
        Self { columns, rows, selection: None }
    }

    /// Rows of owned columns; there is at least one.
    pub fn of(columns: Vec<Column>) -> Self {
        let rows = columns.first().map_or(0, Column::len);
        Self::new(columns.into_iter().map(Arc::new).collect(), rows)
    }

    /// Rows of values, each with one value per type.
    pub fn from_rows<R: AsRef<[Value]>>(types: &[Type], rows: &[R]) -> Self {
        let mut columns: Vec<Column> =
            types.iter().map(|ty| Column::with_capacity(*ty, rows.len())).collect();
        for row in rows {
            for (column, value) in columns.iter_mut().zip(row.as_ref()) {
                column.push_value(value);
            }
        }
        Self::new(columns.into_iter().map(Arc::new).collect(), rows.len())
    }

    /// How many rows count.
    #[inline]
    pub fn len(&self) -> usize {
        self.selection.as_ref().map_or(self.rows, |selection| selection.len())
    }

    /// Whether no row counts.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many columns there are.
    pub fn width(&self) -> usize {
        self.columns.len()
    }

    /// Where a logical row lies in the columns.
    #[inline]
    pub fn physical(&self, row: usize) -> usize {
        match &self.selection {
            Some(selection) => selection[row] as usize,
            None => row,
        }
    }

    /// The physical rows that count; none for all.
    #[inline]
    pub fn selection(&self) -> Option<&[u32]> {
        self.selection.as_deref()
    }

    /// The columns as they are stored, before the selection.
    pub fn columns(&self) -> &[Arc<Column>] {
        &self.columns
    }

    /// A column as it is stored, before the selection.
    pub fn column(&self, index: usize) -> &Arc<Column> {
        &self.columns[index]
    }

    /// A column with exactly the rows that count.
    pub fn dense(&self, index: usize) -> Arc<Column> {
        match &self.selection {
            None => Arc::clone(&self.columns[index]),
            Some(selection) => Arc::new(self.columns[index].gather(selection)),
        }
    }

    /// The same rows without a selection.
    pub fn compact(self) -> Self {
        match self.selection {
            None => self,
            Some(selection) => {
                let columns = self.columns.iter().map(|column| Arc::new(column.gather(&selection))).collect();
                Self { columns, rows: selection.len(), selection: None }
            }
        }
    }

    /// Some of the rows, by their logical numbers, in this order.
    pub fn select(&self, rows: &[u32]) -> Self {
        let selection: Arc<[u32]> = match &self.selection {
            None => rows.into(),
            Some(selection) => rows.iter().map(|row| selection[*row as usize]).collect(),
        };
        Self { columns: self.columns.clone(), rows: self.rows, selection: Some(selection) }
    }

    /// The rows from `from`, at most `count` of them.
    pub fn slice(&self, from: usize, count: usize) -> Self {
        let to = (from + count).min(self.len());
        if from == 0 && to == self.len() {
            return self.clone();
        }
        let rows: Vec<u32> = (from as u32..to as u32).collect();
        self.select(&rows)
    }

    /// The same rows with other columns, which have as many physical rows.
    pub fn with_columns(&self, columns: Vec<Arc<Column>>) -> Self {
        debug_assert!(
            columns.iter().all(|column| column.len() == self.rows),
            "columns follow the same selection"
        );
        Self { columns, rows: self.rows, selection: self.selection.clone() }
    }

    /// The same rows with some of the columns.
    pub fn project(&self, columns: &[usize]) -> Self {
        self.with_columns(columns.iter().map(|index| Arc::clone(&self.columns[*index])).collect())
    }

    /// The value in a row and column.
    #[inline]
    pub fn value(&self, row: usize, column: usize) -> Value {
        self.columns[column].value(self.physical(row))
    }

    /// Whether there is null in a row and column.
    #[inline]
    pub fn is_null(&self, row: usize, column: usize) -> bool {
        self.columns[column].is_null(self.physical(row))
    }

    /// A row as values.
    pub fn row(&self, row: usize) -> Vec<Value> {
        let row = self.physical(row);
        self.columns.iter().map(|column| column.value(row)).collect()
    }

    /// Puts a row's values in place of what `values` holds.
    pub fn read_row(&self, row: usize, values: &mut Vec<Value>) {
        let row = self.physical(row);
        values.clear();
        values.extend(self.columns.iter().map(|column| column.value(row)));
    }

    /// All rows as values.
    pub fn rows(&self) -> Vec<Vec<Value>> {
        (0..self.len()).map(|row| self.row(row)).collect()
    }

    /// Bytes on the heap, roughly.
    pub fn heap_bytes(&self) -> usize {
        self.columns.iter().map(|column| column.heap_bytes()).sum::<usize>()
            + self.selection.as_ref().map_or(0, |selection| selection.len() * 4)
    }

    /// The rows that count as a list of physical rows.
    pub fn physical_rows(&self) -> Cow<'_, [u32]> {
        match &self.selection {
            Some(selection) => Cow::Borrowed(selection),
            None => Cow::Owned((0..self.rows as u32).collect()),
        }
    }
}
