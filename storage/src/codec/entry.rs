//! Log entries of a data shard as bytes: `kind u8 · version u8 · stamp · body`. `docs/formats/entry.md` draws them.
//!
//! Numbers of kinds are never reused. A kind this version does not know stops the replica: it is a typed error, because
//! skipping it would make the replica differ from the others.

use bytes::Bytes;
use model::{
    command::Command,
    id::{Boot, CatalogVersion, Epoch, IndexId, NodeId, PartitionId, SequenceId, TableId},
    schema::{Sequence, Table},
    time::{LoggedTime, Timestamp},
};

use super::{Put as _, Reader, Result, catalog, command, put_list};

/// The version of every body that is written.
const VERSION: u8 = 1;

/// Numbers of kinds; those without a variant in [`Body`] are reserved.
pub mod kind {
    /// A command of one partition.
    pub const COMMAND: u8 = 1;
    /// Descriptors the shard holds from here on.
    pub const DESCRIPTORS: u8 = 2;
    /// A new owner.
    pub const CLAIM: u8 = 3;
    /// The clocks go on.
    pub const CLOCK: u8 = 4;
    /// A key range of an index is built.
    pub const BACKFILL: u8 = 5;
    /// A page of due work is done.
    pub const EXPIRE: u8 = 6;
    /// A part of a large command.
    pub const PART: u8 = 7;
    /// The end of a large command: it is judged and executed.
    pub const CLOSE: u8 = 8;
    /// Reserved: a step of making a large command visible.
    pub const PUBLISH: u8 = 9;
    /// Reserved: a bulk load begins.
    pub const LOAD_BEGIN: u8 = 10;
    /// Reserved: rows of a bulk load.
    pub const LOAD_ROWS: u8 = 11;
    /// The end of a load: a command that adds the rows in its parts.
    pub const LOAD: u8 = 12;
    /// A load is given up.
    pub const LOAD_ABORT: u8 = 13;
    /// Reserved: the shard becomes two.
    pub const SPLIT: u8 = 14;
    /// Reserved: a staged schema change is given up.
    pub const STAGE_ABORT: u8 = 15;
    /// The meaning of programs is raised.
    pub const RAISE_SEMANTICS: u8 = 16;
    /// Reserved: an operator skips a poison entry.
    pub const SKIP: u8 = 17;
    /// Reserved: the wall clock's anchor is set.
    pub const ANCHOR: u8 = 18;
    /// Reserved: a staged schema change is acknowledged.
    pub const STAGE_SETTLE: u8 = 19;
}

/// One entry.
#[derive(Clone, PartialEq, Debug)]
pub struct Entry {
    /// When and under whose claim it was proposed.
    pub stamp: Stamp,
    /// What it is.
    pub body: Body,
}

/// What the owner stamped into an entry as it proposed it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stamp {
    /// The logged clocks.
    pub time: LoggedTime,
    /// The claim.
    pub epoch: Epoch,
}

/// What an entry is.
#[derive(Clone, PartialEq, Debug)]
pub enum Body {
    /// A command of one partition.
    Command(Command),
    /// Descriptors the shard holds from here on, or no longer.
    Descriptors(Descriptors),
    /// A new owner; its epoch is above every earlier one.
    Claim {
        /// The new epoch.
        epoch: Epoch,
        /// Who.
        node: NodeId,
        /// Which start of it.
        boot: Boot,
        /// Which process.
        nonce: u64,
    },
    /// The clocks go on; nothing else changes.
    Clock,
    /// Entries of an index are added for rows that were there before it.
    Backfill(Backfill),
    /// Due records are done, if they are still due.
    Expire {
        /// Their keys in the due region.
        due: Vec<Bytes>,
        /// What feeds keep.
        feed: FeedRetention,
    },
    /// Programs have the meaning of this version from here on.
    RaiseSemantics(u32),
    /// A part of a command that is larger than an entry: staged, invisible, until its [`Body::Close`].
    Part(Part),
    /// All parts of a command are staged: it is judged and executed as one.
    Close(Close),
    /// All parts of a load are staged: its command is judged and executed, and adds the rows in them.
    Load(Load),
    /// Parts are not wanted any more.
    LoadAbort {
        /// Where.
        partition: PartitionId,
        /// Which of this claim's large commands.
        number: u64,
    },
}

/// The end of a load. Its parts carry rows ([`model::load::Rows`]).
#[derive(Clone, PartialEq, Debug)]
pub struct Load {
    /// Which of this claim's large commands.
    pub number: u64,
    /// How many pieces there are.
    pub parts: u32,
    /// Whose rows they carry.
    pub table: TableId,
    /// Where, and what else is done and must hold; the rows come after its own writes.
    pub command: Command,
}

