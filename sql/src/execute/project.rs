//! Other columns for each row.

use model::{Result, port::BoxFuture};

use super::{Expressions, Operator, Runtime};
use crate::{batch::Batch, expr::Expr};

/// The operator.
pub(super) struct Project {
    runtime: Runtime,
    input: Box<dyn Operator>,
    /// If every expression is a column: which.
    columns: Option<Vec<usize>>,
    expressions: Expressions,
}

impl Project {
    pub(super) fn new(
        input: Box<dyn Operator>,
        expressions: &[Expr],
        width: usize,
        runtime: &Runtime,
    ) -> Self {
        Self {
            runtime: runtime.clone(),
            input,
            columns: expressions.iter().map(Expr::as_column).collect(),
            expressions: Expressions::new(expressions, width),
        }
    }
}

impl Operator for Project {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Batch>>> {
        Box::pin(async move {
            let Some(batch) = self.input.next().await? else { return Ok(None) };
            if let Some(columns) = &self.columns {
                return Ok(Some(batch.project(columns)));
            }
            self.runtime.pace().await?;
            let columns = self.expressions.columns(&self.runtime, &batch).await?;
            Ok(Some(Batch::new(columns, batch.len())))
        })
    }
}
