//! Consensus in the words of the node-to-node protocol, and back.
//!
//! Invariants:
//! - Whatever the library sends comes out as it went in, flags included: a transfer that lost its flag would be refused by the
//!   lease it overrides, and a question about a vote that lost its own would raise terms.
//! - Entries and memberships have the bytes the log keeps them in.

use openraft::{
    raft::{
        AppendEntriesRequest, AppendEntriesResponse, TransferLeaderError, TransferLeaderRequest,
        TransferLeaderResponse, VoteRequest, VoteResponse,
    },
    storage::SnapshotMeta,
};

use super::types::{
    CommittedLeaderId, Entry, LeaderId, LogId, Types, Vote, decode_members, decode_payload, encode_members,
    encode_payload, log_id,
};
use crate::peer::{
    Refusal,
    proto::{self, append_reply, transfer_reply},
};

/// What a snapshot is of.
pub(super) type Meta = SnapshotMeta<CommittedLeaderId, u64, openraft::impls::EmptyNode>;

type Read<T> = Result<T, Refusal>;

fn put_vote(vote: &Vote) -> proto::Vote {
    proto::Vote { term: vote.leader_id.term, node: vote.leader_id.voted_for, committed: vote.committed }
}

fn take_vote(vote: Option<proto::Vote>) -> Read<Vote> {
    let proto::Vote { term, node, committed } = vote.ok_or_else(|| Refusal::malformed("no vote"))?;
    Ok(Vote { leader_id: LeaderId { term, voted_for: node }, committed })
}

fn put_id(id: &LogId) -> proto::LogId {
    proto::LogId { term: id.leader_id.term, index: id.index }
}

fn take_id(id: proto::LogId) -> LogId {
    log_id(id.term, id.index)
}

pub(super) fn put_append(request: AppendEntriesRequest<Types>) -> proto::AppendRequest {
    let entries = request.entries.into_iter().map(|entry| {
        let (kind, payload) = encode_payload(entry.payload);
        proto::Entry { id: Some(put_id(&entry.log_id)), kind: kind.into(), payload }
    });
    proto::AppendRequest {
        envelope: None,
        vote: Some(put_vote(&request.vote)),
        previous: request.prev_log_id.as_ref().map(put_id),
        committed: request.leader_commit.as_ref().map(put_id),
        entries: entries.collect(),
    }
}

pub(super) fn take_append(request: proto::AppendRequest) -> Read<AppendEntriesRequest<Types>> {
    let mut next = request.previous.as_ref().map_or(0, |previous| previous.index.saturating_add(1));
    let mut entries = Vec::with_capacity(request.entries.len());
    for entry in request.entries {
        let id = entry.id.ok_or_else(|| Refusal::malformed("an entry without a place"))?;
        if id.index != next {
            return Err(Refusal::malformed("entries are not in order"));
        }
        next = next.saturating_add(1);
        let kind = u8::try_from(entry.kind).map_err(|_| Refusal::malformed("an entry of an unknown kind"))?;
        let payload =
            decode_payload(kind, entry.payload).map_err(|error| Refusal::malformed(error.to_string()))?;
        entries.push(Entry { log_id: take_id(id), payload });
    }
    Ok(AppendEntriesRequest {
        vote: take_vote(request.vote)?,
        prev_log_id: request.previous.map(take_id),
        entries,
        leader_commit: request.committed.map(take_id),
    })
}

pub(super) fn put_appended(reply: AppendEntriesResponse<Types>) -> proto::AppendReply {
    let result = match reply {
        AppendEntriesResponse::Success => append_reply::Result::Success(append_reply::Success {}),
        AppendEntriesResponse::PartialSuccess(upto) => {
            append_reply::Result::Partial(append_reply::Partial { upto: upto.as_ref().map(put_id) })
        }
        AppendEntriesResponse::Conflict => append_reply::Result::Conflict(append_reply::Conflict {}),
        AppendEntriesResponse::HigherVote(vote) => append_reply::Result::Higher(put_vote(&vote)),
    };
    proto::AppendReply { result: Some(result) }
}

pub(super) fn take_appended(reply: proto::AppendReply) -> Read<AppendEntriesResponse<Types>> {
    Ok(match reply.result.ok_or_else(|| Refusal::malformed("no result"))? {
        append_reply::Result::Success(_) => AppendEntriesResponse::Success,
        append_reply::Result::Partial(partial) => {
            AppendEntriesResponse::PartialSuccess(partial.upto.map(take_id))
        }
        append_reply::Result::Conflict(_) => AppendEntriesResponse::Conflict,
        append_reply::Result::Higher(vote) => AppendEntriesResponse::HigherVote(take_vote(Some(vote))?),
    })
}

