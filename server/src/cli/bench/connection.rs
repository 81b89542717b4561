//! The load generator's connection: asynchronous, one operation in flight, frames written by hand.
//!
//! The same code drives every server that is compared, so what it costs is in all figures alike. An operation is one
//! write and as many reads as the answer takes; nothing is allocated per operation once the buffers have grown.
//!
//! Not here: what is asked (`workload`), and the tools' own client with columns and COPY (`cli::client`).

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::{
    auth::scram,
    cli::client::{ClientError, Problem, Target, frame},
};

const READ_BYTES: usize = 16 << 10;
const MESSAGE_BYTES_MAX: usize = 64 << 20;
/// Name of the one prepared statement of a connection.
const STATEMENT: &[u8] = b"bench\0";

/// A connection.
pub(super) struct Connection {
    stream: TcpStream,
    input: Vec<u8>,
    start: usize,
    output: Vec<u8>,
}

impl Connection {
    /// Connects and logs in.
    pub(super) async fn open(target: &Target) -> Result<Self, ClientError> {
        let stream = TcpStream::connect((target.host.as_str(), target.port)).await?;
        stream.set_nodelay(true)?;
        let mut connection = Self { stream, input: Vec::new(), start: 0, output: Vec::new() };
        let mut body = 196_608_u32.to_be_bytes().to_vec();
        for text in ["user", &target.user, "database", &target.database, "application_name", "keystead bench"]
        {
            body.extend(text.as_bytes());
            body.push(0);
        }
        body.push(0);
        connection.output.extend((body.len() as u32 + 4).to_be_bytes());
        connection.output.extend(body);
        connection.send().await?;
        connection.log_in(&target.password).await?;
        Ok(connection)
    }

    async fn log_in(&mut self, password: &str) -> Result<(), ClientError> {
        let wrong = || ClientError::Protocol("no known way to log in is offered".to_owned());
        let of_scram = |error: model::Error| ClientError::Protocol(error.message().to_owned());
        let (mut exchange, mut answered) = (None, None);
        loop {
            let (tag, from, to) = self.message().await?;
            let body = &self.input[from..to];
            match tag {
                b'R' => {
                    let kind = body.first_chunk::<4>().map(|kind| u32::from_be_bytes(*kind));
                    let text = std::str::from_utf8(body.get(4..).unwrap_or_default()).map_err(|_| wrong())?;
                    match kind {
                        Some(0) => {}
                        Some(10) => {
                            let (client, first) = scram::Client::new(password).map_err(of_scram)?;
                            exchange = Some(client);
                            let mut body = [scram::MECHANISM.as_bytes(), b"\0"].concat();
                            body.extend((first.len() as u32).to_be_bytes());
                            body.extend(first.as_bytes());
                            self.output.extend(frame(b'p', &body));
                            self.send().await?;
                        }
                        Some(11) => {
                            let client = exchange.take().ok_or_else(wrong)?;
                            let (next, last) = client.answer(text).map_err(of_scram)?;
                            answered = Some(next);
                            self.output.extend(frame(b'p', last.as_bytes()));
                            self.send().await?;
                        }
                        Some(12) => {
                            if !answered.take().is_some_and(|proof: scram::Answered| proof.accepts(text)) {
                                return Err(wrong());
                            }
                        }
                        _ => return Err(wrong()),
                    }
                }
                b'E' => return Err(refused(body)),
                b'Z' => return Ok(()),
                _ => {}
            }
        }
    }

    /// Prepares the statement that [`Connection::execute`] runs.
    pub(super) async fn prepare(&mut self, sql: &str) -> Result<(), ClientError> {
        let body = [STATEMENT, sql.as_bytes(), b"\0\0\0"].concat();
        self.output.extend(frame(b'C', &[b"S", STATEMENT].concat()));
        self.output.extend(frame(b'P', &body));
        self.output.extend(frame(b'S', b""));
        self.send().await?;
        self.ready().await.map(|_| ())
    }

