//! What operations share, and the loop that runs one: in memory, under the metadata mutex, until it succeeds or fails.

use super::discard::{discard, discard_freed};
use super::disk_error::DiskError;
use super::lifecycle::Lifecycle;
use crate::error::{Error, Result};
use crate::policy::MAX_WAITS_FOR_SPACE;
use crate::records;
use crate::tables::{Pool, Run, Tables};
use crate::txn::{Context, Op, Terms, WriteGate};
use quire_device::sync::{Arc, Mutex, MutexGuard, lock};
use quire_device::waits::waiting;
use quire_device::{Clock, WaitFor};
use quire_journal::{Journal, TxnHold};
use quire_layout::inode::Timestamp;
use quire_layout::{BlockNo, Tid};

/// Frees inodes that wait for eviction; true if it freed any. The engine calls it when space is short. It is a function
/// of a layer above, which the volume hands in.
pub(crate) type FreePending = fn(&Engine) -> bool;

/// What becomes of an operation that misses blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Misses {
    /// The caller waits until they are in memory, and the operation is run again.
    Load,
    /// It ends with [`Error::Miss`], and nothing has changed.
    Tell,
}

/// How an operation is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Manner {
    /// The account on which it takes blocks.
    pub pool: Pool,
    pub misses: Misses,
}

impl From<Pool> for Manner {
    fn from(pool: Pool) -> Self {
        Manner { pool, misses: Misses::Load }
    }
}

/// The metadata of a mounted file system, and how it changes.
pub(crate) struct Engine {
    pub context: Context,
    pub journal: Journal,
    pub clock: Arc<dyn Clock>,
    pub write_gate: WriteGate,
    /// Which calls that may change something are admitted.
    pub lifecycle: Lifecycle,
    /// An error that was met when none was admitted, so that the superblock does not have it yet.
    pub(super) unrecorded: Mutex<Option<DiskError>>,
    /// The metadata mutex. A holder does no I/O.
    tables: Mutex<Tables>,
    /// Held by whoever discards freed blocks, so that others who need them wait until they are available.
    discarding: Mutex<()>,
    free_pending: FreePending,
}

impl Engine {
    pub(crate) fn new(
        context: Context,
        journal: Journal,
        clock: Arc<dyn Clock>,
        write_gate: WriteGate,
        free_pending: FreePending,
    ) -> Self {
        let (tables, discarding) = (Mutex::new(Tables::new(Arc::new(context.sb.clone()))), Mutex::new(()));
        let (lifecycle, unrecorded) = (Lifecycle::new(), Mutex::default());
        Engine { context, journal, clock, write_gate, lifecycle, unrecorded, tables, discarding, free_pending }
    }

