//! Listings of directories.
//!
//! Names are collected in an operation, some at a time, and given to the caller outside of it.

use super::{live, pointed_to};
use crate::attr::{Attr, Seen};
use crate::dir::{self, DirItem};
use crate::error::{Error, Result};
use crate::op::Op;
use crate::volume::Volume;
use quire_layout::Ino;
use quire_layout::dir::FileType;

/// Names that one operation collects.
const BATCH: usize = 128;

struct Item {
    ino: Ino,
    name: Vec<u8>,
    file_type: FileType,
    next_cookie: u64,
    seen: Option<Seen>,
}

/// For which names a listing gives attributes and references.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Plus {
    None,
    All,
    /// Those of inodes on which nobody has a reference.
    News,
}

impl Item {
    fn borrowed(&self) -> DirItem<'_> {
        DirItem { ino: self.ino, name: &self.name, file_type: self.file_type, next_cookie: self.next_cookie }
    }

    fn is_dot(&self) -> bool {
        matches!(&self.name[..], b"." | b"..")
    }
}

impl Volume {
    /// Gives the names of a directory to `sink`, from `cookie` on (0: all), until it refuses one by `false`. A name that is
    /// there all the while is given once, whatever else is added or removed.
    ///
    /// # Errors
    /// Not a directory; corrupt, I/O. What was given is valid.
    pub fn readdir(&self, dir: Ino, cookie: u64, sink: &mut dyn FnMut(DirItem<'_>) -> bool) -> Result<()> {
        self.list(dir, cookie, Plus::None, &mut |item| sink(item.borrowed()))
    }

    /// As [`Volume::readdir`], with attributes: for each item taken, except `.` and `..`, the caller gets a reference. `None`:
    /// they cannot be read; a lookup says why.
    ///
    /// # Errors
    /// As [`Volume::readdir`].
    pub fn readdir_plus(
        &self,
        dir: Ino,
        cookie: u64,
        sink: &mut dyn FnMut(DirItem<'_>, Option<Attr>) -> bool,
    ) -> Result<()> {
        self.list_plus(dir, cookie, Plus::All, sink)
    }

    /// As [`Volume::readdir_plus`], but `None` for what the caller has a reference on already: it knows that.
    ///
    /// # Errors
    /// As [`Volume::readdir`].
    pub fn readdir_news(
        &self,
        dir: Ino,
        cookie: u64,
        sink: &mut dyn FnMut(DirItem<'_>, Option<Attr>) -> bool,
    ) -> Result<()> {
        self.list_plus(dir, cookie, Plus::News, sink)
    }

    fn list_plus(
        &self,
        dir: Ino,
        cookie: u64,
        plus: Plus,
        sink: &mut dyn FnMut(DirItem<'_>, Option<Attr>) -> bool,
    ) -> Result<()> {
        self.list(dir, cookie, plus, &mut |item| {
            let attr = item.seen.map(|s| self.told(s));
            let taken = sink(item.borrowed(), attr);
            if !taken && attr.is_some() && !item.is_dot() {
                self.forget(item.ino, 1);
            }
            taken
        })
    }

    fn list(&self, dir: Ino, mut cookie: u64, plus: Plus, sink: &mut dyn FnMut(&Item) -> bool) -> Result<()> {
        loop {
            let (batch, next) = self.run(|op| collect(op, dir, cookie, plus))?;
            let mut taken = true;
            for item in &batch {
                if taken {
                    taken = sink(item);
                } else if item.seen.is_some() && !item.is_dot() {
                    self.forget(item.ino, 1);
                }
            }
            match next {
                Some(next) if taken => cookie = next,
                _ => return Ok(()),
            }
        }
    }
}

/// Some names from `cookie` on, with attributes and references if asked for, and the cookie to go on with if there are more.
fn collect(op: &mut Op<'_>, dir: Ino, cookie: u64, plus: Plus) -> Result<(Vec<Item>, Option<u64>)> {
    let inode = live(op, dir)?;
    if !inode.is_dir() {
        return Err(Error::NotDir);
    }
    if inode.links() == 0 {
        return Ok((Vec::new(), None));
    }
    let mut items = Vec::with_capacity(BATCH);
    let next = dir::read(op, dir, &inode, cookie, &mut |i| {
        if items.len() == BATCH {
            return false;
        }
        let DirItem { ino, name, file_type, next_cookie } = i;
        items.push(Item { ino, name: name.to_vec(), file_type, next_cookie, seen: None });
        true
    })?;
    if plus == Plus::None {
        return Ok((items, next));
    }
    let mut missing = Vec::new();
    for item in &mut items {
        if plus == Plus::News && op.refs(item.ino) > 0 {
            continue;
        }
        let found = if item.is_dot() { op.inode(item.ino) } else { pointed_to(op, dir, item.ino) };
        match found {
            Ok(inode) => item.seen = Some(op.seen(item.ino, &inode)),
            Err(Error::Miss(blocks)) => missing.extend(blocks),
            // The listing goes on; a lookup of this name says what is wrong.
            Err(_) => {}
        }
    }
    if !missing.is_empty() {
        missing.sort_unstable();
        missing.dedup();
        return Err(Error::Miss(missing));
    }
    for item in items.iter().filter(|i| i.seen.is_some() && !i.is_dot()) {
        op.add_ref(item.ino);
    }
    Ok((items, next))
}
