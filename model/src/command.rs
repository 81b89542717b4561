//! Commands: one atomic change of one partition, what must hold for it, and what came of it.
//!
//! Invariants:
//! - A command is judged and executed by `storage::partition::apply` on every replica with the same outcome; nothing in
//!   it depends on a clock, on chance or on history.
//! - Conditions are judged before any write; if one fails, nothing is written.
//! - A rejection is a value equal on all replicas, not an error of the environment.
//! - The encoded form is versioned; `docs/formats.md` draws it byte by byte.
//!
//! Not here: the encoding (`storage::codec`), locks (`cluster::owner`).

use bytes::Bytes;

use crate::{
    error::{Code, Error, Object},
    expr::Program,
    id::{
        Boot, CatalogVersion, CommandId, Epoch, IndexId, NodeId, PartitionId, Revision, RoleId, SequenceId,
        SessionId, TableId,
    },
};

/// How many writes one log entry carries at most.
pub const ENTRY_WRITES_MAX: usize = 1_000;

/// How many bytes one log entry carries at most.
pub const ENTRY_BYTES_MAX: usize = 16 * 1024 * 1024;

/// An atomic change of one partition.
#[derive(Clone, PartialEq, Debug)]
pub struct Command {
    /// What makes it at most once.
    pub identity: Identity,
    /// How long it may still be applied, in microseconds from when the owner proposes it; none for no limit.
    pub time_left: Option<u64>,
    /// Where.
    pub partition: PartitionId,
    /// On whose behalf.
    pub principal: RoleId,
    /// The catalog it was planned under.
    pub catalog: CatalogVersion,
    /// The locks of the open transaction it ends; none for a command that takes its own.
    pub locks: Option<LockSet>,
    /// What must hold.
    pub conditions: Vec<Condition>,
    /// What it does.
    pub writes: Vec<Write>,
}

/// What makes a command at most once.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Identity {
    /// Chosen by the client: remembered for days, or minutes for ids that an SDK makes by itself.
    Named {
        /// The name.
        id: CommandId,
        /// Which try this is; a higher one may carry another body after a rejection.
        attempt: u32,
        /// xxh3-128 of the canonical body, so that another body under the same name is noticed.
        fingerprint: u128,
        /// For how long the outcome is remembered, in seconds of logged time.
        remember_secs: u32,
    },
    /// Made by a gateway for plain statements: one record per slot, overwritten by the next.
    Slot {
        /// The gateway's node.
        node: NodeId,
        /// Its start.
        boot: Boot,
        /// Which of its slots.
        slot: u16,
        /// Grows with each use of the slot.
        number: u64,
    },
    /// A sweep's: its record's own state decides.
    Sweep,
}

impl Identity {
    /// The identity of a plain command on its way to its router, which gives it a slot and the slot's next number: 0 is
    /// never a number of a slot. All tries of the command then keep them.
    pub fn unassigned(node: NodeId, boot: Boot) -> Self {
        Self::Slot { node, boot, slot: 0, number: 0 }
    }
}

/// The locks an open transaction holds at an owner.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LockSet {
    /// Under which claim they were taken; they die with it.
    pub epoch: Epoch,
    /// Whose.
    pub session: SessionId,
    /// Which of the session's.
    pub id: u64,
}

/// What must hold for a command to be executed.
#[derive(Clone, PartialEq, Debug)]
pub enum Condition {
    /// A row is exactly as it was read.
    RowRevision {
        /// The table.
        table: TableId,
        /// The row's key.
        key: Bytes,
        /// Its revision then.
        revision: Revision,
    },
    /// A row exists.
    RowExists {
        /// The table.
        table: TableId,
        /// The row's key.
        key: Bytes,
    },
    /// A row does not exist; else the rejection is a unique violation of the primary key.
    RowAbsent {
        /// The table.
        table: TableId,
        /// The row's key.
        key: Bytes,
    },
    /// No row has this key in a unique index.
    UniqueFree {
        /// The table.
        table: TableId,
        /// The unique index.
        index: IndexId,
        /// The key's bytes.
        key: Bytes,
    },
    /// No row has a key in a range of the primary key or of an index.
    RangeEmpty {
        /// The table.
        table: TableId,
        /// Which order: none for the primary key's.
        index: Option<IndexId>,
        /// From here, inclusive.
        from: Bytes,
        /// To here, exclusive.
        to: Bytes,
    },
    /// The (key, revision) pairs of a range are those that were read: xxh3-128 over them in order.
    RangeDigest {
        /// The table.
        table: TableId,
        /// Which order: none for the primary key's.
        index: Option<IndexId>,
        /// From here, inclusive.
        from: Bytes,
        /// To here, exclusive.
        to: Bytes,
        /// Of at most 1,000 pairs.
        digest: u128,
    },
    /// Nothing in the table was written in this partition after a revision.
    TableUntouched {
        /// The table.
        table: TableId,
        /// Since when.
        since: Revision,
    },
}

