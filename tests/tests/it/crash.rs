//! Kill −9 under load: nothing acknowledged is lost, nothing is half there, and the server is back in time.

use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use tests::keystead::{self, Keystead};
use tests::torture::{self, Plan};

use crate::subject::Subject;

#[test]
fn nothing_acknowledged_is_lost_when_the_process_is_killed() {
    let kills = std::env::var("KEYSTEAD_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(50);
    let seed = crate::subject::seed();
    // The oracle syncs its whole directory when it recovers; the promise is the server's.
    let ready_max = Duration::from_secs(if crate::subject::is_oracle() { 60 } else { 5 });
    let plan = Plan { kills, workers: 6, seed, ready_max };
    println!("{plan:?}");
    let report = match Subject::start_durable() {
        Subject::Keystead(mut server) => torture::run(&mut server, plan),
        Subject::Oracle(mut oracle) => torture::run(&mut oracle, plan),
    };
    let report = report.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    println!("{report:?}");
    assert_eq!(report.kills, kills);
    assert!(
        report.acknowledged > u64::from(kills) * 10,
        "too little was written to prove anything: {report:?}"
    );
    assert!(report.unknown > 0, "no kill met an operation in flight: {report:?}");
}

/// How a process ends that ends itself at a cut point.
const ABORTED: i32 = 6;

/// Met when the engine has more than three journals of 64 MiB: in the full run only.
const FLUSHED: &str = "checkpoint.flushed";

/// The server's own list: it prints it when it is asked for a point that it does not have.
fn cut_points() -> Vec<String> {
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    let mut server = Keystead::at(&data, &[], &[("KEYSTEAD_CUT".to_owned(), "nosuch".to_owned())]);
    let status = server.attempt().unwrap().expect_err("there is no such point");
    assert_eq!(status.code(), Some(78));
    let said = server.log();
    let (_, list) = said.trim().rsplit_once("there are: ").expect("it says what there is");
    list.split(", ").map(String::from).collect()
}

/// The process ends itself between every two steps that matter, and nothing acknowledged is lost.
#[test]
fn nothing_acknowledged_is_lost_at_any_cut_point() {
    const WORKERS: u32 = 3;
    let points = cut_points();
    assert!(points.len() >= 20, "{points:?}");
    let place = tempfile::Builder::new().prefix("keystead-cuts-").tempdir().unwrap();
    let pace: Vec<&str> = crate::power::PACE
        .iter()
        .map(|setting| if setting.starts_with("log.keep_entries") { "log.keep_entries=0" } else { setting })
        .collect();
    let cut = |point: &str, nth: u64| vec![("KEYSTEAD_CUT".to_owned(), format!("{point}:{nth}"))];

    // Points of a first start: what it leaves is begun again.
    for (turn, point) in points.iter().enumerate().filter(|(_, point)| is_met_by_a_first_start(point)) {
        let data = place.path().join(format!("first{turn}"));
        let mut server = Keystead::at(&data, &pace, &cut(point, 1));
        let status = server.attempt().unwrap().expect_err(point);
        assert_eq!(status.signal(), Some(ABORTED), "{point}: {status}\n{}", server.log_tail());
        server.replace_environment(&[]);
        server.restart().unwrap_or_else(|error| panic!("{point}: {error}"));
        assert_eq!(server.connect().unwrap().query("CREATE TABLE t (a int)").unwrap().code(), "", "{point}");
    }

    let data = place.path().join("data");
    let mut server = Keystead::open_with(&data, &pace, &[]).unwrap();
    let mut wire = server.connect().unwrap();
    for statement in torture::preparation(WORKERS) {
        assert_eq!(wire.query(&statement).unwrap().code(), "", "{statement}");
    }
    drop(wire);
    let mut ledgers = torture::ledgers(WORKERS);
    let times = if std::env::var("KEYSTEAD_FULL").is_ok() { 5 } else { 1 };
    let seed = crate::subject::seed();
    println!("seed {seed}");
    let later = |point: &str| !point.starts_with("first.") && (times > 1 || point != FLUSHED);
    for (turn, point) in points.iter().enumerate().filter(|(_, point)| later(point)) {
        for time in 0..times {
            // Later visits of a point that is met often, the first of others.
            let nth =
                if point.starts_with("log.") || point.starts_with("apply.") { 20 + time * 7 } else { 1 };
            server.kill().unwrap();
            server.replace_environment(&cut(point, nth));
            let reached = match server.attempt().unwrap() {
                Err(status) => Some(status),
                Ok(_) => {
                    let address = server.address().unwrap();
                    for round in 0..30 {
                        if server.ended().unwrap().is_some() || point.starts_with("stop.") {
                            break;
                        }
                        // These are met when much is written.
                        if point.starts_with("segment.") || point == FLUSHED {
                            let rows = if point == FLUSHED { 400 } else { 40 };
                            torture::fill(&address, &mut ledgers[0], rows).unwrap();
                        }
                        if point.starts_with("catalog.") {
                            let ddl = format!("CREATE TABLE made_{turn}_{time}_{round} (a int)");
                            let _ = server.connect().and_then(|mut wire| wire.query(&ddl));
                        }
                        let seed = seed + (turn * 100 + round) as u64;
                        torture::load(&address, &mut ledgers, 20, seed).unwrap();
                    }
                    match point.starts_with("stop.") {
                        true => Some(server.stop().unwrap()),
                        // It may be gone for its clients and still be on its way out.
                        false => server.wait().ok(),
                    }
                }
            };
            let status = reached.unwrap_or_else(|| panic!("{point} was not reached"));
            assert_eq!(status.signal(), Some(ABORTED), "{point}: {status}\n{}", server.log_tail());
            if server.is_running() {
                server.wait().unwrap();
            }
            server.replace_environment(&[]);
            let ready = server.restart().unwrap_or_else(|error| panic!("{point}: {error}"));
            assert!(ready < Duration::from_secs(5), "{point}: ready only after {ready:?}");
            let address = server.address().unwrap();
            let checked =
                torture::audit(&address, &mut ledgers).unwrap_or_else(|error| panic!("{point}: {error}"));
            println!("{point}:{nth}: ready after {ready:?}, {checked} facts verified");
        }
    }
    let doctor = keystead::run(&["doctor", "--data", data.to_str().unwrap()]).unwrap();
    assert!(doctor.status.success(), "{}", String::from_utf8_lossy(&doctor.stdout));
}

fn is_met_by_a_first_start(point: &str) -> bool {
    ["first.", "identity.", "start."].iter().any(|kind| point.starts_with(kind))
        || ["log.before-write", "log.before-sync", "log.synced", "segment.filled", "segment.renamed"]
            .contains(&point)
        || ["apply.before", "apply.committed", "catalog.before", "catalog.committed"].contains(&point)
}
