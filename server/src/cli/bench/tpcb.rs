//! The `tpcb-like` load: by pgbench where it is installed, else by the same transaction of our own; and the check that
//! what a bank's four tables hold still agrees, also after a kill in the middle.
//!
//! Invariants: the four sums change together. They are compared as changes, since other loads update accounts too.

use std::{
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use super::{
    child::{Child, Launch, pause},
    peer,
    sql::{Seat, Slice, seats, slice},
    workload::{Kind, Sizes},
};
use crate::{
    cli::client::{Client, Target},
    exit::{Failure, Kind as End},
};

/// Sums of accounts, tellers, branches and history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sums([i64; 4]);

impl Sums {
    /// What the tables hold.
    pub(super) fn read(client: &mut Client) -> Result<Self, Failure> {
        let statements = [
            "SELECT coalesce(sum(abalance), 0) FROM pgbench_accounts",
            "SELECT coalesce(sum(tbalance), 0) FROM pgbench_tellers",
            "SELECT coalesce(sum(bbalance), 0) FROM pgbench_branches",
            "SELECT coalesce(sum(delta), 0) FROM pgbench_history",
        ];
        let mut sums = [0; 4];
        for (sum, sql) in sums.iter_mut().zip(statements) {
            let rows = client.rows(sql)?;
            let value = rows.into_iter().flatten().next().flatten();
            let wrong = || Failure::new(End::Software, format!("{sql}: not a number: {value:?}"));
            *sum = value.as_deref().and_then(|text| text.parse().ok()).ok_or_else(wrong)?;
        }
        Ok(Self(sums))
    }

    /// The one change of all four since `before`.
    pub(super) fn change_since(self, before: Self) -> Result<i64, String> {
        let changes: Vec<i64> = self.0.iter().zip(before.0).map(|(now, then)| now - then).collect();
        if changes.iter().all(|change| *change == changes[0]) {
            return Ok(changes[0]);
        }
        Err(format!("accounts, tellers, branches and history changed by {changes:?}: not the same"))
    }
}

/// One slice by pgbench.
pub(super) fn pgbench(target: &Target, clients: usize, time: Duration) -> Result<f64, Failure> {
    let program = peer::find("pgbench")
        .ok_or_else(|| Failure::new(End::Unavailable, "pgbench is not installed (Debian: postgresql-15)"))?;
    let output = Command::new(program)
        .args(["-n", "-b", "tpcb-like", "-j", "2", "-c", &clients.to_string()])
        .args(["-T", &time.as_secs().max(1).to_string()])
        .args(["-h", &target.host, "-p", &target.port.to_string(), "-U", &target.user, &target.database])
        .env("PGPASSWORD", &target.password)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Failure::from_io("pgbench", &error))?;
    let (said, complained) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let rate = rate_of(&said).filter(|_| output.status.success());
    rate.ok_or_else(|| {
        let reason = complained.lines().find(|line| line.contains("error") || line.contains("ERROR"));
        Failure::new(
            End::Answer,
            format!("pgbench: {}", reason.or(complained.lines().next()).unwrap_or("no rate")),
        )
    })
}

fn rate_of(output: &str) -> Option<f64> {
    let line = output.lines().find_map(|line| line.strip_prefix("tps = "))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Kills our server in the middle of the load, starts it again and compares the sums.
pub(super) fn survive(
    launch: &Launch,
    child: &mut Child,
    sizes: Sizes,
    clients: usize,
    before: Sums,
    time: Duration,
) -> Result<String, Failure> {
    let target = child.target().clone();
    let load = std::thread::spawn(move || -> Result<u64, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Failure::new(End::System, error.to_string()))?;
        runtime.block_on(async {
            let mut seats: Vec<Seat> = seats(&target, Kind::Tpcb, clients, sizes).await?;
            // Broken connections are what is asked for here.
            let done: Slice = slice(&mut seats, Kind::Tpcb, time * 4).await;
            Ok(done.operations)
        })
    });
    pause(time);
    child.kill()?;
    let acknowledged = load.join().map_err(|_| Failure::new(End::Software, "the load panicked"))??;
    *child = launch.start()?;
    let after = Sums::read(&mut child.connect()?)?;
    let change = after
        .change_since(before)
        .map_err(|wrong| Failure::new(End::Answer, format!("after kill −9: {wrong}")))?;
    Ok(format!(
        "kill −9 after {acknowledged} acknowledged transactions: the four sums agree (changed by {change}); ready again \
         after {:.0} ms",
        child.ready_after().as_secs_f64() * 1e3
    ))
}

/// Whether pgbench is there and both servers let it work; else why not.
pub(super) fn is_pgbench_usable(targets: &[&Target]) -> Result<(), String> {
    let missing =
        peer::find("pgbench").filter(|path: &std::path::PathBuf| Path::new(path).is_file()).is_none();
    if missing {
        return Err("pgbench is not installed".to_owned());
    }
    for target in targets {
        pgbench(target, 1, Duration::from_secs(1))
            .map_err(|failure| format!("port {}: {failure}", target.port))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_read_from_what_pgbench_says() {
        let output = "latency average = 3.1 ms\ntps = 5132.913 (without initial connection time)\n";
        assert!(rate_of(output).is_some_and(|rate| (rate - 5_132.913).abs() < 1e-9));
        assert_eq!(rate_of("nothing"), None);
    }

    #[test]
    fn half_a_transaction_shows_in_the_sums() {
        let before = Sums([5, 0, 0, 0]);
        assert_eq!(Sums([15, 10, 10, 10]).change_since(before), Ok(10));
        assert!(Sums([15, 10, 10, 0]).change_since(before).is_err());
    }
}
