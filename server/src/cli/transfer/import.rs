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
    /// Of the table that was there: a new one of the same name begins anew.
    table: u32,
    file_bytes: u64,
    /// When the file was last changed, in nanoseconds since 1970.
    file_changed: u64,
    /// How many rows a chunk has: what is done again must be cut as before.
    chunk_rows: u32,
    /// Drawn at random; part of the names of this import's commands.
    import: u64,
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
    /// An earlier run may have sent the next chunk without noting it.
    may_be_there: bool,
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
    let mut import = [0; 8];
    crate::auth::scram::random(&mut import)?;
    let mut place = Place {
        table: table_id(&mut client, &options.table)?,
        chunk_rows: options.chunk_rows_max,
        import: u64::from_le_bytes(import),
        ..Place::default()
    };
    let place_file = (!is_stdin).then(|| place_beside(&options.file));
    let mut may_be_there = false;
    let mut header = Vec::new();
    if !is_stdin {
        let mut file = fs::File::open(&options.file).map_err(of_file)?;
        let facts = file.metadata().map_err(of_file)?;
        place.file_bytes = facts.len();
        place.file_changed = changed(&facts);
        header = if layout == Layout::Csv && !options.no_header {
            read_header(&file, delimiter).map_err(of_file)?
        } else {
            Vec::new()
        };
        let earlier = place_file.as_deref().filter(|_| !options.restart).and_then(read_place);
        if let Some(earlier) = earlier
            && (earlier.table, earlier.file_bytes, earlier.file_changed)
                == (place.table, place.file_bytes, place.file_changed)
        {
            eprintln!("going on after row {} of an earlier import", earlier.rows + earlier.skipped);
            place = earlier;
            may_be_there = true;
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
    if let (Some(_), false) = (&place_file, may_be_there) {
        // The names of the commands must be known before the first is sent.
        note(place_file.as_deref(), &place)?;
    }
    let mut import = Import { client, copy, options, place, place_file, may_be_there, progress };
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
            if is_end || chunk.len() >= self.place.chunk_rows as usize || bytes >= CHUNK_BYTES_MAX {
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

    /// Sends rows as one statement under a name; if it is refused, halves until the row at fault is alone.
    fn send(&mut self, rows: &[Row]) -> Result<(), Failure> {
        let Some(first) = rows.first() else { return Ok(()) };
        if self.place_file.is_some() {
            let name = command_name(self.place.import, first.number, rows.len() as u64);
            if self.may_be_there && is_applied(&mut self.client, &name)? {
                self.place.rows += rows.len() as u64;
                return Ok(());
            }
            self.client.query(&format!("SET keystead.command_id = '{name}'"), |_| {})?;
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
        self.may_be_there = false;
        self.progress.set_position(end);
        note(self.place_file.as_deref(), &self.place)
    }
}

/// Writes a place beside its file, whole or not at all.
fn note(path: Option<&Path>, place: &Place) -> Result<(), Failure> {
    let Some(path) = path else { return Ok(()) };
    let written = serde_json::to_vec(place).map_err(io::Error::from).and_then(|bytes| {
        let unfinished = path.with_extension("new");
        fs::write(&unfinished, bytes)?;
        fs::rename(&unfinished, path)
    });
    written.map_err(|error| Failure::from_io(path.display(), &error))
}

/// The name of the command that brings in `count` rows from row `first` on: the same whenever the import is run again.
/// 60 bits of the import, 40 of the row, 20 of the count, laid out as a UUID of version 4.
fn command_name(import: u64, first: u64, count: u64) -> String {
    let rows = ((first & 0xff_ffff_ffff) << 20) | (count & 0xf_ffff);
    format!(
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        import as u32,
        (import >> 32) as u16,
        (import >> 48) & 0xfff,
        0x8000 | (rows >> 48),
        rows & 0xffff_ffff_ffff,
    )
}

fn is_applied(client: &mut Client, name: &str) -> Result<bool, Failure> {
    let rows = client.rows(&format!("SELECT command_status('{name}')"))?;
    Ok(rows.first().and_then(|row| row.first()?.as_deref()) == Some("applied"))
}

fn table_id(client: &mut Client, table: &str) -> Result<u32, Failure> {
    let name = quote(&quoted_table(table), '\'');
    let rows = client.rows(&format!("SELECT {name}::regclass::oid"))?;
    let id = rows.first().and_then(|row| row.first()?.as_deref()?.parse().ok());
    id.ok_or_else(|| Failure::new(Kind::Answer, format!("{table} has no id")))
}

fn changed(facts: &fs::Metadata) -> u64 {
    let since = facts.modified().ok().and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
    since.map_or(0, |time| time.as_nanos() as u64)
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
