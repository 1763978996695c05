//! What two CPUs tell each other costs: a request to a daemon and its reply are some dozens of cache lines that change
//! CPUs, so that this explains, as the raw device does for the disk, why the same programs differ from hour to hour on
//! a virtual machine.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Context, Result};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::stats::median;

const ROUNDS: u32 = 20_000;

/// Nanoseconds for a cache line to go to another CPU and come back: the median of five tries; `None` where there is one
/// CPU.
pub(super) fn round_trip() -> Result<Option<f64>> {
    let all = sched_getaffinity(None).context("which CPUs there are")?;
    let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&cpu| all.is_set(cpu)).take(2).collect();
    let [one, other] = cpus[..] else { return Ok(None) };
    let tries = (0..5).map(|_| bounce(one, other)).collect::<Result<Vec<_>>>()?;
    Ok(Some(median(&tries)))
}

fn bounce(one: usize, other: usize) -> Result<f64> {
    let (away, over) = (AtomicBool::new(false), AtomicBool::new(false));
    let ends = || over.load(Ordering::Relaxed);
    let took = std::thread::scope(|scope| {
        let echo = scope.spawn(|| {
            let pinned = pin(other);
            while pinned.is_ok() && !ends() {
                if away.load(Ordering::Acquire) {
                    away.store(false, Ordering::Release);
                }
            }
            over.store(true, Ordering::Relaxed);
            pinned
        });
        let timed = scope.spawn(|| {
            let pinned = pin(one);
            let start = Instant::now();
            for _ in 0..ROUNDS {
                away.store(true, Ordering::Release);
                while away.load(Ordering::Acquire) && !ends() {
                    spin_loop();
                }
            }
            let took = start.elapsed();
            over.store(true, Ordering::Relaxed);
            pinned.map(|()| took)
        });
        let took = timed.join().expect("it does not panic");
        echo.join().expect("it does not panic").and(took)
    })?;
    Ok(took.as_secs_f64() * 1e9 / f64::from(ROUNDS))
}

fn pin(cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).context("to run on one CPU")
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_line_takes_some_time_there_and_back() {
        if let Some(ns) = super::round_trip().unwrap() {
            assert!(ns > 1.0, "{ns}");
        }
    }
}
