//! The release driver: what a node does with points that are no longer its own.
//!
//! Invariants:
//! - It waits at the view before: for an unfinished acquisition of the same points, never for itself.
//! - A newer view does not end it: its partners rely on what it keeps.
//! - One function owns the gate from here to its end; an error fails it, the end of the runtime aborts it.
//!
//! Not here: who comes for the state (`retained`).

use std::sync::Arc;

use model::id::ViewId;

use crate::gate::{self, Failure};

use super::{Service, Transport, coordinator::Shared, plan};

/// A release of points of the ring; only this driver has it.
pub(super) struct RangeRelease(pub(super) gate::Release);

pub(super) async fn drive<S: Service, T: Transport<S::State>>(
    shared: Arc<Shared<S, T>>,
    gate: RangeRelease,
    plan: plan::Release,
    before: ViewId,
) {
    let RangeRelease(gate) = gate;
    let work = release(&shared, &gate, &plan, before);
    shared.finish(&gate, work).await;
}

async fn release<S: Service, T: Transport<S::State>>(
    shared: &Arc<Shared<S, T>>,
    gate: &gate::Release,
    plan: &plan::Release,
    before: ViewId,
) -> Result<(), Failure> {
    for piece in &plan.pieces {
        shared.passed(*piece, before).await?;
    }
    for piece in &plan.pieces {
        shared.service.drain(*piece).await;
    }
    // What was never here is nothing to hand over: who comes for it must recover.
    let had: Vec<_> = plan.pieces.iter().flat_map(|piece| shared.had(*piece)).collect();
    if had.is_empty() {
        gate.keep_nothing().map_err(failure)?;
    }
    gate.drained().map_err(failure)?;
    if gate.keeps_state() {
        let mut parts = Vec::new();
        for piece in had {
            parts.push((piece, shared.service.take(piece)?));
        }
        shared.retained.keep(before, parts, plan.partners.clone());
        // After it is kept: one that went before that is found gone at once.
        for partner in &plan.partners {
            shared.forget_when_gone(partner.member);
        }
        gate.state_retained().map_err(failure)
    } else {
        plan.pieces.iter().try_for_each(|piece| shared.service.discard(*piece))
    }
}

pub(super) fn failure(misstep: gate::Misstep) -> Failure {
    Arc::new(misstep)
}
