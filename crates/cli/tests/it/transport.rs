//! Which way requests come, and what suspended requests, large transfers and the end of a mount are over rings.

use crate::common::{
    Place, URING_PARAMETER, UringAllowed, needs_mounts, needs_root, needs_tools, ok, over_uring, quire, said, skip,
    text, tool, wait_until,
};
use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

fn transport(dir: &Path) -> serde_json::Value {
    let stats: serde_json::Value = serde_json::from_str(&ok(&mut quire(&["stats", "--json", text(dir)]))).unwrap();
    stats["transport"].clone()
}

/// The transport is refused by name where the kernel does not offer it, and nothing is mounted; `auto` mounts over
/// /dev/fuse.
#[test]
fn a_transport_that_the_kernel_does_not_offer_is_refused_by_name() {
    needs_mounts();
    // Held, so that no other test allows it meanwhile; a user cannot, and none does then.
    let file = File::open(URING_PARAMETER);
    let locked = file.as_ref().map(|f| rustix::fs::flock(f, rustix::fs::FlockOperation::LockExclusive));
    if fs::read_to_string(URING_PARAMETER).is_ok_and(|t| t.starts_with('Y')) {
        skip("this host offers it");
    }
    let place = Place::new("16M", &[]);
    let (image, mnt) = (place.image(), place.mnt());
    let mount = |option: &str| said(&mut quire(&["mount", "-o", option, text(&image), text(&mnt)]));
    let (code, words) = mount("transport=uring");
    assert_eq!(code, 1, "{words}");
    assert!(words.contains("transport=uring") && words.contains("enable_uring"), "{words}");
    let (code, words) = mount("transport=auto");
    assert_eq!(code, 0, "{words}");
    assert_eq!(transport(&mnt)["name"], "dev");
    assert!(ok(&mut quire(&["stats", text(&mnt)])).contains("requests come over /dev/fuse"));
    ok(&mut quire(&["umount", text(&mnt)]));
    assert!(locked.is_ok_and(|l| l.is_ok()) || file.is_err());
}

fn the_transport_is_told() {
    needs_mounts();
    let place = Place::new("16M", &[]);
    let m = place.mount("");
    let told = transport(&place.mnt());
    assert_eq!(told["name"], "uring");
    assert!(told["queues"].as_u64().unwrap() >= 1 && told["entries"].as_u64() >= told["queues"].as_u64(), "{told}");
    assert!(ok(&mut quire(&["stats", m.dir()])).contains("requests come by io_uring"));
    m.unmount();
}

/// What large and odd transfers read is what was written: through the kernel's pages, past them, and in directories and
/// lists of attributes.
fn transfers_of_all_sizes_bring_what_was_written() {
    needs_mounts();
    let place = Place::new("256M", &["-b", "4096"]);
    let m = place.mount("");
    let bytes: Vec<u8> = (0..9 << 20u32).map(|n: u32| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for (name, flags) in [("pages", 0), ("direct", libc_o_direct())] {
        let path = m.path(name);
        let file = OpenOptions::new().create_new(true).read(true).write(true).custom_flags(flags).open(&path).unwrap();
        // Aligned for O_DIRECT.
        let mut aligned = vec![0; bytes.len() + 4096];
        let from = aligned.as_ptr().align_offset(4096);
        let aligned = &mut aligned[from..from + bytes.len()];
        aligned.copy_from_slice(&bytes);
        let mut at = 0;
        for len in [4096, 8192, 1 << 20, (1 << 20) + 4096, 3 << 20, 512 << 10] {
            file.write_all_at(&aligned[at..at + len], at as u64).unwrap();
            at += len;
        }
        file.sync_all().unwrap();
        aligned.fill(0);
        file.read_exact_at(&mut aligned[..at], 0).unwrap();
        assert!(aligned[..at] == bytes[..at], "{name}: read at once");
        drop(file);
        let mut back = Vec::new();
        File::open(&path).unwrap().read_to_end(&mut back).unwrap();
        assert!(back == bytes[..at], "{name}: read as a stream");
    }
    fs::create_dir(m.path("many")).unwrap();
    for n in 0..2000 {
        File::create(m.path(&format!("many/a-name-of-some-length-{n:05}"))).unwrap();
    }
    assert_eq!(fs::read_dir(m.path("many")).unwrap().count(), 2000);
    let value = vec![b'v'; 3000];
    let (path, mut back) = (m.path("pages"), vec![0; 65_536]);
    rustix::fs::setxattr(&path, "user.large", &value, rustix::fs::XattrFlags::empty()).unwrap();
    let n = rustix::fs::getxattr(&path, "user.large", &mut back[..]).unwrap();
    assert!(back[..n] == value[..], "{n} bytes");
    let n = rustix::fs::listxattr(&path, &mut back[..]).unwrap();
    assert!(back[..n].starts_with(b"user.large\0"), "{n} bytes");
    m.unmount();
    place.check();
}

fn libc_o_direct() -> i32 {
    i32::try_from(rustix::fs::OFlags::DIRECT.bits()).unwrap()
}

/// Ends a freeze when dropped.
struct Thaw<'a>(&'a str);

