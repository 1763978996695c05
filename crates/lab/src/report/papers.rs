//! Every technique, figure and table of the four papers, and what became of each: by the claims of a study that ran, by
//! a test, or not at all and why. docs/lab.md's tables are made of [`rows`] and [`causes`].

use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::json;

use crate::results::{Paper, Run, Verdict};

/// How an item is shown.
enum By {
    /// By the claims of these studies whose place begins so.
    Claims(&'static str, &'static [&'static str]),
    /// By a test of this name.
    Test(&'static str),
    /// By a test of this name, which shows less than the paper's sentence, and what is missing.
    Less(&'static str, &'static str),
    /// It is measured apart from the laboratory's studies; what came of it, and where.
    Elsewhere(Verdict, &'static str, &'static str),
    /// It explains, and measures nothing; where ours stands.
    Explains(&'static str),
    /// It cannot be had here, and why.
    Not(&'static str),
}

use By::{Claims, Elsewhere, Explains, Less, Not, Test};

const ITEMS: &[(Paper, &str, By)] = &[
    (
        Paper::Joj,
        "single-I/O commit: data and metadata in one sequential write that checks itself",
        Test("single_io_commits_with_one_write_and_one_flush"),
    ),
    (
        Paper::Joj,
        "a journaling mode for each file, set by the application",
        Test("a_mode_is_set_ruled_handed_down_or_the_default"),
    ),
    (
        Paper::Joj,
        "growth of files in ordered mode goes in place",
        Test("growth_of_an_ordered_file_goes_in_place_before_the_commit"),
    ),
    (
        Paper::Joj,
        "an fsync of stock ext4 with data journaling writes earlier journaled buffers home",
        Test("an_fsync_that_checkpoints_writes_earlier_journaled_blocks_home"),
    ),
    (
        Paper::Joj,
        "figure 1: the calls of a transaction; four syncs with a rollback journal, one with a write-ahead log",
        Test("a_transaction_syncs_once_with_a_write_ahead_log_and_four_times_with_a_rollback_journal"),
    ),
    (
        Paper::Joj,
        "section 3.1: nine small writes of 2,576 bytes are 45,056 bytes of log",
        Test("nine_small_writes_take_two_blocks_of_log_at_most_and_eleven_as_whole_blocks"),
    ),
    (
        Paper::Joj,
        "section 2.1: what is deleted before it goes home never does",
        Test("what_dies_in_the_log_is_never_written_home"),
    ),
    (
        Paper::Joj,
        "section 2.2: no revoke records, a flush when a file's mode changes",
        Explains("docs/design/data.md, \"adaptive\": Quire revokes instead"),
    ),
    (Paper::Joj, "section 2.2: which journal suits which log", Claims("section 2.2", &["joj-sqlite", "joj-mounts"])),
    (Paper::Joj, "figure 2: 12 SQLite cases on a tablet's eMMC", Claims("figure 2", &["joj-sqlite"])),
    (Paper::Joj, "figure 3: the same on an Intel 311 SSD", Claims("figure 3", &["joj-sqlite"])),
    (Paper::Joj, "the 24 cases of figures 2 and 3 together", Claims("section 3.1", &["joj-sqlite", "joj-mounts"])),
    (
        Paper::Joj,
        "figure 4: full protection, the database's alone, none",
        Claims("figure 4", &["joj-sqlite", "joj-mounts"]),
    ),
    (
        Paper::Djfs,
        "journaling without flushes, deltas, group checkpointing by regions",
        Claims("table 1", &["djfs-table1"]),
    ),
    (
        Paper::Djfs,
        "section V.3: regions go home in the background, one at a time, and commits wait when all are full",
        Test("regions_go_home_and_commits_stall_when_all_are_full"),
    ),
    (Paper::Djfs, "implicit checkpoint when a timer expires", Test("what_is_old_in_the_log_goes_home")),
    (
        Paper::Djfs,
        "an fsync of ext4 with full journaling writes earlier journaled buffers home",
        Test("an_fsync_of_full_journaling_writes_earlier_journaled_blocks_home"),
    ),
    (Paper::Djfs, "figure 1: jbd2's commit", Explains("docs/format.md")),
    (Paper::Djfs, "figure 2: what consistency costs ext4", Claims("figure 2", &["djfs-randwrite", "djfs-mounts"])),
    (
        Paper::Djfs,
        "figure 3: external journaling, journaling in NVRAM",
        Claims("figure 3", &["djfs-randwrite", "djfs-mounts"]),
    ),
    (Paper::Djfs, "figures 4, 5: commit, regions", Explains("docs/format.md, invariants V1 to V6")),
    (Paper::Djfs, "figure 6: recovery", Test("any_log_in_nvram_is_refused_or_replayed")),
    (
        Paper::Djfs,
        "figure 7: random writes by frequency of fsync",
        Claims("figure 7", &["djfs-randwrite", "djfs-mounts"]),
    ),
    (
        Paper::Djfs,
        "table 1: flushes, FUA and journal writes of TPC-C",
        Claims("table 1", &["djfs-table1", "djfs-table1-mounts"]),
    ),
    (Paper::Djfs, "figure 8: TPC-C on SQLite", Claims("figure 8", &["djfs-tpcc", "djfs-table1-mounts"])),
    (Paper::Djfs, "section V.2: what deltas cost to compute", Claims("section V.2", &["djfs-tpcc"])),
    (Paper::Djfs, "figure 9: TPC-C by the NVRAM's latency", Claims("figure 9", &["djfs-tpcc", "djfs-table1-mounts"])),
    (Paper::Djfs, "figure 10: what base images cost the page cache", Claims("figure 10", &["djfs-figure10"])),
    (Paper::Okeanos, "wasteless journaling: blocks that several writes share", Claims("figure 4a", &["okeanos-slow"])),
    (
        Paper::Okeanos,
        "selective journaling by write size; update sequences",
        Test("a_sequence_goes_the_way_of_its_first_update"),
    ),
    (
        Paper::Okeanos,
        "sections 3, 4: updates are atomic, a prefix of them is recovered",
        Test("journaled_requests_are_a_prefix"),
    ),
    (
        Paper::Okeanos,
        "figure 1: journal traffic by request size",
        Claims("figure 1", &["okeanos-requests", "okeanos-streams-mounts"]),
    ),
    (Paper::Okeanos, "figures 2 and 3: the write path, the journal head", Explains("docs/design.md, docs/format.md")),
    (
        Paper::Okeanos,
        "figure 4a: journal traffic of slow streams",
        Claims("figure 4a", &["okeanos-slow", "okeanos-mounts"]),
    ),
    (Paper::Okeanos, "figure 4b: traffic to the file system", Claims("figure 4b", &["okeanos-slow", "okeanos-mounts"])),
    (Paper::Okeanos, "recovery time", Claims("section 6, recovery", &["okeanos-slow", "okeanos-streams-mounts"])),
    (Paper::Okeanos, "figure 4c: latency of fast streams", Claims("figure 4c", &["okeanos-fast", "okeanos-mounts"])),
    (
        Paper::Okeanos,
        "asynchronous writes",
        Claims("section 6, asynchronous", &["okeanos-asynchronous", "okeanos-streams-mounts"]),
    ),
    (Paper::Okeanos, "write-home of journaled buffers by age", Test("what_is_old_in_the_log_goes_home")),
    (Paper::Okeanos, "write-home for lack of journal space", Test("a_full_log_is_checkpointed_and_wraps")),
    (
        Paper::Okeanos,
        "section 1, contribution (iv): up to an order of magnitude in several metrics",
        Claims("section 1", &["okeanos-slow"]),
    ),
    (
        Paper::Okeanos,
        "figures 4c and 4d: NILFS2 beside ext3",
        Not(
            "the kernel here has no NILFS2; `okeanos-fast`, `okeanos-readback` and `okeanos-streams-mounts` draw the side of \
             ext3's modes",
        ),
    ),
    (Paper::Okeanos, "figure 5a: Postmark", Claims("figure 5a", &["okeanos-postmark", "okeanos-applications-mounts"])),
    (
        Paper::Okeanos,
        "figure 5b: the transaction log of InnoDB",
        Claims("figure 5b", &["okeanos-innodb", "okeanos-applications-mounts"]),
    ),
    (
        Paper::Okeanos,
        "figure 5c: PVFS2 with an MPI-IO benchmark, throughput (the data server alone)",
        Claims("figure 5c", &["okeanos-server", "okeanos-applications-mounts"]),
    ),
    (
        Paper::Okeanos,
        "figure 5c: the same with a parallel file system: bricks of GlusterFS for PVFS2",
        Elsewhere(
            Verdict::Differs,
            "2 held, 2 differs",
            "docs/clusters.md, \"GlusterFS' bricks and figure 5c\": `clusters.py bench gluster --device hdd15k`",
        ),
    ),
    (
        Paper::Okeanos,
        "figure 5d: the same, bytes (the data server alone)",
        Claims("figure 5d", &["okeanos-server", "okeanos-applications-mounts"]),
    ),
    (
        Paper::Rfj,
        "journal what is overwritten, write what is new in place first",
        Test("what_is_overwritten_is_journaled_and_what_is_new_is_not"),
    ),
    (
        Paper::Rfj,
        "figures 1, 3, 4, 6, 7: journaling, its modes, the architecture",
        Explains("docs/design/data.md, \"Routes\""),
    ),
    (
        Paper::Rfj,
        "section 3.2: ordering-enforced writeback",
        Explains("docs/design/data.md, \"overwrite\": the data comes before the operation, and nobody polls"),
    ),
    (
        Paper::Rfj,
        "section 4.2: as reliable as journal mode",
        Less(
            "overwriting_requests_are_whole",
            "each write request is whole or absent after a crash, as with journal mode, which keeps the order of requests, \
             too; RFJ writes new blocks in place before the commit that names them, also in the paper",
        ),
    ),
    (Paper::Rfj, "section 4.2: existing tools recover it", Test("every_format_replays_as_e2fsck_does")),
    (
        Paper::Rfj,
        "a commit of ext3's ordered mode flushes other files' data, one of writeback does not",
        Test("a_commit_of_ordered_writes_other_files_data_and_one_of_writeback_leaves_it_until_it_is_old"),
    ),
    (
        Paper::Rfj,
        "figure 2: the modes of ext3 under a file server",
        Claims("figure 2", &["rfj-fileserver", "rfj-mounts"]),
    ),
    (
        Paper::Rfj,
        "figure 5: writes that are new, and that overwrite",
        Not("no package has the traces of Microsoft's servers; `quire-lab classify TRACE` answers it for them"),
    ),
    (Paper::Rfj, "figure 8: RFJ against the modes of ext3", Claims("figure 8", &["rfj-fileserver", "rfj-mounts"])),
    (Paper::Rfj, "section 4.3: with many overwrites", Claims("section 4.3", &["rfj-fileserver", "rfj-mounts"])),
];

/// A row of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub paper: Paper,
    pub what: &'static str,
    pub by: String,
    /// `None`: nothing is measured.
    pub verdict: Option<Verdict>,
    pub result: String,
    /// Where it is told, or why it is not possible.
    pub why: String,
    /// Why claims are not as the paper has them; each cause once.
    pub causes: Vec<String>,
}

impl Row {
    /// Why, with the numbers that the causes have in this list of all causes.
    #[must_use]
    pub fn why_by_number(&self, all: &[String]) -> String {
        let numbers = self.causes.iter().filter_map(|c| Some(all.iter().position(|a| a == c)? + 1));
        let numbers: Vec<String> = numbers.map(|n| n.to_string()).collect();
        match &numbers[..] {
            [] => self.why.clone(),
            [one] => format!("cause {one}"),
            _ => format!("causes {}", numbers.join(", ")),
        }
    }
}

/// The causes that these rows name, each once, in the order of the rows.
#[must_use]
pub fn causes(rows: &[Row]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for cause in rows.iter().flat_map(|r| &r.causes) {
        if !all.contains(cause) {
            all.push(cause.clone());
        }
    }
    all
}

/// What became of each item, by these runs.
#[must_use]
pub fn rows(runs: &[Run]) -> Vec<Row> {
    ITEMS.iter().map(|(paper, what, by)| row(*paper, what, by, runs)).collect()
}

fn row(paper: Paper, what: &'static str, by: &By, runs: &[Run]) -> Row {
    let fixed = |by: String, verdict, result: &str, why: &str| Row {
        paper,
        what,
        by,
        verdict,
        result: result.into(),
        why: why.into(),
        causes: Vec::new(),
    };
    match by {
        Test(name) => fixed(format!("test `{name}`"), Some(Verdict::Held), "held", ""),
        Less(name, what) => fixed(format!("test `{name}`"), Some(Verdict::Differs), "differs", what),
        Elsewhere(verdict, result, place) => fixed("measured apart".into(), Some(*verdict), result, place),
        Explains(place) => fixed(String::new(), None, "explains", place),
        Not(why) => fixed(String::new(), None, "not possible here", why),
        Claims(at, studies) => {
            let (verdict, result, causes) = judged(at, studies, runs);
            Row { causes, ..fixed(names(studies), verdict, &result, "") }
        }
    }
}

fn names(studies: &[&str]) -> String {
    studies.iter().map(|s| format!("`{s}`")).collect::<Vec<_>>().join(", ")
}

/// Whether a claim's place is this one, or within it.
fn is_at(place: &str, at: &str) -> bool {
    place == at || place.starts_with(&format!("{at},"))
}

/// The worst verdict of the claims, how many have which, and the causes.
fn judged(at: &str, studies: &[&str], runs: &[Run]) -> (Option<Verdict>, String, Vec<String>) {
    let of = runs.iter().filter(|r| studies.contains(&&*r.study)).flat_map(|r| &r.findings.claims);
    let claims: Vec<_> = of.filter(|c| is_at(&c.at, at)).collect();
    let Some(worst) = claims.iter().map(|c| c.verdict).max_by_key(|v| *v as u8) else {
        return (None, "not run".into(), Vec::new());
    };
    let counted = [Verdict::Held, Verdict::Differs, Verdict::NotHeld]
        .map(|v| (v, claims.iter().filter(|c| c.verdict == v).count()));
    let counts = counted.iter().filter(|(_, n)| *n > 0).map(|(v, n)| format!("{n} {v}"));
    let result = if counted[0].1 == claims.len() {
        format!("held ({} of {0})", claims.len())
    } else {
        counts.collect::<Vec<_>>().join(", ")
    };
    let mut causes: Vec<String> = Vec::new();
    for cause in claims.iter().filter_map(|c| c.shared_cause()) {
        if !causes.contains(&cause) {
            causes.push(cause);
        }
    }
    (Some(worst), result, causes)
}

/// The table as scripts/report.py reads it, and beside it (`NAME-causes.json`) the one of causes.
///
/// # Errors
/// A file cannot be written.
pub fn save(runs: &[Run], path: &Path) -> Result<()> {
    let [items, causes] = tables(runs)?;
    std::fs::write(path, items)?;
    std::fs::write(beside(path), causes).map_err(Into::into)
}

/// Where the table of causes is, beside that of items.
fn beside(path: &Path) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{stem}-causes.json"))
}

/// The tables of items and of causes.
fn tables(runs: &[Run]) -> Result<[String; 2]> {
    let date = runs.iter().map(|r| r.date.clone()).max().unwrap_or_default();
    let rows = rows(runs);
    let causes = causes(&rows);
    let items: Vec<[String; 5]> = rows
        .into_iter()
        .map(|r| {
            [r.paper.name().into(), r.what.into(), r.by.clone(), r.result.clone(), in_a_cell(&r.why_by_number(&causes))]
        })
        .collect();
    let numbered: Vec<[String; 2]> =
        causes.iter().enumerate().map(|(n, cause)| [(n + 1).to_string(), in_a_cell(cause)]).collect();
    let command = "quire-lab run [--full] --results bench/results/lab STUDY\nquire-lab report --results bench/results/lab --to target/lab/report.html --table bench/results/papers.json\nscripts/report.py";
    let items = json!({
        "title": "The papers, item by item",
        "note": "Numbers: `quire-lab report` makes them of bench/results/lab, where each result has its own effort and command.",
        "date": date,
        "command": command,
        "columns": ["what", "study", "result", "why"],
        "rows": items,
    });
    let causes = json!({
        "title": "Causes",
        "note": "The report has each claim with its figure, the paper's, and the figures that the cause explains.",
        "date": date,
        "command": command,
        "columns": ["cause"],
        "rows": numbered,
    });
    Ok([serde_json::to_string_pretty(&items)? + "\n", serde_json::to_string_pretty(&causes)? + "\n"])
}

/// A text without what would end a cell of a table.
fn in_a_cell(text: &str) -> String {
    text.replace('|', "/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Claim, Effort, Findings, Host};

    fn run(study: &str, claims: Vec<Claim>) -> Run {
        Run {
            study: study.into(),
            paper: Paper::Rfj,
            title: String::new(),
            effort: Effort::Quick,
            date: "2026-01-01".into(),
            seconds: 0,
            command: String::new(),
            build: String::new(),
            host: Host::here(),
            findings: Findings { claims, ..Findings::default() },
        }
    }

    #[test]
    fn an_item_is_as_good_as_the_worst_of_its_claims_and_says_why() {
        let claim = |at: &str, m| Claim::at_least(at, "faster", "a / b", m, 1.0);
        let runs = [
            run(
                "s",
                vec![
                    claim("figure 2", 2.0),
                    claim("figure 2, b", 0.5).because_within(0.5..=0.5, "so"),
                    claim("figure 22", 0.1),
                ],
            ),
            run("t", vec![claim("figure 2", 0.1)]),
        ];
        assert_eq!(
            judged("figure 2", &["s"], &runs),
            (Some(Verdict::Differs), "1 held, 1 differs".into(), vec!["so".into()])
        );
        assert_eq!(judged("figure 2", &["s", "t"], &runs).0, Some(Verdict::NotHeld));
        assert_eq!(judged("figure 9", &["s"], &runs), (None, "not run".into(), Vec::new()));
    }

    #[test]
    fn claims_with_the_same_cause_share_its_number() {
        let differs = |at: &str, m, why| Claim::at_least(at, "faster", "a / b", m, 1.0).because_within(0.1..=0.9, why);
        let runs = [run("s", vec![differs("a", 0.5, "one"), differs("b", 0.4, "two"), differs("c", 0.05, "two")])];
        let items = [("a", &["s"][..]), ("b", &["s"]), ("a", &["s"]), ("c", &["s"])];
        let rows: Vec<Row> = items.iter().map(|(at, by)| row(Paper::Rfj, "x", &Claims(at, by), &runs)).collect();
        let all = causes(&rows);
        assert_eq!(all[..2], ["one", "two"]);
        assert_eq!(all[2..], ["the known cause does not explain so much: two (which explains 0.100 to 0.900)"]);
        let why: Vec<String> = rows.iter().map(|r| r.why_by_number(&all)).collect();
        assert_eq!(why, ["cause 1", "cause 2", "cause 1", "cause 3"]);
    }

    #[test]
    fn the_committed_table_is_made_of_the_committed_results() {
        let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/results");
        let runs = Run::load_all(&results.join("lab")).unwrap();
        let path = results.join("papers.json");
        let committed = [&path, &beside(&path)].map(|path| std::fs::read_to_string(path).unwrap());
        assert!(
            tables(&runs).unwrap() == committed,
            "run: quire-lab report --results bench/results/lab --table bench/results/papers.json"
        );
    }

    #[test]
    fn every_claim_of_a_paper_is_in_a_row_of_it() {
        let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/results/lab");
        let is_in = |run: &Run, claim: &Claim, by: &By| match by {
            Claims(at, studies) => studies.contains(&&*run.study) && is_at(&claim.at, at),
            _ => false,
        };
        let runs = Run::load_all(&results).unwrap();
        for run in runs.iter().filter(|run| run.paper != Paper::Quire) {
            for claim in run.findings.claims.iter().filter(|claim| !claim.ours) {
                let rows = ITEMS.iter().filter(|(paper, _, by)| *paper == run.paper && is_in(run, claim, by));
                assert!(rows.count() > 0, "{}: {claim} is in no row", run.study);
            }
        }
    }

    /// Whether a source below `dir` defines a function of this name.
    fn there(dir: &Path, name: &str) -> bool {
        std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).any(|path| {
            let is_source = path.extension().is_some_and(|e| e == "rs");
            let defines = || std::fs::read_to_string(&path).unwrap().contains(&format!("fn {name}("));
            if path.is_dir() { there(&path, name) } else { is_source && defines() }
        })
    }

    #[test]
    fn tests_that_are_named_exist() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for (_, what, by) in ITEMS {
            if let Test(name) | Less(name, _) = by {
                let found = there(&crates, name);
                assert!(found, "{what}: no test {name}");
            }
        }
    }
}
