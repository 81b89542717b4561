//! `jsonb`: JSON as sorted binary with offset tables, so that a key is found by binary search without parsing.
//!
//! A node is a slice whose length its container knows (frozen, drawn in `docs/formats/row.md`):
//!
//! ```text
//! 0x00 null · 0x01 false · 0x02 true
//! 0x03 number: numeric in compact form      0x04 string: UTF-8
//! 0x05 array:  count · ends[count] · nodes                     (count and ends u16 LE)
//! 0x06 object: count · key ends[count] · value ends[count] · keys · nodes   (u16 LE)
//! 0x07, 0x08   the same with u32 LE, when the payload or the count needs it
//! ```
//!
//! Invariants:
//! - Keys are unique, ordered by length, then bytes (PostgreSQL's order); of duplicates the last one written wins.
//! - What `Jsonb` accessors are given may be damaged: they answer null or nothing, they do not panic.
//! - Nesting is at most `DEPTH_MAX`, so recursion over a document is bounded.
//!
//! Files: `parse` text to nodes · `build` making nodes · `print` texts · `compare` order, hash, containment · `edit`
//! changes · `path` getting and setting by path.

mod build;
mod compare;
mod edit;
mod from_value;
mod parse;
mod path;
mod print;

use std::sync::Arc;

pub use build::{ArrayBuilder, ObjectBuilder};
pub use edit::SetMode;
pub use parse::validate;
pub use print::write_string;

use crate::value::{Numeric, ValueError, ValueErrorKind};

/// Deepest nesting a document may have: what recursion over it can stand on the smallest of our stacks, in a build
/// without optimisation too.
pub const DEPTH_MAX: usize = 256;

const NULL: u8 = 0;
const FALSE: u8 = 1;
const TRUE: u8 = 2;
const NUMBER: u8 = 3;
const STRING: u8 = 4;
const ARRAY_SHORT: u8 = 5;
const OBJECT_SHORT: u8 = 6;
const ARRAY_LONG: u8 = 7;
const OBJECT_LONG: u8 = 8;

/// A JSON document in binary form, shared on clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Jsonb(Arc<[u8]>);

/// A look at one node of a document.
#[derive(Clone, Copy, Debug)]
pub enum Node<'a> {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number.
    Number(NumberNode<'a>),
    /// A string.
    String(&'a str),
    /// An array.
    Array(ArrayNode<'a>),
    /// An object.
    Object(ObjectNode<'a>),
}

/// A number in its compact form.
#[derive(Clone, Copy, Debug)]
pub struct NumberNode<'a>(&'a [u8]);

impl NumberNode<'_> {
    /// The number; a damaged one reads as NaN, which no document holds.
    pub fn to_numeric(self) -> Numeric {
        Numeric::read_compact(self.0).unwrap_or(Numeric::NAN)
    }
}

/// The elements of an array.
#[derive(Clone, Copy, Debug)]
pub struct ArrayNode<'a> {
    nodes: Table<'a>,
}

/// The pairs of an object, in key order.
#[derive(Clone, Copy, Debug)]
pub struct ObjectNode<'a> {
    keys: Table<'a>,
    values: Table<'a>,
}

/// Slices behind a table of their ends.
#[derive(Clone, Copy, Debug)]
struct Table<'a> {
    count: usize,
    width: usize,
    ends: &'a [u8],
    payload: &'a [u8],
}

impl<'a> Table<'a> {
    const EMPTY: Table<'static> = Table { count: 0, width: 2, ends: &[], payload: &[] };

    fn end(&self, index: usize) -> usize {
        read_word(self.ends, index, self.width).unwrap_or(0)
    }

    fn get(&self, index: usize) -> Option<&'a [u8]> {
        if index >= self.count {
            return None;
        }
        let start = if index == 0 { 0 } else { self.end(index - 1) };
        self.payload.get(start..self.end(index))
    }
}

fn read_word(bytes: &[u8], index: usize, width: usize) -> Option<usize> {
    let at = index.checked_mul(width)?;
    if width == 2 {
        let (word, _) = bytes.get(at..)?.split_first_chunk::<2>()?;
        Some(usize::from(u16::from_le_bytes(*word)))
    } else {
        let (word, _) = bytes.get(at..)?.split_first_chunk::<4>()?;
        Some(u32::from_le_bytes(*word) as usize)
    }
}

