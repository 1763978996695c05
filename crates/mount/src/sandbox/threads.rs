//! One Landlock domain for every thread. The kernel confines the thread that asks, and those that it starts later;
//! before Linux 7.0 there is no call for all. So each thread that is there already asks for itself, in the handler of a
//! signal that it is sent.
//!
//! *Guarantees*: when [`restrict_others`] has returned success, every thread but the caller is in the domain, and so is
//! every thread that one of them starts.
//!
//! *Relies on*: no thread blocks the signal; every wait in this program goes on after EINTR.

use rustix::fd::{AsFd, AsRawFd};
use rustix::thread::Pid;
use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How long a thread may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_micros(200);

static RULESET: AtomicI32 = AtomicI32::new(-1);
static ANSWERS: AtomicUsize = AtomicUsize::new(0);
/// The error of a thread that could not be confined.
static ERRNO: AtomicI32 = AtomicI32::new(0);

/// Confines all threads but the calling one.
///
/// # Errors
/// A thread does not answer, or the kernel does not confine it.
pub(super) fn restrict_others(ruleset: &impl AsFd) -> io::Result<()> {
    RULESET.store(ruleset.as_fd().as_raw_fd(), Ordering::Release);
    handle(confine_this_thread as extern "C" fn(libc::c_int) as libc::sighandler_t)?;
    let outcome = signal_all();
    // One that comes late must not end the process.
    handle(libc::SIG_IGN)?;
    outcome
}

fn signal_all() -> io::Result<()> {
    let mut done = BTreeSet::from([rustix::thread::gettid().as_raw_nonzero().get()]);
    loop {
        // Threads that others have started meanwhile are in the next list.
        let new: Vec<_> = threads()?.into_iter().filter(|t| !done.contains(t)).collect();
        if new.is_empty() {
            return Ok(());
        }
        for thread in new {
            signal_and_wait(thread)?;
            done.insert(thread);
        }
    }
}

/// The threads of this process, without those with which the kernel works off an io_uring: they act for who submits,
/// with the rights of that thread.
fn threads() -> io::Result<Vec<i32>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc/self/task")? {
        let entry = entry?;
        let is_of_kernel = std::fs::read(entry.path().join("comm")).is_ok_and(|name| name.starts_with(b"iou-"));
        if !is_of_kernel && let Some(thread) = entry.file_name().to_str().and_then(|n| n.parse().ok()) {
            found.push(thread);
        }
    }
    Ok(found)
}

fn signal_and_wait(thread: i32) -> io::Result<()> {
    let before = ANSWERS.load(Ordering::Acquire);
    let process = Pid::as_raw(Some(rustix::process::getpid()));
    // SAFETY: tgkill takes numbers; one of a thread that has ended is an error.
    if unsafe { libc::syscall(libc::SYS_tgkill, process, thread, signal()) } != 0 {
        let e = io::Error::last_os_error();
        return if e.raw_os_error() == Some(libc::ESRCH) { Ok(()) } else { Err(e) };
    }
    let start = Instant::now();
    while ANSWERS.load(Ordering::Acquire) == before {
        if !std::path::Path::new(&format!("/proc/self/task/{thread}")).exists() {
            return Ok(());
        }
        if start.elapsed() > ANSWER_TIMEOUT {
            return Err(io::ErrorKind::TimedOut.into());
        }
        std::thread::sleep(LOOK);
    }
    match ERRNO.load(Ordering::Acquire) {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// A signal that neither the program nor the C library uses.
fn signal() -> libc::c_int {
    libc::SIGRTMAX() - 1
}

fn handle(how: libc::sighandler_t) -> io::Result<()> {
    // SAFETY: the action is plain data, made zero and then set; the handler makes system calls and atomic stores only.
    let r = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = how;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(signal(), &raw const action, std::ptr::null_mut())
    };
    if r == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

extern "C" fn confine_this_thread(_signal: libc::c_int) {
    let (on, unused): (libc::c_ulong, libc::c_ulong) = (1, 0);
    // SAFETY: both calls take numbers and change the calling thread only; errno is given back as it was, since the
    // handler interrupts code that may be about to read it.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        let confined = libc::prctl(libc::PR_SET_NO_NEW_PRIVS, on, unused, unused, unused) == 0
            && libc::syscall(libc::SYS_landlock_restrict_self, RULESET.load(Ordering::Acquire), 0) == 0;
        if !confined {
            ERRNO.store(*errno, Ordering::Release);
        }
        *errno = before;
    }
    ANSWERS.fetch_add(1, Ordering::AcqRel);
}
