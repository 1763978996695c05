//! DJFS, figure 10: what base images cost the page cache. TPC-C on SQLite runs on `djfs` with a cache of a sixteenth of
//! the memory there is; the blocks that SQLite touches are traced, and the most images that the log pins are counted. A
//! page cache that replaces the least recently used block then misses so often with all of the memory, and so often
//! with what the images leave of it.
//!
//! That counts every pinned image as lost, though many are the page cache's own bytes in a kernel's file system: the
//! cost is at most this.

use std::collections::HashMap;
use std::hash::Hash;

use anyhow::Result;

use super::tpcc::{Loaded, Plan, grain};
use crate::results::{Claim, Figure, Findings};
use crate::stats::float;

/// Of the memory: the file system's own cache (`cache_size=`).
const SHARE: u64 = 16;
const BLOCK: u64 = 4096;
/// Blocks of images that may be pinned however small the memory is: 1 MiB.
const PINNED: u64 = 256;
/// "Marginally", in points of the miss ratio.
const MARGINAL: f64 = 2.0;

/// The miss ratios with 10 to 100 % of the footprint in memory.
///
/// # Errors
/// A file system or SQLite failed.
pub fn study(plan: &Plan) -> Result<Findings> {
    let loaded = Loaded::new(plan)?;
    let mut f = plan.assumed_of_mix();
    f.assume(format!(
        "a device that takes no time, because touches and images are counted (the paper: a Samsung 840); a log of {} \
         MiB in NVRAM; {} transactions",
        plan.journal_mib, plan.transactions
    ));
    for journal in plan.journals.iter().copied() {
        let (trace, _) = loaded.observed(journal, plan, 1 << 30)?;
        let misses = Misses::of(&trace);
        let footprint = misses.footprint();
        let (mode, mb) = (journal.name(), footprint * BLOCK / 1_000_000);
        let title = format!("{mode}: misses of the page cache, footprint {mb} MB, {}", grain(plan.grain));
        let id = format!("djfs-10-{}", mode.to_lowercase());
        let mut figure = Figure::lines(&id, "figure 10", title, "memory, % of the footprint", "misses, %")
            .of_series(["without base images", "with base images"]);
        // What the images cost, and what 1 MiB of them would.
        let (mut worst, mut fixed) = (0.0f64, 0.0f64);
        for percent in (1..=10).map(|n| n * 10) {
            let memory = footprint * percent / 100;
            let (_, images) = loaded.observed(journal, plan, memory * BLOCK / SHARE)?;
            let (without, with) = (misses.ratio(memory) * 100.0, misses.ratio(memory.saturating_sub(images)) * 100.0);
            worst = worst.max(with - without);
            fixed = fixed.max(misses.ratio(memory.saturating_sub(PINNED)) * 100.0 - without);
            figure.place(percent, [without, with]);
        }
        f.figures.push(figure);
        let says = "base images make the page cache only marginally worse, whatever the memory";
        let what = format!("{mode}: points of the miss ratio, at most");
        f.claims.push(Claim::at_most("figure 10", says, what, worst, MARGINAL).because_within(
            MARGINAL..=fixed,
            "1 MiB of images is pinned in any case, which is much of the memory where the footprint is small: that alone \
             costs as much as the range says",
        ));
    }
    f.assume("every image that the log pins counts as lost to the page cache; \"marginally\": 2 points");
    f.skipped
        .push("figure 10 beside the kernel's ext4: its journal keeps no base images, so it has none to count".into());
    Ok(f)
}

/// How often a cache that replaces the least recently used block misses, whatever its size.
struct Misses {
    /// Touches of a block after so many others (each once) since it was touched before, ascending.
    distances: Vec<u64>,
    /// First touches.
    cold: u64,
}

impl Misses {
    fn of<T: Hash + Eq + Copy>(trace: &[T]) -> Self {
        // A one at each block's last touch; how many lie between two touches is a difference of prefix sums.
        let mut last: HashMap<T, usize> = HashMap::new();
        let mut sums = Sums(vec![0; trace.len() + 1]);
        let mut distances = Vec::new();
        for (at, block) in trace.iter().enumerate() {
            if let Some(before) = last.insert(*block, at) {
                distances.push(sums.upto(at) - sums.upto(before + 1));
                sums.add(before, -1);
            }
            sums.add(at, 1);
        }
        let distances = distances.into_iter().map(|d| u64::try_from(d).unwrap_or(0));
        let mut distances: Vec<u64> = distances.collect();
        distances.sort_unstable();
        Misses { distances, cold: last.len() as u64 }
    }

    fn footprint(&self) -> u64 {
        self.cold
    }

    /// With room for so many blocks.
    fn ratio(&self, blocks: u64) -> f64 {
        let hits = self.distances.partition_point(|d| *d < blocks) as u64;
        let all = self.distances.len() as u64 + self.cold;
        float(all - hits) / float(all.max(1))
    }
}

/// Prefix sums that change (Fenwick).
struct Sums(Vec<i64>);

impl Sums {
    fn add(&mut self, at: usize, n: i64) {
        let mut i = at + 1;
        while i < self.0.len() {
            self.0[i] += n;
            i += i & i.wrapping_neg();
        }
    }

    /// Of the first `n`.
    fn upto(&self, n: usize) -> i64 {
        let (mut i, mut sum) = (n, 0);
        while i > 0 {
            sum += self.0[i];
            i &= i - 1;
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misses_are_those_of_a_cache_that_is_played_through() {
        let mut rng = quire_testkit::Rng::from_parts(&[3]);
        let trace: Vec<u64> = (0..3000).map(|_| rng.below(40) * rng.below(10)).collect();
        let misses = Misses::of(&trace);
        for room in [1, 3, 10, 50, 100, 400] {
            let mut cache: Vec<u64> = Vec::new();
            let mut missed = 0;
            for b in &trace {
                match cache.iter().position(|c| c == b) {
                    Some(n) => drop(cache.remove(n)),
                    None => missed += 1,
                }
                cache.push(*b);
                if cache.len() > room {
                    cache.remove(0);
                }
            }
            let ratio = misses.ratio(room as u64);
            assert!((ratio - float(missed) / 3000.0).abs() < 1e-9, "{room}: {ratio}");
        }
    }
}
