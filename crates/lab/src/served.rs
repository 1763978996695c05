//! Devices under mounts: a modelled one, served to the kernel over FUSE, or the machine's own disk; with a loop device
//! on top, so that the kernel's file systems and Quire stand on the very same one.
//!
//! ```text
//! mount ── loop (direct I/O) ── file ┬─ FUSE ── Modelled ── MemDevice, in a process of its own, in real time
//!                                    │  (journal writes counted apart)
//!                                    └─ on the machine's own disk
//! ```
//!
//! Of its own, since the kernel's file system above waits for it: a program that is killed while it waits there could
//! not serve what it waits for, and every sync of the machine would hang.

use std::fmt;
use std::fs::File;
use std::io::Write;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use quire_device::sync::Arc;
use quire_device::{Counted, Region, SystemClock};
use quire_mount::expose::{Counters, Exposed, Timed, expose_timed};
use quire_testkit::{MemDevice, Model, Modelled};

use crate::cmd::{is_root, run_tool, text, wait_until};
use crate::dirty_limit::DirtyLimit;
use crate::interrupt::Hold;
use crate::regions::Regions;

/// How long a device may take to come or go.
const LIMIT: Duration = Duration::from_secs(10);

/// What kind of device.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// The machine's own disk.
    Own,
    Modelled {
        name: String,
        model: Model,
    },
}

impl FromStr for Kind {
    type Err = anyhow::Error;
    fn from_str(name: &str) -> Result<Self> {
        if name == "own" {
            return Ok(Kind::Own);
        }
        let model = Model::named(name).ok_or_else(|| anyhow!("want own, {}", Model::NAMES.join(", ")))?;
        Ok(Kind::Modelled { name: name.to_owned(), model })
    }
}

impl Kind {
    /// A flush is no free one. What the machine's own disk does is not known.
    #[must_use]
    pub fn flush_takes_time(&self) -> bool {
        !matches!(self, Kind::Modelled { model, .. } if model.flush.is_zero() && model.flush_ns_per_dirty_kib == 0)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Own => f.write_str("own"),
            Kind::Modelled { name, .. } => f.write_str(name),
        }
    }
}

/// A modelled device as a file.
pub struct Served(Exposed);

impl Served {
    /// Serves `bytes` of memory in `dir`, which is made.
    ///
    /// # Errors
    /// Not root, or no FUSE.
    pub fn new(model: Model, bytes: u64, dir: &Path) -> Result<Self> {
        ensure!(is_root(), "a device is served to the kernel by root only");
        std::fs::create_dir_all(dir)?;
        let memory = MemDevice::new(vec![0; usize::try_from(bytes)?]);
        let disk = Arc::new(Counted::new(Modelled::new(memory, model, Arc::new(SystemClock))));
        let counted = disk.clone();
        let counters: Counters = Arc::new(move || counters(&counted));
        let switched = disk.clone();
        let timed: Timed = Arc::new(move |timed| switched.inner().set_timed(timed));
        let regions = Arc::new(Regions::new(disk.clone()));
        let exposed =
            expose_timed(regions, counters, timed, dir).with_context(|| format!("cannot serve {}", dir.display()))?;
        Ok(Served(exposed))
    }

    /// Waits until it is unmounted.
    ///
    /// # Errors
    /// The connection to the kernel broke.
    pub fn wait(self) -> Result<()> {
        Ok(self.0.wait()?)
    }
}

/// What was asked of a modelled device: the file `counters` beside it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    pub writes: u64,
    pub written_bytes: u64,
    /// Of these, those to a journal.
    pub journal_writes: u64,
    pub journal_bytes: u64,
    pub flushes: u64,
    pub reads: u64,
    pub read_bytes: u64,
}

