//! The runner: it runs the studies that are asked for, and writes each one's results as a file. A study whose file is
//! there already, of the same program and effort, is not run again, so a run that was broken off goes on.
//!
//! Studies on models alone come to the same results whatever the machine does meanwhile, so several run at once. The
//! others follow one by one ([`Study::runs_alone`]; in quick runs these are those that mount).

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result};

use crate::cmd::is_root;
use crate::laboratory::{Study, chosen};
use crate::results::{Effort, Findings, Host, Run, Verdict, build, date};

/// Studies on models that run at once, at most, unless told otherwise. Each has its modelled disks in memory: two took
/// 1.6 GB with `--quick`.
const MOST_AT_ONCE: usize = 4;

/// What is to be run.
pub struct Plan {
    /// By name or paper; nothing is all.
    pub wanted: Vec<String>,
    pub effort: Effort,
    /// Where results go.
    pub results: PathBuf,
    /// Also what is there already.
    pub again: bool,
    /// Studies on models that run at once; `None`: as many as there are CPUs, at most `MOST_AT_ONCE`.
    pub jobs: Option<usize>,
}

/// How studies are run.
#[derive(clap::Args)]
pub struct How {
    /// All studies in ten minutes
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// The papers' sizes; what a study has less of, its assumptions say
    #[arg(long)]
    full: bool,
    /// Also what is there already
    #[arg(long)]
    again: bool,
    /// Where results go; default: target/lab/quick, normal or full
    #[arg(long)]
    results: Option<PathBuf>,
    /// Studies on models alone that run at once; default: as many as there are CPUs, at most 4
    #[arg(short, long)]
    jobs: Option<usize>,
}

impl How {
    /// Runs these and says how many claims are not held.
    ///
    /// # Errors
    /// As [`run`].
    pub fn run(self, wanted: Vec<String>) -> Result<()> {
        let effort = if self.quick {
            Effort::Quick
        } else if self.full {
            Effort::Full
        } else {
            Effort::Normal
        };
        let place = format!("target/lab/{}", effort.pick("quick", "normal", "full"));
        let results = self.results.unwrap_or_else(|| place.into());
        let not_held = run(&Plan { wanted, effort, results, again: self.again, jobs: self.jobs })?;
        println!("{not_held} claims not held");
        Ok(())
    }
}

/// A run: what is known of its pace, and what came out so far. Whoever holds it prints.
struct Progress<'p> {
    plan: &'p Plan,
    build: String,
    /// All studies that this run does, and how many have begun.
    due: usize,
    begun: usize,
    /// What the studies that are not over were foreseen to take on the machine of [`Study::seconds`]: those of which
    /// some run at once, and the others.
    left: [u64; 2],
    at_once: u64,
    /// What those that are over took, and were foreseen to take.
    passed: f64,
    foreseen: f64,
    failed: Vec<&'static str>,
    not_held: usize,
}

impl Plan {
    /// The seconds that a study is foreseen to take.
    fn expected(&self, study: &Study) -> u64 {
        self.effort.pick(study.seconds[0], study.seconds[1], study.seconds[2])
    }
}

impl Progress<'_> {
    fn begin(&mut self, study: &Study) {
        self.begun += 1;
        let pace = if self.foreseen > 0.0 { self.passed / self.foreseen } else { 1.0 };
        let [models, alone] = self.left;
        let minutes = crate::stats::float(models / self.at_once + alone) * pace / 60.0;
        let Study { name, title, .. } = study;
        println!("\n=== {} of {}: {name} ({title}), about {minutes:.0} min left", self.begun, self.due);
    }

    /// # Errors
    /// The results cannot be written.
    fn end(&mut self, study: &'static Study, took: Duration, outcome: Result<Findings>) -> Result<()> {
        match outcome {
            Ok(findings) => {
                println!("\n--- {} ({} s)\n{}", study.name, took.as_secs(), findings.text());
                self.not_held += findings.claims.iter().filter(|c| c.verdict == Verdict::NotHeld).count();
                record(study, self.plan, &self.build, took, findings)?;
            }
            Err(e) => {
                println!("failed: {}: {e:#}", study.name);
                self.failed.push(study.name);
            }
        }
        self.passed += took.as_secs_f64();
        self.foreseen += crate::stats::float(self.plan.expected(study));
        self.left[usize::from(study.runs_alone(self.plan.effort))] -= self.plan.expected(study);
        Ok(())
    }
}

/// Runs them; returns how many claims are not held. What fails does not keep the others from running.
///
/// # Errors
/// A name is wrong, results cannot be written, or a study failed.
pub fn run(plan: &Plan) -> Result<usize> {
    let build = build();
    let mut due: Vec<&'static Study> = Vec::new();
    for s in chosen(&plan.wanted)? {
        let known = Run::load(&plan.results.join(format!("{}.json", s.name))).ok();
        if known.is_some_and(|r| !plan.again && r.build == build && r.effort == plan.effort) {
            println!("{}: there already", s.name);
        } else if s.mounts && !is_root() {
            println!("skipped {}: mounts need root", s.name);
        } else {
            due.push(s);
        }
    }
    run_these(plan, build, due)
}

