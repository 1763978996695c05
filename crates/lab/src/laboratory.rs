//! All studies by name, and the runner: it runs those that are asked for, one after the other, and writes each one's
//! results as a file. A study whose file is there already, of the same program and effort, is not run again, so a run
//! that was broken off goes on.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, anyhow};

use crate::cmd::is_root;
use crate::mounter::Mounter;
use crate::results::{Effort, Findings, Host, Paper, Run, Verdict, build, date};
use crate::studies::mounts::KERNEL;
use crate::studies::{self, fileserver, isolation, latency, okeanos, randwrite, sqlite, table1};
use crate::work::tpcc::{Grain, Journal, Scale};
use quire_testkit::Model;

/// A study that can be asked for.
pub struct Study {
    pub name: &'static str,
    pub paper: Paper,
    pub title: &'static str,
    /// It mounts, which root may do.
    pub mounts: bool,
    /// About how long it takes with each effort, in seconds.
    pub seconds: [u64; 3],
    run: fn(Effort) -> Result<Findings>,
}

const fn study(
    name: &'static str,
    paper: Paper,
    title: &'static str,
    seconds: [u64; 3],
    run: fn(Effort) -> Result<Findings>,
) -> Study {
    Study { name, paper, title, mounts: false, seconds, run }
}

const fn mounted(study: Study) -> Study {
    Study { mounts: true, ..study }
}

/// All of them, in the order of the report.
pub const STUDIES: [Study; 24] = [
    study("joj-sqlite", Paper::Joj, "SQLite's transactions on the paper's two devices, as models", [30, 120, 900], joj),
    mounted(study(
        "joj-mounts",
        Paper::Joj,
        "The same on mounts, beside the kernel's ext4",
        [20, 200, 2400],
        joj_mounts,
    )),
    study("djfs-randwrite", Paper::Djfs, "Random writes", [20, 160, 2400], randwrite::study),
    study("djfs-table1", Paper::Djfs, "What TPC-C on SQLite makes a journal do", [10, 40, 900], |e| {
        table1::study(&tpcc(e, &[Journal::Persist, Journal::Wal]))
    }),
    study("djfs-figure8", Paper::Djfs, "TPC-C on SQLite", [30, 160, 1800], |e| {
        studies::tpcc::figure8(&tpcc(e, &[Journal::Persist, Journal::Wal]), true)
    }),
    study("djfs-figure9", Paper::Djfs, "TPC-C by the latency of NVRAM", [30, 160, 1200], |e| {
        studies::tpcc::figure9(&tpcc(e, &[Journal::Persist]))
    }),
    study("djfs-figure10", Paper::Djfs, "Base images in the page cache", [20, 60, 900], |e| {
        studies::figure10::study(&tpcc(e, &[Journal::Persist, Journal::Wal]))
    }),
    mounted(study(
        "djfs-mounts",
        Paper::Djfs,
        "Random writes on mounts",
        [50, 310, 1000],
        studies::mounts::randwrite::study,
    )),
    mounted(study(
        "djfs-table1-mounts",
        Paper::Djfs,
        "TPC-C on SQLite on mounts",
        [50, 310, 1700],
        studies::mounts::database::study,
    )),
    study("okeanos-requests", Paper::Okeanos, "Journal traffic by request size", [15, 60, 300], okeanos::requests),
    study("okeanos-slow", Paper::Okeanos, "Streams of 1 Kbit/s", [20, 60, 240], okeanos::slow),
    study("okeanos-fast", Paper::Okeanos, "Streams of 1 Mbit/s", [20, 60, 300], okeanos::fast),
    study("okeanos-asynchronous", Paper::Okeanos, "Streams without O_SYNC", [15, 20, 60], okeanos::asynchronous),
    study(
        "okeanos-readback",
        Paper::Okeanos,
        "Reads of what streams of 1 Mbit/s wrote",
        [10, 60, 300],
        okeanos::readback::study,
    ),
    study("okeanos-postmark", Paper::Okeanos, "Postmark", [20, 120, 600], okeanos::postmark::study),
    study("okeanos-innodb", Paper::Okeanos, "InnoDB's log, replayed", [20, 190, 300], okeanos::log_replay::study),
    study(
        "okeanos-server",
        Paper::Okeanos,
        "A parallel file system's data server",
        [10, 60, 300],
        okeanos::server::study,
    ),
    mounted(study(
        "okeanos-mounts",
        Paper::Okeanos,
        "Streams on mounts",
        [50, 310, 1700],
        studies::mounts::streams::study,
    )),
    mounted(study(
        "okeanos-applications-mounts",
        Paper::Okeanos,
        "Postmark, InnoDB's log and a data server on mounts",
        [60, 380, 1700],
        studies::mounts::applications::study,
    )),
    study("rfj-fileserver", Paper::Rfj, "A file server", [90, 320, 1200], fileserver::study),
    mounted(study(
        "rfj-mounts",
        Paper::Rfj,
        "A file server on mounts",
        [65, 350, 1700],
        studies::mounts::fileserver::study,
    )),
    study("isolation", Paper::Quire, "One program's fsync beside another's stream", [40, 60, 300], isolated),
    mounted(study("isolation-mounts", Paper::Quire, "The same on mounts", [50, 280, 1300], isolated_mounts)),
    mounted(study("latency", Paper::Quire, "One small durable write", [20, 40, 80], |e| {
        let memory = PathBuf::from("/dev/shm");
        latency::study(&latency::Plan { rounds: e.pick(1, 3, 5), writes: e.pick(2000, 5000, 5000), memory })
    })),
];

