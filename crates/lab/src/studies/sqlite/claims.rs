//! What JoJ says of its cases, and what is asked of Quire's own mode beside them.

use super::cases::{Case, of_paper};
use super::plan::{OPERATIONS, STOCK_JOURNAL, STOCK_ORDERED};
use crate::mounter::Mounter;
use crate::results::Claim;
use crate::served::Kind;
use crate::stats::{float, geometric_mean};
use crate::work::sqlite::Protection;

/// Why an ordered write-ahead log costs more here than in the paper, while it grows.
const FLUSHED_FIRST: &str = "new blocks of the write-ahead log are flushed before the commit that names them; the paper's \
     kernel, with journal_async_commit, had one flush for both and no order between them (section 2.1)";

/// Why data journaling's worst case may be below the paper's, on the models of the paper's devices and on mounts.
const COMPUTED: &str = "what SQLite computes is measured and not modelled, and is part of both: the worst case is 1.71 \
     to 1.73 by run";
const FLUSH_COUNTS: &str = "a flush of the SSD outweighs a second copy of the pages, and both flush as often; the paper's \
     devices write the same bytes five to thirty times as slowly";

/// Why large transactions on a mount may take longer than the kernel's on a disk whose flush is short.
const COPIED: &str = "copying a transaction's 0.7 MB to the daemon takes longer than the flushes of 0.2 ms that Quire \
     saves, and each request wakes an idle CPU twice without tune=host";

/// The geometric mean over the cases of so many operations.
pub(super) fn mean_of(cases: &[Case], values: &[f64], operations: u64) -> f64 {
    let of: Vec<f64> = cases.iter().zip(values).filter(|(c, _)| c.operations == operations).map(|(_, v)| *v).collect();
    geometric_mean(&of)
}

fn ratio(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a / b).collect()
}

fn worst(ratios: &[f64]) -> f64 {
    ratios.iter().copied().fold(0.0, f64::max)
}

/// The means of a mounter, if it ran.
fn of<'m>(mounters: &[Mounter], means: &'m [Vec<f64>], name: &str) -> Option<&'m [f64]> {
    mounters.iter().zip(means).find(|(m, _)| m.to_string() == name).map(|(_, means)| &means[..])
}

/// What the paper says of all of its 24 cases; on mounts of the 12 of a device.
pub(super) fn of_all(mounters: &[Mounter], means: &[Vec<f64>], devices: usize) -> Vec<Claim> {
    let of_options = |options: &str| of(mounters, means, &format!("quire:{options}"));
    let of = |name: &str| of_options(&format!("profile={name}"));
    let (Some(none), Some(joj)) = (of("ext4-none"), of("joj")) else { return Vec::new() };
    let at = if devices == 2 { "section 3.1" } else { "section 3.1, on mounts" };
    let joj_none = ratio(joj, none);
    let above = joj_none.iter().filter(|r| **r > 1.06).count() as u64;
    let cases = joj_none.len();
    let mut claims = vec![
        Claim::at_most(
            at,
            "file-adaptive journaling is at most 6 % slower than no journal, in all of 24 cases but one",
            format!("joj / ext4-none: cases above 1.06, of {cases}"),
            float(above),
            1.0,
        )
        .because(FLUSHED_FIRST),
        Claim::at_most(
            at,
            "on average it is 7 % faster than no journal",
            "joj / ext4-none, mean",
            geometric_mean(&joj_none),
            0.93,
        )
        .as_printed()
        .because(FLUSHED_FIRST),
    ];
    let dear = "a metadata commit is a write and a flush beside one flush of the data: what that costs is the modelled \
                flush against the modelled write";
    if let Some(ordered) = of_options(STOCK_ORDERED) {
        let says = "ordered journaling is about 20 % slower than no journal in the worst case";
        let measured = worst(&ratio(ordered, none));
        claims.push(Claim::at_most(at, says, "stock ordered / ext4-none, worst case", measured, 1.2).because(dear));
    }
    if let (Some(journal), Some(single)) = (of_options(STOCK_JOURNAL), of("single-io")) {
        claims.extend(of_single_io(at, none, joj, journal, single));
    }
    claims
}

