//! The runner: it runs the studies that are asked for, and writes each one's results as a file. A study whose file is
//! there already, of the same program and effort, is not run again, so a run that was broken off goes on.
//!
//! Studies on models alone come to the same results whatever the machine does meanwhile, so several run at once. The
//! others follow one by one ([`Study::runs_alone`]; in quick runs these are those that mount). With `--twice` those
//! that run SQLite do so, too.

mod plan;
mod progress;

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result};

use crate::cmd::{cpus, is_root};
use crate::interrupt;
use crate::laboratory::{Study, chosen};
use crate::results::{Effort, Findings, Host, Program, Run, date};
use crate::work::vfs::fix_computing;
pub use plan::Plan;
use progress::Progress;

/// Studies on models that run at once, at most, unless told otherwise. Each has its modelled disks in memory: two took
/// 1.6 GB with `--quick`.
const MOST_AT_ONCE: usize = 4;

/// How often the run says where it is.
const EVERY: Duration = Duration::from_secs(60);

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
    /// Only studies in virtual time, each twice; fails unless both find the same. What SQLite computes costs a fixed
    /// time then, and results of studies that add it are not recorded
    #[arg(long)]
    twice: bool,
}

impl How {
    /// Runs these and says how many claims are not held.
    ///
    /// # Errors
    /// As [`run`].
    pub fn run(self, wanted: Vec<String>) -> Result<()> {
        interrupt::handle();
        let effort = if self.quick {
            Effort::Quick
        } else if self.full {
            Effort::Full
        } else {
            Effort::Normal
        };
        let place = format!("target/lab/{}", effort.pick("quick", "normal", "full"));
        let results = self.results.unwrap_or_else(|| place.into());
        let not_held = run(&Plan { wanted, effort, results, again: self.again, jobs: self.jobs, twice: self.twice })?;
        println!("{not_held} claims not held");
        Ok(())
    }
}

/// Runs them; returns how many claims are not held. What fails does not keep the others from running.
///
/// # Errors
/// A name is wrong, results cannot be written, or a study failed.
pub fn run(plan: &Plan) -> Result<usize> {
    let program = Program::here();
    if plan.twice {
        fix_computing();
    }
    let mut due: Vec<&'static Study> = Vec::new();
    for s in chosen(&plan.wanted)? {
        if plan.twice && s.mounts {
            println!("skipped {}: its times are real", s.name);
            continue;
        }
        let known = Run::load(&plan.results.join(format!("{}.json", s.name))).ok();
        if known
            .is_some_and(|r| !plan.again && !plan.twice && r.program.build == program.build && r.effort == plan.effort)
        {
            println!("{}: there already", s.name);
        } else if s.mounts && !is_root() {
            println!("skipped {}: mounts need root", s.name);
        } else {
            due.push(s);
        }
    }
    run_these(plan, program, due)
}

/// Runs studies by a program: first those of which some run at once.
fn run_these(plan: &Plan, program: Program, due: Vec<&'static Study>) -> Result<usize> {
    // SQLite's random numbers are the process's.
    let is_alone = |s: &&Study| s.runs_alone(plan.effort) || plan.twice && s.computes;
    let (alone, mut models): (Vec<_>, Vec<_>) = due.into_iter().partition(is_alone);
    // The longest first: it is not the one that the others have ended before.
    models.sort_by_key(|s| std::cmp::Reverse(plan.expected(s)));
    let at_once = plan.jobs.unwrap_or(cpus().min(MOST_AT_ONCE)).max(1);
    let progress = Progress::new(plan, program, models.iter().chain(&alone).copied(), at_once);
    let progress = Mutex::new(progress);
    run_at_once(&models, at_once, &progress)?;
    run_at_once(&alone, 1, &progress)?;
    progress.into_inner().expect("no study panicked").result()
}

