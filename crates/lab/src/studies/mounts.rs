//! The papers' workloads on mounts in real time: the kernel's ext4 in its modes and Quire stand on the same modelled
//! device, which counts what reaches it. So no factor rests on Quire's own baselines alone.
//!
//! - [`randwrite`]: DJFS' random writes with fsyncs (figures 2, 3 and 7).
//! - [`database`]: what DJFS' TPC-C makes a journal do (table 1, figures 8 and 9).
//! - [`streams`]: Okeanos' streams (figures 4a, 4b and 4c).
//! - [`requests`]: Okeanos' requests by size, reads, recovery and asynchronous writes (figures 1 and 4d, section 6).
//! - [`applications`]: Okeanos' Postmark, InnoDB's log and a data server (figures 5a to 5d).
//! - [`fileserver`]: RFJ's file server (figures 2 and 8).
//!
//! Each study measures every mounter once a round (`bed::Bed::rounds`); its figures have the medians of the rounds
//! and their standard deviation, and its claims are of ratios of medians.
//!
//! *Relies on*: root, loop devices and FUSE. A write with FUA reaches the served device as a write and a flush.

mod appends;
pub mod applications;
mod bed;
pub mod database;
pub mod fileserver;
mod journal_device;
mod nvram;
pub mod randwrite;
pub mod requests;
pub mod streams;

use anyhow::Result;

use super::device::of_model;
use crate::mounter::{Mounter, Who};
use crate::results::{Effort, Figure, Findings, Point};
use crate::stats::Spread;

/// The kernel's ext4 in its modes: without a journal, ordered, full journaling, and fast commits.
pub const KERNEL: [&str; 4] = ["kernel:none", "kernel:data=ordered", "kernel:data=journal", "kernel:fast_commit"];

/// Parts within which a ratio of medians is that of two modes which do the same: rounds differ by as much.
const SCATTER: f64 = 0.1;

/// Their names in figures, and that of RFJ's further baseline.
const NONE: &str = "kernel none";
const ORDERED: &str = "kernel ordered";
const JOURNAL: &str = "kernel journal";
const FAST_COMMIT: &str = "kernel fast_commit";
const WRITEBACK: &str = "kernel writeback";

/// Okeanos' modes on Quire, by their names in figures.
const WASTELESS: &str = "quire wasteless";
const SELECTIVE: &str = "quire selective";
/// Data journaling that leaves blocks in memory, which the kernel's writes home at each fsync.
const OWN_JOURNAL: &str = "quire ext4-journal";
/// [`OWN_JOURNAL`] in words.
const IN_MEMORY: &str = "data journaling that leaves blocks in memory (quire ext4-journal)";

/// Data journaling on a device of its own, on the kernel's ext4 and on Quire, in DJFS' studies; the first by its name
/// in figures.
const EXTERNAL: &str = "kernel external";
const ON_ANOTHER_DEVICE: [&str; 2] =
    ["kernel:external,data=journal", "quire:external,profile=ext4-journal,checkpoint=fsync"];

/// Okeanos' modes on Quire, which commit as the kernel's ext4 beside them does, and Quire's own.
const OF_OKEANOS: [&str; 5] = [
    "profile=ext4-ordered",
    "profile=ext4-journal",
    "profile=wasteless,commit_mode=barrier",
    "profile=selective,commit_mode=barrier",
    "profile=auto",
];

/// Quire's series in DJFS' studies: DJFS' baselines, DJFS, and Quire's own mode.
const OF_DJFS: [&str; 6] = [
    "profile=ext4-ordered",
    "profile=ext4-journal,checkpoint=fsync",
    "profile=nvj",
    "profile=djfs",
    "profile=djfs4",
    "profile=auto",
];

/// Why the kernel's data journaling is slower and writes more home than the paper's. The device counts it.
const HOME_AT_FSYNC: &str = "a synchronous write of today's data=journal also writes the block home, a block to each \
     write by the device's count; ext3 of Linux 2.6.18 left it in memory";

/// Three of them in figures.
const NVJ: &str = "quire nvj";
const DJFS: &str = "quire djfs";
const DJFS4: &str = "quire djfs4";

/// DJFS' drive, and those whose flush takes half and twice as long (calibration).
const DRIVE: &str = "samsung840";
const FAST_DRIVE: &str = "samsung840,flush=1000";
const SLOW_DRIVE: &str = "samsung840,flush=4000";
/// Why factors by DJFS may be others than the paper's.
const OF_FLUSH: &str = "what a flush of the modelled drive takes is assumed";

