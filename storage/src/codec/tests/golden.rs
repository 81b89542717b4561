//! The bytes of each form, frozen. A difference here is a new version of a format, never an edit of this page.

use std::fmt::Write as _;

use super::values;
use crate::{
    codec::{
        catalog, command, control, entry,
        state::{
            Applied, Claim, Counters, FeedChange, FeedKind, FeedRecord, Head, Named, PartitionState,
            SequenceState, Slot,
        },
    },
    log::LogId,
};
use bytes::Bytes;
use model::id::{Boot, Epoch, NodeId, Revision, TableId};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, byte| {
        write!(out, "{byte:02x}").expect("a string takes what it is given");
        out
    })
}

fn states() -> Vec<(&'static str, Bytes)> {
    let (_, entry) = values::entries().remove(0);
    let time = entry.stamp.time;
    let log_id = Some(LogId { term: 3, node: 1, index: 300 });
    let claim = Claim { epoch: Epoch(4), node: NodeId(1), boot: Boot(2), nonce: 5 };
    let (_, outcome) = values::outcomes().remove(0);
    let change = FeedChange { table: TableId(300), kind: FeedKind::Updated, key: Bytes::from_static(b"key") };
    vec![
        ("applied", Applied { log_id, membership: Bytes::from_static(b"members") }.to_bytes()),
        ("head", Head { revision: Revision(300), time, claim, semantics: 1 }.to_bytes()),
        ("counters", Counters { rows: 1, bytes: 2, last_write: Revision(3) }.to_bytes()),
        (
            "partition",
            PartitionState { feed_last: Revision(1), feed_floor: Revision(2), feed_due: 3, feed_records: 4 }
                .to_bytes(),
        ),
        ("slot", Slot { boot: Boot(2), number: 400, outcome: outcome.clone() }.to_bytes()),
        ("named", Named { attempt: 2, fingerprint: 7, until: 9, outcome }.to_bytes()),
        ("feed", FeedRecord { previous: Revision(299), time, changes: vec![change] }.to_bytes()),
        ("sequence state", SequenceState { value: -3, called: true }.to_bytes()),
    ]
}

#[test]
fn bytes_are_what_they_always_were() {
    let mut shown = String::new();
    let mut show = |group: &str, name: &str, bytes: &[u8]| {
        writeln!(shown, "{group} {name}: {}", hex(bytes)).expect("a string takes what it is given");
    };
    for (name, value) in values::entries() {
        show("entry", name, &entry::to_bytes(&value));
    }
    for (name, value) in values::outcomes() {
        let mut bytes = Vec::new();
        command::encode_outcome(&mut bytes, &value);
        show("outcome", name, &bytes);
    }
    for (name, value) in values::requests() {
        show("request", name, &control::to_bytes(&value));
    }
    for (name, value) in values::answers() {
        show("answer", name, &control::answer_to_bytes(9, &value));
    }
    for (name, value) in values::objects() {
        show("object", name, &catalog::object_to_bytes(&value));
    }
    for (name, bytes) in states() {
        show("state", name, &bytes);
    }
    let golden = include_str!("golden.txt");
    if shown != golden {
        let path = std::env::temp_dir().join("keystead-codec-golden.txt");
        std::fs::write(&path, &shown).expect("written");
        panic!("the bytes changed; what they are now is in {}", path.display());
    }
}
