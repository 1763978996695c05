//! InnoDB's methods that flush its log about once a second, on mounts (figure 5b): Prd/Disk and Cmt/Cache, each in one
//! round of a few seconds and on a file system of its own.
//!
//! The instances begin at moments that are spread over the trace, so together they have each part of it. A flush counts
//! from when it is due. The ratio of two modes is measured, but not what a flush takes in the paper's run of 500 s. The
//! same calls in a part of the time are a server that writes more (calibration).

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;

use super::super::super::okeanos::log_replay::{METHODS, Trace, prepare, replay_at_once};
use super::super::bed::Bed;
use super::claims;
use super::figures::of_logs;
use super::phases::{INSTANCES, LOG};
use crate::mounter::Mounter;
use crate::results::{Effort, Findings};
use crate::stage::Directory;

/// A directory, and the instances' logs in it.
type Logs = (Directory, Vec<PathBuf>);

/// Makes those for a server that writes so many times as much.
fn logs(dir: &Path, load: u32, trace: &Trace, instances: u64) -> Result<Logs> {
    let stage = Directory::make(dir.join(format!("logs-{load}")))?;
    let files = prepare(&stage, trace, instances)?;
    Ok((stage, files))
}

/// Measures both with the most instances; adds their figures and claims.
pub(super) fn add(f: &mut Findings, bed: &Bed, mounters: &[Mounter], effort: Effort) -> Result<()> {
    let (instances, time) = (INSTANCES[1], Duration::from_secs(effort.pick(2, 6, 20)));
    // How many times as much the server writes as that of the trace. What is held is of the first.
    let loads: &[u32] = effort.pick(&[1, 4], &[1, 4], &[1, 2, 4, 8]);
    for method in &METHODS[1..] {
        let (_, name, text) = *method;
        let trace = Trace::parse(text)?.within(LOG);
        let rounds = bed.rounds_of_ready(
            1,
            mounters,
            loads,
            |dir, load| logs(dir, load, &trace, instances),
            |load, (stage, files): Logs| Ok(replay_at_once(&stage, &files, &trace.faster(load), time)?.late.mean),
        )?;
        let special = format!(", {} s (what the server writes: calibration)", time.as_secs());
        let series: Vec<_> = loads.iter().map(|load| format!("{instances} instances, {load} times as much")).collect();
        f.figures.push(of_logs(method, &special, &rounds, series.into_iter().enumerate()));
        f.claims.extend(claims::of_loads(&rounds, name, loads));
    }
    f.assume(format!(
        "InnoDB's other methods, Prd/Disk and Cmt/Cache, which flush about once a second: one round, without a \
         spread; {instances} instances, the calls of {} s; the instances begin at moments spread over the 20 s of the \
         trace, so together they have every part of it",
        time.as_secs()
    ));
    Ok(())
}
