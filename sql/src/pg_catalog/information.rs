//! `information_schema` (SQL:2016 part 11), as far as ORMs and BI tools read it. Only what the current user may see is shown
//! by those views that say so in the standard; it agrees with `pg_catalog` because both come from one snapshot.

use model::{
    Type, Value,
    schema::{Column, ColumnDefault, Referential, Table},
};

use super::{Relation, columns_of, definition, definition::Constraint, int4, namespaces, rows, tables, text};
use crate::context::Context;

// The standard's domains are shown as the types below them.
const N: Type = Type::Name;
const T: Type = Type::Text;
const I: Type = Type::Int4;

const SCHEMA: &str = "information_schema";

pub(super) const RELATIONS: &[Relation] = &[
    Relation {
        schema: SCHEMA,
        name: "information_schema_catalog_name",
        oid: 13_001,
        columns: &[("catalog_name", N)],
        rows: |context| rows(vec![vec![catalog_name(context)]]),
    },
    Relation {
        schema: SCHEMA,
        name: "schemata",
        oid: 13_002,
        columns: &[
            ("catalog_name", N),
            ("schema_name", N),
            ("schema_owner", N),
            ("default_character_set_catalog", N),
            ("default_character_set_schema", N),
            ("default_character_set_name", N),
            ("sql_path", T),
        ],
        rows: |context| {
            let mut out = Vec::new();
            for (_, name, owner) in namespaces(context) {
                let owner = context.catalog.role(owner).map_or(Value::Null, |role| text(&role.name));
                let null = || Value::Null;
                out.push(vec![catalog_name(context), text(name), owner, null(), null(), null(), null()]);
            }
            rows(out)
        },
    },
    Relation {
        schema: SCHEMA,
        name: "tables",
        oid: 13_003,
        columns: &[
            ("table_catalog", N),
            ("table_schema", N),
            ("table_name", N),
            ("table_type", T),
            ("self_referencing_column_name", N),
            ("reference_generation", T),
            ("user_defined_type_catalog", N),
            ("user_defined_type_schema", N),
            ("user_defined_type_name", N),
            ("is_insertable_into", T),
            ("is_typed", T),
            ("commit_action", T),
        ],
        rows: |context| {
            let row = |schema: Value, name: &str, kind: &str, insertable: bool| {
                let null = || Value::Null;
                vec![
                    catalog_name(context),
                    schema,
                    text(name),
                    text(kind),
                    null(),
                    null(),
                    null(),
                    null(),
                    null(),
                    yes(insertable),
                    yes(false),
                    null(),
                ]
            };
            let mut out = Vec::new();
            for table in tables(context) {
                let kind = if table.temporary.is_some() { "LOCAL TEMPORARY" } else { "BASE TABLE" };
                out.push(row(schema_name(context, table.schema), &table.name, kind, true));
            }
            for view in context.catalog.views().filter(|view| view.database == context.database) {
                out.push(row(schema_name(context, view.schema), &view.name, "VIEW", false));
            }
            for relation in super::relations() {
                let kind =
                    if relation.schema == SCHEMA || relation.oid >= 10_000 { "VIEW" } else { "BASE TABLE" };
                out.push(row(text(relation.schema), relation.name, kind, false));
            }
            rows(out)
        },
    },
    Relation {
        schema: SCHEMA,
        name: "views",
        oid: 13_004,
        columns: &[
            ("table_catalog", N),
            ("table_schema", N),
            ("table_name", N),
            ("view_definition", T),
            ("check_option", T),
            ("is_updatable", T),
            ("is_insertable_into", T),
            ("is_trigger_updatable", T),
            ("is_trigger_deletable", T),
            ("is_trigger_insertable_into", T),
        ],
        rows: |context| {
            let views =
                context.catalog.views().filter(|view| view.database == context.database).map(|view| {
                    let no = || yes(false);
                    vec![
                        catalog_name(context),
                        schema_name(context, view.schema),
                        text(&view.name),
                        text(format!(" {};", view.query)),
                        text("NONE"),
                        no(),
                        no(),
                        no(),
                        no(),
                        no(),
                    ]
                });
            rows(views.collect())
        },
    },
    Relation {
        schema: SCHEMA,
        name: "columns",
        oid: 13_005,
        columns: &[
            ("table_catalog", N),
            ("table_schema", N),
            ("table_name", N),
            ("column_name", N),
            ("ordinal_position", I),
            ("column_default", T),
            ("is_nullable", T),
            ("data_type", T),
            ("character_maximum_length", I),
            ("character_octet_length", I),
            ("numeric_precision", I),
            ("numeric_precision_radix", I),
            ("numeric_scale", I),
            ("datetime_precision", I),
            ("interval_type", T),
            ("interval_precision", I),
            ("character_set_catalog", N),
            ("character_set_schema", N),
            ("character_set_name", N),
            ("collation_catalog", N),
            ("collation_schema", N),
            ("collation_name", N),
            ("domain_catalog", N),
            ("domain_schema", N),
            ("domain_name", N),
            ("udt_catalog", N),
            ("udt_schema", N),
            ("udt_name", N),
            ("scope_catalog", N),
            ("scope_schema", N),
            ("scope_name", N),
            ("maximum_cardinality", I),
            ("dtd_identifier", N),
            ("is_self_referencing", T),
            ("is_identity", T),
            ("identity_generation", T),
            ("identity_start", T),
            ("identity_increment", T),
            ("identity_maximum", T),
            ("identity_minimum", T),
            ("identity_cycle", T),
            ("is_generated", T),
            ("generation_expression", T),
            ("is_updatable", T),
        ],
        rows: |context| rows(columns(context)),
    },
    Relation {
        schema: SCHEMA,
        name: "table_constraints",
        oid: 13_006,
        columns: &[
            ("constraint_catalog", N),
            ("constraint_schema", N),
            ("constraint_name", N),
            ("table_catalog", N),
            ("table_schema", N),
            ("table_name", N),
            ("constraint_type", T),
            ("is_deferrable", T),
            ("initially_deferred", T),
            ("enforced", T),
            ("nulls_distinct", T),
        ],
        rows: |context| {
            let mut out = Vec::new();
            for table in tables(context) {
                let schema = schema_name(context, table.schema);
                let row = |name: &str, kind: &str, nulls: Value| {
                    vec![
                        catalog_name(context),
                        schema.clone(),
                        text(name),
                        catalog_name(context),
                        schema.clone(),
                        text(&table.name),
                        text(kind),
                        yes(false),
                        yes(false),
                        yes(true),
                        nulls,
                    ]
                };
                for constraint in Constraint::of(&table) {
                    let (kind, nulls) = match constraint {
                        Constraint::Primary(_) => ("PRIMARY KEY", Value::Null),
                        Constraint::Unique(index) => ("UNIQUE", yes(!index.nulls_not_distinct)),
                        Constraint::Check(_) => ("CHECK", Value::Null),
                        Constraint::Foreign(_) => ("FOREIGN KEY", Value::Null),
                    };
                    out.push(row(constraint.name(), kind, nulls));
                }
                for column in columns_of(&table).filter(|column| column.not_null && !column.dropped) {
                    let name = format!("{}_{}_{}_not_null", table.schema.0, table.id.0, column.number.0);
                    out.push(row(&name, "CHECK", Value::Null));
                }
            }
            rows(out)
        },
    },
    Relation {
        schema: SCHEMA,
        name: "key_column_usage",
        oid: 13_007,
        columns: &[
            ("constraint_catalog", N),
            ("constraint_schema", N),
            ("constraint_name", N),
            ("table_catalog", N),
            ("table_schema", N),
            ("table_name", N),
            ("column_name", N),
            ("ordinal_position", I),
            ("position_in_unique_constraint", I),
        ],
        rows: |context| {
            let mut out = Vec::new();
            for table in tables(context) {
                let schema = schema_name(context, table.schema);
                for constraint in Constraint::of(&table) {
                    for (place, column) in constraint.columns().into_iter().enumerate() {
                        let position = int4(place as i32 + 1);
                        let foreign = matches!(constraint, Constraint::Foreign(_));
                        out.push(vec![
                            catalog_name(context),
                            schema.clone(),
                            text(constraint.name()),
                            catalog_name(context),
                            schema.clone(),
                            text(&table.name),
                            text(&table.column(column).name),
                            position.clone(),
                            if foreign { position } else { Value::Null },
                        ]);
                    }
                }
            }
            rows(out)
        },
    },
    Relation {
        schema: SCHEMA,
        name: "constraint_column_usage",
        oid: 13_008,
        columns: &[
            ("table_catalog", N),
            ("table_schema", N),
            ("table_name", N),
            ("column_name", N),
            ("constraint_catalog", N),
            ("constraint_schema", N),
            ("constraint_name", N),
        ],
        rows: |context| {
            let mut out = Vec::new();
            for table in tables(context) {
                for constraint in Constraint::of(&table) {
                    let (of, columns) = match constraint {
                        Constraint::Foreign(key) => match context.catalog.table(key.parent) {
                            Some(parent) => (parent.clone(), key.parent_columns.clone()),
                            None => continue,
                        },
                        Constraint::Primary(_) | Constraint::Unique(_) | Constraint::Check(_) => {
                            (table.clone(), constraint.columns())
                        }
                    };
                    for column in columns {
                        out.push(vec![
                            catalog_name(context),
                            schema_name(context, of.schema),
                            text(&of.name),
                            text(&of.column(column).name),
                            catalog_name(context),
                            schema_name(context, table.schema),
                            text(constraint.name()),
                        ]);
                    }
                }
            }
            rows(out)
        },
    },
    Relation {
        schema: SCHEMA,
        name: "referential_constraints",
        oid: 13_009,
        columns: &[
            ("constraint_catalog", N),
            ("constraint_schema", N),
            ("constraint_name", N),
            ("unique_constraint_catalog", N),
            ("unique_constraint_schema", N),
            ("unique_constraint_name", N),
            ("match_option", T),
            ("update_rule", T),
            ("delete_rule", T),
        ],
        rows: |context| {
            let rule = |action: Referential| {
                text(match action {
                    Referential::NoAction => "NO ACTION",
                    Referential::Cascade => "CASCADE",
                    Referential::SetNull => "SET NULL",
                    Referential::SetDefault => "SET DEFAULT",
                })
            };
            let mut out = Vec::new();
            for table in tables(context) {
                for key in &table.foreign_keys {
                    let parent = context.catalog.table(key.parent);
                    let unique = parent.and_then(|parent| {
                        parent.indexes.iter().find(|index| {
                            index.constraint.is_some()
                                && index
                                    .parts
                                    .iter()
                                    .map(|part| part.column)
                                    .eq(key.parent_columns.iter().copied())
                        })
                    });
                    out.push(vec![
                        catalog_name(context),
                        schema_name(context, table.schema),
                        text(&key.name),
                        catalog_name(context),
                        parent.map_or(Value::Null, |parent| schema_name(context, parent.schema)),
                        unique.map_or(Value::Null, |index| text(&index.name)),
                        text("NONE"),
                        rule(key.on_update),
                        rule(key.on_delete),
                    ]);
                }
            }
            rows(out)
        },
    },
    Relation {
        schema: SCHEMA,
        name: "check_constraints",
        oid: 13_010,
        columns: &[
            ("constraint_catalog", N),
            ("constraint_schema", N),
            ("constraint_name", N),
            ("check_clause", T),
        ],
        rows: |context| {
            let mut out = Vec::new();
            for table in tables(context) {
                for check in &table.checks {
                    out.push(vec![
                        catalog_name(context),
                        schema_name(context, table.schema),
                        text(&check.name),
                        text(format!("(({}))", check.expression)),
                    ]);
                }
            }
            rows(out)
        },
    },
    Relation {
        schema: SCHEMA,
        name: "sequences",
        oid: 13_011,
        columns: &[
            ("sequence_catalog", N),
            ("sequence_schema", N),
            ("sequence_name", N),
            ("data_type", T),
            ("numeric_precision", I),
            ("numeric_precision_radix", I),
            ("numeric_scale", I),
            ("start_value", T),
            ("minimum_value", T),
            ("maximum_value", T),
            ("increment", T),
            ("cycle_option", T),
        ],
        rows: |context| {
            let sequences =
                context.catalog.sequences().filter(|at| at.database == context.database).map(|sequence| {
                    vec![
                        catalog_name(context),
                        schema_name(context, sequence.schema),
                        text(&sequence.name),
                        text(sequence.data_type.display_name()),
                        precision(sequence.data_type),
                        int4(2),
                        int4(0),
                        text(sequence.start.to_string()),
                        text(sequence.min.to_string()),
                        text(sequence.max.to_string()),
                        text(sequence.increment.to_string()),
                        yes(sequence.cycle),
                    ]
                });
            rows(sequences.collect())
        },
    },
    Relation {
        schema: SCHEMA,
        name: "enabled_roles",
        oid: 13_012,
        columns: &[("role_name", N)],
        rows: |context| {
            let role = context.catalog.role(context.current_user);
            rows(role.into_iter().map(|role| vec![text(&role.name)]).collect())
        },
    },
];

