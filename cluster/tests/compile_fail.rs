//! Case 5 and its kin: what the types of gates and views forbid does not compile.
//!
//! Each file under `compile_fail` is one misuse, beside it what the compiler says. The right use of every role is here, so
//! that none of them fails for another reason than its own.

use cluster::gate::{Acquisition, Barrier, Gate, Misstep, Release};
use model::id::ViewId;

#[test]
fn case_5_progress_of_another_role_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/compile_fail/*.rs");
}

fn acquire(gate: &Acquisition) -> Result<(), Misstep> {
    gate.state_installed()?;
    gate.fenced()?;
    gate.complete()
}

fn release(gate: &Release) -> Result<(), Misstep> {
    gate.drained()?;
    gate.state_retained()?;
    gate.complete()
}

fn blocks(gate: &Gate, target: ViewId) -> bool {
    gate.target() == target && gate.completion().now().is_none() && gate.is_blocking()
}

#[test]
fn progress_of_its_own_role_compiles() {
    let target = ViewId(2);
    let acquisition = Acquisition::new(target, Some(ViewId(1)));
    let superseded = Acquisition::new(target, None);
    let released = Release::of_state(target, ViewId(1));
    let barrier = Barrier::new(target);
    let gates = [acquisition.gate(), superseded.gate(), released.gate(), barrier.gate()];
    assert!(gates.iter().all(|gate| blocks(gate, target)));
    assert_eq!((acquire(&acquisition), release(&released), barrier.complete()), (Ok(()), Ok(()), Ok(())));
    assert_eq!(superseded.supersede(ViewId(3)), Ok(()));
    assert!(!gates.iter().any(|gate| blocks(gate, target)));
}
