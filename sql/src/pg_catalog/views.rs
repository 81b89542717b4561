//! `pg_tables`, `pg_views`, `pg_indexes`, `pg_sequences`: the relations people read, in one row each.

use model::{Type, Value, schema::Table};

use super::{Relation, definition, flag, rows, tables, text};
use crate::{context::Context, functions::session::READS_SEQUENCE, rights};

const N: Type = Type::Name;
const B: Type = Type::Bool;
const T: Type = Type::Text;

pub(super) const RELATIONS: &[Relation] = &[
    Relation {
        schema: "pg_catalog",
        name: "pg_tables",
        oid: 12_010,
        columns: &[
            ("schemaname", N),
            ("tablename", N),
            ("tableowner", N),
            ("tablespace", N),
            ("hasindexes", B),
            ("hasrules", B),
            ("hastriggers", B),
            ("rowsecurity", B),
        ],
        rows: |context| {
            let mut out = Vec::new();
            for table in tables(context) {
                out.push(vec![
                    schema_name(context, &table),
                    text(&table.name),
                    role_name(context, table.owner),
                    Value::Null,
                    flag(!table.indexes.is_empty()),
                    flag(false),
                    flag(!table.foreign_keys.is_empty()),
                    flag(false),
                ]);
            }
            rows(out)
        },
    },
    Relation {
        schema: "pg_catalog",
        name: "pg_views",
        oid: 12_011,
        columns: &[("schemaname", N), ("viewname", N), ("viewowner", N), ("definition", T)],
        rows: |context| {
            let views =
                context.catalog.views().filter(|view| view.database == context.database).map(|view| {
                    let schema = context.catalog.schema(view.schema);
                    vec![
                        schema.map_or(Value::Null, |schema| text(&schema.name)),
                        text(&view.name),
                        role_name(context, view.owner),
                        text(format!(" {};", view.query)),
                    ]
                });
            rows(views.collect())
        },
    },
    Relation {
        schema: "pg_catalog",
        name: "pg_matviews",
        oid: 12_012,
        columns: &[
            ("schemaname", N),
            ("matviewname", N),
            ("matviewowner", N),
            ("tablespace", N),
            ("hasindexes", B),
            ("ispopulated", B),
            ("definition", T),
        ],
        rows: |_| rows(Vec::new()),
    },
    Relation {
        schema: "pg_catalog",
        name: "pg_indexes",
        oid: 12_013,
        columns: &[("schemaname", N), ("tablename", N), ("indexname", N), ("tablespace", N), ("indexdef", T)],
        rows: |context| {
            let mut out = Vec::new();
            for table in tables(context) {
                for index in &table.indexes {
                    out.push(vec![
                        schema_name(context, &table),
                        text(&table.name),
                        text(&index.name),
                        Value::Null,
                        text(definition::index_definition(context, &table, index)),
                    ]);
                }
            }
            rows(out)
        },
    },
    Relation {
        schema: "pg_catalog",
        name: "pg_sequences",
        oid: 12_014,
        columns: &[
            ("schemaname", N),
            ("sequencename", N),
            ("sequenceowner", N),
            ("data_type", Type::Regtype),
            ("start_value", Type::Int8),
            ("min_value", Type::Int8),
            ("max_value", Type::Int8),
            ("increment_by", Type::Int8),
            ("cycle", B),
            ("cache_size", Type::Int8),
            ("last_value", Type::Int8),
        ],
        rows: |context| {
            let sequences =
                context.catalog.sequences().filter(|at| at.database == context.database).map(|sequence| {
                    let schema = context.catalog.schema(sequence.schema);
                    let may_read = rights::may_use_sequence(
                        &context.catalog,
                        context.current_user,
                        sequence.id,
                        &READS_SEQUENCE,
                    );
                    let last = may_read.then(|| context.sequences.current(sequence.id).ok()).flatten();
                    vec![
                        schema.map_or(Value::Null, |schema| text(&schema.name)),
                        text(&sequence.name),
                        role_name(context, sequence.owner),
                        Value::Oid(sequence.data_type.oid()),
                        Value::Int8(sequence.start),
                        Value::Int8(sequence.min),
                        Value::Int8(sequence.max),
                        Value::Int8(sequence.increment),
                        flag(sequence.cycle),
                        Value::Int8(i64::from(sequence.cache)),
                        last.map_or(Value::Null, Value::Int8),
                    ]
                });
            rows(sequences.collect())
        },
    },
];

fn schema_name(context: &Context, table: &Table) -> Value {
    context.catalog.schema(table.schema).map_or(Value::Null, |schema| text(&schema.name))
}

fn role_name(context: &Context, role: model::id::RoleId) -> Value {
    context.catalog.role(role).map_or(Value::Null, |role| text(&role.name))
}
