//! Transactions of a session: blocks, implicit ones, savepoints, COMMIT as one command.
//!
//! Invariants:
//! - There is at most one transaction; `block` says that the client began it.
//! - COMMIT sends what was buffered as one command per partition, and there is one partition; DDL of the block goes first
//!   and is taken back if the rows are rejected.
//! - A failed block only ends: every other statement is `25P02`.

use std::{collections::HashMap, sync::Arc, time::Duration};

use model::{
    Code, Error, Result,
    catalog::{Catalog, Change, Object},
    command::{Command, Condition, Outcome, Receipt, Rejection},
    id::{CatalogVersion, PartitionId, TableId},
    port::Dispatch,
    schema::Table,
    time::Timestamp,
};

use super::{HeldLocks, Session, Status, core::now};
use crate::{
    copy::Stage,
    parse::utility::Mode,
    txn::{self, Isolation, Mark, Overlay},
};

/// An open transaction.
pub(super) struct Transaction {
    pub(super) state: Arc<txn::State>,
    pub(super) overlay: Arc<Overlay>,
    /// Begun by the client.
    pub(super) block: bool,
    pub(super) failed: bool,
    pub(super) read_only: bool,
    pub(super) began: Timestamp,
    pub(super) savepoints: Vec<Savepoint>,
    /// The catalog with this transaction's DDL.
    pub(super) catalog: Option<Arc<Catalog>>,
    /// Its DDL, in order.
    pub(super) changes: Vec<Change>,
    /// A statement has read or written: the isolation level is fixed.
    pub(super) used: bool,
    /// Each table that was written, as it was when its rows were made and judged.
    pub(super) judged_by: HashMap<TableId, Arc<Table>>,
    /// An UPDATE ends when so many bytes are written, the rest of its rows left to the next transaction.
    pub(super) piece_bytes_max: Option<usize>,
    /// How many portals were made before it.
    portals: u64,
}

/// A savepoint.
pub(super) struct Savepoint {
    name: String,
    mark: Mark,
    locks: usize,
    settings: usize,
    changes: usize,
    catalog: Option<Arc<Catalog>>,
    portals: u64,
}

/// Why an autocommit command was not executed, if running the statement again may help.
pub(super) enum Committed {
    Done,
    Again(Error),
}

impl Transaction {
    /// Takes in what a statement wrote that was planned under a catalog.
    pub(super) fn absorb(&mut self, writes: Overlay, under: &Catalog) {
        for table in writes.tables() {
            if let Some(table) = under.table(table) {
                self.judged_by.entry(table.id).or_insert_with(|| table.clone());
            }
        }
        Arc::make_mut(&mut self.overlay).absorb(writes);
    }

    /// Ends a transaction whose session is gone: its locks are released in the background.
    pub(super) fn abandon(self, dispatch: &Arc<dyn Dispatch>) {
        drop(held_locks(&self.state, dispatch));
    }
}

impl Session {
    fn isolation_of(&self, text: &str) -> Isolation {
        match text {
            "repeatable read" => Isolation::RepeatableRead,
            "serializable" => Isolation::Serializable,
            _ => Isolation::ReadCommitted,
        }
    }

    /// Starts a transaction, if there is none.
    pub(crate) fn ensure_transaction(&mut self, block: bool, explicit: bool) {
        if self.transaction.is_some() {
            return;
        }
        let isolation = self.isolation_of(&self.settings.get("default_transaction_isolation"));
        self.settings.begin();
        self.transaction = Some(Transaction {
            state: txn::State::new(self.login.session, isolation, explicit),
            overlay: Arc::default(),
            block,
            failed: false,
            read_only: self.settings.limits().read_only,
            began: now(&self.engine),
            savepoints: Vec::new(),
            catalog: None,
            changes: Vec::new(),
            used: false,
            judged_by: HashMap::new(),
            piece_bytes_max: None,
            portals: self.portals_made,
        });
    }

    /// `25P02` for anything but the end of a failed block.
    pub(super) fn check_not_failed(&self) -> Result<()> {
        if self.status() == Status::Failed {
            return Err(Error::new(
                Code::InFailedSqlTransaction,
                "current transaction is aborted, commands ignored until end of transaction block",
            ));
        }
        Ok(())
    }

    /// Notes that a statement failed.
    pub(super) async fn fail(&mut self) {
        match &mut self.transaction {
            Some(transaction) if transaction.block => {
                transaction.failed = true;
                let before = transaction.portals;
                self.portals.retain(|_, portal| !portal.is_running() || portal.number < before);
            }
            Some(_) => self.roll_back().await,
            None => {
                self.end_said();
                // A COMMIT that was broken off.
                self.settings.end(false);
            }
        }
    }

