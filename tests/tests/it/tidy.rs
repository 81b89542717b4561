//! Checks of the code itself: who imports whom, who names which library, what a file begins with, what was left
//! behind. Each checker is shown a planted violation first.

use std::fs;

use tests::source::{self, File};

fn file(path: &str, text: &str) -> File {
    File { path: path.to_owned(), text: text.to_owned() }
}

fn no_complaints(complaints: &[String]) {
    assert!(complaints.is_empty(), "{} complaints:\n{}", complaints.len(), complaints.join("\n"));
}

#[test]
fn crates_depend_one_way() {
    let planted = "[package]\nname = \"keystead-sql\"\n[dependencies]\nmodel.workspace = true\ncluster.workspace = true\n";
    assert_eq!(source::edge_complaints("sql", planted), ["sql must not import cluster"]);
    let in_tests = "[dependencies]\nmodel.workspace = true\n[dev-dependencies]\nstorage.workspace = true\n";
    assert!(source::edge_complaints("sql", in_tests).is_empty());
    assert_eq!(source::edge_complaints("mcp", in_tests).len(), 1);

    let root = source::root();
    let mut complaints = Vec::new();
    for (folder, _) in source::EDGES {
        let manifest = fs::read_to_string(root.join(folder).join("Cargo.toml")).unwrap();
        complaints.extend(source::edge_complaints(folder, &manifest));
    }
    no_complaints(&complaints);
}

#[test]
fn every_library_has_one_home() {
    let planted = file("server/src/session/mod.rs", "use fjall::Database;\n// sqlparser::ast is fine here\n");
    assert_eq!(source::home_complaints(&planted).len(), 1);
    assert_eq!(source::home_complaints(&file("sql/src/x.rs", "let a = pgwire::Type::INT8;")).len(), 1);
    assert!(source::home_complaints(&file("storage/src/engine/mod.rs", "use fjall::Database;")).is_empty());
    assert!(source::home_complaints(&file("storage/src/engine.rs", "use fjall::Database;")).is_empty());
    assert_eq!(source::home_complaints(&file("storage/src/engines.rs", "use fjall::Database;")).len(), 1);

    let files = source::files(&source::root(), ".rs");
    no_complaints(&files.iter().flat_map(source::home_complaints).collect::<Vec<_>>());
}

#[test]
fn every_source_file_says_what_it_is() {
    assert!(source::docs_complaint(&file("model/src/id.rs", "use std::fmt;\n")).is_some());
    assert!(source::docs_complaint(&file("model/src/id.rs", "\n//! Ids.\n")).is_none());

    let files = source::files(&source::root(), ".rs");
    assert!(files.len() > 8, "the scan found only {} files", files.len());
    no_complaints(&files.iter().filter_map(source::docs_complaint).collect::<Vec<_>>());
}

#[test]
fn nothing_was_left_behind() {
    let marker = concat!("fn f() { todo", "!() }\n");
    assert_eq!(source::leftover_complaints(&file("a/src/b.rs", marker)).len(), 1);
    let skipped = concat!("#[", "ignore]\n#[test]\nfn f() {}\n");
    assert_eq!(source::leftover_complaints(&file("a/src/b.rs", skipped)).len(), 1);
    assert_eq!(source::leftover_complaints(&file("a/src/b.rs", "let a = 1; \n")).len(), 1);

    let files = source::files(&source::root(), ".rs");
    no_complaints(&files.iter().flat_map(source::leftover_complaints).collect::<Vec<_>>());
}

#[test]
fn links_in_the_docs_lead_somewhere() {
    let page =
        file("docs/a.md", "See [b](b.md), [top](../README.md#x) and [the web](https://example.org).\n");
    let complaints = source::link_complaints(&page, |path| path == "README.md");
    assert_eq!(complaints, ["docs/a.md:1: b.md leads nowhere"]);

    let root = source::root();
    let pages = source::files(&root, ".md");
    assert!(!pages.is_empty());
    let exists = |path: &str| root.join(path).exists();
    no_complaints(&pages.iter().flat_map(|page| source::link_complaints(page, exists)).collect::<Vec<_>>());
}

#[test]
fn long_files_are_listed() {
    let sample = [file("a.rs", "x\n\n\n"), file("b.rs", "x\n")];
    assert_eq!(source::long_files(&sample, 2), [(3, "a.rs".to_owned())]);

    let files = source::files(&source::root(), ".rs");
    for (lines, path) in source::long_files(&files, 700) {
        println!("{lines:>6} {path}");
    }
}
