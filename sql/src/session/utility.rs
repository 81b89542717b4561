//! Statements that steer the session: transactions, settings, prepared statements, cursors, EXPLAIN.

use std::sync::Arc;

use model::{Code, Error, Result, Type, Value, request::Column};

use super::{
    Format, Session,
    core::{text_columns, text_rows},
    message::check_constants,
    portal::{Cursor, Portal, Run},
    run::Gave,
};
use crate::{
    cache::Prepared,
    execute::Cancel,
    explain,
    parse::{
        Statement, Utility,
        utility::{Declare, Direction, Discard},
    },
};

impl Session {
    /// The columns that a statement gives, for Describe.
    pub(super) async fn utility_columns(&mut self, utility: &Utility) -> Result<Option<Arc<[Column]>>> {
        Ok(match utility {
            Utility::Show(Some(name)) => {
                self.settings.find(name).ok_or_else(|| unrecognized(name))?;
                Some(text_columns(&[&crate::settings::spelling(name)]))
            }
            Utility::CommandStatus(_) => Some(text_columns(&["command_status"])),
            Utility::Show(None) => Some(text_columns(&["name", "setting", "description"])),
            Utility::Explain { options, .. } => {
                let mut columns = text_columns(&["QUERY PLAN"]).to_vec();
                if options.json {
                    columns[0].data_type = Type::Json;
                }
                Some(columns.into())
            }
            Utility::Execute { name, .. } => self.statement(name)?.columns.clone(),
            Utility::Fetch { cursor, moves: false, .. } => self.cursor(cursor)?.prepared.columns.clone(),
            _ => None,
        })
    }

    fn cursor(&self, name: &str) -> Result<&Portal> {
        self.portals
            .get(name)
            .filter(|_| !name.is_empty())
            .ok_or_else(|| Error::new(Code::InvalidCursorName, format!("cursor \"{name}\" does not exist")))
    }

