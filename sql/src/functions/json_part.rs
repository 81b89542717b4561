//! Parts of documents: of a `jsonb` the node of its tree, of a `json` the text as it was written, with its blanks, doubled keys
//! and spellings of numbers.
//!
//! Invariant: a text was checked when it became a value, so reading one asks for nothing but where its parts end.

use std::borrow::Cow;

use model::{
    Result, Value,
    value::{Jsonb, json::Node},
};

/// A document or a part of one.
#[derive(Clone, Copy)]
pub(super) enum Part<'a> {
    Tree(Node<'a>),
    /// Without blanks around it.
    Text(&'a str),
}

/// What a part is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Object,
    Array,
    Scalar,
}

impl<'a> Part<'a> {
    /// The whole of a `json` or `jsonb`.
    pub(super) fn of(value: &'a Value) -> Self {
        match value {
            Value::Jsonb(document) => Self::Tree(document.root()),
            other => Self::Text(super::text(other).trim_matches(is_blank)),
        }
    }

    pub(super) fn shape(self) -> Shape {
        match self {
            Self::Tree(Node::Object(_)) => Shape::Object,
            Self::Tree(Node::Array(_)) => Shape::Array,
            Self::Tree(Node::Null | Node::Bool(_) | Node::Number(_) | Node::String(_)) => Shape::Scalar,
            Self::Text(text) if text.starts_with('{') => Shape::Object,
            Self::Text(text) if text.starts_with('[') => Shape::Array,
            Self::Text(_) => Shape::Scalar,
        }
    }

    pub(super) fn is_null(self) -> bool {
        match self {
            Self::Tree(node) => matches!(node, Node::Null),
            Self::Text(text) => text == "null",
        }
    }

    /// `object`, `array`, `string`, `number`, `boolean` or `null`.
    pub(super) fn type_name(self) -> &'static str {
        match self {
            Self::Tree(node) => node.type_name(),
            Self::Text(text) => match text.as_bytes().first() {
                Some(b'{') => "object",
                Some(b'[') => "array",
                Some(b'"') => "string",
                Some(b't' | b'f') => "boolean",
                Some(b'n') => "null",
                Some(_) | None => "number",
            },
        }
    }

    /// Keys and values of an object; of anything else none.
    pub(super) fn members(self) -> Vec<(Cow<'a, str>, Self)> {
        match self {
            Self::Tree(Node::Object(object)) => {
                object.iter().map(|(key, node)| (Cow::Borrowed(key), Self::Tree(node))).collect()
            }
            Self::Text(text) if self.shape() == Shape::Object => {
                let pieces = pieces(text);
                let key = |quoted| string(quoted).unwrap_or(Cow::Borrowed(quoted));
                pieces.chunks_exact(2).map(|pair| (key(pair[0]), Self::Text(pair[1]))).collect()
            }
            Self::Tree(_) | Self::Text(_) => Vec::new(),
        }
    }

    /// Elements of an array; of anything else none.
    pub(super) fn elements(self) -> Vec<Self> {
        match self {
            Self::Tree(Node::Array(array)) => array.iter().map(Self::Tree).collect(),
            Self::Text(text) if self.shape() == Shape::Array => {
                pieces(text).into_iter().map(Self::Text).collect()
            }
            Self::Tree(_) | Self::Text(_) => Vec::new(),
        }
    }

    /// How many elements an array has.
    pub(super) fn length(self) -> usize {
        match self {
            Self::Tree(Node::Array(array)) => array.len(),
            Self::Tree(_) | Self::Text(_) => self.elements().len(),
        }
    }

    /// The value under a key of an object; of a text the last that was written.
    pub(super) fn key(self, name: &str) -> Option<Self> {
        match self {
            Self::Tree(node) => node.get_key(name).map(Self::Tree),
            Self::Text(_) => {
                self.members().into_iter().rev().find(|(key, _)| key == name).map(|(_, value)| value)
            }
        }
    }

    /// An element of an array, from its end if negative.
    pub(super) fn index(self, index: i64) -> Option<Self> {
        match self {
            // A scalar document is stored as an array of itself, which PostgreSQL lets through here.
            Self::Tree(node) if node.is_scalar() => matches!(index, 0 | -1).then_some(self),
            Self::Tree(node) => node.get_index(index).map(Self::Tree),
            Self::Text(_) => {
                let elements = self.elements();
                let at = if index < 0 { index.checked_add(elements.len() as i64)? } else { index };
                elements.get(usize::try_from(at).ok()?).copied()
            }
        }
    }

    /// One step of a path: a key of an object, an index of an array.
    pub(super) fn step(self, step: &str) -> Option<Self> {
        match self.shape() {
            Shape::Object => self.key(step),
            Shape::Array => self.index(step.trim_start().parse::<i32>().ok()?.into()),
            Shape::Scalar => None,
        }
    }

    pub(super) fn is_string(self) -> bool {
        self.type_name() == "string"
    }

    /// As JSON text.
    pub(super) fn written(self) -> String {
        match self {
            Self::Tree(node) => {
                let mut out = String::new();
                node.write_text(&mut out);
                out
            }
            Self::Text(text) => text.to_owned(),
        }
    }

    /// As a value of its document's type.
    pub(super) fn to_value(self) -> Value {
        match self {
            Self::Tree(node) => Value::Jsonb(node.to_jsonb()),
            Self::Text(text) => Value::Json(text.into()),
        }
    }

    /// A string without its quotes, null as none, anything else as it stands.
    pub(super) fn as_text(self) -> Result<Option<String>> {
        Ok(match self {
            Self::Tree(node) => node.as_text(),
            Self::Text(_) if self.is_null() => None,
            Self::Text(text) if text.starts_with('"') => Some(string(text)?.into_owned()),
            Self::Text(text) => Some(text.to_owned()),
        })
    }
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r')
}

/// A string as it is meant; an error if it means what no text can hold.
fn string(quoted: &str) -> Result<Cow<'_, str>> {
    let inside = quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(quoted);
    if !inside.contains('\\') {
        return Ok(Cow::Borrowed(inside));
    }
    Ok(Cow::Owned(Jsonb::parse(quoted)?.root().as_text().unwrap_or_default()))
}

/// What stands directly inside an array or object: elements, or keys and values by turns.
fn pieces(text: &str) -> Vec<&str> {
    let bytes = text.as_bytes();
    let (mut pieces, mut depth, mut from, mut at) = (Vec::new(), 0_usize, 1, 0);
    while at < bytes.len() {
        match bytes[at] {
            b'"' => at = string_end(bytes, at),
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        let is_end = depth == 0 || (depth == 1 && matches!(bytes[at.min(bytes.len() - 1)], b',' | b':'));
        if is_end {
            let piece = text.get(from..at).unwrap_or_default().trim_matches(is_blank);
            // Only an empty array or object has nothing in it.
            if !piece.is_empty() {
                pieces.push(piece);
            }
            from = at + 1;
        }
        at += 1;
    }
    pieces
}

/// Where the quote stands that closes the one that stands here.
fn string_end(bytes: &[u8], from: usize) -> usize {
    let mut at = from + 1;
    while at < bytes.len() && bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    at
}
