//! A log on a device of its own: which device a commit flushes, and what is left when both lose their power at once.

use super::crash::{
    CRASHES, FILES, Files, History, RUNS, change_and_sync, check_in_place, check_synced, read_all, used_image, work,
};
use super::{Numbers, file, image};
use crate::config::{Choices, CommitMode, Record, Route};
use crate::data::WriteFlags;
use crate::testing::{tie_to_log, untie};
use crate::{AutoThreshold, Checkpoint, Devices, Options, Volume};
use quire_device::sync::Arc;
use quire_device::{BlockDevice, Counted, SystemClock};
use quire_testkit::image::Image;
use quire_testkit::powerloss::{Completion, PowerLossDevice, PowerLossOptions};
use quire_testkit::{MemDevice, Model, Modelled, VirtualClock, fsck};
use std::time::Duration;

const ARGS: [&str; 6] = ["-t", "ext4", "-b", "1024", "-O", "^has_journal"];

/// The two commits of a log on a device, of records in jbd2's format and in Quire's.
const COMMITS: [(Record, CommitMode); 3] =
    [(Record::Block, CommitMode::Barrier), (Record::Range, CommitMode::Barrier), (Record::Range, CommitMode::Checksum)];

fn options(route: Route, (record, commit): (Record, CommitMode)) -> Options {
    Options::default().with(Choices { record, commit, ..Choices::of_route(route) })
}

fn open(fs: Arc<dyn BlockDevice>, log: Arc<dyn BlockDevice>, options: Options) -> crate::Result<Volume> {
    Volume::open(Devices { fs, journal: Some(log), nvram: None }, Arc::new(SystemClock), options)
}

/// New data in a log apart saves the flush of the file system's device, which a barrier on one device needs anyway:
/// auto logs more of it.
#[test]
fn auto_counts_the_flush_that_a_log_on_another_device_saves() {
    let boundary = |apart: bool| {
        let clock = Arc::new(VirtualClock::default());
        let modelled = |bytes| Arc::new(Modelled::new(MemDevice::new(bytes), Model::consumer_ssd(), clock.clone()));
        let mut bytes = image("32M", if apart { &ARGS } else { &ARGS[..4] }, 1);
        let log = apart.then(|| tie_to_log(&mut bytes, "8M"));
        let journal = log.map(|bytes| modelled(bytes) as Arc<dyn BlockDevice>);
        let devices = Devices { fs: modelled(bytes), journal, nvram: None };
        let v = Volume::open(devices, clock.clone(), options(Route::Auto, COMMITS[1])).expect("mount");
        let boundary = v.limits().auto_threshold.expect("auto");
        v.close().expect("unmount");
        boundary
    };
    let [one, two] = [false, true].map(boundary);
    let saved = |boundary: AutoThreshold| boundary.bytes * boundary.home_percent / 100;
    let of = |time: Duration, boundary: AutoThreshold| {
        boundary.bandwidth * u64::try_from(time.as_micros()).unwrap() / 1_000_000
    };
    assert!(saved(one) <= of(one.write, one).max(1024), "{one:?}");
    assert!(saved(two) > of(two.flush, two) && saved(two) <= of(two.flush + two.write, two), "{two:?}");
}

/// A block of 1 KiB on a log's device with larger sectors: to write it would rewrite its neighbours.
#[test]
fn a_log_on_a_device_with_larger_sectors_is_refused() {
    let mut fs = image("32M", &ARGS, 1);
    let log = Image::from_bytes(&tie_to_log(&mut fs, "8M"));
    let opened = |unit| {
        let options = PowerLossOptions { unit, ..PowerLossOptions::default() };
        let log = Arc::new(PowerLossDevice::from_image(log.clone(), options));
        open(Arc::new(MemDevice::new(fs.clone())), log, Options::default())
    };
    assert!(matches!(opened(4096), Err(crate::Error::Unsupported(_))));
    opened(1024).expect("mount").close().expect("unmount");
}

/// Q5: the device of the file system has nothing to flush for a commit but data in place that the commit names.
#[test]
fn a_commit_flushes_the_file_systems_device_only_for_data_in_place() {
    for commit in COMMITS {
        // To go home at fsync is ext4's way, whose log has whole blocks.
        let at_fsync = if commit.0 == Record::Block { Checkpoint::Fsync } else { Checkpoint::Lazy };
        for (route, checkpoint, to_data) in [
            (Route::Journal, Checkpoint::Lazy, 0),
            (Route::Journal, at_fsync, 0),
            (Route::Ordered, Checkpoint::Lazy, 1),
        ] {
            let mut bytes = image("16M", &ARGS, 1);
            let log = tie_to_log(&mut bytes, "8M");
            let [fs, log] = [bytes, log].map(|bytes| Arc::new(Counted::new(MemDevice::new(bytes))));
            let options = Options { checkpoint, ..options(route, commit) };
            let v = open(fs.clone(), log.clone(), options).expect("mount");
            for n in 0..4 {
                v.write(file(0), n * 4096, &[7; 4096], WriteFlags::default()).expect("write");
                let before = [fs.snapshot(), log.snapshot()];
                v.fsync(file(0), false).expect("fsync");
                let [fs, log] = [fs.snapshot().since(&before[0]), log.snapshot().since(&before[1])];
                // Before the commit, and not for the fsync alone.
                let flushes = (fs.flushes.count, v.maintenance().journal_stats().data_flushes, log.flushes.count);
                let expected = (to_data, to_data * (n + 1), 1);
                assert_eq!(flushes, expected, "{route:?} {checkpoint:?} {commit:?}, fsync {n}");
            }
            v.close().expect("unmount");
        }
    }
}

