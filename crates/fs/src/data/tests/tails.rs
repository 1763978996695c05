//! What lies behind the end of a file in its last block (F3), and commits in the middle of a batch (F8).

use super::{Bench, TestDevice, file, image, mount, options};
use crate::config::Route;
use crate::data::{Falloc, WriteFlags};
use crate::{Devices, Volume};
use quire_device::sync::{Arc, Mutex, lock, thread};
use quire_device::{BlockDevice, Counted, DeviceError, DeviceInfo, Done, Io, IoOp, Region, SystemClock};
use quire_device::{Buf, Ticket};
use quire_testkit::{Faulty, MemDevice};
use std::time::Duration;

const ROUTES: [Route; 2] = [Route::Ordered, Route::Journal];

/// Where the last block of file 0 is in the image.
fn last_block(b: &Bench) -> u64 {
    b.volume.extents(file(0), 0, u64::MAX, 9).unwrap().last().unwrap().physical
}

/// Another writer may have left anything behind the end; growing over it shows zeros, whatever makes the file grow.
#[test]
fn what_lies_behind_the_end_is_never_shown() {
    type Grow = fn(&Volume);
    let grow: [(&str, Grow); 8] = [
        ("write behind the end", |v| {
            assert_eq!(v.write(file(0), 20_000, &[1; 10], WriteFlags::default()).unwrap(), 10)
        }),
        ("write in the last block", |v| {
            assert_eq!(v.write(file(0), 3000, &[1; 10], WriteFlags::default()).unwrap(), 10)
        }),
        ("write behind the end after a punch", |v| {
            v.fallocate(file(0), Falloc::PunchHole, 100, 50).unwrap();
            v.write(file(0), 100, &[7; 50], WriteFlags::default()).unwrap();
            v.write(file(0), 20_000, &[1; 10], WriteFlags::default()).unwrap();
        }),
        ("write in the last block after a punch", |v| {
            v.fallocate(file(0), Falloc::PunchHole, 100, 50).unwrap();
            v.write(file(0), 100, &[7; 50], WriteFlags::default()).unwrap();
            v.write(file(0), 3000, &[1; 10], WriteFlags::default()).unwrap();
        }),
        ("append", |v| {
            let append = WriteFlags { append: true, ..WriteFlags::default() };
            v.write(file(0), 0, &[1; 1], append).unwrap();
            v.truncate(file(0), 5000).unwrap();
        }),
        ("truncate", |v| v.truncate(file(0), 5000).unwrap()),
        ("allocate", |v| v.fallocate(file(0), Falloc::Allocate { keep_size: false }, 0, 9000).unwrap()),
        ("zero range", |v| v.fallocate(file(0), Falloc::ZeroRange { keep_size: false }, 8192, 9000).unwrap()),
    ];
    for route in ROUTES {
        for (how, grow) in &grow {
            let mut b = Bench::new("16M", &["-t", "ext4", "-b", "4096"], 1, options(route));
            b.volume.write(file(0), 0, &[7; 1000], WriteFlags::default()).unwrap();
            let at = {
                b.volume.sync().unwrap();
                last_block(&b)
            };
            b.check();
            let mut block = vec![7; 1000];
            block.resize(4096, 0xAA);
            b.device.write(at, Arc::new(Buf::copy_of(&block)), Region::Data).unwrap();
            b.mount_again();
            grow(&b.volume);
            for _ in 0..2 {
                let got = b.read_all(file(0), 30_000);
                assert!(got[..1000] == [7; 1000] && !got.contains(&0xAA), "{route:?}: {how}");
                b.remount();
            }
        }
    }
}

/// A truncate leaves zeros in the last block for whoever mounts the image next.
#[test]
fn a_truncate_zeroes_the_rest_of_the_block() {
    for route in ROUTES {
        let b = Bench::new("16M", &["-t", "ext4", "-b", "4096"], 1, options(route));
        b.volume.write(file(0), 0, &[7; 9000], WriteFlags::default()).unwrap();
        b.volume.sync().unwrap();
        b.volume.truncate(file(0), 5000).unwrap();
        b.volume.sync().unwrap();
        let at = last_block(&b);
        b.check();
        let block = b.device.read(at + 4096, 4096, Region::Data).unwrap();
        assert!(block[..904] == [7; 904] && block[904..].iter().all(|b| *b == 0), "{route:?}");
    }
}

/// The same if the power is lost as soon as the truncate is durable.
#[test]
fn a_truncate_that_is_durable_has_left_zeros_behind_the_end() {
    for route in ROUTES {
        let b = Bench::new("16M", &["-t", "ext4", "-b", "4096"], 1, options(route));
        b.volume.write(file(0), 0, &[7; 9000], WriteFlags::default()).unwrap();
        b.volume.sync().unwrap();
        b.volume.truncate(file(0), 5000).unwrap();
        b.volume.engine().commit_all().unwrap();
        let at = last_block(&b);
        let device = Arc::new(MemDevice::new(b.device.inner().inner().snapshot()));
        mount(device.clone(), &b.options, Arc::new(SystemClock)).close().unwrap();
        let block = device.read(at + 4096, 4096, Region::Data).unwrap();
        assert!(block[..904] == [7; 904] && block[904..].iter().all(|b| *b == 0), "{route:?}");
    }
}

type Action = Box<dyn FnOnce() + Send>;

/// Does something once, before a read or a write of file data goes to the device.
struct Hook {
    inner: Arc<TestDevice>,
    before: Mutex<Option<(IoOp, Action)>>,
}

