//! Calls over real sockets, to groups that only remember what they saw.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use bytes::Bytes;
use model::{
    id::{NodeId, ShardId},
    port::BoxFuture,
};
use parking_lot::Mutex;
use tokio::{
    net::{TcpListener, TcpStream},
    runtime::{Builder, Runtime},
    sync::{Semaphore, mpsc},
};

use super::{
    call::CallError,
    parts::PIECE_BYTES_MAX,
    proto::{
        AppendReply, AppendRequest, ElectReply, ElectRequest, SnapshotHeader, SnapshotReply, TransferReply,
        TransferRequest, Vote,
    },
    *,
};

const FIRST: NodeId = NodeId(1);
const SECOND: NodeId = NodeId(2);
const GROUP: ShardId = ShardId(5);

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(60);

fn me(node: NodeId) -> Me {
    Me { cluster: 77, node, incarnation: 100 + u128::from(node.0) }
}

/// A group that answers when it is let, and remembers who called and what it was sent.
struct Seen {
    calls: Mutex<Vec<(NodeId, &'static str)>>,
    chunks: Arc<Mutex<Vec<Result<Bytes, String>>>>,
    let_go: Arc<Semaphore>,
}

impl Seen {
    fn new(answers: usize) -> Arc<Self> {
        let let_go = Arc::new(Semaphore::new(answers));
        Arc::new(Self { calls: Mutex::default(), chunks: Arc::default(), let_go })
    }

    fn answer<T: Send + 'static>(
        &self,
        from: NodeId,
        what: &'static str,
        reply: T,
    ) -> BoxFuture<'static, Result<T, Refusal>> {
        self.calls.lock().push((from, what));
        let let_go = self.let_go.clone();
        Box::pin(async move {
            let_go.acquire().await.map_err(|_| Refusal::Stopped)?.forget();
            Ok(reply)
        })
    }
}

impl Receive for Seen {
    fn append(&self, from: NodeId, _: AppendRequest) -> BoxFuture<'static, Result<AppendReply, Refusal>> {
        self.answer(from, "append", AppendReply::default())
    }

    fn elect(&self, from: NodeId, _: ElectRequest) -> BoxFuture<'static, Result<ElectReply, Refusal>> {
        self.answer(from, "elect", ElectReply::default())
    }

    fn transfer(
        &self,
        from: NodeId,
        _: TransferRequest,
    ) -> BoxFuture<'static, Result<TransferReply, Refusal>> {
        self.answer(from, "transfer", TransferReply::default())
    }

    fn snapshot(
        &self,
        from: NodeId,
        _: SnapshotHeader,
        chunks: Incoming,
    ) -> BoxFuture<'static, Result<SnapshotReply, Refusal>> {
        let answer = self.answer(from, "snapshot", SnapshotReply::default());
        let all = self.chunks.clone();
        Box::pin(async move {
            let answer = answer.await?;
            let taken = tokio::task::spawn_blocking(move || {
                for chunk in chunks {
                    all.lock().push(chunk.map_err(|error| error.to_string()));
                }
            });
            taken.await.map_err(|_| Refusal::Stopped)?;
            Ok(answer)
        })
    }
}

/// A node that is called, and one that calls it.
struct Bed {
    runtime: Runtime,
    desk: Desk,
    /// What the caller knows.
    known: Known,
    /// What the called one knows.
    knows: Known,
    peers: Arc<Peers>,
    connections: Arc<AtomicUsize>,
}

impl Bed {
    fn new(group: Arc<Seen>) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let (known, knows) = (Known::default(), Known::default());
        let desk = Desk::new(me(SECOND), knows.clone());
        desk.open(GROUP, group);
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let served = listener.local_addr().unwrap();
        runtime.spawn(desk.clone().serve(listener, std::future::pending()));
        // In between, somebody counts connections.
        let door = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = door.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let (count, here) = (connections.clone(), runtime.handle().clone());
        runtime.spawn(async move {
            while let Ok((mut near, _)) = door.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                here.spawn(async move {
                    let mut far = TcpStream::connect(served).await.unwrap();
                    let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
                });
            }
        });
        known.tell(SECOND, Peer { address, incarnation: me(SECOND).incarnation });
        knows.tell(FIRST, Peer { address, incarnation: me(FIRST).incarnation });
        let peers = Arc::new(Peers::new(me(FIRST), known.clone(), runtime.handle().clone()));
        Self { runtime, desk, known, knows, peers, connections }
    }

    fn append_as(&self, me: Me, to: (NodeId, ShardId)) -> Result<AppendReply, CallError> {
        let peers = Peers::new(me, self.known.clone(), self.runtime.handle().clone());
        self.runtime.block_on(peers.append(to, append(), LONG))
    }
}