/// JoJ's series, without a journal first.
const PROFILES: [&str; 6] = [
    "profile=ext4-none",
    sqlite::STOCK_ORDERED,
    sqlite::STOCK_JOURNAL,
    "profile=single-io",
    "profile=joj",
    "profile=auto",
];

fn joj(effort: Effort) -> Result<Findings> {
    sqlite::study(&sqlite::Plan {
        kinds: vec!["emmc".parse()?, "intel311".parse()?],
        mounters: PROFILES.map(Mounter::quire).into(),
        rounds: effort.pick(1, 3, 5),
        small: effort.pick(300, 2000, 10_000),
        large: effort.pick(5000, 10_000, 10_000),
        figure4: true,
        on_library: true,
        work: std::env::temp_dir(),
    })
}

/// What tells the kernel's series of [`joj_mounts`] from Quire's beside their journals.
const KERNEL_COMMITS: &str = "kernel ordered, journal and fast_commit commit with a barrier, ext4's default: a flush \
     before the commit block, and that block with FUA (two flushes on the modelled device); the paper mounts with \
     journal_async_commit, which saves the first; stock ordered, stock journal, single-io, joj and auto commit by a \
     checksum, with one flush, and djfs in NVRAM, with none: factors of these by a kernel series have that difference in \
     them, factors by a stock series do not";

/// The kernel's ext4 and Quire on one modelled device, and on the machine's own disk.
fn joj_mounts(effort: Effort) -> Result<Findings> {
    let quire = PROFILES.into_iter().chain(["profile=djfs"]).map(|p| Ok(Mounter::quire(p)));
    let kernel = KERNEL.map(str::parse);
    let mut f = sqlite::study(&sqlite::Plan {
        kinds: effort.pick(
            vec!["ssd".parse()?],
            vec!["own".parse()?, "ssd".parse()?],
            vec!["own".parse()?, "ssd".parse()?],
        ),
        mounters: quire.chain(kernel).collect::<Result<_>>()?,
        rounds: effort.pick(1, 3, 5),
        small: effort.pick(30, 100, 10_000),
        large: effort.pick(1000, 3000, 10_000),
        figure4: effort != Effort::Quick,
        on_library: false,
        work: std::env::temp_dir(),
    })?;
    f.assume(KERNEL_COMMITS);
    Ok(f)
}

/// Of TPC-C, as in the paper; what each holds goes by the effort.
const WAREHOUSES: u32 = 10;

fn tpcc(effort: Effort, journals: &[Journal]) -> studies::tpcc::Plan {
    studies::tpcc::Plan {
        scale: Scale { page: 1024, ..Scale::divided(WAREHOUSES, effort.pick(20, 5, 1)) },
        grain: Grain::Statement,
        transactions: effort.pick(600, 4000, 20_000),
        on_devices: effort.pick(60, 300, 500),
        journal_mib: effort.pick(32, 128, 128),
        journals: journals.to_vec(),
    }
}

fn isolated(effort: Effort) -> Result<Findings> {
    let time = Duration::from_secs(effort.pick(4, 10, 60));
    let mut f = Findings::default();
    for (device, rate) in [("ssd", 200_000_000), ("hdd7200", 50_000_000)] {
        let model = Model::named(device).with_context(|| device)?;
        f.add(isolation::study(device, model, isolation::Work { rate, time })?);
    }
    Ok(f)
}

fn isolated_mounts(effort: Effort) -> Result<Findings> {
    let work = isolation::Work { rate: 200_000_000, time: Duration::from_secs(effort.pick(2, 4, 20)) };
    let rounds = effort.pick(1, 3, 3);
    let mounters: Vec<Mounter> = KERNEL
        .into_iter()
        .chain(["quire", "quire:tune=host", "quire:profile=database"])
        .map(str::parse)
        .collect::<Result<_>>()?;
    isolation::study_mounts(&"ssd".parse()?, &mounters, work, rounds, &std::env::temp_dir())
}

/// What is to be run.
pub struct Plan {
    /// By name or paper; nothing is all.
    pub wanted: Vec<String>,
    pub effort: Effort,
    /// Where results go.
    pub results: PathBuf,
    /// Also what is there already.
    pub again: bool,
}

