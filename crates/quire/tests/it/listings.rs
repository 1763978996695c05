//! Listings: beside removals, and of directories in which an inode is damaged.

use crate::common::{debugfs_write, image, scratch};
use quire::{ErrorKind, FileSystem};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// The directory `/d/dir` and the file `/d/file` get the same inode in turn.
#[test]
fn listings_beside_removals_show_each_object_as_it_is() {
    let fs = scratch();
    fs.create_dir("/d").unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|s| {
        s.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                fs.create_dir("/d/dir").unwrap();
                fs.remove_dir("/d/dir").unwrap();
                fs.write("/d/file", "x").unwrap();
                fs.remove_file("/d/file").unwrap();
            }
        });
        let listed = (0..20_000).try_for_each(|n| match fs.read_dir("/d") {
            Err(e) => Err(format!("listing {n}: {e}")),
            Ok(entries) => match entries.iter().find(|e| e.metadata.is_dir() != (e.name == "dir")) {
                Some(other) => Err(format!("listing {n}: {other:?}")),
                None => Ok(()),
            },
        });
        done.store(true, Ordering::Relaxed);
        listed.unwrap_or_else(|e| panic!("{e}"));
    });
}

/// An image with the files `/d/a`, `/d/bad` and `/d/c`, of which the second has no inode.
fn with_damaged_inode() -> (tempfile::TempDir, FileSystem) {
    let (dir, path) = image(16 << 20, &[]);
    let fs = FileSystem::open(&path).unwrap();
    fs.create_dir("/d").unwrap();
    ["a", "bad", "c"].iter().for_each(|name| fs.write(format!("/d/{name}"), name).unwrap());
    let ino = fs.metadata("/d/bad").unwrap().ino;
    fs.close().unwrap();
    debugfs_write(&path, &format!("sif <{ino}> mode 0"));
    (dir, FileSystem::options().read_only(true).open(&path).unwrap())
}

#[test]
fn names_beside_a_damaged_inode_are_listed() {
    let (_dir, fs) = with_damaged_inode();
    assert_eq!(fs.names("/d").unwrap(), ["a", "bad", "c"]);
    assert_eq!(fs.names("/d/a").unwrap_err().kind(), ErrorKind::NotADirectory);
}

#[test]
fn damaged_inode_is_an_error_of_its_own_entry() {
    let (_dir, fs) = with_damaged_inode();
    let each = fs.read_dir_each("/d").unwrap();
    let names: Vec<_> = each.iter().map(|(name, _)| name.to_str().unwrap()).collect();
    assert_eq!(names, ["a", "bad", "c"]);
    let sizes: Vec<_> = each.iter().map(|(_, metadata)| metadata.as_ref().ok().map(|m| m.size)).collect();
    assert_eq!(sizes, [Some(1), None, Some(1)]);
    for told in [each[1].1.as_ref().unwrap_err(), &fs.read_dir("/d").unwrap_err()] {
        assert_eq!(told.kind(), ErrorKind::Corrupt, "{told}");
    }
    assert_eq!(each[1].1.as_ref().unwrap_err().path(), Some(Path::new("/d/bad")));
}

#[test]
fn walk_tells_a_damaged_inode_and_goes_on() {
    let (_dir, fs) = with_damaged_inode();
    let (found, errors): (Vec<_>, Vec<_>) = fs.walk("/d").unwrap().partition(Result::is_ok);
    let found: Vec<_> = found.into_iter().map(|e| e.unwrap().path).collect();
    assert_eq!(found, ["/d", "/d/a", "/d/c"].map(PathBuf::from));
    let errors: Vec<_> = errors.into_iter().map(Result::unwrap_err).collect();
    assert_eq!(errors.iter().map(|e| e.path().unwrap()).collect::<Vec<_>>(), [Path::new("/d/bad")]);
}
