//! Batches: writes that become visible together.

use bytes::Bytes;

use super::Keyspace;

/// Writes over any keyspaces of one engine, in order; a later write of a key wins.
#[derive(Debug, Default)]
pub struct Batch {
    pub(super) writes: Vec<(Keyspace, Bytes, Option<Bytes>)>,
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty batch with room for `writes`.
    pub fn with_capacity(writes: usize) -> Self {
        Self { writes: Vec::with_capacity(writes) }
    }

    /// Puts a value.
    pub fn put(&mut self, keyspace: &Keyspace, key: impl Into<Bytes>, value: impl Into<Bytes>) {
        self.writes.push((keyspace.clone(), key.into(), Some(value.into())));
    }

    /// Removes a key.
    pub fn delete(&mut self, keyspace: &Keyspace, key: impl Into<Bytes>) {
        self.writes.push((keyspace.clone(), key.into(), None));
    }

    /// How many writes there are.
    pub fn len(&self) -> usize {
        self.writes.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }
}
