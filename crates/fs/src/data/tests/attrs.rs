//! What others see of pending data, and what becomes of it when a file goes.

use super::{Bench, file, options};
use crate::Step;
use crate::config::Route;
use crate::data::truncate::{cut_off, end_shrink};
use crate::data::{Falloc, FileExtent, FilePlace, WriteFlags};
use crate::{Cred, Devices, New, NewKind, SetAttr, SetTime, Volume};
use quire_device::sync::Arc;
use quire_device::{BlockDevice, SystemClock};
use quire_layout::inode::{Timestamp, flags};
use quire_layout::{FileBlock, Ino};
use quire_testkit::{MemDevice, VirtualClock};
use quire_testkit::{fsck, mke2fs};
use std::time::Duration;

const ROUTES: [Route; 2] = [Route::Ordered, Route::Journal];

fn bench(route: Route) -> Bench {
    Bench::new("16M", &["-t", "ext4", "-b", "4096"], 2, options(route))
}

fn place(n: u32, offset: u64) -> FilePlace {
    FilePlace { ino: file(n), offset }
}

#[test]
fn stat_tells_of_pending_data_what_it_will_tell_of_written_data() {
    // The smaller inode holds whole seconds.
    for (route, inode_size) in ROUTES.into_iter().flat_map(|route| [(route, "128"), (route, "256")]) {
        let b = Bench::new("16M", &["-t", "ext4", "-b", "4096", "-I", inode_size], 2, options(route));
        let v = &b.volume;
        v.write(file(0), 10_000, &[1; 10_000], WriteFlags::default()).unwrap();
        v.write(file(0), 100_000, &[1; 1], WriteFlags::default()).unwrap();
        let before = v.getattr(file(0)).unwrap();
        assert_eq!((before.size, before.sectors), (100_001, 4 * 8));
        let free = v.statfs().free;
        v.sync().unwrap();
        assert_eq!(v.getattr(file(0)).unwrap(), before, "{route:?}, {inode_size}");
        assert_eq!(v.statfs().free, free, "{route:?}, {inode_size}");
        b.check();
    }
}

/// Times that a user sets hold, whatever is still to be written back.
#[test]
fn set_times_outlive_pending_ones() {
    for route in ROUTES {
        for synced in [false, true] {
            let mut b = bench(route);
            b.volume.write(file(0), 0, &[1; 5000], WriteFlags::default()).unwrap();
            let t = Timestamp { secs: 1_000_000_000, nanos: 5 };
            let set = SetAttr { mtime: Some(SetTime::At(t)), ..SetAttr::default() };
            assert_eq!(b.volume.setattr(file(0), &set).unwrap().mtime, t);
            if synced {
                b.volume.fsync(file(0), false).unwrap();
            }
            assert_eq!(b.volume.getattr(file(0)).unwrap().mtime, t);
            b.volume.setattr(file(0), &SetAttr { mode: Some(0o600), ..SetAttr::default() }).unwrap();
            b.remount();
            assert_eq!(b.volume.getattr(file(0)).unwrap().mtime, t, "{route:?}");
            b.volume.write(file(0), 0, &[2; 10], WriteFlags::default()).unwrap();
            assert!(b.volume.getattr(file(0)).unwrap().mtime > t);
            b.check();
        }
    }
}

/// Pages, reservations and claims of a file that is unlinked go with it.
#[test]
fn an_unlinked_file_leaves_nothing_behind() {
    for route in ROUTES {
        let b = bench(route);
        let v = &b.volume;
        let free = v.statfs().free;
        for sync in [false, true] {
            let ino = v.lookup(Ino::ROOT, if sync { b"f00000" } else { b"f00001" }).unwrap().ino;
            v.write(ino, 0, &vec![3; 100_000], WriteFlags::default()).unwrap();
            if sync {
                v.fsync(ino, false).unwrap();
            }
            v.write(ino, 200_000, &vec![3; 100_000], WriteFlags::default()).unwrap();
            v.unlink(Ino::ROOT, if sync { b"f00000" } else { b"f00001" }).unwrap();
            // Open, it can still be used.
            v.write(ino, 50_000, &vec![4; 100_000], WriteFlags::default()).unwrap();
            v.truncate(ino, 120_000).unwrap();
            assert_eq!(b.read_all(ino, 120_000)[60_000..], vec![4; 60_000]);
            v.forget(ino, 1);
            v.sync().unwrap();
            assert_eq!(v.statfs().free, free, "{route:?}");
        }
        assert_eq!(b.volume.data().files.pages(), 0);
        b.check();
    }
}

