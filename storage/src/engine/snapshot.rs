//! Snapshots: one moment of all keyspaces, and ordered passes over it.

use std::{ops::Bound, sync::Arc};

use bytes::Bytes;

use super::{Keyspace, KeyspaceOf, lsm, memory, sweep};
use crate::error::Result;

/// Values above this are shared with the engine's block instead of being copied out of it.
const COPY_BYTES_MAX: usize = 2_048;

/// One moment of all keyspaces of an engine. Holding it keeps old versions alive.
#[derive(Clone)]
pub struct Snapshot(Of, Option<sweep::Tables>);

#[derive(Clone)]
enum Of {
    Lsm(Arc<lsm::Snapshot>),
    Memory(memory::Snapshot),
}

/// A key and its value, lying in the engine's own memory until they are taken out.
pub struct Pair(PairOf);

enum PairOf {
    Lsm(lsm::Slice, lsm::Slice),
    Memory(Bytes, Bytes),
}

/// An ordered pass over a range; both ends can be taken from.
pub struct Iter(IterOf);

enum IterOf {
    Lsm(lsm::Iter),
    Memory(memory::Iter),
    Empty,
}

impl Snapshot {
    pub(super) fn of_lsm(snapshot: Arc<lsm::Snapshot>) -> Self {
        Self(Of::Lsm(snapshot), None)
    }

    /// A snapshot before which a keyspace had these tables.
    pub(super) fn with_tables(self, tables: sweep::Tables) -> Self {
        Self(self.0, Some(tables))
    }

    #[cfg(test)]
    pub(super) fn sweeps(&self, keyspace: &Keyspace) -> bool {
        match (&self.0, &keyspace.0) {
            (Of::Lsm(_), KeyspaceOf::Lsm(keyspace)) => sweep::is_possible(keyspace, self.1),
            _ => false,
        }
    }

    pub(super) fn of_memory(snapshot: memory::Snapshot) -> Self {
        Self(Of::Memory(snapshot), None)
    }

    /// Where it stands in the order of writes; none in memory.
    pub(crate) fn sequence(&self) -> Option<u64> {
        match &self.0 {
            Of::Lsm(snapshot) => Some(snapshot.seqno()),
            Of::Memory(_) => None,
        }
    }

    /// The value of a key.
    pub fn get(&self, keyspace: &Keyspace, key: &[u8]) -> Result<Option<Bytes>> {
        match (&self.0, &keyspace.0) {
            (Of::Lsm(snapshot), KeyspaceOf::Lsm(keyspace)) => {
                Ok(lsm::get(snapshot, keyspace, key)?.map(to_bytes))
            }
            (Of::Memory(snapshot), KeyspaceOf::Memory(keyspace)) => Ok(snapshot.get(keyspace, key)),
            (Of::Lsm(_), KeyspaceOf::Memory(_)) | (Of::Memory(_), KeyspaceOf::Lsm(_)) => foreign(),
        }
    }

    /// Whether a key is there.
    pub fn contains(&self, keyspace: &Keyspace, key: &[u8]) -> Result<bool> {
        match (&self.0, &keyspace.0) {
            (Of::Lsm(snapshot), KeyspaceOf::Lsm(keyspace)) => lsm::contains(snapshot, keyspace, key),
            (Of::Memory(snapshot), KeyspaceOf::Memory(keyspace)) => Ok(snapshot.get(keyspace, key).is_some()),
            (Of::Lsm(_), KeyspaceOf::Memory(_)) | (Of::Memory(_), KeyspaceOf::Lsm(_)) => foreign(),
        }
    }

