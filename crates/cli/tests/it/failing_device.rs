//! Mounts whose device fails while they are served: the test serves a device of its own over FUSE, and breaks it.

use super::common::{Mounted, is_within, needs_mounts, needs_root, ok, quire, said};
use super::served::Served;
use quire_device::{ErrorKind, IoOp};
use quire_testkit::{Fault, FaultKind, Faulty, MemDevice};
use rustix::process::{Pid, Signal};
use std::fs::{self, File};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Where the superblock lies in an image, in bytes.
const SUPERBLOCK: std::ops::Range<u64> = 1024..2048;

/// Longer than an answer takes on a busy machine.
const A_WHILE: Duration = Duration::from_secs(30);

type Failing = Served<Faulty<MemDevice>>;

impl Failing {
    fn new() -> Self {
        Served::of("32M", |image| Faulty::new(MemDevice::new(image)))
    }

    /// From now on the image can be marked neither clean nor in use.
    fn loses_its_superblock(&self) {
        self.device.inject(Fault::always(IoOp::Write, FaultKind::Error(ErrorKind::Io)).within(SUPERBLOCK));
    }
}

/// Requests that were kept while a volume was about to freeze are answered when it does not freeze.
#[test]
fn a_freeze_that_fails_answers_what_it_has_kept() {
    needs_mounts();
    needs_root();
    let failing = Failing::new();
    let m = failing.mount("");
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..8)
        .map(|n| {
            let (path, stop) = (m.path(&n.to_string()), stop.clone());
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) && fs::write(&path, [7; 100]).and(fs::remove_file(&path)).is_ok() {}
            })
        })
        .collect();
    std::thread::sleep(Duration::from_millis(200));
    failing.loses_its_superblock();
    let (code, words) = said(&mut quire(&["freeze", m.dir()]));
    assert_ne!(code, 0, "{words}");
    stop.store(true, Ordering::Relaxed);
    let answered = is_within(A_WHILE, || writers.iter().all(|w| w.is_finished()));
    // Before anything is asserted: a request that is not answered holds the test's own threads.
    failing.is_over(m);
    assert!(answered, "a writer still waits");
}

/// SIGTERM ends a frozen mount that cannot thaw, although the kernel has data of it.
#[test]
fn sigterm_ends_a_frozen_mount_that_cannot_thaw() {
    needs_mounts();
    needs_root();
    let failing = Failing::new();
    let m = failing.mount("");
    let mut kept = File::create(m.path("kept")).expect("a file");
    ok(&mut quire(&["freeze", m.dir()]));
    kept.write_all(&[2; 3000]).expect("the kernel keeps it");
    let closed = std::thread::spawn(move || drop(kept));
    failing.loses_its_superblock();
    rustix::process::kill_process(pid(&m), Signal::TERM).expect("it is there");
    let ended = is_within(A_WHILE, || !m.is_alive() && closed.is_finished());
    failing.is_over(m);
    assert!(ended, "the daemon, or who closes a file, still waits");
}

fn pid(m: &Mounted) -> Pid {
    Pid::from_raw(m.pid).expect("a process")
}
