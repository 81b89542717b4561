//! The gates' test cases: lifecycle 1–10, maps 14–20.

mod lifecycle;
mod maps;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::Wake,
};

use model::id::ViewId;

use super::*;

/// An error one can recognise.
#[derive(Debug, thiserror::Error)]
#[error("broken: {0}")]
pub(super) struct Broken(pub(super) &'static str);

pub(super) fn broken(what: &'static str) -> Failure {
    Arc::new(Broken(what))
}

/// Counts how often it is woken.
#[derive(Default)]
pub(super) struct Wakes(AtomicUsize);

impl Wakes {
    pub(super) fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn v(number: u64) -> ViewId {
    ViewId(number)
}
