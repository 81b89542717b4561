//! Entries reach all nodes, once and in order, whatever happens on the way; what no quorum has is never acknowledged.

use super::*;

#[test]
fn three_voters_replicate_and_agree() {
    let mut cluster = Cluster::of(3);
    cluster.put(50, 100);
    cluster.agree(&ALL);
    let leader = cluster.leader();
    assert!(!cluster.group(leader).is_sole_voter_leader());
    assert_eq!(cluster.group(leader).membership().voters, ALL.into());
    for id in ALL {
        wait_until("all know who leads", || cluster.group(id).leader() == Some(leader));
    }
}

#[test]
fn messages_that_come_twice_or_out_of_order_change_nothing() {
    let mut cluster = Cluster::of(3);
    for from in ALL {
        for to in ALL.into_iter().filter(|to| *to != from) {
            cluster.faults.double(from, to);
        }
    }
    cluster.put(30, 50);
    let leader = cluster.leader();
    for to in ALL.into_iter().filter(|to| *to != leader) {
        cluster.faults.reorder(leader, to);
    }
    cluster.put(30, 50);
    cluster.faults.heal();
    cluster.put(5, 50);
    cluster.agree(&ALL);
}

#[test]
fn a_follower_that_was_behind_catches_up_by_the_log() {
    let mut cluster = Cluster::of(3);
    let leader = cluster.leader();
    let behind = ALL.into_iter().find(|id| *id != leader).unwrap();
    let generation = cluster.shard(behind).generation();
    cluster.kill(behind);
    // More than one message takes.
    cluster.put(100, 60_000);
    cluster.start(behind);
    cluster.agree(&ALL);
    assert_eq!(cluster.shard(behind).generation(), generation, "without a copy");
}

#[test]
fn what_an_isolated_leader_takes_is_never_acknowledged() {
    let mut cluster = Cluster::of(3);
    cluster.put(5, 50);
    cluster.agree(&ALL);
    let old = cluster.leader();
    cluster.faults.isolate(old, &ALL);
    // Taken before the leader misses its quorum: they wait for one.
    let ids: Vec<i32> = (0..20).map(|_| cluster.ledger.next()).collect();
    let waiting: Vec<_> = ids
        .iter()
        .map(|id| {
            let answer = cluster.group(old).propose(rows::put(*id, 50), None);
            std::thread::spawn(move || wait(answer))
        })
        .collect();
    let new = cluster.leader_but(old);
    cluster.put(10, 50);
    assert!(cluster.group(new).metrics().term > cluster.group(old).metrics().term);
    // Without a quorum nothing more is taken.
    wait_until("it refuses", || {
        let id = cluster.ledger.next();
        let answer = cluster.group(old).propose(rows::put(id, 50), None);
        let answer = wait(async { tokio::time::timeout(Duration::from_millis(200), answer).await });
        let is_refused = matches!(answer, Ok(Err(Refused::NotLeader)));
        cluster.note(id, answer.unwrap_or(Err(Refused::Unknown)));
        is_refused
    });
    cluster.faults.heal();
    let mut unknown = 0;
    for (id, answer) in ids.into_iter().zip(waiting) {
        let answer = answer.join().unwrap();
        assert!(matches!(answer, Err(Refused::Unknown | Refused::NotLeader)), "{answer:?}");
        unknown += usize::from(matches!(answer, Err(Refused::Unknown)));
        cluster.note(id, answer);
    }
    assert!(unknown > 0, "some were in its log");
    cluster.agree(&ALL);
}

#[test]
fn nothing_is_applied_that_is_not_on_the_nodes_own_disk() {
    let mut cluster = Cluster::of(3);
    cluster.put(5, 50);
    cluster.agree(&ALL);
    let leader = cluster.leader();
    let slow = ALL.into_iter().find(|id| *id != leader).unwrap();
    cluster.node(slow).disk.hold_syncs();
    cluster.put(5, 50);
    cluster.node(slow).disk.wait_for_held_sync();
    let heard = cluster.faults.passed(leader, slow);
    wait_until("it has heard that they are committed", || cluster.faults.passed(leader, slow) >= heard + 5);
    let synced = cluster.live(slow).log.synced_index(storage::log::GroupId(SHARD.0)).unwrap();
    assert!(cluster.shard(slow).applied_index() <= synced);
    assert!(synced < cluster.shard(leader).applied_index());
    cluster.kill(slow);
    cluster.put(5, 50);
    cluster.start(slow);
    cluster.agree(&ALL);
}

#[test]
fn a_read_needs_a_quorum() {
    let mut cluster = Cluster::of(3);
    cluster.put(3, 50);
    cluster.agree(&ALL);
    let leader = cluster.leader();
    let read = wait(cluster.group(leader).read_index()).unwrap();
    assert!(read >= cluster.group(leader).metrics().applied.unwrap());
    let follower = ALL.into_iter().find(|id| *id != leader).unwrap();
    assert_eq!(wait(cluster.group(follower).read_index()), Err(Refused::NotLeader));
    cluster.faults.isolate(leader, &ALL);
    assert_eq!(wait(cluster.group(leader).read_index()), Err(Refused::NotLeader));
    let new = cluster.leader_but(leader);
    cluster.put(1, 50);
    assert!(wait(cluster.group(new).read_index()).unwrap() > read);
    assert_eq!(wait(cluster.group(leader).read_index()), Err(Refused::NotLeader));
}

#[test]
fn a_follower_that_stops_answering_holds_nobody_back() {
    let mut cluster = Cluster::of(3);
    let leader = cluster.leader();
    let hung = ALL.into_iter().find(|id| *id != leader).unwrap();
    cluster.faults.hold(leader, hung);
    cluster.put(20, 1_000);
    assert!(cluster.shard(hung).applied_index() < cluster.shard(leader).applied_index());
    cluster.faults.heal();
    cluster.agree(&ALL);
}

#[test]
fn another_cluster_and_another_life_of_a_node_are_not_heard() {
    let mut cluster = Cluster::of(3);
    cluster.put(3, 50);
    let leader = cluster.leader();
    let follower = ALL.into_iter().find(|id| *id != leader).unwrap();
    let live = cluster.live(leader);
    let connections = live.connections.as_ref().unwrap().handle().clone();
    let vote = crate::peer::proto::Vote { term: 999, node: leader.0.into(), committed: true };
    let stranger = |me: Me| {
        let known = cluster.nodes[leader.0 as usize - 1].known.clone();
        let peers = Peers::new(me, known, connections.clone());
        let request = crate::peer::proto::AppendRequest { vote: Some(vote), ..Default::default() };
        wait(async move { peers.append((follower, SHARD), request, GIVE_UP).await }).unwrap_err()
    };
    let me = *live.peers.me();
    use crate::peer::{CallError, Refusal};
    assert_eq!(stranger(Me { cluster: 43, ..me }), CallError::Refused(Refusal::Cluster));
    assert_eq!(stranger(Me { incarnation: 5, ..me }), CallError::Refused(Refusal::Sender));
    cluster.put(3, 50);
    cluster.agree(&ALL);
    assert!(cluster.group(follower).metrics().term < 999);
}
