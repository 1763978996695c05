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
/// What a second flush costs at most, beside one.
const TWO_FLUSHES: f64 = 2.0;

/// How much more the mean of a device's cases may be, by a second flush in those in which the log grows.
fn flushed_first(growing: &[bool]) -> f64 {
    let cost: Vec<f64> = growing.iter().map(|grows| if *grows { TWO_FLUSHES } else { 1.0 }).collect();
    geometric_mean(&cost)
}

/// Why data journaling's worst case may be below the paper's on mounts.
const FLUSH_COUNTS: &str = "a flush of the SSD outweighs a second copy of the pages, and both flush as often; the paper's \
     devices write the same bytes five to thirty times as slowly";

/// Why large transactions on a mount may take longer than the kernel's on a disk whose flush is short.
const COPIED: &str = "copying a transaction's 0.7 MB to the daemon takes longer than the flushes of 0.2 ms that Quire \
     saves, and each request wakes an idle CPU twice without tune=host";

/// "About": a twentieth more or less.
const ABOUT: f64 = 0.05;

/// Those of the cases of so many operations.
fn of_operations(cases: &[Case], values: &[f64], operations: u64) -> Vec<f64> {
    cases.iter().zip(values).filter(|(c, _)| c.operations == operations).map(|(_, v)| *v).collect()
}

/// The geometric mean over the cases of so many operations.
pub(super) fn mean_of(cases: &[Case], values: &[f64], operations: u64) -> f64 {
    geometric_mean(&of_operations(cases, values, operations))
}

pub(super) fn ratio(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a / b).collect()
}

pub(super) fn worst(ratios: &[f64]) -> f64 {
    ratios.iter().copied().fold(0.0, f64::max)
}

/// The means of a mounter, if it ran.
fn of<'m>(mounters: &[Mounter], means: &'m [Vec<f64>], name: &str) -> Option<&'m [f64]> {
    mounters.iter().zip(means).find(|(m, _)| m.to_string() == name).map(|(_, means)| &means[..])
}

/// What the paper says of all of its 24 cases: 12 on each device in turn, in which the log is `growing` or not. `swept`
/// has data journaling's worst case with other values of the modelled devices; without it they are on mounts.
pub(super) fn of_all(mounters: &[Mounter], growing: &[bool], means: &[Vec<f64>], swept: Option<&[f64]>) -> Vec<Claim> {
    let of_options = |options: &str| of(mounters, means, &format!("quire:{options}"));
    let of = |name: &str| of_options(&format!("profile={name}"));
    let (Some(none), Some(joj)) = (of("ext4-none"), of("joj")) else { return Vec::new() };
    let at = if swept.is_some() { "section 3.1" } else { "section 3.1, on mounts" };
    let joj_none = ratio(joj, none);
    let above = joj_none.iter().filter(|r| **r > 1.06).count() as u64;
    let all = joj_none.len();
    let grows = growing.iter().cycle().take(all).filter(|grows| **grows).count() as u64;
    let mut claims = vec![
        Claim::at_most(
            at,
            "file-adaptive journaling is at most 6 % slower than no journal, in all of 24 cases but one",
            format!("joj / ext4-none: cases above 1.06, of {all}"),
            float(above),
            1.0,
        )
        .because_within(1.0..=float(grows), FLUSHED_FIRST),
        Claim::at_most(at, "in that one it is 14 % slower", "joj / ext4-none, worst case", worst(&joj_none), "1.14")
            .because_within(1.14..=TWO_FLUSHES, FLUSHED_FIRST),
        Claim::at_most(
            at,
            "on average it is 7 % faster than no journal",
            "joj / ext4-none, mean",
            geometric_mean(&joj_none),
            "0.93",
        )
        .because_within(0.93..=0.93 * flushed_first(growing), FLUSHED_FIRST),
    ];
    if let Some(ordered) = of_options(STOCK_ORDERED) {
        claims.push(of_ordered(at, growing, &ratio(ordered, none)));
    }
    if let (Some(journal), Some(single)) = (of_options(STOCK_JOURNAL), of("single-io")) {
        claims.extend(of_single_io(at, swept, [none, joj, journal, single]));
    }
    claims
}

