//! A data shard as the state machine of its group.
//!
//! Invariants:
//! - What is served is one generation of the shard's state. An image is received into another one beside it, which is nobody's
//!   until it is installed: noted in the log, and only then served. A crash in between leaves the old or the new one.

use std::sync::{Arc, mpsc};

use arc_swap::{ArcSwap, Guard};
use bytes::Bytes;
use model::id::ShardId;
use storage::{
    Error,
    codec::entry,
    engine::Engine,
    log::{GroupId, GroupState, Log, LogId},
    shard::{self, Entry, Install, Payload, Points, Shard},
};

use super::{
    machine::{Chunks, Committed, CommittedPayload, Position, State},
    receiving::{Receiving, Ticket},
    types::{Applied, decode_members},
};

/// A command that is not larger than this changes few rows.
const SMALL_BYTES_MAX: usize = 1 << 10;

/// This node's replica of a shard.
#[derive(Debug)]
pub(crate) struct Replica {
    engine: Engine,
    log: Log,
    current: ArcSwap<Shard>,
    receiving: Receiving,
}

/// A shard's state at one moment.
pub(crate) enum Image {
    /// Of what is served here, to be sent.
    Taken(Box<shard::Image>),
    /// Another node's, in a generation of its own; deleted later if it is dropped as it is.
    Received(Shard, Ticket),
}

impl Replica {
    /// Opens the generation the log says is current.
    pub(crate) fn open(
        engine: &Engine,
        log: &Log,
        id: ShardId,
        group: Option<&GroupState>,
    ) -> storage::Result<Self> {
        let snapshot = group.and_then(|group| group.snapshot.as_ref());
        let generation = snapshot.map_or(Ok(0), |(_, data)| decode_generation(data))?;
        let shard = Shard::open(engine, id, generation)?;
        let receiving = Receiving::after(engine, id, generation);
        let current = ArcSwap::from_pointee(shard);
        Ok(Self { engine: engine.clone(), log: log.clone(), current, receiving })
    }

    /// The generation that is served now.
    pub(crate) fn shard(&self) -> Guard<Arc<Shard>> {
        self.current.load()
    }
}

impl State for Replica {
    type Image = Image;

    fn position(&self) -> storage::Result<Position> {
        Ok(position(self.shard().applied()))
    }

    fn apply(&self, entries: Vec<Committed>) -> storage::Result<Vec<Applied>> {
        let group: Vec<_> = entries.iter().map(entry_of).collect();
        let outcomes = self.shard().apply(&group)?;
        Ok(outcomes.into_iter().map(Applied::Shard).collect())
    }

    fn apply_at_once(&self, entries: &[Committed]) -> storage::Result<Option<Vec<Applied>>> {
        let is_small = |entry: &Committed| match &entry.payload {
            CommittedPayload::Entry(bytes) => entry::is_command(bytes) && bytes.len() <= SMALL_BYTES_MAX,
            CommittedPayload::Blank => true,
            CommittedPayload::Members(_) => false,
        };
        if !entries.iter().all(is_small) {
            return Ok(None);
        }
        let group: Vec<_> = entries.iter().map(entry_of).collect();
        let outcomes = self.shard().try_apply(&group)?;
        Ok(outcomes.map(|outcomes| outcomes.into_iter().map(Applied::Shard).collect()))
    }

    fn image(&self) -> storage::Result<(Image, Position)> {
        let image = self.shard().image(Points::ALL)?;
        let position = position(image.applied().clone());
        Ok((Image::Taken(Box::new(image)), position))
    }

    fn chunks(image: Image) -> storage::Result<Chunks> {
        match image {
            Image::Taken(image) => Ok(image),
            Image::Received(..) => Err(Error::Image { what: "it is not to be sent on".to_owned() }),
        }
    }

    fn receive(&self, chunks: Chunks, expected: &Position) -> storage::Result<Image> {
        let id = self.shard().id();
        let ticket = self.receiving.begin();
        let install = Install { source: id, target: id, generation: ticket.generation() };
        let shard = install.run(&self.engine, chunks)?;
        check_place(position(shard.applied()), expected)?;
        Ok(Image::Received(shard, ticket))
    }

    fn forget_received(&self) -> storage::Result<()> {
        self.receiving.forget()
    }

