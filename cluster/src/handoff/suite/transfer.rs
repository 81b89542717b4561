//! Handing over and recovering: cases 47–53 and 59–61.

use std::sync::Arc;

use futures::FutureExt;

use crate::{
    admission::Refusal,
    gate::{Acquisition, Gates},
};

use super::*;
use world::Flag;

#[test]
fn what_moves_is_served_by_the_new_owner_and_not_by_the_old() {
    let [first, second] = views([[1, 1, 1], [2, 1, 3]]);
    let mut world: World = World::under(&first);
    for number in [1, 2, 3] {
        world.register(2, point(number)).unwrap();
    }
    world.publish_to(&[1, 2, 3], &second);
    world.run();
    world.assert_whole(&second, &[1, 2, 3].map(point));
    world.assert_quiet();
    assert_eq!(world.lookup(2, point(1)).unwrap(), Some(member(2)));
    assert_eq!(world.lookup(3, point(3)).unwrap(), Some(member(2)));
    assert!(matches!(world.lookup(1, point(1)), Err(Refusal::RefreshRequired { view: ViewId(2), .. })));
}

#[test]
fn case_47_a_release_that_nobody_will_come_for_drops_its_state() {
    let first = view(1, 0, [(1, 1); 3], &[1, 2, 3]);
    // Nobody can serve the first part.
    let header =
        Header { id: ViewId(2), predecessor: Some(ViewId(1)), authority: Authority(1), watermark: 0 };
    let held = |owner, epoch| Held { owner, epoch: Epoch(epoch) };
    let shards = [
        (ShardId(1), third(1), held(None, 1)),
        (ShardId(2), third(2), held(Some(member(1)), 1)),
        (ShardId(3), third(3), held(Some(member(1)), 1)),
    ];
    let second = RingView::new(header, [1, 2, 3].map(member), shards).unwrap();
    let mut world: World = World::under(&first);
    world.register(2, point(1)).unwrap();
    world.events();
    world.publish_to(&[1, 2, 3], &second);
    world.run();
    assert_eq!(world.events(), ["n1.1 discards"]);
    world.assert_quiet();
    let refused = world.lookup(1, point(1));
    assert!(matches!(refused, Err(Refusal::RefreshRequired { owner: None, .. })));
}

#[test]
fn case_48_a_release_across_a_gap_keeps_nothing_and_who_comes_recovers() {
    let [first, between, last] = views([[1, 1, 1], [1, 3, 1], [2, 3, 1]]);
    let mut world: World = World::under(&first);
    world.register(3, point(1)).unwrap();
    world.register(3, point(2)).unwrap();
    world.events();
    // The old owner misses a view; the new one has seen them all, and comes for what was kept.
    world.publish_to(&[2, 3], &between);
    world.run();
    world.publish_to(&[1, 2, 3], &last);
    world.run();
    let events = world.events();
    for expected in
        ["n2.1 pull n1.1", "n1.1 discards", "n2.1 renounce n1.1", "n2.1 collect n3.1", "n2.1 recovers"]
    {
        assert!(events.iter().any(|event| event == expected), "{expected}: {events:?}");
    }
    assert!(!events.iter().any(|event| event == "n1.1 takes"));
    world.assert_whole(&last, &[point(1)]);
    world.assert_quiet();
}

#[test]
fn case_49_kept_state_leaves_when_its_partner_dies_though_the_acknowledgement_was_lost() {
    let [first, second] = views([[1, 1, 1], [2, 1, 1]]);
    let mut world: World = World::under(&first);
    world.register(3, point(1)).unwrap();
    world.lose("acknowledge");
    world.publish_to(&[1, 2, 3], &second);
    world.run();
    assert_eq!(world.node(1).coordinator.retained().len(), 1);
    assert_eq!(world.lookup(2, point(1)).unwrap(), Some(member(3)), "it is open all the same");
    world.depart(2, Departure::Declared);
    world.run();
    world.assert_quiet();
}