impl Drop for Thaw<'_> {
    fn drop(&mut self) {
        said(&mut quire(&["thaw", self.0]));
    }
}

/// More requests are suspended than the queues had entries: others are answered meanwhile, and all are at the thaw.
fn suspended_requests_do_not_exhaust_the_queues() {
    const WRITERS: usize = 300;
    const CALLERS: usize = 16;
    needs_mounts();
    let place = Place::new("64M", &[]);
    let m = place.mount("writethrough");
    let mnt = place.mnt();
    let entries = || transport(&mnt)["entries"].as_u64().unwrap();
    fs::write(m.path("other"), "read me").unwrap();
    let before = entries();
    let files: Vec<File> = (0..WRITERS).map(|n| File::create(m.path(&n.to_string())).unwrap()).collect();
    ok(&mut quire(&["freeze", m.dir()]));
    let ended = AtomicUsize::new(0);
    thread::scope(|scope| {
        for f in &files {
            let ended = &ended;
            let write = move || {
                f.write_all_at(&[3; 5000], 0).unwrap();
                ended.fetch_add(1, Ordering::SeqCst);
            };
            thread::Builder::new().stack_size(64 << 10).spawn_scoped(scope, write).unwrap();
        }
        // Also where an assertion fails: the writers are waited for.
        let thaw = Thaw(m.dir());
        // One entry for each that waits, and one for who comes.
        wait_until("all writes to be suspended", || entries() > WRITERS as u64 && entries() > before);
        for _ in 0..100 {
            assert_eq!(fs::read_to_string(m.path("other")).unwrap(), "read me");
            assert!(!m.path("none").exists());
        }
        assert_eq!(ended.load(Ordering::SeqCst), 0, "the volume is frozen");
        drop(thaw);
    });
    assert_eq!(ended.load(Ordering::SeqCst), WRITERS);
    // The rings have the entries of then. A queue has those that its own CPU needed, so some may need a few more for
    // these callers, but none for each of their calls.
    let grown = entries();
    let needed = before + (WRITERS + CALLERS) as u64;
    assert!(grown <= needed, "one entry for each that waits, and a few: {grown}");
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for f in &files[..CALLERS] {
            let over = &over;
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    f.write_all_at(&[4; 4096], 0).unwrap();
                    f.sync_data().unwrap();
                }
            });
        }
        for _ in 0..200 {
            assert_eq!(fs::read_to_string(m.path("other")).unwrap(), "read me");
        }
        over.store(true, Ordering::Relaxed);
    });
    let now = entries();
    assert!(now <= grown + CALLERS as u64 + 1, "entries for requests that wait are used again: {grown}, then {now}");
    drop(files);
    m.unmount();
    place.check();
}

