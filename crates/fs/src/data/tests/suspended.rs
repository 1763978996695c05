//! Reads whose callers do not wait for the device.

use super::{file, image, options};
use crate::config::{Options, Route};
use crate::data::WriteFlags;
use crate::{
    Cred, Devices, Error, New, NewKind, ReadBegun, SetAttr, Volume, attr_before_write, begin_read, commit_left,
    commit_then, leaving_commits, load_then, without_waiting,
};
use quire_device::sync::atomic::{AtomicUsize, Ordering};
use quire_device::sync::{Arc, Mutex, lock, thread};
use quire_device::{
    BlockDevice, DeviceError, DeviceInfo, Done, HugeBuf, Io, ReadBuf, ReadDone, Region, SystemClock, Ticket,
};
use quire_journal::Lead;
use quire_layout::{BlockNo, Ino};
use quire_testkit::MemDevice;
use std::sync::mpsc;
use std::time::Duration;

/// Keeps the reads that no caller waits for until it is told to do them.
struct Keeps {
    inner: MemDevice,
    kept: Mutex<Vec<(u64, ReadBuf, ReadDone)>>,
    /// Reads that callers waited for.
    waited: AtomicUsize,
}

impl Keeps {
    fn mount(route: Route) -> (Arc<Keeps>, Volume) {
        Self::mount_with(options(route))
    }

    fn mount_with(options: Options) -> (Arc<Keeps>, Volume) {
        let inner = MemDevice::new(image("16M", &["-t", "ext4", "-b", "4096"], 2));
        let device = Arc::new(Keeps { inner, kept: Mutex::default(), waited: AtomicUsize::new(0) });
        let v = Volume::open(Devices::one(device.clone()), Arc::new(SystemClock), options).unwrap();
        (device, v)
    }

    /// Does what it has kept; returns how many reads that were.
    fn do_kept(&self) -> usize {
        let kept = std::mem::take(&mut *lock(&self.kept));
        let count = kept.len();
        kept.into_iter().for_each(|(at, buf, then)| self.inner.read_then(at, buf, Region::Data, then));
        count
    }
}

impl BlockDevice for Keeps {
    fn info(&self) -> DeviceInfo {
        self.inner.info()
    }
    fn submit(&self, batch: Vec<Io>) -> Ticket {
        let reads = batch.iter().filter(|io| matches!(io, Io::Read { .. })).count();
        self.waited.fetch_add(reads, Ordering::Relaxed);
        self.inner.submit(batch)
    }
    fn wait(&self, ticket: Ticket) -> Result<Done, DeviceError> {
        self.inner.wait(ticket)
    }
    fn can_suspend_reads(&self) -> bool {
        true
    }
    fn read_then(&self, at: u64, buf: ReadBuf, _: Region, then: ReadDone) {
        lock(&self.kept).push((at, buf, then));
    }
}

/// F2, F4: the file's blocks stay its own until the device has read; then nothing of the file is in use.
#[test]
fn a_truncate_waits_for_a_read_whose_caller_does_not() {
    let (device, v) = Keeps::mount(Route::Ordered);
    v.write(file(0), 0, &[7; 5000], WriteFlags::default()).unwrap();
    v.sync().unwrap();
    let (tell, told) = mpsc::channel();
    let ReadBegun::OnDevice(read) = begin_read(&v, file(0), 0, &mut [0; 8192], false).unwrap() else {
        panic!("two blocks side by side, and nothing is pending");
    };
    read.then(move |outcome| tell.send(outcome.unwrap().to_vec()).unwrap());
    assert!(v.data().files.has(file(0)), "a file with a reader");
    let other = v.clone();
    let truncates = thread::spawn(move || other.truncate(file(0), 0).unwrap());
    thread::sleep(Duration::from_millis(200));
    assert!(!truncates.is_finished() && told.try_recv().is_err());
    assert_eq!(device.do_kept(), 1);
    assert_eq!(told.recv().unwrap(), [7; 5000], "up to the end of the file");
    truncates.join().unwrap();
    v.sync().unwrap();
    assert!(!v.data().files.has(file(0)), "nobody uses the file");
}

