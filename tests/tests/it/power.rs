//! Power cuts of the whole server: its disk is recorded under load, and from each cut the server starts again on a
//! directory that the cut may have left. What was acknowledged before the cut is there; nothing is half there.
//!
//! The control is the same with syncs that do nothing: it must lose, or the test could not find a loss.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tests::disk::model::{Model, Survival};
use tests::disk::{Interposer, Knob, Recording};
use tests::keystead::{self, Keystead};
use tests::torture::{self, History, Ledger};
use tests::wire::Wire;

const WORKERS: u32 = 4;
const READY_MAX: Duration = Duration::from_secs(5);
/// Small pieces and frequent checkpoints, so that a short run meets every kind of file.
pub(crate) const PACE: [&str; 10] = [
    "--set",
    "log.segment_bytes=8MiB",
    "--set",
    "log.keep_entries=100",
    "--set",
    "checkpoint.every=200ms",
    "--set",
    "checkpoint.bytes=1MiB",
    "--set",
    "memory.memtable_bytes=1MiB",
];

/// A server's disk from its first start to its end, and what its clients were told.
struct Run {
    trace: Vec<u8>,
    /// Inode of the directory above the data.
    root: u64,
    /// When each statement that made the tables was answered.
    preparation: Vec<(String, u64)>,
    histories: Vec<History>,
    data: PathBuf,
}

impl Run {
    /// Loads a server and records it. `sabotage` is done to its disk first.
    fn record(place: &Path, seed: u64, operations: usize, sabotage: impl Fn(&Recording)) -> Run {
        let interposer = Interposer::build(place).unwrap();
        let disk = place.join("disk");
        fs::create_dir(&disk).unwrap();
        let data = disk.join("data");
        let recording = interposer.record(&disk, "load").unwrap();
        sabotage(&recording);
        let mut server = Keystead::open_with(&data, &PACE, &recording.environment).unwrap();
        let address = server.address().unwrap();
        let mut wire = Wire::connect(&address).unwrap();
        let mut preparation = Vec::new();
        for statement in torture::preparation(WORKERS) {
            let reply = wire.query(&statement).unwrap();
            assert_eq!(reply.code(), "", "{statement}: {:?}", reply.error);
            preparation.push((statement, recording.position()));
        }
        drop(wire);
        let position = || recording.position();
        let histories = torture::record(&address, WORKERS, operations, seed, &position).unwrap();
        assert!(server.stop().unwrap().success());
        let root = fs::metadata(&disk).unwrap().ino();
        Run { trace: recording.trace().unwrap(), root, preparation, histories, data }
    }

    fn prepared_at(&self) -> u64 {
        self.preparation.last().map_or(0, |(_, at)| *at)
    }

    fn acknowledged(&self) -> usize {
        self.histories.iter().map(History::acknowledged).sum()
    }
}

/// What starting on an image showed.
#[derive(Debug)]
enum Fate {
    Sound {
        checked: u64,
        ready: Duration,
    },
    /// The server does not start on it, and says this.
    Refused(String),
    Wrong(String),
}

impl Fate {
    fn complaint(&self) -> Option<&str> {
        match self {
            Fate::Sound { .. } => None,
            Fate::Refused(what) | Fate::Wrong(what) => Some(what),
        }
    }
}

/// Starts a server on what a cut left and looks whether everything told before the cut is there.
fn judge(run: &Run, cut: u64, image: &Path) -> Fate {
    let data = image.join("data");
    let mut server = Keystead::at(&data, &PACE, &[]);
    let ready = match server.restart() {
        Ok(ready) => ready,
        Err(error) => return Fate::Refused(error.to_string()),
    };
    let checked = if cut < run.prepared_at() {
        tables_are_there(run, cut, &server)
    } else {
        let mut ledgers: Vec<Ledger> = run.histories.iter().map(|history| history.at(cut)).collect();
        server.address().map_err(|e| e.to_string()).and_then(|address| torture::audit(&address, &mut ledgers))
    };
    let checked = match checked {
        Ok(checked) => checked,
        Err(error) => return Fate::Wrong(error),
    };
    let doctor = keystead::run(&["doctor", "--data", data.to_str().unwrap()]).unwrap();
    if !doctor.status.success() {
        return Fate::Wrong(format!("doctor: {}", String::from_utf8_lossy(&doctor.stdout)));
    }
    Fate::Sound { checked, ready }
}

