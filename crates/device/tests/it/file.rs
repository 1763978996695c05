//! FileDevice on real files: what it reads and writes, whom it keeps out, what it refuses.

use quire_device::sync::Arc;
use quire_device::{
    BlockDevice, Buf, Counted, DeviceError, ErrorKind, FileDevice, Holder, HugeBuf, Io, IoOp, OpenError, OpenOptions,
    ReadBuf, Region,
};
use std::collections::BTreeSet;
use std::fs;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

const RO: OpenOptions = OpenOptions { read_only: true, offset: 0, size: None, direct: true, lock: true };

fn rw() -> OpenOptions {
    OpenOptions::default()
}

fn image(size: u64) -> tempfile::NamedTempFile {
    let f = tempfile::NamedTempFile::new().unwrap();
    f.as_file().set_len(size).unwrap();
    f
}

fn filled(len: usize, byte: u8) -> Arc<Buf> {
    let mut b = Buf::zeroed(len);
    b.fill(byte);
    Arc::new(b)
}

fn write(at: u64, len: usize, byte: u8) -> Io {
    Io::Write { at, data: vec![filled(len, byte)], region: Region::Data, fua: false }
}

fn read(at: u64, len: usize) -> Io {
    Io::Read { at, buf: Buf::zeroed(len), region: Region::Data }
}

fn bytes_at(path: &Path, at: u64, len: usize) -> Vec<u8> {
    let mut v = vec![0; len];
    fs::File::open(path).unwrap().read_exact_at(&mut v, at).unwrap();
    v
}

#[test]
fn a_batch_of_scattered_operations_all_happen() {
    for ring in [true, false] {
        for direct in [true, false] {
            let f = image(16 << 20);
            let dev = FileDevice::open(f.path(), OpenOptions { direct, ..rw() }).unwrap();
            let dev = if ring { dev } else { dev.without_ring() };
            // Every other block, last first; more than can be in flight at once.
            let batch = (0..600u64).rev().map(|i| write(i * 8192, 4096, u8::try_from(i % 251).unwrap())).collect();
            let t = dev.submit(batch);
            dev.wait(t).unwrap();
            dev.run(vec![Io::Flush]).unwrap();
            let t = dev.submit((0..600u64).rev().map(|i| read(i * 8192, 8192)).collect());
            let done = dev.wait(t).unwrap();
            for (i, buf) in (0..600u64).rev().zip(&done.reads) {
                assert!(buf[..4096].iter().all(|b| u64::from(*b) == i % 251), "block {i}");
                assert!(buf[4096..].iter().all(|b| *b == 0));
            }
        }
    }
}

#[test]
fn tickets_may_be_waited_for_in_any_order_and_from_any_thread() {
    let f = image(64 << 20);
    let dev = Arc::new(FileDevice::open(f.path(), rw()).unwrap());
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let dev = Arc::clone(&dev);
            scope.spawn(move || {
                let mut tickets: Vec<_> = (0..20u64)
                    .map(|round| {
                        let base = (thread * 20 + round) * 16 * 8192;
                        let byte = u8::try_from(thread * 20 + round + 1).unwrap();
                        dev.submit((0..16).map(|i| write(base + i * 8192, 4096, byte)).collect())
                    })
                    .collect();
                // Half of them by another thread.
                let others = tickets.split_off(10);
                let dev2 = Arc::clone(&dev);
                let other = std::thread::spawn(move || others.into_iter().for_each(|t| drop(dev2.wait(t).unwrap())));
                tickets.into_iter().rev().for_each(|t| drop(dev.wait(t).unwrap()));
                other.join().unwrap();
            });
        }
    });
    for n in 0..80u64 {
        let got = bytes_at(f.path(), n * 16 * 8192 + 15 * 8192, 4096);
        assert!(got.iter().all(|b| u64::from(*b) == n + 1), "batch {n}");
    }
}

