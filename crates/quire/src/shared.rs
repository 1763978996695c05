//! What all handles of an open file system share: the volume, the gate for batches, references on inodes.
//!
//! *Guarantees*: a batch has the file system for itself. [`Shared::begin`] waits until no other thread makes a call,
//! and calls of other threads wait until the batch has ended. A handle that was made before a batch was rolled back is
//! stale afterwards, because the rollback opens the volume again. A call on a path holds one [`Call`] from its
//! beginning to its end, so that no rollback comes between its steps; a call may make others inside.
//!
//! M3: a process that was forked has a copy of the volume, and no say in the image: its calls are refused, and what it
//! drops or closes writes nothing. Else two would log to one image, and the first to end would mark it clean. A close
//! gives up the image's lock also where such a process has the same open file.

use crate::error::{Error, ErrorKind, Result};
use crate::process::Process;
use quire_device::MemDevice;
use quire_device::{BlockDevice, Clock};
use quire_fs::{Devices, Options, Volume};
use quire_layout::Ino;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

/// A device and all that is needed to open the file system on it.
pub(crate) struct Opened {
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) memory: Option<Arc<MemDevice>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) options: Options,
    pub(crate) owner: (u32, u32),
    /// Where the image lies, if it lies on the host.
    pub(crate) image: Option<HostFile>,
    /// The library has opened the device, and so has locked it.
    pub(crate) owns_lock: bool,
}

/// A file of the host, whatever its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HostFile {
    /// By the numbers of its device and its inode.
    Inode(u64, u64),
    /// A block device, of which there may be several nodes.
    BlockDevice(u64),
}

impl HostFile {
    pub(crate) fn of(m: &std::fs::Metadata) -> Self {
        if m.file_type().is_block_device() {
            HostFile::BlockDevice(m.rdev())
        } else {
            HostFile::Inode(m.dev(), m.ino())
        }
    }

    /// The file that has this name.
    pub(crate) fn at(path: &Path) -> Option<Self> {
        std::fs::metadata(path).ok().map(|m| HostFile::of(&m))
    }
}

/// An open file system.
pub(crate) struct Shared {
    state: Mutex<State>,
    /// A call or a batch has ended.
    ended: Condvar,
    clock: Arc<dyn Clock>,
    options: Options,
    /// Owner and group of new objects.
    pub(crate) owner: (u32, u32),
    pub(crate) image: Option<HostFile>,
    /// The device's lock ends with the file system. That of a device of the caller's is the caller's.
    owns_lock: bool,
    process: Process,
}

struct State {
    /// `None`: closed, or it could not be opened again after a rollback.
    volume: Option<Volume>,
    /// `None`: closed; its lock is gone, too.
    device: Option<Arc<dyn BlockDevice>>,
    /// Counts the rollbacks.
    epoch: u64,
    /// Calls of threads under way that are not part of the batch.
    calls: usize,
    batch: Option<ThreadId>,
}

/// What a close takes.
type Parts = (Option<Volume>, Option<Arc<dyn BlockDevice>>);

/// A call under way: the volume that it uses.
pub(crate) struct Call {
    shared: Arc<Shared>,
    pub(crate) volume: Volume,
    epoch: u64,
    counted: bool,
}

impl Drop for Call {
    fn drop(&mut self) {
        // The state of a forked child counts for nothing, and its lock may be held for ever.
        if self.counted && self.shared.check_process().is_ok() {
            self.shared.lock().calls -= 1;
            self.shared.ended.notify_all();
        }
    }
}

