//! `quire-tidy [--all | --all-but CRATE... | --arrows CRATE]`: checks the house rules of the workspace, and says what breaks them.
//!
//! It checks the crates that `layers.toml` names; with `--all`, the others, too; with `--all-but`, the others that are
//! not named there.
//!
//! - Layers: no file names something of a file above it (`layers.toml`), and no files need each other in a circle.
//! - Sizes: a file has at most 500 lines, a function 60, a type 40 methods.
//! - Names: what design.md, its chapters, invariants.md and format.md in docs call by a path is defined in the
//!   workspace.
//! - Invariants: each of docs/invariants.md names tests that exist, and mutants that a test goes over.
//! - Prose: comments and documents are at most 120 characters wide.
//!
//! Exits with 1 if a rule is broken. `--arrows CRATE` lists what each file of a crate needs instead.

mod arrows;
mod invariants;
mod layers;
mod model;
mod names;
mod prose;
mod sizes;

use anyhow::{Context, Result};
use layers::Layers;
use model::Crate;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Pages whose names of functions, types and modules must exist, besides the chapters of design.md.
const PAGES: [&str; 3] = ["docs/design.md", "docs/invariants.md", "docs/format.md"];

/// The folder of the chapters of design.md.
const CHAPTERS: &str = "docs/design";

