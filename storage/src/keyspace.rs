//! Every key of a shard's state, on one page. `docs/formats/keyspace.md` draws them.
//!
//! ```text
//! 01 meta        01 kind …
//! 02 slots       02 · node u32 · slot u16
//! 03 counters    03 · point u32 · partition · table u32
//! 04 partitions  04 · table u32 · point u32 · partition
//! 10 data        10 · point u32 · partition · family u8 · …
//!                  01 storage map   table u32
//!                  02 row           storage · key
//!                  03 index         storage · index u32 · index key · row key
//!                  04 unique index  storage · index u32 · index key
//!                  05 receipt       principal u32 · command id u128
//!                  07 feed          revision u64
//!                  08 sequence      sequence u32
//! 20 due         20 · kind u8 · time u64 · point u32 · partition · key
//! ```
//!
//! `partition` is its length (u16) and its canonical bytes; `storage` is the table (u32) and the generation (a count of
//! bytes, then so many, so that generation 0 is one byte). Integers are big-endian.
//!
//! Invariants:
//! - A range of points is one contiguous range of the counters and of the data.
//! - What every entry writes (meta, slots, counters) lies in regions that no scan of rows crosses.
//!
//! Not here: what the values mean ([`crate::codec::state`]).

use bytes::Bytes;
use model::id::{
    CommandId, IndexId, NodeId, PartitionId, Point, Revision, RoleId, SequenceId, ShardId, TableId,
};

/// The keyspace of one generation of a shard's state.
pub fn keyspace_name(shard: ShardId, generation: u64) -> String {
    format!("s{:04x}.{generation}", shard.0)
}

/// The shard and generation a keyspace's name stands for.
pub fn parse_keyspace_name(name: &str) -> Option<(ShardId, u64)> {
    let (shard, generation) = name.strip_prefix('s')?.split_once('.')?;
    let shard = ShardId(u32::from_str_radix(shard, 16).ok()?);
    let generation = generation.parse().ok()?;
    (keyspace_name(shard, generation) == name).then_some((shard, generation))
}

/// The first byte of a key.
pub mod region {
    /// One record of each kind per shard.
    pub const META: u8 = 0x01;
    /// The last number and outcome of each gateway's slots.
    pub const SLOTS: u8 = 0x02;
    /// Rows, bytes and last write per partition and table.
    pub const COUNTERS: u8 = 0x03;
    /// Which partitions a table has rows in.
    pub const PARTITIONS: u8 = 0x04;
    /// Everything of a partition.
    pub const DATA: u8 = 0x10;
    /// Work by the time it is due.
    pub const DUE: u8 = 0x20;
}

/// The second byte of a key of the meta region.
pub mod meta {
    /// The last applied log id, and the membership. Left out of hashes and images.
    pub const APPLIED: u8 = 0x01;
    /// Revision, logged clocks, claim, semantics version.
    pub const HEAD: u8 = 0x02;
    /// Ancestor and revision at the split.
    pub const LINEAGE: u8 = 0x03;
    /// `node u32`: the newest boot of a gateway.
    pub const BOOT: u8 = 0x04;
    /// `table u32`: a held descriptor.
    pub const TABLE: u8 = 0x05;
    /// `sequence u32`: a held descriptor.
    pub const SEQUENCE: u8 = 0x06;
    /// `table u32`: the table has a storage generation other than 0 in some partition.
    pub const SWITCHED: u8 = 0x07;
    /// What nobody sees any more, for the collector. Local: left out of hashes and images.
    pub const DEAD: u8 = 0x08;
    /// Version of the layout.
    pub const FORMAT: u8 = 0x09;
}

/// The byte behind a partition in the data region. Numbers not listed are reserved for the data kinds to come.
pub mod family {
    /// Generation of a table's storage, where it is not 0.
    pub const STORAGE: u8 = 0x01;
    /// Rows by primary key.
    pub const ROW: u8 = 0x02;
    /// Entries of an index.
    pub const INDEX: u8 = 0x03;
    /// Entries of a unique index.
    pub const UNIQUE: u8 = 0x04;
    /// Outcomes of named commands, applied and rejected.
    pub const RECEIPT: u8 = 0x05;
    /// Changes in order.
    pub const FEED: u8 = 0x07;
    /// Numbers of sequences.
    pub const SEQUENCE: u8 = 0x08;
    /// Parts of commands larger than an entry, by (epoch, number, sequence).
    pub const PART: u8 = 0x09;
    /// Reserved: streams and topics.
    pub const STREAM: u8 = 0x20;
    /// Reserved: queues.
    pub const QUEUE: u8 = 0x28;
    /// Reserved: schedules.
    pub const SCHEDULE: u8 = 0x30;
    /// Reserved: series.
    pub const SERIES: u8 = 0x38;
    /// Reserved: graphs.
    pub const GRAPH: u8 = 0x40;
    /// Reserved: blobs.
    pub const BLOB: u8 = 0x48;
    /// Reserved: before-images.
    pub const HISTORY: u8 = 0x70;
}

