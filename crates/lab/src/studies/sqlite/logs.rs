//! What JoJ says of SQLite's two logs: which journal suits which (section 2.2), and which is faster at commits
//! (section 3.1).

use super::cases::{Case, ratio};
use super::claims::{ByRatios, above, of_kernel, of_printed};
use super::plan::{OPERATIONS, On};
use super::ratios::Ratios;
use crate::results::Claim;
use crate::served::Kind;
use crate::stats::{float, mean};
use crate::work::sqlite::Protection;

/// What the paper says of the cases on one device.
pub(super) fn of_device(kind: &Kind, cases: &[Case], ratios: &Ratios, on: On) -> Vec<ByRatios> {
    let mut claims = of_printed(kind, cases, ratios);
    if on == On::Models && all_ran(ratios) {
        claims.extend(of_logs("section 2.2", kind, cases, ratios));
    }
    claims
}

/// Ordered and data journaling, single-I/O and JoJ.
fn all_ran(of: &Ratios) -> bool {
    [&of.joj, &of.single, &of.ordered, &of.journal].into_iter().all(|ratios| !ratios.is_empty())
}

/// Ratios of the cases of which a sentence is.
type OfCases = fn(&Ratios) -> Vec<f64>;

/// Which journal suits which log: the sentence, its ratio, and what that is.
const SUITS: [(Protection, &str, &str, OfCases); 2] = [
    (Protection::Wal, "a write-ahead log is better off ordered", "joj / single-io", |r| ratio(&r.joj, &r.single)),
    (Protection::Delete, "a rollback journal is better off with data journaled", "single-io / stock ordered", |r| {
        ratio(&r.single, &r.ordered)
    }),
];

/// What section 2.2 says of the two kinds of logs.
fn of_logs(at: &str, kind: &Kind, cases: &[Case], of: &Ratios) -> Vec<ByRatios> {
    let count = cases.len();
    let faster = move |r: &Ratios| above(&ratio(&r.ordered, &r.journal), 1.0, count);
    let says = "but for single-I/O, ordered journaling almost always outperforms data journaling (in all cases but one in ten)";
    let what = format!("{kind}: cases where stock journal is faster than stock ordered, of {count}");
    let almost = Claim::at_most(at, says, what, faster(of), float(count as u64 / 10));
    let mut claims = vec![ByRatios::new(almost, faster)];
    for (protection, says, what, ratios) in SUITS {
        for (operations, size) in OPERATIONS.into_iter().zip(["small", "large"]) {
            let own = cases.to_vec();
            let of_size = move |r: &Ratios| mean_of(&own, &ratios(r), protection, operations);
            let (says, what) = (format!("{says}: {size} transactions"), format!("{kind}: {what}, mean of its cases"));
            claims.push(ByRatios::new(Claim::below(at, &says, what, of_size(of), 1.0), of_size));
        }
    }
    claims
}

/// The mean of the cases with this log and so many operations.
fn mean_of(cases: &[Case], all: &[f64], protection: Protection, operations: u64) -> f64 {
    let which = cases.iter().zip(all).filter(|(c, _)| (c.protection, c.operations) == (protection, operations));
    mean(&which.map(|(_, ratio)| *ratio).collect::<Vec<_>>())
}

/// How long a large transaction with a write-ahead log takes if that is ordered, in parts of single-I/O's time.
pub(super) fn large_log(cases: &[Case], of: &Ratios) -> f64 {
    mean_of(cases, &ratio(&of.joj, &of.single), Protection::Wal, OPERATIONS[1])
}

/// Why ordered journaling may be the slower one on mounts. Most cases have it, so the others are no measure of it.
const NEW_BLOCKS: &str = "in ordered mode new blocks of a log are flushed before the commit that names them: of a \
     write-ahead log that grows, and of a rollback journal, which each transaction makes anew; the paper's kernel, with \
     journal_async_commit, had one flush for both and no order between them (section 2.1)";

