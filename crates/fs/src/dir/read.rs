//! Listing a directory, in an order that survives changes.
//!
//! ```text
//! cookie, linear directory:   the byte after the entry
//! cookie, dir_index:          0 start   1 after .   2 after ..   END after the last name   else 3 + key
//! key                         hash / 2 (31 bits) | tie break (24 bits) | number among equals (8 bits)
//! key, long hash              hash / 2 (31 bits) | part (10 bits) | tie break (14 bits) | number among equals (8 bits)
//! ```
//! With `dir_index` the order is that of the hashes also while the directory has only one block, because it may become
//! an htree in the middle of a listing, and a name's hash stays what it is when leaves are split. Names never move in a
//! linear directory. Names that agree in 55 bits of hash are numbered in the order of their bytes. A hash whose names
//! fill more leaves than one operation looks at is *long* ([`super::long_hash`]).

use super::blocks::Dir;
use super::entry::corrupt;
use super::item::{DirItem, Sink};
use super::listing::{AFTER_DOTDOT, END, Keyed, Leaf, Listing, MAX_CHAIN, SOME, emit, first_key, usable};
use super::long_hash;
use super::tree::Path;
use crate::error::Result;
use crate::policy::DIR_BLOCKS_AT_ONCE;
use crate::txn::Op;
use quire_layout::Ino;
use quire_layout::dir::{Hasher, is_dot};
use quire_layout::inode::Inode;

const AFTER_DOT: u64 = 1;

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
    // No name has the largest hash.
    let Some(start) = u32::try_from(from >> 32).ok().filter(|half| *half < 0x7FFF_FFFF).map(|half| half << 1) else {
        return Ok(None);
    };
    let mut path = Path::to(op, dir, inode, |_| start)?;
    if path.next_hash() == Some(start | 1) && long_hash::is_long(op, dir, inode, start)? {
        return long_hash::read(op, dir, inode, start, to);
    }
    loop {
        // Leaves that one hash runs through are taken together, so that its names are numbered as one group.
        let mut chain: Vec<Leaf> = Vec::new();
        let (more, cut) = loop {
            let leaf = Leaf::here(op, dir, inode, &path)?;
            let next = leaf.next;
            chain.push(leaf);
            to.left = to.left.saturating_sub(1);
            if !path.advance(op, dir, inode)? {
                break (false, None);
            }
            match next {
                Some(hash) if hash & 1 == 1 && chain.len() < MAX_CHAIN => {}
                // The names of this hash are not all there: they come by themselves.
                Some(hash) if hash & 1 == 1 => break (true, Some(hash & !1)),
                _ => break (true, None),
            }
        };
        let mut list = Vec::with_capacity(SOME);
        for leaf in &chain {
            leaf.names(dir, &path.hasher, &mut list)?;
        }
        list.retain(|k| cut.is_none_or(|hash| k.major < hash));
        if !emit(list, more, to) {
            return Ok(to.stopped());
        }
        if !more {
            return Ok(None);
        }
        if to.left == 0 || cut.is_some() {
            let next = first_key(cut.unwrap_or_else(|| path.first_hash()));
            if next <= from {
                return Err(corrupt("index does not go on", dir.ino).into());
            }
            return Ok(to.stopped_at(next + AFTER_DOTDOT));
        }
    }
}
