//! The lock table of one shard: who holds what, who waits for whom.
//!
//! Invariants:
//! - Two holders hold one thing only in compatible modes.
//! - Whoever asks for a thing queues behind those who asked before; only a holder that wants more of what it has goes
//!   first, since those behind wait for it anyway.
//! - Nobody waits in a circle: the request that would close one is refused, or an autocommit command in the circle is.
//! - A holder that ends leaves nothing behind, neither a lock nor a place in a queue.
//!
//! Pure state: it tells who was granted and who was refused, it wakes nobody and knows no time (`lock::mod` does).

use std::collections::VecDeque;

use hashbrown::HashMap;
use model::port::{LockMode, Lockable};

/// One transaction, or one autocommit command.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Holder(pub(super) u64);

/// One request that waits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Waiter(pub(super) u64);

/// How a request went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Asked {
    /// Held.
    Granted,
    /// Queued under this name.
    Waits(Waiter),
    /// Not held and not queued, because the caller does not wait.
    Taken,
    /// Refused: it would wait for itself.
    Deadlock,
    /// The holder has ended.
    Ended,
}

/// What became of waiting requests through a change of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Event {
    /// It holds its lock now.
    Granted(Waiter),
    /// It was chosen to break a circle.
    Victim(Waiter),
    /// Its holder ended.
    Ended(Waiter),
}

/// Whether the request may wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Patience {
    Waits,
    Never,
}

/// The lock table.
#[derive(Debug, Default)]
pub(super) struct Table {
    things: HashMap<Lockable, Thing>,
    holders: HashMap<Holder, Held>,
    waiters: HashMap<Waiter, Request>,
    next: u64,
}

#[derive(Debug, Default)]
struct Thing {
    granted: Vec<(Holder, LockMode)>,
    queue: VecDeque<Waiter>,
}

#[derive(Debug)]
struct Held {
    /// In order of asking; what the mode was before says how to undo it.
    taken: Vec<Taken>,
    waits: Vec<Waiter>,
    autocommit: bool,
}

#[derive(Debug)]
struct Taken {
    thing: Lockable,
    before: Option<LockMode>,
}

#[derive(Debug)]
struct Request {
    holder: Holder,
    thing: Lockable,
    mode: LockMode,
}

impl Table {
    /// Admits a holder; an autocommit command is the preferred victim of a deadlock.
    pub(super) fn begin(&mut self, autocommit: bool) -> Holder {
        self.next += 1;
        let holder = Holder(self.next);
        self.holders.insert(holder, Held { taken: Vec::new(), waits: Vec::new(), autocommit });
        holder
    }

    /// Asks for a lock. Events tell of others who were refused to let this one wait.
    pub(super) fn ask(
        &mut self,
        holder: Holder,
        thing: &Lockable,
        mode: LockMode,
        patience: Patience,
        events: &mut Vec<Event>,
    ) -> Asked {
        if !self.holders.contains_key(&holder) {
            return Asked::Ended;
        }
        let entry = self.things.entry(thing.clone()).or_default();
        let mine = entry.mode_of(holder);
        let wanted = mine.map_or(mode, |held| join(held, mode));
        if mine == Some(wanted) {
            return Asked::Granted;
        }
        if (mine.is_some() || entry.queue.is_empty()) && entry.admits(holder, wanted) {
            entry.grant(holder, wanted);
            self.note(holder, thing.clone(), mine);
            return Asked::Granted;
        }
        if patience == Patience::Never {
            self.forget_if_idle(thing);
            return Asked::Taken;
        }
        self.next += 1;
        let waiter = Waiter(self.next);
        if mine.is_some() {
            entry.queue.push_front(waiter)
        } else {
            entry.queue.push_back(waiter)
        }
        self.waiters.insert(waiter, Request { holder, thing: thing.clone(), mode: wanted });
        self.holder_mut(holder).waits.push(waiter);
        self.break_circles(waiter, events)
    }

    /// Takes a waiting request back; false if it no longer waited.
    pub(super) fn cancel(&mut self, waiter: Waiter, events: &mut Vec<Event>) -> bool {
        let Some(request) = self.waiters.remove(&waiter) else { return false };
        self.holder_mut(request.holder).waits.retain(|other| *other != waiter);
        if let Some(thing) = self.things.get_mut(&request.thing) {
            thing.queue.retain(|other| *other != waiter);
        }
        self.wake(&request.thing, events);
        true
    }