/// One part of a command.
#[derive(Clone, PartialEq, Debug)]
pub enum Write {
    /// Adds a row; another row with its key, or with a key of a unique index, is a unique violation.
    Insert {
        /// The table.
        table: TableId,
        /// The row's key.
        key: Bytes,
        /// The row, encoded by [`crate::row`]; revision and time are filled in by `apply`.
        row: Bytes,
    },
    /// Puts a row whether or not one is there (unique indexes are still checked).
    Put {
        /// The table.
        table: TableId,
        /// The row's key.
        key: Bytes,
        /// The row.
        row: Bytes,
    },
    /// Removes a row; none there is no fault.
    Delete {
        /// The table.
        table: TableId,
        /// The row's key.
        key: Bytes,
    },
    /// Runs a small program on a row, if it is there and the program's guard is true.
    Program {
        /// The table.
        table: TableId,
        /// The row's key.
        key: Bytes,
        /// What to do.
        program: Program,
        /// Whether the outcome carries the row as it became.
        returning: bool,
    },
    /// Removes all rows of a table in this partition by a new storage id.
    Truncate {
        /// The table.
        table: TableId,
    },
    /// Reserves numbers of a sequence; the outcome carries the first and the count.
    Reserve {
        /// The sequence.
        sequence: SequenceId,
        /// How many.
        count: u32,
    },
    /// Sets a sequence (`setval`, `ALTER SEQUENCE RESTART`).
    SetSequence {
        /// The sequence.
        sequence: SequenceId,
        /// Its number.
        value: i64,
        /// Whether that number counts as given out.
        called: bool,
    },
}

/// What came of a command.
#[derive(Clone, PartialEq, Debug)]
pub enum Outcome {
    /// It was applied, now or (for the same id) before.
    Applied(Receipt),
    /// It was judged and nothing was written.
    Rejected(Rejection),
}

/// The remembered outcome of an applied command.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Receipt {
    /// The shard's revision it made.
    pub revision: Revision,
    /// What each write did, in order of the writes.
    pub effects: Vec<Effect>,
}

/// What one write did.
#[derive(Clone, PartialEq, Debug)]
pub enum Effect {
    /// So many rows changed (0 or 1 for row writes).
    Rows(u64),
    /// A program changed its row to this (encoded by [`crate::row`]).
    Row(Bytes),
    /// Numbers of a sequence: first and how many.
    Reserved {
        /// The first number.
        first: i64,
        /// How many follow, this one counted.
        count: u32,
    },
}

