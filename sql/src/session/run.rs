//! Running a statement: direct, as a query that is pulled, or as a change of rows that is sent as one command.
//!
//! Invariants:
//! - A change of rows runs to its end before its first row (RETURNING) is given: in autocommit it is committed by then.
//! - In autocommit a conflict is met by running the statement again, with growing pauses, at most [`TRIES_MAX`] times; it is
//!   never shown as `40001`.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use model::{
    Code, Error, Result, Value,
    command::{Effect, Outcome, Rejection, Write},
    id::{CatalogVersion, ColumnNumber},
    read::At,
    schema::Table,
};
use parking_lot::Mutex;

use super::{
    Executed, Page, Session,
    portal::{Portal, Rows, Run},
    transaction::Committed,
};
use crate::{
    bind::{self, Command, Names},
    cache::Planned,
    context::Context,
    direct::{Direct, DirectUpdate},
    dml::TableRules,
    execute::{self, Cancel, Runtime},
    expr::Expr,
    parse::Statement,
    plan::{Node, Plan, RowRules},
    txn,
};

/// How often a statement is run again on a conflict.
const TRIES_MAX: u32 = 64;

/// What a statement that is no query gave.
pub(super) enum Gave {
    Tag(String),
    Rows(Vec<Vec<Value>>, String),
}

/// The rules of tables that a plan does not name (foreign keys that cascade).
struct CatalogRules {
    names: Names,
    context: Mutex<Context>,
}

impl TableRules for CatalogRules {
    fn rules(&self, table: &Arc<Table>) -> Result<RowRules> {
        bind::table_rules(table, &self.names, &mut self.context.lock())
    }

    fn default(&self, table: &Arc<Table>, column: ColumnNumber) -> Result<Option<Expr>> {
        bind::column_default(table.column(column), &self.names, &mut self.context.lock())
    }
}

impl Session {
    /// Starts a portal: the first step of it.
    pub(super) async fn start(&mut self, portal: &mut Portal, cancel: &Cancel) -> Result<Executed> {
        let parsed = portal.prepared.parsed.clone();
        let gave = match &parsed.statement {
            Statement::Empty => return Ok(Executed::Empty),
            Statement::Utility(utility) => match utility.as_ref() {
                crate::parse::Utility::Copy(copy) => {
                    self.check_not_failed()?;
                    return Box::pin(self.start_copy(copy, portal, cancel)).await;
                }
                utility => Box::pin(self.utility(utility, portal, cancel)).await?,
            },
            Statement::Sql(statement) => match portal.prepared.planned.clone() {
                Some(planned) => {
                    let planned = if planned.catalog == self.catalog().version() {
                        planned
                    } else {
                        Box::pin(self.plan_again(portal)).await?
                    };
                    return self.start_planned(&planned, portal, cancel).await;
                }
                None => {
                    self.check_not_failed()?;
                    let words: Vec<String> =
                        statement.to_string().split(' ').take(2).map(str::to_owned).collect();
                    self.check_read_write(&words.join(" "))?;
                    if matches!(**statement, sqlparser::ast::Statement::Truncate { .. }) {
                        self.note_said(&parsed.text, &[])?;
                    }
                    Gave::Tag(Box::pin(self.definition(statement, &parsed.text, cancel)).await?)
                }
            },
        };
        match gave {
            Gave::Tag(tag) => {
                portal.run = Run::Done(tag.clone().into());
                Ok(Executed::Complete(tag))
            }
            Gave::Rows(rows, tag) => {
                portal.run = Run::Buffered(VecDeque::from([Page::Values(rows)]), tag);
                self.step_buffered(portal)
            }
        }
    }

