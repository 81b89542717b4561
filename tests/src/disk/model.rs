//! What a disk holds, told from a trace: what is durable, what is not yet, and every directory a power cut may leave.
//!
//! Invariants:
//! - What a finished sync covered is in every image: the bytes of a file, or the names of a directory, that were changed
//!   before that sync began.
//! - Of what is not covered any part may be missing, in any order: bytes by sector, names one by one, sizes by themselves.
//!   A rename is there or not, never half.
//! - Syncing a file makes the name durable that it has at that moment, as it does on ext4, XFS and Btrfs although fsync(2)
//!   does not promise it. Names of directories, removals and later renames need a sync of the directory.
//! - All chance comes from the generator that is given.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;

use rand::Rng;
use rand::rngs::StdRng;

const PAGE: u64 = 4096;
const HEAD: usize = 40;

const CREATE: u32 = 1;
const MKDIR: u32 = 2;
const WRITE: u32 = 3;
const ZEROS: u32 = 4;
const TRUNCATE: u32 = 5;
const SYNC_BEGIN: u32 = 6;
const SYNC_END: u32 = 7;
const RENAME: u32 = 8;
const UNLINK: u32 = 9;
const UNLINK_AT: u32 = 10;
const RMDIR: u32 = 11;
const RMDIR_AT: u32 = 12;
const LINK: u32 = 13;

/// What a power cut leaves of that which was not synced.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Survival {
    /// Nothing.
    Nothing,
    /// Everything, as after a kill.
    Everything,
    /// What was done first, up to somewhere, the last write torn.
    Prefix,
    /// The names, and no bytes.
    Names,
    /// The bytes, and no names.
    Bytes,
    /// Any part, by sectors of so many bytes; each is kept with this chance.
    Any {
        /// 512 or 4096.
        sector: u64,
        /// From 0 to 1.
        keep: f64,
    },
}

impl Survival {
    /// The kinds of power cut, in turns.
    pub fn of_turn(turn: usize) -> Survival {
        const ALL: [Survival; 9] = [
            Survival::Any { sector: 512, keep: 0.5 },
            Survival::Prefix,
            Survival::Any { sector: 4096, keep: 0.5 },
            Survival::Nothing,
            Survival::Any { sector: 512, keep: 0.9 },
            Survival::Names,
            Survival::Any { sector: 4096, keep: 0.1 },
            Survival::Bytes,
            Survival::Everything,
        ];
        ALL[turn % ALL.len()]
    }
}

/// Bytes of a file; pages that are zero are not kept.
#[derive(Clone, Default, PartialEq)]
struct Content {
    size: u64,
    pages: BTreeMap<u64, Box<[u8; PAGE as usize]>>,
}

impl Content {
    fn write(&mut self, offset: u64, bytes: &[u8]) {
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let (page, within) = (at / PAGE, (at % PAGE) as usize);
            let step = (PAGE as usize - within).min(bytes.len() - done);
            let page = self.pages.entry(page).or_insert_with(|| Box::new([0; PAGE as usize]));
            page[within..within + step].copy_from_slice(&bytes[done..done + step]);
            done += step;
        }
        self.size = self.size.max(offset + bytes.len() as u64);
    }

    fn zero(&mut self, offset: u64, length: u64) {
        let end = offset + length;
        let pages: Vec<u64> = self.pages.range(offset / PAGE..end.div_ceil(PAGE)).map(|(n, _)| *n).collect();
        for number in pages {
            let (from, to) = (number * PAGE, (number + 1) * PAGE);
            if from >= offset && to <= end {
                self.pages.remove(&number);
            } else if let Some(page) = self.pages.get_mut(&number) {
                let within = (offset.max(from) - from) as usize..(end.min(to) - from) as usize;
                page[within].fill(0);
            }
        }
        self.size = self.size.max(end);
    }

    fn truncate(&mut self, size: u64) {
        if size < self.size {
            let old = self.size;
            self.zero(size, old - size);
        }
        self.size = size;
    }

    fn apply(&mut self, change: &Change) {
        match change {
            Change::Write { offset, bytes } => self.write(*offset, bytes),
            Change::Zeros { offset, length } => self.zero(*offset, *length),
            Change::Truncate { size } => self.truncate(*size),
        }
    }

    fn save(&self, path: &Path) -> io::Result<()> {
        let file = File::options().write(true).create_new(true).open(path)?;
        file.set_permissions(fs::Permissions::from_mode(0o600))?;
        file.set_len(self.size)?;
        for (number, page) in &self.pages {
            let from = number * PAGE;
            let length = self.size.saturating_sub(from).min(PAGE) as usize;
            if page[..length].iter().any(|byte| *byte != 0) {
                file.write_all_at(&page[..length], from)?;
            }
        }
        Ok(())
    }
}

