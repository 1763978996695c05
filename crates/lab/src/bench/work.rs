//! What is measured, each as a function from a mount point to a figure.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Result, ensure};
use rustix::fs::OFlags;

use crate::cmd::{NOBODY, run_tool, text};
use crate::stats::median;
use crate::tree::{self, Flavour};
use quire_testkit::rng::{Rng, content};

const BLOCK: usize = 4096;
/// Blocks of the file (or of the raw device) that durable writes choose from.
const SPAN: u64 = 4096;

/// Memory that O_DIRECT accepts: a slice of `buffer` that begins at a multiple of 4096.
fn aligned(buffer: &mut [u8]) -> &mut [u8] {
    let skip = buffer.as_ptr().align_offset(BLOCK);
    &mut buffer[skip..skip + BLOCK]
}

/// Median microseconds of a 4 KiB write and fdatasync on the device itself.
pub(super) fn raw_write(device: &Path, writes: u32) -> Result<f64> {
    let flags = i32::try_from(OFlags::DIRECT.bits())?;
    let file = File::options().write(true).custom_flags(flags).open(device)?;
    let mut buffer = vec![0; BLOCK * 2];
    let block = aligned(&mut buffer);
    let mut rng = Rng::from_parts(&[11]);
    durable(writes, |n| {
        block.copy_from_slice(&content(n, 0, BLOCK));
        file.write_all_at(block, rng.below(SPAN) * BLOCK as u64)?;
        file.sync_data()
    })
}

/// The same over blocks of a file that exist.
pub(super) fn overwrite(mnt: &Path, writes: u32) -> Result<f64> {
    let path = mnt.join("overwrite");
    fs::write(&path, content(1, 0, usize::try_from(SPAN)? * BLOCK))?;
    let file = File::options().write(true).open(&path)?;
    file.sync_all()?;
    let mut rng = Rng::from_parts(&[12]);
    durable(writes, |n| {
        file.write_all_at(&content(n, 0, BLOCK), rng.below(SPAN) * BLOCK as u64)?;
        file.sync_data()
    })
}

/// The same at the end of a file that grows.
pub(super) fn append(mnt: &Path, writes: u32) -> Result<f64> {
    let mut file = File::create(mnt.join("append"))?;
    durable(writes, |n| {
        file.write_all(&content(n, 0, BLOCK))?;
        file.sync_data()
    })
}

fn durable(writes: u32, mut write: impl FnMut(u64) -> std::io::Result<()>) -> Result<f64> {
    let mut times = Vec::new();
    for n in 0..writes {
        let start = Instant::now();
        write(u64::from(n))?;
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    Ok(median(&times))
}

/// A tar archive of a plain tree, made once.
pub(super) fn archive(dir: &Path, files: u64) -> Result<PathBuf> {
    let tree = dir.join("tree");
    tree::make(&tree, files, 1, Flavour::Plain)?;
    let tar = dir.join("tree.tar");
    run_tool("tar", ["-C", text(dir), "-cf", text(&tar), "tree"])?;
    fs::remove_dir_all(&tree)?;
    Ok(tar)
}

/// Seconds for an ordinary user, who neither gives files away nor sets modes beyond the umask, to unpack it into a
/// directory of its own, and to sync the file system.
pub(super) fn unpack(mnt: &Path, tar: &Path) -> Result<f64> {
    warm(tar)?;
    let dir = mnt.join("user");
    fs::create_dir(&dir)?;
    chown(&dir, Some(NOBODY), Some(NOBODY))?;
    let start = Instant::now();
    as_user("tar", ["-C", text(&dir), "-xf", "-"], File::open(tar)?)?;
    sync(mnt)?;
    Ok(start.elapsed().as_secs_f64())
}

/// Unpacks it once more as root, whose tar sets owners and modes.
pub(super) fn unpack_as_root(mnt: &Path, tar: &Path) -> Result<()> {
    run_tool("tar", ["-C", text(mnt), "-xf", text(tar)])?;
    sync(mnt)
}

/// Seconds for that user to delete it and sync.
pub(super) fn delete(mnt: &Path) -> Result<f64> {
    let start = Instant::now();
    as_user("rm", ["-rf", text(&mnt.join("user/tree"))], Stdio::null())?;
    sync(mnt)?;
    Ok(start.elapsed().as_secs_f64())
}

fn as_user<const N: usize>(tool: &str, args: [&str; N], input: impl Into<Stdio>) -> Result<()> {
    let done = Command::new(tool).args(args).stdin(input).uid(NOBODY).gid(NOBODY).current_dir("/").status()?;
    ensure!(done.success(), "{tool} as an ordinary user: {done}");
    Ok(())
}

/// Reads a file, so that it is in the page cache.
pub(super) fn warm(path: &Path) -> Result<()> {
    std::io::copy(&mut File::open(path)?, &mut std::io::sink())?;
    Ok(())
}

/// syncfs, and fsync of the root for mounts that syncfs does not reach.
fn sync(mnt: &Path) -> Result<()> {
    let dir = File::open(mnt)?;
    rustix::fs::syncfs(&dir)?;
    Ok(dir.sync_all()?)
}

/// MiB per second, written by 1 MiB and fsynced.
pub(super) fn stream_write(mnt: &Path, mib: u64) -> Result<f64> {
    let mut file = File::create(mnt.join("stream"))?;
    let chunk = content(3, 0, 1 << 20);
    let start = Instant::now();
    for _ in 0..mib {
        file.write_all(&chunk)?;
    }
    file.sync_all()?;
    Ok(rate(mib, start))
}

/// MiB per second, read by 1 MiB.
pub(super) fn stream_read(mnt: &Path, mib: u64) -> Result<f64> {
    let mut file = File::open(mnt.join("stream"))?;
    let mut chunk = vec![0; 1 << 20];
    let mut total = 0;
    let start = Instant::now();
    loop {
        let n = file.read(&mut chunk)?;
        if n == 0 {
            break;
        }
        total += n as u64;
    }
    ensure!(total == mib << 20, "{total} bytes read");
    Ok(rate(mib, start))
}

fn rate(mib: u64, start: Instant) -> f64 {
    let mib = u32::try_from(mib).unwrap_or(u32::MAX);
    f64::from(mib) / start.elapsed().as_secs_f64()
}
