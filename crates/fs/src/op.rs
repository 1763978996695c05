//! An operation: block images read and changed under the metadata mutex, all or nothing.
//!
//! Guarantees: no I/O; after [`Op::stop`] every change is part of one transaction; an operation that is dropped
//! instead leaves no trace (J4). A block that is not in memory is [`Error::Miss`]: let it pass up with `?`, the
//! operation is run again from its start when the block is there. So an operation is a function that can be called several
//! times, and what it changes outside of images goes through [`Deferred`].

use crate::alloc::Pool;
use crate::attr::{Attr, Seen};
use crate::error::{Error, Result};
use crate::mode::by_rule;
use crate::options::Route;
use crate::state::{Deferred, FsState};
use crate::volume::Inner;
use quire_device::sync::MutexGuard;
use quire_device::{Buf, Epoch};
use quire_journal::{As, Full, Handle, Image, Touch};
use quire_layout::group_desc::GroupDesc;
use quire_layout::inode::{Inode, Timestamp};
use quire_layout::superblock::Superblock;
use quire_layout::{BlockNo, Corrupt, GroupNo, Ino, Structure, Tid, bitmap, orphan_file};

/// Blocks of an inode table that a miss reads at once.
const INODE_READAHEAD: u64 = 8;

/// Which of a group's bitmaps.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bitmap {
    Blocks,
    Inodes,
}

/// Whole blocks whose checksum is made once, at the end of the operation, however often it changes them.
#[derive(Default)]
struct Unsealed {
    /// Blocks of the orphan file, and the seed of their checksums.
    orphans: Vec<(BlockNo, Option<u32>)>,
    /// Bitmaps of groups.
    bitmaps: Vec<(GroupNo, Bitmap)>,
    /// The superblock, if this operation has changed it.
    superblock: Option<Superblock>,
}

/// An operation on a volume's metadata.
pub struct Op<'v> {
    handle: Handle<'v>,
    state: MutexGuard<'v, FsState>,
    pub(crate) vol: &'v Inner,
    pub(crate) deferred: Deferred,
    /// Runs that this operation has made leave memory.
    given_up: Vec<(BlockNo, u32)>,
    unsealed: Unsealed,
    now: Timestamp,
    /// The volume's own work goes on while it is frozen.
    even_frozen: bool,
    /// Who asked for it has been told that it is done.
    told: bool,
    /// On whose account blocks are taken.
    pool: Pool,
}

impl<'v> Op<'v> {
    pub(crate) fn new(
        vol: &'v Inner,
        state: MutexGuard<'v, FsState>,
        handle: Handle<'v>,
        now: Timestamp,
        even_frozen: bool,
        pool: Pool,
    ) -> Self {
        Op {
            handle,
            state,
            vol,
            deferred: Deferred::default(),
            given_up: Vec::new(),
            unsealed: Unsealed::default(),
            now,
            even_frozen,
            told: false,
            pool,
        }
    }

    /// # Errors
    /// The volume is read-only or frozen.
    fn check_writable(&self) -> Result<()> {
        match self.vol.check_writable() {
            Err(_) if self.told => Ok(()),
            Err(Error::Frozen) if self.even_frozen => Ok(()),
            other => other,
        }
    }

    /// Tells who asked for this operation that it is done, although it is not yet (N11): nothing may keep it from being done now, and nobody
    /// sees the volume before it is. What is left are changes of `more` blocks at most, all of which it has read. Where the transaction has
    /// no room for them nobody is told; the operation will be run again.
    pub(crate) fn tell(&mut self, more: usize, tell: &mut dyn FnMut()) -> Result<()> {
        self.check_writable()?;
        if self.handle.is_aborted() {
            return Err(touch_error(Touch::Aborted));
        }
        if self.handle.has_room_for(more) {
            // From now on it counts as done: a freeze, or an error elsewhere, that begins now comes after it.
            self.told = true;
            tell();
        }
        Ok(())
    }

