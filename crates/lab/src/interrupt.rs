//! What a study holds outside of its process (mounts, loop devices, modelled devices, folders) when a signal ends it.
//!
//! *Guarantees*: once [`handle`] was called, SIGINT, SIGTERM and SIGHUP end the process with 130, and nothing that is
//! held stays behind. That is at once while only folders are held. Mounts and devices (`Hold`) are taken away by who
//! made them, in the order that this needs: the signal is an error to what asks for the next one or `check`s, and the
//! process ends with the last of them. A later signal ends it at once, and leaves them.
//!
//! *Lock order*: `FOLDERS` is the last lock that is taken.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tempfile::TempDir;

/// What a shell returns for a program that SIGINT has ended.
const INTERRUPTED: i32 = 130;
/// Signals within this time are one: timeout(1) sends its signal to the process, and then to the process's group.
const ONE: Duration = Duration::from_secs(1);
/// A file system in memory.
pub(crate) const MEMORY: &str = "/dev/shm";
/// How often a folder is removed that another thread still writes to.
const REMOVALS: usize = 3;

/// When the first signal came.
static STOPPED: OnceLock<Instant> = OnceLock::new();
/// How many mounts and devices there are.
static HELD: AtomicUsize = AtomicUsize::new(0);
static FOLDERS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn folders() -> MutexGuard<'static, Vec<PathBuf>> {
    FOLDERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a signal does.
#[derive(Debug, PartialEq, Eq)]
enum Deed {
    /// Ends the process at once.
    End,
    /// Waits for what is held.
    Wait,
    /// Belongs to the first one.
    Nothing,
}

/// What a signal does so long after the first one (`None`: it is the first), while so many mounts and devices are held.
fn deed(after: Option<Duration>, held: usize) -> Deed {
    match after {
        _ if held == 0 => Deed::End,
        None => Deed::Wait,
        Some(after) if after < ONE => Deed::Nothing,
        Some(_) => Deed::End,
    }
}

/// From now on signals end the process as this module says. Where they are ignored (nohup(1)) they stay so.
pub fn handle() {
    // Fails but for the first time, and where a signal is ignored.
    let _ = ctrlc::try_set_handler(|| {
        let after = STOPPED.get().map(Instant::elapsed);
        // Before the look at what is held: whoever holds more from now on sees it.
        STOPPED.get_or_init(Instant::now);
        match deed(after, HELD.load(Ordering::SeqCst)) {
            Deed::End => end(),
            Deed::Wait => eprintln!(
                "quire-lab: ends when what it measures now is over, and takes its mounts and devices away; another \
                 signal ends it at once and leaves them"
            ),
            Deed::Nothing => {}
        }
    });
}

/// Removes the folders and ends the process.
fn end() -> ! {
    let folders = folders();
    for folder in &*folders {
        let _ = (0..REMOVALS).find(|_| std::fs::remove_dir_all(folder).is_ok());
    }
    std::process::exit(INTERRUPTED);
}

/// Between two parts of a study's work.
///
/// # Errors
/// A signal has come.
pub(crate) fn check() -> Result<()> {
    ensure!(STOPPED.get().is_none(), "ended by a signal");
    Ok(())
}

/// A mount or a device outside of the process.
#[derive(Debug)]
pub(crate) struct Hold(());

impl Hold {
    /// Is taken before the mount or device is made, and kept until it is gone.
    ///
    /// # Errors
    /// A signal has come.
    pub(crate) fn new() -> Result<Self> {
        HELD.fetch_add(1, Ordering::SeqCst);
        let hold = Hold(());
        check()?;
        Ok(hold)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let is_last = HELD.fetch_sub(1, Ordering::SeqCst) == 1;
        if is_last && STOPPED.get().is_some() {
            end();
        }
    }
}

/// A folder that is removed when it is dropped.
pub struct Folder(Option<TempDir>);

impl Folder {
    /// In this directory; its name begins so.
    ///
    /// # Errors
    /// It cannot be made.
    pub(crate) fn new(dir: &Path, prefix: &str) -> Result<Self> {
        let mut folders = folders();
        let made = tempfile::Builder::new().prefix(prefix).tempdir_in(dir)?;
        folders.push(made.path().to_owned());
        Ok(Folder(Some(made)))
    }

    /// Where temporary files belong.
    ///
    /// # Errors
    /// It cannot be made.
    pub(crate) fn temporary(prefix: &str) -> Result<Self> {
        Self::new(&std::env::temp_dir(), prefix)
    }

    /// In memory, or where temporary files belong if there is no file system in memory.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn in_memory(prefix: &str) -> Result<Self> {
        Self::new(Path::new(MEMORY), prefix).or_else(|_| Self::temporary(prefix))
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        self.0.as_ref().expect("until it is dropped").path()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let mut folders = folders();
        let gone = self.0.take().expect("once");
        folders.retain(|folder| folder != gone.path());
        // Under the lock: a signal's end waits for it.
        drop(gone);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_waits_for_what_is_held_and_the_second_one_does_not() {
        let (soon, later) = (Some(ONE / 2), Some(ONE));
        for (after, held, does) in [
            (None, 0, Deed::End),
            (None, 2, Deed::Wait),
            (soon, 2, Deed::Nothing),
            (later, 2, Deed::End),
            (soon, 0, Deed::End),
        ] {
            assert_eq!(deed(after, held), does, "{after:?} after the first, {held} held");
        }
    }

    #[test]
    fn a_folder_is_known_while_it_is_there() {
        let folder = Folder::temporary("quire-folder-").unwrap();
        let path = folder.path().to_owned();
        let is_known = || folders().contains(&path);
        assert!(is_known() && path.is_dir());
        drop(folder);
        assert!(!is_known() && !path.exists());
    }
}
