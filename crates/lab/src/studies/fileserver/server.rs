//! What the file server does, and a run of it in a mode on the library.

use std::time::Duration;

use anyhow::Result;
use quire_device::Clock;
use quire_device::sync::{Mutex, lock};
use quire_fs::{Profile, WriteFlags};
use quire_layout::Ino;
use quire_testkit::Model;
use quire_testkit::rng::{Rng, content};

use crate::rig::{Body, Plan, Rig, Traffic};
use crate::stats::float;
use crate::stock::Stock;

/// What the server does; the defaults are filebench's, on a fifth of the files.
#[derive(Clone, Copy, Debug)]
pub struct Server {
    pub threads: u64,
    pub files: u64,
    /// Mean size of a whole file; sizes are even between half of it and half more.
    pub mean: u64,
    /// Mean size of what is appended.
    pub append: u64,
    /// Sizes are multiples of this.
    pub grain: u64,
    /// Of 100 turns, so many write a file of the set anew, in place, where the others make one and delete one.
    pub rewrites: u64,
    /// Size of the file system, in MiB.
    pub mib: u64,
    /// Of the memory, what may be dirty before writers are slowed down, in per cent.
    pub dirty_percent: u64,
    /// What goes before it, so that old data is there to be written back.
    pub before: Duration,
    /// What is measured.
    pub time: Duration,
}

impl Server {
    #[must_use]
    pub fn new(time: Duration) -> Self {
        Server {
            threads: 50,
            files: 2000,
            mean: 128 << 10,
            append: 16 << 10,
            grain: 1,
            rewrites: 0,
            mib: 2048,
            dirty_percent: DIRTY_PERCENT,
            before: Duration::ZERO,
            time,
        }
    }

    /// Bytes of the paper's machine that fall to these files.
    fn share(&self, bytes: u64) -> u64 {
        bytes / PAPER_FILES * self.files
    }

    /// Size of the journal, in MiB.
    fn journal_mib(&self) -> u64 {
        (self.share(PAPER_JOURNAL) >> 20).max(4)
    }

    /// The library's memory, so that as much data may be dirty in it as in the paper's machine.
    fn cache_bytes(&self) -> u64 {
        // Three eighths of it may be dirty (`quire_fs::policy`).
        self.share(PAPER_MEMORY) * self.dirty_percent / 100 * 8 / 3
    }
}

/// The files of filebench's `fileserver`.
pub(super) const PAPER_FILES: u64 = 10_000;
/// Memory of the machine of the paper's section 4.
const PAPER_MEMORY: u64 = 8 << 30;
/// The journal that mke2fs makes on a disk.
const PAPER_JOURNAL: u64 = 128 << 20;
/// Of the memory, what may be dirty before the kernel slows writers down: the middle of `vm.dirty_background_ratio`
/// (10) and `vm.dirty_ratio` (20).
pub(super) const DIRTY_PERCENT: u64 = 15;

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// File operations: creates, writes, appends, reads, deletes, stats.
    pub operations: u64,
    pub bytes: u64,
    /// Blocks that were written, and those of them that held data before.
    pub blocks: u64,
    pub overwritten: u64,
    /// How long all operations took, without the processor's part.
    pub waited: Duration,
    pub traffic: Traffic,
    pub time: Duration,
}

impl Outcome {
    /// Operations a second.
    pub(super) fn rate(&self) -> f64 {
        float(self.operations) / self.time.as_secs_f64()
    }

    /// Mean of an operation, in ms.
    pub(super) fn wait(&self) -> f64 {
        self.waited.as_secs_f64() * 1e3 / float(self.operations)
    }
}

/// A file of the set, and its size.
#[derive(Clone, Debug)]
struct Entry {
    name: String,
    ino: Ino,
    size: u64,
}

/// What is served.
struct Files {
    dirs: Vec<Ino>,
    set: Mutex<Vec<Entry>>,
    /// New files and appends are parts of this. Nobody reads them back, and making each anew takes a fifth of a study's
    /// time.
    contents: Vec<u8>,
}

