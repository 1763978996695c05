//! RFJ's file server: filebench's `fileserver` (create and write a whole file, append, read a whole file, delete, stat;
//! 50 threads, nothing synchronous) on a modelled 7,200 rpm disk, in virtual time. Reads cost nothing: as in the paper,
//! the files fit into the page cache, which lies above us.

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
use quire_testkit::rng::{Rng, content};

/// What the server does; the defaults are filebench's, on a tenth of the files.
#[derive(Clone, Copy, Debug)]
pub struct Server {
    pub threads: u64,
    pub files: u64,
    /// Mean size of a whole file; sizes are even between half of it and half more.
    pub mean: u64,
    /// Mean size of what is appended.
    pub append: u64,
    /// Size of the file system, in MiB.
    pub mib: u64,
    pub time: Duration,
}

impl Server {
    #[must_use]
    pub fn new(time: Duration) -> Self {
        Server { threads: 50, files: 2000, mean: 128 << 10, append: 16 << 10, mib: 2048, time }
    }
}

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
const DIRECTORIES: u64 = 20;
/// What an operation takes beside the disk: 160 us on one of 8 cores that 50 threads share.
const CPU: Duration = Duration::from_millis(1);

/// Runs the server on a profile.
///
/// # Errors
/// The file system fails.
pub fn run(model: Model, profile: Profile, server: Server) -> Result<Outcome> {
    let mut plan = Plan { mib: server.mib, journal_mib: server.mib / 16, ..Plan::new(model, profile) };
    // As much as the page cache of a small server may hold dirty.
    plan.options.cache_bytes = 256 << 20;
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
    let (before, start) = (rig.counted(), rig.world.monotonic());
    let bodies = (0..server.threads).map(|n| {
        let (rig, dirs, set) = (&rig, &dirs, &set);
        let body = move || serve(rig, dirs, set, n, start + server.time, server);
        Box::new(body) as Body<'_, Result<Outcome>>
    });
    let outcomes: Vec<Outcome> = rig.run(bodies.collect()).into_iter().collect::<Result<_>>()?;
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
const OPERATIONS: u64 = 6;

/// One thread.
fn serve(rig: &Rig, dirs: &[Ino], set: &Mutex<Vec<Entry>>, n: u64, end: Duration, server: Server) -> Result<Outcome> {
    let mut rng = Rng::from_parts(&[n, 0xF5]);
    let mut done = Outcome::default();
    let mut round = 0;
    while rig.world.monotonic() < end {
        let entry = make(rig, dirs, &format!("file-{n}-{round}"), &mut rng, server, &mut done)?;
        lock(set).push(entry);
        let mut entry = take(set, &mut rng);
        let len = server.append / 2 + rng.below(server.append);
        write(rig, &mut entry, len, &mut done)?;
        lock(set).push(entry);
        // A whole file is read, from the page cache above; another is deleted, and one is looked at.
        let entry = take(set, &mut rng);
        rig.volume.unlink(parent(dirs, &entry), entry.name.as_bytes())?;
        rig.volume.forget(entry.ino, 1);
        let entry = take(set, &mut rng);
        let attr = rig.volume.getattr(entry.ino)?;
        anyhow::ensure!(attr.size == entry.size, "{} has {} bytes, {} were written", entry.name, attr.size, entry.size);
        lock(set).push(entry);
        done.operations += OPERATIONS;
        rig.world.sleep(CPU * u32::try_from(OPERATIONS)?);
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
    write(rig, &mut entry, server.mean / 2 + rng.below(server.mean), done)?;
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

const PROFILES: [Profile; 5] =
    [Profile::Ext4Journal, Profile::Ext4Ordered, Profile::Ext4Writeback, Profile::Rfj, Profile::Auto];

/// Figures 2 and 8.
///
/// # Errors
/// A file system failed.
pub fn study(effort: Effort) -> Result<Findings> {
    let time = Duration::from_secs(effort.pick(10, 20, 60));
    let outcomes: Vec<Outcome> = PROFILES.iter().map(|p| run(DISK(), *p, Server::new(time))).collect::<Result<_>>()?;
    let rate = |o: &Outcome| float(o.operations) / o.time.as_secs_f64();
    let rates: Vec<f64> = outcomes.iter().map(rate).collect();
    let server = format!("A file server of 50 threads, {} s", time.as_secs());
    let mut two = Figure::bars("rfj-2", "figure 2", server.clone(), "mode", "operations/s").of_series(["operations/s"]);
    let mut eight = Figure::bars("rfj-8", "figure 8", server, "mode", "operations/s").of_series(["operations/s"]);
    for (n, profile) in PROFILES.iter().enumerate() {
        let name = profile.to_string();
        let name = name.strip_prefix("ext4-").unwrap_or(&name);
        if n < 3 {
            two.place(name, [rates[n]]);
        }
        eight.place(name, [rates[n]]);
    }
    let mut f = Findings { figures: vec![two, eight], ..Findings::default() };
    f.assume(
        "disk: model hdd7200 (seek 1 to 8 ms, turn 8.3 ms, 100 MB/s, no write cache, no elevator), \
         internal journal of a sixteenth; the paper's is a 7,200 rpm SATA disk",
    );
    f.assume(
        "create and write a file of 64 to 192 KiB, append 8 to 24 KiB, read, delete, stat; 2000 files, 1 \
         ms of processor to an operation, reads from the page cache; time is virtual",
    );
    f.claims = claims(&rates);
    Ok(f)
}

fn claims(rates: &[f64]) -> Vec<Claim> {
    let ours = "the baselines are Quire's: its ordered commit waits for no other file's data, so ordered and \
         writeback are one path";
    let head = "Quire's ordered and writeback write the last, partly filled block of a growing file in place, a \
         movement of the head to each append; rfj logs it";
    vec![
        Claim::at_least(
            "figure 2",
            "ordered is much faster than journal",
            "ordered / journal",
            rates[1] / rates[0],
            1.0,
        ),
        Claim::at_least(
            "figure 2",
            "writeback is the fastest of the three",
            "writeback / ordered",
            rates[2] / rates[1],
            1.0,
        )
        .because(ours),
        Claim::at_least(
            "figure 8",
            "RFJ is almost 5 times as fast as journal",
            "rfj / journal",
            rates[3] / rates[0],
            4.5,
        )
        .printed(5.0)
        .because("half of the disk's time goes into movements that all modes share"),
        Claim::at_least("figure 8", "RFJ is faster than ordered", "rfj / ordered", rates[3] / rates[1], 1.0),
        Claim::at_least("figure 8", "RFJ is almost as fast as writeback", "rfj / writeback", rates[3] / rates[2], 0.9)
            .printed(1.0)
            .because(head),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_serves_and_most_blocks_are_new() {
        let server = Server { threads: 5, files: 50, mib: 256, ..Server::new(Duration::from_secs(1)) };
        let once = run(DISK(), Profile::Rfj, server).unwrap();
        assert!(once.operations >= 30 && once.overwritten * 10 < once.blocks, "{once:?}");
        assert_eq!(run(DISK(), Profile::Rfj, server).unwrap().traffic, once.traffic);
    }
}
