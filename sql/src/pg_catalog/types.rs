//! Types, functions, operators, casts, access methods, collations: what `\dT`, `\df`, `\do` and drivers' type loaders read.
//!
//! OIDs of built-in types are PostgreSQL's. Functions and operators have none in our table; they get a stable number made of
//! their signature.

use model::{
    Type, Value,
    types::{Scalar as Element, TypeCategory},
};

use super::{OWNER, PG_CATALOG, Relation, derived_oid, flag, int2, int4, oid, rows, text, vector};
use crate::functions::{self, Accepts, Body, CastContext, Function, Gives, Volatility};

const O: Type = Type::Oid;
const N: Type = Type::Name;
const C: Type = Type::Char;
const B: Type = Type::Bool;
const I2: Type = Type::Int2;
const I4: Type = Type::Int4;
const P: Type = Type::Regproc;
const TEXTS: Type = Type::Array(Element::Text);

pub(super) const RELATIONS: &[Relation] = &[
    Relation {
        schema: "pg_catalog",
        name: "pg_type",
        oid: 1247,
        columns: &[
            ("oid", O),
            ("typname", N),
            ("typnamespace", O),
            ("typowner", O),
            ("typlen", I2),
            ("typbyval", B),
            ("typtype", C),
            ("typcategory", C),
            ("typispreferred", B),
            ("typisdefined", B),
            ("typdelim", C),
            ("typrelid", O),
            ("typsubscript", P),
            ("typelem", O),
            ("typarray", O),
            ("typinput", P),
            ("typoutput", P),
            ("typreceive", P),
            ("typsend", P),
            ("typmodin", P),
            ("typmodout", P),
            ("typanalyze", P),
            ("typalign", C),
            ("typstorage", C),
            ("typnotnull", B),
            ("typbasetype", O),
            ("typtypmod", I4),
            ("typndims", I4),
            ("typcollation", O),
            ("typdefaultbin", Type::PgNodeTree),
            ("typdefault", Type::Text),
            ("typacl", TEXTS),
        ],
        rows: |_| rows(Type::all().map(data_type).collect()),
    },
    Relation {
        schema: "pg_catalog",
        name: "pg_proc",
        oid: 1255,
        columns: &[
            ("oid", O),
            ("proname", N),
            ("pronamespace", O),
            ("proowner", O),
            ("prolang", O),
            ("procost", Type::Float4),
            ("prorows", Type::Float4),
            ("provariadic", O),
            ("prosupport", P),
            ("prokind", C),
            ("prosecdef", B),
            ("proleakproof", B),
            ("proisstrict", B),
            ("proretset", B),
            ("provolatile", C),
            ("proparallel", C),
            ("pronargs", I2),
            ("pronargdefaults", I2),
            ("prorettype", O),
            ("proargtypes", Type::OidVector),
            ("proallargtypes", Type::Array(Element::Oid)),
            ("proargmodes", TEXTS),
            ("proargnames", TEXTS),
            ("proargdefaults", Type::PgNodeTree),
            ("protrftypes", Type::Array(Element::Oid)),
            ("prosrc", Type::Text),
            ("probin", Type::Text),
            ("prosqlbody", Type::PgNodeTree),
            ("proconfig", TEXTS),
            ("proacl", TEXTS),
        ],
        rows: |_| rows(functions::functions().map(function).collect()),
    },
    Relation {
        schema: "pg_catalog",
        name: "pg_operator",
        oid: 2617,
        columns: &[
            ("oid", O),
            ("oprname", N),
            ("oprnamespace", O),
            ("oprowner", O),
            ("oprkind", C),
            ("oprcanmerge", B),
            ("oprcanhash", B),
            ("oprleft", O),
            ("oprright", O),
            ("oprresult", O),
            ("oprcom", O),
            ("oprnegate", O),
            ("oprcode", P),
            ("oprrest", P),
            ("oprjoin", P),
        ],
        rows: |_| {
            let operators = functions::operators().map(|operator| {
                let left = operator.left.map_or(0, accepted);
                let right = accepted(operator.right);
                vec![
                    oid(derived_oid(left, operator.symbol, &right.to_string())),
                    text(operator.symbol),
                    oid(PG_CATALOG),
                    oid(OWNER.0),
                    text(if operator.left.is_some() { "b" } else { "l" }),
                    flag(operator.symbol == "="),
                    flag(operator.symbol == "="),
                    oid(left),
                    oid(right),
                    oid(given(operator.gives)),
                    oid(0),
                    oid(0),
                    oid(0),
                    oid(0),
                    oid(0),
                ]
            });
            rows(operators.collect())
        },
    },
    Relation {
        schema: "pg_catalog",
        name: "pg_cast",
        oid: 2605,
        columns: &[
            ("oid", O),
            ("castsource", O),
            ("casttarget", O),
            ("castfunc", O),
            ("castcontext", C),
            ("castmethod", C),
        ],
        rows: |_| {
            let mut out = Vec::new();
            for from in Type::all().filter(|at| !at.is_array()) {
                for to in Type::all().filter(|at| !at.is_array() && *at != from) {
                    let listed = from != Type::Unknown && !(from.is_text() ^ to.is_text());
                    let Some(context) = functions::cast::find(from, to).filter(|_| listed) else { continue };
                    let letter = match context {
                        CastContext::Implicit => "i",
                        CastContext::Assignment => "a",
                        CastContext::Explicit => "e",
                    };
                    let id = derived_oid(from.oid(), "cast", &to.oid().to_string());
                    out.push(vec![oid(id), oid(from.oid()), oid(to.oid()), oid(0), text(letter), text("f")]);
                }
            }
            rows(out)
        },
    },
    Relation {
        schema: "pg_catalog",
        name: "pg_am",
        oid: 2601,
        columns: &[("oid", O), ("amname", N), ("amhandler", P), ("amtype", C)],
        rows: |_| {
            rows(vec![
                vec![oid(2), text("heap"), oid(3), text("t")],
                vec![oid(403), text("btree"), oid(330), text("i")],
            ])
        },
    },
    Relation {
        schema: "pg_catalog",
        name: "pg_collation",
        oid: 3456,
        columns: &[
            ("oid", O),
            ("collname", N),
            ("collnamespace", O),
            ("collowner", O),
            ("collprovider", C),
            ("collisdeterministic", B),
            ("collencoding", I4),
            ("collcollate", Type::Text),
            ("collctype", Type::Text),
            ("colliculocale", Type::Text),
            ("collversion", Type::Text),
        ],
        rows: |_| {
            let collation = |id, name: &str, provider: &str| {
                let locale = if provider == "d" { Value::Null } else { text("C") };
                vec![
                    oid(id),
                    text(name),
                    oid(PG_CATALOG),
                    oid(OWNER.0),
                    text(provider),
                    flag(true),
                    int4(-1),
                    locale.clone(),
                    locale,
                    Value::Null,
                    Value::Null,
                ]
            };
            rows(vec![collation(100, "default", "d"), collation(950, "C", "c"), collation(951, "POSIX", "c")])
        },
    },
    Relation {
        schema: "pg_catalog",
        name: "pg_language",
        oid: 2612,
        columns: &[
            ("oid", O),
            ("lanname", N),
            ("lanowner", O),
            ("lanispl", B),
            ("lanpltrusted", B),
            ("lanplcallfoid", O),
            ("laninline", O),
            ("lanvalidator", O),
            ("lanacl", TEXTS),
        ],
        rows: |_| {
            let language = |id, name: &str| {
                vec![
                    oid(id),
                    text(name),
                    oid(OWNER.0),
                    flag(false),
                    flag(true),
                    oid(0),
                    oid(0),
                    oid(0),
                    Value::Null,
                ]
            };
            rows(vec![language(12, "internal"), language(14, "sql")])
        },
    },
    Relation {
        schema: "pg_catalog",
        name: "pg_opclass",
        oid: 2616,
        columns: &[
            ("oid", O),
            ("opcmethod", O),
            ("opcname", N),
            ("opcnamespace", O),
            ("opcowner", O),
            ("opcfamily", O),
            ("opcintype", O),
            ("opcdefault", B),
            ("opckeytype", O),
        ],
        rows: |_| {
            let class = |of: Type| {
                vec![
                    oid(operator_class_of(of)),
                    oid(403),
                    text(format!("{}_ops", of.catalog_name())),
                    oid(PG_CATALOG),
                    oid(OWNER.0),
                    oid(0),
                    oid(of.oid()),
                    flag(true),
                    oid(0),
                ]
            };
            rows(Type::all().filter(|at| !at.is_array()).map(class).collect())
        },
    },
];

