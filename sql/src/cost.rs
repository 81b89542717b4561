//! Estimates: how many rows a condition keeps, how many a node gives.
//!
//! The unit of cost is one row read in key order (about 50 ns). A row found by its key costs [`LOOKUP`], and more where a
//! join asks for it ([`sought`]).

use std::collections::BTreeSet;

use model::{
    Type, Value,
    id::{ColumnNumber, TableId},
};

use crate::{
    expr::{Expr, Kind},
    plan::{
        Access, JoinKind, access,
        logical::{Columns, Logical, read_columns},
    },
    stats::{ColumnStatistics, Statistics},
};

/// What a row found by its key costs. It is 3 µs and would be 60; but a key that is given reads one row whatever the table
/// has grown to, and what is known of a table's size may be old.
pub(crate) const LOOKUP: f64 = 12.0;

/// What beginning to read a range costs beside its rows: 5 µs. It counts where a join weighs reading a side whole.
pub(crate) const BEGIN: f64 = 100.0;

/// What looking a row up for each row of a join costs beside [`LOOKUP`].
const SOUGHT: f64 = 48.0;
/// And what reading a range for each row of a join costs beside its rows: 12 µs.
const SOUGHT_RANGE: f64 = 200.0;

/// What an access costs for each row of a join; none if it is not by key.
pub(crate) fn sought(access: &Access, cost: f64) -> Option<f64> {
    match access {
        Access::Keys { .. } => Some(cost + SOUGHT),
        Access::Range { range, .. } if !range.prefix.is_empty() => Some(cost + SOUGHT_RANGE),
        Access::Range { .. } | Access::Full { .. } => None,
    }
}

/// What sorting costs.
pub(crate) fn sort(rows: f64) -> f64 {
    rows * rows.max(2.0).log2() * 0.1
}

/// How many different rows there are among some.
pub(crate) fn distinct_rows(rows: f64) -> f64 {
    (rows * 0.5).max(1.0)
}

fn known<'s>(id: usize, statistics: &'s Statistics, columns: &Columns) -> Option<&'s ColumnStatistics> {
    let (table, number) = columns.get(id).origin?;
    statistics.column(TableId(table), ColumnNumber(number))
}

/// How many different values a column has.
pub(crate) fn distinct(expr: &Expr, statistics: &Statistics, columns: &Columns) -> f64 {
    match &expr.kind {
        Kind::Column(id) => match (known(*id, statistics, columns), columns.get(*id).origin) {
            (_, Some((table, number))) if statistics.is_key(TableId(table), ColumnNumber(number)) => {
                statistics.rows(TableId(table)).max(1.0)
            }
            (Some(known), _) if known.distinct > 0.0 => known.distinct,
            (_, Some((table, _))) => guess(expr.ty, statistics.rows(TableId(table))),
            _ => 200.0,
        },
        Kind::Cast { value, .. } => distinct(value, statistics, columns),
        Kind::Constant(_) => 1.0,
        _ => 200.0,
    }
}

/// How many different values a column of a type has, where nobody has looked.
fn guess(ty: Type, rows: f64) -> f64 {
    let most = match ty {
        Type::Bool => 2.0,
        // A few years of days; a few kinds of things.
        Type::Date => 2_500.0,
        Type::Text | Type::Varchar | Type::Bpchar => 200.0,
        _ => f64::MAX,
    };
    (rows * 0.2).min(most).max(1.0)
}

/// How many different values each of some columns has that are joined by equality. One of which nothing is known has at
/// most as many as the key it refers to.
pub(crate) fn distinct_equal(all: &[&Expr], statistics: &Statistics, columns: &Columns) -> Vec<f64> {
    let origin = |expr: &Expr| expr.as_column().and_then(|id| columns.get(id).origin);
    let key_rows = all
        .iter()
        .filter_map(|expr| origin(expr))
        .filter(|(table, number)| statistics.is_key(TableId(*table), ColumnNumber(*number)))
        .map(|(table, _)| statistics.rows(TableId(table)).max(1.0))
        .fold(f64::MAX, f64::min);
    let of_one = |expr: &&Expr| {
        let own = distinct(expr, statistics, columns);
        let looked = expr
            .as_column()
            .and_then(|id| known(id, statistics, columns))
            .is_some_and(|known| known.distinct > 0.0);
        if looked { own } else { own.min(key_rows) }
    };
    all.iter().map(of_one).collect()
}

