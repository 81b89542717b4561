//! Descriptors, roles, grants and changes of the catalog as bytes. Every object begins with its version, 1.

use bytes::Bytes;
use model::{
    access::{Grant, Grantee, Object as AccessObject, Privilege, Role},
    catalog::{Change, Expected, Object, ObjectId},
    id::{ColumnNumber, DatabaseId, IndexId, RoleId, SchemaId, SequenceId, SessionId, TableId},
    key::KeyPart,
    schema::{
        Check, Column, ColumnDefault, Database, ForeignKey, Index, IndexPart, IndexState, KeyConstraint,
        Kind, Referential, Schema, Sequence, Table, View,
    },
    types::Typmod,
};

use super::{Put as _, Reader, Result, put_list, put_option, value};

/// The version that is written.
const VERSION: u8 = 1;

/// An object's bytes.
pub fn object_to_bytes(object: &Object) -> Bytes {
    let mut out = Vec::with_capacity(256);
    put_object(&mut out, object);
    out.into()
}

/// Reads an object; it must be all there is.
pub fn decode_object(bytes: &Bytes) -> Result<Object> {
    let mut reader = Reader::new(bytes, "a catalog object");
    let object = read_object(&mut reader)?;
    reader.end()?;
    Ok(object)
}

/// A grant's bytes: also the key it lies under.
pub fn grant_to_bytes(grant: &Grant) -> Bytes {
    let mut out = Vec::with_capacity(16);
    put_grant(&mut out, grant);
    out.into()
}

/// Reads a grant; it must be all there is.
pub fn decode_grant(bytes: &Bytes) -> Result<Grant> {
    let mut reader = Reader::new(bytes, "a grant");
    let grant = read_grant(&mut reader)?;
    reader.end()?;
    Ok(grant)
}

/// Appends a change of the catalog.
pub fn put_change(out: &mut Vec<u8>, change: &Change) {
    out.push(VERSION);
    put_list(out, change.expect.iter(), |out, (id, expected)| {
        put_object_id(out, *id);
        match expected {
            None => out.push(0),
            Some(Expected::Exists) => out.push(1),
            Some(Expected::TableVersion(version)) => {
                out.push(2);
                out.put_varint(*version);
            }
        }
    });
    put_list(out, change.put.iter(), put_object);
    put_list(out, change.drop.iter(), |out, id| put_object_id(out, *id));
    put_list(out, change.grant.iter(), put_grant);
    put_list(out, change.revoke.iter(), put_grant);
}

/// Reads a change of the catalog.
pub(crate) fn read_change(reader: &mut Reader<'_>) -> Result<Change> {
    read_version(reader, "the version of a catalog change")?;
    Ok(Change {
        expect: reader.list(|reader| {
            let id = read_object_id(reader)?;
            let expected = match reader.u8()? {
                0 => None,
                1 => Some(Expected::Exists),
                2 => Some(Expected::TableVersion(reader.varint()?)),
                kind => return reader.unknown("an expectation", kind.into()),
            };
            Ok((id, expected))
        })?,
        put: reader.list(read_object)?,
        drop: reader.list(read_object_id)?,
        grant: reader.list(read_grant)?,
        revoke: reader.list(read_grant)?,
    })
}

fn read_version(reader: &mut Reader<'_>, what: &'static str) -> Result<()> {
    match reader.u8()? {
        VERSION => Ok(()),
        version => reader.unknown(what, version.into()),
    }
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    out.put_blob(text.as_bytes());
}

fn put_comment(out: &mut Vec<u8>, comment: &Option<String>) {
    put_option(out, comment.as_deref(), put_text);
}

