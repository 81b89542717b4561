//! `pg_class` and what hangs on it: attributes, defaults, indexes, constraints, sequences, descriptions, dependencies.

use model::{
    Type, Value,
    schema::{ColumnDefault, Kind, Referential},
    types::Scalar as Element,
};

use super::{
    INFORMATION_SCHEMA, OWNER, PG_CATALOG, Relation, columns_of, definition, definition::Constraint,
    derived_oid, flag, index_columns, int2, int4, list, maybe_text, oid, rows, tables, text, vector,
};
use crate::context::Context;

const O: Type = Type::Oid;
const N: Type = Type::Name;
const C: Type = Type::Char;
const B: Type = Type::Bool;
const I2: Type = Type::Int2;
const I4: Type = Type::Int4;
const TEXTS: Type = Type::Array(Element::Text);
const I2S: Type = Type::Array(Element::Int2);
const OIDS: Type = Type::Array(Element::Oid);

pub(super) const RELATIONS: &[Relation] = &[
    Relation {
        schema: "pg_catalog",
        name: "pg_class",
        oid: 1259,
        columns: &[
            ("oid", O),
            ("relname", N),
            ("relnamespace", O),
            ("reltype", O),
            ("reloftype", O),
            ("relowner", O),
            ("relam", O),
            ("relfilenode", O),
            ("reltablespace", O),
            ("relpages", I4),
            ("reltuples", Type::Float4),
            ("relallvisible", I4),
            ("reltoastrelid", O),
            ("relhasindex", B),
            ("relisshared", B),
            ("relpersistence", C),
            ("relkind", C),
            ("relnatts", I2),
            ("relchecks", I2),
            ("relhasrules", B),
            ("relhastriggers", B),
            ("relhassubclass", B),
            ("relrowsecurity", B),
            ("relforcerowsecurity", B),
            ("relispopulated", B),
            ("relreplident", C),
            ("relispartition", B),
            ("relrewrite", O),
            ("relfrozenxid", Type::Xid),
            ("relminmxid", Type::Xid),
            ("relacl", TEXTS),
            ("reloptions", TEXTS),
            ("relpartbound", Type::PgNodeTree),
        ],
        rows: |context| rows(classes(context)),
    },
    Relation {
        schema: "pg_catalog",
        name: "pg_attribute",
        oid: 1249,
        columns: &[
            ("attrelid", O),
            ("attname", N),
            ("atttypid", O),
            ("attstattarget", I4),
            ("attlen", I2),
            ("attnum", I2),
            ("attndims", I4),
            ("attcacheoff", I4),
            ("atttypmod", I4),
            ("attbyval", B),
            ("attalign", C),
            ("attstorage", C),
            ("attcompression", C),
            ("attnotnull", B),
            ("atthasdef", B),
            ("atthasmissing", B),
            ("attidentity", C),
            ("attgenerated", C),
            ("attisdropped", B),
            ("attislocal", B),
            ("attinhcount", I4),
            ("attcollation", O),
            ("attacl", TEXTS),
            ("attoptions", TEXTS),
            ("attfdwoptions", TEXTS),
            ("attmissingval", TEXTS),
        ],
        rows: |context| rows(attributes(context)),
    },
    Relation {
        schema: "pg_catalog",
        name: "pg_attrdef",
        oid: 2604,
        columns: &[("oid", O), ("adrelid", O), ("adnum", I2), ("adbin", Type::PgNodeTree)],
        rows: |context| {
            let mut out = Vec::new();
            for table in tables(context) {
                for column in columns_of(&table).filter(|column| !column.dropped) {
                    let shown = match &column.default {
                        Some(ColumnDefault::Identity { .. }) | None => None,
                        Some(default) => definition::default_text(context, default, column.data_type),
                    };
                    if let Some(expression) = shown {
                        out.push(vec![
                            oid(derived_oid(table.id.0, "default", &column.number.to_string())),
                            oid(table.id.0),
                            int2(column.place().0 as i16),
                            text(expression),
                        ]);
                    }
                }
            }
            rows(out)
        },
    },
    Relation {
        schema: "pg_catalog",
        name: "pg_index",
        oid: 2610,
        columns: &[
            ("indexrelid", O),
            ("indrelid", O),
            ("indnatts", I2),
            ("indnkeyatts", I2),
            ("indisunique", B),
            ("indnullsnotdistinct", B),
            ("indisprimary", B),
            ("indisexclusion", B),
            ("indimmediate", B),
            ("indisclustered", B),
            ("indisvalid", B),
            ("indcheckxmin", B),
            ("indisready", B),
            ("indislive", B),
            ("indisreplident", B),
            ("indkey", Type::Int2Vector),
            ("indcollation", Type::OidVector),
            ("indclass", Type::OidVector),
            ("indoption", Type::Int2Vector),
            ("indexprs", Type::PgNodeTree),
            ("indpred", Type::PgNodeTree),
        ],
        rows: |context| rows(indexes(context)),
    },
    Relation {
        schema: "pg_catalog",
        name: "pg_constraint",
        oid: 2606,
        columns: &[
            ("oid", O),
            ("conname", N),
            ("connamespace", O),
            ("contype", C),
            ("condeferrable", B),
            ("condeferred", B),
            ("convalidated", B),
            ("conrelid", O),
            ("contypid", O),
            ("conindid", O),
            ("conparentid", O),
            ("confrelid", O),
            ("confupdtype", C),
            ("confdeltype", C),
            ("confmatchtype", C),
            ("conislocal", B),
            ("coninhcount", I4),
            ("connoinherit", B),
            ("conkey", I2S),
            ("confkey", I2S),
            ("conpfeqop", OIDS),
            ("conppeqop", OIDS),
            ("conffeqop", OIDS),
            ("confdelsetcols", I2S),
            ("conexclop", OIDS),
            ("conbin", Type::PgNodeTree),
        ],
        rows: |context| rows(constraints(context)),
    },
    Relation {
        schema: "pg_catalog",
        name: "pg_sequence",
        oid: 2224,
        columns: &[
            ("seqrelid", O),
            ("seqtypid", O),
            ("seqstart", Type::Int8),
            ("seqincrement", Type::Int8),
            ("seqmax", Type::Int8),
            ("seqmin", Type::Int8),
            ("seqcache", Type::Int8),
            ("seqcycle", B),
        ],
        rows: |context| {
            let sequences =
                context.catalog.sequences().filter(|sequence| sequence.database == context.database);
            rows(
                sequences
                    .map(|sequence| {
                        vec![
                            oid(sequence.id.0),
                            oid(sequence.data_type.oid()),
                            Value::Int8(sequence.start),
                            Value::Int8(sequence.increment),
                            Value::Int8(sequence.max),
                            Value::Int8(sequence.min),
                            Value::Int8(i64::from(sequence.cache)),
                            flag(sequence.cycle),
                        ]
                    })
                    .collect(),
            )
        },
    },
    Relation {
        schema: "pg_catalog",
        name: "pg_description",
        oid: 2609,
        columns: &[("objoid", O), ("classoid", O), ("objsubid", I4), ("description", Type::Text)],
        rows: |context| rows(descriptions(context)),
    },
    Relation {
        schema: "pg_catalog",
        name: "pg_depend",
        oid: 2608,
        columns: &[
            ("classid", O),
            ("objid", O),
            ("objsubid", I4),
            ("refclassid", O),
            ("refobjid", O),
            ("refobjsubid", I4),
            ("deptype", C),
        ],
        rows: |context| {
            let mut out = Vec::new();
            let class = || oid(1259);
            for sequence in context.catalog.sequences() {
                if let Some((table, column)) = sequence.owned_by {
                    let identity = context.catalog.table(table).is_some_and(|table| {
                        let default = &table.column(column).default;
                        matches!(default, Some(ColumnDefault::Identity { sequence: at, .. }) if *at == sequence.id)
                    });
                    let kind = if identity { "i" } else { "a" };
                    let place =
                        context.catalog.table(table).map_or(column, |table| table.column(column).place());
                    let number = int4(i32::from(place.0));
                    out.push(vec![
                        class(),
                        oid(sequence.id.0),
                        int4(0),
                        class(),
                        oid(table.0),
                        number,
                        text(kind),
                    ]);
                }
            }
            for view in context.catalog.views() {
                for relation in &view.depends_on {
                    let rewrite = oid(derived_oid(view.id.0, "rule", "_RETURN"));
                    out.push(vec![oid(2618), rewrite, int4(0), class(), oid(relation.0), int4(0), text("n")]);
                }
            }
            for table in tables(context) {
                for index in &table.indexes {
                    out.push(vec![
                        class(),
                        oid(index.id.0),
                        int4(0),
                        class(),
                        oid(table.id.0),
                        int4(0),
                        text("a"),
                    ]);
                }
            }
            rows(out)
        },
    },
];

