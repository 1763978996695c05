//! What the paper says of its applications (figure 5), held against medians on mounts: its sentences, with the kernel's
//! series as baselines and Quire's wasteless and selective modes.
//!
//! *Guarantees*: a tie of wasteless and selective below the write threshold is not held but has a cause (in Postmark
//! only if they are not tied with requests of a page, which its stdio buffer makes of smaller ones); where the kernel's
//! data journaling is in the sentence, Quire's is its calibration.

use super::super::super::okeanos::{postmark, server};
use super::super::bed::{Measured, Rounds};
use super::super::{HOME_AT_FSYNC, JOURNAL, ORDERED, SELECTIVE, WASTELESS};
use super::phases::{INSTANCES, LOGS, POSTMARKS, SERVERS, journal, of, written};
use crate::results::Claim;

/// Data journaling which leaves blocks in memory at an fsync.
const LEAVES: &str = "quire ext4-journal";
/// Parts within which a ratio of medians is that of two modes which do the same: rounds differ by as much.
const SCATTER: f64 = 0.1;

/// Figure 5a.
pub(super) fn of_postmark(rounds: &Rounds<f64>) -> Vec<Claim> {
    let at = "figure 5a, on mounts";
    let rate = |name, phase| rounds.median(name, phase, of);
    let [small, page] = POSTMARKS;
    let least = |ratio: &dyn Fn(usize) -> f64| ratio(small).min(ratio(page));
    let of_selective = |journal, phase| rate(SELECTIVE, phase) / rate(journal, phase);
    // A buffer of stdio hands small requests on as those of a page: a tie is explained if these are not tied.
    let faster = rate(WASTELESS, page) / rate(SELECTIVE, page) > 1.0 + SCATTER;
    let tie = 1.0 - SCATTER..=if faster { 1.0 + SCATTER } else { f64::NAN };
    let by_stdio = format!("{}; {HOME_AT_FSYNC}", postmark::BELOW_THRESHOLD);
    vec![
        Claim::at_least(
            at,
            "wasteless journaling reaches 738 transactions a second",
            "quire wasteless, the higher of both request sizes",
            rate(WASTELESS, small).max(rate(WASTELESS, page)),
            "738",
        ),
        Claim::above(
            at,
            "across request sizes wasteless is faster than ordered and data journaling",
            "the least of quire wasteless / the faster of kernel ordered, kernel journal",
            least(&|n| rate(WASTELESS, n) / rate(ORDERED, n).max(rate(JOURNAL, n))),
            1.0,
        ),
        Claim::above(
            at,
            "across request sizes wasteless is faster than selective",
            "the least of quire wasteless / quire selective",
            least(&|n| rate(WASTELESS, n) / rate(SELECTIVE, n)),
            1.0,
        )
        .because_within(tie, postmark::BELOW_THRESHOLD),
        Claim::above(
            at,
            "selective lies above ordered",
            "the least of quire selective / kernel ordered",
            least(&|n| rate(SELECTIVE, n) / rate(ORDERED, n)),
            1.0,
        ),
        Claim::below(
            at,
            "selective lies below data journaling: requests of a page",
            "quire selective / kernel journal",
            of_selective(JOURNAL, page),
            1.0,
        )
        .calibrated(&[of_selective(LEAVES, page)], HOME_AT_FSYNC),
        Claim::below(
            at,
            "selective lies below data journaling: requests of less than a page",
            "quire selective / kernel journal",
            of_selective(JOURNAL, small),
            1.0,
        )
        .calibrated(&[of_selective(LEAVES, page)], &by_stdio),
    ]
}

/// Why wasteless takes longer on a mount than the log does.
const READS: &str = "by the device's count a write waits for a read of the block of which it is a part, which the \
     paper's file system has in the page cache; ext4-journal here logs the same bytes with hardly a read";

/// Figure 5b, with the most instances.
pub(super) fn of_logs(rounds: &Rounds<f64>) -> Claim {
    let time = |name| rounds.median(name, LOGS[1], of);
    Claim::at_most(
        "figure 5b, on mounts",
        "wasteless substantially reduces the time to flush the log (to a half at most)",
        format!("Cmt/Disk, {} instances: quire wasteless / kernel ordered", INSTANCES[1]),
        time(WASTELESS) / time(ORDERED),
        0.5,
    )
    .calibrated(&[time(LEAVES) / time(ORDERED)], READS)
}

