//! Ranges of the 32-bit hash ring: exclusive start, inclusive end.
//!
//! Invariants:
//! - Empty and full are cases of their own; an arc never starts where it ends.
//! - Sizes are exact: the full ring has 2^32 points, one more than fits a `u32`.
//! - Intersections and differences are at most two pieces, none of them empty, and no two of them touch.
//!
//! Not here: who owns a range (`ring::map`).

use std::{
    fmt,
    num::{NonZeroU32, NonZeroU64},
};

use model::id::Point;

/// How many points the ring has.
pub const POINTS: u64 = 1 << 32;

/// How many bytes a range takes.
pub const RANGE_BYTES: usize = 9;

/// A contiguous part of the ring.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Range {
    /// No point.
    Empty,
    /// Every point.
    Full,
    /// The points after `start` up to and with `end`, clockwise.
    Arc(Arc),
}

/// The points after `start` up to and with `end`; the two differ.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Arc {
    start: Point,
    end: Point,
}

impl Arc {
    /// Exclusive.
    pub fn start(self) -> Point {
        self.start
    }

    /// Inclusive.
    pub fn end(self) -> Point {
        self.end
    }

    fn len(self) -> u64 {
        clockwise(self.start, self.end)
    }
}

impl Range {
    /// The points after `start` up to and with `end`; the whole ring if they are one point, because a walk that ends
    /// where it began has seen everything.
    pub fn between(start: Point, end: Point) -> Self {
        if start == end { Self::Full } else { Self::Arc(Arc { start, end }) }
    }

    /// One point.
    pub fn point(point: Point) -> Self {
        Self::Arc(Arc { start: Point(point.0.wrapping_sub(1)), end: point })
    }

    /// Whether a point lies in it.
    pub fn contains(self, point: Point) -> bool {
        match self {
            Self::Empty => false,
            Self::Full => true,
            Self::Arc(Arc { start, end }) if start < end => start < point && point <= end,
            Self::Arc(Arc { start, end }) => start < point || point <= end,
        }
    }

    /// How many points it has.
    pub fn size(self) -> u64 {
        match self {
            Self::Empty => 0,
            Self::Full => POINTS,
            Self::Arc(arc) => arc.len(),
        }
    }

    /// Whether the two have a point in common.
    pub fn intersects(self, other: Self) -> bool {
        match (self, other) {
            (Self::Empty, _) | (_, Self::Empty) => false,
            (Self::Full, _) | (_, Self::Full) => true,
            (Self::Arc(a), Self::Arc(b)) => self.contains(b.end) || other.contains(a.end),
        }
    }

    /// The points both have.
    pub fn intersections(self, other: Self) -> Pieces {
        match (self, other) {
            (Self::Empty, _) | (_, Self::Empty) => Pieces::default(),
            (Self::Full, range) | (range, Self::Full) => Pieces([Some(range), None]),
            (Self::Arc(a), Self::Arc(b)) => intersect(a, b),
        }
    }

    /// The points it does not have.
    #[must_use]
    pub fn complement(self) -> Self {
        match self {
            Self::Empty => Self::Full,
            Self::Full => Self::Empty,
            Self::Arc(Arc { start, end }) => Self::Arc(Arc { start: end, end: start }),
        }
    }

    /// The points of this one that `other` does not have.
    pub fn difference(self, other: Self) -> Pieces {
        self.intersections(other.complement())
    }

    /// The range in `count` parts that follow each other clockwise, cover it exactly and differ by at most one point in
    /// size; fewer if it has fewer points, none if it is empty. The full ring is cut from point 0 on.
    pub fn divide(self, count: u32) -> impl Iterator<Item = Self> {
        let start = match self {
            Self::Empty | Self::Full => Point(u32::MAX),
            Self::Arc(arc) => arc.start,
        };
        let size = self.size();
        let count = u64::from(count).min(size);
        // Products stay below 2^64: both factors are at most 2^32 and the count is below it.
        let at = move |number: u64| Point(start.0.wrapping_add((size * number / count) as u32));
        (0..count)
            .map(move |number| if count == 1 { self } else { Self::between(at(number), at(number + 1)) })
    }

    /// The range in parts of at most `size_max` points, or as many as `count_max` allows, as even as [`Range::divide`]
    /// makes them: what one question to a peer is about.
    pub fn batches(self, size_max: NonZeroU64, count_max: NonZeroU32) -> impl Iterator<Item = Self> {
        let wanted = self.size().div_ceil(size_max.get()).min(u64::from(count_max.get()));
        self.divide(wanted as u32)
    }

    /// Nine bytes that [`Range::decode`] reads again: the case, then exclusive start and inclusive end.
    pub fn encode(self) -> [u8; RANGE_BYTES] {
        let (case, start, end) = match self {
            Self::Empty => (0, Point(0), Point(0)),
            Self::Full => (1, Point(0), Point(0)),
            Self::Arc(Arc { start, end }) => (2, start, end),
        };
        let mut bytes = [0; RANGE_BYTES];
        bytes[0] = case;
        bytes[1..5].copy_from_slice(&start.0.to_be_bytes());
        bytes[5..].copy_from_slice(&end.0.to_be_bytes());
        bytes
    }

    /// The range of these bytes; none if they are no range's.
    pub fn decode(bytes: [u8; RANGE_BYTES]) -> Option<Self> {
        let [case, a, b, c, d, e, f, g, h] = bytes;
        let (start, end) = (Point(u32::from_be_bytes([a, b, c, d])), Point(u32::from_be_bytes([e, f, g, h])));
        match case {
            0 if start.0 == 0 && end.0 == 0 => Some(Self::Empty),
            1 if start.0 == 0 && end.0 == 0 => Some(Self::Full),
            2 if start != end => Some(Self::Arc(Arc { start, end })),
            _ => None,
        }
    }

