//! The exact number of rows of a table, from its counters and the transaction's own writes.

use std::sync::Arc;

use model::{Result, Type, id::PartitionId, port::BoxFuture, read::At, schema::Table};

use super::{Operator, Runtime, range::partitions};
use crate::{
    batch::{Batch, Column},
    plan::Partitions,
    txn::Base,
};

/// The operator.
pub(super) struct CountRows {
    runtime: Runtime,
    table: Arc<Table>,
    partitions: Option<Partitions>,
}

impl CountRows {
    pub(super) fn new(table: &Arc<Table>, partitions: &Partitions, runtime: &Runtime) -> Self {
        Self { runtime: runtime.clone(), table: Arc::clone(table), partitions: Some(partitions.clone()) }
    }

    async fn count(&self, partition: &PartitionId) -> Result<i64> {
        let statement = &self.runtime.statement;
        let (overlay, table) = (&statement.overlay, self.table.id);
        let point = statement.read_point(partition).await?;
        statement.note_table_read(partition, table, point.revision);
        let at = At::Point(point);
        let truncated = overlay.is_truncated(partition, table);
        let mut count =
            if truncated { 0 } else { statement.dispatch.count(partition, table, &at).await? as i64 };
        let mut unknown = Vec::new();
        for (key, entry) in overlay.table(partition, table).into_iter().flatten() {
            count += i64::from(entry.row.is_some());
            match entry.base {
                Base::Revision(_) if !truncated => count -= 1,
                Base::Any if !truncated => unknown.push(key.clone()),
                Base::Absent | Base::Revision(_) | Base::Any => {}
            }
        }
        if !unknown.is_empty() {
            let found = statement.dispatch.get_many(partition, table, None, unknown, &at).await?;
            count -= found.iter().flatten().count() as i64;
        }
        Ok(count)
    }
}

impl Operator for CountRows {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Batch>>> {
        Box::pin(async move {
            let Some(which) = self.partitions.take() else { return Ok(None) };
            let mut count = 0;
            for partition in partitions(&self.runtime, &self.table, &which).await? {
                self.runtime.pace().await?;
                count += self.count(&partition).await?;
            }
            Ok(Some(Batch::of(vec![Column::ints(Type::Int8, vec![count], Vec::new())])))
        })
    }
}
