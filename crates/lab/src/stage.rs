//! Where an application runs: what Okeanos' applications need of a file system and of time, so that each is written
//! once. A [`Stage`] is the library on modelled devices in virtual time ([`Rig`]), or a directory in real time
//! ([`Directory`]).
//!
//! *Guarantees*: on a [`Rig`] an application takes the same time in every run. On a [`Directory`] each operation is a
//! system call, and no file is open but those that the application has open.
//!
//! *Relies on*: `O_SYNC`, fdatasync(2) and syncfs(2) of the file system below a [`Directory`]. Quire gets syncfs(2) on
//! mounts of block devices.

use std::fmt::Debug;
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use quire_device::Clock;
use quire_fs::WriteFlags;
use quire_layout::Ino;
use rustix::fs::OFlags;

use crate::rig::{Body, Rig};

/// Memory of a thread's stack on a [`Directory`], because there are hundreds.
const STACK: usize = 256 << 10;

/// When a write is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// When it returns: `O_SYNC`.
    EachWrite,
    /// When the file is flushed.
    AtFlush,
}

/// A file system without further directories, a clock and threads.
pub trait Stage: Sync {
    /// Names a file.
    type File: Clone + Debug + Send + Sync;
    /// A file that is open.
    type Open: Send + Sync;

    /// Makes an empty file, which is not open then.
    ///
    /// # Errors
    /// The file system fails, as with all of these.
    fn create(&self, name: &str) -> Result<Self::File>;

    /// Opens it to read and to write.
    fn open(&self, file: &Self::File, durability: Durability) -> Result<Self::Open>;

    /// Writes all bytes at an offset.
    fn write(&self, open: &Self::Open, at: u64, bytes: &[u8]) -> Result<()>;

    /// Reads up to so many bytes at an offset; returns how many there were.
    fn read(&self, open: &Self::Open, at: u64, bytes: &mut [u8]) -> Result<usize>;

    /// fdatasync(2).
    fn flush(&self, open: &Self::Open) -> Result<()>;

    /// Removes a file.
    fn remove(&self, file: Self::File) -> Result<()>;

    /// Makes everything durable. On a rig it goes home, too; a mount leaves journaled blocks in the journal.
    fn settle(&self) -> Result<()>;

    /// Time since some moment.
    fn now(&self) -> Duration;

    /// Waits until then, if it has not been yet.
    fn sleep_until(&self, then: Duration);

    /// Lets the time of a computation pass in virtual time; real time passes by itself.
    fn compute(&self, time: Duration);

    /// Runs each as a thread to its end; returns what they return, in their order.
    ///
    /// # Errors
    /// One of them failed, or no thread can be had.
    fn run<'a, T: Send + 'a>(&'a self, bodies: Vec<Body<'a, Result<T>>>) -> Result<Vec<T>>;
}

/// A file of a [`Rig`], which is in the root directory.
#[derive(Clone, Debug)]
pub struct Named {
    name: String,
    ino: Ino,
}

impl Stage for Rig {
    type File = Named;
    type Open = (Ino, Durability);

    fn create(&self, name: &str) -> Result<Named> {
        Ok(Named { name: name.into(), ino: Rig::create(self, Ino::ROOT, name)? })
    }

    fn open(&self, file: &Named, durability: Durability) -> Result<Self::Open> {
        Ok((file.ino, durability))
    }

    fn write(&self, (ino, durability): &Self::Open, at: u64, bytes: &[u8]) -> Result<()> {
        let flags = WriteFlags { sync: *durability == Durability::EachWrite, ..WriteFlags::default() };
        let written = self.volume.write(*ino, at, bytes, flags)?;
        anyhow::ensure!(written == bytes.len(), "{written} bytes written of {}", bytes.len());
        Ok(())
    }

    fn read(&self, (ino, _): &Self::Open, at: u64, bytes: &mut [u8]) -> Result<usize> {
        Ok(self.volume.read(*ino, at, bytes)?)
    }

    fn flush(&self, (ino, _): &Self::Open) -> Result<()> {
        Ok(self.volume.fsync(*ino, true)?)
    }

    fn remove(&self, file: Named) -> Result<()> {
        self.volume.unlink(Ino::ROOT, file.name.as_bytes())?;
        self.volume.forget(file.ino, 1);
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        self.volume.sync()?;
        Ok(self.volume.maintenance().checkpoint()?)
    }

    fn now(&self) -> Duration {
        self.world.monotonic()
    }

    fn sleep_until(&self, then: Duration) {
        self.world.sleep_until(then);
    }

    fn compute(&self, time: Duration) {
        self.world.sleep(time);
    }

    fn run<'a, T: Send + 'a>(&'a self, bodies: Vec<Body<'a, Result<T>>>) -> Result<Vec<T>> {
        Rig::run(self, bodies).into_iter().collect()
    }
}

/// A directory in real time.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    began: Instant,
}