fn main() -> Result<ExitCode> {
    // By cargo at run time: a binary that was copied with its target folder looks at the tree that it is run in.
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let root = Path::new(&manifest).join("../..").canonicalize()?;
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, name] = &args[..]
        && flag == "--arrows"
    {
        list_arrows(&root, name)?;
        return Ok(ExitCode::SUCCESS);
    }
    let except = match &args[..] {
        [] => None,
        [flag] if flag == "--all" => Some(&[][..]),
        [flag, names @ ..] if flag == "--all-but" => Some(names),
        _ => anyhow::bail!("usage: quire-tidy [--all | --all-but CRATE... | --arrows CRATE]"),
    };
    let faults = check(&root, except)?;
    faults.iter().for_each(|f| println!("{f}"));
    println!("tidy: {}", if faults.is_empty() { "clean".to_owned() } else { format!("{} faults", faults.len()) });
    Ok(if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What is wrong. Of the crates that `layers.toml` does not name, those in `except` are left out; all of them if there
/// is no such list.
fn check(root: &Path, except: Option<&[String]>) -> Result<Vec<String>> {
    let layers = Layers::read(&root.join("layers.toml"))?;
    let mut faults = Vec::new();
    let mut names = crates(root)?;
    names.retain(|name| layers.0.contains_key(name) || except.is_some_and(|except| !except.contains(name)));
    for name in &names {
        let krate = load(root, name)?;
        let arrows = arrows::arrows(&krate, &methods_below(root, name)?);
        faults.extend(layers.check(&krate, &arrows));
        for circle in arrows::circles(krate.files.len(), &arrows) {
            faults.push(format!("{name}: files in a circle:"));
            for from in &circle {
                let needs = arrows.get(from).into_iter().flatten().filter(|(to, _)| circle.contains(to));
                let needs: Vec<String> = needs.map(|(to, n)| format!("{} ({n})", krate.short(*to))).collect();
                faults.push(format!("    {} needs {}", krate.short(*from), needs.join(", ")));
            }
        }
        faults.extend(sizes::functions(&krate));
    }
    for path in files(root, &["rs", "md"])? {
        let text = std::fs::read_to_string(&path)?;
        let short = path.strip_prefix(root).unwrap_or(&path);
        let is_checked = names.iter().any(|name| short.starts_with(Path::new("crates").join(name)));
        if is_checked && path.extension().is_some_and(|e| e == "rs") {
            faults.extend(sizes::file(short, &text));
        }
        faults.extend(prose::long_lines(short, &text));
    }
    faults.extend(unknown_names(root)?);
    Ok(faults)
}

/// Names of code in documents that nothing defines, and invariants without a test.
fn unknown_names(root: &Path) -> Result<Vec<String>> {
    let mut defined = names::Defined::default();
    for name in crates(root)? {
        defined.add(&name);
        defined.add(&format!("quire_{name}"));
    }
    for path in files(&root.join("crates"), &["rs"])? {
        // A file is a module, and so is its folder.
        for module in [path.file_stem(), path.parent().and_then(Path::file_name)].into_iter().flatten() {
            defined.add(&module.to_string_lossy());
        }
        defined.add_file(&std::fs::read_to_string(&path)?);
    }
    let mut faults = Vec::new();
    let chapters = files(&root.join(CHAPTERS), &["md"])?;
    for path in PAGES.iter().map(|page| root.join(page)).chain(chapters) {
        let page = path.strip_prefix(root).unwrap_or(&path);
        faults.extend(names::unknown(page, &std::fs::read_to_string(&path)?, &defined));
    }
    let page = Path::new("docs/invariants.md");
    let mutants = std::fs::read_to_string(root.join("crates/device/src/mutant.rs")).unwrap_or_default();
    faults.extend(invariants::untested(page, &std::fs::read_to_string(root.join(page))?, &defined, &mutants));
    Ok(faults)
}

fn list_arrows(root: &Path, name: &str) -> Result<()> {
    let krate = load(root, name)?;
    for (from, to) in arrows::arrows(&krate, &methods_below(root, name)?) {
        println!("{}", krate.short(from));
        to.iter().for_each(|(to, name)| println!("    {} ({name})", krate.short(*to)));
    }
    Ok(())
}

fn load(root: &Path, name: &str) -> Result<Crate> {
    let src = root.join("crates").join(name).join("src");
    let lib = src.join("lib.rs");
    Crate::load(name, &if lib.exists() { lib } else { src.join("main.rs") })
}

/// The names of all methods of the workspace's crates that a crate depends on, directly or not.
fn methods_below(root: &Path, name: &str) -> Result<BTreeSet<String>> {
    let (mut names, mut todo, mut seen) = (BTreeSet::new(), vec![name.to_owned()], BTreeSet::new());
    while let Some(name) = todo.pop() {
        let path = root.join("crates").join(&name).join("Cargo.toml");
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let manifest: toml::Table = toml::from_str(&text).with_context(|| path.display().to_string())?;
        let dependencies = manifest.get("dependencies").and_then(|d| d.as_table());
        for below in dependencies.into_iter().flatten().filter_map(|(d, _)| d.strip_prefix("quire-")) {
            if seen.insert(below.to_owned()) {
                names.extend(arrows::methods(&load(root, below)?).into_keys());
                todo.push(below.to_owned());
            }
        }
    }
    Ok(names)
}

/// The crates of the workspace, by folder.
fn crates(root: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(root.join("crates")).context("crates")? {
        let entry = entry?;
        if entry.path().join("Cargo.toml").exists() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// All files with these endings, but what is built.
fn files(dir: &Path, endings: &[&str]) -> Result<Vec<PathBuf>> {
    let mut out = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            if name != "target" && !name.starts_with('.') {
                out.extend(files(&path, endings)?);
            }
        } else if path.extension().is_some_and(|e| endings.iter().any(|w| e == *w)) {
            out.push(path);
        }
    }
    out.sort();
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is wrong in a workspace of one crate with these files.
    fn faults(layers: &str, sources: &[(&str, &str)]) -> Vec<String> {
        check(workspace(layers, sources).path(), None).unwrap()
    }

    /// A workspace of one crate with these files, and empty pages.
    fn workspace(layers: &str, sources: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let src = root.path().join("crates/house/src");
        std::fs::create_dir_all(&src).unwrap();
        std::fs::create_dir_all(root.path().join(CHAPTERS)).unwrap();
        for page in PAGES {
            std::fs::write(root.path().join(page), "").unwrap();
        }
        std::fs::write(root.path().join("layers.toml"), format!("house = {layers}")).unwrap();
        std::fs::write(root.path().join("crates/house/Cargo.toml"), "[package]\nname = \"quire-house\"\n").unwrap();
        for (name, text) in sources {
            std::fs::write(src.join(name), text).unwrap();
        }
        root
    }

    const LIB: (&str, &str) = ("lib.rs", "mod low;\nmod high;\n");
    const LAYERS: &str = r#"[["low.rs"], ["high.rs"], ["lib.rs"]]"#;

    #[test]
    fn an_import_from_below_is_allowed() {
        let high = ("high.rs", "use crate::low::Low;\npub(crate) struct High(Low);\n");
        let found = faults(LAYERS, &[LIB, ("low.rs", "pub(crate) struct Low;\n"), high]);
        assert_eq!(found, [""; 0]);
    }

    #[test]
    fn an_upward_import_is_a_fault() {
        let low = ("low.rs", "use crate::high::High;\npub(crate) struct Low(High);\n");
        let found = faults(LAYERS, &[LIB, low, ("high.rs", "pub(crate) struct High;\n")]);
        assert_eq!(found, ["house: low.rs names crate::high::High of high.rs, which is above it"]);
    }

    #[test]
    fn a_call_of_a_method_that_is_defined_above_is_a_fault() {
        let low = ("low.rs", "pub(crate) struct Low;\nfn f(l: &Low) { l.rise_up(); }\n");
        let high = ("high.rs", "use crate::low::Low;\nimpl Low { pub(crate) fn rise_up(&self) {} }\n");
        let found = faults(LAYERS, &[LIB, low, high]);
        assert!(found.iter().any(|f| f == "house: low.rs names .rise_up() of high.rs, which is above it"), "{found:?}");
    }

    #[test]
    fn a_chapter_that_names_a_function_that_does_not_exist_is_a_fault() {
        let root = workspace(LAYERS, &[LIB, ("low.rs", "pub(crate) struct Low;\n"), ("high.rs", "")]);
        std::fs::write(root.path().join(CHAPTERS).join("low.md"), "`low::Low`, `Low::gone`\n").unwrap();
        let found = check(root.path(), None).unwrap();
        assert_eq!(found, ["docs/design/low.md:1: `Low::gone`: gone does not exist"]);
    }

    #[test]
    fn a_circle_of_files_in_one_layer_is_a_fault() {
        let low = ("low.rs", "use crate::high::High;\npub(crate) struct Low(High);\n");
        let high = ("high.rs", "use crate::low::Low;\npub(crate) struct High(Box<Low>);\n");
        let found = faults(r#"[["low.rs", "high.rs"], ["lib.rs"]]"#, &[LIB, low, high]);
        assert_eq!(found[0], "house: files in a circle:");
        assert_eq!(found.len(), 3, "{found:?}");
    }

    #[test]
    fn a_type_with_too_many_methods_and_a_long_function_are_faults() {
        let methods: String = (0..41).map(|n| format!("    fn m{n}(&self) {{}}\n")).collect();
        let long = format!("fn long() {{\n{}}}\n", "    let _ = 1;\n".repeat(61));
        let low = ("low.rs", &*format!("pub(crate) struct Low;\nimpl Low {{\n{methods}}}\n{long}"));
        let found = faults(LAYERS, &[LIB, low, ("high.rs", "")]);
        assert_eq!(found.len(), 2, "{found:?}");
    }
}