/// How studies are run.
#[derive(clap::Args)]
pub struct How {
    /// All studies in ten minutes
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// The papers' sizes
    #[arg(long)]
    full: bool,
    /// Also what is there already
    #[arg(long)]
    again: bool,
    /// Where results go; default: target/lab/quick, normal or full
    #[arg(long)]
    results: Option<PathBuf>,
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
        let not_held = run(&Plan { wanted, effort, results, again: self.again })?;
        println!("{not_held} claims not held");
        Ok(())
    }
}

/// Those that are wanted.
///
/// # Errors
/// There is none of a name.
pub fn chosen(wanted: &[String]) -> Result<Vec<&'static Study>> {
    let fits = |s: &Study, name: &str| s.name == name || s.paper.name().eq_ignore_ascii_case(name);
    if let Some(odd) = wanted.iter().find(|name| !STUDIES.iter().any(|s| fits(s, name))) {
        let names: Vec<&str> = STUDIES.iter().map(|s| s.name).collect();
        return Err(anyhow!("{odd}: want joj, djfs, okeanos, rfj, quire or one of {}", names.join(", ")));
    }
    Ok(STUDIES.iter().filter(|s| wanted.is_empty() || wanted.iter().any(|name| fits(s, name))).collect())
}

/// Runs them; returns how many claims are not held. What fails does not keep the others from running.
///
/// # Errors
/// A name is wrong, results cannot be written, or a study failed.
pub fn run(plan: &Plan) -> Result<usize> {
    let (mut failed, mut not_held) = (Vec::new(), 0);
    let build = build();
    let (mut due, mut done) = (Vec::new(), Vec::new());
    for s in chosen(&plan.wanted)? {
        let known = Run::load(&plan.results.join(format!("{}.json", s.name))).ok();
        let known = known.filter(|r| !plan.again && r.build == build && r.effort == plan.effort);
        match known {
            Some(run) => done.push(run),
            None if s.mounts && !is_root() => println!("skipped {}: mounts need root", s.name),
            None => due.push(s),
        }
    }
    done.iter().for_each(|r| println!("{}: there already", r.study));
    let expected = |s: &Study| plan.effort.pick(s.seconds[0], s.seconds[1], s.seconds[2]);
    // How much slower this machine is than the one that the times above are of.
    let (mut passed, mut foreseen) = (0.0, 0.0);
    for (n, s) in due.iter().enumerate() {
        let left: u64 = due[n..].iter().map(|s| expected(s)).sum();
        let pace = if foreseen > 0.0 { passed / foreseen } else { 1.0 };
        let minutes = crate::stats::float(left) * pace / 60.0;
        println!("\n=== {} of {}: {} ({}), about {minutes:.0} min left", n + 1, due.len(), s.name, s.title);
        let start = Instant::now();
        match (s.run)(plan.effort) {
            Ok(findings) => {
                println!("{}", findings.text());
                not_held += findings.claims.iter().filter(|c| c.verdict == Verdict::NotHeld).count();
                record(s, plan, &build, start.elapsed(), findings)?;
            }
            Err(e) => {
                println!("failed: {}: {e:#}", s.name);
                failed.push(s.name);
            }
        }
        passed += start.elapsed().as_secs_f64();
        foreseen += crate::stats::float(expected(s));
    }
    anyhow::ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(not_held)
}

fn record(study: &Study, plan: &Plan, build: &str, took: Duration, findings: Findings) -> Result<()> {
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

    #[test]
    fn studies_are_chosen_by_name_and_by_paper_and_every_name_is_one() {
        let names = |wanted: &[&str]| -> Vec<&str> {
            let wanted: Vec<String> = wanted.iter().map(ToString::to_string).collect();
            chosen(&wanted).unwrap().iter().map(|s| s.name).collect()
        };
        assert_eq!(names(&["rfj", "okeanos-slow"]), ["okeanos-slow", "rfj-fileserver", "rfj-mounts"]);
        assert_eq!(names(&[]).len(), STUDIES.len());
        assert!(chosen(&["none".into()]).is_err());
        let mut all = names(&[]);
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), STUDIES.len());
    }

    /// Studies on models alone are the same to the byte, whatever the machine does meanwhile.
    #[test]
    fn two_virtual_runs_give_the_same_bytes() {
        let bytes = || serde_json::to_vec(&okeanos::small().unwrap()).unwrap();
        assert_eq!(bytes(), bytes());
    }

    /// A result that is there is not made again, unless it is another program's or effort's.
    #[test]
    fn a_run_goes_on_where_it_was_broken_off() {
        let dir = tempfile::tempdir().unwrap();
        let study = &STUDIES[0];
        let plan =
            |again| Plan { wanted: vec![study.name.into()], effort: Effort::Quick, results: dir.path().into(), again };
        let mut findings = Findings::default();
        findings.assume("as it was");
        record(study, &plan(false), &build(), Duration::ZERO, findings).unwrap();
        run(&plan(false)).unwrap();
        let kept = Run::load(&dir.path().join(format!("{}.json", study.name))).unwrap();
        assert_eq!(kept.findings.assumptions, ["as it was"]);
    }
}
