//! Casts: which exist, when they apply by themselves, and what they do.
//!
//! Invariants:
//! - [`find`] is PostgreSQL's `pg_cast` with its I/O conversions: to a text type in an assignment, from one when written.
//! - [`cast`] is called only for pairs that [`find`] knows; it also applies the target's modifier, truncating where an
//!   explicit cast does and refusing where an assignment does (`22001`, `22003`).
//! - An array is cast element by element, in the context of its elements.

use std::sync::Arc;

use model::{
    Code, Error, Result, Type, Value,
    catalog::Relation,
    types::Typmod,
    value::{Array, Numeric, Text, ValueError, datetime, json::Node, trim_blanks},
};

use super::{CastContext, Definitions, boolean, float, int, numeric, text};
use crate::context::Context;

/// When a cast between two types applies, if there is one.
pub fn find(from: Type, to: Type) -> Option<CastContext> {
    use CastContext::{Assignment, Explicit, Implicit};
    use Type::{
        Bool, Bpchar, Char, Date, Float4, Float8, Int2, Int4, Int8, Interval, Json, Jsonb, Name, Numeric,
        Oid, Regclass, Regproc, Regtype, Text, Time, Timestamp, Timestamptz, Unknown, Varchar,
    };
    if from == to || from == Unknown {
        return Some(Implicit);
    }
    if let (Type::Array(from), Type::Array(to)) = (from, to) {
        return find(from.as_type(), to.as_type());
    }
    let rank = |data_type| match data_type {
        Int2 => Some(1),
        Int4 => Some(2),
        Int8 => Some(3),
        Numeric => Some(4),
        Float4 => Some(5),
        Float8 => Some(6),
        _ => None,
    };
    if let (Some(low), Some(high)) = (rank(from), rank(to)) {
        return Some(if low < high { Implicit } else { Assignment });
    }
    let listed = match (from, to) {
        (Text | Varchar | Bpchar, Text | Varchar | Bpchar | Name) => Some(Implicit),
        (Name, Text) => Some(Implicit),
        (Name, Varchar | Bpchar) => Some(Assignment),
        (Char, Text) => Some(Implicit),
        (Char, Varchar | Bpchar) => Some(Assignment),
        (Text | Varchar | Bpchar, Char) => Some(Assignment),
        (Char, Int4) | (Int4, Char) => Some(Explicit),
        (Bool, Int4) | (Int4, Bool) => Some(Explicit),
        (Bool, Text | Varchar | Bpchar) => Some(Assignment),
        (Date, Timestamp | Timestamptz) | (Timestamp, Timestamptz) | (Time, Interval) => Some(Implicit),
        (Timestamp, Date | Time) | (Timestamptz, Date | Time | Timestamp) | (Interval, Time) => {
            Some(Assignment)
        }
        (Json, Jsonb) | (Jsonb, Json) => Some(Assignment),
        (Jsonb, Bool | Int2 | Int4 | Int8 | Numeric | Float4 | Float8) => Some(Explicit),
        (Int2 | Int4 | Int8, to) if to.is_oid() && to != Type::Xid && to != Type::Cid => Some(Implicit),
        (from, Int4 | Int8) if from.is_oid() && from != Type::Xid && from != Type::Cid => Some(Assignment),
        (Oid, Regclass | Regproc | Regtype | Type::Regnamespace | Type::Regrole) => Some(Implicit),
        (Regclass | Regproc | Regtype | Type::Regnamespace | Type::Regrole, Oid) => Some(Implicit),
        (Text | Varchar, Regclass) => Some(Implicit),
        (Type::PgNodeTree, Text) => Some(Implicit),
        (Type::Int2Vector, Type::Array(model::types::Scalar::Int2)) => Some(Implicit),
        (Type::OidVector, Type::Array(model::types::Scalar::Oid)) => Some(Implicit),
        _ => None,
    };
    // I/O conversions: every type has a text form.
    listed.or_else(|| match (from, to) {
        (_, to) if to.is_text() => Some(Assignment),
        (from, _) if from.is_text() => Some(Explicit),
        _ => None,
    })
}

