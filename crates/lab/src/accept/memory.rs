//! The daemon's memory under a mixed load: bounded by the cache, and flat once it has grown to its working size.
//!
//! The size is RssAnon, which is heap, stacks and buffers. A leak and a table without a bound both show as growth in
//! the second half of a long run.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rustix::fs::XattrFlags;

use super::{Context, Outcome};
use crate::image::Image;
use crate::mounter::{Mounted, Who};
use quire_testkit::rng::{Rng, content};

const WORKERS: u64 = 4;
const DIRECTORIES: u64 = 60;
const FILES: u64 = 120;
const SHORT: Duration = Duration::from_secs(8);
const FULL: Duration = Duration::from_secs(300);
const SAMPLE_EVERY: Duration = Duration::from_millis(500);
/// The block cache is 64 MiB by default; request buffers, tables and what the allocator holds back come on top.
const MOST: u64 = 160 << 20;
/// Growth of the largest sample from the third quarter of a full run to the fourth. A leak of 10 bytes a call is 10
/// MiB.
const GROWTH: u64 = 4 << 20;

/// Runs the load and watches.
pub fn run(context: &Context) -> Result<Outcome> {
    if context.mounter.who != Who::Quire {
        return Ok(Outcome::Skipped("only a daemon has memory of its own".into()));
    }
    let image = Image::make(&context.dir.join("memory.img"), 1 << 30, &[])?;
    let mounted = context.mounter.mount(image.path(), &context.dir.join("mnt"))?;
    let length = if context.full { FULL } else { SHORT };
    let calls = AtomicU64::new(0);
    let samples = thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS)
            .map(|n| {
                let (dir, calls) = (mounted.dir().join(format!("w{n}")), &calls);
                let rng = Rng::from_parts(&[context.seed, n]);
                scope.spawn(move || work(&dir, rng, length, calls))
            })
            .collect();
        let samples = watch(&mounted, length);
        workers.into_iter().try_for_each(|w| w.join().expect("a worker does not panic")).and(samples)
    })?;
    mounted.unmount()?;
    image.check_clean()?;
    judge(&samples, calls.into_inner(), context.full)?;
    Ok(Outcome::Passed)
}

fn judge(samples: &[u64], calls: u64, full: bool) -> Result<()> {
    let quarters: Vec<u64> =
        samples.chunks(samples.len().div_ceil(4)).map(|q| q.iter().copied().max().unwrap_or(0)).collect();
    let mib: Vec<String> = quarters.iter().map(|q| format!("{:.1}", *q as f64 / f64::from(1 << 20))).collect();
    println!("        {calls} calls; most anonymous memory in each quarter: {} MiB", mib.join(", "));
    ensure!(calls > 1000 && quarters.len() == 4, "{calls} calls in {} samples: the test is empty", samples.len());
    let most = quarters.iter().copied().max().unwrap_or(0);
    ensure!(most < MOST, "the daemon came to hold {} MiB", most >> 20);
    let growth = quarters[3].saturating_sub(quarters[2]);
    ensure!(!full || growth < GROWTH, "memory still grew by {growth} bytes in the last quarter");
    Ok(())
}

fn watch(mounted: &Mounted, length: Duration) -> Result<Vec<u64>> {
    let end = Instant::now() + length;
    let mut samples = Vec::new();
    while Instant::now() < end {
        samples.push(mounted.anonymous_memory().context("the daemon is gone")?);
        thread::sleep(SAMPLE_EVERY);
    }
    Ok(samples)
}

/// A mixture of calls until the time is over. What another call has removed is no failure.
fn work(dir: &Path, mut rng: Rng, length: Duration, calls: &AtomicU64) -> Result<()> {
    fs::create_dir(dir)?;
    let end = Instant::now() + length;
    while Instant::now() < end {
        let below = dir.join(format!("d{}", rng.below(DIRECTORIES)));
        let file = below.join(format!("f{}", rng.below(FILES)));
        match call(&below, &file, &mut rng) {
            Err(e) if !matches!(e.kind(), ErrorKind::NotFound | ErrorKind::StorageFull) => {
                return Err(e).with_context(|| file.display().to_string());
            }
            _ => calls.fetch_add(1, Ordering::Relaxed),
        };
    }
    Ok(())
}

fn call(dir: &Path, file: &PathBuf, rng: &mut Rng) -> std::io::Result<()> {
    match rng.below(100) {
        0..40 => {
            fs::create_dir_all(dir)?;
            let len = [100, 4000, 20_000, 300_000][rng.index(4)];
            let mut f = File::create(file)?;
            f.write_all(&content(rng.bits(), 0, len))?;
            if rng.one_in(4) { f.sync_all() } else { Ok(()) }
        }
        40..55 => {
            let mut f = File::options().append(true).open(file)?;
            f.write_all(&vec![7; 1 + rng.index(5000)])?;
            if rng.one_in(2) { f.sync_data() } else { Ok(()) }
        }
        55..65 => File::open(file)?.read_to_end(&mut Vec::new()).map(drop),
        65..75 => fs::remove_file(file),
        75..80 => fs::rename(file, dir.join(format!("f{}", rng.below(FILES)))),
        80..84 => {
            let set = rustix::fs::setxattr(file, "user.a", &vec![b'v'; rng.index(200)], XattrFlags::empty());
            set.map_err(std::io::Error::from)
        }
        84..90 => fs::read_dir(dir)?.try_for_each(|entry| entry.map(drop)),
        90..93 => File::options().write(true).open(file)?.set_len(rng.below(100_000)),
        93 if rng.one_in(8) => fs::remove_dir_all(dir),
        _ => fs::metadata(file).map(drop),
    }
}