    /// `BEGIN`.
    pub(super) fn begin_block(&mut self, modes: &[Mode]) -> Result<()> {
        match &mut self.transaction {
            Some(transaction) if transaction.block => {
                let error =
                    Error::new(Code::ActiveSqlTransaction, "there is already a transaction in progress");
                self.notice("WARNING", error);
            }
            Some(transaction) => {
                // BEGIN inside an implicit transaction makes it a block.
                transaction.block = true;
                if !transaction.state.explicit {
                    let isolation = transaction.state.isolation;
                    transaction.state = txn::State::new(self.login.session, isolation, true);
                }
            }
            None => self.ensure_transaction(true, true),
        }
        self.set_modes(modes)
    }

    /// `SET TRANSACTION`, and the modes of `BEGIN`.
    pub(super) fn set_modes(&mut self, modes: &[Mode]) -> Result<()> {
        let session = self.login.session;
        let Some(transaction) = &mut self.transaction else { return Ok(()) };
        for mode in modes {
            let isolation = match mode {
                Mode::ReadCommitted => Isolation::ReadCommitted,
                Mode::RepeatableRead => Isolation::RepeatableRead,
                Mode::Serializable => Isolation::Serializable,
                Mode::ReadOnly => {
                    transaction.read_only = true;
                    continue;
                }
                Mode::ReadWrite => {
                    if transaction.read_only && transaction.used {
                        let message = "transaction read-write mode must be set before any query";
                        return Err(Error::new(Code::ActiveSqlTransaction, message));
                    }
                    transaction.read_only = false;
                    continue;
                }
                Mode::Deferrable | Mode::NotDeferrable => continue,
            };
            if transaction.used && isolation != transaction.state.isolation {
                let message = "SET TRANSACTION ISOLATION LEVEL must be called before any query";
                return Err(Error::new(Code::ActiveSqlTransaction, message));
            }
            if isolation != transaction.state.isolation {
                transaction.state = txn::State::new(session, isolation, transaction.state.explicit);
            }
        }
        Ok(())
    }

