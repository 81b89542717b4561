//! Columns that are equal in every row of a join tree.

use model::Type;

use super::leaf_of;
use crate::{
    expr::{Expr, Kind},
    functions::Operator,
    plan::logical::Logical,
};

/// A class: columns of one type.
#[derive(Debug)]
pub(super) struct Class {
    pub(super) operator: &'static Operator,
    /// The leaf and the column; after [`Classes::settle`] one per leaf.
    pub(super) members: Vec<(usize, Expr)>,
}

/// All classes of a tree.
#[derive(Default, Debug)]
pub(super) struct Classes {
    pub(super) all: Vec<Class>,
}

impl Class {
    /// The first member among some leaves.
    pub(super) fn member(&self, leaves: u64) -> Option<&Expr> {
        self.members.iter().find(|(leaf, _)| leaves & (1 << leaf) != 0).map(|(_, column)| column)
    }

    pub(super) fn equality(&self, a: &Expr, b: &Expr) -> Expr {
        Expr::new(Kind::Operator(self.operator, vec![a.clone(), b.clone()]), Type::Bool)
    }
}

impl Classes {
    /// Takes a condition in if it is an equality of two columns of one type.
    pub(super) fn take(&mut self, condition: &Expr, leaves: &[Logical]) -> bool {
        let Kind::Operator(operator, operands) = &condition.kind else { return false };
        let [a, b] = &operands[..] else { return false };
        let (Some(x), Some(y)) = (a.as_column(), b.as_column()) else { return false };
        let (Some(leaf_a), Some(leaf_b)) = (leaf_of(x, leaves), leaf_of(y, leaves)) else { return false };
        if operator.symbol != "=" || a.ty != b.ty {
            return false;
        }
        let find = |id: usize| {
            self.all.iter().position(|class| class.members.iter().any(|(_, at)| at.as_column() == Some(id)))
        };
        match (find(x), find(y)) {
            (Some(at), Some(other)) if at == other => {}
            (Some(at), Some(other)) => {
                let merged = self.all.swap_remove(at.max(other));
                self.all[at.min(other)].members.extend(merged.members);
            }
            (Some(at), None) => self.all[at].members.push((leaf_b, b.clone())),
            (None, Some(at)) => self.all[at].members.push((leaf_a, a.clone())),
            (None, None) => {
                self.all.push(Class { operator, members: vec![(leaf_a, a.clone()), (leaf_b, b.clone())] });
            }
        }
        true
    }

    /// Says inside each leaf what the classes say of it alone: members of one leaf are equal, and a constant that one
    /// member equals is equal to the members of the other leaves.
    pub(super) fn settle(&mut self, leaves: &[Logical], local: &mut [Vec<Expr>]) {
        for class in &mut self.all {
            let mut seen: Vec<(usize, Expr)> = Vec::new();
            let mut equalities = Vec::new();
            for (leaf, column) in std::mem::take(&mut class.members) {
                match seen.iter().find(|(at, _)| *at == leaf) {
                    Some((_, first)) => equalities.push((leaf, first.clone(), column)),
                    None => seen.push((leaf, column)),
                }
            }
            class.members = seen;
            for (leaf, first, second) in equalities {
                let equality = class.equality(&first, &second);
                local[leaf].push(equality);
            }
            let Some((from, known, condition)) = class.constant(leaves, local) else { continue };
            for (leaf, column) in class.members.iter().filter(|(leaf, _)| *leaf != from) {
                let mut same = condition.clone();
                put(&mut same, known, column);
                local[*leaf].push(same);
            }
        }
    }

    /// The equalities that join two parts of a tree.
    pub(super) fn between(&self, left: u64, right: u64) -> Vec<Expr> {
        let of_class = |class: &Class| Some(class.equality(class.member(left)?, class.member(right)?));
        self.all.iter().filter_map(of_class).collect()
    }
}

impl Class {
    /// A condition by which a member equals a constant or parameter: the member's leaf, its column, the condition.
    fn constant(&self, leaves: &[Logical], local: &[Vec<Expr>]) -> Option<(usize, usize, Expr)> {
        self.members.iter().find_map(|(leaf, column)| {
            let id = column.as_column()?;
            let mut conditions: Vec<&Expr> = local[*leaf].iter().collect();
            if let Logical::Filter { condition, .. } = &leaves[*leaf] {
                match &condition.kind {
                    Kind::And(parts) => conditions.extend(parts),
                    _ => conditions.push(condition),
                }
            }
            let condition = conditions.into_iter().find(|condition| fixes(id, condition))?;
            Some((*leaf, id, condition.clone()))
        })
    }
}

/// Whether a condition says that a column equals a constant or parameter.
fn fixes(id: usize, condition: &Expr) -> bool {
    let Kind::Operator(operator, operands) = &condition.kind else { return false };
    let [a, b] = &operands[..] else { return false };
    let is_fixed = |value: &Expr| matches!(value.kind, Kind::Constant(_) | Kind::Parameter(_));
    let pair = a.as_column() == Some(id) && is_fixed(b) || b.as_column() == Some(id) && is_fixed(a);
    operator.symbol == "=" && pair
}

/// Puts one column in the place of another of its type.
fn put(condition: &mut Expr, known: usize, column: &Expr) {
    if condition.as_column() == Some(known) {
        *condition = column.clone();
        return;
    }
    condition.for_each_child_mut(&mut |child| put(child, known, column));
}
