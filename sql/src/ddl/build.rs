//! Deciding a change of the catalog: with the indexes it begins, and with the rows of its transaction.
//!
//! Indexes on rows that are there are built first, beside the table as it is; then one change brings them in with all else.
//! So constraints, columns and rows are there from one moment on, or not at all.
//!
//! Invariants:
//! - Until that change nothing is to be seen but an index under construction. It is taken away again, with the columns that
//!   only it reads, after an error and when nobody waits for the answer any more (cancel, timeout, end of the session).
//! - From that change on the work goes to its end whether or not somebody waits: a command that is rejected takes the
//!   change along.
//! - What a dead process leaves is taken away before the next one opens a session.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use model::{
    Code, Error, Result,
    catalog::{Catalog, Change, Expected, Object, ObjectId},
    command::{Command, Outcome},
    id::{ColumnNumber, IndexId, TableId},
    port::Dispatch,
    schema::{Column, ColumnDefault, Index, IndexState, Table},
};
use tokio::sync::oneshot;

use super::{changed_table, inverse};

/// How often a change is made again because the table moved on.
const TRIES_MAX: usize = 20;

/// A table with indexes under construction, and as it is to become.
struct Stage {
    table: TableId,
    /// The indexes, by their names to be.
    indexes: Vec<(IndexId, String)>,
    /// What the catalog must hold when they are built, versions aside.
    built: Table,
}

/// Decides a change, and executes a command under it; whoever waits or not, `ended` learns what came of it. Dropping the
/// future gives up what has not been decided yet.
pub(crate) async fn decide(
    dispatch: Arc<dyn Dispatch>,
    change: Change,
    command: Option<(Command, Duration)>,
    ended: impl FnOnce(&Result<()>) + Send + 'static,
) -> Result<()> {
    let (waiting, gone) = oneshot::channel::<()>();
    let runtime = tokio::runtime::Handle::try_current()
        .map_err(|_| Error::internal("a definition needs a runtime to run to its end"))?;
    let work = runtime.spawn(async move {
        let done = decide_whole(dispatch.as_ref(), change, command, gone).await;
        ended(&done);
        done
    });
    let done = work.await.map_err(|_| Error::internal("a definition ended by itself"))?;
    drop(waiting);
    done
}

async fn decide_whole(
    dispatch: &dyn Dispatch,
    mut change: Change,
    command: Option<(Command, Duration)>,
    gone: oneshot::Receiver<()>,
) -> Result<()> {
    let before = dispatch.catalog();
    let stages = stages(&before, &mut change);
    // What the change expects of a table is compared with the table before it is staged.
    before.apply(&change)?;
    let mut begun = 0;
    let decided = match build(dispatch, &before, &stages, &mut begun, gone).await {
        Ok(()) => bring_in(dispatch, &stages, &mut change).await,
        Err(error) => Err(error),
    };
    if let Err(error) = decided {
        for stage in &stages[..begun] {
            take_away(dispatch, stage.table, |table| stage.remove_from(&before, table)).await?;
        }
        return Err(error);
    }
    let Some((command, wait)) = command else { return Ok(()) };
    let catalog = dispatch.catalog();
    let command = Command { catalog: catalog.version(), ..command };
    let viewer = crate::dml::Viewer { catalog: &catalog, role: command.principal };
    let error = match dispatch.execute(command, wait).await {
        Ok(Outcome::Applied(_)) => return Ok(()),
        Ok(Outcome::Rejected(rejection)) => crate::dml::rejection_error(viewer, &rejection),
        Err(error) => error,
    };
    dispatch.change_catalog(inverse(&change, &before)).await?;
    Err(error)
}

/// Whether a change begins an index on a table that exists.
pub(crate) fn begins_index(before: &Catalog, change: &Change) -> bool {
    !stages(before, &mut change.clone()).is_empty()
}

/// The tables whose new indexes are built before the change, which is left with indexes that are ready.
fn stages(before: &Catalog, change: &mut Change) -> Vec<Stage> {
    let mut stages = Vec::new();
    for object in &mut change.put {
        let Object::Table(after) = object else { continue };
        let now = before.table(after.id);
        let is_new = |index: &Index| {
            index.state == IndexState::Building && now.is_none_or(|now| now.find_index(index.id).is_none())
        };
        let begun: Vec<Index> = after.indexes.iter().filter(|index| is_new(index)).cloned().collect();
        for index in after.indexes.iter_mut().filter(|index| begun.iter().any(|at| at.id == index.id)) {
            index.state = IndexState::Ready;
        }
        if let Some(now) = now.filter(|_| !begun.is_empty()) {
            let indexes = begun.iter().map(|index| (index.id, index.name.clone())).collect();
            stages.push(Stage { table: after.id, indexes, built: staged(before, now, after, begun) });
        }
    }
    stages
}

