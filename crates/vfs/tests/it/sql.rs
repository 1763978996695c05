//! SQL in this process: modes, connections, threads, several databases.

use crate::common::{
    ACCOUNTS, MODES, Mode, Named, check_bank, code, image_bytes, image_file, in_image, make_bank, open, transfer,
    try_open,
};
use quire_testkit::{Rng, fsck};
use quire_vfs::FileSystem;
use rusqlite::{Connection, ErrorCode, params};
use std::sync::atomic::{AtomicI64, Ordering};

#[test]
fn a_database_in_an_image_file_is_there_after_it_was_closed_and_the_image_is_clean() {
    let (_dir, image) = image_file(32);
    let fs = FileSystem::open(&image).unwrap();
    fs.create_dir_all("/var/lib").unwrap();
    fs.close().unwrap();
    for mode in MODES {
        let uri = mode.uri(&in_image(&image, &format!("/var/lib/{mode:?}.db")));
        let db = open(&uri);
        mode.set(&db).unwrap();
        make_bank(&db).unwrap();
        let mut rng = Rng::new(1);
        (1..=50).for_each(|n| transfer(&db, n, &mut rng).unwrap());
        db.close().unwrap();
        fsck(&std::fs::read(&image).unwrap());
        assert_eq!(check_bank(&open(&uri), 50), Ok(50), "{mode:?}");
    }
    let fs = FileSystem::open(&image).unwrap();
    let names: Vec<_> = fs.read_dir("/var/lib").unwrap().into_iter().map(|e| e.name.into_string().unwrap()).collect();
    let left = [
        "Delete.db",
        "DeleteJournal.db",
        "Persist.db",
        "Persist.db-journal",
        "Truncate.db",
        "Truncate.db-journal",
        "Wal.db",
    ];
    assert_eq!(names, [&left[..], &["WalExclusive.db"]].concat(), "logs go with their last connection");
}

#[test]
fn threads_with_connections_of_their_own_lose_no_transfer_in_any_mode() {
    const THREADS: i64 = 4;
    const EACH: i64 = 25;
    for mode in MODES.into_iter().filter(|m| *m != Mode::WalExclusive) {
        let named = Named::in_memory(32);
        let db = named.open_in(mode, "/bank.db");
        mode.set(&db).unwrap();
        make_bank(&db).unwrap();
        let next = AtomicI64::new(1);
        std::thread::scope(|s| {
            for seed in 0..THREADS {
                let (named, next) = (&named, &next);
                s.spawn(move || {
                    let db = named.open_in(mode, "/bank.db");
                    db.pragma_update(None, "synchronous", "full").unwrap();
                    let mut rng = Rng::new(seed.unsigned_abs());
                    for _ in 0..EACH {
                        // Numbers are given inside of the transaction's lock, so that they have no gap.
                        db.execute_batch("begin immediate").unwrap();
                        let n = next.fetch_add(1, Ordering::SeqCst);
                        let (source, amount) = (rng.below(20), rng.below(50));
                        let target = rng.below(20);
                        db.execute("insert into transfer values (?, ?, ?, ?, x'')", params![n, source, target, amount])
                            .unwrap();
                        db.execute("update account set balance = balance - ? where id = ?", [amount, source]).unwrap();
                        db.execute("update account set balance = balance + ? where id = ?", [amount, target]).unwrap();
                        db.execute_batch("commit").unwrap();
                        let sum: i64 = db.query_row("select sum(balance) from account", [], |r| r.get(0)).unwrap();
                        assert_eq!(sum, ACCOUNTS * 1000, "{mode:?}: a reader sees whole transactions");
                    }
                });
            }
        });
        assert_eq!(check_bank(&db, THREADS * EACH), Ok(THREADS * EACH), "{mode:?}");
    }
}

