//! What a statement must fail for before it runs: a constant that has no value, like `1/0`.
//!
//! As in PostgreSQL it fails whether a row would have needed the constant or not, unless a constant beside it says that none
//! can, or nobody reads the column that it stands in.
//!
//! Invariant: a node is looked at after all that read its columns, so that what is read of it is known.

use std::collections::{BTreeMap, BTreeSet};

use model::{Error, Result, Value};

use super::fold::{is_foldable, needs_outputs};
use crate::{
    context::Context,
    eval,
    expr::{Expr, Kind, Query, SubqueryKind},
    plan::{
        SetExpr,
        logical::{CommonTable, Logical},
    },
};

/// The error of the first constant of a folded plan that has no value.
pub(crate) fn failure(plan: &Logical, context: &mut Context) -> Option<Error> {
    let mut search = Search { context, read: BTreeSet::new(), tables: BTreeMap::new() };
    search.whole(plan).err()
}

struct Search<'c> {
    context: &'c mut Context,
    /// Ids of columns that are read by what was looked at.
    read: BTreeSet<usize>,
    /// What is read of common tables.
    tables: BTreeMap<usize, Reads>,
}

/// How often a common table is read, and which places of its output.
#[derive(Default)]
struct Reads {
    count: usize,
    places: BTreeSet<usize>,
}

impl Search<'_> {
    /// Looks at a plan whose columns are all read.
    fn whole(&mut self, plan: &Logical) -> Result<()> {
        self.read.extend(plan.output());
        self.plan(plan)
    }

    fn plan(&mut self, plan: &Logical) -> Result<()> {
        match plan {
            Logical::Project { input, items } => {
                for (id, value) in items {
                    self.item(*id, value)?;
                }
                self.plan(input)
            }
            Logical::ProjectSet { input, items } => {
                for (id, value) in items {
                    match value {
                        SetExpr::Scalar(value) => self.item(*id, value)?,
                        SetExpr::Set { arguments, .. } => self.list(arguments)?,
                    }
                }
                self.plan(input)
            }
            Logical::Aggregate(aggregate) => {
                self.list(aggregate.groups.iter().map(|(_, value)| value))?;
                for (id, call) in &aggregate.aggregates {
                    if self.read.contains(id) {
                        self.list(call.arguments.iter().chain(&call.filter))?;
                        self.list(call.order.iter().map(|key| &key.value))?;
                    }
                }
                self.plan(&aggregate.input)
            }
            Logical::Window(window) => {
                self.list(window.partition.iter().chain(window.order.iter().map(|key| &key.value)))?;
                for (id, call) in &window.calls {
                    if self.read.contains(id) {
                        self.list(call.arguments.iter().chain(&call.filter))?;
                    }
                }
                self.plan(&window.input)
            }
            Logical::Values { columns, rows } => match &rows[..] {
                [only] => columns.iter().zip(only).try_for_each(|(id, value)| self.item(*id, value)),
                rows => self.list(rows.iter().flatten()),
            },
            Logical::CteScan { id, columns } => {
                let reads = self.tables.entry(*id).or_default();
                reads.count += 1;
                reads
                    .places
                    .extend(columns.iter().filter(|(id, _)| self.read.contains(id)).map(|(_, place)| *place));
                Ok(())
            }
            Logical::With { expressions, input } => {
                self.plan(input)?;
                expressions.iter().rev().try_for_each(|table| self.table(table))
            }
            Logical::Join(join) => {
                self.nodes_own(plan)?;
                // The right may read columns of the left.
                self.plan(&join.right)?;
                self.plan(&join.left)
            }
            Logical::Distinct { .. }
            | Logical::SetOperation { .. }
            | Logical::Recursive { .. }
            | Logical::Insert(_) => {
                self.nodes_own(plan)?;
                plan.inputs().into_iter().try_for_each(|input| self.whole(input))
            }
            Logical::Empty { .. }
            | Logical::Scan(_)
            | Logical::SystemScan { .. }
            | Logical::FunctionScan { .. }
            | Logical::Filter { .. }
            | Logical::Sort { .. }
            | Logical::Limit { .. }
            | Logical::DistinctOn { .. }
            | Logical::LockRows { .. }
            | Logical::Update(_)
            | Logical::Delete(_)
            | Logical::Merge(_) => {
                self.nodes_own(plan)?;
                plan.inputs().into_iter().try_for_each(|input| self.plan(input))
            }
        }
    }

    /// A common table, after all that read it. One that is read once is part of what reads it.
    fn table(&mut self, table: &CommonTable) -> Result<()> {
        if table.writes {
            return self.whole(&table.plan);
        }
        let Some(reads) = self.tables.remove(&table.id) else { return Ok(()) };
        if table.materialized.unwrap_or(reads.count > 1) {
            return self.whole(&table.plan);
        }
        let output = table.plan.output();
        self.read.extend(reads.places.iter().filter_map(|place| output.get(*place)));
        self.plan(&table.plan)
    }

    /// The expressions of one node, whoever reads its columns.
    fn nodes_own(&mut self, plan: &Logical) -> Result<()> {
        let mut result = Ok(());
        plan.for_each_expr(&mut |expr| {
            if result.is_ok() {
                result = self.expr(expr);
            }
        });
        result
    }

    fn item(&mut self, id: usize, value: &Expr) -> Result<()> {
        if self.read.contains(&id) { self.expr(value) } else { Ok(()) }
    }

    fn list<'e>(&mut self, list: impl IntoIterator<Item = &'e Expr>) -> Result<()> {
        list.into_iter().try_for_each(|expr| self.expr(expr))
    }

    fn expr(&mut self, expr: &Expr) -> Result<()> {
        match &expr.kind {
            Kind::Column(id) => {
                self.read.insert(*id);
            }
            Kind::Subquery(subquery) => {
                if let Query::Logical(query) = &subquery.query {
                    let is_asked_for_rows =
                        matches!(subquery.kind, SubqueryKind::Exists) && !needs_outputs(query);
                    if is_asked_for_rows { self.plan(query)? } else { self.whole(query)? }
                }
            }
            Kind::And(parts) => return self.until(parts, |part| is_truth(part, false)),
            Kind::Or(parts) => return self.until(parts, |part| is_truth(part, true)),
            Kind::Coalesce(parts) => {
                return self.until(parts, |part| part.as_constant().is_some_and(|value| !value.is_null()));
            }
            Kind::Case { branches, otherwise } => {
                for (condition, result) in branches {
                    self.expr(condition)?;
                    let holds = is_truth(condition, true);
                    if condition.as_constant().is_none() || holds {
                        self.expr(result)?;
                    }
                    if holds {
                        return Ok(());
                    }
                }
                return self.expr(otherwise);
            }
            _ => {}
        }
        let mut result = Ok(());
        expr.for_each_child(&mut |child| {
            if result.is_ok() {
                result = self.expr(child);
            }
        });
        result?;
        // What could be computed is a constant by now.
        if is_foldable(expr) { eval::value(self.context, expr, &[]).map(drop) } else { Ok(()) }
    }

    /// The parts up to one that makes those behind it superfluous.
    fn until(&mut self, parts: &[Expr], ends: impl Fn(&Expr) -> bool) -> Result<()> {
        for part in parts {
            self.expr(part)?;
            if ends(part) {
                break;
            }
        }
        Ok(())
    }
}

fn is_truth(expr: &Expr, truth: bool) -> bool {
    matches!(expr.as_constant(), Some(Value::Bool(value)) if *value == truth)
}
