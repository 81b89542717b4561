//! The bytes of a log record: one header for all kinds, one body per kind.
//!
//! Invariants:
//! - A record starts and ends on a multiple of eight bytes; its CRC covers all but itself, padding included.
//! - The CRC is seeded with the directory's incarnation and the segment's number, so that neither the stale bytes of a
//!   recycled segment nor bytes a client put into an entry can pass for a record.
//! - Encoding leaves segment, sync group and LSN blank; the writer stamps them when it knows where the record goes.
//!
//! The drawing is `docs/formats/log.md`. Not here: what a sequence of records means (`meta`, `recover`).

use bytes::Bytes;

use super::meta::Meta;
use super::types::INDEX_MAX;
use super::{GroupId, LogId};

/// Bytes before a record's body.
pub(crate) const HEADER: usize = 40;
/// Bytes of an appended entry's body before its payload.
pub(crate) const ENTRY_HEADER: usize = 32;
/// Set on the last record of a sync group.
pub(crate) const LAST_OF_GROUP: u8 = 1;

/// The number in a record that says what its body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Append = 1,
    Vote = 2,
    Truncate = 3,
    Purge = 4,
    Committed = 5,
    Checkpoint = 6,
    GroupCreate = 7,
    GroupDrop = 8,
    SnapshotInstalled = 9,
    Seal = 10,
    SegmentStart = 11,
    GroupState = 12,
    Rewrite = 13,
    Begin = 14,
    Resume = 15,
}

impl Kind {
    pub(crate) fn find(byte: u8) -> Option<Kind> {
        Some(match byte {
            1 => Kind::Append,
            2 => Kind::Vote,
            3 => Kind::Truncate,
            4 => Kind::Purge,
            5 => Kind::Committed,
            6 => Kind::Checkpoint,
            7 => Kind::GroupCreate,
            8 => Kind::GroupDrop,
            9 => Kind::SnapshotInstalled,
            10 => Kind::Seal,
            11 => Kind::SegmentStart,
            12 => Kind::GroupState,
            13 => Kind::Rewrite,
            14 => Kind::Begin,
            15 => Kind::Resume,
            _ => return None,
        })
    }
}

