//! Who takes part in a group, how that changes, and who leads.
//!
//! Invariants:
//! - One change at a time, and each is a change of the membership it was judged on: whoever is late is refused.
//! - A change that has begun is carried to its end here, whether or not it is still waited for. If leadership is lost in
//!   between, the group may be left with two configurations at once; [`Change::Settle`] ends that.
//! - A learner becomes a voter, and a voter a leader, only when it lacks little or nothing: neither leaves the group waiting
//!   for a copy.
//! - A leader never takes its own vote away: it hands leadership over first.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use model::id::{LogIndex, NodeId};
use openraft::{
    ChangeMembers, ServerState,
    async_runtime::WatchReceiver,
    errors::{ChangeMembershipError, ClientWriteError, RaftError},
    impls::EmptyNode,
    raft::Precondition,
};

use super::{
    group::RaftOf,
    machine::State,
    types::{CommittedLeaderId, LogId, Members, Types},
};

/// Entries a learner may lack when it becomes a voter.
pub(crate) const LAG_MAX: u64 = 128;

/// How long a transfer is waited for: within it, an election that replaces it has begun.
const TRANSFER_WAIT: Duration = Duration::from_secs(3);

/// Who takes part in a group, as one node knows it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Membership {
    /// Those whose votes count; while it changes, of both configurations.
    pub(crate) voters: BTreeSet<NodeId>,
    /// Those that follow without a vote.
    pub(crate) learners: BTreeSet<NodeId>,
    /// Whether two configurations hold at once.
    pub(crate) is_joint: bool,
    /// Where in the log it is; none before the first.
    pub(crate) at: Option<LogIndex>,
}

/// A change of a group's members.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    /// A node follows from now on, without a vote.
    AddLearner(NodeId),
    /// A learner gets a vote.
    Promote(NodeId),
    /// A voter becomes a learner.
    Demote(NodeId),
    /// A node takes part no more, as voter or learner.
    Remove(NodeId),
    /// A change whose leader was lost is brought to its end.
    Settle,
}

/// Why a change was not made.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum ChangeRefused {
    /// This node does not lead; nothing was changed.
    #[error("this node does not lead the group")]
    NotLeader,
    /// Another change is under way; nothing was changed.
    #[error("another change of members is under way")]
    InProgress,
    /// The members are others than those the change was judged on; nothing was changed.
    #[error("the members have changed meanwhile")]
    Outdated,
    /// The node is what it would become; nothing was changed.
    #[error("node {0} is already that")]
    Already(NodeId),
    /// The node does not take part, or not as what it would have to be; nothing was changed.
    #[error("node {0} does not take part as that")]
    NotMember(NodeId),
    /// The node lacks too much; nothing was changed.
    #[error("node {node} lacks {lacks} entries")]
    Behind {
        /// Which.
        node: NodeId,
        /// How many entries.
        lacks: u64,
    },
    /// It leads, and has to hand over first; nothing was changed.
    #[error("node {0} leads the group")]
    Leads(NodeId),
    /// Without it there would be no voter; nothing was changed.
    #[error("node {0} is the last voter")]
    LastVoter(NodeId),
    /// The group has stopped.
    #[error("the group has stopped")]
    Stopped,
    /// It was begun, and leadership was lost before it was done: look at the members.
    #[error("the outcome of the change is unknown")]
    Unknown,
}

/// Why leadership was not handed over.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum TransferRefused {
    /// This node does not lead; nothing was done.
    #[error("this node does not lead the group")]
    NotLeader,
    /// The node has no vote; nothing was done.
    #[error("node {0} is no voter")]
    NotVoter(NodeId),
    /// The node lacks entries, or a sync of them; nothing was done.
    #[error("node {node} lacks {lacks} entries")]
    Behind {
        /// Which.
        node: NodeId,
        /// How many entries.
        lacks: u64,
    },
    /// The group has stopped.
    #[error("the group has stopped")]
    Stopped,
    /// It was asked to take over, and has not within the time: somebody will be elected.
    #[error("node {0} did not take over in time")]
    Unsettled(NodeId),
}

/// What a change or a transfer is judged on: one moment of a leader.
pub(super) struct Judged {
    me: NodeId,
    leader: CommittedLeaderId,
    members: Membership,
    at: Option<LogId>,
    last: u64,
    /// The last entry each follower is known to have on disk.
    matched: BTreeMap<u64, Option<u64>>,
}

