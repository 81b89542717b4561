//! COPY over a session: data in by messages of the client, data out as chunks.
//!
//! Invariants:
//! - A COPY FROM that fails, is given up by its client, or whose session ends leaves nothing (with `atomic = off`: nothing
//!   after the last commit).
//! - COPY TO pulls its rows as the wire asks for chunks; nothing is collected.

use std::{pin::pin, sync::Arc};

use bytes::Bytes;
use model::{Code, Error, Result, access::Privilege, catalog::Catalog, id::ColumnNumber, schema::Table};
use tokio::time::Instant;

use super::{
    CopyChunk, CopyFormat, Executed, Format, Session, Status,
    message::check_constants,
    portal::{Portal, Run},
    transaction::Committed,
};
use crate::{
    bind::Access,
    copy::{self, CopyFrom, CopyTo, OptionValue, Options},
    execute::{self, Cancel, Operator, Runtime},
    parse::{
        Statement,
        utility::{Copy, CopyTarget},
    },
    txn,
};

/// Chunks of a COPY TO are about so large.
const CHUNK_BYTES: usize = 64 * 1024;

/// A COPY FROM that waits for data.
pub(super) struct CopyIn {
    from: CopyFrom,
    statement: Arc<txn::Statement>,
    cancel: Cancel,
    deadline: Option<Instant>,
    /// The catalog that it was planned under and its rows are made by.
    under: Arc<Catalog>,
}

/// A COPY TO at work.
pub(super) struct CopyOut {
    /// Used through `get_mut` only: the lock is there so that a portal can be looked at from any thread.
    operator: parking_lot::Mutex<Box<dyn Operator>>,
    runtime: Runtime,
    writer: CopyTo,
    is_binary: bool,
    begun: bool,
}

impl CopyOut {
    /// The flag that stops it.
    pub(super) fn cancel(&self) -> &Cancel {
        &self.runtime.cancel
    }
}

impl Session {
    /// Starts a COPY.
    pub(super) async fn start_copy(
        &mut self,
        copy: &Copy,
        portal: &mut Portal,
        cancel: &Cancel,
    ) -> Result<Executed> {
        if copy.from {
            self.check_read_write("COPY FROM")?;
        }
        if copy.file.is_some() {
            return Err(Error::unsupported(
                "COPY with a file of the server is not supported",
                "Use COPY FROM STDIN or TO STDOUT; psql's \\copy does.",
            ));
        }
        if copy.filter.is_some() {
            return Err(Error::unsupported(
                "COPY … WHERE is not supported",
                "Copy into a table of its own and INSERT … SELECT from it.",
            ));
        }
        let written: Vec<(String, OptionValue)> = copy
            .options
            .iter()
            .map(|(name, value)| {
                let value = match value.as_deref() {
                    None => OptionValue::None,
                    Some([star]) if star == "*" => OptionValue::Star,
                    Some([word]) if !name.starts_with("force") => OptionValue::Word(word.clone()),
                    Some(columns) => OptionValue::Columns(columns.to_vec()),
                };
                (name.clone(), value)
            })
            .collect();
        let options = Options::parse(&written, copy.from)?;
        if copy.from {
            self.start_copy_in(copy, options, portal, cancel)
        } else {
            self.start_copy_out(copy, &options, portal, cancel).await
        }
    }

    fn copied_table(&self, copy: &Copy, privilege: Privilege) -> Result<(Arc<Table>, Vec<ColumnNumber>)> {
        let CopyTarget::Table { name, columns } = &copy.target else {
            return Err(Error::new(Code::SyntaxError, "COPY FROM needs a table"));
        };
        let names = self.current_names();
        let table = match names.get(name)? {
            crate::bind::Found::Table(table) => table,
            crate::bind::Found::View(view) => {
                let direction = if copy.from { "to" } else { "from" };
                return Err(Error::new(
                    Code::WrongObjectType,
                    format!("cannot copy {direction} view \"{}\"", view.name),
                )
                .with_hint("Try the COPY (SELECT ...) TO variant."));
            }
            _ => {
                return Err(Error::new(Code::WrongObjectType, format!("cannot copy \"{}\"", name.join("."))));
            }
        };
        let mut numbers = Vec::new();
        for column in columns {
            let found = table.find_column(column).ok_or_else(|| {
                let message = format!("column \"{column}\" of relation \"{}\" does not exist", table.name);
                Error::new(Code::UndefinedColumn, message)
            })?;
            if numbers.contains(&found.number) {
                return Err(Error::new(
                    Code::DuplicateColumn,
                    format!("column \"{column}\" specified more than once"),
                ));
            }
            numbers.push(found.number);
        }
        if columns.is_empty() {
            let generated = |column: &&model::schema::Column| {
                matches!(column.default, Some(model::schema::ColumnDefault::Generated(_)))
            };
            numbers.extend(
                table.visible_columns().filter(|column| !generated(column)).map(|column| column.number),
            );
        }
        let access =
            Access { relation: table.id, privilege, columns: numbers.iter().copied().collect(), owner: None };
        self.authorize(&names.catalog, &[access])?;
        Ok((table, numbers))
    }

