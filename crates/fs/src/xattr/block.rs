//! The block of attributes: shared where equal, copied on write (N4).

use crate::error::{Error, Result};
use crate::records;
use crate::space::{self, Request};
use crate::txn::Op;
use crate::txn::block_kinds as kinds;
use quire_journal::Image;
use quire_layout::checksum::crc32c;
use quire_layout::features::{Features, compat};
use quire_layout::inode::Inode;
use quire_layout::superblock::add_features;
use quire_layout::xattr::{self, ValueInodes, Xattr};
use quire_layout::{BlockNo, Corrupt, GroupNo, Ino, Structure};

/// What equal blocks have in common: ext4's own hash is the same for too many that differ.
fn key(content: &[u8]) -> u32 {
    crc32c(!0, &content[xattr::HEADER..])
}

/// The checked image of an inode's attribute block.
pub(super) fn image(op: &mut Op<'_>, ino: Ino, b: BlockNo) -> Result<Image> {
    let zones = op.tables().space.zones();
    // A caller that only looks at an image has not read its groups.
    if zones.is_loaded() && !zones.legal(b, 1) || b.0 >= op.sb().blocks_count() {
        let why = "its attributes' block lies in the file system's own, or outside of it";
        return Err(Corrupt::new(Structure::Inode, why).of(ino.0).into());
    }
    let (seed, len) = (op.context.inode_seed, op.sb().block_size().bytes());
    let places = ValueInodes::of(op.sb().features());
    let image = op.block(b, kinds::XATTRS, |bytes| xattr::check_block(bytes, b, seed, places))?;
    if !op.tables().xattr_blocks.key_of.contains_key(&b) && xattr::block_hash(&image) != 0 {
        op.deferred.xattr_blocks.push((key(&image[..len]), b));
    }
    Ok(image)
}

/// Gives an inode a block with these attributes: none, an equal one that exists, its own if nobody shares it, or a new
/// one. Block and space count of `inode` change; the caller writes it.
pub(super) fn write(op: &mut Op<'_>, ino: Ino, inode: &mut Inode, attrs: &[Xattr]) -> Result<()> {
    if attrs.is_empty() {
        return release(op, ino, inode);
    }
    let bytes = op.sb().block_size().bytes();
    let content = xattr::encode_block(attrs, bytes).ok_or(Error::NoSpace)?;
    let old = inode.xattr_block();
    if let Some(b) = shareable(op, ino, inode, &content)? {
        if Some(b) == old {
            return Ok(());
        }
        let count = xattr::refcount(&image(op, ino, b)?) + 1;
        set_count(op, b, count)?;
        release(op, ino, inode)?;
        return attach(op, ino, inode, b);
    }
    let own = match old {
        Some(b) if xattr::refcount(&image(op, ino, b)?) == 1 => b,
        _ => {
            let b = allocate(op, ino, inode)?;
            release(op, ino, inode)?;
            attach(op, ino, inode, b)?;
            op.block_new(b, kinds::XATTRS)?;
            b
        }
    };
    let seed = op.context.inode_seed;
    let block = op.block_mut(own)?;
    block[..bytes].copy_from_slice(&content);
    xattr::seal_block(&mut block[..bytes], own, seed);
    if xattr::block_hash(&content) != 0 {
        op.deferred.xattr_blocks.push((key(&content), own));
    }
    note_feature(op)
}

/// A block that holds exactly this and takes one more inode.
fn shareable(op: &mut Op<'_>, ino: Ino, inode: &Inode, content: &[u8]) -> Result<Option<BlockNo>> {
    // Without a hash it is not to be shared.
    let known = if xattr::block_hash(content) == 0 { None } else { op.tables().xattr_blocks.find(key(content)) };
    let Some(b) = known.filter(|b| *b < limit(inode)) else { return Ok(None) };
    let image = image(op, ino, b)?;
    let room = xattr::refcount(&image) < xattr::MAX_REFCOUNT || inode.xattr_block() == Some(b);
    Ok((room && xattr::same_block(&image[..content.len()], content)).then_some(b))
}

/// Blocks of an inode without extents have 32-bit numbers.
fn limit(inode: &Inode) -> BlockNo {
    BlockNo(if inode.uses_extents() { 1 << 48 } else { 1 << 32 })
}

fn allocate(op: &mut Op<'_>, ino: Ino, inode: &Inode) -> Result<BlockNo> {
    let group = GroupNo((ino.0 - 1) / op.sb().inodes_per_group());
    let goal = op.sb().group_start(group);
    let request = Request { below: limit(inode), ..Request::new(goal, 1, op.pool()) };
    Ok(space::alloc_with(op, &request)?.start)
}

fn attach(op: &mut Op<'_>, ino: Ino, inode: &mut Inode, b: BlockNo) -> Result<()> {
    inode.set_xattr_block(Some(b));
    count_sectors(op, ino, inode, true)
}

/// Every inode counts the whole block, shared or not.
fn count_sectors(op: &Op<'_>, ino: Ino, inode: &mut Inode, more: bool) -> Result<()> {
    let (f, bs) = (op.sb().features(), op.sb().block_size().bytes64());
    let now = inode.sectors(f, bs);
    let then = if more { now.checked_add(bs / 512) } else { now.checked_sub(bs / 512) };
    match then {
        Some(n) if inode.set_sectors(f, bs, n) => Ok(()),
        _ if more => Err(Error::TooLarge),
        _ => Err(Corrupt::new(Structure::Inode, "counts less space than it uses").of(ino.0).into()),
    }
}

fn set_count(op: &mut Op<'_>, b: BlockNo, count: u32) -> Result<()> {
    let (seed, bytes) = (op.context.inode_seed, op.sb().block_size().bytes());
    let block = &mut op.block_mut(b)?[..bytes];
    xattr::set_refcount(block, count);
    xattr::seal_block(block, b, seed);
    Ok(())
}

/// Takes an inode's block away; the last inode frees it. The caller writes the inode.
///
/// # Errors
/// Corrupt; miss.
pub(crate) fn release(op: &mut Op<'_>, ino: Ino, inode: &mut Inode) -> Result<()> {
    let Some(b) = inode.xattr_block() else { return Ok(()) };
    let count = xattr::refcount(&image(op, ino, b)?);
    if count > 1 {
        set_count(op, b, count - 1)?;
    } else {
        op.tables_mut().xattr_blocks.forget(b);
        op.deferred.xattr_blocks.retain(|(_, written)| *written != b);
        space::free_blocks(op, b, 1)?;
    }
    inode.set_xattr_block(None);
    count_sectors(op, ino, inode, false)
}

/// The first attribute block of a file system sets its feature, and raises revision 0.
fn note_feature(op: &mut Op<'_>) -> Result<()> {
    if op.sb().features().has_compat(compat::EXT_ATTR) {
        return Ok(());
    }
    if records::superblock(op)?.features().has_compat(compat::EXT_ATTR) {
        return Ok(());
    }
    add_features(records::superblock_mut(op)?, Features { compat: compat::EXT_ATTR, ..Features::default() });
    Ok(())
}
