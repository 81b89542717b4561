//! Rows of a system relation, made from the catalog snapshot as they are pulled.

use model::{Result, Type, port::BoxFuture};

use super::{Expressions, Operator, Runtime};
use crate::{
    batch::{Batch, Column, ROWS},
    functions::RowIterator,
    plan,
};

/// The operator.
pub(super) struct SystemScan {
    runtime: Runtime,
    plan: plan::SystemScan,
    filter: Option<Expressions>,
    rows: Option<RowIterator>,
}

impl SystemScan {
    pub(super) fn new(plan: &plan::SystemScan, runtime: &Runtime) -> Self {
        Self {
            runtime: runtime.clone(),
            filter: plan.filter.as_ref().map(|filter| Expressions::condition(filter, plan.columns.len())),
            plan: plan.clone(),
            rows: None,
        }
    }

    fn take(&mut self) -> Result<Option<Batch>> {
        if self.rows.is_none() {
            self.rows = Some(self.runtime.evaluate(|scope| (self.plan.relation.rows)(scope.context))?);
        }
        let Some(rows) = &mut self.rows else { return Ok(None) };
        let types: Vec<Type> = self.plan.columns.iter().map(|at| self.plan.relation.columns[*at].1).collect();
        let mut columns: Vec<Column> = types.iter().map(|ty| Column::with_capacity(*ty, 0)).collect();
        let mut count = 0;
        for row in rows.take(ROWS) {
            let row = row?;
            for (column, at) in columns.iter_mut().zip(&self.plan.columns) {
                column.push_value(&row[*at]);
            }
            count += 1;
        }
        if count == 0 {
            return Ok(None);
        }
        Ok(Some(Batch::new(columns.into_iter().map(std::sync::Arc::new).collect(), count)))
    }
}

impl Operator for SystemScan {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Batch>>> {
        Box::pin(async move {
            loop {
                self.runtime.pace().await?;
                let Some(mut batch) = self.take()? else { return Ok(None) };
                if let Some(filter) = &mut self.filter {
                    batch = filter.filter(&self.runtime, batch).await?;
                }
                if !batch.is_empty() {
                    return Ok(Some(batch));
                }
            }
        })
    }
}
