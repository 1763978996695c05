//! Atomic writes by the ioctls of F2FS, as SQLite uses them, on mounts.

use crate::common::{Mounted, Place, needs_mounts, needs_tools, ok, quire, said, text, tool};
use rusqlite::Connection;
use rustix::io::Errno;
use rustix::ioctl::{Getter, NoArg, ioctl, opcode};
use rustix::process::Signal;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};

const START: u32 = opcode::none(0xF5, 1);
const COMMIT: u32 = opcode::none(0xF5, 2);
const ABORT: u32 = opcode::none(0xF5, 5);
const GET_FEATURES: u32 = opcode::read::<u32>(0xF5, 12);
const ATOMIC: u32 = 4;

fn plain<const COMMAND: u32>(file: &File) -> Result<(), Errno> {
    // SAFETY: the command has no argument.
    unsafe { ioctl(file, NoArg::<COMMAND>::new()) }
}

fn features(file: &File) -> Result<u32, Errno> {
    // SAFETY: the command fills a `u32`.
    unsafe { ioctl(file, Getter::<GET_FEATURES, u32>::new()) }
}

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

/// Opens a file so that it can be updated: a program has asked before.
fn open_atomic(path: &Path) -> File {
    assert_eq!(features(&open(path)), Ok(0), "the kernel's cache shows every write to all");
    let file = open(path);
    assert_eq!(features(&file), Ok(ATOMIC));
    file
}

/// SQLite asks in WAL mode, too, where it begins no update and reads through the kernel's cache.
#[test]
fn a_database_in_wal_mode_stays_in_the_kernels_cache() {
    needs_mounts();
    let place = Place::new("64M", &[]);
    let m = place.mount("");
    for _ in 0..3 {
        let db = Connection::open(m.path("db")).unwrap();
        db.execute_batch("pragma journal_mode=wal; create table if not exists t(k); insert into t values(1)").unwrap();
    }
    assert_eq!(plain::<START>(&open(&m.path("db"))), Err(Errno::OPNOTSUPP), "it was opened past the cache");
    Connection::open(m.path("db"))
        .unwrap()
        .execute_batch("pragma journal_mode=delete; insert into t values(2)")
        .unwrap();
    assert_eq!(plain::<START>(&open(&m.path("db"))), Ok(()), "in DELETE mode");
    m.unmount();
    place.check();
}