    /// Locks the in-memory tables, outside of an operation.
    pub(crate) fn tables(&self) -> MutexGuard<'_, Tables> {
        lock(&self.tables)
    }

    /// The time that files get now.
    pub(crate) fn now(&self) -> Timestamp {
        let t = self.clock.file_time();
        Timestamp { secs: i64::try_from(t.as_secs()).unwrap_or(Timestamp::MAX_SECS), nanos: t.subsec_nanos() }
    }

    /// Runs an operation until it succeeds or fails: again after each miss, and after a commit that frees space or log
    /// space. Does not record errors in the superblock. Returns also the transaction that the changes
    /// joined.
    ///
    /// # Errors
    /// The operation's; nothing has then changed.
    pub(super) fn run_loop<T>(
        &self,
        Manner { pool, misses }: Manner,
        mut f: impl FnMut(&mut Op<'_>) -> Result<T>,
    ) -> Result<(T, Tid)> {
        let journal = &self.journal;
        let mut waits = 0;
        loop {
            let terms = Terms { now: self.now(), pool };
            let reusable = journal.reusable();
            let mut tables = lock(&self.tables);
            if !self.context.runtime().discard {
                tables.space.release_up_to(reusable);
            }
            let sb = tables.sb.clone();
            let mut op = Op::new(&self.context, &sb, &self.write_gate, tables, journal.handle(), terms);
            let (error, of_data) = match f(&mut op).and_then(|value| records::seal(&mut op).map(|()| value)) {
                Ok(value) => match op.stop(|| journal.durable()) {
                    Ok(tid) => return Ok((value, tid)),
                    Err(full) if full.never_fits => {
                        let limit = journal.limit();
                        return Err(quire_journal::Error::TooLarge { blocks: full.blocks, limit }.into());
                    }
                    Err(_) if journal.is_held_here() => {
                        return Err(Error::BatchFull { limit: journal.limit() });
                    }
                    Err(_) => {
                        waiting(WaitFor::LogSpace, || journal.commit_all())?;
                        continue;
                    }
                },
                Err(e) => {
                    let of_data = op.misses_data();
                    drop(op);
                    (e, of_data)
                }
            };
            match error {
                Error::Miss(blocks) if misses == Misses::Load => self.load(&blocks, of_data)?,
                // Freeing unlinked inodes may give the space that is missing.
                Error::NoSpace | Error::NoSpaceYet(_) | Error::NoInodes if (self.free_pending)(self) => {}
                Error::NoSpaceYet(_) if journal.is_held_here() => return Err(Error::NoSpace),
                Error::NoSpaceYet(tid) if waits < MAX_WAITS_FOR_SPACE => {
                    waits += 1;
                    waiting(WaitFor::FreeSpace, || journal.make_reusable(tid))?;
                    if self.context.runtime().discard {
                        self.discard_freed_or_warn();
                    }
                }
                Error::NoSpaceYet(_) => return Err(Error::NoSpace),
                e => return Err(e),
            }
        }
    }

    /// Loads what an operation misses, the first block at least. `of_data`: file data, of which the error tells as that
    /// of any other read of file data does (`Engine::note_error`).
    fn load(&self, blocks: &[BlockNo], of_data: bool) -> Result<()> {
        match self.journal.load(blocks) {
            Ok(_) => Ok(()),
            Err(quire_journal::Error::Device(e)) if of_data => Err(Error::Device(e)),
            Err(e) => Err(e.into()),
        }
    }

    /// Begins a batch: until it is dropped, operations of this thread share one transaction, which becomes durable as a
    /// whole. Commits wait for the batch; a call in it that asks for durability gets it with the batch. Operations that
    /// one transaction cannot hold are refused; what was changed before the batch is committed first, so that it takes
    /// no space from the batch.
    ///
    /// # Errors
    /// That commit's.
    pub(crate) fn begin_batch(&self) -> Result<Batch<'_>> {
        self.journal.commit_all()?;
        Ok(Batch { hold: self.journal.hold() })
    }

    /// Discards the blocks that durable transactions have freed and makes them available again. Returns the bytes
    /// discarded.
    ///
    /// # Errors
    /// I/O; the blocks are available all the same.
    pub(crate) fn discard_freed(&self) -> Result<u64> {
        let _discarding = lock(&self.discarding);
        discard_freed(&self.journal, self.context.block_size(), &self.tables)
    }

    /// As [`Engine::discard_freed`]. A discard that fails loses nothing, and is no error of the caller's.
    pub(crate) fn discard_freed_or_warn(&self) -> u64 {
        self.discard_freed().inspect_err(|e| tracing::warn!("discard: {e}")).unwrap_or(0)
    }

    /// As another thread that discards what was freed, for a test: holds the blocks until the guard is given back.
    #[cfg(test)]
    pub(crate) fn take_for_discard(&self) -> (MutexGuard<'_, ()>, Vec<Run>) {
        let discarding = lock(&self.discarding);
        let runs = lock(&self.tables).space.take_durable(self.journal.reusable());
        (discarding, runs)
    }

    /// Discards runs of blocks; returns the bytes discarded.
    ///
    /// # Errors
    /// I/O.
    pub(crate) fn discard(&self, runs: &[Run]) -> Result<u64> {
        discard(&self.journal, self.context.block_size(), runs)
    }
}

/// Operations that share one transaction.
pub struct Batch<'v> {
    hold: TxnHold<'v>,
}

impl Batch<'_> {
    /// The transaction that the operations share.
    #[must_use]
    pub fn tid(&self) -> Tid {
        self.hold.tid()
    }
}
