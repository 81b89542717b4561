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
    sync::Arc,
};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use fjall::{
    CompressionType, Database, KeyspaceCreateOptions, KvSeparationOptions, PersistMode, Readable as _,
};

use super::{Batch, KeyspaceOf, Options};
use crate::error::{Error, Result};

pub(super) use fjall::{Iter, Keyspace, Slice, Snapshot};

/// A fjall database.
pub(super) struct Lsm {
    database: Database,
    directory: PathBuf,
    memtable_bytes_max: u64,
    separate_bytes_min: u32,
    /// The snapshot that was last read at; good for as long as nothing was written since.
    latest: ArcSwapOption<Snapshot>,
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
        })
    }

    pub(super) fn keyspace(&self, name: &str) -> Result<Keyspace> {
        let options = || {
            KeyspaceCreateOptions::default().max_memtable_size(self.memtable_bytes_max).with_kv_separation(
                Some(KvSeparationOptions::default().separation_threshold(self.separate_bytes_min)),
            )
        };
        let is_new = !self.database.keyspace_exists(name);
        let keyspace =
            self.database.keyspace(name, options).map_err(|error| self.failure("open a keyspace", error))?;
        if is_new {
            sync_names(&self.directory)?;
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
        self.database.delete_keyspace(keyspace).map_err(|error| self.failure("delete a keyspace", error))
    }

    pub(super) fn commit(&self, batch: Batch) -> Result<()> {
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
        let committed = writes.commit().map_err(|error| self.failure("write a batch", error));
        // An old snapshot keeps old versions alive: it goes with what it does not see, not with the next read.
        if self.latest.load().is_some() {
            self.latest.store(None);
        }
        committed
    }

    /// This moment. While nothing is written all readers share one snapshot, because opening and closing one takes locks
    /// that they share.
    ///
    /// Flushes and compactions move `visible_seqno` too, so that the shared snapshot does not keep their input alive.
    pub(super) fn snapshot(&self) -> Arc<Snapshot> {
        let visible = self.database.visible_seqno();
        if let Some(latest) = &*self.latest.load()
            && latest.seqno() == visible
        {
            return latest.clone();
        }
        let fresh = Arc::new(self.database.snapshot());
        self.latest.store(Some(fresh.clone()));
        fresh
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

pub(super) fn flush(keyspace: &Keyspace) -> Result<()> {
    keyspace.rotate_memtable_and_wait().map_err(|error| failure("flush", Path::new(""), error))
}

pub(super) fn ingest(
    keyspace: &Keyspace,
    pairs: impl Iterator<Item = Result<(Bytes, Bytes)>>,
) -> Result<u64> {
    let mut count = 0;
    ingest_from(keyspace, |put| {
        for pair in pairs {
            let (key, value) = pair?;
            put(&key, &value)?;
            count += 1;
        }
        Ok(())
    })?;
    Ok(count)
}

pub(super) fn ingest_from(
    keyspace: &Keyspace,
    fill: impl FnOnce(&mut dyn FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()>,
) -> Result<()> {
    let fail = |error| failure("ingest", Path::new(""), error);
    let mut ingestion = keyspace.start_ingestion().map_err(fail)?;
    let mut last: Vec<u8> = Vec::new();
    let mut begun = false;
    fill(&mut |key, value| {
        super::check_ascending(begun.then_some(&last), key)?;
        ingestion.write(key, value).map_err(fail)?;
        begun = true;
        last.clear();
        last.extend_from_slice(key);
        Ok(())
    })?;
    ingestion.finish().map_err(fail)
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