    fn install(&self, image: Image, position: Position) -> storage::Result<()> {
        let image = match image {
            Image::Taken(image) => self.receive(image, &position)?,
            Image::Received(..) => image,
        };
        let Image::Received(new, ticket) = image else {
            return Err(Error::Image { what: "it was not received".to_owned() });
        };
        let old = self.current.load_full();
        let id = old.id();
        // Once the log may have its number, nobody else may delete it.
        ticket.keep();
        note_installed(&self.log, id, &position, new.generation())?;
        self.current.store(Arc::new(new));
        self.receiving.delete(old.generation())
    }
}

fn entry_of(entry: &Committed) -> Entry<'_> {
    let payload = match &entry.payload {
        CommittedPayload::Blank => Payload::Blank,
        CommittedPayload::Entry(bytes) => Payload::Encoded(bytes),
        CommittedPayload::Members(members) => Payload::Membership(members),
    };
    Entry { log_id: LogId { term: entry.term, node: 0, index: entry.index }, payload }
}

/// Notes in the log which generation a group's state is now, and waits until that is durable.
pub(super) fn note_installed(
    log: &Log,
    id: ShardId,
    position: &Position,
    generation: u64,
) -> storage::Result<()> {
    let (term, index) = position.last.unwrap_or_default();
    let upto = LogId { term, node: 0, index };
    let data = Bytes::copy_from_slice(&generation.to_be_bytes());
    let (sender, durable) = mpsc::channel();
    // Whoever installs waits below; if it is gone, so is the process.
    let callback = Box::new(move |result| drop(sender.send(result)));
    log.snapshot_installed(GroupId(id.0), upto, data, callback)
        .and_then(|()| durable.recv().unwrap_or(Err(storage::log::Error::Closed)))
        .map_err(|error| Error::Image { what: format!("its installation could not be logged: {error}") })
}

pub(super) fn position(applied: storage::codec::state::Applied) -> Position {
    Position { last: applied.log_id.map(|id| (id.term, id.index)), members: applied.membership }
}

/// Whether a received state is of the place its sender said.
pub(super) fn check_place(found: Position, expected: &Position) -> storage::Result<()> {
    let members = |position: &Position| decode_members(position.members.clone()).ok();
    if found.last == expected.last && members(&found) == members(expected) {
        return Ok(());
    }
    Err(Error::Image { what: "it is of another place than its sender said".to_owned() })
}

pub(super) fn decode_generation(data: &Bytes) -> storage::Result<u64> {
    let bytes = data.first_chunk::<8>().filter(|_| data.len() == 8);
    bytes.map(|bytes| u64::from_be_bytes(*bytes)).ok_or_else(|| Error::Image {
        what: "the log names its generation by other than eight bytes".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use model::{
        id::{Boot, Epoch, NodeId},
        time::LoggedTime,
    };
    use storage::{
        codec::entry::{Body, Stamp, to_bytes},
        log::{GroupInit, Identity, Options},
    };
    use tempfile::TempDir;

    use super::*;

    fn claim(index: u64) -> Committed {
        let stamp = Stamp { time: LoggedTime::default(), epoch: Epoch(index) };
        let body = Body::Claim { epoch: Epoch(index), node: NodeId(1), boot: Boot(1), nonce: 7 };
        let entry = to_bytes(&storage::codec::entry::Entry { stamp, body });
        Committed { term: 1, index, payload: CommittedPayload::Entry(entry) }
    }

    #[test]
    fn an_installed_image_is_what_is_served_and_what_is_opened() {
        let directory = TempDir::new().unwrap();
        let identity = Identity { cluster: 1, node: 1, incarnation: 1 };
        let (log, _) = Log::open(directory.path(), Options::default(), identity).unwrap();
        let (sender, made) = std::sync::mpsc::channel();
        log.create_group(
            GroupId(1),
            GroupInit::default(),
            Box::new(move |result| sender.send(result).unwrap()),
        )
        .unwrap();
        made.recv().unwrap().unwrap();

        let source = Replica::open(&Engine::in_memory(), &log, ShardId(1), None).unwrap();
        source.apply(vec![claim(0), claim(1)]).unwrap();
        let (image, at) = source.image().unwrap();

        let engine = Engine::in_memory();
        let target = Replica::open(&engine, &log, ShardId(1), None).unwrap();
        target.install(image, at.clone()).unwrap();
        assert_eq!(target.position().unwrap(), at);
        assert_eq!(target.shard().generation(), 1);

        let group = log.state(GroupId(1)).unwrap();
        let again = Replica::open(&engine, &log, ShardId(1), Some(&group)).unwrap();
        assert_eq!(again.shard().head().claim.epoch, Epoch(1));
        assert_eq!(engine.keyspace_names(), ["s0001.1"]);
        log.close();
    }
}
