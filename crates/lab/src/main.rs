//! `quire-lab`: the laboratory's command. Scripts and the Makefile call it; its help says what each part does.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand, ValueEnum};
use quire_lab::accept::{self, Selection, crash};
use quire_lab::bench;
use quire_lab::heuristics;
use quire_lab::interrupt::{self, Folder};
use quire_lab::mounter::Mounter;
use quire_lab::pages;
use quire_lab::power;
use quire_lab::powercut;
use quire_lab::runner::{self, How};
use quire_lab::served::{Kind as DeviceKind, Served};
use quire_lab::studies::{self, isolation, sqlite, table1};
use quire_lab::tree::{self, Flavour};
use quire_lab::walk;
use quire_lab::work::{append, bank, end, storm, tpcc};
use quire_testkit::Model;

#[derive(Parser)]
#[command(name = "quire-lab", version, about = "Workloads, acceptance tests and benchmarks for Quire")]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Run the acceptance tests; the last line is "N passed, N failed, N skipped"
    Accept {
        /// Only tests whose name contains one of these
        only: Vec<String>,
        /// On these mounters instead of each test's own: kernel, fuse2fs or quire, with :OPTIONS; may be repeated
        #[arg(long)]
        mounter: Vec<Mounter>,
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Everything in its full size
        #[arg(long)]
        full: bool,
        /// Keep the directory of a failed test
        #[arg(long)]
        keep: bool,
        /// Where images are made
        #[arg(long, default_value_os_t = std::env::temp_dir())]
        work: PathBuf,
        /// Tests that run at once; default: as many as there are CPUs, at most 4
        #[arg(short, long)]
        jobs: Option<usize>,
    },
    /// One crash round with the seed that a failure printed
    Crash {
        #[arg(long)]
        mounter: Mounter,
        #[arg(long)]
        round_seed: u64,
        #[arg(long, default_value_t = 1)]
        times: u32,
    },
    /// Applications on a mount over a recording device; crash images cut out of the recording are recovered and checked
    Powercut {
        /// Mount options
        #[arg(long, default_value = "data=ordered")]
        options: String,
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// How long the applications work
        #[arg(long, default_value_t = 0.5)]
        seconds: f64,
        /// How long crash images are looked at
        #[arg(long, default_value_t = 60)]
        check_seconds: u64,
    },
    /// A database on a device that records; pages of crash images are judged by their checksums (root)
    ///
    /// On Quire no page may be bad, on the kernel's ext4 some must be. Example: quire-lab pages --database mariadb
    /// --mounter kernel:data=ordered --cuts 60
    Pages(pages::Plan),
    /// The bank: make it, or check it against the logs of its workers
    Bank {
        what: BankWhat,
        #[arg(long)]
        dir: PathBuf,
        #[arg(long)]
        log: PathBuf,
        #[arg(long, default_value = "wal")]
        journal: bank::Journal,
        #[arg(long, default_value_t = 4)]
        workers: u64,
    },
    /// Be one worker: until the time is over, or the mount dies under it
    Work {
        kind: Kind,
        #[arg(long)]
        dir: PathBuf,
        /// Where acknowledged steps are written, outside of the mount
        #[arg(long)]
        log: PathBuf,
        #[arg(long, default_value_t = 0)]
        worker: u64,
        #[arg(long, default_value_t = 1)]
        seed: u64,
        #[arg(long, default_value_t = 10.0)]
        seconds: f64,
    },
    /// Measure the kernel's ext4, fuse2fs and Quire on one loop device (root); prints a table
    Bench {
        /// Instead of kernel, fuse2fs and three of quire: any of them with :OPTIONS; the first is what the others are
        /// compared with
        #[arg(long)]
        mounter: Vec<Mounter>,
        #[arg(long, default_value_t = 5)]
        rounds: usize,
        #[arg(long, default_value_t = 50_000)]
        files: u64,
        #[arg(long, default_value_t = 1024)]
        mib: u64,
        #[arg(long, default_value_t = 2000)]
        writes: u32,
        #[arg(long, default_value_os_t = std::env::temp_dir())]
        work: PathBuf,
    },
    /// Measure many clients, databases, git and tar on one loop device (root); prints a table
    Clients(bench::clients::Plan),
    /// Measure what each heuristic brings, with it and without (root); prints a table
    Heuristics(heuristics::Plan),
    /// Measure databases that guard their pages on the kernel's ext4, and do not on Quire (root); prints a table
    Databases(bench::databases::Plan),
    /// Measure images without mounting: mke2fs -d, quire create, quire put, tar into a mount (root); prints a table
    Toolbox(bench::toolbox::Plan),
    /// Measure how a mount begins and ends: the kernel, fuse2fs and Quire (root); prints a table
    Start(bench::start::Plan),
    /// TPC-C on SQLite in a directory: load the database, run the mix, or check its consistency
    ///
    /// Example: quire-lab tpcc load --dir mnt --warehouses 10 && quire-lab tpcc run --dir mnt --transactions 10000
    Tpcc {
        what: TpccWhat,
        /// Where tpcc.db is, or shall be
        #[arg(long)]
        dir: PathBuf,
        #[arg(long, default_value = "persist")]
        journal: tpcc::Journal,
        #[arg(long, default_value_t = 1)]
        warehouses: u32,
        /// Customers and items are divided by this
        #[arg(long, default_value_t = 1)]
        divide: u32,
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Bytes of SQLite's pages
        #[arg(long, default_value_t = 4096)]
        page: u32,
        /// What SQLite commits at once
        #[arg(long, default_value = "transaction")]
        grain: tpcc::Grain,
        /// How many transactions to run
        #[arg(long, default_value_t = 1000)]
        transactions: u64,
        /// How long to run, instead
        #[arg(long)]
        seconds: Option<f64>,
    },
    /// JoJ: SQLite's transactions on mounts of a device, own or modelled (root); ratios to the first
    ///
    /// Example: quire-lab sqlite --device ssd --rounds 3 --small 200 --large 3000 --mounter kernel:data=ordered
    /// --mounter quire
    Sqlite(sqlite::Wanted),
    /// Serve a modelled device as DIR/disk, for a loop device on top, until DIR is unmounted (root)
    ///
    /// Example: quire-lab model --device ssd --mib 2048 DIR & losetup --direct-io=on --find --show DIR/disk; the file
    /// DIR/counters tells what was asked of it; 0 in DIR/timed has it take no time, until 1.
    Model {
        dir: PathBuf,
        /// free, ssd, samsung840, intel311, emmc, hdd7200 or hdd15k
        #[arg(long, default_value = "ssd", value_parser = device)]
        device: (String, Model),
        #[arg(long, default_value_t = 2048)]
        mib: u64,
    },
    /// Serve an image file as DIR/disk, a device whose power can be cut, until DIR is unmounted (root)
    ///
    /// The line "cut SEED" on standard input cuts the power: the image file then holds what was flushed and any part
    /// of the rest, and every later operation fails.
    Power {
        image: PathBuf,
        dir: PathBuf,
    },
    /// Isolation: append + fsync beside a stream of new data, in virtual time; with --mounter also on mounts (root)
    ///
    /// Example: quire-lab isolation --device ssd --mounter kernel:data=ordered --mounter quire
    Isolation {
        /// free, ssd, samsung840, intel311, emmc, hdd7200 or hdd15k
        #[arg(long, default_value = "ssd", value_parser = device)]
        device: (String, Model),
        /// What the stream wants, in MB/s
        #[arg(long, default_value_t = 200)]
        rate: u64,
        /// Virtual time
        #[arg(long, default_value_t = 10)]
        seconds: u64,
        /// kernel or quire, with :OPTIONS; may be repeated
        #[arg(long)]
        mounter: Vec<Mounter>,
        #[arg(long, default_value_os_t = std::env::temp_dir())]
        work: PathBuf,
    },
    /// Run studies and write their results as data: all, by name, or of a paper (joj, djfs, okeanos, rfj, quire)
    ///
    /// A study whose result is there, of this program and effort, is not run again. Example: quire-lab run okeanos
    /// --quick
    Run {
        wanted: Vec<String>,
        #[command(flatten)]
        how: How,
    },
    /// JoJ: SQLite's transactions, on models of the paper's devices and on mounts beside the kernel's ext4 (root)
    Joj {
        #[command(flatten)]
        how: How,
    },
    /// DJFS: random writes and TPC-C on SQLite with the journal in NVRAM
    Djfs {
        #[command(flatten)]
        how: How,
    },
    /// Okeanos: journal traffic, latency and recovery of small synchronous appends
    Okeanos {
        #[command(flatten)]
        how: How,
    },
    /// RFJ: a file server
    Rfj {
        #[command(flatten)]
        how: How,
    },
    /// RFJ, figure 5: which blocks of a disk trace's writes are new, and which overwrite (Microsoft's traces at SNIA)
    Classify {
        trace: PathBuf,
    },
    /// Make one HTML page of studies' results
    ///
    /// Example: quire-lab report --results target/lab/normal --to report.html
    Report {
        #[arg(long, default_value = "bench/results/lab")]
        results: PathBuf,
        #[arg(long, default_value = "report.html")]
        to: PathBuf,
        /// Also the table of docs/lab.md, as data
        #[arg(long)]
        table: Option<PathBuf>,
    },
    /// One of DJFS' studies of TPC-C, with all its sizes; prints tables
    ///
    /// Example: quire-lab tpcc-study table1 --warehouses 1 --divide 10 --transactions 1000
    TpccStudy {
        what: TpccFigure,
        #[command(flatten)]
        work: TpccStudy,
        /// figure8: also on tmpfs and on a mount in memory, in real time
        #[arg(long)]
        in_memory: bool,
    },
    /// Make a tree from a seed
    Tree {
        dir: PathBuf,
        #[arg(long, default_value_t = 50_000)]
        files: u64,
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Links, devices, xattrs, odd times and names, too
        #[arg(long)]
        everything: bool,
    },
    /// Compare two trees: types, modes, owners, links, sizes, blocks, times, xattrs, contents
    Diff {
        left: PathBuf,
        right: PathBuf,
    },
    Images(quire_lab::images::Record),
}

