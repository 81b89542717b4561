//! Running a statement while watching everything else: its client, its cancel key, its time limit, the shutdown.
//!
//! Invariants:
//! - What is ready at the first poll costs nothing more than that poll.
//! - A cancelled statement is first asked to stop; if it does not within [`GRACE`] it is dropped, which ends its work.
//! - A client that has gone cancels its statement.
//! - A panic becomes `XX000` of the statement.

use std::{
    future::{Future, poll_fn},
    io,
    pin::Pin,
    task::Poll,
    time::Duration,
};

use model::{Code, Error, Result};
use sql::session::CancelHandle;
use tokio::time::{Instant, Sleep};

use super::{now::caught, stream::Link};
use crate::{
    metrics::Metrics,
    session::{Ending, Entry},
};

/// How long a statement may take to notice that it was cancelled.
const GRACE: Duration = Duration::from_millis(100);
/// What a client may send ahead while its statement runs.
const READ_AHEAD_MAX: usize = 64 << 10;

/// The connection ends.
#[derive(Debug)]
pub(super) enum End {
    /// The client said so.
    Terminated,
    /// The socket broke.
    Gone(io::Error),
    /// We say why.
    Fatal(Error),
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        Self::Gone(error)
    }
}

/// Why a statement shall stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stop {
    /// Its client asked, or went.
    Request,
    /// `statement_timeout`.
    Timeout,
    /// The server stops.
    Shutdown,
}

impl Stop {
    fn error(self) -> Error {
        match self {
            Self::Request => Error::new(Code::QueryCanceled, "canceling statement due to user request"),
            Self::Timeout => Error::new(Code::QueryCanceled, "canceling statement due to statement timeout"),
            Self::Shutdown => shutting_down(),
        }
    }

    fn tell(self, cancel: &CancelHandle) {
        match self {
            Self::Request | Self::Timeout => cancel.cancel(),
            Self::Shutdown => cancel.shut_down(),
        }
    }
}

/// `57P01`.
pub(super) fn shutting_down() -> Error {
    Error::new(Code::AdminShutdown, "terminating connection due to administrator command")
}

/// One operation of a session: from its begin to its end it can be cancelled.
///
/// The session itself keeps `statement_timeout` while it works; `limit` is the same limit for the time in between, when
/// the statement waits for its client.
pub(super) struct Operation<'a> {
    entry: &'a Entry,
    metrics: &'a Metrics,
    cancel: CancelHandle,
    limit: Option<Pin<Box<Sleep>>>,
    stop: Option<Stop>,
}

impl<'a> Operation<'a> {
    /// Begins.
    pub(super) fn begin(entry: &'a Entry, metrics: &'a Metrics, cancel: CancelHandle) -> Self {
        entry.begin();
        metrics.operations.add(1);
        Self { entry, metrics, cancel, limit: None, stop: None }
    }

    /// From now on, waiting for the client counts; the first limit stays.
    pub(super) fn limit_waits(&mut self, limit: Option<Duration>) {
        if let (Some(limit), None) = (limit, &self.limit) {
            self.limit = Some(Box::pin(tokio::time::sleep(limit)));
        }
    }

    /// Runs a step of it, which stays where its caller made it: a future that is handed on is moved whole.
    pub(super) async fn run<T>(
        &mut self,
        link: &mut Link,
        mut step: Pin<&mut impl Future<Output = Result<T>>>,
    ) -> Result<Result<T>, End> {
        if self.entry.is_cancelled() {
            self.stop.get_or_insert(Stop::Request);
        }
        if let Some(error) = self.stopped() {
            return Ok(Err(error));
        }
        let metrics = self.metrics;
        let mut step = poll_fn(|context| {
            let polled = caught(metrics, || step.as_mut().poll(context));
            polled.unwrap_or_else(|error| Poll::Ready(Err(error)))
        });
        if let Poll::Ready(done) = futures::poll!(&mut step) {
            return Ok(done);
        }
        let mut lost: Option<io::Error> = None;
        let mut deadline: Option<Instant> = None;
        loop {
            // The step comes last: it may use up the task's budget, and then nothing polled after it would be ready.
            let can_read = lost.is_none() && link.input.len() < READ_AHEAD_MAX;
            tokio::select! {
                biased;
                () = self.entry.woken() => {}
                () = until(deadline) => {
                    let stop = self.stop.unwrap_or(Stop::Request);
                    return lost.map_or(Ok(Err(stop.error())), |error| Err(End::Gone(error)));
                }
                read = link.fill(0), if can_read => match read {
                    Ok(0) => lost = Some(io::ErrorKind::UnexpectedEof.into()),
                    Ok(_) => {}
                    Err(error) => lost = Some(error),
                },
                done = &mut step => {
                    return lost.map_or(Ok(done), |error| Err(End::Gone(error)));
                }
            }
            if lost.is_some() || self.entry.is_cancelled() {
                self.stop.get_or_insert(Stop::Request);
            }
            if self.entry.ending() == Ending::Stop {
                self.stop.get_or_insert(Stop::Shutdown);
            }
            if let (Some(stop), None) = (self.stop, deadline) {
                stop.tell(&self.cancel);
                deadline = Some(tokio::time::Instant::now() + GRACE);
            }
        }
    }

    /// Sends what waits, to a client that may be slow. A cancelled statement stops waiting; what was not sent stays.
    pub(super) async fn flush(&mut self, link: &mut Link) -> Result<(), End> {
        loop {
            if self.stop.is_none() {
                if self.entry.is_cancelled() {
                    self.stop = Some(Stop::Request);
                } else if self.entry.ending() == Ending::Stop {
                    self.stop = Some(Stop::Shutdown);
                }
            }
            if let Some(stop) = self.stop {
                stop.tell(&self.cancel);
                return Ok(());
            }
            tokio::select! {
                biased;
                flushed = link.flush() => return flushed.map_err(End::Gone),
                () = self.entry.woken() => {}
                () = expired(self.limit.as_mut()) => {
                    self.limit = None;
                    self.stop = Some(Stop::Timeout);
                }
            }
        }
    }

    /// Waits for the client's next bytes while the operation goes on (COPY FROM STDIN).
    pub(super) async fn fill(&mut self, link: &mut Link, missing: usize) -> Result<(), End> {
        tokio::select! {
            biased;
            read = link.fill(missing) => match read {
                Ok(0) => Err(End::Gone(io::ErrorKind::UnexpectedEof.into())),
                Ok(_) => Ok(()),
                Err(error) => Err(End::Gone(error)),
            },
            () = self.entry.woken() => {
                if self.entry.is_cancelled() {
                    self.stop.get_or_insert(Stop::Request);
                }
                if self.entry.ending() == Ending::Stop {
                    self.stop.get_or_insert(Stop::Shutdown);
                }
                Ok(())
            }
            () = expired(self.limit.as_mut()) => {
                self.limit = None;
                self.stop.get_or_insert(Stop::Timeout);
                Ok(())
            }
        }
    }

    /// Why it was stopped, if it was.
    pub(super) fn stopped(&self) -> Option<Error> {
        self.stop.map(Stop::error)
    }
}

impl Drop for Operation<'_> {
    fn drop(&mut self) {
        self.entry.end();
        self.metrics.operations.add(-1);
    }
}

async fn expired(limit: Option<&mut Pin<Box<Sleep>>>) {
    match limit {
        Some(limit) => limit.await,
        None => std::future::pending().await,
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