impl<'a> Node<'a> {
    /// Looks at a node's bytes; damaged bytes look like null or an empty container.
    pub fn read(bytes: &'a [u8]) -> Node<'a> {
        Node::find(bytes).unwrap_or(Node::Null)
    }

    fn find(bytes: &'a [u8]) -> Option<Node<'a>> {
        let (tag, rest) = bytes.split_first()?;
        Some(match *tag {
            NULL => Node::Null,
            FALSE => Node::Bool(false),
            TRUE => Node::Bool(true),
            NUMBER => Node::Number(NumberNode(rest)),
            STRING => Node::String(std::str::from_utf8(rest).ok()?),
            ARRAY_SHORT => Node::Array(ArrayNode::find(rest, 2)?),
            ARRAY_LONG => Node::Array(ArrayNode::find(rest, 4)?),
            OBJECT_SHORT => Node::Object(ObjectNode::find(rest, 2)?),
            OBJECT_LONG => Node::Object(ObjectNode::find(rest, 4)?),
            _ => return None,
        })
    }

    /// The name `jsonb_typeof` gives.
    pub fn type_name(self) -> &'static str {
        match self {
            Node::Null => "null",
            Node::Bool(_) => "boolean",
            Node::Number(_) => "number",
            Node::String(_) => "string",
            Node::Array(_) => "array",
            Node::Object(_) => "object",
        }
    }

    /// Whether this is neither an array nor an object.
    pub fn is_scalar(self) -> bool {
        !matches!(self, Node::Array(_) | Node::Object(_))
    }

    /// The value under a key of an object.
    pub fn get_key(self, key: &str) -> Option<Node<'a>> {
        match self {
            Node::Object(object) => object.get(key),
            _ => None,
        }
    }

    /// The element of an array; negative counts from the end.
    pub fn get_index(self, index: i64) -> Option<Node<'a>> {
        let Node::Array(array) = self else { return None };
        let index = if index < 0 { index.checked_add(array.len() as i64)? } else { index };
        array.get(usize::try_from(index).ok()?)
    }
}

impl<'a> ArrayNode<'a> {
    fn find(rest: &'a [u8], width: usize) -> Option<Self> {
        let count = read_word(rest, 0, width)?;
        let (ends, payload) = rest.get(width..)?.split_at_checked(count.checked_mul(width)?)?;
        Some(ArrayNode { nodes: Table { count, width, ends, payload } })
    }

    /// Number of elements.
    pub fn len(self) -> usize {
        self.nodes.count
    }

    /// Whether there are no elements.
    pub fn is_empty(self) -> bool {
        self.nodes.count == 0
    }

    /// The element at an index from 0.
    pub fn get(self, index: usize) -> Option<Node<'a>> {
        self.raw(index).map(Node::read)
    }

    /// The bytes of the element at an index from 0.
    pub(crate) fn raw(self, index: usize) -> Option<&'a [u8]> {
        self.nodes.get(index)
    }

    /// The elements in order.
    pub fn iter(self) -> impl Iterator<Item = Node<'a>> {
        (0..self.len()).map(move |index| self.get(index).unwrap_or(Node::Null))
    }

    fn iter_raw(self) -> impl Iterator<Item = &'a [u8]> {
        (0..self.len()).map(move |index| self.raw(index).unwrap_or(&[NULL]))
    }
}

impl<'a> ObjectNode<'a> {
    fn find(rest: &'a [u8], width: usize) -> Option<Self> {
        let count = read_word(rest, 0, width)?;
        let table = count.checked_mul(width)?;
        let (key_ends, rest) = rest.get(width..)?.split_at_checked(table)?;
        let (value_ends, payload) = rest.split_at_checked(table)?;
        if count == 0 {
            return Some(ObjectNode { keys: Table::EMPTY, values: Table::EMPTY });
        }
        let (keys, values) = payload.split_at_checked(read_word(key_ends, count - 1, width)?)?;
        Some(ObjectNode {
            keys: Table { count, width, ends: key_ends, payload: keys },
            values: Table { count, width, ends: value_ends, payload: values },
        })
    }

    /// Number of pairs.
    pub fn len(self) -> usize {
        self.keys.count
    }

    /// Whether there are no pairs.
    pub fn is_empty(self) -> bool {
        self.keys.count == 0
    }