fn yes(yes: bool) -> Value {
    text(if yes { "YES" } else { "NO" })
}

fn catalog_name(context: &Context) -> Value {
    context.catalog.database(context.database).map_or(Value::Null, |database| text(&database.name))
}

fn schema_name(context: &Context, schema: model::id::SchemaId) -> Value {
    context.catalog.schema(schema).map_or(Value::Null, |schema| text(&schema.name))
}

fn precision(of: Type) -> Value {
    match of {
        Type::Int2 => int4(16),
        Type::Int4 => int4(32),
        Type::Int8 => int4(64),
        Type::Float4 => int4(24),
        Type::Float8 => int4(53),
        _ => Value::Null,
    }
}

fn columns(context: &Context) -> Vec<Vec<Value>> {
    let mut out = Vec::new();
    for table in tables(context) {
        let present = columns_of(&table).filter(|column| !column.dropped);
        for column in present {
            out.push(column_of_table(context, &table, column));
        }
    }
    for view in context.catalog.views().filter(|view| view.database == context.database) {
        for (place, (name, data_type, typmod)) in view.columns.iter().enumerate() {
            let schema = schema_name(context, view.schema);
            out.push(column_row(
                context,
                &ColumnRow {
                    schema,
                    relation: &view.name,
                    name,
                    place: place as i32 + 1,
                    data_type: *data_type,
                    typmod: *typmod,
                    not_null: false,
                    default: None,
                    identity: None,
                    generated: None,
                    updatable: false,
                },
            ));
        }
    }
    for relation in super::relations() {
        for (place, (name, data_type)) in relation.columns.iter().enumerate() {
            out.push(column_row(
                context,
                &ColumnRow {
                    schema: text(relation.schema),
                    relation: relation.name,
                    name,
                    place: place as i32 + 1,
                    data_type: *data_type,
                    typmod: model::types::Typmod::NONE,
                    not_null: false,
                    default: None,
                    identity: None,
                    generated: None,
                    updatable: false,
                },
            ));
        }
    }
    out
}

