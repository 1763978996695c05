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
use quire_layout::dir::{FileType, is_dot};
use std::ops::Range;

/// Names that one operation collects.
const BATCH: usize = 128;
/// Bytes of a name, about.
const USUAL_NAME: usize = 16;

/// Names in the order of the listing.
struct Batch {
    items: Vec<Item>,
    /// The names themselves, one behind the other.
    names: Vec<u8>,
}

struct Item {
    ino: Ino,
    /// Where in [`Batch::names`].
    name: Range<usize>,
    /// `.` or `..`: no reference is given on these.
    dot: bool,
    file_type: FileType,
    next_cookie: u64,
    /// On the heap: most have none when a directory is listed again.
    seen: Option<Box<Seen>>,
}

impl Item {
    /// With its attributes the caller gets a reference.
    fn is_referenced(&self) -> bool {
        self.seen.is_some() && !self.dot
    }
}

/// For which names a listing gives attributes and references.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Plus {
    None,
    All,
    /// Those of inodes on which nobody has a reference.
    News,
}

impl Batch {
    fn new() -> Self {
        Batch { items: Vec::with_capacity(BATCH), names: Vec::with_capacity(BATCH * USUAL_NAME) }
    }

    /// False if it is full.
    fn push(&mut self, i: DirItem<'_>) -> bool {
        let room = self.items.len() < BATCH;
        if room {
            let start = self.names.len();
            self.names.extend_from_slice(i.name);
            let name = start..self.names.len();
            let DirItem { ino, file_type, next_cookie, .. } = i;
            self.items.push(Item { ino, name, dot: is_dot(i.name), file_type, next_cookie, seen: None });
        }
        room
    }

    fn shown(&self, item: &Item) -> DirItem<'_> {
        let name = &self.names[item.name.clone()];
        DirItem { ino: item.ino, name, file_type: item.file_type, next_cookie: item.next_cookie }
    }
}

impl Volume {
    /// Gives the names of a directory to `sink`, from `cookie` on (0: all), until it refuses one by `false`. A name that is
    /// there all the while is given once, whatever else is added or removed.
    ///
    /// # Errors
    /// Not a directory; corrupt, I/O. What was given is valid.
    pub fn readdir(&self, dir: Ino, cookie: u64, sink: &mut dyn FnMut(DirItem<'_>) -> bool) -> Result<()> {
        self.list(dir, cookie, Plus::None, &mut |item, _| sink(item))
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
        self.list(dir, cookie, plus, &mut |item, seen| sink(item, seen.map(|s| self.told(*s))))
    }

    fn list(
        &self,
        dir: Ino,
        mut cookie: u64,
        plus: Plus,
        sink: &mut dyn FnMut(DirItem<'_>, Option<&Seen>) -> bool,
    ) -> Result<()> {
        loop {
            let (batch, next) = self.run(|op| collect(op, dir, cookie, plus))?;
            let mut taken = true;
            for item in &batch.items {
                taken = taken && sink(batch.shown(item), item.seen.as_deref());
                if !taken && item.is_referenced() {
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
fn collect(op: &mut Op<'_>, dir: Ino, cookie: u64, plus: Plus) -> Result<(Batch, Option<u64>)> {
    let inode = live(op, dir)?;
    if !inode.is_dir() {
        return Err(Error::NotDir);
    }
    let mut batch = Batch::new();
    if inode.links() == 0 {
        return Ok((batch, None));
    }
    let next = dir::read(op, dir, &inode, cookie, &mut |i| batch.push(i))?;
    if plus == Plus::None {
        return Ok((batch, next));
    }
    let mut missing = Vec::new();
    for item in &mut batch.items {
        if plus == Plus::News && op.refs(item.ino) > 0 {
            continue;
        }
        let found = if item.dot { op.inode(item.ino) } else { pointed_to(op, dir, item.ino) };
        match found {
            Ok(inode) => item.seen = Some(Box::new(op.seen(item.ino, &inode))),
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
    for item in batch.items.iter().filter(|i| i.is_referenced()) {
        op.add_ref(item.ino);
    }
    Ok((batch, next))
}
