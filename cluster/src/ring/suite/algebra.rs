//! Ranges against point sets: cases 62, 63, 70, and the divisions of 64.

use std::collections::HashMap;
use std::num::{NonZeroU32, NonZeroU64};

use proptest::prelude::*;

use super::*;

/// Masks of all ranges, found by scanning, and of pieces, found by their ends.
struct Masks {
    small: Small,
    by_ends: HashMap<(u32, u32), u64>,
}

impl Masks {
    fn new(small: Small) -> (Vec<(Range, u64)>, Self) {
        let all: Vec<_> = small.ranges().into_iter().map(|range| (range, small.scan(range))).collect();
        let by_ends = all.iter().filter_map(|(range, mask)| match range {
            Range::Arc(arc) => Some(((small.small(arc.start()), small.small(arc.end())), *mask)),
            Range::Empty | Range::Full => None,
        });
        let by_ends = by_ends.collect();
        (all, Self { small, by_ends })
    }

    fn full(&self) -> u64 {
        u64::MAX >> (64 - self.small.points())
    }

    fn of(&self, range: Range) -> u64 {
        match range {
            Range::Empty => 0,
            Range::Full => self.full(),
            Range::Arc(arc) => self.by_ends[&(self.small.small(arc.start()), self.small.small(arc.end()))],
        }
    }

    /// The union of pieces, which must be non-empty, disjoint, and not touch.
    fn union(&self, pieces: Pieces) -> u64 {
        let mut union = 0;
        let mut last = None;
        for piece in pieces {
            let mask = self.of(piece);
            assert!(mask != 0 && union & mask == 0, "empty or overlapping piece in {pieces:?}");
            if let (Some(Range::Arc(a)), Range::Arc(b)) = (last, piece) {
                assert!(a.end() != b.start() && b.end() != a.start(), "touching pieces in {pieces:?}");
            }
            last = Some(piece);
            union |= mask;
        }
        union
    }
}

fn algebra_equals_point_sets(small: Small) {
    let (all, masks) = Masks::new(small);
    assert_eq!(all.len() as u32, small.points() * (small.points() - 1) + 2);
    let block = POINTS >> small.bits;
    for &(a, points) in &all {
        assert_eq!(a.size(), u64::from(points.count_ones()) * block, "{a}");
        assert_eq!(masks.of(a.complement()), masks.full() & !points, "{a}");
        assert_eq!(a.complement().complement(), a);
        for &(b, others) in &all {
            assert_eq!(a.intersects(b), points & others != 0, "{a} {b}");
            assert_eq!(masks.union(a.intersections(b)), points & others, "{a} {b}");
            assert_eq!(masks.union(a.difference(b)), points & !others, "{a} {b}");
        }
    }
}

/// Case 62, 4 bits, with the seam at three places.
#[test]
fn case_62_algebra_equals_point_sets_on_all_pairs_of_a_four_bit_ring() {
    for turn in turns() {
        algebra_equals_point_sets(Small { bits: 4, turn });
    }
}

/// Case 62, 6 bits: 16 million pairs.
#[test]
fn case_62_algebra_equals_point_sets_on_all_pairs_of_a_six_bit_ring() {
    algebra_equals_point_sets(Small { bits: 6, turn: 1 });
}

#[test]
fn case_63_named_ranges_are_what_their_names_say() {
    let zero = Range::between(Point(0), Point(0));
    assert_eq!((zero, Range::between(Point(7), Point(7))), (Range::Full, Range::Full));
    let seam = Range::between(Point(u32::MAX), Point(0));
    assert_eq!((seam, seam.size()), (Range::point(Point(0)), 1));
    assert!(seam.contains(Point(0)) && !seam.contains(Point(u32::MAX)) && !seam.contains(Point(1)));
    let last = Range::point(Point(u32::MAX));
    assert_eq!((last.size(), last), (1, Range::between(Point(u32::MAX - 1), Point(u32::MAX))));
    assert!(last.contains(Point(u32::MAX)) && !last.contains(Point(0)));
    assert_eq!((Range::Full.size(), Range::Empty.size()), (POINTS, 0));
    let all_but_one = Range::point(Point(9)).complement();
    assert_eq!((all_but_one.size(), all_but_one.contains(Point(9))), (POINTS - 1, false));
    for range in [Range::Empty, Range::Full, seam, last, all_but_one] {
        assert_eq!(Range::decode(range.encode()), Some(range));
    }
    assert_eq!(Range::decode([2, 0, 0, 0, 7, 0, 0, 0, 7]), None, "an arc never ends where it starts");
    assert_eq!(Range::decode([1, 0, 0, 0, 1, 0, 0, 0, 1]), None, "a range has one spelling");
    assert_eq!(Range::decode([3, 0, 0, 0, 1, 0, 0, 0, 2]), None);
}

