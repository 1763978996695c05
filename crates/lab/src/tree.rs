//! A tree from a seed: what `tar` would unpack, and what is done to a tree afterwards.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags, makedev, mknodat, utimensat};

use crate::cmd::is_root;
use quire_testkit::rng::{Rng, content};

/// What a tree holds besides files and directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavour {
    /// Files and directories with plain modes, as an archive of sources has.
    Plain,
    /// Also links, fifos, devices (as root), owners, xattrs, odd modes, odd times and long names.
    Everything,
}

const PER_DIRECTORY: u64 = 40;

/// Makes `files` files below `root`, in directories of about 40, nested. Returns the paths of all files, in the order
/// of making.
pub fn make(root: &Path, files: u64, seed: u64, flavour: Flavour) -> Result<Vec<PathBuf>> {
    let mut rng = Rng::from_parts(&[seed, 1]);
    let mut dirs = vec![root.to_owned()];
    let mut made: Vec<PathBuf> = Vec::new();
    fs::create_dir_all(root)?;
    for n in 0..files {
        if n % PER_DIRECTORY == 0 {
            let parent = &dirs[rng.index(dirs.len())];
            let parent = if parent.components().count() > root.components().count() + 8 { root } else { parent };
            let dir = parent.join(format!("dir{:05}", n / PER_DIRECTORY));
            fs::create_dir(&dir).with_context(|| format!("mkdir {}", dir.display()))?;
            dirs.push(dir);
        }
        let dir = dirs.last().expect("pushed above");
        let path = dir.join(name(&mut rng, n, flavour));
        make_one(&path, &mut rng, n, &made, flavour).with_context(|| format!("making {}", path.display()))?;
        made.push(path);
    }
    if flavour == Flavour::Everything {
        for dir in dirs.iter().skip(1).rev() {
            set_times(dir, &mut rng)?;
        }
    }
    Ok(made)
}

fn name(rng: &mut Rng, n: u64, flavour: Flavour) -> String {
    let mut name = format!("file{n:06}");
    let extra = match (flavour, rng.below(20)) {
        (Flavour::Everything, 0) => rng.index(245),
        (_, 1) => rng.index(30),
        _ => rng.index(8),
    };
    name.extend(
        std::iter::repeat_with(|| char::from(b'a' + u8::try_from(rng.below(26)).expect("below 26"))).take(extra),
    );
    name
}

/// Sizes as trees of sources have them: mostly a few KiB, some empty, a few large.
fn size(rng: &mut Rng) -> usize {
    match rng.below(100) {
        0..=4 => 0,
        5..=59 => rng.index(3000),
        60..=89 => rng.index(12_000),
        90..=98 => rng.index(60_000),
        _ => rng.index(600_000),
    }
}

fn make_one(path: &Path, rng: &mut Rng, n: u64, made: &[PathBuf], flavour: Flavour) -> Result<()> {
    if flavour == Flavour::Everything {
        match rng.below(40) {
            0 => return Ok(symlink("t".repeat(1 + rng.index(55)), path)?),
            1 => return Ok(symlink("../".repeat(20) + &"long".repeat(1 + rng.index(200)), path)?),
            2 => return special(path, rng),
            3 if !made.is_empty() => {
                let old = &made[rng.index(made.len())];
                return Ok(fs::hard_link(old, path)?);
            }
            _ => {}
        }
    }
    let mut file = File::create_new(path)?;
    file.write_all(&content(n, 0, size(rng)))?;
    if flavour == Flavour::Plain {
        return Ok(());
    }
    drop(file);
    if rng.one_in(4) {
        fs::set_permissions(path, PermissionsExt::from_mode(u32::try_from(rng.below(0o10000))? | 0o600))?;
    }
    if rng.one_in(10) {
        for i in 0..=rng.below(3) {
            // All of a file's attributes must fit into one block of 1 KiB.
            let value = content(n ^ i, 9, if i == 0 && rng.one_in(5) { rng.index(600) } else { rng.index(60) });
            rustix::fs::setxattr(path, format!("user.attribute{i}"), &value, XattrFlags::empty())?;
        }
    }
    if is_root() && rng.one_in(8) {
        chown(path, Some(u32::try_from(rng.below(70_000))?), Some(u32::try_from(rng.below(70_000))?))?;
    }
    if rng.one_in(3) {
        set_times(path, rng)?;
    }
    Ok(())
}

fn special(path: &Path, rng: &mut Rng) -> Result<()> {
    let (kind, device) = match rng.below(if is_root() { 4 } else { 2 }) {
        0 => (FileType::Fifo, 0),
        1 => (FileType::Socket, 0),
        2 => (FileType::CharacterDevice, makedev(u32::try_from(rng.below(300))?, u32::try_from(rng.below(70_000))?)),
        _ => (FileType::BlockDevice, makedev(u32::try_from(rng.below(4000))?, u32::try_from(rng.below(300))?)),
    };
    Ok(mknodat(CWD, path, kind, Mode::from_raw_mode(0o640), device)?)
}

/// Times from 1901 to 2309, to the nanosecond. (ext4 goes on to 2446, but e2fsck takes many of those for a mistake.)
fn set_times(path: &Path, rng: &mut Rng) -> Result<()> {
    let mut time = || -> Result<Timespec> {
        let seconds = match rng.below(4) {
            0 => i64::try_from(rng.below(10_700_000_000 + 0x8000_0000))? - 0x8000_0000,
            _ => 1_000_000_000 + i64::try_from(rng.below(700_000_000))?,
        };
        Ok(Timespec { tv_sec: seconds, tv_nsec: i64::try_from(rng.below(1_000_000_000))? })
    };
    let times = Timestamps { last_access: time()?, last_modification: time()? };
    Ok(utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}

/// Renames a third of the files (some onto others), hard-links a sixth, and deletes half of all names, in random order.
/// Returns the paths that are left.
pub fn churn(root: &Path, mut files: Vec<PathBuf>, seed: u64) -> Result<Vec<PathBuf>> {
    let mut rng = Rng::from_parts(&[seed, 2]);
    let total = files.len();
    for n in 0..total / 3 {
        let at = rng.index(files.len());
        let to_dir = files[rng.index(files.len())].parent().unwrap_or(root).to_owned();
        let to = to_dir.join(format!("renamed{n:06}"));
        fs::rename(&files[at], &to).with_context(|| format!("rename {} {}", files[at].display(), to.display()))?;
        files[at] = to;
        if rng.one_in(10) {
            let (from, onto) = (rng.index(files.len()), rng.index(files.len()));
            if from != onto {
                fs::rename(&files[from], &files[onto])?;
                // Two names of one file: rename does nothing and both stay.
                if fs::symlink_metadata(&files[from]).is_err() {
                    files.swap_remove(from);
                }
            }
        }
    }
    for n in 0..total / 6 {
        let old = &files[rng.index(files.len())];
        let new = old.with_file_name(format!("linked{n:06}"));
        fs::hard_link(old, &new).with_context(|| format!("link {} {}", old.display(), new.display()))?;
        files.push(new);
    }
    for _ in 0..files.len() / 2 {
        let gone = files.swap_remove(rng.index(files.len()));
        fs::remove_file(&gone).with_context(|| format!("unlink {}", gone.display()))?;
    }
    Ok(files)
}
