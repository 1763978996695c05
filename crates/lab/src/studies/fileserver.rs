//! RFJ's file server: filebench's `fileserver` (create and write a whole file, append, read a whole file, delete, stat;
//! 50 threads, nothing synchronous) on a modelled 7,200 rpm disk, in virtual time. Reads cost nothing: as in the paper,
//! the files fit into the page cache, which lies above us.
//!
//! Commits are as stock ext3's ([`crate::stock`]): `ordered` flushes the data of all files in each commit, the other
//! modes leave it to the flusher. Files, memory and journal are to each other as in the paper's machine.

use std::time::Duration;

use anyhow::Result;
use quire_device::Clock;
use quire_device::sync::{Mutex, lock};
use quire_fs::{Profile, WriteFlags};
use quire_layout::Ino;
use quire_testkit::Model;

use crate::results::{Claim, Effort, Figure, Findings};
use crate::rig::{Body, Plan, Rig, Traffic};
use crate::stats::float;
use crate::stock::Stock;
use quire_testkit::rng::{Rng, content};

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
const PAPER_FILES: u64 = 10_000;
/// Memory of the machine of the paper's section 4.
const PAPER_MEMORY: u64 = 8 << 30;
/// The journal that mke2fs makes on a disk.
const PAPER_JOURNAL: u64 = 128 << 20;
/// Of the memory, what may be dirty before the kernel slows writers down: the middle of `vm.dirty_background_ratio`
/// (10) and `vm.dirty_ratio` (20).
const DIRTY_PERCENT: u64 = 15;

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// File operations: creates, writes, appends, reads, deletes, stats.
    pub operations: u64,
    pub bytes: u64,
    /// Blocks that were written, and those of them that held data before.
    pub blocks: u64,
    pub overwritten: u64,
    pub traffic: Traffic,
    pub time: Duration,
}

/// A file of the set, and its size.
#[derive(Clone, Debug)]
struct Entry {
    name: String,
    ino: Ino,
    size: u64,
}

