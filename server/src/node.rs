//! The composition root: what a server consists of, what starts when, and how it stops in reverse.
//!
//! Order of a start: descriptors → directory → ports → secrets → storage and groups → SQL → doors → `server.json` → the
//! `ready` line. A port that is taken or a directory that is held is therefore found before anything is written.
//!
//! Order of a stop: readiness off → no new connections, idle sessions end → running work ends (or, after
//! `shutdown.drain_max` or a second signal, is cancelled) → node closed, directory given back.
//!
//! Invariants:
//! - Whoever sees the `ready` line can connect to every door.
//! - The first failed write or sync of the log ends the process with code 74: nothing is acknowledged after it.

use std::{fs, io, net::SocketAddr, os::unix::fs::DirBuilderExt, path::Path, sync::Arc, time::Duration};

use model::{port::Dispatch, time::Clock};
use storage::{cut, directory::Directory};
use tokio::{net::TcpListener, sync::Semaphore};
use tracing::{error, info};

use crate::{
    auth::{
        delay::Failures,
        scram::Verifier,
        secrets::{Admin, Secrets},
        tls::Tls,
    },
    cli::target::Running,
    clock::SystemClock,
    config::{Config, LogPriority},
    descriptors,
    exit::{Failure, Kind},
    grpc, http, mcp,
    metrics::{Metrics, render_node},
    pg,
    session::{Ending, Registry, handler::Callers},
    shutdown::Shutdown,
    spawn::Tasks,
};

/// How long cancelled work may take to end.
const STOP_MAX: Duration = Duration::from_secs(5);

/// A server that serves.
pub struct Server {
    node: Arc<cluster::Node>,
    registry: Arc<Registry>,
    tasks: Tasks,
    shutdown: Shutdown,
    config: Config,
    /// Where it listens.
    pub running: Running,
    /// What was made at the first start, to be shown once.
    pub first: Option<Admin>,
}

/// Names and secrets that the environment may give at a first start.
#[derive(Default)]
pub struct Bootstrap {
    /// Name of the superuser; `admin` if none.
    pub user: Option<String>,
    /// Its password; random if none.
    pub password: Option<String>,
    /// Name of the first database; `keystead` if none.
    pub database: Option<String>,
}

struct Listeners {
    sql: TcpListener,
    http: TcpListener,
    grpc: TcpListener,
    peer: TcpListener,
}

impl Server {
    /// Starts everything.
    pub async fn start(config: Config, bootstrap: Bootstrap) -> Result<Self, Failure> {
        raise_descriptors(&config);
        prepare_directory(&config.data)?;
        let listeners = Listeners::bind(&config).await?;
        let (secrets, first) = secrets(&config.data, &bootstrap)?;
        let tls = match (&config.tls.cert, &config.tls.key) {
            (Some(cert), Some(key)) => Some(Tls::open(cert, key)?),
            _ => None,
        };
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let options = node_options(&config, &bootstrap, clock.clone())?;
        let node = Arc::new(cluster::Node::open(options).await.map_err(model::Error::from)?);
        let dispatch: Arc<dyn Dispatch> = node.router();

        let tasks = Tasks::default();
        let shutdown = Shutdown::default();
        let metrics = Arc::new(Metrics::default());
        let registry = Arc::new(Registry::new(config.sql.connections_max));
        let engine = sql::engine::Engine::new(dispatch.clone(), clock.clone(), sql_options(&config));
        let secrets = Arc::new(secrets);
        let running = listeners.addresses()?;

        let door = pg::Door {
            config: config.sql.clone(),
            slow_statement: config.log.slow_statement,
            wants_tls: tls.is_some() && !config.tls.insecure_no_tls,
            tls,
            secrets: secrets.clone(),
            failures: Failures::default(),
            registry: registry.clone(),
            engine: engine.clone(),
            dispatch: dispatch.clone(),
            metrics: metrics.clone(),
            clock,
            tasks: tasks.clone(),
            shutdown: shutdown.clone(),
            logins: Semaphore::new(config.sql.unauthenticated_max),
        };
        engine.drop_leftovers().await?;
        tasks.spawn("sql door", pg::serve(listeners.sql, Arc::new(door)));
        let database = first_database(&dispatch);
        let callers = Callers::new(
            secrets,
            engine.clone(),
            dispatch,
            metrics.clone(),
            database,
            config.sql.operations_max,
        );
        let callers: grpc::Callers = {
            let callers = Arc::new(callers);
            Arc::new(move |token: &str| callers.find(token))
        };
        let more = {
            let (node, engine) = (node.clone(), engine.clone());
            Arc::new(move || render_node(&node.stats(), engine.memory_used()))
        };
        let door = http::Door { metrics, more, shutdown: shutdown.clone() };
        let routes = http::routes(door.clone(), mcp::routes(callers.clone(), mcp_options(&config)));
        tasks.spawn("http door", http::serve(listeners.http, routes, door, tasks.clone()));
        let draining = shutdown.draining_token();
        tasks.spawn("grpc door", grpc::serve(listeners.grpc, callers, draining.cancelled_owned()));
        tasks.spawn("peer door", closed_door(listeners.peer, shutdown.clone()));

        running
            .write(&config.data)
            .map_err(|error| Failure::from_io(config.data.join("server.json").display(), &error))?;
        Ok(Self { node, registry, tasks, shutdown, config, running, first })
    }

