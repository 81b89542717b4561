//! New rows of a table: what they must go through, and their bytes.

use std::sync::Arc;

use bytes::Bytes;
use model::{
    Code, Error, Result, Value,
    command::ENTRY_BYTES_MAX,
    id::{ColumnNumber, PartitionId},
    key,
    load::Rows,
    row,
    schema::Table,
};

use super::{
    RowIds,
    error::{Viewer, check_violation, not_null_violation},
};
use crate::{
    batch::{Batch, Column},
    execute::{Expressions, Runtime, partition_of},
    plan::RowRules,
};

/// Bytes of a key inside a table.
const KEY_BYTES_MAX: usize = 8_192;
/// Bytes of a row: what fits one log entry with room for the rest of a command.
const ROW_BYTES_MAX: usize = ENTRY_BYTES_MAX - 64 * 1024;

/// A row in its stored form, with its place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewRow {
    /// Where.
    pub partition: PartitionId,
    /// Its key.
    pub key: Bytes,
    /// The row.
    pub row: Bytes,
}

/// Makes new rows of one table.
pub struct RowWriter {
    runtime: Runtime,
    table: Arc<Table>,
    generated: Vec<(usize, Expressions)>,
    checks: Vec<(String, Expressions)>,
    ids: RowIds,
}

impl RowWriter {
    /// A writer of a table's rows.
    pub fn new(table: &Arc<Table>, rules: &RowRules, runtime: &Runtime) -> Self {
        let width = table.columns.len();
        let one = |expr: &crate::expr::Expr| Expressions::new(std::slice::from_ref(expr), width);
        Self {
            generated: rules
                .generated
                .iter()
                .map(|(number, expr)| (usize::from(number.0) - 1, one(expr)))
                .collect(),
            checks: rules.checks.iter().map(|(name, expr)| (name.clone(), one(expr))).collect(),
            ids: RowIds::new(&mut runtime.context.lock()),
            table: Arc::clone(table),
            runtime: runtime.clone(),
        }
    }

    /// The table.
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// Computes generated and hidden columns of whole rows, then asks NOT NULL and CHECK of them.
    pub async fn complete(&mut self, rows: Batch) -> Result<Batch> {
        let mut rows = rows.compact();
        if rows.is_empty() {
            return Ok(rows);
        }
        for (place, expression) in &mut self.generated {
            let made = expression.columns(&self.runtime, &rows).await?;
            let mut columns = rows.columns().to_vec();
            columns[*place] =
                made.into_iter().next().ok_or_else(|| Error::internal("a generated column was not made"))?;
            rows = Batch::new(columns, rows.len());
        }
        self.check_nulls(&rows)?;
        for (name, expression) in &mut self.checks {
            let made = expression.columns(&self.runtime, &rows).await?;
            let Some(truths) = made.first() else { continue };
            let failed = (0..rows.len())
                .find(|row| !truths.is_null(*row) && truths.as_bools().is_some_and(|truths| !truths[*row]));
            if let Some(row) = failed {
                let context = self.runtime.context.lock();
                return Err(check_violation(Viewer::of(&context), &self.table, name, &rows.row(row)));
            }
        }
        Ok(rows)
    }

    fn check_nulls(&self, rows: &Batch) -> Result<()> {
        for (column, values) in self.table.columns.iter().zip(rows.columns()) {
            if !column.not_null || column.dropped {
                continue;
            }
            if let Some(row) = values.nulls().iter().position(|null| *null) {
                let context = self.runtime.context.lock();
                return Err(not_null_violation(Viewer::of(&context), &self.table, column, &rows.row(row)));
            }
        }
        Ok(())
    }

