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
mod judge;
mod load;
mod nvram;
mod plan;
mod progress;
mod replay;
mod runs;
mod scan;
mod undo;
mod unrecovered;

pub use clean::{CleanLog, Damage, mark_recovered, superblock_place};
pub use external::open_external;
pub use nvram::{NvramTransaction, list_nvram};
pub use plan::{BadBlock, BadReason, Plan, Planned};
pub use progress::{Phase, Progress};
pub use undo::{SavedFrom, Undo};
pub use unrecovered::UnrecoveredLog;

use crate::error::Error;
use crate::geometry::LogWindow;
use quire_layout::Unsupported;

impl UnrecoveredLog {
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
                    let found = self.scan_nvram(&signature, uuid, progress)?;
                    let window = LogWindow::new(&self.geometry, self.superblock.end());
                    return judge::plan_of_runs(self, found, window, home_blocks);
                }
                let (found, window) = runs::RunScan::new(self, start, &signature).run(progress)?;
                judge::plan_of_runs(self, found, window, home_blocks)
            }
            None => {
                let (found, window) = scan::Scan::new(self, start).run(progress)?;
                judge::plan_of_blocks(self, found, window, home_blocks)
            }
        }
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
            Some(s) => runs::RunScan::new(&self, start, &s).run(progress).map(|(f, _)| f.last_used),
            None => scan::Scan::new(&self, start).run(progress).map(|(f, _)| f.last_used),
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
