//! The acceptance tests: what Quire must show, judged by e2fsck, debugfs, pjdfstest, fsx and the kernel.
//!
//! A test is a name and a function; it passes, fails with an error, or is skipped with the reason. Each works in a
//! directory of its own, which goes when it is over (kept on failure with `--keep`). Every random choice follows from
//! `--seed`. Several run at once in processes of their own (`several.rs`).

pub mod agree;
pub mod bad_input;
pub mod big;
pub mod commands;
pub mod context;
pub mod crash;
pub mod full;
pub mod images;
pub mod journals;
pub mod judges;
pub mod limit;
pub mod memory;
pub mod pages;
pub mod posix;
pub mod powercut;
mod several;
pub mod shapes;
pub mod suites;
mod tally;
pub mod trees;
pub mod user;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

pub use self::context::{Context, Outcome};
use self::limit::Limit;
pub use self::tally::Tally;
use crate::mounter::{Mounter, Who, describe_tools};

type Run = fn(&Context) -> Result<Outcome>;

/// A test, and what it is run on when nothing else is said.
struct Test {
    name: &'static str,
    on: &'static [&'static str],
    run: Run,
}

/// A test in its short form takes half a minute at most where nothing else runs, one in its full size some minutes.
const LIMIT: Duration = Duration::from_secs(600);
const LIMIT_FULL: Duration = Duration::from_secs(7200);

/// Tests that run at once unless told otherwise, at most: each has a daemon and images of up to 1 GiB.
const MOST_AT_ONCE: usize = 4;

const ONCE: &[&str] = &["quire"];
/// Each route, and requests that come by io_uring.
const ROUTES_AND_RINGS: &[&str] = &[
    "quire:data=ordered",
    "quire:data=journal",
    "quire:data=writeback",
    "quire:data=none",
    "quire:data=overwrite",
    "quire:data=auto",
    "quire:transport=uring",
];
/// Of these, the routes.
const ROUTES: &[&str] = ROUTES_AND_RINGS.split_at(6).0;
const TRANSPORTS: &[&str] = &["quire", "quire:transport=uring"];
const JOURNALED: &[&str] = &["quire:data=ordered", "quire:data=journal", "quire:data=auto"];
const PAGES: &[&str] = &["quire:profile=database", "kernel:data=ordered"];
const KILLED: &[&str] = &[
    "quire:data=ordered",
    "quire:data=journal",
    "quire:data=ordered,writethrough",
    "quire:data=journal,writethrough",
    "quire:data=auto",
    "quire:data=auto,writethrough",
];

const TESTS: &[Test] = &[
    Test { name: "bad-input", on: ONCE, run: bad_input::run },
    Test { name: "images", on: ONCE, run: images::run },
    Test { name: "commands", on: ONCE, run: commands::run },
    Test { name: "user-mount", on: ONCE, run: user::run },
    Test { name: "posix", on: JOURNALED, run: posix::run },
    Test { name: "agree", on: ONCE, run: agree::run },
    Test { name: "full-disk", on: ROUTES, run: full::run },
    Test { name: "shapes", on: JOURNALED, run: shapes::run },
    Test { name: "tree-to-kernel", on: JOURNALED, run: trees::to_kernel },
    Test { name: "tree-from-kernel", on: ONCE, run: trees::from_kernel },
    Test { name: "journal-corpus", on: ONCE, run: journals::corpus },
    Test { name: "judges", on: ONCE, run: judges::run },
    Test { name: "crash", on: KILLED, run: crash::run },
    Test { name: "powercut", on: JOURNALED, run: powercut::run },
    Test { name: "pages", on: PAGES, run: pages::run },
    Test { name: "memory", on: JOURNALED, run: memory::run },
    Test { name: "fsx-mmap", on: ROUTES_AND_RINGS, run: suites::fsx_mmap },
    Test { name: "fsx-direct", on: ROUTES_AND_RINGS, run: suites::fsx_direct },
    Test { name: "pjdfstest", on: TRANSPORTS, run: suites::pjdfstest },
    Test { name: "big-directory", on: ONCE, run: big::directory },
    Test { name: "big-extents", on: ONCE, run: big::extents },
    Test { name: "big-sparse", on: ONCE, run: big::sparse },
];

impl Test {
    /// The mounters that were asked for: all of them when the test has several of its own, else the first.
    fn mounters(&self, asked: &[Mounter]) -> Result<Vec<Mounter>> {
        if asked.is_empty() {
            return self.on.iter().map(|text| text.parse()).collect();
        }
        Ok(asked[..if self.on.len() > 1 { asked.len() } else { 1 }].to_vec())
    }
}

