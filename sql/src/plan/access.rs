//! Access paths: which index and which range of it a scan reads, and which order that gives.
//!
//! Invariants:
//! - A condition that an access path takes over is taken over exactly. Ranges are kept as filters too, but for ranges of
//!   integers in the primary key, which no later version of a row can leave.
//! - Values of a key do not read the scanned table; they may come from around, which makes index nested-loop joins.

use std::collections::BTreeSet;

use model::{
    Type,
    id::{ColumnNumber, IndexId},
    schema::{Index, IndexPart, IndexState, Table},
};

use super::{
    Access, JoinKind, KeyRange, Keys, Partitions, ScanColumn,
    logical::{self, Columns, Logical, read_columns},
    lower::has_subquery,
};
use crate::{
    cost,
    expr::{Expr, Kind, SortKey},
    functions::Volatility,
    stats::Statistics,
};

/// What was chosen for a scan.
pub(crate) struct Chosen {
    pub(crate) access: Access,
    pub(crate) partitions: Partitions,
    pub(crate) reverse: bool,
    pub(crate) ordered: bool,
    /// Conditions that remain.
    pub(crate) rest: Vec<Expr>,
    pub(crate) rows: f64,
    pub(crate) cost: f64,
}

/// What a condition says about one column.
enum Says {
    Equal(Expr),
    AnyOf(Vec<Expr>),
    AnyIn(Expr),
    Lower(Expr, bool),
    Upper(Expr, bool),
    Null(bool),
}

/// A condition on one column of the scan.
struct Fact {
    condition: usize,
    column: ColumnNumber,
    says: Says,
}

struct Candidate {
    index: Option<IndexId>,
    access: Access,
    taken: BTreeSet<usize>,
    rows: f64,
    cost: f64,
    /// How many leading columns of the key are fixed.
    fixed: usize,
}

/// Chooses the access path of a scan under conditions. With `order`, one that gives it ([`gives_order`] said there is one).
pub(crate) fn choose(
    scan: &logical::Scan,
    conditions: Vec<Expr>,
    order: Option<&[SortKey]>,
    statistics: &Statistics,
    columns: &Columns,
) -> Chosen {
    let facts = facts(scan, &conditions);
    let partitions = partitions(&scan.table, &facts);
    let candidates = candidates(scan, &conditions, &facts, statistics, columns);
    let pick = match order {
        None => candidates
            .into_iter()
            .min_by(|a, b| a.cost.total_cmp(&b.cost))
            .map(|candidate| (candidate, false)),
        Some(order) => candidates
            .into_iter()
            .filter_map(|candidate| direction(scan, &candidate, order).map(|reverse| (candidate, reverse)))
            .min_by(|(a, _), (b, _)| a.cost.total_cmp(&b.cost)),
    };
    let Some((best, reverse)) = pick else {
        let rows = statistics.rows(scan.table.id);
        return Chosen {
            access: Access::Full { index: None },
            partitions,
            reverse: false,
            ordered: false,
            rest: conditions,
            rows,
            cost: rows,
        };
    };
    let rest: Vec<Expr> = conditions
        .into_iter()
        .enumerate()
        .filter(|(at, _)| !best.taken.contains(at))
        .map(|(_, condition)| condition)
        .collect();
    let share: f64 = rest.iter().map(|condition| cost::selectivity(condition, statistics, columns)).product();
    let rows = if best.rows <= 1.0 { best.rows } else { best.rows * share };
    Chosen { access: best.access, partitions, reverse, ordered: order.is_some(), rest, rows, cost: best.cost }
}

/// Whether a scan under conditions can be read in an order, cheaply enough.
pub(crate) fn gives_order(
    scan: &logical::Scan,
    conditions: &[Expr],
    keys: &[SortKey],
    statistics: &Statistics,
    columns: &Columns,
) -> bool {
    let facts = facts(scan, conditions);
    if matches!(partitions(&scan.table, &facts), Partitions::All) {
        return false;
    }
    let candidates = candidates(scan, conditions, &facts, statistics, columns);
    let cheapest = candidates.iter().map(|candidate| candidate.cost).fold(f64::MAX, f64::min);
    candidates.iter().any(|candidate| {
        let sorted_later = cheapest + cost::sort(candidate.rows);
        candidate.cost <= sorted_later.max(cheapest * 1.2) && direction(scan, candidate, keys).is_some()
    })
}

