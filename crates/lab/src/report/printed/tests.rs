use std::collections::BTreeSet;
use std::path::Path;

use super::*;
use crate::results::{Claim, Run};

/// Figures without points of the paper's, and what of its numbers each has below it.
const SHOWN: &[(&[&str], &[&str])] = &[
    (
        &["joj-emmc-wal-1", "joj-emmc-wal-1000", "joj-emmc-delete-1000"],
        &["4 % faster", "7 % faster", "6 % slower", "20 % slower", "73 % slower", "38 % slower"],
    ),
    (
        &["joj-emmc-delete-1"],
        &["4 % faster", "7 % faster", "6 % slower", "14 % slower", "20 % slower", "73 % slower", "38 % slower"],
    ),
    (
        &["joj-emmc-by-write", "joj-emmc-by-flush", "joj-emmc-by-scattered", "joj-emmc-by-bytes"],
        &["6 % slower", "14 % slower", "20 % slower", "73 % slower", "38 % slower"],
    ),
    (
        &["joj-emmc-by-unscattered", "joj-emmc-by-page"],
        &["6 % slower", "14 % slower", "20 % slower", "73 % slower", "38 % slower"],
    ),
    (
        &["joj-intel311-wal-1", "joj-intel311-wal-1000", "joj-intel311-delete-1", "joj-intel311-delete-1000"],
        &["9 % faster", "7 % faster", "6 % slower", "20 % slower", "58 % slower", "38 % slower"],
    ),
    (
        &["joj-intel311-by-write", "joj-intel311-by-flush", "joj-intel311-by-scattered", "joj-intel311-by-bytes"],
        &["6 % slower", "20 % slower", "58 % slower", "38 % slower"],
    ),
    (
        &["joj-intel311-by-unscattered", "joj-intel311-by-page"],
        &["6 % slower", "20 % slower", "58 % slower", "38 % slower"],
    ),
    (
        &["joj-own-wal-1", "joj-own-wal-1000", "joj-own-delete-1000"],
        &["4 % f", "9 % f", "7 % f", "6 % s", "20 % s", "73 % s", "58 % s", "38 % s"],
    ),
    (
        &["joj-ssd-wal-1", "joj-ssd-wal-1000", "joj-ssd-delete-1000"],
        &["4 % f", "9 % f", "7 % f", "6 % s", "20 % s", "73 % s", "58 % s", "38 % s"],
    ),
    (
        &["joj-own-delete-1", "joj-ssd-delete-1"],
        &["4 % f", "9 % f", "7 % f", "6 % s", "14 % s", "20 % s", "73 % s", "58 % s", "38 % s"],
    ),
    (&["joj-4-emmc-1", "joj-4-intel311-1", "joj-4-own-1", "joj-4-ssd-1"], &["an order of magnitude"]),
    (&["joj-4-emmc-1000", "joj-4-intel311-1000", "joj-4-own-1000", "joj-4-ssd-1000"], &["a factor of two"]),
    (
        &["joj-4-emmc-computing", "joj-4-intel311-computing", "joj-4-own-computing", "joj-4-ssd-computing"],
        &["an order of magnitude", "a factor of two"],
    ),
    (&["djfs-2a"], &["43.6 %"]),
    (&["djfs-3a"], &["46.1 %", "2.2 times"]),
    (&["djfs-7"], &["1.7 times", "5.1 times"]),
    (&["djfs-2-mounts"], &["43.6 %", "2.2 times", "5.1 times"]),
    (&["djfs-8-persist", "djfs-8-mounts-persist"], &["64.2 times"]),
    (&["djfs-8-wal", "djfs-8-mounts-wal"], &["26.5 times"]),
    (&["djfs-9", "djfs-9-mounts"], &["3.52 times"]),
    (&["okeanos-4a-together", "okeanos-4a-mounts"], &["27 MB/s", "an order of magnitude"]),
    (&["okeanos-4a-write-mounts"], &["an order of magnitude"]),
    (
        &["okeanos-4c", "okeanos-4c-run", "okeanos-4c-mounts", "okeanos-4c-run-mounts", "okeanos-4c-disks-mounts"],
        &["orders of magnitude"],
    ),
    (&["okeanos-4c-disks-run-mounts"], &["orders of magnitude"]),
    (
        &["okeanos-async", "okeanos-async-call", "okeanos-async-memory", "okeanos-async-mounts"],
        &["two orders of magnitude"],
    ),
    (&["okeanos-recovery", "okeanos-recovery-mounts"], &["20 % less time"]),
    (&["okeanos-5a", "okeanos-5a-buffer", "okeanos-5a-mounts", "okeanos-5a-debian-mounts"], &["738 transactions"]),
    (&["okeanos-5b-0", "okeanos-5b-1", "okeanos-5b-2"], &["ordered hundreds"]),
    (&["okeanos-5b-0-mounts", "okeanos-5b-1-mounts", "okeanos-5b-2-mounts"], &["ordered hundreds"]),
    (&["okeanos-5b-1-load-mounts"], &["ordered hundreds"]),
    (&["okeanos-5b-0-call", "okeanos-5b-1-call", "okeanos-5b-2-call"], &["ordered hundreds"]),
    (&["okeanos-5b-0-load", "okeanos-5b-1-load", "okeanos-5b-2-load"], &["ordered hundreds"]),
    (&["okeanos-5c", "okeanos-5c-mounts"], &["almost doubles"]),
    (&["okeanos-5d-journal", "okeanos-5d-mounts"], &["42 % less"]),
    (&["rfj-8", "rfj-8-mounts", "rfj-8-mounts-memory", "rfj-8-mounts-otherwise"], &["almost 5 times"]),
];

