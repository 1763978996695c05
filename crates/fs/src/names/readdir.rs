//! Listings of directories. An operation collects some names, and the caller receives them outside of it.

use super::directory::pointed_to;
use crate::dir::{self, DirItem};
use crate::error::{Error, Result};
use crate::inode::{Attr, live};
use crate::policy::NAMES_PER_OPERATION;
use crate::records;
use crate::txn::Op;
use quire_layout::Ino;
use quire_layout::dir::{FileType, is_dot};
use std::ops::Range;

/// Bytes of a usual name, to size a buffer.
const USUAL_NAME_BYTES: usize = 16;

/// Names that one operation has collected, in the order of the listing.
pub(crate) struct Names {
    pub items: Vec<Item>,
    /// The bytes of all names, one behind the other.
    bytes: Vec<u8>,
}

/// One name that was collected.
pub(crate) struct Item {
    pub ino: Ino,
    /// Its place in [`Names::bytes`].
    name: Range<usize>,
    /// `.` or `..`.
    dot: bool,
    file_type: FileType,
    next_cookie: u64,
    /// Attributes on disk. Boxed, because most items have none when a directory is listed again.
    pub attr: Option<Box<Attr>>,
}

impl Item {
    /// True if the item carries a reference: with attributes the caller gets one, except on `.` and `..`.
    pub(crate) fn is_referenced(&self) -> bool {
        self.attr.is_some() && !self.dot
    }
}

/// The names for which a listing gives attributes, and with them a reference.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attributes {
    /// All names.
    All,
    /// Names of inodes without references. A caller that keeps a reference on each inode it knows gets only what is new
    /// to it.
    Unreferenced,
}

impl Names {
    fn new() -> Self {
        Names {
            items: Vec::with_capacity(NAMES_PER_OPERATION),
            bytes: Vec::with_capacity(NAMES_PER_OPERATION * USUAL_NAME_BYTES),
        }
    }

    /// False if it is full.
    fn push(&mut self, i: DirItem<'_>) -> bool {
        let room = self.items.len() < NAMES_PER_OPERATION;
        if room {
            let start = self.bytes.len();
            self.bytes.extend_from_slice(i.name);
            let name = start..self.bytes.len();
            let DirItem { ino, file_type, next_cookie, .. } = i;
            self.items.push(Item { ino, name, dot: is_dot(i.name), file_type, next_cookie, attr: None });
        }
        room
    }

    pub(crate) fn shown(&self, item: &Item) -> DirItem<'_> {
        let name = &self.bytes[item.name.clone()];
        DirItem { ino: item.ino, name, file_type: item.file_type, next_cookie: item.next_cookie }
    }
}

/// Collects some names from `cookie` on, with the attributes and references that `with` asks for. Returns also the
/// cookie to go on with, if there are more names.
///
/// # Errors
/// Not a directory; stale; corrupt; miss.
pub(crate) fn collect(
    op: &mut Op<'_>,
    dir: Ino,
    cookie: u64,
    with: Option<Attributes>,
) -> Result<(Names, Option<u64>)> {
    let inode = live(op, dir)?;
    if !inode.is_dir() {
        return Err(Error::NotDir);
    }
    let mut names = Names::new();
    if inode.links() == 0 {
        return Ok((names, None));
    }
    let next = dir::read(op, dir, &inode, cookie, &mut |i| names.push(i))?;
    let Some(with) = with else { return Ok((names, next)) };
    let mut missing = Vec::new();
    for item in &mut names.items {
        if with == Attributes::Unreferenced && op.refs(item.ino) > 0 {
            continue;
        }
        let found = if item.dot { records::inode(op, item.ino) } else { pointed_to(op, dir, item.ino) };
        match found {
            Ok(inode) => item.attr = Some(Box::new(Attr::of(op.sb(), item.ino, &inode))),
            Err(Error::Miss(blocks)) => missing.extend(blocks),
            // The listing goes on; a lookup of this name returns the error.
            Err(_) => {}
        }
    }
    if !missing.is_empty() {
        missing.sort_unstable();
        missing.dedup();
        return Err(Error::Miss(missing));
    }
    for item in names.items.iter().filter(|i| i.is_referenced()) {
        op.add_ref(item.ino);
    }
    Ok((names, next))
}
