//! The engine on disk, the one in memory and a plain map are one and the same; torn journals are cut, and no more.

use std::{
    collections::BTreeMap,
    fs,
    io::{Seek as _, SeekFrom, Write as _},
    ops::Bound,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

use bytes::Bytes;
use proptest::prelude::*;

use super::{Batch, Engine, Keyspace, Options, Snapshot, cut_torn_journal};
use crate::{error::Error, recovery::open_engine};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// In which keyspace, the key, and a value or none to remove it.
type Write = (usize, Vec<u8>, Option<Vec<u8>>);

#[derive(Clone, Debug)]
enum Step {
    Commit(Vec<Write>),
    Snapshot,
    Forget,
    Flush(usize),
    Persist,
    Reopen,
    Replace(usize),
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop_oneof![Just(0u8), Just(1), Just(0xff)], 1..4)
}

fn step() -> impl Strategy<Value = Step> {
    let value = prop_oneof![
        4 => prop::collection::vec(any::<u8>(), 0..10),
        1 => Just(vec![7; 6_000]),
    ];
    let write = (0..2usize, key(), prop::option::weighted(0.7, value));
    prop_oneof![
        8 => prop::collection::vec(write, 1..8).prop_map(Step::Commit),
        2 => Just(Step::Snapshot),
        1 => Just(Step::Forget),
        1 => (0..2usize).prop_map(Step::Flush),
        1 => Just(Step::Persist),
        1 => Just(Step::Reopen),
        1 => (0..2usize).prop_map(Step::Replace),
    ]
}

/// One engine with its two keyspaces and the snapshots that are held on it.
struct Side {
    engine: Engine,
    keyspaces: Vec<Keyspace>,
    snapshots: Vec<(Snapshot, Vec<Keyspace>)>,
}

impl Side {
    fn new(engine: Engine) -> Self {
        let keyspaces = (0..2).map(|n| engine.keyspace(&format!("k{n}.0")).expect("a keyspace")).collect();
        Self { engine, keyspaces, snapshots: Vec::new() }
    }

    fn commit(&self, writes: &[Write]) {
        let mut batch = Batch::new();
        for (at, key, value) in writes {
            match value {
                Some(value) => batch.put(&self.keyspaces[*at], key.clone(), value.clone()),
                None => batch.delete(&self.keyspaces[*at], key.clone()),
            }
        }
        self.engine.commit(batch).expect("written");
    }
}

fn all(snapshot: &Snapshot, keyspace: &Keyspace) -> Map {
    let pairs = snapshot.range(keyspace, Bound::Unbounded, Bound::Unbounded);
    pairs
        .map(|pair| pair.expect("read").into_bytes())
        .map(|(key, value)| (key.to_vec(), value.to_vec()))
        .collect()
}

fn check(snapshot: &Snapshot, keyspace: &Keyspace, expected: &Map, probe: &[u8]) {
    assert_eq!(&all(snapshot, keyspace), expected);
    assert_eq!(
        snapshot.get(keyspace, probe).expect("read").as_deref(),
        expected.get(probe).map(Vec::as_slice)
    );
    assert_eq!(snapshot.contains(keyspace, probe).expect("read"), expected.contains_key(probe));
    let after = snapshot.range(keyspace, Bound::Excluded(probe), Bound::Unbounded);
    let found: Vec<Vec<u8>> = after.rev().map(|pair| pair.expect("read").key().to_vec()).collect();
    let range = expected.range::<[u8], _>((Bound::Excluded(probe), Bound::Unbounded));
    let wanted: Vec<Vec<u8>> = range.rev().map(|(key, _)| key.clone()).collect();
    assert_eq!(found, wanted);
    let found: Vec<Vec<u8>> =
        snapshot.prefix(keyspace, probe).map(|pair| pair.expect("read").key().to_vec()).collect();
    let wanted: Vec<Vec<u8>> = expected.keys().filter(|key| key.starts_with(probe)).cloned().collect();
    assert_eq!(found, wanted);
    for (from, to) in [(&[][..], None), (probe, None), (&[][..], Some(probe)), (&[0][..], Some(probe))] {
        assert_eq!(swept(snapshot, keyspace, from, to), ranged(snapshot, keyspace, from, to));
    }
    // From both ends at once.
    let mut both = snapshot.range(keyspace, Bound::Unbounded, Bound::Unbounded);
    let mut count = 0;
    while let Some(pair) = if count % 3 == 0 { both.next_back() } else { both.next() } {
        pair.expect("read");
        count += 1;
    }
    assert_eq!(count, expected.len());
}

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

