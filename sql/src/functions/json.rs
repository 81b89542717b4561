//! JSON: building, taking apart, searching, changing.

use model::{
    Code, Error, Result, Type, Value,
    types::Scalar as Element,
    value::{
        Array, Jsonb,
        array::Dimension,
        json::{self, ArrayBuilder, ObjectBuilder, SetMode},
    },
};

use super::{
    Accepts, Body, Definitions, Function, Gives, RowIterator, Volatility, array_of, boolean, int,
    json_part::{Part, Shape},
    text,
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

fn give(part: Option<Part<'_>>) -> Result<Value> {
    Ok(part.map_or(Value::Null, Part::to_value))
}

fn give_text(part: Option<Part<'_>>) -> Result<Value> {
    let text = part.map(Part::as_text).transpose()?.flatten();
    Ok(text.map_or(Value::Null, Value::text))
}

/// The steps of a path; none if one of them is null, which leads nowhere.
fn path(value: &Value) -> Option<Vec<&str>> {
    array_of(value).values().iter().map(Value::as_str).collect()
}

fn taking(d: &mut Definitions) {
    fn at_path<'a>(a: &'a [Value]) -> Option<Part<'a>> {
        path(&a[1])?.into_iter().try_fold(Part::of(&a[0]), Part::step)
    }
    fn at_steps<'a>(a: &'a [Value]) -> Option<Part<'a>> {
        a[1..].iter().map(text).try_fold(Part::of(&a[0]), Part::step)
    }
    for of in [J, B] {
        d.infix("->", of, T, of, |_, a| give(Part::of(&a[0]).key(text(&a[1]))));
        d.infix("->", of, I, of, |_, a| give(Part::of(&a[0]).index(int(&a[1]))));
        d.infix("->>", of, T, T, |_, a| give_text(Part::of(&a[0]).key(text(&a[1]))));
        d.infix("->>", of, I, T, |_, a| give_text(Part::of(&a[0]).index(int(&a[1]))));
        d.infix("#>", of, TEXTS, of, |_, a| give(at_path(a)));
        d.infix("#>>", of, TEXTS, T, |_, a| give_text(at_path(a)));
        let prefix = if of == J { "json" } else { "jsonb" };
        let named = |suffix: &str| -> &'static str { String::leak(format!("{prefix}_{suffix}")) };
        d.scalar(named("typeof"), [of], T, |_, a| Ok(Value::text(Part::of(&a[0]).type_name())));
        d.scalar(named("array_length"), [of], I, |_, a| {
            let part = Part::of(&a[0]);
            match part.shape() {
                Shape::Array => Ok(Value::Int4(part.length() as i32)),
                Shape::Object => Err(refuse("cannot get array length of a non-array")),
                Shape::Scalar => Err(refuse("cannot get array length of a scalar")),
            }
        });
        d.scalar(named("extract_path"), [Accepts::Exact(of), Accepts::Exact(T)], of, |_, a| {
            give(at_steps(a))
        })
        .variadic();
        d.scalar(named("extract_path_text"), [Accepts::Exact(of), Accepts::Exact(T)], T, |_, a| {
            give_text(at_steps(a))
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
    let source = Part::of(&a[0]);
    if source.shape() != Shape::Object {
        return Err(refuse("cannot make a record of JSON that is no object"));
    }
    let oid = u32::try_from(int(&a[2])).ok().and_then(Type::from_oid);
    in_type(context, source.key(text(&a[1])), oid.unwrap_or(T), text(&a[1]))
}

/// The part under a key as a value of a type: null as null, an array's elements one by one, anything else read from its text.
fn in_type(context: &Context, part: Option<Part<'_>>, of: Type, key: &str) -> Result<Value> {
    let Some(part) = part.filter(|part| !part.is_null()) else { return Ok(Value::Null) };
    match (of, part) {
        (Type::Json, Part::Tree(node)) => Ok(Value::Json(Part::Tree(node).written().into())),
        (Type::Json, Part::Text(_)) | (Type::Jsonb, Part::Tree(_)) => Ok(part.to_value()),
        (Type::Jsonb, Part::Text(text)) => Ok(Value::Jsonb(Jsonb::parse(text)?)),
        (Type::Array(element), part) if !part.is_string() => {
            let mut array = Elements { element, lengths: Vec::new(), deepest: None, values: Vec::new(), key };
            array.read(context, part, 0)?;
            Ok(Value::Array(std::sync::Arc::new(array.finish()?)))
        }
        (of, part) => {
            let text = part.as_text()?.unwrap_or_default();
            Ok(model::value::text_io::parse(of, model::types::Typmod::NONE, &text, &context.text)?)
        }
    }
}

/// An array while it is read from JSON. The first element that is no array says how many dimensions there are.
struct Elements<'k> {
    element: Element,
    lengths: Vec<Option<usize>>,
    deepest: Option<usize>,
    values: Vec<Value>,
    key: &'k str,
}

impl Elements<'_> {
    fn read(&mut self, context: &Context, part: Part<'_>, level: usize) -> Result<()> {
        if part.shape() != Shape::Array {
            let hint = format!("See the value of key \"{}\".", self.key);
            return Err(Error::new(Code::InvalidTextRepresentation, "expected JSON array").with_hint(hint));
        }
        let elements = part.elements();
        for element in &elements {
            let is_deepest = match self.deepest {
                Some(deepest) => level == deepest,
                None => element.shape() != Shape::Array,
            };
            if is_deepest {
                self.deepest = Some(level);
                self.values.push(in_type(context, Some(*element), self.element.as_type(), self.key)?);
            } else {
                self.read(context, *element, level + 1)?;
            }
        }
        if self.lengths.len() <= level {
            self.lengths.resize(level + 1, None);
        }
        if *self.lengths[level].get_or_insert(elements.len()) != elements.len() {
            let detail = "Multidimensional arrays must have sub-arrays with matching dimensions.";
            return Err(
                Error::new(Code::InvalidTextRepresentation, "malformed JSON array").with_detail(detail)
            );
        }
        Ok(())
    }

    fn finish(self) -> Result<Array> {
        let dimension = |length: usize| Dimension { length: length as i32, lower: 1 };
        let dimensions = self.lengths.into_iter().flatten().map(dimension).collect();
        Ok(Array::new(self.element, dimensions, self.values)?)
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
        d.add(named("each"), [of], Type::Record, Body::Set(pairs, |_, a| each(a, give)));
        d.add(
            named("each_text"),
            [of],
            Type::Record,
            Body::Set(&[("key", Gives::Exact(T)), ("value", Gives::Exact(T))], |_, a| each(a, give_text)),
        );
        let name = named("object_keys");
        let columns: &'static [(&'static str, Gives)] = Vec::leak(vec![(name, Gives::Exact(T))]);
        d.add(
            name,
            [of],
            T,
            Body::Set(columns, |_, a| {
                let part = Part::of(&a[0]);
                match part.shape() {
                    Shape::Object => {
                        let keys: Vec<Value> =
                            part.members().into_iter().map(|(key, _)| Value::text(key.as_ref())).collect();
                        Ok(super::set::rows(keys.into_iter().map(Ok)))
                    }
                    Shape::Array => Err(refuse("cannot call json_object_keys on an array")),
                    Shape::Scalar => Err(refuse("cannot call json_object_keys on a scalar")),
                }
            }),
        );
        d.add(named("array_elements"), [of], of, Body::Set(elements, |_, a| array_elements(a, give)));
        d.add(
            named("array_elements_text"),
            [of],
            T,
            Body::Set(&[("value", Gives::Exact(T))], |_, a| array_elements(a, give_text)),
        );
    }
}

fn each(a: &[Value], value: fn(Option<Part<'_>>) -> Result<Value>) -> Result<RowIterator> {
    let part = Part::of(&a[0]);
    match part.shape() {
        Shape::Object => {
            let members = part.members().into_iter();
            let rows: Vec<_> =
                members.map(|(key, part)| Ok(vec![Value::text(key.as_ref()), value(Some(part))?])).collect();
            Ok(Box::new(rows.into_iter()))
        }
        Shape::Array => Err(refuse("cannot deconstruct an array as an object")),
        Shape::Scalar => Err(refuse("cannot deconstruct a scalar")),
    }
}

fn array_elements(a: &[Value], value: fn(Option<Part<'_>>) -> Result<Value>) -> Result<RowIterator> {
    let part = Part::of(&a[0]);
    match part.shape() {
        Shape::Array => {
            let elements: Vec<_> = part.elements().into_iter().map(|part| value(Some(part))).collect();
            Ok(super::set::rows(elements.into_iter()))
        }
        Shape::Object => Err(refuse("cannot extract elements from an object")),
        Shape::Scalar => Err(refuse("cannot extract elements from a scalar")),
    }
}
