//! Import: chunks of rows, each a COPY statement of its own, resumable.

use std::{
    fs,
    io::{self, IsTerminal, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

use indicatif::{ProgressBar, ProgressStyle};
use serde::{Deserialize, Serialize};

use super::{
    ImportOptions, Layout, layout_of, quoted_table,
    rows::{NULL, Row, Rows},
};
use crate::{
    cli::client::{Client, ClientError, quote},
    exit::{Failure, Kind},
};

/// At most so many bytes in one statement.
const CHUNK_BYTES_MAX: usize = 4 << 20;
/// At most so many refused rows are shown.
const SHOWN_MAX: u64 = 10;

/// How far an import has come, kept beside its file.
#[derive(Serialize, Deserialize, Default, Clone, PartialEq, Debug)]
struct Place {
    table: String,
    file_bytes: u64,
    bytes: u64,
    rows: u64,
    skipped: u64,
}

struct Import<'a> {
    client: Client,
    copy: String,
    options: &'a ImportOptions,
    place: Place,
    place_file: Option<PathBuf>,
    progress: ProgressBar,
}

/// Runs `keystead import`.
pub(crate) fn import(options: &ImportOptions) -> Result<(), Failure> {
    let mut client = options.to.connect()?;
    let layout = layout_of(options.layout, &options.file);
    let is_stdin = options.file.as_os_str() == "-";
    let of_file = |error: io::Error| Failure::from_io(options.file.display(), &error);
    let delimiter = u8::try_from(options.delimiter)
        .map_err(|_| Failure::new(Kind::Usage, "the delimiter must be one ASCII character"))?;

    let mut source: Box<dyn Read> = Box::new(io::stdin());
    let mut place = Place { table: options.table.clone(), ..Place::default() };
    let place_file = (!is_stdin).then(|| place_beside(&options.file));
    let mut header = Vec::new();
    if !is_stdin {
        let mut file = fs::File::open(&options.file).map_err(of_file)?;
        place.file_bytes = file.metadata().map_err(of_file)?.len();
        header = if layout == Layout::Csv && !options.no_header {
            read_header(&file, delimiter).map_err(of_file)?
        } else {
            Vec::new()
        };
        let earlier = place_file.as_deref().filter(|_| !options.restart).and_then(read_place);
        if let Some(earlier) = earlier
            && earlier.table == place.table
            && earlier.file_bytes == place.file_bytes
        {
            eprintln!("going on after row {} of an earlier import", earlier.rows + earlier.skipped);
            place = earlier;
        }
        file.seek(SeekFrom::Start(place.bytes)).map_err(of_file)?;
        source = Box::new(io::BufReader::with_capacity(256 << 10, file));
    }
    let is_at_start = place.bytes == 0;
    let mut columns = options.columns.clone();
    if columns.is_empty() {
        columns = header;
    }
    let has_header = layout == Layout::Csv && !options.no_header;
    if columns.is_empty() && !(has_header && is_stdin) {
        columns = columns_of(&mut client, &options.table)?;
    }
    let (base, number) = (place.bytes, place.rows + place.skipped);
    let mut rows = Rows::new(layout, source, delimiter, &columns, &options.null, base, number);
    if has_header && is_at_start {
        let names = rows.take_header().map_err(of_file)?;
        if columns.is_empty() {
            columns = names;
            rows.set_columns(&columns);
        }
    }
    let names: Vec<String> = columns.iter().map(|column| quote(column, '"')).collect();
    let copy = format!(
        "COPY {} ({}) FROM STDIN (FORMAT csv, NULL '{NULL}')",
        quoted_table(&options.table),
        names.join(", ")
    );
    let progress = progress_bar(place.file_bytes);
    let mut import = Import { client, copy, options, place, place_file, progress };
    import.run(&mut rows)
}

impl Import<'_> {
    fn run<R: Read>(&mut self, rows: &mut Rows<R>) -> Result<(), Failure> {
        let mut chunk: Vec<Row> = Vec::new();
        let mut bytes = 0;
        loop {
            let next = rows.next();
            let next = next.map_err(|error| Failure::from_io(self.options.file.display(), &error))?;
            let is_end = next.is_none();
            match next {
                None => {}
                Some(Ok(row)) => {
                    bytes += row.line.len();
                    chunk.push(row);
                }
                Some(Err(bad)) => {
                    self.send(&chunk)?;
                    chunk.clear();
                    bytes = 0;
                    self.skip(bad.number, &bad.problem)?;
                    self.note(bad.end)?;
                }
            }
            if is_end || chunk.len() >= self.options.chunk_rows_max as usize || bytes >= CHUNK_BYTES_MAX {
                let end = chunk.last().map(|row| row.end);
                self.send(&chunk)?;
                chunk.clear();
                bytes = 0;
                if let Some(end) = end {
                    self.note(end)?;
                }
            }
            if is_end {
                break;
            }
        }
        self.progress.finish_and_clear();
        if let Some(path) = &self.place_file {
            let _ = fs::remove_file(path);
        }
        println!("{} rows imported, {} skipped", self.place.rows, self.place.skipped);
        match self.place.skipped {
            0 => Ok(()),
            skipped => Err(Failure::new(Kind::Answer, format!("{skipped} rows were skipped"))),
        }
    }

    /// Sends rows as one statement; if it is refused, halves until the row at fault is alone.
    fn send(&mut self, rows: &[Row]) -> Result<(), Failure> {
        if rows.is_empty() {
            return Ok(());
        }
        let data: Vec<u8> = rows.iter().flat_map(|row| row.line.iter().copied()).collect();
        match self.client.query_with_input(&self.copy, Some(&mut data.as_slice()), &mut |_| ()) {
            Ok(()) => {
                self.place.rows += rows.len() as u64;
                Ok(())
            }
            Err(ClientError::Server(problem)) if is_of_data(&problem.code) => match rows {
                [row] => self.skip(row.number, &problem.message),
                rows => {
                    let (first, second) = rows.split_at(rows.len() / 2);
                    self.send(first)?;
                    self.send(second)
                }
            },
            Err(other) => {
                self.progress.finish_and_clear();
                Err(other.into())
            }
        }
    }

    fn skip(&mut self, number: u64, problem: &str) -> Result<(), Failure> {
        self.place.skipped += 1;
        if self.place.skipped <= SHOWN_MAX {
            self.progress.suspend(|| eprintln!("row {number} skipped: {problem}"));
        }
        if self.place.skipped > self.options.skipped_max {
            return Err(Failure::new(
                Kind::Answer,
                format!("more than {} rows were refused; the import stops here", self.options.skipped_max),
            ));
        }
        Ok(())
    }

    /// Writes down how far the file is in the table.
    fn note(&mut self, end: u64) -> Result<(), Failure> {
        self.place.bytes = end;
        self.progress.set_position(end);
        let Some(path) = &self.place_file else { return Ok(()) };
        let written = serde_json::to_vec(&self.place).map_err(io::Error::from).and_then(|bytes| {
            let unfinished = path.with_extension("new");
            fs::write(&unfinished, bytes)?;
            fs::rename(&unfinished, path)
        });
        written.map_err(|error| Failure::from_io(path.display(), &error))
    }
}

