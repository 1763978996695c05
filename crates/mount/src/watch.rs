//! What others do to the mount after it was made: remount it read-only or writable, or take it away.
//!
//! The kernel's FUSE module does not tell the daemon. `/proc/self/mountinfo` does: poll(2) on it returns with POLLPRI
//! when the mounts of the namespace have changed (proc_pid_mountinfo(5)).
//!
//! *Guarantees*: H7: soon after `mount -o remount,ro` the image is clean and its log empty, until `remount,rw`. A
//! freeze ends when the mount is taken away: otherwise what the kernel still has to write would wait for a thaw that
//! nobody can ask for any more.
//!
//! *Relies on*: the kernel writes its dirty pages back before the mount becomes read-only, and sends no change
//! afterwards.

use crate::mountinfo::{MountEntry, Mounts};
use crate::server::Server;
use crate::session::Session;
use quire_device::sync::{Arc, thread};
use quire_fs::Phase;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use std::fs::File;

/// How soon a freeze that somebody else's freeze has put off is tried again.
const RETRY: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// Watches until it is dropped.
pub(crate) struct Watch(#[allow(dead_code, reason = "the watching thread sees it close")] OwnedFd);

impl Watch {
    /// Watches a mount. Without `/proc` there is nothing to see.
    ///
    /// # Errors
    /// No pipe, file or thread could be had.
    pub(crate) fn start(entry: MountEntry, server: Arc<Server>, session: Session) -> std::io::Result<Watch> {
        let (closes, ours) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        let mounts = File::open("/proc/self/mountinfo")?;
        let mut watched = Watched { entry, server, session, refused: false };
        let watch = move || {
            while watched.look() != Looked::Gone {
                let mut fds = [PollFd::new(&mounts, PollFlags::PRI), PollFd::new(&closes, PollFlags::IN)];
                let waits = watched.is_behind().then_some(&RETRY);
                match rustix::event::poll(&mut fds, waits) {
                    Err(Errno::INTR) => {}
                    Ok(_) if fds[1].revents().is_empty() => {}
                    _ => return,
                }
            }
        };
        thread::Builder::new().name("quire-mounts".to_owned()).spawn(watch)?;
        Ok(Watch(ours))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Looked {
    There,
    Gone,
}

struct Watched {
    entry: MountEntry,
    server: Arc<Server>,
    session: Session,
    /// The volume cannot be frozen: it is read-only itself, or broken.
    refused: bool,
}

impl Watched {
    /// Does what the mount asks for as it is now.
    fn look(&mut self) -> Looked {
        let mounts = match Mounts::read() {
            Ok(mounts) => mounts,
            Err(e) => {
                tracing::error!("/proc/self/mountinfo: {e}; what others do to the mount is not seen");
                return Looked::There;
            }
        };
        let Some(now) = mounts.by_id(self.entry.id, &self.entry.device) else {
            self.gone();
            return Looked::Gone;
        };
        self.entry = now.clone();
        let held = self.server.is_remounted_read_only();
        match (self.entry.read_only, held) {
            (true, false) if !self.refused => self.become_read_only(),
            (false, true) => self.become_writable(),
            (false, false) => self.refused = false,
            _ => {}
        }
        Looked::There
    }

    /// True if the mount is read-only and the volume is not so yet.
    fn is_behind(&self) -> bool {
        self.entry.read_only && !self.refused && !self.server.is_remounted_read_only()
    }

    fn become_read_only(&mut self) {
        let frozen = self.server.volume.maintenance().freeze();
        match &frozen {
            Ok(()) => {
                self.server.set_remounted_read_only(true);
                tracing::info!("{} is read-only now, and its image clean", self.entry.mount_point.display());
            }
            // Frozen by somebody, so it is clean.
            Err(quire_fs::Error::Busy(_)) => {}
            Err(quire_fs::Error::ReadOnly(_)) => self.refused = true,
            Err(e) => {
                tracing::error!("{} is read-only now, but not clean: {e}", self.entry.mount_point.display());
                self.refused = true;
            }
        }
        if frozen.is_err() {
            // What was kept while the volume was about to freeze.
            self.session.answer_thawed();
        }
    }

    fn become_writable(&mut self) {
        self.server.set_remounted_read_only(false);
        if let Err(e) = self.server.volume.maintenance().thaw() {
            tracing::error!("{} does not become writable: {e}", self.entry.mount_point.display());
        }
        self.session.answer_thawed();
    }

    /// Taken away, while files may still be open.
    fn gone(&self) {
        // A mount that is read-only has nothing to write.
        if self.server.volume.status().phase != Phase::Frozen || self.server.is_remounted_read_only() {
            return;
        }
        let dir = self.entry.mount_point.display();
        match self.server.volume.maintenance().thaw() {
            Ok(()) => tracing::warn!("{dir} was frozen; thawed because it was unmounted"),
            Err(e) => tracing::error!("{dir} was unmounted, but cannot be thawed: {e}"),
        }
        // Whoever has ended the freeze: nothing stays kept.
        self.session.answer_thawed();
    }
}
