//! An open file system.

use crate::dir::Dir;
use crate::error::{Error, ErrorKind, Result};
use crate::metadata::Usage;
use crate::shared::{HostFile, InodeRef, Opened, Shared};
use quire_device::MemDevice;
use quire_fs::FileUpdate;
use quire_layout::features::compat;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

/// An open ext4 file system. Clones share it; it may be used by several threads.
///
/// It dereferences to its root [`Dir`], which has the methods on paths.
///
/// # How it ends [`FileSystem::close`] makes everything durable, leaves a clean image, and tells errors. Dropping the
/// last handle does the same, and logs errors. A process that is killed leaves what was durable, and a journal that the
/// next open, a mount by the kernel, or `e2fsck` replays.
#[derive(Clone)]
pub struct FileSystem {
    root: Dir,
    memory: Option<Arc<MemDevice>>,
}

/// What an image is.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Info {
    pub label: String,
    pub uuid: [u8; 16],
    pub block_size: u32,
    /// Blocks of the whole file system.
    pub blocks: u64,
    /// Names of all features, as `mke2fs -O` knows them.
    pub features: Vec<String>,
    /// It has a journal.
    pub journal: bool,
    /// Why it cannot be written, if it cannot.
    pub read_only: Option<String>,
    /// Bytes of a [`File::write_at`](crate::File::write_at) that a crash leaves whole or absent; `None`: no such
    /// promise.
    pub atomic_write_bytes: Option<usize>,
    /// Files can be [updated atomically](crate::File::begin_update).
    pub atomic_updates: bool,
}

impl FileSystem {
    pub(crate) fn new(opened: Opened) -> Result<FileSystem> {
        let memory = opened.memory.clone();
        let shared = Shared::open(opened)?;
        Ok(FileSystem { root: Dir { inode: Arc::new(InodeRef::root(shared)) }, memory })
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.root.inode.shared
    }

    /// The root directory.
    #[must_use]
    pub fn root(&self) -> Dir {
        self.root.clone()
    }

    /// Makes everything durable that was done so far. In a batch, that is left to its commit.
    ///
    /// # Errors
    /// Something could not be written, now or earlier.
    pub fn sync(&self) -> Result<()> {
        if self.shared().is_in_batch()? {
            return Ok(());
        }
        Ok(self.shared().call()?.volume.sync()?)
    }

    /// Makes the image clean and keeps it so, until [`FileSystem::thaw`]: it may be copied meanwhile. Calls that would
    /// change it wait.
    ///
    /// # Errors
    /// Busy: frozen already, or in a batch. Read-only; I/O.
    pub fn freeze(&self) -> Result<()> {
        if self.shared().is_in_batch()? {
            return Err(Error::new(ErrorKind::Busy, "a batch of this thread is under way"));
        }
        // While it is a call, no batch begins: a batch finds the volume frozen, or not at all.
        let call = self.shared().call()?;
        Ok(call.volume.maintenance().freeze()?)
    }

    /// Ends a freeze.
    ///
    /// # Errors
    /// Invalid: it is not frozen. I/O: it stays frozen.
    pub fn thaw(&self) -> Result<()> {
        // Past the gate: a batch of another thread may wait for this.
        Ok(self.shared().volume()?.maintenance().thaw()?)
    }

    /// Makes everything durable and leaves a clean image. Other handles are of no use afterwards.
    ///
    /// # Errors
    /// Busy: in a batch of this thread; the image is closed when the batch has ended. Something could not be written;
    /// the next open recovers the image. Stale: in a process that was forked from the one that has opened it; nothing
    /// is written there.
    pub fn close(self) -> Result<()> {
        self.shared().close()
    }

    /// Closes a file system in memory and returns the image. `None`: it is not in memory.
    ///
    /// # Errors
    /// As [`FileSystem::close`].
    pub fn into_bytes(self) -> Result<Option<Vec<u8>>> {
        self.shared().close()?;
        Ok(self.memory.as_ref().map(|m| m.snapshot()))
    }

    /// True if this path of the host is the image, by whatever name: a file that must not be replaced or written to
    /// while it is open. False for an image in memory, and for a path that leads nowhere.
    ///
    /// ```
    /// # use quire::CreateOptions;
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("image");
    /// let fs = CreateOptions::new().size(4 << 20).create(&path)?;
    /// assert!(fs.is_image(&path) && !fs.is_image("/etc/passwd"));
    /// # Ok::<(), quire::Error>(())
    /// ```
    #[must_use]
    pub fn is_image(&self, path: impl AsRef<Path>) -> bool {
        self.shared().image.is_some_and(|image| HostFile::at(path.as_ref()) == Some(image))
    }

    /// How full it is.
    ///
    /// # Errors
    /// Closed.
    pub fn usage(&self) -> Result<Usage> {
        let s = self.shared().call()?.volume.statfs();
        Ok(Usage {
            block_size: s.block_size,
            blocks: s.blocks,
            free_blocks: s.free,
            available_blocks: s.available,
            inodes: s.inodes,
            free_inodes: s.free_inodes,
        })
    }

    /// What the superblock says. Of a closed file system the fields are empty.
    #[must_use]
    pub fn info(&self) -> Info {
        let Ok(volume) = self.shared().volume() else { return Info::closed() };
        let sb = volume.superblock();
        let f = sb.features();
        Info {
            label: String::from_utf8_lossy(sb.label()).into_owned(),
            uuid: sb.uuid(),
            block_size: u32::try_from(sb.block_size().bytes()).unwrap_or(u32::MAX),
            blocks: sb.blocks_count(),
            features: f.names(),
            journal: f.has_compat(compat::HAS_JOURNAL),
            read_only: volume.status().read_only,
            atomic_write_bytes: volume.limits().atomic_bytes,
            atomic_updates: FileUpdate::is_supported(&volume),
        }
    }
}

impl Info {
    fn closed() -> Info {
        Info {
            label: String::new(),
            uuid: [0; 16],
            block_size: 0,
            blocks: 0,
            features: Vec::new(),
            journal: false,
            read_only: Some("closed".to_owned()),
            atomic_write_bytes: None,
            atomic_updates: false,
        }
    }
}

impl Deref for FileSystem {
    type Target = Dir;
    fn deref(&self) -> &Dir {
        &self.root
    }
}