impl Asked {
    fn fields(&mut self) -> [(&'static str, &mut u64); 7] {
        [
            ("writes", &mut self.writes),
            ("written_bytes", &mut self.written_bytes),
            ("journal_writes", &mut self.journal_writes),
            ("journal_bytes", &mut self.journal_bytes),
            ("flushes", &mut self.flushes),
            ("reads", &mut self.reads),
            ("read_bytes", &mut self.read_bytes),
        ]
    }

    /// What was asked of both.
    #[must_use]
    pub fn plus(mut self, mut other: Self) -> Self {
        for ((_, sum), (_, other)) in self.fields().into_iter().zip(other.fields()) {
            *sum += *other;
        }
        self
    }

    /// What came after `then`.
    #[must_use]
    pub fn since(mut self, mut then: Self) -> Self {
        for ((_, now), (_, then)) in self.fields().into_iter().zip(then.fields()) {
            *now -= *then;
        }
        self
    }
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut asked = *self;
        asked.fields().into_iter().try_for_each(|(name, value)| writeln!(f, "{name} {value}"))
    }
}

impl FromStr for Asked {
    type Err = anyhow::Error;
    fn from_str(text: &str) -> Result<Self> {
        let mut asked = Asked::default();
        for (name, value) in asked.fields() {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            *value = line.with_context(|| format!("no {name} in {text:?}"))?.parse()?;
        }
        Ok(asked)
    }
}

fn counters(disk: &Counted<Modelled<MemDevice>>) -> String {
    let s = disk.snapshot();
    let (reads, writes, journal) = (s.total(|r| r.reads), s.total(|r| r.writes), s.region(Region::Log).writes);
    let asked = Asked {
        writes: writes.count,
        written_bytes: writes.bytes,
        journal_writes: journal.count,
        journal_bytes: journal.bytes,
        flushes: s.flushes.count,
        reads: reads.count,
        read_bytes: reads.bytes,
    };
    asked.to_string()
}

/// A modelled device that `quire-lab model` serves. Dropping it ends that; where something still stands on it, it goes
/// on.
struct Apart {
    process: Child,
    dir: PathBuf,
    _hold: Hold,
}

impl Apart {
    /// Of the model of this name, in `dir`, which is made.
    fn new(name: &str, bytes: u64, dir: &Path) -> Result<Self> {
        let hold = Hold::new()?;
        let mut model = Command::new(std::env::current_exe()?);
        model.args(["model", "--device", name, "--mib", &(bytes >> 20).to_string()]).arg(dir);
        // Not in our group: what ends us at the terminal must not end it under a mount.
        let process = model.process_group(0).stdin(Stdio::null()).spawn().with_context(|| format!("{model:?}"))?;
        let mut apart = Apart { process, dir: dir.to_owned(), _hold: hold };
        let mut ended = None;
        wait_until(LIMIT, || {
            ended = apart.process.try_wait().ok().flatten();
            ended.is_some() || apart.disk().exists()
        });
        ensure!(apart.disk().exists(), "{model:?} serves nothing{}", ended.map_or(String::new(), |e| format!(": {e}")));
        Ok(apart)
    }

    fn disk(&self) -> PathBuf {
        self.dir.join("disk")
    }

    fn asked(&self) -> Result<Asked> {
        std::fs::read_to_string(self.dir.join("counters"))?.parse()
    }

    fn set_timed(&self, timed: bool) -> Result<()> {
        Ok(std::fs::write(self.dir.join("timed"), if timed { "1" } else { "0" })?)
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        // A loop device lets go of it a moment after it is detached.
        let gone = wait_until(LIMIT, || run_tool("umount", [text(&self.dir)]).is_ok());
        match gone {
            true => drop(self.process.wait()),
            false => eprintln!("{} is in use: umount it later", self.dir.display()),
        }
    }
}

/// A loop device. Dropping it detaches.
pub struct Looped {
    device: PathBuf,
    /// What it stands on, if that ends with it.
    model: Option<Apart>,
    _hold: Hold,
}

