//! Packed keys: rows of key columns as bytes, so that hashing, grouping and sorting compare memory.
//!
//! Invariants:
//! - Two rows have equal bytes exactly when their values are equal as SQL groups them (null equals null, 1.0 equals 1.00,
//!   -0 equals 0, `character(n)` ignores trailing blanks).
//! - Byte order is the order that was asked for, part by part, as `Value::cmp_sql` sees it.
//! - The bytes live only as long as a statement; they are no storage format (`model::key` is).

mod encode;
mod table;

use model::key::KeyPart;

use super::Column;

pub use encode::encode_value;
pub use table::{Found, KeyTable};

/// The keys of some rows.
#[derive(Clone, Debug, Default)]
pub struct Keys {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    /// Rows with a null among their key columns; empty if there is none.
    nulls: Vec<bool>,
}

impl Keys {
    /// The keys of all rows of equally long columns, each part sorting in its own way.
    pub fn of(columns: &[&Column], parts: &[KeyPart], rows: usize) -> Self {
        let mut keys = Self { bytes: Vec::with_capacity(rows * columns.len() * 9), ..Self::default() };
        keys.ends.reserve(rows);
        for row in 0..rows {
            for (index, column) in columns.iter().enumerate() {
                encode::encode(&mut keys.bytes, column, row, parts.get(index).copied().unwrap_or_default());
            }
            keys.ends.push(keys.bytes.len());
        }
        for column in columns.iter().filter(|column| column.has_nulls()) {
            keys.nulls.resize(rows, false);
            for (any, null) in keys.nulls.iter_mut().zip(column.nulls()) {
                *any |= null;
            }
        }
        keys
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// One key.
    #[inline]
    pub fn get(&self, row: usize) -> &[u8] {
        let from = if row == 0 { 0 } else { self.ends[row - 1] };
        &self.bytes[from..self.ends[row]]
    }

    /// Whether a key column of a row is null.
    #[inline]
    pub fn has_null(&self, row: usize) -> bool {
        !self.nulls.is_empty() && self.nulls[row]
    }

    /// Appends a key.
    pub fn push(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
    }

    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        self.bytes.capacity() + self.ends.capacity() * 8 + self.nulls.capacity()
    }
}