impl Hook {
    fn mount(size: &str) -> (Arc<Hook>, Volume) {
        let disk = MemDevice::new(image(size, &["-t", "ext4", "-b", "4096", "-m", "0"], 3));
        let hook = Arc::new(Hook { inner: Arc::new(Counted::new(Faulty::new(disk))), before: Mutex::new(None) });
        let device: Arc<dyn BlockDevice> = hook.clone();
        let v = Volume::open(Devices::one(device), Arc::new(SystemClock), options(Route::Ordered)).unwrap();
        (hook, v)
    }

    fn set(&self, op: IoOp, action: impl FnOnce() + Send + 'static) {
        *lock(&self.before) = Some((op, Box::new(action)));
    }
}

impl BlockDevice for Hook {
    fn info(&self) -> DeviceInfo {
        self.inner.info()
    }

    fn submit(&self, batch: Vec<Io>) -> Ticket {
        let is_data =
            |io: &Io| matches!(io, Io::Read { region: Region::Data, .. } | Io::Write { region: Region::Data, .. });
        let action = lock(&self.before).take_if(|(op, _)| batch.iter().any(|io| io.op() == *op && is_data(io)));
        if let Some((_, action)) = action {
            action();
        }
        self.inner.submit(batch)
    }

    fn wait(&self, ticket: Ticket) -> Result<Done, DeviceError> {
        self.inner.wait(ticket)
    }
}

/// F2, F11: while somebody reads, the file's blocks stay its own: who frees them waits, so nobody else's bytes are
/// read.
#[test]
fn blocks_that_are_being_read_are_not_given_away() {
    // More than the volume keeps back: whoever writes as much takes these blocks.
    const LEN: usize = 1 << 20;
    let (hook, v) = Hook::mount("8M");
    v.write(file(0), 0, &vec![7; LEN], WriteFlags::default()).unwrap();
    v.sync().unwrap();
    let mut at = 0;
    while v.write(file(1), at, &[0xBB; 4096], WriteFlags::default()).is_ok() {
        at += 4096;
    }
    v.sync().unwrap();
    let other = v.clone();
    hook.set(IoOp::Read, move || {
        let thief = thread::spawn(move || {
            other.truncate(file(0), 0).unwrap();
            other.sync().unwrap();
            other.write(file(2), 0, &vec![0xAA; LEN], WriteFlags::default()).unwrap();
            other.sync().unwrap();
        });
        // If it is made to wait, this is long enough; else it is done long before.
        for _ in 0..30 {
            thread::sleep(Duration::from_millis(10));
            if thief.is_finished() {
                return;
            }
        }
    });
    let mut buf = vec![0; LEN];
    assert_eq!(v.read(file(0), 0, &mut buf).unwrap(), LEN);
    assert!(buf.iter().all(|b| *b == 7), "another file's bytes");
}

/// F2: a truncate waits for the batch that is under way; the batch does not bring back what it cut off.
#[test]
fn a_truncate_waits_for_the_batch() {
    let (hook, v) = Hook::mount("8M");
    let free = v.statfs().free;
    v.write(file(0), 0, &[7; 100_000], WriteFlags::default()).unwrap();
    let other = v.clone();
    let (done, told) = (Arc::new(Mutex::new(false)), Arc::new(Mutex::new(false)));
    let (theirs, seen) = (done.clone(), told.clone());
    hook.set(IoOp::Write, move || {
        thread::spawn(move || {
            other.truncate(file(0), 0).unwrap();
            *lock(&theirs) = true;
        });
        thread::sleep(Duration::from_millis(100));
        *lock(&seen) = true;
    });
    v.fsync(file(0), false).unwrap();
    assert!(*lock(&told));
    while !*lock(&done) {
        thread::sleep(Duration::from_millis(1));
    }
    v.sync().unwrap();
    assert_eq!(v.getattr(file(0)).unwrap().size, 0);
    assert_eq!(v.statfs().free, free);
    v.close().unwrap();
    quire_testkit::fsck(&hook.inner.inner().inner().snapshot());
}

/// F8: a commit by somebody else, and a power loss, while a file's data is on its way: nothing of it is there, and
/// nothing of what its blocks held before.
#[test]
fn a_commit_in_the_middle_of_a_batch_does_not_have_it() {
    let (hook, v) = Hook::mount("8M");
    // Every free block holds old bytes.
    let mut at = 0;
    while v.write(file(0), at, &[0xAA; 4096], WriteFlags::default()).is_ok() {
        at += 4096;
    }
    v.sync().unwrap();
    v.truncate(file(0), 0).unwrap();
    v.sync().unwrap();
    v.write(file(0), 0, &[7; 100_000], WriteFlags::default()).unwrap();
    let crashed = Arc::new(Mutex::new(Vec::new()));
    let (theirs, volume, disk) = (crashed.clone(), v.clone(), hook.inner.clone());
    hook.set(IoOp::Write, move || {
        volume.setattr(file(1), &crate::SetAttr { mode: Some(0o600), ..crate::SetAttr::default() }).unwrap();
        volume.maintenance().commit().unwrap();
        *lock(&theirs) = disk.inner().inner().snapshot();
    });
    v.fsync(file(0), false).unwrap();
    let image = lock(&crashed).clone();
    let after =
        Volume::open(Devices::one(Arc::new(MemDevice::new(image))), Arc::new(SystemClock), options(Route::Ordered));
    let after = after.unwrap();
    assert_eq!(after.getattr(file(1)).unwrap().mode & 0o777, 0o600);
    let mut buf = vec![1; 200_000];
    let n = after.read(file(0), 0, &mut buf).unwrap();
    assert_eq!(n, 0, "the file begins with {:#x}", buf[0]);
    v.close().unwrap();
}
