//! The engine: ordered bytes in named keyspaces, written in atomic batches, read by snapshots.
//!
//! Two of a kind stand behind [`Engine`]: an LSM on disk (`lsm`) and a map in memory (`memory`) for tests and simulation.
//! A differential test holds them to the same behaviour.
//!
//! Invariants:
//! - A batch is visible whole or not at all, over all its keyspaces, also after a crash.
//! - [`Engine::commit`] does not sync. What was committed before [`Engine::persist`] began is on disk when it returns.
//! - Every read goes through a [`Snapshot`]; it sees one moment of all keyspaces.
//! - A failed write or sync means "unknown", never "absent": every later write is refused and the process must end.
//! - A keyspace is never emptied; it is deleted and another made (a new generation).
//!
//! Commit may sleep in its caller when compaction lags behind, and waits while the disk has no room for what it would have
//! to write: never call it on an async worker thread. [`Engine::try_commit`] does neither.
//!
//! Not here: what keys mean ([`crate::keyspace`]).

mod batch;
mod journal;
mod lsm;
mod memory;
mod snapshot;
mod sweep;
#[cfg(test)]
mod tests;
mod watch;

use std::{path::Path, sync::Arc};

use crate::error::{Error, Result};

pub use batch::Batch;
pub use journal::{Cut, cut_torn_journal};
pub use snapshot::{Iter, Pair, Snapshot};
pub use watch::{COMMIT_MAX, Watch};

/// Settings of an engine on disk.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of block cache; 20–25 % of memory is a good share.
    pub cache_bytes: u64,
    /// Journals may grow to this before memtables are forced out (a restart replays 60–90 MB/s of them).
    pub journal_bytes_max: u64,
    /// The size at which a keyspace's memtable is flushed.
    pub memtable_bytes_max: u64,
    /// Threads for flushes and compactions. The first of several never compacts, so that a flush need not wait; but as long
    /// as a compaction is asked for and all others are at one, it spins (fjall 3.1.13 sends itself the message again). A
    /// flush asks for as many compactions as there are threads: with two, one is always left over, and the spinning took
    /// 25–40 % of the process's time under a write load on two cores. With more threads than shards that compact at once
    /// somebody is free to take the message away, most often to find nothing to do. With one, a long compaction would hold
    /// up flushes and so stall writers.
    pub workers: usize,
    /// Open files that are kept.
    pub files_max: usize,
    /// Values from this size on are kept apart from their keys.
    pub separate_bytes_min: u32,
    /// The disk it lies on; none if it is never full.
    pub disk: Option<Disk>,
}

/// A disk, of which can be asked how many bytes are free.
#[derive(Clone)]
pub struct Disk(pub Arc<dyn Fn() -> std::io::Result<u64> + Send + Sync>);

impl std::fmt::Debug for Disk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Disk")
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            cache_bytes: 64 << 20,
            journal_bytes_max: 256 << 20,
            memtable_bytes_max: 16 << 20,
            workers: 10,
            files_max: 512,
            separate_bytes_min: 4_096,
            disk: None,
        }
    }
}

/// Ordered bytes in named keyspaces. A cheap handle; the last one closes the files.
#[derive(Clone)]
pub struct Engine(Backend);

#[derive(Clone)]
enum Backend {
    Lsm(Arc<lsm::Lsm>),
    Memory(Arc<memory::Memory>),
}

/// One ordered map of an engine. A cheap handle.
#[derive(Clone)]
pub struct Keyspace(KeyspaceOf);

#[derive(Clone)]
enum KeyspaceOf {
    Lsm(lsm::Keyspace),
    Memory(memory::Keyspace),
}

impl Engine {
    /// Opens or creates an engine in a directory of its own.
    pub fn open(directory: &Path, options: &Options) -> Result<Self> {
        Ok(Self(Backend::Lsm(Arc::new(lsm::Lsm::open(directory, options)?))))
    }

    /// An engine that keeps everything in memory.
    pub fn in_memory() -> Self {
        Self(Backend::Memory(Arc::new(memory::Memory::default())))
    }

    /// The keyspace with this name; it is created if it is not there.
    pub fn keyspace(&self, name: &str) -> Result<Keyspace> {
        Ok(Keyspace(match &self.0 {
            Backend::Lsm(lsm) => KeyspaceOf::Lsm(lsm.keyspace(name)?),
            Backend::Memory(memory) => KeyspaceOf::Memory(memory.keyspace(name)),
        }))
    }