/// What a record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Body<'a> {
    /// An entry at the end of a group's log.
    Append { id: LogId, kind: u8, payload: &'a [u8] },
    /// The group's vote.
    Vote(&'a [u8]),
    /// Entries from this index on are gone.
    Truncate { from: u64 },
    /// Entries up to and including this one are gone.
    Purge { upto: LogId },
    /// Entries up to and including this one are known to be committed.
    Committed { upto: LogId },
    /// What the engine has made durable, by group.
    Checkpoint { applied: Vec<(GroupId, u64)> },
    /// A group begins to exist with this state.
    GroupCreate(Meta),
    /// A group is gone with all its entries.
    GroupDrop,
    /// The group's state was replaced by a snapshot; entries up to it are gone.
    SnapshotInstalled { upto: LogId, data: &'a [u8] },
    /// Everything before was synced.
    Seal,
    /// The head of a segment: so many `GroupState` records follow.
    SegmentStart { groups: u32 },
    /// A group's state where the segment begins.
    GroupState(Meta),
    /// A live entry copied from an old segment.
    Rewrite { id: LogId, kind: u8, payload: &'a [u8] },
    /// The group's empty log goes on at this index.
    Begin { index: u64 },
    /// The log goes on after a torn tail: names the last sync group and LSN before the cut.
    Resume { sync_group: u64, lsn: u64 },
}

/// A whole record as found in a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    pub(crate) kind: u8,
    pub(crate) last: bool,
    pub(crate) group: GroupId,
    pub(crate) sync_group: u64,
    pub(crate) lsn: u64,
    pub(crate) body: &'a [u8],
    /// Bytes from this record to the next.
    pub(crate) size: usize,
}

/// Bytes a record with a body of this length takes.
pub(crate) const fn size_of_record(body: usize) -> usize {
    HEADER + body.next_multiple_of(8)
}

/// The start value of every CRC of a segment.
pub(crate) fn seed(incarnation: u128, segment: u64) -> u32 {
    let mut bytes = [0; 24];
    bytes[..16].copy_from_slice(&incarnation.to_le_bytes());
    bytes[16..].copy_from_slice(&segment.to_le_bytes());
    crc32c::crc32c(&bytes)
}

/// Appends an unstamped record.
pub(crate) fn encode(group: GroupId, body: &Body<'_>, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER]);
    let kind = match body {
        Body::Append { id, kind, payload } => {
            put_entry(out, *id, *kind, payload);
            Kind::Append
        }
        Body::Rewrite { id, kind, payload } => {
            put_entry(out, *id, *kind, payload);
            Kind::Rewrite
        }
        Body::Vote(bytes) => {
            out.extend_from_slice(bytes);
            Kind::Vote
        }
        Body::Truncate { from } => {
            put_u64(out, *from);
            Kind::Truncate
        }
        Body::Purge { upto } => {
            put_id(out, *upto);
            Kind::Purge
        }
        Body::Committed { upto } => {
            put_id(out, *upto);
            Kind::Committed
        }
        Body::Checkpoint { applied } => {
            for (group, index) in applied {
                put_u64(out, u64::from(group.0));
                put_u64(out, *index);
            }
            Kind::Checkpoint
        }
        Body::GroupCreate(meta) => {
            meta.encode(out);
            Kind::GroupCreate
        }
        Body::GroupDrop => Kind::GroupDrop,
        Body::SnapshotInstalled { upto, data } => {
            put_id(out, *upto);
            out.extend_from_slice(data);
            Kind::SnapshotInstalled
        }
        Body::Seal => Kind::Seal,
        Body::SegmentStart { groups } => {
            put_u64(out, u64::from(*groups));
            Kind::SegmentStart
        }
        Body::GroupState(meta) => {
            meta.encode(out);
            Kind::GroupState
        }
        Body::Begin { index } => {
            put_u64(out, *index);
            Kind::Begin
        }
        Body::Resume { sync_group, lsn } => {
            put_u64(out, *sync_group);
            put_u64(out, *lsn);
            Kind::Resume
        }
    };
    let length = out.len() - start - HEADER;
    out.resize(start + size_of_record(length), 0);
    let header = &mut out[start..start + HEADER];
    let length =
        u32::try_from(length).expect("record sizes are checked against the segment size before encoding");
    header[4..8].copy_from_slice(&length.to_le_bytes());
    header[8] = kind as u8;
    header[12..16].copy_from_slice(&group.0.to_le_bytes());
}

/// Where a record goes, known only to the writer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamp {
    pub(crate) seed: u32,
    pub(crate) segment: u64,
    pub(crate) sync_group: u64,
    pub(crate) lsn: u64,
    pub(crate) last: bool,
}

/// Completes an encoded record.
pub(crate) fn stamp(record: &mut [u8], stamp: Stamp) {
    record[9] = if stamp.last { LAST_OF_GROUP } else { 0 };
    record[16..24].copy_from_slice(&stamp.segment.to_le_bytes());
    record[24..32].copy_from_slice(&stamp.sync_group.to_le_bytes());
    record[32..40].copy_from_slice(&stamp.lsn.to_le_bytes());
    let crc = crc32c::crc32c_append(stamp.seed, &record[4..]);
    record[..4].copy_from_slice(&crc.to_le_bytes());
}

/// The size, kind and group of a record that we encoded ourselves.
pub(crate) fn peek(record: &[u8]) -> (usize, u8, GroupId) {
    let length = get_u32(record, 4) as usize;
    (size_of_record(length), record[8], GroupId(get_u32(record, 12)))
}

/// The body of a record that we encoded ourselves or whose CRC was checked.
pub(crate) fn body_of(record: &[u8]) -> &[u8] {
    let length = get_u32(record, 4) as usize;
    &record[HEADER..HEADER + length]
}

/// Reads the record at the start of `bytes`, if a whole one of this segment is there.
pub(crate) fn find(bytes: &[u8], seed: u32, segment: u64) -> Option<Record<'_>> {
    // Cheap, and enough to pass over nearly all that is not a record.
    if bytes.len() < HEADER || get_u64(bytes, 16) != segment || bytes[9] & !LAST_OF_GROUP != 0 {
        return None;
    }
    let length = get_u32(bytes, 4) as usize;
    if length > bytes.len() - HEADER {
        return None;
    }
    let size = size_of_record(length);
    let record = bytes.get(..size)?;
    if crc32c::crc32c_append(seed, &record[4..]) != get_u32(record, 0) {
        return None;
    }
    Some(Record {
        kind: record[8],
        last: record[9] & LAST_OF_GROUP != 0,
        group: GroupId(get_u32(record, 12)),
        sync_group: get_u64(record, 24),
        lsn: get_u64(record, 32),
        body: &record[HEADER..HEADER + length],
        size,
    })
}

