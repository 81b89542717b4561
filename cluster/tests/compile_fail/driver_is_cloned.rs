//! A gate has one driver.

fn main() {
    let twice = |gate: cluster::gate::Release| (gate.clone(), gate);
    let _ = twice;
}
