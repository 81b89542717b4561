//! What all sessions of a server share: where partitions are, memory, plans, statistics, who is here.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use model::{port::Dispatch, time::Clock};
use parking_lot::Mutex;
use rand::{RngCore, SeedableRng, rngs::StdRng};

use crate::{cache::Cache, context::Activity, memory::Pool, session::CancelHandle, spill, stats::Known};

/// How a server runs SQL.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes that all statements together may hold.
    pub memory_bytes_max: usize,
    /// Bytes that one statement may hold.
    pub statement_bytes_max: usize,
    /// Bytes that an open transaction may buffer.
    pub transaction_bytes_max: usize,
    /// Where statements spill to.
    pub spill_directory: std::path::PathBuf,
    /// Bytes of all spill files.
    pub spill_bytes_max: u64,
    /// How long a lock is waited for where `lock_timeout` is 0.
    pub lock_wait: Duration,
    /// The seed of random numbers, for tests; none takes it from the system.
    pub seed: Option<u64>,
    /// The version that `version()` shows.
    pub version: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            memory_bytes_max: 512 << 20,
            statement_bytes_max: 256 << 20,
            transaction_bytes_max: 256 << 20,
            spill_directory: std::env::temp_dir().join("keystead-spill"),
            spill_bytes_max: 16 << 30,
            lock_wait: Duration::from_secs(3_600),
            seed: None,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }
}

/// What all sessions of a server share.
pub struct Engine {
    pub(crate) dispatch: Arc<dyn Dispatch>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) options: Options,
    pub(crate) cache: Cache,
    pub(crate) statistics: Known,
    pub(crate) pool: Arc<Pool>,
    pub(crate) spill: Arc<spill::Directory>,
    pub(crate) registry: Arc<Registry>,
    random: Mutex<StdRng>,
}

/// Who is here.
#[derive(Default)]
pub(crate) struct Registry {
    sessions: Mutex<BTreeMap<u64, (CancelHandle, Arc<Mutex<Activity>>)>>,
}

impl Registry {
    pub(crate) fn add(&self, session: u64, cancel: CancelHandle, activity: Arc<Mutex<Activity>>) {
        self.sessions.lock().insert(session, (cancel, activity));
    }

    pub(crate) fn remove(&self, session: u64) {
        self.sessions.lock().remove(&session);
    }

    pub(crate) fn activity(&self) -> Vec<Activity> {
        self.sessions.lock().values().map(|(_, activity)| activity.lock().clone()).collect()
    }
}

impl Engine {
    /// Takes away what sessions of an earlier process left; before any session opens.
    pub async fn drop_leftovers(&self) -> model::Result<()> {
        crate::session::drop_leftovers(self.dispatch.as_ref()).await?;
        crate::ddl::drop_unfinished(self.dispatch.as_ref()).await
    }

    /// An engine over partitions.
    pub fn new(dispatch: Arc<dyn Dispatch>, clock: Arc<dyn Clock>, options: Options) -> Arc<Self> {
        Arc::new(Self {
            dispatch,
            clock,
            cache: Cache::default(),
            statistics: Known::default(),
            pool: Pool::new(options.memory_bytes_max),
            spill: spill::Directory::open(options.spill_directory.clone(), options.spill_bytes_max),
            registry: Arc::default(),
            random: Mutex::new(options.seed.map_or_else(StdRng::from_os_rng, StdRng::seed_from_u64)),
            options,
        })
    }

    /// A random number that nobody can foretell, unless the options gave a seed.
    pub(crate) fn random(&self) -> u64 {
        self.random.lock().next_u64()
    }

    /// What every session does now.
    pub fn activity(&self) -> Vec<Activity> {
        self.registry.activity()
    }

    /// Bytes that statements hold now.
    pub fn memory_used(&self) -> usize {
        self.pool.used()
    }
}
