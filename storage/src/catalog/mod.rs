//! The control group's state on one node: the catalog, who holds which table, views.
//!
//! The same bargain as a data shard's: a group of entries is one engine batch with the applied log id in it, and an answer
//! is a value that all replicas agree on.
//!
//! Invariants:
//! - [`Control::catalog`] is an immutable snapshot, replaced whole when a change was applied and committed.
//! - A request's id gets one answer, however often it is proposed (among the last 4,096).
//! - Every object lies under a key of its own, with the catalog version that wrote it last; a shard's descriptor is valid
//!   for plans from that version on.
//!
//! Not here: what a change may do (`model::catalog`), what a view says (`cluster`).

mod apply;
mod image;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use hashbrown::HashMap;
use model::{
    catalog::{Catalog, Object},
    id::{CatalogVersion, ShardId, TableId, ViewId},
};
use parking_lot::{Mutex, RwLock};

use crate::{
    codec::{
        Put as _, Reader, catalog as object_codec,
        control::{self, Answer},
        entry::Held,
        state::Applied,
    },
    engine::{Engine, Keyspace},
    error::{Error, Result},
    keyspace,
};

pub use apply::{ControlEntry, ControlPayload};
pub use image::{Image, install};

/// The control group is shard 0.
pub const CONTROL: ShardId = ShardId(0);

/// How many answers are remembered.
const ANSWERS_MAX: u64 = 4_096;

/// The first byte of a key.
mod key {
    /// The applied log id.
    pub(super) const APPLIED: &[u8] = &[0x01, 0x01];
    /// Catalog version and next object id.
    pub(super) const HEAD: &[u8] = &[0x01, 0x02];
    /// The newest view.
    pub(super) const VIEW: &[u8] = &[0x01, 0x03];
    /// Objects: kind and number.
    pub(super) const OBJECT: u8 = 0x10;
    /// Grants: their own bytes.
    pub(super) const GRANT: u8 = 0x11;
    /// Holders: table u32, shard u32.
    pub(super) const HOLDER: u8 = 0x12;
    /// Answers: place u16 in the ring of the last.
    pub(super) const ANSWER: u8 = 0x13;
}

/// The control group's state. A cheap handle; all handles of one opening see the same.
#[derive(Clone)]
pub struct Control(Arc<Inner>);

struct Inner {
    engine: Engine,
    keyspace: Keyspace,
    /// Held while a group is applied, however long the engine takes; nothing else waits for it.
    applying: Mutex<()>,
    live: RwLock<Live>,
    applied: AtomicU64,
    /// What readers see.
    published: RwLock<Published>,
}

#[derive(Clone)]
struct Published {
    catalog: Arc<Catalog>,
    changed: Arc<BTreeMap<TableId, CatalogVersion>>,
    holders: Arc<BTreeSet<(TableId, ShardId)>>,
    view: Option<(ViewId, Bytes)>,
}

#[derive(Clone)]
struct Live {
    applied: Applied,
    published: Published,
    answers: Arc<HashMap<u128, Answer>>,
    /// The ids in the ring, by place, and how many answers were ever given.
    ring: Arc<Vec<u128>>,
    answered: u64,
}

impl Control {
    /// Opens, or begins, the control group's state.
    pub fn open(engine: &Engine, generation: u64) -> Result<Self> {
        let keyspace = engine.keyspace(&keyspace::keyspace_name(CONTROL, generation))?;
        let snapshot = engine.snapshot();
        let applied = match snapshot.get(&keyspace, key::APPLIED)? {
            Some(bytes) => Applied::decode(&bytes)?,
            None => Applied::default(),
        };
        let (version, next_id, answered) = match snapshot.get(&keyspace, key::HEAD)? {
            Some(bytes) => decode_head(&bytes)?,
            None => (CatalogVersion(0), 0, 0),
        };
        let view = match snapshot.get(&keyspace, key::VIEW)? {
            Some(bytes) => Some(decode_view(&bytes)?),
            None => None,
        };
        let (mut objects, mut changed) = (Vec::new(), BTreeMap::new());
        for pair in snapshot.prefix(&keyspace, &[key::OBJECT]) {
            let (since, object) = decode_object(&pair?.into_value())?;
            if let Object::Table(table) = &object {
                changed.insert(table.id, since);
            }
            objects.push(object);
        }
        let mut grants = Vec::new();
        for pair in snapshot.prefix(&keyspace, &[key::GRANT]) {
            grants.push(object_codec::decode_grant(&pair?.into_bytes().0.slice(1..))?);
        }
        let mut holders = BTreeSet::new();
        for pair in snapshot.prefix(&keyspace, &[key::HOLDER]) {
            holders.insert(parse_holder(pair?.key())?);
        }
        let (mut answers, mut ring) = (HashMap::new(), Vec::new());
        for pair in snapshot.prefix(&keyspace, &[key::ANSWER]) {
            let (id, answer) = control::decode_answer(&pair?.into_value())?;
            answers.insert(id, answer);
            ring.push(id);
        }
        let catalog = Catalog::restore(version, next_id, &objects, grants)
            .map_err(|error| Error::damaged(format!("the catalog: {}", error.message())))?;
        let published = Published {
            catalog: Arc::new(catalog),
            changed: Arc::new(changed),
            holders: Arc::new(holders),
            view,
        };
        let live = Live {
            applied,
            published: published.clone(),
            answers: Arc::new(answers),
            ring: Arc::new(ring),
            answered,
        };
        Ok(Self(Arc::new(Inner {
            engine: engine.clone(),
            keyspace,
            applied: AtomicU64::new(live.applied.index().map_or(0, |index| index + 1)),
            applying: Mutex::default(),
            live: RwLock::new(live),
            published: RwLock::new(published),
        })))
    }