/// The table as it is, with new indexes and the columns they may read.
fn staged(before: &Catalog, now: &Table, after: &Table, begun: Vec<Index>) -> Table {
    let mut staged = now.clone();
    let is_new = |number: ColumnNumber| usize::from(number.0) > now.columns.len();
    let reads_new = |index: &Index| {
        index.predicate.is_some_and(is_new) || index.parts.iter().any(|part| is_new(part.column))
    };
    let known = if begun.iter().any(reads_new) { now.columns.len() } else { after.columns.len() };
    for column in after.columns.iter().skip(known) {
        let default = column.default.clone().filter(|at| !matches!(at, ColumnDefault::Identity { .. }));
        staged.columns.push(Column { hidden: true, not_null: false, default, ..column.clone() });
    }
    for mut index in begun {
        index.constraint = None;
        index.state = IndexState::Ready;
        let taken = match now.temporary {
            Some(session) => before.find_temporary(session, &index.name),
            None => before.find_relation(now.schema, &index.name),
        };
        // What has the name now goes with the change.
        if taken.is_some() {
            index.name = format!("........pg.built.{}........", index.id.0);
        }
        staged.indexes.push(index);
    }
    staged
}

/// Builds what the stages begin, and counts those that the catalog holds.
async fn build(
    dispatch: &dyn Dispatch,
    before: &Catalog,
    stages: &[Stage],
    begun: &mut usize,
    mut gone: oneshot::Receiver<()>,
) -> Result<()> {
    for stage in stages {
        let Some(now) = before.table(stage.table) else { continue };
        let mut staged = stage.built.clone();
        for index in staged.indexes.iter_mut().skip(now.indexes.len()) {
            index.state = IndexState::Building;
        }
        dispatch.change_catalog(changed_table(now, staged)).await?;
        *begun += 1;
        for (id, name) in &stage.indexes {
            let built = tokio::select! {
                biased;
                _ = &mut gone => return Err(nobody_waits()),
                built = dispatch.build_index(stage.table, *id) => built,
            };
            built.map_err(|error| named(error, name))?;
        }
    }
    if !stages.is_empty() {
        // Whoever waits gets the chance to stop doing so before there is no way back.
        tokio::task::yield_now().await;
    }
    match gone.try_recv() {
        Err(oneshot::error::TryRecvError::Closed) => Err(nobody_waits()),
        Ok(()) | Err(oneshot::error::TryRecvError::Empty) => Ok(()),
    }
}

/// Makes the change itself.
async fn bring_in(dispatch: &dyn Dispatch, stages: &[Stage], change: &mut Change) -> Result<()> {
    let catalog = dispatch.catalog();
    for stage in stages {
        let now = catalog.table(stage.table);
        let as_built = |now: &Table| Table { version: now.version, ..stage.built.clone() } == *now;
        let Some(now) = now.filter(|now| as_built(now)) else {
            return Err(Error::new(
                Code::SerializationFailure,
                "could not serialize access due to concurrent schema change",
            ));
        };
        for object in &mut change.put {
            if let Object::Table(after) = object
                && after.id == stage.table
            {
                after.version = now.version + 1;
            }
        }
        for (id, expected) in &mut change.expect {
            if *id == ObjectId::Table(stage.table) {
                *expected = Some(Expected::TableVersion(now.version));
            }
        }
    }
    dispatch.change_catalog(change.clone()).await.map(drop)
}

impl Stage {
    /// Takes what was staged out of a descriptor, with hidden columns that only it read; what became of the table otherwise
    /// stays.
    fn remove_from(&self, before: &Catalog, table: &mut Table) {
        let is_staged = |index: &Index| self.indexes.iter().any(|(id, _)| *id == index.id);
        table.indexes.retain(|index| !is_staged(index));
        let known = before.table(self.table).map_or(0, |table| table.columns.len());
        let added = self.built.columns.iter().skip(known).map(|column| column.number);
        let staged = self.built.indexes.iter().filter(|index| is_staged(index));
        let read = staged.flat_map(|index| index.parts.iter().map(|part| part.column).chain(index.predicate));
        let mut columns: Vec<ColumnNumber> = added.collect();
        columns.extend(read);
        drop_unread(table, |number| columns.contains(&number));
    }
}