    /// Ends a block or implicit transaction with its work done; the tag says whether it was.
    pub(super) async fn commit_block(&mut self, chain: bool) -> Result<&'static str> {
        if !self.in_block() {
            if chain {
                return Err(outside("COMMIT AND CHAIN"));
            }
            let error = Error::new(Code::NoActiveSqlTransaction, "there is no transaction in progress");
            self.notice("WARNING", error);
        }
        let Some(transaction) = &self.transaction else { return Ok("COMMIT") };
        let modes = (transaction.state.isolation, transaction.read_only);
        let failed = transaction.failed;
        if failed {
            self.roll_back().await;
        } else {
            self.commit().await?;
        }
        self.chain(chain, modes);
        Ok(if failed { "ROLLBACK" } else { "COMMIT" })
    }

    /// `ROLLBACK`.
    pub(super) async fn roll_back_block(&mut self, chain: bool) -> Result<()> {
        if !self.in_block() {
            if chain {
                return Err(outside("ROLLBACK AND CHAIN"));
            }
            let error = Error::new(Code::NoActiveSqlTransaction, "there is no transaction in progress");
            self.notice("WARNING", error);
        }
        let modes = (self.transaction.as_ref())
            .map(|transaction| (transaction.state.isolation, transaction.read_only));
        self.roll_back().await;
        if let Some(modes) = modes {
            self.chain(chain, modes);
        }
        Ok(())
    }

    fn chain(&mut self, chain: bool, (isolation, read_only): (Isolation, bool)) {
        if !chain {
            return;
        }
        self.ensure_transaction(true, true);
        let session = self.login.session;
        if let Some(transaction) = &mut self.transaction {
            transaction.state = txn::State::new(session, isolation, true);
            transaction.read_only = read_only;
        }
    }

    /// Throws the transaction away.
    pub(super) async fn roll_back(&mut self) {
        let before = self.transaction.as_ref().map_or(u64::MAX, |transaction| transaction.portals);
        self.portals.retain(|_, portal| portal.is_held() && portal.number < before);
        let Some(transaction) = self.transaction.take() else { return };
        self.end_said();
        self.settings.end(false);
        if let Some(held) = held_locks(&transaction.state, &self.engine.dispatch) {
            // If the owner does not answer, the set dies of its lease.
            let _ = held.release().await;
        }
    }

    /// Commits the transaction; if it cannot be, it is rolled back and the error says why.
    pub(super) async fn commit(&mut self) -> Result<()> {
        self.portals.retain(|_, portal| portal.is_held());
        let Some(transaction) = self.transaction.take() else { return Ok(()) };
        let Transaction { state, overlay, changes, judged_by, .. } = transaction;
        let overlay = Arc::try_unwrap(overlay).unwrap_or_else(|shared| (*shared).clone());
        let result = self.commit_parts(&state, overlay, changes, &judged_by).await;
        if let Some((partition, set)) = state.lock_set() {
            let _ = self.engine.dispatch.unlock(&partition, set, None).await;
        }
        self.end_said();
        self.settings.end(result.is_ok());
        if result.is_ok() {
            Box::pin(self.after_commit()).await;
        }
        result
    }

    async fn commit_parts(
        &mut self,
        state: &txn::State,
        overlay: Overlay,
        changes: Vec<Change>,
        judged_by: &HashMap<TableId, Arc<Table>>,
    ) -> Result<()> {
        let decided = crate::ddl::merge(changes);
        // A change that comes after this look, and before the command is applied, is seen there: the command names this
        // catalog.
        let catalog = self.engine.dispatch.catalog();
        let is_own =
            |table| decided.put.iter().any(|object| matches!(object, Object::Table(own) if own.id == table));
        for table in overlay.tables().filter(|table| !is_own(*table)) {
            if let (Some(now), Some(then)) = (catalog.table(table), judged_by.get(&table))
                && !crate::ddl::asks_the_same(then, now, &catalog)
            {
                return Err(self.rejection_error(&Rejection::DescriptorChanged { table }));
            }
        }
        let (partition, (mut conditions, writes)) = txn::command_parts(overlay);
        let command = match partition.filter(|_| !writes.is_empty()) {
            None => None,
            Some(partition) => {
                if state.isolation == Isolation::Serializable {
                    conditions.extend(state.read_conditions(&partition)?);
                }
                let locks = state.lock_set().map(|(_, set)| set);
                let catalog = catalog.version();
                Some(Command { locks, conditions, catalog, ..self.command(partition, writes) })
            }
        };
        let (dispatch, wait) = (self.engine.dispatch.clone(), self.lock_wait());
        if crate::ddl::is_empty(&decided) {
            if let Some(command) = command {
                match dispatch.execute(command, wait).await? {
                    Outcome::Applied(_) => {}
                    Outcome::Rejected(rejection) => return Err(self.rejection_error(&rejection)),
                }
            }
        } else {
            // A command on its way holds its locks itself; one that waits for the definition does not.
            let held = held_locks(state, &dispatch);
            let ended = move |_: &Result<()>| drop(held);
            crate::ddl::decide(dispatch, decided, command.map(|command| (command, wait)), ended).await?;
        }
        self.use_name();
        Ok(())
    }

    /// Sends a command that was planned under a catalog; one whose plan no longer fits its table is rejected.
    pub(super) async fn send(
        &mut self,
        partition: PartitionId,
        conditions: Vec<Condition>,
        writes: Vec<model::command::Write>,
        locks: Option<model::command::LockSet>,
        under: CatalogVersion,
    ) -> Result<Outcome> {
        let command = Command { locks, conditions, catalog: under, ..self.command(partition, writes) };
        let wait = self.lock_wait();
        self.engine.dispatch.execute(command, wait).await
    }

    fn command(&mut self, partition: PartitionId, writes: Vec<model::command::Write>) -> Command {
        self.is_commit_due = !self.on_commit.is_empty();
        Command {
            identity: self.identity(),
            time_left: None,
            partition,
            principal: self.current_user,
            catalog: self.engine.dispatch.catalog().version(),
            locks: None,
            conditions: Vec::new(),
            writes,
        }
    }

    /// Executes the load of an autocommit COPY whose rows were made by a catalog; one that is not executed is given up.
    pub(super) async fn commit_load(&mut self, stage: Stage, catalog: CatalogVersion) -> Result<()> {
        let (partition, loaded) = stage.loaded();
        let command = Command { catalog, ..self.command(partition, Vec::new()) };
        let wait = self.lock_wait();
        match self.engine.dispatch.execute_load(command, loaded, wait).await? {
            Outcome::Applied(_) => {
                stage.executed();
                Ok(())
            }
            Outcome::Rejected(rejection) => Err(self.rejection_error(&rejection)),
        }
    }

    /// How long locks are waited for.
    pub(super) fn lock_wait(&self) -> Duration {
        self.settings.limits().lock.unwrap_or(self.engine.options.lock_wait)
    }

    /// A rejection in words of the statement.
    pub(super) fn rejection_error(&self, rejection: &Rejection) -> Error {
        let catalog = self.catalog();
        let viewer = crate::dml::Viewer { catalog: &catalog, role: self.current_user };
        crate::dml::rejection_error(viewer, rejection)
    }

    /// Sends what an autocommit statement wrote.
    pub(super) async fn commit_statement(
        &mut self,
        writes: Overlay,
        under: CatalogVersion,
    ) -> Result<Committed> {
        if writes.is_empty() {
            self.use_name();
            return Ok(Committed::Done);
        }
        let each = self.settings.limits().many_partitions;
        let partitions = writes.partitions();
        if let [first, second, ..] = &partitions[..]
            && !each
        {
            return Err(Error::unsupported(
                format!("a statement cannot change two partitions: {first} and {second}"),
                "SET keystead.multi_partition = 'each' to change each partition in a command of its own.",
            ));
        }
        self.commit_each(writes, under).await
    }

    /// Sends what was written, one command per partition.
    pub(super) async fn commit_each(&mut self, writes: Overlay, under: CatalogVersion) -> Result<Committed> {
        for part in split(writes) {
            let (partition, (conditions, writes)) = txn::command_parts(part);
            let Some(partition) = partition.filter(|_| !writes.is_empty()) else { continue };
            match self.send(partition, conditions, writes, None, under).await? {
                Outcome::Applied(Receipt { .. }) => {}
                Outcome::Rejected(rejection) => {
                    let error = self.rejection_error(&rejection);
                    return match rejection {
                        Rejection::RowChanged { .. }
                        | Rejection::RowMissing { .. }
                        | Rejection::RangeChanged { .. }
                        | Rejection::DescriptorChanged { .. }
                        | Rejection::Superseded => Ok(Committed::Again(error)),
                        _ => Err(error),
                    };
                }
            }
        }
        self.use_name();
        Ok(Committed::Done)
    }

    /// `SAVEPOINT`.
    pub(super) fn savepoint(&mut self, name: String) -> Result<()> {
        let settings = self.settings.mark();
        let Some(transaction) = self.transaction.as_mut().filter(|transaction| transaction.block) else {
            return Err(outside("SAVEPOINT"));
        };
        transaction.savepoints.push(Savepoint {
            name,
            mark: transaction.overlay.mark(),
            locks: transaction.state.locks_held(),
            settings,
            changes: transaction.changes.len(),
            catalog: transaction.catalog.clone(),
            portals: self.portals_made,
        });
        Ok(())
    }

    /// `RELEASE`.
    pub(super) fn release(&mut self, name: &str) -> Result<()> {
        let Some(transaction) = self.transaction.as_mut().filter(|transaction| transaction.block) else {
            return Err(outside("RELEASE SAVEPOINT"));
        };
        let at = find_savepoint(&transaction.savepoints, name)?;
        transaction.savepoints.truncate(at);
        Ok(())
    }

    /// `ROLLBACK TO`.
    pub(super) async fn roll_back_to(&mut self, name: &str) -> Result<()> {
        self.note_more(format!("rollback to {name}").as_bytes());
        let Some(transaction) = self.transaction.as_mut().filter(|transaction| transaction.block) else {
            return Err(outside("ROLLBACK TO SAVEPOINT"));
        };
        let at = find_savepoint(&transaction.savepoints, name)?;
        transaction.savepoints.truncate(at + 1);
        let savepoint = &transaction.savepoints[at];
        Arc::make_mut(&mut transaction.overlay).roll_back(savepoint.mark);
        transaction.changes.truncate(savepoint.changes);
        transaction.catalog.clone_from(&savepoint.catalog);
        transaction.failed = false;
        self.portals.retain(|_, portal| portal.number < savepoint.portals);
        self.settings.roll_back(savepoint.settings);
        let keep = savepoint.locks;
        if let Some((partition, set)) = transaction.state.lock_set() {
            transaction.state.set_locks_held(keep);
            self.engine.dispatch.unlock(&partition, set, Some(keep)).await?;
        }
        Ok(())
    }
}

