//! What a log means, as plain maps: the judge of what a crash left.
//!
//! Steps are applied in the order in which they were asked for. A crash may leave any state between the last step that
//! was acknowledged and the last one asked for, and no other.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::super::{Entry, GroupId, GroupInit, Log, LogId};

/// One record's worth of change.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Create(GroupId, GroupInit),
    Drop(GroupId),
    Begin(GroupId, u64),
    Append(GroupId, Entry),
    Vote(GroupId, Bytes),
    Truncate(GroupId, u64),
    Purge(GroupId, LogId),
    Install(GroupId, LogId, Bytes),
    Checkpoint(BTreeMap<GroupId, u64>),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct GroupModel {
    pub(super) vote: Option<Bytes>,
    pub(super) purged: Option<LogId>,
    pub(super) floor: u64,
    pub(super) applied: Option<u64>,
    pub(super) snapshot: Option<(LogId, Bytes)>,
    pub(super) membership: Bytes,
    pub(super) entries: BTreeMap<u64, Entry>,
}

impl GroupModel {
    pub(super) fn end(&self) -> u64 {
        self.entries.keys().next_back().map_or(self.floor, |last| last + 1)
    }

    fn purge(&mut self, upto: LogId) {
        if upto.index >= self.floor {
            self.floor = upto.index + 1;
            self.purged = Some(upto);
        }
        self.entries = self.entries.split_off(&self.floor);
    }
}

pub(super) type Model = BTreeMap<GroupId, GroupModel>;

pub(super) fn apply(model: &mut Model, step: &Step) {
    match step {
        Step::Create(group, init) => {
            let mut state = GroupModel {
                vote: init.vote.clone(),
                membership: init.membership.clone(),
                ..GroupModel::default()
            };
            if let Some(last) = init.last {
                state.purge(last);
            }
            model.insert(*group, state);
        }
        Step::Drop(group) => {
            model.remove(group);
        }
        Step::Begin(group, index) => model.get_mut(group).unwrap().floor = *index,
        Step::Append(group, entry) => {
            model.get_mut(group).unwrap().entries.insert(entry.id.index, entry.clone());
        }
        Step::Vote(group, vote) => model.get_mut(group).unwrap().vote = Some(vote.clone()),
        Step::Truncate(group, from) => {
            model.get_mut(group).unwrap().entries.split_off(from);
        }
        Step::Purge(group, upto) => model.get_mut(group).unwrap().purge(*upto),
        Step::Install(group, upto, data) => {
            let state = model.get_mut(group).unwrap();
            state.purge(*upto);
            state.applied = state.applied.max(Some(upto.index));
            state.snapshot = Some((*upto, data.clone()));
        }
        Step::Checkpoint(applied) => {
            for (group, index) in applied {
                if let Some(state) = model.get_mut(group) {
                    state.applied = Some(*index);
                }
            }
        }
    }
}

/// The state of a log, read through its public face.
pub(super) fn read(log: &Log) -> Model {
    let mut model = Model::new();
    for group in log.groups() {
        let state = log.state(group).unwrap();
        let entries = log.entries(group, state.first_index..u64::MAX).unwrap();
        if let Some(last) = entries.last() {
            assert_eq!(state.last, Some(last.id), "the last id of group {group}");
        } else {
            assert_eq!(state.last, state.last_purged, "the last id of the empty group {group}");
        }
        let end = entries.last().map_or(state.first_index, |last| last.id.index + 1);
        assert_eq!(log.synced_index(group).unwrap(), end.checked_sub(1), "what was recovered is synced");
        model.insert(
            group,
            GroupModel {
                vote: state.vote,
                purged: state.last_purged,
                floor: state.first_index,
                applied: state.durable_applied,
                snapshot: state.snapshot,
                membership: state.membership,
                entries: entries.into_iter().map(|entry| (entry.id.index, entry)).collect(),
            },
        );
    }
    model
}
