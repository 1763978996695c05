//! A remount: options that change while the mount is served.
//!
//! ```text
//! client: check ─> daemon;  mount(2) with the new flags, if they change;  apply ─> daemon: engine, replies, host
//! ```
//! The kernel keeps the flags of a mount (`ro`, `nodev`, ...) and does not tell the daemon; the client changes them, as
//! root. The daemon sees `ro` and `rw` in mountinfo (`watch`).
//!
//! *Guarantees*: an option that cannot change is refused before anything has changed. After `ro` was applied the image
//! is clean (H7).

use crate::host::HostTuning;
use crate::mounting;
use crate::options::MountOptions;
use crate::policy::REMOUNT_TIMEOUT;
use crate::server::Server;
use quire_device::sync::{Arc, Mutex, lock, thread};
use quire_fs::{Atime, RuntimeOptions};
use std::time::{Duration, Instant};

const LOOK: Duration = Duration::from_millis(10);

/// The options of a mount, as they are now.
pub(crate) struct Remounter {
    options: Mutex<MountOptions>,
    /// What the superblock says of options that the mount says nothing of.
    usual: RuntimeOptions,
    server: Arc<Server>,
    /// The device number of the file system, as mountinfo has it, where that is known.
    device: Option<String>,
    tuning: Mutex<Option<HostTuning>>,
}

impl Remounter {
    /// With the options of the mount.
    pub(crate) fn new(options: MountOptions, server: Arc<Server>, device: Option<String>) -> Self {
        let usual = server.volume.maintenance().options();
        Remounter { options: Mutex::new(options), usual, server, device, tuning: Mutex::new(None) }
    }

    /// Changes on the host what the options ask for.
    ///
    /// # Errors
    /// No thread could be started.
    pub(crate) fn begin(&self) -> std::io::Result<()> {
        self.tune(lock(&self.options).tune_host)
    }

    /// Ends what was changed on the host.
    pub(crate) fn end(&self) {
        *lock(&self.tuning) = None;
    }

    fn tune(&self, wanted: bool) -> std::io::Result<()> {
        let mut tuning = lock(&self.tuning);
        if wanted && tuning.is_none() {
            *tuning = Some(HostTuning::start(self.device.as_deref(), self.server.clone())?);
        } else if let Some(tuned) = tuning.take_if(|_| !wanted) {
            tuned.undo();
        }
        Ok(())
    }

    /// The mount's options with those of `list`.
    fn wanted(&self, list: &str) -> Result<MountOptions, String> {
        let now = self.now();
        let wanted = now.remounted(list).map_err(|e| e.to_string())?;
        if now.read_only && !wanted.read_only {
            if lock(&self.options).read_only {
                return Err("mounted read-only: unmount, and mount again without ro".to_owned());
            }
        } else if let (false, Some(why)) = (wanted.read_only, self.server.volume.status().read_only) {
            return Err(format!("the volume is read-only: {why}"));
        }
        Ok(wanted)
    }

    fn now(&self) -> MountOptions {
        let mut now = lock(&self.options).clone();
        now.read_only |= self.server.is_remounted_read_only();
        now
    }

    /// The flags that the kernel is to keep for the mount, if they change.
    ///
    /// # Errors
    /// Why the mount cannot be so.
    pub(crate) fn check(&self, list: &str) -> Result<Option<u32>, String> {
        let (now, wanted) = (self.now(), self.wanted(list)?);
        let flags = |o: &MountOptions| mounting::kernel_flags(o, o.read_only).bits();
        Ok(Some(flags(&wanted)).filter(|new| *new != flags(&now)))
    }

    /// Makes the daemon's part of the mount as `list` says, after the kernel has its flags.
    ///
    /// # Errors
    /// Why the mount cannot be so; the kernel's flags do not come about.
    pub(crate) fn apply(&self, list: &str) -> Result<(), String> {
        let wanted = self.wanted(list)?;
        let server = &self.server;
        server.volume.maintenance().set_options(RuntimeOptions {
            on_error: wanted.on_error,
            data_error_aborts: wanted.data_error_aborts,
            atime: wanted.atime.unwrap_or(Atime::Relative),
            commit_interval: wanted.commit.unwrap_or(quire_fs::Options::default().commit_interval),
            grpid: wanted.grpid.unwrap_or(self.usual.grpid),
            discard: wanted.discard.unwrap_or(self.usual.discard),
        });
        server.changing.set(wanted.no_dir_atime, wanted.atime == Some(Atime::No) || server.options.about.read_only);
        server.changing.set_sync(wanted.dir_sync, wanted.sync);
        self.tune(wanted.tune_host).map_err(|e| format!("tune=host: {e}"))?;
        let read_only = wanted.read_only;
        // Whether it is read-only now is the kernel's to say: a later remount may not come this way.
        let begun_read_only = lock(&self.options).read_only;
        *lock(&self.options) = MountOptions { read_only: begun_read_only, ..wanted };
        self.settled(begun_read_only || read_only)
    }

    fn settled(&self, read_only: bool) -> Result<(), String> {
        let start = Instant::now();
        let is = || self.server.is_remounted_read_only() || lock(&self.options).read_only;
        while is() != read_only {
            if start.elapsed() > REMOUNT_TIMEOUT {
                return Err("the kernel does not show the mount so".to_owned());
            }
            thread::sleep(LOOK);
        }
        Ok(())
    }
}