    /// How many locks the holder has taken, upgrades counted.
    pub(super) fn taken(&self, holder: Holder) -> usize {
        self.holders.get(&holder).map_or(0, |held| held.taken.len())
    }

    /// Releases what was taken after the first `keep` locks.
    pub(super) fn release_after(&mut self, holder: Holder, keep: usize, events: &mut Vec<Event>) {
        while let Some(taken) = self.pop_taken(holder, keep) {
            if let Some(thing) = self.things.get_mut(&taken.thing) {
                match taken.before {
                    Some(before) => thing.grant(holder, before),
                    None => thing.granted.retain(|(other, _)| *other != holder),
                }
            }
            self.wake(&taken.thing, events);
        }
    }

    /// Ends a holder: all its locks and waits.
    pub(super) fn end(&mut self, holder: Holder, events: &mut Vec<Event>) {
        let Some(held) = self.holders.remove(&holder) else { return };
        for waiter in held.waits {
            if let Some(request) = self.waiters.remove(&waiter) {
                if let Some(thing) = self.things.get_mut(&request.thing) {
                    thing.queue.retain(|other| *other != waiter);
                }
                events.push(Event::Ended(waiter));
                self.wake(&request.thing, events);
            }
        }
        for taken in held.taken.into_iter().filter(|taken| taken.before.is_none()) {
            if let Some(thing) = self.things.get_mut(&taken.thing) {
                thing.granted.retain(|(other, _)| *other != holder);
            }
            self.wake(&taken.thing, events);
        }
    }

    /// The holders that wait for something.
    pub(super) fn waiting(&self) -> Vec<Holder> {
        self.holders.iter().filter(|(_, held)| !held.waits.is_empty()).map(|(holder, _)| *holder).collect()
    }

    /// How many things are locked or waited for, how many holders there are, and how many requests wait.
    pub(super) fn counts(&self) -> (usize, usize, usize) {
        (self.things.len(), self.holders.len(), self.waiters.len())
    }

    fn pop_taken(&mut self, holder: Holder, keep: usize) -> Option<Taken> {
        let held = self.holders.get_mut(&holder)?;
        if held.taken.len() > keep { held.taken.pop() } else { None }
    }

    fn note(&mut self, holder: Holder, thing: Lockable, before: Option<LockMode>) {
        self.holder_mut(holder).taken.push(Taken { thing, before });
    }

    fn holder_mut(&mut self, holder: Holder) -> &mut Held {
        self.holders.get_mut(&holder).expect("locks and waits of a holder end before it does")
    }

    fn forget_if_idle(&mut self, thing: &Lockable) {
        if self.things.get(thing).is_some_and(|at| at.granted.is_empty() && at.queue.is_empty()) {
            self.things.remove(thing);
        }
    }

    /// Grants, from the front of the queue on, whatever can be held now.
    fn wake(&mut self, thing: &Lockable, events: &mut Vec<Event>) {
        while let Some(at) = self.things.get_mut(thing) {
            let Some(waiter) = at.queue.front().copied() else { break };
            let request = self.waiters.get(&waiter).expect("whoever is in a queue has a request");
            let (holder, mode) = (request.holder, request.mode);
            if !at.admits(holder, mode) {
                break;
            }
            at.queue.pop_front();
            let before = at.mode_of(holder);
            at.grant(holder, before.map_or(mode, |held| join(held, mode)));
            let request = self.waiters.remove(&waiter).expect("it was there just now");
            self.holder_mut(holder).waits.retain(|other| *other != waiter);
            self.note(holder, request.thing, before);
            events.push(Event::Granted(waiter));
        }
        self.forget_if_idle(thing);
    }

    /// Refuses requests until the new one waits in no circle, or is refused itself.
    fn break_circles(&mut self, waiter: Waiter, events: &mut Vec<Event>) -> Asked {
        loop {
            let Some(circle) = self.find_circle(waiter) else { return Asked::Waits(waiter) };
            let autocommit = circle.iter().copied().find(|member| {
                let holder = self.waiters[member].holder;
                self.holders.get(&holder).is_some_and(|held| held.autocommit)
            });
            let victim = autocommit.unwrap_or(waiter);
            self.cancel(victim, events);
            if victim == waiter {
                return Asked::Deadlock;
            }
            events.push(Event::Victim(victim));
            if !self.waiters.contains_key(&waiter) {
                // Taking the victim's place away let this one through; its event is not needed, the answer says it.
                events.retain(|event| *event != Event::Granted(waiter));
                return Asked::Granted;
            }
        }
    }

