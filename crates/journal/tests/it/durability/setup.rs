//! A journal on an image of its own, without a file system around it, and a device that calls back.

use quire_device::sync::{Arc, Mutex, lock};
use quire_device::{BlockDevice, DeviceError, DeviceInfo, Done, FlushGate, Io, Nvram, SystemClock, Ticket};
use quire_journal::geometry::LogGeometry;
use quire_journal::recover::UnrecoveredLog;
use quire_journal::{CommitMode, Journal, JournalConfig, LogChoices, LogRun, NvramLayout, NvramLog, Record};
use quire_layout::jbd2::JournalSuperblock;
use quire_layout::{BlockNo, BlockSize, LogBlock, Tid};
use quire_testkit::{PowerLossDevice, PowerLossOptions};

pub(crate) const BS: usize = 1024;
pub(crate) const LOG_BLOCKS: u32 = 1024;
/// The log lies at the start of the image, home blocks behind it.
pub(crate) const HOMES: u64 = 64;

/// Home block `n`.
pub(crate) fn home(n: u64) -> BlockNo {
    assert!(n < HOMES);
    BlockNo(u64::from(LOG_BLOCKS) + n)
}

/// An image with an empty log whose next transaction is `first`, and homes of zeros.
pub(crate) fn image(first: Tid) -> Vec<u8> {
    let mut bytes = vec![0; BS * usize::try_from(u64::from(LOG_BLOCKS) + HOMES).unwrap()];
    let mut sb = JournalSuperblock::new(BlockSize::K1, LOG_BLOCKS, LogBlock(1), [7; 16]);
    sb.set_sequence(first);
    sb.seal();
    bytes[..sb.bytes().len()].copy_from_slice(sb.bytes());
    bytes
}

pub(crate) fn unrecovered(device: &Arc<dyn BlockDevice>) -> UnrecoveredLog {
    let runs = vec![LogRun { log: LogBlock(0), home: BlockNo(0), len: LOG_BLOCKS }];
    let geometry = LogGeometry::internal(device.clone(), BlockSize::K1, runs).unwrap();
    UnrecoveredLog::open(geometry).unwrap()
}

/// Recovers what is on the device.
pub(crate) fn recover(device: &Arc<dyn BlockDevice>) {
    let log = unrecovered(device);
    let plan = log.scan(u64::from(LOG_BLOCKS) + HOMES, &mut |_| {}).unwrap();
    assert!(!plan.is_damaged(), "{plan}");
    log.replay(plan, device, None, &mut |_| {}).unwrap();
}

/// Opens the empty log of a device for writing, in the kernel's format; `cache` bytes for images.
pub(crate) fn journal(device: Arc<dyn BlockDevice>, cache: u64) -> Journal {
    styled(device, cache, LogChoices::JBD2)
}

/// As [`journal`], with a log of Quire's.
pub(crate) fn quire_journal(device: Arc<dyn BlockDevice>, cache: u64, record: Record, commit: CommitMode) -> Journal {
    styled(device, cache, LogChoices::on_device(record, commit))
}

pub(crate) fn styled(device: Arc<dyn BlockDevice>, cache: u64, choices: LogChoices) -> Journal {
    let gate = Arc::new(FlushGate::new(device.clone()));
    let clean = unrecovered(&device).into_clean().unwrap_or_else(|_| panic!("an empty log"));
    let (log, _) = clean.into_log(gate.clone(), true).unwrap();
    let config = JournalConfig::new(BlockSize::K1, Arc::new(SystemClock), cache);
    Journal::with_log(gate, log, JournalConfig { choices, ..config })
}

/// As [`styled`], with the log in a memory.
pub(crate) fn nvram_journal(
    device: Arc<dyn BlockDevice>,
    memory: Arc<dyn Nvram>,
    fs: [u8; 16],
    choices: LogChoices,
) -> Journal {
    let gate = Arc::new(FlushGate::new(device.clone()));
    let clean = unrecovered(&device).into_clean().unwrap_or_else(|_| panic!("an empty log"));
    let (mut log, _) = clean.into_log(gate.clone(), true).unwrap();
    log.set_nvram(NvramLog::take(memory, fs, NvramLayout::of(choices, BlockSize::K1).unwrap()).unwrap());
    let config = JournalConfig::new(BlockSize::K1, Arc::new(SystemClock), 1 << 20);
    Journal::with_log(gate, log, JournalConfig { choices, ..config })
}

/// Loses power at two steps of recovery; returns what is left.
pub(crate) fn recover_with_power_cuts(device: Arc<PowerLossDevice>, seed: u64) -> Arc<PowerLossDevice> {
    let mut device = device;
    for cut in [seed % 5, seed / 5 % 7] {
        device.cut_at(device.steps() + cut);
        let there: Arc<dyn BlockDevice> = device.clone();
        let log = unrecovered(&there);
        if let Ok(plan) = log.scan(u64::from(LOG_BLOCKS) + HOMES, &mut |_| {}) {
            log.replay(plan, &there, None, &mut |_| {}).ok();
        }
        let left = device.crash(seed ^ cut << 20).image;
        device = Arc::new(PowerLossDevice::from_image(left, PowerLossOptions::default()));
    }
    device
}

/// One operation that fills a block.
pub(crate) fn put(j: &Journal, b: BlockNo, fill: u8) -> Tid {
    let mut h = j.handle();
    h.put_zeroed(b, BS).unwrap().fill(fill);
    h.stop().unwrap()
}

type Hook = dyn FnMut(&Io) + Send;

/// A device that shows every operation to a hook before it happens. The hook may use the device, too: it is not called
/// for that.
pub(crate) struct Hooked<D> {
    pub(crate) inner: D,
    hook: Mutex<Option<Box<Hook>>>,
}

impl<D: BlockDevice> Hooked<D> {
    pub(crate) fn new(inner: D) -> Self {
        Hooked { inner, hook: Mutex::new(None) }
    }

    pub(crate) fn hook(&self, f: impl FnMut(&Io) + Send + 'static) {
        *lock(&self.hook) = Some(Box::new(f));
    }
}

impl<D: BlockDevice> BlockDevice for Hooked<D> {
    fn info(&self) -> DeviceInfo {
        self.inner.info()
    }

    fn submit(&self, batch: Vec<Io>) -> Ticket {
        let taken = lock(&self.hook).take();
        if let Some(mut f) = taken {
            batch.iter().for_each(&mut f);
            lock(&self.hook).get_or_insert(f);
        }
        self.inner.submit(batch)
    }

    fn wait(&self, ticket: Ticket) -> Result<Done, DeviceError> {
        self.inner.wait(ticket)
    }
}
