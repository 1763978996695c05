//! What nobody waits for in particular, beside commits that somebody waits for.

use super::{Bench, file, image, options};
use crate::Step;
use crate::config::Route;
use crate::data::WriteFlags;
use crate::data::context::Data;
use crate::data::throttle::{Entered, Traffic};
use crate::{Devices, Options, Volume};
use quire_device::sync::Arc;
use quire_device::{Clock, Counted, Region};
use quire_testkit::mke2fs;
use quire_testkit::{MemDevice, VirtualClock};
use std::sync::mpsc;
use std::time::Duration;

const MIB: u64 = 1 << 20;

fn with_traffic<T>(d: &Data, f: impl FnOnce(Traffic<'_>) -> T) -> T {
    let (frequent, now) = (|| d.commits_are_frequent(), || d.engine.clock.monotonic());
    f(Traffic { journal: &d.engine.journal, pace: &d.pace, commits_are_frequent: &frequent, now: &now })
}

fn try_enter(v: &Volume, bytes: u64) -> Option<Entered> {
    with_traffic(v.data(), |t| v.data().throttle.try_enter(bytes, t))
}

fn leave(v: &Volume, entered: Entered) {
    with_traffic(v.data(), |t| v.data().throttle.leave(entered, t));
}

#[test]
fn while_commits_come_often_little_is_under_way() {
    let clock = Arc::new(VirtualClock::default());
    let device = Arc::new(MemDevice::new(mke2fs("32M", &["-t", "ext4"])));
    let v = Volume::open(Devices::one(device), clock.clone(), Options::default()).expect("mount");
    // A usual SSD is assumed: 1.6 MB in 4 ms.
    let both = |v: &Volume| {
        let first = try_enter(v, MIB).expect("it is alone");
        let second = try_enter(v, MIB);
        let admitted = second.is_some();
        second.into_iter().chain([first]).for_each(|e| leave(v, e));
        admitted
    };
    assert!(!v.status().commits_are_frequent && both(&v), "nobody commits");
    for _ in 0..3 {
        v.data().note_commit();
        clock.sleep(Duration::from_millis(300));
        assert!(!v.status().commits_are_frequent && both(&v), "now and then somebody does");
    }
    v.data().note_commit();
    assert!(v.status().commits_are_frequent && !both(&v), "four times within a second");
    let large = try_enter(&v, 64 * MIB).expect("what is alone goes, however large it is");
    leave(&v, large);
    clock.sleep(Duration::from_millis(100));
    assert!(!v.status().commits_are_frequent && both(&v), "the first was a second ago");
}

/// Whatever an fsync needs, a commit, a flush or both, it counts once.
#[test]
fn three_fsyncs_are_not_often() {
    let b = Bench::new("64M", &["-t", "ext4", "-b", "4096"], 1, options(Route::Ordered));
    for n in 0..3 {
        b.volume.write(file(0), n * 4096, &[7; 4096], WriteFlags::default()).expect("write");
        b.volume.fsync(file(0), false).expect("fsync");
    }
    assert!(!b.volume.status().commits_are_frequent);
    b.check();
}

/// A stream waits in memory, and its write-back begins early; who syncs a little does not wait for that round.
#[test]
fn while_commits_come_often_rounds_leave_small_files_alone() {
    let o = Options { direct_bytes: 64 << 10, auto_threshold: Some(4096), ..options(Route::Auto) };
    let b = Bench::new("128M", &["-t", "ext4", "-b", "4096", "-J", "size=32"], 3, o);
    let cached = WriteFlags { deferred: true, keep_times: true, ..WriteFlags::default() };
    let stream = vec![1; 4 << 20];
    let written = |f: &dyn Fn()| b.counted(f).region(Region::Data).writes.bytes;
    let writes = |n| b.volume.write(file(n), 0, &stream, cached).map(drop).expect("write");
    assert_eq!(written(&|| writes(0)), 4 * MIB, "nobody commits");
    (0..4).for_each(|_| b.volume.data().note_commit());
    b.volume.write(file(1), 0, &[2; 8192], cached).expect("write");
    assert_eq!(written(&|| writes(2)), 0);
    assert_eq!(
        written(&|| assert_eq!(b.volume.maintenance().step().expect("step"), Step::Did)),
        4 * MIB,
        "an eighth of what may be dirty is"
    );
    assert_eq!(written(&|| b.volume.fsync(file(1), false).expect("fsync")), 8192);
    b.check();
}

/// Room is made of large files; what is old is written back all the same, without end as the stream may be.
#[test]
fn what_is_old_does_not_wait_for_a_stream() {
    let clock = Arc::new(VirtualClock::default());
    let device = Arc::new(Counted::new(MemDevice::new(image("128M", &["-t", "ext4", "-b", "4096"], 2))));
    let o = Options { direct_bytes: usize::MAX, ..options(Route::Ordered) };
    let v = Volume::open(Devices::one(device.clone()), clock.clone(), o).expect("mount");
    v.write(file(1), 0, &[1; 4096], WriteFlags::default()).expect("write");
    clock.sleep(v.engine().context.options.commit_interval + Duration::from_millis(1));
    (0..4).for_each(|_| v.data().note_commit());
    v.write(file(0), 0, &vec![2; 4 << 20], WriteFlags::default()).expect("write");
    let before = device.snapshot();
    assert_eq!(v.maintenance().step().expect("step"), Step::Did);
    let did = device.snapshot().since(&before);
    assert_eq!(did.region(Region::Data).writes.bytes, 4 * MIB + 4096);
    assert_eq!(v.data().files.pages(), 0);
    v.close().expect("unmount");
}

/// The pieces of one batch fill the throttle: it goes on when its own are complete.
#[test]
fn a_long_round_does_not_wait_for_itself() {
    let b = Bench::new(
        "64M",
        &["-t", "ext4", "-b", "4096"],
        1,
        Options { direct_bytes: usize::MAX, ..options(Route::Ordered) },
    );
    let data = vec![7; 12 * usize::try_from(MIB).unwrap()];
    let before = b.device.snapshot();
    let (done, is_done) = mpsc::channel();
    let v = b.volume.clone();
    std::thread::spawn(move || {
        (0..4).for_each(|_| v.data().note_commit());
        v.write(file(0), 0, &data, WriteFlags::default()).expect("write");
        v.fsync(file(0), false).expect("fsync");
        done.send(v.status().commits_are_frequent).ok();
    });
    assert!(is_done.recv_timeout(Duration::from_secs(60)).expect("it ends"), "all within a second");
    let did = b.device.snapshot().since(&before);
    assert_eq!(did.region(Region::Data).writes.bytes, 12 * MIB);
    b.check();
}