/// One run is read straight into the caller's memory, several are put together there, and what is before stays.
#[test]
fn a_read_into_the_callers_memory_brings_the_same() {
    const AT: usize = 4096;
    let (device, v) = Keeps::mount(Route::Ordered);
    v.write(file(0), 0, &[1; 12_288], WriteFlags::default()).unwrap();
    v.sync().unwrap();
    v.write(file(0), 16_384, &[3; 100], WriteFlags::default()).unwrap();
    v.sync().unwrap();
    for (at, len, straight) in
        [(0, 12_288, true), (4096, 4096, true), (100, 5000, false), (8192, 20_000, false), (16_384, 4096, true)]
    {
        let mut buf = vec![0; len];
        let whole = v.read(file(0), at, &mut buf).unwrap();
        let ReadBegun::OnDevice(read) = begin_read(&v, file(0), at, &mut vec![0; len], false).unwrap() else {
            panic!("nothing is in memory");
        };
        assert_eq!(read.bytes(), whole);
        let mut memory = HugeBuf::new(64 << 10).unwrap();
        memory[..AT].fill(7);
        let (tell, told) = mpsc::channel();
        read.then_in(memory, AT, move |outcome| tell.send(outcome.unwrap()).unwrap());
        let is_part = |(_, buf, _): &(u64, ReadBuf, ReadDone)| matches!(buf, ReadBuf::Part(..));
        assert_eq!(lock(&device.kept).iter().any(is_part), straight, "{len} bytes at {at}");
        assert!(device.do_kept() > 0);
        let (memory, bytes) = told.recv().unwrap();
        assert_eq!((bytes, &memory[AT..AT + bytes]), (whole, &buf[..whole]), "{len} bytes at {at}");
        assert!(memory[..AT].iter().all(|b| *b == 7));
        assert!(!v.data().files.has(file(0)), "nobody uses the file");
    }
}

/// What memory has, and holes, are read at once; what the device has is put together with them.
#[test]
fn what_memory_has_not_is_left_to_the_device() {
    let (device, v) = Keeps::mount(Route::Ordered);
    let read_by = |at, len, reads| {
        let mut buf = vec![9; len];
        match begin_read(&v, file(0), at, &mut buf, false).unwrap() {
            ReadBegun::Done(n) => {
                assert_eq!(reads, 0, "{len} bytes at {at}");
                buf[..n].to_vec()
            }
            ReadBegun::OnDevice(read) => {
                let (tell, told) = mpsc::channel();
                read.then(move |outcome| tell.send(outcome.unwrap().to_vec()).unwrap());
                assert!(told.try_recv().is_err());
                assert_eq!(device.do_kept(), reads, "{len} bytes at {at}");
                told.recv().unwrap()
            }
        }
    };
    let read = |at, len| read_by(at, len, 0);
    assert!(read(0, 4096).is_empty(), "an empty file");
    v.write(file(0), 0, &[1; 8192], WriteFlags::default()).unwrap();
    assert_eq!(read(0, 8192), [1; 8192], "pending");
    v.sync().unwrap();
    v.write(file(0), 4096, &[2; 10], WriteFlags::default()).unwrap();
    assert_eq!(read_by(0, 4200, 1)[4090..], [[1; 6].as_slice(), &[2; 10], &[1; 94]].concat(), "pending in part");
    v.sync().unwrap();
    v.truncate(file(0), 20_000).unwrap();
    assert_eq!(read(12_288, 4096), [0; 4096], "a hole");
    assert_eq!(read_by(4096, 8192, 1), [[2; 10].as_slice(), &[1; 4086], &[0; 4096]].concat(), "a hole in part");
    assert_eq!(read_by(100, 200, 1), [1; 200], "not from the beginning of a block");
    v.write(file(0), 16_384, &[3; 100], WriteFlags::default()).unwrap();
    v.sync().unwrap();
    let whole = read_by(0, 20_000, 2);
    assert_eq!((whole[100], whole[4096], whole[8192], whole[16_384], whole.len()), (1, 2, 0, 3, 20_000), "two runs");
    assert!(read(20_000, 4096).is_empty() && read(u64::MAX - 8, 8).is_empty(), "behind the end");
    assert_eq!(device.do_kept(), 0);
}

