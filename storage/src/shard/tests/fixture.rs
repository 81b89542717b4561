//! One table, one partition, and short ways to say what is done to them.
//!
//! The table is `t (id int4 primary key, name text, score int4 not null, hot bool)` with a unique index on `name`, an index on
//! `score` descending with nulls first, and an index on `score` of the rows that are hot.

use bytes::Bytes;
use model::{
    Type, Value,
    catalog::ADMIN,
    command::{Command, Condition, Effect, Identity, Outcome, Receipt, Rejection, Write},
    id::{
        Boot, CatalogVersion, ColumnNumber, DatabaseId, Epoch, IndexId, NodeId, PartitionId, Revision,
        SchemaId, SequenceId, ShardId, TableId,
    },
    key::{self, KeyPart},
    read::{At, Scan},
    row::{self, RowView},
    schema::{Column, Index, IndexPart, IndexState, Kind, Sequence, Table},
    time::{LoggedTime, Timestamp},
    types::Typmod,
};

use crate::{
    codec::entry::{Body, Descriptors, Entry as LogEntry, Held, Stamp},
    engine::Engine,
    log::LogId,
    shard::{Entry, EntryOutcome, Payload, Shard},
};

pub(super) const TABLE: TableId = TableId(100);
pub(super) const PRIMARY: IndexId = IndexId(101);
pub(super) const BY_NAME: IndexId = IndexId(102);
pub(super) const BY_SCORE: IndexId = IndexId(103);
pub(super) const HOT: IndexId = IndexId(104);
pub(super) const SEQUENCE: SequenceId = SequenceId(110);
pub(super) const SHARD: ShardId = ShardId(1);

pub(super) fn partition() -> PartitionId {
    PartitionId::default_of(DatabaseId(1), SchemaId(2))
}

pub(super) fn partition_of(name: &str) -> PartitionId {
    PartitionId::new(DatabaseId(1), SchemaId(2), &[Value::text(name)]).expect("a plain key")
}

fn column(number: u16, name: &str, data_type: Type, not_null: bool) -> Column {
    Column {
        number: ColumnNumber(number),
        name: name.to_owned(),
        data_type,
        typmod: Typmod::NONE,
        not_null,
        default: None,
        missing: None,
        hidden: false,
        dropped: false,
        moved: None,
        comment: None,
    }
}

pub(super) fn index(id: IndexId, column: u16, order: KeyPart, unique: bool) -> Index {
    Index {
        id,
        name: format!("i{}", id.0),
        parts: vec![IndexPart { column: ColumnNumber(column), order }],
        unique,
        nulls_not_distinct: false,
        constraint: None,
        predicate: None,
        predicate_text: None,
        state: IndexState::Ready,
        comment: None,
    }
}

pub(super) fn table() -> Table {
    let mut hot = index(HOT, 3, KeyPart::ASC, false);
    hot.predicate = Some(ColumnNumber(4));
    Table {
        id: TABLE,
        database: DatabaseId(1),
        schema: SchemaId(2),
        name: "t".to_owned(),
        owner: ADMIN,
        kind: Kind::Table,
        version: 1,
        columns: vec![
            column(1, "id", Type::Int4, true),
            column(2, "name", Type::Text, false),
            column(3, "score", Type::Int4, true),
            column(4, "hot", Type::Bool, false),
        ],
        primary_key: Some(PRIMARY),
        indexes: vec![
            index(PRIMARY, 1, KeyPart::ASC, true),
            index(BY_NAME, 2, KeyPart::ASC, true),
            index(BY_SCORE, 3, KeyPart::DESC, false),
            hot,
        ],
        partition_by: Vec::new(),
        checks: Vec::new(),
        foreign_keys: Vec::new(),
        feed: true,
        temporary: None,
        comment: None,
    }
}

pub(super) fn sequence() -> Sequence {
    Sequence {
        id: SEQUENCE,
        database: DatabaseId(1),
        schema: SchemaId(2),
        name: "s".to_owned(),
        owner: ADMIN,
        data_type: Type::Int8,
        start: 1,
        increment: 1,
        min: 1,
        max: 10,
        cache: 1,
        cycle: false,
        owned_by: None,
    }
}

pub(super) fn descriptors() -> Body {
    let held = Held { table: table(), since: CatalogVersion(1) };
    Body::Descriptors(Descriptors {
        tables: vec![held],
        sequences: vec![sequence()],
        ..Descriptors::default()
    })
}

/// The key of a row.
pub(super) fn key(id: i32) -> Bytes {
    let mut out = Vec::new();
    key::encode_part(&mut out, &Value::Int4(id), KeyPart::ASC).expect("an integer has an order");
    out.into()
}

/// The key of a name in its index.
pub(super) fn name_key(name: &str) -> Bytes {
    let mut out = Vec::new();
    key::encode_part(&mut out, &Value::text(name), KeyPart::ASC).expect("a text has an order");
    out.into()
}

pub(super) fn row(id: i32, name: Option<&str>, score: i32, hot: bool) -> Bytes {
    let name = name.map_or(Value::Null, Value::text);
    let values = [Value::Int4(id), name, Value::Int4(score), Value::Bool(hot)];
    let mut out = Vec::new();
    row::encode(&values, &table().column_types(), &mut out).expect("values of the columns' types");
    out.into()
}

