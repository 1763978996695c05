//! The journal in NVRAM: what an fsync asks of the device, and what base images take.

use crate::config::Profile;
use crate::data::WriteFlags;
use crate::{Cred, Devices, New, NewKind, Options, Volume};
use quire_device::sync::Arc;
use quire_device::{Counted, SystemClock};
use quire_layout::Ino;
use quire_testkit::{MemDevice, NvramModel};
use quire_testkit::{fsck, mke2fs};

const BLOCK: u64 = 4096;

struct Mounted {
    memory: Arc<MemDevice>,
    device: Arc<Counted<Arc<MemDevice>>>,
    volume: Volume,
    ino: Ino,
}

/// A volume with a file of so many blocks; nobody does background work.
fn mounted(profile: Profile, nvram: usize, cache_bytes: u64, blocks: u64) -> Mounted {
    let memory = Arc::new(MemDevice::new(mke2fs("64M", &["-t", "ext4", "-b", "4096"])));
    let device = Arc::new(Counted::new(memory.clone()));
    let devices = Devices::one(device.clone()).with_nvram(Arc::new(NvramModel::new(vec![0; nvram])));
    let options = Options { cache_bytes, ..Options::default() }.with(profile.choices());
    let volume = Volume::open(devices, Arc::new(SystemClock), options).unwrap();
    let new = New { kind: NewKind::File, mode: 0o600, umask: 0, cred: Cred::default() };
    let ino = volume.create(Ino::ROOT, b"f", &new).unwrap().ino;
    volume.write(ino, 0, &vec![1; usize::try_from(blocks * BLOCK).unwrap()], WriteFlags::default()).unwrap();
    volume.fsync(ino, false).unwrap();
    Mounted { memory, device, volume, ino }
}

impl Mounted {
    fn overwrite(&self, n: u64) {
        let bytes = vec![u8::try_from(n % 251).unwrap(); usize::try_from(BLOCK).unwrap()];
        self.volume.write(self.ino, n * BLOCK, &bytes, WriteFlags::default()).unwrap();
        self.volume.fsync(self.ino, false).unwrap();
    }

    fn check(self) {
        self.volume.close().unwrap();
        fsck(&self.memory.snapshot());
    }
}

/// With `data=journal` an fsync is no flush, no FUA write, no journal write: no operation at all.
#[test]
fn an_fsync_into_nvram_asks_nothing_of_the_device() {
    for profile in [Profile::Nvj, Profile::Djfs, Profile::Djfs4] {
        let m = mounted(profile, 16 << 20, 64 << 20, 64);
        let before = m.device.snapshot();
        for n in 0..200 {
            m.overwrite(n % 64);
        }
        let d = m.device.snapshot().since(&before);
        let writes = d.total(|r| r.writes).count + d.total(|r| r.zeroes).count;
        assert_eq!((d.flushes.count, d.total(|r| r.fua).count, writes), (0, 0, 0), "{profile}: {d:?}");
        assert_eq!(d.total(|r| r.reads).count, 0, "{profile}: {d:?}");
        assert!(m.volume.maintenance().journal_stats().transactions > 200);
        m.check();
    }
}

/// DJFS, figure 6: a transaction that a power loss tore is dropped, and a block is its whole image with all committed
/// deltas over it. What the memory holds is looked at after every few of its stores.
#[test]
fn a_torn_transaction_in_nvram_is_dropped_and_deltas_are_merged() {
    const COMMITS: u64 = 16;
    for profile in [Profile::Djfs, Profile::Djfs4] {
        let options = || Options::default().with(profile.choices());
        let device = Arc::new(MemDevice::new(mke2fs("8M", &["-t", "ext4", "-b", "4096"])));
        let nvram = Arc::new(NvramModel::new(vec![0; 1 << 20]).recording(|| 0));
        let devices = Devices::one(device.clone()).with_nvram(nvram.clone());
        let v = Volume::open(devices, Arc::new(SystemClock), options()).unwrap();
        let new = New { kind: NewKind::File, mode: 0o600, umask: 0, cred: Cred::default() };
        let ino = v.create(Ino::ROOT, b"f", &new).unwrap().ino;
        let mut file = vec![1; 4 * 4096];
        v.write(ino, 0, &file, WriteFlags::default()).unwrap();
        v.fsync(ino, false).unwrap();
        let events = || nvram.recorded().unwrap().len();
        let (first, home) = (events(), device.snapshot());
        let mut states = vec![(first, file.clone())];
        for n in 0..COMMITS {
            let at = usize::try_from(n % 4 * 4096 + n * 100).unwrap();
            file[at..at + 100].fill(u8::try_from(n + 2).unwrap());
            v.write(ino, at as u64, &file[at..at + 100], WriteFlags::default()).unwrap();
            v.fsync(ino, false).unwrap();
            states.push((events(), file.clone()));
        }
        assert!(v.maintenance().journal_stats().delta_records > COMMITS / 2);
        assert!(device.snapshot() == home, "nothing went home");
        let recording = nvram.recorded().unwrap();
        let mut torn = 0;
        for (at, (_, point)) in recording.crash_points().enumerate().skip(first).step_by(3) {
            for seed in 0..3 {
                let devices = Devices::one(Arc::new(MemDevice::new(home.clone())));
                let devices = devices.with_nvram(Arc::new(NvramModel::new(point.crash(seed))));
                let v = Volume::open(devices, Arc::new(SystemClock), options()).unwrap();
                let mut got = vec![0; 4 * 4096];
                assert_eq!(v.read(ino, 0, &mut got).unwrap(), got.len());
                let last = states.iter().rposition(|(end, _)| *end <= at).unwrap();
                let is_next = states.get(last + 1).is_some_and(|(_, next)| *next == got);
                assert!(
                    got == states[last].1 || is_next,
                    "{profile}, store {at}, seed {seed}: a part of a transaction"
                );
                torn += u64::from(!point.is_certain() && !is_next);
            }
        }
        assert!(torn > COMMITS, "{profile}: {torn} torn transactions were dropped");
    }
}

/// V9: base images, and all else that the log pins, take twice the cache's size at most, though the log has room for
/// many more.
#[test]
fn base_images_are_bounded_by_the_cache() {
    const BLOCKS: u64 = 6000;
    // What is pinned in any case.
    const LEAST: u64 = 4 << 20;
    for profile in [Profile::Nvj, Profile::Djfs, Profile::Djfs4] {
        let m = mounted(profile, 64 << 20, LEAST, BLOCKS);
        let mut most = 0;
        for n in 0..BLOCKS {
            m.overwrite(n * 7 % BLOCKS);
            most = most.max(m.volume.maintenance().journal_stats().memory.live as u64 * BLOCK);
        }
        assert!(most <= 2 * LEAST + (64 << 10), "{profile}: {most} bytes");
        assert!(most > LEAST / 2, "{profile}: {most} bytes: nothing was bounded");
        m.check();
    }
}
