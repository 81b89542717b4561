//! One ready connection: its loop, and what both protocols share.
//!
//! Invariants:
//! - The loop reads a frame, answers it, and only then looks at the next one; what the client sends ahead waits in the
//!   input.
//! - At the end, however it comes, the session is closed: its transaction is rolled back, its locks and read points go.

use std::{pin::pin, sync::Arc, time::Duration};

use model::{Code, Error, Result};
use sql::session::{Session, SimpleStatement, Status};
use tracing::{debug, warn};

use super::{
    accept::Door,
    attend::{End, Operation, shutting_down},
    encode,
    error::{Severity, put_error, put_notice, severity},
    extended::Texts,
    frame::{Frame, Next},
    now::Now,
    stream::Link,
};
use crate::session::{Ending, Entry, Membership, shape::shape};

/// How long a client may take to read why its connection ends.
const FAREWELL_MAX: Duration = Duration::from_secs(1);

/// A connection that has logged in.
pub(super) struct Connection {
    pub(super) link: Link,
    pub(super) session: Session,
    pub(super) membership: Membership,
    pub(super) door: Arc<Door>,
    /// An error in the extended protocol: everything up to Sync is skipped.
    pub(super) is_skipping: bool,
    /// The text of a simple query: its memory is used again.
    pub(super) text: String,
    /// Texts of prepared statements.
    pub(super) texts: Texts,
    /// The statement of a simple query that was found and could not be answered on the spot.
    pub(super) found: Option<SimpleStatement>,
    /// Parameters as the client knows them.
    reported: Vec<(&'static str, String)>,
}

/// What waiting for the client came to.
enum Waited {
    /// More bytes.
    Bytes,
    /// The connection ends.
    End(End),
}

impl Connection {
    /// A connection at its beginning.
    pub(super) fn new(link: Link, session: Session, membership: Membership, door: Arc<Door>) -> Self {
        Self {
            link,
            session,
            membership,
            door,
            is_skipping: false,
            text: String::new(),
            texts: Texts::default(),
            found: None,
            reported: Vec::new(),
        }
    }

    /// The answer to a login: what the client needs to know.
    pub(super) async fn greet(&mut self) -> std::io::Result<()> {
        self.link.output.authentication_ok();
        self.reported = self.session.reported_parameters();
        for (name, value) in &self.reported {
            self.link.output.parameter(name, value);
        }
        drop(self.session.drain_parameters());
        let entry = self.membership.entry();
        self.link.output.key(entry.process_id, entry.secret());
        self.put_notices();
        self.put_ready();
        self.link.flush().await
    }

    /// Serves until the connection ends.
    pub(super) async fn run(mut self: Box<Self>) {
        let end = self.serve().await;
        let Self { mut link, mut session, membership, .. } = *self;
        let notices = session.drain_notices();
        drop(session);
        let client = membership.entry().client;
        match end {
            End::Terminated => debug!(%client, "connection closed"),
            End::Gone(error) => debug!(%client, %error, "connection lost"),
            End::Fatal(error) => {
                debug!(%client, code = error.code().sqlstate(), "connection ended");
                for notice in notices {
                    put_notice(&mut link.output, notice.severity, &notice.error);
                }
                put_error(&mut link.output, Severity::Fatal, &error);
                // A client that does not read must not keep the session's place.
                let _ = tokio::time::timeout(FAREWELL_MAX, link.close()).await;
            }
        }
    }

    async fn serve(&mut self) -> End {
        loop {
            match self.link.input.next(self.door.config.frame_bytes_max) {
                Ok(Next::Whole(frame)) => {
                    let answered = match self.answer_now(frame) {
                        Now::Done => Ok(()),
                        Now::Flush => self.flush().await,
                        Now::Failed(error) => Box::pin(self.skip(&error)).await,
                        Now::Later => self.answer(frame).await,
                    };
                    if let Err(end) = answered {
                        return end;
                    }
                }
                Ok(Next::Missing(missing)) => {
                    if let Waited::End(end) = self.wait(missing).await {
                        return end;
                    }
                }
                Err(error) => return End::Fatal(error),
            }
        }
    }