/// The kind of work in the due region.
pub mod due {
    /// A receipt to forget, by `elapsed`; the key is the receipt's (principal, id).
    pub const RECEIPT: u8 = 0x01;
    /// A partition's feed to trim, by `elapsed`; the key is empty.
    pub const FEED: u8 = 0x02;
    /// Parts of a large command that nobody closed, to be removed, by `elapsed`; the key is (epoch, number).
    pub const PART: u8 = 0x03;
}

/// The table number under which a partition's own counters lie.
pub const PARTITION_ITSELF: TableId = TableId(0);

/// The longest partition id that is stored.
pub const PARTITION_BYTES_MAX: usize = 4_096;

/// The longest key of a row.
pub const ROW_KEY_BYTES_MAX: usize = 8_192;

/// The longest key of an index entry, without the row's key.
pub const INDEX_KEY_BYTES_MAX: usize = 16_384;

/// Appends a partition: length and canonical bytes.
fn push_partition(out: &mut Vec<u8>, partition: &[u8]) {
    let length = u16::try_from(partition.len()).expect("a partition id is bounded where it enters");
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(partition);
}

/// Appends a storage id.
fn push_storage(out: &mut Vec<u8>, table: TableId, generation: Revision) {
    out.extend_from_slice(&table.0.to_be_bytes());
    let bytes = generation.0.to_be_bytes();
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    out.push((8 - zeros) as u8);
    out.extend_from_slice(&bytes[zeros..]);
}

/// A key of the meta region without more behind it.
pub fn meta_key(kind: u8) -> [u8; 2] {
    [region::META, kind]
}

/// A key of the meta region with a number behind it.
pub fn meta_number_key(kind: u8, number: u32) -> [u8; 6] {
    let n = number.to_be_bytes();
    [region::META, kind, n[0], n[1], n[2], n[3]]
}

/// What a record of something dead is about: the byte behind [`meta::DEAD`].
pub mod dead {
    /// One storage of a table in a partition: point, partition, storage id.
    pub const STORAGE: u8 = 1;
    /// Everything of a table: table u32.
    pub const TABLE: u8 = 2;
    /// Everything of an index: table u32, index u32.
    pub const INDEX: u8 = 3;
}

/// The record of a table that was dropped.
pub fn dead_table_key(table: TableId) -> Vec<u8> {
    [&[region::META, meta::DEAD, dead::TABLE][..], &table.0.to_be_bytes()].concat()
}

/// The record of an index that was dropped.
pub fn dead_index_key(table: TableId, index: IndexId) -> Vec<u8> {
    let numbers = [table.0.to_be_bytes(), index.0.to_be_bytes()].concat();
    [&[region::META, meta::DEAD, dead::INDEX][..], &numbers].concat()
}

/// The record of rows nobody sees any more.
pub fn dead_storage_key(partition: &PartitionId, table: TableId, generation: Revision) -> Vec<u8> {
    let mut key = vec![region::META, meta::DEAD, dead::STORAGE];
    key.extend_from_slice(&partition.point().0.to_be_bytes());
    push_partition(&mut key, partition.as_bytes());
    push_storage(&mut key, table, generation);
    key
}

/// The record of a gateway's slot.
pub fn slot_key(node: NodeId, slot: u16) -> [u8; 7] {
    let [a, b, c, d] = node.0.to_be_bytes();
    let [e, f] = slot.to_be_bytes();
    [region::SLOTS, a, b, c, d, e, f]
}

/// The counters of a table in a partition.
pub fn counter_key(partition: &PartitionId, table: TableId) -> Vec<u8> {
    let mut key = Vec::with_capacity(11 + partition.as_bytes().len());
    key.push(region::COUNTERS);
    key.extend_from_slice(&partition.point().0.to_be_bytes());
    push_partition(&mut key, partition.as_bytes());
    key.extend_from_slice(&table.0.to_be_bytes());
    key
}

/// The record that a table has, or had, rows in a partition.
pub fn partition_key(table: TableId, partition: &PartitionId) -> Vec<u8> {
    let mut key = partitions_prefix(table).to_vec();
    key.extend_from_slice(&partition.point().0.to_be_bytes());
    push_partition(&mut key, partition.as_bytes());
    key
}

/// What all such records of a table start with.
pub fn partitions_prefix(table: TableId) -> [u8; 5] {
    let [a, b, c, d] = table.0.to_be_bytes();
    [region::PARTITIONS, a, b, c, d]
}

