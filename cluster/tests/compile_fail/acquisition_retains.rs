//! An acquisition keeps nothing for others.

fn main() {
    let retained = |gate: &cluster::gate::Acquisition| gate.state_retained();
    let _ = retained;
}