/// Converts a value. Null stays null.
pub fn cast(
    context: &mut Context,
    value: &Value,
    from: Type,
    to: Type,
    typmod: Typmod,
    explicit: bool,
) -> Result<Value> {
    if value.is_null() {
        return Ok(Value::Null);
    }
    if let (Value::Array(array), Type::Array(element)) = (value, to) {
        let of = array.element().as_type();
        let values: Result<Vec<Value>> = array
            .values()
            .iter()
            .map(|value| cast(context, value, of, element.as_type(), typmod, explicit))
            .collect();
        return Ok(Value::Array(Arc::new(Array::new(element, array.dimensions().to_vec(), values?)?)));
    }
    let converted = convert(context, value, from, to, typmod)?;
    if typmod.is_none() {
        return Ok(converted);
    }
    super::io::fit(converted, to, typmod, explicit)
}

fn convert(context: &mut Context, value: &Value, from: Type, to: Type, typmod: Typmod) -> Result<Value> {
    if from == to {
        return Ok(value.clone());
    }
    match to {
        Type::Int2 => match integral(value, "smallint")? {
            Some(number) => {
                Ok(Value::Int2(number.try_into().map_err(|_| ValueError::out_of_range("smallint"))?))
            }
            None => parse(context, value, to, typmod),
        },
        Type::Int4 => match (value, integral(value, "integer")?) {
            (_, Some(number)) => {
                Ok(Value::Int4(number.try_into().map_err(|_| ValueError::out_of_range("integer"))?))
            }
            (Value::Bool(truth), None) => Ok(Value::Int4(i32::from(*truth))),
            (Value::Text(letter), None) if from == Type::Char => {
                Ok(Value::Int4(letter.as_bytes().first().map_or(0, |byte| i32::from(*byte as i8))))
            }
            _ => parse(context, value, to, typmod),
        },
        Type::Int8 => match integral(value, "bigint")? {
            Some(number) => Ok(Value::Int8(number)),
            None => parse(context, value, to, typmod),
        },
        Type::Float4 => match approximate(value)? {
            Some(number) => single(number, value),
            None => parse(context, value, to, typmod),
        },
        Type::Float8 => match approximate(value)? {
            Some(number) => Ok(Value::Float8(number)),
            None => parse(context, value, to, typmod),
        },
        Type::Numeric => match exact(value)? {
            Some(number) => Ok(Value::Numeric(number)),
            None => parse(context, value, to, typmod),
        },
        Type::Bool => match value {
            Value::Int4(number) => Ok(Value::Bool(*number != 0)),
            Value::Jsonb(document) => match document.root() {
                Node::Bool(truth) => Ok(Value::Bool(truth)),
                other => Err(json_mismatch(other, "boolean")),
            },
            _ => parse(context, value, to, typmod),
        },
        Type::Date | Type::Time | Type::Timestamp | Type::Timestamptz | Type::Interval => {
            temporal(context, value, to, typmod)
        }
        Type::Json => match value {
            Value::Jsonb(_) => Ok(Value::Json(written(context, value, from).into())),
            _ => parse(context, value, to, typmod),
        },
        Type::Oid | Type::Xid | Type::Cid => match value {
            Value::Oid(oid) => Ok(Value::Oid(*oid)),
            _ => match value.as_i64() {
                Some(number) => oid(number),
                None => parse(context, value, to, typmod),
            },
        },
        Type::Regclass | Type::Regtype | Type::Regproc | Type::Regnamespace | Type::Regrole => {
            match value.as_i64() {
                Some(number) => oid(number),
                None => named(context, text(value), to),
            }
        }
        to if to.is_text() => into_text(context, value, from, to),
        _ => match value {
            Value::Array(_) => Ok(value.clone()),
            _ => parse(context, value, to, typmod),
        },
    }
}