/// The same on mounts. Beside the kernel there are the sentences that have a baseline.
pub(super) fn of_logs_on_mounts(kind: &Kind, cases: &[Case], [own, kernel]: [&Ratios; 2]) -> Vec<Claim> {
    let claims = |of: &Ratios| -> Vec<Claim> {
        let claims = if all_ran(of) { of_logs("section 2.2, on mounts", kind, cases, of) } else { Vec::new() };
        claims.into_iter().map(|of| of.claim.supposedly(NEW_BLOCKS)).collect()
    };
    let beside_kernel = claims(kernel).into_iter().filter(|claim| claim.what.contains("stock"));
    claims(own).into_iter().chain(beside_kernel.map(of_kernel)).collect()
}

/// What the paper says of transactions with a write-ahead log and with a rollback journal: times of all series.
pub(super) fn of_protections(kind: &Kind, cases: &[Case], means: &[Vec<f64>], on: On) -> Option<Claim> {
    let small = |times: &[f64], protection| mean_of(cases, times, protection, OPERATIONS[0]);
    let parts = means.iter().map(|times| small(times, Protection::Wal) / small(times, Protection::Delete));
    let most = parts.fold(0.0, f64::max);
    let at = if on == On::Models { "section 3.1" } else { "section 3.1, on mounts" };
    let says = "a write-ahead log is faster at commits than a rollback journal, by fewer syncs";
    let what = format!("{kind}: small transactions, write-ahead log / rollback journal, the most of all series");
    (!means.is_empty()).then(|| Claim::below(at, says, what, most, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Verdict;

    const HELD: Verdict = Verdict::Held;
    const NOT: Verdict = Verdict::NotHeld;

    #[test]
    fn a_log_that_is_better_off_ordered_and_data_journaling_that_is_slower_are_held() {
        let kind: Kind = "emmc".parse().unwrap();
        let cases = super::super::cases::cases(&[Protection::Wal, Protection::Delete]);
        let of = |ordered: f64, journal: f64, single: f64, joj: f64| {
            let ratios = Ratios {
                ordered: vec![ordered; 12],
                journal: vec![journal; 12],
                single: vec![single; 12],
                joj: vec![joj; 12],
            };
            of_logs("", &kind, &cases, &ratios).iter().map(|of| of.claim.verdict).collect::<Vec<_>>()
        };
        assert_eq!(of(1.4, 1.5, 1.3, 1.0), [HELD; 5]);
        assert_eq!(of(1.0, 0.9, 1.0, 1.0), [NOT; 5], "a tie is not better");
    }

    #[test]
    fn a_write_ahead_log_is_faster_only_if_it_is_so_in_every_series() {
        let cases = super::super::cases::cases(&[Protection::Wal, Protection::Delete]);
        let times = |wal: f64| [vec![wal; 3], vec![9.0; 3], vec![4.0; 3], vec![1.0; 3]].concat();
        let of = |means: &[Vec<f64>]| of_protections(&Kind::Own, &cases, means, On::Mounts);
        let verdict = |means: &[Vec<f64>]| of(means).unwrap().verdict;
        assert_eq!((verdict(&[times(1.0), times(2.0)]), verdict(&[times(1.0), times(5.0)])), (HELD, NOT));
        assert!(of(&[]).is_none());
    }

    #[test]
    fn on_mounts_a_flush_of_new_blocks_is_supposed_and_explains_nothing() {
        let (cases, kind) = (super::super::cases::cases(&[Protection::Wal, Protection::Delete]), Kind::Own);
        let all = |ordered: f64, joj: f64| Ratios {
            ordered: vec![ordered; 12],
            journal: vec![1.5; 12],
            single: vec![1.3; 12],
            joj: vec![joj; 12],
        };
        let verdicts = |own: &Ratios, kernel: &Ratios| {
            let claims = of_logs_on_mounts(&kind, &cases, [own, kernel]);
            claims.iter().map(|claim| (claim.verdict, claim.at.ends_with("kernel"))).collect::<Vec<_>>()
        };
        let good = all(1.4, 1.0);
        assert_eq!(verdicts(&good, &good), [[(HELD, false); 5].to_vec(), [(HELD, true); 3].to_vec()].concat());
        let mut slow = good;
        // The inserts with a write-ahead log, by a flush each.
        [0, 3].into_iter().for_each(|n| (slow.ordered[n], slow.joj[n]) = (2.0, 3.0));
        let of: Vec<Verdict> = verdicts(&slow, &Ratios::default()).into_iter().map(|(verdict, _)| verdict).collect();
        assert_eq!(of, [NOT, NOT, NOT, HELD, HELD]);
    }
}