/// Figures 5c and 5d.
pub(super) fn of_server(rounds: &Rounds<f64>) -> Vec<Claim> {
    let [alone, beside] = SERVERS;
    let rate = |name| rounds.median(name, alone, of);
    let slower = |journal| rate(journal).min(rate(SELECTIVE));
    let bytes = |name, which: fn(&Measured<f64>) -> f64| rounds.median(name, alone, which);
    let with_more = rounds.median(WASTELESS, beside, of) / rounds.median(ORDERED, beside, of);
    let scatter = 1.0 - SCATTER..=1.0 + SCATTER;
    let at = "figure 5c, on mounts";
    vec![
        Claim::between(
            at,
            "wasteless almost doubles ordered's throughput",
            "quire wasteless / kernel ordered",
            rate(WASTELESS) / rate(ORDERED),
            (1.8, 2.0),
        )
        .calibrated(&[with_more], server::BESIDE_THE_DISK),
        Claim::above(
            at,
            "data journaling and selective lie above ordered",
            "the slower of kernel journal, quire selective / kernel ordered",
            slower(JOURNAL) / rate(ORDERED),
            1.0,
        )
        .calibrated(&[slower(LEAVES) / rate(ORDERED)], HOME_AT_FSYNC),
        Claim::below(
            at,
            "data journaling lies below wasteless",
            "kernel journal / quire wasteless",
            rate(JOURNAL) / rate(WASTELESS),
            1.0,
        ),
        Claim::below(
            at,
            "selective lies below wasteless",
            "quire selective / quire wasteless",
            rate(SELECTIVE) / rate(WASTELESS),
            1.0,
        )
        .because_within(scatter.clone(), server::BELOW_THRESHOLD),
        Claim::at_most(
            "figure 5d, on mounts",
            "wasteless writes 42 % less to the journal than data journaling",
            "journal bytes, quire wasteless / kernel journal",
            bytes(WASTELESS, journal) / bytes(JOURNAL, journal),
            "0.58",
        ),
        Claim::below(
            "figure 5d, on mounts",
            "selective writes less than wasteless",
            "all bytes, quire selective / quire wasteless",
            bytes(SELECTIVE, written) / bytes(WASTELESS, written),
            1.0,
        )
        .because_within(scatter, server::BELOW_THRESHOLD),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Verdict;
    use crate::served::Asked;

    /// Rounds in which every phase of a mounter came to this, with so many bytes.
    fn rounds(of: &[(&str, f64, u64)]) -> Rounds<f64> {
        let measured = |value, bytes| {
            let asked = Asked { journal_bytes: bytes, written_bytes: bytes, ..Asked::default() };
            Measured { of: value, asked, seconds: 1.0 }
        };
        let phases = |value, bytes| vec![(0..6).map(|_| measured(value, bytes)).collect()];
        Rounds::of(of.iter().map(|(name, value, bytes)| ((*name).to_owned(), phases(*value, *bytes))).collect())
    }

    #[test]
    fn claims_compare_with_the_kernels_modes_and_a_tie_of_selective_and_wasteless_has_a_cause() {
        let of = |selective| {
            let kernel = [(ORDERED, 1.0, 9), (JOURNAL, 1.5, 100)];
            rounds(&[&kernel[..], &[(LEAVES, 2.5, 100), (WASTELESS, 2.0, 50), (SELECTIVE, selective, 50)]].concat())
        };
        let verdict = |claims: &[Claim], says: &str| claims.iter().find(|c| c.says.contains(says)).unwrap().verdict;
        let (held, differs, not) = (Verdict::Held, Verdict::Differs, Verdict::NotHeld);
        let tie = of(2.0);
        let claims = of_server(&tie);
        for (says, expected) in [
            ("almost doubles", held),
            ("lie above ordered", held),
            ("data journaling lies below wasteless", held),
            ("selective lies below wasteless", differs),
            ("42 % less", held),
            ("selective writes less", differs),
        ] {
            assert_eq!(verdict(&claims, says), expected, "{says}");
        }
        assert_eq!(verdict(&of_server(&of(3.0)), "selective lies below wasteless"), not);
        assert_eq!(verdict(&of_postmark(&tie), "less than a page"), differs);
        assert_eq!(verdict(&of_postmark(&of(3.0)), "less than a page"), not, "so it is with requests of a page");
        assert_eq!(verdict(&of_postmark(&tie), "faster than selective"), not, "requests of a page are tied, too");
        assert_eq!(of_logs(&tie).verdict, not);
        let fast = [(ORDERED, 1.0, 0), (WASTELESS, 0.9, 0), (LEAVES, 0.1, 0)];
        assert_eq!(of_logs(&rounds(&fast)).verdict, differs, "without the reads it is less than a half");
        assert_eq!(of_logs(&rounds(&[(ORDERED, 3.0, 0), (WASTELESS, 1.0, 0)])).verdict, held);
    }
}
