//! File data against a model, against faults, against counts; e2fsck judges every image.

mod attrs;
mod batches;
mod beside;
mod counts;
mod crash;
mod direct;
mod errors;
mod external_log;
mod full_disk;
mod journal_flag;
mod model;
mod nvram;
mod old_log;
mod order;
mod reserve;
mod routes;
mod space;
mod stale;
mod stopped;
mod suspended;
mod tails;
mod threads;
mod tick;
mod updates;

use crate::config::Route;
use crate::records;
use crate::{Devices, Options, Volume};
use quire_device::sync::{Arc, Mutex, lock};
use quire_device::{BlockDevice, Clock, Counted, DeviceError, DeviceInfo, DeviceStats, Done, Io, SystemClock, Ticket};
use quire_device::{ErrorKind, IoOp};
use quire_layout::{GroupNo, Ino};
use quire_testkit::{Fault, FaultKind, Faulty, MemDevice};
use quire_testkit::{fsck, mke2fs, run};

/// A device in memory that fails on demand, and counts.
type TestDevice = Counted<Faulty<MemDevice>>;

/// A device in memory that does something once, after the first transfer of a kind has gone to it and before that is
/// told.
struct Then<D = MemDevice> {
    inner: D,
    when: fn(&Io) -> bool,
    then: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Then {
    fn new(image: Vec<u8>, when: fn(&Io) -> bool) -> Self {
        Self::around(MemDevice::new(image), when)
    }
}

impl<D: BlockDevice> Then<D> {
    fn around(inner: D, when: fn(&Io) -> bool) -> Self {
        Then { inner, when, then: Mutex::new(None) }
    }

    fn set(&self, then: impl FnOnce() + Send + 'static) {
        *lock(&self.then) = Some(Box::new(then));
    }

    fn has_done_it(&self) -> bool {
        lock(&self.then).is_none()
    }
}

impl<D: BlockDevice> BlockDevice for Then<D> {
    fn info(&self) -> DeviceInfo {
        self.inner.info()
    }
    fn submit(&self, batch: Vec<Io>) -> Ticket {
        let is_one = batch.iter().any(self.when);
        let ticket = self.inner.submit(batch);
        let then = if is_one { lock(&self.then).take() } else { None };
        if let Some(then) = then {
            then();
        }
        ticket
    }
    fn wait(&self, ticket: Ticket) -> Result<Done, DeviceError> {
        self.inner.wait(ticket)
    }
}

/// A volume whose root has the empty files `f0`, `f1`, ...
struct Bench {
    device: Arc<TestDevice>,
    volume: Volume,
    options: Options,
}

/// The inode of empty file `n`: the first inodes after the reserved ones and `lost+found`.
fn file(n: u32) -> Ino {
    Ino(12 + n)
}

/// An image with `files` empty files.
fn image(size: &str, args: &[&str], files: u32) -> Vec<u8> {
    let dir = tempfile::tempdir().expect("temporary directory");
    for n in 0..files {
        std::fs::write(dir.path().join(format!("f{n:05}")), []).expect("empty file");
    }
    mke2fs(size, &[args, &["-d", dir.path().to_str().expect("utf-8")]].concat())
}

fn options(route: Route) -> Options {
    Options { route, ..Options::default() }
}

impl Bench {
    fn new(size: &str, args: &[&str], files: u32, options: Options) -> Self {
        Self::on(image(size, args, files), options)
    }

    fn on(image: Vec<u8>, options: Options) -> Self {
        Self::by_clock(image, options, Arc::new(SystemClock))
    }

    fn by_clock(image: Vec<u8>, options: Options, clock: Arc<dyn Clock>) -> Self {
        let device = Arc::new(Counted::new(Faulty::new(MemDevice::new(image))));
        let volume = mount(device.clone(), &options, clock);
        Bench { device, volume, options }
    }

    /// Unmounts, asks e2fsck, mounts again: nothing but the disk is left.
    fn remount(&mut self) {
        self.check();
        self.mount_again();
    }

    /// Mounts what was unmounted.
    fn mount_again(&mut self) {
        self.volume = mount(self.device.clone(), &self.options, Arc::new(SystemClock));
    }

    /// What a mount finds if the power is lost now and all that was written survives.
    fn after_a_crash(&self) -> Volume {
        let device = MemDevice::new(self.device.inner().inner().snapshot());
        mount(Arc::new(device), &self.options, Arc::new(SystemClock))
    }

    /// The first `len` bytes of a file that it finds.
    fn read_after_a_crash(&self, ino: Ino, len: usize) -> Vec<u8> {
        let mut buf = vec![0; len];
        let n = self.after_a_crash().read(ino, 0, &mut buf).expect("read");
        buf.truncate(n);
        buf
    }

    fn check(&self) {
        self.volume.close().expect("unmount");
        fsck(&self.device.inner().inner().snapshot());
    }

    /// What goes to the device while `f` runs.
    fn counted(&self, f: impl FnOnce()) -> DeviceStats {
        let before = self.device.snapshot();
        f();
        self.device.snapshot().since(&before)
    }

    /// The device reads no bitmap of blocks any more.
    fn refuse_bitmaps(&self) {
        let sb = self.volume.superblock();
        for g in (0..sb.group_count()).map(GroupNo) {
            let bitmap = self.volume.run(|op| Ok(records::group(op, g)?.block_bitmap())).expect("a descriptor");
            let at = sb.block_size().offset(bitmap);
            let fault = Fault::always(IoOp::Read, FaultKind::Error(ErrorKind::Io));
            self.device.inner().inject(fault.within(at..at + 1));
        }
    }

    fn read_all(&self, ino: Ino, len: usize) -> Vec<u8> {
        let mut buf = vec![0xEE; len + 100];
        let n = self.volume.read(ino, 0, &mut buf).expect("read");
        buf.truncate(n);
        buf
    }
}

fn mount(device: Arc<dyn BlockDevice>, options: &Options, clock: Arc<dyn Clock>) -> Volume {
    Volume::open(Devices::one(device), clock, options.clone()).expect("mount")
}

/// A small generator of numbers that a seed repeats.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let first = self.below(255);
        (0..len as u64).map(|n| u8::try_from((first + n * 7 + n / 251) % 255 + 1).expect("a byte")).collect()
    }
}

#[test]
fn empty_files_have_the_inodes_that_the_tests_expect() {
    let listing = {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("image");
        std::fs::write(&path, image("8M", &["-t", "ext4"], 2)).expect("image");
        run("debugfs", &["-R", "ls -l /", path.to_str().expect("utf-8")])
    };
    let ino_of = |name: &str| listing.lines().find(|l| l.contains(name)).and_then(|l| l.split_whitespace().next());
    assert_eq!((ino_of("f00000"), ino_of("f00001")), (Some("12"), Some("13")), "{listing}");
}
