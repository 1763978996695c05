//! Listing a directory, in an order that survives changes.
//!
//! ```text
//! cookie, linear directory:   the byte after the entry
//! cookie, dir_index:          0 start   1 after .   2 after ..   END after the last name   else 3 + key
//! key                         hash / 2 (31 bits) | tie break (24 bits) | number among equals (8 bits)
//! ```
//! With `dir_index` the order is that of the hashes also while the directory has only one block, because it may become
//! an htree in the middle of a listing, and a name's hash stays what it is when leaves are split. Names never move in a
//! linear directory. Names that agree in 55 bits of hash are numbered in the order of their bytes.

use super::blocks::Dir;
use super::entry::corrupt;
use super::item::{DirItem, Sink};
use super::tree::Path;
use crate::error::Result;
use crate::policy::DIR_BLOCKS_AT_ONCE;
use crate::txn::Op;
use quire_journal::Image;
use quire_layout::dir::{DirEntry, Hasher, is_dot, is_name};
use quire_layout::inode::Inode;
use quire_layout::{BlockNo, Corrupt, Ino};

/// Leaves full of one and the same hash that are taken together.
const MAX_CHAIN: usize = 256;
/// Names in a block, about.
const SOME: usize = 128;
const AFTER_DOT: u64 = 1;
const AFTER_DOTDOT: u64 = 2;
/// After the last name, as in the kernel: who asks for more, as everybody does, is answered without a look at the names
/// again.
const END: u64 = (1 << 63) - 1;

/// Where a listing is, and how far it may go in this call.
struct Listing<'l, 's> {
    sink: &'l mut Sink<'s>,
    /// Goes on here.
    cookie: u64,
    /// Blocks of names that may still be looked at.
    left: u32,
}

impl Listing<'_, '_> {
    /// Gives an item to the sink; `false` if that refuses it.
    fn give(&mut self, item: DirItem<'_>) -> bool {
        let taken = (self.sink)(item);
        if taken {
            self.cookie = item.next_cookie;
        }
        taken
    }

    /// Stopped, to go on at [`Listing::cookie`].
    fn stopped(&self) -> Option<u64> {
        Some(self.cookie)
    }

    /// Stopped before names of cookies from `cookie` on.
    fn stopped_at(&self, cookie: u64) -> Option<u64> {
        Some(cookie.max(self.cookie))
    }
}

/// Gives names from `cookie` on (0: from the start) to `sink`, until that refuses one by `false`. Looks at few blocks
/// (D5), so that the names given may be few or none although there are more. Gives the cookie to go on with, in an
/// operation of its own, behind the last name that the sink took; `None` when there are no more names.
///
/// An operation may be run several times: let the sink begin anew whenever this is called.
///
/// # Errors
/// Corrupt; not a directory. Names given before stay valid.
pub fn read(op: &mut Op<'_>, ino: Ino, inode: &Inode, cookie: u64, sink: &mut Sink<'_>) -> Result<Option<u64>> {
    let dir = Dir::new(op, ino, inode)?;
    if dir.blocks == 0 || cookie == END {
        return Ok(None);
    }
    let mut to = Listing { sink, cookie, left: DIR_BLOCKS_AT_ONCE };
    if !dir.indexed && (dir.blocks > 1 || !dir.may_index) {
        return read_linear(op, &dir, inode, &mut to);
    }
    if !read_dots(op, &dir, inode, &mut to)? {
        return Ok(to.stopped());
    }
    if dir.indexed { read_indexed(op, &dir, inode, &mut to) } else { read_one_block(op, &dir, inode, &mut to) }
}

fn read_linear(op: &mut Op<'_>, dir: &Dir, inode: &Inode, to: &mut Listing<'_, '_>) -> Result<Option<u64>> {
    let bs = op.sb().block_size().bytes64();
    let from = to.cookie;
    let Ok(first) = u32::try_from(from / bs) else { return Ok(None) };
    for n in first..dir.blocks {
        let start = u64::from(n) * bs;
        if to.left == 0 {
            return Ok(to.stopped_at(start));
        }
        to.left -= 1;
        let (block, image) = dir.linear(op, inode, n)?;
        for e in dir.format.entries(&image) {
            let e = usable(e, dir, block)?;
            let offset = start + u64::try_from(e.offset).expect("in a block");
            if !e.is_used() || offset < from {
                continue;
            }
            let next_cookie = offset + u64::try_from(e.rec_len).expect("in a block");
            if !to.give(DirItem { ino: e.ino, name: e.name, file_type: e.file_type, next_cookie }) {
                return Ok(to.stopped());
            }
        }
    }
    Ok(None)
}

/// An entry that may be shown.
fn usable<'a>(e: Result<DirEntry<'a>, Corrupt>, dir: &Dir, block: BlockNo) -> Result<DirEntry<'a>> {
    match e {
        Ok(e) if e.is_used() && !is_name(e.name) => {
            Err(corrupt("name holds a NUL or a slash", dir.ino).at(block).into())
        }
        Ok(e) => Ok(e),
        Err(c) => Err(c.at(block).of(dir.ino.0).into()),
    }
}