#[test]
fn a_batch_outlives_the_thread_that_submitted_it() {
    for direct in [true, false] {
        let f = image(64 << 20);
        let dev = FileDevice::open(f.path(), OpenOptions { direct, ..rw() }).unwrap();
        for round in 1..=10u8 {
            // More than may be in flight: some of it has not even been handed over when the thread ends.
            let submit = || dev.submit((0..300u64).map(|i| write(i * 131_072, 65536, round)).collect());
            let ticket = std::thread::scope(|s| s.spawn(submit).join().unwrap());
            dev.wait(ticket).unwrap();
            let submit = || dev.submit((0..300u64).map(|i| read(i * 131_072, 65536)).collect());
            let ticket = std::thread::scope(|s| s.spawn(submit).join().unwrap());
            let done = dev.wait(ticket).unwrap();
            assert!(done.reads.iter().all(|b| b.iter().all(|x| *x == round)), "round {round}, direct {direct}");
        }
    }
}

/// M5. Memory that the kernel still reads into would change under its next owner.
#[test]
fn a_device_that_is_dropped_ends_what_is_in_flight() {
    const LEN: usize = 96 << 10;
    let f = image(64 << 20);
    FileDevice::open(f.path(), rw()).unwrap().run(vec![write(0, 64 << 20, 0xEE)]).unwrap();
    for round in 0..10 {
        let dev = FileDevice::open(f.path(), rw()).unwrap();
        let _ = dev.submit((0..400u64).map(|i| read(i << 17, LEN)).collect());
        drop(dev);
        let next: Vec<Buf> = (0..400).map(|_| Buf::zeroed(LEN)).collect();
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(next.iter().all(|b| b.iter().all(|x| *x == 0)), "round {round}: the kernel wrote into freed memory");
    }
}

#[test]
fn one_large_write_is_asynchronous_and_whole() {
    let f = image(32 << 20);
    let dev = FileDevice::open(f.path(), rw()).unwrap();
    let data = (0..2048).map(|i| filled(4096, u8::try_from(i % 255).unwrap())).collect();
    let t = dev.submit(vec![Io::Write { at: 4096, data, region: Region::Log, fua: true }]);
    dev.wait(t).unwrap();
    let back = dev.read(4096, 8 << 20, Region::Log).unwrap();
    for (i, block) in back.chunks(4096).enumerate() {
        assert!(block.iter().all(|b| usize::from(*b) == i % 255), "block {i}");
    }
}

#[test]
fn sectors_and_odd_places_work_direct_and_buffered() {
    for direct in [true, false] {
        let f = image(1 << 20);
        let dev = FileDevice::open(f.path(), OpenOptions { direct, ..rw() }).unwrap();
        dev.write(1024, filled(1024, 7), Region::Superblock).unwrap();
        // No multiple of a sector: widened.
        dev.write(3000, filled(512, 9), Region::Data).unwrap();
        let got = bytes_at(f.path(), 0, 4096);
        for (i, b) in got.iter().enumerate() {
            let want = if (1024..2048).contains(&i) { 7 } else { u8::from((3000..3512).contains(&i)) * 9 };
            assert_eq!(*b, want, "byte {i}");
        }
        assert_eq!(&*dev.read(2047, 1000, Region::Data).unwrap(), &bytes_at(f.path(), 2047, 1024)[..]);
    }
}

/// M4.
#[test]
fn offset_and_size_bound_the_device() {
    let f = image(1 << 20);
    let dev = FileDevice::open(f.path(), OpenOptions { offset: 64 << 10, size: Some(128 << 10), ..rw() }).unwrap();
    assert_eq!(dev.info().size, 128 << 10);
    dev.write(0, filled(4096, 5), Region::Data).unwrap();
    dev.run(vec![write(8192, 512, 6), write(65536, 512, 6)]).unwrap();
    assert_eq!(bytes_at(f.path(), 64 << 10, 4096), vec![5; 4096]);
    assert_eq!(bytes_at(f.path(), 128 << 10, 512), vec![6; 512]);
    let e = dev.read((128 << 10) - 512, 1024, Region::Data).unwrap_err();
    assert_eq!((e.kind, e.op, e.at, e.len), (ErrorKind::OutOfRange, IoOp::Read, (128 << 10) - 512, 1024));
    let e = dev.write(u64::MAX - 511, filled(512, 0), Region::Data).unwrap_err();
    assert_eq!(e.kind, ErrorKind::OutOfRange);
    let open = |offset| FileDevice::open(f.path(), OpenOptions { offset, lock: false, ..rw() });
    assert!(matches!(open(2 << 20), Err(OpenError::BadRange { .. })));
    assert!(matches!(open(100), Err(OpenError::Unaligned { offset: 100, sector: 512, .. })));
}

