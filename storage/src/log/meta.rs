//! All that the log knows about a group besides its entries, and how records change it.
//!
//! Invariants:
//! - `floor` never falls: entries below it are gone.
//! - The same `apply` runs in the writer, which copies every group's meta to the head of each segment, and in
//!   recovery, which checks that head against what it replayed.
//!
//! Not here: entries and where they lie (`index`).

use bytes::Bytes;

use super::record::{self, Body, get_id, get_u32, get_u64, put_id, put_u64};
use super::types::INDEX_MAX;
use super::{GroupId, LogId};

/// A group's state besides its entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Meta {
    pub(crate) vote: Option<Bytes>,
    pub(crate) purged: Option<LogId>,
    pub(crate) committed: Option<LogId>,
    pub(crate) applied: Option<u64>,
    /// The lowest index that the group's log may hold.
    pub(crate) floor: u64,
    pub(crate) snapshot: Option<(LogId, Bytes)>,
    pub(crate) membership: Bytes,
}

const HAS_VOTE: u32 = 1;
const HAS_PURGED: u32 = 2;
const HAS_COMMITTED: u32 = 4;
const HAS_APPLIED: u32 = 8;
const HAS_SNAPSHOT: u32 = 16;
/// Flags, three lengths, floor, applied, and three log ids.
const FIXED: usize = 16 + 8 + 8 + 3 * 24;

impl Meta {
    /// Bytes of the encoded form.
    pub(crate) fn encoded_len(&self) -> usize {
        let vote = self.vote.as_ref().map_or(0, Bytes::len);
        let snapshot = self.snapshot.as_ref().map_or(0, |(_, data)| data.len());
        FIXED + vote + snapshot + self.membership.len()
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let flag = |set: bool, bit: u32| if set { bit } else { 0 };
        let flags = flag(self.vote.is_some(), HAS_VOTE)
            | flag(self.purged.is_some(), HAS_PURGED)
            | flag(self.committed.is_some(), HAS_COMMITTED)
            | flag(self.applied.is_some(), HAS_APPLIED)
            | flag(self.snapshot.is_some(), HAS_SNAPSHOT);
        let vote = self.vote.as_deref().unwrap_or_default();
        let (snapshot_id, snapshot) =
            self.snapshot.as_ref().map_or((LogId::default(), &[][..]), |(id, data)| (*id, data));
        for value in [flags, length(vote), length(snapshot), length(&self.membership)] {
            out.extend_from_slice(&value.to_le_bytes());
        }
        put_u64(out, self.floor);
        put_u64(out, self.applied.unwrap_or_default());
        put_id(out, self.purged.unwrap_or_default());
        put_id(out, self.committed.unwrap_or_default());
        put_id(out, snapshot_id);
        out.extend_from_slice(vote);
        out.extend_from_slice(snapshot);
        out.extend_from_slice(&self.membership);
    }

    pub(crate) fn decode(body: &[u8]) -> Option<Meta> {
        let (fixed, rest) = body.split_at_checked(FIXED)?;
        let flags = get_u32(fixed, 0);
        if flags & !(HAS_VOTE | HAS_PURGED | HAS_COMMITTED | HAS_APPLIED | HAS_SNAPSHOT) != 0 {
            return None;
        }
        let (vote, rest) = rest.split_at_checked(get_u32(fixed, 4) as usize)?;
        let (snapshot, membership) = rest.split_at_checked(get_u32(fixed, 8) as usize)?;
        if membership.len() != get_u32(fixed, 12) as usize {
            return None;
        }
        if [16, 24, 32, 56, 80].iter().any(|at| get_u64(fixed, *at) > INDEX_MAX + 1) {
            return None;
        }
        let has = |bit: u32| flags & bit != 0;
        Some(Meta {
            vote: has(HAS_VOTE).then(|| record::copy(vote)),
            purged: has(HAS_PURGED).then(|| get_id(fixed, 32)),
            committed: has(HAS_COMMITTED).then(|| get_id(fixed, 56)),
            applied: has(HAS_APPLIED).then(|| get_u64(fixed, 24)),
            floor: get_u64(fixed, 16),
            snapshot: has(HAS_SNAPSHOT).then(|| (get_id(fixed, 80), record::copy(snapshot))),
            membership: record::copy(membership),
        })
    }

    /// Entries up to `upto` are gone.
    pub(crate) fn purge(&mut self, upto: LogId) {
        if self.is_purged_by(upto) {
            self.floor = upto.index + 1;
            self.purged = Some(upto);
        }
    }

    /// Whether purging up to there says anything new: fewer entries, or what came before a log that did not begin at 0.
    pub(crate) fn is_purged_by(&self, upto: LogId) -> bool {
        upto.index >= self.floor || (self.purged.is_none() && upto.index + 1 == self.floor)
    }

    /// The state was replaced by a snapshot that covers entries up to `upto`.
    pub(crate) fn install(&mut self, upto: LogId, data: Bytes) {
        self.purge(upto);
        self.applied = self.applied.max(Some(upto.index));
        self.committed = self.committed.filter(|committed| committed.index > upto.index).or(Some(upto));
        self.snapshot = Some((upto, data));
    }
}

fn length(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).expect("record sizes are checked against the segment size before encoding")
}

/// The meta of all groups at one place in the log.
pub(crate) type Metas = std::collections::BTreeMap<GroupId, Meta>;

/// Applies one record. `false`: the record is impossible here.
pub(crate) fn apply(metas: &mut Metas, group: GroupId, body: &Body<'_>) -> bool {
    match body {
        Body::Seal | Body::SegmentStart { .. } | Body::Resume { .. } => return true,
        Body::Checkpoint { applied } => {
            for (group, index) in applied {
                if let Some(meta) = metas.get_mut(group) {
                    meta.applied = Some(*index);
                }
            }
            return true;
        }
        Body::GroupCreate(meta) => return metas.insert(group, meta.clone()).is_none(),
        Body::GroupState(meta) => {
            metas.insert(group, meta.clone());
            return true;
        }
        Body::GroupDrop => return metas.remove(&group).is_some(),
        Body::Append { .. }
        | Body::Rewrite { .. }
        | Body::Vote(_)
        | Body::Truncate { .. }
        | Body::Purge { .. }
        | Body::Committed { .. }
        | Body::SnapshotInstalled { .. }
        | Body::Begin { .. } => {}
    }
    let Some(meta) = metas.get_mut(&group) else { return false };
    match body {
        Body::Vote(bytes) => meta.vote = Some(record::copy(bytes)),
        Body::Purge { upto } => meta.purge(*upto),
        Body::Committed { upto } => meta.committed = Some(*upto),
        Body::SnapshotInstalled { upto, data } => meta.install(*upto, record::copy(data)),
        Body::Begin { index } => meta.floor = *index,
        _ => {}
    }
    true
}