/// What the paper says of single-I/O journaling, from data journaling as ext4 has it to file-adaptive journaling.
fn of_single_io(at: &str, none: &[f64], joj: &[f64], journal: &[f64], single: &[f64]) -> Vec<Claim> {
    let home = "a write-ahead log is overwritten in the log before it would go home, so that writing it \
             twice never happens";
    vec![
        Claim::at_least(
            at,
            "data journaling is about 73 % slower in the worst case",
            "stock journal / ext4-none, worst case",
            worst(&ratio(journal, none)),
            1.73,
        )
        .as_printed()
        .because(if at.contains("mounts") { FLUSH_COUNTS } else { COMPUTED }),
        Claim::at_least(
            at,
            "single-I/O journaling is still 38 % slower in the worst case, which file-adaptive journaling avoids",
            "single-io / ext4-none, worst case",
            worst(&ratio(single, none)),
            1.38,
        )
        .as_printed()
        .because(home),
        Claim::at_most(
            at,
            "single-I/O is faster than data journaling as ext4 has it",
            "single-io / stock journal, mean",
            geometric_mean(&ratio(single, journal)),
            1.0,
        ),
        Claim::at_least(
            at,
            "file-adaptive journaling is faster than single-I/O alone",
            "single-io / joj, mean",
            geometric_mean(&ratio(single, joj)),
            1.0,
        )
        .because(home),
    ]
}

/// What is said of the cases on one device.
pub(super) fn of_device(kind: &Kind, mounters: &[Mounter], cases: &[Case], means: &[Vec<f64>]) -> Vec<Claim> {
    let of = |name: &str| of(mounters, means, name);
    let mut claims = Vec::new();
    let printed = match kind.to_string().as_str() {
        "emmc" => Some((0.96, 1.73)),
        "intel311" => Some((0.91, 1.58)),
        _ => None,
    };
    let joj = of("quire:profile=joj").zip(of("quire:profile=ext4-none")).map(|(joj, none)| ratio(joj, none));
    if let (Some((mean, _)), Some(joj)) = (printed, &joj) {
        let faster = (1.0 - mean) * 100.0;
        let says = format!("file-adaptive journaling is {faster:.0} % faster than no journal on average");
        let what = format!("{kind}: joj / ext4-none, mean");
        let claim = Claim::at_most(of_paper(kind), &says, what, geometric_mean(joj), mean);
        claims.push(claim.as_printed().because(FLUSHED_FIRST));
        let insert = cases.iter().position(|c| c.protection == Protection::Delete && c.operations > 1 && c.step == 0);
        let least = joj.iter().copied().fold(f64::INFINITY, f64::min);
        let says = "the gain is largest in large inserts with a rollback journal";
        let what = format!("{kind}: joj / ext4-none there / at its best");
        let there = insert.map_or(f64::NAN, |n| joj[n] / least);
        claims.push(Claim::at_most(of_paper(kind), says, what, there, 1.0).because(
            "small transactions with a rollback journal gain as much here: three of its four flushes go with \
                 the files' growth",
        ));
    }
    if let (Some((_, worst_case)), Some(journal), Some(none)) =
        (printed, of(&format!("quire:{STOCK_JOURNAL}")), of("quire:profile=ext4-none"))
    {
        let says = format!("data journaling is up to {:.0} % slower than no journal", (worst_case - 1.0) * 100.0);
        let what = format!("{kind}: stock journal / ext4-none, worst case");
        let measured = worst(&ratio(journal, none));
        claims.push(Claim::at_least(of_paper(kind), &says, what, measured, worst_case).as_printed().because(COMPUTED));
    }
    if kind.to_string() == "emmc" {
        let update = cases.iter().position(|c| c.protection == Protection::Delete && c.operations == 1 && c.step == 1);
        if let (Some(joj), Some(n)) = (&joj, update) {
            let says =
                "the exception: small updates with a rollback journal are 14 % slower, as whole pages are journaled";
            claims.push(
                Claim::at_least(of_paper(kind), says, "emmc: joj / ext4-none there", joj[n], 1.14)
                    .as_printed()
                    .because(
                        "the flushes that the single commit saves outweigh the pages' bytes on the modelled memory, \
                     whose flush takes 10 ms",
                    ),
            );
        }
    }
    own(kind, cases, &mut claims, &of);
    claims
}

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
        let says = "in SQLite's process, a small transaction takes 0.15 of the kernel's time (Quire's aim)";
        let what = format!("{kind}: vfs / kernel ordered, small, {}, mean", protection.name());
        let least = match protection {
            Protection::Wal => "one flush is the least, and the kernel takes two: a log that grows changes the inode",
            _ => "one flush is the least, and the kernel takes five or six",
        };
        claims.push(Claim::at_most("section 3.1, in the process", says, what, mean, IN_PROCESS_AIM).because(least));
    }
}