/// What differs between the rows of `pg_class`.
struct Class<'a> {
    id: u32,
    name: &'a str,
    namespace: u32,
    owner: u32,
    access_method: u32,
    kind: &'static str,
    columns: usize,
    checks: usize,
    has_index: bool,
    has_rules: bool,
    has_triggers: bool,
    temporary: bool,
}

fn class(at: &Class<'_>) -> Vec<Value> {
    let stored = matches!(at.kind, "r" | "i");
    vec![
        oid(at.id),
        text(at.name),
        oid(at.namespace),
        oid(0),
        oid(0),
        oid(at.owner),
        oid(at.access_method),
        oid(if stored { at.id } else { 0 }),
        oid(0),
        int4(0),
        Value::Float4(-1.0),
        int4(0),
        oid(0),
        flag(at.has_index),
        flag(false),
        text(if at.temporary { "t" } else { "p" }),
        text(at.kind),
        int2(at.columns as i16),
        int2(at.checks as i16),
        flag(at.has_rules),
        flag(at.has_triggers),
        flag(false),
        flag(false),
        flag(false),
        flag(true),
        text(if at.kind == "r" { "d" } else { "n" }),
        flag(false),
        oid(0),
        oid(0),
        oid(0),
        Value::Null,
        Value::Null,
        Value::Null,
    ]
}

