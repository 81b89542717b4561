//! The shape of plans.

use super::{company, optimized, print::print, sizes};
use crate::execute::fixture::Memory;

fn shape(text: &str) -> String {
    let memory = Memory::new(company());
    let statistics = sizes(&company());
    let bound = optimized(&memory, &statistics, text);
    print(&bound.plan, &bound.columns)
}

#[test]
fn dump() {
    let path = std::env::var("OPT_QUERIES").unwrap();
    for text in std::fs::read_to_string(path).unwrap().split(';').map(str::trim).filter(|text| !text.is_empty()) {
        println!("==== {text}{}", shape(text));
    }
}
