//! Stored rows into columns: only the columns that are asked for, column by column.
//!
//! Invariants: a column that a row was written without reads as the descriptor's `missing` value; damaged bytes are
//! `XX001`, never a wrong value.

use model::{
    Code, Error, Result, Type, Value,
    id::PartitionId,
    read::Stored,
    row::{self, RowView},
    schema::Table,
    value::Numeric,
};

use super::{Batch, Column, Data};
use crate::plan::ScanColumn;

/// Knows how to take some columns out of a table's rows.
#[derive(Clone, Debug)]
pub struct Decoder {
    table: String,
    table_oid: u32,
    columns: Vec<Source>,
}

#[derive(Clone, Debug)]
struct Source {
    what: ScanColumn,
    ty: Type,
    missing: Value,
}

impl Decoder {
    /// A decoder of these columns.
    pub fn new(table: &Table, columns: &[ScanColumn]) -> Self {
        let sources = columns.iter().map(|what| {
            let (ty, missing) = match what {
                ScanColumn::Column(number) => {
                    let column = table.column(*number);
                    (column.data_type, column.missing.clone().unwrap_or_default())
                }
                ScanColumn::Revision => (Type::Int8, Value::Null),
                ScanColumn::UpdatedAt => (Type::Timestamptz, Value::Null),
                ScanColumn::TableOid => (Type::Oid, Value::Null),
                ScanColumn::Partition | ScanColumn::Key | ScanColumn::Row => (Type::Bytea, Value::Null),
            };
            Source { what: *what, ty, missing }
        });
        Self { table: table.name.clone(), table_oid: table.id.0, columns: sources.collect() }
    }

    /// A decoder of every column there ever was, in the order of their numbers.
    pub fn whole(table: &Table) -> Self {
        let columns: Vec<_> = table.columns.iter().map(|column| ScanColumn::Column(column.number)).collect();
        Self::new(table, &columns)
    }

    /// The columns of some rows of one partition.
    pub fn decode(&self, partition: &PartitionId, rows: &[Stored]) -> Result<Batch> {
        let views = rows
            .iter()
            .map(|stored| RowView::new(&stored.row).map_err(|fault| self.damaged(&fault.to_string())))
            .collect::<Result<Vec<_>>>()?;
        let mut columns = Vec::with_capacity(self.columns.len());
        for source in &self.columns {
            columns.push(std::sync::Arc::new(self.column(source, partition, rows, &views)?));
        }
        Ok(Batch::new(columns, rows.len()))
    }

    fn column(
        &self,
        source: &Source,
        partition: &PartitionId,
        rows: &[Stored],
        views: &[RowView<'_>],
    ) -> Result<Column> {
        let mut column = Column::with_capacity(source.ty, rows.len());
        match source.what {
            ScanColumn::Column(number) => {
                self.stored_column(source, usize::from(number.0) - 1, views, &mut column)?;
            }
            ScanColumn::Revision => views.iter().for_each(|view| column.push_int(view.revision() as i64)),
            ScanColumn::UpdatedAt => views.iter().for_each(|view| column.push_int(view.updated_at())),
            ScanColumn::TableOid => rows.iter().for_each(|_| column.push_int(i64::from(self.table_oid))),
            ScanColumn::Partition => rows.iter().for_each(|_| column.push_bytes(partition.as_bytes())),
            ScanColumn::Key => rows.iter().for_each(|stored| column.push_bytes(&stored.key)),
            ScanColumn::Row => rows.iter().for_each(|stored| column.push_bytes(&stored.row)),
        }
        Ok(column)
    }

    fn stored_column(
        &self,
        source: &Source,
        at: usize,
        views: &[RowView<'_>],
        column: &mut Column,
    ) -> Result<()> {
        let ty = source.ty;
        let fault = || self.damaged("malformed value");
        match column.data() {
            Data::Int(_) => {
                for view in views {
                    match present(view, at, source, column) {
                        Some(bytes) => column.push_int(read_int(bytes, ty).ok_or_else(fault)?),
                        None => continue,
                    }
                }
            }
            Data::Text(_) => {
                let text = ty != Type::Bytea;
                for view in views {
                    match present(view, at, source, column) {
                        Some(bytes) if text && std::str::from_utf8(bytes).is_err() => return Err(fault()),
                        Some(bytes) => column.push_bytes(bytes),
                        None => continue,
                    }
                }
            }
            Data::Numeric(_) => {
                for view in views {
                    match present(view, at, source, column) {
                        Some(bytes) => column.push_numeric(Numeric::read_compact(bytes).ok_or_else(fault)?),
                        None => continue,
                    }
                }
            }
            Data::Bool(_) | Data::Float(_) | Data::Values(_) => {
                for view in views {
                    match present(view, at, source, column) {
                        Some(bytes) => column.push_value(&row::read_value(bytes, ty).ok_or_else(fault)?),
                        None => continue,
                    }
                }
            }
        }
        Ok(())
    }

    fn damaged(&self, fault: &str) -> Error {
        Error::new(
            Code::DataCorrupted,
            format!("a stored row of table \"{}\" cannot be read: {fault}", self.table),
        )
    }
}

/// The bytes of a column that is there and not null; else what stands for it is pushed.
#[inline]
fn present<'a>(view: &RowView<'a>, at: usize, source: &Source, column: &mut Column) -> Option<&'a [u8]> {
    if at >= view.len() {
        column.push_value(&source.missing);
        return None;
    }
    if view.is_null(at) {
        column.push_null();
        return None;
    }
    // Damaged places read as no bytes, which no fixed-width type has.
    Some(view.raw(at).unwrap_or_default())
}

#[inline]
fn read_int(bytes: &[u8], ty: Type) -> Option<i64> {
    Some(match bytes {
        [a, b, c, d] if ty.is_oid() => i64::from(u32::from_le_bytes([*a, *b, *c, *d])),
        [a, b, c, d] => i64::from(i32::from_le_bytes([*a, *b, *c, *d])),
        [a, b] => i64::from(i16::from_le_bytes([*a, *b])),
        bytes => i64::from_le_bytes(bytes.try_into().ok()?),
    })
}
