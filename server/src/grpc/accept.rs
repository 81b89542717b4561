//! Listening for gRPC: bounded streams, pings that find dead clients, and an end at shutdown.

use std::{future::Future, time::Duration};

use futures::Stream;
use tokio::net::{TcpListener, TcpStream};
use tonic::transport::Server;
use tracing::warn;

use super::{Callers, service};

/// Streams of one connection at a time.
const STREAMS_MAX: u32 = 128;
const PING_EVERY: Duration = Duration::from_secs(20);
const PING_WAIT: Duration = Duration::from_secs(10);
/// How long a failed `accept` is waited out: descriptors may be free again by then.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves until `draining` is ready, then lets running calls end.
pub async fn serve(listener: TcpListener, callers: Callers, draining: impl Future<Output = ()>) {
    let served = Server::builder()
        .max_concurrent_streams(STREAMS_MAX)
        .http2_keepalive_interval(Some(PING_EVERY))
        .http2_keepalive_timeout(Some(PING_WAIT))
        .add_service(service(callers))
        .serve_with_incoming_shutdown(connections(listener), draining)
        .await;
    if let Err(error) = served {
        warn!(%error, "gRPC door closed");
    }
}

/// Accepted sockets; an error of `accept` is waited out and never ends the stream (RUSTSEC-2024-0376).
fn connections(listener: TcpListener) -> impl Stream<Item = std::io::Result<TcpStream>> {
    futures::stream::unfold(listener, |listener| async move {
        loop {
            match listener.accept().await {
                Ok((socket, _)) => {
                    let _ = socket.set_nodelay(true);
                    return Some((Ok(socket), listener));
                }
                Err(error) => {
                    warn!(%error, door = "grpc", "accept failed");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    })
}
