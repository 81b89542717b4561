//! Random commands against a model that is plain maps; replicas in different groups; replay after a crash.

use std::collections::BTreeMap;

use bytes::Bytes;
use model::{
    command::{Command, Condition, Effect, Outcome, Receipt, Write},
    id::{PartitionId, Revision},
    schema::IndexState,
};
use proptest::prelude::*;

use super::{
    fixture::*,
    indexes::{NEW, announce},
};
use crate::{
    codec::entry::{Backfill, Body, Entry as LogEntry, FeedRetention},
    engine::Engine,
    keyspace::due,
    shard::{Backfilled, EntryOutcome, Points, Shard},
};

#[derive(Clone, Debug)]
enum Step {
    Insert(i32, u8, i32),
    Put(i32, u8, i32),
    Delete(i32),
    Truncate,
}

#[derive(Clone, Debug)]
struct Plan {
    partition: u8,
    steps: Vec<Step>,
    /// 0: none; else a slot's number, so that some come twice.
    slot: u64,
    condition: Option<(i32, bool)>,
    seconds: u64,
}

fn step() -> impl Strategy<Value = Step> {
    let id = 0..12i32;
    prop_oneof![
        4 => (id.clone(), 0..10u8, 0..20i32).prop_map(|(id, name, score)| Step::Insert(id, name, score)),
        3 => (id.clone(), 0..10u8, 0..20i32).prop_map(|(id, name, score)| Step::Put(id, name, score)),
        3 => id.prop_map(Step::Delete),
        1 => Just(Step::Truncate),
    ]
}

fn plan() -> impl Strategy<Value = Plan> {
    let steps = prop::collection::vec(step(), 0..12);
    let condition = prop::option::of((0..12i32, any::<bool>()));
    (0..3u8, steps, 0..4u64, condition, 0..50u64).prop_map(|(partition, steps, slot, condition, seconds)| {
        Plan { partition, steps, slot, condition, seconds }
    })
}

fn place(partition: u8) -> PartitionId {
    partition_of(["acme", "beta", "gamma"][usize::from(partition)])
}

fn command_of(plan: &Plan, number: u64) -> Command {
    let writes = plan.steps.iter().map(|step| match step {
        Step::Insert(id, name, score) => insert(*id, &format!("n{name}"), *score),
        Step::Put(id, name, score) => put(*id, &format!("n{name}"), *score),
        Step::Delete(id) => delete(*id),
        Step::Truncate => Write::Truncate { table: TABLE },
    });
    let mut command = command(writes.collect());
    command.partition = place(plan.partition);
    if plan.slot > 0 {
        command.identity = slot(number / 3 + plan.slot);
    }
    command.conditions.extend(plan.condition.map(|(id, exists)| match exists {
        true => Condition::RowExists { table: TABLE, key: key(id) },
        false => Condition::RowAbsent { table: TABLE, key: key(id) },
    }));
    command
}

type Rows = BTreeMap<i32, (u8, i32)>;

/// What a command does to plain maps: the rows after it and the effects, or none if it is rejected.
fn expected(rows: &Rows, plan: &Plan) -> Option<(Rows, Vec<u64>)> {
    if let Some((id, exists)) = plan.condition
        && rows.contains_key(&id) != exists
    {
        return None;
    }
    let mut after = rows.clone();
    let mut waiting: Rows = Rows::new();
    let mut effects = Vec::new();
    for step in &plan.steps {
        match step {
            Step::Insert(id, ..) | Step::Put(id, ..) if waiting.contains_key(id) => return None,
            Step::Insert(id, name, score) if after.contains_key(id) => {
                waiting.insert(*id, (*name, *score));
                effects.push(1);
            }
            Step::Insert(id, name, score) | Step::Put(id, name, score) => {
                after.insert(*id, (*name, *score));
                effects.push(1);
            }
            Step::Delete(id) => {
                effects.push(u64::from(after.remove(id).is_some()));
                after.extend(waiting.remove_entry(id));
            }
            Step::Truncate => {
                effects.push(after.len() as u64);
                after.clear();
                waiting.clear();
            }
        }
    }
    let mut names: Vec<u8> = after.values().map(|(name, _)| *name).collect();
    names.sort_unstable();
    let unique = names.windows(2).all(|pair| pair[0] != pair[1]);
    (waiting.is_empty() && unique).then_some((after, effects))
}

fn rows_of(shard: &Shard, partition: &PartitionId) -> String {
    let scan = model::read::Scan {
        partition: partition.clone(),
        table: TABLE,
        index: None,
        from: Bytes::new(),
        to: None,
        reverse: false,
        rows_max: 1_000,
        bytes_max: 1 << 20,
        at: model::read::At::Latest,
    };
    let page = shard.snapshot().scan(&scan).expect("read");
    page.rows.iter().map(|stored| show_row(&stored.row)).collect::<Vec<_>>().join(" ")
}

fn show_model(rows: &Rows) -> String {
    let shown: Vec<String> = rows.iter().map(|(id, (name, score))| format!("{id}:n{name}:{score}")).collect();
    shown.join(" ")
}

