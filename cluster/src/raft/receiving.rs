//! Generations of a state that are being received.
//!
//! Invariants:
//! - A number is given out once, and is free in the engine when it is.
//! - A generation whose ticket was dropped without being kept is nobody's, and is deleted by the next [`Receiving::forget`].

use std::sync::Arc;

use model::id::ShardId;
use parking_lot::Mutex;
use storage::{engine::Engine, keyspace::keyspace_name};

/// Those of one shard; clones are the same.
#[derive(Clone, Debug)]
pub(super) struct Receiving(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    engine: Engine,
    shard: ShardId,
    /// Above every number that was given out.
    next: Mutex<u64>,
    /// Those that nobody wants any more.
    dropped: Mutex<Vec<u64>>,
}

/// The right to one generation.
#[derive(Debug)]
pub(crate) struct Ticket {
    generation: u64,
    receiving: Option<Receiving>,
}

impl Receiving {
    /// Behind the generation that is served.
    pub(super) fn after(engine: &Engine, shard: ShardId, served: u64) -> Self {
        let inner =
            Inner { engine: engine.clone(), shard, next: Mutex::new(served + 1), dropped: Mutex::default() };
        Self(Arc::new(inner))
    }

    /// A generation that is not there yet.
    pub(super) fn begin(&self) -> Ticket {
        let mut next = self.0.next.lock();
        // What a process that crashed had received may still be there.
        while self.0.engine.has_keyspace(&keyspace_name(self.0.shard, *next)) {
            *next += 1;
        }
        let generation = *next;
        *next += 1;
        Ticket { generation, receiving: Some(self.clone()) }
    }

    /// Deletes what was dropped.
    pub(super) fn forget(&self) -> storage::Result<()> {
        loop {
            let Some(generation) = self.0.dropped.lock().pop() else { return Ok(()) };
            self.delete(generation)?;
        }
    }

    /// Deletes a generation, if it is there.
    pub(super) fn delete(&self, generation: u64) -> storage::Result<()> {
        let Inner { engine, shard, .. } = &*self.0;
        let name = keyspace_name(*shard, generation);
        if engine.has_keyspace(&name) { engine.delete_keyspace(engine.keyspace(&name)?) } else { Ok(()) }
    }
}

impl Ticket {
    /// Which.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// It is somebody's state from now on.
    pub(super) fn keep(mut self) -> u64 {
        self.receiving = None;
        self.generation
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(receiving) = self.receiving.take() {
            receiving.0.dropped.lock().push(self.generation);
        }
    }
}
