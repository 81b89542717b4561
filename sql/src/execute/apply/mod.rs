//! For each row of the left, the right run with values of that row.
//!
//! Rows of the left that hand in the same values one after the other share one run. A right that is one row by its key is
//! looked up for whole batches (`lookup`).

mod lookup;

use std::sync::Arc;

use model::{Result, Type, Value, port::BoxFuture};

use lookup::Lookup;

use super::{Expressions, Operator, Runtime, expressions::too_many_rows, open, types_of};
use crate::{
    batch::{Batch, Column, concat},
    plan::{self, JoinKind, Plan},
};

/// Starts an apply.
pub(super) fn start(plan: &plan::Apply, left: Box<dyn Operator>, runtime: &Runtime) -> Box<dyn Operator> {
    match Lookup::find(plan, left, runtime) {
        Ok(lookup) => Box::new(lookup),
        Err(left) => Box::new(Apply::new(plan, left, runtime)),
    }
}

/// The operator.
struct Apply {
    runtime: Runtime,
    kind: JoinKind,
    left: Box<dyn Operator>,
    right: Arc<Plan>,
    right_types: Vec<Type>,
    outer: Expressions,
    residual: Option<Expressions>,
    current: Option<Current>,
    /// The right gives the same for the same values.
    repeatable: bool,
    last: Option<(Arc<[Value]>, Batch)>,
}

struct Current {
    batch: Batch,
    outer: Vec<Arc<Column>>,
    row: usize,
}

impl Apply {
    fn new(plan: &plan::Apply, left: Box<dyn Operator>, runtime: &Runtime) -> Self {
        let (left_width, right_types) = (plan.left.columns.len(), types_of(&plan.right));
        let width = left_width + right_types.len();
        Self {
            runtime: runtime.clone(),
            kind: plan.kind,
            left,
            right: Arc::new(plan.right.as_ref().clone()),
            outer: Expressions::new(&plan.outer, left_width),
            residual: plan.residual.as_ref().map(|residual| Expressions::condition(residual, width)),
            right_types,
            current: None,
            repeatable: !super::expressions::is_volatile(&plan.right),
            last: None,
        }
    }

    async fn run_right(&mut self, values: Arc<[Value]>) -> Result<Batch> {
        if let Some((known, rows)) = &self.last
            && known.as_ref() == values.as_ref()
        {
            return Ok(rows.clone());
        }
        let mut right = open(&self.right, &self.runtime.with_outer(Arc::clone(&values)))?;
        let mut charge = self.runtime.budget.charge("a correlated join");
        let mut batches = Vec::new();
        while let Some(batch) = right.next().await? {
            if batch.is_empty() {
                continue;
            }
            charge.add(batch.heap_bytes())?;
            let enough = self.residual.is_none() && matches!(self.kind, JoinKind::Semi | JoinKind::Anti);
            batches.push(batch);
            if enough {
                break;
            }
        }
        let rows = concat(&batches, &self.right_types);
        self.last = (self.repeatable && rows.len() <= 64).then(|| (values, rows.clone()));
        Ok(rows)
    }

    /// What one row of the left gives.
    async fn join_row(&mut self, left: &Batch, row: usize, right: Batch) -> Result<Option<Batch>> {
        let repeated = vec![row as u32; right.len()];
        let left_rows = left.select(&repeated).compact();
        let mut columns = left_rows.columns().to_vec();
        columns.extend(right.columns().iter().cloned());
        let mut pairs = Batch::new(columns, right.len());
        if let Some(residual) = &mut self.residual {
            pairs = residual.filter(&self.runtime, pairs).await?;
        }
        let alone = || left.select(&[row as u32]).compact();
        Ok(match self.kind {
            JoinKind::Semi => (!pairs.is_empty()).then(alone),
            JoinKind::Anti => pairs.is_empty().then(alone),
            JoinKind::Single if pairs.len() > 1 => return Err(too_many_rows()),
            JoinKind::Left | JoinKind::Single if pairs.is_empty() => {
                let mut columns = alone().columns().to_vec();
                for ty in &self.right_types {
                    let mut nulls = Column::with_capacity(*ty, 1);
                    nulls.push_null();
                    columns.push(Arc::new(nulls));
                }
                Some(Batch::new(columns, 1))
            }
            _ => (!pairs.is_empty()).then_some(pairs),
        })
    }
}

impl Operator for Apply {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Batch>>> {
        Box::pin(async move {
            let mut made = Vec::new();
            let mut count = 0;
            while count < crate::batch::ROWS {
                let Some(current) = &mut self.current else {
                    let Some(batch) = self.left.next().await? else { break };
                    let batch = batch.compact();
                    let outer = self.outer.columns(&self.runtime, &batch).await?;
                    self.current = Some(Current { batch, outer, row: 0 });
                    continue;
                };
                if current.row >= current.batch.len() {
                    self.current = None;
                    continue;
                }
                let row = current.row;
                current.row += 1;
                let (batch, values) =
                    (current.batch.clone(), current.outer.iter().map(|column| column.value(row)).collect());
                self.runtime.pace().await?;
                let right = self.run_right(values).await?;
                if let Some(rows) = self.join_row(&batch, row, right).await? {
                    count += rows.len();
                    made.push(rows);
                }
            }
            if made.is_empty() {
                return Ok(None);
            }
            let types: Vec<Type> = made[0].columns().iter().map(|column| column.ty()).collect();
            Ok(Some(concat(&made, &types)))
        })
    }
}
