//! A node's source of views: what its authority has published, as far as it has come here.
//!
//! Invariants:
//! - Numbers only move forward. An older view is dropped; another view of the same number is a conflict of authorities,
//!   which nobody may go on from.
//! - Only a provider makes a [`Published`] view, so that nobody installs one that was made up.
//! - Who waits for a view subscribes before it compares. One refresh is shared by all who want the same view; one that
//!   gives up ends neither the others' waits nor the refresh.
//! - A change of authority ends all waits for the old one's views.
//!
//! Not here: how the authority is asked ([`Source`]).

use std::{
    collections::HashMap,
    fmt,
    ops::Deref,
    sync::{Arc, Weak},
};

use futures::{
    FutureExt,
    future::{BoxFuture, Either, Shared, select},
};
use model::id::ViewId;
use tokio::sync::watch;

use crate::{gate::Failure, sync::Mutex};

use super::assignment::{Authority, Versioned};

/// How the authority is asked.
pub trait Source<V>: Send + Sync {
    /// A view at least as new as the authority's newest when it was asked, and not below `min`.
    fn latest(&self, min: Option<ViewId>) -> BoxFuture<'static, Result<V, Failure>>;
}

/// A view that a provider has published. Cheap to clone.
pub struct Published<V> {
    view: Arc<V>,
    by: Weak<()>,
}

/// What came of a view that was handed to a provider.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Publication {
    /// It is the current one now.
    Current,
    /// It was already there.
    Same,
    /// A newer one is there; this one was dropped.
    Older,
}

/// Two different views claim one number, or the view is another authority's: there are two histories, and none of them may
/// be gone on from by guessing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("view {id} of the authority does not go with what was published before")]
pub struct Conflict {
    /// Which.
    pub id: ViewId,
}

/// Why a wait for a view ended without one.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Lost {
    /// The provider was closed.
    #[error("views are no longer provided")]
    Closed,
    /// Another authority took over: the awaited number means nothing any more.
    #[error("the authority of the views has changed")]
    AuthorityChanged,
    /// The authority could not be asked.
    #[error("the authority was not reached: {0}")]
    Unreachable(Failure),
    /// The authority answered with an older view than it was asked for.
    #[error("the authority has only view {0}")]
    Behind(ViewId),
    /// The authority contradicts itself.
    #[error(transparent)]
    Conflict(#[from] Conflict),
}

type Refresh = Shared<BoxFuture<'static, Result<ViewId, Lost>>>;

/// The views of one service on one node. Cheap to clone.
pub struct Provider<V> {
    inner: Arc<Inner<V>>,
}

struct Inner<V> {
    shown: watch::Sender<Shown<V>>,
    source: Box<dyn Source<V>>,
    refreshes: Mutex<HashMap<Option<ViewId>, Refresh>>,
    mark: Arc<()>,
}

struct Shown<V> {
    view: Option<Published<V>>,
    closed: bool,
}

/// The views as they come: the current one first, then ever newer ones. Some may be left out.
pub struct Updates<V> {
    shown: watch::Receiver<Shown<V>>,
    last: Option<(Authority, ViewId)>,
}

impl<V: Versioned + PartialEq> Provider<V> {
    /// A provider without a view.
    pub fn new(source: impl Source<V> + 'static) -> Self {
        let inner = Inner {
            shown: watch::Sender::new(Shown { view: None, closed: false }),
            source: Box::new(source),
            refreshes: Mutex::default(),
            mark: Arc::new(()),
        };
        Self { inner: Arc::new(inner) }
    }

    /// The current view, if there is one yet. Never waits for the authority.
    pub fn find_current(&self) -> Option<Published<V>> {
        self.inner.shown.borrow().view.clone()
    }

    /// Takes a view of the authority.
    pub fn publish(&self, view: V) -> Result<Publication, Conflict> {
        self.inner.publish(view)
    }

    /// Takes the first view of another authority, whatever its number is. What waits for the old one's views ends.
    pub fn change_authority(&self, view: V) {
        let view = self.inner.published(view);
        self.inner.shown.send_modify(|shown| shown.view = Some(view));
        let old: Vec<_> = self.inner.refreshes.lock().drain().collect();
        drop(old);
    }

    /// Ends all updates and waits.
    pub fn close(&self) {
        self.inner.shown.send_modify(|shown| shown.closed = true);
    }

    /// The views from the current one on.
    pub fn updates(&self) -> Updates<V> {
        let mut shown = self.inner.shown.subscribe();
        shown.mark_changed();
        Updates { shown, last: None }
    }

    /// Asks the authority, and answers with the current view after.
    pub async fn refresh(&self) -> Result<Published<V>, Lost> {
        let asked = self.authority();
        self.inner.refresh(None).await?;
        let shown = self.inner.shown.borrow();
        match (&shown.view, shown.closed) {
            (_, true) => Err(Lost::Closed),
            (Some(view), _) if asked.is_none_or(|asked| asked == view.header().authority) => Ok(view.clone()),
            _ => Err(Lost::AuthorityChanged),
        }
    }