/// Forwards (`false`) or backwards, if the candidate's order is the wanted one.
fn direction(scan: &logical::Scan, candidate: &Candidate, keys: &[SortKey]) -> Option<bool> {
    if matches!(candidate.access, Access::Keys { .. }) {
        return None;
    }
    let parts = parts(&scan.table, candidate.index)?;
    let is_primary = candidate.index.is_none();
    let mut reverse: Option<bool> = None;
    let mut at = candidate.fixed;
    let fixed: Vec<ColumnNumber> = parts[..candidate.fixed].iter().map(|part| part.column).collect();
    for key in keys {
        let id = key.value.as_column()?;
        let (_, column) = scan.columns.iter().find(|(at, _)| *at == id)?;
        let ScanColumn::Column(number) = column else { return None };
        if fixed.contains(number) {
            continue;
        }
        let part = parts.get(at)?;
        if part.column != *number {
            return None;
        }
        let backwards = part.order.desc != key.descending;
        let not_null = is_primary || scan.table.column(*number).not_null;
        if !not_null && (part.order.nulls_first != key.nulls_first) != backwards {
            return None;
        }
        if *reverse.get_or_insert(backwards) != backwards {
            return None;
        }
        at += 1;
    }
    Some(reverse.unwrap_or(false))
}

fn parts(table: &Table, index: Option<IndexId>) -> Option<&[IndexPart]> {
    match index {
        None => table.key().map(|key| key.parts.as_slice()),
        Some(id) => table.find_index(id).map(|index| index.parts.as_slice()),
    }
}

fn facts(scan: &logical::Scan, conditions: &[Expr]) -> Vec<Fact> {
    let own: BTreeSet<usize> = scan.columns.iter().map(|(id, _)| *id).collect();
    let mut facts = Vec::new();
    for (at, condition) in conditions.iter().enumerate() {
        if has_subquery(condition) {
            continue;
        }
        match &condition.kind {
            Kind::Operator(operator, operands) => {
                let [a, b] = &operands[..] else { continue };
                for (column, value, flipped) in [(a, b, false), (b, a, true)] {
                    let Some(number) = column_of(scan, column, value.ty) else { continue };
                    if !is_outside(value, &own) {
                        continue;
                    }
                    let symbol = match (operator.symbol, flipped) {
                        ("<", true) => ">",
                        ("<=", true) => ">=",
                        (">", true) => "<",
                        (">=", true) => "<=",
                        (symbol, _) => symbol,
                    };
                    let says = match symbol {
                        "=" => Says::Equal(value.clone()),
                        "<" => Says::Upper(value.clone(), false),
                        "<=" => Says::Upper(value.clone(), true),
                        ">" => Says::Lower(value.clone(), false),
                        ">=" => Says::Lower(value.clone(), true),
                        _ => continue,
                    };
                    facts.push(Fact { condition: at, column: number, says });
                    break;
                }
            }
            Kind::InList { value, list, negated: false } => {
                let Some(first) = list.first() else { continue };
                let Some(number) = column_of(scan, value, first.ty) else { continue };
                if list.iter().all(|item| is_outside(item, &own)) {
                    facts.push(Fact { condition: at, column: number, says: Says::AnyOf(list.clone()) });
                }
            }
            Kind::AnyAll { operator, left, array, all: false } if operator.symbol == "=" => {
                let Some(element) = array.ty.element() else { continue };
                let Some(number) = column_of(scan, left, element) else { continue };
                if is_outside(array, &own) {
                    facts.push(Fact { condition: at, column: number, says: Says::AnyIn((**array).clone()) });
                }
            }
            Kind::IsNull { value, negated } => {
                if let Some(number) = column_of(scan, value, value.ty) {
                    facts.push(Fact { condition: at, column: number, says: Says::Null(!negated) });
                }
            }
            Kind::Column(id) if condition.ty == Type::Bool => {
                // `WHERE flag` is `flag = true`.
                let column = Expr::column(*id, Type::Bool, -1);
                if let Some(number) = column_of(scan, &column, Type::Bool) {
                    facts.push(Fact { condition: at, column: number, says: Says::Equal(Expr::bool(true)) });
                }
            }
            _ => {}
        }
    }
    facts
}

