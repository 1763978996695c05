//! Devices that fail and disks that run full, in the middle of seeded workloads. `QUIRE_FAULT_SEED` repeats one,
//! `QUIRE_FAULT_SEEDS` runs more, from `QUIRE_FAULT_FIRST` on.

use quire_device::ErrorKind;
use quire_fs::{Checkpoint, CommitMode, Record};
use quire_sim::campaign::{SMALL, number};
use quire_sim::explore::{Config, filled, fresh_image};
use quire_sim::faults::{Rig, Seen, device_fails, disk_is_full, space_runs_out};
use quire_sim::mixes::Mix;
use quire_sim::run::{How, Route};
use quire_testkit::{FaultKind, Image};

/// Configurations: a route, with which log.
const ALL: [(&str, Route, Record, CommitMode); 9] = [
    ("ordered", Route::Ordered, Record::Block, CommitMode::Barrier),
    ("journal", Route::Journal, Record::Block, CommitMode::Barrier),
    ("writeback", Route::Writeback, Record::Block, CommitMode::Barrier),
    ("auto", Route::Auto, Record::Block, CommitMode::Barrier),
    ("ordered_delta_checksum", Route::Ordered, Record::Delta, CommitMode::Checksum),
    ("journal_range_checksum", Route::Journal, Record::Range, CommitMode::Checksum),
    ("auto_range_checksum", Route::Auto, Record::Range, CommitMode::Checksum),
    ("djfs", Route::Journal, Record::Delta, CommitMode::Nvram),
    ("ordered_range_nvram", Route::Ordered, Record::Range, CommitMode::Nvram),
];

/// Seeds of a test that injects one fault to a run, unless told otherwise. A test that runs a seed once for every place
/// where space may be missing takes one seed of so many.
const SEEDS: u64 = 40;

fn seeds() -> std::ops::RangeInclusive<u64> {
    first_of(number("QUIRE_FAULT_SEEDS").unwrap_or(SEEDS))
}

fn sweeps() -> std::ops::RangeInclusive<u64> {
    first_of((number("QUIRE_FAULT_SEEDS").unwrap_or(SEEDS) / SEEDS).max(1))
}

fn first_of(seeds: u64) -> std::ops::RangeInclusive<u64> {
    match number("QUIRE_FAULT_SEED") {
        Some(seed) => seed..=seed,
        None => {
            let first = number("QUIRE_FAULT_FIRST").unwrap_or(1);
            first..=first + seeds - 1
        }
    }
}

