//! Export: one statement, streamed to a file that appears under its name only when it is whole.
//!
//! What is no regular file — a pipe, a device — is written to as it is. A link is followed, and a file that is there keeps
//! its rights.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use super::{ExportOptions, Layout, layout_of, quoted_table};
use crate::{
    cli::{
        client::{Column, Event},
        shell::json_row,
    },
    exit::Failure,
};

/// Runs `keystead export`.
pub(crate) fn export(options: &ExportOptions) -> Result<(), Failure> {
    let mut client = options.to.connect()?;
    let of_file = |error: io::Error| Failure::from_io(options.file.display(), &error);
    let target = if options.file.as_os_str() == "-" {
        Target { out: Box::new(io::stdout()), becomes: None }
    } else {
        Target::open(&options.file).map_err(of_file)?
    };
    let Target { mut out, becomes } = target;
    let is_query = options.source.trim_start().starts_with('(');
    let source = if is_query { options.source.clone() } else { quoted_table(&options.source) };
    let layout = layout_of(options.layout, &options.file);
    let statement = match (layout, is_query) {
        (Layout::Csv, _) => format!("COPY {source} TO STDOUT (FORMAT csv, HEADER)"),
        (Layout::Jsonl, true) => format!("SELECT * FROM {source} AS exported"),
        (Layout::Jsonl, false) => format!("SELECT * FROM {source}"),
    };
    let mut columns: Vec<Column> = Vec::new();
    let mut written = Ok(());
    let mut count = String::new();
    let asked = client.query(&statement, |event| match event {
        Event::Columns(described) => columns = described.to_vec(),
        Event::Row(row) if written.is_ok() => {
            let row: Vec<Option<String>> = row.iter().map(|value| value.map(str::to_owned)).collect();
            written = writeln!(out, "{}", json_row(&columns, &row));
        }
        Event::CopyOut(bytes) if written.is_ok() => written = out.write_all(bytes),
        Event::Done(tag) => count = tag.rsplit(' ').next().unwrap_or_default().to_owned(),
        Event::Row(_) | Event::CopyOut(_) | Event::Notice(_) | Event::Failed(_) | Event::CopyInRefused => {}
    });
    let finished = written.and_then(|()| out.flush());
    drop(out);
    let result = match (asked, finished) {
        (Err(error), _) => Err(error.into()),
        (Ok(()), finished) => finished.map_err(of_file),
    };
    if let Some((unfinished, whole)) = becomes {
        if result.is_ok() {
            fs::rename(&unfinished, whole).map_err(of_file)?;
        } else {
            let _ = fs::remove_file(&unfinished);
        }
    }
    result?;
    eprintln!("{count} rows exported");
    Ok(())
}

/// Where rows go.
struct Target {
    out: Box<dyn Write>,
    /// The unfinished file, and what it becomes.
    becomes: Option<(PathBuf, PathBuf)>,
}

impl Target {
    fn open(path: &Path) -> io::Result<Self> {
        let there = match fs::metadata(path) {
            Ok(there) => Some(there),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let buffered = |file| Box::new(io::BufWriter::with_capacity(256 << 10, file));
        if there.as_ref().is_some_and(|there| !there.is_file()) {
            let file = fs::OpenOptions::new().write(true).open(path)?;
            return Ok(Self { out: buffered(file), becomes: None });
        }
        let whole = if there.is_some() { fs::canonicalize(path)? } else { path.to_path_buf() };
        let mut unfinished = whole.as_os_str().to_owned();
        unfinished.push(".new");
        let unfinished = PathBuf::from(unfinished);
        let file = fs::File::create(&unfinished)?;
        if let Some(there) = there {
            file.set_permissions(there.permissions())?;
        }
        Ok(Self { out: buffered(file), becomes: Some((unfinished, whole)) })
    }
}
