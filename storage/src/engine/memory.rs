//! The engine in memory: versioned maps that behave as the one on disk does, for tests and simulation.
//!
//! Every key has its versions, newest last. A version that no snapshot can see is dropped when its key is written again, or
//! when a commit finds that no snapshot is open.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Bound,
    sync::Arc,
};

use bytes::Bytes;
use parking_lot::RwLock;

use super::{Batch, KeyspaceOf};
use crate::error::Result;

/// How many pairs an iterator takes out at once.
const CHUNK: usize = 64;

/// So many keys with old versions may always wait.
const STALE_MIN: usize = 4_096;

/// All keyspaces.
#[derive(Default)]
pub(super) struct Memory {
    state: RwLock<State>,
}

#[derive(Default)]
struct State {
    sequence: u64,
    keyspaces: BTreeMap<String, Keyspace>,
    /// Open snapshots by the sequence they see, with how many there are of each.
    open: BTreeMap<u64, usize>,
    /// Keys with versions to drop once no snapshot needs them, and how many of them are let wait.
    stale: Vec<(Keyspace, Bytes)>,
    stale_max: usize,
}

type Versions = Vec<(u64, Option<Bytes>)>;

/// One map.
#[derive(Clone)]
pub(super) struct Keyspace(Arc<Named>);

struct Named {
    name: String,
    map: RwLock<BTreeMap<Bytes, Versions>>,
}

/// One moment.
pub(super) struct Snapshot {
    memory: Arc<Memory>,
    sequence: u64,
}

/// An ordered pass.
pub(super) struct Iter {
    snapshot: Snapshot,
    keyspace: Keyspace,
    from: Bound<Bytes>,
    to: Bound<Bytes>,
    front: VecDeque<(Bytes, Bytes)>,
    back: VecDeque<(Bytes, Bytes)>,
    done: bool,
}

impl Keyspace {
    pub(super) fn name(&self) -> &str {
        &self.0.name
    }
}

impl Memory {
    pub(super) fn keyspace(&self, name: &str) -> Keyspace {
        let mut state = self.state.write();
        let make = || Keyspace(Arc::new(Named { name: name.to_owned(), map: RwLock::default() }));
        state.keyspaces.entry(name.to_owned()).or_insert_with(make).clone()
    }

    pub(super) fn has_keyspace(&self, name: &str) -> bool {
        self.state.read().keyspaces.contains_key(name)
    }

    pub(super) fn keyspace_names(&self) -> Vec<String> {
        self.state.read().keyspaces.keys().cloned().collect()
    }

    pub(super) fn delete_keyspace(&self, keyspace: &Keyspace) {
        self.state.write().keyspaces.remove(keyspace.name());
    }

    pub(super) fn commit(&self, batch: Batch) {
        let mut state = self.state.write();
        let sequence = state.sequence + 1;
        let oldest = state.open.keys().next().copied();
        if oldest.is_none() || state.stale.len() >= state.stale_max {
            let mut stale = std::mem::take(&mut state.stale);
            stale.retain(|(keyspace, key)| {
                !prune(&mut keyspace.0.map.write(), key, oldest.unwrap_or(u64::MAX))
            });
            // What an open snapshot still needs is not looked at again before as much has come on top of it.
            state.stale_max = STALE_MIN.max(stale.len() * 2);
            state.stale = stale;
        }
        for (keyspace, key, value) in batch.writes {
            let KeyspaceOf::Memory(keyspace) = keyspace.0 else {
                panic!("a keyspace is used with the engine it came from")
            };
            let mut map = keyspace.0.map.write();
            let versions = map.entry(key.clone()).or_default();
            if versions.last().is_some_and(|(at, _)| *at == sequence) {
                versions.pop();
            }
            versions.push((sequence, value));
            let settled = versions.len() == 1 && versions[0].1.is_some();
            if !settled && !prune(&mut map, &key, oldest.unwrap_or(u64::MAX)) {
                drop(map);
                state.stale.push((keyspace, key));
            }
        }
        state.sequence = sequence;
    }

