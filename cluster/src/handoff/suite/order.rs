//! The order of gates, views and drivers: cases 40, 41, 45, 46, 54, 55, 58, 129 and 135.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Wake, Waker},
};

use crate::{
    gate::{Gates, RangeMap},
    view::Versioned,
};

use super::*;
use world::Flag;

/// Looks at the gates of a member in the moment in which a view is seen.
struct Seeing {
    gates: Arc<RangeMap>,
    parts: Vec<Range>,
    blocked: AtomicUsize,
}

impl Wake for Seeing {
    fn wake(self: Arc<Self>) {
        let blocking = self.parts.iter().filter(|part| self.gates.find_blocking(part, ViewId(2)).is_some());
        self.blocked.store(blocking.count(), Ordering::SeqCst);
    }
}

#[test]
fn case_45_gates_are_registered_before_the_view_is_seen_and_it_is_seen_before_anything_moves() {
    let [first, second] = views([[1, 1, 2], [2, 1, 3]]);
    let mut world: World = World::under(&first);
    for (node, changed) in [(1, vec![third(1)]), (2, vec![third(1), third(3)]), (3, vec![third(3)])] {
        let node = world.node(node);
        let seeing = Arc::new(Seeing {
            gates: node.gates.clone(),
            parts: changed.clone(),
            blocked: AtomicUsize::new(0),
        });
        let mut installed = node.installed.subscribe();
        installed.mark_unchanged();
        let mut change = pin!(installed.changed());
        let waker = Waker::from(seeing.clone());
        assert!(change.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        node.update(&second);
        assert_eq!(seeing.blocked.load(Ordering::SeqCst), changed.len(), "{}", node.me);
        assert_eq!(node.gates.len(), changed.len(), "unchanged parts have no gate");
    }
    assert_eq!(world.events(), [""; 0], "nothing moved before the views were seen");
    world.run();
    let events = world.events();
    assert!(events.iter().any(|event| event == "n2.1 pull n1.1"), "{events:?}");
    assert!(!events.iter().any(|event| event.contains("collect")), "{events:?}");
    world.assert_quiet();
}

#[test]
fn case_40_a_skipped_view_means_recovery_of_all_that_changed() {
    let [first, _, third_view] = views([[1, 1, 2], [3, 1, 2], [2, 1, 2]]);
    let mut world: World = World::under(&first);
    world.register(3, point(1)).unwrap();
    world.register(3, point(2)).unwrap();
    world.events();
    // View 2 is never seen by anybody.
    world.publish_to(&[1, 2, 3], &third_view);
    world.run();
    let events = world.events();
    assert!(events.iter().all(|event| !event.contains("pull") && !event.contains("takes")), "{events:?}");
    assert!(events.iter().any(|event| event == "n1.1 discards"));
    assert!(events.iter().any(|event| event == "n2.1 recovers"));
    world.assert_whole(&third_view, &[point(1), point(2)]);
    world.assert_quiet();
}

#[test]
fn case_41_what_was_away_in_a_skipped_view_is_drained_dropped_and_recovered() {
    let [first, _, back] = views([[1, 1, 2], [2, 1, 2], [1, 1, 2]]);
    let mut world: World = World::under(&first);
    world.register(3, point(1)).unwrap();
    world.register(3, point(2)).unwrap();
    // Something of the first reign that nobody else knows of: a cache, a lock.
    let node = world.node(1);
    let stale = Point(point(1).0 + 1);
    node.service.directory.lock().insert(stale, (member(1), ViewId(1)));
    world.events();
    world.publish_to(&[1, 2, 3], &back);
    world.run();
    let events = world.events();
    assert!(events.iter().any(|event| event == "n1.1 discards"), "{events:?}");
    assert!(events.iter().any(|event| event == "n1.1 recovers"));
    assert!(!node.service.directory.lock().contains_key(&stale), "the first reign's things are gone");
    world.assert_whole(&back, &[point(1), point(2)]);
    world.assert_quiet();
}

#[test]
fn case_42_under_another_authority_nothing_is_kept_though_epochs_are_equal() {
    let [first] = views([[1, 1, 2]]);
    let mut world: World = World::under(&first);
    world.register(3, point(1)).unwrap();
    world.register(3, point(3)).unwrap();
    world.events();
    // The control group was rebuilt: the next number, the same owners in the same epochs.
    let header =
        Header { id: ViewId(2), predecessor: Some(ViewId(1)), authority: Authority(2), watermark: 0 };
    let shards =
        first.map().shards().map(|(shard, range)| (shard, range, first.owners().holder(&shard).unwrap()));
    let rebuilt = RingView::new(header, [1, 2, 3].map(member), shards).unwrap();
    for node in [1, 2, 3] {
        let node = world.node(node);
        node.provider.change_authority(rebuilt.clone());
        node.coordinator.update(&node.current()).unwrap();
    }
    world.run();
    let events = world.events();
    for expected in ["n1.1 discards", "n1.1 recovers", "n2.1 discards", "n2.1 recovers"] {
        assert!(events.iter().any(|event| event == expected), "{expected}: {events:?}");
    }
    world.assert_whole(&rebuilt, &[point(1), point(3)]);
    world.assert_quiet();
}

#[test]
fn case_46_a_release_waits_for_the_unfinished_acquisition_before_it_and_not_for_itself() {
    let [first, second, last] = views([[1, 1, 1], [2, 1, 1], [3, 1, 1]]);
    let mut world: World = World::under(&first);
    world.register(3, point(1)).unwrap();
    world.events();
    world.hold("pull");
    world.publish_to(&[1, 2, 3], &second);
    world.run();
    // Node 2 is still acquiring when it has to release again.
    world.publish_to(&[1, 2, 3], &last);
    world.run();
    assert_eq!(world.node(2).gates.len(), 2);
    assert!(!world.events().iter().any(|event| event == "n2.1 takes"), "nothing to take yet");
    world.let_go("pull");
    world.run();
    let events = world.events();
    let at = |what: &str| {
        events.iter().position(|event| event == what).unwrap_or_else(|| panic!("{what}: {events:?}"))
    };
    assert!(at("n2.1 acknowledge n1.1") < at("n2.1 takes"));
    assert!(at("n2.1 takes") < at("n3.1 acknowledge n2.1"));
    world.assert_whole(&last, &[point(1)]);
    world.assert_quiet();
}

#[test]
fn case_54_a_request_of_the_newer_view_waits_for_the_older_acquisition_too() {
    let [first, second, last] = views([[1, 1, 1], [2, 1, 1], [2, 3, 1]]);
    let mut world: World = World::under(&first);
    world.register(3, point(1)).unwrap();
    world.hold("fence");
    world.publish_to(&[1, 2, 3], &second);
    world.run();
    // Another part changes; this one's acquisition goes on under the newer view.
    world.publish_to(&[1, 2, 3], &last);
    world.run();
    let mut looking = world.start(world.node(2).lookup(point(1)));
    world.run();
    assert!(looking.is_waiting());
    world.let_go("fence");
    world.run();
    assert_eq!(looking.now().unwrap().unwrap(), Some(member(3)));
    world.assert_quiet();
}

#[test]
fn case_55_a_release_keeps_its_state_for_its_partner_though_a_newer_view_came() {
    let [first, second, last] = views([[1, 1, 1], [2, 1, 1], [2, 3, 1]]);
    let mut world: World = World::under(&first);
    world.register(3, point(1)).unwrap();
    world.hold("drain");
    world.publish_to(&[1, 2, 3], &second);
    world.run();
    world.publish_to(&[1, 2, 3], &last);
    world.run();
    world.events();
    world.let_go("drain");
    world.run();
    let events = world.events();
    assert!(events.iter().any(|event| event == "n2.1 acknowledge n1.1"), "{events:?}");
    assert!(!events.iter().any(|event| event.contains("collect")), "handed over, not recovered: {events:?}");
    world.assert_whole(&last, &[point(1)]);
    world.assert_quiet();
}

#[test]
fn case_58_work_alone_keeps_changes_out_and_lets_them_go_on() {
    let [first] = views([[1, 1, 1]]);
    let mut world: World = World::under(&first);
    world.register(3, point(1)).unwrap();
    let node = world.node(1);
    let inside = node.admission.enter_shard(ViewId(1)).unwrap();
    let (scanning, scanned) = (node.clone(), Flag::default());
    let scan = world.start({
        let scanned = scanned.clone();
        async move {
            let count = async {
                scanned.raise();
                scanning.service.directory.lock().len()
            };
            scanning.coordinator.alone(Range::Full, count).await
        }
    });
    world.run();
    assert!(!scanned.is_up(), "one is still inside");
    let mut registering = world.start(node.register(point(2)));
    world.run();
    assert!(registering.is_waiting());
    drop(inside);
    world.run();
    assert_eq!(scan.now().unwrap(), Ok(1), "what was there before, and nothing that waited");
    registering.now().unwrap().unwrap();
    world.assert_whole(&first, &[point(1), point(2)]);
    world.assert_quiet();
}

#[test]
fn case_58_work_alone_that_is_given_up_lets_the_others_go_on() {
    let [first] = views([[1, 1, 1]]);
    let mut world: World = World::under(&first);
    let node = world.node(1);
    let mut registering;
    {
        let mut scan = Box::pin(node.coordinator.alone(Range::Full, std::future::pending::<()>()));
        assert!(scan.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        registering = world.start(node.register(point(2)));
        world.run();
        assert!(registering.is_waiting());
    }
    world.run();
    registering.now().unwrap().unwrap();
    world.assert_quiet();
}

#[test]
fn case_58_nothing_is_installed_under_work_that_began_alone_before() {
    let [first, second] = views([[1, 1, 1], [2, 1, 1]]);
    let mut world: World = World::under(&first);
    world.register(3, point(1)).unwrap();
    let (node, (over, scan)) = (world.node(2), futures::channel::oneshot::channel::<()>());
    let scanning = world.start({
        let node = node.clone();
        async move { node.coordinator.alone(third(1), scan).await.map(drop) }
    });
    world.run();
    world.publish_to(&[1, 2, 3], &second);
    world.run();
    assert!(node.service.directory.lock().is_empty(), "the state is here, and waits");
    over.send(()).unwrap();
    world.run();
    assert_eq!(scanning.now(), Some(Ok(())));
    world.assert_whole(&second, &[point(1)]);
    world.assert_quiet();
}

#[test]
fn case_129_a_part_that_is_taken_back_before_anything_was_installed_ends_superseded() {
    // The state stays with the first owner until somebody has it: nothing is lost by giving way.
    let [first, second, back] = views([[1, 1, 1], [2, 1, 1], [1, 1, 1]]);
    let mut world: World<true> = World::under(&first);
    world.register(3, point(1)).unwrap();
    // The move never begins: the new owner cannot get what it needs.
    world.hold("pull");
    world.publish_to(&[1, 2, 3], &second);
    world.run();
    world.publish_to(&[1, 2, 3], &back);
    world.run();
    let events = world.events();
    assert!(events.iter().any(|event| event == "n2.1 renounce n1.1"), "{events:?}");
    assert!(world.node(2).gates.is_empty(), "acquisition and release of the second owner have ended");
    world.let_go("pull");
    world.run();
    world.assert_quiet();
    world.assert_whole(&back, &[point(1)]);
    assert_eq!(world.lookup(1, point(1)).unwrap(), Some(member(3)));
    let refused = world.lookup(2, point(1)).unwrap_err();
    assert!(
        matches!(refused, crate::admission::Refusal::RefreshRequired { owner: Some(owner), .. } if owner == member(1))
    );
}

#[test]
fn case_135_of_two_rapid_moves_the_second_waits_on_every_member() {
    let [first, second, last] = views([[1, 1, 1], [2, 1, 1], [3, 1, 1]]);
    let mut world: World = World::under(&first);
    world.register(1, point(1)).unwrap();
    world.hold("fence");
    for view in [&second, &last] {
        world.publish_to(&[1, 2, 3], view);
        world.run();
    }
    assert!(
        world.node(3).service.directory.lock().is_empty(),
        "the third has nothing before the second's fence"
    );
    assert!(!world.events().iter().any(|event| event == "n2.1 takes"));
    world.let_go("fence");
    world.run();
    world.assert_whole(&last, &[point(1)]);
    world.assert_quiet();
    assert_eq!(world.node(3).current().id(), ViewId(3));
}
