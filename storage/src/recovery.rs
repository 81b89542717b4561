//! Opening after a crash: the engine behind its doctor, and each shard's state against its log.
//!
//! The log is the truth. The engine is committed without a sync, so it may have fallen back behind what it had applied; the
//! log replays that. What must never pass unseen is synced state that is gone ([`Verdict::Heals`], or a refusal when the
//! log no longer holds it), and a log that ends before the state (a lost log).

use std::path::Path;

use model::id::ShardId;
use tracing::{error, warn};

use crate::{
    engine::{Cut, Engine, Options, cut_torn_journal},
    error::{Error, Result},
    keyspace::{self, keyspace_name},
    log::GroupState,
};

/// What comparing a shard's state with its log says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// As it must be; the log may go on from what is applied.
    Sound,
    /// The engine lost state that was synced once; the log still holds it and replays it.
    Heals {
        /// What the state holds; none for nothing.
        applied: Option<u64>,
        /// What was synced once.
        durable: u64,
    },
}

/// Opens an engine. A journal that a power cut tore so that the engine refuses it is cut back to its last whole batch, with
/// a copy kept in `kept`; what was cut is answered.
pub fn open_engine(directory: &Path, kept: &Path, options: &Options) -> Result<(Engine, Option<Cut>)> {
    let refused = match Engine::open(directory, options) {
        Ok(engine) => return Ok((engine, None)),
        Err(refused @ Error::EngineDamaged { .. }) => refused,
        Err(other) => return Err(other),
    };
    let Some(cut) = cut_torn_journal(directory, kept)? else { return Err(refused) };
    error!(
        journal = %cut.journal.display(),
        kept = %cut.kept.display(),
        bytes = cut.kept_bytes,
        batches = cut.batches,
        fault = cut.fault,
        "engine journal was torn and is cut; the log replays what is gone"
    );
    Ok((Engine::open(directory, options)?, Some(cut)))
}

/// Compares what a shard's state has applied with what its log knows; `group` is none if the log has no such group.
pub fn compare(shard: ShardId, applied: Option<u64>, group: Option<&GroupState>) -> Result<Verdict> {
    let Some(group) = group else {
        return match applied {
            None => Ok(Verdict::Sound),
            Some(applied) => Err(Error::LogLost { shard, applied, log_last: 0 }),
        };
    };
    let log_last = group.last.map(|last| last.index);
    if applied > log_last {
        return Err(Error::LogLost {
            shard,
            applied: applied.unwrap_or_default(),
            log_last: log_last.unwrap_or_default(),
        });
    }
    let next = applied.map_or(0, |applied| applied + 1);
    let durable = group.durable_applied;
    // A log that begins behind the next entry cannot bring the state on. (A first index of 1 is an empty log's beginning.)
    let replays = next >= group.first_index || (applied.is_none() && group.last_purged.is_none());
    match durable {
        _ if !replays => Err(Error::StateLost {
            shard,
            applied: applied.unwrap_or_default(),
            durable: durable.unwrap_or_default(),
            log_first: group.first_index,
        }),
        Some(durable) if applied.is_none_or(|applied| applied < durable) => {
            warn!(%shard, ?applied, durable, "engine lost synced state; the log replays it");
            Ok(Verdict::Heals { applied, durable })
        }
        Some(_) | None => Ok(Verdict::Sound),
    }
}

/// Deletes every generation of a shard's state but those named: what an installation left that was cut short, or an old one
/// that was replaced. Answers the names of what went.
pub fn delete_orphans(engine: &Engine, current: &[(ShardId, u64)]) -> Result<Vec<String>> {
    let wanted: Vec<String> =
        current.iter().map(|(shard, generation)| keyspace_name(*shard, *generation)).collect();
    let mut deleted = Vec::new();
    for name in engine.keyspace_names() {
        if keyspace::parse_keyspace_name(&name).is_some() && !wanted.contains(&name) {
            engine.delete_keyspace(engine.keyspace(&name)?)?;
            deleted.push(name);
        }
    }
    Ok(deleted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::LogId;

    const SHARD: ShardId = ShardId(1);

    fn group(purged: Option<u64>, last: u64, durable: Option<u64>) -> GroupState {
        let id = |index| LogId { term: 1, node: 1, index };
        GroupState {
            first_index: purged.map_or(0, |purged| purged + 1),
            last_purged: purged.map(id),
            last: Some(id(last)),
            durable_applied: durable,
            ..GroupState::default()
        }
    }

    #[test]
    fn a_state_at_or_above_its_checkpoint_goes_on() {
        for applied in [5, 8, 9] {
            let verdict = compare(SHARD, Some(applied), Some(&group(Some(3), 9, Some(5))));
            assert_eq!(verdict.expect("sound"), Verdict::Sound);
        }
        assert_eq!(compare(SHARD, None, None).expect("a new shard"), Verdict::Sound);
        assert_eq!(compare(SHARD, None, Some(&group(None, 9, None))).expect("a new shard"), Verdict::Sound);
    }

    #[test]
    fn synced_state_that_is_gone_is_replayed_or_refused() {
        let heals = Verdict::Heals { applied: Some(4), durable: 5 };
        assert_eq!(compare(SHARD, Some(4), Some(&group(Some(3), 9, Some(5)))).expect("replayed"), heals);
        assert_eq!(compare(SHARD, Some(4), Some(&group(Some(4), 9, Some(5)))).expect("replayed"), heals);
        let heals = Verdict::Heals { applied: None, durable: 5 };
        assert_eq!(compare(SHARD, None, Some(&group(None, 9, Some(5)))).expect("replayed"), heals);
        let lost = compare(SHARD, Some(4), Some(&group(Some(6), 9, Some(6))));
        assert!(matches!(lost, Err(Error::StateLost { applied: 4, durable: 6, log_first: 7, .. })));
        assert!(matches!(
            compare(SHARD, None, Some(&group(Some(6), 9, Some(6)))),
            Err(Error::StateLost { .. })
        ));
    }

    #[test]
    fn a_state_beyond_its_log_is_refused() {
        let lost = compare(SHARD, Some(10), Some(&group(None, 9, Some(5))));
        assert!(matches!(lost, Err(Error::LogLost { applied: 10, log_last: 9, .. })));
        assert!(matches!(compare(SHARD, Some(0), None), Err(Error::LogLost { .. })));
    }

    #[test]
    fn generations_that_nobody_names_are_deleted() {
        let engine = Engine::in_memory();
        for name in ["s0001.0", "s0001.1", "s0002.0", "other"] {
            engine.keyspace(name).expect("memory");
        }
        let deleted = delete_orphans(&engine, &[(ShardId(1), 1)]).expect("memory");
        assert_eq!(deleted, ["s0001.0", "s0002.0"]);
        assert_eq!(engine.keyspace_names(), ["other", "s0001.1"]);
    }
}