/// A vote, or the question `beforehand` whether it would be granted.
pub(super) fn put_elect(request: &VoteRequest<Types>, beforehand: bool) -> proto::ElectRequest {
    proto::ElectRequest {
        envelope: None,
        vote: Some(put_vote(&request.vote)),
        last: request.last_log_id.as_ref().map(put_id),
        beforehand,
        transfer: request.leadership_transfer,
    }
}

pub(super) fn take_elect(request: proto::ElectRequest) -> Read<(VoteRequest<Types>, bool)> {
    let mut taken = VoteRequest::new(take_vote(request.vote)?, request.last.map(take_id));
    taken.leadership_transfer = request.transfer;
    Ok((taken, request.beforehand))
}

pub(super) fn put_elected(reply: &VoteResponse<Types>) -> proto::ElectReply {
    proto::ElectReply {
        vote: Some(put_vote(&reply.vote)),
        last: reply.last_log_id.as_ref().map(put_id),
        granted: reply.vote_granted,
    }
}

pub(super) fn take_elected(reply: proto::ElectReply) -> Read<VoteResponse<Types>> {
    Ok(VoteResponse::new(take_vote(reply.vote)?, reply.last.map(take_id), reply.granted))
}

pub(super) fn put_transfer(request: &TransferLeaderRequest<Types>) -> Read<proto::TransferRequest> {
    let successor = u32::try_from(*request.to_node_id());
    Ok(proto::TransferRequest {
        envelope: None,
        leader: Some(put_vote(request.from_leader())),
        successor: successor.map_err(|_| Refusal::malformed("a node's id has more than 32 bits"))?,
        last: request.last_log_id().map(put_id),
    })
}

pub(super) fn take_transfer(request: proto::TransferRequest) -> Read<TransferLeaderRequest<Types>> {
    let leader = take_vote(request.leader)?;
    Ok(TransferLeaderRequest::new(leader, request.successor.into(), request.last.map(take_id)))
}

pub(super) fn put_transferred(reply: TransferLeaderResponse<Types>) -> proto::TransferReply {
    let result = match reply {
        Ok(()) => transfer_reply::Result::Accepted(transfer_reply::Accepted {}),
        Err(TransferLeaderError::VoteChanged { actual, .. }) => {
            transfer_reply::Result::VoteChanged(put_vote(&actual))
        }
        Err(TransferLeaderError::LogNotFlushed { actual, .. }) => {
            transfer_reply::Result::Behind(transfer_reply::Behind { last: actual.as_ref().map(put_id) })
        }
    };
    proto::TransferReply { result: Some(result) }
}

/// The answer to a request, which it repeats where it refuses.
pub(super) fn take_transferred(
    reply: proto::TransferReply,
    request: &TransferLeaderRequest<Types>,
) -> Read<TransferLeaderResponse<Types>> {
    Ok(match reply.result.ok_or_else(|| Refusal::malformed("no result"))? {
        transfer_reply::Result::Accepted(_) => Ok(()),
        transfer_reply::Result::VoteChanged(vote) => Err(TransferLeaderError::VoteChanged {
            expected: *request.from_leader(),
            actual: take_vote(Some(vote))?,
        }),
        transfer_reply::Result::Behind(behind) => Err(TransferLeaderError::LogNotFlushed {
            expected: request.last_log_id().cloned(),
            actual: behind.last.map(take_id),
        }),
    })
}

pub(super) fn put_header(vote: &Vote, meta: &Meta) -> proto::SnapshotHeader {
    proto::SnapshotHeader {
        envelope: None,
        vote: Some(put_vote(vote)),
        last: meta.last_log_id.as_ref().map(put_id),
        members: encode_members(&meta.last_membership),
    }
}

/// A header that a leader can have sent: what it is of is not from a later term than its own.
pub(super) fn take_header(header: proto::SnapshotHeader) -> Read<(Vote, Meta)> {
    let vote = take_vote(header.vote)?;
    let last = header.last.map(take_id);
    let members = decode_members(header.members).map_err(|error| Refusal::malformed(error.to_string()))?;
    if !vote.committed {
        return Err(Refusal::malformed("a snapshot of a node that does not lead"));
    }
    if last.is_none_or(|last| last.leader_id.term > vote.leader_id.term) {
        return Err(Refusal::malformed("a snapshot of no place its leader can know"));
    }
    Ok((vote, Meta { last_log_id: last, last_membership: members }))
}

pub(super) fn put_installed(vote: &Vote) -> proto::SnapshotReply {
    proto::SnapshotReply { vote: Some(put_vote(vote)) }
}

