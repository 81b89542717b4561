//! From a logical plan to one that runs: ids become positions, scans get an access path, joins a strategy.
//!
//! Invariants:
//! - A node gives only what is read above it: pruning is nothing but asking below for what is needed.
//! - What a plan takes from around it is collected in [`Env`]: its n-th entry is `Outer(n)` inside, and whoever stands
//!   around lowers the same ids in its own context.
//! - Rows and costs are estimates; a wrong one makes a plan slow, never wrong.
//!
//! Not here: rewriting (`optimize`), which rows an access path finds (`access`).

use std::collections::{BTreeMap, BTreeSet};

use model::{Error, Result, Type};

use super::{
    Access, Aggregate, AggregateCall, Apply, Bound, Column, CommonTable, ConflictAction, Delete, Frame,
    FunctionScan, Insert, Join, JoinKind, LockRows, Merge, MergeAction, MergeClause, Node, OnConflict,
    Partitions, Plan, RowLock, RowRules, Scan, ScanColumn, SetExpr, Strategy, SystemScan, Target, Update,
    Window, WindowCall, access,
    logical::{self, Columns, Logical, read_columns},
};
use crate::{
    cost,
    expr::{Expr, Kind, Query, SortKey, Subquery, SubqueryKind},
    stats::Statistics,
};

/// A lowered node and the ids of its columns, in order.
pub(crate) struct Lowered {
    pub(crate) plan: Plan,
    pub(crate) ids: Vec<usize>,
}

/// What a plan takes from around it, in order of `Outer` places.
#[derive(Default, Debug)]
pub(crate) struct Env {
    outer: Vec<usize>,
}

impl Env {
    fn place(&mut self, id: usize) -> usize {
        match self.outer.iter().position(|at| *at == id) {
            Some(place) => place,
            None => {
                self.outer.push(id);
                self.outer.len() - 1
            }
        }
    }
}

/// Lowers a whole statement, whose result has these columns.
pub(crate) fn lower(
    plan: Logical,
    columns: &Columns,
    outputs: &[(String, usize)],
    statistics: &Statistics,
) -> Result<Plan> {
    let mut lower = Lower { columns, statistics, next_id: 0, tables: BTreeMap::new() };
    let mut env = Env::default();
    let need: BTreeSet<usize> = outputs.iter().map(|(_, id)| *id).collect();
    let lowered = lower.node(plan, &need, &mut env)?;
    if !env.outer.is_empty() {
        let names: Vec<&str> = env.outer.iter().map(|id| columns.get(*id).name.as_str()).collect();
        return Err(Error::internal(format!("columns {names:?} of the plan come from nowhere")));
    }
    let Lowered { mut plan, ids } = lowered;
    let wanted: Vec<usize> = outputs.iter().map(|(_, id)| *id).collect();
    let writes = matches!(plan.node, Node::Insert(_) | Node::Update(_) | Node::Delete(_) | Node::Merge(_));
    if ids != wanted && !(writes && wanted.is_empty()) {
        plan = lower.pick(Lowered { plan, ids }, &wanted)?.plan;
    }
    let named: Vec<Column> = outputs
        .iter()
        .map(|(name, id)| Column {
            name: name.clone(),
            ty: columns.get(*id).ty,
            typmod: columns.get(*id).typmod,
        })
        .collect();
    plan.columns = named.into();
    Ok(plan)
}

/// What running a plan once is expected to cost, whatever it takes from around it.
pub(crate) fn estimate(plan: Logical, columns: &Columns, statistics: &Statistics) -> Result<f64> {
    let need: BTreeSet<usize> = plan.output().into_iter().collect();
    let mut lower = Lower { columns, statistics, next_id: 0, tables: BTreeMap::new() };
    Ok(lower.node(plan, &need, &mut Env::default())?.plan.cost)
}

pub(crate) struct Lower<'a> {
    pub(crate) columns: &'a Columns,
    pub(crate) statistics: &'a Statistics,
    next_id: usize,
    /// Rows expected of each common table expression.
    tables: BTreeMap<usize, f64>,
}

