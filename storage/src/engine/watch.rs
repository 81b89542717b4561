//! Whether a commit stands still.
//!
//! fjall 3.1.13 makes a writer sleep until memtables are flushed. If the thread that was to flush them is gone, or was never
//! asked, the writer sleeps for ever (its #257), and with it all that is applied. Started again, the process is well.
//!
//! Not here: what is done about it (the node ends).

use std::time::Duration;

use super::Engine;
use crate::error::{Error, Result};

/// For how long one commit may be at work. Flushes and compactions of a slow disk hold it up for seconds.
pub const COMMIT_MAX: Duration = Duration::from_secs(300);

/// The commit that was at work when it was last looked at.
#[derive(Debug, Default)]
pub struct Watch {
    /// Its number, and for how long it has been.
    seen: Option<(u64, Duration)>,
}

impl Watch {
    /// Looks again, as it does once in `every`; an error if one commit was at work for all of [`COMMIT_MAX`]. Waiting for
    /// room on the disk is no work. It is looks that count and not a clock: a process that was stopped has not worked.
    pub fn look(&mut self, engine: &Engine, every: Duration) -> Result<()> {
        self.seen = engine.commit_at_work().map(|number| match self.seen {
            Some((seen, time)) if seen == number => (number, time + every),
            Some(_) | None => (number, Duration::ZERO),
        });
        match self.seen {
            Some((_, time)) if time >= COMMIT_MAX => Err(Error::EngineStuck { secs: COMMIT_MAX.as_secs() }),
            Some(_) | None => Ok(()),
        }
    }
}
