//! What the paper says of its applications (figure 5), held against medians on mounts: its sentences, with the kernel's
//! series as baselines and Quire's wasteless and selective modes.
//!
//! *Guarantees*: what is assumed otherwise is so of all claims about a program at once. A tie of wasteless and
//! selective below the write threshold, by less than rounds differ, is not held but has a cause.

use std::ops::RangeInclusive;

use super::super::super::okeanos::log_replay::LOAD;
use super::super::super::okeanos::{postmark, server};
use super::super::bed::{Measured, Rounds};
use super::super::{HOME_AT_FSYNC, IN_MEMORY, JOURNAL, ORDERED, OWN_JOURNAL, SCATTER, SELECTIVE, WASTELESS};
use super::phases::{INSTANCES, POSTMARKS, SERVERS, journal, of, reads, written};
use crate::results::{ABOUT, Claim, with_one_row};

/// Which data journaling the claims are about: the kernel's, or one that leaves blocks in memory, as ext3 of Linux
/// 2.6.18 did.
pub(super) const JOURNALS: [&str; 2] = [JOURNAL, OWN_JOURNAL];

/// Where Postmark is, the study's and Debian's.
const OF_POSTMARK: &str = "figure 5a, on mounts";
const OF_DEBIANS: &str = "figure 5a, Debian's postmark, on mounts";

/// What may be otherwise for Postmark.
#[derive(Clone, Copy, Debug)]
struct OfPostmark {
    journal: &'static str,
    /// The phases with small requests and with such of a page; where a buffer of stdio makes small ones such of a page,
    /// they are the same.
    requests: [usize; 2],
}

impl OfPostmark {
    const HERE: Self = OfPostmark { journal: JOURNAL, requests: POSTMARKS };

    /// All but what the study has, in words.
    fn others() -> Vec<(String, Self)> {
        let buffered = [POSTMARKS[1]; 2];
        let of = |journal, requests| OfPostmark { journal, requests };
        let stdio = "a buffer of stdio";
        vec![
            (IN_MEMORY.to_owned(), of(OWN_JOURNAL, POSTMARKS)),
            (stdio.to_owned(), of(JOURNAL, buffered)),
            (format!("{IN_MEMORY} and {stdio}"), of(OWN_JOURNAL, buffered)),
        ]
    }
}

/// What may be otherwise for the data server.
#[derive(Clone, Copy, Debug)]
struct OfServer {
    journal: &'static str,
    /// By what a write takes beside the disk.
    phase: usize,
}

impl OfServer {
    const HERE: Self = OfServer { journal: JOURNAL, phase: SERVERS[0] };

    /// All but what the study has, in words.
    fn others() -> Vec<(String, Self)> {
        let all = JOURNALS.into_iter().flat_map(|journal| SERVERS.map(|phase| OfServer { journal, phase }));
        let named = |of: Self| {
            let beside = format!("{} ms beside the disk", server::BESIDE[of.phase]);
            let name = match (of.journal == OWN_JOURNAL, of.phase == SERVERS[0]) {
                (true, true) => IN_MEMORY.to_owned(),
                (true, false) => format!("{IN_MEMORY} and {beside}"),
                (false, _) => beside,
            };
            (name, of)
        };
        all.skip(1).map(named).collect()
    }
}

/// Figures 5a, 5c and 5d: one cause for each program.
pub(super) fn of_programs(rounds: &Rounds<f64>) -> Vec<Claim> {
    let (values, others): (Vec<_>, Vec<_>) = OfPostmark::others().into_iter().unzip();
    let with: Vec<_> = others.into_iter().map(|of| of_postmark(rounds, of)).collect();
    let why = format!("{HOME_AT_FSYNC}; {}", postmark::BELOW_THRESHOLD);
    let mut claims = vec![highest(rounds)];
    claims.extend(with_one_row(&why, &values, postmark_claims(&of_postmark(rounds, OfPostmark::HERE)), &with));
    let (values, others): (Vec<_>, Vec<_>) = OfServer::others().into_iter().unzip();
    let with: Vec<_> = others.into_iter().map(|of| of_server(rounds, of)).collect();
    let why = format!("{HOME_AT_FSYNC}; {}", server::BESIDE_THE_DISK);
    claims.extend(with_one_row(&why, &values, server_claims(&of_server(rounds, OfServer::HERE)), &with));
    claims.push(least_traffic(rounds));
    claims
}

/// Why the highest rate is another: no option of data journaling touches it.
const HIGHEST: &str = "the paper prints the rate without its request size, its machine and kernel are of another time, and \
     here a modelled disk stands for its disks";

