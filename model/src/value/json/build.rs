//! Making documents: builders for arrays and objects, and scalars.

use super::{
    ARRAY_LONG, ARRAY_SHORT, FALSE, Jsonb, NULL, NUMBER, Node, OBJECT_LONG, OBJECT_SHORT, STRING, TRUE,
    check_depth, key_order,
};
use crate::value::{Numeric, ValueError};

/// Collects the elements of an array.
#[derive(Debug, Default)]
pub struct ArrayBuilder {
    ends: Vec<usize>,
    payload: Vec<u8>,
}

impl ArrayBuilder {
    /// Appends a whole document as the next element.
    pub fn push(&mut self, element: &Jsonb) {
        self.push_raw(element.as_bytes());
    }

    pub(super) fn push_raw(&mut self, node: &[u8]) {
        self.payload.extend_from_slice(node);
        self.ends.push(self.payload.len());
    }

    /// The array; refused with `54001` when it is nested deeper than `DEPTH_MAX`.
    pub fn try_finish(self) -> Result<Jsonb, ValueError> {
        finish(self.into_node())
    }

    /// The array.
    ///
    /// # Panics
    /// When it is nested deeper than `DEPTH_MAX`; where elements may be that deep, use `try_finish`.
    pub fn finish(self) -> Jsonb {
        self.try_finish().expect("elements were less deep than a document may be")
    }

    pub(super) fn into_node(self) -> Vec<u8> {
        let width = width_of(self.ends.len(), self.payload.len());
        let mut node = Vec::with_capacity(1 + (self.ends.len() + 1) * width + self.payload.len());
        node.push(if width == 2 { ARRAY_SHORT } else { ARRAY_LONG });
        write_word(&mut node, self.ends.len(), width);
        self.ends.iter().for_each(|end| write_word(&mut node, *end, width));
        node.extend_from_slice(&self.payload);
        node
    }
}

/// Collects the pairs of an object, in any order.
#[derive(Debug, Default)]
pub struct ObjectBuilder {
    pairs: Vec<(String, Vec<u8>)>,
}

impl ObjectBuilder {
    /// Sets a key; the last value set for it stays.
    pub fn set(&mut self, key: &str, value: &Jsonb) {
        self.set_raw(key.to_owned(), value.as_bytes().to_vec());
    }

    pub(super) fn set_raw(&mut self, key: String, node: Vec<u8>) {
        self.pairs.push((key, node));
    }

    /// The object; refused with `54001` when it is nested deeper than `DEPTH_MAX`.
    pub fn try_finish(self) -> Result<Jsonb, ValueError> {
        finish(self.into_node())
    }

    /// The object.
    ///
    /// # Panics
    /// When it is nested deeper than `DEPTH_MAX`; where values may be that deep, use `try_finish`.
    pub fn finish(self) -> Jsonb {
        self.try_finish().expect("values were less deep than a document may be")
    }

    pub(super) fn into_node(mut self) -> Vec<u8> {
        // A stable sort keeps the order of writing among equal keys, so the last of them is the one to keep.
        self.pairs.sort_by(|a, b| key_order(a.0.as_bytes(), b.0.as_bytes()));
        let mut pairs: Vec<(String, Vec<u8>)> = Vec::with_capacity(self.pairs.len());
        for pair in self.pairs {
            match pairs.last_mut() {
                Some(last) if last.0 == pair.0 => *last = pair,
                _ => pairs.push(pair),
            }
        }
        write_object(&pairs)
    }
}

/// A document of a node made from others, which may be too deep by now.
pub(super) fn finish(node: Vec<u8>) -> Result<Jsonb, ValueError> {
    check_depth(&node)?;
    Ok(Jsonb::from_vec(node))
}

fn write_object(pairs: &[(String, Vec<u8>)]) -> Vec<u8> {
    let keys: usize = pairs.iter().map(|(key, _)| key.len()).sum();
    let values: usize = pairs.iter().map(|(_, value)| value.len()).sum();
    let width = width_of(pairs.len(), keys.max(values));
    let mut node = Vec::with_capacity(1 + width + pairs.len() * 2 * width + keys + values);
    node.push(if width == 2 { OBJECT_SHORT } else { OBJECT_LONG });
    write_word(&mut node, pairs.len(), width);
    let mut end = 0;
    for (key, _) in pairs {
        end += key.len();
        write_word(&mut node, end, width);
    }
    let mut end = 0;
    for (_, value) in pairs {
        end += value.len();
        write_word(&mut node, end, width);
    }
    pairs.iter().for_each(|(key, _)| node.extend_from_slice(key.as_bytes()));
    pairs.iter().for_each(|(_, value)| node.extend_from_slice(value));
    node
}

fn width_of(count: usize, payload: usize) -> usize {
    if count.max(payload) <= usize::from(u16::MAX) { 2 } else { 4 }
}

fn write_word(out: &mut Vec<u8>, word: usize, width: usize) {
    if width == 2 {
        out.extend_from_slice(&(word as u16).to_le_bytes());
    } else {
        out.extend_from_slice(&(word as u32).to_le_bytes());
    }
}

pub(super) fn string_node(text: &str) -> Vec<u8> {
    let mut node = Vec::with_capacity(text.len() + 1);
    node.push(STRING);
    node.extend_from_slice(text.as_bytes());
    node
}

pub(super) fn number_node(number: &Numeric) -> Vec<u8> {
    let mut node = vec![NUMBER];
    number.write_compact(&mut node);
    node
}

pub(super) fn bool_node(value: bool) -> Vec<u8> {
    vec![if value { TRUE } else { FALSE }]
}

impl Jsonb {
    /// The document `null`.
    pub fn null() -> Jsonb {
        Jsonb::from_vec(vec![NULL])
    }

    /// The document `true` or `false`.
    pub fn bool(value: bool) -> Jsonb {
        Jsonb::from_vec(bool_node(value))
    }

    /// A number; NaN and infinities become strings, as PostgreSQL's `to_jsonb` makes them.
    pub fn number(value: &Numeric) -> Jsonb {
        if value.is_finite() {
            Jsonb::from_vec(number_node(value))
        } else {
            Jsonb::string(&value.to_string())
        }
    }

    /// A string.
    pub fn string(text: &str) -> Jsonb {
        Jsonb::from_vec(string_node(text))
    }
}

impl Node<'_> {
    /// A document of its own.
    pub fn to_jsonb(self) -> Jsonb {
        Jsonb::from_vec(self.to_node())
    }

    pub(super) fn to_node(self) -> Vec<u8> {
        match self {
            Node::Null => vec![NULL],
            Node::Bool(value) => bool_node(value),
            Node::Number(number) => [&[NUMBER], number.0].concat(),
            Node::String(text) => string_node(text),
            Node::Array(array) => {
                let mut builder = ArrayBuilder::default();
                array.iter_raw().for_each(|node| builder.push_raw(node));
                builder.into_node()
            }
            Node::Object(object) => {
                // The pairs are in order and unique already.
                let pairs: Vec<_> =
                    object.iter_raw().map(|(key, node)| (key.to_owned(), node.to_vec())).collect();
                write_object(&pairs)
            }
        }
    }
}