/// The column of the scan that an expression is, if values of type `other` stand in its key as they are.
fn column_of(scan: &logical::Scan, expr: &Expr, other: Type) -> Option<ColumnNumber> {
    let (id, ty) = match &expr.kind {
        Kind::Column(id) => (*id, expr.ty),
        // varchar is compared as text, and has the same key.
        Kind::Cast { value, .. } if value.ty == Type::Varchar && expr.ty == Type::Text => {
            (value.as_column()?, Type::Text)
        }
        _ => return None,
    };
    let (_, column) = scan.columns.iter().find(|(at, _)| *at == id)?;
    let ScanColumn::Column(number) = column else { return None };
    let same_key = ty == other || (ty.is_integer() && other.is_integer());
    (same_key && ty != Type::Bpchar).then_some(*number)
}

fn is_outside(value: &Expr, own: &BTreeSet<usize>) -> bool {
    let mut read = BTreeSet::new();
    read_columns(value, &mut read);
    read.is_disjoint(own) && value.volatility() != Volatility::Volatile
}

/// In which partitions the rows lie.
fn partitions(table: &Table, facts: &[Fact]) -> Partitions {
    if table.partition_by.is_empty() {
        return Partitions::Default;
    }
    let mut values = Vec::new();
    for column in &table.partition_by {
        let value = facts.iter().find_map(|fact| match &fact.says {
            Says::Equal(value) if fact.column == *column => Some(value.clone()),
            _ => None,
        });
        match value {
            Some(value) => values.push(value),
            None => return Partitions::All,
        }
    }
    Partitions::One(values)
}

fn candidates(
    scan: &logical::Scan,
    conditions: &[Expr],
    facts: &[Fact],
    statistics: &Statistics,
    columns: &Columns,
) -> Vec<Candidate> {
    let table = &scan.table;
    let total = statistics.rows(table.id);
    let mut all = vec![Candidate {
        index: None,
        access: Access::Full { index: None },
        taken: BTreeSet::new(),
        rows: total,
        cost: total,
        fixed: 0,
    }];
    for index in &table.indexes {
        if index.state != IndexState::Ready || !is_implied(index, conditions) {
            continue;
        }
        let is_primary = table.primary_key == Some(index.id);
        let id = (!is_primary).then_some(index.id);
        if let Some(candidate) = candidate(index, id, facts, conditions, total, statistics, columns) {
            all.push(candidate);
        } else if !is_primary {
            // A whole index in its order.
            all.push(Candidate {
                index: id,
                access: Access::Full { index: id },
                taken: BTreeSet::new(),
                rows: total,
                cost: total * 4.0,
                fixed: 0,
            });
        }
    }
    all
}

/// Whether every row that the conditions keep is in a partial index: only where its predicate is one of them by text.
fn is_implied(index: &Index, _conditions: &[Expr]) -> bool {
    index.predicate.is_none()
}

