//! RFJ's file server on mounts (figures 2 and 8): 50 threads create and write whole files, append, read, delete and
//! stat, and ask for nothing to be durable. The kernel may keep as much dirty data of each mount as falls to so
//! many files of the paper's machine: with more, all of it dies in memory before it is written, and no journal matters.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::Result;
use quire_testkit::rng::{Rng, content};

use super::super::fileserver::{DIRECTORIES, Server};
use super::bed::{Bed, Measured, Rounds};
use super::{JOURNAL, NONE, ORDERED, WRITEBACK, assume, mounters, rounds_of};
use crate::mounter::Who;
use crate::results::{Claim, Effort, Figure, Findings};
use crate::stats::{float, mib};

/// RFJ's third baseline beside [`super::KERNEL`].
const THIRD: &str = "kernel:data=writeback";
const QUIRE: [&str; 4] = ["profile=ext4-ordered", "profile=ext4-journal", "profile=rfj", "profile=auto"];
const RFJ: &str = "quire rfj";

/// Filebench's files, of which the study has a part, and the same part of the paper's machine (section 4).
const PAPER_FILES: u64 = 10_000;

/// What may be dirty: of 8 GiB of memory the middle of the kernel's limits, 15 %.
const fn dirty_bytes(files: u64) -> u64 {
    (8 << 30) * 15 / 100 / PAPER_FILES * files
}

/// Quire's mounts may have as much dirty: three eighths of their cache. FUSE hands them a file's pages at its close,
/// so they hardly lie in the kernel's page cache.
fn cache_size(dirty: u64) -> String {
    format!("cache_size={}", dirty / 3 * 8)
}

/// The journal that mke2fs makes on a disk, 128 MiB, and at least what is sure to be large enough.
fn journal_mib(files: u64) -> u64 {
    (128 * files / PAPER_FILES).max(8)
}

fn make(path: &Path, rng: &mut Rng, server: Server) -> Result<()> {
    let len = server.mean / 2 + rng.below(server.mean);
    Ok(fs::write(path, content(len, 0, usize::try_from(len)?))?)
}

fn place(dir: &Path, name: &str, rng: &mut Rng) -> PathBuf {
    dir.join(format!("dir-{}", rng.below(DIRECTORIES))).join(name)
}

/// The files that are there at the beginning.
fn first(dir: &Path, server: Server) -> impl Iterator<Item = PathBuf> {
    (0..server.files).map(move |n| dir.join(format!("dir-{}", n % DIRECTORIES)).join(format!("first-{n}")))
}

fn fill(dir: &Path, server: Server) -> Result<()> {
    (0..DIRECTORIES).try_for_each(|n| fs::create_dir(dir.join(format!("dir-{n}"))))?;
    let mut rng = Rng::from_parts(&[1, 0xF5]);
    first(dir, server).try_for_each(|path| make(&path, &mut rng, server))
}

/// Returns the operations of the time that is measured.
fn serve(dir: &Path, server: Server) -> Result<u64> {
    let (set, began) = (Mutex::new(first(dir, server).collect()), Instant::now());
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..server.threads)
            .map(|n| {
                scope.spawn({
                    let set = &set;
                    move || thread(dir, set, n, began, server)
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().expect("a server's thread panicked")).sum()
    })
}

fn thread(dir: &Path, set: &Mutex<Vec<PathBuf>>, n: u64, began: Instant, server: Server) -> Result<u64> {
    let mut rng = Rng::from_parts(&[2, 0xF5, n]);
    let put = |path| set.lock().expect("no holder panics").push(path);
    let take = |rng: &mut Rng| {
        let mut set = set.lock().expect("no holder panics");
        let n = rng.index(set.len());
        set.swap_remove(n)
    };
    let (mut turns, mut counted) = (0, 0);
    let measured = server.before..server.before + server.time;
    let mut count = |operations: u64| counted += if measured.contains(&began.elapsed()) { operations } else { 0 };
    while began.elapsed() < measured.end {
        let path = place(dir, &format!("file-{n}-{turns}"), &mut rng);
        make(&path, &mut rng, server)?;
        // A create and a write.
        count(2);
        put(path);
        let path = take(&mut rng);
        let len = server.append / 2 + rng.below(server.append);
        File::options().append(true).open(&path)?.write_all(&content(len, 0, usize::try_from(len)?))?;
        count(1);
        fs::read(&path)?;
        count(1);
        put(path);
        fs::remove_file(take(&mut rng))?;
        count(1);
        let path = take(&mut rng);
        fs::metadata(&path)?;
        count(1);
        put(path);
        turns += 1;
    }
    Ok(counted)
}

