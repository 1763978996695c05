//! What a session's workers share, and how a request is answered: at once, or when files are durable.
//!
//! *Guarantees*: each request has one reply. What a reply gives to the kernel and that does not arrive stays with us.

use crate::again::{Again, Due, Kept};
use crate::dirty_memory::DirtyMemory;
use crate::fail::Fail;
use crate::kernel_pages::{KernelPages, Waiting};
use crate::meter::Suspended;
use crate::policy::{MAX_COPIED_READ, MAX_MISSES};
use crate::reply_buffers::{BODY_AT, reply_of};
use crate::server::{Answer, Durable, Need, Sent, Server};
use crate::session_queue::SessionQueue;
use crate::space::SpaceQueue;
use crate::transport::Transport;
use crate::wire::reply;
use crate::wire::{Header, Out};
use crate::workers::{self, Workers};
use quire_device::WaitFor;
use quire_device::sync::atomic::{AtomicBool, AtomicUsize};
use quire_device::sync::{Arc, Mutex};
use quire_fs::{DeviceRead, Lead};
use quire_layout::{BlockNo, Ino};
use rustix::io::Errno;

/// What the workers share.
pub(crate) struct Shared {
    pub(crate) transport: Transport,
    pub(crate) server: Arc<Server>,
    pub(crate) workers: Workers,
    pub(crate) kernel_pages: KernelPages,
    /// Threads that take from there.
    pub(crate) page_threads: AtomicUsize,
    /// SYNCFS requests, whole, and whether a thread takes them.
    pub(crate) syncs: SessionQueue<Vec<u8>>,
    pub(crate) has_sync_thread: AtomicBool,
    pub(crate) dirty_memory: DirtyMemory,
    pub(crate) space: SpaceQueue,
    pub(crate) again: Again,
    /// The first error that ended a worker.
    pub(crate) error: Mutex<Option<Errno>>,
}

/// Suspends a request until files are durable, or everything. The thread that makes the last one durable replies. A
/// thread that is no worker commits for its own request only, and so does one whose requests come by rings: its reply
/// goes when it has done with the request, and others may sync without end.
pub(crate) fn suspend(shared: &Arc<Shared>, header: Header, suspended: Suspended, durable: Durable, body: Vec<u8>) {
    let Durable { need, sent } = durable;
    let after = shared.clone();
    let told = move |outcome: Result<(), quire_fs::Error>| {
        let answer = outcome.map(|()| sent.answer()).map_err(|e| {
            after.server.take_back(sent);
            Fail::from(e)
        });
        match (sent, answer) {
            // Also after an error: the pages are older than the file.
            (Sent::DropsPages(ino), answer) => after.kernel_pages.put(Waiting::Reply(ino, header, answer.err())),
            (_, answer) => {
                if let Err(e) = after.reply_with(&header, answer, &body) {
                    // The workers learn of a broken connection by themselves.
                    tracing::debug!("operation {} when durable: {e}", header.opcode);
                }
            }
        }
        after.server.meter.end_suspended(&header, suspended, WaitFor::Commit);
    };
    let is_free = workers::is_worker() && shared.transport.rings() == 0;
    let lead = if is_free { Lead::UntilNobodyWaits } else { Lead::Once };
    let volume = &shared.server.volume;
    match need {
        Need::Files { ino, and: Some(and), data_only } => {
            quire_fs::fsync_then(volume, &[ino, and], data_only, lead, told);
        }
        Need::Files { ino, and: None, data_only } => quire_fs::fsync_then(volume, &[ino], data_only, lead, told),
        Need::Commit(tid) => quire_fs::commit_then(volume, tid, lead, told),
        Need::Everything => quire_fs::sync_then(volume, lead, told),
    }
}

/// Suspends a READ until the device has read. A large one is read into memory that is its reply.
pub(crate) fn suspend_read(shared: &Arc<Shared>, header: Header, suspended: Suspended, read: DeviceRead) {
    let after = shared.clone();
    let ended = move |replied: Result<(), Errno>| {
        if let Err(e) = replied {
            // The workers learn of a broken connection by themselves.
            tracing::debug!("a read of inode {}: {e}", header.node);
        }
        after.server.meter.end_suspended(&header, suspended, WaitFor::Read);
    };
    let after = shared.clone();
    let large = (read.bytes() > MAX_COPIED_READ).then(|| shared.server.reply_buffers.take()).flatten();
    match large {
        Some(buffer) => read.then_in(buffer, BODY_AT, move |outcome| {
            let buffers = &after.server.reply_buffers;
            ended(match outcome {
                Ok((mut buffer, bytes)) => {
                    let replied = after.reply(&header, Ok(Answer::Reply), &mut reply_of(&mut buffer, bytes));
                    buffers.put(Some(buffer));
                    replied
                }
                Err(e) => {
                    buffers.put(None);
                    after.reply_with(&header, Err(Fail::from(e)), &[])
                }
            });
        }),
        None => read.then(move |outcome| {
            ended(match outcome {
                Ok(bytes) => after.reply_with(&header, Ok(Answer::Reply), bytes),
                Err(e) => after.reply_with(&header, Err(Fail::from(e)), &[]),
            });
        }),
    }
}

