//! Values of a shard's state as bytes. Those with a future begin with a version; counters are fixed and frozen.
//! `docs/formats/keyspace.md` draws them.

use bytes::Bytes;
use model::{
    command::Outcome,
    id::{Boot, Epoch, NodeId, Revision, TableId},
    time::LoggedTime,
};

use super::{Put as _, Reader, Result, command, entry, put_list, put_option};
use crate::log::LogId;

const VERSION: u8 = 1;

/// What a shard has applied.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Applied {
    /// The last entry.
    pub log_id: Option<LogId>,
    /// The last membership, as the caller encodes it.
    pub membership: Bytes,
}

impl Applied {
    /// The index of the last entry.
    pub fn index(&self) -> Option<u64> {
        self.log_id.map(|id| id.index)
    }

    /// Its bytes.
    pub fn to_bytes(&self) -> Bytes {
        let mut out = vec![VERSION];
        put_option(&mut out, self.log_id, |out, id| {
            out.put_varint(id.term);
            out.put_varint(id.node);
            out.put_varint(id.index);
        });
        out.put_blob(&self.membership);
        out.into()
    }

    /// From its bytes.
    pub fn decode(bytes: &Bytes) -> Result<Self> {
        let mut reader = Reader::new(bytes, "the applied log id");
        read_version(&mut reader)?;
        let log_id = reader.option(|reader| {
            Ok(LogId { term: reader.varint()?, node: reader.varint()?, index: reader.varint()? })
        })?;
        let membership = Bytes::copy_from_slice(&reader.blob()?);
        reader.end()?;
        Ok(Self { log_id, membership })
    }
}

/// The claim a shard is under.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Claim {
    /// Its epoch; 0 before the first.
    pub epoch: Epoch,
    /// Who made it.
    pub node: NodeId,
    /// Which start of it.
    pub boot: Boot,
    /// Which process.
    pub nonce: u64,
}

/// What nearly every entry changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    /// One step per applied command.
    pub revision: Revision,
    /// The logged clocks.
    pub time: LoggedTime,
    /// The claim.
    pub claim: Claim,
    /// The meaning of programs.
    pub semantics: u32,
}

impl Default for Head {
    fn default() -> Self {
        Self { revision: Revision(0), time: LoggedTime::default(), claim: Claim::default(), semantics: 1 }
    }
}

impl Head {
    /// Its bytes.
    pub fn to_bytes(&self) -> Bytes {
        let mut out = vec![VERSION];
        out.put_varint(self.revision.0);
        entry::put_time(&mut out, &self.time);
        out.put_varint(self.claim.epoch.0);
        out.put_varint(self.claim.node.0.into());
        out.put_varint(self.claim.boot.0);
        out.extend_from_slice(&self.claim.nonce.to_le_bytes());
        out.put_varint(self.semantics.into());
        out.into()
    }

    /// From its bytes.
    pub fn decode(bytes: &Bytes) -> Result<Self> {
        let mut reader = Reader::new(bytes, "a shard's head");
        read_version(&mut reader)?;
        let head = Self {
            revision: Revision(reader.varint()?),
            time: entry::read_time(&mut reader)?,
            claim: Claim {
                epoch: Epoch(reader.varint()?),
                node: NodeId(reader.u32()?),
                boot: Boot(reader.varint()?),
                nonce: reader.u64()?,
            },
            semantics: reader.u32()?,
        };
        reader.end()?;
        Ok(head)
    }
}

/// Counters of a table in a partition: three u64, little-endian.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Rows.
    pub rows: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// The last revision that wrote one.
    pub last_write: Revision,
}

impl Counters {
    /// Its bytes.
    pub fn to_bytes(self) -> Bytes {
        let mut out = Vec::with_capacity(24);
        for number in [self.rows, self.bytes, self.last_write.0] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.into()
    }

    /// From its bytes.
    pub fn decode(bytes: &Bytes) -> Result<Self> {
        let mut reader = Reader::new(bytes, "counters");
        let counters =
            Self { rows: reader.u64()?, bytes: reader.u64()?, last_write: Revision(reader.u64()?) };
        reader.end()?;
        Ok(counters)
    }
}