#[test]
fn an_error_of_the_device_is_told() {
    let (device, v) = Keeps::mount(Route::Ordered);
    v.write(file(0), 0, &[7; 4096], WriteFlags::default()).unwrap();
    v.sync().unwrap();
    let (tell, told) = mpsc::channel();
    let ReadBegun::OnDevice(read) = begin_read(&v, file(0), 0, &mut [0; 4096], false).unwrap() else {
        panic!("one block, and nothing is pending");
    };
    read.then(move |outcome| tell.send(outcome.map(<[u8]>::len)).unwrap());
    let fail = |(at, _, then): (u64, ReadBuf, ReadDone)| {
        let kind = quire_device::ErrorKind::Io;
        then(Err(DeviceError { op: quire_device::IoOp::Read, at, len: 4096, kind, errno: 5 }));
    };
    fail(lock(&device.kept).pop().unwrap());
    assert!(matches!(told.recv().unwrap(), Err(crate::Error::Device(_))));
    assert!(!v.data().files.has(file(0)));

    let (tell, told) = mpsc::channel();
    let ReadBegun::OnDevice(read) = begin_read(&v, file(0), 0, &mut [0; 4096], false).unwrap() else {
        panic!("one block, and nothing is pending");
    };
    read.then_in(HugeBuf::new(4096).unwrap(), 0, move |outcome| tell.send(outcome.map(|(_, n)| n)).unwrap());
    fail(lock(&device.kept).pop().unwrap());
    assert!(matches!(told.recv().unwrap(), Err(crate::Error::Device(_))));
    assert!(!v.data().files.has(file(0)));
}

/// Makes a call that does not wait for metadata again and again, until it misses nothing; returns how many loads it
/// took.
fn when_loaded<T>(device: &Keeps, v: &Volume, mut call: impl FnMut(&Volume) -> crate::Result<T>) -> (T, usize) {
    let (hurried, mut loads) = (without_waiting(v), 0);
    loop {
        match call(&hurried) {
            Err(Error::Miss(blocks)) => {
                let (tell, told) = mpsc::channel();
                load_then(v, &blocks, move |is_read| tell.send(is_read).unwrap());
                assert!(told.try_recv().is_err(), "the device has not read");
                assert!(device.do_kept() > 0);
                assert!(told.recv().unwrap());
                loads += 1;
            }
            done => return (done.unwrap(), loads),
        }
    }
}

/// A call that misses metadata changes nothing and waits for nothing; made again after the load it does what it does
/// for a caller that waits.
#[test]
fn a_call_that_does_not_wait_ends_where_metadata_is_missing() {
    let (device, v) = Keeps::mount(Route::Ordered);
    let cred = Cred { uid: 0, gid: 0 };
    let new = New { kind: NewKind::Dir, mode: 0o755, umask: 0, cred };
    let (attr, loads) = when_loaded(&device, &v, |v| v.create(Ino::ROOT, b"d", &new));
    assert!(loads > 0, "a fresh mount has no bitmap in memory");
    let free = v.statfs().free_inodes;
    let file = New { kind: NewKind::File, ..new };
    let (made, loads) = when_loaded(&device, &v, |v| v.create(attr.ino, b"f", &file));
    assert_eq!((loads, v.statfs().free_inodes), (0, free - 1), "all is there, and one inode is taken");
    v.forget(made.ino, 1);
    v.close().unwrap();

    let again = Volume::open(Devices::one(device.clone()), Arc::new(SystemClock), options(Route::Ordered)).unwrap();
    let (found, loads) = when_loaded(&device, &again, |v| v.lookup(Ino::ROOT, b"d"));
    assert!(loads > 0 && found.ino == attr.ino);
    let mut names = Vec::new();
    when_loaded(&device, &again, |v| {
        v.readdir(found.ino, 0, &mut |item| {
            names.push(item.name.to_vec());
            true
        })
    });
    assert_eq!(names, [b".".as_slice(), b"..", b"f"]);
    when_loaded(&device, &again, |v| v.unlink(found.ino, b"f"));
    assert_eq!(again.statfs().free_inodes, free, "it had no reference");
    assert_eq!(device.do_kept(), 0);
    again.forget(found.ino, 1);
    again.close().unwrap();
    quire_testkit::fsck(&device.inner.snapshot());
}