/// Requests that come before the workers have begun, while the last queue gets its entries, are answered.
fn requests_on_the_heels_of_the_mount_are_answered() {
    const MOUNTS: usize = 60;
    needs_mounts();
    let allowed = UringAllowed::new().expect("it could be set before");
    let place = Place::new("16M", &[]);
    let (image, mnt) = (place.image(), place.mnt());
    let below = fs::metadata(&mnt).unwrap().dev();
    let cpus = thread::available_parallelism().unwrap().get();
    for round in 0..MOUNTS {
        let arguments = ["mount", "-f", "-o", "transport=uring", text(&image), text(&mnt)];
        let mut daemon = quire(&arguments).stderr(std::process::Stdio::null()).spawn().unwrap();
        let answered = AtomicUsize::new(0);
        let in_time = thread::scope(|scope| {
            for cpu in 0..cpus {
                let (answered, mnt) = (&answered, &mnt);
                scope.spawn(move || {
                    let mut only = rustix::thread::CpuSet::new();
                    only.set(cpu);
                    rustix::thread::sched_setaffinity(None, &only).ok();
                    // An error ends a client whose daemon was killed below.
                    while fs::metadata(mnt).is_ok_and(|about| about.dev() == below) {}
                    answered.fetch_add(1, Ordering::SeqCst);
                });
            }
            let start = std::time::Instant::now();
            while answered.load(Ordering::SeqCst) < cpus && start.elapsed().as_secs() < 20 {
                thread::sleep(std::time::Duration::from_millis(5));
            }
            let in_time = answered.load(Ordering::SeqCst) == cpus;
            if !in_time {
                daemon.kill().unwrap();
            }
            in_time
        });
        if in_time {
            ok(&mut quire(&["umount", text(&mnt)]));
        } else {
            said(tool("umount").arg("-l").arg(&mnt));
        }
        daemon.wait().unwrap();
        assert!(in_time, "mount {round}: a request was not answered within 20 s");
    }
    drop(allowed);
    place.check();
}

/// A mount that is taken away or left by its users under load ends, and is clean.
fn an_unmount_under_load_ends_clean() {
    needs_mounts();
    needs_root();
    let place = Place::new("64M", &[]);
    for lazy in [false, true] {
        let m = place.mount("");
        let (mnt, over) = (place.mnt(), AtomicBool::new(false));
        thread::scope(|scope| {
            for n in 0..8 {
                let (mnt, over) = (&mnt, &over);
                scope.spawn(move || {
                    while !over.load(Ordering::Relaxed) {
                        let path = mnt.join(format!("load{n}"));
                        // It fails once the mount is gone, or finds the directory below.
                        if fs::write(&path, [1; 9000]).and_then(|()| File::open(&path)?.sync_all()).is_err() {
                            return;
                        }
                        fs::read_dir(mnt).map(Iterator::count).ok();
                    }
                });
            }
            thread::sleep(std::time::Duration::from_millis(200));
            if lazy {
                ok(tool("umount").arg("-l").arg(&mnt));
            } else {
                rustix::process::kill_process(
                    rustix::process::Pid::from_raw(m.pid).unwrap(),
                    rustix::process::Signal::TERM,
                )
                .unwrap();
            }
            wait_until("the mount to be gone", || !fs::read_to_string("/proc/self/mounts").unwrap().contains(m.dir()));
            over.store(true, Ordering::Relaxed);
        });
        wait_until("the daemon's end", || !m.is_alive());
        drop(m);
        // What was written to the directory below.
        for n in 0..8 {
            fs::remove_file(mnt.join(format!("load{n}"))).ok();
        }
        place.check();
    }
}

