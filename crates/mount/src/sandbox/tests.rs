//! What a confined process can and cannot do: tried in a process of its own, since it stays confined.

use super::files::Files;
use super::{apply, calls};
use io_uring::{IoUring, opcode, types};
use rustix::fs::{AtFlags, CWD};
use rustix::mount::{MountFlags, UnmountFlags};
use std::fs::{self, File};
use std::io::{self, Write};
use std::net::UdpSocket;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::mpsc;
use std::thread;

/// Set for a process that confines itself.
const TASK: &str = "QUIRE_TEST_CONFINED";

struct Attempt(&'static str, fn() -> io::Result<()>);

/// What must fail by Landlock, with EACCES.
const NO_FILES: &[Attempt] = &[
    Attempt("read a file", || File::open("/etc/passwd").map(drop)),
    Attempt("read of another process", || File::open("/proc/1/status").map(drop)),
    Attempt("list a directory", || fs::read_dir("/").map(drop)),
    Attempt("make a file", || File::create("/tmp/quire-confined").map(drop)),
    Attempt("read a file by io_uring", open_by_ring),
];

/// What must fail by the filter of system calls, with EPERM.
const NO_CALLS: &[Attempt] = &[
    Attempt("run a program", || Command::new("/bin/true").spawn().map(drop)),
    Attempt("split off a process", split_off),
    Attempt("mount", || Ok(rustix::mount::mount("none", "/mnt", "tmpfs", MountFlags::empty(), None)?)),
    Attempt("unmount", || Ok(rustix::mount::unmount("/proc", UnmountFlags::DETACH)?)),
    Attempt("make a link", || Ok(rustix::fs::linkat(CWD, "/etc/passwd", CWD, "/tmp/quire-link", AtFlags::empty())?)),
    Attempt("signal another process", || Ok(rustix::process::test_kill_process(rustix::process::Pid::INIT)?)),
    Attempt("use the network", || UdpSocket::bind("127.0.0.1:0").map(drop)),
    Attempt("map code", map_code),
];

/// What the daemon needs.
const ALLOWED: &[Attempt] = &[
    Attempt("read mountinfo", || fs::read("/proc/self/mountinfo").map(drop)),
    Attempt("start a thread", || thread::Builder::new().spawn(|| {})?.join().map_err(|_| io::ErrorKind::Other.into())),
    Attempt("write to /dev/null", || fs::write("/dev/null", "x")),
];

fn open_by_ring() -> io::Result<()> {
    let mut ring = IoUring::new(2)?;
    let open = opcode::OpenAt::new(types::Fd(libc::AT_FDCWD), c"/etc/passwd".as_ptr()).build();
    // SAFETY: the name is static, and the entry has no other memory.
    unsafe { ring.submission().push(&open) }.map_err(io::Error::other)?;
    ring.submit_and_wait(1)?;
    let result = ring.completion().next().ok_or(io::ErrorKind::UnexpectedEof)?.result();
    if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(()) }
}

fn split_off() -> io::Result<()> {
    // SAFETY: a child would end at once, by a system call.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: as above.
        0 => unsafe { libc::_exit(0) },
        _ => Ok(()),
    }
}

fn map_code() -> io::Result<()> {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
    let how = ProtFlags::READ | ProtFlags::EXEC;
    // SAFETY: new memory at a place that the kernel chooses.
    unsafe { mmap_anonymous(std::ptr::null_mut(), 4096, how, MapFlags::PRIVATE) }.map(drop).map_err(Into::into)
}

/// What went otherwise than it must.
fn wrong(thread: &str, landlock: bool) -> Vec<String> {
    let files = if landlock { NO_FILES } else { &[] };
    let files = files.iter().map(|a| (a, Some(libc::EACCES)));
    let calls = NO_CALLS.iter().map(|a| (a, Some(libc::EPERM)));
    let tried = files.chain(calls).chain(ALLOWED.iter().map(|a| (a, None)));
    tried
        .map(|(Attempt(what, attempt), expected)| {
            (what, attempt().err().map(|e| e.raw_os_error().unwrap_or(0)), expected)
        })
        .filter(|(_, got, expected)| got != expected)
        .map(|(what, got, expected)| format!("{thread}: {what}: errno {got:?}, expected {expected:?}"))
        .collect()
}

/// Has the kernel forget the directories of `/proc` that nobody holds. Those used lately go at the second time.
fn drop_cached_names(mut caches: &File) {
    (0..3).for_each(|_| caches.write_all(b"2").expect("the kernel takes it"));
}

/// Confines this process; tells by its exit code whether all threads, begun earlier and later, are confined.
fn confined_process() -> ! {
    let (go, waits) = mpsc::channel::<bool>();
    let earlier = thread::spawn(move || wrong("a thread that began earlier", waits.recv().unwrap()));
    let caches = File::options().write(true).open("/proc/sys/vm/drop_caches");
    let landlock = apply::landlock(&Files::default());
    let calls = calls::restrict();
    caches.iter().for_each(drop_cached_names);
    let holds = landlock.is_ok();
    println!("landlock: {landlock:?}, seccomp: {calls:?}");
    go.send(holds).unwrap();
    let mut found = wrong("the thread that confines", holds);
    found.extend(earlier.join().unwrap());
    found.extend(thread::spawn(move || wrong("a later thread", holds)).join().unwrap());
    println!("{}", found.join("\n"));
    std::process::exit(i32::from(calls.is_err() || !found.is_empty()))
}

/// As the daemon ends with `errors=panic`, and by a bug.
fn aborting_process() -> ! {
    println!("{:?} {:?}", apply::landlock(&Files::default()), calls::restrict());
    println!("{}", std::backtrace::Backtrace::force_capture());
    std::process::abort()
}

/// What a process said that runs one test again, with a task.
fn process_with(task: &str, test: &str, violation: &str) -> std::process::Output {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args([&format!("sandbox::tests::{test}"), "--exact", "--nocapture"]);
    child.env(TASK, task).env("QUIRE_SANDBOX_VIOLATION", violation).output().unwrap()
}

#[test]
fn a_confined_process_tells_its_backtrace_and_aborts() {
    if std::env::var_os(TASK).is_some() {
        aborting_process();
    }
    if let Err(e) = calls::check() {
        println!("needs seccomp: {e}");
        return;
    }
    let said = process_with("abort", "a_confined_process_tells_its_backtrace_and_aborts", "kill");
    let text = String::from_utf8_lossy(&said.stdout);
    assert_eq!(said.status.signal(), Some(libc::SIGABRT), "{text}{}", String::from_utf8_lossy(&said.stderr));
    assert!(text.contains("aborting_process"), "{text}");
}

#[test]
fn a_confined_process_opens_no_file_runs_no_program_and_mounts_nothing() {
    if std::env::var_os(TASK).is_some() {
        confined_process();
    }
    if let Err(e) = calls::check() {
        println!("needs seccomp: {e}");
        return;
    }
    let this = "a_confined_process_opens_no_file_runs_no_program_and_mounts_nothing";
    let said = process_with("try", this, "");
    let text = String::from_utf8_lossy(&said.stdout);
    assert!(said.status.success(), "{:?}: {text}{}", said.status, String::from_utf8_lossy(&said.stderr));
}
