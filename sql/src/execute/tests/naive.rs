//! What operators must give, written down as plainly as possible on rows of values.

use model::Value;

use crate::{expr::SortKey, plan::JoinKind};

pub(super) type Row = Vec<Value>;

pub(super) fn sorted(mut rows: Vec<Row>) -> Vec<Row> {
    rows.sort_by(|a, b| {
        let unequal = a.iter().zip(b).map(|(a, b)| a.cmp_sql(b)).find(|order| order.is_ne());
        unequal.unwrap_or_else(|| a.len().cmp(&b.len()))
    });
    rows
}

pub(super) fn order_by(mut rows: Vec<Row>, keys: &[SortKey]) -> Vec<Row> {
    rows.sort_by(|a, b| {
        for key in keys {
            let at = key.value.as_column().expect("keys here are columns");
            let order = match (a[at].is_null(), b[at].is_null()) {
                (true, true) => std::cmp::Ordering::Equal,
                (true, false) if key.nulls_first => std::cmp::Ordering::Less,
                (true, false) => std::cmp::Ordering::Greater,
                (false, true) if key.nulls_first => std::cmp::Ordering::Greater,
                (false, true) => std::cmp::Ordering::Less,
                (false, false) if key.descending => b[at].cmp_sql(&a[at]),
                (false, false) => a[at].cmp_sql(&b[at]),
            };
            if order.is_ne() {
                return order;
            }
        }
        std::cmp::Ordering::Equal
    });
    rows
}

/// A join on the first columns being equal, and on `holds`.
pub(super) fn join(
    kind: JoinKind,
    left: &[Row],
    right: &[Row],
    widths: (usize, usize),
    holds: impl Fn(&Row, &Row) -> bool,
) -> Option<Vec<Row>> {
    let pair = |left: &Row, right: &Row| -> Row { left.iter().chain(right).cloned().collect() };
    let equal =
        |left: &Row, right: &Row| !left[0].is_null() && !right[0].is_null() && left[0].eq_sql(&right[0]);
    let possible = |left: &Row, right: &Row| left[0].is_null() || right[0].is_null() || equal(left, right);
    let matches = |left: &Row, right: &Row| equal(left, right) && holds(left, right);
    let mut given = Vec::new();
    for row in left {
        let partners: Vec<&Row> = right.iter().filter(|other| matches(row, other)).collect();
        match kind {
            JoinKind::Semi if !partners.is_empty() => given.push(row.clone()),
            JoinKind::Anti if partners.is_empty() => given.push(row.clone()),
            JoinKind::NullAwareAnti => {
                if !right.iter().any(|other| holds(row, other) && possible(row, other)) {
                    given.push(row.clone());
                }
            }
            JoinKind::Single if partners.len() > 1 => return None,
            JoinKind::Left | JoinKind::Full | JoinKind::Single if partners.is_empty() => {
                given.push(pair(row, &vec![Value::Null; widths.1]));
            }
            JoinKind::Semi | JoinKind::Anti => {}
            JoinKind::Inner | JoinKind::Left | JoinKind::Right | JoinKind::Full | JoinKind::Single => {
                given.extend(partners.into_iter().map(|other| pair(row, other)));
            }
        }
    }
    if matches!(kind, JoinKind::Right | JoinKind::Full) {
        let alone = right.iter().filter(|other| !left.iter().any(|row| matches(row, other)));
        given.extend(alone.map(|other| pair(&vec![Value::Null; widths.0], other)));
    }
    Some(given)
}

/// Rows by the values of some columns, in the order of their first rows.
pub(super) fn groups(rows: &[Row], by: &[usize]) -> Vec<(Row, Vec<Row>)> {
    let mut groups: Vec<(Row, Vec<Row>)> = Vec::new();
    for row in rows {
        let key: Row = by.iter().map(|at| row[*at].clone()).collect();
        let same = |(at, _): &&mut (Row, Vec<Row>)| at.iter().zip(&key).all(|(a, b)| a.eq_sql(b));
        match groups.iter_mut().find(same) {
            Some((_, members)) => members.push(row.clone()),
            None => groups.push((key, vec![row.clone()])),
        }
    }
    groups
}
