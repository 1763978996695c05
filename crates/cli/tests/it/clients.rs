//! Many clients at once: requests that wait for a commit take no thread, and none of them is lost.

use crate::common::{Place, needs_mounts, needs_root, ok, quire, said, skip, text, tool, wait_until};
use crate::served::{Served, Slow};
use quire_device::{Buf, Io, SystemClock};
use quire_testkit::{MemDevice, Model, Modelled};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

/// The threads of a daemon, without those by which the kernel serves its rings: they come and go.
fn threads_of(pid: i32) -> BTreeSet<String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("the daemon lives");
    let tasks = tasks.map(|t| t.expect("an entry").file_name().to_string_lossy().into_owned());
    tasks.filter(|task| !name_of(pid, task).starts_with("iou-wrk")).collect()
}

/// Empty for a thread that has ended.
fn name_of(pid: i32, task: &str) -> String {
    fs::read_to_string(format!("/proc/{pid}/task/{task}/comm")).unwrap_or_default()
}

pub(crate) fn figure(mnt: &Path, path: &str) -> u64 {
    let text = ok(&mut quire(&["stats", "--json", text(mnt)]));
    let stats: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    stats.pointer(path).and_then(serde_json::Value::as_u64).unwrap_or_else(|| panic!("{path} in {text}"))
}

/// Makes `clients` files, and runs `each` for every one of them on a thread of its own.
pub(crate) fn with_clients(mnt: &Path, clients: usize, each: impl Fn(&File) + Sync) {
    let files: Vec<File> = (0..clients)
        .map(|n| File::options().create(true).write(true).truncate(false).open(mnt.join(n.to_string())).unwrap())
        .collect();
    let each = &each;
    thread::scope(|scope| {
        for f in &files {
            thread::Builder::new().stack_size(64 << 10).spawn_scoped(scope, move || each(f)).expect("a thread");
        }
    });
}

/// Changes one of eight blocks, and waits until that is durable.
pub(crate) fn write(f: &File, n: u64) {
    f.write_all_at(&n.to_ne_bytes(), 4096 * (n % 8)).unwrap();
    f.sync_data().unwrap();
}

/// The daemon's threads that answer no requests: the first one, background, commits for suspended callers, control
/// socket, log, mountinfo, openers of the image, the kernel's pages, changes that wait for space, the ends of reads,
/// signals; the reader of requests that are answered again; with rings the keeper of their entries, and the reader of
/// /dev/fuse beside one for each CPU.
const BESIDE_WORKERS: usize = 14;

#[test]
fn sixty_four_fsyncing_clients_share_commits_and_take_few_threads() {
    const CLIENTS: usize = 64;
    const ROUNDS: u64 = 20;
    needs_mounts();
    let place = Place::new("64M", &[]);
    let m = place.mount("data=auto");
    // The pool grows while there is new load, and then stays.
    with_clients(&place.mnt(), CLIENTS, |f| (0..ROUNDS).for_each(|n| write(f, n)));
    let before = threads_of(m.pid);
    let transactions = figure(&place.mnt(), "/journal/transactions");
    with_clients(&place.mnt(), CLIENTS, |f| (0..ROUNDS).for_each(|n| write(f, n)));
    // Before the next question, which a thread of its own answers.
    let after = threads_of(m.pid);
    let transactions = figure(&place.mnt(), "/journal/transactions") - transactions;
    let cpus = thread::available_parallelism().unwrap().get();
    let names: Vec<String> = after.iter().map(|task| name_of(m.pid, task)).collect();
    assert!(after.len() <= cpus + 16 + BESIDE_WORKERS, "{} threads: {names:?}", after.len());
    assert!(before.is_subset(&after), "threads ended under load: {before:?}, {after:?}");
    let fsyncs = CLIENTS as u64 * ROUNDS;
    // How many share one depends on how long a flush takes here.
    assert!(transactions * 2 <= fsyncs, "{transactions} commits for {fsyncs} fsyncs");
    m.unmount();
    place.check();
}

