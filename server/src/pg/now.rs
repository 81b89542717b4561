//! Messages that are answered on the spot, without a future: Bind, Describe, Close, Sync with nothing to end, a read by key,
//! and what only looks at the session.
//!
//! Invariants:
//! - It is the same answer as the awaited one. What would wait, or is malformed, is left alone: the awaited form takes it.
//! - A panic is caught here as it is in `attend`. A cancel request finds nothing that runs.

use std::{
    borrow::Cow,
    panic::{AssertUnwindSafe, catch_unwind},
};

use model::{Error, Result};
use sql::session::Format;
use tracing::error;

use super::{
    connection::{Connection, note_time},
    encode,
    extended::{Named, put_portal, read_execute, read_formats, read_named},
    frame::{Fields, Frame},
    rows::{self, BUFFER_BYTES_MAX},
};
use crate::{metrics::Metrics, spawn::panic_text};

/// What became of a message.
pub(super) enum Now {
    /// It is answered.
    Done,
    /// It is answered, and what waits is to be sent.
    Flush,
    /// It failed: the rest up to Sync is skipped.
    Failed(Error),
    /// Nothing: it has to be awaited.
    Later,
}

impl Connection {
    /// Answers a message if that takes no waiting.
    pub(super) fn answer_now(&mut self, frame: Frame) -> Now {
        if self.is_skipping && frame.tag != b'S' {
            return Now::Later;
        }
        let answered = match frame.tag {
            b'B' => Some(self.bind(frame)),
            b'D' => Some(self.describe(frame)),
            b'C' => Some(self.close(frame)),
            b'E' => self.execute_now(frame),
            b'S' => self.sync_now(),
            b'Q' => self.simple_now(frame),
            b'P' => self.parse_now(frame),
            _ => None,
        };
        match answered {
            Some(now) => {
                self.link.input.consume(frame);
                // A client that asks for much before it says Sync is answered as it goes.
                let is_full = self.link.output.len() >= BUFFER_BYTES_MAX;
                if is_full && matches!(now, Now::Done) { Now::Flush } else { now }
            }
            None => Now::Later,
        }
    }

    fn bind(&mut self, frame: Frame) -> Now {
        let Self { link, session, door, texts, .. } = self;
        let bound = read_bind(link.input.fields(frame)).and_then(|bind| {
            caught(&door.metrics, || {
                session.bind_now(bind.portal, bind.statement, &bind.given, &bind.values, &bind.formats)
            })??;
            if door.slow_statement.is_some() {
                texts.bound(bind.statement);
            }
            Ok(())
        });
        match bound {
            Ok(()) => {
                link.output.bind_complete();
                Now::Done
            }
            Err(error) => Now::Failed(error),
        }
    }

    fn execute_now(&mut self, frame: Frame) -> Option<Now> {
        let Self { link, session, door, .. } = self;
        let (portal, rows_max) = read_execute(link.input.fields(frame)).ok()?;
        let started = door.clock.monotonic();
        let put = match caught(&door.metrics, || session.execute_now(portal, rows_max)) {
            Ok(None) => return None,
            Ok(Some(got)) => rows::put_got(&mut link.output, &got).map(|()| got.tag()),
            Err(error) => Err(error),
        };
        self.finished(started, None);
        Some(self.completed(put))
    }

    fn simple_now(&mut self, frame: Frame) -> Option<Now> {
        let Self { link, session, membership, door, found, .. } = self;
        let mut fields = link.input.fields(frame);
        let text = fields.text().ok()?;
        fields.end().ok()?;
        let started = door.clock.monotonic();
        // A failure is answered by the awaited form, from the start.
        let statement = caught(&door.metrics, || session.find_simple(text)).ok()??;
        let got = caught(&door.metrics, || session.get_simple_now(&statement));
        let Ok(Some(got)) = got else {
            *found = Some(statement);
            return None;
        };
        let before = link.output.len();
        link.output.columns(got.columns, |_| encode::Format::Text);
        if rows::put_got(&mut link.output, &got).is_err() {
            link.output.truncate(before);
            return None;
        }
        let tag = got.tag();
        note_time(door, membership.entry(), started, || text);
        self.completed(Ok(tag));
        // A read by key leaves no implicit transaction behind.
        self.session.sync_now();
        self.put_end();
        Some(Now::Flush)
    }

    fn completed(&mut self, put: Result<Cow<'static, str>>) -> Now {
        match put {
            Ok(tag) => {
                self.door.metrics.statements_done.increment();
                self.put_notices();
                self.link.output.command_complete(&tag);
                Now::Done
            }
            Err(error) => Now::Failed(error),
        }
    }

