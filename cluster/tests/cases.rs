//! The table of ownership test cases is what the code has: every case has a line, every name in it is a test, and every test
//! that is named after a case is in its line.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// Lines of the table by case: the names in backticks, and the text.
fn rows(page: &str) -> Vec<(u32, Vec<String>, String)> {
    page.lines()
        .filter_map(|line| {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            let case = cells.first()?.parse().ok()?;
            let tests = (*cells.last()?).to_owned();
            let names = tests.split('`').skip(1).step_by(2).filter(|name| name.contains('_'));
            Some((case, names.map(str::to_owned).collect(), tests.clone()))
        })
        .collect()
}

/// This crate, as cargo says now: clones that share a target directory share this binary.
fn here() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo says where the crate is").into()
}

/// The tests of a source text: functions after `#[test]`, in or outside of macros.
fn tests_in(text: &str, into: &mut BTreeSet<String>) {
    for part in text.split("#[test]").skip(1) {
        // Not the planted ones of this file: they are in the middle of a line.
        let name = part.split("fn ").nth(1).filter(|_| part.starts_with('\n')).unwrap_or_default();
        into.insert(name.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect());
    }
}

/// All tests under a folder, but those planted here.
fn sources(folder: &Path, into: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("a folder of the crate is readable") {
        let path = entry.expect("its entries too").path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            tests_in(&fs::read_to_string(path).expect("a source file is UTF-8"), into);
        }
    }
}

/// The case a test is named after.
fn case_of(test: &str) -> Option<u32> {
    let rest = test.strip_prefix("loom_").unwrap_or(test).strip_prefix("case_")?;
    rest.split('_').next()?.parse().ok()
}

fn complaints(page: &str, tests: &BTreeSet<String>) -> Vec<String> {
    let rows = rows(page);
    let mut complaints = Vec::new();
    let cases: Vec<u32> = rows.iter().map(|(case, ..)| *case).collect();
    if cases != (1..=135).collect::<Vec<_>>() {
        complaints.push("the table does not have the cases 1 to 135, each once".to_owned());
    }
    let mut named: BTreeMap<u32, BTreeSet<&str>> = BTreeMap::new();
    for (case, names, text) in &rows {
        if names.is_empty() && !text.starts_with("not yet") && !text.starts_with("cannot apply") {
            complaints.push(format!("case {case} has neither a test nor a reason"));
        }
        for name in names {
            named.entry(*case).or_default().insert(name);
            if !tests.contains(name) {
                complaints.push(format!("case {case} names {name}, which is no test"));
            }
        }
    }
    for test in tests {
        if let Some(case) = case_of(test)
            && !named.get(&case).is_some_and(|names| names.contains(test.as_str()))
        {
            complaints.push(format!("{test} is not in the line of case {case}"));
        }
    }
    complaints
}

#[test]
fn the_table_of_cases_is_what_the_code_has() {
    let line = |case: u32, text: &str| format!("| {case} | x | {text} |\n");
    let planted: String = (1..=135)
        .map(|case| match case {
            1 => line(1, "`case_1_there`"),
            2 => line(2, "`case_2_missing`"),
            3 => line(3, "later"),
            case => line(case, "not yet"),
        })
        .collect();
    let mut tests = BTreeSet::new();
    tests_in(
        "#[test]\nfn case_1_there() {}\n#[test]\n#[should_panic = ..]\nfn loom_case_4_unlisted() {}",
        &mut tests,
    );
    assert_eq!(complaints(&planted, &tests).len(), 3);

    let root = here();
    let mut tests = BTreeSet::new();
    for folder in ["src", "tests"] {
        sources(&root.join(folder), &mut tests);
    }
    assert!(tests.len() > 100, "the scan found only {} tests", tests.len());
    let page = fs::read_to_string(root.join("../docs/ownership-tests.md")).unwrap();
    let complaints = complaints(&page, &tests);
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

/// What a source text names of other modules of the crate and of libraries, in `use` lines and paths.
fn strangers(text: &str) -> Vec<&str> {
    const STRANGE: &[&str] = &[
        "openraft",
        "tonic::",
        "storage::",
        "tokio::net",
        "tokio::time",
        "tokio::spawn",
        "tokio::runtime",
        "tokio::task",
        "crate::options",
        "crate::node",
        "crate::raft",
        "crate::router",
        "crate::owner",
        "crate::catalog",
    ];
    let code =
        text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
    STRANGE.iter().copied().filter(|strange| code.contains(strange)).collect()
}

#[test]
fn case_124_the_core_knows_no_transport_no_configuration_and_no_runtime() {
    assert_eq!(
        strangers("use tokio::sync::watch;\n// tokio::time\nlet a = tokio::time::sleep(b);"),
        ["tokio::time"]
    );
    let source = here().join("src");
    let mut files = 0;
    for module in ["ring", "view", "gate", "admission", "handoff", "assignment"] {
        for entry in fs::read_dir(source.join(module)).expect("the module is a folder") {
            let path = entry.expect("its entries are readable").path();
            if path.is_file() {
                files += 1;
                let text = fs::read_to_string(&path).expect("a source file is UTF-8");
                assert_eq!(strangers(&text), [""; 0], "{}", path.display());
            }
        }
    }
    assert!(files > 30, "the scan found only {files} files");
}
