//! The data directory of a node: where log and engine lie, and which start this is.
//!
//! Invariants:
//! - A start's number is synced before anything is opened, and only grows.

use std::{fs, io, io::Write as _, path::PathBuf};

use model::id::{Boot, NodeId};

use crate::{Error, Options, Result};

/// An opened directory.
#[derive(Debug)]
pub(super) struct Home {
    path: PathBuf,
    boot: Boot,
}

impl Home {
    pub(super) fn open(options: &Options) -> Result<Self> {
        let path = options.directory.clone();
        let system = |source| Error::System { action: "open the data directory", source };
        fs::create_dir_all(&path).map_err(system)?;
        let last = match fs::read_to_string(path.join("boot")) {
            Ok(text) => text.trim().parse().map_err(|_| system(io::ErrorKind::InvalidData.into()))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(error) => return Err(system(error)),
        };
        let boot = Boot(last + 1);
        let new = path.join("boot.new");
        let mut file = fs::File::create(&new).map_err(system)?;
        file.write_all(boot.0.to_string().as_bytes()).and_then(|()| file.sync_all()).map_err(system)?;
        fs::rename(&new, path.join("boot")).map_err(system)?;
        fs::File::open(&path).and_then(|directory| directory.sync_all()).map_err(system)?;
        Ok(Self { path, boot })
    }

    pub(super) fn node(&self) -> NodeId {
        NodeId(1)
    }

    pub(super) fn boot(&self) -> Boot {
        self.boot
    }

    /// Tells this process from every other that opens the directory.
    pub(super) fn nonce(&self) -> u64 {
        self.boot.0
    }

    pub(super) fn identity(&self) -> storage::log::Identity {
        storage::log::Identity { cluster: 1, node: 1, incarnation: 1 }
    }

    pub(super) fn log_path(&self) -> PathBuf {
        self.path.join("log")
    }

    pub(super) fn engine_path(&self) -> PathBuf {
        self.path.join("engine")
    }
}
