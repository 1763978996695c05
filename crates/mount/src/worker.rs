//! A worker: a thread that takes requests and answers them; and the threads beside them, which answer what waits for
//! the kernel's pages ([`crate::kernel_pages`]) or for space ([`crate::space`]).
//!
//! Which worker reads the next request is decided in [`crate::workers`]; replies are in [`crate::replies`].

use crate::again::{Due, Kept};
use crate::fail::Fail;
use crate::kernel_pages::{Pages, Waiting};
use crate::meter::Measured;
use crate::ops::ioctl;
use crate::policy::{MAX_MISSES, PAGE_THREADS};
use crate::replies::{Shared, answer_when_loaded, suspend, suspend_read};
use crate::requests;
use crate::server::{Admission, Answer};
use crate::space;
use crate::transport::{Entry, Found, Next, RequestBuffer, Rings, Transport};
use crate::wire::{Body, Header, Out};
use crate::workers::{AGAIN_QUEUE, DEV_QUEUE, FIRST_RING, QueueIndex};
use quire_device::WaitFor;
use quire_device::sync::atomic::Ordering;
use quire_device::sync::{Arc, lock, thread, when_blocking};
use quire_fs::{Admitted, Phase};
use rustix::io::Errno;
use std::sync::mpsc;

/// Bytes of the replies to requests without data.
const SHORT_REPLY: usize = 4 << 10;

/// What a thread of the session works with.
pub(crate) struct Worker {
    pub(crate) shared: Arc<Shared>,
}

impl Worker {
    /// Starts a worker that has begun. Its memory is asked for here, so that a worker which has none never starts.
    pub(crate) fn spawn(shared: Arc<Shared>) -> std::io::Result<()> {
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
        self.shared.syncs.end();
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
            let request = request.to_vec();
            match pages {
                Pages::AllIfClean => Worker::alone(&self.shared, Waiting::Request(pages, request)),
                Pages::Writers => self.sync_apart(request),
                Pages::File(_) | Pages::Nothing => kernel_pages.put(Waiting::Request(pages, request)),
            }
            return Ok(());
        }
        self.answer_now(request, &header, body, out)
    }

    /// Tries changes again that found no space, until the session ends.
    pub(crate) fn answer_when_space_is_free(&self) {
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

    /// Starts a thread for requests that wait for the kernel's pages, unless there are enough.
    pub(crate) fn wait_for_pages(shared: &Arc<Shared>) -> std::io::Result<()> {
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

    /// Answers a SYNCFS on the thread that is there for them: anybody may send them, so that none of those that look
    /// at single files waits for one.
    fn sync_apart(&self, request: Vec<u8>) {
        let shared = &self.shared;
        if !shared.has_sync_thread.swap(true, Ordering::SeqCst) {
            let worker = Worker { shared: shared.clone() };
            let started = thread::Builder::new().name("quire-syncs".to_owned()).spawn(move || worker.answer_syncs());
            if let Err(e) = started {
                tracing::warn!("no thread for syncfs: {e}");
                shared.has_sync_thread.store(false, Ordering::SeqCst);
                return shared.kernel_pages.put(Waiting::Request(Pages::Writers, request));
            }
        }
        shared.syncs.put(request);
    }

    /// Answers SYNCFS requests until the session ends: after the kernel has handed over its pages once, all that had
    /// come before.
    fn answer_syncs(&self) {
        let Shared { server, syncs, .. } = &*self.shared;
        while let Some(first) = syncs.take() {
            let others = std::iter::from_fn(|| syncs.take_now());
            let requests: Vec<_> = std::iter::once(first).chain(others).collect();
            if server.volume.status().phase == Phase::Running {
                self.shared.hand_over();
            }
            requests.iter().for_each(|request| self.answer_kept(request));
        }
    }

    /// Answers a shutdown, which waits for no other request, on a thread of its own if the host gives us one.
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
        let is_clean = || Body::new(&request).header().is_ok_and(|h| ioctl::shuts_down_clean(&h, &request));
        let phase = server.volume.status().phase;
        match pages {
            Pages::File(ino) => self.shared.drop_pages(vec![ino]),
            Pages::AllIfClean if phase != Phase::Frozen && is_clean() => self.shared.hand_over(),
            Pages::Writers if phase == Phase::Running => self.shared.hand_over(),
            Pages::Writers | Pages::AllIfClean | Pages::Nothing => {}
        }
        self.answer_kept(&request);
    }

    /// Answers a request that was kept, on a thread that is no worker.
    fn answer_kept(&self, request: &[u8]) {
        let (mut body, mut reply) = (Body::new(request), [0; SHORT_REPLY]);
        let Ok(header) = body.header() else { return };
        if let Err(e) = self.answer_now(request, &header, body, &mut Out::new(&mut reply)) {
            tracing::debug!("operation {} after writeback: {e}", header.opcode);
        }
        self.shared.answer_thawed();
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
