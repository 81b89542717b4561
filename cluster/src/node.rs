//! A node: storage, groups and owners, opened and closed as one.
//!
//! Invariants:
//! - Opening goes down to the files and comes up to the router; closing goes the other way. What `open` built before it
//!   failed, or before it was cancelled, is taken down again.
//! - Closing happens once, whoever asks and however often: it runs to its end on a thread of its own, so that cancelling
//!   the wait for it does not cancel it. The directory is given back last.
//! - When `open` returns, every shard is owned and everything that was acknowledged before is readable.
//!
//! Not here: what is done when the node cannot go on (`Options::on_fatal`): the process ends then.

mod background;
mod close;
mod disk;
mod open;
mod stats;
#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc};

use model::id::{Boot, NodeId};

use crate::{Options, Result, Router};
use close::Parts;

pub use stats::{ShardStats, Stats};

/// A running node. Dropping it closes it as [`Node::close`] does, but for the last checkpoint.
pub struct Node {
    router: Arc<Router>,
    parts: Arc<Parts>,
}

impl Node {
    /// Opens, or makes, the node of a data directory, and waits until it can serve.
    pub async fn open(options: Options) -> Result<Self> {
        open::open(options).await
    }

    /// The way to its partitions.
    pub fn router(&self) -> Arc<Router> {
        self.router.clone()
    }

    /// Its id in the cluster.
    pub fn id(&self) -> NodeId {
        self.parts.id()
    }

    /// Which start of it this is.
    pub fn boot(&self) -> Boot {
        self.parts.boot()
    }

    /// Where it stands: for metrics and for `ks_catalog.shards`.
    pub fn stats(&self) -> Stats {
        stats::collect(&self.parts)
    }

    /// Closes it: no new requests, those inside finish (for a while), state is synced, groups and threads end, files are
    /// closed and the directory is given back.
    ///
    /// The second call, and a call after a cancelled one, wait for the same end.
    pub async fn close(&self) -> Result<()> {
        self.parts.close(close::Manner::Checkpointed).await
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.parts.close_and_wait(close::Manner::AtOnce);
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("id", &self.id()).field("boot", &self.boot()).finish_non_exhaustive()
    }
}
