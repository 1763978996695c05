//! A process that was forked while its parent had an image open.

use crate::common::{code, image_file, in_image, open, try_open};
use rusqlite::ErrorCode;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Stdio};

const VARIABLE: &str = "QUIRE_VFS_FORKED";
const TEST: &str = "forks::a_forked_child_opens_the_image_when_its_parent_has_closed_it";

/// What the child does: `told` says when the parent has closed its connection.
fn be_forked(uri: &str, mut told: UnixStream) {
    let refused = try_open(uri).unwrap_err();
    assert_eq!(code(&refused), ErrorCode::DatabaseBusy, "{refused}");
    told.write_all(b"t").unwrap();
    told.read_exact(&mut [0]).unwrap();
    let db = open(uri);
    db.execute("insert into t values (2)", []).unwrap();
    db.close().unwrap();
}

/// A process with a connection: it forks a child, and closes the connection.
fn fork_beside_a_connection(uri: &str) {
    let db = open(uri);
    db.execute_batch("create table t(x); insert into t values (1);").unwrap();
    let (mut ours, childs) = UnixStream::pair().unwrap();
    // SAFETY: the other threads of this process wait, without a lock of the library or of SQLite.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // A connection must not be used by a child, not even to close it: <https://sqlite.org/howtocorrupt.html>.
        std::mem::forget(db);
        drop(ours);
        let done = catch_unwind(AssertUnwindSafe(|| be_forked(uri, childs)));
        // SAFETY: it ends the process, at once.
        unsafe { libc::_exit(done.is_err().into()) };
    }
    drop(childs);
    ours.read_exact(&mut [0]).expect("the child is refused");
    db.close().unwrap();
    ours.write_all(b"c").unwrap();
    let mut status = 0;
    // SAFETY: the place for the status is valid.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child has failed");
}

#[test]
fn a_forked_child_opens_the_image_when_its_parent_has_closed_it() {
    if let Ok(uri) = std::env::var(VARIABLE) {
        return fork_beside_a_connection(&uri);
    }
    let (_dir, image) = image_file(16);
    let uri = in_image(&image, "/a.db");
    let mut process = Command::new(std::env::current_exe().unwrap());
    process.args([TEST, "--exact", "--nocapture"]).env(VARIABLE, &uri).stdout(Stdio::null());
    assert!(process.status().unwrap().success());
    let rows = open(&uri).query_row("select sum(x) from t", [], |r| r.get::<_, i64>(0));
    assert_eq!(rows.unwrap(), 3);
}
