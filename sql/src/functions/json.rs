//! JSON: building, taking apart, searching, changing.

use model::{
    Code, Error, Result, Type, Value,
    types::Scalar as Element,
    value::{
        Jsonb,
        json::{self, ArrayBuilder, Node, ObjectBuilder, SetMode},
    },
};

use super::{
    Accepts, Body, Definitions, Function, Gives, RowIterator, Volatility, array_of, boolean, int, text,
};
use crate::context::Context;

const J: Type = Type::Json;
const B: Type = Type::Jsonb;
const T: Type = Type::Text;
const I: Type = Type::Int4;
const TEXTS: Type = Type::Array(Element::Text);

pub(super) fn define(d: &mut Definitions) {
    taking(d);
    searching(d);
    building(d);
    changing(d);
    sets(d);
}

pub(super) fn document(value: &Value) -> &Jsonb {
    match value {
        Value::Jsonb(document) => document,
        other => unreachable!("resolution gave a jsonb, not {:?}", other.natural_type()),
    }
}

/// A `json` text as the tree it means; it was checked when it became a value.
fn parsed(value: &Value) -> Result<Jsonb> {
    match value {
        Value::Jsonb(document) => Ok(document.clone()),
        other => Ok(Jsonb::parse(text(other))?),
    }
}

/// A node in the type of the document it comes from.
fn give(node: Option<Node<'_>>, of: &Value) -> Value {
    match node {
        None => Value::Null,
        Some(node) if matches!(of, Value::Jsonb(_)) => Value::Jsonb(node.to_jsonb()),
        Some(node) => {
            let mut out = String::new();
            node.write_text(&mut out);
            Value::Json(out.into())
        }
    }
}

fn give_text(node: Option<Node<'_>>) -> Value {
    node.and_then(Node::as_text).map_or(Value::Null, Value::text)
}

/// The steps of a path; none if one of them is null, which leads nowhere.
fn path(value: &Value) -> Option<Vec<&str>> {
    array_of(value).values().iter().map(Value::as_str).collect()
}

fn taking(d: &mut Definitions) {
    for of in [J, B] {
        d.infix("->", of, T, of, |_, a| {
            let source = parsed(&a[0])?;
            Ok(give(source.root().get_key(text(&a[1])), &a[0]))
        });
        d.infix("->", of, I, of, |_, a| {
            let source = parsed(&a[0])?;
            Ok(give(source.find_index(int(&a[1])), &a[0]))
        });
        d.infix("->>", of, T, T, |_, a| {
            let source = parsed(&a[0])?;
            Ok(give_text(source.root().get_key(text(&a[1]))))
        });
        d.infix("->>", of, I, T, |_, a| {
            let source = parsed(&a[0])?;
            Ok(give_text(source.find_index(int(&a[1]))))
        });
        d.infix("#>", of, TEXTS, of, |_, a| {
            let source = parsed(&a[0])?;
            Ok(give(path(&a[1]).and_then(|steps| source.find_path(steps)), &a[0]))
        });
        d.infix("#>>", of, TEXTS, T, |_, a| {
            let source = parsed(&a[0])?;
            Ok(give_text(path(&a[1]).and_then(|steps| source.find_path(steps))))
        });
        let prefix = if of == J { "json" } else { "jsonb" };
        let named = |suffix: &str| -> &'static str { String::leak(format!("{prefix}_{suffix}")) };
        d.scalar(named("typeof"), [of], T, |_, a| Ok(Value::text(parsed(&a[0])?.root().type_name())));
        d.scalar(named("array_length"), [of], I, |_, a| match parsed(&a[0])?.root() {
            Node::Array(array) => Ok(Value::Int4(array.len() as i32)),
            Node::Object(_) => Err(refuse("cannot get array length of a non-array")),
            Node::Null | Node::Bool(_) | Node::Number(_) | Node::String(_) => {
                Err(refuse("cannot get array length of a scalar"))
            }
        });
        d.scalar(named("extract_path"), [Accepts::Exact(of), Accepts::Exact(T)], of, |_, a| {
            let source = parsed(&a[0])?;
            Ok(give(source.find_path(a[1..].iter().map(text)), &a[0]))
        })
        .variadic();
        d.scalar(named("extract_path_text"), [Accepts::Exact(of), Accepts::Exact(T)], T, |_, a| {
            let source = parsed(&a[0])?;
            Ok(give_text(source.find_path(a[1..].iter().map(text))))
        })
        .variadic();
    }
    d.scalar("jsonb_pretty", [B], T, |_, a| Ok(Value::text(document(&a[0]).pretty())));
}

