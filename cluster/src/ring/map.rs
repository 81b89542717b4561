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

use super::range::{POINTS, Range, clockwise};

/// The control group's shard: it lies outside the ring.
pub const CONTROL: ShardId = ShardId(0);

/// Which shard each point belongs to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Map {
    /// By end of its range, ascending; each begins after the end of the one before, the first after that of the last.
    boundaries: Vec<Boundary>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Boundary {
    end: Point,
    shard: ShardId,
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
        let boundaries =
            (1..=shards).map(|number| Boundary { end: end(number), shard: ShardId(number) }).collect();
        Ok(Self { boundaries })
    }

    /// A map of the given ranges, which must cover the ring once.
    pub fn new(ranges: impl IntoIterator<Item = (ShardId, Range)>) -> Result<Self, Fault> {
        let mut boundaries = Vec::new();
        let mut total = 0;
        for (shard, range) in ranges {
            match range {
                Range::Empty => continue,
                Range::Full => boundaries.push(Boundary { end: Point(u32::MAX), shard }),
                Range::Arc(arc) => boundaries.push(Boundary { end: arc.end(), shard }),
            }
            total += range.size();
        }
        if boundaries.is_empty() {
            return Err(Fault::NoShards);
        }
        boundaries.sort_by_key(|boundary| boundary.end);
        let map = Self { boundaries };
        let distinct = map.boundaries.windows(2).all(|pair| pair[0].end < pair[1].end);
        let covered: u64 = (0..map.boundaries.len()).map(|place| map.range_at(place).size()).sum();
        if distinct && total == POINTS && covered == POINTS { Ok(map) } else { Err(Fault::NoPartition) }
    }

    /// The shard of a point.
    pub fn shard_of(&self, point: Point) -> ShardId {
        self.boundaries[self.place_of(point)].shard
    }

    /// The place of a point's shard in the order of [`Map::shards`].
    pub fn place_of(&self, point: Point) -> usize {
        let place = self.boundaries.partition_point(|boundary| boundary.end < point);
        if place == self.boundaries.len() { 0 } else { place }
    }

    /// All shards with their ranges, in ring order.
    pub fn shards(&self) -> impl Iterator<Item = (ShardId, Range)> {
        (0..self.boundaries.len()).map(|place| (self.boundaries[place].shard, self.range_at(place)))
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
    pub fn visit(&self, range: Range, mut visit: impl FnMut(ShardId, Range)) {
        let (start, len) = match range {
            Range::Empty => return,
            Range::Full => (Point(u32::MAX), POINTS),
            Range::Arc(arc) => (arc.start(), range.size()),
        };
        // The first point of the range, not its exclusive start, says who is first.
        let first = self.place_of(Point(start.0.wrapping_add(1)));
        for step in 0..self.boundaries.len() {
            let place = (first + step) % self.boundaries.len();
            let boundary = self.boundaries[place];
            visit(boundary.shard, self.range_at(place));
            let walked = clockwise(start, boundary.end);
            if walked == 0 || walked >= len {
                return;
            }
        }
    }

    fn range_at(&self, place: usize) -> Range {
        let before = if place == 0 { self.boundaries.len() - 1 } else { place - 1 };
        Range::between(self.boundaries[before].end, self.boundaries[place].end)
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
                let shards = (1..).map(ShardId);
                let boundaries =
                    ends.into_iter().zip(shards).map(|(end, shard)| Boundary { end: Point(end), shard });
                Map { boundaries: boundaries.collect() }
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