/// `pg_attribute.attcollation`: texts sort by the default collation, which is C here; names by C.
pub(super) fn collation_of(of: Type) -> u32 {
    match of {
        Type::Name => 950,
        Type::Text | Type::Varchar | Type::Bpchar => 100,
        Type::Array(element) => collation_of(element.as_type()),
        _ => 0,
    }
}

pub(super) fn operator_class_of(of: Type) -> u32 {
    derived_oid(of.oid(), "class", "btree")
}

fn data_type(of: Type) -> Vec<Value> {
    let length = of.len();
    let (align, storage) = match length {
        1 => ("c", "p"),
        2 => ("s", "p"),
        4 => ("i", "p"),
        8 | 16 | 64 => ("d", "p"),
        _ => ("i", "x"),
    };
    // Clients tell arrays by their input function and vectors by their subscript handler.
    let input = if of.is_array() { 750 } else { derived_oid(of.oid(), "function", "in") };
    let function = |name: &str| oid(derived_oid(of.oid(), "function", name));
    let kind = if of.category() == TypeCategory::Pseudo { "p" } else { "b" };
    let letter = of.category().letter().to_string();
    vec![
        oid(of.oid()),
        text(of.catalog_name()),
        oid(PG_CATALOG),
        oid(OWNER.0),
        int2(length),
        flag(matches!(length, 1 | 2 | 4 | 8)),
        text(kind),
        text(letter),
        flag(of.is_preferred()),
        flag(true),
        text(","),
        oid(0),
        oid(if of.is_array() { 6179 } else { 0 }),
        oid(of.element().map_or(0, Type::oid)),
        oid(of.array().map_or(0, Type::oid)),
        oid(input),
        function("out"),
        function("recv"),
        function("send"),
        oid(0),
        oid(0),
        oid(0),
        text(align),
        text(storage),
        flag(false),
        oid(0),
        int4(-1),
        int4(0),
        oid(collation_of(of)),
        Value::Null,
        Value::Null,
        Value::Null,
    ]
}

