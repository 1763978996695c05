//! The broker's own side: a process that answers the daemon's requests until its daemon ends.
//!
//! *Guarantees*: it has no descriptor but its three sockets and `/dev/null`, and does not end by the signals that end a
//! mount: those are the daemon's, which then asks it to unmount. It is in the caller's process group until the mount
//! answers, because it may have to unmount while an automount is pending (see `daemon::fork`), and then in a session of
//! its own.

use super::broker::{LINKS, Link, Links, Reply, Request, receive, send};
use crate::caller;
use crate::daemon;
use crate::mountinfo::{MountEntry, Mounts};
use crate::mounting::{self, DetachError};
use quire_device::sync::thread;
use rustix::fd::{AsRawFd, IntoRawFd, RawFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::io::{self, BufReader};
use std::os::unix::net::UnixStream;
use std::process;

/// Splits the broker off. Only while there is one thread, and before the image is opened.
///
/// # Errors
/// No process or socket can be had; the daemon then has no sandbox.
pub fn start() -> io::Result<()> {
    let (callers, of_callers) = UnixStream::pair()?;
    let (memory, of_memory) = UnixStream::pair()?;
    let (mounts, of_mounts) = UnixStream::pair()?;
    // SAFETY: there is one thread, so that no lock is held by a thread that the child does not have.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            // A panic must not return into the daemon's code.
            let served = std::panic::catch_unwind(|| serve(of_callers, of_memory, of_mounts));
            process::exit(i32::from(!matches!(served, Ok(Ok(())))))
        }
        _ => {
            let links = Links { callers: Link::new(callers), memory: Link::new(memory), mounts: Link::new(mounts) };
            LINKS.set(links).map_err(|_| io::ErrorKind::AlreadyExists.into())
        }
    }
}

fn serve(callers: UnixStream, memory: UnixStream, mounts: UnixStream) -> io::Result<()> {
    rustix::process::chdir("/")?;
    daemon::hold_stops();
    rustix::thread::set_name(c"quire-broker").ok();
    keep_only([callers.as_raw_fd(), memory.as_raw_fd(), mounts.as_raw_fd()])?;
    for (name, socket, answer) in [
        ("quire-callers", callers, answer_of_callers as fn(Request) -> Reply),
        ("quire-memory", memory, answer_of_memory),
    ] {
        thread::Builder::new().name(name.to_owned()).spawn(move || {
            answer_all(socket, answer).ok();
            // Its daemon has ended; an unmount that is under way is a process of its own.
            process::exit(0)
        })?;
    }
    let mut adopted = None;
    answer_all(mounts, |request| answer_of_mounts(&mut adopted, request))
}

