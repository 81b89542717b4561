//! Join order: a tree of inner joins is taken apart into what is joined and what must hold, and put together again in the
//! order that is expected to be the cheapest.
//!
//! What must hold:
//! - Only inner joins commute freely, and only without LATERAL references. Outer joins are leaves; their sides are trees of
//!   their own.
//! - A semi or anti join only leaves rows of its left out, so it may stand anywhere above the columns it reads: a semi join
//!   on a leaf if it leaves out most of its rows, else above the whole tree. How many rows an anti join leaves out is not
//!   known well enough.
//! - Equalities of columns of one type form classes: all members of a class are equal in every row, so one equality between
//!   two parts of a tree stands for all, and a constant one member equals is equal to the others.
//! - A condition with a sub-query is evaluated above the tree, on the fewest rows.

mod classes;
mod search;

use super::shape::{
    conjuncts, filter, holds_subquery, is_choice, is_lateral, is_volatile, keep, made, reads, rewrite_queries,
};
use crate::{
    cost,
    expr::Expr,
    plan::{
        JoinKind,
        logical::{Columns, Join, Logical},
    },
    stats::Statistics,
};

use classes::Classes;
use search::{Graph, Tree};

/// A condition that more than one leaf is needed for.
struct Edge {
    /// Which leaves.
    leaves: u64,
    condition: Expr,
}

/// A semi or anti join that was taken off a tree.
struct Reducer {
    kind: JoinKind,
    right: Logical,
    on: Option<Expr>,
    null_aware: Option<(Expr, Expr)>,
}

/// More leaves than this are joined as written.
const LEAVES_MAX: usize = 60;
/// A semi join that leaves at most this share of a leaf's rows stands on the leaf.
const SHARE_MAX: f64 = 0.5;

/// Orders all joins of a plan.
pub(super) fn join_order(plan: Logical, columns: &Columns, statistics: &Statistics) -> Logical {
    JoinOrder { columns, statistics }.plan(plan)
}

struct JoinOrder<'a> {
    columns: &'a Columns,
    statistics: &'a Statistics,
}

impl JoinOrder<'_> {
    fn plan(&self, mut plan: Logical) -> Logical {
        if is_tree(&plan) && (2..=LEAVES_MAX).contains(&count_leaves(&plan)) {
            return self.tree(plan);
        }
        plan.for_each_expr_mut(&mut |expr| rewrite_queries(expr, &mut |query| self.plan(query)));
        for input in plan.inputs_mut() {
            let taken = std::mem::replace(input, Logical::one_row());
            *input = self.plan(taken);
        }
        plan
    }

    fn tree(&self, plan: Logical) -> Logical {
        let output = plan.output();
        let (mut leaves, mut conditions, mut reducers) = (Vec::new(), Vec::new(), Vec::new());
        take_apart(plan, &mut leaves, &mut conditions, &mut reducers);
        let mut leaves: Vec<Logical> = leaves.into_iter().map(|leaf| self.plan(leaf)).collect();
        let mut above = Vec::new();
        let mut local: Vec<Vec<Expr>> = vec![Vec::new(); leaves.len()];
        let mut edges = Vec::new();
        let mut classes = Classes::default();
        for mut condition in conditions {
            if holds_subquery(&condition) {
                rewrite_queries(&mut condition, &mut |query| self.plan(query));
                above.push(condition);
                continue;
            }
            let needed = leaves_of(&condition, &leaves);
            match needed.count_ones() {
                0 => above.push(condition),
                1 => local[needed.trailing_zeros() as usize].push(condition),
                _ if classes.take(&condition, &leaves) => {}
                _ => edges.push(Edge { leaves: needed, condition }),
            }
        }
        classes.settle(&leaves, &mut local);
        leaves = leaves.into_iter().zip(local).map(|(leaf, conditions)| filter(leaf, conditions)).collect();
        let reducers: Vec<Reducer> =
            reducers.into_iter().rev().filter_map(|reducer| self.reduce_leaf(reducer, &mut leaves)).collect();
        let graph = Graph::new(&leaves, &classes, &edges, self.statistics, self.columns);
        let tree = graph.cheapest();
        let mut leaves: Vec<Option<Logical>> = leaves.into_iter().map(Some).collect();
        let mut plan = build(&tree, &mut leaves, &classes, &edges);
        for Reducer { kind, right, on, null_aware } in reducers {
            plan = Logical::Join(Join { kind, left: Box::new(plan), right: Box::new(right), on, null_aware });
        }
        keep(filter(plan, above), &output, self.columns)
    }

    /// Puts a reducer on the one leaf it reads, if that leaves most of its rows out; else gives it back.
    fn reduce_leaf(&self, reducer: Reducer, leaves: &mut [Logical]) -> Option<Reducer> {
        let Reducer { kind, right, on, null_aware } = reducer;
        let right = self.plan(right);
        let mut needed = on.as_ref().map_or(0, |on| leaves_of(on, leaves));
        if let Some((left, _)) = &null_aware {
            needed |= leaves_of(left, leaves);
        }
        if needed.count_ones() != 1 || kind != JoinKind::Semi {
            return Some(Reducer { kind, right, on, null_aware });
        }
        let at = needed.trailing_zeros() as usize;
        let leaf = std::mem::replace(&mut leaves[at], Logical::one_row());
        let before = cost::rows(&leaf, self.statistics, self.columns);
        let join = Join { kind, left: Box::new(leaf), right: Box::new(right), on, null_aware };
        let joined = Logical::Join(join);
        let after = cost::rows(&joined, self.statistics, self.columns);
        match joined {
            Logical::Join(join) if after > before * SHARE_MAX => {
                leaves[at] = *join.left;
                Some(Reducer { kind, right: *join.right, on: join.on, null_aware: join.null_aware })
            }
            joined => {
                leaves[at] = joined;
                None
            }
        }
    }
}

