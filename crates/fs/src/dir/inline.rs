//! Directories inside their inode (`inline_data`): read, not written. `.` and `..` are not stored as entries.

use super::entry::{Entry, corrupt};
use super::item::{DirItem, Sink};
use crate::error::{Error, Result};
use crate::txn::Op;
use quire_layout::bytes::le32;
use quire_layout::dir::{DirFormat, FileType, is_name};
use quire_layout::inode::Inode;
use quire_layout::{BlockNo, Ino, inline_data};

struct Name {
    ino: Ino,
    file_type: FileType,
    name: Vec<u8>,
}

/// All names, `.` and `..` first. They are few: an inode is small.
fn names(op: &Op<'_>, ino: Ino, inode: &Inode) -> Result<Vec<Name>> {
    if !inode.is_dir() {
        return Err(Error::NotDir);
    }
    let format = DirFormat::of(op.sb(), ino, inode);
    let area = inode.block_area();
    let parent = Ino(le32(area, 0));
    if parent.0 == 0 || parent.0 > op.sb().inodes_count() {
        return Err(corrupt("inline directory without a parent", ino).into());
    }
    let dot = |ino, name: &[u8]| Name { ino, file_type: FileType::Directory, name: name.to_vec() };
    let mut out = vec![dot(ino, b"."), dot(parent, b"..")];
    for area in [&area[4..], &inline_data::tail(ino, inode)?] {
        for e in format.inline_entries(area) {
            let e = e.map_err(|c| c.of(ino.0))?;
            if e.is_used() && !is_name(e.name) {
                return Err(corrupt("name holds a NUL or a slash", ino).into());
            }
            if e.is_used() {
                out.push(Name { ino: e.ino, file_type: e.file_type, name: e.name.to_vec() });
            }
        }
    }
    Ok(out)
}

pub(super) fn lookup(op: &Op<'_>, ino: Ino, inode: &Inode, name: &[u8]) -> Result<Option<Entry>> {
    let found = names(op, ino, inode)?.into_iter().find(|n| n.name == name);
    Ok(found.map(|n| Entry { ino: n.ino, file_type: n.file_type, block: BlockNo(0), offset: 0 }))
}

/// Cookies count the names: nothing changes them.
pub(super) fn read(op: &Op<'_>, ino: Ino, inode: &Inode, cookie: u64, sink: &mut Sink<'_>) -> Result<Option<u64>> {
    for (next_cookie, n) in (1..).zip(names(op, ino, inode)?).filter(|(next, _)| *next > cookie) {
        if !sink(DirItem { ino: n.ino, name: &n.name, file_type: n.file_type, next_cookie }) {
            return Ok(Some(next_cookie - 1));
        }
    }
    Ok(None)
}