fn points() -> impl Strategy<Value = Point> {
    prop_oneof![0u32..4, (u32::MAX - 3)..=u32::MAX, (1u32 << 31) - 2..(1 << 31) + 2, any::<u32>()]
        .prop_map(Point)
}

fn ranges() -> impl Strategy<Value = Range> {
    prop_oneof![
        1 => Just(Range::Empty),
        2 => Just(Range::Full),
        8 => (points(), points()).prop_map(|(start, end)| Range::between(start, end)),
        1 => points().prop_map(Range::point),
        2 => (points(), 1u32..70).prop_map(|(start, len)| Range::between(start, Point(start.0.wrapping_add(len)))),
    ]
}

/// The parts follow each other from the range's start, differ by at most one point, and are the range.
fn check_parts(range: Range, parts: &[Range]) {
    assert_eq!(parts.iter().map(|part| part.size()).sum::<u64>(), range.size());
    let sizes = || parts.iter().map(|part| part.size());
    assert!(sizes().max().unwrap_or(0) - sizes().min().unwrap_or(0) <= 1, "{range}: {parts:?}");
    assert!(sizes().all(|size| size > 0));
    if let [only] = parts {
        assert_eq!(*only, range);
        return;
    }
    let arc = |range: &Range| match range {
        Range::Arc(arc) => *arc,
        Range::Empty | Range::Full => panic!("{range} is no part of several"),
    };
    for pair in parts.windows(2) {
        assert_eq!(arc(&pair[0]).end(), arc(&pair[1]).start());
    }
    if let (Some(first), Some(last)) = (parts.first(), parts.last()) {
        assert_eq!(Range::between(arc(first).start(), arc(last).end()), range);
    }
}

#[test]
fn case_64_equal_division_keeps_every_point() {
    let wrapped = Range::between(Point(u32::MAX - 10), Point(1 << 30));
    for count in [1, 2, 3, 17, 33] {
        for range in [Range::Full, wrapped, Range::between(Point(5), Point(1 << 31))] {
            let parts: Vec<_> = range.divide(count).collect();
            assert_eq!(parts.len() as u32, count);
            check_parts(range, &parts);
        }
    }
    assert_eq!(Range::Empty.divide(3).count(), 0);
    assert_eq!(Range::Full.divide(0).count(), 0);
    assert_eq!(Range::between(Point(u32::MAX), Point(2)).divide(17).count(), 3, "no part is empty");
}

proptest! {
    #[test]
    fn case_62_algebra_holds_for_random_points_of_the_whole_ring(
        a in ranges(), b in ranges(), point in points(),
    ) {
        let holds = |pieces: Pieces| pieces.into_iter().filter(|piece| piece.contains(point)).count();
        prop_assert_eq!(holds(a.intersections(b)), usize::from(a.contains(point) && b.contains(point)));
        prop_assert_eq!(holds(a.difference(b)), usize::from(a.contains(point) && !b.contains(point)));
        prop_assert_ne!(a.complement().contains(point), a.contains(point));
        prop_assert_eq!(Range::decode(a.encode()), Some(a));
    }

    #[test]
    fn case_70_batches_are_contiguous_balanced_exact_and_bounded(
        range in ranges(), size_max in 1u64..(1 << 33), count_max in 1u32..64,
    ) {
        let parts: Vec<_> =
            range.batches(NonZeroU64::new(size_max).unwrap(), NonZeroU32::new(count_max).unwrap()).collect();
        check_parts(range, &parts);
        prop_assert!(parts.len() as u32 <= count_max);
        let wanted = range.size().div_ceil(size_max);
        prop_assert_eq!(parts.len() as u64, wanted.min(u64::from(count_max)));
        if wanted <= u64::from(count_max) {
            prop_assert!(parts.iter().all(|part| part.size() <= size_max));
        }
    }
}
