//! Stored rows into columns: only the columns that are asked for, column by column.
//!
//! Invariants: a column that a row was written without reads as the descriptor's `missing` value; damaged bytes are
//! `XX001`, never a wrong value.

use std::sync::Arc;

use model::{
    Code, Error, Result, Type, Value,
    id::PartitionId,
    read::{Rows, Stored},
    row::{self, RowView},
    schema::Table,
    value::Numeric,
};

use super::{Batch, Column, Data, Texts};
use crate::plan::ScanColumn;

/// Rows as they are stored, in the order of their numbers.
pub trait Source {
    /// How many there are.
    fn count(&self) -> usize;
    /// The key of one.
    fn key(&self, row: usize) -> &[u8];
    /// One itself.
    fn row(&self, row: usize) -> &[u8];
}

impl Source for [Stored] {
    fn count(&self) -> usize {
        self.len()
    }

    fn key(&self, row: usize) -> &[u8] {
        &self[row].key
    }

    #[inline]
    fn row(&self, row: usize) -> &[u8] {
        &self[row].row
    }
}

impl Source for Rows {
    fn count(&self) -> usize {
        self.len()
    }

    fn key(&self, row: usize) -> &[u8] {
        self.key(row)
    }

    #[inline]
    fn row(&self, row: usize) -> &[u8] {
        self.row(row)
    }
}

/// Knows how to take some columns out of a table's rows.
#[derive(Clone, Debug)]
pub struct Decoder {
    table: String,
    table_oid: u32,
    columns: Vec<Wanted>,
}

#[derive(Clone, Debug)]
struct Wanted {
    what: ScanColumn,
    ty: Type,
    missing: Value,
}

impl Decoder {
    /// A decoder of these columns.
    pub fn new(table: &Table, columns: &[ScanColumn]) -> Self {
        let wanted = columns.iter().map(|what| {
            let (ty, missing) = match what {
                ScanColumn::Column(number) | ScanColumn::Presence(number) => {
                    let column = table.column(*number);
                    (column.data_type, column.missing.clone().unwrap_or_default())
                }
                ScanColumn::Revision => (Type::Int8, Value::Null),
                ScanColumn::UpdatedAt => (Type::Timestamptz, Value::Null),
                ScanColumn::TableOid => (Type::Oid, Value::Null),
                ScanColumn::Partition | ScanColumn::Key | ScanColumn::Row => (Type::Bytea, Value::Null),
            };
            Wanted { what: *what, ty, missing }
        });
        Self { table: table.name.clone(), table_oid: table.id.0, columns: wanted.collect() }
    }

    /// A decoder of every column there ever was, in the order of their numbers.
    pub fn whole(table: &Table) -> Self {
        let columns: Vec<_> = table.columns.iter().map(|column| ScanColumn::Column(column.number)).collect();
        Self::new(table, &columns)
    }

    /// The columns of some rows of one partition.
    pub fn decode<R: Source + ?Sized>(&self, partition: &PartitionId, rows: &R) -> Result<Batch> {
        let columns = self.columns_of(partition, rows, 0..self.columns.len(), None)?;
        Ok(Batch::new(columns, rows.count()))
    }

