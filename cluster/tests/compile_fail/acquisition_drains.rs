//! An acquisition has nothing to drain.

fn main() {
    let drained = |gate: &cluster::gate::Acquisition| gate.drained();
    let _ = drained;
}
