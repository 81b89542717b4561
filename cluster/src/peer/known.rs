//! The nodes one may talk with: address and life of each.
//!
//! Invariants:
//! - A node id has one life at a time; who is told of a newer one forgets the old one.
//! - Reading takes no lock.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc};

use arc_swap::ArcSwap;
use model::id::NodeId;

/// Another node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    pub(crate) incarnation: u128,
}

/// A handle on the nodes that are known here; clones see the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known(Arc<ArcSwap<BTreeMap<NodeId, Peer>>>);

impl Known {
    /// Knows a node from now on, in this life only.
    pub(crate) fn tell(&self, node: NodeId, peer: Peer) {
        self.0.rcu(|known| {
            let mut known = BTreeMap::clone(known);
            known.insert(node, peer);
            known
        });
    }

    /// Knows a node no longer.
    pub(crate) fn forget(&self, node: NodeId) {
        self.0.rcu(|known| {
            let mut known = BTreeMap::clone(known);
            known.remove(&node);
            known
        });
    }

    /// What is known of a node.
    pub(crate) fn find(&self, node: NodeId) -> Option<Peer> {
        self.0.load().get(&node).copied()
    }
}
