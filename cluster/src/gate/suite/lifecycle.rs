//! One gate: cases 1–4 and 6–10. Case 5 is what does not compile (`tests/compile_fail`).

use std::{
    pin::pin,
    task::{Context, Poll, Waker},
};

use super::*;

/// A release's or an acquisition's way through phases, by name.
type Steps<T> = &'static [fn(&T) -> Result<(), Misstep>];

fn acquisition_after(steps: usize) -> Acquisition {
    let way: Steps<Acquisition> = &[Acquisition::state_installed, Acquisition::fenced];
    let acquisition = Acquisition::new(v(5), Some(v(4)));
    way[..steps].iter().for_each(|step| step(&acquisition).unwrap());
    acquisition
}

fn release_after(release: Release, steps: usize) -> Release {
    let way: Steps<Release> = &[Release::drained, Release::state_retained];
    way[..steps].iter().for_each(|step| step(&release).unwrap());
    release
}

fn same_error(a: &Failure, b: &Failure) -> bool {
    Arc::ptr_eq(a, b)
}

fn failure_of(gate: &Gate) -> Failure {
    match gate.completion().now() {
        Some(Ended::Failed(failure)) => failure,
        other => panic!("{other:?} is no failure"),
    }
}

#[test]
fn case_1_an_acquisition_completes_only_when_it_is_fenced() {
    for early in [0, 1] {
        let acquisition = acquisition_after(early);
        let phase = acquisition.phase();
        let refused = acquisition.complete().unwrap_err();
        assert_eq!(refused, Misstep::NotReady { kind: Kind::Acquisition, phase });
        assert_eq!((acquisition.status(), acquisition.phase()), (Status::Failed, phase));
        assert!(acquisition.gate().is_blocking());
    }
    let acquisition = acquisition_after(2);
    assert_eq!((acquisition.complete(), acquisition.status()), (Ok(()), Status::Completed));
    assert!(!acquisition.gate().is_blocking());
}

#[test]
fn case_2_a_release_completes_when_its_state_is_kept_or_nothing_is_to_be_kept() {
    let of_state = || Release::of_state(v(5), v(4));
    let of_nothing = || Release::of_nothing(v(5), None);
    for (release, ready) in [
        (release_after(of_state(), 0), false),
        (release_after(of_state(), 1), false),
        (release_after(of_state(), 2), true),
        (release_after(of_nothing(), 0), false),
        (release_after(of_nothing(), 1), true),
    ] {
        let said = format!("{release:?}");
        assert_eq!(release.complete().is_ok(), ready, "{said}");
        assert_eq!(release.gate().is_blocking(), !ready, "{said}");
    }
    // Whoever was to come is gone before the state is kept.
    let release = release_after(of_state(), 1);
    release.keep_nothing().unwrap();
    assert!(!release.keeps_state());
    assert_eq!(release.complete(), Ok(()));
    // Kept is kept.
    let kept = release_after(of_state(), 2);
    assert!(kept.keep_nothing().is_err() && kept.keeps_state());
    // And nothing cannot be kept.
    assert!(release_after(of_nothing(), 1).state_retained().is_err());
}

#[test]
fn case_3_a_barrier_completes_at_once() {
    let barrier = Barrier::new(v(5));
    assert!(barrier.gate().is_blocking());
    assert_eq!(barrier.complete(), Ok(()));
    assert!(!barrier.gate().is_blocking());
}

#[test]
fn case_4_a_phase_skipped_repeated_or_taken_back_changes_nothing() {
    for (steps, wrong) in [
        (0, Acquisition::fenced as fn(&Acquisition) -> Result<(), Misstep>),
        (1, Acquisition::state_installed),
        (2, Acquisition::state_installed),
        (2, Acquisition::fenced),
    ] {
        let acquisition = acquisition_after(steps);
        let before = (acquisition.phase(), acquisition.status());
        assert!(matches!(wrong(&acquisition), Err(Misstep::Phase { .. })));
        assert_eq!((acquisition.phase(), acquisition.status()), before);
        assert!(acquisition.gate().completion().now().is_none());
    }
    for (steps, wrong) in [
        (0, Release::state_retained as fn(&Release) -> Result<(), Misstep>),
        (1, Release::drained),
        (2, Release::drained),
        (2, Release::state_retained),
    ] {
        let release = release_after(Release::of_state(v(5), v(4)), steps);
        let before = (release.phase(), release.status());
        assert!(matches!(wrong(&release), Err(Misstep::Phase { .. })));
        assert_eq!((release.phase(), release.status()), before);
    }
}

#[test]
fn case_6_every_waiter_of_a_failed_gate_gets_the_very_error() {
    let acquisition = acquisition_after(1);
    let gate = acquisition.gate();
    let mut early = pin!(gate.completion());
    let mut context = Context::from_waker(Waker::noop());
    assert!(early.as_mut().poll(&mut context).is_pending());
    let error = broken("disk");
    assert!(acquisition.fail(error.clone()));
    assert!(gate.is_blocking());
    let Poll::Ready(Ended::Failed(seen)) = early.as_mut().poll(&mut context) else { panic!("no error") };
    assert!(same_error(&seen, &error));
    assert!(same_error(&failure_of(&gate), &error));
    assert!(failure_of(&gate).downcast_ref::<Broken>().is_some());
}