/// Closes all descriptors but these, and those of the standard streams, which lead nowhere from now on.
fn keep_only(mut kept: [RawFd; 3]) -> io::Result<()> {
    let null = rustix::fs::open("/dev/null", OFlags::RDWR, Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    let _closed_below = null.into_raw_fd();
    kept.sort_unstable();
    let mut first = 3;
    for fd in kept {
        let fd = libc::c_uint::try_from(fd).map_err(|_| Errno::BADF)?;
        close_range(first, fd - 1);
        first = fd + 1;
    }
    close_range(first, libc::c_uint::MAX);
    Ok(())
}

fn close_range(first: libc::c_uint, last: libc::c_uint) {
    if first <= last {
        // SAFETY: no value of this process owns a descriptor of these any more: the child has copies that nobody uses,
        // and never returns to the code that has opened them.
        unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    }
}

fn answer_all(socket: UnixStream, mut answer: impl FnMut(Request) -> Reply) -> io::Result<()> {
    let mut replies = socket.try_clone()?;
    let mut requests = BufReader::new(socket);
    while let Some(request) = receive(&mut requests)? {
        send(&mut replies, &answer(request))?;
    }
    Ok(())
}

fn answer_of_callers(request: Request) -> Reply {
    match request {
        Request::Status(pid) => Reply::Status(caller::read_status(&pid.to_string())),
        Request::UserNamespace(pid) => Reply::UserNamespace(caller::read_namespace(&pid.to_string())),
        _ => Reply::Refused(Errno::INVAL.raw_os_error()),
    }
}

/// A look at another process's memory may wait for as long as a file system takes that the memory is mapped from.
fn answer_of_memory(request: Request) -> Reply {
    let Request::ShutdownFlag { pid, address } = request else { return Reply::Refused(Errno::INVAL.raw_os_error()) };
    match caller::read_argument(pid, address) {
        Ok(flag) if flag <= MAX_SHUTDOWN_FLAG => Reply::ShutdownFlag(flag),
        Ok(_) => Reply::Refused(Errno::INVAL.raw_os_error()),
        Err(e) => Reply::Refused(e.raw_os_error()),
    }
}

/// FS_IOC_SHUTDOWN knows 0, 1 and 2.
const MAX_SHUTDOWN_FLAG: u32 = 2;

fn answer_of_mounts(adopted: &mut Option<(u64, String)>, request: Request) -> Reply {
    match (request, adopted.as_ref()) {
        (Request::Adopt { id, device }, None) => {
            *adopted = Some((id, device));
            Reply::Done
        }
        (Request::LeaveSession, _) => match rustix::process::setsid() {
            Ok(_) => Reply::Done,
            Err(e) => Reply::Refused(e.raw_os_error()),
        },
        (Request::Sync, Some((id, device))) => {
            reply(ours(*id, device).and_then(|at| daemon::sync_in_child(&at.mount_point).map_err(DetachError::Kernel)))
        }
        (Request::Detach, Some((id, device))) => {
            reply(ours(*id, device).and_then(|at| mounting::detach_here(&at.mount_point, Some(at.id))))
        }
        _ => Reply::Refused(Errno::PERM.raw_os_error()),
    }
}

/// Where the adopted mount is now. One that has mounts over it or within it would take them with it.
fn ours(id: u64, device: &str) -> Result<MountEntry, DetachError> {
    let mounts = Mounts::read().map_err(|e| DetachError::Kernel(Errno::from_io_error(&e).unwrap_or(Errno::IO)))?;
    let entry = mounts.by_id(id, device).ok_or(DetachError::NotMounted)?;
    if mounts.child_of(id).is_some() { Err(DetachError::Kernel(Errno::BUSY)) } else { Ok(entry.clone()) }
}

fn reply(outcome: Result<(), DetachError>) -> Reply {
    match outcome {
        Ok(()) => Reply::Done,
        Err(DetachError::NotMounted) => Reply::NotMounted,
        Err(DetachError::Kernel(e)) => Reply::Refused(e.raw_os_error()),
        Err(e) => Reply::Helper(e.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFUSED: fn(Errno) -> Reply = |e| Reply::Refused(e.raw_os_error());

    #[test]
    fn the_broker_knows_the_mount_that_was_adopted_first_and_no_other() {
        let mut adopted = None;
        for before in [Request::Sync, Request::Detach] {
            assert_eq!(answer_of_mounts(&mut adopted, before), REFUSED(Errno::PERM));
        }
        // A number that no mount has, with the device of one that is there.
        let root = Mounts::read().unwrap();
        let root = root.containing(std::path::Path::new("/")).expect("a root").clone();
        let adopt = |id| Request::Adopt { id, device: root.device.clone() };
        assert_eq!(answer_of_mounts(&mut adopted, adopt(u64::MAX)), Reply::Done);
        assert_eq!(answer_of_mounts(&mut adopted, adopt(root.id)), REFUSED(Errno::PERM));
        for after in [Request::Sync, Request::Detach] {
            assert_eq!(answer_of_mounts(&mut adopted, after), Reply::NotMounted);
        }
    }

    #[test]
    fn of_a_callers_memory_the_broker_tells_arguments_of_shutdown_only() {
        let pid = process::id();
        let at = |number: &u32| Request::ShutdownFlag { pid, address: std::ptr::from_ref(number) as u64 };
        assert_eq!(answer_of_memory(at(&2)), Reply::ShutdownFlag(2));
        assert_eq!(answer_of_memory(at(&3)), REFUSED(Errno::INVAL));
        assert_eq!(answer_of_memory(Request::Status(pid)), REFUSED(Errno::INVAL));
        assert_eq!(answer_of_callers(Request::Detach), REFUSED(Errno::INVAL));
        assert!(
            matches!(answer_of_callers(Request::Status(pid)), Reply::Status(Some(text)) if text.contains("CapEff:"))
        );
    }
}
