//! The PostgreSQL protocol, frame by frame: what a driver hides, a test wants to see.
//!
//! Invariants:
//! - Nothing is sent that the caller did not ask for, and nothing received is dropped.
//! - Every read has a time limit, so a silent server fails a test instead of hanging it.
//!
//! Not here: TLS, COPY helpers beyond the raw frames, pooling. A test that needs a driver uses a driver.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use postgres_protocol::authentication::sasl::{self, ChannelBinding, ScramSha256};

use crate::Address;

/// How long one read may take before the test fails.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// No frame of a test is longer than this.
const FRAME_BYTES_MAX: usize = 1 << 30;

/// One message of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The type byte.
    pub tag: u8,
    /// The body without its length.
    pub body: Vec<u8>,
}

/// A column of a row description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its table's oid, or 0.
    pub table: u32,
    /// Its type's oid.
    pub oid: u32,
    /// 0 = text, 1 = binary.
    pub format: i16,
}

/// What an ErrorResponse or NoticeResponse says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problem {
    /// `ERROR`, `FATAL`, `WARNING` and so on.
    pub severity: String,
    /// SQLSTATE.
    pub code: String,
    /// Primary message.
    pub message: String,
    /// Every field by its letter.
    pub fields: Vec<(u8, String)>,
}

impl Problem {
    /// The field with that letter.
    pub fn field(&self, letter: u8) -> Option<&str> {
        self.fields.iter().find(|(l, _)| *l == letter).map(|(_, text)| text.as_str())
    }
}

/// The result of one statement of a simple query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Columns, when it returned rows.
    pub columns: Option<Vec<Column>>,
    /// Rows in text form.
    pub rows: Vec<Vec<Option<String>>>,
    /// Command tag, empty for an empty query.
    pub tag: String,
}

/// What came back for one simple query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// One per statement that succeeded.
    pub answers: Vec<Answer>,
    /// The error that ended it.
    pub error: Option<Problem>,
    /// Notices on the way.
    pub notices: Vec<Problem>,
    /// Transaction status of ReadyForQuery: `I`, `T` or `E`.
    pub status: char,
}

impl Reply {
    /// SQLSTATE of the error, or an empty string.
    pub fn code(&self) -> &str {
        self.error.as_ref().map_or("", |e| e.code.as_str())
    }

    /// The first value of the first row, for checks of one number.
    pub fn scalar(&self) -> Option<&str> {
        self.answers.last()?.rows.first()?.first()?.as_deref()
    }
}

/// A connection that hides nothing.
pub struct Wire {
    stream: TcpStream,
    pending: Vec<u8>,
    /// ParameterStatus values seen so far.
    pub parameters: Vec<(String, String)>,
    /// Process id and secret of BackendKeyData.
    pub key: (u32, u32),
}

