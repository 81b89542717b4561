//! The shard map: which shard a point belongs to, and which shards a range meets.
//!
//! Invariants:
//! - Every point has exactly one shard; the ranges of all shards are 2^32 points.
//! - Looking up a point is one binary search; visiting the shards of a range allocates nothing, names each shard once, and
//!   takes O(log P + K) for K shards met.
//!
//! Not here: which node owns a shard (today this one owns all).

use std::fmt;

use model::id::{Point, ShardId};

use super::{
    boundaries::Boundaries,
    range::{POINTS, Range},
};

/// The control group's shard: it lies outside the ring.
pub const CONTROL: ShardId = ShardId(0);

/// Which shard each point belongs to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Map {
    boundaries: Boundaries<ShardId>,
}

/// Why ranges are no shard map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// There are no shards.
    NoShards,
    /// More shards than the ring has points, or than a node carries.
    TooMany(u32),
    /// A point belongs to no shard, or to two.
    NoPartition,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoShards => f.write_str("a ring needs at least one shard"),
            Self::TooMany(shards) => write!(f, "{shards} shards are more than {SHARDS_MAX}"),
            Self::NoPartition => f.write_str("the ranges of the shards leave a gap or overlap"),
        }
    }
}

impl std::error::Error for Fault {}

/// How many shards a ring has at most.
pub const SHARDS_MAX: u32 = 1 << 16;

impl Map {
    /// Divides the ring evenly among the shards 1 to `shards`.
    pub fn divide(shards: u32) -> Result<Self, Fault> {
        match shards {
            0 => return Err(Fault::NoShards),
            1..=SHARDS_MAX => {}
            _ => return Err(Fault::TooMany(shards)),
        }
        let end = |number: u32| Point((POINTS * u64::from(number) / u64::from(shards) - 1) as u32);
        let boundaries = (1..=shards).map(|number| (end(number), ShardId(number)));
        Boundaries::by_end(boundaries).map(|boundaries| Self { boundaries }).ok_or(Fault::NoPartition)
    }

    /// A map of the given ranges, which must cover the ring once.
    pub fn new(ranges: impl IntoIterator<Item = (ShardId, Range)>) -> Result<Self, Fault> {
        let mut ends = Vec::new();
        let mut total = 0;
        for (shard, range) in ranges {
            match range {
                Range::Empty => continue,
                Range::Full => ends.push((Point(u32::MAX), shard)),
                Range::Arc(arc) => ends.push((arc.end(), shard)),
            }
            total += range.size();
        }
        if ends.is_empty() {
            return Err(Fault::NoShards);
        }
        let boundaries = Boundaries::by_end(ends).ok_or(Fault::NoPartition)?;
        if total == POINTS { Ok(Self { boundaries }) } else { Err(Fault::NoPartition) }
    }

    /// The shard of a point.
    pub fn shard_of(&self, point: Point) -> ShardId {
        self.boundaries.get(self.place_of(point)).0
    }

    /// The place of a point's shard in the order of [`Map::shards`].
    pub fn place_of(&self, point: Point) -> usize {
        self.boundaries.place_of(point)
    }

    /// All shards with their ranges, in ring order.
    pub fn shards(&self) -> impl Iterator<Item = (ShardId, Range)> {
        self.boundaries.iter()
    }

    /// How many shards there are.
    pub fn len(&self) -> usize {
        self.boundaries.len()
    }

    /// Never: a map has at least one shard.
    pub fn is_empty(&self) -> bool {
        self.boundaries.is_empty()
    }

    /// Calls `visit` once for each shard that has a point of `range`, with the shard's whole range, clockwise from the
    /// range's start.
    pub fn visit(&self, range: Range, visit: impl FnMut(ShardId, Range)) {
        self.boundaries.visit(range, visit);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn eight_shards_divide_the_ring_evenly() {
        let map = Map::divide(8).unwrap();
        assert!(map.shards().all(|(_, range)| range.size() == POINTS / 8));
        assert_eq!(map.shard_of(Point(0)), ShardId(1));
        assert_eq!(map.shard_of(Point(u32::MAX)), ShardId(8));
        assert_eq!(map.shard_of(Point(1 << 29)), ShardId(2));
    }

    #[test]
    fn a_ring_without_shards_or_with_gaps_is_refused() {
        assert_eq!(Map::divide(0), Err(Fault::NoShards));
        assert_eq!(Map::divide(SHARDS_MAX + 1), Err(Fault::TooMany(SHARDS_MAX + 1)));
        let gap = [
            (ShardId(1), Range::between(Point(0), Point(5))),
            (ShardId(2), Range::between(Point(6), Point(0))),
        ];
        assert_eq!(Map::new(gap), Err(Fault::NoPartition));
        let twice = [(ShardId(1), Range::Full), (ShardId(2), Range::Full)];
        assert_eq!(Map::new(twice), Err(Fault::NoPartition));
    }

    #[test]
    fn a_query_that_ends_in_its_first_shard_still_meets_all_between() {
        let at = |start, end| Range::between(Point(start), Point(end));
        let map = Map::new([(ShardId(1), at(0, 100)), (ShardId(2), at(100, 200)), (ShardId(3), at(200, 0))])
            .unwrap();
        let mut seen = Vec::new();
        map.visit(at(50, 25), |shard, _| seen.push(shard.0));
        assert_eq!(seen, [1, 2, 3]);
    }

    fn maps() -> impl Strategy<Value = Map> {
        prop::collection::btree_set(prop_oneof![0u32..6, (u32::MAX - 5)..=u32::MAX, any::<u32>()], 1..9)
            .prop_map(|ends| {
                let boundaries = ends.into_iter().map(Point).zip((1..).map(ShardId));
                Map { boundaries: Boundaries::by_end(boundaries).unwrap() }
            })
    }

    proptest! {
        #[test]
        fn every_point_has_one_shard(map in maps(), point in any::<u32>()) {
            let owners: Vec<_> = map.shards().filter(|(_, range)| range.contains(Point(point))).collect();
            prop_assert_eq!(owners.len(), 1);
            prop_assert_eq!(owners[0].0, map.shard_of(Point(point)));
            prop_assert_eq!(map.shards().map(|(_, range)| range.size()).sum::<u64>(), POINTS);
            // A shard that has the whole ring has no boundary to remember.
            if map.len() > 1 {
                prop_assert_eq!(Map::new(map.shards()), Ok(map.clone()));
            }
        }

        #[test]
        fn a_visit_meets_exactly_the_shards_of_the_range(
            map in maps(),
            start in prop_oneof![0u32..8, any::<u32>()],
            end in prop_oneof![0u32..8, any::<u32>()],
        ) {
            let range = Range::between(Point(start), Point(end));
            let mut seen = Vec::new();
            map.visit(range, |shard, _| seen.push(shard));
            let expected: BTreeSet<_> =
                map.shards().filter(|(_, owned)| owned.intersects(range)).map(|(shard, _)| shard).collect();
            prop_assert_eq!(seen.len(), expected.len());
            prop_assert_eq!(seen.into_iter().collect::<BTreeSet<_>>(), expected);
        }
    }
}
