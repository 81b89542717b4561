//! Files in memory that do what disks do on bad days: lose what was not synced, tear writes, flip bits, refuse.
//!
//! Invariants:
//! - What `sync_data` or `sync_dir` made durable is in every later image; nothing else needs to be.
//! - A failed sync loses what it was to make durable, and a later sync does not bring it back, as on real systems.
//! - All chance comes from the seed given to `image`.
//!
//! For fault suites, of the log and of whole servers; a server never runs on it.

use std::any::Any;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use super::{File, Files};

/// What the files are asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Make a file.
    Create,
    /// Write into one.
    Write,
    /// Make its bytes durable.
    Sync,
    /// Rename.
    Rename,
    /// Remove.
    Remove,
    /// Make names durable.
    SyncDir,
    /// Read from a file.
    Read,
}

/// What happens instead of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It fails, this once.
    Fails(io::ErrorKind),
    /// It fails, and so does every later one of its kind.
    KeepsFailing(io::ErrorKind),
    /// The power goes before it is done; nothing works any more.
    PowerCutBefore,
    /// The power goes when it is done, but nobody hears of it.
    PowerCutAfter,
}

/// What a power cut leaves of that which was not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Everything: only the process was killed.
    Nothing,
    /// Nothing.
    Everything,
    /// Any subset, by sectors of this many bytes.
    Subset {
        /// 512 or 4096.
        sector_bytes: usize,
    },
}

/// A directory in memory. Clones are the same directory.
#[derive(Clone, Default)]
pub struct Sim {
    disk: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<Disk>,
    changed: Condvar,
}

#[derive(Default)]
struct Disk {
    inodes: BTreeMap<u64, Inode>,
    names: BTreeMap<String, u64>,
    durable_names: BTreeMap<String, u64>,
    unsynced_names: Vec<Change>,
    next_inode: u64,
    locked: bool,
    off: bool,
    planned: Vec<Planned>,
    calls: u64,
    bytes_max: Option<u64>,
    holds_syncs: bool,
    held_syncs: usize,
}

#[derive(Default)]
struct Inode {
    synced: Vec<u8>,
    current: Vec<u8>,
    unsynced: Vec<(usize, Vec<u8>)>,
}

#[derive(Clone)]
enum Change {
    Create(String, u64),
    Rename(String, String),
    Remove(String),
}

struct Planned {
    op: Option<Op>,
    left: u64,
    fault: Fault,
}

impl Sim {
    /// An empty directory.
    #[must_use]
    pub fn new() -> Sim {
        Sim::default()
    }

    /// Plans a fault for the n-th (from 1) coming operation of a kind; `None` counts all that change something.
    pub fn plan(&self, op: Option<Op>, nth: u64, fault: Fault) {
        self.disk.state.lock().planned.push(Planned { op, left: nth, fault });
    }

