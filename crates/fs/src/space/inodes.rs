//! Taking and freeing inodes.
//!
//! ```text
//! inode table of a group:  [ used or once used ......... | never used (itable_unused) ]
//! ```
//! What was never used may hold anything on disk. It is zeroed when the border moves over it (A6); a table block that
//! lies wholly behind the border is not even read.

use super::{group, orlov, shortage};
use crate::error::{Error, Result};
use crate::records;
use crate::txn::Op;
use crate::txn::block_kinds as kinds;
use quire_layout::bitmap::{self, Free};
use quire_layout::group_desc::{GroupDesc, flags};
use quire_layout::inode::{flags as inode_flags, mode};
use quire_layout::superblock::is_special;
use quire_layout::{Corrupt, GroupNo, Ino, Structure};

/// Takes an inode for a new object under `parent`. Its record is for the caller to write; what it held stays.
///
/// # Errors
/// No inodes left; corrupt bitmaps; read-only (bitmaps of what can only be read may have another form: bigalloc); miss.
pub(crate) fn alloc_inode(op: &mut Op<'_>, parent: Ino, file_mode: u16) -> Result<Ino> {
    op.check_writable()?;
    if shortage::strikes() {
        return Err(Error::NoInodes);
    }
    let dir = file_mode & mode::FMT == mode::DIR;
    let top = dir && (parent == Ino::ROOT || records::inode(op, parent)?.has(inode_flags::TOPDIR));
    let first = orlov::choose(op.sb(), &op.tables().space, parent, dir, top).ok_or(Error::NoInodes)?;
    let groups = op.sb().group_count();
    for n in 0..groups {
        let g = GroupNo((first.0 + n) % groups);
        // The hint is the count before this operation; the descriptor knows.
        if op.tables().space.usable_inodes(g) == 0 {
            continue;
        }
        if let Some(index) = take(op, g, dir)? {
            op.deferred.space.spread += u32::from(top);
            return Ok(Ino(g.0 * op.sb().inodes_per_group() + index + 1));
        }
    }
    Err(Error::NoInodes)
}

/// Takes the first free inode of a group.
fn take(op: &mut Op<'_>, g: GroupNo, dir: bool) -> Result<Option<u32>> {
    let sb = op.sb();
    let mut d = records::group(op, g)?;
    if d.free_inodes() == 0 {
        return Ok(None);
    }
    // The block bitmap comes into being with the inode bitmap, as in the kernel.
    if group::is_uninit(op, &d, flags::INODE_UNINIT) {
        group::init_blocks(op, g, &mut d)?;
    }
    let image = group::inode_bitmap(op, g, &d)?;
    let reserved = if g.0 == 0 { sb.first_ino().0 - 1 } else { 0 };
    let free = Free::new(&image, None, sb.inodes_per_group()).next_free(reserved);
    drop(image);
    let Some(index) = free else {
        // The group has no others, so that the next group is as good as this one (A9).
        op.tables_mut().space.distrust_inodes(g);
        let why = "reserved inodes are marked free";
        return Err(Corrupt::new(Structure::InodeBitmap, why).of(g.0).at(d.inode_bitmap()).into());
    };
    zero_up_to(op, &mut d, index)?;
    check_unused(op, g, index)?;
    group::flip_inode(op, g, &mut d, index, true)?;
    d.set_free_inodes(d.free_inodes() - 1);
    if dir {
        d.set_used_dirs(d.used_dirs() + 1);
    }
    records::put_group(op, g, d)?;
    let x = op.deferred.space.group(g);
    x.free_inodes -= 1;
    x.dirs += i64::from(dir);
    Ok(Some(index))
}

/// A9: refuses an inode that is marked free but in use, by its record or by who holds it.
fn check_unused(op: &mut Op<'_>, g: GroupNo, index: u32) -> Result<()> {
    let ino = Ino(g.0 * op.sb().inodes_per_group() + index + 1);
    let linked = match records::inode(op, ino) {
        Ok(record) => record.links() > 0,
        // A record that cannot be read belongs to no file.
        Err(Error::Corrupt(_)) => false,
        Err(e) => return Err(e),
    };
    if linked || op.refs(ino) > 0 || op.tables().orphans.contains(ino) {
        op.tables_mut().space.distrust_inodes(g);
        return Err(Corrupt::new(Structure::Inode, "in use, but marked free").of(ino.0).into());
    }
    Ok(())
}

/// Moves the border of what was never used behind inode `index`, and zeroes what it passes (A6).
fn zero_up_to(op: &mut Op<'_>, d: &mut GroupDesc, index: u32) -> Result<()> {
    if !op.context.has_lazy_groups() {
        return Ok(());
    }
    let sb = op.sb();
    let all = sb.inodes_per_group();
    // A table that was never initialised is unused as a whole, whatever the count says.
    let unused = if d.has(flags::INODE_UNINIT) { all } else { d.itable_unused() };
    let border = all - unused;
    if index < border {
        return Ok(());
    }
    let size = sb.inode_size();
    let per_block = u32::try_from(sb.block_size().bytes() / size).expect("small");
    for block in border / per_block..=index / per_block {
        let b = d.inode_table().plus(u64::from(block));
        let first = block * per_block;
        if first >= border {
            op.block_new(b, kinds::PARTS)?;
        } else {
            op.block_of_parts(b)?;
            let from = usize::try_from(border - first).expect("small") * size;
            op.block_mut(b)?[from..].fill(0);
        }
    }
    d.set_itable_unused(all - index - 1);
    Ok(())
}

/// Frees an inode. Its record is for the caller to clear.
///
/// # Errors
/// Corrupt, if it is free already or reserved; miss.
pub(crate) fn free_inode(op: &mut Op<'_>, ino: Ino, dir: bool) -> Result<()> {
    let sb = op.sb();
    let bad = |why| Corrupt::new(Structure::InodeBitmap, why).of(ino.0);
    if ino == Ino::ROOT || is_special(sb, ino) || ino.0 > sb.inodes_count() {
        return Err(bad("a reserved inode, or none, would be freed").into());
    }
    let (g, index) = place(op, ino);
    let mut d = records::group(op, g)?;
    let image = group::inode_bitmap(op, g, &d)?;
    if !bitmap::is_set(&image, index) {
        op.tables_mut().space.distrust_inodes(g);
        return Err(bad("an inode that is marked free would be freed").at(d.inode_bitmap()).into());
    }
    drop(image);
    group::flip_inode(op, g, &mut d, index, false)?;
    d.set_free_inodes(d.free_inodes() + 1);
    if dir {
        let dirs = d.used_dirs().checked_sub(1);
        d.set_used_dirs(dirs.ok_or_else(|| bad("the group has no directories to free"))?);
    }
    records::put_group(op, g, d)?;
    let x = op.deferred.space.group(g);
    x.free_inodes += 1;
    x.dirs -= i64::from(dir);
    Ok(())
}

/// True if an inode is marked as used.
///
/// # Errors
/// Corrupt bitmap; miss.
pub(crate) fn inode_is_used(op: &mut Op<'_>, ino: Ino) -> Result<bool> {
    if ino.0 == 0 || ino.0 > op.sb().inodes_count() {
        return Ok(false);
    }
    let (g, index) = place(op, ino);
    let d = records::group(op, g)?;
    let image = group::inode_bitmap(op, g, &d)?;
    Ok(bitmap::is_set(&image, index))
}

fn place(op: &Op<'_>, ino: Ino) -> (GroupNo, u32) {
    let per = op.sb().inodes_per_group();
    (GroupNo((ino.0 - 1) / per), (ino.0 - 1) % per)
}