    /// Runs one.
    pub(super) async fn utility(
        &mut self,
        utility: &Utility,
        portal: &mut Portal,
        cancel: &Cancel,
    ) -> Result<Gave> {
        let ends =
            matches!(utility, Utility::Commit { .. } | Utility::Rollback { .. } | Utility::RollbackTo(_));
        if !ends {
            self.check_not_failed()?;
        }
        let tag = match utility {
            Utility::Begin { modes, start } => {
                self.begin_block(modes)?;
                if *start { "START TRANSACTION" } else { "BEGIN" }
            }
            Utility::Commit { chain } => self.commit_block(*chain).await?,
            Utility::Rollback { chain } => {
                self.roll_back_block(*chain).await?;
                "ROLLBACK"
            }
            Utility::Savepoint(name) => {
                self.savepoint(name.clone())?;
                "SAVEPOINT"
            }
            Utility::Release(name) => {
                self.release(name)?;
                "RELEASE"
            }
            Utility::RollbackTo(name) => {
                self.roll_back_to(name).await?;
                "ROLLBACK"
            }
            Utility::SetTransaction(modes) => {
                if !self.in_block() {
                    let error = Error::new(
                        Code::NoActiveSqlTransaction,
                        "SET TRANSACTION can only be used in transaction blocks",
                    );
                    self.notice("WARNING", error);
                }
                self.set_modes(modes)?;
                "SET"
            }
            Utility::SetSession(modes) => {
                self.set_session_modes(modes)?;
                "SET"
            }
            Utility::Set { name, values, local } => {
                self.set(name, values.as_deref(), *local)?;
                "SET"
            }
            Utility::Reset(None) => {
                self.settings.reset_all();
                "RESET"
            }
            Utility::Reset(Some(name)) => {
                self.set(name, None, false)?;
                "RESET"
            }
            Utility::Show(name) => return self.show(name.as_deref()),
            Utility::CommandStatus(id) => {
                let status = self.command_status(id).await?;
                return Ok(Gave::Rows(
                    vec![vec![status.map_or(Value::Null, Value::text)]],
                    "SELECT 1".to_owned(),
                ));
            }
            Utility::Discard(what) => self.discard(*what).await?,
            Utility::Declare(declare) => {
                self.declare(declare).await?;
                "DECLARE CURSOR"
            }
            Utility::Fetch { cursor, direction, moves } => {
                return self.fetch(cursor, *direction, *moves, cancel).await;
            }
            Utility::Close(None) => {
                self.portals.retain(|_, portal| portal.cursor.is_none());
                "CLOSE CURSOR ALL"
            }
            Utility::Close(Some(name)) => {
                self.cursor(name)?;
                self.portals.remove(name);
                "CLOSE CURSOR"
            }
            Utility::Prepare { name, types, statement } => {
                if self.statements.contains_key(name) {
                    let message = format!("prepared statement \"{name}\" already exists");
                    return Err(Error::new(Code::DuplicatePreparedStatement, message));
                }
                let mut given = Vec::new();
                for ty in types {
                    given.push(Some(crate::bind::types::find_type(ty)?.0));
                }
                let text = statement.text.clone();
                let (prepared, _) = self.prepare_parsed(Arc::new(statement.clone()), &text, &given).await?;
                self.statements.insert(name.clone(), prepared);
                "PREPARE"
            }
            Utility::Execute { name, arguments } => {
                return self.execute_prepared(name, arguments, portal, cancel).await;
            }
            Utility::Deallocate(None) => {
                self.statements.clear();
                "DEALLOCATE ALL"
            }
            Utility::Deallocate(Some(name)) => {
                self.statement(name)?;
                self.statements.remove(name);
                "DEALLOCATE"
            }
            Utility::Explain { options, statement } => {
                let lines = self.explain(options, statement, portal, cancel).await?;
                let rows = if options.json {
                    lines.into_iter().map(|line| vec![Value::Json(line.into())]).collect()
                } else {
                    text_rows(lines.into_iter().map(|line| vec![line]).collect())
                };
                return Ok(Gave::Rows(rows, "EXPLAIN".to_owned()));
            }
            Utility::Notify { what } => {
                if *what == "UNLISTEN" {
                    what
                } else {
                    return Err(Error::unsupported(
                        format!("{what} is not supported"),
                        "Poll a table instead.",
                    ));
                }
            }
            Utility::Maintain { tag } => {
                if self.in_block() && *tag == "VACUUM" {
                    return Err(Error::new(
                        Code::ActiveSqlTransaction,
                        "VACUUM cannot run inside a transaction block",
                    ));
                }
                tag
            }
            Utility::Analyze { tables } => {
                self.analyze(tables, cancel).await?;
                "ANALYZE"
            }
            Utility::Lock { tables, mode, nowait } => {
                self.lock_tables(tables, mode, *nowait).await?;
                "LOCK TABLE"
            }
            Utility::Copy(_) => return Err(Error::internal("COPY is started by its portal")),
            Utility::CreateCollection { .. }
            | Utility::CreateDatabase { .. }
            | Utility::DropDatabase { .. }
            | Utility::AlterDatabase { .. }
            | Utility::CreateRole { .. }
            | Utility::AlterRole { .. }
            | Utility::DropRole { .. }
            | Utility::Membership { .. }
            | Utility::Privileges(_)
            | Utility::AlterSequence { .. }
            | Utility::CreateSequence { .. } => {
                self.check_read_write("a change of definitions")?;
                return self.define(utility).await.map(Gave::Tag);
            }
        };
        Ok(Gave::Tag(tag.to_owned()))
    }

    pub(super) fn in_block(&self) -> bool {
        self.transaction.as_ref().is_some_and(|transaction| transaction.block)
    }

    fn set_session_modes(&mut self, modes: &[crate::parse::utility::Mode]) -> Result<()> {
        use crate::parse::utility::Mode;
        for mode in modes {
            let (name, value) = match mode {
                Mode::ReadCommitted => ("default_transaction_isolation", "read committed"),
                Mode::RepeatableRead => ("default_transaction_isolation", "repeatable read"),
                Mode::Serializable => ("default_transaction_isolation", "serializable"),
                Mode::ReadOnly => ("default_transaction_read_only", "on"),
                Mode::ReadWrite => ("default_transaction_read_only", "off"),
                Mode::Deferrable => ("default_transaction_deferrable", "on"),
                Mode::NotDeferrable => ("default_transaction_deferrable", "off"),
            };
            self.settings.assign(name, value, false)?;
        }
        Ok(())
    }

