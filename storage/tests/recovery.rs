//! A node's storage over crashes: entries go through the log and into a shard; the directory is copied while it is open, as a
//! kill or a power cut leaves it; what is found there is opened, compared and replayed to the same state.
//!
//! `Node` is the smallest thing that keeps the order of `docs/ARCHITECTURE.md`: log, sync, apply, now and then a checkpoint.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::mpsc,
};

use bytes::Bytes;
use model::{
    Type, Value,
    catalog::ADMIN,
    command::{self, Identity, Write},
    id::{
        Boot, CatalogVersion, ColumnNumber, CommandId, DatabaseId, Epoch, IndexId, NodeId, PartitionId,
        SchemaId, ShardId, TableId,
    },
    key::{self, KeyPart},
    row,
    schema::{Column, Index, IndexPart, IndexState, Kind, Table},
    time::LoggedTime,
    types::Typmod,
};
use storage::{
    Error,
    checkpoint::{self, Bounds, Part},
    codec::entry::{self, Body, Descriptors, Entry as LogEntry, Held, Stamp},
    directory::{Directory, Fresh},
    engine::{Engine, Options},
    log::{self, GroupId, GroupInit, Log, LogId},
    recovery::{Verdict, compare, open_engine},
    shard::{Entry, Payload, Points, Shard},
};

const SHARD: ShardId = ShardId(1);
const GROUP: GroupId = GroupId(1);
const TABLE: TableId = TableId(100);

struct Node {
    // In the order in which they are let go.
    shard: Shard,
    engine: Engine,
    log: Log,
    directory: Directory,
    verdict: Verdict,
    was_cut: bool,
}

fn wait(start: impl FnOnce(log::Callback) -> Result<(), log::Error>) {
    let (sender, receiver) = mpsc::channel();
    start(Box::new(move |result| drop(sender.send(result)))).expect("queued");
    receiver.recv().expect("answered").expect("durable");
}

impl Node {
    fn open(path: &Path) -> storage::Result<Self> {
        let fresh = Fresh { cluster: 1, node: NodeId(1), incarnation: 7 };
        let directory = Directory::open(path, fresh)?;
        let options = log::Options {
            segment_bytes: 1 << 20,
            must_exist: !directory.is_new(),
            ..log::Options::default()
        };
        let (log, recovered) = Log::open(&directory.log_path(), options, directory.log_identity())?;
        if directory.is_new() {
            wait(|callback| log.create_group(GROUP, GroupInit::default(), callback));
        }
        let small = Options { memtable_bytes_max: 1 << 20, cache_bytes: 1 << 20, ..Options::default() };
        let (engine, cut) = open_engine(&directory.state_path(), &directory.kept_path(), &small)?;
        let shard = Shard::open(&engine, SHARD, 0)?;
        let verdict = compare(SHARD, shard.applied_index(), recovered.groups.get(&GROUP))?;
        let node = Self { shard, engine, log, directory, verdict, was_cut: cut.is_some() };
        node.replay();
        Ok(node)
    }

    /// Applies what the log has and the state has not.
    fn replay(&self) {
        let next = self.shard.applied_index().map_or(0, |applied| applied + 1);
        let entries = self.log.entries(GROUP, next..u64::MAX).expect("the log holds them");
        for entry in entries {
            self.apply(entry.id, &entry.payload);
        }
    }

    fn apply(&self, log_id: LogId, payload: &Bytes) {
        self.shard.apply(&[Entry { log_id, payload: Payload::Encoded(payload) }]).expect("a healthy shard");
    }

    fn propose(&self, body: Body) {
        self.propose_all([body]);
    }

    /// Makes entries durable, then applies them.
    fn propose_all(&self, bodies: impl IntoIterator<Item = Body>) {
        let first = self.shard.applied_index().map_or(0, |applied| applied + 1);
        let entries = (first..).zip(bodies).map(|(index, body)| {
            let stamp =
                Stamp { time: LoggedTime { elapsed: index, ..LoggedTime::default() }, epoch: Epoch(0) };
            let payload = entry::to_bytes(&LogEntry { stamp, body });
            log::Entry { id: LogId { term: 1, node: 1, index }, kind: 0, payload }
        });
        let entries: Vec<log::Entry> = entries.collect();
        wait(|callback| self.log.append(GROUP, entries.clone(), callback));
        for entry in entries {
            self.apply(entry.id, &entry.payload);
        }
    }

