//! Where a run is, how fast it goes, and what came out so far.
//!
//! *Guarantees*: the time that is left counts what running studies have had of theirs, at the pace of those that are
//! over. Whoever holds it prints.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::plan::Plan;
use crate::laboratory::Study;
use crate::results::{Findings, Program, Verdict};
use crate::stats::float;

/// What is known of a run.
pub(super) struct Progress<'p> {
    pub(super) plan: &'p Plan,
    pub(super) program: Program,
    /// All studies that this run does, and how many have begun.
    due: usize,
    begun: usize,
    /// Those that run, and since when.
    running: Vec<(&'static Study, Instant)>,
    /// What the studies that have not begun are foreseen to take on the machine of [`Study::seconds`]: those of which
    /// some run at once, and the others.
    left: [u64; 2],
    at_once: f64,
    /// What those that are over took, and were foreseen to take.
    passed: f64,
    foreseen: f64,
    failed: Vec<&'static str>,
    not_held: usize,
}

impl<'p> Progress<'p> {
    /// Of a run of these studies, of which models run so many at once.
    pub(super) fn new(
        plan: &'p Plan,
        program: Program,
        due: impl IntoIterator<Item = &'static Study>,
        at_once: usize,
    ) -> Self {
        let at_once = float(at_once as u64);
        let (running, failed) = (Vec::new(), Vec::new());
        let mut progress = Progress {
            plan,
            program,
            due: 0,
            begun: 0,
            running,
            left: [0; 2],
            at_once,
            passed: 0.0,
            foreseen: 0.0,
            failed,
            not_held: 0,
        };
        for study in due {
            progress.due += 1;
            *progress.left_of(study) += plan.expected(study);
        }
        progress
    }

    fn left_of(&mut self, study: &Study) -> &mut u64 {
        &mut self.left[usize::from(study.runs_alone(self.plan.effort))]
    }

    /// How many times as long as foreseen studies take here.
    fn pace(&self) -> f64 {
        if self.foreseen > 0.0 { self.passed / self.foreseen } else { 1.0 }
    }

    /// Of a running study, what is left of what it is foreseen to take at this pace, in seconds.
    fn rest(&self, study: &Study, since: Duration) -> f64 {
        (float(self.plan.expected(study)) * self.pace() - since.as_secs_f64()).max(0.0)
    }

    /// Minutes until the end.
    fn minutes(&self) -> f64 {
        let [models, alone] = self.left.map(|seconds| float(seconds) * self.pace());
        let rest = |is_alone: bool| -> f64 {
            let of = self.running.iter().filter(|(s, _)| s.runs_alone(self.plan.effort) == is_alone);
            of.map(|(study, since)| self.rest(study, since.elapsed())).sum()
        };
        ((models + rest(false)) / self.at_once + alone + rest(true)) / 60.0
    }

    /// A study begins.
    pub(super) fn begin(&mut self, study: &'static Study) {
        self.begun += 1;
        *self.left_of(study) -= self.plan.expected(study);
        self.running.push((study, Instant::now()));
        let (Study { name, title, .. }, minutes) = (study, self.minutes());
        println!("\n=== {} of {}: {name} ({title}), about {minutes:.0} min left", self.begun, self.due);
    }

    /// A line about those that run.
    pub(super) fn still(&self) -> String {
        let of = |(study, since): &(&Study, Instant)| {
            let about = float(self.plan.expected(study)) * self.pace();
            format!("{}: {} s of about {about:.0}", study.name, since.elapsed().as_secs())
        };
        let running: Vec<String> = self.running.iter().map(of).collect();
        format!("... {}, about {:.0} min left", running.join("; "), self.minutes())
    }

    /// A study is over; returns what it found, if it did not fail.
    pub(super) fn end(&mut self, study: &'static Study, took: Duration, of: Result<Findings>) -> Option<Findings> {
        self.passed += took.as_secs_f64();
        self.foreseen += float(self.plan.expected(study));
        self.running.retain(|(other, _)| other.name != study.name);
        match of {
            Ok(findings) => {
                println!("\n--- {} ({} s)\n{}", study.name, took.as_secs(), findings.text());
                self.not_held += findings.claims.iter().filter(|c| c.verdict == Verdict::NotHeld).count();
                Some(findings)
            }
            Err(e) => {
                println!("failed: {}: {e:#}", study.name);
                self.failed.push(study.name);
                None
            }
        }
    }

    /// How many claims are not held.
    ///
    /// # Errors
    /// A study failed.
    pub(super) fn result(self) -> Result<usize> {
        anyhow::ensure!(self.failed.is_empty(), "failed: {}", self.failed.join(", "));
        Ok(self.not_held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Effort, Paper};

    const fn of(name: &'static str, mounts: bool) -> Study {
        let run = |_| Ok(Findings::default());
        Study { name, paper: Paper::Quire, title: "a study", mounts, computes: false, seconds: [600; 3], run }
    }

    static STUDIES: [Study; 3] = [of("one", false), of("other", false), of("mounts", true)];

    #[test]
    fn the_time_that_is_left_goes_by_the_pace_of_what_is_over_and_by_what_runs() {
        let plan = Plan {
            wanted: Vec::new(),
            effort: Effort::Normal,
            results: std::path::PathBuf::new(),
            again: false,
            jobs: None,
            twice: false,
        };
        let program = Program { build: String::new(), commit: None };
        let mut progress = Progress::new(&plan, program, STUDIES.iter(), 2);
        let is = |progress: &Progress<'_>, minutes: f64| (progress.minutes() - minutes).abs() < 0.1;
        assert!(is(&progress, 20.0), "two models at once, and one alone: {}", progress.minutes());
        progress.begin(&STUDIES[0]);
        progress.begin(&STUDIES[1]);
        assert!(is(&progress, 20.0), "they have just begun: {}", progress.minutes());
        assert!((progress.rest(&STUDIES[0], Duration::from_secs(450)) - 150.0).abs() < 1e-9);
        assert!(progress.rest(&STUDIES[0], Duration::from_secs(900)) < 1e-9, "it takes longer than foreseen");
        assert!(progress.still().contains("one: 0 s of about 600; other: 0 s of about 600, about 20 min left"));
        progress.end(&STUDIES[0], Duration::from_secs(300), Ok(Findings::default()));
        progress.end(&STUDIES[1], Duration::from_secs(300), Err(anyhow::anyhow!("as it must")));
        assert!(is(&progress, 5.0), "twice as fast: {}", progress.minutes());
        assert_eq!(progress.result().unwrap_err().to_string(), "failed: other");
    }
}
