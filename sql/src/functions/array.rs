//! Arrays: building, joining, searching, containment.

use model::{
    Code, Error, Result, Type, Value,
    types::Scalar as Element,
    value::{Array, array::Dimension},
};

use super::{Accepts, Context, Definitions, Gives, array_of, int, text};

const ARRAY: Accepts = Accepts::Array;
const ELEMENT: Accepts = Accepts::Element;
const I: Type = Type::Int4;

pub(super) fn define(d: &mut Definitions) {
    shape(d);
    d.infix("||", ARRAY, ARRAY, Gives::Array, |_, a| concatenate(array_of(&a[0]), array_of(&a[1])));
    d.infix("||", ARRAY, ELEMENT, Gives::Array, |_, a| push(array_of(&a[0]), &a[1], false));
    d.infix("||", ELEMENT, ARRAY, Gives::Array, |_, a| push(array_of(&a[1]), &a[0], true));
    d.infix("@>", ARRAY, ARRAY, Type::Bool, |_, a| {
        Ok(Value::Bool(contains(array_of(&a[0]), array_of(&a[1]))))
    });
    d.infix("<@", ARRAY, ARRAY, Type::Bool, |_, a| {
        Ok(Value::Bool(contains(array_of(&a[1]), array_of(&a[0]))))
    });
    d.infix("&&", ARRAY, ARRAY, Type::Bool, |_, a| {
        let (left, right) = (array_of(&a[0]), array_of(&a[1]));
        let shared =
            |value: &Value| !value.is_null() && right.values().iter().any(|other| value.eq_sql(other));
        Ok(Value::Bool(left.values().iter().any(shared)))
    });
    d.scalar("array_append", [ARRAY, ELEMENT], Gives::Array, |_, a| match (&a[0], &a[1]) {
        (Value::Array(array), value) => push(array, value, false),
        (_, value) => single(value),
    })
    .lenient();
    d.scalar("array_prepend", [ELEMENT, ARRAY], Gives::Array, |_, a| match (&a[1], &a[0]) {
        (Value::Array(array), value) => push(array, value, true),
        (_, value) => single(value),
    })
    .lenient();
    d.scalar("array_cat", [ARRAY, ARRAY], Gives::Array, |_, a| match (&a[0], &a[1]) {
        (Value::Array(left), Value::Array(right)) => concatenate(left, right),
        (Value::Null, other) | (other, _) => Ok(other.clone()),
    })
    .lenient();
    d.scalar("array_remove", [ARRAY, ELEMENT], Gives::Array, |_, a| {
        let Some(array) = a[0].as_array() else { return Ok(Value::Null) };
        flat(array)?;
        let kept = array.values().iter().filter(|value| !value.eq_sql(&a[1])).cloned().collect();
        Ok(Value::Array(Array::from_values(array.element(), kept).into()))
    })
    .lenient();
    d.scalar("array_replace", [ARRAY, ELEMENT, ELEMENT], Gives::Array, |_, a| {
        let Some(array) = a[0].as_array() else { return Ok(Value::Null) };
        let replace = |value: &Value| if value.eq_sql(&a[1]) { a[2].clone() } else { value.clone() };
        let values = array.values().iter().map(replace).collect();
        Ok(Value::Array(Array::new(array.element(), array.dimensions().to_vec(), values)?.into()))
    })
    .lenient();
    d.scalar("array_position", [ARRAY, ELEMENT, Accepts::Exact(I)], I, |_, a| {
        let Some(array) = a[0].as_array() else { return Ok(Value::Null) };
        flat(array)?;
        let lower = array.dimensions().first().map_or(1, |dimension| dimension.lower);
        let from = a.get(2).map_or(i64::from(lower), int);
        let skip = usize::try_from(from - i64::from(lower)).unwrap_or(0);
        let place = array.values().iter().skip(skip).position(|value| value.eq_sql(&a[1]));
        Ok(place.map_or(Value::Null, |at| Value::Int4(lower + (skip + at) as i32)))
    })
    .optional(1)
    .lenient();
    d.scalar("array_positions", [ARRAY, ELEMENT], Type::Array(Element::Int4), |_, a| {
        let Some(array) = a[0].as_array() else { return Ok(Value::Null) };
        flat(array)?;
        let lower = array.dimensions().first().map_or(1, |dimension| dimension.lower);
        let places = array.values().iter().enumerate().filter(|(_, value)| value.eq_sql(&a[1]));
        let places = places.map(|(at, _)| Value::Int4(lower + at as i32)).collect();
        Ok(Value::Array(Array::from_values(Element::Int4, places).into()))
    })
    .lenient();
    d.scalar("trim_array", [ARRAY, Accepts::Exact(I)], Gives::Array, |_, a| {
        let array = array_of(&a[0]);
        let count = usize::try_from(int(&a[1])).ok().filter(|count| *count <= array.len());
        let Some(count) = count else {
            let message = format!("number of elements to trim must be between 0 and {}", array.len());
            return Err(Error::new(Code::ArraySubscriptError, message));
        };
        let kept = array.values()[..array.len() - count].to_vec();
        Ok(Value::Array(Array::from_values(array.element(), kept).into()))
    });
    d.scalar("array_fill", [ELEMENT, Accepts::Exact(Type::Array(Element::Int4))], Gives::Array, |_, a| {
        fill(&a[0], &a[1])
    })
    .lenient();
}