fn swept(snapshot: &Snapshot, keyspace: &Keyspace, from: &[u8], to: Option<&[u8]>) -> Pairs {
    let mut pairs = Vec::new();
    let take = |key: &[u8], value: &[u8]| {
        pairs.push((key.to_vec(), value.to_vec()));
        true
    };
    assert!(snapshot.sweep(keyspace, from, to, take).expect("read"));
    pairs
}

fn ranged(snapshot: &Snapshot, keyspace: &Keyspace, from: &[u8], to: Option<&[u8]>) -> Pairs {
    let to = to.map_or(Bound::Unbounded, Bound::Excluded);
    let pairs = snapshot.range(keyspace, Bound::Included(from), to);
    pairs
        .map(|pair| pair.expect("read").into_bytes())
        .map(|(key, value)| (key.to_vec(), value.to_vec()))
        .collect()
}

fn small() -> Options {
    Options { memtable_bytes_max: 1 << 20, cache_bytes: 1 << 20, ..Options::default() }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn disk_memory_and_a_plain_map_agree(steps in prop::collection::vec(step(), 1..40), probe in key()) {
        let folder = tempfile::tempdir().expect("a folder");
        let mut disk = Side::new(Engine::open(folder.path(), &small()).expect("opened"));
        let mut memory = Side::new(Engine::in_memory());
        let mut maps = vec![Map::new(), Map::new()];
        let mut held: Vec<Vec<Map>> = Vec::new();
        let mut generation = 0;
        for step in steps {
            match step {
                Step::Commit(writes) => {
                    disk.commit(&writes);
                    memory.commit(&writes);
                    for (at, key, value) in writes {
                        match value {
                            Some(value) => maps[at].insert(key, value),
                            None => maps[at].remove(&key),
                        };
                    }
                }
                Step::Snapshot => {
                    for side in [&mut disk, &mut memory] {
                        side.snapshots.push((side.engine.snapshot_of(&side.keyspaces[0]), side.keyspaces.clone()));
                    }
                    held.push(maps.clone());
                }
                Step::Forget if !held.is_empty() => {
                    disk.snapshots.remove(0);
                    memory.snapshots.remove(0);
                    held.remove(0);
                }
                Step::Forget => {}
                Step::Flush(at) => assert!(disk.engine.flush(&disk.keyspaces[at]).expect("flushed")),
                Step::Persist => disk.engine.persist().expect("synced"),
                Step::Reopen => {
                    let names: Vec<String> = disk.engine.keyspace_names();
                    drop(disk);
                    memory.snapshots.clear();
                    held.clear();
                    let engine = Engine::open(folder.path(), &small()).expect("opened again");
                    prop_assert_eq!(&engine.keyspace_names(), &names);
                    prop_assert_eq!(&memory.engine.keyspace_names(), &names);
                    let keyspaces = memory
                        .keyspaces
                        .iter()
                        .map(|keyspace| format!("{keyspace:?}"))
                        .map(|name| name.trim_start_matches("Keyspace(").trim_end_matches(')').to_owned())
                        .map(|name| engine.keyspace(&name).expect("it is there"))
                        .collect();
                    disk = Side { engine, keyspaces, snapshots: Vec::new() };
                }
                Step::Replace(at) => {
                    generation += 1;
                    let name = format!("k{at}.{generation}");
                    for side in [&mut disk, &mut memory] {
                        let new = side.engine.keyspace(&name).expect("a keyspace");
                        let old = std::mem::replace(&mut side.keyspaces[at], new);
                        side.engine.delete_keyspace(old).expect("deleted");
                    }
                    maps[at].clear();
                }
            }
        }
        for side in [&disk, &memory] {
            let now = side.engine.snapshot();
            for (keyspace, map) in side.keyspaces.iter().zip(&maps) {
                check(&now, keyspace, map, &probe);
            }
            for ((snapshot, keyspaces), maps) in side.snapshots.iter().zip(&held) {
                for (keyspace, map) in keyspaces.iter().zip(maps) {
                    check(snapshot, keyspace, map, &probe);
                }
            }
        }
    }
}

