//! Many transfers in flight: an io_uring shared by all threads.
//!
//! Guarantees: a flight's buffers belong to the ring's table from [`Ring::launch`] until every one of its transfers has
//! been reaped; dropping the ring waits for those that are in flight (M5). Whoever waits does the reaping: one thread
//! at a time sleeps in the kernel, the others sleep on it. Short and failed transfers are not repaired here; the caller
//! sees each result.
//!
//! ```text
//! launch ──> backlog ──> submission queue ──kernel──> completion queue ──reap──> results ──> land
//!                        (at most IN_FLIGHT in flight)
//! ```

use crate::policy::IN_FLIGHT;
use crate::segment::{Payload, Segment};
use crate::sync::{Condvar, Mutex, before_blocking, lock, wait};
use io_uring::{IoUring, opcode, squeue, types};
use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// Bits of a completion's tag that number the segment; the others number the flight.
const INDEX_BITS: u32 = 20;
/// Segments that one flight can have.
pub(crate) const MAX_SEGMENTS: usize = 1 << INDEX_BITS;

pub(crate) struct Ring {
    ring: IoUring,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    flights: HashMap<u64, Flight>,
    /// Segments that wait for room, by flight and index.
    backlog: VecDeque<(u64, usize)>,
    in_flight: usize,
    /// A thread sleeps in the kernel for completions. Only it may take them.
    reaping: bool,
}

struct Flight {
    fd: types::Fd,
    /// Byte offset of the device within the file.
    base: u64,
    segments: Vec<Segment>,
    /// Addresses of the buffers of each segment. They are on the heap and are not touched while in flight.
    vectors: Vec<Vec<libc::iovec>>,
    results: Vec<i32>,
    left: usize,
}

// SAFETY: the raw pointers in `vectors` point into buffers that `segments` of the same flight owns (exclusively for
// reads, by a share of an `Arc` for writes); they are only handed to the kernel, never followed here.
unsafe impl Send for Flight {}

impl Ring {
    /// None if the host does not let us have one.
    pub(crate) fn new() -> Option<Ring> {
        let entries = u32::try_from(IN_FLIGHT).expect("a small constant");
        match IoUring::new(entries) {
            Ok(ring) => Some(Ring { ring, state: Mutex::default(), changed: Condvar::new() }),
            Err(e) => {
                tracing::debug!(error = %e, "no io_uring; batches run one call after the other");
                None
            }
        }
    }

    /// Starts the segments of flight `id` on the file `fd`, which must stay open until the flight has landed (or
    /// this ring is dropped).
    pub(crate) fn launch(&self, id: u64, fd: BorrowedFd<'_>, base: u64, mut segments: Vec<Segment>) {
        assert!(segments.len() < MAX_SEGMENTS, "a flight of too many segments");
        let vectors = segments.iter_mut().map(vector).collect();
        let (results, left) = (vec![0; segments.len()], segments.len());
        let fd = types::Fd(fd.as_raw_fd());
        let mut s = lock(&self.state);
        s.backlog.extend((0..left).map(|i| (id, i)));
        s.flights.insert(id, Flight { fd, base, segments, vectors, results, left });
        self.pump(&mut s);
    }

    /// Waits for flight `id` and returns its segments, each with the kernel's result (bytes or minus errno).
    pub(crate) fn land(&self, id: u64) -> Vec<(Segment, i32)> {
        let mut s = lock(&self.state);
        loop {
            if !s.reaping {
                self.reap(&mut s);
                self.pump(&mut s);
            }
            if s.flights[&id].left == 0 {
                let flight = s.flights.remove(&id).expect("looked at above");
                return flight.segments.into_iter().zip(flight.results).collect();
            }
            if s.reaping {
                s = wait(&self.changed, s);
                continue;
            }
            s.reaping = true;
            drop(s);
            before_blocking();
            wait_for_completion(&self.ring);
            s = lock(&self.state);
            s.reaping = false;
            self.reap(&mut s);
            self.pump(&mut s);
            self.changed.notify_all();
        }
    }

