//! Getting in after a wait: cases 22, 24–29 and 32–34.

use std::{
    pin::Pin,
    task::{Context, Waker},
};

use futures::{StreamExt, executor::block_on, future::join_all, stream::FuturesUnordered};

use crate::gate::{Acquisition, Barrier, Release};

use super::*;

type Entering<'a> = Pin<Box<dyn Future<Output = Result<Pass, Refusal>> + Send + 'a>>;

impl Bed {
    fn enter<'a>(&'a self, request: &'a Request<Range>) -> Entering<'a> {
        Box::pin(self.admission.enter_when_ready(request, &self.views))
    }
}

fn waits(entering: &mut Entering<'_>) -> bool {
    entering.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending()
}

#[derive(Debug, thiserror::Error)]
#[error("broken")]
struct Broken;

#[test]
fn case_22_a_gate_that_comes_during_the_wait_is_waited_for_too() {
    let bed = Bed::open();
    let (first, second) = (Barrier::new(ViewId(1)), Barrier::new(ViewId(1)));
    bed.gates.register(Range::point(Point(7)), &first).unwrap();
    let request = request(1);
    let mut entering = bed.enter(&request);
    assert!(waits(&mut entering));
    assert_eq!((bed.admission.inside(), bed.parked()), (0, (1, 100)), "who waits is not inside");
    first.complete().unwrap();
    bed.gates.prune();
    bed.gates.register(Range::point(Point(7)), &second).unwrap();
    assert!(waits(&mut entering));
    second.complete().unwrap();
    assert!(block_on(entering).is_ok());
    assert_eq!(bed.parked(), (0, 0));
}

#[test]
fn case_24_one_question_serves_all_who_need_the_view_and_a_deadline_ends_one_wait() {
    let bed = Bed::open();
    let request = request(2);
    let (late, deadline) = oneshot::channel::<()>();
    let mut impatient: Entering<'_> =
        Box::pin(bed.admission.enter_by(&request, &bed.views, deadline.map(drop)));
    let mut patient: Vec<_> = (0..50).map(|_| bed.enter(&request)).collect();
    assert!(waits(&mut impatient) && patient.iter_mut().all(waits));
    assert_eq!((bed.authority.questions.lock().len(), bed.parked().0), (1, 51));
    late.send(()).unwrap();
    assert!(matches!(block_on(impatient), Err(Refusal::NotReady { view: ViewId(1) })));
    assert_eq!(bed.parked().0, 50);
    let question = bed.authority.questions.lock().pop().unwrap();
    question.send(view(2, ME)).unwrap();
    // The authority's answer is published; it counts once it is installed.
    assert!(patient.iter_mut().all(waits));
    assert_eq!(bed.provider.find_current().unwrap().owners().len(), 2);
    bed.install(view(2, ME));
    for entered in block_on(join_all(patient)) {
        assert_eq!(entered.unwrap().view(), ViewId(2));
    }
    assert_eq!(bed.parked(), (0, 0));
}

#[test]
fn case_25_a_request_of_an_older_view_waits_for_the_gate_of_the_current_one() {
    let bed = Bed::open();
    let acquisition = Acquisition::new(ViewId(2), Some(ViewId(1)));
    bed.gates.register(half(), &acquisition).unwrap();
    bed.install(view(2, ME));
    let request = request(1);
    let mut entering = bed.enter(&request);
    assert!(waits(&mut entering));
    acquisition.state_installed().unwrap();
    assert!(waits(&mut entering));
    acquisition.fenced().unwrap();
    acquisition.complete().unwrap();
    assert_eq!(block_on(entering).unwrap().view(), ViewId(2));
}

#[test]
fn case_26_a_view_that_comes_during_the_wait_is_the_one_that_judges() {
    let bed = Bed::open();
    let barrier = Barrier::new(ViewId(1));
    bed.gates.register(half(), &barrier).unwrap();
    let request = request(1);
    let mut entering = bed.enter(&request);
    assert!(waits(&mut entering));
    // While it waits the shard goes to another: release and all.
    let release = Release::of_nothing(ViewId(2), Some(ViewId(1)));
    bed.gates.register(half(), &release).unwrap();
    bed.install(view(2, OTHER));
    barrier.complete().unwrap();
    assert!(waits(&mut entering), "now the release blocks");
    block_on(bed.admission.drain());
    release.drained().unwrap();
    bed.admission.close();
    release.complete().unwrap();
    bed.gates.prune();
    assert!(matches!(
        block_on(entering),
        Err(Refusal::RefreshRequired { view: ViewId(2), owner: Some(OTHER) })
    ));
}

