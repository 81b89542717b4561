//! Assignment of topic shards to the members of a subscription: the second user of views and gates, by exact resource.
//!
//! 1. A published view reaches the [`Consumer`]: it registers a gate for each shard it lost or got, makes the view seen, and
//!    starts the drivers.
//! 2. Lost: no message is taken any more, those in work are finished, the place is checkpointed for who comes next.
//! 3. Got: whoever had it in the view before is waited for until it has released or is gone; the place is loaded, the
//!    checkpoint is fenced against older reigns, and the [`Receiver`] opens.
//! 4. A receiver takes messages through admission: after every wait it looks again at the owner, the gates, and whether it
//!    is still the receiver of this reign.
//!
//! Invariants:
//! - A message is taken under a pass, and the pass lasts until the message is done with: a release waits for it.
//! - Nobody waits for a message with a pass in hand: a release never waits for a quiet topic.
//! - A checkpoint carries the reign's token; after a newer reign's fence an older one stores nothing.
//!
//! Not here: topics, subscriptions and where checkpoints lie ([`Checkpoints`], [`Feed`]).

mod consumer;
mod receiver;
#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod suite;

use futures::future::BoxFuture;
use model::id::{Epoch, ViewId};

use crate::{
    gate::Failure,
    view::{Authority, Member},
};

pub use consumer::{Consumer, Parts, Refused};
pub use receiver::{Delivery, Ended, Receiver};

/// One shard of a topic.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TopicShard {
    /// Which topic.
    pub topic: u64,
    /// Which of its shards.
    pub number: u32,
}

/// A place in a topic shard: how many of its messages are behind it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Offset(pub u64);

/// Proof of a reign over a topic shard. Epochs grow with each change of owner within an authority.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Token {
    /// Whose views.
    pub authority: Authority,
    /// Which reign.
    pub epoch: Epoch,
    /// The view that gave it; for people who look.
    pub view: ViewId,
}

/// Why a checkpoint was not stored.
#[derive(Clone, Debug, thiserror::Error)]
pub enum NotStored {
    /// A newer reign has fenced it.
    #[error("a newer owner has fenced the checkpoint")]
    Fenced,
    /// It could not be written.
    #[error("the checkpoint was not written: {0}")]
    Failed(Failure),
}

/// Where places are kept.
pub trait Checkpoints: Send + Sync + 'static {
    /// The place as it is now.
    fn load(&self, shard: TopicShard) -> BoxFuture<'_, Result<Offset, Failure>>;

    /// From now on nothing is stored under an older token; refused if a newer one was here. Answers the place then.
    fn fence(&self, shard: TopicShard, token: Token) -> BoxFuture<'_, Result<Offset, NotStored>>;

    /// Stores a place.
    fn store(&self, shard: TopicShard, token: Token, offset: Offset) -> BoxFuture<'_, Result<(), NotStored>>;
}

/// How members reach each other.
pub trait Peers: Send + Sync + 'static {
    /// Ready when `from` has seen the view `target` and released the shard; an error if it cannot.
    fn released(
        &self,
        from: Member,
        shard: TopicShard,
        target: ViewId,
    ) -> BoxFuture<'static, Result<(), Failure>>;

    /// Ready when the member is gone.
    fn gone(&self, member: Member) -> BoxFuture<'static, ()>;
}

/// Where messages come from.
pub trait Feed: Send + Sync + 'static {
    /// What a message carries.
    type Message: Send + 'static;

    /// Ready when there is a message after this place.
    fn ready(&self, shard: TopicShard, after: Offset) -> BoxFuture<'_, ()>;

    /// The message after this place, if there is one, without waiting.
    fn take(&self, shard: TopicShard, after: Offset) -> Option<Self::Message>;
}