/// The begin of an update waits for the end of a freeze, and no worker waits with it.
#[test]
fn begins_of_updates_on_a_frozen_mount_take_no_worker() {
    needs_mounts();
    crate::common::needs_root();
    const BEGINS: usize = 64;
    let place = Place::new("64M", &[]);
    let m = place.mount("atomic_writes=all");
    std::fs::write(m.path("other"), "read me").unwrap();
    let files: Vec<File> = (0..BEGINS).map(|n| open(&m.path(&n.to_string()))).collect();
    ok(&mut quire(&["freeze", m.dir()]));
    let begun = std::thread::scope(|scope| {
        let begins: Vec<_> = files.iter().map(|file| scope.spawn(|| plain::<START>(file))).collect();
        std::thread::sleep(std::time::Duration::from_millis(500));
        let answered = begins.iter().filter(|b| b.is_finished()).count();
        // Names that the kernel has not asked for yet.
        let read = said(tool("timeout").args(["10", "stat", text(&m.path("nothing"))]));
        ok(&mut quire(&["thaw", m.dir()]));
        assert!(read.1.contains("No such file") && answered == 0, "{read:?}, {answered} answered");
        begins.into_iter().map(|b| b.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(begun.iter().all(Result::is_ok), "{begun:?}");
    assert_eq!(plain::<ABORT>(&files[0]), Ok(()));
    drop(files);
    m.unmount();
    place.check();
}

/// The number of a removed file's inode is used again, by a file of which no program has asked.
#[test]
fn a_new_file_with_a_removed_files_inode_number_stays_in_the_kernels_cache() {
    use std::os::unix::fs::MetadataExt;
    needs_mounts();
    let place = Place::new("64M", &[]);
    let m = place.mount("");
    drop(open_atomic(&m.path("old")));
    let number = std::fs::metadata(m.path("old")).unwrap().ino();
    std::fs::remove_file(m.path("old")).unwrap();
    let mut made = 0;
    crate::common::wait_until("the number is used again", || {
        made += 1;
        let file = open(&m.path(&format!("new{made}")));
        let same = file.metadata().unwrap().ino() == number;
        if same {
            assert_eq!(plain::<START>(&file), Err(Errno::OPNOTSUPP), "it was opened past the cache");
        }
        same
    });
    m.unmount();
    place.check();
}

/// SQLite writes its journal after an update that failed, and then the database, without an fsync between both. A
/// crash must not leave the database's new pages without the journal.
#[test]
fn the_journal_of_a_failed_atomic_write_is_durable_before_the_database_is_written() {
    needs_mounts();
    for options in ["", "writethrough", "data=ordered", "data=journal"] {
        for failure in ["write", "start"] {
            let place = Place::new("64M", &[]);
            let m = place.mount(options);
            std::fs::write(m.path("db"), vec![1; 8192]).unwrap();
            let db = open_atomic(&m.path("db"));
            db.sync_all().unwrap();
            let other = (failure == "start").then(|| open(&m.path("db")));
            match &other {
                Some(other) => {
                    plain::<START>(other).unwrap();
                    assert_eq!(plain::<START>(&db), Err(Errno::BUSY));
                    plain::<ABORT>(other).unwrap();
                }
                None => {
                    plain::<START>(&db).unwrap();
                    assert!((0..10_000u64).any(|n| db.write_all_at(&[2; 4096], n * 4096).is_err()));
                    plain::<ABORT>(&db).unwrap();
                }
            }
            let journal = open(&m.path("db-journal"));
            journal.write_all_at(&[7; 5000], 0).unwrap();
            db.write_all_at(&[3; 4096], 4096).unwrap();
            m.end_by(Signal::KILL);
            drop((db, journal, other));
            said(tool("umount").arg("-l").arg(place.mnt()));
            said(tool("fusermount3").args(["-u", "-z"]).arg(place.mnt()));
            let m = place.mount("");
            let found = std::fs::read(m.path("db-journal")).unwrap_or_default();
            assert!(found == vec![7; 5000], "{options:?}, {failure}: {} bytes of the journal", found.len());
            m.unmount();
            place.check();
        }
    }
}

fn bytes(file: &File, at: u64, len: usize) -> Vec<u8> {
    let mut buf = vec![0xEE; len];
    let n = file.read_at(&mut buf, at).unwrap();
    buf.truncate(n);
    buf
}

#[test]
fn other_programs_see_an_atomic_write_after_its_commit_and_not_before() {
    needs_mounts();
    let place = Place::new("64M", &[]);
    for options in ["", "writethrough", "data=ordered", "data=journal", "atomic_writes=all"] {
        let m = place.mount(options);
        std::fs::write(m.path("f"), vec![1; 100_000]).unwrap();
        let (file, reader) = (open_atomic_or_all(&m, options), File::open(m.path("f")).unwrap());
        // SAFETY: the file is not cut off while it is mapped.
        let map = unsafe { memmap2::Mmap::map(&file).unwrap() };
        for round in 2..5u8 {
            let before = vec![round - 1; 100_000];
            assert_eq!(bytes(&reader, 0, 200_000), before, "{options}: into the kernel's cache");
            plain::<START>(&file).unwrap();
            for at in (0..100_000).step_by(10_000) {
                file.write_all_at(&vec![round; 10_000], at).unwrap();
            }
            assert_eq!(bytes(&reader, 0, 200_000), before, "{options}: before the commit");
            assert!(map[..] == before[..], "{options}: a mapping before the commit");
            assert_eq!(bytes(&file, 5000, 20_000), vec![round; 20_000], "{options}: the update sees itself");
            if round == 3 {
                plain::<ABORT>(&file).unwrap();
                assert_eq!(bytes(&file, 0, 200_000), before, "{options}: after the end");
                plain::<START>(&file).unwrap();
                file.write_all_at(&vec![round; 100_000], 0).unwrap();
            }
            plain::<COMMIT>(&file).unwrap();
            assert_eq!(bytes(&reader, 0, 200_000), vec![round; 100_000], "{options}: after the commit");
            assert!(map[..] == vec![round; 100_000][..], "{options}: a mapping after the commit");
            assert_eq!(bytes(&File::open(m.path("f")).unwrap(), 0, 200_000), vec![round; 100_000]);
        }
        drop((map, file, reader));
        m.unmount();
        place.check();
    }
}

fn open_atomic_or_all(m: &Mounted, options: &str) -> File {
    if options != "atomic_writes=all" {
        return open_atomic(&m.path("f"));
    }
    let file = open(&m.path("f"));
    assert_eq!(features(&file), Ok(ATOMIC));
    file
}

/// What a program leaves behind that ends, or is killed, before its COMMIT: nothing, and nobody is kept from the file.
#[test]
fn an_atomic_write_without_commit_is_undone() {
    needs_mounts();
    needs_tools(&["python3"]);
    let place = Place::new("64M", &[]);
    let m = place.mount("writethrough");
    std::fs::write(m.path("f"), vec![1; 50_000]).unwrap();
    let file = open_atomic(&m.path("f"));
    plain::<START>(&file).unwrap();
    file.write_all_at(&[2; 60_000], 0).unwrap();
    let second = open(&m.path("f"));
    assert_eq!(plain::<START>(&second), Err(Errno::BUSY), "a file has one atomic write at a time");
    drop(file);
    assert_eq!(std::fs::read(m.path("f")).unwrap(), vec![1; 50_000], "closed without COMMIT");
    let script = "import os,fcntl,sys,time\nf=os.open(sys.argv[1],os.O_RDWR)\nfcntl.ioctl(f,0xf501)\n\
        os.pwrite(f,b'x'*60000,0)\nprint('written',flush=True)\ntime.sleep(100)";
    let mut child =
        Command::new("python3").args(["-c", script]).arg(m.path("f")).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "written\n");
    assert_eq!(plain::<START>(&second), Err(Errno::BUSY), "another process has one");
    child.kill().unwrap();
    child.wait().unwrap();
    crate::common::wait_until("the dead program's update ends", || plain::<START>(&second).is_ok());
    assert_eq!(std::fs::read(m.path("f")).unwrap(), vec![1; 50_000], "killed without COMMIT");
    second.write_all_at(&[3; 10], 5).unwrap();
    plain::<COMMIT>(&second).unwrap();
    assert_eq!(bytes(&second, 0, 20), [&[1; 5][..], &[3; 10], &[1; 5]].concat());
    drop(second);
    m.unmount();
    place.check();
}

#[test]
fn atomic_writes_that_cannot_be_are_refused_and_change_nothing() {
    needs_mounts();
    let place = Place::new("64M", &[]);
    let m = place.mount("");
    std::fs::write(m.path("f"), vec![1; 8192]).unwrap();
    let cached = open(&m.path("f"));
    assert_eq!(plain::<START>(&cached), Err(Errno::OPNOTSUPP), "its writes stay in the kernel's cache");
    assert_eq!(plain::<START>(&File::open(m.path("f")).unwrap()), Err(Errno::BADF), "not open for writing");
    let file = open_atomic(&m.path("f"));
    assert_eq!(plain::<COMMIT>(&file), Err(Errno::INVAL), "COMMIT without START");
    assert_eq!(plain::<ABORT>(&file), Ok(()), "as F2FS");
    assert_eq!(plain::<{ opcode::none(0xF5, 3) }>(&file), Err(Errno::OPNOTSUPP), "volatile writes");
    plain::<START>(&file).unwrap();
    assert_eq!(plain::<START>(&file), Err(Errno::BUSY));
    let refused = (0..10_000u64).find_map(|n| file.write_all_at(&[2; 4096], n * 4096).err());
    let refused = refused.expect("10,000 pages are too many for one atomic write");
    assert_eq!(refused.raw_os_error(), Some(Errno::FBIG.raw_os_error()), "SQLite goes on with its journal");
    plain::<ABORT>(&file).unwrap();
    assert_eq!(std::fs::read(m.path("f")).unwrap()[..8192], vec![1; 8192]);
    // A full disk refuses the commit.
    while std::fs::write(m.path("fill"), vec![9; 1 << 20]).is_ok() {
        std::fs::rename(m.path("fill"), m.path(&format!("fill{}", std::fs::read_dir(m.dir()).unwrap().count())))
            .unwrap();
        if OpenOptions::new().write(true).create(true).truncate(true).open(m.path("sync")).unwrap().sync_all().is_err()
        {
            break;
        }
    }
    plain::<START>(&file).unwrap();
    let space = (0..500u64).map(|n| file.write_all_at(&[2; 4096], n << 20)).filter(Result::is_ok).count();
    assert!(space > 100);
    let full = plain::<COMMIT>(&file).unwrap_err();
    assert!(matches!(full, Errno::NOSPC | Errno::FBIG), "{full}");
    assert_eq!(bytes(&file, 0, 8192), vec![1; 8192], "as it was");
    drop((cached, file));
    m.unmount();
    place.check();
    for options in ["atomic_writes=off", "data=none"] {
        let place = Place::new("64M", &[]);
        let m = place.mount(options);
        let file = open(&m.path("f"));
        assert_eq!((features(&file), plain::<START>(&file)), (Err(Errno::NOTTY), Err(Errno::NOTTY)), "{options}");
        drop(file);
        m.unmount();
    }
    let (code, words) =
        said(&mut quire(&["mount", "-o", "atomic_writes=yes", text(&place.image()), text(&place.mnt())]));
    assert!(code == 1 && words.contains("off, asked or all"), "{code}: {words}");
}

/// Figures of a mount: commits, flushes, and requests of some kinds.
fn figures(m: &Mounted, kinds: &[&str]) -> (u64, u64, u64) {
    let stats: serde_json::Value = serde_json::from_str(&ok(&mut quire(&["stats", "--json", m.dir()]))).unwrap();
    let number = |v: &serde_json::Value| v.as_u64().unwrap_or(0);
    let asked = kinds.iter().map(|k| number(&stats["requests_by_kind"][k])).sum();
    (number(&stats["journal"]["transactions"]), number(&stats["devices"]["fs"]["flushes"]["count"]), asked)
}

fn database(path: &Path) -> Connection {
    let db = Connection::open(path).unwrap();
    db.execute_batch("pragma journal_mode=delete; pragma synchronous=full").unwrap();
    db.execute_batch("create table if not exists t(k integer primary key, v text)").unwrap();
    db
}

#[test]
fn a_transaction_of_sqlite_in_delete_mode_is_one_commit_and_one_flush_without_a_journal() {
    needs_mounts();
    const NAMES: [&str; 3] = ["create", "unlink", "setattr"];
    for (options, atomic) in [("", true), ("writethrough", true), ("atomic_writes=off", false)] {
        let place = Place::new("64M", &[]);
        let m = place.mount(options);
        drop(database(&m.path("db")));
        let db = database(&m.path("db"));
        db.execute("insert into t values(0, 'first')", ()).unwrap();
        let before = figures(&m, &NAMES);
        for k in 1..=50 {
            db.execute("insert into t values(?1, ?2)", (k, format!("value {k}"))).unwrap();
        }
        let after = figures(&m, &NAMES);
        let spent = (after.0 - before.0, after.1 - before.1, after.2 - before.2);
        println!(
            "{options:?}: 50 transactions: {} commits, {} flushes, {} changes of names or sizes",
            spent.0, spent.1, spent.2
        );
        if atomic {
            assert_eq!((spent.0, spent.2), (50, 0), "{options}: one commit each, and no journal file");
            assert_eq!(spent.1, 50, "{options}: one flush each");
        } else {
            assert!(spent.0 > 50 && spent.2 >= 100, "{options}: {spent:?}");
        }
        let verdict: String = db.query_row("pragma integrity_check", (), |r| r.get(0)).unwrap();
        assert_eq!(verdict, "ok");
        drop(db);
        m.unmount();
        place.check();
    }
}

/// More pages than one atomic write may have: SQLite goes on with its own journal, and nobody notices.
#[test]
fn a_large_transaction_of_sqlite_falls_back_to_its_journal() {
    needs_mounts();
    let place = Place::new("256M", &[]);
    let m = place.mount("");
    drop(database(&m.path("db")));
    let db = database(&m.path("db"));
    db.execute_batch("insert into t values(-1, 'x'); pragma cache_size=-200000; begin").unwrap();
    let value = "v".repeat(3000);
    for k in 0..12_000 {
        db.prepare_cached("insert into t values(?1, ?2)").unwrap().execute((k, &value)).unwrap();
    }
    let before = figures(&m, &["create"]).2;
    db.execute_batch("commit").unwrap();
    assert_eq!(figures(&m, &["create"]).2, before + 1, "a journal was made");
    db.execute("insert into t values(-2, 'y')", ()).unwrap();
    assert_eq!(figures(&m, &["create"]).2, before + 1, "and the next transaction needs none");
    drop(db);
    m.unmount();
    place.check();
    let m = place.mount("");
    let db = database(&m.path("db"));
    let found: (u64, String) = (
        db.query_row("select count(*) from t", (), |r| r.get(0)).unwrap(),
        db.query_row("pragma integrity_check", (), |r| r.get(0)).unwrap(),
    );
    assert_eq!(found, (12_002, "ok".to_owned()));
    drop(db);
    m.unmount();
}

/// The daemon is killed in mid-flight: what SQLite has acknowledged is there, and each transaction is whole.
#[test]
fn transactions_that_sqlite_acknowledged_survive_a_kill_of_the_daemon() {
    needs_mounts();
    let place = Place::new("64M", &[]);
    let (mut rows, mut killed) = (0u64, 0);
    for round in 0..6u64 {
        let m = place.mount(if round % 2 == 0 { "atomic_writes=all" } else { "atomic_writes=all,writethrough" });
        let path = m.path("db");
        let before = rows;
        let writer =
            std::thread::spawn(move || {
                let db = database(&path);
                // Pairs, so that a torn transaction shows.
                let mut acknowledged = before;
                while db.execute_batch(&format!(
                "begin; insert into t values({0}, hex(zeroblob({2}))); insert into t values({1}, 'pair'); commit",
                2 * acknowledged, 2 * acknowledged + 1, acknowledged * 37 % 6000,
            )).is_ok() {
                acknowledged += 1;
            }
                // The mount is dead: nothing can be closed in order.
                std::mem::forget(db);
                acknowledged
            });
        std::thread::sleep(std::time::Duration::from_millis(150 + 83 * round));
        m.end_by(Signal::KILL);
        said(tool("umount").arg("-l").arg(place.mnt()));
        said(tool("fusermount3").args(["-u", "-z"]).arg(place.mnt()));
        let acknowledged = writer.join().unwrap();
        killed += u64::from(acknowledged > before);
        let m = place.mount("");
        let db = database(&m.path("db"));
        let (count, pairs): (u64, u64) =
            db.query_row("select count(*), count(distinct k/2) from t", (), |r| Ok((r.get(0)?, r.get(1)?))).unwrap();
        let verdict: String = db.query_row("pragma integrity_check", (), |r| r.get(0)).unwrap();
        assert_eq!((verdict.as_str(), count), ("ok", 2 * pairs), "round {round}");
        assert!((acknowledged..=acknowledged + 1).contains(&pairs), "{acknowledged} acknowledged, {pairs} there");
        rows = pairs;
        drop(db);
        m.unmount();
        place.check();
    }
    assert!(killed >= 4 && rows > 100, "{killed} rounds had transactions, {rows} in all");
}

/// Also root's, whose other privileges stay.
#[test]
fn an_atomic_write_takes_the_files_capabilities_with_its_commit() {
    needs_mounts();
    crate::common::needs_root();
    needs_tools(&["setcap", "getcap"]);
    let place = Place::new("64M", &[]);
    let m = place.mount("");
    std::fs::write(m.path("f"), vec![1; 8192]).unwrap();
    let file = open_atomic(&m.path("f"));
    ok(tool("setcap").arg("cap_net_raw+ep").arg(m.path("f")));
    let capabilities = || ok(tool("getcap").arg(m.path("f")));
    plain::<START>(&file).unwrap();
    file.write_all_at(&[2; 10], 5).unwrap();
    assert!(capabilities().contains("cap_net_raw"), "before the commit");
    plain::<COMMIT>(&file).unwrap();
    assert_eq!(capabilities(), "", "after the commit");
    drop(file);
    m.unmount();
    place.check();
}