    /// The same points as at most two inclusive spans of numbers, in order: what a key range is made of.
    pub fn spans(self) -> impl Iterator<Item = (Point, Point)> {
        let (low, high) = match self {
            Self::Empty => (None, None),
            Self::Full => (Some((Point(0), Point(u32::MAX))), None),
            Self::Arc(Arc { start, end }) if start < end => (Some((Point(start.0 + 1), end)), None),
            Self::Arc(Arc { start, end }) => {
                let high = start.0.checked_add(1).map(|first| (Point(first), Point(u32::MAX)));
                (Some((Point(0), end)), high)
            }
        };
        low.into_iter().chain(high)
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("empty"),
            Self::Full => f.write_str("full"),
            Self::Arc(Arc { start, end }) => write!(f, "({start}, {end}]"),
        }
    }
}

/// At most two ranges that do not touch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pieces([Option<Range>; 2]);

impl IntoIterator for Pieces {
    type Item = Range;
    type IntoIter = std::iter::Flatten<std::array::IntoIter<Option<Range>, 2>>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter().flatten()
    }
}

/// How far it is from one point clockwise to another; 0 if they are the same.
pub(super) fn clockwise(from: Point, to: Point) -> u64 {
    u64::from(to.0.wrapping_sub(from.0))
}

/// Turns the ring so that `a` starts at 0 and unrolls it: `a` is then `(0, a_len]`, `b` begins inside the first turn and
/// may run into the second, where it can meet `a` once more.
fn intersect(a: Arc, b: Arc) -> Pieces {
    let (a_len, b_len) = (a.len(), b.len());
    let b_start = clockwise(a.start, b.start);
    let b_end = b_start + b_len;
    let piece = |from: u64, to: u64| {
        let at = |offset: u64| Point(a.start.0.wrapping_add(offset as u32));
        (from < to).then(|| Range::Arc(Arc { start: at(from), end: at(to) }))
    };
    let first = piece(b_start, a_len.min(b_end));
    let second = piece(POINTS, (POINTS + a_len).min(b_end));
    Pieces([first, second])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Points that are near each other and near the seam are where mistakes live.
    fn points() -> impl Strategy<Value = Point> {
        prop_oneof![0u32..4, (u32::MAX - 3)..=u32::MAX, (1u32 << 31) - 2..(1 << 31) + 2, any::<u32>()]
            .prop_map(Point)
    }

    fn ranges() -> impl Strategy<Value = Range> {
        prop_oneof![
            1 => Just(Range::Empty),
            1 => Just(Range::Full),
            8 => (points(), points()).prop_map(|(start, end)| Range::between(start, end)),
            1 => points().prop_map(Range::point),
        ]
    }

    fn total(pieces: Pieces) -> u64 {
        pieces.into_iter().map(Range::size).sum()
    }

    fn holds(pieces: Pieces, point: Point) -> bool {
        pieces.into_iter().filter(|piece| piece.contains(point)).count() == 1
    }

    proptest! {
        #[test]
        fn a_range_and_its_complement_share_the_ring(range in ranges(), point in points()) {
            prop_assert_eq!(range.size() + range.complement().size(), POINTS);
            prop_assert_ne!(range.contains(point), range.complement().contains(point));
            prop_assert_eq!(range.complement().complement(), range);
        }

        #[test]
        fn intersections_hold_what_both_hold_and_nothing_twice(a in ranges(), b in ranges(), point in points()) {
            let pieces = a.intersections(b);
            prop_assert_eq!(holds(pieces, point), a.contains(point) && b.contains(point));
            prop_assert_eq!(a.intersects(b), total(pieces) > 0);
            prop_assert!(pieces.into_iter().all(|piece| piece != Range::Empty));
            prop_assert_eq!(total(pieces), total(b.intersections(a)));
            prop_assert_eq!(total(pieces) + total(a.difference(b)), a.size());
        }

        #[test]
        fn differences_hold_what_only_the_first_holds(a in ranges(), b in ranges(), point in points()) {
            prop_assert_eq!(holds(a.difference(b), point), a.contains(point) && !b.contains(point));
        }

        #[test]
        fn spans_are_the_same_points(range in ranges(), point in points()) {
            let inside = range.spans().filter(|(first, last)| *first <= point && point <= *last).count();
            prop_assert_eq!(inside == 1, range.contains(point));
            let size: u64 = range.spans().map(|(first, last)| u64::from(last.0 - first.0) + 1).sum();
            prop_assert_eq!(size, range.size());
        }
    }

    #[test]
    fn a_point_is_a_range_of_one_even_at_the_seam() {
        for point in [Point(0), Point(1), Point(u32::MAX)] {
            let range = Range::point(point);
            assert_eq!(range.size(), 1);
            assert!(range.contains(point));
            assert!(!range.contains(Point(point.0.wrapping_add(1))));
        }
    }

    #[test]
    fn two_wrapped_ranges_can_meet_twice() {
        let a = Range::between(Point(10), Point(5));
        let b = Range::between(Point(3), Point(12));
        let pieces: Vec<_> = a.intersections(b).into_iter().collect();
        assert_eq!(pieces, [Range::between(Point(3), Point(5)), Range::between(Point(10), Point(12))]);
    }
}
