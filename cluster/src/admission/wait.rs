//! The slow way in: waiting for a view or at a gate, and looking again from the start after every wait.
//!
//! Invariants:
//! - The deadline is looked at before each wait, and ends it. A request whose deadline has passed takes no place.
//! - Nothing is counted as inside while it waits.
//! - A refusal is given under the view that is installed at its end: if that has changed, it is looked at again.
//! - An installed view without members is not final: the authority is asked once before anybody is told that nobody owns.
//!
//! Not here: the fast way ([`Admission::try_enter`]).

use std::{
    future::pending,
    hash::Hash,
    pin::{Pin, pin},
    sync::Arc,
};

use futures::{
    FutureExt,
    future::{BoxFuture, Either, select},
};
use model::id::ViewId;

use crate::{
    gate::{Ended, Failure, Gates},
    ring::Range,
    view::{Installed, Lost, Member, RingView, Versioned, View},
};

use super::{Admission, Blocked, Pass, Refusal, Request};

/// What a view says about who owns a unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// Nobody takes part, as far as this view knows.
    Empty,
    /// This node.
    Mine,
    /// Another, or nobody.
    Other(Option<Member>),
}

/// What the slow way asks about views.
pub trait Views<K>: Send + Sync {
    /// Waits until the installed view is not below `min`.
    fn at_least(&self, min: ViewId) -> BoxFuture<'_, Result<(), Lost>>;

    /// Asks the authority, and waits until its answer is installed.
    fn refresh(&self) -> BoxFuture<'_, Result<(), Lost>>;

    /// Who owns the unit under the installed view, and which view that is.
    fn standing(&self, key: &K) -> (ViewId, Standing);
}

/// The views of a consumer, seen by one of its members.
#[derive(Debug)]
pub struct Seen<V> {
    installed: Arc<Installed<V>>,
    me: Member,
}

impl<V> Seen<V> {
    /// As this member sees them.
    pub fn by(me: Member, installed: Arc<Installed<V>>) -> Self {
        Self { installed, me }
    }
}

impl<V: Versioned + PartialEq> Seen<V> {
    fn at_least(&self, min: ViewId) -> BoxFuture<'_, Result<(), Lost>> {
        self.installed.at_least(min).boxed()
    }

    fn refresh(&self) -> BoxFuture<'_, Result<(), Lost>> {
        async {
            let newest = self.installed.provider().refresh().await?.id();
            self.installed.at_least(newest).await
        }
        .boxed()
    }

    fn standing(&self, owner: impl FnOnce(&V) -> Option<Member>) -> (ViewId, Standing) {
        let Some(view) = self.installed.find_view() else { return (ViewId(0), Standing::Empty) };
        let standing = match owner(&view) {
            _ if view.is_vacant() => Standing::Empty,
            Some(owner) if owner == self.me => Standing::Mine,
            other => Standing::Other(other),
        };
        (view.id(), standing)
    }
}

impl Views<Range> for Seen<RingView> {
    fn at_least(&self, min: ViewId) -> BoxFuture<'_, Result<(), Lost>> {
        self.at_least(min)
    }

    fn refresh(&self) -> BoxFuture<'_, Result<(), Lost>> {
        self.refresh()
    }

    /// The first owner of the range that is another, if there is one.
    fn standing(&self, key: &Range) -> (ViewId, Standing) {
        self.standing(|view| {
            let mut owner = Some(self.me);
            view.visit_range_owners(*key, |_, _, held| {
                if owner == Some(self.me) {
                    owner = held.and_then(|held| held.owner);
                }
            });
            owner
        })
    }
}

impl<R: Clone + Eq + Hash + std::fmt::Debug + Send + Sync + 'static> Views<R> for Seen<View<R>> {
    fn at_least(&self, min: ViewId) -> BoxFuture<'_, Result<(), Lost>> {
        self.at_least(min)
    }

    fn refresh(&self) -> BoxFuture<'_, Result<(), Lost>> {
        self.refresh()
    }

    fn standing(&self, key: &R) -> (ViewId, Standing) {
        self.standing(|view| view.holder(key).and_then(|held| held.owner))
    }
}

