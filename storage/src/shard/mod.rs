//! A shard's state on one node: what `apply` makes of the log, and what reads see of it.
//!
//! Invariants:
//! - [`Shard::apply`] reads nothing but the shard's state and the entries; two replicas that applied the same entries, in
//!   whatever groups, have equal [`Shard::hash`]es and gave equal outcomes.
//! - A group of entries is one engine batch, together with the applied log id: after a crash the state is that of some
//!   applied entry, and applying from there again gives the same.
//! - An environment failure stops the replica (an error). A panic quarantines it: nothing of the group is kept.
//! - Rows are found by (partition, table, generation of the table's storage in that partition).
//!
//! Files: `apply` entries in order · `identity` what makes commands at most once · `execute` conditions and writes ·
//! `table` descriptors made ready, index keys · `overlay` the open batch · `part` large
//! commands · `load` many rows at once · `switched` generations in memory · `expire` receipts and feeds · `read` snapshots ·
//! `image` a range to carry away · `check` hashes and the self check · `collect` rows nobody sees any more.
//!
//! Not here: Raft, locks, owners (`cluster`).

mod apply;
mod check;
mod collect;
mod execute;
mod expire;
mod identity;
mod image;
mod load;
mod overlay;
mod part;
mod read;
mod switched;
mod table;
#[cfg(test)]
mod tests;

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use bytes::Bytes;
use hashbrown::HashMap;
use model::id::{NodeId, PartitionId, Revision, SequenceId, ShardId, TableId};
use model::schema::Sequence;
use parking_lot::{Mutex, RwLock};

use crate::{
    codec::{
        self,
        entry::Held,
        state::{self, Applied, Head},
    },
    engine::{Engine, Keyspace},
    error::{Error, Result},
    keyspace::{self, meta, region},
    log::LogId,
};

pub use check::Report;
pub use image::{Image, Install, Points};
pub use read::{FeedPage, Snapshot};
use switched::{Found, Switched};
pub use table::Compiled;

/// The layout of a shard's keyspace.
const FORMAT: u64 = 1;

/// A shard's state. A cheap handle; all handles of one opening see the same.
#[derive(Clone)]
pub struct Shard(Arc<Inner>);

struct Inner {
    engine: Engine,
    keyspace: Keyspace,
    id: ShardId,
    generation: u64,
    /// Held while a group is applied, however long the engine takes; nothing else waits for it.
    applying: Mutex<Remembered>,
    live: RwLock<Live>,
    /// `log index + 1` of what was applied last; 0 for nothing.
    applied: AtomicU64,
    revision: AtomicU64,
    descriptors: RwLock<Arc<Tables>>,
    /// The revision that a snapshot saw last, and where that stood in the order of writes.
    seen: Mutex<Option<(u64, Revision)>>,
    /// The key up to which the collector has taken away what it is at; empty at the start of a pass.
    collected: Mutex<Bytes>,
    /// There may be something for the collector.
    buried: AtomicBool,
    switched: Switched,
    quarantine: Mutex<Option<String>>,
}

/// The state's hot records in memory, as the last committed batch left them.
#[derive(Clone)]
struct Live {
    applied: Applied,
    head: Head,
    boots: Arc<HashMap<NodeId, model::id::Boot>>,
}

/// What nearly every entry looks at, as the last committed batch left it, so that it need not be read again. A group that
/// fails empties it.
#[derive(Default)]
struct Remembered {
    /// The last boot and number of each slot that was used since the shard was opened: what a higher number needs to know.
    slots: HashMap<(NodeId, u16), (model::id::Boot, u64)>,
    /// By key; at most [`REMEMBERED_MAX`].
    counters: HashMap<Bytes, state::Counters>,
    /// By key; at most [`REMEMBERED_MAX`].
    partitions: HashMap<Bytes, state::PartitionState>,
}

/// How many partitions' counters are remembered; beyond it all are forgotten.
const REMEMBERED_MAX: usize = 4_096;

/// The descriptors a shard holds, made ready.
#[derive(Clone, Default)]
struct Tables {
    tables: HashMap<TableId, Arc<Compiled>>,
    sequences: HashMap<SequenceId, Arc<Sequence>>,
}