/// The integer a number means, rounded as PostgreSQL rounds; none if the value is no number.
fn integral(value: &Value, name: &'static str) -> Result<Option<i64>> {
    let out_of_range = || Error::from(ValueError::out_of_range(name));
    match value {
        Value::Numeric(number) => {
            if number.is_nan() {
                return Err(Error::unsupported(
                    format!("cannot convert NaN to {name}"),
                    "NaN has no integer form.",
                ));
            }
            if number.is_infinite() {
                return Err(Error::unsupported(
                    format!("cannot convert infinity to {name}"),
                    "Infinity has no integer form.",
                ));
            }
            number.round(0).to_i64().map(Some).ok_or_else(out_of_range)
        }
        Value::Float4(_) | Value::Float8(_) => {
            let rounded = float(value).round_ties_even();
            // 2^63 is exact as a float; the range is half open.
            if rounded.is_nan()
                || !(-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&rounded)
            {
                return Err(out_of_range());
            }
            Ok(Some(rounded as i64))
        }
        Value::Jsonb(document) => match document.root() {
            Node::Number(number) => integral(&Value::Numeric(number.to_numeric()), name),
            other => Err(json_mismatch(other, name)),
        },
        other => Ok(other.as_i64()),
    }
}

fn approximate(value: &Value) -> Result<Option<f64>> {
    Ok(match value {
        Value::Numeric(number) => {
            let float = number.to_f64();
            // What is finite and not zero stays so, or is refused.
            if number.is_finite() && (float.is_infinite() || (float == 0.0 && !number.is_zero())) {
                let message = format!("\"{number}\" is out of range for type double precision");
                return Err(Error::new(Code::NumericValueOutOfRange, message));
            }
            Some(float)
        }
        Value::Jsonb(document) => match document.root() {
            Node::Number(number) => Some(number.to_numeric().to_f64()),
            other => return Err(json_mismatch(other, "double precision")),
        },
        Value::Int2(_) | Value::Int4(_) | Value::Int8(_) => Some(int(value) as f64),
        other => other.as_f64(),
    })
}

fn single(number: f64, of: &Value) -> Result<Value> {
    let narrow = number as f32;
    if narrow.is_infinite() && number.is_finite() {
        return Err(match of {
            Value::Float8(_) => Error::new(Code::NumericValueOutOfRange, "value out of range: overflow"),
            other => ValueError::text_out_of_range("real", &format!("{other:?}")).into(),
        });
    }
    if narrow == 0.0 && number != 0.0 {
        return Err(Error::new(Code::NumericValueOutOfRange, "value out of range: underflow"));
    }
    Ok(Value::Float4(narrow))
}

fn exact(value: &Value) -> Result<Option<Numeric>> {
    Ok(match value {
        Value::Numeric(number) => Some(number.clone()),
        Value::Float4(number) => Some(Numeric::from_f32(*number)),
        Value::Float8(number) => Some(Numeric::from_f64(*number)),
        Value::Jsonb(document) => match document.root() {
            Node::Number(number) => Some(number.to_numeric()),
            other => return Err(json_mismatch(other, "numeric")),
        },
        other => other.as_i64().map(Numeric::from),
    })
}

fn json_mismatch(found: Node<'_>, wanted: &str) -> Error {
    let kind = found.type_name();
    Error::new(Code::InvalidParameterValue, format!("cannot cast jsonb {kind} to type {wanted}"))
}

fn temporal(context: &Context, value: &Value, to: Type, typmod: Typmod) -> Result<Value> {
    let zone = &context.text.zone;
    Ok(match (value, to) {
        (Value::Date(date), Type::Timestamp) => Value::Timestamp(date.to_timestamp()?),
        (Value::Date(date), Type::Timestamptz) => Value::Timestamptz(date.to_timestamptz(zone)?),
        (Value::Timestamp(at), Type::Timestamptz) => Value::Timestamptz(zone.to_instant(*at)?),
        (Value::Timestamp(at), Type::Date) => Value::Date(at.date()),
        (Value::Timestamp(at), Type::Time) => at.time().map_or(Value::Null, Value::Time),
        (Value::Timestamptz(at), Type::Timestamp) => Value::Timestamp(zone.to_local(*at)),
        (Value::Timestamptz(at), Type::Date) => Value::Date(zone.to_local(*at).date()),
        (Value::Timestamptz(at), Type::Time) => zone.to_local(*at).time().map_or(Value::Null, Value::Time),
        (Value::Time(time), Type::Interval) => Value::Interval(datetime::Interval::new(0, 0, time.micros())),
        (Value::Interval(interval), Type::Time) => Value::Time(datetime::Time::wrapping(interval.micros)),
        _ => return parse(context, value, to, typmod),
    })
}