    fn checkpoint(&self, keep_entries: u64) {
        let bounds = Bounds { keep_entries, ..Bounds::default() };
        let part = Part {
            group: GROUP,
            keyspace: self.shard.keyspace().clone(),
            applied: self.shard.applied_index(),
            bounds,
        };
        let purge = checkpoint::run(&self.engine, &self.log, &[part]).expect("a checkpoint");
        for (group, index) in purge {
            wait(|callback| self.log.purge_upto(group, LogId { term: 1, node: 1, index }, callback));
        }
    }

    fn hash(&self) -> u128 {
        self.shard.hash(Points::ALL).expect("read")
    }

    fn assert_sound(&self) {
        assert_eq!(self.shard.check().expect("read").faults, Vec::<String>::new());
    }
}

fn table() -> Table {
    let column = |number, name: &str, data_type| Column {
        number: ColumnNumber(number),
        name: name.to_owned(),
        data_type,
        typmod: Typmod::NONE,
        not_null: false,
        default: None,
        missing: None,
        hidden: false,
        dropped: false,
        moved: None,
        comment: None,
    };
    let index = |id, column| Index {
        id: IndexId(id),
        name: format!("i{id}"),
        parts: vec![IndexPart { column: ColumnNumber(column), order: KeyPart::ASC }],
        unique: id == 101,
        nulls_not_distinct: false,
        constraint: None,
        predicate: None,
        predicate_text: None,
        state: IndexState::Ready,
        comment: None,
    };
    Table {
        id: TABLE,
        database: DatabaseId(1),
        schema: SchemaId(2),
        name: "t".to_owned(),
        owner: ADMIN,
        kind: Kind::Table,
        version: 1,
        columns: vec![column(1, "id", Type::Int4), column(2, "note", Type::Text)],
        primary_key: Some(IndexId(101)),
        indexes: vec![index(101, 1), index(102, 1)],
        partition_by: Vec::new(),
        checks: Vec::new(),
        foreign_keys: Vec::new(),
        feed: true,
        temporary: None,
        comment: None,
    }
}

fn descriptors() -> Body {
    let held = Held { table: table(), since: CatalogVersion(1) };
    Body::Descriptors(Descriptors { tables: vec![held], ..Descriptors::default() })
}

fn put(number: u64, note_bytes: usize) -> Body {
    let id = (number % 17) as i32;
    let mut key = Vec::new();
    key::encode_part(&mut key, &Value::Int4(id), KeyPart::ASC).expect("an integer");
    let note = format!("{number:08}").repeat(note_bytes / 8);
    let mut encoded = Vec::new();
    row::encode(&[Value::Int4(id), Value::text(note)], &[Type::Int4, Type::Text], &mut encoded)
        .expect("a row");
    Body::Command(command::Command {
        identity: Identity::Slot { node: NodeId(1), boot: Boot(1), slot: (number % 3) as u16, number },
        time_left: None,
        partition: PartitionId::default_of(DatabaseId(1), SchemaId(2)),
        principal: ADMIN,
        catalog: CatalogVersion(1),
        locks: None,
        conditions: Vec::new(),
        writes: vec![Write::Put { table: TABLE, key: key.into(), row: encoded.into() }],
    })
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

fn newest_journal(copy: &Path) -> PathBuf {
    let entries =
        fs::read_dir(copy.join("state")).expect("a folder").map(|entry| entry.expect("an entry").path());
    let journals = entries.filter(|path| path.extension().is_some_and(|extension| extension == "jnl"));
    journals.max().expect("a journal")
}

fn used_bytes(journal: &Path) -> u64 {
    let mut bytes = fs::read(journal).expect("a journal");
    bytes.truncate(used(&bytes));
    bytes.iter().rposition(|byte| *byte != 0).map_or(0, |at| at as u64 + 1)
}

fn set_len(file: &Path, length: u64) {
    fs::OpenOptions::new().write(true).open(file).expect("a file").set_len(length).expect("cut");
}

/// A node with a table and some rows.
fn filled(path: &Path, commands: u64) -> Node {
    let node = Node::open(path).expect("a new directory");
    node.propose_all([descriptors()].into_iter().chain((1..=commands).map(|number| put(number, 200))));
    node
}

#[test]
fn a_directory_copied_while_it_is_open_comes_back_as_it_was() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = filled(&folder.path().join("data"), 40);
    let (hash, applied) = (node.hash(), node.shard.applied());
    let copy = folder.path().join("copy");
    copy_folder(&folder.path().join("data"), &copy);
    let again = Node::open(&copy).expect("a crash leaves it whole");
    assert_eq!((again.hash(), again.shard.applied()), (hash, applied));
    assert_eq!(again.directory.identity().boot, Boot(2));
    again.assert_sound();
    again.propose(put(99, 200));
}

