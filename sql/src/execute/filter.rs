//! The rows for which a condition is true.

use model::{Result, port::BoxFuture};

use super::{Expressions, Operator, Runtime};
use crate::{batch::Batch, expr::Expr};

/// The operator.
pub(super) struct Filter {
    runtime: Runtime,
    input: Box<dyn Operator>,
    condition: Expressions,
}

impl Filter {
    pub(super) fn new(input: Box<dyn Operator>, condition: &Expr, width: usize, runtime: &Runtime) -> Self {
        Self { runtime: runtime.clone(), input, condition: Expressions::condition(condition, width) }
    }
}

impl Operator for Filter {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Batch>>> {
        Box::pin(async move {
            while let Some(batch) = self.input.next().await? {
                self.runtime.pace().await?;
                let before = batch.len();
                let batch = self.condition.filter(&self.runtime, batch).await?;
                self.runtime.note(|node| node.rows_removed += (before - batch.len()) as u64);
                if !batch.is_empty() {
                    return Ok(Some(batch));
                }
            }
            Ok(None)
        })
    }
}
