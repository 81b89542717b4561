//! The few file operations the log needs, as a seam: real files, and an in-memory twin that loses, tears and refuses.
//!
//! Invariants:
//! - Names are plain file names in one directory; there are no paths.
//! - A rename, create or remove is durable only after `sync_dir`; bytes are durable only after `sync_data`.
//! - The directory lock is held until its guard is dropped.

mod real;
#[cfg(any(test, feature = "faults"))]
pub mod sim;

use std::any::Any;
use std::io;
use std::sync::Arc;

pub use real::Directory;

/// One directory of files.
pub trait Files: Send + Sync {
    /// Takes the directory for this process alone. `WouldBlock` means that another holds it.
    fn lock(&self) -> io::Result<Box<dyn Any + Send>>;
    /// The process id that the holder of the lock left behind.
    fn lock_holder(&self) -> Option<u32>;
    /// All file names.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Makes a new empty file; an existing one of that name is an error.
    fn create(&self, name: &str) -> io::Result<Arc<dyn File>>;
    /// Opens an existing file for reading and writing.
    fn open(&self, name: &str) -> io::Result<Arc<dyn File>>;
    /// Gives a file another name, replacing what had it.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a name.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes creates, renames and removes durable.
    fn sync_dir(&self) -> io::Result<()>;
}

/// One open file, used at explicit offsets by several threads.
pub trait File: Send + Sync {
    /// Length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Whether nothing was ever written.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Fills the buffer from an offset; a short file is an error.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;
    /// Writes the whole buffer at an offset.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Makes everything written so far durable.
    fn sync_data(&self) -> io::Result<()>;
}