/// A piece of an encoded command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part {
    /// Where.
    pub partition: PartitionId,
    /// Which of this claim's large commands.
    pub number: u64,
    /// Which piece, from 0.
    pub sequence: u32,
    /// Its bytes.
    pub bytes: Bytes,
}

/// The end of a large command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Close {
    /// Where.
    pub partition: PartitionId,
    /// Which of this claim's large commands.
    pub number: u64,
    /// How many pieces there are.
    pub parts: u32,
}

/// What a feed keeps; the entry says it, because `apply` knows no configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FeedRetention {
    /// Records younger than this, in microseconds of `elapsed`.
    pub micros: u64,
    /// But no more of them than this.
    pub records_max: u64,
}

impl Default for FeedRetention {
    fn default() -> Self {
        Self { micros: 24 * 3_600 * 1_000_000, records_max: 1_000_000 }
    }
}

/// Descriptors for a shard.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Descriptors {
    /// Tables, each with the first catalog version whose plans fit it.
    pub tables: Vec<Held>,
    /// Sequences.
    pub sequences: Vec<Sequence>,
    /// Tables that are gone.
    pub dropped_tables: Vec<TableId>,
    /// Sequences that are gone.
    pub dropped_sequences: Vec<SequenceId>,
}

/// A table's descriptor as a shard holds it.
#[derive(Clone, PartialEq, Debug)]
pub struct Held {
    /// The descriptor.
    pub table: Table,
    /// Commands planned under an earlier catalog are rejected.
    pub since: CatalogVersion,
}

/// A key range of one partition to be added to an index.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Backfill {
    /// Where.
    pub partition: PartitionId,
    /// The table.
    pub table: TableId,
    /// The index.
    pub index: IndexId,
    /// The first row key; empty for the start.
    pub from: Bytes,
    /// How many rows at most.
    pub limit: u32,
}

/// Appends an entry that carries a command, without a copy of the command.
pub fn encode_command(out: &mut Vec<u8>, stamp: &Stamp, of: &Command) {
    put_head(out, kind::COMMAND, stamp);
    command::encode(out, of);
}

/// Appends an entry.
pub fn encode(out: &mut Vec<u8>, entry: &Entry) {
    let stamp = &entry.stamp;
    match &entry.body {
        Body::Command(of) => encode_command(out, stamp, of),
        Body::Descriptors(descriptors) => {
            put_head(out, kind::DESCRIPTORS, stamp);
            put_list(out, descriptors.tables.iter(), put_held);
            put_list(out, descriptors.sequences.iter(), catalog::put_sequence);
            put_list(out, descriptors.dropped_tables.iter(), |out, id| out.put_varint(id.0.into()));
            put_list(out, descriptors.dropped_sequences.iter(), |out, id| out.put_varint(id.0.into()));
        }
        Body::Claim { epoch, node, boot, nonce } => {
            put_head(out, kind::CLAIM, stamp);
            out.put_varint(epoch.0);
            out.put_varint(node.0.into());
            out.put_varint(boot.0);
            out.extend_from_slice(&nonce.to_le_bytes());
        }
        Body::Clock => put_head(out, kind::CLOCK, stamp),
        Body::Backfill(backfill) => {
            put_head(out, kind::BACKFILL, stamp);
            out.put_blob(backfill.partition.as_bytes());
            out.put_varint(backfill.table.0.into());
            out.put_varint(backfill.index.0.into());
            out.put_blob(&backfill.from);
            out.put_varint(backfill.limit.into());
        }
        Body::Expire { due, feed } => {
            put_head(out, kind::EXPIRE, stamp);
            put_list(out, due.iter(), |out, key| out.put_blob(key));
            out.put_varint(feed.micros);
            out.put_varint(feed.records_max);
        }
        Body::RaiseSemantics(version) => {
            put_head(out, kind::RAISE_SEMANTICS, stamp);
            out.put_varint((*version).into());
        }
        Body::Part(part) => {
            put_head(out, kind::PART, stamp);
            out.put_blob(part.partition.as_bytes());
            out.put_varint(part.number);
            out.put_varint(part.sequence.into());
            out.put_blob(&part.bytes);
        }
        Body::Close(close) => {
            put_head(out, kind::CLOSE, stamp);
            out.put_blob(close.partition.as_bytes());
            out.put_varint(close.number);
            out.put_varint(close.parts.into());
        }
        Body::Load(load) => {
            put_head(out, kind::LOAD, stamp);
            out.put_varint(load.number);
            out.put_varint(load.parts.into());
            out.put_varint(load.table.0.into());
            command::encode(out, &load.command);
        }
        Body::LoadAbort { partition, number } => {
            put_head(out, kind::LOAD_ABORT, stamp);
            out.put_blob(partition.as_bytes());
            out.put_varint(*number);
        }
    }
}

