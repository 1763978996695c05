//! Writes, flushes and commits that fail.

use super::{Bench, Then, file, image, options};
use crate::config::{Options, Route};
use crate::data::{Falloc, WriteFlags};
use crate::error::Error;
use crate::{Devices, Volume};
use quire_device::sync::Arc;
use quire_device::{BlockDevice, DeviceError, DeviceInfo, Done, ErrorKind, Io, IoOp, Region, SystemClock, Ticket};
use quire_layout::superblock::OnError;
use quire_testkit::{Fault, FaultKind, Faulty, MemDevice, fsck};

fn bench(route: Route, on_error: OnError) -> Bench {
    let o = Options { on_error: Some(on_error), ..options(route) };
    Bench::new("16M", &["-t", "ext4", "-b", "4096"], 3, o)
}

fn fault(op: IoOp, region: Region) -> Fault {
    Fault::once(op, FaultKind::Error(ErrorKind::Io)).in_region(region)
}

/// F6: data that was lost is told by every later fsync of the file, not by those of others.
#[test]
fn a_failed_data_write_is_told_again_and_again() {
    for on_error in [OnError::Continue, OnError::RemountReadOnly] {
        let b = bench(Route::Ordered, on_error);
        let v = &b.volume;
        v.write(file(1), 0, &[5; 9000], WriteFlags::default()).unwrap();
        v.fsync(file(1), false).unwrap();
        v.write(file(0), 0, &[6; 9000], WriteFlags::default()).unwrap();
        // Whoever writes back: the error waits for the one who asks. Twice, because each write is tried alone.
        let mut f = fault(IoOp::Write, Region::Data);
        f.times = Some(2);
        b.device.inner().inject(f);
        v.sync().unwrap_err();
        for datasync in [true, false, true] {
            assert!(matches!(v.fsync(file(0), datasync), Err(Error::Device(_))), "{on_error:?}");
        }
        v.fsync(file(1), false).unwrap();
        let more = v.write(file(0), 0, &[7; 10], WriteFlags::default());
        match on_error {
            OnError::Continue => {
                more.unwrap();
                assert!(matches!(v.fsync(file(0), false), Err(Error::Device(_))));
            }
            _ => assert!(matches!(more, Err(Error::ReadOnly(_)))),
        }
        assert_eq!(b.read_all(file(1), 9000), [5; 9000]);
        v.close().unwrap_err();
    }
}

/// A device that can write no page that begins with 9.
struct Picky(Faulty<MemDevice>);

impl BlockDevice for Picky {
    fn info(&self) -> DeviceInfo {
        self.0.info()
    }
    fn submit(&self, batch: Vec<Io>) -> Ticket {
        for io in &batch {
            let (at, len) = io.range();
            if matches!(io, Io::Write { data, region: Region::Data, .. } if data.iter().any(|page| page[0] == 9)) {
                self.0.inject(Fault::always(IoOp::Write, FaultKind::Error(ErrorKind::Io)).within(at..at + len));
            }
        }
        self.0.submit(batch)
    }
    fn wait(&self, ticket: Ticket) -> Result<Done, DeviceError> {
        self.0.wait(ticket)
    }
}

/// F28, as with ext4: a write that fails takes along its own pages, and no others that the file has got at the same
/// time. What is lost reads as zeros; where requests are whole, all of the batch is lost.
#[test]
pub(super) fn a_failed_write_loses_its_own_pages_and_no_others() {
    const PER_WRITE: usize = crate::policy::PAGES_PER_WRITE * 4096;
    for (route, bad) in
        [(Route::Ordered, 0), (Route::Ordered, 1), (Route::Writeback, 2), (Route::Selective, 1), (Route::Overwrite, 1)]
    {
        let mut bytes: Vec<u8> = (0..3 * PER_WRITE).map(|n| u8::try_from(n / 4096 % 8 + 1).unwrap()).collect();
        bytes.truncate(3 * PER_WRITE - 5000);
        let lost = bad * PER_WRITE..bytes.len().min((bad + 1) * PER_WRITE);
        bytes[lost.clone()].fill(9);
        let device = Arc::new(Picky(Faulty::new(MemDevice::new(image("16M", &["-t", "ext4", "-b", "4096"], 1)))));
        let options = Options { on_error: Some(OnError::Continue), direct_bytes: usize::MAX, ..options(route) };
        let v = Volume::open(Devices::one(device.clone()), Arc::new(SystemClock), options).unwrap();
        v.write(file(0), 0, &bytes, WriteFlags::default()).unwrap();
        assert!(matches!(v.fsync(file(0), false), Err(Error::Device(_))), "{route:?}");
        assert!(matches!(v.fsync(file(0), false), Err(Error::Device(_))), "{route:?}");
        v.close().unwrap_err();
        let after = Arc::new(MemDevice::new(device.0.inner().snapshot()));
        fsck(&after.snapshot());
        let v = Volume::open(Devices::one(after), Arc::new(SystemClock), super::options(route)).unwrap();
        let mut read = vec![7; bytes.len()];
        let n = v.read(file(0), 0, &mut read).unwrap();
        bytes[if route == Route::Overwrite { 0..n } else { lost }].fill(0);
        assert!(n == bytes.len() || route == Route::Overwrite, "{route:?}, {bad}: {n} bytes");
        assert!(read[..n] == bytes[..n], "{route:?}, {bad}");
    }
}