fn refuse(message: &str) -> Error {
    Error::new(Code::InvalidParameterValue, message)
}

fn searching(d: &mut Definitions) {
    d.infix("@>", B, B, Type::Bool, |_, a| Ok(Value::Bool(document(&a[0]).contains(document(&a[1])))));
    d.infix("<@", B, B, Type::Bool, |_, a| Ok(Value::Bool(document(&a[1]).contains(document(&a[0])))));
    d.infix("?", B, T, Type::Bool, |_, a| Ok(Value::Bool(document(&a[0]).exists(text(&a[1])))));
    d.infix("?|", B, TEXTS, Type::Bool, |_, a| {
        let keys = array_of(&a[1]).values();
        Ok(Value::Bool(keys.iter().filter_map(Value::as_str).any(|key| document(&a[0]).exists(key))))
    });
    d.infix("?&", B, TEXTS, Type::Bool, |_, a| {
        let keys = array_of(&a[1]).values();
        Ok(Value::Bool(keys.iter().filter_map(Value::as_str).all(|key| document(&a[0]).exists(key))))
    });
}

/// Any value as a `jsonb` tree.
pub(super) fn to_jsonb(context: &Context, value: &Value) -> Result<Jsonb> {
    match value {
        Value::Json(source) => Ok(Jsonb::parse(source)?),
        value => {
            let of = value.natural_type().unwrap_or(Type::Text);
            Ok(Jsonb::from_value(value, of, &context.text)?)
        }
    }
}

/// Appends any value as `json` text: a `json` value word for word, arrays and rows without blanks, as `to_json` does.
pub(super) fn write_json(context: &Context, value: &Value, out: &mut String) -> Result<()> {
    match value {
        Value::Json(source) => out.push_str(source),
        Value::Array(array) if array.dimensions().len() <= 1 => {
            out.push('[');
            for (index, element) in array.values().iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_json(context, element, out)?;
            }
            out.push(']');
        }
        Value::Record(fields) => {
            out.push('{');
            for (index, field) in fields.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                out.push_str(&format!("\"f{}\":", index + 1));
                write_json(context, field, out)?;
            }
            out.push('}');
        }
        value => to_jsonb(context, value)?.root().write_text(out),
    }
    Ok(())
}

/// The key an object is built under: the text of a scalar, never null.
pub(super) fn key_text(context: &Context, value: &Value) -> Result<String> {
    match value {
        Value::Null => Err(refuse("field name must not be null")),
        Value::Text(name) => Ok(name.as_str().to_owned()),
        Value::Array(_) | Value::Record(_) | Value::Json(_) | Value::Jsonb(_) => {
            Err(refuse("key value must be scalar, not array, composite, or json"))
        }
        other => Ok(super::text::display(context, other)),
    }
}

/// What a row is as JSON: called by the binder alone, so it stands in no table that names are looked up in.
pub(super) static NAMED_ROW: Function = Function {
    name: "row_to_json",
    parameters: &[Accepts::Exact(TEXTS), Accepts::Any],
    optional: 0,
    variadic: true,
    gives: Gives::Exact(J),
    strict: false,
    volatility: Volatility::Stable,
    body: Body::Scalar(named_row),
};