/// M4.
#[test]
fn an_image_truncated_under_us_is_out_of_range_not_a_panic() {
    let f = image(1 << 20);
    let dev = FileDevice::open(f.path(), rw()).unwrap();
    f.as_file().set_len(8192).unwrap();
    assert_eq!(dev.read(65536, 4096, Region::Data).unwrap_err().kind, ErrorKind::OutOfRange);
    let t = dev.submit(vec![read(0, 4096), read(65536, 4096), read(131_072, 4096)]);
    let e = dev.wait(t).unwrap_err();
    assert_eq!((e.kind, e.at), (ErrorKind::OutOfRange, 65536));
    // The one that fails is named also when it was joined with its neighbours.
    let e = dev.run(vec![read(4096, 4096), read(8192, 4096)]).unwrap_err();
    assert_eq!((e.kind, e.at, e.len), (ErrorKind::OutOfRange, 8192, 4096));
}

#[test]
fn discard_and_zero_clear_a_file() {
    let f = image(4 << 20);
    let dev = FileDevice::open(f.path(), rw()).unwrap();
    dev.run((0..4).map(|i| write(i << 20, 1 << 20, 0xAA)).collect()).unwrap();
    dev.run(vec![Io::Flush]).unwrap();
    let before = f.as_file().metadata().unwrap().blocks();
    dev.run(vec![Io::Discard { at: 0, len: 1 << 20 }, Io::Zero { at: 1 << 20, len: 512 << 10, region: Region::Data }])
        .unwrap();
    dev.run(vec![Io::Zero { at: 2 << 20, len: 4096 + 512, region: Region::Log }]).unwrap();
    assert!(f.as_file().metadata().unwrap().blocks() < before || !dev.info().discards);
    assert_eq!(f.as_file().metadata().unwrap().len(), 4 << 20);
    let all = bytes_at(f.path(), 0, 4 << 20);
    for (i, b) in all.iter().enumerate() {
        let cleared = i < 3 << 19 || (2 << 20..(2 << 20) + 4608).contains(&i);
        assert_eq!(*b, if cleared { 0 } else { 0xAA }, "byte {i}");
    }
}

#[test]
fn preallocate_fills_holes_and_changes_nothing() {
    let f = image(8 << 20);
    let dev = FileDevice::open(f.path(), OpenOptions { offset: 4096, ..rw() }).unwrap();
    dev.write(1 << 20, filled(4096, 3), Region::Log).unwrap();
    let before = bytes_at(f.path(), 0, 8 << 20);
    dev.preallocate(0, 4 << 20).unwrap();
    assert_eq!(bytes_at(f.path(), 0, 8 << 20), before);
    let blocks = f.as_file().metadata().unwrap().blocks();
    assert!((8192..9000).contains(&blocks), "{blocks} sectors are allocated");
    // Nothing is unwritten either: the file has no hole there.
    let hole = rustix::fs::seek(f.as_file(), rustix::fs::SeekFrom::Hole(4096)).unwrap();
    assert!(hole >= 4096 + (4 << 20), "a hole at {hole}");
    assert_eq!(dev.preallocate(7 << 20, 4 << 20).unwrap_err().kind, ErrorKind::OutOfRange);
}

