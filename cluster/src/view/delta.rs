//! What changed for one owner between two views.
//!
//! Invariants:
//! - The three parts are disjoint, and together are all that it had or has.
//! - A unit that is held in another epoch than before was lost and got again, whoever had it between: it is in both
//!   `released` and `acquired`, never in `retained`.
//! - It takes two look-ups at most for each unit of either side.
//!
//! Epochs of different authorities are different counts: who compares views of two must not believe `retained`.
//!
//! Not here: ranges of a topology (`ring::Topology::changes`).

use std::{collections::HashMap, hash::Hash};

use model::id::Epoch;

/// What an owner holds: each unit in its epoch.
pub type Units<R> = HashMap<R, Epoch>;

/// What became of an owner's units.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Delta<R> {
    /// Held before and now, without a break: starts no work.
    pub retained: Vec<(R, Epoch)>,
    /// No longer held in this epoch.
    pub released: Vec<(R, Epoch)>,
    /// Newly held in this epoch.
    pub acquired: Vec<(R, Epoch)>,
}

/// The change from what an owner held to what it holds; none is nothing held.
pub fn delta<R: Clone + Eq + Hash>(old: Option<&Units<R>>, new: Option<&Units<R>>) -> Delta<R> {
    let mut delta = Delta { retained: Vec::new(), released: Vec::new(), acquired: Vec::new() };
    for (unit, epoch) in old.into_iter().flatten() {
        let stays = new.and_then(|new| new.get(unit)) == Some(epoch);
        let part = if stays { &mut delta.retained } else { &mut delta.released };
        part.push((unit.clone(), *epoch));
    }
    for (unit, epoch) in new.into_iter().flatten() {
        if old.and_then(|old| old.get(unit)) != Some(epoch) {
            delta.acquired.push((unit.clone(), *epoch));
        }
    }
    delta
}