    /// The plan, made again because the catalog changed since.
    async fn plan_again(&mut self, portal: &mut Portal) -> Result<Arc<Planned>> {
        let parsed = portal.prepared.parsed.clone();
        let given: Vec<_> = portal.prepared.parameters.iter().map(|ty| Some(*ty)).collect();
        let (again, _) = self.prepare_parsed(parsed.clone(), &parsed.text, &given).await?;
        if again.columns.as_ref().map(|columns| columns.iter().map(|c| c.data_type).collect::<Vec<_>>())
            != portal
                .prepared
                .columns
                .as_ref()
                .map(|columns| columns.iter().map(|c| c.data_type).collect::<Vec<_>>())
        {
            return Err(Error::new(Code::FeatureNotSupported, "cached plan must not change result type"));
        }
        let planned =
            again.planned.clone().ok_or_else(|| Error::internal("a planned statement lost its plan"))?;
        portal.prepared = again;
        Ok(planned)
    }

    async fn start_planned(
        &mut self,
        planned: &Arc<Planned>,
        portal: &mut Portal,
        cancel: &Cancel,
    ) -> Result<Executed> {
        self.check_not_failed()?;
        self.authorize(&self.catalog(), &planned.access)?;
        if let Some(direct) = &planned.direct
            && let Some(rows) = Box::pin(self.get_directly(direct, portal)).await?
        {
            let tag = format!("SELECT {}", rows.len());
            portal.run = Run::Buffered(VecDeque::from([Page::Values(rows)]), tag);
            return self.step_buffered(portal);
        }
        if planned.writes {
            self.check_writable(planned)?;
            self.note_said(&portal.prepared.parsed.text, &portal.parameters)?;
            if planned.command == Command::Select {
                // Rows are locked to the end of a transaction, if only of this statement's own.
                self.ensure_transaction(false, true);
            }
            if let Some(update) = &planned.program
                && self.transaction.is_none()
                && !self.more_follows
                && let Some(tag) = Box::pin(self.run_program(update, portal, planned.catalog)).await?
            {
                portal.run = Run::Done(tag.clone().into());
                return Ok(Executed::Complete(tag));
            }
            return Box::pin(self.change_rows(planned, portal, cancel)).await;
        }
        let statement = self.begin_statement();
        let runtime = self.runtime(&statement, portal.parameters.clone(), cancel.clone());
        let operator = execute::open(&planned.plan, &runtime)?;
        portal.run =
            Run::Rows(Box::new(Rows { operator: Mutex::new(operator), runtime, rest: None, rows: 0 }));
        self.step_rows(portal).await
    }

    fn check_writable(&self, planned: &Planned) -> Result<()> {
        let read_only = match &self.transaction {
            Some(transaction) => transaction.read_only,
            None => self.settings.limits().read_only,
        };
        if read_only {
            let what = match planned.command {
                Command::Select => "SELECT FOR UPDATE",
                Command::Insert => "INSERT",
                Command::Update => "UPDATE",
                Command::Delete => "DELETE",
                Command::Merge => "MERGE",
            };
            return Err(read_only_error(what));
        }
        Ok(())
    }

    /// A row by its key, without batches; none if the general way must be taken.
    async fn get_directly(&mut self, direct: &Direct, portal: &Portal) -> Result<Option<Vec<Vec<Value>>>> {
        let Some(key) = direct.locate(&portal.parameters)? else { return Ok(Some(Vec::new())) };
        let row = match &mut self.transaction {
            None if self.more_follows && !self.settings.limits().is_read_committed => return Ok(None),
            None => direct.get(self.engine.dispatch.as_ref(), &key, &At::Latest).await?,
            Some(transaction) => {
                transaction.used = true;
                if transaction.state.isolation == txn::Isolation::Serializable
                    || transaction.catalog.is_some()
                {
                    return Ok(None);
                }
                // What was written is found by its own key only.
                if !direct.is_by_own_key() && transaction.overlay.touches(direct.table().id) {
                    return Ok(None);
                }
                match transaction.overlay.get(direct.partition(), direct.table().id, &key) {
                    Some(row) => row.cloned(),
                    None => {
                        let statement = self.begin_statement();
                        let at = statement.at(direct.partition()).await?;
                        direct.get(self.engine.dispatch.as_ref(), &key, &at).await?
                    }
                }
            }
        };
        let Some(row) = row else { return Ok(Some(Vec::new())) };
        let context = || self.context(self.engine.dispatch.catalog(), portal.parameters.clone());
        Ok(Some(direct.project(&key, &row, context)?.into_iter().collect()))
    }

