//! The handle on a mounted file system, and the admission of its calls.
//!
//! *Guarantees* L1: a call that may change something runs only between [`Lifecycle::enter`] and [`Lifecycle::leave`]. A
//! call inside [`Admitted`] or [`VolumeBatch`], on the same thread, is part of it: a freeze that begins in between
//! waits for the outer call, and the inner one does not wait for the freeze.
//!
//! *Relies on*: no method of [`Volume`] calls another one that asks for admission.

use super::ticks::Ticks;
use crate::data::Data;
use crate::engine::lifecycle::{Lifecycle, Phase};
use crate::engine::{Batch, Engine, Misses};
use crate::error::{Error, Result};
use crate::inode::Cred;
use crate::tables::Pool;
use quire_device::sync::atomic::AtomicU64;
use quire_device::sync::{Arc, Mutex, thread_local};
use quire_layout::superblock::Superblock;
use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::Deref;

/// A mounted file system. Clones share it.
#[derive(Clone)]
pub struct Volume {
    pub(crate) inner: Arc<Inner>,
    /// The account on which calls through this handle take blocks.
    pub(super) pool: Pool,
    /// What becomes of its calls that miss blocks.
    pub(super) misses: Misses,
    /// The commits of its calls are left to the caller: the last one's transaction, plus one; 0 if there is none.
    pub(super) left: Option<Arc<AtomicU64>>,
}

pub(crate) struct Inner {
    pub engine: Arc<Engine>,
    pub data: Data,
    /// The image was marked clean when it was mounted. Without a log, unmount may mark it clean again.
    pub was_valid: bool,
    /// When the running transaction is due.
    pub ticks: Mutex<Ticks>,
    /// Held while the file system grows, so that one growth follows the other. docs/design.md has the lock order.
    pub growing: Mutex<()>,
    /// Held while the volume is shut down.
    pub shutting_down: Mutex<()>,
}

/// A call that was admitted; it leaves when dropped. With `counted` false it is part of a call or batch that was
/// admitted already.
pub(super) struct Pass<'v> {
    lifecycle: &'v Lifecycle,
    counted: bool,
}

impl Pass<'_> {
    /// The same for a call whose end may come on another thread.
    pub(super) fn detach(mut self, inner: &Arc<Inner>) -> DetachedPass {
        // A call inside another one is counted with it, and that one may end sooner.
        if !std::mem::take(&mut self.counted) {
            self.lifecycle.enter_again();
        }
        DetachedPass(inner.clone())
    }
}

/// A call that was admitted and waits without a thread; it leaves when dropped.
pub(super) struct DetachedPass(Arc<Inner>);

/// What became of a call that makes things durable and has no thread.
pub(super) enum Entry {
    Admitted(DetachedPass),
    /// The volume is frozen.
    NothingToDo,
    /// To be asked again when a freeze or thaw has ended that was under way.
    AfterPhase,
    Refused(Error),
}

impl Drop for DetachedPass {
    fn drop(&mut self) {
        self.0.engine.lifecycle.leave();
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        if self.counted {
            self.lifecycle.leave();
        }
    }
}

impl Inner {
    /// True if this thread is inside [`Admitted`] on this volume.
    fn is_inside(&self) -> bool {
        INSIDE.with(|inside| inside.get() == self.address())
    }

    /// Tells volumes apart.
    fn address(&self) -> usize {
        std::ptr::from_ref(&self.engine.lifecycle).addr()
    }

    fn pass(&self, counted: bool) -> Pass<'_> {
        Pass { lifecycle: &self.engine.lifecycle, counted }
    }

    /// Admits a call that may change something, after a freeze if there is one.
    ///
    /// # Errors
    /// Read-only: unmounted.
    pub(super) fn enter(&self) -> Result<Pass<'_>> {
        let counted = !self.is_inside();
        if counted {
            self.engine.lifecycle.enter()?;
        }
        Ok(self.pass(counted))
    }

    /// As [`Inner::enter`], if that is possible at once.
    ///
    /// # Errors
    /// Frozen; read-only: unmounted.
    pub(super) fn try_enter(&self) -> Result<Pass<'_>> {
        let counted = !self.is_inside();
        if counted {
            self.engine.lifecycle.try_enter()?;
        }
        Ok(self.pass(counted))
    }

    /// As [`Inner::enter`], for a call that makes things durable; `None` on a frozen volume, where everything is.
    ///
    /// # Errors
    /// Read-only: unmounted.
    pub(super) fn enter_unless_frozen(&self) -> Result<Option<Pass<'_>>> {
        let counted = !self.is_inside();
        let entered = !counted || self.engine.lifecycle.enter_unless_frozen()?;
        Ok(entered.then(|| self.pass(counted)))
    }

    /// As [`Inner::enter_unless_frozen`], for a caller without a thread.
    pub(super) fn enter_without_waiting(self: &Arc<Self>) -> Entry {
        match self.try_enter() {
            Ok(pass) => Entry::Admitted(pass.detach(self)),
            Err(Error::Frozen) if self.engine.lifecycle.phase() == Phase::Frozen => Entry::NothingToDo,
            Err(Error::Frozen) => Entry::AfterPhase,
            Err(e) => Entry::Refused(e),
        }
    }
}

