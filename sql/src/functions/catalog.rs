//! What clients ask about objects: definitions, descriptions, visibility, privileges, sizes.

use model::{
    Code, Error, Result, Type, Value,
    access::{Grantee, Object, Privilege},
    id::{DatabaseId, RoleId, SchemaId, SequenceId, TableId},
    schema::Column,
};

use super::{Definitions, int, int4, text};
use crate::{
    context::Context,
    pg_catalog::{self, definition},
    rights,
};

const O: Type = Type::Oid;
const T: Type = Type::Text;
const B: Type = Type::Bool;
const I: Type = Type::Int4;

pub(super) fn define(d: &mut Definitions) {
    definitions(d);
    descriptions(d);
    visibility(d);
    privileges(d);
    sizes(d);
}

fn id(value: &Value) -> u32 {
    u32::try_from(int(value)).expect("an OID has 32 bits")
}

fn maybe(text: Option<String>) -> Value {
    text.map_or(Value::Null, Value::text)
}

fn definitions(d: &mut Definitions) {
    d.scalar("pg_get_userbyid", [O], Type::Name, |context, a| {
        let role = context.catalog.role(RoleId(id(&a[0])));
        Ok(match role {
            Some(role) => Value::text(role.name.as_str()),
            None => Value::text(format!("unknown (OID={})", id(&a[0]))),
        })
    })
    .stable();
    d.scalar("format_type", [O, I], T, |_, a| {
        if a[0].is_null() {
            return Ok(Value::Null);
        }
        let typmod = a[1].as_i64().map_or(-1, |typmod| typmod as i32);
        Ok(Value::text(match Type::from_oid(id(&a[0])) {
            Some(data_type) => data_type.name_with(model::types::Typmod(typmod)),
            None if id(&a[0]) == 0 => "-".to_owned(),
            None => "???".to_owned(),
        }))
    })
    .lenient()
    .stable();
    for name in ["pg_get_expr", "pg_get_partkeydef"] {
        d.scalar(name, [Type::PgNodeTree, O, B], T, |_, a| Ok(Value::text(text(&a[0])))).optional(1).stable();
    }
    d.scalar("pg_get_indexdef", [O, I, B], T, |context, a| {
        let Some((table, index)) = definition::find_index(&context.catalog, id(&a[0])) else {
            return Ok(Value::Null);
        };
        let place = a.get(1).map_or(0, int4);
        Ok(match usize::try_from(place - 1) {
            Ok(place) if place < index.parts.len() => {
                Value::text(definition::index_part_name(table, index, place))
            }
            Ok(_) => Value::text(""),
            Err(_) => Value::text(definition::index_definition(context, table, index)),
        })
    })
    .optional(2)
    .stable();
    d.scalar("pg_get_constraintdef", [O, B], T, |context, a| {
        let wanted = id(&a[0]);
        for table in context.catalog.tables() {
            let found = definition::Constraint::of(table).into_iter().find(|at| at.oid(table) == wanted);
            if let Some(constraint) = found {
                return Ok(Value::text(constraint.definition(
                    context,
                    table,
                    a.get(1).is_some_and(super::boolean),
                )));
            }
        }
        Ok(Value::Null)
    })
    .optional(1)
    .stable();
    d.scalar("pg_get_viewdef", [O, B], T, |context, a| {
        let view = context.catalog.view(TableId(id(&a[0])));
        Ok(maybe(view.map(|view| format!(" {};", view.query))))
    })
    .optional(1)
    .stable();
    d.scalar("pg_get_serial_sequence", [T, T], T, |context, a| {
        let Some((schema, relation)) = super::session::find_relation(context, text(&a[0]))? else {
            return Err(Error::new(
                Code::UndefinedTable,
                format!("relation \"{}\" does not exist", text(&a[0])),
            ));
        };
        let model::catalog::Relation::Table(table) = relation else { return Ok(Value::Null) };
        let Some(table) = context.catalog.table(table) else { return Ok(Value::Null) };
        let Some(column) = table.find_column(text(&a[1])) else {
            let message = format!("column \"{}\" of relation \"{}\" does not exist", text(&a[1]), table.name);
            return Err(Error::new(Code::UndefinedColumn, message));
        };
        let owned = context.catalog.sequences().find(|at| at.owned_by == Some((table.id, column.number)));
        let quote = super::text::quote_identifier;
        Ok(maybe(owned.map(|sequence| format!("{}.{}", quote(&schema), quote(&sequence.name)))))
    })
    .stable();
    d.scalar("pg_get_function_arguments", [O], T, |_, a| {
        Ok(maybe(pg_catalog::find_function(id(&a[0])).map(pg_catalog::function_arguments)))
    })
    .stable();
    d.scalar("pg_get_function_identity_arguments", [O], T, |_, a| {
        Ok(maybe(pg_catalog::find_function(id(&a[0])).map(pg_catalog::function_arguments)))
    })
    .stable();
    d.scalar("pg_get_function_result", [O], T, |_, a| {
        Ok(maybe(pg_catalog::find_function(id(&a[0])).map(pg_catalog::function_result)))
    })
    .stable();
    for name in
        ["pg_get_ruledef", "pg_get_triggerdef", "pg_get_functiondef", "pg_get_statisticsobjdef_columns"]
    {
        d.scalar(name, [O, B], T, |_, _| Ok(Value::Null)).optional(1).stable();
    }
    d.scalar("pg_encoding_to_char", [I], Type::Name, |_, a| {
        Ok(Value::text(if int(&a[0]) == 6 { "UTF8" } else { "" }))
    })
    .stable();
    d.scalar("pg_char_to_encoding", [Type::Name], I, |_, a| {
        let utf8 = matches!(text(&a[0]).to_ascii_uppercase().as_str(), "UTF8" | "UTF-8" | "UNICODE");
        Ok(Value::Int4(if utf8 { 6 } else { -1 }))
    })
    .stable();
    d.scalar("pg_client_encoding", (), Type::Name, |_, _| Ok(Value::text("UTF8"))).stable();
    d.scalar("pg_collation_for", [super::Accepts::Any], T, |_, _| Ok(Value::text("\"default\""))).stable();
    d.scalar("pg_postmaster_start_time", (), Type::Timestamptz, |context, _| {
        let starts = context.settings.activity().into_iter().map(|at| at.backend_start);
        Ok(starts.min().map_or(Value::Null, Value::Timestamptz))
    })
    .stable();
}