    /// A row program by key, sent without reading first; none if the general way must be taken.
    async fn run_program(
        &mut self,
        update: &DirectUpdate,
        portal: &Portal,
        under: CatalogVersion,
    ) -> Result<Option<String>> {
        let mut context = self.context(self.engine.dispatch.catalog(), portal.parameters.clone());
        let Some((key, program)) = update.program(&mut context)? else {
            return Ok(Some("UPDATE 0".to_owned()));
        };
        let write = Write::Program { table: update.table().id, key: key.into(), program, returning: false };
        match self.send(update.partition().clone(), Vec::new(), vec![write], None, under).await? {
            Outcome::Applied(receipt) => {
                self.use_name();
                let rows = match receipt.effects.first() {
                    Some(Effect::Rows(rows)) => *rows,
                    Some(Effect::Row(_)) => 1,
                    Some(Effect::Reserved { .. }) | None => 0,
                };
                Ok(Some(format!("UPDATE {rows}")))
            }
            Outcome::Rejected(Rejection::DescriptorChanged { .. }) => Ok(None),
            Outcome::Rejected(rejection) => Err(self.rejection_error(&rejection)),
        }
    }

    /// A statement of the open transaction, or one that stands alone.
    pub(crate) fn begin_statement(&mut self) -> Arc<txn::Statement> {
        self.begin_statement_over(self.settings.limits().many_partitions)
    }

    /// As [`Session::begin_statement`]; one that stands alone may change many partitions, one command each.
    pub(super) fn begin_statement_over(&mut self, many: bool) -> Arc<txn::Statement> {
        if self.transaction.is_none() && self.more_follows {
            self.ensure_transaction(false, true);
        }
        let wait = self.lock_wait();
        let dispatch = self.engine.dispatch.clone();
        match &mut self.transaction {
            Some(transaction) => {
                transaction.used = true;
                txn::Statement::new(dispatch, transaction.state.clone(), transaction.overlay.clone(), wait)
            }
            None => {
                let state = txn::State::alone(self.login.session, many);
                txn::Statement::new(dispatch, state, Arc::default(), wait)
            }
        }
    }

    pub(super) fn runtime(
        &self,
        statement: &Arc<txn::Statement>,
        parameters: Vec<Value>,
        cancel: Cancel,
    ) -> Runtime {
        let catalog = self.catalog();
        let context = self.context(catalog.clone(), parameters);
        let rules = CatalogRules {
            names: self.names(catalog.clone()),
            context: Mutex::new(self.context(catalog, Vec::new())),
        };
        let mut runtime = Runtime::new(
            statement.clone(),
            context,
            self.engine.pool.budget(self.engine.options.statement_bytes_max),
            self.engine.spill.clone(),
            cancel,
            Arc::new(self.numbers.clone()),
            Arc::new(rules),
        );
        runtime.piece_bytes_max =
            self.transaction.as_ref().and_then(|transaction| transaction.piece_bytes_max);
        runtime
    }