/// F10: after a crash, a new name that replaced an old one has the new data.
#[test]
fn a_rename_takes_the_data_along() {
    for route in ROUTES {
        let b = bench(route);
        let v = &b.volume;
        v.write(file(0), 0, &[1; 5000], WriteFlags::default()).unwrap();
        v.sync().unwrap();
        v.write(file(1), 0, &[2; 6000], WriteFlags::default()).unwrap();
        v.rename(Ino::ROOT, b"f00001", Ino::ROOT, b"f00000", crate::RenameFlags::default()).unwrap();
        v.fsync(Ino::ROOT, false).unwrap();
        let after = b.after_a_crash();
        let ino = after.lookup(Ino::ROOT, b"f00000").unwrap().ino;
        let mut buf = [0; 7000];
        assert_eq!(after.read(ino, 0, &mut buf).unwrap(), 6000, "{route:?}");
        assert_eq!(buf[..6000], [2; 6000]);
    }
}

/// F30: after a crash, a file whose content was replaced in place and closed has the new content, whatever was
/// committed between the truncate and the close.
#[test]
fn a_file_that_is_replaced_and_closed_is_not_empty_after_a_crash() {
    for route in [Route::Ordered, Route::Auto, Route::Journal] {
        for replaced in [true, false] {
            let b = bench(route);
            let v = &b.volume;
            v.write(file(0), 0, &[1; 5000], WriteFlags::default()).unwrap();
            v.sync().unwrap();
            if replaced {
                v.truncate(file(0), 0).unwrap();
                v.engine().commit_all().unwrap();
            }
            v.write(file(0), 0, &[2; 6000], WriteFlags::default()).unwrap();
            crate::closed(v, file(0));
            // Other files wait for their time, as after any close.
            let waits = v.maintenance().unwritten_bytes() > 0;
            assert_eq!(waits, !replaced && route != Route::Journal, "{route:?}");
            v.engine().commit_all().unwrap();
            if replaced {
                assert!(b.read_after_a_crash(file(0), 7000) == [2; 6000], "{route:?}");
            }
            b.check();
        }
    }
}

/// F30, where the content was in the inode.
#[test]
fn a_file_in_its_inode_that_is_replaced_and_closed_is_not_empty_after_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("f"), [1; 50]).unwrap();
    let image = mke2fs("16M", &["-t", "ext4", "-O", "inline_data", "-I", "256", "-d", dir.path().to_str().unwrap()]);
    let b = Bench::on(image, options(Route::Ordered));
    let v = &b.volume;
    let ino = v.lookup(Ino::ROOT, b"f").unwrap().ino;
    v.truncate(ino, 0).unwrap();
    v.engine().commit_all().unwrap();
    v.write(ino, 0, &[2; 6000], WriteFlags::default()).unwrap();
    crate::closed(v, ino);
    v.engine().commit_all().unwrap();
    assert!(b.read_after_a_crash(ino, 7000) == [2; 6000]);
}

