//! Freeze, thaw and unmount beside users of the mount: nothing that an fsync has acknowledged is lost, nobody hangs.

mod common;

use common::{Mounted, Place, cannot_mount, check, ok, quire, said, text, wait_until};
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

const RECORD: usize = 64;

/// Appends and fsyncs until an error; counts the records that were acknowledged.
fn append(path: PathBuf, acknowledged: Arc<AtomicU64>, stop: Arc<AtomicBool>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut file = File::options().create(true).append(true).open(path).expect("a file");
        while !stop.load(Ordering::Relaxed) && file.write_all(&[7; RECORD]).is_ok() && file.sync_all().is_ok() {
            acknowledged.fetch_add(1, Ordering::SeqCst);
        }
    })
}

/// Records in the image, which must be clean, or become so by its log.
fn records(place: &Place, name: &str) -> u64 {
    let m = place.mount("");
    let len = fs::metadata(m.path(name)).expect("the file was acknowledged").len();
    m.unmount();
    len / RECORD as u64
}

/// L1: the daemon is stopped while four writers append and fsync.
fn sigterm_beside_writers(name: &str, options: &str) {
    if cannot_mount(name) {
        return;
    }
    let place = Place::new("64M", &[]);
    let m = place.mount(options);
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..4)
        .map(|n| {
            let acknowledged = Arc::new(AtomicU64::new(0));
            (append(m.path(&format!("w{n}")), acknowledged.clone(), stop.clone()), acknowledged)
        })
        .collect();
    wait_until("acknowledged records", || writers.iter().all(|(_, n)| n.load(Ordering::SeqCst) > 10));
    m.end_by(Signal::TERM);
    stop.store(true, Ordering::Relaxed);
    let acknowledged: Vec<u64> = writers
        .into_iter()
        .map(|(writer, n)| {
            writer.join().expect("no panic");
            n.load(Ordering::SeqCst)
        })
        .collect();
    check(&place.image());
    for (n, least) in acknowledged.into_iter().enumerate() {
        let found = records(&place, &format!("w{n}"));
        assert!(found >= least, "writer {n}: {least} records were acknowledged, {found} are there");
    }
}

#[test]
fn sigterm_beside_writers_keeps_acknowledged_records_with_auto() {
    sigterm_beside_writers("sigterm_beside_writers_keeps_acknowledged_records_with_auto", "");
}

#[test]
fn sigterm_beside_writers_keeps_acknowledged_records_with_ordered() {
    sigterm_beside_writers("sigterm_beside_writers_keeps_acknowledged_records_with_ordered", "data=ordered");
}

#[test]
fn sigterm_beside_writers_keeps_acknowledged_records_with_journal() {
    sigterm_beside_writers("sigterm_beside_writers_keeps_acknowledged_records_with_journal", "data=journal");
}

/// L1: a thaw that comes while the freeze is under way. The volume is in use afterwards, and a crash loses nothing.
#[test]
fn a_thaw_during_a_freeze_leaves_an_image_that_survives_a_kill() {
    if cannot_mount("a_thaw_during_a_freeze_leaves_an_image_that_survives_a_kill") {
        return;
    }
    let place = Place::new("64M", &[]);
    for round in 0..4 {
        let m = place.mount("");
        let dir = m.dir().to_owned();
        let freeze = std::thread::spawn(move || said(&mut quire(&["freeze", &dir])));
        wait_until("a thaw", || said(&mut quire(&["thaw", m.dir()])).0 == 0);
        freeze.join().expect("no panic");
        for n in 0..20 {
            let mut file = File::create(m.path(&format!("r{round}f{n}"))).expect("a file");
            file.write_all(&[3; 500]).expect("a write");
            file.sync_all().expect("an fsync");
        }
        m.end_by(Signal::KILL);
        detach(&place);
        let m = place.mount("");
        for n in 0..20 {
            assert_eq!(fs::read(m.path(&format!("r{round}f{n}"))).expect("it was synced"), [3; 500]);
        }
        m.unmount();
    }
    place.check();
}

/// Takes away what a killed daemon has left.
fn detach(place: &Place) {
    said(&mut quire(&["umount", "-l", text(&place.mnt())]));
}

fn frozen(place: &Place) -> Mounted {
    let m = place.mount("");
    fs::write(m.path("before"), [1; 5000]).expect("a write");
    ok(&mut quire(&["freeze", m.dir()]));
    m
}

/// L2: more callers than workers, each in a call that waits for the thaw or could.
#[test]
fn a_frozen_mount_answers_readers_and_thaws_under_load() {
    if cannot_mount("a_frozen_mount_answers_readers_and_thaws_under_load") {
        return;
    }
    let place = Place::new("32M", &[]);
    let m = frozen(&place);
    let before = m.path("before");
    let callers: Vec<_> = (0..110)
        .map(|n| {
            let (before, dir) = (before.clone(), m.dir().to_owned());
            std::thread::spawn(move || match n {
                0..80 => ok(&mut quire(&["sync", &dir])),
                80..90 => File::open(&before).and_then(|f| f.sync_all()).map(|()| String::new()).expect("fsync"),
                90..100 => ok(common::tool("chattr").args(["+d", text(&before)])),
                _ => fs::write(&before, [2; 5000]).map(|()| String::new()).expect("a write"),
            })
        })
        .collect();
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(fs::read_dir(m.dir()).expect("a listing").count(), 2, "reading goes on");
    ok(common::tool("timeout").args(["20", env!("CARGO_BIN_EXE_quire"), "thaw", m.dir()]));
    callers.into_iter().for_each(|c| drop(c.join().expect("no panic")));
    m.unmount();
    place.check();
}

/// A signal ends a freeze, and with it the wait of writers.
#[test]
fn sigterm_on_a_frozen_mount_unmounts_it() {
    if cannot_mount("sigterm_on_a_frozen_mount_unmounts_it") {
        return;
    }
    let place = Place::new("32M", &[]);
    let m = frozen(&place);
    let path = m.path("waits");
    let writer = std::thread::spawn(move || fs::write(path, [9; 3000]).is_ok());
    std::thread::sleep(Duration::from_millis(200));
    m.end_by(Signal::TERM);
    let written = writer.join().expect("no panic");
    place.check();
    let m = place.mount("");
    assert_eq!(fs::read(m.path("before")).expect("a file"), [1; 5000]);
    if written {
        assert_eq!(fs::read(m.path("waits")).expect("a file"), [9; 3000]);
    }
    m.unmount();
}