/// Its reads are served by the page cache.
const DISK: fn() -> Model = || Model { cached: true, ..Model::hdd_7200() };
const BLOCK: u64 = 4096;
pub(super) const DIRECTORIES: u64 = 20;
/// What an operation takes beside the disk: 160 us on one of 8 cores that 50 threads share.
const CPU: Duration = Duration::from_millis(1);

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
    let mut set = Vec::new();
    let mut sink = Outcome::default();
    for n in 0..server.files {
        set.push(make(&rig, &dirs, &format!("first-{n}"), &mut rng, server, &mut sink)?);
    }
    rig.volume.sync()?;
    rig.volume.maintenance().checkpoint()?;
    let set = Mutex::new(set);
    let serve = |turns: &str, time: Duration| -> Result<Vec<Outcome>> {
        let end = rig.world.monotonic() + time;
        let bodies = (0..server.threads).map(|n| {
            let (rig, dirs, set) = (&rig, &dirs, &set);
            let body = move || serve(rig, dirs, set, &format!("{turns}-{n}"), end, server);
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
    }
    rig.close()?;
    Ok(sum)
}

/// Of one turn of a thread.
pub(super) const OPERATIONS: u64 = 6;

/// One thread.
fn serve(
    rig: &Rig,
    dirs: &[Ino],
    set: &Mutex<Vec<Entry>>,
    name: &str,
    end: Duration,
    server: Server,
) -> Result<Outcome> {
    let seed: Vec<u64> = name.bytes().map(u64::from).collect();
    let mut rng = Rng::from_parts(&seed);
    let mut done = Outcome::default();
    let mut round = 0;
    while rig.world.monotonic() < end {
        let rewrites = server.rewrites > 0 && rng.below(100) < server.rewrites;
        if rewrites {
            let entry = take(set, &mut rng);
            rewrite(rig, &entry, &mut done)?;
            lock(set).push(entry);
        } else {
            let entry = make(rig, dirs, &format!("{name}-{round}"), &mut rng, server, &mut done)?;
            lock(set).push(entry);
        }
        let mut entry = take(set, &mut rng);
        let len = server.append / 2 + rng.below(server.append);
        write(rig, &mut entry, len.next_multiple_of(server.grain), &mut done)?;
        lock(set).push(entry);
        // A whole file is read, from the page cache above; another is deleted, and one is looked at.
        if !rewrites {
            let entry = take(set, &mut rng);
            rig.volume.unlink(parent(dirs, &entry), entry.name.as_bytes())?;
            rig.volume.forget(entry.ino, 1);
        }
        let entry = take(set, &mut rng);
        let attr = rig.volume.getattr(entry.ino)?;
        anyhow::ensure!(attr.size == entry.size, "{} has {} bytes, {} were written", entry.name, attr.size, entry.size);
        lock(set).push(entry);
        let operations = OPERATIONS - u64::from(rewrites);
        done.operations += operations;
        rig.world.sleep(CPU * u32::try_from(operations)?);
        round += 1;
    }
    Ok(done)
}

/// Takes a file for itself.
fn take(set: &Mutex<Vec<Entry>>, rng: &mut Rng) -> Entry {
    let mut set = lock(set);
    let n = rng.index(set.len());
    set.swap_remove(n)
}

fn parent(dirs: &[Ino], entry: &Entry) -> Ino {
    let sum: usize = entry.name.bytes().map(usize::from).sum();
    dirs[sum % dirs.len()]
}

/// Creates a file and writes it whole.
fn make(rig: &Rig, dirs: &[Ino], name: &str, rng: &mut Rng, server: Server, done: &mut Outcome) -> Result<Entry> {
    let mut entry = Entry { name: name.to_owned(), ino: Ino(0), size: 0 };
    entry.ino = rig.create(parent(dirs, &entry), name)?;
    let len = server.mean / 2 + rng.below(server.mean);
    write(rig, &mut entry, len.next_multiple_of(server.grain), done)?;
    Ok(entry)
}

/// Appends.
fn write(rig: &Rig, entry: &mut Entry, len: u64, done: &mut Outcome) -> Result<()> {
    let data = content(u64::from(entry.ino.0), entry.size, usize::try_from(len)?);
    rig.volume.write(entry.ino, entry.size, &data, WriteFlags::default())?;
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
const MODES: [(Profile, Stock); 5] = [
    (Profile::Ext4Journal, Stock::LeavesData),
    (Profile::Ext4Ordered, Stock::FlushesData),
    (Profile::Ext4Writeback, Stock::LeavesData),
    (Profile::Rfj, Stock::LeavesData),
    (Profile::Auto, Stock::LeavesData),
];
const JOURNAL: usize = 0;
const ORDERED: usize = 1;
const WRITEBACK: usize = 2;
const RFJ: usize = 3;

/// File operations a second of a mode.
fn rate(mode: usize, server: Server) -> Result<f64> {
    let (profile, stock) = MODES[mode];
    let o = run(DISK(), profile, stock, server)?;
    let rate = float(o.operations) / o.time.as_secs_f64();
    let Server { dirty_percent, rewrites, .. } = server;
    eprintln!("{profile}, {dirty_percent} % of the memory dirty, {rewrites} % rewrites: {rate:.0} operations/s");
    Ok(rate)
}

/// Figures 2 and 8.
///
/// # Errors
/// A file system failed.
pub fn study(effort: Effort) -> Result<Findings> {
    let server = Server {
        before: Duration::from_secs(effort.pick(2, 40, 60)),
        // Memory and journal are as much smaller than the paper's.
        files: effort.pick(700, 2000, 2000),
        ..Server::new(Duration::from_secs(effort.pick(3, 20, 60)))
    };
    // The last is ours alone.
    let modes = effort.pick(MODES.len() - 1, MODES.len(), MODES.len());
    let rates: Vec<f64> = (0..modes).map(|mode| rate(mode, server)).collect::<Result<_>>()?;
    let title = format!("A file server of 50 threads, {} s", server.time.as_secs());
    let mut two = Figure::bars("rfj-2", "figure 2", title.clone(), "mode", "operations/s").of_series(["operations/s"]);
    let mut eight = Figure::bars("rfj-8", "figure 8", title, "mode", "operations/s").of_series(["operations/s"]);
    for (n, (profile, _)) in MODES[..modes].iter().enumerate() {
        let name = profile.to_string();
        let name = name.strip_prefix("ext4-").unwrap_or(&name);
        if n <= WRITEBACK {
            two.place(name, [rates[n]]);
        }
        eight.place(name, [rates[n]]);
    }
    let (by_memory, memory) = by_memory(effort, server)?;
    let (by_grain, grain, of_ordered) = by_grain(effort, server)?;
    let (by_rewrites, left) = by_rewrites(effort, server)?;
    let mut f = Findings { figures: vec![two, eight, by_memory, by_grain, by_rewrites], ..Findings::default() };
    assume(&mut f, server);
    f.claims = claims(&rates, &memory, &grain, of_ordered);
    f.claims.push(Claim::below(
        "section 4.3",
        "with many overwrites RFJ gains less",
        "rfj / journal: every turn overwrites / none does",
        left,
        1.0,
    ));
    Ok(f)
}

/// How many times as fast RFJ and writeback are as journal by how much of the memory may be dirty: the figure, and the
/// values of both.
fn by_memory(effort: Effort, of: Server) -> Result<(Figure, [Vec<f64>; 2])> {
    let title = "rfj and writeback by what may be dirty in memory (calibration)";
    let series = "rfj / journal";
    let mut figure = Figure::lines("rfj-8-memory", "figure 8", title, "dirty, % of the memory", "times as fast")
        .of_series([series, "writeback / journal"])
        .logarithmic();
    let percents: &[u64] = effort.pick(&[2, 8], &[2, 4, 8], &[1, 2, 4, 8, 15, 20]);
    let mut swept = [Vec::new(), Vec::new()];
    for percent in percents {
        let time = Duration::from_secs(effort.pick(2, 10, 30));
        let server = Server { dirty_percent: *percent, before: time, time, ..of };
        let journal = rate(JOURNAL, server)?;
        let times = [rate(RFJ, server)? / journal, rate(WRITEBACK, server)? / journal];
        figure.place(percent, times);
        figure.printed(percent, series, 5.0);
        swept.iter_mut().zip(times).for_each(|(swept, times)| swept.push(times));
    }
    Ok((figure, swept))
}

/// How many times as fast RFJ is as writeback and as ordered by whether writes end at blocks: the figure, its values
/// beside writeback, and the one beside ordered where all do.
fn by_grain(effort: Effort, of: Server) -> Result<(Figure, Vec<f64>, f64)> {
    let title = "rfj by what sizes are multiples of (calibration)";
    let series = "rfj / writeback";
    let mut figure = Figure::lines("rfj-8-grain", "figure 8", title, "sizes are multiples of, B", "times as fast")
        .of_series([series, "rfj / ordered"]);
    let (mut swept, mut of_ordered) = (Vec::new(), f64::NAN);
    for grain in [1, BLOCK] {
        let time = Duration::from_secs(effort.pick(2, 20, 30));
        let server = Server { grain, before: time, time, ..of };
        let rfj = rate(RFJ, server)?;
        let times = rfj / rate(WRITEBACK, server)?;
        of_ordered = rfj / rate(ORDERED, server)?;
        figure.place(grain, [times, of_ordered]);
        figure.printed(grain, series, 1.0);
        swept.push(times);
    }
    Ok((figure, swept, of_ordered))
}

/// How many times as fast RFJ is as journal by how much is overwritten: the figure, and what is left of the factor
/// where every turn overwrites a file.
fn by_rewrites(effort: Effort, of: Server) -> Result<(Figure, f64)> {
    let title = "rfj by how many turns overwrite a file in place instead of making one";
    let figure = Figure::lines("rfj-8-overwrites", "section 4.3", title, "turns that overwrite, %", "times as fast");
    let mut figure = figure.of_series(["rfj / journal"]);
    let mut times = Vec::new();
    for rewrites in effort.pick(&[0, 100][..], &[0, 50, 100], &[0, 25, 50, 75, 100]) {
        let time = Duration::from_secs(effort.pick(2, 10, 30));
        let server = Server { rewrites: *rewrites, before: time, time, ..of };
        times.push(rate(RFJ, server)? / rate(JOURNAL, server)?);
        figure.place(rewrites, times.last().copied());
    }
    Ok((figure, times[times.len() - 1] / times[0]))
}

fn assume(f: &mut Findings, server: Server) {
    f.assume(
        "disk: model hdd7200 (seek 1 to 8 ms, turn 8.3 ms, 100 MB/s, no write cache, no elevator); the paper's is a \
         7,200 rpm SATA disk",
    );
    f.assume(format!(
        "create and write a file of 64 to 192 KiB, append 8 to 24 KiB, read, delete, stat; 1 ms of processor to an \
         operation, reads from the page cache; {} s go before what is measured; time is virtual",
        server.before.as_secs()
    ));
    f.assume(format!(
        "{} files for filebench's {PAPER_FILES}, and as small a part of a journal of 128 MB and of 8 GB of memory, \
         which the paper's machine has in figure 8 (16 GB in figure 2; one run is for both); {} % of the memory may be \
         dirty, the middle of the kernel's background limit (10 %) and limit (20 %)",
        server.files, server.dirty_percent
    ));
    f.assume(
        "a commit every 5 s; with ordered it writes the data of all files first and waits for it, as ext3's; with \
         writeback and rfj data is written when it is 30 s old or half of what may be dirty is; with journal each write \
         joins the transaction at once",
    );
    f.assume(
        "the 5 s, the 30 s and the disk are the paper's, while files and memory are a part of it: a disk that is as fast \
         for fewer files has more of them die in memory",
    );
    f.assume(
        "files' sizes are even between half of the mean and half more, in 20 directories; filebench draws sizes from a \
         gamma distribution, and makes directories of 20 names on average",
    );
    f.assume("\"much better\": twice; \"almost 5 times\": 4.5 to 5; \"almost the same\": a tenth more or less");
}

fn claims(rates: &[f64], [of_rfj, of_writeback]: &[Vec<f64>; 2], by_grain: &[f64], of_ordered: f64) -> Vec<Claim> {
    let ratio = |a: usize, b: usize| rates[a] / rates[b];
    let memory = "how much data dies in memory before it is written follows from how much may be dirty";
    let head = "writeback writes the last, partly filled block of a growing file in place, a movement of the head to \
         each append, and the model has no elevator; rfj logs it";
    vec![
        Claim::at_least(
            "figure 2",
            "ordered and writeback are much better than journal",
            "the slower of ordered and writeback / journal",
            ratio(ORDERED, JOURNAL).min(ratio(WRITEBACK, JOURNAL)),
            2.0,
        ),
        Claim::above(
            "figure 2",
            "writeback is the fastest of the three",
            "writeback / the faster of ordered and journal",
            rates[WRITEBACK] / rates[ORDERED].max(rates[JOURNAL]),
            1.0,
        ),
        Claim::between(
            "figure 8",
            "RFJ is almost 5 times as fast as journal",
            "rfj / journal",
            ratio(RFJ, JOURNAL),
            (4.5, 5.0),
        )
        .calibrated(of_rfj, memory),
        Claim::between(
            "figure 8",
            "RFJ is almost 5 times as fast as journal and almost the same as writeback, so writeback is, too",
            "writeback / journal",
            ratio(WRITEBACK, JOURNAL),
            (4.5 / 1.1, 5.0 / 0.9),
        )
        .calibrated(of_writeback, memory),
        Claim::above("figure 8", "RFJ is faster than ordered", "rfj / ordered", ratio(RFJ, ORDERED), 1.0),
        Claim::above(
            "figure 8",
            "RFJ is faster than ordered, also where no write leaves a block partly filled",
            "rfj / ordered, sizes of whole blocks",
            of_ordered,
            1.0,
        ),
        Claim::about(
            "figure 8",
            "RFJ has almost the same throughput as writeback",
            "rfj / writeback",
            ratio(RFJ, WRITEBACK),
            (1.0, 0.1),
        )
        .calibrated(by_grain, head),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Server = Server {
        threads: 50,
        files: 600,
        mean: 128 << 10,
        append: 16 << 10,
        grain: 1,
        rewrites: 0,
        mib: 1024,
        dirty_percent: DIRTY_PERCENT,
        before: Duration::from_secs(6),
        time: Duration::from_secs(11),
    };

    #[test]
    fn the_server_serves_and_most_blocks_are_new() {
        let server = Server { threads: 5, files: 50, mib: 256, ..Server::new(Duration::from_secs(1)) };
        let once = run(DISK(), Profile::Rfj, Stock::LeavesData, server).unwrap();
        assert!(once.operations >= 30 && once.overwritten * 10 < once.blocks, "{once:?}");
        assert_eq!(run(DISK(), Profile::Rfj, Stock::LeavesData, server).unwrap().traffic, once.traffic);
    }

    #[test]
    fn turns_that_overwrite_keep_the_files_and_write_blocks_that_held_data() {
        let server = Server { rewrites: 100, threads: 5, files: 50, mib: 256, ..Server::new(Duration::from_secs(1)) };
        let all = run(DISK(), Profile::Rfj, Stock::LeavesData, server).unwrap();
        assert!(all.operations >= 30 && all.overwritten * 10 > all.blocks * 8, "{all:?}");
        let half = run(DISK(), Profile::Rfj, Stock::LeavesData, Server { rewrites: 50, ..server }).unwrap();
        assert!((3..8).contains(&(half.overwritten * 10 / half.blocks)), "{half:?}");
    }

    /// The baselines have the problem that RFJ solves: a commit of ordered waits for all data, journal writes it twice.
    #[test]
    fn writeback_is_faster_than_ordered_and_rfj_is_faster_and_journal_is_far_behind() {
        let [journal, ordered, writeback, rfj] = [JOURNAL, ORDERED, WRITEBACK, RFJ].map(|m| rate(m, SMALL).unwrap());
        let all = format!("journal {journal:.0}, ordered {ordered:.0}, writeback {writeback:.0}, rfj {rfj:.0}");
        assert!(writeback > 1.05 * ordered && ordered > 2.0 * journal, "{all}");
        assert!(rfj > 5.0 * journal && rfj > 1.1 * writeback, "{all}");
    }

    /// The last block of a file, partly filled, is what RFJ has before writeback: without it they are alike.
    #[test]
    fn rfj_is_as_fast_as_writeback_where_writes_end_at_blocks() {
        let whole = Server { grain: BLOCK, ..SMALL };
        let times = rate(RFJ, whole).unwrap() / rate(WRITEBACK, whole).unwrap();
        assert!((0.8..1.25).contains(&times), "rfj / writeback: {times}");
    }
}
