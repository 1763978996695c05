//! Adding names: into a gap, into a new block, into an htree that makes room for them.
//!
//! ```text
//! full leaf  ─> split it, its upper half of hashes to a new block; a pair for that in the node above
//! full node  ─> split it likewise; a pair in the node above
//! full root  ─> its pairs move to a new node below it: one level more
//! ```
//! One such step at a time, topmost first; then the way down is found again. So no step can meet a full parent.

use super::blocks::Dir;
use super::entry::{check_name, corrupt};
use super::inline;
use super::tree::{Path, stuck};
use crate::error::{Error, Result};
use crate::records;
use crate::space::Pool;
use crate::txn::Op;
use crate::txn::block_kinds as kinds;
use quire_layout::dir::{FileType, Hasher};
use quire_layout::inode::{Inode, flags};
use quire_layout::{BlockNo, FileBlock, Ino};

/// Steps that a name can need: a level more, two node splits, a leaf split, the insertion; and room to spare.
const MAX_STEPS: u32 = 8;

/// A name to add and what it means.
#[derive(Clone, Copy)]
struct New<'a> {
    name: &'a [u8],
    ino: Ino,
    file_type: FileType,
}

/// Gives an empty directory its first block, with `.` and `..`.
///
/// # Errors
/// No space; read-only.
pub fn init(op: &mut Op<'_>, ino: Ino, inode: &mut Inode, parent: Ino, pool: Pool) -> Result<()> {
    inode.set_size(0);
    let mut dir = Dir { pool, ..Dir::new(op, ino, inode)? };
    let (_, block) = dir.grow(op, inode)?;
    dir.format.init_first(op.block_new(block, kinds::DIR_LEAF)?, ino, parent);
    Ok(())
}

/// Adds a name. The caller has made sure that it is not there yet. Blocks are taken from `pool`.
///
/// # Errors
/// No space, also where the index has all its levels and is full; exists (if that happened to be seen); not found in a
/// directory that was removed; a name that cannot be; corrupt; read-only.
pub fn add(
    op: &mut Op<'_>,
    ino: Ino,
    inode: &mut Inode,
    name: &[u8],
    to: Ino,
    file_type: FileType,
    pool: Pool,
) -> Result<()> {
    check_name(name)?;
    inline::leave_inode(op, ino, inode, pool)?;
    let new = New { name, ino: to, file_type };
    let mut dir = Dir { pool, ..Dir::new(op, ino, inode)? };
    if dir.blocks == 0 {
        return Err(Error::NotFound);
    }
    // Tells an interrupted `is_empty` that what it has seen is no longer so, also where inodes count no versions.
    op.tables_mut().scans.has_a_new_name(ino);
    inode.set_version(inode.version().wrapping_add(1));
    records::put_inode(op, ino, inode)?;
    if dir.indexed {
        return add_indexed(op, dir, inode, new);
    }
    if inode.has(flags::INDEX) {
        // Indexed once, on a file system that has lost dir_index: a linear change makes the index stale.
        inode.set_flags(inode.flags() & !flags::INDEX);
        records::put_inode(op, ino, inode)?;
    }
    let long = dir.is_long(op);
    if long {
        op.deferred.long_dirs.push((ino, name.to_vec()));
    }
    let from = if long { op.tables().scans.room(ino, inode, name.len()) } else { 0 };
    for n in from..dir.blocks {
        let (block, image) = dir.linear(op, inode, n)?;
        if insert(op, &dir, block, &image, new)? {
            return Ok(());
        }
        if long {
            op.tables_mut().scans.no_room_before(ino, inode, name.len(), n + 1);
        }
    }
    if dir.blocks == 1 && dir.may_index {
        make_index(op, &mut dir, inode)?;
        return add_indexed(op, dir, inode, new);
    }
    let (_, block) = dir.grow(op, inode)?;
    let bytes = op.block_new(block, kinds::DIR_LEAF)?;
    dir.format.init_leaf(bytes);
    dir.format.insert(bytes, name, to, file_type).map_err(|c| c.at(block))?;
    Ok(())
}

/// Puts a name into a block of names if it has a gap for it.
fn insert(op: &mut Op<'_>, dir: &Dir, block: BlockNo, image: &[u8], new: New<'_>) -> Result<bool> {
    let named = |c: quire_layout::Corrupt| c.at(block).of(dir.ino.0);
    if dir.format.find(image, new.name).map_err(named)?.is_some() {
        return Err(Error::Exists);
    }
    if !dir.format.has_room(image, new.name.len()).map_err(named)? {
        return Ok(false);
    }
    Ok(dir.format.insert(op.block_mut(block)?, new.name, new.ino, new.file_type).map_err(named)?)
}

