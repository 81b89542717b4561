//! Where a tool connects: a directory of a running server, or addresses given by hand.
//!
//! Invariants: what was given by hand wins over what the directory says.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use clap::Args;
use serde::{Deserialize, Serialize};

use super::client::{Client, ClientError, Target};
use crate::{
    auth::secrets::{Admin, write_private},
    exit::{Failure, Kind},
};

/// `DIR/server.json`: where the running server is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Running {
    /// Its process.
    pub pid: u32,
    /// SQL door.
    pub sql: String,
    /// HTTP door.
    pub http: String,
    /// gRPC door.
    pub grpc: String,
    /// Peer door.
    pub peer: String,
}

impl Running {
    /// Writes `DIR/server.json`.
    pub fn write(&self, data: &Path) -> io::Result<()> {
        write_private(&data.join("server.json"), &serde_json::to_vec_pretty(self)?)
    }

    /// Reads `DIR/server.json`.
    pub fn read(data: &Path) -> io::Result<Self> {
        Ok(serde_json::from_slice(&fs::read(data.join("server.json"))?)?)
    }

    /// Removes `DIR/server.json` at a clean stop.
    pub fn remove(data: &Path) {
        if let Err(error) = fs::remove_file(data.join("server.json")) {
            tracing::warn!(%error, "server.json cannot be removed");
        }
    }
}

/// How tools are told where to connect.
#[derive(Args, Clone, Debug, Default)]
pub struct Where {
    /// Data directory of a server on this machine; its address and secret are read there
    #[arg(long, value_name = "DIR", env = "KEYSTEAD_DATA", default_value = "./keystead-data")]
    pub data: PathBuf,
    /// Host of the server
    #[arg(long, value_name = "HOST", env = "PGHOST")]
    pub host: Option<String>,
    /// Port of the SQL door
    #[arg(short, long, value_name = "PORT", env = "PGPORT")]
    pub port: Option<u16>,
    /// Role to log in as
    #[arg(short = 'U', long, value_name = "ROLE", env = "PGUSER")]
    pub user: Option<String>,
    /// Database
    #[arg(short, long, value_name = "NAME", env = "PGDATABASE")]
    pub database: Option<String>,
}

impl Where {
    /// The target that is meant.
    pub fn target(&self) -> Result<Target, Failure> {
        let running = Running::read(&self.data);
        let admin = Admin::read(&self.data);
        let by_directory = running.as_ref().ok().and_then(|running| {
            let (host, port) = running.sql.rsplit_once(':')?;
            Some((reachable(host), port.parse::<u16>().ok()?))
        });
        let (host, port) = match (&self.host, self.port, by_directory) {
            (None, None, None) => {
                return Err(Failure::new(
                    Kind::Unavailable,
                    format!(
                        "no server runs in {}; start one with `keystead serve --data {0}`, or name one with --host \
                         and --port",
                        self.data.display()
                    ),
                ));
            }
            (host, port, found) => {
                let host = host.clone().or_else(|| found.clone().map(|(host, _)| host));
                let port = port.or(found.map(|(_, port)| port));
                (host.unwrap_or_else(|| "127.0.0.1".to_owned()), port.unwrap_or(7432))
            }
        };
        let password = std::env::var("PGPASSWORD").or_else(|_| std::env::var("KEYSTEAD_PASSWORD")).ok();
        let user = self.user.clone().or_else(|| admin.as_ref().ok().map(|admin| admin.user.clone()));
        let user = user.unwrap_or_else(|| "admin".to_owned());
        let known = admin.ok().filter(|admin| admin.user == user).map(|admin| admin.password);
        let password = password.or(known).ok_or_else(|| {
            Failure::new(
                Kind::NotPermitted,
                format!("no password for role {user}: set PGPASSWORD, or name the server's --data directory"),
            )
        })?;
        let database = self.database.clone().unwrap_or_else(|| "keystead".to_owned());
        Ok(Target { host, port, user, password, database })
    }

    /// Connects to it.
    pub fn connect(&self) -> Result<Client, Failure> {
        Client::connect(&self.target()?).map_err(Failure::from)
    }
}

/// A server that listens everywhere is reached on loopback.
fn reachable(host: &str) -> String {
    match host {
        "0.0.0.0" => "127.0.0.1".to_owned(),
        "[::]" => "::1".to_owned(),
        other => other.trim_matches(['[', ']']).to_owned(),
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let kind = match &error {
            ClientError::Io(_) => Kind::Unavailable,
            ClientError::Server(problem) if problem.code.starts_with("28") => Kind::NotPermitted,
            ClientError::Server(_) => Kind::Answer,
            ClientError::Protocol(_) => Kind::Software,
        };
        Self::new(kind, error.to_string())
    }
}
