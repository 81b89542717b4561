//! Changes of the catalog: decided by the control group, then known to whoever must know.
//!
//! Invariants:
//! - A change is decided once, by its entry in the control group's log, and published on this node before it is answered.
//! - A change that plans on their way do not fit answers only when every shard that holds the table has applied the new
//!   descriptor. Others reach a shard with the next command that needs them.

use std::sync::Arc;

use futures::future::try_join_all;
use model::{
    catalog::{Catalog, Change},
    id::{SequenceId, TableId},
};

use super::Inner;
use crate::{
    Result,
    catalog::{is_restrictive, touched},
};

impl Inner {
    pub(super) async fn change_catalog(&self, change: Change) -> Result<Arc<Catalog>> {
        let before = self.board.newest();
        let (tables, sequences) = touched(&change);
        let catalog = self.control.change(change).await?;
        let after = self.board.newest();
        let restricted = |id: &TableId| match (before.catalog().table(*id), after.catalog().table(*id)) {
            (Some(old), Some(new)) => is_restrictive(old, new) || old.indexes != new.indexes,
            (Some(_), None) => true,
            (None, _) => false,
        };
        let tables: Vec<_> = tables.into_iter().filter(restricted).collect();
        let sequences: Vec<_> =
            sequences.into_iter().filter(|id| before.catalog().sequence(*id).is_some()).collect();
        self.tell_holders(&tables, &sequences).await?;
        Ok(catalog)
    }

    /// Brings descriptors to all shards that hold an older one, and waits for them.
    pub(super) async fn tell_holders(&self, tables: &[TableId], sequences: &[SequenceId]) -> Result<()> {
        if tables.is_empty() && sequences.is_empty() {
            return Ok(());
        }
        let told = self.owners.iter().map(|owner| owner.bring_to_holder(tables, sequences));
        try_join_all(told).await.map(drop)
    }
}