/// What reading all that a plan reads costs.
pub(crate) fn reading(plan: &Logical, statistics: &Statistics, columns: &Columns) -> f64 {
    match plan {
        Logical::Scan(scan) => statistics.rows(scan.table.id),
        Logical::Filter { input, condition } => match input.as_ref() {
            Logical::Scan(scan) => {
                let mut conditions = Vec::new();
                condition.clone().split_and(&mut conditions);
                access::choose(scan, conditions, None, statistics, columns).cost
            }
            input => reading(input, statistics, columns),
        },
        other => match &other.inputs()[..] {
            [] => rows(other, statistics, columns),
            inputs => inputs.iter().map(|input| reading(input, statistics, columns)).sum(),
        },
    }
}

/// The share of rows for which a condition is true.
pub(crate) fn selectivity(condition: &Expr, statistics: &Statistics, columns: &Columns) -> f64 {
    let share = match &condition.kind {
        Kind::Constant(Value::Bool(true)) => 1.0,
        Kind::Constant(_) => 0.0,
        Kind::And(parts) => parts.iter().map(|part| selectivity(part, statistics, columns)).product(),
        Kind::Or(parts) => {
            let none: f64 = parts.iter().map(|part| 1.0 - selectivity(part, statistics, columns)).product();
            1.0 - none
        }
        Kind::Not(inner) => 1.0 - selectivity(inner, statistics, columns),
        Kind::IsNull { value, negated } => {
            let nulls = value
                .as_column()
                .and_then(|id| known(id, statistics, columns))
                .map_or(0.05, |known| known.nulls);
            if *negated { 1.0 - nulls } else { nulls }
        }
        Kind::InList { value, list, negated } => {
            let share = (list.len() as f64 / distinct(value, statistics, columns)).min(1.0);
            if *negated { 1.0 - share } else { share }
        }
        Kind::AnyAll { left, all: false, .. } => (10.0 / distinct(left, statistics, columns)).min(0.5),
        Kind::Operator(operator, operands) => match (operator.symbol, &operands[..]) {
            ("=", [a, b]) => 1.0 / distinct(a, statistics, columns).max(distinct(b, statistics, columns)),
            ("<>", [a, _]) => 1.0 - 1.0 / distinct(a, statistics, columns),
            ("<" | "<=" | ">" | ">=", [a, b]) => range(operator.symbol, a, b, statistics, columns),
            ("~~" | "~~*", _) => 0.08,
            ("!~~" | "!~~*", _) => 0.92,
            _ => 0.3,
        },
        Kind::Subquery(_) => 0.5,
        _ => 0.3,
    };
    share.clamp(0.000_000_1, 1.0)
}

fn range(symbol: &str, a: &Expr, b: &Expr, statistics: &Statistics, columns: &Columns) -> f64 {
    let (column, constant, less) = match (a.as_column(), b.as_constant(), b.as_column(), a.as_constant()) {
        (Some(column), Some(constant), _, _) => (column, constant, symbol.starts_with('<')),
        (_, _, Some(column), Some(constant)) => (column, constant, symbol.starts_with('>')),
        _ => return 0.33,
    };
    let Some(ColumnStatistics { min: Some(min), max: Some(max), .. }) = known(column, statistics, columns)
    else {
        return 0.33;
    };
    let (Some(low), Some(high), Some(at)) = (number(min), number(max), number(constant)) else { return 0.33 };
    if high <= low {
        return 0.33;
    }
    let share = ((at - low) / (high - low)).clamp(0.0, 1.0);
    if less { share } else { 1.0 - share }
}

fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Date(date) => Some(f64::from(date.days())),
        Value::Timestamp(at) | Value::Timestamptz(at) => Some(at.micros() as f64),
        Value::Numeric(number) => number.to_string().parse().ok(),
        other => other.as_i64().map(|value| value as f64).or_else(|| other.as_f64()),
    }
}

/// How many groups there are.
pub(crate) fn group_rows(groups: &[(usize, Expr)], statistics: &Statistics, columns: &Columns) -> f64 {
    groups.iter().map(|(_, value)| distinct(value, statistics, columns)).product::<f64>().max(1.0)
}

/// The share of pairs for which two sides are equal.
pub(crate) fn join_selectivity(
    a: &Expr,
    b: &Expr,
    left: f64,
    right: f64,
    statistics: &Statistics,
    columns: &Columns,
) -> f64 {
    let both = distinct_equal(&[a, b], statistics, columns);
    let (a, b) = (both[0].min(left.max(1.0)), both[1].min(right.max(1.0)));
    1.0 / a.max(b).max(1.0)
}

/// How many rows a join gives.
pub(crate) fn join_rows(kind: JoinKind, left: f64, right: f64, selectivity: f64) -> f64 {
    let pairs = left * right * selectivity;
    match kind {
        JoinKind::Inner => pairs,
        JoinKind::Left | JoinKind::Single => pairs.max(left),
        JoinKind::Right => pairs.max(right),
        JoinKind::Full => pairs.max(left).max(right),
        JoinKind::Semi => (left * (right * selectivity).min(1.0)).max(1.0),
        JoinKind::Anti | JoinKind::NullAwareAnti => (left * (1.0 - (right * selectivity).min(0.9))).max(1.0),
    }
}