impl Judged {
    /// This moment of a leader.
    pub(super) async fn of<S: State>(raft: &RaftOf<S>) -> Result<Self, NotJudged> {
        // Asked of the core, so that nothing it has appended is missing. What followers have is told by the metrics, which may
        // be older: then they lack more here than they do.
        let last = raft.with_raft_state(|state| state.log_ids.last().map(|id| id.index)).await;
        let last = last.map_err(|_| NotJudged::Stopped)?.unwrap_or_default();
        let metrics = raft.metrics();
        let now = metrics.borrow_watched();
        let (ServerState::Leader, Some(replication)) = (now.state, &now.replication) else {
            return Err(NotJudged::NotLeader);
        };
        let matched = replication.iter().map(|(node, id)| (*node, id.as_ref().map(|id| id.index)));
        Ok(Self {
            me: node_of(now.id),
            leader: CommittedLeaderId::new(now.vote.leader_id.term),
            members: members_of(&now.membership_config),
            at: *now.membership_config.log_id(),
            last: last.max(now.last_log_index.unwrap_or_default()),
            matched: matched.collect(),
        })
    }

    /// How many entries a node lacks.
    fn lacks(&self, node: NodeId) -> u64 {
        let has = self.matched.get(&u64::from(node.0)).copied().flatten();
        has.map_or(self.last + 1, |has| self.last.saturating_sub(has))
    }

    /// Whether a node can take over at once.
    fn may_lead(&self, node: NodeId) -> Result<(), TransferRefused> {
        if !self.members.voters.contains(&node) {
            return Err(TransferRefused::NotVoter(node));
        }
        match self.lacks(node) {
            0 => Ok(()),
            lacks => Err(TransferRefused::Behind { node, lacks }),
        }
    }

    /// What the library is to be told for a change, and whether a voter that loses its vote goes on as a learner.
    fn may_change(&self, change: Change) -> Result<(ChangeMembers<u64, EmptyNode>, bool), ChangeRefused> {
        let Membership { voters, learners, is_joint, .. } = &self.members;
        let one = |node: NodeId| BTreeSet::from([u64::from(node.0)]);
        if *is_joint && change != Change::Settle {
            return Err(ChangeRefused::InProgress);
        }
        let loses_its_vote = |node: NodeId| {
            if node == self.me {
                return Err(ChangeRefused::Leads(node));
            }
            if voters.len() == 1 { Err(ChangeRefused::LastVoter(node)) } else { Ok(()) }
        };
        match change {
            Change::AddLearner(node) if voters.contains(&node) || learners.contains(&node) => {
                Err(ChangeRefused::Already(node))
            }
            Change::AddLearner(node) => {
                let nodes = BTreeMap::from([(u64::from(node.0), EmptyNode::new())]);
                Ok((ChangeMembers::AddNodes(nodes), true))
            }
            Change::Promote(node) if voters.contains(&node) => Err(ChangeRefused::Already(node)),
            Change::Promote(node) if !learners.contains(&node) => Err(ChangeRefused::NotMember(node)),
            Change::Promote(node) => match self.lacks(node) {
                lacks if lacks > LAG_MAX => Err(ChangeRefused::Behind { node, lacks }),
                _ => Ok((ChangeMembers::AddVoterIds(one(node)), true)),
            },
            Change::Demote(node) if learners.contains(&node) => Err(ChangeRefused::Already(node)),
            Change::Demote(node) if !voters.contains(&node) => Err(ChangeRefused::NotMember(node)),
            Change::Demote(node) => {
                loses_its_vote(node)?;
                Ok((ChangeMembers::RemoveVoters(one(node)), true))
            }
            Change::Remove(node) if learners.contains(&node) => {
                Ok((ChangeMembers::RemoveNodes(one(node)), true))
            }
            Change::Remove(node) if !voters.contains(&node) => Err(ChangeRefused::NotMember(node)),
            Change::Remove(node) => {
                loses_its_vote(node)?;
                Ok((ChangeMembers::RemoveVoters(one(node)), false))
            }
            // The empty change leaves the configuration that is on its way as the only one.
            Change::Settle => Ok((ChangeMembers::AddVoterIds(BTreeSet::new()), true)),
        }
    }
}

/// Why there is nothing to be judged on.
pub(super) enum NotJudged {
    NotLeader,
    Stopped,
}