    /// Some of the columns, by their places, of some of the rows of one partition, by their numbers.
    pub fn columns_of<R: Source + ?Sized>(
        &self,
        partition: &PartitionId,
        rows: &R,
        places: impl IntoIterator<Item = usize>,
        only: Option<&[u32]>,
    ) -> Result<Vec<Arc<Column>>> {
        let count = only.map_or(rows.count(), <[u32]>::len);
        let number = |at: usize| only.map_or(at, |only| only[at] as usize);
        let mut views = Vec::with_capacity(count);
        for at in 0..count {
            let view = RowView::new(rows.row(number(at)));
            views.push(view.map_err(|fault| self.damaged(&fault.to_string()))?);
        }
        let mut columns = Vec::new();
        for wanted in places.into_iter().map(|place| &self.columns[place]) {
            let mut column = Column::with_capacity(wanted.ty, count);
            match wanted.what {
                ScanColumn::Column(number) => {
                    self.stored_column(wanted, usize::from(number.0) - 1, &views, &mut column)?;
                }
                ScanColumn::Presence(number) => {
                    let at = usize::from(number.0) - 1;
                    let missing = wanted.missing.is_null();
                    let null = |view: &RowView<'_>| view.is_null(at) || (missing && at >= view.len());
                    column.push_presence(views.iter().map(null));
                }
                ScanColumn::Revision => {
                    views.iter().for_each(|view| column.push_int(view.revision() as i64));
                }
                ScanColumn::UpdatedAt => views.iter().for_each(|view| column.push_int(view.updated_at())),
                ScanColumn::TableOid => (0..count).for_each(|_| column.push_int(i64::from(self.table_oid))),
                ScanColumn::Partition => (0..count).for_each(|_| column.push_bytes(partition.as_bytes())),
                ScanColumn::Key => (0..count).for_each(|at| column.push_bytes(rows.key(number(at)))),
                ScanColumn::Row => views.iter().for_each(|view| column.push_bytes(view.as_bytes())),
            }
            columns.push(Arc::new(column));
        }
        Ok(columns)
    }

    fn stored_column(
        &self,
        wanted: &Wanted,
        at: usize,
        views: &[RowView<'_>],
        column: &mut Column,
    ) -> Result<()> {
        let ty = wanted.ty;
        let fault = || self.damaged("malformed value");
        match column.data() {
            Data::Int(_) => {
                // One loop per width, so that the width is not asked for in each row.
                match ty {
                    Type::Int2 => {
                        fill_ints(wanted, at, views, column, fault, |of| i16::from_le_bytes(of).into())
                    }
                    Type::Int8 | Type::Time | Type::Timestamp | Type::Timestamptz => {
                        fill_ints(wanted, at, views, column, fault, i64::from_le_bytes)
                    }
                    ty if ty.is_oid() => {
                        fill_ints(wanted, at, views, column, fault, |of| u32::from_le_bytes(of).into())
                    }
                    _ => fill_ints(wanted, at, views, column, fault, |of| i32::from_le_bytes(of).into()),
                }
            }
            Data::Text(_) => {
                fill(wanted, at, views, column, fault, |column, bytes| {
                    column.push_bytes(bytes);
                    Some(())
                })?;
                let sound = ty == Type::Bytea || column.as_texts().is_some_and(Texts::is_utf8);
                if sound { Ok(()) } else { Err(fault()) }
            }
            Data::Numeric(_) => fill(wanted, at, views, column, fault, |column, bytes| {
                Numeric::read_compact(bytes).map(|numeric| column.push_numeric(numeric))
            }),
            Data::Bool(_) | Data::Float(_) | Data::Values(_) => {
                fill(wanted, at, views, column, fault, |column, bytes| {
                    row::read_value(bytes, ty).map(|value| column.push_value(&value))
                })
            }
        }
    }

    fn damaged(&self, fault: &str) -> Error {
        Error::new(
            Code::DataCorrupted,
            format!("a stored row of table \"{}\" cannot be read: {fault}", self.table),
        )
    }
}

/// Fills a column with what stands at `at` in each row, each value by `push`.
#[inline]
fn fill(
    wanted: &Wanted,
    at: usize,
    views: &[RowView<'_>],
    column: &mut Column,
    fault: impl Fn() -> Error,
    push: impl Fn(&mut Column, &[u8]) -> Option<()>,
) -> Result<()> {
    for view in views {
        match view.raw(at) {
            Some(bytes) => push(column, bytes).ok_or_else(&fault)?,
            None if at >= view.len() => column.push_value(&wanted.missing),
            None if view.is_null(at) => column.push_null(),
            None => return Err(fault()),
        }
    }
    Ok(())
}

/// Fills a column of integers that are stored in `N` bytes.
fn fill_ints<const N: usize>(
    wanted: &Wanted,
    at: usize,
    views: &[RowView<'_>],
    column: &mut Column,
    fault: impl Fn() -> Error,
    read: impl Fn([u8; N]) -> i64,
) -> Result<()> {
    fill(wanted, at, views, column, fault, |column, bytes| {
        bytes.try_into().ok().map(|bytes| column.push_int(read(bytes)))
    })
}
