//! Freeze, thaw and unmount beside users of the mount: nothing that an fsync has acknowledged is lost, nobody hangs.

use crate::common::{Mounted, Place, check, is_within, needs_mounts, needs_tools, ok, quire, said, text, wait_until};
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::process::Stdio;
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

/// How often a race is run: `QUIRE_ROUNDS`, or `usual` in a short run.
fn rounds(usual: u64) -> u64 {
    std::env::var("QUIRE_ROUNDS").map_or(usual, |n| n.parse().expect("QUIRE_ROUNDS is a number"))
}

/// L1: the daemon is stopped while four writers append and fsync.
fn sigterm_beside_writers(name: &str, options: &str) {
    needs_mounts();
    let (rounds, mut kept) = (rounds(1), 0);
    for round in 0..rounds {
        kept += sigterm_once(options, round);
    }
    println!("{name}: {rounds} runs, {kept} acknowledged records, all there");
}

/// One run on a fresh image. Returns how many records were acknowledged.
fn sigterm_once(options: &str, round: u64) -> u64 {
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
    std::thread::sleep(Duration::from_millis(round * 47 % 1000));
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
    for (n, least) in acknowledged.iter().enumerate() {
        let found = records(&place, &format!("w{n}"));
        assert!(found >= *least, "run {round}, writer {n}: {least} records were acknowledged, {found} are there");
    }
    acknowledged.iter().sum()
}

#[test]
fn sigterm_beside_writers_keeps_acknowledged_records_with_auto() {
    sigterm_beside_writers("sigterm_beside_writers_keeps_acknowledged_records_with_auto", "data=auto");
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
fn thaw_during_freeze(name: &str, options: &str) {
    const FILES: usize = 200;
    needs_mounts();
    let place = Place::new("64M", &[]);
    let rounds = rounds(2);
    for round in 0..rounds {
        let m = place.mount(options);
        let dir = m.dir().to_owned();
        let freeze = std::thread::spawn(move || said(&mut quire(&["freeze", &dir])));
        wait_until("a thaw", || said(&mut quire(&["thaw", m.dir()])).0 == 0);
        freeze.join().expect("no panic");
        let path = |n| m.path(&format!("f{n}"));
        let contents = format!("round {round}\n").repeat(50);
        for n in 0..FILES {
            let mut file = File::create(path(n)).expect("a file");
            file.write_all(contents.as_bytes()).expect("a write");
            file.sync_all().expect("an fsync");
        }
        m.end_by(Signal::KILL);
        detach(&place);
        let m = place.mount(options);
        let lost =
            (0..FILES).filter(|n| fs::read(m.path(&format!("f{n}"))).ok().as_deref() != Some(contents.as_bytes()));
        assert_eq!(lost.count(), 0, "run {round}: of {FILES} files that were synced so many are not there");
        m.unmount();
    }
    place.check();
    println!("{name}: {rounds} runs, {FILES} files each, all there");
}

#[test]
fn a_thaw_during_a_freeze_leaves_an_image_that_survives_a_kill_with_auto() {
    thaw_during_freeze("a_thaw_during_a_freeze_leaves_an_image_that_survives_a_kill_with_auto", "data=auto");
}

#[test]
fn a_thaw_during_a_freeze_leaves_an_image_that_survives_a_kill_with_ordered() {
    thaw_during_freeze("a_thaw_during_a_freeze_leaves_an_image_that_survives_a_kill_with_ordered", "data=ordered");
}

#[test]
fn a_thaw_during_a_freeze_leaves_an_image_that_survives_a_kill_with_journal() {
    thaw_during_freeze("a_thaw_during_a_freeze_leaves_an_image_that_survives_a_kill_with_journal", "data=journal");
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
    needs_mounts();
    let place = Place::new("32M", &[]);
    let m = frozen(&place);
    let before = m.path("before");
    let callers: Vec<_> = (0..110)
        .map(|n| {
            let (before, dir) = (before.clone(), m.dir().to_owned());
            std::thread::spawn(move || match n {
                0..80 => ok(&mut quire(&["sync", &dir])),
                80..90 => File::open(&before).and_then(|f| f.sync_all()).map(|()| String::new()).expect("fsync"),
                90..100 => ok(crate::common::tool("chattr").args(["+d", text(&before)])),
                _ => fs::write(&before, [2; 5000]).map(|()| String::new()).expect("a write"),
            })
        })
        .collect();
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(fs::read_dir(m.dir()).expect("a listing").count(), 2, "reading goes on");
    ok(crate::common::tool("timeout").args(["20", env!("CARGO_BIN_EXE_quire"), "thaw", m.dir()]));
    callers.into_iter().for_each(|c| drop(c.join().expect("no panic")));
    m.unmount();
    place.check();
}

/// A rename between two directories waits, with `dirsync`, until both are durable: a freeze that comes meanwhile waits
/// for both, and neither for the other.
#[test]
fn a_freeze_beside_renames_that_wait_for_two_directories_ends() {
    needs_mounts();
    let place = Place::new("64M", &[]);
    let m = place.mount("dirsync");
    let (a, b) = (m.path("a"), m.path("b"));
    fs::create_dir(&a).unwrap();
    fs::create_dir(&b).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let renames = |n: u32| {
        let (here, there, stop) = (a.join(n.to_string()), b.join(n.to_string()), stop.clone());
        std::thread::spawn(move || {
            File::create(&here).unwrap();
            while !stop.load(Ordering::Relaxed) {
                fs::rename(&here, &there).unwrap();
                fs::rename(&there, &here).unwrap();
            }
        })
    };
    let threads: Vec<_> = (0..3).map(renames).collect();
    for _ in 0..rounds(1) * 30 {
        ok(&mut quire(&["freeze", m.dir()]));
        ok(&mut quire(&["thaw", m.dir()]));
    }
    stop.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|t| t.join().expect("no panic"));
    m.unmount();
    place.check();
}

