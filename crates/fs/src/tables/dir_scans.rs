//! How far interrupted searches of large directories have come.
//!
//! *Guarantees*: an entry is a hint. A lost entry costs time; `dir::scan` says why an entry is never wrong.
//!
//! *Relies on*: the metadata mutex.

use quire_layout::Ino;
use quire_layout::inode::Inode;
use std::collections::HashMap;

/// Places of each kind that are remembered.
const MAX_SCANS: usize = 64;

/// How far searches have come. Hints: a lost one costs time, a wrong one cannot be.
#[derive(Default)]
pub(crate) struct DirScans {
    pub(crate) empty: HashMap<Ino, EmptyScan>,
    /// By directory, its generation, and name: the block that the search goes on with.
    pub(crate) names: HashMap<(Ino, u32, Vec<u8>), u32>,
    room: HashMap<Ino, Room>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct EmptyScan {
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

impl DirScans {
    pub(crate) fn cookie(&self, ino: Ino, inode: &Inode) -> u64 {
        let place = self.empty.get(&ino);
        let place = place.filter(|p| (p.generation, p.version) == (inode.generation(), inode.version()));
        place.map_or(0, |p| p.cookie)
    }

    pub(crate) fn remember_empty(&mut self, ino: Ino, inode: &Inode, cookie: u64) {
        make_way(&mut self.empty, &ino);
        let place = EmptyScan { generation: inode.generation(), version: inode.version(), cookie };
        self.empty.insert(ino, place);
    }

    /// A name is added to a directory, perhaps before the place where a search for names goes on.
    pub(crate) fn has_a_new_name(&mut self, ino: Ino) {
        self.empty.remove(&ino);
    }

    /// The first block that may have room for a name of `len` bytes.
    pub(crate) fn room(&self, ino: Ino, inode: &Inode, len: usize) -> u32 {
        let room = self.room.get(&ino).filter(|r| r.generation == inode.generation() && r.len <= len);
        room.map_or(0, |r| r.block)
    }

    pub(crate) fn no_room_before(&mut self, ino: Ino, inode: &Inode, len: usize, block: u32) {
        make_way(&mut self.room, &ino);
        self.room.insert(ino, Room { generation: inode.generation(), len, block });
    }

    /// A name was removed from a directory.
    pub(crate) fn has_room_again(&mut self, ino: Ino) {
        self.room.remove(&ino);
    }

    /// An operation that adds or removes names of a long directory has succeeded.
    pub(crate) fn has_other_names(&mut self, ino: Ino) {
        self.names.retain(|(dir, ..), _| *dir != ino);
    }
}

/// Forgets a place where a further one would be too many.
pub(crate) fn make_way<K: Eq + std::hash::Hash + Clone, V>(places: &mut HashMap<K, V>, key: &K) {
    if places.len() >= MAX_SCANS
        && !places.contains_key(key)
        && let Some(any) = places.keys().next().cloned()
    {
        places.remove(&any);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However many search at once, each that comes takes the place of one other.
    #[test]
    fn one_place_is_forgotten_for_a_further_one() {
        let mut places: HashMap<usize, ()> = (0..MAX_SCANS).map(|n| (n, ())).collect();
        make_way(&mut places, &0);
        assert_eq!(places.len(), MAX_SCANS, "it has its place");
        make_way(&mut places, &MAX_SCANS);
        assert_eq!(places.len(), MAX_SCANS - 1);
    }
}