/// The worst case of ordered journaling.
fn of_ordered(at: &str, growing: &[bool], ratios: &[f64]) -> Claim {
    let says = "ordered journaling is about 20 % slower than no journal in the worst case";
    let measured = worst(ratios);
    let claim = Claim::about(at, says, "stock ordered / ext4-none, worst case", measured, (1.2, ABOUT));
    let n = ratios.iter().position(|r| *r >= measured).unwrap_or(0);
    if growing[n % growing.len()] { claim.because_within(1.2..=TWO_FLUSHES, FLUSHED_FIRST) } else { claim }
}

/// What the paper says of single-I/O journaling, from data journaling as ext4 has it to file-adaptive journaling.
fn of_single_io(at: &str, swept: Option<&[f64]>, [none, joj, journal, single]: [&[f64]; 4]) -> Vec<Claim> {
    let home = "a write-ahead log is overwritten in the log before it would go home, so that writing it \
             twice never happens; what is left is one flush less";
    let (of_journal, of_single, of_joj) = (ratio(journal, none), ratio(single, none), ratio(joj, none));
    let says = "data journaling is about 73 % slower in the worst case";
    let of_worst = Claim::about(at, says, "stock journal / ext4-none, worst case", worst(&of_journal), ("1.73", ABOUT));
    vec![
        match swept {
            Some(swept) => of_worst.calibrated(swept, ASSUMED),
            None => of_worst.because_within(1.0..=1.73, FLUSH_COUNTS),
        },
        Claim::about(
            at,
            "single-I/O journaling is still 38 % slower in the worst case",
            "single-io / ext4-none, worst case",
            worst(&of_single),
            ("1.38", ABOUT),
        )
        .because_within(1.0 / TWO_FLUSHES..=1.38, home),
        Claim::below(
            at,
            "single-I/O is faster than data journaling as ext4 has it",
            "single-io / stock journal, mean",
            geometric_mean(&ratio(single, journal)),
            1.0,
        ),
        Claim::below(
            at,
            "file-adaptive journaling avoids the worst case of single-I/O journaling",
            "worst cases of joj / of single-io",
            worst(&of_joj) / worst(&of_single),
            1.0,
        )
        .because_within(1.0..=TWO_FLUSHES, FLUSHED_FIRST),
    ]
}

/// What is said of the cases on one device, with the figures that other values of the modelled device have.
pub(super) fn of_device(
    kind: &Kind,
    mounters: &[Mounter],
    cases: &[Case],
    means: &[Vec<f64>],
    growing: &[bool],
    swept: Option<&Swept>,
) -> Vec<Claim> {
    let of = |name: &str| of(mounters, means, name);
    let mut claims = Vec::new();
    let printed = match kind.to_string().as_str() {
        "emmc" => Some(("4 %", "0.96", "73 %", "1.73")),
        "intel311" => Some(("9 %", "0.91", "58 %", "1.58")),
        _ => None,
    };
    let calibrated = |claim: Claim, of: fn(&Swept) -> &[f64], why: &str| match swept {
        Some(swept) => claim.calibrated(of(swept), why),
        None => claim,
    };
    let none = of("quire:profile=ext4-none");
    let joj = of("quire:profile=joj").zip(none).map(|(joj, none)| ratio(joj, none));
    if let (Some((faster, mean, ..)), Some(joj)) = (printed, &joj) {
        let says = format!("file-adaptive journaling is {faster} faster than no journal on average");
        let what = format!("{kind}: joj / ext4-none, mean");
        let claim = Claim::at_most(of_paper(kind), &says, what, geometric_mean(joj), mean);
        let explained = claim.limit..=claim.limit * flushed_first(growing);
        claims.push(claim.because_within(explained, FLUSHED_FIRST));
        let says = "the gain is largest in large inserts with a rollback journal";
        let what = format!("{kind}: joj / ext4-none there / at its best");
        let claim = Claim::at_most(of_paper(kind), says, what, insert_to_best(cases, joj), 1.0);
        claims.push(calibrated(claim, |s| &s.insert, SCATTERED));
    }
    if let (Some((.., slower, worst_case)), Some(journal), Some(none)) =
        (printed, of(&format!("quire:{STOCK_JOURNAL}")), none)
    {
        let says = format!("data journaling is up to {slower} slower than no journal");
        let what = format!("{kind}: stock journal / ext4-none, worst case");
        let claim = Claim::about(of_paper(kind), &says, what, worst(&ratio(journal, none)), (worst_case, ABOUT));
        claims.push(calibrated(claim, |s| &s.journal, ASSUMED));
    }
    if let ("emmc", Some(joj)) = (kind.to_string().as_str(), &joj) {
        let says = "the exception: small updates with a rollback journal are 14 % slower, as whole pages are journaled";
        let measured = small_update(cases, joj);
        let claim = Claim::about(of_paper(kind), says, "emmc: joj / ext4-none there", measured, ("1.14", ABOUT));
        claims.push(calibrated(claim, |s| &s.update, ASSUMED));
    }
    own(kind, cases, &mut claims, &of);
    claims
}

