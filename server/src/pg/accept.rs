//! The accept loop, and a connection's way from socket to session and out again.
//!
//! Invariants:
//! - The loop ends only at shutdown: an error of `accept`, such as too few descriptors, is waited out.
//! - A connection beyond the limit is told so (`53300`) as soon as it has said what it wants; it can still cancel.
//! - The session's place is given back when its task ends, however it ends.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use model::{Code, Error, id::RoleId, port::Dispatch, time::Clock};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};
use tracing::{debug, info, warn};

use super::{
    connection::Connection,
    error::{Severity, put_error, severity},
    startup::{Greeted, Startup, authenticate, greet, log_refusal, wrong_password},
    stream::Link,
};
use crate::{
    auth::{delay::Failures, scram, secrets::Secrets, tls::Tls},
    config,
    metrics::Metrics,
    session::{Membership, Registry},
    shutdown::Shutdown,
    spawn::Tasks,
};

/// Sockets beyond the sessions' limit that may be open, to be refused or to cancel.
const SPARE_SOCKETS: usize = 256;
/// How long a failed `accept` is waited out: descriptors may be free again by then.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What the SQL door needs.
pub struct Door {
    /// Its settings.
    pub config: config::Sql,
    /// Statements that take longer are logged.
    pub slow_statement: Option<Duration>,
    /// Certificates, if there are any.
    pub tls: Option<Tls>,
    /// Clients of other machines must use TLS.
    pub wants_tls: bool,
    /// The pepper for names without a verifier.
    pub secrets: Arc<Secrets>,
    /// What guessing costs.
    pub failures: Failures,
    /// Who is connected.
    pub registry: Arc<Registry>,
    /// SQL.
    pub engine: Arc<sql::engine::Engine>,
    /// The data path, for the catalog.
    pub dispatch: Arc<dyn Dispatch>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Tasks.
    pub tasks: Tasks,
    /// When to stop.
    pub shutdown: Shutdown,
    /// Who may be in login at a time; more wait.
    pub logins: Semaphore,
}

