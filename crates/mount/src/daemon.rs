//! Becoming a daemon, and being told to stop.
//!
//! *Guarantees*: the caller's limits do not end the daemon (H2); the daemon keeps nothing of its caller busy (H3).

use crate::mountinfo::c_path;
use quire_device::Lease;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use rustix::process::{Resource, Rlimit, Signal};
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::OnceLock;

/// Who returns from [`fork`].
pub enum Forked {
    /// The caller's process: the daemon has said this exit code, or `None` if it ended without a word.
    Parent(Option<u8>),
    /// The daemon.
    Daemon(Readiness),
}

/// How the daemon tells the process that waits for it.
pub struct Readiness(OwnedFd);

impl Readiness {
    /// Tells the waiting process with which code to exit. Its end does not interrupt the daemon any more.
    pub fn tell(self, code: u8) {
        rustix::process::set_parent_process_death_signal(None).ok();
        File::from(self.0).write_all(&[code]).ok();
    }

    /// Tells that the mount answers, and lets go of the caller's session and process group, of its terminal and of its
    /// working directory, as daemon(3) does. All paths of the mount are absolute or open by now.
    ///
    /// # Errors
    /// `/` cannot be entered, or `/dev/null` not opened.
    pub fn detach_and_tell(self) -> Result<(), Errno> {
        let detached = detach();
        // What could not be let go of is no reason to let the caller wait.
        self.tell(0);
        detached
    }
}

fn detach() -> Result<(), Errno> {
    use rustix::fs::{Mode, OFlags};
    rustix::process::set_parent_process_death_signal(None)?;
    rustix::process::setsid()?;
    heed_terminal(true);
    rustix::process::chdir("/")?;
    // It makes room where the limit of descriptors leaves none: the caller's pipes must not stay open.
    // SAFETY: nobody reads standard input in a daemon, and no owned descriptor has its number.
    unsafe { libc::close(libc::STDIN_FILENO) };
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    match null.as_raw_fd() {
        libc::STDIN_FILENO => std::mem::forget(null),
        _ => rustix::stdio::dup2_stdin(&null)?,
    }
    Ok(())
}

/// Splits off a daemon; the caller's process waits for what it tells. Only while there is one thread.
///
/// The daemon stays in the caller's process group until the mount answers ([`Readiness::detach_and_tell`]). While an
/// automount is pending, autofs lets only the process group of the program that mounts look at the directory
/// (`x-systemd.automount`; autofs_oz_mode() in Linux), and makes every other process wait for the mount.
///
/// # Errors
/// No process or pipe can be had.
pub fn fork() -> Result<Forked, Errno> {
    let (reader, writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    // SAFETY: there is one thread, so that no lock is held by a thread that the child does not have.
    match unsafe { libc::fork() } {
        -1 => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::AGAIN)),
        0 => {
            drop(reader);
            heed_terminal(false);
            // Who interrupts the process that waits interrupts the mount.
            rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?;
            Ok(Forked::Daemon(Readiness(writer)))
        }
        pid => {
            drop(writer);
            let mut code = [0];
            let told = File::from(reader).read_exact(&mut code).ok().map(|()| code[0]);
            Ok(Forked::Parent(told.or_else(|| exit_code(pid))))
        }
    }
}

/// The exit code of a child; `None` if something else ended it.
fn exit_code(pid: libc::pid_t) -> Option<u8> {
    let status = wait_for(pid).ok()?;
    libc::WIFEXITED(status).then(|| u8::try_from(libc::WEXITSTATUS(status)).ok()).flatten()
}

/// Waits for the end of a child; how it ended.
fn wait_for(pid: libc::pid_t) -> Result<libc::c_int, Errno> {
    let mut status = 0;
    // SAFETY: `status` is valid memory for the call, and the process is a child of ours that nobody else waits for.
    while unsafe { libc::waitpid(pid, &mut status, 0) } < 0 {
        let e = std::io::Error::last_os_error();
        if e.kind() != std::io::ErrorKind::Interrupted {
            return Err(Errno::from_io_error(&e).unwrap_or(Errno::CHILD));
        }
    }
    Ok(status)
}

