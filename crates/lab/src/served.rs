//! Devices under mounts: a modelled one, served to the kernel over FUSE, or the machine's own disk; with a loop device on top, so that the
//! kernel's file systems and Quire stand on the very same one.
//!
//! ```text
//! mount ── loop (direct I/O) ── file ┬─ FUSE ── Modelled ── MemDevice, in this process, in real time
//!                                    │  (journal writes counted apart)
//!                                    └─ on the machine's own disk
//! ```

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result, anyhow, ensure};
use quire_device::sync::Arc;
use quire_device::{Counted, DeviceStats, MemDevice, Model, Modelled, Region, SystemClock};
use quire_mount::expose::{Counters, Exposed, expose};

use crate::cmd::{is_root, run_tool, text};
use crate::regions::Regions;

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

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Kind::Own => f.write_str("own"),
            Kind::Modelled { name, .. } => f.write_str(name),
        }
    }
}

/// A modelled device as a file.
pub struct Served {
    exposed: Exposed,
    disk: Arc<Counted<Modelled<MemDevice>>>,
}

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
        let regions = Arc::new(Regions::new(disk.clone()));
        let exposed = expose(regions, counters, dir).with_context(|| format!("cannot serve {}", dir.display()))?;
        Ok(Served { exposed, disk })
    }

    /// The file that is the device.
    #[must_use]
    pub fn file(&self) -> PathBuf {
        self.exposed.disk()
    }

    /// What was asked of it so far.
    #[must_use]
    pub fn counted(&self) -> DeviceStats {
        self.disk.snapshot()
    }

    /// Waits until it is unmounted.
    ///
    /// # Errors
    /// The connection to the kernel broke.
    pub fn wait(self) -> Result<()> {
        Ok(self.exposed.wait()?)
    }
}

fn counters(disk: &Counted<Modelled<MemDevice>>) -> String {
    let s = disk.snapshot();
    let (reads, writes, journal) = (s.total(|r| r.reads), s.total(|r| r.writes), s.region(Region::Log).writes);
    format!(
        "writes {}\nwritten_bytes {}\njournal_writes {}\njournal_bytes {}\nflushes {}\nreads {}\nread_bytes {}\n",
        writes.count, writes.bytes, journal.count, journal.bytes, s.flushes.count, reads.count, reads.bytes
    )
}

/// A loop device. Dropping it detaches.
pub struct Looped {
    device: PathBuf,
    /// What it stands on, if that ends with it.
    served: Option<Served>,
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
            Kind::Modelled { model, .. } => {
                let served = Served::new(*model, bytes, &dir.join("model"))?;
                let file = served.file();
                Self::over(&file, Some(served))
            }
        }
    }

    fn over(file: &Path, served: Option<Served>) -> Result<Self> {
        let said = run_tool("losetup", ["--find", "--show", "--direct-io=on", text(file)])?;
        Ok(Looped { device: PathBuf::from(said.trim()), served })
    }

    /// Of a file, through the page cache that holds it: for files in memory.
    ///
    /// # Errors
    /// Not root, no loop device.
    pub fn buffered(file: &Path) -> Result<Self> {
        ensure!(is_root(), "loop devices need root");
        let said = run_tool("losetup", ["--find", "--show", text(file)])?;
        Ok(Looped { device: PathBuf::from(said.trim()), served: None })
    }

    #[must_use]
    pub fn device(&self) -> &Path {
        &self.device
    }

    /// What was asked of a modelled device so far.
    #[must_use]
    pub fn counted(&self) -> Option<DeviceStats> {
        self.served.as_ref().map(Served::counted)
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
fn written(path: &Path, bytes: u64) -> Result<()> {
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
    fn kinds_have_names_and_print_them() {
        for name in ["own", "ssd", "hdd15k"] {
            assert_eq!(name.parse::<Kind>().unwrap().to_string(), name);
        }
        assert!("floppy".parse::<Kind>().unwrap_err().to_string().contains("hdd7200"));
    }
}
