//! An operation: block images read and changed under the metadata mutex, all or nothing.
//!
//! *Guarantees*: an operation does no I/O. After [`Op::stop`] every change is part of one transaction; an operation
//! that is dropped instead leaves no trace (J4).
//!
//! *Relies on*: its callers pass [`Error::Miss`] up with `?`. The engine then loads the missing blocks and runs the
//! operation again from its start. So an operation is a function that may run several times, and it changes what is
//! not a block image only through [`Deferred`].

use super::context::Context;
use super::write_gate::WriteGate;
use crate::error::{Error, Result};
use crate::tables::{Deferred, Pool, Tables};
use quire_device::sync::MutexGuard;
use quire_device::{Buf, Epoch};
use quire_journal::{BlockKind, Full, Handle, Image, Touch};
use quire_layout::inode::Timestamp;
use quire_layout::superblock::Superblock;
use quire_layout::{BlockNo, Corrupt, GroupNo, Ino, Structure, Tid};

/// Which of a group's bitmaps.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bitmap {
    Blocks,
    Inodes,
}

/// Structures whose checksum is computed once, at the end of the operation, however often the operation changes them.
#[derive(Default)]
pub(crate) struct Unsealed {
    /// Blocks of the orphan file, and the seed of their checksums.
    pub orphans: Vec<(BlockNo, Option<u32>)>,
    /// Bitmaps of groups.
    pub bitmaps: Vec<(GroupNo, Bitmap)>,
    /// The superblock, if this operation has changed it.
    pub superblock: Option<Superblock>,
}

/// How an operation runs.
#[derive(Clone, Copy)]
pub(crate) struct Terms {
    /// The time of the operation.
    pub now: Timestamp,
    /// The account on which it takes blocks, unless they were reserved.
    pub pool: Pool,
}

/// An operation on a volume's metadata.
pub struct Op<'v> {
    handle: Handle<'v>,
    tables: MutexGuard<'v, Tables>,
    pub(crate) context: &'v Context,
    sb: &'v Superblock,
    write_gate: &'v WriteGate,
    pub(crate) deferred: Deferred,
    /// Runs that this operation has removed from memory.
    forgotten: Vec<(BlockNo, u32)>,
    pub(crate) unsealed: Unsealed,
    /// What it has missed is file data.
    misses_data: bool,
    terms: Terms,
}

impl<'v> Op<'v> {
    /// `sb`: as the tables have it.
    pub(crate) fn new(
        context: &'v Context,
        sb: &'v Superblock,
        write_gate: &'v WriteGate,
        tables: MutexGuard<'v, Tables>,
        handle: Handle<'v>,
        terms: Terms,
    ) -> Self {
        let (deferred, unsealed) = (Deferred::default(), Unsealed::default());
        let (forgotten, misses_data) = (Vec::new(), false);
        Op { handle, tables, context, sb, write_gate, deferred, forgotten, unsealed, misses_data, terms }
    }

    /// # Errors
    /// The volume is read-only.
    pub(crate) fn check_writable(&self) -> Result<()> {
        self.write_gate.check()
    }

