//! Commands larger than a log entry: their parts are staged, and one closing entry judges and executes the whole.
//!
//! Invariants:
//! - Staged parts are seen by no read and by no other command. They lie under their partition, so that images and splits
//!   carry them.
//! - Parts belong to the claim that proposed them. Under a newer one they are never executed; what nobody closed in
//!   [`KEPT_MICROS`] is removed by a due record.
//!
//! Not here: the cutting into parts (`cluster::owner`).

use bytes::{Bytes, BytesMut};
use model::{
    command::{Command, Outcome, Rejection},
    id::PartitionId,
};

use super::apply::Group;
use crate::{
    codec::entry::{self, Close, Part, Stamp},
    error::{Error, Result},
    keyspace::{self, Due, due, family},
};

/// How long parts wait to be closed, in microseconds of `elapsed`.
const KEPT_MICROS: u64 = 3_600 * 1_000_000;

/// A large command has at most so many parts.
const PARTS_MAX: usize = 4_096;

/// Parts that are removed together.
const PAGE: usize = 16;

impl Group<'_> {
    /// Keeps a part until its command is closed.
    pub(super) fn stage(&mut self, part: &Part) {
        let epoch = self.live.head.claim.epoch.0;
        let mut key = keyspace::parts_prefix(&part.partition, epoch, part.number);
        if part.sequence == 0 {
            let until = self.live.head.time.elapsed.saturating_add(KEPT_MICROS);
            let name = load_name(epoch, part.number);
            self.overlay.put(keyspace::due_key(due::PART, until, &part.partition, &name), Bytes::new());
        }
        key.extend_from_slice(&part.sequence.to_be_bytes());
        self.overlay.put(key, part.bytes.clone());
    }

    /// Judges and executes the command whose parts are staged.
    pub(super) fn close(&mut self, close: &Close, stamp: &Stamp) -> Result<Outcome> {
        match self.take_parts(close)? {
            Some(command) => self.command(&command, stamp),
            // Removed because it took too long: nothing of it was executed.
            None => Ok(Outcome::Rejected(Rejection::Fenced)),
        }
    }

    fn take_parts(&mut self, close: &Close) -> Result<Option<Command>> {
        let epoch = self.live.head.claim.epoch.0;
        let mut whole = BytesMut::new();
        for sequence in 0..close.parts {
            match self.take_part(&close.partition, epoch, close.number, sequence)? {
                Some(bytes) => whole.extend_from_slice(&bytes),
                None => return Ok(None),
            }
        }
        let command = entry::decode_large(&whole.freeze())?;
        if command.partition != close.partition {
            return Err(Error::damaged("a large command of another partition than its parts"));
        }
        Ok(Some(command))
    }

    /// A part, which is staged no longer.
    pub(super) fn take_part(
        &mut self,
        partition: &PartitionId,
        epoch: u64,
        number: u64,
        sequence: u32,
    ) -> Result<Option<Bytes>> {
        let mut key = keyspace::parts_prefix(partition, epoch, number);
        key.extend_from_slice(&sequence.to_be_bytes());
        let bytes = self.overlay.get(&key)?;
        self.overlay.delete(key);
        Ok(bytes)
    }

    /// Removes the parts of a load that was given up.
    pub(super) fn abort_load(&mut self, partition: &PartitionId, number: u64) -> Result<()> {
        let epoch = self.live.head.claim.epoch.0;
        self.remove_parts(&keyspace::parts_prefix(partition, epoch, number))
    }

    /// Removes the parts of a command that nobody closed.
    pub(super) fn forget_parts(&mut self, due: &Due) -> Result<()> {
        let mut prefix = keyspace::family_prefix(&due.partition, family::PART);
        prefix.extend_from_slice(&due.suffix);
        self.remove_parts(&prefix)
    }

    fn remove_parts(&mut self, prefix: &[u8]) -> Result<()> {
        let end = model::read::after_prefix(prefix);
        // A few at a time, because a part may have megabytes; and each page behind the last, because what was taken away is
        // passed over with its bytes.
        let mut from = prefix.to_vec();
        for _ in 0..PARTS_MAX.div_ceil(PAGE) {
            let page = self.overlay.range(&from, end.as_deref(), PAGE)?;
            let Some((last, _)) = page.last() else { break };
            from.clear();
            from.extend_from_slice(last);
            from.push(0);
            for (key, _) in page {
                self.overlay.delete(key);
            }
        }
        Ok(())
    }
}

/// The name of a large command inside its partition.
fn load_name(epoch: u64, number: u64) -> [u8; 16] {
    let mut name = [0; 16];
    name[..8].copy_from_slice(&epoch.to_be_bytes());
    name[8..].copy_from_slice(&number.to_be_bytes());
    name
}
