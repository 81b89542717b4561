//! The shape of plans: `plans.txt` has statements and what the rules make of them. With `KEYSTEAD_WRITE_PLANS` set the test
//! writes the file anew, to be read before it is kept.

use std::path::Path;

use super::{company, optimized, print::print, sizes};
use crate::execute::fixture::Memory;

/// Between a statement and its plan.
const ARROW: &str = "=>";

#[test]
fn statements_get_the_plans_that_are_written_down() {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo says where the crate is");
    let path = Path::new(&here).join("src/optimize/tests/plans.txt");
    let written = std::fs::read_to_string(&path).expect("the plans");
    let memory = Memory::new(company());
    let statistics = sizes(&company());
    let mut made = String::new();
    for case in written.split("\n\n").map(str::trim).filter(|case| !case.is_empty()) {
        let (head, _) = case.split_once(ARROW).unwrap_or((case, ""));
        let head = head.trim_end();
        let statement: String =
            head.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join(" ");
        if statement.is_empty() {
            made.push_str(&format!("{head}\n\n"));
            continue;
        }
        let bound = optimized(&memory, &statistics, &statement);
        made.push_str(&format!("{head}\n{ARROW}\n{}\n", print(&bound.plan, &bound.columns)));
    }
    let made = format!("{}\n", made.trim_end());
    if std::env::var_os("KEYSTEAD_WRITE_PLANS").is_some() {
        std::fs::write(&path, made).expect("the plans");
        return;
    }
    for (now, before) in made.split("\n\n").zip(written.trim_end().split("\n\n")) {
        assert_eq!(now.trim_end(), before.trim_end());
    }
    assert_eq!(made, written);
}
