//! The engine on disk: fjall, and nothing of fjall outside this folder.
//!
//! The traps this file stands in front of (numbers are the library's issues): small ranges read half a batch unless read by
//! a snapshot; `clear` corrupted separated keyspaces (lsm-tree #286); a poisoned database serves reads but no writes; a
//! keyspace's folder goes only when its last handle went; a new keyspace's folder is synced, but not its name.

use std::{
    fs::{self, File},
    io,
    ops::Bound,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwapOption;
use fjall::{
    AbstractTree as _, CompressionType, Database, KeyspaceCreateOptions, KvSeparationOptions, PersistMode,
    Readable as _, config::PinningPolicy,
};

use parking_lot::{Condvar, Mutex};

use super::{Batch, Disk, KeyspaceOf, Options};
use crate::error::{Error, Result};

pub(super) use fjall::{Iter, Keyspace, Slice, Snapshot};

/// Room that is left to the engine's small files.
const ROOM_BYTES_MIN: u64 = 4 << 20;
/// So many memtables of a keyspace are in memory at most, the one in use among them: then the library lets writers wait.
const MEMTABLES_MAX: u64 = 5;
/// With so many sealed ones, or so many runs in the uppermost level, a commit is about to be held up by the library.
const SEALED_MAX: usize = 3;
const RUNS_MAX: usize = 20;
/// How often a keyspace is rewritten in a row.
const COMPACTIONS_MAX: usize = 12;
/// How often a disk without room is looked at by who waits for it.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// A fjall database.
pub(super) struct Lsm {
    database: Database,
    directory: PathBuf,
    memtable_bytes_max: u64,
    separate_bytes_min: u32,
    /// All that are in use.
    keyspaces: Mutex<Vec<Keyspace>>,
    /// The snapshot that was last read at; good for as long as nothing was written since.
    latest: ArcSwapOption<Snapshot>,
    /// Counts beginnings and ends of commits: odd while one is at work.
    turn: AtomicU64,
    committing: Mutex<()>,
    disk: Option<Disk>,
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

/// What a commit does that finds no room.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waiting {
    /// It tries all the same: a start that would wait tells nobody why.
    NotYet,
    Waits,
    /// It is refused.
    NoMore,
}

/// Whether the library holds up who writes to a keyspace, or is about to.
fn is_behind(keyspace: &KeyspaceOf) -> bool {
    match keyspace {
        KeyspaceOf::Lsm(keyspace) => {
            let tree = &keyspace.tree;
            tree.sealed_memtable_count() >= SEALED_MAX || tree.l0_run_count() >= RUNS_MAX
        }
        KeyspaceOf::Memory(_) => false,
    }
}

impl Lsm {
    pub(super) fn open(directory: &Path, options: &Options) -> Result<Self> {
        remove_unfinished(directory)?;
        let database = Database::builder(directory)
            .cache_size(options.cache_bytes)
            .max_journaling_size(options.journal_bytes_max.max(64 << 20))
            .worker_threads(options.workers.max(1))
            .max_cached_files(Some(options.files_max.max(10)))
            .journal_compression(CompressionType::None)
            .open()
            .map_err(|error| failure("open", directory, error))?;
        // A process before this one may have been killed between making a keyspace and syncing its name.
        sync_names(directory)?;
        Ok(Self {
            database,
            directory: directory.to_path_buf(),
            memtable_bytes_max: options.memtable_bytes_max.max(1 << 20),
            separate_bytes_min: options.separate_bytes_min,
            latest: ArcSwapOption::empty(),
            keyspaces: Mutex::default(),
            turn: AtomicU64::new(0),
            committing: Mutex::new(()),
            disk: options.disk.clone(),
            waiting: Mutex::new(Waiting::NotYet),
            changed: Condvar::new(),
        })
    }

    pub(super) fn keyspace(&self, name: &str) -> Result<Keyspace> {
        let options = || {
            let separation = KvSeparationOptions::default().separation_threshold(self.separate_bytes_min);
            // The upper two levels are asked for every key: their filters stay in memory, as their indexes do.
            KeyspaceCreateOptions::default()
                .max_memtable_size(self.memtable_bytes_max)
                .filter_block_pinning_policy(PinningPolicy::new([true, true, false]))
                .with_kv_separation(Some(separation))
        };
        let is_new = !self.database.keyspace_exists(name);
        let keyspace =
            self.database.keyspace(name, options).map_err(|error| self.failure("open a keyspace", error))?;
        if is_new {
            sync_names(&self.directory)?;
        }
        let mut keyspaces = self.keyspaces.lock();
        if keyspaces.iter().all(|known| known.id() != keyspace.id()) {
            keyspaces.push(keyspace.clone());
        }
        Ok(keyspace)
    }

    pub(super) fn has_keyspace(&self, name: &str) -> bool {
        self.database.keyspace_exists(name)
    }

    pub(super) fn keyspace_names(&self) -> Vec<String> {
        self.database.list_keyspace_names().iter().map(|name| (**name).to_owned()).collect()
    }

    pub(super) fn delete_keyspace(&self, keyspace: Keyspace) -> Result<()> {
        self.keyspaces.lock().retain(|known| known.id() != keyspace.id());
        self.database.delete_keyspace(keyspace).map_err(|error| self.failure("delete a keyspace", error))
    }

    /// Writes a batch. It may have to wait: for another commit, for flushes and compactions that are behind, for room on the
    /// disk. If it may not, it answers false instead, and nothing was written.
    pub(super) fn commit(&self, batch: Batch, may_wait: bool) -> Result<bool> {
        let mut writes = fjall::OwnedWriteBatch::with_capacity(self.database.clone(), batch.writes.len())
            .durability(Some(PersistMode::Buffer));
        for (keyspace, key, value) in &batch.writes {
            let KeyspaceOf::Lsm(keyspace) = &keyspace.0 else {
                panic!("a keyspace is used with the engine it came from")
            };
            match value {
                Some(value) => writes.insert(keyspace, &**key, &**value),
                None => writes.remove(keyspace, &**key),
            }
        }
        let bytes: usize = batch
            .writes
            .iter()
            .map(|(_, key, value)| key.len() + value.as_ref().map_or(0, |value| value.len()))
            .sum();
        // In the journal, and in a table when its memtable is full.
        if !self.wait_for_room(2 * bytes as u64, may_wait)? {
            return Ok(false);
        }
        let one = if may_wait {
            self.committing.lock()
        } else {
            let is_behind = batch.writes.first().is_some_and(|(keyspace, ..)| is_behind(&keyspace.0));
            match self.committing.try_lock() {
                Some(one) if !is_behind => one,
                Some(_) | None => return Ok(false),
            }
        };
        // A batch is inserted key by key, and a flush that ends meanwhile, in any keyspace, moves `visible_seqno` past it.
        // So whoever asks while this is at work is given the moment before it.
        self.latest.store(Some(self.snapshot().0));
        let turn = Turn::begin(&self.turn);
        let committed = writes.commit().map_err(|error| self.failure("write a batch", error));
        drop(turn);
        // An old snapshot keeps old versions alive: it goes with what it does not see, not with the next read.
        self.latest.store(None);
        drop(one);
        committed.map(|()| true)
    }

    /// Whether the disk has room for so many bytes, and for whatever may leave memory meanwhile.
    fn has_room(&self, bytes: u64) -> Result<bool> {
        let Some(Disk(available)) = &self.disk else { return Ok(true) };
        let available = available().map_err(|error| Error::io("measure", &self.directory, error))?;
        let room = available.saturating_sub(bytes + ROOM_BYTES_MIN);
        // The library's own count of what is in memory forgets what ingestions flush. What it can be at most is enough for most
        // disks; where it is not, it is added up.
        let keyspaces = self.keyspaces.lock();
        let memtables_max = keyspaces.len() as u64 * MEMTABLES_MAX * self.memtable_bytes_max;
        let in_memory =
            || keyspaces.iter().map(|it| it.tree.get_version_history_lock().memtable_size_sum()).sum::<u64>();
        Ok(available >= bytes + ROOM_BYTES_MIN && (room >= memtables_max || room >= in_memory()))
    }

    fn wait_for_room(&self, bytes: u64, may_wait: bool) -> Result<bool> {
        let mut waiting = self.waiting.lock();
        if *waiting == Waiting::NotYet || self.has_room(bytes)? {
            return Ok(true);
        }
        if !may_wait {
            return Ok(false);
        }
        tracing::warn!("the disk is full, what was accepted waits for room");
        while !self.has_room(bytes)? {
            if *waiting == Waiting::NoMore {
                return Err(Error::DiskFull { path: self.directory.clone() });
            }
            self.changed.wait_for(&mut waiting, LOOK_AGAIN);
        }
        tracing::info!("there is room again for what was accepted");
        Ok(true)
    }

    pub(super) fn commit_at_work(&self) -> Option<u64> {
        Some(self.turn.load(Ordering::SeqCst)).filter(|turn| turn % 2 == 1)
    }

    pub(super) fn start_waiting(&self) {
        *self.waiting.lock() = Waiting::Waits;
    }

    pub(super) fn stop_waiting(&self) {
        *self.waiting.lock() = Waiting::NoMore;
        self.changed.notify_all();
    }

    pub(super) fn compact(&self, keyspace: &Keyspace) -> Result<bool> {
        if !self.flush(keyspace)? {
            return Ok(false);
        }
        // The first finds out which files of large values are mostly dead; each further one takes a quarter of them away.
        let mut before = u64::MAX;
        for pass in 0..COMPACTIONS_MAX {
            let bytes = keyspace.disk_space();
            if pass > 1 && bytes > before - before / 64 {
                break;
            }
            before = bytes;
            // All of it is there twice for a moment.
            if !self.has_room(bytes)? {
                return Ok(false);
            }
            keyspace.major_compact().map_err(|error| self.failure("compact", error))?;
        }
        Ok(true)
    }

    /// This moment, and whether it is the newest: while a batch is being written it is the one before the batch. While
    /// nothing is written all readers share one snapshot, because opening and closing one takes locks that they share.
    ///
    /// Flushes and compactions move `visible_seqno` too, so that the shared snapshot does not keep their input alive.
    pub(super) fn snapshot(&self) -> (Arc<Snapshot>, bool) {
        loop {
            let turn = self.turn.load(Ordering::SeqCst);
            if turn % 2 == 1 {
                match self.latest.load_full() {
                    Some(latest) => return (latest, false),
                    // The commit ended just now.
                    None => continue,
                }
            }
            let visible = self.database.visible_seqno();
            if let Some(latest) = &*self.latest.load()
                && latest.seqno() == visible
            {
                return (latest.clone(), true);
            }
            let fresh = Arc::new(self.database.snapshot());
            let idle = self.committing.try_lock();
            if self.turn.load(Ordering::SeqCst) == turn {
                // Beside a commit its own snapshot stays the latest.
                if idle.is_some() {
                    self.latest.store(Some(fresh.clone()));
                }
                return (fresh, true);
            }
        }
    }

    pub(super) fn drop_files(&self, keyspace: &Keyspace, prefix: &[u8]) -> Result<()> {
        let version = keyspace.tree.current_version();
        let mut tables = version.iter_levels().flat_map(|level| level.iter()).flat_map(|run| run.iter());
        let is_inside = |table: &lsm_tree::Table| {
            let range = &table.metadata.key_range;
            range.min().starts_with(prefix) && range.max().starts_with(prefix)
        };
        // Dropping stops the keyspace's compactions for a moment.
        if !tables.any(is_inside) {
            return Ok(());
        }
        // The files are gone at once, so what made them dead must be durable before: a replay that began earlier would miss
        // the rows.
        self.persist()?;
        let end = model::read::after_prefix(prefix);
        let end = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let dropped = keyspace.tree.drop_range::<&[u8], _>((Bound::Included(prefix), end));
        dropped.map_err(|error| self.failure("drop files", error.into()))?;
        // The library lets go of versions of the tables, and of their files, as it flushes.
        self.flush(keyspace).map(drop)
    }

    pub(super) fn ingest_from(
        &self,
        keyspace: &Keyspace,
        fill: impl FnOnce(&mut dyn FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()>,
    ) -> Result<()> {
        let mut ingestion = keyspace.start_ingestion().map_err(|error| self.failure("ingest", error))?;
        fill(&mut |key, value| ingestion.write(key, value).map_err(|error| self.failure("ingest", error)))?;
        // It takes the library's own lock against writers for long: whoever may not wait sees that by this one. And a commit that
        // is at work hands out the moment before it, which may be one before this.
        let one = self.committing.lock();
        let finished = ingestion.finish().map_err(|error| self.failure("ingest", error));
        drop(one);
        finished
    }

    pub(super) fn persist(&self) -> Result<()> {
        // A journal that goes away in between was flushed and is no longer needed.
        for path in super::journal::journal_files(&self.directory)? {
            match File::open(&path) {
                Ok(file) => file.sync_data().map_err(|error| Error::io("sync", &path, error))?,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(Error::io("open", &path, error)),
            }
        }
        self.database.persist(PersistMode::SyncData).map_err(|error| self.failure("sync", error))
    }

    pub(super) fn flush(&self, keyspace: &Keyspace) -> Result<bool> {
        if !self.has_room(0)? {
            return Ok(false);
        }
        keyspace.rotate_memtable_and_wait().map_err(|error| self.failure("flush", error))?;
        Ok(true)
    }

    pub(super) fn disk_bytes(&self) -> Result<u64> {
        self.database.disk_space().map_err(|error| self.failure("measure itself", error))
    }

    pub(super) fn journals(&self) -> usize {
        self.database.journal_count()
    }

    fn failure(&self, action: &'static str, error: fjall::Error) -> Error {
        failure(action, &self.directory, error)
    }
}

/// A commit at work; it ends also where the commit panics, or nobody would be given a snapshot any more.
struct Turn<'a>(&'a AtomicU64);

impl<'a> Turn<'a> {
    fn begin(turn: &'a AtomicU64) -> Self {
        turn.fetch_add(1, Ordering::SeqCst);
        Self(turn)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Removes what making an engine left that was cut short: fjall takes a directory without a version for a new one, and then
/// stumbles over its own files. It makes the version before the first keyspace; where there is a keyspace, nothing is touched.
fn remove_unfinished(directory: &Path) -> Result<()> {
    let version = directory.join("version");
    let fail = |action: &'static str, path: &Path| {
        let path = path.to_path_buf();
        move |error| Error::io(action, path, error)
    };
    let is_missing = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    // After a power cut its name or its size may be there without its bytes.
    if fs::read(&version).is_ok_and(|bytes| bytes.iter().any(|byte| *byte != 0)) {
        return Ok(());
    }
    let keyspaces = directory.join("keyspaces");
    match fs::read_dir(&keyspaces).map(Iterator::count) {
        Ok(0) => fs::remove_dir(&keyspaces).map_err(fail("remove", &keyspaces))?,
        Ok(_) => return Ok(()),
        Err(error) if is_missing(&error) => {}
        Err(error) => return Err(fail("list", &keyspaces)(error)),
    }
    let mut files =
        super::journal::journal_files(directory).or_else(|error| match fs::exists(directory) {
            Ok(false) => Ok(Vec::new()),
            Ok(true) | Err(_) => Err(error),
        })?;
    files.extend([directory.join("lock"), version]);
    for file in files {
        match fs::remove_file(&file) {
            Err(error) if !is_missing(&error) => return Err(fail("remove", &file)(error)),
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

/// Makes the names of the keyspaces' folders durable.
fn sync_names(directory: &Path) -> Result<()> {
    let folders = directory.join("keyspaces");
    let synced = File::open(&folders).and_then(|folders| folders.sync_all());
    synced.map_err(|error| Error::io("sync", &folders, error))
}

pub(super) fn get(snapshot: &Snapshot, keyspace: &Keyspace, key: &[u8]) -> Result<Option<Slice>> {
    snapshot.get(keyspace, key).map_err(read_failure)
}

pub(super) fn contains(snapshot: &Snapshot, keyspace: &Keyspace, key: &[u8]) -> Result<bool> {
    snapshot.contains_key(keyspace, key).map_err(read_failure)
}

pub(super) fn range(snapshot: &Snapshot, keyspace: &Keyspace, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Iter {
    snapshot.range::<&[u8], _>(keyspace, (from, to))
}

pub(super) fn pair(guard: fjall::Guard) -> Result<(Slice, Slice)> {
    guard.into_inner().map_err(read_failure)
}

pub(super) fn name_of(keyspace: &Keyspace) -> &str {
    keyspace.name()
}

pub(super) fn read_failure(error: fjall::Error) -> Error {
    failure("read", Path::new(""), error)
}

fn failure(action: &'static str, directory: &Path, error: fjall::Error) -> Error {
    match error {
        fjall::Error::Poisoned => Error::EnginePoisoned,
        fjall::Error::Locked => {
            Error::Held { path: directory.to_path_buf(), holder: "another process".to_owned() }
        }
        fjall::Error::Io(source) | fjall::Error::Storage(fjall::LsmError::Io(source)) => {
            Error::io(action, directory, source)
        }
        fjall::Error::JournalRecovery(_)
        | fjall::Error::Storage(_)
        | fjall::Error::InvalidVersion(_)
        | fjall::Error::Decompress(_)
        | fjall::Error::InvalidTrailer
        | fjall::Error::InvalidTag(_)
        | fjall::Error::Unrecoverable => Error::EngineDamaged { message: error.to_string() },
        other => Error::Engine { action, message: other.to_string() },
    }
}
