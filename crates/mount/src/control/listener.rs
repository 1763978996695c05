//! The answering side of the control socket.
//!
//! *Guarantees*: P2: freeze, thaw and remount are done for root with CAP_SYS_ADMIN in the daemon's user namespace, a
//! growth for root with CAP_SYS_RESOURCE there, or for the user who mounted where the daemon has no such capability. A
//! client counts only as long as the process that connected lives and is still the same user: neither a program that it
//! became meanwhile nor a later process with its number lends it rights. H4: clients are bounded in number and in time,
//! and those of root and of the mount's user have places of their own; one that is slow or dead delays none of the
//! others and no request of the file system.

use super::place::SocketFile;
use super::{MAX_REQUEST_BYTES, Reply, Request, place};
use crate::caller::{Caller, Capability, effective_user};
use crate::policy::{CONTROL_TIMEOUT, MAX_CONTROL_CLIENTS};
use crate::server::Server;
use quire_device::sync::atomic::{AtomicUsize, Ordering};
use quire_device::sync::{Arc, thread};
use quire_fs::Phase;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsRawFd, FromRawFd, OwnedFd};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::Shutdown;
use rustix::net::sockopt::socket_peercred;
use rustix::process::PidfdFlags;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

/// Linux 6.5 and later; the C library may not name it.
const SO_PEERPIDFD: libc::c_int = 77;

/// A socket that is listened to; gone when dropped.
pub(crate) struct Listener {
    socket: Arc<UnixListener>,
    _file: SocketFile,
}

/// What the session does for clients.
pub(crate) struct Hooks {
    /// Makes the kernel hand over its dirty pages.
    pub write_back: Box<dyn Fn() + Send + Sync>,
    /// Answers the requests that waited for a thaw.
    pub after_thaw: Box<dyn Fn() + Send + Sync>,
    /// Changes options, or only checks that they can change: the kernel's flags that have to change, or why not.
    pub remount: Box<Remount>,
}

type Remount = dyn Fn(&str, bool) -> Result<Option<u32>, String> + Send + Sync;

/// What the clients' threads share.
struct Shared {
    server: Arc<Server>,
    hooks: Hooks,
    /// Clients that are served now: of others, of root and the mount's user.
    clients: [AtomicUsize; 2],
}

impl Listener {
    /// Listens for the mount of this device number.
    ///
    /// # Errors
    /// No socket could be made.
    pub(crate) fn start(device: &str, server: Arc<Server>, hooks: Hooks) -> io::Result<Listener> {
        let path = place::make(device)?;
        // Of a mount that has ended, or was killed: no two live ones have one number.
        std::fs::remove_file(&path).ok();
        let socket = Arc::new(UnixListener::bind(&path)?);
        rustix::fs::chmod(&path, Mode::from_raw_mode(0o666))?;
        let listener = Listener { socket: socket.clone(), _file: SocketFile::bound(path)? };
        let shared = Arc::new(Shared { server, hooks, clients: Default::default() });
        thread::Builder::new().name("quire-control".to_owned()).spawn(move || accept(&socket, &shared))?;
        Ok(listener)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Ends the thread that accepts.
        rustix::net::shutdown(&*self.socket, Shutdown::Both).ok();
    }
}

