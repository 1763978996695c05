//! A log in NVRAM and its image, at different times and with strangers; regions that fill up, and the figures of all
//! that.

use super::setup::{BS, HOMES, Hooked, LOG_BLOCKS, home, image, nvram_journal, put, unrecovered};
use quire_device::sync::{Arc, Mutex, lock};
use quire_device::{BlockDevice, Counted, Nvram};
use quire_journal::recover::{Plan, list_nvram};
use quire_journal::{Checkpoint, Error, Journal, LogChoices, NvramLayout, NvramLog, NvramProblem, Record};
use quire_layout::nvlog::{LINE, head};
use quire_layout::qlog::RECORD;
use quire_layout::{BlockSize, Tid};
use quire_testkit::{Image, MemDevice, NvramModel, PowerLossDevice, PowerLossOptions};
use std::collections::HashSet;

const FS: [u8; 16] = [9; 16];

fn journal(
    device: &Arc<impl BlockDevice + 'static>,
    memory: &Arc<NvramModel>,
    record: Record,
    checkpoint: Checkpoint,
) -> Journal {
    nvram_journal(device.clone(), memory.clone(), FS, LogChoices::in_nvram(record, checkpoint))
}

fn memory() -> Arc<NvramModel> {
    Arc::new(NvramModel::new(vec![0; 160 << 10]))
}

fn device(image: Image) -> Arc<PowerLossDevice> {
    Arc::new(PowerLossDevice::from_image(image, PowerLossOptions::default()))
}

fn commit(j: &Journal, block: u64, fill: u8) -> Tid {
    let tid = put(j, home(block), fill);
    j.commit(tid).unwrap();
    tid
}

fn scan(image: &Image, memory: Option<Vec<u8>>, fs: [u8; 16]) -> Result<Plan, Error> {
    let device: Arc<dyn BlockDevice> = device(image.clone());
    let memory = memory.map(|m| Arc::new(NvramModel::new(m)) as Arc<dyn Nvram>);
    unrecovered(&device).with_nvram(memory, fs).scan(u64::from(LOG_BLOCKS) + HOMES, &mut |_| {})
}

fn problem(r: Result<Plan, Error>) -> NvramProblem {
    match r {
        Err(Error::Nvram(p)) => p,
        other => panic!("{other:?}"),
    }
}

/// Q5: commits leave the disk alone; data that one is going to name is flushed by who wrote it.
#[test]
fn data_is_flushed_before_it_is_named() {
    let disk = device(Image::from_bytes(&image(Tid(1))));
    let j = journal(&disk, &memory(), Record::Delta, Checkpoint::Regions(2));
    let stamp = j.gate().stamp();
    commit(&j, 0, 1);
    assert!(!j.gate().is_durable(stamp));
    assert!(j.log_is_apart());
    j.gate().ensure(stamp).unwrap();
    assert!(j.gate().is_durable(stamp));
}

/// V5, V7.
#[test]
fn older_copies_are_refused() {
    let (disk, memory) = (device(Image::from_bytes(&image(Tid(1)))), memory());
    let j = journal(&disk, &memory, Record::Delta, Checkpoint::Regions(2));
    (0..3).for_each(|n| {
        commit(&j, n, 1);
    });
    let (old_image, old_memory) = (disk.live(), memory.live());
    assert_eq!(scan(&old_image, Some(old_memory.clone()), FS).unwrap().transactions, 3);
    (0..3).for_each(|n| {
        commit(&j, n, 2);
    });
    j.checkpoint_now().unwrap();
    commit(&j, 5, 3);
    let (new_image, new_memory) = (disk.live(), memory.live());
    assert_eq!(scan(&new_image, Some(new_memory.clone()), FS).unwrap().transactions, 1);
    assert!(matches!(problem(scan(&old_image, Some(new_memory.clone()), FS)), NvramProblem::OlderImage { .. }));
    assert!(matches!(problem(scan(&new_image, Some(old_memory), FS)), NvramProblem::OlderMemory { .. }));
    assert!(matches!(problem(scan(&new_image, None, FS)), NvramProblem::NotGiven { .. }));
    assert_eq!(problem(scan(&new_image, Some(vec![0; 160 << 10]), FS)), NvramProblem::NoLabel);
    let stranger = problem(scan(&new_image, Some(new_memory.clone()), [1; 16]));
    assert_eq!(stranger, NvramProblem::OtherFileSystem { found: FS });
    // The next use of the log is another one.
    j.empty_log().unwrap();
    commit(&j, 6, 4);
    assert_eq!(problem(scan(&new_image, Some(memory.live()), FS)), NvramProblem::OtherUse);
    // Who needs it keeps it.
    let layout = NvramLayout::of(LogChoices::in_nvram(Record::Delta, Checkpoint::Lazy), BlockSize::K1).unwrap();
    let Err(Error::Nvram(p)) = NvramLog::take(memory.clone(), [1; 16], layout) else { panic!("taken") };
    assert_eq!(p, NvramProblem::Needed { uuid: FS, same: false });
    j.empty_log().unwrap();
    assert!(NvramLog::take(memory, [1; 16], layout).is_ok(), "an empty log is free");
}

