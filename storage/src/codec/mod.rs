//! The binary forms of what outlives a process: log entries, commands and outcomes, descriptors, values of the state.
//! `docs/formats/entry.md` and `docs/formats/keyspace.md` draw them.
//!
//! Invariants:
//! - One value has one form; decoding gives back an equal value.
//! - Decoding never panics and never reserves more memory than the input is long, whatever the bytes.
//! - A number that is not known (a kind, a version) is an error of its own: the replica stops, it does not guess.
//! - `varint` is unsigned LEB128 in its shortest form; signed numbers are zigzag; texts and bytes have their length before
//!   them; an option is one byte, 0 or 1.
//!
//! Not here: keys ([`crate::keyspace`], `model::key`), rows (`model::row`), records of the log ([`crate::log`]).

pub mod catalog;
pub mod command;
pub mod control;
pub mod entry;
pub mod state;
#[cfg(test)]
mod tests;
mod value;

use bytes::Bytes;

/// Why bytes do not decode.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// They are not what they should be.
    #[error("{what} is malformed at byte {offset}")]
    Malformed {
        /// What was being read.
        what: &'static str,
        /// Where.
        offset: usize,
    },
    /// They name something this version does not know.
    #[error("{what} has number {number}, which this version does not know")]
    Unknown {
        /// What.
        what: &'static str,
        /// Its number.
        number: u64,
    },
}

/// A result of decoding.
pub type Result<T> = std::result::Result<T, Error>;

/// Appends primitives.
pub(crate) trait Put {
    fn put_varint(&mut self, value: u64);
    fn put_signed(&mut self, value: i64);
    fn put_blob(&mut self, bytes: &[u8]);
    fn put_bool(&mut self, value: bool);
    fn put_u128(&mut self, value: u128);
}

impl Put for Vec<u8> {
    fn put_varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.push(value as u8);
    }

    fn put_signed(&mut self, value: i64) {
        self.put_varint(((value << 1) ^ (value >> 63)) as u64);
    }

    fn put_blob(&mut self, bytes: &[u8]) {
        self.put_varint(bytes.len() as u64);
        self.extend_from_slice(bytes);
    }

    fn put_bool(&mut self, value: bool) {
        self.push(u8::from(value));
    }

    fn put_u128(&mut self, value: u128) {
        self.extend_from_slice(&value.to_le_bytes());
    }
}

/// Appends an option: its presence, then what `put` writes.
pub(crate) fn put_option<T>(out: &mut Vec<u8>, value: Option<T>, put: impl FnOnce(&mut Vec<u8>, T)) {
    match value {
        None => out.push(0),
        Some(value) => {
            out.push(1);
            put(out, value);
        }
    }
}

/// Appends a list: its length, then each item.
pub(crate) fn put_list<'a, T: 'a>(
    out: &mut Vec<u8>,
    items: impl ExactSizeIterator<Item = &'a T>,
    mut put: impl FnMut(&mut Vec<u8>, &'a T),
) {
    out.put_varint(items.len() as u64);
    for item in items {
        put(out, item);
    }
}

/// Reads primitives from the front; bytes taken out share the source's memory.
pub(crate) struct Reader<'a> {
    source: &'a Bytes,
    at: usize,
    what: &'static str,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(source: &'a Bytes, what: &'static str) -> Self {
        Self { source, at: 0, what }
    }

    pub(crate) fn malformed(&self) -> Error {
        Error::Malformed { what: self.what, offset: self.at }
    }

    pub(crate) fn left(&self) -> usize {
        self.source.len() - self.at
    }

    fn chunk<const N: usize>(&mut self) -> Result<[u8; N]> {
        let rest = &self.source[self.at..];
        let chunk = *rest.first_chunk::<N>().ok_or_else(|| self.malformed())?;
        self.at += N;
        Ok(chunk)
    }

    pub(crate) fn u8(&mut self) -> Result<u8> {
        let byte = *self.source.get(self.at).ok_or_else(|| self.malformed())?;
        self.at += 1;
        Ok(byte)
    }

    pub(crate) fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.chunk()?))
    }

    pub(crate) fn u128(&mut self) -> Result<u128> {
        Ok(u128::from_le_bytes(self.chunk()?))
    }

    pub(crate) fn bool(&mut self) -> Result<bool> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.malformed()),
        }
    }

    pub(crate) fn varint(&mut self) -> Result<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(self.malformed());
            }
            value |= bits << shift;
            if byte < 0x80 {
                // The shortest form ends in a byte that counts.
                return if byte == 0 && shift > 0 { Err(self.malformed()) } else { Ok(value) };
            }
        }
        Err(self.malformed())
    }

    pub(crate) fn signed(&mut self) -> Result<i64> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    pub(crate) fn u32(&mut self) -> Result<u32> {
        u32::try_from(self.varint()?).map_err(|_| self.malformed())
    }

    pub(crate) fn u16(&mut self) -> Result<u16> {
        u16::try_from(self.varint()?).map_err(|_| self.malformed())
    }

    pub(crate) fn i32(&mut self) -> Result<i32> {
        i32::try_from(self.signed()?).map_err(|_| self.malformed())
    }

    pub(crate) fn blob(&mut self) -> Result<Bytes> {
        let length = usize::try_from(self.varint()?).map_err(|_| self.malformed())?;
        if length > self.left() {
            return Err(self.malformed());
        }
        let blob = self.source.slice(self.at..self.at + length);
        self.at += length;
        Ok(blob)
    }

    pub(crate) fn text(&mut self) -> Result<String> {
        let bytes = self.blob()?;
        match std::str::from_utf8(&bytes) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => Err(self.malformed()),
        }
    }

    pub(crate) fn option<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<Option<T>> {
        if self.bool()? { read(self).map(Some) } else { Ok(None) }
    }

    /// A list; every item takes at least one byte, so a length beyond what is left is a lie.
    pub(crate) fn list<T>(&mut self, mut read: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let length = usize::try_from(self.varint()?).map_err(|_| self.malformed())?;
        if length > self.left() {
            return Err(self.malformed());
        }
        let mut items = Vec::with_capacity(length.min(1_024));
        for _ in 0..length {
            items.push(read(self)?);
        }
        Ok(items)
    }

    pub(crate) fn unknown<T>(&self, what: &'static str, number: u64) -> Result<T> {
        Err(Error::Unknown { what, number })
    }

    /// All must have been read.
    pub(crate) fn end(self) -> Result<()> {
        if self.left() == 0 { Ok(()) } else { Err(self.malformed()) }
    }
}
