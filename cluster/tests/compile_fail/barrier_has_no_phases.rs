//! A barrier has neither drained nor fenced.

fn main() {
    let drained = |gate: &cluster::gate::Barrier| gate.drained();
    let fenced = |gate: &cluster::gate::Barrier| gate.fenced();
    let _ = (drained, fenced);
}