/// A filled region goes home in the background; without it commits stall, are counted, and lose nothing.
#[test]
fn regions_go_home_and_commits_stall_when_all_are_full() {
    for background in [true, false] {
        let (disk, memory) = (device(Image::from_bytes(&image(Tid(1)))), memory());
        let j = journal(&disk, &memory, Record::Delta, Checkpoint::Regions(2));
        let before = disk.writes_and_flushes().1;
        let mut fill = 0u8;
        for n in 0..2000u64 {
            fill = fill.wrapping_add(1);
            commit(&j, n % 50, fill);
            if background {
                while j.checkpoint_step().unwrap() {}
            }
        }
        let s = j.stats();
        let n = s.nvram.unwrap();
        assert!(n.switches > 2 && s.delta_records > 1000 && s.whole_records >= 50 * n.switches, "{s:?}");
        assert_eq!(n.stalls > 0, !background, "{n:?}");
        let flushes = disk.writes_and_flushes().1 - before;
        assert!(flushes <= n.switches + 1, "{flushes} flushes for {} regions", n.switches);
        // Two fences to a commit; labels have one each.
        assert!((4000..4100).contains(&n.fences), "{}", n.fences);
        j.empty_log().unwrap();
        let live = disk.live();
        for b in 0..50u64 {
            let mut bytes = vec![0; BS];
            live.read(home(b).0 * BS as u64, &mut bytes);
            let last = (0..2000u64).rev().find(|n| n % 50 == b).unwrap();
            let want = u8::try_from((last + 1) % 256).unwrap();
            assert!(bytes.iter().all(|x| *x == want), "block {b}");
        }
    }
}

/// DJFS, section V.3: in a new region each block is logged whole first, and the region that was left goes home with one
/// flush. No write has FUA: the journal's superblock is written with the homes, the label that frees the region is in
/// the memory.
#[test]
fn a_region_switch_logs_whole_blocks_again_and_takes_one_flush() {
    let disk = Arc::new(Counted::new(MemDevice::new(image(Tid(1)))));
    let j = journal(&disk, &memory(), Record::Delta, Checkpoint::Regions(2));
    // The first commit has the image name the memory.
    commit(&j, 0, 0xEE);
    let (mut whole, mut switches) = (HashSet::from([0]), 0);
    for n in 0..2500u64 {
        let (before, device) = (j.stats(), disk.snapshot());
        commit(&j, n % 10, u8::try_from(n % 200 + 1).unwrap());
        let after = j.stats();
        let switched = after.nvram.unwrap().switches - before.nvram.unwrap().switches;
        if switched > 0 {
            whole.clear();
        }
        let is_first = u64::from(whole.insert(n % 10));
        let logged = (after.whole_records - before.whole_records, after.delta_records - before.delta_records);
        assert_eq!(logged, (is_first, 1 - is_first), "commit {n}");
        while j.checkpoint_step().unwrap() {}
        let d = disk.snapshot().since(&device);
        assert_eq!((d.flushes.count, d.total(|r| r.fua).count), (switched, 0), "commit {n}: {d:?}");
        switches += switched;
    }
    assert!(switches > 2, "{switches}");
}