    /// A circle of waiting requests through this one, by depth-first search without recursion.
    fn find_circle(&self, start: Waiter) -> Option<Vec<Waiter>> {
        let target = self.waiters[&start].holder;
        let mut path: Vec<(Waiter, Vec<Holder>)> = vec![(start, self.blockers(start))];
        let mut seen = vec![start];
        while let Some((_, blockers)) = path.last_mut() {
            let Some(blocker) = blockers.pop() else {
                path.pop();
                continue;
            };
            if blocker == target {
                return Some(path.into_iter().map(|(waiter, _)| waiter).collect());
            }
            let waits = self.holders.get(&blocker).map(|held| held.waits.as_slice()).unwrap_or_default();
            if let Some(next) = waits.iter().copied().find(|next| !seen.contains(next)) {
                // The blocker may wait for more than one thing: it is looked at again after this branch.
                if waits.len() > 1 {
                    blockers.push(blocker);
                }
                seen.push(next);
                path.push((next, self.blockers(next)));
            }
        }
        None
    }

    /// Whom a waiting request waits for: holders in its way and requests before it that it could not pass.
    fn blockers(&self, waiter: Waiter) -> Vec<Holder> {
        let request = &self.waiters[&waiter];
        let Some(thing) = self.things.get(&request.thing) else { return Vec::new() };
        let in_way = |(holder, mode): &(Holder, LockMode)| {
            *holder != request.holder && !mode.is_compatible_with(request.mode)
        };
        let mut blockers: Vec<_> =
            thing.granted.iter().filter(|held| in_way(held)).map(|held| held.0).collect();
        let before = thing.queue.iter().take_while(|other| **other != waiter);
        blockers.extend(
            before.map(|other| self.waiters[other].holder).filter(|holder| *holder != request.holder),
        );
        blockers
    }
}

impl Thing {
    fn mode_of(&self, holder: Holder) -> Option<LockMode> {
        self.granted.iter().find(|(other, _)| *other == holder).map(|(_, mode)| *mode)
    }

    fn admits(&self, holder: Holder, mode: LockMode) -> bool {
        self.granted.iter().all(|(other, held)| *other == holder || held.is_compatible_with(mode))
    }

    fn grant(&mut self, holder: Holder, mode: LockMode) {
        match self.granted.iter_mut().find(|(other, _)| *other == holder) {
            Some((_, held)) => *held = mode,
            None => self.granted.push((holder, mode)),
        }
    }
}

/// The weakest mode that keeps out whatever either keeps out.
///
/// The row modes form a chain; `program` keeps out what `NoKeyUpdate` does except itself.
pub(in crate::owner) fn join(a: LockMode, b: LockMode) -> LockMode {
    use LockMode::{KeyShare, NoKeyUpdate, Program, Share, Update};
    match (a, b) {
        (Update, _) | (_, Update) => Update,
        (NoKeyUpdate, _) | (_, NoKeyUpdate) | (Program, Share) | (Share, Program) => NoKeyUpdate,
        (Program, _) | (_, Program) => Program,
        (Share, _) | (_, Share) => Share,
        (KeyShare, KeyShare) => KeyShare,
    }
}

#[cfg(test)]
mod tests {
    use model::id::TableId;
    use proptest::prelude::*;

    use super::{LockMode::*, *};

    fn row(name: &'static str) -> Lockable {
        Lockable::Row(TableId(1), name.as_bytes().into())
    }

    /// A table and the events since the last look.
    #[derive(Default)]
    struct Bench {
        table: Table,
        events: Vec<Event>,
    }

    impl Bench {
        fn transaction(&mut self) -> Holder {
            self.table.begin(false)
        }

        fn ask(&mut self, holder: Holder, name: &'static str, mode: LockMode) -> Asked {
            self.table.ask(holder, &row(name), mode, Patience::Waits, &mut self.events)
        }

        fn waits(&mut self, holder: Holder, name: &'static str, mode: LockMode) -> Waiter {
            match self.ask(holder, name, mode) {
                Asked::Waits(waiter) => waiter,
                other => panic!("{name}: {other:?}"),
            }
        }

        fn end(&mut self, holder: Holder) -> Vec<Event> {
            self.table.end(holder, &mut self.events);
            std::mem::take(&mut self.events)
        }
    }

