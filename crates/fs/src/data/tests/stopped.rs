//! Freezes that meet other calls half-way.

use super::{Bench, file, image, options};
use crate::Error;
use crate::config::Route;
use crate::data::WriteFlags;
use crate::{Devices, Options, Volume};
use quire_device::sync::atomic::{AtomicBool, Ordering};
use quire_device::sync::{Arc, thread};
use quire_device::{ErrorKind, IoOp, Region, SystemClock};
use quire_layout::superblock::OnError;
use quire_testkit::fsck;
use quire_testkit::{Fault, FaultKind, MemDevice};
use std::sync::mpsc;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(20);

/// Writers, truncates, fsyncs and renames of a few files while the volume is frozen and thawed: nobody waits for ever,
/// and each frozen image is clean.
#[test]
fn freezes_end_whatever_goes_on() {
    let device = Arc::new(MemDevice::new(image("24M", &["-t", "ext4", "-b", "1024", "-J", "size=1"], 3)));
    let v = Volume::open(Devices::one(device.clone()), Arc::new(SystemClock), options(Route::Ordered)).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let _background = v.maintenance().spawn_background();
    let threads: Vec<_> = (0..6u32)
        .map(|n| {
            let (v, stop) = (v.clone(), stop.clone());
            thread::spawn(move || {
                let mut i = 0u64;
                while !stop.load(Ordering::Relaxed) {
                    i += 1;
                    let ino = file((n + u32::try_from(i % 2).unwrap()) % 3);
                    match n % 3 {
                        0 => drop(v.write(
                            ino,
                            i % 50 * 700,
                            &[1; 3000],
                            WriteFlags { privileges: crate::Privileges::Drop, ..WriteFlags::default() },
                        )),
                        1 => drop(v.truncate(ino, i % 37 * 1000)),
                        _ => drop(v.fsync(ino, i.is_multiple_of(2))),
                    }
                    if n == 0 && i.is_multiple_of(16) {
                        let change = crate::SetAttr { mode: Some(0o6755), ..crate::SetAttr::default() };
                        v.setattr(ino, &change).ok();
                    }
                }
            })
        })
        .collect();
    let (told, done) = mpsc::channel();
    let (theirs, disk) = (v.clone(), device.clone());
    let freezer = thread::spawn(move || {
        for n in 0..60 {
            theirs.maintenance().freeze().unwrap();
            let image = (n % 20 == 0).then(|| disk.snapshot());
            theirs.maintenance().thaw().unwrap();
            told.send(image).unwrap();
        }
    });
    for n in 0..60 {
        let image = done.recv_timeout(LONG).unwrap_or_else(|_| panic!("freeze {n} does not end"));
        if let Some(image) = image {
            fsck(&image);
        }
    }
    stop.store(true, Ordering::Relaxed);
    freezer.join().unwrap();
    threads.into_iter().for_each(|t| t.join().unwrap());
}

/// An unmount that comes before the thaw loses nothing that was written, and refuses the writers that wait.
#[test]
fn an_unmount_ends_a_freeze_and_loses_nothing() {
    let mut b = Bench::new("16M", &["-t", "ext4"], 1, options(Route::Ordered));
    b.volume.write(file(0), 0, &[1; 5000], WriteFlags::default()).unwrap();
    b.volume.maintenance().freeze().unwrap();
    let writer = std::thread::spawn({
        let v = b.volume.clone();
        move || v.write(file(0), 5000, &[3; 5000], WriteFlags::default())
    });
    b.volume.close().unwrap();
    assert!(matches!(writer.join().unwrap(), Err(Error::ReadOnly(_))), "a writer that waits for the thaw is refused");
    b.remount();
    let got = b.read_all(file(0), 10_000);
    assert_eq!(got, [1; 5000]);
}

/// A batch that is larger than a transaction is told so, and waits for nobody.
#[test]
fn a_batch_that_outgrows_its_transaction_is_refused() {
    let b = Bench::new("24M", &["-t", "ext4", "-b", "1024", "-J", "size=1"], 1, options(Route::Journal));
    let v = b.volume.clone();
    let (told, done) = mpsc::channel();
    thread::spawn(move || {
        let batch = v.begin_batch().unwrap();
        let failed = (0..5000u64).find_map(|n| v.write(file(0), n * 1024, &[1; 1024], WriteFlags::default()).err());
        drop(batch);
        told.send(failed.map(|e| e.to_string())).unwrap();
        v.write(file(0), 0, &[2; 1024], WriteFlags::default()).unwrap();
        v.fsync(file(0), false).unwrap();
        told.send(None).unwrap();
    });
    let why = done.recv_timeout(LONG).expect("it waits for itself");
    assert!(why.expect("it cannot all fit").contains("batch"));
    done.recv_timeout(LONG).expect("the volume goes on");
    b.check();
}

/// A volume that turns read-only while a truncate writes back what is pending ends the truncate.
#[test]
fn a_truncate_ends_when_the_volume_turns_read_only() {
    let on_error = Some(OnError::RemountReadOnly);
    let b = Bench::new("16M", &["-t", "ext4"], 1, Options { on_error, ..options(Route::Ordered) });
    let v = b.volume.clone();
    v.write(file(0), 0, &[1; 50_000], WriteFlags::default()).unwrap();
    let io = FaultKind::Error(ErrorKind::Io);
    b.device.inner().inject(Fault::always(IoOp::Write, io).in_region(Region::Data));
    let (told, done) = mpsc::channel();
    thread::spawn(move || {
        told.send(v.truncate(file(0), 20_000).is_err()).unwrap();
        told.send(v.fsync(file(0), false).is_err()).unwrap();
        told.send(v.fsync(file(0), true).is_err()).unwrap();
    });
    for what in ["truncate", "fsync", "fdatasync"] {
        assert!(done.recv_timeout(LONG).unwrap_or_else(|_| panic!("{what} does not end")), "{what} succeeds");
    }
}
