//! Splitting a leaf by hash, and writing a leaf from entries.

use super::entry::{DirEntry, DirFormat};
use super::hash::{Hasher, NameHash};
use crate::error::{Corrupt, Structure};

/// A used entry and the hash of its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hashed<'a> {
    pub hash: NameHash,
    pub entry: DirEntry<'a>,
}

impl DirFormat {
    /// The used entries of a leaf from byte `from` on, in the order of their hashes.
    ///
    /// # Errors
    /// Corrupt: a record breaks the rules.
    pub fn hashed<'a>(&self, block: &'a [u8], from: usize, hasher: &Hasher) -> Result<Vec<Hashed<'a>>, Corrupt> {
        let mut out = Vec::new();
        for entry in self.walk(block, from, self.leaf_end()) {
            let entry = entry?;
            if entry.is_used() {
                out.push(Hashed { hash: hasher.hash(entry.name), entry });
            }
        }
        out.sort_by_key(|h| h.hash);
        Ok(out)
    }

    /// Writes sorted entries to two blocks, about half of the bytes to each; gives the hash of the index pair of
    /// `right`, with the continuation bit if names of that hash stayed in `left`.
    ///
    /// # Errors
    /// Corrupt: fewer than two entries, so a block that was full without being so.
    pub fn split(&self, sorted: &[Hashed<'_>], left: &mut [u8], right: &mut [u8]) -> Result<u32, Corrupt> {
        if sorted.len() < 2 {
            return Err(Corrupt::new(Structure::DirectoryBlock, "full with fewer than two names"));
        }
        let half = self.block_size.bytes() / 2;
        let mut moved = 0;
        let mut keep = sorted.len();
        for h in sorted.iter().rev() {
            let len = h.entry.needs();
            if moved + len / 2 > half {
                break;
            }
            moved += len;
            keep -= 1;
        }
        if keep == 0 {
            // All of them take less than half a block: gaps filled the rest.
            keep = sorted.len() / 2;
        }
        let (l, r) = sorted.split_at(keep);
        let first = r[0].hash.major;
        let continued = l.last().is_some_and(|h| h.hash.major == first);
        fill(self, left, l);
        fill(self, right, r);
        Ok(first | u32::from(continued))
    }
}

/// Writes a leaf that holds just these entries, which fit.
fn fill(format: &DirFormat, block: &mut [u8], entries: &[Hashed<'_>]) {
    block.fill(0);
    format.init_leaf(block);
    let mut at = 0;
    for (i, h) in entries.iter().enumerate() {
        let last = i + 1 == entries.len();
        let rec_len = if last { format.leaf_end() - at } else { h.entry.needs() };
        format.put_entry(block, (at, rec_len), h.entry.ino, h.entry.file_type, h.entry.name);
        at += rec_len;
    }
    format.seal_leaf(block);
}
