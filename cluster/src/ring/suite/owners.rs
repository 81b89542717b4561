//! Owners of ranges against full scans: cases 64–69 and 72.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::super::boundaries::{Rules, Sound, walk};
use super::*;

/// All sets of at most five boundaries of a four-bit ring: with 242 queries each, 1,666,170 cases.
fn boundary_sets() -> impl Iterator<Item = Vec<u32>> {
    (0u32..1 << 16)
        .filter(|set| set.count_ones() <= 5)
        .map(|set| (0..16).filter(|small| set >> small & 1 == 1).collect())
}

/// How many cases a walk gets wrong, and how many there are.
fn wrong_cases<R: Rules>(small: Small) -> (usize, usize) {
    let queries: Vec<_> = small.ranges().into_iter().map(|range| (range, small.scan(range))).collect();
    let (mut wrong, mut cases) = (0, 0);
    for set in boundary_sets() {
        let ends: Vec<_> = set.iter().map(|end| small.at(*end)).collect();
        let mut sorted = ends.clone();
        sorted.sort_unstable();
        let pieces: Vec<_> = (0..sorted.len())
            .map(|place| {
                small.scan(Range::between(sorted[(place + sorted.len() - 1) % sorted.len()], sorted[place]))
            })
            .collect();
        for &(query, mask) in &queries {
            // Each place is one bit; a place met twice shows in the count.
            let (mut met, mut visits) = (0u32, 0);
            walk::<R>(
                sorted.len(),
                |place| sorted[place],
                query,
                |place| {
                    met |= 1 << place;
                    visits += 1;
                },
            );
            let expected = (0..pieces.len())
                .filter(|place| pieces[*place] & mask != 0)
                .fold(0u32, |all, place| all | 1 << place);
            cases += 1;
            wrong += usize::from(met != expected || visits != expected.count_ones());
        }
    }
    (wrong, cases)
}

#[test]
fn case_65_a_visit_equals_a_full_scan_in_all_small_cases() {
    assert_eq!(wrong_cases::<Sound>(Small { bits: 4, turn: 0 }), (0, 1_666_170));
    assert_eq!(wrong_cases::<Sound>(Small { bits: 4, turn: 1 }), (0, 1_666_170));
}

/// Looks for the owner of the exclusive start.
struct SearchesStart;

impl Rules for SearchesStart {
    fn first(start: Point) -> Point {
        start
    }

    fn is_last(range: Range, start: Point, end: Point, before: impl FnOnce() -> Point) -> bool {
        Sound::is_last(range, start, end, before)
    }
}

/// Stops at the first owner that has the range's last point.
struct StopsAtOwnerOfEnd;

impl Rules for StopsAtOwnerOfEnd {
    fn first(start: Point) -> Point {
        Sound::first(start)
    }

    fn is_last(range: Range, start: Point, end: Point, before: impl FnOnce() -> Point) -> bool {
        match range {
            Range::Arc(arc) => Range::between(before(), end).contains(arc.end()),
            Range::Empty | Range::Full => Sound::is_last(range, start, end, before),
        }
    }
}

#[test]
fn case_68_both_mutants_of_the_walk_are_killed() {
    let small = Small { bits: 4, turn: 0 };
    let (wrong, cases) = wrong_cases::<SearchesStart>(small);
    assert!(wrong * 100 > cases * 10, "searching the start is wrong in {wrong} of {cases} cases only");
    // Exactly the queries that end in the owner they began in and meet others between.
    assert_eq!(wrong_cases::<StopsAtOwnerOfEnd>(small), (157_248, 1_666_170));
}

fn at(start: u32, end: u32) -> Range {
    Range::between(Point(start), Point(end))
}

fn visited(topology: &Topology<char>, range: Range) -> String {
    let mut seen = String::new();
    topology.visit_range_owners(range, |seat, _| seen.push(seat.member));
    seen
}

fn topology(hashes: &[(char, &[u32])]) -> Topology<char> {
    Topology::new(hashes.iter().map(|(member, hashes)| (*member, hashes.iter().copied().map(Point))))
}