/// M3.
#[test]
fn a_second_writer_is_refused_and_told_who_holds_the_image() {
    let f = image(1 << 20);
    let first = FileDevice::open(f.path(), rw()).unwrap();
    for how in [rw(), RO] {
        match FileDevice::open(f.path(), how) {
            Err(e @ OpenError::Busy { .. }) => {
                let OpenError::Busy { holder, .. } = &e else { unreachable!() };
                assert!(matches!(holder, Holder::Process { pid, .. } if *pid == std::process::id()), "{holder:?}");
                assert_eq!(e.errno(), 16);
                assert!(e.to_string().contains(&format!("process {}", std::process::id())), "{e}");
            }
            Err(e) => panic!("{e}"),
            Ok(_) => panic!("opened twice"),
        }
    }
    // Looking on is possible without the lock.
    FileDevice::open(f.path(), OpenOptions { lock: false, ..RO }).unwrap();
    drop(first);
    let _a = FileDevice::open(f.path(), RO).unwrap();
    let _b = FileDevice::open(f.path(), RO).unwrap();
    assert!(matches!(FileDevice::open(f.path(), rw()), Err(OpenError::Busy { .. })));
}

/// A descriptor of the open file that a device of this process has on `path`, as a forked child has it.
fn inherited(path: &Path) -> OwnedFd {
    let own = fs::read_dir("/proc/self/fd").unwrap().map(|e| e.unwrap());
    let of_path = own.filter(|e| fs::read_link(e.path()).is_ok_and(|to| to == path));
    let numbers: Vec<i32> = of_path.map(|e| e.file_name().to_str().unwrap().parse().unwrap()).collect();
    let [number] = numbers[..] else { panic!("{} descriptors of {}", numbers.len(), path.display()) };
    // SAFETY: the device of the calling test has it open.
    unsafe { BorrowedFd::borrow_raw(number) }.try_clone_to_owned().unwrap()
}

/// M3.
#[test]
fn unlocked_image_is_free_while_a_forked_child_has_its_descriptor() {
    let f = image(1 << 20);
    let path = f.into_temp_path();
    for how in [rw(), RO] {
        let dev = FileDevice::open(&path, how).unwrap();
        let kept = inherited(&path);
        dev.unlock();
        drop(dev);
        drop(FileDevice::open(&path, rw()).unwrap_or_else(|e| panic!("read_only={}: {e}", how.read_only)));
        drop(kept);
    }
}

/// M3. Who waits for the lock of a file that is replaced meanwhile gets the new file, and not one without a name, whose
/// bytes would be lost.
#[test]
fn a_file_replaced_during_the_wait_for_its_lock_is_opened_again() {
    let dir = tempfile::tempdir().unwrap();
    let (path, new) = (dir.path().join("image"), dir.path().join("new"));
    fs::write(&path, vec![1; 1 << 20]).unwrap();
    fs::write(&new, vec![2; 1 << 20]).unwrap();
    let first = FileDevice::open(&path, rw()).unwrap();
    std::thread::scope(|s| {
        let second = s.spawn(|| FileDevice::open(&path, rw()).map(write_nines));
        std::thread::sleep(Duration::from_millis(200));
        fs::rename(&new, &path).unwrap();
        drop(first);
        second.join().unwrap().unwrap();
    });
    assert_eq!(bytes_at(&path, 0, 1), [9], "what was written is in the file that has the name");
}

fn write_nines(dev: FileDevice) {
    dev.write(0, filled(4096, 9), Region::Data).unwrap();
}

#[test]
fn what_is_no_device_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(FileDevice::open(dir.path(), rw()), Err(OpenError::IsDirectory(_))));
    assert!(matches!(FileDevice::open(dir.path().join("none"), rw()), Err(OpenError::NotFound(_))));
    assert!(matches!(FileDevice::open("/dev/null", rw()), Err(OpenError::WrongType(_))));
}

