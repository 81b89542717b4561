//! Plans that are pinned to keys and run without batches: get by key, join by key (`join`), a
//! short range of keys (`range`), update by key (`program`).
//!
//! Invariants:
//! - A direct plan means exactly what its batch plan means: same access, same filter, same expressions, the same `eval`.
//! - It reads with one call, allocates the key and the row that it gives, and nothing per column beyond that.

mod join;
mod program;
mod range;

pub(crate) use join::DirectJoin;
pub(crate) use program::DirectUpdate;
pub(crate) use range::DirectRange;

use std::sync::Arc;

use bytes::Bytes;
use model::{
    Error, Result, Type, Value,
    id::{ColumnNumber, IndexId, PartitionId},
    key,
    port::{Dispatch, Reply},
    read::{At, Stored},
    row::RowView,
    schema::{IndexPart, Table},
    value::Timestamp,
};

use crate::{
    context::Context,
    eval,
    expr::{Expr, Kind},
    functions::Volatility,
    plan::{Access, Keys, Node, Partitions, Plan, ScanColumn},
};

/// A statement that reads one row by its key.
#[derive(Debug)]
pub(crate) struct Direct {
    table: Arc<Table>,
    partition: PartitionId,
    /// The unique index that the key is of; none for the rows' own.
    index: Option<IndexId>,
    parts: Vec<IndexPart>,
    key: Vec<Expr>,
    /// What the scan gives.
    columns: Vec<ScanColumn>,
    filter: Option<Expr>,
    /// What is made of it; none if it is given as it is.
    project: Option<Vec<Expr>>,
}

impl Direct {
    /// The direct form of a plan, if it has one.
    pub(crate) fn find(plan: &Plan) -> Option<Self> {
        let (scan, project) = match &plan.node {
            Node::Scan(scan) => (scan, None),
            Node::Project { input, expressions } => match &input.node {
                Node::Scan(scan) => (scan, Some(expressions.clone())),
                _ => return None,
            },
            _ => return None,
        };
        let Access::Keys { index, keys: Keys::List(keys) } = &scan.access else { return None };
        let [key] = &keys[..] else { return None };
        // Found through an index, the row's own key is not at hand.
        if index.is_some() && scan.columns.contains(&ScanColumn::Key) {
            return None;
        }
        let simple = |expr: &Expr| matches!(expr.kind, Kind::Parameter(_) | Kind::Constant(_));
        if !key.iter().all(simple) || !matches!(scan.partitions, Partitions::Default) {
            return None;
        }
        if !scan.filter.iter().all(is_pure) || !project.iter().flatten().all(is_pure) {
            return None;
        }
        // Columns that are only picked are read in the order in which they are given.
        let picked = project.iter().flatten().map(Expr::as_column).collect::<Option<Vec<usize>>>();
        let (columns, project) = match (project, picked) {
            (Some(_), Some(places)) if scan.filter.is_none() => {
                (places.into_iter().map(|place| scan.columns[place]).collect(), None)
            }
            (project, _) => (scan.columns.clone(), project),
        };
        let parts = index.map_or_else(|| scan.table.key(), |id| scan.table.find_index(id))?.parts.clone();
        let direct = Self::of(&scan.table, parts, columns);
        Some(Self { index: *index, key: key.clone(), filter: scan.filter.clone(), project, ..direct })
    }

    /// Columns of one row of a table, whose own key is given when it is read.
    fn of(table: &Arc<Table>, parts: Vec<IndexPart>, columns: Vec<ScanColumn>) -> Self {
        Self {
            partition: PartitionId::default_of(table.database, table.schema),
            index: None,
            parts,
            table: table.clone(),
            key: Vec::new(),
            columns,
            filter: None,
            project: None,
        }
    }

