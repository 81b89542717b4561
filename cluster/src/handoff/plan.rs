//! What a new view changes for one member: a pure function of two views.
//!
//! Invariants:
//! - Every point that was this member's is kept, released or renewed; every point that is its own now is kept, renewed or
//!   acquired: no point is in a release and an acquisition of one plan, so that their gates never meet.
//! - Between contiguous views nobody else can have owned what stays. Between others only the epoch shows it, and between views
//!   of different authorities nothing does: their epochs are different counts.
//!
//! Not here: gates and transfers.

use std::collections::{BTreeMap, BTreeSet};

use model::id::ShardId;

use crate::{
    ring::Range,
    view::{Held, Member, RingView, Versioned},
};

use super::Partner;

/// What one view changes for one member.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    /// By the shard that had the points.
    pub releases: Vec<Release>,
    /// By the shard that has them now.
    pub acquisitions: Vec<Acquisition>,
}

/// Points that are no longer the member's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Release {
    /// The shard they were in.
    pub unit: ShardId,
    /// Which; they do not meet.
    pub pieces: Vec<Range>,
    /// Who will come for their state; nobody if the views are not contiguous.
    pub partners: BTreeSet<Partner>,
}

/// Points that are the member's from now on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Acquisition {
    /// The shard they are in.
    pub unit: ShardId,
    /// Which; they do not meet.
    pub pieces: Vec<Range>,
    /// Those of them that it had before, in another epoch: what is there of that is drained and dropped first.
    pub renewed: Vec<Range>,
    /// Who has kept their state.
    pub sources: BTreeMap<Member, Vec<Range>>,
    /// Whether nobody has kept the state of some of them.
    pub orphaned: bool,
}

/// The change from one view to the next for `me`.
pub fn plan(me: Member, old: Option<&RingView>, new: &RingView) -> Plan {
    let contiguous = old.is_some_and(|old| new.follows(old));
    let mut plan = Plan::default();
    for (unit, range) in old.into_iter().flat_map(|old| mine(me, old)) {
        let mut release = Release { unit, pieces: Vec::new(), partners: BTreeSet::new() };
        new.visit_range_owners(range, |taker, owned, held| {
            let owner = owner(held);
            if owner == Some(me) {
                return;
            }
            release.pieces.extend(range.intersections(owned));
            if let (Some(member), true) = (owner, contiguous) {
                release.partners.insert(Partner { member, unit: taker });
            }
        });
        if !release.pieces.is_empty() {
            plan.releases.push(release);
        }
    }
    for (unit, range) in mine(me, new) {
        let acquisition = acquire(me, old.map(|old| (old, contiguous)), new, unit, range);
        if !acquisition.pieces.is_empty() {
            plan.acquisitions.push(acquisition);
        }
    }
    plan
}

fn acquire(
    me: Member,
    old: Option<(&RingView, bool)>,
    new: &RingView,
    unit: ShardId,
    range: Range,
) -> Acquisition {
    let mut acquisition = Acquisition {
        unit,
        pieces: Vec::new(),
        renewed: Vec::new(),
        sources: BTreeMap::new(),
        orphaned: false,
    };
    let Some((old, contiguous)) = old else {
        acquisition.pieces.push(range);
        acquisition.orphaned = true;
        return acquisition;
    };
    let epoch = new.owners().holder(&unit).map(|held| held.epoch);
    let comparable = new.header().authority == old.header().authority;
    old.visit_range_owners(range, |giver, owned, held| {
        let pieces = || range.intersections(owned);
        match owner(held) {
            Some(owner) if owner == me => {
                let same = comparable && giver == unit && held.map(|held| held.epoch) == epoch;
                if !contiguous && !same {
                    acquisition.pieces.extend(pieces());
                    acquisition.renewed.extend(pieces());
                    acquisition.orphaned = true;
                }
            }
            Some(owner) if contiguous => {
                acquisition.pieces.extend(pieces());
                acquisition.sources.entry(owner).or_default().extend(pieces());
            }
            Some(_) | None => {
                acquisition.pieces.extend(pieces());
                acquisition.orphaned = true;
            }
        }
    });
    acquisition
}

fn mine(me: Member, view: &RingView) -> impl Iterator<Item = (ShardId, Range)> {
    view.map().shards().filter(move |(shard, _)| owner(view.owners().holder(shard)) == Some(me))
}

fn owner(held: Option<Held>) -> Option<Member> {
    held.and_then(|held| held.owner)
}
