//! Rows: the stored form of a row's columns, made so that a projection reads only what it needs.
//!
//! The format is frozen and drawn byte by byte in `docs/formats/row.md`:
//!
//! ```text
//! format u8 · flags u8 · revision u64 · updated_at i64 · columns u16 · nulls ⌈columns/8⌉ · ends[columns] · data
//! ```
//!
//! All numbers are little-endian. Column n (attnum - 1, never reused) lies in `data[ends[n-1]..ends[n]]`; a set bit in
//! `nulls` says null. Flag bit 0 says that ends are u32, else u16.
//!
//! Invariants:
//! - Any column is found in O(1). A column beyond the stored count reads as `None`: the descriptor's default.
//! - Revision and time of the last write stand at fixed offsets, patched by `apply` after encoding.
//! - Reading never panics on any bytes.
//!
//! Not here: keys (`key`), what a column number means (`schema`).

use std::fmt;

use crate::types::Type;
use crate::value::Value;

mod column;
#[cfg(test)]
mod tests;

pub use column::{read_value, write_value};

/// The format written today.
const FORMAT: u8 = 1;
const WIDE_ENDS: u8 = 1;
const REVISION: usize = 2;
const UPDATED_AT: usize = 10;
const COUNT: usize = 18;
/// Bytes before the null bitmap.
pub const HEADER_LEN: usize = 20;
/// Most columns of a row.
pub const COLUMNS_MAX: usize = 1_600;

/// Why a row cannot be made or read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowError {
    /// More columns than a row may have, or another number of values than types.
    ColumnCount {
        /// Values given.
        values: usize,
        /// Types given.
        types: usize,
    },
    /// A value that does not fit its column's type.
    Mismatch {
        /// The column, from 0.
        column: usize,
        /// The column's type.
        of: Type,
    },
    /// Written by a newer version.
    Format {
        /// The format byte.
        found: u8,
    },
    /// The bytes are no row.
    Malformed,
    /// The bytes of a column are no value of its type.
    MalformedColumn {
        /// The column, from 0.
        column: usize,
    },
    /// More than 4 GiB.
    TooLarge,
}

impl fmt::Display for RowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RowError::ColumnCount { values, types } => write!(f, "{values} values for {types} columns"),
            RowError::Mismatch { column, of } => write!(f, "value of column {column} is not of type {of}"),
            RowError::Format { found } => write!(f, "row format {found} is unknown"),
            RowError::Malformed => f.write_str("malformed row"),
            RowError::MalformedColumn { column } => write!(f, "malformed value in column {column}"),
            RowError::TooLarge => f.write_str("row is larger than 4 GiB"),
        }
    }
}

impl std::error::Error for RowError {}

/// Appends a row with revision and time zero. On error `out` is as before.
pub fn encode(values: &[Value], types: &[Type], out: &mut Vec<u8>) -> Result<(), RowError> {
    if values.len() != types.len() {
        return Err(RowError::ColumnCount { values: values.len(), types: types.len() });
    }
    encode_with(values.len(), out, |column, out| {
        let (value, of) = (&values[column], types[column]);
        if value.is_null() {
            return Ok(false);
        }
        write_value(value, of, out).ok_or(RowError::Mismatch { column, of })?;
        Ok(true)
    })
}

/// As [`encode`], of columns that `write` appends one after the other, each in the form of [`write_value`]; it answers
/// false, having appended nothing, for null.
pub fn encode_with(
    columns: usize,
    out: &mut Vec<u8>,
    write: impl FnMut(usize, &mut Vec<u8>) -> Result<bool, RowError>,
) -> Result<(), RowError> {
    let start = out.len();
    encode_at(start, columns, out, write).inspect_err(|_| out.truncate(start))
}

fn encode_at(
    start: usize,
    columns: usize,
    out: &mut Vec<u8>,
    mut write: impl FnMut(usize, &mut Vec<u8>) -> Result<bool, RowError>,
) -> Result<(), RowError> {
    if columns > COLUMNS_MAX {
        return Err(RowError::ColumnCount { values: columns, types: columns });
    }
    out.extend_from_slice(&[0; HEADER_LEN]);
    out[start] = FORMAT;
    out[start + COUNT..start + HEADER_LEN].copy_from_slice(&(columns as u16).to_le_bytes());
    let nulls = out.len();
    let ends = nulls + columns.div_ceil(8);
    let data = ends + columns * 2;
    out.resize(data, 0);
    let mut wide: Option<Vec<u32>> = None;
    for column in 0..columns {
        if !write(column, out)? {
            out[nulls + column / 8] |= 1 << (column % 8);
        }
        let end = out.len() - data;
        if end > usize::from(u16::MAX) && wide.is_none() {
            wide = Some((0..column).map(|before| u32::from(short_end(out, ends, before))).collect());
        }
        match &mut wide {
            Some(wide) => wide.push(u32::try_from(end).map_err(|_| RowError::TooLarge)?),
            None => {
                out[ends + column * 2..ends + column * 2 + 2].copy_from_slice(&(end as u16).to_le_bytes())
            }
        }
    }
    if let Some(wide) = wide {
        // Rare, so the data is moved once instead of being measured beforehand.
        out[start + 1] |= WIDE_ENDS;
        let table = wide.iter().flat_map(|end| end.to_le_bytes());
        out.splice(ends..data, table);
    }
    Ok(())
}

fn short_end(row: &[u8], ends: usize, column: usize) -> u16 {
    u16::from_le_bytes([row[ends + column * 2], row[ends + column * 2 + 1]])
}

