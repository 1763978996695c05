//! A mounted session: the handshake, the workers that answer requests, and its end.
//!
//! ```text
//! INIT ──> workers: receive ─> Server::answer ─> send ─┐
//!             ^────────────────────────────────────────┘  until the kernel says ENODEV: unmounted
//! ```
//! A worker that takes a request while no other waits for one starts another worker, up to a limit; a worker that finds
//! enough of them waiting ends. So a slow fsync never holds up the requests of others.

use crate::channel::Channel;
use crate::fail::Fail;
use crate::server::{Answer, Server};
use crate::wire::abi::{self, init, opcode};
use crate::wire::{Body, Header, Out};
use quire_device::sync::atomic::{AtomicUsize, Ordering};
use quire_device::sync::{Arc, Condvar, Mutex, lock, thread};
use rustix::io::Errno;
use std::time::Duration;

/// Bytes of file data in one request.
pub(crate) const MAX_WRITE: u32 = 1 << 20;
const MAX_PAGES: u16 = 256;
/// Requests that the kernel sends without anybody waiting (write-back, readahead), at most at once.
const MAX_BACKGROUND: u16 = 32;
/// Room for a request: a write with its header.
const REQUEST: usize = MAX_WRITE as usize + 8192;
/// Room for a reply.
const REPLY: usize = MAX_WRITE as usize + 4096;
const MAX_WORKERS: usize = 16;
/// Workers that may wait for requests at once.
const MAX_IDLE: usize = 4;

/// Abilities without which we do not work.
const NEEDED: u64 = init::BIG_WRITES | init::DONT_MASK;
/// Abilities that we use where the kernel has them.
const WANTED: u64 = init::ASYNC_READ
    | init::EXPORT_SUPPORT
    | init::DO_READDIRPLUS
    | init::READDIRPLUS_AUTO
    | init::ASYNC_DIO
    | init::ATOMIC_O_TRUNC
    | init::PARALLEL_DIROPS
    | init::MAX_PAGES
    | init::CACHE_SYMLINKS
    | init::NO_OPENDIR_SUPPORT
    | init::EXPLICIT_INVAL_DATA
    | init::HANDLE_KILLPRIV_V2
    | init::SETXATTR_EXT
    | init::INIT_EXT;

/// What the handshake asks for besides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wishes {
    /// The kernel keeps written pages and hands them over later.
    pub writeback_cache: bool,
    /// POSIX ACLs are enforced.
    pub acl: bool,
    /// Inodes keep whole seconds only (128 bytes): the kernel must not remember more.
    pub whole_seconds: bool,
}

/// A session whose handshake is done.
pub(crate) struct Session {
    channel: Arc<Channel>,
    server: Arc<Server>,
    shared: Arc<Shared>,
}

/// What the workers share.
#[derive(Default)]
struct Shared {
    idle: AtomicUsize,
    /// Workers alive.
    workers: Mutex<usize>,
    ended: Condvar,
    /// The first error that ended a worker.
    error: Mutex<Option<Errno>>,
}

impl Session {
    /// Answers the kernel's INIT.
    ///
    /// # Errors
    /// The connection broke, or the kernel is too old.
    pub(crate) fn start(channel: Channel, server: Arc<Server>, wishes: Wishes) -> Result<Session, Errno> {
        let mut buf = vec![0; REQUEST];
        let mut out = Out::new(256);
        loop {
            let n = channel.receive(&mut buf)?.ok_or(Errno::NODEV)?;
            let mut body = Body::new(&buf[..n]);
            let (Ok(header), mut body) = (body.header(), body) else { return Err(Errno::PROTO) };
            out.clear();
            let outcome = match header.opcode {
                opcode::INIT => handshake(&mut body, &mut out, wishes),
                _ => Err(Fail::of(Errno::IO)),
            };
            let agreed = matches!(outcome, Ok(Some(_)));
            channel.send(out.finish(header.unique, outcome.err()))?;
            if let Ok(Some(flags)) = outcome {
                server.agreed(flags);
            }
            match outcome {
                Ok(_) if agreed => break,
                Ok(_) => {}
                Err(_) => return Err(Errno::PROTO),
            }
        }
        Ok(Session { channel: Arc::new(channel), server, shared: Arc::default() })
    }

    /// Starts answering requests; returns at once.
    ///
    /// # Errors
    /// No thread could be started.
    pub(crate) fn spawn(&self) -> std::io::Result<()> {
        Worker::spawn(self.channel.clone(), self.server.clone(), self.shared.clone())
    }

    /// Waits until the file system is unmounted, or `timeout` has passed. True when it is over.
    ///
    /// # Errors
    /// What ended the connection besides an unmount.
    pub(crate) fn wait(&self, timeout: Option<Duration>) -> Result<bool, Errno> {
        let mut alive = lock(&self.shared.workers);
        while *alive > 0 {
            alive = match timeout {
                None => quire_device::sync::wait(&self.shared.ended, alive),
                Some(t) => {
                    let (guard, timed_out) =
                        self.shared.ended.wait_timeout(alive, t).expect("no worker panics while it counts");
                    if timed_out.timed_out() && *guard > 0 {
                        return Ok(false);
                    }
                    guard
                }
            };
        }
        drop(alive);
        lock(&self.shared.error).map_or(Ok(true), Err)
    }
}

