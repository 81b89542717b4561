//! Spill files: rows that do not fit a statement's memory, on disk for as long as the statement runs.
//!
//! Invariants:
//! - A file belongs to one operator and is removed when that is dropped; what a crash leaves is removed when the
//!   [`Directory`] is opened again.
//! - What is read is what was written, or an error: batches carry their length and the columns their counts.
//! - The bytes of all files together stay under the directory's limit (`53100`).
//!
//! Not here: durable data. Nothing is synced.

use std::{
    fs::{self, File},
    io::{BufReader, BufWriter, Read, Seek, Write},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use model::{Code, Error, Result, Type, Value, row, value::Numeric};

use crate::batch::{Batch, Column, Data, Texts};

/// Spill files are called so, and a number.
const PREFIX: &str = "spill-";

/// Where spill files lie.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    limit: u64,
    used: AtomicU64,
    next: AtomicU64,
}

impl Directory {
    /// Opens a directory, makes it if it is not there, and removes spill files that a crash left. It is made only when the
    /// first file is; `limit` bounds the bytes of all files.
    pub fn open(path: impl Into<PathBuf>, limit: u64) -> Arc<Self> {
        let path = path.into();
        remove_left_behind(&path);
        Arc::new(Self { path, limit, used: AtomicU64::new(0), next: AtomicU64::new(0) })
    }

    /// Bytes of all files.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// A new, empty file.
    pub fn create(self: &Arc<Self>, types: &[Type]) -> Result<Writer> {
        fs::create_dir_all(&self.path).map_err(failed)?;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let path = self.path.join(format!("{PREFIX}{}-{number}", std::process::id()));
        let file = File::options().read(true).write(true).create_new(true).open(&path).map_err(failed)?;
        let place = Place { directory: Arc::clone(self), path, bytes: 0 };
        Ok(Writer {
            place,
            file: BufWriter::with_capacity(1 << 18, file),
            types: types.into(),
            rows: 0,
            scratch: Vec::new(),
        })
    }

    fn take(&self, bytes: u64) -> Result<()> {
        let taken = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            used.checked_add(bytes).filter(|sum| *sum <= self.limit)
        });
        match taken {
            Ok(_) => Ok(()),
            Err(_) => {
                Err(Error::new(Code::DiskFull, "temporary file size exceeds the limit for spill files")
                    .with_hint("Raise spill.limit, or let the statement touch fewer rows."))
            }
        }
    }
}

fn remove_left_behind(path: &Path) {
    let Ok(entries) = fs::read_dir(path) else { return };
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(PREFIX) {
            // A file that stays costs space and nothing else.
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn failed(error: std::io::Error) -> Error {
    let code = match error.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => Code::DiskFull,
        _ => Code::IoError,
    };
    Error::new(code, "could not use a temporary file").with_source(error)
}

/// A file's place; it is removed with it.
#[derive(Debug)]
struct Place {
    directory: Arc<Directory>,
    path: PathBuf,
    bytes: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.directory.used.fetch_sub(self.bytes, Ordering::Relaxed);
        // A file that stays is removed when the directory is opened again.
        let _ = fs::remove_file(&self.path);
    }
}

/// A spill file that is being written.
#[derive(Debug)]
pub struct Writer {
    place: Place,
    file: BufWriter<File>,
    types: Box<[Type]>,
    rows: u64,
    scratch: Vec<u8>,
}

impl Writer {
    /// Appends rows.
    pub fn write(&mut self, batch: &Batch) -> Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        let batch = batch.clone().compact();
        self.scratch.clear();
        self.scratch.extend_from_slice(&[0; 8]);
        self.scratch.extend_from_slice(&(batch.len() as u64).to_le_bytes());
        for column in batch.columns() {
            write_column(&mut self.scratch, column)?;
        }
        let length = self.scratch.len() as u64 - 8;
        self.scratch[..8].copy_from_slice(&length.to_le_bytes());
        self.place.directory.take(length + 8)?;
        self.place.bytes += length + 8;
        self.file.write_all(&self.scratch).map_err(failed)?;
        self.rows += batch.len() as u64;
        Ok(())
    }

    /// Rows written so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Bytes written so far.
    pub fn bytes(&self) -> u64 {
        self.place.bytes
    }

    /// The file, to be read from its start.
    pub fn finish(mut self) -> Result<Reader> {
        self.file.flush().map_err(failed)?;
        let mut file = self.file.into_inner().map_err(|error| failed(error.into_error()))?;
        file.rewind().map_err(failed)?;
        Ok(Reader {
            left: self.place.bytes,
            place: self.place,
            file: BufReader::with_capacity(1 << 16, file),
            types: self.types,
            rows: self.rows,
        })
    }
}

