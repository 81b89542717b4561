//! OR: what all its branches say is said once, beside it; what it says of one relation alone is said there too.
//!
//! What must hold:
//! - `(a AND x) OR (a AND y)` is `a AND (x OR y)` in three-valued logic; a condition that is in every branch must be the
//!   same by structure and not volatile.
//! - A condition that follows from another may be added where only truth counts, as in filters and joins. Nothing is
//!   taken away for it.

use std::collections::BTreeSet;

use model::Type;

use super::shape::{conjuncts, holds_subquery, is_volatile, made, reads, rewrite_queries};
use crate::{
    bind::same,
    expr::{Expr, Kind},
    plan::logical::Logical,
};

/// Factors every condition of a plan.
pub(super) fn factor(mut plan: Logical) -> Logical {
    plan.for_each_expr_mut(&mut |expr| rewrite_queries(expr, &mut factor));
    for input in plan.inputs_mut() {
        let taken = std::mem::replace(input, Logical::one_row());
        *input = factor(taken);
    }
    match &mut plan {
        Logical::Filter { input, condition } => {
            let mut relations = Vec::new();
            collect_relations(input, &mut relations);
            rewrite(condition, &relations);
        }
        Logical::Join(join) => {
            if let Some(on) = &mut join.on {
                let mut relations = Vec::new();
                collect_relations(&join.left, &mut relations);
                collect_relations(&join.right, &mut relations);
                rewrite(on, &relations);
            }
        }
        _ => {}
    }
    plan
}

/// The columns of each relation that is joined.
fn collect_relations(plan: &Logical, into: &mut Vec<BTreeSet<usize>>) {
    match plan {
        Logical::Filter { input, .. } => collect_relations(input, into),
        Logical::Join(join) => {
            collect_relations(&join.left, into);
            if join.kind.gives_right() {
                collect_relations(&join.right, into);
            }
        }
        other => into.push(made(other)),
    }
}

fn rewrite(condition: &mut Expr, relations: &[BTreeSet<usize>]) {
    let taken = std::mem::replace(condition, Expr::bool(true));
    let mut parts = Vec::new();
    for part in conjuncts(taken) {
        let first = parts.len();
        take_out(part, &mut parts);
        for at in first..parts.len() {
            let implied = implied(&parts[at], relations);
            parts.extend(implied);
        }
    }
    for part in &mut parts {
        as_list(part);
    }
    *condition = Expr::and(parts).unwrap_or_else(|| Expr::bool(true));
}

/// An OR as the conditions that all its branches have, and an OR of what is left of them.
fn take_out(condition: Expr, into: &mut Vec<Expr>) {
    let Kind::Or(branches) = condition.kind else {
        into.push(condition);
        return;
    };
    let mut branches: Vec<Vec<Expr>> = branches.into_iter().map(conjuncts).collect();
    let mut common = Vec::new();
    for candidate in branches.first().cloned().unwrap_or_default() {
        let everywhere = branches.iter().all(|branch| branch.iter().any(|part| same(part, &candidate)));
        if everywhere && !is_volatile(&candidate) && !holds_subquery(&candidate) {
            for branch in &mut branches {
                branch.retain(|part| !same(part, &candidate));
            }
            common.push(candidate);
        }
    }
    into.extend(common);
    // A branch without a condition left is true whenever the common ones are.
    let rest: Option<Vec<Expr>> = branches.into_iter().map(Expr::and).collect();
    if let Some(rest) = rest {
        into.push(Expr::new(Kind::Or(rest), Type::Bool));
    }
}

/// What an OR over several relations says of each of them alone.
fn implied(condition: &Expr, relations: &[BTreeSet<usize>]) -> Vec<Expr> {
    let Kind::Or(branches) = &condition.kind else { return Vec::new() };
    let read = reads(condition);
    if relations.iter().filter(|relation| !relation.is_disjoint(&read)).count() < 2 {
        return Vec::new();
    }
    let of_branch = |branch: &Expr, relation: &BTreeSet<usize>| {
        let alone = |part: &Expr| {
            let read = reads(part);
            !read.is_empty() && read.is_subset(relation) && !is_volatile(part) && !holds_subquery(part)
        };
        Expr::and(conjuncts(branch.clone()).into_iter().filter(alone))
    };
    let of_relation = |relation: &BTreeSet<usize>| {
        let parts: Option<Vec<Expr>> = branches.iter().map(|branch| of_branch(branch, relation)).collect();
        parts.map(|parts| Expr::new(Kind::Or(parts), Type::Bool))
    };
    relations.iter().filter_map(of_relation).collect()
}

/// `a = 1 OR a = 2` is `a IN (1, 2)`, which an index can look up.
fn as_list(condition: &mut Expr) {
    let Kind::Or(branches) = &condition.kind else { return };
    let mut column: Option<&Expr> = None;
    let mut list = Vec::new();
    for branch in branches {
        let (at, values) = match &branch.kind {
            Kind::Operator(operator, operands) if operator.symbol == "=" => match &operands[..] {
                [a, b] if a.as_column().is_some() => (a, std::slice::from_ref(b)),
                [a, b] => (b, std::slice::from_ref(a)),
                _ => return,
            },
            Kind::InList { value, list, negated: false } => (value.as_ref(), &list[..]),
            _ => return,
        };
        let fits =
            |value: &Expr| value.ty == at.ty && matches!(value.kind, Kind::Constant(_) | Kind::Parameter(_));
        let known = column.is_none_or(|column| same(column, at));
        if at.as_column().is_none() || !known || !values.iter().all(fits) {
            return;
        }
        column = Some(at);
        list.extend(values.iter().cloned());
    }
    if let Some(column) = column {
        condition.kind = Kind::InList { value: Box::new(column.clone()), list, negated: false };
    }
}