/// The most elements one array may have (PostgreSQL's MaxArraySize is larger; a value here is held whole).
const ELEMENTS_MAX: usize = 16 * 1024 * 1024;

fn fill(value: &Value, lengths: &Value) -> Result<Value> {
    let Some(lengths) = lengths.as_array() else {
        return Err(Error::new(
            Code::NullValueNotAllowed,
            "dimension array or low bound array cannot be null",
        ));
    };
    let mut dimensions = Vec::new();
    let mut count = 1_usize;
    for length in lengths.values() {
        let length = length.as_i64().and_then(|length| i32::try_from(length).ok()).unwrap_or(0).max(0);
        count = count.saturating_mul(length as usize);
        dimensions.push(Dimension { length, lower: 1 });
    }
    if count > ELEMENTS_MAX {
        return Err(Error::new(Code::ProgramLimitExceeded, "array size exceeds the maximum allowed"));
    }
    let element = value.natural_type().and_then(Type::scalar).unwrap_or(Element::Text);
    if count == 0 {
        return Ok(Value::Array(Array::empty(element).into()));
    }
    Ok(Value::Array(Array::new(element, dimensions, vec![value.clone(); count])?.into()))
}

fn shape(d: &mut Definitions) {
    d.scalar("array_length", [ARRAY, Accepts::Exact(I)], I, |_, a| {
        Ok(dimension(a).map_or(Value::Null, |at| Value::Int4(at.length)))
    });
    d.scalar("array_lower", [ARRAY, Accepts::Exact(I)], I, |_, a| {
        Ok(dimension(a).map_or(Value::Null, |at| Value::Int4(at.lower)))
    });
    d.scalar("array_upper", [ARRAY, Accepts::Exact(I)], I, |_, a| {
        Ok(dimension(a).map_or(Value::Null, |at| Value::Int4(at.lower + at.length - 1)))
    });
    d.scalar("array_ndims", [ARRAY], I, |_, a| {
        let count = array_of(&a[0]).dimensions().len();
        Ok(if count == 0 { Value::Null } else { Value::Int4(count as i32) })
    });
    d.scalar("array_dims", [ARRAY], Type::Text, |_, a| {
        let dimensions = array_of(&a[0]).dimensions();
        if dimensions.is_empty() {
            return Ok(Value::Null);
        }
        let part = |at: &Dimension| format!("[{}:{}]", at.lower, at.lower + at.length - 1);
        Ok(Value::text(dimensions.iter().map(part).collect::<String>()))
    });
}

