//! Images in which a directory is below itself, or has two names: each walk ends, and nothing is removed that lies
//! elsewhere.

use crate::common::{debugfs_write, image};
use quire::archive::{ImportOptions, Source, export_dir, export_tar, import};
use quire::{Error, ErrorKind, FileSystem};
use quire_testkit::tar::{entry, header};
use std::path::{Path, PathBuf};

/// An image with `/a/b`, a file, and `/a/b/up`, which is this directory.
fn looped(up: &str) -> (tempfile::TempDir, PathBuf) {
    let (dir, path) = image(16 << 20, &[]);
    let fs = FileSystem::open(&path).unwrap();
    fs.create_dir_all("/a/b").unwrap();
    fs.write("/kept", "kept").unwrap();
    fs.close().unwrap();
    debugfs_write(&path, &format!("ln {up} /a/b/up"));
    (dir, path)
}

fn is_below_itself(e: &Error, path: &str) {
    let text = e.to_string();
    assert!(e.kind() == ErrorKind::Corrupt && text.ends_with(" is below itself"), "{text}");
    assert_eq!((e.path(), e.structure().as_deref()), (Some(Path::new(path)), Some("directory block")), "{text}");
}

#[test]
fn a_walk_meets_each_directory_once_and_tells_the_loop() {
    for up in ["/", "/a", "/a/b"] {
        let (_dir, path) = looped(up);
        let fs = FileSystem::open(&path).unwrap();
        let (found, errors): (Vec<_>, Vec<_>) = fs.walk("/").unwrap().partition(Result::is_ok);
        let found: Vec<_> = found.into_iter().map(|e| e.unwrap().path).collect();
        assert_eq!(found, ["/", "/a", "/a/b", "/kept", "/lost+found"].map(PathBuf::from), "{up}");
        assert_eq!(errors.len(), 1, "{up}");
        is_below_itself(errors[0].as_ref().unwrap_err(), "/a/b/up");
    }
}

#[test]
fn an_export_ends_with_an_error() {
    let (dir, path) = looped("/");
    let fs = FileSystem::open(&path).unwrap();
    is_below_itself(&export_tar(&fs, "/", &mut Vec::new()).unwrap_err(), "./a/b/up");
    is_below_itself(&export_dir(&fs, "/", dir.path().join("out")).unwrap_err(), "./a/b/up");
}

#[test]
fn a_removal_stays_below_its_directory() {
    for up in ["/", "/a", "/a/b"] {
        let (_dir, path) = looped(up);
        let fs = FileSystem::open(&path).unwrap();
        for removed in ["/a/b/up", "/a", "/a/b"] {
            is_below_itself(&fs.remove_all(removed).unwrap_err(), "/a/b/up");
        }
        assert_eq!(fs.read("/kept").unwrap(), b"kept");
        assert!(fs.metadata("/a/b/up").unwrap().is_dir());
    }
}

#[test]
fn a_removal_leaves_a_directory_that_lies_elsewhere() {
    let (_dir, path) = image(16 << 20, &[]);
    let fs = FileSystem::open(&path).unwrap();
    fs.create_dir_all("/a").unwrap();
    fs.create_dir_all("/c/d").unwrap();
    fs.write("/c/d/kept", "kept").unwrap();
    fs.close().unwrap();
    debugfs_write(&path, "ln /c/d /a/other");
    let fs = FileSystem::open(&path).unwrap();
    for removed in ["/a/other", "/a"] {
        let e = fs.remove_all(removed).unwrap_err();
        assert_eq!((e.kind(), e.path()), (ErrorKind::Corrupt, Some(Path::new("/a/other"))), "{e}");
    }
    assert_eq!(fs.read("/c/d/kept").unwrap(), b"kept");
    // Either name leads there, but a walk goes by the one that `..` confirms.
    let (found, errors): (Vec<_>, Vec<_>) = fs.walk("/").unwrap().partition(Result::is_ok);
    assert!(found.iter().any(|e| e.as_ref().unwrap().path == Path::new("/c/d/kept")));
    let errors: Vec<_> = errors.into_iter().map(|e| e.unwrap_err().to_string()).collect();
    assert!(errors.len() == 1 && errors[0].starts_with("/a/other: corrupt: directory inode "), "{errors:?}");
}

#[test]
fn a_directory_with_two_names_in_its_directory_is_walked_once() {
    let (_dir, path) = image(16 << 20, &[]);
    let fs = FileSystem::open(&path).unwrap();
    // Each level would double the walk.
    let deep: PathBuf = std::iter::once("/").chain((0..40).map(|_| "d")).collect();
    fs.create_dir_all(&deep).unwrap();
    fs.close().unwrap();
    for level in 1..=40 {
        let at = "/d".repeat(level);
        debugfs_write(&path, &format!("ln {at} {}e", at.trim_end_matches('d')));
    }
    let fs = FileSystem::open(&path).unwrap();
    assert_eq!(fs.walk("/").unwrap().filter(Result::is_err).count(), 40);
}

#[test]
fn an_import_neither_removes_nor_hides_what_is_above() {
    let replaced = entry("a/b/up", b'0', b"a file");
    let opaque = [header("a", b'5', 0), header("a/b", b'5', 0), header("a/b/up", b'5', 0)].concat();
    let opaque = [opaque, header("a/b/.wh..wh..opq", b'0', 0)].concat();
    for (tar, whiteouts) in [(replaced, false), (opaque, true)] {
        let (_dir, path) = looped("/a");
        let fs = FileSystem::open(&path).unwrap();
        let source = Source::Stream(Box::new(std::io::Cursor::new(tar)));
        let e = import(&fs, "/", source, &ImportOptions::new().whiteouts(whiteouts)).unwrap_err();
        assert!(e.kind() == ErrorKind::Corrupt && e.to_string().ends_with(" is below itself"), "{e}");
        assert!(fs.metadata("/a/b/up").unwrap().is_dir());
    }
}

#[test]
fn a_deep_tree_is_walked_and_removed() {
    let (_dir, path) = image(64 << 20, &[]);
    let fs = FileSystem::open(&path).unwrap();
    let mut dir = fs.create_dir("/deep").unwrap();
    for _ in 0..3000 {
        dir = dir.create_dir("d").unwrap();
    }
    drop(dir);
    let last = fs.walk("/deep").unwrap().last().unwrap().unwrap();
    assert_eq!((last.depth, last.path.components().count()), (3000, 3002));
    fs.remove_all("/deep").unwrap();
    assert!(!fs.exists("/deep").unwrap());
}

#[test]
fn a_walk_goes_behind_a_directory_that_it_skips() {
    let (_dir, path) = image(16 << 20, &[]);
    let fs = FileSystem::open(&path).unwrap();
    for name in ["/a/b/c", "/a/d", "/a/empty"] {
        fs.create_dir_all(name).unwrap();
    }
    let mut walk = fs.walk("/a").unwrap();
    let mut found = Vec::new();
    while let Some(e) = walk.next() {
        let e = e.unwrap();
        if e.path.ends_with("b") || e.path.ends_with("empty") {
            walk.skip_dir(&e);
        }
        found.push(e.path.display().to_string());
    }
    assert_eq!(found, ["/a", "/a/b", "/a/d", "/a/empty"]);
}