    fn start_copy_in(
        &mut self,
        copy: &Copy,
        options: Options,
        portal: &Portal,
        cancel: &Cancel,
    ) -> Result<Executed> {
        let under = self.catalog();
        let (table, columns) = self.copied_table(copy, Privilege::Insert)?;
        if !options.atomic && self.transaction.is_some() {
            return Err(Error::new(
                Code::ActiveSqlTransaction,
                "COPY with atomic = off cannot run inside a transaction block",
            ));
        }
        self.note_said(&portal.prepared.parsed.text, &[])?;
        if !options.atomic && self.has_name() {
            return Err(Error::unsupported(
                "COPY with atomic = off is many commands and cannot have one name",
                "Reset keystead.command_id, or copy in parts that are named one by one.",
            ));
        }
        let statement = self.begin_statement_over(true);
        let runtime = self.runtime(&statement, Vec::new(), cancel.clone());
        let mut from = CopyFrom::new(&table, &columns, &options, &runtime)?;
        // A load has no name.
        if !self.has_name() {
            from.allow_staging();
        }
        let format = CopyFormat { format: wire_format(&options), columns: columns.len() };
        let (cancel, deadline) = (cancel.clone(), portal.deadline);
        self.copying = Some(Box::new(CopyIn { from, statement, cancel, deadline, under }));
        Ok(Executed::CopyIn(format))
    }

    async fn start_copy_out(
        &mut self,
        copy: &Copy,
        options: &Options,
        portal: &mut Portal,
        cancel: &Cancel,
    ) -> Result<Executed> {
        let text = match &copy.target {
            CopyTarget::Query(query) => query.text.clone(),
            CopyTarget::Table { name, .. } => {
                let (table, columns) = self.copied_table(copy, Privilege::Select)?;
                let quote = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
                let list: Vec<String> =
                    columns.iter().map(|number| quote(&table.column(*number).name)).collect();
                let from: Vec<String> = name.iter().map(|part| quote(part)).collect();
                format!("SELECT {} FROM {}", list.join(", "), from.join(".")).into()
            }
        };
        let prepared = Box::pin(self.prepare(&text, &[])).await?;
        check_constants(&prepared)?;
        if !matches!(prepared.parsed.statement, Statement::Sql(_)) {
            return Err(Error::new(Code::SyntaxError, "COPY (…) TO needs a query"));
        }
        let planned =
            prepared.planned.ok_or_else(|| Error::new(Code::SyntaxError, "COPY (…) TO needs a query"))?;
        let columns = planned.columns.clone().ok_or_else(|| {
            Error::new(Code::FeatureNotSupported, "COPY query must have a RETURNING clause")
        })?;
        if planned.writes {
            return Err(Error::unsupported(
                "COPY of a statement that changes rows is not supported",
                "Run it with RETURNING.",
            ));
        }
        let statement = self.begin_statement();
        let runtime = self.runtime(&statement, Vec::new(), cancel.clone());
        let operator = execute::open(&planned.plan, &runtime)?;
        let names: Vec<String> = columns.iter().map(|column| column.name.clone()).collect();
        let writer = CopyTo::new(options, &names, self.settings.text());
        portal.run = Run::Copy(Box::new(CopyOut {
            operator: parking_lot::Mutex::new(operator),
            runtime,
            writer,
            is_binary: options.format == copy::Format::Binary,
            begun: false,
        }));
        Ok(Executed::CopyOut(CopyFormat { format: wire_format(options), columns: names.len() }))
    }

