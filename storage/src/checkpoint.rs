//! Checkpoints: what was applied is made durable, the log notes it, and may then forget.
//!
//! The order is the whole of it: note what is applied → sync the engine → log `Checkpoint` and wait until it is durable →
//! decide what may be purged. A crash between any two steps leaves a log that replays.

use std::{collections::BTreeMap, sync::mpsc};

use crate::{
    cut,
    engine::{Engine, Keyspace},
    error::{Error, Result},
    log::{GroupId, Log},
};

/// With more journals than this, the memtables that pin them are flushed.
const JOURNALS_MAX: usize = 3;

/// One shard, or the control group, in a checkpoint.
#[derive(Clone, Debug)]
pub struct Part {
    /// Its group in the log.
    pub group: GroupId,
    /// Its state.
    pub keyspace: Keyspace,
    /// What it has applied.
    pub applied: Option<u64>,
    /// What holds the log back.
    pub bounds: Bounds,
}

/// What holds a group's log back from being purged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Bounds {
    /// So many entries stay for followers that lag.
    pub keep_entries: u64,
    /// The last entry that the slowest live follower has; none if nobody follows.
    pub follower: Option<u64>,
    /// The last entry of the oldest image on its way to a follower.
    pub image: Option<u64>,
    /// The log is too large: only what is not durable elsewhere holds it back.
    pub over_size: bool,
}

/// Makes a checkpoint. Answers, for each group, up to which index its log may be purged.
///
/// It waits for two syncs: never call it on an async worker thread. What `parts` say is applied must have been applied
/// before the call.
pub fn run(engine: &Engine, log: &Log, parts: &[Part]) -> Result<BTreeMap<GroupId, u64>> {
    let applied: BTreeMap<GroupId, u64> =
        parts.iter().filter_map(|part| Some((part.group, part.applied?))).collect();
    if applied.is_empty() {
        return Ok(BTreeMap::new());
    }
    cut::point("checkpoint.before");
    if engine.journals() > JOURNALS_MAX {
        for part in parts {
            engine.flush(&part.keyspace)?;
        }
        cut::point("checkpoint.flushed");
    }
    engine.persist()?;
    cut::point("checkpoint.synced");
    let (sender, receiver) = mpsc::channel();
    log.checkpoint(&applied, Box::new(move |result| drop(sender.send(result))))?;
    receiver.recv().map_err(|_| Error::LogClosed)??;
    cut::point("checkpoint.noted");
    let purge = parts.iter().filter_map(|part| {
        let upto = purge_upto(*applied.get(&part.group)?, &part.bounds)?;
        Some((part.group, upto))
    });
    Ok(purge.collect())
}

/// Up to which entry a log may be purged when state up to `durable` is on disk; none for not at all.
pub fn purge_upto(durable: u64, bounds: &Bounds) -> Option<u64> {
    if bounds.over_size {
        return Some(durable);
    }
    let held = durable.min(bounds.follower.unwrap_or(u64::MAX)).min(bounds.image.unwrap_or(u64::MAX));
    held.checked_sub(bounds.keep_entries)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{
        engine::{Batch, Options},
        log::{self, Entry, GroupInit, LogId},
    };

    #[test]
    fn a_log_is_held_back_by_the_slowest() {
        let bounds = Bounds { keep_entries: 10, ..Bounds::default() };
        assert_eq!(purge_upto(100, &bounds), Some(90));
        assert_eq!(purge_upto(5, &bounds), None);
        assert_eq!(purge_upto(100, &Bounds { follower: Some(50), ..bounds }), Some(40));
        assert_eq!(purge_upto(100, &Bounds { follower: Some(50), image: Some(30), ..bounds }), Some(20));
        assert_eq!(purge_upto(100, &Bounds { image: Some(30), over_size: true, ..bounds }), Some(100));
    }

    #[test]
    fn a_checkpoint_is_in_the_log_when_it_returns() {
        let folder = tempfile::tempdir().expect("a folder");
        let identity = log::Identity { cluster: 1, node: 1, incarnation: 1 };
        let options = || log::Options { segment_bytes: 1 << 20, ..log::Options::default() };
        let open = || log::Log::open(&folder.path().join("log"), options(), identity).expect("a log");
        std::fs::create_dir(folder.path().join("log")).expect("created");
        let (log, _) = open();
        let engine = Engine::open(&folder.path().join("state"), &Options::default()).expect("an engine");
        let keyspace = engine.keyspace("s0001.0").expect("a keyspace");
        let mut batch = Batch::new();
        batch.put(&keyspace, "key", "value");
        engine.commit(batch).expect("written");
        let group = GroupId(1);
        log.create_group(group, GroupInit::default(), Box::new(|_| {})).expect("created");
        let entries = (0..20)
            .map(|index| Entry {
                id: LogId { term: 1, node: 1, index },
                kind: 0,
                payload: Bytes::from_static(b"x"),
            })
            .collect();
        let (sender, receiver) = mpsc::channel();
        log.append(group, entries, Box::new(move |result| drop(sender.send(result)))).expect("queued");
        receiver.recv().expect("answered").expect("durable");
        let bounds = Bounds { keep_entries: 5, ..Bounds::default() };
        let part = Part { group, keyspace, applied: Some(12), bounds };
        let purge = run(&engine, &log, &[part]).expect("a checkpoint");
        assert_eq!(purge, BTreeMap::from([(group, 7)]));
        log.close();
        drop(log);
        let (log, recovered) = open();
        assert_eq!(recovered.groups[&group].durable_applied, Some(12));
        log.close();
    }
}