impl Lower<'_> {
    fn plan(&mut self, node: Node, ids: &[usize], rows: f64, cost: f64) -> Plan {
        let columns: Vec<Column> = ids
            .iter()
            .map(|id| {
                let info = self.columns.get(*id);
                Column { name: info.name.clone(), ty: info.ty, typmod: info.typmod }
            })
            .collect();
        let id = self.next_id;
        self.next_id += 1;
        Plan { id, node, columns: columns.into(), rows: rows.max(0.0), cost }
    }

    /// The same rows with exactly these columns in this order.
    fn pick(&mut self, input: Lowered, wanted: &[usize]) -> Result<Lowered> {
        if input.ids == wanted {
            return Ok(input);
        }
        let mut expressions = Vec::with_capacity(wanted.len());
        for id in wanted {
            let place = position(&input.ids, *id)?;
            let column = &input.plan.columns[place];
            expressions.push(Expr::column(place, column.ty, column.typmod));
        }
        let (rows, cost) = (input.plan.rows, input.plan.cost);
        let node = Node::Project { input: Box::new(input.plan), expressions };
        Ok(Lowered { plan: self.plan(node, wanted, rows, cost), ids: wanted.to_vec() })
    }

    /// Lowers a node that is asked for `need`.
    pub(crate) fn node(&mut self, plan: Logical, need: &BTreeSet<usize>, env: &mut Env) -> Result<Lowered> {
        match plan {
            Logical::Values { columns, rows } => self.values(columns, rows, need, env),
            Logical::Empty { columns } => self.values(columns, Vec::new(), need, env),
            Logical::Scan(scan) => self.scan(scan, Vec::new(), None, need, env),
            Logical::SystemScan { relation, alias, columns } => {
                self.system_scan(relation, alias, &columns, None, need, env)
            }
            Logical::FunctionScan { calls, ordinality, columns } => {
                let calls = self.set_exprs(calls, &[], env)?;
                let rows =
                    if calls.iter().any(|call| matches!(call, SetExpr::Set { .. })) { 100.0 } else { 1.0 };
                let node = Node::FunctionScan(FunctionScan { calls, ordinality });
                Ok(Lowered { plan: self.plan(node, &columns, rows, rows), ids: columns })
            }
            Logical::Filter { input, condition } => self.filter(*input, condition, need, env),
            Logical::Project { input, items } => self.project(*input, items, need, env),
            Logical::ProjectSet { input, items } => {
                let items: Vec<(usize, SetExpr)> = items
                    .into_iter()
                    .filter(|(id, value)| matches!(value, SetExpr::Set { .. }) || need.contains(id))
                    .collect();
                let mut below = BTreeSet::new();
                for (_, value) in &items {
                    value.for_each_expr(&mut |expr| read_columns(expr, &mut below));
                }
                let input = self.node(*input, &below, env)?;
                let ids: Vec<usize> = items.iter().map(|(id, _)| *id).collect();
                let expressions =
                    self.set_exprs(items.into_iter().map(|(_, value)| value).collect(), &input.ids, env)?;
                let (rows, cost) = (input.plan.rows * 10.0, input.plan.cost + input.plan.rows * 10.0);
                let node = Node::ProjectSet { input: Box::new(input.plan), expressions };
                Ok(Lowered { plan: self.plan(node, &ids, rows, cost), ids })
            }
            Logical::Join(join) => self.join(join, need, env),
            Logical::Aggregate(aggregate) => self.aggregate(aggregate, need, env),
            Logical::Window(window) => self.window(window, need, env),
            Logical::Sort { input, keys } => self.sort(*input, keys, need, env),
            Logical::Limit { input, limit, offset, ties } => {
                self.limit(*input, limit, offset, ties, need, env)
            }
            Logical::Distinct { input } => {
                // What is different depends on every column.
                let all: BTreeSet<usize> = input.output().into_iter().collect();
                let order = input.output();
                let input = self.node(*input, &all, env)?;
                let input = self.pick(input, &order)?;
                let rows = cost::distinct_rows(input.plan.rows);
                let (ids, total) = (input.ids.clone(), input.plan.cost + input.plan.rows);
                let node = Node::Distinct { input: Box::new(input.plan) };
                Ok(Lowered { plan: self.plan(node, &ids, rows, total), ids })
            }
            Logical::DistinctOn { input, keys } => {
                let mut below = need.clone();
                keys.iter().for_each(|key| read_columns(key, &mut below));
                let input = self.node(*input, &below, env)?;
                let keys = self.exprs(keys, &input.ids, env)?;
                let (rows, total, ids) =
                    (cost::distinct_rows(input.plan.rows), input.plan.cost + input.plan.rows, input.ids);
                let node = Node::DistinctOn { input: Box::new(input.plan), keys };
                Ok(Lowered { plan: self.plan(node, &ids, rows, total), ids })
            }
            Logical::SetOperation { kind, all, left, right, columns } => {
                let mut sides = Vec::new();
                for side in [left, right] {
                    let order = side.output();
                    let wanted: BTreeSet<usize> = order.iter().copied().collect();
                    let lowered = self.node(*side, &wanted, env)?;
                    sides.push(self.pick(lowered, &order)?);
                }
                let (Some(right), Some(left)) = (sides.pop(), sides.pop()) else {
                    return Err(Error::internal("a set operation has two sides"));
                };
                let rows = match kind {
                    super::SetKind::Union => left.plan.rows + right.plan.rows,
                    super::SetKind::Intersect => left.plan.rows.min(right.plan.rows),
                    super::SetKind::Except => left.plan.rows,
                };
                let total = left.plan.cost + right.plan.cost + rows;
                let node =
                    Node::SetOperation { kind, all, left: Box::new(left.plan), right: Box::new(right.plan) };
                Ok(Lowered { plan: self.plan(node, &columns, rows, total), ids: columns })
            }
            Logical::With { expressions, input } => self.with(expressions, *input, need, env),
            Logical::CteScan { id, columns } => {
                let rows = self.tables.get(&id).copied().unwrap_or(1_000.0);
                let mut places = columns;
                places.sort_by_key(|(_, place)| *place);
                let ids: Vec<usize> = places.iter().map(|(id, _)| *id).collect();
                Ok(Lowered { plan: self.plan(Node::CteScan { id }, &ids, rows, rows), ids })
            }
            Logical::Recursive { id, initial, recursive, all, columns } => {
                let mut parts = Vec::new();
                for (part, is_step) in [(initial, false), (recursive, true)] {
                    let order = part.output();
                    let wanted: BTreeSet<usize> = order.iter().copied().collect();
                    let lowered = self.node(*part, &wanted, env)?;
                    let lowered = self.pick(lowered, &order)?;
                    if !is_step {
                        self.tables.insert(id, lowered.plan.rows.max(10.0));
                    }
                    parts.push(lowered);
                }
                let (Some(recursive), Some(initial)) = (parts.pop(), parts.pop()) else {
                    return Err(Error::internal("a recursion has two parts"));
                };
                let rows = initial.plan.rows + recursive.plan.rows * 10.0;
                let total = initial.plan.cost + recursive.plan.cost * 10.0;
                let node = Node::Recursive {
                    id,
                    initial: Box::new(initial.plan),
                    recursive: Box::new(recursive.plan),
                    all,
                };
                Ok(Lowered { plan: self.plan(node, &columns, rows, total), ids: columns })
            }
            Logical::LockRows { input, tables, condition } => {
                self.lock_rows(*input, tables, condition, need, env)
            }
            Logical::Insert(insert) => self.insert(*insert, env),
            Logical::Update(update) => self.update(*update, env),
            Logical::Delete(delete) => self.delete(*delete, env),
            Logical::Merge(merge) => self.merge(*merge, env),
        }
    }

    fn values(
        &mut self,
        columns: Vec<usize>,
        rows: Vec<Vec<Expr>>,
        need: &BTreeSet<usize>,
        env: &mut Env,
    ) -> Result<Lowered> {
        let kept: Vec<bool> = columns.iter().map(|id| need.contains(id)).collect();
        let ids: Vec<usize> = columns.iter().copied().filter(|id| need.contains(id)).collect();
        let count = rows.len() as f64;
        let mut lowered = Vec::with_capacity(rows.len());
        for row in rows {
            let row: Vec<Expr> =
                row.into_iter().zip(&kept).filter(|(_, kept)| **kept).map(|(expr, _)| expr).collect();
            lowered.push(self.exprs(row, &[], env)?);
        }
        Ok(Lowered { plan: self.plan(Node::Values(lowered), &ids, count, count), ids })
    }

    /// A scan with the conditions that stand right above it.
    pub(crate) fn scan(
        &mut self,
        scan: logical::Scan,
        conditions: Vec<Expr>,
        order: Option<&[SortKey]>,
        need: &BTreeSet<usize>,
        env: &mut Env,
    ) -> Result<Lowered> {
        let chosen = access::choose(&scan, conditions, order, self.statistics, self.columns);
        let mut wanted = need.clone();
        for condition in &chosen.rest {
            read_columns(condition, &mut wanted);
        }
        let kept: Vec<(usize, ScanColumn)> =
            scan.columns.iter().copied().filter(|(id, _)| wanted.contains(id)).collect();
        let ids: Vec<usize> = kept.iter().map(|(id, _)| *id).collect();
        let filter = Expr::and(chosen.rest).map(|condition| self.expr(condition, &ids, env)).transpose()?;
        let access = self.access(chosen.access, env)?;
        let partitions = match chosen.partitions {
            Partitions::One(values) => Partitions::One(self.exprs(values, &[], env)?),
            other => other,
        };
        let node = Node::Scan(Scan {
            table: scan.table,
            alias: scan.alias,
            partitions,
            access,
            reverse: chosen.reverse,
            columns: kept.into_iter().map(|(_, column)| column).collect(),
            filter,
            ordered: chosen.ordered,
        });
        Ok(Lowered { plan: self.plan(node, &ids, chosen.rows, chosen.cost), ids })
    }

    fn access(&mut self, access: Access, env: &mut Env) -> Result<Access> {
        Ok(match access {
            Access::Full { index } => Access::Full { index },
            Access::Range { index, range } => {
                let super::KeyRange { prefix, null, lower, upper } = range;
                let prefix = self.exprs(prefix, &[], env)?;
                let mut bound = |bound: Option<(Expr, bool)>| {
                    bound
                        .map(|(value, inclusive)| Ok::<_, Error>((self.expr(value, &[], env)?, inclusive)))
                        .transpose()
                };
                let lower = bound(lower)?;
                let upper = bound(upper)?;
                Access::Range { index, range: super::KeyRange { prefix, null, lower, upper } }
            }
            Access::Keys { index, keys } => {
                let keys = match keys {
                    super::Keys::List(list) => {
                        let list: Result<Vec<Vec<Expr>>> =
                            list.into_iter().map(|key| self.exprs(key, &[], env)).collect();
                        super::Keys::List(list?)
                    }
                    super::Keys::Array { prefix, array } => {
                        let prefix = self.exprs(prefix, &[], env)?;
                        super::Keys::Array { prefix, array: self.expr(array, &[], env)? }
                    }
                };
                Access::Keys { index, keys }
            }
        })
    }

    fn system_scan(
        &mut self,
        relation: &'static crate::pg_catalog::Relation,
        alias: String,
        columns: &[(usize, usize)],
        condition: Option<Expr>,
        need: &BTreeSet<usize>,
        env: &mut Env,
    ) -> Result<Lowered> {
        let mut wanted = need.clone();
        condition.iter().for_each(|condition| read_columns(condition, &mut wanted));
        let kept: Vec<(usize, usize)> =
            columns.iter().copied().filter(|(id, _)| wanted.contains(id)).collect();
        let ids: Vec<usize> = kept.iter().map(|(id, _)| *id).collect();
        let filtered = condition.is_some();
        let filter = condition.map(|condition| self.expr(condition, &ids, env)).transpose()?;
        let places = kept.into_iter().map(|(_, place)| place).collect();
        let rows = if filtered { 20.0 } else { 200.0 };
        let node = Node::SystemScan(SystemScan { relation, alias, columns: places, filter });
        Ok(Lowered { plan: self.plan(node, &ids, rows, 200.0), ids })
    }

    fn filter(
        &mut self,
        input: Logical,
        condition: Expr,
        need: &BTreeSet<usize>,
        env: &mut Env,
    ) -> Result<Lowered> {
        let mut conditions = Vec::new();
        condition.split_and(&mut conditions);
        match input {
            Logical::Scan(scan) => {
                // Conditions with sub-queries are kept above: they are evaluated on fewer rows.
                let (above, below): (Vec<Expr>, Vec<Expr>) = conditions.into_iter().partition(has_subquery);
                if above.is_empty() {
                    return self.scan(scan, below, None, need, env);
                }
                let mut wanted = need.clone();
                above.iter().for_each(|condition| read_columns(condition, &mut wanted));
                let input = self.scan(scan, below, None, &wanted, env)?;
                self.filter_over(input, above, env)
            }
            Logical::SystemScan { relation, alias, columns } => {
                self.system_scan(relation, alias, &columns, Expr::and(conditions), need, env)
            }
            input => {
                let mut wanted = need.clone();
                conditions.iter().for_each(|condition| read_columns(condition, &mut wanted));
                let input = self.node(input, &wanted, env)?;
                self.filter_over(input, conditions, env)
            }
        }
    }

    fn filter_over(&mut self, input: Lowered, conditions: Vec<Expr>, env: &mut Env) -> Result<Lowered> {
        let selectivity: f64 = conditions
            .iter()
            .map(|condition| cost::selectivity(condition, self.statistics, self.columns))
            .product();
        let Some(condition) = Expr::and(conditions) else { return Ok(input) };
        let condition = self.expr(condition, &input.ids, env)?;
        let (rows, total, ids) =
            (input.plan.rows * selectivity, input.plan.cost + input.plan.rows * 0.1, input.ids);
        let node = Node::Filter { input: Box::new(input.plan), condition };
        Ok(Lowered { plan: self.plan(node, &ids, rows, total), ids })
    }

    fn project(
        &mut self,
        input: Logical,
        items: Vec<(usize, Expr)>,
        need: &BTreeSet<usize>,
        env: &mut Env,
    ) -> Result<Lowered> {
        let items: Vec<(usize, Expr)> = items.into_iter().filter(|(id, _)| need.contains(id)).collect();
        let mut below = BTreeSet::new();
        items.iter().for_each(|(_, value)| read_columns(value, &mut below));
        let input = self.node(input, &below, env)?;
        let ids: Vec<usize> = items.iter().map(|(id, _)| *id).collect();
        let plain = items.iter().all(|(id, value)| value.as_column() == Some(*id));
        if plain && ids == input.ids {
            return Ok(input);
        }
        let expressions = self.exprs(items.into_iter().map(|(_, value)| value).collect(), &input.ids, env)?;
        let (rows, total) = (input.plan.rows, input.plan.cost + input.plan.rows * 0.05);
        let node = Node::Project { input: Box::new(input.plan), expressions };
        Ok(Lowered { plan: self.plan(node, &ids, rows, total), ids })
    }

    fn join(&mut self, join: logical::Join, need: &BTreeSet<usize>, env: &mut Env) -> Result<Lowered> {
        let logical::Join { kind, left, right, on, null_aware } = join;
        let made_left: BTreeSet<usize> = left.output().into_iter().collect();
        let made_right: BTreeSet<usize> = right.output().into_iter().collect();
        let free_right = right.free();
        let lateral: BTreeSet<usize> = free_right.intersection(&made_left).copied().collect();
        let mut conditions = Vec::new();
        on.into_iter().for_each(|on| on.split_and(&mut conditions));
        let mut wanted = need.clone();
        conditions.iter().for_each(|condition| read_columns(condition, &mut wanted));
        if let Some((a, b)) = &null_aware {
            read_columns(a, &mut wanted);
            read_columns(b, &mut wanted);
        }
        let mut wanted_left: BTreeSet<usize> = wanted.intersection(&made_left).copied().collect();
        let wanted_right: BTreeSet<usize> = wanted.intersection(&made_right).copied().collect();
        if !lateral.is_empty() {
            wanted_left.extend(lateral);
            return self.apply(kind, *left, *right, conditions, &wanted_left, &wanted_right, env);
        }
        if let Some(applied) =
            access::lookup_join(kind, &left, &right, &conditions, self.statistics, self.columns)
        {
            // The right is found by its key: its conditions move into it, and it is run once per row of the left.
            let access::Lookup { moved, rest } = applied;
            // One filter right above the scan, so that the key among its conditions is found.
            let right = match *right {
                Logical::Filter { input, condition } => {
                    let both = Expr { kind: Kind::And(vec![condition, moved]), ty: Type::Bool, typmod: -1 };
                    Logical::Filter { input, condition: both }
                }
                other => Logical::Filter { input: Box::new(other), condition: moved },
            };
            wanted_left.extend(right.free().intersection(&made_left));
            return self.apply(kind, *left, right, rest, &wanted_left, &wanted_right, env);
        }
        let left = self.node(*left, &wanted_left, env)?;
        let right = self.node(*right, &wanted_right, env)?;
        let mut keys = Vec::new();
        let mut key_selectivity = 1.0;
        let mut residual = Vec::new();
        for condition in conditions {
            match equi_pair(&condition, &made_left, &made_right) {
                Some((a, b)) => {
                    key_selectivity *= cost::join_selectivity(
                        &a,
                        &b,
                        left.plan.rows,
                        right.plan.rows,
                        self.statistics,
                        self.columns,
                    );
                    keys.push((self.expr(a, &left.ids, env)?, self.expr(b, &right.ids, env)?));
                }
                None => residual.push(condition),
            }
        }
        if let Some((a, b)) = null_aware {
            keys.insert(0, (self.expr(a, &left.ids, env)?, self.expr(b, &right.ids, env)?));
        }
        let both: Vec<usize> = left.ids.iter().chain(&right.ids).copied().collect();
        let selectivity: f64 = residual
            .iter()
            .map(|condition| cost::selectivity(condition, self.statistics, self.columns))
            .product::<f64>()
            * key_selectivity;
        let residual = Expr::and(residual).map(|condition| self.expr(condition, &both, env)).transpose()?;
        let strategy = if keys.is_empty() { Strategy::Nested } else { Strategy::Hash };
        let rows = cost::join_rows(kind, left.plan.rows, right.plan.rows, selectivity);
        let work = match strategy {
            Strategy::Nested => left.plan.rows * right.plan.rows * 0.1,
            Strategy::Hash | Strategy::Merge => left.plan.rows + right.plan.rows * 1.5,
        };
        let total = left.plan.cost + right.plan.cost + work + rows * 0.1;
        let ids = if kind.gives_right() { both } else { left.ids };
        let node = Node::Join(Join {
            kind,
            strategy,
            left: Box::new(left.plan),
            right: Box::new(right.plan),
            keys,
            residual,
        });
        Ok(Lowered { plan: self.plan(node, &ids, rows, total), ids })
    }

    #[allow(clippy::too_many_arguments)]
    fn apply(
        &mut self,
        kind: JoinKind,
        left: Logical,
        right: Logical,
        conditions: Vec<Expr>,
        wanted_left: &BTreeSet<usize>,
        wanted_right: &BTreeSet<usize>,
        env: &mut Env,
    ) -> Result<Lowered> {
        if matches!(kind, JoinKind::Right | JoinKind::Full) {
            let error =
                Error::new(model::Code::InvalidColumnReference, "invalid reference to FROM-clause entry");
            return Err(
                error.with_detail("The combining JOIN type must be INNER or LEFT for a LATERAL reference.")
            );
        }
        let left = self.node(left, wanted_left, env)?;
        let mut inner = Env::default();
        let right = self.node(right, wanted_right, &mut inner)?;
        let outer = self.outer(inner, &left.ids, env)?;
        let both: Vec<usize> = left.ids.iter().chain(&right.ids).copied().collect();
        let selectivity: f64 = conditions
            .iter()
            .map(|condition| cost::selectivity(condition, self.statistics, self.columns))
            .product();
        let residual = Expr::and(conditions).map(|condition| self.expr(condition, &both, env)).transpose()?;
        let rows = match kind {
            JoinKind::Semi => left.plan.rows * 0.5,
            JoinKind::Anti | JoinKind::NullAwareAnti => left.plan.rows * 0.5,
            JoinKind::Single => left.plan.rows,
            JoinKind::Left => (left.plan.rows * right.plan.rows * selectivity).max(left.plan.rows),
            JoinKind::Inner | JoinKind::Right | JoinKind::Full => {
                left.plan.rows * right.plan.rows * selectivity
            }
        };
        let total = left.plan.cost + left.plan.rows * (right.plan.cost + cost::LOOKUP);
        let ids = if kind.gives_right() { both } else { left.ids };
        let node = Node::Apply(Apply {
            kind,
            left: Box::new(left.plan),
            right: Box::new(right.plan),
            outer,
            residual,
        });
        Ok(Lowered { plan: self.plan(node, &ids, rows, total), ids })
    }

    /// The expressions that hand an inner plan what it takes.
    fn outer(&mut self, inner: Env, ids: &[usize], env: &mut Env) -> Result<Vec<Expr>> {
        inner.outer.iter().map(|id| self.expr(self.columns.read(*id), ids, env)).collect()
    }

    fn aggregate(
        &mut self,
        aggregate: logical::Aggregate,
        need: &BTreeSet<usize>,
        env: &mut Env,
    ) -> Result<Lowered> {
        let logical::Aggregate { input, groups, sets, aggregates, grouping } = aggregate;
        if let Some(counted) = self.count_rows(&input, &groups, sets.as_deref(), &aggregates)? {
            return Ok(counted);
        }
        let aggregates: Vec<(usize, AggregateCall)> =
            aggregates.into_iter().filter(|(id, _)| need.contains(id)).collect();
        let mut below = BTreeSet::new();
        groups.iter().for_each(|(_, value)| read_columns(value, &mut below));
        for (_, call) in &aggregates {
            call.arguments.iter().chain(&call.filter).for_each(|expr| read_columns(expr, &mut below));
            call.order.iter().for_each(|key| read_columns(&key.value, &mut below));
        }
        let distinct = cost::group_rows(&groups, self.statistics, self.columns);
        let mut input = self.node(*input, &below, env)?;
        let mut ids: Vec<usize> = groups.iter().map(|(id, _)| *id).collect();
        let is_one = groups.is_empty() && sets.is_none();
        let groups = self.exprs(groups.into_iter().map(|(_, value)| value).collect(), &input.ids, env)?;
        let mut calls = Vec::with_capacity(aggregates.len());
        for (id, call) in aggregates {
            ids.push(id);
            calls.push(AggregateCall {
                function: call.function,
                arguments: self.exprs(call.arguments, &input.ids, env)?,
                distinct: call.distinct,
                filter: call.filter.map(|filter| self.expr(filter, &input.ids, env)).transpose()?,
                order: self.keys(call.order, &input.ids, env)?,
                ty: call.ty,
            });
        }
        if let Node::Scan(scan) = &mut input.plan.node {
            ask_for_presence(scan, &groups, &calls);
        }
        ids.extend(grouping.iter().map(|(id, _)| *id));
        let grouping = grouping.into_iter().map(|(_, places)| places).collect();
        let rows = if is_one { 1.0 } else { distinct.min(input.plan.rows).max(1.0) };
        let total = input.plan.cost + input.plan.rows * (1.0 + 0.2 * calls.len() as f64);
        let node = Node::Aggregate(Aggregate {
            input: Box::new(input.plan),
            groups,
            sets,
            aggregates: calls,
            grouping,
            ordered: false,
        });
        Ok(Lowered { plan: self.plan(node, &ids, rows, total), ids })
    }

    /// `SELECT count(*) FROM table`, from the table's counter.
    fn count_rows(
        &mut self,
        input: &Logical,
        groups: &[(usize, Expr)],
        sets: Option<&[Vec<usize>]>,
        aggregates: &[(usize, AggregateCall)],
    ) -> Result<Option<Lowered>> {
        let Logical::Scan(scan) = input else { return Ok(None) };
        let [(id, call)] = aggregates else { return Ok(None) };
        let plain = groups.is_empty()
            && sets.is_none()
            && call.function.name == "count"
            && call.arguments.is_empty()
            && call.filter.is_none()
            && !call.distinct;
        if !plain {
            return Ok(None);
        }
        let partitions =
            if scan.table.partition_by.is_empty() { Partitions::Default } else { Partitions::All };
        let node = Node::CountRows { table: scan.table.clone(), partitions };
        let ids = vec![*id];
        Ok(Some(Lowered { plan: self.plan(node, &ids, 1.0, 1.0), ids }))
    }

    fn window(&mut self, window: logical::Window, need: &BTreeSet<usize>, env: &mut Env) -> Result<Lowered> {
        let logical::Window { input, partition, order, calls } = window;
        let mut below: BTreeSet<usize> = need.clone();
        for expr in partition.iter().chain(order.iter().map(|key| &key.value)) {
            read_columns(expr, &mut below);
        }
        for (id, call) in &calls {
            below.remove(id);
            call.arguments.iter().chain(&call.filter).for_each(|expr| read_columns(expr, &mut below));
        }
        let input = self.node(*input, &below, env)?;
        let mut ids = input.ids.clone();
        let partition = self.exprs(partition, &input.ids, env)?;
        let order = self.keys(order, &input.ids, env)?;
        let mut lowered = Vec::with_capacity(calls.len());
        for (id, call) in calls {
            ids.push(id);
            let Frame { unit, start, end, exclude } = call.frame;
            let frame = Frame { unit, start: self.bound(start, env)?, end: self.bound(end, env)?, exclude };
            lowered.push(WindowCall {
                function: call.function,
                arguments: self.exprs(call.arguments, &input.ids, env)?,
                filter: call.filter.map(|filter| self.expr(filter, &input.ids, env)).transpose()?,
                frame,
                ty: call.ty,
            });
        }
        let (rows, total) = (input.plan.rows, input.plan.cost + cost::sort(input.plan.rows));
        let node = Node::Window(Window { input: Box::new(input.plan), partition, order, calls: lowered });
        Ok(Lowered { plan: self.plan(node, &ids, rows, total), ids })
    }

    fn bound(&mut self, bound: Bound, env: &mut Env) -> Result<Bound> {
        Ok(match bound {
            Bound::Preceding(value) => Bound::Preceding(self.expr(value, &[], env)?),
            Bound::Following(value) => Bound::Following(self.expr(value, &[], env)?),
            other => other,
        })
    }

    fn sort(
        &mut self,
        input: Logical,
        keys: Vec<SortKey>,
        need: &BTreeSet<usize>,
        env: &mut Env,
    ) -> Result<Lowered> {
        let mut below = need.clone();
        keys.iter().for_each(|key| read_columns(&key.value, &mut below));
        let input = match self.ordered(input, &keys, &below, env)? {
            Ok(ordered) => return Ok(ordered),
            Err(input) => self.node(input, &below, env)?,
        };
        let keys = self.keys(keys, &input.ids, env)?;
        let (rows, total, ids) = (input.plan.rows, input.plan.cost + cost::sort(input.plan.rows), input.ids);
        let node = Node::Sort { input: Box::new(input.plan), keys };
        Ok(Lowered { plan: self.plan(node, &ids, rows, total), ids })
    }

    /// An input that can be read in the order that is wanted, so that no sort is needed; else the input again.
    #[allow(clippy::result_large_err)]
    fn ordered(
        &mut self,
        input: Logical,
        keys: &[SortKey],
        need: &BTreeSet<usize>,
        env: &mut Env,
    ) -> Result<std::result::Result<Lowered, Logical>> {
        match input {
            Logical::Project { input, items } => {
                // Keys that are plain columns of the input are looked for below the projection.
                let mut below_keys = Vec::new();
                for key in keys {
                    let column = key.value.as_column();
                    let item = column.and_then(|id| items.iter().find(|(item, _)| *item == id));
                    match item.filter(|(_, value)| value.as_column().is_some()) {
                        Some((_, value)) => below_keys.push(SortKey { value: value.clone(), ..key.clone() }),
                        None => return Ok(Err(Logical::Project { input, items })),
                    }
                }
                let kept: Vec<(usize, Expr)> =
                    items.iter().filter(|(id, _)| need.contains(id)).cloned().collect();
                let mut below = BTreeSet::new();
                kept.iter().for_each(|(_, value)| read_columns(value, &mut below));
                match self.ordered(*input, &below_keys, &below, env)? {
                    Err(input) => Ok(Err(Logical::Project { input: Box::new(input), items })),
                    Ok(input) => {
                        let ids: Vec<usize> = kept.iter().map(|(id, _)| *id).collect();
                        if ids == input.ids && kept.iter().all(|(id, value)| value.as_column() == Some(*id)) {
                            return Ok(Ok(input));
                        }
                        let expressions =
                            self.exprs(kept.into_iter().map(|(_, value)| value).collect(), &input.ids, env)?;
                        let (rows, total) = (input.plan.rows, input.plan.cost);
                        let node = Node::Project { input: Box::new(input.plan), expressions };
                        Ok(Ok(Lowered { plan: self.plan(node, &ids, rows, total), ids }))
                    }
                }
            }
            Logical::Filter { input, condition } => {
                let Logical::Scan(scan) = *input else {
                    return Ok(Err(Logical::Filter { input, condition }));
                };
                let mut conditions = Vec::new();
                condition.clone().split_and(&mut conditions);
                if conditions.iter().any(has_subquery)
                    || !access::gives_order(&scan, &conditions, keys, self.statistics, self.columns)
                {
                    return Ok(Err(Logical::Filter { input: Box::new(Logical::Scan(scan)), condition }));
                }
                self.scan(scan, conditions, Some(keys), need, env).map(Ok)
            }
            Logical::Scan(scan) => {
                if !access::gives_order(&scan, &[], keys, self.statistics, self.columns) {
                    return Ok(Err(Logical::Scan(scan)));
                }
                self.scan(scan, Vec::new(), Some(keys), need, env).map(Ok)
            }
            other => Ok(Err(other)),
        }
    }

    fn limit(
        &mut self,
        input: Logical,
        limit: Option<Expr>,
        offset: Option<Expr>,
        ties: Option<Vec<SortKey>>,
        need: &BTreeSet<usize>,
        env: &mut Env,
    ) -> Result<Lowered> {
        let limit = limit.map(|expr| self.expr(expr, &[], env)).transpose()?;
        let offset = offset.map(|expr| self.expr(expr, &[], env)).transpose()?;
        let count = limit.as_ref().map_or(f64::MAX, |limit| match limit.as_constant() {
            Some(value) => value.as_i64().map_or(f64::MAX, |count| count as f64),
            None => 10.0,
        });
        let mut below = need.clone();
        ties.iter().flatten().for_each(|key| read_columns(&key.value, &mut below));
        let sorted = self.node(input, &below, env)?;
        let rows = sorted.plan.rows.min(count);
        let ids = sorted.ids.clone();
        if let (Some(limit), None) = (&limit, &ties)
            && let Node::Sort { input, keys } = sorted.plan.node
        {
            let total = input.cost + input.rows * 1.2;
            let node = Node::TopN { input, keys, limit: limit.clone(), offset };
            return Ok(Lowered { plan: self.plan(node, &ids, rows, total), ids });
        }
        let ties = ties.map(|keys| self.keys(keys, &ids, env)).transpose()?;
        let share = if sorted.plan.rows > 0.0 { (rows / sorted.plan.rows).min(1.0) } else { 1.0 };
        let total = sorted.plan.cost * share;
        let node = Node::Limit { input: Box::new(sorted.plan), limit, offset, ties };
        Ok(Lowered { plan: self.plan(node, &ids, rows, total), ids })
    }

    fn with(
        &mut self,
        expressions: Vec<logical::CommonTable>,
        input: Logical,
        need: &BTreeSet<usize>,
        env: &mut Env,
    ) -> Result<Lowered> {
        let mut lowered = Vec::with_capacity(expressions.len());
        let mut total = 0.0;
        for logical::CommonTable { id, name, plan, writes, materialized: _ } in expressions {
            let order = plan.output();
            let wanted: BTreeSet<usize> = order.iter().copied().collect();
            let part = self.node(plan, &wanted, env)?;
            let part = if writes { part } else { self.pick(part, &order)? };
            self.tables.insert(id, part.plan.rows);
            total += part.plan.cost;
            lowered.push(CommonTable { id, name, plan: part.plan, writes });
        }
        let input = self.node(input, need, env)?;
        let (rows, cost, ids) = (input.plan.rows, input.plan.cost + total, input.ids);
        let node = Node::With { expressions: lowered, input: Box::new(input.plan) };
        Ok(Lowered { plan: self.plan(node, &ids, rows, cost), ids })
    }

    fn lock_rows(
        &mut self,
        input: Logical,
        tables: Vec<logical::RowLock>,
        condition: Option<Expr>,
        need: &BTreeSet<usize>,
        env: &mut Env,
    ) -> Result<Lowered> {
        let mut below = need.clone();
        condition.iter().for_each(|condition| read_columns(condition, &mut below));
        for lock in &tables {
            below.extend([lock.target.partition, lock.target.key, lock.target.row]);
        }
        let input = self.node(input, &below, env)?;
        let mut lowered = Vec::with_capacity(tables.len());
        for lock in tables {
            let target = self.target(lock.target, &input.ids)?;
            let columns = lock.columns.iter().filter_map(|(id, column)| {
                input.ids.iter().position(|at| at == id).map(|place| (place, *column))
            });
            let columns = columns.collect();
            lowered.push(RowLock { table: lock.table, target, columns, mode: lock.mode, wait: lock.wait });
        }
        let condition = condition.map(|condition| self.expr(condition, &input.ids, env)).transpose()?;
        let (rows, total, ids) = (input.plan.rows, input.plan.cost + input.plan.rows * 2.0, input.ids);
        let node = Node::LockRows(LockRows { input: Box::new(input.plan), tables: lowered, condition });
        Ok(Lowered { plan: self.plan(node, &ids, rows, total), ids })
    }

    fn target(&self, target: logical::Target, ids: &[usize]) -> Result<Target> {
        Ok(Target {
            partition: position(ids, target.partition)?,
            key: position(ids, target.key)?,
            row: position(ids, target.row)?,
        })
    }

    fn rules(&mut self, rules: RowRules, row: &[usize], env: &mut Env) -> Result<RowRules> {
        let RowRules { generated, checks } = rules;
        let generated: Result<Vec<_>> =
            generated.into_iter().map(|(number, value)| Ok((number, self.expr(value, row, env)?))).collect();
        let checks: Result<Vec<_>> =
            checks.into_iter().map(|(name, value)| Ok((name, self.expr(value, row, env)?))).collect();
        Ok(RowRules { generated: generated?, checks: checks? })
    }

    #[allow(clippy::type_complexity)]
    fn returned(
        &mut self,
        returning: Option<Vec<(usize, Expr)>>,
        ids: &[usize],
        env: &mut Env,
    ) -> Result<(Option<Vec<Expr>>, Vec<usize>)> {
        let Some(items) = returning else { return Ok((None, Vec::new())) };
        let given: Vec<usize> = items.iter().map(|(id, _)| *id).collect();
        let values = self.exprs(items.into_iter().map(|(_, value)| value).collect(), ids, env)?;
        Ok((Some(values), given))
    }

    fn insert(&mut self, insert: logical::Insert, env: &mut Env) -> Result<Lowered> {
        let logical::Insert { table, source, rules, row, existing, on_conflict, returning } = insert;
        let order = source.output();
        let wanted: BTreeSet<usize> = order.iter().copied().collect();
        let source = self.node(source, &wanted, env)?;
        let source = self.pick(source, &order)?;
        let rules = self.rules(rules, &row, env)?;
        let on_conflict = match on_conflict {
            None => None,
            Some((indexes, None)) => Some(OnConflict { indexes, action: ConflictAction::Nothing }),
            Some((indexes, Some((assignments, condition)))) => {
                let both: Vec<usize> = existing.iter().chain(&row).copied().collect();
                let assignments = self.assignments(assignments, &both, env)?;
                let condition = condition.map(|condition| self.expr(condition, &both, env)).transpose()?;
                Some(OnConflict { indexes, action: ConflictAction::Update { assignments, condition } })
            }
        };
        let (returning, ids) = self.returned(returning, &row, env)?;
        let (rows, total) = (source.plan.rows, source.plan.cost + source.plan.rows * 5.0);
        let node =
            Node::Insert(Insert { table, source: Box::new(source.plan), rules, on_conflict, returning });
        Ok(Lowered { plan: self.plan(node, &ids, rows, total), ids })
    }

    fn assignments(
        &mut self,
        list: Vec<(model::id::ColumnNumber, Expr)>,
        ids: &[usize],
        env: &mut Env,
    ) -> Result<Vec<(model::id::ColumnNumber, Expr)>> {
        list.into_iter().map(|(number, value)| Ok((number, self.expr(value, ids, env)?))).collect()
    }

    /// The source of an UPDATE or DELETE: target and whatever `reads` names that is not a column of the old row.
    fn write_source(
        &mut self,
        source: Logical,
        target: logical::Target,
        old: &[usize],
        reads: &BTreeSet<usize>,
        env: &mut Env,
    ) -> Result<Lowered> {
        let made: BTreeSet<usize> = source.output().into_iter().collect();
        let mut wanted: BTreeSet<usize> =
            reads.intersection(&made).copied().filter(|id| !old.contains(id)).collect();
        wanted.extend([target.partition, target.key, target.row]);
        self.node(source, &wanted, env)
    }

    fn update(&mut self, update: logical::Update, env: &mut Env) -> Result<Lowered> {
        let logical::Update { table, source, target, old, new, assignments, condition, rules, returning } =
            update;
        let mut reads = BTreeSet::new();
        assignments.iter().for_each(|(_, value)| read_columns(value, &mut reads));
        condition.iter().for_each(|condition| read_columns(condition, &mut reads));
        returning.iter().flatten().for_each(|(_, value)| read_columns(value, &mut reads));
        let source = self.write_source(source, target, &old, &reads, env)?;
        let target = self.target(target, &source.ids)?;
        let before: Vec<usize> = old.iter().chain(&source.ids).copied().collect();
        let after: Vec<usize> = new.iter().chain(&source.ids).copied().collect();
        let assignments = self.assignments(assignments, &before, env)?;
        let condition = condition.map(|condition| self.expr(condition, &before, env)).transpose()?;
        let rules = self.rules(rules, &new, env)?;
        let (returning, ids) = self.returned(returning, &after, env)?;
        let (rows, total) = (source.plan.rows, source.plan.cost + source.plan.rows * 5.0);
        let node = Node::Update(Update {
            table,
            source: Box::new(source.plan),
            target,
            assignments,
            condition,
            rules,
            returning,
        });
        Ok(Lowered { plan: self.plan(node, &ids, rows, total), ids })
    }

    fn delete(&mut self, delete: logical::Delete, env: &mut Env) -> Result<Lowered> {
        let logical::Delete { table, source, target, old, condition, returning } = delete;
        let mut reads = BTreeSet::new();
        condition.iter().for_each(|condition| read_columns(condition, &mut reads));
        returning.iter().flatten().for_each(|(_, value)| read_columns(value, &mut reads));
        let source = self.write_source(source, target, &old, &reads, env)?;
        let target = self.target(target, &source.ids)?;
        let before: Vec<usize> = old.iter().chain(&source.ids).copied().collect();
        let condition = condition.map(|condition| self.expr(condition, &before, env)).transpose()?;
        let (returning, ids) = self.returned(returning, &before, env)?;
        let (rows, total) = (source.plan.rows, source.plan.cost + source.plan.rows * 5.0);
        let node =
            Node::Delete(Delete { table, source: Box::new(source.plan), target, condition, returning });
        Ok(Lowered { plan: self.plan(node, &ids, rows, total), ids })
    }

    fn merge(&mut self, merge: logical::Merge, env: &mut Env) -> Result<Lowered> {
        let logical::Merge { table, source, target, old, new, clauses, rules } = merge;
        let mut reads = BTreeSet::new();
        for clause in &clauses {
            clause.condition.iter().for_each(|condition| read_columns(condition, &mut reads));
            match &clause.action {
                MergeAction::Nothing | MergeAction::Delete => {}
                MergeAction::Update(list) => {
                    list.iter().for_each(|(_, value)| read_columns(value, &mut reads))
                }
                MergeAction::Insert(list) => list.iter().for_each(|value| read_columns(value, &mut reads)),
            }
        }
        let source = self.write_source(source, target, &old, &reads, env)?;
        let target = self.target(target, &source.ids)?;
        let before: Vec<usize> = old.iter().chain(&source.ids).copied().collect();
        let mut lowered = Vec::with_capacity(clauses.len());
        for MergeClause { matched, condition, action } in clauses {
            let condition = condition.map(|condition| self.expr(condition, &before, env)).transpose()?;
            let action = match action {
                MergeAction::Nothing => MergeAction::Nothing,
                MergeAction::Delete => MergeAction::Delete,
                MergeAction::Update(list) => MergeAction::Update(self.assignments(list, &before, env)?),
                MergeAction::Insert(list) => MergeAction::Insert(self.exprs(list, &before, env)?),
            };
            lowered.push(MergeClause { matched, condition, action });
        }
        let rules = self.rules(rules, &new, env)?;
        let (rows, total) = (source.plan.rows, source.plan.cost + source.plan.rows * 5.0);
        let node =
            Node::Merge(Merge { table, source: Box::new(source.plan), target, clauses: lowered, rules });
        Ok(Lowered { plan: self.plan(node, &[], rows, total), ids: Vec::new() })
    }

    fn keys(&mut self, keys: Vec<SortKey>, ids: &[usize], env: &mut Env) -> Result<Vec<SortKey>> {
        keys.into_iter().map(|key| Ok(SortKey { value: self.expr(key.value, ids, env)?, ..key })).collect()
    }

    fn exprs(&mut self, list: Vec<Expr>, ids: &[usize], env: &mut Env) -> Result<Vec<Expr>> {
        list.into_iter().map(|expr| self.expr(expr, ids, env)).collect()
    }

    fn set_exprs(&mut self, list: Vec<SetExpr>, ids: &[usize], env: &mut Env) -> Result<Vec<SetExpr>> {
        let lowered = list.into_iter().map(|set| {
            Ok(match set {
                SetExpr::Scalar(value) => SetExpr::Scalar(self.expr(value, ids, env)?),
                SetExpr::Set { function, arguments, types } => {
                    SetExpr::Set { function, arguments: self.exprs(arguments, ids, env)?, types }
                }
            })
        });
        lowered.collect()
    }

    /// An expression over the columns `ids`; what is not among them comes from around.
    pub(crate) fn expr(&mut self, mut expr: Expr, ids: &[usize], env: &mut Env) -> Result<Expr> {
        self.expr_in_place(&mut expr, ids, env)?;
        Ok(expr)
    }

    fn expr_in_place(&mut self, expr: &mut Expr, ids: &[usize], env: &mut Env) -> Result<()> {
        match &mut expr.kind {
            Kind::Column(id) => {
                expr.kind = match ids.iter().position(|at| at == id) {
                    Some(place) => Kind::Column(place),
                    None => Kind::Outer(env.place(*id)),
                };
                return Ok(());
            }
            Kind::Subquery(subquery) => self.subquery(subquery, ids, env)?,
            _ => {}
        }
        let mut result = Ok(());
        let is_subquery = matches!(expr.kind, Kind::Subquery(_));
        if !is_subquery {
            expr.for_each_child_mut(&mut |child| {
                if result.is_ok() {
                    result = self.expr_in_place(child, ids, env);
                }
            });
        }
        result
    }

    fn subquery(&mut self, subquery: &mut Subquery, ids: &[usize], env: &mut Env) -> Result<()> {
        if let SubqueryKind::Compare { left, .. } = &mut subquery.kind {
            for value in left {
                self.expr_in_place(value, ids, env)?;
            }
        }
        let placeholder = Query::Logical(Box::new(Logical::Empty { columns: Vec::new() }));
        let Query::Logical(query) = std::mem::replace(&mut subquery.query, placeholder) else {
            return Err(Error::internal("a sub-query is lowered once"));
        };
        let order = match subquery.kind {
            SubqueryKind::Exists => Vec::new(),
            SubqueryKind::Scalar | SubqueryKind::Compare { .. } | SubqueryKind::Array => query.output(),
        };
        let wanted: BTreeSet<usize> = order.iter().copied().collect();
        let mut inner = Env::default();
        let lowered = self.node(*query, &wanted, &mut inner)?;
        let lowered = match subquery.kind {
            SubqueryKind::Exists => lowered,
            SubqueryKind::Scalar | SubqueryKind::Compare { .. } | SubqueryKind::Array => {
                self.pick(lowered, &order)?
            }
        };
        let outer = self.outer(inner, ids, env)?;
        subquery.query = Query::Physical { plan: lowered.plan.into(), outer };
        Ok(())
    }
}