/// Turns a directory of one full block into an htree of a root and two leaves.
fn make_index(op: &mut Op<'_>, dir: &mut Dir, inode: &mut Inode) -> Result<()> {
    let hasher = Hasher::for_new(op.sb())?;
    let (block, image) = dir.linear(op, inode, 0)?;
    let named = |c: quire_layout::Corrupt| c.at(block).of(dir.ino.0);
    let format = dir.format;
    let dotdot = format.dots(&image, dir.ino).map_err(named)?;
    let sorted = format.hashed(&image, dotdot.offset + dotdot.rec_len, &hasher).map_err(named)?;
    let (mut left, mut right) = (vec![0; image.len()], vec![0; image.len()]);
    let hash = format.split(&sorted, &mut left, &mut right).map_err(named)?;
    let (left_fb, left_block) = dir.grow(op, inode)?;
    op.block_new(left_block, kinds::DIR_LEAF)?.copy_from_slice(&left);
    let (right_fb, right_block) = dir.grow(op, inode)?;
    op.block_new(right_block, kinds::DIR_LEAF)?.copy_from_slice(&right);
    let root = op.block_mut(block)?;
    format.init_root(root, dir.ino, dotdot.ino, hasher.version(), left_fb);
    let (_, node) = format.root(root, dir.ino)?;
    format.insert_pair(root, node, 0, hash, right_fb);
    inode.set_flags(inode.flags() | flags::INDEX);
    records::put_inode(op, dir.ino, inode)?;
    dir.indexed = true;
    Ok(())
}

fn add_indexed(op: &mut Op<'_>, mut dir: Dir, inode: &mut Inode, new: New<'_>) -> Result<()> {
    for _ in 0..MAX_STEPS {
        let path = Path::to(op, &dir, inode, |h| h.hash(new.name).major)?;
        let (block, image) = path.leaf(op, &dir, inode)?;
        if insert(op, &dir, block, &image, new)? {
            return Ok(());
        }
        let full_from = path.frames.iter().rposition(|f| !f.node.is_full()).map_or(0, |i| i + 1);
        if full_from == path.frames.len() {
            split_leaf(op, &mut dir, inode, &path, block, &image)?;
        } else if full_from == 0 {
            deepen(op, &mut dir, inode, &path)?;
        } else {
            split_node(op, &mut dir, inode, &path, full_from)?;
        }
    }
    Err(stuck(&dir).into())
}

/// Moves the upper half of a leaf's hashes to a new leaf.
fn split_leaf(
    op: &mut Op<'_>,
    dir: &mut Dir,
    inode: &mut Inode,
    path: &Path,
    block: BlockNo,
    image: &[u8],
) -> Result<()> {
    let named = |c: quire_layout::Corrupt| c.at(block).of(dir.ino.0);
    let sorted = dir.format.hashed(image, 0, &path.hasher).map_err(named)?;
    let (mut left, mut right) = (vec![0; image.len()], vec![0; image.len()]);
    let hash = dir.format.split(&sorted, &mut left, &mut right).map_err(named)?;
    // Pairs stay in order also where a damaged leaf holds hashes that are not its own.
    if hash < path.first_hash() || path.next_hash().is_some_and(|next| hash > next) {
        return Err(corrupt("name outside of its leaf's hashes", dir.ino).at(block).into());
    }
    let (fb, new_block) = dir.grow(op, inode)?;
    op.block_new(new_block, kinds::DIR_LEAF)?.copy_from_slice(&right);
    op.block_mut(block)?.copy_from_slice(&left);
    add_pair(op, dir, path, path.frames.len() - 1, hash, fb)
}

/// Adds a pair after the one that the path took at `level`.
fn add_pair(op: &mut Op<'_>, dir: &Dir, path: &Path, level: usize, hash: u32, fb: FileBlock) -> Result<()> {
    let f = &path.frames[level];
    dir.format.insert_pair(op.block_mut(f.block)?, f.node, f.at, hash, fb);
    Ok(())
}

/// Moves the upper half of an inner node's pairs to a new node.
fn split_node(op: &mut Op<'_>, dir: &mut Dir, inode: &mut Inode, path: &Path, level: usize) -> Result<()> {
    let f = &path.frames[level];
    let (mut left, mut right) = (f.image.to_vec(), vec![0; f.image.len()]);
    let hash = dir.format.split_node(&mut left, f.node, &mut right);
    let (fb, new_block) = dir.grow(op, inode)?;
    op.block_new(new_block, kinds::HTREE_NODE)?.copy_from_slice(&right);
    op.block_mut(f.block)?.copy_from_slice(&left);
    add_pair(op, dir, path, level - 1, hash, fb)
}

/// Moves the root's pairs to a new node below it.
fn deepen(op: &mut Op<'_>, dir: &mut Dir, inode: &mut Inode, path: &Path) -> Result<()> {
    if !dir.format.can_deepen(path.info) {
        return Err(Error::NoSpace);
    }
    let f = &path.frames[0];
    let (mut root, mut below) = (f.image.to_vec(), vec![0; f.image.len()]);
    let (fb, new_block) = dir.grow(op, inode)?;
    dir.format.deepen(&mut root, f.node, &mut below, fb);
    op.block_new(new_block, kinds::HTREE_NODE)?.copy_from_slice(&below);
    op.block_mut(f.block)?.copy_from_slice(&root);
    Ok(())
}
