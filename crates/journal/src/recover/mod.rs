//! Recovery: a function of the log's bytes and the home blocks.
//!
//! ```text
//! UnrecoveredLog ──scan──> Plan ──replay──> CleanLog ──finish──> the file system's superblock says: recovered
//!                          (dry run ends here; nothing has been written)
//!
//! scan    follows the transactions from s_start; checks every checksum; the log ends where the next expected
//!         block is not there
//! revoke  takes out images that a revoke of the same or a later transaction names
//! replay  writes the last good image of each block home, flush, empties the log, flush
//! ```
//!
//! Guarantees (docs/invariants.md): replay may be interrupted anywhere and run again (R1); the log is emptied only
//! when every home block is durable (R2); nothing is written before the whole log has been judged (R3); memory is
//! bounded by the length of the log, whatever it says (R4). What is unrecovered is another type than what is
//! recovered. Where the rules come from: the kernel and e2fsck, which must agree with us block by block.
//!
//! Orphans, and fast commits, need inodes: they are the file system's business. A log that ends in fast commits is
//! refused by name.

mod clean;
mod external;
mod images;
mod nvram;
mod plan;
mod replay;
mod runs;
mod scan;

pub use clean::{CleanLog, Damage, mark_recovered, superblock_place};
pub use external::open_external;
pub use nvram::{NvramTransaction, list_nvram};
pub use plan::{BadBlock, BadReason, Plan, Planned};
pub use replay::{SavedFrom, Undo};

use crate::error::Error;
use crate::geometry::LogGeometry;
use quire_device::sync::Arc;
use quire_device::{BlockDevice, Buf, Region};
use quire_layout::jbd2::{JournalSuperblock, LogFormat};
use quire_layout::{Corrupt, Structure, Unsupported};

/// How far recovery has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    pub phase: Phase,
    /// Blocks done, of `total`. While scanning the total is the log's length: the scan may end earlier.
    pub done: u64,
    pub total: u64,
}

/// A part of recovery that may take long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    Scan,
    Replay,
}

/// A log that may hold transactions which are not home.
pub struct UnrecoveredLog {
    geometry: LogGeometry,
    superblock: JournalSuperblock,
    /// The whole block that the superblock begins.
    block: Buf,
    format: LogFormat,
    /// The file system's device, if it is not the log's.
    home: Option<Arc<dyn BlockDevice>>,
    /// The memory that may hold the log.
    nvram: Option<nvram::Beside>,
}

impl std::fmt::Debug for UnrecoveredLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UnrecoveredLog").field("superblock", &self.superblock).finish_non_exhaustive()
    }
}

impl UnrecoveredLog {
    /// Reads and checks the journal's superblock.
    ///
    /// # Errors
    /// Device; corrupt: the superblock, or a journal longer than its inode; unsupported: a feature, or a journal that
    /// several file systems share.
    pub fn open(geometry: LogGeometry) -> Result<Self, Error> {
        let at = geometry.superblock();
        let home = geometry.locate(at).ok_or_else(|| Corrupt::new(Structure::JournalInode, "no first block"))?;
        let bs = geometry.block_size();
        let block = geometry.device().read(bs.offset(home), bs.bytes(), Region::LogSuperblock)?;
        let bad = |why| Error::Corrupt(Corrupt::new(Structure::JournalSuperblock, why).at(home));
        let superblock = JournalSuperblock::decode(&block).map_err(|e| e.at(home))?;
        let format = superblock.log_format()?;
        if superblock.block_size() != bs {
            return Err(bad("block size is not the file system's"));
        }
        if superblock.len() > geometry.len() {
            return Err(bad("the journal is longer than its place"));
        }
        if superblock.first() <= at {
            return Err(bad("first log block out of range"));
        }
        if geometry.is_external() && superblock.user_count() > 1 {
            return Err(Unsupported::new(format!("external journal with {} users", superblock.user_count())).into());
        }
        Ok(UnrecoveredLog { geometry, superblock, block, format, home: None, nvram: None })
    }