impl Files {
    fn new(dirs: Vec<Ino>, server: Server) -> Result<Self> {
        // Of half of the mean and half more.
        let largest = (2 * server.mean.max(server.append)).next_multiple_of(server.grain);
        Ok(Files { dirs, set: Mutex::default(), contents: content(0, 0, usize::try_from(2 * largest)?) })
    }

    /// Takes a file for itself.
    fn take(&self, rng: &mut Rng) -> Entry {
        let mut set = lock(&self.set);
        let n = rng.index(set.len());
        set.swap_remove(n)
    }

    fn give(&self, entry: Entry) {
        lock(&self.set).push(entry);
    }

    fn directory_of(&self, entry: &Entry) -> Ino {
        let sum: usize = entry.name.bytes().map(usize::from).sum();
        self.dirs[sum % self.dirs.len()]
    }

    /// `len` bytes, others for each key.
    fn content(&self, key: u64, len: usize) -> &[u8] {
        let from = Rng::new(key).index(self.contents.len() - len);
        &self.contents[from..from + len]
    }
}

/// Its reads are served by the page cache.
pub(super) const DISK: fn() -> Model = || Model { cached: true, ..Model::hdd_7200() };
pub(super) const BLOCK: u64 = 4096;
pub(in crate::studies) const DIRECTORIES: u64 = 20;
/// What an operation takes beside the disk: 160 us on one of 8 cores that 50 threads share.
pub(super) const CPU: Duration = Duration::from_millis(1);

/// Runs the server on a profile.
///
/// # Errors
/// The file system fails.
pub fn run(model: Model, profile: Profile, stock: Stock, server: Server) -> Result<Outcome> {
    let plan = Plan { mib: server.mib, journal_mib: server.journal_mib(), ..Plan::new(model, profile) };
    let mut plan = plan.with_stock(stock);
    plan.options.cache_bytes = server.cache_bytes();
    let rig = Rig::new(&plan)?;
    let dirs: Vec<Ino> = (0..DIRECTORIES).map(|n| rig.mkdir(Ino::ROOT, &format!("dir-{n}"))).collect::<Result<_>>()?;
    let mut rng = Rng::from_parts(&[1, 0xF5]);
    let files = Files::new(dirs, server)?;
    let mut sink = Outcome::default();
    for n in 0..server.files {
        files.give(make(&rig, &files, &format!("first-{n}"), &mut rng, server, &mut sink)?);
    }
    rig.volume.sync()?;
    rig.volume.maintenance().checkpoint()?;
    let serve = |turns: &str, time: Duration| -> Result<Vec<Outcome>> {
        let end = rig.world.monotonic() + time;
        let bodies = (0..server.threads).map(|n| {
            let (rig, files) = (&rig, &files);
            let body = move || serve(rig, files, &format!("{turns}-{n}"), end, server);
            Box::new(body) as Body<'_, Result<Outcome>>
        });
        rig.run(bodies.collect()).into_iter().collect()
    };
    serve("before", server.before)?;
    let (before, start) = (rig.counted(), rig.world.monotonic());
    let outcomes = serve("file", server.time)?;
    let mut sum = Outcome { traffic: rig.traffic(&before), time: rig.world.monotonic() - start, ..Outcome::default() };
    for o in outcomes {
        sum.operations += o.operations;
        sum.bytes += o.bytes;
        sum.blocks += o.blocks;
        sum.overwritten += o.overwritten;
        sum.waited += o.waited;
    }
    rig.close()?;
    Ok(sum)
}

/// Of one turn of a thread.
pub(in crate::studies) const OPERATIONS: u64 = 6;

