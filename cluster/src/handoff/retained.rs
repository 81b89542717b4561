//! State that was released and waits for who will take it.
//!
//! Invariants:
//! - It is kept under the view before the release, with those who will come. It goes when each of them has acknowledged,
//!   renounced or died, or when the views lose their continuity; nothing else keeps it, so that a shutdown ends.
//! - One acknowledgement counts for all that is kept for that partner under that view.
//! - A question is answered only if all the points it asks for are kept.
//!
//! Not here: taking the state out (`handoff::release`).

use std::{collections::BTreeSet, fmt};

use model::id::ViewId;
use tokio::sync::watch;

use crate::{ring::Range, sync::Mutex, view::Member};

use super::Partner;

/// What a node keeps for others.
pub struct Retained<S> {
    kept: Mutex<Vec<Kept<S>>>,
    /// How many; for who waits until there is nothing.
    count: watch::Sender<usize>,
}

struct Kept<S> {
    version: ViewId,
    parts: Vec<(Range, S)>,
    partners: BTreeSet<Partner>,
}

impl<S> Default for Retained<S> {
    fn default() -> Self {
        Self { kept: Mutex::new(Vec::new()), count: watch::Sender::new(0) }
    }
}

impl<S> Retained<S> {
    /// Keeps the state of these points, as released after `version`.
    pub(super) fn keep(&self, version: ViewId, parts: Vec<(Range, S)>, partners: BTreeSet<Partner>) {
        if partners.is_empty() {
            return;
        }
        let mut kept = self.kept.lock();
        kept.push(Kept { version, parts, partners });
        self.count.send_replace(kept.len());
    }

    /// The kept state of these points, part by part; none unless all of it is there.
    pub(super) fn find(
        &self,
        version: ViewId,
        by: Partner,
        range: Range,
        part: impl Fn(&S, Range) -> S,
    ) -> Option<Vec<S>> {
        let kept = self.kept.lock();
        let mine = kept.iter().filter(|kept| kept.version == version && kept.partners.contains(&by));
        let (mut found, mut points) = (Vec::new(), 0);
        for (owned, state) in mine.flat_map(|kept| &kept.parts) {
            for piece in owned.intersections(range) {
                points += piece.size();
                found.push(part(state, piece));
            }
        }
        (points == range.size()).then_some(found)
    }

    /// This partner has all that was kept for it under this view.
    pub fn acknowledged(&self, by: Partner, version: ViewId) {
        self.forget(|kept, partner| *partner == by && kept == version);
    }

    /// This partner comes for nothing that was kept up to this view.
    pub fn renounced(&self, by: Partner, version: ViewId) {
        self.forget(|kept, partner| *partner == by && kept <= version);
    }

    /// This member comes for nothing any more.
    pub fn gone(&self, member: Member) {
        self.forget(|_, partner| partner.member == member);
    }

    /// The views have lost their continuity: nobody will come.
    pub fn broken(&self) {
        self.forget(|_, _| true);
    }

    /// How many releases wait to be fetched.
    pub fn len(&self) -> usize {
        self.kept.lock().len()
    }

    /// Whether nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Waits until nothing is kept.
    pub async fn emptied(&self) {
        // It never closes: the sender is ours.
        let _ = self.count.subscribe().wait_for(|count| *count == 0).await;
    }

    fn forget(&self, gone: impl Fn(ViewId, &Partner) -> bool) {
        let mut kept = self.kept.lock();
        for entry in kept.iter_mut() {
            let version = entry.version;
            entry.partners.retain(|partner| !gone(version, partner));
        }
        // The state is dropped outside the lock: it may be large.
        let done: Vec<_> = kept.extract_if(.., |entry| entry.partners.is_empty()).collect();
        self.count.send_replace(kept.len());
        drop(kept);
        drop(done);
    }
}

impl<S> fmt::Debug for Retained<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kept = self.kept.lock();
        f.debug_list().entries(kept.iter().map(|kept| (kept.version, &kept.partners))).finish()
    }
}