fn dimension(a: &[Value]) -> Option<Dimension> {
    let place = usize::try_from(int(&a[1]) - 1).ok()?;
    array_of(&a[0]).dimensions().get(place).copied()
}

fn flat(array: &Array) -> Result<()> {
    if array.dimensions().len() > 1 {
        return Err(Error::unsupported(
            "searching for elements in multidimensional arrays is not supported",
            "Unnest the array first.",
        ));
    }
    Ok(())
}

fn single(value: &Value) -> Result<Value> {
    let element = value.natural_type().and_then(Type::scalar).unwrap_or(Element::Text);
    Ok(Value::Array(Array::from_values(element, vec![value.clone()]).into()))
}

fn push(array: &Array, value: &Value, front: bool) -> Result<Value> {
    if array.dimensions().len() > 1 {
        return Err(Error::new(Code::ArraySubscriptError, "argument must be empty or one-dimensional array"));
    }
    let mut values = array.values().to_vec();
    values.insert(if front { 0 } else { values.len() }, value.clone());
    let lower = array.dimensions().first().map_or(1, |dimension| dimension.lower);
    let dimensions = vec![Dimension { length: values.len() as i32, lower }];
    Ok(Value::Array(Array::new(array.element(), dimensions, values)?.into()))
}

fn concatenate(left: &Array, right: &Array) -> Result<Value> {
    if left.is_empty() {
        return Ok(Value::Array(right.clone().into()));
    }
    if right.is_empty() {
        return Ok(Value::Array(left.clone().into()));
    }
    let (of_left, of_right) = (left.dimensions(), right.dimensions());
    let lengths = |dimensions: &[Dimension]| dimensions.iter().map(|at| at.length).collect::<Vec<_>>();
    let mut dimensions = of_left.to_vec();
    let fits = if of_left.len() == of_right.len() {
        dimensions[0].length += of_right[0].length;
        lengths(&of_left[1..]) == lengths(&of_right[1..])
    } else if of_left.len() == of_right.len() + 1 {
        dimensions[0].length += 1;
        lengths(&of_left[1..]) == lengths(of_right)
    } else if of_left.len() + 1 == of_right.len() {
        dimensions = of_right.to_vec();
        dimensions[0].length += 1;
        lengths(of_left) == lengths(&of_right[1..])
    } else {
        false
    };
    if !fits {
        return Err(Error::new(Code::ArraySubscriptError, "cannot concatenate incompatible arrays"));
    }
    let values = [left.values(), right.values()].concat();
    Ok(Value::Array(Array::new(left.element(), dimensions, values)?.into()))
}

/// Whether every element of `part` is in `whole`; a null is in nothing.
fn contains(whole: &Array, part: &Array) -> bool {
    let inside = |value: &Value| !value.is_null() && whole.values().iter().any(|other| value.eq_sql(other));
    part.values().iter().all(inside)
}

/// `string_to_array(text, separator [, null text])`: a null separator cuts into characters.
pub(super) fn string_to_array(context: &mut Context, a: &[Value]) -> Result<Value> {
    let Some(source) = a[0].as_str() else { return Ok(Value::Null) };
    let count = match a[1].as_str() {
        None => source.chars().count(),
        Some("") => 1,
        Some(separator) => source.matches(separator).count() + 1,
    };
    context.making.room(count * size_of::<(Value, &str)>())?;
    let pieces: Vec<&str> = match a[1].as_str() {
        _ if source.is_empty() => Vec::new(),
        None => source.split_inclusive(|_| true).collect(),
        Some("") => vec![source],
        Some(separator) => source.split(separator).collect(),
    };
    let null = a.get(2).filter(|value| !value.is_null()).map(text);
    let value = |piece: &str| if Some(piece) == null { Value::Null } else { Value::text(piece) };
    let values = pieces.into_iter().map(value).collect();
    Ok(Value::Array(Array::from_values(Element::Text, values).into()))
}
