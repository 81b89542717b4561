//! Predicate pushdown: conditions move to where their rows are made, WHERE conditions of a join become its own.
//!
//! What must not move:
//! - through the null-extended side of an outer join (apache/datafusion#13211 lost rows so); a condition there that no null
//!   row passes turns the outer join into an inner one instead;
//! - below LIMIT, DISTINCT ON, windows (unless over the partition), set-returning lists, or what changes or locks rows;
//! - if it is volatile.

use std::collections::{BTreeMap, BTreeSet};

use model::Value;

use super::shape::{holds_subquery, is_volatile};
use crate::{
    expr::{Expr, Kind, Query},
    plan::{
        JoinKind,
        logical::{Join, Logical, read_columns},
    },
};

/// Pushes every condition of a plan down.
pub(crate) fn push_down(plan: Logical) -> Logical {
    push(plan, Vec::new())
}

/// Pushes conditions into a plan whose columns they read.
fn push(plan: Logical, mut conditions: Vec<Expr>) -> Logical {
    match plan {
        Logical::Filter { input, condition } => {
            let mut own = Vec::new();
            let mut condition = condition;
            enter_subqueries(&mut condition);
            condition.split_and(&mut own);
            let (stay, go): (Vec<Expr>, Vec<Expr>) = own.into_iter().partition(is_volatile);
            conditions.extend(go);
            if stay.is_empty() {
                return push(*input, conditions);
            }
            filter(push(*input, conditions), stay)
        }
        Logical::Join(join) => push_join(join, conditions),
        Logical::Project { input, mut items } => {
            items.iter_mut().for_each(|(_, value)| enter_subqueries(value));
            let by_id: BTreeMap<usize, &Expr> = items.iter().map(|(id, value)| (*id, value)).collect();
            let (go, stay): (Vec<Expr>, Vec<Expr>) = conditions.into_iter().partition(|condition| {
                let mut read = BTreeSet::new();
                read_columns(condition, &mut read);
                read.iter().all(|id| by_id.get(id).is_none_or(|value| !is_volatile(value) && !costs(value)))
                    && !holds_subquery(condition)
            });
            let go = go.into_iter().map(|mut condition| {
                substitute(&mut condition, &by_id);
                condition
            });
            let input = push(*input, go.collect());
            filter(Logical::Project { input: Box::new(input), items }, stay)
        }
        Logical::Aggregate(mut aggregate) => {
            // A condition on groups alone holds for all rows of a group or for none.
            let groups: BTreeMap<usize, &Expr> =
                aggregate.groups.iter().map(|(id, value)| (*id, value)).collect();
            let grouped = !aggregate.groups.is_empty() && aggregate.sets.is_none();
            let (go, stay): (Vec<Expr>, Vec<Expr>) = conditions.into_iter().partition(|condition| {
                let mut read = BTreeSet::new();
                read_columns(condition, &mut read);
                let made: BTreeSet<usize> = aggregate
                    .aggregates
                    .iter()
                    .map(|(id, _)| *id)
                    .chain(aggregate.grouping.iter().map(|(id, _)| *id))
                    .collect();
                grouped
                    && !holds_subquery(condition)
                    && read.is_disjoint(&made)
                    && read.iter().any(|id| groups.contains_key(id))
            });
            let go: Vec<Expr> = go
                .into_iter()
                .map(|mut condition| {
                    substitute(&mut condition, &groups);
                    condition
                })
                .collect();
            aggregate.input = Box::new(push(*aggregate.input, go));
            filter(Logical::Aggregate(aggregate), stay)
        }
        Logical::Sort { input, keys } => Logical::Sort { input: Box::new(push(*input, conditions)), keys },
        Logical::Distinct { input } => Logical::Distinct { input: Box::new(push(*input, conditions)) },
        Logical::With { mut expressions, input } => {
            for common in &mut expressions {
                let plan = std::mem::replace(&mut common.plan, Logical::one_row());
                common.plan = push(plan, Vec::new());
            }
            Logical::With { expressions, input: Box::new(push(*input, conditions)) }
        }
        Logical::SetOperation { kind, all, left, right, columns } => {
            let (left_ids, right_ids) = (left.output(), right.output());
            let (go, stay): (Vec<Expr>, Vec<Expr>) =
                conditions.into_iter().partition(|condition| !holds_subquery(condition));
            let into = |ids: &[usize], side: Logical| {
                let renamed = go.iter().map(|condition| rename(condition.clone(), &columns, ids)).collect();
                Box::new(push(side, renamed))
            };
            let (left, right) = (into(&left_ids, *left), into(&right_ids, *right));
            filter(Logical::SetOperation { kind, all, left, right, columns }, stay)
        }
        Logical::Window(mut window) => {
            // A condition on the partition keeps whole partitions.
            let partition: BTreeSet<usize> = window.partition.iter().filter_map(Expr::as_column).collect();
            let (go, stay): (Vec<Expr>, Vec<Expr>) = conditions.into_iter().partition(|condition| {
                let mut read = BTreeSet::new();
                read_columns(condition, &mut read);
                let own: BTreeSet<usize> = window.input.output().into_iter().collect();
                !holds_subquery(condition)
                    && read.intersection(&own).all(|id| partition.contains(id))
                    && read.iter().any(|id| partition.contains(id))
                    && read.is_subset(&partition)
            });
            window.input = Box::new(push(*window.input, go));
            filter(Logical::Window(window), stay)
        }
        Logical::Scan(_) | Logical::SystemScan { .. } => filter(plan, conditions),
        Logical::Values { .. }
        | Logical::Empty { .. }
        | Logical::FunctionScan { .. }
        | Logical::CteScan { .. } => {
            let mut plan = plan;
            plan.for_each_expr_mut(&mut enter_subqueries);
            filter(plan, conditions)
        }
        mut other => {
            other.for_each_expr_mut(&mut enter_subqueries);
            for input in other.inputs_mut() {
                let taken = std::mem::replace(input, Logical::one_row());
                *input = push(taken, Vec::new());
            }
            filter(other, conditions)
        }
    }
}

