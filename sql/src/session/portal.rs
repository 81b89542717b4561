//! Portals: a statement with its parameters, ready to run, running, or done.

use std::{borrow::Cow, collections::VecDeque};

use model::Value;

use super::{Executed, Format, Page, PortalDescription};
use crate::{
    batch::Batch,
    cache::Prepared,
    execute::{Operator, Runtime},
};

/// A portal.
pub(super) struct Portal {
    pub(super) prepared: Prepared,
    pub(super) parameters: Vec<Value>,
    pub(super) formats: Vec<Format>,
    pub(super) run: Run,
    /// Rows still to give before it is suspended; none for all.
    pub(super) left: Option<u64>,
    /// Rows given since the last Execute.
    pub(super) given: u64,
    pub(super) deadline: Option<tokio::time::Instant>,
    /// `WITH HOLD`: outlives its transaction.
    pub(super) held: bool,
    /// How many of the session's portals were made before it: one made after a savepoint goes when the savepoint is rolled
    /// back to.
    pub(super) number: u64,
    /// Made by DECLARE.
    pub(super) cursor: Option<Cursor>,
}

/// Where a cursor stands.
pub(super) struct Cursor {
    /// The rows it has given, kept so that it can go back.
    pub(super) rows: Vec<Vec<Value>>,
    /// All rows are in `rows`.
    pub(super) complete: bool,
    /// 0 is before the first row.
    pub(super) position: usize,
    pub(super) scroll: bool,
}

/// How far a portal is.
pub(super) enum Run {
    Ready,
    Rows(Box<Rows>),
    /// Rows that are there, and the tag.
    Buffered(VecDeque<Page>, String),
    Copy(Box<super::copy::CopyOut>),
    Done(Cow<'static, str>),
}

/// A query that gives rows.
pub(super) struct Rows {
    /// Used through `get_mut` only: the lock is there so that a portal can be looked at from any thread.
    pub(super) operator: parking_lot::Mutex<Box<dyn Operator>>,
    pub(super) runtime: Runtime,
    pub(super) rest: Option<Batch>,
    pub(super) rows: u64,
}

impl Portal {
    pub(super) fn new(prepared: Prepared, parameters: Vec<Value>, formats: Vec<Format>) -> Self {
        Self {
            prepared,
            parameters,
            formats,
            run: Run::Ready,
            left: None,
            given: 0,
            deadline: None,
            held: false,
            number: 0,
            cursor: None,
        }
    }

    /// Rows that FETCH or MOVE pulled and did not pass, to be given before anything else: at most those that are asked for.
    pub(super) fn take_pulled(&mut self) -> Option<Vec<Vec<Value>>> {
        let cursor = self.cursor.as_mut()?;
        let pulled = cursor.rows.get(cursor.position..).filter(|rows| !rows.is_empty())?;
        let asked = self.left.map_or(usize::MAX, |left| usize::try_from(left).unwrap_or(usize::MAX));
        let rows = pulled[..pulled.len().min(asked)].to_vec();
        cursor.position += rows.len();
        self.left = self.left.map(|left| left - rows.len() as u64);
        Some(rows)
    }

    /// Counts the rows of a step; the tag of a query tells those of the last Execute.
    pub(super) fn counted(&mut self, step: Executed) -> Executed {
        match step {
            Executed::Rows(page) => {
                self.given += page.len() as u64;
                Executed::Rows(page)
            }
            Executed::Complete(tag) if tag.starts_with("SELECT ") && self.prepared.columns.is_some() => {
                Executed::Complete(format!("SELECT {}", self.given))
            }
            other => other,
        }
    }

    pub(super) fn is_running(&self) -> bool {
        !matches!(self.run, Run::Ready)
    }

    pub(super) fn is_held(&self) -> bool {
        self.held
    }
}

/// What Describe answers.
pub(super) fn describe(portal: &Portal) -> PortalDescription {
    PortalDescription { columns: portal.prepared.columns.clone(), formats: portal.formats.clone() }
}

impl Page {
    /// How many rows it has.
    pub fn len(&self) -> usize {
        match self {
            Self::Values(rows) => rows.len(),
            Self::Batch(batch) => batch.len(),
        }
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first rows, and the others.
    pub(super) fn cut(self, count: usize) -> (Self, Option<Self>) {
        if count >= self.len() {
            return (self, None);
        }
        match self {
            Self::Values(mut rows) => {
                let rest = rows.split_off(count);
                (Self::Values(rows), Some(Self::Values(rest)))
            }
            Self::Batch(batch) => {
                let first = batch.slice(0, count);
                let rest = batch.slice(count, batch.len() - count);
                (Self::Batch(Box::new(first)), Some(Self::Batch(Box::new(rest))))
            }
        }
    }

    /// The rows as values.
    pub fn into_values(self) -> Vec<Vec<Value>> {
        match self {
            Self::Values(rows) => rows,
            Self::Batch(batch) => batch.rows(),
        }
    }
}
