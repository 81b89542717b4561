//! Cut points: named places at which a crash test may end the process, as a kill at just that moment would.
//!
//! They are compiled in, so that the binary that is tested is the one that is shipped. Until one is armed, which a process
//! does at most once and at its start, a point costs one load and one branch that is never taken.
//!
//! Not here: who arms them (the server, from `KEYSTEAD_CUT`), and what is checked afterwards (`keystead torture`).

use std::{
    fmt,
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// Every point there is, in the order in which a command meets them; those of a first start at the end.
pub const POINTS: &[&str] = &[
    "log.before-write",
    "log.before-sync",
    "log.synced",
    "segment.filled",
    "segment.renamed",
    "segment.taken",
    "segment.freed",
    "apply.before",
    "apply.committed",
    "large.staged",
    "catalog.before",
    "catalog.committed",
    "checkpoint.before",
    "checkpoint.flushed",
    "checkpoint.synced",
    "checkpoint.noted",
    "purge.asked",
    "identity.written",
    "identity.renamed",
    "start.log",
    "start.engine",
    "start.control",
    "start.owned",
    "stop.drained",
    "stop.checkpointed",
    "first.admin",
    "first.secrets",
    "first.catalog",
];

static ARMED: AtomicBool = AtomicBool::new(false);
static CUT: OnceLock<Cut> = OnceLock::new();

struct Cut {
    name: &'static str,
    left: AtomicU64,
}

/// A point nobody has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unknown(String);

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\" is no cut point; there are: {}", self.0, POINTS.join(", "))
    }
}

impl std::error::Error for Unknown {}

/// Arms the point that `text` names: `NAME` for its first time, `NAME:3` for its third. A second call changes nothing.
pub fn arm(text: &str) -> Result<(), Unknown> {
    let unknown = || Unknown(text.to_owned());
    let (name, count) = text.split_once(':').unwrap_or((text, "1"));
    let name = POINTS.iter().find(|point| **point == name).ok_or_else(unknown)?;
    let left: u64 = count.parse().ok().filter(|count| *count > 0).ok_or_else(unknown)?;
    CUT.get_or_init(|| Cut { name, left: AtomicU64::new(left) });
    ARMED.store(true, Ordering::Release);
    Ok(())
}

/// Ends the process if this point is armed and its time has come.
#[inline]
pub fn point(name: &'static str) {
    if ARMED.load(Ordering::Relaxed) {
        reach(name);
    }
}

#[cold]
fn reach(name: &'static str) {
    debug_assert!(POINTS.contains(&name), "{name} is not in the list");
    let Some(cut) = CUT.get().filter(|cut| cut.name == name) else { return };
    if cut.left.fetch_sub(1, Ordering::AcqRel) == 1 {
        // No destructor and no buffer has a part in it.
        std::process::abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_point_of_the_list_can_be_armed() {
        for text in ["", "nosuch", "log.synced:0", "log.synced:x", "log.synced:"] {
            assert!(arm(text).is_err(), "{text}");
        }
        let words = arm("nosuch").expect_err("it is no point").to_string();
        assert!(words.contains("checkpoint.noted"), "{words}");
        point("log.synced");
    }
}