#[test]
fn case_66_named_queries() {
    // (0, 100], (100, 200], (200, 0].
    let three = topology(&[('a', &[0]), ('b', &[100]), ('c', &[200])]);
    assert_eq!(visited(&three, at(50, 25)), "abc", "the first and the last point have the same owner");
    assert_eq!(visited(&three, at(0, 100)), "a", "exactly one owner's range");
    assert_eq!(visited(&three, at(100, 200)), "b");
    assert_eq!(visited(&three, at(200, 0)), "c");
    assert_eq!(visited(&three, at(99, 101)), "ab");
    assert_eq!(visited(&three, at(100, 101)), "b");
    assert_eq!(visited(&three, Range::point(Point(0))), "c");
    assert_eq!(visited(&three, Range::Empty), "");
    assert_eq!(visited(&three, Range::Full).len(), 3);

    let one = topology(&[('a', &[77])]);
    assert_eq!(one.find_owner(Point(3)), Some((Seat { member: 'a', index: 0 }, Range::Full)));
    assert_eq!(visited(&one, at(5, 9)), "a");
    assert_eq!(visited(&one, Range::Full), "a");

    let none = topology(&[('a', &[])]);
    assert_eq!((none.find_owner(Point(3)), visited(&none, Range::Full)), (None, String::new()));
    assert_eq!(none.range_of(Seat { member: 'a', index: 0 }), Range::Empty);

    // Both want 100; the smaller (index, member) has it, in whatever order they come.
    let collided = topology(&[('b', &[100]), ('a', &[100, 500])]);
    assert_eq!(collided.range_of(Seat { member: 'a', index: 0 }), at(100, 500));
    assert_eq!(collided.range_of(Seat { member: 'b', index: 0 }), Range::Empty);
    assert_eq!(visited(&collided, Range::Full), "aa");
    assert_eq!(collided, topology(&[('a', &[100, 500]), ('b', &[100])]));
}

#[test]
fn case_67_a_visit_probes_logarithmically_and_meets_only_owners() {
    for len in [1usize, 2, 3, 90, 300, 3000] {
        let end = |place: usize| Point((POINTS * (place as u64 + 1) / len as u64 - 1) as u32);
        let probes_max = len.next_power_of_two().ilog2() as usize + 2;
        for owners in [1, 2, 10, 100] {
            for first in [0, 1, len / 2, len - 1] {
                if owners >= len {
                    continue;
                }
                // From inside the first owner's range to inside the last one's.
                let before = |place: usize| end((place + len - 1) % len).0.wrapping_add(1);
                let query = Range::between(
                    Point(before(first % len)),
                    Point(before((first + owners - 1) % len).wrapping_add(1)),
                );
                let (mut looks, mut visits) = (0, 0);
                walk::<Sound>(
                    len,
                    |place| {
                        looks += 1;
                        end(place)
                    },
                    query,
                    |_| visits += 1,
                );
                assert_eq!(visits, owners, "{len} boundaries, {query}");
                assert!(looks - visits <= probes_max, "{looks} looks for {visits} of {len}");
            }
        }
        let mut visits = 0;
        walk::<Sound>(len, end, Range::Full, |_| visits += 1);
        assert_eq!(visits, len);
    }
}

#[test]
fn case_121_planning_a_change_of_one_node_looks_at_a_fiftieth_of_a_full_scan() {
    let len = 3_000usize;
    let end = |place: usize| Point((POINTS * (place as u64 + 1) / len as u64 - 1) as u32);
    // A node with ten partitions comes: each of its ranges lies inside one owner's, or over the border of two.
    let (mut looks, mut visits, ranges) = (0usize, 0usize, 10u32);
    for number in 0..ranges {
        let from = (u64::from(number) * POINTS / 10 + 12_345) as u32;
        let added = Range::between(Point(from), Point(from + u32::MAX / len as u32));
        walk::<Sound>(
            len,
            |place| {
                looks += 1;
                end(place)
            },
            added,
            |_| visits += 1,
        );
    }
    let log = len.next_power_of_two().ilog2() as usize;
    assert!(visits <= 2 * ranges as usize, "{visits}");
    assert!(looks <= ranges as usize * (log + 2) + visits, "{looks}");
    assert!(looks * 50 <= len * ranges as usize, "{looks} looks against {len} for each of {ranges}");
}

#[test]
fn case_67_a_visit_allocates_nothing() {
    let hashes: Vec<_> = (0..300u32).map(|number| number.wrapping_mul(0x9e37_79b9)).collect();
    let big = topology(&[('a', &hashes[..100]), ('b', &hashes[100..200]), ('c', &hashes[200..])]);
    let mut visits = 0;
    let counted = allocation_counter::measure(|| {
        big.visit_range_owners(Range::Full, |_, _| visits += 1);
        big.visit_range_owners(at(7, 1 << 30), |_, _| visits += 1);
        let _ = big.find_owner(Point(1 << 20));
        let _ = at(9, 3).intersections(at(5, 4)).into_iter().count();
    });
    assert!(visits > 300);
    assert_eq!(counted.count_total, 0);
}

