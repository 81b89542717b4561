//! The extended protocol: Parse, Bind, Describe, Execute, Close; answered when Sync or Flush says so.
//!
//! Invariants:
//! - A message that fails is answered by one ErrorResponse, and everything up to Sync is skipped.
//! - A count or a row limit of the client reserves nothing.

use std::collections::HashMap;

use bytes::Bytes;
use model::{Code, Error, Result, value};
use sql::session::{Executed, Format, Parameters, PortalDescription};

use super::{
    attend::{End, Operation},
    connection::Connection,
    copy, encode,
    frame::{Fields, Frame},
    rows::{self, FEW_ROWS},
};

/// Texts of prepared statements, for the slow-statement log: names of statements and portals.
#[derive(Default)]
pub(super) struct Texts {
    unnamed: std::sync::Arc<str>,
    statements: HashMap<String, std::sync::Arc<str>>,
    portal: std::sync::Arc<str>,
}

impl Texts {
    fn parsed(&mut self, name: &str, text: &str) {
        if name.is_empty() {
            self.unnamed = text.into();
        } else {
            self.statements.insert(name.to_owned(), text.into());
        }
    }

    fn bound(&mut self, statement: &str) {
        let text = if statement.is_empty() { Some(&self.unnamed) } else { self.statements.get(statement) };
        self.portal = text.cloned().unwrap_or_default();
    }

    fn closed(&mut self, name: &str) {
        self.statements.remove(name);
    }

    /// The text of the portal that was bound last.
    fn running(&self) -> std::sync::Arc<str> {
        self.portal.clone()
    }
}

/// Parse, read.
struct Parse {
    name: String,
    text: String,
    types: Vec<u32>,
}

/// Bind, read.
struct Bind {
    portal: String,
    statement: String,
    parameters: Parameters,
    formats: Vec<Format>,
}

/// Describe or Close, read: a name and whether it is a portal's.
struct Named {
    is_portal: bool,
    name: String,
}

impl Connection {
    /// Answers a Parse message.
    pub(super) async fn parse(&mut self, frame: Frame) -> Result<(), End> {
        let read = read_parse(self.link.input.fields(frame));
        self.link.input.consume(frame);
        let parse = match read {
            Ok(parse) => parse,
            Err(error) => return self.skip(&error).await,
        };
        let Self { link, session, membership, door, .. } = self;
        let mut operation = Operation::begin(membership.entry(), &door.metrics, session.cancel_handle());
        let parsed = operation.run(link, session.parse(&parse.name, &parse.text, &parse.types)).await?;
        drop(operation);
        match parsed {
            Ok(()) => {
                self.texts.parsed(&parse.name, &parse.text);
                self.link.output.parse_complete();
                Ok(())
            }
            Err(error) => self.skip(&error).await,
        }
    }

    /// Answers a Bind message.
    pub(super) async fn bind(&mut self, frame: Frame) -> Result<(), End> {
        let read = read_bind(self.link.input.fields(frame));
        self.link.input.consume(frame);
        let Bind { portal, statement, parameters, formats } = match read {
            Ok(bind) => bind,
            Err(error) => return self.skip(&error).await,
        };
        let Self { link, session, membership, door, .. } = self;
        let mut operation = Operation::begin(membership.entry(), &door.metrics, session.cancel_handle());
        let bound = operation.run(link, session.bind(&portal, &statement, parameters, formats)).await?;
        drop(operation);
        match bound {
            Ok(()) => {
                if self.door.slow_statement.is_some() {
                    self.texts.bound(&statement);
                }
                self.link.output.bind_complete();
                Ok(())
            }
            Err(error) => self.skip(&error).await,
        }
    }

    /// Answers a Describe message.
    pub(super) async fn describe(&mut self, frame: Frame) -> Result<(), End> {
        let read = read_named(self.link.input.fields(frame));
        self.link.input.consume(frame);
        let Named { is_portal, name } = match read {
            Ok(named) => named,
            Err(error) => return self.skip(&error).await,
        };
        let Self { link, session, membership, door, .. } = self;
        let mut operation = Operation::begin(membership.entry(), &door.metrics, session.cancel_handle());
        if is_portal {
            let described = operation.run(link, session.describe_portal(&name)).await?;
            drop(operation);
            return match described {
                Ok(description) => {
                    put_portal(&mut self.link.output, &description);
                    Ok(())
                }
                Err(error) => self.skip(&error).await,
            };
        }
        let described = operation.run(link, session.describe_statement(&name)).await?;
        drop(operation);
        match described {
            Ok(description) => {
                let output = &mut self.link.output;
                output.parameters(&description.parameters);
                match &description.columns {
                    Some(columns) => output.columns(columns, |_| encode::Format::Text),
                    None => output.no_data(),
                }
                Ok(())
            }
            Err(error) => self.skip(&error).await,
        }
    }

