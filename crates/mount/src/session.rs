//! A mounted session: the handshake, the workers that answer requests, and its end.
//!
//! ```text
//! INIT ──> workers: receive ─> requests::answer ─> send ─┐
//!             ^──────────────────────────────────────────┘  until the kernel says ENODEV: unmounted
//! ```
//! Which worker reads the next request is decided in [`crate::workers`]; replies are in [`crate::replies`].

use crate::again::{Again, Due, Kept};
use crate::fail::Fail;
use crate::handshake::{Requested, handshake};
use crate::kernel_pages::{KernelPages, Pages, Waiting};
use crate::meter::Measured;
use crate::ops::ioctl;
use crate::policy::{LOOK_AGAIN, MAX_MISSES, PAGE_THREADS, usual_readers};
use crate::replies::{Shared, answer_when_loaded, suspend, suspend_read};
use crate::requests;
use crate::server::{Admission, Answer, Server};
use crate::space::{self, SpaceQueue};
use crate::transport::{Channel, Entry, Found, Next, RequestBuffer, Rings, Transport};
use crate::transport_choice::{TransportCounters, TransportError};
use crate::wire::abi::{init, opcode};
use crate::wire::{Body, Header, Out};
use crate::workers::{AGAIN_QUEUE, DEV_QUEUE, FIRST_RING, QueueIndex, Workers, cpus};
use quire_device::WaitFor;
use quire_device::sync::atomic::{AtomicUsize, Ordering};
use quire_device::sync::{Arc, Mutex, lock, thread, when_blocking};
use quire_fs::{Admitted, Phase};
use rustix::io::Errno;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// A session whose handshake is done.
#[derive(Clone)]
pub(crate) struct Session {
    shared: Arc<Shared>,
}

impl Session {
    /// Answers the kernel's INIT. With `rings` requests come by them from then on, if the kernel agrees.
    ///
    /// # Errors
    /// The connection broke, or the kernel is too old.
    pub(crate) fn start(
        channel: Channel,
        server: Arc<Server>,
        requested: Requested,
        rings: Option<Rings>,
        counters: &TransportCounters,
    ) -> Result<Session, Errno> {
        let (mut buf, mut reply) = (vec![0; 64 << 10], [0; 256]);
        let mut out = Out::new(&mut reply);
        loop {
            let n = channel.receive(&mut buf)?.ok_or(Errno::NODEV)?;
            let mut body = Body::new(&buf[..n]);
            let (Ok(header), mut body) = (body.header(), body) else { return Err(Errno::PROTO) };
            out.clear();
            let outcome = match header.opcode {
                opcode::INIT => handshake(&mut body, &mut out, requested),
                _ => Err(Fail::of(Errno::IO)),
            };
            let agreed = matches!(outcome, Ok(Some(_)));
            channel.send(out.finish(header.unique, outcome.as_ref().err()))?;
            if let Ok(Some(flags)) = outcome {
                server.agreed(flags);
            }
            match outcome {
                Ok(_) if agreed => break,
                Ok(_) => {}
                Err(_) => return Err(Errno::PROTO),
            }
        }
        let rings = rings.filter(|_| server.has(init::OVER_IO_URING)).map(Arc::new);
        let rings = rings.filter(|rings| match rings.start(&channel) {
            Ok(()) => true,
            Err(e) => {
                tracing::warn!("requests come over /dev/fuse: {}", TransportError::NoRings(e));
                rings.end();
                false
            }
        });
        counters.queues.store(rings.as_ref().map_or(0, |r| r.queues()), Ordering::Relaxed);
        let without = server.options.without;
        if without.polling {
            channel.never_spins();
            rings.iter().for_each(|r| r.never_spins());
        }
        let transport = Transport { channel, rings };
        Ok(Session {
            shared: Arc::new(Shared {
                workers: Workers::new(
                    FIRST_RING + transport.rings(),
                    server.options.readers.unwrap_or_else(|| usual_readers(cpus())),
                    server.blocked.clone(),
                ),
                transport,
                server,
                kernel_pages: KernelPages::default(),
                page_threads: AtomicUsize::new(0),
                space: SpaceQueue::default(),
                again: Again::default(),
                error: Mutex::default(),
            }),
        })
    }

