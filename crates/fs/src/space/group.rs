//! One group's bitmaps inside an operation: read and checked, made where they were never initialised, and changed
//! together with the descriptor (A3). In a group whose bitmap is found damaged nothing is taken any more (A9).

use crate::error::{Error, Result};
use crate::records;
use crate::tables::{Busy, Run};
use crate::txn::block_kinds as kinds;
use crate::txn::{Bitmap, Op};
use quire_cache::Image;
use quire_device::Buf;
use quire_device::sync::Arc;
use quire_layout::bitmap::{self, Free};
use quire_layout::group_desc::{GroupDesc, flags};
use quire_layout::superblock::Superblock;
use quire_layout::{BlockNo, Corrupt, GroupNo, Structure};

/// True if `flag` is set and counts: the flags mean nothing without descriptor checksums.
pub(super) fn is_uninit(op: &Op<'_>, d: &GroupDesc, flag: u16) -> bool {
    op.context.has_lazy_groups() && d.has(flag)
}

/// A7: the block bitmap of a group, checked; computed if the group was never used.
pub(super) fn block_bitmap(op: &mut Op<'_>, g: GroupNo, d: &GroupDesc) -> Result<Image> {
    let found = find_block_bitmap(op, g, d);
    if matches!(found, Err(Error::Corrupt(_))) {
        op.tables_mut().space.distrust_blocks(g);
    }
    found
}

fn find_block_bitmap(op: &mut Op<'_>, g: GroupNo, d: &GroupDesc) -> Result<Image> {
    if is_uninit(op, d, flags::BLOCK_UNINIT) {
        let image = initial_block_bitmap(op, g);
        if bitmap::count_free(&image, op.sb().blocks_in(g)) != d.free_blocks() {
            // Written or not, the bitmap was in use: the flag is wrong, or the count.
            let why = "the group was never used, but its count of free blocks says that it was";
            return Err(Corrupt::new(Structure::BlockBitmap, why).of(g.0).into());
        }
        return Ok(Arc::new(image));
    }
    let (sb, zones) = (op.sb(), op.tables().space.zones());
    let start = sb.group_start(g);
    let blocks = sb.blocks_in(g);
    op.block(d.block_bitmap(), kinds::BLOCK_BITMAP, |b| {
        check_sum(sb, d, bitmap::block_bitmap_checksum(sb, b), d.block_bitmap_csum(), Structure::BlockBitmap, g)?;
        let bad = |why| Corrupt::new(Structure::BlockBitmap, why).of(g.0);
        if bitmap::count_free(b, blocks) != d.free_blocks() {
            return Err(bad("does not agree with the group's count of free blocks"));
        }
        for (from, to) in zones.within(start, start.plus(u64::from(blocks))) {
            if !bitmap::all_set(b, bit(start, from), bit(start, to)) {
                return Err(bad("blocks of the file system itself are marked free"));
            }
        }
        Ok(())
    })
}

fn bit(start: BlockNo, b: BlockNo) -> u32 {
    u32::try_from(b.0 - start.0).expect("inside the group")
}

fn check_sum(
    sb: &Superblock,
    d: &GroupDesc,
    sum: u32,
    stored: u32,
    what: Structure,
    g: GroupNo,
) -> Result<(), Corrupt> {
    if sb.features().metadata_csum() && d.csum_bits(sum) != stored {
        return Err(Corrupt::new(what, "checksum does not match").of(g.0));
    }
    Ok(())
}

/// What a group's bitmap is before anything was allocated: the file system's own blocks, and padding.
fn initial_block_bitmap(op: &Op<'_>, g: GroupNo) -> Buf {
    let (sb, zones) = (op.sb(), op.tables().space.zones());
    let mut b = Buf::zeroed(sb.block_size().bytes());
    let (start, blocks) = (sb.group_start(g), sb.blocks_in(g));
    for (from, to) in zones.within(start, start.plus(u64::from(blocks))) {
        bitmap::set(&mut b, bit(start, from), bit(start, to));
    }
    bitmap::pad(&mut b, blocks);
    b
}