/// One entry of the log, to be applied.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Its place.
    pub log_id: LogId,
    /// What it carries.
    pub payload: Payload<'a>,
}

/// What an entry of the log carries.
#[derive(Clone, Copy, Debug)]
pub enum Payload<'a> {
    /// Nothing: a leader's first entry.
    Blank,
    /// A membership, as the caller encodes it.
    Membership(&'a [u8]),
    /// The bytes of a [`codec::entry::Entry`].
    Encoded(&'a Bytes),
    /// An entry that was decoded before.
    Decoded(&'a codec::entry::Entry),
}

/// What came of an entry.
#[derive(Clone, PartialEq, Debug)]
pub enum EntryOutcome {
    /// Nothing was to be decided.
    Done,
    /// It was proposed under a claim that is no longer the shard's.
    Fenced,
    /// A command's outcome.
    Command(model::command::Outcome),
    /// A page of an index was built.
    Backfilled(Backfilled),
    /// So many due records were done.
    Expired(u32),
}

/// How far the building of an index went.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Backfilled {
    /// Go on from this row key.
    Next(Bytes),
    /// The partition's rows are all in the index.
    End,
    /// Two rows have this key of a unique index.
    Duplicate(Bytes),
    /// The index is no longer there, or no longer being built.
    Gone,
}

impl Shard {
    /// Opens, or begins, a generation of a shard's state.
    pub fn open(engine: &Engine, id: ShardId, generation: u64) -> Result<Self> {
        let keyspace = engine.keyspace(&keyspace::keyspace_name(id, generation))?;
        let snapshot = engine.snapshot();
        let read = |key: &[u8]| snapshot.get(&keyspace, key);
        if let Some(format) = read(&keyspace::meta_key(meta::FORMAT))? {
            let found = state::decode_revision(&format)?.0;
            if found != FORMAT {
                return Err(
                    codec::Error::Unknown { what: "the layout of a shard's state", number: found }.into()
                );
            }
        }
        let applied = match read(&keyspace::meta_key(meta::APPLIED))? {
            Some(bytes) => Applied::decode(&bytes)?,
            None => Applied::default(),
        };
        let head = match read(&keyspace::meta_key(meta::HEAD))? {
            Some(bytes) => Head::decode(&bytes)?,
            None => Head::default(),
        };
        let numbered = |kind: u8| {
            snapshot.prefix(&keyspace, &[region::META, kind]).map(|pair| {
                let (key, value) = pair?.into_bytes();
                let number = key.get(2..).and_then(|rest| rest.try_into().ok()).map(u32::from_be_bytes);
                number.map(|number| (number, value)).ok_or_else(|| Error::damaged("a key of the meta region"))
            })
        };
        let mut boots = HashMap::new();
        for pair in numbered(meta::BOOT) {
            let (node, value) = pair?;
            boots.insert(NodeId(node), model::id::Boot(state::decode_revision(&value)?.0));
        }
        let mut tables = Tables::default();
        for pair in numbered(meta::TABLE) {
            let (id, value) = pair?;
            tables.tables.insert(TableId(id), Arc::new(Compiled::new(state::decode_held(&value)?)));
        }
        for pair in numbered(meta::SEQUENCE) {
            let (id, value) = pair?;
            tables.sequences.insert(SequenceId(id), Arc::new(state::decode_sequence(&value)?));
        }
        let mut switched = Vec::new();
        for pair in numbered(meta::SWITCHED) {
            switched.push(TableId(pair?.0));
        }
        Ok(Self(Arc::new(Inner {
            engine: engine.clone(),
            keyspace,
            id,
            generation,
            applied: AtomicU64::new(applied.index().map_or(0, |index| index + 1)),
            revision: AtomicU64::new(head.revision.0),
            applying: Mutex::default(),
            live: RwLock::new(Live { applied, head, boots: Arc::new(boots) }),
            descriptors: RwLock::new(Arc::new(tables)),
            seen: Mutex::default(),
            collected: Mutex::default(),
            buried: AtomicBool::new(true),
            switched: Switched::new(switched),
            quarantine: Mutex::new(None),
        })))
    }

    /// Which shard.
    pub fn id(&self) -> ShardId {
        self.0.id
    }

    /// Which generation of its state.
    pub fn generation(&self) -> u64 {
        self.0.generation
    }

    /// The keyspace it lies in.
    pub fn keyspace(&self) -> &Keyspace {
        &self.0.keyspace
    }

    /// The last entry that was applied, and the last membership.
    pub fn applied(&self) -> Applied {
        self.0.live.read().applied.clone()
    }

    /// The index of the last entry that was applied: one atomic load.
    pub fn applied_index(&self) -> Option<u64> {
        self.0.applied.load(Ordering::Acquire).checked_sub(1)
    }

    /// The revision of the last applied command: one atomic load.
    pub fn revision(&self) -> Revision {
        Revision(self.0.revision.load(Ordering::Acquire))
    }

    /// Revision, clocks, claim and semantics version.
    pub fn head(&self) -> Head {
        self.0.live.read().head
    }

    /// The descriptor held of a table.
    pub fn held(&self, table: TableId) -> Option<Arc<Compiled>> {
        self.0.descriptors.read().tables.get(&table).cloned()
    }

    /// The descriptors held of all tables.
    pub fn held_tables(&self) -> Vec<Arc<Compiled>> {
        let mut held: Vec<_> = self.0.descriptors.read().tables.values().cloned().collect();
        held.sort_unstable_by_key(|table| table.held().table.id);
        held
    }

    /// The descriptor held of a sequence.
    pub fn held_sequence(&self, sequence: SequenceId) -> Option<Arc<Sequence>> {
        self.0.descriptors.read().sequences.get(&sequence).cloned()
    }

    /// This moment of the state, to be read.
    pub fn snapshot(&self) -> Snapshot {
        let settled = self.0.switched.settled();
        Snapshot::new(self.clone(), self.0.engine.snapshot(), settled)
    }

    /// The same, for passes over many rows: it costs a little more to take and makes large pages cheap.
    pub fn snapshot_to_sweep(&self) -> Snapshot {
        let settled = self.0.switched.settled();
        Snapshot::new(self.clone(), self.0.engine.snapshot_of(&self.0.keyspace), settled)
    }

    /// One row by key, at this moment.
    pub fn get(&self, partition: &PartitionId, table: TableId, key: &[u8]) -> Result<Option<Bytes>> {
        let settled = self.0.switched.settled();
        let snapshot = self.0.engine.snapshot();
        let generation = match self.0.switched.find(partition, table, settled) {
            Found::Known(generation) => generation,
            Found::Unknown => self.storage_generation(partition, table, &snapshot)?,
        };
        snapshot.get(&self.0.keyspace, &keyspace::row_key(partition, table, generation, key))
    }

    /// Why the replica was stopped, if it was.
    pub fn quarantined(&self) -> Option<String> {
        self.0.quarantine.lock().clone()
    }

    /// Stops the replica: nothing more is applied. The first reason stays.
    pub fn quarantine(&self, reason: impl Into<String>) {
        self.0.quarantine.lock().get_or_insert_with(|| reason.into());
    }

    /// The generation of a table's storage in a partition as a snapshot of the engine sees it.
    fn storage_generation(
        &self,
        partition: &PartitionId,
        table: TableId,
        snapshot: &crate::engine::Snapshot,
    ) -> Result<Revision> {
        if !self.0.switched.contains(table) {
            return Ok(Revision(0));
        }
        match snapshot.get(&self.0.keyspace, &keyspace::storage_key(partition, table))? {
            Some(bytes) => Ok(state::decode_revision(&bytes)?),
            None => Ok(Revision(0)),
        }
    }
}

impl std::fmt::Debug for Shard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Shard({}.{})", self.0.id, self.0.generation)
    }
}

/// A table's descriptor, for callers that only have the catalog's.
impl From<Held> for Compiled {
    fn from(held: Held) -> Self {
        Self::new(held)
    }
}
