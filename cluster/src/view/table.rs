//! The shard table as the control group keeps it today, and its bytes.
//!
//! Invariants:
//! - A view is immutable and numbered, and names its predecessor where it is published; view 1 is made with the cluster.
//! - Its ranges are those of a [`Map`]: every point has one shard.
//!
//! Not here: members and owners (`view::ring`).

use bytes::{BufMut, Bytes, BytesMut};
use model::id::{Point, ShardId, ViewId};

use crate::ring::{Map, Range};

/// The first view of a cluster.
pub(crate) const FIRST: ViewId = ViewId(1);

const FORMAT: u8 = 1;

/// The bytes of a shard table: format, count, then (shard, exclusive start, inclusive end) in ring order. A shard that has
/// the whole ring ends where it starts.
pub(crate) fn encode(map: &Map) -> Bytes {
    let mut out = BytesMut::with_capacity(5 + 12 * map.len());
    out.put_u8(FORMAT);
    out.put_u32(map.len() as u32);
    for (shard, range) in map.shards() {
        let (start, end) = match range {
            Range::Arc(arc) => (arc.start(), arc.end()),
            Range::Full | Range::Empty => (Point(u32::MAX), Point(u32::MAX)),
        };
        out.put_u32(shard.0);
        out.put_u32(start.0);
        out.put_u32(end.0);
    }
    out.freeze()
}

/// The shard table of these bytes; none if they are none.
pub(crate) fn decode(bytes: &[u8]) -> Option<Map> {
    let (head, rest) = bytes.split_first_chunk::<5>()?;
    let count = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
    let (records, left) = rest.as_chunks::<12>();
    if head[0] != FORMAT || !left.is_empty() || records.len() != count as usize {
        return None;
    }
    let number = |record: &[u8; 12], at: usize| {
        u32::from_be_bytes([record[at], record[at + 1], record[at + 2], record[at + 3]])
    };
    let range = |record: &[u8; 12]| {
        let range = Range::between(Point(number(record, 4)), Point(number(record, 8)));
        (ShardId(number(record, 0)), range)
    };
    Map::new(records.iter().map(range)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_table_comes_back_and_damage_does_not() {
        for shards in [1, 3, 8, 64] {
            let map = Map::divide(shards).unwrap();
            let bytes = encode(&map);
            assert_eq!(decode(&bytes), Some(map));
            assert_eq!(decode(&bytes[..bytes.len() - 1]), None);
        }
        assert_eq!(decode(&[]), None);
    }
}