#[test]
fn a_read_only_device_refuses_to_change() {
    let f = image(1 << 20);
    let dev = FileDevice::open(f.path(), RO).unwrap();
    assert!(dev.info().read_only);
    for io in [write(0, 512, 1), Io::Discard { at: 0, len: 512 }, Io::Zero { at: 0, len: 512, region: Region::Data }] {
        assert_eq!(dev.run(vec![io]).unwrap_err().kind, ErrorKind::ReadOnly);
    }
    dev.run(vec![Io::Flush]).unwrap();
    dev.read(0, 512, Region::Data).unwrap();
}

/// More reads than can be in flight, each told once, with its own bytes.
#[test]
fn reads_that_no_caller_waits_for_bring_what_is_there_and_are_counted() {
    const READS: u64 = 1000;
    let f = image(4 << 20);
    let dev = Counted::new(FileDevice::open(f.path(), rw()).unwrap());
    let byte = |block: u64| u8::try_from(block % 251).unwrap();
    dev.run((0..1024).map(|block| write(block * 4096, 4096, byte(block))).collect()).unwrap();
    let (tell, told) = mpsc::channel();
    for n in 0..READS {
        let (tell, block) = (tell.clone(), n * 37 % 1024);
        let then = move |outcome: Result<ReadBuf, DeviceError>| tell.send((n, block, outcome)).unwrap();
        dev.read_then(block * 4096, Buf::zeroed(4096).into(), Region::Data, Box::new(then));
    }
    let mut seen = BTreeSet::new();
    for _ in 0..READS {
        let (n, block, outcome) = told.recv_timeout(Duration::from_secs(10)).expect("a read is told");
        assert!(outcome.unwrap().iter().all(|b| *b == byte(block)), "block {block}");
        assert!(seen.insert(n), "read {n} is told twice");
    }
    assert_eq!(dev.snapshot().region(Region::Data).reads.count, READS);
    assert_eq!(dev.latencies().reads.count(), READS);
}

#[test]
fn a_read_that_no_caller_waits_for_tells_its_error() {
    let f = image(4 << 20);
    let dev = FileDevice::open(f.path(), rw()).unwrap();
    f.as_file().set_len(2 << 20).unwrap();
    for (at, what) in [(4 << 20, "behind the device"), (3 << 20, "where the image was cut off")] {
        let (tell, told) = mpsc::channel();
        let then = move |outcome: Result<ReadBuf, DeviceError>| tell.send(outcome.map(drop)).unwrap();
        dev.read_then(at, Buf::zeroed(4096).into(), Region::Data, Box::new(then));
        let outcome = told.recv_timeout(Duration::from_secs(10)).expect("it is told");
        let e = outcome.expect_err(what);
        assert_eq!((e.op, e.at, e.len, e.kind), (IoOp::Read, at, 4096, ErrorKind::OutOfRange), "{what}");
    }
}

/// M5. Whoever started the reads is told of each, also when the last of them has the device.
#[test]
fn a_device_that_is_dropped_ends_the_reads_that_no_caller_waits_for() {
    let f = image(64 << 20);
    FileDevice::open(f.path(), rw()).unwrap().run(vec![write(0, 64 << 20, 0xEE)]).unwrap();
    for shared in [false, true] {
        let dev = Arc::new(FileDevice::open(f.path(), rw()).unwrap());
        let (tell, told) = mpsc::channel();
        for n in 0..400u64 {
            let (tell, holds) = (tell.clone(), shared.then(|| dev.clone()));
            let then = move |outcome: Result<ReadBuf, DeviceError>| {
                drop(holds);
                tell.send(outcome.unwrap().iter().all(|b| *b == 0xEE)).unwrap();
            };
            let buf = match n % 2 {
                0 => Buf::zeroed(64 << 10).into(),
                _ => ReadBuf::Part(HugeBuf::new(80 << 10).unwrap(), 4096..68 << 10),
            };
            dev.read_then(n << 17, buf, Region::Data, Box::new(then));
        }
        drop((dev, tell));
        assert_eq!(told.iter().filter(|whole| *whole).count(), 400);
    }
}
