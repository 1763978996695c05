//! Killed at random moments, nothing lost: the bank, the storm and the appenders run on a mount, the file system is
//! stopped dead, and then three recoveries (Quire's, e2fsck's and the kernel's) work on copies of what it left. They
//! must agree byte by byte (a log of Quire's own e2fsck and the kernel refuse, and Quire recovers first), e2fsck must
//! call each result clean, and everything that was acknowledged must be there.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use super::context::{Context, Outcome};
use crate::cmd::{is_root, quire};
use crate::image::Image;
use crate::mounter::{Mounter, Who};
use crate::work::{append, bank, storm};
use quire_testkit::rng::Rng;

const BANKERS: u64 = 2;
const STORMS: u64 = 2;
const APPENDERS: u64 = 2;
const ROUNDS_SHORT: u64 = 5;
const ROUNDS_FULL: u64 = 50;

/// One round after the other, each with a fresh image.
pub fn run(context: &Context) -> Result<Outcome> {
    let rounds = if context.full { ROUNDS_FULL } else { ROUNDS_SHORT };
    let mut total = Acknowledged::default();
    for round in 0..rounds {
        let seed = Rng::from_parts(&[context.seed, round]).bits();
        let got = one(&context.dir, &context.mounter, seed).with_context(|| {
            format!(
                "round {round}; this round again: quire-lab crash --mounter '{}' --round-seed {seed}",
                context.mounter
            )
        })?;
        total.transfers += got.transfers;
        total.steps += got.steps;
        total.bytes += got.bytes;
    }
    println!(
        "        {rounds} kills: {} transfers, {} steps, {} bytes acknowledged, all there",
        total.transfers, total.steps, total.bytes
    );
    ensure!(
        total.transfers > 0 && total.steps > 0 && total.bytes > 0,
        "a workload got nothing done: the test is empty"
    );
    Ok(Outcome::Passed)
}

/// What was acknowledged, and found.
#[derive(Debug, Default, Clone, Copy)]
pub struct Acknowledged {
    pub transfers: usize,
    pub steps: u64,
    pub bytes: u64,
}

/// A round: mount, work, kill, recover, check.
pub fn one(dir: &Path, mounter: &Mounter, seed: u64) -> Result<Acknowledged> {
    let mut rng = Rng::from_parts(&[seed, 8]);
    let (logs, mount) = (dir.join("logs"), dir.join("mnt"));
    for old in [&logs, &mount] {
        if old.exists() {
            fs::remove_dir_all(old)?;
        }
    }
    fs::create_dir_all(&logs)?;
    let block = ["1024", "4096", "4096"][rng.index(3)];
    let image = Image::make(&dir.join("crash.img"), 192 << 20, &["-b", block, "-J", "size=8"])?;
    let journal = if rng.one_in(2) { bank::Journal::Wal } else { bank::Journal::Delete };

    let mut mounted = mounter.mount(image.path(), &mount)?;
    let db = mount.join("bank.db");
    bank::create(&db, journal)?;
    let mut workers = start(&mount, &logs, seed)?;
    sleep(Duration::from_millis(100 + rng.below(1200)));
    // What a worker says after the kill means nothing (SQLite sees half of its files); before it, everything.
    let healthy = workers.iter_mut().try_for_each(|worker| still_working(worker, &logs));
    mounted.kill()?;
    let ended: Vec<Result<()>> = workers.into_iter().map(finish).collect();
    mounted.detach()?;
    healthy?;
    ended.into_iter().collect::<Result<()>>()?;
    recover_and_check(&image, mounter, &mount, &logs, seed)
        .with_context(|| format!("SQLite in {journal:?} mode, blocks of {block}"))
}

struct Worker {
    name: String,
    process: Child,
}

