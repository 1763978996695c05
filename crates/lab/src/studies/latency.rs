//! DJFS: how long one small durable write takes, journaled in NVRAM. A 4 KiB overwrite at random places of a warm file,
//! then fsync: through the library, through FUSE, and with the kernel's ext4 that journals data to an external journal.
//! All disks are files in memory, so what is measured is the way there. Rounds rotate over the competitors; medians.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};
use quire_device::sync::Arc;
use quire_device::{FileDevice, NvramMap, NvramOptions, SystemClock};
use quire_fs::{Cred, Devices, New, NewKind, Options, Profile, Volume, WriteFlags};
use quire_layout::Ino;

use super::mounts::KERNEL;
use crate::cmd::{run_tool, text};
use crate::image::Image;
use crate::interrupt::Folder;
use crate::mounter::Mounter;
use crate::results::{Claim, Figure, Findings};
use crate::served::Looped;
use crate::stats::Spread;
use crate::turns::turns;
use quire_testkit::rng::Rng;

/// What to measure.
#[derive(Debug)]
pub struct Plan {
    pub rounds: usize,
    /// To a round.
    pub writes: u32,
    /// A directory in memory.
    pub memory: PathBuf,
}

/// Who writes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Library(Profile),
    /// Through a mount with one option more, or none. With `writethrough` a write is a request of its own, and its
    /// times are no second one at the fsync. With `tune=host` idle CPUs poll.
    Fuse(Profile, &'static str),
    /// Data journaling with the journal on a device of its own.
    External,
    /// One of [`KERNEL`].
    Kernel(&'static str),
}

impl Way {
    fn name(self) -> String {
        match self {
            Way::Library(p) => format!("{p}, library"),
            Way::Fuse(p, "") => format!("{p}, FUSE"),
            Way::Fuse(p, option) => format!("{p}, {option}"),
            Way::External => "kernel external".into(),
            Way::Kernel(mounter) => mounter.replace(':', " ").replace("data=", ""),
        }
    }
}

const DJFS: [Way; 3] =
    [Way::Fuse(Profile::Djfs, ""), Way::Fuse(Profile::Djfs, "writethrough"), Way::Fuse(Profile::Djfs, "tune=host")];
const WAYS: [Way; 11] = [
    Way::Library(Profile::Djfs),
    Way::Library(Profile::Nvj),
    Way::Fuse(Profile::Nvj, ""),
    DJFS[0],
    DJFS[1],
    DJFS[2],
    Way::External,
    Way::Kernel(KERNEL[0]),
    Way::Kernel(KERNEL[1]),
    Way::Kernel(KERNEL[2]),
    Way::Kernel(KERNEL[3]),
];
/// Why a mount may take longer than it says.
const HALTED: &str = "each of two requests wakes a CPU that has halted in between; with tune=host idle CPUs poll";
/// What two such wakes take at most, in microseconds.
const WAKES: f64 = 100.0;
const IMAGE_MIB: u64 = 256;
const JOURNAL_MIB: u64 = 128;
const PAGE: usize = 4096;
/// Of the file.
const PAGES: u64 = 1024;
/// What a write changes of its page, like a row of a database.
const CHANGED: usize = 100;

/// Microseconds of the writes of a round: the write alone, the fsync alone, both.
type Times = [Vec<f64>; 3];

/// Runs it.
///
/// # Errors
/// A file system failed.
pub fn study(plan: &Plan) -> Result<Findings> {
    let mut ways = WAYS.to_vec();
    if let Some(why) = Mounter::kernel("").unavailable() {
        println!("skipped the kernel: {why}");
        ways.retain(|w| !matches!(w, Way::External | Way::Kernel(_)));
    }
    let mut all: Vec<Times> = vec![Times::default(); ways.len()];
    for (round, who) in turns(plan.rounds, ways.len()) {
        eprintln!("round {}: {}", round + 1, ways[who].name());
        let times = one(plan, ways[who]).with_context(|| ways[who].name())?;
        all[who].iter_mut().zip(times).for_each(|(all, times)| all.extend(times));
    }
    let title = format!("4 KiB overwrite and fsync, all in memory, {} rounds of {} writes", plan.rounds, plan.writes);
    let mut figure = Figure::bars("latency", "commit latency", title, "way", "us, median").of_series([
        "write",
        "fsync",
        "both",
        "p99 of both",
    ]);
    let spread: Vec<[Spread; 3]> = all.into_iter().map(|times| times.map(Spread::of)).collect();
    for (way, s) in ways.iter().zip(&spread) {
        figure.place(way.name(), [s[0].median, s[1].median, s[2].median, s[2].p99]);
    }
    let of = |way| ways.iter().position(|w| *w == way).map_or(f64::NAN, |n| spread[n][2].median);
    let (library, [fuse, through, tuned]) = (of(Way::Library(Profile::Djfs)), DJFS.map(of));
    let at = "commit latency";
    let mut f = Findings { figures: vec![figure], ..Findings::default() };
    f.assume("image, NVRAM and the kernel's loop devices are files in memory: what is measured is the way there");
    f.assume(format!(
        "one thread; a file of {PAGES} pages that has all its blocks, of which a page is overwritten at random, {CHANGED} \
         B of it changed, and then synced; figures are of all writes of all rounds, claims of medians"
    ));
    f.claims = vec![
        Claim::at_most(at, "one small durable write through the library takes 5 us", "djfs, library, us", library, 5.0)
            .because_within(5.0..=10.0, "all of it is computing, which takes up to twice as long on a busy machine"),
        Claim::at_most(at, "through FUSE it takes 40 us", "djfs, FUSE, us", fuse, 40.0)
            .because_within(40.0..=tuned + WAKES, HALTED),
        Claim::at_most(at, "through FUSE it takes 40 us", "djfs, FUSE with tune=host, us", tuned, 40.0),
    ];
    if ways.contains(&Way::External) {
        let kernel = of(Way::External);
        let says = "the kernel's external journal in memory takes three times as long";
        f.claims.push(Claim::at_least(at, says, "kernel external / djfs through the library", kernel / library, 3.0));
        let fastest = fuse.min(through).min(tuned);
        f.claims.push(Claim::at_least(
            at,
            says,
            "kernel external / djfs through FUSE, the fastest mount",
            kernel / fastest,
            3.0,
        ));
    } else {
        f.skipped.push("the kernel: mounts need root".into());
    }
    Ok(f)
}

fn one(plan: &Plan, way: Way) -> Result<Times> {
    let dir = Folder::new(&plan.memory, "quire-latency-")?;
    match way {
        Way::Library(profile) => in_library(plan, profile, dir.path()),
        Way::Fuse(profile, more) => {
            let image = Image::make(&dir.path().join("image"), IMAGE_MIB << 20, &["-b", "4096"])?;
            let nvram = dir.path().join("nvram");
            let options =
                format!("profile={profile},nvram={},nvram_simulated,nvram_size={JOURNAL_MIB}M,noatime", text(&nvram));
            let mounter = Mounter::quire(&options);
            let mounter = if more.is_empty() { mounter } else { mounter.with(more) };
            let mounted = mounter.mount(image.path(), &dir.path().join("mnt"))?;
            let times = on_file(plan, &mounted.dir().join("file"))?;
            mounted.unmount()?;
            image.check_clean()?;
            Ok(times)
        }
        Way::External => {
            let log = loop_of(dir.path(), "log", JOURNAL_MIB)?;
            run_tool("mke2fs", ["-q", "-F", "-b", "4096", "-O", "journal_dev", text(log.device())])?;
            let journal = format!("device={}", text(log.device()));
            on_kernel(plan, &Mounter::kernel("data=journal"), &["-J", &journal], IMAGE_MIB, dir.path())
        }
        Way::Kernel(mounter) => {
            let mounter: Mounter = mounter.parse()?;
            let size = format!("size={JOURNAL_MIB}");
            let feature = mounter.feature();
            let journal = if feature.is_some_and(|of| of.starts_with('^')) { vec![] } else { vec!["-J", &*size] };
            let arguments: Vec<&str> = feature.iter().flat_map(|of| ["-O", of]).chain(journal).collect();
            on_kernel(plan, &mounter, &arguments, IMAGE_MIB + JOURNAL_MIB, dir.path())
        }
    }
}

fn loop_of(dir: &Path, name: &str, mib: u64) -> Result<Looped> {
    let path = dir.join(name);
    File::create(&path)?.set_len(mib << 20)?;
    Looped::buffered(&path)
}

/// The same on the kernel's ext4, made with these arguments on so large a disk.
fn on_kernel(plan: &Plan, mounter: &Mounter, arguments: &[&str], mib: u64, dir: &Path) -> Result<Times> {
    let disk = loop_of(dir, "disk", mib)?;
    let lazy = "lazy_itable_init=0,lazy_journal_init=0";
    let made = ["-q", "-F", "-t", "ext4", "-b", "4096", "-E", lazy].into_iter().chain(arguments.iter().copied());
    run_tool("mke2fs", made.chain([text(disk.device())]))?;
    let mounted = mounter.with("noatime").mount(disk.device(), &dir.join("mnt"))?;
    let times = on_file(plan, &mounted.dir().join("file"))?;
    mounted.unmount()?;
    Ok(times)
}

/// Bytes that change a little from write to write, and where they go.
struct Pages {
    rng: Rng,
    page: Vec<u8>,
}

impl Pages {
    fn new() -> Self {
        Pages { rng: Rng::from_parts(&[1, 0x1A7]), page: vec![7; PAGE] }
    }

    fn next(&mut self) -> (u64, &[u8]) {
        let from = self.rng.index(PAGE - CHANGED);
        for b in &mut self.page[from..from + CHANGED] {
            *b = u8::try_from(self.rng.below(256)).expect("a byte");
        }
        (self.rng.below(PAGES) * PAGE as u64, &self.page)
    }
}

/// Times `write` and `fsync` of so many pages.
fn measure(
    plan: &Plan,
    mut write: impl FnMut(u64, &[u8]) -> Result<()>,
    mut fsync: impl FnMut() -> Result<()>,
) -> Result<Times> {
    let mut pages = Pages::new();
    let mut times = Times::default();
    for _ in 0..plan.writes {
        let (at, page) = pages.next();
        let start = Instant::now();
        write(at, page)?;
        let written = start.elapsed();
        fsync()?;
        let all = start.elapsed();
        for (times, t) in times.iter_mut().zip([written, all - written, all]) {
            times.push(t.as_secs_f64() * 1e6);
        }
    }
    Ok(times)
}

fn on_file(plan: &Plan, path: &Path) -> Result<Times> {
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
    file.write_all_at(&vec![1; usize::try_from(PAGES)? * PAGE], 0)?;
    file.sync_all()?;
    measure(plan, |at, page| Ok(file.write_all_at(page, at)?), || Ok(file.sync_all()?))
}

fn in_library(plan: &Plan, profile: Profile, dir: &Path) -> Result<Times> {
    let image = Image::make(&dir.join("image"), IMAGE_MIB << 20, &["-b", "4096"])?;
    let device = Arc::new(FileDevice::open(image.path(), quire_device::OpenOptions::default())?);
    let how = NvramOptions { simulated: true, size: Some(JOURNAL_MIB << 20), ..NvramOptions::default() };
    let memory = Arc::new(NvramMap::open(dir.join("nvram"), how)?);
    let options = Options { atime: quire_fs::Atime::No, ..Options::default() }.with(profile.choices());
    let volume = Volume::open(Devices::one(device).with_nvram(memory), Arc::new(SystemClock), options)?;
    let background = volume.maintenance().spawn_background();
    let new = New { kind: NewKind::File, mode: 0o600, umask: 0, cred: Cred::default() };
    let ino = volume.create(Ino::ROOT, b"file", &new)?.ino;
    volume.write(ino, 0, &vec![1; usize::try_from(PAGES)? * PAGE], WriteFlags::default())?;
    volume.fsync(ino, false)?;
    let write = |at, page: &[u8]| volume.write(ino, at, page, WriteFlags::default()).map(drop).map_err(Into::into);
    let times = measure(plan, write, || Ok(volume.fsync(ino, false)?))?;
    drop(background);
    volume.close()?;
    image.check_clean()?;
    Ok(times)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_write_through_the_library_is_timed() {
        let dir = tempfile::tempdir().unwrap();
        let plan = Plan { rounds: 1, writes: 20, memory: dir.path().to_owned() };
        let times = one(&plan, Way::Library(Profile::Djfs)).unwrap();
        assert!(times.iter().all(|t| t.len() == 20 && t.iter().all(|t| *t > 0.0)));
    }
}