/// A spill file that is being read.
#[derive(Debug)]
pub struct Reader {
    place: Place,
    file: BufReader<File>,
    types: Box<[Type]>,
    rows: u64,
    left: u64,
}

impl Reader {
    /// The next rows, as they were written together; none at the end.
    pub fn next_batch(&mut self) -> Result<Option<Batch>> {
        if self.left == 0 {
            return Ok(None);
        }
        let mut length = [0; 8];
        self.file.read_exact(&mut length).map_err(failed)?;
        let length = u64::from_le_bytes(length);
        if length + 8 > self.left {
            return Err(damaged());
        }
        self.left -= length + 8;
        let mut bytes = vec![0; length as usize];
        self.file.read_exact(&mut bytes).map_err(failed)?;
        let mut input = Input(&bytes);
        let rows = input.word()? as usize;
        let columns = self
            .types
            .iter()
            .map(|ty| read_column(&mut input, *ty, rows).map(Arc::new))
            .collect::<Result<Vec<_>>>()?;
        Ok(Some(Batch::new(columns, rows)))
    }

    /// Rows in the whole file.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Bytes of the whole file.
    pub fn bytes(&self) -> u64 {
        self.place.bytes
    }

    /// Starts again from the first row.
    pub fn rewind(&mut self) -> Result<()> {
        self.file.rewind().map_err(failed)?;
        self.left = self.place.bytes;
        Ok(())
    }
}

/// Null map (count, bytes), then the values as the column's storage has them.
fn write_column(out: &mut Vec<u8>, column: &Column) -> Result<()> {
    out.extend_from_slice(&(column.nulls().len() as u64).to_le_bytes());
    out.extend(column.nulls().iter().map(|null| u8::from(*null)));
    match column.data() {
        Data::Bool(values) => out.extend(values.iter().map(|value| u8::from(*value))),
        Data::Int(values) => values.iter().for_each(|value| out.extend_from_slice(&value.to_le_bytes())),
        Data::Float(values) => {
            values.iter().for_each(|value| out.extend_from_slice(&value.to_bits().to_le_bytes()))
        }
        Data::Numeric(values) => {
            for value in values {
                write_sized(out, |out| {
                    value.write_compact(out);
                    Some(())
                })?;
            }
        }
        Data::Text(texts) => {
            let (offsets, bytes) = texts.parts();
            offsets[1..].iter().for_each(|offset| out.extend_from_slice(&(*offset as u64).to_le_bytes()));
            out.extend_from_slice(bytes);
        }
        Data::Values(values) => {
            for (row, value) in values.iter().enumerate() {
                let null = column.is_null(row);
                write_sized(
                    out,
                    |out| if null { Some(()) } else { row::write_value(value, column.ty(), out) },
                )?;
            }
        }
    }
    Ok(())
}

fn write_sized(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>) -> Option<()>) -> Result<()> {
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    write(out).ok_or_else(|| Error::internal("a value of another type was spilled"))?;
    let length = u32::try_from(out.len() - at - 4).map_err(|_| damaged())?;
    out[at..at + 4].copy_from_slice(&length.to_le_bytes());
    Ok(())
}