    /// `SET` and `RESET` of one parameter.
    fn set(&mut self, name: &str, values: Option<&[String]>, local: bool) -> Result<()> {
        if local && !self.in_block() {
            let error =
                Error::new(Code::NoActiveSqlTransaction, "SET LOCAL can only be used in transaction blocks");
            self.notice("WARNING", error);
            return Ok(());
        }
        let lower = name.to_lowercase();
        match lower.as_str() {
            "role" => {
                let role = values.and_then(|values| values.first()).map(String::as_str);
                return self.set_role(role.filter(|role| *role != "none"), local);
            }
            "session_authorization" => {
                return self
                    .set_session_user(values.and_then(|values| values.first()).map(String::as_str), local);
            }
            "transaction_isolation" | "transaction_read_only" => {
                return self.set_transaction_parameter(&lower, values);
            }
            _ => {}
        }
        match values {
            None => self.settings.reset(name, local)?,
            Some(values) => {
                let text = if lower == "search_path" {
                    values.iter().map(|value| quote_name(value)).collect::<Vec<_>>().join(", ")
                } else {
                    values.join(", ")
                };
                self.settings.assign(name, &text, local)?;
            }
        }
        if lower == "application_name" {
            self.activity.lock().application_name = self.settings.get("application_name");
        }
        Ok(())
    }

    fn set_transaction_parameter(&mut self, name: &str, values: Option<&[String]>) -> Result<()> {
        use crate::parse::utility::Mode;
        let value = values.and_then(|values| values.first()).map(|value| value.to_lowercase());
        let mode = match (name, value.as_deref()) {
            ("transaction_isolation", Some("serializable")) => Mode::Serializable,
            ("transaction_isolation", Some("repeatable read")) => Mode::RepeatableRead,
            ("transaction_isolation", _) => Mode::ReadCommitted,
            (_, Some("on" | "true" | "1" | "yes")) => Mode::ReadOnly,
            _ => Mode::ReadWrite,
        };
        self.set_modes(&[mode])
    }

    fn set_role(&mut self, name: Option<&str>, local: bool) -> Result<()> {
        let catalog = self.catalog();
        let role = match name {
            None => self.session_user,
            Some(name) => {
                let role = catalog.find_role(name).ok_or_else(|| {
                    Error::new(Code::InvalidParameterValue, format!("role \"{name}\" does not exist"))
                })?;
                let member = crate::rights::is_superuser(&catalog, self.session_user)
                    || crate::rights::is_member(&catalog, self.session_user, role.id);
                if !member {
                    let message = format!("permission denied to set role \"{name}\"");
                    return Err(Error::new(Code::InsufficientPrivilege, message));
                }
                role.id
            }
        };
        self.settings.assign("role", name.unwrap_or("none"), local)?;
        self.take_role(role);
        Ok(())
    }

    fn set_session_user(&mut self, name: Option<&str>, local: bool) -> Result<()> {
        let catalog = self.catalog();
        let role = match name {
            None => self.authenticated,
            Some(name) => {
                let role = catalog.find_role(name).ok_or_else(|| {
                    Error::new(Code::InvalidParameterValue, format!("role \"{name}\" does not exist"))
                })?;
                if role.id != self.authenticated && !crate::rights::is_superuser(&catalog, self.authenticated)
                {
                    let message = format!("permission denied to set session authorization \"{name}\"");
                    return Err(Error::new(Code::InsufficientPrivilege, message));
                }
                role.id
            }
        };
        let shown = catalog.role(role).map(|role| role.name.clone()).unwrap_or_default();
        self.settings.assign("session_authorization", &shown, local)?;
        self.session_user = role;
        self.take_role(role);
        Ok(())
    }

    fn take_role(&mut self, role: model::id::RoleId) {
        self.current_user = role;
        let superuser = crate::rights::is_superuser(&self.catalog(), role);
        self.settings.force("is_superuser", if superuser { "on" } else { "off" });
    }

    fn show(&mut self, name: Option<&str>) -> Result<Gave> {
        let rows = match name {
            Some("transaction_isolation") => vec![vec![self.shown_isolation().to_owned()]],
            Some("transaction_read_only") => {
                let on = self
                    .transaction
                    .as_ref()
                    .map_or_else(|| self.settings.limits().read_only, |transaction| transaction.read_only);
                vec![vec![if on { "on" } else { "off" }.to_owned()]]
            }
            Some(name) => vec![vec![self.settings.find(name).ok_or_else(|| unrecognized(name))?]],
            None => {
                let all = crate::context::Settings::all(&self.settings);
                all.into_iter()
                    .map(|setting| vec![setting.name, setting.value, setting.description])
                    .collect()
            }
        };
        Ok(Gave::Rows(text_rows(rows), "SHOW".to_owned()))
    }

