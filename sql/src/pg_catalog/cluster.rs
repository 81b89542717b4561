//! What belongs to the whole server: databases, roles, schemas, settings, sessions.

use model::{Type, Value, value::Timestamp};

use super::{Relation, flag, int4, namespaces, oid, rows, text};
use crate::context::Context;

const O: Type = Type::Oid;
const N: Type = Type::Name;
const B: Type = Type::Bool;
const I4: Type = Type::Int4;
const T: Type = Type::Text;
const TZ: Type = Type::Timestamptz;
const TEXTS: Type = Type::Array(model::types::Scalar::Text);

const ROLE_COLUMNS: &[(&str, Type)] = &[
    ("rolname", N),
    ("rolsuper", B),
    ("rolinherit", B),
    ("rolcreaterole", B),
    ("rolcreatedb", B),
    ("rolcanlogin", B),
    ("rolreplication", B),
    ("rolconnlimit", I4),
    ("rolpassword", T),
    ("rolvaliduntil", TZ),
    ("rolbypassrls", B),
    ("rolconfig", TEXTS),
    ("oid", O),
];

pub(super) const RELATIONS: &[Relation] = &[
    Relation {
        schema: "pg_catalog",
        name: "pg_namespace",
        oid: 2615,
        columns: &[("oid", O), ("nspname", N), ("nspowner", O), ("nspacl", TEXTS)],
        rows: |context| {
            let all = namespaces(context);
            rows(
                all.into_iter()
                    .map(|(id, name, owner)| vec![oid(id), text(name), oid(owner.0), Value::Null])
                    .collect(),
            )
        },
    },
    Relation {
        schema: "pg_catalog",
        name: "pg_database",
        oid: 1262,
        columns: &[
            ("oid", O),
            ("datname", N),
            ("datdba", O),
            ("encoding", I4),
            ("datlocprovider", Type::Char),
            ("datistemplate", B),
            ("datallowconn", B),
            ("datconnlimit", I4),
            ("datfrozenxid", Type::Xid),
            ("datminmxid", Type::Xid),
            ("dattablespace", O),
            ("datcollate", T),
            ("datctype", T),
            ("daticulocale", T),
            ("datcollversion", T),
            ("datacl", TEXTS),
        ],
        rows: |context| {
            let databases = context.catalog.databases().map(|database| {
                vec![
                    oid(database.id.0),
                    text(&database.name),
                    oid(database.owner.0),
                    int4(UTF8),
                    text("c"),
                    flag(false),
                    flag(true),
                    int4(-1),
                    oid(0),
                    oid(0),
                    oid(1663),
                    text("C"),
                    text("C"),
                    Value::Null,
                    Value::Null,
                    Value::Null,
                ]
            });
            rows(databases.collect())
        },
    },
    Relation {
        schema: "pg_catalog",
        name: "pg_roles",
        oid: 12_001,
        columns: ROLE_COLUMNS,
        rows: |context| rows(roles(context)),
    },
    Relation {
        schema: "pg_catalog",
        name: "pg_authid",
        oid: 1260,
        columns: &[
            ("oid", O),
            ("rolname", N),
            ("rolsuper", B),
            ("rolinherit", B),
            ("rolcreaterole", B),
            ("rolcreatedb", B),
            ("rolcanlogin", B),
            ("rolreplication", B),
            ("rolbypassrls", B),
            ("rolconnlimit", I4),
            ("rolpassword", T),
            ("rolvaliduntil", TZ),
        ],
        rows: |context| {
            // The verifier never leaves the server, not even for a superuser.
            let of = |role: &model::access::Role| {
                vec![
                    oid(role.id.0),
                    text(&role.name),
                    flag(role.superuser),
                    flag(role.inherit),
                    flag(role.create_role),
                    flag(role.create_database),
                    flag(role.login),
                    flag(false),
                    flag(role.superuser),
                    connections(role),
                    text("********"),
                    Value::Null,
                ]
            };
            rows(context.catalog.roles().map(|role| of(role)).collect())
        },
    },
    Relation {
        schema: "pg_catalog",
        name: "pg_user",
        oid: 12_002,
        columns: &[
            ("usename", N),
            ("usesysid", O),
            ("usecreatedb", B),
            ("usesuper", B),
            ("userepl", B),
            ("usebypassrls", B),
            ("passwd", T),
            ("valuntil", TZ),
            ("useconfig", TEXTS),
        ],
        rows: |context| {
            let users = context.catalog.roles().filter(|role| role.login).map(|role| {
                vec![
                    text(&role.name),
                    oid(role.id.0),
                    flag(role.create_database),
                    flag(role.superuser),
                    flag(false),
                    flag(role.superuser),
                    text("********"),
                    Value::Null,
                    Value::Null,
                ]
            });
            rows(users.collect())
        },
    },
    Relation {
        schema: "pg_catalog",
        name: "pg_auth_members",
        oid: 1261,
        columns: &[("roleid", O), ("member", O), ("grantor", O), ("admin_option", B)],
        rows: |context| {
            let members = context.catalog.roles().flat_map(|role| {
                let of = role.member_of.iter();
                of.map(|group| vec![oid(group.0), oid(role.id.0), oid(super::OWNER.0), flag(false)])
                    .collect::<Vec<_>>()
            });
            rows(members.collect())
        },
    },
    Relation {
        schema: "pg_catalog",
        name: "pg_tablespace",
        oid: 1213,
        columns: &[("oid", O), ("spcname", N), ("spcowner", O), ("spcacl", TEXTS), ("spcoptions", TEXTS)],
        rows: |_| {
            let space =
                |id, name: &str| vec![oid(id), text(name), oid(super::OWNER.0), Value::Null, Value::Null];
            rows(vec![space(1663, "pg_default"), space(1664, "pg_global")])
        },
    },
    Relation {
        schema: "pg_catalog",
        name: "pg_settings",
        oid: 12_003,
        columns: &[
            ("name", T),
            ("setting", T),
            ("unit", T),
            ("category", T),
            ("short_desc", T),
            ("extra_desc", T),
            ("context", T),
            ("vartype", T),
            ("source", T),
            ("min_val", T),
            ("max_val", T),
            ("enumvals", TEXTS),
            ("boot_val", T),
            ("reset_val", T),
            ("sourcefile", T),
            ("sourceline", I4),
            ("pending_restart", B),
        ],
        rows: |context| {
            let settings = context.settings.all().into_iter().map(|setting| {
                let changed = setting.value != setting.reset;
                vec![
                    text(&setting.name),
                    text(&setting.value),
                    Value::Null,
                    text("Keystead"),
                    text(&setting.description),
                    Value::Null,
                    text(if setting.settable { "user" } else { "internal" }),
                    text("string"),
                    text(if changed { "session" } else { "default" }),
                    Value::Null,
                    Value::Null,
                    Value::Null,
                    text(&setting.reset),
                    text(&setting.reset),
                    Value::Null,
                    Value::Null,
                    flag(false),
                ]
            });
            rows(settings.collect())
        },
    },
    Relation {
        schema: "pg_catalog",
        name: "pg_stat_activity",
        oid: 12_004,
        columns: &[
            ("datid", O),
            ("datname", N),
            ("pid", I4),
            ("leader_pid", I4),
            ("usesysid", O),
            ("usename", N),
            ("application_name", T),
            ("client_addr", T),
            ("client_hostname", T),
            ("client_port", I4),
            ("backend_start", TZ),
            ("xact_start", TZ),
            ("query_start", TZ),
            ("state_change", TZ),
            ("wait_event_type", T),
            ("wait_event", T),
            ("state", T),
            ("backend_xid", Type::Xid),
            ("backend_xmin", Type::Xid),
            ("query_id", Type::Int8),
            ("query", T),
            ("backend_type", T),
        ],
        rows: |context| rows(activity(context)),
    },
    Relation {
        schema: "pg_catalog",
        name: "pg_extension",
        oid: 3079,
        columns: &[
            ("oid", O),
            ("extname", N),
            ("extowner", O),
            ("extnamespace", O),
            ("extrelocatable", B),
            ("extversion", T),
            ("extconfig", Type::Array(model::types::Scalar::Oid)),
            ("extcondition", TEXTS),
        ],
        rows: |_| rows(Vec::new()),
    },
];