/// Reads INIT, writes the reply. Returns what was agreed, or `None` if the kernel is to ask again with our major version.
fn handshake(body: &mut Body<'_>, out: &mut Out, wishes: Wishes) -> Result<Option<u64>, Fail> {
    let (major, minor) = (body.u32()?, body.u32()?);
    if major > abi::MAJOR {
        out.u32(abi::MAJOR)?;
        out.u32(abi::MINOR)?;
        return Ok(None);
    }
    if major < abi::MAJOR || minor < abi::MINOR_MIN {
        tracing::error!("the kernel speaks FUSE {major}.{minor}; {}.{} is needed", abi::MAJOR, abi::MINOR_MIN);
        return Err(Fail::of(Errno::PROTO));
    }
    let readahead = body.u32()?;
    let mut offered = u64::from(body.u32()?);
    if offered & init::INIT_EXT != 0 {
        offered |= u64::from(body.u32()?) << 32;
    }
    let mut wanted = NEEDED | WANTED;
    if wishes.writeback_cache {
        wanted |= init::WRITEBACK_CACHE;
    }
    if wishes.acl {
        wanted |= init::POSIX_ACL;
    }
    let agreed = offered & wanted;
    if agreed & NEEDED != NEEDED {
        tracing::error!("the kernel's FUSE lacks abilities {:#x}", NEEDED & !agreed);
        return Err(Fail::of(Errno::PROTO));
    }
    tracing::debug!("FUSE {major}.{minor}: offered {offered:#x}, agreed {agreed:#x}");
    let low = |v: u64| u32::try_from(v & u64::from(u32::MAX)).expect("masked");
    for v in [abi::MAJOR, abi::MINOR.min(minor), readahead.max(MAX_WRITE), low(agreed)] {
        out.u32(v)?;
    }
    out.u16(MAX_BACKGROUND)?;
    out.u16(MAX_BACKGROUND / 4 * 3)?;
    out.u32(MAX_WRITE)?;
    out.u32(if wishes.whole_seconds { 1_000_000_000 } else { 1 })?; // granularity of times, in ns
    out.u16(MAX_PAGES)?;
    out.u16(0)?;
    out.u32(low(agreed >> 32))?;
    out.bytes(&[0; 28])?;
    Ok(Some(agreed))
}

struct Worker {
    channel: Arc<Channel>,
    server: Arc<Server>,
    shared: Arc<Shared>,
}

impl Worker {
    fn spawn(channel: Arc<Channel>, server: Arc<Server>, shared: Arc<Shared>) -> std::io::Result<()> {
        let worker = Worker { channel, server, shared };
        *lock(&worker.shared.workers) += 1;
        let counted = worker.shared.clone();
        let started = thread::Builder::new().name("quire-fuse".to_owned()).spawn(move || worker.run());
        if let Err(e) = started {
            *lock(&counted.workers) -= 1;
            return Err(e);
        }
        Ok(())
    }

    fn run(self) {
        let mut request = vec![0; REQUEST];
        let mut out = Out::new(REPLY);
        if let Err(e) = self.serve(&mut request, &mut out) {
            tracing::error!("FUSE connection: {e}");
            lock(&self.shared.error).get_or_insert(e);
        }
        *lock(&self.shared.workers) -= 1;
        self.shared.ended.notify_all();
    }

    fn serve(&self, request: &mut [u8], out: &mut Out) -> Result<(), Errno> {
        loop {
            if self.shared.idle.fetch_add(1, Ordering::Relaxed) >= MAX_IDLE {
                self.shared.idle.fetch_sub(1, Ordering::Relaxed);
                return Ok(());
            }
            let received = self.channel.receive(request);
            let was_last = self.shared.idle.fetch_sub(1, Ordering::Relaxed) == 1;
            let Some(n) = received? else { return Ok(()) };
            if was_last {
                self.add_worker();
            }
            self.answer(&request[..n], out)?;
            // After a thaw: what was kept meanwhile.
            for kept in self.server.unparked() {
                self.answer(&kept, out)?;
            }
        }
    }

    fn add_worker(&self) {
        if *lock(&self.shared.workers) < MAX_WORKERS
            && let Err(e) = Worker::spawn(self.channel.clone(), self.server.clone(), self.shared.clone())
        {
            tracing::warn!("no further worker: {e}");
        }
    }

    fn answer(&self, request: &[u8], out: &mut Out) -> Result<(), Errno> {
        let mut body = Body::new(request);
        let Ok(header) = body.header() else { return Err(Errno::PROTO) };
        if self.server.park(&header, request) {
            return Ok(());
        }
        out.clear();
        let (error, given) = match self.server.answer(&header, body, out) {
            Ok(Answer::None) => return Ok(()),
            Ok(Answer::Reply) => (None, None),
            Ok(Answer::Gives(ino)) => (None, Some(ino)),
            Ok(Answer::Spoils(ino)) => {
                self.channel.send(&crate::wire::reply::forget_attributes(ino)).ok();
                (None, None)
            }
            Err(e) => (Some(e), None),
        };
        trace(&header, error);
        match self.channel.send(out.finish(header.unique, error)) {
            Ok(()) => Ok(()),
            // Nobody waits any more: the reference that the reply was to give stays with us.
            Err(Errno::NOENT) => {
                if let Some(ino) = given {
                    self.server.take_back(ino);
                }
                Ok(())
            }
            // Unmounted meanwhile.
            Err(Errno::NODEV | Errno::CONNABORTED | Errno::NOTCONN) => Ok(()),
            // The kernel found fault with a reply: the request is answered with an error, others go on.
            Err(Errno::INVAL) if error.is_none() => {
                tracing::error!(
                    "the kernel refused the reply to request {} (operation {})",
                    header.unique,
                    header.opcode
                );
                let again = out.finish(header.unique, Some(Fail::of(Errno::IO)));
                match self.channel.send(again) {
                    Ok(()) | Err(Errno::NOENT | Errno::NODEV) => Ok(()),
                    Err(e) => Err(e),
                }
            }
            Err(e) => Err(e),
        }
    }
}

fn trace(h: &Header, error: Option<Fail>) {
    tracing::trace!(op = h.opcode, node = h.node, error = error.map(Fail::errno), "request");
}
