//! The gated receiver: takes one message after the other while its reign lasts.
//!
//! Invariants:
//! - After each wait it enters again: what it then holds was looked at after the wait (owner, gates, view), and the pass's
//!   epoch is its own reign's.
//! - The next message is taken only after the one before is done with, so that what is handled has no gaps.
//!
//! Not here: when a reign begins and ends (`consumer`).

use std::{fmt, marker::PhantomData, sync::Arc};

use crate::{
    admission::{Effect, Pass, Refusal, Request},
    gate::ResourceMap,
    sync::{AtomicBool, Mutex, Ordering},
};

use super::{
    Checkpoints, Feed, Offset, Token, TopicShard,
    consumer::{Door, Shared},
};

/// One member's ownership of one shard, from fence to release.
pub(super) struct Reign {
    pub(super) token: Token,
    handled: Mutex<Offset>,
    /// Whether there is a receiver: two would take the same messages.
    received: AtomicBool,
}

/// Why a receiver gives no more messages.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Ended {
    /// The shard is another reign's now, maybe of the same member.
    #[error("the shard was assigned anew")]
    Reassigned,
    /// This reign has a receiver.
    #[error("the shard has a receiver already")]
    Taken,
    /// It was not let in.
    #[error(transparent)]
    Refused(Refusal),
}

/// Takes the messages of one reign.
pub struct Receiver<C, F> {
    shared: Arc<Shared<C, F>>,
    door: Arc<Door>,
    shard: TopicShard,
    reign: Arc<Reign>,
}

/// A message in work. It counts as inside the shard until it is dropped.
pub struct Delivery<'a, M> {
    /// There is one at a time.
    receiver: PhantomData<&'a mut ()>,
    message: M,
    place: Offset,
    reign: Arc<Reign>,
    pass: Pass<ResourceMap<TopicShard>>,
}

impl Reign {
    pub(super) fn new(token: Token, from: Offset) -> Self {
        Self { token, handled: Mutex::new(from), received: AtomicBool::new(false) }
    }

    /// Up to where messages are done with.
    pub(super) fn handled(&self) -> Offset {
        *self.handled.lock()
    }
}

impl<C: Checkpoints, F: Feed> Receiver<C, F> {
    pub(super) async fn open(
        shared: Arc<Shared<C, F>>,
        door: Arc<Door>,
        shard: TopicShard,
    ) -> Result<Self, Ended> {
        let pass = enter(&shared, &door, shard).await?;
        let reign = door.find_reign(pass.epoch()).ok_or(Ended::Reassigned)?;
        if reign.received.swap(true, Ordering::SeqCst) {
            return Err(Ended::Taken);
        }
        Ok(Self { shared, door, shard, reign })
    }

    /// Whose messages.
    pub fn shard(&self) -> TopicShard {
        self.shard
    }

    /// The next message. While there is none it waits outside. One that was not done with comes again.
    pub async fn next(&mut self) -> Result<Delivery<'_, F::Message>, Ended> {
        loop {
            let pass = enter(&self.shared, &self.door, self.shard).await?;
            let reigning = self.door.find_reign(pass.epoch());
            if !reigning.is_some_and(|reign| Arc::ptr_eq(&reign, &self.reign)) {
                return Err(Ended::Reassigned);
            }
            let after = self.reign.handled();
            if let Some(message) = self.shared.feed.take(self.shard, after) {
                let (place, reign) = (Offset(after.0 + 1), self.reign.clone());
                return Ok(Delivery { receiver: PhantomData, message, place, reign, pass });
            }
            // A release must not wait for a topic that is quiet.
            drop(pass);
            self.shared.feed.ready(self.shard, after).await;
        }
    }
}

async fn enter<C: Checkpoints, F: Feed>(
    shared: &Shared<C, F>,
    door: &Door,
    shard: TopicShard,
) -> Result<Pass<ResourceMap<TopicShard>>, Ended> {
    let request = Request { view: shared.view(), key: shard, effect: Effect::Uses, bytes: 0 };
    door.admission.enter_when_ready(&request, &shared.seen).await.map_err(Ended::Refused)
}

impl<M> Delivery<'_, M> {
    /// What it carries.
    pub fn message(&self) -> &M {
        &self.message
    }

    /// The place after it.
    pub fn place(&self) -> Offset {
        self.place
    }

    /// It is done with: the reign's checkpoint goes beyond it.
    pub fn done(self) -> M {
        *self.reign.handled.lock() = self.place;
        // Counted out only after its place is noted: a release that waits for it checkpoints it.
        drop(self.pass);
        self.message
    }
}

impl<C, F> Drop for Receiver<C, F> {
    fn drop(&mut self) {
        self.reign.received.store(false, Ordering::SeqCst);
    }
}

impl<C, F> fmt::Debug for Receiver<C, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("shard", &self.shard).field("token", &self.reign.token).finish()
    }
}

impl<M: fmt::Debug> fmt::Debug for Delivery<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery").field("place", &self.place).field("message", &self.message).finish()
    }
}
