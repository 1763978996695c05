//! Devices that fail and disks that run full, in the middle of seeded workloads. `QUIRE_FAULT_SEED` repeats one, `QUIRE_FAULT_SEEDS` runs
//! more, from `QUIRE_FAULT_FIRST` on.

use quire_device::{ErrorKind, FaultKind};
use quire_sim::campaign::{SMALL, number};
use quire_sim::explore::{Config, fresh_image};
use quire_sim::faults::{Seen, device_fails, disk_is_full};
use quire_sim::ops::Mix;
use quire_sim::run::Route;

const ROUTES: [(&str, Route); 4] =
    [("ordered", Route::Ordered), ("journal", Route::Journal), ("writeback", Route::Writeback), ("auto", Route::Auto)];

fn seeds(most: u64) -> std::ops::RangeInclusive<u64> {
    match number("QUIRE_FAULT_SEED") {
        Some(seed) => seed..=seed,
        None => {
            let first = number("QUIRE_FAULT_FIRST").unwrap_or(1);
            first..=first + number("QUIRE_FAULT_SEEDS").unwrap_or(most) - 1
        }
    }
}

fn config(name: &'static str, route: Route, leave: Option<u64>) -> Config {
    Config { name, how: route.into(), mix: Mix::General, leave, mke2fs: SMALL, size: "8M" }
}

#[derive(Default, Debug)]
struct Sum {
    runs: u64,
    hit: u64,
    failed: u64,
    read_only: u64,
    asked_again: u64,
}

impl Sum {
    fn add(&mut self, s: Seen) {
        self.runs += 1;
        self.hit += u64::from(s.hit);
        self.failed += s.failed;
        self.read_only += u64::from(s.read_only);
        self.asked_again += s.asked_again;
    }
}

fn campaign(test: &str, kinds: &[FaultKind]) -> Sum {
    let mut sum = Sum::default();
    for (name, route) in ROUTES {
        let config = config(name, route, None);
        let base = fresh_image(&config);
        for seed in seeds(60) {
            for kind in kinds {
                match device_fails(&config, &base, seed, 80, *kind) {
                    Ok(seen) => sum.add(seen),
                    Err(why) => panic!(
                        "{name}, {kind:?}, seed {seed}: {why}\nrepeat: QUIRE_FAULT_SEED={seed} cargo test -p quire-sim --test faults {test}"
                    ),
                }
            }
        }
    }
    println!("{test}: {sum:?}");
    sum
}

/// Reads, writes and flushes that fail once or for ever; no space on the host.
#[test]
fn errors_are_told_and_final() {
    let sum = campaign(
        "errors_are_told_and_final",
        &[FaultKind::Error(ErrorKind::Io), FaultKind::Error(ErrorKind::NoSpace), FaultKind::Torn { sectors: 1 }],
    );
    // The test is not empty.
    assert!(sum.hit > sum.runs / 3 && sum.failed > 100 && sum.read_only > 20, "{sum:?}");
    assert!(number("QUIRE_FAULT_SEED").is_some() || sum.asked_again > 5, "{sum:?}");
}

#[test]
fn a_device_that_goes_leaves_what_was_durable() {
    let sum = campaign("a_device_that_goes_leaves_what_was_durable", &[FaultKind::Error(ErrorKind::Gone)]);
    assert!(sum.hit > sum.runs / 3 && sum.failed > 100, "{sum:?}");
}

#[test]
fn a_device_that_lies_does_no_worse_than_errors() {
    let kinds = [FaultKind::Lost, FaultKind::FlipBit(3), FaultKind::FlipBit(4099), FaultKind::FlipBit(7001)];
    let sum = campaign("a_device_that_lies_does_no_worse_than_errors", &kinds);
    assert!(sum.hit > sum.runs / 5, "{sum:?}");
}

/// At every point of a workload at which space may run out: with 0, 1, 2, ... blocks left when it begins.
#[test]
fn a_full_disk_leaks_nothing() {
    let mut full = 0;
    for (name, route) in ROUTES {
        // As few as the filler leaves, and so many that nothing is refused.
        for leave in (0..160).step_by(4) {
            let config = config(name, route, Some(leave));
            let base = fresh_image(&config);
            for seed in seeds(1) {
                match disk_is_full(&config, &base, seed + leave, 60) {
                    Ok(seen) => full += seen.full,
                    Err(why) => panic!(
                        "{name}, {leave} blocks left, seed {seed}: {why}\nrepeat: QUIRE_FAULT_SEED={seed} cargo test -p quire-sim --test faults full"
                    ),
                }
            }
        }
    }
    println!("a_full_disk_leaks_nothing: {full} calls refused");
    assert!(full > 200, "{full}");
}
