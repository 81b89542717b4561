//! Only an acquisition gives way to a newer view.

fn main() {
    let superseded = |gate: &cluster::gate::Release| gate.supersede(model::id::ViewId(2));
    let _ = superseded;
}
