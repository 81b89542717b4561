//! JSON: building, taking apart, searching, changing.

use model::{
    Code, Error, Result, Type, Value,
    types::Scalar as Element,
    value::{
        Array, Jsonb, Text,
        json::{self, ArrayBuilder, Node, ObjectBuilder},
    },
};

use super::{Accepts, Body, Definitions, Gives, RowIterator, array_of, boolean, int, text};
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

fn document(value: &Value) -> &Jsonb {
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

fn path(value: &Value) -> Vec<Option<Text>> {
    let steps = array_of(value).values().iter();
    steps.map(|step| step.as_str().map(Text::from)).collect()
}

fn follow<'a>(root: Node<'a>, steps: &[Option<Text>]) -> Option<Node<'a>> {
    steps.iter().try_fold(root, |node, step| {
        let step = step.as_ref()?;
        match node {
            Node::Object(_) => node.get_key(step),
            Node::Array(_) => node.get_index(step.trim().parse().ok()?),
            Node::Null | Node::Bool(_) | Node::Number(_) | Node::String(_) => None,
        }
    })
}

fn taking(d: &mut Definitions) {
    for of in [J, B] {
        d.infix("->", of, T, of, |_, a| {
            let source = parsed(&a[0])?;
            Ok(give(source.root().get_key(text(&a[1])), &a[0]))
        });
        d.infix("->", of, I, of, |_, a| {
            let source = parsed(&a[0])?;
            Ok(give(source.root().get_index(int(&a[1])), &a[0]))
        });
        d.infix("->>", of, T, T, |_, a| {
            let source = parsed(&a[0])?;
            Ok(give_text(source.root().get_key(text(&a[1]))))
        });
        d.infix("->>", of, I, T, |_, a| {
            let source = parsed(&a[0])?;
            Ok(give_text(source.root().get_index(int(&a[1]))))
        });
        d.infix("#>", of, TEXTS, of, |_, a| {
            let source = parsed(&a[0])?;
            Ok(give(follow(source.root(), &path(&a[1])), &a[0]))
        });
        d.infix("#>>", of, TEXTS, T, |_, a| {
            let source = parsed(&a[0])?;
            Ok(give_text(follow(source.root(), &path(&a[1]))))
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
            let steps: Vec<_> = a[1..].iter().map(|step| step.as_str().map(Text::from)).collect();
            Ok(give(follow(source.root(), &steps), &a[0]))
        })
        .variadic();
        d.scalar(named("extract_path_text"), [Accepts::Exact(of), Accepts::Exact(T)], T, |_, a| {
            let source = parsed(&a[0])?;
            let steps: Vec<_> = a[1..].iter().map(|step| step.as_str().map(Text::from)).collect();
            Ok(give_text(follow(source.root(), &steps)))
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
    d.scalar("to_jsonb", [Accepts::Element], B, |context, a| Ok(Value::Jsonb(to_jsonb(context, &a[0])?))).stable();
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
        Ok(Value::Jsonb(builder.finish()))
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
        Ok(Value::Jsonb(builder.finish()))
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
    d.infix("||", B, B, B, |_, a| concatenate(document(&a[0]), document(&a[1])));
    d.infix("-", B, T, B, |_, a| remove(document(&a[0]), &[text(&a[1])]));
    d.infix("-", B, TEXTS, B, |_, a| {
        let keys: Vec<&str> = array_of(&a[1]).values().iter().filter_map(Value::as_str).collect();
        remove(document(&a[0]), &keys)
    });
    d.infix("-", B, I, B, |_, a| {
        let source = document(&a[0]);
        match source.root() {
            Node::Array(array) => {
                let place = int(&a[1]);
                let place = if place < 0 { place + array.len() as i64 } else { place };
                let kept = array.iter().enumerate().filter(|(at, _)| *at as i64 != place);
                Ok(Value::Jsonb(collect_array(kept.map(|(_, node)| node.to_jsonb()))))
            }
            Node::Object(_) => Err(refuse("cannot delete from object using integer index")),
            Node::Null | Node::Bool(_) | Node::Number(_) | Node::String(_) => Err(refuse("cannot delete from scalar")),
        }
    });
    d.infix("#-", B, TEXTS, B, |_, a| {
        let steps = path(&a[1]);
        if document(&a[0]).root().is_scalar() {
            return Err(refuse("cannot delete path in scalar"));
        }
        Ok(Value::Jsonb(edit(document(&a[0]).root(), &steps, &Edit::Remove)?))
    });
    d.scalar("jsonb_set", [B, TEXTS, B, Type::Bool], B, |_, a| {
        let create = a.get(3).is_none_or(boolean);
        set(document(&a[0]), &path(&a[1]), document(&a[2]), create)
    })
    .optional(1);
    d.scalar("jsonb_set_lax", [B, TEXTS, B, Type::Bool, T], B, |_, a| {
        if a[0].is_null() || a[1].is_null() || a.get(3).is_some_and(Value::is_null) {
            return Ok(Value::Null);
        }
        let create = a.get(3).is_none_or(boolean);
        let null = Jsonb::null();
        match (&a[2], a.get(4).and_then(Value::as_str).unwrap_or("use_json_null")) {
            (Value::Jsonb(value), _) => set(document(&a[0]), &path(&a[1]), value, create),
            (_, "use_json_null") => set(document(&a[0]), &path(&a[1]), &null, create),
            (_, "delete_key") => Ok(Value::Jsonb(edit(document(&a[0]).root(), &path(&a[1]), &Edit::Remove)?)),
            (_, "return_target") => Ok(a[0].clone()),
            (_, "raise_exception") => Err(Error::new(Code::NullValueNotAllowed, "JSON value must not be null")),
            _ => Err(refuse("null_value_treatment must be \"delete_key\", \"return_target\", \"use_json_null\", or \"raise_exception\"")),
        }
    })
    .optional(2)
    .lenient();
    d.scalar("jsonb_insert", [B, TEXTS, B, Type::Bool], B, |_, a| {
        let after = a.get(3).is_some_and(boolean);
        if document(&a[0]).root().is_scalar() {
            return Err(refuse("cannot set path in scalar"));
        }
        let change = Edit::Insert { value: document(&a[2]), after };
        Ok(Value::Jsonb(edit(document(&a[0]).root(), &path(&a[1]), &change)?))
    })
    .optional(1);
    d.scalar("jsonb_strip_nulls", [B], B, |_, a| Ok(Value::Jsonb(strip(document(&a[0]).root()))));
    d.scalar("json_strip_nulls", [J], J, |_, a| {
        let mut out = String::new();
        strip(parsed(&a[0])?.root()).root().write_text(&mut out);
        Ok(Value::Json(out.into()))
    });
}

fn set(source: &Jsonb, steps: &[Option<Text>], value: &Jsonb, create: bool) -> Result<Value> {
    if source.root().is_scalar() {
        return Err(refuse("cannot set path in scalar"));
    }
    Ok(Value::Jsonb(edit(source.root(), steps, &Edit::Set { value, create })?))
}

fn collect_array(nodes: impl Iterator<Item = Jsonb>) -> Jsonb {
    let mut builder = ArrayBuilder::default();
    nodes.for_each(|node| builder.push(&node));
    builder.finish()
}

fn concatenate(left: &Jsonb, right: &Jsonb) -> Result<Value> {
    if let (Node::Object(first), Node::Object(second)) = (left.root(), right.root()) {
        let mut builder = ObjectBuilder::default();
        first.iter().chain(second.iter()).for_each(|(key, node)| builder.set(key, &node.to_jsonb()));
        return Ok(Value::Jsonb(builder.finish()));
    }
    let elements = |node: &Jsonb| match node.root() {
        Node::Array(array) => array.iter().map(Node::to_jsonb).collect(),
        _ => vec![node.clone()],
    };
    Ok(Value::Jsonb(collect_array(elements(left).into_iter().chain(elements(right)))))
}

fn remove(source: &Jsonb, keys: &[&str]) -> Result<Value> {
    Ok(Value::Jsonb(match source.root() {
        Node::Object(object) => {
            let mut builder = ObjectBuilder::default();
            for (key, node) in object.iter().filter(|(key, _)| !keys.contains(key)) {
                builder.set(key, &node.to_jsonb());
            }
            builder.finish()
        }
        Node::Array(array) => {
            let named = |node: &Node<'_>| matches!(node, Node::String(text) if keys.contains(text));
            collect_array(array.iter().filter(|node| !named(node)).map(Node::to_jsonb))
        }
        Node::Null | Node::Bool(_) | Node::Number(_) | Node::String(_) => {
            return Err(refuse("cannot delete from scalar"));
        }
    }))
}

/// A change at the end of a path.
enum Edit<'a> {
    Set { value: &'a Jsonb, create: bool },
    Insert { value: &'a Jsonb, after: bool },
    Remove,
}

/// A copy of a node with one change at the end of a path; unchanged where the path leads nowhere.
fn edit(node: Node<'_>, steps: &[Option<Text>], change: &Edit<'_>) -> Result<Jsonb> {
    let Some((step, rest)) = steps.split_first() else { return Ok(node.to_jsonb()) };
    let step = step
        .as_ref()
        .ok_or_else(|| Error::new(Code::NullValueNotAllowed, "path element at position 1 is null"))?;
    match node {
        Node::Object(object) => edit_object(object, step, rest, change),
        Node::Array(array) => edit_array(array, step, rest, change),
        Node::Null | Node::Bool(_) | Node::Number(_) | Node::String(_) => Ok(node.to_jsonb()),
    }
}

fn edit_object(object: json::ObjectNode<'_>, step: &str, rest: &[Option<Text>], change: &Edit<'_>) -> Result<Jsonb> {
    let mut builder = ObjectBuilder::default();
    for (key, node) in object.iter() {
        if key != step {
            builder.set(key, &node.to_jsonb());
        } else if !rest.is_empty() {
            builder.set(key, &edit(node, rest, change)?);
        } else {
            match change {
                Edit::Set { value, .. } => builder.set(key, value),
                Edit::Remove => {}
                Edit::Insert { .. } => {
                    return Err(refuse("cannot replace existing key")
                        .with_hint("Try using the function jsonb_set to replace key value."));
                }
            }
        }
    }
    if rest.is_empty() && object.get(step).is_none() {
        match change {
            Edit::Set { value, create: true } | Edit::Insert { value, .. } => builder.set(step, value),
            Edit::Set { create: false, .. } | Edit::Remove => {}
        }
    }
    Ok(builder.finish())
}

fn edit_array(array: json::ArrayNode<'_>, step: &str, rest: &[Option<Text>], change: &Edit<'_>) -> Result<Jsonb> {
    let place: i64 = step.trim().parse().map_err(|_| {
        Error::new(
            Code::InvalidTextRepresentation,
            format!("path element at position 1 is not an integer: \"{step}\""),
        )
    })?;
    let length = array.len() as i64;
    let place = if place < 0 { place + length } else { place };
    let mut builder = ArrayBuilder::default();
    let outside = !(0..length).contains(&place);
    if let (true, true, Edit::Set { value, create: true } | Edit::Insert { value, .. }) =
        (outside && rest.is_empty(), place < 0, change)
    {
        builder.push(value);
    }
    for (at, node) in array.iter().enumerate() {
        if at as i64 != place {
            builder.push(&node.to_jsonb());
            continue;
        }
        if !rest.is_empty() {
            builder.push(&edit(node, rest, change)?);
            continue;
        }
        match change {
            Edit::Set { value, .. } => builder.push(value),
            Edit::Remove => {}
            Edit::Insert { value, after } => {
                let kept = node.to_jsonb();
                let (first, second) = if *after { (&kept, *value) } else { (*value, &kept) };
                builder.push(first);
                builder.push(second);
            }
        }
    }
    if let (true, true, Edit::Set { value, create: true } | Edit::Insert { value, .. }) =
        (outside && rest.is_empty(), place >= length, change)
    {
        builder.push(value);
    }
    Ok(builder.finish())
}

fn strip(node: Node<'_>) -> Jsonb {
    match node {
        Node::Object(object) => {
            let mut builder = ObjectBuilder::default();
            for (key, node) in object.iter().filter(|(_, node)| !matches!(node, Node::Null)) {
                builder.set(key, &strip(node));
            }
            builder.finish()
        }
        Node::Array(array) => collect_array(array.iter().map(strip)),
        other => other.to_jsonb(),
    }
}

fn sets(d: &mut Definitions) {
    for of in [J, B] {
        let prefix = if of == J { "json" } else { "jsonb" };
        let named = |suffix: &str| -> &'static str { String::leak(format!("{prefix}_{suffix}")) };
        let (pairs, elements): (&'static [(&'static str, Gives)], &'static [(&'static str, Gives)]) = if of == J {
            (&[("key", Gives::Exact(T)), ("value", Gives::Exact(J))], &[("value", Gives::Exact(J))])
        } else {
            (&[("key", Gives::Exact(T)), ("value", Gives::Exact(B))], &[("value", Gives::Exact(B))])
        };
        d.add(named("each"), [of], Type::Record, Body::Set(pairs, |_, a| each(a, |node, of| give(Some(node), of))));
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
        d.add(named("array_elements"), [of], of, Body::Set(elements, |_, a| {
            array_elements(a, |node, of| give(Some(node), of))
        }));
        d.add(
            named("array_elements_text"),
            [of],
            T,
            Body::Set(&[("value", Gives::Exact(T))], |_, a| array_elements(a, |node, _| give_text(Some(node)))),
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
