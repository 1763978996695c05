//! InnoDB's methods that flush its log about once a second, on mounts (figure 5b): Prd/Disk and Cmt/Cache, each in one
//! round of a few seconds and on a file system of its own; and all three by what the server writes.
//!
//! The instances begin at moments that are spread over the trace, so together they have each part of it. A flush counts
//! from when it is due. The ratio of two modes is measured, but not what a flush takes in the paper's run of 500 s. The
//! same calls in a part of the time are a server that writes more (calibration).

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;

use super::super::super::okeanos::log_replay::{METHODS, Trace, prepare, replay_at_once};
use super::super::bed::{Bed, Rounds};
use super::super::only;
use super::claims;
use super::figures::of_logs;
use super::phases::{INSTANCES, LOG, LOGS};
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

/// Measures a method by what the server writes, in calls of so long a time.
fn by_load((bed, mounters): (&Bed, &[Mounter]), trace: &Trace, loads: &[u32], time: Duration) -> Result<Rounds<f64>> {
    bed.rounds_of_ready(
        1,
        mounters,
        loads,
        |dir, load| logs(dir, load, trace, INSTANCES[1]),
        |load, (stage, files): Logs| Ok(replay_at_once(&stage, &files, &trace.faster(load), time)?.late.mean),
    )
}

/// Measures them with the most instances; adds their figures, and the claims of all three methods. That of Cmt/Disk is
/// of these rounds, which took calls of so long a time; by what the server writes only the mounts of that claim are
/// measured.
pub(super) fn add(
    f: &mut Findings,
    bed: &Bed,
    mounters: &[Mounter],
    effort: Effort,
    (of_each_commit, time_of_these): (&Rounds<f64>, Duration),
) -> Result<()> {
    let time = Duration::from_secs(effort.pick(1, 6, 20));
    // How many times as much the server writes as that of the trace. What is held is of the first.
    let loads: &[u32] = effort.pick(&[1, 4], &[1, 4], &[1, 2, 4, 8]);
    let of_claims = only(mounters, &claims::OF_LOGS);
    // A quick run has ten minutes for all studies.
    let mounters = effort.pick(&of_claims[..], mounters, mounters);
    let mut all = Vec::new();
    for (n, method) in METHODS.iter().enumerate() {
        let trace = Trace::parse(method.2)?.within(LOG);
        let (mounters, time) = if n == 0 { (&of_claims[..], time_of_these) } else { (mounters, time) };
        let rounds = by_load((bed, mounters), &trace, loads, time)?;
        let special = format!(", {} s (what the server writes: calibration)", time.as_secs());
        let series = loads.iter().map(|load| format!("{} instances, {load} times as much", INSTANCES[1]));
        let id = if n == 0 { "-load" } else { "" };
        f.figures.push(of_logs(method, (id, &special), &rounds, series.enumerate()));
        all.push((method.1, rounds));
    }
    let methods = all.iter().enumerate().map(|(n, (name, rounds))| claims::OfMethod {
        name,
        here: if n == 0 { (of_each_commit, LOGS[1]) } else { (rounds, 0) },
        by_load: rounds,
    });
    f.claims.extend(claims::of_logs(&methods.collect::<Vec<_>>(), loads));
    f.assume(format!(
        "InnoDB's other methods, Prd/Disk and Cmt/Cache, which flush about once a second: one round, without a \
         spread; {} instances, the calls of {} s; the instances begin at moments spread over the 20 s of the trace, so \
         together they have every part of it; Cmt/Disk by what the server writes (okeanos-5b-1-load-mounts) is of one \
         round, too, the calls of {} s",
        INSTANCES[1],
        time.as_secs(),
        time_of_these.as_secs()
    ));
    Ok(())
}