/// `pg_am.oid` of `heap` and `btree`.
const HEAP: u32 = 2;
const BTREE: u32 = 403;

fn classes(context: &Context) -> Vec<Vec<Value>> {
    let mut out = Vec::new();
    for table in tables(context) {
        debug_assert!(matches!(table.kind, Kind::Table | Kind::Collection), "both are relations of rows");
        out.push(class(&Class {
            id: table.id.0,
            name: &table.name,
            namespace: table.schema.0,
            owner: table.owner.0,
            access_method: HEAP,
            kind: "r",
            columns: columns_of(&table).count(),
            checks: table.checks.len(),
            has_index: !table.indexes.is_empty(),
            has_rules: false,
            has_triggers: !table.foreign_keys.is_empty(),
            temporary: table.temporary.is_some(),
        }));
        for index in &table.indexes {
            out.push(class(&Class {
                id: index.id.0,
                name: &index.name,
                namespace: table.schema.0,
                owner: table.owner.0,
                access_method: BTREE,
                kind: "i",
                columns: index.parts.len(),
                checks: 0,
                has_index: false,
                has_rules: false,
                has_triggers: false,
                temporary: table.temporary.is_some(),
            }));
        }
    }
    let other = |id, name, namespace, owner, kind, columns| Class {
        id,
        name,
        namespace,
        owner,
        access_method: 0,
        kind,
        columns,
        checks: 0,
        has_index: false,
        has_rules: kind == "v",
        has_triggers: false,
        temporary: false,
    };
    for view in context.catalog.views().filter(|view| view.database == context.database) {
        out.push(class(&other(view.id.0, &view.name, view.schema.0, view.owner.0, "v", view.columns.len())));
    }
    for sequence in context.catalog.sequences().filter(|sequence| sequence.database == context.database) {
        out.push(class(&other(sequence.id.0, &sequence.name, sequence.schema.0, sequence.owner.0, "S", 3)));
    }
    for relation in super::relations() {
        let (namespace, kind) = system_kind(relation);
        out.push(class(&other(
            relation.oid,
            relation.name,
            namespace,
            OWNER.0,
            kind,
            relation.columns.len(),
        )));
    }
    out
}

fn system_kind(relation: &Relation) -> (u32, &'static str) {
    match relation.schema {
        "information_schema" => (INFORMATION_SCHEMA, "v"),
        _ if relation.oid < 10_000 => (PG_CATALOG, "r"),
        _ => (PG_CATALOG, "v"),
    }
}

/// What differs between the rows of `pg_attribute`.
struct Attribute<'a> {
    relation: u32,
    name: &'a str,
    data_type: Type,
    number: i16,
    typmod: i32,
    not_null: bool,
    has_default: bool,
    has_missing: bool,
    identity: &'static str,
    generated: &'static str,
    dropped: bool,
}

