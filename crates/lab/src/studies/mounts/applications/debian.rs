//! Debian's own Postmark on mounts (figure 5a), beside the study's, which has the paper's threads and synchronous
//! writes.
//!
//! Debian's program (package 1.53; it calls itself 1.51) has one thread and no synchronous writes. So as many processes
//! run at once as the paper has threads, each in a directory of its own. `chattr +S` on these directories makes each
//! write to their files durable when it returns; creates and deletes wait, too.
//!
//! *Guarantees*: each process made all of its transactions, or there is an error with what it said.
//!
//! *Relies on*: the seed alone decides which files Postmark makes and deletes. Postmark ends early when it has deleted
//! its last file, and exits with 0 in any case. It does not look at what read(2) and write(2) return.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use super::super::super::okeanos::postmark::{LARGEST, SMALLEST};
use super::super::bed::Bed;
use super::claims::of_debians_postmark;
use super::figures::of_postmark;
use super::phases::REQUESTS;
use crate::cmd::{command, have, run_tool, say, text};
use crate::interrupt::Folder;
use crate::mounter::Mounter;
use crate::results::{Effort, Findings};
use crate::rig::Body;
use crate::stage::{Directory, Stage};
use crate::stats::float;

const PROGRAM: &str = "postmark";
/// How a folder begins that is not on a mount.
const FOLDER: &str = "quire-postmark-";

/// What it prints if it made all transactions.
const WHOLE: &str = "seconds of transactions";

/// What it prints of a file that it cannot open or remove, and of a command that it does not know.
const FAILURES: [&str; 2] = ["Error: ", "Eh?"];

/// Seeds that are tried at most. Of a hundred transactions three in ten seeds have files to the end.
const MAX_SEEDS: u64 = 5000;

/// What the processes do.
#[derive(Clone, Copy, Debug)]
struct Work {
    processes: usize,
    /// Of each process at the beginning. Postmark creates none while it has twice as many.
    files: u64,
    /// Of each process: ten at least, because Postmark divides by a tenth of them.
    transactions: u64,
    /// Bytes of a read and of a write.
    request: usize,
}

impl Work {
    /// The paper's 500 files and 100 threads.
    fn new(effort: Effort, request: usize) -> Self {
        Work { processes: effort.pick(4, 100, 100), files: 5, transactions: effort.pick(10, 15, 100), request }
    }

    /// The text of Postmark's command file. It names no location: files are in the directory where Postmark starts,
    /// because it keeps 80 bytes of a file's path and does not check their number.
    fn commands(self, seed: u64) -> String {
        let Work { files, transactions, request, .. } = self;
        format!(
            "set number {files}\nset size {SMALLEST} {LARGEST}\nset transactions {transactions}\nset read {request}\n\
             set write {request}\nset buffering false\nset seed {seed}\nrun\nquit\n"
        )
    }
}

/// A process that is yet to run.
#[derive(Debug)]
struct Process {
    dir: PathBuf,
    commands: PathBuf,
}

impl Process {
    /// That runs in `dir`; its command file is made in `scripts`.
    fn new(dir: PathBuf, scripts: &Path, work: Work, seed: u64) -> Result<Self> {
        let commands = scripts.join(format!("seed-{seed}"));
        std::fs::write(&commands, work.commands(seed))?;
        Ok(Process { dir, commands })
    }

    /// Runs it to its end; returns what it said.
    fn run(&self) -> Result<String> {
        let said = say(command(PROGRAM).arg(&self.commands).current_dir(&self.dir))?;
        let is_failed = said.code != 0 || FAILURES.iter().any(|words| said.text.contains(words));
        ensure!(!is_failed, "{PROGRAM} in {} exited with {}:\n{}", self.dir.display(), said.code, said.text);
        Ok(said.text)
    }

    /// The same, with all of its transactions.
    fn run_whole(&self) -> Result<()> {
        let said = self.run()?;
        ensure!(said.contains(WHOLE), "{PROGRAM} in {} ended early:\n{said}", self.dir.display());
        Ok(())
    }
}

/// The first seeds with which a process does not run out of files, one for each process.
fn seeds(work: Work) -> Result<Vec<u64>> {
    let (dir, scripts) = (Folder::temporary(FOLDER)?, Folder::temporary(FOLDER)?);
    let mut found = Vec::new();
    for seed in 1..=MAX_SEEDS {
        let process = Process::new(dir.path().to_owned(), scripts.path(), work, seed)?;
        if process.run()?.contains(WHOLE) {
            found.push(seed);
        }
        if found.len() == work.processes {
            return Ok(found);
        }
    }
    bail!("{PROGRAM} runs out of files with all but {} of {MAX_SEEDS} seeds: {work:?}", found.len())
}

/// The processes, whose directories are on a mount and whose command files are not.
struct Ready {
    stage: Directory,
    processes: Vec<Process>,
    work: Work,
    _scripts: Folder,
}

impl Ready {
    /// Makes a directory for each process.
    fn make(dir: &Path, work: Work, seeds: &[u64]) -> Result<Self> {
        let stage = Directory::make(dir.join(format!("requests-{}", work.request)))?;
        let scripts = Folder::temporary(FOLDER)?;
        let process = |seed: &u64| {
            let own = stage.path().join(seed.to_string());
            std::fs::create_dir(&own)?;
            Process::new(own, scripts.path(), work, *seed)
        };
        let processes = seeds.iter().map(process).collect::<Result<_>>()?;
        Ok(Ready { stage, processes, work, _scripts: scripts })
    }

