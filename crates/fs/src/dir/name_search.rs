//! Searches of any length with few blocks in memory at once: a name in a long linear directory.
//!
//! To hold all blocks of a large directory at once may need more than the cache, and an operation that misses begins
//! again. So [`DirScans`] remembers how far a search has come:
//! - "no names before": until an operation adds a name, which increments the inode's `i_version`;
//! - "this name is not before": until an operation that adds a name to the directory succeeds
//!   ([`DirScans::has_other_names`]). An operation does not search in this way for a name that it adds or removes
//!   itself, because it may be undone;
//! - "no room before": until a name is removed. To forget this, or not to, costs time or space.

use super::blocks::Dir;
#[allow(unused_imports)] // for the links above
use crate::tables::DirScans;
use crate::tables::make_way;
use crate::txn::Op;
use quire_layout::Ino;
use quire_layout::inode::Inode;

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
        let scans = &mut op.tables_mut().scans;
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
            match op.tables_mut().scans.names.get_mut(key) {
                Some(place) => *place = block,
                None => drop(op.tables_mut().scans.names.insert(key.clone(), block)),
            }
        }
    }
}
