//! The socket of one client, plain or inside TLS, with what has arrived and what is to be sent.
//!
//! Invariants:
//! - A write that is given up half-way keeps the rest: the next flush goes on from there, so messages stay whole.
//! - Both buffers give their memory back when they are empty.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::server::TlsStream;

use super::{encode::Output, frame::Input};
use crate::metrics::Metrics;

/// A socket.
pub(super) enum Stream {
    /// As it is.
    Plain(TcpStream),
    /// Encrypted.
    Tls(Box<TlsStream<TcpStream>>),
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

/// A client's socket and its buffers.
pub(super) struct Link {
    stream: Stream,
    /// What has arrived.
    pub(super) input: Input,
    /// What is to be sent.
    pub(super) output: Output,
    metrics: Arc<Metrics>,
}

impl Link {
    /// A link over a socket, with empty buffers.
    pub(super) fn new(stream: Stream, metrics: Arc<Metrics>) -> Self {
        Self { stream, input: Input::default(), output: Output::default(), metrics }
    }

    /// The socket, to begin TLS on it.
    pub(super) fn into_stream(self) -> Stream {
        self.stream
    }

    /// What counts its bytes.
    pub(super) fn metrics(&self) -> Arc<Metrics> {
        self.metrics.clone()
    }

    /// Whether bytes travel encrypted.
    pub(super) fn is_tls(&self) -> bool {
        matches!(self.stream, Stream::Tls(_))
    }

    /// Reads what there is, `missing` bytes of a frame being known to come. 0 says that the client has closed.
    pub(super) async fn fill(&mut self, missing: usize) -> io::Result<usize> {
        let count = self.stream.read_buf(self.input.room(missing)).await?;
        self.metrics.bytes_received.add(count as u64);
        Ok(count)
    }

    /// Sends everything that waits, in one write if the socket takes it.
    pub(super) async fn flush(&mut self) -> io::Result<()> {
        while !self.output.is_empty() {
            let count = self.stream.write(self.output.bytes()).await?;
            if count == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            self.metrics.bytes_sent.add(count as u64);
            self.output.sent(count);
        }
        match &mut self.stream {
            Stream::Plain(_) => Ok(()),
            Stream::Tls(stream) => stream.flush().await,
        }
    }

    /// Sends what waits and closes in order.
    pub(super) async fn close(mut self) {
        if self.flush().await.is_ok() {
            let _ = self.stream.shutdown().await;
        }
    }
}