/// A filter over a plan, if there is anything to filter.
fn filter(plan: Logical, conditions: Vec<Expr>) -> Logical {
    match Expr::and(conditions) {
        None => plan,
        Some(condition) => match condition.as_constant() {
            Some(Value::Bool(true)) => plan,
            Some(Value::Bool(false) | Value::Null) if is_pure(&plan) => {
                Logical::Empty { columns: plan.output() }
            }
            _ => Logical::Filter { input: Box::new(plan), condition },
        },
    }
}

fn is_pure(plan: &Logical) -> bool {
    let writes = matches!(
        plan,
        Logical::Insert(_)
            | Logical::Update(_)
            | Logical::Delete(_)
            | Logical::Merge(_)
            | Logical::LockRows { .. }
    );
    !writes && plan.inputs().into_iter().all(is_pure)
}

fn push_join(join: Join, conditions: Vec<Expr>) -> Logical {
    let Join { mut kind, left, right, on, null_aware } = join;
    let left_ids: BTreeSet<usize> = left.output().into_iter().collect();
    let right_ids: BTreeSet<usize> = right.output().into_iter().collect();
    let mut own = Vec::new();
    if let Some(mut on) = on {
        enter_subqueries(&mut on);
        on.split_and(&mut own);
    }
    // An outer join whose null rows are all thrown away is an inner one.
    let rejects = |ids: &BTreeSet<usize>| conditions.iter().any(|condition| rejects_null(condition, ids));
    kind = match kind {
        JoinKind::Left if rejects(&right_ids) => JoinKind::Inner,
        JoinKind::Right if rejects(&left_ids) => JoinKind::Inner,
        JoinKind::Full => match (rejects(&left_ids), rejects(&right_ids)) {
            (true, true) => JoinKind::Inner,
            (true, false) => JoinKind::Left,
            (false, true) => JoinKind::Right,
            (false, false) => JoinKind::Full,
        },
        kind => kind,
    };
    let reads_only = |condition: &Expr, other: &BTreeSet<usize>| {
        let mut read = BTreeSet::new();
        read_columns(condition, &mut read);
        read.is_disjoint(other)
    };
    let stays_low = |condition: &Expr| {
        let of = |side: &Logical, other: &BTreeSet<usize>| reads_only(condition, other) && !is_join(side);
        of(&left, &right_ids) || of(&right, &left_ids)
    };
    let (mut to_left, mut to_right, mut to_on, mut above) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for condition in conditions {
        let left_only = reads_only(&condition, &right_ids);
        let right_only = reads_only(&condition, &left_ids);
        match kind {
            // A sub-query is run on the rows that joining leaves, unless it is of one relation.
            JoinKind::Inner if holds_subquery(&condition) && !stays_low(&condition) => above.push(condition),
            JoinKind::Inner if left_only && !right_only => to_left.push(condition),
            JoinKind::Inner if right_only && !left_only => to_right.push(condition),
            JoinKind::Inner if left_only => above.push(condition),
            JoinKind::Inner => to_on.push(condition),
            JoinKind::Left | JoinKind::Semi | JoinKind::Anti | JoinKind::NullAwareAnti | JoinKind::Single
                if left_only =>
            {
                to_left.push(condition);
            }
            JoinKind::Right if right_only => to_right.push(condition),
            _ => above.push(condition),
        }
    }
    let mut on = Vec::new();
    for condition in own.into_iter().chain(to_on) {
        if is_volatile(&condition) {
            on.push(condition);
            continue;
        }
        let left_only = reads_only(&condition, &right_ids);
        let right_only = reads_only(&condition, &left_ids);
        match kind {
            JoinKind::Inner | JoinKind::Semi if left_only && !right_only => to_left.push(condition),
            JoinKind::Inner | JoinKind::Semi | JoinKind::Left | JoinKind::Anti | JoinKind::Single
                if right_only && !left_only =>
            {
                to_right.push(condition);
            }
            JoinKind::Right if left_only && !right_only => to_left.push(condition),
            _ => on.push(condition),
        }
    }
    let left = Box::new(push(*left, to_left));
    let right = Box::new(push(*right, to_right));
    filter(Logical::Join(Join { kind, left, right, on: Expr::and(on), null_aware }), above)
}

