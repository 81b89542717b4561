//! The simple protocol: a text of statements, all in one implicit transaction, one ReadyForQuery at the end.

use std::pin::pin;

use model::{Error, Result};
use sql::session::{Executed, SimpleStatement};

use super::{
    attend::{End, Operation},
    connection::Connection,
    copy, encode,
    frame::Frame,
    rows::{self, FEW_ROWS},
};

impl Connection {
    /// Answers a Query message.
    pub(super) async fn simple(&mut self, frame: Frame) -> Result<(), End> {
        let mut text = std::mem::take(&mut self.text);
        text.clear();
        let mut fields = self.link.input.fields(frame);
        let read = fields.text().and_then(|query| fields.end().map(|()| text.push_str(query)));
        self.link.input.consume(frame);
        let started = self.door.clock.monotonic();
        let ran = match read {
            Ok(()) => self.statements(&text).await,
            Err(error) => Ok(Err(error)),
        };
        self.finished(started, Some(&text));
        if text.capacity() <= 16 << 10 {
            self.text = text;
        }
        if let Err(error) = ran? {
            Box::pin(self.session.note_failure()).await;
            self.fail(&error)?;
        }
        self.sync().await
    }

    async fn statements(&mut self, text: &str) -> Result<Result<()>, End> {
        if let Some(statement) = self.found.take() {
            self.session.set_more_follows(false);
            let ran = self.statement(&statement).await?;
            if ran.is_ok() {
                self.door.metrics.statements_done.increment();
            }
            return Ok(ran);
        }
        let split = {
            let Self { link, session, membership, door, .. } = &mut *self;
            let mut operation = Operation::begin(membership.entry(), &door.metrics, session.cancel_handle());
            operation.run(link, pin!(session.split(text))).await?
        };
        let statements = match split {
            Ok(statements) => statements,
            Err(error) => return Ok(Err(error)),
        };
        if statements.is_empty() {
            self.link.output.empty_query();
        }
        let count = statements.len();
        for (at, statement) in statements.iter().enumerate() {
            self.session.set_more_follows(at + 1 < count);
            if let Err(error) = self.statement(statement).await? {
                return Ok(Err(error));
            }
            self.door.metrics.statements_done.increment();
        }
        Ok(Ok(()))
    }

    async fn statement(&mut self, statement: &SimpleStatement) -> Result<Result<()>, End> {
        let Self { link, session, membership, door, .. } = self;
        let mut operation = Operation::begin(membership.entry(), &door.metrics, session.cancel_handle());
        let description = match operation.run(link, pin!(session.begin_simple(statement))).await? {
            Ok(description) => description,
            Err(error) => return Ok(Err(error)),
        };
        let columns = description.columns.as_deref().unwrap_or_default();
        let context = rows::context_of(columns, &description.formats, session);
        let (mut is_described, mut copying) = (false, None);
        loop {
            let step = match operation.run(link, pin!(session.resume_simple())).await? {
                Ok(step) => step,
                Err(error) => return Ok(Err(error)),
            };
            // What a result looks like is said when it is known that there is one.
            if let (false, Some(columns)) = (is_described, &description.columns) {
                link.output.columns(columns, |_| encode::Format::Text);
                is_described = true;
            }
            if let (Some(format), Executed::CopyData(_) | Executed::Complete(_)) = (copying, &step)
                && !is_described
            {
                link.output.copy_begin(b'H', copy::wire_format(format), format.columns);
                is_described = true;
            }
            match step {
                Executed::Rows(page) => {
                    if page.len() > FEW_ROWS {
                        operation.limit_waits(session.statement_timeout());
                    }
                    let shape = rows::Shape { columns, formats: &description.formats, context: &context };
                    if let Err(error) = rows::send(&page, &shape, link, &mut operation).await? {
                        return Ok(Err(error));
                    }
                }
                Executed::Suspended => return Ok(Err(Error::internal("a simple query was suspended"))),
                Executed::Complete(tag) => {
                    if copying.is_some() {
                        link.output.copy_done();
                    }
                    drop(operation);
                    self.put_notices();
                    self.link.output.command_complete(&tag);
                    return Ok(Ok(()));
                }
                Executed::Empty => {
                    link.output.empty_query();
                    return Ok(Ok(()));
                }
                Executed::CopyIn(format) => {
                    operation.limit_waits(session.statement_timeout());
                    let bytes_max = door.config.frame_bytes_max;
                    let receive = copy::receive(link, session, format, &mut operation, bytes_max);
                    return match Box::pin(receive).await? {
                        Ok(tag) => {
                            drop(operation);
                            self.put_notices();
                            self.link.output.command_complete(&tag);
                            Ok(Ok(()))
                        }
                        Err(error) => Ok(Err(error)),
                    };
                }
                Executed::CopyOut(format) => {
                    operation.limit_waits(session.statement_timeout());
                    copying = Some(format);
                }
                Executed::CopyData(chunk) => {
                    if let Err(error) = copy::send(&chunk, link, &mut operation).await? {
                        return Ok(Err(error));
                    }
                }
            }
        }
    }
}
