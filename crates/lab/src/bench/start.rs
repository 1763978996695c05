//! How long a mount takes to begin and to end, side by side: the kernel's ext4 on a loop device, fuse2fs and Quire, on
//! a small image and on a sparse one of 1 TiB; and ten images at once. The command that mounts returns when the mount
//! can be used, so what is timed is the command and one stat of the root.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use super::table::{About, Table};
use crate::cmd::{command, is_root, quire, run, run_tool, text};
use crate::mounter::{Mounter, Who};
use crate::stats::mib;

const GIB: u64 = 1 << 30;
/// Images that are mounted at once.
const AT_ONCE: usize = 10;

/// What to measure.
#[derive(Debug, clap::Args)]
pub struct Plan {
    #[arg(long, default_value_t = 5)]
    pub rounds: usize,
    /// GiB of the large image, which is sparse
    #[arg(long, default_value_t = 1024)]
    pub large: u64,
    #[arg(long, default_value_os_t = std::env::temp_dir())]
    pub work: PathBuf,
    /// A data file (bench/results) that is written
    #[arg(long)]
    pub save: Option<PathBuf>,
}

/// The rows, and their units.
const ROWS: [(&str, &str); 6] = [
    ("1 GiB: mount", "ms"),
    ("1 GiB: unmount", "ms"),
    ("large: mount", "ms"),
    ("large: unmount", "ms"),
    ("large: resident, at most", "MiB"),
    ("ten images of 1 GiB: mounted", "ms"),
];

/// Measures and prints the table.
///
/// # Errors
/// Not root; a mount fails.
pub fn measure(plan: &Plan) -> Result<()> {
    ensure!(is_root(), "the benchmark needs root, for the kernel's ext4");
    let all = [Mounter::kernel(""), Mounter { who: Who::Fuse2fs, options: String::new() }, Mounter::quire("")];
    let mounters = Mounter::available(&all)?;
    let dir = tempfile::Builder::new().prefix("quire-start-").tempdir_in(&plan.work)?;
    let small: Vec<PathBuf> = (0..AT_ONCE).map(|n| dir.path().join(format!("image{n}"))).collect();
    small.iter().try_for_each(|image| format(image, GIB))?;
    let large = dir.path().join("large");
    format(&large, plan.large * GIB)?;
    let mut table = Table { columns: mounters.iter().map(ToString::to_string).collect(), rows: Vec::new() };
    ROWS.iter().for_each(|(name, unit)| table.add(name, unit));
    for round in 0..plan.rounds {
        for turn in 0..mounters.len() {
            let who = (turn + round) % mounters.len();
            let mounter = &mounters[who];
            eprintln!("round {}: {mounter}", round + 1);
            let measured = one(mounter, &small, &large, dir.path()).with_context(|| format!("{mounter}"))?;
            for (row, value) in table.rows.iter_mut().zip(measured) {
                row.values[who].extend(value);
            }
        }
    }
    table.print();
    let about = About {
        title: "How a mount begins and ends",
        note: format!(
            "Medians of {} rounds, in brackets the ratio to the first column, then the least and the most. Large: {} \
             GiB, sparse. Mount: the command, until it returns and a directory can be looked at.",
            plan.rounds, plan.large
        ),
        command: "sudo scripts/bench.sh start --save bench/results/start.json",
    };
    plan.save.as_ref().map_or(Ok(()), |file| table.save(file, &about))
}

fn format(image: &Path, bytes: u64) -> Result<()> {
    File::create(image)?.set_len(bytes)?;
    let lazy = "lazy_itable_init=1,lazy_journal_init=1,nodiscard";
    run_tool("mke2fs", ["-q", "-F", "-t", "ext4", "-E", lazy, text(image)]).map(drop)
}

fn one(mounter: &Mounter, small: &[PathBuf], large: &Path, dir: &Path) -> Result<[Option<f64>; ROWS.len()]> {
    let (mount, unmount) = timed(mounter, &small[0], &dir.join("mnt"))?;
    let (mount_large, unmount_large) = timed(mounter, large, &dir.join("mnt"))?;
    let mounted = mounter.mount(large, &dir.join("mnt"))?;
    fs::metadata(mounted.dir())?;
    let resident = mounted.peak_memory().map(mib);
    mounted.unmount()?;
    let ten = at_once(mounter, small, dir)?;
    Ok([Some(mount), Some(unmount), Some(mount_large), Some(unmount_large), resident, Some(ten)])
}

/// Milliseconds to mount and to unmount.
fn timed(mounter: &Mounter, image: &Path, dir: &Path) -> Result<(f64, f64)> {
    fs::create_dir_all(dir)?;
    let start = Instant::now();
    mount(mounter.who, image, dir)?;
    let mounted = start.elapsed();
    let start = Instant::now();
    unmount(mounter.who, dir)?;
    Ok((mounted.as_secs_f64() * 1e3, start.elapsed().as_secs_f64() * 1e3))
}

fn mount(who: Who, image: &Path, dir: &Path) -> Result<()> {
    match who {
        Who::Kernel => run(command("mount").args(["-t", "ext4", "-o", "loop"]).arg(image).arg(dir))?,
        Who::Fuse2fs => run(command("fuse2fs").arg(image).arg(dir))?,
        Who::Quire => run(Command::new(quire()?).arg("mount").arg(image).arg(dir))?,
    };
    Ok(fs::metadata(dir.join("lost+found")).map(drop)?)
}

fn unmount(who: Who, dir: &Path) -> Result<()> {
    match who {
        Who::Quire => run(Command::new(quire()?).arg("umount").arg(dir)),
        Who::Kernel | Who::Fuse2fs => run(command("umount").arg(dir)),
    }
    .map(drop)
}

/// Milliseconds until all are mounted.
fn at_once(mounter: &Mounter, images: &[PathBuf], dir: &Path) -> Result<f64> {
    let places: Vec<PathBuf> = (0..images.len()).map(|n| dir.join(format!("mnt{n}"))).collect();
    places.iter().try_for_each(fs::create_dir_all)?;
    let start = Instant::now();
    let outcomes: Vec<Result<()>> = std::thread::scope(|scope| {
        let each = images.iter().zip(&places);
        let threads: Vec<_> = each.map(|(i, at)| scope.spawn(|| mount(mounter.who, i, at))).collect();
        threads.into_iter().map(|t| t.join().expect("it does not panic")).collect()
    });
    let millis = start.elapsed().as_secs_f64() * 1e3;
    for (at, outcome) in places.iter().zip(&outcomes) {
        if outcome.is_ok() {
            unmount(mounter.who, at)?;
        }
    }
    outcomes.into_iter().collect::<Result<()>>()?;
    Ok(millis)
}