/// Whether a condition is never true when all of these columns are null.
fn rejects_null(condition: &Expr, ids: &BTreeSet<usize>) -> bool {
    match &condition.kind {
        Kind::And(parts) => parts.iter().any(|part| rejects_null(part, ids)),
        Kind::Or(parts) => parts.iter().all(|part| rejects_null(part, ids)),
        Kind::IsNull { value, negated: true } => is_null_with(value, ids),
        Kind::IsTruth { value, truth: Some(_), negated: false } => is_null_with(value, ids),
        Kind::InList { value, .. } => is_null_with(value, ids),
        _ => is_null_with(condition, ids),
    }
}

/// Whether an expression is null whenever all of these columns are.
fn is_null_with(expr: &Expr, ids: &BTreeSet<usize>) -> bool {
    match &expr.kind {
        Kind::Column(id) => ids.contains(id),
        Kind::Operator(_, operands) => operands.iter().any(|operand| is_null_with(operand, ids)),
        Kind::Call(function, arguments) => {
            function.strict && arguments.iter().any(|argument| is_null_with(argument, ids))
        }
        Kind::Cast { value, .. } => is_null_with(value, ids),
        Kind::Not(value) => is_null_with(value, ids),
        _ => false,
    }
}

fn is_join(plan: &Logical) -> bool {
    match plan {
        Logical::Join(_) => true,
        Logical::Filter { input, .. } | Logical::Project { input, .. } => is_join(input),
        _ => false,
    }
}

/// Whether computing it twice would cost more than filtering late.
fn costs(expr: &Expr) -> bool {
    holds_subquery(expr)
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

fn rename(mut expr: Expr, from: &[usize], to: &[usize]) -> Expr {
    rename_in_place(&mut expr, from, to);
    expr
}

fn rename_in_place(expr: &mut Expr, from: &[usize], to: &[usize]) {
    if let Kind::Column(id) = &mut expr.kind {
        if let Some(place) = from.iter().position(|at| at == id) {
            *id = to[place];
        }
        return;
    }
    expr.for_each_child_mut(&mut |child| rename_in_place(child, from, to));
}

/// Pushes down inside the sub-queries of an expression.
fn enter_subqueries(expr: &mut Expr) {
    if let Kind::Subquery(subquery) = &mut expr.kind
        && let Query::Logical(query) = &mut subquery.query
    {
        let taken = std::mem::replace(query.as_mut(), Logical::one_row());
        **query = push(taken, Vec::new());
    }
    expr.for_each_child_mut(&mut enter_subqueries);
}
