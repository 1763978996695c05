//! What the allocator keeps in memory besides the bitmaps: hints by group, busy blocks, counts, reservations.
//!
//! *Guarantees*: an operation that fails changes nothing here. It collects its changes in a [`SpaceDelta`], which
//! [`SpaceTable::apply`] applies when the operation succeeds. A wrong hint costs time and nothing else.
//!
//! *Relies on*: the metadata mutex, which guards the table.

use super::reservation::{Reservation, ReservationChange};
use super::zones::Zones;
use crate::error::Result;
use quire_device::sync::Arc;
use quire_layout::features::incompat;
use quire_layout::group_desc::GroupDesc;
use quire_layout::superblock::Superblock;
use quire_layout::{BlockNo, GroupNo, Tid};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A run of disk blocks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Run {
    pub start: BlockNo,
    pub len: u32,
}

impl Run {
    #[must_use]
    pub(crate) fn new(start: BlockNo, len: u32) -> Self {
        Run { start, len }
    }

    /// The block after the last.
    #[must_use]
    pub(crate) fn end(&self) -> BlockNo {
        self.start.plus(u64::from(self.len))
    }
}

/// The account on which blocks are taken (A8).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pool {
    /// Leaves root's reserve, the metadata reserve, and the blocks reserved for delayed allocation.
    User,
    /// May use root's reserve: root, and the user and group that the superblock or the mount names.
    Root,
    /// May use root's reserve and the metadata reserve, and leaves what is reserved for delayed allocation: blocks of
    /// maps for which nothing was reserved, so that a full disk can still be emptied.
    Metadata,
    /// Any free block: what the caller has reserved.
    Reserved,
}

/// What is known of a group without reading its bitmaps. Free counts are the descriptor's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct GroupHint {
    pub free: u32,
    pub free_inodes: u32,
    pub dirs: u32,
    /// No run of available blocks is longer than this.
    pub longest: u32,
    /// Where the last allocation ended: small files go there.
    pub next: u32,
}

impl GroupHint {
    /// What the descriptor tells.
    pub(crate) fn of(d: &GroupDesc) -> Self {
        GroupHint {
            free: d.free_blocks(),
            free_inodes: d.free_inodes(),
            dirs: d.used_dirs(),
            longest: d.free_blocks(),
            next: 0,
        }
    }
}

/// Blocks of a group that are free in its bitmap, but not available.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Busy {
    pub words: Vec<u64>,
    pub count: u32,
}

impl Busy {
    pub(crate) fn new(bits: u32) -> Self {
        Busy { words: vec![0; usize::try_from(bits.div_ceil(64)).expect("small")], count: 0 }
    }

    pub(crate) fn set(&mut self, from: u32, len: u32, busy: bool) {
        for i in from..from + len {
            let (w, bit) = (usize::try_from(i / 64).expect("small"), 1u64 << (i % 64));
            let was = self.words[w] & bit != 0;
            assert_ne!(was, busy, "a block is claimed or freed twice");
            self.words[w] ^= bit;
        }
        self.count = if busy { self.count + len } else { self.count - len };
    }
}

/// How full a file system is, in blocks and inodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Space {
    /// Blocks that files and directories can use, overhead taken off (as `statfs` wants it).
    pub blocks: u64,
    /// Blocks that are neither used nor reserved.
    pub free: u64,
    /// Of these, what a user without privilege may take.
    pub available: u64,
    pub inodes: u64,
    pub free_inodes: u64,
}

/// The allocator's memory. Guarded by the metadata mutex.
#[derive(Default)]
pub(crate) struct SpaceTable {
    zones: Arc<Zones>,
    pub(crate) groups: Vec<GroupHint>,
    pub(crate) busy: BTreeMap<GroupNo, Busy>,
    busy_blocks: u64,
    /// Freed runs whose transaction is not known to be durable, oldest first.
    freed: VecDeque<(Tid, Vec<Run>)>,
    /// The newest transaction whose freed blocks were taken for discarding, until they are released.
    discarding: Option<Tid>,
    free: u64,
    free_inodes: u64,
    reserved: Reservation,
    root_reserve: u64,
    metadata_reserve: u64,
    /// As the superblock says; else the zones and what lies before the first group.
    overhead: Option<u64>,
    blocks_per_group: u32,
    first: u64,
    /// Where the last long run ended that did not go on where its file ended, since the mount.
    pub(crate) stream: Option<BlockNo>,
    /// Directories made at the top so far: the next one starts its search elsewhere.
    pub(crate) spread: u32,
    distrust: Distrust,
}