fn attribute(at: &Attribute<'_>) -> Vec<Value> {
    let length = at.data_type.len();
    let (align, storage) = match length {
        1 => ("c", "p"),
        2 => ("s", "p"),
        4 => ("i", "p"),
        8 | 16 | 64 => ("d", "p"),
        _ => ("i", "x"),
    };
    vec![
        oid(at.relation),
        text(at.name),
        oid(if at.dropped { 0 } else { at.data_type.oid() }),
        int4(-1),
        int2(length),
        int2(at.number),
        int4(i32::from(at.data_type.is_array())),
        int4(-1),
        int4(at.typmod),
        flag(matches!(length, 1 | 2 | 4 | 8)),
        text(align),
        text(storage),
        text(""),
        flag(at.not_null),
        flag(at.has_default),
        flag(at.has_missing),
        text(at.identity),
        text(at.generated),
        flag(at.dropped),
        flag(true),
        int4(0),
        oid(super::types::collation_of(at.data_type)),
        Value::Null,
        Value::Null,
        Value::Null,
        Value::Null,
    ]
}

fn attributes(context: &Context) -> Vec<Vec<Value>> {
    let mut out = Vec::new();
    for table in tables(context) {
        for column in columns_of(&table) {
            let dropped_name = format!("........pg.dropped.{}........", column.place().0);
            let (identity, generated) = match &column.default {
                Some(ColumnDefault::Identity { always: true, .. }) => ("a", ""),
                Some(ColumnDefault::Identity { always: false, .. }) => ("d", ""),
                Some(ColumnDefault::Generated(_)) => ("", "s"),
                Some(ColumnDefault::Expression(_)) | None => ("", ""),
            };
            out.push(attribute(&Attribute {
                relation: table.id.0,
                name: if column.dropped { &dropped_name } else { &column.name },
                data_type: column.data_type,
                number: column.place().0 as i16,
                typmod: column.typmod.0,
                not_null: column.not_null && !column.dropped,
                has_default: column.default.is_some() && identity.is_empty() && !column.dropped,
                has_missing: column.missing.is_some(),
                identity,
                generated,
                dropped: column.dropped,
            }));
        }
        for index in &table.indexes {
            for (place, part) in index.parts.iter().enumerate() {
                let column = table.column(part.column);
                let name = if column.hidden { format!("expr{}", place + 1) } else { column.name.clone() };
                out.push(attribute(&plain(index.id.0, &name, column.data_type, place, column.typmod.0)));
            }
        }
    }
    for view in context.catalog.views().filter(|view| view.database == context.database) {
        for (place, (name, data_type, typmod)) in view.columns.iter().enumerate() {
            out.push(attribute(&plain(view.id.0, name, *data_type, place, typmod.0)));
        }
    }
    for sequence in context.catalog.sequences().filter(|sequence| sequence.database == context.database) {
        let columns = [("last_value", Type::Int8), ("log_cnt", Type::Int8), ("is_called", Type::Bool)];
        for (place, (name, data_type)) in columns.into_iter().enumerate() {
            out.push(attribute(&plain(sequence.id.0, name, data_type, place, -1)));
        }
    }
    for relation in super::relations() {
        for (place, (name, data_type)) in relation.columns.iter().enumerate() {
            out.push(attribute(&plain(relation.oid, name, *data_type, place, -1)));
        }
    }
    out
}

fn plain(relation: u32, name: &str, data_type: Type, place: usize, typmod: i32) -> Attribute<'_> {
    Attribute {
        relation,
        name,
        data_type,
        number: place as i16 + 1,
        typmod,
        not_null: false,
        has_default: false,
        has_missing: false,
        identity: "",
        generated: "",
        dropped: false,
    }
}

