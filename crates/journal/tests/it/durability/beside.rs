//! Checkpoints of everything beside commits.

use super::setup::{BS, HOMES, Hooked, LOG_BLOCKS, home, image, nvram_journal, put, styled, unrecovered};
use quire_device::nvram::NvramStats;
use quire_device::sync::{Arc, Mutex, lock, thread};
use quire_device::{BlockDevice, Io, Nvram, Region};
use quire_journal::{Checkpoint, Journal, LogChoices, Record};
use quire_layout::Tid;
use quire_testkit::{Image, MemDevice, NvramModel, PowerLossDevice, PowerLossOptions};
use std::sync::mpsc;
use std::time::Duration;

const REGIONS: LogChoices = LogChoices::in_nvram(Record::Delta, Checkpoint::Regions(2));
const FS: [u8; 16] = [9; 16];

/// A memory that calls back, once, when a commit asks whether bytes were lost: the transaction is stored then, and the
/// journal does not know yet that it is durable.
struct Asked {
    inner: Arc<NvramModel>,
    then: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Nvram for Asked {
    fn size(&self) -> u64 {
        self.inner.size()
    }
    fn fresh_uuid(&self) -> [u8; 16] {
        self.inner.fresh_uuid()
    }
    fn read(&self, at: u64, buf: &mut [u8]) {
        self.inner.read(at, buf);
    }
    fn store(&self, at: u64, bytes: &[u8]) {
        self.inner.store(at, bytes);
    }
    fn fence(&self) {
        self.inner.fence();
    }
    fn is_lost(&self) -> bool {
        let then = lock(&self.then).take();
        if let Some(then) = then {
            then();
        }
        false
    }
    fn stats(&self) -> NvramStats {
        self.inner.stats()
    }
}

/// A journal in a memory with two regions, in which block 0 has been committed; and what is below it.
struct Regions {
    disk: Arc<PowerLossDevice>,
    memory: Arc<Asked>,
    j: Arc<Journal>,
}

impl Regions {
    fn new() -> Self {
        let image = Image::from_bytes(&image(Tid(1)));
        let disk = Arc::new(PowerLossDevice::from_image(image, PowerLossOptions::default()));
        let inner = Arc::new(NvramModel::new(vec![0; 160 << 10]));
        let memory = Arc::new(Asked { inner, then: Mutex::new(None) });
        let j = Arc::new(nvram_journal(disk.clone(), memory.clone(), FS, REGIONS));
        let r = Regions { disk, memory, j };
        r.commit(1);
        r
    }

    fn commit(&self, fill: u8) {
        put(&self.j, home(0), fill);
        self.j.commit_all().unwrap();
    }

    /// While the next commit is between its store and its end.
    fn during_commit(&self, then: impl FnOnce() + Send + 'static) {
        *lock(&self.memory.then) = Some(Box::new(then));
    }

    /// Begins a checkpoint of everything in the middle of a commit, and tells whether it has ended before the commit,
    /// or when it has.
    fn commit_beside_checkpoint(&self, fill: u8) -> (bool, mpsc::Receiver<()>) {
        let (j, (tell, told)) = (self.j.clone(), mpsc::channel());
        let (pass, passed) = mpsc::channel();
        self.during_commit(move || {
            thread::spawn(move || {
                j.checkpoint_now().unwrap();
                tell.send(()).ok();
            });
            // It ends soon, unless it waits for this commit.
            let ended = told.recv_timeout(Duration::from_millis(200)).is_ok();
            pass.send((ended, told)).unwrap();
        });
        self.commit(fill);
        passed.recv().unwrap()
    }

    /// What a crash now leaves of block 0, recovered.
    fn crash(&self) -> u8 {
        let left = PowerLossDevice::from_image(self.disk.crash(1).image, PowerLossOptions::default());
        let there: Arc<dyn BlockDevice> = Arc::new(left);
        let stored = Arc::new(NvramModel::new(self.memory.inner.crash_point().crash(1)));
        let log = unrecovered(&there).with_nvram(Some(stored), FS);
        let plan = log.scan(u64::from(LOG_BLOCKS) + HOMES, &mut |_| {}).unwrap();
        assert!(!plan.is_damaged(), "{plan}");
        log.replay(plan, &there, None, &mut |_| {}).unwrap();
        there.read(home(0).0 * BS as u64, BS, Region::Metadata).unwrap()[0]
    }
}

const LONG: Duration = Duration::from_secs(20);

/// Q6, V6: a commit has written a delta over an image in the region in use, and a checkpoint of everything comes before
/// the journal knows of it.
#[test]
fn a_checkpoint_of_the_region_in_use_waits_for_the_commit_that_has_chosen_its_bases() {
    let r = Regions::new();
    let (has_ended, ends) = r.commit_beside_checkpoint(2);
    if !has_ended {
        ends.recv_timeout(LONG).expect("the checkpoint ends");
    }
    assert_eq!((r.j.stats().delta_records, r.j.stats().checkpoints), (1, 1));
    assert_eq!(r.crash(), 2);
    r.commit(3);
    assert_eq!((r.j.stats().delta_records, r.crash()), (1, 3), "a new chain");
}

/// J15: a commit that chooses its bases meanwhile is not waited for.
#[test]
fn a_checkpoint_of_the_region_in_use_waits_for_one_commit_only() {
    let r = Regions::new();
    let (has_ended, ends) = r.commit_beside_checkpoint(2);
    assert!(!has_ended, "it waits for the first");
    r.during_commit(move || ends.recv_timeout(LONG).expect("the checkpoint does not wait for the next commit"));
    r.commit(3);
    assert_eq!(r.crash(), 3);
}

/// J15: each home write of a checkpoint of everything sees one more commit.
fn ends(device: &Hooked<MemDevice>, j: &Arc<Journal>) {
    put(j, home(40), 1);
    j.commit_all().unwrap();
    let (theirs, mut commits) = (j.clone(), 0u8);
    device.hook(move |io| {
        if matches!(io, Io::Write { region: Region::Metadata, .. }) {
            commits += 1;
            assert!(commits < 100, "the checkpoint goes on with what is committed after it has begun");
            put(&theirs, home(u64::from(commits % 32)), commits);
            theirs.commit_all().unwrap();
        }
    });
    j.checkpoint_now().unwrap();
    let s = j.stats();
    assert_eq!((s.checkpoints, s.memory.in_log), (1, 1));
}

#[test]
fn a_checkpoint_of_everything_ends_while_others_commit() {
    let device = Arc::new(Hooked::new(MemDevice::new(image(Tid(5)))));
    ends(&device, &Arc::new(styled(device.clone(), 1 << 20, LogChoices::JBD2)));
}

#[test]
fn a_checkpoint_of_everything_in_nvram_ends_while_others_commit() {
    let device = Arc::new(Hooked::new(MemDevice::new(image(Tid(5)))));
    let memory = Arc::new(NvramModel::new(vec![0; 160 << 10]));
    ends(&device, &Arc::new(nvram_journal(device.clone(), memory, FS, REGIONS)));
}
