//! The owner of a shard: whoever leads its group and has its claim applied. All that clients ask of the shard's
//! partitions passes here.
//!
//! Invariants:
//! - The shard is open ([`crate::admission`]) only while this node leads as the only voter and its claim is applied; a new
//!   claim ends all lock sets and read points of older ones.
//! - Whoever calls [`Owner::execute`] or a read holds a `Pass`.
//! - Every command holds its locks from before it is proposed until it is applied, also if its client goes away.
//!
//! Not here: which shard a partition is in (`router`), what a command means (`storage::shard`).

mod clock;
mod descriptors;
mod load;
mod lock;
mod point;
mod read;
mod slots;
mod sweep;
mod write;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use arc_swap::Guard;
use model::{
    command::LockSet,
    id::{Boot, Epoch, NodeId, SessionId, ShardId},
    read::ReadPoint,
};
use storage::{
    codec::entry::{Backfill, Body, Entry, FeedRetention, Stamp, to_bytes},
    log::Use,
    shard::{Backfilled, EntryOutcome, Shard, Snapshot},
};
use tracing::{info, warn};

use crate::{
    Error, Result,
    admission::{Admission, Pass},
    catalog::Board,
    raft::{Applied, Consensus, Control, Refused, Replica, Status, Timer},
};

use clock::LoggedClock;
use lock::{Locks, Refusal};
use point::Points;

pub use lock::LockCounts;
pub use slots::{SLOTS_MAX, Slot, Slots};

/// How long a failed claim waits before it is tried again.
const CLAIM_AGAIN: Duration = Duration::from_millis(50);

/// The owner of one shard.
pub(crate) struct Owner {
    shard: ShardId,
    admission: Arc<Admission>,
    locks: Arc<Locks>,
    points: Points<Snapshot>,
    slots: Arc<Slots>,
    clock: LoggedClock,
    timer: Timer,
    consensus: Arc<dyn Consensus>,
    replica: Arc<Replica>,
    log: storage::log::Log,
    claimant: Claimant,
    epoch: AtomicU64,
    board: Arc<Board>,
    control: Arc<Control>,
    bringing: tokio::sync::Mutex<()>,
    /// Held while a command that is larger than an entry is staged.
    staging: tokio::sync::Mutex<()>,
    loads: load::Loads,
    /// Numbers large commands of this claim; a number is not used twice in this process.
    staged: AtomicU64,
    feed: FeedRetention,
    /// Up to when due work of each kind was swept, by `elapsed`.
    floors: [AtomicU64; sweep::KINDS.len()],
}

/// Who claims: a node, one of its starts, and the process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Claimant {
    pub(crate) node: NodeId,
    pub(crate) boot: Boot,
    pub(crate) nonce: u64,
}

/// What an owner is made of.
pub(crate) struct Parts {
    pub(crate) admission: Arc<Admission>,
    pub(crate) timer: Timer,
    pub(crate) consensus: Arc<dyn Consensus>,
    pub(crate) shard: ShardId,
    pub(crate) replica: Arc<Replica>,
    pub(crate) log: storage::log::Log,
    pub(crate) board: Arc<Board>,
    pub(crate) control: Arc<Control>,
    pub(crate) claimant: Claimant,
    pub(crate) read_points_max: usize,
    pub(crate) read_point_age_max: Duration,
    pub(crate) feed: FeedRetention,
}

impl Owner {
    pub(crate) fn new(parts: Parts) -> Arc<Self> {
        let shard = parts.shard;
        Arc::new(Self {
            shard,
            admission: parts.admission,
            locks: Locks::new(parts.timer.clone()),
            points: Points::new(shard, parts.read_points_max, parts.read_point_age_max),
            slots: Slots::new(),
            clock: LoggedClock::new(parts.timer.clock().clone()),
            timer: parts.timer,
            consensus: parts.consensus,
            replica: parts.replica,
            log: parts.log,
            claimant: parts.claimant,
            epoch: AtomicU64::new(0),
            board: parts.board,
            control: parts.control,
            bringing: tokio::sync::Mutex::default(),
            staging: tokio::sync::Mutex::default(),
            loads: load::Loads::default(),
            staged: AtomicU64::new(0),
            feed: parts.feed,
            floors: Default::default(),
        })
    }

    /// Claims the shard whenever this node leads it, and closes it when it does not, until the group ends. Answers why it
    /// ended.
    pub(crate) async fn drive(self: Arc<Self>) -> String {
        let mut status = self.consensus.status();
        let mut claimed = None;
        loop {
            let now = status.borrow_and_update().clone();
            match now {
                Status::Failed(reason) => {
                    self.stop();
                    return reason;
                }
                // With other voters, reading needs more than a pass: nothing is served before that is built.
                Status::Follows | Status::LeadsOthers(_) => {
                    claimed = None;
                    self.admission.close();
                }
                Status::Leads(term) if claimed == Some(term) => {}
                Status::Leads(term) => match self.claim().await {
                    Ok(epoch) => {
                        claimed = Some(term);
                        self.admission.open(epoch);
                        info!(shard = %self.shard, %epoch, term, "shard is owned");
                    }
                    Err(refused) => {
                        warn!(shard = %self.shard, ?refused, "claim was not applied");
                        self.timer.sleep(CLAIM_AGAIN).await;
                        continue;
                    }
                },
            }
            if status.changed().await.is_err() {
                self.stop();
                return "the group has ended".to_owned();
            }
        }
    }

