//! A device that is served as a file.

use quire_device::Counted;
use quire_device::sync::Arc;
use quire_device::sync::atomic::{AtomicBool, Ordering};
use quire_mount::expose::{Counters, Timed, expose_timed};
use quire_mount::mounting::AttachError;
use quire_testkit::{MemDevice, needs_mounts, needs_root, skip};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

#[test]
fn what_is_written_to_the_file_is_on_the_device_and_flushed() {
    needs_mounts();
    needs_root();
    let dir = tempfile::tempdir().unwrap();
    let device = Arc::new(Counted::new(MemDevice::new(vec![0; 1 << 20])));
    let theirs = device.clone();
    let counters: Counters = Arc::new(move || format!("flushes {}\n", theirs.snapshot().flushes.count));
    let is_timed = Arc::new(AtomicBool::new(true));
    let told = is_timed.clone();
    let timed: Timed = Arc::new(move |timed| told.store(timed, Ordering::SeqCst));
    let exposed = match expose_timed(device.clone(), counters, timed, dir.path()) {
        Err(AttachError::Mount(Errno::PERM)) => skip("root of a container that may not mount"),
        other => other.unwrap(),
    };
    let file = std::fs::File::options().read(true).write(true).open(exposed.disk()).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 1 << 20);
    file.write_all_at(&[7; 8192], 4096).unwrap();
    file.sync_data().unwrap();
    let mut back = [0; 4096];
    file.read_exact_at(&mut back, 8192).unwrap();
    assert_eq!((back, device.inner().snapshot()[4095..4097].to_vec()), ([7; 4096], vec![0, 7]));
    assert_eq!(std::fs::read_to_string(dir.path().join("counters")).unwrap(), "flushes 1\n");
    let mut names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["counters", "disk", "timed"]);
    let timed = dir.path().join("timed");
    for (text, expected) in [("0\n", Some(false)), ("1", Some(true)), ("", Some(true)), ("2", None)] {
        let written = std::fs::write(&timed, text);
        assert_eq!(written.ok().map(|()| is_timed.load(Ordering::SeqCst)), expected, "{text:?}");
    }
    drop(file);
    // A program that another test starts meanwhile holds the file, too, until it has become that program.
    let began = Instant::now();
    loop {
        match rustix::mount::unmount(dir.path(), UnmountFlags::empty()) {
            Err(Errno::BUSY) if began.elapsed() < Duration::from_secs(10) => std::thread::yield_now(),
            done => break done.unwrap(),
        }
    }
    exposed.wait().unwrap();
}