impl<G: Gates> Admission<G> {
    /// Enters, waiting as long as it takes until `expired` is ready. Without a wait it costs what [`Admission::try_enter`]
    /// costs, and `expired` is not looked at.
    pub async fn enter_by(
        self: &Arc<Self>,
        request: &Request<G::Key>,
        views: &dyn Views<G::Key>,
        expired: impl Future<Output = ()> + Send,
    ) -> Result<Pass<G>, Refusal> {
        match self.try_enter(request) {
            Ok(pass) => Ok(pass),
            Err(blocked) => self.wait(request, views, pin!(expired), blocked).await,
        }
    }

    async fn wait(
        self: &Arc<Self>,
        request: &Request<G::Key>,
        views: &dyn Views<G::Key>,
        mut expired: Pin<&mut (impl Future<Output = ()> + Send)>,
        mut blocked: Blocked,
    ) -> Result<Pass<G>, Refusal> {
        let mut parked = None;
        let mut asked = false;
        loop {
            let wait: BoxFuture<'_, Result<(), Refusal>> = match blocked {
                Blocked::Moved => {
                    blocked = match self.try_enter(request) {
                        Ok(pass) => return Ok(pass),
                        Err(blocked) => blocked,
                    };
                    continue;
                }
                Blocked::Held { retry_after } => return Err(Refusal::Held { retry_after }),
                Blocked::Behind { .. } => Box::pin(views.at_least(request.view).map(obtained)),
                Blocked::Gated(gate) => Box::pin(gate.completion().map(passed)),
                Blocked::Closed { view } => match views.standing(&request.key) {
                    // Another view than that under which it was found closed.
                    (now, _) if now != view => {
                        blocked = Blocked::Moved;
                        continue;
                    }
                    (_, Standing::Empty) if !asked => {
                        asked = true;
                        Box::pin(views.refresh().map(obtained))
                    }
                    (view, Standing::Empty) => return Err(Refusal::RefreshRequired { view, owner: None }),
                    (view, Standing::Other(owner)) => return Err(Refusal::RefreshRequired { view, owner }),
                    (view, Standing::Mine) => return Err(Refusal::NotServing { view }),
                },
            };
            // The deadline first: who is late waits for nothing, takes no place and begins nothing.
            if expired.as_mut().now_or_never().is_some() {
                return Err(Refusal::NotReady { view: self.view() });
            }
            if parked.is_none() {
                parked = Some(self.parking.park(request.bytes).ok_or(Refusal::Crowded)?);
            }
            match select(wait, expired.as_mut()).await {
                Either::Left((passed, _)) => passed?,
                Either::Right(((), _)) => return Err(Refusal::NotReady { view: self.view() }),
            }
            blocked = match self.try_enter(request) {
                Ok(pass) => return Ok(pass),
                Err(blocked) => blocked,
            };
        }
    }

    /// Enters without a deadline: for the node's own work.
    pub async fn enter_when_ready(
        self: &Arc<Self>,
        request: &Request<G::Key>,
        views: &dyn Views<G::Key>,
    ) -> Result<Pass<G>, Refusal> {
        self.enter_by(request, views, pending()).await
    }
}

fn passed(ended: Ended) -> Result<(), Refusal> {
    match ended {
        Ended::Completed | Ended::Superseded(_) => Ok(()),
        Ended::Failed(failure) => Err(Refusal::GateFailed(failure)),
        Ended::Aborted => Err(Refusal::Aborted),
    }
}

fn obtained(answer: Result<(), Lost>) -> Result<(), Refusal> {
    answer.map_err(|lost| Refusal::ViewLost(Arc::new(lost) as Failure))
}
