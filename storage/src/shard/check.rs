//! Hashes of a shard's state, and its check of itself.
//!
//! The hash covers what replicas must agree on: everything but the applied log id and what waits for the collector, which
//! each node does in its own time.

use bytes::Bytes;
use hashbrown::{HashMap, HashSet};
use model::id::{IndexId, PartitionId, Point, Revision, TableId};
use xxhash_rust::xxh3::Xxh3;

use super::{Compiled, Points, Shard, Snapshot, execute::view, read::index_value};
use crate::{
    codec::state::Counters,
    error::{Error, Result},
    keyspace::{self, family, meta, region},
};

/// How many faults a report spells out.
const FAULTS_MAX: usize = 100;

/// What a check found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Rows that were read.
    pub rows: u64,
    /// Index entries that were read.
    pub entries: u64,
    /// What is wrong, in words; the first hundred.
    pub faults: Vec<String>,
    /// How many things are wrong.
    pub faults_total: u64,
}

impl Report {
    fn fault(&mut self, text: impl FnOnce() -> String) {
        self.faults_total += 1;
        if self.faults.len() < FAULTS_MAX {
            self.faults.push(text());
        }
    }
}

impl Shard {
    /// A hash of the state of a range of points and, for all points, of the shard's own records. Equal on replicas that
    /// applied the same entries.
    pub fn hash(&self, points: Points) -> Result<u128> {
        let snapshot = self.snapshot();
        let mut hash = Xxh3::new();
        let mut generations = Generations::default();
        for pair in
            snapshot.engine().range(&self.0.keyspace, std::ops::Bound::Unbounded, std::ops::Bound::Unbounded)
        {
            let pair = pair?;
            let key = pair.key();
            if !points.covers(key) || self.is_local(&snapshot, &mut generations, key)? {
                continue;
            }
            for part in [key, pair.value()] {
                hash.update(&(part.len() as u64).to_le_bytes());
                hash.update(part);
            }
        }
        Ok(hash.digest128())
    }

    /// Whether a key is this node's own business.
    fn is_local(&self, snapshot: &Snapshot, generations: &mut Generations, key: &[u8]) -> Result<bool> {
        match key {
            [region::META, meta::APPLIED | meta::DEAD, ..] => Ok(true),
            [region::PARTITIONS, table @ ..] => {
                let table = table.first_chunk::<4>().map(|bytes| TableId(u32::from_be_bytes(*bytes)));
                Ok(table.is_none_or(|table| self.held(table).is_none()))
            }
            [region::COUNTERS, rest @ ..] => {
                let (_, _, table) = split(rest)?;
                let table = table.first_chunk::<4>().map(|bytes| TableId(u32::from_be_bytes(*bytes)));
                let itself = table == Some(keyspace::PARTITION_ITSELF);
                Ok(!itself && table.is_none_or(|table| self.held(table).is_none()))
            }
            [region::DATA, rest @ ..] => {
                let (_, canonical, rest) = split(rest)?;
                let Some((kind, rest)) = rest.split_first() else { return Ok(false) };
                match *kind {
                    family::STORAGE => {
                        let table = rest.first_chunk::<4>().map(|bytes| TableId(u32::from_be_bytes(*bytes)));
                        Ok(table.is_none_or(|table| self.held(table).is_none()))
                    }
                    family::ROW | family::INDEX | family::UNIQUE => {
                        let (table, generation, rest) = keyspace::split_storage(rest)
                            .ok_or_else(|| Error::damaged("a key of the data region"))?;
                        let Some(compiled) = self.held(table) else { return Ok(true) };
                        if generations.live(snapshot, canonical, table)? != generation {
                            return Ok(true);
                        }
                        let index = rest.first_chunk::<4>().map(|bytes| IndexId(u32::from_be_bytes(*bytes)));
                        Ok(*kind != family::ROW
                            && index.is_none_or(|index| compiled.find_index(index).is_none()))
                    }
                    _ => Ok(false),
                }
            }
            _ => Ok(false),
        }
    }

    /// Reads a page of up to `keys_max` keys and their values, whatever they are, so that damage on disk is found before it
    /// is needed. Answers where the next page begins; none at the end.
    pub fn scrub(&self, from: &[u8], keys_max: usize) -> Result<Option<Bytes>> {
        let snapshot = self.0.engine.snapshot();
        let from = std::ops::Bound::Included(from);
        let mut range = snapshot.range(&self.0.keyspace, from, std::ops::Bound::Unbounded);
        for pair in range.by_ref().take(keys_max) {
            pair?;
        }
        match range.next() {
            Some(pair) => Ok(Some(pair?.into_bytes().0)),
            None => Ok(None),
        }
    }

    /// Reads everything and compares: counters with rows, index entries with rows, both ways.
    pub fn check(&self) -> Result<Report> {
        let snapshot = self.snapshot();
        let mut report = Report::default();
        for compiled in self.held_tables() {
            for partition in snapshot.partitions(compiled.table().id)? {
                self.check_table(&snapshot, &compiled, &partition, &mut report)?;
            }
        }
        self.check_strays(&snapshot, &mut report)?;
        Ok(report)
    }

