//! Judges from outside: crash images of simulated runs, cut out of the volatile cache of a simulated device, are
//! recovered by Quire, by `e2fsck -E journal_only`, and by the kernel's own mount. All give the same blocks, outside of
//! the fields that carry the time of recovery.
//!
//! Where orphans are left, e2fsck and the kernel free them in the same go, so that only names can be compared (the
//! crash test does that); those images are counted, and not compared.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, ensure};
use quire_layout::jbd2::JournalSuperblock;
use quire_layout::superblock::{self, Superblock};
use quire_sim::explore::{Config, fresh_image};
use quire_sim::mixes::{Mix, generate};
use quire_sim::run::{How, Route, run};
use quire_testkit::{PowerLossDevice, PowerLossOptions};

use crate::cmd;
use crate::image::Image;
use crate::mounter::{Mounted, Mounter};
use quire_testkit::rng::Rng;

/// How many images there were, and how many could be compared.
#[derive(Debug, Default, Clone, Copy)]
pub struct Agreed {
    pub images: u64,
    pub with_e2fsck: u64,
    pub with_kernel: u64,
}

/// Recovers copies of one crash image.
pub fn agree(dir: &Path, crash: &quire_testkit::Image, sum: &mut Agreed) -> Result<()> {
    let path = dir.join("crash.img");
    crash.save(&path)?;
    let image = Image::open(&path);
    sum.images += 1;
    let mut raw = vec![0; superblock::SIZE];
    crash.read(superblock::OFFSET, &mut raw);
    if Superblock::decode(&raw).is_err() {
        // Torn between its sectors: Quire knows how to take that, e2fsck and the kernel do not.
        return Ok(());
    }
    let ours = image.copy("ours.img")?;
    ours.recover_with_quire(&["--journal-only"])?;
    let theirs = image.copy("theirs.img")?;
    if !theirs.replay_with_e2fsck()? {
        return Ok(());
    }
    let log = ours.journal_blocks()?;
    // Of an empty log e2fsck counts the sequence number up, Quire leaves it alone.
    let ignore = if log_is_empty(crash, &log, image.block_size()?) { &log[..] } else { &[] };
    let differ = ours.differing_blocks(&theirs, ignore)?;
    ensure!(differ.is_empty(), "e2fsck's recovery differs in blocks {differ:?}");
    sum.with_e2fsck += 1;
    let by_kernel = image.copy("by-kernel.img")?;
    sum.with_kernel += u64::from(kernel_agrees(dir, &by_kernel, &ours, &log)?);
    Ok(())
}

/// Lets the kernel replay the log of `by_kernel`, and compares it with `ours`, which Quire replayed, outside of the
/// `log`. False without a kernel mount. (Both may be changed: the counts of free blocks and inodes are blanked.)
pub fn kernel_agrees(dir: &Path, by_kernel: &Image, ours: &Image, log: &[u64]) -> Result<bool> {
    let kernel = Mounter::kernel("ro");
    if kernel.unavailable().is_some() {
        return Ok(false);
    }
    // A loop device that can be written, mounted read-only: only the log is replayed.
    let looped = cmd::run(cmd::command("losetup").args(["--find", "--show"]).arg(by_kernel.path()))?;
    let mounted = kernel.mount(Path::new(looped.trim()), &dir.join("mnt")).and_then(Mounted::unmount);
    cmd::run_tool("losetup", ["--detach", looped.trim()])?;
    mounted.context("the kernel does not mount it")?;
    // The kernel sums the free counts of the groups up when it writes the superblock; a replay leaves them as they were
    // logged.
    for image in [ours, by_kernel] {
        let file = File::options().write(true).open(image.path())?;
        file.write_all_at(&[0; 8], superblock::OFFSET + 0x0C)?;
        file.write_all_at(&[0; 4], superblock::OFFSET + 0x158)?;
    }
    // The log itself is not what is recovered: each begins it anew in his own way.
    let differ = ours.differing_blocks(by_kernel, log)?;
    ensure!(differ.is_empty(), "the kernel's recovery differs in blocks {differ:?}");
    Ok(true)
}

fn log_is_empty(image: &quire_testkit::Image, log: &[u64], block: u64) -> bool {
    let mut raw = vec![0; superblock::SIZE];
    log.iter().any(|b| {
        image.read(b * block, &mut raw);
        JournalSuperblock::decode(&raw).is_ok_and(|sb| sb.start().is_none())
    })
}

/// Runs seeded workloads on the routes whose logs are jbd2's own, and compares `images` crash images of each.
pub fn simulated(dir: &Path, seed: u64, images: u64) -> Result<Agreed> {
    let mut sum = Agreed::default();
    for (name, route) in [("ordered", Route::Ordered), ("journal", Route::Journal), ("writeback", Route::Writeback)] {
        let mke2fs = &["-t", "ext4", "-b", "1024", "-N", "256", "-J", "size=1", "-m", "0"];
        let how = How::from(route);
        let config = Config { name, how, mix: Mix::General, leave: None, mke2fs, size: "8M" };
        let base = fresh_image(&config);
        let (mut rng, mut done) = (Rng::from_parts(&[seed, 31]), 0);
        while done < images {
            let (run_seed, mix) = (rng.bits(), [Mix::General, Mix::Overwrite, Mix::Reuse][rng.index(3)]);
            let options = PowerLossOptions { record: true, ..PowerLossOptions::default() };
            let device = Arc::new(PowerLossDevice::from_image(base.clone(), options));
            let (volume, ..) = run(&device, how, &generate(mix, run_seed, 60)).map_err(|e| anyhow!(e))?;
            volume.close()?;
            let recording = device.recording().context("it records")?;
            let one_in = (recording.len() as u64 / 12).max(1);
            for (steps, point) in recording.crash_points_at(|_, _| rng.one_in(one_in)) {
                let crash = point.crash(run_seed ^ steps);
                agree(dir, &crash.image, &mut sum)
                    .with_context(|| format!("{name} {mix:?}, run {run_seed}, power cut after {steps} steps"))?;
                done += 1;
            }
        }
    }
    Ok(sum)
}