/// The kernel's modes and these of Quire's, as far as they work here.
fn mounters(quire: &[&str]) -> Result<Vec<Mounter>> {
    let quire = quire.iter().map(|options| Ok(Mounter::quire(options)));
    let all: Vec<Mounter> = KERNEL.iter().map(|mounter| mounter.parse()).chain(quire).collect::<Result<_>>()?;
    Mounter::available(&all)
}

/// All series of DJFS' studies.
fn of_djfs() -> Result<Vec<Mounter>> {
    let external: Vec<Mounter> = ON_ANOTHER_DEVICE.iter().map(|text| text.parse()).collect::<Result<_>>()?;
    let (mut all, external) = (mounters(&OF_DJFS)?, Mounter::available(&external)?);
    all.extend(external);
    Ok(all)
}

/// Those of these names.
fn only(mounters: &[Mounter], names: &[&str]) -> Vec<Mounter> {
    mounters.iter().filter(|m| names.contains(&&*label(m))).cloned().collect()
}

/// A mounter's name in figures: who mounts and the mode, without further options.
fn label(mounter: &Mounter) -> String {
    let first = mounter.options.split(',').next().unwrap_or_default();
    let mode = first.trim_start_matches("data=").trim_start_matches("profile=");
    let who = match mounter.who {
        Who::Kernel => "kernel",
        Who::Fuse2fs => "fuse2fs",
        Who::Quire => "quire",
    };
    format!("{who} {mode}").trim_end().to_owned()
}

/// How many times each mounter is measured.
fn rounds_of(effort: Effort) -> usize {
    effort.pick(1, 3, 3)
}

/// The median of rounds, with their standard deviation.
pub(super) fn point_of_rounds(values: Vec<f64>) -> Point {
    let spread = Spread::of(values);
    let deviation = (spread.deviation > 0.0).then(|| Point::from(spread.deviation).value);
    Point { deviation, ..Point::from(spread.median) }
}

/// A figure of one series by other values of what is assumed (calibration), each beside the paper's number.
fn swept(mut figure: Figure, series: &str, paper: f64, values: &[(&str, f64)]) -> Figure {
    figure = figure.of_series([series]);
    for (place, value) in values {
        figure.place(place, [*value]);
        figure.printed(place, series, paper);
    }
    figure
}

/// What all of these studies assume.
fn assume(findings: &mut Findings, effort: Effort, model: &str) {
    findings.assumptions.extend(of_model(model));
    findings.assume(
        "mounts in real time on a device that is served to the kernel over FUSE, with a loop device on it; journals \
         are on the device; processors (their number is below), FUSE and the loop device take their time, which virtual time leaves \
         out; Quire's mounts go through FUSE, and the paper's file system is in the kernel",
    );
    findings.assume(
        "baselines are the kernel's ext4 of today (kernel none, ordered, journal, fast_commit) instead of the paper's \
         kernel; the kernel commits with a barrier",
    );
    let rounds = rounds_of(effort);
    if rounds > 1 {
        findings.assume(format!("medians of {rounds} rounds, each in another order; claims are of medians"));
    } else {
        findings.assume("one round, without a spread");
    }
}

/// What DJFS' studies assume of full journaling.
fn assume_external(findings: &mut Findings) {
    findings.assume(
        "kernel external, quire external: full journaling with the journal on a second drive of the same model; flushes \
         and bytes are counted on both drives",
    );
    findings.assume(
        "quire ext4-journal, quire external: an fsync writes home what earlier transactions hold of the file \
         (checkpoint=fsync)",
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_has_the_mode_without_further_options() {
        let of = |text: &str| label(&text.parse().unwrap());
        assert_eq!(of(KERNEL[1]), ORDERED);
        assert_eq!([0, 2, 3].map(|n| of(KERNEL[n])), [NONE, JOURNAL, FAST_COMMIT]);
        assert_eq!(of("quire:profile=wasteless,commit_mode=barrier"), "quire wasteless");
        assert_eq!((of("quire"), of("kernel:data=writeback")), ("quire".to_owned(), WRITEBACK.to_owned()));
        assert_eq!(ON_ANOTHER_DEVICE.map(of), [EXTERNAL, "quire external"]);
    }

    #[test]
    fn a_point_of_rounds_is_their_median_and_one_round_has_no_spread() {
        assert_eq!(point_of_rounds(vec![3.0, 1.0, 2.0]), Point { value: 2.0, deviation: Some(1.0) });
        assert_eq!(point_of_rounds(vec![7.0]), Point { value: 7.0, deviation: None });
    }
}
