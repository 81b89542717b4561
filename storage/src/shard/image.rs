//! Images: the state of a range of points at one moment, as a stream of bounded chunks, and back into a fresh generation.
//!
//! The manifest is: shard, points, applied log id and membership, revision. The chunks are drawn in `chunk`.
//!
//! Installing is atomic: a generation without its applied log id, which is written last, is not a state and is deleted.

use std::ops::Bound;

use bytes::Bytes;
use model::id::{Point, Revision, ShardId};

use super::{Shard, Snapshot};
use crate::{
    chunk::{Pairs, Writer, open_manifest, refused},
    codec::{Put as _, Reader, state::Applied},
    engine::{self, Batch, Engine},
    error::Result,
    keyspace::{self, meta, region},
};

/// A range of points, both ends inclusive, that does not wrap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Points {
    from: Point,
    to: Point,
}

impl Points {
    /// All of the ring.
    pub const ALL: Self = Self { from: Point(0), to: Point(u32::MAX) };

    /// From one point to another, both inclusive; none if they are in the wrong order.
    pub fn new(from: Point, to: Point) -> Option<Self> {
        (from <= to).then_some(Self { from, to })
    }

    /// Whether a point lies in it.
    pub fn contains(&self, point: Point) -> bool {
        (self.from..=self.to).contains(&point)
    }

    /// Whether a key's point lies in it; the shard's own records belong to all of the ring only.
    pub(super) fn covers(&self, key: &[u8]) -> bool {
        keyspace::point_of(key).map_or(*self == Self::ALL, |point| self.contains(point))
    }
}

/// An image on its way out.
pub struct Image {
    snapshot: Snapshot,
    points: Points,
    manifest: Option<Bytes>,
    passes: Vec<engine::Iter>,
    writer: Writer,
    applied: Applied,
}

impl Shard {
    /// An image of a range of points, consistent at this moment.
    pub fn image(&self, points: Points) -> Result<Image> {
        let snapshot = self.snapshot();
        let bytes = snapshot.engine().get(&self.0.keyspace, &keyspace::meta_key(meta::APPLIED))?;
        let applied = match &bytes {
            Some(bytes) => Applied::decode(bytes)?,
            None => Applied::default(),
        };
        let mut manifest = Vec::with_capacity(64);
        manifest.put_varint(self.0.id.0.into());
        manifest.put_varint(points.from.0.into());
        manifest.put_varint(points.to.0.into());
        manifest.put_blob(&applied.to_bytes());
        manifest.put_varint(snapshot.revision()?.0);
        let range = |from: &[u8], to: Option<&[u8]>| {
            let to = to.map_or(Bound::Unbounded, Bound::Excluded);
            snapshot.engine().range(&self.0.keyspace, Bound::Included(from), to)
        };
        let pointed = |of: u8| {
            let from = keyspace::point_bound(of, points.from);
            let to = match points.to.0.checked_add(1) {
                Some(to) => keyspace::point_bound(of, Point(to)).to_vec(),
                None => vec![of + 1],
            };
            range(&from, Some(&to))
        };
        // In key order; popped from the back.
        let passes = vec![
            range(&[region::DUE], None),
            pointed(region::DATA),
            range(&[region::PARTITIONS], Some(&[region::PARTITIONS + 1])),
            pointed(region::COUNTERS),
            range(&[region::META], Some(&[region::COUNTERS])),
        ];
        Ok(Image {
            snapshot: snapshot.clone(),
            points,
            manifest: Some(manifest.into()),
            passes,
            writer: Writer::default(),
            applied,
        })
    }
}

impl Image {
    /// The applied log id and membership it has.
    pub fn applied(&self) -> &Applied {
        &self.applied
    }

    /// The moment it is of.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// The next chunk; none when all were given.
    pub fn next_chunk(&mut self) -> Result<Option<Bytes>> {
        if let Some(manifest) = self.manifest.take() {
            return Ok(Some(self.writer.manifest(&manifest)));
        }
        let Self { passes, points, writer, .. } = self;
        writer.next(|| {
            loop {
                let Some(pass) = passes.last_mut() else { return Ok(None) };
                let Some(pair) = pass.next() else {
                    passes.pop();
                    continue;
                };
                let pair = pair?;
                let key = pair.key();
                let elsewhere = keyspace::point_of(key).is_some_and(|point| !points.contains(point));
                if !elsewhere && !key.starts_with(&keyspace::meta_key(meta::APPLIED)) {
                    return Ok(Some(pair));
                }
            }
        })
    }
}

impl Iterator for Image {
    type Item = Result<Bytes>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_chunk().transpose()
    }
}

/// Where an image goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Install {
    /// The shard it must be of.
    pub source: ShardId,
    /// The shard it becomes.
    pub target: ShardId,
    /// The generation it becomes; nothing may be there yet.
    pub generation: u64,
}

impl Install {
    /// Makes a generation out of an image's chunks, or leaves nothing. What it answers is on disk.
    pub fn run(self, engine: &Engine, chunks: impl Iterator<Item = Result<Bytes>>) -> Result<Shard> {
        let name = keyspace::keyspace_name(self.target, self.generation);
        if engine.has_keyspace(&name) {
            return Err(refused("its generation is there already"));
        }
        let installed = self.fill(engine, &name, chunks);
        if installed.is_err() {
            engine.delete_keyspace(engine.keyspace(&name)?)?;
        }
        installed
    }

    fn fill(
        self,
        engine: &Engine,
        name: &str,
        mut chunks: impl Iterator<Item = Result<Bytes>>,
    ) -> Result<Shard> {
        let keyspace = engine.keyspace(name)?;
        let first = chunks.next().ok_or_else(|| refused("it is empty"))??;
        let manifest = open_manifest(&first)?;
        let mut reader = Reader::new(&manifest, "an image's manifest");
        let source = ShardId(reader.u32()?);
        let (_from, _to) = (reader.u32()?, reader.u32()?);
        let applied = reader.blob()?;
        let revision = Revision(reader.varint()?);
        reader.end()?;
        if source != self.source {
            return Err(refused("it is of another shard"));
        }
        Applied::decode(&applied)?;
        let pairs = Pairs::new(chunks);
        engine.ingest(&keyspace, pairs)?;
        let mut batch = Batch::new();
        batch.put(&keyspace, Bytes::copy_from_slice(&keyspace::meta_key(meta::APPLIED)), applied);
        engine.commit(batch)?;
        engine.persist()?;
        let shard = Shard::open(engine, self.target, self.generation)?;
        if shard.revision() != revision {
            return Err(refused("its manifest and its head differ"));
        }
        Ok(shard)
    }
}
