//! Questions to the broker, a process of the same user that is split off before the image is opened and stays outside
//! the sandbox. It holds no image and no connection.
//!
//! The broker has three sockets, each with a thread: an unmount makes the kernel send requests, and to answer those the
//! daemon may have to ask about their callers; and a look at a caller's memory may wait for a file that is mapped
//! there, of this very mount.
//!
//! *Guarantees*: the broker unmounts the one mount that was [adopted](Request::Adopt) before the sandbox closed, and no
//! other. Of another process it tells `/proc/PID/status`, the user namespace, and which of the three arguments of
//! FS_IOC_SHUTDOWN stands at an address, but no other content of memory.

use quire_device::sync::{Mutex, lock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Asked of the thread for mounts, save those that say otherwise.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// The mount that later requests are about, as mountinfo has it. The first one counts.
    Adopt { id: u64, device: String },
    /// Make the kernel hand over what it holds of the mount.
    Sync,
    /// Unmount, lazily.
    Detach,
    /// Leave the caller's session and process group.
    LeaveSession,
    /// Of the thread for callers: `/proc/PID/status`.
    Status(u32),
    /// Of the thread for callers: the device and inode number of its user namespace.
    UserNamespace(u32),
    /// Of the thread for memory: the number at an address, if it is an argument of FS_IOC_SHUTDOWN.
    ShutdownFlag { pid: u32, address: u64 },
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    Done,
    NotMounted,
    Refused(i32),
    /// What fusermount3 said.
    Helper(String),
    Status(Option<String>),
    UserNamespace(Option<(u64, u64)>),
    ShutdownFlag(u32),
}

/// How an unmount by the broker failed.
#[derive(Debug)]
pub(crate) enum BrokerError {
    /// The broker has ended.
    Gone,
    NotMounted,
    Kernel(Errno),
    Helper(String),
}

/// The daemon's end of a socket to the broker.
pub(super) struct Link(Mutex<BufReader<UnixStream>>);

impl Link {
    pub(super) fn new(socket: UnixStream) -> Self {
        Link(Mutex::new(BufReader::new(socket)))
    }

    fn ask(&self, request: &Request) -> io::Result<Reply> {
        let mut socket = lock(&self.0);
        send(socket.get_mut(), request)?;
        receive(&mut *socket)?.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

pub(super) fn send(socket: &mut UnixStream, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    socket.write_all(&line)
}

/// The next message; `None` when the other side has ended.
pub(super) fn receive<M: for<'a> Deserialize<'a>>(from: &mut impl BufRead) -> io::Result<Option<M>> {
    let mut line = String::new();
    if from.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    Ok(Some(serde_json::from_str(&line)?))
}

/// The daemon's sockets to its broker.
pub(super) struct Links {
    pub(super) callers: Link,
    pub(super) memory: Link,
    pub(super) mounts: Link,
}

/// A process has one broker, or none.
pub(super) static LINKS: OnceLock<Links> = OnceLock::new();
static IS_NEEDED: AtomicBool = AtomicBool::new(false);

/// From now on this process asks the broker, because it may not look itself.
pub(super) fn rely_on_it() {
    IS_NEEDED.store(true, Ordering::Release);
}

pub(super) fn is_there() -> bool {
    LINKS.get().is_some()
}

fn needed() -> Option<&'static Links> {
    IS_NEEDED.load(Ordering::Acquire).then(|| LINKS.get()).flatten()
}

/// What `/proc/PID/status` says; the outer `None` where this process may look itself.
pub(crate) fn status(pid: u32) -> Option<Option<String>> {
    needed().map(|links| match links.callers.ask(&Request::Status(pid)) {
        Ok(Reply::Status(text)) => text,
        _ => None,
    })
}

/// The user namespace of a process; the outer `None` where this process may look itself.
pub(crate) fn user_namespace(pid: u32) -> Option<Option<(u64, u64)>> {
    needed().map(|links| match links.callers.ask(&Request::UserNamespace(pid)) {
        Ok(Reply::UserNamespace(found)) => found,
        _ => None,
    })
}

/// The argument of FS_IOC_SHUTDOWN in a process's memory; `None` where this process may look itself.
pub(crate) fn shutdown_flag(pid: u32, address: u64) -> Option<Result<u32, Errno>> {
    needed().map(|links| match links.memory.ask(&Request::ShutdownFlag { pid, address }) {
        Ok(Reply::ShutdownFlag(flag)) => Ok(flag),
        Ok(Reply::Refused(errno)) => Err(Errno::from_raw_os_error(errno)),
        _ => Err(Errno::IO),
    })
}

/// Names the mount that the broker may unmount.
pub(super) fn adopt(id: u64, device: &str) {
    if let Some(links) = LINKS.get() {
        // A broker that has gone is noticed when it is needed.
        links.mounts.ask(&Request::Adopt { id, device: device.to_owned() }).ok();
    }
}

/// The broker leaves the caller's session: the mount answers.
pub(crate) fn leave_session() {
    if let Some(links) = LINKS.get() {
        // A broker that has gone is noticed when it is needed.
        links.mounts.ask(&Request::LeaveSession).ok();
    }
}

/// Makes the kernel hand over what it holds of the mount; `None` where this process can do it itself.
pub(crate) fn sync() -> Option<Result<(), BrokerError>> {
    needed().map(|links| outcome(links.mounts.ask(&Request::Sync)))
}

/// Unmounts lazily; `None` where this process can do it itself.
pub(crate) fn detach() -> Option<Result<(), BrokerError>> {
    needed().map(|links| outcome(links.mounts.ask(&Request::Detach)))
}

fn outcome(reply: io::Result<Reply>) -> Result<(), BrokerError> {
    match reply {
        Ok(Reply::Done) => Ok(()),
        Ok(Reply::NotMounted) => Err(BrokerError::NotMounted),
        Ok(Reply::Refused(errno)) => Err(BrokerError::Kernel(Errno::from_raw_os_error(errno))),
        Ok(Reply::Helper(said)) => Err(BrokerError::Helper(said)),
        Ok(_) | Err(_) => Err(BrokerError::Gone),
    }
}
