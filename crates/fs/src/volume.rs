//! A mounted file system: what its operations share, and how one is run.

use crate::alloc::{self, AllocState, Pool};
use crate::error::{Error, Result};
use crate::file::{Files, Ticks};
use crate::inode_ops::Cred;
use crate::map;
use crate::op::Op;
use crate::options::Options;
use crate::state::FsState;
use quire_device::sync::atomic::{AtomicBool, Ordering};
use quire_device::sync::{Arc, Condvar, Mutex, lock};
use quire_device::{Clock, Pace};
use quire_journal::{Journal, TxnHold};
use quire_layout::features::compat;
use quire_layout::group_desc::DescChecksum;
use quire_layout::inode::Timestamp;
use quire_layout::superblock::{self, Superblock};
use quire_layout::{BlockNo, FileBlock, Ino, Tid};

/// Runs of a journal that are kept from files. Real ones have a handful.
const MAX_JOURNAL_RUNS: usize = 1 << 16;

/// A mounted file system. Clones share it.
#[derive(Clone)]
pub struct Volume {
    pub(crate) inner: Arc<Inner>,
    /// On whose account calls through this handle take blocks.
    pub(crate) account: Pool,
}

pub(crate) struct Inner {
    /// As it was at mount: geometry, features.
    pub sb: Superblock,
    pub desc_sums: DescChecksum,
    /// Seed of inode and block checksums, with `metadata_csum`.
    pub inode_seed: Option<u32>,
    pub journal: Journal,
    /// How fast the device is.
    pub pace: Arc<Pace>,
    pub clock: Arc<dyn Clock>,
    pub options: Options,
    /// The image was marked clean when it was mounted; without a log, unmount may mark it so again.
    pub was_valid: bool,
    /// The metadata mutex. Memory only.
    pub state: Mutex<FsState>,
    /// Set if [`Inner::read_only`] or [`Inner::frozen`] is, so that the usual case is one load.
    pub stopped: AtomicBool,
    /// Why nothing may be written, if so.
    pub read_only: Mutex<Option<&'static str>>,
    /// Operations that would change something wait for [`Inner::thawed`].
    pub frozen: Mutex<bool>,
    pub thawed: Condvar,
    /// Pending file data.
    pub files: Files,
    /// When the running transaction is due.
    pub ticks: Mutex<Ticks>,
}

impl Inner {
    /// Block and offset of the primary superblock.
    pub(crate) fn superblock_at(&self) -> (BlockNo, usize) {
        let at = superblock::OFFSET % self.sb.block_size().bytes64();
        (self.sb.own_block(), usize::try_from(at).expect("within a block"))
    }

    /// # Errors
    /// The volume is read-only, and why; or frozen: wait ([`Inner::wait_thawed`]) and try again.
    pub(crate) fn check_writable(&self) -> Result<()> {
        if !self.stopped.load(Ordering::Acquire) {
            return Ok(());
        }
        match *lock(&self.read_only) {
            Some(why) => Err(Error::ReadOnly(why)),
            None if *lock(&self.frozen) => Err(Error::Frozen),
            None => Ok(()),
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        let t = self.clock.file_time();
        Timestamp { secs: i64::try_from(t.as_secs()).unwrap_or(Timestamp::MAX_SECS), nanos: t.subsec_nanos() }
    }
}

impl Volume {
    /// A handle whose calls take blocks on this user's account: root, and the user and group of the mount options or the
    /// superblock, may use what is reserved for them.
    #[must_use]
    pub fn on_account_of(&self, cred: Cred) -> Volume {
        self.with_reserve(self.may_use_reserve(cred))
    }

    /// A handle whose calls may take blocks of the reserve, or not.
    #[must_use]
    pub fn with_reserve(&self, may: bool) -> Volume {
        Volume { inner: self.inner.clone(), account: if may { Pool::Root } else { Pool::User } }
    }

