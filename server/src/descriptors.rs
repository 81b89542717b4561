//! File descriptors: raises the soft limit to the hard one at start, and says how many connections fit.
//!
//! A connection needs one descriptor; the engine and the log need a few hundred. The default soft limit of 1,024 would
//! refuse connections long before `sql.connections_max`.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors that are kept for files, listeners and peers.
pub const RESERVED: u64 = 512;

/// Raises the soft limit to the hard limit; answers the limit that holds now (none for no limit).
pub fn raise() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            tracing::warn!(%error, "file descriptor limit cannot be raised");
        }
    }
    getrlimit(Resource::Nofile).current
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_becomes_the_hard_limit() {
        raise();
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
    }
}