/// A field of a JSON object in a type: as [`NAMED_ROW`].
pub(super) static FIELD_AS: Function = Function {
    name: "json_to_record",
    parameters: &[Accepts::Any, Accepts::Exact(T), Accepts::Exact(I)],
    optional: 0,
    variadic: false,
    gives: Gives::Exact(T),
    strict: true,
    volatility: Volatility::Stable,
    body: Body::Scalar(field_as),
};

fn named_row(context: &mut Context, a: &[Value]) -> Result<Value> {
    let mut out = String::from("{");
    for (index, (name, value)) in array_of(&a[0]).values().iter().zip(&a[1..]).enumerate() {
        if index > 0 {
            out.push(',');
        }
        to_jsonb(context, name)?.root().write_text(&mut out);
        out.push(':');
        write_json(context, value, &mut out)?;
    }
    out.push('}');
    Ok(Value::Json(out.into()))
}

fn field_as(context: &mut Context, a: &[Value]) -> Result<Value> {
    let source = parsed(&a[0])?;
    let Node::Object(object) = source.root() else {
        return Err(refuse("cannot make a record of JSON that is no object"));
    };
    let oid = u32::try_from(int(&a[2])).ok().and_then(Type::from_oid);
    in_type(context, object.get(text(&a[1])), oid.unwrap_or(T))
}

/// A node as a value of a type: null as null, an array's elements one by one, anything else read from its text.
fn in_type(context: &Context, node: Option<Node<'_>>, of: Type) -> Result<Value> {
    let Some(node) = node.filter(|node| !matches!(node, Node::Null)) else { return Ok(Value::Null) };
    match (of, node) {
        (Type::Json | Type::Jsonb, node) => {
            let document = node.to_jsonb();
            Ok(if of == Type::Jsonb { Value::Jsonb(document) } else { give(Some(node), &Value::Null) })
        }
        (Type::Array(element), Node::Array(items)) => {
            let values: Result<Vec<Value>> =
                items.iter().map(|item| in_type(context, Some(item), element.as_type())).collect();
            Ok(Value::Array(std::sync::Arc::new(model::value::Array::from_values(element, values?))))
        }
        (Type::Array(_), _) => Err(Error::new(Code::InvalidTextRepresentation, "expected JSON array")),
        (of, node) => {
            let text = node.as_text().unwrap_or_default();
            Ok(model::value::text_io::parse(of, model::types::Typmod::NONE, &text, &context.text)?)
        }
    }
}

fn building(d: &mut Definitions) {
    d.scalar("to_json", [Accepts::Element], J, |context, a| {
        let mut out = String::new();
        write_json(context, &a[0], &mut out)?;
        Ok(Value::Json(out.into()))
    })
    .stable();
    d.scalar("row_to_json", [Type::Record], J, |context, a| {
        let mut out = String::new();
        write_json(context, &a[0], &mut out)?;
        Ok(Value::Json(out.into()))
    })
    .stable();
    d.scalar("array_to_json", [Accepts::Array], J, |context, a| {
        let mut out = String::new();
        write_json(context, &a[0], &mut out)?;
        Ok(Value::Json(out.into()))
    })
    .stable();
    d.scalar("to_jsonb", [Accepts::Element], B, |context, a| Ok(Value::Jsonb(to_jsonb(context, &a[0])?)))
        .stable();
    d.scalar("json_build_array", [Accepts::Any], J, |context, a| {
        let mut out = String::from("[");
        for (index, value) in a.iter().enumerate() {
            if index > 0 {
                out.push_str(", ");
            }
            write_json(context, value, &mut out)?;
        }
        Ok(Value::Json((out + "]").into()))
    })
    .variadic()
    .lenient()
    .stable();
    d.scalar("jsonb_build_array", [Accepts::Any], B, |context, a| {
        let mut builder = ArrayBuilder::default();
        for value in a {
            builder.push(&to_jsonb(context, value)?);
        }
        Ok(Value::Jsonb(builder.try_finish()?))
    })
    .variadic()
    .lenient()
    .stable();
    d.scalar("json_build_object", [Accepts::Any], J, |context, a| {
        let mut out = String::from("{");
        for (index, pair) in pairs(a)?.enumerate() {
            if index > 0 {
                out.push_str(", ");
            }
            json::write_string(&key_text(context, &pair[0])?, &mut out);
            out.push_str(" : ");
            write_json(context, &pair[1], &mut out)?;
        }
        Ok(Value::Json((out + "}").into()))
    })
    .variadic()
    .lenient()
    .stable();
    d.scalar("jsonb_build_object", [Accepts::Any], B, |context, a| {
        let mut builder = ObjectBuilder::default();
        for pair in pairs(a)? {
            builder.set(&key_text(context, &pair[0])?, &to_jsonb(context, &pair[1])?);
        }
        Ok(Value::Jsonb(builder.try_finish()?))
    })
    .variadic()
    .lenient()
    .stable();
}

