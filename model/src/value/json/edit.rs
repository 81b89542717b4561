//! Changed documents: `||`, `-`, `#-`, `jsonb_set`, `jsonb_insert`, `jsonb_strip_nulls`.
//!
//! A change copies the nodes it keeps as they are; nothing is printed and parsed again.

use super::build::{ArrayBuilder, ObjectBuilder, finish};
use super::path::parse_index;
use super::{ArrayNode, Jsonb, Node, ObjectNode};
use crate::value::{ValueError, ValueErrorKind};

/// What a change does at the end of its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetMode {
    /// `jsonb_set(…, true)`: replaces, or adds a missing key or element.
    SetOrCreate,
    /// `jsonb_set(…, false)`: replaces only.
    Set,
    /// `jsonb_insert(…)`: adds before an element; a key that exists is an error.
    InsertBefore,
    /// `jsonb_insert(…, true)`: adds after an element; a key that exists is an error.
    InsertAfter,
}

#[derive(Clone, Copy)]
enum Change<'a> {
    Put(&'a [u8], SetMode),
    Delete,
}

impl Change<'_> {
    /// Whether a missing key or element is made.
    fn adds(self) -> bool {
        matches!(self, Change::Put(_, mode) if mode != SetMode::Set)
    }
}

fn parameter(message: impl Into<String>) -> ValueError {
    ValueError::parameter(message.into())
}

impl Jsonb {
    /// `a || b`: objects merge at the top, arrays join, scalars count as arrays of one.
    pub fn concat(&self, other: &Jsonb) -> Result<Jsonb, ValueError> {
        match (self.root(), other.root()) {
            (Node::Object(a), Node::Object(b)) => {
                let mut object = ObjectBuilder::default();
                let pairs = a.iter_raw().chain(b.iter_raw());
                pairs.for_each(|(key, node)| object.set_raw(key.to_owned(), node.to_vec()));
                object.try_finish()
            }
            (a, b) => {
                let mut array = ArrayBuilder::default();
                append(&mut array, a, self);
                append(&mut array, b, other);
                array.try_finish()
            }
        }
    }

    /// `doc - 'key'`: without that key, or without the strings equal to it.
    pub fn delete_key(&self, key: &str) -> Result<Jsonb, ValueError> {
        self.delete_keys(&[key])
    }

    /// `doc - array['a', 'b']`.
    pub fn delete_keys(&self, keys: &[&str]) -> Result<Jsonb, ValueError> {
        match self.root() {
            Node::Object(object) => Ok(without_keys(object, keys)),
            Node::Array(array) => {
                let mut kept = ArrayBuilder::default();
                for raw in array.iter_raw() {
                    let dropped = matches!(Node::read(raw), Node::String(text) if keys.contains(&text));
                    if !dropped {
                        kept.push_raw(raw);
                    }
                }
                Ok(kept.finish())
            }
            Node::Null | Node::Bool(_) | Node::Number(_) | Node::String(_) => {
                Err(parameter("cannot delete from scalar"))
            }
        }
    }

    /// `doc - 1`: without the element at that index, negative from the end.
    pub fn delete_index(&self, index: i64) -> Result<Jsonb, ValueError> {
        match self.root() {
            Node::Array(array) => {
                let at = if index < 0 { index + array.len() as i64 } else { index };
                let mut kept = ArrayBuilder::default();
                for (position, raw) in array.iter_raw().enumerate() {
                    if position as i64 != at {
                        kept.push_raw(raw);
                    }
                }
                Ok(kept.finish())
            }
            Node::Object(_) => Err(parameter("cannot delete from object using integer index")),
            Node::Null | Node::Bool(_) | Node::Number(_) | Node::String(_) => {
                Err(parameter("cannot delete from scalar"))
            }
        }
    }

    /// `doc #- path`.
    pub fn delete_path(&self, path: &[&str]) -> Result<Jsonb, ValueError> {
        if self.root().is_scalar() {
            return Err(parameter("cannot delete path in scalar"));
        }
        self.change(path, Change::Delete)
    }

    /// `jsonb_set` and `jsonb_insert`, by mode.
    pub fn set_path(&self, path: &[&str], value: &Jsonb, mode: SetMode) -> Result<Jsonb, ValueError> {
        if self.root().is_scalar() {
            return Err(parameter("cannot set path in scalar"));
        }
        self.change(path, Change::Put(value.as_bytes(), mode))
    }

    fn change(&self, path: &[&str], change: Change<'_>) -> Result<Jsonb, ValueError> {
        let empty = match self.root() {
            Node::Array(array) => array.is_empty(),
            Node::Object(object) => object.is_empty(),
            Node::Null | Node::Bool(_) | Node::Number(_) | Node::String(_) => false,
        };
        if path.is_empty() || (empty && !change.adds()) {
            return Ok(self.clone());
        }
        finish(change_node(self.as_bytes(), path, 1, change)?)
    }