/// The map and the bitmaps that a write or a truncate needs are loaded before it begins, so that it waits for no read.
#[test]
fn a_change_of_a_file_foresees_what_it_reads() {
    const PIECES: u64 = 700;
    let (device, v) = Keeps::mount(Route::Ordered);
    for n in 0..PIECES {
        v.write(file(0), n * 8192, &[1; 4096], WriteFlags::default()).unwrap();
    }
    v.close().unwrap();
    let again = || Volume::open(Devices::one(device.clone()), Arc::new(SystemClock), options(Route::Ordered)).unwrap();
    let v = again();
    let waits = |call: &dyn Fn()| {
        let before = device.waited.load(Ordering::Relaxed);
        call();
        device.waited.load(Ordering::Relaxed) - before
    };
    v.getattr(file(0)).unwrap();
    let at = (PIECES - 1) * 8192;
    let (attr, loads) = when_loaded(&device, &v, |v| attr_before_write(v, file(0), at, 4096));
    assert!(loads > 0 && attr.size == at + 4096, "a leaf of the map");
    let write = |at, bytes: &[u8]| assert_eq!(v.write(file(0), at, bytes, WriteFlags::default()).unwrap(), bytes.len());
    assert_eq!(waits(&|| write(at, &[2; 4096])), 0);
    // The ends of this one are parts of two blocks, which lie in two pieces; between them is a hole.
    let (_, loads) = when_loaded(&device, &v, |v| attr_before_write(v, file(0), 81_920 + 100, 8192));
    assert_eq!((loads, waits(&|| write(81_920 + 100, &[3; 8192]))), (2, 0), "a leaf of the map, and both blocks");
    let (_, loads) = when_loaded(&device, &v, |v| attr_before_write(v, file(0), 81_920 + 200, 100));
    assert_eq!(loads, 0, "the page is in memory");
    let mut read = [0; 12_288];
    v.read(file(0), 81_920, &mut read).unwrap();
    let is_right = read.iter().enumerate().all(|(at, b)| {
        *b == match at {
            100..8292 => 3,
            _ => 1,
        }
    });
    assert!(is_right, "what was there before stays");
    v.close().unwrap();

    let v = again();
    v.getattr(file(0)).unwrap();
    let free = v.statfs().free;
    let set = SetAttr { size: Some(8192), ..SetAttr::default() };
    assert!(matches!(without_waiting(&v).setattr(file(0), &set), Err(Error::Miss(_))));
    assert_eq!(v.getattr(file(0)).unwrap().size, at + 4096, "nothing has changed");
    let (mut calls, mut waited) = (0, 0);
    let (attr, loads) = when_loaded(&device, &v, |v| {
        calls += 1;
        let before = device.waited.load(Ordering::Relaxed);
        let done = v.setattr(file(0), &set);
        waited += device.waited.load(Ordering::Relaxed) - before;
        done
    });
    assert_eq!((attr.size, calls, waited), (8192, loads + 1, 0));
    assert!(loads > 1, "leaves of the map, and bitmaps");
    assert!(v.statfs().free > free, "its blocks are free");
    v.close().unwrap();
    quire_testkit::fsck(&device.inner.snapshot());
}

/// J3: what was written home while the device read is read again.
#[test]
fn a_load_whose_homes_change_meanwhile_reads_again() {
    let (device, v) = Keeps::mount(Route::Ordered);
    v.write(file(0), 0, &[1; 4096], WriteFlags::default()).unwrap();
    v.sync().unwrap();
    let b = BlockNo(v.inspect().place(file(0), 0).unwrap().unwrap());
    let (tell, told) = mpsc::channel();
    load_then(&v, &[b], move |is_read| tell.send(is_read).unwrap());
    let (at, buf, then) = lock(&device.kept).pop().unwrap();
    device.inner.read_then(
        at,
        buf,
        Region::Data,
        Box::new(move |read| {
            // The device has read; the caller is told after others have written.
            tell_later(&v, b, read, then);
        }),
    );
    assert!(told.try_recv().is_err(), "it is read once more");
    assert_eq!(device.do_kept(), 1);
    assert!(told.recv().unwrap());
}

fn tell_later(v: &Volume, b: BlockNo, read: Result<ReadBuf, DeviceError>, then: ReadDone) {
    v.write(file(0), 0, &[2; 4096], WriteFlags::default()).unwrap();
    v.sync().unwrap();
    v.engine().journal.written_in_place([(b, 1)]);
    then(read);
}