/// Detaches the mount at `dir`, if it is the mount `id` (where that is known), in a process of its own, and waits for
/// it. A thread of ours that waited in the kernel for an answer of ours could not be killed if the threads that answer
/// are gone, and would keep the mount with it.
///
/// # Errors
/// What umount(2) says; `EINVAL` if something else is mounted there; no process can be had.
pub(crate) fn detach_in_child(dir: &Path, id: Option<u64>) -> Result<(), Errno> {
    let path = c_path(dir)?;
    let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW;
    // SAFETY: the strings and the buffer outlive the calls, which touch nothing else of this process. The child has no
    // descriptors, so that the first that it opens has number 0.
    in_child(|| unsafe {
        let fd = libc::open(path.as_ptr(), flags);
        if fd != 0 {
            return -1;
        }
        let mut found: libc::statx = std::mem::zeroed();
        let how = libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC;
        if libc::statx(fd, c"".as_ptr(), how, libc::STATX_MNT_ID, &raw mut found) != 0 {
            return -1;
        }
        if id.is_some_and(|id| found.stx_mnt_id != id) {
            *libc::__errno_location() = libc::EINVAL;
            return -1;
        }
        libc::umount2(c"/proc/self/fd/0".as_ptr(), libc::MNT_DETACH)
    })
}

/// Makes the kernel hand over what it holds of the file system at `dir` (syncfs), as [`detach_in_child`] does its
/// work.
///
/// # Errors
/// What open(2) and syncfs(2) say; no process can be had.
pub(crate) fn sync_in_child(dir: &Path) -> Result<(), Errno> {
    let path = c_path(dir)?;
    // SAFETY: the string outlives the calls, which take it and a descriptor of the child.
    in_child(|| unsafe {
        match libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_DIRECTORY) {
            fd if fd >= 0 => libc::syncfs(fd),
            failed => failed,
        }
    })
}

/// Runs system calls in a child that has none of our descriptors. `calls` must do nothing but system calls: other
/// threads of ours may have held locks when the child was split off.
fn in_child(calls: impl FnOnce() -> libc::c_int) -> Result<(), Errno> {
    // SAFETY: the child only makes system calls (close_range, those of `calls`, _exit) and never returns from here.
    let pid = unsafe {
        match libc::fork() {
            0 => {
                let all: (libc::c_uint, libc::c_uint) = (0, libc::c_uint::MAX);
                libc::syscall(libc::SYS_close_range, all.0, all.1, 0);
                let code = if calls() == 0 { 0 } else { *libc::__errno_location() };
                libc::_exit(code)
            }
            pid => pid,
        }
    };
    if pid < 0 {
        return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::AGAIN));
    }
    let status = wait_for(pid)?;
    match libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status)) {
        Some(0) => Ok(()),
        Some(errno) => Err(Errno::from_raw_os_error(errno)),
        None => Err(Errno::INTR),
    }
}

/// Signals by which a terminal ends or stops the processes of a group at once. A daemon that has not let go of the
/// group yet must not stop, because others may wait for its mount, nor end without taking the mount back.
const OF_TERMINAL: [libc::c_int; 4] = [libc::SIGQUIT, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];

/// Whether they do what they do by default, or nothing. Processes that are started inherit it.
fn heed_terminal(is_heeded: bool) {
    let disposition = if is_heeded { libc::SIG_DFL } else { libc::SIG_IGN };
    for signal in OF_TERMINAL {
        // SAFETY: no handler is set, and none was.
        unsafe { libc::signal(signal, disposition) };
    }
}

/// Signals that end a mount.
const STOPS: [libc::c_int; 3] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP];

fn stop_set() -> libc::sigset_t {
    // SAFETY: a signal set is plain data, made empty before it is used; both calls only write to it.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for s in STOPS {
            libc::sigaddset(&mut set, s);
        }
        set
    }
}