#[test]
fn case_49_kept_state_leaves_with_continuity_or_a_renunciation() {
    let [first, second, third_view, fourth] = views([[1, 1, 1], [2, 1, 1], [2, 1, 3], [2, 3, 3]]);
    let mut world: World = World::under(&first);
    world.lose("acknowledge");
    world.publish_to(&[1, 2, 3], &second);
    world.run();
    let kept = world.node(1);
    let by = Partner { member: member(2), unit: ShardId(1) };
    let other = Partner { member: member(2), unit: ShardId(2) };
    kept.coordinator.serve_renounce(other, ViewId(1));
    kept.coordinator.serve_renounce(by, ViewId(0));
    kept.coordinator.serve_acknowledge(by, ViewId(2));
    assert_eq!(kept.coordinator.retained().len(), 1, "another unit, an older view, another view");
    kept.coordinator.serve_renounce(by, ViewId(1));
    assert!(kept.coordinator.retained().is_empty());
    world.publish_to(&[1, 2, 3], &third_view);
    world.run();
    assert_eq!(kept.coordinator.retained().len(), 1);
    // A view without predecessor here: nobody comes for what was kept before.
    let gap = RingView::new(
        Header { predecessor: None, ..header_of(&fourth) },
        [1, 2, 3].map(member),
        shards_of(&fourth),
    );
    world.publish_to(&[1, 2, 3], &gap.unwrap());
    assert!(kept.coordinator.retained().is_empty());
}

fn header_of(view: &RingView) -> Header {
    *crate::view::Versioned::header(view)
}

fn shards_of(view: &RingView) -> Vec<(ShardId, Range, Held)> {
    view.map().shards().map(|(shard, range)| (shard, range, view.owners().holder(&shard).unwrap())).collect()
}

#[test]
fn case_49_a_shutdown_is_not_held_up_by_what_nobody_came_for() {
    let [first, second] = views([[1, 1, 1], [2, 1, 1]]);
    let mut world: World = World::under(&first);
    world.lose("acknowledge");
    world.publish_to(&[1, 2, 3], &second);
    world.run();
    let node = world.node(1);
    let (over, budget) = futures::channel::oneshot::channel::<()>();
    let mut closing = world.start({
        let node = node.clone();
        async move { node.coordinator.shut_down(budget.map(drop)).await }
    });
    world.run();
    assert!(closing.is_waiting(), "somebody may still come");
    over.send(()).unwrap();
    world.run();
    assert!(closing.now().is_some());
    assert!(node.coordinator.retained().is_empty());
}

#[test]
fn case_50_a_question_to_a_member_that_dies_ends_with_the_member() {
    let [first, second] = views([[1, 1, 1], [2, 1, 1]]);
    let mut world: World = World::under(&first);
    world.register(3, point(1)).unwrap();
    world.hold("pull");
    world.publish_to(&[1, 2, 3], &second);
    world.run();
    let mut looking = world.start(world.node(2).lookup(point(1)));
    world.run();
    assert!(looking.is_waiting());
    // The answer never comes; the member's death is enough.
    world.depart(1, Departure::Declared);
    world.run();
    assert_eq!(looking.now().unwrap().unwrap(), Some(member(3)));
    assert_eq!(*world.node(2).service.held.lock(), [third(1)], "F6: it may not know that it is dead");
    world.assert_whole(&second, &[point(1)]);
    world.assert_quiet();
}

#[test]
fn a_member_that_left_needs_no_hold() {
    let [first, second] = views([[1, 1, 1], [2, 1, 1]]);
    let mut world: World = World::under(&first);
    world.hold("pull");
    world.publish_to(&[1, 2, 3], &second);
    world.run();
    world.depart(1, Departure::Left);
    world.run();
    assert!(world.node(2).service.held.lock().is_empty());
    world.assert_quiet();
}