fn descriptions(d: &mut Definitions) {
    d.scalar("obj_description", [O, Type::Name], T, |context, a| Ok(comment(context, id(&a[0]), 0)))
        .optional(1)
        .stable();
    d.scalar("col_description", [O, I], T, |context, a| Ok(comment(context, id(&a[0]), int(&a[1])))).stable();
    d.scalar("shobj_description", [O, Type::Name], T, |context, a| {
        let database = context.catalog.database(DatabaseId(id(&a[0])));
        Ok(maybe(database.and_then(|database| database.comment.clone())))
    })
    .stable();
}

fn comment(context: &Context, object: u32, part: i64) -> Value {
    let catalog = &context.catalog;
    let found = if let Some(table) = catalog.table(TableId(object)) {
        match u16::try_from(part) {
            Ok(0) => table.comment.clone(),
            Ok(number) => {
                let column = table.columns.iter().find(|column| column.place().0 == number);
                column.and_then(|column| column.comment.clone())
            }
            Err(_) => None,
        }
    } else if let Some(view) = catalog.view(TableId(object)) {
        view.comment.clone()
    } else if let Some(schema) = catalog.schema(SchemaId(object)) {
        schema.comment.clone()
    } else {
        definition::find_index(catalog, object).and_then(|(_, index)| index.comment.clone())
    };
    maybe(found)
}

fn visibility(d: &mut Definitions) {
    d.scalar("pg_table_is_visible", [O], B, |context, a| {
        let name = super::cast::relation_name(context, id(&a[0]));
        let catalog = &context.catalog;
        let oid = id(&a[0]);
        let exists = catalog.table(TableId(oid)).is_some()
            || catalog.view(TableId(oid)).is_some()
            || catalog.sequence(SequenceId(oid)).is_some()
            || definition::find_index(catalog, oid).is_some()
            || pg_catalog::relation_name(oid).is_some();
        if !exists {
            return Ok(Value::Null);
        }
        let information =
            pg_catalog::relations().any(|at| at.oid == oid && at.schema == "information_schema");
        // A name is shown with its schema exactly when the search path does not lead to it.
        let qualified = super::session::split_identifier(&name).is_ok_and(|parts| parts.len() > 1);
        Ok(Value::Bool(!information && !qualified))
    })
    .stable();
    for name in [
        "pg_type_is_visible",
        "pg_function_is_visible",
        "pg_operator_is_visible",
        "pg_opclass_is_visible",
        "pg_collation_is_visible",
        "pg_conversion_is_visible",
        "pg_statistics_obj_is_visible",
        "pg_ts_config_is_visible",
        "pg_ts_dict_is_visible",
    ] {
        d.scalar(name, [O], B, |_, _| Ok(Value::Bool(true))).stable();
    }
    d.scalar("pg_relation_is_publishable", [Type::Regclass], B, |_, _| Ok(Value::Bool(false))).stable();
    d.scalar("pg_is_other_temp_schema", [O], B, |_, _| Ok(Value::Bool(false))).stable();
    d.scalar("pg_my_temp_schema", (), O, |_, _| Ok(Value::Oid(0))).stable();
    d.scalar("pg_has_role", [Type::Name, T], B, |context, a| member(context, context.current_user, &a[0]))
        .stable();
    d.scalar("pg_has_role", [O, T], B, |context, a| member(context, context.current_user, &a[0])).stable();
    d.scalar("pg_has_role", [Type::Name, Type::Name, T], B, |context, a| {
        let user = role(context, &a[0])?;
        member(context, user, &a[1])
    })
    .stable();
}