    /// `jsonb_strip_nulls`: without pairs whose value is null, at every depth; elements stay.
    pub fn strip_nulls(&self) -> Jsonb {
        Jsonb::from_vec(strip(self.root()))
    }
}

fn append(array: &mut ArrayBuilder, node: Node<'_>, whole: &Jsonb) {
    match node {
        Node::Array(elements) => elements.iter_raw().for_each(|raw| array.push_raw(raw)),
        _ => array.push(whole),
    }
}

fn without_keys(object: ObjectNode<'_>, keys: &[&str]) -> Jsonb {
    let mut kept = ObjectBuilder::default();
    for (key, raw) in object.iter_raw().filter(|(key, _)| !keys.contains(key)) {
        kept.set_raw(key.to_owned(), raw.to_vec());
    }
    kept.finish()
}

/// The changed copy of a node; `position` counts the path's steps from 1, for messages.
fn change_node(
    raw: &[u8],
    path: &[&str],
    position: usize,
    change: Change<'_>,
) -> Result<Vec<u8>, ValueError> {
    let Some((step, rest)) = path.split_first() else {
        return Ok(raw.to_vec());
    };
    match Node::read(raw) {
        Node::Object(object) => change_object(object, step, rest, position, change),
        Node::Array(array) => change_array(array, step, rest, position, change),
        Node::Null | Node::Bool(_) | Node::Number(_) | Node::String(_) => Ok(raw.to_vec()),
    }
}

fn change_object(
    object: ObjectNode<'_>,
    step: &str,
    rest: &[&str],
    position: usize,
    change: Change<'_>,
) -> Result<Vec<u8>, ValueError> {
    let mut changed = ObjectBuilder::default();
    let mut found = false;
    for (key, raw) in object.iter_raw() {
        if key != step {
            changed.set_raw(key.to_owned(), raw.to_vec());
            continue;
        }
        found = true;
        if !rest.is_empty() {
            changed.set_raw(key.to_owned(), change_node(raw, rest, position + 1, change)?);
            continue;
        }
        match change {
            Change::Delete => {}
            Change::Put(_, SetMode::InsertBefore | SetMode::InsertAfter) => {
                return Err(parameter("cannot replace existing key")
                    .with_hint("Try using the function jsonb_set to replace key value."));
            }
            Change::Put(node, SetMode::Set | SetMode::SetOrCreate) => {
                changed.set_raw(key.to_owned(), node.to_vec())
            }
        }
    }
    if !found
        && rest.is_empty()
        && let Change::Put(node, SetMode::SetOrCreate | SetMode::InsertBefore | SetMode::InsertAfter) = change
    {
        changed.set_raw(step.to_owned(), node.to_vec());
    }
    Ok(changed.into_node())
}

fn change_array(
    array: ArrayNode<'_>,
    step: &str,
    rest: &[&str],
    position: usize,
    change: Change<'_>,
) -> Result<Vec<u8>, ValueError> {
    let Some(index) = parse_index(step) else {
        let message = format!("path element at position {position} is not an integer: \"{step}\"");
        return Err(ValueError::new(ValueErrorKind::InvalidText, message));
    };
    let count = array.len() as i64;
    // Before the first element counts as the first place of all.
    let at = if index >= 0 { index } else { (index + count).max(-1) };
    let mut changed = ArrayBuilder::default();
    let adds = change.adds();
    if at < 0
        && rest.is_empty()
        && adds
        && let Change::Put(node, _) = change
    {
        changed.push_raw(node);
    }
    for (place, raw) in array.iter_raw().enumerate() {
        if place as i64 != at {
            changed.push_raw(raw);
        } else if !rest.is_empty() {
            changed.push_raw(&change_node(raw, rest, position + 1, change)?);
        } else {
            match change {
                Change::Delete => {}
                Change::Put(node, SetMode::Set | SetMode::SetOrCreate) => changed.push_raw(node),
                Change::Put(node, SetMode::InsertBefore) => {
                    changed.push_raw(node);
                    changed.push_raw(raw);
                }
                Change::Put(node, SetMode::InsertAfter) => {
                    changed.push_raw(raw);
                    changed.push_raw(node);
                }
            }
        }
    }
    if at >= count
        && rest.is_empty()
        && adds
        && let Change::Put(node, _) = change
    {
        changed.push_raw(node);
    }
    Ok(changed.into_node())
}

fn strip(node: Node<'_>) -> Vec<u8> {
    match node {
        Node::Object(object) => {
            let mut kept = ObjectBuilder::default();
            for (key, value) in object.iter().filter(|(_, value)| !matches!(value, Node::Null)) {
                kept.set_raw(key.to_owned(), strip(value));
            }
            kept.into_node()
        }
        Node::Array(array) => {
            let mut kept = ArrayBuilder::default();
            array.iter().for_each(|element| kept.push_raw(&strip(element)));
            kept.into_node()
        }
        _ => node.to_node(),
    }
}