    /// The last entry that was applied, and the last membership.
    pub fn applied(&self) -> Applied {
        self.0.live.read().applied.clone()
    }

    /// The index of the last entry that was applied: one atomic load.
    pub fn applied_index(&self) -> Option<u64> {
        self.0.applied.load(Ordering::Acquire).checked_sub(1)
    }

    /// The newest catalog; version 0 before the bootstrap.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.0.published.read().catalog.clone()
    }

    /// A table's descriptor as a shard is to hold it.
    pub fn held(&self, table: TableId) -> Option<Held> {
        let published = self.0.published.read();
        let descriptor = published.catalog.table(table)?;
        let since = published.changed.get(&table).copied().unwrap_or_default();
        Some(Held { table: descriptor.as_ref().clone(), since })
    }

    /// The shards that hold, or are going to hold, a table.
    pub fn holders(&self, table: TableId) -> Vec<ShardId> {
        let from = (table, ShardId(0));
        let published = self.0.published.read();
        published.holders.range(from..).take_while(|(of, _)| *of == table).map(|(_, shard)| *shard).collect()
    }

    /// The newest view, as `cluster` encodes it.
    pub fn view(&self) -> Option<(ViewId, Bytes)> {
        self.0.published.read().view.clone()
    }

    /// The keyspace it lies in.
    pub fn keyspace(&self) -> &Keyspace {
        &self.0.keyspace
    }
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Control(catalog {})", self.catalog().version())
    }
}

fn head_to_bytes(version: CatalogVersion, next_id: u32, answered: u64) -> Bytes {
    let mut out = vec![1];
    out.put_varint(version.0);
    out.put_varint(next_id.into());
    out.put_varint(answered);
    out.into()
}

fn decode_head(bytes: &Bytes) -> Result<(CatalogVersion, u32, u64)> {
    let mut reader = Reader::new(bytes, "the control group's head");
    let version = reader.u8()?;
    if version != 1 {
        return Ok(reader.unknown("the version of the control group's head", version.into())?);
    }
    let head = (CatalogVersion(reader.varint()?), reader.u32()?, reader.varint()?);
    reader.end()?;
    Ok(head)
}

fn view_to_bytes(id: ViewId, view: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(view.len() + 12);
    out.put_varint(id.0);
    out.put_blob(view);
    out.into()
}

fn decode_view(bytes: &Bytes) -> Result<(ViewId, Bytes)> {
    let mut reader = Reader::new(bytes, "a view");
    let view = (ViewId(reader.varint()?), reader.blob()?);
    reader.end()?;
    Ok(view)
}

fn object_to_bytes(since: CatalogVersion, object: &Object) -> Bytes {
    let mut out = Vec::with_capacity(256);
    out.put_varint(since.0);
    out.put_blob(&object_codec::object_to_bytes(object));
    out.into()
}

fn decode_object(bytes: &Bytes) -> Result<(CatalogVersion, Object)> {
    let mut reader = Reader::new(bytes, "a stored catalog object");
    let since = CatalogVersion(reader.varint()?);
    let object = reader.blob()?;
    reader.end()?;
    Ok((since, object_codec::decode_object(&object)?))
}

fn holder_key(table: TableId, shard: ShardId) -> Vec<u8> {
    [&[key::HOLDER][..], &table.0.to_be_bytes(), &shard.0.to_be_bytes()].concat()
}

fn parse_holder(key: &[u8]) -> Result<(TableId, ShardId)> {
    let numbers = key.get(1..).and_then(|rest| rest.first_chunk::<8>()).filter(|_| key.len() == 9);
    let numbers = numbers.ok_or_else(|| Error::damaged("a holder's key"))?;
    let [a, b, c, d, e, f, g, h] = *numbers;
    Ok((TableId(u32::from_be_bytes([a, b, c, d])), ShardId(u32::from_be_bytes([e, f, g, h]))))
}