/// The leaves whose columns an expression reads.
fn leaves_of(expr: &Expr, leaves: &[Logical]) -> u64 {
    let read = reads(expr);
    let mut needed = 0;
    for (at, leaf) in leaves.iter().enumerate() {
        if leaf.output().iter().any(|id| read.contains(id)) {
            needed |= 1 << at;
        }
    }
    needed
}

/// Whether a plan is inner joins, with nothing but what may move around them.
fn is_tree(plan: &Logical) -> bool {
    match plan {
        Logical::Join(join) => match join.kind {
            JoinKind::Inner => !join.on.as_ref().is_some_and(is_volatile) && !is_lateral(join),
            JoinKind::Semi | JoinKind::Anti | JoinKind::NullAwareAnti => {
                is_reducer(join) && is_tree(&join.left)
            }
            JoinKind::Left | JoinKind::Right | JoinKind::Full | JoinKind::Single => false,
        },
        Logical::Filter { input, condition } => !is_volatile(condition) && is_tree(input),
        Logical::Project { input, items } => is_choice(items) && is_tree(input),
        _ => false,
    }
}

fn is_reducer(join: &Join) -> bool {
    let steady = |expr: &Expr| !is_volatile(expr) && !holds_subquery(expr);
    join.on.iter().all(steady) && !is_lateral(join)
}

fn count_leaves(plan: &Logical) -> usize {
    match plan {
        Logical::Join(join) if is_tree(plan) && join.kind == JoinKind::Inner => {
            count_leaves(&join.left) + count_leaves(&join.right)
        }
        Logical::Join(join) if is_movable(plan) => count_leaves(&join.left),
        Logical::Filter { input, .. } | Logical::Project { input, .. } if is_tree(plan) => {
            count_leaves(input)
        }
        _ => 1,
    }
}

/// Whether it is a semi or anti join that may move up a tree.
fn is_movable(plan: &Logical) -> bool {
    match plan {
        Logical::Join(join) => {
            matches!(join.kind, JoinKind::Semi | JoinKind::Anti | JoinKind::NullAwareAnti) && is_reducer(join)
        }
        _ => false,
    }
}

fn take_apart(
    plan: Logical,
    leaves: &mut Vec<Logical>,
    conditions: &mut Vec<Expr>,
    reducers: &mut Vec<Reducer>,
) {
    let tree = is_tree(&plan);
    let movable = is_movable(&plan);
    match plan {
        Logical::Join(join) if tree && join.kind == JoinKind::Inner => {
            conditions.extend(join.on.map(conjuncts).unwrap_or_default());
            take_apart(*join.left, leaves, conditions, reducers);
            take_apart(*join.right, leaves, conditions, reducers);
        }
        Logical::Join(Join { kind, left, right, on, null_aware }) if movable => {
            reducers.push(Reducer { kind, right: *right, on, null_aware });
            take_apart(*left, leaves, conditions, reducers);
        }
        Logical::Filter { input, condition } if tree => {
            conditions.extend(conjuncts(condition));
            take_apart(*input, leaves, conditions, reducers);
        }
        Logical::Project { input, .. } if tree => take_apart(*input, leaves, conditions, reducers),
        leaf => leaves.push(leaf),
    }
}

/// The joins of a tree, with every condition at the lowest join that sees its columns.
fn build(tree: &Tree, leaves: &mut [Option<Logical>], classes: &Classes, edges: &[Edge]) -> Logical {
    match tree {
        Tree::Leaf(at) => leaves[*at].take().unwrap_or_else(Logical::one_row),
        Tree::Join(left, right) => {
            let (a, b) = (left.leaves(), right.leaves());
            let mut on = classes.between(a, b);
            let seen = |part: u64, edge: &Edge| edge.leaves & !part == 0;
            let here = edges.iter().filter(|edge| seen(a | b, edge) && !seen(a, edge) && !seen(b, edge));
            on.extend(here.map(|edge| edge.condition.clone()));
            let (left, right) = (build(left, leaves, classes, edges), build(right, leaves, classes, edges));
            Logical::Join(Join {
                kind: JoinKind::Inner,
                left: Box::new(left),
                right: Box::new(right),
                on: Expr::and(on),
                null_aware: None,
            })
        }
    }
}

/// The place of the leaf that gives a column.
fn leaf_of(id: usize, leaves: &[Logical]) -> Option<usize> {
    leaves.iter().position(|leaf| made(leaf).contains(&id))
}