#[test]
fn case_51_a_source_of_two_pieces_is_acknowledged_once_after_both() {
    // One shard of node 2 takes what two shards of node 1 had.
    let first = view(1, 0, [(1, 1), (1, 1), (3, 1)], &[1, 2, 3]);
    let header =
        Header { id: ViewId(2), predecessor: Some(ViewId(1)), authority: Authority(1), watermark: 0 };
    let both = third(3).complement();
    let held = |node| Held { owner: Some(member(node)), epoch: Epoch(2) };
    let shards = [(ShardId(1), both, held(2)), (ShardId(3), third(3), Held { epoch: Epoch(1), ..held(3) })];
    let second = RingView::new(header, [1, 2, 3].map(member), shards).unwrap();
    let mut world: World = World::under(&first);
    world.register(3, point(1)).unwrap();
    world.register(3, point(2)).unwrap();
    world.events();
    world.hold("acknowledge");
    world.publish_to(&[1, 2, 3], &second);
    world.run();
    let events = world.events();
    let count = |what: &str| events.iter().filter(|event| *event == what).count();
    assert!(count("n2.1 pull n1.1") >= 2, "{events:?}");
    assert_eq!((count("n1.1 takes"), count("n2.1 acknowledge n1.1")), (2, 1));
    assert_eq!(world.node(2).service.directory.lock().len(), 2, "both were installed before");
    assert_eq!(world.node(1).coordinator.retained().len(), 2, "and both are kept until then");
    world.let_go("acknowledge");
    world.run();
    world.assert_whole(&second, &[point(1), point(2)]);
    world.assert_quiet();
}

#[test]
fn case_51_an_acknowledgement_on_its_way_holds_nobody_up() {
    let [first, second] = views([[1, 1, 1], [2, 1, 1]]);
    let mut world: World = World::under(&first);
    world.register(3, point(1)).unwrap();
    world.hold("acknowledge");
    world.publish_to(&[1, 2, 3], &second);
    world.run();
    assert_eq!(world.lookup(2, point(1)).unwrap(), Some(member(3)));
    assert_eq!(world.node(1).coordinator.retained().len(), 1);
    world.let_go("acknowledge");
    world.run();
    world.assert_quiet();
}

#[test]
fn case_52_if_one_of_several_sources_fails_all_that_was_added_is_recovered_before_any_is_open() {
    let first = view(1, 0, [(1, 1), (2, 1), (1, 1)], &[1, 2, 3]);
    let header =
        Header { id: ViewId(2), predecessor: Some(ViewId(1)), authority: Authority(1), watermark: 0 };
    let held = Held { owner: Some(member(3)), epoch: Epoch(2) };
    let second = RingView::new(header, [1, 2, 3].map(member), [(ShardId(1), Range::Full, held)]).unwrap();
    let mut world: World = World::under(&first);
    for number in [1, 2, 3] {
        world.register(3, point(number)).unwrap();
    }
    world.events();
    // Node 1 releases and is pulled from; node 2 stays behind, and then dies.
    world.publish_to(&[1, 3], &second);
    world.run();
    let mut looking: Vec<_> = [1, 2, 3].map(|number| world.start(world.node(3).lookup(point(number)))).into();
    world.run();
    assert!(looking.iter_mut().all(|looking| looking.is_waiting()), "no part is open");
    world.depart(2, Departure::Declared);
    world.run();
    for looking in looking {
        assert_eq!(looking.now().unwrap().unwrap(), Some(member(3)));
    }
    let events = world.events();
    assert!(events.iter().any(|event| event == "n3.1 recovers"), "{events:?}");
    world.assert_whole(&second, &[1, 2, 3].map(point));
    world.assert_quiet();
}

#[test]
fn case_53_a_source_that_crashes_between_keeping_and_the_question_loses_nothing() {
    let [first, second] = views([[1, 1, 1], [2, 1, 1]]);
    let mut world: World = World::under(&first);
    world.register(3, point(1)).unwrap();
    world.hold("pull");
    world.publish_to(&[1, 2, 3], &second);
    world.run();
    assert_eq!(world.node(1).coordinator.retained().len(), 1);
    world.depart(1, Departure::Declared);
    world.let_go("pull");
    world.run();
    world.assert_whole(&second, &[point(1)]);
    world.assert_quiet();
}

