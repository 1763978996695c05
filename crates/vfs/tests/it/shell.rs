//! The library as SQLite loads it: in Debian's sqlite3 shell, whose SQLite is older and has no atomic updates.

use crate::common::{image_file, in_image, open};
use quire_testkit::{fsck, needs_tools};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The shared library, which cargo builds with the tests.
fn library() -> PathBuf {
    let deps = std::env::current_exe().unwrap();
    let found = deps.ancestors().map(|d| d.join("libquire_vfs.so")).find(|p| p.exists());
    found.expect("libquire_vfs.so beside the tests: cargo build -p quire-vfs")
}

/// Exit code, output, errors.
fn shell(script: &str) -> (Option<i32>, String, String) {
    let mut child = Command::new("sqlite3")
        .arg("-batch")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    let out = child.wait_with_output().unwrap();
    let text = |b: Vec<u8>| String::from_utf8_lossy(&b).into_owned();
    (out.status.code(), text(out.stdout), text(out.stderr))
}

/// The start of a script: without its ending, SQLite finds the library and its entry point by itself.
fn load() -> String {
    format!(".load {}\n", library().with_extension("").display())
}

fn opened(image: &Path, path: &str) -> String {
    format!("{}.open {}\n", load(), in_image(image, path))
}

#[test]
fn the_shell_loads_the_library_and_works_in_an_image() {
    needs_tools(&["sqlite3"]);
    let (_dir, image) = image_file(16);
    for mode in ["wal", "delete", "persist"] {
        let script = format!(
            "{}pragma journal_mode={mode};\ncreate table t(x);\ninsert into t values (1), (2);\n.vfsname\n\
             select count(*) from t;\npragma integrity_check;\n",
            opened(&image, &format!("/{mode}.db"))
        );
        let (code, out, errors) = shell(&script);
        assert_eq!((code, out.as_str(), errors.as_str()), (Some(0), &*format!("{mode}\nquire\n2\nok\n"), ""));
        fsck(&std::fs::read(&image).unwrap());
    }
    let count = open(&in_image(&image, "/wal.db")).query_row("select count(*) from t", [], |r| r.get::<_, i64>(0));
    assert_eq!(count.unwrap(), 2, "another SQLite reads it");
}

#[test]
fn load_extension_in_sql_and_the_image_in_the_uri_or_the_environment() {
    needs_tools(&["sqlite3"]);
    let (_dir, image) = image_file(16);
    let uri = format!("file:/a.db?vfs=quire&image={}", image.display());
    let script = format!(
        "select load_extension('{}');\nattach '{uri}' as a;\ncreate table a.t(x);\ninsert into a.t values (5);\n\
         select x from a.t;\n",
        library().with_extension("").display()
    );
    let (code, out, errors) = shell(&script);
    assert_eq!((code, out.trim(), errors.as_str()), (Some(0), "5", ""));
    let script = format!("{}.open file:a.db?vfs=quire\nselect x from t;\n", load());
    let mut child = Command::new("sqlite3");
    child.arg("-batch").env("QUIRE_IMAGE", &image).current_dir("/");
    let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    assert_eq!(String::from_utf8_lossy(&child.wait_with_output().unwrap().stdout), "5\n");
}

#[test]
fn an_image_that_another_process_has_is_busy() {
    needs_tools(&["sqlite3"]);
    let (_dir, image) = image_file(16);
    let db = open(&in_image(&image, "/a.db"));
    db.execute_batch("create table t(x)").unwrap();
    let (_, _, errors) = shell(&format!("{}.log stderr\nselect * from t;\n", opened(&image, "/a.db")));
    assert!(errors.contains("database is locked"), "{errors}");
    drop(db);
    let (code, _, errors) = shell(&format!("{}select * from t;\n", opened(&image, "/a.db")));
    assert_eq!((code, errors.as_str()), (Some(0), ""));
}
