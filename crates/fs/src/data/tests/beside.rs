//! What nobody waits for in particular, beside commits that somebody waits for.

use super::{Bench, file, image, options};
use crate::Step;
use crate::config::Route;
use crate::data::WriteFlags;
use crate::{Devices, Options, Volume, Without};
use quire_device::sync::atomic::{AtomicU64, Ordering};
use quire_device::sync::{Arc, Mutex, lock};
use quire_device::{BlockDevice, Clock, Counted, DeviceError, DeviceInfo, Done, Io, Region, SystemClock, Ticket};
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
fn a_long_batch_does_not_wait_for_itself() {
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

/// A device that has a volume append to a file at each write of data, as long as that makes it wait for nothing.
struct Appending {
    inner: MemDevice,
    volume: Mutex<Option<Volume>>,
    appended: AtomicU64,
}

impl Appending {
    fn append(&self) {
        let Some(v) = lock(&self.volume).clone() else { return };
        let limits = v.data().limits;
        let (n, pages) = (self.appended.load(Ordering::SeqCst), limits.batch_pages());
        if n < 20 && v.data().files.pages() + pages <= limits.max_pages {
            self.appended.store(n + 1, Ordering::SeqCst);
            let end = v.getattr(file(0)).expect("attributes").size;
            v.write(file(0), end, &vec![2; pages * 4096], WriteFlags::default()).expect("write");
        }
    }
}

impl BlockDevice for Appending {
    fn info(&self) -> DeviceInfo {
        self.inner.info()
    }
    fn submit(&self, batch: Vec<Io>) -> Ticket {
        if batch.iter().any(|io| matches!(io, Io::Write { region: Region::Data, .. })) {
            self.append();
        }
        self.inner.submit(batch)
    }
    fn wait(&self, ticket: Ticket) -> Result<Done, DeviceError> {
        self.inner.wait(ticket)
    }
}

/// F27: fsync and sync write back what was there when they began, and end, however fast a file grows meanwhile.
#[test]
pub(super) fn an_fsync_and_a_sync_end_while_the_file_grows() {
    type Sync = fn(&Volume);
    let syncs: [Sync; 2] = [|v| v.fsync(file(0), false).expect("fsync"), |v| v.sync().expect("sync")];
    for sync in syncs {
        let device = Arc::new(Appending {
            inner: MemDevice::new(image("32M", &["-t", "ext4", "-b", "4096"], 1)),
            volume: Mutex::new(None),
            appended: AtomicU64::new(0),
        });
        let o = Options { cache_bytes: 1 << 20, direct_bytes: usize::MAX, ..options(Route::Ordered) };
        let open = |device| Volume::open(Devices::one(device), Arc::new(SystemClock), o.clone()).expect("mount");
        let v = open(device.clone());
        let len = v.data().limits.batch_pages() * 4096;
        v.write(file(0), 0, &vec![1; len], WriteFlags::default()).expect("write");
        *lock(&device.volume) = Some(v.clone());
        sync(&v);
        *lock(&device.volume) = None;
        let appended = device.appended.load(Ordering::SeqCst);
        assert!((1..4).contains(&appended), "it went on for {appended} rounds");
        let after = open(Arc::new(MemDevice::new(device.inner.snapshot())));
        let mut read = vec![0; len];
        assert_eq!(after.read(file(0), 0, &mut read).expect("read"), len);
        assert!(read.iter().all(|b| *b == 1));
        v.close().expect("unmount");
    }
}