    /// Runs the prepared statement: Bind, Execute and Sync in one write. Answers the count of the command tag.
    pub(super) async fn execute(&mut self, parameters: &[i64]) -> Result<u64, ClientError> {
        use std::io::Write as _;
        let out = &mut self.output;
        out.push(b'B');
        let length_at = out.len();
        out.extend([0; 4]);
        out.push(0);
        out.extend(STATEMENT);
        // No format codes: text, as pgbench does.
        out.extend(0_u16.to_be_bytes());
        out.extend((parameters.len() as u16).to_be_bytes());
        for parameter in parameters {
            let at = out.len();
            out.extend([0; 4]);
            write!(out, "{parameter}")?;
            let length = (out.len() - at - 4) as u32;
            out[at..at + 4].copy_from_slice(&length.to_be_bytes());
        }
        out.extend(0_u16.to_be_bytes());
        let length = (out.len() - length_at) as u32;
        out[length_at..length_at + 4].copy_from_slice(&length.to_be_bytes());
        // Execute the unnamed portal without a limit, then Sync.
        out.extend(*b"E\0\0\0\x09\0\0\0\0\0S\0\0\0\x04");
        self.send().await?;
        self.ready().await
    }

    /// Runs a statement in the simple protocol. Answers the count of the last command tag.
    pub(super) async fn simple(&mut self, sql: &str) -> Result<u64, ClientError> {
        self.output.push(b'Q');
        self.output.extend((sql.len() as u32 + 5).to_be_bytes());
        self.output.extend(sql.as_bytes());
        self.output.push(0);
        self.send().await?;
        self.ready().await
    }

    async fn send(&mut self) -> Result<(), ClientError> {
        let sent = self.stream.write_all(&self.output).await;
        self.output.clear();
        Ok(sent?)
    }

    /// Reads up to ReadyForQuery.
    async fn ready(&mut self) -> Result<u64, ClientError> {
        let mut count = 0;
        let mut failed = None;
        loop {
            let (tag, from, to) = self.message().await?;
            match tag {
                b'C' => count = tag_count(&self.input[from..to]),
                b'E' => failed = Some(refused(&self.input[from..to])),
                b'Z' => return failed.map_or(Ok(count), Err),
                _ => {}
            }
        }
    }

    /// The next message: its type and where its body lies in `input`.
    async fn message(&mut self) -> Result<(u8, usize, usize), ClientError> {
        loop {
            let have = &self.input[self.start..];
            if let Some(head) = have.first_chunk::<5>() {
                let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
                if !(4..=MESSAGE_BYTES_MAX).contains(&length) {
                    return Err(ClientError::Protocol("a message of impossible length".to_owned()));
                }
                if have.len() > length {
                    let from = self.start + 5;
                    self.start += 1 + length;
                    return Ok((head[0], from, self.start));
                }
            }
            if self.start > 0 {
                self.input.drain(..self.start);
                self.start = 0;
            }
            self.input.reserve(READ_BYTES);
            if self.stream.read_buf(&mut self.input).await? == 0 {
                return Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset).into());
            }
        }
    }
}

/// The number at the end of a command tag: rows selected, updated, inserted.
fn tag_count(body: &[u8]) -> u64 {
    let text = body.strip_suffix(&[0]).unwrap_or(body);
    let digits = text.rsplit(|byte| *byte == b' ').next().unwrap_or_default();
    std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

fn refused(body: &[u8]) -> ClientError {
    let mut problem = Problem::default();
    for field in body.split(|byte| *byte == 0) {
        match field.split_first() {
            Some((b'V', text)) => problem.severity = String::from_utf8_lossy(text).into_owned(),
            Some((b'C', text)) => problem.code = String::from_utf8_lossy(text).into_owned(),
            Some((b'M', text)) => problem.message = String::from_utf8_lossy(text).into_owned(),
            _ => {}
        }
    }
    ClientError::Server(Box::new(problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_of_a_command_is_the_last_word_of_its_tag() {
        assert_eq!(tag_count(b"SELECT 100\0"), 100);
        assert_eq!(tag_count(b"INSERT 0 1\0"), 1);
        assert_eq!(tag_count(b"BEGIN\0"), 0);
    }
}
