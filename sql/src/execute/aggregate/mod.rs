//! Groups and their aggregates.
//!
//! Invariants:
//! - Groups are given in the order in which their first rows came. NULLs are equal; without groups there is one, rows or
//!   not; an empty grouping set likewise.
//! - When a table of groups no longer fits, rows of groups that are not in it are spilled by a hash of their key and
//!   aggregated later, part by part.
//! - A typed state gives what the accumulator in `functions` gives.
//!
//! Files: `grouping` one grouping set's table · `call` one aggregate over all groups · `state` typed states.

mod call;
mod grouping;
mod state;

pub(super) use call::{Single, single};

use std::{collections::VecDeque, sync::Arc};

use model::{Result, Type, port::BoxFuture};

use super::{Expressions, Operator, Runtime};
use crate::{
    batch::{Batch, Column, ROWS, key::Keys},
    expr::Expr,
    plan, spill,
};
use grouping::{Grouping, Layout};

/// Starts an aggregation.
pub(super) fn open(
    plan: &plan::Aggregate,
    input: Box<dyn Operator>,
    types: Vec<Type>,
    runtime: &Runtime,
) -> Box<dyn Operator> {
    let layout = Arc::new(Layout::new(plan, types));
    let sets: Vec<Vec<usize>> = match &plan.sets {
        Some(sets) => sets.clone(),
        None => vec![(0..plan.groups.len()).collect()],
    };
    let values = layout.values(plan);
    let ordered = plan.ordered && plan.sets.is_none() && !plan.groups.is_empty();
    Box::new(Aggregate {
        runtime: runtime.clone(),
        input: Some(input),
        values: Expressions::new(&values, plan.input.columns.len()),
        groupings: sets.into_iter().map(|set| Grouping::new(set, &layout, 0, runtime)).collect(),
        layout,
        ordered,
        last: None,
        waiting: VecDeque::new(),
        ready: VecDeque::new(),
    })
}

struct Aggregate {
    runtime: Runtime,
    input: Option<Box<dyn Operator>>,
    /// Groups, arguments, filters and order keys, evaluated together.
    values: Expressions,
    layout: Arc<Layout>,
    groupings: Vec<Grouping>,
    ordered: bool,
    /// The key of the last row, if the input is ordered.
    last: Option<Vec<u8>>,
    /// Spilled parts: which set, how deep, and the rows.
    waiting: VecDeque<(Vec<usize>, u64, spill::Reader)>,
    ready: VecDeque<Batch>,
}

impl Aggregate {
    /// Takes in the whole input; with an ordered one only until some groups are complete.
    async fn take_in(&mut self) -> Result<()> {
        let Some(mut input) = self.input.take() else { return Ok(()) };
        while let Some(batch) = input.next().await? {
            self.runtime.pace().await?;
            if batch.is_empty() {
                continue;
            }
            let columns = self.values.columns(&self.runtime, &batch).await?;
            let values = Batch::new(columns, batch.len());
            if self.ordered {
                self.take_ordered(values)?;
                if !self.ready.is_empty() {
                    self.input = Some(input);
                    return Ok(());
                }
                continue;
            }
            for grouping in &mut self.groupings {
                grouping.take(&values)?;
            }
        }
        self.finish_groupings()
    }

    /// Takes in ordered rows: when the key changes, the groups before it are complete.
    fn take_ordered(&mut self, values: Batch) -> Result<()> {
        let groups: Vec<&Column> = values.columns()[..self.layout.groups].iter().map(Arc::as_ref).collect();
        let keys = Keys::of(&groups, &[], values.len());
        let last = values.len() - 1;
        let start = (0..last).rev().find(|row| keys.get(*row) != keys.get(last)).map_or(0, |row| row + 1);
        let goes_on = self.last.as_deref() == Some(keys.get(0));
        self.last = Some(keys.get(last).to_vec());
        if start > 0 {
            self.groupings[0].take(&values.slice(0, start).compact())?;
        }
        if start > 0 || !goes_on {
            self.give_complete()?;
        }
        self.groupings[0].take(&values.slice(start, values.len() - start).compact())
    }

    fn give_complete(&mut self) -> Result<()> {
        let set = self.groupings[0].set().to_vec();
        let fresh = Grouping::new(set, &self.layout, 0, &self.runtime);
        let complete = std::mem::replace(&mut self.groupings[0], fresh);
        if !complete.is_empty() {
            self.give(complete)?;
        }
        Ok(())
    }

    fn finish_groupings(&mut self) -> Result<()> {
        for mut grouping in std::mem::take(&mut self.groupings) {
            if self.ordered && grouping.is_empty() {
                continue;
            }
            grouping.begin_if_global()?;
            self.give(grouping)?;
        }
        Ok(())
    }

    fn give(&mut self, grouping: Grouping) -> Result<()> {
        let (set, depth) = (grouping.set().to_vec(), grouping.depth());
        let (batches, parts) = grouping.finish()?;
        for batch in batches {
            self.ready.extend((0..batch.len()).step_by(ROWS).map(|from| batch.slice(from, ROWS)));
        }
        self.waiting.extend(parts.into_iter().map(|part| (set.clone(), depth + 1, part)));
        Ok(())
    }

    /// Aggregates one spilled part.
    async fn take_part(&mut self, set: Vec<usize>, depth: u64, mut rows: spill::Reader) -> Result<()> {
        let mut grouping = Grouping::new(set, &self.layout, depth, &self.runtime);
        while let Some(batch) = rows.next_batch()? {
            self.runtime.pace().await?;
            grouping.take(&batch)?;
        }
        self.give(grouping)
    }
}

impl Operator for Aggregate {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Batch>>> {
        Box::pin(async move {
            loop {
                if let Some(batch) = self.ready.pop_front() {
                    return Ok(Some(batch));
                }
                if self.input.is_some() {
                    self.take_in().await?;
                    continue;
                }
                let Some((set, depth, rows)) = self.waiting.pop_front() else { return Ok(None) };
                self.take_part(set, depth, rows).await?;
            }
        })
    }
}

/// The expressions of a layout's columns, in order.
impl Layout {
    fn values(&self, plan: &plan::Aggregate) -> Vec<Expr> {
        let mut values = plan.groups.clone();
        for call in &plan.aggregates {
            values.extend(call.arguments.iter().cloned());
            values.extend(call.filter.iter().cloned());
            values.extend(call.order.iter().map(|key| key.value.clone()));
        }
        values
    }
}
