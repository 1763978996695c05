//! What each heuristic brings: the workload that it is for, on a mount with it and on one without (`-o without=`).

use std::path::PathBuf;

use anyhow::Result;

use super::clients;
use crate::mounter::Mounter;

/// A heuristic, the workload that it is for, and the options under which it acts.
const HEURISTICS: [(&str, &str, &str); 10] = [
    ("polling", "tar", ""),
    ("polling", "tar", "tune=host"),
    ("second-reader", "fsync64", ""),
    ("hand-over", "beside", ""),
    ("throttle", "beside", ""),
    ("early-writeback", "beside", ""),
    ("streams-in-pages", "beside", ""),
    ("dirty-limit", "beside", "tune=host"),
    ("small-files", "small-beside", ""),
    ("batched-frees", "delete", ""),
];

/// What to measure.
#[derive(Debug, clap::Args)]
pub struct Plan {
    /// Only these, by the names of without=
    #[arg(long = "only", value_delimiter = ',')]
    pub heuristics: Vec<String>,
    #[arg(long, default_value_t = 3)]
    pub rounds: usize,
    /// How long a workload runs that has no end of its own
    #[arg(long, default_value_t = 6)]
    pub seconds: u32,
    /// A block device to use instead of a loop device; its contents are lost
    #[arg(long)]
    pub device: Option<PathBuf>,
    /// Where the image under the loop device is made
    #[arg(long, default_value_os_t = std::env::temp_dir())]
    pub work: PathBuf,
    /// A data file (bench/results) whose rows of these workloads and mounters are replaced
    #[arg(long)]
    pub save: Option<PathBuf>,
}

/// Measures and prints a table for each; the ratio is that of the mount without it to the one with it.
///
/// # Errors
/// As [`clients::measure`].
pub fn measure(plan: &Plan) -> Result<()> {
    let wanted = |name: &str| plan.heuristics.is_empty() || plan.heuristics.iter().any(|h| h == name);
    for (name, workload, options) in HEURISTICS.iter().filter(|(name, ..)| wanted(name)) {
        let with = Mounter::quire(options);
        let without = with.with(&format!("without={name}"));
        clients::measure(&clients::Plan {
            mounters: vec![with, without],
            rounds: plan.rounds,
            workloads: vec![(*workload).to_owned()],
            seconds: plan.seconds,
            device: plan.device.clone(),
            work: plan.work.clone(),
            save: plan.save.clone(),
        })?;
    }
    Ok(())
}