#[test]
fn case_20_an_unsynced_tail_of_the_engine_is_replayed_to_the_same_state() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = filled(&folder.path().join("data"), 20);
    node.checkpoint(1_000);
    let durable = used_bytes(&newest_journal(node.directory.path()));
    // Some as large as several pages.
    node.propose_all((21..=60).map(|number| put(number, if number % 10 == 0 { 40_000 } else { 200 })));
    let (hash, end) = (node.hash(), used_bytes(&newest_journal(node.directory.path())));
    for (case, part) in (0..10u64).enumerate() {
        let copy = folder.path().join(format!("copy{case}"));
        copy_folder(node.directory.path(), &copy);
        set_len(&newest_journal(&copy), durable + (end - durable) * part / 10);
        let again = Node::open(&copy).expect("what was not synced may go");
        assert_eq!(again.verdict, Verdict::Sound, "nothing synced is gone");
        assert_eq!(again.hash(), hash, "cut at {part}/10");
        again.assert_sound();
    }
}

#[test]
fn case_21_a_page_lost_out_of_order_is_cut_by_the_doctor_and_replayed() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = filled(&folder.path().join("data"), 20);
    node.checkpoint(1_000);
    node.propose(put(21, 40_000));
    node.propose(put(22, 200));
    let hash = node.hash();
    let copy = folder.path().join("copy");
    copy_folder(node.directory.path(), &copy);
    let journal = newest_journal(&copy);
    let mut bytes = fs::read(&journal).expect("a journal");
    let note = b"00000021".repeat(1_000);
    let at = bytes.windows(note.len()).position(|window| window == note).expect("the large note");
    bytes[at + 4_096..at + 8_192].fill(0);
    fs::write(&journal, bytes).expect("written");
    let again = Node::open(&copy).expect("the doctor helps");
    assert!(again.was_cut);
    assert_eq!((again.verdict, again.hash()), (Verdict::Sound, hash));
    again.assert_sound();
    assert_eq!(fs::read_dir(again.directory.kept_path()).expect("a folder").count(), 1);
}

/// A copy of a node's directory whose engine lost half of what was synced.
fn cut_to_half(node: &Node, copy: &Path) {
    copy_folder(node.directory.path(), copy);
    let journal = newest_journal(copy);
    set_len(&journal, used_bytes(&journal) / 2);
}

#[test]
fn case_22_synced_state_that_is_gone_is_healed_while_the_log_has_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = filled(&folder.path().join("data"), 30);
    node.checkpoint(1_000);
    let healed = folder.path().join("healed");
    cut_to_half(&node, &healed);
    let again = Node::open(&healed).expect("the log has everything");
    assert!(matches!(again.verdict, Verdict::Heals { durable: 30, .. }), "{:?}", again.verdict);
    assert_eq!(again.hash(), node.hash());
    again.assert_sound();
}

