//! The two maps: cases 14–20.

use proptest::prelude::*;

use crate::ring::Range;
use model::id::Point;

use super::*;

fn at(start: u32, end: u32) -> Range {
    Range::between(Point(start), Point(end))
}

fn point(at: u32) -> Range {
    Range::point(Point(at))
}

#[test]
fn case_14_one_unit_has_one_gate_of_a_view_and_may_have_several_of_different_views() {
    let ranges = RangeMap::new();
    let first = Acquisition::new(v(5), None);
    let release = Release::of_nothing(v(5), None);
    ranges.register(at(0, 100), &first).unwrap();
    assert_eq!(ranges.register(at(99, 200), &release), Err(Registered { target: v(5) }));
    ranges.register(at(100, 200), &release).unwrap();
    let later = Release::of_nothing(v(6), None);
    ranges.register(at(0, 100), &later).unwrap();
    assert_eq!(ranges.len(), 3);

    let resources = ResourceMap::new();
    resources.register("a", &first).unwrap();
    assert_eq!(resources.register("a", &release), Err(Registered { target: v(5) }));
    resources.register("b", &release).unwrap();
    resources.register("a", &later).unwrap();
    assert_eq!(resources.len(), 3);
    // Both block: the older one first, then the newer.
    assert_eq!(resources.find("a", v(5)).unwrap().target(), v(5));
    first.abort();
    assert!(resources.find("a", v(5)).is_none());
    assert_eq!(resources.find("a", v(6)).unwrap().target(), v(6));
}

#[test]
fn case_15_a_gate_blocks_from_its_target_view_on() {
    let (ranges, resources) = (RangeMap::new(), ResourceMap::new());
    let barrier = Barrier::new(v(5));
    ranges.register(at(0, 100), &barrier).unwrap();
    resources.register(7, &barrier).unwrap();
    for (required, blocks) in [(4, false), (5, true), (6, true)] {
        assert_eq!(ranges.find_blocking(&point(50), v(required)).is_some(), blocks);
        assert_eq!(resources.find_blocking(&7, v(required)).is_some(), blocks);
        assert!(ranges.find_blocking(&point(0), v(required)).is_none());
        assert!(resources.find_blocking(&8, v(required)).is_none());
    }
}

#[test]
fn case_16_ended_gates_do_not_block_and_failed_ones_do() {
    let ranges = RangeMap::new();
    let gates: Vec<_> = (0..4).map(|_| Barrier::new(v(5))).collect();
    for (gate, place) in gates.iter().zip(0..) {
        ranges.register(point(place), gate).unwrap();
    }
    gates[0].complete().unwrap();
    gates[1].abort();
    gates[2].fail(broken("disk"));
    let blocked: Vec<_> = (0..4).map(|place| ranges.find_blocking(&point(place), v(5)).is_some()).collect();
    assert_eq!(blocked, [false, false, true, true]);
}

#[test]
fn case_17_a_failed_gate_survives_any_pruning() {
    let (ranges, resources) = (RangeMap::new(), ResourceMap::new());
    let failed = Acquisition::new(v(5), None);
    let completed = Barrier::new(v(5));
    let superseded = Acquisition::new(v(5), None);
    ranges.register(point(1), &failed).unwrap();
    ranges.register(point(2), &completed).unwrap();
    ranges.register(point(3), &superseded).unwrap();
    resources.register(1, &failed).unwrap();
    resources.register(2, &completed).unwrap();
    resources.register(3, &superseded).unwrap();
    assert_eq!((ranges.prune(), resources.prune()), (0, 0), "pending gates stay");
    failed.fail(broken("disk"));
    completed.complete().unwrap();
    superseded.supersede(v(6)).unwrap();
    assert_eq!((ranges.prune(), resources.prune()), (2, 2));
    for _ in 0..1_000 {
        assert_eq!((ranges.prune(), resources.prune()), (0, 0));
    }
    assert!(ranges.find_blocking(&point(1), v(5)).is_some());
    assert!(resources.find(&1, v(5)).is_some());
    // Only the end of its runtime ends it.
    ranges.abort_all();
    resources.abort_all();
    assert!(ranges.is_empty() && resources.is_empty() && ranges.is_clear() && resources.is_clear());
}

/// Empty, full, wrapped and other arcs, whose ends are ends of blocks; among them the block with point 0 and that with the
/// last point.
fn block_ranges() -> impl Strategy<Value = Range> {
    let end = |block: u32| Point((block << 28) | 0x0fff_ffff);
    prop_oneof![
        1 => Just(Range::Empty),
        1 => Just(Range::Full),
        8 => (0u32..16, 0u32..16).prop_map(move |(a, b)| Range::between(end(a), end(b))),
        1 => Just(Range::point(Point(0))),
        1 => Just(Range::point(Point(u32::MAX))),
    ]
}