/// Takes connections until draining begins.
pub async fn serve(listener: TcpListener, door: Arc<Door>) {
    let sockets = Arc::new(Semaphore::new(door.config.connections_max + SPARE_SOCKETS));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = door.shutdown.draining() => return,
        };
        match accepted {
            Ok((socket, client)) => {
                door.metrics.connections_accepted.increment();
                let Ok(place) = sockets.clone().try_acquire_owned() else {
                    door.metrics.connections_refused.increment();
                    continue;
                };
                let session = door.clone();
                door.tasks.spawn("sql connection", async move {
                    let held = session.metrics.connections.hold();
                    Box::pin(connection(socket, client, session)).await;
                    drop((held, place));
                });
            }
            Err(error) => {
                warn!(%error, door = "sql", "accept failed");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn connection(socket: TcpStream, client: SocketAddr, door: Arc<Door>) {
    if let Err(error) = socket.set_nodelay(true) {
        debug!(%client, %error, "socket option refused");
    }
    let startup = Box::pin(start(socket, client, &door));
    let started = tokio::select! {
        started = tokio::time::timeout(door.config.startup_max, startup) => started,
        () = door.shutdown.draining() => return,
    };
    match started {
        Ok(Ok(Some(ready))) => ready.run().await,
        Ok(Ok(None)) => {}
        Ok(Err(error)) => debug!(%client, %error, "connection ended in startup"),
        Err(_) => info!(%client, "startup took too long"),
    }
}

/// From socket to session; none if the client wanted no session or got none.
async fn start(
    socket: TcpStream,
    client: SocketAddr,
    door: &Arc<Door>,
) -> io::Result<Option<Box<Connection>>> {
    let (mut link, startup) = match greet(socket, door.tls.as_ref(), door.metrics.clone()).await? {
        Ok(Greeted::Session(link, startup)) => (link, startup),
        Ok(Greeted::Cancel { process_id, secret }) => {
            door.registry.cancel_with_key(process_id, secret);
            return Ok(None);
        }
        Ok(Greeted::Gone) => return Ok(None),
        Err((link, error)) => return refuse(link, client, &error).await,
    };
    if door.wants_tls && !link.is_tls() && !client.ip().to_canonical().is_loopback() {
        return refuse(link, client, &no_tls(client)).await;
    }
    let membership = match door.registry.open(client, door.clock.wall()) {
        Ok(membership) => membership,
        Err(error) => {
            door.metrics.connections_refused.increment();
            return refuse(link, client, &error).await;
        }
    };
    startup.negotiate(&mut link);
    match log_in(&mut link, &startup, client, door).await? {
        Ok(()) => {}
        Err(error) => return refuse(link, client, &error).await,
    }
    open(link, startup, membership, client, door).await
}

fn no_tls(client: SocketAddr) -> Error {
    Error::new(
        Code::InvalidAuthorizationSpecification,
        format!("a connection from {} must be encrypted", client.ip()),
    )
    .with_hint("Connect with sslmode=require, better verify-full.")
}

/// Proves who it is.
async fn log_in(
    link: &mut Link,
    startup: &Startup,
    client: SocketAddr,
    door: &Door,
) -> io::Result<Result<(), Error>> {
    let Ok(_place) = door.logins.acquire().await else {
        return Ok(Err(Error::new(Code::CannotConnectNow, "the server is shutting down")));
    };
    let catalog = door.dispatch.catalog();
    let role = catalog.find_role(&startup.user);
    let verifier = role.and_then(|role| role.password.as_deref()).and_then(scram::Verifier::parse);
    let binding = if link.is_tls() { door.tls.as_ref().and_then(Tls::binding) } else { None };
    let server = scram::Server::new(&startup.user, verifier, door.secrets.pepper(), binding);
    match authenticate(link, server).await? {
        Ok(true) => {}
        Ok(false) => {
            door.metrics.logins_failed.increment();
            info!(%client, "password authentication failed");
            let wait = door.failures.note(door.clock.monotonic(), client.ip(), &startup.user);
            tokio::time::sleep(wait).await;
            return Ok(Err(wrong_password(&startup.user)));
        }
        Err(error) => return Ok(Err(error)),
    }
    Ok(match role {
        Some(role) if !role.login => Err(Error::new(
            Code::InvalidAuthorizationSpecification,
            format!("role \"{}\" is not permitted to log in", role.name),
        )),
        Some(role) => check_role_connections(door, role.id, role.connections_max),
        None => Err(wrong_password(&startup.user)),
    })
}

/// `CONNECTION LIMIT` of a role.
fn check_role_connections(door: &Door, role: RoleId, connections_max: Option<u32>) -> Result<(), Error> {
    let Some(max) = connections_max else { return Ok(()) };
    if door.registry.of_role(role) >= max as usize {
        return Err(Error::new(Code::TooManyConnections, "too many connections for role"));
    }
    Ok(())
}

async fn open(
    link: Box<Link>,
    startup: Startup,
    membership: Membership,
    client: SocketAddr,
    door: &Arc<Door>,
) -> io::Result<Option<Box<Connection>>> {
    let entry = membership.entry().clone();
    if let Some(role) = door.dispatch.catalog().find_role(&startup.user) {
        entry.set_role(role.id);
    }
    let login = sql::session::Login {
        session: entry.id,
        role: startup.user,
        database: startup.database,
        process_id: entry.process_id,
        client: Some(client.ip().to_string()),
        parameters: startup.settings,
    };
    match sql::session::Session::open(&door.engine, login) {
        Ok(session) => {
            let mut connection = Box::new(Connection::new(*link, session, membership, door.clone()));
            connection.greet().await?;
            Ok(Some(connection))
        }
        Err(error) => refuse(link, client, &error).await,
    }
}

/// Says why not, and closes.
async fn refuse(
    mut link: Box<Link>,
    client: SocketAddr,
    error: &Error,
) -> io::Result<Option<Box<Connection>>> {
    log_refusal(client, error);
    debug_assert!(severity(error.code()) != Severity::Notice, "a refusal is an error");
    put_error(&mut link.output, Severity::Fatal, error);
    link.close().await;
    Ok(None)
}
