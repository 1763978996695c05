//! Measures requests: how many of each kind, how long each took, what they waited for; and says which were slow.
//!
//! A request's time is from its arrival at a worker to its reply, with what it waits for a commit without a thread. The
//! time that it was kept for a thaw does not count, nor the time in which the kernel drops its pages before the reply.
//!
//! *Guarantees*: no lock; a request costs two looks at the clock and two records.

use crate::wire::Header;
use crate::wire::abi::opcode;
use quire_device::waits::{self, Waited};
use quire_device::{Histogram, Latencies, WaitFor};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

thread_local! {
    /// The request that the calling worker answers, by its number.
    static ANSWERS: Cell<u64> = const { Cell::new(0) };
}

/// What was measured of a mount's requests.
pub(crate) struct Meter {
    /// Requests that were begun, by operation code; the last counts what has none of ours.
    begun: [AtomicU64; opcode::COUNT],
    took: [Histogram; opcode::COUNT],
    waited_nanos: [AtomicU64; WaitFor::ALL.len()],
    slow: AtomicU64,
    /// Requests that take so long are logged.
    limit: Option<Duration>,
}

/// A request that is measured.
#[derive(Clone, Copy)]
pub(crate) struct Measured {
    begun: Instant,
    /// What the thread had waited for when it took the request.
    waited: Waited,
    /// What the request waited for before, while no thread had it or another.
    before: Waited,
}

/// A request that goes on without a thread.
#[derive(Clone, Copy)]
pub(crate) struct Suspended {
    measured: Measured,
    since: Instant,
    /// What it had waited for before.
    waited: Waited,
}

fn kind_of(op: u32) -> usize {
    usize::try_from(op).unwrap_or(usize::MAX).min(opcode::COUNT - 1)
}

impl Meter {
    pub(crate) fn new(limit: Option<Duration>) -> Self {
        Meter {
            begun: [const { AtomicU64::new(0) }; opcode::COUNT],
            took: std::array::from_fn(|_| Histogram::default()),
            waited_nanos: Default::default(),
            slow: AtomicU64::new(0),
            limit,
        }
    }

    /// A worker begins to answer a request.
    pub(crate) fn begin(&self, h: &Header) -> Measured {
        self.begun[kind_of(h.opcode)].fetch_add(1, Ordering::Relaxed);
        ANSWERS.set(h.unique);
        Measured { begun: Instant::now(), waited: waits::so_far(), before: Waited::default() }
    }

    /// A thread goes on with a request that was suspended to wait for space, or for metadata.
    pub(crate) fn resume(&self, h: &Header, s: Suspended, reason: WaitFor) -> Measured {
        ANSWERS.set(h.unique);
        let mut before = s.waited;
        before.add(reason, s.since.elapsed());
        Measured { begun: s.measured.begun, waited: waits::so_far(), before }
    }

    /// The request that was begun is kept or refused unanswered: it does not count.
    pub(crate) fn withdraw(&self, h: &Header) {
        self.begun[kind_of(h.opcode)].fetch_sub(1, Ordering::Relaxed);
    }

    /// The request is answered by the worker that began it.
    pub(crate) fn end(&self, h: &Header, m: Measured) {
        self.record(h, m, waits::so_far().since(&m.waited).plus(&m.before));
    }

    /// The worker leaves the request to whoever makes files durable, which may be itself, or to the thread that tries
    /// it again.
    pub(crate) fn suspend(&self, measured: Measured) -> Suspended {
        Suspended {
            measured,
            since: Instant::now(),
            waited: waits::so_far().since(&measured.waited).plus(&measured.before),
        }
    }

    /// The request is answered, by whoever made it durable or read its bytes. It waited for that.
    pub(crate) fn end_suspended(&self, h: &Header, s: Suspended, reason: WaitFor) {
        if ANSWERS.get() == h.unique {
            return self.end(h, s.measured);
        }
        let mut waited = s.waited;
        waited.add(reason, s.since.elapsed());
        self.record(h, s.measured, waited);
    }

    fn record(&self, h: &Header, m: Measured, waited: Waited) {
        let took = m.begun.elapsed();
        self.took[kind_of(h.opcode)].record(took);
        if !waited.is_none() {
            for (sum, reason) in self.waited_nanos.iter().zip(WaitFor::ALL) {
                let nanos = u64::try_from(waited.of(reason).as_nanos()).unwrap_or(u64::MAX);
                sum.fetch_add(nanos, Ordering::Relaxed);
            }
        }
        if self.limit.is_some_and(|limit| took >= limit) {
            self.slow.fetch_add(1, Ordering::Relaxed);
            let kind = opcode::name(kind_of(h.opcode));
            tracing::warn!("slow: {kind} of inode {} by process {} {}", h.node, h.pid, story(took, &waited));
        }
    }

    /// Requests of each kind that were begun.
    pub(crate) fn begun(&self) -> BTreeMap<String, u64> {
        let mut all = BTreeMap::new();
        for (op, n) in self.begun.iter().enumerate() {
            let n = n.load(Ordering::Relaxed);
            if n > 0 {
                *all.entry(opcode::name(op).to_owned()).or_default() += n;
            }
        }
        all
    }