#[test]
fn case_53_a_destination_that_crashes_between_installing_and_acknowledging_loses_nothing() {
    let [first, second, last] = views([[1, 1, 1], [2, 1, 1], [3, 1, 1]]);
    let mut world: World = World::under(&first);
    world.register(3, point(1)).unwrap();
    world.hold("acknowledge");
    world.publish_to(&[1, 2, 3], &second);
    world.run();
    assert_eq!(world.node(2).service.directory.lock().len(), 1);
    world.depart(2, Departure::Declared);
    world.run();
    assert!(world.node(1).coordinator.retained().is_empty(), "its partner is dead");
    world.publish_to(&[1, 3], &last);
    world.let_go("acknowledge");
    world.run();
    world.assert_whole(&last, &[point(1)]);
    world.assert_quiet();
}

#[test]
fn case_48_who_asks_for_more_than_is_kept_gets_nothing() {
    let retained = Retained::default();
    let by = Partner { member: member(2), unit: ShardId(1) };
    retained.keep(ViewId(1), vec![(third(1), "one"), (third(2), "two")], [by].into());
    let find = |version, by, range| retained.find(version, by, range, |state, _| *state);
    let both = third(3).complement();
    assert_eq!(find(ViewId(1), by, both), Some(vec!["one", "two"]));
    assert_eq!(find(ViewId(1), by, third(2)), Some(vec!["two"]));
    assert_eq!(find(ViewId(1), by, Range::Full), None, "a third of it is not here");
    assert_eq!(find(ViewId(2), by, third(1)), None, "kept under another view");
    let other = Partner { unit: ShardId(2), ..by };
    assert_eq!(find(ViewId(1), other, third(1)), None, "not kept for this one");
    retained.keep(ViewId(1), vec![(third(3), "three")], [other].into());
    assert_eq!(find(ViewId(1), by, Range::Full), None);
    retained.acknowledged(by, ViewId(1));
    assert_eq!((find(ViewId(1), by, third(1)), retained.len()), (None, 1));
}

#[test]
fn case_48_with_no_survivors_there_is_nobody_to_wait_for() {
    let [first, second] = views([[1, 1, 1], [2, 2, 2]]);
    let mut world: World = World::under(&first);
    world.register(1, point(1)).unwrap();
    world.depart(1, Departure::Declared);
    world.depart(3, Departure::Declared);
    world.publish_to(&[2], &second);
    world.run();
    assert_eq!(world.lookup(2, point(1)).unwrap(), None);
    world.assert_quiet();
}

#[test]
fn case_59_a_recovery_keeps_the_newest_record_whatever_the_order_of_answers() {
    let record = |value, view| Record { value, view: ViewId(view) };
    let answers = [
        Answer { member: member(1), records: vec![("a", record(1, 5)), ("b", record(1, 3))] },
        Answer { member: member(2), records: vec![("a", record(2, 4)), ("b", record(2, 3))] },
        Answer { member: member(3), records: vec![("a", record(3, 5)), ("c", record(3, 1))] },
    ];
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    let merged = orders.map(|order| newest(order.map(|place| answers[place].clone())));
    for Merged { winners, losers } in &merged {
        let won: Vec<_> =
            winners.iter().map(|(key, (member, record))| (*key, member.node.0, record.value)).collect();
        // Of one view the smaller member's, always.
        assert_eq!(won, [("a", 1, 1), ("b", 1, 1), ("c", 3, 3)]);
        let lost: Vec<_> = losers.iter().map(|(key, member, _)| (*key, member.node.0)).collect();
        assert_eq!(lost, [("a", 2), ("a", 3), ("b", 2)]);
    }
}

#[test]
fn case_60_a_registration_that_a_recovery_may_have_missed_is_done_again() {
    let [first, second] = views([[1, 1, 1], [2, 1, 1]]);
    let mut world: World = World::under(&first);
    // Registered with the old owner; the answer is on its way when that dies.
    world.hold("registered");
    let mut registering = world.start(world.node(3).register(point(1)));
    world.run();
    assert!(registering.is_waiting());
    world.depart(1, Departure::Declared);
    world.publish_to(&[2, 3], &second);
    world.run();
    assert!(
        !world.node(2).service.directory.lock().contains_key(&point(1)),
        "the recovery knew nothing of it"
    );
    world.let_go("registered");
    world.run();
    registering.now().unwrap().unwrap();
    assert!(world.events().iter().any(|event| event == "n3.1 registers again"));
    world.assert_whole(&second, &[point(1)]);
    world.assert_quiet();
}

