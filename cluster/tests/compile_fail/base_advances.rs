//! What maps hold of a gate cannot move it.

fn main() {
    let drained = |gate: &cluster::gate::Gate| gate.drained();
    let fenced = |gate: &cluster::gate::Gate| gate.fenced();
    let _ = (drained, fenced);
}
