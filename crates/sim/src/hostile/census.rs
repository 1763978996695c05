//! Finds every metadata structure of an image, from its bytes alone.

use super::places::{Kind, Place};
use quire_layout::bytes::{be16, le16, le32};
use quire_layout::extent::{Node, check_block, check_root};
use quire_layout::features::compat;
use quire_layout::group_desc::{DescChecksum, GroupDesc, flags as group_flags};
use quire_layout::indirect;
use quire_layout::inode::{Inode, flags};
use quire_layout::jbd2::{BlockKind, Header, JournalSuperblock, Tags};
use quire_layout::superblock::{self, Superblock};
use quire_layout::{BlockNo, BlockSize, GroupNo, Ino, LogBlock};
use std::collections::BTreeMap;

/// Blocks of one directory that are damaged, about.
const MAX_LEAVES: usize = 250;

struct Census<'a> {
    bytes: &'a [u8],
    sb: &'a Superblock,
    bs: BlockSize,
    places: Vec<Place>,
    /// Byte ranges that never hold file data.
    zones: Vec<(u64, u64)>,
}

/// Every structure of a sound image, and the byte ranges that never hold file data.
pub(super) fn take(bytes: &[u8], sb: &Superblock) -> (Vec<Place>, Vec<(u64, u64)>) {
    let mut c = Census { bytes, sb, bs: sb.block_size(), places: Vec::new(), zones: Vec::new() };
    let at = usize::try_from(superblock::OFFSET).expect("small");
    c.push_part(at, superblock::SIZE, Kind::Superblock);
    for g in 0..sb.group_count() {
        c.group(GroupNo(g));
    }
    c.external_journal();
    let (mut seen, mut unique) = (std::collections::HashSet::new(), c.places);
    unique.retain(|p| seen.insert(p.at));
    (unique, c.zones)
}