/// F28: an overwrite that fails leaves older bytes. Then no size is recorded that could uncover them, nor anything
/// behind.
#[test]
fn a_failed_overwrite_uncovers_nothing_behind_the_old_end() {
    let device = Arc::new(Picky(Faulty::new(MemDevice::new(image("16M", &["-t", "ext4", "-b", "4096"], 1)))));
    let options = Options { on_error: Some(OnError::Continue), direct_bytes: usize::MAX, ..options(Route::Ordered) };
    let v = Volume::open(Devices::one(device.clone()), Arc::new(SystemClock), options).unwrap();
    v.write(file(0), 0, &[5; 4096], WriteFlags::default()).unwrap();
    v.fsync(file(0), false).unwrap();
    v.write(file(0), 0, &[9; 4096 * 3], WriteFlags::default()).unwrap();
    v.write(file(0), 4096 * 2, &[6; 4096 * 2], WriteFlags::default()).unwrap();
    v.fsync(file(0), false).unwrap_err();
    let again = MemDevice::new(device.0.inner().snapshot());
    let crashed = Volume::open(Devices::one(Arc::new(again)), Arc::new(SystemClock), super::options(Route::Ordered));
    let (crashed, mut read) = (crashed.unwrap(), vec![0; 4096 * 4]);
    let n = crashed.read(file(0), 0, &mut read).unwrap();
    assert_eq!(read[..n], [5; 4096]);
}

/// The end of a volume that has turned read-only tells what was accepted and is lost.
#[test]
fn the_end_of_a_volume_that_turned_read_only_tells_what_is_lost() {
    type Change = fn(&Volume);
    let changes: [(Change, bool); 4] = [
        (|v| v.sync().unwrap(), false),
        (|v| v.write(file(0), 0, &[6; 9000], WriteFlags::default()).and_then(|_| v.sync()).unwrap(), false),
        (|v| assert_eq!(v.write(file(0), 0, &[6; 9000], WriteFlags::default()).unwrap(), 9000), true),
        (|v| v.truncate(file(0), 5000).unwrap(), true),
    ];
    for (n, (change, loses)) in changes.into_iter().enumerate() {
        let b = bench(Route::Ordered, OnError::Continue);
        change(&b.volume);
        b.volume.engine().write_gate.turn_read_only("a test");
        let closed = b.volume.close();
        assert!(if loses { matches!(closed, Err(Error::ReadOnly(_))) } else { closed.is_ok() }, "{n}: {closed:?}");
        b.volume.close().unwrap();
    }
}

/// `data_err=abort`: with data lost nothing is written any more, though `errors=continue`.
#[test]
fn a_failed_data_write_ends_the_volume_if_asked_to() {
    for aborts in [false, true] {
        let o = Options { on_error: Some(OnError::Continue), data_error_aborts: aborts, ..options(Route::Ordered) };
        let b = Bench::new("16M", &["-t", "ext4", "-b", "4096"], 2, o);
        let v = &b.volume;
        v.write(file(0), 0, &[6; 9000], WriteFlags::default()).unwrap();
        b.device.inner().inject(Fault { times: Some(2), ..fault(IoOp::Write, Region::Data) });
        v.sync().unwrap_err();
        let more = v.write(file(1), 0, &[7; 10], WriteFlags::default()).and_then(|_| v.fsync(file(1), false));
        assert!(if aborts { matches!(more, Err(Error::ReadOnly(_))) } else { more.is_ok() }, "{more:?}");
        v.close().unwrap_err();
    }
}

