//! The extended protocol: Parse, Describe, Execute, Close, where they wait; answered when Sync or Flush says so.
//!
//! Invariants:
//! - A message that fails is answered by one ErrorResponse, and everything up to Sync is skipped.
//! - A count or a row limit of the client reserves nothing.
//!
//! Not here: what is answered without waiting (`now`), Bind among it.

use std::{collections::HashMap, pin::pin};

use model::{Code, Error, Result, value};
use sql::session::{Executed, Format, PortalDescription};

use super::{
    attend::{End, Operation},
    connection::Connection,
    copy, encode,
    frame::{Fields, Frame},
    now::read_types,
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
    pub(super) fn parsed(&mut self, name: &str, text: &str) {
        if name.is_empty() {
            self.unnamed = text.into();
        } else {
            self.statements.insert(name.to_owned(), text.into());
        }
    }

    pub(super) fn bound(&mut self, statement: &str) {
        let text = if statement.is_empty() { Some(&self.unnamed) } else { self.statements.get(statement) };
        self.portal = text.cloned().unwrap_or_default();
    }

    pub(super) fn closed(&mut self, name: &str) {
        self.statements.remove(name);
    }

    /// The text of the portal that was bound last.
    pub(super) fn running(&self) -> &str {
        &self.portal
    }
}

/// Parse, read.
struct Parse {
    name: String,
    text: String,
    types: Vec<u32>,
}

/// Describe or Close, read: a name and whether it is a portal's.
pub(super) struct Named<'a> {
    pub(super) is_portal: bool,
    pub(super) name: &'a str,
}

impl Connection {
    /// Answers a Parse message.
    pub(super) async fn parse(&mut self, frame: Frame) -> Result<(), End> {
        let read = read_parse(self.link.input.fields(frame));
        self.link.input.consume(frame);
        let parse = match read {
            Ok(parse) => parse,
            Err(error) => return Box::pin(self.skip(&error)).await,
        };
        let Self { link, session, membership, door, .. } = self;
        let mut operation = Operation::begin(membership.entry(), &door.metrics, session.cancel_handle());
        let parsed = operation.run(link, pin!(session.parse(&parse.name, &parse.text, &parse.types))).await?;
        drop(operation);
        match parsed {
            Ok(()) => {
                self.texts.parsed(&parse.name, &parse.text);
                self.link.output.parse_complete();
                Ok(())
            }
            Err(error) => Box::pin(self.skip(&error)).await,
        }
    }

    /// Answers an Execute message.
    pub(super) async fn execute(&mut self, frame: Frame) -> Result<(), End> {
        let read = read_execute(self.link.input.fields(frame)).map(|(name, rows)| (name.to_owned(), rows));
        self.link.input.consume(frame);
        let (portal, rows_max) = match read {
            Ok(execute) => execute,
            Err(error) => return Box::pin(self.skip(&error)).await,
        };
        let started = self.door.clock.monotonic();
        let ran = self.run_portal(&portal, rows_max).await?;
        self.finished(started, None);
        match ran {
            Ok(()) => {
                self.door.metrics.statements_done.increment();
                Ok(())
            }
            Err(error) => Box::pin(self.skip(&error)).await,
        }
    }

    async fn run_portal(&mut self, portal: &str, rows_max: i32) -> Result<Result<()>, End> {
        // A statement whose Sync is here already is a transaction of its own.
        let is_last = self.link.input.unread().first() == Some(&b'S');
        self.session.set_more_follows(!is_last);
        let Self { link, session, membership, door, .. } = self;
        let mut operation = Operation::begin(membership.entry(), &door.metrics, session.cancel_handle());
        let description = match operation.run(link, pin!(session.describe_portal(portal))).await? {
            Ok(description) => description,
            Err(error) => return Ok(Err(error)),
        };
        let mut step = match operation.run(link, pin!(session.execute(portal, rows_max))).await? {
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
                    let received =
                        Box::pin(copy::receive(link, session, format, &mut operation, bytes_max)).await?;
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
            step = match operation.run(link, pin!(session.resume(portal))).await? {
                Ok(step) => step,
                Err(error) => return Ok(Err(error)),
            };
        }
    }

    /// Answers an error, and skips to Sync.
    pub(super) async fn skip(&mut self, error: &Error) -> Result<(), End> {
        Box::pin(self.session.note_failure()).await;
        self.is_skipping = true;
        self.fail(error)
    }
}

/// What a portal gives.
pub(super) fn put_portal(output: &mut encode::Output, description: &PortalDescription) {
    match &description.columns {
        Some(columns) => output.columns(columns, |at| match description.formats.get(at) {
            Some(Format::Binary) => encode::Format::Binary,
            Some(Format::Text) | None => encode::Format::Text,
            Some(Format::Unknown(code)) => encode::Format::Unknown(*code),
        }),
        None => output.no_data(),
    }
}

fn read_parse(mut fields: Fields<'_>) -> Result<Parse> {
    let name = fields.text()?.to_owned();
    let text = fields.text()?.to_owned();
    let types = read_types(&mut fields)?;
    fields.end()?;
    Ok(Parse { name, text, types })
}

/// Formats, one for all or one each.
pub(super) fn read_formats(fields: &mut Fields<'_>) -> Result<Vec<Format>> {
    let count = fields.count(2)?;
    let mut formats = Vec::with_capacity(count);
    for _ in 0..count {
        formats.push(match fields.int16()? {
            0 => Format::Text,
            1 => Format::Binary,
            other => Format::Unknown(other),
        });
    }
    Ok(formats)
}

pub(super) fn read_named(mut fields: Fields<'_>) -> Result<Named<'_>> {
    let kind = fields.byte()?;
    let name = fields.text()?;
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

/// Execute: the portal's name, and how many rows at most.
pub(super) fn read_execute(mut fields: Fields<'_>) -> Result<(&str, i32)> {
    let portal = fields.text()?;
    let rows_max = fields.int32()?;
    fields.end()?;
    Ok((portal, rows_max))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_describe_and_execute_are_read_whole_or_refused() {
        let parse = read_parse(Fields::of(b"n\0select\0\0\x01\0\0\0\x14")).expect("well formed");
        assert_eq!((parse.name.as_str(), parse.text.as_str(), parse.types), ("n", "select", vec![20]));
        assert!(read_parse(Fields::of(b"n\0select\0\xff\xff")).is_err());
        assert!(read_named(Fields::of(b"X\0")).is_err());
        assert!(read_named(Fields::of(b"Px\0")).is_ok_and(|named| named.is_portal));
        let execute = read_execute(Fields::of(b"\0\xff\xff\xff\xff")).expect("negative is all rows");
        assert_eq!(execute, ("", -1));
    }
}
