//! Directories that an import has found, by their names, so that each is looked up once.
//!
//! *Guarantees* I2: memory is bounded however many there are, and however long their paths.

use super::entry::Names;
use quire_layout::Ino;
use std::collections::HashMap;

/// Directories that are remembered.
const MAX_KNOWN_DIRS: usize = 100_000;
/// Bytes that their paths take.
const MAX_KNOWN_BYTES: usize = 32 << 20;
/// Bytes that a name of a path takes beside its own: its vector, and about what the allocator adds.
const NAME_BYTES: usize = size_of::<Vec<u8>>() + 16;

#[derive(Default)]
pub(super) struct KnownDirs {
    inodes: HashMap<Names, Ino>,
    bytes: usize,
}

impl KnownDirs {
    pub(super) fn get(&self, names: &[Vec<u8>]) -> Option<Ino> {
        self.inodes.get(names).copied()
    }

    /// Remembers a directory. Where there is no room for it, all others are forgotten.
    pub(super) fn insert(&mut self, names: &[Vec<u8>], ino: Ino) {
        let bytes: usize = names.iter().map(|name| NAME_BYTES + name.len()).sum();
        if bytes > MAX_KNOWN_BYTES {
            return;
        }
        if self.inodes.len() >= MAX_KNOWN_DIRS || self.bytes + bytes > MAX_KNOWN_BYTES {
            self.clear();
        }
        if self.inodes.insert(names.to_vec(), ino).is_none() {
            self.bytes += bytes;
        }
    }

    /// Forgets all, because what has one of the names is replaced.
    pub(super) fn clear(&mut self) {
        *self = KnownDirs::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(depth: usize, last: &str) -> Names {
        [vec![b"a".to_vec(); depth], vec![last.as_bytes().to_vec()]].concat()
    }

    #[test]
    fn paths_of_many_names_are_remembered_up_to_a_number_of_bytes() {
        let mut known = KnownDirs::default();
        let depth = 30_000;
        for n in 0..100 {
            let names = path(depth, &n.to_string());
            known.insert(&names, Ino(n));
            assert_eq!(known.get(&names), Some(Ino(n)));
            let held: usize = known.inodes.keys().flatten().map(|name| NAME_BYTES + name.len()).sum();
            assert!(held == known.bytes && held <= MAX_KNOWN_BYTES, "{held} bytes, {} counted", known.bytes);
        }
        assert_eq!(known.get(&path(depth, "0")), None);
    }

    #[test]
    fn a_path_that_is_longer_than_all_may_be_is_not_remembered() {
        let mut known = KnownDirs::default();
        let long = path(MAX_KNOWN_BYTES / NAME_BYTES, "f");
        known.insert(&path(1, "f"), Ino(7));
        known.insert(&long, Ino(8));
        assert_eq!((known.get(&long), known.get(&path(1, "f"))), (None, Some(Ino(7))));
    }

    #[test]
    fn a_directory_that_is_inserted_again_counts_once() {
        let mut known = KnownDirs::default();
        (0..9).for_each(|n| known.insert(&path(1, "f"), Ino(n)));
        assert_eq!((known.get(&path(1, "f")), known.bytes), (Some(Ino(8)), 2 * (NAME_BYTES + 1)));
    }
}
