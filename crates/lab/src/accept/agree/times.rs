//! Which of a file's times a call changes.

use std::fs::{self, File, Permissions};
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use rustix::fs::{FallocateFlags, XattrFlags};

use super::pages::Mapped;
use crate::cmd::{command, run};

/// More than a tick of the slowest kernel (100 a second).
const TICK: Duration = Duration::from_millis(12);

type Times = [(i64, i64); 3];

fn times(path: &Path) -> Result<Times> {
    let m = fs::symlink_metadata(path)?;
    Ok([(m.atime(), m.atime_nsec()), (m.mtime(), m.mtime_nsec()), (m.ctime(), m.ctime_nsec())])
}

/// The letters of the times that differ.
fn letters(before: Times, after: Times) -> String {
    let changed = "amc".chars().zip(before.iter().zip(&after)).filter(|(_, (b, a))| b != a).map(|(letter, _)| letter);
    changed.collect()
}

type Step = (&'static str, fn(&Path) -> Result<()>);

/// Each works on a directory with the files `file` and `other` in it.
const STEPS: &[Step] = &[
    ("write", |dir| Ok(fs::write(dir.join("file"), "longer than it was")?)),
    ("overwrite", |dir| Ok(File::options().write(true).open(dir.join("file"))?.write_all_at(b"x", 3)?)),
    ("read", |dir| File::open(dir.join("file"))?.read(&mut [0; 4]).map(drop).map_err(Into::into)),
    ("read again", |dir| File::open(dir.join("file"))?.read(&mut [0; 4]).map(drop).map_err(Into::into)),
    ("truncate", |dir| Ok(File::options().write(true).open(dir.join("file"))?.set_len(5)?)),
    ("truncate to the same", |dir| Ok(File::options().write(true).open(dir.join("file"))?.set_len(5)?)),
    ("fallocate", |dir| {
        let file = File::options().write(true).open(dir.join("file"))?;
        Ok(rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 9000)?)
    }),
    ("fallocate inside the file", |dir| {
        let file = File::options().write(true).open(dir.join("file"))?;
        Ok(rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 4096)?)
    }),
    ("chmod", |dir| Ok(fs::set_permissions(dir.join("file"), Permissions::from_mode(0o600))?)),
    ("setxattr", |dir| Ok(rustix::fs::setxattr(dir.join("file"), "user.a", b"1", XattrFlags::empty())?)),
    ("link", |dir| Ok(fs::hard_link(dir.join("file"), dir.join("link"))?)),
    ("unlink", |dir| Ok(fs::remove_file(dir.join("link"))?)),
    ("rename", |dir| Ok(fs::rename(dir.join("file"), dir.join("moved"))?)),
    ("replace", |dir| {
        fs::copy(dir.join("file"), dir.join("new"))?;
        Ok(fs::rename(dir.join("new"), dir.join("other"))?)
    }),
    ("list", |dir| {
        fs::read_dir(dir)?.count();
        Ok(())
    }),
    ("sync", |dir| Ok(File::open(dir.join("file"))?.sync_all()?)),
];

/// For each call: what changes of the file, and of its directory. Whether a read of the file is an access depends on
/// what the kernel has in its cache, so the file's access time is left out.
pub(super) fn changed(dir: &Path) -> Result<String> {
    let file = dir.join("file");
    fs::write(&file, "x")?;
    fs::write(dir.join("other"), "x")?;
    let mut seen = Vec::new();
    for (name, step) in STEPS {
        let before = (times(&file)?, times(dir)?);
        thread::sleep(TICK);
        step(dir)?;
        let after = if file.exists() { &file } else { &dir.join("moved") };
        let of_file = letters(before.0, times(after)?).replace('a', "");
        seen.push(format!("{name} {of_file}/{}", letters(before.1, times(dir)?)));
        if !file.exists() {
            fs::rename(dir.join("moved"), &file)?;
        }
    }
    Ok(seen.join(", "))
}

/// Whether a read changes the access time, which is older than the modification time.
fn of_a_read(dir: &Path, in_cache: bool) -> Result<String> {
    let path = dir.join("file");
    fs::write(&path, [1; 8192])?;
    let file = File::open(&path)?;
    file.sync_all()?;
    if !in_cache {
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    }
    thread::sleep(TICK);
    let before = times(&path)?;
    file.read_exact_at(&mut [0; 100], 0)?;
    Ok(format!("changed \"{}\"", letters(before, times(&path)?)))
}

pub(super) fn of_a_cached_read(dir: &Path) -> Result<String> {
    of_a_read(dir, true)
}

pub(super) fn of_an_uncached_read(dir: &Path) -> Result<String> {
    of_a_read(dir, false)
}

/// A change of flags.
pub(super) fn of_flags(dir: &Path) -> Result<String> {
    let path = dir.join("file");
    fs::write(&path, "x")?;
    let before = times(&path)?;
    thread::sleep(TICK);
    run(command("chattr").arg("+d").arg(&path))?;
    Ok(format!("changed \"{}\"", letters(before, times(&path)?)))
}

/// A store, then msync: the modification time is that of the store, and it stays.
pub(super) fn mapped(dir: &Path) -> Result<String> {
    let path = dir.join("file");
    fs::write(&path, [0; 8192])?;
    File::open(&path)?.sync_all()?;
    let start = times(&path)?;
    thread::sleep(TICK);
    let mut map = Mapped::open(&path)?;
    map.bytes()[5000] = 1;
    map.sync()?;
    let stored = times(&path)?;
    thread::sleep(TICK);
    drop(map);
    Ok(format!("store {}, end {}", letters(start, stored).replace('a', ""), letters(stored, times(&path)?)))
}
