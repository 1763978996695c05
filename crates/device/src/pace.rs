//! How fast a device is: running estimates from what passes through.
//!
//! Each estimate is the median of the last `SAMPLES` observations, so that a stall now and then, or a burst into a
//! cache, does not move it. Only operations that say something count: flushes, writes of at most `SMALL_WRITE` bytes
//! (what a request costs by itself) and of at least `LARGE_WRITE` bytes (what a byte costs). Until there is an
//! observation a usual SSD is assumed.

use crate::clock::Clock;
use crate::io::{BlockDevice, DeviceError, DeviceInfo, Done, Io, ReadDone, Region, Ticket};
use crate::policy::{BANDWIDTH_ASSUMED, FLUSH_ASSUMED, LARGE_WRITE, SAMPLES, SMALL_WRITE, WRITE_ASSUMED};
use crate::read_buf::ReadBuf;
use crate::sync::{Arc, Mutex, lock};
use std::collections::VecDeque;
use std::time::Duration;

/// The estimates of one device.
#[derive(Default)]
pub struct Pace {
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    /// In nanoseconds.
    flushes: Last,
    writes: Last,
    /// In bytes a second.
    bandwidth: Last,
}

/// The last observations of one kind, oldest first, and their median.
#[derive(Default)]
struct Last {
    values: VecDeque<u64>,
    median: Option<u64>,
}

impl Last {
    fn add(&mut self, value: u64) {
        if self.values.len() == SAMPLES {
            self.values.pop_front();
        }
        self.values.push_back(value);
        let mut sorted: Vec<u64> = self.values.iter().copied().collect();
        let middle = sorted.len() / 2;
        self.median = Some(*sorted.select_nth_unstable(middle).1);
    }
}

impl Pace {
    /// What a flush takes.
    #[must_use]
    pub fn flush(&self) -> Duration {
        lock(&self.seen).flushes.median.map_or(FLUSH_ASSUMED, Duration::from_nanos)
    }

    /// What a small write takes until it is complete.
    #[must_use]
    pub fn write(&self) -> Duration {
        lock(&self.seen).writes.median.map_or(WRITE_ASSUMED, Duration::from_nanos)
    }

    /// Bytes that are written in a second.
    #[must_use]
    pub fn bandwidth(&self) -> u64 {
        lock(&self.seen).bandwidth.median.unwrap_or(BANDWIDTH_ASSUMED)
    }

    /// Bytes that could be written in this time.
    #[must_use]
    pub fn bytes_in(&self, time: Duration) -> u64 {
        let bytes = u128::from(self.bandwidth()) * time.as_nanos() / 1_000_000_000;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// A flush took so long. (A clock that stands still tells nothing.)
    pub fn flushed(&self, took: Duration) {
        if !took.is_zero() {
            lock(&self.seen).flushes.add(nanos(took));
        }
    }

    /// `bytes` were written in one batch, in so long.
    pub fn wrote(&self, bytes: u64, took: Duration) {
        match bytes {
            _ if took.is_zero() => {}
            1..=SMALL_WRITE => lock(&self.seen).writes.add(nanos(took)),
            LARGE_WRITE.. => {
                let per_second = u128::from(bytes) * 1_000_000_000 / took.as_nanos();
                lock(&self.seen).bandwidth.add(u64::try_from(per_second).unwrap_or(u64::MAX).max(1));
            }
            _ => {}
        }
    }
}

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

/// A device that is watched: what [`BlockDevice::run`] is asked for, whole batches of writes and single flushes.
pub struct Paced {
    device: Arc<dyn BlockDevice>,
    clock: Arc<dyn Clock>,
    pace: Arc<Pace>,
}

impl Paced {
    #[must_use]
    pub fn new(device: Arc<dyn BlockDevice>, clock: Arc<dyn Clock>, pace: Arc<Pace>) -> Self {
        Paced { device, clock, pace }
    }
}

/// Bytes of a batch of writes; `None` if anything else is in it, or a write that is also made durable.
fn written(batch: &[Io]) -> Option<u64> {
    batch.iter().map(|io| matches!(io, Io::Write { fua: false, .. }).then(|| io.range().1)).sum()
}

impl BlockDevice for Paced {
    fn info(&self) -> DeviceInfo {
        self.device.info()
    }

    fn submit(&self, batch: Vec<Io>) -> Ticket {
        self.device.submit(batch)
    }

    fn wait(&self, ticket: Ticket) -> Result<Done, DeviceError> {
        self.device.wait(ticket)
    }

    fn run(&self, batch: Vec<Io>) -> Result<Done, DeviceError> {
        let flush = matches!(batch[..], [Io::Flush]);
        let Some(bytes) = written(&batch).or(flush.then_some(0)) else { return self.device.run(batch) };
        let begun = self.clock.monotonic();
        let done = self.device.run(batch)?;
        let took = self.clock.monotonic().saturating_sub(begun);
        if flush {
            self.pace.flushed(took)
        } else {
            self.pace.wrote(bytes, took)
        }
        Ok(done)
    }

    fn read_into(&self, at: u64, into: &mut [u8], region: Region) -> Result<(), DeviceError> {
        self.device.read_into(at, into, region)
    }

    fn can_suspend_reads(&self) -> bool {
        self.device.can_suspend_reads()
    }

    fn read_then(&self, at: u64, buf: ReadBuf, region: Region, then: ReadDone) {
        self.device.read_then(at, buf, region, then);
    }

    /// Told to the pace by who calls it: several of these are one batch.
    fn write_from(&self, at: u64, data: &[u8], region: Region) -> Result<(), DeviceError> {
        self.device.write_from(at, data, region)
    }

    fn preallocate(&self, at: u64, len: u64) -> Result<(), DeviceError> {
        self.device.preallocate(at, len)
    }

    fn grow(&self, size: u64) -> Result<(), DeviceError> {
        self.device.grow(size)
    }

    fn unlock(&self) {
        self.device.unlock();
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    #[test]
    fn estimates_follow_the_device_and_not_its_outliers() {
        let pace = Pace::default();
        assert_eq!((pace.flush(), pace.bandwidth()), (FLUSH_ASSUMED, BANDWIDTH_ASSUMED));
        for n in 0..SAMPLES {
            let stall = if n % 3 == 0 { 100 } else { 1 };
            pace.flushed(Duration::from_millis(2 * stall));
            pace.wrote(1 << 20, Duration::from_millis(4 * stall));
            pace.wrote(4096, Duration::from_micros(30 * stall));
            pace.wrote(64 << 10, Duration::from_secs(9));
            pace.flushed(Duration::ZERO);
        }
        assert_eq!((pace.flush(), pace.write()), (Duration::from_millis(2), Duration::from_micros(30)));
        assert_eq!((pace.bandwidth(), pace.bytes_in(pace.flush())), (262_144_000, 524_288));
        for _ in 0..SAMPLES {
            pace.flushed(Duration::from_millis(9));
        }
        assert_eq!(pace.flush(), Duration::from_millis(9));
    }
}
