//! A server that does nothing: it speaks the protocol, answers every statement with one constant row, and writes once
//! per Sync. What it reaches is what the wire, the kernel and the load generator leave to anybody on this machine.
//!
//! Invariants: it runs in this process on threads of its own and ends with its value. It is stricter than a no-op
//! server on a protocol library, since it keeps no statements and no portals.

use std::{net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    runtime::{Builder, Runtime},
    task::JoinSet,
};

use crate::{
    cli::client::{Target, frame},
    exit::Failure,
};

const WORKERS: usize = 2;
const READ_BYTES: usize = 16 << 10;

/// A running server that does nothing.
pub(super) struct Ceiling {
    runtime: Option<Runtime>,
    address: SocketAddr,
}

impl Ceiling {
    /// Starts it on a free loopback port.
    pub(super) fn start() -> Result<Self, Failure> {
        let failed = |error| Failure::from_io("the no-op server", &error);
        let runtime =
            Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build().map_err(failed)?;
        let listener = runtime.block_on(TcpListener::bind(("127.0.0.1", 0))).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        drop(runtime.spawn(accept(listener)));
        Ok(Self { runtime: Some(runtime), address })
    }

    /// Where it listens. Anybody may log in.
    pub(super) fn target(&self) -> Target {
        Target {
            host: self.address.ip().to_string(),
            port: self.address.port(),
            user: "bench".to_owned(),
            password: String::new(),
            database: "bench".to_owned(),
        }
    }
}

impl Drop for Ceiling {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_secs(1));
        }
    }
}

async fn accept(listener: TcpListener) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(async move {
            // A client that breaks the protocol or leaves ends its connection; nobody else is concerned.
            let _ = attend(stream).await;
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn attend(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let answers = Answers::new();
    let mut input: Vec<u8> = Vec::with_capacity(READ_BYTES);
    let mut output: Vec<u8> = Vec::with_capacity(READ_BYTES);
    let mut is_started = false;
    loop {
        let mut start = 0;
        let mut is_flush_due = false;
        while let Some((tag, length)) = whole(&input[start..], is_started) {
            start += length;
            match (is_started, tag) {
                (false, _) => {
                    is_started = true;
                    is_flush_due = true;
                    output.extend(frame(b'R', &0_u32.to_be_bytes()));
                    output.extend(&answers.ready);
                }
                (true, b'P') => output.extend(*b"1\0\0\0\x04"),
                (true, b'B') => output.extend(*b"2\0\0\0\x04"),
                (true, b'C') => output.extend(*b"3\0\0\0\x04"),
                (true, b'D') => output.extend(&answers.columns),
                (true, b'E') => output.extend(&answers.row),
                (true, b'Q') => {
                    output.extend(&answers.columns);
                    output.extend(&answers.row);
                    output.extend(&answers.ready);
                    is_flush_due = true;
                }
                (true, b'S') => {
                    output.extend(&answers.ready);
                    is_flush_due = true;
                }
                (true, _) => return Ok(()),
            }
        }
        input.drain(..start);
        if is_flush_due {
            stream.write_all(&output).await?;
            output.clear();
        }
        if stream.read_buf(&mut input).await? == 0 {
            return Ok(());
        }
    }
}

/// Type and whole length of the first message, once it has arrived. The startup packet has no type.
fn whole(bytes: &[u8], is_started: bool) -> Option<(u8, usize)> {
    let typed = usize::from(is_started);
    let length = u32::from_be_bytes(*bytes.get(typed..)?.first_chunk::<4>()?) as usize + typed;
    (bytes.len() >= length).then_some((bytes[0], length))
}

struct Answers {
    columns: Vec<u8>,
    row: Vec<u8>,
    ready: Vec<u8>,
}

impl Answers {
    fn new() -> Self {
        // One column `abalance` of type int4 in text format, with the value 0.
        let mut columns = 1_u16.to_be_bytes().to_vec();
        columns.extend(*b"abalance\0\0\0\0\0\0\0\0\0\0\x17\0\x04\xff\xff\xff\xff\0\0");
        let mut row = frame(b'D', b"\0\x01\0\0\0\x010");
        row.extend(frame(b'C', b"SELECT 1\0"));
        Self { columns: frame(b'T', &columns), row, ready: frame(b'Z', b"I") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::client::Client;

    #[test]
    fn any_statement_gets_the_constant_row() {
        let ceiling = Ceiling::start().expect("a loopback port is free");
        let mut client = Client::connect(&ceiling.target()).expect("anybody may log in");
        let rows = client.rows("SELECT anything").expect("every statement is answered");
        assert_eq!(rows, [[Some("0".to_owned())]]);
        assert_eq!(client.rows("SELECT more").expect("the connection is ready again").len(), 1);
    }

    #[tokio::test]
    async fn a_prepared_statement_is_answered_with_one_row() {
        let ceiling = std::thread::spawn(|| Ceiling::start().expect("a loopback port is free"));
        let ceiling = ceiling.join().expect("it starts");
        let mut connection =
            super::super::connection::Connection::open(&ceiling.target()).await.expect("anybody may log in");
        connection.prepare("SELECT $1").await.expect("any text is prepared");
        assert_eq!(connection.execute(&[7]).await.expect("it is answered"), 1);
        assert_eq!(connection.execute(&[-8]).await.expect("and again"), 1);
        std::thread::spawn(move || drop(ceiling)).join().expect("it ends");
    }
}
