//! docs/invariants.md: each invariant names tests that exist.

use std::collections::HashSet;
use std::path::Path;

fn functions(dir: &Path, into: &mut HashSet<String>) {
    for entry in std::fs::read_dir(dir).expect("a directory of sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            functions(&path, into);
        } else if path.extension().is_some_and(|e| e == "rs") {
            into.insert(path.file_stem().expect("a name").to_string_lossy().into_owned());
            let text = std::fs::read_to_string(&path).expect("a source");
            let names = text.match_indices("fn ").map(|(at, f)| &text[at + f.len()..]);
            let end = |rest: &str| rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            into.extend(names.map(|rest| rest[..end(rest)].to_owned()));
        }
    }
}

#[test]
fn each_names_a_test_that_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = std::fs::read_to_string(root.join("docs/invariants.md")).expect("the page");
    let mutants = std::fs::read_to_string(root.join("crates/device/src/mutant.rs")).expect("a source");
    let mut known = HashSet::new();
    functions(&root.join("crates"), &mut known);
    known.extend(["fs", "layout", "cache", "journal", "device", "sim", "cli", "durability"].map(str::to_owned));
    let mut rows = 0;
    for line in text.lines().filter(|l| l.starts_with("| ") && !l.starts_with("| |")) {
        let Some(last) = line.trim_end_matches('|').rsplit(" | ").next() else { continue };
        let names: Vec<&str> = last.split('`').skip(1).step_by(2).collect();
        rows += 1;
        assert!(!names.is_empty(), "no test: {line}");
        for name in names {
            let (first, second) = name.split_once("::").unwrap_or((name, name));
            let stem = second.trim_end_matches('*');
            let found = known.contains(second)
                || second == "*" && known.contains(first)
                || second.ends_with('*') && known.iter().any(|k| k.starts_with(stem))
                || mutants.contains(&format!("Mutant::{second}"));
            assert!(found, "{name} does not exist: {line}");
        }
    }
    assert!(rows > 70, "{rows}");
}
