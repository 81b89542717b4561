//! `keystead sql`: a small shell, and statements from arguments, files and pipes.
//!
//! Invariants:
//! - Results go to stdout, everything else to stderr.
//! - With `-c`, `-f` or a pipe the first failed statement ends it with exit code 1; at a terminal the shell goes on.
//! - Ctrl-C cancels the statement that runs, not the shell.

mod meta;
mod print;
mod split;

use std::{
    collections::BTreeSet,
    fs,
    io::{self, BufRead, IsTerminal, Read, Write},
    path::PathBuf,
    time::Duration,
};

use clap::Args;
use model::time::Clock as _;
use rustyline::{
    Config, Editor, Helper,
    completion::{Completer, Pair},
    error::ReadlineError,
    highlight::Highlighter,
    hint::Hinter,
    history::FileHistory,
    validate::Validator,
};

use super::{
    client::{Client, ClientError, Event, quote},
    target::Where,
};
use crate::{
    clock::SystemClock,
    exit::{Failure, Kind},
};
use meta::Meta;
pub(super) use print::{Format, Sheet, json_row};
use split::{End, end_of_statement, is_blank};

/// Arguments of `keystead sql`.
#[derive(Args, Debug)]
pub(super) struct Options {
    #[command(flatten)]
    to: Where,
    /// Run this and leave; may be given several times
    #[arg(short, long, value_name = "SQL")]
    command: Vec<String>,
    /// Run the statements of a file and leave; `-` is standard input
    #[arg(short, long, value_name = "FILE")]
    file: Vec<PathBuf>,
    /// How results look
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Show each row as a list of fields
    #[arg(short = 'x', long)]
    expanded: bool,
}

struct Shell {
    client: Client,
    format: Format,
    expanded: bool,
    timing: bool,
    clock: SystemClock,
}

/// Runs `keystead sql`.
pub(super) fn run(options: &Options) -> Result<(), Failure> {
    let mut shell = Shell {
        client: options.to.connect()?,
        format: options.format,
        expanded: options.expanded,
        timing: false,
        clock: SystemClock::new(),
    };
    if options.command.is_empty() && options.file.is_empty() {
        if io::stdin().is_terminal() {
            return shell.interact(options);
        }
        return shell.run_reader(&mut io::stdin().lock());
    }
    for command in &options.command {
        if command.trim_start().starts_with('\\') {
            shell.run_meta(command)?;
        } else {
            shell.run_statement(command, None)?;
        }
    }
    for file in &options.file {
        if file.as_os_str() == "-" {
            shell.run_reader(&mut io::stdin().lock())?;
        } else {
            shell.run_file(file)?;
        }
    }
    Ok(())
}

impl Shell {
    fn run_file(&mut self, path: &PathBuf) -> Result<(), Failure> {
        let file = fs::File::open(path).map_err(|error| Failure::from_io(path.display(), &error))?;
        self.run_reader(&mut io::BufReader::new(file))
    }

    /// Runs statements one by one; data of COPY FROM STDIN follows its statement, up to `\.`.
    fn run_reader(&mut self, reader: &mut dyn BufRead) -> Result<(), Failure> {
        let mut text = String::new();
        let mut line = String::new();
        loop {
            line.clear();
            let count = reader.read_line(&mut line).map_err(|error| Failure::from_io("input", &error))?;
            if count == 0 {
                return if is_blank(&text) { Ok(()) } else { self.run_statement(&text, None) };
            }
            if is_blank(&text) && line.trim_start().starts_with('\\') {
                if self.run_meta(&line)? {
                    return Ok(());
                }
                continue;
            }
            text.push_str(&line);
            while let End::At(end) = end_of_statement(&text) {
                let rest = text.split_off(end);
                let statement = std::mem::replace(&mut text, rest);
                if !is_blank(&statement) {
                    let mut data =
                        CopyLines { reader: &mut *reader, line: Vec::new(), at: 0, is_done: false };
                    self.run_statement(&statement, Some(&mut data))?;
                }
                if is_blank(&text) {
                    text.clear();
                }
            }
        }
    }

    fn run_statement(&mut self, sql: &str, data: Option<&mut dyn Read>) -> Result<(), Failure> {
        self.execute(sql, data).map_err(|error| match error {
            // It was shown already.
            ClientError::Server(_) => Failure::new(Kind::Answer, ""),
            other => Failure::from(other),
        })
    }