/// Runs studies of a build: first those of which some run at once.
fn run_these(plan: &Plan, build: String, due: Vec<&'static Study>) -> Result<usize> {
    let (alone, mut models): (Vec<_>, Vec<_>) = due.into_iter().partition(|s| s.runs_alone(plan.effort));
    // The longest first: it is not the one that the others have ended before.
    models.sort_by_key(|s| std::cmp::Reverse(plan.expected(s)));
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let at_once = plan.jobs.unwrap_or(cpus.min(MOST_AT_ONCE)).max(1);
    let mut progress = Progress {
        plan,
        build,
        due: models.len() + alone.len(),
        begun: 0,
        left: [0; 2],
        at_once: at_once.try_into()?,
        passed: 0.0,
        foreseen: 0.0,
        failed: Vec::new(),
        not_held: 0,
    };
    for s in models.iter().chain(&alone) {
        progress.left[usize::from(s.runs_alone(plan.effort))] += plan.expected(s);
    }
    let progress = Mutex::new(progress);
    run_at_once(&models, at_once, &progress)?;
    run_at_once(&alone, 1, &progress)?;
    let Progress { failed, not_held, .. } = progress.into_inner().expect("no study panicked");
    anyhow::ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(not_held)
}

/// Runs studies in this order, so many at once.
fn run_at_once(studies: &[&'static Study], at_once: usize, progress: &Mutex<Progress<'_>>) -> Result<()> {
    let next = AtomicUsize::new(0);
    let locked = || progress.lock().expect("no study panicked");
    let work = || -> Result<()> {
        while let Some(study) = studies.get(next.fetch_add(1, Ordering::Relaxed)) {
            let effort = {
                let mut p = locked();
                p.begin(study);
                p.plan.effort
            };
            let start = Instant::now();
            let outcome = (study.run)(effort);
            locked().end(study, start.elapsed(), outcome)?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..at_once.min(studies.len())).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|w| w.join().expect("no study panicked"))
    })
}

fn record(study: &Study, plan: &Plan, build: &str, took: Duration, mut findings: Findings) -> Result<()> {
    if findings.figures.iter().any(|f| f.title.contains("(calibration)")) {
        findings
            .assume("calibrations are of less than the study: fewer rows, transactions, writes or seconds, one round");
    }
    let effort = plan.effort.pick(" --quick", "", " --full");
    let run = Run {
        study: study.name.into(),
        paper: study.paper,
        title: study.title.into(),
        effort: plan.effort,
        date: date(SystemTime::now()),
        seconds: took.as_secs(),
        command: format!("quire-lab run {}{effort}", study.name),
        build: build.into(),
        host: Host::here(),
        findings,
    };
    run.save(&plan.results)
}

/// Reads the results of a directory and writes the page, and the table of documents if one is wanted.
///
/// # Errors
/// There are no results, or a file cannot be written.
pub fn report(results: &Path, page: &Path, table: Option<&Path>) -> Result<()> {
    let runs = Run::load_all(results)?;
    anyhow::ensure!(!runs.is_empty(), "no results in {}: quire-lab run", results.display());
    if let Some(dir) = page.parent() {
        std::fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
    }
    std::fs::write(page, crate::report::page(&runs)?).with_context(|| page.display().to_string())?;
    println!("{}: {} studies", page.display(), runs.len());
    table.map_or(Ok(()), |table| crate::report::papers::save(&runs, table))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::laboratory::STUDIES;
    use crate::results::Paper;

    /// A result that is there is not made again, unless it is another program's or effort's.
    #[test]
    fn a_run_goes_on_where_it_was_broken_off() {
        let dir = tempfile::tempdir().unwrap();
        let study = &STUDIES[0];
        let plan = |again| Plan {
            wanted: vec![study.name.into()],
            effort: Effort::Quick,
            results: dir.path().into(),
            again,
            jobs: None,
        };
        let mut findings = Findings::default();
        findings.assume("as it was");
        record(study, &plan(false), &build(), Duration::ZERO, findings).unwrap();
        run(&plan(false)).unwrap();
        let kept = Run::load(&dir.path().join(format!("{}.json", study.name))).unwrap();
        assert_eq!(kept.findings.assumptions, ["as it was"]);
    }

    /// Models that are there, and whether they ran at once.
    static MODELS: AtomicUsize = AtomicUsize::new(0);

    /// Waits for another model.
    fn model(_: Effort) -> Result<Findings> {
        MODELS.fetch_add(1, Ordering::SeqCst);
        let since = Instant::now();
        while MODELS.load(Ordering::SeqCst) < 2 {
            anyhow::ensure!(since.elapsed() < Duration::from_secs(60), "the other does not run beside");
            std::thread::yield_now();
        }
        Ok(Findings::default())
    }

    const fn of(name: &'static str, computes: bool, run: fn(Effort) -> Result<Findings>) -> Study {
        Study { name, paper: Paper::Quire, title: "a study", mounts: false, computes, seconds: [1; 3], run }
    }

    static STANDINS: [Study; 4] = [
        of("alone", true, |_| {
            anyhow::ensure!(MODELS.load(Ordering::SeqCst) == 2, "models are first");
            Ok(Findings::default())
        }),
        of("one", false, model),
        of("fails", true, |_| anyhow::bail!("as it must")),
        of("other", false, model),
    ];

    #[test]
    fn models_run_side_by_side_and_the_others_after_them_whatever_fails() {
        let dir = tempfile::tempdir().unwrap();
        let results = dir.path().to_owned();
        let plan = Plan { wanted: Vec::new(), effort: Effort::Normal, results, again: false, jobs: Some(2) };
        let failed = run_these(&plan, "a build".into(), STANDINS.iter().collect()).unwrap_err();
        assert_eq!(failed.to_string(), "failed: fails");
        for name in ["alone", "one", "other"] {
            assert_eq!(Run::load(&dir.path().join(format!("{name}.json"))).unwrap().build, "a build");
        }
    }
}
