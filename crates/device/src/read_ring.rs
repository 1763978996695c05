//! Reads for callers that do not wait: an io_uring of their own, and a thread that ends them.
//!
//! ```text
//! start ──> backlog ──> submission queue ──kernel──> completion queue ──thread──> then(bytes)
//!                       (at most IN_FLIGHT in flight)
//! ```
//! *Guarantees*: `then` of each read is called once, on the thread, also when the ring is dropped meanwhile; a read's
//! buffer and the host's file stay until the kernel is done with them (M5). What the kernel reads in part or not at all
//! is read again by a call on the thread, which tells the error.

use crate::buf::Buf;
use crate::host::Host;
use crate::io::{DeviceError, ReadDone};
use crate::policy::IN_FLIGHT;
use crate::sync::{Arc, Mutex, lock, thread};
use crate::uring::wait_for_completion;
use io_uring::{IoUring, opcode, squeue, types};
use std::collections::{HashMap, VecDeque};
use std::os::fd::AsRawFd;

/// The completion that wakes the thread when the ring is dropped; no read has this number.
const WAKE: u64 = u64::MAX;

/// Dropped, it waits for the reads that were started, unless the last of them drops it.
pub(crate) struct ReadRing {
    shared: Arc<Shared>,
    thread: Option<thread::JoinHandle<()>>,
}

struct Shared {
    ring: IoUring,
    host: Arc<Host>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By number.
    reads: HashMap<u64, Read>,
    next: u64,
    /// Reads that wait for room.
    backlog: VecDeque<u64>,
    in_flight: usize,
    over: bool,
}

struct Read {
    /// Byte offset on the device.
    at: u64,
    buf: Buf,
    then: ReadDone,
}

impl ReadRing {
    /// None if the host does not let us have one.
    pub(crate) fn new(host: Arc<Host>) -> Option<ReadRing> {
        // One more, for the wake-up.
        let ring = IoUring::new(u32::try_from(2 * IN_FLIGHT).expect("a small constant"));
        let ring =
            ring.inspect_err(|e| tracing::debug!(error = %e, "no io_uring; callers wait for their reads")).ok()?;
        let shared = Arc::new(Shared { ring, host, state: Mutex::default() });
        let ends = shared.clone();
        let thread = thread::Builder::new().name("quire-reads".to_owned()).spawn(move || ends.end_reads());
        let thread = thread.inspect_err(|e| tracing::debug!(error = %e, "callers wait for their reads")).ok()?;
        Some(ReadRing { shared, thread: Some(thread) })
    }

    /// Starts to fill `buf`, whole sectors, from `at`, which lies inside the device.
    pub(crate) fn start(&self, at: u64, buf: Buf, then: ReadDone) {
        let mut s = lock(&self.shared.state);
        let number = s.next;
        s.next += 1;
        s.reads.insert(number, Read { at, buf, then });
        s.backlog.push_back(number);
        self.shared.pump(&mut s);
    }
}

impl Drop for ReadRing {
    fn drop(&mut self) {
        let mut s = lock(&self.shared.state);
        s.over = true;
        // A thread that ends reads looks by itself.
        if s.in_flight == 0 {
            // SAFETY: the state is locked; a no-op refers to no memory.
            let pushed =
                unsafe { self.shared.ring.submission_shared().push(&opcode::Nop::new().build().user_data(WAKE)) };
            assert!(pushed.is_ok(), "the queue has room for more than IN_FLIGHT");
            let _ = self.shared.ring.submit();
        }
        drop(s);
        let thread = self.thread.take().expect("dropped once");
        if thread.thread().id() != thread::current().id() {
            thread.join().expect("the thread that ends reads does not panic");
        }
    }
}

impl Shared {
    /// Hands waiting reads to the kernel, as many as may be in flight.
    fn pump(&self, s: &mut State) {
        if s.backlog.is_empty() || s.in_flight >= IN_FLIGHT {
            return;
        }
        {
            // SAFETY: the state is locked, and submission queues are made nowhere else: this is the only one.
            let mut queue = unsafe { self.ring.submission_shared() };
            while s.in_flight < IN_FLIGHT {
                let Some(number) = s.backlog.pop_front() else { break };
                let read = s.reads.get_mut(&number).expect("it stays until it has ended");
                let len = u32::try_from(read.buf.len()).expect("a read is small");
                let (fd, at) = (types::Fd(self.host.fd.as_raw_fd()), self.host.base + read.at);
                let entry = opcode::Read::new(fd, read.buf.as_mut_ptr(), len).offset(at).build().user_data(number);
                // The kernel's own threads wait, not the caller.
                let entry = if self.host.begins_late { entry.flags(squeue::Flags::ASYNC) } else { entry };
                // SAFETY: the buffer lies on the heap, and `reads` owns it until the completion was taken; the host's
                // file is open as long as `self`, which the thread shares until nothing is in flight.
                let pushed = unsafe { queue.push(&entry) };
                assert!(pushed.is_ok(), "the queue has room for more than IN_FLIGHT");
                s.in_flight += 1;
            }
        }
        // What the kernel does not take now, the thread offers again.
        let _ = self.ring.submit();
    }

    /// The thread: ends reads until the ring is dropped and none is left.
    fn end_reads(&self) {
        loop {
            wait_for_completion(&self.ring);
            let mut s = lock(&self.state);
            let ended = self.take_completed(&mut s);
            self.pump(&mut s);
            let over = s.over && s.in_flight == 0;
            drop(s);
            ended.into_iter().for_each(|(read, result)| self.end(read, result));
            if over {
                return;
            }
        }
    }

    /// Takes what has completed, each with the kernel's result (bytes or minus errno).
    fn take_completed(&self, s: &mut State) -> Vec<(Read, i32)> {
        // SAFETY: the state is locked, and completion queues are made nowhere else: this is the only one.
        let queue = unsafe { self.ring.completion_shared() };
        let ended = queue.filter(|done| done.user_data() != WAKE);
        let ended: Vec<_> = ended.map(|done| (done.user_data(), done.result())).collect();
        s.in_flight -= ended.len();
        let take = |(number, result)| (s.reads.remove(&number).expect("it ends once"), result);
        ended.into_iter().map(take).collect()
    }

    fn end(&self, mut read: Read, result: i32) {
        let whole = usize::try_from(result).is_ok_and(|bytes| bytes == read.buf.len());
        let outcome: Result<(), DeviceError> =
            if whole { Ok(()) } else { self.host.read_slice(read.at, &mut read.buf) };
        (read.then)(outcome.map(|()| read.buf));
    }
}