/// A thousand writes wait for a thaw when the daemon is told to end: each is answered, and its bytes are there.
#[test]
fn a_thousand_waiting_requests_are_answered_at_unmount() {
    const CLIENTS: usize = 1000;
    needs_mounts();
    let place = Place::new("64M", &[]);
    let m = place.mount("writethrough");
    let mnt = place.mnt();
    with_clients(&mnt, CLIENTS, |_| ());
    ok(&mut quire(&["freeze", text(&mnt)]));
    let (begun, ended) = (AtomicU32::new(0), AtomicU32::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            with_clients(&mnt, CLIENTS, |f| {
                begun.fetch_add(1, Ordering::SeqCst);
                f.write_all_at(&[7; 100], 0).unwrap();
                f.sync_all().unwrap();
                ended.fetch_add(1, Ordering::SeqCst);
            });
        });
        wait_until("the writes", || begun.load(Ordering::SeqCst) == 1000);
        thread::sleep(std::time::Duration::from_millis(200));
        assert_eq!(ended.load(Ordering::SeqCst), 0, "the volume is frozen");
        assert!(threads_of(m.pid).len() < 64, "{} threads", threads_of(m.pid).len());
        kill_process(Pid::from_raw(m.pid).unwrap(), Signal::TERM).unwrap();
    });
    assert_eq!(ended.load(Ordering::SeqCst), 1000);
    wait_until("the daemon's end", || !m.is_alive());
    drop(m);
    place.check();
    let m = place.mount("ro");
    for n in 0..CLIENTS {
        assert_eq!(fs::read(mnt.join(n.to_string())).unwrap(), [7; 100], "{n}");
    }
    m.unmount();
}

fn slow_reads() -> Served<Slow> {
    Served::of("64M", |image| Slow::new(image, |io| matches!(io, Io::Read { .. })))
}

/// As many reads as the kernel sends at once wait for the device, and no worker waits with them.
#[test]
fn reads_that_wait_for_the_device_take_no_worker() {
    let more = workers_of_reads(4096);
    assert!(more <= 2, "{more} workers more");
}

/// Of large ones as many are read by workers as there are CPUs.
#[test]
fn large_reads_that_wait_for_the_device_take_a_worker_for_each_cpu() {
    let cpus = thread::available_parallelism().unwrap().get();
    let more = workers_of_reads(128 << 10);
    assert!(more <= cpus + 2, "{more} workers more");
}

/// How many workers more there are while clients read so many bytes each from a slow device.
fn workers_of_reads(bytes: usize) -> usize {
    const CLIENTS: usize = 16;
    needs_mounts();
    needs_root();
    let slow = slow_reads();
    let m = slow.mount("");
    let content: Vec<u8> = (0..CLIENTS).flat_map(|n| vec![u8::try_from(n).unwrap(); bytes]).collect();
    fs::write(m.path("f"), &content).unwrap();
    m.unmount();
    // Nothing of the file is in memory.
    let m = slow.mount("noatime");
    let path = m.path("f");
    let file = File::options().read(true).custom_flags(OFlags::DIRECT.bits().cast_signed()).open(&path).unwrap();
    file.read_at(&mut Buf::zeroed(4096), 0).unwrap();
    slow.device.takes.store(150, Ordering::SeqCst);
    let read = |n: usize| {
        let mut buf = Buf::zeroed(bytes);
        file.read_exact_at(&mut buf, (n * bytes) as u64).unwrap();
        assert!(buf.iter().all(|b| usize::from(*b) == n), "part {n}");
    };
    let before = workers(m.pid);
    let most = most_workers(m.pid, CLIENTS, read);
    slow.device.takes.store(0, Ordering::SeqCst);
    drop(file);
    m.unmount();
    most - before
}