fn oid(number: i64) -> Result<Value> {
    let oid = u32::try_from(number).or_else(|_| i32::try_from(number).map(|number| number as u32));
    Ok(Value::Oid(oid.map_err(|_| ValueError::out_of_range("OID"))?))
}

/// The text form of a value becomes a value of another type.
fn parse(context: &Context, value: &Value, to: Type, typmod: Typmod) -> Result<Value> {
    match value.as_str() {
        Some(source) => super::io::parse(context, source, to, typmod),
        None => super::io::parse(context, &super::text::display(context, value), to, typmod),
    }
}

fn into_text(context: &Context, value: &Value, from: Type, to: Type) -> Result<Value> {
    let source: Text = match value {
        Value::Text(source) if from == Type::Bpchar && to != Type::Bpchar => trim_blanks(source).into(),
        Value::Text(source) => source.clone(),
        // A cast writes the word, the type's own text form is a letter.
        Value::Bool(truth) => if *truth { "true" } else { "false" }.into(),
        other => written(context, other, from).into(),
    };
    if to == Type::Name && source.len() > 63 {
        let end = (0..=63).rev().find(|at| source.is_char_boundary(*at)).unwrap_or(0);
        return Ok(Value::text(&source[..end]));
    }
    if to == Type::Char {
        return super::io::parse(context, &source, Type::Char, Typmod::NONE);
    }
    Ok(Value::Text(source))
}

/// How a value of a type is written, names of objects included.
pub(crate) fn written(context: &Context, value: &Value, of: Type) -> String {
    match (value, of) {
        (Value::Oid(oid), Type::Regclass) => relation_name(context, *oid),
        (Value::Oid(oid), Type::Regtype) => match Type::from_oid(*oid) {
            Some(data_type) => data_type.to_string(),
            None => oid_or_dash(*oid),
        },
        (Value::Oid(oid), Type::Regnamespace) => {
            let mut schemas = crate::pg_catalog::namespaces(context).into_iter();
            let schema = schemas.find(|(id, _, _)| id == oid);
            schema.map_or_else(|| oid_or_dash(*oid), |(_, name, _)| super::text::quote_identifier(&name))
        }
        (Value::Oid(oid), Type::Regrole) => {
            let role = context.catalog.role(model::id::RoleId(*oid));
            role.map_or_else(|| oid_or_dash(*oid), |role| super::text::quote_identifier(&role.name))
        }
        (Value::Oid(oid), Type::Regproc) => oid_or_dash(*oid),
        (value, of) => super::io::write(context, value, of),
    }
}

fn oid_or_dash(oid: u32) -> String {
    if oid == 0 { "-".to_owned() } else { oid.to_string() }
}

/// How `regclass` shows a relation: its name, with its schema if the search path does not lead to it.
pub(crate) fn relation_name(context: &Context, oid: u32) -> String {
    use model::id::{SequenceId, TableId};
    let catalog = &context.catalog;
    let (schema, name) = if let Some(table) = catalog.table(TableId(oid)) {
        (table.schema, table.name.clone())
    } else if let Some(view) = catalog.view(TableId(oid)) {
        (view.schema, view.name.clone())
    } else if let Some(sequence) = catalog.sequence(SequenceId(oid)) {
        (sequence.schema, sequence.name.clone())
    } else {
        let indexes =
            catalog.tables().flat_map(|table| table.indexes.iter().map(move |index| (table.schema, index)));
        match indexes.into_iter().find(|(_, index)| index.id.0 == oid) {
            Some((schema, index)) => (schema, index.name.clone()),
            None => {
                return crate::pg_catalog::relation_name(oid).map_or_else(|| oid_or_dash(oid), str::to_owned);
            }
        }
    };
    let quoted = super::text::quote_identifier(&name);
    let visible = catalog.schema(schema).is_some_and(|schema| context.search_path.contains(&schema.name));
    match catalog.schema(schema) {
        Some(schema) if !visible => format!("{}.{quoted}", super::text::quote_identifier(&schema.name)),
        _ => quoted,
    }
}