/// A change of a file.
#[derive(Clone)]
enum Change {
    Write { offset: u64, bytes: Vec<u8> },
    Zeros { offset: u64, length: u64 },
    Truncate { size: u64 },
}

/// A change of a directory.
#[derive(Clone)]
enum Renaming {
    Add { name: String, node: usize },
    Remove { name: String, node: usize },
    Move { from: String, to: String, node: usize },
}

fn rename(names: &mut BTreeMap<String, usize>, change: &Renaming) {
    match change {
        Renaming::Add { name, node } => drop(names.insert(name.clone(), *node)),
        Renaming::Remove { name, node } => {
            if names.get(name) == Some(node) {
                names.remove(name);
            }
        }
        Renaming::Move { from, to, node } => {
            if names.get(from) == Some(node) {
                names.remove(from);
            }
            names.insert(to.clone(), *node);
        }
    }
}

enum Node {
    File { durable: Content, pending: Vec<(u64, Change)> },
    Folder { durable: BTreeMap<String, usize>, live: BTreeMap<String, usize>, pending: Vec<(u64, Renaming)> },
}

/// A disk below one directory.
pub struct Model {
    nodes: Vec<Node>,
    by_inode: HashMap<u64, usize>,
    /// Node, and the first change after those the sync covers.
    syncs: HashMap<u64, (usize, u64)>,
    next_change: u64,
    /// Where the replayed part of the trace ends.
    position: usize,
}

struct Record<'a> {
    op: u32,
    inode: u64,
    offset: u64,
    length: u64,
    path: &'a str,
    other: &'a str,
    data: &'a [u8],
}

fn read(trace: &[u8]) -> Option<(Record<'_>, usize)> {
    let u32_at = |at: usize| Some(u32::from_le_bytes(trace.get(at..at + 4)?.try_into().ok()?));
    let u64_at = |at: usize| Some(u64::from_le_bytes(trace.get(at..at + 8)?.try_into().ok()?));
    let bytes = u32_at(0)? as usize;
    let (path, other) = (u32_at(32)? as usize, u32_at(36)? as usize);
    let body = trace.get(HEAD..bytes)?;
    let text = |from: usize, to: usize| std::str::from_utf8(body.get(from..to)?).ok();
    let record = Record {
        op: u32_at(4)?,
        inode: u64_at(8)?,
        offset: u64_at(16)?,
        length: u64_at(24)?,
        path: text(0, path)?,
        other: text(path, path + other)?,
        data: body.get(path + other..)?,
    };
    Some((record, bytes))
}

impl Default for Model {
    fn default() -> Self {
        Self::new()
    }
}

impl Model {
    /// An empty directory.
    pub fn new() -> Model {
        let root = Node::Folder { durable: BTreeMap::new(), live: BTreeMap::new(), pending: Vec::new() };
        Model {
            nodes: vec![root],
            by_inode: HashMap::new(),
            syncs: HashMap::new(),
            next_change: 0,
            position: 0,
        }
    }

