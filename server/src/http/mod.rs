//! The HTTP door: health, metrics, and the place where `/mcp` is mounted.
//!
//! Invariants:
//! - `/health/live` says that the process runs; `/health/ready` that it takes work: it is off as soon as a stop begins.
//! - Headers must arrive within ten seconds, and connections are bounded, so that stalled clients cannot use up the
//!   descriptors.
//! - The accept loop ends only at shutdown; an error of `accept` is waited out.
//!
//! Not here: what `/mcp` does (the `mcp` crate).

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};
use tracing::{debug, warn};

use crate::{metrics::Metrics, shutdown::Shutdown, spawn::Tasks};

/// Connections at a time.
const CONNECTIONS_MAX: usize = 1_024;
const HEADERS_MAX: Duration = Duration::from_secs(10);
const HEADER_BYTES_MAX: usize = 32 << 10;
/// How long a failed `accept` is waited out: descriptors may be free again by then.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What the door needs.
#[derive(Clone)]
pub struct Door {
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// What the parts below the doors count, in the same format.
    pub more: Arc<dyn Fn() -> String + Send + Sync>,
    /// When to stop.
    pub shutdown: Shutdown,
}

/// What is served, by path.
pub type Routes = Router;

/// The routes, with others (`/mcp`) merged in.
pub fn routes(door: Door, others: Routes) -> Routes {
    Router::new()
        .route("/health/live", get(|| async { "live\n" }))
        .route("/health/ready", get(ready))
        .route("/metrics", get(metrics))
        .with_state(door)
        .merge(others)
}

async fn ready(State(door): State<Door>) -> (StatusCode, &'static str) {
    if door.shutdown.is_draining() {
        return (StatusCode::SERVICE_UNAVAILABLE, "stopping\n");
    }
    (StatusCode::OK, "ready\n")
}

async fn metrics(State(door): State<Door>) -> Response {
    door.metrics.http_requests.increment();
    let text = door.metrics.render() + &(door.more)();
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
}

/// Takes connections until draining begins.
pub async fn serve(listener: TcpListener, routes: Routes, door: Door, tasks: Tasks) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = door.shutdown.draining() => return,
        };
        match accepted {
            Ok((socket, client)) => {
                let Ok(place) = places.clone().try_acquire_owned() else {
                    debug!(%client, "too many HTTP connections");
                    continue;
                };
                let (routes, shutdown) = (routes.clone(), door.shutdown.clone());
                tasks.spawn("http", async move {
                    connection(socket, client, routes, shutdown).await;
                    drop(place);
                });
            }
            Err(error) => {
                warn!(%error, door = "http", "accept failed");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn connection(socket: TcpStream, client: SocketAddr, routes: Routes, shutdown: Shutdown) {
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEADERS_MAX).max_buf_size(HEADER_BYTES_MAX);
    let service = TowerToHyperService::new(routes);
    let connection = builder.serve_connection(TokioIo::new(socket), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = shutdown.draining() => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                ended = connection.as_mut() => ended,
                () = shutdown.stopping() => Ok(()),
            }
        }
    };
    if let Err(error) = ended {
        debug!(%client, %error, "HTTP connection ended");
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    fn door() -> Door {
        Door { metrics: Arc::default(), more: Arc::new(String::new), shutdown: Shutdown::default() }
    }

    async fn get(address: SocketAddr, path: &str) -> String {
        let mut socket = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn a_draining_server_is_live_but_not_ready() {
        let door = door();
        let answer = ready(State(door.clone())).await;
        assert_eq!(answer.0, StatusCode::OK);
        door.shutdown.drain();
        assert_eq!(ready(State(door)).await.0, StatusCode::SERVICE_UNAVAILABLE);
    }

    #[tokio::test]
    async fn health_and_metrics_are_served_until_the_drain() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let door = door();
        let tasks = Tasks::default();
        let serving = serve(listener, routes(door.clone(), Router::new()), door.clone(), tasks.clone());
        tasks.spawn("serve", serving);
        assert!(get(address, "/health/live").await.starts_with("HTTP/1.1 200"));
        assert!(get(address, "/metrics").await.contains("server_connections 0"));
        assert!(get(address, "/nothing").await.starts_with("HTTP/1.1 404"));
        door.shutdown.drain();
        assert!(tasks.join(Duration::from_secs(10)).await);
    }
}
