//! The view that a consumer works under: the one that requests are judged by.
//!
//! Invariants:
//! - It only moves forward, and only to views that the provider has published.
//! - What a new view demands is registered before the view is seen, by the same call and without a pause: whoever sees the
//!   view finds its gates.
//! - The number is one load. Whoever waits for one subscribes before it compares.
//!
//! Not here: which gates those are (`handoff`, `assignment`).

use std::{fmt, sync::Arc};

use model::id::ViewId;
use tokio::sync::watch;

use crate::sync::{AtomicU64, Mutex, Ordering, order};

use super::{
    assignment::Versioned,
    provider::{Lost, Provider, Published},
};

/// The consumer's view.
pub struct Installed<V> {
    horizon: Arc<Horizon>,
    provider: Provider<V>,
    /// One installation at a time.
    installing: Mutex<()>,
    shown: watch::Sender<Option<Published<V>>>,
}

/// The number of the installed view; 0 before there is one.
#[derive(Debug, Default)]
pub struct Horizon(AtomicU64);

/// Why a view was not installed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotInstalled<E> {
    /// This provider has not published it.
    #[error("view {0} was not published here")]
    NotPublished(ViewId),
    /// One that is as new is installed.
    #[error("view {current} is already installed")]
    Old {
        /// That one.
        current: ViewId,
    },
    /// What it demands could not be registered; the view stays unseen.
    #[error(transparent)]
    Refused(E),
}

impl Horizon {
    /// A number that nobody installs but the caller: for a node whose only view never changes.
    pub(crate) fn fixed(view: ViewId) -> Arc<Self> {
        Arc::new(Self(AtomicU64::new(view.0)))
    }

    /// The number.
    pub fn id(&self) -> ViewId {
        ViewId(self.0.load(Ordering::SeqCst))
    }

    /// Makes a view seen. All its gates are registered.
    pub(crate) fn raise(&self, view: ViewId) {
        order();
        self.0.store(view.0, Ordering::SeqCst);
        order();
    }
}

impl<V: Versioned + PartialEq> Installed<V> {
    /// Nothing installed yet of what this provider publishes.
    pub fn new(provider: Provider<V>) -> Self {
        Self {
            horizon: Arc::default(),
            provider,
            installing: Mutex::new(()),
            shown: watch::Sender::new(None),
        }
    }

    /// The number, to be loaded by whoever admits.
    pub fn horizon(&self) -> &Arc<Horizon> {
        &self.horizon
    }

    /// The installed view's number; 0 before there is one.
    pub fn id(&self) -> ViewId {
        self.horizon.id()
    }

    /// The installed view.
    pub fn find_view(&self) -> Option<Published<V>> {
        self.shown.borrow().clone()
    }

    /// Where its views come from.
    pub fn provider(&self) -> &Provider<V> {
        &self.provider
    }

    /// Installs a published view. `register` is given the view before and this one; it registers all gates, and starts
    /// nothing. If it refuses, the view stays unseen.
    pub fn install<T, E>(
        &self,
        view: &Published<V>,
        register: impl FnOnce(Option<&V>, &V) -> Result<T, E>,
    ) -> Result<T, NotInstalled<E>> {
        let installing = self.installing.lock();
        let before = self.find_view();
        if !self.provider.has_published(view) {
            return Err(NotInstalled::NotPublished(view.id()));
        }
        match &before {
            Some(old) if old.header().authority == view.header().authority && old.id() >= view.id() => {
                return Err(NotInstalled::Old { current: old.id() });
            }
            Some(_) | None => {}
        }
        let registered = register(before.as_deref(), view).map_err(NotInstalled::Refused)?;
        self.horizon.raise(view.id());
        self.shown.send_replace(Some(view.clone()));
        drop(installing);
        Ok(registered)
    }

    /// Waits until the installed view is not below `min`, asking the authority for it.
    pub async fn at_least(&self, min: ViewId) -> Result<(), Lost> {
        let mut shown = self.shown.subscribe();
        if self.id() >= min {
            return Ok(());
        }
        let authority = self.provider.at_least(min).await?.header().authority;
        loop {
            match &*shown.borrow_and_update() {
                Some(view) if view.header().authority != authority => return Err(Lost::AuthorityChanged),
                Some(view) if view.id() >= min => return Ok(()),
                Some(_) | None => {}
            }
            shown.changed().await.map_err(|_| Lost::Closed)?;
        }
    }

    /// Waits for the next view to be installed after the one seen now.
    pub fn subscribe(&self) -> watch::Receiver<Option<Published<V>>> {
        self.shown.subscribe()
    }
}

impl<V> fmt::Debug for Installed<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Installed").field(&self.horizon).finish()
    }
}
