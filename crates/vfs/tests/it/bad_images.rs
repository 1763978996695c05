//! Images that are full, damaged, missing, or none: a typed error, and nothing lost.

use crate::common::{
    Named, check_bank, code, image_bytes, image_file, in_image, make_bank, open, register, transfer, try_open,
};
use quire_testkit::{Rng, fsck};
use quire_vfs::FileSystem;
use rusqlite::{Connection, ErrorCode};
use std::sync::Mutex;

#[test]
fn a_full_image_is_full_and_loses_nothing_in_any_mode() {
    for mode in crate::common::MODES {
        let bytes = image_bytes(16);
        let named = Named::new(FileSystem::options().quire_log(true).open_bytes(bytes).unwrap());
        let db = named.open_in(mode, "/bank.db");
        mode.set(&db).unwrap();
        make_bank(&db).unwrap();
        db.execute_batch("create table filler(x blob)").unwrap();
        let mut rng = Rng::new(4);
        let mut done = 0;
        let error = loop {
            let all = db.unchecked_transaction().unwrap();
            let filled = db.execute("insert into filler values (zeroblob(200000))", []).map(drop);
            if let Err(e) = filled.and_then(|()| all.commit()).and_then(|()| transfer(&db, done + 1, &mut rng)) {
                break e;
            }
            done += 1;
            assert!(done < 1000, "{mode:?}: 16 MiB hold no 200 MB");
        };
        assert_eq!(code(&error), ErrorCode::DiskFull, "{mode:?}: {error}");
        assert!(done > 10, "{mode:?}: {done}");
        drop(db);
        let db = named.open("/bank.db");
        let found = check_bank(&db, done).unwrap_or_else(|e| panic!("{mode:?}: {e}"));
        assert!(found <= done + 1, "{mode:?}");
    }
}

#[test]
fn a_missing_image_no_image_and_a_path_without_one_cannot_be_opened() {
    let (dir, image) = image_file(16);
    std::fs::write(dir.path().join("none"), vec![7; 1 << 20]).unwrap();
    let here = dir.path().canonicalize().unwrap();
    for uri in [
        in_image(&here.join("none"), "/a.db"),
        in_image(&here.join("missing"), "/a.db"),
        format!("file:/a.db?vfs=quire&image={}/missing", here.display()),
        in_image(&image, "/no/such/directory.db"),
        in_image(&image, "/lost+found"),
        "file:@nobody/a.db?vfs=quire".to_owned(),
        format!("file:{}/{}?vfs=quire", image.display(), "long/".repeat(200)),
    ] {
        let e = try_open(&uri).unwrap_err();
        assert_eq!(code(&e), ErrorCode::CannotOpen, "{uri}: {e}");
    }
    fsck(&std::fs::read(&image).unwrap());
}

static LOG: Mutex<Vec<(i32, String)>> = Mutex::new(Vec::new());

#[test]
fn a_damaged_image_is_an_error_of_the_call_with_its_reason_in_the_log() {
    // The log is the process's, so this runs in one of its own.
    const VARIABLE: &str = "QUIRE_VFS_LOGS";
    if std::env::var(VARIABLE).is_err() {
        let test = "bad_images::a_damaged_image_is_an_error_of_the_call_with_its_reason_in_the_log";
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        assert!(child.args([test, "--exact"]).env(VARIABLE, "1").status().unwrap().success());
        return;
    }
    // SAFETY: no other thread uses SQLite yet.
    unsafe { rusqlite::trace::config_log(Some(|code, text| LOG.lock().unwrap().push((code, text.to_owned())))) }
        .unwrap();
    register();
    let (_dir, image) = image_file(16);
    let uri = in_image(&image, "/a.db");
    open(&uri).execute_batch("create table t(x); insert into t values (zeroblob(3000000));").unwrap();
    let mut bytes = std::fs::read(&image).unwrap();
    let sound = bytes.clone();
    // The superblock: the image cannot be opened.
    bytes[1024..2048].fill(0x5A);
    std::fs::write(&image, &bytes).unwrap();
    let e = try_open(&uri).unwrap_err();
    assert_eq!(code(&e), ErrorCode::CannotOpen, "{e}");
    let told =
        |words: &str| LOG.lock().unwrap().iter().any(|(_, text)| text.starts_with("quire: ") && text.contains(words));
    assert!(told("image.ext4"), "{:?}", LOG.lock().unwrap());
    // The extent tree of the database's inode: it cannot be read.
    std::fs::write(&image, &sound).unwrap();
    let out =
        quire_testkit::run("debugfs", &["-w", "-R", "set_inode_field /a.db block[0] 0x1234", image.to_str().unwrap()]);
    println!("{out}");
    let read =
        try_open(&uri).and_then(|db: Connection| db.query_row("select length(x) from t", [], |r| r.get::<_, i64>(0)));
    let e = read.unwrap_err();
    assert!(matches!(code(&e), ErrorCode::SystemIoFailure | ErrorCode::CannotOpen), "{e}");
    assert!(told("inode") || told("extent"), "{:?}", LOG.lock().unwrap());
}
