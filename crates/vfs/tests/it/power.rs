//! Power cuts: whatever a disk with a write cache keeps, the database is whole, every acknowledged transaction is
//! there, and nothing of one that was not committed.

use crate::common::{MODES, Mode, Named, image_bytes};
use crate::cuts;
use quire_testkit::{Image, MemDevice, PowerLossDevice, PowerLossOptions, Rng};
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

/// A transaction that is too large for an atomic update: SQLite goes on with its journal, which it does not sync before
/// it writes the database.
#[test]
fn the_journal_of_a_failed_update_is_durable_before_the_database_is_written() {
    const ROWS: i64 = 1500;
    let options = PowerLossOptions { record: true, ..PowerLossOptions::default() };
    let device = Arc::new(PowerLossDevice::from_image(Image::from_bytes(&image_bytes(32)), options));
    let named = Named::new(FileSystem::options().quire_log(true).open_device(device.clone()).unwrap());
    let db = named.open_in(Mode::Delete, "/a.db");
    Mode::Delete.set(&db).unwrap();
    db.execute_batch("pragma cache_size=-100000; create table t(k integer primary key, v)").unwrap();
    db.execute(
        "with recursive n(k) as (select 1 union all select k + 1 from n where k < ?1)
        insert into t select k, zeroblob(3500) from n",
        [ROWS],
    )
    .unwrap();
    let before = device.completed();
    db.execute("update t set v = randomblob(3500)", ()).unwrap();
    let after = device.completed();
    let recording = device.recording().unwrap();
    let mut rng = Rng::from_parts(&[26]);
    let wanted = |at: u64, settles: bool| (before..=after).contains(&at) && (settles || rng.below(after - before) < 40);
    let (mut cuts, mut old) = (0, 0);
    for (completed, point) in recording.crash_points_at(wanted) {
        let image = point.crash(completed).image;
        let device = Arc::new(MemDevice::new(image.to_vec()));
        let named = Named::new(FileSystem::options().quire_log(true).open_device(device).unwrap());
        let db = named.open("/a.db");
        let verdict: String = db.query_row("pragma integrity_check", (), |r| r.get(0)).unwrap();
        let zeros = "select count(*) from t where v = zeroblob(3500)";
        let left: i64 = db.query_row(zeros, (), |r| r.get(0)).unwrap();
        assert!(
            verdict == "ok" && (left == 0 || left == ROWS),
            "after step {completed}: {verdict}, {left} rows are old"
        );
        cuts += 1;
        old += u64::from(left == ROWS);
    }
    println!("{cuts} cuts, {old} before the commit");
    assert!(cuts >= 20 && old > 0 && old < cuts, "{cuts} cuts, {old} before the commit");
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
