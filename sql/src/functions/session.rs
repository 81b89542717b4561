//! What a session knows: users, settings, sequences, identity, the server's name.

use std::{sync::Arc, time::Duration};

use model::{
    Code, Error, Result, Type, Value,
    access::Privilege,
    catalog::Relation,
    id::SequenceId,
    types::Scalar as Element,
    value::{Array, Timestamp},
};

use super::{Accepts, Definitions, boolean, float, int, text};
use crate::{
    context::{Context, NextValue, reservation},
    rights,
};

const T: Type = Type::Text;
const N: Type = Type::Name;

/// What `server_version` says: the PostgreSQL whose behaviour is the oracle.
pub(crate) const SERVER_VERSION: &str = "15.18";

pub(super) fn define(d: &mut Definitions) {
    names(d);
    settings(d);
    sequences(d);
    d.scalar("version", (), T, |_, _| {
        let ours = env!("CARGO_PKG_VERSION");
        Ok(Value::text(format!(
            "PostgreSQL {SERVER_VERSION} (Keystead {ours}) on {}, 64-bit",
            std::env::consts::ARCH
        )))
    })
    .stable();
    d.scalar("pg_backend_pid", (), Type::Int4, |context, _| Ok(Value::Int4(context.process_id))).stable();
    d.scalar("pg_is_in_recovery", (), Type::Bool, |_, _| Ok(Value::Bool(false))).volatile();
    d.scalar("gen_random_uuid", (), Type::Uuid, |context, _| {
        let bits = u128::from((context.random)()) << 64 | u128::from((context.random)());
        // Version 4, variant 1 (RFC 9562 §5.4).
        let uuid = bits & !(0xf << 76) & !(0x3 << 62) | 0x4 << 76 | 0x2 << 62;
        Ok(Value::Uuid(uuid.to_be_bytes()))
    })
    .volatile();
    d.scalar("pg_typeof", [Accepts::Any], Type::Regtype, |_, a| {
        // The binder replaces this call by a constant of the argument's type; a call that is left is of an unknown one.
        let data_type = a[0].natural_type().unwrap_or(Type::Unknown);
        Ok(Value::Oid(data_type.oid()))
    })
    .lenient()
    .stable();
    for name in ["pg_advisory_unlock_all", "pg_notification_queue_usage_reset"] {
        d.scalar(name, (), Type::Void, |_, _| Ok(Value::text(""))).volatile();
    }
    sleep(d);
}

fn sleep(d: &mut Definitions) {
    d.scalar("pg_sleep", [Type::Float8], Type::Void, |context, a| pause(context, float(&a[0]))).volatile();
    d.scalar("pg_sleep_for", [Type::Interval], Type::Void, |context, a| {
        let Value::Interval(length) = &a[0] else { return Ok(Value::Null) };
        let until = context.clock.wall().add_interval_in(*length, &context.text.zone)?;
        pause_until(context, until)
    })
    .volatile();
    d.scalar("pg_sleep_until", [Type::Timestamptz], Type::Void, |context, a| {
        let Value::Timestamptz(until) = &a[0] else { return Ok(Value::Null) };
        pause_until(context, *until)
    })
    .volatile();
}

fn pause_until(context: &mut Context, until: Timestamp) -> Result<Value> {
    let left = until.micros().saturating_sub(context.clock.wall().micros());
    pause(context, left as f64 / 1e6)
}

/// Waits so many seconds, a year at most.
fn pause(context: &mut Context, seconds: f64) -> Result<Value> {
    const SECONDS_MAX: f64 = 365.0 * 86_400.0;
    let seconds = if seconds > 0.0 { seconds.min(SECONDS_MAX) } else { 0.0 };
    context.pauses.meet(Duration::from_secs_f64(seconds))?;
    Ok(Value::text(""))
}