impl Volume {
    /// Admits the calls that this thread makes until the guard is dropped: they do not wait for a freeze. The volume is
    /// neither frozen nor closed before that, so the holder must not wait for a call of another thread.
    ///
    /// # Errors
    /// Frozen: the calls would have to wait. Read-only: unmounted.
    pub fn try_admit(&self) -> Result<Admitted<'_>> {
        Ok(Admitted::new(&self.inner, self.inner.try_enter()?))
    }

    /// How the volume is now.
    #[must_use]
    pub fn status(&self) -> Status {
        Status {
            phase: self.inner.engine.lifecycle.phase(),
            read_only: self.inner.engine.write_gate.why_read_only(),
            commits_are_frequent: self.inner.data.commits_are_frequent(),
        }
    }

    /// A handle whose calls take blocks on this user's account: root, and the user and group of the mount options or
    /// the superblock, may use the reserved blocks.
    #[must_use]
    pub fn on_account_of(&self, cred: Cred) -> Volume {
        self.with_reserve(self.may_use_reserve(cred))
    }

    /// A handle whose calls may take reserved blocks, or not.
    #[must_use]
    pub fn with_reserve(&self, may: bool) -> Volume {
        Volume { pool: if may { Pool::Root } else { Pool::User }, ..self.clone() }
    }

    /// True if this user may take reserved blocks.
    #[must_use]
    pub fn may_use_reserve(&self, cred: Cred) -> bool {
        cred.may_use_reserve(&self.inner.engine.context)
    }

    /// The geometry and features as they were at mount.
    #[must_use]
    pub fn superblock(&self) -> &Superblock {
        &self.inner.engine.context.sb
    }

    /// Begins a batch: until it is dropped, calls of this thread share one transaction, which becomes durable as a
    /// whole. Commits, freeze and close wait for the batch; a call in it that asks for durability gets it with the
    /// batch. Calls that one transaction cannot hold are refused ([`Error::BatchFull`](crate::Error::BatchFull)); what
    /// was changed before is committed first, and takes no space from the batch. Data that calls write belongs to the
    /// transaction only after [`Maintenance::write_back`](super::Maintenance::write_back).
    ///
    /// # Errors
    /// Read-only: unmounted. The commit's.
    pub fn begin_batch(&self) -> Result<VolumeBatch<'_>> {
        let admitted = Admitted::new(&self.inner, self.inner.enter()?);
        Ok(VolumeBatch { batch: self.inner.engine.begin_batch()?, _admitted: admitted })
    }
}

/// How a volume is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Status {
    /// The phase of its life.
    pub phase: Phase,
    /// Why nothing may be written, if there is a reason: the mount's, or an error since then.
    pub read_only: Option<String>,
    /// Callers make small changes durable again and again.
    pub commits_are_frequent: bool,
}

/// A batch of calls; see [`Volume::begin_batch`].
pub struct VolumeBatch<'v> {
    // Dropped first: the batch ends before the call leaves.
    batch: Batch<'v>,
    _admitted: Admitted<'v>,
}

impl<'v> Deref for VolumeBatch<'v> {
    type Target = Batch<'v>;
    fn deref(&self) -> &Batch<'v> {
        &self.batch
    }
}

thread_local! {
    /// The volume whose calls this thread makes inside [`Admitted`], by the address of its lifecycle; 0: none.
    static INSIDE: Cell<usize> = const { Cell::new(0) };
}

/// Calls of one thread that were admitted together; see [`Volume::try_admit`].
pub struct Admitted<'v> {
    /// What [`INSIDE`] was before.
    outer: usize,
    _pass: Pass<'v>,
    /// It stays on its thread.
    _here: PhantomData<*const ()>,
}

impl<'v> Admitted<'v> {
    fn new(inner: &'v Inner, pass: Pass<'v>) -> Self {
        let outer = INSIDE.with(|inside| inside.replace(inner.address()));
        Admitted { outer, _pass: pass, _here: PhantomData }
    }
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        INSIDE.with(|inside| inside.set(self.outer));
    }
}