    #[test]
    fn a_join_keeps_out_whatever_either_keeps_out() {
        let modes = [KeyShare, Share, NoKeyUpdate, Update, Program];
        for (a, b) in modes.into_iter().flat_map(|a| modes.into_iter().map(move |b| (a, b))) {
            for other in modes {
                let either = a.is_compatible_with(other) && b.is_compatible_with(other);
                assert!(either || !join(a, b).is_compatible_with(other), "{a:?} {b:?} {other:?}");
            }
        }
    }

    #[test]
    fn readers_share_and_writers_wait_in_order() {
        let mut bench = Bench::default();
        let (a, b, c, d) =
            (bench.transaction(), bench.transaction(), bench.transaction(), bench.transaction());
        assert_eq!(bench.ask(a, "x", Share), Asked::Granted);
        assert_eq!(bench.ask(b, "x", Share), Asked::Granted);
        let writer = bench.waits(c, "x", Update);
        let late_reader = bench.waits(d, "x", Share);
        assert_eq!(bench.end(a), []);
        assert_eq!(bench.end(b), [Event::Granted(writer)]);
        assert_eq!(bench.end(c), [Event::Granted(late_reader)]);
        bench.end(d);
        assert_eq!(bench.table.counts(), (0, 0, 0));
    }

    #[test]
    fn programs_share_a_row_and_keep_final_values_out() {
        let mut bench = Bench::default();
        let (a, b, c) = (bench.table.begin(true), bench.table.begin(true), bench.transaction());
        assert_eq!(bench.ask(a, "x", Program), Asked::Granted);
        assert_eq!(bench.ask(b, "x", Program), Asked::Granted);
        let writer = bench.waits(c, "x", NoKeyUpdate);
        bench.end(a);
        assert_eq!(bench.end(b), [Event::Granted(writer)]);
    }

    #[test]
    fn a_holder_that_wants_more_goes_first() {
        let mut bench = Bench::default();
        let (a, b, c) = (bench.transaction(), bench.transaction(), bench.transaction());
        bench.ask(a, "x", Share);
        bench.ask(b, "x", Share);
        let stranger = bench.waits(c, "x", Update);
        let upgrade = bench.waits(a, "x", Update);
        assert_eq!(bench.end(b), [Event::Granted(upgrade)]);
        assert_eq!(bench.end(a), [Event::Granted(stranger)]);
    }

    #[test]
    fn two_upgrades_of_one_row_are_a_deadlock() {
        let mut bench = Bench::default();
        let (a, b) = (bench.transaction(), bench.transaction());
        bench.ask(a, "x", Share);
        bench.ask(b, "x", Share);
        let first = bench.waits(a, "x", Update);
        assert_eq!(bench.ask(b, "x", Update), Asked::Deadlock);
        assert_eq!(bench.end(b), [Event::Granted(first)]);
    }

    #[test]
    fn whoever_closes_a_circle_is_refused() {
        let mut bench = Bench::default();
        let (a, b, c) = (bench.transaction(), bench.transaction(), bench.transaction());
        bench.ask(a, "x", Update);
        bench.ask(b, "y", Update);
        bench.ask(c, "z", Update);
        bench.waits(a, "y", Update);
        let b_waits = bench.waits(b, "z", Update);
        assert_eq!(bench.ask(c, "x", Update), Asked::Deadlock);
        assert_eq!(bench.end(c), [Event::Granted(b_waits)]);
    }

    #[test]
    fn an_autocommit_command_is_the_preferred_victim() {
        let mut bench = Bench::default();
        let (command, transaction) = (bench.table.begin(true), bench.transaction());
        bench.ask(command, "x", Update);
        bench.ask(transaction, "y", Update);
        let victim = bench.waits(command, "y", Update);
        let waiter = bench.waits(transaction, "x", Update);
        assert_eq!(std::mem::take(&mut bench.events), [Event::Victim(victim)]);
        assert_eq!(bench.end(command), [Event::Granted(waiter)]);
    }

    #[test]
    fn a_request_in_the_queue_blocks_those_behind_it_in_the_graph_too() {
        let mut bench = Bench::default();
        let (a, b, c) = (bench.transaction(), bench.transaction(), bench.transaction());
        bench.ask(a, "x", Share);
        bench.ask(c, "y", Update);
        bench.waits(b, "x", Update);
        bench.waits(c, "x", Share);
        assert_eq!(bench.ask(a, "y", Update), Asked::Deadlock, "a waits for c, c for b, b for a");
    }