    /// Replays a trace up to a position, from where it stands. `root` is the inode of the directory itself.
    pub fn advance(&mut self, trace: &[u8], to: u64, root: u64) {
        self.by_inode.entry(root).or_insert(0);
        while self.position < trace.len() {
            let Some((record, bytes)) = read(&trace[self.position..]) else { return };
            if (self.position + bytes) as u64 > to {
                return;
            }
            self.position += bytes;
            self.take(&record);
        }
    }

    /// How many changes are not durable.
    pub fn pending(&self) -> usize {
        let of = |node: &Node| match node {
            Node::File { pending, .. } => pending.len(),
            Node::Folder { pending, .. } => pending.len(),
        };
        self.nodes.iter().map(of).sum()
    }

    /// The names that a power cut may take back or leave, as the directory's path and what was done in it.
    pub fn unsynced_names(&self) -> Vec<String> {
        let mut found = Vec::new();
        self.find_unsynced_names(0, "", &mut found);
        found
    }

    fn find_unsynced_names(&self, node: usize, path: &str, found: &mut Vec<String>) {
        let Node::Folder { live, pending, .. } = &self.nodes[node] else { return };
        found.extend(pending.iter().map(|(_, change)| match change {
            Renaming::Add { name, .. } => format!("{path}: +{name}"),
            Renaming::Remove { name, .. } => format!("{path}: -{name}"),
            Renaming::Move { from, to, .. } => format!("{path}: {from} → {to}"),
        }));
        for (name, node) in live {
            self.find_unsynced_names(*node, &format!("{path}/{name}"), found);
        }
    }

    fn take(&mut self, record: &Record<'_>) {
        let offset = record.offset;
        match record.op {
            CREATE | MKDIR => {
                let node = self.nodes.len();
                self.nodes.push(match record.op {
                    CREATE => Node::File { durable: Content::default(), pending: Vec::new() },
                    _ => {
                        Node::Folder { durable: BTreeMap::new(), live: BTreeMap::new(), pending: Vec::new() }
                    }
                });
                self.by_inode.insert(record.inode, node);
                let (folder, name) = self.place(record.path);
                self.change_names(folder, Renaming::Add { name, node });
            }
            WRITE => self.change(record.inode, Change::Write { offset, bytes: record.data.to_vec() }),
            ZEROS => self.change(record.inode, Change::Zeros { offset, length: record.length }),
            TRUNCATE => self.change(record.inode, Change::Truncate { size: record.length }),
            SYNC_BEGIN => {
                let node = self.by_inode[&record.inode];
                self.syncs.insert(record.offset, (node, self.next_change));
            }
            SYNC_END => {
                let (node, until) = self.syncs.remove(&record.offset).expect("a sync that ends has begun");
                self.make_durable(node, until);
            }
            RENAME => {
                let (folder, from) = self.place(record.path);
                let (to_folder, to) = self.place(record.other);
                assert_eq!(
                    folder, to_folder,
                    "a rename between directories: {} {}",
                    record.path, record.other
                );
                let node = self.live(folder)[&from];
                self.change_names(folder, Renaming::Move { from, to, node });
            }
            UNLINK | RMDIR => {
                let (folder, name) = self.place(record.path);
                let node = self.live(folder)[&name];
                self.change_names(folder, Renaming::Remove { name, node });
            }
            UNLINK_AT | RMDIR_AT => {
                let (folder, name) = (self.by_inode[&record.inode], record.path.to_owned());
                let node = self.live(folder)[&name];
                self.change_names(folder, Renaming::Remove { name, node });
            }
            LINK => {
                let (folder, name) = self.place(record.path);
                let node = self.live(folder)[&name];
                let (folder, name) = self.place(record.other);
                self.change_names(folder, Renaming::Add { name, node });
            }
            other => panic!("no such record: {other}"),
        }
    }

    fn live(&self, folder: usize) -> &BTreeMap<String, usize> {
        match &self.nodes[folder] {
            Node::Folder { live, .. } => live,
            Node::File { .. } => panic!("a file is used as a directory"),
        }
    }

