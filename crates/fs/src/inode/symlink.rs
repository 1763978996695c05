//! Targets of symbolic links.

use super::types::Cred;
use crate::error::{Error, Result};
use crate::map::{self, Mapping};
use crate::txn::{Op, block_kinds};
use crate::xattr;
use quire_layout::inode::{Inode, flags};
use quire_layout::xattr::Namespace;
use quire_layout::{Corrupt, FileBlock, Ino, Structure};

/// Bytes of `i_block`; a shorter target lies there.
const FAST_SYMLINK: usize = 60;

/// True if a symbolic link's target is in the inode.
pub(crate) fn is_fast_symlink(inode: &Inode) -> bool {
    let short = usize::try_from(inode.size()).is_ok_and(|n| n < FAST_SYMLINK);
    inode.is_symlink() && short && !inode.uses_extents()
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
    if target.len() < FAST_SYMLINK {
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
    let block_size = op.sb().block_size().bytes();
    let len = usize::try_from(inode.size()).ok().filter(|n| (1..=block_size).contains(n));
    let len = len.ok_or_else(|| bad("impossible length"))?;
    let target = if inode.has(flags::INLINE_DATA) {
        let rest = xattr::get(op, ino, inode, Namespace::SYSTEM, b"data")?.unwrap_or_default();
        [&inode.block_area()[..], &rest].concat()
    } else if is_fast_symlink(inode) {
        inode.block_area().to_vec()
    } else {
        match map::lookup(op, ino, inode, FileBlock(0), 1)? {
            Mapping::Mapped { phys, unwritten: false, .. } => op.block_of_parts(phys)?.to_vec(),
            _ => return Err(bad("has no block").into()),
        }
    };
    match target.get(..len) {
        Some(t) if !t.contains(&0) => Ok(t.to_vec()),
        _ => Err(bad("target is shorter than its length").into()),
    }
}