#[derive(Clone, Debug)]
enum Act {
    Register(Range, u64),
    Complete(usize),
    Fail(usize),
    Abort(usize),
    Prune,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        6 => (block_ranges(), 1u64..4).prop_map(|(range, target)| Act::Register(range, target)),
        2 => any::<usize>().prop_map(Act::Complete),
        1 => any::<usize>().prop_map(Act::Fail),
        1 => any::<usize>().prop_map(Act::Abort),
        2 => Just(Act::Prune),
    ];
    prop::collection::vec(act, 0..40)
}

/// A gate as a model keeps it.
struct Known {
    range: Range,
    driver: Barrier,
    target: u64,
    status: Status,
    /// Whether it is in the map of resources as well.
    named: bool,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn case_18_both_maps_do_what_a_list_does(acts in acts(), asked in block_ranges(), required in 0u64..5) {
        let (ranges, resources) = (RangeMap::new(), ResourceMap::new());
        let mut known: Vec<Known> = Vec::new();
        for act in acts {
            let len = known.len();
            match act {
                Act::Register(range, target) => {
                    let driver = Barrier::new(v(target));
                    let taken = |known: &&Known| known.target == target && known.status.is_blocking();
                    let met = known.iter().filter(taken).any(|known| known.range.intersects(range));
                    let same = known.iter().filter(taken).any(|known| known.named && known.range == range);
                    prop_assert_eq!(ranges.register(range, &driver).is_err(), met);
                    if !met {
                        prop_assert_eq!(resources.register(range, &driver).is_err(), same);
                        known.push(Known { range, driver, target, status: Status::Pending, named: !same });
                    }
                }
                Act::Complete(at) if len > 0 => {
                    let known = &mut known[at % len];
                    if known.driver.complete().is_ok() {
                        prop_assert_eq!(known.status, Status::Pending);
                        known.status = Status::Completed;
                    }
                }
                Act::Fail(at) if len > 0 => {
                    let known = &mut known[at % len];
                    prop_assert_eq!(known.driver.fail(broken("x")), known.status == Status::Pending);
                    if known.status == Status::Pending {
                        known.status = Status::Failed;
                    }
                }
                Act::Abort(at) if len > 0 => {
                    let known = &mut known[at % len];
                    known.driver.abort();
                    if known.status.is_blocking() {
                        known.status = Status::Aborted;
                    }
                }
                Act::Complete(_) | Act::Fail(_) | Act::Abort(_) => {}
                Act::Prune => {
                    ranges.prune();
                    resources.prune();
                }
            }
        }
        let blocks = |known: &&Known| known.target <= required && known.status.is_blocking();
        let expected = known.iter().filter(blocks).any(|known| known.range.intersects(asked));
        prop_assert_eq!(ranges.find_blocking(&asked, v(required)).is_some(), expected);
        let expected = known.iter().filter(blocks).any(|known| known.named && known.range == asked);
        prop_assert_eq!(resources.find_blocking(&asked, v(required)).is_some(), expected);
        ranges.prune();
        resources.prune();
        let live = |named: bool| {
            known.iter().filter(|known| known.status.is_blocking() && (known.named || !named)).count()
        };
        prop_assert_eq!((ranges.len(), resources.len()), (live(false), live(true)));
    }

    #[test]
    fn case_19_a_range_is_blocked_if_and_only_if_it_shares_points(gate in block_ranges(), asked in block_ranges()) {
        let ranges = RangeMap::new();
        let barrier = Barrier::new(v(1));
        ranges.register(gate, &barrier).unwrap();
        // Points 0 and MAX may be asked for alone; else whole blocks.
        let samples = (0..16u32).flat_map(|block| [block << 28, (block << 28) | 1, (block << 28) | 0x0fff_ffff]);
        let shared = samples.map(Point).any(|point| gate.contains(point) && asked.contains(point));
        prop_assert_eq!(ranges.find_blocking(&asked, v(1)).is_some(), shared);
    }
}

#[test]
fn case_20_looking_changes_nothing() {
    let (ranges, resources) = (RangeMap::new(), ResourceMap::new());
    let gates: Vec<_> = (0..8).map(|_| Barrier::new(v(5))).collect();
    for (gate, place) in gates.iter().zip(0..) {
        ranges.register(point(place), gate).unwrap();
        resources.register(place, gate).unwrap();
    }
    gates[2].complete().unwrap();
    gates[3].fail(broken("disk"));
    let before = (format!("{ranges:?}"), resources.len());
    for place in 0..20 {
        for required in 4..7 {
            let _ = ranges.find_blocking(&point(place), v(required));
            let _ = resources.find_blocking(&place, v(required));
        }
    }
    assert_eq!((format!("{ranges:?}"), resources.len()), before);
    // One pass: one lock of the map, and none of a gate.
    let locks = crate::sync::count::locks();
    assert!(ranges.find_blocking(&point(7), v(5)).is_some());
    assert!(ranges.find_blocking(&point(77), v(5)).is_none());
    assert_eq!(crate::sync::count::locks() - locks, 2);
}