/// Figures 2 and 8.
///
/// # Errors
/// A file system failed.
pub fn study(effort: Effort) -> Result<Findings> {
    let files = effort.pick(200, 600, 2000);
    let server = Server {
        files,
        before: Duration::from_secs(effort.pick(1, 2, 10)),
        ..Server::new(Duration::from_secs(effort.pick(1, 5, 30)))
    };
    let dirty = dirty_bytes(files);
    let bed = Bed::new("hdd7200", server.mib, journal_mib(files))?.with_dirty_limit(dirty);
    let mut mounters = mounters(&QUIRE)?;
    mounters.push(THIRD.parse()?);
    for quire in mounters.iter_mut().filter(|m| m.who == Who::Quire) {
        *quire = quire.with(&cache_size(dirty));
    }
    let phases = [()];
    let rounds =
        bed.rounds(rounds_of(effort), &mounters, |dir| fill(dir, server), &phases, |dir, ()| serve(dir, server))?;
    let rate = |m: &Measured<u64>| float(m.of) / server.time.as_secs_f64();
    let title = format!("A file server of {} threads, {} s, mounts", server.threads, server.time.as_secs());
    let figure = Figure::bars("rfj-8-mounts", "figures 2 and 8", title, "mount", "operations/s");
    let figure = rounds.drawn(figure.logarithmic().of_series(["operations/s"]), &[0], rate);
    let mut f = Findings { figures: vec![figure], claims: claims(&rounds, rate), ..Findings::default() };
    assume(&mut f, effort);
    f.assume(format!(
        "disk: model hdd7200; {files} files for filebench's 10,000, and as small a part of a journal of 128 MB ({} MiB) \
         and of what may be dirty in 8 GB, the paper's memory in figure 8 (16 GB in figure 2): the page cache may hold \
         {:.0} MiB of dirty data of each mount \
         (max_bytes, strict_limit), and so may Quire's own cache ({}); {} s go before what is measured",
        journal_mib(files),
        mib(dirty),
        cache_size(dirty),
        server.before.as_secs()
    ));
    f.assume(
        "ext4 of today gives blocks to data when it is written back, so its ordered mode does not flush other files' \
         data as ext3's did; \"much faster\": twice; \"almost as fast\": nine tenths",
    );
    Ok(f)
}

/// Why writeback is not faster than ordered.
const DELAYED: &str = "ordered of today waits for no other file's data, so there is nothing to gain; without any journal, and so \
     without any order, the kernel is not faster either";
fn claims(rounds: &Rounds<u64>, rate: impl Fn(&Measured<u64>) -> f64) -> Vec<Claim> {
    let of = |name: &str| rounds.median(name, 0, &rate);
    let unordered = (of(NONE) / of(ORDERED)).min(1.0);
    let ratio = |a: &str, b: &str| (format!("{a} / {b}"), of(a) / of(b));
    let at_least = |at, says, (what, measured), limit| Claim::at_least(at, says, what, measured, limit);
    vec![
        at_least("figure 2, on mounts", "ordered is much faster than journal", ratio(ORDERED, JOURNAL), 2.0),
        at_least("figure 2, on mounts", "writeback is the fastest of the three", ratio(WRITEBACK, ORDERED), 1.0)
            .because_within(unordered..=1.0, DELAYED),
        at_least("figure 8, on mounts", "RFJ is almost 5 times as fast as journal", ratio(RFJ, JOURNAL), 5.0)
            .printed("5"),
        at_least("figure 8, on mounts", "RFJ is faster than ordered", ratio(RFJ, ORDERED), 1.0),
        at_least("figure 8, on mounts", "RFJ is almost as fast as writeback", ratio(RFJ, WRITEBACK), 0.9).printed(1.0),
    ]
}
