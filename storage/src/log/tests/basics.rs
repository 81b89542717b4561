//! What the log does when nothing goes wrong.

use super::super::*;
use std::sync::mpsc;
use std::time::Duration;

fn identity() -> Identity {
    Identity { cluster: 1, node: 2, incarnation: 3 }
}

fn entry(index: u64, text: &str) -> Entry {
    Entry { id: LogId { term: 1, node: 2, index }, kind: 4, payload: Bytes::copy_from_slice(text.as_bytes()) }
}

fn wait(call: impl FnOnce(Callback) -> Result<(), Error>) {
    let (sender, receiver) = mpsc::channel();
    call(Box::new(move |result| sender.send(result).expect("the test waits"))).expect("accepted");
    receiver.recv_timeout(Duration::from_secs(20)).expect("a callback").expect("durable");
}

#[test]
fn appended_entries_are_there_after_reopening() {
    let directory = tempfile::tempdir().unwrap();
    let group = GroupId(5);
    let entries: Vec<_> = (0..100).map(|index| entry(index, &format!("entry {index}"))).collect();
    {
        let (log, recovered) = Log::open(directory.path(), Options::default(), identity()).unwrap();
        assert!(recovered.created);
        wait(|callback| log.create_group(group, GroupInit::default(), callback));
        wait(|callback| log.append(group, entries.clone(), callback));
        assert_eq!(log.synced_index(group).unwrap(), Some(99));
        wait(|callback| log.save_vote(group, Bytes::from_static(b"vote"), callback));
    }
    let (log, recovered) = Log::open(directory.path(), Options::default(), identity()).unwrap();
    assert!(recovered.sealed && !recovered.created);
    assert_eq!(recovered.groups[&group].vote.as_deref(), Some(&b"vote"[..]));
    assert_eq!(log.state(group).unwrap().last, Some(entries[99].id));
    assert_eq!(log.entries(group, 0..1000).unwrap(), entries);
}