fn entries_of(plans: &[Plan]) -> Vec<LogEntry> {
    plans
        .iter()
        .zip(0..)
        .map(|(plan, number)| entry(Body::Command(command_of(plan, number)), plan.seconds))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn commands_do_what_they_do_to_plain_maps(plans in prop::collection::vec(plan(), 1..25)) {
        let shard = shard();
        let mut model: BTreeMap<u8, Rows> = BTreeMap::new();
        let mut revision = 0;
        for plan in plans {
            let plan = Plan { slot: 0, ..plan };
            let outcome = run_at(&shard, plan.seconds, command_of(&plan, 0));
            let rows = model.entry(plan.partition).or_default();
            match expected(rows, &plan) {
                Some((after, effects)) => {
                    revision += 1;
                    let effects = effects.into_iter().map(Effect::Rows).collect();
                    let receipt = Receipt { revision: Revision(revision), effects };
                    prop_assert_eq!(outcome, Outcome::Applied(receipt), "{:?}", plan);
                    *rows = after;
                }
                None => prop_assert!(matches!(outcome, Outcome::Rejected(_)), "{:?}: {:?}", plan, outcome),
            }
            prop_assert_eq!(rows_of(&shard, &place(plan.partition)), show_model(rows));
        }
        for (partition, rows) in &model {
            let count = shard.snapshot().count(&place(*partition), TABLE).expect("read");
            prop_assert_eq!(count, rows.len() as u64);
        }
        let report = shard.check().expect("read");
        prop_assert_eq!(report.faults, Vec::<String>::new());
    }

    #[test]
    fn replicas_agree_however_their_groups_are_cut(
        plans in prop::collection::vec(plan(), 1..30),
        cuts in prop::collection::vec(1..6usize, 1..30),
    ) {
        let entries = entries_of(&plans);
        let (one, other) = (shard(), shard());
        let outcomes: Vec<EntryOutcome> = entries.iter().map(|entry| apply(&one, entry)).collect();
        let mut rest = entries.as_slice();
        let mut grouped = Vec::new();
        for cut in cuts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (group, after) = rest.split_at((*cut).min(rest.len()));
            grouped.extend(apply_all(&other, group));
            rest = after;
        }
        prop_assert_eq!(grouped, outcomes);
        prop_assert_eq!(one.hash(Points::ALL).expect("read"), other.hash(Points::ALL).expect("read"));
        // The collector is each node's own business.
        while one.collect().expect("collect") > 0 {}
        prop_assert_eq!(one.hash(Points::ALL).expect("read"), other.hash(Points::ALL).expect("read"));
        let due = one.snapshot().due(due::FEED, 0, u64::MAX, 100).expect("read");
        let trim = entry(Body::Expire { due, feed: FeedRetention { micros: 0, records_max: 2 } }, 10_000);
        prop_assert_eq!(apply(&one, &trim), apply(&other, &trim));
        prop_assert_eq!(one.hash(Points::ALL).expect("read"), other.hash(Points::ALL).expect("read"));
    }

    #[test]
    fn a_state_that_fell_back_is_replayed_to_the_same(
        plans in prop::collection::vec(plan(), 2..20),
        at in any::<prop::sample::Index>(),
    ) {
        let entries = entries_of(&plans);
        let cut = at.index(entries.len());
        let (early, late) = entries.split_at(cut);
        let (from, to) = (Engine::in_memory(), Engine::in_memory());
        let whole = shard_in(&from, 0);
        for entry in early {
            apply(&whole, entry);
        }
        // What a crash leaves: the state as it was synced last.
        let chunks: Vec<_> = whole.image(Points::ALL).expect("an image").collect();
        let outcomes: Vec<EntryOutcome> = late.iter().map(|entry| apply(&whole, entry)).collect();
        let install = crate::shard::Install { source: SHARD, target: SHARD, generation: 0 };
        let again = install.run(&to, chunks.into_iter()).expect("a whole image");
        let replayed: Vec<EntryOutcome> = late.iter().map(|entry| apply(&again, entry)).collect();
        prop_assert_eq!(replayed, outcomes);
        prop_assert_eq!(again.hash(Points::ALL).expect("read"), whole.hash(Points::ALL).expect("read"));
    }

    #[test]
    fn an_index_built_while_rows_change_is_as_if_it_had_always_been_there(
        before in prop::collection::vec(plan(), 1..10),
        during in prop::collection::vec(plan(), 1..20),
        unique in any::<bool>(),
        limit in 1..4u32,
    ) {
        let shard = shard();
        let mut commands = before.iter().chain(&during).zip(0..).map(|(plan, number)| {
            command_of(&Plan { partition: 0, slot: 0, ..plan.clone() }, number)
        });
        for command in commands.by_ref().take(before.len()) {
            run(&shard, command);
        }
        announce(&shard, 2, unique, 3, IndexState::Building);
        let mut from = Bytes::new();
        let built = loop {
            let backfill = Backfill { partition: place(0), table: TABLE, index: NEW, from, limit };
            match apply(&shard, &entry(Body::Backfill(backfill), 1)) {
                EntryOutcome::Backfilled(Backfilled::Next(next)) => from = next,
                EntryOutcome::Backfilled(Backfilled::End) => break true,
                EntryOutcome::Backfilled(Backfilled::Duplicate(_)) if unique => break false,
                other => panic!("a page is built: {other:?}"),
            }
            commands.next().map(|command| run(&shard, command));
        };
        announce(&shard, 3, unique, 3, if built { IndexState::Ready } else { IndexState::Invalid });
        for command in commands {
            run(&shard, command);
        }
        let report = shard.check().expect("read");
        prop_assert_eq!(report.faults, Vec::<String>::new());
    }
}