/// A lone client's requests go to the entry that the queue's reader gave to the kernel, not to one of the keeper's,
/// which would have to be woken for each; also after others have kept the queue busy.
fn a_lone_clients_requests_do_not_go_by_the_keeper() {
    const LOOKS: u64 = 3000;
    needs_mounts();
    let place = Place::new("64M", &[]);
    let m = place.mount("");
    // All on one CPU, so that their requests meet in one queue.
    let look = |who: &str| {
        let mut only = rustix::thread::CpuSet::new();
        only.set(0);
        rustix::thread::sched_setaffinity(None, &only).ok();
        (0..LOOKS).for_each(|n| assert!(!m.path(&format!("{who}{n}")).exists()));
    };
    let keeper = || {
        let threads = fs::read_dir(format!("/proc/{}/task", m.pid)).unwrap().map(|t| t.unwrap().path());
        let is_keeper = |t: &PathBuf| fs::read_to_string(t.join("comm")).is_ok_and(|name| name == "quire-keeper\n");
        let status = fs::read_to_string(threads.into_iter().find(is_keeper).unwrap().join("status")).unwrap();
        let sleeps = status.lines().find_map(|l| l.strip_prefix("voluntary_ctxt_switches:")).unwrap();
        sleeps.trim().parse::<u64>().unwrap()
    };
    let mut times = Vec::new();
    for round in 0..5 {
        thread::scope(|scope| {
            for who in ["a", "b", "c"] {
                scope.spawn(move || look(&format!("{who}{round}")));
            }
        });
        let before = keeper();
        thread::scope(|scope| {
            scope.spawn(|| look(&format!("lone{round}")));
        });
        times.push(keeper() - before);
    }
    assert!(times.iter().all(|t| *t < LOOKS / 4), "the keeper was woken {times:?} times by {LOOKS} requests each");
    m.unmount();
}

/// A user's mount is served by rings too, where the host lets users have them.
#[test]
fn a_users_mount_is_served_by_rings() {
    needs_mounts();
    needs_root();
    needs_tools(&["fusermount3", "setpriv"]);
    let Some(allowed) = UringAllowed::new() else {
        skip("the parameter cannot be set");
    };
    let place = Place::new("16M", &["-E", "root_owner=65534:65534"]);
    let (image, mnt) = (place.image(), place.mnt());
    for path in [&image, &mnt, &image.parent().unwrap().to_owned()] {
        std::os::unix::fs::chown(path, Some(65534), Some(65534)).unwrap();
    }
    let user = |args: &[&str]| {
        let mut c = tool("setpriv");
        c.args(["--reuid=65534", "--regid=65534", "--clear-groups", "env", "XDG_RUNTIME_DIR=/tmp"]);
        c.arg(env!("CARGO_BIN_EXE_quire")).args(args);
        c
    };
    let (code, words) = said(&mut user(&["mount", "-o", "transport=uring", text(&image), text(&mnt)]));
    if code != 0 {
        skip(words);
    }
    drop(allowed);
    let (code, words) = said(&mut user(&["stats", text(&mnt)]));
    assert_eq!(code, 0, "{words}");
    assert!(words.contains("requests come by io_uring"), "{words}");
    let script = format!("echo hello > {0}/f && sync {0}/f && cat {0}/f", text(&mnt));
    let written = ok(tool("setpriv").args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", &script]));
    assert_eq!(written, "hello\n");
    ok(&mut user(&["umount", text(&mnt)]));
    place.check();
}

over_uring! {
    the_transport_is_told,
    transfers_of_all_sizes_bring_what_was_written,
    suspended_requests_do_not_exhaust_the_queues,
    requests_on_the_heels_of_the_mount_are_answered,
    an_unmount_under_load_ends_clean,
    a_lone_clients_requests_do_not_go_by_the_keeper,
}

mod dev {
    #[test]
    fn transfers_of_all_sizes_bring_what_was_written() {
        super::transfers_of_all_sizes_bring_what_was_written();
    }

    #[test]
    fn an_unmount_under_load_ends_clean() {
        super::an_unmount_under_load_ends_clean();
    }
}