fn names(d: &mut Definitions) {
    for name in ["current_user", "user", "current_role"] {
        d.scalar(name, (), N, |context, _| Ok(role_name(context, context.current_user))).stable();
    }
    d.scalar("session_user", (), N, |context, _| Ok(role_name(context, context.session_user))).stable();
    for name in ["current_database", "current_catalog"] {
        d.scalar(name, (), N, |context, _| {
            let database = context.catalog.database(context.database);
            Ok(database.map_or(Value::Null, |database| Value::text(database.name.as_str())))
        })
        .stable();
    }
    d.scalar("current_schema", (), N, |context, _| {
        let first = context.search_path.iter().find(|name| name.as_str() != "pg_catalog");
        Ok(first.map_or(Value::Null, |name| Value::text(name.as_str())))
    })
    .stable();
    d.scalar("current_schemas", [Type::Bool], Type::Array(Element::Name), |context, a| {
        let mut path: Vec<Value> = Vec::new();
        if boolean(&a[0]) && !context.search_path.iter().any(|name| name == "pg_catalog") {
            path.push(Value::text("pg_catalog"));
        }
        path.extend(context.search_path.iter().map(|name| Value::text(name.as_str())));
        Ok(Value::Array(Arc::new(Array::from_values(Element::Name, path))))
    })
    .stable();
}

fn role_name(context: &Context, role: model::id::RoleId) -> Value {
    context.catalog.role(role).map_or(Value::Null, |role| Value::text(role.name.as_str()))
}

fn settings(d: &mut Definitions) {
    d.scalar("current_setting", [T, Type::Bool], T, |context, a| {
        if a[0].is_null() {
            return Ok(Value::Null);
        }
        let name = text(&a[0]);
        match context.settings.get(name) {
            Some(value) => Ok(Value::text(value)),
            None if a.get(1).and_then(Value::as_bool) == Some(true) => Ok(Value::Null),
            None => {
                let message = format!("unrecognized configuration parameter \"{name}\"");
                Err(Error::new(Code::UndefinedObject, message))
            }
        }
    })
    .optional(1)
    .lenient()
    .stable();
    d.scalar("set_config", [T, T, Type::Bool], T, |context, a| {
        let Some(name) = a[0].as_str() else {
            return Err(Error::new(Code::NullValueNotAllowed, "SET requires parameter name"));
        };
        let value = a[1].as_str().unwrap_or_default();
        let local = a[2].as_bool().unwrap_or(false);
        Ok(Value::text(context.settings.set(name, value, local)?))
    })
    .lenient()
    .volatile();
}

fn sequences(d: &mut Definitions) {
    d.scalar("nextval", [Type::Regclass], Type::Int8, |context, a| {
        let sequence = sequence_of(context, &a[0])?;
        if a.len() == 1 {
            check_right(context, sequence, &[Privilege::Usage, Privilege::Update])?;
        }
        number(context.sequences.next(sequence)?)
    })
    .volatile();
    d.scalar("currval", [Type::Regclass], Type::Int8, |context, a| {
        let sequence = sequence_of(context, &a[0])?;
        check_right(context, sequence, &READS_SEQUENCE)?;
        Ok(Value::Int8(context.sequences.current(sequence)?))
    })
    .volatile();
    d.scalar("lastval", (), Type::Int8, |context, _| {
        let (sequence, number) = context.sequences.last()?;
        check_right(context, sequence, &READS_SEQUENCE)?;
        Ok(Value::Int8(number))
    })
    .volatile();
    d.scalar("setval", [Type::Regclass, Type::Int8, Type::Bool], Type::Int8, |context, a| {
        let sequence = sequence_of(context, &a[0])?;
        check_right(context, sequence, &[Privilege::Update])?;
        let called = a.get(2).is_none_or(boolean);
        number(context.sequences.set(sequence, int(&a[1]), called)?)
    })
    .optional(1)
    .volatile();
}

/// Either of these lets a role see where a sequence stands.
pub(crate) const READS_SEQUENCE: [Privilege; 2] = [Privilege::Usage, Privilege::Select];