    /// Whether there is a keyspace with this name.
    pub fn has_keyspace(&self, name: &str) -> bool {
        match &self.0 {
            Backend::Lsm(lsm) => lsm.has_keyspace(name),
            Backend::Memory(memory) => memory.has_keyspace(name),
        }
    }

    /// The names of all keyspaces, sorted.
    pub fn keyspace_names(&self) -> Vec<String> {
        let mut names = match &self.0 {
            Backend::Lsm(lsm) => lsm.keyspace_names(),
            Backend::Memory(memory) => memory.keyspace_names(),
        };
        names.sort_unstable();
        names
    }

    /// Removes a keyspace with all it holds. Snapshots that see it stay valid; other handles must not be used again.
    pub fn delete_keyspace(&self, keyspace: Keyspace) -> Result<()> {
        match (&self.0, keyspace.0) {
            (Backend::Lsm(lsm), KeyspaceOf::Lsm(keyspace)) => lsm.delete_keyspace(keyspace),
            (Backend::Memory(memory), KeyspaceOf::Memory(keyspace)) => {
                memory.delete_keyspace(&keyspace);
                Ok(())
            }
            (Backend::Lsm(_), KeyspaceOf::Memory(_)) | (Backend::Memory(_), KeyspaceOf::Lsm(_)) => {
                panic!("a keyspace is used with the engine it came from")
            }
        }
    }

    /// Writes a batch, all or nothing, without a sync.
    ///
    /// What is applied cannot be refused, and an engine that meets the end of the disk is lost to this process. So it waits
    /// before that until there is room ([`Engine::start_waiting`]); readers go on meanwhile.
    pub fn commit(&self, batch: Batch) -> Result<()> {
        self.commit_with(batch, true).map(drop)
    }

    /// The same, but answers false where it would have to wait; then nothing was written.
    pub fn try_commit(&self, batch: Batch) -> Result<bool> {
        self.commit_with(batch, false)
    }

    fn commit_with(&self, batch: Batch, may_wait: bool) -> Result<bool> {
        match &self.0 {
            Backend::Lsm(lsm) => lsm.commit(batch, may_wait),
            Backend::Memory(memory) => {
                memory.commit(batch);
                Ok(true)
            }
        }
    }

    /// The number of the commit that is at work; none while none is, or it waits for room.
    fn commit_at_work(&self) -> Option<u64> {
        match &self.0 {
            Backend::Lsm(lsm) => lsm.commit_at_work(),
            Backend::Memory(_) => None,
        }
    }

    /// From now on a commit waits while the disk has no room for it. Before, it tries, and fails.
    pub fn start_waiting(&self) {
        match &self.0 {
            Backend::Lsm(lsm) => lsm.start_waiting(),
            Backend::Memory(_) => {}
        }
    }

    /// Ends waiting for room, for good: who waits is refused.
    pub fn stop_waiting(&self) {
        match &self.0 {
            Backend::Lsm(lsm) => lsm.stop_waiting(),
            Backend::Memory(_) => {}
        }
    }

    /// Rewrites a keyspace without what was deleted in it, so that the disk gets its room back; false if the disk has no
    /// room for that either.
    pub fn compact(&self, keyspace: &Keyspace) -> Result<bool> {
        match (&self.0, &keyspace.0) {
            (Backend::Lsm(lsm), KeyspaceOf::Lsm(keyspace)) => lsm.compact(keyspace),
            (Backend::Memory(_) | Backend::Lsm(_), _) => Ok(true),
        }
    }

    /// This moment of all keyspaces.
    pub fn snapshot(&self) -> Snapshot {
        match &self.0 {
            Backend::Lsm(lsm) => Snapshot::of_lsm(lsm.snapshot().0),
            Backend::Memory(memory) => Snapshot::of_memory(memory::Memory::snapshot(memory)),
        }
    }

    /// This moment, to be swept over one of the keyspaces.
    pub fn snapshot_of(&self, keyspace: &Keyspace) -> Snapshot {
        match (&self.0, &keyspace.0) {
            (Backend::Lsm(lsm), KeyspaceOf::Lsm(keyspace)) => {
                // The tables first: so whatever the snapshot sees was there before it.
                let tables = sweep::Tables::of(keyspace);
                let (snapshot, is_newest) = lsm.snapshot();
                let snapshot = Snapshot::of_lsm(snapshot);
                if is_newest { snapshot.with_tables(tables) } else { snapshot }
            }
            (Backend::Memory(_) | Backend::Lsm(_), _) => self.snapshot(),
        }
    }

