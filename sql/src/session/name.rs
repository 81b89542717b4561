//! The name of the next command, as `keystead.command_id` gives it, and what the client asked for under it.
//!
//! Invariants:
//! - What binds a name to its body is what the client said: texts, parameters and copied data. What the session made of it
//!   (hidden row ids, sequences, `now()`, values read and written again) may differ when it is said again.
//! - A name is used up by what is done under it, even if that changes nothing; until then each try is a higher attempt.

use model::{Result, Value, command::Identity, id::CommandId};
use xxhash_rust::xxh3::Xxh3;

use super::{Session, core::now};

/// The setting that names the next command.
const SETTING: &str = "keystead.command_id";
/// How long outcomes under a name are remembered, in seconds: 7 days.
const REMEMBER_SECS: u32 = 7 * 86_400;

/// A name and what was said under it so far.
pub(super) struct Named {
    id: CommandId,
    attempt: u32,
    /// None between transactions.
    said: Option<Box<Xxh3>>,
}

impl Session {
    /// Notes a statement that writes, if the command it becomes part of has a name.
    pub(super) fn note_said(&mut self, text: &str, parameters: &[Value]) -> Result<()> {
        if !self.settings.limits().is_named {
            self.named = None;
            return Ok(());
        }
        let name = self.settings.get(SETTING);
        let id: CommandId = name.parse()?;
        let earlier = self.named.take().filter(|named| named.id == id);
        let goes_on = self.transaction.is_some() || self.more_follows;
        // A session knows of its own tries only; another's are lower if they began in an earlier second.
        let clock = u32::try_from(now(&self.engine).unix_micros() / 1_000_000).unwrap_or(u32::MAX);
        let (attempt, said) = earlier.map_or((0, None), |named| (named.attempt, named.said));
        let mut said = said.filter(|_| goes_on).unwrap_or_default();
        for part in [text, &format!("{parameters:?}")] {
            said.update(&(part.len() as u64).to_le_bytes());
            said.update(part.as_bytes());
        }
        self.named = Some(Named { id, attempt: attempt.max(clock), said: Some(said) });
        Ok(())
    }

    /// Notes what is said besides: data of a COPY, a ROLLBACK TO.
    pub(super) fn note_more(&mut self, data: &[u8]) {
        if let Some(Named { said: Some(said), .. }) = &mut self.named {
            said.update(data);
        }
    }

    /// Whether the next command has a name.
    pub(super) fn has_name(&self) -> bool {
        self.named.as_ref().is_some_and(|named| named.said.is_some())
    }

    /// The identity of a command that is sent now.
    pub(super) fn identity(&mut self) -> Identity {
        match &mut self.named {
            Some(Named { id, attempt: next, said: Some(said) }) => {
                let attempt = *next;
                *next = attempt.saturating_add(1);
                let fingerprint = said.digest128();
                Identity::Named { id: *id, attempt, fingerprint, remember_secs: REMEMBER_SECS }
            }
            _ => {
                let (node, boot) = self.engine.dispatch.gateway();
                Identity::unassigned(node, boot)
            }
        }
    }

    /// The transaction is over: what is said from now on is another body.
    pub(super) fn end_said(&mut self) {
        if let Some(named) = &mut self.named {
            named.said = None;
        }
    }

    /// The command was applied, or what was said changed nothing: the name is used up.
    pub(crate) fn use_name(&mut self) {
        if self.has_name() {
            self.named = None;
            self.settings.force(SETTING, "");
        }
    }
}
