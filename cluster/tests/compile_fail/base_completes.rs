//! What maps hold of a gate cannot end it.

fn main() {
    let complete = |gate: &cluster::gate::Gate| gate.complete();
    let fail = |gate: &cluster::gate::Gate| gate.fail(std::sync::Arc::new(std::fmt::Error));
    let abort = |gate: &cluster::gate::Gate| gate.abort();
    let _ = (complete, fail, abort);
}