fn role(context: &Context, value: &Value) -> Result<RoleId> {
    match value {
        Value::Text(name) => match context.catalog.find_role(name) {
            Some(role) => Ok(role.id),
            None => {
                Err(Error::new(Code::UndefinedObject, format!("role \"{}\" does not exist", name.as_str())))
            }
        },
        other => Ok(RoleId(id(other))),
    }
}

fn member(context: &Context, user: RoleId, group: &Value) -> Result<Value> {
    let group = role(context, group)?;
    Ok(Value::Bool(roles_of(context, user).contains(&group) || is_superuser(context, user)))
}

fn is_superuser(context: &Context, user: RoleId) -> bool {
    context.catalog.role(user).is_some_and(|role| role.superuser)
}

/// The role and all roles whose rights it has.
fn roles_of(context: &Context, user: RoleId) -> Vec<RoleId> {
    let mut roles = vec![user];
    let mut next = 0;
    while let Some(at) = roles.get(next).copied() {
        next += 1;
        if let Some(role) = context.catalog.role(at) {
            roles.extend(
                role.member_of.iter().filter(|group| !roles.contains(group)).copied().collect::<Vec<_>>(),
            );
        }
    }
    roles
}

/// `has_*_privilege([user,] object, privileges)`.
fn privileges(d: &mut Definitions) {
    for object in [T, O] {
        d.scalar("has_any_column_privilege", [object, T], B, |context, a| {
            on_columns(context, context.current_user, &a[0], |_| true, &a[1])
        })
        .stable();
        for user in [Type::Name, O] {
            d.scalar("has_any_column_privilege", [user, object, T], B, |context, a| {
                let user = role(context, &a[0])?;
                on_columns(context, user, &a[1], |_| true, &a[2])
            })
            .stable();
        }
    }
    for name in ["has_table_privilege", "has_sequence_privilege"] {
        for object in [T, O] {
            d.scalar(name, [object, T], B, |context, a| {
                on_table(context, context.current_user, &a[0], &a[1])
            })
            .stable();
            for user in [Type::Name, O] {
                d.scalar(name, [user, object, T], B, |context, a| {
                    let user = role(context, &a[0])?;
                    on_table(context, user, &a[1], &a[2])
                })
                .stable();
            }
        }
    }
    for object in [T, O] {
        d.scalar("has_schema_privilege", [object, T], B, |context, a| {
            on_schema(context, context.current_user, &a[0], &a[1])
        })
        .stable();
        d.scalar("has_database_privilege", [object, T], B, |context, a| {
            on_database(context, context.current_user, &a[0], &a[1])
        })
        .stable();
        for user in [Type::Name, O] {
            d.scalar("has_schema_privilege", [user, object, T], B, |context, a| {
                let user = role(context, &a[0])?;
                on_schema(context, user, &a[1], &a[2])
            })
            .stable();
            d.scalar("has_database_privilege", [user, object, T], B, |context, a| {
                let user = role(context, &a[0])?;
                on_database(context, user, &a[1], &a[2])
            })
            .stable();
        }
        d.scalar("has_function_privilege", [object, T], B, |_, _| Ok(Value::Bool(true))).stable();
        d.scalar("has_type_privilege", [object, T], B, |_, _| Ok(Value::Bool(true))).stable();
        d.scalar("has_tablespace_privilege", [object, T], B, |_, _| Ok(Value::Bool(true))).stable();
    }
    for (relation, column) in [(T, T), (T, Type::Int2), (O, T), (O, Type::Int2)] {
        d.scalar("has_column_privilege", [relation, column, T], B, |context, a| {
            on_column(context, context.current_user, &a[0], &a[1], &a[2])
        })
        .stable();
        for user in [Type::Name, O] {
            d.scalar("has_column_privilege", [user, relation, column, T], B, |context, a| {
                let user = role(context, &a[0])?;
                on_column(context, user, &a[1], &a[2], &a[3])
            })
            .stable();
        }
    }
}

