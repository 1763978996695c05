//! Which transaction last changed an inode: the transaction that fsync waits for.
//!
//! *Guarantees* F12: an inode in use without an entry has no change that is not durable. `records::put_inode` notes
//! each operation that writes an inode's record, so callers need not.

use quire_layout::number_map::NumberMap;
use quire_layout::{Ino, Tid};

/// Entries at which the table first removes those that are durable.
const PRUNE_AT: usize = 1024;

/// The last transactions that changed an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Last {
    any: Tid,
    /// More than times, or entries of a directory: what fdatasync waits for.
    data: Option<Tid>,
}

/// Inodes changed by transactions that were not durable at the last check.
#[derive(Default)]
pub(crate) struct Changes {
    last: NumberMap<Ino, Last>,
    prune_at: usize,
}

impl Changes {
    /// Notes a change; `data` if more than times changed.
    pub(crate) fn note(&mut self, ino: Ino, data: bool, tid: Tid) {
        let last = self.last.entry(ino).or_insert(Last { any: tid, data: None });
        last.any = tid;
        if data {
            last.data = Some(tid);
        }
    }

    /// Removes an inode that is being freed. Making it anew notes a change again.
    pub(crate) fn forget(&mut self, ino: Ino) {
        self.last.remove(&ino);
    }

    /// The transaction that must be durable for all of an inode's metadata; with `only_data`, for what its data needs.
    pub(crate) fn last(&self, ino: Ino, only_data: bool) -> Option<Tid> {
        let last = self.last.get(&ino)?;
        if only_data { last.data } else { Some(last.any) }
    }

    /// True if the caller should call [`Changes::prune`].
    pub(crate) fn is_long(&self) -> bool {
        self.last.len() > self.prune_at.max(PRUNE_AT)
    }

    /// Removes the entries that are durable.
    pub(crate) fn prune(&mut self, durable: Tid) {
        self.last.retain(|_, last| last.any.after(durable));
        self.prune_at = 2 * self.last.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_of_times_alone_do_not_count_as_data_and_durable_entries_are_pruned() {
        let mut c = Changes::default();
        c.note(Ino(12), true, Tid(5));
        c.note(Ino(12), false, Tid(7));
        c.note(Ino(13), false, Tid(6));
        assert_eq!((c.last(Ino(12), true), c.last(Ino(12), false)), (Some(Tid(5)), Some(Tid(7))));
        assert_eq!((c.last(Ino(13), true), c.last(Ino(14), false)), (None, None));
        c.prune(Tid(6));
        assert_eq!((c.last(Ino(12), true), c.last(Ino(13), false)), (Some(Tid(5)), None));
        for n in 0..5000 {
            c.note(Ino(n), true, Tid(8));
            if c.is_long() {
                c.prune(Tid(6));
            }
        }
        assert_eq!(c.last(Ino(4999), true), Some(Tid(8)));
    }
}