#[test]
fn a_load_must_be_in_order_and_is_seen_by_new_snapshots_only() {
    let folder = tempfile::tempdir().expect("a folder");
    for engine in [Engine::in_memory(), Engine::open(folder.path(), &small()).expect("opened")] {
        let keyspace = engine.keyspace("new").expect("a keyspace");
        let before = engine.snapshot();
        let pairs = |keys: &'static [&'static str]| {
            keys.iter().map(|key| Ok((Bytes::from_static(key.as_bytes()), Bytes::from_static(b"value"))))
        };
        let unordered = engine.keyspace("unordered").expect("a keyspace");
        assert!(matches!(engine.ingest(&unordered, pairs(&["b", "a"])), Err(Error::Image { .. })));
        assert_eq!(engine.ingest(&keyspace, pairs(&["a", "b", "c"])).expect("loaded"), 3);
        assert_eq!(all(&engine.snapshot(), &keyspace).len(), 3);
        assert_eq!(all(&before, &keyspace).len(), 0);
        let between = engine.snapshot();
        let more =
            engine.ingest_from(&keyspace, |put| put(b"b1", b"value").and_then(|()| put(b"b2", b"value")));
        more.expect("a keyspace with other keys takes a load too");
        let mut batch = Batch::new();
        batch.put(&keyspace, "b1", "later");
        engine.commit(batch).expect("committed");
        assert_eq!(all(&engine.snapshot(), &keyspace).len(), 5);
        assert_eq!(
            engine.snapshot().get(&keyspace, b"b1").expect("read").as_deref(),
            Some(b"later".as_slice())
        );
        assert_eq!(all(&between, &keyspace).len(), 3);
    }
}

#[test]
fn large_values_come_back_after_a_flush_and_a_reopening() {
    let folder = tempfile::tempdir().expect("a folder");
    let value: Vec<u8> = (0..100_000u32).map(|n| (n * 7) as u8).collect();
    {
        let engine = Engine::open(folder.path(), &small()).expect("opened");
        let keyspace = engine.keyspace("large").expect("a keyspace");
        let mut batch = Batch::new();
        batch.put(&keyspace, "large", value.clone());
        batch.put(&keyspace, "small", "s");
        engine.commit(batch).expect("written");
        engine.flush(&keyspace).expect("flushed");
    }
    let engine = Engine::open(folder.path(), &small()).expect("opened");
    let keyspace = engine.keyspace("large").expect("a keyspace");
    let snapshot = engine.snapshot();
    assert_eq!(snapshot.get(&keyspace, b"large").expect("read").as_deref(), Some(value.as_slice()));
    assert_eq!(snapshot.get(&keyspace, b"small").expect("read").as_deref(), Some(b"s".as_slice()));
}

/// Ten batches of one key each, with a large value in the seventh; the directory is copied while it is open, as a power
/// cut leaves it.
fn cut_power(folder: &Path) -> (PathBuf, PathBuf) {
    let (state, copy) = (folder.join("state"), folder.join("copy"));
    let engine = Engine::open(&state, &small()).expect("opened");
    let keyspace = engine.keyspace("s0001.0").expect("a keyspace");
    for n in 0..10u8 {
        let mut batch = Batch::new();
        let size = if n == 6 { 32_768 } else { 100 };
        batch.put(&keyspace, vec![n], vec![0xa0 | n; size]);
        engine.commit(batch).expect("written");
    }
    copy_folder(&state, &copy);
    let journal = fs::read_dir(&copy)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path())
        .find(|path| path.extension().is_some_and(|extension| extension == "jnl"))
        .expect("a journal");
    (copy, journal)
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("created");
    for entry in fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("a type").is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            // A file that goes while it is looked at was only being made.
            let Ok(mut bytes) = fs::read(entry.path()) else { continue };
            // Journals are mostly holes; so are their copies.
            let length = bytes.len() as u64;
            bytes.truncate(used(&bytes));
            fs::write(&target, bytes).expect("copied");
            fs::OpenOptions::new()
                .write(true)
                .open(&target)
                .expect("a copy")
                .set_len(length)
                .expect("as long");
        }
    }
}

