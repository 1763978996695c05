//! A log in NVRAM and its image, at different times and with strangers; regions that fill up, and the figures of all
//! that.

use super::setup::{BS, HOMES, LOG_BLOCKS, home, image, put, unrecovered};
use quire_device::sync::Arc;
use quire_device::{BlockDevice, FlushGate, Nvram, SystemClock};
use quire_journal::recover::Plan;
use quire_journal::{
    Checkpoint, Error, Journal, JournalConfig, LogChoices, NvramLayout, NvramLog, NvramProblem, Record,
};
use quire_layout::{BlockSize, Tid};
use quire_testkit::{Image, NvramModel, PowerLossDevice, PowerLossOptions};

const FS: [u8; 16] = [9; 16];

fn journal(device: &Arc<PowerLossDevice>, memory: &Arc<NvramModel>, checkpoint: Checkpoint) -> Journal {
    let device: Arc<dyn BlockDevice> = device.clone();
    let gate = Arc::new(FlushGate::new(device.clone()));
    let clean = unrecovered(&device).into_clean().unwrap_or_else(|_| panic!("an empty log"));
    let (mut log, _) = clean.into_log(gate.clone(), true).unwrap();
    let choices = LogChoices::in_nvram(Record::Delta, checkpoint);
    log.set_nvram(NvramLog::take(memory.clone(), FS, NvramLayout::of(choices, BlockSize::K1).unwrap()).unwrap());
    let config = JournalConfig::new(BlockSize::K1, Arc::new(SystemClock), 1 << 20);
    Journal::with_log(gate, log, JournalConfig { choices, ..config })
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
    let j = journal(&disk, &memory(), Checkpoint::Regions(2));
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
    let j = journal(&disk, &memory, Checkpoint::Regions(2));
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
        let j = journal(&disk, &memory, Checkpoint::Regions(2));
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
