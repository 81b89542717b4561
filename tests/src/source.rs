//! What the checks of the code read: files of the repository, as text.
//!
//! Invariants: a checker is a function from text to complaints, so that each can be shown a planted violation.
//!
//! Not here: which complaints fail a build (`tests/it/tidy.rs`).

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The crates of the workspace, by folder, and what each may import.
pub const EDGES: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("storage", &["model"]),
    ("sql", &["model"]),
    ("mcp", &["model"]),
    ("sdk", &["model"]),
    ("cluster", &["model", "storage"]),
    ("server", &["model", "storage", "sql", "cluster", "mcp", "sdk"]),
    ("tests", &["model", "sdk", "server"]),
];

/// Edges that only tests of a crate may have.
pub const EDGES_FOR_TESTS: &[(&str, &[&str])] = &[("sql", &["storage"])];

/// A large library and the places that may name it: a folder (`storage/src/engine/`) or a file without ending.
pub const HOMES: &[(&str, &[&str])] = &[
    ("fjall", &["storage/src/engine"]),
    ("lsm_tree", &["storage/src/engine"]),
    ("openraft", &["cluster/src/raft"]),
    ("pgwire", &["server/src/pg"]),
    ("sqlparser", &["sql/src"]),
    ("rmcp", &["mcp/src"]),
    ("tonic", &["sdk", "server/src/grpc", "cluster/src/peer"]),
    ("prost", &["sdk", "server/src/grpc", "cluster/src/peer"]),
    ("axum", &["server/src/http", "server/src/mcp", "server/src/console"]),
    ("tracing_subscriber", &["server/src/telemetry"]),
    ("rustyline", &["server/src/cli"]),
    ("indicatif", &["server/src/cli"]),
];

/// A file of the repository.
pub struct File {
    /// Path from the root, with `/`.
    pub path: String,
    /// Its text.
    pub text: String,
}

/// The root of the repository that is tested. Asked at run time: clones that share a target directory share this binary, and
/// what it was built with may be another clone's, or none any more.
pub fn root() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&here).parent().expect("the tests lie in the repository").to_path_buf()
}