    /// Geometry as it is, and features as they were at mount. `records::superblock` gives the current counts and lists.
    #[must_use]
    pub fn sb(&self) -> &'v Superblock {
        self.sb
    }

    /// The time of this operation.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.terms.now
    }

    /// The account on which this operation takes blocks, unless they were reserved.
    #[must_use]
    pub fn pool(&self) -> Pool {
        self.terms.pool
    }

    /// The account on which it takes blocks of a file's map: the one that it has reserved them on, or none.
    #[must_use]
    pub(crate) fn map_pool(&self) -> Pool {
        if self.terms.pool == Pool::Reserved { Pool::Reserved } else { Pool::Metadata }
    }

    /// The in-memory tables. An operation changes them only through [`Deferred`], or where they are hints.
    pub(crate) fn tables(&self) -> &Tables {
        &self.tables
    }

    pub(crate) fn tables_mut(&mut self) -> &mut Tables {
        &mut self.tables
    }

    /// The image of a metadata block. `check` runs once after the block was read from the device, and again if an
    /// operation has verified the block as another kind meanwhile: a corrupt image may use a block twice (E8).
    ///
    /// # Errors
    /// Miss; the error of `check`, with the block added.
    pub fn block(
        &mut self,
        b: BlockNo,
        kind: BlockKind,
        check: impl FnOnce(&[u8]) -> Result<(), Corrupt>,
    ) -> Result<Image> {
        let Some(image) = self.handle.read(b) else { return Err(missing(&self.forgotten, b)) };
        if !self.handle.is_verified(b, kind) {
            check(self.clip(&image)).map_err(|c| c.at(b))?;
            self.handle.set_verified(b, kind);
        }
        Ok(image)
    }

    /// The image of a block whose parts are checked one by one at each use.
    ///
    /// # Errors
    /// Miss.
    pub fn block_of_parts(&mut self, b: BlockNo) -> Result<Image> {
        let image = self.handle.read(b);
        image.ok_or_else(|| missing(&self.forgotten, b))
    }

    /// The bytes of a block. An image may be padded to whole sectors, though never for ext4's block sizes.
    pub(crate) fn clip<'b>(&self, image: &'b Buf) -> &'b [u8] {
        &image[..self.context.block_size().bytes()]
    }

    /// Writable bytes of a block that this operation has read and checked. The caller updates the block's checksum.
    ///
    /// # Errors
    /// Miss; read-only or aborted.
    pub fn block_mut(&mut self, b: BlockNo) -> Result<&mut [u8]> {
        self.check_writable()?;
        match self.handle.write(b) {
            Ok(buf) => Ok(&mut buf[..]),
            Err(Touch::Miss(b)) => Err(missing(&self.forgotten, b)),
            Err(t) => Err(touch_error(t)),
        }
    }

    /// Writable zeros for a block that was just allocated, verified as `kind`. Nothing is read.
    ///
    /// # Errors
    /// Read-only or aborted.
    pub fn block_new(&mut self, b: BlockNo, kind: BlockKind) -> Result<&mut [u8]> {
        self.check_writable()?;
        let len = self.context.block_size().bytes();
        self.handle.put_zeroed(b, len).map_err(touch_error)?;
        self.handle.set_verified(b, kind);
        match self.handle.write(b) {
            Ok(buf) => Ok(&mut buf[..]),
            Err(t) => Err(touch_error(t)),
        }
    }

    /// Makes `image` the new content of a block of journaled file data.
    ///
    /// # Errors
    /// Read-only or aborted.
    pub fn block_put(&mut self, b: BlockNo, image: Image) -> Result<()> {
        self.check_writable()?;
        self.handle.put(b, image).map_err(touch_error)
    }

    /// As [`Op::block_put`], for data that could have gone in place and is logged with the commit instead.
    ///
    /// # Errors
    /// Read-only or aborted.
    pub fn block_put_new_data(&mut self, b: BlockNo, image: Image) -> Result<()> {
        self.check_writable()?;
        self.handle.put_new_data(b, image).map_err(touch_error)
    }

    /// The image of a block of journaled file data if it is in memory, unchecked.
    pub fn block_in_memory(&mut self, b: BlockNo) -> Option<Image> {
        self.handle.read(b)
    }

    /// Orders the transaction of this operation after data that was written in place and completed in `epoch`: that
    /// data is durable before the transaction (Q5).
    pub fn after_data(&mut self, epoch: Epoch) {
        self.handle.after_data(epoch);
    }

    /// True if the log, a commit under way, or the running transaction holds a record of this block.
    #[must_use]
    pub fn is_journaled(&self, b: BlockNo) -> bool {
        self.handle.is_journaled(b)
    }

    /// Removes the images of freed blocks from memory, and revokes those that are live in the log.
    pub fn forget(&mut self, b: BlockNo, len: u32) {
        self.forgotten.push((b, len));
        for n in 0..u64::from(len) {
            self.handle.forget(b.plus(n));
        }
    }

    /// Makes one miss of all these blocks that are not in memory. The first of them is loaded in any case, or the load
    /// fails; the others if they can be read.
    ///
    /// # Errors
    /// Miss.
    pub fn want(&mut self, blocks: impl IntoIterator<Item = BlockNo>) -> Result<()> {
        let absent: Vec<_> = blocks.into_iter().filter(|b| self.handle.read(*b).is_none()).collect();
        match absent.iter().find(|b| has(&self.forgotten, **b)) {
            Some(b) => Err(missing(&self.forgotten, *b)),
            None if absent.is_empty() => Ok(()),
            None => Err(Error::Miss(absent)),
        }
    }

    /// As [`Op::want`], for file data. That it cannot be read is an error of the file, not of the file system.
    ///
    /// # Errors
    /// Miss.
    pub fn want_data(&mut self, blocks: impl IntoIterator<Item = BlockNo>) -> Result<()> {
        let wanted = self.want(blocks);
        self.misses_data = wanted.is_err();
        wanted
    }

    /// True if the operation ended because it missed file data.
    pub(crate) fn misses_data(&self) -> bool {
        self.misses_data
    }

    /// The transaction that this operation joins.
    #[must_use]
    pub fn tid(&self) -> Tid {
        self.handle.tid()
    }

    /// The number of blocks changed so far. Long work is split when this grows.
    #[must_use]
    pub fn touched(&self) -> usize {
        self.handle.touched() + usize::from(self.unsealed.superblock.is_some())
    }

    /// Gives the caller of the running API call a reference on an inode, when the operation succeeds.
    pub fn add_ref(&mut self, ino: Ino) {
        self.deferred.refs.push(ino);
    }

    /// The references on an inode.
    #[must_use]
    pub fn refs(&self, ino: Ino) -> u64 {
        self.tables.refs.get(&ino).copied().unwrap_or(0)
    }

    /// Ends the operation: all its changes are part of the returned transaction. `durable` is the newest transaction
    /// that is durable.
    pub(crate) fn stop(mut self, durable: impl FnOnce() -> Tid) -> Result<Tid, Full> {
        let tid = self.handle.stop()?;
        self.tables.apply(std::mem::take(&mut self.deferred), tid);
        if self.tables.changes.is_long() {
            self.tables.changes.prune(durable());
        }
        Ok(tid)
    }
}

fn has(runs: &[(BlockNo, u32)], b: BlockNo) -> bool {
    runs.iter().any(|(start, len)| (start.0..start.0 + u64::from(*len)).contains(&b.0))
}

/// Why a block is not in memory. Either no operation has read it yet; or this very operation has freed it, or given it
/// to a file. In the second case a structure still refers to it, so that running the operation again would not help.
/// (A function of the runs alone, because callers hold a borrow of the handle.)
fn missing(forgotten: &[(BlockNo, u32)], b: BlockNo) -> Error {
    if has(forgotten, b) {
        let why = "a block is used after it was freed: it has two owners";
        Corrupt::new(Structure::BlockBitmap, why).at(b).into()
    } else {
        Error::Miss(vec![b])
    }
}

fn touch_error(t: Touch) -> Error {
    match t {
        Touch::Miss(b) => Error::Miss(vec![b]),
        Touch::Aborted => Error::ReadOnly("the journal was aborted".into()),
    }
}