/// How many bytes there are before nothing but zeros, in whole pages.
fn used(bytes: &[u8]) -> usize {
    const ZEROS: [u8; 4_096] = [0; 4_096];
    let page = bytes.chunks(ZEROS.len()).rposition(|page| page != &ZEROS[..page.len()]);
    bytes.len().min(page.map_or(0, |page| (page + 1) * ZEROS.len()))
}

fn overwrite(file: &Path, at: u64, bytes: &[u8]) {
    let mut file = fs::OpenOptions::new().write(true).open(file).expect("a file");
    file.seek(SeekFrom::Start(at)).expect("a place");
    file.write_all(bytes).expect("written");
}

fn survivors(directory: &Path, kept: &Path) -> (Vec<u8>, bool) {
    let (engine, cut) = open_engine(directory, kept, &small()).expect("opened");
    let keyspace = engine.keyspace("s0001.0").expect("a keyspace");
    let found = all(&engine.snapshot(), &keyspace);
    for (key, value) in &found {
        assert!(value.iter().all(|byte| *byte == 0xa0 | key[0]), "a value is whole");
    }
    (found.keys().map(|key| key[0]).collect(), cut.is_some())
}

/// Where the large value lies in the journal.
fn find_large(journal: &Path) -> u64 {
    let bytes = fs::read(journal).expect("a journal");
    let at = bytes.windows(64).position(|window| window.iter().all(|byte| *byte == 0xa6));
    at.expect("the large value is there") as u64
}

#[test]
fn case_21_a_page_lost_inside_a_value_is_cut_away_with_what_follows() {
    let folder = tempfile::tempdir().expect("a folder");
    let (copy, journal) = cut_power(folder.path());
    let large = find_large(&journal);
    overwrite(&journal, large + 8_192, &[0; 4_096]);
    let before = fs::read(&journal).expect("a journal");
    // The engine by itself refuses.
    assert!(matches!(Engine::open(&copy, &small()), Err(Error::EngineDamaged { .. })));
    let kept = folder.path().join("kept");
    assert_eq!(survivors(&copy, &kept), (vec![0, 1, 2, 3, 4, 5], true));
    let copies: Vec<_> = fs::read_dir(&kept).expect("a folder").collect();
    assert_eq!(copies.len(), 1);
    let copy_path = copies[0].as_ref().expect("an entry").path();
    assert_eq!(fs::read(copy_path).expect("a copy"), before, "kept as it was");
    // Opened again, there is nothing left to cut.
    assert_eq!(survivors(&copy, &kept), (vec![0, 1, 2, 3, 4, 5], false));
}

#[test]
fn a_journal_cut_at_any_place_keeps_its_whole_batches() {
    let folder = tempfile::tempdir().expect("a folder");
    let (copy, journal) = cut_power(folder.path());
    let used =
        fs::read(&journal).expect("a journal").iter().rposition(|byte| *byte != 0).expect("batches") as u64;
    for (n, at) in
        [1, 7, 40, 100, 150, 300, 600, 900, used - 20_000, used - 300, used].into_iter().enumerate()
    {
        let torn = folder.path().join(format!("torn{n}"));
        copy_folder(&copy, &torn);
        let name = torn.join(journal.file_name().expect("a name"));
        fs::OpenOptions::new().write(true).open(&name).expect("a file").set_len(at).expect("cut");
        let (keys, _) = survivors(&torn, &folder.path().join("kept"));
        let expected: Vec<u8> = (0..keys.len() as u8).collect();
        assert_eq!(keys, expected, "cut at {at}: a prefix survives");
        assert!(keys.len() < 10);
    }
    assert_eq!(survivors(&copy, &folder.path().join("kept")), ((0..10).collect(), false));
}