fn candidate(
    index: &Index,
    id: Option<IndexId>,
    facts: &[Fact],
    conditions: &[Expr],
    total: f64,
    statistics: &Statistics,
    columns: &Columns,
) -> Option<Candidate> {
    let mut prefix = Vec::new();
    let mut taken = BTreeSet::new();
    let mut share = 1.0;
    let on = |column: ColumnNumber| facts.iter().filter(move |fact| fact.column == column);
    let weigh = |fact: &Fact| cost::selectivity(&conditions[fact.condition], statistics, columns);
    let mut parts = index.parts.iter().peekable();
    while let Some(part) = parts.peek() {
        let equal = on(part.column).find_map(|fact| match &fact.says {
            Says::Equal(value) => Some((fact, value)),
            _ => None,
        });
        let Some((fact, value)) = equal else { break };
        share *= weigh(fact);
        taken.insert(fact.condition);
        prefix.push(value.clone());
        parts.next();
    }
    let fixed = prefix.len();
    let lookup = if id.is_some() { cost::LOOKUP / 3.0 } else { 1.0 };
    let Some(part) = parts.next() else {
        let rows = if index.unique { 1.0 } else { (total * share).max(1.0) };
        let access = if index.unique {
            Access::Keys { index: id, keys: Keys::List(vec![prefix]) }
        } else {
            Access::Range { index: id, range: KeyRange { prefix, ..KeyRange::default() } }
        };
        let cost = if index.unique { cost::LOOKUP } else { 3.0 + rows * lookup };
        return Some(Candidate { index: id, access, taken, rows, cost, fixed });
    };
    let is_last = parts.next().is_none();
    if is_last && index.unique {
        for fact in on(part.column) {
            let (keys, count) = match &fact.says {
                Says::AnyOf(list) => {
                    let keys = list
                        .iter()
                        .map(|item| prefix.iter().cloned().chain([item.clone()]).collect())
                        .collect();
                    (Keys::List(keys), list.len() as f64)
                }
                Says::AnyIn(array) => (Keys::Array { prefix: prefix.clone(), array: array.clone() }, 10.0),
                _ => continue,
            };
            taken.insert(fact.condition);
            let access = Access::Keys { index: id, keys };
            return Some(Candidate {
                index: id,
                access,
                taken,
                rows: count.min(total),
                cost: count * cost::LOOKUP,
                fixed,
            });
        }
    }
    let mut range = KeyRange { prefix, ..KeyRange::default() };
    let mut bounded = false;
    let mut bounds = Vec::new();
    let is_exact = |value: &Expr| value.ty.is_integer();
    for fact in on(part.column) {
        match &fact.says {
            Says::Lower(value, inclusive) if range.lower.is_none() => {
                range.lower = Some((value.clone(), *inclusive));
                bounds.extend(is_exact(value).then_some(fact.condition));
                share *= weigh(fact);
                bounded = true;
            }
            Says::Upper(value, inclusive) if range.upper.is_none() => {
                range.upper = Some((value.clone(), *inclusive));
                bounds.extend(is_exact(value).then_some(fact.condition));
                share *= weigh(fact);
                bounded = true;
            }
            Says::Null(is_null) if range.null.is_none() => {
                range.null = Some(*is_null);
                share *= weigh(fact);
                bounded = true;
            }
            _ => {}
        }
    }
    if range.null == Some(true) {
        (range.lower, range.upper) = (None, None);
    }
    if id.is_none() && range.null.is_none() {
        taken.extend(bounds);
    }
    if fixed == 0 && !bounded {
        return None;
    }
    let rows = (total * share).max(1.0);
    Some(Candidate {
        index: id,
        access: Access::Range { index: id, range },
        taken,
        rows,
        cost: 3.0 + rows * lookup,
        fixed,
    })
}

/// A join whose right side is found by key for each row of the left.
pub(crate) struct Lookup {
    /// Conditions that become the key.
    pub(crate) moved: Expr,
    /// The others.
    pub(crate) rest: Vec<Expr>,
}

/// Whether looking the right side up row by row is cheaper than reading it whole.
pub(crate) fn lookup_join(
    kind: JoinKind,
    left: &Logical,
    right: &Logical,
    conditions: &[Expr],
    statistics: &Statistics,
    columns: &Columns,
) -> Option<Lookup> {
    if !matches!(kind, JoinKind::Inner | JoinKind::Left | JoinKind::Semi | JoinKind::Anti) {
        return None;
    }
    let (scan, own) = match right {
        Logical::Scan(scan) => (scan, Vec::new()),
        Logical::Filter { input, condition } => match input.as_ref() {
            Logical::Scan(scan) => {
                let mut own = Vec::new();
                condition.clone().split_and(&mut own);
                (scan, own)
            }
            _ => return None,
        },
        _ => return None,
    };
    let made_left: BTreeSet<usize> = left.output().into_iter().collect();
    let made_right: BTreeSet<usize> = right.output().into_iter().collect();
    let (keys, rest): (Vec<Expr>, Vec<Expr>) = conditions
        .iter()
        .cloned()
        .partition(|condition| super::lower::equi_pair(condition, &made_left, &made_right).is_some());
    if keys.is_empty() {
        return None;
    }
    let without = choose(scan, own.clone(), None, statistics, columns);
    let with = choose(scan, own.into_iter().chain(keys.iter().cloned()).collect(), None, statistics, columns);
    let each = cost::sought(&with.access, with.cost)?;
    // The key must come from the left, not from constants.
    let from_left = !matches!((&without.access, &with.access), (Access::Keys { .. }, Access::Keys { .. }));
    if !from_left {
        return None;
    }
    let outer = cost::rows(left, statistics, columns);
    let by_lookup = outer * each;
    let by_hash = cost::BEGIN + without.cost + without.rows * 1.5 + outer;
    if by_lookup >= by_hash {
        return None;
    }
    let moved = Expr::and(keys)?;
    Some(Lookup { moved, rest })
}