    /// True if this user may take blocks of the reserve.
    #[must_use]
    pub fn may_use_reserve(&self, cred: Cred) -> bool {
        cred.may_use_reserve(&self.inner)
    }

    /// Reads the descriptors of all groups into the allocator's memory, and where the journal lies. Before any other
    /// operation, and after recovery.
    ///
    /// # Errors
    /// A descriptor or the journal's map is corrupt, or cannot be read.
    pub(crate) fn load_space(&self) -> Result<()> {
        let sb = &self.inner.sb;
        let mut state = AllocState::load(sb, |groups| self.run(|op| alloc::read_groups(op, groups)))?;
        let journal = sb.journal_ino();
        if sb.features().has_compat(compat::HAS_JOURNAL) && journal != Ino(0) {
            let runs = self.run(|op| {
                let inode = op.inode(journal)?;
                map::extents(op, journal, &inode, FileBlock(0), MAX_JOURNAL_RUNS)
            })?;
            state.protect(runs.iter().map(|e| (e.phys, e.len)));
        }
        lock(&self.inner.state).alloc = state;
        Ok(())
    }

    /// Runs an operation: again after each miss, after a commit where space or room must come from one, after a
    /// thaw where the volume is frozen.
    ///
    /// # Errors
    /// What the operation says; nothing has then changed.
    pub fn run<T>(&self, f: impl FnMut(&mut Op<'_>) -> Result<T>) -> Result<T> {
        self.run_tid(f).map(|(value, _)| value)
    }

    /// As [`Volume::run`]; also tells the transaction that the changes joined.
    ///
    /// # Errors
    /// As [`Volume::run`].
    pub fn run_tid<T>(&self, f: impl FnMut(&mut Op<'_>) -> Result<T>) -> Result<(T, Tid)> {
        let done = self.run_with(false, f);
        if let Err(e) = &done {
            self.note_error(e);
        }
        done
    }

    /// As [`Volume::run`], for the volume's own work: even while it is frozen, and errors are not noted.
    pub(crate) fn run_quietly<T>(&self, f: impl FnMut(&mut Op<'_>) -> Result<T>) -> Result<T> {
        self.run_with(true, f).map(|(value, _)| value)
    }

    pub(crate) fn run_with<T>(
        &self,
        mut even_frozen: bool,
        mut f: impl FnMut(&mut Op<'_>) -> Result<T>,
    ) -> Result<(T, Tid)> {
        let v = &*self.inner;
        let mut waited_for_space = false;
        loop {
            let now = v.now();
            let reusable = v.journal.reusable();
            let mut state = lock(&v.state);
            if !v.options.discard {
                state.alloc.release_up_to(reusable);
            }
            let mut op = Op::new(v, state, v.journal.handle(), now, even_frozen, self.account);
            let error = match f(&mut op).and_then(|value| op.seal().map(|()| value)) {
                Ok(value) => match op.stop() {
                    Ok(tid) => return Ok((value, tid)),
                    Err(full) if full.never_fits => {
                        let limit = v.journal.limit();
                        return Err(quire_journal::Error::TooLarge { blocks: full.blocks, limit }.into());
                    }
                    Err(_) if v.journal.is_held_here() => {
                        return Err(Error::Busy("the batch is larger than a transaction".into()));
                    }
                    Err(_) => {
                        v.journal.commit_all()?;
                        continue;
                    }
                },
                Err(e) => {
                    drop(op);
                    e
                }
            };
            match error {
                Error::Miss(blocks) => {
                    v.journal.load(&blocks)?;
                }
                // The freeze waits for the end of the batch.
                Error::Frozen if v.journal.is_held_here() => even_frozen = true,
                Error::Frozen => v.wait_thawed(),
                // What is unlinked and not freed yet makes room.
                Error::NoSpace | Error::NoSpaceYet(_) | Error::NoInodes if self.free_doomed() => {}
                Error::NoSpaceYet(_) if v.journal.is_held_here() => return Err(Error::NoSpace),
                Error::NoSpaceYet(tid) if !waited_for_space => {
                    waited_for_space = true;
                    v.journal.make_reusable(tid)?;
                    self.discard_freed()?;
                }
                Error::NoSpaceYet(_) => return Err(Error::NoSpace),
                e => return Err(e),
            }
        }
    }

    /// Begins a batch: until it is dropped, operations share one transaction, which becomes durable as a whole.
    /// Keep it short: commits wait for it, so nothing in it may ask for durability. Operations that one transaction cannot hold
    /// are refused as busy.
    #[must_use]
    pub fn begin_batch(&self) -> Batch<'_> {
        loop {
            self.inner.wait_thawed();
            let hold = self.inner.journal.hold();
            // A freeze that begins now waits for it.
            if !*lock(&self.inner.frozen) {
                return Batch { hold };
            }
        }
    }

    /// Makes everything durable that operations have changed so far.
    ///
    /// # Errors
    /// The commit failed; the journal is then aborted.
    pub fn commit_all(&self) -> Result<()> {
        Ok(self.inner.journal.commit_all()?)
    }

    /// Writes everything home that is durable only in the log, so that recovery after a crash has little to do.
    ///
    /// # Errors
    /// I/O; the journal is then aborted.
    pub fn checkpoint(&self) -> Result<()> {
        Ok(self.inner.journal.checkpoint_now()?)
    }

    /// The geometry and features as they were at mount.
    #[must_use]
    pub fn superblock(&self) -> &Superblock {
        &self.inner.sb
    }
}

/// Operations that share one transaction.
pub struct Batch<'v> {
    hold: TxnHold<'v>,
}

impl Batch<'_> {
    /// The transaction they share.
    #[must_use]
    pub fn tid(&self) -> Tid {
        self.hold.tid()
    }
}

#[cfg(test)]
mod tests {
    use crate::error::Error;
    use crate::testing::TestVolume;
    use quire_layout::Ino;
    use quire_layout::inode::Time;

