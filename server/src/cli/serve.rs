//! `keystead serve`: reads the configuration, starts the server, and ends when it is told to.
//!
//! Invariants: stdout gets one line, `ready …`; everything else goes to stderr. Secrets come from files and the
//! environment, never from flags.

use std::{
    fs,
    io::{self, IsTerminal, Write as _},
    path::PathBuf,
};

use clap::Args;
use storage::cut;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{info, warn};

use crate::{
    config::{self, Config, Sources},
    exit::{Failure, Kind},
    node::{Bootstrap, Server},
    telemetry,
};

/// Stack of a worker: statements are nested up to the parser's limit, and only pages that were touched cost memory.
const STACK_BYTES: usize = 32 << 20;

/// Arguments of `keystead serve`.
#[derive(Args, Debug)]
pub(super) struct Options {
    /// Data directory; it is made if it is not there [default: ./keystead-data]
    #[arg(long, value_name = "DIR")]
    data: Option<String>,
    /// Address of the SQL door [default: 127.0.0.1:7432]
    #[arg(long, value_name = "ADDR")]
    sql: Option<String>,
    /// Address of the HTTP door: /mcp, /health, /metrics [default: 127.0.0.1:7480]
    #[arg(long, value_name = "ADDR")]
    http: Option<String>,
    /// Address of the gRPC door [default: 127.0.0.1:7450]
    #[arg(long, value_name = "ADDR")]
    grpc: Option<String>,
    /// Address of the node-to-node door [default: 127.0.0.1:7470]
    #[arg(long, value_name = "ADDR")]
    peer: Option<String>,
    /// Configuration file (TOML)
    #[arg(long, value_name = "FILE", env = "KEYSTEAD_CONFIG")]
    config: Option<PathBuf>,
    /// Certificate chain of the SQL door (PEM)
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<String>,
    /// Its private key (PEM)
    #[arg(long, value_name = "FILE")]
    tls_key: Option<String>,
    /// Listen off loopback without TLS
    #[arg(long)]
    insecure_no_tls: bool,
    /// What the process may use, such as 2GiB
    #[arg(long, value_name = "SIZE")]
    memory_limit: Option<String>,
    /// Which log lines: a level or directives such as info,server=debug
    #[arg(long, value_name = "FILTER")]
    log: Option<String>,
    /// Any setting by its name in the file: --set sql.connections_max=100
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Print the settings that hold, each with its origin, and leave
    #[arg(long)]
    print_config: bool,
}

/// Runs `keystead serve`.
pub(super) fn run(options: Options) -> Result<(), Failure> {
    let print_config = options.print_config;
    let (config, printed) = read_config(options)?;
    if print_config {
        print!("{printed}");
        return Ok(());
    }
    let problems = config::check(&config);
    if !problems.is_empty() {
        return Err(Failure::new(Kind::Config, problems.join("\n")));
    }
    telemetry::start(&config.log.filter, config.log.format)
        .map_err(|problem| Failure::new(Kind::Config, problem))?;
    if let Ok(text) = std::env::var("KEYSTEAD_CUT") {
        cut::arm(&text).map_err(|unknown| Failure::new(Kind::Config, format!("KEYSTEAD_CUT: {unknown}")))?;
        warn!(point = text, "this process ends itself at a cut point");
    }
    let bootstrap = bootstrap_of_environment()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("keystead")
        .thread_stack_size(STACK_BYTES)
        .build()
        .map_err(|error| Failure::new(Kind::System, error.to_string()))?;
    runtime.block_on(serve(config, bootstrap))
}