/// What is applied lies beside the rows in one batch, over two keyspaces: wherever the journal ends, they agree.
#[test]
fn case_27_a_batch_over_two_keyspaces_is_there_with_its_applied_index_or_not_at_all() {
    let folder = tempfile::tempdir().expect("a folder");
    let state = folder.path().join("state");
    let engine = Engine::open(&state, &small()).expect("opened");
    let names = ["s0001.0", "s0002.0"];
    let keyspaces = names.map(|name| engine.keyspace(name).expect("a keyspace"));
    for n in 0..40u8 {
        let mut batch = Batch::new();
        for keyspace in &keyspaces {
            batch.put(keyspace, vec![b'r', n], vec![n; 1 + usize::from(n) * 20]);
            batch.put(keyspace, b"applied".to_vec(), vec![n]);
        }
        engine.commit(batch).expect("written");
        if n == 20 {
            // From here on one of them is on disk further than the other.
            assert!(engine.flush(&keyspaces[0]).expect("flushed"));
        }
    }
    let copy = folder.path().join("copy");
    copy_folder(&state, &copy);
    let journal = |folder: &Path| {
        let files = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
        let mut journals = files.filter(|path| path.extension().is_some_and(|extension| extension == "jnl"));
        journals.next().expect("a journal")
    };
    let bytes = fs::read(journal(&copy)).expect("a journal");
    let used = bytes.iter().rposition(|byte| *byte != 0).expect("batches") as u64 + 1;
    let mut found = std::collections::BTreeSet::new();
    for (case, at) in (0..used).step_by(used as usize / 20).chain([used]).enumerate() {
        let torn = folder.path().join(format!("torn{case}"));
        copy_folder(&copy, &torn);
        fs::OpenOptions::new().write(true).open(journal(&torn)).expect("a file").set_len(at).expect("cut");
        let (engine, _) = open_engine(&torn, &folder.path().join("kept"), &small()).expect("opened");
        let snapshot = engine.snapshot();
        let ends = names.map(|name| {
            let rows = all(&snapshot, &engine.keyspace(name).expect("a keyspace"));
            let applied = rows.get(&b"applied"[..]).map(|value| value[0]);
            let last = rows.keys().filter(|key| key[0] == b'r').map(|key| key[1]).max();
            assert_eq!(applied, last, "{name} cut at {at}");
            assert_eq!(rows.len(), last.map_or(0, |last| usize::from(last) + 2), "{name} cut at {at}");
            last
        });
        // What was flushed stays; behind it both end with the same batch.
        assert_eq!(ends[0], ends[1].max(Some(20)), "cut at {at}");
        found.insert(ends[1]);
        drop(snapshot);
        drop(engine);
        fs::remove_dir_all(&torn).expect("removed");
    }
    assert!(found.len() > 10, "the cuts fell on {} places", found.len());
}

/// The symptom of fjall's #257: four memtables wait for a flush that does not come, and the writer sleeps.
#[test]
fn case_31_a_commit_that_does_not_end_is_noticed_and_others_are_not() {
    use fjall::AbstractTree as _;

    let folder = tempfile::tempdir().expect("a folder");
    let engine = Engine::open(folder.path(), &small()).expect("opened");
    let keyspace = engine.keyspace("s0001.0").expect("a keyspace");
    let super::KeyspaceOf::Lsm(tree) = &keyspace.0 else { panic!("an engine on disk") };
    let commit = |n: u8| {
        let mut batch = Batch::new();
        batch.put(&keyspace, vec![n], vec![n; 3 << 20]);
        engine.commit(batch).expect("written");
    };
    let every = super::COMMIT_MAX / 10;
    let mut watch = super::Watch::default();
    for n in 0..30 {
        commit(n);
        watch.look(&engine, every).expect("nothing stands still");
    }
    std::thread::scope(|scope| {
        let no_flush = tree.tree.get_flush_lock();
        let writer = scope.spawn(|| (30..50).for_each(commit));
        // It stands still when its number stays the same however often somebody else had a turn.
        let mut same = (None, 0);
        while same.1 < 10_000 {
            assert!(!writer.is_finished(), "the writer was not held up");
            let now = engine.commit_at_work().filter(|_| tree.tree.sealed_memtable_count() >= 4);
            same = if now.is_some() && now == same.0 { (now, same.1 + 1) } else { (now, 0) };
            std::thread::yield_now();
        }
        let looks: Vec<_> = (0..11).map(|_| watch.look(&engine, every)).collect();
        // Given back before anything is asserted: a lock that is let go in a panic holds the writer for ever.
        drop(no_flush);
        writer.join().expect("it was only slow");
        assert!(looks[..10].iter().all(Result::is_ok), "not long enough");
        assert!(matches!(looks[10], Err(Error::EngineStuck { .. })), "long enough");
    });
    watch.look(&engine, every).expect("nothing is at work");
    assert_eq!(all(&engine.snapshot(), &keyspace).len(), 50);
}

