//! A histogram of durations that any number of threads record into: log-linear buckets, as HDR histograms have them.
//!
//! ```text
//! shard of the recording thread: [0] [1] ... [15] | 16 buckets to each doubling | ... up to 262 s
//! ```
//! *Guarantees*: no lock; a record is three additions to memory that few other CPUs write. A quantile is at most one
//! sixteenth too high. Milliseconds times a power of two are edges of buckets, so that counts below them are exact.
//!
//! The atomics are the standard library's also under shuttle: no decision depends on them.

use crate::policy::HISTOGRAM_SHARDS;
use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Buckets to a doubling, as a power of two.
const SUB_BITS: u32 = 4;
const SUB: usize = 1 << SUB_BITS;
/// Longer durations count as this: 2 to this power of units, 262 seconds.
const MAX_BITS: u32 = 38;
const BUCKETS: usize = (MAX_BITS - SUB_BITS + 1) as usize * SUB;
/// A unit is 15625/16384 ns, so that 2^20 of them are a millisecond.
const UNITS: (u64, u64) = (16_384, 15_625);

/// The counts that some threads write.
struct Shard {
    counts: [AtomicU64; BUCKETS],
    nanos: AtomicU64,
    max_nanos: AtomicU64,
}

/// Durations, recorded by many threads at once.
pub struct Histogram {
    /// Made when a thread of theirs records first.
    shards: Box<[OnceLock<Box<Shard>>]>,
}

/// What a histogram held at a moment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Latencies {
    /// By bucket; empty if nothing was recorded.
    counts: Vec<u64>,
    sum: Duration,
    max: Duration,
}

/// One shard to a CPU, so that threads seldom write to the same lines.
fn shard_count() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| {
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        cpus.next_power_of_two().min(HISTOGRAM_SHARDS)
    })
}

/// The number of the calling thread among those that record.
fn number_of_thread() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    std::thread_local!(static NUMBER: Cell<usize> = const { Cell::new(usize::MAX) });
    NUMBER.with(|n| {
        if n.get() == usize::MAX {
            n.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        n.get()
    })
}

fn bucket_of(nanos: u64) -> usize {
    let most = (1u64 << MAX_BITS) - 1;
    let units = nanos.checked_mul(UNITS.0).map_or(most, |n| (n / UNITS.1).min(most));
    let bits = 64 - units.leading_zeros();
    let shift = bits.saturating_sub(SUB_BITS + 1);
    let within = usize::try_from(units >> shift).expect("below 32");
    // From the second doubling on `within` has its highest bit set, which counts for the 16 buckets before.
    shift as usize * SUB + within
}

/// Where a bucket ends, in nanoseconds, rounded up: what it holds is less, or rounds down to less.
fn end_of(bucket: usize) -> u64 {
    let (shift, within) = match bucket / SUB {
        0 | 1 => (0, bucket),
        n => (n - 1, bucket % SUB + SUB),
    };
    ((within as u64 + 1) << shift).saturating_mul(UNITS.1).div_ceil(UNITS.0)
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram { shards: (0..shard_count()).map(|_| OnceLock::new()).collect() }
    }
}

impl Histogram {
    /// Records a duration.
    pub fn record(&self, d: Duration) {
        let nanos = u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
        let shard = self.shards[number_of_thread() % self.shards.len()].get_or_init(|| {
            let counts = [const { AtomicU64::new(0) }; BUCKETS];
            Box::new(Shard { counts, nanos: AtomicU64::new(0), max_nanos: AtomicU64::new(0) })
        });
        shard.counts[bucket_of(nanos)].fetch_add(1, Ordering::Relaxed);
        shard.nanos.fetch_add(nanos, Ordering::Relaxed);
        if shard.max_nanos.load(Ordering::Relaxed) < nanos {
            shard.max_nanos.fetch_max(nanos, Ordering::Relaxed);
        }
    }

    /// How many were recorded.
    #[must_use]
    pub fn count(&self) -> u64 {
        let shards = self.shards.iter().filter_map(OnceLock::get);
        shards.flat_map(|s| &s.counts).map(|n| n.load(Ordering::Relaxed)).sum()
    }

    /// What was recorded so far.
    #[must_use]
    pub fn snapshot(&self) -> Latencies {
        let mut all = Latencies::default();
        for shard in self.shards.iter().filter_map(OnceLock::get) {
            all.counts.resize(BUCKETS, 0);
            for (sum, n) in all.counts.iter_mut().zip(&shard.counts) {
                *sum += n.load(Ordering::Relaxed);
            }
            all.sum += Duration::from_nanos(shard.nanos.load(Ordering::Relaxed));
            all.max = all.max.max(Duration::from_nanos(shard.max_nanos.load(Ordering::Relaxed)));
        }
        all
    }
}

impl Latencies {
    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    #[must_use]
    pub fn sum(&self) -> Duration {
        self.sum
    }

    #[must_use]
    pub fn max(&self) -> Duration {
        self.max
    }

    /// The buckets that hold anything: the nanoseconds below which all of a bucket lies, and its count.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.counts.iter().enumerate().filter(|(_, n)| **n > 0).map(|(bucket, n)| (end_of(bucket), *n))
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    #[test]
    fn a_duration_lies_in_its_bucket_and_the_bucket_is_narrow() {
        let mut last = 0;
        for bucket in 1..BUCKETS {
            let (from, end) = (end_of(bucket - 1), end_of(bucket));
            assert!(end > from || end < 1000, "bucket {bucket}: {from}..{end}");
            assert!(end < 1000 || (end - from) * 16 <= end, "bucket {bucket} is wide: {from}..{end}");
            last = end;
        }
        assert!(last > 262_000_000_000, "{last}");
        for nanos in (0..100_000).chain((0..60).map(|n| 3u64 << n)) {
            let bucket = bucket_of(nanos);
            let lies = nanos < end_of(bucket) || bucket == BUCKETS - 1;
            assert!(lies && (bucket == 0 || nanos + 1 >= end_of(bucket - 1)), "{nanos} in bucket {bucket}");
        }
    }

    #[test]
    fn milliseconds_times_a_power_of_two_are_edges() {
        for power in -6i32..=13 {
            let nanos = if power < 0 { 1_000_000u64 >> -power } else { 1_000_000u64 << power };
            let edge = (0..BUCKETS).find(|b| end_of(*b) == nanos).unwrap_or_else(|| panic!("{nanos} ns is no edge"));
            assert_eq!((bucket_of(nanos - 1), bucket_of(nanos)), (edge, edge + 1), "{nanos} ns");
        }
    }

    #[test]
    fn what_many_threads_record_is_all_there() {
        let h = Histogram::default();
        std::thread::scope(|s| {
            for thread in 1..=100u64 {
                let h = &h;
                s.spawn(move || (0..1000).for_each(|_| h.record(Duration::from_micros(thread))));
            }
        });
        let all = h.snapshot();
        assert_eq!((all.count(), h.count()), (100_000, 100_000));
        assert_eq!(all.sum(), Duration::from_micros(1000 * (1..=100).sum::<u64>()));
        assert_eq!(all.max(), Duration::from_micros(100));
        assert_eq!(all.buckets().map(|(_, n)| n).sum::<u64>(), 100_000);
        let below: u64 = all.buckets().filter(|(end, _)| *end <= 62_500).map(|(_, n)| n).sum();
        assert_eq!(below, 62_000, "those of 1 to 62 us lie below 62.5 us");
    }
}