fn start(mount: &Path, logs: &Path, seed: u64) -> Result<Vec<Worker>> {
    let mut workers = Vec::new();
    let kinds = [("bank", BANKERS), ("storm", STORMS), ("append", APPENDERS)];
    for (kind, count) in kinds {
        for worker in 0..count {
            let name = format!("{kind}-{worker}");
            let errors = fs::File::create(logs.join(&name).with_extension("err"))?;
            let process = Command::new(std::env::current_exe()?)
                .args(["work", kind, "--worker", &worker.to_string(), "--seed", &seed.to_string(), "--seconds", "60"])
                .arg("--dir")
                .arg(mount)
                .arg("--log")
                .arg(logs)
                .env("RUST_BACKTRACE", "0")
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(errors)
                .spawn()?;
            workers.push(Worker { name, process });
        }
    }
    Ok(workers)
}

fn still_working(worker: &mut Worker, logs: &Path) -> Result<()> {
    if let Some(status) = worker.process.try_wait()? {
        let said = fs::read_to_string(logs.join(&worker.name).with_extension("err"))?;
        bail!("{} failed while the mount was alive ({status}): {said}", worker.name);
    }
    Ok(())
}

/// A worker ends by itself when its mount is dead. One that hangs is killed and reported.
fn finish(mut worker: Worker) -> Result<()> {
    const LIMIT: Duration = Duration::from_secs(40);
    if !crate::cmd::wait_until(LIMIT, || worker.process.try_wait().is_ok_and(|status| status.is_some())) {
        worker.process.kill()?;
        worker.process.wait()?;
        bail!("{} still hung {LIMIT:?} after the mount was killed", worker.name);
    }
    Ok(())
}

fn recover_and_check(image: &Image, mounter: &Mounter, mount: &Path, logs: &Path, seed: u64) -> Result<Acknowledged> {
    let by_e2fsck = image.copy("by-e2fsck.img")?;
    let quires_log = image.holds_quires_log()?;
    let only_replayed = if quires_log {
        ensure!(by_e2fsck.replay_with_e2fsck().is_err(), "e2fsck took a log that it cannot read");
        ensure!(by_e2fsck.differing_blocks(image, &[])?.is_empty(), "e2fsck changed an image that it refuses");
        false
    } else {
        by_e2fsck.replay_with_e2fsck().context("e2fsck recovers")?
    };
    let mut found = Acknowledged::default();

    if quire().is_ok() {
        let replayed = image.copy("replayed.img")?;
        replayed.recover_with_quire(&["--journal-only"])?;
        let differ = if only_replayed { replayed.differing_blocks(&by_e2fsck, &[])? } else { Vec::new() };
        ensure!(
            differ.is_empty(),
            "quire recover --journal-only and e2fsck -E journal_only differ in blocks {differ:?}"
        );

        let by_quire = image.copy("by-quire.img")?;
        by_quire.recover_with_quire(&[])?;
        by_quire.check_clean().context("after quire recover")?;
        let reader = if mounter.who == Who::Quire { mounter.clone() } else { Mounter::quire("") };
        found = check_on(&by_quire, &reader, mount, logs, seed).context("recovered by Quire, read by Quire")?;
    }
    if is_root() {
        let by_kernel = image.copy("by-kernel.img")?;
        if quires_log {
            by_kernel.recover_with_quire(&[])?;
        }
        found = check_on(&by_kernel, &Mounter::kernel(""), mount, logs, seed)
            .context("recovered and read by the kernel")?;
    }
    Ok(found)
}

/// Mounts (which recovers what needs it), checks all that was acknowledged, unmounts, asks e2fsck.
fn check_on(image: &Image, mounter: &Mounter, mount: &Path, logs: &Path, seed: u64) -> Result<Acknowledged> {
    let mounted = mounter.mount(image.path(), mount)?;
    let transfers = bank::check(&mount.join("bank.db"), logs, BANKERS)?.acknowledged;
    let mut found = Acknowledged { transfers, ..Acknowledged::default() };
    for worker in 0..STORMS {
        found.steps += storm::check(mount, logs, worker, seed)?;
    }
    for worker in 0..APPENDERS {
        found.bytes += append::check(mount, logs, worker, seed)?;
    }
    mounted.unmount()?;
    image.check_clean()?;
    Ok(found)
}