#[test]
fn connections_that_come_and_go_share_one_image() {
    let (_dir, image) = image_file(16);
    let uri = in_image(&image, "/a.db");
    open(&uri).execute_batch("create table t(x)").unwrap();
    std::thread::scope(|s| {
        for n in 0..4 {
            let uri = &uri;
            // Each time the last connection closes the image, and another thread may be opening it.
            s.spawn(move || {
                for _ in 0..25 {
                    open(uri).execute("insert into t values (?)", [n]).unwrap();
                }
            });
        }
    });
    let rows: i64 = open(&uri).query_row("select count(*) from t", [], |r| r.get(0)).unwrap();
    assert_eq!(rows, 100);
    fsck(&std::fs::read(&image).unwrap());
}

#[test]
fn a_second_writer_is_busy_and_a_reader_keeps_its_snapshot_of_a_log() {
    let named = Named::in_memory(16);
    let (a, b) = (named.open("/a.db"), named.open("/a.db"));
    a.execute_batch("pragma journal_mode=wal; create table t(x); insert into t values (1);").unwrap();
    b.busy_timeout(std::time::Duration::ZERO).unwrap();
    let count = |db: &Connection| db.query_row("select count(*) from t", [], |r| r.get::<_, i64>(0)).unwrap();
    b.execute_batch("begin; select * from t;").unwrap();
    assert_eq!(count(&b), 1);
    a.execute_batch("begin immediate; insert into t values (2);").unwrap();
    assert_eq!(code(&b.execute("insert into t values (3)", []).unwrap_err()), ErrorCode::DatabaseBusy);
    a.execute_batch("commit").unwrap();
    assert_eq!(count(&b), 1, "its snapshot");
    b.execute_batch("commit").unwrap();
    assert_eq!(count(&b), 2);
    a.execute_batch("pragma wal_checkpoint(truncate)").unwrap();
    assert_eq!(count(&b), 2);
}

#[test]
fn an_exclusive_connection_keeps_others_out_until_it_ends() {
    let named = Named::in_memory(16);
    let a = named.open("/a.db");
    Mode::WalExclusive.set(&a).unwrap();
    a.execute_batch("create table t(x)").unwrap();
    let b = named.open("/a.db");
    b.busy_timeout(std::time::Duration::ZERO).unwrap();
    let read = || b.query_row("select count(*) from t", [], |r| r.get::<_, i64>(0));
    assert_eq!(code(&read().unwrap_err()), ErrorCode::DatabaseBusy);
    a.close().unwrap();
    assert_eq!(read().unwrap(), 0);
}

#[test]
fn delete_mode_with_atomic_updates_makes_no_journal_and_a_large_transaction_makes_one() {
    let fs = FileSystem::options().quire_log(true).open_bytes(image_bytes(64)).unwrap();
    let named = Named::new(fs.clone());
    let db = named.open("/a.db");
    db.execute_batch("pragma journal_mode=delete; create table t(x blob);").unwrap();
    // A journal that is made and removed changes the times of its directory.
    let directory_changes = |sql: &str| {
        let before = fs.metadata("/").unwrap().modified;
        db.execute_batch(sql).unwrap();
        fs.metadata("/").unwrap().modified != before
    };
    assert!(!directory_changes("insert into t values (randomblob(5000))"));
    // More than half a transaction of the file system: SQLite goes back to its journal.
    let large = "with recursive n(i) as (select 1 union all select i + 1 from n where i < 4000)
                 insert into t select randomblob(3500) from n";
    assert!(directory_changes(large));
    let rows: i64 = db.query_row("select count(*) from t", [], |r| r.get(0)).unwrap();
    let check: String = db.query_row("pragma integrity_check", [], |r| r.get(0)).unwrap();
    assert_eq!((rows, check.as_str()), (4001, "ok"));
}

