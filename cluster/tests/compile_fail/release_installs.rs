//! A release gets no state.

fn main() {
    let installed = |gate: &cluster::gate::Release| gate.state_installed();
    let _ = installed;
}
