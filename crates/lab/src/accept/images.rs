//! Images that are damaged, odd or foreign, made from seeds and judged beside e2fsck and the kernel: [`crate::images`].

use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};

use super::{Context, Outcome};
use crate::cmd::have;
use crate::images::{KINDS, Tally, judge, kinds, specimen};
use crate::interrupt::MEMORY;
use crate::mounter::Who;

/// Images of a short run and of a full one.
const SHORT: u64 = 40;
const FULL: u64 = 320;
/// Failures that are told before the run ends.
const MAX_FAILURES: usize = 8;

/// The images are made in memory if there is so much: each is copied and flushed a dozen times.
const MIN_MEMORY: u64 = 1 << 30;

fn in_memory() -> Option<&'static Path> {
    let space = rustix::fs::statvfs(MEMORY).ok()?;
    let path = Path::new(MEMORY);
    let writable = tempfile::tempdir_in(path).is_ok();
    (writable && space.f_bavail.saturating_mul(space.f_frsize) >= MIN_MEMORY).then_some(path)
}

/// All kinds in turn, from this seed on.
pub fn run(context: &Context) -> Result<Outcome> {
    if context.mounter.who != Who::Quire {
        return Ok(Outcome::Skipped("judges Quire beside the kernel".into()));
    }
    if let Some(tool) = ["debugfs", "e2fsck", "timeout"].iter().find(|tool| !have(tool)) {
        return Ok(Outcome::Skipped(format!("no {tool}")));
    }
    let (mut sum, mut failures) = (Tally::default(), Vec::new());
    let work = in_memory().unwrap_or(&context.dir);
    for seed in context.seed..context.seed + if context.full { FULL } else { SHORT } {
        let dir = tempfile::tempdir_in(work)?;
        let made = specimen(dir.path(), seed).with_context(|| format!("image {seed}"))?;
        if let Err(e) = judge(dir.path(), &made, &mut sum) {
            let again = format!("again: make accept ONLY=images SEED={seed}");
            failures.push(format!("image {seed}, {} ({}): {e:#}\n        {again}", made.kind, made.story));
            if failures.len() >= MAX_FAILURES {
                break;
            }
        }
    }
    println!(
        "        {} images of {KINDS} kinds: {} mounted, {} refused, {} compared with the kernel's work",
        sum.images, sum.read_write, sum.refused, sum.with_kernel
    );
    if let Some(dir) = std::env::var_os("QUIRE_RECORD") {
        let full = if context.full { "FULL=1 " } else { "" };
        let command = format!("QUIRE_RECORD=bench/results {full}SEED={} make accept ONLY=images", context.seed);
        kinds(dir.as_ref(), &sum, &command)?;
    }
    if !failures.is_empty() {
        bail!("{} images:\n        {}", failures.len(), failures.join("\n        "));
    }
    ensure!(sum.read_write > 0 && sum.refused > 0, "images of all kinds are mounted, or all are refused");
    Ok(Outcome::Passed)
}