/// Everything of a family of a partition starts with this.
pub fn family_prefix(partition: &PartitionId, family: u8) -> Vec<u8> {
    let mut key = Vec::with_capacity(24 + partition.as_bytes().len());
    push_family(&mut key, partition, family);
    key
}

fn push_family(out: &mut Vec<u8>, partition: &PartitionId, family: u8) {
    out.push(region::DATA);
    out.extend_from_slice(&partition.point().0.to_be_bytes());
    push_partition(out, partition.as_bytes());
    out.push(family);
}

/// What the keys of a large command's parts start with.
pub fn parts_prefix(partition: &PartitionId, epoch: u64, number: u64) -> Vec<u8> {
    let mut key = family_prefix(partition, family::PART);
    key.extend_from_slice(&epoch.to_be_bytes());
    key.extend_from_slice(&number.to_be_bytes());
    key
}

/// The generation of a table's storage in a partition.
pub fn storage_key(partition: &PartitionId, table: TableId) -> Vec<u8> {
    let mut key = family_prefix(partition, family::STORAGE);
    key.extend_from_slice(&table.0.to_be_bytes());
    key
}

/// Appends what the rows of a table in a partition start with.
pub fn push_rows_prefix(out: &mut Vec<u8>, partition: &PartitionId, table: TableId, generation: Revision) {
    push_family(out, partition, family::ROW);
    push_storage(out, table, generation);
}

/// What the rows of a table in a partition start with.
pub fn rows_prefix(partition: &PartitionId, table: TableId, generation: Revision) -> Vec<u8> {
    let mut key = Vec::with_capacity(48 + partition.as_bytes().len());
    push_rows_prefix(&mut key, partition, table, generation);
    key
}

/// Where a row lies.
pub fn row_key(partition: &PartitionId, table: TableId, generation: Revision, key: &[u8]) -> Vec<u8> {
    let mut full = Vec::with_capacity(48 + partition.as_bytes().len() + key.len());
    push_rows_prefix(&mut full, partition, table, generation);
    full.extend_from_slice(key);
    full
}

/// What all entries of all indexes of a storage start with, by family.
pub fn index_family_prefix(
    partition: &PartitionId,
    table: TableId,
    generation: Revision,
    family: u8,
) -> Vec<u8> {
    let mut key = family_prefix(partition, family);
    push_storage(&mut key, table, generation);
    key
}

/// What the entries of an index start with.
pub fn index_prefix(
    partition: &PartitionId,
    table: TableId,
    generation: Revision,
    index: IndexId,
    unique: bool,
) -> Vec<u8> {
    let family = if unique { family::UNIQUE } else { family::INDEX };
    let mut key = index_family_prefix(partition, table, generation, family);
    key.extend_from_slice(&index.0.to_be_bytes());
    key
}

/// The outcome of a named command.
pub fn receipt_key(partition: &PartitionId, principal: RoleId, id: CommandId) -> Vec<u8> {
    let mut key = family_prefix(partition, family::RECEIPT);
    key.extend_from_slice(&receipt_suffix(principal, id));
    key
}

/// (principal, id), as it stands in keys.
pub fn receipt_suffix(principal: RoleId, id: CommandId) -> [u8; 20] {
    let mut suffix = [0; 20];
    suffix[..4].copy_from_slice(&principal.0.to_be_bytes());
    suffix[4..].copy_from_slice(&id.0.to_be_bytes());
    suffix
}

/// A record of a partition's feed.
pub fn feed_key(partition: &PartitionId, revision: Revision) -> Vec<u8> {
    let mut key = family_prefix(partition, family::FEED);
    key.extend_from_slice(&revision.0.to_be_bytes());
    key
}

/// The state of a sequence.
pub fn sequence_key(partition: &PartitionId, sequence: SequenceId) -> Vec<u8> {
    let mut key = family_prefix(partition, family::SEQUENCE);
    key.extend_from_slice(&sequence.0.to_be_bytes());
    key
}

/// Work that is due at a time.
pub fn due_key(kind: u8, time: u64, partition: &PartitionId, suffix: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(17 + partition.as_bytes().len() + suffix.len());
    key.extend_from_slice(&due_bound(kind, time));
    key.extend_from_slice(&partition.point().0.to_be_bytes());
    push_partition(&mut key, partition.as_bytes());
    key.extend_from_slice(suffix);
    key
}

/// The first key of work of a kind that is due at a time or later.
pub fn due_bound(kind: u8, time: u64) -> [u8; 10] {
    let mut key = [region::DUE, kind, 0, 0, 0, 0, 0, 0, 0, 0];
    key[2..].copy_from_slice(&time.to_be_bytes());
    key
}

/// The first key of a region's range of points, for regions that are ordered by point.
pub fn point_bound(region: u8, point: Point) -> [u8; 5] {
    let [a, b, c, d] = point.0.to_be_bytes();
    [region, a, b, c, d]
}