fn accept(socket: &UnixListener, shared: &Arc<Shared>) {
    loop {
        match socket.accept() {
            Ok((stream, _)) => Shared::serve(shared, stream),
            Err(e) if e.kind() == io::ErrorKind::InvalidInput => return,
            // Out of descriptors, or a client that has gone already.
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

/// A client, as it was when it connected.
struct Peer {
    caller: Caller,
    process: OwnedFd,
}

impl Peer {
    fn of(stream: &UnixStream) -> Result<Self, Errno> {
        let peer = socket_peercred(stream)?;
        let process = match process_of(stream) {
            Ok(process) => process,
            // Before Linux 6.5: the number may have passed to another since it connected, but to one of the same user.
            Err(_) => rustix::process::pidfd_open(peer.pid, PidfdFlags::empty())?,
        };
        let pid = u32::try_from(peer.pid.as_raw_nonzero().get()).unwrap_or(0);
        Ok(Peer { caller: Caller { uid: peer.uid.as_raw(), pid }, process })
    }

    /// True if the process that connected lives, so that its number is still its own.
    fn lives(&self) -> bool {
        let mut fds = [PollFd::new(&self.process, PollFlags::IN)];
        matches!(rustix::event::poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(0))
    }

    fn may(&self, capability: Capability, server: &Server) -> bool {
        let keeper = &server.options.keeper;
        let candidate = self.caller.uid == 0 || self.caller.uid == keeper.user();
        candidate
            && keeper.allows(self.caller, capability)
            && effective_user(self.caller.pid) == Some(self.caller.uid)
            && self.lives()
    }
}

/// The process that connected.
fn process_of(stream: &UnixStream) -> Result<OwnedFd, Errno> {
    let mut fd: libc::c_int = -1;
    let mut len = libc::socklen_t::try_from(size_of::<libc::c_int>()).expect("4");
    // SAFETY: the option fills an int of the length that is given; both live until the call returns.
    let r = unsafe {
        libc::getsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, SO_PEERPIDFD, (&raw mut fd).cast(), &raw mut len)
    };
    if r != 0 || fd < 0 {
        return Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::OPNOTSUPP));
    }
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

impl Shared {
    fn serve(this: &Arc<Shared>, stream: UnixStream) {
        stream.set_read_timeout(Some(CONTROL_TIMEOUT)).ok();
        stream.set_write_timeout(Some(CONTROL_TIMEOUT)).ok();
        let uid = socket_peercred(&stream).map_or(u32::MAX, |peer| peer.uid.as_raw());
        let kind = usize::from(uid == 0 || uid == this.server.options.keeper.user());
        if this.clients[kind].fetch_add(1, Ordering::SeqCst) >= MAX_CONTROL_CLIENTS {
            this.clients[kind].fetch_sub(1, Ordering::SeqCst);
            send(&stream, &Reply::Refused(Errno::AGAIN.raw_os_error()));
            return;
        }
        let shared = this.clone();
        let answer = move || {
            shared.answer(&stream);
            shared.clients[kind].fetch_sub(1, Ordering::SeqCst);
        };
        if thread::Builder::new().name("quire-client".to_owned()).spawn(answer).is_err() {
            this.clients[kind].fetch_sub(1, Ordering::SeqCst);
        }
    }

    fn answer(&self, stream: &UnixStream) {
        let mut line = String::new();
        let limit = u64::try_from(MAX_REQUEST_BYTES).expect("4096");
        if BufReader::new(stream.take(limit)).read_line(&mut line).is_err() {
            return;
        }
        let reply = match serde_json::from_str(&line) {
            Ok(request) => self.perform(stream, request).unwrap_or_else(Reply::Refused),
            Err(_) => Reply::Refused(Errno::INVAL.raw_os_error()),
        };
        send(stream, &reply);
    }

    fn perform(&self, stream: &UnixStream, request: Request) -> Result<Reply, i32> {
        let server = &self.server;
        let maintenance = server.volume.maintenance();
        let errno = |e: quire_fs::Error| e.errno();
        let needed = match request {
            Request::MayFreeze | Request::Freeze | Request::Thaw | Request::Remount { .. } => {
                Some(Capability::SysAdmin)
            }
            Request::Resize { .. } => Some(Capability::SysResource),
            Request::About | Request::Stats | Request::WriteBack | Request::Sync => None,
        };
        if let Some(capability) = needed {
            let peer = Peer::of(stream).map_err(Errno::raw_os_error)?;
            if !peer.may(capability, server) {
                return Err(Errno::PERM.raw_os_error());
            }
        }
        Ok(match request {
            Request::About => Reply::About(server.about()),
            Request::Stats => Reply::Stats(server.stats()),
            Request::WriteBack if server.volume.status().phase != Phase::Running => match server.writers.files()[..] {
                [] => Reply::Done,
                _ => Reply::Because("the file system is frozen, and files are open for writing".to_owned()),
            },
            Request::WriteBack => {
                (self.hooks.write_back)();
                Reply::Done
            }
            Request::Sync => server.volume.sync().map(|()| Reply::Done).map_err(errno)?,
            // It is frozen already, for as long as the mount is read-only.
            Request::MayFreeze | Request::Freeze if server.is_remounted_read_only() => Err(Errno::ROFS.raw_os_error())?,
            Request::MayFreeze => match server.volume.status().phase {
                Phase::Running => Reply::Done,
                _ => Err(Errno::BUSY.raw_os_error())?,
            },
            Request::Thaw if server.is_remounted_read_only() => Err(Errno::INVAL.raw_os_error())?,
            Request::Resize { .. } if server.is_remounted_read_only() => Err(Errno::ROFS.raw_os_error())?,
            Request::Resize { bytes } => match maintenance.grow(bytes) {
                Ok(_) => Reply::Done,
                Err(e) => Reply::Because(e.to_string()),
            },
            Request::Freeze => {
                let frozen = maintenance.freeze();
                if frozen.is_err() {
                    // What was kept while the volume was about to freeze.
                    (self.hooks.after_thaw)();
                }
                frozen.map(|()| Reply::Done).map_err(errno)?
            }
            Request::Remount { options, only_check } => {
                (self.hooks.remount)(&options, only_check).map_or_else(Reply::Because, Reply::Flags)
            }
            Request::Thaw => {
                let thawed = maintenance.thaw();
                // Whoever has ended the freeze: nothing stays kept.
                (self.hooks.after_thaw)();
                thawed.map(|()| Reply::Done).map_err(errno)?
            }
        })
    }
}

fn send(mut stream: &UnixStream, reply: &Reply) {
    let Ok(mut line) = serde_json::to_vec(reply) else { return };
    line.push(b'\n');
    stream.write_all(&line).ok();
}
