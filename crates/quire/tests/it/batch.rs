//! Batches: all or nothing, after a rollback, an error, and a crash between any two calls.

use crate::common::{fsck, image, scratch};
use quire::{ErrorKind, FileSystem, Links, SetMetadata};
use std::path::{Path, PathBuf};

/// Everything that a batch can change, one step at a time.
const STEPS: &[fn(&FileSystem) -> quire::Result<()>] = &[
    |fs| fs.write("/over", vec![2; 300_000]),
    |fs| fs.write("/new", vec![3; 500_000]),
    |fs| fs.create_dir_all("/d/e").map(drop),
    |fs| fs.rename("/moved", "/d/e/moved"),
    |fs| fs.remove_file("/gone"),
    |fs| fs.remove_all("/tree"),
    |fs| fs.truncate("/cut", 10_000),
    |fs| fs.set_xattr("/over", Links::Follow, "user.a", "b"),
    |fs| fs.set_metadata("/cut", Links::Follow, SetMetadata::new().owner(1, 2)),
    |fs| fs.hard_link("/over", "/d/linked"),
    |fs| fs.open_file("/over")?.write_at(&[9; 8192], 100_000),
    |fs| fs.open_file("/over")?.sync_all(),
    |fs| fs.symlink("new", "/d/link"),
];

fn prepare(fs: &FileSystem) {
    fs.write("/over", vec![1; 300_000]).unwrap();
    fs.write("/moved", "m").unwrap();
    fs.write("/gone", vec![4; 200_000]).unwrap();
    fs.write("/cut", vec![5; 100_000]).unwrap();
    fs.create_dir_all("/tree/a/b").unwrap();
    fs.write("/tree/a/f", "x").unwrap();
    fs.sync().unwrap();
}

/// Path, mode, owner, contents, names of attributes.
type Seen = (PathBuf, u32, u32, Vec<u8>, Vec<std::ffi::OsString>);

/// All that a tree shows: paths, types, owners, contents, attributes.
fn state(fs: &FileSystem) -> Vec<Seen> {
    let entries = fs.walk("/").unwrap().map(|e| {
        let e = e.unwrap();
        let bytes = if e.metadata.is_file() { fs.read(&e.path).unwrap() } else { Vec::new() };
        let names = fs.xattrs(&e.path, Links::NoFollow).unwrap();
        (e.path, e.metadata.mode, e.metadata.uid, bytes, names)
    });
    entries.collect()
}

/// The image as a crash now would leave it, recovered.
fn crashed(image: &Path, what: &str) -> Vec<Seen> {
    let copy = image.with_extension("crashed");
    std::fs::copy(image, &copy).unwrap();
    let fs = FileSystem::open(&copy).unwrap_or_else(|e| panic!("{what}: {e}"));
    let found = state(&fs);
    fs.close().unwrap();
    fsck(&copy);
    found
}

#[test]
fn a_crash_before_the_commit_leaves_nothing_of_a_batch_and_after_it_all() {
    let (_dir, path) = image(64 << 20, &[]);
    let fs = FileSystem::open(&path).unwrap();
    prepare(&fs);
    let before = state(&fs);
    let batch = fs.batch().unwrap();
    for (n, step) in STEPS.iter().enumerate() {
        step(&batch).unwrap();
        assert!(crashed(&path, &format!("after step {n}")) == before, "after step {n}");
    }
    let after = state(&batch);
    assert!(after != before);
    batch.commit().unwrap();
    assert!(crashed(&path, "after the commit") == after);
    assert!(state(&fs) == after);
    fs.close().unwrap();
    fsck(&path);
}