    #[test]
    fn a_rollback_to_a_savepoint_gives_back_what_came_after_it() {
        let mut bench = Bench::default();
        let (a, b) = (bench.transaction(), bench.transaction());
        bench.ask(a, "x", KeyShare);
        let keep = bench.table.taken(a);
        bench.ask(a, "x", Update);
        bench.ask(a, "y", Update);
        let x = bench.waits(b, "x", NoKeyUpdate);
        bench.table.release_after(a, keep, &mut bench.events);
        assert_eq!(bench.events, [Event::Granted(x)]);
        assert_eq!(bench.ask(b, "y", Update), Asked::Granted);
    }

    #[test]
    fn a_request_that_gives_up_lets_the_next_one_through() {
        let mut bench = Bench::default();
        let (a, b, c) = (bench.transaction(), bench.transaction(), bench.transaction());
        bench.ask(a, "x", Share);
        let writer = bench.waits(b, "x", Update);
        let reader = bench.waits(c, "x", Share);
        assert!(bench.table.cancel(writer, &mut bench.events));
        assert_eq!(bench.events, [Event::Granted(reader)]);
        assert!(!bench.table.cancel(writer, &mut bench.events));
    }

    /// What must be true of a table at any time.
    fn check(table: &Table) {
        for (name, thing) in &table.things {
            for (at, (holder, mode)) in thing.granted.iter().enumerate() {
                for (other, held) in &thing.granted[at + 1..] {
                    assert!(holder != other && mode.is_compatible_with(*held), "{name:?}: {thing:?}");
                }
            }
            if let Some(first) = thing.queue.front() {
                let request = &table.waiters[first];
                assert!(
                    !thing.admits(request.holder, request.mode),
                    "{name:?} could be given to {request:?}"
                );
            }
            assert!(!thing.granted.is_empty() || !thing.queue.is_empty(), "{name:?} is kept for nobody");
        }
        for waiter in table.waiters.keys() {
            assert_eq!(table.find_circle(*waiter), None);
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Ask { holder: usize, thing: usize, mode: usize, waits: bool },
        GiveUp { holder: usize },
        Release { holder: usize, keep: usize },
        End { holder: usize },
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let ask = (0..6usize, 0..4usize, 0..5usize, any::<bool>())
            .prop_map(|(holder, thing, mode, waits)| Step::Ask { holder, thing, mode, waits });
        let step = prop_oneof![
            8 => ask,
            1 => (0..6usize).prop_map(|holder| Step::GiveUp { holder }),
            1 => (0..6usize, 0..4usize).prop_map(|(holder, keep)| Step::Release { holder, keep }),
            1 => (0..6usize).prop_map(|holder| Step::End { holder }),
        ];
        prop::collection::vec(step, 1..80)
    }

    proptest! {
        #[test]
        fn whatever_is_asked_locks_are_compatible_nobody_waits_in_vain_and_nothing_is_left(steps in steps()) {
            let names = ["w", "x", "y", "z"];
            let modes = [KeyShare, Share, NoKeyUpdate, Update, Program];
            let mut bench = Bench::default();
            let mut holders: Vec<_> = (0..6).map(|number| bench.table.begin(number % 2 == 0)).collect();
            for step in steps {
                match step {
                    Step::Ask { holder, thing, mode, waits } => {
                        // A transaction asks for one thing at a time.
                        if bench.table.holders[&holders[holder]].waits.is_empty() {
                            let patience = if waits { Patience::Waits } else { Patience::Never };
                            let thing = row(names[thing]);
                            bench.table.ask(holders[holder], &thing, modes[mode], patience, &mut bench.events);
                        }
                    }
                    Step::GiveUp { holder } => {
                        for waiter in bench.table.holders[&holders[holder]].waits.clone() {
                            bench.table.cancel(waiter, &mut bench.events);
                        }
                    }
                    Step::Release { holder, keep } => {
                        if bench.table.holders[&holders[holder]].waits.is_empty() {
                            bench.table.release_after(holders[holder], keep, &mut bench.events);
                        }
                    }
                    Step::End { holder } => {
                        bench.table.end(holders[holder], &mut bench.events);
                        holders[holder] = bench.table.begin(holder % 2 == 0);
                    }
                }
                check(&bench.table);
            }
            for holder in holders {
                bench.table.end(holder, &mut bench.events);
                check(&bench.table);
            }
            prop_assert_eq!(bench.table.counts(), (0, 0, 0));
        }
    }
}
