//! The messages of the protocol: Parse, Bind, Describe, Execute, Close, Sync, and Query.

use std::{pin::pin, sync::Arc};

use model::{
    Code, Error, Result, Type, Value,
    types::Typmod,
    value::{binary, text_io},
};

use super::{
    Executed, Format, Page, Parameters, PortalDescription, Session, StatementDescription, Status,
    portal::{Portal, Run, describe},
};
use crate::{
    cache::Prepared,
    functions::cast,
    parse::{self, Parsed, Statement, Utility, literals},
};

/// The name under which the statement of a simple query runs.
const SIMPLE: &str = "\u{0}simple";

/// One statement of a simple query.
#[derive(Clone, Debug)]
pub struct SimpleStatement {
    parsed: Arc<Parsed>,
    text: Arc<str>,
    more: bool,
    /// Its plan, where it is known.
    prepared: Option<Prepared>,
    /// Numbers that were taken out of the text.
    values: Vec<Value>,
}

impl SimpleStatement {
    pub(super) fn planned(&self) -> Option<(&Prepared, &[Value])> {
        Some((self.prepared.as_ref()?, &self.values))
    }

    fn of_plan(prepared: Prepared, values: Vec<Value>) -> Self {
        let parsed = prepared.parsed.clone();
        Self { text: parsed.text.clone(), parsed, more: false, prepared: Some(prepared), values }
    }
}

impl Session {
    /// Parse.
    pub async fn parse(&mut self, name: &str, text: &str, types: &[u32]) -> Result<()> {
        let result = self.parse_message(name, text, types).await;
        self.settle(result).await
    }

    async fn parse_message(&mut self, name: &str, text: &str, types: &[u32]) -> Result<()> {
        if !name.is_empty() && self.statements.contains_key(name) {
            let message = format!("prepared statement \"{name}\" already exists");
            return Err(Error::new(Code::DuplicatePreparedStatement, message));
        }
        let given = types
            .iter()
            .map(|oid| match oid {
                0 => Ok(None),
                oid => Type::from_oid(*oid).map(Some).ok_or_else(|| {
                    Error::new(Code::UndefinedObject, format!("type with OID {oid} does not exist"))
                }),
            })
            .collect::<Result<Vec<_>>>()?;
        if self.status() == Status::Failed {
            let parsed = parse::parse_one(text)?;
            if !ends_transaction(&parsed) {
                self.check_not_failed()?;
            }
        }
        let prepared = Box::pin(self.prepare(text, &given)).await?;
        self.statements.insert(name.to_owned(), prepared);
        Ok(())
    }

    /// Describe of a statement.
    pub async fn describe_statement(&mut self, name: &str) -> Result<StatementDescription> {
        let result = self.describe_statement_now(name);
        self.settle(result).await
    }

    pub(super) fn statement(&self, name: &str) -> Result<&Prepared> {
        self.statements.get(name).ok_or_else(|| {
            let message = if name.is_empty() {
                "unnamed prepared statement does not exist".to_owned()
            } else {
                format!("prepared statement \"{name}\" does not exist")
            };
            Error::new(Code::InvalidSqlStatementName, message)
        })
    }

    /// Bind.
    pub async fn bind(
        &mut self,
        portal: &str,
        statement: &str,
        parameters: Parameters,
        formats: Vec<Format>,
    ) -> Result<()> {
        let result = self.bind_now(portal, statement, &parameters.formats, &parameters.values, &formats);
        self.settle(result).await
    }