    /// The directory of a path, and the name in it.
    fn place(&self, path: &str) -> (usize, String) {
        let (folders, name) = path.rsplit_once('/').unwrap_or(("", path));
        let mut node = 0;
        for part in folders.split('/').filter(|part| !part.is_empty()) {
            node = self.live(node)[part];
        }
        (node, name.to_owned())
    }

    fn change(&mut self, inode: u64, change: Change) {
        let Node::File { pending, .. } = &mut self.nodes[self.by_inode[&inode]] else {
            panic!("a directory is written to")
        };
        pending.push((self.next_change, change));
        self.next_change += 1;
    }

    fn change_names(&mut self, folder: usize, change: Renaming) {
        let Node::Folder { live, pending, .. } = &mut self.nodes[folder] else {
            panic!("a file is used as a directory")
        };
        rename(live, &change);
        pending.push((self.next_change, change));
        self.next_change += 1;
    }

    fn make_durable(&mut self, node: usize, until: u64) {
        if let Node::File { .. } = self.nodes[node] {
            self.make_name_durable(node, until);
        }
        match &mut self.nodes[node] {
            Node::File { durable, pending } => {
                let count = pending.partition_point(|(number, _)| *number < until);
                pending.drain(..count).for_each(|(_, change)| durable.apply(&change));
            }
            Node::Folder { durable, pending, .. } => {
                let count = pending.partition_point(|(number, _)| *number < until);
                pending.drain(..count).for_each(|(_, change)| rename(durable, &change));
            }
        }
    }

    fn make_name_durable(&mut self, file: usize, until: u64) {
        for folder in &mut self.nodes {
            let Node::Folder { durable, pending, .. } = folder else { continue };
            pending.retain(|(number, change)| {
                let (Renaming::Add { node, .. } | Renaming::Move { node, .. }) = change else { return true };
                let is_kept = *node != file || *number >= until;
                if !is_kept {
                    rename(durable, change);
                }
                is_kept
            });
        }
    }

    /// Writes what a power cut leaves into a new directory.
    pub fn image(&self, survival: Survival, rng: &mut StdRng, target: &Path) -> io::Result<()> {
        let numbers = self.nodes.iter().flat_map(|node| match node {
            Node::File { pending, .. } => pending.iter().map(|(number, _)| *number).collect::<Vec<_>>(),
            Node::Folder { pending, .. } => pending.iter().map(|(number, _)| *number).collect(),
        });
        let numbers: BTreeSet<u64> = numbers.collect();
        let numbers: Vec<u64> = numbers.into_iter().collect();
        let until = match numbers.len() {
            0 => 0,
            count => numbers[rng.random_range(0..count)],
        };
        fs::create_dir(target)?;
        self.save(0, Loss { survival, until }, rng, target)
    }

    fn save(&self, node: usize, loss: Loss, rng: &mut StdRng, target: &Path) -> io::Result<()> {
        let Node::Folder { durable, pending, .. } = &self.nodes[node] else {
            panic!("only directories are walked")
        };
        let mut names = durable.clone();
        for (number, change) in pending {
            if loss.keeps_name(*number, rng) {
                rename(&mut names, change);
            }
        }
        for (name, node) in names {
            let path = target.join(name);
            match &self.nodes[node] {
                Node::File { durable, pending } => loss.content(durable, pending, rng).save(&path)?,
                Node::Folder { .. } => {
                    fs::create_dir(&path)?;
                    self.save(node, loss, rng, &path)?;
                }
            }
        }
        Ok(())
    }
}

#[derive(Clone, Copy)]
struct Loss {
    survival: Survival,
    until: u64,
}

impl Loss {
    fn keeps_name(self, number: u64, rng: &mut StdRng) -> bool {
        match self.survival {
            Survival::Everything | Survival::Names => true,
            Survival::Nothing | Survival::Bytes => false,
            Survival::Prefix => number < self.until,
            Survival::Any { keep, .. } => rng.random_bool(keep),
        }
    }