    fn sync_now(&mut self) -> Option<Now> {
        self.session.sync_now()?;
        self.is_skipping = false;
        self.put_end();
        Some(Now::Flush)
    }

    fn describe(&mut self, frame: Frame) -> Now {
        let Self { link, session, .. } = self;
        let described = read_named(link.input.fields(frame)).and_then(|Named { is_portal, name }| {
            if is_portal {
                put_portal(&mut link.output, &session.describe_portal_now(name)?);
            } else {
                let description = session.describe_statement_now(name)?;
                link.output.parameters(&description.parameters);
                match &description.columns {
                    Some(columns) => link.output.columns(columns, |_| encode::Format::Text),
                    None => link.output.no_data(),
                }
            }
            Ok(())
        });
        described.map_or_else(Now::Failed, |()| Now::Done)
    }

    /// What is not there is closed already.
    fn close(&mut self, frame: Frame) -> Now {
        let Self { link, session, texts, .. } = self;
        let closed = read_named(link.input.fields(frame)).map(|Named { is_portal, name }| {
            if is_portal {
                session.close_portal(name);
            } else {
                session.close_statement(name);
                texts.closed(name);
            }
        });
        match closed {
            Ok(()) => {
                link.output.close_complete();
                Now::Done
            }
            Err(error) => Now::Failed(error),
        }
    }

    fn parse_now(&mut self, frame: Frame) -> Option<Now> {
        let Self { link, session, door, texts, .. } = self;
        let mut fields = link.input.fields(frame);
        let (name, text) = (fields.text().ok()?, fields.text().ok()?);
        let types = read_types(&mut fields).ok()?;
        fields.end().ok()?;
        match caught(&door.metrics, || session.parse_now(name, text, &types)) {
            Ok(parsed) => {
                parsed?;
                texts.parsed(name, text);
                link.output.parse_complete();
                Some(Now::Done)
            }
            Err(error) => Some(Now::Failed(error)),
        }
    }
}

/// Bind, read in place.
#[derive(Debug)]
struct Bind<'a> {
    portal: &'a str,
    statement: &'a str,
    given: Vec<Format>,
    values: Vec<Option<&'a [u8]>>,
    formats: Vec<Format>,
}

fn read_bind(mut fields: Fields<'_>) -> Result<Bind<'_>> {
    let portal = fields.text()?;
    let statement = fields.text()?;
    let given = read_formats(&mut fields)?;
    let count = fields.count(4)?;
    let mut values = Vec::with_capacity(count);
    for _ in 0..count {
        values.push(fields.value()?);
    }
    let formats = read_formats(&mut fields)?;
    fields.end()?;
    Ok(Bind { portal, statement, given, values, formats })
}

/// The types of Parse.
pub(super) fn read_types(fields: &mut Fields<'_>) -> Result<Vec<u32>> {
    let count = fields.count(4)?;
    let mut types = Vec::with_capacity(count);
    for _ in 0..count {
        types.push(u32::from_ne_bytes(fields.int32()?.to_ne_bytes()));
    }
    Ok(types)
}

/// Runs something; a panic is an error of the statement.
pub(super) fn caught<T>(metrics: &Metrics, run: impl FnOnce() -> T) -> Result<T> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| {
        metrics.statements_panicked.increment();
        error!(reason = panic_text(&*panic), "statement panicked");
        Error::internal("the statement failed by a bug of the server")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bind_is_read_whole_or_refused() {
        let whole = b"p\0s\0\0\x01\0\x01\0\x02\0\0\0\x01x\xff\xff\xff\xff\0\x01\0\0";
        let bind = read_bind(Fields::of(whole)).expect("well formed");
        assert_eq!((bind.portal, bind.statement), ("p", "s"));
        assert_eq!(bind.given, [Format::Binary]);
        assert_eq!(bind.values, [Some(b"x".as_slice()), None]);
        assert_eq!(bind.formats, [Format::Text]);
        for cut in 0..whole.len() {
            assert!(read_bind(Fields::of(&whole[..cut])).is_err(), "cut at {cut}");
        }
        assert!(read_bind(Fields::of(b"\0\0\xff\xff")).is_err(), "a count of -1");
        let odd = read_bind(Fields::of(b"\0\0\0\x01\0\x02\0\0\0\0")).expect("well formed");
        assert_eq!(odd.given, [Format::Unknown(2)], "refused when a value has it");
    }
}
