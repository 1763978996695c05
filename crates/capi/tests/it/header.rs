//! The header says what the crate has.

use std::path::Path;

fn generated() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).expect("cbindgen.toml");
    let mut out = Vec::new();
    cbindgen::Builder::new()
        .with_config(config)
        .with_src(root.join("src/error.rs"))
        .with_src(root.join("src/fs.rs"))
        .with_src(root.join("src/batch.rs"))
        .with_src(root.join("src/attrs.rs"))
        .with_src(root.join("src/file.rs"))
        .with_src(root.join("src/dir.rs"))
        .with_src(root.join("src/names.rs"))
        .with_src(root.join("src/archive.rs"))
        .generate()
        .expect("bindings")
        .write(&mut out);
    let text = String::from_utf8(out).expect("UTF-8");
    // What Rust calls safety is a plain sentence for C.
    let lines = text.lines().filter(|line| line.trim() != "* # Safety");
    lines.map(|line| line.replace('`', "").trim_end().to_owned() + "\n").collect()
}

#[test]
fn the_header_is_that_of_the_crate() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/quire.h");
    let new = generated();
    if std::env::var_os("QUIRE_BLESS").is_some() {
        std::fs::write(&path, &new).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == new, "include/quire.h is old: QUIRE_BLESS=1 cargo test -p quire-capi header rewrites it");
}

/// Each function of the crate is in the header: a new file that `generated` does not name would be missed.
#[test]
fn the_header_has_every_exported_function() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let header = std::fs::read_to_string(root.join("include/quire.h")).unwrap();
    let mut functions = 0;
    for file in std::fs::read_dir(root.join("src")).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        for after in text.split("extern \"C\" fn ").skip(1) {
            let name = after.split('(').next().unwrap();
            assert!(header.contains(&format!("{name}(")), "{name} is not in include/quire.h");
            functions += 1;
        }
    }
    assert!(functions > 40, "{functions} functions");
}
