//! Constant folding: what depends on nothing is computed once, when planning.
//!
//! What would fail is left as it is; [`failure`] says whether the statement must fail for it.

use std::collections::BTreeSet;

use model::{Error, Value};

use crate::{
    context::Context,
    eval,
    expr::{Expr, Kind, Query},
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

/// The error of the first constant of a folded plan that has no value. As in PostgreSQL the statement then fails before it
/// runs, whether a row would have needed the constant or not, unless a constant beside it says that none can.
pub(crate) fn failure(plan: &mut Logical, context: &mut Context) -> Option<Error> {
    let mut found = None;
    if let Logical::With { expressions, input } = plan {
        // What nobody reads is not looked at.
        let mut read = BTreeSet::new();
        input.for_each_inside(&mut |plan| note_read(plan, &mut read));
        for table in &*expressions {
            table.plan.for_each_inside(&mut |plan| note_read(plan, &mut read));
        }
        for table in expressions.iter_mut().filter(|table| table.writes || read.contains(&table.id)) {
            found = found.or_else(|| failure(&mut table.plan, context));
        }
        return found.or_else(|| failure(input, context));
    }
    plan.for_each_expr_mut(&mut |expr| {
        if found.is_none() {
            found = failure_in(expr, context);
        }
    });
    for input in plan.inputs_mut() {
        found = found.or_else(|| failure(input, context));
    }
    found
}

fn note_read(plan: &Logical, read: &mut BTreeSet<usize>) {
    if let Logical::CteScan { id, .. } = plan {
        read.insert(*id);
    }
}

fn failure_in(expr: &mut Expr, context: &mut Context) -> Option<Error> {
    let decided =
        |part: &Expr, by: bool| matches!(part.as_constant(), Some(Value::Bool(value)) if *value == by);
    match &mut expr.kind {
        Kind::Subquery(subquery) => {
            if let Query::Logical(query) = &mut subquery.query
                && let Some(error) = failure(query, context)
            {
                return Some(error);
            }
        }
        Kind::And(parts) => return first_failure(parts, context, |part| decided(part, false)),
        Kind::Or(parts) => return first_failure(parts, context, |part| decided(part, true)),
        Kind::Coalesce(parts) => {
            return first_failure(parts, context, |part| {
                part.as_constant().is_some_and(|value| !value.is_null())
            });
        }
        Kind::Case { branches, otherwise } => {
            for (condition, result) in branches {
                if let Some(error) = failure_in(condition, context) {
                    return Some(error);
                }
                if condition.as_constant().is_some() && !decided(condition, true) {
                    continue;
                }
                let is_last = decided(condition, true);
                let error = failure_in(result, context);
                if error.is_some() || is_last {
                    return error;
                }
            }
            return failure_in(otherwise, context);
        }
        _ => {}
    }
    let mut found = None;
    expr.for_each_child_mut(&mut |child| {
        if found.is_none() {
            found = failure_in(child, context);
        }
    });
    // What could be computed is a constant by now.
    if found.is_none() && is_foldable(expr) {
        found = eval::value(context, expr, &[]).err();
    }
    found
}

fn first_failure(parts: &mut [Expr], context: &mut Context, ends: impl Fn(&Expr) -> bool) -> Option<Error> {
    for part in parts {
        let error = failure_in(part, context);
        if error.is_some() || ends(part) {
            return error;
        }
    }
    None
}

/// Whether all operands are constants and the result never changes.
fn is_foldable(expr: &Expr) -> bool {
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