    /// From now on each create, write and delete in the directories is durable when its call returns.
    fn synchronous(self) -> Result<Self> {
        let dirs = self.processes.iter().map(|process| text(&process.dir));
        run_tool("chattr", ["+S"].into_iter().chain(dirs)).context("synchronous directories")?;
        Ok(self)
    }

    /// Runs all at once; returns their transactions a second.
    fn run(&self) -> Result<f64> {
        let start = self.stage.now();
        let bodies = self.processes.iter().map(|process| Box::new(move || process.run_whole()) as Body<'_, Result<()>>);
        self.stage.run(bodies.collect())?;
        let transactions = self.work.transactions * self.processes.len() as u64;
        Ok(float(transactions) / (self.stage.now() - start).as_secs_f64())
    }
}

/// Measures it in one round, on a file system of its own; adds its figure and claims.
pub(super) fn add(f: &mut Findings, bed: &Bed, mounters: &[Mounter], effort: Effort) -> Result<()> {
    if !have(PROGRAM) {
        f.skipped.push("Debian's postmark is not installed (scripts/setup.sh --lab installs it)".into());
        return Ok(());
    }
    let works = REQUESTS.map(|request| Work::new(effort, request));
    let seeds = seeds(works[0])?;
    let ready = |dir: &Path, work| Ready::make(dir, work, &seeds)?.synchronous();
    let rounds = bed.rounds_of_ready(1, mounters, &works, ready, |_, ready: Ready| ready.run())?;
    let title = format!("Debian's Postmark, {} processes", works[0].processes);
    f.figures.push(of_postmark("5a-debian", &title, &rounds, [0, 1]));
    f.claims.extend(of_debians_postmark(&rounds, [0, 1]));
    assume_program(f, works[0], seeds.last().copied().unwrap_or_default());
    Ok(())
}

fn assume_program(f: &mut Findings, Work { processes, files, transactions, .. }: Work, last_seed: u64) {
    let [small, page] = REQUESTS;
    f.assume(format!(
        "Debian's postmark: one round, without a spread; {processes} processes at once, because it has no threads, \
         each with {files} files of {SMALLEST} to {LARGEST} bytes in a directory of its own and {transactions} \
         transactions (the paper: 100 threads, 500 files, 10,000 transactions); requests of {small} and of {page} B \
         without a buffer (set buffering false)"
    ));
    f.assume(
        "Debian's postmark has no synchronous writes, so the directories are synchronous (chattr +S), and new files \
         inherit that: each write waits, and creates and deletes wait, too, as they do not in the study's own \
         Postmark; reads of such files on Quire's mounts go past the kernel's page cache",
    );
    f.assume(
        "Debian's postmark: the rate is all transactions of all processes by the time from the first start to the \
         last end, in which each process also starts, makes its first files and removes those that are left",
    );
    f.assume(format!(
        "Debian's postmark ends early when it has deleted its last file, and does not say after how many \
         transactions: the processes have the {processes} of the first {last_seed} seeds with which that does not \
         happen; a process that has {} files creates none",
        2 * files
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Work = Work { processes: 2, files: 5, transactions: 10, request: 1024 };

    #[test]
    fn postmark_is_told_what_each_process_does() {
        let told = "set number 5\nset size 500 10000\nset transactions 10\nset read 1024\nset write 1024\n\
                    set buffering false\nset seed 7\nrun\nquit\n";
        assert_eq!(SMALL.commands(7), told);
        for effort in [Effort::Quick, Effort::Normal, Effort::Full] {
            let work = Work::new(effort, 4096);
            assert!(work.transactions >= 10 && work.files > 0, "{work:?}");
        }
        let full = Work::new(Effort::Full, 4096);
        assert_eq!((full.processes as u64 * full.transactions, full.processes as u64 * full.files), (10_000, 500));
    }

    #[test]
    fn processes_make_all_transactions_and_leave_no_file() {
        if !have(PROGRAM) {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let seeds = seeds(SMALL).unwrap();
        assert_eq!(seeds.len(), 2);
        let ready = Ready::make(dir.path(), SMALL, &seeds).unwrap();
        assert!(ready.run().unwrap() > 0.0);
        for process in &ready.processes {
            assert_eq!(std::fs::read_dir(&process.dir).unwrap().count(), 0, "{process:?}");
        }
    }

    #[test]
    fn a_process_that_fails_or_runs_out_of_files_is_an_error_with_what_it_said() {
        if !have(PROGRAM) {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let run = |commands: &str| {
            let file = dir.path().join("commands");
            std::fs::write(&file, commands).unwrap();
            Process { dir: dir.path().to_owned(), commands: file }.run_whole().unwrap_err().to_string()
        };
        let out = run("set number 1\nset transactions 1000\nset bias create 0\nrun\nquit\n");
        assert!(out.contains("ended early") && out.contains("out of files!"), "{out}");
        let refused = run("set nothing\nquit\n");
        assert!(refused.contains("Eh?"), "{refused}");
        let nowhere = run("set location /nowhere\nset number 1\nset transactions 10\nset bias create 10\nrun\nquit\n");
        assert!(nowhere.contains("Error: cannot open '/nowhere/1'"), "{nowhere}");
    }
}