    /// Makes this start of this node the owner: once it is applied, no older claim's entry can be.
    async fn claim(&self) -> Result<Epoch, Refused> {
        self.admission.close();
        // Everything of earlier leaders is applied first, so that the epoch and the clocks go on from the newest.
        self.consensus.read_index().await?;
        let head = self.state().head();
        self.clock.resume(head.time);
        let epoch = Epoch(head.claim.epoch.0 + 1);
        let Claimant { node, boot, nonce } = self.claimant;
        let stamp = Stamp { time: self.clock.now(), epoch };
        let entry = to_bytes(&Entry { stamp, body: Body::Claim { epoch, node, boot, nonce } });
        match self.consensus.propose(entry, None).await? {
            Applied::Shard(EntryOutcome::Done) => {}
            Applied::Shard(_) | Applied::Control(_) | Applied::Nothing => return Err(Refused::NotLeader),
        }
        self.epoch.store(epoch.0, Ordering::Release);
        self.loads.clear();
        self.locks.raise_epoch(epoch);
        self.points.clear();
        Ok(epoch)
    }

    /// Closes the shard for good: no new requests, and who waits for a lock waits no longer.
    pub(crate) fn close(&self) {
        self.admission.close();
        self.locks.close();
    }

    /// Gives up what was leased.
    pub(crate) fn stop(&self) {
        self.close();
        self.points.clear();
    }

    pub(crate) fn shard(&self) -> ShardId {
        self.shard
    }

    pub(crate) fn admission(&self) -> &Arc<Admission> {
        &self.admission
    }

    /// The shard's state that is served now.
    pub(crate) fn state(&self) -> Guard<Arc<Shard>> {
        self.replica.shard()
    }

    pub(crate) fn slots(&self) -> &Arc<Slots> {
        &self.slots
    }

    pub(crate) fn consensus(&self) -> &Arc<dyn Consensus> {
        &self.consensus
    }

    pub(crate) fn epoch(&self) -> Epoch {
        Epoch(self.epoch.load(Ordering::Acquire))
    }

    pub(crate) fn lock_counts(&self) -> LockCounts {
        self.locks.counts()
    }

    pub(crate) fn read_points(&self) -> usize {
        self.points.open()
    }

    /// Whether the wall clock is too far ahead to be followed.
    pub(crate) fn is_clock_held(&self) -> bool {
        self.clock.is_held()
    }

    /// Leases the newest state.
    pub(crate) fn read_point(&self, _pass: &Pass) -> Result<ReadPoint> {
        let snapshot = self.state().snapshot_to_sweep();
        let revision = snapshot.revision()?;
        self.points.lease(self.epoch(), self.timer.now(), revision, snapshot)
    }

    /// Begins a transaction's lock set.
    pub(crate) fn begin_locks(&self, _pass: &Pass, session: SessionId) -> Result<LockSet> {
        self.locks.begin(session).map_err(refusal)
    }

    /// Ends a lock set, or gives back what came after its first `keep` locks. Needs no pass: it only frees.
    pub(crate) fn unlock(&self, set: LockSet, keep: Option<usize>) {
        self.locks.release(set, keep);
    }

    /// Ends all lock sets of a session.
    pub(crate) fn end_session(&self, session: SessionId) {
        self.locks.end_session(session);
    }

    /// The number of a large command.
    fn next_number(&self) -> u64 {
        self.staged.fetch_add(1, Ordering::Relaxed)
    }

    /// What an entry is stamped with when it is proposed now.
    fn stamp(&self) -> Stamp {
        Stamp { time: self.clock.now(), epoch: self.epoch() }
    }

    /// Adds a page of rows to an index.
    pub(crate) async fn backfill(&self, page: Backfill) -> Result<Backfilled> {
        match self.propose(Body::Backfill(page), Use::Common).await? {
            EntryOutcome::Backfilled(backfilled) => Ok(backfilled),
            EntryOutcome::Done
            | EntryOutcome::Fenced
            | EntryOutcome::Command(_)
            | EntryOutcome::Expired(_) => unreachable!("a page is answered with how far it went"),
        }
    }

    /// Proposes an entry of the owner's own.
    async fn propose(&self, body: Body, room: Use) -> Result<EntryOutcome> {
        let entry = to_bytes(&Entry { stamp: self.stamp(), body });
        let room = self.log.admit(entry.len() as u64, room)?;
        match self.consensus.propose(entry, Some(Box::new(room))).await {
            Ok(Applied::Shard(EntryOutcome::Fenced)) => Err(Error::NoLeader { shard: self.shard }),
            Ok(Applied::Shard(outcome)) => Ok(outcome),
            Ok(Applied::Control(_) | Applied::Nothing) => {
                unreachable!("a shard answers its entries as a shard")
            }
            Err(refused) => Err(self.refused(refused)),
        }
    }

    fn refused(&self, refused: Refused) -> Error {
        match refused {
            Refused::NotLeader => Error::NoLeader { shard: self.shard },
            Refused::Stopped => Error::Stopping,
            Refused::TooLarge { given, max } => Error::CommandTooLarge { given, max, unit: "bytes" },
            Refused::Unknown => Error::OutcomeUnknown { shard: self.shard },
        }
    }
}

/// A lock's refusal as an error of the request.
fn refusal(refusal: Refusal) -> Error {
    match refusal {
        Refusal::Taken => Error::LockNotAvailable { waited: false },
        Refusal::TimedOut => Error::LockNotAvailable { waited: true },
        Refusal::Deadlock => Error::Deadlock,
        Refusal::Ended => Error::LocksLost,
        Refusal::TooMany => Error::TooMany { what: "lock sets", max: lock::SETS_MAX },
    }
}