impl Wire {
    /// Opens the socket and sends nothing.
    pub fn open(address: &Address) -> io::Result<Wire> {
        let stream = TcpStream::connect((address.host.as_str(), address.port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(READ_TIMEOUT))?;
        stream.set_write_timeout(Some(READ_TIMEOUT))?;
        Ok(Wire { stream, pending: Vec::new(), parameters: Vec::new(), key: (0, 0) })
    }

    /// Opens, logs in, and waits until the server is ready.
    pub fn connect(address: &Address) -> io::Result<Wire> {
        let mut wire = Wire::open(address)?;
        wire.send(&startup(196_608, &[("user", &address.user), ("database", &address.database)]))?;
        wire.log_in(&address.password)?;
        Ok(wire)
    }

    /// Answers the authentication request and reads up to the first ReadyForQuery.
    pub fn log_in(&mut self, password: &str) -> io::Result<()> {
        let mut scram: Option<ScramSha256> = None;
        loop {
            let message = self.read()?;
            match message.tag {
                b'R' => match read_u32(&message.body, 0)? {
                    0 => {}
                    3 => self.send(&frame(b'p', &zero_ended(password)))?,
                    10 => {
                        let exchange = ScramSha256::new(password.as_bytes(), ChannelBinding::unsupported());
                        let first = exchange.message();
                        let mut body = zero_ended(sasl::SCRAM_SHA_256);
                        body.extend((first.len() as u32).to_be_bytes());
                        body.extend(first);
                        scram = Some(exchange);
                        self.send(&frame(b'p', &body))?;
                    }
                    11 => {
                        let exchange = scram.as_mut().ok_or_else(|| bad("SASLContinue before SASL"))?;
                        exchange.update(&message.body[4..])?;
                        let next = exchange.message().to_vec();
                        self.send(&frame(b'p', &next))?;
                    }
                    12 => {
                        let exchange = scram.as_mut().ok_or_else(|| bad("SASLFinal before SASL"))?;
                        exchange.finish(&message.body[4..])?;
                    }
                    other => return Err(bad(format!("authentication request {other}"))),
                },
                b'S' => self.note_parameter(&message),
                b'K' => self.key = (read_u32(&message.body, 0)?, read_u32(&message.body, 4)?),
                b'E' => {
                    let problem = problem(&message.body);
                    return Err(io::Error::other(format!("{} {}", problem.code, problem.message)));
                }
                b'Z' => return Ok(()),
                _ => {}
            }
        }
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// The socket, for tests of timeouts and half-closed connections.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Reads one raw byte: the answer to SSLRequest and GSSENCRequest.
    pub fn read_byte(&mut self) -> io::Result<u8> {
        let mut byte = [0];
        self.stream.read_exact(&mut byte)?;
        Ok(byte[0])
    }

    /// Reads one message.
    pub fn read(&mut self) -> io::Result<Message> {
        loop {
            if let Some(message) = self.take()? {
                return Ok(message);
            }
            let mut chunk = [0; 16 * 1024];
            let count = match self.stream.read(&mut chunk) {
                // The test was stopped and goes on.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                count => count?,
            };
            if count == 0 {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection"));
            }
            self.pending.extend_from_slice(&chunk[..count]);
        }
    }

    /// Reads up to and including ReadyForQuery.
    pub fn read_until_ready(&mut self) -> io::Result<Vec<Message>> {
        let mut messages = Vec::new();
        loop {
            let message = self.read()?;
            let ready = message.tag == b'Z';
            messages.push(message);
            if ready {
                return Ok(messages);
            }
        }
    }

    /// Runs a simple query and collects everything up to ReadyForQuery.
    pub fn query(&mut self, sql: &str) -> io::Result<Reply> {
        self.send(&query(sql))?;
        let mut reply = Reply::default();
        let mut open = Answer::default();
        loop {
            let message = self.read()?;
            match message.tag {
                b'T' => open.columns = Some(columns(&message.body)?),
                b'D' => open.rows.push(text_row(&message.body)?),
                b'C' => {
                    open.tag = until_zero(&message.body);
                    reply.answers.push(std::mem::take(&mut open));
                }
                b'I' => reply.answers.push(std::mem::take(&mut open)),
                b'E' => reply.error = Some(problem(&message.body)),
                b'N' => reply.notices.push(problem(&message.body)),
                b'S' => self.note_parameter(&message),
                b'G' => self.send(&frame(b'f', &zero_ended("no data in this test")))?,
                b'Z' => {
                    reply.status = message.body.first().map_or('?', |b| char::from(*b));
                    return Ok(reply);
                }
                _ => {}
            }
        }
    }

    fn note_parameter(&mut self, message: &Message) {
        let mut parts = message.body.split(|b| *b == 0);
        let mut next = || String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
        let pair = (next(), next());
        self.parameters.retain(|(name, _)| *name != pair.0);
        self.parameters.push(pair);
    }

    fn take(&mut self) -> io::Result<Option<Message>> {
        if self.pending.len() < 5 {
            return Ok(None);
        }
        let length = read_u32(&self.pending, 1)? as usize;
        if !(4..FRAME_BYTES_MAX).contains(&length) {
            return Err(bad(format!("frame length {length}")));
        }
        if self.pending.len() < length + 1 {
            return Ok(None);
        }
        let body = self.pending[5..=length].to_vec();
        let tag = self.pending[0];
        self.pending.drain(..=length);
        Ok(Some(Message { tag, body }))
    }
}

/// A frame with its type byte and length.
pub fn frame(tag: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![tag];
    bytes.extend((body.len() as u32 + 4).to_be_bytes());
    bytes.extend(body);
    bytes
}

/// A startup packet of that protocol version.
pub fn startup(version: u32, parameters: &[(&str, &str)]) -> Vec<u8> {
    let mut body = version.to_be_bytes().to_vec();
    for (name, value) in parameters {
        body.extend(zero_ended(name));
        body.extend(zero_ended(value));
    }
    body.push(0);
    let mut bytes = (body.len() as u32 + 4).to_be_bytes().to_vec();
    bytes.extend(body);
    bytes
}

/// A request without type byte: SSLRequest (80877103), GSSENCRequest (80877104).
pub fn request(code: u32) -> Vec<u8> {
    let mut bytes = 8u32.to_be_bytes().to_vec();
    bytes.extend(code.to_be_bytes());
    bytes
}

/// CancelRequest for that key.
pub fn cancel(key: (u32, u32)) -> Vec<u8> {
    let mut bytes = 16u32.to_be_bytes().to_vec();
    bytes.extend(80_877_102u32.to_be_bytes());
    bytes.extend(key.0.to_be_bytes());
    bytes.extend(key.1.to_be_bytes());
    bytes
}

/// Query.
pub fn query(sql: &str) -> Vec<u8> {
    frame(b'Q', &zero_ended(sql))
}

/// Parse with the parameter types the client gives.
pub fn parse(name: &str, sql: &str, types: &[u32]) -> Vec<u8> {
    let mut body = zero_ended(name);
    body.extend(zero_ended(sql));
    body.extend((types.len() as u16).to_be_bytes());
    types.iter().for_each(|oid| body.extend(oid.to_be_bytes()));
    frame(b'P', &body)
}

/// Bind with parameter formats, values (`None` = NULL) and result formats.
pub fn bind(
    portal: &str,
    statement: &str,
    formats: &[i16],
    values: &[Option<&[u8]>],
    results: &[i16],
) -> Vec<u8> {
    let mut body = zero_ended(portal);
    body.extend(zero_ended(statement));
    body.extend((formats.len() as u16).to_be_bytes());
    formats.iter().for_each(|format| body.extend(format.to_be_bytes()));
    body.extend((values.len() as u16).to_be_bytes());
    for value in values {
        match value {
            None => body.extend((-1i32).to_be_bytes()),
            Some(bytes) => {
                body.extend((bytes.len() as u32).to_be_bytes());
                body.extend(*bytes);
            }
        }
    }
    body.extend((results.len() as u16).to_be_bytes());
    results.iter().for_each(|format| body.extend(format.to_be_bytes()));
    frame(b'B', &body)
}

/// Describe a statement (`S`) or a portal (`P`).
pub fn describe(kind: u8, name: &str) -> Vec<u8> {
    frame(b'D', &[&[kind][..], &zero_ended(name)].concat())
}

/// Close a statement (`S`) or a portal (`P`).
pub fn close(kind: u8, name: &str) -> Vec<u8> {
    frame(b'C', &[&[kind][..], &zero_ended(name)].concat())
}

/// Execute a portal for at most that many rows; 0 = all.
pub fn execute(portal: &str, rows_max: i32) -> Vec<u8> {
    frame(b'E', &[&zero_ended(portal)[..], &rows_max.to_be_bytes()].concat())
}

/// Sync.
pub fn sync() -> Vec<u8> {
    frame(b'S', &[])
}

/// Flush.
pub fn flush() -> Vec<u8> {
    frame(b'H', &[])
}

/// One line per message, without what may differ between servers: keys, positions in source files, wording.
pub fn trace(messages: &[Message]) -> String {
    let mut lines = String::new();
    for message in messages {
        let body = &message.body;
        let line = match message.tag {
            b'T' => match columns(body) {
                Ok(columns) => {
                    let list: Vec<String> =
                        columns.iter().map(|c| format!("{}:{}/{}", c.name, c.oid, c.format)).collect();
                    format!("RowDescription {}", list.join(" "))
                }
                Err(error) => format!("RowDescription broken: {error}"),
            },
            b't' => {
                let oids: Vec<String> = body
                    .get(2..)
                    .unwrap_or_default()
                    .chunks_exact(4)
                    .map(|c| u32::from_be_bytes([c[0], c[1], c[2], c[3]]).to_string())
                    .collect();
                format!("ParameterDescription {}", oids.join(" "))
            }
            b'D' => format!("DataRow {}", raw_row(body)),
            b'C' => format!("CommandComplete {}", until_zero(body)),
            b'E' => {
                let problem = problem(body);
                format!("ErrorResponse {} {}", problem.severity, problem.code)
            }
            b'N' => {
                let problem = problem(body);
                format!("NoticeResponse {} {}", problem.severity, problem.code)
            }
            b'Z' => format!("ReadyForQuery {}", body.first().map_or('?', |b| char::from(*b))),
            b'S' => format!("ParameterStatus {}", String::from_utf8_lossy(body).replace('\0', " ").trim()),
            b'1' => "ParseComplete".to_owned(),
            b'2' => "BindComplete".to_owned(),
            b'3' => "CloseComplete".to_owned(),
            b'n' => "NoData".to_owned(),
            b's' => "PortalSuspended".to_owned(),
            b'I' => "EmptyQueryResponse".to_owned(),
            b'G' => format!("CopyInResponse {body:?}"),
            b'H' => format!("CopyOutResponse {body:?}"),
            b'd' => format!("CopyData {}", String::from_utf8_lossy(body).escape_debug()),
            b'c' => "CopyDone".to_owned(),
            other => format!("{} {body:?}", char::from(other)),
        };
        lines.push_str(&line);
        lines.push('\n');
    }
    lines
}

/// The columns of a RowDescription.
pub fn columns(body: &[u8]) -> io::Result<Vec<Column>> {
    let count = read_u16(body, 0)? as usize;
    let mut at = 2;
    let mut columns = Vec::with_capacity(count);
    for _ in 0..count {
        let end = body[at..].iter().position(|b| *b == 0).ok_or_else(|| bad("column name without end"))?;
        let name = String::from_utf8_lossy(&body[at..at + end]).into_owned();
        at += end + 1;
        columns.push(Column {
            name,
            table: read_u32(body, at)?,
            oid: read_u32(body, at + 6)?,
            format: read_u16(body, at + 16)? as i16,
        });
        at += 18;
    }
    Ok(columns)
}

/// The values of a DataRow as bytes.
pub fn row(body: &[u8]) -> io::Result<Vec<Option<Vec<u8>>>> {
    let count = read_u16(body, 0)? as usize;
    let mut at = 2;
    let mut values = Vec::with_capacity(count);
    for _ in 0..count {
        let length = read_u32(body, at)? as i32;
        at += 4;
        if length < 0 {
            values.push(None);
            continue;
        }
        let end = at + length as usize;
        values.push(Some(body.get(at..end).ok_or_else(|| bad("value past the end of its row"))?.to_vec()));
        at = end;
    }
    Ok(values)
}

/// The fields of an ErrorResponse or NoticeResponse.
pub fn problem(body: &[u8]) -> Problem {
    let mut problem = Problem::default();
    for part in body.split(|b| *b == 0).filter(|part| !part.is_empty()) {
        let text = String::from_utf8_lossy(&part[1..]).into_owned();
        match part[0] {
            b'S' => problem.severity = text.clone(),
            b'C' => problem.code = text.clone(),
            b'M' => problem.message = text.clone(),
            _ => {}
        }
        problem.fields.push((part[0], text));
    }
    problem
}

fn text_row(body: &[u8]) -> io::Result<Vec<Option<String>>> {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).map_err(|e| bad(e.to_string()));
    row(body)?.into_iter().map(|value| value.map(text).transpose()).collect()
}

fn raw_row(body: &[u8]) -> String {
    let show = |value: Option<Vec<u8>>| match value {
        None => "NULL".to_owned(),
        Some(bytes) => bytes.escape_ascii().to_string(),
    };
    match row(body) {
        Ok(values) => values.into_iter().map(show).collect::<Vec<_>>().join("|"),
        Err(error) => format!("broken: {error}"),
    }
}

fn zero_ended(text: &str) -> Vec<u8> {
    [text.as_bytes(), &[0]].concat()
}

fn until_zero(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.split(|b| *b == 0).next().unwrap_or_default()).into_owned()
}

fn read_u16(bytes: &[u8], at: usize) -> io::Result<u16> {
    let part = bytes.get(at..at + 2).ok_or_else(|| bad("message too short"))?;
    Ok(u16::from_be_bytes([part[0], part[1]]))
}

fn read_u32(bytes: &[u8], at: usize) -> io::Result<u32> {
    let part = bytes.get(at..at + 4).ok_or_else(|| bad("message too short"))?;
    Ok(u32::from_be_bytes([part[0], part[1], part[2], part[3]]))
}

fn bad(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}