fn pairs(a: &[Value]) -> Result<std::slice::ChunksExact<'_, Value>> {
    if a.len() % 2 == 1 {
        return Err(refuse("argument list must have even number of elements")
            .with_hint("The arguments of json_build_object() must consist of alternating keys and values."));
    }
    Ok(a.chunks_exact(2))
}

fn changing(d: &mut Definitions) {
    d.infix("||", B, B, B, |_, a| Ok(Value::Jsonb(document(&a[0]).concat(document(&a[1]))?)));
    d.infix("-", B, T, B, |_, a| Ok(Value::Jsonb(document(&a[0]).delete_key(text(&a[1]))?)));
    d.infix("-", B, TEXTS, B, |_, a| {
        let keys: Vec<&str> = array_of(&a[1]).values().iter().filter_map(Value::as_str).collect();
        Ok(Value::Jsonb(document(&a[0]).delete_keys(&keys)?))
    });
    d.infix("-", B, I, B, |_, a| Ok(Value::Jsonb(document(&a[0]).delete_index(int(&a[1]))?)));
    d.infix("#-", B, TEXTS, B, |_, a| Ok(Value::Jsonb(document(&a[0]).delete_path(&steps(&a[1])?)?)));
    d.scalar("jsonb_set", [B, TEXTS, B, Type::Bool], B, |_, a| set(a, document(&a[2]))).optional(1);
    d.scalar("jsonb_set_lax", [B, TEXTS, B, Type::Bool, T], B, |_, a| {
        if a[0].is_null() || a[1].is_null() || a.get(3).is_some_and(Value::is_null) {
            return Ok(Value::Null);
        }
        match (&a[2], a.get(4).and_then(Value::as_str).unwrap_or("use_json_null")) {
            (Value::Jsonb(value), _) => set(a, value),
            (_, "use_json_null") => set(a, &Jsonb::null()),
            (_, "delete_key") => Ok(Value::Jsonb(document(&a[0]).delete_path(&steps(&a[1])?)?)),
            (_, "return_target") => Ok(a[0].clone()),
            (_, "raise_exception") => {
                Err(Error::new(Code::NullValueNotAllowed, "JSON value must not be null"))
            }
            _ => Err(refuse(
                "null_value_treatment must be \"delete_key\", \"return_target\", \"use_json_null\", or \
                 \"raise_exception\"",
            )),
        }
    })
    .optional(2)
    .lenient();
    d.scalar("jsonb_insert", [B, TEXTS, B, Type::Bool], B, |_, a| {
        let mode = if a.get(3).is_some_and(boolean) { SetMode::InsertAfter } else { SetMode::InsertBefore };
        Ok(Value::Jsonb(document(&a[0]).set_path(&steps(&a[1])?, document(&a[2]), mode)?))
    })
    .optional(1);
    d.scalar("jsonb_strip_nulls", [B], B, |_, a| Ok(Value::Jsonb(document(&a[0]).strip_nulls())));
    d.scalar("json_strip_nulls", [J], J, |_, a| {
        let mut out = String::new();
        parsed(&a[0])?.strip_nulls().root().write_text(&mut out);
        Ok(Value::Json(out.into()))
    });
}

