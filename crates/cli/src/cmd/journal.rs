//! What `info` and others tell of an image's journal.

use quire_device::sync::Arc;
use quire_device::{BlockDevice, SystemClock};
use quire_fs::Devices;
use quire_fs::recovery::{FoundJournal, find_journal};
use quire_layout::Ino;
use quire_layout::features::compat;
use quire_layout::superblock::Superblock;
use serde::Serialize;

/// A journal, as its superblock has it.
#[derive(Serialize)]
pub(crate) struct JournalInfo {
    /// "inside" or "external".
    place: &'static str,
    inode: u32,
    uuid: String,
    features: Vec<String>,
    blocks: u32,
    first: u32,
    /// Log block where recovery starts; 0 when the log is empty.
    start: u32,
    sequence: u32,
    fast_commit_blocks: u32,
    errno: i32,
    needs_recovery: bool,
    /// UUID of the NVRAM that holds the transactions, if they are there.
    nvram: Option<String>,
    /// Why it cannot be read, if so.
    error: Option<String>,
}

/// Finds the journal of an image. `None`: it has none.
pub(crate) fn find(
    fs: Arc<dyn BlockDevice>,
    journal: Option<Arc<dyn BlockDevice>>,
    sb: &Superblock,
) -> quire_fs::Result<Option<FoundJournal>> {
    let clock: Arc<dyn quire_device::Clock> = Arc::new(SystemClock);
    find_journal(&Devices { fs, journal, nvram: None }, &clock, sb)
}

/// Tells about the journal; what cannot be read is told as an error.
pub(crate) fn info(fs: Arc<dyn BlockDevice>, sb: &Superblock) -> Option<JournalInfo> {
    let f = sb.features();
    if !f.has_compat(compat::HAS_JOURNAL) {
        return None;
    }
    let external = sb.journal_ino() == Ino(0);
    let mut info = JournalInfo {
        place: if external { "external" } else { "inside" },
        inode: sb.journal_ino().0,
        uuid: quire::uuid_text(&sb.journal_uuid()),
        features: Vec::new(),
        blocks: 0,
        first: 0,
        start: 0,
        sequence: 0,
        fast_commit_blocks: 0,
        errno: 0,
        needs_recovery: f.has_incompat(quire_layout::features::incompat::RECOVER),
        nvram: None,
        error: None,
    };
    if external {
        return Some(info);
    }
    match find(fs, None, sb) {
        Ok(Some(found)) => {
            let j = found.log.superblock();
            info.features = j.features().names();
            info.blocks = j.len();
            info.first = j.first().0;
            info.start = j.start().map_or(0, |b| b.0);
            info.sequence = j.sequence().0;
            info.fast_commit_blocks = j.fc_blocks();
            info.errno = j.errno();
            info.nvram = found.log.needs_nvram().map(|uuid| quire::uuid_text(&uuid));
        }
        Ok(None) => return None,
        Err(e) => info.error = Some(e.to_string()),
    }
    Some(info)
}

impl JournalInfo {
    /// For people.
    pub(crate) fn lines(&self) -> Vec<(&'static str, String)> {
        let place = match self.place {
            "external" => format!("on another device (journal UUID {})", self.uuid),
            _ => format!("inode {}", self.inode),
        };
        let mut lines = vec![("Journal", place)];
        if let Some(e) = &self.error {
            lines.push(("Journal error", e.clone()));
        } else if self.place == "inside" {
            lines.push(("Journal features", self.features.join(" ")));
            lines.push(("Journal size", format!("{} blocks, log from block {}", self.blocks, self.first)));
            if let Some(uuid) = &self.nvram {
                lines.push(("Journal in NVRAM", format!("UUID {uuid}")));
            }
            let start = if self.start == 0 { "empty".to_owned() } else { format!("starts at block {}", self.start) };
            lines.push(("Journal log", format!("{start}, sequence {}", self.sequence)));
            if self.fast_commit_blocks > 0 {
                lines.push(("Fast-commit blocks", self.fast_commit_blocks.to_string()));
            }
            if self.errno != 0 {
                lines.push(("Journal errno", self.errno.to_string()));
            }
        }
        lines.push(("Needs recovery", if self.needs_recovery { "yes" } else { "no" }.to_owned()));
        lines
    }
}
