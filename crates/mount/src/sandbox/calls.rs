//! The system calls of a confined daemon, as a seccomp filter. Any other fails with EPERM.
//!
//! Two filters hold, and the stricter answer of both counts. One answers clone3 with ENOSYS, because a filter does not
//! see its flags, so that the C library uses clone instead. The other is the list: what the daemon and its libraries
//! call, the C library among them (glibc, musl). A call that is missing in it would fail silently, so the tests run
//! every daemon with [`VIOLATION`]`=kill`.

use super::SandboxError;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};
use std::collections::BTreeMap;

/// `kill`: a call that is not in the list ends the daemon with SIGSYS, instead of EPERM.
const VIOLATION: &str = "QUIRE_SANDBOX_VIOLATION";

/// Commands that put input into a terminal (ioctl_tty(2), ioctl_console(2)): the same on all architectures of ours.
const TIOCSTI: i64 = 0x5412;
const TIOCLINUX: i64 = 0x541c;

/// A condition on an argument: its number, and what must hold of its lower 32 bits.
type Condition = (u8, SeccompCmpOp, i64);

/// Calls that are allowed with any arguments, by reason.
#[rustfmt::skip]
const ALLOWED: &[(&str, &[i64])] = &[
    ("memory, as the allocator and threads' stacks need it", &[
        libc::SYS_munmap, libc::SYS_mremap, libc::SYS_madvise, libc::SYS_brk, libc::SYS_msync, libc::SYS_mincore,
    ]),
    ("threads and their locks", &[
        libc::SYS_clone3, libc::SYS_futex, libc::SYS_set_robust_list, libc::SYS_rseq, libc::SYS_membarrier,
        libc::SYS_gettid, libc::SYS_getpid, libc::SYS_getppid, libc::SYS_exit, libc::SYS_exit_group,
        libc::SYS_sched_yield, libc::SYS_sched_getaffinity, libc::SYS_sched_setaffinity, libc::SYS_getcpu,
        libc::SYS_sched_getparam, libc::SYS_sched_getscheduler,
    ]),
    ("time and randomness", &[
        libc::SYS_clock_gettime, libc::SYS_clock_getres, libc::SYS_clock_nanosleep, libc::SYS_nanosleep,
        libc::SYS_gettimeofday, libc::SYS_getrandom, libc::SYS_restart_syscall,
    ]),
    ("signals: those that end a mount, leases, abort", &[
        libc::SYS_rt_sigaction, libc::SYS_rt_sigprocmask, libc::SYS_rt_sigreturn, libc::SYS_rt_sigtimedwait,
        libc::SYS_sigaltstack, libc::SYS_signalfd4,
    ]),
    ("the image, /dev/fuse and the log, by descriptor", &[
        libc::SYS_read, libc::SYS_write, libc::SYS_readv, libc::SYS_writev, libc::SYS_pread64, libc::SYS_pwrite64,
        libc::SYS_preadv, libc::SYS_pwritev, libc::SYS_preadv2, libc::SYS_pwritev2, libc::SYS_lseek, libc::SYS_close,
        libc::SYS_fstat, libc::SYS_fstatfs, libc::SYS_ftruncate, libc::SYS_fallocate, libc::SYS_fsync,
        libc::SYS_fdatasync, libc::SYS_sync_file_range, libc::SYS_fadvise64, libc::SYS_fcntl, libc::SYS_flock,
        libc::SYS_splice, libc::SYS_vmsplice, libc::SYS_tee, libc::SYS_dup, libc::SYS_dup3, libc::SYS_pipe2,
        libc::SYS_eventfd2, libc::SYS_ppoll, libc::SYS_epoll_create1, libc::SYS_epoll_ctl, libc::SYS_epoll_pwait,
    ]),
    ("io_uring: the image's I/O, and transport=uring; Landlock holds for it, too", &[
        libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register,
    ]),
    ("names, which Landlock checks: the control socket, mountinfo, sysfs, the lock file, a backtrace", &[
        libc::SYS_openat, libc::SYS_newfstatat, libc::SYS_statx, libc::SYS_statfs, libc::SYS_readlinkat,
        libc::SYS_faccessat, libc::SYS_faccessat2, libc::SYS_unlinkat, libc::SYS_mkdirat, libc::SYS_fchmodat,
        libc::SYS_getdents64, libc::SYS_getcwd, libc::SYS_chdir,
    ]),
    ("the control socket, the broker's, the system log's", &[
        libc::SYS_bind, libc::SYS_listen, libc::SYS_accept4, libc::SYS_connect, libc::SYS_sendto, libc::SYS_recvfrom,
        libc::SYS_sendmsg, libc::SYS_recvmsg, libc::SYS_shutdown, libc::SYS_getsockopt, libc::SYS_setsockopt,
        libc::SYS_getsockname, libc::SYS_getpeername, libc::SYS_pidfd_open,
    ]),
    ("who the daemon is, and on what", &[
        libc::SYS_getuid, libc::SYS_geteuid, libc::SYS_getgid, libc::SYS_getegid, libc::SYS_uname, libc::SYS_sysinfo,
    ]),
    ("letting go of the caller's session, when the mount answers", &[libc::SYS_setsid]),
];

