//! Order, hash and containment of documents, as PostgreSQL defines them.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

use super::{ArrayNode, Jsonb, Node};

impl Jsonb {
    /// PostgreSQL's B-tree order: object > array > boolean > number > string > null; containers by size first.
    /// An empty array at the root sorts below scalars, as it does there.
    pub fn cmp_sql(&self, other: &Jsonb) -> Ordering {
        let (a, b) = (self.root(), other.root());
        match (a, b) {
            // A scalar document counts as an array of one element that sorts before real ones.
            (Node::Array(array), scalar) if scalar.is_scalar() => array.len().cmp(&1).then(Ordering::Greater),
            (scalar, Node::Array(array)) if scalar.is_scalar() => 1.cmp(&array.len()).then(Ordering::Less),
            _ => cmp_nodes(a, b),
        }
    }

    /// Hashes so that documents equal under `cmp_sql` hash alike.
    pub fn hash_sql<H: Hasher>(&self, state: &mut H) {
        hash_node(self.root(), state);
    }

    /// Whether `other` is contained in this document: `@>`.
    pub fn contains(&self, other: &Jsonb) -> bool {
        match (self.root(), other.root()) {
            // At the root, an array contains a scalar that is one of its elements.
            (Node::Array(array), scalar) if scalar.is_scalar() => contains_element(array, scalar),
            (a, b) => contains_node(a, b),
        }
    }

    /// Whether the key or string exists at the top: `?`.
    pub fn exists(&self, key: &str) -> bool {
        match self.root() {
            Node::Object(object) => object.get(key).is_some(),
            Node::Array(array) => {
                array.iter().any(|element| matches!(element, Node::String(text) if text == key))
            }
            Node::String(text) => text == key,
            Node::Null | Node::Bool(_) | Node::Number(_) => false,
        }
    }
}

fn rank(node: Node<'_>) -> u8 {
    match node {
        Node::Null => 0,
        Node::String(_) => 1,
        Node::Number(_) => 2,
        Node::Bool(_) => 3,
        Node::Array(_) => 4,
        Node::Object(_) => 5,
    }
}

fn cmp_nodes(a: Node<'_>, b: Node<'_>) -> Ordering {
    match (a, b) {
        (Node::Bool(a), Node::Bool(b)) => a.cmp(&b),
        (Node::Number(a), Node::Number(b)) => a.to_numeric().cmp_sql(&b.to_numeric()),
        (Node::String(a), Node::String(b)) => a.as_bytes().cmp(b.as_bytes()),
        (Node::Array(a), Node::Array(b)) => a.len().cmp(&b.len()).then_with(|| {
            a.iter()
                .zip(b.iter())
                .map(|(a, b)| cmp_nodes(a, b))
                .find(|order| order.is_ne())
                .unwrap_or(Ordering::Equal)
        }),
        (Node::Object(a), Node::Object(b)) => a.len().cmp(&b.len()).then_with(|| {
            let pairs = a.iter().zip(b.iter());
            let orders = pairs.map(|((a_key, a), (b_key, b))| {
                a_key.as_bytes().cmp(b_key.as_bytes()).then_with(|| cmp_nodes(a, b))
            });
            orders.into_iter().find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
        }),
        _ => rank(a).cmp(&rank(b)),
    }
}

fn hash_node<H: Hasher>(node: Node<'_>, state: &mut H) {
    state.write_u8(rank(node));
    match node {
        Node::Null => {}
        Node::Bool(value) => state.write_u8(u8::from(value)),
        Node::Number(number) => number.to_numeric().hash_sql(state),
        Node::String(text) => text.hash(state),
        Node::Array(array) => {
            state.write_usize(array.len());
            array.iter().for_each(|element| hash_node(element, state));
        }
        Node::Object(object) => {
            state.write_usize(object.len());
            for (key, value) in object.iter() {
                key.hash(state);
                hash_node(value, state);
            }
        }
    }
}

fn contains_node(a: Node<'_>, b: Node<'_>) -> bool {
    match (a, b) {
        (Node::Object(a), Node::Object(b)) => {
            b.len() <= a.len()
                && b.iter().all(|(key, wanted)| a.get(key).is_some_and(|found| contains_node(found, wanted)))
        }
        (Node::Array(a), Node::Array(b)) => b.iter().all(|wanted| contains_element(a, wanted)),
        _ => cmp_nodes(a, b).is_eq(),
    }
}

fn contains_element(array: ArrayNode<'_>, wanted: Node<'_>) -> bool {
    if wanted.is_scalar() {
        array.iter().any(|element| element.is_scalar() && cmp_nodes(element, wanted).is_eq())
    } else {
        array.iter().any(|element| !element.is_scalar() && contains_node(element, wanted))
    }
}
