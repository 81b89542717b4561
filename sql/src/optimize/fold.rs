//! Constant folding: what depends on nothing is computed once, when planning.
//!
//! What would fail is left as it is; [`super::failure`] says whether the statement must fail for it.

use model::Value;

use crate::{
    context::Context,
    eval,
    expr::{Expr, Kind, Query, SubqueryKind},
    functions::{Body, Volatility},
    plan::logical::Logical,
};

/// Folds every expression of a plan.
pub(crate) fn fold(plan: &mut Logical, context: &mut Context) {
    plan.for_each_expr_mut(&mut |expr| fold_expr(expr, context));
    for input in plan.inputs_mut() {
        fold(input, context);
    }
}

/// Folds one expression.
pub(crate) fn fold_expr(expr: &mut Expr, context: &mut Context) {
    if let Kind::Subquery(subquery) = &mut expr.kind
        && let Query::Logical(query) = &mut subquery.query
    {
        if matches!(subquery.kind, SubqueryKind::Exists) {
            drop_outputs(query);
        }
        fold(query, context);
    }
    expr.for_each_child_mut(&mut |child| fold_expr(child, context));
    simplify(expr);
    if is_foldable(expr)
        && let Ok(value) = eval::value(context, expr, &[])
    {
        expr.kind = Kind::Constant(value);
    }
}

/// Leaves of a query that EXISTS asks only what says whether there are rows: PostgreSQL does not look at the rest either.
fn drop_outputs(query: &mut Logical) {
    while is_for_outputs(query)
        && let Some(input) = query.inputs_mut().pop()
    {
        *query = std::mem::replace(input, Logical::one_row());
    }
}

/// Whether a node changes what is in the rows of a query, or their number, but never whether there are any.
pub(super) fn is_for_outputs(query: &Logical) -> bool {
    match query {
        Logical::Project { input, .. }
        | Logical::Sort { input, .. }
        | Logical::Distinct { input }
        | Logical::DistinctOn { input, .. } => !needs_outputs(input),
        Logical::Limit { input, limit: Some(limit), offset: None, .. } => {
            let some = limit.as_constant().and_then(Value::as_i64).is_some_and(|limit| limit > 0);
            some && !needs_outputs(input)
        }
        Logical::Aggregate(aggregate) => !needs_outputs(query) && !needs_outputs(&aggregate.input),
        _ => false,
    }
}

/// Whether what a query asks is asked of groups, windows or other queries as a whole: all its columns then count.
pub(super) fn needs_outputs(query: &Logical) -> bool {
    match query {
        Logical::Project { input, .. }
        | Logical::Sort { input, .. }
        | Logical::Distinct { input }
        | Logical::DistinctOn { input, .. }
        | Logical::Limit { input, .. } => needs_outputs(input),
        Logical::Filter { input, .. } => matches!(**input, Logical::Aggregate(_)),
        Logical::Aggregate(aggregate) => {
            aggregate.groups.is_empty() || !aggregate.aggregates.is_empty() || aggregate.sets.is_some()
        }
        Logical::Window(_)
        | Logical::SetOperation { .. }
        | Logical::ProjectSet { .. }
        | Logical::Recursive { .. }
        | Logical::With { .. }
        | Logical::LockRows { .. } => true,
        Logical::Values { .. }
        | Logical::Empty { .. }
        | Logical::Scan(_)
        | Logical::SystemScan { .. }
        | Logical::FunctionScan { .. }
        | Logical::CteScan { .. }
        | Logical::Join(_)
        | Logical::Insert(_)
        | Logical::Update(_)
        | Logical::Delete(_)
        | Logical::Merge(_) => false,
    }
}

/// Whether all operands are constants and the result never changes.
pub(super) fn is_foldable(expr: &Expr) -> bool {
    let whole = match &expr.kind {
        Kind::Column(_) | Kind::Outer(_) | Kind::Parameter(_) | Kind::Constant(_) | Kind::Subquery(_) => {
            false
        }
        Kind::Call(function, _) => {
            function.volatility == Volatility::Immutable && matches!(function.body, Body::Scalar(_))
        }
        Kind::Operator(operator, _) => operator.volatility == Volatility::Immutable,
        Kind::Row(_) => false,
        _ => true,
    };
    let mut constant = true;
    expr.for_each_child(&mut |child| constant = constant && child.as_constant().is_some());
    whole && constant && expr.volatility() == Volatility::Immutable
}

/// `x AND true` is x, `x AND false` is false, and the like.
fn simplify(expr: &mut Expr) {
    let taken = std::mem::replace(&mut expr.kind, Kind::Constant(Value::Null));
    expr.kind = match taken {
        Kind::And(parts) => join(parts, false),
        Kind::Or(parts) => join(parts, true),
        Kind::Not(inner) => match inner.kind {
            Kind::Not(value) => value.kind,
            Kind::IsNull { value, negated } => Kind::IsNull { value, negated: !negated },
            Kind::InList { value, list, negated } => Kind::InList { value, list, negated: !negated },
            kind => Kind::Not(Box::new(Expr { kind, ..*inner })),
        },
        kind => kind,
    };
}

/// AND (`decides` false) or OR (`decides` true) of parts, without those that change nothing.
fn join(parts: Vec<Expr>, decides: bool) -> Kind {
    let mut kept = Vec::with_capacity(parts.len());
    for part in parts {
        match part.as_constant() {
            Some(Value::Bool(value)) if *value == decides => return Kind::Constant(Value::Bool(decides)),
            Some(Value::Bool(_)) => {}
            _ => kept.push(part),
        }
    }
    match kept.len() {
        0 => Kind::Constant(Value::Bool(!decides)),
        1 => kept.remove(0).kind,
        _ if decides => Kind::Or(kept),
        _ => Kind::And(kept),
    }
}