/// Writes the block bitmap of a group that was never used.
pub(super) fn init_blocks(op: &mut Op<'_>, g: GroupNo, d: &mut GroupDesc) -> Result<()> {
    if !is_uninit(op, d, flags::BLOCK_UNINIT) {
        return Ok(());
    }
    let image = block_bitmap(op, g, d)?;
    op.block_new(d.block_bitmap(), kinds::BLOCK_BITMAP)?.copy_from_slice(&image);
    d.set_flags(d.flags() & !flags::BLOCK_UNINIT);
    seal_blocks(op.sb(), d, &image);
    Ok(())
}

fn seal_blocks(sb: &Superblock, d: &mut GroupDesc, b: &[u8]) {
    if sb.features().metadata_csum() {
        d.set_block_bitmap_csum(bitmap::block_bitmap_checksum(sb, b));
    }
}

/// Sets or clears the bits of a run that lies in one group and whose bits are all the other way.
pub(super) fn flip(op: &mut Op<'_>, g: GroupNo, run: Run, used: bool) -> Result<()> {
    let sb = op.sb();
    let mut d = records::group(op, g)?;
    init_blocks(op, g, &mut d)?;
    let image = block_bitmap(op, g, &d)?;
    let (from, to) = (bit(sb.group_start(g), run.start), bit(sb.group_start(g), run.end()));
    let at = d.block_bitmap();
    if !op.tables().space.zones().legal(run.start, u64::from(run.len)) {
        let why = "a file owns blocks of the file system itself";
        return Err(Corrupt::new(Structure::BlockBitmap, why).of(g.0).at(at).into());
    }
    let bad = |op: &mut Op<'_>, why| {
        op.tables_mut().space.distrust_blocks(g);
        Err(Corrupt::new(Structure::BlockBitmap, why).of(g.0).at(at).into())
    };
    if used && !bitmap::none_set(&image, from, to) {
        return bad(op, "a claimed block is in use");
    }
    if !used && !bitmap::all_set(&image, from, to) {
        return bad(op, "a file owns blocks that are marked free");
    }
    drop(image);
    let b = op.block_mut(at)?;
    if used {
        bitmap::set(b, from, to)
    } else {
        bitmap::clear(b, from, to)
    }
    records::seal_bitmap_at_end(op, g, Bitmap::Blocks);
    let free = if used { d.free_blocks().checked_sub(run.len) } else { d.free_blocks().checked_add(run.len) };
    let Some(free) = free else { return bad(op, "does not agree with the group's count of free blocks") };
    d.set_free_blocks(free);
    records::put_group(op, g, d)?;
    let (n, x) = (i64::from(run.len), op.deferred.space.group(g));
    x.free += if used { -n } else { n };
    if used {
        x.next = Some(to);
    }
    Ok(())
}

/// Calls `f` with the available blocks of a group, those before `below` only.
pub(super) fn with_free<R>(op: &mut Op<'_>, g: GroupNo, below: BlockNo, f: impl FnOnce(Free<'_>) -> R) -> Result<R> {
    let d = records::group(op, g)?;
    let image = block_bitmap(op, g, &d)?;
    let sb = op.sb();
    let start = sb.group_start(g);
    let end = u64::from(sb.blocks_in(g)).min(below.0.saturating_sub(start.0));
    let end = u32::try_from(end).expect("no more than a group");
    let pending = pending_busy(op, g);
    let busy = pending.as_ref().or_else(|| op.tables().space.busy.get(&g));
    Ok(f(Free::new(&image, busy.map(|b| &b.words[..]), end)))
}