#[test]
fn case_61_a_loser_that_calls_back_is_not_waited_for() {
    let [first, second] = views([[1, 1, 1], [2, 1, 1]]);
    let mut world: World = World::under(&first);
    world.register(3, point(1)).unwrap();
    // Two members believe that the point is theirs.
    world.node(1).service.own.lock().insert(point(1), ViewId(0));
    let (node, called) = (world.node(2), Flag::default());
    *node.service.on_loser.lock() = Some(Arc::new({
        let (node, called) = (node.clone(), called.clone());
        move |point| {
            // Looks into the very part that is being recovered.
            let (looking, called) = (node.lookup(point), called.clone());
            async move {
                assert_eq!(looking.await.unwrap(), Some(member(3)));
                called.raise();
            }
            .boxed()
        }
    }));
    world.fail("pull");
    world.publish_to(&[1, 2, 3], &second);
    world.run();
    assert!(called.is_up());
    world.assert_quiet();
    *node.service.on_loser.lock() = None;
}

#[test]
fn a_plan_never_puts_a_point_into_a_release_and_an_acquisition() {
    // Shards change their ranges between members and within one.
    let first = view(1, 0, [(1, 1), (1, 1), (2, 1)], &[1, 2, 3]);
    let header =
        Header { id: ViewId(2), predecessor: Some(ViewId(1)), authority: Authority(1), watermark: 0 };
    let halves: Vec<_> = Range::Full.divide(2).collect();
    let held = |node| Held { owner: Some(member(node)), epoch: Epoch(2) };
    for predecessor in [Some(ViewId(1)), None] {
        for owners in [[1, 2], [2, 1], [1, 1], [3, 1]] {
            let shards = [(ShardId(1), halves[0], held(owners[0])), (ShardId(2), halves[1], held(owners[1]))];
            let second =
                RingView::new(Header { predecessor, ..header }, [1, 2, 3].map(member), shards).unwrap();
            for me in [1, 2, 3].map(member) {
                let plan = plan::plan(me, Some(&first), &second);
                let released: Vec<_> =
                    plan.releases.iter().flat_map(|release| release.pieces.clone()).collect();
                let acquired: Vec<_> =
                    plan.acquisitions.iter().flat_map(|acquisition| acquisition.pieces.clone()).collect();
                assert!(released.iter().all(|a| acquired.iter().all(|b| !a.intersects(*b))));
                let mine = |view: &RingView| -> u64 {
                    view.map()
                        .shards()
                        .filter(|(shard, _)| view.owners().holder(shard).unwrap().owner == Some(me))
                        .map(|(_, range)| range.size())
                        .sum()
                };
                let size = |pieces: &[Range]| pieces.iter().map(|piece| piece.size()).sum::<u64>();
                let renewed: Vec<_> =
                    plan.acquisitions.iter().flat_map(|acquisition| acquisition.renewed.clone()).collect();
                assert_eq!(mine(&first) + size(&acquired) - size(&renewed) - size(&released), mine(&second));
                assert_eq!(predecessor.is_some(), renewed.is_empty() && predecessor.is_some());
                assert!(
                    predecessor.is_some() || plan.releases.iter().all(|release| release.partners.is_empty())
                );
            }
        }
    }
}

#[test]
fn a_view_whose_gates_cannot_be_registered_stays_unseen_and_blocks_nobody() {
    let [first, second] = views([[1, 1, 1], [2, 3, 1]]);
    let mut world: World = World::under(&first);
    let node = world.node(1);
    // A gate of the same view over the same points, by a mistake elsewhere.
    let stray = Acquisition::new(ViewId(2), None);
    node.gates.register(third(2), &stray).unwrap();
    node.provider.publish(second).unwrap();
    assert!(node.coordinator.update(&node.current()).is_err());
    assert_eq!(node.installed.id(), ViewId(1));
    assert!(node.gates.find_blocking(&third(1), ViewId(2)).is_none());
    assert_eq!(node.gates.len(), 1);
    world.run();
    assert_eq!(world.events(), [""; 0]);
    stray.abort();
}
