//! The papers' workloads on mounts in real time: the kernel's ext4 in its modes and Quire stand on the same modelled
//! device, which counts what reaches it. So no factor rests on Quire's own baselines alone.
//!
//! - [`randwrite`]: DJFS' random writes with fsyncs (figures 2 and 7).
//! - [`database`]: what DJFS' TPC-C makes a journal do (table 1).
//! - [`streams`]: Okeanos' streams (figures 4a and 4c).
//! - [`fileserver`]: RFJ's file server (figures 2 and 8).
//!
//! *Relies on*: root, loop devices and FUSE. A write with FUA reaches the served device as a write and a flush.

pub mod database;
pub mod fileserver;
pub mod randwrite;
pub mod streams;

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::cmd::{run_tool, text};
use crate::mounter::Mounter;
use crate::served::{Asked, Kind, Looped};

/// The kernel's ext4 in its modes: without a journal, ordered, full journaling, and fast commits.
pub const KERNEL: [&str; 4] = ["kernel:none", "kernel:data=ordered", "kernel:data=journal", "kernel:fast_commit"];

/// What all of these studies assume.
const ASSUMED: &str = "mounts in real time on a device that is served to the kernel over FUSE, with a loop device on it; \
     journals are on the device; processors, FUSE and the loop device take their time, which virtual time leaves out";

/// The kernel's modes and these of Quire's.
fn mounters(quire: &[&str]) -> Result<Vec<Mounter>> {
    let quire = quire.iter().map(|options| Ok(Mounter::quire(options)));
    KERNEL.iter().map(|mounter| mounter.parse()).chain(quire).collect()
}

/// What a workload came to.
struct Measured<T> {
    of: T,
    asked: Asked,
    seconds: f64,
}

/// A modelled device that one mounter after the other uses.
struct Bed {
    disk: Looped,
    dir: tempfile::TempDir,
    journal_mib: u64,
}

impl Bed {
    fn new(model: &str, mib: u64, journal_mib: u64) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("quire-mounts-").tempdir()?;
        let kind: Kind = model.parse()?;
        Ok(Bed { disk: Looped::new(&kind, mib << 20, dir.path())?, dir, journal_mib })
    }

    /// Makes a file system, mounts it, prepares, and measures `work`.
    fn measure<T>(
        &self,
        mounter: &Mounter,
        prepare: impl FnOnce(&Path) -> Result<()>,
        work: impl FnOnce(&Path) -> Result<T>,
    ) -> Result<Measured<T>> {
        self.mounted(mounter, prepare, work).with_context(|| mounter.to_string())
    }

    fn mounted<T>(
        &self,
        mounter: &Mounter,
        prepare: impl FnOnce(&Path) -> Result<()>,
        work: impl FnOnce(&Path) -> Result<T>,
    ) -> Result<Measured<T>> {
        let mut mke2fs = vec!["-q", "-F", "-t", "ext4", "-b", "4096", "-E", "lazy_itable_init=0,lazy_journal_init=0"];
        let journal = format!("size={}", self.journal_mib);
        match mounter.feature() {
            Some(feature) if feature.starts_with('^') => mke2fs.extend(["-O", feature]),
            Some(feature) => mke2fs.extend(["-O", feature, "-J", &journal]),
            None => mke2fs.extend(["-J", &journal]),
        }
        run_tool("mke2fs", mke2fs.into_iter().chain([text(self.disk.device())]))?;
        let mounted = mounter.with("noatime").mount(self.disk.device(), &self.dir.path().join("mnt"))?;
        prepare(mounted.dir())?;
        sync(mounted.dir())?;
        let (before, began) = (self.asked()?, Instant::now());
        let of = work(mounted.dir())?;
        let (seconds, asked) = (began.elapsed().as_secs_f64(), self.asked()?.since(before));
        mounted.unmount()?;
        eprintln!("{mounter}: {seconds:.1} s; {}", asked.to_string().trim_end().replace('\n', ", "));
        Ok(Measured { of, asked, seconds })
    }

    fn asked(&self) -> Result<Asked> {
        self.disk.asked()?.context("a device of the machine's counts nothing")
    }
}

fn sync(dir: &Path) -> Result<()> {
    Ok(rustix::fs::syncfs(std::fs::File::open(dir)?)?)
}
