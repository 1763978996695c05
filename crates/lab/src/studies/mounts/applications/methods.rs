//! InnoDB's methods that flush its log about once a second, on mounts (figure 5b): Prd/Disk and Cmt/Cache, each in one
//! round of a few seconds and on a file system of its own.
//!
//! The instances begin at moments that are spread over the trace, so together they have each part of it. A flush counts
//! from when it is due. The ratio of two modes is measured, but not what a flush takes in the paper's run of 500 s.

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

/// Makes them.
fn logs(dir: &Path, trace: &Trace, instances: u64) -> Result<Logs> {
    let stage = Directory::make(dir.join("logs"))?;
    let files = prepare(&stage, trace, instances)?;
    Ok((stage, files))
}

/// Measures both with the most instances; adds their figures and claims.
pub(super) fn add(f: &mut Findings, bed: &Bed, mounters: &[Mounter], effort: Effort) -> Result<()> {
    let (instances, time) = (INSTANCES[1], Duration::from_secs(effort.pick(2, 6, 20)));
    for method in &METHODS[1..] {
        let (_, name, text) = *method;
        let trace = Trace::parse(text)?.within(LOG);
        let rounds = bed.rounds_of_ready(
            1,
            mounters,
            &[()],
            |dir, ()| logs(dir, &trace, instances),
            |(), (stage, files): Logs| Ok(replay_at_once(&stage, &files, &trace, time)?.late.mean),
        )?;
        f.figures.push(of_logs(method, &format!(", {} s", time.as_secs()), &rounds, &[(0, instances)]));
        f.claims.extend(claims::of_logs(&rounds, name, 0));
    }
    f.assume(format!(
        "InnoDB's other methods, Prd/Disk and Cmt/Cache, which flush about once a second: one round, without a \
         spread; {instances} instances, the calls of {} s; the instances begin at moments spread over the 20 s of the \
         trace, so together they have every part of it",
        time.as_secs()
    ));
    Ok(())
}
