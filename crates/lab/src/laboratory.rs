//! All studies by name.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};

use crate::interrupt::MEMORY;
use crate::mounter::Mounter;
use crate::results::{Effort, Findings, Paper};
use crate::served::Kind;
use crate::studies::mounts::KERNEL;
use crate::studies::{self, fileserver, isolation, latency, okeanos, randwrite, sqlite, table1};
use crate::work::sqlite::PAGE_OF_2013;
use crate::work::tpcc::{Grain, Journal, Scale};
use quire_testkit::Model;

/// A study that can be asked for.
pub struct Study {
    pub name: &'static str,
    pub paper: Paper,
    pub title: &'static str,
    /// It mounts, which root may do.
    pub mounts: bool,
    /// It runs SQLite in this process, and adds what that computes to the time of the model.
    pub computes: bool,
    /// About how long it takes with each effort, in seconds.
    pub seconds: [u64; 3],
    pub(crate) run: fn(Effort) -> Result<Findings>,
}

const fn study(
    name: &'static str,
    paper: Paper,
    title: &'static str,
    seconds: [u64; 3],
    run: fn(Effort) -> Result<Findings>,
) -> Study {
    Study { name, paper, title, mounts: false, computes: false, seconds, run }
}

const fn computing(study: Study) -> Study {
    Study { computes: true, ..study }
}

const fn mounted(study: Study) -> Study {
    Study { mounts: true, ..study }
}

impl Study {
    /// Its results depend on what else the machine does: no other study runs meanwhile. What a study computes is
    /// counted as its thread's time, which a neighbour makes only a little longer: quick runs take that.
    pub fn runs_alone(&self, effort: Effort) -> bool {
        self.mounts || self.computes && effort != Effort::Quick
    }
}