fn vote() -> Option<Vote> {
    Some(Vote { term: 1, node: FIRST.0.into(), committed: true })
}

fn append() -> AppendRequest {
    AppendRequest { vote: vote(), ..AppendRequest::default() }
}

fn header() -> SnapshotHeader {
    SnapshotHeader { vote: vote(), ..SnapshotHeader::default() }
}

#[test]
fn only_messages_of_this_cluster_from_known_lives_to_this_life_reach_a_group() {
    let group = Seen::new(1);
    let bed = Bed::new(group.clone());
    let to = (SECOND, GROUP);
    let refused = |me, to| match bed.append_as(me, to) {
        Err(CallError::Refused(refusal)) => refusal,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(Me { cluster: 78, ..me(FIRST) }, to), Refusal::Cluster);
    assert_eq!(refused(Me { incarnation: 9, ..me(FIRST) }, to), Refusal::Sender);
    assert_eq!(refused(Me { node: NodeId(3), ..me(FIRST) }, to), Refusal::Sender);
    assert_eq!(refused(me(SECOND), to), Refusal::Sender, "two nodes with one id");
    assert_eq!(refused(me(FIRST), (SECOND, ShardId(6))), Refusal::Group);
    assert_eq!(bed.append_as(me(FIRST), (NodeId(4), GROUP)), Err(CallError::Unknown(NodeId(4))));

    let second = bed.known.find(SECOND).unwrap();
    bed.known.tell(NodeId(3), second);
    assert_eq!(refused(me(FIRST), (NodeId(3), GROUP)), Refusal::Receiver { node: SECOND });
    bed.known.tell(SECOND, Peer { incarnation: 1, ..second });
    assert_eq!(refused(me(FIRST), to), Refusal::Receiver { node: SECOND }, "an earlier life");
    bed.known.tell(SECOND, second);

    bed.knows.forget(FIRST);
    assert_eq!(refused(me(FIRST), to), Refusal::Sender);
    assert_eq!(*group.calls.lock(), []);
    bed.knows.tell(FIRST, Peer { incarnation: me(FIRST).incarnation, ..second });
    assert_eq!(bed.append_as(me(FIRST), to), Ok(AppendReply::default()));
    assert_eq!(*group.calls.lock(), [(FIRST, "append")]);
    bed.desk.close(GROUP);
    assert_eq!(refused(me(FIRST), to), Refusal::Group);
}

#[test]
fn a_vote_of_somebody_else_is_malformed() {
    let group = Seen::new(9);
    let bed = Bed::new(group.clone());
    let other = Some(Vote { term: 1, node: 3, committed: true });
    bed.runtime.block_on(async {
        let to = (SECOND, GROUP);
        let malformed =
            |error| assert!(matches!(error, CallError::Refused(Refusal::Malformed(_))), "{error}");
        let request = AppendRequest { vote: other, ..AppendRequest::default() };
        malformed(bed.peers.append(to, request, LONG).await.unwrap_err());
        let request = ElectRequest { vote: other, ..ElectRequest::default() };
        malformed(bed.peers.elect(to, request, LONG).await.unwrap_err());
        let request = TransferRequest { leader: other, ..TransferRequest::default() };
        malformed(bed.peers.transfer(to, request, LONG).await.unwrap_err());
        let (_sender, parts) = mpsc::channel(1);
        let header = SnapshotHeader { vote: None, ..SnapshotHeader::default() };
        malformed(bed.peers.snapshot(to, header, parts, LONG).await.unwrap_err());
    });
    assert_eq!(*group.calls.lock(), []);
}

