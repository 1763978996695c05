//! What a replay would write.

use super::runs::Chain;
use quire_device::Buf;
use quire_device::sync::Arc;
use quire_layout::jbd2::fast_commit::FastCommitArea;
use quire_layout::{BlockNo, LogBlock, Tid, Unsupported};
use std::collections::BTreeMap;

/// An image that is to be written home.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Planned {
    pub home: BlockNo,
    /// Where the log holds the image; of a log of Quire's, where the transaction begins that logged it last.
    pub log: LogBlock,
    pub tid: Tid,
    /// The magic at its start was zeroed.
    pub escaped: bool,
    pub(super) revoked: bool,
}

/// Why an image is not replayed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadReason {
    Checksum,
    Unreadable,
    /// The records do not make the image that was logged: home is not what they were written over.
    Result,
}

/// An image of a committed transaction that cannot be replayed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadBlock {
    pub home: BlockNo,
    pub log: LogBlock,
    pub tid: Tid,
    pub why: BadReason,
    pub(super) revoked: bool,
}

impl std::fmt::Display for BadBlock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let why = match self.why {
            BadReason::Checksum => "does not match its checksum",
            BadReason::Unreadable => "cannot be read",
            BadReason::Result => "is not what its records make: home was changed, or is damaged",
        };
        write!(f, "image of {} in {} ({}) {why}", self.home, self.log, self.tid)
    }
}

/// What a replay would do. Nothing has been written.
#[derive(Clone, Debug)]
pub struct Plan {
    /// One image for each home block, sorted by home.
    pub(super) images: Vec<Planned>,
    /// Images that are skipped, sorted by home; a block whose last image is among them gets the last good one.
    pub bad: Vec<BadBlock>,
    /// First transaction in the log.
    pub start: Tid,
    /// The transaction after the last one that is replayed.
    pub end: Tid,
    /// One past the last commit block.
    pub head: LogBlock,
    /// Transactions that are replayed.
    pub transactions: u32,
    /// Images in them, superseded and revoked ones included.
    pub logged: u64,
    /// Revoke records in them.
    pub revokes: u64,
    /// Home blocks that are not written because they were revoked.
    pub revoked: u64,
    /// A commit block that does not match although it is not stale: the log was damaged there.
    pub failed_commit: Option<Tid>,
    /// Fast commits after the last transaction. A replay refuses them.
    pub fast_commits: FastCommitArea,
    /// Blocks in the log proper.
    pub log_blocks: u32,
    /// The last number that the log may hold: it is not used again.
    pub(super) last_used: Tid,
    /// Of a log of Quire's: the records of each block that is written.
    pub(super) chains: BTreeMap<BlockNo, Chain>,
    /// Their images, sorted by home, if they are few.
    pub(super) ready: Option<Vec<(BlockNo, Arc<Buf>)>>,
    /// Of a log in NVRAM: the position behind the last transaction.
    pub(super) nvram_end: Option<u64>,
}

impl Plan {
    pub(super) fn empty(sequence: Tid) -> Self {
        Plan {
            images: Vec::new(),
            bad: Vec::new(),
            start: sequence,
            end: sequence,
            head: LogBlock(0),
            transactions: 0,
            logged: 0,
            revokes: 0,
            revoked: 0,
            failed_commit: None,
            fast_commits: FastCommitArea::default(),
            log_blocks: 0,
            last_used: sequence,
            chains: BTreeMap::new(),
            ready: None,
            nvram_end: None,
        }
    }

    /// The images that a replay writes, sorted by home.
    #[must_use]
    pub fn images(&self) -> &[Planned] {
        &self.images
    }

    /// The image of one home block.
    #[must_use]
    pub fn image_of(&self, home: BlockNo) -> Option<&Planned> {
        self.images.binary_search_by_key(&home, |p| p.home).ok().map(|i| &self.images[i])
    }

    /// The image of one home block, if it was made when the log was judged.
    pub(super) fn ready_image(&self, home: BlockNo) -> Option<&Arc<Buf>> {
        let ready = self.ready.as_ref()?;
        ready.binary_search_by_key(&home, |(b, _)| *b).ok().map(|i| &ready[i].1)
    }

    /// True if images are missing or the log broke off: the file system needs a full check after the replay. The
    /// kernel refuses to mount; e2fsck replays the rest and checks.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        !self.bad.is_empty() || self.failed_commit.is_some()
    }

    /// Refuses what this version cannot replay.
    ///
    /// # Errors
    /// Unsupported: fast commits.
    pub fn check_supported(&self) -> Result<(), Unsupported> {
        match self.fast_commits.commits {
            0 => Ok(()),
            n => Err(Unsupported::new(format!("fast_commit replay ({n} fast commits before {})", self.end))),
        }
    }
}

/// In a few lines, for `quire recover --dry-run`.
impl std::fmt::Display for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.transactions == 0 {
            write!(f, "no transactions to replay")?;
        } else {
            write!(f, "{} transactions from {} up to, not including, {}: ", self.transactions, self.start, self.end)?;
            write!(f, "{} images of {} blocks", self.logged, self.images.len())?;
            write!(f, ", {} blocks revoked by {} records", self.revoked, self.revokes)?;
        }
        if let Some(tid) = self.failed_commit {
            write!(f, "\nthe log breaks off: the commit of {tid} does not match its checksum")?;
        }
        // A hostile log has as many of these as it has blocks.
        self.bad.iter().take(20).try_for_each(|b| write!(f, "\nskipped: {b}"))?;
        match self.bad.len() {
            0..=20 => {}
            n => write!(f, "\nskipped: {} more", n - 20)?,
        }
        match self.fast_commits.commits {
            0 => Ok(()),
            n => write!(f, "\n{n} fast commits before {}, which cannot be replayed", self.end),
        }
    }
}
