//! What writes and truncates are going to read of a file's map, of blocks that are written in part, and of the bitmaps
//! of blocks that are freed, before they change anything.
//!
//! Only misses are told; other errors are the change's own to find.

use super::blocks::runs;
use super::context::Data;
use crate::error::{Error, Result};
use crate::map::{self, Mapping};
use crate::policy::EXTENTS_TO_FORESEE;
use crate::space::{self, Run};
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
        only_misses(runs(op, ino, inode, self.blocks.start, self.blocks.end).and_then(|runs| self.edges_in(op, &runs)))
    }

    fn edges_in(&self, op: &mut Op<'_>, runs: &[(FileBlock, Mapping)]) -> Result<()> {
        let home = |b: &FileBlock| {
            let (at, run) = runs.iter().rfind(|(at, _)| at <= b)?;
            Some(run.written()?.plus(u64::from(b.0 - at.0)))
        };
        let homes = self.edges.iter().filter_map(home);
        let missing: Vec<_> = homes.filter(|home| op.block_in_memory(*home).is_none()).collect();
        if missing.is_empty() { Ok(()) } else { Err(Error::Miss(missing)) }
    }
}

/// What freeing the blocks behind a file's new end reads: the map there, and the bitmaps.
///
/// # Errors
/// A miss.
pub(crate) fn foresee_truncate(op: &mut Op<'_>, ino: Ino, inode: &Inode, size: u64) -> Result<()> {
    let from = u32::try_from(op.sb().block_size().blocks_for(size));
    let (true, Ok(from)) = (has_map(inode) && size < inode.size(), from) else { return Ok(()) };
    only_misses(map::extents(op, ino, inode, FileBlock(from), EXTENTS_TO_FORESEE).and_then(|freed| {
        let runs: Vec<Run> = freed.iter().map(|e| Run::new(e.phys, e.len)).collect();
        space::want_bitmaps(op, &runs)
    }))
}

fn only_misses(found: Result<()>) -> Result<()> {
    match found {
        Err(miss @ Error::Miss(_)) => Err(miss),
        _ => Ok(()),
    }
}

fn has_map(inode: &Inode) -> bool {
    inode.is_file() && !is_inline(inode)
}