    /// Calls that changed something, so far.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.disk.state.lock().calls
    }

    /// Bounds the bytes of all files; `None` is no bound.
    pub fn set_bytes_max(&self, bytes_max: Option<u64>) {
        self.disk.state.lock().bytes_max = bytes_max;
    }

    /// The bytes of all files.
    #[must_use]
    pub fn bytes_used(&self) -> u64 {
        self.disk.state.lock().bytes_used()
    }

    /// From now on syncs wait, until `release_syncs`.
    pub fn hold_syncs(&self) {
        self.disk.state.lock().holds_syncs = true;
    }

    /// Waits until a sync waits.
    pub fn wait_for_held_sync(&self) {
        let mut state = self.disk.state.lock();
        while state.held_syncs == 0 {
            self.disk.changed.wait(&mut state);
        }
    }

    /// Lets syncs go on.
    pub fn release_syncs(&self) {
        self.disk.state.lock().holds_syncs = false;
        self.disk.changed.notify_all();
    }

    /// Turns the power off: every operation fails from now on.
    pub fn cut_power(&self) {
        self.disk.state.lock().off = true;
        self.disk.changed.notify_all();
    }

    /// Whether the power is off.
    #[must_use]
    pub fn is_off(&self) -> bool {
        self.disk.state.lock().off
    }

    /// The directory as it is found after a power cut (or kill) now.
    #[must_use]
    pub fn image(&self, loss: Loss, seed: u64) -> Sim {
        let state = self.disk.state.lock();
        let mut chance = Chance(seed);
        let names = match loss {
            Loss::Nothing => state.names.clone(),
            Loss::Everything => state.durable_names.clone(),
            Loss::Subset { .. } => {
                let mut names = state.durable_names.clone();
                for change in &state.unsynced_names {
                    if chance.below(2) == 1 {
                        apply(&mut names, change);
                    }
                }
                names
            }
        };
        let mut image = Disk { next_inode: state.next_inode, ..Disk::default() };
        for inode in names.values() {
            let found = &state.inodes[inode];
            let bytes = match loss {
                Loss::Nothing => found.current.clone(),
                Loss::Everything => found.synced.clone(),
                Loss::Subset { sector_bytes } => found.subset(sector_bytes, &mut chance),
            };
            image
                .inodes
                .insert(*inode, Inode { synced: bytes.clone(), current: bytes, unsynced: Vec::new() });
        }
        image.durable_names = names.clone();
        image.names = names;
        Sim { disk: Arc::new(Shared { state: Mutex::new(image), changed: Condvar::new() }) }
    }

    /// All files with their bytes.
    #[must_use]
    pub fn contents(&self) -> BTreeMap<String, Vec<u8>> {
        let state = self.disk.state.lock();
        state.names.iter().map(|(name, inode)| (name.clone(), state.inodes[inode].current.clone())).collect()
    }

    /// Changes a file behind everybody's back, durably.
    pub fn edit(&self, name: &str, edit: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.disk.state.lock();
        let inode = *state.names.get(name).expect("the file to edit exists");
        let inode = state.inodes.get_mut(&inode).expect("names have inodes");
        edit(&mut inode.current);
        inode.synced = inode.current.clone();
        inode.unsynced.clear();
    }

    /// Removes a file behind everybody's back, durably.
    pub fn delete(&self, name: &str) {
        let mut state = self.disk.state.lock();
        state.names.remove(name);
        state.durable_names.remove(name);
    }

    /// Puts a file there behind everybody's back, durably.
    pub fn put(&self, name: &str, bytes: &[u8]) {
        let mut state = self.disk.state.lock();
        let number = state.next_inode;
        state.next_inode += 1;
        let inode = Inode { synced: bytes.to_vec(), current: bytes.to_vec(), unsynced: Vec::new() };
        state.inodes.insert(number, inode);
        state.names.insert(name.to_owned(), number);
        state.durable_names.insert(name.to_owned(), number);
    }

    /// Runs an operation, or what is planned instead.
    fn run<T>(&self, op: Op, run: impl FnOnce(&mut Disk) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.disk.state.lock();
        if op == Op::Sync {
            state.held_syncs += 1;
            self.disk.changed.notify_all();
            while state.holds_syncs && !state.off {
                self.disk.changed.wait(&mut state);
            }
            state.held_syncs -= 1;
        }
        if state.off {
            return Err(io::Error::other("the power is off"));
        }
        if op != Op::Read {
            state.calls += 1;
        }
        match state.find_fault(op) {
            None => run(&mut state),
            Some(Fault::Fails(kind) | Fault::KeepsFailing(kind)) => Err(kind.into()),
            Some(Fault::PowerCutBefore) => {
                state.off = true;
                self.disk.changed.notify_all();
                Err(io::Error::other("the power is off"))
            }
            Some(Fault::PowerCutAfter) => {
                // What it gives back is lost with the process.
                let _ = run(&mut state);
                state.off = true;
                self.disk.changed.notify_all();
                Err(io::Error::other("the power is off"))
            }
        }
    }
}

impl Disk {
    fn find_fault(&mut self, op: Op) -> Option<Fault> {
        let mut found = None;
        for planned in &mut self.planned {
            let counts = planned.op.map_or(op != Op::Read, |wanted| wanted == op);
            if !counts {
                continue;
            }
            if planned.left == 1 && found.is_none() {
                found = Some(planned.fault);
                if !matches!(planned.fault, Fault::KeepsFailing(_)) {
                    planned.left = 0;
                }
            } else if planned.left > 1 {
                planned.left -= 1;
            }
        }
        found
    }

    fn bytes_used(&self) -> u64 {
        self.names.values().map(|inode| self.inodes[inode].current.len() as u64).sum()
    }

    fn change(&mut self, change: Change) {
        apply(&mut self.names, &change);
        self.unsynced_names.push(change);
    }

    fn inode(&mut self, inode: u64) -> &mut Inode {
        self.inodes.get_mut(&inode).expect("open files have inodes")
    }
}

impl Inode {
    fn write(&mut self, offset: usize, bytes: &[u8]) {
        overwrite(&mut self.current, offset, bytes);
        self.unsynced.push((offset, bytes.to_vec()));
    }

