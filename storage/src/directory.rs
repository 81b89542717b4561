//! The data directory: whose it is, which start of it this is, and that nobody else has it.
//!
//! ```text
//! DIR/identity   who it belongs to, in lines of text with a checksum (docs/formats/directory.md)
//! DIR/lock       held by the process that has the directory open; its text is that process's id
//! DIR/log/       storage::log
//! DIR/state/     storage::engine
//! DIR/kept/      journals as they were before the doctor cut them
//! ```
//!
//! Invariants:
//! - One process at a time: a second one is refused with the id of the first (`F0001`).
//! - The number of a start (its boot) is synced before the directory is handed out, and only grows.
//! - A directory that holds something but no identity is nobody's to write into; one of a newer format is not touched.
//! - The lock is released once: when the last handle is closed or dropped.
//!
//! Not here: what lies in the folders.

use std::{
    fmt::Write as _,
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read as _, Seek as _, Write as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use model::id::{Boot, NodeId};
use parking_lot::Mutex;

use crate::{
    cut,
    error::{Error, Result},
};

/// The format that is written.
const FORMAT: u32 = 1;

const IDENTITY: &str = "identity";
const LOCK: &str = "lock";
const LOG: &str = "log";
const STATE: &str = "state";
const KEPT: &str = "kept";

/// Names that may lie in a directory that has no identity yet: a server writes its secrets before it opens the node.
const HARMLESS: [&str; 7] =
    [LOCK, "lost+found", "admin.json", "admin.new", "secrets.json", "secrets.new", "server.json"];

/// Whose a directory is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The cluster.
    pub cluster: u128,
    /// The node.
    pub node: NodeId,
    /// Drawn when the directory was made or restored: a known node with another incarnation is not that node.
    pub incarnation: u128,
    /// Which start this is.
    pub boot: Boot,
}

/// Whose a directory becomes if it is new.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fresh {
    /// The cluster.
    pub cluster: u128,
    /// The node.
    pub node: NodeId,
    /// Drawn at random by the caller.
    pub incarnation: u128,
}

/// An open data directory. A cheap handle; the lock goes with the last one, or with [`Directory::close`].
#[derive(Clone, Debug)]
pub struct Directory(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    identity: Identity,
    is_new: bool,
    lock: Mutex<Option<File>>,
}

impl Directory {
    /// Opens a data directory, or makes one; this start gets the next boot number.
    pub fn open(path: &Path, fresh: Fresh) -> Result<Self> {
        fs::create_dir_all(path).map_err(|error| Error::io("create", path, error))?;
        // Absolute, so that a later change of the working directory does not move it.
        let path = path.canonicalize().map_err(|error| Error::io("find", path, error))?;
        let known = read_identity(&path)?;
        if known.is_none() {
            check_empty(&path)?;
        }
        let lock = take_lock(&path)?;
        // Again, under the lock: another process may have made it in between.
        let known = if known.is_none() { read_identity(&path)? } else { known };
        let is_new = known.is_none();
        let mut identity = known.unwrap_or(Identity {
            cluster: fresh.cluster,
            node: fresh.node,
            incarnation: fresh.incarnation,
            boot: Boot(0),
        });
        for folder in [LOG, STATE] {
            let folder = path.join(folder);
            fs::create_dir_all(&folder).map_err(|error| Error::io("create", &folder, error))?;
        }
        identity.boot.0 += 1;
        write_identity(&path, &identity)?;
        Ok(Self(Arc::new(Inner { path, identity, is_new, lock: Mutex::new(Some(lock)) })))
    }

    /// Whose it is, and which start this is.
    pub fn identity(&self) -> Identity {
        self.0.identity
    }

    /// What the log is to find in its segments.
    pub fn log_identity(&self) -> crate::log::Identity {
        let Identity { cluster, node, incarnation, .. } = self.0.identity;
        crate::log::Identity { cluster, node: node.0.into(), incarnation }
    }

    /// Whether it was made by this opening: only then may log and state be empty.
    pub fn is_new(&self) -> bool {
        self.0.is_new
    }

    /// The directory itself.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Where the log lies.
    pub fn log_path(&self) -> PathBuf {
        self.0.path.join(LOG)
    }

    /// Where the engine lies.
    pub fn state_path(&self) -> PathBuf {
        self.0.path.join(STATE)
    }

    /// Where journals are kept as they were before the doctor cut them.
    pub fn kept_path(&self) -> PathBuf {
        self.0.path.join(KEPT)
    }

    /// Gives the directory back. Log and engine must be closed before. Does nothing the second time.
    pub fn close(&self) {
        // Closing the file releases its lock.
        drop(self.0.lock.lock().take());
    }