/// Of figure 5a the highest rate.
fn highest(rounds: &Rounds<f64>) -> Claim {
    let rate = |phase| rounds.median(WASTELESS, phase, of);
    Claim::about(
        OF_POSTMARK,
        "wasteless journaling gets as high as 738 transactions a second",
        "quire wasteless, the higher of both request sizes",
        rate(POSTMARKS[0]).max(rate(POSTMARKS[1])),
        ("738", ABOUT),
    )
    .supposedly(HIGHEST)
}

/// What the claims of figure 5a that compare modes are of.
fn of_postmark(rounds: &Rounds<f64>, OfPostmark { journal, requests }: OfPostmark) -> Vec<f64> {
    let rate = |name, phase| rounds.median(name, phase, of);
    let [small, page] = requests;
    let least = |ratio: &dyn Fn(usize) -> f64| ratio(small).min(ratio(page));
    let of_selective = |phase| rate(SELECTIVE, phase) / rate(journal, phase);
    vec![
        least(&|n| rate(WASTELESS, n) / rate(ORDERED, n).max(rate(journal, n))),
        least(&|n| rate(WASTELESS, n) / rate(SELECTIVE, n)),
        least(&|n| rate(SELECTIVE, n) / rate(ORDERED, n)),
        of_selective(page),
        of_selective(small),
    ]
}

/// Debian's Postmark, in phases of small requests and of such of a page: what is said of wasteless.
pub(super) fn of_debians_postmark(rounds: &Rounds<f64>, requests: [usize; 2]) -> Vec<Claim> {
    let figures = |journal| of_postmark(rounds, OfPostmark { journal, requests });
    let claims = wasteless_is_faster(OF_DEBIANS, &figures(JOURNAL));
    with_one_row(HOME_AT_FSYNC, &[IN_MEMORY.to_owned()], claims, &[figures(OWN_JOURNAL)])
}

fn wasteless_is_faster(at: &str, figures: &[f64]) -> [Claim; 2] {
    [
        Claim::above(
            at,
            "across request sizes wasteless is faster than ordered and data journaling",
            "the least of quire wasteless / the faster of kernel ordered, kernel journal",
            figures[0],
            1.0,
        ),
        Claim::above(
            at,
            "across request sizes wasteless is faster than selective",
            "the least of quire wasteless / quire selective, by more than rounds differ",
            figures[1],
            1.0 + SCATTER,
        )
        .because_within(1.0 - SCATTER..=1.0 + SCATTER * 1.1, postmark::BELOW_THRESHOLD),
    ]
}

fn postmark_claims(figures: &[f64]) -> Vec<Claim> {
    let at = OF_POSTMARK;
    let below = "selective lies below data journaling";
    let of_selective = [
        Claim::above(
            at,
            "selective lies above ordered",
            "the least of quire selective / kernel ordered",
            figures[2],
            1.0,
        ),
        Claim::below(at, &format!("{below}: requests of a page"), "quire selective / kernel journal", figures[3], 1.0),
        Claim::below(
            at,
            &format!("{below}: requests of less than a page"),
            "quire selective / kernel journal",
            figures[4],
            1.0,
        ),
    ];
    wasteless_is_faster(at, figures).into_iter().chain(of_selective).collect()
}

/// Why wasteless takes longer on a mount than the log does.
const READS: &str = "by the device's count a write waits for a read of the block of which it is a part, which the \
     paper's file system has in the page cache; ext4-journal here logs the same bytes with hardly a read";
/// Data journaling for wasteless.
const NO_READS: &str = "data journaling, which reads hardly a block";

/// Flushes of the log by one of InnoDB's methods, with the most instances.
pub(super) struct OfMethod<'a> {
    pub(super) name: &'a str,
    /// What its claim is of: a phase of the trace's server.
    pub(super) here: (&'a Rounds<f64>, usize),
    /// In phases of which the first is of the trace's server, and each other one of a server that writes so many times
    /// as much.
    pub(super) by_load: &'a Rounds<f64>,
}

/// The mounts that its claim and that claim's causes are of.
pub(super) const OF_LOGS: [&str; 3] = [ORDERED, OWN_JOURNAL, WASTELESS];

/// What may be otherwise for InnoDB.
#[derive(Clone, Copy, Debug)]
struct OfLog {
    /// By what the server writes.
    phase: usize,
    without_reads: bool,
}

