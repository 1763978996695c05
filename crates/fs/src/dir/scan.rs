//! Is a directory empty? Of any size, with few blocks in memory at once.
//!
//! A large directory whose names are gone still has its blocks. Looking at all of them in one go may need more than the
//! cache holds, and an operation that misses begins again. So what has been seen to be empty is remembered, and is so until a
//! name is added: that counts up the inode's `i_version`.

use super::{DirItem, read};
use crate::error::Result;
use crate::op::Op;
use quire_layout::Ino;
use quire_layout::inode::Inode;
use std::collections::HashMap;

/// Directories of which a place is remembered.
const MAX_SCANS: usize = 64;

/// How far directories have been seen to be empty. Hints: a lost one costs time, a wrong one cannot be.
#[derive(Default)]
pub(crate) struct EmptyScans {
    places: HashMap<Ino, Place>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Place {
    generation: u32,
    version: u64,
    /// Names may be from here on.
    cookie: u64,
}

impl EmptyScans {
    fn cookie(&self, ino: Ino, inode: &Inode) -> u64 {
        let place = self.places.get(&ino);
        let place = place.filter(|p| (p.generation, p.version) == (inode.generation(), inode.version()));
        place.map_or(0, |p| p.cookie)
    }

    fn remember(&mut self, ino: Ino, inode: &Inode, cookie: u64) {
        if self.places.len() >= MAX_SCANS && !self.places.contains_key(&ino) {
            self.places.clear();
        }
        let place = Place { generation: inode.generation(), version: inode.version(), cookie };
        self.places.insert(ino, place);
    }
}

/// True if nothing but `.` and `..` is in the directory. To be asked before the same operation changes the directory.
///
/// # Errors
/// Corrupt; not a directory.
pub fn is_empty(op: &mut Op<'_>, ino: Ino, inode: &Inode) -> Result<bool> {
    loop {
        let from = op.state().empty_scans.cookie(ino, inode);
        let mut empty = true;
        let next = read(op, ino, inode, from, &mut |i: DirItem<'_>| {
            empty = i.name == b"." || i.name == b"..";
            empty
        })?;
        match next {
            Some(cookie) if empty => op.state_mut().empty_scans.remember(ino, inode, cookie),
            _ => {
                op.state_mut().empty_scans.places.remove(&ino);
                return Ok(empty);
            }
        }
    }
}
