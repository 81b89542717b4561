//! Paths into documents: `->`, `->>`, `#>`, `#>>`.

use super::{Jsonb, Node};

impl Jsonb {
    /// The value under a key: `-> 'key'`.
    pub fn get_key(&self, key: &str) -> Option<Jsonb> {
        self.root().get_key(key).map(Node::to_jsonb)
    }

    /// The element at an index, negative from the end: `-> 1`.
    pub fn get_index(&self, index: i64) -> Option<Jsonb> {
        self.find_index(index).map(Node::to_jsonb)
    }

    /// The node `get_index` copies. A scalar document counts as an array of itself, as in PostgreSQL.
    pub fn find_index(&self, index: i64) -> Option<Node<'_>> {
        let root = self.root();
        if root.is_scalar() { matches!(index, 0 | -1).then_some(root) } else { root.get_index(index) }
    }

    /// The node at a path: `#>`. The empty path is the whole document.
    pub fn find_path<'a>(&'a self, path: impl IntoIterator<Item = &'a str>) -> Option<Node<'a>> {
        path.into_iter().try_fold(self.root(), step)
    }
}

/// One step of a path: a key of an object, an index of an array.
fn step<'a>(node: Node<'a>, step: &str) -> Option<Node<'a>> {
    match node {
        Node::Object(object) => object.get(step),
        Node::Array(_) => node.get_index(parse_index(step)?),
        Node::Null | Node::Bool(_) | Node::Number(_) | Node::String(_) => None,
    }
}

/// An index as `strtol` reads it for PostgreSQL: blanks before, a sign, digits.
pub(super) fn parse_index(step: &str) -> Option<i64> {
    step.trim_start().parse::<i32>().ok().map(i64::from)
}