#[test]
fn extents_tell_of_delayed_unwritten_and_written_runs() {
    let b = bench(Route::Ordered);
    let v = &b.volume;
    v.write(file(0), 0, &[1; 8192], WriteFlags::default()).unwrap();
    v.fsync(file(0), false).unwrap();
    v.fallocate(file(0), Falloc::Allocate { keep_size: true }, 40_960, 4096).unwrap();
    v.write(file(0), 16_384, &[1; 12_288], WriteFlags::default()).unwrap();
    let kind = |e: &FileExtent| (e.logical, e.len, e.unwritten, e.delayed, e.last);
    let all = v.extents(file(0), 0, u64::MAX, 10).unwrap();
    let want =
        [(0, 8192, false, false, false), (16_384, 12_288, false, true, false), (40_960, 4096, true, false, true)];
    assert_eq!(all.iter().map(kind).collect::<Vec<_>>(), want);
    assert!(all[0].physical > 0 && all[1].physical == 0);
    assert_eq!(v.extents(file(0), 20_000, 1, 10).unwrap().iter().map(kind).collect::<Vec<_>>(), want[1..2]);
    assert_eq!(v.extents(file(0), 0, u64::MAX, 2).unwrap().iter().map(kind).collect::<Vec<_>>(), want[..2]);
    assert_eq!(v.extents(file(1), 0, u64::MAX, 2).unwrap(), []);
    b.check();
}

#[test]
fn ranges_are_copied() {
    let b = bench(Route::Ordered);
    let v = &b.volume;
    let data: Vec<u8> = (0..3_000_000u32).map(|n| u8::try_from(n % 251).unwrap()).collect();
    v.write(file(0), 0, &data, WriteFlags::default()).unwrap();
    assert_eq!(v.copy_range(place(0, 1000), place(1, 77), 10 << 20).unwrap(), 2_999_000);
    assert_eq!(b.read_all(file(1), 3 << 20)[77..], data[1000..]);
    assert!(v.copy_range(place(0, 0), place(0, 100), 101).is_err());
    assert_eq!(v.copy_range(place(0, 0), place(0, 100), 100).unwrap(), 100);
    assert_eq!(b.read_all(file(0), 3 << 20)[100..200], data[..100]);
    b.check();
}

/// F4: a file whose pending pages were dropped is queued for nobody, so background work does not look for it again and
/// again.
#[test]
fn what_is_cut_off_is_not_waited_for() {
    for route in [Route::Ordered, Route::Auto] {
        let b = bench(route);
        let v = &b.volume;
        let from_cache = WriteFlags { deferred: true, keep_times: true, ..WriteFlags::default() };
        for n in 0..10 {
            v.write(file(0), 0, &[1; 40_960], WriteFlags::default()).unwrap();
            v.fsync(file(0), false).unwrap();
            v.write(file(0), n * 4096, &[2; 4096], from_cache).unwrap();
            match n % 2 {
                0 => v.truncate(file(0), 0).unwrap(),
                _ => v.fallocate(file(0), Falloc::PunchHole, n * 4096, 4096).unwrap(),
            }
        }
        assert_eq!((v.data().files.pages(), v.data().files.oldest_since()), (0, None), "{route:?}");
        b.check();
    }
}

/// Steps do what is due and no more, by a clock of their own.
#[test]
fn steps_write_back_and_commit_in_their_time() {
    let device = Arc::new(MemDevice::new(mke2fs("16M", &["-t", "ext4"])));
    let clock = Arc::new(VirtualClock::default());
    let v = Volume::open(Devices::one(device), clock.clone(), options(Route::Ordered)).unwrap();
    let interval = v.engine().context.options.commit_interval;
    let idle = |v: &Volume| loop {
        if let Step::Idle(d) = v.maintenance().step().unwrap() {
            break d;
        }
    };
    clock.advance(Duration::from_secs(100));
    idle(&v);
    let new = crate::New { kind: crate::NewKind::File, mode: 0o644, umask: 0, cred: crate::Cred { uid: 0, gid: 0 } };
    let ino = v.create(Ino::ROOT, b"x", &new).unwrap().ino;
    v.write(ino, 0, &[1; 10], WriteFlags::default()).unwrap();
    let durable = v.engine().journal.durable();
    assert_eq!(idle(&v), interval);
    clock.advance(interval / 2);
    assert_eq!(idle(&v), interval - interval / 2);
    assert_eq!((v.engine().journal.durable(), v.data().files.pages()), (durable, 1));
    clock.advance(interval);
    idle(&v);
    clock.advance(interval);
    idle(&v);
    assert_eq!(v.data().files.pages(), 0);
    assert!(v.engine().journal.durable().after(durable) && !v.engine().journal.has_changes());
    assert_eq!(idle(&v), interval);
    drop(v.maintenance().spawn_background());
    v.close().unwrap();
}

