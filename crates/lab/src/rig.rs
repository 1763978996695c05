//! A rig: Quire's library on modelled devices in virtual time. Threads of a workload run on it as many programs do on a
//! machine whose processors cost nothing; what is left is what the devices cost. Every run of the same workload takes
//! the same time.
//!
//! ```text
//! workload threads ── Volume ── Counted ── Modelled ── MemDevice        [a second such column: the journal's device]
//! background thread ── step()        one clock: VirtualThreads
//! ```

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use quire_device::sync::Arc;
use quire_device::{Clock, Counted, DeviceStats, Nvram, NvramMap, NvramOptions, NvramStats, Region};
use quire_fs::{Cred, Devices, New, NewKind, Options, Profile, Stop, Volume};
use quire_layout::Ino;
use quire_layout::features::compat;
use quire_layout::superblock::{self, Superblock};
use quire_testkit::{MemDevice, Model, Modelled, VirtualThreads};

use crate::cmd::{command, run, text};
use crate::interrupt::Folder;
use crate::stock::{self, JournalThread, Stock};

/// A modelled device in memory whose operations are counted.
pub type Disk = Counted<Modelled<Arc<MemDevice>>>;

/// What a thread of a workload does.
pub type Body<'a, T> = Box<dyn FnOnce() -> T + Send + 'a>;

/// The UUIDs of the images, so that two runs are alike.
const UUID: &str = "6f1a62f4-6f3c-4c52-8b5c-0d6a3f1e9c01";
const LOG_UUID: &str = "6f1a62f4-6f3c-4c52-8b5c-0d6a3f1e9c02";

/// What a rig is made of.
#[derive(Clone, Debug)]
pub struct Plan {
    pub model: Model,
    /// Size of the file system, in MiB.
    pub mib: u64,
    /// MiB of the device behind the file system, which are nobody's.
    pub spare_mib: u64,
    /// Size of the journal, in MiB.
    pub journal_mib: u64,
    /// On a device of its own, of the same model.
    pub external: bool,
    /// In NVRAM, of the journal's size, where each cache line that is stored takes so long.
    pub nvram: Option<Duration>,
    /// What mke2fs is told besides.
    pub mke2fs: Vec<String>,
    /// Commits by a thread beside the volume's background, as the kernel's journal thread makes them.
    pub stock: Option<Stock>,
    /// How long inode times stand still, as the kernel's do between two ticks of its timer; zero if they are exact.
    pub file_tick: Duration,
    pub options: Options,
}

impl Plan {
    /// A profile on a device.
    #[must_use]
    pub fn new(model: Model, profile: Profile) -> Self {
        let options = Options { atime: quire_fs::Atime::No, ..Options::default() }.with(profile.choices());
        Plan {
            model,
            mib: 512,
            spare_mib: 0,
            journal_mib: 64,
            external: false,
            nvram: None,
            mke2fs: Vec::new(),
            stock: None,
            file_tick: Duration::ZERO,
            options,
        }
    }

    /// With commits as the kernel's journal thread makes them.
    #[must_use]
    pub fn with_stock(mut self, stock: Stock) -> Self {
        self.options.commit_interval = stock::DATA_AGE;
        self.stock = Some(stock);
        self
    }
}

/// A mounted volume on modelled devices.
pub struct Rig {
    pub world: VirtualThreads,
    pub volume: Volume,
    pub fs: Arc<Disk>,
    pub journal: Option<Arc<Disk>>,
    memory: Vec<Arc<MemDevice>>,
    plan: Plan,
}

/// Devices after a loss of power.
pub struct Crashed {
    contents: Vec<Vec<u8>>,
    plan: Plan,
}

impl Crashed {
    /// Mounts; returns how long that took, recovery included.
    ///
    /// # Errors
    /// The mount fails.
    pub fn recover(self) -> Result<Duration> {
        let again = Rig::on(&self.plan, self.contents.into_iter().map(|c| Arc::new(MemDevice::new(c))).collect())?;
        let took = again.world.monotonic();
        again.volume.close()?;
        Ok(took)
    }
}

/// What was written since some moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes to the log, its superblock included.
    pub journal: u64,
    /// Bytes to everything else.
    pub fs: u64,
    pub writes: u64,
    pub flushes: u64,
    /// Writes with FUA.
    pub fua: u64,
}