fn put_object(out: &mut Vec<u8>, object: &Object) {
    out.push(VERSION);
    match object {
        Object::Database(database) => {
            out.push(1);
            out.put_varint(database.id.0.into());
            put_text(out, &database.name);
            out.put_varint(database.owner.0.into());
            put_comment(out, &database.comment);
        }
        Object::Schema(schema) => {
            out.push(2);
            out.put_varint(schema.id.0.into());
            out.put_varint(schema.database.0.into());
            put_text(out, &schema.name);
            out.put_varint(schema.owner.0.into());
            put_comment(out, &schema.comment);
        }
        Object::Table(table) => {
            out.push(3);
            put_table(out, table);
        }
        Object::View(view) => {
            out.push(4);
            put_view(out, view);
        }
        Object::Sequence(sequence) => {
            out.push(5);
            put_sequence(out, sequence);
        }
        Object::Role(role) => {
            out.push(6);
            put_role(out, role);
        }
    }
}

fn read_object(reader: &mut Reader<'_>) -> Result<Object> {
    read_version(reader, "the version of a catalog object")?;
    Ok(match reader.u8()? {
        1 => Object::Database(Database {
            id: DatabaseId(reader.u32()?),
            name: reader.text()?,
            owner: RoleId(reader.u32()?),
            comment: reader.option(Reader::text)?,
        }),
        2 => Object::Schema(Schema {
            id: SchemaId(reader.u32()?),
            database: DatabaseId(reader.u32()?),
            name: reader.text()?,
            owner: RoleId(reader.u32()?),
            comment: reader.option(Reader::text)?,
        }),
        3 => Object::Table(read_table(reader)?),
        4 => Object::View(read_view(reader)?),
        5 => Object::Sequence(read_sequence(reader)?),
        6 => Object::Role(read_role(reader)?),
        kind => return reader.unknown("a catalog object", kind.into()),
    })
}

pub(super) fn put_table(out: &mut Vec<u8>, table: &Table) {
    out.push(VERSION);
    out.put_varint(table.id.0.into());
    out.put_varint(table.database.0.into());
    out.put_varint(table.schema.0.into());
    put_text(out, &table.name);
    out.put_varint(table.owner.0.into());
    out.push(match table.kind {
        Kind::Table => 1,
        Kind::Collection => 2,
    });
    out.put_varint(table.version);
    put_list(out, table.columns.iter(), put_column);
    put_option(out, table.primary_key, |out, id| out.put_varint(id.0.into()));
    put_list(out, table.indexes.iter(), |out, index| put_index(out, index, table.primary_key));
    put_numbers(out, &table.partition_by);
    put_list(out, table.checks.iter(), |out, check| {
        put_text(out, &check.name);
        put_text(out, &check.expression);
    });
    put_list(out, table.foreign_keys.iter(), put_foreign_key);
    out.push(u8::from(table.feed) | u8::from(table.temporary.is_some()) << 1);
    if let Some(session) = table.temporary {
        out.put_varint(session.0);
    }
    put_comment(out, &table.comment);
}

pub(super) fn read_table(reader: &mut Reader<'_>) -> Result<Table> {
    read_version(reader, "the version of a table")?;
    let mut table = Table {
        id: TableId(reader.u32()?),
        database: DatabaseId(reader.u32()?),
        schema: SchemaId(reader.u32()?),
        name: reader.text()?,
        owner: RoleId(reader.u32()?),
        kind: match reader.u8()? {
            1 => Kind::Table,
            2 => Kind::Collection,
            kind => return reader.unknown("a kind of table", kind.into()),
        },
        version: reader.varint()?,
        columns: reader.list(read_column)?,
        primary_key: reader.option(|reader| Ok(IndexId(reader.u32()?)))?,
        indexes: reader.list(read_index)?,
        partition_by: read_numbers(reader)?,
        checks: reader.list(|reader| Ok(Check { name: reader.text()?, expression: reader.text()? }))?,
        foreign_keys: reader.list(read_foreign_key)?,
        feed: false,
        temporary: None,
        comment: None,
    };
    let is_temporary = match reader.u8()? {
        bits @ 0..=3 => {
            table.feed = bits & 1 != 0;
            bits & 2 != 0
        }
        bits => return reader.unknown("what kind of table", bits.into()),
    };
    if is_temporary {
        table.temporary = Some(SessionId(reader.varint()?));
    }
    table.comment = reader.option(Reader::text)?;
    check_columns(reader, &table)?;
    // The rows' own key is the primary key; its byte says only that there is a constraint.
    let own = table.primary_key;
    for index in table.indexes.iter_mut().filter(|index| own == Some(index.id)) {
        index.constraint = Some(KeyConstraint::Primary);
    }
    Ok(table)
}

