//! Text forms of arrays (`{1,NULL,"a b"}`), records (`(1,"a b",)`) and the space-separated vectors of catalogs.

use crate::types::{Scalar, Type, Typmod};
use crate::value::array::{DIMENSIONS_MAX, Dimension, ELEMENTS_MAX};
use crate::value::{Array, Context, Value, ValueError, ValueErrorKind, float};

/// Reads an array: optional bounds (`[0:2]=`), nested braces, quoted and bare elements.
pub fn parse_array(
    element: Scalar,
    typmod: Typmod,
    text: &str,
    context: &Context,
) -> Result<Array, ValueError> {
    let mut reader = Reader { text, at: 0, origin: 0 };
    let bounds = reader.bounds()?;
    let mut shape = Shape::default();
    reader.skip_blanks();
    if reader.peek() != Some(b'{') {
        let detail = match bounds {
            Some(_) => "Array contents must start with \"{\".",
            None => "Array value must start with \"{\" or dimension information.",
        };
        return Err(reader.malformed(detail));
    }
    // PostgreSQL judges the structure before any element, and quotes it without its bounds.
    reader.origin = reader.at;
    let mut elements = Vec::new();
    reader.level(0, &mut shape, &mut elements)?;
    reader.skip_blanks();
    if reader.at < text.len() {
        return Err(reader.malformed("Junk after closing right brace."));
    }
    reader.origin = 0;
    let lengths = if elements.is_empty() { Vec::new() } else { shape.lengths };
    let mismatched = bounds
        .as_ref()
        .is_some_and(|bounds| !bounds.iter().map(|bound| bound.length as usize).eq(lengths.iter().copied()));
    if mismatched {
        return Err(reader.malformed("Specified array dimensions do not match array contents."));
    }
    let values = elements.into_iter().map(|element_text| match element_text {
        Some(text) => super::parse(element.as_type(), typmod, &text, context),
        None => Ok(Value::Null),
    });
    let values = values.collect::<Result<Vec<_>, _>>()?;
    let Some(bounds) = bounds else {
        let dimensions =
            lengths.iter().map(|length| Dimension { length: *length as i32, lower: 1 }).collect();
        return Array::new(element, dimensions, values);
    };
    Array::new(element, bounds, values)
}

