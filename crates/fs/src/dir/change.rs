//! Removing names, and giving them other inodes.

use super::blocks::Dir;
use super::entry::Entry;
use super::inline;
use super::lookup::lookup;
use crate::error::{Error, Result};
use crate::txn::Op;
use quire_layout::Ino;
use quire_layout::dir::{FileType, is_dot};
use quire_layout::inline_data::is_inline;
use quire_layout::inode::Inode;

/// The entry of a name that may be changed: not `.` and `..`.
fn changeable(op: &mut Op<'_>, ino: Ino, inode: &Inode, name: &[u8]) -> Result<Entry> {
    if is_dot(name) {
        return Err(Error::Invalid(". and .. stay"));
    }
    lookup(op, ino, inode, name)?.ok_or(Error::NotFound)
}

/// Removes a name and returns its entry. Blocks stay, even without names.
///
/// # Errors
/// Not found; corrupt; read-only.
pub fn remove(op: &mut Op<'_>, ino: Ino, inode: &mut Inode, name: &[u8]) -> Result<Entry> {
    let entry = changeable(op, ino, inode, name)?;
    remove_found(op, ino, inode, name, entry)?;
    Ok(entry)
}

/// As [`remove`], of an entry that this operation has looked up; it is not `.` or `..`.
///
/// # Errors
/// Corrupt; read-only.
pub fn remove_found(op: &mut Op<'_>, ino: Ino, inode: &mut Inode, name: &[u8], entry: Entry) -> Result<()> {
    if is_inline(inode) {
        return inline::remove(op, ino, inode, entry);
    }
    let dir = Dir::new(op, ino, inode)?;
    op.tables_mut().scans.has_room_again(ino);
    if dir.is_long(op) {
        op.deferred.long_dirs.push((ino, name.to_vec()));
    }
    dir.format.remove(op.block_mut(entry.block)?, entry.offset).map_err(|c| c.at(entry.block))?;
    Ok(())
}

/// Has an existing name mean another inode; returns the old entry.
///
/// # Errors
/// Not found; corrupt; read-only.
pub fn replace(
    op: &mut Op<'_>,
    ino: Ino,
    inode: &mut Inode,
    name: &[u8],
    to: Ino,
    file_type: FileType,
) -> Result<Entry> {
    let entry = changeable(op, ino, inode, name)?;
    if is_inline(inode) {
        inline::replace(op, ino, inode, entry, (to, file_type))?;
        return Ok(entry);
    }
    let dir = Dir::new(op, ino, inode)?;
    dir.format.replace(op.block_mut(entry.block)?, entry.offset, to, file_type).map_err(|c| c.at(entry.block))?;
    Ok(entry)
}

/// Has `..` name another directory.
///
/// # Errors
/// Corrupt; read-only; not found in a directory that was removed.
pub fn set_parent(op: &mut Op<'_>, ino: Ino, inode: &mut Inode, parent: Ino) -> Result<()> {
    if is_inline(inode) {
        return inline::set_parent(op, ino, inode, parent);
    }
    let entry = lookup(op, ino, inode, b"..")?.ok_or(Error::NotFound)?;
    let dir = Dir::new(op, ino, inode)?;
    let bytes = op.block_mut(entry.block)?;
    if dir.indexed {
        let (_, node) = dir.format.root(bytes, ino).map_err(|c| c.at(entry.block))?;
        dir.format.set_root_parent(bytes, node, parent);
    } else {
        dir.format.replace(bytes, entry.offset, parent, FileType::Directory).map_err(|c| c.at(entry.block))?;
    }
    Ok(())
}
