//! What is asked of Quire's own mode beside the kernel: aims of ours, not sentences of the paper.

use super::cases::{Case, mean_of, ratio};
use super::plan::OPERATIONS;
use crate::results::Claim;
use crate::served::Kind;
use crate::stats::geometric_mean;
use crate::work::sqlite::Protection;

/// Why large transactions on a mount may take longer than the kernel's on a disk whose flush is short.
const COPIED: &str = "copying a transaction's 0.7 MB to the daemon takes longer than the flushes of 0.2 ms that Quire \
     saves, and each request wakes an idle CPU twice without tune=host";

/// Quire's aim for SQLite with the file system in its process: the time of a small transaction, of the kernel's.
const IN_PROCESS_AIM: f64 = 0.15;

/// What is asked of SQLite in the process beside the kernel.
fn in_process(kind: &Kind, cases: &[Case], ordered: &[f64], vfs: &[f64], claims: &mut Vec<Claim>) {
    for protection in [Protection::Wal, Protection::Delete] {
        let small = |values: &[f64]| -> Vec<f64> {
            let of = |c: &Case| c.protection == protection && c.operations == OPERATIONS[0];
            cases.iter().zip(values).filter(|(c, _)| of(c)).map(|(_, v)| *v).collect()
        };
        let mean = geometric_mean(&ratio(&small(vfs), &small(ordered)));
        let says = "in SQLite's process, a small transaction takes 0.15 of the kernel's time";
        let what = format!("{kind}: vfs / kernel ordered, small, {}, mean", protection.name());
        // One flush of the kernel's two, or of its five or six, is left.
        let (why, part) = match protection {
            Protection::Wal => {
                ("one flush is the least, and the kernel takes two: a log that grows changes the inode", 1.0 / 2.0)
            }
            _ => ("one flush is the least, and the kernel takes five or six", 1.0 / 5.0),
        };
        let claim = Claim::at_most("on mounts, in the process", says, what, mean, IN_PROCESS_AIM).ours();
        claims.push(claim.because_within(IN_PROCESS_AIM..=part, why));
    }
}

/// What is asked of Quire's own mode, on mounts beside the kernel.
pub(super) fn own<'m>(kind: &Kind, cases: &[Case], claims: &mut Vec<Claim>, of: &dyn Fn(&str) -> Option<&'m [f64]>) {
    let auto = of("quire:profile=auto").or_else(|| of("quire"));
    let Some(ordered) = of("kernel:data=ordered") else { return };
    if let Some(vfs) = of("quire:vfs") {
        in_process(kind, cases, ordered, vfs, claims);
    }
    for (name, series) in [("auto", auto), ("djfs", of("quire:profile=djfs")), ("joj", of("quire:profile=joj"))] {
        let Some(series) = series else { continue };
        for (size, operations) in ["small", "large"].into_iter().zip(OPERATIONS) {
            let says = format!("{size} transactions are no slower than on the kernel's ext4 in ordered mode");
            let what = format!("{kind}: {name} / kernel ordered, {size}, mean");
            let measured = mean_of(cases, &ratio(series, ordered), operations);
            let claim = Claim::at_most("on mounts, beside the kernel", &says, what, measured, 1.0).ours();
            let is_known = size == "large" && kind.to_string() == "own";
            // Two copies of 0.7 MB at 5 GB/s are a tenth of a transaction of 3 ms.
            claims.push(if is_known { claim.because_within(1.0..=1.1, COPIED) } else { claim });
        }
    }
}