/// What is asked of Quire's own mode, on mounts beside the kernel.
fn own<'m>(kind: &Kind, cases: &[Case], claims: &mut Vec<Claim>, of: &dyn Fn(&str) -> Option<&'m [f64]>) {
    let auto = of("quire:profile=auto").or_else(|| of("quire"));
    let Some(ordered) = of("kernel:data=ordered") else { return };
    if let Some(vfs) = of("quire:vfs") {
        in_process(kind, cases, ordered, vfs, claims);
    }
    let at = "section 3.1, on mounts";
    for (name, series) in [("auto", auto), ("djfs", of("quire:profile=djfs")), ("joj", of("quire:profile=joj"))] {
        let Some(series) = series else { continue };
        for (size, operations) in ["small", "large"].into_iter().zip(OPERATIONS) {
            let says =
                format!("{size} transactions are no slower than on the kernel's ext4 in ordered mode (Quire's aim)");
            let what = format!("{kind}: {name} / kernel ordered, {size}, mean");
            let claim = Claim::at_most(at, &says, what, mean_of(cases, &ratio(series, ordered), operations), 1.0);
            let is_known = size == "large" && kind.to_string() == "own";
            claims.push(if is_known { claim.because(COPIED) } else { claim });
        }
    }
}

/// What figure 4 says.
pub(super) fn of_figure4(kind: &Kind, of: &[Vec<f64>]) -> Vec<Claim> {
    let at = "figure 4";
    let full = ratio(&of[0], &of[1]);
    let none = ratio(&of[0], &of[2]);
    let (small, large) = none.split_at(none.len() / 2);
    vec![
        Claim::at_most(
            at,
            "full protection adds almost nothing to the database's own (\"minor\" is 6 % in the paper)",
            format!("{kind}: full / application, mean"),
            geometric_mean(&full),
            1.06,
        )
        .because(FLUSHED_FIRST),
        Claim::at_least(
            at,
            "small transactions: protection is almost an order of magnitude slower than none",
            format!("{kind}: full / none, mean of the small"),
            geometric_mean(small),
            8.0,
        )
        .printed(10.0)
        .because(
            "without protection a transaction only computes, which takes less time here than on the paper's machines",
        ),
        Claim::at_most(
            at,
            "large transactions: less than a factor of two",
            format!("{kind}: full / none, mean of the large"),
            geometric_mean(large),
            2.0,
        )
        .because(
            "without protection a transaction only computes, which takes less time here than on the paper's machines",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Verdict;

    #[test]
    fn claims_are_made_of_those_who_ran() {
        let mounters = |names: [&str; 2]| -> Vec<Mounter> { names.map(|m| m.parse().unwrap()).into() };
        let held = |claims: Vec<Claim>| -> Vec<bool> { claims.iter().map(|c| c.verdict == Verdict::Held).collect() };
        let mut means = vec![vec![1.0; 24]; 2];
        (means[1][4], means[1][16]) = (1.2, 1.05);
        let joj = mounters(["quire:profile=ext4-none", "quire:profile=joj"]);
        assert_eq!(held(of_all(&joj, &means, 2)), [true, false]);
        means[1][0..12].fill(0.8);
        assert_eq!(held(of_all(&joj, &means, 2)), [true, true]);
        let cases = super::super::cases::cases(&[Protection::Wal, Protection::Delete]);
        assert!(of_device(&Kind::Own, &joj, &cases, &means).is_empty());
        let auto = mounters(["kernel:data=ordered", "quire"]);
        let means = [vec![1.0; 12], [vec![1.2; 3], vec![0.6; 9]].concat()];
        assert_eq!(held(of_device(&Kind::Own, &auto, &cases, &means)), [true, true]);
        assert!(of_all(&auto, &means, 1).is_empty());
    }
}
