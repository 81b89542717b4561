//! The control group: its state machine here, and asking it.
//!
//! Invariants:
//! - A catalog is published on this node before whoever asked for it is answered.
//! - A request keeps its id over all its tries, so that it is decided once.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use arc_swap::{ArcSwap, Guard};
use bytes::Bytes;
use model::{
    Error as ModelError,
    catalog::{Catalog, Change},
    id::{ShardId, TableId, ViewId},
};
use storage::{
    Error as StorageError,
    catalog::{self, CONTROL, Control as Group, ControlEntry, ControlPayload},
    codec::control::{Answer, Body, Request, to_bytes},
    engine::Engine,
    log::{GroupState, Log, LogId, Use},
};

use super::{
    Consensus, Refused, Timer,
    machine::{Chunks, Committed, CommittedPayload, Position, State},
    receiving::{Receiving, Ticket},
    shard::{check_place, decode_generation, note_installed, position},
    types::Applied,
};
use crate::{Error, Result, catalog::Board};

/// How long a request is asked again while the group has no leader.
const ASK_AGAIN: Duration = Duration::from_secs(5);

/// How long to wait before asking again.
const ASK_PAUSE: Duration = Duration::from_millis(20);

/// This node's replica of the control group.
#[derive(Debug)]
pub(crate) struct ControlReplica {
    engine: Engine,
    log: Log,
    current: ArcSwap<Group>,
    generation: AtomicU64,
    board: Arc<Board>,
    receiving: Receiving,
}

/// The control group's state at one moment.
pub(crate) enum ControlImage {
    /// Of what is served here, to be sent.
    Taken(Box<catalog::Image>),
    /// Another node's, in a generation of its own; deleted later if it is dropped as it is.
    Received(Group, Ticket),
}

impl ControlReplica {
    /// Opens the generation the log says is current.
    pub(crate) fn open(engine: &Engine, log: &Log, group: Option<&GroupState>) -> storage::Result<Self> {
        let snapshot = group.and_then(|group| group.snapshot.as_ref());
        let generation = snapshot.map_or(Ok(0), |(_, data)| decode_generation(data))?;
        let state = Group::open(engine, generation)?;
        let board = Arc::new(Board::new(state.catalog()));
        Ok(Self {
            engine: engine.clone(),
            log: log.clone(),
            current: ArcSwap::from_pointee(state),
            generation: AtomicU64::new(generation),
            board,
            receiving: Receiving::after(engine, CONTROL, generation),
        })
    }

    /// Which generation is served now.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Where the catalog is published.
    pub(crate) fn board(&self) -> &Arc<Board> {
        &self.board
    }

    /// The state that is served now.
    pub(crate) fn state(&self) -> Guard<Arc<Group>> {
        self.current.load()
    }
}

impl State for ControlReplica {
    type Image = ControlImage;

    fn position(&self) -> storage::Result<Position> {
        Ok(position(self.state().applied()))
    }

    fn apply(&self, entries: Vec<Committed>) -> storage::Result<Vec<Applied>> {
        let state = self.state();
        let group: Vec<_> = entries.iter().map(entry_of).collect();
        let answers = state.apply(&group)?;
        self.board.publish(state.catalog());
        Ok(answers.into_iter().map(|answer| answer.map_or(Applied::Nothing, Applied::Control)).collect())
    }

    fn image(&self) -> storage::Result<(ControlImage, Position)> {
        let image = self.state().image()?;
        let position = position(image.applied().clone());
        Ok((ControlImage::Taken(Box::new(image)), position))
    }

    fn chunks(image: ControlImage) -> storage::Result<Chunks> {
        match image {
            ControlImage::Taken(image) => Ok(image),
            ControlImage::Received(..) => {
                Err(StorageError::Image { what: "it is not to be sent on".to_owned() })
            }
        }
    }

    fn receive(&self, chunks: Chunks, expected: &Position) -> storage::Result<ControlImage> {
        let ticket = self.receiving.begin();
        let state = catalog::install(&self.engine, ticket.generation(), chunks)?;
        check_place(position(state.applied()), expected)?;
        Ok(ControlImage::Received(state, ticket))
    }

    fn forget_received(&self) -> storage::Result<()> {
        self.receiving.forget()
    }

    fn install(&self, image: ControlImage, position: Position) -> storage::Result<()> {
        let image = match image {
            ControlImage::Taken(image) => self.receive(image, &position)?,
            ControlImage::Received(..) => image,
        };
        let ControlImage::Received(state, ticket) = image else {
            return Err(StorageError::Image { what: "it was not received".to_owned() });
        };
        // Once the log may have its number, nobody else may delete it.
        let new = ticket.keep();
        note_installed(&self.log, CONTROL, &position, new)?;
        self.board.publish(state.catalog());
        self.current.store(Arc::new(state));
        let old = self.generation.swap(new, Ordering::AcqRel);
        self.receiving.delete(old)
    }
}

