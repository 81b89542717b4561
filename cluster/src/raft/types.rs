//! What consensus is made of here: the types openraft is told to use, and their bytes in the log.
//!
//! Invariants:
//! - One leader per term (the standard leader id), so a term names a leadership.
//! - An entry's payload is a kind and bytes that only storage reads; a membership and a vote have versioned forms
//!   of their own, so that an upgrade of the library changes no stored byte.

use std::{
    any::Any,
    collections::{BTreeMap, BTreeSet},
    fmt, io,
};

use bytes::{BufMut, Bytes, BytesMut};
use openraft::{
    EntryPayload, Membership, OptionalSend, RaftTypeConfig, StoredMembership,
    impls::{BoxedErrorSource, EmptyNode, InlineBatch, leader_id_std},
    raft::responder::Responder,
    vote::RaftLeaderId,
};
use tokio::sync::oneshot;

/// The type configuration of every group.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Types;

pub(crate) type LeaderId = leader_id_std::LeaderId<u64, u64>;
pub(crate) type CommittedLeaderId = <LeaderId as RaftLeaderId>::Committed;
pub(crate) type LogId = openraft::LogId<CommittedLeaderId>;
pub(crate) type Vote = openraft::impls::Vote<LeaderId>;
pub(crate) type Payload = EntryPayload<Data, u64, EmptyNode>;
pub(crate) type Entry = openraft::Entry<CommittedLeaderId, Payload>;
pub(crate) type Members = StoredMembership<CommittedLeaderId, u64, EmptyNode>;

impl RaftTypeConfig for Types {
    type D = Data;
    type R = Applied;
    type NodeId = u64;
    type Node = EmptyNode;
    type Term = u64;
    type LeaderId = LeaderId;
    type Vote = Vote;
    type Payload = Payload;
    type Entry = Entry;
    type AsyncRuntime = openraft_rt_tokio::TokioRuntime;
    type Responder<T>
        = Answer<T>
    where
        T: OptionalSend + 'static;
    type Batch<T>
        = InlineBatch<T>
    where
        T: OptionalSend + 'static;
    type ErrorSource = BoxedErrorSource;
}

/// A proposal: bytes that storage wrote and will read.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Data(pub(crate) Bytes);

impl fmt::Debug for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl fmt::Display for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// What came of an entry when it was applied.
#[derive(Debug, Default)]
pub(crate) enum Applied {
    /// Nothing that anybody waits for: blanks, memberships.
    #[default]
    Nothing,
    /// An entry of a shard.
    Shard(storage::shard::EntryOutcome),
    /// An entry of the control group.
    Control(storage::codec::control::Answer),
}

/// What a proposal holds until it is applied or refused: locks, a pass.
pub(crate) type InFlight = Box<dyn Any + Send>;

/// Where the result of a proposal goes; a proposer that went away is no news.
pub(crate) struct Answer<T> {
    in_flight: Option<InFlight>,
    sender: oneshot::Sender<T>,
}

impl<T> Answer<T> {
    pub(crate) fn channel(in_flight: Option<InFlight>) -> (Self, oneshot::Receiver<T>) {
        let (sender, receiver) = oneshot::channel();
        (Self { in_flight, sender }, receiver)
    }
}

impl<T: OptionalSend + 'static> Responder<Types, T> for Answer<T> {
    fn on_complete(self, result: T) {
        // Locks first: whoever waits for them need not wait for this client to be scheduled.
        drop(self.in_flight);
        let _ = self.sender.send(result);
    }
}

const BLANK: u8 = 0;
const NORMAL: u8 = 1;
const MEMBERSHIP: u8 = 2;
const FORMAT: u8 = 1;

/// An entry's payload as the log keeps it: a kind, and bytes.
pub(crate) fn encode_payload(payload: Payload) -> (u8, Bytes) {
    match payload {
        EntryPayload::Blank => (BLANK, Bytes::new()),
        EntryPayload::Normal(Data(bytes)) => (NORMAL, bytes),
        EntryPayload::Membership(membership) => {
            let mut out = BytesMut::new();
            put_membership(&mut out, &membership);
            (MEMBERSHIP, out.freeze())
        }
    }
}

pub(crate) fn decode_payload(kind: u8, mut bytes: Bytes) -> io::Result<Payload> {
    match kind {
        BLANK => Ok(EntryPayload::Blank),
        NORMAL => Ok(EntryPayload::Normal(Data(bytes))),
        MEMBERSHIP => Ok(EntryPayload::Membership(take_membership(&mut bytes)?)),
        kind => Err(damaged(format!("a log entry has the unknown kind {kind}"))),
    }
}

pub(crate) fn encode_vote(vote: &Vote) -> Bytes {
    let mut out = BytesMut::with_capacity(18);
    out.put_u8(FORMAT);
    out.put_u64(vote.leader_id.term);
    out.put_u64(vote.leader_id.voted_for);
    out.put_u8(u8::from(vote.committed));
    out.freeze()
}

pub(crate) fn decode_vote(mut bytes: Bytes) -> io::Result<Vote> {
    check_format(&mut bytes)?;
    let leader_id = LeaderId { term: take_u64(&mut bytes)?, voted_for: take_u64(&mut bytes)? };
    let committed = take_u8(&mut bytes)? != 0;
    Ok(Vote { leader_id, committed })
}