    /// Bind, which waits for nobody. After an error [`Session::note_failure`] must be called.
    pub fn bind_now(
        &mut self,
        portal: &str,
        statement: &str,
        given: &[Format],
        bytes: &[Option<impl AsRef<[u8]>>],
        formats: &[Format],
    ) -> Result<()> {
        let prepared = self.statement(statement)?.clone();
        if self.status() == Status::Failed && !ends_transaction(&prepared.parsed) {
            self.check_not_failed()?;
        }
        if !portal.is_empty() && self.portals.contains_key(portal) {
            return Err(Error::new(Code::DuplicateCursor, format!("portal \"{portal}\" already exists")));
        }
        let wanted = prepared.parameters.len();
        if bytes.len() != wanted {
            let message = format!(
                "bind message supplies {} parameters, but prepared statement \"{statement}\" requires {wanted}",
                bytes.len()
            );
            return Err(Error::new(Code::ProtocolViolation, message));
        }
        if given.len() > 1 && given.len() != wanted {
            let message =
                format!("bind message has {} parameter formats but {wanted} parameters", given.len());
            return Err(Error::new(Code::ProtocolViolation, message));
        }
        let width = prepared.columns.as_ref().map_or(0, |columns| columns.len());
        if formats.len() > 1 && formats.len() != width {
            let message =
                format!("bind message has {} result formats but query has {width} columns", formats.len());
            return Err(Error::new(Code::ProtocolViolation, message));
        }
        let context = self.settings.text();
        let mut values = Vec::with_capacity(wanted);
        for (at, (bytes, ty)) in bytes.iter().zip(&*prepared.parameters).enumerate() {
            let format = match given {
                [] => Format::Text,
                [one] => *one,
                _ => given[at],
            };
            let value = match (bytes.as_ref().map(AsRef::as_ref), format) {
                (None, _) => Value::Null,
                (Some(_), Format::Unknown(code)) => return Err(Format::unsupported(code)),
                (Some(bytes), Format::Binary) => binary::decode_binary(*ty, bytes)?,
                (Some(bytes), Format::Text) => {
                    let text = std::str::from_utf8(bytes)
                        .map_err(|_| model::value::ValueError::invalid_utf8(bytes))?;
                    if ty.is_oid() && text.parse::<u32>().is_err() {
                        // The name of an object, which only the catalog knows.
                        let mut context = self.context(self.catalog(), Vec::new());
                        cast::cast(&mut context, &Value::text(text), Type::Text, *ty, Typmod::NONE, true)?
                    } else {
                        text_io::parse(*ty, Typmod::NONE, text, &context)?
                    }
                }
            };
            values.push(value);
        }
        check_constants(&prepared)?;
        let formats = match formats {
            [] => vec![Format::Text; width],
            [one] => vec![*one; width],
            _ => formats.to_vec(),
        };
        self.keep_portal(portal, Portal::new(prepared, values, formats));
        Ok(())
    }

    /// Keeps a new portal until it is closed, or its transaction ends, or is rolled back to where it was not there.
    pub(super) fn keep_portal(&mut self, name: &str, mut portal: Portal) {
        portal.number = self.portals_made;
        self.portals_made += 1;
        self.portals.insert(name.to_owned(), portal);
    }

    /// Describe of a portal.
    pub async fn describe_portal(&mut self, name: &str) -> Result<PortalDescription> {
        let result = self.describe_portal_now(name);
        self.settle(result).await
    }

    /// Execute: starts or goes on with a portal and gives the first step.
    pub async fn execute(&mut self, name: &str, max_rows: i32) -> Result<Executed> {
        let result = match self.portals.get_mut(name) {
            None => Err(no_portal(name)),
            Some(portal) => {
                portal.left = u64::try_from(max_rows).ok().filter(|rows| *rows > 0);
                portal.given = 0;
                portal.deadline =
                    self.settings.limits().statement.map(|limit| tokio::time::Instant::now() + limit);
                self.step(name).await
            }
        };
        self.settle(result).await
    }

    /// The next step of an execution.
    pub async fn resume(&mut self, name: &str) -> Result<Executed> {
        let result = self.step(name).await;
        self.settle(result).await
    }

    async fn step(&mut self, name: &str) -> Result<Executed> {
        let mut portal = self.portals.remove(name).ok_or_else(|| no_portal(name))?;
        let handle = self.cancel.clone();
        let cancel = match &portal.run {
            Run::Rows(rows) => handle.resume(&rows.runtime.cancel),
            Run::Copy(copy) => handle.resume(copy.cancel()),
            Run::Ready | Run::Buffered(..) | Run::Done(_) => handle.begin(),
        };
        let deadline = portal.deadline;
        if matches!(portal.run, Run::Ready) {
            self.set_activity("active", Some(&portal.prepared.parsed.text));
        }
        let result = handle.guard(&cancel, deadline, pin!(self.step_portal(&mut portal, &cancel))).await;
        handle.end();
        match result {
            Ok(executed) => {
                let executed = portal.counted(executed);
                let finished = matches!(executed, Executed::Complete(_) | Executed::Empty);
                // What ended its transaction has no portal any more.
                let gone = finished && name == SIMPLE;
                if !gone {
                    self.portals.insert(name.to_owned(), portal);
                }
                if finished {
                    drop_simple(self, name);
                    self.end_statement().await?;
                }
                Ok(executed)
            }
            Err(error) => Err(error),
        }
    }

