//! Reads for callers that do not wait: a thread with an io_uring of its own starts and ends them.
//!
//! ```text
//! start ──> arrived ──thread──> backlog ──> submission queue ──kernel──> completion queue ──> then(bytes)
//!              └ eventfd: wakes the thread   (at most IN_FLIGHT in flight)
//! ```
//! The thread submits by itself, because the kernel hands a completion to the thread that submitted: were that another,
//! it would be woken first, and this one by it.
//!
//! *Guarantees*: `then` of each read is called once, on the thread, also when the ring is dropped meanwhile; a read's
//! buffer and the host's file stay until the kernel is done with them (M5). What the kernel reads in part, or does not
//! take this way, is read again by a call on the thread.

use crate::host::{Host, device_error};
use crate::io::{IoOp, ReadDone};
use crate::policy::IN_FLIGHT;
use crate::read_buf::ReadBuf;
use crate::sync::{Arc, Mutex, MutexGuard, lock, thread};
use crate::uring::wait_for_completion;
use io_uring::{IoUring, opcode, squeue, types};
use rustix::event::{EventfdFlags, PollFlags};
use rustix::io::Errno;
use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::mpsc;

/// The completion of the wait for the eventfd; no read has this number.
const WAKE: u64 = u64::MAX;

/// Dropped, it waits for the reads that were started, unless the last of them drops it.
pub(crate) struct ReadRing {
    shared: Arc<Shared>,
    thread: Option<thread::JoinHandle<()>>,
}

struct Shared {
    host: Arc<Host>,
    /// Written to when the thread is to look.
    wake: OwnedFd,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Reads that the thread has not seen.
    arrived: Vec<Read>,
    /// The thread is about to sleep, or sleeps, and nobody has woken it.
    sleeps: bool,
    over: bool,
}

struct Read {
    /// Byte offset on the device.
    at: u64,
    buf: ReadBuf,
    then: ReadDone,
}

impl ReadRing {
    /// None if the host does not let us have one.
    pub(crate) fn new(host: Arc<Host>) -> Option<ReadRing> {
        let has_none = |e: &std::io::Error| tracing::debug!(error = %e, "callers wait for their reads");
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let wake = wake.map_err(std::io::Error::from);
        let shared = Arc::new(Shared { host, wake: wake.inspect_err(has_none).ok()?, state: Mutex::default() });
        let (ends, (tell, told)) = (shared.clone(), mpsc::channel());
        let run = move || {
            let ring = new_ring();
            tell.send(ring.as_ref().map(drop).inspect_err(|e| has_none(e)).is_ok()).expect("its maker waits");
            if let Ok(ring) = ring {
                Reads::new(&ends, ring).run();
            }
        };
        let thread = thread::Builder::new().name("quire-reads".to_owned()).spawn(run);
        let thread = thread.inspect_err(has_none).ok()?;
        let begun = told.recv().expect("the thread tells");
        begun.then_some(ReadRing { shared, thread: Some(thread) })
    }

    /// Starts to fill `buf`, whole sectors, from `at`, which lies inside the device.
    pub(crate) fn start(&self, at: u64, buf: ReadBuf, then: ReadDone) {
        let mut s = lock(&self.shared.state);
        s.arrived.push(Read { at, buf, then });
        self.shared.wake(s);
    }
}

impl Drop for ReadRing {
    fn drop(&mut self) {
        let mut s = lock(&self.shared.state);
        s.over = true;
        self.shared.wake(s);
        let thread = self.thread.take().expect("dropped once");
        if thread.thread().id() != thread::current().id() {
            thread.join().expect("the thread that ends reads does not panic");
        }
    }
}

impl Shared {
    /// Wakes the thread if it sleeps.
    fn wake(&self, mut s: MutexGuard<'_, State>) {
        let sleeps = std::mem::take(&mut s.sleeps);
        drop(s);
        if sleeps {
            rustix::io::write(&self.wake, &1_u64.to_ne_bytes()).expect("an eventfd takes a number");
        }
    }
}

/// A ring that one thread uses.
fn new_ring() -> std::io::Result<IoUring> {
    // One more, for the eventfd.
    let entries = u32::try_from(2 * IN_FLIGHT).expect("a small constant");
    let of_one = IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(entries);
    // Linux before 6.1 has none that is made for one thread.
    of_one.or_else(|_| IoUring::new(entries))
}

