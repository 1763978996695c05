//! A mounted session: the handshake, the workers that answer requests, and its end.
//!
//! ```text
//! INIT ──> workers: receive ─> Server::answer ─> send ─┐
//!             ^────────────────────────────────────────┘  until the kernel says ENODEV: unmounted
//! ```
//! Which worker takes the next request is decided in [`crate::turns`].

use crate::bdi::Bdi;
use crate::channel::Channel;
use crate::fail::Fail;
use crate::halt_poll::HaltPoll;
use crate::kernel_pages::KernelPages;
use crate::room::Room;
use crate::server::{Admission, Answer, Server};
use crate::turns::Turns;
use crate::wire::abi::{self, init, opcode};
use crate::wire::reply;
use crate::wire::{Body, Header, Out};
use quire_device::sync::{Arc, Mutex, before_blocking, lock, thread, when_blocking};
use quire_layout::Ino;
use rustix::io::Errno;
use std::cell::Cell;
use std::time::Duration;

/// Bytes of file data in one request.
pub(crate) const MAX_WRITE: u32 = 1 << 20;
const MAX_PAGES: u16 = 256;
/// Requests that the kernel sends without anybody waiting (write-back, readahead), at most at once.
const MAX_BACKGROUND: u16 = 8;

/// Ticks of a millisecond or more between two looks at how full the volume is: a disk takes longer to fill.
const TICKS_PER_LOOK: u32 = 32;

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
    | init::INIT_EXT
    | init::DIRECT_IO_ALLOW_MMAP;

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
#[derive(Clone)]
pub(crate) struct Session {
    shared: Arc<Shared>,
}

/// What the workers share.
struct Shared {
    channel: Channel,
    server: Arc<Server>,
    turns: Turns,
    kernel_pages: KernelPages,
    /// The first error that ended a worker.
    error: Mutex<Option<Errno>>,
}

impl Session {
    /// Answers the kernel's INIT.
    ///
    /// # Errors
    /// The connection broke, or the kernel is too old.
    pub(crate) fn start(channel: Channel, server: Arc<Server>, wishes: Wishes) -> Result<Session, Errno> {
        let (mut buf, mut reply) = (vec![0; 64 << 10], [0; 256]);
        let mut out = Out::new(&mut reply);
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
        Ok(Session {
            shared: Arc::new(Shared {
                channel,
                server,
                turns: Turns::default(),
                kernel_pages: KernelPages::default(),
                error: Mutex::default(),
            }),
        })
    }

    /// Starts answering requests; returns at once.
    ///
    /// # Errors
    /// No thread could be started.
    pub(crate) fn spawn(&self, halt_poll: HaltPoll, bdi: Arc<Bdi>) -> std::io::Result<()> {
        let shared = self.shared.clone();
        let (ticks, free) = (Cell::new(0u32), Cell::new(0));
        let tick = move |shared: &Shared| {
            let volume = &shared.server.volume;
            if ticks.replace(ticks.get().wrapping_add(1)) % TICKS_PER_LOOK == 0 {
                free.set(volume.maintenance().free_bytes().0);
            }
            bdi.hold_back(volume.status().commits_are_frequent, free.get());
        };
        let watch = move || shared.turns.watch(&halt_poll, || Worker::hire(&shared), || tick(&shared));
        thread::Builder::new().name("quire-turns".to_owned()).spawn(watch)?;
        let worker = Worker { shared: self.shared.clone() };
        thread::Builder::new().name("quire-pages".to_owned()).spawn(move || worker.answer_after_writeback())?;
        self.shared.turns.begin();
        Worker::spawn(self.shared.clone())
    }

    /// Makes the kernel hand over its dirty pages of all files that are open for writing. Not for workers: they answer
    /// what comes.
    pub(crate) fn write_back(&self) {
        for ino in self.shared.server.writers.files() {
            // The kernel may have forgotten the inode: then it has no pages of it.
            self.shared.channel.send(&reply::drop_pages(ino)).ok();
        }
    }

