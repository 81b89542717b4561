//! One of everything that is encoded.

use bytes::Bytes;
use model::{
    Code, Type, Value,
    access::{Grant, Grantee, Object as AccessObject, Privilege, Role},
    catalog::{Change, Expected, Object, ObjectId},
    command::{Command, Condition, Effect, Identity, LockSet, Outcome, Receipt, Rejection, Write},
    expr::{Arithmetic, Comparison, Expr, Program},
    id::{
        Boot, CatalogVersion, ColumnNumber, CommandId, DatabaseId, Epoch, IndexId, NodeId, PartitionId,
        Revision, RoleId, SchemaId, SequenceId, SessionId, ShardId, TableId, ViewId,
    },
    key::KeyPart,
    schema::{
        Check, Column, ColumnDefault, Database, ForeignKey, Index, IndexPart, IndexState, KeyConstraint,
        Kind, Referential, Schema, Sequence, Table, View,
    },
    time::{LoggedTime, Timestamp},
    types::Typmod,
};

use crate::codec::{
    control::{Answer, Body as ControlBody, Request},
    entry::{Backfill, Body, Close, Descriptors, Entry, FeedRetention, Held, Load, Part, Stamp},
};

const T: TableId = TableId(300);
const I: IndexId = IndexId(301);

fn bytes(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

fn partition() -> PartitionId {
    PartitionId::new(DatabaseId(1), SchemaId(2), &[Value::text("acme"), Value::Int8(7)]).expect("a plain key")
}

fn program() -> Program {
    let column = || Box::new(Expr::Column(ColumnNumber(2), Type::Int4));
    let number = |n| Box::new(Expr::Constant(Value::Int4(n), Type::Int4));
    let text = |t: &str| Box::new(Expr::Constant(Value::text(t), Type::Text));
    let guard = Expr::And(
        Box::new(Expr::Compare(Comparison::GreaterOrEqual, column(), number(5))),
        Box::new(Expr::Or(
            Box::new(Expr::Not(Box::new(Expr::IsNull(column())))),
            Box::new(Expr::Constant(Value::Null, Type::Bool)),
        )),
    );
    let sum = Expr::Arithmetic(Arithmetic::Subtract, column(), number(-1));
    let choice = Expr::Coalesce(vec![Expr::Concat(text("a"), text("b")), *text("")]);
    Program { guard: Some(guard), assignments: vec![(ColumnNumber(2), sum), (ColumnNumber(3), choice)] }
}

pub(super) fn command() -> Command {
    let range = || (Bytes::new(), bytes("z"));
    let (from, to) = range();
    Command {
        identity: Identity::Slot { node: NodeId(1), boot: Boot(2), slot: 3, number: 400 },
        time_left: Some(5_000_000),
        partition: partition(),
        principal: RoleId(10),
        catalog: CatalogVersion(6),
        locks: Some(LockSet { epoch: Epoch(4), session: SessionId(5), id: 6 }),
        conditions: vec![
            Condition::RowRevision { table: T, key: bytes("a"), revision: Revision(77) },
            Condition::RowExists { table: T, key: bytes("b") },
            Condition::RowAbsent { table: T, key: bytes("c") },
            Condition::UniqueFree { table: T, index: I, key: bytes("d") },
            Condition::RangeEmpty { table: T, index: None, from, to },
            Condition::RangeDigest {
                table: T,
                index: Some(I),
                from: range().0,
                to: range().1,
                digest: 1 << 100,
            },
            Condition::TableUntouched { table: T, since: Revision(8) },
        ],
        writes: vec![
            Write::Insert { table: T, key: bytes("a"), row: bytes("row") },
            Write::Put { table: T, key: bytes("b"), row: bytes("row") },
            Write::Delete { table: T, key: bytes("c") },
            Write::Program { table: T, key: bytes("d"), program: program(), returning: true },
            Write::Truncate { table: T },
            Write::Reserve { sequence: SequenceId(9), count: 64 },
            Write::SetSequence { sequence: SequenceId(9), value: -3, called: false },
        ],
    }
}

fn named() -> Command {
    let identity = Identity::Named {
        id: CommandId(1 << 120),
        attempt: 2,
        fingerprint: u128::MAX,
        remember_secs: 604_800,
    };
    Command { identity, time_left: None, locks: None, conditions: vec![], writes: vec![], ..command() }
}

pub(super) fn table() -> Table {
    Table {
        id: T,
        database: DatabaseId(1),
        schema: SchemaId(2),
        name: "orders".to_owned(),
        owner: RoleId(10),
        kind: Kind::Collection,
        version: 4,
        columns: vec![
            Column {
                number: ColumnNumber(1),
                name: "id".to_owned(),
                data_type: Type::Int8,
                typmod: Typmod::NONE,
                not_null: true,
                default: Some(ColumnDefault::Identity { sequence: SequenceId(9), always: true }),
                missing: None,
                hidden: false,
                dropped: false,
                moved: None,
                comment: Some("the key".to_owned()),
            },
            Column {
                number: ColumnNumber(2),
                name: "price".to_owned(),
                data_type: Type::Numeric,
                typmod: Typmod::of_numeric(12, 2),
                not_null: false,
                default: Some(ColumnDefault::Expression("1 + 1".to_owned())),
                missing: Some(Value::Numeric(5i64.into())),
                hidden: true,
                dropped: true,
                moved: None,
                comment: None,
            },
        ],
        primary_key: Some(I),
        indexes: vec![Index {
            id: I,
            name: "orders_pkey".to_owned(),
            parts: vec![IndexPart {
                column: ColumnNumber(1),
                order: KeyPart { desc: true, nulls_first: false },
            }],
            unique: true,
            nulls_not_distinct: true,
            constraint: Some(KeyConstraint::Primary),
            predicate: Some(ColumnNumber(2)),
            predicate_text: Some("price > 0".to_owned()),
            state: IndexState::Building,
            comment: None,
        }],
        partition_by: vec![ColumnNumber(1)],
        checks: vec![Check { name: "positive".to_owned(), expression: "price > 0".to_owned() }],
        foreign_keys: vec![ForeignKey {
            name: "parent".to_owned(),
            columns: vec![ColumnNumber(1)],
            parent: TableId(400),
            parent_columns: vec![ColumnNumber(3)],
            on_delete: Referential::Cascade,
            on_update: Referential::SetDefault,
        }],
        feed: true,
        temporary: None,
        comment: Some("what was ordered".to_owned()),
    }
}

fn sequence() -> Sequence {
    Sequence {
        id: SequenceId(9),
        database: DatabaseId(1),
        schema: SchemaId(2),
        name: "orders_id_seq".to_owned(),
        owner: RoleId(10),
        data_type: Type::Int8,
        start: 1,
        increment: -2,
        min: i64::MIN,
        max: i64::MAX,
        cache: 64,
        cycle: true,
        owned_by: Some((T, ColumnNumber(1))),
    }
}

pub(super) fn entries() -> Vec<(&'static str, Entry)> {
    let wall = Timestamp::from_micros(800_000_000_000_000).expect("a time");
    let stamp = Stamp { time: LoggedTime { elapsed: 1_000_000, wall }, epoch: Epoch(4) };
    let bodies = [
        ("command", Body::Command(command())),
        ("named", Body::Command(named())),
        ("sweep", Body::Command(Command { identity: Identity::Sweep, ..named() })),
        (
            "descriptors",
            Body::Descriptors(Descriptors {
                tables: vec![Held { table: table(), since: CatalogVersion(5) }],
                sequences: vec![sequence()],
                dropped_tables: vec![TableId(1)],
                dropped_sequences: vec![SequenceId(2)],
            }),
        ),
        ("claim", Body::Claim { epoch: Epoch(5), node: NodeId(1), boot: Boot(2), nonce: 3 }),
        ("clock", Body::Clock),
        (
            "backfill",
            Body::Backfill(Backfill {
                partition: partition(),
                table: T,
                index: I,
                from: bytes("k"),
                limit: 1_000,
            }),
        ),
        ("expire", Body::Expire { due: vec![bytes("due")], feed: FeedRetention::default() }),
        ("raise", Body::RaiseSemantics(1)),
        ("part", Body::Part(Part { partition: partition(), number: 3, sequence: 1, bytes: bytes("piece") })),
        ("close", Body::Close(Close { partition: partition(), number: 3, parts: 2 })),
        ("load", Body::Load(Load { number: 3, parts: 2, table: T, command: named() })),
        ("load abort", Body::LoadAbort { partition: partition(), number: 3 }),
    ];
    bodies.into_iter().map(|(name, body)| (name, Entry { stamp, body })).collect()
}

pub(super) fn outcomes() -> Vec<(&'static str, Outcome)> {
    let effects = vec![Effect::Rows(1), Effect::Row(bytes("row")), Effect::Reserved { first: -5, count: 64 }];
    let rejections = [
        ("changed", Rejection::RowChanged { table: T, key: bytes("k") }),
        ("missing", Rejection::RowMissing { table: T, key: bytes("k") }),
        ("unique", Rejection::UniqueViolation { table: T, index: Some(I), key: bytes("k") }),
        ("range", Rejection::RangeChanged { table: T }),
        ("descriptor", Rejection::DescriptorChanged { table: T }),
        ("table", Rejection::TableMissing { table: T }),
        (
            "program",
            Rejection::Program { code: Code::DivisionByZero, message: "division by zero".to_owned() },
        ),
        ("sequence", Rejection::SequenceExhausted { sequence: SequenceId(9) }),
        ("deadline", Rejection::DeadlinePassed),
        ("conflict", Rejection::IdentityConflict),
        ("superseded", Rejection::Superseded),
        ("expired", Rejection::IdentityExpired),
        ("unknown", Rejection::OutcomeUnknown),
        ("boot", Rejection::BootSuperseded),
        ("fenced", Rejection::Fenced),
        ("large", Rejection::TooLarge { bytes: 9_000, bytes_max: 8_192 }),
    ];
    let applied = ("applied", Outcome::Applied(Receipt { revision: Revision(300), effects }));
    let rejected = rejections.into_iter().map(|(name, rejection)| (name, Outcome::Rejected(rejection)));
    std::iter::once(applied).chain(rejected).collect()
}

pub(super) fn objects() -> Vec<(&'static str, Object)> {
    let name = |text: &str| text.to_owned();
    vec![
        (
            "database",
            Object::Database(Database {
                id: DatabaseId(1),
                name: name("d"),
                owner: RoleId(10),
                comment: None,
            }),
        ),
        (
            "schema",
            Object::Schema(Schema {
                id: SchemaId(2),
                database: DatabaseId(1),
                name: name("public"),
                owner: RoleId(10),
                comment: Some(name("standard")),
            }),
        ),
        ("table", Object::Table(table())),
        (
            "view",
            Object::View(View {
                id: TableId(500),
                database: DatabaseId(1),
                schema: SchemaId(2),
                name: name("v"),
                owner: RoleId(10),
                query: name("SELECT 1"),
                columns: vec![(name("one"), Type::Int4, Typmod::NONE)],
                depends_on: vec![T],
                comment: None,
            }),
        ),
        ("sequence", Object::Sequence(sequence())),
        (
            "role",
            Object::Role(Role {
                id: RoleId(11),
                name: name("eve"),
                superuser: false,
                login: true,
                create_database: false,
                create_role: true,
                inherit: true,
                connections_max: Some(5),
                password: Some(name("SCRAM-SHA-256$…")),
                member_of: [RoleId(10)].into(),
            }),
        ),
    ]
}

pub(super) fn requests() -> Vec<(&'static str, Request)> {
    let grant = |object, privilege| Grant {
        object,
        grantee: Grantee::Role(RoleId(11)),
        privilege,
        grantor: RoleId(10),
        grantable: true,
    };
    let change = Change {
        expect: vec![
            (ObjectId::Table(T), Some(Expected::TableVersion(3))),
            (ObjectId::Role(RoleId(11)), Some(Expected::Exists)),
            (ObjectId::View(TableId(500)), None),
        ],
        put: objects().into_iter().map(|(_, object)| object).collect(),
        drop: vec![
            ObjectId::Database(DatabaseId(7)),
            ObjectId::Sequence(SequenceId(8)),
            ObjectId::Schema(SchemaId(9)),
        ],
        grant: vec![
            grant(AccessObject::Column(T, ColumnNumber(2)), Privilege::Update),
            Grant {
                grantee: Grantee::Public,
                ..grant(AccessObject::Database(DatabaseId(1)), Privilege::Connect)
            },
        ],
        revoke: vec![
            grant(AccessObject::Table(T), Privilege::Select),
            grant(AccessObject::Schema(SchemaId(2)), Privilege::Usage),
        ],
    };
    let bodies = [
        (
            "bootstrap",
            ControlBody::Bootstrap {
                admin: "admin".to_owned(),
                password: Some("secret".to_owned()),
                database: "keystead".to_owned(),
            },
        ),
        ("ids", ControlBody::AllocateIds(3)),
        ("change", ControlBody::Change(change)),
        ("holder", ControlBody::RegisterHolder { shard: ShardId(1), table: T }),
        ("view", ControlBody::PutView { id: ViewId(2), predecessor: Some(ViewId(1)), view: bytes("view") }),
    ];
    bodies.into_iter().map(|(name, body)| (name, Request { id: 0xabc, body })).collect()
}

pub(super) fn answers() -> Vec<(&'static str, Answer)> {
    vec![
        ("ids", Answer::Ids(16_384)),
        ("changed", Answer::Changed(CatalogVersion(5))),
        ("registered", Answer::Registered(4)),
        ("published", Answer::Published),
        ("refused", Answer::Refused { code: Code::DuplicateTable, message: "no".to_owned() }),
    ]
}