fn entry_of(entry: &Committed) -> ControlEntry<'_> {
    let payload = match &entry.payload {
        CommittedPayload::Blank => ControlPayload::Blank,
        CommittedPayload::Entry(bytes) => ControlPayload::Encoded(bytes),
        CommittedPayload::Members(members) => ControlPayload::Membership(members),
    };
    ControlEntry { log_id: LogId { term: entry.term, node: 0, index: entry.index }, payload }
}

/// Asking the control group.
pub(crate) struct Control {
    consensus: Arc<dyn Consensus>,
    replica: Arc<ControlReplica>,
    timer: Timer,
    /// The upper half of this process's request ids.
    nonce: u64,
    next: AtomicU64,
}

impl Control {
    pub(crate) fn new(
        consensus: Arc<dyn Consensus>,
        replica: Arc<ControlReplica>,
        timer: Timer,
        nonce: u64,
    ) -> Arc<Self> {
        Arc::new(Self { consensus, replica, timer, nonce, next: AtomicU64::new(1) })
    }

    /// Decides a change; answers the newest catalog, which holds it.
    ///
    /// While the disk is full, only changes that put nothing are let through.
    pub(crate) async fn change(&self, change: Change) -> Result<Arc<Catalog>> {
        let room = if change.put.is_empty() { Use::Reserve } else { Use::Common };
        match self.ask_with(Body::Change(change), room).await? {
            Answer::Changed(_) => Ok(self.replica.board.newest().catalog().clone()),
            other => Err(unexpected(&other)),
        }
    }

    /// Takes object ids that nobody had or will have; answers the first.
    pub(crate) async fn allocate(&self, count: u32) -> Result<u32> {
        match self.ask(Body::AllocateIds(count)).await? {
            Answer::Ids(first) => Ok(first),
            other => Err(unexpected(&other)),
        }
    }

    /// Makes the first catalog, unless there is one.
    pub(crate) async fn bootstrap(
        &self,
        admin: String,
        password: Option<String>,
        database: String,
    ) -> Result<()> {
        self.ask(Body::Bootstrap { admin, password, database }).await.map(drop)
    }

    /// Says that a shard is going to hold a table, so that changes of it wait for the shard.
    pub(crate) async fn register(&self, shard: ShardId, table: TableId) -> Result<()> {
        if self.replica.state().holders(table).contains(&shard) {
            return Ok(());
        }
        self.ask(Body::RegisterHolder { shard, table }).await.map(drop)
    }

    /// Publishes a view, unless its predecessor is no longer the newest.
    pub(crate) async fn publish_view(
        &self,
        id: ViewId,
        predecessor: Option<ViewId>,
        view: Bytes,
    ) -> Result<()> {
        self.ask(Body::PutView { id, predecessor, view }).await.map(drop)
    }

    /// Makes sure that what this node has published is the newest.
    pub(crate) async fn confirm(&self) -> Result<()> {
        self.consensus.read_index().await.map(drop).map_err(refused)
    }

    /// Whether this node is the group's only voter and leads it, so that what it has published is the newest.
    pub(crate) fn is_local(&self) -> bool {
        self.consensus.is_sole_voter_leader()
    }

    pub(crate) fn consensus(&self) -> &Arc<dyn Consensus> {
        &self.consensus
    }

    pub(crate) fn replica(&self) -> &Arc<ControlReplica> {
        &self.replica
    }

    /// Asks for what is small, and goes on while the disk is full.
    async fn ask(&self, body: Body) -> Result<Answer> {
        self.ask_with(body, Use::Reserve).await
    }

    async fn ask_with(&self, body: Body, room: Use) -> Result<Answer> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let id = (u128::from(self.nonce) << 64) | u128::from(number);
        let request: Bytes = to_bytes(&Request { id, body });
        let deadline = self.timer.now() + ASK_AGAIN;
        loop {
            let room = self.replica.log.admit(request.len() as u64, room)?;
            match self.consensus.propose(request.clone(), Some(Box::new(room))).await {
                Ok(Applied::Control(Answer::Refused { code, message })) => {
                    return Err(Error::Refused(ModelError::new(code, message)));
                }
                Ok(Applied::Control(answer)) => return Ok(answer),
                Ok(Applied::Nothing | Applied::Shard(_)) => {
                    unreachable!("the control group answers its entries as the control group")
                }
                Err(Refused::NotLeader) if self.timer.now() < deadline => self.timer.sleep(ASK_PAUSE).await,
                Err(error) => return Err(refused(error)),
            }
        }
    }
}

fn refused(error: Refused) -> Error {
    match error {
        Refused::NotLeader => Error::NoLeader { shard: CONTROL },
        Refused::Stopped => Error::Stopping,
        Refused::TooLarge { given, max } => Error::CommandTooLarge { given, max, unit: "bytes" },
        Refused::Unknown => Error::OutcomeUnknown { shard: CONTROL },
    }
}

fn unexpected(answer: &Answer) -> Error {
    Error::Refused(ModelError::internal(format!("the control group answered {answer:?}")))
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Control").field("replica", &self.replica).finish_non_exhaustive()
    }
}
