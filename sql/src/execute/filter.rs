//! The rows for which a condition is true.

use model::{Result, port::BoxFuture};

use super::{Expressions, Operator, Runtime, expressions::halves};
use crate::{batch::Batch, expr::Expr};

/// The operator.
pub(super) struct Filter {
    runtime: Runtime,
    input: Box<dyn Operator>,
    condition: Expressions,
    /// Parts of a batch that made more than fits; the next one last.
    rest: Vec<Batch>,
}

impl Filter {
    pub(super) fn new(input: Box<dyn Operator>, condition: &Expr, width: usize, runtime: &Runtime) -> Self {
        Self {
            runtime: runtime.clone(),
            input,
            condition: Expressions::condition(condition, width),
            rest: Vec::new(),
        }
    }
}

impl Operator for Filter {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Batch>>> {
        Box::pin(async move {
            loop {
                let batch = match self.rest.pop() {
                    Some(part) => part,
                    None => match self.input.next().await? {
                        Some(batch) => batch,
                        None => return Ok(None),
                    },
                };
                self.runtime.pace().await?;
                let before = batch.len();
                let batch = match self.condition.filter(&self.runtime, batch.clone()).await {
                    Ok(batch) => batch,
                    Err(error) if self.condition.may_split(&error, &batch) => {
                        self.rest.extend(halves(&batch));
                        continue;
                    }
                    Err(error) => return Err(error),
                };
                self.runtime.note(|node| node.rows_removed += (before - batch.len()) as u64);
                if !batch.is_empty() {
                    return Ok(Some(batch));
                }
            }
        })
    }
}
