//! Recovery: making a part of the ring's state again from what every member knows.
//!
//! Invariants:
//! - Of several records of one key the newest view's wins, whoever answered first; of one view's, the smaller member's.
//! - A member that was asked has raised its watermark: what it registers under an older view is done again under a newer
//!   one, so that a registration on its way is either in the answer or repeated.
//!
//! Not here: who is asked (`handoff::acquire`).

use std::collections::BTreeMap;

use model::id::ViewId;

use crate::{
    sync::{AtomicU64, Ordering},
    view::Member,
};

/// What a member knows about one key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record<T> {
    /// What it holds.
    pub value: T,
    /// Under which view it was registered.
    pub view: ViewId,
}

/// One member's answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer<K, T> {
    /// Whose.
    pub member: Member,
    /// What it knows.
    pub records: Vec<(K, Record<T>)>,
}

/// What all answers together say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Merged<K, T> {
    /// The record of each key that counts, and whose it is.
    pub winners: BTreeMap<K, (Member, Record<T>)>,
    /// The others, by key and member.
    pub losers: Vec<(K, Member, Record<T>)>,
}

/// The newest record of each key with the member that had it, and the losers, who must stop before the part is opened.
pub fn newest<K: Clone + Ord, T>(answers: impl IntoIterator<Item = Answer<K, T>>) -> Merged<K, T> {
    let mut merged = Merged { winners: BTreeMap::new(), losers: Vec::new() };
    let Merged { winners, losers } = &mut merged;
    for Answer { member, records } in answers {
        for (key, record) in records {
            let better = |(other, there): &(Member, Record<T>)| {
                (there.view, std::cmp::Reverse(*other)) < (record.view, std::cmp::Reverse(member))
            };
            let loser = match winners.get(&key) {
                Some(there) if !better(there) => Some((member, record)),
                Some(_) | None => winners.insert(key.clone(), (member, record)),
            };
            losers.extend(loser.map(|(member, record)| (key, member, record)));
        }
    }
    losers.sort_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
    merged
}

/// Up to which view a member's registrations may have been overlooked.
#[derive(Debug, Default)]
pub struct Watermark(AtomicU64);

/// A registration was made under a view that a recovery has passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("registered under {under}, and recovered under {recovered}: to be done again")]
pub struct Redo {
    /// Under which it was made.
    pub under: ViewId,
    /// Under which at least it has to be.
    pub recovered: ViewId,
}

impl Watermark {
    /// A recovery asks under this view. First this, then the answer is gathered.
    pub fn raise(&self, view: ViewId) {
        self.0.fetch_max(view.0, Ordering::SeqCst);
    }

    /// Whether what was registered under this view stands. Asked after the registration is in what would be gathered.
    pub fn check(&self, under: ViewId) -> Result<(), Redo> {
        let recovered = ViewId(self.0.load(Ordering::SeqCst));
        if under < recovered { Err(Redo { under, recovered }) } else { Ok(()) }
    }
}