/// The busy blocks of a group as they will be when this operation succeeds, if it changes them.
fn pending_busy(op: &Op<'_>, g: GroupNo) -> Option<Busy> {
    let (table, delta) = (&op.tables().space, &op.deferred.space);
    let here = |r: &&Run| table.group_of(r.start).0 == g;
    let mut runs = delta.freed.iter().chain(&delta.claimed).filter(here).peekable();
    runs.peek()?;
    let mut busy = table.busy.get(&g).cloned().unwrap_or_else(|| Busy::new(op.sb().blocks_per_group()));
    for r in runs {
        // Blocks that were claimed, marked and freed in this very operation are busy already.
        for i in 0..r.len {
            let at = table.group_of(r.start.plus(u64::from(i))).1;
            let (w, b) = (usize::try_from(at / 64).expect("small"), 1u64 << (at % 64));
            busy.words[w] |= b;
        }
    }
    Some(busy)
}

/// The runs of available blocks of a group that have at least `min` blocks.
pub(crate) fn free_runs(op: &mut Op<'_>, g: GroupNo, min: u32) -> Result<Vec<Run>> {
    let (start, end) = (op.sb().group_start(g), BlockNo(op.sb().blocks_count()));
    with_free(op, g, end, |free| {
        let mut runs = Vec::new();
        let mut at = 0;
        while let Some(r) = free.next_run(at) {
            if r.len >= min {
                runs.push(Run::new(start.plus(u64::from(r.start)), r.len));
            }
            at = r.start + r.len;
        }
        runs
    })
}

/// A7: the inode bitmap of a group, checked; computed if the group was never used.
pub(super) fn inode_bitmap(op: &mut Op<'_>, g: GroupNo, d: &GroupDesc) -> Result<Image> {
    let found = find_inode_bitmap(op, g, d);
    if matches!(found, Err(Error::Corrupt(_))) {
        op.tables_mut().space.distrust_inodes(g);
    }
    found
}

fn find_inode_bitmap(op: &mut Op<'_>, g: GroupNo, d: &GroupDesc) -> Result<Image> {
    let sb = op.sb();
    let all = sb.inodes_per_group();
    let bad = |why| Corrupt::new(Structure::InodeBitmap, why).of(g.0);
    if is_uninit(op, d, flags::INODE_UNINIT) {
        if g.0 == 0 || d.free_inodes() != all {
            // Written or not, the bitmap was in use, as the first group's always is: the flag is wrong, or the count.
            return Err(bad("no inode of the group was ever used, but its count of free inodes says otherwise").into());
        }
        let mut b = Buf::zeroed(sb.block_size().bytes());
        bitmap::pad(&mut b, all);
        return Ok(Arc::new(b));
    }
    // Records behind the border are zeroed when it moves over them (A6).
    let never_used = if op.context.has_lazy_groups() { d.itable_unused() } else { 0 };
    op.block(d.inode_bitmap(), kinds::INODE_BITMAP, |b| {
        check_sum(sb, d, bitmap::inode_bitmap_checksum(sb, b), d.inode_bitmap_csum(), Structure::InodeBitmap, g)?;
        if bitmap::count_free(b, all) != d.free_inodes() {
            return Err(bad("does not agree with the group's count of free inodes"));
        }
        if !all.checked_sub(never_used).is_some_and(|border| bitmap::none_set(b, border, all)) {
            return Err(bad("inodes in use lie where the group says that none was ever used"));
        }
        Ok(())
    })
}

/// Sets or clears one bit of an inode bitmap in memory, and what else changes in `d`, which the caller writes.
pub(super) fn flip_inode(op: &mut Op<'_>, g: GroupNo, d: &mut GroupDesc, index: u32, used: bool) -> Result<()> {
    let image = inode_bitmap(op, g, d)?;
    if is_uninit(op, d, flags::INODE_UNINIT) {
        op.block_new(d.inode_bitmap(), kinds::INODE_BITMAP)?.copy_from_slice(&image);
        d.set_flags(d.flags() & !flags::INODE_UNINIT);
    }
    drop(image);
    let b = op.block_mut(d.inode_bitmap())?;
    if used {
        bitmap::set(b, index, index + 1)
    } else {
        bitmap::clear(b, index, index + 1)
    }
    records::seal_bitmap_at_end(op, g, Bitmap::Inodes);
    Ok(())
}
