//! At most once.

use model::{
    command::{Command, Identity, Outcome, Rejection},
    id::{Boot, CommandId, NodeId},
};

use super::fixture::*;
use crate::{
    codec::entry::{Body, FeedRetention},
    keyspace::due,
    shard::{EntryOutcome, Shard},
};

fn slotted(number: u64, id: i32) -> Command {
    Command { identity: slot(number), ..command(vec![insert(id, &format!("n{id}"), 1)]) }
}

fn named(attempt: u32, fingerprint: u128, writes: Vec<model::command::Write>) -> Command {
    let id = CommandId(0x9b2b_5c0e_6a6b_4f0e_8a34_0d1f_2c3b_4a59);
    let identity = Identity::Named { id, attempt, fingerprint, remember_secs: 60 };
    Command { identity, ..command(writes) }
}

fn rejected(rejection: Rejection) -> Outcome {
    Outcome::Rejected(rejection)
}

#[test]
fn a_slot_answers_its_last_number_again_and_nothing_older() {
    let shard = shard();
    assert_eq!(run(&shard, slotted(5, 1)), applied(1, &[1]));
    assert_eq!(run(&shard, slotted(5, 1)), applied(1, &[1]), "the same again");
    assert_eq!(run(&shard, slotted(4, 2)), rejected(Rejection::OutcomeUnknown));
    assert_eq!(run(&shard, slotted(9, 2)), applied(2, &[1]));
    assert_eq!(run(&shard, slotted(5, 1)), rejected(Rejection::OutcomeUnknown));
    assert_eq!(show(&shard), "1:n1:1 2:n2:1");
    // A rejection is an outcome too.
    assert_eq!(run(&shard, slotted(10, 1)), taken(None, key(1)));
    run(&shard, command(vec![delete(1)]));
    assert_eq!(run(&shard, slotted(10, 1)), taken(None, key(1)));
}

#[test]
fn a_newer_boot_takes_the_slots_of_the_older_for_ever() {
    let shard = shard();
    let of_boot = |boot, number, id| {
        let identity = Identity::Slot { node: NodeId(1), boot: Boot(boot), slot: 7, number };
        Command { identity, ..slotted(0, id) }
    };
    assert_eq!(run(&shard, of_boot(1, 50, 1)), applied(1, &[1]));
    assert_eq!(run(&shard, of_boot(2, 1, 2)), applied(2, &[1]), "numbers begin again");
    assert_eq!(run(&shard, of_boot(1, 51, 3)), rejected(Rejection::BootSuperseded));
    let other_slot = Identity::Slot { node: NodeId(1), boot: Boot(1), slot: 8, number: 1 };
    let command = Command { identity: other_slot, ..slotted(0, 3) };
    assert_eq!(run(&shard, command), rejected(Rejection::BootSuperseded));
}

#[test]
fn a_receipt_binds_the_name_to_the_body() {
    let shard = shard();
    assert_eq!(run(&shard, named(1, 7, vec![insert(1, "a", 1)])), applied(1, &[1]));
    assert_eq!(run(&shard, named(1, 7, vec![insert(1, "a", 1)])), applied(1, &[1]));
    assert_eq!(run(&shard, named(2, 7, vec![insert(1, "a", 1)])), applied(1, &[1]), "whatever the attempt");
    assert_eq!(run(&shard, named(1, 8, vec![insert(2, "b", 1)])), rejected(Rejection::IdentityConflict));
    assert_eq!(show(&shard), "1:a:1");
}

#[test]
fn a_rejection_binds_only_its_attempt() {
    let shard = shard();
    run(&shard, command(vec![insert(1, "a", 1)]));
    assert_eq!(run(&shard, named(2, 7, vec![insert(1, "x", 1)])), taken(None, key(1)));
    run(&shard, command(vec![delete(1)]));
    assert_eq!(run(&shard, named(2, 7, vec![insert(1, "x", 1)])), taken(None, key(1)), "the same attempt");
    assert_eq!(run(&shard, named(1, 7, vec![insert(1, "x", 1)])), rejected(Rejection::Superseded));
    assert_eq!(run(&shard, named(2, 8, vec![insert(2, "y", 1)])), rejected(Rejection::IdentityConflict));
    assert_eq!(
        run(&shard, named(3, 8, vec![insert(2, "y", 1)])),
        applied(3, &[1]),
        "a higher one, another body"
    );
    assert_eq!(show(&shard), "2:y:1");
}

