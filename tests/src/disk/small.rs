//! A disk of its own and of a given size: an ext4 in a file, mounted through a loop device.
//!
//! Always true: what was mounted is unmounted when the value goes, also when the test fails.
//!
//! Not here: faults at a call that a test names ([`super::Interposer`]); this disk fails by itself when it is full.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// A mounted file system.
pub struct SmallDisk {
    mount: PathBuf,
    _place: TempDir,
}

impl SmallDisk {
    /// Makes and mounts one. None, and why, where this user or machine has no loop devices.
    pub fn mount(bytes: u64) -> io::Result<Result<SmallDisk, String>> {
        let place = tempfile::Builder::new().prefix("keystead-disk-").tempdir()?;
        let image = place.path().join("image");
        let mount = place.path().join("disk");
        fs::create_dir(&mount)?;
        File::create(&image)?.set_len(bytes)?;
        // Without blocks that only root may take, so that free is free for everybody.
        run(Command::new("mkfs.ext4").args(["-q", "-F", "-m", "0"]).arg(&image))?;
        if let Err(error) = run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&mount)) {
            return Ok(Err(error.to_string()));
        }
        Ok(Ok(SmallDisk { mount, _place: place }))
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.mount
    }

    /// Free bytes.
    pub fn free_bytes(&self) -> io::Result<u64> {
        let said = Command::new("stat").args(["-f", "-c", "%a %S"]).arg(&self.mount).output()?;
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        let numbers = said.split_whitespace().map(str::parse::<u64>).collect::<Result<Vec<_>, _>>();
        match numbers.as_deref() {
            Ok([blocks, bytes]) => Ok(blocks * bytes),
            Ok(_) | Err(_) => Err(io::Error::other(format!("stat said {said:?}"))),
        }
    }

    /// Takes all room there is into a file, at once and to the last byte, as another process would.
    pub fn fill(&self) -> io::Result<PathBuf> {
        let path = self.mount.join("ballast");
        run(Command::new("fallocate").arg("-l").arg(self.free_bytes()?.to_string()).arg(&path)).or_else(
            // Somebody took some of it meanwhile: what is left is taken below.
            |error| if path.exists() { Ok(()) } else { Err(error) },
        )?;
        let mut file = File::options().append(true).open(&path)?;
        for step in [1 << 20, 1 << 12] {
            while match file.write_all(&vec![b'x'; step]).and_then(|()| file.sync_data()) {
                Ok(()) => true,
                Err(error) if error.kind() == io::ErrorKind::StorageFull => false,
                Err(error) => return Err(error),
            } {}
        }
        Ok(path)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a server that has just been killed may not have closed its files yet.
        let _ = run(Command::new("umount").arg("-l").arg(&self.mount));
    }
}

fn run(command: &mut Command) -> io::Result<()> {
    let done = command.output()?;
    if done.status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!("{command:?}: {}", String::from_utf8_lossy(&done.stderr).trim())))
}
