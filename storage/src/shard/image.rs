//! Images: the state of a range of points at one moment, as a stream of bounded chunks, and back into a fresh generation.
//!
//! ```text
//! chunk     "KSIM" · version u8 · kind u8 · number u32 · length u32 · crc32c u32 · payload
//! manifest  kind 1, number 0: shard, points, applied log id and membership, revision
//! pairs     kind 2: (length, key, length, value)… in key order
//! end       kind 3: count of pairs, xxh3-128 of all payloads of pairs
//! ```
//!
//! The CRC covers everything before and behind it in its chunk. Installing is atomic: a generation without its applied log
//! id, which is written last, is not a state and is deleted.

use std::ops::Bound;

use bytes::Bytes;
use model::id::{Point, Revision, ShardId};
use xxhash_rust::xxh3::Xxh3;

use super::{Shard, Snapshot};
use crate::{
    codec::{Put as _, Reader, state::Applied},
    engine::{self, Batch, Engine},
    error::{Error, Result},
    keyspace::{self, meta, region},
};

const MAGIC: [u8; 4] = *b"KSIM";
const VERSION: u8 = 1;
const HEADER_BYTES: usize = 18;
const MANIFEST: u8 = 1;
const PAIRS: u8 = 2;
const END: u8 = 3;

/// A chunk is closed once it is this large.
const CHUNK_BYTES: usize = 256 << 10;

/// A chunk larger than this is refused: one pair of the largest row and its header.
const CHUNK_BYTES_MAX: usize = 64 << 20;

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
    number: u32,
    pairs: u64,
    hash: Xxh3,
    ended: bool,
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
            number: 0,
            pairs: 0,
            hash: Xxh3::new(),
            ended: false,
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
            return Ok(Some(self.chunk(MANIFEST, &manifest)));
        }
        let mut payload = Vec::with_capacity(CHUNK_BYTES + 4_096);
        while payload.len() < CHUNK_BYTES {
            let Some(pass) = self.passes.last_mut() else { break };
            let Some(pair) = pass.next() else {
                self.passes.pop();
                continue;
            };
            let pair = pair?;
            let key = pair.key();
            let elsewhere = keyspace::point_of(key).is_some_and(|point| !self.points.contains(point));
            if elsewhere || key.starts_with(&keyspace::meta_key(meta::APPLIED)) {
                continue;
            }
            payload.put_blob(key);
            payload.put_blob(pair.value());
            self.pairs += 1;
        }
        if !payload.is_empty() {
            self.hash.update(&payload);
            return Ok(Some(self.chunk(PAIRS, &payload)));
        }
        if self.ended {
            return Ok(None);
        }
        self.ended = true;
        payload.put_varint(self.pairs);
        payload.put_u128(self.hash.digest128());
        Ok(Some(self.chunk(END, &payload)))
    }

    fn chunk(&mut self, kind: u8, payload: &[u8]) -> Bytes {
        let mut chunk = Vec::with_capacity(HEADER_BYTES + payload.len());
        chunk.extend_from_slice(&MAGIC);
        chunk.push(VERSION);
        chunk.push(kind);
        chunk.extend_from_slice(&self.number.to_le_bytes());
        chunk.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        let crc = crc32c::crc32c_append(crc32c::crc32c(&chunk), payload);
        chunk.extend_from_slice(&crc.to_le_bytes());
        chunk.extend_from_slice(payload);
        self.number += 1;
        chunk.into()
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
        let manifest = open_chunk(&first, MANIFEST, 0)?;
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
        let pairs = Pairs {
            chunks,
            number: 1,
            payload: Bytes::new(),
            at: 0,
            count: 0,
            hash: Xxh3::new(),
            ended: false,
        };
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

fn refused(what: &str) -> Error {
    Error::Image { what: what.to_owned() }
}

/// The payload of a chunk of one kind, checked.
fn open_chunk(chunk: &Bytes, kind: u8, number: u32) -> Result<Bytes> {
    let (found, payload) = open_any(chunk, number)?;
    if found == kind { Ok(payload) } else { Err(refused("a chunk is of another kind")) }
}

fn open_any(chunk: &Bytes, number: u32) -> Result<(u8, Bytes)> {
    let header = chunk.first_chunk::<HEADER_BYTES>().ok_or_else(|| refused("a chunk is cut short"))?;
    if header[..4] != MAGIC {
        return Err(refused("a chunk is none"));
    }
    if header[4] != VERSION {
        return Err(refused("it was written by another version"));
    }
    let word = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let payload = chunk.slice(HEADER_BYTES..);
    if payload.len() != word(10) as usize || payload.len() > CHUNK_BYTES_MAX {
        return Err(refused("a chunk has another length than it says"));
    }
    if crc32c::crc32c_append(crc32c::crc32c(&header[..14]), &payload) != word(14) {
        return Err(refused("a chunk is damaged"));
    }
    if word(6) != number {
        return Err(refused("a chunk is missing or out of order"));
    }
    Ok((header[5], payload))
}

/// The pairs of all chunks behind the manifest; fails at the end if they are not those that were sent.
struct Pairs<I> {
    chunks: I,
    number: u32,
    payload: Bytes,
    at: usize,
    count: u64,
    hash: Xxh3,
    ended: bool,
}

impl<I: Iterator<Item = Result<Bytes>>> Pairs<I> {
    fn advance(&mut self) -> Result<Option<(Bytes, Bytes)>> {
        while self.at == self.payload.len() {
            if self.ended {
                return Ok(None);
            }
            let chunk = self.chunks.next().ok_or_else(|| refused("it has no end"))??;
            let (kind, payload) = open_any(&chunk, self.number)?;
            self.number += 1;
            match kind {
                PAIRS => {
                    self.hash.update(&payload);
                    (self.payload, self.at) = (payload, 0);
                }
                END => {
                    let mut reader = Reader::new(&payload, "an image's end");
                    let (count, hash) = (reader.varint()?, reader.u128()?);
                    reader.end()?;
                    if count != self.count || hash != self.hash.digest128() {
                        return Err(refused("it does not hold what its end says"));
                    }
                    self.ended = true;
                }
                _ => return Err(refused("a chunk is of another kind")),
            }
        }
        let rest = self.payload.slice(self.at..);
        let mut reader = Reader::new(&rest, "a pair of an image");
        let pair = (reader.blob()?, reader.blob()?);
        self.at = self.payload.len() - reader.left();
        self.count += 1;
        Ok(Some(pair))
    }
}

impl<I: Iterator<Item = Result<Bytes>>> Iterator for Pairs<I> {
    type Item = Result<(Bytes, Bytes)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.advance().transpose()
    }
}
