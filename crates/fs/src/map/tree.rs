//! The extent tree as a tree: going down, room for one more entry, entries that go away.
//!
//! A node is the inode's own (`None`) or a block. Every node is checked when it is gone through: its depth, that its
//! keys lie between its parent's, and once per image everything else ([`extent::check_block`]).

use super::rules::{Legal, charge, seed};
use crate::error::{Error, Result};
use crate::space;
use crate::txn::Op;
use crate::txn::block_kinds as kinds;
use quire_layout::extent::{self, ENTRY, Extent, Index, MAX_DEPTH, Node, NodeMut};
use quire_layout::inode::Inode;
use quire_layout::{BlockNo, Corrupt, FileBlock, Ino, Structure};

/// One node on the way from the root to a leaf.
#[derive(Clone, Copy, Debug)]
pub(super) struct Level {
    /// `None`: the inode's own node.
    pub block: Option<BlockNo>,
    /// The entry that the way goes through. In the leaf: see [`Path::slot`].
    pub slot: usize,
    pub entries: usize,
    pub max: usize,
}

/// The way from the root to the leaf that does or would hold a file block.
pub(super) struct Path {
    levels: Vec<Level>,
    /// The last extent of the leaf that starts at or before the file block.
    pub slot: Option<usize>,
    /// That extent.
    pub extent: Option<Extent>,
    /// The extent after it in the leaf.
    pub after: Option<Extent>,
    /// The first file block of the next leaf.
    pub next_leaf: Option<FileBlock>,
    /// The first file block of the entry through which the way goes, at the lowest level where an entry lies to its
    /// left.
    pub left_of: Option<FileBlock>,
}

impl Path {
    pub(super) fn leaf(&self) -> Level {
        *self.levels.last().expect("a path has a root")
    }

    /// Start of the next extent after the file block, if there is one.
    pub(super) fn next_start(&self) -> Option<FileBlock> {
        self.after.map(|e| e.at).or(self.next_leaf)
    }
}