/// Reads a body. `None`: a whole record that says something impossible.
pub(crate) fn decode(kind: Kind, body: &[u8]) -> Option<Body<'_>> {
    Some(match kind {
        Kind::Append => {
            let (id, kind, payload) = entry(body)?;
            Body::Append { id, kind, payload }
        }
        Kind::Rewrite => {
            let (id, kind, payload) = entry(body)?;
            Body::Rewrite { id, kind, payload }
        }
        Kind::Vote => Body::Vote(body),
        Kind::Truncate => Body::Truncate { from: only_index(body)? },
        Kind::Purge => Body::Purge { upto: only_id(body)? },
        Kind::Committed => Body::Committed { upto: only_id(body)? },
        Kind::Checkpoint => {
            if !body.len().is_multiple_of(16) {
                return None;
            }
            let applied = body
                .chunks_exact(16)
                .map(|pair| Some((GroupId(u32::try_from(get_u64(pair, 0)).ok()?), get_u64(pair, 8))))
                .collect::<Option<Vec<_>>>()?;
            Body::Checkpoint { applied }
        }
        Kind::GroupCreate => Body::GroupCreate(Meta::decode(body)?),
        Kind::GroupDrop => Body::GroupDrop,
        Kind::SnapshotInstalled => {
            let (id, data) = body.split_at_checked(24)?;
            Body::SnapshotInstalled { upto: only_id(id)?, data }
        }
        Kind::Seal => Body::Seal,
        Kind::SegmentStart => Body::SegmentStart { groups: u32::try_from(only_u64(body)?).ok()? },
        Kind::GroupState => Body::GroupState(Meta::decode(body)?),
        Kind::Begin => Body::Begin { index: only_index(body)? },
        Kind::Resume => {
            if body.len() != 16 {
                return None;
            }
            Body::Resume { sync_group: get_u64(body, 0), lsn: get_u64(body, 8) }
        }
    })
}

/// The id, payload kind and payload in the body of `Append` and `Rewrite`.
pub(crate) fn entry(body: &[u8]) -> Option<(LogId, u8, &[u8])> {
    let (header, payload) = body.split_at_checked(ENTRY_HEADER)?;
    Some((only_id(&header[..24])?, header[24], payload))
}

fn put_entry(out: &mut Vec<u8>, id: LogId, kind: u8, payload: &[u8]) {
    put_id(out, id);
    out.extend_from_slice(&[kind, 0, 0, 0, 0, 0, 0, 0]);
    out.extend_from_slice(payload);
}

pub(crate) fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

pub(crate) fn put_id(out: &mut Vec<u8>, id: LogId) {
    put_u64(out, id.index);
    put_u64(out, id.term);
    put_u64(out, id.node);
}

/// The four bytes at an offset known to be inside.
pub(crate) fn get_u32(bytes: &[u8], at: usize) -> u32 {
    let mut array = [0; 4];
    array.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(array)
}

/// The eight bytes at an offset known to be inside.
pub(crate) fn get_u64(bytes: &[u8], at: usize) -> u64 {
    let mut array = [0; 8];
    array.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(array)
}

/// The log id at an offset known to be inside.
pub(crate) fn get_id(bytes: &[u8], at: usize) -> LogId {
    LogId { index: get_u64(bytes, at), term: get_u64(bytes, at + 8), node: get_u64(bytes, at + 16) }
}

fn only_u64(body: &[u8]) -> Option<u64> {
    (body.len() == 8).then(|| get_u64(body, 0))
}

fn only_index(body: &[u8]) -> Option<u64> {
    only_u64(body).filter(|index| *index <= INDEX_MAX + 1)
}

fn only_id(body: &[u8]) -> Option<LogId> {
    (body.len() == 24).then(|| get_id(body, 0)).filter(|id| id.index <= INDEX_MAX)
}

/// A cheap owned copy of a slice.
pub(crate) fn copy(bytes: &[u8]) -> Bytes {
    Bytes::copy_from_slice(bytes)
}
