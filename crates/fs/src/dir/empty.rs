//! Whether a directory is empty, examined a few blocks at a time (`super::name_search` says how).

use super::item::DirItem;
use super::read::read;
use crate::error::Result;
use crate::txn::Op;
use quire_layout::Ino;
use quire_layout::dir::is_dot;
use quire_layout::inode::Inode;

/// True if nothing but `.` and `..` is in the directory. To be asked before the same operation changes the directory.
///
/// # Errors
/// Corrupt; not a directory.
pub fn is_empty(op: &mut Op<'_>, ino: Ino, inode: &Inode) -> Result<bool> {
    loop {
        let from = op.tables().scans.cookie(ino, inode);
        let mut empty = true;
        let next = read(op, ino, inode, from, &mut |i: DirItem<'_>| {
            empty = is_dot(i.name);
            empty
        })?;
        match next {
            Some(cookie) if empty => op.tables_mut().scans.remember_empty(ino, inode, cookie),
            _ => {
                op.tables_mut().scans.empty.remove(&ino);
                return Ok(empty);
            }
        }
    }
}