/// A signal ends a freeze, and with it the wait of writers: of one who makes a file, and of one whose data only the
/// kernel has, which no unmount may lose.
#[test]
fn sigterm_on_a_frozen_mount_unmounts_it() {
    needs_mounts();
    let place = Place::new("32M", &[]);
    let m = frozen(&place);
    let path = m.path("waits");
    let writer = std::thread::spawn(move || fs::write(path, [9; 3000]).is_ok());
    let mut kept = File::options().append(true).open(m.path("before")).expect("a file");
    kept.write_all(&[2; 3000]).expect("the kernel keeps it");
    let closed = std::thread::spawn(move || drop(kept));
    std::thread::sleep(Duration::from_millis(200));
    assert!(!closed.is_finished(), "the close waits for the thaw");
    m.end_by(Signal::TERM);
    let written = writer.join().expect("no panic");
    closed.join().expect("no panic");
    place.check();
    let m = place.mount("");
    assert_eq!(fs::read(m.path("before")).expect("a file"), [vec![1; 5000], vec![2; 3000]].concat());
    if written {
        assert_eq!(fs::read(m.path("waits")).expect("a file"), [9; 3000]);
    }
    m.unmount();
}

/// The kernel's dirty pages would wait for the thaw, and the second freeze for them.
#[test]
fn a_second_freeze_of_a_mount_with_dirty_pages_is_busy() {
    needs_mounts();
    let place = Place::new("32M", &[]);
    let m = frozen(&place);
    // By a process of its own: whoever starts a program would close the file for it, and wait.
    let append = format!("echo more >> {}", text(&m.path("before")));
    let mut writer = crate::common::tool("sh").args(["-c", &append]).spawn().expect("a shell");
    std::thread::sleep(Duration::from_millis(300));
    let mut freeze = quire(&["freeze", m.dir()]).stderr(Stdio::piped()).spawn().expect("it starts");
    let refused = is_within(Duration::from_secs(10), || freeze.try_wait().expect("our child").is_some());
    ok(&mut quire(&["thaw", m.dir()]));
    assert!(writer.wait().expect("it ends").success());
    let said = freeze.wait_with_output().expect("its output");
    let words = String::from_utf8_lossy(&said.stderr);
    assert!(refused && said.status.code() == Some(32) && words.contains("busy"), "{said:?}");
    m.unmount();
    place.check();
}