/// The privileges a list such as `SELECT, INSERT WITH GRANT OPTION` names; any of them is enough.
fn parse_privileges(list: &Value) -> Result<Vec<(Privilege, bool)>> {
    let one = |item: &str| {
        let upper = item.trim().to_ascii_uppercase();
        let (name, grantable) = match upper.strip_suffix(" WITH GRANT OPTION") {
            Some(name) => (name.trim().to_owned(), true),
            None => (upper, false),
        };
        let privilege = match name.as_str() {
            "SELECT" => Privilege::Select,
            "INSERT" => Privilege::Insert,
            "UPDATE" => Privilege::Update,
            "DELETE" => Privilege::Delete,
            "TRUNCATE" => Privilege::Truncate,
            "REFERENCES" => Privilege::References,
            "TRIGGER" => Privilege::Trigger,
            "USAGE" => Privilege::Usage,
            "CREATE" => Privilege::Create,
            "CONNECT" => Privilege::Connect,
            "TEMPORARY" | "TEMP" => Privilege::Temporary,
            _ => {
                let message = format!("unrecognized privilege type: \"{}\"", item.trim());
                return Err(Error::new(Code::InvalidParameterValue, message));
            }
        };
        Ok((privilege, grantable))
    };
    text(list).split(',').map(one).collect()
}

fn granted(
    context: &Context,
    user: RoleId,
    objects: &[Object],
    owner: RoleId,
    list: &Value,
) -> Result<Value> {
    let wanted = parse_privileges(list)?;
    let roles = rights::roles_of(&context.catalog, user);
    if is_superuser(context, user) || roles.contains(&owner) {
        return Ok(Value::Bool(true));
    }
    let holds = |(privilege, grantable): &(Privilege, bool)| {
        context.catalog.grants().any(|grant| {
            let to = match grant.grantee {
                Grantee::Public => true,
                Grantee::Role(role) => roles.contains(&role),
            };
            to && objects.contains(&grant.object)
                && grant.privilege == *privilege
                && (grant.grantable || !grantable)
        })
    };
    Ok(Value::Bool(wanted.iter().any(holds)))
}

/// The relation that a name or an OID means.
fn relation_id(context: &Context, relation: &Value) -> Result<u32> {
    Ok(match relation {
        Value::Text(name) => match super::session::find_relation(context, name)? {
            Some((_, model::catalog::Relation::Table(id) | model::catalog::Relation::View(id))) => id.0,
            Some((_, model::catalog::Relation::Sequence(id))) => id.0,
            Some((_, model::catalog::Relation::Index(table, _))) => table.0,
            None => {
                let last = super::session::split_identifier(name)?.pop().unwrap_or_default();
                match pg_catalog::find_relation(&last) {
                    Some(oid) => oid,
                    None => {
                        let message = format!("relation \"{}\" does not exist", name.as_str());
                        return Err(Error::new(Code::UndefinedTable, message));
                    }
                }
            }
        },
        other => id(other),
    })
}

/// Rights on some columns of a table, or on the whole of it; on what is no table, on the whole.
fn on_columns(
    context: &Context,
    user: RoleId,
    relation: &Value,
    wanted: impl Fn(&Column) -> bool,
    list: &Value,
) -> Result<Value> {
    let id = TableId(relation_id(context, relation)?);
    let Some(table) = context.catalog.table(id) else { return on_table(context, user, relation, list) };
    let columns = table.visible_columns().filter(|column| wanted(column));
    let mut objects: Vec<Object> = columns.map(|column| Object::Column(id, column.number)).collect();
    objects.push(Object::Table(id));
    granted(context, user, &objects, table.owner, list)
}

fn on_column(
    context: &Context,
    user: RoleId,
    relation: &Value,
    column: &Value,
    list: &Value,
) -> Result<Value> {
    let is_it = |at: &Column| match column {
        Value::Text(name) => at.name == name.as_str(),
        number => i64::from(at.place().0) == int(number),
    };
    if let (Some(table), Value::Text(name)) =
        (context.catalog.table(TableId(relation_id(context, relation)?)), column)
        && !table.visible_columns().any(is_it)
    {
        let message = format!("column \"{}\" of relation \"{}\" does not exist", name.as_str(), table.name);
        return Err(Error::new(Code::UndefinedColumn, message));
    }
    on_columns(context, user, relation, is_it, list)
}