    /// The synced bytes with, for each sector, some first part of the writes that touched it.
    fn subset(&self, sector_bytes: usize, chance: &mut Chance) -> Vec<u8> {
        let mut found = self.synced.clone();
        let end = self.unsynced.iter().map(|(offset, bytes)| offset + bytes.len()).max().unwrap_or(0);
        // A coin for all sectors now and then, else a coin for each: both whole and torn writes are common.
        let bias = chance.below(4);
        for sector in (0..end).step_by(sector_bytes) {
            let touching: Vec<_> = self
                .unsynced
                .iter()
                .filter(|(offset, bytes)| *offset < sector + sector_bytes && offset + bytes.len() > sector)
                .collect();
            let kept = match bias {
                0 => touching.len(),
                1 if !touching.is_empty() && chance.below(8) > 0 => touching.len(),
                _ => chance.below(touching.len() as u64 + 1) as usize,
            };
            for (offset, bytes) in touching.into_iter().take(kept) {
                let from = sector.max(*offset);
                let to = (sector + sector_bytes).min(offset + bytes.len());
                overwrite(&mut found, from, &bytes[from - offset..to - offset]);
            }
        }
        found
    }
}

fn apply(names: &mut BTreeMap<String, u64>, change: &Change) {
    match change {
        Change::Create(name, inode) => {
            names.insert(name.clone(), *inode);
        }
        Change::Rename(from, to) => {
            if let Some(inode) = names.remove(from) {
                names.insert(to.clone(), inode);
            }
        }
        Change::Remove(name) => {
            names.remove(name);
        }
    }
}

fn overwrite(bytes: &mut Vec<u8>, offset: usize, with: &[u8]) {
    let end = offset + with.len();
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[offset..end].copy_from_slice(with);
}

impl Files for Sim {
    fn lock(&self) -> io::Result<Box<dyn Any + Send>> {
        let mut state = self.disk.state.lock();
        if std::mem::replace(&mut state.locked, true) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(Box::new(Lock { sim: self.clone() }))
    }

    fn lock_holder(&self) -> Option<u32> {
        Some(std::process::id())
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.run(Op::Read, |disk| Ok(disk.names.keys().cloned().collect()))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        self.run(Op::Create, |disk| {
            if disk.names.contains_key(name) {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            let inode = disk.next_inode;
            disk.next_inode += 1;
            disk.inodes.insert(inode, Inode::default());
            disk.change(Change::Create(name.to_owned(), inode));
            Ok(Arc::new(SimFile { sim: self.clone(), inode }) as Arc<dyn File>)
        })
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        self.run(Op::Read, |disk| {
            let inode = *disk.names.get(name).ok_or(io::ErrorKind::NotFound)?;
            Ok(Arc::new(SimFile { sim: self.clone(), inode }) as Arc<dyn File>)
        })
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.run(Op::Rename, |disk| {
            if !disk.names.contains_key(from) {
                return Err(io::ErrorKind::NotFound.into());
            }
            disk.change(Change::Rename(from.to_owned(), to.to_owned()));
            Ok(())
        })
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.run(Op::Remove, |disk| {
            if !disk.names.contains_key(name) {
                return Err(io::ErrorKind::NotFound.into());
            }
            disk.change(Change::Remove(name.to_owned()));
            Ok(())
        })
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.run(Op::SyncDir, |disk| {
            disk.durable_names = disk.names.clone();
            disk.unsynced_names.clear();
            Ok(())
        })
    }
}

struct Lock {
    sim: Sim,
}

impl Drop for Lock {
    fn drop(&mut self) {
        self.sim.disk.state.lock().locked = false;
    }
}

struct SimFile {
    sim: Sim,
    inode: u64,
}

impl File for SimFile {
    fn len(&self) -> io::Result<u64> {
        self.sim.run(Op::Read, |disk| Ok(disk.inode(self.inode).current.len() as u64))
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.sim.run(Op::Read, |disk| {
            let bytes = &disk.inode(self.inode).current;
            let from = offset as usize;
            let found = bytes.get(from..from + buffer.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
            buffer.copy_from_slice(found);
            Ok(())
        })
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.sim.run(Op::Write, |disk| {
            let grown =
                (offset + bytes.len() as u64).saturating_sub(disk.inode(self.inode).current.len() as u64);
            if disk.bytes_max.is_some_and(|bytes_max| grown > 0 && disk.bytes_used() + grown > bytes_max) {
                return Err(io::ErrorKind::StorageFull.into());
            }
            disk.inode(self.inode).write(offset as usize, bytes);
            Ok(())
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        let synced = self.sim.run(Op::Sync, |disk| {
            let inode = disk.inode(self.inode);
            for (offset, bytes) in std::mem::take(&mut inode.unsynced) {
                overwrite(&mut inode.synced, offset, &bytes);
            }
            Ok(())
        });
        if synced.is_err() && !self.sim.is_off() {
            // The system drops the dirty mark: these bytes are gone, whatever a later sync says.
            let mut state = self.sim.disk.state.lock();
            let inode = state.inode(self.inode);
            inode.unsynced.clear();
            inode.current = inode.synced.clone();
        }
        synced
    }
}

/// A small generator (SplitMix64), so that a seed is all a failure needs.
#[derive(Clone, Debug)]
pub struct Chance(pub u64);

impl Chance {
    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below a bound, which must not be 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next_u64() % bound
    }
}