/// OIDs of the polymorphic pseudo types.
fn accepted(accepts: Accepts) -> u32 {
    match accepts {
        Accepts::Exact(of) => of.oid(),
        Accepts::Any => 2276,
        Accepts::Element => 2283,
        Accepts::Array => 2277,
        Accepts::NonArray => 2776,
    }
}

fn given(gives: Gives) -> u32 {
    match gives {
        Gives::Exact(of) => of.oid(),
        Gives::Element => 2283,
        Gives::Array => 2277,
    }
}

/// The OID a function of our table is known by.
pub(crate) fn function_oid(function: &Function) -> u32 {
    let signature: Vec<String> = function.parameters.iter().map(|at| accepted(*at).to_string()).collect();
    derived_oid(0, function.name, &signature.join(","))
}

/// The function known by an OID.
pub(crate) fn find_function(oid: u32) -> Option<&'static Function> {
    functions::functions().find(|function| function_oid(function) == oid)
}

fn function(function: &'static Function) -> Vec<Value> {
    let kind = match function.body {
        Body::Scalar(_) | Body::Set(..) => "f",
        Body::Aggregate(_) => "a",
        Body::Window(_) => "w",
    };
    let volatility = match function.volatility {
        Volatility::Immutable => "i",
        Volatility::Stable => "s",
        Volatility::Volatile => "v",
    };
    let set = matches!(function.body, Body::Set(..));
    let parameters = function.parameters.iter().map(|at| oid(accepted(*at))).collect();
    vec![
        oid(function_oid(function)),
        text(function.name),
        oid(PG_CATALOG),
        oid(OWNER.0),
        oid(12),
        Value::Float4(1.0),
        Value::Float4(if set { 1000.0 } else { 0.0 }),
        oid(if function.variadic { 2276 } else { 0 }),
        oid(0),
        text(kind),
        flag(false),
        flag(false),
        flag(function.strict),
        flag(set),
        text(volatility),
        text("s"),
        int2(function.parameters.len() as i16),
        int2(function.optional as i16),
        oid(given(function.gives)),
        vector(Element::Oid, parameters),
        Value::Null,
        Value::Null,
        Value::Null,
        Value::Null,
        Value::Null,
        text(function.name),
        Value::Null,
        Value::Null,
        Value::Null,
        Value::Null,
    ]
}

/// How `pg_get_function_arguments` writes a function's parameters.
pub(crate) fn arguments(function: &Function) -> String {
    let name = |accepts: &Accepts| match accepts {
        Accepts::Exact(of) => of.display_name().to_owned() + if of.is_array() { "[]" } else { "" },
        Accepts::Any => "\"any\"".to_owned(),
        Accepts::Element => "anyelement".to_owned(),
        Accepts::Array => "anyarray".to_owned(),
        Accepts::NonArray => "anynonarray".to_owned(),
    };
    let names: Vec<String> = function.parameters.iter().map(name).collect();
    names.join(", ")
}

/// How `pg_get_function_result` writes a function's result.
pub(crate) fn result(function: &Function) -> String {
    let name = match function.gives {
        Gives::Exact(of) => of.display_name().to_owned() + if of.is_array() { "[]" } else { "" },
        Gives::Element => "anyelement".to_owned(),
        Gives::Array => "anyarray".to_owned(),
    };
    if matches!(function.body, Body::Set(..)) { format!("SETOF {name}") } else { name }
}