    fn check_table(
        &self,
        snapshot: &Snapshot,
        compiled: &Compiled,
        partition: &PartitionId,
        report: &mut Report,
    ) -> Result<()> {
        let table = compiled.table().id;
        let generation = snapshot.storage_generation(partition, table)?;
        let rows = keyspace::rows_prefix(partition, table, generation);
        let prefix_of = |index: &super::table::IndexPlan| {
            keyspace::index_prefix(partition, table, generation, index.id, index.unique)
        };
        let mut found = Counters::default();
        let mut expected: HashMap<IndexId, u64> = HashMap::new();
        for pair in snapshot.engine().prefix(&self.0.keyspace, &rows) {
            let (key, row) = pair?.into_bytes();
            let row_key = &key[rows.len()..];
            found.rows += 1;
            found.bytes += (row_key.len() + row.len()) as u64;
            report.rows += 1;
            let row = match view(&row) {
                Ok(row) => row,
                Err(error) => {
                    report.fault(|| format!("{table} in {partition}: {error}"));
                    continue;
                }
            };
            for index in compiled.indexes() {
                let entry = match compiled.index_key(index, &row, row_key) {
                    Ok(Some(entry)) => entry,
                    Ok(None) => continue,
                    Err(fault) => {
                        report.fault(|| format!("{table} in {partition}: {fault:?}"));
                        continue;
                    }
                };
                *expected.entry(index.id).or_default() += 1;
                let full = [&prefix_of(index), entry.entry.as_slice()].concat();
                let there = snapshot.engine().get(&self.0.keyspace, &full)?;
                if there.as_deref() != Some(&index_value(&entry, row_key)) && !index.building {
                    report.fault(|| format!("{table} in {partition}: a row is not in index {}", index.id));
                }
            }
        }
        for index in compiled.indexes().iter().filter(|index| !index.building) {
            let entries = snapshot.engine().prefix(&self.0.keyspace, &prefix_of(index));
            let mut count = 0;
            for pair in entries {
                pair?;
                count += 1;
            }
            report.entries += count;
            let expected = expected.get(&index.id).copied().unwrap_or_default();
            if count != expected {
                let id = index.id;
                report.fault(|| {
                    format!("{table} in {partition}: index {id} has {count} entries for {expected} rows")
                });
            }
        }
        let counted = snapshot.counters(partition, table)?;
        if (counted.rows, counted.bytes) != (found.rows, found.bytes) {
            report.fault(|| {
                format!(
                    "{table} in {partition}: counted {} rows of {} bytes, found {} of {}",
                    counted.rows, counted.bytes, found.rows, found.bytes
                )
            });
        }
        Ok(())
    }

    /// Rows of a held table in a partition that is not on the table's list would be lost to every scan.
    fn check_strays(&self, snapshot: &Snapshot, report: &mut Report) -> Result<()> {
        let mut listed: HashSet<(TableId, Bytes)> = HashSet::new();
        for compiled in self.held_tables() {
            let table = compiled.table().id;
            for partition in snapshot.partitions(table)? {
                listed.insert((table, partition.to_bytes()));
            }
        }
        for pair in snapshot.engine().prefix(&self.0.keyspace, &[region::COUNTERS]) {
            let (key, _) = pair?.into_bytes();
            let (_, canonical, table) = split(&key[1..])?;
            let table = table.try_into().map(u32::from_be_bytes).map(TableId);
            let table = table.map_err(|_| Error::damaged("a key of the counters"))?;
            let held = self.held(table).is_some();
            if held && !listed.contains(&(table, Bytes::copy_from_slice(canonical))) {
                report.fault(|| format!("{table} has rows in a partition that is not on its list"));
            }
        }
        Ok(())
    }
}

/// The live generations of storages, remembered for as long as the partition is the same.
#[derive(Default)]
struct Generations {
    partition: Vec<u8>,
    tables: HashMap<TableId, Revision>,
}

impl Generations {
    fn live(&mut self, snapshot: &Snapshot, canonical: &[u8], table: TableId) -> Result<Revision> {
        if self.partition != canonical {
            self.partition = canonical.to_vec();
            self.tables.clear();
        }
        if let Some(generation) = self.tables.get(&table) {
            return Ok(*generation);
        }
        let partition =
            PartitionId::parse(canonical).map_err(|_| Error::damaged("a partition id in a key"))?;
        let generation = snapshot.storage_generation(&partition, table)?;
        self.tables.insert(table, generation);
        Ok(generation)
    }
}

/// The partition at the start of the rest of a key.
fn split(rest: &[u8]) -> Result<(Point, &[u8], &[u8])> {
    keyspace::split_partition(rest).ok_or_else(|| Error::damaged("a key without its partition"))
}