/// Memory whose stores take time, and whose identities are the same in every run.
struct Timed {
    memory: NvramMap,
    line: Duration,
    clock: Arc<dyn Clock>,
    /// Time, in nanoseconds, that stores have taken and that has not passed yet: to let each pass by itself would cost
    /// the processor more than a store does, and the processor's time counts, too.
    owed: AtomicU64,
}

/// So much may be owed, in nanoseconds.
const OWED: u64 = 100_000;

impl Nvram for Timed {
    fn size(&self) -> u64 {
        self.memory.size()
    }

    fn fresh_uuid(&self) -> [u8; 16] {
        *b"Quire's NVRAM 01"
    }

    fn read(&self, at: u64, buf: &mut [u8]) {
        self.memory.read(at, buf);
    }

    fn store(&self, at: u64, bytes: &[u8]) {
        let before = self.memory.stats().lines;
        self.memory.store(at, bytes);
        let lines = self.memory.stats().lines - before;
        let took = u64::try_from(self.line.as_nanos()).unwrap_or(u64::MAX).saturating_mul(lines);
        if self.owed.fetch_add(took, Ordering::Relaxed) + took >= OWED {
            self.clock.sleep(Duration::from_nanos(self.owed.swap(0, Ordering::Relaxed)));
        }
    }

    fn fence(&self) {
        self.memory.fence();
    }

    fn stats(&self) -> NvramStats {
        self.memory.stats()
    }
}

impl Rig {
    /// Makes the images and mounts.
    ///
    /// # Errors
    /// mke2fs is missing or refuses, the mount fails.
    pub fn new(plan: &Plan) -> Result<Self> {
        let dir = Folder::temporary("quire-rig-")?;
        Self::over(plan, images(plan, dir.path())?)
    }

    /// Mounts devices with these contents: the file system's, and the journal's if it has one of its own.
    ///
    /// # Errors
    /// The mount fails.
    pub fn over(plan: &Plan, contents: Vec<Vec<u8>>) -> Result<Self> {
        Self::on(plan, contents.into_iter().map(|bytes| Arc::new(MemDevice::new(bytes))).collect())
    }

    /// Makes the images and has `fill` put something on them, in order mode and no time; what they hold then.
    ///
    /// # Errors
    /// As [`Rig::new`], or `fill`'s.
    pub fn filled(plan: &Plan, fill: impl FnOnce(&Rig) -> Result<()>) -> Result<Vec<Vec<u8>>> {
        let free = Plan { model: Model::default(), nvram: None, ..plan.clone() };
        let rig = Rig::new(&Plan { options: free.options.clone().with(Profile::Ext4Ordered.choices()), ..free })?;
        fill(&rig)?;
        rig.volume.close()?;
        Ok(rig.memory.iter().map(|m| m.snapshot()).collect())
    }

    fn on(plan: &Plan, memory: Vec<Arc<MemDevice>>) -> Result<Self> {
        let world = VirtualThreads::with_tick(plan.file_tick);
        let clock: Arc<dyn Clock> = Arc::new(world.clone());
        let disk = |memory: &Arc<MemDevice>| -> Arc<Disk> {
            let modelled = Modelled::new(memory.clone(), plan.model, clock.clone());
            Arc::new(Counted::with_clock(modelled, clock.clone()))
        };
        let fs = disk(&memory[0]);
        let journal = memory.get(1).map(disk);
        let nvram = match plan.nvram {
            None => None,
            Some(line) => {
                let dir = Folder::in_memory("quire-nvram-")?;
                let how =
                    NvramOptions { simulated: true, size: Some(plan.journal_mib << 20), ..NvramOptions::default() };
                // The mapping stays when the file's name has gone.
                let memory = NvramMap::open(dir.path().join("nvram"), how)?;
                Some(Arc::new(Timed { memory, line, clock: clock.clone(), owed: AtomicU64::new(0) }) as Arc<dyn Nvram>)
            }
        };
        let devices = Devices { fs: fs.clone(), journal: journal.clone().map(|d| d as Arc<_>), nvram };
        let volume = Volume::open(devices, clock.clone(), plan.options.clone())?;
        Ok(Rig { world, volume, fs, journal, memory, plan: plan.clone() })
    }