/// What a partition keeps of itself, beside the counters of its tables: four u64, little-endian.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PartitionState {
    /// The newest record of its feed; 0 for none ever.
    pub feed_last: Revision,
    /// Records up to this one were trimmed.
    pub feed_floor: Revision,
    /// When the feed is trimmed next, by `elapsed`; 0 for not.
    pub feed_due: u64,
    /// Records in the feed.
    pub feed_records: u64,
}

impl PartitionState {
    /// Its bytes.
    pub fn to_bytes(self) -> Bytes {
        let mut out = Vec::with_capacity(32);
        for number in [self.feed_last.0, self.feed_floor.0, self.feed_due, self.feed_records] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.into()
    }

    /// From its bytes.
    pub fn decode(bytes: &Bytes) -> Result<Self> {
        let mut reader = Reader::new(bytes, "a partition's state");
        let state = Self {
            feed_last: Revision(reader.u64()?),
            feed_floor: Revision(reader.u64()?),
            feed_due: reader.u64()?,
            feed_records: reader.u64()?,
        };
        reader.end()?;
        Ok(state)
    }
}

/// The last use of a gateway's slot.
#[derive(Clone, PartialEq, Debug)]
pub struct Slot {
    /// The gateway's start.
    pub boot: Boot,
    /// The number.
    pub number: u64,
    /// What came of it.
    pub outcome: Outcome,
}

impl Slot {
    /// Its bytes.
    pub fn to_bytes(&self) -> Bytes {
        let mut out = Vec::with_capacity(24);
        out.push(VERSION);
        out.put_varint(self.boot.0);
        out.put_varint(self.number);
        command::encode_outcome(&mut out, &self.outcome);
        out.into()
    }

    /// From its bytes.
    pub fn decode(bytes: &Bytes) -> Result<Self> {
        let mut reader = Reader::new(bytes, "a slot");
        let (boot, number) = read_slot_head(&mut reader)?;
        let outcome = command::read_outcome(&mut reader)?;
        reader.end()?;
        Ok(Self { boot, number, outcome })
    }

    /// Only boot and number: all that a higher number needs.
    pub fn decode_head(bytes: &Bytes) -> Result<(Boot, u64)> {
        read_slot_head(&mut Reader::new(bytes, "a slot"))
    }
}

fn read_slot_head(reader: &mut Reader<'_>) -> Result<(Boot, u64)> {
    read_version(reader)?;
    Ok((Boot(reader.varint()?), reader.varint()?))
}

/// What is remembered of a named command.
#[derive(Clone, PartialEq, Debug)]
pub struct Named {
    /// The highest attempt.
    pub attempt: u32,
    /// The body it had.
    pub fingerprint: u128,
    /// Forgotten from then on, by `elapsed`.
    pub until: u64,
    /// What came of it.
    pub outcome: Outcome,
}

impl Named {
    /// Its bytes.
    pub fn to_bytes(&self) -> Bytes {
        let mut out = Vec::with_capacity(48);
        out.push(VERSION);
        out.put_varint(self.attempt.into());
        out.put_u128(self.fingerprint);
        out.put_varint(self.until);
        command::encode_outcome(&mut out, &self.outcome);
        out.into()
    }

    /// From its bytes.
    pub fn decode(bytes: &Bytes) -> Result<Self> {
        let mut reader = Reader::new(bytes, "a receipt");
        read_version(&mut reader)?;
        let named = Self {
            attempt: reader.u32()?,
            fingerprint: reader.u128()?,
            until: reader.varint()?,
            outcome: command::read_outcome(&mut reader)?,
        };
        reader.end()?;
        Ok(named)
    }
}

/// One record of a partition's feed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FeedRecord {
    /// The revision of the partition's record before; 0 for the first.
    pub previous: Revision,
    /// When, by the logged clocks.
    pub time: LoggedTime,
    /// What changed, in order.
    pub changes: Vec<FeedChange>,
}

/// One change in a feed record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FeedChange {
    /// The table.
    pub table: TableId,
    /// What happened.
    pub kind: FeedKind,
    /// The row's key; empty for all rows.
    pub key: Bytes,
}

