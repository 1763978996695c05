//! A second modelled device, which is the journal of the file system on the first: external journaling. A mounter asks
//! for it by its first option, `external`, which neither the kernel nor Quire is told.
//!
//! *Guarantees*: whatever is written to the device is counted as written to the journal, its superblock, too.
//!
//! *Relies on*: mke2fs writes the journal's device into the superblock, where the kernel finds it; Quire is told by
//! `journal_path=`.

use std::path::Path;

use anyhow::{Context, Result};

use crate::cmd::{run_tool, text};
use crate::mounter::{Mounter, Who};
use crate::served::{Asked, Kind, Looped};

/// The option that asks for it.
const EXTERNAL: &str = "external";

/// Whether a mounter's journal is on the second device.
pub(super) fn is_external(mounter: &Mounter) -> bool {
    mounter.options.split(',').any(|option| option == EXTERNAL)
}

/// A device that is a journal.
pub(super) struct JournalDevice(Looped);

impl JournalDevice {
    /// Of this model and so many MiB; it is served in `dir`, which is made.
    pub(super) fn new(model: &str, mib: u64, dir: &Path) -> Result<Self> {
        let kind: Kind = model.parse()?;
        Ok(JournalDevice(Looped::new(&kind, mib << 20, dir)?))
    }

    /// As [`Looped::set_timed`].
    pub(super) fn set_timed(&self, timed: bool) -> Result<()> {
        self.0.set_timed(timed)
    }

    /// Makes an empty journal of it.
    pub(super) fn format(&self) -> Result<()> {
        let device = text(self.0.device());
        run_tool("mke2fs", ["-q", "-F", "-b", "4096", "-O", "journal_dev", device]).map(drop)
    }

    /// What mke2fs is told of it (`-J`), for the file system.
    pub(super) fn of_mke2fs(&self) -> String {
        format!("device={}", text(self.0.device()))
    }

    /// The mounter as the one that it is run as.
    pub(super) fn told_to(&self, mounter: &Mounter) -> Mounter {
        told(mounter, text(self.0.device()))
    }

    /// What was asked of it.
    pub(super) fn asked(&self) -> Result<Asked> {
        Ok(as_journal(self.0.asked()?.context("a device of the machine's counts nothing")?))
    }
}

fn told(mounter: &Mounter, device: &str) -> Mounter {
    let rest: Vec<&str> = mounter.options.split(',').filter(|option| *option != EXTERNAL).collect();
    let plain = Mounter { who: mounter.who, options: rest.join(",") };
    if mounter.who == Who::Quire { plain.with(&format!("journal_path={device}")) } else { plain }
}

/// On a device that is a journal each write is one to a journal.
fn as_journal(asked: Asked) -> Asked {
    Asked { journal_writes: asked.writes, journal_bytes: asked.written_bytes, ..asked }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_option_is_ours_and_quire_is_told_the_device() {
        let of = |text: &str| {
            let mounter: Mounter = text.parse().unwrap();
            (is_external(&mounter), told(&mounter, "/dev/loop9").to_string())
        };
        assert_eq!(of("kernel:external,data=journal"), (true, "kernel:data=journal".into()));
        let quire = "quire:profile=ext4-journal,checkpoint=fsync,journal_path=/dev/loop9";
        assert_eq!(of("quire:external,profile=ext4-journal,checkpoint=fsync"), (true, quire.into()));
        assert!(!of("kernel:data=journal").0 && !of("quire:profile=external").0);
    }

    #[test]
    fn every_write_to_a_journal_device_is_one_to_the_journal() {
        let asked =
            as_journal(Asked { writes: 3, written_bytes: 9000, journal_writes: 1, flushes: 2, ..Asked::default() });
        assert_eq!((asked.journal_writes, asked.journal_bytes, asked.writes, asked.flushes), (3, 9000, 3, 2));
    }
}
