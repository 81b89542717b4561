//! The views' test cases: 24 (the shared refresh), 35–43 and 71.

use std::{
    cell::Cell,
    collections::{BTreeSet, HashMap, VecDeque},
    hash::{Hash, Hasher},
    sync::Arc,
};

use futures::{
    FutureExt,
    channel::oneshot,
    executor::block_on,
    future::{BoxFuture, join_all},
};
use model::id::{Epoch, NodeId, Point, ShardId, ViewId};
use parking_lot::Mutex;
use proptest::prelude::*;

use crate::{
    gate::Failure,
    ring::{CONTROL, Range},
};

use super::*;

fn member(node: u32) -> Member {
    Member { node: NodeId(node), incarnation: 1 }
}

fn header(id: u64) -> Header {
    let predecessor = Some(ViewId(id - 1)).filter(|before| before.0 > 0);
    Header { id: ViewId(id), predecessor, authority: Authority(1), watermark: 0 }
}

fn held(node: u32, epoch: u64) -> Held {
    Held { owner: Some(member(node)), epoch: Epoch(epoch) }
}

fn view(id: u64, held_by: &[(&'static str, Held)]) -> View<&'static str> {
    View::new(header(id), (1..4).map(member), held_by.iter().copied()).unwrap()
}

/// An authority that answers when it is told to.
#[derive(Clone, Default)]
struct Asked(Arc<Mutex<VecDeque<oneshot::Sender<Result<View<&'static str>, Failure>>>>>);

impl Source<View<&'static str>> for Asked {
    fn latest(&self, _: Option<ViewId>) -> BoxFuture<'static, Result<View<&'static str>, Failure>> {
        let (answer, answered) = oneshot::channel();
        self.0.lock().push_back(answer);
        answered.map(|answer| answer.expect("the test answers")).boxed()
    }
}

impl Asked {
    fn count(&self) -> usize {
        self.0.lock().len()
    }

    fn answer(&self, view: View<&'static str>) {
        let answer = self.0.lock().pop_front().unwrap();
        assert!(answer.send(Ok(view)).is_ok(), "the refresh was given up");
    }
}

fn provider() -> (Provider<View<&'static str>>, Asked) {
    let asked = Asked::default();
    (Provider::new(asked.clone()), asked)
}

#[test]
fn case_35_facts_that_contradict_each_other_make_no_view() {
    let resources = || [("a", held(1, 1)), ("b", held(2, 1))];
    let blank = Member { node: NodeId(0), incarnation: 1 };
    let unborn = Member { node: NodeId(3), incarnation: 0 };
    let reborn = Member { node: NodeId(1), incarnation: 2 };
    for (members, fault) in [
        // Last in order, to be found before anything is sorted.
        (vec![member(2), member(1), blank], Fault::Blank(blank)),
        (vec![member(2), unborn, member(1)], Fault::Blank(unborn)),
        (vec![member(2), member(1), member(2)], Fault::Twice(member(2))),
        (vec![member(2), member(1), reborn], Fault::Twice(reborn)),
        (vec![member(2)], Fault::Stranger(member(1))),
        // An older life of a member owns nothing.
        (vec![member(2), reborn], Fault::Stranger(member(1))),
    ] {
        assert_eq!(View::new(header(1), members, resources()), Err(fault));
    }
    let twice = [("a", held(1, 1)), ("a", held(2, 1))];
    assert_eq!(
        View::new(header(1), [member(1), member(2)], twice),
        Err(Fault::TwoOwners("\"a\"".to_owned()))
    );
    let future = Header { predecessor: Some(ViewId(2)), ..header(2) };
    assert_eq!(View::new(future, [member(1)], [("a", held(1, 1))]), Err(Fault::Header(ViewId(2))));
    // Members come in any order, and are then in order.
    let sound = View::new(header(1), [member(2), member(1)], resources()).unwrap();
    assert_eq!(sound.members(), [member(1), member(2)]);
}

fn thirds() -> Vec<(ShardId, Range, Held)> {
    let parts = Range::Full.divide(3);
    parts.zip(1..).map(|(range, number)| (ShardId(number), range, held(number, 1))).collect()
}

#[test]
fn case_35_shards_must_cover_the_ring_once() {
    let members = || (1..4).map(member);
    let sound = RingView::new(header(1), members(), thirds()).unwrap();
    assert_eq!(sound.owners().holder(&sound.map().shard_of(Point(5))), Some(held(1, 1)));
    let mut met = Vec::new();
    sound.visit_range_owners(Range::between(Point(5), Point(2 << 30)), |shard, _, held| {
        met.push((shard, held.and_then(|held| held.owner)));
    });
    assert_eq!(met, [(ShardId(1), Some(member(1))), (ShardId(2), Some(member(2)))]);

    let mut gap = thirds();
    gap.pop();
    assert!(matches!(RingView::new(header(1), members(), gap), Err(Fault::Ring(_))));
    let mut nothing = thirds();
    nothing.push((ShardId(9), Range::Empty, held(1, 1)));
    assert!(matches!(RingView::new(header(1), members(), nothing), Err(Fault::Ring(_))));
    let mut control = thirds();
    control[0].0 = CONTROL;
    assert_eq!(RingView::new(header(1), members(), control), Err(Fault::Control(CONTROL)));
    assert!(matches!(RingView::new(header(1), members(), []), Err(Fault::Ring(_))));
}

#[test]
fn case_35_bytes_of_a_view_are_checked_like_facts() {
    let bytes = RingView::new(header(7), (1..4).map(member), thirds()).unwrap().encode();
    assert_eq!(RingView::decode(&bytes).unwrap().encode(), bytes);
    for len in 0..bytes.len() {
        assert!(RingView::decode(&bytes[..len]).is_err(), "{len} bytes of a view");
    }
    assert!(RingView::decode(&[&bytes[..], &[0]].concat()).is_err());
    // Members 2 and 1 instead of 1 and 2: in no order.
    let mut unsorted = bytes.to_vec();
    let members = 1 + 8 + 8 + 16 + 8 + 4;
    unsorted[members + 3] = 2;
    unsorted[members + 12 + 3] = 1;
    assert_eq!(RingView::decode(&unsorted), Err(Fault::Unsorted));
    // Whatever bit is turned, it is an error or another view with these bytes.
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.to_vec();
        damaged[bit / 8] ^= 1 << (bit % 8);
        if let Ok(view) = RingView::decode(&damaged) {
            assert_eq!(view.encode(), damaged);
        }
    }
}

#[test]
fn case_36_a_provider_drops_older_views_and_refuses_a_second_history() {
    let (provider, _) = provider();
    let five = || view(5, &[("a", held(1, 1))]);
    assert_eq!(provider.publish(five()), Ok(Publication::Current));
    assert_eq!(provider.publish(view(4, &[])), Ok(Publication::Older));
    assert_eq!(provider.publish(view(1, &[])), Ok(Publication::Older), "also the first of all");
    assert_eq!(provider.publish(five()), Ok(Publication::Same));
    assert_eq!(provider.publish(view(5, &[("a", held(2, 1))])), Err(Conflict { id: ViewId(5) }));
    let foreign = Header { authority: Authority(2), ..header(6) };
    let foreign = View::new(foreign, [member(1)], [("a", held(1, 1))]).unwrap();
    assert_eq!(provider.publish(foreign), Err(Conflict { id: ViewId(6) }));
    assert_eq!(*provider.find_current().unwrap(), five());
}

#[test]
fn case_37_a_consumer_installs_only_what_its_provider_has_published() {
    let (ours, _) = provider();
    let (other, _) = provider();
    ours.publish(view(5, &[])).unwrap();
    other.publish(view(6, &[])).unwrap();
    let installed = Installed::new(ours.clone());
    let never = |_: Option<&_>, _: &_| -> Result<(), ()> { panic!("a gate was registered") };
    let foreign = other.find_current().unwrap();
    assert_eq!(installed.install(&foreign, never), Err(NotInstalled::NotPublished(ViewId(6))));
    assert_eq!(installed.id(), ViewId(0));

    let five = ours.find_current().unwrap();
    let mut seen_before = None;
    let registered = installed.install(&five, |before, now| {
        assert_eq!((before, now.id()), (None, ViewId(5)));
        // Nothing is seen while gates are registered.
        seen_before = Some(installed.id());
        Ok::<_, ()>("gates")
    });
    assert_eq!((registered, seen_before, installed.id()), (Ok("gates"), Some(ViewId(0)), ViewId(5)));
    assert_eq!(installed.install(&five, never), Err(NotInstalled::Old { current: ViewId(5) }));

    ours.publish(view(6, &[])).unwrap();
    let six = ours.find_current().unwrap();
    let refused = installed.install(&six, |_, _| Err::<(), _>("two gates of one view"));
    assert_eq!(refused, Err(NotInstalled::Refused("two gates of one view")));
    assert_eq!(installed.id(), ViewId(5), "what was refused is not seen");
}

#[test]
fn case_38_an_update_between_comparing_and_waiting_is_not_lost() {
    let (provider, asked) = provider();
    provider.publish(view(4, &[])).unwrap();
    let mut wait = Box::pin(provider.at_least(ViewId(5)));
    // The first poll has compared and waits; the authority's answer never comes, the update does.
    assert!(wait.as_mut().now_or_never().is_none());
    assert_eq!(asked.count(), 1);
    provider.publish(view(5, &[])).unwrap();
    assert_eq!(wait.now_or_never().unwrap().unwrap().id(), ViewId(5));

    // One that comes before the first poll is seen by the comparison.
    let wait = provider.at_least(ViewId(6));
    provider.publish(view(7, &[])).unwrap();
    assert_eq!(wait.now_or_never().unwrap().unwrap().id(), ViewId(7));
    assert_eq!(asked.count(), 1, "what is here is not asked for");
}

#[test]
fn case_24_one_refresh_is_shared_and_outlives_who_gives_up() {
    let (provider, asked) = provider();
    provider.publish(view(4, &[])).unwrap();
    let mut waits: Vec<_> = (0..100).map(|_| Box::pin(provider.at_least(ViewId(6)))).collect();
    for wait in &mut waits {
        assert!(wait.as_mut().now_or_never().is_none());
    }
    assert_eq!(asked.count(), 1);
    // The one who began it goes away.
    drop(waits.remove(0));
    asked.answer(view(6, &[]));
    for answer in block_on(join_all(waits)) {
        assert_eq!(answer.unwrap().id(), ViewId(6));
    }
    // Another target is another question; one whose answer is too old is an error, never an older view.
    let mut behind = Box::pin(provider.at_least(ViewId(9)));
    assert!(behind.as_mut().now_or_never().is_none());
    asked.answer(view(8, &[]));
    assert!(matches!(block_on(behind), Err(Lost::Behind(ViewId(8)))));
}

#[test]
fn case_39_updates_begin_with_the_current_view_only_grow_and_end() {
    let (provider, _) = provider();
    let mut early = provider.updates();
    assert!(early.next().now_or_never().is_none());
    provider.publish(view(3, &[])).unwrap();
    let mut updates = provider.updates();
    assert_eq!(updates.next().now_or_never().flatten().unwrap().id(), ViewId(3));
    assert!(updates.next().now_or_never().is_none());
    for id in [4, 5, 2, 8] {
        let _ = provider.publish(view(id, &[]));
    }
    assert_eq!(updates.next().now_or_never().flatten().unwrap().id(), ViewId(8), "some are left out");
    assert_eq!(early.next().now_or_never().flatten().unwrap().id(), ViewId(8));
    let _ = provider.publish(view(8, &[]));
    assert!(updates.next().now_or_never().is_none(), "the same view is no update");
    provider.close();
    assert!(updates.next().now_or_never().unwrap().is_none());
    assert!(matches!(block_on(provider.at_least(ViewId(99))), Err(Lost::Closed)));
}

#[test]
fn case_40_a_skipped_view_is_no_predecessor() {
    let (five, six, eight) = (view(5, &[]), view(6, &[]), view(8, &[]));
    assert!(six.follows(&five));
    assert!(!eight.follows(&five) && !five.follows(&six) && !five.follows(&five));
}

#[test]
fn case_41_what_was_away_in_a_skipped_view_is_not_retained() {
    let before = view(5, &[("a", held(1, 3)), ("b", held(1, 1)), ("c", held(2, 1))]);
    // In views 6 and 7 "a" went to another and came back.
    let after = view(8, &[("a", held(1, 5)), ("b", held(1, 1)), ("c", held(1, 2))]);
    let mut change = delta(before.held_by(member(1)), after.held_by(member(1)));
    change.acquired.sort_unstable();
    assert_eq!(change.retained, [("b", Epoch(1))]);
    assert_eq!(change.released, [("a", Epoch(3))]);
    assert_eq!(change.acquired, [("a", Epoch(5)), ("c", Epoch(2))]);
}

#[test]
fn case_42_another_authority_is_never_contiguous_and_ends_waits() {
    let (provider, asked) = provider();
    provider.publish(view(5, &[("a", held(1, 1))])).unwrap();
    let mut wait = Box::pin(provider.at_least(ViewId(6)));
    assert!(wait.as_mut().now_or_never().is_none());
    // The numbers line up.
    let rebuilt = Header { authority: Authority(2), ..header(6) };
    let rebuilt = View::new(rebuilt, [member(1)], [("a", held(1, 1))]).unwrap();
    assert!(!rebuilt.follows(&provider.find_current().unwrap()));
    provider.change_authority(rebuilt);
    assert!(matches!(wait.now_or_never(), Some(Err(Lost::AuthorityChanged))));
    // The old one's late answer is no view of the new one.
    if asked.count() > 0 {
        let late = asked.0.lock().pop_front().unwrap();
        assert!(late.send(Ok(view(7, &[]))).is_err(), "the question went with its authority");
    }
    assert!(provider.publish(view(7, &[])).is_err());
}

#[test]
fn case_42_a_view_of_the_old_authority_is_not_installed_over_one_of_the_new() {
    let (provider, _) = provider();
    provider.publish(view(5, &[])).unwrap();
    let old = provider.find_current().unwrap();
    let installed = Installed::new(provider.clone());
    let rebuilt = Header { authority: Authority(2), ..header(3) };
    provider.change_authority(View::new(rebuilt, [member(1)], [("a", held(1, 1))]).unwrap());
    let register = |_: Option<&_>, _: &_| Ok::<_, ()>(());
    assert_eq!(installed.install(&old, register), Err(NotInstalled::NotPublished(ViewId(5))));
    installed.install(&provider.find_current().unwrap(), register).unwrap();
    assert_eq!(installed.install(&old, register), Err(NotInstalled::NotPublished(ViewId(5))));
    assert_eq!(installed.id(), ViewId(3), "the numbers of another authority begin anew");
}

/// The part of case 44 that is in one process: whoever looks while views are published sees one of them, whole.
#[test]
fn case_44_who_looks_while_views_are_published_sees_one_of_them_whole() {
    const VIEWS: u64 = 2_000;
    let (provider, _) = provider();
    let whole = |id: u64| view(id, &[("a", held(1, id)), ("b", held(2, id)), ("c", held(3, id))]);
    provider.publish(whole(1)).unwrap();
    let installed = Arc::new(Installed::new(provider.clone()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let (provider, installed) = (provider.clone(), installed.clone());
            scope.spawn(move || {
                let mut last = ViewId(0);
                while last < ViewId(VIEWS) {
                    for seen in [provider.find_current(), installed.find_view()].into_iter().flatten() {
                        let epochs = ["a", "b", "c"].map(|unit| seen.holder(&unit).unwrap().epoch);
                        assert_eq!(epochs, [Epoch(seen.id().0); 3]);
                    }
                    let now = provider.find_current().unwrap().id();
                    assert!(now >= last);
                    last = now;
                }
            });
        }
        for id in 2..=VIEWS {
            provider.publish(whole(id)).unwrap();
            installed.install(&provider.find_current().unwrap(), |_, _| Ok::<_, ()>(())).unwrap();
        }
    });
}

proptest! {
    #[test]
    fn case_43_views_built_anywhere_of_the_same_facts_have_the_same_bytes(
        shards in 1u32..20, owners in prop::collection::vec(0u32..4, 20), seed in any::<u64>(),
    ) {
        let parts = Range::Full.divide(shards).zip(1..).zip(&owners);
        let facts: Vec<_> = parts
            .map(|((range, number), owner)| {
                let owner = Some(*owner).filter(|owner| *owner > 0).map(member);
                (ShardId(number), range, Held { owner, epoch: Epoch(u64::from(number)) })
            })
            .collect();
        let mut shuffled = facts.clone();
        shuffled.sort_by_key(|(shard, ..)| u64::from(shard.0).wrapping_mul(seed | 1));
        let here = RingView::new(header(3), (1..4).map(member), facts).unwrap();
        let there = RingView::new(header(3), (1..4).rev().map(member), shuffled).unwrap();
        prop_assert_eq!(here.encode(), there.encode());
        prop_assert_eq!(RingView::decode(&here.encode()), Ok(there));
    }

    #[test]
    fn case_71_a_delta_parts_what_was_and_what_is(
        old in prop::collection::hash_map(0u32..30, 1u64..3, 0..30),
        new in prop::collection::hash_map(0u32..30, 1u64..3, 0..30),
    ) {
        let units = |of: &HashMap<u32, u64>| -> Units<Counted> {
            of.iter().map(|(unit, epoch)| (Counted(*unit), Epoch(*epoch))).collect()
        };
        let pairs = |of: &HashMap<u32, u64>| of.iter().map(|(unit, epoch)| (*unit, *epoch)).collect::<BTreeSet<_>>();
        let (before, after) = (units(&old), units(&new));
        let hashes = HASHES.get();
        let change = delta(Some(&before), Some(&after));
        prop_assert!(HASHES.get() - hashes <= before.len() + after.len());
        let set = |part: &[(Counted, Epoch)]| part.iter().map(|(unit, epoch)| (unit.0, epoch.0)).collect::<BTreeSet<_>>();
        let (old, new) = (pairs(&old), pairs(&new));
        prop_assert_eq!(set(&change.retained), &old & &new);
        prop_assert_eq!(set(&change.released), &old - &new);
        prop_assert_eq!(set(&change.acquired), &new - &old);
        prop_assert_eq!(
            change.retained.len() * 2 + change.released.len() + change.acquired.len(),
            old.len() + new.len()
        );
    }
}

thread_local! {
    static HASHES: Cell<usize> = const { Cell::new(0) };
}

/// A unit whose look-ups are counted.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Counted(u32);

impl Hash for Counted {
    fn hash<H: Hasher>(&self, state: &mut H) {
        HASHES.set(HASHES.get() + 1);
        self.0.hash(state);
    }
}
