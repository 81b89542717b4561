//! Who leads: after a crash, after a transfer, and not after a disturbance.

use super::*;

#[test]
fn another_voter_takes_over_from_a_leader_that_died_and_nothing_acknowledged_is_lost() {
    let mut cluster = Cluster::of(3);
    for round in 0..4 {
        cluster.put(20, 200);
        let old = cluster.leader();
        // In flight when it dies.
        let ids: Vec<i32> = (0..10).map(|_| cluster.ledger.next()).collect();
        let waiting: Vec<_> = ids
            .iter()
            .map(|id| {
                let answer = cluster.group(old).propose(rows::put(*id, 200), None);
                std::thread::spawn(move || wait(answer))
            })
            .collect();
        if round % 2 == 0 {
            cluster.kill(old)
        } else {
            cluster.kill_with_its_state(old)
        }
        for (id, answer) in ids.into_iter().zip(waiting) {
            // What was lost on its way into the group may have been taken as well.
            let answer = answer.join().unwrap();
            let answer = answer.map_err(|refused| match refused {
                Refused::Stopped => Refused::Unknown,
                other => other,
            });
            cluster.note(id, answer);
        }
        cluster.leader_but(old);
        cluster.put(20, 200);
        cluster.start(old);
        cluster.agree(&ALL);
    }
}

#[test]
fn leadership_goes_to_a_voter_that_has_everything_and_to_no_other() {
    let mut cluster = Cluster::of(3);
    cluster.put(5, 50);
    cluster.agree(&ALL);
    let old = cluster.leader();
    let others: Vec<NodeId> = ALL.into_iter().filter(|id| *id != old).collect();
    let (behind, able) = (others[0], others[1]);
    let refused = wait(cluster.group(behind).transfer(able));
    assert_eq!(refused, Err(TransferRefused::NotLeader));
    assert_eq!(wait(cluster.group(old).transfer(NodeId(9))), Err(TransferRefused::NotVoter(NodeId(9))));

    cluster.faults.lose(old, behind);
    cluster.put(5, 50);
    match wait(cluster.group(old).transfer(behind)) {
        Err(TransferRefused::Behind { node, lacks }) => assert!(node == behind && lacks >= 5),
        other => panic!("{other:?}"),
    }
    cluster.put(1, 50);
    cluster.faults.heal();
    cluster.agree(&ALL);

    wait_until("it is handed over", || {
        let leader = cluster.leader();
        leader == able || wait(cluster.group(leader).transfer(able)) == Ok(())
    });
    assert_eq!(cluster.leader(), able);
    cluster.put(5, 50);
    cluster.agree(&ALL);
}

#[test]
fn a_node_that_comes_back_disturbs_nobody() {
    let mut cluster = Cluster::of(3);
    cluster.put(5, 50);
    let leader = cluster.leader();
    let away = ALL.into_iter().find(|id| *id != leader).unwrap();
    cluster.faults.isolate(away, &ALL);
    wait_until("it has asked in vain for votes", || cluster.faults.vanished(away, leader) >= 5);
    cluster.put(5, 50);
    let (before, term) = (cluster.leader(), cluster.group(away).metrics().term);
    let led = cluster.group(before).metrics().term;
    assert_eq!(term, led, "asking beforehand raises no term");
    cluster.faults.heal();
    cluster.put(5, 50);
    cluster.agree(&ALL);
    assert_eq!((cluster.leader(), cluster.group(before).metrics().term), (before, led));
}

#[test]
fn asking_beforehand_changes_nothing_where_it_is_heard() {
    let mut cluster = Cluster::of(3);
    cluster.put(5, 50);
    cluster.agree(&ALL);
    let leader = cluster.leader();
    let others: Vec<NodeId> = ALL.into_iter().filter(|id| *id != leader).collect();
    let (asks, hears) = (others[0], others[1]);
    let led = cluster.group(hears).metrics().term;
    // Nobody hears the leader; one hears the other's questions, and its answers are lost.
    cluster.faults.isolate(leader, &ALL);
    cluster.faults.lose(hears, asks);
    wait_until("it misses its leader", || cluster.faults.vanished(hears, asks) >= 3);
    let asked = cluster.faults.passed(asks, hears);
    wait_until("it was asked", || cluster.faults.passed(asks, hears) >= asked + 3);
    assert_eq!(cluster.group(hears).metrics().term, led);
    assert_eq!(cluster.group(asks).metrics().term, led);
    cluster.faults.heal();
    cluster.put(5, 50);
    cluster.agree(&ALL);
}