/// A configuration and its image; of the memory two regions, as small as they may be.
fn rig((name, route, record, commit_mode): (&'static str, Route, Record, CommitMode), mix: Mix) -> (Rig, Image) {
    let config =
        Config { name, how: How::lazy(route, record, commit_mode), mix, leave: None, mke2fs: SMALL, size: "8M" };
    let nvram = (commit_mode == CommitMode::Nvram).then_some((8192 + 2 * (112 << 10), Checkpoint::Regions(2)));
    // A full disk is made without NVRAM.
    let base = match nvram {
        Some(_) => fresh_image(&Config { how: route.into(), ..config.clone() }),
        None => fresh_image(&config),
    };
    (Rig { config, nvram }, base)
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

    fn merge(&mut self, s: &Sum) {
        self.runs += s.runs;
        self.hit += s.hit;
        self.failed += s.failed;
        self.read_only += s.read_only;
        self.asked_again += s.asked_again;
    }
}

fn campaign(test: &str, kinds: &[FaultKind]) -> Sum {
    let mut sum = Sum::default();
    for what in ALL {
        let name = what.0;
        let (rig, base) = rig(what, Mix::General);
        let mut of_this = Sum::default();
        for seed in seeds() {
            for kind in kinds {
                match device_fails(&rig, &base, seed, 80, *kind) {
                    Ok(seen) => of_this.add(seen),
                    Err(why) => panic!(
                        "{name}, {kind:?}, seed {seed}: {why}\nrepeat: QUIRE_FAULT_SEED={seed} cargo test -p quire-sim --test it faults::{test}"
                    ),
                }
            }
        }
        println!("{test}, {name}: {of_this:?}");
        sum.merge(&of_this);
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
    assert!(only_seed() || sum.hit > sum.runs / 3 && sum.failed > 100 && sum.read_only > 20, "{sum:?}");
    assert!(only_seed() || sum.asked_again > 5, "{sum:?}");
}

/// A write to a file fails in the background, and a truncate of that file is committed: an fsync told of the loss.
#[test]
fn data_that_was_lost_before_a_truncate_is_no_newer_for_it() {
    let (rig, base) = rig(ALL[0], Mix::General);
    let seen = device_fails(&rig, &base, 999_058, 80, FaultKind::Error(ErrorKind::Io)).unwrap();
    assert!(seen.hit && seen.failed > 1, "{seen:?}");
}

/// Q11: a write to the log fails, and yet all of it is there. The deltas in it are over images that nothing else holds.
#[test]
fn a_transaction_that_failed_and_is_there_is_no_damage() {
    let (rig, base) = rig(ALL[4], Mix::General);
    let seen = device_fails(&rig, &base, 999_059, 80, FaultKind::Torn { sectors: 1 }).unwrap();
    assert!(seen.hit && seen.read_only, "{seen:?}");
}

#[test]
fn a_device_that_goes_leaves_what_was_durable() {
    let sum = campaign("a_device_that_goes_leaves_what_was_durable", &[FaultKind::Error(ErrorKind::Gone)]);
    assert!(only_seed() || sum.hit > sum.runs / 3 && sum.failed > 100, "{sum:?}");
}

#[test]
fn a_device_that_lies_does_no_worse_than_errors() {
    let kinds = [FaultKind::Lost, FaultKind::FlipBit(3), FaultKind::FlipBit(4099), FaultKind::FlipBit(7001)];
    let sum = campaign("a_device_that_lies_does_no_worse_than_errors", &kinds);
    assert!(only_seed() || sum.hit > sum.runs / 5, "{sum:?}");
}

fn only_seed() -> bool {
    number("QUIRE_FAULT_SEED").is_some()
}

/// With 0, 1, 2, ... blocks left when a workload begins.
#[test]
fn a_full_disk_leaks_nothing() {
    let mut full = 0;
    for what in ALL {
        let (rig, fresh) = rig(what, Mix::Reuse);
        let filler = Config { how: what.1.into(), ..rig.config.clone() };
        // As few as the filler leaves, and so many that nothing is refused.
        for leave in 0..160 {
            let base = filled(&filler, fresh.clone(), leave);
            for seed in sweeps() {
                match disk_is_full(&rig, &base, seed + leave, 60) {
                    Ok(seen) => full += seen.full,
                    Err(why) => panic!(
                        "{}, {leave} blocks left, seed {seed}: {why}\nrepeat: QUIRE_FAULT_SEED={seed} \
                         cargo test -p quire-sim --test it faults::a_full_disk",
                        what.0
                    ),
                }
            }
        }
    }
    println!("a_full_disk_leaks_nothing: {full} calls refused");
    assert!(full > 200, "{full}");
}

/// Every allocation of a workload, of blocks, inodes and reservations, finds no space: it alone, it and those that try
/// again, or all from it on.
#[test]
fn each_allocation_may_find_no_space() {
    let (mut points, mut runs, mut full) = (0, 0, 0);
    for what in ALL {
        for mix in [Mix::General, Mix::Reuse] {
            let (rig, base) = rig(what, mix);
            for seed in sweeps() {
                let (_, allocations) = space_runs_out(&rig, &base, seed, 110, 0..0).expect("there is space");
                points += allocations;
                for k in 0..allocations {
                    for end in [k + 1, k + 3, u64::MAX] {
                        match space_runs_out(&rig, &base, seed, 110, k..end) {
                            Ok((seen, _)) => full += seen.full,
                            Err(why) => panic!(
                                "{} {mix:?}, allocations {k}..{end}, seed {seed}: {why}\nrepeat: QUIRE_FAULT_SEED={seed} \
                                 cargo test -p quire-sim --test it faults::each_allocation",
                                what.0
                            ),
                        }
                        runs += 1;
                    }
                }
            }
        }
    }
    println!("each_allocation_may_find_no_space: {points} allocations, {runs} runs, {full} calls refused");
    assert!(only_seed() || points > 500 && full > points, "{points} allocations, {full} refused");
}