    /// Waits until the current view is not below `min`. Dropping it ends this wait only.
    pub async fn at_least(&self, min: ViewId) -> Result<Published<V>, Lost> {
        // Before the comparison: what comes between is then seen by the wait.
        let mut shown = self.inner.shown.subscribe();
        let mut asked = None;
        let mut refresh = None;
        loop {
            {
                let now = shown.borrow_and_update();
                if now.closed {
                    return Err(Lost::Closed);
                }
                if let Some(view) = &now.view {
                    let authority = view.header().authority;
                    if *asked.get_or_insert(authority) != authority {
                        return Err(Lost::AuthorityChanged);
                    }
                    if view.id() >= min {
                        return Ok(view.clone());
                    }
                }
            }
            let refresh = refresh.get_or_insert_with(|| self.inner.refresh(Some(min)));
            let changed = shown.changed();
            futures::pin_mut!(changed);
            match select(changed, refresh).await {
                // The sender is ours; it goes with the last provider.
                Either::Left((Err(_), _)) => return Err(Lost::Closed),
                Either::Left((Ok(()), _)) => {}
                Either::Right((answer, _)) => {
                    let got = answer?;
                    let current = self.find_current();
                    // Looked at once more above, unless the authority has not got it.
                    if current.is_none_or(|view| view.id() < min) {
                        return Err(Lost::Behind(got));
                    }
                }
            }
        }
    }

    /// Whether this provider has published the view: made it, under the authority of now, and it is not newer than the
    /// current one.
    pub(super) fn has_published(&self, view: &Published<V>) -> bool {
        let current = self.find_current();
        std::ptr::eq(view.by.as_ptr(), Arc::as_ptr(&self.inner.mark))
            && current.is_some_and(|current| {
                current.header().authority == view.header().authority && view.id() <= current.id()
            })
    }

    fn authority(&self) -> Option<Authority> {
        self.find_current().map(|view| view.header().authority)
    }
}

impl<V: Versioned + PartialEq> Inner<V> {
    fn published(&self, view: V) -> Published<V> {
        Published { view: Arc::new(view), by: Arc::downgrade(&self.mark) }
    }

    fn publish(&self, view: V) -> Result<Publication, Conflict> {
        let id = view.id();
        let view = self.published(view);
        let mut answer = Ok(Publication::Current);
        self.shown.send_if_modified(|shown| {
            answer = match &shown.view {
                Some(current) if current.header().authority != view.header().authority => {
                    Err(Conflict { id })
                }
                Some(current) if current.id() > id => Ok(Publication::Older),
                Some(current) if current.id() == id && *current.view == *view.view => Ok(Publication::Same),
                Some(current) if current.id() == id => Err(Conflict { id }),
                Some(_) | None => {
                    shown.view = Some(view.clone());
                    Ok(Publication::Current)
                }
            };
            answer == Ok(Publication::Current)
        });
        if answer == Ok(Publication::Current) {
            // What was asked for is here: who comes later asks anew. Dropped outside the lock.
            let done: Vec<_> =
                self.refreshes.lock().extract_if(|min, _| min.is_some_and(|min| min <= id)).collect();
            drop(done);
        }
        answer
    }

    /// The one refresh for this minimum. It goes on as long as somebody who wants it is there.
    fn refresh(self: &Arc<Self>, min: Option<ViewId>) -> Refresh {
        let mut refreshes = self.refreshes.lock();
        let begun = refreshes.entry(min).or_insert_with(|| {
            let (asked, weak) = (self.source.latest(min), Arc::downgrade(self));
            let refresh = async move {
                let answer = asked.await;
                let inner = weak.upgrade().ok_or(Lost::Closed)?;
                // First: who comes after the answer does not get this one.
                let this = inner.refreshes.lock().remove(&min);
                drop(this);
                let view = answer.map_err(Lost::Unreachable)?;
                let id = view.id();
                inner.publish(view)?;
                Ok(id)
            };
            refresh.boxed().shared()
        });
        begun.clone()
    }
}

impl<V: Versioned> Updates<V> {
    /// The next view; none when the provider is closed or gone.
    pub async fn next(&mut self) -> Option<Published<V>> {
        loop {
            self.shown.changed().await.ok()?;
            let shown = self.shown.borrow_and_update();
            if shown.closed {
                return None;
            }
            let Some(view) = &shown.view else { continue };
            let Header { authority, id } = Header::of(&**view);
            if self.last.is_none_or(|(before, last)| before != authority || last < id) {
                self.last = Some((authority, id));
                return Some(view.clone());
            }
        }
    }
}

/// The part of a view's header that updates go by.
struct Header {
    authority: Authority,
    id: ViewId,
}

impl Header {
    fn of(view: &impl Versioned) -> Self {
        Self { authority: view.header().authority, id: view.id() }
    }
}

impl<V> Clone for Provider<V> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone() }
    }
}

impl<V> Clone for Published<V> {
    fn clone(&self) -> Self {
        Self { view: self.view.clone(), by: self.by.clone() }
    }
}

impl<V> Deref for Published<V> {
    type Target = V;

    fn deref(&self) -> &V {
        &self.view
    }
}

impl<V: fmt::Debug> fmt::Debug for Published<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.view.fmt(f)
    }
}

impl<V> fmt::Debug for Provider<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Provider")
    }
}

impl<V> fmt::Debug for Updates<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Updates")
    }
}