/// Whether a row is at fault, rather than the statement or the server.
fn is_of_data(code: &str) -> bool {
    code.starts_with("22") || code.starts_with("23")
}

fn columns_of(client: &mut Client, table: &str) -> Result<Vec<String>, Failure> {
    let mut names = Vec::new();
    client.query(&format!("SELECT * FROM {} LIMIT 0", quoted_table(table)), |event| {
        if let crate::cli::client::Event::Columns(columns) = event {
            names = columns.iter().map(|column| column.name.clone()).collect();
        }
    })?;
    Ok(names)
}

fn read_header(file: &fs::File, delimiter: u8) -> io::Result<Vec<String>> {
    let mut reader =
        csv::ReaderBuilder::new().has_headers(false).delimiter(delimiter).from_reader(file.try_clone()?);
    let mut record = csv::StringRecord::new();
    reader.read_record(&mut record).map_err(io::Error::other)?;
    let names = record.iter().map(|name| name.trim_start_matches('\u{feff}').trim().to_owned()).collect();
    let mut file = file;
    file.seek(SeekFrom::Start(0))?;
    Ok(names)
}

fn place_beside(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".keystead-import");
    PathBuf::from(name)
}

fn read_place(path: &Path) -> Option<Place> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

fn progress_bar(bytes: u64) -> ProgressBar {
    if bytes == 0 || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {bytes}/{total_bytes} {eta}");
    ProgressBar::new(bytes).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
