//! Commits as the journal thread of stock ext3 and ext4 makes them, for baselines in virtual time.
//!
//! Quire's own commit waits for no other file's data, because metadata follows its data into a transaction. Stock ext3
//! allocates blocks in write(2): its transaction names data that is still in memory. So with `data=ordered` each commit
//! first writes the data of all files and waits for it; with `data=writeback` it does not, and the data goes to the
//! device when it is [`DATA_AGE`] old or when there is much of it. RFJ leaves new data to the same flusher.
//!
//! *Guarantees*: what a commit of [`Stock::FlushesData`] makes durable includes all data that was written before it.
//! *Relies on*: `Options::commit_interval` is [`DATA_AGE`] (`Plan::with_stock`), so that the volume's background writes
//! data back at that age and this thread makes the commits.

use std::time::Duration;

use quire_device::Clock;
use quire_device::sync::{Condvar, Mutex, lock, wait_timeout};
use quire_fs::Volume;

/// What a commit does with file data that waits in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stock {
    /// It writes the data of all files first, and waits for it (`data=ordered`).
    FlushesData,
    /// It leaves the data to the flusher (`data=writeback`; RFJ).
    LeavesData,
}

/// Time between two commits: the kernel's `commit=5`.
pub const COMMIT: Duration = Duration::from_secs(5);
/// Age at which the flusher writes data back: the kernel's `vm.dirty_expire_centisecs=3000`.
pub const DATA_AGE: Duration = Duration::from_secs(30);

/// The thread that commits.
#[derive(Default)]
pub struct JournalThread {
    stopped: Mutex<bool>,
    woken: Condvar,
}

impl JournalThread {
    /// Commits every [`COMMIT`] until [`JournalThread::stop`]; a commit that takes longer is followed by the next. An
    /// error stays with the volume, whose later calls fail.
    pub fn work(&self, volume: &Volume, clock: &dyn Clock, stock: Stock) {
        let mut due = clock.monotonic() + COMMIT;
        loop {
            let stopped = lock(&self.stopped);
            let left = due.saturating_sub(clock.monotonic());
            if *stopped || (!left.is_zero() && *wait_timeout(&self.woken, stopped, left)) {
                return;
            }
            if clock.monotonic() < due {
                continue;
            }
            due = clock.monotonic() + COMMIT;
            commit(volume, stock).ok();
        }
    }

    /// Ends the work; a commit that is under way ends first.
    pub fn stop(&self) {
        *lock(&self.stopped) = true;
        self.woken.notify_all();
    }
}

/// One commit of the journal thread.
///
/// # Errors
/// Data could not be written, or the commit failed.
pub fn commit(volume: &Volume, stock: Stock) -> Result<(), quire_fs::Error> {
    if stock == Stock::FlushesData {
        volume.maintenance().write_back()?;
    }
    volume.maintenance().commit()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::{Body, Plan, Rig};
    use quire_fs::{Profile, WriteFlags};
    use quire_layout::Ino;
    use quire_testkit::Model;

    /// Bytes that stock commits write to a file system in `time` after 1 MB was written without an fsync.
    fn written(stock: Stock, time: Duration) -> u64 {
        let rig = Rig::new(
            &Plan { mib: 64, journal_mib: 8, ..Plan::new(Model::default(), Profile::Ext4Ordered) }.with_stock(stock),
        );
        let rig = rig.unwrap();
        let ino = rig.create(Ino::ROOT, "file").unwrap();
        rig.volume.sync().unwrap();
        let before = rig.counted();
        let body: Body<'_, u64> = Box::new(|| {
            rig.volume.write(ino, 0, &[7; 1_000_000], WriteFlags::default()).unwrap();
            rig.world.sleep(time);
            rig.traffic(&before).fs
        });
        let bytes = rig.run(vec![body]).pop().unwrap();
        rig.close().unwrap();
        bytes
    }

    #[test]
    fn a_commit_of_ordered_writes_other_files_data_and_one_of_writeback_leaves_it_until_it_is_old() {
        let (short, long) = (COMMIT + Duration::from_secs(1), DATA_AGE + Duration::from_secs(2));
        let most = 1_000_000..2_000_000;
        assert!(most.contains(&written(Stock::FlushesData, short)));
        assert!(written(Stock::LeavesData, short) < 100_000, "only metadata");
        assert!(most.contains(&written(Stock::LeavesData, long)));
    }
}
