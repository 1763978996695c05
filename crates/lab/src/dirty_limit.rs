//! How many dirty bytes the kernel may keep of one file system: `max_bytes` and `strict_limit` of its entry in
//! `/sys/class/bdi` (Linux 6.2 and later; Documentation/ABI/testing/sysfs-class-bdi).
//!
//! *Guarantees*: a dropped [`DirtyLimit`] leaves the entry as it was. A loop device's entry outlives the mount and the
//! file on it, so a process that was killed leaves its limit to the next one that gets the device, until
//! [`forget`](DirtyLimit::forget).

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::io::Errno;

use crate::cmd::wait_until;

/// The limit in bytes, and the same in millionths of what may be dirty in all, which is how the kernel keeps it.
const BYTES: &str = "max_bytes";
const MILLIONTHS: &str = "max_ratio_fine";
/// All that may be dirty.
const ALL: &str = "1000000";
/// Whether the limit holds also while the machine has memory to spare.
const STRICT: &str = "strict_limit";

/// How long a limit waits for memory that another program holds.
const PATIENCE: Duration = Duration::from_secs(600);

pub(crate) struct DirtyLimit {
    entry: PathBuf,
    /// What the entry said before.
    millionths: String,
    strict: String,
}

impl DirtyLimit {
    /// Limits the file system that is mounted on `dir`.
    ///
    /// # Errors
    /// Not root, or the kernel has no such limit.
    pub(crate) fn set(dir: &Path, bytes: u64) -> Result<Self> {
        Self::of_entry(entry(fs::metadata(dir)?.dev()), bytes)
    }

    /// Takes away what limit another process has left of a device that nobody has mounted yet.
    ///
    /// # Errors
    /// Not root.
    pub(crate) fn forget(device: &Path) -> Result<()> {
        Self::forget_entry(&entry(fs::metadata(device)?.rdev()))
    }

    fn forget_entry(entry: &Path) -> Result<()> {
        // Before Linux 6.2 there is none; and where nothing was left, a read-only /sys will do.
        let left = fs::read_to_string(entry.join(STRICT)).is_ok_and(|strict| strict.trim() == "1");
        if left { restore(entry, ALL, "0") } else { Ok(()) }
    }

    fn of_entry(entry: PathBuf, bytes: u64) -> Result<Self> {
        let read = |name: &str| {
            let path = entry.join(name);
            fs::read_to_string(&path).map(|text| text.trim().to_owned()).with_context(|| path.display().to_string())
        };
        let (millionths, strict) = (read(MILLIONTHS)?, read(STRICT)?);
        let limit = DirtyLimit { entry, millionths, strict };
        when_memory_allows(bytes, PATIENCE, || write(&limit.entry, BYTES, &bytes.to_string()))?;
        write(&limit.entry, STRICT, "1")?;
        Ok(limit)
    }
}

/// Sets a limit by `set`. The kernel refuses one of more than may be dirty in all, which is a part of the memory that
/// is free at the moment.
fn when_memory_allows(bytes: u64, patience: Duration, mut set: impl FnMut() -> Result<()>) -> Result<()> {
    let refused = |done: &Result<()>| done.as_ref().is_err_and(is_invalid);
    let mut done = set();
    if refused(&done) {
        eprintln!("waits for memory: no {bytes} bytes may be dirty now");
        wait_until(patience, || {
            done = set();
            !refused(&done)
        });
    }
    match done {
        Err(error) if is_invalid(&error) => Err(error.context(format!(
            "no {bytes} bytes may be dirty with the memory that is free (vm.dirty_ratio has a part of it)"
        ))),
        done => done,
    }
}

fn is_invalid(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<std::io::Error>();
    error.and_then(Errno::from_io_error) == Some(Errno::INVAL)
}

fn restore(entry: &Path, millionths: &str, strict: &str) -> Result<()> {
    write(entry, MILLIONTHS, millionths)?;
    write(entry, STRICT, strict)
}

fn write(entry: &Path, name: &str, value: &str) -> Result<()> {
    let path = entry.join(name);
    fs::write(&path, value).with_context(|| path.display().to_string())
}

/// Where the kernel says what it may keep of this device.
fn entry(device: u64) -> PathBuf {
    PathBuf::from(format!("/sys/class/bdi/{}:{}", rustix::fs::major(device), rustix::fs::minor(device)))
}

impl Drop for DirtyLimit {
    fn drop(&mut self) {
        if let Err(error) = restore(&self.entry, &self.millionths, &self.strict) {
            eprintln!("the limit of dirty data stays: {error:#}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An entry that says this.
    fn made(millionths: &str, strict: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(MILLIONTHS), format!("{millionths}\n")).unwrap();
        fs::write(dir.path().join(STRICT), format!("{strict}\n")).unwrap();
        dir
    }

    fn said(dir: &tempfile::TempDir, name: &str) -> String {
        fs::read_to_string(dir.path().join(name)).unwrap()
    }

    #[test]
    fn dropped_limit_leaves_the_entry_as_it_was() {
        let dir = made("1000000", "0");
        let read = |name| said(&dir, name);
        let limit = DirtyLimit::of_entry(dir.path().to_owned(), 1 << 20).unwrap();
        assert_eq!((read(BYTES), read(STRICT)), ("1048576".to_owned(), "1".to_owned()));
        drop(limit);
        assert_eq!((read(MILLIONTHS), read(STRICT)), ("1000000".to_owned(), "0".to_owned()));
        assert!(DirtyLimit::of_entry(dir.path().join("none"), 1).is_err());
    }

    #[test]
    fn a_limit_waits_until_memory_allows_it_and_not_for_what_else_fails() {
        let failed = |errno: Errno| anyhow::Error::new(std::io::Error::from(errno)).context("max_bytes");
        let mut left = 2;
        let set = || {
            left -= 1;
            if left < 0 { Ok(()) } else { Err(failed(Errno::INVAL)) }
        };
        when_memory_allows(1 << 20, Duration::from_secs(60), set).unwrap();
        let never = when_memory_allows(4096, Duration::from_millis(30), || Err(failed(Errno::INVAL))).unwrap_err();
        assert!(format!("{never:#}").starts_with("no 4096 bytes may be dirty with the memory"), "{never:#}");
        let mut calls = 0;
        let set = || {
            calls += 1;
            Err(failed(Errno::ACCESS))
        };
        assert!(!format!("{:#}", when_memory_allows(1, PATIENCE, set).unwrap_err()).contains("memory"));
        assert_eq!(calls, 1);
    }

    #[test]
    fn what_a_killed_process_has_left_is_forgotten() {
        let dir = made("14587", "1");
        let read = |name| said(&dir, name);
        DirtyLimit::forget_entry(dir.path()).unwrap();
        assert_eq!((read(MILLIONTHS), read(STRICT)), (ALL.to_owned(), "0".to_owned()));
        DirtyLimit::forget_entry(&dir.path().join("none")).unwrap();
    }
}
