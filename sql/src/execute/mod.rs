//! Runs plans: pull-based operators over batches, one operator per file.
//!
//! Invariants:
//! - An operator gives batches until it gives none; asked again it gives none again. Empty batches may come in between.
//! - What an operator holds is charged to the statement's budget; what does not fit is spilled or is `53200`.
//! - The cancel flag is looked at once per batch, and a long computation lets others run once per batch.
//! - Rows that a statement writes are not seen by its own scans: they go into the statement's own buffer (`txn`).
//! - Dropping an operator ends its work; nothing runs on.
//!
//! Not here: which plan is run (`optimize`), what expressions mean (`eval`), how rows are changed (`dml`).

mod aggregate;
mod apply;
mod count_rows;
mod cte;
mod distinct;
mod expressions;
mod filter;
mod function_scan;
mod join;
mod limit;
mod lock_rows;
mod project;
mod project_set;
mod range;
mod recursive;
mod runtime;
mod scan;
mod set_operation;
mod sort;
mod statistics;
mod system_scan;
mod values;
mod window;

#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use model::{Result, Type, port::BoxFuture};

use crate::{
    batch::Batch,
    dml,
    plan::{Node, Plan, Strategy},
};

pub(crate) use expressions::{Expressions, evaluate_patiently};
pub(crate) use range::key_range_of;
pub use range::{KeyBytes, key_range, partition_of};
pub use runtime::{Cancel, Making, Reason, Reserve, Runtime};
pub(crate) use scan::whole_row;
pub use statistics::{NodeStatistics, Statistics};

/// One node at work.
pub trait Operator: Send {
    /// The next rows; none at the end.
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Batch>>>;
}

/// Starts a plan. Nothing is read before the first batch is asked for.
pub fn open(plan: &Plan, runtime: &Runtime) -> Result<Box<dyn Operator>> {
    let runtime = &runtime.at(plan.id);
    let operator = open_node(plan, runtime)?;
    Ok(match &runtime.statistics {
        Some(statistics) => statistics::measured(plan.id, operator, Arc::clone(statistics), runtime),
        None => operator,
    })
}

fn open_node(plan: &Plan, runtime: &Runtime) -> Result<Box<dyn Operator>> {
    let types = types_of(plan);
    Ok(match &plan.node {
        Node::Values(rows) => Box::new(values::Values::new(rows, types, runtime)),
        Node::Scan(scan) => Box::new(scan::Scan::new(scan, runtime)),
        Node::SystemScan(scan) => Box::new(system_scan::SystemScan::new(scan, runtime)),
        Node::FunctionScan(scan) => Box::new(function_scan::FunctionScan::new(scan, types, runtime)),
        Node::CountRows { table, partitions } => {
            Box::new(count_rows::CountRows::new(table, partitions, runtime))
        }
        Node::Filter { input, condition } => {
            Box::new(filter::Filter::new(open(input, runtime)?, condition, width_of(input), runtime))
        }
        Node::Project { input, expressions } => {
            Box::new(project::Project::new(open(input, runtime)?, expressions, width_of(input), runtime))
        }
        Node::ProjectSet { input, expressions } => Box::new(project_set::ProjectSet::new(
            open(input, runtime)?,
            expressions,
            width_of(input),
            types,
            runtime,
        )),
        Node::Join(join) => {
            let (left, right) = (open(&join.left, runtime)?, open(&join.right, runtime)?);
            match join.strategy {
                Strategy::Hash => join::hash(join, left, right, runtime),
                Strategy::Nested => join::nested(join, left, right, runtime),
                Strategy::Merge => join::merge(join, left, right, runtime),
            }
        }
        Node::Apply(apply) => apply::start(apply, open(&apply.left, runtime)?, runtime),
        Node::Aggregate(aggregate) => {
            aggregate::open(aggregate, open(&aggregate.input, runtime)?, types, runtime)
        }
        Node::Window(window) => {
            Box::new(window::Window::new(window, open(&window.input, runtime)?, types, runtime))
        }
        Node::Sort { input, keys } => {
            Box::new(sort::Sort::new(open(input, runtime)?, keys, types_of(input), runtime))
        }
        Node::TopN { input, keys, limit, offset } => Box::new(sort::TopN::new(
            open(input, runtime)?,
            keys,
            limit,
            offset.as_ref(),
            types_of(input),
            runtime,
        )),
        Node::Limit { input, limit, offset, ties } => Box::new(limit::Limit::new(
            open(input, runtime)?,
            limit.as_ref(),
            offset.as_ref(),
            ties.as_deref(),
            width_of(input),
            runtime,
        )),
        Node::Distinct { input } => {
            Box::new(distinct::Distinct::new(open(input, runtime)?, types_of(input), runtime))
        }
        Node::DistinctOn { input, keys } => {
            Box::new(distinct::DistinctOn::new(open(input, runtime)?, keys, width_of(input), runtime))
        }
        Node::SetOperation { kind, all, left, right } => {
            set_operation::open(*kind, *all, open(left, runtime)?, open(right, runtime)?, types, runtime)
        }
        Node::With { expressions, input } => cte::open(expressions, input, runtime)?,
        Node::CteScan { id } => Box::new(cte::CteScan::new(*id, runtime)),
        Node::Recursive { id, initial, recursive, all } => {
            Box::new(recursive::Recursive::new(*id, open(initial, runtime)?, recursive, *all, types, runtime))
        }
        Node::LockRows(lock) => {
            Box::new(lock_rows::LockRows::new(lock, open(&lock.input, runtime)?, types.len(), runtime))
        }
        Node::Insert(insert) => {
            Box::new(dml::Insert::new(plan.id, insert, open(&insert.source, runtime)?, runtime))
        }
        Node::Update(update) => Box::new(dml::Update::new(
            plan.id,
            update,
            open(&update.source, runtime)?,
            types_of(&update.source),
            runtime,
        )),
        Node::Delete(delete) => Box::new(dml::Delete::new(
            plan.id,
            delete,
            open(&delete.source, runtime)?,
            types_of(&delete.source),
            runtime,
        )),
        Node::Merge(merge) => Box::new(dml::Merge::new(
            plan.id,
            merge,
            open(&merge.source, runtime)?,
            types_of(&merge.source),
            runtime,
        )),
    })
}

/// The types of what a plan gives.
pub(crate) fn types_of(plan: &Plan) -> Vec<Type> {
    plan.columns.iter().map(|column| column.ty).collect()
}

fn width_of(plan: &Plan) -> usize {
    plan.columns.len()
}

/// Everything an operator gives, without empty batches.
pub async fn collect(operator: &mut dyn Operator) -> Result<Vec<Batch>> {
    let mut batches = Vec::new();
    while let Some(batch) = operator.next().await? {
        if !batch.is_empty() {
            batches.push(batch);
        }
    }
    Ok(batches)
}
