//! The simple protocol: a text of statements, all in one implicit transaction, one ReadyForQuery at the end.

use model::{Error, Result, value};
use sql::session::{Executed, SimpleStatement};

use super::{
    attend::{End, Operation},
    connection::Connection,
    copy, encode,
    frame::Frame,
    rows,
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
            self.fail(&error)?;
        }
        self.sync().await
    }

    async fn statements(&mut self, text: &str) -> Result<Result<()>, End> {
        let statements = match self.session.split(text) {
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
        let limit = session.statement_timeout();
        let mut operation = Operation::begin(membership.entry(), &door.metrics, session.cancel_handle(), limit);
        let description = match operation.run(link, session.begin_simple(statement)).await? {
            Ok(description) => description,
            Err(error) => return Ok(Err(error)),
        };
        if let Some(columns) = &description.columns {
            link.output.columns(columns, |_| encode::Format::Text);
        }
        let context: value::Context = session.text_context();
        let mut is_copying = false;
        loop {
            let step = match operation.run(link, session.resume_simple()).await? {
                Ok(step) => step,
                Err(error) => return Ok(Err(error)),
            };
            match step {
                Executed::Rows(page) => {
                    let columns = description.columns.as_deref().unwrap_or_default();
                    let shape = rows::Shape { columns, formats: &description.formats, context: &context };
                    if let Err(error) = rows::send(&page, &shape, link, &mut operation).await? {
                        return Ok(Err(error));
                    }
                }
                Executed::Suspended => return Ok(Err(Error::internal("a simple query was suspended"))),
                Executed::Complete(tag) => {
                    if is_copying {
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
                    return match copy::receive(link, session, format, &mut operation, door.config.frame_bytes_max)
                        .await?
                    {
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
                    is_copying = true;
                    link.output.copy_begin(b'H', copy::wire_format(format), format.columns);
                }
                Executed::CopyData(bytes) => {
                    if let Err(error) = copy::send(&bytes, link, &mut operation).await? {
                        return Ok(Err(error));
                    }
                }
            }
        }
    }
}
