//! Why a receiver does not take a call.
//!
//! A refusal travels as the details of a status, so that it is told apart from what a connection does on its own.

use model::id::NodeId;
use prost::Message;
use tonic::{Code, Status};

use super::proto::{self, refusal};

/// Why a call was not taken. Nothing was done.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum Refusal {
    /// It comes from another cluster.
    #[error("the message is of another cluster")]
    Cluster,
    /// Its sender is not known, or lives another life than the one that is known.
    #[error("the sender is not known in this life")]
    Sender,
    /// It was meant for another node, or for an earlier life of this one.
    #[error("the message was meant for another node than {node}")]
    Receiver {
        /// Who got it.
        node: NodeId,
    },
    /// There is no such group here.
    #[error("the group is not here")]
    Group,
    /// It makes no sense.
    #[error("the message is malformed: {0}")]
    Malformed(String),
    /// Too many of these are under way.
    #[error("too many at once")]
    Busy,
    /// The group has stopped.
    #[error("the group has stopped")]
    Stopped,
}

impl Refusal {
    /// A message that makes no sense.
    pub(crate) fn malformed(what: impl Into<String>) -> Self {
        Self::Malformed(what.into())
    }

    /// The refusal in a status; none if the status is of another kind.
    pub(crate) fn find(status: &Status) -> Option<Self> {
        if status.details().is_empty() {
            return None;
        }
        let refusal = proto::Refusal::decode(status.details()).ok()?;
        Some(match refusal.reason? {
            refusal::Reason::Cluster(_) => Self::Cluster,
            refusal::Reason::Sender(_) => Self::Sender,
            refusal::Reason::Receiver(receiver) => Self::Receiver { node: NodeId(receiver.node) },
            refusal::Reason::Group(_) => Self::Group,
            refusal::Reason::Malformed(what) => Self::Malformed(what),
            refusal::Reason::Busy(_) => Self::Busy,
            refusal::Reason::Stopped(_) => Self::Stopped,
        })
    }
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        let none = refusal::None {};
        let (code, reason) = match &refusal {
            Refusal::Cluster => (Code::PermissionDenied, refusal::Reason::Cluster(none)),
            Refusal::Sender => (Code::PermissionDenied, refusal::Reason::Sender(none)),
            Refusal::Receiver { node } => {
                (Code::FailedPrecondition, refusal::Reason::Receiver(refusal::Receiver { node: node.0 }))
            }
            Refusal::Group => (Code::NotFound, refusal::Reason::Group(none)),
            Refusal::Malformed(what) => (Code::InvalidArgument, refusal::Reason::Malformed(what.clone())),
            Refusal::Busy => (Code::ResourceExhausted, refusal::Reason::Busy(none)),
            Refusal::Stopped => (Code::Unavailable, refusal::Reason::Stopped(none)),
        };
        let details = proto::Refusal { reason: Some(reason) }.encode_to_vec();
        Status::with_details(code, refusal.to_string(), details.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_read_as_it_was_said() {
        let all = [
            Refusal::Cluster,
            Refusal::Sender,
            Refusal::Receiver { node: NodeId(7) },
            Refusal::Group,
            Refusal::malformed("no vote"),
            Refusal::Busy,
            Refusal::Stopped,
        ];
        for refusal in all {
            assert_eq!(Refusal::find(&Status::from(refusal.clone())), Some(refusal));
        }
        assert_eq!(Refusal::find(&Status::unavailable("a proxy says so")), None);
    }
}
