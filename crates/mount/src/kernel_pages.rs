//! Requests that are answered only after the kernel has handed over its dirty pages of a file.
//!
//! The kernel sends LSEEK and the ioctls behind `chattr` without writing back first, and SYNCFS, since Linux 6.18,
//! before it has. Data that it keeps would look like a hole to SEEK_DATA, would be refused after the file became
//! immutable, and would not be durable after the sync. So such a request waits here, for one of a few threads: it asks
//! the kernel to drop the files' pages (`FUSE_NOTIFY_INVAL_INODE`), which makes it write the dirty ones first, and then
//! answers the request.
//!
//! On a frozen volume the kernel's WRITE waits for the thaw, and the thread for the WRITE. So while one is about a
//! request another waits for the next, up to [`policy::PAGE_THREADS`](crate::policy::PAGE_THREADS): a request for
//! another file is answered. A shutdown, which ends the freeze, has a thread of its own, and does not ask the kernel
//! for pages then: what was written since the freeze has come to nobody.
//!
//! *Relies on*: the threads that [take](SessionQueue::take) requests are no workers. The kernel's WRITE requests come
//! while they wait, and the workers must be free to answer them.

use crate::fail::Fail;
use crate::session_queue::SessionQueue;
use crate::wire::Header;
use quire_layout::Ino;

/// Whose dirty pages the kernel is to hand over first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pages {
    File(Ino),
    /// Of all files that are open for writing, in a thread of its own. None while the volume is frozen, or about to be:
    /// they would wait for the thaw.
    Writers,
    /// Of all files that are open for writing, if the request shuts down [clean](quire_fs::Shutdown::Clean). That
    /// stands in the caller's memory, and to look there takes as long as the caller makes it.
    AllIfClean,
    /// None; the answer takes long, or makes the kernel drop pages: no worker is to wait for it.
    Nothing,
}

/// A request or reply that waits.
pub(crate) enum Waiting {
    /// A request, whole.
    Request(Pages, Vec<u8>),
    /// The reply, which is empty, to a request that was carried out, or its error: the kernel is to drop its pages of
    /// the file first.
    Reply(Ino, Header, Option<Fail>),
    /// Nothing; pages of this file, which the kernel keeps, were refused, and it is to drop them.
    Refused(Ino),
}

/// What waits.
pub(crate) type KernelPages = SessionQueue<Waiting>;