    /// Hands waiting segments to the kernel, as many as may be in flight.
    fn pump(&self, s: &mut State) {
        if s.backlog.is_empty() || s.in_flight >= IN_FLIGHT {
            return;
        }
        {
            // SAFETY: `state` is locked, and submission queues are made nowhere else: this is the only one.
            let mut queue = unsafe { self.ring.submission_shared() };
            while s.in_flight < IN_FLIGHT {
                let Some((id, index)) = s.backlog.pop_front() else { break };
                let entry = s.flights[&id].entry(index).user_data((id << INDEX_BITS) | index as u64);
                // SAFETY: the buffers, their vector and the file live until the completion was reaped: they are owned
                // by the flight in `state.flights`, which `land` removes only then and `drop` waits for.
                let pushed = unsafe { queue.push(&entry) };
                assert!(pushed.is_ok(), "the queue has IN_FLIGHT entries and fewer are in flight");
                s.in_flight += 1;
            }
        }
        // What the kernel does not take now is offered again by whoever waits.
        let _ = self.ring.submit();
    }

    /// Takes what has completed. Called under the lock by the only thread that may.
    fn reap(&self, s: &mut State) {
        // SAFETY: `state` is locked, and completion queues are made nowhere else: this is the only one.
        let queue = unsafe { self.ring.completion_shared() };
        for done in queue {
            let tag = done.user_data();
            let index = usize::try_from(tag % (1 << INDEX_BITS)).expect("20 bits");
            let flight = s.flights.get_mut(&(tag >> INDEX_BITS)).expect("a flight stays until it has landed");
            flight.results[index] = done.result();
            flight.left -= 1;
            s.in_flight -= 1;
        }
    }
}

impl Drop for Ring {
    /// The kernel may still write into the buffers of flights that nobody waited for.
    fn drop(&mut self) {
        let mut s = lock(&self.state);
        s.backlog.clear();
        loop {
            self.reap(&mut s);
            if s.in_flight == 0 {
                return;
            }
            wait_for_completion(&self.ring);
        }
    }
}

impl Flight {
    /// The kernel's order for one segment.
    fn entry(&self, index: usize) -> squeue::Entry {
        let (segment, vector) = (&self.segments[index], &self.vectors[index]);
        let count = u32::try_from(vector.len()).expect("at most IOV_MAX");
        let at = self.base + segment.at;
        match &segment.payload {
            Payload::Read(_) => opcode::Readv::new(self.fd, vector.as_ptr(), count).offset(at).build(),
            Payload::Write { fua, .. } => {
                let flags = if *fua { libc::RWF_DSYNC } else { 0 };
                opcode::Writev::new(self.fd, vector.as_ptr(), count).offset(at).rw_flags(flags).build()
            }
        }
    }
}

/// Sleeps until something has completed, or the kernel wants to be asked again.
pub(crate) fn wait_for_completion(ring: &IoUring) {
    match ring.submit_and_wait(1) {
        Ok(_) => {}
        Err(e) => match e.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::EAGAIN | libc::EBUSY | libc::ENOMEM) => std::thread::sleep(Duration::from_millis(1)),
            _ => panic!("io_uring_enter refused our own ring: {e}"),
        },
    }
}

/// Where a segment's buffers lie.
fn vector(segment: &mut Segment) -> Vec<libc::iovec> {
    match &mut segment.payload {
        Payload::Read(pieces) => {
            pieces.iter_mut().map(|(_, b)| libc::iovec { iov_base: b.as_mut_ptr().cast(), iov_len: b.len() }).collect()
        }
        Payload::Write { pieces, .. } => {
            pieces.iter().map(|b| libc::iovec { iov_base: b.as_ptr().cast_mut().cast(), iov_len: b.len() }).collect()
        }
    }
}