#[derive(Clone, Copy, ValueEnum)]
enum TpccFigure {
    Table1,
    /// Figures 8 and 9
    Figure8,
    Figure10,
}

/// TPC-C on modelled devices.
#[derive(clap::Args)]
struct TpccStudy {
    #[arg(long, default_value_t = 10)]
    warehouses: u32,
    /// Customers and items are divided by this
    #[arg(long, default_value_t = 1)]
    divide: u32,
    /// What SQLite commits at once
    #[arg(long, default_value = "transaction")]
    grain: tpcc::Grain,
    /// Bytes of SQLite's pages; 1024 was its default at the time of the paper
    #[arg(long, default_value_t = 1024)]
    page: u32,
    /// SQLite's journal; without it PERSIST and WAL
    #[arg(long)]
    journal: Option<tpcc::Journal>,
    /// How many, where the journal is in NVRAM
    #[arg(long, default_value_t = 20_000)]
    transactions: u64,
    /// How many, where it is on a device; of table 1 as many as in NVRAM
    #[arg(long, default_value_t = 2000)]
    on_devices: u64,
    /// Rounds of what the processor bounds in calibrations; medians are shown
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Size of each journal, in MiB
    #[arg(long, default_value_t = 128)]
    journal_mib: u64,
}

impl TpccStudy {
    fn plan(&self) -> studies::tpcc::Plan {
        let scale = tpcc::Scale { page: self.page, ..tpcc::Scale::divided(self.warehouses, self.divide) };
        let (transactions, on_devices) = (self.transactions, self.on_devices);
        let journals = self.journal.map_or_else(|| vec![tpcc::Journal::Persist, tpcc::Journal::Wal], |j| vec![j]);
        studies::tpcc::Plan {
            scale,
            grain: self.grain,
            transactions,
            on_devices,
            rounds: self.rounds,
            journal_mib: self.journal_mib,
            journals,
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum BankWhat {
    Create,
    Check,
}

#[derive(Clone, Copy, ValueEnum)]
enum TpccWhat {
    Load,
    Run,
    Check,
}

#[derive(Clone, Copy, ValueEnum)]
enum Kind {
    Bank,
    Storm,
    Append,
}

/// A modelled device by its name.
fn device(name: &str) -> Result<(String, Model), String> {
    let model = Model::named(name).ok_or_else(|| format!("want one of {}", Model::NAMES.join(", ")))?;
    Ok((name.to_owned(), model))
}

fn main() -> Result<()> {
    match Arguments::parse().what {
        What::Accept { only, mounter, seed, full, keep, work, jobs } => {
            let jobs = jobs.unwrap_or_else(accept::default_jobs);
            let tally = accept::run(&Selection { only, mounters: mounter, seed, full, keep, work, jobs })?;
            if tally.failed > 0 {
                std::process::exit(1);
            }
        }
        What::Crash { mounter, round_seed, times } => {
            for _ in 0..times {
                let dir = tempfile::tempdir()?;
                println!("{:?}", crash::one(dir.path(), &mounter, round_seed)?);
            }
        }
        What::Powercut { options, seed, seconds, check_seconds } => {
            let dir = Folder::in_memory("quire-powercut-")?;
            let (work, check) = (Duration::from_secs_f64(seconds), Duration::from_secs(check_seconds));
            let plan = powercut::Plan { options, seed, work, check };
            let report = powercut::run(dir.path(), &plan).with_context(|| plan.again())?;
            println!("powercut {}: {report}", plan.options);
        }
        What::Pages(plan) => pages::main(&plan)?,
        What::Bank { what: BankWhat::Create, dir, journal, .. } => bank::create(&dir.join("bank.db"), journal)?,
        What::Bank { what: BankWhat::Check, dir, log, workers, .. } => {
            let report = bank::check(&dir.join("bank.db"), &log, workers)?;
            println!("integrity_check:        ok");
            println!("sum of {} balances:    {} (as it was)", report.accounts, report.sum);
            println!("transfers there:        {}", report.transfers);
            println!("transfers acknowledged: {}, every one of them there", report.acknowledged);
        }
        What::Work { kind, dir, log, worker, seed, seconds } => {
            let limit = Duration::from_secs_f64(seconds);
            end(match kind {
                Kind::Bank => bank::work(&dir.join("bank.db"), &log, worker, seed, limit),
                Kind::Storm => storm::work(&dir, &log, worker, seed, limit),
                Kind::Append => append::work(&dir, &log, worker, seed, limit),
            })?;
        }
        What::Bench { mut mounter, rounds, files, mib, writes, work } => {
            if mounter.is_empty() {
                let all = ["kernel:data=ordered", "fuse2fs", "quire:data=ordered", "quire:data=journal", "quire"];
                mounter = all.iter().map(|text| text.parse()).collect::<Result<_>>()?;
            }
            bench::measure(&bench::Plan { mounters: mounter, rounds, files, mib, writes, work })?;
        }
        What::Databases(plan) => bench::databases::measure(&plan)?,
        What::Clients(plan) => bench::clients::measure(&plan)?,
        What::Heuristics(plan) => heuristics::measure(&plan)?,
        What::Start(plan) => bench::start::measure(&plan)?,
        What::Toolbox(plan) => bench::toolbox::measure(&plan)?,
        What::Tpcc { what, dir, journal, warehouses, divide, seed, page, grain, transactions, seconds } => {
            let db = dir.join("tpcc.db");
            match what {
                TpccWhat::Load => {
                    let scale = tpcc::Scale { page, ..tpcc::Scale::divided(warehouses, divide) };
                    tpcc::load(&db, journal, scale, seed)?;
                }
                TpccWhat::Check => tpcc::check(&db)?,
                TpccWhat::Run => {
                    let time = seconds.map(|seconds| tpcc::Limit::Time(Duration::from_secs_f64(seconds)));
                    let limit = time.unwrap_or(tpcc::Limit::Transactions(transactions));
                    println!("{}", tpcc::run(&db, journal, grain, seed, limit)?);
                }
            }
        }
        What::Sqlite(wanted) => {
            interrupt::handle();
            println!("{}", sqlite::study(&wanted.plan()?)?.text());
        }
        What::Model { dir, device: (_, model), mib } => Served::new(model, mib << 20, &dir)?.wait()?,
        What::Power { image, dir } => power::serve(&image, &dir, std::io::BufReader::new(std::io::stdin()))?,
        What::Isolation { device: (name, model), rate, seconds, mounter, work: dir } => {
            interrupt::handle();
            let work = isolation::Work { rate: rate * 1_000_000, time: Duration::from_secs(seconds) };
            println!("{}", isolation::study(&name, model, work)?.text());
            if !mounter.is_empty() {
                let kind = DeviceKind::Modelled { name, model };
                println!("{}", isolation::study_mounts(&kind, &mounter, work, 1, &dir)?.text());
            }
        }
        What::Run { wanted, how } => how.run(wanted)?,
        What::Joj { how } => how.run(vec!["joj".into()])?,
        What::Djfs { how } => how.run(vec!["djfs".into()])?,
        What::Okeanos { how } => how.run(vec!["okeanos".into()])?,
        What::Rfj { how } => how.run(vec!["rfj".into()])?,
        What::Classify { trace } => {
            println!("{}", quire_lab::trace::classify(std::io::BufReader::new(std::fs::File::open(&trace)?))?);
        }
        What::Report { results, to, table } => runner::report(&results, &to, table.as_deref())?,
        What::TpccStudy { what, work, in_memory } => {
            let plan = work.plan();
            let findings = match what {
                TpccFigure::Table1 => table1::study(&plan)?,
                TpccFigure::Figure8 => studies::tpcc::study(&plan, in_memory)?,
                TpccFigure::Figure10 => studies::figure10::study(&plan)?,
            };
            println!("{}", findings.text());
        }
        What::Images(record) => record.run()?,
        What::Tree { dir, files, seed, everything } => {
            tree::make(&dir, files, seed, if everything { Flavour::Everything } else { Flavour::Plain })?;
        }
        What::Diff { left, right } => {
            let found = walk::differences(&walk::look(&left)?, &walk::look(&right)?, 100);
            anyhow::ensure!(found.is_empty(), "the trees differ:\n{}", found.join("\n"));
            println!("the same");
        }
    }
    Ok(())
}
