//! A release fences nobody.

fn main() {
    let fenced = |gate: &cluster::gate::Release| gate.fenced();
    let _ = fenced;
}