/// Why a figure of a modelled memory may be another.
const ASSUMED: &str = "what a flush, a scattered write and a byte take of the device is assumed, and they weigh the number \
     of flushes against the bytes";
const SCATTERED: &str = "large deletes with a rollback journal gain more: how much follows from what a flush, a scattered \
     write and a byte take of the device, which is assumed";

/// `joj / ext4-none` in large inserts with a rollback journal, in parts of the least of all cases.
pub(super) fn insert_to_best(cases: &[Case], joj: &[f64]) -> f64 {
    let insert = cases.iter().position(|c| c.protection == Protection::Delete && c.operations > 1 && c.step == 0);
    let least = joj.iter().copied().fold(f64::INFINITY, f64::min);
    insert.map_or(f64::NAN, |n| joj[n] / least)
}

/// `joj / ext4-none` in small updates with a rollback journal.
pub(super) fn small_update(cases: &[Case], joj: &[f64]) -> f64 {
    let update = cases.iter().position(|c| c.protection == Protection::Delete && c.operations == 1 && c.step == 1);
    update.map_or(f64::NAN, |n| joj[n])
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
fn own<'m>(kind: &Kind, cases: &[Case], claims: &mut Vec<Claim>, of: &dyn Fn(&str) -> Option<&'m [f64]>) {
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

/// Of ratios of the cases: the mean of the small, and the worst of the large.
pub(super) fn of_sizes(cases: &[Case], ratios: &[f64]) -> [f64; 2] {
    let [small, large] = OPERATIONS;
    [mean_of(cases, ratios, small), worst(&of_operations(cases, ratios, large))]
}

/// What figure 4 says of full protection, the database's alone and none, with what [`of_sizes`] has where an operation
/// computes longer, or a flush is short.
pub(super) fn of_figure4(kind: &Kind, cases: &[Case], of: &[Vec<f64>], swept: &[Vec<f64>; 2]) -> Vec<Claim> {
    let at = "figure 4";
    let full = ratio(&of[0], &of[1]);
    let [small, large] = of_sizes(cases, &ratio(&of[0], &of[2]));
    vec![
        Claim::at_most(
            at,
            "in all cases full protection adds almost nothing to the database's own (\"minor\" is 6 % in the paper)",
            format!("{kind}: full / application, worst case"),
            worst(&full),
            "1.06",
        )
        .because_within(1.06..=TWO_FLUSHES, FLUSHED_FIRST),
        Claim::between(
            at,
            "small transactions: protection is almost an order of magnitude slower than none",
            format!("{kind}: full / none, mean of the small"),
            small,
            (8.0, 10.0),
        )
        .calibrated(&swept[0], COMPUTES),
        Claim::below(
            at,
            "large transactions: less than a factor of two",
            format!("{kind}: full / none, worst of the large"),
            large,
            2.0,
        )
        .calibrated(&swept[1], COMPUTES),
    ]
}

/// Why protection costs more, beside none.
const COMPUTES: &str = "without protection a transaction only computes, by calls of a library in one process (on mounts, \
     of today's kernel); how long it took on the paper's machines, of 1 and 2 GHz, and what a flush takes there, is not known";

/// What the claims of a device would have with other values of the model.
#[derive(Default)]
pub(super) struct Swept {
    /// [`insert_to_best`], the worst case of data journaling, [`small_update`].
    pub insert: Vec<f64>,
    pub journal: Vec<f64>,
    pub update: Vec<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Verdict;

    fn mounters(names: [&str; 2]) -> Vec<Mounter> {
        names.map(|m| m.parse().unwrap()).into()
    }

    fn verdicts(claims: &[Claim]) -> Vec<Verdict> {
        claims.iter().map(|c| c.verdict).collect()
    }

    /// The inserts with a write-ahead log, small and large.
    const GROWING: [bool; 12] = [true, false, false, true, false, false, false, false, false, false, false, false];
    const HELD: Verdict = Verdict::Held;
    const DIFFERS: Verdict = Verdict::Differs;
    const NOT: Verdict = Verdict::NotHeld;

    #[test]
    fn claims_are_made_of_those_who_ran() {
        let cases = super::super::cases::cases(&[Protection::Wal, Protection::Delete]);
        let growing = GROWING;
        let mut means = vec![vec![1.0; 24]; 2];
        (means[1][4], means[1][16]) = (1.12, 1.05);
        let joj = mounters(["quire:profile=ext4-none", "quire:profile=joj"]);
        assert_eq!(verdicts(&of_all(&joj, &GROWING, &means, Some(&[]))), [HELD, HELD, DIFFERS]);
        means[1][0..12].fill(0.8);
        assert_eq!(verdicts(&of_all(&joj, &GROWING, &means, Some(&[]))), [HELD; 3]);
        assert!(of_device(&Kind::Own, &joj, &cases, &means, &growing, None).is_empty());
        let auto = mounters(["kernel:data=ordered", "quire"]);
        let means = [vec![1.0; 12], [vec![1.2; 3], vec![0.6; 9]].concat()];
        let claims = of_device(&Kind::Own, &auto, &cases, &means, &growing, None);
        assert_eq!(verdicts(&claims), [HELD, HELD]);
        assert!(claims.iter().all(|c| c.ours && !c.at.starts_with("section")), "aims are not the paper's");
        assert!(of_all(&auto, &growing, &means, None).is_empty());
    }

    /// The inserts with a write-ahead log are 4 of 24 cases, and two flushes are twice one.
    #[test]
    fn a_flush_before_the_commit_explains_the_inserts_with_a_growing_log_and_no_more() {
        let joj = mounters(["quire:profile=ext4-none", "quire:profile=joj"]);
        let of = |slow: &[usize], times: f64| {
            let mut means = vec![vec![1.0; 24], vec![0.9; 24]];
            slow.iter().for_each(|n| means[1][*n] = times);
            verdicts(&of_all(&joj, &GROWING, &means, Some(&[])))
        };
        assert_eq!(of(&[0, 3, 12, 15], 1.3), [DIFFERS, DIFFERS, DIFFERS]);
        assert_eq!(of(&[0, 1, 3, 12, 15], 1.3)[0], NOT, "five cases");
        assert_eq!(of(&[0, 3, 12, 15], 2.1)[1], NOT, "more than twice");
        let ordered = |slow: usize| {
            let mut ratios = vec![1.0; 24];
            ratios[slow] = 1.5;
            of_ordered("section 3.1", &GROWING, &ratios).verdict
        };
        assert_eq!([ordered(12), ordered(13)], [DIFFERS, NOT], "an update's log does not grow");
    }

    #[test]
    fn what_computing_takes_explains_figure_4_as_far_as_it_is_swept() {
        let kind: Kind = "intel311".parse().unwrap();
        let cases = super::super::cases::cases(&[Protection::Wal]);
        let of = |full: f64, none: f64| {
            let times = [full, none].map(|ms| vec![ms; 6]);
            let alone = [(String::new(), times[0].clone())];
            let (_, swept) = super::super::calibration::of_figure4(&kind, &cases, &alone, &times[1]);
            verdicts(&of_figure4(&kind, &cases, &[times[0].clone(), times[0].clone(), times[1].clone()], &swept))
        };
        assert_eq!(
            of(9.0, 1.0),
            [HELD, HELD, DIFFERS],
            "nine times: right for small transactions, much for large ones"
        );
        assert_eq!(of(9.0, 0.001), [HELD, DIFFERS, DIFFERS], "a millisecond of computing makes it nine times");
        assert_eq!(of(90.0, 0.001), [HELD, NOT, DIFFERS], "no computing of a millisecond does");
    }
}
