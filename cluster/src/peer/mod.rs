//! What nodes say to each other: calls of the groups' consensus, over one connection per pair of nodes and direction.
//!
//! The life of a call:
//! 1. A group hands its message to [`Peers`], which finds the receiver in [`Known`], puts it into an envelope and sends it
//!    over the shared connection, until it is answered or its deadline is over.
//! 2. The receiver's [`Desk`] checks the envelope: cluster, sender and its life, receiver and its life. What does not
//!    fit is refused with a [`Refusal`] and reaches no group.
//! 3. The group answers through [`Receive`].
//!
//! Invariants:
//! - A message of another cluster, of an unknown life of a node or for another node changes nothing.
//! - A receiver that hangs costs its callers their deadlines and nobody else anything: connections are not shared between
//!   receivers, and no call waits for another one. A stream has less room than its connection, so none can fill it.
//! - Whatever is in memory for a message is bounded: an append by [`MESSAGE_BYTES_MAX`], a snapshot by a few pieces.
//!
//! Not here: what the messages mean (`raft`), who belongs to the cluster (it is told through [`Known`]). The bytes are
//! drawn in `docs/formats/peer.md`.

mod call;
mod desk;
mod known;
mod parts;
mod refusal;
#[cfg(test)]
mod suite;

use std::time::Duration;

use model::id::NodeId;

pub(crate) use call::{CallError, Peers};
pub(crate) use desk::{Desk, Receive};
pub(crate) use known::{Known, Peer};
#[cfg(test)]
pub(crate) use parts::Arrived;
pub(crate) use parts::{Incoming, Pieces};
pub(crate) use refusal::Refusal;

/// The generated protocol (`proto/peer.proto`).
#[allow(missing_docs, unreachable_pub, clippy::all, reason = "generated code")]
pub(crate) mod proto {
    tonic::include_proto!("keystead.peer.v1");
}

/// The largest message: an append of a full batch, or of one entry as large as the largest segment of a log takes.
pub(crate) const MESSAGE_BYTES_MAX: usize = 512 << 20;

/// Snapshots received at once, over all groups; more are refused and come again.
const SNAPSHOTS_MAX: usize = 2;

/// How long a receiver waits for the next piece of a snapshot.
const PIECE_WAIT: Duration = Duration::from_secs(30);

/// Who a node is: it never changes while its process runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Me {
    pub(crate) cluster: u128,
    pub(crate) node: NodeId,
    /// The life of its data directory: a directory that was lost and made again is another one.
    pub(crate) incarnation: u128,
}

/// A message as it arrives when it was sent.
#[cfg(test)]
pub(crate) fn over_the_wire<T: prost::Message + Default>(message: &T) -> T {
    T::decode(message.encode_to_vec().as_slice()).expect("what was encoded is decoded")
}