    /// Runs threads to their end, with one in the background as a mount has it.
    pub fn run<'a, T: Send + 'a>(&'a self, bodies: Vec<Body<'a, T>>) -> Vec<T> {
        let (left, stop) = (&AtomicUsize::new(bodies.len()), &Arc::new(Stop::default()));
        let journal_thread = &JournalThread::default();
        let mut threads: Vec<Body<'_, Option<T>>> = Vec::new();
        for body in bodies {
            threads.push(Box::new(move || {
                let done = body();
                if left.fetch_sub(1, Ordering::Relaxed) == 1 {
                    stop.stop();
                    journal_thread.stop();
                }
                Some(done)
            }));
        }
        threads.push(Box::new(move || {
            self.volume.maintenance().work_until(stop);
            None
        }));
        if let Some(stock) = self.plan.stock {
            threads.push(Box::new(move || {
                journal_thread.work(&self.volume, &self.world, stock);
                None
            }));
        }
        self.world.run(threads).into_iter().flatten().collect()
    }

    /// What the devices have counted.
    #[must_use]
    pub fn counted(&self) -> Vec<DeviceStats> {
        std::iter::once(&self.fs).chain(&self.journal).map(|d| d.snapshot()).collect()
    }

    /// What was written since.
    #[must_use]
    pub fn traffic(&self, since: &[DeviceStats]) -> Traffic {
        let mut t = Traffic::default();
        for (now, then) in self.counted().iter().zip(since) {
            let d = now.since(then);
            for region in Region::ALL {
                let w = d.region(region).writes;
                t.writes += w.count;
                t.fua += d.region(region).fua.count;
                match region {
                    Region::Log | Region::LogSuperblock => t.journal += w.bytes,
                    _ => t.fs += w.bytes,
                }
            }
            t.flushes += d.flushes.count;
        }
        t
    }

    /// Makes an empty file.
    ///
    /// # Errors
    /// As [`Volume::create`].
    pub fn create(&self, parent: Ino, name: &str) -> Result<Ino> {
        let new = New { kind: NewKind::File, mode: 0o644, umask: 0, cred: Cred::default() };
        Ok(self.volume.create(parent, name.as_bytes(), &new)?.ino)
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// As [`Volume::create`].
    pub fn mkdir(&self, parent: Ino, name: &str) -> Result<Ino> {
        let new = New { kind: NewKind::Dir, mode: 0o755, umask: 0, cred: Cred::default() };
        Ok(self.volume.create(parent, name.as_bytes(), &new)?.ino)
    }

    /// What the devices hold now: what a loss of power would leave, since what they completed stays.
    #[must_use]
    pub fn crashed(&self) -> Crashed {
        let contents = self.memory.iter().map(|m| m.snapshot()).collect();
        Crashed { contents, plan: self.plan.clone() }
    }

    /// Unmounts and mounts anew, with nothing in memory; the clock begins again.
    ///
    /// # Errors
    /// One of both fails.
    pub fn remounted(self) -> Result<Self> {
        self.volume.close()?;
        let Rig { volume, memory, plan, .. } = self;
        drop(volume);
        Self::on(&plan, memory)
    }

    /// Unmounts, and asks e2fsck what it thinks of the image.
    ///
    /// # Errors
    /// It does not think well of it.
    pub fn close(self) -> Result<()> {
        self.volume.close()?;
        if self.journal.is_some() {
            // e2fsck wants to see the journal's device.
            return Ok(());
        }
        let dir = Folder::temporary("quire-rig-")?;
        let path = dir.path().join("image");
        self.memory[0].with_contents(|bytes| write_sparse(&path, bytes))?;
        crate::image::Image::open(&path).check_clean()
    }
}

/// The bytes of the file system, and of the journal's device if it has one.
fn images(plan: &Plan, dir: &Path) -> Result<Vec<Vec<u8>>> {
    let fs = dir.join("fs");
    make_file_system(plan, &fs)?;
    let mut images = vec![read_sparse(&fs)?];
    if plan.external {
        let log = dir.join("log");
        let mut mke2fs = command("mke2fs");
        mke2fs.args(["-q", "-F", "-b", "4096", "-O", "journal_dev", "-U", LOG_UUID, text(&log)]);
        run(mke2fs.arg(format!("{}M", plan.journal_mib)))?;
        let log = read_sparse(&log)?;
        bind(&mut images[0], &log)?;
        images.push(log);
    }
    Ok(images)
}

fn make_file_system(plan: &Plan, fs: &Path) -> Result<()> {
    let mut mke2fs = command("mke2fs");
    mke2fs.args(["-q", "-F", "-t", "ext4", "-b", "4096", "-U", UUID]);
    mke2fs.args(["-E", &format!("hash_seed={UUID},lazy_itable_init=0,lazy_journal_init=0")]);
    mke2fs.args(&plan.mke2fs);
    if plan.external {
        mke2fs.args(["-O", "^has_journal"]);
    } else {
        mke2fs.args(["-J", &format!("size={}", plan.journal_mib)]);
    }
    run(mke2fs.arg(fs).arg(format!("{}M", plan.mib)))?;
    Ok(File::options().write(true).open(fs)?.set_len((plan.mib + plan.spare_mib) << 20)?)
}

/// The bytes that files can have on a new file system of the plan: what is free beside root's reserve.
///
/// # Errors
/// mke2fs is missing or refuses.
#[cfg(test)]
pub(crate) fn room(plan: &Plan) -> Result<u64> {
    let dir = tempfile::tempdir()?;
    let fs = dir.path().join("fs");
    make_file_system(plan, &fs)?;
    let mut bytes = vec![0; superblock::SIZE];
    File::open(&fs)?.read_exact_at(&mut bytes, superblock::OFFSET)?;
    let sb = Superblock::decode_unverified(&bytes)?;
    Ok(sb.free_blocks().saturating_sub(sb.reserved_blocks()) * 4096)
}

/// Ties a file system to the journal's device. (mke2fs does so only with block devices.)
pub(crate) fn bind(fs: &mut [u8], log: &[u8]) -> Result<()> {
    let at = usize::try_from(superblock::OFFSET)?;
    // s_journal_uuid of the one, s_uuid of the other.
    fs[at + 0xD0..at + 0xE0].copy_from_slice(&log[at + 0x68..at + 0x78]);
    let mut sb = Superblock::decode_unverified(&fs[at..at + superblock::SIZE])?;
    let mut features = sb.features();
    features.compat |= compat::HAS_JOURNAL;
    sb.set_features(features);
    sb.seal();
    fs[at..at + superblock::SIZE].copy_from_slice(sb.bytes());
    Ok(())
}

/// The bytes of a sparse file; memory is only taken for what is there.
fn read_sparse(path: &Path) -> Result<Vec<u8>> {
    let file = File::open(path)?;
    let size = file.metadata()?.len();
    let mut bytes = vec![0; usize::try_from(size)?];
    let mut at = 0;
    while let Ok(from) = rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(at)) {
        at = rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(from))?;
        let part = usize::try_from(from)?..usize::try_from(at)?;
        file.read_exact_at(&mut bytes[part], from)?;
    }
    Ok(bytes)
}

