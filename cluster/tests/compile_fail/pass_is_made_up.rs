//! Only admission gives a pass.

fn main() {
    let pass: cluster::admission::Pass = cluster::admission::Pass {};
    let _ = pass;
}