    /// How long those of each kind took that are over; kinds of one name together.
    pub(crate) fn took(&self) -> Vec<(&'static str, Latencies)> {
        let all = self.took.iter().enumerate().map(|(op, took)| (opcode::name(op), took.snapshot()));
        all.filter(|(_, took)| took.count() > 0).collect()
    }

    /// Requests that are being answered now, suspended ones included.
    pub(crate) fn under_way(&self) -> u64 {
        let over: u64 = self.took.iter().map(Histogram::count).sum();
        let begun: u64 = self.begun.iter().map(|n| n.load(Ordering::Relaxed)).sum();
        begun.saturating_sub(over)
    }

    /// What requests that are over have waited for.
    pub(crate) fn waited(&self) -> impl Iterator<Item = (&'static str, Duration)> {
        let nanos = self.waited_nanos.iter().map(|n| Duration::from_nanos(n.load(Ordering::Relaxed)));
        WaitFor::ALL.into_iter().map(WaitFor::name).zip(nanos)
    }

    /// Requests that took longer than the limit.
    pub(crate) fn slow(&self) -> u64 {
        self.slow.load(Ordering::Relaxed)
    }
}

/// How long it took, and what it waited for, longest first.
fn story(took: Duration, waited: &Waited) -> String {
    let millis = |d: Duration| d.as_secs_f64() * 1000.0;
    let mut reasons: Vec<_> = WaitFor::ALL.into_iter().map(|r| (waited.of(r), r.name())).collect();
    reasons.retain(|(d, _)| *d >= Duration::from_micros(100));
    reasons.sort_unstable_by(|a, b| b.cmp(a));
    let mut text = format!("took {:.1} ms", millis(took));
    for (n, (d, name)) in reasons.iter().enumerate() {
        let separator = if n == 0 { ": waited for " } else { ", " };
        write!(text, "{separator}{name} {:.1} ms", millis(*d)).expect("a string");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(opcode: u32, unique: u64) -> Header {
        Header { opcode, unique, node: 12, uid: 0, gid: 0, pid: 7, waits: false }
    }

    #[test]
    fn a_request_that_another_thread_answers_has_waited_for_a_commit() {
        let meter = Meter::new(None);
        let fsync = header(opcode::FSYNC, 2);
        let suspended = meter.suspend(meter.begin(&fsync));
        assert_eq!(meter.under_way(), 1);
        std::thread::scope(|s| {
            s.spawn(|| {
                std::thread::sleep(Duration::from_millis(2));
                meter.end_suspended(&fsync, suspended, WaitFor::Commit);
            });
        });
        let commit = meter.waited().find(|(name, _)| *name == "commit").unwrap().1;
        assert!(commit >= Duration::from_millis(2), "{commit:?}");
        assert_eq!(meter.under_way(), 0);
        let took = meter.took();
        assert!(took.len() == 1 && took[0].0 == "fsync" && took[0].1.max() >= commit, "{took:?}");
    }

    #[test]
    fn a_request_that_its_own_worker_makes_durable_has_not_waited_for_a_commit() {
        let meter = Meter::new(Some(Duration::from_millis(1)));
        let fsync = header(opcode::FSYNC, 3);
        let suspended = meter.suspend(meter.begin(&fsync));
        waits::waiting(WaitFor::Flush, || std::thread::sleep(Duration::from_millis(2)));
        meter.end_suspended(&fsync, suspended, WaitFor::Commit);
        let of = |name| meter.waited().find(|(n, _)| *n == name).unwrap().1;
        assert!(of("flush") >= Duration::from_millis(2) && of("commit").is_zero());
        assert_eq!(meter.slow(), 1);
    }

    #[test]
    fn a_request_that_was_tried_again_has_waited_for_space() {
        let meter = Meter::new(None);
        let write = header(opcode::WRITE, 4);
        let suspended = meter.suspend(meter.begin(&write));
        std::thread::sleep(Duration::from_millis(2));
        meter.end(&write, meter.resume(&write, suspended, WaitFor::FreeSpace));
        let of = |name| meter.waited().find(|(n, _)| *n == name).unwrap().1;
        assert!(of("free_space") >= Duration::from_millis(2) && of("commit").is_zero());
        assert_eq!((meter.under_way(), meter.took()[0].1.count()), (0, 1));
        meter.begin(&write);
        meter.withdraw(&write);
        assert_eq!(meter.under_way(), 0);
    }

    #[test]
    fn a_slow_request_names_what_it_waited_for_longest_first() {
        let mut waited = Waited::default();
        waited.add(WaitFor::Flush, Duration::from_millis(3));
        waited.add(WaitFor::LogSpace, Duration::from_millis(50));
        waited.add(WaitFor::Lock, Duration::from_micros(3));
        let text = story(Duration::from_millis(54), &waited);
        assert_eq!(text, "took 54.0 ms: waited for log_space 50.0 ms, flush 3.0 ms");
    }
}
