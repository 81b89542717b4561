//! Other columns for each row.

use model::{Result, port::BoxFuture};

use super::{
    Expressions, Operator, Runtime,
    expressions::{halves, is_split},
};
use crate::{batch::Batch, expr::Expr};

/// The operator.
pub(super) struct Project {
    runtime: Runtime,
    input: Box<dyn Operator>,
    /// If every expression is a column: which.
    columns: Option<Vec<usize>>,
    expressions: Expressions,
    /// Parts of a batch that made more than fits; the next one last.
    rest: Vec<Batch>,
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
            rest: Vec::new(),
        }
    }
}

impl Operator for Project {
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
                if let Some(columns) = &self.columns {
                    return Ok(Some(batch.project(columns)));
                }
                self.runtime.pace().await?;
                let made = if self.expressions.may_be_repeated() {
                    self.expressions.columns_at_once(&self.runtime, &batch).await
                } else {
                    self.expressions.columns(&self.runtime, &batch).await
                };
                match made {
                    Ok(columns) => return Ok(Some(Batch::new(columns, batch.len()))),
                    Err(error) if self.expressions.may_be_repeated() && is_split(&error, &batch) => {
                        self.rest.extend(halves(&batch));
                    }
                    Err(error) => return Err(error),
                }
            }
        })
    }
}
