//! What all drivers share: waiting for what came before, and ending their gate.
//!
//! Invariants:
//! - A gate that a driver has begun ends in one place: completed by its work, failed by its first error, or aborted by the end
//!   of the runtime; and is then taken out.
//!
//! Not here: the work.

use std::sync::Arc;

use futures::future::{Either, select};
use model::id::ViewId;
use tokio::sync::watch;
use tracing::{error, info};

use crate::gate::{Driver, Ended, Failure, Gates, Role, Status};

/// The runtime ended while something waited in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the runtime has ended")]
pub(crate) struct Stopped;

/// Waits until no gate up to this view blocks the key.
pub(crate) async fn passed<G: Gates>(gates: &G, key: &G::Key, at: ViewId) -> Result<(), Failure> {
    while let Some(gate) = gates.find_blocking(key, at) {
        match gate.completion().await {
            Ended::Completed | Ended::Superseded(_) => {}
            Ended::Failed(failure) => return Err(failure),
            Ended::Aborted => return Err(Arc::new(Stopped)),
        }
    }
    Ok(())
}

/// Runs a driver's work to its gate's end. What is pruned after is the caller's map.
pub(crate) async fn end<R: Role>(
    gate: &Driver<R>,
    stopping: &watch::Sender<bool>,
    work: impl Future<Output = Result<(), Failure>>,
) {
    let mut stop = stopping.subscribe();
    // The sender outlives every driver; if not, that is an end too.
    let stopped = async { drop(stop.wait_for(|stopping| *stopping).await) };
    futures::pin_mut!(work, stopped);
    let done = match select(stopped, work).await {
        Either::Left(_) => return gate.abort(),
        Either::Right((done, _)) => done,
    };
    let view = gate.target();
    match done {
        Ok(()) if gate.status() == Status::Superseded => info!(%view, "gate gave way to a newer view"),
        Ok(()) => match gate.complete() {
            Ok(()) => info!(%view, "gate completed"),
            Err(misstep) => error!(%view, %misstep, "gate did not complete"),
        },
        Err(_) if *stopping.borrow() => gate.abort(),
        Err(failure) => {
            error!(%view, %failure, "gate failed");
            gate.fail(failure);
        }
    }
}