#[test]
fn a_group_that_hangs_costs_its_caller_a_deadline_and_the_others_nothing() {
    let (hangs, answers) = (Seen::new(0), Seen::new(usize::MAX >> 4));
    let bed = Bed::new(hangs.clone());
    bed.desk.open(ShardId(6), answers.clone());
    let (sender, parts) = mpsc::channel(1);
    let peers = bed.peers.clone();
    // A snapshot that nobody takes, with more than its stream has room for; and calls that are never answered.
    let stuck =
        bed.runtime.spawn(async move { peers.snapshot((SECOND, GROUP), header(), parts, LONG).await });
    let chunk = Bytes::from(vec![7; PIECE_BYTES_MAX]);
    let filled = bed.runtime.spawn(async move {
        let mut pieces = Pieces::default();
        for _ in 0..64 {
            for part in pieces.cut(chunk.clone()) {
                if sender.send(part).await.is_err() {
                    return;
                }
            }
        }
    });
    let waiting: Vec<_> = (0..100)
        .map(|_| {
            let peers = bed.peers.clone();
            bed.runtime.spawn(async move { peers.append((SECOND, GROUP), append(), LONG).await })
        })
        .collect();
    bed.runtime.block_on(async {
        let to = (SECOND, GROUP);
        let short = Duration::from_millis(20);
        assert_eq!(bed.peers.append(to, append(), short).await, Err(CallError::Deadline(short)));
        for _ in 0..200 {
            bed.peers.append((SECOND, ShardId(6)), append(), LONG).await.unwrap();
        }
    });
    assert_eq!(answers.calls.lock().len(), 200);
    assert!(!stuck.is_finished() && !filled.is_finished() && waiting.iter().all(|call| !call.is_finished()));
    assert_eq!(bed.connections.load(Ordering::Relaxed), 1, "all groups share one connection");
}

#[test]
fn a_snapshot_arrives_in_order_and_one_that_breaks_off_is_known_to_be_cut_short() {
    let group = Seen::new(9);
    let bed = Bed::new(group.clone());
    let to = (SECOND, GROUP);
    let chunks = [Bytes::from_static(b"first"), Bytes::from(vec![3; 3 * PIECE_BYTES_MAX + 1])];
    bed.runtime.block_on(async {
        for is_whole in [true, false] {
            let (sender, parts) = mpsc::channel(1);
            let sent = chunks.clone();
            bed.runtime.spawn(async move {
                let mut pieces = Pieces::default();
                for part in sent.into_iter().flat_map(|chunk| pieces.cut(chunk)).collect::<Vec<_>>() {
                    sender.send(part).await.unwrap();
                }
                if is_whole {
                    sender.send(pieces.end()).await.unwrap();
                }
            });
            let sent = bed.peers.snapshot(to, header(), parts, LONG).await;
            let seen = std::mem::take(&mut *group.chunks.lock());
            assert_eq!(seen[..2], chunks.clone().map(Ok));
            if is_whole {
                assert_eq!((sent, seen.len()), (Ok(SnapshotReply::default()), 2));
            } else {
                assert!(seen.len() == 3 && seen[2].is_err(), "{seen:?}");
            }
        }
    });
}

#[test]
fn snapshots_received_at_once_are_bounded() {
    let group = Seen::new(0);
    let bed = Bed::new(group.clone());
    let to = (SECOND, GROUP);
    let mut senders = Vec::new();
    for _ in 0..SNAPSHOTS_MAX {
        let (sender, parts) = mpsc::channel(1);
        senders.push(sender);
        let peers = bed.peers.clone();
        bed.runtime.spawn(async move { peers.snapshot(to, header(), parts, LONG).await });
    }
    bed.runtime.block_on(async {
        while group.calls.lock().len() < SNAPSHOTS_MAX {
            tokio::task::yield_now().await;
        }
        let (_sender, parts) = mpsc::channel(1);
        let refused = bed.peers.snapshot(to, header(), parts, LONG).await;
        assert_eq!(refused, Err(CallError::Refused(Refusal::Busy)));
    });
}