#[test]
fn a_name_with_an_old_time_in_it_is_never_executed() {
    let shard = shard();
    let made_millis = (at(0).wall.unix_micros() / 1_000) as u128;
    let id = CommandId(made_millis << 80 | 0x7 << 76 | 0x8 << 60 | 1);
    let identity = Identity::Named { id, attempt: 1, fingerprint: 7, remember_secs: 60 };
    let command = Command { identity, ..command(vec![insert(1, "a", 1)]) };
    assert_eq!(run_at(&shard, 61, command.clone()), rejected(Rejection::IdentityExpired));
    assert_eq!(run_at(&shard, 61, command), rejected(Rejection::IdentityExpired), "and it is not remembered");
    assert_eq!(show(&shard), "");
}

fn expire(shard: &Shard, kind: u8, seconds: u64, feed: FeedRetention) -> u32 {
    let due = shard.snapshot().due(kind, 0, seconds * 1_000_000, 100).expect("read");
    match apply(shard, &entry(Body::Expire { due, feed }, seconds)) {
        EntryOutcome::Expired(done) => done,
        other => panic!("a page is done: {other:?}"),
    }
}

#[test]
fn a_receipt_is_forgotten_when_it_is_due_and_not_before() {
    let shard = shard();
    run_at(&shard, 10, named(1, 7, vec![insert(1, "a", 1)]));
    let feed = FeedRetention::default();
    assert_eq!(expire(&shard, due::RECEIPT, 69, feed), 0);
    // A page proposed too early does nothing.
    let early = shard.snapshot().due(due::RECEIPT, 0, u64::MAX, 100).expect("read");
    assert_eq!(apply(&shard, &entry(Body::Expire { due: early, feed }, 69)), EntryOutcome::Expired(0));
    assert_eq!(expire(&shard, due::RECEIPT, 70, feed), 1);
    assert_eq!(expire(&shard, due::RECEIPT, 71, feed), 0, "once");
    assert_eq!(run_at(&shard, 72, named(1, 7, vec![delete(1)])), applied(2, &[1]), "the name is new again");
}

#[test]
fn a_receipt_that_was_replaced_is_due_only_at_its_new_time() {
    let shard = shard();
    run_at(&shard, 1, command(vec![insert(1, "a", 1)]));
    let mut first = named(1, 7, vec![insert(1, "x", 1)]);
    first.time_left = Some(5_000_000);
    assert_eq!(run_at(&shard, 10, first), taken(None, key(1)));
    assert_eq!(run_at(&shard, 11, named(2, 8, vec![insert(2, "y", 1)])), applied(2, &[1]));
    let due = shard.snapshot().due(due::RECEIPT, 0, u64::MAX, 100).expect("read");
    assert_eq!(due.len(), 1);
    assert_eq!(expire(&shard, due::RECEIPT, 20, FeedRetention::default()), 0);
    let id = CommandId(0x9b2b_5c0e_6a6b_4f0e_8a34_0d1f_2c3b_4a59);
    let kept = shard.snapshot().receipt(model::catalog::ADMIN, &partition(), id).expect("read");
    assert_eq!(kept.expect("remembered").until, 71_000_000);
}

#[test]
fn a_feed_is_trimmed_by_age_and_by_size() {
    let shard = shard();
    for id in 1..=5 {
        run_at(&shard, id as u64 * 1_000, command(vec![insert(id, &format!("n{id}"), 1)]));
    }
    let keep_secs = |secs: u64, records_max| FeedRetention { micros: secs * 1_000_000, records_max };
    assert_eq!(expire(&shard, due::FEED, 4_000, keep_secs(1, 0)), 0, "an hour after its first record");
    assert_eq!(expire(&shard, due::FEED, 6_000, keep_secs(4_000, 100)), 1);
    let page = shard.snapshot().feed(&partition(), model::id::Revision(0), 10).expect("read");
    assert_eq!(page.floor.0, 2, "what is older than 4,000 s at 6,000 s is gone");
    assert_eq!(page.records.len(), 3);
    assert_eq!(expire(&shard, due::FEED, 9_600, keep_secs(100_000, 1)), 1);
    let page = shard.snapshot().feed(&partition(), model::id::Revision(0), 10).expect("read");
    assert_eq!((page.floor.0, page.last.0, page.records.len()), (4, 5, 1));
    assert_eq!(expire(&shard, due::FEED, 20_000, keep_secs(1, 0)), 1);
    assert!(
        shard.snapshot().due(due::FEED, 0, u64::MAX, 10).expect("read").is_empty(),
        "an empty feed rests"
    );
    run_at(&shard, 20_000, command(vec![delete(1)]));
    assert_eq!(shard.snapshot().due(due::FEED, 0, u64::MAX, 10).expect("read").len(), 1);
    let page = shard.snapshot().feed(&partition(), model::id::Revision(0), 10).expect("read");
    assert_eq!(page.records[0].1.previous.0, 5, "a gap would be seen");
}