/// What cannot be read is told, and read again by whoever needs it.
#[test]
fn a_load_that_the_device_refuses_is_told() {
    let (device, v) = Keeps::mount(Route::Ordered);
    let (tell, told) = mpsc::channel();
    let Err(Error::Miss(blocks)) = without_waiting(&v).lookup(Ino::ROOT, b"nothing") else {
        panic!("a fresh mount has no directory in memory");
    };
    load_then(&v, &blocks, move |is_read| tell.send(is_read).unwrap());
    let (at, _, then) = lock(&device.kept).pop().unwrap();
    let kind = quire_device::ErrorKind::Io;
    then(Err(DeviceError { op: quire_device::IoOp::Read, at, len: 4096, kind, errno: 5 }));
    device.do_kept();
    assert!(!told.recv().unwrap());
    assert!(matches!(v.lookup(Ino::ROOT, b"nothing"), Err(Error::NotFound)), "whoever waits reads by itself");
}

/// A synchronous directory's changes are durable when the call returns, unless the caller sees to that.
#[test]
fn a_commit_that_a_flag_asks_for_can_be_left_to_the_caller() {
    let (_, v) = Keeps::mount(Route::Ordered);
    let flags = v.inode_flags().get(Ino::ROOT).unwrap();
    v.inode_flags().set(Ino::ROOT, flags | quire_layout::inode::flags::DIRSYNC).unwrap();
    let new = New { kind: NewKind::File, mode: 0o600, umask: 0, cred: Cred { uid: 0, gid: 0 } };
    let commits = || v.maintenance().journal_stats().transactions;
    let before = commits();
    let leaves = leaving_commits(&v);
    leaves.create(Ino::ROOT, b"left", &new).unwrap();
    let tid = commit_left(&leaves).expect("the directory is synchronous");
    assert_eq!(commits(), before);
    let (tell, told) = mpsc::channel();
    commit_then(&v, tid, Lead::Once, move |outcome| tell.send(outcome).unwrap());
    told.recv().unwrap().unwrap();
    assert_eq!(commits(), before + 1);
    v.create(Ino::ROOT, b"made", &new).unwrap();
    assert_eq!((commit_left(&v), commits()), (None, before + 2));
    assert_eq!(commit_left(&leaving_commits(&v)), None, "each handle has its own");
}

/// A listing that finds no name in many blocks begins again once, not at each of its steps.
#[test]
fn a_listing_of_empty_blocks_goes_on_where_it_was() {
    let (device, v) = Keeps::mount(Route::Ordered);
    let cred = Cred { uid: 0, gid: 0 };
    let dir = v.create(Ino::ROOT, b"d", &New { kind: NewKind::Dir, mode: 0o755, umask: 0, cred }).unwrap().ino;
    let file = v.create(dir, b"f", &New { kind: NewKind::File, mode: 0o600, umask: 0, cred }).unwrap().ino;
    // Fifteen names of this length to a block.
    let name = |n: u32| format!("{n:0>250}").into_bytes();
    for n in 0..3000 {
        v.link(file, dir, &name(n)).unwrap();
        v.forget(file, 1);
    }
    (0..3000).for_each(|n| v.unlink(dir, &name(n)).unwrap());
    v.forget(file, 1);
    v.forget(dir, 1);
    v.close().unwrap();
    let v = Volume::open(Devices::one(device.clone()), Arc::new(SystemClock), options(Route::Ordered)).unwrap();
    let (dir, _) = when_loaded(&device, &v, |v| v.lookup(Ino::ROOT, b"d"));
    // As a mount lists: what was given goes out, and the next request begins behind it.
    let (mut cookie, mut names, mut loads) = (0, 0, 0);
    loop {
        let before = names;
        let listed = without_waiting(&v).readdir(dir.ino, cookie, &mut |item| {
            (cookie, names) = (item.next_cookie, names + 1);
            true
        });
        match listed {
            Err(Error::Miss(blocks)) if names == before => {
                load_then(&v, &blocks, |is_read| assert!(is_read));
                device.do_kept();
                loads += 1;
            }
            Err(Error::Miss(_)) => {}
            listed => break listed.unwrap(),
        }
    }
    assert_eq!(names, 3);
    assert!(loads <= 4, "{loads} times from the beginning");
    v.forget(dir.ino, 1);
    v.close().unwrap();
}
