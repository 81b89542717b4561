//! Expiry: receipts and feed records whose time has come, one bounded page per tick.
//!
//! Invariants:
//! - What is due is found in the persisted due region.
//! - No scan starts where records were removed already: a floor per kind says up to when everything was done. New records
//!   are due later than the moment they are made, so none comes below it.
//! - A page that failed, or was proposed twice, is still due, or done already: `apply` looks at each record again.

use std::sync::atomic::Ordering;

use storage::{
    codec::entry::Body,
    keyspace::{Due, due},
    log::Use,
    shard::EntryOutcome,
};

use super::Owner;
use crate::Result;

/// Records in one page.
const PAGE_MAX: usize = 1_000;

/// What is swept.
pub(super) const KINDS: [u8; 3] = [due::RECEIPT, due::FEED, due::PART];

impl Owner {
    /// Proposes one page of each kind of due work; answers how many records were done.
    pub(crate) async fn sweep(&self) -> Result<u32> {
        self.points.expire(self.timer.now());
        if !self.consensus.is_sole_voter_leader() || self.epoch.load(Ordering::Acquire) == 0 {
            return Ok(0);
        }
        let now = self.clock.now().elapsed;
        let mut done = 0;
        for (kind, floor) in KINDS.into_iter().zip(&self.floors) {
            let page = self.state().snapshot().due(kind, floor.load(Ordering::Relaxed), now, PAGE_MAX)?;
            let last = page.last().filter(|_| page.len() == PAGE_MAX).and_then(|key| Due::parse(key));
            let scanned_upto = last.map_or(now, |last| last.time);
            if !page.is_empty()
                && let EntryOutcome::Expired(count) =
                    self.propose(Body::Expire { due: page, feed: self.feed }, Use::Reserve).await?
            {
                done += count;
            }
            floor.store(scanned_upto, Ordering::Relaxed);
        }
        Ok(done)
    }
}
