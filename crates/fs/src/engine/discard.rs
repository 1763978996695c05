//! Discards of freed blocks, once the transaction that freed them is durable (A2).

use crate::error::Result;
use crate::tables::{Run, Tables};
use quire_device::Io;
use quire_device::sync::{Mutex, lock};
use quire_journal::Journal;
use quire_layout::BlockSize;

/// Discards runs of blocks on the device; returns the bytes discarded.
///
/// # Errors
/// I/O.
pub(super) fn discard(journal: &Journal, bs: BlockSize, runs: &[Run]) -> Result<u64> {
    let device = journal.gate().device();
    if runs.is_empty() || !device.info().discards {
        return Ok(0);
    }
    let io = |r: &Run| Io::Discard { at: bs.offset(r.start), len: u64::from(r.len) << bs.bits() };
    let done = device.run(runs.iter().map(io).collect());
    // The images in memory are not what lies there any more (Q3).
    journal.written_in_place(runs.iter().map(|r| (r.start, r.len)));
    done?;
    Ok(runs.iter().map(|r| u64::from(r.len) << bs.bits()).sum())
}

/// Discards the blocks that durable transactions have freed and makes them available again.
///
/// # Errors
/// I/O; the blocks are available all the same.
pub(super) fn discard_freed(journal: &Journal, bs: BlockSize, tables: &Mutex<Tables>) -> Result<u64> {
    let reusable = journal.reusable();
    let runs = lock(tables).space.take_durable(reusable);
    let discarded = discard(journal, bs, &runs);
    lock(tables).space.release(&runs);
    discarded
}