/// Columns are numbered without gaps and everything names columns that exist: code below relies on it.
fn check_columns(reader: &Reader<'_>, table: &Table) -> Result<()> {
    let count = table.columns.len();
    let is_column = |number: &ColumnNumber| number.0 >= 1 && usize::from(number.0) <= count;
    let numbered =
        table.columns.iter().enumerate().all(|(at, column)| usize::from(column.number.0) == at + 1);
    let indexed = table.indexes.iter().all(|index| {
        index.parts.iter().all(|part| is_column(&part.column)) && index.predicate.iter().all(is_column)
    });
    let partitioned = table.partition_by.iter().all(is_column);
    let referring = table.foreign_keys.iter().all(|key| key.columns.iter().all(is_column));
    let placed = table.columns.iter().filter_map(|column| column.moved.as_ref()).all(is_column);
    if numbered && indexed && partitioned && referring && placed { Ok(()) } else { Err(reader.malformed()) }
}

fn put_column(out: &mut Vec<u8>, column: &Column) {
    out.put_varint(column.number.0.into());
    put_text(out, &column.name);
    value::put_type(out, column.data_type);
    out.put_signed(column.typmod.0.into());
    out.put_bool(column.not_null);
    put_option(out, column.default.as_ref(), |out, default| match default {
        ColumnDefault::Expression(text) => {
            out.push(1);
            put_text(out, text);
        }
        ColumnDefault::Identity { sequence, always } => {
            out.push(2);
            out.put_varint(sequence.0.into());
            out.put_bool(*always);
        }
        ColumnDefault::Generated(text) => {
            out.push(3);
            put_text(out, text);
        }
    });
    put_option(out, column.missing.as_ref(), |out, missing| value::put(out, missing, column.data_type));
    out.push(u8::from(column.hidden) | u8::from(column.moved.is_some()) << 1);
    if let Some(place) = column.moved {
        out.put_varint(place.0.into());
    }
    out.put_bool(column.dropped);
    put_comment(out, &column.comment);
}

fn read_column(reader: &mut Reader<'_>) -> Result<Column> {
    let number = ColumnNumber(reader.u16()?);
    let name = reader.text()?;
    let data_type = value::read_type(reader)?;
    let (typmod, not_null) = (Typmod(reader.i32()?), reader.bool()?);
    let default = reader.option(|reader| {
        Ok(match reader.u8()? {
            1 => ColumnDefault::Expression(reader.text()?),
            2 => ColumnDefault::Identity { sequence: SequenceId(reader.u32()?), always: reader.bool()? },
            3 => ColumnDefault::Generated(reader.text()?),
            kind => return reader.unknown("a column's default", kind.into()),
        })
    })?;
    let missing = reader.option(|reader| value::read(reader, data_type))?;
    let (hidden, is_moved) = match reader.u8()? {
        bits @ 0..=3 => (bits & 1 != 0, bits & 2 != 0),
        bits => return reader.unknown("a column's place", bits.into()),
    };
    let moved = if is_moved { Some(ColumnNumber(reader.u16()?)) } else { None };
    let (dropped, comment) = (reader.bool()?, reader.option(Reader::text)?);
    Ok(Column {
        number,
        name,
        data_type,
        typmod,
        not_null,
        default,
        missing,
        hidden,
        dropped,
        moved,
        comment,
    })
}

