//! A segment file: its name, its header, its handle.
//!
//! Invariants:
//! - A file named `<number>.log` has a whole, synced header from the moment it has that name.
//! - Files of any other known name (`<number>.new`, `<number>.free`) hold nothing that is needed.
//! - Records begin at `DATA`; the block before it is never written again while the segment has its number.

use std::sync::Arc;

use super::files::{File, Files};
use super::record::{get_u32, get_u64, seed};
use super::{Error, Identity};
use crate::cut;

/// The format this build writes and reads.
pub(crate) const VERSION: u32 = 1;
/// Where records begin: one page, so that writing records never rewrites the header's page.
pub(crate) const DATA: u64 = 4096;
const MAGIC: &[u8; 8] = b"KSLOG\r\n\0";
const HEADER: usize = 80;
const RECYCLED: u32 = 1;

/// What the header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) identity: Identity,
    pub(crate) segment: u64,
    pub(crate) bytes: u64,
    /// The file held another segment before: what lies behind its records need not be zero.
    pub(crate) recycled: bool,
}

impl Header {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(DATA as usize);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&(if self.recycled { RECYCLED } else { 0 }).to_le_bytes());
        out.extend_from_slice(&self.identity.cluster.to_le_bytes());
        out.extend_from_slice(&self.identity.node.to_le_bytes());
        out.extend_from_slice(&self.identity.incarnation.to_le_bytes());
        out.extend_from_slice(&self.segment.to_le_bytes());
        out.extend_from_slice(&self.bytes.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        let crc = crc32c::crc32c(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        debug_assert_eq!(out.len(), HEADER);
        out.resize(DATA as usize, 0);
        out
    }

    /// Reads the header of the segment that a file's name says it is.
    pub(crate) fn decode(block: &[u8], segment: u64, identity: &Identity) -> Result<Header, Error> {
        let corrupt = |offset: u64, what: &'static str| Error::Corrupt { segment, offset, what };
        if block.len() < HEADER {
            return Err(corrupt(0, "file is shorter than a segment header"));
        }
        if &block[..8] != MAGIC {
            return Err(corrupt(0, "segment header has no magic"));
        }
        let version = get_u32(block, 8);
        if version != VERSION {
            return Err(Error::UnknownVersion { segment, version, known: VERSION });
        }
        if crc32c::crc32c(&block[..HEADER - 4]) != get_u32(block, HEADER - 4) {
            return Err(corrupt(0, "segment header has a wrong checksum"));
        }
        let found = Identity {
            cluster: get_u128(block, 16),
            node: get_u64(block, 32),
            incarnation: get_u128(block, 40),
        };
        let foreign = |what: &'static str, expected: String, found: String| {
            Err(Error::Foreign { segment, what, expected, found })
        };
        if found.cluster != identity.cluster {
            return foreign(
                "cluster",
                format!("{:032x}", identity.cluster),
                format!("{:032x}", found.cluster),
            );
        }
        if found.node != identity.node {
            return foreign("node", identity.node.to_string(), found.node.to_string());
        }
        if found.incarnation != identity.incarnation {
            let hex = |value: u128| format!("{value:032x}");
            return foreign("incarnation", hex(identity.incarnation), hex(found.incarnation));
        }
        if get_u64(block, 56) != segment {
            return Err(corrupt(56, "segment header names another segment than its file"));
        }
        let header = Header {
            identity: found,
            segment,
            bytes: get_u64(block, 64),
            recycled: get_u32(block, 12) & RECYCLED != 0,
        };
        if header.bytes < DATA || u32::try_from(header.bytes).is_err() {
            return Err(corrupt(64, "segment header names an impossible size"));
        }
        Ok(header)
    }
}

fn get_u128(bytes: &[u8], at: usize) -> u128 {
    u128::from(get_u64(bytes, at)) | u128::from(get_u64(bytes, at + 8)) << 64
}

/// An open segment.
pub(crate) struct Segment {
    pub(crate) number: u64,
    pub(crate) bytes: u64,
    pub(crate) seed: u32,
    pub(crate) file: Arc<dyn File>,
}

impl Segment {
    pub(crate) fn new(header: &Header, file: Arc<dyn File>) -> Segment {
        Segment {
            number: header.segment,
            bytes: header.bytes,
            seed: seed(header.identity.incarnation, header.segment),
            file,
        }
    }
}

/// What a file in the log's directory is, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    /// A segment.
    Segment(u64),
    /// A segment that was being made.
    New(u64),
    /// A segment that is no longer needed and may be used again.
    Free(u64),
}

impl Name {
    pub(crate) fn parse(name: &str) -> Option<Name> {
        let (number, extension) = name.split_once('.')?;
        if number.len() != 16 {
            return None;
        }
        let number = u64::from_str_radix(number, 16).ok()?;
        let name = match extension {
            "log" => Name::Segment(number),
            "new" => Name::New(number),
            "free" => Name::Free(number),
            _ => return None,
        };
        Some(name)
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Name::Segment(number) => write!(f, "{number:016x}.log"),
            Name::New(number) => write!(f, "{number:016x}.new"),
            Name::Free(number) => write!(f, "{number:016x}.free"),
        }
    }
}

/// Makes a zero-filled segment, durable under its name.
pub(crate) fn create(files: &dyn Files, header: &Header) -> Result<Segment, Error> {
    const ZEROS: &[u8] = &[0; 1 << 20];
    // Synced as it goes: one sync of a whole segment would hold up the writer's on the same disk.
    const SYNC_BYTES: u64 = 8 << 20;
    let name = Name::New(header.segment).to_string();
    // A try before this one may have left the file.
    let _ = files.remove(&name);
    let made = (|| {
        let file = files.create(&name).map_err(Error::io("create segment"))?;
        let mut offset = DATA;
        while offset < header.bytes {
            let count = (header.bytes - offset).min(ZEROS.len() as u64);
            file.write_all_at(&ZEROS[..count as usize], offset).map_err(Error::io("zero-fill segment"))?;
            offset += count;
            if offset % SYNC_BYTES < count {
                file.sync_data().map_err(Error::io("sync new segment"))?;
            }
        }
        finish(files, header, file, &name)
    })();
    if made.is_err() {
        // The first error is the one to report; a leftover is removed at the next open.
        let _ = files.remove(&name);
    }
    made
}

/// Turns a freed segment (already renamed, durably) into a new one.
pub(crate) fn recycle(files: &dyn Files, freed: u64, header: &Header) -> Result<Segment, Error> {
    let name = Name::Free(freed).to_string();
    let file = files.open(&name).map_err(Error::io("open freed segment"))?;
    finish(files, header, file, &name)
}

fn finish(files: &dyn Files, header: &Header, file: Arc<dyn File>, name: &str) -> Result<Segment, Error> {
    file.write_all_at(&header.encode(), 0).map_err(Error::io("write segment header"))?;
    file.sync_data().map_err(Error::io("sync new segment"))?;
    cut::point("segment.filled");
    files.rename(name, &Name::Segment(header.segment).to_string()).map_err(Error::io("rename segment"))?;
    cut::point("segment.renamed");
    sync_dir(files)?;
    Ok(Segment::new(header, file))
}

/// Makes renames durable. Even for want of room a failure here is final: what is on disk is not known any more.
pub(crate) fn sync_dir(files: &dyn Files) -> Result<(), Error> {
    files.sync_dir().map_err(|error| Error::io("sync log directory")(std::io::Error::other(error)))
}