/// All files with that ending, without build products and the version control folder.
pub fn files(root: &Path, ending: &str) -> Vec<File> {
    let mut found = Vec::new();
    let mut open = vec![root.to_path_buf()];
    while let Some(place) = open.pop() {
        for entry in fs::read_dir(&place).expect("a folder of the repository is readable").flatten() {
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            if path.is_dir() {
                if !["target", ".git", "node_modules", "keystead-data"].contains(&name.as_str()) {
                    open.push(path);
                }
            } else if name.ends_with(ending) {
                let text = fs::read_to_string(&path).expect("a source file is UTF-8");
                let path =
                    path.strip_prefix(root).expect("it lies under the root").to_string_lossy().into_owned();
                found.push(File { path, text });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

/// Which crates of ours a manifest imports, in `[dependencies]` and in `[dev-dependencies]`.
pub fn imports(manifest: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut normal, mut for_tests) = (BTreeSet::new(), BTreeSet::new());
    let mut section = String::new();
    for line in manifest.lines() {
        let line = line.trim();
        if line.starts_with('[') {
            section = line.trim_matches(|c| c == '[' || c == ']').to_owned();
            continue;
        }
        let name: String =
            line.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_' || *c == '-').collect();
        if !EDGES.iter().any(|(ours, _)| *ours == name) {
            continue;
        }
        match section.as_str() {
            "dependencies" | "build-dependencies" => _ = normal.insert(name),
            "dev-dependencies" => _ = for_tests.insert(name),
            _ => {}
        }
    }
    (normal, for_tests)
}

/// Complaints about the edges of one crate's manifest.
pub fn edge_complaints(folder: &str, manifest: &str) -> Vec<String> {
    let find = |table: &[(&str, &[&'static str])]| -> Vec<&'static str> {
        table.iter().find(|(name, _)| *name == folder).map(|(_, to)| to.to_vec()).unwrap_or_default()
    };
    let (allowed, allowed_in_tests) = (find(EDGES), find(EDGES_FOR_TESTS));
    let (normal, for_tests) = imports(manifest);
    let mut complaints = Vec::new();
    for name in normal.iter().filter(|name| !allowed.contains(&name.as_str())) {
        complaints.push(format!("{folder} must not import {name}"));
    }
    for name in
        for_tests.iter().filter(|n| !allowed.contains(&n.as_str()) && !allowed_in_tests.contains(&n.as_str()))
    {
        complaints.push(format!("the tests of {folder} must not import {name}"));
    }
    complaints
}

/// Complaints about libraries named outside their home.
pub fn home_complaints(file: &File) -> Vec<String> {
    let mut complaints = Vec::new();
    if file.path.starts_with("tests/") || !file.path.contains("/src/") {
        return complaints;
    }
    for (library, homes) in HOMES {
        let at_home = homes.iter().any(|home| {
            file.path.strip_prefix(home).is_some_and(|rest| rest.starts_with('/') || rest == ".rs")
        });
        if at_home {
            continue;
        }
        for (number, line) in file.text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            if names(code, library) {
                complaints.push(format!(
                    "{}:{}: {library} is at home in {}",
                    file.path,
                    number + 1,
                    homes.join(", ")
                ));
            }
        }
    }
    complaints
}

/// Whether code names a crate as the head of a path.
fn names(code: &str, library: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    code.match_indices(library).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        let after = &code[at + library.len()..];
        let is_head = !before.is_some_and(|c| is_word(c) || c == ':' || c == '"' || c == '.');
        is_head
            && (after.starts_with("::") || (code.trim_start().starts_with("use ") && after.starts_with(';')))
    })
}

/// Complaints about a file without module docs.
pub fn docs_complaint(file: &File) -> Option<String> {
    let first = file.text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    (!first.starts_with("//!")).then(|| format!("{}: the first line is not a `//!` doc", file.path))
}

/// Complaints about leftovers: markers that mean "not done", and tests that do not run.
pub fn leftover_complaints(file: &File) -> Vec<String> {
    // Written in two parts, so that this file does not complain about itself.
    let markers = [
        concat!("todo", "!("),
        concat!("unimplemented", "!("),
        concat!("dbg", "!("),
        concat!("FIX", "ME"),
        concat!("XX", "X "),
        concat!("TO", "DO:"),
        concat!("TO", "DO "),
        concat!("HA", "CK"),
        concat!("#[", "ignore"),
        concat!("#[should_", "panic]"),
        concat!("<<<<", "<<<"),
    ];
    let mut complaints = Vec::new();
    for (number, line) in file.text.lines().enumerate() {
        for marker in markers.iter().filter(|marker| line.contains(**marker)) {
            complaints.push(format!("{}:{}: leftover {marker:?}", file.path, number + 1));
        }
        if line.ends_with([' ', '\t']) && file.path.ends_with(".rs") {
            complaints.push(format!("{}:{}: blank at the end of the line", file.path, number + 1));
        }
    }
    complaints
}

/// Relative links of a Markdown page, with their line.
pub fn links(page: &File) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut fenced = false;
    for (number, line) in page.text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced {
            continue;
        }
        for (at, _) in line.match_indices("](") {
            let target: String = line[at + 2..].chars().take_while(|c| *c != ')').collect();
            if !target.contains("://") && !target.starts_with('#') && !target.starts_with("mailto:") {
                found.push((number + 1, target));
            }
        }
    }
    found
}

/// Complaints about links that lead nowhere. `exists` is asked with the path from the root.
pub fn link_complaints(page: &File, exists: impl Fn(&str) -> bool) -> Vec<String> {
    let folder = page.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut complaints = Vec::new();
    for (number, link) in links(page) {
        let path = link.split('#').next().unwrap_or_default();
        let mut parts: Vec<&str> = folder.split('/').filter(|p| !p.is_empty()).collect();
        for part in path.split('/') {
            match part {
                "" | "." => {}
                ".." => _ = parts.pop(),
                name => parts.push(name),
            }
        }
        let target = parts.join("/");
        if !exists(&target) {
            complaints.push(format!("{}:{number}: {link} leads nowhere", page.path));
        }
    }
    complaints
}

/// Source files of more lines than that, longest first.
pub fn long_files(files: &[File], lines: usize) -> Vec<(usize, String)> {
    let mut long: Vec<(usize, String)> = files
        .iter()
        .map(|file| (file.text.lines().count(), file.path.clone()))
        .filter(|(count, _)| *count > lines)
        .collect();
    long.sort_by(|a, b| b.cmp(a));
    long
}
