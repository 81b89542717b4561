//! `(SELECT aggregate … WHERE key = value of the row)`: the aggregate is computed once for every key, and joined, if that is
//! expected to cost less than running the sub-query for each row.

use std::collections::{BTreeMap, BTreeSet};

use model::{Type, Value};

use super::{
    super::{
        join_order::join_order,
        push_down::push_down,
        shape::{has_effects, holds_subquery, leaves_one, made, reads},
    },
    Decorrelate,
};
use crate::{
    cost,
    expr::{Expr, Kind, Query, SubqueryKind},
    plan::{
        AggregateCall, JoinKind,
        logical::{Aggregate, Join, Logical},
        lower,
    },
};

/// What a scalar sub-query becomes.
struct Scalar {
    right: Logical,
    on: Vec<Expr>,
    value: Expr,
}

/// Aggregates that are null over no rows.
const NULL_OF_NOTHING: &[&str] = &[
    "array_agg",
    "avg",
    "bool_and",
    "bool_or",
    "every",
    "json_agg",
    "jsonb_agg",
    "max",
    "min",
    "stddev",
    "stddev_pop",
    "stddev_samp",
    "string_agg",
    "sum",
    "var_pop",
    "var_samp",
    "variance",
];

impl Decorrelate<'_> {
    /// Puts joined columns in the place of the scalar sub-queries in an expression over a plan.
    pub(super) fn scalars(&mut self, mut plan: Logical, expr: &mut Expr) -> Logical {
        if let Kind::Subquery(subquery) = &expr.kind {
            let found = match (&subquery.kind, &subquery.query) {
                (SubqueryKind::Scalar, Query::Logical(query)) => self.scalar(&plan, query),
                _ => None,
            };
            if let Some(Scalar { right, on, value }) = found {
                *expr = value;
                let join = Join {
                    kind: JoinKind::Left,
                    left: Box::new(plan),
                    right: Box::new(right),
                    on: Expr::and(on),
                    null_aware: None,
                };
                return Logical::Join(join);
            }
        }
        expr.for_each_child_mut(&mut |child| {
            let taken = std::mem::replace(&mut plan, Logical::one_row());
            plan = self.scalars(taken, child);
        });
        plan
    }

    fn scalar(&mut self, input: &Logical, query: &Logical) -> Option<Scalar> {
        let outer = made(input);
        if query.free().is_disjoint(&outer) || has_effects(query) {
            return None;
        }
        let [id] = query.output()[..] else { return None };
        let (mut value, aggregate) = self.over_aggregate(id, query)?;
        let Aggregate { input: core, groups, sets: None, aggregates, grouping } = aggregate else {
            return None;
        };
        if !groups.is_empty() || !grouping.is_empty() || holds_subquery(&value) {
            return None;
        }
        let takes = |expr: &Expr| !reads(expr).is_disjoint(&outer);
        let fits = |call: &AggregateCall| {
            let mut parts =
                call.arguments.iter().chain(&call.filter).chain(call.order.iter().map(|key| &key.value));
            is_known(call) && parts.all(|part| !takes(part) && !may_fail(part) && !holds_subquery(part))
        };
        if !aggregates.iter().all(|(_, call)| fits(call)) {
            return None;
        }
        let (core, conditions) = self.pulled(*core, &outer)?;
        let own = made(&core);
        let mut groups: Vec<(usize, Expr)> = Vec::new();
        let mut on = Vec::new();
        for mut condition in conditions {
            let inside = key_side(&mut condition, &own, &outer)?;
            let id = match inside.as_column() {
                Some(id) => id,
                None => self.columns.add("?column?", inside.ty, inside.typmod),
            };
            let key = std::mem::replace(inside, Expr::column(id, inside.ty, inside.typmod));
            if !groups.iter().any(|(at, _)| *at == id) {
                groups.push((id, key));
            }
            on.push(condition);
        }
        let counts: BTreeSet<usize> =
            aggregates.iter().filter(|(_, call)| call.function.name == "count").map(|(id, _)| *id).collect();
        zero_for_nothing(&mut value, &counts);
        let right =
            Logical::Aggregate(Aggregate { input: Box::new(core), groups, sets: None, aggregates, grouping });
        self.pays(input, query, &right).then_some(Scalar { right, on, value })
    }

    /// A query of one row as an expression over its aggregate.
    fn over_aggregate(&self, id: usize, query: &Logical) -> Option<(Expr, Aggregate)> {
        let mut value = self.columns.read(id);
        let mut at = query;
        loop {
            at = match at {
                Logical::Project { input, items } => {
                    let by_id: BTreeMap<usize, &Expr> =
                        items.iter().map(|(id, value)| (*id, value)).collect();
                    substitute(&mut value, &by_id);
                    input
                }
                Logical::Sort { input, .. } => input,
                Logical::Limit { input, limit, offset, ties: None }
                    if leaves_one(limit.as_ref(), offset.as_ref()) =>
                {
                    input
                }
                Logical::Aggregate(aggregate) => return Some((value, aggregate.clone())),
                _ => return None,
            };
        }
    }

    /// Whether computing every group is cheaper than running the sub-query for each row.
    fn pays(&self, input: &Logical, query: &Logical, groups: &Logical) -> bool {
        let outer = cost::rows(input, self.statistics, self.columns);
        let run = |plan: &Logical| {
            let plan = join_order(push_down(plan.clone()), self.columns, self.statistics);
            lower::estimate(plan, self.columns, self.statistics)
        };
        let (Ok(one), Ok(whole)) = (run(query), run(groups)) else { return false };
        whole + outer * 2.0 < outer * (one + cost::LOOKUP)
    }
}