/// A frozen image is clean and has all that was written before; what comes later waits.
#[test]
fn a_frozen_image_is_whole_and_writers_wait() {
    for route in ROUTES {
        let b = bench(route);
        let v = &b.volume;
        v.write(file(0), 0, &[1; 50_000], WriteFlags::default()).unwrap();
        v.maintenance().freeze().unwrap();
        let frozen = b.device.inner().inner().snapshot();
        quire_testkit::fsck(&frozen);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| v.write(file(1), 0, &[2; 10], WriteFlags::default()).unwrap());
            let syncer = scope
                .spawn(|| v.write(file(0), 0, &[3; 10], WriteFlags { sync: true, ..WriteFlags::default() }).unwrap());
            std::thread::sleep(Duration::from_millis(50));
            assert!(!writer.is_finished() && !syncer.is_finished());
            assert!(b.device.inner().inner().snapshot() == frozen, "a frozen image changed");
            v.maintenance().thaw().unwrap();
        });
        let device: Arc<dyn BlockDevice> = Arc::new(MemDevice::new(frozen));
        let then = Volume::open(Devices::one(device), Arc::new(SystemClock), options(route)).unwrap();
        let mut buf = vec![0; 60_000];
        assert_eq!(then.read(file(0), 0, &mut buf).unwrap(), 50_000);
        assert!(buf[..50_000] == [1; 50_000]);
        assert_eq!(b.read_all(file(0), 50_000)[..11], [3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 1]);
        b.check();
    }
}

/// A batch of writes is one transaction.
#[test]
fn a_batch_of_journaled_writes_is_all_or_nothing() {
    let b = bench(Route::Journal);
    let v = &b.volume;
    let before;
    {
        let batch = v.begin_batch().unwrap();
        before = b.device.inner().inner().snapshot();
        v.write(file(0), 0, &[1; 9000], WriteFlags::default()).unwrap();
        v.write(file(1), 5000, &[2; 9000], WriteFlags::default()).unwrap();
        assert_eq!(v.engine().journal.running(), batch.tid());
    }
    assert!(b.device.inner().inner().snapshot() == before, "nothing is written before the commit");
    v.maintenance().commit().unwrap();
    let after = b.after_a_crash();
    let sizes = [0, 1].map(|n| after.getattr(file(n)).unwrap().size);
    assert_eq!(sizes, [9000, 14_000]);
}

/// Data that lies in the inode is read.
#[test]
fn inline_data_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let contents: Vec<Vec<u8>> =
        [1, 59, 60, 61, 100, 5000].map(|n| vec![b'a' + u8::try_from(n % 20).unwrap(); n]).into();
    for (n, c) in contents.iter().enumerate() {
        std::fs::write(dir.path().join(format!("f{n}")), c).unwrap();
    }
    let image = mke2fs("8M", &["-t", "ext4", "-O", "inline_data", "-I", "256", "-d", dir.path().to_str().unwrap()]);
    let device: Arc<dyn BlockDevice> = Arc::new(MemDevice::new(image));
    let v = Volume::open(Devices::one(device), Arc::new(SystemClock), options(Route::Ordered)).unwrap();
    for (n, c) in contents.iter().enumerate() {
        let attr = v.lookup(Ino::ROOT, format!("f{n}").as_bytes()).unwrap();
        let mut buf = vec![0; 6000];
        let len = v.read(attr.ino, 0, &mut buf).unwrap();
        assert!(buf[..len] == **c, "file of {} bytes", c.len());
        let len = v.read(attr.ino, 10, &mut buf).unwrap();
        assert!(buf[..len] == c[c.len().min(10)..], "file of {} bytes, from byte 10", c.len());
    }
}