impl Shared {
    pub(crate) fn open(opened: Opened) -> Result<Arc<Self>> {
        let Opened { device, clock, options, owner, image, owns_lock, .. } = opened;
        let volume = mount(&device, &clock, &options).inspect_err(|_| unlock_if(owns_lock, &device))?;
        let state = State { volume: Some(volume), device: Some(device), epoch: 0, calls: 0, batch: None };
        let (state, ended, process) = (Mutex::new(state), Condvar::new(), Process::current());
        Ok(Arc::new(Shared { state, ended, clock, options, owner, image, owns_lock, process }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic of another thread leaves the state as it was between two of its statements.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// # Errors
    /// This process was forked from the one that has the file system. It must not wait for a lock that another thread
    /// of that one had.
    pub(crate) fn check_process(&self) -> Result<()> {
        self.process.check()
    }

    /// Admits a call.
    ///
    /// # Errors
    /// Closed, or of another process.
    pub(crate) fn call(self: &Arc<Self>) -> Result<Call> {
        self.check_process()?;
        let me = thread::current().id();
        let mut s = self.lock();
        while s.batch.is_some_and(|owner| owner != me) {
            s = self.ended.wait(s).unwrap_or_else(PoisonError::into_inner);
        }
        let volume = s.volume.clone().ok_or_else(closed)?;
        let counted = s.batch.is_none();
        s.calls += usize::from(counted);
        Ok(Call { shared: self.clone(), volume, epoch: s.epoch, counted })
    }

    /// The volume, for what neither changes nor reads the image.
    ///
    /// # Errors
    /// Closed, or of another process.
    pub(crate) fn volume(&self) -> Result<Volume> {
        self.check_process()?;
        self.lock().volume.clone().ok_or_else(closed)
    }

    /// Takes the file system for a batch of this thread.
    ///
    /// # Errors
    /// Closed, or of another process; busy: this thread has a batch already.
    pub(crate) fn begin(&self) -> Result<Volume> {
        self.check_process()?;
        let me = thread::current().id();
        let mut s = self.lock();
        if s.batch == Some(me) {
            return Err(Error::new(ErrorKind::Busy, "a batch of this thread is under way"));
        }
        // Only when no call is under way, so that a call may make another one inside.
        while s.batch.is_some() || s.calls > 0 {
            s = self.ended.wait(s).unwrap_or_else(PoisonError::into_inner);
        }
        s.batch = Some(me);
        let volume = s.volume.clone();
        drop(s);
        volume.ok_or_else(|| {
            self.end();
            closed()
        })
    }

    /// Ends a batch.
    pub(crate) fn end(&self) {
        self.lock().batch = None;
        self.ended.notify_all();
    }

    /// True if the calling thread is inside a batch.
    ///
    /// # Errors
    /// Of another process.
    pub(crate) fn is_in_batch(&self) -> Result<bool> {
        self.check_process()?;
        Ok(self.lock().batch == Some(thread::current().id()))
    }

    /// Gives up everything that is not durable, as a crash would, and opens the image again, which recovers it. Only
    /// inside a batch.
    ///
    /// # Errors
    /// It cannot be opened; the file system is then closed. Of another process: nothing is done.
    pub(crate) fn reopen(&self) -> Result<()> {
        self.check_process()?;
        let mut s = self.lock();
        s.volume = None;
        s.epoch += 1;
        let device = s.device.clone().ok_or_else(closed)?;
        s.volume = Some(mount(&device, &self.clock, &self.options)?);
        Ok(())
    }

    /// Closes the volume: all is durable and the image is clean. A second call does nothing.
    ///
    /// # Errors
    /// Busy: this thread has a batch; whoever drops the last handle after it closes. Something could not be written;
    /// the image then needs recovery, as after a crash. Of another process.
    pub(crate) fn close(&self) -> Result<()> {
        self.check_process()?;
        let (volume, device) = self.begin_close()?;
        let done = volume.map_or(Ok(()), |v| v.close().map_err(Error::from));
        if let Some(device) = device {
            unlock_if(self.owns_lock, &device);
        }
        done
    }

    fn begin_close(&self) -> Result<Parts> {
        let mut s = self.lock();
        while s.calls > 0 || s.batch.is_some() {
            // The volume would wait for the batch, which is this thread's.
            if s.batch == Some(thread::current().id()) {
                return Err(Error::new(ErrorKind::Busy, "a batch of this thread is under way"));
            }
            s = self.ended.wait(s).unwrap_or_else(PoisonError::into_inner);
        }
        Ok((s.volume.take(), s.device.take()))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if self.check_process().is_err() {
            let s = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
            // Kept until the process ends: to drop them could write.
            std::mem::forget((s.volume.take(), s.device.take()));
            return;
        }
        // Errors of what the caller wrote are told by `FileSystem::close`. The image is safe in any case: what is not
        // home is in its log.
        if let Err(error) = self.close() {
            tracing::error!(%error, "the image was not closed cleanly; the next open recovers it");
        }
    }
}

fn mount(device: &Arc<dyn BlockDevice>, clock: &Arc<dyn Clock>, options: &Options) -> Result<Volume> {
    let volume = Volume::open(Devices::one(device.clone()), clock.clone(), options.clone())?;
    // Who edits an image is its owner, and may fill it.
    Ok(volume.with_reserve(true))
}

/// Gives up the lock of a device that the library has opened. A child that was forked meanwhile has the same open file,
/// which keeps the lock after the drop.
fn unlock_if(owns_lock: bool, device: &Arc<dyn BlockDevice>) {
    if owns_lock {
        device.unlock();
    }
}

fn closed() -> Error {
    Error::new(ErrorKind::Stale, "the file system is closed")
}

/// A reference on an inode: it is not freed while this lives, even without a name.
pub(crate) struct InodeRef {
    pub(crate) shared: Arc<Shared>,
    pub(crate) ino: Ino,
    epoch: u64,
}

impl InodeRef {
    pub(crate) fn root(shared: Arc<Shared>) -> Self {
        InodeRef { shared, ino: Ino::ROOT, epoch: 0 }
    }

    /// Takes over a reference that a lookup of this call has returned.
    pub(crate) fn adopt(call: &Call, ino: Ino) -> Self {
        InodeRef { shared: call.shared.clone(), ino, epoch: call.epoch }
    }

    /// Admits a call on this inode.
    ///
    /// # Errors
    /// Stale: a batch was rolled back since. The root is never stale.
    pub(crate) fn call(&self) -> Result<Call> {
        let call = self.shared.call()?;
        if self.ino != Ino::ROOT && call.epoch != self.epoch {
            return Err(Error::new(ErrorKind::Stale, "this handle is older than a batch that was rolled back"));
        }
        Ok(call)
    }
}

impl Drop for InodeRef {
    fn drop(&mut self) {
        if self.ino == Ino::ROOT {
            return;
        }
        if let Ok(call) = self.call() {
            call.volume.forget(self.ino, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::create::CreateOptions;
    use crate::error::{ErrorKind, Result};
    use crate::process::tests::as_forked_child;
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    /// Longer than any call takes.
    const PATIENCE: Duration = Duration::from_secs(10);

    /// Another thread of the parent may have held the lock during the fork, and no thread of the child gives it back.
    #[test]
    fn sync_and_freeze_of_a_forked_child_are_refused_without_the_lock() {
        let fs = CreateOptions::new().size(4 << 20).in_memory().unwrap();
        let file = fs.create_file("/f").unwrap();
        let calls: [&(dyn Fn() -> Result<()> + Sync); 4] =
            [&|| fs.sync(), &|| fs.freeze(), &|| file.sync_all(), &|| fs.root().sync_all()];
        for (n, call) in calls.into_iter().enumerate() {
            let held = fs.shared().lock();
            let told = thread::scope(|s| {
                let (tell, told) = mpsc::channel();
                s.spawn(move || tell.send(as_forked_child(call)));
                let told = told.recv_timeout(PATIENCE);
                drop(held);
                told
            });
            let refused = told.unwrap_or_else(|_| panic!("call {n} waits for the lock")).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Stale, "call {n}");
        }
    }

    /// As above: a child that is forked during a call ends it when it unwinds.
    #[test]
    fn call_ends_in_a_forked_child_without_the_lock() {
        let fs = CreateOptions::new().size(4 << 20).in_memory().unwrap();
        let call = fs.shared().call().unwrap();
        let mut held = fs.shared().lock();
        let ended = thread::scope(|s| {
            let (tell, ended) = mpsc::channel();
            s.spawn(move || {
                as_forked_child(|| drop(call));
                tell.send(())
            });
            let ended = ended.recv_timeout(PATIENCE);
            // The parent's end of the call.
            held.calls -= 1;
            drop(held);
            ended
        });
        ended.expect("it waits for the lock");
    }
}
