//! How large an image must be to hold a tree.
//!
//! *Guarantees* I2: memory grows with the number of directories, and not with their depth: each has its own name only.

use super::entry::{Data, Entry, Kind, Sink};
use super::progress::{Progress, Watch};
use crate::error::Result;
use std::collections::HashMap;

/// Blocks that one node of an extent tree maps (340 extents of 4 KiB blocks), in extents.
const EXTENTS_PER_NODE: u64 = 340;
/// Extents in an inode.
const EXTENTS_IN_INODE: u64 = 4;
/// Blocks of a group of 4 KiB blocks: a file's extent does not reach beyond its group.
const GROUP_BLOCKS: u64 = 32_768 - 2_048;
/// Bytes of an inode of 256 bytes that attributes may use.
const XATTR_BYTES_IN_INODE: u64 = 92;
/// Bytes of a symbolic link's target that the inode holds.
const LINK_BYTES_IN_INODE: usize = 59;

/// Counts what a tree takes: blocks never too few but by fragmentation, directories as htrees of leaves that are three
/// fifths full.
#[derive(Default)]
pub(super) struct Sizer {
    block: u64,
    blocks: u64,
    inodes: u64,
    /// Directories by the one that has them and their name in it. The root is 0.
    dirs: HashMap<(usize, Vec<u8>), usize>,
    /// Bytes of entries in each directory.
    entry_bytes: Vec<u64>,
    seen: Progress,
    watch: Watch,
}

/// What a tree takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Needs {
    pub(super) blocks: u64,
    pub(super) inodes: u64,
}

impl Sizer {
    pub(super) fn new(block: u64, watch: Watch) -> Self {
        Sizer { block, watch, entry_bytes: vec![0], ..Sizer::default() }
    }

    pub(super) fn needs(&self) -> Needs {
        let leaves = |bytes: u64| {
            let usable = self.block - 12;
            if bytes <= usable - 24 { 1 } else { (bytes * 5).div_ceil(usable * 3) + 2 }
        };
        // `lost+found` is there already, and has four blocks.
        let dirs: u64 = self.entry_bytes.iter().map(|bytes| leaves(*bytes)).sum();
        Needs { blocks: self.blocks + dirs + 1, inodes: self.inodes }
    }

    /// The number of a directory. One on the way that no entry describes is one, too.
    fn dir(&mut self, path: &[Vec<u8>]) -> usize {
        let mut at = 0;
        for name in path {
            let next = self.entry_bytes.len();
            let found = *self.dirs.entry((at, name.clone())).or_insert(next);
            if found == next {
                self.name(at, name);
                self.entry_bytes.push(0);
                self.inodes += 1;
            }
            at = found;
        }
        at
    }

    /// A name in a directory.
    fn name(&mut self, dir: usize, name: &[u8]) {
        self.entry_bytes[dir] += (8 + name.len() as u64).next_multiple_of(4);
    }
}

impl Sink for Sizer {
    fn entry(&mut self, entry: &Entry, data: &mut dyn Data) -> Result<()> {
        self.watch.tell(self.seen)?;
        self.seen.objects += 1;
        match (&entry.kind, entry.path.split_last()) {
            (Kind::Dir, _) => {
                self.dir(&entry.path);
            }
            (kind, Some((name, above))) => {
                let above = self.dir(above);
                self.name(above, name);
                if matches!(kind, Kind::HardLink(_)) {
                    return Ok(());
                }
                self.inodes += 1;
            }
            // The import refuses it.
            (_, None) => return Ok(()),
        }
        let attributes: u64 = entry.xattrs.iter().map(|(n, v)| 16 + n.len() as u64 + v.len() as u64 + 6).sum();
        self.blocks += u64::from(attributes > XATTR_BYTES_IN_INODE);
        match &entry.kind {
            Kind::Symlink(target) if target.len() > LINK_BYTES_IN_INODE => self.blocks += 1,
            Kind::File(_) => {
                let (mut extents, mut blocks, mut next) = (0, 0, 0);
                data.ranges(&mut |start, len| {
                    let (first, last) = (start / self.block, (start + len).div_ceil(self.block));
                    self.seen.bytes += len;
                    extents += u64::from(first > next || blocks == 0);
                    blocks += last.saturating_sub(first.max(next));
                    next = last.max(next);
                })?;
                extents += blocks / GROUP_BLOCKS;
                self.blocks += blocks;
                if extents > EXTENTS_IN_INODE {
                    self.blocks += extents.div_ceil(EXTENTS_PER_NODE) + u64::from(extents > EXTENTS_PER_NODE);
                }
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::entry::{Names, NoData};
    use super::*;
    use crate::metadata::Timestamp;

    fn sized(entries: &[(Names, Kind)]) -> Sizer {
        let mut sizer = Sizer::new(4096, Watch::default());
        for (path, kind) in entries {
            let entry = Entry {
                path: path.clone(),
                kind: kind.clone(),
                permissions: 0o644,
                uid: 0,
                gid: 0,
                modified: Timestamp::default(),
                accessed: None,
                xattrs: Vec::new(),
            };
            sizer.entry(&entry, &mut NoData).unwrap();
        }
        sizer
    }

    fn names(path: &str) -> Names {
        path.split('/').map(|name| name.as_bytes().to_vec()).collect()
    }

    #[test]
    fn a_deep_path_takes_memory_for_each_of_its_names_once() {
        let depth = 30_000;
        let path = [vec![b"a".to_vec(); depth], vec![b"f".to_vec()]].concat();
        let sizer = sized(&[(path.clone(), Kind::File(0)), (path, Kind::File(0))]);
        let held: usize = sizer.dirs.keys().map(|(_, name)| name.len()).sum();
        assert_eq!((sizer.dirs.len(), held, sizer.entry_bytes.len()), (depth, depth, depth + 1));
        assert_eq!(sizer.needs().inodes, depth as u64 + 2);
    }

    #[test]
    fn directories_count_once_whether_an_entry_describes_them_or_not() {
        let link = Kind::HardLink(names("a/b/f"));
        let tree = [("a/b/f", Kind::File(0)), ("a/b", Kind::Dir), ("a", Kind::Dir), ("c", Kind::Dir), ("a/l", link)];
        let sizer = sized(&tree.map(|(path, kind)| (names(path), kind)));
        let needs = sizer.needs();
        assert_eq!(needs.inodes, 4, "a, a/b, a/b/f, c");
        assert_eq!(needs.blocks, 5, "the root, a, a/b, c and one to spare");
        assert_eq!(sizer.entry_bytes, [24, 24, 12, 0], "of the root, a, a/b, c");
    }
}