/// A membership with the place of its entry, as a state machine keeps it.
pub(crate) fn encode_members(members: &Members) -> Bytes {
    let mut out = BytesMut::new();
    out.put_u8(FORMAT);
    match members.log_id() {
        None => out.put_u8(0),
        Some(id) => {
            out.put_u8(1);
            out.put_u64(id.leader_id.term);
            out.put_u64(id.index);
        }
    }
    put_membership(&mut out, members.membership());
    out.freeze()
}

pub(crate) fn decode_members(mut bytes: Bytes) -> io::Result<Members> {
    if bytes.is_empty() {
        return Ok(Members::default());
    }
    check_format(&mut bytes)?;
    let log_id = match take_u8(&mut bytes)? {
        0 => None,
        _ => Some(log_id(take_u64(&mut bytes)?, take_u64(&mut bytes)?)),
    };
    Ok(Members::new(log_id, take_membership(&mut bytes)?))
}

pub(crate) fn log_id(term: u64, index: u64) -> LogId {
    LogId::new(CommittedLeaderId::new(term), index)
}

fn put_membership(out: &mut BytesMut, membership: &Membership<u64, EmptyNode>) {
    out.put_u8(FORMAT);
    let configs = membership.get_joint_config();
    out.put_u32(configs.len() as u32);
    for voters in configs {
        out.put_u32(voters.len() as u32);
        for node in voters {
            out.put_u64(*node);
        }
    }
    let nodes: Vec<u64> = membership.nodes().map(|(id, _)| *id).collect();
    out.put_u32(nodes.len() as u32);
    for node in nodes {
        out.put_u64(node);
    }
}

fn take_membership(bytes: &mut Bytes) -> io::Result<Membership<u64, EmptyNode>> {
    check_format(bytes)?;
    let configs = take_u32(bytes)?;
    let mut voters = Vec::new();
    for _ in 0..configs {
        voters.push(take_nodes(bytes)?.into_iter().collect::<BTreeSet<_>>());
    }
    let nodes: BTreeMap<_, _> = take_nodes(bytes)?.into_iter().map(|id| (id, EmptyNode::new())).collect();
    if voters.is_empty() && nodes.is_empty() {
        return Ok(Membership::default());
    }
    Membership::new(voters, nodes).map_err(|error| damaged(format!("a membership is impossible: {error}")))
}

fn take_nodes(bytes: &mut Bytes) -> io::Result<Vec<u64>> {
    let count = take_u32(bytes)?;
    (0..count).map(|_| take_u64(bytes)).collect()
}

fn check_format(bytes: &mut Bytes) -> io::Result<()> {
    match take_u8(bytes)? {
        FORMAT => Ok(()),
        format => Err(damaged(format!("a record has format {format}, this server knows {FORMAT}"))),
    }
}

fn take_u8(bytes: &mut Bytes) -> io::Result<u8> {
    Ok(take::<1>(bytes)?[0])
}

fn take_u32(bytes: &mut Bytes) -> io::Result<u32> {
    Ok(u32::from_be_bytes(take(bytes)?))
}

fn take_u64(bytes: &mut Bytes) -> io::Result<u64> {
    Ok(u64::from_be_bytes(take(bytes)?))
}

fn take<const N: usize>(bytes: &mut Bytes) -> io::Result<[u8; N]> {
    let (head, _) =
        bytes.split_first_chunk::<N>().ok_or_else(|| damaged("a record is cut short".to_owned()))?;
    let head = *head;
    let _ = bytes.split_to(N);
    Ok(head)
}

fn damaged(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn votes_entries_and_members_come_back_as_they_went() {
        let vote = Vote { leader_id: LeaderId { term: 7, voted_for: 3 }, committed: true };
        assert_eq!(decode_vote(encode_vote(&vote)).unwrap(), vote);

        let nodes = [1, 2, 9].map(|id| (id, EmptyNode::new()));
        let joint = vec![BTreeSet::from([1, 2]), BTreeSet::from([2])];
        let membership = Membership::new(joint, BTreeMap::from(nodes)).unwrap();
        let members = Members::new(Some(log_id(4, 12)), membership.clone());
        assert_eq!(decode_members(encode_members(&members)).unwrap(), members);
        assert_eq!(decode_members(Bytes::new()).unwrap(), Members::default());

        let normal = EntryPayload::Normal(Data(Bytes::from_static(b"entry")));
        for payload in [EntryPayload::Blank, normal, EntryPayload::Membership(membership)] {
            let (kind, bytes) = encode_payload(payload.clone());
            assert_eq!(decode_payload(kind, bytes).unwrap(), payload);
        }
    }

    #[test]
    fn damaged_records_are_errors_not_panics() {
        let nodes = [1, 2].map(|id| (id, EmptyNode::new()));
        let membership = Membership::new(vec![BTreeSet::from([1])], BTreeMap::from(nodes)).unwrap();
        let good = encode_members(&Members::new(Some(log_id(4, 12)), membership));
        for len in 1..good.len() {
            assert!(decode_members(good.slice(..len)).is_err(), "{len}");
        }
        assert!(decode_vote(Bytes::from_static(&[9])).is_err());
        assert!(decode_payload(7, Bytes::new()).is_err());
    }
}