/// An unmount while many requests wait for a thaw: SIGTERM answers all of them, and what was acknowledged is there.
#[test]
fn sigterm_answers_all_requests_that_wait_for_a_thaw() {
    const CALLERS: usize = 90;
    needs_mounts();
    let place = Place::new("32M", &[]);
    let m = frozen(&place);
    let callers: Vec<_> = (0..CALLERS)
        .map(|n| {
            let path = m.path(&format!("waits{n}"));
            std::thread::spawn(move || {
                let mut file = File::create(path)?;
                file.write_all(&[9; 700])?;
                file.sync_all()
            })
        })
        .collect();
    std::thread::sleep(Duration::from_millis(300));
    m.end_by(Signal::TERM);
    let synced: Vec<bool> = callers.into_iter().map(|c| c.join().expect("no panic").is_ok()).collect();
    place.check();
    let m = place.mount("");
    for n in (0..CALLERS).filter(|n| synced[*n]) {
        assert_eq!(fs::read(m.path(&format!("waits{n}"))).expect("it was synced"), [9; 700], "file {n}");
    }
    m.unmount();
}

/// Who looks for data in a file whose pages the kernel cannot hand over before the thaw waits; who looks into another
/// file does not. Each is a process of its own, as above.
#[test]
fn on_a_frozen_mount_pages_that_wait_for_the_thaw_hold_up_no_other_file() {
    needs_mounts();
    needs_tools(&["perl"]);
    let place = Place::new("32M", &[]);
    let m = place.mount("");
    for name in ["dirty", "clean"] {
        fs::write(m.path(name), [1; 8192]).expect("a file");
        File::open(m.path(name)).and_then(|f| f.sync_all()).expect("a sync");
    }
    ok(&mut quire(&["freeze", m.dir()]));
    // lseek(2) with SEEK_DATA.
    let looks = |name: &str, first: &str| {
        let script = format!("open(F, '+<', $ARGV[0]) or die; {first}; sysseek(F, 0, 3) eq '0 but true' or die $!");
        crate::common::tool("perl").args(["-e", &script]).arg(m.path(name)).spawn().expect("perl")
    };
    let mut waits = looks("dirty", "syswrite(F, 'x' x 4096)");
    std::thread::sleep(Duration::from_millis(300));
    let mut goes_on = looks("clean", "");
    let went_on = is_within(Duration::from_secs(10), || goes_on.try_wait().expect("our child").is_some());
    let waited = waits.try_wait().expect("our child").is_none();
    ok(&mut quire(&["thaw", m.dir()]));
    for child in [&mut waits, &mut goes_on] {
        assert!(child.wait().expect("it ends").success());
    }
    assert!(went_on, "one file's pages hold up the other");
    assert!(waited, "the first file has no dirty pages: this shows nothing");
    m.unmount();
    place.check();
}

crate::common::over_uring! {
    on_a_frozen_mount_pages_that_wait_for_the_thaw_hold_up_no_other_file,
    sigterm_beside_writers_keeps_acknowledged_records_with_auto,
    a_thaw_during_a_freeze_leaves_an_image_that_survives_a_kill_with_auto,
    a_frozen_mount_answers_readers_and_thaws_under_load,
    sigterm_on_a_frozen_mount_unmounts_it,
    sigterm_answers_all_requests_that_wait_for_a_thaw,
}