/// Older names of allowed calls, which C libraries use where the architecture has them.
#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const OLDER_NAMES: &[i64] = &[
    libc::SYS_open, libc::SYS_stat, libc::SYS_lstat, libc::SYS_access, libc::SYS_poll, libc::SYS_dup2, libc::SYS_pipe,
    libc::SYS_readlink, libc::SYS_unlink, libc::SYS_mkdir, libc::SYS_chmod, libc::SYS_epoll_wait, libc::SYS_time,
];
#[cfg(not(target_arch = "x86_64"))]
const OLDER_NAMES: &[i64] = &[];

/// The calls that are allowed with some arguments. A call that is named twice is allowed if either holds.
fn allowed_in_part() -> Vec<(i64, Vec<Condition>)> {
    use SeccompCmpOp::{Eq, MaskedEq, Ne};
    let process = i64::from(std::process::id());
    let not_executable = |call| (call, vec![(2, MaskedEq(bits(libc::PROT_EXEC)), 0)]);
    let prctl = |what: libc::c_int| (libc::SYS_prctl, vec![(0, Eq, i64::from(what))]);
    vec![
        // No code but the program's.
        not_executable(libc::SYS_mmap),
        not_executable(libc::SYS_mprotect),
        // A thread, and no process.
        (libc::SYS_clone, vec![(0, MaskedEq(bits(libc::CLONE_THREAD)), i64::from(libc::CLONE_THREAD))]),
        // The system log and the control socket.
        (libc::SYS_socket, vec![(0, Eq, i64::from(libc::AF_UNIX))]),
        // abort(3), to itself.
        (libc::SYS_tgkill, vec![(0, Eq, process)]),
        // A thread's name; the daemon stays when its caller goes.
        prctl(libc::PR_SET_NAME),
        prctl(libc::PR_GET_NAME),
        prctl(libc::PR_SET_PDEATHSIG),
        // Limits of its own.
        (libc::SYS_prlimit64, vec![(0, Eq, 0)]),
        (libc::SYS_prlimit64, vec![(0, Eq, process)]),
        // Discards and sizes of disks, clones of /dev/fuse; no input for a terminal.
        (libc::SYS_ioctl, vec![(1, Ne, TIOCSTI), (1, Ne, TIOCLINUX)]),
    ]
}

fn bits(flags: libc::c_int) -> u64 {
    u64::from(flags.unsigned_abs())
}

fn failed(e: impl std::fmt::Display) -> SandboxError {
    SandboxError::Seccomp(e.to_string())
}

/// Whether the kernel has filters.
///
/// # Errors
/// It has none.
pub(super) fn check() -> Result<(), SandboxError> {
    const GET_ACTION_AVAIL: libc::c_uint = 2;
    let action: u32 = libc::SECCOMP_RET_ERRNO;
    // SAFETY: the call reads the number that it is given the address of, and changes nothing.
    let r = unsafe { libc::syscall(libc::SYS_seccomp, GET_ACTION_AVAIL, 0, &raw const action) };
    if r == 0 { filters().map(drop) } else { Err(failed(std::io::Error::last_os_error())) }
}

/// Confines all threads, for ever.
///
/// # Errors
/// The kernel does not take the filters.
pub(super) fn restrict() -> Result<(), SandboxError> {
    filters()?.iter().try_for_each(|filter| seccompiler::apply_filter_all_threads(filter).map_err(failed))
}

/// In the order in which they must come: the last one allows no further filter.
fn filters() -> Result<[BpfProgram; 2], SandboxError> {
    let arch: TargetArch = std::env::consts::ARCH.try_into().map_err(failed)?;
    let no_clone3 =
        filter([(libc::SYS_clone3, vec![])], SeccompAction::Allow, SeccompAction::Errno(errno(libc::ENOSYS)), arch)?;
    let violation = match std::env::var(VIOLATION) {
        Ok(how) if how == "kill" => SeccompAction::KillProcess,
        _ => SeccompAction::Errno(errno(libc::EPERM)),
    };
    let always = ALLOWED.iter().flat_map(|(_, calls)| calls.iter()).chain(OLDER_NAMES).map(|call| (*call, vec![]));
    let list = filter(always.chain(allowed_in_part()), violation, SeccompAction::Allow, arch)?;
    Ok([no_clone3, list])
}

fn errno(errno: libc::c_int) -> u32 {
    errno.unsigned_abs()
}

fn filter(
    calls: impl IntoIterator<Item = (i64, Vec<Condition>)>,
    otherwise: SeccompAction,
    matching: SeccompAction,
    arch: TargetArch,
) -> Result<BpfProgram, SandboxError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for (call, conditions) in calls {
        let rules = rules.entry(call).or_default();
        let condition = |(argument, op, value): Condition| {
            SeccompCondition::new(argument, SeccompCmpArgLen::Dword, op, value.unsigned_abs())
        };
        let conditions: Result<Vec<_>, _> = conditions.into_iter().map(condition).collect();
        let conditions = conditions.map_err(failed)?;
        // No rule stands for all arguments.
        if !conditions.is_empty() {
            rules.push(SeccompRule::new(conditions).map_err(failed)?);
        }
    }
    let filter = SeccompFilter::new(rules, otherwise, matching, arch).map_err(failed)?;
    filter.try_into().map_err(failed)
}