    /// The stored form of each row. Rows of a table without a primary key keep the keys they have, or get new ones.
    pub fn encode(&mut self, rows: &Batch, keys: Option<&Column>) -> Result<Vec<NewRow>> {
        let rows = rows.clone().compact();
        let table = Arc::clone(&self.table);
        let value = |row: usize, number: ColumnNumber| rows.value(row, usize::from(number.0) - 1);
        let default = PartitionId::default_of(table.database, table.schema);
        let mut made = Vec::with_capacity(rows.len());
        let mut bytes = Vec::new();
        for row in 0..rows.len() {
            let partition = match table.partition_by.as_slice() {
                [] => default.clone(),
                columns => {
                    let key: Vec<Value> = columns.iter().map(|number| value(row, *number)).collect();
                    partition_of(&table, &key)?
                }
            };
            let key = match (table.key(), keys.and_then(|keys| keys.as_texts())) {
                (Some(_), _) => {
                    self.key(|number| value(row, number), &mut bytes)?;
                    Bytes::copy_from_slice(&bytes)
                }
                (None, Some(keys)) => Bytes::copy_from_slice(keys.get(row)),
                (None, None) => Bytes::copy_from_slice(&self.ids.make()),
            };
            bytes.clear();
            row::encode_with(rows.width(), &mut bytes, |column, out| {
                rows.column(column).write_stored(row, out)
            })
            .map_err(|fault| row_refused(&fault))?;
            if bytes.len() > ROW_BYTES_MAX {
                return Err(too_large("row is too big", bytes.len(), ROW_BYTES_MAX));
            }
            made.push(NewRow { partition, key, row: Bytes::copy_from_slice(&bytes) });
        }
        Ok(made)
    }

    /// As [`RowWriter::encode`] of rows that are new and all in one partition, one after the other into a buffer.
    pub fn encode_into(&mut self, rows: &Batch, into: &mut Rows) -> Result<()> {
        let rows = rows.clone().compact();
        let has_key = self.table.key().is_some();
        let mut key = Vec::new();
        for row in 0..rows.len() {
            if has_key {
                self.key(|number| rows.value(row, usize::from(number.0) - 1), &mut key)?;
            } else {
                key.clear();
                key.extend_from_slice(&self.ids.make());
            }
            into.push(&key, |out| {
                let start = out.len();
                row::encode_with(rows.width(), out, |column, out| rows.column(column).write_stored(row, out))
                    .map_err(|fault| row_refused(&fault))?;
                let bytes = out.len() - start;
                if bytes > ROW_BYTES_MAX {
                    return Err(too_large("row is too big", bytes, ROW_BYTES_MAX));
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// The primary key of a row, as bytes.
    fn key(&self, value: impl Fn(ColumnNumber) -> Value, bytes: &mut Vec<u8>) -> Result<()> {
        bytes.clear();
        for part in self.table.key().map_or(&[][..], |index| &index.parts) {
            key::encode_part(bytes, &value(part.column), part.order)
                .map_err(|fault| Error::internal(fault.to_string()))?;
        }
        if bytes.len() > KEY_BYTES_MAX {
            let name = self.table.key().map_or("", |index| index.name.as_str());
            return Err(too_large(
                &format!("index row size exceeds the maximum for index \"{name}\""),
                bytes.len(),
                KEY_BYTES_MAX,
            ));
        }
        Ok(())
    }
}

/// `54000`.
fn too_large(message: &str, bytes: usize, bytes_max: usize) -> Error {
    Error::new(Code::ProgramLimitExceeded, format!("{message}: size {bytes}, maximum size {bytes_max}"))
}

fn row_refused(fault: &row::RowError) -> Error {
    match fault {
        row::RowError::ColumnCount { .. } => Error::new(Code::TooManyColumns, fault.to_string()),
        row::RowError::TooLarge => Error::new(Code::ProgramLimitExceeded, fault.to_string()),
        row::RowError::Mismatch { .. }
        | row::RowError::Format { .. }
        | row::RowError::Malformed
        | row::RowError::MalformedColumn { .. } => Error::internal(fault.to_string()),
    }
}
