//! A flipped bit in any file of a stopped server: it is refused, reported, or without effect; never another answer.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tests::keystead::Keystead;

const QUESTIONS: [&str; 4] = [
    "SELECT count(*), sum(id), min(v), max(v) FROM kept",
    "SELECT id, v, pad FROM kept WHERE id % 97 = 0 ORDER BY id",
    "SELECT id FROM kept WHERE v = 500 ORDER BY id",
    "SELECT name, n FROM named ORDER BY name",
];

/// What became of one flip.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    RefusedAtStart,
    RefusedWhenRead,
    WithoutEffect,
    OtherAnswer(String),
}

fn judge(started: Option<Vec<Result<String, String>>>, truth: &[String]) -> Fate {
    let Some(answers) = started else { return Fate::RefusedAtStart };
    let mut fate = Fate::WithoutEffect;
    for (answer, right) in answers.into_iter().zip(truth) {
        match answer {
            Ok(found) if found == *right => {}
            Ok(found) => return Fate::OtherAnswer(found.chars().take(200).collect()),
            Err(_) => fate = Fate::RefusedWhenRead,
        }
    }
    fate
}

#[test]
fn a_changed_answer_is_found_and_an_error_is_not_one() {
    let truth = ["1".to_owned(), "2".to_owned()];
    let ok = |text: &str| Ok::<_, String>(text.to_owned());
    assert_eq!(judge(None, &truth), Fate::RefusedAtStart);
    assert_eq!(judge(Some(vec![ok("1"), ok("2")]), &truth), Fate::WithoutEffect);
    assert_eq!(judge(Some(vec![ok("1"), Err("XX001".to_owned())]), &truth), Fate::RefusedWhenRead);
    assert!(matches!(judge(Some(vec![ok("1"), ok("3")]), &truth), Fate::OtherAnswer(_)));
}

fn ask(server: &Keystead) -> Vec<Result<String, String>> {
    let mut wire = match server.connect() {
        Ok(wire) => wire,
        Err(error) => return QUESTIONS.iter().map(|_| Err(error.to_string())).collect(),
    };
    let mut answer = |sql: &str| -> Result<String, String> {
        let reply = wire.query(sql).map_err(|e| e.to_string())?;
        match reply.error {
            Some(error) => Err(error.code),
            None => Ok(format!("{:?}", reply.answers.last().map(|a| &a.rows))),
        }
    };
    QUESTIONS.iter().map(|sql| answer(sql)).collect()
}

fn files(place: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(place).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files(&path, found);
        } else if path.metadata().is_ok_and(|m| m.len() > 0) {
            found.push(path);
        }
    }
}

/// Files of one kind have one name but for their numbers.
fn kind(root: &Path, path: &Path) -> String {
    let name = path.strip_prefix(root).unwrap().to_string_lossy();
    let mut kind = String::new();
    for c in name.chars() {
        let c = if c.is_ascii_digit() { '#' } else { c };
        if c != '#' || !kind.ends_with('#') {
            kind.push(c);
        }
    }
    kind
}

#[test]
fn a_flipped_bit_in_any_file_never_changes_an_answer() {
    let seed = crate::subject::seed();
    let flips = if std::env::var("KEYSTEAD_FULL").is_ok() { 50 } else { 10 };
    println!("seed {seed}, {flips} flips per kind of file");
    let mut rng = StdRng::seed_from_u64(seed);
    let place = tempfile::Builder::new().prefix("keystead-damage-").tempdir().unwrap();
    let original = place.path().join("original");
    let mut server = Keystead::open(&original).unwrap();
    let mut wire = server.connect().unwrap();
    for sql in [
        "CREATE TABLE kept (id int PRIMARY KEY, v int, pad text)",
        "CREATE INDEX kept_v ON kept (v)",
        "CREATE TABLE named (name text PRIMARY KEY, n numeric)",
        "INSERT INTO kept SELECT g, g % 1000, repeat('p', g % 200) FROM generate_series(1, 20000) g",
        "INSERT INTO named SELECT 'name ' || g, g / 7.0 FROM generate_series(1, 500) g",
        "UPDATE kept SET v = v + 1 WHERE id % 3 = 0",
        "DELETE FROM kept WHERE id % 11 = 0",
    ] {
        let reply = wire.query(sql).unwrap();
        assert!(reply.error.is_none(), "{sql}: {:?}", reply.error);
    }
    let truth: Vec<String> = ask(&server).into_iter().map(Result::unwrap).collect();
    drop(wire);
    assert!(server.stop().unwrap().success());
    drop(server);

    let mut all = Vec::new();
    files(&original, &mut all);
    let mut kinds: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for path in all {
        kinds.entry(kind(&original, &path)).or_default().push(path);
    }
    let mut fates: BTreeMap<String, BTreeMap<String, u32>> = BTreeMap::new();
    let mut wrong = Vec::new();
    for (kind, paths) in &kinds {
        for _ in 0..flips {
            let copy = place.path().join("copy");
            let _ = fs::remove_dir_all(&copy);
            assert!(Command::new("cp").arg("-a").arg(&original).arg(&copy).status().unwrap().success());
            let path = &paths[rng.random_range(0..paths.len())];
            let target = copy.join(path.strip_prefix(&original).unwrap());
            let file = File::options().read(true).write(true).open(&target).unwrap();
            // Most of a preallocated file is zeros that nothing reads: half the flips go where there is something.
            let used = used_bytes(&file);
            let length = if rng.random() { used } else { file.metadata().unwrap().len() };
            let (offset, bit) = (rng.random_range(0..length.max(1)), rng.random_range(0..8u8));
            let mut byte = [0];
            file.read_exact_at(&mut byte, offset).unwrap();
            file.write_all_at(&[byte[0] ^ (1 << bit)], offset).unwrap();
            drop(file);
            let started = Keystead::open(&copy);
            let fate = judge(started.ok().as_ref().map(ask), &truth);
            if let Fate::OtherAnswer(answer) = &fate {
                wrong.push(format!("{kind} {} offset {offset} bit {bit}: {answer}", target.display()));
            }
            let name = format!("{fate:?}").split('(').next().unwrap_or_default().to_owned();
            *fates.entry(kind.clone()).or_default().entry(name).or_default() += 1;
        }
    }
    for (kind, fates) in &fates {
        println!("{kind}: {fates:?}");
    }
    assert!(wrong.is_empty(), "seed {seed}: {} wrong answers:\n{}", wrong.len(), wrong.join("\n"));
    let refused: u32 =
        fates.values().flatten().filter(|(name, _)| name.starts_with("Refused")).map(|(_, n)| n).sum();
    assert!(refused > 0, "no flip met anything that is read");
}

/// The length without the zeros at the end.
fn used_bytes(file: &File) -> u64 {
    let length = file.metadata().unwrap().len();
    let mut bytes = vec![0; length as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes.iter().rposition(|b| *b != 0).map_or(length, |last| last as u64 + 1)
}