/// `pg_database.encoding` of UTF-8.
const UTF8: i32 = 6;

fn connections(role: &model::access::Role) -> Value {
    int4(role.connections_max.map_or(-1, |max| i32::try_from(max).unwrap_or(i32::MAX)))
}

fn roles(context: &Context) -> Vec<Vec<Value>> {
    let row = |role: &model::access::Role| {
        vec![
            text(&role.name),
            flag(role.superuser),
            flag(role.inherit),
            flag(role.create_role),
            flag(role.create_database),
            flag(role.login),
            flag(false),
            connections(role),
            text("********"),
            Value::Null,
            flag(role.superuser),
            Value::Null,
            oid(role.id.0),
        ]
    };
    context.catalog.roles().map(|role| row(role)).collect()
}

/// Other users' statements are shown to superusers only.
fn activity(context: &Context) -> Vec<Vec<Value>> {
    let viewer = context.current_user;
    let superuser = context.catalog.role(viewer).is_some_and(|role| role.superuser);
    let when = |at: Option<Timestamp>| at.map_or(Value::Null, Value::Timestamptz);
    let row = |at: crate::context::Activity| {
        let shown = superuser || at.role == viewer;
        let hide = |value: Value| if shown { value } else { Value::Null };
        let database = context.catalog.database(at.database);
        let role = context.catalog.role(at.role);
        vec![
            oid(at.database.0),
            database.map_or(Value::Null, |database| text(&database.name)),
            int4(at.process_id),
            Value::Null,
            oid(at.role.0),
            role.map_or(Value::Null, |role| text(&role.name)),
            text(&at.application_name),
            hide(at.client_address.map_or(Value::Null, text)),
            Value::Null,
            Value::Null,
            hide(when(Some(at.backend_start))),
            hide(when(at.transaction_start)),
            hide(when(at.query_start)),
            hide(when(at.state_change)),
            Value::Null,
            Value::Null,
            hide(text(at.state)),
            Value::Null,
            Value::Null,
            Value::Null,
            if shown { text(&at.query) } else { text("<insufficient privilege>") },
            text("client backend"),
        ]
    };
    context.settings.activity().into_iter().map(row).collect()
}
