//! Export: one statement, streamed to a file that appears under its name only when it is whole.

use std::{
    fs,
    io::{self, Write},
    path::PathBuf,
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
    let is_stdout = options.file.as_os_str() == "-";
    let mut unfinished = options.file.as_os_str().to_owned();
    unfinished.push(".new");
    let unfinished = PathBuf::from(unfinished);
    let mut out: Box<dyn Write> = if is_stdout {
        Box::new(io::stdout())
    } else {
        Box::new(io::BufWriter::with_capacity(256 << 10, fs::File::create(&unfinished).map_err(of_file)?))
    };
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
    if let Err(error) = asked {
        if !is_stdout {
            let _ = fs::remove_file(&unfinished);
        }
        return Err(error.into());
    }
    finished.map_err(of_file)?;
    if !is_stdout {
        fs::rename(&unfinished, &options.file).map_err(of_file)?;
    }
    eprintln!("{count} rows exported");
    Ok(())
}
