//! The doctor of the engine's journal: cuts a torn newest journal back to its last whole batch.
//!
//! After a power cut the pages of an unsynced batch may have reached the disk in any order, and fjall 3.1.13 then refuses to
//! open (a checksum that does not match). What is cut here was never promised: the log replays it, and recovery compares
//! the applied index with the checkpoint, so that a cut into synced data is noticed.
//!
//! The journal's format, as fjall 3.1.13 writes it (integers little-endian):
//! `start: 1 · items u32 · seqno u64`, then per item `2 · type u8 · compression u8 · keyspace u64 · key length u16 · value
//! length u32 · stored length u32 · key · value` or `4 · keyspace u64`, then `end: 3 · xxh3-64 of the items · "FJL\x03"`.
//! Behind the last batch the file is zero. The exact version pin of the manifest guards this reader.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufReader, Read},
    path::{Path, PathBuf},
};

use xxhash_rust::xxh3::Xxh3;

use crate::error::{Error, Result};

/// What the doctor did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cut {
    /// The journal.
    pub journal: PathBuf,
    /// Where the journal as it was is kept.
    pub kept: PathBuf,
    /// Its whole batches end here.
    pub kept_bytes: u64,
    /// How many whole batches it has.
    pub batches: u64,
    /// What was wrong with the next.
    pub fault: &'static str,
}

/// Cuts the newest journal of an engine that is not open back to its last whole batch, after putting a copy of it into
/// `keep_in`. Answers none if its batches end cleanly; then nothing is touched.
pub fn cut_torn_journal(directory: &Path, keep_in: &Path) -> Result<Option<Cut>> {
    let Some(journal) = journal_files(directory)?.pop() else { return Ok(None) };
    let file = File::open(&journal).map_err(|error| Error::io("open", &journal, error))?;
    let mut scan = Scan { reader: BufReader::new(file), position: 0, whole: 0, batches: 0 };
    let fault = match scan.run().map_err(|error| Error::io("read", &journal, error))? {
        End::Clean => return Ok(None),
        End::Torn(fault) => fault,
    };
    fs::create_dir_all(keep_in).map_err(|error| Error::io("create", keep_in, error))?;
    let name = journal.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let kept = (0..).map(|n| keep_in.join(format!("{name}.{n}"))).find(|path| !path.exists());
    let kept = kept.expect("one of all numbers is free");
    fs::copy(&journal, &kept).map_err(|error| Error::io("copy", &journal, error))?;
    sync(&kept)?;
    let file =
        OpenOptions::new().write(true).open(&journal).map_err(|error| Error::io("open", &journal, error))?;
    file.set_len(scan.whole).map_err(|error| Error::io("cut", &journal, error))?;
    file.sync_all().map_err(|error| Error::io("sync", &journal, error))?;
    Ok(Some(Cut { journal, kept, kept_bytes: scan.whole, batches: scan.batches, fault }))
}

/// The journals of an engine, oldest first.
pub(super) fn journal_files(directory: &Path) -> Result<Vec<PathBuf>> {
    let fail = |error| Error::io("list", directory, error);
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(fail)? {
        let path = entry.map_err(fail)?.path();
        let number =
            path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(".jnl"));
        if let Some(number) = number.and_then(|number| number.parse::<u64>().ok()) {
            found.push((number, path));
        }
    }
    found.sort_unstable();
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

fn sync(path: &Path) -> Result<()> {
    let file = File::open(path).map_err(|error| Error::io("open", path, error))?;
    file.sync_all().map_err(|error| Error::io("sync", path, error))
}

enum End {
    /// Zeros, or the end of the file, at a batch's border.
    Clean,
    /// Something that is no whole batch.
    Torn(&'static str),
}

struct Scan<R> {
    reader: R,
    position: u64,
    whole: u64,
    batches: u64,
}

impl<R: Read> Scan<R> {
    fn run(&mut self) -> io::Result<End> {
        loop {
            let [tag] = match self.take() {
                Ok(tag) => tag,
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(End::Clean),
                Err(error) => return Err(error),
            };
            match tag {
                0 => return self.rest(),
                1 => {}
                _ => return Ok(End::Torn("a batch does not begin with a start")),
            }
            match self.batch() {
                Ok(None) => {
                    self.whole = self.position;
                    self.batches += 1;
                }
                Ok(Some(fault)) => return Ok(End::Torn(fault)),
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Ok(End::Torn("the file ends inside a batch"));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads one batch behind its first byte; answers what is wrong with it.
    fn batch(&mut self) -> io::Result<Option<&'static str>> {
        let items = u32::from_le_bytes(self.take()?);
        let _seqno: [u8; 8] = self.take()?;
        let mut hash = Xxh3::new();
        for _ in 0..items {
            let [tag] = self.take()?;
            match tag {
                2 => {
                    let head: [u8; 20] = self.take()?;
                    hash.update(&[tag]);
                    hash.update(&head);
                    let key_bytes = u64::from(u16::from_le_bytes([head[10], head[11]]));
                    let stored = u64::from(u32::from_le_bytes([head[16], head[17], head[18], head[19]]));
                    self.hash(&mut hash, key_bytes + stored)?;
                }
                4 => {
                    let keyspace: [u8; 8] = self.take()?;
                    hash.update(&[tag]);
                    hash.update(&keyspace);
                }
                _ => return Ok(Some("a batch has fewer items than its start says")),
            }
        }
        let [tag] = self.take()?;
        if tag != 3 {
            return Ok(Some("a batch does not end where its start says"));
        }
        let expected = u64::from_le_bytes(self.take()?);
        let magic: [u8; 4] = self.take()?;
        Ok(if magic != *b"FJL\x03" {
            Some("the trailer of a batch is damaged")
        } else if hash.digest() != expected {
            Some("the checksum of a batch does not match")
        } else {
            None
        })
    }

    fn rest(&mut self) -> io::Result<End> {
        let mut buffer = [0; 8192];
        loop {
            match self.reader.read(&mut buffer)? {
                0 => return Ok(End::Clean),
                n if buffer[..n].iter().any(|byte| *byte != 0) => {
                    return Ok(End::Torn("there are bytes behind the last batch"));
                }
                _ => {}
            }
        }
    }

    fn take<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.reader.read_exact(&mut bytes)?;
        self.position += N as u64;
        Ok(bytes)
    }

    fn hash(&mut self, hash: &mut Xxh3, mut left: u64) -> io::Result<()> {
        let mut buffer = [0; 8192];
        while left > 0 {
            let step = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
            self.reader.read_exact(&mut buffer[..step])?;
            hash.update(&buffer[..step]);
            self.position += step as u64;
            left -= step as u64;
        }
        Ok(())
    }
}
