//! What a program can ask of an open database by `sqlite3_file_control`, and images that can do less.

use crate::common::{Named, code, image_bytes, image_file, in_image, open, try_open};
use quire_testkit::{fsck, mke2fs};
use quire_vfs::FileSystem;
use rusqlite::{Connection, ErrorCode, ffi};
use std::ffi::{CStr, c_char, c_int, c_void};

fn control(db: &Connection, what: c_int, arg: *mut c_void) -> c_int {
    // SAFETY: the connection is open; `arg` is what the code wants.
    unsafe { ffi::sqlite3_file_control(db.handle(), c"main".as_ptr(), what, arg) }
}

fn number(db: &Connection, what: c_int, mut n: c_int) -> c_int {
    assert_eq!(control(db, what, (&raw mut n).cast()), ffi::SQLITE_OK);
    n
}

fn begin(db: &Connection) -> c_int {
    control(db, ffi::SQLITE_FCNTL_BEGIN_ATOMIC_WRITE, std::ptr::null_mut())
}

#[test]
fn an_atomic_update_that_is_not_committed_is_gone_with_its_connection_and_another_is_refused_meanwhile() {
    let fs = FileSystem::options().quire_log(true).open_bytes(image_bytes(16)).unwrap();
    let named = Named::new(fs.clone());
    let (a, b) = (named.open("/a.db"), named.open("/a.db"));
    a.execute_batch("create table t(x)").unwrap();
    b.query_row("select count(*) from t", [], |r| r.get::<_, i64>(0)).unwrap();
    let before = fs.read("/a.db").unwrap();
    assert_eq!(begin(&a), ffi::SQLITE_OK);
    assert_eq!(begin(&b), ffi::SQLITE_IOERR_BEGIN_ATOMIC, "a file has one atomic update at a time");
    // Written into the update: the database grows for this connection alone.
    a.execute_batch("pragma journal_mode=off; insert into t values (zeroblob(9000))").ok();
    drop(a);
    assert!(fs.read("/a.db").unwrap() == before, "what was not committed is gone");
    assert_eq!(begin(&b), ffi::SQLITE_OK, "and the next one may begin");
    assert_eq!(control(&b, ffi::SQLITE_FCNTL_ROLLBACK_ATOMIC_WRITE, std::ptr::null_mut()), ffi::SQLITE_OK);
    b.execute_batch("insert into t values (1)").unwrap();
}

#[test]
fn name_locks_and_settings_of_a_database_can_be_asked_for() {
    let named = Named::in_memory(16);
    let db = named.open("/a.db");
    let mut name: *mut c_char = std::ptr::null_mut();
    assert_eq!(control(&db, ffi::SQLITE_FCNTL_VFSNAME, (&raw mut name).cast()), ffi::SQLITE_OK);
    // SAFETY: SQLite's text, freed once.
    unsafe {
        assert_eq!(CStr::from_ptr(name), c"quire");
        ffi::sqlite3_free(name.cast());
    }
    assert_eq!(number(&db, ffi::SQLITE_FCNTL_LOCKSTATE, -1), 0);
    db.execute_batch("create table t(x); begin immediate").unwrap();
    assert_eq!(number(&db, ffi::SQLITE_FCNTL_LOCKSTATE, -1), 2, "RESERVED");
    db.execute_batch("commit").unwrap();
    assert_eq!(number(&db, ffi::SQLITE_FCNTL_PERSIST_WAL, -1), 0);
    number(&db, ffi::SQLITE_FCNTL_PERSIST_WAL, 1);
    assert_eq!(number(&db, ffi::SQLITE_FCNTL_PERSIST_WAL, -1), 1);
    assert_eq!(control(&db, 9999, std::ptr::null_mut()), ffi::SQLITE_NOTFOUND);
}

#[test]
fn a_database_that_was_removed_is_noticed_before_it_is_written() {
    let fs = FileSystem::options().quire_log(true).open_bytes(image_bytes(16)).unwrap();
    let named = Named::new(fs.clone());
    let db = open(&format!("{}&atomic_writes=off", named.path("/b.db")));
    db.execute_batch("create table t(x); insert into t values (1);").unwrap();
    fs.remove_file("/b.db").unwrap();
    let e = db.execute("insert into t values (2)", []).unwrap_err();
    assert_eq!(code(&e), ErrorCode::ReadOnly, "{e}");
}

#[test]
fn an_image_without_a_journal_keeps_databases_with_sqlites_own() {
    let bytes = mke2fs("16M", &["-q", "-F", "-t", "ext4", "-b", "4096", "-O", "^has_journal"]);
    let named = Named::new(FileSystem::options().quire_log(true).open_bytes(bytes).unwrap());
    let db = named.open("/a.db");
    db.execute_batch("create table t(x); insert into t values (1); pragma journal_mode=wal; insert into t values (2);")
        .unwrap();
    assert_eq!(begin(&db) & 0xff, ffi::SQLITE_IOERR, "there is nothing to make an update whole with");
    let rows: i64 = db.query_row("select count(*) from t", [], |r| r.get(0)).unwrap();
    assert_eq!(rows, 2);
}

/// What the VFS promises of the database's file.
fn characteristics(db: &Connection) -> c_int {
    let mut file: *mut ffi::sqlite3_file = std::ptr::null_mut();
    assert_eq!(control(db, ffi::SQLITE_FCNTL_FILE_POINTER, (&raw mut file).cast()), ffi::SQLITE_OK);
    // SAFETY: it is the file of an open database, which has the methods of the VFS.
    unsafe { ((*(*file).pMethods).xDeviceCharacteristics.expect("every VFS has it"))(file) }
}

#[test]
fn an_image_that_is_opened_without_its_journal_promises_no_safe_append() {
    let with = Named::in_memory(16);
    assert_ne!(characteristics(&with.open("/a.db")) & ffi::SQLITE_IOCAP_SAFE_APPEND, 0);
    let fs = FileSystem::options().without_journal().open_bytes(image_bytes(16)).unwrap();
    assert!(fs.info().journal);
    let without = Named::new(fs);
    let crash_safe = ffi::SQLITE_IOCAP_SAFE_APPEND | ffi::SQLITE_IOCAP_BATCH_ATOMIC | ffi::SQLITE_IOCAP_ATOMIC64K;
    assert_eq!(characteristics(&without.open("/a.db")) & crash_safe, 0);
}

#[test]
fn a_dirty_image_is_recovered_by_a_reader_and_refused_where_it_cannot_be_written() {
    let (dir, image) = image_file(16);
    let uri = in_image(&image, "/a.db");
    let db = open(&uri);
    db.execute_batch("pragma synchronous=full; create table t(x); insert into t values (7);").unwrap();
    // As a kill leaves it: the connection still has the image.
    let crashed = dir.path().canonicalize().unwrap().join("crashed.ext4");
    std::fs::copy(&image, &crashed).unwrap();
    let reader = open(&format!("{}&mode=ro", in_image(&crashed, "/a.db")));
    assert_eq!(reader.query_row("select x from t", [], |r| r.get::<_, i64>(0)).unwrap(), 7);
    reader.close().unwrap();
    fsck(&std::fs::read(&crashed).unwrap());
    let foreign = dir.path().canonicalize().unwrap().join("bigalloc.ext4");
    std::fs::write(&foreign, mke2fs("64M", &["-q", "-F", "-t", "ext4", "-O", "bigalloc"])).unwrap();
    assert!(try_open(&in_image(&foreign, "/a.db")).is_err(), "an image that can only be read takes no new database");
}
