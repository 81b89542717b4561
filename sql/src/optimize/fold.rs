//! Constant folding: what depends on nothing is computed once, when planning.
//!
//! What would fail is left as it is: it must fail only if a row needs it.

use model::Value;

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
