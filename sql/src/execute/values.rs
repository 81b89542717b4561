//! Rows written in the statement.

use model::{Result, Type, port::BoxFuture};

use super::{Expressions, Operator, Runtime};
use crate::{
    batch::{Batch, Column, ROWS},
    expr::Expr,
};

/// The operator.
pub(super) struct Values {
    runtime: Runtime,
    rows: std::vec::IntoIter<Vec<Expr>>,
    types: Vec<Type>,
}

impl Values {
    pub(super) fn new(rows: &[Vec<Expr>], types: Vec<Type>, runtime: &Runtime) -> Self {
        Self { runtime: runtime.clone(), rows: Vec::from(rows).into_iter(), types }
    }
}

impl Operator for Values {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Batch>>> {
        Box::pin(async move {
            self.runtime.pace().await?;
            let mut columns: Vec<Column> =
                self.types.iter().map(|ty| Column::with_capacity(*ty, 1)).collect();
            let mut count = 0;
            for row in self.rows.by_ref().take(ROWS) {
                let values = Expressions::new(&row, 0).row(&self.runtime, &[], &[]).await?;
                for (column, value) in columns.iter_mut().zip(&values) {
                    column.push_value(value);
                }
                count += 1;
            }
            if count == 0 {
                return Ok(None);
            }
            Ok(Some(Batch::new(columns.into_iter().map(std::sync::Arc::new).collect(), count)))
        })
    }
}