    /// Starts answering requests; returns at once.
    ///
    /// # Errors
    /// No thread could be started, or there is no memory for its requests.
    pub(crate) fn spawn(&self) -> std::io::Result<()> {
        Worker::wait_for_pages(&self.shared)?;
        let worker = Worker { shared: self.shared.clone() };
        thread::Builder::new().name("quire-space".to_owned()).spawn(move || worker.answer_when_space_is_free())?;
        for _ in 0..self.shared.workers.queues() {
            self.shared.workers.begin();
            Worker::spawn(self.shared.clone())?;
        }
        Ok(())
    }

    /// True if requests come by rings.
    pub(crate) fn has_rings(&self) -> bool {
        self.shared.transport.rings() > 0
    }

    /// Makes the kernel hand over its dirty pages of all files that are open for writing. Not for workers: they answer
    /// what comes.
    pub(crate) fn write_back(&self) {
        self.shared.drop_pages(self.shared.server.writers.files());
    }

    /// False once the file system is unmounted.
    pub(crate) fn is_connected(&self) -> bool {
        self.shared.transport.channel.is_connected()
    }

    /// Has the requests answered that waited for a thaw.
    pub(crate) fn answer_thawed(&self) {
        self.shared.answer_thawed();
    }

    /// Waits until workers have taken what was due after a thaw, or `timeout` has passed.
    pub(crate) fn wait_for_thawed(&self, timeout: Duration) {
        let until = Instant::now() + timeout;
        while !self.shared.again.is_empty() && Instant::now() < until {
            thread::sleep(LOOK_AGAIN);
        }
    }

    /// Waits until the file system is unmounted, or `timeout` has passed. True when it is over.
    ///
    /// # Errors
    /// What ended the connection besides an unmount.
    pub(crate) fn wait(&self, timeout: Option<Duration>) -> Result<bool, Errno> {
        let over = self.shared.workers.wait(timeout);
        // After an error a reader of /dev/fuse may wait for requests that come by rings, and that nobody serves.
        lock(&self.shared.error).map_or(Ok(over), Err)
    }
}

/// Bytes of the replies to requests without data.
const SHORT_REPLY: usize = 4 << 10;

struct Worker {
    shared: Arc<Shared>,
}

impl Worker {
    /// Starts a worker that has begun. Its memory is asked for here, so that a worker which has none never starts.
    fn spawn(shared: Arc<Shared>) -> std::io::Result<()> {
        let buffer = RequestBuffer::new()?;
        let thread = thread::Builder::new().name("quire-fuse".to_owned());
        thread.spawn(move || Worker { shared }.run(buffer)).map(drop)
    }

    /// As [`Worker::spawn`]; true if it could be started. If not, the worker that hires it reads again when it has
    /// answered its request.
    fn hire(shared: &Arc<Shared>) -> bool {
        let started = Self::spawn(shared.clone());
        if let Err(e) = &started {
            tracing::warn!("no further worker: {e}");
        }
        started.is_ok()
    }

    /// Starts a thread for requests that wait for the kernel's pages, unless there are enough.
    fn wait_for_pages(shared: &Arc<Shared>) -> std::io::Result<()> {
        let threads = &shared.page_threads;
        if threads.fetch_add(1, Ordering::Relaxed) >= PAGE_THREADS {
            threads.fetch_sub(1, Ordering::Relaxed);
            return Ok(());
        }
        let worker = Worker { shared: shared.clone() };
        let started = thread::Builder::new().name("quire-pages".to_owned());
        let started = started.spawn(move || worker.answer_after_writeback());
        if started.is_err() {
            threads.fetch_sub(1, Ordering::Relaxed);
        }
        started.map(drop)
    }

