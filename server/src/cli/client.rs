//! The tools' own client of the SQL door: blocking, one connection, simple protocol and COPY, and raw frames for benches.
//!
//! Invariants:
//! - After `query` and the COPY calls return, the connection is ready for the next statement, whatever the server
//!   answered; after an I/O error it is not to be used again.
//! - A password is never part of an error or of `Debug`.

use std::{
    fmt,
    io::{self, Read, Write},
    net::{Shutdown, TcpStream, ToSocketAddrs},
    time::Duration,
};

use crate::auth::scram;

/// No message of a server is longer.
const MESSAGE_BYTES_MAX: usize = 1 << 30;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Where to connect, and as whom.
#[derive(Clone)]
pub struct Target {
    /// Host name or address.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Role.
    pub user: String,
    /// Its password.
    pub password: String,
    /// Database.
    pub database: String,
}

/// What an ErrorResponse or NoticeResponse says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problem {
    /// Severity, such as `ERROR`.
    pub severity: String,
    /// SQLSTATE.
    pub code: String,
    /// Primary message.
    pub message: String,
    /// Detail.
    pub detail: Option<String>,
    /// Hint.
    pub hint: Option<String>,
    /// Where it happened.
    pub context: Option<String>,
    /// Place in the statement, 1-based characters.
    pub position: Option<usize>,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:  {}", self.severity, self.message)?;
        for (name, text) in [("DETAIL", &self.detail), ("HINT", &self.hint), ("CONTEXT", &self.context)] {
            if let Some(text) = text {
                write!(f, "\n{name}:  {text}")?;
            }
        }
        Ok(())
    }
}

/// Why a call failed.
#[derive(Debug)]
pub enum ClientError {
    /// The connection broke, or never was.
    Io(io::Error),
    /// The server said no.
    Server(Box<Problem>),
    /// The server said something we do not understand.
    Protocol(String),
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "connection failed: {error}"),
            Self::Server(problem) => problem.fmt(f),
            Self::Protocol(text) => write!(f, "unexpected answer of the server: {text}"),
        }
    }
}

impl std::error::Error for ClientError {}

impl From<io::Error> for ClientError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl ClientError {
    /// The SQLSTATE, if the server gave one.
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Server(problem) => Some(&problem.code),
            Self::Io(_) | Self::Protocol(_) => None,
        }
    }
}

/// A column of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// The OID of its type.
    pub oid: u32,
}

