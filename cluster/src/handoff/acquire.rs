//! The acquire driver: how a node gets the state of points that are its own from now on.
//!
//! Invariants:
//! - A question to a source ends when the source is gone, not when the question times out.
//! - Nothing is installed while an older transition of the same points is unfinished.
//! - A source is acknowledged once, after all its pieces are installed. If one source fails, all that was added is recovered,
//!   and the sources that were not acknowledged are told that nobody will come.
//! - The points are opened by the fence, after everything is installed.
//! - One that gives way to a newer view leaves the points vacant: the next release of them keeps nothing, so that nobody takes
//!   an empty part for the state.
//!
//! Not here: merging what members know (`recovery`).

use std::{
    num::{NonZeroU32, NonZeroU64},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use futures::future::{BoxFuture, Either, join_all, select};
use model::id::ViewId;
use tracing::{info, warn};

use crate::{
    gate::{self, Failure},
    ring::{POINTS, Range},
    view::{Member, Published, RingView, Versioned},
};

use super::{Departure, Partner, Pull, Service, Transport, coordinator::Shared, plan, release::failure};

/// A question is about at most a twentieth of the ring, and a piece takes at most 32 questions.
const PULL_POINTS_MAX: NonZeroU64 = NonZeroU64::new(POINTS / 20).expect("a twentieth of the ring has points");
const PULLS_MAX: NonZeroU32 = NonZeroU32::new(32).expect("32 is not 0");

/// An acquisition of points of the ring; only this driver has it.
pub(super) struct RangeAcquisition(pub(super) gate::Acquisition);

/// Why a source gave nothing.
#[derive(Debug, thiserror::Error)]
enum Lacking {
    #[error("it has kept nothing")]
    NothingKept,
    #[error("it is gone")]
    Gone(Departure),
    #[error("{0}")]
    Failed(Failure),
}

struct Acquiring<S: Service, T> {
    shared: Arc<Shared<S, T>>,
    plan: plan::Acquisition,
    view: Published<RingView>,
    /// The view that was installed before.
    before: ViewId,
    /// Whether anything was changed here: from then on there is no way back.
    begun: AtomicBool,
}

pub(super) async fn drive<S: Service, T: Transport<S::State>>(
    shared: Arc<Shared<S, T>>,
    gate: RangeAcquisition,
    plan: plan::Acquisition,
    view: Published<RingView>,
    before: ViewId,
) {
    let RangeAcquisition(gate) = gate;
    let acquiring = Acquiring { shared: shared.clone(), plan, view, before, begun: AtomicBool::new(false) };
    let work = async {
        let install = acquiring.install();
        if !S::SUPERSEDABLE {
            return acquiring.open(&gate, install.await?).await;
        }
        futures::pin_mut!(install);
        let taken = acquiring.taken_away();
        futures::pin_mut!(taken);
        let done = match select(install, taken).await {
            Either::Left((done, _)) => done?,
            Either::Right((by, _)) if !acquiring.begun.load(Ordering::SeqCst) => {
                acquiring.renounce();
                // Before the gate ends: the release that waits for it must know that there is nothing to keep.
                acquiring.shared.leave_vacant(&acquiring.plan.pieces);
                return gate.supersede(by).map_err(failure);
            }
            Either::Right((_, install)) => install.await?,
        };
        acquiring.open(&gate, done).await
    };
    shared.finish(&gate, work).await;
}

/// The state is here.
struct Complete;

impl<S: Service, T: Transport<S::State>> Acquiring<S, T> {
    async fn install(&self) -> Result<Complete, Failure> {
        for piece in &self.plan.renewed {
            self.shared.passed(*piece, self.before).await?;
            self.shared.service.drain(*piece).await;
            self.begun.store(true, Ordering::SeqCst);
            self.shared.service.discard(*piece)?;
        }
        let transfers = self.plan.sources.iter().map(|(source, pieces)| self.transfer(*source, pieces));
        let mut whole = !self.plan.orphaned;
        for (source, answer) in self.plan.sources.keys().zip(join_all(transfers).await) {
            match answer? {
                Ok(()) => {}
                Err(lacking) => {
                    info!(%source, unit = %self.plan.unit, %lacking, "state is recovered instead of handed over");
                    whole = false;
                    if let Lacking::Gone(Departure::Declared) = lacking {
                        self.plan.pieces.iter().for_each(|piece| self.shared.service.hold(*piece));
                    }
                    let renounced = self.shared.transport.renounce(*source, self.partner(), self.before);
                    self.tell(*source, renounced);
                }
            }
        }
        if !whole {
            self.recover().await?;
        }
        Ok(Complete)
    }

    /// One source's pieces, in bounded questions, and its acknowledgement. The outer error is this node's own.
    async fn transfer(&self, source: Member, pieces: &[Range]) -> Result<Result<(), Lacking>, Failure> {
        let questions = pieces.iter().flat_map(|piece| piece.batches(PULL_POINTS_MAX, PULLS_MAX));
        for range in questions {
            let pull = Pull { by: self.partner(), range, version: self.before, target: self.view.id() };
            let asked = self.shared.transport.pull(source, pull);
            let parts = match select(self.shared.transport.gone(source), asked).await {
                Either::Left((departure, _)) => return Ok(Err(Lacking::Gone(departure))),
                Either::Right((Err(failure), _)) => return Ok(Err(Lacking::Failed(failure))),
                Either::Right((Ok(None), _)) => return Ok(Err(Lacking::NothingKept)),
                Either::Right((Ok(Some(parts)), _)) => parts,
            };
            self.shared.passed(range, self.before).await?;
            self.begun.store(true, Ordering::SeqCst);
            for part in parts {
                self.shared.service.install(part)?;
            }
        }
        let acknowledged = self.shared.transport.acknowledge(source, self.partner(), self.before);
        self.tell(source, acknowledged);
        Ok(Ok(()))
    }

    /// All that was added, from all members that are not gone; also if nobody of them is left.
    async fn recover(&self) -> Result<(), Failure> {
        for piece in &self.plan.pieces {
            self.shared.passed(*piece, self.before).await?;
            let target = self.view.id();
            let others = self.view.owners().members().iter().filter(|member| **member != self.shared.me);
            let answers = others.map(async |member| {
                let asked = self.shared.transport.collect(*member, *piece, target);
                match select(self.shared.transport.gone(*member), asked).await {
                    Either::Left(_) => Ok(None),
                    Either::Right((Ok(state), _)) => Ok(Some((*member, state))),
                    Either::Right((Err(failure), _)) => Err(failure),
                }
            });
            let mut known = vec![(self.shared.me, self.shared.service.collect(*piece, target))];
            for answer in join_all(answers).await {
                known.extend(answer?);
            }
            self.begun.store(true, Ordering::SeqCst);
            self.shared.service.recover(*piece, known)?;
        }
        Ok(())
    }

    async fn open(&self, gate: &gate::Acquisition, Complete: Complete) -> Result<(), Failure> {
        gate.state_installed().map_err(failure)?;
        for piece in &self.plan.pieces {
            self.shared.service.fence(*piece, self.view.id()).await?;
        }
        gate.fenced().map_err(failure)
    }

    /// Ready with the first newer view in which all of it is another's.
    async fn taken_away(&self) -> ViewId {
        let mut installed = self.shared.installed.subscribe();
        loop {
            let newer = installed.borrow_and_update().clone().filter(|view| view.id() > self.view.id());
            if let Some(newer) = newer {
                let mut still_mine = false;
                for piece in &self.plan.pieces {
                    newer.visit_range_owners(*piece, |_, _, held| {
                        still_mine |= held.and_then(|held| held.owner) == Some(self.shared.me);
                    });
                }
                if !still_mine {
                    return newer.id();
                }
            }
            if installed.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    fn renounce(&self) {
        for source in self.plan.sources.keys() {
            let renounced = self.shared.transport.renounce(*source, self.partner(), self.before);
            self.tell(*source, renounced);
        }
    }

    /// Tells a source something beside the work: a slow answer holds nobody up. It ends with the source; if it is lost, what
    /// the source keeps goes with this partner's life.
    fn tell(&self, source: Member, told: BoxFuture<'static, Result<(), Failure>>) {
        let gone = self.shared.transport.gone(source);
        self.shared.beside(async move {
            if let Either::Right((Err(failure), _)) = select(gone, told).await {
                warn!(%source, %failure, "a source was not told that its state is no longer needed");
            }
        });
    }

    fn partner(&self) -> Partner {
        Partner { member: self.shared.me, unit: self.plan.unit }
    }
}