/// Whether what an aggregate gives over no rows is known.
fn is_known(call: &AggregateCall) -> bool {
    call.function.name == "count" || NULL_OF_NOTHING.contains(&call.function.name)
}

/// Whether an expression may fail for rows that are never asked for: division, and text that is no number.
fn may_fail(expr: &Expr) -> bool {
    expr.any(&mut |expr| match &expr.kind {
        Kind::Operator(operator, _) => matches!(operator.symbol, "/" | "%"),
        Kind::Cast { value, .. } => {
            matches!(value.ty, Type::Text | Type::Varchar | Type::Bpchar)
                && value.ty != expr.ty
                && expr.ty != Type::Text
        }
        Kind::Call(..) => true,
        _ => false,
    })
}

/// The side of an equality that the sub-query computes, if the other is of the row around it.
fn key_side<'e>(
    condition: &'e mut Expr,
    own: &BTreeSet<usize>,
    outer: &BTreeSet<usize>,
) -> Option<&'e mut Expr> {
    let Kind::Operator(operator, operands) = &mut condition.kind else { return None };
    let [a, b] = &mut operands[..] else { return None };
    let alike = a.ty == b.ty || (a.ty.is_integer() && b.ty.is_integer());
    if operator.symbol != "=" || !alike || a.ty == Type::Bpchar {
        return None;
    }
    let is_own = |expr: &Expr| {
        let read = reads(expr);
        !read.is_empty() && read.is_subset(own)
    };
    let is_outer = |expr: &Expr| {
        let read = reads(expr);
        read.is_disjoint(own) && !read.is_disjoint(outer)
    };
    if is_own(a) && is_outer(b) && !may_fail(a) {
        Some(a)
    } else if is_own(b) && is_outer(a) && !may_fail(b) {
        Some(b)
    } else {
        None
    }
}

fn substitute(expr: &mut Expr, by_id: &BTreeMap<usize, &Expr>) {
    if let Kind::Column(id) = expr.kind {
        if let Some(value) = by_id.get(&id) {
            *expr = (*value).clone();
        }
        return;
    }
    expr.for_each_child_mut(&mut |child| substitute(child, by_id));
}

/// A count that found no group is 0.
fn zero_for_nothing(expr: &mut Expr, counts: &BTreeSet<usize>) {
    match expr.kind {
        Kind::Column(id) if counts.contains(&id) => {
            let (ty, typmod) = (expr.ty, expr.typmod);
            let count = std::mem::replace(expr, Expr::constant(Value::Int8(0), ty));
            let zero = expr.clone();
            *expr = Expr { kind: Kind::Coalesce(vec![count, zero]), ty, typmod };
        }
        _ => expr.for_each_child_mut(&mut |child| zero_for_nothing(child, counts)),
    }
}