    fn content(self, durable: &Content, pending: &[(u64, Change)], rng: &mut StdRng) -> Content {
        let mut content = durable.clone();
        match self.survival {
            Survival::Nothing | Survival::Names => {}
            Survival::Everything | Survival::Bytes => {
                pending.iter().for_each(|(_, change)| content.apply(change));
            }
            Survival::Prefix => {
                for (number, change) in pending.iter().filter(|(number, _)| *number <= self.until) {
                    match change {
                        Change::Write { offset, bytes } if *number == self.until => {
                            let sectors = rng.random_range(0..=bytes.len() / 512);
                            content.write(*offset, &bytes[..sectors * 512]);
                        }
                        _ => content.apply(change),
                    }
                }
            }
            Survival::Any { sector, keep } => any(&mut content, pending, sector, keep, rng),
        }
        content
    }
}

/// Each sector shows its bytes as of some moment; cuts of the size take effect up to some moment, too.
fn any(content: &mut Content, pending: &[(u64, Change)], sector: u64, keep: f64, rng: &mut StdRng) {
    let Some((first, last)) = pending.first().zip(pending.last()).map(|((a, _), (b, _))| (*a, *b)) else {
        return;
    };
    let moment = |rng: &mut StdRng| match rng.random_bool(keep) {
        true => last + 1,
        false if rng.random() => first,
        false => rng.random_range(first..=last),
    };
    let cut = moment(rng);
    let mut moments: HashMap<u64, u64> = HashMap::new();
    let mut grown = content.clone();
    for (number, change) in pending {
        match change {
            Change::Truncate { size } => {
                grown.size = *size;
                if *number < cut {
                    content.truncate(*size);
                }
            }
            Change::Write { offset, .. } | Change::Zeros { offset, .. } => {
                let length = match change {
                    Change::Write { bytes, .. } => bytes.len() as u64,
                    Change::Zeros { length, .. } => *length,
                    Change::Truncate { .. } => 0,
                };
                grown.size = grown.size.max(offset + length);
                let mut at = *offset;
                while at < offset + length {
                    let end = ((at / sector + 1) * sector).min(offset + length);
                    let until = *moments.entry(at / sector).or_insert_with(|| moment(rng));
                    if *number < until {
                        match change {
                            Change::Write { bytes, .. } => {
                                content.write(at, &bytes[(at - offset) as usize..(end - offset) as usize]);
                            }
                            Change::Zeros { .. } | Change::Truncate { .. } => content.zero(at, end - at),
                        }
                    }
                    at = end;
                }
            }
        }
    }
    // The size may have reached the disk although bytes below it have not.
    if grown.size > content.size && rng.random() {
        content.size = grown.size;
    }
}

#[cfg(test)]
mod test {
    use rand::SeedableRng;

    use super::*;

    const ROOT: u64 = 99;

    #[derive(Default)]
    struct Trace(Vec<u8>);

    impl Trace {
        fn note(&mut self, op: u32, inode: u64, offset: u64, length: u64, names: [&str; 2], data: &[u8]) {
            let bytes = HEAD + names[0].len() + names[1].len() + data.len();
            self.0.extend((bytes as u32).to_le_bytes());
            self.0.extend(op.to_le_bytes());
            for value in [inode, offset, length] {
                self.0.extend(value.to_le_bytes());
            }
            for name in names {
                self.0.extend((name.len() as u32).to_le_bytes());
            }
            self.0.extend(names[0].bytes().chain(names[1].bytes()));
            self.0.extend(data);
        }

        fn sync(&mut self, inode: u64, number: u64) {
            self.note(SYNC_BEGIN, inode, number, 0, ["", ""], b"");
            self.note(SYNC_END, inode, number, 0, ["", ""], b"");
        }
    }

    fn image(trace: &Trace, survival: Survival, seed: u64) -> BTreeMap<String, Vec<u8>> {
        let mut model = Model::new();
        model.advance(&trace.0, u64::MAX, ROOT);
        let place = tempfile::tempdir().unwrap();
        let target = place.path().join("image");
        model.image(survival, &mut StdRng::seed_from_u64(seed), &target).unwrap();
        let entries = fs::read_dir(&target).unwrap().flatten();
        entries.map(|e| (e.file_name().into_string().unwrap(), fs::read(e.path()).unwrap())).collect()
    }