    /// Runs a change of rows to its end, and commits it if it stands alone.
    async fn change_rows(
        &mut self,
        planned: &Arc<Planned>,
        portal: &mut Portal,
        cancel: &Cancel,
    ) -> Result<Executed> {
        let mut tries = 0;
        let mut planned = planned.clone();
        loop {
            // A try may have found that its plan no longer fits the table.
            let catalog = loop {
                let catalog = self.catalog();
                if planned.catalog == catalog.version() {
                    break catalog;
                }
                planned = Box::pin(self.plan_again(portal)).await?;
            };
            let statement = self.begin_statement();
            let runtime = self.runtime(&statement, portal.parameters.clone(), cancel.clone());
            let mut operator = execute::open(&planned.plan, &runtime)?;
            let mut pages = VecDeque::new();
            let mut rows = 0;
            while let Some(batch) = operator.next().await? {
                rows += batch.len() as u64;
                if !batch.is_empty() && planned.columns.is_some() {
                    pages.push_back(Page::Batch(Box::new(batch)));
                }
            }
            drop(operator);
            statement.check_size(self.engine.options.transaction_bytes_max)?;
            let writes = statement.take_writes();
            match &mut self.transaction {
                Some(transaction) => transaction.absorb(writes, &catalog),
                None => match self.commit_statement(writes, planned.catalog).await? {
                    Committed::Done => {}
                    Committed::Again(error) => {
                        tries += 1;
                        if tries >= TRIES_MAX {
                            return Err(error);
                        }
                        let jitter = self.engine.random() % (1 << tries.min(6));
                        tokio::time::sleep(Duration::from_micros(200 + 300 * jitter)).await;
                        cancel.check()?;
                        continue;
                    }
                },
            }
            let affected = affected(&planned.plan, &runtime).unwrap_or(rows);
            let tag = match planned.command {
                Command::Select => format!("SELECT {rows}"),
                Command::Insert => format!("INSERT 0 {affected}"),
                Command::Update => format!("UPDATE {affected}"),
                Command::Delete => format!("DELETE {affected}"),
                Command::Merge => format!("MERGE {affected}"),
            };
            portal.run = Run::Buffered(pages, tag);
            return self.step_buffered(portal);
        }
    }

    /// The next rows of a query.
    pub(super) async fn step_rows(&mut self, portal: &mut Portal) -> Result<Executed> {
        let Run::Rows(running) = &mut portal.run else {
            return Err(Error::internal("the portal gives no rows"));
        };
        if portal.left == Some(0) {
            return Ok(Executed::Suspended);
        }
        loop {
            let batch = match running.rest.take() {
                Some(batch) => Some(batch),
                None => running.operator.get_mut().next().await?,
            };
            let Some(batch) = batch else {
                let tag = format!("SELECT {}", running.rows);
                portal.run = Run::Done(tag.clone().into());
                return Ok(Executed::Complete(tag));
            };
            if batch.is_empty() {
                continue;
            }
            let count = portal
                .left
                .map_or(batch.len(), |left| batch.len().min(usize::try_from(left).unwrap_or(usize::MAX)));
            let (page, rest) = Page::Batch(Box::new(batch)).cut(count);
            running.rest = rest.and_then(|rest| match rest {
                Page::Batch(batch) => Some(*batch),
                Page::Values(_) => None,
            });
            running.rows += page.len() as u64;
            if let Some(left) = &mut portal.left {
                *left -= page.len() as u64;
            }
            return Ok(Executed::Rows(page));
        }
    }

    /// The next of rows that are there.
    pub(super) fn step_buffered(&mut self, portal: &mut Portal) -> Result<Executed> {
        let Run::Buffered(pages, tag) = &mut portal.run else {
            return Err(Error::internal("the portal holds no rows"));
        };
        while pages.front().is_some_and(Page::is_empty) {
            pages.pop_front();
        }
        let Some(page) = pages.pop_front() else {
            let tag = std::mem::take(tag);
            portal.run = Run::Done(tag.clone().into());
            return Ok(Executed::Complete(tag));
        };
        if portal.left == Some(0) {
            pages.push_front(page);
            return Ok(Executed::Suspended);
        }
        let count = portal.left.map_or(page.len(), |left| usize::try_from(left).unwrap_or(usize::MAX));
        let (page, rest) = page.cut(count);
        if let Some(left) = &mut portal.left {
            *left -= page.len() as u64;
        }
        if let Some(rest) = rest {
            pages.push_front(rest);
        }
        Ok(Executed::Rows(page))
    }
}

/// How many rows the statement's own node changed.
fn affected(plan: &Plan, runtime: &Runtime) -> Option<u64> {
    match &plan.node {
        Node::Insert(_) | Node::Update(_) | Node::Delete(_) | Node::Merge(_) => {
            Some(runtime.affected_by(plan.id))
        }
        Node::With { input, .. } | Node::Project { input, .. } => affected(input, runtime),
        _ => None,
    }
}

/// `25006`.
pub(super) fn read_only_error(what: &str) -> Error {
    Error::new(Code::ReadOnlySqlTransaction, format!("cannot execute {what} in a read-only transaction"))
}
