//! A held descriptor made ready for `apply`: column types, and the keys of index entries.

use bytes::Bytes;
use model::{
    Type, Value,
    id::{ColumnNumber, IndexId},
    key::{self, KeyPart},
    row::{RowError, RowView},
    schema::{IndexState, Table},
};

use crate::codec::entry::Held;

/// A table's descriptor with what is needed of it for every row.
#[derive(Debug)]
pub struct Compiled {
    held: Held,
    types: Vec<Type>,
    indexes: Vec<IndexPlan>,
}

/// An index that is kept up: every one but the primary key's and the invalid.
#[derive(Debug)]
pub(super) struct IndexPlan {
    pub(super) id: IndexId,
    pub(super) unique: bool,
    pub(super) building: bool,
    nulls_not_distinct: bool,
    parts: Vec<(ColumnNumber, KeyPart)>,
    predicate: Option<ColumnNumber>,
}

/// Where a row stands in an index.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct IndexKey {
    /// The key of the entry, behind the index's prefix.
    pub(super) entry: Vec<u8>,
    /// How many bytes of it are the index's own columns.
    pub(super) columns_bytes: usize,
    /// Whether no other row may have it.
    pub(super) exclusive: bool,
}

impl IndexKey {
    /// The bytes of the index's own columns.
    pub(super) fn columns(&self) -> &[u8] {
        &self.entry[..self.columns_bytes]
    }
}

/// Why a row has no key in an index.
#[derive(Debug)]
pub(super) enum IndexFault {
    /// The row's bytes are damaged.
    Row(RowError),
    /// A column's value has no order.
    Unordered(key::KeyError),
}

impl Compiled {
    /// Makes a descriptor ready.
    pub fn new(held: Held) -> Self {
        let table = &held.table;
        let indexes = table
            .indexes
            .iter()
            .filter(|index| Some(index.id) != table.primary_key && index.state != IndexState::Invalid)
            .map(|index| IndexPlan {
                id: index.id,
                unique: index.unique,
                building: index.state == IndexState::Building,
                nulls_not_distinct: index.nulls_not_distinct,
                parts: index.parts.iter().map(|part| (part.column, part.order)).collect(),
                predicate: index.predicate,
            })
            .collect();
        Self { types: table.column_types(), indexes, held }
    }

    /// The descriptor.
    pub fn held(&self) -> &Held {
        &self.held
    }

    /// The table.
    pub fn table(&self) -> &Table {
        &self.held.table
    }

    /// The keys of unique indexes that only this row may have: what an owner locks before it writes the row. A row that
    /// does not decode has none here; `apply` judges it.
    pub fn unique_keys(&self, row: &[u8]) -> Vec<(IndexId, Bytes)> {
        let Ok(view) = RowView::new(row) else { return Vec::new() };
        let unique = self.indexes.iter().filter(|index| index.unique);
        let key = |index: &IndexPlan| match self.index_key(index, &view, &[]) {
            Ok(Some(key)) if key.exclusive => Some((index.id, Bytes::copy_from_slice(key.columns()))),
            Ok(_) | Err(_) => None,
        };
        unique.filter_map(key).collect()
    }

    /// The types of all columns ever, by number.
    pub fn types(&self) -> &[Type] {
        &self.types
    }

    /// Whether this is the index that rows themselves are in the order of.
    pub(super) fn is_primary(&self, index: IndexId) -> bool {
        self.held.table.primary_key == Some(index)
    }

    pub(super) fn indexes(&self) -> &[IndexPlan] {
        &self.indexes
    }

    pub(super) fn find_index(&self, id: IndexId) -> Option<&IndexPlan> {
        self.indexes.iter().find(|index| index.id == id)
    }

    /// The value of a column; what is not stored is what the descriptor says of rows from before the column.
    pub(super) fn column(&self, row: &RowView<'_>, number: ColumnNumber) -> Result<Value, RowError> {
        let at = usize::from(number.0) - 1;
        match row.column(at, self.types[at])? {
            Some(value) => Ok(value),
            None => Ok(self.held.table.columns[at].missing.clone().unwrap_or(Value::Null)),
        }
    }

    /// All columns of a row.
    pub(super) fn decode(&self, row: &RowView<'_>) -> Result<Vec<Value>, RowError> {
        let mut values = row.decode(&self.types)?;
        for column in &self.held.table.columns[values.len()..] {
            values.push(column.missing.clone().unwrap_or(Value::Null));
        }
        Ok(values)
    }

    /// Where a row stands in an index; none if a partial index leaves it out.
    pub(super) fn index_key(
        &self,
        index: &IndexPlan,
        row: &RowView<'_>,
        row_key: &[u8],
    ) -> Result<Option<IndexKey>, IndexFault> {
        if let Some(predicate) = index.predicate
            && self.column(row, predicate).map_err(IndexFault::Row)?.as_bool() != Some(true)
        {
            return Ok(None);
        }
        let mut entry = Vec::with_capacity(16 * index.parts.len() + row_key.len());
        let mut null = false;
        for (column, order) in &index.parts {
            let value = self.column(row, *column).map_err(IndexFault::Row)?;
            null |= value.is_null();
            key::encode_part(&mut entry, &value, *order).map_err(IndexFault::Unordered)?;
        }
        let columns_bytes = entry.len();
        let exclusive = index.unique && (!null || index.nulls_not_distinct);
        if !exclusive {
            entry.extend_from_slice(row_key);
        }
        Ok(Some(IndexKey { entry, columns_bytes, exclusive }))
    }
}
