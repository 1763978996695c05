//! The block that a directory in its inode would be: what lookups and listings read.

use super::entry::corrupt;
use crate::error::{Error, Result};
use crate::txn::Op;
use quire_device::Buf;
use quire_device::sync::Arc;
use quire_journal::Image;
use quire_layout::Ino;
use quire_layout::bytes::le32;
use quire_layout::dir::{DirFormat, inline};
use quire_layout::inline_data::{PARENT, tail};
use quire_layout::inode::Inode;

/// The block that the directory would be.
pub(super) fn as_block(op: &Op<'_>, ino: Ino, inode: &Inode) -> Result<Image> {
    if !inode.is_dir() {
        return Err(Error::NotDir);
    }
    let area = inode.block_area();
    let parent = Ino(le32(area, 0));
    if parent.0 == 0 || parent.0 > op.sb().inodes_count() {
        return Err(corrupt("inline directory without a parent", ino).into());
    }
    let mut block = Buf::zeroed(op.sb().block_size().bytes());
    let places = [&area[PARENT..], &tail(ino, inode)?];
    let format = DirFormat::of(op.sb(), ino, inode);
    inline::to_block(&format, &mut block, (ino, parent), places).map_err(|c| c.of(ino.0))?;
    Ok(Arc::new(block))
}