fn indexes(context: &Context) -> Vec<Vec<Value>> {
    let mut out = Vec::new();
    for table in tables(context) {
        for index in &table.indexes {
            let columns = index_columns(&table, index);
            let types: Vec<Type> =
                index.parts.iter().map(|part| table.column(part.column).data_type).collect();
            let expressions: Vec<String> = (0..index.parts.len())
                .filter(|place| columns[*place] == 0)
                .map(|place| definition::index_part_name(&table, index, place))
                .collect();
            let option = |part: &model::schema::IndexPart| {
                i16::from(part.order.desc) | i16::from(part.order.nulls_first) << 1
            };
            let ready = index.state == model::schema::IndexState::Ready;
            out.push(vec![
                oid(index.id.0),
                oid(table.id.0),
                int2(columns.len() as i16),
                int2(columns.len() as i16),
                flag(index.unique),
                flag(index.nulls_not_distinct),
                flag(index.constraint == Some(model::schema::KeyConstraint::Primary)),
                flag(false),
                flag(true),
                flag(false),
                flag(ready),
                flag(false),
                flag(ready),
                flag(true),
                flag(false),
                vector(Element::Int2, columns.into_iter().map(int2).collect()),
                vector(Element::Oid, types.iter().map(|at| oid(super::types::collation_of(*at))).collect()),
                vector(
                    Element::Oid,
                    types.iter().map(|at| oid(super::types::operator_class_of(*at))).collect(),
                ),
                vector(Element::Int2, index.parts.iter().map(|part| int2(option(part))).collect()),
                if expressions.is_empty() { Value::Null } else { text(expressions.join(", ")) },
                maybe_text(index.predicate_text.as_ref()),
            ]);
        }
    }
    out
}

fn constraints(context: &Context) -> Vec<Vec<Value>> {
    let mut out = Vec::new();
    for table in tables(context) {
        for constraint in Constraint::of(&table) {
            let numbers = |at: &model::schema::Table, columns: &[model::id::ColumnNumber]| {
                list(
                    Element::Int2,
                    columns.iter().map(|column| int2(at.column(*column).place().0 as i16)).collect(),
                )
            };
            let (index, parent, update, delete, parent_columns) = match constraint {
                Constraint::Primary(index) | Constraint::Unique(index) => {
                    (index.id.0, 0, " ", " ", Value::Null)
                }
                Constraint::Check(_) => (0, 0, " ", " ", Value::Null),
                Constraint::Foreign(key) => {
                    let parent = context.catalog.table(key.parent);
                    let covers = |index: &&model::schema::Index| {
                        index.unique
                            && index
                                .parts
                                .iter()
                                .map(|part| part.column)
                                .eq(key.parent_columns.iter().copied())
                    };
                    let index = parent.and_then(|parent| parent.indexes.iter().find(covers));
                    (
                        index.map_or(0, |index| index.id.0),
                        key.parent.0,
                        letter(key.on_update),
                        letter(key.on_delete),
                        parent.map_or(Value::Null, |parent| numbers(parent, &key.parent_columns)),
                    )
                }
            };
            let columns = constraint.columns();
            out.push(vec![
                oid(constraint.oid(&table)),
                text(constraint.name()),
                oid(table.schema.0),
                text(constraint.letter()),
                flag(false),
                flag(false),
                flag(true),
                oid(table.id.0),
                oid(0),
                oid(index),
                oid(0),
                oid(parent),
                text(update),
                text(delete),
                text(if parent == 0 { " " } else { "s" }),
                flag(true),
                int4(0),
                flag(false),
                if columns.is_empty() { Value::Null } else { numbers(&table, &columns) },
                parent_columns,
                Value::Null,
                Value::Null,
                Value::Null,
                Value::Null,
                Value::Null,
                match constraint {
                    Constraint::Check(check) => text(&check.expression),
                    Constraint::Primary(_) | Constraint::Unique(_) | Constraint::Foreign(_) => Value::Null,
                },
            ]);
        }
    }
    out
}

fn letter(action: Referential) -> &'static str {
    match action {
        Referential::NoAction => "a",
        Referential::Cascade => "c",
        Referential::SetNull => "n",
        Referential::SetDefault => "d",
    }
}

fn descriptions(context: &Context) -> Vec<Vec<Value>> {
    let mut out = Vec::new();
    let mut describe = |object: u32, class: u32, part: i32, comment: Option<&String>| {
        if let Some(comment) = comment {
            out.push(vec![oid(object), oid(class), int4(part), text(comment)]);
        }
    };
    for schema in context.catalog.schemas(context.database) {
        describe(schema.id.0, 2615, 0, schema.comment.as_ref());
    }
    for table in tables(context) {
        describe(table.id.0, 1259, 0, table.comment.as_ref());
        for column in columns_of(&table).filter(|column| !column.dropped) {
            describe(table.id.0, 1259, i32::from(column.place().0), column.comment.as_ref());
        }
        for index in &table.indexes {
            describe(index.id.0, 1259, 0, index.comment.as_ref());
        }
    }
    for view in context.catalog.views().filter(|view| view.database == context.database) {
        describe(view.id.0, 1259, 0, view.comment.as_ref());
    }
    out
}
