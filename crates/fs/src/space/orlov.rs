//! In which group a new inode goes, after Orlov: directories at the top are spread over the disk, deeper ones stay near
//! their parent while it has room, files go to their directory's group.
//!
//! The unit is the flex group, whose bitmaps and tables lie together. Decided from hints alone, without I/O.

use crate::tables::{GroupHint, SpaceTable};
use quire_layout::features::incompat;
use quire_layout::superblock::Superblock;
use quire_layout::{GroupNo, Ino};
use std::ops::Range;

/// Groups that a new inode may go to, best first. All have free inodes, as far as is known.
pub(super) fn choose(sb: &Superblock, s: &SpaceTable, parent: Ino, dir: bool, top: bool) -> Option<GroupNo> {
    let unit = unit_size(sb);
    let units = sb.group_count().div_ceil(unit);
    let groups = |u: u32| u * unit..((u + 1) * unit).min(sb.group_count());
    let parent_group = (parent.0.max(1) - 1) / sb.inodes_per_group();
    let home = parent_group / unit;
    let found = match (dir, top) {
        (true, true) => spread(s, units, &groups),
        (true, false) => nearby(sb, s, home, units, &groups),
        (false, _) => None,
    };
    let first = found.unwrap_or(home);
    (0..units).find_map(|n| {
        let u = (first + n) % units;
        // A file goes to its directory's own group first.
        let own = (u == home && !dir && has_inodes(s, parent_group)).then_some(parent_group);
        own.or_else(|| groups(u).find(|g| has_inodes(s, *g))).map(GroupNo)
    })
}

/// Groups that are placed together.
pub(super) fn unit_size(sb: &Superblock) -> u32 {
    if sb.features().has_incompat(incompat::FLEX_BG) { sb.flex_bg_size().clamp(1, 1 << 16) } else { 1 }
}

fn has_inodes(s: &SpaceTable, g: u32) -> bool {
    s.usable_inodes(GroupNo(g)) > 0
}

fn hint(s: &SpaceTable, g: u32) -> GroupHint {
    s.groups[usize::try_from(g).expect("small")]
}

/// Free blocks, free inodes and directories of a unit.
fn sums(s: &SpaceTable, groups: Range<u32>) -> (u64, u64, u64) {
    groups
        .map(|g| (hint(s, g), s.usable_inodes(GroupNo(g))))
        .fold((0, 0, 0), |(b, i, d), (h, n)| (b + u64::from(h.free), i + u64::from(n), d + u64::from(h.dirs)))
}

/// A unit with at least the average of free blocks and inodes, and the fewest directories.
fn spread(s: &SpaceTable, units: u32, groups: &impl Fn(u32) -> Range<u32>) -> Option<u32> {
    let (blocks, inodes, _) = sums(s, 0..u32::try_from(s.groups.len()).expect("small"));
    let n = u64::from(units);
    let start = s.spread.wrapping_mul(0x9E37_79B1) % units;
    let candidates = (0..units).map(|i| (start + i) % units).map(|u| (u, sums(s, groups(u))));
    candidates
        .filter(|(_, (b, i, _))| *i > 0 && i * n >= inodes && b * n >= blocks)
        .min_by_key(|(_, (_, _, dirs))| *dirs)
        .map(|(u, _)| u)
}

/// The parent's unit, or the next that is not much fuller than the average.
fn nearby(sb: &Superblock, s: &SpaceTable, home: u32, units: u32, groups: &impl Fn(u32) -> Range<u32>) -> Option<u32> {
    let (blocks, inodes, _) = sums(s, 0..u32::try_from(s.groups.len()).expect("small"));
    let (n, unit) = (u64::from(units), u64::from(unit_size(sb)));
    let least_inodes = (inodes / n).saturating_sub(u64::from(sb.inodes_per_group()) * unit / 4);
    let least_blocks = (blocks / n).saturating_sub(u64::from(sb.blocks_per_group()) * unit / 4);
    (0..units).map(|i| (home + i) % units).find(|u| {
        let (b, i, _) = sums(s, groups(*u));
        i > 0 && i >= least_inodes && b >= least_blocks
    })
}
