//! DELETE.

use std::sync::Arc;

use model::{
    Result, Type,
    port::{BoxFuture, LockMode},
    schema::Table,
};

use super::{
    Returning, check_size,
    foreign::Foreign,
    target::{Rows, Targets},
};
use crate::{
    batch::Batch,
    execute::{Operator, Runtime},
    plan,
};

/// The operator.
pub struct Delete {
    runtime: Runtime,
    node: usize,
    table: Arc<Table>,
    source: Option<Box<dyn Operator>>,
    targets: Targets,
    foreign: Foreign,
    returning: Returning,
}

impl Delete {
    /// Removes the rows of a source.
    pub fn new(
        node: usize,
        plan: &plan::Delete,
        source: Box<dyn Operator>,
        source_types: Vec<Type>,
        runtime: &Runtime,
    ) -> Self {
        let table = &plan.table;
        let (width, condition) = (source_types.len(), plan.condition.as_ref());
        Self {
            runtime: runtime.clone(),
            node,
            source: Some(source),
            targets: Targets::new(table, plan.target, LockMode::Update, condition, width, runtime),
            foreign: Foreign::new(table, runtime),
            returning: Returning::new(plan.returning.as_deref(), table.columns.len() + width, runtime),
            table: Arc::clone(table),
        }
    }

    async fn run(&mut self, mut source: Box<dyn Operator>) -> Result<()> {
        while let Some(batch) = source.next().await? {
            self.runtime.pace().await?;
            let Rows { found, input } = self.targets.find(&batch).await?;
            for (row, found) in found.iter().enumerate() {
                let key = found.stored.key.clone();
                self.runtime.statement.write(&found.partition, self.table.id, key, found.base, None)?;
                self.foreign.note_removed(&found.partition, &input, row)?;
            }
            self.runtime.count_affected(self.node, found.len() as u64);
            self.returning.add(&self.runtime, &input).await?;
            check_size(&self.runtime)?;
        }
        self.foreign.finish().await
    }
}

impl Operator for Delete {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Batch>>> {
        Box::pin(async move {
            if let Some(source) = self.source.take() {
                self.run(source).await?;
            }
            Ok(self.returning.finish())
        })
    }
}