/// Reads a node; `f` sees it checked.
pub(super) fn view<R>(
    op: &mut Op<'_>,
    ino: Ino,
    inode: &Inode,
    block: Option<BlockNo>,
    f: impl FnOnce(Node<'_>) -> R,
) -> Result<R> {
    let legal = Legal::of(op, ino);
    match block {
        None => {
            extent::check_root(inode.block_area(), |b, n| legal.allows(b, n)).map_err(|c| c.of(ino.0))?;
            Ok(f(Node::new(inode.block_area())))
        }
        Some(b) => {
            let seed = seed(op, ino, inode);
            let image = op.block(b, kinds::EXTENT_NODE, |bytes| {
                extent::check_block(bytes, seed, |b, n| legal.allows(b, n)).map_err(|c| c.of(ino.0))
            })?;
            Ok(f(Node::new(&image)))
        }
    }
}

/// Changes a node that was read in this operation, and seals it.
pub(super) fn edit<R>(
    op: &mut Op<'_>,
    ino: Ino,
    inode: &mut Inode,
    block: Option<BlockNo>,
    f: impl FnOnce(&mut NodeMut<'_>) -> R,
) -> Result<R> {
    match block {
        None => Ok(f(&mut NodeMut::new(inode.block_area_mut()))),
        Some(b) => {
            let seed = seed(op, ino, inode);
            let mut node = NodeMut::new(op.block_mut(b)?);
            let r = f(&mut node);
            node.seal(seed);
            Ok(r)
        }
    }
}

/// What a node says about the way to a file block.
enum Down {
    /// The last extent that starts at or before it, with its slot, and the one after.
    Leaf(Option<usize>, Option<Extent>, Option<Extent>),
    /// The entry to follow, with its slot, and the first file block of the one after.
    Index(usize, Index, Option<FileBlock>),
}

/// Goes down to the leaf for file block `at`.
pub(super) fn descend(op: &mut Op<'_>, ino: Ino, inode: &Inode, at: FileBlock) -> Result<Path> {
    let mut levels = Vec::with_capacity(usize::from(MAX_DEPTH) + 1);
    let (mut block, mut depth) = (None, None);
    let (mut least, mut next_leaf, mut left_of) = (FileBlock(0), None, None);
    loop {
        let bad = |why| {
            let c = Corrupt::new(Structure::ExtentNode, why).of(ino.0);
            Error::from(block.map_or(c.clone(), |b| c.at(b)))
        };
        let (entries, max, own_depth, first, last, down) = view(op, ino, inode, block, |n| {
            let (count, found) = (n.entries(), n.search(at));
            let first = (count > 0).then(|| n.key(0));
            let last = (count > 0).then(|| n.key(count - 1));
            let down = if n.depth() == 0 {
                let after = found.map_or(0, |i| i + 1);
                Down::Leaf(found, found.map(|i| n.extent(i)), (after < count).then(|| n.extent(after)))
            } else {
                let slot = found.unwrap_or(0);
                Down::Index(slot, n.index(slot), (slot + 1 < count).then(|| n.key(slot + 1)))
            };
            (count, n.max(), n.depth(), first, last, down)
        })?;
        if depth.is_some_and(|d| d != own_depth) {
            return Err(bad("its depth does not follow from its parent's"));
        }
        if first.is_some_and(|f| f < least) || last.is_some_and(|l| next_leaf.is_some_and(|n| l >= n)) {
            return Err(bad("its entries lie outside of what its parent says"));
        }
        match down {
            Down::Leaf(slot, extent, after) => {
                levels.push(Level { block, slot: slot.unwrap_or(0), entries, max });
                return Ok(Path { levels, slot, extent, after, next_leaf, left_of });
            }
            Down::Index(slot, index, next) => {
                levels.push(Level { block, slot, entries, max });
                least = index.at;
                next_leaf = next.or(next_leaf);
                if slot > 0 {
                    left_of = Some(index.at);
                }
                block = Some(index.child);
                depth = Some(own_depth - 1);
            }
        }
    }
}

/// The first key of a node has changed: the entries above follow (E2).
pub(super) fn fix_keys(op: &mut Op<'_>, ino: Ino, inode: &mut Inode, path: &Path, key: FileBlock) -> Result<()> {
    fix_keys_above(op, ino, inode, path, path.levels.len() - 1, key)
}

fn fix_keys_above(
    op: &mut Op<'_>,
    ino: Ino,
    inode: &mut Inode,
    path: &Path,
    below: usize,
    key: FileBlock,
) -> Result<()> {
    for level in path.levels[..below].iter().rev() {
        edit(op, ino, inode, level.block, |n| n.set_key(level.slot, key))?;
        if level.slot > 0 {
            break;
        }
    }
    Ok(())
}

/// Replaces extent `slot` of the path's leaf.
pub(super) fn set(op: &mut Op<'_>, ino: Ino, inode: &mut Inode, path: &Path, slot: usize, e: &Extent) -> Result<()> {
    let moved = edit(op, ino, inode, path.leaf().block, |n| {
        let moved = n.view().key(slot) != e.at;
        n.set(slot, &e.encode());
        moved
    })?;
    if moved && slot == 0 { fix_keys(op, ino, inode, path, e.at) } else { Ok(()) }
}

/// Makes room for one more entry: one step of growing. Go down again afterwards, and call again if the leaf is still
/// full.
pub(super) fn make_room(
    op: &mut Op<'_>,
    ino: Ino,
    inode: &mut Inode,
    path: &Path,
    at: FileBlock,
    near: BlockNo,
) -> Result<()> {
    // The lowest node with room has only full ones below: the uppermost of these is split.
    match path.levels.iter().rposition(|l| l.entries < l.max) {
        None => grow(op, ino, inode, near),
        Some(roomy) => {
            let appending = path.next_leaf.is_none() && path.extent.is_some_and(|e| e.at < at) && path.after.is_none();
            split(op, ino, inode, &path.levels[roomy], &path.levels[roomy + 1], appending, near)
        }
    }
}

/// A fresh block for a node.
fn new_block(op: &mut Op<'_>, ino: Ino, inode: &mut Inode, near: BlockNo) -> Result<BlockNo> {
    let pool = op.map_pool();
    let run = space::alloc_blocks(op, near, 1, pool)?;
    charge(op, ino, inode, 1)?;
    Ok(run.start)
}

fn fill(op: &mut Op<'_>, b: BlockNo, seed: Option<u32>, depth: u16, entries: &[[u8; ENTRY]]) -> Result<()> {
    let mut node = NodeMut::init(op.block_new(b, kinds::EXTENT_NODE)?, depth);
    node.append(entries);
    node.seal(seed);
    Ok(())
}

/// Moves all of the root into a block of its own; the tree is one level deeper.
fn grow(op: &mut Op<'_>, ino: Ino, inode: &mut Inode, near: BlockNo) -> Result<()> {
    let depth = Node::new(inode.block_area()).depth();
    if depth >= MAX_DEPTH {
        return Err(Error::TooLarge);
    }
    let b = new_block(op, ino, inode, near)?;
    let seed = seed(op, ino, inode);
    let mut root = NodeMut::new(inode.block_area_mut());
    let at = root.view().key(0);
    let entries = root.take_tail(0);
    root.append(&[Index { at, child: b }.encode()]);
    root.set_depth(depth + 1);
    fill(op, b, seed, depth, &entries)
}

/// Splits a full node under a parent with room: in the middle, or just its last entry when the file grows at its end.
fn split(
    op: &mut Op<'_>,
    ino: Ino,
    inode: &mut Inode,
    parent: &Level,
    full: &Level,
    appending: bool,
    near: BlockNo,
) -> Result<()> {
    let b = new_block(op, ino, inode, near)?;
    let seed = seed(op, ino, inode);
    let from = if appending { full.entries - 1 } else { full.entries / 2 };
    let (depth, at, tail) = edit(op, ino, inode, full.block, |n| {
        let (depth, at) = (n.view().depth(), n.view().key(from));
        (depth, at, n.take_tail(from))
    })?;
    fill(op, b, seed, depth, &tail)?;
    edit(op, ino, inode, parent.block, |n| n.insert(parent.slot + 1, &Index { at, child: b }.encode()))
}

/// Removes extent `slot` of the path's leaf, nodes that become empty with it, and levels that are not needed (E2, E3).
pub(super) fn remove_entry(op: &mut Op<'_>, ino: Ino, inode: &mut Inode, path: &Path, slot: usize) -> Result<()> {
    let mut slot = slot;
    for (depth, level) in path.levels.iter().enumerate().rev() {
        let (left, key) = edit(op, ino, inode, level.block, |n| {
            n.remove(slot);
            let left = n.view().entries();
            (left, (left > 0).then(|| n.view().key(0)))
        })?;
        if left > 0 {
            if let (0, Some(key)) = (slot, key) {
                fix_keys_above(op, ino, inode, path, depth, key)?;
            }
            break;
        }
        match level.block {
            None => NodeMut::new(inode.block_area_mut()).set_depth(0),
            Some(b) => {
                free_block(op, ino, inode, b)?;
                slot = path.levels[depth - 1].slot;
            }
        }
    }
    shrink(op, ino, inode)
}

fn free_block(op: &mut Op<'_>, ino: Ino, inode: &mut Inode, b: BlockNo) -> Result<()> {
    space::free_blocks(op, b, 1)?;
    charge(op, ino, inode, -1)
}

/// While the root has a single child whose entries fit in the root, they take its place.
fn shrink(op: &mut Op<'_>, ino: Ino, inode: &mut Inode) -> Result<()> {
    loop {
        let root = Node::new(inode.block_area());
        if root.depth() == 0 || root.entries() != 1 {
            return Ok(());
        }
        let (child, depth, room) = (root.index(0).child, root.depth(), root.max());
        let taken = view(op, ino, inode, Some(child), |n| {
            let fits = n.entries() <= room && n.depth() == depth - 1;
            fits.then(|| (0..n.entries()).map(|i| n.raw(i)).collect::<Vec<_>>())
        })?;
        let Some(entries) = taken else { return Ok(()) };
        let mut root = NodeMut::new(inode.block_area_mut());
        root.remove(0);
        root.append(&entries);
        root.set_depth(depth - 1);
        free_block(op, ino, inode, child)?;
    }
}