/// Clients that need names, attributes, listings, and files of many pieces, which no memory has, wait for the device,
/// and no worker waits with them.
#[test]
fn requests_whose_metadata_is_on_the_device_take_no_worker() {
    const CLIENTS: usize = 48;
    needs_mounts();
    needs_root();
    let slow = slow_reads();
    let m = slow.mount("");
    let of = |n: usize| m.path(&format!("d{n}"));
    for n in 0..CLIENTS {
        fs::create_dir(of(n)).unwrap();
        fs::write(of(n).join("f"), [7; 100]).unwrap();
        std::os::unix::fs::symlink("f", of(n).join("l")).unwrap();
        let pieces = File::create(of(n).join("pieces")).unwrap();
        (0..4).for_each(|piece| pieces.write_all_at(&[8; 4096], piece * 16_384).unwrap());
        pieces.sync_all().unwrap();
    }
    m.unmount();
    let m = slow.mount("noatime");
    let of = |n: usize| m.path(&format!("d{n}"));
    // The mount itself has read what it needs.
    fs::metadata(m.path("d0")).unwrap();
    slow.device.takes.store(150, Ordering::SeqCst);
    let client = |n: usize| match n % 6 {
        0 => assert_eq!(fs::metadata(of(n).join("f")).unwrap().len(), 100),
        1 => assert_eq!(fs::read_dir(of(n)).unwrap().count(), 3),
        2 => assert_eq!(fs::read_link(of(n).join("l")).unwrap(), Path::new("f")),
        3 => drop(File::create_new(of(n).join("new")).unwrap()),
        4 => fs::remove_file(of(n).join("f")).unwrap(),
        _ => {
            let bytes = fs::read(of(n).join("pieces")).unwrap();
            assert!(bytes.len() == 3 * 16_384 + 4096);
            let right = |(at, byte): (usize, &u8)| *byte == if at % 16_384 < 4096 { 8 } else { 0 };
            assert!(bytes.iter().enumerate().all(right));
        }
    };
    let before = workers(m.pid);
    let most = most_workers(m.pid, CLIENTS, client);
    slow.device.takes.store(0, Ordering::SeqCst);
    // A worker for each CPU reads more than 32 KiB; those that free files wait for bitmaps; the pool grows for
    // contended locks, too. All 18 that there may be are taken where these requests wait with a worker.
    let cpus = thread::available_parallelism().unwrap().get();
    assert!(most <= before + cpus + 12, "{most} workers, before {before}");
    for n in 0..CLIENTS {
        assert_eq!(m.path(&format!("d{n}/new")).exists(), n % 6 == 3, "{n}");
        assert_eq!(m.path(&format!("d{n}/f")).exists(), n % 6 != 4, "{n}");
    }
    m.unmount();
}

/// The threads of a daemon that are workers.
pub(crate) fn workers_of(pid: i32) -> BTreeSet<String> {
    threads_of(pid).into_iter().filter(|task| name_of(pid, task).trim() == "quire-fuse").collect()
}

/// Workers of a daemon.
fn workers(pid: i32) -> usize {
    workers_of(pid).len()
}

/// Workers at most, of a daemon, while so many clients run at once.
fn most_workers(pid: i32, clients: usize, client: impl Fn(usize) + Sync) -> usize {
    thread::scope(|scope| {
        let client = &client;
        let clients: Vec<_> = (0..clients).map(|n| scope.spawn(move || client(n))).collect();
        let mut most = 0;
        while !clients.iter().all(thread::ScopedJoinHandle::is_finished) {
            most = most.max(workers(pid));
            thread::sleep(Duration::from_millis(10));
        }
        most
    })
}

/// A thousand fsyncs wait for the flush of a commit when the daemon is told to end: each is answered, and its bytes are
/// there.
#[test]
fn a_thousand_fsyncs_that_wait_for_a_commit_are_answered_at_unmount() {
    const CLIENTS: usize = 1000;
    needs_mounts();
    needs_root();
    let model = Model { flush: Duration::from_millis(700), ..Model::default() };
    let slow = Served::of("64M", |image| Modelled::new(MemDevice::new(image), model, Arc::new(SystemClock)));
    let m = slow.mount("writethrough");
    let mnt = slow.place.mnt();
    with_clients(&mnt, CLIENTS, |_| ());
    let (written, ended) = (AtomicU32::new(0), AtomicU32::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            with_clients(&mnt, CLIENTS, |f| {
                f.write_all_at(&[7; 100], 0).unwrap();
                written.fetch_add(1, Ordering::SeqCst);
                f.sync_all().unwrap();
                ended.fetch_add(1, Ordering::SeqCst);
            });
        });
        wait_until("the writes", || written.load(Ordering::SeqCst) == 1000);
        let threads = threads_of(m.pid).len();
        kill_process(Pid::from_raw(m.pid).unwrap(), Signal::TERM).unwrap();
        assert!(ended.load(Ordering::SeqCst) < 1000, "a commit takes 700 ms");
        assert!(threads < 64, "{threads} threads");
    });
    assert_eq!(ended.load(Ordering::SeqCst), 1000);
    wait_until("the daemon's end", || !m.is_alive());
    drop(m);
    let m = slow.mount("ro");
    for n in 0..CLIENTS {
        assert_eq!(fs::read(mnt.join(n.to_string())).unwrap(), [7; 100], "{n}");
    }
    m.unmount();
}