fn put_index(out: &mut Vec<u8>, index: &Index, own_key: Option<IndexId>) {
    out.put_varint(index.id.0.into());
    put_text(out, &index.name);
    put_list(out, index.parts.iter(), |out, part| {
        out.put_varint(part.column.0.into());
        out.push(u8::from(part.order.desc) | u8::from(part.order.nulls_first) << 1);
    });
    out.put_bool(index.unique);
    out.put_bool(index.nulls_not_distinct);
    out.push(match index.constraint {
        None => 0,
        Some(KeyConstraint::Unique) => 1,
        Some(KeyConstraint::Primary) if own_key == Some(index.id) => 1,
        Some(KeyConstraint::Primary) => 2,
    });
    put_option(out, index.predicate, |out, column| out.put_varint(column.0.into()));
    put_option(out, index.predicate_text.as_deref(), put_text);
    out.push(match index.state {
        IndexState::Building => 1,
        IndexState::Ready => 2,
        IndexState::Invalid => 3,
    });
    put_comment(out, &index.comment);
}

fn read_index(reader: &mut Reader<'_>) -> Result<Index> {
    Ok(Index {
        id: IndexId(reader.u32()?),
        name: reader.text()?,
        parts: reader.list(|reader| {
            let column = ColumnNumber(reader.u16()?);
            let order = match reader.u8()? {
                bits @ 0..=3 => KeyPart { desc: bits & 1 != 0, nulls_first: bits & 2 != 0 },
                bits => return reader.unknown("an order", bits.into()),
            };
            Ok(IndexPart { column, order })
        })?,
        unique: reader.bool()?,
        nulls_not_distinct: reader.bool()?,
        constraint: match reader.u8()? {
            0 => None,
            1 => Some(KeyConstraint::Unique),
            2 => Some(KeyConstraint::Primary),
            kind => return reader.unknown("a constraint of an index", kind.into()),
        },
        predicate: reader.option(|reader| Ok(ColumnNumber(reader.u16()?)))?,
        predicate_text: reader.option(Reader::text)?,
        state: match reader.u8()? {
            1 => IndexState::Building,
            2 => IndexState::Ready,
            3 => IndexState::Invalid,
            state => return reader.unknown("an index's state", state.into()),
        },
        comment: reader.option(Reader::text)?,
    })
}

fn put_numbers(out: &mut Vec<u8>, columns: &[ColumnNumber]) {
    put_list(out, columns.iter(), |out, column| out.put_varint(column.0.into()));
}

fn read_numbers(reader: &mut Reader<'_>) -> Result<Vec<ColumnNumber>> {
    reader.list(|reader| Ok(ColumnNumber(reader.u16()?)))
}

fn put_foreign_key(out: &mut Vec<u8>, key: &ForeignKey) {
    put_text(out, &key.name);
    put_numbers(out, &key.columns);
    out.put_varint(key.parent.0.into());
    put_numbers(out, &key.parent_columns);
    put_referential(out, key.on_delete);
    put_referential(out, key.on_update);
}

fn read_foreign_key(reader: &mut Reader<'_>) -> Result<ForeignKey> {
    Ok(ForeignKey {
        name: reader.text()?,
        columns: read_numbers(reader)?,
        parent: TableId(reader.u32()?),
        parent_columns: read_numbers(reader)?,
        on_delete: read_referential(reader)?,
        on_update: read_referential(reader)?,
    })
}

fn put_referential(out: &mut Vec<u8>, action: Referential) {
    out.push(match action {
        Referential::NoAction => 1,
        Referential::Cascade => 2,
        Referential::SetNull => 3,
        Referential::SetDefault => 4,
    });
}

fn read_referential(reader: &mut Reader<'_>) -> Result<Referential> {
    Ok(match reader.u8()? {
        1 => Referential::NoAction,
        2 => Referential::Cascade,
        3 => Referential::SetNull,
        4 => Referential::SetDefault,
        kind => return reader.unknown("a referential action", kind.into()),
    })
}

