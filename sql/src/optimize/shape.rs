//! What several rules ask of expressions and plans.

use std::collections::BTreeSet;

use model::Value;

use crate::{
    expr::{Expr, Kind, Query},
    functions::Volatility,
    plan::{
        JoinKind, ScanColumn,
        logical::{Columns, Join, Logical, read_columns},
    },
};

/// The conditions of an AND.
pub(super) fn conjuncts(condition: Expr) -> Vec<Expr> {
    let mut parts = Vec::new();
    condition.split_and(&mut parts);
    parts
}

/// The columns an expression reads.
pub(super) fn reads(expr: &Expr) -> BTreeSet<usize> {
    let mut read = BTreeSet::new();
    read_columns(expr, &mut read);
    read
}

/// The columns a plan gives, as a set.
pub(super) fn made(plan: &Logical) -> BTreeSet<usize> {
    plan.output().into_iter().collect()
}

pub(super) fn is_volatile(expr: &Expr) -> bool {
    expr.volatility() == Volatility::Volatile
}

pub(super) fn holds_subquery(expr: &Expr) -> bool {
    expr.any(&mut |expr| matches!(expr.kind, Kind::Subquery(_)))
}

/// A filter, if there is anything to filter.
pub(super) fn filter(input: Logical, conditions: impl IntoIterator<Item = Expr>) -> Logical {
    match Expr::and(conditions) {
        None => input,
        Some(condition) => Logical::Filter { input: Box::new(input), condition },
    }
}

/// The same rows with exactly these columns in this order.
pub(super) fn keep(plan: Logical, output: &[usize], columns: &Columns) -> Logical {
    if plan.output() == output {
        return plan;
    }
    let items = output.iter().map(|id| (*id, columns.read(*id))).collect();
    Logical::Project { input: Box::new(plan), items }
}

/// Whether a projection only chooses columns, which keep their ids.
pub(super) fn is_choice(items: &[(usize, Expr)]) -> bool {
    items.iter().all(|(id, value)| value.as_column() == Some(*id))
}

/// Whether the right of a join takes columns from its left.
pub(super) fn is_lateral(join: &Join) -> bool {
    let left = made(&join.left);
    !join.right.free().is_disjoint(&left)
}

/// Whether a plan must run exactly as often as it is written: it changes or locks rows, or computes something volatile.
pub(super) fn has_effects(plan: &Logical) -> bool {
    let writes = matches!(
        plan,
        Logical::Insert(_)
            | Logical::Update(_)
            | Logical::Delete(_)
            | Logical::Merge(_)
            | Logical::LockRows { .. }
    );
    let mut found = writes;
    plan.for_each_expr(&mut |expr| {
        found = found || is_volatile(expr) || expr.any(&mut |expr| query_of(expr).is_some_and(has_effects));
    });
    if let Logical::FunctionScan { calls, .. } = plan {
        found = found || calls.iter().any(is_volatile_set);
    }
    if let Logical::ProjectSet { items, .. } = plan {
        found = found || items.iter().any(|(_, call)| is_volatile_set(call));
    }
    found || plan.inputs().into_iter().any(has_effects)
}

fn is_volatile_set(call: &crate::plan::SetExpr) -> bool {
    matches!(call, crate::plan::SetExpr::Set { function, .. } if function.volatility == Volatility::Volatile)
}

/// The bound query of a sub-query.
pub(super) fn query_of(expr: &Expr) -> Option<&Logical> {
    match &expr.kind {
        Kind::Subquery(subquery) => match &subquery.query {
            Query::Logical(query) => Some(query),
            Query::Physical { .. } => None,
        },
        _ => None,
    }
}

/// Rewrites the bound queries inside an expression, outermost only.
pub(super) fn rewrite_queries(expr: &mut Expr, rewrite: &mut dyn FnMut(Logical) -> Logical) {
    if let Kind::Subquery(subquery) = &mut expr.kind
        && let Query::Logical(query) = &mut subquery.query
    {
        let taken = std::mem::replace(query.as_mut(), Logical::one_row());
        **query = rewrite(taken);
    }
    expr.for_each_child_mut(&mut |child| rewrite_queries(child, rewrite));
}

/// Whether a limit leaves the first row: EXISTS and a query of one row do not notice it.
pub(super) fn leaves_one(limit: Option<&Expr>, offset: Option<&Expr>) -> bool {
    let positive = limit.is_none_or(|limit| {
        let count = limit.as_constant();
        count.is_some_and(|count| {
            matches!(count, Value::Null) || count.as_i64().is_some_and(|count| count >= 1)
        })
    });
    offset.is_none() && positive
}

/// Whether an expression over the columns of a plan is null for none of its rows, as far as the schema says.
pub(super) fn never_null(expr: &Expr, plan: &Logical) -> bool {
    match &expr.kind {
        Kind::Constant(value) => !value.is_null(),
        Kind::Column(id) => column_never_null(*id, plan),
        Kind::Cast { value, .. } => never_null(value, plan),
        _ => false,
    }
}

fn column_never_null(id: usize, plan: &Logical) -> bool {
    match plan {
        Logical::Scan(scan) => scan.columns.iter().any(|(at, column)| {
            let required = |number| {
                let in_key =
                    scan.table.key().is_some_and(|key| key.parts.iter().any(|part| part.column == number));
                in_key || scan.table.column(number).not_null
            };
            *at == id && matches!(column, ScanColumn::Column(number) if required(*number))
        }),
        Logical::Filter { input, .. }
        | Logical::Sort { input, .. }
        | Logical::Limit { input, .. }
        | Logical::Distinct { input }
        | Logical::DistinctOn { input, .. } => column_never_null(id, input),
        Logical::Project { input, items } => {
            items.iter().any(|(at, value)| *at == id && never_null(value, input))
        }
        Logical::Aggregate(aggregate) if aggregate.sets.is_none() => {
            aggregate.groups.iter().any(|(at, value)| *at == id && never_null(value, &aggregate.input))
        }
        Logical::Join(join) => {
            let left = || column_never_null(id, &join.left);
            let right = || column_never_null(id, &join.right);
            match join.kind {
                JoinKind::Inner => left() || right(),
                JoinKind::Left
                | JoinKind::Single
                | JoinKind::Semi
                | JoinKind::Anti
                | JoinKind::NullAwareAnti => left(),
                JoinKind::Right => right(),
                JoinKind::Full => false,
            }
        }
        _ => false,
    }
}
