//! What the kernel keeps of open files reaches the daemon before the mount is synced, frozen or ended, and changes that
//! are to be durable are, on a device whose writes take long.

use crate::common::{needs_mounts, needs_root, ok, quire, said, text};
use crate::devices::Loop;
use crate::served::{Served, Slow};
use quire_device::Io;
use rustix::process::Signal;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// More than the kernel hands over at once.
const MIB: u64 = 40;

/// A write of more than 64 KiB.
fn is_large_write(io: &Io) -> bool {
    matches!(io, Io::Write { .. }) && io.range().1 > 1 << 16
}

fn slow_writes() -> Served<Slow> {
    slow_writes_of("128M")
}

fn slow_writes_of(size: &str) -> Served<Slow> {
    Served::of(size, |image| Slow::new(image, is_large_write))
}

/// A file whose MiB are told from each other, still open.
fn fill(path: &Path) -> File {
    let file = File::create(path).unwrap();
    for n in 0..MIB {
        file.write_all_at(&vec![u8::try_from(n + 1).unwrap(); 1 << 20], n << 20).unwrap();
    }
    file
}

impl Served<Slow> {
    /// Writes to an open file what the kernel keeps, because writes of the device take long from now on.
    fn written(&self, path: &Path) -> File {
        self.device.takes.store(60, Ordering::SeqCst);
        fill(path)
    }

    /// What the device has now, recovered.
    fn copy_of_now(&self) -> PathBuf {
        let copy = self.place.path("copy");
        fs::write(&copy, self.device.inner.snapshot()).unwrap();
        let recovered = said(&mut quire(&["recover", text(&copy)]));
        assert!(recovered.0 <= 1, "{recovered:?}");
        copy
    }

    /// What the device has now is what the image has after a power loss: all of it, once it is recovered.
    fn assert_has_all(&self, name: &str, what: &str) {
        let copy = self.copy_of_now();
        let out = self.place.path("out");
        fs::remove_file(&out).ok();
        ok(&mut quire(&["get", &format!("{}:/{name}", text(&copy)), text(&out)]));
        let content = fs::read(out).unwrap();
        let right = |n: &u64| {
            let at = usize::try_from(n << 20).unwrap();
            content.get(at..at + (1 << 20)).is_some_and(|part| part.iter().all(|b| u64::from(*b) == n + 1))
        };
        let has = (0..MIB).filter(right).count();
        assert_eq!(has as u64, MIB, "{what}: MiB that are there");
    }
}

#[test]
fn a_freeze_and_a_sync_have_what_was_written_to_open_files() {
    needs_mounts();
    needs_root();
    for what in ["freeze", "sync"] {
        let slow = slow_writes();
        let m = slow.mount("");
        let file = slow.written(&m.path("f"));
        ok(&mut quire(&[what, m.dir()]));
        slow.assert_has_all("f", what);
        slow.device.takes.store(0, Ordering::SeqCst);
        if what == "freeze" {
            let refused = said(&mut quire(&["sync", m.dir()]));
            assert!(refused.0 != 0 && refused.1.contains("frozen"), "{refused:?}");
            ok(&mut quire(&["thaw", m.dir()]));
        }
        drop(file);
        m.unmount();
    }
}

/// What is appended meanwhile is no matter of a sync, and no reason for it to go on.
#[test]
fn a_sync_ends_beside_a_program_that_appends_without_pause() {
    needs_mounts();
    needs_root();
    // Much more than the kernel has dirty of all files: so far the sync goes.
    const END: u64 = 1100 << 20;
    let slow = slow_writes_of("1280M");
    let m = slow.mount("");
    let file = slow.written(&m.path("f"));
    slow.device.takes.store(30, Ordering::SeqCst);
    let is_over = AtomicBool::new(false);
    let filled = thread::scope(|scope| {
        let appends = scope.spawn(|| {
            let mut at = MIB << 20;
            while !is_over.load(Ordering::SeqCst) && at < END {
                file.write_all_at(&[9; 1 << 16], at).unwrap();
                at += 1 << 16;
            }
            at >= END
        });
        ok(&mut quire(&["sync", m.dir()]));
        is_over.store(true, Ordering::SeqCst);
        slow.device.takes.store(0, Ordering::SeqCst);
        appends.join().unwrap()
    });
    assert!(!filled, "the sync ended after the program");
    drop(file);
    m.unmount();
}

