//! Modification times of files that are written past the kernel's writeback cache.
//!
//! With that cache the kernel keeps the times of files itself, and a write that goes past it leaves the kernel's time
//! as it was: the time of such a write is ours. With the next change time (of a link, say) the kernel sends the
//! modification time that it knows.
//!
//! *Guarantees*: a modification time that the kernel has from before a write past its cache does not replace that of
//! the write.

use quire_device::sync::{Mutex, lock};
use quire_layout::Ino;
use quire_layout::inode::Timestamp;
use quire_layout::number_map::NumberMap;

/// Files that were written past the cache, and the modification time from before, which the kernel knows.
#[derive(Default)]
pub(crate) struct Bypassed(Mutex<NumberMap<Ino, Timestamp>>);

impl Bypassed {
    /// The file is about to be written past the cache; `mtime` gives its modification time.
    pub(crate) fn note<E>(&self, ino: Ino, mtime: impl FnOnce() -> Result<Timestamp, E>) -> Result<(), E> {
        // Who writes at the same time has put the earlier time in before its write, and that one stays.
        if !lock(&self.0).contains_key(&ino) {
            let known = mtime()?;
            lock(&self.0).entry(ino).or_insert(known);
        }
        Ok(())
    }

    /// The modification time that the kernel knows, if the file was written past its cache since.
    pub(crate) fn known(&self, ino: Ino) -> Option<Timestamp> {
        lock(&self.0).get(&ino).copied()
    }

    /// The kernel knows another time, or nothing of the file any more.
    pub(crate) fn forget(&self, ino: Ino) {
        lock(&self.0).remove(&ino);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_from_before_the_first_write_is_kept() {
        let (bypassed, ino) = (Bypassed::default(), Ino(12));
        let at = |secs| Timestamp { secs, nanos: 0 };
        for mtime in [at(1), at(2)] {
            bypassed.note(ino, || Ok::<_, ()>(mtime)).unwrap();
        }
        assert_eq!(bypassed.known(ino), Some(at(1)));
        bypassed.forget(ino);
        assert_eq!(bypassed.known(ino), None);
        assert!(bypassed.note(ino, || Err(())).is_err() && bypassed.known(ino).is_none());
    }
}