/// One thread.
fn serve(rig: &Rig, files: &Files, name: &str, end: Duration, server: Server) -> Result<Outcome> {
    let seed: Vec<u64> = name.bytes().map(u64::from).collect();
    let mut rng = Rng::from_parts(&seed);
    let mut done = Outcome::default();
    let mut round = 0;
    while rig.world.monotonic() < end {
        let start = rig.world.monotonic();
        let rewrites = server.rewrites > 0 && rng.below(100) < server.rewrites;
        if rewrites {
            let entry = files.take(&mut rng);
            rewrite(rig, &entry, &mut done)?;
            files.give(entry);
        } else {
            files.give(make(rig, files, &format!("{name}-{round}"), &mut rng, server, &mut done)?);
        }
        let mut entry = files.take(&mut rng);
        let len = server.append / 2 + rng.below(server.append);
        write(rig, files, &mut entry, len.next_multiple_of(server.grain), &mut done)?;
        files.give(entry);
        // A whole file is read, from the page cache above; another is deleted, and one is looked at.
        if !rewrites {
            let entry = files.take(&mut rng);
            rig.volume.unlink(files.directory_of(&entry), entry.name.as_bytes())?;
            rig.volume.forget(entry.ino, 1);
        }
        let entry = files.take(&mut rng);
        let attr = rig.volume.getattr(entry.ino)?;
        anyhow::ensure!(attr.size == entry.size, "{} has {} bytes, {} were written", entry.name, attr.size, entry.size);
        files.give(entry);
        let operations = OPERATIONS - u64::from(rewrites);
        done.operations += operations;
        done.waited += rig.world.monotonic() - start;
        rig.world.sleep(CPU * u32::try_from(operations)?);
        round += 1;
    }
    Ok(done)
}

/// Creates a file and writes it whole.
fn make(rig: &Rig, files: &Files, name: &str, rng: &mut Rng, server: Server, done: &mut Outcome) -> Result<Entry> {
    let mut entry = Entry { name: name.to_owned(), ino: Ino(0), size: 0 };
    entry.ino = rig.create(files.directory_of(&entry), name)?;
    let len = server.mean / 2 + rng.below(server.mean);
    write(rig, files, &mut entry, len.next_multiple_of(server.grain), done)?;
    Ok(entry)
}

/// Appends.
fn write(rig: &Rig, files: &Files, entry: &mut Entry, len: u64, done: &mut Outcome) -> Result<()> {
    let data = files.content(u64::from(entry.ino.0) + entry.size, usize::try_from(len)?);
    rig.volume.write(entry.ino, entry.size, data, WriteFlags::default())?;
    let (from, to) = (entry.size, entry.size + len);
    done.blocks += to.div_ceil(BLOCK) - from / BLOCK;
    done.overwritten += u64::from(!from.is_multiple_of(BLOCK));
    done.bytes += len;
    entry.size = to;
    Ok(())
}

/// Writes a file anew, in place.
fn rewrite(rig: &Rig, entry: &Entry, done: &mut Outcome) -> Result<()> {
    let data = content(u64::from(entry.ino.0) + done.operations, 0, usize::try_from(entry.size)?);
    rig.volume.write(entry.ino, 0, &data, WriteFlags::default())?;
    let blocks = entry.size.div_ceil(BLOCK);
    (done.blocks, done.overwritten, done.bytes) =
        (done.blocks + blocks, done.overwritten + blocks, done.bytes + entry.size);
    Ok(())
}

/// The modes, and what a commit of each does with other files' data.
pub(super) const MODES: [(Profile, Stock); 5] = [
    (Profile::Ext4Journal, Stock::LeavesData),
    (Profile::Ext4Ordered, Stock::FlushesData),
    (Profile::Ext4Writeback, Stock::LeavesData),
    (Profile::Rfj, Stock::LeavesData),
    (Profile::Auto, Stock::LeavesData),
];
pub(super) const JOURNAL: usize = 0;
pub(super) const ORDERED: usize = 1;
pub(super) const WRITEBACK: usize = 2;
pub(super) const RFJ: usize = 3;

/// What comes of a mode.
pub(super) fn serve_in(mode: usize, server: Server) -> Result<Outcome> {
    let (profile, stock) = MODES[mode];
    let o = run(DISK(), profile, stock, server)?;
    let Server { dirty_percent, rewrites, .. } = server;
    let (rate, wait) = (o.rate(), o.wait());
    eprintln!(
        "{profile}, {dirty_percent} % of the memory dirty, {rewrites} % rewrites: {rate:.0} operations/s, of {wait:.2} ms"
    );
    Ok(o)
}

/// File operations a second of a mode.
pub(super) fn rate(mode: usize, server: Server) -> Result<f64> {
    Ok(serve_in(mode, server)?.rate())
}