fn held_locks(state: &txn::State, dispatch: &Arc<dyn Dispatch>) -> Option<HeldLocks> {
    state.lock_set().map(|(partition, set)| HeldLocks::new(dispatch.clone(), partition, set))
}

fn find_savepoint(savepoints: &[Savepoint], name: &str) -> Result<usize> {
    savepoints.iter().rposition(|savepoint| savepoint.name == name).ok_or_else(|| {
        Error::new(Code::InvalidSavepointSpecification, format!("savepoint \"{name}\" does not exist"))
    })
}

fn outside(what: &str) -> Error {
    Error::new(Code::NoActiveSqlTransaction, format!("{what} can only be used in transaction blocks"))
}

/// One overlay per partition.
fn split(writes: Overlay) -> Vec<Overlay> {
    if writes.partitions().len() <= 1 {
        return vec![writes];
    }
    let (truncated, rows) = writes.into_parts();
    let mut parts: std::collections::BTreeMap<PartitionId, Overlay> = std::collections::BTreeMap::new();
    for (partition, table) in truncated {
        parts.entry(partition.clone()).or_default().truncate(&partition, table);
    }
    for ((partition, table), key, entry) in rows {
        parts.entry(partition.clone()).or_default().write(&partition, table, key, entry.base, entry.row);
    }
    parts.into_values().collect()
}
