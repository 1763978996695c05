//! Journals that others left: Quire's recovery and e2fsck's must give the same image, outside of the fields that carry
//! the time of recovery.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::context::{Context, Outcome};
use crate::image::Image;
use crate::judges;
use crate::mounter::{Mounter, Who};
use crate::work::{end, storm};
use quire_testkit::rng::{Rng, content};

/// mke2fs options of the corpus: block sizes, checksums, widths, ext3.
const SHAPES: &[&[&str]] = &[
    &["-b", "4096"],
    &["-b", "1024"],
    &["-b", "2048", "-O", "^metadata_csum"],
    &["-b", "4096", "-O", "^64bit"],
    &["-b", "1024", "-O", "^64bit,^metadata_csum"],
    &["-b", "4096", "-O", "orphan_file,metadata_csum_seed"],
    &["-b", "1024", "-t", "ext3"],
    &["-b", "4096", "-O", "fast_commit"],
];

/// Who is killed. (The kernel has asynchronous commits only without ordered data.)
const LEFT_BY: &[&str] = &[
    "quire:data=ordered",
    "quire:data=journal",
    "quire:data=writeback",
    "kernel:data=ordered",
    "kernel:data=journal",
    "kernel:data=writeback,journal_async_commit",
];

/// What a log may hold that not everybody replays.
#[derive(Clone, Copy, Default)]
struct MayHold {
    async_commits: bool,
    fast_commits: bool,
}

impl MayHold {
    fn left_by(mounter: &str, shape: &[&str]) -> Self {
        let kernel = mounter.starts_with("kernel");
        MayHold { async_commits: mounter.contains("async"), fast_commits: kernel && shape.contains(&"fast_commit") }
    }
}

/// Every dirty image of the corpus, recovered by both.
pub fn corpus(context: &Context) -> Result<Outcome> {
    if context.mounter.who != Who::Quire {
        return Ok(Outcome::Skipped("speaks of quire recover".into()));
    }
    let (mut tried, mut compared) = (0, 0);
    for (n, shape) in SHAPES.iter().enumerate() {
        let seed = Rng::from_parts(&[context.seed, n as u64]).bits();
        let named = |what: &str| format!("{what}, mke2fs {}; seed {}", shape.join(" "), context.seed);
        let image = Image::make(&context.dir.join("corpus.img"), 64 << 20, shape)?;
        // debugfs writes a v1 checksum of a transaction with revokes that neither e2fsck nor the kernel accepts.
        let revokes = !shape.contains(&"ext3") && !shape.iter().any(|option| option.contains("^metadata_csum"));
        by_debugfs(&image, seed, revokes)?;
        tried += 1;
        compared += u32::from(agree(context, &image, MayHold::default()).with_context(|| named("written by debugfs"))?);
        for left_by in LEFT_BY {
            let mounter: Mounter = left_by.parse()?;
            if mounter.unavailable().is_none() {
                let image = Image::make(&context.dir.join("corpus.img"), 64 << 20, shape)?;
                killed(context, &image, &mounter, seed).with_context(|| named(left_by))?;
                tried += 1;
                compared += u32::from(
                    agree(context, &image, MayHold::left_by(left_by, shape))
                        .with_context(|| named(&format!("left by {left_by}")))?,
                );
            }
        }
    }
    println!(
        "        {tried} dirty images; {compared} of them compared with e2fsck or the kernel (of the others they cleared orphans, too, or replayed fast commits)"
    );
    ensure!(compared * 2 > tried, "too few images were compared");
    Ok(Outcome::Passed)
}

