//! What writes and truncates are going to read of a file's map, and of the bitmaps, before they change anything.
//!
//! Only misses are told; other errors are the change's own to find.

use super::blocks::runs;
use super::context::Data;
use crate::error::{Error, Result};
use crate::map;
use crate::records;
use crate::txn::Op;
use quire_layout::inline_data::is_inline;
use quire_layout::inode::Inode;
use quire_layout::{FileBlock, Ino};

/// The map of the bytes that are to be written.
///
/// # Errors
/// A miss.
pub(crate) fn foresee_write(op: &mut Op<'_>, ino: Ino, inode: &Inode, offset: u64, bytes: u64) -> Result<()> {
    let bs = op.sb().block_size();
    let last = offset.saturating_add(bytes.saturating_sub(1));
    let (true, Some(from), Some(last)) = (has_map(inode), bs.file_block(offset), bs.file_block(last)) else {
        return Ok(());
    };
    match runs(op, ino, inode, from, last.plus(1)) {
        Err(miss @ Error::Miss(_)) => Err(miss),
        _ => Ok(()),
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