/// What a mount after a crash of both devices reads, and e2fsck's word on the image.
fn recovered(crashed: [Image; 2], options: Options, what: &str) -> Files {
    let [fs, log] = crashed.map(|image| Arc::new(MemDevice::new(image.to_vec())));
    let v = open(fs.clone(), log, options).unwrap_or_else(|e| panic!("{what}: {e}"));
    let files = read_all(&v, what);
    v.close().unwrap_or_else(|e| panic!("{what}: {e}"));
    let mut image = fs.snapshot();
    untie(&mut image);
    fsck(&image);
    files
}

fn check(route: Route, h: &History, got: &Files, what: &str) {
    if route == Route::Journal {
        let from = (0..3).map(|n| h.durable_from(n)).max().expect("there are files");
        assert!(h.states[from..].contains(got), "{what}: no prefix of the requests");
    } else {
        (0..usize::try_from(FILES).expect("few")).for_each(|n| check_in_place(h, n, &got[n]));
    }
}

/// The image and its log, before anything is done.
fn start() -> [Vec<u8>; 2] {
    let mut fs = used_image(&ARGS);
    let log = tie_to_log(&mut fs, "8M");
    [fs, log]
}

/// Runs `work` until both devices lose their power at a step of either. Each has some of the sectors that were not
/// durable: `check` gets the files and a name of the crash.
fn run<T>(
    [fs, log]: &[Vec<u8>; 2],
    (route, commit): (Route, (Record, CommitMode)),
    seed: u64,
    work: impl Fn(&Volume, &mut Numbers) -> T,
    check: impl Fn(&T, &Files, &str),
) {
    let mut r = Numbers(seed * 0x2468_ACE1);
    let o = PowerLossOptions { completion: Completion::AtWait, ..PowerLossOptions::default() };
    let fs = PowerLossDevice::from_image(Image::from_bytes(fs), o);
    let log = fs.beside(Image::from_bytes(log));
    let [fs, log] = [fs, log].map(Arc::new);
    let v = open(fs.clone(), log.clone(), options(route, commit)).expect("mount");
    let victim = if r.below(2) == 0 { &fs } else { &log };
    victim.cut_at(victim.steps() + r.below(100) + 5);
    let done = work(&v, &mut r);
    drop(v);
    for n in 0..CRASHES {
        let what = format!("{route:?} {commit:?}, run {seed}, crash {n}");
        let crashed = [fs.crash(n).image, log.crash(n * 7 + seed).image];
        check(&done, &recovered(crashed, options(route, commit), &what), &what);
    }
}

/// Writes and appends, held against what they may leave.
fn write(start: &[Vec<u8>; 2], route: Route, commit: (Record, CommitMode), seed: u64) {
    run(start, (route, commit), seed, |v, r| work(v, r, 80), |h, got, what| check(route, h, got, what));
}

/// J10 and Q5, with the log elsewhere.
#[test]
fn a_power_cut_of_both_devices_leaves_what_was_synced_and_nothing_stale() {
    let start = start();
    for commit in COMMITS {
        (1..=RUNS).for_each(|seed| write(&start, Route::Ordered, commit, seed));
        (1..=RUNS / 2).for_each(|seed| write(&start, Route::Journal, commit, seed));
    }
}

/// Any operation, with each way of data: what was synced last and not touched since is there, and nothing stale is.
#[test]
fn every_operation_survives_a_power_cut_of_both_devices() {
    let start = start();
    let routes = [Route::Ordered, Route::Journal, Route::Overwrite, Route::Auto, Route::Selective];
    for (n, route) in routes.into_iter().enumerate() {
        // Each with two of the commits.
        for commit in COMMITS.into_iter().cycle().skip(n % COMMITS.len()).take(2) {
            (1..=RUNS / 2).for_each(|seed| run(&start, (route, commit), seed, change_and_sync, check_synced));
        }
    }
}

/// With the feature `mutants`, as in `make test`.
#[test]
#[cfg(feature = "mutants")]
fn a_commit_that_flushes_nothing_first_is_found_with_the_log_elsewhere() {
    use quire_device::Mutant;
    let start = start();
    for commit in COMMITS {
        Mutant::set(Some(Mutant::NoFlushBeforeCommit));
        let survives = |seed| std::panic::catch_unwind(|| write(&start, Route::Ordered, commit, seed)).is_ok();
        let found = (1..100).find(|seed| !survives(*seed));
        Mutant::set(None);
        println!("{commit:?}: run {}", found.expect("not found"));
    }
}