    #[test]
    fn an_operation_joins_or_leaves_no_trace() {
        let t = TestVolume::new("16M", &["-t", "ext4"]);
        let before = t.volume.run(|op| op.inode(Ino::ROOT)).unwrap();
        let refused = t.volume.run(|op| {
            let mut i = op.inode(Ino::ROOT)?;
            i.set_mode(0o40_700);
            op.put_inode(Ino::ROOT, &mut i)?;
            Err::<(), _>(Error::NoSpace)
        });
        assert!(matches!(refused, Err(Error::NoSpace)));
        assert_eq!(t.volume.run(|op| op.inode(Ino::ROOT)).unwrap(), before);
        let at = t.volume.run(|op| {
            let mut i = op.inode(Ino::ROOT)?;
            i.set_mode(0o40_700);
            i.set_time(Time::Change, op.now());
            op.put_inode(Ino::ROOT, &mut i)?;
            Ok(op.now())
        });
        t.check();
        let again = TestVolume::on(t.device.snapshot(), crate::Options::default());
        let i = again.volume.run(|op| op.inode(Ino::ROOT)).unwrap();
        assert_eq!((i.mode(), i.time(Time::Change)), (0o40_700, Some(at.unwrap())));
    }

    #[test]
    fn every_descriptor_and_inode_of_a_fresh_image_is_read() {
        for args in [&["-t", "ext4"][..], &["-t", "ext3"], &["-t", "ext4", "-b", "1024", "-I", "128"], &["-t", "ext2"]]
        {
            let t = TestVolume::new("48M", args);
            let sb = t.volume.superblock();
            for g in 0..sb.group_count() {
                t.volume.run(|op| op.group(quire_layout::GroupNo(g))).unwrap();
            }
            for n in 1..=sb.inodes_count().min(64) {
                t.volume.run(|op| op.inode(Ino(n))).unwrap();
            }
        }
    }
}