pub(super) fn take_installed(reply: proto::SnapshotReply) -> Read<Vote> {
    take_vote(reply.vote)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use bytes::Bytes;
    use openraft::{EntryPayload, Membership, impls::EmptyNode};

    use super::*;
    use crate::{
        peer::over_the_wire as sent,
        raft::types::{Data, Members},
    };

    fn vote(committed: bool) -> Vote {
        Vote { leader_id: LeaderId { term: 7, voted_for: 3 }, committed }
    }

    fn entries() -> Vec<Entry> {
        let nodes = [1, 2].map(|id| (id, EmptyNode::new()));
        let membership = Membership::new(vec![BTreeSet::from([1])], BTreeMap::from(nodes)).unwrap();
        let normal = EntryPayload::Normal(Data(Bytes::from_static(b"entry")));
        let payloads = [EntryPayload::Blank, normal, EntryPayload::Membership(membership)];
        let at = |(at, payload)| Entry { log_id: log_id(6, 5 + at as u64), payload };
        payloads.into_iter().enumerate().map(at).collect()
    }

    #[test]
    fn appends_and_their_answers_come_back_as_they_went() {
        let request = AppendEntriesRequest {
            vote: vote(true),
            prev_log_id: Some(log_id(5, 4)),
            entries: entries(),
            leader_commit: Some(log_id(5, 3)),
        };
        let back = take_append(sent(&put_append(request.clone()))).unwrap();
        assert_eq!(format!("{request:?}"), format!("{back:?}"));
        for reply in [
            AppendEntriesResponse::Success,
            AppendEntriesResponse::PartialSuccess(Some(log_id(2, 9))),
            AppendEntriesResponse::PartialSuccess(None),
            AppendEntriesResponse::Conflict,
            AppendEntriesResponse::HigherVote(vote(false)),
        ] {
            assert_eq!(take_appended(sent(&put_appended(reply.clone()))), Ok(reply));
        }
    }

    #[test]
    fn votes_keep_their_flags() {
        for (transfer, beforehand) in [(false, false), (true, false), (false, true), (true, true)] {
            let mut request = VoteRequest::new(vote(false), Some(log_id(5, 4)));
            request.leadership_transfer = transfer;
            let back = take_elect(sent(&put_elect(&request, beforehand)));
            assert_eq!(back, Ok((request, beforehand)));
        }
        for granted in [false, true] {
            let reply = VoteResponse::new(vote(true), None, granted);
            assert_eq!(take_elected(sent(&put_elected(&reply))), Ok(reply));
        }
    }

    #[test]
    fn transfers_and_snapshots_come_back_as_they_went() {
        let request = TransferLeaderRequest::new(vote(true), 2, Some(log_id(7, 9)));
        assert_eq!(take_transfer(sent(&put_transfer(&request).unwrap())), Ok(request.clone()));
        let refused = [
            TransferLeaderError::VoteChanged { expected: vote(true), actual: vote(false) },
            TransferLeaderError::LogNotFlushed { expected: Some(log_id(7, 9)), actual: None },
        ];
        for reply in refused.map(Err).into_iter().chain([Ok(())]) {
            let back = take_transferred(sent(&put_transferred(reply.clone())), &request);
            assert_eq!(back, Ok(reply));
        }
        let nodes = BTreeMap::from([(1, EmptyNode::new())]);
        let membership = Membership::new(vec![BTreeSet::from([1])], nodes).unwrap();
        let last_membership = Members::new(Some(log_id(4, 2)), membership);
        let meta = Meta { last_log_id: Some(log_id(7, 9)), last_membership };
        assert_eq!(take_header(sent(&put_header(&vote(true), &meta))), Ok((vote(true), meta)));
    }

    #[test]
    fn what_no_node_says_is_refused() {
        let request = AppendEntriesRequest {
            vote: vote(true),
            prev_log_id: Some(log_id(5, 3)),
            entries: entries(),
            leader_commit: None,
        };
        assert!(take_append(put_append(request)).is_err(), "a gap");
        assert!(take_append(proto::AppendRequest::default()).is_err(), "no vote");
        assert!(take_appended(proto::AppendReply::default()).is_err(), "no result");
        let later = Meta { last_log_id: Some(log_id(8, 9)), last_membership: Members::default() };
        assert!(take_header(put_header(&vote(true), &later)).is_err(), "a later term than the leader's");
        let now = Meta { last_log_id: Some(log_id(7, 9)), last_membership: Members::default() };
        assert!(take_header(put_header(&vote(false), &now)).is_err(), "a candidate");
    }
}
