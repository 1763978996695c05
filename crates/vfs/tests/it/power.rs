//! Power cuts: whatever a disk with a write cache keeps, the database is whole, every acknowledged transaction is
//! there, and nothing of one that was not committed.

use crate::common::{MODES, Mode, Named, image_bytes};
use crate::cuts;
use quire_testkit::PowerLossDevice;
use quire_vfs::FileSystem;
use std::sync::Arc;

fn cut_everywhere(mode: Mode) {
    println!("{}", cuts::cut_everywhere(mode).unwrap_or_else(|why| panic!("{why}")));
}

#[test]
fn a_power_cut_loses_no_acknowledged_transaction_with_a_write_ahead_log() {
    cut_everywhere(Mode::Wal);
}

#[test]
fn a_power_cut_loses_no_acknowledged_transaction_with_an_exclusive_write_ahead_log() {
    cut_everywhere(Mode::WalExclusive);
}

#[test]
fn a_power_cut_loses_no_acknowledged_transaction_without_a_journal() {
    cut_everywhere(Mode::Delete);
}

#[test]
fn a_power_cut_loses_no_acknowledged_transaction_with_a_deleted_journal() {
    cut_everywhere(Mode::DeleteJournal);
}

#[test]
fn a_power_cut_loses_no_acknowledged_transaction_with_a_persistent_journal() {
    cut_everywhere(Mode::Persist);
}

#[test]
fn a_power_cut_loses_no_acknowledged_transaction_with_a_truncated_journal() {
    cut_everywhere(Mode::Truncate);
}

#[test]
fn a_commit_takes_one_flush() {
    const COMMITS: u64 = 20;
    let most_flushes = |mode| match mode {
        Mode::Wal | Mode::WalExclusive | Mode::Delete => 1,
        // The journal, the database, the end of the journal, and what is freed by it.
        Mode::DeleteJournal | Mode::Persist | Mode::Truncate => 4,
    };
    for mode in MODES {
        let device = Arc::new(PowerLossDevice::from_bytes(&image_bytes(16)));
        let fs = FileSystem::options().quire_log(true).open_device(device.clone()).unwrap();
        let named = Named::new(fs);
        let db = named.open_in(mode, "/a.db");
        mode.set(&db).unwrap();
        db.execute_batch("create table t(x); insert into t values (0);").unwrap();
        let (writes, before) = device.writes_and_flushes();
        for n in 1..=COMMITS {
            db.execute("insert into t values (?)", [n]).unwrap();
        }
        let (written, flushed) = device.writes_and_flushes();
        println!("{mode:?}: {} writes and {} flushes for {COMMITS} commits", written - writes, flushed - before);
        assert!(flushed - before <= most_flushes(mode) * COMMITS, "{mode:?}: {} flushes", flushed - before);
    }
}