/// Clients that are killed or interrupted in their fsync take nobody with them.
#[test]
fn clients_killed_in_fsync_leave_the_others_alone() {
    needs_mounts();
    let place = Place::new("64M", &[]);
    let m = place.mount("");
    let (mnt, over) = (place.mnt(), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            with_clients(&mnt, 8, |f| {
                while !over.load(Ordering::Relaxed) {
                    f.write_all_at(&[1; 4096], 0).unwrap();
                    f.sync_data().unwrap();
                }
            });
        });
        for (n, signal) in ["KILL", "INT", "KILL", "TERM", "INT", "KILL"].into_iter().enumerate() {
            let file = mnt.join(format!("victim{n}"));
            let script = format!(
                "while :; do dd if=/dev/zero of={} bs=4k count=4 conv=notrunc,fsync 2>/dev/null; done",
                file.display()
            );
            let (code, words) = said(tool("timeout").args(["-s", signal, "0.3", "sh", "-c", &script]));
            assert!(code != 0, "{words}");
        }
        over.store(true, Ordering::Relaxed);
    });
    m.unmount();
    place.check();
}

/// The kernel's abort of the connection answers all who wait with an error; the daemon ends, and what was acknowledged
/// is there.
#[test]
fn an_aborted_connection_ends_the_daemon_and_keeps_what_was_acknowledged() {
    needs_mounts();
    needs_root();
    let place = Place::new("64M", &[]);
    let connections = place.path("connections");
    fs::create_dir(&connections).unwrap();
    let (code, words) = said(tool("mount").args(["-t", "fusectl", "none", text(&connections)]));
    if code != 0 {
        skip(words);
    }
    let m = place.mount("");
    let mnt = place.mnt();
    let device = fs::metadata(&mnt).unwrap().dev();
    let control = connections.join(rustix::fs::minor(device).to_string()).join("abort");
    let least: Vec<AtomicU32> = (0..32).map(|_| AtomicU32::new(0)).collect();
    let errors = AtomicU32::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            with_clients(&mnt, least.len(), |f| {
                let mine = usize::try_from(f.metadata().unwrap().ino()).unwrap() % least.len();
                for n in 1.. {
                    let written = f.write_all_at(&u32::to_ne_bytes(n), 0).and_then(|()| f.sync_data());
                    if written.is_err() {
                        errors.fetch_add(1, Ordering::Relaxed);
                        return;
                    }
                    least[mine].store(n, Ordering::Relaxed);
                }
            });
        });
        thread::sleep(std::time::Duration::from_millis(300));
        fs::write(&control, "1").unwrap();
    });
    ok(tool("umount").arg(&connections));
    assert_eq!(errors.load(Ordering::Relaxed), 32, "each client has its error");
    wait_until("the daemon's end", || !m.is_alive());
    drop(m);
    ok(&mut quire(&["recover", text(&place.image())]));
    let m = place.mount("ro");
    for n in 0..least.len() {
        let path = mnt.join(n.to_string());
        let mine = usize::try_from(fs::metadata(&path).unwrap().ino()).unwrap() % least.len();
        let bytes = fs::read(&path).unwrap();
        let found = bytes.get(..4).map_or(0, |b| u32::from_ne_bytes(b.try_into().unwrap()));
        assert!(found >= least[mine].load(Ordering::Relaxed), "file {n}: {found}");
    }
    m.unmount();
}

