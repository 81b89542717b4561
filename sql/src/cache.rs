//! Prepared statements and the server-wide cache of plans.
//!
//! Invariants:
//! - A plan is found by its text, the types the client gave, the database, the search path and the text settings it was
//!   bound under; it is used only while the catalog has the version it was bound on.
//! - The cache holds at most [`PLANS_MAX`] plans; when it is full the older half goes.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use hashbrown::{Equivalent, HashMap};
use model::{
    Error, Type,
    id::{CatalogVersion, DatabaseId},
    request::Column,
};
use parking_lot::Mutex;

use crate::{
    bind::{Access, Command},
    direct::{Direct, DirectJoin, DirectRange, DirectUpdate},
    parse::Parsed,
    plan::Plan,
};

/// How many plans are kept.
const PLANS_MAX: usize = 4_096;

/// Longer texts are not kept.
const TEXT_BYTES_MAX: usize = 16 * 1024;

/// A planned query or change of rows.
#[derive(Debug)]
pub(crate) struct Planned {
    pub(crate) plan: Arc<Plan>,
    /// The result's columns; none if there are no rows to give.
    pub(crate) columns: Option<Arc<[Column]>>,
    pub(crate) parameters: Arc<[Type]>,
    pub(crate) access: Vec<Access>,
    pub(crate) command: Command,
    pub(crate) writes: bool,
    /// How it runs without batches, if it can.
    pub(crate) direct: Option<Direct>,
    /// How it runs as a join of two rows, if it can.
    pub(crate) join: Option<DirectJoin>,
    /// How it runs as a short range, if it can.
    pub(crate) range: Option<DirectRange>,
    /// How it runs as a row program, if it can.
    pub(crate) program: Option<DirectUpdate>,
    /// A constant in it that has no value: the statement fails when it is bound.
    pub(crate) failure: Option<Error>,
    pub(crate) catalog: CatalogVersion,
}

/// A statement that was parsed.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    pub(crate) parsed: Arc<Parsed>,
    /// The plan, for what is planned.
    pub(crate) planned: Option<Arc<Planned>>,
    /// The types of all parameters.
    pub(crate) parameters: Arc<[Type]>,
    /// The result's columns.
    pub(crate) columns: Option<Arc<[Column]>>,
}

/// Under what a plan is found. Hashes as [`Sought`] does: the same fields in the same order.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Key {
    pub(crate) text: Arc<str>,
    pub(crate) given: Vec<Option<Type>>,
    pub(crate) database: DatabaseId,
    /// Search path and text settings.
    pub(crate) settings: Arc<str>,
}

/// The same, to look with.
#[derive(PartialEq, Eq, Hash, Debug)]
pub(crate) struct Sought<'a> {
    pub(crate) text: &'a str,
    pub(crate) given: &'a [Option<Type>],
    pub(crate) database: DatabaseId,
    pub(crate) settings: &'a str,
}

impl Equivalent<Key> for Sought<'_> {
    fn equivalent(&self, key: &Key) -> bool {
        *self
            == Sought { text: &key.text, given: &key.given, database: key.database, settings: &key.settings }
    }
}

/// The cache.
#[derive(Default)]
pub(crate) struct Cache {
    plans: Mutex<HashMap<Key, (u64, Prepared)>>,
    clock: AtomicU64,
}

impl Cache {
    /// The statement with this key, if its plan is of this catalog.
    pub(crate) fn find(&self, key: &Sought<'_>, catalog: CatalogVersion) -> Option<Prepared> {
        let mut plans = self.plans.lock();
        let (used, prepared) = plans.get_mut(key)?;
        if prepared.planned.as_ref().is_some_and(|planned| planned.catalog != catalog) {
            plans.remove(key);
            return None;
        }
        *used = self.clock.fetch_add(1, Ordering::Relaxed);
        Some(prepared.clone())
    }

    /// Forgets all plans.
    pub(crate) fn clear(&self) {
        self.plans.lock().clear();
    }

    /// Keeps a statement.
    pub(crate) fn put(&self, key: Key, prepared: Prepared) {
        if key.text.len() > TEXT_BYTES_MAX {
            return;
        }
        let mut plans = self.plans.lock();
        if plans.len() >= PLANS_MAX {
            let mut ages: Vec<u64> = plans.values().map(|(used, _)| *used).collect();
            ages.sort_unstable();
            let middle = ages[ages.len() / 2];
            plans.retain(|_, (used, _)| *used > middle);
        }
        plans.insert(key, (self.clock.fetch_add(1, Ordering::Relaxed), prepared));
    }
}
