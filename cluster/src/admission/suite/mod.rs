//! Admission's test cases: the fast way (23 and the seam the owner uses), and the slow way (22, 24–29, 32–34).

mod fast;
mod slow;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    task::Wake,
    time::Duration,
};

use futures::{FutureExt, channel::oneshot, future::BoxFuture};
use model::{
    id::{Epoch, NodeId, Point, ShardId, ViewId},
    time::{Clock, Timestamp},
};
use parking_lot::Mutex;

use crate::{
    gate::{Failure, RangeMap},
    ring::Range,
    view::{Authority, Header, Held, Installed, Member, Provider, RingView, Source},
};

use super::*;

/// A clock that is set.
#[derive(Default)]
struct Set(AtomicU64);

impl Clock for Set {
    fn wall(&self) -> Timestamp {
        Timestamp::from_micros(0).unwrap()
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::SeqCst))
    }
}

/// Counts how often it is woken.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

const ME: Member = Member { node: NodeId(1), incarnation: 1 };
const OTHER: Member = Member { node: NodeId(2), incarnation: 1 };
const SHARD: ShardId = ShardId(1);

fn half() -> Range {
    Range::between(Point(u32::MAX), Point(u32::MAX / 2))
}

/// A view in which the shard is owned by this member; shard 2 has the other half of the ring.
fn view(id: u64, owner: Member) -> RingView {
    let predecessor = Some(ViewId(id - 1)).filter(|before| before.0 > 0);
    let header = Header { id: ViewId(id), predecessor, authority: Authority(1), watermark: 0 };
    let held = |owner| Held { owner: Some(owner), epoch: Epoch(id) };
    let shards = [(SHARD, half(), held(owner)), (ShardId(2), half().complement(), held(ME))];
    RingView::new(header, [ME, OTHER], shards).unwrap()
}

/// What the authority has, and who asked for it.
#[derive(Clone, Default)]
struct Authorities {
    questions: Arc<Mutex<Vec<oneshot::Sender<RingView>>>>,
}

impl Source<RingView> for Authorities {
    fn latest(&self, _: Option<ViewId>) -> BoxFuture<'static, Result<RingView, Failure>> {
        let (answer, answered) = oneshot::channel();
        self.questions.lock().push(answer);
        answered.map(|answer| Ok(answer.expect("the test answers"))).boxed()
    }
}

/// A shard on a node whose views a test installs.
struct Bed {
    admission: Arc<Admission>,
    gates: Arc<RangeMap>,
    provider: Provider<RingView>,
    installed: Arc<Installed<RingView>>,
    views: Seen<RingView>,
    authority: Authorities,
    clock: Arc<Set>,
    node: Arc<Lot>,
}

impl Bed {
    fn bounded(bounds: Bounds) -> Self {
        let authority = Authorities::default();
        let provider = Provider::new(authority.clone());
        let installed = Arc::new(Installed::new(provider.clone()));
        let (gates, clock, node) = (RangeMap::new(), Arc::new(Set::default()), Lot::new(Bounds::NODE));
        let parts = Parts {
            horizon: installed.horizon().clone(),
            gates: gates.clone(),
            parking: Parking::new(bounds, node.clone()),
            clock: clock.clone(),
        };
        let admission = Admission::closed(SHARD, half(), parts);
        let views = Seen::by(ME, installed.clone());
        Self { admission, gates, provider, installed, views, authority, clock, node }
    }

    /// Serving in epoch 1 under view 1.
    fn open() -> Self {
        let bed = Self::bounded(Bounds::UNIT);
        bed.install(view(1, ME));
        bed.admission.open(Epoch(1));
        bed
    }

    fn install(&self, view: RingView) {
        self.provider.publish(view).unwrap();
        let published = self.provider.find_current().unwrap();
        self.installed.install(&published, |_, _| Ok::<_, ()>(())).unwrap();
    }

    fn parked(&self) -> (usize, usize) {
        let parked = self.admission.parking.unit().parked();
        assert_eq!(parked, self.node.parked());
        parked
    }
}

fn request(view: u64) -> Request<Range> {
    let key = Range::point(Point(7));
    Request { view: ViewId(view), key, effect: Effect::Uses, bytes: 100 }
}
