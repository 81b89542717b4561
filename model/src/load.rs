//! Loads: rows of one table on their way to their partition's owner, a buffer at a time, before the command that adds them.
//!
//! Invariants:
//! - What was brought is seen by nobody until the command of the load is applied, and by everybody then.
//! - The bytes are those of a part of a load in the log (`docs/formats/entry.md`): per row the length of its key (u16), the
//!   key, the length of the row (u32), the row; lengths are little-endian.
//!
//! Not here: how they are staged and applied (`storage::shard`).

use bytes::Bytes;

use crate::id::{Epoch, TableId};

/// A load that goes on: which one of which claim of its shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoadId {
    /// Under which claim it was begun; it dies with it.
    pub epoch: Epoch,
    /// Which of that claim's.
    pub number: u64,
}

/// A load whose rows are all there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Loaded {
    /// Which.
    pub id: LoadId,
    /// In how many buffers they came.
    pub parts: u32,
    /// Whose they are.
    pub table: TableId,
}

/// About so many bytes of rows are brought at once.
pub const PART_BYTES: usize = 2 << 20;

/// And never more than these: a part fits a record of the smallest log.
pub const PART_BYTES_MAX: usize = PART_BYTES + PART_BYTES / 2;

/// Rows one after the other in one buffer.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    bytes: Vec<u8>,
    count: usize,
}

impl Rows {
    /// No rows, with room for so many bytes.
    pub fn with_capacity(bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes), count: 0 }
    }

    /// Adds a row under a key; `write` appends its bytes. On an error nothing is added.
    ///
    /// # Panics
    ///
    /// If the key has more than 65,535 bytes, or the row 4 GiB; both are refused long before.
    pub fn push<E>(
        &mut self,
        key: &[u8],
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        let start = self.bytes.len();
        let length = u16::try_from(key.len()).expect("a key's length was looked at");
        self.bytes.extend_from_slice(&length.to_le_bytes());
        self.bytes.extend_from_slice(key);
        let at = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        write(&mut self.bytes).inspect_err(|_| self.bytes.truncate(start))?;
        let length = u32::try_from(self.bytes.len() - at - 4).expect("a row's length was looked at");
        self.bytes[at..at + 4].copy_from_slice(&length.to_le_bytes());
        self.count += 1;
        Ok(())
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// How many bytes they take.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The buffer, as parts of at most [`PART_BYTES_MAX`]: a row that a part cuts off goes on in the next.
    pub fn into_parts(self) -> impl Iterator<Item = Bytes> + Send + use<> {
        let mut rest = Bytes::from(self.bytes);
        std::iter::from_fn(move || {
            let part = rest.split_to(rest.len().min(PART_BYTES_MAX));
            (!part.is_empty()).then_some(part)
        })
    }
}

/// How many bytes at the beginning of a part are whole rows: all of them, or the last row goes on in the next part.
pub fn whole_rows(part: &[u8]) -> usize {
    let mut rows = RowsIter::new(part);
    while rows.take_row().is_some() {}
    part.len() - rows.rest.len()
}

/// The rows in a buffer made by [`Rows`], in order: key and row of each. What is no row ends it with [`Malformed`].
#[derive(Clone, Debug)]
pub struct RowsIter<'a> {
    rest: &'a [u8],
}

/// The bytes are no rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed;

impl<'a> RowsIter<'a> {
    /// Of a buffer.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    fn take_row(&mut self) -> Option<(&'a [u8], &'a [u8])> {
        let (length, rest) = self.rest.split_first_chunk::<2>()?;
        let (key, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let (row, rest) = rest.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)?;
        self.rest = rest;
        Some((key, row))
    }
}

impl<'a> Iterator for RowsIter<'a> {
    type Item = Result<(&'a [u8], &'a [u8]), Malformed>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let taken = self.take_row();
        if taken.is_none() {
            self.rest = &[];
        }
        Some(taken.ok_or(Malformed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(given: &[(&str, &str)]) -> Bytes {
        let mut rows = Rows::default();
        for (key, row) in given {
            let put = |out: &mut Vec<u8>| {
                out.extend_from_slice(row.as_bytes());
                Ok::<_, ()>(())
            };
            rows.push(key.as_bytes(), put).expect("nothing fails");
        }
        assert_eq!(rows.len(), given.len());
        rows.into_parts().next().unwrap_or_default()
    }

    #[test]
    fn rows_come_back_as_they_went() {
        let bytes = rows(&[("a", "one"), ("", ""), ("b", "two")]);
        assert_eq!(&bytes[..10], b"\x01\x00a\x03\x00\x00\x00one");
        let back: Result<Vec<_>, _> = RowsIter::new(&bytes).collect();
        let expected: [(&[u8], &[u8]); 3] = [(b"a", b"one"), (b"", b""), (b"b", b"two")];
        assert_eq!(back, Ok(expected.to_vec()));
    }

    #[test]
    fn a_row_that_cannot_be_written_leaves_nothing() {
        let mut rows = Rows::default();
        let refused = rows.push(b"a", |out| {
            out.push(1);
            Err("no")
        });
        assert_eq!((refused, rows.bytes(), rows.len()), (Err("no"), 0, 0));
    }

    #[test]
    fn a_buffer_that_is_cut_anywhere_is_refused() {
        let bytes = rows(&[("a", "one"), ("b", "two")]);
        for cut in 1..bytes.len() {
            let back: Result<Vec<_>, _> = RowsIter::new(&bytes[..cut]).collect();
            assert_eq!(back.is_ok(), cut == 10, "{cut}");
            assert_eq!(whole_rows(&bytes[..cut]), if cut < 10 { 0 } else { 10 }, "{cut}");
        }
        assert_eq!(whole_rows(&bytes), bytes.len());
    }

    #[test]
    fn a_wide_row_is_cut_into_parts_that_fit() {
        let wide = "x".repeat(2 * PART_BYTES_MAX);
        let mut rows = Rows::default();
        for row in ["small", &wide, "last"] {
            let put = |out: &mut Vec<u8>| {
                out.extend_from_slice(row.as_bytes());
                Ok::<_, ()>(())
            };
            rows.push(b"k", put).expect("nothing fails");
        }
        let whole = rows.clone().bytes;
        let parts: Vec<Bytes> = rows.into_parts().collect();
        assert_eq!(parts.iter().map(Bytes::len).collect::<Vec<_>>(), [PART_BYTES_MAX, PART_BYTES_MAX, 30]);
        assert_eq!(parts.concat(), whole);
        assert_eq!(whole_rows(&parts[0]), 12);
        assert_eq!(Rows::default().into_parts().count(), 0);
    }
}
