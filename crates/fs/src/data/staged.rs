//! What atomic updates of files hold in memory: which files have one, and the bytes that wait for its commit.

use crate::inode::Privileges;
use quire_device::sync::{Mutex, lock};
use quire_layout::{FileBlock, Ino};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// The updates under way. A leaf lock.
#[derive(Default)]
pub(crate) struct Updates(Mutex<UpdateTable>);

#[derive(Default)]
struct UpdateTable {
    files: HashSet<Ino>,
    /// Blocks that all of them have staged.
    blocks: usize,
}

impl Updates {
    /// Enters a file; false: it has an update.
    pub(super) fn begin(&self, ino: Ino) -> bool {
        lock(&self.0).files.insert(ino)
    }

    /// Counts blocks more as staged, if all together are then no more than `most`.
    pub(super) fn take(&self, more: usize, most: usize) -> bool {
        let mut all = lock(&self.0);
        let fits = all.blocks + more <= most;
        if fits {
            all.blocks += more;
        }
        fits
    }

    pub(super) fn end(&self, ino: Ino, staged: &Staged) {
        let mut all = lock(&self.0);
        all.files.remove(&ino);
        all.blocks -= staged.blocks.len();
    }
}

/// The bytes that an update has staged.
#[derive(Default)]
pub(crate) struct Staged {
    /// By offset; no two touch.
    pub(super) extents: BTreeMap<u64, Vec<u8>>,
    pub(super) blocks: BTreeSet<FileBlock>,
    /// What the writes take from the file's privileges.
    pub privileges: Privileges,
}

impl Staged {
    /// The byte behind the last that was staged; 0 for none.
    pub(crate) fn end(&self) -> u64 {
        self.extents.last_key_value().map_or(0, |(at, bytes)| at + bytes.len() as u64)
    }

    /// Puts the staged bytes of a range over what the file has there.
    pub(crate) fn cover(&self, offset: u64, buf: &mut [u8]) {
        let end = offset.saturating_add(buf.len() as u64);
        let index = |n: u64| usize::try_from(n).expect("inside a buffer");
        for (at, bytes) in self.extents.range(..end) {
            let (from, to) = ((*at).max(offset), (at + bytes.len() as u64).min(end));
            if from < to {
                buf[index(from - offset)..index(to - offset)].copy_from_slice(&bytes[index(from - at)..index(to - at)]);
            }
        }
    }

    pub(super) fn put(&mut self, at: u64, bytes: &[u8]) {
        let end_of = |(at, bytes): (&u64, &Vec<u8>)| at + bytes.len() as u64;
        let before = self.extents.range(..=at).next_back().filter(|e| end_of(*e) >= at);
        let start = before.map_or(at, |(start, _)| *start);
        let mut whole = self.extents.remove(&start).unwrap_or_default();
        let index = |n: u64| usize::try_from(n).expect("an update fits into memory");
        let from = index(at - start);
        whole.resize(whole.len().max(from + bytes.len()), 0);
        whole[from..from + bytes.len()].copy_from_slice(bytes);
        while let Some(next) = self.extents.range(start..=start + whole.len() as u64).next().map(|(next, _)| *next) {
            let bytes = self.extents.remove(&next).expect("just seen");
            let hidden = index(start + whole.len() as u64 - next);
            whole.extend_from_slice(bytes.get(hidden..).unwrap_or_default());
        }
        self.extents.insert(start, whole);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Staged bytes are what a plain array would hold, and no two extents touch.
    #[test]
    fn staged_bytes_are_the_last_that_were_written() {
        let mut n = 12345u64;
        let mut below = |most: u64| {
            n = n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (n >> 33) % most
        };
        for _ in 0..300 {
            let (mut staged, mut model) = (Staged::default(), vec![None; 400]);
            for fill in 1..=12u8 {
                let (at, len) = (below(300), below(60) + 1);
                staged.put(at, &vec![fill; usize::try_from(len).unwrap()]);
                (at..at + len).for_each(|b| model[usize::try_from(b).unwrap()] = Some(fill));
            }
            let mut seen = vec![0; 400];
            staged.cover(0, &mut seen);
            let want: Vec<u8> = model.iter().map(|b| b.unwrap_or(0)).collect();
            assert_eq!(seen, want);
            assert_eq!(staged.end(), model.iter().rposition(Option::is_some).unwrap() as u64 + 1);
            let extents: Vec<_> = staged.extents.iter().map(|(at, b)| (*at, at + b.len() as u64)).collect();
            assert!(extents.windows(2).all(|w| w[0].1 < w[1].0), "{extents:?}");
            let bytes: usize = staged.extents.values().map(Vec::len).sum();
            assert_eq!(bytes, model.iter().filter(|b| b.is_some()).count());
        }
    }
}
