//! Directories over an [`Op`]: names to inodes.
//!
//! Guarantees: names are found in O(log n) in an indexed directory; whatever is changed leaves blocks that e2fsck calls
//! clean (D1); a broken directory is a typed error that names the block, never a panic or an endless walk (D2); a listing
//! neither loses nor repeats a name that stays, whatever else is added or removed meanwhile (D3); a name that is there is
//! found (D4); memory does not grow with the directory (D5).
//! Relies on: an operation that fails is undone as a whole, so these functions may return an error at any point.
//!
//! With `dir_index`, a directory is one linear block until that overflows; then an htree, which only grows. Without it, and
//! where several linear blocks are there already, it is and stays linear.
//! The caller sets the directory's times and link count; size and flags are set here, in the inode passed and on disk.

mod blocks;
mod inline;
mod insert;
mod read;
mod scan;
mod tree;

#[cfg(test)]
mod tests;

use crate::error::{Error, Result};
use crate::op::Op;
use blocks::Dir;
use quire_layout::dir::{FileType, is_dot, is_name};
use quire_layout::inline_data::is_inline;
use quire_layout::inode::Inode;
use quire_layout::{BlockNo, Corrupt, Ino, Structure};

pub use insert::{add, init};
pub use read::{DirItem, read};
pub(crate) use scan::Scans;
pub use scan::is_empty;

/// A name's entry and where it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    pub ino: Ino,
    /// `Unknown` on file systems without `filetype`: the inode knows.
    pub file_type: FileType,
    block: BlockNo,
    offset: usize,
}

/// The longest name, in bytes.
pub const MAX_NAME: usize = 255;

/// Directories in their inode are only read; the feature makes the mount read-only.
///
/// # Errors
/// Read-only.
pub fn check_writable(inode: &Inode) -> Result<()> {
    if is_inline(inode) { Err(Error::ReadOnly("inline directory")) } else { Ok(()) }
}

fn check_name(name: &[u8]) -> Result<()> {
    match name.len() {
        _ if is_name(name) => Ok(()),
        0 => Err(Error::NotFound),
        n if n > MAX_NAME => Err(Error::NameTooLong),
        _ => Err(Error::Invalid("a name holds neither NUL nor a slash")),
    }
}

/// The entry of a name; `.` and `..` too.
///
/// # Errors
/// A name that cannot be; not a directory; corrupt.
pub fn lookup(op: &mut Op<'_>, ino: Ino, inode: &Inode, name: &[u8]) -> Result<Option<Entry>> {
    check_name(name)?;
    if is_inline(inode) {
        return inline::lookup(op, ino, inode, name);
    }
    let dir = Dir::new(op, ino, inode)?;
    if dir.blocks == 0 {
        return Ok(None);
    }
    if is_dot(name) {
        return dir.dot(op, inode, name).map(Some);
    }
    if dir.indexed {
        return tree::find(op, &dir, inode, name);
    }
    let mut search = scan::NameSearch::begin(op, &dir, inode, name);
    for n in search.from()..dir.blocks {
        let (block, image) = dir.linear(op, inode, n)?;
        search.reached(op, n);
        if let Some(e) = dir.format.find(&image, name).map_err(|c| c.at(block))? {
            return Ok(Some(Entry { ino: e.ino, file_type: e.file_type, block, offset: e.offset }));
        }
    }
    search.reached(op, dir.blocks);
    Ok(None)
}

/// The entry of a name that may be changed: not `.` and `..`.
fn changeable(op: &mut Op<'_>, ino: Ino, inode: &Inode, name: &[u8]) -> Result<(Dir, Entry)> {
    if is_dot(name) {
        return Err(Error::Invalid(". and .. stay"));
    }
    check_writable(inode)?;
    let entry = lookup(op, ino, inode, name)?.ok_or(Error::NotFound)?;
    Ok((Dir::new(op, ino, inode)?, entry))
}

/// Removes a name; gives what it named. Blocks stay, even without names.
///
/// # Errors
/// Not found; corrupt; read-only.
pub fn remove(op: &mut Op<'_>, ino: Ino, inode: &Inode, name: &[u8]) -> Result<Entry> {
    let (_, entry) = changeable(op, ino, inode, name)?;
    remove_found(op, ino, inode, name, entry)?;
    Ok(entry)
}

/// As [`remove`], of an entry that this operation has looked up; it is not `.` or `..`.
///
/// # Errors
/// Corrupt; read-only.
pub fn remove_found(op: &mut Op<'_>, ino: Ino, inode: &Inode, name: &[u8], entry: Entry) -> Result<()> {
    check_writable(inode)?;
    let dir = Dir::new(op, ino, inode)?;
    op.state_mut().scans.has_room_again(ino);
    if dir.is_long(op) {
        op.deferred.long_dirs.push((ino, name.to_vec()));
    }
    dir.format.remove(op.block_mut(entry.block)?, entry.offset).map_err(|c| c.at(entry.block))?;
    Ok(())
}

/// Lets an existing name mean another inode; gives what it named before.
///
/// # Errors
/// Not found; corrupt; read-only.
pub fn replace(op: &mut Op<'_>, ino: Ino, inode: &Inode, name: &[u8], to: Ino, file_type: FileType) -> Result<Entry> {
    let (dir, entry) = changeable(op, ino, inode, name)?;
    dir.format.replace(op.block_mut(entry.block)?, entry.offset, to, file_type).map_err(|c| c.at(entry.block))?;
    Ok(entry)
}

/// What `..` names.
///
/// # Errors
/// Corrupt; not found in a directory that was removed.
pub fn parent(op: &mut Op<'_>, ino: Ino, inode: &Inode) -> Result<Ino> {
    Ok(lookup(op, ino, inode, b"..")?.ok_or(Error::NotFound)?.ino)
}

/// Lets `..` name another directory.
///
/// # Errors
/// Corrupt; read-only; not found in a directory that was removed.
pub fn set_parent(op: &mut Op<'_>, ino: Ino, inode: &Inode, parent: Ino) -> Result<()> {
    check_writable(inode)?;
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

fn corrupt(why: &'static str, dir: Ino) -> Corrupt {
    Corrupt::new(Structure::DirectoryBlock, why).of(dir.0)
}
