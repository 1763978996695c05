//! What writes and truncates are going to read of a file's map, of the bitmaps, and of blocks that are written in part,
//! before they change anything.
//!
//! Only misses are told; other errors are the change's own to find.

use super::blocks::runs;
use super::context::Data;
use crate::error::{Error, Result};
use crate::map;
use crate::records;
use crate::txn::Op;
use quire_device::sync::lock;
use quire_layout::inline_data::is_inline;
use quire_layout::inode::Inode;
use quire_layout::{FileBlock, Ino};
use std::ops::Range;

/// Bytes that are about to be written to a file.
pub(crate) struct Coming {
    blocks: Range<FileBlock>,
    /// Blocks that they cover in part, and of which no page is in memory.
    edges: Vec<FileBlock>,
}

/// What is known of a write before its operation. `None`: there is nothing to look for.
pub(crate) fn coming_write(d: &Data, ino: Ino, offset: u64, bytes: u64) -> Option<Coming> {
    let bs = d.block_size();
    let end = offset.checked_add(bytes).filter(|end| *end > offset)?;
    let (first, last) = (bs.file_block(offset)?, bs.file_block(end - 1)?);
    let in_part = [(first, offset), (last, end)].into_iter().filter(|(_, at)| !at.is_multiple_of(bs.bytes64()));
    let mut edges: Vec<FileBlock> = in_part.map(|(b, _)| b).collect();
    edges.dedup();
    if !edges.is_empty()
        && let Some(file) = d.files.find(ino)
    {
        let s = file.lock();
        edges.retain(|b| s.page(*b).is_none());
    }
    if !edges.is_empty() {
        let clean = lock(&d.files.clean);
        edges.retain(|b| !clean.has(ino, *b));
    }
    Some(Coming { blocks: first..last.plus(1), edges })
}

impl Coming {
    /// Misses the map of the blocks, and what the edges hold.
    ///
    /// # Errors
    /// A miss.
    pub(crate) fn foresee(&self, op: &mut Op<'_>, ino: Ino, inode: &Inode) -> Result<()> {
        if !has_map(inode) {
            return Ok(());
        }
        let found = runs(op, ino, inode, self.blocks.start, self.blocks.end);
        let runs = match found {
            Err(miss @ Error::Miss(_)) => return Err(miss),
            Err(_) => return Ok(()),
            Ok(runs) => runs,
        };
        let home = |b: &FileBlock| {
            let (at, run) = runs.iter().rfind(|(at, _)| at <= b)?;
            Some(run.written()?.plus(u64::from(b.0 - at.0)))
        };
        let homes = self.edges.iter().filter_map(home);
        let missing: Vec<_> = homes.filter(|home| op.block_in_memory(*home).is_none()).collect();
        if missing.is_empty() { Ok(()) } else { Err(Error::Miss(missing)) }
    }
}

/// What the first operation that frees blocks reads: it is run, and taken back.
///
/// # Errors
/// A miss.
pub(crate) fn foresee_truncate(d: &Data, ino: Ino, size: u64) -> Result<()> {
    let Ok(from) = u32::try_from(d.block_size().blocks_for(size)) else { return Ok(()) };
    let budget = d.engine.step_budget();
    d.engine.rehearse(|op| {
        let mut inode = records::inode(op, ino)?;
        if has_map(&inode) {
            map::remove_all(op, ino, &mut inode, FileBlock(from), budget)?;
        }
        Ok(())
    })
}

fn has_map(inode: &Inode) -> bool {
    inode.is_file() && !is_inline(inode)
}