/// Groups whose bitmaps were found damaged since the mount. Nothing is taken there any more: what is marked free may
/// be in use. What files own there is freed as before, if it is marked used.
#[derive(Default)]
struct Distrust {
    blocks: BTreeSet<GroupNo>,
    inodes: BTreeSet<GroupNo>,
    /// Those whose bitmap could not be read, and is not known to be damaged.
    unread: Unread,
    /// One was added since [`SpaceTable::take_new_distrust`] looked.
    new: bool,
}

#[derive(Default)]
struct Unread {
    blocks: BTreeSet<GroupNo>,
    inodes: BTreeSet<GroupNo>,
}

/// What one operation does to the allocator's memory.
#[derive(Default)]
pub(crate) struct SpaceDelta {
    /// Change of available blocks.
    pub(crate) available: i64,
    pub(crate) reserved: ReservationChange,
    pub(crate) freed: Vec<Run>,
    pub(crate) claimed: Vec<Run>,
    pub(crate) unclaimed: Vec<Run>,
    pub(crate) groups: BTreeMap<GroupNo, GroupChange>,
    pub(crate) stream: Option<BlockNo>,
    pub(crate) spread: u32,
}

#[derive(Default, Clone, Copy)]
pub(crate) struct GroupChange {
    pub free: i64,
    pub free_inodes: i64,
    pub dirs: i64,
    pub longest: Option<u32>,
    pub next: Option<u32>,
}

/// What the allocator learns when the file system has grown.
pub(crate) struct NewSpace {
    /// The superblock of the larger file system.
    pub sb: Arc<Superblock>,
    /// The groups behind those that there were.
    pub groups: Vec<GroupHint>,
    /// Blocks in them that are the file system's own.
    pub own: Vec<(BlockNo, u32)>,
}

impl SpaceDelta {
    pub(crate) fn group(&mut self, g: GroupNo) -> &mut GroupChange {
        self.groups.entry(g).or_default()
    }
}

/// Room for tree blocks of delayed allocations and conversions: as in the kernel, but in indirect maps, too.
fn metadata_reserve(sb: &Superblock) -> u64 {
    (sb.blocks_count() / 50).min(4096)
}

impl SpaceTable {
    /// Reads the descriptors of all groups, before the volume is used.
    ///
    /// # Errors
    /// A descriptor is corrupt, or cannot be read.
    pub(crate) fn load(
        sb: &Superblock,
        mut read: impl FnMut(&[GroupNo]) -> Result<Vec<GroupDesc>>,
    ) -> Result<SpaceTable> {
        let all: Vec<GroupNo> = (0..sb.group_count()).map(GroupNo).collect();
        let mut descs = Vec::with_capacity(all.len());
        for part in all.chunks(4096) {
            descs.extend(read(part)?);
        }
        let zones = Zones::collect(sb, &descs)?;
        let groups = descs.iter().map(GroupHint::of);
        let clusters = sb.cluster_blocks();
        let free = descs.iter().map(|d| u64::from(d.free_blocks())).sum::<u64>() * clusters;
        Ok(SpaceTable {
            groups: groups.collect(),
            free,
            free_inodes: descs.iter().map(|d| u64::from(d.free_inodes())).sum(),
            root_reserve: sb.reserved_blocks(),
            metadata_reserve: metadata_reserve(sb),
            overhead: sb.overhead_clusters().map(|n| n * clusters),
            blocks_per_group: sb.blocks_per_group(),
            first: sb.first_data_block().0,
            zones: Arc::new(zones),
            ..SpaceTable::default()
        })
    }

    /// The blocks that hold the file system itself.
    #[must_use]
    pub(crate) fn zones(&self) -> Arc<Zones> {
        self.zones.clone()
    }

    /// The file system has grown. Blocks that the last group has got are counted by [`SpaceTable::apply`].
    pub(crate) fn grow(&mut self, new: &NewSpace) {
        self.free += new.groups.iter().map(|g| u64::from(g.free)).sum::<u64>();
        self.free_inodes += new.groups.iter().map(|g| u64::from(g.free_inodes)).sum::<u64>();
        self.groups.extend(&new.groups);
        self.root_reserve = new.sb.reserved_blocks();
        self.metadata_reserve = metadata_reserve(&new.sb);
        self.overhead = new.sb.overhead_clusters().map(|n| n * new.sb.cluster_blocks());
        let mut zones = (*self.zones).clone();
        zones.grow(new.sb.blocks_count(), new.own.iter().copied());
        self.zones = Arc::new(zones);
    }

