//! Who takes part: learners come, get votes, lose them and go, one change at a time.

use super::*;

#[test]
fn a_group_grows_from_one_voter_to_three_and_shrinks_again() {
    let mut cluster = Cluster::alone(3);
    cluster.put(5, 50);
    assert!(cluster.group(ONE).is_sole_voter_leader());
    assert!(cluster.live(ONE).runtime.driver().is_driving(), "alone, consensus waits for the disk itself");
    assert_eq!(cluster.faults.passed(ONE, TWO), 0, "and says nothing to anybody");

    let members = cluster.change(Change::AddLearner(TWO));
    assert_eq!((members.voters, members.learners), ([ONE].into(), [TWO].into()));
    assert!(cluster.group(ONE).is_sole_voter_leader(), "a learner has no say");
    let members = cluster.change(Change::Promote(TWO));
    assert_eq!((members.voters, members.learners), ([ONE, TWO].into(), [].into()));
    wait_until("it shares", || !cluster.group(ONE).is_sole_voter_leader());
    for id in [ONE, TWO] {
        wait_until("no election waits for a disk", || !cluster.live(id).runtime.driver().is_driving());
    }
    cluster.change(Change::AddLearner(THREE));
    cluster.change(Change::Promote(THREE));
    cluster.put(20, 50);
    cluster.agree(&ALL);

    let leader = cluster.leader();
    let last = ALL.into_iter().find(|id| *id != leader).unwrap();
    let other = ALL.into_iter().find(|id| *id != leader && *id != last).unwrap();
    let members = cluster.change(Change::Demote(other));
    assert_eq!((members.voters.len(), members.learners), (2, [other].into()));
    cluster.put(5, 50);
    cluster.agree(&ALL);
    let members = cluster.change(Change::Remove(other));
    assert!(members.learners.is_empty());
    let members = cluster.change(Change::Remove(last));
    assert_eq!((members.voters, members.learners), ([leader].into(), [].into()));
    cluster.put(5, 50);
    cluster.agree(&[leader]);
    wait_until("it is alone", || cluster.group(leader).is_sole_voter_leader());
    wait_until("it drives again", || cluster.live(leader).runtime.driver().is_driving());
    cluster.put(5, 50);
}

#[test]
fn impossible_changes_are_refused_and_change_nothing() {
    let mut cluster = Cluster::of(2);
    cluster.put(3, 50);
    let leader = cluster.leader();
    let follower = if leader == ONE { TWO } else { ONE };
    let before = cluster.group(leader).membership();
    let refused = |id, change| wait(cluster.group(id).change(change)).unwrap_err();
    assert_eq!(refused(follower, Change::AddLearner(THREE)), ChangeRefused::NotLeader);
    assert_eq!(refused(leader, Change::AddLearner(follower)), ChangeRefused::Already(follower));
    assert_eq!(refused(leader, Change::Promote(follower)), ChangeRefused::Already(follower));
    assert_eq!(refused(leader, Change::Promote(THREE)), ChangeRefused::NotMember(THREE));
    assert_eq!(refused(leader, Change::Demote(leader)), ChangeRefused::Leads(leader));
    assert_eq!(refused(leader, Change::Remove(leader)), ChangeRefused::Leads(leader));
    assert_eq!(refused(leader, Change::Remove(THREE)), ChangeRefused::NotMember(THREE));
    assert_eq!(wait(cluster.group(leader).change(Change::Settle)), Ok(before.clone()));
    assert_eq!(cluster.group(leader).membership(), before);
    cluster.put(3, 50);
    cluster.agree(&[ONE, TWO]);
}

#[test]
fn one_change_at_a_time_and_none_is_lost_with_whoever_waits_for_it() {
    let mut cluster = Cluster::of(3);
    cluster.put(3, 50);
    cluster.agree(&ALL);
    let leader = cluster.leader();
    let others: Vec<NodeId> = ALL.into_iter().filter(|id| *id != leader).collect();
    // Neither answers: the change waits for them.
    for other in &others {
        cluster.faults.hold(leader, *other);
    }
    drop(cluster.group(leader).change(Change::Demote(others[0])));
    let second = wait(cluster.group(leader).change(Change::Demote(others[1])));
    assert_eq!(second, Err(ChangeRefused::InProgress));
    cluster.faults.heal();
    // Nobody waited for it; it is made all the same, unless leadership went elsewhere before it was in the log of another.
    cluster.change(Change::Settle);
    let leader = cluster.leader();
    wait_until("no two configurations", || !cluster.group(leader).membership().is_joint);
    cluster.put(3, 50);
    cluster.agree(&ALL);
}

#[test]
fn whoever_asks_for_a_second_voter_is_no_longer_the_only_one() {
    let mut cluster = Cluster::alone(2);
    cluster.put(3, 50);
    cluster.change(Change::AddLearner(TWO));
    wait_until("it has all", || cluster.shard(TWO).applied_index() == cluster.shard(ONE).applied_index());
    let refused = wait(cluster.group(ONE).change(Change::Promote(THREE)));
    assert_eq!(refused, Err(ChangeRefused::NotMember(THREE)));
    assert!(cluster.group(ONE).is_sole_voter_leader(), "a change that was refused takes nothing away");
    cluster.faults.hold(ONE, TWO);
    let promoted = cluster.group(ONE).change(Change::Promote(TWO));
    assert!(!cluster.group(ONE).is_sole_voter_leader(), "at once, not when it is known");
    cluster.faults.heal();
    assert_eq!(wait(promoted).map(|members| members.voters), Ok([ONE, TWO].into()));
    assert!(!cluster.group(ONE).is_sole_voter_leader());
    cluster.put(3, 50);
    cluster.agree(&[ONE, TWO]);
}

#[test]
fn a_learner_that_lacks_too_much_gets_no_vote() {
    let mut cluster = Cluster::alone(2);
    cluster.faults.lose(ONE, TWO);
    cluster.change(Change::AddLearner(TWO));
    cluster.put(members::LAG_MAX as usize + 10, 10);
    match wait(cluster.group(ONE).change(Change::Promote(TWO))) {
        Err(ChangeRefused::Behind { node, lacks }) => assert!(node == TWO && lacks > members::LAG_MAX),
        other => panic!("{other:?}"),
    }
    cluster.faults.heal();
    cluster.change(Change::Promote(TWO));
    cluster.put(3, 50);
    cluster.agree(&[ONE, TWO]);
}
