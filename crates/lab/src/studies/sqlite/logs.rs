//! What JoJ says of SQLite's two logs: which journal suits which (section 2.2), and which is faster at commits
//! (section 3.1).

use super::cases::{Case, ratio};
use super::claims::{ByRatios, NOT_GROWING, above, of_kernel, of_printed};
use super::plan::On;
use super::ratios::Ratios;
use crate::results::{Claim, with_one_value};
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

/// What section 2.2 says of the two kinds of logs.
fn of_logs(at: &str, kind: &Kind, cases: &[Case], of: &Ratios) -> Vec<ByRatios> {
    let count = cases.len();
    let faster = |r: &Ratios| above(&ratio(&r.ordered, &r.journal), 1.0);
    let says = "but for single-I/O, ordered journaling almost always outperforms data journaling (in all cases but one in ten)";
    let what = format!("{kind}: cases where stock journal is faster than stock ordered, of {count}");
    let almost = Claim::at_most(at, says, what, faster(of), float(count as u64 / 10));
    let own = cases.to_vec();
    let of_log = move |r: &Ratios| {
        let all = ratio(&r.joj, &r.single);
        let of = own.iter().zip(&all).filter(|(c, _)| c.protection == Protection::Wal).map(|(_, r)| *r);
        mean(&of.collect::<Vec<_>>())
    };
    let says = "a write-ahead log is better off ordered";
    let what = format!("{kind}: joj / single-io, mean of the write-ahead log");
    let log = Claim::below(at, says, what, of_log(of), 1.0);
    vec![ByRatios::new(almost, faster), ByRatios::new(log, of_log)]
}

/// Why ordered journaling may be the slower one on mounts.
const NEW_BLOCKS: &str = "in ordered mode new blocks of a log are flushed before the commit that names them: of a \
     write-ahead log that grows, and of a rollback journal, which each transaction makes anew; the paper's kernel, with \
     journal_async_commit, had one flush for both and no order between them (section 2.1)";

/// The same on mounts, with the cases in which no log takes new blocks as a cause: those of a write-ahead log that is
/// not `growing`. Beside the kernel there is the sentence that has a baseline.
pub(super) fn of_logs_on_mounts(
    kind: &Kind,
    cases: &[Case],
    growing: &[bool],
    [own, kernel]: [&Ratios; 2],
) -> Vec<Claim> {
    let takes: Vec<bool> =
        cases.iter().zip(growing).map(|(case, grows)| *grows || case.protection == Protection::Delete).collect();
    let there: Vec<Case> = cases.iter().zip(&takes).filter(|(_, takes)| !**takes).map(|(case, _)| *case).collect();
    // Of fewer cases as many are one in ten.
    let scaled = [float(cases.len() as u64) / float(there.len() as u64), 1.0];
    let judged = |of: &Ratios, count: usize| {
        if !all_ran(of) {
            return Vec::new();
        }
        let at = "section 2.2, on mounts";
        let without = of_logs(at, kind, &there, &of.without(&takes)).into_iter().zip(scaled);
        let all = of_logs(at, kind, cases, of).into_iter().zip(without).take(count);
        let swept = all.map(|(of, (without, by))| of.claim.swept(without.claim.measured.map(|figure| figure * by)));
        with_one_value(NEW_BLOCKS, &[NOT_GROWING.to_owned()], swept.collect())
    };
    judged(own, 2).into_iter().chain(judged(kernel, 1).into_iter().map(of_kernel)).collect()
}

/// What the paper says of transactions with a write-ahead log and with a rollback journal: times of all series.
pub(super) fn of_protections(kind: &Kind, cases: &[Case], means: &[Vec<f64>], on: On) -> Option<Claim> {
    let mean_of = |times: &[f64], protection: Protection| {
        let small = cases.iter().zip(times).filter(|(c, _)| c.protection == protection && c.operations == 1);
        mean(&small.map(|(_, time)| *time).collect::<Vec<_>>())
    };
    let parts = means.iter().map(|times| mean_of(times, Protection::Wal) / mean_of(times, Protection::Delete));
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

    /// The inserts with a write-ahead log, small and large.
    const GROWING: [bool; 12] = [true, false, false, true, false, false, false, false, false, false, false, false];
    const HELD: Verdict = Verdict::Held;
    const DIFFERS: Verdict = Verdict::Differs;
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
        assert_eq!(of(1.0, 1.5, 1.3, 1.0), [HELD, HELD]);
        assert_eq!(of(1.0, 0.9, 1.0, 1.0), [NOT, NOT], "a tie is not better");
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
    fn a_growing_logs_flush_explains_on_mounts_which_journal_suits_which_log() {
        let (cases, kind) = (super::super::cases::cases(&[Protection::Wal, Protection::Delete]), Kind::Own);
        let all = |ordered: f64, joj: f64| Ratios {
            ordered: vec![ordered; 12],
            journal: vec![1.5; 12],
            single: vec![1.3; 12],
            joj: vec![joj; 12],
        };
        let verdicts = |own: &Ratios, kernel: &Ratios| {
            let claims = of_logs_on_mounts(&kind, &cases, &GROWING, [own, kernel]);
            claims.iter().map(|claim| (claim.verdict, claim.at.ends_with("kernel"))).collect::<Vec<_>>()
        };
        let good = all(1.0, 1.0);
        assert_eq!(verdicts(&good, &good), [(HELD, false), (HELD, false), (HELD, true)]);
        let mut slow = good.clone();
        // The small and the large inserts with a write-ahead log, by a flush each.
        [0, 3].into_iter().for_each(|n| (slow.ordered[n], slow.joj[n]) = (2.0, 3.0));
        assert_eq!(verdicts(&slow, &Ratios::default()), [(DIFFERS, false), (DIFFERS, false)]);
        // Two cases of a rollback journal; then an update of a log that does not grow.
        [7, 8].into_iter().for_each(|n| slow.ordered[n] = 2.0);
        assert_eq!(verdicts(&slow, &slow), [(DIFFERS, false), (DIFFERS, false), (DIFFERS, true)]);
        slow.ordered[1] = 2.0;
        assert_eq!(verdicts(&slow, &slow), [(NOT, false), (DIFFERS, false), (NOT, true)]);
    }
}