#[test]
fn the_doctor_leaves_a_sound_journal_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let (copy, journal) = cut_power(folder.path());
    let before = fs::read(&journal).expect("a journal");
    assert_eq!(cut_torn_journal(&copy, &folder.path().join("kept")).expect("read"), None);
    assert_eq!(fs::read(&journal).expect("a journal"), before);
    assert!(!folder.path().join("kept").exists());
    assert_eq!(
        cut_torn_journal(&folder.path().join("state").join("keyspaces"), folder.path()).expect("read"),
        None
    );
}

#[test]
fn a_second_engine_on_a_directory_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let _first = Engine::open(folder.path(), &small()).expect("opened");
    assert!(matches!(Engine::open(folder.path(), &small()), Err(Error::Held { .. })));
}

/// Numbers that look like chance and are the same in every run.
fn scatter(n: u64) -> u64 {
    let mut n = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    n ^= n >> 29;
    n.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 16
}

#[test]
fn a_sweep_over_many_blocks_gives_what_a_range_gives() {
    let folder = tempfile::tempdir().expect("a folder");
    let open = || Engine::open(folder.path(), &small()).expect("opened");
    let mut engine = open();
    let key = |n: u64| [b"some/table/".as_slice(), &(n % 20_000).to_be_bytes()].concat();
    let mut held = Vec::new();
    let mut swept_at_first = 0;
    for round in 0..12_u64 {
        let keyspace = engine.keyspace("k").expect("a keyspace");
        let mut batch = Batch::new();
        for n in 0..4_000 {
            let number = scatter(round * 10_000 + n);
            let value = match number % 97 {
                0 => vec![round as u8; 5_000],
                length => vec![length as u8; length as usize],
            };
            if round > 0 && number.is_multiple_of(5) {
                batch.delete(&keyspace, key(number >> 8));
            } else {
                batch.put(&keyspace, key(number >> 8), value);
            }
        }
        engine.commit(batch).expect("written");
        held.push(engine.snapshot_of(&keyspace));
        swept_at_first += usize::from(held.last().is_some_and(|snapshot| snapshot.sweeps(&keyspace)));
        if round % 3 == 0 {
            engine.flush(&keyspace).expect("flushed");
        }
        for snapshot in &held {
            let (a, b) = (scatter(round + 1_000_000) % 20_000, scatter(round + 2_000_000) % 20_000);
            let (from, to) = (key(a.min(b)), key(a.max(b)));
            for (from, to) in [(from.as_slice(), Some(to.as_slice())), (&to, None), (&[], Some(&from))] {
                let expected = ranged(snapshot, &keyspace, from, to);
                assert!(swept(snapshot, &keyspace, from, to) == expected, "round {round}");
                // It stops where it is told to.
                let mut few = 0;
                let take = |_: &[u8], _: &[u8]| {
                    few += 1;
                    few < 10
                };
                let ended = snapshot.sweep(&keyspace, from, to, take).expect("read");
                assert_eq!(ended, expected.len() < 10);
            }
        }
        if round == 7 {
            // What lies in files only, and in no cache.
            held.clear();
            drop(keyspace);
            drop(engine);
            engine = open();
        }
    }
    // The lowest level has its index in parts.
    let keyspace = engine.keyspace("k").expect("a keyspace");
    let super::KeyspaceOf::Lsm(library) = &keyspace.0 else { panic!("it is on disk") };
    library.major_compact().expect("compacted");
    let snapshot = engine.snapshot_of(&keyspace);
    assert!(snapshot.sweeps(&keyspace));
    for round in 0..50 {
        let from = key(scatter(round));
        assert!(swept(&snapshot, &keyspace, &from, None) == ranged(&snapshot, &keyspace, &from, None));
    }
    assert!(swept_at_first > 0, "not all were asked of the library's iterator");
}