/// Keeps the signals that end a mount for [`wait_stop`], and that of a lease for the thread that answers it. Call it
/// before there are threads; they inherit it.
pub fn hold_stops() {
    let mut set = stop_set();
    // SAFETY: the set is valid, and only written to.
    unsafe { libc::sigaddset(&raw mut set, Lease::SIGNAL) };
    // SAFETY: the set is valid; the old mask is not asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) };
}

/// What is done before a process that a signal interrupts ends: its messages are written.
static BEFORE_EXIT: OnceLock<fn()> = OnceLock::new();

/// Sets what `exit` does first.
pub fn before_exit(act: fn()) {
    BEFORE_EXIT.get_or_init(|| act);
}

/// Ends this process.
pub(crate) fn exit(code: i32) -> ! {
    if let Some(act) = BEFORE_EXIT.get() {
        act();
    }
    std::process::exit(code)
}

/// Waits for a signal that ends the mount; returns its number.
#[must_use]
pub fn wait_stop() -> i32 {
    let set = stop_set();
    let mut signal = 0;
    // SAFETY: both point to valid memory. An error (none is documented for a valid set) is asked again.
    while unsafe { libc::sigwait(&set, &mut signal) } != 0 {}
    signal
}

/// A write beyond the caller's limit of file sizes (RLIMIT_FSIZE, `ulimit -f`) becomes an I/O error, instead of the end
/// of the process.
pub fn ignore_size_limit_signal() {
    // SAFETY: SIG_IGN is a valid disposition, and no handler of ours is replaced.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Takes as many descriptors as the caller's hard limit permits.
pub fn raise_descriptor_limit() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    rustix::process::setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).ok();
}

/// Address space that a mount needs besides its cache and its workers: other threads and the log.
const ADDRESS_SPACE_BYTES: u64 = 128 << 20;

/// Address space of a worker: two buffers in huge pages of 2 MiB, and a stack.
const WORKER_BYTES: u64 = 7 << 20;

/// The limit of the address space (RLIMIT_AS, `ulimit -v`) and what a mount with this cache needs, in bytes, if that is
/// more. An allocation that fails would end the daemon.
#[must_use]
pub fn short_address_space(cache_bytes: u64) -> Option<(u64, u64)> {
    // Twice: the images that a commit or a checkpoint holds are beside those that replace them.
    let workers = crate::workers::most(crate::workers::FIRST_RING) as u64 * WORKER_BYTES;
    let need = cache_bytes.saturating_mul(2).saturating_add(ADDRESS_SPACE_BYTES + workers);
    let limit = rustix::process::getrlimit(Resource::As).current?;
    (limit < need).then_some((limit, need))
}

/// We write back pages for the kernel: our own allocations must not wait for that. Needs a capability; without it,
/// nothing changes.
pub fn become_io_flusher() {
    const PR_SET_IO_FLUSHER: libc::c_int = 57;
    let (on, unused): (libc::c_ulong, libc::c_ulong) = (1, 0);
    // SAFETY: this prctl takes a number and changes flags of the calling thread only.
    let r = unsafe { libc::prctl(PR_SET_IO_FLUSHER, on, unused, unused, unused) };
    if r != 0 {
        tracing::debug!("not an I/O flusher: {}", std::io::Error::last_os_error());
    }
}

/// Tells glibc's allocator to hold back little. It makes no arena for each thread: what one frees the others could not
/// use. And memory of many pages comes from the kernel and goes back: else the first such piece that is freed makes
/// glibc serve those that follow from the heap, and what lies between them keeps it from shrinking. Without this the
/// resident memory of a busy mount grew by half in ten minutes, while what was in use stayed the same
/// (docs/testing.md). Call it before threads are made.
pub fn hold_back_little() {
    /// glibc's own first value, which it changes only as long as nobody sets it.
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    const MANY_PAGES_BYTES: libc::c_int = 128 << 10;
    // SAFETY: mallopt changes parameters of the allocator; it is called before any other thread allocates.
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
        libc::mallopt(libc::M_MMAP_THRESHOLD, MANY_PAGES_BYTES);
    }
}