fn put_view(out: &mut Vec<u8>, view: &View) {
    out.put_varint(view.id.0.into());
    out.put_varint(view.database.0.into());
    out.put_varint(view.schema.0.into());
    put_text(out, &view.name);
    out.put_varint(view.owner.0.into());
    put_text(out, &view.query);
    put_list(out, view.columns.iter(), |out, (name, of, typmod)| {
        put_text(out, name);
        value::put_type(out, *of);
        out.put_signed(typmod.0.into());
    });
    put_list(out, view.depends_on.iter(), |out, id| out.put_varint(id.0.into()));
    put_comment(out, &view.comment);
}

fn read_view(reader: &mut Reader<'_>) -> Result<View> {
    Ok(View {
        id: TableId(reader.u32()?),
        database: DatabaseId(reader.u32()?),
        schema: SchemaId(reader.u32()?),
        name: reader.text()?,
        owner: RoleId(reader.u32()?),
        query: reader.text()?,
        columns: reader
            .list(|reader| Ok((reader.text()?, value::read_type(reader)?, Typmod(reader.i32()?))))?,
        depends_on: reader.list(|reader| Ok(TableId(reader.u32()?)))?,
        comment: reader.option(Reader::text)?,
    })
}

pub(super) fn put_sequence(out: &mut Vec<u8>, sequence: &Sequence) {
    out.put_varint(sequence.id.0.into());
    out.put_varint(sequence.database.0.into());
    out.put_varint(sequence.schema.0.into());
    put_text(out, &sequence.name);
    out.put_varint(sequence.owner.0.into());
    value::put_type(out, sequence.data_type);
    out.put_signed(sequence.start);
    out.put_signed(sequence.increment);
    out.put_signed(sequence.min);
    out.put_signed(sequence.max);
    out.put_varint(sequence.cache.into());
    out.put_bool(sequence.cycle);
    put_option(out, sequence.owned_by, |out, (table, column)| {
        out.put_varint(table.0.into());
        out.put_varint(column.0.into());
    });
}

pub(super) fn read_sequence(reader: &mut Reader<'_>) -> Result<Sequence> {
    Ok(Sequence {
        id: SequenceId(reader.u32()?),
        database: DatabaseId(reader.u32()?),
        schema: SchemaId(reader.u32()?),
        name: reader.text()?,
        owner: RoleId(reader.u32()?),
        data_type: value::read_type(reader)?,
        start: reader.signed()?,
        increment: reader.signed()?,
        min: reader.signed()?,
        max: reader.signed()?,
        cache: reader.u32()?,
        cycle: reader.bool()?,
        owned_by: reader.option(|reader| Ok((TableId(reader.u32()?), ColumnNumber(reader.u16()?))))?,
    })
}

fn put_role(out: &mut Vec<u8>, role: &Role) {
    out.put_varint(role.id.0.into());
    put_text(out, &role.name);
    let Role { superuser, login, create_database, create_role, inherit, .. } = role;
    let flags = [superuser, login, create_database, create_role, inherit];
    out.push(flags.iter().enumerate().fold(0, |bits, (at, flag)| bits | u8::from(**flag) << at));
    put_option(out, role.connections_max, |out, max| out.put_varint(max.into()));
    put_option(out, role.password.as_deref(), put_text);
    put_list(out, role.member_of.iter(), |out, id| out.put_varint(id.0.into()));
}

fn read_role(reader: &mut Reader<'_>) -> Result<Role> {
    let id = RoleId(reader.u32()?);
    let name = reader.text()?;
    let bits = reader.u8()?;
    if bits > 0x1f {
        return reader.unknown("a role's attribute", bits.into());
    }
    let flag = |at: u8| bits >> at & 1 == 1;
    Ok(Role {
        id,
        name,
        superuser: flag(0),
        login: flag(1),
        create_database: flag(2),
        create_role: flag(3),
        inherit: flag(4),
        connections_max: reader.option(Reader::u32)?,
        password: reader.option(Reader::text)?,
        member_of: reader.list(|reader| Ok(RoleId(reader.u32()?)))?.into_iter().collect(),
    })
}