struct ColumnRow<'a> {
    schema: Value,
    relation: &'a str,
    name: &'a str,
    place: i32,
    data_type: Type,
    typmod: model::types::Typmod,
    not_null: bool,
    default: Option<String>,
    identity: Option<(&'static str, std::sync::Arc<model::schema::Sequence>)>,
    generated: Option<String>,
    updatable: bool,
}

fn column_of_table(context: &Context, table: &Table, column: &Column) -> Vec<Value> {
    let (default, identity, generated) = match &column.default {
        Some(ColumnDefault::Identity { sequence, always }) => {
            let kind = if *always { "ALWAYS" } else { "BY DEFAULT" };
            (None, context.catalog.sequence(*sequence).map(|sequence| (kind, sequence.clone())), None)
        }
        Some(ColumnDefault::Generated(expression)) => (None, None, Some(expression.clone())),
        Some(default) => (definition::default_text(context, default, column.data_type), None, None),
        None => (None, None, None),
    };
    column_row(
        context,
        &ColumnRow {
            schema: schema_name(context, table.schema),
            relation: &table.name,
            name: &column.name,
            place: i32::from(column.place().0),
            data_type: column.data_type,
            typmod: column.typmod,
            not_null: column.not_null,
            default,
            identity,
            generated,
            updatable: true,
        },
    )
}

