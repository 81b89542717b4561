//! Harness of the tests: real processes on free ports, raw frames, and an oracle.
//!
//! 1. [`keystead`] starts the server binary in a directory, kills it, starts it again.
//! 2. [`oracle`] starts PostgreSQL 15, whose answers decide what is right.
//! 3. [`wire`] speaks the protocol byte by byte and prints what comes back.
//! 4. [`slt`] runs the statement files against both and lists what differs.
//! 5. [`sqlgen`] makes random statements; [`differential`] compares the two servers on them.
//! 6. [`torture`] kills the server under load and audits what it had acknowledged.
//! 7. [`disk`] stands between the server and its files: what a power cut leaves, and calls that fail.
//! 8. [`source`] reads the repository itself, for the checks of the code.
//!
//! Not here: anything that looks inside the server. The harness is a client.

pub mod differential;
pub mod disk;
pub mod keystead;
pub mod oracle;
pub mod slt;
pub mod source;
pub mod sqlgen;
pub mod torture;
pub mod wire;

use std::fmt;

/// Where a server listens and who we are there.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    /// Host name or address.
    pub host: String,
    /// TCP port of the SQL door.
    pub port: u16,
    /// Role to log in as.
    pub user: String,
    /// Its password.
    pub password: String,
    /// Database to open.
    pub database: String,
}

impl Address {
    /// The same server and role, another database.
    pub fn with_database(&self, database: &str) -> Address {
        Address { database: database.to_owned(), ..self.clone() }
    }

    /// As a connection URL, the form drivers and `psql` take.
    pub fn url(&self) -> String {
        format!(
            "postgresql://{}:{}@{}:{}/{}?sslmode=disable",
            self.user, self.password, self.host, self.port, self.database
        )
    }

    /// Reads a URL of the form that [`Address::url`] makes.
    pub fn parse(url: &str) -> Option<Address> {
        let rest = url.strip_prefix("postgresql://").or_else(|| url.strip_prefix("postgres://"))?;
        let rest = rest.split('?').next()?;
        let (login, place) = rest.rsplit_once('@')?;
        let (user, password) = login.split_once(':').unwrap_or((login, ""));
        let (socket, database) = place.split_once('/').unwrap_or((place, user));
        let (host, port) = socket.rsplit_once(':').unwrap_or((socket, "5432"));
        Some(Address {
            host: host.to_owned(),
            port: port.parse().ok()?,
            user: user.to_owned(),
            password: password.to_owned(),
            database: database.to_owned(),
        })
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}:{}/{}", self.user, self.host, self.port, self.database)
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn an_address_survives_its_url() {
        let address = Address {
            host: "127.0.0.1".into(),
            port: 7432,
            user: "admin".into(),
            password: "p4ss".into(),
            database: "keystead".into(),
        };
        assert_eq!(Address::parse(&address.url()), Some(address));
    }
}