/// Runs studies in this order, so many at once.
fn run_at_once(studies: &[&'static Study], at_once: usize, progress: &Mutex<Progress<'_>>) -> Result<()> {
    let next = AtomicUsize::new(0);
    let locked = || progress.lock().expect("no study panicked");
    let work = || -> Result<()> {
        while let Some(study) = studies.get(next.fetch_add(1, Ordering::Relaxed)) {
            let (effort, twice) = {
                let mut p = locked();
                p.begin(study);
                (p.plan.effort, p.plan.twice)
            };
            let start = Instant::now();
            let outcome = if twice { the_same(study, effort) } else { (study.run)(effort) };
            let took = start.elapsed();
            let mut p = locked();
            let outcome = p.end(study, took, outcome);
            // What computing costs is fixed there.
            let is_result = !(twice && study.computes);
            if let Some(findings) = outcome.filter(|_| is_result) {
                record(study, p.plan, &p.program, took, findings)?;
            }
        }
        Ok(())
    };
    let (done, is_done) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while is_done.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                println!("{}", locked().still());
            }
        });
        let workers: Vec<_> = (0..at_once.min(studies.len())).map(|_| scope.spawn(work)).collect();
        let ended = workers.into_iter().try_for_each(|w| w.join().expect("no study panicked"));
        drop(done);
        ended
    })
}

/// Runs a study twice.
///
/// # Errors
/// It failed, or the findings are not the same to the byte.
fn the_same(study: &Study, effort: Effort) -> Result<Findings> {
    let once = (study.run)(effort)?;
    let [first, again] = [serde_json::to_string_pretty(&once)?, serde_json::to_string_pretty(&(study.run)(effort)?)?];
    let differing = first.lines().zip(again.lines()).find(|(a, b)| a != b);
    anyhow::ensure!(first == again, "two runs differ: {differing:?}");
    println!("{}: two runs found the same, {} bytes", study.name, first.len());
    Ok(once)
}

fn record(study: &Study, plan: &Plan, program: &Program, took: Duration, mut findings: Findings) -> Result<()> {
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
        program: program.clone(),
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
            twice: false,
        };
        let mut findings = Findings::default();
        findings.assume("as it was");
        // The same program goes on after a commit of other files.
        let program = Program { commit: Some("another".into()), ..Program::here() };
        record(study, &plan(false), &program, Duration::ZERO, findings).unwrap();
        run(&plan(false)).unwrap();
        let kept = Run::load(&dir.path().join(format!("{}.json", study.name))).unwrap();
        assert_eq!((kept.findings.assumptions, kept.program), (vec!["as it was".into()], program));
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
    fn a_study_that_finds_something_else_the_second_time_fails() {
        static RUNS: AtomicUsize = AtomicUsize::new(0);
        let other = of("other", false, |_| {
            let mut findings = Findings::default();
            findings.assume(format!("run {}", RUNS.fetch_add(1, Ordering::SeqCst)));
            Ok(findings)
        });
        let error = the_same(&other, Effort::Quick).unwrap_err().to_string();
        assert!(error.contains("two runs differ") && error.contains("run 0"), "{error}");
        let same = of("same", false, |_| Ok(Findings::default()));
        assert!(the_same(&same, Effort::Quick).is_ok());
    }

    #[test]
    fn models_run_side_by_side_and_the_others_after_them_whatever_fails() {
        let dir = tempfile::tempdir().unwrap();
        let results = dir.path().to_owned();
        let plan =
            Plan { wanted: Vec::new(), effort: Effort::Normal, results, again: false, jobs: Some(2), twice: false };
        let program = Program { build: "a build".into(), commit: Some("a commit".into()) };
        let failed = run_these(&plan, program.clone(), STANDINS.iter().collect()).unwrap_err();
        assert_eq!(failed.to_string(), "failed: fails");
        for name in ["alone", "one", "other"] {
            assert_eq!(Run::load(&dir.path().join(format!("{name}.json"))).unwrap().program, program);
        }
    }
}
