//! What a remount changes of how requests are answered.

use quire_device::sync::atomic::{AtomicBool, Ordering};

/// How requests are to be answered, as far as a remount changes it.
#[derive(Debug, Default)]
pub(crate) struct Changing {
    no_dir_atime: AtomicBool,
    no_atime: AtomicBool,
    dir_sync: AtomicBool,
    sync: AtomicBool,
}

impl Changing {
    pub(crate) fn set(&self, no_dir_atime: bool, no_atime: bool) {
        self.no_dir_atime.store(no_dir_atime, Ordering::Relaxed);
        self.no_atime.store(no_atime, Ordering::Relaxed);
    }

    /// Sets what the options `dirsync` and `sync` say.
    pub(crate) fn set_sync(&self, dir_sync: bool, sync: bool) {
        self.dir_sync.store(dir_sync || sync, Ordering::Relaxed);
        self.sync.store(sync, Ordering::Relaxed);
    }

    /// Reading a directory does not count as access.
    pub(crate) fn no_dir_atime(&self) -> bool {
        self.no_dir_atime.load(Ordering::Relaxed)
    }

    /// Reading does not count as access at all (also read-only mounts).
    pub(crate) fn no_atime(&self) -> bool {
        self.no_atime.load(Ordering::Relaxed)
    }

    /// Every change of a directory is made durable before the reply.
    pub(crate) fn dir_sync(&self) -> bool {
        self.dir_sync.load(Ordering::Relaxed)
    }

    /// Every change of a file's data is made durable before the reply. For WRITE the kernel asks for that itself.
    pub(crate) fn sync(&self) -> bool {
        self.sync.load(Ordering::Relaxed)
    }
}