    fn run(self, mut buffer: RequestBuffer) {
        let shared = self.shared.clone();
        when_blocking(move || {
            shared.transport.before_blocking();
            shared.workers.blocks(|| Worker::hire(&shared));
        });
        if let Err(e) = self.serve(&mut buffer) {
            tracing::error!("FUSE connection: {e}");
            lock(&self.shared.error).get_or_insert(e);
            self.shared.end();
        }
        self.shared.kernel_pages.end();
        self.shared.space.end();
        self.shared.workers.left();
    }

    /// Answers requests until the session is over.
    fn serve(&self, buffer: &mut RequestBuffer) -> Result<(), Errno> {
        let (workers, idle) = (&self.shared.workers, Arc::default());
        loop {
            self.shared.transport.after_blocking();
            let Some(queue) = workers.become_reader(&idle) else { return Ok(()) };
            match (queue, &self.shared.transport.rings) {
                (AGAIN_QUEUE, _) => self.serve_again(buffer)?,
                (DEV_QUEUE, _) | (_, None) => self.serve_device(buffer)?,
                (QueueIndex(queue), Some(rings)) => self.serve_queue(rings, queue - FIRST_RING, buffer)?,
            }
        }
    }

    /// Answers requests from /dev/fuse for as long as this worker reads them.
    fn serve_device(&self, buffer: &mut RequestBuffer) -> Result<(), Errno> {
        let (request, mut out) = buffer.parts();
        let workers = &self.shared.workers;
        while let Some(n) = self.next(request)? {
            self.answer(&request[..n], &mut out)?;
            self.shared.answer_thawed();
            if !workers.reads() {
                break;
            }
        }
        Ok(())
    }

    /// Answers requests again, for as long as this worker reads them.
    fn serve_again(&self, buffer: &mut RequestBuffer) -> Result<(), Errno> {
        let (_, mut out) = buffer.parts();
        let Shared { again, workers, .. } = &*self.shared;
        loop {
            let due = match again.take_now() {
                Some(due) => {
                    workers.took(|| Worker::hire(&self.shared));
                    due
                }
                None if !workers.waits_for_requests() => return Ok(()),
                None => match again.take() {
                    Some(due) => due,
                    None => return Ok(()),
                },
            };
            match due {
                Due::Again(kept) => self.answer_again(&kept, &mut out)?,
                Due::Thawed(request) => self.answer(&request, &mut out)?,
            }
            self.shared.answer_thawed();
            if !workers.reads() {
                return Ok(());
            }
        }
    }

    /// Answers a request that was not carried out before.
    fn answer_again(&self, kept: &Kept, out: &mut Out<'_>) -> Result<(), Errno> {
        let mut body = Body::new(&kept.request);
        let Ok(header) = body.header() else { return Err(Errno::PROTO) };
        out.clear();
        self.admit(Request { whole: &kept.request, header: &header, body, waited: Some(kept) }, out)
    }

    /// Answers the requests of a ring for as long as this worker reads it.
    fn serve_queue(&self, rings: &Rings, queue: usize, buffer: &mut RequestBuffer) -> Result<(), Errno> {
        let workers = &self.shared.workers;
        while workers.reads() && !workers.is_over() {
            match rings.next(queue, &self.shared.transport.channel) {
                Next::Request(entry) => self.serve_entry(rings, queue, entry, buffer)?,
                Next::Nothing => {}
                Next::End => self.shared.end(),
            }
        }
        rings.flush_deferred();
        Ok(())
    }

    /// Answers the request in a ring's entry.
    fn serve_entry(
        &self,
        rings: &Rings,
        queue: usize,
        mut entry: Entry,
        buffer: &mut RequestBuffer,
    ) -> Result<(), Errno> {
        let unique = entry.unique();
        let mut split = entry.split(buffer.whole())?;
        rings.serves(unique, split.reply_at);
        let answered = self.answer(split.request, &mut split.out);
        rings.served(queue, entry, self.shared.workers.reads());
        self.shared.answer_thawed();
        answered
    }

