//! SEEK_DATA and SEEK_HOLE while the kernel has data that the file system has not.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::Result;
use rustix::fs::{FallocateFlags, SeekFrom};

use super::pages::Mapped;
use super::told::told;
use crate::cmd::{command, run};

const BLOCK: u64 = 4096;

/// The first data, the hole behind it, and the data behind that, seen by a descriptor of its own.
fn seen_from(path: &Path, at: u64) -> Result<String> {
    let file = File::open(path)?;
    let seek = |from| rustix::fs::seek(&file, from).map_or_else(|e| told::<(), _>(Err(e)), |at| at.to_string());
    Ok(format!("data {}, hole {}", seek(SeekFrom::Data(at)), seek(SeekFrom::Hole(at))))
}

/// Data, a hole, data, a punched hole: nothing is synced.
pub(super) fn unsynced(dir: &Path) -> Result<String> {
    let path = dir.join("file");
    let file = File::create(&path)?;
    file.write_all_at(&[1; 10 * 4096], 0)?;
    let first = seen_from(&path, 0)?;
    file.write_all_at(&[2; 4096], 300 * BLOCK)?;
    let second = seen_from(&path, 20 * BLOCK)?;
    rustix::fs::fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 2 * BLOCK, BLOCK)?;
    Ok(format!("{first}; {second}; {}; {}", seen_from(&path, 0)?, seen_from(&path, 2 * BLOCK)?))
}

/// A store into a mapping of a hole is data.
pub(super) fn mapped(dir: &Path) -> Result<String> {
    let path = dir.join("file");
    File::create(&path)?.set_len(64 * BLOCK)?;
    let before = seen_from(&path, 0)?;
    let mut map = Mapped::open(&path)?;
    map.bytes()[16 * 4096] = 1;
    Ok(format!("{before}; {}", seen_from(&path, 0)?))
}

/// cp(1) and tar(1) -S of a file that is being written.
pub(super) fn copied(dir: &Path) -> Result<String> {
    let (path, copy) = (dir.join("file"), dir.join("copy"));
    let file = File::create(&path)?;
    file.write_all_at(&[1; 5000], 1 << 20)?;
    run(command("cp").arg("--sparse=auto").args([&path, &copy]))?;
    let by_cp = fs::read(&copy)? == fs::read(&path)?;
    file.write_all_at(&[2; 5000], 2 << 20)?;
    let archive = dir.join("archive");
    run(command("tar").arg("-C").arg(dir).arg("-Scf").arg(&archive).arg("file"))?;
    let out = run(command("tar").arg("-xOf").arg(&archive).arg("file").arg("--to-command=md5sum"))?;
    let sum = run(command("md5sum").arg(&path))?;
    Ok(format!("cp {by_cp}, tar {}", out.split(' ').next() == sum.split(' ').next()))
}
