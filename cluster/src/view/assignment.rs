//! A view of resources: who takes part, and who owns which.
//!
//! Invariants:
//! - Members are distinct, none is blank, and they are in order; the check comes before the sorting.
//! - A resource has at most one owner, which is a member. Both directions are built together and never change.
//! - Views made anywhere of the same facts, in any order, are equal.
//!
//! Not here: the ring (`view::ring`), which view is newest (`view::provider`).

use std::{
    collections::HashMap,
    fmt::{self, Debug, Display},
    hash::Hash,
};

use model::id::{Epoch, NodeId, ShardId, ViewId};

use crate::ring;

use super::delta::Units;

/// One incarnation of the control group: the only one that may publish the views of a service. A control group that is
/// rebuilt or restored is another one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Authority(pub u128);

/// One life of a node: never a bare name, which may come back with other data.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Member {
    /// Which node; never 0.
    pub node: NodeId,
    /// Which of its lives; never 0.
    pub incarnation: u64,
}

/// What a view is called and where it comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Its number; orders the views of one authority.
    pub id: ViewId,
    /// The one immediately before, as the authority says; none for the first, or if that is no longer known.
    pub predecessor: Option<ViewId>,
    /// Who published it.
    pub authority: Authority,
    /// How much of the members' comings and goings it takes into account. Does not take part in the order.
    pub watermark: u64,
}

/// What every view can tell.
pub trait Versioned: Send + Sync + 'static {
    /// What it is called.
    fn header(&self) -> &Header;

    /// Whether nobody takes part.
    fn is_vacant(&self) -> bool;

    /// Its number.
    fn id(&self) -> ViewId {
        self.header().id
    }

    /// Whether this one came immediately after `old`, of the same authority: only then is there anything to hand over.
    fn follows(&self, old: &Self) -> bool
    where
        Self: Sized,
    {
        let (new, old) = (self.header(), old.header());
        new.authority == old.authority && new.predecessor == Some(old.id)
    }
}

/// A resource's owner, and how often it has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Held {
    /// Who; none if nobody can serve it.
    pub owner: Option<Member>,
    /// Grows with each change of owner. A resource that went away and came back has another one.
    pub epoch: Epoch,
}

/// Who owns which resource.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct View<R: Eq + Hash> {
    header: Header,
    members: Vec<Member>,
    holders: HashMap<R, Held>,
    held: HashMap<Member, Units<R>>,
}

/// Why facts make no view.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// A number is 0, or the predecessor is not before the view.
    Header(ViewId),
    /// A member without node or incarnation.
    Blank(Member),
    /// A member twice, or two lives of one node.
    Twice(Member),
    /// Members that should be in order are not.
    Unsorted,
    /// An owner that takes no part.
    Stranger(Member),
    /// A resource that is given twice.
    TwoOwners(String),
    /// The ranges of the shards do not cover the ring once.
    Ring(ring::Fault),
    /// A shard's number is the control group's.
    Control(ShardId),
    /// These bytes are no view's.
    Bytes,
}

impl Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(id) => write!(f, "view {id} has an impossible number or predecessor"),
            Self::Blank(member) => write!(f, "{member} is no member"),
            Self::Twice(member) => write!(f, "{member} takes part twice"),
            Self::Unsorted => f.write_str("members are not in order"),
            Self::Stranger(member) => write!(f, "{member} owns something and takes no part"),
            Self::TwoOwners(resource) => write!(f, "{resource} is assigned twice"),
            Self::Ring(fault) => Display::fmt(fault, f),
            Self::Control(shard) => write!(f, "{shard} is not on the ring"),
            Self::Bytes => f.write_str("the bytes of a view are damaged"),
        }
    }
}

impl std::error::Error for Fault {}

impl Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.node, self.incarnation)
    }
}

impl Header {
    pub(super) fn check(&self) -> Result<(), Fault> {
        let sound = self.id.0 > 0 && self.predecessor.is_none_or(|before| before.0 > 0 && before < self.id);
        if sound { Ok(()) } else { Err(Fault::Header(self.id)) }
    }
}

/// Members in order, each once and none blank. Two lives of one node cannot both take part: the older one is dead.
pub(super) fn check_members(members: impl IntoIterator<Item = Member>) -> Result<Vec<Member>, Fault> {
    let mut members: Vec<_> = members.into_iter().collect();
    if let Some(blank) = members.iter().find(|member| member.node.0 == 0 || member.incarnation == 0) {
        return Err(Fault::Blank(*blank));
    }
    members.sort_unstable();
    match members.windows(2).find(|pair| pair[0].node == pair[1].node) {
        Some(pair) => Err(Fault::Twice(pair[1])),
        None => Ok(members),
    }
}

impl<R: Clone + Eq + Hash + Debug> View<R> {
    /// The view of these facts, if they are sound.
    pub fn new(
        header: Header,
        members: impl IntoIterator<Item = Member>,
        resources: impl IntoIterator<Item = (R, Held)>,
    ) -> Result<Self, Fault> {
        header.check()?;
        let members = check_members(members)?;
        let mut holders = HashMap::new();
        let mut held: HashMap<Member, Units<R>> = HashMap::new();
        for (resource, holder) in resources {
            if let Some(owner) = holder.owner {
                if members.binary_search(&owner).is_err() {
                    return Err(Fault::Stranger(owner));
                }
                held.entry(owner).or_default().insert(resource.clone(), holder.epoch);
            }
            if holders.insert(resource.clone(), holder).is_some() {
                return Err(Fault::TwoOwners(format!("{resource:?}")));
            }
        }
        Ok(Self { header, members, holders, held })
    }

    /// Who takes part, in order.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Who has a resource, and in which epoch; none if there is no such resource.
    pub fn holder(&self, resource: &R) -> Option<Held> {
        self.holders.get(resource).copied()
    }

    /// What a member owns.
    pub fn held_by(&self, member: Member) -> Option<&Units<R>> {
        self.held.get(&member)
    }

    /// How many resources there are.
    pub fn len(&self) -> usize {
        self.holders.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.holders.is_empty()
    }
}

impl<R: Clone + Eq + Hash + Send + Sync + 'static> Versioned for View<R> {
    fn header(&self) -> &Header {
        &self.header
    }

    fn is_vacant(&self) -> bool {
        self.members.is_empty()
    }
}