impl Census<'_> {
    fn block(&self, b: BlockNo) -> &[u8] {
        let at = usize::try_from(self.bs.offset(b)).expect("in memory");
        &self.bytes[at..at + self.bs.bytes()]
    }

    fn push_part(&mut self, at: usize, len: usize, kind: Kind) {
        let block = BlockNo((at / self.bs.bytes()) as u64);
        self.places.push(Place { at: at as u64, len, block, kind });
    }

    fn push(&mut self, block: BlockNo, kind: Kind) {
        self.places.push(Place { at: self.bs.offset(block), len: self.bs.bytes(), block, kind });
    }

    fn group(&mut self, g: GroupNo) {
        let (block, offset) = self.sb.descriptor_at(g);
        let at = usize::try_from(self.bs.offset(block)).expect("in memory") + offset;
        let d = GroupDesc::decode(self.sb, DescChecksum::of(self.sb), g, &self.bytes[at..]).expect("a sound image");
        self.push_part(at, self.sb.desc_size(), Kind::Descriptor(g));
        if !d.has(group_flags::BLOCK_UNINIT) {
            self.push(d.block_bitmap(), Kind::BlockBitmap(g));
        }
        if !d.has(group_flags::INODE_UNINIT) {
            self.push(d.inode_bitmap(), Kind::InodeBitmap(g));
        }
        let table_len = u64::from(self.sb.inode_table_blocks());
        for (b, n) in [(block, 1), (d.block_bitmap(), 1), (d.inode_bitmap(), 1), (d.inode_table(), table_len)] {
            self.zones.push((self.bs.offset(b), self.bs.offset(b.plus(n))));
        }
        let used = self.sb.inodes_per_group() - d.itable_unused().min(self.sb.inodes_per_group());
        let table = usize::try_from(self.bs.offset(d.inode_table())).expect("in memory");
        for n in 0..used {
            let at = table + usize::try_from(n).expect("small") * self.sb.inode_size();
            let raw = &self.bytes[at..at + self.sb.inode_size()];
            let ino = Ino(g.0 * self.sb.inodes_per_group() + n + 1);
            let Ok(inode) = Inode::decode(ino, raw, None) else { continue };
            if inode.mode() != 0 && inode.dtime() == 0 || inode.links() > 0 {
                self.push_part(at, raw.len(), Kind::Inode(ino));
                self.inode(ino, &inode);
            }
        }
    }

    fn inode(&mut self, ino: Ino, inode: &Inode) {
        if let Some(b) = inode.xattr_block() {
            self.push(b, Kind::Xattrs);
        }
        let fast = inode.is_symlink() && inode.size() < 60;
        if inode.has(flags::INLINE_DATA) || fast || !(inode.is_file() || inode.is_dir() || inode.is_symlink()) {
            return;
        }
        let mut map = BTreeMap::new();
        if inode.uses_extents() {
            check_root(inode.block_area(), |_, _| true).expect("a sound image");
            self.extents(ino, inode.block_area(), &mut map);
        } else {
            for slot in 0..indirect::SLOTS {
                let levels = u32::try_from(slot.saturating_sub(11)).expect("small");
                let first = match levels {
                    0 => slot as u64,
                    n => 12 + (1..n).map(|l| indirect::span(self.bs, l)).sum::<u64>(),
                };
                if let Some(to) = indirect::get(inode.block_area(), slot) {
                    self.indirect(ino, to, levels, first, &mut map);
                }
            }
        }
        if inode.is_dir() {
            self.directory(ino, inode, &map);
        } else if ino == self.sb.journal_ino() && self.sb.features().has_compat(compat::HAS_JOURNAL) {
            self.journal(&map);
        } else if self.sb.features().has_compat(compat::ORPHAN_FILE) && ino == self.sb.orphan_file_ino() {
            map.values().for_each(|b| self.push(*b, Kind::OrphanFile(ino)));
        }
    }

    fn extents(&mut self, ino: Ino, node: &[u8], map: &mut BTreeMap<u64, BlockNo>) {
        let node = Node::new(node);
        for i in 0..node.entries() {
            if node.depth() == 0 {
                let e = node.extent(i);
                map.extend((0..u64::from(e.len)).map(|n| (u64::from(e.at.0) + n, e.phys.plus(n))));
            } else {
                let child = node.index(i).child;
                check_block(self.block(child), None, |_, _| true).expect("a sound image");
                self.push(child, Kind::ExtentNode(ino));
                let bytes = self.block(child).to_vec();
                self.extents(ino, &bytes, map);
            }
        }
    }

    fn indirect(&mut self, ino: Ino, to: BlockNo, levels: u32, first: u64, map: &mut BTreeMap<u64, BlockNo>) {
        if levels == 0 {
            map.insert(first, to);
            return;
        }
        self.push(to, Kind::IndirectBlock(ino));
        let bytes = self.block(to).to_vec();
        for i in 0..indirect::per_block(self.bs) {
            if let Some(below) = indirect::get(&bytes, i) {
                let span = if levels == 1 { 1 } else { indirect::span(self.bs, levels - 1) };
                self.indirect(ino, below, levels - 1, first + i as u64 * span, map);
            }
        }
    }

    fn directory(&mut self, ino: Ino, inode: &Inode, map: &BTreeMap<u64, BlockNo>) {
        let (mut nodes, mut level) = (vec![], vec![0u64]);
        if inode.has(flags::INDEX) {
            let root = self.block(map[&0]);
            for depth in 0..=root[30] {
                nodes.extend(level.iter().copied());
                let pairs = if depth == 0 { 32 } else { 8 };
                let children = level.iter().flat_map(|fb| {
                    let b = self.block(map[fb]);
                    (0..usize::from(le16(b, pairs + 2))).map(move |i| u64::from(le32(b, pairs + 4 + 8 * i)))
                });
                level = children.collect();
            }
        }
        // Of a large directory only so many leaves, evenly spread: they are all alike.
        let sparse = (map.len() / MAX_LEAVES).max(1) as u64;
        for (fb, block) in
            map.iter().filter(|(fb, _)| **fb < 3 || **fb % sparse == 0 || nodes.len() < 50 && nodes.contains(fb))
        {
            let kind = match nodes.contains(fb) {
                true if *fb == 0 => Kind::HtreeRoot(ino),
                true => Kind::HtreeNode(ino),
                false => Kind::DirLeaf(ino),
            };
            self.push(*block, kind);
        }
    }

    /// The log on a device of its own, whose bytes lie behind the file system's.
    fn external_journal(&mut self) {
        let fs_blocks = self.sb.blocks_count();
        let all = self.bytes.len() as u64 / self.bs.bytes64();
        if all <= fs_blocks {
            return;
        }
        let map = (0..all - fs_blocks).map(|n| (n, BlockNo(fs_blocks + n))).collect();
        let at = usize::try_from(self.bs.offset(BlockNo(fs_blocks))).expect("in memory") + 1024;
        self.push_part(at, superblock::SIZE, Kind::JournalDevice);
        self.log(&map, LogBlock(if self.bs.bytes() == 1024 { 2 } else { 1 }));
    }

    fn journal(&mut self, map: &BTreeMap<u64, BlockNo>) {
        self.zones.extend(map.values().map(|b| (self.bs.offset(*b), self.bs.offset(b.plus(1)))));
        self.log(map, LogBlock(0));
    }

    fn log(&mut self, map: &BTreeMap<u64, BlockNo>, superblock: LogBlock) {
        let at = |n: LogBlock| map[&u64::from(n.0)];
        self.push(at(superblock), Kind::JournalSuperblock);
        let jsb = JournalSuperblock::decode(self.block(at(superblock))).expect("a sound image");
        let format = jsb.log_format().expect("a known log");
        let next = |n: LogBlock| if n.0 + 1 == jsb.end().0 { jsb.first() } else { LogBlock(n.0 + 1) };
        let (mut n, mut tid) = (jsb.start(), jsb.sequence());
        for _ in 0..jsb.len() {
            let Some(here) = n else { return };
            let block = self.block(at(here)).to_vec();
            let Some(h) = Header::decode(&block).filter(|h| h.tid == tid) else { return };
            let mut after = next(here);
            match h.kind {
                BlockKind::Descriptor => {
                    self.push(at(here), Kind::LogDescriptor);
                    let mut tag = 12;
                    for _ in Tags::new(&format, &block) {
                        let place = self.bs.offset(at(here)) + tag as u64;
                        self.push(at(after), Kind::LogImage { tag: place, tid: tid.0 });
                        tag += format.tag_bytes() + if be16(&block, tag + 6) & 2 == 0 { 16 } else { 0 };
                        after = next(after);
                    }
                }
                BlockKind::Revoke => self.push(at(here), Kind::LogRevoke),
                BlockKind::Commit => {
                    self.push(at(here), Kind::LogCommit);
                    tid = tid.next();
                }
                _ => return,
            }
            n = Some(after);
        }
    }
}
