//! What the paper says of its applications (figure 5), held against medians on mounts: its sentences, with the kernel's
//! series as baselines and Quire's wasteless and selective modes.
//!
//! *Guarantees*: what is assumed otherwise ([`Assumed`]) is so of all claims at once. A tie of wasteless and selective
//! below the write threshold is not held but has a cause.

use super::super::super::okeanos::{postmark, server};
use super::super::bed::{Measured, Rounds};
use super::super::{HOME_AT_FSYNC, JOURNAL, ORDERED, SELECTIVE, WASTELESS};
use super::phases::{INSTANCES, LOGS, POSTMARKS, SERVERS, journal, of, written};
use crate::results::{Claim, with_one_row};

/// Data journaling which leaves blocks in memory at an fsync.
const LEAVES: &str = "quire ext4-journal";
/// Parts within which a ratio of medians is that of two modes which do the same: rounds differ by as much.
const SCATTER: f64 = 0.1;

/// What may be otherwise than in the study.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Assumed {
    /// Data journaling leaves blocks in memory, as ext3 of Linux 2.6.18 did: Quire's for the kernel's.
    leaves: bool,
    /// Postmark's requests go through a buffer of stdio, which makes small ones such of a page.
    buffers: bool,
    /// A write to the data server takes time beside the disk.
    beside: bool,
}

impl Assumed {
    /// All but what the study has.
    fn others() -> impl Iterator<Item = Self> {
        let bit = |n: u8, at: u8| n >> at & 1 == 1;
        (1..8).map(move |n| Assumed { leaves: bit(n, 0), buffers: bit(n, 1), beside: bit(n, 2) })
    }

    fn journal(self) -> &'static str {
        if self.leaves { LEAVES } else { JOURNAL }
    }

    /// The phases of Postmark with small requests and with such of a page.
    fn postmarks(self) -> [usize; 2] {
        if self.buffers { [POSTMARKS[1]; 2] } else { POSTMARKS }
    }

    /// The phase of the data server.
    fn server(self) -> usize {
        SERVERS[usize::from(self.beside)]
    }

    /// In words.
    fn named(self) -> String {
        let of = [
            (self.leaves, "data journaling that leaves blocks in memory (quire ext4-journal)"),
            (self.buffers, "a buffer of stdio"),
            (self.beside, "a data server whose writes take time beside the disk"),
        ];
        of.iter().filter(|(is, _)| *is).map(|(_, name)| *name).collect::<Vec<_>>().join(" and ")
    }
}

/// Figures 5a, 5c and 5d.
pub(super) fn of_programs(rounds: &Rounds<f64>) -> Vec<Claim> {
    let why = format!("{HOME_AT_FSYNC}; {}; {}", postmark::BELOW_THRESHOLD, server::BESIDE_THE_DISK);
    let here = Assumed::default();
    let with: Vec<Vec<f64>> =
        Assumed::others().map(|of| [of_postmark(rounds, of), of_server(rounds, of)].concat()).collect();
    let all = postmark_claims(&of_postmark(rounds, here)).into_iter().chain(server_claims(&of_server(rounds, here)));
    let values: Vec<String> = Assumed::others().map(Assumed::named).collect();
    with_one_row(&why, &values, all, &with)
}

/// What the claims of figure 5a are of.
fn of_postmark(rounds: &Rounds<f64>, assumed: Assumed) -> Vec<f64> {
    let rate = |name, phase| rounds.median(name, phase, of);
    let [small, page] = assumed.postmarks();
    let journal = assumed.journal();
    let least = |ratio: &dyn Fn(usize) -> f64| ratio(small).min(ratio(page));
    let of_selective = |phase| rate(SELECTIVE, phase) / rate(journal, phase);
    vec![
        rate(WASTELESS, small).max(rate(WASTELESS, page)),
        least(&|n| rate(WASTELESS, n) / rate(ORDERED, n).max(rate(journal, n))),
        least(&|n| rate(WASTELESS, n) / rate(SELECTIVE, n)),
        least(&|n| rate(SELECTIVE, n) / rate(ORDERED, n)),
        of_selective(page),
        of_selective(small),
    ]
}

fn postmark_claims(figures: &[f64]) -> Vec<Claim> {
    let at = "figure 5a, on mounts";
    let below = "selective lies below data journaling";
    vec![
        Claim::at_least(
            at,
            "wasteless journaling reaches 738 transactions a second",
            "quire wasteless, the higher of both request sizes",
            figures[0],
            "738",
        ),
        Claim::above(
            at,
            "across request sizes wasteless is faster than ordered and data journaling",
            "the least of quire wasteless / the faster of kernel ordered, kernel journal",
            figures[1],
            1.0,
        ),
        Claim::above(
            at,
            "across request sizes wasteless is faster than selective",
            "the least of quire wasteless / quire selective",
            figures[2],
            1.0,
        ),
        Claim::above(
            at,
            "selective lies above ordered",
            "the least of quire selective / kernel ordered",
            figures[3],
            1.0,
        ),
        Claim::below(at, &format!("{below}: requests of a page"), "quire selective / kernel journal", figures[4], 1.0),
        Claim::below(
            at,
            &format!("{below}: requests of less than a page"),
            "quire selective / kernel journal",
            figures[5],
            1.0,
        ),
    ]
}

/// Why wasteless takes longer on a mount than the log does.
const READS: &str = "by the device's count a write waits for a read of the block of which it is a part, which the \
     paper's file system has in the page cache; ext4-journal here logs the same bytes with hardly a read";