/// DJFS, section V.2: of descriptor and commit the bytes that they use are logged, in whole lines. NVJ logs whole
/// blocks, as a journal on a disk.
#[test]
fn descriptor_and_commit_take_what_they_use_and_whole_blocks_without_deltas() {
    let used = (head::LEN + RECORD).next_multiple_of(usize::try_from(LINE).unwrap());
    for (record, metadata) in [(Record::Delta, used + size_of::<u64>()), (Record::Block, 2 * BS)] {
        let (disk, memory) = (device(Image::from_bytes(&image(Tid(1)))), memory());
        let j = journal(&disk, &memory, record, Checkpoint::Regions(2));
        // The first commit stores a label, too.
        commit(&j, 0, 1);
        let before = (memory.stats().bytes, j.stats().nvram.unwrap().metadata_bytes);
        commit(&j, 1, 2);
        let stored = (memory.stats().bytes - before.0, j.stats().nvram.unwrap().metadata_bytes - before.1);
        assert_eq!(stored, ((metadata + BS) as u64, metadata as u64), "{record:?}");
    }
}

/// DJFS, section V.2: the block takes in what is written to it between two commits, of which one difference is logged.
#[test]
fn a_block_that_changes_twice_in_a_transaction_is_one_delta() {
    let disk = device(Image::from_bytes(&image(Tid(1))));
    let j = journal(&disk, &memory(), Record::Delta, Checkpoint::Regions(2));
    commit(&j, 0, 1);
    let before = j.stats();
    put(&j, home(0), 2);
    commit(&j, 0, 3);
    let after = j.stats();
    let logged = (after.whole_records - before.whole_records, after.delta_records - before.delta_records);
    assert_eq!(logged, (0, 1));
}

/// Whether the memory may be taken for the next mount of this file system.
fn take(memory: &Arc<NvramModel>) -> Result<(), Error> {
    let layout = NvramLayout::of(LogChoices::in_nvram(Record::Delta, Checkpoint::Regions(2)), BlockSize::K1).unwrap();
    NvramLog::take(memory.clone(), FS, layout).map(drop)
}

/// A disk and its memory after a crash, with three transactions in the memory; the second is damaged.
fn damaged() -> (Image, Arc<NvramModel>) {
    let (disk, memory) = (device(Image::from_bytes(&image(Tid(1)))), memory());
    let j = journal(&disk, &memory, Record::Delta, Checkpoint::Regions(2));
    (0..3).for_each(|n| {
        commit(&j, n, 1);
    });
    let (label, found, _) = list_nvram(&*memory, 3).unwrap();
    let mut stored = memory.live();
    stored[usize::try_from(label.place(found[1].position)).unwrap() + head::LEN] ^= 1;
    (disk.live(), Arc::new(NvramModel::new(stored)))
}

/// Recovers what is whole.
fn recover_damaged(disk: &Arc<dyn BlockDevice>, memory: &Arc<NvramModel>) -> Plan {
    let log = unrecovered(disk).with_nvram(Some(memory.clone()), FS);
    let plan = log.scan(u64::from(LOG_BLOCKS) + HOMES, &mut |_| {}).unwrap();
    log.replay(plan.clone(), disk, None, &mut |_| {}).unwrap();
    plan
}

/// V11.
#[test]
fn a_memory_whose_damaged_log_was_recovered_is_free_for_the_next_mount() {
    let (left, memory) = damaged();
    let disk = device(left);
    let plan = recover_damaged(&(disk.clone() as Arc<dyn BlockDevice>), &memory);
    assert_eq!((plan.transactions, plan.failed_commit), (1, Some(Tid(2))), "{plan}");
    let j = journal(&disk, &memory, Record::Delta, Checkpoint::Regions(2));
    commit(&j, 0, 2);
    assert_eq!(scan(&disk.live(), Some(memory.live()), FS).unwrap().transactions, 1);
}

