//! Qualified names taken apart: `parse_ident`.

use model::{Code, Error, Result, Type, Value, types::Scalar as Element, value::Array};

use super::{Accepts, Definitions, boolean, text};

pub(super) fn define(d: &mut Definitions) {
    let parameters = [Accepts::Exact(Type::Text), Accepts::Exact(Type::Bool)];
    d.scalar("parse_ident", parameters, Type::Array(Element::Text), |_, a| {
        let parts = parts_of(text(&a[0]), a.get(1).is_none_or(boolean))?;
        let parts = parts.into_iter().map(Value::text).collect();
        Ok(Value::Array(Array::from_values(Element::Text, parts).into()))
    })
    .optional(1);
}

/// The parts of a name, as SQL would read it. What follows the name is refused if it is strict.
fn parts_of(name: &str, strict: bool) -> Result<Vec<String>> {
    let refused = |detail: Option<&str>| {
        let error =
            Error::new(Code::InvalidParameterValue, format!("string is not a valid identifier: \"{name}\""));
        match detail {
            Some(detail) => error.with_detail(detail),
            None => error,
        }
    };
    let blank = |c: char| matches!(c, ' ' | '\t' | '\n' | '\r' | '\x0b' | '\x0c');
    let (mut parts, mut rest) = (Vec::new(), name.trim_start_matches(blank));
    loop {
        if let Some(inside) = rest.strip_prefix('"') {
            let (part, behind) =
                quoted(inside).ok_or_else(|| refused(Some("String has unclosed double quotes.")))?;
            if part.is_empty() {
                return Err(refused(Some("Quoted identifier must not be empty.")));
            }
            parts.push(part);
            rest = behind;
        } else if rest.starts_with(|c: char| c == '_' || c.is_ascii_alphabetic() || !c.is_ascii()) {
            let is_part = |c: char| matches!(c, '_' | '$') || c.is_ascii_alphanumeric() || !c.is_ascii();
            let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
            parts.push(rest[..end].to_ascii_lowercase());
            rest = &rest[end..];
        } else if rest.starts_with('.') {
            return Err(refused(Some("No valid identifier before \".\".")));
        } else {
            return Err(refused((!parts.is_empty()).then_some("No valid identifier after \".\".")));
        }
        rest = rest.trim_start_matches(blank);
        match rest.strip_prefix('.') {
            Some(behind) => rest = behind.trim_start_matches(blank),
            None if rest.is_empty() || !strict => return Ok(parts),
            None => return Err(refused(None)),
        }
    }
}

/// A text up to its closing quote, doubled ones being one, and what stands behind it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut part = String::new();
    let mut rest = text;
    loop {
        let end = rest.find('"')?;
        part.push_str(&rest[..end]);
        rest = &rest[end + 1..];
        match rest.strip_prefix('"') {
            Some(behind) => {
                part.push('"');
                rest = behind;
            }
            None => return Some((part, rest)),
        }
    }
}