    async fn step_portal(
        &mut self,
        portal: &mut Portal,
        cancel: &crate::execute::Cancel,
    ) -> Result<Executed> {
        if portal.left != Some(0)
            && let Some(rows) = portal.take_pulled()
        {
            return Ok(Executed::Rows(Page::Values(rows)));
        }
        match &portal.run {
            Run::Ready => self.start(portal, cancel).await,
            Run::Rows(_) => self.step_rows(portal).await,
            Run::Buffered(..) => self.step_buffered(portal),
            Run::Copy(_) => Box::pin(self.step_copy(portal)).await,
            Run::Done(tag) => {
                // Executed again: nothing is left.
                let word = tag.split(' ').next().unwrap_or("SELECT");
                Ok(Executed::Complete(if word == "SELECT" { "SELECT 0".to_owned() } else { tag.to_string() }))
            }
        }
    }

    /// After a statement: an implicit transaction that nothing follows is committed.
    pub(super) async fn end_statement(&mut self) -> Result<()> {
        let ends =
            self.transaction.as_ref().is_some_and(|transaction| !transaction.block) && !self.more_follows;
        if ends {
            Box::pin(self.commit()).await?;
        } else if self.transaction.is_none() {
            self.end_said();
            if self.is_commit_due {
                Box::pin(self.after_commit()).await;
            }
        }
        self.set_activity(self.state_name(), None);
        Ok(())
    }