fn read_column(input: &mut Input<'_>, ty: Type, rows: usize) -> Result<Column> {
    let count = input.word()? as usize;
    let nulls: Vec<bool> = input.take(count)?.iter().map(|byte| *byte == 1).collect();
    if !nulls.is_empty() && nulls.len() != rows {
        return Err(damaged());
    }
    let mut data = Data::new(ty, rows.min(input.0.len()));
    match &mut data {
        Data::Bool(values) => values.extend(input.take(rows)?.iter().map(|byte| *byte == 1)),
        Data::Int(values) => {
            for _ in 0..rows {
                values.push(input.word()? as i64);
            }
        }
        Data::Float(values) => {
            for _ in 0..rows {
                values.push(f64::from_bits(input.word()?));
            }
        }
        Data::Numeric(values) => {
            for _ in 0..rows {
                values.push(Numeric::read_compact(input.sized()?).ok_or_else(damaged)?);
            }
        }
        Data::Text(texts) => {
            let mut offsets = Vec::with_capacity(rows + 1);
            offsets.push(0);
            for _ in 0..rows {
                offsets.push(input.word()? as usize);
            }
            let bytes = input.take(offsets[rows])?.to_vec();
            *texts = Texts::from_parts(offsets, bytes).ok_or_else(damaged)?;
        }
        Data::Values(values) => {
            for row in 0..rows {
                let bytes = input.sized()?;
                values.push(if !nulls.is_empty() && nulls[row] {
                    Value::Null
                } else {
                    row::read_value(bytes, ty).ok_or_else(damaged)?
                });
            }
        }
    }
    Ok(Column::from_parts(ty, data, nulls))
}

struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or_else(damaged)?;
        self.0 = rest;
        Ok(taken)
    }

    fn word(&mut self) -> Result<u64> {
        let bytes = self.take(8)?;
        Ok(u64::from_le_bytes(bytes.try_into().map_err(|_| damaged())?))
    }

    fn sized(&mut self) -> Result<&'a [u8]> {
        let length = self.take(4)?;
        let length = u32::from_le_bytes(length.try_into().map_err(|_| damaged())?);
        self.take(length as usize)
    }
}

fn damaged() -> Error {
    Error::new(Code::IoError, "a temporary file does not hold what was written into it")
}

#[cfg(test)]
mod tests {
    use model::value::{Interval, Jsonb};

    use super::*;

    fn directory(name: &str, limit: u64) -> Arc<Directory> {
        Directory::open(
            std::env::temp_dir().join(format!("keystead-spill-{name}-{}", std::process::id())),
            limit,
        )
    }

    fn types() -> Vec<Type> {
        vec![Type::Bool, Type::Int4, Type::Float8, Type::Numeric, Type::Text, Type::Interval, Type::Jsonb]
    }

    fn rows() -> Vec<Vec<Value>> {
        let full = vec![
            Value::Bool(true),
            Value::Int4(-7),
            Value::Float8(f64::NAN),
            Value::Numeric("123456789012345678901234567890.500".parse().expect("a number")),
            Value::text("ä\n"),
            Value::Interval(Interval::new(1, -2, 3)),
            Value::Jsonb(Jsonb::parse("{\"a\": [1, null]}").expect("JSON")),
        ];
        let nulls = vec![Value::Null; full.len()];
        vec![full, nulls]
    }

    #[test]
    fn what_is_spilled_is_read_back_twice() {
        let directory = directory("back", u64::MAX);
        let mut file = directory.create(&types()).expect("a file");
        let batch = Batch::from_rows(&types(), &rows());
        file.write(&batch).expect("room");
        file.write(&batch.select(&[1, 0])).expect("room");
        let mut file = file.finish().expect("a whole file");
        for _ in 0..2 {
            let first = file.next_batch().expect("a batch").expect("two batches");
            let second = file.next_batch().expect("a batch").expect("two batches");
            assert_eq!(first.rows(), rows());
            assert_eq!(second.rows(), [rows()[1].clone(), rows()[0].clone()]);
            assert!(file.next_batch().expect("the end").is_none());
            file.rewind().expect("the start");
        }
    }

    #[test]
    fn a_file_goes_with_its_reader_and_a_full_directory_refuses() {
        let directory = directory("full", 300);
        let batch = Batch::from_rows(&types(), &rows());
        let mut file = directory.create(&types()).expect("a file");
        file.write(&batch).expect("room for one");
        let refused = file.write(&batch).expect_err("no room for two");
        assert_eq!(refused.code(), Code::DiskFull);
        let path = file.place.path.clone();
        let reader = file.finish().expect("a file");
        assert!(path.exists() && directory.used() > 0);
        drop(reader);
        assert!(!path.exists());
        assert_eq!(directory.used(), 0);
    }
}