#[test]
fn case_27_who_is_not_the_owner_says_so_with_view_and_hint() {
    let bed = Bed::bounded(Bounds::UNIT);
    bed.install(view(1, OTHER));
    let request = request(1);
    let refused = block_on(bed.enter(&request)).unwrap_err();
    assert!(matches!(refused, Refusal::RefreshRequired { view: ViewId(1), owner: Some(OTHER) }));
    assert_eq!((refused.applied(), refused.is_retriable()), (Applied::No, true));
    // The view says it is this node's, but nothing was claimed.
    bed.install(view(2, ME));
    assert!(matches!(block_on(bed.enter(&request)), Err(Refusal::NotServing { view: ViewId(2) })));
    assert_eq!((bed.admission.inside(), bed.parked()), (0, (0, 0)));
}

#[test]
fn case_28_a_hold_keeps_registrations_off_and_nothing_else() {
    let bed = Bed::open();
    bed.clock.0.store(1_000, Ordering::SeqCst);
    bed.admission.hold_until(Duration::from_secs(4));
    bed.admission.hold_until(Duration::from_secs(2));
    let uses = request(1);
    let registers = Request { effect: Effect::Registers, ..uses };
    assert!(block_on(bed.enter(&uses)).is_ok());
    let Err(Refusal::Held { retry_after }) = block_on(bed.enter(&registers)) else { panic!("not held") };
    assert_eq!(retry_after, Duration::from_secs(3));
    // A new claim does not lift it.
    bed.admission.close();
    bed.admission.open(Epoch(2));
    assert!(matches!(block_on(bed.enter(&registers)), Err(Refusal::Held { .. })));
    bed.clock.0.store(4_000, Ordering::SeqCst);
    assert!(block_on(bed.enter(&registers)).is_ok());
    let locks = crate::sync::count::locks();
    assert!(bed.admission.try_enter(&registers).is_ok());
    assert_eq!(crate::sync::count::locks(), locks, "a hold that is over costs nothing");
}

#[test]
fn case_29_an_empty_view_is_not_final_while_the_authority_has_members() {
    let empty = |id: u64| {
        let header = Header { id: ViewId(id), predecessor: None, authority: Authority(1), watermark: 0 };
        let nobody = Held { owner: None, epoch: Epoch(1) };
        RingView::new(header, [], [(SHARD, half(), nobody), (ShardId(2), half().complement(), nobody)])
            .unwrap()
    };
    let bed = Bed::bounded(Bounds::UNIT);
    bed.install(empty(1));
    let request = request(1);
    let mut entering = bed.enter(&request);
    assert!(waits(&mut entering), "asks instead of answering");
    let question = bed.authority.questions.lock().pop().unwrap();
    question.send(view(2, OTHER)).unwrap();
    assert!(waits(&mut entering));
    bed.install(view(2, OTHER));
    assert!(matches!(block_on(entering), Err(Refusal::RefreshRequired { owner: Some(OTHER), .. })));

    // If the authority has none either, that is the answer; it is asked once.
    let bed = Bed::bounded(Bounds::UNIT);
    bed.install(empty(1));
    let mut entering = bed.enter(&request);
    assert!(waits(&mut entering));
    let question = bed.authority.questions.lock().pop().unwrap();
    question.send(empty(1)).unwrap();
    assert!(matches!(block_on(entering), Err(Refusal::RefreshRequired { view: ViewId(1), owner: None })));
    assert!(bed.authority.questions.lock().is_empty());
}

#[test]
fn case_32_a_deadline_that_has_passed_ends_at_once_and_leaves_nobody_behind() {
    let bed = Bed::open();
    let barrier = Barrier::new(ViewId(1));
    bed.gates.register(half(), &barrier).unwrap();
    for request in [request(1), request(9)] {
        let passed = std::future::ready(());
        let entering = bed.admission.enter_by(&request, &bed.views, passed);
        let refused = entering.now_or_never().expect("it does not wait").unwrap_err();
        assert!(matches!(refused, Refusal::NotReady { view: ViewId(1) }));
        assert!(refused.is_retriable());
    }
    assert_eq!((bed.admission.inside(), bed.parked()), (0, (0, 0)));
    assert!(bed.authority.questions.lock().is_empty(), "nothing was begun");
    barrier.complete().unwrap();
    // Without a wait the deadline is not looked at.
    let request = request(1);
    let entering = bed.admission.enter_by(&request, &bed.views, std::future::ready(()));
    assert!(entering.now_or_never().unwrap().is_ok());
}

