//! How large an image must be to hold a tree.

use super::entry::{Data, Entry, Kind, Names, Sink};
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
    /// Bytes of entries in each directory.
    dirs: HashMap<Names, u64>,
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
        Sizer { block, watch, ..Sizer::default() }
    }

    pub(super) fn needs(&self) -> Needs {
        let leaves = |bytes: u64| {
            let usable = self.block - 12;
            if bytes <= usable - 24 { 1 } else { (bytes * 5).div_ceil(usable * 3) + 2 }
        };
        // `lost+found` is there already, and has four blocks.
        let dirs: u64 = self.dirs.values().map(|bytes| leaves(*bytes)).sum();
        Needs { blocks: self.blocks + dirs + 1, inodes: self.inodes }
    }

    /// A directory on the way that no entry describes is one, too.
    fn child(&mut self, path: &Names) {
        let mut path = path.as_slice();
        while let Some((name, above)) = path.split_last() {
            let len = name.len() as u64;
            let is_new = !self.dirs.contains_key(above);
            *self.dirs.entry(above.to_vec()).or_default() += (8 + len).next_multiple_of(4);
            if !is_new || above.is_empty() {
                return;
            }
            self.inodes += 1;
            path = above;
        }
    }
}

impl Sink for Sizer {
    fn entry(&mut self, entry: &Entry, data: &mut dyn Data) -> Result<()> {
        self.watch.tell(self.seen)?;
        self.seen.objects += 1;
        if entry.kind == Kind::Dir {
            // A directory that was met as a parent has been counted.
            if self.dirs.contains_key(&entry.path) {
                return Ok(());
            }
            self.dirs.insert(entry.path.clone(), 0);
        }
        if !entry.path.is_empty() {
            self.child(&entry.path);
        }
        if matches!(entry.kind, Kind::HardLink(_)) {
            return Ok(());
        }
        self.inodes += 1;
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
