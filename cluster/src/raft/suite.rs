//! openraft's own suite for log stores and state machines, run on the shared log and the pool.
//!
//! The state machine here keeps nothing but its position: the suite applies entries with gaps, which a shard refuses.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use openraft::{
    StorageError,
    testing::log::{StoreBuilder, Suite},
};
use parking_lot::Mutex;
use storage::log::{GroupId, GroupInit, Identity, Log, Options};
use tempfile::TempDir;

use model::id::ShardId;

use super::{
    machine::{Chunks, Committed, CommittedPayload, Machine, Position, State},
    pool::Pool,
    store::{Store, waiting},
    types::{Applied, Types},
};

#[derive(Default)]
struct Recorder(Mutex<Position>);

impl State for Recorder {
    type Image = Position;

    fn position(&self) -> storage::Result<Position> {
        Ok(self.0.lock().clone())
    }

    fn apply(&self, entries: Vec<Committed>) -> storage::Result<Vec<Applied>> {
        let mut position = self.0.lock();
        let mut results = Vec::new();
        for entry in entries {
            position.last = Some((entry.term, entry.index));
            if let CommittedPayload::Members(members) = entry.payload {
                position.members = members;
            }
            results.push(Applied::Nothing);
        }
        Ok(results)
    }

    fn image(&self) -> storage::Result<(Position, Position)> {
        let position = self.0.lock().clone();
        Ok((position.clone(), position))
    }

    fn chunks(_: Position) -> storage::Result<Chunks> {
        Ok(Box::new(std::iter::empty()))
    }

    fn receive(&self, _: Chunks, position: &Position) -> storage::Result<Position> {
        Ok(position.clone())
    }

    fn forget_received(&self) -> storage::Result<()> {
        Ok(())
    }

    fn install(&self, image: Position, position: Position) -> storage::Result<()> {
        assert_eq!(image, position);
        *self.0.lock() = position;
        Ok(())
    }
}

/// Every store of a run is a group of its own in one log.
struct Builder {
    log: Log,
    pool: Arc<Pool>,
    groups: AtomicU32,
}

impl StoreBuilder<Types, Store, Machine<Recorder>> for Builder {
    async fn build(&self) -> Result<((), Store, Machine<Recorder>), StorageError<Types>> {
        let group = GroupId(self.groups.fetch_add(1, Ordering::Relaxed));
        let (callback, durable) = waiting();
        self.log.create_group(group, GroupInit::default(), callback).unwrap();
        durable.await.unwrap().unwrap();
        let machine = Machine::new(ShardId(group.0), Arc::new(Recorder::default()), self.pool.clone());
        Ok(((), Store::new(self.log.clone(), group), machine))
    }
}

#[test]
fn the_suite_of_the_library_passes() {
    let directory = TempDir::new().unwrap();
    let identity = Identity { cluster: 1, node: 1, incarnation: 1 };
    let (log, _) = Log::open(directory.path(), Options::default(), identity).unwrap();
    let pool = Arc::new(Pool::start(1).unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let builder = Builder { log: log.clone(), pool, groups: AtomicU32::new(1) };
    runtime.block_on(Suite::test_all(builder)).unwrap();
    log.close();
}