    /// Stops: drains, at most `shutdown.drain_max` or until `hurry` is ready, cancels what is left, closes the node.
    pub async fn stop(self, hurry: impl Future<Output = ()>) -> Result<(), Failure> {
        info!("draining");
        self.shutdown.drain();
        self.registry.end_all(Ending::Drain);
        let drained = tokio::select! {
            drained = self.tasks.join(self.config.drain_max) => drained,
            () = hurry => false,
        };
        if !drained {
            info!(sessions = self.registry.len(), "cancelling what still runs");
            self.shutdown.stop();
            self.registry.end_all(Ending::Stop);
            if !self.tasks.join(STOP_MAX).await {
                error!(tasks = self.tasks.len(), "tasks did not end");
            }
        }
        let closed = self.node.close().await.map_err(model::Error::from);
        Running::remove(&self.config.data);
        closed?;
        info!("stopped");
        Ok(())
    }
}

impl Listeners {
    async fn bind(config: &Config) -> Result<Self, Failure> {
        Ok(Self {
            sql: bind("sql.listen", config.sql.listen).await?,
            http: bind("http.listen", config.http_listen).await?,
            grpc: bind("grpc.listen", config.grpc_listen).await?,
            peer: bind("peer.listen", config.peer_listen).await?,
        })
    }

    fn addresses(&self) -> Result<Running, Failure> {
        let address = |listener: &TcpListener| {
            let address = listener.local_addr().map_err(|error| Failure::from_io("listener", &error))?;
            Ok::<String, Failure>(address.to_string())
        };
        Ok(Running {
            pid: std::process::id(),
            sql: address(&self.sql)?,
            http: address(&self.http)?,
            grpc: address(&self.grpc)?,
            peer: address(&self.peer)?,
        })
    }
}

async fn bind(name: &str, address: SocketAddr) -> Result<TcpListener, Failure> {
    let bound = TcpListener::bind(address).await;
    bound.map_err(|error| Failure::from_io(format!("{name} = {address}"), &error))
}

/// A door that is there and gives nothing: a node without peers answers none.
async fn closed_door(listener: TcpListener, shutdown: Shutdown) {
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                if accepted.is_err() {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
            () = shutdown.draining() => return,
        }
    }
}

fn raise_descriptors(config: &Config) {
    let needed = config.sql.connections_max as u64 + descriptors::RESERVED;
    if let Some(limit) = descriptors::raise()
        && limit < needed
    {
        let connections_max = config.sql.connections_max;
        tracing::warn!(limit, connections_max, "too few file descriptors for all connections");
    }
}