    /// Adds the journal's blocks to the file system's own.
    ///
    /// # Errors
    /// A block that another structure has.
    pub(crate) fn protect(&mut self, runs: impl IntoIterator<Item = (BlockNo, u32)>) -> Result<(), BlockNo> {
        let mut zones = (*self.zones).clone();
        zones.protect(runs)?;
        self.zones = Arc::new(zones);
        Ok(())
    }

    /// Free blocks as the bitmaps say: what the superblock's count must be.
    #[must_use]
    #[cfg(test)]
    pub(crate) fn free_blocks(&self) -> u64 {
        self.free
    }

    /// Free inodes as the bitmaps say.
    #[must_use]
    #[cfg(test)]
    pub(crate) fn free_inodes(&self) -> u64 {
        self.free_inodes
    }

    /// Puts the sums over the groups into the superblock, as at unmount. In between they may lag behind: the
    /// descriptors are what counts.
    pub(crate) fn put_totals(&self, sb: &mut Superblock) {
        sb.set_free_blocks(self.free);
        sb.set_free_inodes(u32::try_from(self.free_inodes).unwrap_or(u32::MAX));
    }

    /// Free blocks that are neither claimed nor freed too recently, in groups whose bitmaps can be trusted.
    #[must_use]
    pub(crate) fn available(&self) -> u64 {
        self.free.saturating_sub(self.busy_blocks).saturating_sub(self.distrusted_blocks())
    }

    fn distrusted_blocks(&self) -> u64 {
        let of = |g: &GroupNo| self.groups[usize::try_from(g.0).expect("small")].free;
        self.distrust.blocks.iter().map(|g| u64::from(of(g))).sum()
    }

    /// From now on no block is taken in this group (A9).
    pub(crate) fn distrust_blocks(&mut self, g: GroupNo) {
        self.distrust.new |= self.distrust.blocks.insert(g);
    }

    /// From now on no inode is taken in this group (A9).
    pub(crate) fn distrust_inodes(&mut self, g: GroupNo) {
        self.distrust.new |= self.distrust.inodes.insert(g);
    }

    /// The same of a group whose block bitmap could not be read, as long as there is room elsewhere.
    pub(crate) fn avoid_blocks(&mut self, g: GroupNo) {
        if self.trusts_blocks(g) {
            self.distrust.unread.blocks.insert(g);
            self.distrust_blocks(g);
        }
    }

    /// The same of a group whose inode bitmap could not be read.
    pub(crate) fn avoid_inodes(&mut self, g: GroupNo) {
        if !self.distrust.inodes.contains(&g) {
            self.distrust.unread.inodes.insert(g);
            self.distrust_inodes(g);
        }
    }

    /// There is no room elsewhere: groups whose bitmaps could not be read are tried again. True if there are any.
    pub(crate) fn try_unread_again(&mut self) -> bool {
        let Unread { blocks, inodes } = std::mem::take(&mut self.distrust.unread);
        self.distrust.blocks.retain(|g| !blocks.contains(g));
        self.distrust.inodes.retain(|g| !inodes.contains(g));
        !blocks.is_empty() || !inodes.is_empty()
    }

    #[must_use]
    pub(crate) fn trusts_blocks(&self, g: GroupNo) -> bool {
        !self.distrust.blocks.contains(&g)
    }

    /// Free inodes of a group that may be taken, as far as is known.
    #[must_use]
    pub(crate) fn usable_inodes(&self, g: GroupNo) -> u32 {
        let hint = self.groups[usize::try_from(g.0).expect("small")];
        if self.distrust.inodes.contains(&g) { 0 } else { hint.free_inodes }
    }

    /// True if a group was added since the last call: an operation that failed may find room elsewhere.
    pub(crate) fn take_new_distrust(&mut self) -> bool {
        std::mem::take(&mut self.distrust.new)
    }

    pub(crate) fn reserved(&self) -> Reservation {
        self.reserved
    }

    /// Blocks kept from users, and blocks kept from everything but metadata.
    pub(crate) fn reserves(&self) -> (u64, u64) {
        (self.root_reserve, self.metadata_reserve)
    }

    /// What `statfs` tells (`minix_df`: overhead counts as space, as with that mount option).
    #[must_use]
    pub(crate) fn space(&self, sb: &Superblock, minix_df: bool) -> Space {
        let overhead = if minix_df { 0 } else { self.overhead.unwrap_or_else(|| self.first + self.zones.total()) };
        let free = self.free.saturating_sub(self.reserved.data + self.claimed());
        // Without extents the kernel reserves nothing for trees, and tells so.
        let has_extents = sb.features().has_incompat(incompat::EXTENTS);
        let kept_for_maps = self.reserved.map.max(if has_extents { self.metadata_reserve } else { 0 });
        Space {
            blocks: sb.blocks_count().saturating_sub(overhead),
            free,
            available: free.saturating_sub(self.root_reserve + kept_for_maps),
            inodes: u64::from(sb.inodes_count()),
            free_inodes: self.free_inodes,
        }
    }