fn column_row(context: &Context, at: &ColumnRow<'_>) -> Vec<Value> {
    let of = at.data_type;
    let length = if of.is_text() { at.typmod.length().map(|length| length as i32) } else { None };
    let numeric = if of == Type::Numeric { at.typmod.numeric() } else { None };
    let scale = match of {
        Type::Int2 | Type::Int4 | Type::Int8 => int4(0),
        _ => numeric.map_or(Value::Null, |(_, scale)| int4(i32::from(scale))),
    };
    let radix = match of {
        Type::Numeric => int4(10),
        Type::Int2 | Type::Int4 | Type::Int8 | Type::Float4 | Type::Float8 => int4(2),
        _ => Value::Null,
    };
    let moments = match of {
        Type::Date => int4(0),
        Type::Time | Type::Timestamp | Type::Timestamptz | Type::Interval => {
            int4(at.typmod.precision(of).map_or(6, i32::from))
        }
        _ => Value::Null,
    };
    let octets = match of {
        Type::Text | Type::Varchar | Type::Bpchar => {
            int4(length.map_or(1_073_741_824, |length| length.saturating_mul(4)))
        }
        _ => Value::Null,
    };
    let null = || Value::Null;
    let identity = |field: fn(&model::schema::Sequence) -> String| {
        at.identity.as_ref().map_or(Value::Null, |(_, sequence)| text(field(sequence)))
    };
    vec![
        catalog_name(context),
        at.schema.clone(),
        text(at.relation),
        text(at.name),
        int4(at.place),
        at.default.as_ref().map_or(Value::Null, text),
        yes(!at.not_null),
        text(if of.is_array() { "ARRAY" } else { of.display_name() }),
        length.map_or(Value::Null, int4),
        octets,
        if of == Type::Numeric {
            numeric.map_or(Value::Null, |(precision, _)| int4(i32::from(precision)))
        } else {
            precision(of)
        },
        radix,
        scale,
        moments,
        null(),
        null(),
        null(),
        null(),
        null(),
        null(),
        null(),
        null(),
        null(),
        null(),
        null(),
        catalog_name(context),
        text("pg_catalog"),
        text(of.catalog_name()),
        null(),
        null(),
        null(),
        null(),
        text(at.place.to_string()),
        yes(false),
        yes(at.identity.is_some()),
        at.identity.as_ref().map_or(Value::Null, |(kind, _)| text(kind)),
        identity(|sequence| sequence.start.to_string()),
        identity(|sequence| sequence.increment.to_string()),
        identity(|sequence| sequence.max.to_string()),
        identity(|sequence| sequence.min.to_string()),
        at.identity.as_ref().map_or_else(|| yes(false), |(_, sequence)| yes(sequence.cycle)),
        text(if at.generated.is_some() { "ALWAYS" } else { "NEVER" }),
        at.generated.as_ref().map_or(Value::Null, text),
        yes(at.updatable),
    ]
}