/// Of a column that is only counted nothing is read but whether it is null.
fn ask_for_presence(scan: &mut Scan, groups: &[Expr], calls: &[AggregateCall]) {
    let (mut read, mut counted): (Vec<&Expr>, BTreeSet<usize>) = (groups.iter().collect(), BTreeSet::new());
    read.extend(&scan.filter);
    for call in calls {
        read.extend(call.filter.iter().chain(call.order.iter().map(|key| &key.value)));
        match (call.function.name, &call.arguments[..]) {
            ("count", [Expr { kind: Kind::Column(place), .. }]) if !call.distinct => {
                counted.insert(*place);
            }
            (_, arguments) => read.extend(arguments),
        }
    }
    // A sub-query reads the row in its own way.
    if read.iter().any(|expr| has_subquery(expr)) {
        return;
    }
    let mut places = BTreeSet::new();
    read.iter().for_each(|expr| read_columns(expr, &mut places));
    for place in counted.difference(&places) {
        if let Some(column) = scan.columns.get_mut(*place)
            && let ScanColumn::Column(number) = *column
        {
            *column = ScanColumn::Presence(number);
        }
    }
}

fn position(ids: &[usize], id: usize) -> Result<usize> {
    ids.iter()
        .position(|at| *at == id)
        .ok_or_else(|| Error::internal(format!("column {id} was pruned and is needed")))
}

