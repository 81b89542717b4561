//! Chunks: pairs of an engine as a checked stream, the form of every image.
//!
//! ```text
//! chunk     "KSIM" · version u8 · kind u8 · number u32 · length u32 · crc32c u32 · payload
//! manifest  kind 1, number 0: what it is an image of
//! pairs     kind 2: (length, key, length, value)… in key order
//! end       kind 3: count of pairs, xxh3-128 of all payloads of pairs
//! ```
//!
//! The CRC covers everything before and behind it in its chunk. A stream that lacks, repeats, reorders or changes anything is
//! an error to its reader, at the end at the latest.

use bytes::Bytes;
use xxhash_rust::xxh3::Xxh3;

use crate::{
    codec::{Put as _, Reader},
    engine::Pair,
    error::{Error, Result},
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

/// Makes chunks.
#[derive(Default)]
pub(crate) struct Writer {
    number: u32,
    pairs: u64,
    hash: Xxh3,
    ended: bool,
}

impl Writer {
    /// The first chunk.
    pub(crate) fn manifest(&mut self, payload: &[u8]) -> Bytes {
        self.chunk(MANIFEST, payload)
    }

    /// The next chunk of what `pair` gives; behind the last one the end, and then nothing.
    pub(crate) fn next(&mut self, mut pair: impl FnMut() -> Result<Option<Pair>>) -> Result<Option<Bytes>> {
        if self.ended {
            return Ok(None);
        }
        let mut payload = Vec::with_capacity(CHUNK_BYTES + 4_096);
        while payload.len() < CHUNK_BYTES {
            let Some(pair) = pair()? else { break };
            payload.put_blob(pair.key());
            payload.put_blob(pair.value());
            self.pairs += 1;
        }
        if !payload.is_empty() {
            self.hash.update(&payload);
            return Ok(Some(self.chunk(PAIRS, &payload)));
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

/// An image that is none.
pub(crate) fn refused(what: &str) -> Error {
    Error::Image { what: what.to_owned() }
}

/// What an image's first chunk says.
pub(crate) fn open_manifest(chunk: &Bytes) -> Result<Bytes> {
    let (kind, payload) = open_any(chunk, 0)?;
    if kind == MANIFEST { Ok(payload) } else { Err(refused("a chunk is of another kind")) }
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
pub(crate) struct Pairs<I> {
    chunks: I,
    number: u32,
    payload: Bytes,
    at: usize,
    count: u64,
    hash: Xxh3,
    ended: bool,
}

impl<I: Iterator<Item = Result<Bytes>>> Pairs<I> {
    /// Of the chunks behind the manifest.
    pub(crate) fn new(chunks: I) -> Self {
        Self { chunks, number: 1, payload: Bytes::new(), at: 0, count: 0, hash: Xxh3::new(), ended: false }
    }

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
