//! The drivers' test cases (40, 41, 45–61, 129, 135) on members in one thread: no clock, no network, one executor that is
//! run until nothing moves.

mod directory;
mod failures;
mod order;
mod transfer;
mod world;

use model::id::{Epoch, Point, ShardId, ViewId};

use crate::{
    ring::Range,
    view::{Authority, Header, Held, Member, RingView},
};

use super::*;
use world::{World, member};

/// The three parts of the ring that the tests move; shards 1 to 3.
fn third(number: u32) -> Range {
    Range::Full.divide(3).nth(number as usize - 1).unwrap()
}

/// A point in the middle of a part.
fn point(number: u32) -> Point {
    Point((number - 1) * (u32::MAX / 3) + u32::MAX / 6)
}

/// View `id` after view `before`, in which nodes own the three shards, each in an epoch.
fn view(id: u64, before: u64, owners: [(u32, u64); 3], members: &[u32]) -> RingView {
    let predecessor = Some(ViewId(before)).filter(|before| before.0 > 0);
    let header = Header { id: ViewId(id), predecessor, authority: Authority(1), watermark: 0 };
    let shards = owners.into_iter().zip(1..).map(|((node, epoch), number)| {
        (ShardId(number), third(number), Held { owner: Some(member(node)), epoch: Epoch(epoch) })
    });
    RingView::new(header, members.iter().map(|node| member(*node)), shards).unwrap()
}

/// Contiguous views with epochs that grow when the owner changes, of all three members.
fn views<const N: usize>(owners: [[u32; 3]; N]) -> [RingView; N] {
    let mut epochs = [1; 3];
    std::array::from_fn(|number| {
        for shard in 0..3 {
            if number > 0 && owners[number][shard] != owners[number - 1][shard] {
                epochs[shard] += 1;
            }
        }
        let held = std::array::from_fn(|shard| (owners[number][shard], epochs[shard]));
        view(number as u64 + 1, number as u64, held, &[1, 2, 3])
    })
}