    /// Where the row is: none if a part of the key is null.
    pub(crate) fn locate(&self, parameters: &[Value]) -> Result<Option<Vec<u8>>> {
        let mut bytes = Vec::with_capacity(16 * self.parts.len());
        for (expr, part) in self.key.iter().zip(&self.parts) {
            let value = match &expr.kind {
                Kind::Constant(value) => value,
                Kind::Parameter(number) => {
                    parameters.get(*number).ok_or_else(|| Error::internal("a parameter without a value"))?
                }
                _ => return Err(Error::internal("a direct key is a constant or a parameter")),
            };
            if value.is_null() {
                return Ok(None);
            }
            key::encode_part(&mut bytes, value, part.order)
                .map_err(|error| Error::internal(error.to_string()))?;
        }
        Ok(Some(bytes))
    }

    pub(crate) fn partition(&self) -> &PartitionId {
        &self.partition
    }

    pub(crate) fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// Whether the key is the row's own, and not that of an index.
    pub(crate) fn is_by_own_key(&self) -> bool {
        self.index.is_none()
    }

    /// Reads the row.
    pub(crate) fn get(&self, dispatch: &dyn Dispatch, key: &[u8], at: &At) -> Reply<Option<Bytes>> {
        if self.index.is_none() {
            return dispatch.get(&self.partition, self.table.id, key, at);
        }
        let keys = vec![Bytes::copy_from_slice(key)];
        let first = |found: Vec<Option<Stored>>| found.into_iter().flatten().next().map(|stored| stored.row);
        match dispatch.get_many(&self.partition, self.table.id, self.index, keys, at) {
            Reply::Now(answer) => Reply::Now(answer.map(|answer| answer.map(first))),
            Reply::Later(answer) => Reply::later(async move { answer.await.map(first) }),
        }
    }

    /// What the statement gives for a stored row; none if the filter leaves it out.
    /// `context` is asked for only where something must be evaluated.
    pub(crate) fn project(
        &self,
        key: &[u8],
        row: &Bytes,
        context: impl FnOnce() -> Context,
    ) -> Result<Option<Vec<Value>>> {
        let mut values = Vec::with_capacity(self.columns.len());
        self.read(key, row, &mut values)?;
        if self.filter.is_none() && self.project.is_none() {
            return Ok(Some(values));
        }
        let mut context = context();
        if let Some(filter) = &self.filter
            && !eval::is_true(&mut context, filter, &values)?
        {
            return Ok(None);
        }
        match &self.project {
            None => Ok(Some(values)),
            Some(expressions) => {
                let projected: Result<Vec<Value>> =
                    expressions.iter().map(|expr| eval::value(&mut context, expr, &values)).collect();
                projected.map(Some)
            }
        }
    }

    /// Appends what the scan gives of a stored row.
    fn read(&self, key: &[u8], row: &Bytes, values: &mut Vec<Value>) -> Result<()> {
        let view = RowView::new(row).map_err(|error| Error::internal(error.to_string()))?;
        for column in &self.columns {
            values.push(match column {
                ScanColumn::Column(number) | ScanColumn::Presence(number) => self.column(&view, *number)?,
                ScanColumn::Revision => Value::Int8(i64::try_from(view.revision()).unwrap_or(i64::MAX)),
                ScanColumn::UpdatedAt => Value::Timestamptz(Timestamp::from_micros(view.updated_at())?),
                ScanColumn::TableOid => Value::Oid(self.table.id.0),
                ScanColumn::Partition => Value::Bytea(self.partition.as_bytes().to_vec().into()),
                ScanColumn::Key => Value::Bytea(key.to_vec().into()),
                ScanColumn::Row => Value::Bytea(row.to_vec().into()),
            });
        }
        Ok(())
    }

    fn column(&self, view: &RowView<'_>, number: ColumnNumber) -> Result<Value> {
        let column = self.table.column(number);
        let ty: Type = column.data_type;
        let stored =
            view.column(usize::from(number.0) - 1, ty).map_err(|error| Error::internal(error.to_string()))?;
        Ok(stored.unwrap_or_else(|| column.missing.clone().unwrap_or(Value::Null)))
    }
}
/// Whether an expression needs nothing but a row. What is volatile may have to wait for sequence numbers or for the clock.
fn is_pure(expr: &Expr) -> bool {
    expr.volatility() != Volatility::Volatile
        && !expr.any(&mut |expr| matches!(expr.kind, Kind::Subquery(_) | Kind::Outer(_)))
}