/// `42501` without any of these rights.
fn check_right(context: &Context, sequence: SequenceId, any_of: &[Privilege]) -> Result<()> {
    if rights::may_use_sequence(&context.catalog, context.current_user, sequence, any_of) {
        return Ok(());
    }
    let name = context.catalog.sequence(sequence).map_or("", |sequence| sequence.name.as_str());
    Err(Error::new(Code::InsufficientPrivilege, format!("permission denied for sequence {name}")))
}

fn number(answer: NextValue) -> Result<Value> {
    match answer {
        NextValue::Number(number) => Ok(Value::Int8(number)),
        NextValue::Reserve => Err(reservation()),
    }
}

fn sequence_of(context: &Context, value: &Value) -> Result<SequenceId> {
    let oid = u32::try_from(int(value)).unwrap_or(0);
    let sequence = SequenceId(oid);
    if context.catalog.sequence(sequence).is_some() {
        return Ok(sequence);
    }
    let name = super::cast::relation_name(context, oid);
    Err(Error::new(Code::WrongObjectType, format!("\"{name}\" is not a sequence")))
}

/// The relation a name means: `schema.name`, or `name` on the search path; parts may be quoted.
pub(crate) fn find_relation(context: &Context, name: &str) -> Result<Option<(String, Relation)>> {
    let parts = split_identifier(name)?;
    let (schemas, relation): (Vec<String>, &String) = match parts.as_slice() {
        [relation] => (context.search_path.to_vec(), relation),
        [schema, relation] => (vec![schema.clone()], relation),
        [_, schema, relation] => (vec![schema.clone()], relation),
        _ => return Err(Error::new(Code::InvalidName, "invalid name syntax")),
    };
    if let (Some(session), [_]) | (Some(session), ["pg_temp", _]) =
        (context.temporary, &parts.iter().map(String::as_str).collect::<Vec<_>>()[..])
        && let Some(found) = context.catalog.find_temporary(session, relation)
    {
        return Ok(Some(("pg_temp".to_owned(), found)));
    }
    let qualified = parts.len() > 1;
    for schema in schemas {
        let Some(found) = context.catalog.find_schema(context.database, &schema) else { continue };
        if !rights::may_use_schema(&context.catalog, context.current_user, found.id) {
            if qualified {
                return Err(rights::no_schema(&schema));
            }
            continue;
        }
        if let Some(relation) = context.catalog.find_relation(found.id, relation) {
            return Ok(Some((schema, relation)));
        }
    }
    Ok(None)
}

/// The parts of a dotted name, folded to lower case where they are not quoted.
pub(crate) fn split_identifier(name: &str) -> Result<Vec<String>> {
    let invalid = || Error::new(Code::InvalidName, "invalid name syntax");
    let mut parts = Vec::new();
    let mut rest = name.trim();
    loop {
        let part;
        if let Some(quoted) = rest.strip_prefix('"') {
            let mut text = String::new();
            let mut letters = quoted.char_indices().peekable();
            let end = loop {
                match letters.next().ok_or_else(invalid)? {
                    (_, '"') if letters.peek().is_some_and(|(_, next)| *next == '"') => {
                        letters.next();
                        text.push('"');
                    }
                    (at, '"') => break at + 1,
                    (_, letter) => text.push(letter),
                }
            };
            part = text;
            rest = &quoted[end..];
        } else {
            let end = rest.find('.').unwrap_or(rest.len());
            part = rest[..end].trim().to_lowercase();
            rest = &rest[end..];
        }
        if part.is_empty() {
            return Err(invalid());
        }
        parts.push(part);
        rest = rest.trim_start();
        match rest.strip_prefix('.') {
            Some(more) => rest = more.trim_start(),
            None if rest.is_empty() => return Ok(parts),
            None => return Err(invalid()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dotted_name_folds_what_is_not_quoted() {
        assert_eq!(split_identifier(r#"Public."My ""T""""#).expect("valid"), ["public", "My \"T\""]);
        assert_eq!(split_identifier("t").expect("valid"), ["t"]);
        for bad in ["", ".", "a.", "\"a", "\"a\"b", "a..b"] {
            assert!(split_identifier(bad).is_err(), "{bad}");
        }
    }
}