#[test]
fn files_that_are_given_up_take_nothing_else_with_them_and_old_snapshots_keep_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let open = || Engine::open(folder.path(), &small()).expect("opened");
    let engine = open();
    let keyspace = engine.keyspace("k").expect("a keyspace");
    let key = |family: u8, n: u32| [&[family], &n.to_be_bytes()[..]].concat();
    let load = |family: u8| {
        let fill = |put: &mut dyn FnMut(&[u8], &[u8]) -> crate::Result<()>| {
            (0..20_000_u32).try_for_each(|n| put(&key(family, n), &[family; 100]))
        };
        engine.ingest_from(&keyspace, fill).expect("loaded");
    };
    for family in [1, 2, 3] {
        load(family);
    }
    // A key of the middle one that lies in a file with others.
    let mut batch = Batch::new();
    for family in [1, 2, 3] {
        batch.put(&keyspace, key(family, 7), b"newer".to_vec());
    }
    engine.commit(batch).expect("written");
    engine.flush(&keyspace).expect("flushed");
    let count = |snapshot: &Snapshot, family: u8| snapshot.prefix(&keyspace, &[family]).count();
    let before = engine.snapshot();
    let counts = |snapshot: &Snapshot| [1, 2, 3].map(|family| count(snapshot, family));
    assert_eq!(counts(&before), [20_000; 3]);
    // The loads follow each other, and are swept as one.
    let now = engine.snapshot_of(&keyspace);
    for from in [vec![], key(1, 19_990), key(2, 7), key(3, 19_999)] {
        assert!(swept(&now, &keyspace, &from, None) == ranged(&now, &keyspace, &from, None));
    }
    drop(now);
    engine.drop_files(&keyspace, &[2]).expect("given up");
    assert_eq!(counts(&engine.snapshot()), [20_000, 1, 20_000]);
    assert_eq!(counts(&before), [20_000; 3]);
    engine.drop_files(&keyspace, &[2]).expect("nothing is left to give up");
    drop(before);
    let mut batch = Batch::new();
    batch.put(&keyspace, key(2, 8), b"new".to_vec());
    engine.commit(batch).expect("written");
    assert_eq!(counts(&engine.snapshot()), [20_000, 2, 20_000]);
    drop(keyspace);
    drop(engine);
    let engine = open();
    let keyspace = engine.keyspace("k").expect("a keyspace");
    let again = [1, 2, 3].map(|family: u8| engine.snapshot().prefix(&keyspace, &[family]).count());
    assert_eq!(again, [20_000, 2, 20_000]);
}

#[test]
fn a_sweep_beside_a_writer_that_flushes_sees_one_moment() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = Engine::open(folder.path(), &small()).expect("opened");
    let keyspace = engine.keyspace("k").expect("a keyspace");
    let write = |round: u32| {
        let mut batch = Batch::new();
        for n in 0..500_u32 {
            batch.put(&keyspace, n.to_be_bytes().to_vec(), round.to_be_bytes().to_vec());
        }
        engine.commit(batch).expect("written");
    };
    write(0);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for round in 1..60 {
                write(round);
                if round % 4 == 0 {
                    engine.flush(&keyspace).expect("flushed");
                }
            }
        });
        while !writer.is_finished() {
            let snapshot = engine.snapshot_of(&keyspace);
            let pairs = swept(&snapshot, &keyspace, &[], None);
            assert_eq!(pairs.len(), 500);
            assert!(pairs.iter().all(|(_, value)| *value == pairs[0].1), "rows of one batch");
        }
    });
}