    async fn answer(&mut self, frame: Frame) -> Result<(), End> {
        if self.is_skipping && !matches!(frame.tag, b'S' | b'X') {
            self.link.input.consume(frame);
            return Ok(());
        }
        match frame.tag {
            b'E' => self.execute(frame).await,
            b'S' => {
                self.link.input.consume(frame);
                Box::pin(self.sync()).await
            }
            b'Q' => Box::pin(self.simple(frame)).await,
            b'P' => Box::pin(self.parse(frame)).await,
            b'H' => {
                self.link.input.consume(frame);
                self.link.flush().await.map_err(End::Gone)
            }
            // What is left of a COPY that failed.
            b'd' | b'c' | b'f' => {
                self.link.input.consume(frame);
                Ok(())
            }
            b'F' => {
                self.link.input.consume(frame);
                let error = Error::unsupported(
                    "function calls by the fast path are not supported",
                    "Call the function with SELECT.",
                );
                self.fail(&error)?;
                self.sync().await
            }
            b'X' => Err(End::Terminated),
            other => Err(End::Fatal(Error::new(
                Code::ProtocolViolation,
                format!("invalid frontend message type {other}"),
            ))),
        }
    }

    /// Waits for the client. Between messages idle limits and the shutdown count; inside one only the shutdown does.
    async fn wait(&mut self, missing: usize) -> Waited {
        let status = self.session.status();
        let limit = match status {
            _ if !self.link.input.is_empty() => None,
            Status::Idle => self.session.idle_timeout(),
            Status::InTransaction | Status::Failed => self.session.idle_in_transaction_timeout(),
        };
        let entry = self.membership.entry();
        loop {
            match (entry.ending(), status) {
                (Ending::Stop, _) | (Ending::Drain, Status::Idle) => {
                    return Waited::End(End::Fatal(shutting_down()));
                }
                (Ending::Drain | Ending::None, _) => {}
            }
            let read = async {
                match limit {
                    None => Some(self.link.fill(missing).await),
                    Some(limit) => tokio::time::timeout(limit, self.link.fill(missing)).await.ok(),
                }
            };
            tokio::select! {
                biased;
                read = read => return match read {
                    Some(Ok(0)) => Waited::End(End::Gone(std::io::ErrorKind::UnexpectedEof.into())),
                    Some(Ok(_)) => Waited::Bytes,
                    Some(Err(error)) => Waited::End(End::Gone(error)),
                    None => Waited::End(End::Fatal(idle_too_long(status))),
                },
                () = entry.woken() => {}
            }
        }
    }

    /// Ends the implicit transaction and says so, in one write with all that came before.
    pub(super) async fn sync(&mut self) -> Result<(), End> {
        self.is_skipping = false;
        let synced = {
            let mut operation =
                Operation::begin(self.membership.entry(), &self.door.metrics, self.session.cancel_handle());
            operation.run(&mut self.link, pin!(self.session.sync())).await?
        };
        if let Err(error) = synced {
            self.fail(&error)?;
            self.is_skipping = false;
        }
        self.put_end();
        self.flush().await
    }

    /// What stands before and in ReadyForQuery.
    pub(super) fn put_end(&mut self) {
        self.put_notices();
        self.put_parameters();
        self.put_ready();
    }

    /// Sends what waits; a client that does not read is given up when the server stops.
    pub(super) async fn flush(&mut self) -> Result<(), End> {
        let entry = self.membership.entry();
        loop {
            tokio::select! {
                biased;
                flushed = self.link.flush() => return flushed.map_err(End::Gone),
                () = entry.woken() => {
                    if entry.ending() == Ending::Stop {
                        return Err(End::Gone(std::io::ErrorKind::TimedOut.into()));
                    }
                }
            }
        }
    }

