//! Crash images out of a recording, and what their databases look like.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use quire_device::SystemClock;
use quire_device::sync::Arc;
use quire_fs::{Devices, Options, Volume};
use quire_layout::Ino;
use quire_testkit::rng::Rng;
use quire_testkit::{Crash, PowerLossDevice, PowerLossOptions, Recording};

use super::place::{DATA, Place};
use super::plan::{Plan, Report};
use super::record::Recorded;
use crate::cmd::{run_tool, text};
use crate::mounter::{Mounter, Who};

/// Cuts, and looks at each.
pub(super) fn cut(dir: &Path, plan: &Plan, recorded: &Recorded) -> Result<Report> {
    let Recorded { recording, from, to } = recorded;
    let mut report = Report { steps: to - from, ..Report::default() };
    let chosen = moments(recorded, plan);
    let number = Cell::new(0);
    let wanted = move |_, _| {
        number.set(number.get() + 1);
        chosen.contains(&number.get())
    };
    for (steps, point) in recording.crash_points_at(wanted) {
        let crash = point.crash(plan.seed ^ steps.rotate_left(20));
        report.cuts += 1;
        report.lost += usize::from(crash.lost > 0);
        report.torn += usize::from(crash.torn > 0);
        report.reordered += usize::from(crash.reordered > 0);
        look(dir, plan, &crash, &mut report)
            .with_context(|| format!("power cut after {steps} of {} steps", recording.len()))?;
        if plan.until_bad && report.bad_cuts > 0 {
            break;
        }
    }
    Ok(report)
}

/// The numbers of the moments that are cut: half of them before a flush, when most is in doubt.
fn moments(recorded: &Recorded, plan: &Plan) -> BTreeSet<u64> {
    let (mut flushes, mut others) = (Vec::new(), Vec::new());
    each_moment(&recorded.recording, |number, at, flush| {
        if (recorded.from..recorded.to).contains(&at) {
            if flush { flushes.push(number) } else { others.push(number) }
        }
    });
    let mut rng = Rng::from_parts(&[plan.seed, 31]);
    let mut chosen = BTreeSet::new();
    let wanted = plan.cuts.min(flushes.len() + others.len());
    while chosen.len() < wanted {
        let from = if others.is_empty() || (!flushes.is_empty() && rng.one_in(2)) { &mut flushes } else { &mut others };
        chosen.insert(from.swap_remove(rng.index(from.len())));
    }
    chosen
}

/// Calls `f` with the number of each moment (from 1), the steps before it, and whether a flush comes next.
fn each_moment(recording: &Recording, mut f: impl FnMut(u64, u64, bool)) {
    let mut number = 0;
    let none = recording.crash_points_at(|at, flush| {
        number += 1;
        f(number, at, flush);
        false
    });
    assert_eq!(none.count(), 0);
}

/// Recovers the file system and judges the database on it.
fn look(dir: &Path, plan: &Plan, crash: &Crash, report: &mut Report) -> Result<()> {
    let (data, sockets) = (dir.join("copy"), dir.join("sockets"));
    if data.exists() {
        fs::remove_dir_all(&data)?;
    }
    match plan.mounter.who {
        Who::Quire => by_quire(crash, &data)?,
        _ => by_kernel(dir, crash, &data)?,
    }
    let place = Place { data: &data, sockets: &sockets };
    let bad = plan.database.bad_pages(place).context("looking at the pages")?;
    report.bad_pages += bad;
    report.bad_cuts += usize::from(bad > 0);
    let number = report.cuts;
    if bad > 0 {
        println!("cut {number}: {bad} bad pages ({} writes torn, {} lost)", crash.torn, crash.lost);
        keep(plan, crash, number)?;
    }
    if number.is_multiple_of(plan.start_every.max(1)) {
        report.started += 1;
        if let Err(error) = plan.database.start_and_look(place) {
            report.failed += 1;
            println!("cut {number}: {error:#}");
            if bad == 0 {
                keep(plan, crash, number)?;
            }
        }
    }
    Ok(())
}

/// Keeps a crash image of Quire's that should not be.
fn keep(plan: &Plan, crash: &Crash, number: usize) -> Result<()> {
    if plan.mounter.who == Who::Quire {
        let kept = std::env::temp_dir().join(format!("pages-{}-{}-{number}.img", plan.database, plan.seed));
        crash.image.save(&kept)?;
        println!("cut {number}: the crash image is kept: {}", kept.display());
    }
    Ok(())
}

/// Recovers with the library and takes the files out.
fn by_quire(crash: &Crash, to: &Path) -> Result<()> {
    let device = Arc::new(PowerLossDevice::from_image(crash.image.clone(), PowerLossOptions::default()));
    let volume = Volume::open(Devices::one(device), Arc::new(SystemClock), Options::default())
        .context("mounting the crash image")?;
    let data = volume.lookup(Ino::ROOT, DATA.as_bytes())?;
    fs::create_dir(to)?;
    crate::powercut::extract(&volume, data.ino, to).context("reading the recovered tree")?;
    volume.close().context("unmounting the survivor")
}

/// Mounts with the kernel, which replays the journal, and copies the files.
fn by_kernel(dir: &Path, crash: &Crash, to: &Path) -> Result<()> {
    let (file, mnt) = (dir.join("crashed"), dir.join("mnt"));
    crash.image.save(&file)?;
    let mounted = Mounter::kernel("").mount(&file, &mnt)?;
    let copied = run_tool("cp", ["-a", text(&mnt.join(DATA)), text(to)]);
    mounted.unmount()?;
    copied?;
    Ok(fs::remove_file(&file)?)
}
