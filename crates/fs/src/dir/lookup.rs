//! Finding names.

use super::blocks::Dir;
use super::entry::{Entry, check_name};
use super::name_search::NameSearch;
use super::tree;
use crate::error::{Error, Result};
use crate::txn::Op;
use quire_layout::Ino;
use quire_layout::dir::is_dot;
use quire_layout::inode::Inode;

/// The entry of a name; `.` and `..` too.
///
/// # Errors
/// A name that cannot be; not a directory; corrupt.
pub fn lookup(op: &mut Op<'_>, ino: Ino, inode: &Inode, name: &[u8]) -> Result<Option<Entry>> {
    check_name(name)?;
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
    let mut search = NameSearch::begin(op, &dir, inode, name);
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

/// The directory that `..` names.
///
/// # Errors
/// Corrupt; not found in a directory that was removed.
pub fn parent(op: &mut Op<'_>, ino: Ino, inode: &Inode) -> Result<Ino> {
    Ok(lookup(op, ino, inode, b"..")?.ok_or(Error::NotFound)?.ino)
}