fn write_sparse(path: &Path, bytes: &[u8]) -> Result<()> {
    const CHUNK: usize = 64 << 10;
    static ZEROS: [u8; CHUNK] = [0; CHUNK];
    let file = File::create(path)?;
    file.set_len(bytes.len() as u64)?;
    for (n, chunk) in bytes.chunks(CHUNK).enumerate().filter(|(_, c)| **c != ZEROS[..c.len()]) {
        file.write_all_at(chunk, (n * CHUNK) as u64)?;
    }
    Ok(())
}

/// A profile by its name.
///
/// # Errors
/// There is none of that name.
pub fn profile(name: &str) -> Result<Profile> {
    name.parse().map_err(|e| anyhow!("{e}")).with_context(|| format!("profile {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use quire_fs::WriteFlags;

    const WRITES: u8 = 100;

    /// Blocks that ordered mode logs of one block's overwrites, each with an fsync, 50 us apart; and when they end.
    fn overwritten(file_tick: Duration) -> (u64, Duration) {
        let plan = Plan { mib: 64, journal_mib: 8, file_tick, ..Plan::new(Model::default(), Profile::Ext4Ordered) };
        let rig = Rig::new(&plan).unwrap();
        let ino = rig.create(Ino::ROOT, "file").unwrap();
        let logged = || rig.volume.maintenance().journal_stats().blocks;
        let overwrite = |n: u8| {
            rig.world.sleep(Duration::from_micros(50));
            rig.volume.write(ino, 0, &[n; 4096], WriteFlags::default()).unwrap();
            rig.volume.fsync(ino, false).unwrap();
        };
        overwrite(0);
        let before = logged();
        (0..WRITES).for_each(overwrite);
        let done = (logged() - before, rig.world.monotonic());
        rig.close().unwrap();
        done
    }

    #[test]
    fn an_overwrite_logs_its_inode_once_in_a_tick_and_runs_are_alike() {
        assert_eq!(overwritten(Duration::ZERO).0, u64::from(WRITES));
        let ticking = overwritten(Duration::from_millis(1));
        assert_eq!(ticking.0, 5, "5 ms have five ticks");
        assert_eq!(ticking, overwritten(Duration::from_millis(1)));
    }
}
