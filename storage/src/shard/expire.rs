//! Due records that are done: receipts to forget, feeds to trim. One entry is one bounded page of them.
//!
//! The entry names the records; each is done only if it is still due, so that a page proposed twice, or late, does no harm.

use model::id::{PartitionId, Revision};

use super::apply::Group;
use crate::{
    codec::{
        entry::FeedRetention,
        state::{FeedRecord, Named},
    },
    error::{Error, Result},
    keyspace::{self, Due, due, family},
};

/// At most so many records of a feed go by one due record.
const TRIM_MAX: usize = 1_000;

impl Group<'_> {
    /// Does due records; answers how many were due.
    pub(super) fn expire(&mut self, keys: &[bytes::Bytes], retention: FeedRetention) -> Result<u32> {
        let now = self.live.head.time.elapsed;
        let mut done = 0;
        for key in keys {
            let Some(due) = Due::parse(key) else { continue };
            if due.time > now || !self.overlay.contains(key)? {
                continue;
            }
            self.overlay.delete(key.clone());
            done += 1;
            match due.kind {
                due::RECEIPT => self.forget_receipt(&due)?,
                due::FEED => self.trim_feed(&due.partition, retention)?,
                due::PART => self.forget_parts(&due)?,
                kind => return Err(Error::damaged(format!("due work of kind {kind}"))),
            }
        }
        Ok(done)
    }

    fn forget_receipt(&mut self, due: &Due) -> Result<()> {
        let mut key = keyspace::family_prefix(&due.partition, family::RECEIPT);
        key.extend_from_slice(&due.suffix);
        if let Some(bytes) = self.overlay.get(&key)?
            && Named::decode(&bytes)?.until <= due.time
        {
            self.overlay.delete(key);
        }
        Ok(())
    }

    fn trim_feed(&mut self, partition: &PartitionId, retention: FeedRetention) -> Result<()> {
        let now = self.live.head.time.elapsed;
        let state = *self.partition_state(partition)?;
        let from = keyspace::feed_key(partition, Revision(state.feed_floor.0 + 1));
        let end = model::read::after_prefix(&keyspace::family_prefix(partition, family::FEED));
        let page = self.overlay.range(&from, end.as_deref(), TRIM_MAX)?;
        let (mut records, mut floor, mut trimmed) = (state.feed_records, state.feed_floor, 0);
        for (key, value) in &page {
            let record = FeedRecord::decode(value)?;
            let old = record.time.elapsed.saturating_add(retention.micros) <= now;
            if !old && records <= retention.records_max {
                break;
            }
            let revision = key.last_chunk::<8>().ok_or_else(|| Error::damaged("a key of a feed"))?;
            floor = Revision(u64::from_be_bytes(*revision));
            records = records.saturating_sub(1);
            trimmed += 1;
            self.overlay.delete(key.clone());
        }
        let state = self.partition_state(partition)?;
        state.feed_records = records;
        state.feed_floor = floor;
        self.rearm_feed(partition, trimmed == TRIM_MAX)
    }
}