impl Directory {
    /// Makes it; its clock begins.
    ///
    /// # Errors
    /// It cannot be made, or is there already.
    pub fn make(path: PathBuf) -> Result<Self> {
        std::fs::create_dir(&path)?;
        Ok(Directory { path, began: Instant::now() })
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Stage for Directory {
    type File = PathBuf;
    type Open = File;

    fn create(&self, name: &str) -> Result<PathBuf> {
        let path = self.path.join(name);
        File::create_new(&path)?;
        Ok(path)
    }

    fn open(&self, path: &PathBuf, durability: Durability) -> Result<File> {
        let flags = match durability {
            Durability::EachWrite => OFlags::SYNC,
            Durability::AtFlush => OFlags::empty(),
        };
        Ok(File::options().read(true).write(true).custom_flags(i32::try_from(flags.bits())?).open(path)?)
    }

    fn write(&self, open: &File, at: u64, bytes: &[u8]) -> Result<()> {
        Ok(open.write_all_at(bytes, at)?)
    }

    fn read(&self, open: &File, at: u64, bytes: &mut [u8]) -> Result<usize> {
        Ok(open.read_at(bytes, at)?)
    }

    fn flush(&self, open: &File) -> Result<()> {
        Ok(open.sync_data()?)
    }

    fn remove(&self, path: PathBuf) -> Result<()> {
        Ok(std::fs::remove_file(path)?)
    }

    fn settle(&self) -> Result<()> {
        Ok(rustix::fs::syncfs(File::open(&self.path)?)?)
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn sleep_until(&self, then: Duration) {
        std::thread::sleep(then.saturating_sub(self.now()));
    }

    fn compute(&self, _: Duration) {}

    fn run<'a, T: Send + 'a>(&'a self, bodies: Vec<Body<'a, Result<T>>>) -> Result<Vec<T>> {
        std::thread::scope(|scope| {
            let spawn = |body| std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, body);
            let threads: Vec<_> = bodies.into_iter().map(spawn).collect::<std::io::Result<_>>()?;
            threads.into_iter().map(|t| t.join().expect("an application's thread panicked")).collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quire_fs::Profile;
    use quire_testkit::Model;

    /// What is written is read, a file ends with its last byte, and what is removed can be made anew.
    fn keeps_files(stage: &impl Stage) {
        let file = stage.create("a").unwrap();
        assert!(stage.create("a").is_err(), "{file:?} is there");
        let open = stage.open(&file, Durability::AtFlush).unwrap();
        stage.write(&open, 0, b"0123").unwrap();
        stage.write(&stage.open(&file, Durability::EachWrite).unwrap(), 4, b"45").unwrap();
        stage.flush(&open).unwrap();
        let mut bytes = [0; 8];
        assert_eq!(stage.read(&open, 2, &mut bytes).unwrap(), 4);
        assert_eq!(bytes[..4], *b"2345");
        drop(open);
        stage.remove(file).unwrap();
        stage.settle().unwrap();
        stage.create("a").unwrap();
    }

    /// Threads end with their results in their order, and the first error is told.
    fn runs_threads(stage: &impl Stage) {
        let bodies = |fails: u64| {
            let body = move |n: u64| {
                move || {
                    stage.sleep_until(stage.now() + Duration::from_millis(9 - n));
                    anyhow::ensure!(n != fails, "number {n}");
                    Ok(n)
                }
            };
            (0..3).map(|n| Box::new(body(n)) as Body<'_, Result<u64>>).collect::<Vec<_>>()
        };
        assert_eq!(stage.run(bodies(9)).unwrap(), [0, 1, 2]);
        assert_eq!(stage.run(bodies(1)).unwrap_err().to_string(), "number 1");
    }

    fn rig() -> Rig {
        Rig::new(&crate::rig::Plan {
            mib: 64,
            journal_mib: 8,
            ..crate::rig::Plan::new(Model::hdd_15k(), Profile::Auto)
        })
        .unwrap()
    }

    #[test]
    fn a_rig_keeps_files_and_runs_threads_and_time_is_virtual() {
        let rig = rig();
        keeps_files(&rig);
        runs_threads(&rig);
        let (real, before) = (Instant::now(), rig.now());
        rig.sleep_until(before + Duration::from_secs(3600));
        rig.compute(Duration::from_secs(3600));
        assert_eq!(rig.now() - before, Duration::from_secs(7200));
        assert!(real.elapsed() < Duration::from_secs(600));
    }

    #[test]
    fn a_directory_keeps_files_and_runs_threads_and_time_is_real() {
        let dir = tempfile::tempdir().unwrap();
        let stage = Directory::make(dir.path().join("stage")).unwrap();
        keeps_files(&stage);
        runs_threads(&stage);
        stage.compute(Duration::from_secs(3600));
        stage.sleep_until(Duration::from_millis(20));
        assert!((20..600_000).contains(&stage.now().as_millis()));
        assert!(Directory::make(stage.path().to_owned()).is_err(), "another's files would be in it");
    }

    #[test]
    fn writes_to_a_rig_wait_for_the_disk_where_each_is_to_be_durable() {
        let rig = rig();
        let file = Stage::create(&rig, "a").unwrap();
        let took = |durability| {
            let began = rig.now();
            rig.write(&rig.open(&file, durability).unwrap(), 0, b"bytes").unwrap();
            rig.now() - began
        };
        assert!(took(Durability::AtFlush).is_zero());
        assert!(!took(Durability::EachWrite).is_zero());
    }

    #[test]
    fn a_directorys_files_are_opened_with_o_sync_where_each_write_is_to_be_durable() {
        let dir = tempfile::tempdir().unwrap();
        let stage = Directory::make(dir.path().join("stage")).unwrap();
        let file = stage.create("a").unwrap();
        let is_synced = |durability| {
            let open = stage.open(&file, durability).unwrap();
            rustix::fs::fcntl_getfl(open).unwrap().contains(OFlags::SYNC)
        };
        assert!(is_synced(Durability::EachWrite) && !is_synced(Durability::AtFlush));
    }
}