#[test]
fn an_end_by_a_signal_keeps_what_was_written_to_open_files() {
    needs_mounts();
    needs_root();
    let slow = slow_writes();
    let m = slow.mount("");
    let file = slow.written(&m.path("f"));
    m.end_by(Signal::TERM);
    slow.assert_has_all("f", "SIGTERM");
    drop(file);
}

/// syncfs(2) reaches the daemon on mounts of block devices.
#[test]
fn a_syncfs_of_a_block_device_has_what_was_written_to_open_files() {
    needs_mounts();
    needs_root();
    let slow = slow_writes();
    let device = Loop::new(&["--direct-io=on"], &slow.disk());
    let m = slow.place.mount_image(Path::new(&device.0), "");
    let file = slow.written(&m.path("f"));
    rustix::fs::syncfs(&file).unwrap();
    slow.assert_has_all("f", "syncfs");
    slow.device.takes.store(0, Ordering::SeqCst);
    drop(file);
    m.unmount();
}

/// FUSE asks for no fsync after copy_file_range(2) and fallocate(2).
#[test]
fn with_sync_a_copy_and_an_allocation_are_durable_when_they_return() {
    needs_mounts();
    needs_root();
    for (options, flags) in [("sync", 0), ("", libc::O_DSYNC)] {
        let slow = slow_writes();
        let m = slow.mount(options);
        let from = fill(&m.path("from"));
        from.sync_all().unwrap();
        let open = |name: &str| {
            File::options().write(true).create(true).truncate(false).custom_flags(flags).open(m.path(name)).unwrap()
        };
        let (to, allocated) = (open("to"), open("allocated"));
        // What makes the names durable is not the point.
        allocated.sync_all().unwrap();
        drop(from);
        let (from, mut at) = (File::open(m.path("from")).unwrap(), 0);
        while at < MIB << 20 {
            let left = usize::try_from((MIB << 20) - at).unwrap();
            at += rustix::fs::copy_file_range(&from, None, &to, None, left).unwrap() as u64;
        }
        slow.assert_has_all("to", options);
        rustix::fs::fallocate(&allocated, rustix::fs::FallocateFlags::empty(), 0, 1 << 20).unwrap();
        let listed = ok(&mut quire(&["ls", "-l", &format!("{}:/allocated", text(&slow.copy_of_now()))]));
        assert!(listed.contains(&(1 << 20).to_string()), "{options}: {listed}");
        drop((from, to, allocated));
        m.unmount();
    }
}

/// FUSE sends no fsync after a write past its cache either.
#[test]
fn a_write_with_o_dsync_past_the_kernels_cache_is_durable_when_it_returns() {
    needs_mounts();
    needs_root();
    let slow = slow_writes();
    let m = slow.mount("atomic_writes=all");
    fs::write(m.path("f"), [1; 9000]).unwrap();
    File::open(m.path("f")).unwrap().sync_all().unwrap();
    for (byte, flags) in [(2, libc::O_DSYNC), (3, libc::O_SYNC)] {
        let file = File::options().write(true).custom_flags(flags).open(m.path("f")).unwrap();
        file.write_all_at(&[byte; 9000], 0).unwrap();
        let content = ok(&mut quire(&["cat", &format!("{}:/f", text(&slow.copy_of_now()))]));
        assert!(content.len() == 9000 && content.bytes().all(|b| b == byte), "O_SYNC or O_DSYNC: {flags:#x}");
    }
    m.unmount();
}