async fn serve(config: Config, bootstrap: Bootstrap) -> Result<(), Failure> {
    let mut signals = Signals::listen()?;
    let server = tokio::select! {
        started = Server::start(config, bootstrap) => started?,
        () = signals.stop() => return Ok(()),
    };
    let running = &server.running;
    if let Some(admin) = server.first.as_ref().filter(|_| io::stderr().is_terminal()) {
        eprintln!(
            "first start: role {}, password {}, token {}\n(kept in admin.json of the data directory)",
            admin.user, admin.password, admin.token
        );
    }
    if io::stderr().is_terminal() {
        eprintln!("connect with: keystead sql, or psql -h 127.0.0.1 -p {}", port_of(&running.sql));
    }
    println!("ready sql={} http={} grpc={} peer={}", running.sql, running.http, running.grpc, running.peer);
    let _ = io::stdout().flush();
    info!(sql = %running.sql, http = %running.http, grpc = %running.grpc, peer = %running.peer, "ready");
    signals.stop().await;
    server.stop(signals.stop()).await
}

/// SIGTERM and SIGINT ask for a stop; SIGHUP is not one.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    fn listen() -> Result<Self, Failure> {
        let listen = |kind| signal(kind).map_err(|error| Failure::from_io("signals", &error));
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    async fn stop(&mut self) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
                _ = self.hangup.recv() => info!("hangup ignored: settings and certificates are read at start"),
            }
        }
    }
}

fn port_of(address: &str) -> &str {
    address.rsplit_once(':').map_or(address, |(_, port)| port)
}

fn read_config(options: Options) -> Result<(Config, String), Failure> {
    let mut flags: Vec<(&'static str, String)> = Vec::new();
    let given = [
        ("data", options.data),
        ("sql.listen", options.sql),
        ("http.listen", options.http),
        ("grpc.listen", options.grpc),
        ("peer.listen", options.peer),
        ("tls.cert", options.tls_cert),
        ("tls.key", options.tls_key),
        ("memory.limit", options.memory_limit),
        ("log.filter", options.log),
        ("tls.insecure_no_tls", options.insecure_no_tls.then(|| "true".to_owned())),
    ];
    flags.extend(given.into_iter().filter_map(|(name, value)| Some((name, value?))));
    for pair in &options.set {
        let (name, value) = pair
            .split_once('=')
            .ok_or_else(|| Failure::new(Kind::Usage, format!("--set {pair}: KEY=VALUE is due")))?;
        let key = config::KEYS.iter().find(|key| key.name == name);
        let key = key.ok_or_else(|| Failure::new(Kind::Config, format!("flag: unknown key \"{name}\"")))?;
        flags.push((key.name, value.to_owned()));
    }
    let sources = Sources::of_process(options.config.as_deref(), flags).map_err(|error| {
        let path = options.config.unwrap_or_default();
        Failure::new(Kind::Config, format!("configuration file {}: {error}", path.display()))
    })?;
    let (config, origins) =
        config::load(&sources).map_err(|problems| Failure::new(Kind::Config, problems.join("\n")))?;
    let printed = config::print(&config, &origins);
    Ok((config, printed))
}

/// What the environment says about a first start, under our names and those of the PostgreSQL image.
fn bootstrap_of_environment() -> Result<Bootstrap, Failure> {
    let get = |names: &[&str]| names.iter().find_map(|name| std::env::var(name).ok());
    let mut password = get(&["KEYSTEAD_PASSWORD", "POSTGRES_PASSWORD"]);
    if let (None, Some(path)) = (&password, get(&["KEYSTEAD_PASSWORD_FILE", "POSTGRES_PASSWORD_FILE"])) {
        let text = fs::read_to_string(&path).map_err(|error| Failure::from_io(path, &error))?;
        password = Some(text.trim_end_matches(['\r', '\n']).to_owned());
    }
    if password.as_deref() == Some("") {
        return Err(Failure::new(Kind::Config, "the password given in the environment is empty"));
    }
    let user = get(&["KEYSTEAD_USER", "POSTGRES_USER"]).filter(|user| !user.is_empty());
    let database = get(&["KEYSTEAD_DATABASE", "POSTGRES_DB"]).filter(|database| !database.is_empty());
    Ok(Bootstrap { user, password, database })
}