/// Why a command was not executed.
#[derive(Clone, PartialEq, Debug)]
pub enum Rejection {
    /// A row is not as it was read.
    RowChanged {
        /// The table.
        table: TableId,
        /// The row's key.
        key: Bytes,
    },
    /// A row that must exist does not.
    RowMissing {
        /// The table.
        table: TableId,
        /// The row's key.
        key: Bytes,
    },
    /// A unique key is taken; `index` is none for rows keyed by the primary key.
    UniqueViolation {
        /// The table.
        table: TableId,
        /// The index, none for the primary key.
        index: Option<IndexId>,
        /// The key's bytes.
        key: Bytes,
    },
    /// A range is not as it was read.
    RangeChanged {
        /// The table.
        table: TableId,
    },
    /// The shard holds another version of the table's descriptor; plan again.
    DescriptorChanged {
        /// The table.
        table: TableId,
    },
    /// Its table is gone, or was never here.
    TableMissing {
        /// The table.
        table: TableId,
    },
    /// A program failed: overflow, division by zero, NOT NULL, ….
    Program {
        /// The code.
        code: Code,
        /// The message.
        message: String,
    },
    /// The sequence has no more numbers.
    SequenceExhausted {
        /// The sequence.
        sequence: SequenceId,
    },
    /// Applied too late.
    DeadlinePassed,
    /// The same id was used with another body.
    IdentityConflict,
    /// A later attempt under this id was seen.
    Superseded,
    /// The id's time lies before the window of what is remembered; never executed.
    IdentityExpired,
    /// The slot has moved on: this command's outcome is no longer known, and it was not executed now.
    OutcomeUnknown,
    /// The gateway started again since; commands of its earlier start are refused.
    BootSuperseded,
    /// The entry's claim is no longer the shard's.
    Fenced,
    /// The key of a row, or the row, is larger than allowed.
    TooLarge {
        /// Bytes it has.
        bytes: u64,
        /// Bytes it may have.
        bytes_max: u64,
    },
}

/// The digest of (key, revision) pairs in order: what [`Condition::RangeDigest`] carries. xxh3-128 over each key's length
/// (u64, little-endian), its bytes and the revision (u64, little-endian).
pub fn range_digest<'a>(pairs: impl IntoIterator<Item = (&'a [u8], Revision)>) -> u128 {
    let mut hash = xxhash_rust::xxh3::Xxh3::new();
    for (key, revision) in pairs {
        hash.update(&(key.len() as u64).to_le_bytes());
        hash.update(key);
        hash.update(&revision.0.to_le_bytes());
    }
    hash.digest128()
}

impl Rejection {
    /// The code a door answers with.
    pub fn code(&self) -> Code {
        match self {
            Self::RowChanged { .. }
            | Self::RowMissing { .. }
            | Self::RangeChanged { .. }
            | Self::DescriptorChanged { .. }
            | Self::BootSuperseded
            | Self::Fenced => Code::SerializationFailure,
            Self::UniqueViolation { .. } => Code::UniqueViolation,
            Self::TableMissing { .. } => Code::UndefinedTable,
            Self::Program { code, .. } => *code,
            Self::SequenceExhausted { .. } => Code::SequenceGeneratorLimitExceeded,
            Self::DeadlinePassed => Code::QueryCanceled,
            Self::IdentityConflict | Self::Superseded | Self::IdentityExpired => Code::InvalidParameterValue,
            Self::OutcomeUnknown => Code::UnknownOutcome,
            Self::TooLarge { .. } => Code::ProgramLimitExceeded,
        }
    }

    /// The rejection as an error of a statement. Names of objects are added by whoever knows them.
    pub fn to_error(&self) -> Error {
        let message = match self {
            Self::RowChanged { .. } | Self::RowMissing { .. } | Self::RangeChanged { .. } => {
                "could not serialize access due to concurrent update".to_owned()
            }
            Self::DescriptorChanged { table } => {
                format!("table {table} was changed since the statement was planned")
            }
            Self::TableMissing { table } => format!("table {table} does not exist"),
            Self::UniqueViolation { .. } => "duplicate key value violates unique constraint".to_owned(),
            Self::Program { message, .. } => message.clone(),
            Self::SequenceExhausted { sequence } => {
                format!("nextval: sequence {sequence} has reached its end")
            }
            Self::DeadlinePassed => "canceling statement due to statement timeout".to_owned(),
            Self::IdentityConflict => "command id was used with another command".to_owned(),
            Self::Superseded => "a later attempt under this command id was seen".to_owned(),
            Self::IdentityExpired => "command id is older than what is remembered".to_owned(),
            Self::OutcomeUnknown => "the outcome of the command is unknown".to_owned(),
            Self::BootSuperseded => "the gateway of this command has restarted".to_owned(),
            Self::Fenced => "the owner of the partition changed".to_owned(),
            Self::TooLarge { bytes, bytes_max } => format!("row of {bytes} bytes exceeds {bytes_max} bytes"),
        };
        Error::new(self.code(), message).with_object(Object::default())
    }
}