    fn execute(&mut self, sql: &str, data: Option<&mut dyn Read>) -> Result<(), ClientError> {
        let started = self.clock.monotonic();
        let (format, expanded) = (self.format, self.expanded);
        let mut out = io::stdout().lock();
        let mut sheet: Option<Sheet> = None;
        let result = self.client.query_with_input(sql, data, &mut |event| {
            let written = match event {
                Event::Columns(columns) => {
                    sheet = Some(Sheet { columns: columns.to_vec(), rows: Vec::new() });
                    Ok(())
                }
                Event::Row(row) => {
                    if let Some(sheet) = &mut sheet {
                        sheet.rows.push(row.iter().map(|value| value.map(str::to_owned)).collect());
                    }
                    Ok(())
                }
                Event::Done(tag) => match sheet.take() {
                    Some(sheet) => sheet.write(&mut out, format, expanded),
                    None if tag.is_empty() => Ok(()),
                    None if format == Format::Table => writeln!(out, "{tag}"),
                    None => writeln!(io::stderr(), "{tag}"),
                },
                Event::CopyOut(bytes) => out.write_all(bytes),
                Event::Notice(problem) => writeln!(io::stderr(), "{problem}"),
                Event::Failed(problem) => show_failure(sql, problem),
                Event::CopyInRefused => {
                    writeln!(
                        io::stderr(),
                        "COPY FROM STDIN needs data: use -f FILE, a pipe, or `keystead import`"
                    )
                }
            };
            // A reader that has gone away (`| head`) is not an error of the statement.
            let _ = written;
        });
        let _ = out.flush();
        if self.timing {
            let took = self.clock.monotonic().saturating_sub(started);
            let _ = writeln!(io::stderr(), "Time: {:.3} ms", took.as_secs_f64() * 1000.0);
        }
        result
    }

    /// Runs a backslash command; `true` says to leave.
    fn run_meta(&mut self, line: &str) -> Result<bool, Failure> {
        match meta::parse(line) {
            Meta::Queries(queries) => {
                for (heading, query) in queries {
                    if self.format == Format::Table {
                        println!("{heading}");
                    }
                    self.run_statement(&query, None)?;
                }
            }
            Meta::Expanded => {
                self.expanded = !self.expanded;
                eprintln!("Expanded display is {}.", if self.expanded { "on" } else { "off" });
            }
            Meta::Timing => {
                self.timing = !self.timing;
                eprintln!("Timing is {}.", if self.timing { "on" } else { "off" });
            }
            Meta::Include(path) => self.run_file(&PathBuf::from(path))?,
            Meta::Help => eprintln!("{}", meta::HELP),
            Meta::Quit => return Ok(true),
            Meta::Unknown(command) => {
                eprintln!("invalid command {command}; \\? shows what there is");
                return Err(Failure::new(Kind::Answer, ""));
            }
        }
        Ok(false)
    }

    fn interact(&mut self, options: &Options) -> Result<(), Failure> {
        let version = self.client.parameters.iter().find(|(name, _)| name == "server_version");
        let version = version.map_or("?", |(_, version)| version);
        eprintln!("keystead sql (speaks PostgreSQL {version}); \\? for help, \\q to leave");
        let config = Config::builder().auto_add_history(false).max_history_size(10_000);
        let config = config.map(|config| config.build()).unwrap_or_default();
        let mut editor: Editor<Words, FileHistory> =
            Editor::with_config(config).map_err(|error| Failure::new(Kind::System, error.to_string()))?;
        editor.set_helper(Some(Words(self.words())));
        let history = history_file();
        if let Some(path) = &history {
            let _ = editor.load_history(path);
        }
        let mut text = String::new();
        loop {
            let mark = match (is_blank(&text), self.client.status) {
                (false, _) => '-',
                (true, b'T') => '*',
                (true, b'E') => '!',
                (true, _) => '=',
            };
            match editor.readline(&format!("keystead{mark}> ")) {
                Ok(line) => {
                    if text.is_empty() && line.trim_start().starts_with('\\') {
                        let _ = editor.add_history_entry(line.trim());
                        match self.run_meta(&line) {
                            Ok(true) => break,
                            Ok(false) => {}
                            Err(failure) => self.go_on(&failure, options)?,
                        }
                        continue;
                    }
                    text.push_str(&line);
                    text.push('\n');
                    while let End::At(end) = end_of_statement(&text) {
                        let rest = text.split_off(end);
                        let statement = std::mem::replace(&mut text, rest);
                        let _ = editor.add_history_entry(statement.trim());
                        if let Err(failure) = self.run_interruptible(&statement) {
                            self.go_on(&failure, options)?;
                        }
                    }
                    if is_blank(&text) {
                        text.clear();
                    }
                }
                Err(ReadlineError::Interrupted) => text.clear(),
                Err(ReadlineError::Eof) => break,
                Err(error) => return Err(Failure::new(Kind::Io, error.to_string())),
            }
        }
        if let Some(path) = &history {
            let _ = editor.save_history(path);
        }
        Ok(())
    }