/// `.` and `..`; `false` if the sink refused one.
fn read_dots(op: &mut Op<'_>, dir: &Dir, inode: &Inode, to: &mut Listing<'_, '_>) -> Result<bool> {
    for (name, next_cookie) in [(&b"."[..], AFTER_DOT), (b"..", AFTER_DOTDOT)] {
        if to.cookie < next_cookie {
            let e = dir.dot(op, inode, name)?;
            if !to.give(DirItem { ino: e.ino, name, file_type: e.file_type, next_cookie }) {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

fn read_one_block(op: &mut Op<'_>, dir: &Dir, inode: &Inode, to: &mut Listing<'_, '_>) -> Result<Option<u64>> {
    let hasher = Hasher::for_new(op.sb())?;
    let (block, image) = dir.linear(op, inode, 0)?;
    let mut list = Vec::with_capacity(SOME);
    for e in dir.format.entries(&image) {
        let e = usable(e, dir, block)?;
        if e.is_used() && !is_dot(e.name) {
            list.push(Keyed::new(&hasher, e));
        }
    }
    Ok(if emit(list, false, to) { None } else { to.stopped() })
}

fn read_indexed(op: &mut Op<'_>, dir: &Dir, inode: &Inode, to: &mut Listing<'_, '_>) -> Result<Option<u64>> {
    let from = to.cookie - AFTER_DOTDOT;
    let start = u32::try_from((from >> 32).min(0x7FFF_FFFF)).expect("31 bits") << 1;
    let mut path = Path::to(op, dir, inode, |_| start)?;
    loop {
        // Leaves that one hash runs through are taken together, so that its names are numbered as one group.
        let mut chain: Vec<Leaf> = Vec::new();
        let more = loop {
            let (block, image) = path.leaf_ahead(op, dir, inode)?;
            let next = path.next_hash();
            chain.push(Leaf { block, image, first: path.first_hash(), next });
            if chain.len() > MAX_CHAIN {
                return Err(corrupt("too many names of one hash", dir.ino).at(block).into());
            }
            to.left = to.left.saturating_sub(1);
            if !path.advance(op, dir, inode)? {
                break false;
            }
            if next.is_none_or(|h| h & 1 == 0) {
                break true;
            }
        };
        let mut list = Vec::with_capacity(SOME);
        for leaf in &chain {
            leaf.names(dir, &path.hasher, &mut list)?;
        }
        if !emit(list, more, to) {
            return Ok(to.stopped());
        }
        if !more {
            return Ok(None);
        }
        if to.left == 0 {
            let next = u64::from(path.first_hash() >> 1) << 32;
            if next <= from {
                return Err(corrupt("index does not go on", dir.ino).into());
            }
            return Ok(to.stopped_at(next + AFTER_DOTDOT));
        }
    }
}

/// A leaf and the range of its hashes, as index pairs give it.
struct Leaf {
    block: BlockNo,
    image: Image,
    first: u32,
    next: Option<u32>,
}

impl Leaf {
    fn names<'a>(&'a self, dir: &Dir, hasher: &Hasher, list: &mut Vec<Keyed<'a>>) -> Result<()> {
        for e in dir.format.entries(&self.image) {
            let e = usable(e, dir, self.block)?;
            if !e.is_used() {
                continue;
            }
            let k = Keyed::new(hasher, e);
            if !self.may_hold(k.major) {
                return Err(corrupt("name outside of its leaf's hashes", dir.ino).at(self.block).into());
            }
            list.push(k);
        }
        Ok(())
    }

    fn may_hold(&self, major: u32) -> bool {
        // An odd bound is the hash itself and belongs to both neighbours.
        major >= self.first & !1 && self.next.is_none_or(|next| major < next)
    }
}

/// An entry and its key with the number 0.
struct Keyed<'a> {
    key: u64,
    major: u32,
    entry: DirEntry<'a>,
}

impl<'a> Keyed<'a> {
    fn new(hasher: &Hasher, entry: DirEntry<'a>) -> Self {
        let hash = hasher.hash(entry.name);
        let tie = hasher.tie_break(entry.name, hash);
        let key = u64::from(hash.major >> 1) << 32 | u64::from(tie & !0xFF);
        Keyed { key, major: hash.major, entry }
    }
}

/// Gives the entries from the listing's cookie on, in order, behind which there are `more` or none; `false` if the sink
/// refused one.
fn emit(mut list: Vec<Keyed<'_>>, more: bool, to: &mut Listing<'_, '_>) -> bool {
    let from = to.cookie - AFTER_DOTDOT;
    list.retain(|k| k.key | 0xFF >= from);
    list.sort_unstable_by(|a, b| (a.key, a.entry.name).cmp(&(b.key, b.entry.name)));
    let mut number = 0;
    let mut before = None;
    for (n, k) in list.iter().enumerate() {
        number = if before == Some(k.key) { (number + 1).min(0xFF) } else { 0 };
        before = Some(k.key);
        let key = k.key | number;
        if key < from {
            continue;
        }
        let next_cookie = if more || n + 1 < list.len() { key + 1 + AFTER_DOTDOT } else { END };
        let e = &k.entry;
        if !to.give(DirItem { ino: e.ino, name: e.name, file_type: e.file_type, next_cookie }) {
            return false;
        }
    }
    true
}
