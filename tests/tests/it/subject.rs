//! Who is asked: the server, or with `KEYSTEAD_TARGET=oracle` PostgreSQL itself, to try a test on the truth.

use tests::Address;
use tests::keystead::Keystead;
use tests::oracle::{Durability, Oracle};
use tests::wire::Wire;

/// A running server.
pub(crate) enum Subject {
    /// The real one.
    Keystead(Keystead),
    /// The oracle in its place.
    Oracle(Oracle),
}

impl Subject {
    /// Starts one.
    pub(crate) fn start() -> Subject {
        Subject::with(Durability::Off)
    }

    /// Starts one that survives a crash.
    pub(crate) fn start_durable() -> Subject {
        Subject::with(Durability::On)
    }

    fn with(durability: Durability) -> Subject {
        if is_oracle() {
            return Subject::Oracle(Oracle::start(durability).expect("PostgreSQL 15 starts"));
        }
        Subject::Keystead(Keystead::start().expect("the server starts"))
    }

    /// Where it is.
    pub(crate) fn address(&self) -> Address {
        match self {
            Subject::Keystead(server) => server.address().expect("a started server has an address"),
            Subject::Oracle(oracle) => oracle.address().clone(),
        }
    }

    /// A new connection.
    pub(crate) fn connect(&self) -> Wire {
        Wire::connect(&self.address()).expect("the server accepts a connection")
    }
}

/// Runs a statement that must not fail.
pub(crate) fn run(wire: &mut Wire, sql: &str) {
    let reply = wire.query(sql).unwrap();
    assert!(reply.error.is_none(), "{sql}: {:?}", reply.error);
}

/// The first value of a statement that must give one.
pub(crate) fn scalar(wire: &mut Wire, sql: &str) -> String {
    let reply = wire.query(sql).unwrap();
    reply.scalar().unwrap_or_else(|| panic!("{sql}: {:?}", reply.error)).to_owned()
}

/// Whether the oracle stands in for the server.
pub(crate) fn is_oracle() -> bool {
    std::env::var("KEYSTEAD_TARGET").is_ok_and(|target| target == "oracle")
}

/// The seed of this run: `KEYSTEAD_SEED`, else from the clock. Whoever uses it prints it.
pub(crate) fn seed() -> u64 {
    let clock = || {
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(1, |d| d.as_nanos() as u64)
    };
    std::env::var("KEYSTEAD_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or_else(clock)
}
