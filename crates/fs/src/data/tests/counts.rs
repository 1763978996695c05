//! What each call costs in device operations.

use super::{Bench, file, options};
use crate::config::Route;
use crate::data::WriteFlags;
use crate::{SetAttr, SetTime};
use quire_device::{DeviceStats, Region};
use quire_layout::Ino;
use quire_layout::inode::Timestamp;

const ROUTES: [Route; 6] =
    [Route::None, Route::Writeback, Route::Ordered, Route::Journal, Route::Overwrite, Route::Auto];

fn bench(route: Route, files: u32) -> Bench {
    Bench::new("32M", &["-t", "ext4", "-b", "4096"], files, options(route))
}

fn write(b: &Bench, ino: Ino, at: u64, data: &[u8]) {
    assert_eq!(b.volume.write(ino, at, data, WriteFlags::default()).unwrap(), data.len());
}

fn all(d: &DeviceStats) -> u64 {
    d.total(|r| r.reads).count + d.total(|r| r.writes).count + d.total(|r| r.zeroes).count + d.flushes.count
}

/// F15, F12: an fsync with nothing new does no I/O, whatever has been done before it.
#[test]
fn an_fsync_with_nothing_new_does_nothing() {
    for route in ROUTES {
        let b = bench(route, 2);
        for round in 0..3 {
            write(&b, file(0), round * 5000, &[7; 5000]);
            b.volume.fsync(file(0), false).unwrap();
            let d = b.counted(|| {
                b.volume.fsync(file(0), false).unwrap();
                b.volume.fsync(file(0), true).unwrap();
                b.volume.fsync(file(1), false).unwrap();
                b.volume.fsync(Ino::ROOT, false).unwrap();
                b.volume.sync().unwrap();
            });
            assert_eq!(all(&d), 0, "{route:?}: {d:?}");
        }
        // Pending data of another file is not this file's matter.
        write(&b, file(1), 0, &[1; 100]);
        if route != Route::Journal {
            assert_eq!(all(&b.counted(|| b.volume.fsync(file(0), false).unwrap())), 0);
        }
        b.check();
    }
}

/// What is overwritten in place costs one write and one flush.
#[test]
fn overwrite_and_fdatasync_is_one_write_and_one_flush() {
    for route in [Route::Writeback, Route::Ordered] {
        let b = bench(route, 1);
        write(&b, file(0), 0, &vec![1; 64 << 10]);
        b.volume.fsync(file(0), false).unwrap();
        for n in 0..4 {
            let d = b.counted(|| {
                write(&b, file(0), n * 8192, &[9; 8192]);
                b.volume.fsync(file(0), true).unwrap();
            });
            assert_eq!((d.region(Region::Data).writes.count, d.flushes.count, all(&d)), (1, 1, 2), "{d:?}");
        }
        // The times are still to come: an fsync commits them, once.
        let d = b.counted(|| b.volume.fsync(file(0), false).unwrap());
        assert!(d.region(Region::Log).writes.count > 0 && d.region(Region::Data).writes.count == 0, "{d:?}");
        assert_eq!(all(&b.counted(|| b.volume.fsync(file(0), false).unwrap())), 0);
        b.check();
    }
}

/// The kernel's cache tells times before an fdatasync: they wait in the running transaction, and no commit is made for
/// them.
#[test]
fn an_overwrite_does_not_commit_what_else_has_changed() {
    for route in [Route::Writeback, Route::Ordered] {
        let b = bench(route, 2);
        write(&b, file(0), 0, &vec![1; 64 << 10]);
        b.volume.sync().unwrap();
        for n in 0..4 {
            let d = b.counted(|| {
                let flags = WriteFlags { deferred: true, keep_times: true, ..WriteFlags::default() };
                b.volume.write(file(0), n * 8192, &[9; 8192], flags).unwrap();
                let time = Timestamp { secs: 1000, nanos: u32::try_from(n).unwrap() };
                b.volume.setattr(file(0), &SetAttr { mtime: Some(SetTime::At(time)), ..SetAttr::default() }).unwrap();
                b.volume
                    .setattr(file(1), &SetAttr { mode: Some(0o600 + u16::from(n % 2 == 1)), ..SetAttr::default() })
                    .unwrap();
                b.volume.fsync(file(0), true).unwrap();
            });
            assert_eq!((d.region(Region::Data).writes.count, d.flushes.count, all(&d)), (1, 1, 2), "{d:?}");
        }
        b.check();
    }
}

/// An append: its data once, one commit. The block that it continues is not read again.
#[test]
fn append_and_fsync_writes_data_once_and_commits_once() {
    let b = bench(Route::Ordered, 1);
    write(&b, file(0), 0, &[1; 100]);
    b.volume.fsync(file(0), false).unwrap();
    for _ in 0..50 {
        let d = b.counted(|| {
            b.volume
                .write(file(0), 0, &[2; 300], WriteFlags { append: true, sync: true, ..WriteFlags::default() })
                .unwrap();
        });
        assert_eq!(d.region(Region::Data).writes.count, 1, "{d:?}");
        assert_eq!(d.total(|r| r.reads).count, 0, "{d:?}");
        assert!(d.flushes.count <= 2 && d.region(Region::Log).writes.count <= 2, "{d:?}");
    }
    b.check();
}

/// In the journal's route a write costs nothing before its commit, and its data goes with the metadata.
#[test]
fn journaled_data_goes_with_the_commit() {
    let b = bench(Route::Journal, 1);
    let d = b.counted(|| write(&b, file(0), 0, &[1; 8192]));
    assert_eq!(d.total(|r| r.writes).count, 0, "{d:?}");
    let d = b.counted(|| b.volume.fsync(file(0), true).unwrap());
    assert_eq!(d.region(Region::Data).writes.count, 0, "{d:?}");
    assert!(d.region(Region::Log).writes.count <= 2 && d.flushes.count <= 2, "{d:?}");
    b.check();
}

/// Many small files become few large writes.
#[test]
fn small_files_are_written_back_together() {
    let b = bench(Route::Ordered, 500);
    for n in 0..500 {
        write(&b, file(n), 0, &[u8::try_from(n % 251).unwrap(); 3000]);
    }
    let d = b.counted(|| b.volume.sync().unwrap());
    let data = d.region(Region::Data).writes;
    assert!(data.bytes == 500 * 4096 && data.count <= 10, "{data:?}");
    b.check();
}

/// A file that is written from start to end lies in one piece.
#[test]
fn a_sequential_file_is_contiguous() {
    let b = bench(Route::Ordered, 2);
    for n in 0..16 {
        write(&b, file(0), n << 19, &vec![3; 1 << 19]);
        write(&b, file(1), n * 10, &[4; 10]);
        if n % 5 == 0 {
            b.volume.fsync(file(1), false).unwrap();
            b.volume.fsync(file(0), false).unwrap();
        }
    }
    b.volume.sync().unwrap();
    let extents = b.volume.extents(file(0), 0, u64::MAX, 100).unwrap();
    assert!(extents.len() <= 3, "{extents:?}");
    assert_eq!(extents.iter().map(|e| e.len).sum::<u64>(), 8 << 20);
    b.check();
}