    /// The pairs of a range in order. A range that ends before it begins is empty.
    pub fn range(&self, keyspace: &Keyspace, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Iter {
        if is_empty(from, to) {
            return Iter(IterOf::Empty);
        }
        match (&self.0, &keyspace.0) {
            (Of::Lsm(snapshot), KeyspaceOf::Lsm(keyspace)) => {
                Iter(IterOf::Lsm(lsm::range(snapshot, keyspace, from, to)))
            }
            (Of::Memory(snapshot), KeyspaceOf::Memory(keyspace)) => {
                Iter(IterOf::Memory(snapshot.range(keyspace, from, to)))
            }
            (Of::Lsm(_), KeyspaceOf::Memory(_)) | (Of::Memory(_), KeyspaceOf::Lsm(_)) => foreign(),
        }
    }

    /// Gives the pairs from `from` up to before `to` in order to `take`, until it answers false; answers whether the range
    /// came to its end. For large ranges of a keyspace that the snapshot was taken for ([`super::Engine::snapshot_of`]) it
    /// costs a tenth of [`Snapshot::range`]; for small ones it does not pay.
    pub fn sweep(
        &self,
        keyspace: &Keyspace,
        from: &[u8],
        to: Option<&[u8]>,
        mut take: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<bool> {
        let end = to.map_or(Bound::Unbounded, Bound::Excluded);
        if is_empty(Bound::Included(from), end) {
            return Ok(true);
        }
        match (&self.0, &keyspace.0) {
            (Of::Lsm(snapshot), KeyspaceOf::Lsm(keyspace)) => {
                sweep::sweep((snapshot, self.1), keyspace, (from, to), take)
            }
            (Of::Memory(snapshot), KeyspaceOf::Memory(keyspace)) => {
                let mut iter = snapshot.range(keyspace, Bound::Included(from), end);
                while let Some((key, value)) = iter.next() {
                    if !take(&key, &value) {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            (Of::Lsm(_), KeyspaceOf::Memory(_)) | (Of::Memory(_), KeyspaceOf::Lsm(_)) => foreign(),
        }
    }

    /// The pairs whose keys start with `prefix`, in order.
    pub fn prefix(&self, keyspace: &Keyspace, prefix: &[u8]) -> Iter {
        match model::read::after_prefix(prefix) {
            Some(end) => self.range(keyspace, Bound::Included(prefix), Bound::Excluded(&end)),
            None => self.range(keyspace, Bound::Included(prefix), Bound::Unbounded),
        }
    }
}

impl Pair {
    /// The key.
    pub fn key(&self) -> &[u8] {
        match &self.0 {
            PairOf::Lsm(key, _) => key,
            PairOf::Memory(key, _) => key,
        }
    }

    /// The value.
    pub fn value(&self) -> &[u8] {
        match &self.0 {
            PairOf::Lsm(_, value) => value,
            PairOf::Memory(_, value) => value,
        }
    }

    /// The value, to keep.
    pub fn into_value(self) -> Bytes {
        match self.0 {
            PairOf::Lsm(_, value) => to_bytes(value),
            PairOf::Memory(_, value) => value,
        }
    }

    /// Both, to keep.
    pub fn into_bytes(self) -> (Bytes, Bytes) {
        match self.0 {
            PairOf::Lsm(key, value) => (to_bytes(key), to_bytes(value)),
            PairOf::Memory(key, value) => (key, value),
        }
    }
}

impl Iterator for Iter {
    type Item = Result<Pair>;

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            IterOf::Lsm(iter) => {
                let pair = lsm::pair(iter.next()?);
                Some(pair.map(|(key, value)| Pair(PairOf::Lsm(key, value))))
            }
            IterOf::Memory(iter) => iter.next().map(|(key, value)| Ok(Pair(PairOf::Memory(key, value)))),
            IterOf::Empty => None,
        }
    }
}

impl DoubleEndedIterator for Iter {
    fn next_back(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            IterOf::Lsm(iter) => {
                let pair = lsm::pair(iter.next_back()?);
                Some(pair.map(|(key, value)| Pair(PairOf::Lsm(key, value))))
            }
            IterOf::Memory(iter) => iter.next_back().map(|(key, value)| Ok(Pair(PairOf::Memory(key, value)))),
            IterOf::Empty => None,
        }
    }
}

/// A small value is copied, so that it does not pin the block it lies in; a large one is shared.
fn to_bytes(slice: lsm::Slice) -> Bytes {
    if slice.len() <= COPY_BYTES_MAX { Bytes::copy_from_slice(&slice) } else { Bytes::from_owner(slice) }
}

fn is_empty(from: Bound<&[u8]>, to: Bound<&[u8]>) -> bool {
    match (from, to) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        (Bound::Included(from), Bound::Included(to)) => from > to,
        (Bound::Included(from) | Bound::Excluded(from), Bound::Excluded(to))
        | (Bound::Excluded(from), Bound::Included(to)) => from >= to,
    }
}

fn foreign() -> ! {
    panic!("a keyspace is used with the engine it came from")
}