pub(super) fn insert(id: i32, name: &str, score: i32) -> Write {
    Write::Insert { table: TABLE, key: key(id), row: row(id, Some(name), score, score > 10) }
}

pub(super) fn put(id: i32, name: &str, score: i32) -> Write {
    Write::Put { table: TABLE, key: key(id), row: row(id, Some(name), score, score > 10) }
}

pub(super) fn delete(id: i32) -> Write {
    Write::Delete { table: TABLE, key: key(id) }
}

pub(super) fn command(writes: Vec<Write>) -> Command {
    Command {
        identity: Identity::Sweep,
        time_left: None,
        partition: partition(),
        principal: ADMIN,
        catalog: CatalogVersion(1),
        locks: None,
        conditions: Vec::new(),
        writes,
    }
}

pub(super) fn when(condition: Condition, writes: Vec<Write>) -> Command {
    Command { conditions: vec![condition], ..command(writes) }
}

pub(super) fn slot(number: u64) -> Identity {
    Identity::Slot { node: NodeId(1), boot: Boot(1), slot: 7, number }
}

pub(super) fn at(seconds: u64) -> LoggedTime {
    let wall = Timestamp::from_micros(800_000_000_000_000 + seconds as i64 * 1_000_000).expect("a time");
    LoggedTime { elapsed: seconds * 1_000_000, wall }
}

pub(super) fn entry(body: Body, seconds: u64) -> LogEntry {
    LogEntry { stamp: Stamp { time: at(seconds), epoch: Epoch(0) }, body }
}

/// A shard that holds the table.
pub(super) fn shard() -> Shard {
    shard_in(&Engine::in_memory(), 0)
}

pub(super) fn shard_in(engine: &Engine, generation: u64) -> Shard {
    let shard = Shard::open(engine, SHARD, generation).expect("a new shard");
    if shard.applied_index().is_none() {
        apply(&shard, &entry(descriptors(), 0));
    }
    shard
}

/// Applies one entry.
pub(super) fn apply(shard: &Shard, entry: &LogEntry) -> EntryOutcome {
    apply_all(shard, std::slice::from_ref(entry)).remove(0)
}

/// Applies entries as one group.
pub(super) fn apply_all(shard: &Shard, entries: &[LogEntry]) -> Vec<EntryOutcome> {
    let first = shard.applied_index().map_or(1, |index| index + 1);
    let encoded: Vec<Bytes> = entries.iter().map(crate::codec::entry::to_bytes).collect();
    let group: Vec<Entry<'_>> = encoded
        .iter()
        .zip(first..)
        .map(|(bytes, index)| Entry {
            log_id: LogId { term: 1, node: 1, index },
            payload: Payload::Encoded(bytes),
        })
        .collect();
    shard.apply(&group).expect("a healthy replica applies")
}

/// Runs a command at second 1.
pub(super) fn run(shard: &Shard, command: Command) -> Outcome {
    run_at(shard, 1, command)
}

pub(super) fn run_at(shard: &Shard, seconds: u64, command: Command) -> Outcome {
    match apply(shard, &entry(Body::Command(command), seconds)) {
        EntryOutcome::Command(outcome) => outcome,
        other => panic!("a command has an outcome, not {other:?}"),
    }
}

pub(super) fn applied(revision: u64, rows: &[u64]) -> Outcome {
    let effects = rows.iter().map(|rows| Effect::Rows(*rows)).collect();
    Outcome::Applied(Receipt { revision: Revision(revision), effects })
}

pub(super) fn taken(index: Option<IndexId>, key: Bytes) -> Outcome {
    Outcome::Rejected(Rejection::UniqueViolation { table: TABLE, index, key })
}

/// What is in the table, as `id:name:score`, in the order of an index.
pub(super) fn show_by(shard: &Shard, index: Option<IndexId>, reverse: bool) -> String {
    let scan = Scan {
        partition: partition(),
        table: TABLE,
        index,
        from: Bytes::new(),
        to: None,
        reverse,
        rows_max: 1_000,
        bytes_max: 1 << 20,
        at: At::Latest,
    };
    let page = shard.snapshot().scan(&scan).expect("a healthy shard is read");
    assert_eq!(page.next, None);
    let shown: Vec<String> = page.rows.iter().map(|stored| show_row(&stored.row)).collect();
    shown.join(" ")
}

pub(super) fn show_row(row: &[u8]) -> String {
    let values = RowView::new(row).expect("a row").decode(&table().column_types()).expect("its columns");
    let name = values[1].as_str().unwrap_or("-").to_owned();
    let number = |value: &Value| value.as_i64().unwrap_or(-1);
    format!("{}:{name}:{}", number(&values[0]), number(&values[2]))
}

/// What is in the table, in the order of its key.
pub(super) fn show(shard: &Shard) -> String {
    show_by(shard, None, false)
}

/// The shard's check of itself finds nothing.
pub(super) fn assert_sound(shard: &Shard) {
    let report = shard.check().expect("a healthy shard is read");
    assert_eq!(report.faults, Vec::<String>::new());
}
