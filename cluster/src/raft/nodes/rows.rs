//! What the nodes are asked to keep: one table with a feed, one row per proposal, and a ledger beside it.

use std::collections::BTreeMap;

use bytes::Bytes;
use model::{
    Type, Value,
    catalog::ADMIN,
    command::{Command, Identity, Write},
    id::{
        CatalogVersion, ColumnNumber, DatabaseId, Epoch, IndexId, PartitionId, Revision, SchemaId, TableId,
    },
    key::{self, KeyPart},
    row,
    schema::{Column, Index, IndexPart, IndexState, Kind, Table},
    time::LoggedTime,
    types::Typmod,
};
use storage::{
    codec::entry::{Body, Descriptors, Entry, Held, Stamp, to_bytes},
    shard::Shard,
};

const TABLE: TableId = TableId(100);

fn partition() -> PartitionId {
    PartitionId::default_of(DatabaseId(1), SchemaId(2))
}

fn table() -> Table {
    let column = |number, name: &str, data_type| Column {
        number: ColumnNumber(number),
        name: name.to_owned(),
        data_type,
        typmod: Typmod::NONE,
        not_null: true,
        default: None,
        missing: None,
        hidden: false,
        dropped: false,
        moved: None,
        comment: None,
    };
    let primary = Index {
        id: IndexId(101),
        name: "t_pkey".to_owned(),
        parts: vec![IndexPart { column: ColumnNumber(1), order: KeyPart::ASC }],
        unique: true,
        nulls_not_distinct: false,
        constraint: None,
        predicate: None,
        predicate_text: None,
        state: IndexState::Ready,
        comment: None,
    };
    Table {
        id: TABLE,
        database: DatabaseId(1),
        schema: SchemaId(2),
        name: "t".to_owned(),
        owner: ADMIN,
        kind: Kind::Table,
        version: 1,
        columns: vec![column(1, "id", Type::Int4), column(2, "body", Type::Text)],
        primary_key: Some(IndexId(101)),
        indexes: vec![primary],
        partition_by: Vec::new(),
        checks: Vec::new(),
        foreign_keys: Vec::new(),
        feed: true,
        temporary: None,
        comment: None,
    }
}

fn entry(body: Body) -> Bytes {
    to_bytes(&Entry { stamp: Stamp { time: LoggedTime::default(), epoch: Epoch(0) }, body })
}

/// The shard holds the table from here on.
pub(super) fn descriptors() -> Bytes {
    let held = Held { table: table(), since: CatalogVersion(1) };
    entry(Body::Descriptors(Descriptors { tables: vec![held], ..Descriptors::default() }))
}

fn key_of(id: i32) -> Bytes {
    let mut key = Vec::new();
    key::encode_part(&mut key, &Value::Int4(id), KeyPart::ASC).unwrap();
    key.into()
}

/// Puts a row of so many bytes. Applied twice, its feed has it twice.
pub(super) fn put(id: i32, bytes: usize) -> Bytes {
    // No two rows are alike, and none is compressed away.
    let letter = |at: usize| char::from(b'a' + (at as u64 * 2_654_435_761 % 7_919 % 26) as u8);
    let body: String = (0..bytes).map(|at| letter(at + id as usize)).collect();
    let mut row = Vec::new();
    row::encode(&[Value::Int4(id), Value::text(body)], &table().column_types(), &mut row).unwrap();
    let write = Write::Put { table: TABLE, key: key_of(id), row: row.into() };
    entry(Body::Command(Command {
        identity: Identity::Sweep,
        time_left: None,
        partition: partition(),
        principal: ADMIN,
        catalog: CatalogVersion(1),
        locks: None,
        conditions: Vec::new(),
        writes: vec![write],
    }))
}

/// What was asked, and what came of it; kept outside the nodes.
#[derive(Default)]
pub(super) struct Ledger {
    pub(super) acknowledged: Vec<i32>,
    pub(super) unknown: Vec<i32>,
    pub(super) refused: Vec<i32>,
    next: i32,
}

impl Ledger {
    /// A number nobody had.
    pub(super) fn next(&mut self) -> i32 {
        self.next += 1;
        self.next
    }

    /// Nothing that was acknowledged is missing, nothing is there twice, nothing is there that was refused.
    pub(super) fn check(&self, shard: &Shard) {
        let snapshot = shard.snapshot();
        let mut counts: BTreeMap<Bytes, usize> = BTreeMap::new();
        let mut after = Revision(0);
        loop {
            let page = snapshot.feed(&partition(), after, 1_000).unwrap();
            let Some((last, _)) = page.records.last() else { break };
            after = *last;
            for change in page.records.iter().flat_map(|(_, record)| &record.changes) {
                *counts.entry(change.key.clone()).or_default() += 1;
            }
        }
        let count = |id: &i32| counts.get(&key_of(*id)).copied().unwrap_or_default();
        let is_row = |id: &i32| shard.get(&partition(), TABLE, &key_of(*id)).unwrap().is_some();
        for id in &self.acknowledged {
            assert_eq!((count(id), is_row(id)), (1, true), "acknowledged {id}");
        }
        for id in &self.unknown {
            assert!(count(id) <= 1 && is_row(id) == (count(id) == 1), "unknown {id}");
        }
        for id in &self.refused {
            assert_eq!((count(id), is_row(id)), (0, false), "refused {id}");
        }
        let known = self.acknowledged.len() + self.unknown.len();
        assert!(counts.len() <= known, "{} rows of {known}", counts.len());
    }
}