/// What happened to a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FeedKind {
    /// It came.
    Inserted,
    /// It changed.
    Updated,
    /// It went.
    Deleted,
    /// All rows of the table were replaced; read it again.
    Replaced,
}

impl FeedRecord {
    /// Its bytes.
    pub fn to_bytes(&self) -> Bytes {
        let mut out = Vec::with_capacity(32 + 24 * self.changes.len());
        out.push(VERSION);
        out.put_varint(self.previous.0);
        entry::put_time(&mut out, &self.time);
        put_list(&mut out, self.changes.iter(), |out, change| {
            out.push(match change.kind {
                FeedKind::Inserted => 1,
                FeedKind::Updated => 2,
                FeedKind::Deleted => 3,
                FeedKind::Replaced => 4,
            });
            out.put_varint(change.table.0.into());
            out.put_blob(&change.key);
        });
        out.into()
    }

    /// From its bytes.
    pub fn decode(bytes: &Bytes) -> Result<Self> {
        let mut reader = Reader::new(bytes, "a feed record");
        read_version(&mut reader)?;
        let record = Self {
            previous: Revision(reader.varint()?),
            time: entry::read_time(&mut reader)?,
            changes: reader.list(|reader| {
                let kind = match reader.u8()? {
                    1 => FeedKind::Inserted,
                    2 => FeedKind::Updated,
                    3 => FeedKind::Deleted,
                    4 => FeedKind::Replaced,
                    kind => return reader.unknown("a change", kind.into()),
                };
                Ok(FeedChange { kind, table: TableId(reader.u32()?), key: reader.blob()? })
            })?,
        };
        reader.end()?;
        Ok(record)
    }
}

/// Where a sequence stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SequenceState {
    /// Its number.
    pub value: i64,
    /// Whether that number counts as given out.
    pub called: bool,
}

impl SequenceState {
    /// Its bytes.
    pub fn to_bytes(self) -> Bytes {
        let mut out = Vec::with_capacity(9);
        out.extend_from_slice(&self.value.to_le_bytes());
        out.put_bool(self.called);
        out.into()
    }

    /// From its bytes.
    pub fn decode(bytes: &Bytes) -> Result<Self> {
        let mut reader = Reader::new(bytes, "a sequence's state");
        let value = reader.u64()? as i64;
        let called = reader.bool()?;
        reader.end()?;
        Ok(Self { value, called })
    }
}

/// A revision as a value.
pub fn revision_to_bytes(revision: Revision) -> Bytes {
    Bytes::copy_from_slice(&revision.0.to_le_bytes())
}

/// A revision from a value.
pub fn decode_revision(bytes: &Bytes) -> Result<Revision> {
    let mut reader = Reader::new(bytes, "a revision");
    let revision = Revision(reader.u64()?);
    reader.end()?;
    Ok(revision)
}

/// A held descriptor's bytes.
pub fn held_to_bytes(held: &entry::Held) -> Bytes {
    let mut out = vec![VERSION];
    entry::put_held(&mut out, held);
    out.into()
}

/// A held descriptor from its bytes.
pub fn decode_held(bytes: &Bytes) -> Result<entry::Held> {
    let mut reader = Reader::new(bytes, "a held descriptor");
    read_version(&mut reader)?;
    let held = entry::read_held(&mut reader)?;
    reader.end()?;
    Ok(held)
}

/// A held sequence's bytes.
pub fn sequence_to_bytes(sequence: &model::schema::Sequence) -> Bytes {
    let mut out = vec![VERSION];
    super::catalog::put_sequence(&mut out, sequence);
    out.into()
}

/// A held sequence from its bytes.
pub fn decode_sequence(bytes: &Bytes) -> Result<model::schema::Sequence> {
    let mut reader = Reader::new(bytes, "a held sequence");
    read_version(&mut reader)?;
    let sequence = super::catalog::read_sequence(&mut reader)?;
    reader.end()?;
    Ok(sequence)
}

fn read_version(reader: &mut Reader<'_>) -> Result<()> {
    match reader.u8()? {
        VERSION => Ok(()),
        version => reader.unknown("the version of a stored value", version.into()),
    }
}
