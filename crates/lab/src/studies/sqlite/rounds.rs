//! The rounds of JoJ's cases: on a device under a loop device, or on the library.

use std::path::Path;

use anyhow::{Context, Result};
use quire_testkit::Model;

use super::cases::cases;
use super::plan::{self, NVRAM_MIB, Plan, Series};
use super::{in_process, on_library};
use crate::cmd::{run_tool, text};
use crate::interrupt;
use crate::served::{Asked, Looped};
use crate::stats::Spread;
use crate::turns::turns;
use crate::work::sqlite::run;

/// What the file systems are on.
pub(super) enum Disk {
    Looped(Looped),
    /// The library is mounted on such a device, in virtual time.
    Library(Model),
}

impl Disk {
    /// What a modelled device was asked for so far.
    fn asked(&self) -> Result<Option<Asked>> {
        match self {
            Disk::Looped(disk) => disk.asked(),
            Disk::Library(_) => Ok(None),
        }
    }
}

/// Of each series and case, the times of all rounds.
pub(super) type Times = Vec<Vec<Vec<f64>>>;

pub(super) struct Measured {
    pub times: Times,
    /// Of each series, what the last round asked of a modelled device.
    pub traffic: Vec<Option<Asked>>,
}

/// Measures every series once a round, each on a fresh file system.
///
/// # Errors
/// A file system failed.
pub(super) fn rounds(plan: &Plan, series: &[Series], disk: &Disk, dir: &Path) -> Result<Measured> {
    let times = series.iter().map(|s| vec![Vec::new(); cases(&s.protections).len()]).collect();
    let mut measured = Measured { times, traffic: vec![None; series.len()] };
    for (round, who) in turns(plan.rounds, series.len()) {
        let s = &series[who];
        eprintln!("round {}: {}", round + 1, s.mounter);
        let before = disk.asked()?;
        let times = one(plan, s, disk, dir).with_context(|| s.mounter.to_string())?;
        times.into_iter().zip(&mut measured.times[who]).for_each(|(time, all)| all.push(time));
        measured.traffic[who] = disk.asked()?.zip(before).map(|(now, then)| now.since(then));
    }
    Ok(measured)
}

fn one(plan: &Plan, series: &Series, disk: &Disk, dir: &Path) -> Result<Vec<f64>> {
    match disk {
        Disk::Looped(disk) => on_mount(plan, series, disk, dir),
        Disk::Library(model) => on_library::one(plan, series, *model),
    }
}

fn on_mount(plan: &Plan, series: &Series, disk: &Looped, dir: &Path) -> Result<Vec<f64>> {
    let parameters = plan::in_process(&series.mounter);
    let image = match &parameters {
        Some(_) => in_process::image(disk, dir)?,
        None => disk.device().to_owned(),
    };
    let options = "lazy_itable_init=0,lazy_journal_init=0";
    let feature = series.mounter.feature().map(|feature| ["-O", feature]).into_iter().flatten();
    let arguments = ["-q", "-F", "-t", "ext4", "-b", "4096", "-E", options].into_iter().chain(feature);
    disk.set_timed(false)?;
    run_tool("mke2fs", arguments.chain([text(&image)]))?;
    disk.set_timed(true)?;
    if let Some(parameters) = parameters {
        return in_process::one(plan, series, &image, &parameters);
    }
    let (mounter, _memory) = series.mounter.with("noatime").with_memory(NVRAM_MIB)?;
    let mounted = mounter.mount(disk.device(), &dir.join("mnt"))?;
    let mut times = Vec::new();
    for protection in &series.protections {
        for load in plan.loads(*protection) {
            interrupt::check()?;
            times.extend(run(mounted.dir(), load)?);
        }
    }
    mounted.unmount()?;
    Ok(times)
}

/// Of each case, the mean of all rounds of a series.
pub(super) fn means(measured: &Times, who: usize) -> Vec<f64> {
    measured[who].iter().map(|all| Spread::of(all.clone()).mean).collect()
}