/// Makes a change, from its judgement to the end.
pub(super) async fn change<S: State>(raft: &RaftOf<S>, change: Change) -> Result<Membership, ChangeRefused> {
    let judged = Judged::of(raft).await.map_err(|not| match not {
        NotJudged::NotLeader => ChangeRefused::NotLeader,
        NotJudged::Stopped => ChangeRefused::Stopped,
    })?;
    let (members, retain) = judged.may_change(change)?;
    if change == Change::Settle && !judged.members.is_joint {
        return Ok(judged.members);
    }
    let conditions = [
        Precondition::CommittedLeaderId { committed_leader_id: judged.leader },
        Precondition::LastMembershipLogId { last_membership_log_id: judged.at },
    ];
    let before = judged.at.map(|id| LogIndex(id.index));
    match raft.change_membership_if(members, retain, conditions).await {
        Ok(response) => Ok(match &response.membership {
            Some(membership) => {
                members_of(&openraft::StoredMembership::new(Some(response.log_id), membership.clone()))
            }
            None => newest(raft),
        }),
        // Between two steps the library refuses with the same words as before the first one.
        Err(_) if newest(raft).at != before => Err(ChangeRefused::Unknown),
        Err(RaftError::Fatal(_)) => Err(ChangeRefused::Stopped),
        Err(RaftError::APIError(error)) => Err(match error {
            ClientWriteError::ForwardToLeader(_) => ChangeRefused::NotLeader,
            ClientWriteError::LogEntryDiscarded(_) => ChangeRefused::Unknown,
            ClientWriteError::PreconditionFailed(_) => ChangeRefused::Outdated,
            ClientWriteError::ChangeMembershipError(error) => match error {
                ChangeMembershipError::InProgress(_) | ChangeMembershipError::UncommittedLeaderLog(_) => {
                    ChangeRefused::InProgress
                }
                ChangeMembershipError::EmptyMembership(_)
                | ChangeMembershipError::LearnerNotFound(_)
                | ChangeMembershipError::UnsupportedMembershipTransition(_)
                | ChangeMembershipError::NodeMetadataChanged(_) => ChangeRefused::Outdated,
            },
        }),
    }
}

/// Hands leadership over, if the node can take it at once, and waits until somebody else has it.
pub(super) async fn transfer<S: State>(raft: &RaftOf<S>, to: NodeId) -> Result<(), TransferRefused> {
    let judged = Judged::of(raft).await.map_err(|not| match not {
        NotJudged::NotLeader => TransferRefused::NotLeader,
        NotJudged::Stopped => TransferRefused::Stopped,
    })?;
    if to == judged.me {
        return Ok(());
    }
    judged.may_lead(to)?;
    let mut roles = raft.server_metrics();
    let target = u64::from(to.0);
    raft.trigger().transfer_leader(target).await.map_err(|_| TransferRefused::Stopped)?;
    let over = async {
        loop {
            let leader = roles.borrow_watched().current_leader;
            if leader.is_some_and(|leader| leader != u64::from(judged.me.0)) {
                return Ok(leader == Some(target));
            }
            roles.changed().await.map_err(|_| TransferRefused::Stopped)?;
        }
    };
    match tokio::time::timeout(TRANSFER_WAIT, over).await {
        Ok(Ok(true)) => Ok(()),
        Ok(Ok(false)) | Err(_) => Err(TransferRefused::Unsettled(to)),
        Ok(Err(refused)) => Err(refused),
    }
}

/// Whether this node is the only voter, by what its core knows now.
pub(super) async fn is_alone<S: State>(raft: &RaftOf<S>) -> bool {
    let me = *raft.node_id();
    let alone = move |state: &openraft::RaftState<Types>| {
        state.membership_state.effective().membership().voter_ids().all(|voter| voter == me)
    };
    raft.with_raft_state(alone).await.unwrap_or(false)
}

/// The members as this node knows them.
pub(super) fn newest<S: State>(raft: &RaftOf<S>) -> Membership {
    members_of(&raft.server_metrics().borrow_watched().membership_config)
}

pub(super) fn members_of(members: &Members) -> Membership {
    let membership = members.membership();
    Membership {
        voters: membership.voter_ids().map(node_of).collect(),
        learners: membership.learner_ids().map(node_of).collect(),
        is_joint: membership.get_joint_config().len() > 1,
        at: members.log_id().as_ref().map(|id| LogIndex(id.index)),
    }
}

/// Ids of nodes have 32 bits with us.
pub(super) fn node_of(id: u64) -> NodeId {
    NodeId(u32::try_from(id).unwrap_or(u32::MAX))
}