fn tables_are_there(run: &Run, cut: u64, server: &Keystead) -> Result<u64, String> {
    let mut wire = server.connect().map_err(|e| e.to_string())?;
    let told = run.preparation.iter().filter(|(_, at)| *at <= cut);
    let tables = told.filter_map(|(sql, _)| sql.strip_prefix("CREATE TABLE ")?.split(' ').next());
    let mut checked = 1;
    for table in tables {
        let reply = wire.query(&format!("SELECT count(*) FROM {table}")).map_err(|e| e.to_string())?;
        if let Some(error) = reply.error {
            return Err(format!("acknowledged table {table} is lost: {}", error.message));
        }
        checked += 1;
    }
    Ok(checked)
}

/// Cuts the power at random moments, in order; `survival` says what each leaves.
fn cut_power(
    run: &Run,
    rng: &mut StdRng,
    images: usize,
    place: &Path,
    survival: impl Fn(usize) -> Survival,
) -> Vec<(String, Fate)> {
    let (begun, end) = (run.prepared_at(), run.trace.len() as u64);
    // Every eighth falls into the first start or the making of the tables.
    let cut = |turn: usize, rng: &mut StdRng| match turn % 8 {
        0 => rng.random_range(0..begun),
        _ => rng.random_range(begun..end),
    };
    let mut cuts: Vec<(u64, usize)> = (0..images).map(|turn| (cut(turn, rng), turn)).collect();
    cuts.sort_unstable();
    let mut model = Model::new();
    let mut fates = Vec::new();
    for (cut, turn) in cuts {
        model.advance(&run.trace, cut, run.root);
        let survival = survival(turn);
        let image = place.join(format!("image{turn}"));
        model.image(survival, rng, &image).unwrap();
        let fate = judge(run, cut, &image);
        let name =
            format!("cut {turn} at {cut} of {end}, {survival:?}, {} changes not synced", model.pending());
        println!("{name}: {fate:?}");
        if fate.complaint().is_some() {
            println!("  names not synced: {:.600}", model.unsynced_names().join(", "));
        }
        fs::remove_dir_all(&image).unwrap();
        fates.push((name, fate));
    }
    fates
}

/// Every file below two directories, compared byte by byte.
fn difference(a: &Path, b: &Path) -> Option<String> {
    let output = std::process::Command::new("diff").arg("-rq").arg(a).arg(b).output().unwrap();
    (!output.status.success()).then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

fn is_full() -> bool {
    std::env::var("KEYSTEAD_FULL").is_ok()
}

#[test]
fn what_was_acknowledged_survives_a_power_cut_of_the_whole_server() {
    let seed = crate::subject::seed();
    println!("seed {seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let place = tempfile::Builder::new().prefix("keystead-power-").tempdir().unwrap();
    let (images, operations) = if is_full() { (200, 3_000) } else { (27, 400) };
    let run = Run::record(place.path(), seed, operations, |_| {});
    assert!(run.acknowledged() >= operations, "too little was written to prove anything");

    // The recording is whole: replayed to its end it is the directory as it is.
    let mut model = Model::new();
    model.advance(&run.trace, u64::MAX, run.root);
    let replayed = place.path().join("replayed");
    model.image(Survival::Everything, &mut rng, &replayed).unwrap();
    if let Some(difference) = difference(&replayed.join("data"), &run.data) {
        panic!("the recording does not give the directory: {difference}");
    }

    let fates = cut_power(&run, &mut rng, images, place.path(), Survival::of_turn);
    let mut wrong = Vec::new();
    let mut verified = 0;
    for (name, fate) in &fates {
        match fate {
            Fate::Sound { ready, .. } if *ready > READY_MAX => {
                wrong.push(format!("{name}: ready after {ready:?}"))
            }
            Fate::Sound { checked, .. } => verified += checked,
            Fate::Refused(what) | Fate::Wrong(what) => wrong.push(format!("{name}: {what}")),
        }
    }
    println!("{images} images, {} acknowledged, {verified} facts verified", run.acknowledged());
    assert!(wrong.is_empty(), "seed {seed}: {} of {images} cuts:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn the_power_cut_of_a_server_whose_syncs_do_nothing_loses() {
    let seed = crate::subject::seed();
    println!("seed {seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let place = tempfile::Builder::new().prefix("keystead-power-").tempdir().unwrap();
    let run =
        Run::record(place.path(), seed, 200, |recording| recording.control.set(Knob::NoSync, 1).unwrap());
    let fates = cut_power(&run, &mut rng, 8, place.path(), |_| Survival::Prefix);
    let is_lost =
        |what: &str| ["lost", "acknowledged", "does not exist"].iter().any(|word| what.contains(word));
    let lost = fates.iter().filter_map(|(_, fate)| fate.complaint()).filter(|what| is_lost(what)).count();
    println!("{lost} of {} images have lost what was acknowledged", fates.len());
    assert!(lost * 2 > fates.len(), "seed {seed}: too few losses were found: {fates:#?}");
}
