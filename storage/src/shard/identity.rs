//! At most once: named commands and their receipts, gateways' slots and boots.

use std::sync::Arc;

use bytes::Bytes;
use model::{
    command::{Command, Identity, Outcome, Rejection},
    id::Revision,
};

use super::apply::Group;
use crate::{
    codec::state::{self, Named, Slot},
    error::{Error, Result},
    keyspace::{self, due, meta},
};

/// What a command's identity says.
pub(super) enum Judged {
    /// It was here before, or must not be executed.
    Answer(Outcome),
    /// It is new.
    Execute(Ticket),
}

/// What must be replaced when the outcome of a command is remembered.
pub(super) enum Ticket {
    /// Nothing is remembered.
    None,
    /// The slot.
    Slot,
    /// What was remembered of an earlier attempt: until when.
    Named {
        /// Until when, by `elapsed`.
        until: Option<u64>,
    },
}

fn reject(rejection: Rejection) -> Result<Judged> {
    Ok(Judged::Answer(Outcome::Rejected(rejection)))
}

impl Group<'_> {
    /// Decides whether a command is executed.
    pub(super) fn judge_identity(&mut self, command: &Command) -> Result<Judged> {
        match command.identity {
            Identity::Sweep => Ok(Judged::Execute(Ticket::None)),
            Identity::Slot { node, boot, slot, number } => {
                let known = self.live.boots.get(&node).copied();
                if known.is_some_and(|known| boot < known) {
                    return reject(Rejection::BootSuperseded);
                }
                if known != Some(boot) {
                    Arc::make_mut(&mut self.live.boots).insert(node, boot);
                    let key = keyspace::meta_number_key(meta::BOOT, node.0);
                    let value = state::revision_to_bytes(Revision(boot.0));
                    self.overlay.put(Bytes::copy_from_slice(&key), value);
                }
                let key = keyspace::slot_key(node, slot);
                let last = match self.remembered.slots.get(&(node, slot)) {
                    Some(last) => Some(*last),
                    None => self.overlay.get(&key)?.map(|bytes| Slot::decode_head(&bytes)).transpose()?,
                };
                match last {
                    Some((last_boot, last_number)) if last_boot == boot && last_number > number => {
                        reject(Rejection::OutcomeUnknown)
                    }
                    Some(last) if last == (boot, number) => {
                        let bytes =
                            self.overlay.get(&key)?.ok_or_else(|| Error::damaged("a slot is gone"))?;
                        Ok(Judged::Answer(Slot::decode(&bytes)?.outcome))
                    }
                    Some(_) | None => Ok(Judged::Execute(Ticket::Slot)),
                }
            }
            Identity::Named { id, attempt, fingerprint, remember_secs } => {
                let now = self.live.head.time;
                let key = keyspace::receipt_key(&command.partition, command.principal, id);
                let known = self.overlay.get(&key)?.map(|bytes| Named::decode(&bytes)).transpose()?;
                let until = known.as_ref().map(|known| known.until);
                if let Some(known) = known
                    && known.until >= now.elapsed
                {
                    match known.outcome {
                        Outcome::Applied(_) if known.fingerprint != fingerprint => {
                            return reject(Rejection::IdentityConflict);
                        }
                        Outcome::Applied(_) => return Ok(Judged::Answer(known.outcome)),
                        Outcome::Rejected(_) if attempt < known.attempt => {
                            return reject(Rejection::Superseded);
                        }
                        Outcome::Rejected(_) if attempt == known.attempt => {
                            if known.fingerprint != fingerprint {
                                return reject(Rejection::IdentityConflict);
                            }
                            return Ok(Judged::Answer(known.outcome));
                        }
                        Outcome::Rejected(_) => {}
                    }
                }
                let made_micros =
                    id.unix_millis().and_then(|millis| i64::try_from(millis).ok()?.checked_mul(1_000));
                let window_micros = i64::from(remember_secs) * 1_000_000;
                if made_micros.is_some_and(|made| made.saturating_add(window_micros) < now.wall.unix_micros())
                {
                    return reject(Rejection::IdentityExpired);
                }
                Ok(Judged::Execute(Ticket::Named { until }))
            }
        }
    }

    /// Remembers what came of a command, so that the same one gets the same answer.
    pub(super) fn remember(
        &mut self,
        command: &Command,
        ticket: Ticket,
        deadline: Option<u64>,
        outcome: &Outcome,
    ) -> Result<()> {
        match (command.identity, ticket) {
            (Identity::Slot { node, boot, slot, number }, Ticket::Slot) => {
                let record = Slot { boot, number, outcome: outcome.clone() };
                let key = keyspace::slot_key(node, slot);
                self.overlay.put(Bytes::copy_from_slice(&key), record.to_bytes());
                self.remembered.slots.insert((node, slot), (boot, number));
            }
            (
                Identity::Named { id, attempt, fingerprint, remember_secs },
                Ticket::Named { until: before },
            ) => {
                let now = self.live.head.time.elapsed;
                let window = now.saturating_add(u64::from(remember_secs) * 1_000_000);
                let until = match outcome {
                    Outcome::Applied(_) => window,
                    // Its duplicates may be on their way until the latest deadline of them all.
                    Outcome::Rejected(_) => deadline.unwrap_or(window).max(before.unwrap_or(0)),
                };
                let suffix = keyspace::receipt_suffix(command.principal, id);
                if let Some(before) = before {
                    let key = keyspace::due_key(due::RECEIPT, before, &command.partition, &suffix);
                    self.overlay.delete(key);
                }
                let record = Named { attempt, fingerprint, until, outcome: outcome.clone() };
                let key = keyspace::receipt_key(&command.partition, command.principal, id);
                self.overlay.put(key, record.to_bytes());
                let key = keyspace::due_key(due::RECEIPT, until, &command.partition, &suffix);
                self.overlay.put(key, Bytes::new());
            }
            (Identity::Sweep | Identity::Slot { .. } | Identity::Named { .. }, _) => {}
        }
        Ok(())
    }
}