/// A key of the due region, taken apart.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Due {
    /// What kind of work.
    pub kind: u8,
    /// When.
    pub time: u64,
    /// Where.
    pub partition: PartitionId,
    /// On what.
    pub suffix: Bytes,
}

impl Due {
    /// Takes a key apart; none if it is no key of the due region.
    pub fn parse(key: &[u8]) -> Option<Self> {
        let rest = key.strip_prefix(&[region::DUE])?;
        let (kind, rest) = rest.split_first()?;
        let (time, rest) = rest.split_first_chunk::<8>()?;
        let (partition, suffix) = split_pointed(rest)?;
        Some(Self {
            kind: *kind,
            time: u64::from_be_bytes(*time),
            partition,
            suffix: Bytes::copy_from_slice(suffix),
        })
    }
}

/// The partition behind a point, and what follows.
fn split_pointed(bytes: &[u8]) -> Option<(PartitionId, &[u8])> {
    let (point, canonical, rest) = split_partition(bytes)?;
    let partition = PartitionId::parse(canonical).ok()?;
    (partition.point() == point).then_some((partition, rest))
}

/// The point and the partition's bytes at the start of `bytes`, and what follows; the partition is not parsed.
pub fn split_partition(bytes: &[u8]) -> Option<(Point, &[u8], &[u8])> {
    let (point, rest) = bytes.split_first_chunk::<4>()?;
    let (length, rest) = rest.split_first_chunk::<2>()?;
    let (canonical, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
    Some((Point(u32::from_be_bytes(*point)), canonical, rest))
}

/// The storage id at the start of `bytes`, and what follows.
pub fn split_storage(bytes: &[u8]) -> Option<(TableId, Revision, &[u8])> {
    let (table, rest) = bytes.split_first_chunk::<4>()?;
    let (length, rest) = rest.split_first()?;
    let (significant, rest) = rest.split_at_checked(usize::from(*length))?;
    let start = 8usize.checked_sub(significant.len())?;
    if significant.first() == Some(&0) {
        return None;
    }
    let mut generation = [0; 8];
    generation[start..].copy_from_slice(significant);
    Some((TableId(u32::from_be_bytes(*table)), Revision(u64::from_be_bytes(generation)), rest))
}

/// The point of a key, for keys that have one; none for those of the shard itself.
pub fn point_of(key: &[u8]) -> Option<Point> {
    let at = match *key.first()? {
        region::COUNTERS | region::DATA => 1,
        region::PARTITIONS => 5,
        region::DUE => 10,
        region::META if key.get(1..3) == Some(&[meta::DEAD, dead::STORAGE]) => 3,
        _ => return None,
    };
    let bytes = key.get(at..)?.first_chunk::<4>()?;
    Some(Point(u32::from_be_bytes(*bytes)))
}

#[cfg(test)]
mod tests {
    use model::id::{DatabaseId, SchemaId};

    use super::*;

    fn partition() -> PartitionId {
        PartitionId::default_of(DatabaseId(1), SchemaId(2))
    }

    #[test]
    fn a_keyspace_name_names_shard_and_generation() {
        assert_eq!(keyspace_name(ShardId(10), 3), "s000a.3");
        assert_eq!(parse_keyspace_name("s000a.3"), Some((ShardId(10), 3)));
        for name in ["s000a", "x000a.3", "sa.3", "s000a.03", "s000A.3"] {
            assert_eq!(parse_keyspace_name(name), None, "{name}");
        }
    }

    #[test]
    fn generations_sort_as_numbers_and_come_back() {
        let mut last = Vec::new();
        for generation in [0, 1, 255, 256, 65_535, 1 << 40, u64::MAX] {
            let mut bytes = Vec::new();
            push_storage(&mut bytes, TableId(7), Revision(generation));
            bytes.push(0xee);
            assert!(last < bytes, "{generation}");
            let (table, found, rest) = split_storage(&bytes).expect("its own bytes");
            assert_eq!((table, found, rest), (TableId(7), Revision(generation), [0xee].as_slice()));
            last = bytes;
        }
    }

    #[test]
    fn a_due_key_is_taken_apart_as_it_was_made() {
        let key = due_key(due::RECEIPT, 99, &partition(), b"abc");
        let due = Due::parse(&key).expect("its own bytes");
        assert_eq!((due.kind, due.time), (due::RECEIPT, 99));
        assert_eq!(due.partition, partition());
        assert_eq!(due.suffix, b"abc".as_slice());
        for length in 0..key.len() - 3 {
            assert_eq!(Due::parse(&key[..length]), None, "{length}");
        }
        assert_eq!(point_of(&key), Some(partition().point()));
    }
}