/// Appends which object is meant: its kind and number.
pub fn put_object_id(out: &mut Vec<u8>, id: ObjectId) {
    let (kind, number) = match id {
        ObjectId::Database(id) => (1, id.0),
        ObjectId::Schema(id) => (2, id.0),
        ObjectId::Table(id) => (3, id.0),
        ObjectId::View(id) => (4, id.0),
        ObjectId::Sequence(id) => (5, id.0),
        ObjectId::Role(id) => (6, id.0),
    };
    out.push(kind);
    out.put_varint(number.into());
}

fn read_object_id(reader: &mut Reader<'_>) -> Result<ObjectId> {
    let kind = reader.u8()?;
    let number = reader.u32()?;
    Ok(match kind {
        1 => ObjectId::Database(DatabaseId(number)),
        2 => ObjectId::Schema(SchemaId(number)),
        3 => ObjectId::Table(TableId(number)),
        4 => ObjectId::View(TableId(number)),
        5 => ObjectId::Sequence(SequenceId(number)),
        6 => ObjectId::Role(RoleId(number)),
        kind => return reader.unknown("a kind of object", kind.into()),
    })
}

fn put_grant(out: &mut Vec<u8>, grant: &Grant) {
    match grant.object {
        AccessObject::Database(id) => {
            out.push(1);
            out.put_varint(id.0.into());
        }
        AccessObject::Schema(id) => {
            out.push(2);
            out.put_varint(id.0.into());
        }
        AccessObject::Table(id) => {
            out.push(3);
            out.put_varint(id.0.into());
        }
        AccessObject::Column(id, column) => {
            out.push(4);
            out.put_varint(id.0.into());
            out.put_varint(column.0.into());
        }
    }
    let grantee = match grant.grantee {
        Grantee::Public => None,
        Grantee::Role(id) => Some(id),
    };
    put_option(out, grantee, |out, id| out.put_varint(id.0.into()));
    out.push(privilege_number(grant.privilege));
    out.put_varint(grant.grantor.0.into());
    out.put_bool(grant.grantable);
}

fn read_grant(reader: &mut Reader<'_>) -> Result<Grant> {
    let object = match reader.u8()? {
        1 => AccessObject::Database(DatabaseId(reader.u32()?)),
        2 => AccessObject::Schema(SchemaId(reader.u32()?)),
        3 => AccessObject::Table(TableId(reader.u32()?)),
        4 => AccessObject::Column(TableId(reader.u32()?), ColumnNumber(reader.u16()?)),
        kind => return reader.unknown("an object of a grant", kind.into()),
    };
    let grantee = match reader.option(|reader| Ok(RoleId(reader.u32()?)))? {
        None => Grantee::Public,
        Some(id) => Grantee::Role(id),
    };
    let number = reader.u8()?;
    let privilege = match PRIVILEGES.iter().find(|privilege| privilege_number(**privilege) == number) {
        Some(privilege) => *privilege,
        None => return reader.unknown("a privilege", number.into()),
    };
    Ok(Grant { object, grantee, privilege, grantor: RoleId(reader.u32()?), grantable: reader.bool()? })
}

const PRIVILEGES: [Privilege; 11] = [
    Privilege::Select,
    Privilege::Insert,
    Privilege::Update,
    Privilege::Delete,
    Privilege::Truncate,
    Privilege::References,
    Privilege::Trigger,
    Privilege::Usage,
    Privilege::Create,
    Privilege::Connect,
    Privilege::Temporary,
];

fn privilege_number(privilege: Privilege) -> u8 {
    match privilege {
        Privilege::Select => 1,
        Privilege::Insert => 2,
        Privilege::Update => 3,
        Privilege::Delete => 4,
        Privilege::Truncate => 5,
        Privilege::References => 6,
        Privilege::Trigger => 7,
        Privilege::Usage => 8,
        Privilege::Create => 9,
        Privilege::Connect => 10,
        Privilege::Temporary => 11,
    }
}