/// Lengths of the levels met so far.
#[derive(Default)]
struct Shape {
    lengths: Vec<usize>,
    /// Whether the innermost level is known: elements were seen there.
    complete: bool,
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    /// Where the text that messages quote begins.
    origin: usize,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_blanks(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_whitespace() || byte == 0x0b) {
            self.at += 1;
        }
    }

    fn malformed(&self, detail: impl Into<String>) -> ValueError {
        let message = format!("malformed array literal: \"{}\"", &self.text[self.origin..]);
        ValueError::new(ValueErrorKind::InvalidText, message).with_detail(detail)
    }

    fn bounds(&mut self) -> Result<Option<Vec<Dimension>>, ValueError> {
        let mut bounds = Vec::new();
        loop {
            self.skip_blanks();
            if self.peek() != Some(b'[') {
                break;
            }
            self.at += 1;
            let first = self.integer()?;
            let (lower, upper) = if self.peek() == Some(b':') {
                self.at += 1;
                (first, self.integer()?)
            } else {
                (1, first)
            };
            if self.peek() != Some(b']') {
                return Err(self.malformed("Missing \"]\" after array dimensions."));
            }
            self.at += 1;
            if bounds.len() >= DIMENSIONS_MAX {
                let message = format!(
                    "number of array dimensions ({}) exceeds the maximum allowed ({DIMENSIONS_MAX})",
                    bounds.len() + 1
                );
                return Err(ValueError::new(ValueErrorKind::LimitExceeded, message));
            }
            if upper < lower {
                let message = "upper bound cannot be less than lower bound";
                return Err(ValueError::new(ValueErrorKind::ArraySubscript, message));
            }
            let length = i64::from(upper) - i64::from(lower) + 1;
            if length > ELEMENTS_MAX as i64 {
                let message = format!("array size exceeds the maximum allowed ({ELEMENTS_MAX})");
                return Err(ValueError::new(ValueErrorKind::LimitExceeded, message));
            }
            bounds.push(Dimension { length: length as i32, lower });
        }
        if bounds.is_empty() {
            return Ok(None);
        }
        if self.peek() != Some(b'=') {
            return Err(self.malformed("Missing \"=\" after array dimensions."));
        }
        self.at += 1;
        Ok(Some(bounds))
    }

    fn integer(&mut self) -> Result<i32, ValueError> {
        let start = self.at;
        if matches!(self.peek(), Some(b'+' | b'-')) {
            self.at += 1;
        }
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        let missing = || self.malformed("\"[\" must introduce explicitly-specified array dimensions.");
        self.text[start..self.at].parse().map_err(|_| missing())
    }

    /// Reads one pair of braces and all inside.
    fn level(
        &mut self,
        depth: usize,
        shape: &mut Shape,
        elements: &mut Vec<Option<String>>,
    ) -> Result<(), ValueError> {
        if depth >= DIMENSIONS_MAX {
            let message = format!(
                "number of array dimensions ({}) exceeds the maximum allowed ({DIMENSIONS_MAX})",
                depth + 1
            );
            return Err(ValueError::new(ValueErrorKind::LimitExceeded, message));
        }
        const UNEVEN: &str = "Multidimensional arrays must have sub-arrays with matching dimensions.";
        let first_here = shape.lengths.len() == depth;
        if first_here {
            if shape.complete {
                return Err(self.malformed("Unexpected \"{\" character."));
            }
            shape.lengths.push(0);
        }
        self.at += 1;
        let mut count = 0;
        loop {
            self.skip_blanks();
            match self.peek() {
                None => return Err(self.malformed("Unexpected end of input.")),
                // Only the outermost braces may be empty.
                Some(b'}') if count == 0 && depth == 0 => break,
                Some(b'}' | b',') => {
                    let found = self.text.as_bytes()[self.at] as char;
                    return Err(self.malformed(format!("Unexpected \"{found}\" character.")));
                }
                Some(b'{') => {
                    if shape.complete && shape.lengths.len() == depth + 1 {
                        return Err(self.malformed("Unexpected \"{\" character."));
                    }
                    self.level(depth + 1, shape, elements)?;
                }
                Some(_) => {
                    if shape.lengths.len() > depth + 1 {
                        return Err(self.malformed("Unexpected array element."));
                    }
                    shape.complete = true;
                    self.element(elements)?;
                }
            }
            count += 1;
            self.skip_blanks();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => break,
                Some(_) => return Err(self.malformed("Unexpected array element.")),
                None => return Err(self.malformed("Unexpected end of input.")),
            }
        }
        self.at += 1;
        if first_here || shape.lengths[depth] == 0 {
            shape.lengths[depth] = count;
        } else if shape.lengths[depth] != count {
            return Err(self.malformed(UNEVEN));
        }
        Ok(())
    }

    fn element(&mut self, elements: &mut Vec<Option<String>>) -> Result<(), ValueError> {
        let mut text = String::new();
        let quoted = self.peek() == Some(b'"');
        self.at += usize::from(quoted);
        let mut escaped_any = quoted;
        // Blanks after an unquoted element do not count, unless escaped.
        let mut kept = 0;
        loop {
            let Some(c) = self.text[self.at..].chars().next() else {
                return Err(self.malformed("Unexpected end of input."));
            };
            match c {
                '\\' => {
                    self.at += 1;
                    let Some(c) = self.text[self.at..].chars().next() else {
                        return Err(self.malformed("Unexpected end of input."));
                    };
                    text.push(c);
                    self.at += c.len_utf8();
                    escaped_any = true;
                    kept = text.len();
                    continue;
                }
                '"' if quoted => {
                    self.at += 1;
                    break;
                }
                '"' => return Err(self.malformed("Unexpected array element.")),
                ',' | '}' if !quoted => break,
                '{' if !quoted => return Err(self.malformed("Unexpected \"{\" character.")),
                _ => {}
            }
            text.push(c);
            self.at += c.len_utf8();
            if quoted || !c.is_ascii_whitespace() {
                kept = text.len();
            }
        }
        text.truncate(kept);
        let null = !escaped_any && text.eq_ignore_ascii_case("null");
        elements.push(if null { None } else { Some(text) });
        Ok(())
    }
}

