//! A process that appends to the log is killed, again and again: what it had said was durable is there.
//!
//! The test runs its own binary as the process to be killed; the ledger of what was acknowledged is kept here.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;

use bytes::Bytes;
use storage::log::{Entry, GroupId, GroupInit, Identity, Log, LogId, Options, Recovered};

const CHILD: &str = "KEYSTEAD_TEST_LOG_DIRECTORY";
const GROUPS: u32 = 3;
const KILLS: u64 = 12;

fn open(path: &Path) -> (Log, Recovered) {
    let identity = Identity { cluster: 1, node: 1, incarnation: 77 };
    let options = Options { segment_bytes: 256 << 10, first_segment_bytes: 64 << 10, ..Options::default() };
    Log::open(path, options, identity).expect("the log opens")
}

fn entry(group: GroupId, index: u64) -> Entry {
    let id = LogId { term: 1, node: 1, index };
    let payload = Bytes::from(format!("{group}:{index}").repeat(1 + index as usize % 40));
    Entry { id, kind: 0, payload }
}

/// The process that is killed. Says `group index` on its output for each entry that is durable.
#[test]
fn child_that_appends_until_it_is_killed() {
    let Some(path) = std::env::var_os(CHILD) else { return };
    let (log, _) = open(Path::new(&path));
    let (sender, receiver) = mpsc::channel();
    for group in (0..GROUPS).map(GroupId) {
        if log.state(group).is_err() {
            log.create_group(group, GroupInit::default(), Box::new(|_| {})).unwrap();
        }
        let log = log.clone();
        let sender = sender.clone();
        std::thread::spawn(move || {
            let mut next = log.state(group).unwrap().last.map_or(0, |last| last.index + 1);
            loop {
                let (done, wait) = mpsc::channel();
                let callback = Box::new(move |result| drop(done.send(result)));
                log.append(group, vec![entry(group, next), entry(group, next + 1)], callback).unwrap();
                wait.recv().unwrap().unwrap();
                sender.send((group, next + 1)).unwrap();
                if next % 100 > 97 {
                    let upto = LogId { term: 1, node: 1, index: next - 50 };
                    log.purge_upto(group, upto, Box::new(|_| {})).unwrap();
                }
                next += 2;
            }
        });
    }
    let mut out = std::io::stdout();
    for (group, index) in receiver {
        writeln!(out, "durable {group} {index}").unwrap();
        out.flush().unwrap();
    }
}

#[test]
fn what_was_durable_survives_every_kill() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let mut durable = [None; GROUPS as usize];
    for kill in 1..=KILLS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_that_appends_until_it_is_killed", "--nocapture"])
            .env(CHILD, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        // A whole line of the child: true if it was an answer, `None` at the end. Half a line at the end is no answer.
        let mut hear = || {
            let mut line = String::new();
            out.read_line(&mut line).unwrap();
            let line = line.strip_suffix('\n')?;
            // The first answer shares its line with the test runner.
            let Some(at) = line.find("durable ") else { return Some(false) };
            let mut words = line[at..].split(' ').skip(1);
            let group: usize = words.next().unwrap().parse().unwrap();
            durable[group] = Some(words.next().unwrap().parse::<u64>().unwrap());
            Some(true)
        };
        // Kills come after a varying number of answers; those that are still in the pipe count too.
        let mut left = kill * 37;
        while left > 0 {
            left -= u64::from(hear().expect("the child goes on"));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        while hear().is_some() {}
        let (log, recovered) = open(&path);
        for group in (0..GROUPS).map(GroupId) {
            let state = &recovered.groups[&group];
            let last = state.last.map(|last| last.index);
            assert!(last >= durable[group.0 as usize], "kill {kill}: {last:?} of {durable:?}");
            for found in log.entries(group, state.first_index..u64::MAX).unwrap() {
                assert_eq!(found, entry(group, found.id.index));
            }
        }
    }
    assert!(durable.iter().all(|index| *index > Some(50)), "{durable:?}");
}