/// Makes the directory if it is not there, durably: what is synced in it later must not go with its name.
fn prepare_directory(data: &Path) -> Result<(), Failure> {
    let cannot = |error: io::Error| {
        let failure = Failure::from_io(format!("data directory {}", data.display()), &error);
        match failure.kind() {
            Kind::NotPermitted => failure,
            _ => Failure::new(Kind::CannotCreate, failure.to_string()),
        }
    };
    let missing: Vec<&Path> =
        data.ancestors().take_while(|path| !path.as_os_str().is_empty() && !path.is_dir()).collect();
    match fs::DirBuilder::new().mode(0o700).recursive(true).create(data) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(cannot(error)),
        Ok(()) | Err(_) => {}
    }
    for made in missing.into_iter().rev() {
        sync_name(made).map_err(cannot)?;
    }
    // A start that was cut short may have made it without a sync.
    if !data.join("secrets.json").is_file() {
        sync_name(&fs::canonicalize(data).map_err(cannot)?).map_err(cannot)?;
    }
    fs::read_dir(data).map(drop).map_err(cannot)
}

/// Makes a directory's name durable. Where the one above may not be read, whoever made the name has to see to it.
fn sync_name(path: &Path) -> io::Result<()> {
    let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match fs::File::open(above) {
        Ok(above) => above.sync_all(),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        Err(error) => Err(error),
    }
}

/// The secrets of the directory; new ones at a first start, also one that goes on after another was cut short.
fn secrets(data: &Path, bootstrap: &Bootstrap) -> Result<(Secrets, Option<Admin>), Failure> {
    let is_begun = data.join("secrets.json").is_file();
    let is_fresh = !is_begun && Directory::is_fresh(data).map_err(model::Error::from)?;
    if !is_fresh {
        return Ok((Secrets::open(data)?, None));
    }
    let admin = Admin::new(bootstrap.user.as_deref().unwrap_or("admin"), bootstrap.password.clone())?;
    admin.write(data).map_err(|error| Failure::from_io(data.join("admin.json").display(), &error))?;
    cut::point("first.admin");
    let secrets = Secrets::create(data, &admin)?;
    cut::point("first.secrets");
    Ok((secrets, Some(admin)))
}

fn node_options(
    config: &Config,
    bootstrap: &Bootstrap,
    clock: Arc<dyn Clock>,
) -> Result<cluster::Options, Failure> {
    let mut options = cluster::Options::new(&config.data, clock);
    options.shards = config.shards;
    options.engine.cache_bytes = config.memory.cache_bytes_max();
    options.log.segment_bytes = config.pace.segment_bytes;
    options.keep_entries = config.pace.keep_entries;
    options.checkpoint_every = config.pace.checkpoint_every;
    options.checkpoint_bytes = config.pace.checkpoint_bytes;
    options.engine.memtable_bytes_max = config.pace.memtable_bytes;
    options.log.priority = match config.log_priority {
        LogPriority::Auto => storage::log::Priority::Auto,
        LogPriority::Normal => storage::log::Priority::Normal,
    };
    // A first start that was cut off goes on with the secrets it wrote; a directory that has roles ignores this.
    if let Ok(admin) = Admin::read(&config.data) {
        options.bootstrap.password = Some(Verifier::of_password(&admin.password)?.to_text());
        options.bootstrap.admin = admin.user;
    }
    if let Some(database) = &bootstrap.database {
        options.bootstrap.database.clone_from(database);
    }
    options.on_fatal = Arc::new(|failure| {
        error!(error = %failure, "the node cannot go on");
        std::process::exit(i32::from(Kind::Io as u8));
    });
    Ok(options)
}

/// The database that doors without a name of their own speak to.
fn first_database(dispatch: &Arc<dyn Dispatch>) -> String {
    dispatch.catalog().first_database().map(|database| database.name.clone()).unwrap_or_default()
}

/// Agents reach this server under the addresses it listens on.
fn mcp_options(config: &Config) -> ::mcp::Options {
    let mut options = ::mcp::Options::default();
    if !config.http_listen.ip().is_unspecified() {
        options.hosts.push(config.http_listen.ip().to_string());
    }
    options
}

fn sql_options(config: &Config) -> sql::engine::Options {
    let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    let memory_bytes_max = bytes(config.memory.query_bytes_max());
    let defaults = sql::engine::Options::default();
    sql::engine::Options {
        memory_bytes_max,
        statement_bytes_max: defaults.statement_bytes_max.min(memory_bytes_max / 2),
        spill_directory: config.data.join("spill"),
        ..defaults
    }
}
