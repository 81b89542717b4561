//! The search for the cheapest order: every connected sub-set up to [`DP_MAX`] leaves, greedy beyond.
//!
//! The rows of a sub-set are estimated from its leaves and conditions alone, so that they do not depend on the order.

use std::{cell::RefCell, collections::BTreeMap};

use super::{super::shape::conjuncts, Classes, Edge};
use crate::{
    cost,
    expr::Expr,
    plan::{
        access,
        logical::{Columns, Logical},
    },
    stats::Statistics,
};

/// Up to how many leaves every order is weighed.
const DP_MAX: usize = 8;
/// What making a row of a join costs.
const GIVE: f64 = 0.5;
/// What reading a row into a hash table costs, and finding one in it.
const BUILD: f64 = 1.5;
const PROBE: f64 = 1.0;

/// A tree of joins.
#[derive(Clone, Debug)]
pub(super) enum Tree {
    Leaf(usize),
    Join(Box<Tree>, Box<Tree>),
}

impl Tree {
    pub(super) fn leaves(&self) -> u64 {
        match self {
            Self::Leaf(at) => 1 << at,
            Self::Join(left, right) => left.leaves() | right.leaves(),
        }
    }
}

/// What is joined, and by what.
pub(super) struct Graph<'a> {
    leaves: &'a [Logical],
    classes: &'a Classes,
    edges: &'a [Edge],
    statistics: &'a Statistics,
    columns: &'a Columns,
    rows: Vec<f64>,
    reading: Vec<f64>,
    /// Per class and member: how many different values.
    distinct: Vec<Vec<f64>>,
    /// Per edge: the share of pairs it keeps.
    share: Vec<f64>,
    /// What finding the rows of a leaf by these classes costs.
    lookups: RefCell<BTreeMap<(usize, u64), Option<f64>>>,
}

/// The best way to join a sub-set.
#[derive(Clone, Copy)]
struct Best {
    cost: f64,
    split: Option<(u64, u64)>,
}

impl<'a> Graph<'a> {
    pub(super) fn new(
        leaves: &'a [Logical],
        classes: &'a Classes,
        edges: &'a [Edge],
        statistics: &'a Statistics,
        columns: &'a Columns,
    ) -> Self {
        let rows: Vec<f64> =
            leaves.iter().map(|leaf| cost::rows(leaf, statistics, columns).max(1.0)).collect();
        let reading =
            leaves.iter().map(|leaf| cost::BEGIN + cost::reading(leaf, statistics, columns)).collect();
        let of_class = |members: &[(usize, Expr)]| -> Vec<f64> {
            let all: Vec<&Expr> = members.iter().map(|(_, column)| column).collect();
            let values = cost::distinct_equal(&all, statistics, columns);
            values
                .into_iter()
                .zip(members)
                .map(|(distinct, (leaf, _))| distinct.min(rows[*leaf]).max(1.0))
                .collect()
        };
        let distinct = classes.all.iter().map(|class| of_class(&class.members)).collect();
        let share =
            edges.iter().map(|edge| cost::selectivity(&edge.condition, statistics, columns)).collect();
        Self {
            leaves,
            classes,
            edges,
            statistics,
            columns,
            rows,
            reading,
            distinct,
            share,
            lookups: RefCell::default(),
        }
    }

    /// The cheapest order.
    pub(super) fn cheapest(&self) -> Tree {
        if self.leaves.len() > DP_MAX {
            return self.greedy();
        }
        self.exhaustive(false).or_else(|| self.exhaustive(true)).unwrap_or_else(|| self.greedy())
    }

    /// How many rows a sub-set gives.
    fn rows_of(&self, part: u64) -> f64 {
        let has = |leaf: usize| part & (1 << leaf) != 0;
        let mut rows: f64 =
            self.rows.iter().enumerate().filter(|(at, _)| has(*at)).map(|(_, rows)| rows).product();
        for (class, distinct) in self.classes.all.iter().zip(&self.distinct) {
            let mut inside: Vec<f64> = class
                .members
                .iter()
                .zip(distinct)
                .filter(|((leaf, _), _)| has(*leaf))
                .map(|(_, distinct)| *distinct)
                .collect();
            inside.sort_by(f64::total_cmp);
            rows /= inside.iter().skip(1).product::<f64>();
        }
        for (edge, share) in self.edges.iter().zip(&self.share) {
            if edge.leaves & !part == 0 {
                rows *= share;
            }
        }
        rows.max(1.0)
    }

    /// Whether something must hold between two sub-sets, and whether that is an equality.
    fn link(&self, a: u64, b: u64) -> (bool, bool) {
        let equal =
            self.classes.all.iter().any(|class| class.member(a).is_some() && class.member(b).is_some());
        let touches =
            |edge: &&Edge| edge.leaves & a != 0 && edge.leaves & b != 0 && edge.leaves & !(a | b) == 0;
        let hashed = |edge: &Edge| is_hashed(edge, a, b, self.leaves);
        let mut edges = self.edges.iter().filter(touches);
        let hashed = equal || edges.clone().any(hashed);
        (equal || edges.next().is_some(), hashed)
    }