/// Appends `{1,2}`, with `[0:1]=` before it when subscripts do not start at 1.
pub fn write_array(array: &Array, context: &Context, out: &mut String) {
    let dimensions = array.dimensions();
    if array.is_empty() {
        return out.push_str("{}");
    }
    if dimensions.iter().any(|dimension| dimension.lower != 1) {
        for dimension in dimensions {
            let upper = i64::from(dimension.lower) + i64::from(dimension.length) - 1;
            out.push_str(&format!("[{}:{upper}]", dimension.lower));
        }
        out.push('=');
    }
    let mut values = array.values().iter();
    write_level(dimensions, &mut values, array.element().as_type(), context, out);
}

fn write_level<'v>(
    dimensions: &[Dimension],
    values: &mut impl Iterator<Item = &'v Value>,
    element: Type,
    context: &Context,
    out: &mut String,
) {
    let Some((dimension, inner)) = dimensions.split_first() else { return };
    out.push('{');
    for index in 0..dimension.length {
        if index > 0 {
            out.push(',');
        }
        if !inner.is_empty() {
            write_level(inner, values, element, context, out);
            continue;
        }
        match values.next() {
            None | Some(Value::Null) => out.push_str("NULL"),
            Some(value) => write_element(value, element, context, out),
        }
    }
    out.push('}');
}

fn write_element(value: &Value, element: Type, context: &Context, out: &mut String) {
    let start = out.len();
    super::write_text(value, element, context, out);
    let text = &out[start..];
    let plain = !text.is_empty()
        && !text.eq_ignore_ascii_case("null")
        && !text.bytes().any(|byte| {
            matches!(byte, b'"' | b'\\' | b'{' | b'}' | b',') || byte.is_ascii_whitespace() || byte == 0x0b
        });
    if plain {
        return;
    }
    let text = out.split_off(start);
    out.push('"');
    for c in text.chars() {
        if matches!(c, '"' | '\\') {
            out.push('\\');
        }
        out.push(c);
    }
    out.push('"');
}

/// Appends `(1,"a b",)`; null is nothing between commas.
pub(super) fn write_record(values: &[Value], context: &Context, out: &mut String) {
    out.push('(');
    for (index, value) in values.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        let Some(of) = value.natural_type() else { continue };
        let start = out.len();
        super::write_text(value, of, context, out);
        let text = &out[start..];
        let special = |byte: u8| {
            matches!(byte, b'"' | b'\\' | b'(' | b')' | b',') || byte.is_ascii_whitespace() || byte == 0x0b
        };
        if !text.is_empty() && !text.bytes().any(special) {
            continue;
        }
        let text = out.split_off(start);
        out.push('"');
        for c in text.chars() {
            if matches!(c, '"' | '\\') {
                out.push(c);
            }
            out.push(c);
        }
        out.push('"');
    }
    out.push(')');
}

/// Reads `1 2 3`.
pub(super) fn parse_vector(element: Scalar, text: &str, context: &Context) -> Result<Array, ValueError> {
    let values = text
        .split_ascii_whitespace()
        .map(|piece| super::parse(element.as_type(), Typmod::NONE, piece, context));
    Ok(Array::from_vector(element, values.collect::<Result<Vec<_>, _>>()?))
}

/// Reads `[1,2.5,3]`.
pub(super) fn parse_embedding(typmod: Typmod, text: &str) -> Result<Array, ValueError> {
    let invalid = || ValueError::invalid_text("vector", text);
    let inner = text.trim().strip_prefix('[').and_then(|text| text.strip_suffix(']')).ok_or_else(invalid)?;
    let numbers = inner.split(',').map(|piece| match float::parse_f32(piece) {
        Ok(number) if number.is_finite() => Ok(Value::Float4(number)),
        _ => Err(invalid()),
    });
    let values = numbers.collect::<Result<Vec<_>, _>>()?;
    check_embedding(values.len(), typmod)?;
    Ok(Array::from_values(Scalar::Float4, values))
}

/// Refuses a vector of another dimension than its column's.
pub(super) fn check_embedding(found: usize, typmod: Typmod) -> Result<(), ValueError> {
    if !typmod.is_none() && typmod.0 as usize != found {
        return Err(ValueError::parameter(format!("expected {} dimensions, not {found}", typmod.0)));
    }
    Ok(())
}

/// Appends elements with a separator between.
pub(super) fn write_vector(array: &Array, separator: char, context: &Context, out: &mut String) {
    for (index, value) in array.values().iter().enumerate() {
        if index > 0 {
            out.push(separator);
        }
        super::write_text(value, array.element().as_type(), context, out);
    }
}