    /// What became of a named command, in the default partitions of the search path's schemas: `applied`, `rejected`, or
    /// none if it is not known there.
    async fn command_status(&self, id: &str) -> Result<Option<&'static str>> {
        let id: model::id::CommandId = id.parse()?;
        let names = self.names(self.catalog());
        for schema in &*names.search_path {
            let Some(schema) = names.catalog.find_schema(self.database, schema) else { continue };
            let partition = model::id::PartitionId::default_of(self.database, schema.id);
            let outcome = self.engine.dispatch.command_status(&partition, self.current_user, id).await?;
            match outcome {
                Some(model::command::Outcome::Applied(_)) => return Ok(Some("applied")),
                Some(model::command::Outcome::Rejected(_)) => return Ok(Some("rejected")),
                None => {}
            }
        }
        Ok(None)
    }

    fn shown_isolation(&self) -> String {
        use crate::txn::Isolation;
        match &self.transaction {
            None => self.settings.get("default_transaction_isolation"),
            Some(transaction) => match transaction.state.isolation {
                Isolation::ReadCommitted => "read committed",
                Isolation::RepeatableRead => "repeatable read",
                Isolation::Serializable => "serializable",
            }
            .to_owned(),
        }
    }

    async fn discard(&mut self, what: Discard) -> Result<&'static str> {
        Ok(match what {
            Discard::All => {
                if self.in_block() {
                    return Err(Error::new(
                        Code::ActiveSqlTransaction,
                        "DISCARD ALL cannot run inside a transaction block",
                    ));
                }
                self.set_session_user(None, false)?;
                self.settings.reset_all();
                self.statements.clear();
                self.portals.clear();
                self.numbers.discard();
                self.drop_temporary().await?;
                "DISCARD ALL"
            }
            Discard::Plans => "DISCARD PLANS",
            Discard::Sequences => {
                self.numbers.discard();
                "DISCARD SEQUENCES"
            }
            Discard::Temporary => {
                self.drop_temporary().await?;
                "DISCARD TEMP"
            }
        })
    }

    async fn execute_prepared(
        &mut self,
        name: &str,
        arguments: &[sqlparser::ast::Expr],
        portal: &mut Portal,
        cancel: &Cancel,
    ) -> Result<Gave> {
        let prepared = self.statement(name)?.clone();
        if arguments.len() != prepared.parameters.len() {
            let message = format!("wrong number of parameters for prepared statement \"{name}\"");
            let detail =
                format!("Expected {} parameters but got {}.", prepared.parameters.len(), arguments.len());
            return Err(Error::new(Code::SyntaxError, message).with_detail(detail));
        }
        let mut values = Vec::new();
        for (argument, ty) in arguments.iter().zip(&*prepared.parameters) {
            values.push(self.evaluate_alone(&argument.to_string(), *ty)?);
        }
        let mut inner = Portal::new(prepared, values, portal.formats.clone());
        let gave = self.run_to_end(&mut inner, cancel).await?;
        Ok(gave)
    }

    /// A value of an expression without input, of a type.
    pub(super) fn evaluate_alone(&mut self, text: &str, ty: Type) -> Result<Value> {
        let catalog = self.catalog();
        let names = self.names(catalog.clone());
        let mut context = self.context(catalog, Vec::new());
        let expr = crate::bind::bind_alone(text, "EXECUTE", &[], Some((ty, -1)), &names, &mut context)?;
        crate::eval::value(&mut context, &expr, &[])
    }

    /// Runs a portal to its end and keeps its rows.
    pub(super) async fn run_to_end(&mut self, portal: &mut Portal, cancel: &Cancel) -> Result<Gave> {
        check_constants(&portal.prepared)?;
        let mut rows = Vec::new();
        let mut next = Box::pin(self.start(portal, cancel)).await?;
        loop {
            match next {
                super::Executed::Rows(page) => rows.extend(page.into_values()),
                super::Executed::Complete(tag) => {
                    return Ok(if portal.prepared.columns.is_some() {
                        Gave::Rows(rows, tag)
                    } else {
                        Gave::Tag(tag)
                    });
                }
                super::Executed::Empty => return Ok(Gave::Tag(String::new())),
                super::Executed::Suspended
                | super::Executed::CopyIn(_)
                | super::Executed::CopyOut(_)
                | super::Executed::CopyData(_) => {
                    return Err(Error::unsupported("this statement cannot be run so", "Send it by itself."));
                }
            }
            next = match &portal.run {
                Run::Rows(_) => self.step_rows(portal).await?,
                Run::Buffered(..) => self.step_buffered(portal)?,
                Run::Ready | Run::Copy(_) | Run::Done(_) => {
                    return Err(Error::internal("a portal stopped half way"));
                }
            };
        }
    }

    async fn declare(&mut self, declare: &Declare) -> Result<()> {
        let Declare { name, binary, scroll, hold, query } = declare;
        if !self.in_block() && !hold {
            return Err(Error::new(
                Code::NoActiveSqlTransaction,
                "DECLARE CURSOR can only be used in transaction blocks",
            ));
        }
        if self.portals.contains_key(name) {
            return Err(Error::new(Code::DuplicateCursor, format!("cursor \"{name}\" already exists")));
        }
        let text = query.text.clone();
        let (prepared, _): (Prepared, bool) =
            self.prepare_parsed(Arc::new(query.clone()), &text, &[]).await?;
        let is_query = matches!(query.statement, Statement::Sql(_))
            && prepared.planned.as_ref().is_some_and(|planned| planned.columns.is_some());
        if !is_query {
            return Err(Error::new(
                Code::InvalidCursorDefinition,
                "DECLARE CURSOR must be used with a query",
            ));
        }
        check_constants(&prepared)?;
        let width = prepared.columns.as_ref().map_or(0, |columns| columns.len());
        let format = if *binary { Format::Binary } else { Format::Text };
        let mut portal = Portal::new(prepared, Vec::new(), vec![format; width]);
        portal.held = *hold;
        portal.cursor = Some(Cursor { rows: Vec::new(), complete: false, position: 0, scroll: *scroll });
        self.keep_portal(name, portal);
        Ok(())
    }

    async fn fetch(
        &mut self,
        name: &str,
        direction: Direction,
        moves: bool,
        cancel: &Cancel,
    ) -> Result<Gave> {
        self.cursor(name)?;
        let Some(mut portal) = self.portals.remove(name) else {
            return Err(Error::new(Code::InvalidCursorName, format!("cursor \"{name}\" does not exist")));
        };
        let result = self.fetch_from(&mut portal, direction, cancel).await;
        self.portals.insert(name.to_owned(), portal);
        let rows = result?;
        let count = rows.len();
        if moves {
            return Ok(Gave::Tag(format!("MOVE {count}")));
        }
        Ok(Gave::Rows(rows, format!("FETCH {count}")))
    }

    async fn fetch_from(
        &mut self,
        portal: &mut Portal,
        direction: Direction,
        cancel: &Cancel,
    ) -> Result<Vec<Vec<Value>>> {
        let mut cursor = portal.cursor.take().unwrap_or(Cursor {
            rows: Vec::new(),
            complete: false,
            position: 0,
            scroll: true,
        });
        let result = self.move_cursor(portal, &mut cursor, direction, cancel).await;
        portal.cursor = Some(cursor);
        result
    }

    async fn move_cursor(
        &mut self,
        portal: &mut Portal,
        cursor: &mut Cursor,
        direction: Direction,
        cancel: &Cancel,
    ) -> Result<Vec<Vec<Value>>> {
        let position = cursor.position;
        let to_usize = |number: i64| usize::try_from(number).unwrap_or(usize::MAX);
        match direction {
            Direction::Forward(count) if count > 0 => {
                let end = position.saturating_add(to_usize(count));
                self.fill(portal, cursor, end, cancel).await?;
                let last = end.min(cursor.rows.len());
                cursor.position = if end > cursor.rows.len() { cursor.rows.len() + 1 } else { end };
                Ok(cursor.rows.get(position..last).unwrap_or_default().to_vec())
            }
            Direction::ForwardAll => {
                self.fill(portal, cursor, usize::MAX, cancel).await?;
                cursor.position = cursor.rows.len() + 1;
                Ok(cursor.rows.get(position..).unwrap_or_default().to_vec())
            }
            Direction::Forward(0) | Direction::Relative(0) => Ok(one(cursor)),
            Direction::Forward(_) | Direction::BackwardAll => {
                self.check_scroll(cursor)?;
                let count = match direction {
                    Direction::Forward(count) => to_usize(count.saturating_neg()),
                    _ => usize::MAX,
                };
                // The row the cursor stands on is not given again.
                let last = position.saturating_sub(1).min(cursor.rows.len());
                let first = last.saturating_sub(count);
                cursor.position = if count > last { 0 } else { first + 1 };
                Ok(cursor.rows[first..last].iter().rev().cloned().collect())
            }
            Direction::Absolute(number) => {
                if number < 0 {
                    self.fill(portal, cursor, usize::MAX, cancel).await?;
                }
                let target = if number >= 0 {
                    to_usize(number)
                } else {
                    (cursor.rows.len() + 1).saturating_sub(to_usize(number.saturating_neg()))
                };
                self.go_to(portal, cursor, target, cancel).await
            }
            Direction::Relative(number) => {
                let target = if number >= 0 {
                    position.saturating_add(to_usize(number))
                } else {
                    position.saturating_sub(to_usize(number.saturating_neg()))
                };
                self.go_to(portal, cursor, target, cancel).await
            }
        }
    }

    async fn go_to(
        &mut self,
        portal: &mut Portal,
        cursor: &mut Cursor,
        target: usize,
        cancel: &Cancel,
    ) -> Result<Vec<Vec<Value>>> {
        if target < cursor.position {
            self.check_scroll(cursor)?;
        }
        self.fill(portal, cursor, target, cancel).await?;
        cursor.position = target.min(cursor.rows.len() + 1);
        Ok(one(cursor))
    }

    fn check_scroll(&self, cursor: &Cursor) -> Result<()> {
        if cursor.scroll {
            return Ok(());
        }
        Err(Error::new(Code::ObjectNotInPrerequisiteState, "cursor can only scan forward")
            .with_hint("Declare it with SCROLL option to enable backward scan."))
    }

    /// Pulls rows until the cursor has so many, or all.
    async fn fill(
        &mut self,
        portal: &mut Portal,
        cursor: &mut Cursor,
        count: usize,
        cancel: &Cancel,
    ) -> Result<()> {
        while !cursor.complete && cursor.rows.len() < count {
            let executed = match &portal.run {
                Run::Ready => Box::pin(self.start(portal, cancel)).await?,
                Run::Rows(_) => self.step_rows(portal).await?,
                Run::Buffered(..) => self.step_buffered(portal)?,
                Run::Copy(_) | Run::Done(_) => {
                    cursor.complete = true;
                    break;
                }
            };
            match executed {
                super::Executed::Rows(page) => cursor.rows.extend(page.into_values()),
                _ => cursor.complete = true,
            }
        }
        Ok(())
    }

    async fn explain(
        &mut self,
        options: &crate::parse::utility::ExplainOptions,
        statement: &crate::parse::Parsed,
        portal: &Portal,
        cancel: &Cancel,
    ) -> Result<Vec<String>> {
        let (text, catalog) = (statement.text.clone(), self.catalog());
        let (prepared, _) = Box::pin(self.prepare_parsed(Arc::new(statement.clone()), &text, &[])).await?;
        check_constants(&prepared)?;
        let Some(planned) = prepared.planned.clone() else {
            return Err(Error::unsupported(
                "EXPLAIN of this statement is not supported",
                "Explain a query or a change of rows.",
            ));
        };
        let mut measured = None;
        if options.analyze {
            if planned.writes {
                self.check_read_write("EXPLAIN ANALYZE")?;
                self.note_said(&portal.prepared.parsed.text, &portal.parameters)?;
            }
            let began = self.engine.clock.monotonic();
            let planned_writes = planned.writes;
            let statement = self.begin_statement();
            let runtime =
                self.runtime(&statement, portal.parameters.clone(), cancel.clone()).with_statistics();
            let mut operator = crate::execute::open(&planned.plan, &runtime)?;
            while operator.next().await?.is_some() {}
            drop(operator);
            if planned_writes {
                let writes = statement.take_writes();
                match &mut self.transaction {
                    Some(transaction) => transaction.absorb(writes, &catalog),
                    None => {
                        if let super::transaction::Committed::Again(error) =
                            self.commit_statement(writes, planned.catalog).await?
                        {
                            return Err(error);
                        }
                    }
                }
            }
            let elapsed = self.engine.clock.monotonic().saturating_sub(began);
            measured = Some((runtime.statistics.clone(), elapsed));
        }
        Ok(explain::explain(&planned, options, measured))
    }
}

fn one(cursor: &Cursor) -> Vec<Vec<Value>> {
    let place = cursor.position.checked_sub(1);
    place.and_then(|place| cursor.rows.get(place)).cloned().into_iter().collect()
}

fn unrecognized(name: &str) -> Error {
    Error::new(Code::UndefinedObject, format!("unrecognized configuration parameter \"{name}\""))
}

/// A name as `SHOW search_path` prints it.
fn quote_name(name: &str) -> String {
    let plain =
        !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}