    /// Reads the next request, as one of the readers. `None`: another reader does, or the session is over.
    fn next(&self, request: &mut [u8]) -> Result<Option<usize>, Errno> {
        let Shared { transport: Transport { channel, .. }, workers, .. } = &*self.shared;
        let found = match channel.receive_now(request)? {
            Found::Nothing if !workers.waits_for_requests() => return Ok(None),
            Found::Nothing => channel.receive(request)?.map_or(Found::End, Found::Request),
            Found::Request(n) => {
                workers.took(|| Worker::hire(&self.shared));
                Found::Request(n)
            }
            Found::End => Found::End,
        };
        match found {
            Found::Request(n) => Ok(Some(n)),
            _ => {
                self.shared.end();
                Ok(None)
            }
        }
    }

    fn answer(&self, request: &[u8], out: &mut Out<'_>) -> Result<(), Errno> {
        let mut body = Body::new(request);
        let Ok(header) = body.header() else { return Err(Errno::PROTO) };
        let Shared { server, kernel_pages, .. } = &*self.shared;
        if let Some(pages) = requests::needs_writeback(server, &header, request) {
            let waiting = Waiting::Request(pages, request.to_vec());
            if requests::is_shutdown(&header, request) {
                Worker::alone(&self.shared, waiting);
            } else {
                kernel_pages.put(waiting);
            }
            return Ok(());
        }
        self.answer_now(request, &header, body, out)
    }

    /// Answers the requests for which the kernel must first hand over its dirty pages of a file, until the session
    /// ends.
    fn answer_after_writeback(&self) {
        while let Some(waiting) = self.shared.kernel_pages.take() {
            if !self.shared.kernel_pages.has_taker()
                && let Err(e) = Worker::wait_for_pages(&self.shared)
            {
                tracing::warn!("no further thread for the kernel's pages: {e}");
            }
            self.answer_one_after_writeback(waiting);
        }
    }

    /// The same for one, on a thread of its own if the host gives us one: a shutdown waits for no other request.
    fn alone(shared: &Arc<Shared>, waiting: Waiting) {
        let worker = Worker { shared: shared.clone() };
        let (hand, handed) = mpsc::sync_channel(1);
        let answers = move || handed.into_iter().for_each(|waiting| worker.answer_one_after_writeback(waiting));
        match thread::Builder::new().name("quire-shutdown".to_owned()).spawn(answers) {
            Ok(_) => hand.send(waiting).expect("the thread waits for it"),
            Err(e) => {
                tracing::warn!("no thread for a shutdown: {e}");
                shared.kernel_pages.put(waiting);
            }
        }
    }

    fn answer_one_after_writeback(&self, waiting: Waiting) {
        let Shared { server, .. } = &*self.shared;
        let (pages, request) = match waiting {
            Waiting::Request(pages, request) => (pages, request),
            Waiting::Reply(ino, header, error) => {
                self.shared.drop_pages(vec![ino]);
                // `fuse_ioctl_out`: result 0, nothing to retry.
                self.shared.reply_with(&header, error.map_or(Ok(Answer::Spoils(ino)), Err), &[0; 16]).ok();
                return;
            }
            Waiting::Refused(ino) => return self.shared.drop_pages(vec![ino]),
        };
        let (mut body, mut reply) = (Body::new(&request), [0; SHORT_REPLY]);
        let Ok(header) = body.header() else { return };
        self.shared.drop_pages(match pages {
            Pages::File(ino) => vec![ino],
            Pages::AllIfClean
                if server.volume.status().phase != Phase::Frozen && ioctl::shuts_down_clean(&header, &request) =>
            {
                server.writers.files()
            }
            Pages::Writers if server.volume.status().phase != Phase::Frozen => server.writers.files(),
            Pages::Writers | Pages::AllIfClean | Pages::Nothing => Vec::new(),
        });
        if let Err(e) = self.answer_now(&request, &header, body, &mut Out::new(&mut reply)) {
            tracing::debug!("operation {} after writeback: {e}", header.opcode);
        }
        self.shared.answer_thawed();
    }

