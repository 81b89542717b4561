//! Numbers of sequences that a session has reserved.
//!
//! Invariants:
//! - A number is given out once. Numbers that were reserved and not used are lost with the session: gaps are allowed.
//! - Reserving is a command of its own, outside any transaction.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use model::{
    Code, Error, Result,
    catalog::Catalog,
    command::{Command, Effect, Identity, Outcome, Write},
    id::{PartitionId, RoleId, SequenceId},
    port::{BoxFuture, Dispatch},
};
use parking_lot::Mutex;

use crate::{
    context::{self, NextValue},
    execute::Reserve,
};

/// What a session holds of sequences. Clones share it.
#[derive(Clone)]
pub(crate) struct Numbers(Arc<Shared>);

struct Shared {
    dispatch: Arc<dyn Dispatch>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    held: BTreeMap<SequenceId, Block>,
    current: BTreeMap<SequenceId, i64>,
    last: Option<SequenceId>,
    wanted: Option<Wanted>,
    /// The answer of a setval that was served and not yet taken.
    set: Option<(SequenceId, i64)>,
}

#[derive(Clone, Copy)]
struct Block {
    next: i64,
    left: u32,
    increment: i64,
}

#[derive(Clone, Copy)]
enum Wanted {
    More(SequenceId),
    Set(SequenceId, i64, bool),
}

impl Numbers {
    pub(crate) fn new(dispatch: Arc<dyn Dispatch>) -> Self {
        Self(Arc::new(Shared { dispatch, state: Mutex::default() }))
    }

    /// `DISCARD SEQUENCES`.
    pub(crate) fn discard(&self) {
        *self.0.state.lock() = State::default();
    }
}

impl context::Sequences for Numbers {
    fn next(&self, sequence: SequenceId) -> Result<NextValue> {
        let mut state = self.0.state.lock();
        let Some(block) = state.held.get_mut(&sequence).filter(|block| block.left > 0) else {
            state.wanted = Some(Wanted::More(sequence));
            return Ok(NextValue::Reserve);
        };
        let number = block.next;
        block.left -= 1;
        block.next = block.next.wrapping_add(block.increment);
        state.current.insert(sequence, number);
        state.last = Some(sequence);
        Ok(NextValue::Number(number))
    }

    fn current(&self, sequence: SequenceId) -> Result<i64> {
        let state = self.0.state.lock();
        state.current.get(&sequence).copied().ok_or_else(|| {
            let name = self
                .0
                .dispatch
                .catalog()
                .sequence(sequence)
                .map_or_else(String::new, |sequence| sequence.name.clone());
            let message = format!("currval of sequence \"{name}\" is not yet defined in this session");
            Error::new(Code::ObjectNotInPrerequisiteState, message)
        })
    }

    fn last(&self) -> Result<(SequenceId, i64)> {
        let state = self.0.state.lock();
        let number = state.last.and_then(|sequence| Some((sequence, *state.current.get(&sequence)?)));
        number.ok_or_else(|| {
            Error::new(Code::ObjectNotInPrerequisiteState, "lastval is not yet defined in this session")
        })
    }

    fn set(&self, sequence: SequenceId, value: i64, called: bool) -> Result<NextValue> {
        let mut state = self.0.state.lock();
        if state.set == Some((sequence, value)) {
            state.set = None;
            return Ok(NextValue::Number(value));
        }
        state.wanted = Some(Wanted::Set(sequence, value, called));
        Ok(NextValue::Reserve)
    }
}

impl Reserve for Numbers {
    fn reserve(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let wanted = self.0.state.lock().wanted.take();
            match wanted {
                None => Ok(()),
                Some(Wanted::More(sequence)) => self.more(sequence).await,
                Some(Wanted::Set(sequence, value, called)) => self.set_value(sequence, value, called).await,
            }
        })
    }
}

/// `22003`-like: the sequence is at its end.
fn exhausted(sequence: &model::schema::Sequence) -> Error {
    let (end, bound) =
        if sequence.increment > 0 { ("maximum", sequence.max) } else { ("minimum", sequence.min) };
    Error::new(
        Code::SequenceGeneratorLimitExceeded,
        format!("nextval: reached {end} value of sequence \"{}\" ({bound})", sequence.name),
    )
}

impl Numbers {
    async fn more(&self, id: SequenceId) -> Result<()> {
        let catalog = self.0.dispatch.catalog();
        let sequence = find(&catalog, id)?;
        let write = Write::Reserve { sequence: id, count: sequence.cache.max(1) };
        let outcome = self.execute(&catalog, sequence, write).await?;
        match outcome {
            Outcome::Applied(receipt) => match receipt.effects.first() {
                Some(Effect::Reserved { first, count }) => {
                    let block = Block { next: *first, left: *count, increment: sequence.increment };
                    self.0.state.lock().held.insert(id, block);
                    Ok(())
                }
                _ => Err(Error::internal("a reservation without numbers")),
            },
            Outcome::Rejected(model::command::Rejection::SequenceExhausted { .. }) => {
                Err(exhausted(sequence))
            }
            Outcome::Rejected(rejection) => Err(rejection.to_error()),
        }
    }

    pub(super) async fn set_value(&self, id: SequenceId, value: i64, called: bool) -> Result<()> {
        let catalog = self.0.dispatch.catalog();
        let sequence = find(&catalog, id)?;
        if value < sequence.min || value > sequence.max {
            let message = format!(
                "setval: value {value} is out of bounds for sequence \"{}\" ({}..{})",
                sequence.name, sequence.min, sequence.max
            );
            return Err(Error::new(Code::NumericValueOutOfRange, message));
        }
        let outcome =
            self.execute(&catalog, sequence, Write::SetSequence { sequence: id, value, called }).await?;
        match outcome {
            Outcome::Applied(_) => {
                let mut state = self.0.state.lock();
                state.held.remove(&id);
                if called {
                    state.current.insert(id, value);
                }
                state.set = Some((id, value));
                Ok(())
            }
            Outcome::Rejected(rejection) => Err(rejection.to_error()),
        }
    }

    async fn execute(
        &self,
        catalog: &Catalog,
        sequence: &model::schema::Sequence,
        write: Write,
    ) -> Result<Outcome> {
        let (node, boot) = self.0.dispatch.gateway();
        let command = Command {
            identity: Identity::unassigned(node, boot),
            time_left: None,
            partition: PartitionId::default_of(sequence.database, sequence.schema),
            principal: RoleId(0),
            catalog: catalog.version(),
            locks: None,
            conditions: Vec::new(),
            writes: vec![write],
        };
        self.0.dispatch.execute(command, Duration::from_secs(60)).await
    }
}

fn find(catalog: &Catalog, id: SequenceId) -> Result<&Arc<model::schema::Sequence>> {
    catalog
        .sequence(id)
        .ok_or_else(|| Error::new(Code::UndefinedTable, format!("could not open relation with OID {}", id.0)))
}