/// Changes a table's descriptor, again if it moved on meanwhile; a table that is gone is fine.
async fn take_away(dispatch: &dyn Dispatch, table: TableId, remove: impl Fn(&mut Table)) -> Result<()> {
    let mut tries = 0;
    loop {
        let catalog = dispatch.catalog();
        let Some(now) = catalog.table(table) else { return Ok(()) };
        let mut after = (**now).clone();
        remove(&mut after);
        if after == **now {
            return Ok(());
        }
        match dispatch.change_catalog(changed_table(now, after)).await {
            Err(error) if error.code() == Code::SerializationFailure && tries < TRIES_MAX => tries += 1,
            changed => return changed.map(drop),
        }
    }
}

/// Hidden columns of a definition, from before they are added: those that no index reads in the end are dropped.
pub(super) struct HiddenColumns {
    dispatch: Arc<dyn Dispatch>,
    table: TableId,
    numbers: Vec<ColumnNumber>,
    /// There is nothing to drop: not yet, or not any more.
    done: AtomicBool,
}

impl HiddenColumns {
    pub(super) fn new(dispatch: Arc<dyn Dispatch>, table: TableId, numbers: Vec<ColumnNumber>) -> Arc<Self> {
        Arc::new(Self { dispatch, table, numbers, done: AtomicBool::new(true) })
    }

    /// Decides the change that adds them. They are not dropped before it is through.
    pub(super) async fn add(self: &Arc<Self>, change: Change) -> Result<()> {
        let columns = self.clone();
        let ended = move |added: &Result<()>| columns.done.store(added.is_err(), Ordering::Release);
        decide(self.dispatch.clone(), change, None, ended).await
    }

    /// Drops those that are still hidden and that no index reads.
    pub(super) async fn drop_unread(&self) -> Result<()> {
        self.dropped().await?;
        self.done.store(true, Ordering::Release);
        Ok(())
    }

    fn dropped(&self) -> impl Future<Output = Result<()>> + Send + use<> {
        let (dispatch, table, numbers) = (self.dispatch.clone(), self.table, self.numbers.clone());
        async move {
            take_away(dispatch.as_ref(), table, |table| drop_unread(table, |at| numbers.contains(&at))).await
        }
    }
}

impl Drop for HiddenColumns {
    fn drop(&mut self) {
        if self.done.load(Ordering::Acquire) {
            return;
        }
        let dropped = self.dropped();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                // If it fails they stay, unseen, until the next start.
                let _ = dropped.await;
            });
        }
    }
}

/// Takes away what definitions of an earlier process left: indexes under construction and hidden columns that none reads.
pub(crate) async fn drop_unfinished(dispatch: &dyn Dispatch) -> Result<()> {
    for table in dispatch.catalog().tables() {
        take_away(dispatch, table.id, |table| {
            table.indexes.retain(|index| index.state != IndexState::Building);
            drop_unread(table, |_| true);
        })
        .await?;
    }
    Ok(())
}

/// Drops hidden columns that no index reads.
fn drop_unread(table: &mut Table, is_meant: impl Fn(ColumnNumber) -> bool) {
    let Table { columns, indexes, .. } = table;
    for column in columns.iter_mut().filter(|column| column.hidden && !column.dropped) {
        let is_read = indexes.iter().any(|index| {
            index.predicate == Some(column.number)
                || index.parts.iter().any(|part| part.column == column.number)
        });
        if !is_read && is_meant(column.number) {
            drop_column(column);
        }
    }
}

/// A dropped column: its number is used up, and rows may still hold its values.
pub(super) fn drop_column(column: &mut Column) {
    *column = Column {
        name: format!("........pg.dropped.{}........", column.number.0),
        dropped: true,
        hidden: false,
        default: None,
        not_null: false,
        comment: None,
        ..column.clone()
    };
}

/// The error of a build, in words of the statement.
fn named(error: Error, index: &str) -> Error {
    if error.code() != Code::UniqueViolation {
        return error;
    }
    let named = Error::new(Code::UniqueViolation, format!("could not create unique index \"{index}\""));
    match error.detail() {
        Some(detail) => named.with_detail(detail.to_owned()),
        None => named,
    }
}

fn nobody_waits() -> Error {
    Error::new(Code::QueryCanceled, "canceling statement due to user request")
}
