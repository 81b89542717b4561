//! Window functions: the input's columns, then one per call.
//!
//! Invariants:
//! - The input is sorted by partition and order here (with spill); only the rows of one partition are held.
//! - Rows are given in that order. Peers are rows equal in the order keys.
//!
//! Files: `frame` which rows a row sees · `function` what is computed over them.

mod frame;
mod function;

use std::{collections::VecDeque, sync::Arc};

use model::{Result, Type, port::BoxFuture};

use super::{
    Expressions, Operator, Runtime,
    sort::{Sorted, Sorter},
};
use crate::{
    batch::{Batch, Column, ROWS, concat, key::Keys},
    expr::{Expr, SortKey},
    memory::Charge,
    plan,
};
use frame::Frames;

/// The operator.
pub(super) struct Window {
    runtime: Runtime,
    input: Option<Box<dyn Operator>>,
    sorter: Option<Sorter>,
    sorted: Option<Sorted>,
    partition: Expressions,
    order: Expressions,
    order_keys: Vec<SortKey>,
    calls: Vec<Call>,
    input_types: Vec<Type>,
    held: Vec<Batch>,
    key: Option<Vec<u8>>,
    charge: Charge,
    ready: VecDeque<Batch>,
    ended: bool,
}

/// A call with its expressions.
struct Call {
    plan: plan::WindowCall,
    arguments: Expressions,
    filter: Option<Expressions>,
}

impl Window {
    pub(super) fn new(
        plan: &plan::Window,
        input: Box<dyn Operator>,
        _types: Vec<Type>,
        runtime: &Runtime,
    ) -> Self {
        let input_types = super::types_of(&plan.input);
        let width = input_types.len();
        let mut keys: Vec<SortKey> = plan
            .partition
            .iter()
            .map(|value| SortKey { value: value.clone(), descending: false, nulls_first: false })
            .collect();
        keys.extend(plan.order.iter().cloned());
        let sorter = (!keys.is_empty()).then(|| Sorter::new(&keys, input_types.clone(), runtime));
        let order: Vec<Expr> = plan.order.iter().map(|key| key.value.clone()).collect();
        let calls = plan.calls.iter().map(|call| Call {
            arguments: Expressions::new(&call.arguments, width),
            filter: call.filter.as_ref().map(|filter| Expressions::new(std::slice::from_ref(filter), width)),
            plan: call.clone(),
        });
        Self {
            runtime: runtime.clone(),
            input: Some(input),
            sorter,
            sorted: None,
            partition: Expressions::new(&plan.partition, width),
            order: Expressions::new(&order, width),
            order_keys: plan.order.clone(),
            calls: calls.collect(),
            input_types,
            held: Vec::new(),
            key: None,
            charge: runtime.budget.charge("a window"),
            ready: VecDeque::new(),
            ended: false,
        }
    }

    /// The next rows in order of partition and order.
    async fn next_sorted(&mut self) -> Result<Option<Batch>> {
        if let Some(mut sorter) = self.sorter.take()
            && let Some(mut input) = self.input.take()
        {
            while let Some(batch) = input.next().await? {
                sorter.add(batch).await?;
            }
            self.sorted = Some(sorter.finish().await?);
        }
        match (&mut self.sorted, &mut self.input) {
            (Some(sorted), _) => sorted.next(),
            (None, Some(input)) => input.next().await,
            (None, None) => Ok(None),
        }
    }

    /// Takes in rows; partitions that are complete are computed.
    async fn take(&mut self, batch: Batch) -> Result<()> {
        let batch = batch.compact();
        if batch.is_empty() {
            return Ok(());
        }
        let columns = self.partition.columns(&self.runtime, &batch).await?;
        let refs: Vec<&Column> = columns.iter().map(Arc::as_ref).collect();
        let keys = Keys::of(&refs, &[], batch.len());
        let mut from = 0;
        while from < batch.len() {
            let to = (from..batch.len()).find(|row| keys.get(*row) != keys.get(from)).unwrap_or(batch.len());
            if self.key.as_deref() != Some(keys.get(from)) {
                self.compute().await?;
                self.key = Some(keys.get(from).to_vec());
            }
            let piece = batch.slice(from, to - from).compact();
            self.charge.add(2 * piece.heap_bytes())?;
            self.held.push(piece);
            from = to;
        }
        Ok(())
    }

    /// Computes the partition that is held.
    async fn compute(&mut self) -> Result<()> {
        if self.held.is_empty() {
            return Ok(());
        }
        let rows = concat(&std::mem::take(&mut self.held), &self.input_types);
        let order = self.order.columns(&self.runtime, &rows).await?;
        let refs: Vec<&Column> = order.iter().map(Arc::as_ref).collect();
        let peers = peer_groups(&Keys::of(&refs, &[], rows.len()));
        let mut columns = rows.columns().to_vec();
        for call in &mut self.calls {
            self.runtime.pace().await?;
            let arguments = call.arguments.columns(&self.runtime, &rows).await?;
            let filter = match &mut call.filter {
                Some(filter) => filter.columns(&self.runtime, &rows).await?.pop(),
                None => None,
            };
            let frames =
                Frames::new(&self.runtime, &call.plan.frame, &peers, &order, &self.order_keys).await?;
            let made = function::compute(&self.runtime, &call.plan, &arguments, filter.as_deref(), &frames)?;
            columns.push(Arc::new(made));
        }
        let made = Batch::new(columns, rows.len());
        self.ready.extend((0..made.len()).step_by(ROWS).map(|from| made.slice(from, ROWS)));
        self.charge.set(0)
    }
}

/// For each row the number of its group of peers, in order from 0.
fn peer_groups(keys: &Keys) -> Vec<u32> {
    let mut groups = Vec::with_capacity(keys.len());
    let mut group = 0;
    for row in 0..keys.len() {
        if row > 0 && keys.get(row) != keys.get(row - 1) {
            group += 1;
        }
        groups.push(group);
    }
    groups
}

impl Operator for Window {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Batch>>> {
        Box::pin(async move {
            loop {
                if let Some(batch) = self.ready.pop_front() {
                    return Ok(Some(batch));
                }
                if self.ended {
                    return Ok(None);
                }
                self.runtime.pace().await?;
                match self.next_sorted().await? {
                    Some(batch) => self.take(batch).await?,
                    None => {
                        self.ended = true;
                        self.compute().await?;
                    }
                }
            }
        })
    }
}