/// What comes back for one statement, piece by piece.
#[derive(Debug)]
pub enum Event<'a> {
    /// The columns of a result with rows.
    Columns(&'a [Column]),
    /// One row, as text.
    Row(&'a [Option<&'a str>]),
    /// The end of a statement: its command tag.
    Done(&'a str),
    /// Something to know.
    Notice(&'a Problem),
    /// Bytes of COPY TO STDOUT.
    CopyOut(&'a [u8]),
    /// A statement failed.
    Failed(&'a Problem),
    /// COPY FROM STDIN was asked for, and nobody can give data.
    CopyInRefused,
}

/// A connection.
pub struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
    start: usize,
    process_id: u32,
    secret: u32,
    address: String,
    /// The transaction status of the last ReadyForQuery: `I`, `T` or `E`.
    pub status: u8,
    /// ParameterStatus values.
    pub parameters: Vec<(String, String)>,
}

/// The right to cancel what a connection is doing.
#[derive(Clone)]
pub struct Canceller {
    address: String,
    process_id: u32,
    secret: u32,
}

impl Canceller {
    /// Sends a cancel request on a connection of its own.
    pub fn cancel(&self) -> io::Result<()> {
        let mut stream = TcpStream::connect(&self.address)?;
        let numbers = [16, 80_877_102, self.process_id, self.secret];
        stream.write_all(&numbers.iter().flat_map(|number| number.to_be_bytes()).collect::<Vec<u8>>())?;
        stream.shutdown(Shutdown::Write)?;
        let _ = stream.read(&mut [0; 1]);
        Ok(())
    }
}

impl Client {
    /// Connects and logs in.
    pub fn connect(target: &Target) -> Result<Self, ClientError> {
        let address = format!("{}:{}", target.host, target.port);
        let mut last = io::Error::new(io::ErrorKind::NotFound, format!("{} has no address", target.host));
        let mut connected = None;
        for at in address.to_socket_addrs()? {
            match TcpStream::connect_timeout(&at, CONNECT_TIMEOUT) {
                Ok(stream) => {
                    connected = Some(stream);
                    break;
                }
                Err(error) => last = error,
            }
        }
        let stream = connected.ok_or(last)?;
        stream.set_nodelay(true)?;
        let mut client = Self {
            stream,
            buffer: Vec::new(),
            start: 0,
            process_id: 0,
            secret: 0,
            address,
            status: b'I',
            parameters: Vec::new(),
        };
        client.log_in(target)?;
        Ok(client)
    }

    fn log_in(&mut self, target: &Target) -> Result<(), ClientError> {
        let mut body = 196_608_u32.to_be_bytes().to_vec();
        let pairs = [
            ("user", target.user.as_str()),
            ("database", &target.database),
            ("application_name", "keystead"),
            ("client_encoding", "UTF8"),
        ];
        for text in pairs.iter().flat_map(|(name, value)| [*name, *value]) {
            body.extend(text.as_bytes());
            body.push(0);
        }
        body.push(0);
        let length = u32::try_from(body.len() + 4).map_err(|_| protocol("a name is too long"))?;
        self.send(&[length.to_be_bytes().as_slice(), &body].concat())?;
        let (mut exchange, mut answered) = (None, None);
        loop {
            let (tag, body) = self.read()?;
            match tag {
                b'R' => match (read_u32(&body, 0), body.get(4..).unwrap_or_default()) {
                    (Some(0), _) => {}
                    (Some(10), offered) => {
                        let mut names = offered.split(|byte| *byte == 0);
                        if !names.any(|name| name == scram::MECHANISM.as_bytes()) {
                            return Err(protocol("no known way to log in is offered"));
                        }
                        let (client, first) = scram::Client::new(&target.password).map_err(of_scram)?;
                        exchange = Some(client);
                        let mut body = [scram::MECHANISM.as_bytes(), b"\0"].concat();
                        body.extend((first.len() as u32).to_be_bytes());
                        body.extend(first.as_bytes());
                        self.send(&frame(b'p', &body))?;
                    }
                    (Some(11), challenge) => {
                        let client = exchange.take().ok_or_else(|| protocol("challenge out of turn"))?;
                        let (next, last) = client.answer(text(challenge)?).map_err(of_scram)?;
                        answered = Some(next);
                        self.send(&frame(b'p', last.as_bytes()))?;
                    }
                    (Some(12), last) => {
                        let proof = answered.take().ok_or_else(|| protocol("proof out of turn"))?;
                        if !proof.accepts(text(last)?) {
                            return Err(protocol("the server does not know the password's verifier"));
                        }
                    }
                    _ => return Err(protocol("no known way to log in is offered")),
                },
                b'E' => return Err(ClientError::Server(Box::new(problem(&body)))),
                b'K' => {
                    self.process_id = read_u32(&body, 0).unwrap_or(0);
                    self.secret = read_u32(&body, 4).unwrap_or(0);
                }
                b'S' => self.note_parameter(&body),
                b'Z' => return Ok(()),
                _ => {}
            }
        }
    }

    /// The right to cancel.
    pub fn canceller(&self) -> Canceller {
        Canceller { address: self.address.clone(), process_id: self.process_id, secret: self.secret }
    }

    /// Limits how long a read may wait; none for ever.
    pub fn set_patience(&self, patience: Option<Duration>) -> io::Result<()> {
        self.stream.set_read_timeout(patience)
    }

    /// Runs statements and hands out what comes back. The last failure is also the result.
    pub fn query(&mut self, sql: &str, mut take: impl FnMut(Event<'_>)) -> Result<(), ClientError> {
        self.query_with_input(sql, None, &mut take)
    }

    /// As [`Client::query`], with data for COPY FROM STDIN.
    pub fn query_with_input(
        &mut self,
        sql: &str,
        mut data: Option<&mut dyn Read>,
        take: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), ClientError> {
        self.send(&frame(b'Q', &[sql.as_bytes(), b"\0"].concat()))?;
        let mut failed = None;
        let mut columns = Vec::new();
        loop {
            let (tag, body) = self.read()?;
            match tag {
                b'T' => {
                    columns = read_columns(&body)?;
                    take(Event::Columns(&columns));
                }
                b'D' => take(Event::Row(&read_row(&body, columns.len())?)),
                b'C' => take(Event::Done(text(body.strip_suffix(&[0]).unwrap_or(&body))?)),
                b'I' => take(Event::Done("")),
                b'N' => take(Event::Notice(&problem(&body))),
                b'd' => take(Event::CopyOut(&body)),
                b'G' => match data.take() {
                    Some(data) => self.send_copy(data)?,
                    None => {
                        take(Event::CopyInRefused);
                        self.send(&frame(b'f', b"no data was given\0"))?;
                    }
                },
                b'E' => {
                    let problem = problem(&body);
                    take(Event::Failed(&problem));
                    failed = Some(problem);
                }
                b'S' => self.note_parameter(&body),
                b'Z' => {
                    self.status = body.first().copied().unwrap_or(b'I');
                    return failed.map_or(Ok(()), |problem| Err(ClientError::Server(Box::new(problem))));
                }
                _ => {}
            }
        }
    }

    /// Runs one statement and collects its rows.
    pub fn rows(&mut self, sql: &str) -> Result<Vec<Vec<Option<String>>>, ClientError> {
        let mut rows = Vec::new();
        self.query(sql, |event| {
            if let Event::Row(row) = event {
                rows.push(row.iter().map(|value| value.map(str::to_owned)).collect());
            }
        })?;
        Ok(rows)
    }

    fn send_copy(&mut self, data: &mut dyn Read) -> Result<(), ClientError> {
        let mut chunk = vec![0; 64 << 10];
        loop {
            match data.read(&mut chunk) {
                Ok(0) => break,
                Ok(count) => self.send(&frame(b'd', &chunk[..count]))?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.send(&frame(b'f', format!("input cannot be read: {error}\0").as_bytes()))?;
                    return Ok(());
                }
            }
        }
        self.send(&frame(b'c', b""))?;
        Ok(())
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Reads messages up to ReadyForQuery without keeping them; answers how many rows came. For benches.
    pub fn drain(&mut self) -> Result<u64, ClientError> {
        let mut rows = 0;
        loop {
            self.need(5)?;
            let tag = self.buffer[self.start];
            let length = read_u32(&self.buffer, self.start + 1).unwrap_or(0) as usize;
            if !(4..=MESSAGE_BYTES_MAX).contains(&length) {
                return Err(protocol("a message of impossible length"));
            }
            self.need(1 + length)?;
            let body = self.start + 5..self.start + 1 + length;
            self.start += 1 + length;
            match tag {
                b'D' => rows += 1,
                b'Z' => {
                    self.status = self.buffer[body].first().copied().unwrap_or(b'I');
                    return Ok(rows);
                }
                b'E' => {
                    let problem = problem(&self.buffer[body]);
                    return Err(ClientError::Server(Box::new(problem)));
                }
                _ => {}
            }
        }
    }

    /// Reads one message: its type and body.
    pub fn read(&mut self) -> Result<(u8, Vec<u8>), ClientError> {
        self.need(5)?;
        let tag = self.buffer[self.start];
        let length = read_u32(&self.buffer, self.start + 1).unwrap_or(0) as usize;
        if !(4..=MESSAGE_BYTES_MAX).contains(&length) {
            return Err(protocol("a message of impossible length"));
        }
        self.need(1 + length)?;
        let body = self.buffer[self.start + 5..self.start + 1 + length].to_vec();
        self.start += 1 + length;
        Ok((tag, body))
    }

    fn need(&mut self, count: usize) -> io::Result<()> {
        while self.buffer.len() - self.start < count {
            if self.start > 0 {
                self.buffer.drain(..self.start);
                self.start = 0;
            }
            let old = self.buffer.len();
            self.buffer.resize(old + count.max(16 << 10), 0);
            let read = self.stream.read(&mut self.buffer[old..]);
            self.buffer.truncate(old + read.as_ref().copied().unwrap_or(0));
            match read {
                Ok(0) => {
                    let closed = "the server closed the connection";
                    return Err(io::Error::new(io::ErrorKind::ConnectionReset, closed));
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn note_parameter(&mut self, body: &[u8]) {
        let mut texts = body.split(|byte| *byte == 0).map(|text| String::from_utf8_lossy(text).into_owned());
        if let (Some(name), Some(value)) = (texts.next(), texts.next()) {
            self.parameters.retain(|(known, _)| *known != name);
            self.parameters.push((name, value));
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.stream.write_all(&frame(b'X', b""));
    }
}

/// A frontend message.
pub fn frame(tag: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(5 + body.len());
    bytes.push(tag);
    bytes.extend((body.len() as u32 + 4).to_be_bytes());
    bytes.extend(body);
    bytes
}

/// A name or value between quotes, for statements that tools build.
pub fn quote(text: &str, mark: char) -> String {
    format!("{mark}{}{mark}", text.replace(mark, &format!("{mark}{mark}")))
}

fn read_columns(body: &[u8]) -> Result<Vec<Column>, ClientError> {
    let short = || protocol("a row description that ends early");
    let count = body.first_chunk::<2>().map(|count| u16::from_be_bytes(*count)).ok_or_else(short)?;
    let mut rest = &body[2..];
    let mut columns = Vec::new();
    for _ in 0..count {
        let end = rest.iter().position(|byte| *byte == 0).ok_or_else(short)?;
        let name = String::from_utf8_lossy(&rest[..end]).into_owned();
        let facts = rest.get(end + 1..end + 19).ok_or_else(short)?;
        columns.push(Column { name, oid: read_u32(facts, 6).ok_or_else(short)? });
        rest = &rest[end + 19..];
    }
    Ok(columns)
}

fn read_row(body: &[u8], columns: usize) -> Result<Vec<Option<&str>>, ClientError> {
    let short = || protocol("a row that ends early");
    let mut row = Vec::with_capacity(columns);
    let mut rest = body.get(2..).ok_or_else(short)?;
    while !rest.is_empty() {
        let length = read_u32(rest, 0).ok_or_else(short)?;
        rest = &rest[4..];
        if length == u32::MAX {
            row.push(None);
        } else {
            let (value, after) = rest.split_at_checked(length as usize).ok_or_else(short)?;
            row.push(Some(text(value)?));
            rest = after;
        }
    }
    Ok(row)
}

fn problem(body: &[u8]) -> Problem {
    let mut problem = Problem::default();
    for field in body.split(|byte| *byte == 0) {
        let Some((letter, value)) = field.split_first() else { continue };
        let value = String::from_utf8_lossy(value).into_owned();
        match letter {
            b'V' => problem.severity = value,
            b'C' => problem.code = value,
            b'M' => problem.message = value,
            b'D' => problem.detail = Some(value),
            b'H' => problem.hint = Some(value),
            b'W' => problem.context = Some(value),
            b'P' => problem.position = value.parse().ok(),
            _ => {}
        }
    }
    problem
}

fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.first_chunk::<4>().map(|number| u32::from_be_bytes(*number))
}

fn text(bytes: &[u8]) -> Result<&str, ClientError> {
    std::str::from_utf8(bytes).map_err(|_| protocol("text that is not UTF-8"))
}

fn protocol(what: &str) -> ClientError {
    ClientError::Protocol(what.to_owned())
}

fn of_scram(error: model::Error) -> ClientError {
    ClientError::Protocol(error.message().to_owned())
}