    /// Answers a Close message. What is not there is closed already.
    pub(super) async fn close(&mut self, frame: Frame) -> Result<(), End> {
        let read = read_named(self.link.input.fields(frame));
        self.link.input.consume(frame);
        match read {
            Ok(Named { is_portal: true, name }) => self.session.close_portal(&name),
            Ok(Named { is_portal: false, name }) => {
                self.texts.closed(&name);
                self.session.close_statement(&name);
            }
            Err(error) => return self.skip(&error).await,
        }
        self.link.output.close_complete();
        Ok(())
    }

    /// Answers an Execute message.
    pub(super) async fn execute(&mut self, frame: Frame) -> Result<(), End> {
        let read = read_execute(self.link.input.fields(frame));
        self.link.input.consume(frame);
        let (portal, rows_max) = match read {
            Ok(execute) => execute,
            Err(error) => return self.skip(&error).await,
        };
        let started = self.door.clock.monotonic();
        let ran = self.run_portal(&portal, rows_max).await?;
        self.finished(started, None);
        match ran {
            Ok(()) => {
                self.door.metrics.statements_done.increment();
                Ok(())
            }
            Err(error) => self.skip(&error).await,
        }
    }

    async fn run_portal(&mut self, portal: &str, rows_max: i32) -> Result<Result<()>, End> {
        // A statement whose Sync is here already is a transaction of its own.
        let is_last = self.link.input.unread().first() == Some(&b'S');
        self.session.set_more_follows(!is_last);
        let Self { link, session, membership, door, .. } = self;
        let mut operation = Operation::begin(membership.entry(), &door.metrics, session.cancel_handle());
        let description = match operation.run(link, session.describe_portal(portal)).await? {
            Ok(description) => description,
            Err(error) => return Ok(Err(error)),
        };
        let mut step = match operation.run(link, session.execute(portal, rows_max)).await? {
            Ok(step) => step,
            Err(error) => return Ok(Err(error)),
        };
        let mut context: Option<value::Context> = None;
        let (mut is_begun, mut copying) = (false, None);
        loop {
            if let (Some(format), Executed::CopyData(_) | Executed::Complete(_)) = (copying, &step)
                && !is_begun
            {
                link.output.copy_begin(b'H', copy::wire_format(format), format.columns);
                is_begun = true;
            }
            match step {
                Executed::Rows(page) => {
                    if page.len() > FEW_ROWS {
                        operation.limit_waits(session.statement_timeout());
                    }
                    let columns = description.columns.as_deref().unwrap_or_default();
                    let context = context
                        .get_or_insert_with(|| rows::context_of(columns, &description.formats, session));
                    let shape = rows::Shape { columns, formats: &description.formats, context };
                    if let Err(error) = rows::send(&page, &shape, link, &mut operation).await? {
                        return Ok(Err(error));
                    }
                }
                Executed::Suspended => {
                    link.output.portal_suspended();
                    return Ok(Ok(()));
                }
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
                    let received = copy::receive(link, session, format, &mut operation, bytes_max).await?;
                    drop(operation);
                    return Ok(received.map(|tag| {
                        self.put_notices();
                        self.link.output.command_complete(&tag);
                    }));
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
            step = match operation.run(link, session.resume(portal)).await? {
                Ok(step) => step,
                Err(error) => return Ok(Err(error)),
            };
        }
    }

    /// Answers an error, and skips to Sync.
    async fn skip(&mut self, error: &Error) -> Result<(), End> {
        self.session.note_failure().await;
        self.is_skipping = true;
        self.fail(error)
    }

    /// The text of the portal that ran last.
    pub(super) fn running_text(&self) -> std::sync::Arc<str> {
        self.texts.running()
    }
}

fn put_portal(output: &mut encode::Output, description: &PortalDescription) {
    match &description.columns {
        Some(columns) => output.columns(columns, |at| match description.formats.get(at) {
            Some(Format::Binary) => encode::Format::Binary,
            Some(Format::Text) | None => encode::Format::Text,
        }),
        None => output.no_data(),
    }
}

fn read_parse(mut fields: Fields<'_>) -> Result<Parse> {
    let name = fields.text()?.to_owned();
    let text = fields.text()?.to_owned();
    let count = fields.count(4)?;
    let mut types = Vec::with_capacity(count);
    for _ in 0..count {
        types.push(u32::from_ne_bytes(fields.int32()?.to_ne_bytes()));
    }
    fields.end()?;
    Ok(Parse { name, text, types })
}

fn read_bind(mut fields: Fields<'_>) -> Result<Bind> {
    let portal = fields.text()?.to_owned();
    let statement = fields.text()?.to_owned();
    let formats = read_formats(&mut fields)?;
    let count = fields.count(4)?;
    let mut values = Vec::with_capacity(count);
    for _ in 0..count {
        values.push(fields.value()?.map(Bytes::copy_from_slice));
    }
    let results = read_formats(&mut fields)?;
    fields.end()?;
    Ok(Bind { portal, statement, parameters: Parameters { formats, values }, formats: results })
}

fn read_formats(fields: &mut Fields<'_>) -> Result<Vec<Format>> {
    let count = fields.count(2)?;
    let mut formats = Vec::with_capacity(count);
    for _ in 0..count {
        formats.push(match fields.int16()? {
            0 => Format::Text,
            1 => Format::Binary,
            other => {
                return Err(Error::new(
                    Code::InvalidParameterValue,
                    format!("unsupported format code: {other}"),
                ));
            }
        });
    }
    Ok(formats)
}

fn read_named(mut fields: Fields<'_>) -> Result<Named> {
    let kind = fields.byte()?;
    let name = fields.text()?.to_owned();
    fields.end()?;
    let is_portal = match kind {
        b'P' => true,
        b'S' => false,
        other => {
            let message = format!("invalid DESCRIBE or CLOSE message subtype {other}");
            return Err(Error::new(Code::ProtocolViolation, message));
        }
    };
    Ok(Named { is_portal, name })
}

fn read_execute(mut fields: Fields<'_>) -> Result<(String, i32)> {
    let portal = fields.text()?.to_owned();
    let rows_max = fields.int32()?;
    fields.end()?;
    Ok((portal, rows_max))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bind_is_read_whole_or_refused() {
        let whole = b"p\0s\0\0\x01\0\x01\0\x02\0\0\0\x01x\xff\xff\xff\xff\0\x01\0\0";
        let bind = read_bind(Fields::of(whole)).expect("well formed");
        assert_eq!((bind.portal.as_str(), bind.statement.as_str()), ("p", "s"));
        assert_eq!(bind.parameters.formats, [Format::Binary]);
        assert_eq!(bind.parameters.values, [Some(Bytes::from_static(b"x")), None]);
        assert_eq!(bind.formats, [Format::Text]);
        for cut in 0..whole.len() {
            assert!(read_bind(Fields::of(&whole[..cut])).is_err(), "cut at {cut}");
        }
        assert!(read_bind(Fields::of(b"\0\0\xff\xff")).is_err(), "a count of -1");
        assert!(read_bind(Fields::of(b"\0\0\0\x01\0\x02\0\0\0\0")).is_err(), "a format of 2");
    }

    #[test]
    fn parse_describe_and_execute_are_read_whole_or_refused() {
        let parse = read_parse(Fields::of(b"n\0select\0\0\x01\0\0\0\x14")).expect("well formed");
        assert_eq!((parse.name.as_str(), parse.text.as_str(), parse.types), ("n", "select", vec![20]));
        assert!(read_parse(Fields::of(b"n\0select\0\xff\xff")).is_err());
        assert!(read_named(Fields::of(b"X\0")).is_err());
        assert!(read_named(Fields::of(b"Px\0")).is_ok_and(|named| named.is_portal));
        let execute = read_execute(Fields::of(b"\0\xff\xff\xff\xff")).expect("negative is all rows");
        assert_eq!(execute, (String::new(), -1));
    }
}