/// A removed file of which the kernel still knows may become free at any time, so a full disk lets changes wait for it.
#[test]
fn changes_that_wait_for_space_take_no_worker() {
    const CLIENTS: usize = 64;
    needs_mounts();
    let place = Place::new("16M", &["-N", "512"]);
    let m = place.mount("data=auto,writethrough");
    // A directory needs a block of its own; the kernel makes one after the other within a parent.
    let dirs: Vec<PathBuf> = (0..CLIENTS).map(|n| m.path(&format!("parent{n}"))).collect();
    dirs.iter().for_each(|dir| fs::create_dir(dir).unwrap());
    fs::write(m.path("removed"), [1; 4096]).unwrap();
    let known = rustix::fs::open(m.path("removed"), OFlags::PATH, Mode::empty()).unwrap();
    fs::remove_file(m.path("removed")).unwrap();
    let mut filler = File::create(m.path("filler")).unwrap();
    while filler.write_all(&vec![2; 1 << 16]).is_ok() {}
    let before = threads_of(m.pid).len();
    let refused = AtomicU32::new(0);
    thread::scope(|scope| {
        for dir in &dirs {
            scope.spawn(|| {
                // The first ones take what was set aside for the filler's map.
                if let Err(error) = fs::create_dir(dir.join("dir")) {
                    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull, "{}", dir.display());
                    refused.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert!(refused.into_inner() > 32, "the disk is not full");
    let more = threads_of(m.pid).len().saturating_sub(before);
    assert!(more < 8, "{more} threads more while {CLIENTS} changes waited");
    drop((known, filler));
    m.unmount();
    place.check();
}

/// The space of a removed file that somebody gives up while a change waits for it. `hold` keeps the file.
fn space_of_a_removed_file<H: Send + 'static>(hold: impl Fn(&Path) -> H) {
    const SIZE: usize = 1 << 20;
    let place = Place::new("16M", &["-N", "512"]);
    let m = place.mount("data=auto,writethrough");
    let wanting = File::create(m.path("wanting")).unwrap();
    fs::write(m.path("removed"), vec![1; SIZE]).unwrap();
    let mut filler = File::create(m.path("filler")).unwrap();
    while filler.write_all(&vec![2; 1 << 16]).is_ok() {}
    // On a busy machine the moment may be too long.
    let got = (0..10).any(|_| {
        let held = hold(&m.path("removed"));
        fs::remove_file(m.path("removed")).unwrap();
        let gives_up = thread::spawn(move || {
            thread::sleep(Duration::from_millis(30));
            drop(held);
        });
        let size = u64::try_from(SIZE / 2).unwrap();
        let got = rustix::fs::fallocate(&wanting, rustix::fs::FallocateFlags::empty(), 0, size);
        gives_up.join().unwrap();
        if got.is_err() {
            assert_eq!(got, Err(rustix::io::Errno::NOSPC));
            wait_until("the space", || fs::write(m.path("removed"), vec![1; SIZE]).is_ok());
        }
        got.is_ok()
    });
    assert!(got, "the space of a removed file was never had");
    drop((wanting, filler));
    m.unmount();
    place.check();
}

/// rm(1) returns before the kernel gives a file up: who needs its space meanwhile waits a moment, and gets it.
#[test]
fn a_change_gets_the_space_that_a_removed_file_gives_up_a_moment_later() {
    needs_mounts();
    space_of_a_removed_file(|path| rustix::fs::open(path, OFlags::PATH, Mode::empty()).unwrap());
}

/// So does close(2): the kernel tells of it later, and until then the file seems to be in use.
#[test]
fn a_change_gets_the_space_of_a_removed_file_whose_close_is_told_a_moment_later() {
    needs_mounts();
    space_of_a_removed_file(|path| File::open(path).unwrap());
}

crate::common::over_uring! {
    sixty_four_fsyncing_clients_share_commits_and_take_few_threads,
    a_thousand_waiting_requests_are_answered_at_unmount,
    clients_killed_in_fsync_leave_the_others_alone,
    an_aborted_connection_ends_the_daemon_and_keeps_what_was_acknowledged,
    changes_that_wait_for_space_take_no_worker,
    requests_whose_metadata_is_on_the_device_take_no_worker,
    a_change_gets_the_space_that_a_removed_file_gives_up_a_moment_later,
    a_change_gets_the_space_of_a_removed_file_whose_close_is_told_a_moment_later,
}