    /// Ctrl-C while a statement runs sends a cancel request.
    fn run_interruptible(&mut self, sql: &str) -> Result<(), Failure> {
        let canceller = self.client.canceller();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Failure::from_io("runtime", &error))?;
        let (done, finished) = std::sync::mpsc::channel::<()>();
        let watcher = std::thread::spawn(move || {
            runtime.block_on(async {
                loop {
                    tokio::select! {
                        signal = tokio::signal::ctrl_c() => {
                            if signal.is_ok() {
                                let _ = canceller.cancel();
                            }
                        }
                        () = tokio::time::sleep(Duration::from_millis(20)) => {}
                    }
                    if finished.try_recv() != Err(std::sync::mpsc::TryRecvError::Empty) {
                        return;
                    }
                }
            });
        });
        let result = self.run_statement(sql, None);
        drop(done);
        let _ = watcher.join();
        result
    }

    /// At a terminal a failed statement is not the end; a lost connection is made again.
    fn go_on(&mut self, failure: &Failure, options: &Options) -> Result<(), Failure> {
        if failure.kind() == Kind::Answer {
            return Ok(());
        }
        eprintln!("{failure}\nconnecting again …");
        self.client = options.to.connect()?;
        Ok(())
    }

    fn words(&mut self) -> BTreeSet<String> {
        let mut words: BTreeSet<String> = KEYWORDS.iter().map(|word| (*word).to_owned()).collect();
        words.extend(meta::COMMANDS.iter().map(|command| (*command).to_owned()));
        let names = self.client.rows(
            "select c.relname from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace \
             where n.nspname <> 'pg_catalog' and n.nspname <> 'information_schema'",
        );
        for name in names.unwrap_or_default().into_iter().flatten().flatten() {
            let is_plain = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
            words.insert(if is_plain { name } else { quote(&name, '"') });
        }
        words
    }
}

fn show_failure(sql: &str, problem: &super::client::Problem) -> io::Result<()> {
    let mut err = io::stderr().lock();
    writeln!(err, "{problem}")?;
    if let Some(position) = problem.position {
        let before: String = sql.chars().take(position.saturating_sub(1)).collect();
        let number = before.matches('\n').count();
        let line = sql.lines().nth(number).unwrap_or_default();
        let column = before.rsplit('\n').next().map_or(0, |text| text.chars().count());
        let head = format!("LINE {}: ", number + 1);
        writeln!(err, "{head}{line}\n{}^", " ".repeat(head.len() + column))?;
    }
    Ok(())
}

fn history_file() -> Option<PathBuf> {
    let home = PathBuf::from(std::env::var_os("HOME")?);
    Some(home.join(".keystead_history"))
}

/// The lines between COPY FROM STDIN and `\.`.
struct CopyLines<'a> {
    reader: &'a mut dyn BufRead,
    line: Vec<u8>,
    at: usize,
    is_done: bool,
}

impl Read for CopyLines<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.at == self.line.len() && !self.is_done {
            self.line.clear();
            self.at = 0;
            let count = self.reader.read_until(b'\n', &mut self.line)?;
            if count == 0 || self.line.trim_ascii_end() == b"\\." {
                self.is_done = true;
                self.line.clear();
            }
        }
        let count = into.len().min(self.line.len() - self.at);
        into[..count].copy_from_slice(&self.line[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}

/// What can be completed: key words, commands, names of relations.
struct Words(BTreeSet<String>);

impl Helper for Words {}
impl Highlighter for Words {}
impl Hinter for Words {
    type Hint = String;
}
impl Validator for Words {}

impl Completer for Words {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _: &rustyline::Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let start =
            line[..position].rfind(|c: char| c.is_whitespace() || "(),;".contains(c)).map_or(0, |at| at + 1);
        let typed = &line[start..position];
        if typed.is_empty() {
            return Ok((position, Vec::new()));
        }
        let matches = self
            .0
            .iter()
            .filter(|word| word.get(..typed.len()).is_some_and(|head| head.eq_ignore_ascii_case(typed)));
        let pairs = matches.map(|word| Pair { display: word.clone(), replacement: word.clone() });
        Ok((start, pairs.collect()))
    }
}

const KEYWORDS: [&str; 62] = [
    "alter",
    "analyze",
    "and",
    "as",
    "asc",
    "begin",
    "between",
    "by",
    "case",
    "cascade",
    "check",
    "collection",
    "column",
    "commit",
    "copy",
    "create",
    "cross",
    "database",
    "default",
    "delete",
    "desc",
    "distinct",
    "drop",
    "else",
    "end",
    "exists",
    "explain",
    "foreign",
    "from",
    "full",
    "grant",
    "group",
    "having",
    "in",
    "index",
    "inner",
    "insert",
    "into",
    "is",
    "join",
    "key",
    "left",
    "like",
    "limit",
    "not",
    "null",
    "offset",
    "on",
    "or",
    "order",
    "partition",
    "primary",
    "references",
    "returning",
    "rollback",
    "select",
    "set",
    "table",
    "union",
    "update",
    "values",
    "where",
];