    /// Answers the requests that waited for a thaw.
    pub(crate) fn answer_kept(&self) {
        let worker = Worker { shared: self.shared.clone() };
        let mut reply = vec![0; SHORT_REPLY];
        for kept in self.shared.server.unparked() {
            if let Err(e) = worker.answer(&kept, &mut Out::new(&mut reply)) {
                tracing::debug!("after the thaw: {e}");
            }
        }
    }

    /// Waits until the file system is unmounted, or `timeout` has passed. True when it is over.
    ///
    /// # Errors
    /// What ended the connection besides an unmount.
    pub(crate) fn wait(&self, timeout: Option<Duration>) -> Result<bool, Errno> {
        if !self.shared.turns.wait(timeout) {
            return Ok(false);
        }
        lock(&self.shared.error).map_or(Ok(true), Err)
    }
}

/// Reads INIT, writes the reply. Returns what was agreed, or `None` if the kernel is to ask again with our major
/// version.
fn handshake(body: &mut Body<'_>, out: &mut Out<'_>, wishes: Wishes) -> Result<Option<u64>, Fail> {
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

/// Bytes of a request from which on to answer it is long work: a tenth of a millisecond.
const LONG: usize = 256 << 10;

/// Bytes of the replies to requests without data.
const SHORT_REPLY: usize = 4 << 10;

/// How long a request that finds no space waits while the kernel may be giving up a file that was removed: its RELEASE
/// and FORGET come after rm(1) has returned, some milliseconds later.
const WAITS_FOR_SPACE: [Duration; 4] =
    [Duration::from_millis(2), Duration::from_millis(8), Duration::from_millis(30), Duration::from_millis(60)];

struct Worker {
    shared: Arc<Shared>,
}

impl Worker {
    /// Starts a worker that has begun.
    fn spawn(shared: Arc<Shared>) -> std::io::Result<()> {
        thread::Builder::new().name("quire-fuse".to_owned()).spawn(move || Worker { shared }.run()).map(drop)
    }

    /// As [`Worker::spawn`]; true if it could be started.
    fn hire(shared: &Arc<Shared>) -> bool {
        let started = Self::spawn(shared.clone());
        if let Err(e) = &started {
            tracing::warn!("no further worker: {e}");
        }
        started.is_ok()
    }

    fn run(self) {
        let shared = self.shared.clone();
        when_blocking(move || shared.turns.waits(|| Worker::hire(&shared)));
        if let Err(e) = Room::new().map_err(|_| Errno::NOMEM).and_then(|mut room| self.serve(&mut room)) {
            tracing::error!("FUSE connection: {e}");
            lock(&self.shared.error).get_or_insert(e);
            self.shared.turns.end();
        }
        self.shared.kernel_pages.end();
        self.shared.turns.left();
    }

    /// Takes turns until the session is over, or enough others sit.
    fn serve(&self, room: &mut Room) -> Result<(), Errno> {
        let (request, mut out) = room.parts();
        let out = &mut out;
        let (turns, seat) = (&self.shared.turns, Arc::default());
        while turns.take(&seat) {
            loop {
                let Some(n) = self.shared.channel.receive(request)? else {
                    turns.end();
                    return Ok(());
                };
                turns.received();
                if n >= LONG && self.shared.channel.is_ready() {
                    turns.share(|| Worker::hire(&self.shared));
                }
                self.answer(&request[..n], out)?;
                // After a thaw: what was kept meanwhile.
                for kept in self.shared.server.unparked() {
                    self.answer(&kept, out)?;
                }
                if !turns.keeps() {
                    break;
                }
            }
        }
        Ok(())
    }

    fn answer(&self, request: &[u8], out: &mut Out<'_>) -> Result<(), Errno> {
        let mut body = Body::new(request);
        let Ok(header) = body.header() else { return Err(Errno::PROTO) };
        let Shared { server, kernel_pages, .. } = &*self.shared;
        if let Some(ino) = server.needs_writeback(&header, request) {
            kernel_pages.put(ino, request);
            return Ok(());
        }
        self.answer_now(request, &header, body, out)
    }

    /// Answers the requests for which the kernel must first hand over its dirty pages of a file, until the session
    /// ends.
    fn answer_after_writeback(&self) {
        let mut reply = vec![0; SHORT_REPLY];
        while let Some((ino, request)) = self.shared.kernel_pages.take() {
            // The kernel may have forgotten the inode: then it has no pages of it.
            self.shared.channel.send(&reply::drop_pages(ino)).ok();
            let mut body = Body::new(&request);
            let Ok(header) = body.header() else { continue };
            if let Err(e) = self.answer_now(&request, &header, body, &mut Out::new(&mut reply)) {
                tracing::debug!("operation {} after writeback: {e}", header.opcode);
            }
        }
    }

    fn answer_now(&self, request: &[u8], header: &Header, body: Body<'_>, out: &mut Out<'_>) -> Result<(), Errno> {
        let server = &self.shared.server;
        let Admission::Now(admitted) = server.admit(header, request) else { return Ok(()) };
        out.clear();
        let mut answer = server.answer(header, body, out);
        for pause in WAITS_FOR_SPACE {
            if !server.may_get_space(header, &answer) {
                break;
            }
            before_blocking();
            thread::sleep(pause);
            out.clear();
            answer = server.answer(header, body, out);
        }
        drop(admitted);
        if let Ok(Answer::WhenDurable { ino, data_only }) = answer {
            self.suspend(*header, ino, data_only);
            return Ok(());
        }
        self.shared.reply(header, answer, out)
    }

    /// Suspends a request until a file is durable. The thread that makes it durable replies.
    fn suspend(&self, header: Header, ino: Ino, data_only: bool) {
        let shared = self.shared.clone();
        quire_fs::fsync_then(&self.shared.server.volume, ino, data_only, move |outcome| {
            let answer = outcome.map(|()| Answer::Reply).map_err(Fail::from);
            let mut reply = [0; reply::HEADER];
            if let Err(e) = shared.reply(&header, answer, &mut Out::new(&mut reply)) {
                // The workers learn of a broken connection by themselves.
                tracing::debug!("operation {} when durable: {e}", header.opcode);
            }
        });
    }
}

impl Shared {
    fn reply(&self, header: &Header, answer: Result<Answer, Fail>, out: &mut Out<'_>) -> Result<(), Errno> {
        let Shared { server, channel, turns, .. } = self;
        let (error, given) = match answer {
            Ok(Answer::None | Answer::WhenDurable { .. }) => return Ok(()),
            Ok(Answer::Reply) => (None, None),
            Ok(Answer::Gives(ino)) => (None, Some(ino)),
            Ok(Answer::Spoils(ino)) => {
                channel.send(&reply::forget_attributes(ino)).ok();
                (None, None)
            }
            Err(e) => {
                // The writer is to ask, and to learn of it (see `refused`).
                if let Some(ino) = server.refused_by(header) {
                    channel.send(&reply::forget_attributes(ino)).ok();
                }
                (Some(e), None)
            }
        };
        trace(header, error);
        turns.answered(|| channel.is_ready());
        match channel.send(out.finish(header.unique, error)) {
            Ok(()) => Ok(()),
            // Nobody waits any more: the reference that the reply was to give stays with us.
            Err(Errno::NOENT) => {
                if let Some(ino) = given {
                    server.take_back(ino);
                }
                Ok(())
            }
            // The kernel found fault with a reply: the request is answered with an error, others go on.
            Err(Errno::INVAL) if error.is_none() => {
                tracing::error!(
                    "the kernel refused the reply to request {} (operation {})",
                    header.unique,
                    header.opcode
                );
                unless_gone(channel.send(out.finish(header.unique, Some(Fail::of(Errno::IO)))))
            }
            sent => unless_gone(sent),
        }
    }
}

/// Nobody waits for a reply any more, or it was unmounted meanwhile: nothing is wrong.
fn unless_gone(sent: Result<(), Errno>) -> Result<(), Errno> {
    match sent {
        Err(Errno::NOENT | Errno::NODEV | Errno::CONNABORTED | Errno::NOTCONN) => Ok(()),
        sent => sent,
    }
}

fn trace(h: &Header, error: Option<Fail>) {
    tracing::trace!(op = h.opcode, node = h.node, error = error.map(Fail::errno), "request");
}