/// N10: a new size, and space given or taken, as with names and data.
#[test]
fn a_synchronous_file_needs_no_sync_after_truncate_and_fallocate() {
    type Change = fn(&Volume);
    let cuts: [Change; 4] = [
        |v| v.truncate(file(0), 5000).unwrap(),
        |v| v.truncate(file(0), 50_000).unwrap(),
        |v| v.fallocate(file(0), Falloc::PunchHole, 1000, 15_000).unwrap(),
        |v| v.fallocate(file(0), Falloc::Allocate { keep_size: false }, 0, 60_000).unwrap(),
    ];
    for (route, (n, cut)) in [Route::Ordered, Route::Auto, Route::Journal]
        .into_iter()
        .flat_map(|r| cuts.into_iter().enumerate().map(move |c| (r, c)))
    {
        let b = Bench::new("16M", &["-t", "ext4", "-b", "4096"], 1, options(route));
        let v = &b.volume;
        v.write(file(0), 0, &[7; 20_000], WriteFlags::default()).unwrap();
        v.inode_flags().set(file(0), v.inode_flags().get(file(0)).unwrap() | flags::SYNC).unwrap();
        v.sync().unwrap();
        cut(v);
        let is = |v: &Volume| {
            let (attr, mut read) = (v.getattr(file(0)).unwrap(), vec![9; 60_000]);
            let read_bytes = v.read(file(0), 0, &mut read).unwrap();
            read.truncate(read_bytes);
            (attr.size, attr.sectors, read)
        };
        assert!(is(&b.after_a_crash()) == is(v), "{route:?}, {n}");
        b.check();
    }
}

/// N1: a file without a name gets one between two operations of a truncate. A crash then leaves nothing behind its end,
/// and the last operation removes the record of the truncate.
#[test]
fn a_file_that_gets_its_name_during_a_truncate_is_cut_off_after_a_crash() {
    let new = New { kind: NewKind::File, mode: 0o600, umask: 0, cred: Cred::default() };
    for args in [
        &["-t", "ext4", "-b", "1024", "-O", "^orphan_file"][..],
        &["-t", "ext4", "-O", "orphan_file"],
        &["-t", "ext3", "-b", "1024"],
    ] {
        let b = Bench::new("24M", args, 0, options(Route::Ordered));
        let (v, bs) = (&b.volume, b.volume.superblock().block_size().bytes64());
        let ino = v.create_unnamed(Ino::ROOT, &new).unwrap().ino;
        for n in 0..300 {
            v.write(ino, 2 * n * bs, &[7; 100], WriteFlags::default()).unwrap();
        }
        v.sync().unwrap();
        let from = FileBlock(10);
        let whole = cut_off(v.data(), ino, (10 * bs, from), 1).unwrap();
        assert!(!whole, "the test has lost its point");
        v.link(ino, Ino::ROOT, b"name").unwrap();
        v.sync().unwrap();
        let device = Arc::new(MemDevice::new(b.device.inner().inner().snapshot()));
        let again = super::mount(device.clone(), &b.options, Arc::new(SystemClock));
        let a = again.lookup(Ino::ROOT, b"name").unwrap();
        assert_eq!((a.ino, a.links, a.size), (ino, 1, 10 * bs));
        assert!(again.inspect().extents(ino, 1000).unwrap().iter().all(|e| e.at < from), "{args:?}");
        again.close().unwrap();
        fsck(&device.snapshot());
        end_shrink(v.data(), ino, from).unwrap();
        assert_eq!(v.maintenance().unlinked(), []);
        assert!(v.inspect().extents(ino, 1000).unwrap().iter().all(|e| e.at < from), "{args:?}");
        v.unlink(Ino::ROOT, b"name").unwrap();
        assert!(v.link(ino, Ino::ROOT, b"again").is_err(), "it has had its name");
        b.check();
    }
}