/// An error among the writes of many files hits only the file whose write it is.
#[test]
fn an_error_is_told_of_the_right_file() {
    let b = bench(Route::Ordered, OnError::Continue);
    let v = &b.volume;
    for n in 0..3 {
        v.write(file(n), 0, &[8; 4096], WriteFlags::default()).unwrap();
        v.fsync(file(n), false).unwrap();
    }
    let bad = v.extents(file(1), 0, 1, 1).unwrap()[0].physical;
    for n in 0..3 {
        v.write(file(n), 0, &[9; 4096], WriteFlags::default()).unwrap();
    }
    b.device.inner().inject(Fault::always(IoOp::Write, FaultKind::Error(ErrorKind::Io)).within(bad..bad + 1));
    v.sync().unwrap_err();
    let results: Vec<bool> = (0..3).map(|n| v.fsync(file(n), false).is_ok()).collect();
    // Neighbours in one device write share its fate; all were told, and none wrongly to be fine.
    assert!(!results[1]);
    b.device.inner().heal();
    for n in (0..3).filter(|n| results[usize::try_from(*n).unwrap()]) {
        assert_eq!(b.read_all(file(n), 4096), [9; 4096]);
    }
}

/// After a failed log write nothing becomes durable any more, for nobody.
#[test]
fn a_failed_commit_fails_every_later_fsync() {
    for route in [Route::Ordered, Route::Journal] {
        let b = bench(route, OnError::RemountReadOnly);
        let v = &b.volume;
        v.write(file(0), 0, &[1; 5000], WriteFlags::default()).unwrap();
        b.device.inner().inject(fault(IoOp::Write, Region::Log));
        v.fsync(file(0), false).unwrap_err();
        for n in 0..3 {
            v.fsync(file(n), false).unwrap_err();
        }
        assert!(matches!(v.write(file(1), 0, &[1; 10], WriteFlags::default()), Err(Error::ReadOnly(_))));
        assert!(v.sync().is_err() && v.close().is_err());
    }
}

/// A flush that failed leaves nobody knowing what is durable.
#[test]
fn a_failed_flush_is_told() {
    let b = bench(Route::Ordered, OnError::Continue);
    let v = &b.volume;
    v.write(file(0), 0, &[1; 4096], WriteFlags::default()).unwrap();
    v.fsync(file(0), false).unwrap();
    v.write(file(0), 0, &[2; 4096], WriteFlags::default()).unwrap();
    b.device.inner().inject(Fault::once(IoOp::Flush, FaultKind::Error(ErrorKind::Io)));
    v.fsync(file(0), true).unwrap_err();
    v.fsync(file(0), true).unwrap_err();
    v.fsync(file(0), false).unwrap_err();
}

/// A read error under a write of less than a block refuses the write and changes nothing.
#[test]
fn a_failed_read_refuses_the_write() {
    let mut b = bench(Route::Ordered, OnError::Continue);
    b.volume.write(file(0), 0, &[1; 8192], WriteFlags::default()).unwrap();
    b.remount();
    b.device.inner().inject(fault(IoOp::Read, Region::Data));
    assert!(matches!(b.volume.write(file(0), 100, &[2; 10], WriteFlags::default()), Err(Error::Device(_))));
    assert_eq!(b.read_all(file(0), 8192), [1; 8192]);
    b.volume.write(file(0), 100, &[2; 10], WriteFlags::default()).unwrap();
    b.check();
}

/// N8, F13: a truncate that cannot read the bitmap in which it would free blocks leaves the file as it was: what was
/// written and is not on the disk yet is there, and has its space.
#[test]
fn a_truncate_that_fails_takes_nothing_from_the_file() {
    const OLD: usize = 1 << 20;
    let in_place = [Route::Ordered, Route::Writeback, Route::Selective];
    let all = [Route::Ordered, Route::Writeback, Route::Selective, Route::Overwrite, Route::Adaptive];
    for args in [&["-t", "ext4", "-b", "4096"][..], &["-t", "ext3", "-b", "4096"]] {
        for (written, size) in [(OLD, OLD / 2), (OLD, 0), (OLD + 300_000, OLD - 5000), (OLD + 300_000, 0)] {
            // New blocks of the part that stays would need the bitmap, too, where requests are whole.
            for route in if written > OLD { &in_place[..] } else { &all } {
                let options =
                    Options { on_error: Some(OnError::Continue), direct_bytes: usize::MAX, ..options(*route) };
                let mut b = Bench::new("16M", args, 1, options);
                b.volume.write(file(0), 0, &[1; OLD], WriteFlags::default()).unwrap();
                b.remount();
                b.volume.write(file(0), 0, &vec![2; written], WriteFlags::default()).unwrap();
                let pending = |b: &Bench| (b.volume.statfs().free, b.volume.maintenance().unwritten_bytes());
                let before = pending(&b);
                b.refuse_bitmaps();
                let failed = b.volume.truncate(file(0), size as u64);
                assert!(failed.as_ref().is_err_and(|e| e.errno() == 5), "{args:?}, {route:?}, {size}: {failed:?}");
                let is_whole = |b: &Bench| b.read_all(file(0), written + 1) == vec![2; written];
                assert!(is_whole(&b), "{args:?}, {route:?}, {size}");
                assert!(!in_place.contains(route) || size > 0 || pending(&b) == before, "{args:?}, {route:?}");
                b.device.inner().heal();
                b.volume.fsync(file(0), false).unwrap();
                assert!(b.read_after_a_crash(file(0), written + 1) == vec![2; written]);
                b.remount();
                assert!(is_whole(&b), "{args:?}, {route:?}, {size}");
                b.volume.truncate(file(0), size as u64).unwrap();
                assert!(b.read_all(file(0), size) == vec![2; size]);
                b.check();
            }
        }
    }
}