/// V11, R1: the power goes when the journal is empty and the memory is as it was.
#[test]
fn a_damaged_memory_that_a_power_cut_left_is_given_up_by_the_next_recovery() {
    let (left, memory) = damaged();
    let mut bytes = image(Tid(1));
    left.read(0, &mut bytes);
    let disk = Arc::new(Hooked::new(MemDevice::new(bytes)));
    let last = Arc::new(Mutex::new(Vec::new()));
    let (out, theirs) = (last.clone(), memory.clone());
    disk.hook(move |_| *lock(&out) = theirs.live());
    let there: Arc<dyn BlockDevice> = disk.clone();
    recover_damaged(&there, &memory);
    let memory = Arc::new(NvramModel::new(lock(&last).clone()));
    assert!(matches!(take(&memory), Err(Error::Nvram(NvramProblem::Needed { same: true, .. }))));
    assert_eq!(recover_damaged(&there, &memory).transactions, 0);
    take(&memory).unwrap();
}

/// What recovery makes of a disk and its memory, whose power may go meanwhile.
fn recover(disk: &Arc<PowerLossDevice>, memory: &Arc<NvramModel>) -> Result<(), Error> {
    let there: Arc<dyn BlockDevice> = disk.clone();
    let log = unrecovered(&there).with_nvram(Some(memory.clone() as Arc<dyn Nvram>), FS);
    let plan = log.scan(u64::from(LOG_BLOCKS) + HOMES, &mut |_| {})?;
    assert!(!plan.is_damaged(), "{plan}");
    log.replay(plan, &there, None, &mut |_| {}).map(drop)
}

/// The power goes at each step of the recovery of what a crash has left, and then stays: the blocks are as these.
fn recovers_from_every_cut(left: &Image, stored: &[u8], blocks: &[u8], what: &str) {
    for cut in 0.. {
        assert!(cut < 100, "{what}: recovery has no end");
        let (disk, memory) = (device(left.clone()), Arc::new(NvramModel::new(stored.to_vec())));
        disk.cut_at(disk.steps() + 1 + cut);
        let is_over = recover(&disk, &memory).is_ok();
        let (again, memory) = (disk.crash(cut).image, memory.crash_point().crash(cut));
        let disk = device(again);
        recover(&disk, &Arc::new(NvramModel::new(memory))).unwrap_or_else(|e| panic!("{what}, cut {cut}: {e}"));
        let live = disk.live();
        for (n, want) in (0u64..).zip(blocks) {
            let mut bytes = vec![0; BS];
            live.read(home(n).0 * BS as u64, &mut bytes);
            assert!(bytes.iter().all(|b| b == want), "{what}, cut {cut}: block {n} is not {want}");
        }
        if is_over {
            return;
        }
    }
}

/// DJFS, section V.4: the power goes at each step while a region goes home, and again while that is recovered.
#[test]
fn a_power_cut_while_a_region_goes_home_and_one_in_recovery_lose_no_commit() {
    for cut in 0.. {
        let (disk, memory) = (device(Image::from_bytes(&image(Tid(1)))), memory());
        let j = journal(&disk, &memory, Record::Delta, Checkpoint::Regions(2));
        let mut blocks = [0; 10];
        for n in 0.. {
            let fill = u8::try_from(n % 200 + 1).unwrap();
            commit(&j, n % 10, fill);
            blocks[usize::try_from(n % 10).unwrap()] = fill;
            if j.stats().nvram.unwrap().switches > 0 {
                break;
            }
        }
        disk.cut_at(disk.steps() + 1 + cut);
        let is_over = j.checkpoint_step().is_ok() && !disk.is_cut();
        for seed in 0..4 {
            let (left, stored) = (disk.crash(seed).image, memory.crash_point().crash(seed));
            recovers_from_every_cut(&left, &stored, &blocks, &format!("checkpoint cut at {cut}, seed {seed}"));
        }
        if is_over {
            assert!(cut > 2, "a region goes home in {cut} steps");
            return;
        }
    }
}