    /// Geometry and features as they were at mount. Counts and lists: [`Op::superblock`].
    #[must_use]
    pub fn sb(&self) -> &'v Superblock {
        &self.vol.sb
    }

    /// The time of this operation.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// On whose account this operation takes blocks, unless they were reserved.
    #[must_use]
    pub fn pool(&self) -> Pool {
        self.pool
    }

    /// State besides block images. Read it; change it only through [`Deferred`] or as a hint.
    pub(crate) fn state(&self) -> &FsState {
        &self.state
    }

    pub(crate) fn state_mut(&mut self) -> &mut FsState {
        &mut self.state
    }

    /// The image of a metadata block. `check` runs once after the block came from disk, and again when somebody has taken it for
    /// something else meanwhile: a bad disk may have two uses for a block (E8).
    ///
    /// # Errors
    /// Miss; or what `check` says, with the block named.
    pub fn block(&mut self, b: BlockNo, kind: As, check: impl FnOnce(&[u8]) -> Result<(), Corrupt>) -> Result<Image> {
        let Some(image) = self.handle.read(b) else { return Err(missing(&self.given_up, b)) };
        if !self.handle.is_verified(b, kind) {
            check(self.clip(&image)).map_err(|c| c.at(b))?;
            self.handle.set_verified(b, kind);
        }
        Ok(image)
    }

    /// The image of a block whose parts are checked whenever they are looked at.
    ///
    /// # Errors
    /// Miss.
    pub fn block_of_parts(&mut self, b: BlockNo) -> Result<Image> {
        let image = self.handle.read(b);
        image.ok_or_else(|| missing(&self.given_up, b))
    }

    /// The bytes of a block: an image may be padded to whole sectors, never for ext4's block sizes.
    fn clip<'b>(&self, image: &'b Buf) -> &'b [u8] {
        &image[..self.vol.sb.block_size().bytes()]
    }

    /// Writable bytes of a block that was read and checked in this operation. Keep its checksum right.
    ///
    /// # Errors
    /// Miss; read-only or aborted.
    pub fn block_mut(&mut self, b: BlockNo) -> Result<&mut [u8]> {
        self.check_writable()?;
        match self.handle.write(b) {
            Ok(buf) => Ok(&mut buf[..]),
            Err(Touch::Miss(b)) => Err(missing(&self.given_up, b)),
            Err(t) => Err(touch_error(t)),
        }
    }

    /// Writable zeroes for a block that was just allocated, which is to be this; nothing is read.
    ///
    /// # Errors
    /// Read-only or aborted.
    pub fn block_new(&mut self, b: BlockNo, kind: As) -> Result<&mut [u8]> {
        self.check_writable()?;
        let len = self.vol.sb.block_size().bytes();
        self.handle.put_zeroed(b, len).map_err(touch_error)?;
        self.handle.set_verified(b, kind);
        match self.handle.write(b) {
            Ok(buf) => Ok(&mut buf[..]),
            Err(t) => Err(touch_error(t)),
        }
    }

    /// Makes `image` the whole new content of a block (journaled file data).
    ///
    /// # Errors
    /// Read-only or aborted.
    pub fn block_put(&mut self, b: BlockNo, image: Image) -> Result<()> {
        self.check_writable()?;
        self.handle.put(b, image).map_err(touch_error)
    }

    /// As [`Op::block_put`], of data new to its file, which could have gone in place.
    ///
    /// # Errors
    /// Read-only or aborted.
    pub fn block_put_rider(&mut self, b: BlockNo, image: Image) -> Result<()> {
        self.check_writable()?;
        self.handle.put_rider(b, image).map_err(touch_error)
    }

    /// The image of a block if it is in memory, unchecked (journaled file data).
    pub fn block_in_memory(&mut self, b: BlockNo) -> Option<Image> {
        self.handle.read(b)
    }

    /// The operation names data that was written in place, complete at `stamp`: it has to be durable before the transaction (Q5).
    pub fn after_data(&mut self, stamp: Epoch) {
        self.handle.after_data(stamp);
    }

    /// True if a record of this block is in the log, on its way, or in the open transaction.
    #[must_use]
    pub fn is_journaled(&self, b: BlockNo) -> bool {
        self.handle.is_journaled(b)
    }

    /// Blocks were freed: they leave memory and, where a record is in the log, are revoked.
    pub fn forget(&mut self, b: BlockNo, len: u32) {
        self.given_up.push((b, len));
        for n in 0..u64::from(len) {
            self.handle.forget(b.plus(n));
        }
    }

    /// One miss for all of these that are not in memory.
    ///
    /// # Errors
    /// Miss.
    pub fn want(&mut self, blocks: impl IntoIterator<Item = BlockNo>) -> Result<()> {
        let absent: Vec<_> = blocks.into_iter().filter(|b| self.handle.read(*b).is_none()).collect();
        match absent.iter().find(|b| has(&self.given_up, **b)) {
            Some(b) => Err(missing(&self.given_up, *b)),
            None if absent.is_empty() => Ok(()),
            None => Err(Error::Miss(absent)),
        }
    }

    /// The transaction that this operation joins.
    #[must_use]
    pub fn tid(&self) -> Tid {
        self.handle.tid()
    }

    /// Blocks changed so far; long work is split when this grows.
    #[must_use]
    pub fn touched(&self) -> usize {
        self.handle.touched() + usize::from(self.unsealed.superblock.is_some())
    }

    /// Where an inode's record is: block and byte offset. The group's descriptor must be in memory.
    fn inode_at(&mut self, ino: Ino) -> Result<(BlockNo, usize)> {
        let sb = self.sb();
        if ino.0 == 0 || ino.0 > sb.inodes_count() {
            return Err(Corrupt::new(Structure::Inode, "number out of range").of(ino.0).into());
        }
        let (group, index) = ((ino.0 - 1) / sb.inodes_per_group(), (ino.0 - 1) % sb.inodes_per_group());
        let offset = u64::from(index) * u64::try_from(sb.inode_size()).expect("small");
        let table = self.inode_table(GroupNo(group))?;
        let at = usize::try_from(offset % sb.block_size().bytes64()).expect("within a block");
        Ok((table.plus(offset / sb.block_size().bytes64()), at))
    }

    /// Where a group's inodes begin. That does not change while the volume is mounted.
    fn inode_table(&mut self, g: GroupNo) -> Result<BlockNo> {
        if let Some(table) = self.state.inode_tables.get(&g) {
            return Ok(*table);
        }
        let table = self.group(g)?.inode_table();
        self.state.inode_tables.insert(g, table);
        Ok(table)
    }

    /// A copy of an inode's record, checked. It may be free: see its mode and links.
    ///
    /// # Errors
    /// Miss, or corrupt.
    pub fn inode(&mut self, ino: Ino) -> Result<Inode> {
        let (b, at) = self.inode_at(ino)?;
        let size = self.sb().inode_size();
        let Some(image) = self.handle.read(b) else {
            let end = (b.0 / INODE_READAHEAD + 1) * INODE_READAHEAD;
            let last = self.sb().blocks_count();
            return Err(Error::Miss((b.0..end.min(last)).map(BlockNo).collect()));
        };
        Inode::decode(ino, &image[at..at + size], self.vol.inode_seed).map_err(|c| c.at(b).into())
    }

    /// What `stat` tells of an inode, as far as the disk knows. While this operation lasts no round records anything: a file that is
    /// not in use now has nothing pending (F4).
    pub(crate) fn seen(&self, ino: Ino, inode: &Inode) -> Seen {
        Seen { attr: Attr::of(self.sb(), ino, inode), pending: inode.is_file() && self.vol.files.has(ino) }
    }

    /// Writes an inode's record, sealed.
    ///
    /// # Errors
    /// Miss; read-only or aborted.
    pub fn put_inode(&mut self, ino: Ino, inode: &mut Inode) -> Result<()> {
        let (b, at) = self.inode_at(ino)?;
        let size = self.sb().inode_size();
        let seed = self.vol.inode_seed;
        let place = &mut self.block_mut(b)?[at..at + size];
        let only_times = inode.same_but_for_times(place);
        place.copy_from_slice(inode.sealed(ino, seed));
        // A directory's times change with its entries.
        self.note_change(ino, !only_times || inode.is_dir());
        Ok(())
    }

    /// An fsync of this inode waits for the transaction of this operation; with `data`, an fdatasync as well.
    pub fn note_change(&mut self, ino: Ino, data: bool) {
        self.deferred.changed.push((ino, data));
    }

    /// The descriptor of a group, checked.
    ///
    /// # Errors
    /// Miss, or corrupt.
    pub fn group(&mut self, g: GroupNo) -> Result<GroupDesc> {
        if g.0 >= self.sb().group_count() {
            return Err(Corrupt::new(Structure::GroupDescriptor, "number out of range").of(g.0).into());
        }
        let (b, at) = self.sb().descriptor_at(g);
        let image = self.block_of_parts(b)?;
        let sb = self.sb();
        GroupDesc::decode(sb, self.vol.desc_sums, g, &image[at..]).map_err(|c| c.at(b).into())
    }

    /// Writes the descriptor of a group, sealed.
    ///
    /// # Errors
    /// Miss; read-only or aborted.
    pub fn put_group(&mut self, g: GroupNo, d: GroupDesc) -> Result<()> {
        let (b, at) = self.sb().descriptor_at(g);
        let bytes = d.encode(self.vol.desc_sums, g);
        self.block_mut(b)?[at..at + bytes.len()].copy_from_slice(&bytes);
        Ok(())
    }

    /// The checksum of a block of the orphan file is made when the operation ends.
    pub(crate) fn seal_orphans_later(&mut self, b: BlockNo, seed: Option<u32>) {
        if !self.unsealed.orphans.contains(&(b, seed)) {
            self.unsealed.orphans.push((b, seed));
        }
    }

    /// The checksum of a group's bitmap is made when the operation ends.
    pub(crate) fn seal_bitmap_later(&mut self, g: GroupNo, which: Bitmap) {
        if self.sb().features().metadata_csum() && !self.unsealed.bitmaps.contains(&(g, which)) {
            self.unsealed.bitmaps.push((g, which));
        }
    }

    /// Makes the checksums that were put off (A3). The last thing before [`Op::stop`].
    ///
    /// # Errors
    /// Corrupt (a block that is several things at once); read-only or aborted.
    pub(crate) fn seal(&mut self) -> Result<()> {
        let Unsealed { orphans, bitmaps, superblock } = std::mem::take(&mut self.unsealed);
        for (b, seed) in orphans {
            orphan_file::seal(self.block_mut(b)?, b, seed);
        }
        for (g, which) in bitmaps {
            let mut d = self.group(g)?;
            match which {
                Bitmap::Blocks => {
                    let image = self.block_of_parts(d.block_bitmap())?;
                    d.set_block_bitmap_csum(bitmap::block_bitmap_checksum(self.sb(), self.clip(&image)));
                }
                Bitmap::Inodes => {
                    let image = self.block_of_parts(d.inode_bitmap())?;
                    d.set_inode_bitmap_csum(bitmap::inode_bitmap_checksum(self.sb(), self.clip(&image)));
                }
            }
            self.put_group(g, d)?;
        }
        if let Some(mut sb) = superblock {
            sb.seal();
            let (b, at) = self.vol.superblock_at();
            self.block_mut(b)?[at..at + sb.bytes().len()].copy_from_slice(sb.bytes());
        }
        Ok(())
    }

    /// The superblock as it is now.
    ///
    /// # Errors
    /// Miss, or corrupt.
    pub fn superblock(&mut self) -> Result<Superblock> {
        if let Some(sb) = &self.unsealed.superblock {
            return Ok(sb.clone());
        }
        let (b, at) = self.vol.superblock_at();
        let image = self.block_of_parts(b)?;
        Superblock::decode(&image[at..]).map_err(|c| c.at(b).into())
    }

    /// The superblock as it is now, to be changed. It is sealed and written when the operation ends.
    ///
    /// # Errors
    /// Miss; corrupt; read-only or aborted.
    pub fn superblock_mut(&mut self) -> Result<&mut Superblock> {
        if self.unsealed.superblock.is_none() {
            self.check_writable()?;
            self.unsealed.superblock = Some(self.superblock()?);
        }
        Ok(self.unsealed.superblock.as_mut().expect("just put"))
    }

    /// Gives the caller of the running API call a reference on an inode, when the operation succeeds.
    pub fn add_ref(&mut self, ino: Ino) {
        self.deferred.refs.push(ino);
    }

    /// An inode is known by this name from now on, as far as rules are concerned.
    pub(crate) fn note_name(&mut self, ino: Ino, name: &[u8]) {
        if self.vol.options.route == Route::Adaptive {
            self.deferred.named.push((ino, by_rule(&self.vol.options.journal_rules, name)));
        }
    }

    /// References that users hold on an inode.
    #[must_use]
    pub fn refs(&self, ino: Ino) -> u64 {
        self.state.refs.get(&ino).copied().unwrap_or(0)
    }

    /// Ends the operation: all its changes are part of the transaction returned.
    pub(crate) fn stop(mut self) -> Result<Tid, Full> {
        let told = self.told;
        let tid = self
            .handle
            .stop()
            .inspect_err(|_| assert!(!told, "an operation was told to be done without room for it"))?;
        self.state.apply(std::mem::take(&mut self.deferred), tid);
        if self.state.changes.is_long() {
            self.state.changes.prune(self.vol.journal.durable());
        }
        Ok(tid)
    }
}

fn has(runs: &[(BlockNo, u32)], b: BlockNo) -> bool {
    runs.iter().any(|(start, len)| (start.0..start.0 + u64::from(*len)).contains(&b.0))
}

/// Why a block is not in memory: it was never read, or this very operation has freed it or given it to a file. Then something still
/// refers to it, and running the operation again would not help. (Beside a borrowed handle only the runs can be had, not the operation.)
fn missing(given_up: &[(BlockNo, u32)], b: BlockNo) -> Error {
    if has(given_up, b) {
        let why = "a block is used after it was given up: it has two owners";
        Corrupt::new(Structure::BlockBitmap, why).at(b).into()
    } else {
        Error::Miss(vec![b])
    }
}

fn touch_error(t: Touch) -> Error {
    match t {
        Touch::Miss(b) => Error::Miss(vec![b]),
        Touch::Aborted => Error::ReadOnly("the journal was aborted"),
    }
}
