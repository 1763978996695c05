//! The flush gate: who shares a flush, who needs his own, and what a failed one means.

use quire_device::{
    BlockDevice, Buf, Counted, DeviceError, DeviceInfo, Done, ErrorKind, FlushGate, Io, IoOp, Region, Ticket,
};
use quire_testkit::{Fault, FaultKind, Faulty, MemDevice};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

/// A device whose flushes wait until they are let go.
struct Held {
    inner: MemDevice,
    /// Flushes that have started, and that may return.
    state: Mutex<(u64, u64)>,
    changed: Condvar,
}

impl Held {
    fn new() -> Held {
        Held { inner: MemDevice::new(vec![0; 4096]), state: Mutex::new((0, 0)), changed: Condvar::new() }
    }

    fn started(&self) -> u64 {
        self.state.lock().unwrap().0
    }

    fn wait_started(&self, n: u64) {
        let state = self.state.lock().unwrap();
        let timeout = Duration::from_secs(20);
        let late = self.changed.wait_timeout_while(state, timeout, |s| s.0 < n).unwrap().1;
        assert!(!late.timed_out(), "flush {n} never started");
    }

    fn let_go(&self, n: u64) {
        self.state.lock().unwrap().1 = n;
        self.changed.notify_all();
    }
}

impl BlockDevice for Held {
    fn info(&self) -> DeviceInfo {
        self.inner.info()
    }

    fn submit(&self, batch: Vec<Io>) -> Ticket {
        if batch.iter().any(|io| matches!(io, Io::Flush)) {
            let mut state = self.state.lock().unwrap();
            state.0 += 1;
            self.changed.notify_all();
            let mine = state.0;
            drop(self.changed.wait_while(state, |s| s.1 < mine).unwrap());
        }
        self.inner.submit(batch)
    }

    fn wait(&self, ticket: Ticket) -> Result<Done, DeviceError> {
        self.inner.wait(ticket)
    }
}

/// M1.
#[test]
fn all_who_come_during_a_flush_share_the_next_one() {
    let dev = Arc::new(Held::new());
    let gate = Arc::new(FlushGate::new(dev.clone()));
    let before = gate.stamp();
    let first = thread::spawn({
        let gate = Arc::clone(&gate);
        move || gate.ensure(before)
    });
    dev.wait_started(1);
    // Stamped while flush 1 runs: it may have started too early for them.
    let stamps: Vec<_> = (0..10).map(|_| gate.stamp()).collect();
    let others: Vec<_> = stamps
        .iter()
        .map(|&stamp| {
            let gate = Arc::clone(&gate);
            thread::spawn(move || gate.ensure(stamp))
        })
        .collect();
    dev.let_go(1);
    first.join().unwrap().unwrap();
    assert!(gate.is_durable(before) && !gate.is_durable(stamps[0]));
    dev.let_go(u64::MAX);
    others.into_iter().for_each(|t| t.join().unwrap().unwrap());
    assert!(gate.is_durable(stamps[9]));
    assert_eq!(dev.started(), 2);
}

#[test]
fn what_is_durable_costs_no_flush() {
    let dev = Arc::new(Counted::new(MemDevice::new(vec![0; 4096])));
    let gate = FlushGate::new(dev.clone());
    dev.write(0, Arc::new(Buf::zeroed(512)), Region::Data).unwrap();
    let stamp = gate.stamp();
    for _ in 0..5 {
        gate.ensure(stamp).unwrap();
    }
    assert_eq!(dev.snapshot().flushes.count, 1);
    gate.flush().unwrap();
    assert_eq!(dev.snapshot().flushes.count, 2);
}

/// M2.
#[test]
fn a_failed_flush_fails_for_ever_but_not_what_was_durable() {
    let dev = Arc::new(Faulty::new(Counted::new(MemDevice::new(vec![0; 4096]))));
    let gate = FlushGate::new(dev.clone());
    let durable = gate.stamp();
    gate.ensure(durable).unwrap();
    let lost = gate.stamp();
    dev.inject(Fault::once(IoOp::Flush, FaultKind::Error(ErrorKind::Io)));
    assert_eq!(gate.ensure(lost).unwrap_err().kind, ErrorKind::Io);
    // The device works again, but nobody knows what it has dropped.
    assert_eq!(gate.ensure(lost).unwrap_err().op, IoOp::Flush);
    assert!(gate.flush().is_err() && gate.ensure(gate.stamp()).is_err());
    gate.ensure(durable).unwrap();
    assert_eq!(dev.inner().snapshot().flushes.count, 1);
}

#[test]
fn a_failed_flush_fails_all_who_wait_for_it() {
    let held = Arc::new(Held::new());
    let dev = Arc::new(Faulty::new(held.clone()));
    dev.inject(Fault::once(IoOp::Flush, FaultKind::Error(ErrorKind::Io)).after(1));
    let gate = Arc::new(FlushGate::new(dev));
    let ensure = |stamp| {
        let gate = Arc::clone(&gate);
        thread::spawn(move || gate.ensure(stamp))
    };
    let first = ensure(gate.stamp());
    held.wait_started(1);
    let others: Vec<_> = (0..5).map(|_| ensure(gate.stamp())).collect();
    held.let_go(u64::MAX);
    first.join().unwrap().unwrap();
    assert!(others.into_iter().all(|t| t.join().unwrap().is_err()));
}