    /// The value under a key, found by binary search.
    pub fn get(self, key: &str) -> Option<Node<'a>> {
        self.values.get(self.position(key)?).map(Node::read)
    }

    fn position(self, key: &str) -> Option<usize> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = (low + high) / 2;
            match key_order(self.keys.get(middle)?, key.as_bytes()) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => return Some(middle),
            }
        }
        None
    }

    /// The pair at an index from 0, in key order.
    pub fn entry(self, index: usize) -> Option<(&'a str, Node<'a>)> {
        let key = std::str::from_utf8(self.keys.get(index)?).ok()?;
        Some((key, Node::read(self.values.get(index)?)))
    }

    /// The pairs in key order.
    pub fn iter(self) -> impl Iterator<Item = (&'a str, Node<'a>)> {
        (0..self.len()).filter_map(move |index| self.entry(index))
    }

    fn iter_raw(self) -> impl Iterator<Item = (&'a str, &'a [u8])> {
        (0..self.len()).filter_map(move |index| {
            Some((std::str::from_utf8(self.keys.get(index)?).ok()?, self.values.get(index)?))
        })
    }
}

/// PostgreSQL's order of keys inside an object: by length, then bytes.
fn key_order(a: &[u8], b: &[u8]) -> std::cmp::Ordering {
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}

impl Jsonb {
    /// Takes stored bytes as they are. Accessors bear damage; `check` finds it.
    pub fn from_stored(bytes: &[u8]) -> Jsonb {
        Jsonb(Arc::from(bytes))
    }

    /// Takes bytes after checking the whole document.
    pub fn check(bytes: &[u8]) -> Result<Jsonb, ValueError> {
        if check_node(bytes, 0).is_none() {
            return Err(ValueError::new(ValueErrorKind::InvalidBinary, "malformed jsonb document"));
        }
        Ok(Jsonb::from_stored(bytes))
    }

    fn from_vec(bytes: Vec<u8>) -> Jsonb {
        Jsonb(Arc::from(bytes))
    }

    /// The stored bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// A look at the whole document.
    pub fn root(&self) -> Node<'_> {
        Node::read(&self.0)
    }
}

/// Refuses a node nested deeper than documents may be, as PostgreSQL refuses what its stack cannot hold.
fn check_depth(node: &[u8]) -> Result<(), ValueError> {
    if depth_within(Node::read(node), DEPTH_MAX) { Ok(()) } else { Err(too_deep()) }
}

fn too_deep() -> ValueError {
    ValueError::new(ValueErrorKind::TooComplex, "stack depth limit exceeded")
        .with_detail(format!("JSON may be nested {DEPTH_MAX} levels deep."))
}

fn depth_within(node: Node<'_>, levels: usize) -> bool {
    match node {
        Node::Null | Node::Bool(_) | Node::Number(_) | Node::String(_) => true,
        Node::Array(_) | Node::Object(_) if levels == 0 => false,
        Node::Array(array) => array.iter().all(|element| depth_within(element, levels - 1)),
        Node::Object(object) => object.iter().all(|(_, value)| depth_within(value, levels - 1)),
    }
}

/// Whether a node and all below it are well formed.
fn check_node(bytes: &[u8], depth: usize) -> Option<()> {
    if depth > DEPTH_MAX {
        return None;
    }
    match Node::find(bytes)? {
        Node::Null | Node::Bool(_) => (bytes.len() == 1).then_some(()),
        Node::Number(number) => Numeric::read_compact(number.0).filter(Numeric::is_finite).map(|_| ()),
        Node::String(text) => (!text.contains('\0')).then_some(()),
        Node::Array(array) => {
            for index in 0..array.len() {
                check_node(array.raw(index)?, depth + 1)?;
            }
            check_end(array.nodes)
        }
        Node::Object(object) => {
            for index in 0..object.len() {
                let key = object.keys.get(index)?;
                if std::str::from_utf8(key).ok()?.contains('\0') {
                    return None;
                }
                if index > 0 && key_order(object.keys.get(index - 1)?, key).is_ge() {
                    return None;
                }
                check_node(object.values.get(index)?, depth + 1)?;
            }
            check_end(object.values)
        }
    }
}

fn check_end(table: Table<'_>) -> Option<()> {
    let end = if table.count == 0 { 0 } else { table.end(table.count - 1) };
    (end == table.payload.len()).then_some(())
}

#[cfg(test)]
mod tests;
