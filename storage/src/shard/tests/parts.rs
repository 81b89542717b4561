//! Commands larger than a log entry.

use bytes::Bytes;
use model::{
    command::{Command, Outcome, Rejection},
    id::{Boot, Epoch, NodeId},
};

use super::fixture::*;
use crate::{
    codec::entry::{Body, Close, Entry as LogEntry, FeedRetention, Part, Stamp, encode_large},
    keyspace::due,
    shard::{EntryOutcome, Shard},
};

/// A command cut into parts of a few bytes, and the entry that closes it.
fn cut(command: &Command, number: u64) -> (Vec<Body>, Body) {
    let mut whole = Vec::new();
    encode_large(&mut whole, command);
    let part = |(sequence, bytes): (usize, &[u8])| {
        let bytes = Bytes::copy_from_slice(bytes);
        Body::Part(Part { partition: partition(), number, sequence: sequence as u32, bytes })
    };
    let parts: Vec<Body> = whole.chunks(11).enumerate().map(part).collect();
    let close = Close { partition: partition(), number, parts: parts.len() as u32 };
    (parts, Body::Close(close))
}

fn outcome(shard: &Shard, body: Body) -> Outcome {
    match apply(shard, &entry(body, 1)) {
        EntryOutcome::Command(outcome) => outcome,
        other => panic!("a closed command has an outcome, not {other:?}"),
    }
}

fn staged(shard: &Shard) -> usize {
    shard.snapshot().due(due::PART, 0, u64::MAX, 100).expect("read").len()
}

#[test]
fn a_command_in_parts_is_seen_when_it_is_closed_and_all_at_once() {
    let shard = shard();
    let (parts, close) = cut(&command(vec![insert(1, "a", 5), insert(2, "b", 20), insert(3, "c", 7)]), 0);
    assert!(parts.len() > 3, "{} parts", parts.len());
    for part in parts {
        assert_eq!(apply(&shard, &entry(part, 1)), EntryOutcome::Done);
        assert_eq!(show(&shard), "");
    }
    assert_eq!(outcome(&shard, close.clone()), applied(1, &[1, 1, 1]));
    assert_eq!(show(&shard), "1:a:5 2:b:20 3:c:7");
    // Its parts are gone: closing it again finds nothing and does nothing.
    assert_eq!(outcome(&shard, close), Outcome::Rejected(Rejection::Fenced));
    assert_sound(&shard);
}

#[test]
fn a_command_in_parts_that_is_rejected_leaves_nothing() {
    let shard = shard();
    run(&shard, command(vec![insert(2, "b", 20)]));
    let (parts, close) = cut(&command(vec![insert(1, "a", 5), insert(2, "c", 7)]), 0);
    parts.into_iter().for_each(|part| drop(apply(&shard, &entry(part, 1))));
    assert_eq!(outcome(&shard, close), taken(None, key(2)));
    assert_eq!(show(&shard), "2:b:20");
    assert_sound(&shard);
}

#[test]
fn parts_of_an_older_claim_are_never_executed() {
    let shard = shard();
    let (parts, close) = cut(&command(vec![insert(1, "a", 5)]), 0);
    parts.into_iter().for_each(|part| drop(apply(&shard, &entry(part, 1))));
    let claim = Body::Claim { epoch: Epoch(1), node: NodeId(2), boot: Boot(1), nonce: 9 };
    apply(&shard, &entry(claim, 1));
    assert_eq!(outcome(&shard, close.clone()), Outcome::Rejected(Rejection::Fenced));
    // Nor by the new owner, to whom the same number means another command.
    let stamp = Stamp { time: at(1), epoch: Epoch(1) };
    let closed = apply(&shard, &LogEntry { stamp, body: close });
    assert_eq!(closed, EntryOutcome::Command(Outcome::Rejected(Rejection::Fenced)));
    assert_eq!(show(&shard), "");
}

#[test]
fn parts_that_nobody_closes_are_removed() {
    let shard = shard();
    let (parts, close) = cut(&command(vec![insert(1, "a", 5)]), 0);
    parts.into_iter().for_each(|part| drop(apply(&shard, &entry(part, 1))));
    assert_eq!(staged(&shard), 1);
    let late = 2 * 3_600;
    let due = shard.snapshot().due(due::PART, 0, u64::MAX, 100).expect("read");
    let expired = apply(&shard, &entry(Body::Expire { due, feed: FeedRetention::default() }, late));
    assert_eq!(expired, EntryOutcome::Expired(1));
    assert_eq!(staged(&shard), 0);
    assert_eq!(outcome(&shard, close), Outcome::Rejected(Rejection::Fenced));
    assert_eq!(show(&shard), "");
    assert_sound(&shard);
}