#[test]
fn case_33_waiters_are_bounded_in_count_and_bytes_and_all_is_given_back() {
    let bed = Bed::bounded(Bounds { count_max: 3, bytes_max: 350 });
    bed.install(view(1, ME));
    bed.admission.open(Epoch(1));
    let barrier = Barrier::new(ViewId(1));
    bed.gates.register(half(), &barrier).unwrap();
    let request = request(1);
    let mut waiting: Vec<_> = (0..3).map(|_| bed.enter(&request)).collect();
    assert!(waiting.iter_mut().all(waits));
    let newest = bed.enter(&request).now_or_never().expect("no room to wait");
    assert!(matches!(newest, Err(Refusal::Crowded)));
    assert_eq!(bed.parked(), (3, 300));
    // One goes away; one that is too large does not get its place.
    drop(waiting.pop());
    let large = Request { bytes: 151, ..request };
    assert!(matches!(bed.enter(&large).now_or_never(), Some(Err(Refusal::Crowded))));
    let fits = Request { bytes: 150, ..request };
    waiting.push(bed.enter(&fits));
    assert!(waiting.iter_mut().all(waits));
    assert_eq!(bed.parked(), (3, 350));
    barrier.complete().unwrap();
    assert!(block_on(join_all(waiting)).iter().all(Result::is_ok));
    assert_eq!((bed.parked(), bed.admission.inside()), ((0, 0), 0));
}

#[test]
fn case_34_ten_thousand_waiters_of_one_gate_wake_once_each_in_the_order_they_came() {
    const MANY: usize = 10_000;
    let bed = Bed::bounded(Bounds { count_max: MANY, bytes_max: usize::MAX });
    bed.install(view(1, ME));
    bed.admission.open(Epoch(1));
    let barrier = Barrier::new(ViewId(1));
    bed.gates.register(half(), &barrier).unwrap();
    let request = Request { bytes: 1, ..request(1) };
    let polls = AtomicUsize::new(0);
    let mut herd: FuturesUnordered<_> = (0..MANY)
        .map(|number| {
            let mut entering = bed.enter(&request);
            let polls = &polls;
            std::future::poll_fn(move |context| {
                polls.fetch_add(1, Ordering::SeqCst);
                entering.as_mut().poll(context).map(|entered| (number, entered.is_ok()))
            })
        })
        .collect();
    // Everybody waits, in order of number.
    assert!(herd.next().now_or_never().is_none());
    // The set may yield to its executor before all were asked.
    while polls.load(Ordering::SeqCst) < MANY {
        assert!(herd.next().now_or_never().is_none());
    }
    assert_eq!(bed.parked().0, MANY);
    let asked = polls.swap(0, Ordering::SeqCst);
    barrier.complete().unwrap();
    let order: Vec<_> = block_on(herd.collect());
    assert!(order.iter().all(|(_, entered)| *entered));
    assert_eq!(asked, MANY);
    assert_eq!(polls.load(Ordering::SeqCst), MANY, "one poll each after the wake-up");
    assert!(order.iter().map(|(number, _)| *number).is_sorted());
    assert_eq!((bed.parked(), bed.admission.inside()), ((0, 0), 0));
}

#[test]
fn a_failed_gate_gives_its_error_and_an_aborted_one_a_retriable_end() {
    let bed = Bed::open();
    let acquisition = Acquisition::new(ViewId(1), None);
    bed.gates.register(half(), &acquisition).unwrap();
    let request = request(1);
    let mut early = bed.enter(&request);
    assert!(waits(&mut early));
    let error: Failure = Arc::new(Broken);
    acquisition.fail(error.clone());
    for entering in [early, bed.enter(&request)] {
        let Err(Refusal::GateFailed(seen)) = block_on(entering) else { panic!("no failure") };
        assert!(Arc::ptr_eq(&seen, &error));
    }
    let bed = Bed::open();
    let release = Release::of_nothing(ViewId(1), None);
    bed.gates.register(half(), &release).unwrap();
    let mut entering = bed.enter(&request);
    assert!(waits(&mut entering));
    bed.gates.abort_all();
    let refused = block_on(entering).unwrap_err();
    assert!(matches!(refused, Refusal::Aborted) && refused.is_retriable());
}

#[test]
fn case_118_who_is_blocked_costs_a_few_allocations_and_one_wake_up() {
    let bed = Bed::open();
    let barrier = Barrier::new(ViewId(1));
    bed.gates.register(half(), &barrier).unwrap();
    let request = request(1);
    let wakes = Arc::new(Wakes::default());
    let waker = Waker::from(wakes.clone());
    let mut context = Context::from_waker(&waker);
    let mut entering = bed.enter(&request);
    let counted = allocation_counter::measure(|| {
        assert!(entering.as_mut().poll(&mut context).is_pending());
        for _ in 0..10 {
            assert!(entering.as_mut().poll(&mut context).is_pending(), "asked again for nothing");
        }
    });
    // The wait, and its place among the waiters.
    assert!(counted.count_total <= 3, "{counted:?}");
    barrier.complete().unwrap();
    assert_eq!(wakes.0.load(Ordering::SeqCst), 1);
    let counted = allocation_counter::measure(|| assert!(entering.as_mut().poll(&mut context).is_ready()));
    assert_eq!(counted.count_total, 0);
}
