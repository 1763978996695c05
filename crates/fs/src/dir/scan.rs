//! Searches of any length with few blocks in memory at once: is a directory empty, where in a long linear one is a name, or room
//! for one?
//!
//! Looking at all blocks in one go may need more than the cache holds, and an operation that misses begins again. So how far a
//! search has come is remembered:
//! - "no names before": until a name is added, which counts up the inode's `i_version`;
//! - "this name is not before": until an operation that adds a name to the directory has succeeded ([`Scans::has_other_names`]);
//!   what an operation itself adds or removes it does not look for in this way, since it may be undone;
//! - "no room before": until a name is removed. That being forgotten, or not, costs time or space.

use super::blocks::Dir;
use super::{DirItem, read};
use crate::error::Result;
use crate::op::Op;
use quire_layout::Ino;
use quire_layout::dir::is_dot;
use quire_layout::inode::Inode;
use std::collections::HashMap;

/// Places of each kind that are remembered.
const MAX_SCANS: usize = 64;

/// How far searches have come. Hints: a lost one costs time, a wrong one cannot be.
#[derive(Default)]
pub(crate) struct Scans {
    empty: HashMap<Ino, Place>,
    /// By directory, its generation, and name: the block that the search goes on with.
    names: HashMap<(Ino, u32, Vec<u8>), u32>,
    room: HashMap<Ino, Room>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Place {
    generation: u32,
    version: u64,
    /// Names may be from here on.
    cookie: u64,
}

#[derive(Clone, Copy)]
struct Room {
    generation: u32,
    /// For names of at least this length there is none before `block`.
    len: usize,
    block: u32,
}

impl Scans {
    fn cookie(&self, ino: Ino, inode: &Inode) -> u64 {
        let place = self.empty.get(&ino);
        let place = place.filter(|p| (p.generation, p.version) == (inode.generation(), inode.version()));
        place.map_or(0, |p| p.cookie)
    }

    fn remember_empty(&mut self, ino: Ino, inode: &Inode, cookie: u64) {
        make_way(&mut self.empty, &ino);
        let place = Place { generation: inode.generation(), version: inode.version(), cookie };
        self.empty.insert(ino, place);
    }

    /// The first block that may have room for a name of `len` bytes.
    pub(super) fn room(&self, ino: Ino, inode: &Inode, len: usize) -> u32 {
        let room = self.room.get(&ino).filter(|r| r.generation == inode.generation() && r.len <= len);
        room.map_or(0, |r| r.block)
    }

    pub(super) fn no_room_before(&mut self, ino: Ino, inode: &Inode, len: usize, block: u32) {
        make_way(&mut self.room, &ino);
        self.room.insert(ino, Room { generation: inode.generation(), len, block });
    }

    /// A name was removed from a directory.
    pub(super) fn has_room_again(&mut self, ino: Ino) {
        self.room.remove(&ino);
    }

    /// An operation that adds or removes names of a long directory has succeeded.
    pub(crate) fn has_other_names(&mut self, ino: Ino) {
        self.names.retain(|(dir, ..), _| *dir != ino);
    }
}

/// Forgets all places where a further one would be too many.
fn make_way<K: Eq + std::hash::Hash, V>(places: &mut HashMap<K, V>, key: &K) {
    if places.len() >= MAX_SCANS && !places.contains_key(key) {
        places.clear();
    }
}

/// A search for a name in a linear directory.
pub(super) struct NameSearch {
    /// Only of a long directory the places are remembered.
    key: Option<(Ino, u32, Vec<u8>)>,
    from: u32,
}

impl NameSearch {
    pub(super) fn begin(op: &mut Op<'_>, dir: &Dir, inode: &Inode, name: &[u8]) -> Self {
        let own = op.deferred.long_dirs.iter().any(|(ino, added)| (*ino, &added[..]) == (dir.ino, name));
        if own || !dir.is_long(op) {
            return NameSearch { key: None, from: 0 };
        }
        let key = (dir.ino, inode.generation(), name.to_vec());
        let scans = &mut op.state_mut().scans;
        make_way(&mut scans.names, &key);
        let from = scans.names.get(&key).copied().unwrap_or(0);
        NameSearch { key: Some(key), from }
    }

    /// The block to begin with: the name is not before it.
    pub(super) fn from(&self) -> u32 {
        self.from
    }

    /// The name is not before this block, which is in memory, or the end.
    pub(super) fn reached(&mut self, op: &mut Op<'_>, block: u32) {
        if let Some(key) = &self.key {
            match op.state_mut().scans.names.get_mut(key) {
                Some(place) => *place = block,
                None => drop(op.state_mut().scans.names.insert(key.clone(), block)),
            }
        }
    }
}

/// True if nothing but `.` and `..` is in the directory. To be asked before the same operation changes the directory.
///
/// # Errors
/// Corrupt; not a directory.
pub fn is_empty(op: &mut Op<'_>, ino: Ino, inode: &Inode) -> Result<bool> {
    loop {
        let from = op.state().scans.cookie(ino, inode);
        let mut empty = true;
        let next = read(op, ino, inode, from, &mut |i: DirItem<'_>| {
            empty = is_dot(i.name);
            empty
        })?;
        match next {
            Some(cookie) if empty => op.state_mut().scans.remember_empty(ino, inode, cookie),
            _ => {
                op.state_mut().scans.empty.remove(&ino);
                return Ok(empty);
            }
        }
    }
}
