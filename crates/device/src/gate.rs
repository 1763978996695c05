//! Flush epochs: what is complete, what is durable, and flushes shared by all who need one.
//!
//! A write that has completed takes a stamp: the number of flushes *started* so far. It is durable when a flush
//! with a higher number has returned. `ensure` waits for such a flush, joins one that is already bound to
//! start, or starts it (M1). A flush that failed once fails every later `ensure`: afterwards it is unknown what the
//! device still holds (M2).
//!
//! ```text
//!   write done, stamp = 3 ──┐             ensure(3): flush 4 returned ─> durable
//!   flush 3 started ────────┼── returned  (may have started before the write completed: does not count)
//!                           └─> flush 4 started ── returned
//! ```

use crate::io::{BlockDevice, DeviceError, Io};
use crate::sync::{Arc, Condvar, Mutex, lock, wait};
use crate::waits::{WaitFor, waiting};

/// When a write completed, in flushes started so far.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Epoch(u64);

/// Shares flushes of one device among all who need durability.
pub struct FlushGate {
    device: Arc<dyn BlockDevice>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Flushes started; the last one's number.
    started: u64,
    /// Number of the last flush that returned without error.
    durable: u64,
    /// A flush is under way; there is one at a time.
    running: bool,
    failed: Option<DeviceError>,
}

impl FlushGate {
    #[must_use]
    pub fn new(device: Arc<dyn BlockDevice>) -> Self {
        FlushGate { device, state: Mutex::new(State::default()), changed: Condvar::new() }
    }

    #[must_use]
    pub fn device(&self) -> &Arc<dyn BlockDevice> {
        &self.device
    }

    /// The stamp for a write that has just completed.
    #[must_use]
    pub fn stamp(&self) -> Epoch {
        Epoch(lock(&self.state).started)
    }

    /// True if what was stamped so is durable already.
    #[must_use]
    pub fn is_durable(&self, e: Epoch) -> bool {
        lock(&self.state).durable > e.0
    }

    /// Makes everything that has completed so far durable.
    ///
    /// # Errors
    /// As [`FlushGate::ensure`].
    pub fn flush(&self) -> Result<(), DeviceError> {
        self.ensure(self.stamp())
    }

    /// Returns when what was stamped `e` is durable; flushes only if no flush that counts has returned.
    ///
    /// # Errors
    /// The flush failed, now or at any time before.
    pub fn ensure(&self, e: Epoch) -> Result<(), DeviceError> {
        let mut s = lock(&self.state);
        loop {
            if s.durable > e.0 {
                return Ok(());
            }
            if let Some(err) = &s.failed {
                return Err(err.clone());
            }
            if !s.running {
                break;
            }
            // If the running flush counts it serves us, else it is our turn after it.
            s = waiting(WaitFor::Flush, || wait(&self.changed, s));
        }
        s.started += 1;
        s.running = true;
        let mine = s.started;
        drop(s);
        let result = self.device.run(vec![Io::Flush]);
        let mut s = lock(&self.state);
        s.running = false;
        match &result {
            Ok(_) => s.durable = mine,
            Err(err) => s.failed = Some(err.clone()),
        }
        self.changed.notify_all();
        result.map(drop)
    }
}