/// Of one node: there is no other from which the shard could come again.
#[test]
fn case_23_synced_state_that_is_gone_is_refused_when_the_log_has_forgotten_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = filled(&folder.path().join("data"), 30);
    node.checkpoint(2);
    let lost = folder.path().join("lost");
    cut_to_half(&node, &lost);
    match Node::open(&lost) {
        Err(Error::StateLost { durable: 30, .. }) => {}
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("lost state was served"),
    }
}

#[test]
fn a_log_that_is_gone_is_never_made_anew_under_its_state() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = filled(&folder.path().join("data"), 5);
    let copy = folder.path().join("copy");
    copy_folder(node.directory.path(), &copy);
    fs::remove_dir_all(copy.join("log")).expect("removed");
    assert!(Node::open(&copy).is_err());
    fs::remove_dir_all(copy.join("log")).expect("removed");
    fs::remove_file(copy.join("identity")).expect("removed");
    assert!(matches!(Node::open(&copy), Err(Error::Foreign { .. })), "state without an identity is nobody's");
}

/// A command under a name of its own.
fn named(number: u64) -> Body {
    let Body::Command(command) = put(number, 200) else { unreachable!("a put is a command") };
    let fingerprint = u128::from(number);
    let id = CommandId(1_000 + u128::from(number));
    let identity = Identity::Named { id, attempt: 0, fingerprint, remember_secs: 1_000 };
    Body::Command(command::Command { identity, ..command })
}

/// The state was committed, and the kill came before anybody was answered.
#[test]
fn case_24_commands_sent_again_after_a_crash_are_answered_and_not_applied() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = filled(&folder.path().join("data"), 9);
    node.propose_all([101, 102].map(named));
    for (case, unapplied) in [("committed", false), ("fallen back", true)] {
        let copy = folder.path().join(case);
        copy_folder(node.directory.path(), &copy);
        if unapplied {
            let journal = newest_journal(&copy);
            set_len(&journal, used_bytes(&journal) * 3 / 4);
        }
        let again = Node::open(&copy).expect("a crash leaves it whole");
        assert_eq!(again.hash(), node.hash(), "{case}");
        let revision = again.shard.revision();
        again.propose_all([7, 8, 9].map(|number| put(number, 200)));
        again.propose_all([102, 101, 102].map(named));
        assert_eq!(again.shard.revision(), revision, "{case}");
        again.propose_all([put(10, 200), named(103)]);
        assert_eq!(again.shard.revision().0, revision.0 + 2, "{case}");
    }
}

/// The same entries give the same state: one by one, in groups, in memory, on disk, and again after a crash that took
/// some of them back.
#[test]
fn case_28_applying_again_gives_the_same_state_in_whatever_groups() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = filled(&folder.path().join("data"), 120);
    node.propose_all((1..=20).map(named));
    let entries = node.log.entries(GROUP, 0..u64::MAX).expect("read");
    assert!(entries.len() > 140);
    for size in [1, 2, 7, 64, 1_000] {
        let shard = Shard::open(&Engine::in_memory(), SHARD, 0).expect("memory");
        for group in entries.chunks(size) {
            let group: Vec<_> = group
                .iter()
                .map(|entry| Entry { log_id: entry.id, payload: Payload::Encoded(&entry.payload) })
                .collect();
            shard.apply(&group).expect("a healthy shard");
        }
        assert_eq!(shard.hash(Points::ALL).expect("read"), node.hash(), "groups of {size}");
        assert_eq!(shard.applied(), node.shard.applied(), "groups of {size}");
        // What was applied is not applied again.
        let last = entries.last().expect("entries");
        let twice = Entry { log_id: last.id, payload: Payload::Encoded(&last.payload) };
        assert!(matches!(shard.apply(&[twice]), Err(Error::OutOfOrder { .. })), "groups of {size}");
        assert_eq!(shard.hash(Points::ALL).expect("read"), node.hash(), "groups of {size}");
    }
    let end = used_bytes(&newest_journal(node.directory.path()));
    for part in 1..6 {
        let copy = folder.path().join(format!("copy{part}"));
        copy_folder(node.directory.path(), &copy);
        set_len(&newest_journal(&copy), end * part / 6);
        let again = Node::open(&copy).expect("what was not synced may go");
        assert_eq!(again.hash(), node.hash(), "cut at {part}/6");
        let found = again.log.entries(GROUP, 0..u64::MAX).expect("read");
        assert_eq!(found, entries);
    }
}

