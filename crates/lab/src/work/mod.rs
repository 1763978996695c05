//! Workloads that know what they were promised. Each runs as a process of its own on the mount (a memory map of a
//! killed mount ends the process), writes what was acknowledged to a log *outside* of the mount before it goes on, and
//! has a check that compares what is there after recovery with the log.

pub mod append;
pub mod bank;
mod pages;
pub mod sqlite;
pub mod storm;
pub mod tpcc;
pub mod vfs;

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result};

/// Names a file whose first 8 bytes count the steps of a device that records: then each line says how many there were.
pub const STEPS: &str = "QUIRE_LAB_STEPS";

/// The log of one worker: a line for each acknowledged step.
#[derive(Debug)]
pub struct AckLog {
    lines: File,
    steps: Option<File>,
}

impl AckLog {
    /// Opens `dir/name` to append.
    pub fn open(dir: &Path, name: &str) -> Result<Self> {
        let path = dir.join(name);
        let file = File::options().create(true).append(true).open(&path);
        let lines = file.with_context(|| format!("cannot open {}", path.display()))?;
        let steps = std::env::var_os(STEPS).map(File::open).transpose()?;
        Ok(Self { lines, steps })
    }

    /// Writes one line (or some) by one system call: once this returns, the line outlives us.
    pub fn line(&mut self, line: &str) -> Result<()> {
        let Some(steps) = &self.steps else { return Ok(self.lines.write_all(format!("{line}\n").as_bytes())?) };
        let mut n = [0; 8];
        steps.read_exact_at(&mut n, 0)?;
        let n = u64::from_le_bytes(n);
        let lines: String = line.lines().map(|line| format!("{line} @{n}\n")).collect();
        Ok(self.lines.write_all(lines.as_bytes())?)
    }
}

/// The complete lines of `dir/name`; none when the worker did not get as far as making it.
pub fn lines(dir: &Path, name: &str) -> Result<Vec<String>> {
    let path = dir.join(name);
    if !path.exists() {
        return Ok(Vec::new());
    }
    let text = fs::read_to_string(&path)?;
    Ok(text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')).map(str::to_owned).collect())
}

/// Why a worker stopped before its time.
#[derive(Debug)]
pub enum Stopped {
    /// The mount died under it: expected of a killed mount.
    Cut,
    /// Anything else.
    Failed(anyhow::Error),
}

impl From<std::io::Error> for Stopped {
    fn from(error: std::io::Error) -> Self {
        use rustix::io::Errno;
        let dead = [Errno::NOTCONN, Errno::CONNABORTED, Errno::IO, Errno::CONNRESET, Errno::from_raw_os_error(108)];
        match error.raw_os_error() {
            Some(raw) if dead.iter().any(|errno| errno.raw_os_error() == raw) => Self::Cut,
            _ => Self::Failed(error.into()),
        }
    }
}

impl From<rustix::io::Errno> for Stopped {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::from(std::io::Error::from(errno))
    }
}

impl From<anyhow::Error> for Stopped {
    fn from(error: anyhow::Error) -> Self {
        Self::Failed(error)
    }
}

/// A worker that was cut ends well; the harness knows that it cut it.
pub fn end(result: Result<(), Stopped>) -> Result<()> {
    match result {
        Ok(()) | Err(Stopped::Cut) => Ok(()),
        Err(Stopped::Failed(error)) => Err(error),
    }
}
