//! A journal whose last blocks are the kernel's for fast commits: the log leaves them alone, and what it holds is found
//! after a crash by a reader that knows of no such area (J14).

use super::setup::{BS, Hooked, put};
use quire_device::sync::atomic::{AtomicU32, Ordering};
use quire_device::sync::{Arc, Mutex, lock};
use quire_device::{BlockDevice, FlushGate, Io, Region, SystemClock};
use quire_journal::geometry::LogGeometry;
use quire_journal::recover::UnrecoveredLog;
use quire_journal::{CommitMode, Journal, JournalConfig, LogChoices, LogRun, Record};
use quire_layout::jbd2::JournalSuperblock;
use quire_layout::{BlockNo, BlockSize, LogBlock, Tid};
use quire_testkit::{Image, MemDevice, PowerLossDevice, PowerLossOptions};

/// Blocks of the journal, and of its log: what jbd2 leaves when it takes 256 blocks for fast commits.
const BLOCKS: u32 = 1400;
const LOG_END: u32 = BLOCKS - 256;
const HOMES: u64 = 9;

fn home(n: u64) -> BlockNo {
    BlockNo(u64::from(BLOCKS) + n)
}

fn image(blocks: u32) -> Vec<u8> {
    let mut bytes = vec![0; BS * usize::try_from(u64::from(BLOCKS) + HOMES).unwrap()];
    let mut sb = JournalSuperblock::new(BlockSize::K1, blocks, LogBlock(1), [7; 16]);
    sb.set_sequence(Tid(5));
    bytes[..sb.bytes().len()].copy_from_slice(sb.bytes());
    bytes
}

fn unrecovered(device: &Arc<dyn BlockDevice>) -> UnrecoveredLog {
    let runs = vec![LogRun { log: LogBlock(0), home: BlockNo(0), len: BLOCKS }];
    UnrecoveredLog::open(LogGeometry::internal(device.clone(), BlockSize::K1, runs).unwrap()).unwrap()
}

/// The journal of a file system with fast commits.
fn journal(device: Arc<dyn BlockDevice>, choices: LogChoices) -> Journal {
    let gate = Arc::new(FlushGate::new(device.clone()));
    let clean = unrecovered(&device).into_clean().unwrap_or_else(|_| panic!("an empty log"));
    let (mut log, _) = clean.into_log(gate.clone(), true).unwrap();
    log.spare_fast_commits();
    let config = JournalConfig::new(BlockSize::K1, Arc::new(SystemClock), 1 << 20);
    Journal::with_log(gate, log, JournalConfig { choices, ..config })
}

const QUIRE: LogChoices = LogChoices::on_device(Record::Delta, CommitMode::Checksum);

/// The content of a home after operation `n`.
fn content(n: u32) -> Vec<u8> {
    n.to_le_bytes().into_iter().cycle().take(BS).collect()
}

/// Operation `n` fills one of eight homes, and the last one, which tells how many operations there were.
fn operation(j: &Journal, n: u32) {
    let mut h = j.handle();
    for at in [home(u64::from(n % 8)), home(8)] {
        h.put_zeroed(at, BS).unwrap().copy_from_slice(&content(n));
    }
    h.stop().unwrap();
    j.commit_all().unwrap();
}

/// Recovers an image, and returns how many operations it has. Each home has what the last of them gave it.
fn recovered(left: Image) -> u32 {
    let device = Arc::new(PowerLossDevice::from_image(left, PowerLossOptions::default()));
    let there: Arc<dyn BlockDevice> = device.clone();
    let log = unrecovered(&there);
    let plan = log.scan(u64::from(BLOCKS) + HOMES, &mut |_| {}).unwrap();
    assert!(!plan.is_damaged(), "{plan}");
    log.replay(plan, &there, None, &mut |_| {}).unwrap();
    let after = device.durable();
    let block = |n: u64| {
        let mut bytes = vec![0; BS];
        after.read(home(n).0 * BS as u64, &mut bytes);
        bytes
    };
    let ops = u32::from_le_bytes(block(8)[..4].try_into().unwrap());
    for at in 0..8 {
        let last = (1..=ops).rev().find(|n| n % 8 == at).unwrap_or(0);
        assert!(block(u64::from(at)) == content(last), "home {at} after {ops} operations");
    }
    ops
}

