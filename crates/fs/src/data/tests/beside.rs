//! What nobody waits for in particular, beside commits that somebody waits for.

use super::{Bench, file, image, options};
use crate::Step;
use crate::config::Route;
use crate::data::WriteFlags;
use crate::{Devices, Options, Volume, Without};
use quire_device::sync::Arc;
use quire_device::{Clock, Counted, Region};
use quire_testkit::mke2fs;
use quire_testkit::{MemDevice, VirtualClock};
use std::sync::mpsc;
use std::time::Duration;

const MIB: u64 = 1 << 20;

#[test]
fn four_commits_within_a_second_are_often() {
    let clock = Arc::new(VirtualClock::default());
    let device = Arc::new(MemDevice::new(mke2fs("32M", &["-t", "ext4"])));
    let v = Volume::open(Devices::one(device), clock.clone(), Options::default()).expect("mount");
    for _ in 0..3 {
        v.data().note_commit();
        clock.sleep(Duration::from_millis(300));
        assert!(!v.status().commits_are_frequent, "now and then somebody commits");
    }
    v.data().note_commit();
    assert!(v.status().commits_are_frequent, "four times within a second");
    clock.sleep(Duration::from_millis(100));
    assert!(!v.status().commits_are_frequent, "the first was a second ago");
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

/// Who syncs a little does not wait for the batch that makes room for a stream.
#[test]
fn while_commits_come_often_room_is_made_of_large_files() {
    let synced = |without| {
        let o = Options { direct_bytes: usize::MAX, without, ..options(Route::Ordered) };
        let b = Bench::new("128M", &["-t", "ext4", "-b", "4096", "-J", "size=32"], 3, o);
        b.volume.write(file(1), 0, &[2; 8192], WriteFlags::default()).expect("write");
        (0..4).for_each(|_| b.volume.data().note_commit());
        let max_pages = b.volume.data().limits.max_pages;
        for page in 0..=max_pages as u64 {
            b.volume.write(file(2), page * 4096, &[1; 4096], WriteFlags::default()).expect("write");
        }
        let did = b.counted(|| b.volume.fsync(file(1), false).expect("fsync"));
        b.check();
        did.region(Region::Data).writes.bytes
    };
    assert_eq!(synced(Without::default()), 8192);
    assert_eq!(synced(Without { small_files: true, ..Without::default() }), 0, "the batch has written it");
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
    let more_than_half = v.data().limits.max_pages / 2 + 1;
    v.write(file(0), 0, &vec![2; more_than_half * 4096], WriteFlags::default()).expect("write");
    assert_eq!(v.maintenance().step().expect("step"), Step::Did);
    let before = device.snapshot();
    v.fsync(file(1), false).expect("fsync");
    assert_eq!(device.snapshot().since(&before).region(Region::Data).writes.bytes, 0, "it was written");
    v.close().expect("unmount");
}

/// A batch of many pieces goes on when its own are complete.
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