impl OfMethod<'_> {
    fn phase(&self, phase: usize) -> (&Rounds<f64>, usize) {
        if phase == 0 { self.here } else { (self.by_load, phase) }
    }

    /// Whether a write with wasteless waits for reads that data journaling has not.
    fn reads_more(&self, phase: usize) -> bool {
        let (rounds, phase) = self.phase(phase);
        rounds.median(WASTELESS, phase, reads) > rounds.median(OWN_JOURNAL, phase, reads)
    }

    /// What a flush takes with wasteless, in parts of ordered's. Without reads it takes what it does with data
    /// journaling, if that has fewer.
    fn by_ordered(&self, OfLog { phase, without_reads }: OfLog) -> f64 {
        let name = if without_reads && self.reads_more(phase) { OWN_JOURNAL } else { WASTELESS };
        let (rounds, phase) = self.phase(phase);
        rounds.median(name, phase, of) / rounds.median(ORDERED, phase, of)
    }
}

/// Figure 5b, one claim to each method. What is otherwise is so of the one server, whatever the method, so all are
/// judged together; where wasteless reads no more than data journaling, reads are no cause.
pub(super) fn of_logs(methods: &[OfMethod<'_>], loads: &[u32]) -> Vec<Claim> {
    let are_reads = methods.iter().any(|method| method.reads_more(0));
    let all = [false, true].into_iter().filter(|without_reads| are_reads || !without_reads);
    let all = all.flat_map(|without_reads| (0..loads.len()).map(move |phase| OfLog { phase, without_reads }));
    let named = |of: OfLog| {
        let load = format!("{} times as much written", loads[of.phase]);
        let name = match (of.without_reads, of.phase) {
            (false, _) => load,
            (true, 0) => NO_READS.to_owned(),
            (true, _) => format!("{load} and {NO_READS}"),
        };
        (name, of)
    };
    let (values, others): (Vec<_>, Vec<_>) = all.skip(1).map(named).unzip();
    let row = |of: OfLog| methods.iter().map(|method| method.by_ordered(of)).collect::<Vec<_>>();
    let claims = methods.iter().map(|method| {
        Claim::at_most(
            "figure 5b, on mounts",
            "wasteless substantially reduces the time to flush the log (to a half at most)",
            format!("{}, {} instances: quire wasteless / kernel ordered", method.name, INSTANCES[1]),
            method.by_ordered(OfLog { phase: 0, without_reads: false }),
            0.5,
        )
    });
    let why = if are_reads { format!("{LOAD}; {READS}") } else { LOAD.to_owned() };
    with_one_row(&why, &values, claims, &others.into_iter().map(row).collect::<Vec<_>>())
}

/// What the claims of figures 5c and 5d are of.
fn of_server(rounds: &Rounds<f64>, OfServer { journal: data_journal, phase }: OfServer) -> Vec<f64> {
    let rate = |name| rounds.median(name, phase, of);
    let bytes = |name, which: fn(&Measured<f64>) -> f64| rounds.median(name, phase, which);
    let rates = figures_of_rates([ORDERED, data_journal, WASTELESS, SELECTIVE].map(rate));
    let of_bytes = [
        bytes(WASTELESS, journal) / bytes(data_journal, journal),
        bytes(SELECTIVE, written) / bytes(WASTELESS, written),
    ];
    [&rates[..], &of_bytes].concat()
}

/// What the claims of figure 5c are of: rates of ordered, data journaling, wasteless and selective.
fn figures_of_rates([ordered, journal, wasteless, selective]: [f64; 4]) -> [f64; 4] {
    [wasteless / ordered, journal.min(selective) / ordered, journal / wasteless, selective / wasteless]
}

/// A tie of wasteless and selective, by less than rounds differ; one with the limit is not below it.
const TIED: RangeInclusive<f64> = (1.0 - SCATTER) * 0.99..=1.0 + SCATTER;

/// Figure 5c at this place, by the rates of the kernel's ordered and journal, and Quire's wasteless and selective.
#[cfg(test)]
pub(crate) fn of_rates(at: &str, rates: [f64; 4]) -> [Claim; 4] {
    claims_of_rates(at, figures_of_rates(rates))
}

fn claims_of_rates(at: &str, figures: [f64; 4]) -> [Claim; 4] {
    [
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
        Claim::below(
            at,
            "selective lies below wasteless",
            "quire selective / quire wasteless, by more than rounds differ",
            figures[3],
            1.0 - SCATTER,
        )
        .because_within(TIED, server::BELOW_THRESHOLD),
    ]
}

/// The caption of figure 5d. No option of the kernel's ordered mode or of the server touches it.
fn least_traffic(rounds: &Rounds<f64>) -> Claim {
    let bytes = |name| rounds.median(name, SERVERS[0], written);
    Claim::below(
        "figure 5d, caption, on mounts",
        server::LESS_THAN_OTHERS,
        "all bytes, the more of both / the fewer of kernel ordered, kernel journal",
        bytes(SELECTIVE).max(bytes(WASTELESS)) / bytes(ORDERED).min(bytes(JOURNAL)),
        1.0,
    )
}

fn server_claims(figures: &[f64]) -> Vec<Claim> {
    let of_bytes = "figure 5d, on mounts";
    let mut claims = claims_of_rates("figure 5c, on mounts", [0, 1, 2, 3].map(|n| figures[n])).to_vec();
    claims.extend([
        Claim::by_percent(
            of_bytes,
            "wasteless writes 42 % less to the journal than data journaling",
            "journal bytes, quire wasteless / kernel journal",
            figures[4],
            server::LESS,
        ),
        Claim::below(
            of_bytes,
            "selective writes less than wasteless",
            "all bytes, quire selective / quire wasteless, by more than rounds differ",
            figures[5],
            1.0 - SCATTER,
        )
        .because_within(TIED, server::BELOW_THRESHOLD),
    ]);
    claims
}

#[cfg(test)]
mod tests {
    use super::super::phases::LOGS;
    use super::*;
    use crate::results::Verdict;
    use crate::served::Asked;

    /// All phases.
    const PHASES: usize = LOGS[1] + 1;

    /// Rounds in which every phase of a mounter came to this, with so many bytes and reads.
    fn rounds(of: &[(&str, f64, u64)]) -> Rounds<f64> {
        let measured = |value, bytes| {
            let asked = Asked { journal_bytes: bytes, written_bytes: bytes, reads: bytes, ..Asked::default() };
            Measured { of: value, asked, seconds: 1.0 }
        };
        let phases = |value, bytes| vec![(0..PHASES).map(|_| measured(value, bytes)).collect()];
        Rounds::of(of.iter().map(|(name, value, bytes)| ((*name).to_owned(), phases(*value, *bytes))).collect())
    }

    /// Ordered, the kernel's and Quire's data journaling, wasteless and selective, of each phase.
    fn by_phase(of: [[f64; PHASES]; 5]) -> Rounds<f64> {
        let measured = |value: f64| Measured { of: value, asked: Asked::default(), seconds: 1.0 };
        let names = [ORDERED, JOURNAL, OWN_JOURNAL, WASTELESS, SELECTIVE];
        let rounds = names.into_iter().zip(of).map(|(name, of)| (name.to_owned(), vec![of.map(measured).into()]));
        Rounds::of(rounds.collect())
    }

    #[test]
    fn what_is_assumed_otherwise_serves_all_claims_about_a_program_or_none() {
        let verdict = |leaves_in_the_server: f64| {
            // Selective is between ordered and a data journaling that leaves blocks in memory; the kernel's is slow.
            let mut of = [1.0, 0.5, 3.0, 4.0, 2.0].map(|value| [value; PHASES]);
            SERVERS.iter().for_each(|phase| of[2][*phase] = leaves_in_the_server);
            let claims = of_programs(&by_phase(of));
            let verdict = |says: &str| claims.iter().find(|c| c.says.ends_with(says)).unwrap().verdict;
            [verdict("requests of a page"), verdict("selective lie above ordered")]
        };
        assert_eq!(verdict(3.0), [Verdict::Differs; 2]);
        // Data journaling is faster than wasteless in the data server then.
        assert_eq!(verdict(5.0), [Verdict::Differs, Verdict::NotHeld], "Postmark has a cause of its own");
    }

    #[test]
    fn assumptions_are_tried_alone_and_together() {
        let names: Vec<String> = OfPostmark::others().into_iter().map(|(name, _)| name).collect();
        assert_eq!((names.len(), &*names[1]), (3, "a buffer of stdio"));
        let names: Vec<String> = OfServer::others().into_iter().map(|(name, _)| name).collect();
        assert_eq!((names.len(), &*names[0], &*names[4]), (9, "5 ms beside the disk", IN_MEMORY));
        assert!(names[8].ends_with(" and 40 ms beside the disk"));
    }

    #[test]
    fn claims_compare_with_the_kernels_modes_and_a_tie_of_selective_and_wasteless_has_a_cause() {
        let of = |selective| {
            let kernel = [(ORDERED, 1.0, 9), (JOURNAL, 1.5, 100)];
            rounds(
                &[&kernel[..], &[(OWN_JOURNAL, 2.5, 100), (WASTELESS, 2.0, 58), (SELECTIVE, selective, 58)]].concat(),
            )
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
            ("less traffic than the others", not),
        ] {
            assert_eq!(verdict(&claims, says), expected, "{says}");
        }
        assert_eq!(verdict(&of_programs(&of(3.0)), "selective lies below wasteless"), not);
        assert_eq!(verdict(&claims, "less than a page"), not, "what leaves blocks is faster than wasteless then");
        assert_eq!(verdict(&claims, "faster than selective"), differs, "as fast, within what rounds differ");
        assert_eq!(verdict(&of_programs(&of(1.9)), "faster than selective"), differs, "faster by less than that");
        assert_eq!(verdict(&of_programs(&of(1.5)), "faster than selective"), held);
        assert_eq!(verdict(&of_programs(&of(2.5)), "faster than selective"), not);
    }

    /// The verdicts of methods, each with its figures of ordered, wasteless and [`OWN_JOURNAL`] by load (1 and 4
    /// times), and what a write with wasteless reads.
    fn verdicts_of_logs(methods: &[([[f64; 2]; 3], u64)]) -> Vec<Verdict> {
        let rounds_of = |([ordered, wasteless, leaves], of_wasteless): &([[f64; 2]; 3], u64)| {
            let measured = |value: f64, reads: u64| Measured {
                of: value,
                asked: Asked { reads, ..Asked::default() },
                seconds: 1.0,
            };
            let of = [(ORDERED, ordered, 0), (WASTELESS, wasteless, *of_wasteless), (OWN_JOURNAL, leaves, 2)];
            let mount = |(name, by_load, reads): (&str, &[f64; 2], u64)| {
                (name.to_owned(), vec![by_load.map(|value| measured(value, reads)).into()])
            };
            Rounds::of(of.into_iter().map(mount).collect())
        };
        let all: Vec<Rounds<f64>> = methods.iter().map(rounds_of).collect();
        let methods = all.iter().map(|rounds| OfMethod { name: "method", here: (rounds, 0), by_load: rounds });
        of_logs(&methods.collect::<Vec<_>>(), &[1, 4]).iter().map(|claim| claim.verdict).collect()
    }

    #[test]
    fn flushes_of_a_log_are_slower_by_reads_only_where_the_device_counts_them() {
        let verdict = |wasteless, reads| verdicts_of_logs(&[([[1.0, 1.0], [wasteless; 2], [0.1, 0.1]], reads)])[0];
        assert_eq!(verdict(0.9, 9), Verdict::Differs, "without the reads it is less than a half");
        assert_eq!(verdict(0.9, 2), Verdict::NotHeld, "it has no more reads");
        assert_eq!(verdict(0.4, 9), Verdict::Held);
    }

    #[test]
    fn flushes_of_all_methods_are_judged_by_one_server_that_writes_more() {
        let of = |held: [f64; 2], differs: [f64; 2]| {
            let methods = [held, differs].map(|wasteless| ([[1.0, 10.0], wasteless, [9.0; 2]], 2));
            verdicts_of_logs(&methods)
        };
        use Verdict::{Differs, Held, NotHeld};
        assert_eq!(of([0.3, 4.0], [2.0, 4.0]), [Held, Differs]);
        assert_eq!(of([0.3, 6.0], [2.0, 4.0]), [Held, NotHeld], "what held is lost with it");
        assert_eq!(of([0.3, f64::NAN], [2.0, 4.0]), [Held, NotHeld], "what held is not measured with it");
        assert_eq!(of([0.3, 4.0], [2.0, 9.0]), [Held, NotHeld]);
    }

    #[test]
    fn debians_postmark_is_judged_by_the_kernels_data_journaling_or_one_that_leaves_blocks_in_memory() {
        let verdicts = |journal, selective| {
            let of = [(ORDERED, 1.0, 0), (JOURNAL, journal, 0), (OWN_JOURNAL, 1.5, 0), (WASTELESS, 2.0, 0)];
            let claims = of_debians_postmark(&rounds(&[&of[..], &[(SELECTIVE, selective, 0)]].concat()), [0, 1]);
            assert!(claims.iter().all(|claim| claim.at == OF_DEBIANS));
            claims.iter().map(|claim| claim.verdict).collect::<Vec<_>>()
        };
        let (held, differs, not) = (Verdict::Held, Verdict::Differs, Verdict::NotHeld);
        assert_eq!(verdicts(0.5, 1.0), [held, held]);
        assert_eq!(verdicts(3.0, 2.0), [differs, differs], "each has its own cause");
        assert_eq!(verdicts(0.5, 2.5), [held, not]);
    }
}