    /// Says where the file system is, if the log has a device of its own: records of Quire's log may need what lies at
    /// home.
    #[must_use]
    pub fn with_home(mut self, home: Arc<dyn BlockDevice>) -> Self {
        self.home = Some(home);
        self
    }

    /// True if the log is one of Quire's.
    #[must_use]
    pub fn is_quire(&self) -> bool {
        self.superblock.quire().is_ok_and(|s| s.is_some())
    }

    #[must_use]
    pub fn superblock(&self) -> &JournalSuperblock {
        &self.superblock
    }

    #[must_use]
    pub fn format(&self) -> &LogFormat {
        &self.format
    }

    #[must_use]
    pub fn geometry(&self) -> &LogGeometry {
        &self.geometry
    }

    /// True if the log says that it holds nothing.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.superblock.start().is_none()
    }

    /// Judges the whole log; writes nothing. `home_blocks` is the size of the file system's device in blocks.
    ///
    /// # Errors
    /// Device: a log block that is not an image cannot be read. Corrupt: a committed transaction whose descriptor or
    /// revoke block does not match its checksum, a revoke block that leaves its block, or an image whose home is
    /// outside the device or in the log itself; a transaction of Quire's that matches its checksum and makes no sense.
    pub fn scan(&self, home_blocks: u64, progress: &mut dyn FnMut(Progress)) -> Result<Plan, Error> {
        let Some(start) = self.superblock.start() else {
            return Ok(Plan::empty(self.superblock.sequence()));
        };
        match self.superblock.quire()? {
            Some(signature) => {
                if let Some(uuid) = signature.in_nvram() {
                    return plan::make_of_runs(self, self.scan_nvram(&signature, uuid, progress)?, home_blocks);
                }
                let found = runs::RunScan::new(self, start, &signature).run(progress)?;
                plan::make_of_runs(self, found, home_blocks)
            }
            None => plan::make(self, scan::Scan::new(self, start).run(progress)?, home_blocks),
        }
    }

    /// Takes an empty log as it is.
    ///
    /// # Errors
    /// Gives the log back if it is not empty.
    pub fn into_clean(self) -> Result<CleanLog, Box<UnrecoveredLog>> {
        if !self.is_clean() {
            return Err(Box::new(self));
        }
        // As the kernel: the number on an empty log counts as used.
        let next = self.superblock.sequence().next();
        Ok(CleanLog::new(self, next, Damage::default()))
    }

    /// Empties the log without replaying it: what the kernel does when the file system says that no recovery is
    /// needed.
    ///
    /// # Errors
    /// Device.
    pub fn discard(self, progress: &mut dyn FnMut(Progress)) -> Result<CleanLog, Error> {
        if self.is_clean() {
            return Ok(self.into_clean().expect("it is clean"));
        }
        // The numbers in the log must not be used again; if it cannot be read, at least the first is known.
        let start = self.superblock.start().expect("not clean");
        let last_used = match self.superblock.quire()? {
            Some(s) if s.in_nvram().is_some() => Ok(self.superblock.sequence()),
            Some(s) => runs::RunScan::new(&self, start, &s).run(progress).map(|f| f.last_used),
            None => scan::Scan::new(&self, start).run(progress).map(|f| f.end),
        };
        let end = last_used.unwrap_or(self.superblock.sequence());
        clean::empty_log(self, end.next(), Damage::default(), &mut None)
    }

    /// Gives up a log in NVRAM that is lost: every transaction from the one that the image expects on, if there were
    /// any. What lies at home is of different ages, so the file system needs a full check.
    ///
    /// # Errors
    /// Device. Unsupported: the log is not in NVRAM.
    pub fn abandon_nvram(self) -> Result<CleanLog, Error> {
        if self.needs_nvram().is_none() {
            return Err(Unsupported::new("discarding a log that is not in NVRAM").into());
        }
        let first = self.superblock.sequence();
        let damage = Damage { bad: Vec::new(), failed_commit: Some(first) };
        clean::empty_log(self, first.next(), damage, &mut None)
    }
}