    /// Tries changes again that found no space, until the session ends.
    fn answer_when_space_is_free(&self) {
        let mut reply = vec![0; SHORT_REPLY];
        while let Some(change) = self.shared.space.take() {
            if let Err(e) = self.answer_again(&change, &mut Out::new(&mut reply)) {
                tracing::debug!("after a wait for space: {e}");
            }
        }
    }

    fn answer_now(&self, request: &[u8], header: &Header, body: Body<'_>, out: &mut Out<'_>) -> Result<(), Errno> {
        out.clear();
        self.admit(Request { whole: request, header, body, waited: None }, out)
    }

    /// Answers a request unless the volume is frozen or the mount read-only.
    fn admit(&self, request: Request<'_>, out: &mut Out<'_>) -> Result<(), Errno> {
        let Shared { server, .. } = &*self.shared;
        let Request { whole, header, waited, .. } = &request;
        let admission = requests::admit(server, header, whole);
        if waited.is_some() && !matches!(admission, Admission::Now(_)) {
            server.meter.withdraw(header);
        }
        match admission {
            Admission::Now(admitted) => {
                let measured = match waited {
                    None => server.meter.begin(header),
                    Some(kept) => server.meter.resume(header, kept.suspended, kept.reason),
                };
                self.carry_out(request, measured, admitted, out)
            }
            Admission::AfterThaw => Ok(()),
            Admission::ReadOnly => self.shared.reply(header, Err(Fail::of(Errno::ROFS)), out),
        }
    }

    /// Carries out a request that is admitted, and replies, unless it is suspended.
    fn carry_out(
        &self,
        request: Request<'_>,
        measured: Measured,
        admitted: Option<Admitted<'_>>,
        out: &mut Out<'_>,
    ) -> Result<(), Errno> {
        let server = &self.shared.server;
        let Request { whole, header, body, waited } = request;
        let (refusals, misses) = waited.map_or((0, 0), |kept| (kept.refusals, kept.misses));
        let answer = requests::answer(server, &Header { waits: misses >= MAX_MISSES, ..*header }, body, out);
        let waits = space::is_tried_again(refusals) && server.may_get_space(header, &answer);
        drop(admitted);
        if waits {
            let suspended = server.meter.suspend(measured);
            let (request, reason) = (whole.to_vec(), WaitFor::FreeSpace);
            self.shared.space.put(Kept { request, suspended, reason, refusals: refusals + 1, misses });
            return Ok(());
        }
        match answer {
            Err(Fail::Missing(blocks)) => {
                let suspended = server.meter.suspend(measured);
                let kept =
                    Kept { request: whole.to_vec(), suspended, reason: WaitFor::Read, refusals, misses: misses + 1 };
                answer_when_loaded(&self.shared, kept, &blocks);
                Ok(())
            }
            Ok(Answer::WhenDurable(durable)) => {
                let suspended = server.meter.suspend(measured);
                suspend(&self.shared, *header, suspended, durable, out.body().to_vec());
                Ok(())
            }
            Ok(Answer::OnDevice(read)) => {
                suspend_read(&self.shared, *header, server.meter.suspend(measured), read);
                Ok(())
            }
            answer => {
                let replied = self.shared.reply(header, answer, out);
                server.meter.end(header, measured);
                replied
            }
        }
    }
}

/// A request that is carried out.
struct Request<'a> {
    /// As the kernel sent it.
    whole: &'a [u8],
    header: &'a Header,
    body: Body<'a>,
    /// It is answered again, after it has waited.
    waited: Option<&'a Kept>,
}

#[cfg(test)]
mod tests;