/// Figure 5b, with the most instances.
pub(super) fn of_logs(rounds: &Rounds<f64>) -> Vec<Claim> {
    let time = |name| rounds.median(name, LOGS[1], of);
    let claim = Claim::at_most(
        "figure 5b, on mounts",
        "wasteless substantially reduces the time to flush the log (to a half at most)",
        format!("Cmt/Disk, {} instances: quire wasteless / kernel ordered", INSTANCES[1]),
        time(WASTELESS) / time(ORDERED),
        0.5,
    );
    let without_reads = ["data journaling, which reads hardly a block".to_owned()];
    with_one_row(READS, &without_reads, [claim], &[[time(LEAVES) / time(ORDERED)]])
}

/// What the claims of figures 5c and 5d are of.
fn of_server(rounds: &Rounds<f64>, assumed: Assumed) -> Vec<f64> {
    let (phase, data_journal) = (assumed.server(), assumed.journal());
    let rate = |name| rounds.median(name, phase, of);
    let bytes = |name, which: fn(&Measured<f64>) -> f64| rounds.median(name, phase, which);
    vec![
        rate(WASTELESS) / rate(ORDERED),
        rate(data_journal).min(rate(SELECTIVE)) / rate(ORDERED),
        rate(data_journal) / rate(WASTELESS),
        rate(SELECTIVE) / rate(WASTELESS),
        bytes(WASTELESS, journal) / bytes(data_journal, journal),
        bytes(SELECTIVE, written) / bytes(WASTELESS, written),
    ]
}

fn server_claims(figures: &[f64]) -> Vec<Claim> {
    let (at, of_bytes) = ("figure 5c, on mounts", "figure 5d, on mounts");
    let scatter = 1.0 - SCATTER..=1.0 + SCATTER;
    vec![
        Claim::between(
            at,
            "wasteless almost doubles ordered's throughput",
            "quire wasteless / kernel ordered",
            figures[0],
            (1.8, 2.0),
        ),
        Claim::above(
            at,
            "data journaling and selective lie above ordered",
            "the slower of kernel journal, quire selective / kernel ordered",
            figures[1],
            1.0,
        ),
        Claim::below(at, "data journaling lies below wasteless", "kernel journal / quire wasteless", figures[2], 1.0),
        Claim::below(at, "selective lies below wasteless", "quire selective / quire wasteless", figures[3], 1.0)
            .because_within(scatter.clone(), server::BELOW_THRESHOLD),
        Claim::at_most(
            of_bytes,
            "wasteless writes 42 % less to the journal than data journaling",
            "journal bytes, quire wasteless / kernel journal",
            figures[4],
            "0.58",
        ),
        Claim::below(
            of_bytes,
            "selective writes less than wasteless",
            "all bytes, quire selective / quire wasteless",
            figures[5],
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

    /// Ordered, the kernel's and Quire's data journaling, wasteless and selective, of each phase.
    fn by_phase(of: [[f64; 6]; 5]) -> Rounds<f64> {
        let measured = |value: f64| Measured { of: value, asked: Asked::default(), seconds: 1.0 };
        let names = [ORDERED, JOURNAL, LEAVES, WASTELESS, SELECTIVE];
        let rounds = names.into_iter().zip(of).map(|(name, of)| (name.to_owned(), vec![of.map(measured).into()]));
        Rounds::of(rounds.collect())
    }

    #[test]
    fn what_is_assumed_otherwise_serves_all_programs_or_none() {
        let verdict = |leaves_in_the_server: f64| {
            // Selective is between ordered and a data journaling that leaves blocks in memory; the kernel's is slow.
            let mut of = [[1.0; 6], [0.5; 6], [3.0; 6], [4.0; 6], [2.0; 6]];
            SERVERS.iter().for_each(|phase| of[2][*phase] = leaves_in_the_server);
            let claims = of_programs(&by_phase(of));
            let with = claims.iter().find(|c| c.says.ends_with("requests of a page")).unwrap();
            assert_eq!(with.measured, Some(4.0));
            with.verdict
        };
        assert_eq!(verdict(3.0), Verdict::Differs);
        assert_eq!(verdict(5.0), Verdict::NotHeld, "data journaling is faster than wasteless in the data server then");
    }

    #[test]
    fn assumptions_are_tried_alone_and_together() {
        let names: Vec<String> = Assumed::others().map(Assumed::named).collect();
        assert_eq!((names.len(), &*names[1]), (7, "a buffer of stdio"));
        assert!(names[6].matches(" and ").count() == 2 && !Assumed::others().any(|of| of == Assumed::default()));
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
        let claims = of_programs(&tie);
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
        assert_eq!(verdict(&of_programs(&of(3.0)), "selective lies below wasteless"), not);
        assert_eq!(verdict(&claims, "less than a page"), not, "what leaves blocks is faster than wasteless then");
        assert_eq!(verdict(&claims, "faster than selective"), not, "requests of a page are tied, too");
        assert_eq!(of_logs(&tie)[0].verdict, not);
        let fast = [(ORDERED, 1.0, 0), (WASTELESS, 0.9, 0), (LEAVES, 0.1, 0)];
        assert_eq!(of_logs(&rounds(&fast))[0].verdict, differs, "without the reads it is less than a half");
        assert_eq!(of_logs(&rounds(&[(ORDERED, 3.0, 0), (WASTELESS, 1.0, 0)]))[0].verdict, held);
    }
}