fn recorded() -> Vec<Run> {
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/results/lab");
    let runs = Run::load_all(&results).unwrap();
    runs.into_iter().filter(|run| run.paper != Paper::Quire).collect()
}

/// All recorded figures: those that are not listed show none.
#[test]
fn each_recorded_figure_shows_the_papers_numbers_of_what_it_shows_and_no_others() {
    let (mut seen, mut wrong) = (BTreeSet::new(), Vec::new());
    for run in recorded() {
        for f in run.findings.figures.iter().filter(|f| f.printed.is_empty()) {
            let listed = SHOWN.iter().find(|(ids, _)| ids.contains(&&*f.id));
            let wanted: &[&str] = listed.map_or(&[], |(_, numbers)| *numbers);
            let says: Vec<&str> = said(run.paper, f).collect();
            let is_as_listed = says.len() == wanted.len() && says.iter().zip(wanted).all(|(s, w)| s.contains(w));
            if !is_as_listed {
                wrong.push(format!("{}: {says:?}, listed {wanted:?}", f.id));
            }
            seen.insert(f.id.clone());
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let listed = SHOWN.iter().flat_map(|(ids, _)| *ids);
    let missing: Vec<_> = listed.filter(|id| !seen.contains(**id)).collect();
    assert!(missing.is_empty(), "listed, and not recorded: {missing:?}");
}

/// The words of a sentence without what ends them.
fn words(says: &str) -> impl Iterator<Item = &str> {
    says.split_whitespace().map(|word| word.trim_end_matches([',', ';']))
}

/// A claim's number is a word of a sentence here; as so many per cent, if the claim has a ratio.
#[test]
fn what_a_recorded_claim_has_from_a_paper_is_among_the_numbers_here() {
    let is_here = |paper: Paper, claim: &Claim| {
        let (value, printed) = (claim.paper.unwrap_or(f64::NAN), claim.printed.clone().unwrap_or_default());
        let percent = format!("{:.0}", (value - 1.0).abs() * 100.0);
        NUMBERS.iter().filter(|n| n.paper == paper).flat_map(|n| words(n.says)).any(|w| w == printed || w == percent)
    };
    let mut count = 0;
    for run in recorded() {
        let of_text = |claim: &&Claim| claim.printed.is_some() && !claim.at.starts_with("table");
        for claim in run.findings.claims.iter().filter(of_text) {
            assert!(is_here(run.paper, claim), "{}: {claim}", run.study);
            count += 1;
        }
    }
    assert!(count > 40, "{count} claims");
}

#[test]
fn a_figure_is_of_all_that_it_names_and_a_part_is_of_the_whole() {
    assert_eq!(parts("figures 2, 3 and 7"), ["figure 2", "figure 3", "figure 7"]);
    assert_eq!(parts("figures 2 and 3 on mounts"), ["figure 2", "figure 3"]);
    assert_eq!(parts("section 6, recovery"), ["section 6, recovery"]);
    assert!(is_same("figure 2a", "figure 2") && is_same("figure 2", "figure 2a") && is_same("figure 2", "figure 2"));
    assert!(!is_same("figure 2", "figure 22") && !is_same("figure 2a", "figure 2d"));
    assert!(!is_same("section 6", "section 6, recovery"));
}

#[test]
fn what_the_page_says_has_each_number_once_or_that_there_is_none() {
    let figure = |of: &str, y: &str| Figure::bars("f", of, "rfj", "", y);
    let rfj = sentence(Paper::Rfj, &figure("figure 8", "times as fast"));
    assert_eq!(rfj, "The paper: RFJ is almost 5 times as fast as journal.");
    for other in [figure("figure 2", "operations/s"), figure("figure 8", "bytes"), figure("figure 88", "operations/s")]
    {
        assert_eq!(sentence(Paper::Rfj, &other), "The paper prints no number of what this shows.");
    }
}