#[test]
fn a_rollback_leaves_everything_as_it_was_and_handles_stale() {
    let fs = scratch();
    prepare(&fs);
    let before = state(&fs);
    let file = fs.open_file("/over").unwrap();
    let root = fs.root();
    let batch = fs.batch().unwrap();
    STEPS.iter().for_each(|step| step(&batch).unwrap());
    batch.rollback().unwrap();
    assert!(state(&fs) == before);
    assert_eq!(file.metadata().unwrap_err().kind(), ErrorKind::Stale);
    root.write("usable", "yes").unwrap();
    crate::common::fsck_bytes(&fs.into_bytes().unwrap().unwrap());
}

#[test]
fn an_error_inside_of_atomically_undoes_what_came_before_it() {
    let fs = scratch();
    let done = fs.atomically(|fs| {
        fs.write("/a", "1")?;
        fs.remove_file("/none")
    });
    assert_eq!(done.unwrap_err().kind(), ErrorKind::NotFound);
    assert!(!fs.exists("/a").unwrap());
}

#[test]
fn a_batch_larger_than_a_transaction_is_refused_and_nothing_of_it_is_there() {
    let (_dir, path) = image(16 << 20, &[]);
    let fs = FileSystem::open(&path).unwrap();
    fs.write("/big", vec![1; 4 << 20]).unwrap();
    let batch = fs.batch().unwrap();
    batch.write("/small", "x").unwrap();
    // Overwritten data goes through the log, which holds less.
    let done = batch.open_file("/big").unwrap().write_at(&vec![2; 4 << 20], 0).and_then(|()| batch.commit());
    assert_eq!(done.unwrap_err().kind(), ErrorKind::BatchTooLarge);
    assert!(!fs.exists("/small").unwrap());
    assert!(fs.read("/big").unwrap() == vec![1; 4 << 20]);
    fs.write("/later", "works").unwrap();
    fs.close().unwrap();
    fsck(&path);
}

#[test]
fn without_a_journal_there_is_no_batch() {
    let (_dir, path) = image(16 << 20, &["^has_journal"]);
    let fs = FileSystem::open(&path).unwrap();
    assert_eq!(fs.batch().map(drop).unwrap_err().kind(), ErrorKind::Unsupported);
    fs.write("/f", "single changes work").unwrap();
    fs.close().unwrap();
    fsck(&path);
}

#[test]
fn image_opened_without_its_journal_has_no_batch() {
    let (_dir, path) = image(16 << 20, &[]);
    let fs = FileSystem::options().without_journal().open(&path).unwrap();
    let refused = fs.batch().map(drop).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported, "{refused}");
    assert!(refused.to_string().contains("opened without it"), "{refused}");
    fs.write("/f", "single changes work").unwrap();
}

#[test]
fn other_threads_wait_for_a_batch_and_do_not_see_half_of_it() {
    let fs = scratch();
    let batch = fs.batch().unwrap();
    batch.write("/a", "1").unwrap();
    let other = fs.clone();
    let reader = std::thread::spawn(move || (other.exists("/a").unwrap(), other.exists("/b").unwrap()));
    std::thread::sleep(std::time::Duration::from_millis(50));
    batch.write("/b", "2").unwrap();
    batch.commit().unwrap();
    assert_eq!(reader.join().unwrap(), (true, true));
}

#[test]
fn synchronous_inodes_do_not_commit_a_batch_early() {
    let (_dir, path) = image(64 << 20, &[]);
    let fs = FileSystem::open(&path).unwrap();
    fs.write("/f", "old").unwrap();
    fs.sync().unwrap();
    drop(fs);
    crate::common::debugfs_write(&path, "sif / i_flags 0x90008"); // sync, dirsync, extents
    crate::common::debugfs_write(&path, "sif /f i_flags 0x80008");
    let fs = FileSystem::open(&path).unwrap();
    let batch = fs.batch().unwrap();
    batch.write("/f", "new").unwrap();
    batch.write("/g", "new").unwrap();
    assert!(crashed(&path, "before the commit").iter().all(|e| e.0 != Path::new("/g")));
    batch.commit().unwrap();
    assert_eq!(fs.read("/f").unwrap(), b"new");
}