    /// Whose a directory is, without opening it; none if it has no identity.
    pub fn peek(path: &Path) -> Result<Option<Identity>> {
        read_identity(path)
    }

    /// Whether a directory that is there is nobody's yet, so that a first start may write into it: it has no identity,
    /// and holds nothing or what a first start left that was cut short. What holds something else is foreign.
    pub fn is_fresh(path: &Path) -> Result<bool> {
        match read_identity(path)? {
            Some(_) => Ok(false),
            None => check_empty(path).map(|()| true),
        }
    }

    /// The process that has a directory open, if one has.
    pub fn holder(path: &Path) -> Result<Option<String>> {
        let lock = path.join(LOCK);
        let file = match File::open(&lock) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io("open", lock, error)),
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(None),
            Err(TryLockError::WouldBlock) => Ok(Some(holder_of(file))),
            Err(TryLockError::Error(error)) => Err(Error::io("lock", lock, error)),
        }
    }
}

fn take_lock(path: &Path) -> Result<File> {
    let name = path.join(LOCK);
    let fail = |action| {
        let name = name.clone();
        move |error| Error::io(action, name, error)
    };
    let mut options = OpenOptions::new();
    let mut file =
        options.read(true).write(true).create(true).truncate(false).open(&name).map_err(fail("open"))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            return Err(Error::Held { path: path.to_path_buf(), holder: holder_of(file) });
        }
        Err(TryLockError::Error(error)) => return Err(fail("lock")(error)),
    }
    let pid = std::process::id().to_string();
    file.set_len(0).map_err(fail("write"))?;
    file.rewind().map_err(fail("write"))?;
    file.write_all(pid.as_bytes()).map_err(fail("write"))?;
    Ok(file)
}

fn holder_of(mut file: File) -> String {
    let mut pid = String::new();
    // Whoever holds it may be writing its number just now.
    match file.read_to_string(&mut pid) {
        Ok(1..) => pid.trim().to_owned(),
        Ok(0) | Err(_) => "of unknown id".to_owned(),
    }
}

/// A directory without an identity may hold nothing, or what a first start left that was cut short.
fn check_empty(path: &Path) -> Result<()> {
    let fail = |error| Error::io("list", path, error);
    for entry in fs::read_dir(path).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let begun = name == "identity.new" || ([LOG, STATE].contains(&&*name) && is_empty(&entry.path())?);
        if !begun && !HARMLESS.contains(&&*name) {
            let what = format!("it has no identity, but holds \"{}\"", name.escape_debug());
            return Err(Error::Foreign { path: path.to_path_buf(), what });
        }
    }
    Ok(())
}

fn is_empty(folder: &Path) -> Result<bool> {
    let mut entries = fs::read_dir(folder).map_err(|error| Error::io("list", folder, error))?;
    Ok(entries.next().is_none())
}

fn read_identity(path: &Path) -> Result<Option<Identity>> {
    let name = path.join(IDENTITY);
    let text = match fs::read_to_string(&name) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            return Err(foreign(path, "its identity is not text"));
        }
        Err(error) => return Err(Error::io("read", name, error)),
    };
    parse_identity(path, &text).map(Some)
}

fn foreign(path: &Path, what: &str) -> Error {
    Error::Foreign { path: path.to_path_buf(), what: what.to_owned() }
}

fn parse_identity(path: &Path, text: &str) -> Result<Identity> {
    let mut lines = text.lines();
    let format = lines.next().and_then(|line| line.strip_prefix("keystead data directory, format "));
    let format: u32 = format
        .and_then(|format| format.parse().ok())
        .ok_or_else(|| foreign(path, "its identity was not written by this server"))?;
    // Before anything else: what follows may look different in a newer format.
    if format > FORMAT {
        return Err(Error::Newer { path: path.to_path_buf(), found: format, known: FORMAT });
    }
    let damaged = || foreign(path, "its identity is damaged");
    let text = text.strip_suffix('\n').ok_or_else(damaged)?;
    let (body, checksum) = text.rsplit_once("\nchecksum ").ok_or_else(damaged)?;
    if checksum != format!("{:08x}", crc32c::crc32c(body.as_bytes())) {
        return Err(damaged());
    }
    let field = |name: &str| {
        let mut lines = body.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).ok_or_else(damaged)
    };
    let hex = |name: &str| u128::from_str_radix(field(name)?, 16).map_err(|_| damaged());
    Ok(Identity {
        cluster: hex("cluster")?,
        node: NodeId(field("node")?.parse().map_err(|_| damaged())?),
        incarnation: hex("incarnation")?,
        boot: Boot(field("boot")?.parse().map_err(|_| damaged())?),
    })
}

