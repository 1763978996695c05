//! Directories inside their inode (`inline_data`).
//!
//! ```text
//! i_block  parent, entries ─┐                          ┌─> lookups and listings: `.`, `..`, entries
//! system.data      entries ─┴─> the block they would be ┴─> that block, before a name is added
//! ```
//! A name keeps its cookie when its directory leaves the inode (D3), because both are read in the same way: as that
//! block. Names are removed and get other inodes in place: that takes no space.
//!
//! *Guarantees* D6 (docs/invariants.md): the operation that takes a directory out of its inode has all its names in the
//! new block.

use super::blocks::Dir;
use super::entry::Entry;
use super::inline_block::as_block;
use crate::error::{Error, Result};
use crate::records;
use crate::space::Pool;
use crate::txn::Op;
use crate::txn::block_kinds as kinds;
use crate::xattr;
use quire_layout::bytes::put_le32;
use quire_layout::dir::{DirFormat, FileType, inline};
use quire_layout::inline_data::{ENTRIES, PARENT, is_inline, tail};
use quire_layout::inode::Inode;
use quire_layout::{Corrupt, Ino};

/// Takes the directory out of its inode, if it is there: into its first block, from `pool`.
///
/// # Errors
/// No space; corrupt; miss.
pub(super) fn leave_inode(op: &mut Op<'_>, ino: Ino, inode: &mut Inode, pool: Pool) -> Result<()> {
    if !is_inline(inode) {
        return Ok(());
    }
    let image = as_block(op, ino, inode)?;
    xattr::clear_inline_data(op, ino, inode)?;
    inode.set_size(0);
    let mut dir = Dir { pool, ..Dir::new(op, ino, inode)? };
    let (_, block) = dir.grow(op, inode)?;
    op.block_new(block, kinds::DIR_LEAF)?.copy_from_slice(&image);
    Ok(())
}

/// Changes the place in the inode that holds an entry, by `f`, which gets the entry's byte there.
fn change(
    op: &mut Op<'_>,
    ino: Ino,
    inode: &mut Inode,
    entry: Entry,
    f: impl FnOnce(&mut [u8], usize) -> Result<(), Corrupt>,
) -> Result<()> {
    let at = inline::place(entry.offset).ok_or(Error::Invalid(". and .. stay"))?;
    match at.checked_sub(ENTRIES) {
        None => f(&mut inode.block_area_mut()[PARENT..], at).map_err(|c| c.of(ino.0))?,
        Some(at) => {
            let mut tail = tail(ino, inode)?;
            f(&mut tail, at).map_err(|c| c.of(ino.0))?;
            xattr::set_inline_tail(op, ino, inode, &tail)?;
        }
    }
    records::put_inode(op, ino, inode)
}

pub(super) fn remove(op: &mut Op<'_>, ino: Ino, inode: &mut Inode, entry: Entry) -> Result<()> {
    let format = DirFormat::of(op.sb(), ino, inode);
    change(op, ino, inode, entry, |area, at| inline::remove(&format, area, at))
}

pub(super) fn replace(
    op: &mut Op<'_>,
    ino: Ino,
    inode: &mut Inode,
    entry: Entry,
    (to, file_type): (Ino, FileType),
) -> Result<()> {
    let format = DirFormat::of(op.sb(), ino, inode);
    change(op, ino, inode, entry, |area, at| inline::replace(&format, area, at, (to, file_type)))
}

pub(super) fn set_parent(op: &mut Op<'_>, ino: Ino, inode: &mut Inode, parent: Ino) -> Result<()> {
    put_le32(inode.block_area_mut(), 0, parent.0);
    records::put_inode(op, ino, inode)
}