    /// Answers an error. Those that end the connection are handed up.
    pub(super) fn fail(&mut self, error: &Error) -> Result<(), End> {
        self.door.metrics.statements_failed.increment();
        if error.code() == Code::QueryCanceled {
            self.door.metrics.statements_cancelled.increment();
        }
        if severity(error.code()) == Severity::Fatal {
            return Err(End::Fatal(error.clone()));
        }
        if matches!(error.code(), Code::InternalError | Code::DataCorrupted | Code::IndexCorrupted) {
            // The message of such an error is ours and holds no payload; its source is for the log only.
            let source = std::error::Error::source(error).map(ToString::to_string);
            warn!(
                code = error.code().sqlstate(),
                message = error.message(),
                source,
                "statement failed by our fault"
            );
        }
        self.put_notices();
        put_error(&mut self.link.output, Severity::Error, error);
        Ok(())
    }

    /// Notes a statement's end: metrics and, if it took long, the log.
    ///
    /// Without a text it was the portal that was bound last.
    pub(super) fn finished(&self, started: Duration, text: Option<&str>) {
        note_time(&self.door, self.membership.entry(), started, || text.unwrap_or(self.texts.running()));
    }

    pub(super) fn put_notices(&mut self) {
        for notice in self.session.drain_notices() {
            put_notice(&mut self.link.output, notice.severity, &notice.error);
        }
    }

    /// Tells the client of parameters that are no longer as it knows them.
    fn put_parameters(&mut self) {
        for (name, value) in self.session.drain_parameters() {
            match self.reported.iter_mut().find(|(known, _)| *known == name) {
                Some((_, known)) if *known == value => {}
                Some((_, known)) => {
                    self.link.output.parameter(name, &value);
                    *known = value;
                }
                None => {
                    self.link.output.parameter(name, &value);
                    self.reported.push((name, value));
                }
            }
        }
    }

    fn put_ready(&mut self) {
        self.link.output.ready(match self.session.status() {
            Status::Idle => encode::Status::Idle,
            Status::InTransaction => encode::Status::Block,
            Status::Failed => encode::Status::Failed,
        });
    }
}

/// Counts a statement's time; a slow one is logged.
pub(super) fn note_time<'a>(door: &Door, entry: &Entry, started: Duration, text: impl FnOnce() -> &'a str) {
    let took = door.clock.monotonic().saturating_sub(started);
    door.metrics.statement_time.observe(took);
    if door.slow_statement.is_some_and(|slow| took >= slow) {
        let millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        warn!(session = entry.id.0, millis, statement = shape(text()), "slow statement");
    }
}

fn idle_too_long(status: Status) -> Error {
    match status {
        Status::Idle => {
            Error::new(Code::IdleSessionTimeout, "terminating connection due to idle-session timeout")
        }
        Status::InTransaction | Status::Failed => Error::new(
            Code::IdleInTransactionSessionTimeout,
            "terminating connection due to idle-in-transaction timeout",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size<A, F>(_: impl FnOnce(A) -> F) -> usize {
        size_of::<F>()
    }

    /// A future is moved whole when it is made: what is rare and large is boxed where it is called.
    #[test]
    fn the_futures_of_messages_are_small() {
        type On = &'static mut Connection;
        let frame = || unreachable!("never called");
        let sizes = [
            ("answer", size(|connection: On| connection.answer(frame()))),
            ("execute", size(|connection: On| connection.execute(frame()))),
            ("simple", size(|connection: On| connection.simple(frame()))),
            ("sync", size(|connection: On| connection.sync())),
            ("serve", size(|connection: On| connection.serve())),
        ];
        for (name, bytes) in sizes {
            assert!(bytes <= 2_560, "{name}: {bytes} bytes");
        }
    }
}