impl Drop for Reads<'_> {
    /// After a panic the kernel may still have memory, which is left to it.
    fn drop(&mut self) {
        std::mem::forget(std::mem::take(&mut self.in_flight));
    }
}

/// What the thread has.
struct Reads<'s> {
    shared: &'s Shared,
    ring: IoUring,
    backlog: VecDeque<Read>,
    /// By number.
    in_flight: HashMap<u64, Read>,
    next: u64,
    /// The ring waits for the eventfd.
    listens: bool,
}

impl<'s> Reads<'s> {
    fn new(shared: &'s Shared, ring: IoUring) -> Self {
        let (backlog, in_flight) = (VecDeque::new(), HashMap::new());
        Reads { shared, ring, backlog, in_flight, next: 0, listens: false }
    }

    /// Starts and ends reads until the owner is dropped and none is left.
    fn run(mut self) {
        loop {
            let over = self.take_arrived();
            if over && self.backlog.is_empty() && self.in_flight.is_empty() {
                return;
            }
            self.listen();
            self.pump();
            wait_for_completion(&self.ring);
            lock(&self.shared.state).sleeps = false;
            self.end_completed();
        }
    }

    /// Takes what has arrived; who comes from now on wakes the thread. True if the owner is being dropped.
    fn take_arrived(&mut self) -> bool {
        let mut s = lock(&self.shared.state);
        self.backlog.extend(s.arrived.drain(..));
        s.sleeps = true;
        s.over
    }

    fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: what the entry refers to outlives its completion: the buffers lie on the heap or in mappings of their
        // own, in `in_flight`, where nothing touches them meanwhile, and are leaked where no completion came; the
        // kernel holds the files itself.
        let pushed = unsafe { self.ring.submission().push(entry) };
        assert!(pushed.is_ok(), "the queue has room for more than IN_FLIGHT");
    }

    /// Waits for the eventfd, too, unless the ring does already.
    fn listen(&mut self) {
        if !std::mem::replace(&mut self.listens, true) {
            let fd = types::Fd(self.shared.wake.as_raw_fd());
            let readable = u32::from(PollFlags::IN.bits());
            self.push(&opcode::PollAdd::new(fd, readable).build().user_data(WAKE));
        }
    }

    /// Hands waiting reads to the kernel, as many as may be in flight.
    fn pump(&mut self) {
        let host = &self.shared.host;
        while self.in_flight.len() < IN_FLIGHT {
            let Some(mut read) = self.backlog.pop_front() else { break };
            let len = u32::try_from(read.buf.len()).expect("a read is small");
            let (fd, at) = (types::Fd(host.fd.as_raw_fd()), host.base + read.at);
            let entry = opcode::Read::new(fd, read.buf.as_mut_ptr(), len).offset(at).build().user_data(self.next);
            // The kernel's own threads wait, not this one.
            let entry = if host.begins_late { entry.flags(squeue::Flags::ASYNC) } else { entry };
            self.in_flight.insert(self.next, read);
            self.push(&entry);
            self.next += 1;
        }
    }

    /// Ends what has completed, each with the kernel's result (bytes or minus errno).
    fn end_completed(&mut self) {
        let completed: Vec<_> = self.ring.completion().map(|done| (done.user_data(), done.result())).collect();
        for (number, result) in completed {
            if number == WAKE {
                self.listens = false;
                // None is there if nobody has woken us.
                rustix::io::read(&self.shared.wake, &mut [0_u8; 8]).ok();
                continue;
            }
            let read = self.in_flight.remove(&number).expect("it ends once");
            self.end(read, result);
        }
    }

    fn end(&self, mut read: Read, result: i32) {
        // Linux before 5.6 has no such entry, and answers EINVAL.
        let again = [Errno::INTR, Errno::AGAIN, Errno::INVAL, Errno::OPNOTSUPP];
        let outcome = match usize::try_from(result) {
            Ok(bytes) if bytes == read.buf.len() => Ok(()),
            Err(_) if !again.map(|e| -e.raw_os_error()).contains(&result) => {
                let (len, errno) = (read.buf.len() as u64, Errno::from_raw_os_error(-result));
                Err(device_error(IoOp::Read, read.at, len, errno))
            }
            _ => self.shared.host.read_slice(read.at, &mut read.buf),
        };
        (read.then)(outcome.map(|()| read.buf));
    }
}
