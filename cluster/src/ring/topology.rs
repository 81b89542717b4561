//! Topology: a ring that members divide among themselves by hashes, several partitions each.
//!
//! Invariants:
//! - A partition's index is its place among its member's hashes as the member gave them; sorting never changes it.
//! - Of equal hashes the smaller (index, member) has the boundary, whatever order they were given in; who lost owns nothing.
//! - Without members there is no owner; with one hash its partition owns the full ring; else partition `i` owns from its
//!   hash, exclusive, up to the next one, inclusive.
//!
//! Not here: rings that are cut into given ranges (`ring::map`).

use std::collections::HashMap;
use std::hash::Hash;

use model::id::Point;

use super::{boundaries::Boundaries, range::Range};

/// One of a member's partitions: the unit of transfer and of acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Seat<M> {
    /// Whose.
    pub member: M,
    /// Which: the place of its hash among the member's.
    pub index: u32,
}

/// Which partition owns each point.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Topology<M: Eq + Hash> {
    boundaries: Option<Boundaries<Seat<M>>>,
    ranges: HashMap<M, Vec<Range>>,
}

/// What became of a partition's range from one topology to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// It got these points.
    Grew(Range),
    /// It lost these points.
    Shrank(Range),
}

impl<M: Copy + Ord + Hash> Topology<M> {
    /// The ring of the given members with their hashes. A member given twice has the hashes of both.
    pub fn new<H>(members: impl IntoIterator<Item = (M, H)>) -> Self
    where
        H: IntoIterator<Item = Point>,
    {
        let mut ranges = HashMap::new();
        let mut starts = Vec::new();
        for (member, hashes) in members {
            let own: &mut Vec<Range> = ranges.entry(member).or_default();
            for hash in hashes {
                starts.push((hash, own.len() as u32, member));
                own.push(Range::Empty);
            }
        }
        starts.sort_unstable();
        starts.dedup_by_key(|(hash, ..)| *hash);
        // A boundary's piece ends where the next one starts, the last one's where the first starts.
        let ends = starts.iter().skip(1).chain(starts.first()).map(|(hash, ..)| *hash);
        let seats = starts.iter().map(|&(_, index, member)| Seat { member, index });
        let boundaries = Boundaries::by_end(ends.zip(seats));
        for (seat, range) in boundaries.iter().flat_map(Boundaries::iter) {
            if let Some(own) = ranges.get_mut(&seat.member).and_then(|own| own.get_mut(seat.index as usize)) {
                *own = range;
            }
        }
        Self { boundaries, ranges }
    }

    /// The partition that owns a point; none if there is no partition at all.
    pub fn find_owner(&self, point: Point) -> Option<(Seat<M>, Range)> {
        self.boundaries.as_ref().map(|boundaries| boundaries.get(boundaries.place_of(point)))
    }

    /// What a partition owns; empty if it lost its boundary to an equal hash, or is not there.
    pub fn range_of(&self, seat: Seat<M>) -> Range {
        self.ranges_of(seat.member).get(seat.index as usize).copied().unwrap_or(Range::Empty)
    }

    /// What a member's partitions own, by index.
    pub fn ranges_of(&self, member: M) -> &[Range] {
        self.ranges.get(&member).map_or(&[], Vec::as_slice)
    }

    /// All boundaries in ring order.
    pub fn iter(&self) -> impl Iterator<Item = (Seat<M>, Range)> {
        self.boundaries.iter().flat_map(Boundaries::iter)
    }

    /// Calls `visit` once for each partition that owns a point of `range`, with all it owns, clockwise from the range's
    /// start; O(log P + K), without allocation.
    pub fn visit_range_owners(&self, range: Range, visit: impl FnMut(Seat<M>, Range)) {
        if let Some(boundaries) = &self.boundaries {
            boundaries.visit(range, visit);
        }
    }

    /// How one member's partitions changed from `old` to this topology, by index. While hashes stay with their partitions a
    /// change is one contiguous piece, and never both a gain and a loss; other changes come as several items.
    pub fn changes<'a>(&'a self, old: &'a Self, member: M) -> impl Iterator<Item = (u32, Change)> + 'a {
        let (before, after) = (old.ranges_of(member), self.ranges_of(member));
        let at = |ranges: &[Range], index: usize| ranges.get(index).copied().unwrap_or(Range::Empty);
        (0..before.len().max(after.len())).flat_map(move |index| {
            let (was, is) = (at(before, index), at(after, index));
            let lost = was.difference(is).into_iter().map(Change::Shrank);
            let got = is.difference(was).into_iter().map(Change::Grew);
            lost.chain(got).map(move |change| (index as u32, change))
        })
    }
}
