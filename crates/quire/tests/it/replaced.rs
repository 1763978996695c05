//! Files whose content is replaced (F30): a crash leaves the old content or the new, and no empty file, also where the
//! sync of another file has made the cut durable.

use crate::common::image;
use quire::FileSystem;

/// What is in `/f` after a crash: `replace` replaces its content, then another file is synced.
fn after_a_crash(quire_log: bool, replace: impl FnOnce(&FileSystem)) -> Vec<u8> {
    let (dir, path) = image(16 << 20, &[]);
    let fs = FileSystem::options().quire_log(quire_log).open(&path).unwrap();
    fs.write("/f", "old").unwrap();
    let other = fs.create_file("/other").unwrap();
    fs.sync().unwrap();
    replace(&fs);
    other.write_at(b"x", 0).unwrap();
    other.sync_all().unwrap();
    let crashed = dir.path().join("crashed");
    std::fs::copy(&path, &crashed).unwrap();
    FileSystem::open(&crashed).unwrap().read("/f").unwrap()
}

#[test]
fn replaced_file_is_not_empty_after_the_sync_of_another_and_a_crash() {
    for quire_log in [false, true] {
        let left = after_a_crash(quire_log, |fs| fs.write("/f", "new").unwrap());
        assert_eq!(left.escape_ascii().to_string(), "new", "quire_log={quire_log}");
    }
}

/// Python duplicates a handle for each call.
#[test]
fn replaced_file_is_whole_after_a_crash_though_a_duplicate_was_dropped_between_two_writes() {
    for quire_log in [false, true] {
        let left = after_a_crash(quire_log, |fs| {
            let file = fs.create_file("/f").unwrap();
            file.duplicate().write_at(b"first ", 0).unwrap();
            file.write_at(b"second", 6).unwrap();
        });
        assert_eq!(left.escape_ascii().to_string(), "first second", "quire_log={quire_log}");
    }
}

/// More files than the engine remembers without looking which of them are in use.
#[test]
fn thousands_of_files_that_are_replaced_at_once_are_not_empty_after_a_crash() {
    const FILES: usize = 1100;
    let (dir, path) = image(32 << 20, &[]);
    let fs = FileSystem::open(&path).unwrap();
    let name = |n: usize| format!("/f{n}");
    (0..FILES).for_each(|n| fs.write(name(n), "old").unwrap());
    fs.sync().unwrap();
    let files: Vec<_> = (0..FILES).map(|n| fs.create_file(name(n)).unwrap()).collect();
    files.iter().for_each(|file| file.write_at(b"new", 0).unwrap());
    drop(files);
    let other = fs.create_file("/other").unwrap();
    other.write_at(b"x", 0).unwrap();
    other.sync_all().unwrap();
    let crashed = dir.path().join("crashed");
    std::fs::copy(&path, &crashed).unwrap();
    let after = FileSystem::open(&crashed).unwrap();
    let lost: Vec<_> = (0..FILES).filter(|n| after.read(name(*n)).unwrap() != b"new").collect();
    assert!(lost.is_empty(), "{} files, beginning with {:?}", lost.len(), lost.first());
}