fn on_table(context: &Context, user: RoleId, relation: &Value, list: &Value) -> Result<Value> {
    let oid = relation_id(context, relation)?;
    let catalog = &context.catalog;
    let owner =
        match (catalog.table(TableId(oid)), catalog.view(TableId(oid)), catalog.sequence(SequenceId(oid))) {
            (Some(table), ..) => table.owner,
            (_, Some(view), _) => view.owner,
            (.., Some(sequence)) => sequence.owner,
            _ if pg_catalog::relation_name(oid).is_some() => {
                let reads =
                    parse_privileges(list)?.iter().any(|(privilege, _)| *privilege == Privilege::Select);
                return Ok(Value::Bool(reads || is_superuser(context, user)));
            }
            _ => return Ok(Value::Null),
        };
    granted(context, user, &[Object::Table(TableId(oid))], owner, list)
}

fn on_schema(context: &Context, user: RoleId, schema: &Value, list: &Value) -> Result<Value> {
    let found = match schema {
        Value::Text(name) if matches!(name.as_str(), "pg_catalog" | "information_schema") => {
            let usage = parse_privileges(list)?.iter().any(|(privilege, _)| *privilege == Privilege::Usage);
            return Ok(Value::Bool(usage || is_superuser(context, user)));
        }
        Value::Text(name) => match context.catalog.find_schema(context.database, name) {
            Some(schema) => schema,
            None => {
                let message = format!("schema \"{}\" does not exist", name.as_str());
                return Err(Error::new(Code::InvalidSchemaName, message));
            }
        },
        other => match context.catalog.schema(SchemaId(id(other))) {
            Some(schema) => schema,
            None => return Ok(Value::Bool(true)),
        },
    };
    let uses = parse_privileges(list)?.contains(&(Privilege::Usage, false));
    if uses && rights::may_use_schema(&context.catalog, user, found.id) {
        return Ok(Value::Bool(true));
    }
    granted(context, user, &[Object::Schema(found.id)], found.owner, list)
}

fn on_database(context: &Context, user: RoleId, database: &Value, list: &Value) -> Result<Value> {
    let found = match database {
        Value::Text(name) => match context.catalog.find_database(name) {
            Some(database) => database,
            None => {
                let message = format!("database \"{}\" does not exist", name.as_str());
                return Err(Error::new(Code::InvalidCatalogName, message));
            }
        },
        other => match context.catalog.database(DatabaseId(id(other))) {
            Some(database) => database,
            None => return Ok(Value::Null),
        },
    };
    granted(context, user, &[Object::Database(found.id)], found.owner, list)
}

fn sizes(d: &mut Definitions) {
    d.scalar("pg_size_pretty", [Type::Int8], T, |_, a| Ok(Value::text(pretty(int(&a[0]))))).stable();
    // Bytes are counted per table and partition, but not asked for here: null says that the size is not known.
    for name in ["pg_table_size", "pg_relation_size", "pg_total_relation_size", "pg_indexes_size"] {
        d.scalar(name, [Type::Regclass], Type::Int8, |_, _| Ok(Value::Null)).volatile();
    }
    d.scalar("pg_database_size", [O], Type::Int8, |_, _| Ok(Value::Null)).volatile();
    d.scalar("txid_current", (), Type::Int8, |_, _| {
        Err(Error::unsupported(
            "transaction ids do not exist here",
            "Use a row's _revision to order changes.",
        ))
    })
    .volatile();
    d.scalar("pg_jit_available", (), B, |_, _| Ok(Value::Bool(false))).stable();
    d.scalar("pg_cancel_backend", [I], B, |_, _| {
        Err(Error::unsupported(
            "pg_cancel_backend is not supported",
            "Cancel from the client that runs the statement, or close its connection.",
        ))
    })
    .volatile();
}

/// `pg_size_pretty`: bytes up to 10 kB, then halves rounded up in the next unit.
fn pretty(bytes: i64) -> String {
    const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
    if bytes.unsigned_abs() < 10 * 1024 {
        return format!("{bytes} bytes");
    }
    let mut halves = bytes >> 9;
    for (place, unit) in UNITS.iter().enumerate() {
        if halves.unsigned_abs() < 20 * 1024 - 1 || place == UNITS.len() - 1 {
            return format!("{} {unit}", (halves + halves.signum()) / 2);
        }
        halves >>= 10;
    }
    unreachable!("the last unit takes everything")
}
