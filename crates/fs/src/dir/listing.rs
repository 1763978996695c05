//! A listing under way: where it is, and the names that come next in the order of their keys.

use super::blocks::Dir;
use super::entry::corrupt;
use super::item::{DirItem, Sink};
use super::tree::Path;
use crate::error::Result;
use crate::policy::DIR_BLOCKS_AT_ONCE;
use crate::txn::Op;
use quire_journal::Image;
use quire_layout::dir::{DirEntry, Hasher, is_name};
use quire_layout::inode::Inode;
use quire_layout::{BlockNo, Corrupt};

/// Leaves that one hash runs through and that are taken together; a hash of more is long.
pub(super) const MAX_CHAIN: usize = DIR_BLOCKS_AT_ONCE as usize;
/// Names in a block, about.
pub(super) const SOME: usize = 128;
pub(super) const AFTER_DOTDOT: u64 = 2;
/// After the last name, as in the kernel: who asks for more, as everybody does, is answered without a look at the names
/// again.
pub(super) const END: u64 = (1 << 63) - 1;

/// Where a listing is, and how far it may go in this call.
pub(super) struct Listing<'l, 's> {
    pub sink: &'l mut Sink<'s>,
    /// Goes on here.
    pub cookie: u64,
    /// Blocks of names that may still be looked at.
    pub left: u32,
}

impl Listing<'_, '_> {
    /// Gives an item to the sink; `false` if that refuses it.
    pub(super) fn give(&mut self, item: DirItem<'_>) -> bool {
        let taken = (self.sink)(item);
        if taken {
            self.cookie = item.next_cookie;
        }
        taken
    }

    /// Stopped, to go on at [`Listing::cookie`].
    pub(super) fn stopped(&self) -> Option<u64> {
        Some(self.cookie)
    }

    /// Stopped before names of cookies from `cookie` on.
    pub(super) fn stopped_at(&self, cookie: u64) -> Option<u64> {
        Some(cookie.max(self.cookie))
    }
}

/// An entry that may be shown.
pub(super) fn usable<'a>(e: Result<DirEntry<'a>, Corrupt>, dir: &Dir, block: BlockNo) -> Result<DirEntry<'a>> {
    match e {
        Ok(e) if e.is_used() && !is_name(e.name) => {
            Err(corrupt("name holds a NUL or a slash", dir.ino).at(block).into())
        }
        Ok(e) => Ok(e),
        Err(c) => Err(c.at(block).of(dir.ino.0).into()),
    }
}

/// The lowest key of a hash.
pub(super) fn first_key(hash: u32) -> u64 {
    u64::from(hash >> 1) << 32
}

/// A leaf and the range of its hashes, as index pairs give it.
pub(super) struct Leaf {
    block: BlockNo,
    image: Image,
    first: u32,
    pub next: Option<u32>,
}

impl Leaf {
    /// The one that a path leads to.
    pub(super) fn here(op: &mut Op<'_>, dir: &Dir, inode: &Inode, path: &Path) -> Result<Self> {
        let (block, image) = path.leaf_ahead(op, dir, inode)?;
        Ok(Leaf { block, image, first: path.first_hash(), next: path.next_hash() })
    }

    pub(super) fn names<'a>(&'a self, dir: &Dir, hasher: &Hasher, list: &mut Vec<Keyed<'a>>) -> Result<()> {
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
pub(super) struct Keyed<'a> {
    pub key: u64,
    pub major: u32,
    pub tie: u32,
    entry: DirEntry<'a>,
}

impl<'a> Keyed<'a> {
    pub(super) fn new(hasher: &Hasher, entry: DirEntry<'a>) -> Self {
        let hash = hasher.hash(entry.name);
        let tie = hasher.tie_break(entry.name, hash);
        let key = first_key(hash.major) | u64::from(tie & !0xFF);
        Keyed { key, major: hash.major, tie, entry }
    }
}

/// Gives the entries from the listing's cookie on, in order, behind which there are `more` or none; `false` if the sink
/// refused one.
pub(super) fn emit(mut list: Vec<Keyed<'_>>, more: bool, to: &mut Listing<'_, '_>) -> bool {
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