    pub(super) fn ingest_from(
        &self,
        keyspace: &Keyspace,
        fill: impl FnOnce(&mut dyn FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()>,
    ) -> Result<()> {
        let keyspace = super::Keyspace(KeyspaceOf::Memory(keyspace.clone()));
        let mut batch = Batch::new();
        fill(&mut |key, value| {
            batch.put(&keyspace, Bytes::copy_from_slice(key), Bytes::copy_from_slice(value));
            Ok(())
        })?;
        self.commit(batch);
        Ok(())
    }

    pub(super) fn snapshot(memory: &Arc<Self>) -> Snapshot {
        let mut state = memory.state.write();
        let sequence = state.sequence;
        *state.open.entry(sequence).or_default() += 1;
        Snapshot { memory: memory.clone(), sequence }
    }
}

/// Drops the versions of a key that no snapshot at `oldest` or later sees; answers whether nothing is left to drop.
fn prune(map: &mut BTreeMap<Bytes, Versions>, key: &Bytes, oldest: u64) -> bool {
    let Some(versions) = map.get_mut(key) else { return true };
    let visible = versions.iter().rposition(|(at, _)| *at <= oldest).unwrap_or(0);
    versions.drain(..visible);
    match versions.as_slice() {
        [(at, None)] if *at <= oldest => {
            map.remove(key);
            true
        }
        [(_, value)] => value.is_some(),
        _ => false,
    }
}

fn seen(versions: &Versions, sequence: u64) -> Option<&Bytes> {
    versions.iter().rev().find(|(at, _)| *at <= sequence).and_then(|(_, value)| value.as_ref())
}

impl Snapshot {
    pub(super) fn get(&self, keyspace: &Keyspace, key: &[u8]) -> Option<Bytes> {
        keyspace.0.map.read().get(key).and_then(|versions| seen(versions, self.sequence)).cloned()
    }

    pub(super) fn range(&self, keyspace: &Keyspace, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Iter {
        Iter {
            snapshot: self.clone(),
            keyspace: keyspace.clone(),
            from: from.map(Bytes::copy_from_slice),
            to: to.map(Bytes::copy_from_slice),
            front: VecDeque::new(),
            back: VecDeque::new(),
            done: false,
        }
    }
}

impl Clone for Snapshot {
    fn clone(&self) -> Self {
        *self.memory.state.write().open.entry(self.sequence).or_default() += 1;
        Self { memory: self.memory.clone(), sequence: self.sequence }
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        let mut state = self.memory.state.write();
        if let Some(count) = state.open.get_mut(&self.sequence) {
            *count -= 1;
            if *count == 0 {
                state.open.remove(&self.sequence);
            }
        }
    }
}

impl Iter {
    fn is_exhausted(&self) -> bool {
        use Bound::{Excluded, Included, Unbounded};
        match (&self.from, &self.to) {
            (Unbounded, _) | (_, Unbounded) => false,
            (Included(from), Included(to)) => from > to,
            (Included(from) | Excluded(from), Excluded(to)) | (Excluded(from), Included(to)) => from >= to,
        }
    }

    fn fill(&mut self, reverse: bool) {
        if self.done || self.is_exhausted() {
            self.done = true;
            return;
        }
        let map = self.keyspace.0.map.read();
        let mut range = map.range((self.from.clone(), self.to.clone()));
        let mut last = None;
        for _ in 0..CHUNK {
            let Some((key, versions)) = (if reverse { range.next_back() } else { range.next() }) else {
                self.done = true;
                break;
            };
            last = Some(key.clone());
            if let Some(value) = seen(versions, self.snapshot.sequence) {
                let buffer = if reverse { &mut self.back } else { &mut self.front };
                buffer.push_back((key.clone(), value.clone()));
            }
        }
        if let Some(last) = last {
            *(if reverse { &mut self.to } else { &mut self.from }) = Bound::Excluded(last);
        }
    }

    pub(super) fn next(&mut self) -> Option<(Bytes, Bytes)> {
        while self.front.is_empty() && !self.done {
            self.fill(false);
        }
        self.front.pop_front().or_else(|| self.back.pop_back())
    }

    pub(super) fn next_back(&mut self) -> Option<(Bytes, Bytes)> {
        while self.back.is_empty() && !self.done {
            self.fill(true);
        }
        self.back.pop_front().or_else(|| self.front.pop_back())
    }
}