/// N8: an insertion that finds no space for a new entry of the block map has moved nothing, and succeeds later.
#[test]
fn an_insertion_that_fails_leaves_the_content_as_it_was() {
    const BLOCK: usize = 4096;
    for route in [Route::Ordered, Route::Journal] {
        let mut b = bench(route, OnError::Continue);
        // Four extents are all that the inode holds. The cut across the second one needs a block of the tree.
        for n in 0..4u8 {
            let at = u64::from(n) * 5 * BLOCK as u64;
            b.volume.write(file(0), at, &[n + 1; 3 * BLOCK], WriteFlags::default()).unwrap();
        }
        b.remount();
        let mut model = b.read_all(file(0), 18 * BLOCK);
        let (at, len) = (6 * BLOCK, 2 * BLOCK);
        let insert = |v: &Volume| v.fallocate(file(0), Falloc::Insert, at as u64, len as u64);
        b.refuse_bitmaps();
        let failed = insert(&b.volume);
        assert!(failed.as_ref().is_err_and(|e| e.errno() == 5), "{route:?}: {failed:?}");
        b.device.inner().heal();
        assert!(b.read_all(file(0), 20 * BLOCK) == model, "{route:?}");
        assert!(b.read_after_a_crash(file(0), 20 * BLOCK) == model, "{route:?}");
        insert(&b.volume).unwrap();
        model.splice(at..at, vec![0; len]);
        assert!(b.read_all(file(0), 20 * BLOCK) == model, "{route:?}");
        b.remount();
        assert!(b.read_all(file(0), 20 * BLOCK) == model, "{route:?}");
        b.check();
    }
}

/// F13: a page that changes while its batch fails has a block reserved again; others cannot take it.
#[test]
fn a_page_that_changes_during_a_failed_batch_keeps_its_space() {
    const PAGES: usize = 300;
    for args in [&["-t", "ext4"][..], &["-t", "ext3"]] {
        let image = image("3M", &[args, &["-b", "1024", "-m", "0", "-O", "^resize_inode", "-J", "size=1"]].concat(), 2);
        let is_data = |io: &Io| matches!(io, Io::Write { region: Region::Data, .. });
        let device = Arc::new(Then::around(Faulty::new(MemDevice::new(image)), is_data));
        let options =
            Options { on_error: Some(OnError::Continue), direct_bytes: usize::MAX, ..options(Route::Ordered) };
        let v = Volume::open(Devices::one(device.clone()), Arc::new(SystemClock), options).unwrap();
        // Some have pointer blocks, where there are such; and they are more than the allocator keeps for its own use.
        v.write(file(0), 0, &[6; PAGES << 10], WriteFlags::default()).unwrap();
        let theirs = v.clone();
        device.set(move || {
            theirs.write(file(0), 0, &[7; PAGES << 10], WriteFlags::default()).unwrap();
        });
        device.inner.inject(Fault::always(IoOp::Write, FaultKind::Error(ErrorKind::Io)).in_region(Region::Data));
        v.fsync(file(0), false).unwrap_err();
        device.inner.heal();
        assert!(device.has_done_it() && v.data().files.pages() == PAGES);
        let filled = (0u64..).map(|n| v.write(file(1), n << 10, &[8; 1024], WriteFlags::default()));
        let filled = filled.take_while(Result::is_ok).count();
        assert!(filled > 500, "{filled} blocks");
        v.fsync(file(1), false).unwrap();
        v.sync().unwrap_err();
        v.close().unwrap_err();
        let after = device.inner.inner().snapshot();
        let (devices, clock) = (Devices::one(Arc::new(MemDevice::new(after))), Arc::new(SystemClock));
        let v = Volume::open(devices, clock, super::options(Route::Ordered)).unwrap();
        let mut read = vec![0; PAGES << 10];
        v.read(file(0), 0, &mut read).unwrap();
        assert!(read.iter().all(|b| *b == 7), "{args:?}");
    }
}