/// Writes of the log and of its superblock that lie, or point, behind the log's end; and how often it began anew.
fn watch(device: &Hooked<MemDevice>) -> (Arc<Mutex<Vec<String>>>, Arc<AtomicU32>) {
    let (wrong, rounds) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicU32::new(0)));
    let (out, count) = (wrong.clone(), rounds.clone());
    device.hook(move |io| {
        let Io::Write { at, data, region, .. } = io else { return };
        let (first, len) = (*at / BS as u64, data.len() as u64);
        match region {
            Region::Log => {
                count.fetch_add(u32::from(first == 1), Ordering::Relaxed);
                if first + len > u64::from(LOG_END) {
                    lock(&out).push(format!("{len} blocks of the log at {first}"));
                }
            }
            Region::LogSuperblock => {
                let sb = JournalSuperblock::decode(&data[0]).unwrap();
                let places = [sb.head().0, sb.start().map_or(0, |b| b.0)];
                if places.iter().any(|at| *at >= LOG_END) || sb.fc_blocks() > 0 || sb.len() != BLOCKS {
                    lock(&out).push(format!("head and start at {places:?}"));
                }
            }
            _ => {}
        }
    });
    (wrong, rounds)
}

fn stays_before_the_area(choices: LogChoices) {
    let device = Arc::new(Hooked::new(MemDevice::new(image(BLOCKS))));
    let (wrong, rounds) = watch(&device);
    let j = journal(device.clone(), choices);
    let mut n = 0;
    while rounds.load(Ordering::Relaxed) < 5 {
        n += 1;
        operation(&j, n);
        if n % 101 == 0 {
            assert_eq!(recovered(Image::from_bytes(&device.inner.snapshot())), n);
        }
        assert!(n < 20_000, "the log does not come to its end");
        if n == 700 {
            drop(j.empty_log().unwrap());
        }
    }
    drop(j.empty_log().unwrap());
    assert_eq!(*lock(&wrong), [""; 0]);
}

#[test]
fn a_log_of_jbd2s_leaves_the_blocks_of_fast_commits_alone() {
    stays_before_the_area(LogChoices::JBD2);
}

#[test]
fn a_log_of_quires_leaves_the_blocks_of_fast_commits_alone() {
    stays_before_the_area(QUIRE);
}

/// The power goes at every few steps of a log that goes back to its first block.
fn survives(choices: LogChoices) {
    let options = PowerLossOptions { record: true, ..PowerLossOptions::default() };
    let device = Arc::new(PowerLossDevice::from_image(Image::from_bytes(&image(BLOCKS)), options));
    let j = journal(device.clone(), choices);
    let (mut n, mut promises) = (0, vec![(device.completed(), 0)]);
    while j.stats().checkpoints < 3 {
        n += 1;
        operation(&j, n);
        promises.push((device.completed(), n));
        assert!(n < 20_000, "the log does not come to its end");
    }
    for _ in 0..8 {
        n += 1;
        operation(&j, n);
        promises.push((device.completed(), n));
    }
    for (steps, point) in device.recording().unwrap().crash_points() {
        let at = promises.partition_point(|(at, _)| *at <= steps).max(1) - 1;
        let (_, promised) = promises[at];
        // All steps near the log's ends, where a commit takes more of them.
        let is_near_an_end = promises.get(at + 1).is_some_and(|(next, _)| next - promises[at].0 > 4);
        if !is_near_an_end && !steps.is_multiple_of(37) {
            continue;
        }
        for seed in 0..if point.pending.is_empty() { 1 } else { 4 } {
            let ops = recovered(point.crash(seed).image);
            assert!(ops >= promised, "power cut after {steps} steps, outcome {seed}: {ops} of {promised} operations");
        }
    }
}

#[test]
fn a_power_cut_while_a_log_of_jbd2s_goes_back_to_its_first_block_loses_nothing() {
    survives(LogChoices::JBD2);
}

#[test]
fn a_power_cut_while_a_log_of_quires_goes_back_to_its_first_block_loses_nothing() {
    survives(QUIRE);
}

/// No kernel mounts such a file system, and the log needs the blocks.
#[test]
fn a_journal_without_room_for_both_is_used_whole() {
    let capacity = |blocks| {
        let device: Arc<dyn BlockDevice> = Arc::new(MemDevice::new(image(blocks)));
        let j = journal(device, LogChoices::JBD2);
        put(&j, home(0), 1);
        j.commit_all().unwrap();
        j.stats().log_capacity
    };
    assert_eq!((capacity(1279), capacity(1280)), (1277, 1022));
}