/// All of them, in the order of the report.
pub const STUDIES: [Study; 24] = [
    computing(study(
        "joj-sqlite",
        Paper::Joj,
        "SQLite's transactions on the paper's two devices, as models",
        [55, 320, 800],
        joj,
    )),
    mounted(study(
        "joj-mounts",
        Paper::Joj,
        "The same on mounts, beside the kernel's ext4",
        [20, 240, 2000],
        joj_mounts,
    )),
    study("djfs-randwrite", Paper::Djfs, "Random writes", [40, 300, 8000], randwrite::study),
    computing(study("djfs-table1", Paper::Djfs, "What TPC-C on SQLite makes a journal do", [25, 260, 950], |e| {
        let plan = tpcc(e, &[Journal::Persist, Journal::Wal]);
        table1::study(&studies::tpcc::Plan { transactions: e.pick(100, 1500, 5000), ..plan })
    })),
    computing(study("djfs-tpcc", Paper::Djfs, "TPC-C on SQLite, and by the latency of NVRAM", [45, 690, 4800], |e| {
        studies::tpcc::study(&tpcc(e, &[Journal::Persist, Journal::Wal]), true)
    })),
    computing(study("djfs-figure10", Paper::Djfs, "Base images in the page cache", [10, 60, 960], |e| {
        studies::figure10::study(&tpcc(e, &[Journal::Persist, Journal::Wal]))
    })),
    mounted(study(
        "djfs-mounts",
        Paper::Djfs,
        "Random writes on mounts",
        [65, 425, 1500],
        studies::mounts::randwrite::study,
    )),
    mounted(study(
        "djfs-table1-mounts",
        Paper::Djfs,
        "TPC-C on SQLite on mounts",
        [75, 860, 4500],
        studies::mounts::database::study,
    )),
    study("okeanos-requests", Paper::Okeanos, "Journal traffic by request size", [15, 60, 290], okeanos::requests),
    study("okeanos-slow", Paper::Okeanos, "Streams of 1 Kbit/s", [45, 150, 600], okeanos::slow),
    study("okeanos-fast", Paper::Okeanos, "Streams of 1 Mbit/s", [20, 60, 185], okeanos::fast),
    study("okeanos-asynchronous", Paper::Okeanos, "Streams without O_SYNC", [20, 40, 105], okeanos::asynchronous),
    study(
        "okeanos-readback",
        Paper::Okeanos,
        "Reads of what streams of 1 Mbit/s wrote",
        [1, 10, 15],
        okeanos::readback::study,
    ),
    study("okeanos-postmark", Paper::Okeanos, "Postmark", [10, 120, 340], okeanos::postmark::study),
    study("okeanos-innodb", Paper::Okeanos, "InnoDB's log, replayed", [12, 500, 3000], okeanos::log_replay::study),
    study(
        "okeanos-server",
        Paper::Okeanos,
        "A parallel file system's data server",
        [10, 60, 225],
        okeanos::server::study,
    ),
    mounted(study(
        "okeanos-mounts",
        Paper::Okeanos,
        "Streams on mounts",
        [65, 650, 2700],
        studies::mounts::streams::study,
    )),
    mounted(study(
        "okeanos-streams-mounts",
        Paper::Okeanos,
        "Requests, reads and recovery on mounts",
        [45, 210, 1800],
        studies::mounts::requests::study,
    )),
    mounted(study(
        "okeanos-applications-mounts",
        Paper::Okeanos,
        "Postmark, InnoDB's log and a data server on mounts",
        [130, 1300, 5200],
        studies::mounts::applications::study,
    )),
    study("rfj-fileserver", Paper::Rfj, "A file server", [40, 400, 4500], fileserver::study),
    mounted(study(
        "rfj-mounts",
        Paper::Rfj,
        "A file server on mounts",
        [75, 2000, 10_000],
        studies::mounts::fileserver::study,
    )),
    study("isolation", Paper::Quire, "One program's fsync beside another's stream", [8, 60, 105], isolated),
    mounted(study("isolation-mounts", Paper::Quire, "The same on mounts", [25, 240, 1300], isolated_mounts)),
    mounted(study("latency", Paper::Quire, "One small durable write", [2, 15, 20], |e| {
        let memory = PathBuf::from(MEMORY);
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

/// Models of the paper's devices.
fn of_paper() -> Result<Vec<Kind>> {
    ["emmc", "intel311"].iter().map(|name| name.parse()).collect()
}

fn joj(effort: Effort) -> Result<Findings> {
    sqlite::study(&sqlite::Plan {
        kinds: of_paper()?,
        mounters: PROFILES.map(Mounter::quire).into(),
        rounds: effort.pick(1, 3, 5),
        small: effort.pick(60, 2000, 10_000),
        large: effort.pick(800, 10_000, 10_000),
        page: PAGE_OF_2013,
        of_paper: Vec::new(),
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
     them, factors by a stock series do not; kernel journal, async has the paper's option, which data=ordered does not \
     take, and is the data journaling of the claims";

/// The kernel's ext4 and Quire on one modelled device, and on the machine's own disk.
fn joj_mounts(effort: Effort) -> Result<Findings> {
    let quire = PROFILES.into_iter().chain(["profile=djfs"]).map(|p| Ok(Mounter::quire(p)));
    let kernel = KERNEL.into_iter().chain([sqlite::KERNEL_JOURNAL]).map(str::parse);
    let mut f = sqlite::study(&sqlite::Plan {
        kinds: effort.pick(
            vec!["ssd".parse()?],
            vec!["own".parse()?, "ssd".parse()?],
            vec!["own".parse()?, "ssd".parse()?],
        ),
        mounters: quire.chain(kernel).collect::<Result<_>>()?,
        rounds: effort.pick(1, 3, 3),
        // The paper's 10,000 rows are as many transactions then, each of three flushes or more: some five hours.
        small: effort.pick(30, 100, 1000),
        large: effort.pick(1000, 3000, 10_000),
        page: PAGE_OF_2013,
        of_paper: effort.pick(Vec::new(), of_paper()?, of_paper()?),
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
        transactions: effort.pick(300, 4000, 20_000),
        on_devices: effort.pick(40, 300, 500),
        rounds: effort.pick(1, 3, 3),
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
    let work = isolation::Work { rate: 200_000_000, time: Duration::from_secs(effort.pick(1, 4, 20)) };
    let rounds = effort.pick(1, 3, 3);
    let mounters: Vec<Mounter> = KERNEL
        .into_iter()
        .chain(["quire", "quire:tune=host", "quire:profile=database"])
        .map(str::parse)
        .collect::<Result<_>>()?;
    isolation::study_mounts(&"ssd".parse()?, &mounters, work, rounds, &std::env::temp_dir())
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

    #[test]
    fn only_what_mounts_runs_alone_in_quick_runs_and_what_computes_does_in_others() {
        let alone = |effort| STUDIES.iter().filter(|s| s.runs_alone(effort)).map(|s| (s.mounts, s.computes)).collect();
        let [quick, normal]: [Vec<_>; 2] = [Effort::Quick, Effort::Normal].map(alone);
        assert!(quick.iter().all(|(mounts, _)| *mounts) && !quick.is_empty());
        assert_eq!(normal.iter().filter(|(mounts, computes)| !mounts && *computes).count(), 4);
        assert_eq!(normal.len(), quick.len() + 4);
    }

    /// Studies on models alone are the same to the byte, whatever the machine does meanwhile.
    #[test]
    fn two_virtual_runs_give_the_same_bytes() {
        let bytes = || serde_json::to_vec(&okeanos::small().unwrap()).unwrap();
        assert_eq!(bytes(), bytes());
    }
}
