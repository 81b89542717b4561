//! A node behind a log that is gone gets the whole state: all of it or none.

use super::*;

/// Lets go of the log of a node up to what it has applied.
fn purge(cluster: &Cluster, id: NodeId) {
    let upto = cluster.group(id).metrics().applied.unwrap();
    wait(cluster.group(id).purge(upto)).unwrap();
    wait_until("the log is gone", || cluster.group(id).metrics().purged == Some(upto));
}

#[test]
fn a_follower_behind_a_purged_log_catches_up_by_a_snapshot_that_breaks_off_twice() {
    let mut cluster = Cluster::of(3);
    cluster.put(5, 50);
    cluster.agree(&ALL);
    let leader = cluster.leader();
    let behind = ALL.into_iter().find(|id| *id != leader).unwrap();
    cluster.kill(behind);
    // Several chunks, and one row that is larger than a piece.
    cluster.put(30, 50_000);
    cluster.put(1, 3 << 20);
    for id in ALL.into_iter().filter(|id| *id != behind) {
        cluster.put(1, 10);
        wait_until("it has applied something", || cluster.group(id).metrics().applied.is_some());
        purge(&cluster, id);
    }
    cluster.faults.break_snapshot(behind, 0);
    cluster.faults.break_snapshot(behind, 3);
    cluster.start(behind);
    cluster.agree(&ALL);
    assert_eq!(cluster.faults.unbroken(behind), 0, "both broke off");
    let shard = cluster.shard(behind);
    assert!(shard.generation() > 0, "it has a copy");
    let node = &cluster.nodes[behind.0 as usize - 1];
    let name = storage::keyspace::keyspace_name(SHARD, shard.generation());
    wait_until("nothing else is left", || node.engine.keyspace_names() == [name.clone()]);

    // What was installed is what is opened again, and goes on.
    let generation = shard.generation();
    drop(shard);
    cluster.kill(behind);
    cluster.put(3, 50);
    cluster.start(behind);
    cluster.agree(&ALL);
    assert_eq!(cluster.shard(behind).generation(), generation);
}

#[test]
fn a_learner_behind_a_purged_log_gets_a_snapshot_of_a_leader_that_started_anew() {
    let mut cluster = Cluster::alone(2);
    cluster.put(20, 5_000);
    purge(&cluster, ONE);
    cluster.kill(ONE);
    cluster.start(ONE);
    cluster.change(Change::AddLearner(TWO));
    cluster.change(Change::Promote(TWO));
    cluster.put(3, 50);
    cluster.agree(&[ONE, TWO]);
    assert_eq!(cluster.shard(TWO).generation(), 1);
}
