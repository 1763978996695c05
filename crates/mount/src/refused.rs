//! A full disk stops a writer whose data the kernel keeps.
//!
//! With the writeback cache write(2) puts pages into the kernel's cache and succeeds. When the kernel hands them over
//! and there is no space, only fsync and close tell; a program that goes on writing would never learn of it. But before
//! a write the kernel looks whether it knows the file's mode, and asks with the writer's handle if not. So a refused
//! WRITE is remembered here, the kernel is told to ask again, and the next write(2) gets ENOSPC.
//!
//! *Guarantees*: each file with refused data makes one later call fail, unless there is more space by then or nobody
//! has the file open for writing any more. fsync and close tell of the refusal in any case; that is the kernel's part.

use quire_device::sync::{Mutex, lock};
use quire_layout::Ino;
use quire_layout::number_map::NumberMap;

/// Files of which the kernel's pages were refused, and how many bytes were free then.
#[derive(Default)]
pub(crate) struct Refused(Mutex<NumberMap<Ino, u64>>);

impl Refused {
    /// Pages of this file found no space when so many bytes were free.
    pub(crate) fn put(&self, ino: Ino, free: u64) {
        lock(&self.0).insert(ino, free);
    }

    /// True, once, if pages of this file were refused and there is no more space now than then.
    pub(crate) fn tell(&self, ino: Ino, free_now: u64) -> bool {
        lock(&self.0).remove(&ino).is_some_and(|free_then| free_now <= free_then)
    }

    pub(crate) fn has(&self, ino: Ino) -> bool {
        lock(&self.0).contains_key(&ino)
    }

    /// Nobody has this file open for writing any more.
    pub(crate) fn forget(&self, ino: Ino) {
        lock(&self.0).remove(&ino);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_told_once_and_not_when_there_is_space_again() {
        let (refused, ino) = (Refused::default(), Ino(12));
        assert!(!refused.tell(ino, 0));
        refused.put(ino, 4096);
        assert!(refused.has(ino) && refused.tell(ino, 4096) && !refused.tell(ino, 4096));
        refused.put(ino, 4096);
        assert!(!refused.tell(ino, 8192) && !refused.has(ino));
    }
}
