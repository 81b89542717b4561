//! The open batch of a group: what its entries wrote so far, read through to the state below.

use std::ops::Bound;

use bytes::Bytes;
use hashbrown::HashMap;

use crate::{
    engine::{Batch, Keyspace, Snapshot},
    error::Result,
};

/// Writes of one group over a snapshot of the state before it.
pub(super) struct Overlay<'a> {
    keyspace: &'a Keyspace,
    below: Snapshot,
    writes: HashMap<Bytes, Option<Bytes>>,
}

impl<'a> Overlay<'a> {
    /// With room for so many writes.
    pub(super) fn new(keyspace: &'a Keyspace, below: Snapshot, writes: usize) -> Self {
        Self { keyspace, below, writes: HashMap::with_capacity(writes) }
    }

    /// What lies below is another state now: rows went into it past the group's batch.
    pub(super) fn stand_on(&mut self, below: Snapshot) {
        self.below = below;
    }

    /// The value of a key as the group sees it.
    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        match self.writes.get(key) {
            Some(value) => Ok(value.clone()),
            None => self.below.get(self.keyspace, key),
        }
    }

    /// Whether a key is there as the group sees it.
    pub(super) fn contains(&self, key: &[u8]) -> Result<bool> {
        match self.writes.get(key) {
            Some(value) => Ok(value.is_some()),
            None => self.below.contains(self.keyspace, key),
        }
    }

    pub(super) fn put(&mut self, key: impl Into<Bytes>, value: Bytes) {
        self.writes.insert(key.into(), Some(value));
    }

    pub(super) fn delete(&mut self, key: impl Into<Bytes>) {
        self.writes.insert(key.into(), None);
    }

    /// The first pairs of `from..to` in order, at most `limit`, as the group sees them.
    pub(super) fn range(&self, from: &[u8], to: Option<&[u8]>, limit: usize) -> Result<Vec<(Bytes, Bytes)>> {
        let inside = |key: &[u8]| key >= from && to.is_none_or(|to| key < to);
        let mut over: Vec<(&Bytes, &Option<Bytes>)> =
            self.writes.iter().filter(|(key, _)| inside(key)).collect();
        over.sort_unstable_by_key(|(key, _)| *key);
        let mut over = over.into_iter().peekable();
        let to = to.map_or(Bound::Unbounded, Bound::Excluded);
        let mut below = self.below.range(self.keyspace, Bound::Included(from), to);
        let mut next_below = below.next().transpose()?;
        let mut found = Vec::new();
        while found.len() < limit {
            let below_key = next_below.as_ref().map(|pair| pair.key());
            match (over.peek(), below_key) {
                (None, None) => break,
                (Some((key, _)), Some(below_key)) if key.as_ref() > below_key => {
                    let pair = next_below.take().expect("it has a key");
                    found.push(pair.into_bytes());
                    next_below = below.next().transpose()?;
                }
                (None, Some(_)) => {
                    let pair = next_below.take().expect("it has a key");
                    found.push(pair.into_bytes());
                    next_below = below.next().transpose()?;
                }
                (Some((key, value)), below_key) => {
                    if below_key == Some(key.as_ref()) {
                        next_below = below.next().transpose()?;
                    }
                    if let Some(value) = value {
                        found.push(((*key).clone(), value.clone()));
                    }
                    over.next();
                }
            }
        }
        Ok(found)
    }

    /// The writes as a batch, with room for `more`.
    pub(super) fn into_batch(self, more: usize) -> Batch {
        let mut batch = Batch::with_capacity(self.writes.len() + more);
        for (key, value) in self.writes {
            match value {
                Some(value) => batch.put(self.keyspace, key, value),
                None => batch.delete(self.keyspace, key),
            }
        }
        batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Engine;

    #[test]
    fn a_range_merges_what_was_written_with_what_was_there() {
        let engine = Engine::in_memory();
        let keyspace = engine.keyspace("s0001.0").expect("memory");
        let mut batch = Batch::new();
        for key in ["a", "c", "e"] {
            batch.put(&keyspace, key, "old");
        }
        engine.commit(batch).expect("memory");
        let mut overlay = Overlay::new(&keyspace, engine.snapshot(), 4);
        overlay.put("b", "new".into());
        overlay.put("c", "new".into());
        overlay.delete("e");
        overlay.put("f", "new".into());
        let all = overlay.range(b"a", None, 10).expect("memory");
        let shown: Vec<_> = all.iter().map(|(key, value)| (key.as_ref(), value.as_ref())).collect();
        let expected: [(&[u8], &[u8]); 4] = [(b"a", b"old"), (b"b", b"new"), (b"c", b"new"), (b"f", b"new")];
        assert_eq!(shown, expected);
        assert_eq!(overlay.range(b"a", Some(b"c"), 10).expect("memory").len(), 2);
        assert_eq!(overlay.range(b"a", None, 1).expect("memory").len(), 1);
    }
}
