//! Every technique, figure and table of the four papers, and what became of each: by the claims of a study that ran, by
//! a test, or not at all and why. docs/lab.md's tables are made of [`rows`] and [`causes`].

use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::json;

use super::items::By::{self, Claims, Elsewhere, Less, Not, Test};
use super::items::ITEMS;
use crate::results::{Paper, Run, Verdict};

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
        Elsewhere(command, verdict, result, place) => fixed(format!("`{command}`"), Some(*verdict), result, place),
        Not(studies, why) => fixed(names(studies), None, "not possible here", why),
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
    use crate::results::{ABOUT, Claim, Effort, Findings, Host, Program};

    fn run(study: &str, claims: Vec<Claim>) -> Run {
        Run {
            study: study.into(),
            paper: Paper::Rfj,
            title: String::new(),
            effort: Effort::Quick,
            date: "2026-01-01".into(),
            seconds: 0,
            command: String::new(),
            program: Program { build: String::new(), commit: None },
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
    fn every_claim_of_a_paper_is_in_one_row_of_it() {
        let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/results/lab");
        let is_in = |run: &Run, claim: &Claim, by: &By| match by {
            Claims(at, studies) => studies.contains(&&*run.study) && is_at(&claim.at, at),
            _ => false,
        };
        let runs = Run::load_all(&results).unwrap();
        for run in runs.iter().filter(|run| run.paper != Paper::Quire) {
            for claim in run.findings.claims.iter().filter(|claim| !claim.ours) {
                let rows = ITEMS.iter().filter(|(paper, _, by)| *paper == run.paper && is_in(run, claim, by));
                assert_eq!(rows.count(), 1, "{}: {claim} is in one row", run.study);
            }
        }
    }

    /// GlusterFS' bricks at the paper's size of a write, judged as the data server on mounts.
    #[test]
    fn the_row_of_glusterfs_is_what_was_measured_with_writes_of_the_papers_size() {
        let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/results/gluster-hdd15k.json");
        let table: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(results).unwrap()).unwrap();
        assert_eq!(table["command"], super::super::items::GLUSTER);
        let row = table["rows"].as_array().unwrap().iter().find(|row| row[0] == "1 KiB: writes").unwrap();
        let rate = |column: &str| {
            let n = table["columns"].as_array().unwrap().iter().position(|c| c == column).unwrap();
            row[2][n].as_f64().unwrap()
        };
        let rates = ["kernel:ordered", "kernel:journal", "quire:wasteless", "quire:selective"].map(rate);
        let mut claims = crate::studies::mounts::applications::of_rates("figure 5c", rates).to_vec();
        claims.push(Claim::about("section 1", "wasteless doubles it", "", rates[2] / rates[0], (2.0, ABOUT)));
        let runs = [run("gluster", claims)];
        let elsewhere = |of: &str| {
            let row = ITEMS.iter().find(|(_, what, by)| what.starts_with(of) && matches!(by, Elsewhere(..)));
            let Some((_, _, Elsewhere(_, verdict, result, _))) = row else { panic!("no row of {of}") };
            (Some(*verdict), (*result).to_owned())
        };
        for at in ["figure 5c", "section 1"] {
            let (verdict, result, _) = judged(at, &["gluster"], &runs);
            assert_eq!(elsewhere(at), (verdict, result), "{at}");
        }
    }

    /// What the row of contribution (v) says of the data server alone.
    #[test]
    fn wasteless_is_more_than_three_times_as_fast_in_both_studies_of_the_data_server_alone() {
        let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/results/lab");
        let runs = Run::load_all(&results).unwrap();
        for study in ["okeanos-server", "okeanos-applications-mounts"] {
            let claims = runs.iter().filter(|run| run.study == study).flat_map(|run| &run.findings.claims);
            let mut ratios = claims.filter(|c| c.says.contains("almost doubles")).filter_map(|c| c.measured);
            assert!(ratios.next().is_some_and(|ratio| ratio > 3.0), "{study}");
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