impl Looped {
    /// Of this kind, its file (or where it is served) in `dir`.
    ///
    /// # Errors
    /// Not root, no loop device, no FUSE, no space.
    pub fn new(kind: &Kind, bytes: u64, dir: &Path) -> Result<Self> {
        ensure!(is_root(), "loop devices need root");
        match kind {
            Kind::Own => {
                let path = dir.join("disk.img");
                written(&path, bytes)?;
                Self::over(&path, None)
            }
            Kind::Modelled { name, .. } => {
                let model = Apart::new(name, bytes, &dir.join("model"))?;
                let file = model.disk();
                Self::over(&file, Some(model))
            }
        }
    }

    /// Of a file, past the page cache.
    ///
    /// # Errors
    /// Not root, no loop device.
    pub fn direct(file: &Path) -> Result<Self> {
        ensure!(is_root(), "loop devices need root");
        Self::over(file, None)
    }

    fn over(file: &Path, model: Option<Apart>) -> Result<Self> {
        Self::attached(&["--direct-io=on", text(file)], model)
    }

    /// Of a file, through the page cache that holds it: for files in memory.
    ///
    /// # Errors
    /// Not root, no loop device.
    pub fn buffered(file: &Path) -> Result<Self> {
        ensure!(is_root(), "loop devices need root");
        Self::attached(&[text(file)], None)
    }

    fn attached(arguments: &[&str], model: Option<Apart>) -> Result<Self> {
        let hold = Hold::new()?;
        let said = run_tool("losetup", ["--find", "--show"].iter().chain(arguments).copied())?;
        let looped = Looped { device: PathBuf::from(said.trim()), model, _hold: hold };
        DirtyLimit::forget(&looped.device)?;
        Ok(looped)
    }

    #[must_use]
    pub fn device(&self) -> &Path {
        &self.device
    }

    /// What was asked of a modelled device so far; nothing of another.
    ///
    /// # Errors
    /// It is served no more.
    pub fn asked(&self) -> Result<Option<Asked>> {
        self.model.as_ref().map(Apart::asked).transpose()
    }

    /// Whether a modelled device takes its time, as it does at first, or none: for what is not measured.
    ///
    /// # Errors
    /// It is served no more.
    pub fn set_timed(&self, timed: bool) -> Result<()> {
        self.model.as_ref().map_or(Ok(()), |model| model.set_timed(timed))
    }
}

impl Drop for Looped {
    fn drop(&mut self) {
        if let Err(error) = run_tool("losetup", ["--detach", text(&self.device)]) {
            eprintln!("cannot detach the loop device: {error:#}");
        }
    }
}

/// A file that is fully written, so that no write to it costs the host's file system an allocation.
pub(crate) fn written(path: &Path, bytes: u64) -> Result<()> {
    let mut file = File::create(path)?;
    let zeros = vec![0; 1 << 20];
    for _ in 0..bytes >> 20 {
        file.write_all(&zeros)?;
    }
    Ok(file.sync_all()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_read_again() {
        let asked = Asked { writes: 9, written_bytes: 90, journal_writes: 3, flushes: 2, ..Asked::default() };
        let text = asked.to_string();
        assert!(text.contains("\njournal_writes 3\n") && text.contains("\nflushes 2\n"), "{text}");
        assert_eq!(text.parse::<Asked>().unwrap(), asked);
        assert_eq!(asked.since(Asked { writes: 4, ..Asked::default() }).writes, 5);
        assert_eq!(asked.plus(Asked { flushes: 3, ..Asked::default() }), Asked { flushes: 5, ..asked });
        assert!("writes 1\n".parse::<Asked>().is_err());
    }

    #[test]
    fn kinds_have_names_and_print_them() {
        for name in ["own", "ssd", "hdd15k"] {
            assert_eq!(name.parse::<Kind>().unwrap().to_string(), name);
        }
        assert!("floppy".parse::<Kind>().unwrap_err().to_string().contains("hdd7200"));
    }

    #[test]
    fn a_flush_takes_time_unless_the_model_says_that_it_takes_none() {
        let takes = |name: &str| name.parse::<Kind>().unwrap().flush_takes_time();
        assert_eq!(["own", "ssd", "intel311", "emmc", "hdd15k"].map(takes), [true, true, true, false, false]);
    }
}
