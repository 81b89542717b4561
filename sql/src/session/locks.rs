//! A lock set that is given back in the end, whatever becomes of the work under it.

use std::sync::Arc;

use model::{Result, command::LockSet, id::PartitionId, port::Dispatch};

/// A lock set: given back when it is released, or in the background when it is dropped.
pub(crate) struct HeldLocks {
    dispatch: Arc<dyn Dispatch>,
    partition: PartitionId,
    set: Option<LockSet>,
}

impl HeldLocks {
    pub(crate) fn new(dispatch: Arc<dyn Dispatch>, partition: PartitionId, set: LockSet) -> Self {
        Self { dispatch, partition, set: Some(set) }
    }

    pub(crate) async fn release(mut self) -> Result<()> {
        match self.set.take() {
            Some(set) => self.dispatch.unlock(&self.partition, set, None).await,
            None => Ok(()),
        }
    }
}

impl Drop for HeldLocks {
    fn drop(&mut self) {
        let Some(set) = self.set.take() else { return };
        let released = self.dispatch.unlock(&self.partition, set, None);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                // Without an answer the set dies of its lease.
                let _ = released.await;
            });
        }
    }
}
