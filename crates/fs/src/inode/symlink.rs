//! Targets of symbolic links.

use super::types::Cred;
use crate::error::{Error, Result};
use crate::map::{self, Mapping};
use crate::txn::{Op, block_kinds};
use crate::xattr;
use quire_layout::features::incompat;
use quire_layout::inline_data::is_inline;
use quire_layout::inode::{Inode, flags};
use quire_layout::superblock::Superblock;
use quire_layout::xattr::Namespace;
use quire_layout::{Corrupt, FileBlock, Ino, Structure};

/// Bytes of `i_block`; a shorter target lies there, with a NUL behind it.
const FAST_SYMLINK: u64 = 60;

/// True if a symbolic link's target is in `i_block`: the link owns no blocks but that of its attributes. With
/// `ea_inode`, which counts other inodes' blocks as the link's, its length decides.
pub(crate) fn is_fast_symlink(sb: &Superblock, inode: &Inode) -> bool {
    if !inode.is_symlink() {
        return false;
    }
    if sb.features().has_incompat(incompat::EA_INODE) {
        return (1..FAST_SYMLINK).contains(&inode.size());
    }
    let bs = sb.block_size().bytes64();
    let attributes = if inode.xattr_block().is_some() { sb.cluster_blocks() * bs / 512 } else { 0 };
    !is_inline(inode) && inode.sectors(sb.features(), bs) == attributes
}

/// Checks that a fast link's text is as long as the inode says. Whatever is done with it otherwise, the text could be
/// taken for a block map.
///
/// # Errors
/// Corrupt, with the inode.
pub(super) fn check_fast(sb: &Superblock, ino: Ino, inode: &Inode) -> Result<(), Corrupt> {
    if !is_fast_symlink(sb, inode) || inode.has(flags::ENCRYPT) {
        return Ok(());
    }
    let text = text(inode.block_area()).len() as u64;
    if text == inode.size() && (1..FAST_SYMLINK).contains(&text) {
        return Ok(());
    }
    Err(Corrupt::new(Structure::Symlink, "its text in the inode is not as long as it says").of(ino.0))
}

/// The bytes before the first NUL.
fn text(bytes: &[u8]) -> &[u8] {
    bytes.split(|b| *b == 0).next().unwrap_or_default()
}

/// Stores the target of a new symbolic link: in the inode if it is short, else in one block.
///
/// # Errors
/// Not found: an empty target. Name too long; invalid; no space; miss.
pub(super) fn write_target(op: &mut Op<'_>, ino: Ino, inode: &mut Inode, target: &[u8], cred: Cred) -> Result<()> {
    let block_size = op.sb().block_size().bytes();
    if target.is_empty() {
        return Err(Error::NotFound);
    }
    if target.contains(&0) {
        return Err(Error::Invalid("a target holds no NUL"));
    }
    // The kernel wants a NUL after it.
    if target.len() + 1 > block_size {
        return Err(Error::NameTooLong);
    }
    if (target.len() as u64) < FAST_SYMLINK {
        inode.set_flags(inode.flags() & !flags::EXTENTS);
        let area = inode.block_area_mut();
        area.fill(0);
        area[..target.len()].copy_from_slice(target);
    } else {
        let (b, _) = map::allocate(op, ino, inode, FileBlock(0), 1, cred.pool(op))?;
        op.block_new(b, block_kinds::PARTS)?[..target.len()].copy_from_slice(target);
    }
    inode.set_size(u64::try_from(target.len()).expect("less than a block"));
    Ok(())
}

/// The target of a symbolic link.
///
/// # Errors
/// Invalid: no symbolic link. Corrupt; miss.
pub(crate) fn read_target(op: &mut Op<'_>, ino: Ino, inode: &Inode) -> Result<Vec<u8>> {
    if !inode.is_symlink() {
        return Err(Error::Invalid("not a symbolic link"));
    }
    let bad = |why| Corrupt::new(Structure::Symlink, why).of(ino.0);
    let sb = op.sb();
    let bytes = if is_inline(inode) {
        let rest = xattr::get(op, ino, inode, Namespace::SYSTEM, b"data")?.unwrap_or_default();
        [&inode.block_area()[..], &rest].concat()
    } else if is_fast_symlink(sb, inode) {
        check_fast(sb, ino, inode)?;
        inode.block_area().to_vec()
    } else {
        match map::lookup(op, ino, inode, FileBlock(0), 1)? {
            Mapping::Mapped { phys, unwritten: false, .. } => op.block_of_parts(phys)?.to_vec(),
            _ => return Err(bad("has no block").into()),
        }
    };
    // As the kernel: a link outside of i_block may say that it is longer than its text.
    let len = usize::try_from(inode.size()).unwrap_or(usize::MAX).min(bytes.len());
    match text(&bytes[..len]) {
        [] => Err(bad("is empty").into()),
        target => Ok(target.to_vec()),
    }
}
