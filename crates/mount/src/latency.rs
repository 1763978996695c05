//! How long something took, in a form that travels: percentiles for readers, buckets for programs.

use quire_device::Latencies;
use serde::{Deserialize, Serialize};

/// Durations since the mount, in nanoseconds.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Latency {
    pub count: u64,
    pub sum_nanos: u64,
    pub max_nanos: u64,
    /// Percentiles, at most a sixteenth too high.
    pub p50_nanos: u64,
    pub p90_nanos: u64,
    pub p99_nanos: u64,
    pub p999_nanos: u64,
    /// Where a bucket ends, and how many it holds; empty buckets are left out.
    pub buckets: Vec<(u64, u64)>,
}

impl Latency {
    fn new(sum_nanos: u64, max_nanos: u64, buckets: Vec<(u64, u64)>) -> Self {
        let count = buckets.iter().map(|(_, n)| n).sum();
        let mut all = Latency { count, sum_nanos, max_nanos, buckets, ..Latency::default() };
        [all.p50_nanos, all.p90_nanos, all.p99_nanos, all.p999_nanos] =
            [500, 900, 990, 999].map(|permille| all.percentile(permille));
        all
    }

    /// The time that so many of a thousand did not exceed.
    fn percentile(&self, permille: u64) -> u64 {
        let rank = u64::try_from((u128::from(self.count) * u128::from(permille)).div_ceil(1000)).unwrap_or(u64::MAX);
        let mut seen = 0;
        let found = self.buckets.iter().find(|(_, n)| {
            seen += n;
            seen >= rank
        });
        found.map_or(0, |(end, _)| (*end).min(self.max_nanos))
    }

    /// How many took less than so long. Exact where a bucket ends there: at milliseconds times powers of two.
    #[must_use]
    pub fn below(&self, nanos: u64) -> u64 {
        self.buckets.iter().take_while(|(end, _)| *end <= nanos).map(|(_, n)| n).sum()
    }

    /// What came after an earlier look at the same figures. Its maximum is that of all.
    #[must_use]
    pub fn since(&self, earlier: &Latency) -> Latency {
        let before = |end| earlier.buckets.iter().find(|(e, _)| *e == end).map_or(0, |(_, n)| *n);
        let left = self.buckets.iter().map(|(end, n)| (*end, n.saturating_sub(before(*end))));
        let buckets = left.filter(|(_, n)| *n > 0).collect();
        Latency::new(self.sum_nanos.saturating_sub(earlier.sum_nanos), self.max_nanos, buckets)
    }

    /// With what another one has, too.
    #[must_use]
    pub fn and(&self, other: &Latency) -> Latency {
        let mut buckets = std::collections::BTreeMap::new();
        for (end, n) in self.buckets.iter().chain(&other.buckets) {
            *buckets.entry(*end).or_insert(0) += n;
        }
        let (sum, max) = (self.sum_nanos.saturating_add(other.sum_nanos), self.max_nanos.max(other.max_nanos));
        Latency::new(sum, max, buckets.into_iter().collect())
    }
}

impl From<&Latencies> for Latency {
    fn from(l: &Latencies) -> Self {
        let nanos = |d: std::time::Duration| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
        Latency::new(nanos(l.sum()), nanos(l.max()), l.buckets().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quire_device::Histogram;
    use std::time::Duration;

    #[test]
    fn percentiles_of_a_known_distribution_are_a_sixteenth_too_high_at_most() {
        let h = Histogram::default();
        (1..=1000).for_each(|n| h.record(Duration::from_micros(n)));
        let l = Latency::from(&h.snapshot());
        for (found, expected) in [(l.p50_nanos, 500), (l.p90_nanos, 900), (l.p99_nanos, 990), (l.p999_nanos, 999)] {
            let expected = expected * 1000;
            assert!(found >= expected && found <= expected + expected / 16, "{found} for {expected}");
        }
        assert_eq!((l.count, l.max_nanos), (1000, 1_000_000));
        assert_eq!(l.below(500_000), 499, "less than half a millisecond");
    }

    #[test]
    fn what_came_since_a_look_leaves_out_what_came_before() {
        let h = Histogram::default();
        h.record(Duration::from_millis(100));
        let before = Latency::from(&h.snapshot());
        (0..9).for_each(|_| h.record(Duration::from_micros(10)));
        let since = Latency::from(&h.snapshot()).since(&before);
        assert_eq!((since.count, since.sum_nanos), (9, 90_000));
        assert!(since.p999_nanos < 11_000, "{since:?}");
        assert_eq!(since.and(&before).count, 10);
    }
}
