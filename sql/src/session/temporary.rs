//! Temporary tables: what happens to them at a commit, at DISCARD and when their session ends.
//!
//! A temporary table lies in the partition of the schema in which it was made, so that a transaction may write it beside
//! others; only its session finds it by name. It outlives that schema.

use model::{
    Result,
    catalog::{Catalog, Change, ObjectId},
    id::{PartitionId, SessionId, TableId},
    port::Dispatch,
};

use super::Session;

impl Session {
    /// After a commit: tables ON COMMIT DELETE ROWS are emptied, those ON COMMIT DROP go.
    ///
    /// The commit itself is done: what fails here is told as a warning, and done at the next commit.
    pub(super) async fn after_commit(&mut self) {
        if self.on_commit.is_empty() {
            return;
        }
        // What follows in the same message is a transaction of its own.
        let more = std::mem::replace(&mut self.more_follows, false);
        let done = self.clear_temporary().await;
        self.more_follows = more;
        self.is_commit_due = false;
        if let Err(error) = done {
            self.notice("WARNING", error);
        }
    }

    async fn clear_temporary(&mut self) -> Result<()> {
        let catalog = self.engine.dispatch.catalog();
        self.on_commit.retain(|(table, _)| catalog.table(*table).is_some());
        let dropped: Vec<TableId> =
            self.on_commit.iter().filter(|(_, drops)| *drops).map(|(table, _)| *table).collect();
        for (id, drops) in self.on_commit.clone() {
            let Some(table) = catalog.table(id).filter(|_| !drops) else { continue };
            let partition = PartitionId::default_of(table.database, table.schema);
            self.truncate_in(&partition, &[id]).await?;
        }
        if !dropped.is_empty() {
            self.engine.dispatch.change_catalog(without(&catalog, |table| dropped.contains(&table))).await?;
        }
        self.on_commit.retain(|(_, drops)| !drops);
        Ok(())
    }

    /// DISCARD TEMP.
    pub(super) async fn drop_temporary(&mut self) -> Result<()> {
        if self.has_temporary {
            let change = of_session(&self.engine.dispatch.catalog(), self.login.session);
            self.engine.dispatch.change_catalog(change).await?;
        }
        Ok(())
    }

    /// The session ends: its temporary tables go in the background. What a dead process leaves the next start takes away.
    pub(super) fn abandon_temporary(&self) {
        if !self.has_temporary {
            return;
        }
        let change = of_session(&self.engine.dispatch.catalog(), self.login.session);
        if crate::ddl::is_empty(&change) {
            return;
        }
        let dropped = self.engine.dispatch.change_catalog(change);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                // If it fails they stay until the next start.
                let _ = dropped.await;
            });
        }
    }
}

/// Takes the temporary tables of an earlier process away.
pub(crate) async fn drop_leftovers(dispatch: &dyn Dispatch) -> Result<()> {
    let catalog = dispatch.catalog();
    let change = without(&catalog, |id| catalog.table(id).is_some_and(|table| table.temporary.is_some()));
    if crate::ddl::is_empty(&change) {
        return Ok(());
    }
    dispatch.change_catalog(change).await.map(drop)
}

fn of_session(catalog: &Catalog, session: SessionId) -> Change {
    without(catalog, |id| catalog.table(id).is_some_and(|table| table.temporary == Some(session)))
}

/// The change that drops tables and what belongs to them.
fn without(catalog: &Catalog, goes: impl Fn(TableId) -> bool) -> Change {
    let tables = catalog.tables().filter(|table| goes(table.id)).map(|table| ObjectId::Table(table.id));
    let owned =
        catalog.sequences().filter(|sequence| sequence.owned_by.is_some_and(|(table, _)| goes(table)));
    let sequences = owned.map(|sequence| ObjectId::Sequence(sequence.id));
    Change { drop: tables.chain(sequences).collect(), ..Change::default() }
}
