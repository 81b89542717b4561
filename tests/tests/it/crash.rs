//! Kill −9 under load: nothing acknowledged is lost, nothing is half there, and the server is back in time.

use std::time::Duration;

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
