//! Requests that are answered only after the kernel has handed over its dirty pages of a file.
//!
//! The kernel sends LSEEK and the ioctls behind `chattr` without writing back first. Data that it keeps would look like
//! a hole to SEEK_DATA, and would be refused after the file became immutable. So such a request waits here, for a
//! thread of its own: it asks the kernel to drop the file's pages (`FUSE_NOTIFY_INVAL_INODE`), which makes it write the
//! dirty ones first, and then answers the request.
//!
//! *Relies on*: the thread that [takes](KernelPages::take) requests is no worker. The kernel's WRITE requests come
//! while it waits, and the workers must be free to answer them.

use crate::fail::Fail;
use crate::wire::Header;
use quire_device::sync::{Condvar, Mutex, lock, wait};
use quire_layout::Ino;
use std::collections::VecDeque;

/// Whose dirty pages the kernel is to hand over first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pages {
    File(Ino),
    /// Of all files that are open for writing.
    All,
    /// None; the answer takes long, or makes the kernel drop pages: no worker is to wait for it.
    Nothing,
}

/// What waits.
pub(crate) enum Waiting {
    /// A request, whole.
    Request(Pages, Vec<u8>),
    /// The reply, which is empty, to a request that was carried out, or its error: the kernel is to drop its pages of
    /// the file first.
    Reply(Ino, Header, Option<Fail>),
}

/// The requests that wait.
#[derive(Default)]
pub(crate) struct KernelPages {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    ended: bool,
}

impl KernelPages {
    /// Keeps a request or reply until the kernel has handed over its dirty pages.
    pub(crate) fn put(&self, waiting: Waiting) {
        lock(&self.queue).waiting.push_back(waiting);
        self.changed.notify_one();
    }

    /// The next request; `None` when the session has ended.
    pub(crate) fn take(&self) -> Option<Waiting> {
        let mut q = lock(&self.queue);
        loop {
            if q.ended {
                return None;
            }
            match q.waiting.pop_front() {
                Some(request) => return Some(request),
                None => q = wait(&self.changed, q),
            }
        }
    }

    /// Ends the wait of [`KernelPages::take`].
    pub(crate) fn end(&self) {
        lock(&self.queue).ended = true;
        self.changed.notify_all();
    }
}