/// The steps of a path that is changed along: none of them may be null.
fn steps(value: &Value) -> Result<Vec<&str>> {
    let null = |at: usize| {
        Error::new(Code::NullValueNotAllowed, format!("path element at position {} is null", at + 1))
    };
    array_of(value)
        .values()
        .iter()
        .enumerate()
        .map(|(at, step)| step.as_str().ok_or_else(|| null(at)))
        .collect()
}

/// `jsonb_set(document, path, …, create)` with this value.
fn set(a: &[Value], value: &Jsonb) -> Result<Value> {
    let mode = if a.get(3).is_none_or(boolean) { SetMode::SetOrCreate } else { SetMode::Set };
    Ok(Value::Jsonb(document(&a[0]).set_path(&steps(&a[1])?, value, mode)?))
}

fn sets(d: &mut Definitions) {
    for of in [J, B] {
        let prefix = if of == J { "json" } else { "jsonb" };
        let named = |suffix: &str| -> &'static str { String::leak(format!("{prefix}_{suffix}")) };
        let (pairs, elements): (&'static [(&'static str, Gives)], &'static [(&'static str, Gives)]) =
            if of == J {
                (&[("key", Gives::Exact(T)), ("value", Gives::Exact(J))], &[("value", Gives::Exact(J))])
            } else {
                (&[("key", Gives::Exact(T)), ("value", Gives::Exact(B))], &[("value", Gives::Exact(B))])
            };
        d.add(
            named("each"),
            [of],
            Type::Record,
            Body::Set(pairs, |_, a| each(a, |node, of| give(Some(node), of))),
        );
        d.add(
            named("each_text"),
            [of],
            Type::Record,
            Body::Set(&[("key", Gives::Exact(T)), ("value", Gives::Exact(T))], |_, a| {
                each(a, |node, _| give_text(Some(node)))
            }),
        );
        let name = named("object_keys");
        let columns: &'static [(&'static str, Gives)] = Vec::leak(vec![(name, Gives::Exact(T))]);
        d.add(
            name,
            [of],
            T,
            Body::Set(columns, |_, a| match parsed(&a[0])?.root() {
                Node::Object(object) => {
                    let keys: Vec<Value> = object.iter().map(|(key, _)| Value::text(key)).collect();
                    Ok(super::set::rows(keys.into_iter().map(Ok)))
                }
                Node::Array(_) => Err(refuse("cannot call json_object_keys on an array")),
                _ => Err(refuse("cannot call json_object_keys on a scalar")),
            }),
        );
        d.add(
            named("array_elements"),
            [of],
            of,
            Body::Set(elements, |_, a| array_elements(a, |node, of| give(Some(node), of))),
        );
        d.add(
            named("array_elements_text"),
            [of],
            T,
            Body::Set(&[("value", Gives::Exact(T))], |_, a| {
                array_elements(a, |node, _| give_text(Some(node)))
            }),
        );
    }
}

fn each(a: &[Value], value: fn(Node<'_>, &Value) -> Value) -> Result<RowIterator> {
    match parsed(&a[0])?.root() {
        Node::Object(object) => {
            let rows: Vec<_> =
                object.iter().map(|(key, node)| Ok(vec![Value::text(key), value(node, &a[0])])).collect();
            Ok(Box::new(rows.into_iter()))
        }
        Node::Array(_) => Err(refuse("cannot deconstruct an array as an object")),
        _ => Err(refuse("cannot deconstruct a scalar")),
    }
}

fn array_elements(a: &[Value], value: fn(Node<'_>, &Value) -> Value) -> Result<RowIterator> {
    match parsed(&a[0])?.root() {
        Node::Array(array) => {
            let elements: Vec<Value> = array.iter().map(|node| value(node, &a[0])).collect();
            Ok(super::set::rows(elements.into_iter().map(Ok)))
        }
        Node::Object(_) => Err(refuse("cannot extract elements from an object")),
        _ => Err(refuse("cannot extract elements from a scalar")),
    }
}