/// Whether an expression holds a sub-query.
pub(crate) fn has_subquery(expr: &Expr) -> bool {
    expr.any(&mut |expr| matches!(expr.kind, Kind::Subquery(_)))
}

/// The two sides of an equality between a left and a right input, if a hash join can use it.
pub(crate) fn equi_pair(
    condition: &Expr,
    left: &BTreeSet<usize>,
    right: &BTreeSet<usize>,
) -> Option<(Expr, Expr)> {
    let Kind::Operator(operator, operands) = &condition.kind else { return None };
    let [a, b] = &operands[..] else { return None };
    let alike = a.ty == b.ty || (a.ty.is_integer() && b.ty.is_integer());
    if operator.symbol != "=" || !alike || a.ty == Type::Bpchar || has_subquery(condition) {
        return None;
    }
    let (mut reads_a, mut reads_b) = (BTreeSet::new(), BTreeSet::new());
    read_columns(a, &mut reads_a);
    read_columns(b, &mut reads_b);
    if reads_a.is_empty() || reads_b.is_empty() {
        return None;
    }
    if reads_a.is_subset(left) && reads_b.is_subset(right) {
        Some((a.clone(), b.clone()))
    } else if reads_a.is_subset(right) && reads_b.is_subset(left) {
        Some((b.clone(), a.clone()))
    } else {
        None
    }
}
