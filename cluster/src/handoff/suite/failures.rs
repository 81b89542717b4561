//! Errors and shutdowns in every place: cases 56 and 57.

use std::sync::Arc;

use futures::FutureExt;

use crate::{
    admission::Refusal,
    gate::{Ended, Gates, Misstep},
};

use super::*;
use world::Fails;

/// What is broken, on which member it shows, and over which part its gate is.
const STEPS: [(&str, u32); 5] = [("take", 1), ("discard", 1), ("install", 2), ("recover", 2), ("fence", 2)];

/// The first part moves from 1 to 2, with state; in the case of a broken discard without somebody who comes for it, in that of
/// a broken recovery without somebody who has it.
fn moves(step: &str) -> [RingView; 2] {
    match step {
        "discard" | "recover" => {
            let [first, _, last] = views([[1, 1, 1], [3, 1, 1], [2, 1, 1]]);
            [first, last]
        }
        _ => views([[1, 1, 1], [2, 1, 1]]),
    }
}

fn failed_with<T: std::error::Error + 'static>(
    node: &directory::Node,
    of: ViewId,
) -> Arc<dyn std::error::Error + Send + Sync> {
    let gate = node.gates.find_blocking(&third(1), of).expect("the gate blocks");
    match gate.completion().now() {
        Some(Ended::Failed(failure)) => {
            assert!(failure.downcast_ref::<T>().is_some(), "{failure}");
            failure
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn case_56_an_error_in_any_step_fails_the_gate_with_that_error() {
    for (step, broken) in STEPS {
        let [first, second] = moves(step);
        let mut world: World = World::under(&first);
        world.register(3, point(1)).unwrap();
        world.fail(step);
        world.publish_to(&[1, 2, 3], &second);
        world.run();
        let node = world.node(broken);
        let failure = failed_with::<Fails>(&node, ViewId(3));
        // Who comes now gets this very error, and nobody is served.
        let refused = world.lookup(broken, point(1)).unwrap_err();
        assert!(matches!(refused, Refusal::GateFailed(seen) if Arc::ptr_eq(&seen, &failure)), "{step}");
        // Other parts go on.
        assert!(world.lookup(1, point(2)).is_ok(), "{step}");
        node.gates.prune();
        assert_eq!(node.gates.len(), 1, "{step}");
    }
}

#[test]
fn case_56_a_panic_in_any_step_fails_the_gate() {
    for (step, broken) in STEPS.into_iter().chain([("drain", 1)]) {
        let [first, second] = moves(step);
        let mut world: World = World::under(&first);
        world.panic_in(step);
        world.publish_to(&[1, 2, 3], &second);
        world.run();
        failed_with::<Misstep>(&world.node(broken), ViewId(3));
    }
}

#[test]
fn case_56_a_task_that_is_dropped_before_it_began_fails_its_gate() {
    let [first, second] = views([[1, 1, 1], [2, 1, 1]]);
    let world: World = World::under(&first);
    world.publish_to(&[1, 2], &second);
    let nodes = [world.node(1), world.node(2)];
    // The executor goes away with all that was spawned.
    world.forget_tasks();
    for node in nodes {
        failed_with::<Misstep>(&node, ViewId(2));
    }
}

#[test]
fn case_57_a_shutdown_in_any_step_aborts_the_gate_and_sends_who_waits_elsewhere() {
    for (step, stopped) in [("drain", 1), ("pull", 2), ("fence", 2), ("collect", 2)] {
        let [first, second] = match step {
            "collect" => moves("recover"),
            _ => moves("take"),
        };
        let mut world: World = World::under(&first);
        world.register(3, point(1)).unwrap();
        world.hold(step);
        world.publish_to(&[1, 2, 3], &second);
        world.run();
        let node = world.node(stopped);
        let mut looking = world.start(node.lookup(point(1)));
        world.run();
        assert!(looking.is_waiting(), "{step}");
        let closing = world.start({
            let node = node.clone();
            async move { node.coordinator.shut_down(std::future::ready(())).await }
        });
        world.run();
        assert!(closing.now().is_some(), "{step}: it does not wait for what is held up");
        let refused = looking.now().expect("it was sent away").unwrap_err();
        assert!(refused.is_retriable() && matches!(refused, Refusal::Aborted), "{step}: {refused}");
        assert!(node.gates.is_empty(), "{step}: {:?}", node.gates);
        assert!(node.coordinator.retained().is_empty(), "{step}");
        // What was held up and comes now changes nothing.
        world.let_go(step);
        world.run();
        assert!(node.gates.is_empty() && node.coordinator.retained().is_empty(), "{step}");
    }
}

#[test]
fn case_57_a_shutdown_without_anything_to_do_ends_at_once() {
    let [first] = views([[1, 1, 1]]);
    let world: World = World::under(&first);
    let node = world.node(1);
    assert!(node.coordinator.shut_down(std::future::pending()).now_or_never().is_some());
}