    fn claimed(&self) -> u64 {
        let freed: u64 = self.freed.iter().flat_map(|(_, runs)| runs).map(|r| u64::from(r.len)).sum();
        self.busy_blocks.saturating_sub(freed)
    }

    /// The newest transaction whose freed blocks are not available yet.
    #[must_use]
    pub(crate) fn newest_freed(&self) -> Option<Tid> {
        self.freed.back().map(|(tid, _)| *tid).or(self.discarding)
    }

    /// Takes the runs freed by transactions up to `durable`, for discarding. They stay unavailable until
    /// [`SpaceTable::release`], which comes before the next call of this.
    #[must_use]
    pub(crate) fn take_durable(&mut self, durable: Tid) -> Vec<Run> {
        let mut out = Vec::new();
        while let Some((tid, runs)) = self.pop_durable(durable) {
            self.discarding = Some(tid);
            out.extend(runs);
        }
        out
    }

    /// Makes runs from [`SpaceTable::take_durable`] available again.
    pub(crate) fn release(&mut self, runs: &[Run]) {
        self.discarding = None;
        runs.iter().for_each(|r| self.set_busy(*r, false));
    }

    /// Makes all blocks available that transactions up to `durable` have freed (A2).
    pub(crate) fn release_up_to(&mut self, durable: Tid) {
        while let Some((_, runs)) = self.pop_durable(durable) {
            runs.iter().for_each(|r| self.set_busy(*r, false));
        }
    }

    /// What the oldest transaction has freed whose blocks are not available yet, if it is one of those up to `durable`.
    fn pop_durable(&mut self, durable: Tid) -> Option<(Tid, Vec<Run>)> {
        let is_durable = self.freed.front().is_some_and(|(tid, _)| durable.at_or_after(*tid));
        if is_durable { self.freed.pop_front() } else { None }
    }

    pub(crate) fn group_of(&self, b: BlockNo) -> (GroupNo, u32) {
        let rel = b.0 - self.first;
        let per = u64::from(self.blocks_per_group);
        let g = u32::try_from(rel / per).expect("inside the file system");
        (GroupNo(g), u32::try_from(rel % per).expect("less than a group"))
    }

    /// Runs handed out lie in one group.
    fn set_busy(&mut self, run: Run, on: bool) {
        let (g, at) = self.group_of(run.start);
        let bits = self.blocks_per_group;
        let busy = self.busy.entry(g).or_insert_with(|| Busy::new(bits));
        busy.set(at, run.len, on);
        if busy.count == 0 {
            self.busy.remove(&g);
        }
        let n = u64::from(run.len);
        if on {
            self.busy_blocks += n;
        } else {
            self.busy_blocks -= n;
            let hint = &mut self.groups[usize::try_from(g.0).expect("small")];
            hint.longest = hint.free;
        }
    }

    /// Applies what an operation did that has joined `tid`.
    pub(crate) fn apply(&mut self, d: SpaceDelta, tid: Tid) {
        for (g, x) in d.groups {
            let hint = &mut self.groups[usize::try_from(g.0).expect("small")];
            hint.free = hint.free.saturating_add_signed(i32::try_from(x.free).expect("less than a group"));
            hint.free_inodes =
                hint.free_inodes.saturating_add_signed(i32::try_from(x.free_inodes).expect("less than a group"));
            hint.dirs = hint.dirs.saturating_add_signed(i32::try_from(x.dirs).expect("less than a group"));
            hint.longest = x.longest.unwrap_or(hint.longest).min(hint.free);
            hint.next = x.next.unwrap_or(hint.next);
            self.free = self.free.saturating_add_signed(x.free);
            self.free_inodes = self.free_inodes.saturating_add_signed(x.free_inodes);
        }
        // In this order, so that one operation may claim, mark and free.
        for r in &d.claimed {
            self.set_busy(*r, true);
        }
        for r in &d.unclaimed {
            self.set_busy(*r, false);
        }
        for r in &d.freed {
            self.set_busy(*r, true);
        }
        if !d.freed.is_empty() {
            match self.freed.back_mut() {
                Some((last, runs)) if *last == tid => runs.extend(d.freed),
                _ => self.freed.push_back((tid, d.freed)),
            }
        }
        self.reserved = self.reserved.changed(d.reserved);
        self.stream = d.stream.or(self.stream);
        self.spread = self.spread.wrapping_add(d.spread);
    }
}