/// Transactions with blocks, escapes and revokes, by `debugfs jw`.
fn by_debugfs(image: &Image, seed: u64, revokes: bool) -> Result<()> {
    let mut rng = Rng::from_parts(&[seed, 9]);
    let block = usize::try_from(image.block_size()?)?;
    // The end of the image is free.
    let free = fs::metadata(image.path())?.len() / block as u64 - 400;
    let open = ["jo", "jo -c", "jo -c -v 2", "jo -c -v 3"][rng.index(4)];
    let mut requests = vec![open.to_owned()];
    for transaction in 0..1 + rng.below(6) {
        let count = 1 + rng.below(20);
        let numbers: Vec<String> = (0..count).map(|_| (free + rng.below(300)).to_string()).collect();
        if revokes && transaction > 0 && rng.one_in(3) {
            requests.push(format!("jw -r {} /dev/null", numbers.join(",")));
            continue;
        }
        let data = image.path().with_extension(format!("data{transaction}"));
        let mut bytes = content(seed ^ transaction, 0, block * usize::try_from(count)?);
        if rng.one_in(2) {
            bytes[..4].copy_from_slice(&[0xc0, 0x3b, 0x39, 0x98]); // the jbd2 magic: must be escaped
        }
        fs::write(&data, bytes)?;
        requests.push(format!("jw -b {} {}", numbers.join(","), data.display()));
    }
    requests.push("jc".to_owned());
    image.debugfs(true, &requests)?;
    ensure!(image.needs_recovery()?, "debugfs left nothing to recover: {requests:?}");
    Ok(())
}

/// A storm, stopped dead.
fn killed(context: &Context, image: &Image, mounter: &Mounter, seed: u64) -> Result<()> {
    let mut mounted = mounter.mount(image.path(), &context.dir.join("mnt"))?;
    let log = tempfile::tempdir_in(&context.dir)?;
    end(storm::work(mounted.dir(), log.path(), 0, seed, Duration::from_millis(300)))?;
    mounted.kill()?;
    mounted.detach()?;
    ensure!(image.needs_recovery()?, "{mounter} left nothing to recover");
    Ok(())
}

/// Two copies, two recoveries, no difference; a dry run and a second recovery change nothing. True if the copies could
/// be compared.
fn agree(context: &Context, image: &Image, log: MayHold) -> Result<bool> {
    let untouched = image.copy("untouched.img")?;
    let planned = untouched.recover_with_quire(&["--dry-run"]);
    ensure!(untouched.differing_blocks(image, &[])?.is_empty(), "quire recover --dry-run changed the image");
    let ours = image.copy("ours.img")?;
    match ours.recover_with_quire(&["--journal-only"]) {
        Err(error) if log.fast_commits && error.to_string().contains("unsupported: fast_commit replay") => {
            // Its fsync wrote one, which e2fsck 1.47.0 replays or fails on: there is nobody to agree with.
            ensure!(ours.differing_blocks(image, &[])?.is_empty(), "quire recover changed an image that it refuses");
            ensure!(
                planned.is_err(),
                "quire recover refuses an image of which --dry-run says that it would be recovered"
            );
            return Ok(false);
        }
        recovered => recovered?,
    }
    planned?;
    // Of a torn asynchronous transaction e2fsck 1.47.0 replays a half, and then damages or fails: the kernel is asked
    // there.
    let theirs = image.copy("theirs.img")?;
    let comparable = !log.async_commits && theirs.replay_with_e2fsck()?;
    if comparable {
        let differ = ours.differing_blocks(&theirs, &[])?;
        ensure!(
            differ.is_empty(),
            "quire recover --journal-only and e2fsck -E journal_only differ in blocks {differ:?}"
        );
    }
    let once = ours.copy("once.img")?;
    ours.recover_with_quire(&["--journal-only"]).context("a second recovery")?;
    ensure!(ours.differing_blocks(&once, &[])?.is_empty(), "a second recovery changed the image");
    if log.async_commits {
        let whole = image.copy("whole.img")?;
        whole.recover_with_quire(&[])?;
        whole.check_clean()?;
        // It frees orphans in the same go.
        return Ok(!ours.has_orphans()? && judges::kernel_agrees(&context.dir, image, &ours, &ours.journal_blocks()?)?);
    }
    Ok(comparable)
}