    /// The next chunk of a COPY TO.
    pub(super) async fn step_copy(&mut self, portal: &mut Portal) -> Result<Executed> {
        let Run::Copy(out) = &mut portal.run else {
            return Err(Error::internal("the portal copies nothing"));
        };
        let mut chunk = Vec::new();
        let mut ends = Vec::new();
        if !out.begun {
            out.writer.begin(&mut chunk);
            out.begun = true;
            // As PostgreSQL: a header line is a message, the binary signature goes with the first row.
            if !chunk.is_empty() && !out.is_binary {
                ends.push(chunk.len());
            }
        }
        while chunk.len() < CHUNK_BYTES {
            match out.operator.get_mut().next().await? {
                Some(batch) => {
                    for row in 0..batch.len() {
                        out.writer.row(&batch, row, &mut chunk);
                        ends.push(chunk.len());
                    }
                }
                None => {
                    out.writer.finish(&mut chunk);
                    let tag = format!("COPY {}", out.writer.rows());
                    if chunk.is_empty() {
                        portal.run = Run::Done(tag.clone().into());
                        return Ok(Executed::Complete(tag));
                    }
                    if ends.last() != Some(&chunk.len()) {
                        ends.push(chunk.len());
                    }
                    portal.run = Run::Buffered(std::collections::VecDeque::new(), tag);
                    break;
                }
            }
        }
        Ok(Executed::CopyData(CopyChunk { bytes: Bytes::from(chunk), ends }))
    }

    /// Data of a COPY FROM STDIN.
    pub async fn copy_data(&mut self, data: Bytes) -> Result<()> {
        let Some(mut copying) = self.copying.take() else { return Err(no_copy()) };
        let result = self.take_data(&mut copying, &data).await;
        match result {
            Ok(()) => {
                self.copying = Some(copying);
                Ok(())
            }
            Err(error) => {
                self.note_failure().await;
                Err(error)
            }
        }
    }

    async fn take_data(&mut self, copying: &mut CopyIn, data: &[u8]) -> Result<()> {
        let handle = self.cancel.clone();
        let cancel = handle.resume(&copying.cancel);
        let deadline = copying.deadline;
        self.note_more(data);
        let written = handle.guard(&cancel, deadline, pin!(copying.from.write(data))).await;
        handle.end();
        written?;
        if copying.from.is_full() {
            self.commit_copied(copying).await?;
            copying.from.committed().await?;
        }
        copying.statement.check_size(self.engine.options.transaction_bytes_max)
    }

    /// Sends what an autocommit COPY has put in so far.
    async fn commit_copied(&mut self, copying: &mut CopyIn) -> Result<()> {
        if let Some(stage) = copying.from.take_stage() {
            return self.commit_load(stage, copying.under.version()).await;
        }
        let writes = copying.statement.take_writes();
        match &mut self.transaction {
            Some(transaction) => {
                transaction.absorb(writes, &copying.under);
                Ok(())
            }
            None => match self.commit_each(writes, copying.under.version()).await? {
                Committed::Done => Ok(()),
                Committed::Again(error) => Err(error),
            },
        }
    }

    /// The end of the data.
    pub async fn copy_done(&mut self) -> Result<Executed> {
        let Some(mut copying) = self.copying.take() else { return Err(no_copy()) };
        match self.finish_copy(&mut copying).await {
            Ok(rows) => {
                self.end_statement().await?;
                Ok(Executed::Complete(format!("COPY {rows}")))
            }
            Err(error) => {
                self.note_failure().await;
                Err(error)
            }
        }
    }

    async fn finish_copy(&mut self, copying: &mut CopyIn) -> Result<u64> {
        let handle = self.cancel.clone();
        let cancel = handle.resume(&copying.cancel);
        let rows = handle.guard(&cancel, copying.deadline, pin!(copying.from.finish())).await;
        handle.end();
        let rows = rows?;
        self.commit_copied(copying).await?;
        Ok(rows)
    }

    /// The client gives up: nothing of the COPY stays.
    pub async fn copy_fail(&mut self, message: &str) -> Error {
        self.copying = None;
        self.note_failure().await;
        Error::new(Code::QueryCanceled, format!("COPY from stdin failed: {message}"))
    }

    /// Whether a COPY FROM waits for data.
    pub fn is_copying(&self) -> bool {
        self.copying.is_some() && self.status() != Status::Failed
    }
}

fn wire_format(options: &Options) -> Format {
    match options.format {
        copy::Format::Binary => Format::Binary,
        copy::Format::Text | copy::Format::Csv => Format::Text,
    }
}

fn no_copy() -> Error {
    Error::new(Code::ProtocolViolation, "no COPY FROM STDIN is running")
}