fn named(context: &Context, source: &str, to: Type) -> Result<Value> {
    if source == "-" {
        return Ok(Value::Oid(0));
    }
    if let Ok(number) = source.parse::<u32>() {
        return Ok(Value::Oid(number));
    }
    // The name as it is, not as it was quoted.
    let missing = |code, kind: &str| {
        let name = super::session::split_identifier(source)?.join(".");
        Err(Error::new(code, format!("{kind} \"{name}\" does not exist")))
    };
    match to {
        Type::Regclass => match super::session::find_relation(context, source)? {
            Some((_, Relation::Table(id) | Relation::View(id))) => Ok(Value::Oid(id.0)),
            Some((_, Relation::Sequence(id))) => Ok(Value::Oid(id.0)),
            Some((_, Relation::Index(_, id))) => Ok(Value::Oid(id.0)),
            None => {
                let parts = super::session::split_identifier(source)?;
                let name = parts.last().map_or("", String::as_str);
                match crate::pg_catalog::find_relation(name) {
                    Some(oid) if parts.len() == 1 || parts[parts.len() - 2] == "pg_catalog" => {
                        Ok(Value::Oid(oid))
                    }
                    _ => missing(Code::UndefinedTable, "relation"),
                }
            }
        },
        Type::Regtype => match Type::parse(source) {
            Ok((data_type, _)) => Ok(Value::Oid(data_type.oid())),
            Err(_) => missing(Code::UndefinedObject, "type"),
        },
        Type::Regnamespace => {
            let name = single_name(source)?;
            let mut schemas = crate::pg_catalog::namespaces(context).into_iter();
            match schemas.find(|(_, schema, _)| *schema == name) {
                Some((id, _, _)) => Ok(Value::Oid(id)),
                None => missing(Code::InvalidSchemaName, "schema"),
            }
        }
        Type::Regrole => match context.catalog.find_role(&single_name(source)?) {
            Some(role) => Ok(Value::Oid(role.id.0)),
            None => missing(Code::UndefinedObject, "role"),
        },
        _ => missing(Code::UndefinedFunction, "function"),
    }
}

/// A name without a schema before it, folded and unquoted as in a statement.
fn single_name(source: &str) -> Result<String> {
    let mut parts = super::session::split_identifier(source)?;
    match (parts.pop(), parts.is_empty()) {
        (Some(name), true) => Ok(name),
        _ => Err(Error::new(Code::InvalidName, "invalid name syntax")),
    }
}

/// Casts that can also be called as functions.
pub(super) fn define(d: &mut Definitions) {
    for (name, to) in [("int2", Type::Int2), ("int4", Type::Int4), ("int8", Type::Int8)] {
        for from in [Type::Float8, Type::Numeric] {
            let body: super::Scalar = match to {
                Type::Int2 => |context, a| cast_natural(context, a, Type::Int2),
                Type::Int4 => |context, a| cast_natural(context, a, Type::Int4),
                _ => |context, a| cast_natural(context, a, Type::Int8),
            };
            d.scalar(name, [from], to, body);
        }
    }
    d.scalar("float8", [Type::Numeric], Type::Float8, |_, a| Ok(Value::Float8(numeric(&a[0]).to_f64())));
    d.scalar("numeric", [Type::Int8], Type::Numeric, |_, a| Ok(Value::Numeric(Numeric::from(int(&a[0])))));
    d.scalar("text", [Type::Bool], Type::Text, |_, a| {
        Ok(Value::text(if boolean(&a[0]) { "true" } else { "false" }))
    });
    d.scalar("to_regclass", [Type::Text], Type::Regclass, |context, a| {
        Ok(named(context, text(&a[0]), Type::Regclass).unwrap_or(Value::Null))
    })
    .stable();
    d.scalar("to_regtype", [Type::Text], Type::Regtype, |context, a| {
        Ok(named(context, text(&a[0]), Type::Regtype).unwrap_or(Value::Null))
    })
    .stable();
}

fn cast_natural(context: &mut Context, a: &[Value], to: Type) -> Result<Value> {
    let from = a[0].natural_type().expect("a strict function sees no null");
    cast(context, &a[0], from, to, Typmod::NONE, true)
}