/// What to run.
#[derive(Debug)]
pub struct Selection {
    /// Tests called so (`crash`, `crash[quire:data=ordered]`), or with a part of the name; all when empty.
    pub only: Vec<String>,
    /// Instead of each test's own.
    pub mounters: Vec<Mounter>,
    pub seed: u64,
    pub full: bool,
    pub keep: bool,
    pub work: PathBuf,
    /// Tests that run at once.
    pub jobs: usize,
}

/// A test on a mounter, with the name that the two have together.
struct Chosen {
    test: &'static Test,
    name: String,
    mounter: Mounter,
}

impl Selection {
    fn chosen(&self) -> Result<Vec<Chosen>> {
        let mut chosen = Vec::new();
        for test in TESTS {
            for mounter in test.mounters(&self.mounters)? {
                let name = format!("{}[{mounter}]", test.name);
                if self.only.is_empty() || self.only.iter().any(|only| named(test, &name, only)) {
                    chosen.push(Chosen { test, name, mounter });
                }
            }
        }
        ensure!(!chosen.is_empty(), "no test has such a name: {}", self.only.join(" "));
        Ok(chosen)
    }

    /// `program`, which is this one, for one test; and its name.
    fn process(&self, program: &Path, chosen: &Chosen) -> (String, Command) {
        let mut command = crate::cmd::command(program);
        command.args(["accept", "--jobs", "1", "--seed", &self.seed.to_string()]);
        command.arg("--work").arg(&self.work);
        command.args(self.full.then_some("--full")).args(self.keep.then_some("--keep"));
        if !self.mounters.is_empty() {
            command.args(["--mounter", &chosen.mounter.to_string()]);
        }
        command.arg(&chosen.name);
        (chosen.name.clone(), command)
    }
}

/// How many run at once where nothing is said: as many as there are CPUs, at most `MOST_AT_ONCE`.
#[must_use]
pub fn default_jobs() -> usize {
    crate::cmd::cpus().min(MOST_AT_ONCE)
}

/// Runs the selection and prints a line for each test, and the tally.
pub fn run(selection: &Selection) -> Result<Tally> {
    println!("seed {}; {}", selection.seed, describe_tools());
    let chosen = selection.chosen()?;
    let mut tally = Tally::default();
    if selection.jobs > 1 && chosen.len() > 1 {
        let program = std::env::current_exe().context("cannot find this program")?;
        tally = several::run(selection.jobs, chosen.iter().map(|one| selection.process(&program, one)).collect())?;
    } else {
        for chosen in &chosen {
            one(chosen, selection, &mut tally)?;
        }
    }
    println!("{tally}");
    Ok(tally)
}

/// Whether `only` means this test: its name, with or without the mounter, or, when no test is called so, a part of it.
fn named(test: &Test, name: &str, only: &str) -> bool {
    test.name == only || name == only || (TESTS.iter().all(|other| other.name != only) && name.contains(only))
}

fn one(Chosen { test, name, mounter }: &Chosen, selection: &Selection, tally: &mut Tally) -> Result<()> {
    let mut dir = tempfile::Builder::new().prefix(&format!("quire-{}-", test.name)).tempdir_in(&selection.work)?;
    open_to_all(dir.path())?;
    let context =
        Context { dir: dir.path().to_owned(), seed: selection.seed, full: selection.full, mounter: mounter.clone() };
    let start = Instant::now();
    let limit = Limit::start(if selection.full { LIMIT_FULL } else { LIMIT }, std::process::id());
    let outcome = match mounter.unavailable() {
        Some(why) if mounter.who != Who::Quire => Ok(Outcome::Skipped(why)),
        Some(why) if why.starts_with("no quire") => Err(anyhow::anyhow!(why)),
        Some(why) => Ok(Outcome::Skipped(why)),
        None => (test.run)(&context),
    };
    let seconds = start.elapsed().as_secs_f32();
    let outcome = match (limit.end(), outcome) {
        (false, outcome) => outcome,
        (true, Ok(_)) => Err(anyhow::anyhow!("it took too long, and its processes were killed")),
        (true, Err(error)) => Err(error.context("it took too long, and its processes were killed")),
    };
    match outcome {
        Ok(Outcome::Passed) => {
            tally.passed += 1;
            println!("ok      {name} ({seconds:.1} s)");
        }
        Ok(Outcome::Skipped(why)) => {
            tally.skipped += 1;
            println!("skipped {name}: {why}");
        }
        Err(error) => {
            tally.failed += 1;
            println!("FAILED  {name} ({seconds:.1} s): {error:#}");
            println!("        again: make accept ONLY='{name}' SEED={}", selection.seed);
            if selection.keep {
                dir.disable_cleanup(true);
                println!("        kept: {}", dir.path().display());
            }
        }
    }
    Ok(())
}

/// Other users must reach the mounts below.
fn open_to_all(dir: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    Ok(std::fs::set_permissions(dir, PermissionsExt::from_mode(0o755))?)
}