    #[test]
    fn what_was_synced_is_in_every_image_and_the_rest_in_some() {
        let mut trace = Trace::default();
        trace.note(CREATE, 1, 0, 0, ["a", ""], b"");
        trace.note(WRITE, 1, 0, 4, ["", ""], b"kept");
        trace.sync(1, 1);
        trace.sync(ROOT, 2);
        trace.note(WRITE, 1, 4, 4, ["", ""], b"lost");
        trace.note(CREATE, 2, 0, 0, ["b", ""], b"");
        trace.note(CREATE, 3, 0, 0, ["c", ""], b"");
        trace.sync(3, 3);
        let (mut long, mut short, mut named) = (0, 0, 0);
        for seed in 0..40 {
            let files = image(&trace, Survival::Any { sector: 512, keep: 0.5 }, seed);
            assert_eq!(&files["a"][..4], b"kept");
            assert!(files.contains_key("c"), "it was synced under its name");
            long += usize::from(files["a"].len() == 8);
            short += usize::from(files["a"].len() == 4);
            named += usize::from(files.contains_key("b"));
        }
        assert!(long > 0 && short > 0 && (1..40).contains(&named), "{long} {short} {named}");
        let synced = BTreeMap::from([("a".to_owned(), b"kept".to_vec()), ("c".to_owned(), Vec::new())]);
        assert_eq!(image(&trace, Survival::Nothing, 1), synced);
        assert_eq!(image(&trace, Survival::Everything, 1)["a"], b"keptlost");
    }

    #[test]
    fn a_sync_covers_only_what_was_there_when_it_began() {
        let mut trace = Trace::default();
        trace.note(CREATE, 1, 0, 0, ["a", ""], b"");
        trace.sync(ROOT, 1);
        trace.note(WRITE, 1, 0, 3, ["", ""], b"old");
        trace.note(SYNC_BEGIN, 1, 2, 0, ["", ""], b"");
        trace.note(WRITE, 1, 0, 3, ["", ""], b"new");
        assert_eq!(image(&trace, Survival::Nothing, 1)["a"], b"", "the sync has not ended");
        trace.note(SYNC_END, 1, 2, 0, ["", ""], b"");
        assert_eq!(image(&trace, Survival::Nothing, 1)["a"], b"old");
        assert_eq!(image(&trace, Survival::Everything, 1)["a"], b"new");
    }

    #[test]
    fn a_rename_is_there_or_not() {
        let mut trace = Trace::default();
        for (inode, name, text) in [(1, "a", b"1"), (2, "a.new", b"2")] {
            trace.note(CREATE, inode, 0, 0, [name, ""], b"");
            trace.note(WRITE, inode, 0, 1, ["", ""], text);
            trace.sync(inode, inode);
        }
        trace.sync(ROOT, 3);
        trace.note(RENAME, 0, 0, 0, ["a.new", "a"], b"");
        let mut seen = BTreeSet::new();
        for seed in 0..20 {
            seen.insert(image(&trace, Survival::Any { sector: 512, keep: 0.5 }, seed));
        }
        let before = BTreeMap::from([("a".to_owned(), b"1".to_vec()), ("a.new".to_owned(), b"2".to_vec())]);
        let after = BTreeMap::from([("a".to_owned(), b"2".to_vec())]);
        assert_eq!(seen, BTreeSet::from([before, after]));
    }

    #[test]
    fn cutting_and_zeroing_change_what_a_file_shows() {
        let mut content = Content::default();
        content.write(5_000, b"abcdef");
        content.zero(5_002, 2);
        content.truncate(5_005);
        content.truncate(6_000);
        let mut expected = Content { size: 6_000, ..Content::default() };
        expected.write(5_000, b"ab\0\0e");
        expected.size = 6_000;
        assert!(content == expected);
    }
}
