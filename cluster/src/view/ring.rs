//! A view of the shards: a view of resources whose shards cover the ring, and its bytes.
//!
//! Invariants:
//! - Every point has one shard. The control group's shard is not on the ring.
//! - The bytes of a view are canonical: views of the same facts have the same bytes, and other bytes are refused.
//!
//! Not here: replicas of a shard; they join with replication.

use std::collections::HashMap;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use model::id::{Epoch, NodeId, ShardId, ViewId};

use crate::ring::{CONTROL, Map, RANGE_BYTES, Range};

use super::assignment::{Authority, Fault, Header, Held, Member, Versioned, View};

const FORMAT: u8 = 2;

/// Who owns which shard, and which points a shard has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RingView {
    view: View<ShardId>,
    map: Map,
}

impl RingView {
    /// The view of these facts, if they are sound.
    pub fn new(
        header: Header,
        members: impl IntoIterator<Item = Member>,
        shards: impl IntoIterator<Item = (ShardId, Range, Held)>,
    ) -> Result<Self, Fault> {
        let shards: Vec<_> = shards.into_iter().collect();
        let view = View::new(header, members, shards.iter().map(|(shard, _, held)| (*shard, *held)))?;
        if let Some((shard, ..)) = shards.iter().find(|(shard, ..)| *shard == CONTROL) {
            return Err(Fault::Control(*shard));
        }
        let map = Map::new(shards.iter().map(|(shard, range, _)| (*shard, *range))).map_err(Fault::Ring)?;
        // A shard without points would be in the view and not on the ring.
        if map.len() < shards.len() {
            return Err(Fault::Ring(crate::ring::Fault::NoPartition));
        }
        Ok(Self { view, map })
    }

    /// Who owns which shard.
    pub fn owners(&self) -> &View<ShardId> {
        &self.view
    }

    /// Which shard has which points.
    pub fn map(&self) -> &Map {
        &self.map
    }

    /// Calls `visit` once for each shard that has a point of `range`, with its whole range and its holder.
    pub fn visit_range_owners(&self, range: Range, mut visit: impl FnMut(ShardId, Range, Option<Held>)) {
        self.map.visit(range, |shard, owned| visit(shard, owned, self.view.holder(&shard)));
    }

    /// Its bytes: format, header, members in order, shards in ring order.
    pub fn encode(&self) -> Bytes {
        let Header { id, predecessor, authority, watermark } = *self.view.header();
        let mut out = BytesMut::new();
        out.put_u8(FORMAT);
        out.put_u64(id.0);
        out.put_u64(predecessor.map_or(0, |before| before.0));
        out.put_u128(authority.0);
        out.put_u64(watermark);
        out.put_u32(self.view.members().len() as u32);
        for member in self.view.members() {
            out.put_u32(member.node.0);
            out.put_u64(member.incarnation);
        }
        out.put_u32(self.map.len() as u32);
        for (shard, range) in self.map.shards() {
            let held = self.view.holder(&shard).unwrap_or(Held { owner: None, epoch: Epoch(0) });
            out.put_u32(shard.0);
            out.put_slice(&range.encode());
            out.put_u64(held.epoch.0);
            out.put_u32(held.owner.map_or(0, |owner| owner.node.0));
        }
        out.freeze()
    }

    /// The view of these bytes, checked like one that is built.
    pub fn decode(bytes: &[u8]) -> Result<Self, Fault> {
        let (header, members, shards) = read(bytes).ok_or(Fault::Bytes)?;
        if !members.is_sorted() {
            return Err(Fault::Unsorted);
        }
        let lives: HashMap<_, _> = members.iter().map(|member| (member.node, *member)).collect();
        let owned = shards.into_iter().map(|(shard, range, epoch, node)| {
            let owner = match node {
                NodeId(0) => None,
                node => {
                    let stranger = Member { node, incarnation: 0 };
                    Some(lives.get(&node).copied().ok_or(Fault::Stranger(stranger))?)
                }
            };
            Ok((shard, range, Held { owner, epoch }))
        });
        let view = Self::new(header, members, owned.collect::<Result<Vec<_>, Fault>>()?)?;
        if view.encode() == bytes { Ok(view) } else { Err(Fault::Bytes) }
    }
}

type Read = (Header, Vec<Member>, Vec<(ShardId, Range, Epoch, NodeId)>);

fn read(mut bytes: &[u8]) -> Option<Read> {
    let from = &mut bytes;
    if from.try_get_u8().ok()? != FORMAT {
        return None;
    }
    let id = ViewId(from.try_get_u64().ok()?);
    let predecessor = Some(ViewId(from.try_get_u64().ok()?)).filter(|before| before.0 > 0);
    let authority = Authority(from.try_get_u128().ok()?);
    let watermark = from.try_get_u64().ok()?;
    let mut members = Vec::new();
    for _ in 0..from.try_get_u32().ok()? {
        let node = NodeId(from.try_get_u32().ok()?);
        members.push(Member { node, incarnation: from.try_get_u64().ok()? });
    }
    let mut shards = Vec::new();
    for _ in 0..from.try_get_u32().ok()? {
        let shard = ShardId(from.try_get_u32().ok()?);
        let (range, rest) = from.split_first_chunk::<RANGE_BYTES>()?;
        *from = rest;
        let epoch = Epoch(from.try_get_u64().ok()?);
        shards.push((shard, Range::decode(*range)?, epoch, NodeId(from.try_get_u32().ok()?)));
    }
    bytes.is_empty().then_some((Header { id, predecessor, authority, watermark }, members, shards))
}

impl Versioned for RingView {
    fn header(&self) -> &Header {
        self.view.header()
    }

    fn is_vacant(&self) -> bool {
        self.view.members().is_empty()
    }
}