/// Appends a command as the pieces of a large one carry it.
pub fn encode_large(out: &mut Vec<u8>, of: &Command) {
    command::encode(out, of);
}

/// Reads a command from the pieces of a large one; it must be all there is.
pub fn decode_large(bytes: &Bytes) -> Result<Command> {
    let mut reader = Reader::new(bytes, "a large command");
    let command = command::read(&mut reader)?;
    reader.end()?;
    Ok(command)
}

/// An entry's bytes.
pub fn to_bytes(entry: &Entry) -> Bytes {
    let mut out = Vec::with_capacity(160);
    encode(&mut out, entry);
    out.into()
}

/// Whether an entry is a command that is complete in it.
pub fn is_command(bytes: &[u8]) -> bool {
    bytes.first() == Some(&kind::COMMAND)
}

/// Reads an entry; it must be all there is.
pub fn decode(bytes: &Bytes) -> Result<Entry> {
    let mut reader = Reader::new(bytes, "a log entry");
    let number = reader.u8()?;
    let version = reader.u8()?;
    if version != VERSION {
        return reader.unknown("the version of a log entry", version.into());
    }
    let stamp = read_stamp(&mut reader)?;
    let body = match number {
        kind::COMMAND => Body::Command(command::read(&mut reader)?),
        kind::DESCRIPTORS => Body::Descriptors(Descriptors {
            tables: reader.list(read_held)?,
            sequences: reader.list(catalog::read_sequence)?,
            dropped_tables: reader.list(|reader| Ok(TableId(reader.u32()?)))?,
            dropped_sequences: reader.list(|reader| Ok(SequenceId(reader.u32()?)))?,
        }),
        kind::CLAIM => Body::Claim {
            epoch: Epoch(reader.varint()?),
            node: NodeId(reader.u32()?),
            boot: Boot(reader.varint()?),
            nonce: reader.u64()?,
        },
        kind::CLOCK => Body::Clock,
        kind::BACKFILL => Body::Backfill(Backfill {
            partition: command::read_partition(&mut reader)?,
            table: TableId(reader.u32()?),
            index: IndexId(reader.u32()?),
            from: reader.blob()?,
            limit: reader.u32()?,
        }),
        kind::EXPIRE => Body::Expire {
            due: reader.list(Reader::blob)?,
            feed: FeedRetention { micros: reader.varint()?, records_max: reader.varint()? },
        },
        kind::RAISE_SEMANTICS => Body::RaiseSemantics(reader.u32()?),
        kind::PART => Body::Part(Part {
            partition: command::read_partition(&mut reader)?,
            number: reader.varint()?,
            sequence: reader.u32()?,
            bytes: reader.blob()?,
        }),
        kind::CLOSE => Body::Close(Close {
            partition: command::read_partition(&mut reader)?,
            number: reader.varint()?,
            parts: reader.u32()?,
        }),
        kind::LOAD => Body::Load(Load {
            number: reader.varint()?,
            parts: reader.u32()?,
            table: TableId(reader.u32()?),
            command: command::read(&mut reader)?,
        }),
        kind::LOAD_ABORT => {
            Body::LoadAbort { partition: command::read_partition(&mut reader)?, number: reader.varint()? }
        }
        other => return reader.unknown("a log entry's kind", other.into()),
    };
    reader.end()?;
    Ok(Entry { stamp, body })
}

fn put_head(out: &mut Vec<u8>, kind: u8, stamp: &Stamp) {
    out.push(kind);
    out.push(VERSION);
    put_time(out, &stamp.time);
    out.put_varint(stamp.epoch.0);
}

fn read_stamp(reader: &mut Reader<'_>) -> Result<Stamp> {
    Ok(Stamp { time: read_time(reader)?, epoch: Epoch(reader.varint()?) })
}

/// Appends the logged clocks.
pub(super) fn put_time(out: &mut Vec<u8>, time: &LoggedTime) {
    out.put_varint(time.elapsed);
    out.put_signed(time.wall.micros());
}

/// Reads the logged clocks.
pub(super) fn read_time(reader: &mut Reader<'_>) -> Result<LoggedTime> {
    let elapsed = reader.varint()?;
    let wall = Timestamp::from_micros(reader.signed()?).map_err(|_| reader.malformed())?;
    Ok(LoggedTime { elapsed, wall })
}

/// Appends a held descriptor.
pub(super) fn put_held(out: &mut Vec<u8>, held: &Held) {
    out.put_varint(held.since.0);
    catalog::put_table(out, &held.table);
}

/// Reads a held descriptor.
pub(super) fn read_held(reader: &mut Reader<'_>) -> Result<Held> {
    let since = CatalogVersion(reader.varint()?);
    Ok(Held { table: catalog::read_table(reader)?, since })
}