fn identity_text(identity: &Identity) -> String {
    let Identity { cluster, node, incarnation, boot } = identity;
    let mut text = format!(
        "keystead data directory, format {FORMAT}\ncluster {cluster:032x}\nnode {}\nincarnation {incarnation:032x}\n\
         boot {}",
        node.0, boot.0
    );
    let checksum = crc32c::crc32c(text.as_bytes());
    write!(text, "\nchecksum {checksum:08x}\n").expect("a string takes what it is given");
    text
}

/// The new identity replaces the old one whole, and is on disk when this returns.
fn write_identity(path: &Path, identity: &Identity) -> Result<()> {
    let (new, name) = (path.join("identity.new"), path.join(IDENTITY));
    let mut file = File::create(&new).map_err(|error| Error::io("create", &new, error))?;
    let written = file.write_all(identity_text(identity).as_bytes()).and_then(|()| file.sync_all());
    written.map_err(|error| Error::io("write", &new, error))?;
    cut::point("identity.written");
    fs::rename(&new, &name).map_err(|error| Error::io("replace", &name, error))?;
    cut::point("identity.renamed");
    let directory = File::open(path).and_then(|directory| directory.sync_all());
    directory.map_err(|error| Error::io("sync", path, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRESH: Fresh = Fresh { cluster: 7, node: NodeId(3), incarnation: 9 };

    #[test]
    fn each_start_has_a_number_above_all_before() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("data");
        for boot in 1..=3 {
            let directory = Directory::open(&path, FRESH).expect("free");
            assert_eq!(directory.identity().boot, Boot(boot));
            assert_eq!(directory.is_new(), boot == 1);
            assert_eq!(directory.identity().cluster, 7);
            directory.close();
            directory.close();
        }
        let other = Fresh { cluster: 8, ..FRESH };
        assert_eq!(Directory::open(&path, other).expect("free").identity().cluster, 7, "it is whose it was");
    }

    #[test]
    fn a_second_opening_is_refused_and_told_who_has_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let first = Directory::open(folder.path(), FRESH).expect("free");
        let pid = std::process::id().to_string();
        match Directory::open(folder.path(), FRESH) {
            Err(Error::Held { holder, .. }) => assert_eq!(holder, pid),
            other => panic!("it is held: {other:?}"),
        }
        assert_eq!(Directory::holder(folder.path()).expect("a look"), Some(pid));
        let clone = first.clone();
        first.close();
        assert_eq!(Directory::holder(folder.path()).expect("a look"), None);
        drop(clone);
        Directory::open(folder.path(), FRESH).expect("free again");
    }

    #[test]
    fn what_is_not_ours_is_not_touched() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path();
        fs::write(path.join("precious.txt"), "mine").expect("written");
        assert!(matches!(Directory::open(path, FRESH), Err(Error::Foreign { .. })));
        assert!(!path.join(IDENTITY).exists());
        fs::remove_file(path.join("precious.txt")).expect("removed");
        drop(Directory::open(path, FRESH).expect("empty now"));
        let text = fs::read_to_string(path.join(IDENTITY)).expect("an identity");
        let newer = text.replace("format 1", "format 2");
        fs::write(path.join(IDENTITY), &newer).expect("written");
        assert!(matches!(Directory::open(path, FRESH), Err(Error::Newer { found: 2, known: 1, .. })));
        assert_eq!(fs::read_to_string(path.join(IDENTITY)).expect("an identity"), newer);
        for (at, byte) in text.bytes().enumerate() {
            let mut flipped = text.clone().into_bytes();
            flipped[at] = byte ^ 0x01;
            fs::write(path.join(IDENTITY), flipped).expect("written");
            assert!(Directory::open(path, FRESH).is_err(), "bit of byte {at}");
        }
    }

    #[test]
    fn a_first_start_that_was_cut_short_begins_again() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join(LOG)).expect("created");
        fs::write(folder.path().join("identity.new"), "half").expect("written");
        assert!(Directory::open(folder.path(), FRESH).expect("nothing was lost").is_new());
    }

    #[test]
    fn an_identity_is_written_as_it_always_was() {
        let identity = Identity { cluster: 0xabc, node: NodeId(3), incarnation: 0xdef, boot: Boot(12) };
        let text = identity_text(&identity);
        let expected = "keystead data directory, format 1\n\
                        cluster 00000000000000000000000000000abc\n\
                        node 3\n\
                        incarnation 00000000000000000000000000000def\n\
                        boot 12\n";
        assert!(text.starts_with(expected), "{text}");
        assert_eq!(parse_identity(Path::new("x"), &text).expect("its own text"), identity);
    }
}
