//! `keystead bench footprint`: what the server costs when nobody asks anything, and how soon it is there.
//!
//! Invariants: a restart is measured after SIGKILL with everything acknowledged, and what was acknowledged is counted.

use std::{fmt::Write as _, fs, path::PathBuf, process::Command, time::Duration};

use clap::Args;

use super::{
    child::{Launch, Scratch, pause},
    measure::{self, Process, median},
    report::{self, Bound, Gate},
    workload,
};
use crate::exit::{Failure, Kind};

const MIB: f64 = 1_048_576.0;
/// The smaller megabyte, by which files are sold.
const MB: f64 = 1e6;
const STARTS: usize = 5;
/// A server is idle once its start has been over for this long.
const SETTLE: Duration = Duration::from_secs(2);
const ROW_BYTES: usize = 1_000;
const BATCH_ROWS: u64 = 4_096;

/// Arguments of `keystead bench footprint`.
#[derive(Args, Debug)]
#[command(
    after_help = "Gates: idle memory ≤ 64 MiB, ready on an empty directory ≤ 500 ms, ready after kill −9 ≤ 6 s \
                        (at --bytes 1GiB), stripped binary ≤ 40 MB.\nExit code 0 if all judged gates hold, 1 \
                        otherwise."
)]
pub(super) struct Options {
    /// How much is written before the kill, such as 1GiB
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = size)]
    bytes: u64,
    /// Where the directories are made [default: the system's temporary directory]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Write all figures as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Runs `keystead bench footprint`.
pub(super) fn run(options: &Options) -> Result<(), Failure> {
    let scratch = Scratch::new(options.dir.as_deref(), "bench-footprint")?;
    let probe =
        || measure::sync_time(scratch.path()).map_err(|error| Failure::from_io("the sync probe", &error));
    let before = probe()?;
    let mut gates = vec![Gate {
        name: "stripped binary, MB".to_owned(),
        value: binary_bytes(&scratch)? as f64 / MB,
        bound: Bound::AtMost(40.0),
    }];
    let mut ready = Vec::new();
    let mut resident = Vec::new();
    for number in 0..STARTS {
        let child = Launch::new(&scratch.path().join(format!("empty-{number}"))).start()?;
        ready.push(child.ready_after().as_secs_f64() * 1e3);
        if number + 1 == STARTS {
            pause(SETTLE);
            resident.extend(Process::Alone(child.pid()).resident_bytes());
        }
    }
    gates.push(Gate {
        name: "ready on an empty directory, ms".to_owned(),
        value: median(&ready),
        bound: Bound::AtMost(500.0),
    });
    if let Some(bytes) = resident.first() {
        let value = *bytes as f64 / MIB;
        gates.push(Gate { name: "idle memory, MiB".to_owned(), value, bound: Bound::AtMost(64.0) });
    }
    gates.push(restart(&scratch, options.bytes)?);
    let after = probe()?;
    // Memory and size do not depend on how calm the disk is; times do.
    let is_calm = measure::is_calm(before, after);
    let is_judged = |gate: &Gate| is_calm || gate.name.ends_with("MB") || gate.name.ends_with("MiB");
    for gate in &gates {
        println!("{}", gate.text(is_judged(gate)));
    }
    println!("raw sync µs {:.0} → {:.0}", before.as_secs_f64() * 1e6, after.as_secs_f64() * 1e6);
    if let Some(path) = &options.json {
        report::write_json(path, &gates)?;
    }
    let failed = gates.iter().filter(|gate| is_judged(gate) && !gate.holds());
    report::verdict(&failed.map(|gate| gate.name.clone()).collect::<Vec<_>>())
}

fn restart(scratch: &Scratch, bytes: u64) -> Result<Gate, Failure> {
    let launch = Launch::new(&scratch.path().join("restart"));
    let mut child = launch.start()?;
    let mut client = child.connect()?;
    client.query("CREATE TABLE footprint (id bigint PRIMARY KEY, body text)", |_| {})?;
    let rows = bytes.div_ceil(ROW_BYTES as u64).max(1);
    // No two rows alike, so that nothing compresses them away.
    let mut noise = 0x9e37_79b9_7f4a_7c15_u64;
    let mut from = 0;
    while from < rows {
        let to = rows.min(from + BATCH_ROWS);
        let mut text = String::with_capacity((to - from) as usize * (ROW_BYTES + 24));
        for id in from..to {
            let _ = write!(text, "{id}\t");
            let end = text.len() + ROW_BYTES;
            while text.len() < end {
                noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let _ = write!(text, "{:016x}", noise ^ (noise >> 29));
            }
            text.push('\n');
        }
        workload::copy_text(&mut client, "footprint", &text)?;
        from = to;
    }
    child.kill()?;
    drop(client);
    let child = launch.start()?;
    let counted = child.connect()?.rows("SELECT count(*) FROM footprint")?;
    if counted != [[Some(rows.to_string())]] {
        return Err(Failure::new(
            Kind::Answer,
            format!("{rows} rows were acknowledged, after the kill: {counted:?}"),
        ));
    }
    let name = format!("ready after kill −9 with {:.0} MiB written, s", bytes as f64 / MIB);
    Ok(Gate { name, value: child.ready_after().as_secs_f64(), bound: Bound::AtMost(6.0) })
}

/// Size without symbols: of the file itself where `strip` is not there or finds nothing to do.
fn binary_bytes(scratch: &Scratch) -> Result<u64, Failure> {
    let failed = |error: std::io::Error| Failure::from_io("the binary", &error);
    let binary = std::env::current_exe().map_err(failed)?;
    let stripped = scratch.path().join("stripped");
    let whole = fs::metadata(&binary).map_err(failed)?.len();
    let done = Command::new("strip").arg("-o").arg(&stripped).arg(&binary).output();
    let is_stripped = done.is_ok_and(|output| output.status.success());
    Ok(if is_stripped { fs::metadata(&stripped).map_err(failed)?.len().min(whole) } else { whole })
}

/// Bytes with a unit.
fn size(text: &str) -> Result<u64, String> {
    let digits = text.len() - text.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
    let factor = match text[digits..].trim() {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        unit => return Err(format!("unit {unit:?} is none of B, KiB, MiB, GiB")),
    };
    let number: u64 =
        text[..digits].parse().map_err(|_| "a number with a unit is due, such as 256MiB".to_owned())?;
    number.checked_mul(factor).ok_or_else(|| "too large".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_binary_units() {
        assert_eq!(size("256MiB"), Ok(256 << 20));
        assert_eq!(size("1GiB"), Ok(1 << 30));
        assert_eq!(size("77"), Ok(77));
        assert!(size("1GB").is_err());
        assert!(size("MiB").is_err());
        assert!(size("99999999999999GiB").is_err());
    }
}