/// Has a request answered again when these blocks, which it missed, are in memory, or cannot be read.
pub(crate) fn answer_when_loaded(shared: &Arc<Shared>, kept: Kept, blocks: &[BlockNo]) {
    let after = shared.clone();
    quire_fs::load_then(&shared.server.volume, blocks, move |is_read| {
        // What cannot be read is read once more by the call that needs it, which tells the error.
        let misses = if is_read { kept.misses } else { MAX_MISSES };
        after.again.put(Due::Again(Box::new(Kept { misses, ..kept })));
    });
}

impl Shared {
    /// The session is over: all workers are called to end.
    pub(crate) fn end(&self) {
        self.workers.end();
        self.again.end();
        self.transport.end();
    }

    /// After a thaw: the requests that were kept meanwhile are due.
    pub(crate) fn answer_thawed(&self) {
        self.server.unparked().into_iter().for_each(|request| self.again.put(Due::Thawed(request)));
    }

    /// Makes the kernel hand over its dirty pages of these files, and forget the others.
    pub(crate) fn drop_pages(&self, files: Vec<Ino>) {
        for ino in files {
            // The kernel may have forgotten the inode: then it has no pages of it.
            self.transport.send(&reply::drop_pages(ino)).ok();
        }
    }

    /// Makes the kernel hand over what it holds now of all files that are open for writing, and forget it. Beside a
    /// program that appends to one this ends: what lies farther behind the end that the volume knows than the kernel
    /// has dirty bytes goes first, because no append of before can be there.
    pub(crate) fn hand_over(&self) {
        // Before the sizes: what is handed over between counts twice, not never.
        let dirty = self.dirty_memory.bytes().unwrap_or(u64::MAX);
        for ino in self.server.writers.files() {
            let known = self.server.volume.getattr(ino).map_or(0, |a| a.size);
            match i64::try_from(known.saturating_add(dirty)) {
                Ok(behind) if behind > 0 => {
                    self.transport.send(&reply::drop_pages_from(ino, behind)).ok();
                    self.transport.send(&reply::drop_first_pages(ino, behind)).ok();
                }
                _ => drop(self.transport.send(&reply::drop_pages(ino))),
            }
        }
    }

    /// Replies with this body.
    pub(crate) fn reply_with(&self, header: &Header, answer: Result<Answer, Fail>, body: &[u8]) -> Result<(), Errno> {
        let mut buf = vec![0; reply::HEADER + body.len()];
        let mut out = Out::new(&mut buf);
        out.bytes(body).expect("room for it");
        self.reply(header, answer, &mut out)
    }

    pub(crate) fn reply(&self, header: &Header, answer: Result<Answer, Fail>, out: &mut Out<'_>) -> Result<(), Errno> {
        let Shared { server, transport: channel, .. } = self;
        let (error, sent) = match answer {
            Ok(Answer::None | Answer::WhenDurable(_) | Answer::OnDevice(_)) => return Ok(()),
            Ok(Answer::Reply | Answer::DropsPages(_)) => (None, Sent::Reply),
            Ok(Answer::Gives(ino)) => (None, Sent::Gives(ino)),
            Ok(Answer::Opens { ino, writes }) => (None, Sent::Opens { ino, writes }),
            Ok(Answer::Spoils(ino)) => {
                channel.send(&reply::forget_attributes(ino)).ok();
                (None, Sent::Reply)
            }
            Ok(Answer::StopsAll) => {
                // A freeze has ended, and the kernel's pages may be in WRITEs that it has held up.
                self.answer_thawed();
                self.drop_pages(server.openers.files());
                (None, Sent::Reply)
            }
            Err(e) => {
                // The writer is to ask, and to learn of it (see `refused`).
                if let Some(ino) = server.refused_by(header) {
                    channel.send(&reply::forget_attributes(ino)).ok();
                }
                (Some(e), Sent::Reply)
            }
        };
        trace(header, error.as_ref());
        let forbidden = error.as_ref().and_then(|e| Server::forbidden_by(header, e));
        let replied = match channel.send(out.finish(header.unique, error.as_ref())) {
            Ok(()) => Ok(()),
            // Nobody waits any more: what the reply was to give stays with us.
            Err(Errno::NOENT) => {
                server.take_back(sent);
                Ok(())
            }
            // The kernel found fault with a reply: the request is answered with an error, others go on.
            Err(Errno::INVAL) if error.is_none() => {
                tracing::error!(
                    "the kernel refused the reply to request {} (operation {})",
                    header.unique,
                    header.opcode
                );
                server.take_back(sent);
                unless_gone(channel.send(out.finish(header.unique, Some(&Fail::of(Errno::IO)))))
            }
            sent => unless_gone(sent),
        };
        // The kernel takes a page as clean when it has the answer, whatever that is.
        if let Some(ino) = forbidden {
            self.kernel_pages.put(Waiting::Refused(ino));
        }
        replied
    }
}

/// Nobody waits for a reply any more, or it was unmounted meanwhile: nothing is wrong.
fn unless_gone(sent: Result<(), Errno>) -> Result<(), Errno> {
    match sent {
        Err(Errno::NOENT | Errno::NODEV | Errno::CONNABORTED | Errno::NOTCONN) => Ok(()),
        sent => sent,
    }
}

fn trace(h: &Header, error: Option<&Fail>) {
    tracing::trace!(op = h.opcode, node = h.node, error = error.map(Fail::errno), "request");
}