/// How many rows a logical plan gives.
pub(crate) fn rows(plan: &Logical, statistics: &Statistics, columns: &Columns) -> f64 {
    match plan {
        Logical::Values { rows, .. } => rows.len() as f64,
        Logical::Empty { .. } => 0.0,
        Logical::Scan(scan) => statistics.rows(scan.table.id),
        Logical::SystemScan { .. } => 200.0,
        Logical::FunctionScan { .. } => 100.0,
        Logical::Filter { input, condition } => {
            let mut parts = Vec::new();
            condition.clone().split_and(&mut parts);
            let share: f64 = parts.iter().map(|part| selectivity(part, statistics, columns)).product();
            let unique = match input.as_ref() {
                Logical::Scan(scan) => finds_one(scan, &parts),
                _ => false,
            };
            if unique { 1.0 } else { rows(input, statistics, columns) * share }
        }
        Logical::Project { input, .. }
        | Logical::Sort { input, .. }
        | Logical::LockRows { input, .. }
        | Logical::Window(crate::plan::logical::Window { input, .. })
        | Logical::With { input, .. } => rows(input, statistics, columns),
        Logical::ProjectSet { input, .. } => rows(input, statistics, columns) * 10.0,
        Logical::Join(join) => {
            let (left, right) =
                (rows(&join.left, statistics, columns), rows(&join.right, statistics, columns));
            let mut share = 1.0;
            if let Some(on) = &join.on {
                let mut parts = Vec::new();
                on.clone().split_and(&mut parts);
                let made_left: BTreeSet<usize> = join.left.output().into_iter().collect();
                let made_right: BTreeSet<usize> = join.right.output().into_iter().collect();
                for part in &parts {
                    share *= match crate::plan::lower::equi_pair(part, &made_left, &made_right) {
                        Some((a, b)) => join_selectivity(&a, &b, left, right, statistics, columns),
                        None => selectivity(part, statistics, columns),
                    };
                }
            }
            join_rows(join.kind, left, right, share)
        }
        Logical::Aggregate(aggregate) => {
            if aggregate.groups.is_empty() && aggregate.sets.is_none() {
                return 1.0;
            }
            let input = rows(&aggregate.input, statistics, columns);
            group_rows(&aggregate.groups, statistics, columns).min(input)
        }
        Logical::Limit { input, limit, .. } => {
            let input = rows(input, statistics, columns);
            match limit.as_ref().and_then(Expr::as_constant).and_then(Value::as_i64) {
                Some(count) => input.min(count as f64),
                None => input,
            }
        }
        Logical::Distinct { input } | Logical::DistinctOn { input, .. } => {
            distinct_rows(rows(input, statistics, columns))
        }
        Logical::SetOperation { left, right, .. } => {
            rows(left, statistics, columns) + rows(right, statistics, columns)
        }
        Logical::CteScan { .. } => 1_000.0,
        Logical::Recursive { initial, .. } => rows(initial, statistics, columns) * 10.0,
        Logical::Insert(insert) => rows(&insert.source, statistics, columns),
        Logical::Update(update) => rows(&update.source, statistics, columns),
        Logical::Delete(delete) => rows(&delete.source, statistics, columns),
        Logical::Merge(merge) => rows(&merge.source, statistics, columns),
    }
}

/// Whether conditions name a whole unique key of a scan.
pub(crate) fn finds_one(scan: &crate::plan::logical::Scan, conditions: &[Expr]) -> bool {
    let own: BTreeSet<usize> = scan.columns.iter().map(|(id, _)| *id).collect();
    let mut fixed = BTreeSet::new();
    for condition in conditions {
        if let Kind::Operator(operator, operands) = &condition.kind
            && operator.symbol == "="
            && let [a, b] = &operands[..]
        {
            for (column, value) in [(a, b), (b, a)] {
                let mut read = BTreeSet::new();
                read_columns(value, &mut read);
                if let Some(id) = column.as_column()
                    && read.is_disjoint(&own)
                    && let Some((_, crate::plan::ScanColumn::Column(number))) =
                        scan.columns.iter().find(|(at, _)| *at == id)
                {
                    fixed.insert(*number);
                }
            }
        }
    }
    scan.table.indexes.iter().any(|index| {
        index.unique
            && index.predicate.is_none()
            && index.parts.iter().all(|part| fixed.contains(&part.column))
    })
}