    /// What joining costs: `right` is built, or looked up by key for each row of `left`.
    fn join_cost(&self, left: (u64, f64), right: (u64, f64)) -> f64 {
        let ((a, cost_a), (b, cost_b)) = (left, right);
        let (rows_a, rows_b) = (self.rows_of(a), self.rows_of(b));
        let whole = match self.link(a, b) {
            (_, true) => cost_b + rows_a * PROBE + rows_b * BUILD,
            _ => cost_b + rows_b + rows_a * rows_b,
        };
        let work = match self.lookup(a, b) {
            Some(each) => whole.min(rows_a * each),
            None => whole,
        };
        cost_a + work + self.rows_of(a | b) * GIVE
    }

    /// What finding the rows of a single leaf for one row of another part costs, if its key allows it.
    fn lookup(&self, from: u64, leaf: u64) -> Option<f64> {
        if leaf.count_ones() != 1 {
            return None;
        }
        let at = leaf.trailing_zeros() as usize;
        let linked =
            |class: &super::classes::Class| class.member(from).is_some() && class.member(leaf).is_some();
        let mut by = 0_u64;
        for (place, class) in self.classes.all.iter().enumerate().take(64) {
            if linked(class) {
                by |= 1 << place;
            }
        }
        if by == 0 {
            return None;
        }
        *self.lookups.borrow_mut().entry((at, by)).or_insert_with(|| self.find_lookup(at, by))
    }

    fn find_lookup(&self, at: usize, by: u64) -> Option<f64> {
        let (scan, mut conditions) = match &self.leaves[at] {
            Logical::Scan(scan) => (scan, Vec::new()),
            Logical::Filter { input, condition } => match input.as_ref() {
                Logical::Scan(scan) => (scan, conjuncts(condition.clone())),
                _ => return None,
            },
            _ => return None,
        };
        let leaf = 1_u64 << at;
        for (place, class) in self.classes.all.iter().enumerate().take(64) {
            if by & (1 << place) != 0 {
                let (own, other) = (class.member(leaf)?, class.member(!leaf)?);
                conditions.push(class.equality(own, other));
            }
        }
        let chosen = access::choose(scan, conditions, None, self.statistics, self.columns);
        cost::sought(&chosen.access, chosen.cost)
    }

    fn exhaustive(&self, cross: bool) -> Option<Tree> {
        let count = self.leaves.len();
        let mut best: Vec<Option<Best>> = vec![None; 1 << count];
        for (at, cost) in self.reading.iter().enumerate() {
            best[1 << at] = Some(Best { cost: *cost, split: None });
        }
        for part in 1..1_usize << count {
            if part.count_ones() < 2 {
                continue;
            }
            let mut left = (part - 1) & part;
            while left > 0 {
                let right = part & !left;
                let (a, b) = (left as u64, right as u64);
                if let (Some(x), Some(y)) = (best[left], best[right])
                    && (cross || self.link(a, b).0)
                {
                    let cost = self.join_cost((a, x.cost), (b, y.cost));
                    if best[part].is_none_or(|best| cost < best.cost) {
                        best[part] = Some(Best { cost, split: Some((a, b)) });
                    }
                }
                left = (left - 1) & part;
            }
        }
        let whole = (1_u64 << count) - 1;
        best[whole as usize]?;
        Some(tree_of(whole, &best))
    }

    /// Joins what gives the fewest rows, again and again.
    fn greedy(&self) -> Tree {
        let mut parts: Vec<(Tree, f64)> =
            self.reading.iter().enumerate().map(|(at, cost)| (Tree::Leaf(at), *cost)).collect();
        while parts.len() > 1 {
            let mut pick: Option<(bool, f64, f64, usize, usize)> = None;
            for (i, (left, cost_left)) in parts.iter().enumerate() {
                for (j, (right, cost_right)) in parts.iter().enumerate() {
                    if i == j {
                        continue;
                    }
                    let (a, b) = (left.leaves(), right.leaves());
                    let apart = !self.link(a, b).0;
                    let rows = self.rows_of(a | b);
                    let cost = self.join_cost((a, *cost_left), (b, *cost_right));
                    let better = pick.is_none_or(|(other_apart, other_rows, other_cost, ..)| {
                        (apart, rows, cost) < (other_apart, other_rows, other_cost)
                    });
                    if better {
                        pick = Some((apart, rows, cost, i, j));
                    }
                }
            }
            let Some((_, _, cost, i, j)) = pick else { break };
            let (later, earlier) = (parts.swap_remove(i.max(j)), parts.swap_remove(i.min(j)));
            let (left, right) = if i < j { (earlier, later) } else { (later, earlier) };
            parts.push((Tree::Join(Box::new(left.0), Box::new(right.0)), cost));
        }
        parts.pop().map_or(Tree::Leaf(0), |(tree, _)| tree)
    }
}

/// Whether an edge is an equality that a hash join of two parts can use.
fn is_hashed(edge: &Edge, a: u64, b: u64, leaves: &[Logical]) -> bool {
    let made = |part: u64| {
        let inside = leaves.iter().enumerate().filter(|(at, _)| part & (1 << at) != 0);
        inside.flat_map(|(_, leaf)| leaf.output()).collect()
    };
    crate::plan::lower::equi_pair(&edge.condition, &made(a), &made(b)).is_some()
}

fn tree_of(part: u64, best: &[Option<Best>]) -> Tree {
    match best[part as usize].and_then(|best| best.split) {
        Some((left, right)) => Tree::Join(Box::new(tree_of(left, best)), Box::new(tree_of(right, best))),
        None => Tree::Leaf(part.trailing_zeros() as usize),
    }
}