#[test]
fn a_sweep_sees_what_a_compaction_took_out_of_the_newest_tables() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = Engine::open(folder.path(), &small()).expect("opened");
    let keyspace = engine.keyspace("k").expect("a keyspace");
    let put = |key: &[u8], value: &[u8]| {
        let mut batch = Batch::new();
        batch.put(&keyspace, key.to_vec(), value.to_vec());
        engine.commit(batch).expect("written");
    };
    put(b"a", b"old");
    put(b"b", b"old");
    for n in 0..10_u8 {
        put(b"c", &[n]);
    }
    let snapshot = engine.snapshot_of(&keyspace);
    let before = ranged(&snapshot, &keyspace, &[], None);
    assert!(snapshot.sweeps(&keyspace));
    assert_eq!(swept(&snapshot, &keyspace, &[], None), before);
    put(b"a", b"new");
    let mut batch = Batch::new();
    batch.delete(&keyspace, b"b".to_vec());
    engine.commit(batch).expect("written");
    engine.flush(&keyspace).expect("flushed");
    // The library looks for what no snapshot needs after so many of them ended.
    for _ in 0..20_000 {
        drop(engine.snapshot());
    }
    let super::KeyspaceOf::Lsm(library) = &keyspace.0 else { panic!("it is on disk") };
    library.major_compact().expect("compacted");
    assert!(!snapshot.sweeps(&keyspace));
    assert_eq!(swept(&snapshot, &keyspace, &[], None), before);
    let newest = engine.snapshot_of(&keyspace);
    assert!(newest.sweeps(&keyspace));
    assert_eq!(swept(&newest, &keyspace, &[], None), ranged(&newest, &keyspace, &[], None));
}

#[test]
fn an_engine_whose_making_was_cut_short_is_made_again_and_another_is_not_touched() {
    let folder = tempfile::tempdir().expect("a folder");
    let begun = folder.path().join("begun");
    for version in [None, Some(&b""[..]), Some(&[0; 4])] {
        fs::create_dir_all(begun.join("keyspaces")).expect("created");
        fs::write(begun.join("lock"), "").expect("written");
        fs::write(begun.join("0.jnl"), [0; 4096]).expect("written");
        if let Some(bytes) = version {
            fs::write(begun.join("version"), bytes).expect("written");
        }
        let engine = Engine::open(&begun, &small()).expect("nothing was in it");
        engine.keyspace("s0001.0").expect("a keyspace");
        drop(engine);
        fs::remove_dir_all(&begun).expect("removed");
    }
    let made = folder.path().join("made");
    drop(Engine::open(&made, &small()).expect("made").keyspace("s0001.0").expect("a keyspace"));
    fs::remove_file(made.join("version")).expect("removed");
    assert!(Engine::open(&made, &small()).is_err(), "there are keyspaces: this is damage");
    assert!(made.join("0.jnl").exists() && made.join("keyspaces").join("1").exists());
}

/// A flush that ends while a batch is being inserted makes what is there of the batch visible.
#[test]
fn a_snapshot_never_sees_half_of_a_batch_whatever_is_flushed_beside_it() {
    const PAIRS: u32 = 20_000;
    const ROUNDS: u8 = 20;
    let folder = tempfile::tempdir().expect("a folder");
    let engine = Engine::open(folder.path(), &Options::default()).expect("opened");
    let (written, other) =
        (engine.keyspace("written").expect("made"), engine.keyspace("other").expect("made"));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let mut batch = Batch::new();
                batch.put(&other, "k", "v");
                engine.commit(batch).expect("committed");
                engine.flush(&other).expect("flushed");
            }
        });
        let reader = scope.spawn(|| {
            let (mut seen, mut last) = (0, 0);
            while last < ROUNDS {
                let snapshot = engine.snapshot();
                let first = snapshot.get(&written, &0_u32.to_be_bytes()).expect("read");
                let end = snapshot.get(&written, &(PAIRS - 1).to_be_bytes()).expect("read");
                assert_eq!(first, end, "half of a batch");
                let value = first.map_or(0, |value| value[0]);
                assert!(value >= last, "a later snapshot sees less");
                seen += u32::from(value > last);
                last = value;
            }
            seen
        });
        for round in 1..=ROUNDS {
            let mut batch = Batch::with_capacity(PAIRS as usize);
            for key in 0..PAIRS {
                batch.put(
                    &written,
                    Bytes::copy_from_slice(&key.to_be_bytes()),
                    Bytes::copy_from_slice(&[round]),
                );
            }
            engine.commit(batch).expect("committed");
            let own = engine.snapshot().get(&written, &7_u32.to_be_bytes()).expect("read");
            assert_eq!(own.as_deref(), Some(&[round][..]), "what was committed is seen");
        }
        let seen = reader.join();
        stop.store(true, Ordering::Relaxed);
        assert!(seen.expect("the reader found no half batch") > 0);
    });
}