#[test]
fn a_closed_directory_opens_again_with_nothing_to_replay() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("data");
    let hash = {
        let node = filled(&path, 12);
        node.checkpoint(0);
        node.log.close();
        node.log.close();
        node.hash()
    };
    let node = Node::open(&path).expect("closed cleanly");
    assert_eq!(node.hash(), hash);
    let entries: BTreeMap<u64, ()> = node
        .log
        .entries(GROUP, 13..u64::MAX)
        .expect("read")
        .iter()
        .map(|entry| (entry.id.index, ()))
        .collect();
    assert!(entries.is_empty());
    assert_eq!(Directory::holder(&path).expect("a look"), Some(std::process::id().to_string()));
    drop(node);
    assert_eq!(Directory::holder(&path).expect("a look"), None);
}

const CHILD: &str = "KEYSTEAD_TEST_NODE_DIRECTORY";

/// The process that is killed: it applies, and flushes and compacts all the while. Says `applied index` for each entry.
#[test]
fn child_that_flushes_until_it_is_killed() {
    let Some(path) = std::env::var_os(CHILD) else { return };
    let node = Node::open(Path::new(&path)).expect("a kill leaves it whole");
    if node.shard.applied_index().is_none() {
        node.propose(descriptors());
    }
    let (engine, keyspace) = (node.engine.clone(), node.shard.keyspace().clone());
    std::thread::spawn(move || {
        loop {
            assert!(engine.flush(&keyspace).expect("flushed"));
            assert!(engine.compact(&keyspace).expect("compacted"));
        }
    });
    let mut out = std::io::stdout();
    for number in node.shard.applied_index().expect("applied") + 1.. {
        node.propose(put(number, 5_000));
        writeln!(out, "applied {number}").expect("heard");
        out.flush().expect("heard");
    }
}

#[test]
fn case_25_a_kill_while_tables_are_flushed_and_compacted_leaves_the_same_state() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("data");
    let mut applied = 0;
    for kill in 1..=8u64 {
        let mut child = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "child_that_flushes_until_it_is_killed", "--nocapture"])
            .env(CHILD, &path)
            .stdout(Stdio::piped())
            .spawn()
            .expect("a child");
        let mut lines = BufReader::new(child.stdout.take().expect("piped"));
        // A whole line of the child; what is in the pipe when it is killed counts too, but for half a line.
        let mut hear = || {
            let mut line = String::new();
            lines.read_line(&mut line).expect("read");
            let line = line.strip_suffix('\n')?;
            // The first answer shares its line with the test runner.
            let Some((_, number)) = line.split_once("applied ") else { return Some(false) };
            applied = number.parse::<u64>().expect("a number");
            Some(true)
        };
        let mut left = 10 + kill * 7;
        while left > 0 {
            left -= u64::from(hear().expect("the child goes on"));
        }
        // An answer comes at one and the same place of the child's work: kills come a little later, each at another.
        for _ in 0..kill * 3_000 {
            std::thread::yield_now();
        }
        child.kill().expect("killed");
        child.wait().expect("gone");
        while hear().is_some() {}
        let node = Node::open(&path).expect("a kill leaves it whole");
        assert!(node.shard.applied_index() >= Some(applied), "kill {kill}");
        node.assert_sound();
        let again = Shard::open(&Engine::in_memory(), SHARD, 0).expect("memory");
        for entry in node.log.entries(GROUP, 0..u64::MAX).expect("read") {
            let entry = Entry { log_id: entry.id, payload: Payload::Encoded(&entry.payload) };
            again.apply(&[entry]).expect("a healthy shard");
        }
        assert_eq!(node.hash(), again.hash(Points::ALL).expect("read"), "kill {kill}");
    }
}