/// Sets the revision of an encoded row. `row` must begin with a row made by `encode`.
pub fn set_revision(row: &mut [u8], revision: u64) {
    row[REVISION..UPDATED_AT].copy_from_slice(&revision.to_le_bytes());
}

/// Sets the time of the last write, logged wall microseconds. `row` must begin with a row made by `encode`.
pub fn set_updated_at(row: &mut [u8], micros: i64) {
    row[UPDATED_AT..COUNT].copy_from_slice(&micros.to_le_bytes());
}

/// A look at an encoded row that decodes only what is asked for.
#[derive(Clone, Copy, Debug)]
pub struct RowView<'a> {
    bytes: &'a [u8],
    count: usize,
    ends: usize,
    width: usize,
    data: usize,
}

impl<'a> RowView<'a> {
    /// Looks at bytes that hold exactly one row.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<RowView<'a>, RowError> {
        let header = bytes.first_chunk::<HEADER_LEN>().ok_or(RowError::Malformed)?;
        if header[0] != FORMAT || header[1] & !WIDE_ENDS != 0 {
            return Err(RowError::Format { found: header[0] });
        }
        let count = usize::from(u16::from_le_bytes([header[COUNT], header[COUNT + 1]]));
        let width = if header[1] & WIDE_ENDS == 0 { 2 } else { 4 };
        let ends = HEADER_LEN + count.div_ceil(8);
        let data = ends + count * width;
        if count > COLUMNS_MAX || bytes.len() < data {
            return Err(RowError::Malformed);
        }
        let view = RowView { bytes, count, ends, width, data };
        if view.start_of(count) != bytes.len() - data {
            return Err(RowError::Malformed);
        }
        Ok(view)
    }

    /// Where column `column` starts in the data, which is where its predecessor ends.
    #[inline]
    fn start_of(&self, column: usize) -> usize {
        if column == 0 {
            return 0;
        }
        let at = self.ends + (column - 1) * self.width;
        let word = &self.bytes[at..at + self.width];
        match word {
            [a, b] => usize::from(u16::from_le_bytes([*a, *b])),
            [a, b, c, d] => u32::from_le_bytes([*a, *b, *c, *d]) as usize,
            _ => 0,
        }
    }

    /// The bytes of the whole row.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The revision of the command that wrote the row.
    pub fn revision(&self) -> u64 {
        u64::from_le_bytes(self.header_word(REVISION))
    }

    /// When the row was written, in logged wall microseconds.
    pub fn updated_at(&self) -> i64 {
        i64::from_le_bytes(self.header_word(UPDATED_AT))
    }

    fn header_word(&self, at: usize) -> [u8; 8] {
        let mut word = [0; 8];
        word.copy_from_slice(&self.bytes[at..at + 8]);
        word
    }

    /// Number of stored columns.
    #[inline]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether no column is stored.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether the column is stored and null.
    #[inline]
    pub fn is_null(&self, column: usize) -> bool {
        column < self.count && self.bytes[HEADER_LEN + column / 8] >> (column % 8) & 1 == 1
    }

    /// The bytes of a column; `None` when null, not stored, or damaged.
    #[inline]
    pub fn raw(&self, column: usize) -> Option<&'a [u8]> {
        if column >= self.count || self.is_null(column) {
            return None;
        }
        self.bytes[self.data..].get(self.start_of(column)..self.start_of(column + 1))
    }

    /// The value of a column; `None` when it is not stored, so that the descriptor's default holds.
    #[inline]
    pub fn column(&self, column: usize, of: Type) -> Result<Option<Value>, RowError> {
        if column >= self.count {
            return Ok(None);
        }
        if self.is_null(column) {
            return Ok(Some(Value::Null));
        }
        let value = self.raw(column).and_then(|bytes| read_value(bytes, of));
        value.map(Some).ok_or(RowError::MalformedColumn { column })
    }

    /// The stored columns, decoded; types beyond the stored count are left out.
    pub fn decode(&self, types: &[Type]) -> Result<Vec<Value>, RowError> {
        let mut values = Vec::with_capacity(types.len().min(self.count));
        for (column, of) in types.iter().enumerate() {
            match self.column(column, *of)? {
                Some(value) => values.push(value),
                None => break,
            }
        }
        Ok(values)
    }

    /// An integer or OID column of any width, told by its length; `None` when null, not stored or something else.
    /// The caller knows from the descriptor that the column is one; OIDs come back unsigned only by `column`.
    #[inline]
    pub fn i64_at(&self, column: usize) -> Option<i64> {
        match self.raw(column)? {
            [a, b] => Some(i64::from(i16::from_le_bytes([*a, *b]))),
            [a, b, c, d] => Some(i64::from(i32::from_le_bytes([*a, *b, *c, *d]))),
            bytes => bytes.try_into().ok().map(i64::from_le_bytes),
        }
    }

    /// A floating-point column of either width; `None` when null, not stored or something else.
    #[inline]
    pub fn f64_at(&self, column: usize) -> Option<f64> {
        match self.raw(column)? {
            [a, b, c, d] => Some(f64::from(f32::from_le_bytes([*a, *b, *c, *d]))),
            bytes => bytes.try_into().ok().map(f64::from_le_bytes),
        }
    }

    /// A boolean column; `None` when null, not stored or something else.
    #[inline]
    pub fn bool_at(&self, column: usize) -> Option<bool> {
        match self.raw(column)? {
            [0] => Some(false),
            [1] => Some(true),
            _ => None,
        }
    }

    /// A text column without a copy; `None` when null, not stored or something else.
    #[inline]
    pub fn text_at(&self, column: usize) -> Option<&'a str> {
        std::str::from_utf8(self.raw(column)?).ok()
    }
}
