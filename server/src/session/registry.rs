//! The registry of sessions: how many there are, their cancel keys, and how each is told to end.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicI32, AtomicU8, AtomicU32, AtomicU64, Ordering},
    },
};

use model::{
    Code, Error, Result,
    id::{RoleId, SessionId},
    time::Timestamp,
};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::auth::scram::random;

/// Every session of this process.
pub struct Registry {
    connections_max: usize,
    next_id: AtomicU64,
    next_process: AtomicI32,
    entries: Mutex<HashMap<i32, Arc<Entry>>>,
}

/// One session.
pub struct Entry {
    /// Its id.
    pub id: SessionId,
    /// Its number as `pg_backend_pid()` shows it.
    pub process_id: i32,
    /// With the number, the right to cancel.
    secret: u32,
    /// From where.
    pub client: SocketAddr,
    /// Since when.
    pub since: Timestamp,
    operation: AtomicU8,
    ending: AtomicU8,
    role: AtomicU32,
    wake: Notify,
}

/// How far a session is asked to end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Ending {
    /// Not at all.
    None = 0,
    /// When it is idle.
    Drain = 1,
    /// Now; what runs is cancelled.
    Stop = 2,
}

const IDLE: u8 = 0;
const RUNNING: u8 = 1;
const CANCELLED: u8 = 2;

impl Registry {
    /// An empty registry for so many sessions.
    pub fn new(connections_max: usize) -> Self {
        Self {
            connections_max,
            next_id: AtomicU64::new(1),
            next_process: AtomicI32::new(1),
            entries: Mutex::default(),
        }
    }

    /// Takes in a session; it leaves when the returned value is dropped. `53300` if there is no room.
    pub fn open(self: &Arc<Self>, client: SocketAddr, now: Timestamp) -> Result<Membership> {
        let mut secret = [0; 4];
        random(&mut secret)?;
        let mut entries = self.entries.lock();
        if entries.len() >= self.connections_max {
            return Err(Error::new(Code::TooManyConnections, "sorry, too many clients already"));
        }
        let process_id = loop {
            let next = self.next_process.fetch_add(1, Ordering::Relaxed) & i32::MAX;
            if next != 0 && !entries.contains_key(&next) {
                break next;
            }
        };
        let entry = Arc::new(Entry {
            id: SessionId(self.next_id.fetch_add(1, Ordering::Relaxed)),
            process_id,
            secret: u32::from_ne_bytes(secret),
            client,
            since: now,
            operation: AtomicU8::new(IDLE),
            ending: AtomicU8::new(Ending::None as u8),
            role: AtomicU32::new(0),
            wake: Notify::new(),
        });
        entries.insert(process_id, entry.clone());
        Ok(Membership { registry: self.clone(), entry })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.entries.lock().len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many a role has.
    pub fn of_role(&self, role: RoleId) -> usize {
        self.entries.lock().values().filter(|entry| entry.role.load(Ordering::Relaxed) == role.0).count()
    }

    /// Everyone who is here.
    pub fn list(&self) -> Vec<Arc<Entry>> {
        let mut list: Vec<_> = self.entries.lock().values().cloned().collect();
        list.sort_by_key(|entry| entry.process_id);
        list
    }

    /// A cancel request of the wire: a wrong key does nothing, and nobody is told.
    pub fn cancel_with_key(&self, process_id: i32, secret: u32) {
        let entry = self.entries.lock().get(&process_id).cloned();
        if let Some(entry) = entry.filter(|entry| entry.secret == secret) {
            entry.cancel();
        }
    }

    /// Asks every session to end.
    pub fn end_all(&self, how: Ending) {
        self.list().iter().for_each(|entry| entry.end_session(how));
    }

    /// `pg_cancel_backend`: whether there is such a session.
    pub fn cancel(&self, process_id: i32) -> bool {
        let entry = self.entries.lock().get(&process_id).cloned();
        entry.map(|entry| entry.cancel()).is_some()
    }
}

/// A session's place in the registry.
pub struct Membership {
    registry: Arc<Registry>,
    entry: Arc<Entry>,
}

impl Membership {
    /// The session.
    pub fn entry(&self) -> &Arc<Entry> {
        &self.entry
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.registry.entries.lock().remove(&self.entry.process_id);
    }
}

impl Entry {
    /// The key that a client needs to cancel.
    pub fn secret(&self) -> u32 {
        self.secret
    }

    /// Whose it is, once that is proven.
    pub fn set_role(&self, role: RoleId) {
        self.role.store(role.0, Ordering::Relaxed);
    }

    /// An operation begins: from here on it can be cancelled.
    pub fn begin(&self) {
        self.operation.store(RUNNING, Ordering::SeqCst);
    }

    /// It has ended.
    pub fn end(&self) {
        self.operation.store(IDLE, Ordering::SeqCst);
    }

    /// Whether the operation that runs was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.operation.load(Ordering::SeqCst) == CANCELLED
    }

    /// Cancels what runs now, if anything.
    pub fn cancel(&self) {
        let running = self.operation.compare_exchange(RUNNING, CANCELLED, Ordering::SeqCst, Ordering::SeqCst);
        if running.is_ok() {
            self.wake.notify_one();
        }
    }

    /// Waits until something was asked of it: look at [`Entry::is_cancelled`] and [`Entry::ending`].
    pub async fn woken(&self) {
        self.wake.notified().await;
    }

    /// How far it is asked to end.
    pub fn ending(&self) -> Ending {
        match self.ending.load(Ordering::SeqCst) {
            0 => Ending::None,
            1 => Ending::Drain,
            _ => Ending::Stop,
        }
    }

    /// Asks it to end.
    pub fn end_session(&self, how: Ending) {
        self.ending.fetch_max(how as u8, Ordering::SeqCst);
        self.wake.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registry(max: usize) -> Arc<Registry> {
        Arc::new(Registry::new(max))
    }

    fn client() -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 1))
    }

    #[test]
    fn one_too_many_is_refused_and_a_place_becomes_free() {
        let registry = registry(1);
        let first = registry.open(client(), Timestamp::MIN).expect("there is room");
        let refused = registry.open(client(), Timestamp::MIN).err().expect("there is none");
        assert_eq!(refused.code(), Code::TooManyConnections);
        drop(first);
        assert!(registry.is_empty());
        assert!(registry.open(client(), Timestamp::MIN).is_ok());
    }

    #[tokio::test]
    async fn a_cancel_request_stops_what_runs_and_nothing_later() {
        let registry = registry(2);
        let session = registry.open(client(), Timestamp::MIN).expect("there is room");
        let entry = session.entry();
        entry.cancel();
        entry.begin();
        assert!(!entry.is_cancelled(), "it came while nothing ran");
        registry.cancel_with_key(entry.process_id, !entry.secret());
        assert!(!entry.is_cancelled(), "the key was wrong");
        registry.cancel_with_key(entry.process_id, entry.secret());
        entry.woken().await;
        assert!(entry.is_cancelled());
        entry.end();
        entry.begin();
        assert!(!entry.is_cancelled());
    }
}
