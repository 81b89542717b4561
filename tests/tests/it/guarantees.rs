//! The guarantees page names its tests: each must exist, and no promise stands without one.

use std::collections::BTreeSet;
use std::fs;

use tests::source;

/// Names in backticks of the last column, for the rows of the section with that title.
fn named_rows(page: &str, section: &str) -> Vec<(String, Vec<String>)> {
    let body = page.split("\n## ").find(|part| part.starts_with(section)).unwrap_or_default();
    body.lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| #") && !line.starts_with("| fault"))
        .map(|line| {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            let names = cells.last().unwrap_or(&"").split('`').skip(1).step_by(2).map(String::from).collect();
            (cells[0].to_owned(), names)
        })
        .collect()
}

/// The rows that are promises.
fn named_tests(page: &str, section: &str) -> Vec<(String, Vec<String>)> {
    named_rows(page, section).into_iter().filter(|(name, _)| name.starts_with('P')).collect()
}

fn functions(text: &str) -> impl Iterator<Item = String> + '_ {
    text.match_indices("fn ").map(|(at, _)| {
        text[at + 3..].chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect()
    })
}

#[test]
fn every_promise_names_tests_that_exist() {
    let sample = "## What holds\n| P1 | x | `there`, `missing` |\n| P2 | y | none |\n\n## Other\n| P3 | z | `gone` |\n";
    let rows = named_tests(&format!("\n{sample}"), "What holds");
    assert_eq!(rows.len(), 2);
    assert_eq!(rows[0].1, ["there", "missing"]);
    assert!(rows[1].1.is_empty());

    let root = source::root();
    let page = fs::read_to_string(root.join("docs/guarantees.md")).unwrap();
    let sources = source::files(&root, ".rs");
    let known: BTreeSet<String> = sources.iter().flat_map(|file| functions(&file.text)).collect();
    let rows = named_tests(&page, "What holds");
    assert!(!rows.is_empty(), "the page has no promises");
    let mut complaints = Vec::new();
    for (promise, names) in rows {
        if names.is_empty() {
            complaints.push(format!("{promise} names no test"));
        }
        complaints
            .extend(names.iter().filter(|n| !known.contains(*n)).map(|n| format!("{promise}: no test {n}")));
    }
    let faults = named_rows(&page, "Public faults");
    assert!(faults.len() > 20, "the list of public faults is gone");
    for (promise, names) in named_tests(&page, "Not yet claimed").into_iter().chain(faults) {
        complaints
            .extend(names.iter().filter(|n| !known.contains(*n)).map(|n| format!("{promise}: no test {n}")));
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn every_case_of_the_storage_plan_for_one_node_has_a_test_under_its_number() {
    let sources = source::files(&source::root(), ".rs");
    let known: BTreeSet<String> = sources.iter().flat_map(|file| functions(&file.text)).collect();
    let has_test = |number: &u32| known.iter().any(|name| name.starts_with(&format!("case_{number:02}_")));
    let missing: Vec<u32> = (1..=31).filter(|number| !has_test(number)).collect();
    assert!(missing.is_empty(), "no test for {missing:?}");
}