#[test]
fn a_transaction_over_two_databases_and_two_images_is_whole() {
    let (one, two) = (Named::in_memory(16), Named::in_memory(16));
    let db = one.open("/a.db");
    db.execute("attach ? as b", [format!("@{}/b.db", one.name)]).unwrap();
    db.execute("attach ? as c", [two.path("/c.db")]).unwrap();
    db.execute_batch(
        "create table main.t(x); create table b.t(x); create table c.t(x);
         begin; insert into main.t values (1); insert into b.t values (2); insert into c.t values (3); commit;",
    )
    .unwrap();
    let all: i64 = two.open("/c.db").query_row("select x from t", [], |r| r.get(0)).unwrap();
    assert_eq!(all, 3);
    db.execute_batch("begin; insert into main.t values (4); insert into c.t values (5); rollback;").unwrap();
    let sum = "select (select sum(x) from main.t) + (select sum(x) from c.t)";
    assert_eq!(db.query_row(sum, [], |r| r.get::<_, i64>(0)).unwrap(), 4);
}

#[test]
fn temporary_tables_vacuum_and_backup_work() {
    let named = Named::in_memory(32);
    let db = named.open("/a.db");
    db.execute_batch(
        "pragma temp_store=file; create table t(x blob);
         with recursive n(i) as (select 1 union all select i + 1 from n where i < 2000)
         insert into t select randomblob(500) from n;
         create temp table s as select x from t order by x;
         delete from t where rowid % 2; vacuum;",
    )
    .unwrap();
    let into = named.path("/copy.db");
    db.execute("vacuum into ?", [&into]).unwrap();
    let copy = open(&into);
    let rows = |db: &Connection| db.query_row("select count(*) from t", [], |r| r.get::<_, i64>(0)).unwrap();
    assert_eq!((rows(&db), rows(&copy)), (1000, 1000));
}

#[test]
fn readers_open_an_image_for_reading_and_a_writer_is_refused_until_they_end() {
    let (_dir, image) = image_file(16);
    let uri = in_image(&image, "/a.db");
    open(&uri).execute_batch("create table t(x); insert into t values (7);").unwrap();
    let before = std::fs::read(&image).unwrap();
    let reader = open(&format!("{uri}&mode=ro"));
    assert_eq!(reader.query_row("select x from t", [], |r| r.get::<_, i64>(0)).unwrap(), 7);
    assert_eq!(code(&reader.execute("insert into t values (8)", []).unwrap_err()), ErrorCode::ReadOnly);
    let refused = try_open(&uri).unwrap_err();
    assert_eq!(code(&refused), ErrorCode::DatabaseBusy, "{refused}");
    reader.close().unwrap();
    assert!(std::fs::read(&image).unwrap() == before, "a reader changes no byte of the image");
    open(&uri).execute("insert into t values (8)", []).unwrap();
    // A log cannot be made on a read-only medium, which SQLite must be told.
    let logged = in_image(&image, "/wal.db");
    open(&logged).execute_batch("pragma journal_mode=wal; create table t(x); insert into t values (9);").unwrap();
    let reader = open(&format!("{logged}&mode=ro&immutable=1"));
    assert_eq!(reader.query_row("select x from t", [], |r| r.get::<_, i64>(0)).unwrap(), 9);
}

#[test]
fn a_symbolic_link_is_refused_by_name_and_a_journal_has_its_databases_owner() {
    let fs = FileSystem::options().quire_log(true).open_bytes(image_bytes(16)).unwrap();
    fs.write("/real.db", "").unwrap();
    fs.chmod("/real.db", 0o640).unwrap();
    fs.set_metadata("/real.db", quire::Links::Follow, quire::SetMetadata::new().owner(7, 8)).unwrap();
    fs.symlink("real.db", "/link.db").unwrap();
    let named = Named::new(fs.clone());
    assert_eq!(code(&try_open(&named.path("/link.db")).unwrap_err()), ErrorCode::CannotOpen);
    let db = named.open("/real.db");
    db.execute_batch("pragma journal_mode=wal; create table t(x);").unwrap();
    let wal = fs.metadata("/real.db-wal").unwrap();
    assert_eq!((wal.permissions(), wal.uid, wal.gid), (0o640, 7, 8));
}