    /// Syncs everything that was committed.
    ///
    /// The journal files are synced from outside first, so that writers wait for the engine's own lock only as long as
    /// the little takes that came in between.
    pub fn persist(&self) -> Result<()> {
        match &self.0 {
            Backend::Lsm(lsm) => lsm.persist(),
            Backend::Memory(_) => Ok(()),
        }
    }

    /// Fills a keyspace that is still empty, in key order, past the journal; it is on disk when this returns.
    ///
    /// Keys must be strictly ascending; the first that is not ends the load with an error.
    pub fn ingest(
        &self,
        keyspace: &Keyspace,
        pairs: impl Iterator<Item = Result<(bytes::Bytes, bytes::Bytes)>>,
    ) -> Result<u64> {
        let mut count = 0;
        self.ingest_from(keyspace, |put| {
            for pair in pairs {
                let (key, value) = pair?;
                put(&key, &value)?;
                count += 1;
            }
            Ok(())
        })?;
        Ok(count)
    }

    /// As [`Engine::ingest`], of pairs that `fill` puts one after the other; and the keyspace may hold other keys already.
    ///
    /// What is put becomes visible when all of it is on disk, before anything that is committed later.
    pub fn ingest_from(
        &self,
        keyspace: &Keyspace,
        fill: impl FnOnce(&mut dyn FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()>,
    ) -> Result<()> {
        let fill = |put: &mut dyn FnMut(&[u8], &[u8]) -> Result<()>| {
            let mut last: Option<Vec<u8>> = None;
            fill(&mut |key, value| {
                match &mut last {
                    Some(last) if last.as_slice() >= key => {
                        return Err(Error::Image { what: "its keys are not in order".to_owned() });
                    }
                    Some(last) => {
                        last.clear();
                        last.extend_from_slice(key);
                    }
                    None => last = Some(key.to_vec()),
                }
                put(key, value)
            })
        };
        match (&self.0, &keyspace.0) {
            (Backend::Lsm(lsm), KeyspaceOf::Lsm(keyspace)) => lsm.ingest_from(keyspace, fill),
            (Backend::Memory(memory), KeyspaceOf::Memory(keyspace)) => memory.ingest_from(keyspace, fill),
            (Backend::Lsm(_), KeyspaceOf::Memory(_)) | (Backend::Memory(_), KeyspaceOf::Lsm(_)) => {
                panic!("a keyspace is used with the engine it came from")
            }
        }
    }

    /// Gives up the files in which all keys begin with `prefix`, without looking into them. What lies elsewhere stays, and may
    /// be older than what was given up: this is for keys that nobody reads any more. Snapshots see what they saw.
    pub fn drop_files(&self, keyspace: &Keyspace, prefix: &[u8]) -> Result<()> {
        match (&self.0, &keyspace.0) {
            (Backend::Lsm(lsm), KeyspaceOf::Lsm(keyspace)) => lsm.drop_files(keyspace, prefix),
            (Backend::Memory(_) | Backend::Lsm(_), _) => Ok(()),
        }
    }

    /// Bytes on disk, journals counted; 0 in memory.
    pub fn disk_bytes(&self) -> Result<u64> {
        match &self.0 {
            Backend::Lsm(lsm) => lsm.disk_bytes(),
            Backend::Memory(_) => Ok(0),
        }
    }

    /// How many journals hold data that is not flushed; 0 in memory.
    pub fn journals(&self) -> usize {
        match &self.0 {
            Backend::Lsm(lsm) => lsm.journals(),
            Backend::Memory(_) => 0,
        }
    }

    /// Moves a keyspace's memtable to disk, so that it no longer pins the oldest journal; false if the disk has no room.
    pub fn flush(&self, keyspace: &Keyspace) -> Result<bool> {
        match (&self.0, &keyspace.0) {
            (Backend::Lsm(lsm), KeyspaceOf::Lsm(keyspace)) => lsm.flush(keyspace),
            (Backend::Memory(_) | Backend::Lsm(_), _) => Ok(true),
        }
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match &self.0 {
            Backend::Lsm(_) => "Engine(lsm)",
            Backend::Memory(_) => "Engine(memory)",
        })
    }
}

impl std::fmt::Debug for Keyspace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            KeyspaceOf::Lsm(keyspace) => write!(f, "Keyspace({})", lsm::name_of(keyspace)),
            KeyspaceOf::Memory(keyspace) => write!(f, "Keyspace({})", keyspace.name()),
        }
    }
}
