//! Between a server and its disk: every change of its files on record, and faults at the call that a test names.
//!
//! 1. [`Interposer`] builds `interpose.c` once and gives a server the environment that loads it.
//! 2. The server's calls go into a trace; [`Control`] makes the n-th write or sync fail, or the disk full.
//! 3. [`model::Model`] replays a trace up to a cut, and writes what a power cut there may leave ([`model::Survival`]).
//!
//! Always true: the trace's length, read after an answer came, is a cut at which all that was answered must be durable.
//!
//! Not here: what is asked of the server, and what must hold afterwards.

pub mod model;
pub mod small;

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCE: &str = include_str!("interpose.c");

/// Error numbers of Linux that a disk answers with.
pub const EIO: u64 = 5;
/// No space left on device.
pub const ENOSPC: u64 = 28;

/// The library, built, and where its files lie.
pub struct Interposer {
    folder: PathBuf,
    library: PathBuf,
}

impl Interposer {
    /// Builds the library in a folder.
    pub fn build(folder: &Path) -> io::Result<Interposer> {
        let source = folder.join("interpose.c");
        let library = folder.join("interpose.so");
        fs::write(&source, SOURCE)?;
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", "-o"])
            .arg(&library)
            .arg(&source)
            .args(["-ldl", "-lpthread"])
            .output()?;
        if !built.status.success() {
            return Err(io::Error::other(format!("cc: {}", String::from_utf8_lossy(&built.stderr))));
        }
        Ok(Interposer { folder: folder.to_path_buf(), library })
    }

    /// Stands between a process and the files below `root`. `name` tells several recordings apart.
    pub fn record(&self, root: &Path, name: &str) -> io::Result<Recording> {
        let mut recording = self.watch(root, name)?;
        let trace = self.folder.join(format!("{name}.trace"));
        File::create(&trace)?;
        recording.environment.push(("DISK_TRACE".to_owned(), trace.display().to_string()));
        recording.trace = Some(trace);
        Ok(recording)
    }

    /// The same without a trace: for faults only.
    pub fn watch(&self, root: &Path, name: &str) -> io::Result<Recording> {
        let page = self.folder.join(format!("{name}.control"));
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&page)?;
        file.set_len(4096)?;
        let text = |path: &Path| path.display().to_string();
        let environment = vec![
            ("LD_PRELOAD".to_owned(), text(&self.library)),
            ("DISK_ROOT".to_owned(), text(root)),
            ("DISK_CONTROL".to_owned(), text(&page)),
        ];
        Ok(Recording { trace: None, control: Control(file), environment })
    }
}

/// One process's disk.
pub struct Recording {
    trace: Option<PathBuf>,
    /// What is to fail.
    pub control: Control,
    /// What the process must be started with.
    pub environment: Vec<(String, String)>,
}

impl Recording {
    /// Where the trace ends now.
    pub fn position(&self) -> u64 {
        let trace = self.trace.as_ref().expect("this disk is recorded");
        fs::metadata(trace).map_or(0, |facts| facts.len())
    }

    /// Everything that was recorded.
    pub fn trace(&self) -> io::Result<Vec<u8>> {
        fs::read(self.trace.as_ref().expect("this disk is recorded"))
    }
}

/// The page that the process looks at before each call.
pub struct Control(File);

/// The places of the page, in the order of `struct control`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Knob {
    /// 1: syncs do nothing and say yes.
    NoSync,
    /// The n-th write from now fails.
    WriteFailAt,
    /// With this error.
    WriteError,
    /// The n-th sync from now fails.
    SyncFailAt,
    /// With this error.
    SyncError,
    /// At the n-th call that needs room the disk becomes full.
    FullAt,
    /// 1: the disk is full.
    Full,
    /// Failures so far.
    Fired,
    /// Writes so far.
    Writes,
    /// Syncs so far.
    Syncs,
    /// Calls so far that needed room.
    Rooms,
    /// Calls that sent something through a socket.
    Sends,
    /// Calls that asked a socket for something.
    Receives,
    /// 1: little space is free, below the low water; calls that need room still find it.
    Low,
}

impl Control {
    /// Sets one.
    pub fn set(&self, knob: Knob, value: u64) -> io::Result<()> {
        self.0.write_all_at(&value.to_le_bytes(), knob as u64 * 8)
    }

    /// Reads one.
    pub fn get(&self, knob: Knob) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.0.read_exact_at(&mut bytes, knob as u64 * 8)?;
        Ok(u64::from_le_bytes(bytes))
    }
}