    pub(super) fn state_name(&self) -> &'static str {
        match self.status() {
            Status::Idle => "idle",
            Status::InTransaction => "idle in transaction",
            Status::Failed => "idle in transaction (aborted)",
        }
    }

    /// Puts an error's effect on the transaction.
    async fn settle<T>(&mut self, result: Result<T>) -> Result<T> {
        if result.is_err() {
            Box::pin(self.fail()).await;
            self.portals.remove(SIMPLE);
            self.set_activity(self.state_name(), None);
        }
        result
    }

    /// Close of a statement; none with that name is fine.
    pub fn close_statement(&mut self, name: &str) {
        self.statements.remove(name);
    }

    /// Close of a portal; none with that name is fine.
    pub fn close_portal(&mut self, name: &str) {
        self.portals.remove(name);
    }

    /// Sync: ends an implicit transaction.
    pub async fn sync(&mut self) -> Result<()> {
        self.more_follows = false;
        let implicit = self.transaction.as_ref().is_some_and(|transaction| !transaction.block);
        let result = if implicit { Box::pin(self.commit()).await } else { Ok(()) };
        self.end_portals();
        self.set_activity(self.state_name(), None);
        result
    }

    /// Portals end with their transaction.
    pub(super) fn end_portals(&mut self) {
        if self.transaction.is_none() && !self.portals.is_empty() {
            self.portals.retain(|_, portal| portal.held);
        }
    }

    /// The statements of a simple query.
    pub async fn split(&mut self, text: &str) -> Result<Vec<SimpleStatement>> {
        if let Some(statement) = self.find_simple(text) {
            return Ok(vec![statement]);
        }
        if let Some(statement) = self.lift(text).await {
            return Ok(vec![statement]);
        }
        let result = parse::parse(text);
        let parsed = self.settle(result).await?;
        let text: Arc<str> = text.into();
        let count = parsed.len();
        let statements = parsed.into_iter().enumerate().map(|(at, parsed)| SimpleStatement {
            parsed: Arc::new(parsed),
            text: text.clone(),
            more: at + 1 < count,
            prepared: None,
            values: Vec::new(),
        });
        Ok(statements.collect())
    }

    /// The one statement of a simple query, if there is a plan for it already: as it is, or with its numbers taken out.
    pub fn find_simple(&mut self, text: &str) -> Option<SimpleStatement> {
        // The unnamed statement ends with a simple query.
        self.statements.remove("");
        self.portals.remove("");
        // What a name is bound to is the text as it was said.
        if self.settings.limits().is_named {
            return None;
        }
        if let Some(prepared) = self.find_prepared(text, &[]) {
            return Some(SimpleStatement::of_plan(prepared, Vec::new()));
        }
        if self.status() == Status::Failed {
            return None;
        }
        let literals::Lifted { text, values, types } = literals::lift(text)?;
        let prepared = self.find_prepared(&text, &types)?;
        takes(&prepared, &types).then(|| SimpleStatement::of_plan(prepared, values))
    }

    /// A statement whose numbers were taken out, if a plan for it is there or can be made; else the text is parsed as it is.
    async fn lift(&mut self, text: &str) -> Option<SimpleStatement> {
        if self.status() == Status::Failed || self.settings.limits().is_named {
            return None;
        }
        let literals::Lifted { text, values, types } = literals::lift(text)?;
        let prepared = Box::pin(self.prepare(&text, &types)).await.ok()?;
        takes(&prepared, &types).then(|| SimpleStatement::of_plan(prepared, values))
    }

    /// Makes a statement of a simple query ready; its result's columns, all as text.
    pub async fn begin_simple(&mut self, statement: &SimpleStatement) -> Result<PortalDescription> {
        let result = self.begin_simple_message(statement).await;
        self.settle(result).await
    }

    async fn begin_simple_message(&mut self, statement: &SimpleStatement) -> Result<PortalDescription> {
        if !ends_transaction(&statement.parsed) {
            self.check_not_failed()?;
        }
        self.more_follows = statement.more;
        let alone = !statement.more
            && statement.parsed.text.len() == statement.text.trim().trim_end_matches(';').trim_end().len();
        let prepared = match &statement.prepared {
            Some(prepared) => prepared.clone(),
            None if alone => Box::pin(self.prepare(&statement.text, &[])).await?,
            None => Box::pin(self.prepare_parsed(statement.parsed.clone(), &statement.text, &[])).await?.0,
        };
        if prepared.parameters.len() != statement.values.len() {
            return Err(Error::new(Code::UndefinedParameter, "there is no parameter $1"));
        }
        check_constants(&prepared)?;
        let width = prepared.columns.as_ref().map_or(0, |columns| columns.len());
        let mut portal = Portal::new(prepared, statement.values.clone(), vec![Format::Text; width]);
        portal.deadline = self.settings.limits().statement.map(|limit| tokio::time::Instant::now() + limit);
        let description = describe(&portal);
        self.portals.insert(SIMPLE.to_owned(), portal);
        Ok(description)
    }

    /// The next step of the statement that [`Session::begin_simple`] made ready.
    pub async fn resume_simple(&mut self) -> Result<Executed> {
        self.resume(SIMPLE).await
    }
}

fn drop_simple(session: &mut Session, name: &str) {
    if name == SIMPLE {
        session.portals.remove(SIMPLE);
    }
}

/// Whether a plan takes parameters of just these types, so that it means what the text with its numbers meant.
fn takes(prepared: &Prepared, types: &[Option<Type>]) -> bool {
    prepared.planned.is_some() && prepared.parameters.iter().zip(types).all(|(ty, given)| Some(*ty) == *given)
}

/// The error of a constant that has no value.
pub(super) fn check_constants(prepared: &Prepared) -> Result<()> {
    match prepared.planned.as_ref().and_then(|planned| planned.failure.clone()) {
        Some(failure) => Err(failure),
        None => Ok(()),
    }
}

pub(super) fn no_portal(name: &str) -> Error {
    Error::new(Code::InvalidCursorName, format!("portal \"{name}\" does not exist"))
}

/// Whether a statement may run in a failed block.
fn ends_transaction(parsed: &Parsed) -> bool {
    match &parsed.statement {
        Statement::Empty => true,
        Statement::Utility(utility) => {
            matches!(
                utility.as_ref(),
                Utility::Commit { .. } | Utility::Rollback { .. } | Utility::RollbackTo(_)
            )
        }
        Statement::Sql(_) => false,
    }
}
