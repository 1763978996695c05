//! Removals that are told before they are made (N11).

use super::testing::{IMAGES, dir, each_image, file};
use crate::testing::{TestVolume, mke2fs};
use crate::{Error, Options, Volume};
use quire_device::sync::atomic::Ordering;
use quire_device::sync::{lock, thread};
use quire_layout::Ino;
use quire_layout::inode::flags;
use std::cell::Cell;
use std::time::Duration;

/// Removes a name; also says how often that was told.
fn unlink(v: &Volume, parent: Ino, name: &str) -> (Result<(), Error>, u32) {
    let told = Cell::new(0);
    let done = v.unlink_telling(parent, name.as_bytes(), &mut || told.set(told.get() + 1));
    (done, told.get())
}

fn rmdir(v: &Volume, parent: Ino, name: &str) -> (Result<(), Error>, u32) {
    let told = Cell::new(0);
    let done = v.rmdir_telling(parent, name.as_bytes(), &mut || told.set(told.get() + 1));
    (done, told.get())
}

#[test]
fn who_looks_after_a_removal_was_told_finds_it_made() {
    each_image(|t| {
        let v = &t.volume;
        let d = dir(v, Ino::ROOT, "d").ino;
        let f = file(v, d, "gone").ino;
        let looks = thread::scope(|s| {
            let mut looks = None;
            let mut tell = || {
                let look = s.spawn(|| (v.lookup(d, b"gone").err(), v.getattr(f).unwrap().links));
                thread::sleep(Duration::from_millis(10));
                assert!(!look.is_finished(), "it waits for the removal");
                looks = Some(look);
            };
            v.unlink_telling(d, b"gone", &mut tell).unwrap();
            looks.expect("told").join().unwrap()
        });
        assert!(matches!(looks, (Some(Error::NotFound), 0)), "{looks:?}");
        v.forget(f, 1);
        assert!(matches!(rmdir(v, Ino::ROOT, "d"), (Ok(()), 1)));
    });
}

#[test]
fn what_is_not_removed_is_not_told() {
    let t = TestVolume::new("24M", IMAGES[0]);
    let v = &t.volume;
    let d = dir(v, Ino::ROOT, "d").ino;
    let f = file(v, d, "f").ino;
    for (outcome, what) in [
        (unlink(v, d, "nothing"), "no such name"),
        (unlink(v, Ino::ROOT, "d"), "a directory"),
        (rmdir(v, d, "f"), "a file"),
        (rmdir(v, Ino::ROOT, "d"), "not empty"),
        (rmdir(v, Ino::ROOT, "."), "itself"),
        (rmdir(v, Ino::ROOT, ".."), "its parent"),
        (unlink(v, f, "f"), "in a file"),
    ] {
        assert!(matches!(outcome, (Err(_), 0)), "{what}: {outcome:?}");
    }
    v.set_flags(f, v.get_flags(f).unwrap() | flags::IMMUTABLE).unwrap();
    assert!(matches!(unlink(v, d, "f"), (Err(Error::NotPermitted(_)), 0)));
    v.set_flags(f, v.get_flags(f).unwrap() & !flags::IMMUTABLE).unwrap();
    // Durable when the call returns: nobody is told before.
    v.set_flags(d, v.get_flags(d).unwrap() | flags::DIRSYNC).unwrap();
    assert!(matches!(unlink(v, d, "f"), (Ok(()), 0)));
    assert!(matches!(rmdir(v, Ino::ROOT, "d"), (Ok(()), 1)));
    v.close().unwrap();
    let t = TestVolume::on(t.device.snapshot(), Options { read_only: true, ..Options::default() });
    assert!(matches!(rmdir(&t.volume, Ino::ROOT, "lost+found"), (Err(Error::ReadOnly(_)), 0)));
}

#[test]
fn a_stop_that_comes_after_a_removal_was_told_comes_after_the_removal() {
    each_image(|t| {
        let v = &t.volume;
        file(v, Ino::ROOT, "gone");
        let stop = |frozen, why| {
            *lock(&v.inner.frozen) = frozen;
            *lock(&v.inner.read_only) = why;
            v.inner.stopped.store(frozen || why.is_some(), Ordering::Release);
        };
        v.unlink_telling(Ino::ROOT, b"gone", &mut || stop(false, Some("for a test"))).unwrap();
        assert!(matches!(unlink(v, Ino::ROOT, "lost+found"), (Err(Error::IsDir), 0)));
        assert!(matches!(rmdir(v, Ino::ROOT, "lost+found"), (Err(Error::ReadOnly(_)), 0)));
        stop(false, None);
        assert!(matches!(v.lookup(Ino::ROOT, b"gone"), Err(Error::NotFound)));
        file(v, Ino::ROOT, "again");
        v.unlink_telling(Ino::ROOT, b"again", &mut || stop(true, None)).unwrap();
        stop(false, None);
        assert!(matches!(v.lookup(Ino::ROOT, b"again"), Err(Error::NotFound)));
    });
}

#[test]
fn nobody_is_told_of_a_removal_that_the_transaction_has_no_room_for() {
    for args in [
        &["-t", "ext4", "-b", "1024", "-J", "size=1", "-N", "4096"][..],
        &["-t", "ext4", "-b", "1024", "-J", "size=1", "-N", "4096", "-O", "orphan_file"],
    ] {
        let t = TestVolume::on(mke2fs("24M", args), Options::default());
        let v = &t.volume;
        let dirs: Vec<_> = (0..400).map(|n| dir(v, Ino::ROOT, &format!("d{n}")).ino).collect();
        for d in &dirs {
            for n in 0..4 {
                file(v, *d, &format!("f{n}"));
            }
        }
        v.fsync(Ino::ROOT, false).unwrap();
        let durable = v.inner.journal.durable();
        let mut untold = 0;
        for n in 0..4 {
            for d in &dirs {
                let (done, told) = unlink(v, *d, &format!("f{n}"));
                assert!(done.is_ok() && told <= 1, "{done:?}, told {told} times");
                untold += u64::from(told == 0);
            }
        }
        let commits = u64::from(v.inner.journal.durable().0 - durable.0);
        assert!(commits >= 3, "{commits} commits, {} blocks fit", v.inner.journal.limit());
        // Only the last few before each commit, which find no room for blocks that they do not turn out to need.
        assert!(untold <= 8 * commits, "{untold} were not told, {commits} commits");
        t.check();
    }
}