#[test]
fn case_72_a_partition_keeps_its_index_whatever_the_order_of_hashes() {
    let shuffled = topology(&[('a', &[500, 100, 300]), ('b', &[200, 400])]);
    let range = |member, index| shuffled.range_of(Seat { member, index });
    assert_eq!(shuffled.ranges_of('a'), [at(500, 100), at(100, 200), at(300, 400)]);
    assert_eq!((range('b', 0), range('b', 1), range('b', 2)), (at(200, 300), at(400, 500), Range::Empty));
    let (seat, owned) = shuffled.find_owner(Point(350)).unwrap();
    assert_eq!((seat, owned), (Seat { member: 'a', index: 2 }, at(300, 400)));
}

type Hashes = Vec<(u8, Vec<Point>)>;

/// Members with hashes that collide now and then.
fn members() -> impl Strategy<Value = Hashes> {
    let hash =
        prop_oneof![(0u32..16).prop_map(|p| Small { bits: 4, turn: 1 }.at(p)), any::<u32>().prop_map(Point)];
    prop::collection::vec(prop::collection::vec(hash, 0..5), 0..6).prop_map(|all| (0u8..).zip(all).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn case_64_every_point_has_one_owner_and_sizes_add_up(members in members(), point in any::<u32>()) {
        let topology = Topology::new(members.clone());
        let seats: Vec<_> = members
            .iter()
            .flat_map(|(member, hashes)| (0..hashes.len() as u32).map(|index| Seat { member: *member, index }))
            .collect();
        let total: u64 = seats.iter().map(|seat| topology.range_of(*seat).size()).sum();
        prop_assert_eq!(total, if seats.is_empty() { 0 } else { POINTS });
        let owners: Vec<_> =
            seats.iter().filter(|seat| topology.range_of(**seat).contains(Point(point))).copied().collect();
        prop_assert_eq!(owners, Vec::from_iter(topology.find_owner(Point(point)).map(|(seat, _)| seat)));
    }

    #[test]
    fn case_65_a_visit_equals_a_full_scan_on_the_whole_ring(
        members in members(), start in any::<u32>(), end in any::<u32>(), near in any::<bool>(),
    ) {
        let topology = Topology::new(members);
        let hash = topology.iter().next().and_then(|(_, range)| match range {
            Range::Arc(arc) => Some(arc.end()),
            Range::Empty | Range::Full => None,
        });
        let query = Range::between(hash.filter(|_| near).unwrap_or(Point(start)), Point(end));
        let mut seen = Vec::new();
        topology.visit_range_owners(query, |seat, range| {
            assert_eq!(topology.range_of(seat), range);
            seen.push(seat);
        });
        let expected: BTreeSet<_> =
            topology.iter().filter(|(_, range)| range.intersects(query)).map(|(seat, _)| seat).collect();
        prop_assert_eq!(seen.len(), expected.len());
        prop_assert_eq!(seen.into_iter().collect::<BTreeSet<_>>(), expected);
    }

    #[test]
    fn case_69_a_partition_grows_or_shrinks_by_one_piece_between_any_two_views(
        members in members(), old in any::<u8>(), new in any::<u8>(),
    ) {
        let of = |set: u8| Topology::new(members.iter().filter(|(member, _)| set >> member & 1 == 1).cloned());
        let (old, new) = (of(old), of(new));
        for (member, hashes) in &members {
            for index in 0..hashes.len() as u32 {
                let changes: Vec<_> =
                    new.changes(&old, *member).filter(|(changed, _)| *changed == index).collect();
                prop_assert!(changes.len() <= 1, "{:?}", changes);
                let seat = Seat { member: *member, index };
                let moved: i128 = changes.iter().map(|(_, change)| match change {
                    Change::Grew(range) => i128::from(range.size()),
                    Change::Shrank(range) => -i128::from(range.size()),
                }).sum();
                let grown = i128::from(new.range_of(seat).size()) - i128::from(old.range_of(seat).size());
                prop_assert_eq!(moved, grown);
            }
        }
    }
}