#[test]
fn case_7_the_first_end_wins() {
    let (first, second) = (broken("first"), broken("second"));
    let failed = acquisition_after(2);
    assert!(failed.fail(first.clone()));
    assert!(!failed.fail(second.clone()));
    assert_eq!(failed.complete(), Err(Misstep::Over(Status::Failed)));
    assert!(same_error(&failure_of(&failed.gate()), &first));

    let completed = acquisition_after(2);
    completed.complete().unwrap();
    assert!(!completed.fail(second));
    assert_eq!(completed.complete(), Err(Misstep::Over(Status::Completed)));
    assert!(matches!(completed.gate().completion().now(), Some(Ended::Completed)));
    assert!(!completed.gate().is_blocking());
}

#[test]
fn case_8_a_completion_that_is_not_ready_fails_the_gate_with_its_reason() {
    let release = release_after(Release::of_state(v(5), v(4)), 1);
    let reason = release.complete().unwrap_err();
    let gate = release.gate();
    assert!(gate.is_blocking());
    assert_eq!(failure_of(&gate).downcast_ref::<Misstep>(), Some(&reason));
    assert_eq!(release.state_retained(), Err(Misstep::Over(Status::Failed)), "too late");
}

#[test]
fn case_9_an_abort_ends_blocking_and_hides_no_error() {
    let pending = acquisition_after(1);
    pending.abort();
    assert_eq!(pending.status(), Status::Aborted);
    assert!(!pending.gate().is_blocking());
    assert!(matches!(pending.gate().completion().now(), Some(Ended::Aborted)));

    let failed = acquisition_after(1);
    let error = broken("disk");
    failed.fail(error.clone());
    failed.abort();
    assert_eq!(failed.status(), Status::Aborted);
    assert!(!failed.gate().is_blocking());
    assert!(same_error(&failure_of(&failed.gate()), &error));

    let completed = acquisition_after(2);
    completed.complete().unwrap();
    completed.abort();
    assert_eq!(completed.status(), Status::Completed);
}

#[test]
fn case_10_a_waiter_that_goes_away_takes_only_itself() {
    let acquisition = acquisition_after(2);
    let gate = acquisition.gate();
    let wakes: Vec<Arc<Wakes>> = (0..3).map(|_| Arc::default()).collect();
    let mut waiters: Vec<_> = wakes
        .iter()
        .map(|wakes| {
            let mut completion = Box::pin(gate.completion());
            let waker = Waker::from(wakes.clone());
            assert!(completion.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            completion
        })
        .collect();
    assert_eq!(gate.core.waiters(), 3);
    drop(waiters.remove(1));
    assert_eq!((gate.core.waiters(), acquisition.status()), (2, Status::Pending));
    acquisition.complete().unwrap();
    assert_eq!(wakes.iter().map(|wakes| wakes.count()).collect::<Vec<_>>(), [1, 0, 1]);
    for mut waiter in waiters {
        let mut context = Context::from_waker(Waker::noop());
        assert!(matches!(waiter.as_mut().poll(&mut context), Poll::Ready(Ended::Completed)));
    }
}

/// Part of case 56: however its driver goes away, a gate is not forgotten.
#[test]
fn a_driver_that_goes_away_fails_its_gate() {
    let acquisition = acquisition_after(1);
    let gate = acquisition.gate();
    drop(acquisition);
    assert!(gate.is_blocking());
    assert!(matches!(
        failure_of(&gate).downcast_ref::<Misstep>(),
        Some(Misstep::Abandoned { phase: Phase::StateInstalled, .. })
    ));
}

/// The unit side of case 129.
#[test]
fn an_acquisition_gives_way_to_a_newer_view_only_before_it_holds_anything() {
    let acquisition = acquisition_after(0);
    assert!(acquisition.supersede(v(5)).is_err(), "the same view is not newer");
    assert_eq!(acquisition.status(), Status::Pending);
    acquisition.supersede(v(6)).unwrap();
    assert_eq!(acquisition.status(), Status::Superseded);
    assert!(!acquisition.gate().is_blocking());
    assert!(matches!(acquisition.gate().completion().now(), Some(Ended::Superseded(ViewId(6)))));
    assert_eq!(acquisition.state_installed(), Err(Misstep::Over(Status::Superseded)));
    for late in [1, 2] {
        let acquisition = acquisition_after(late);
        assert!(matches!(acquisition.supersede(v(6)), Err(Misstep::NotSupersedable { .. })));
        assert!(acquisition.gate().is_blocking());
    }
}

#[test]
fn case_119_a_gate_is_one_object_and_its_steps_are_none() {
    let counted = allocation_counter::measure(|| {
        let acquisition = acquisition_after(2);
        acquisition.complete().unwrap();
        assert!(!acquisition.gate().is_blocking());
    });
    assert_eq!(counted.count_total, 1);
    assert!(counted.bytes_total <= 192, "{} bytes", counted.bytes_total);
    // An entry of the map, and nothing else.
    let (map, acquisition) = (RangeMap::new(), acquisition_after(0));
    let counted =
        allocation_counter::measure(|| map.register(crate::ring::Range::Full, &acquisition).unwrap());
    assert_eq!(counted.count_total, 1);
}
