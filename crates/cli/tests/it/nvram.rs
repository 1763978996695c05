//! A journal in NVRAM through the command: SQLite on it, a daemon that is killed, the memory that is lost, another
//! image's memory.
//!
//! The memory is a file, said to be simulated: what is stored in it survives the daemon.

use crate::common::{Mounted, Place, check, is_root, needs_mounts, needs_tools, ok, quire, said, text, tool};
use rustix::process::Signal;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// A memory beside the image; on tmpfs where there is one.
struct Memory {
    file: tempfile::NamedTempFile,
}

impl Memory {
    fn new(bytes: u64) -> Self {
        let dir = if Path::new("/dev/shm").is_dir() { "/dev/shm" } else { "/tmp" };
        let file = tempfile::NamedTempFile::new_in(dir).unwrap();
        file.as_file().set_len(bytes).unwrap();
        Memory { file }
    }

    fn path(&self) -> PathBuf {
        self.file.path().to_owned()
    }

    fn options(&self, profile: &str) -> String {
        format!("profile={profile},nvram_simulated,nvram={}", self.path().display())
    }
}

/// Takes the mount of a dead daemon away.
fn take_away(place: &Place) {
    let lazy: &[&str] = if is_root() { &["umount", "-l"] } else { &["fusermount3", "-u", "-z"] };
    ok(tool(lazy[0]).args(&lazy[1..]).arg(place.mnt()));
}

fn sql(db: &Path, commands: &str) -> String {
    ok(tool("sqlite3").arg(db).arg(commands))
}

fn work_with_sqlite(m: &Mounted, mode: &str) {
    let db = m.path(&format!("{mode}.db"));
    let set =
        format!("PRAGMA journal_mode={mode}; PRAGMA synchronous=FULL; CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT);");
    sql(&db, &set);
    for n in 0..40 {
        let b = "x".repeat(200 + n);
        sql(
            &db,
            &format!("PRAGMA synchronous=FULL; INSERT INTO t(b) VALUES('{b}'); UPDATE t SET b='y' WHERE a={};", n / 2),
        );
    }
}

fn intact(db: &Path) {
    assert_eq!(sql(db, "PRAGMA integrity_check;").trim(), "ok");
    assert_eq!(sql(db, "SELECT count(*) FROM t;").trim(), "40");
}

fn json(m: &Mounted, path: &str) -> u64 {
    let text = ok(&mut quire(&["stats", "--json", m.dir()]));
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    path.split('.').fold(&value, |v, key| &v[key]).as_u64().unwrap_or_else(|| panic!("{path} in {text}"))
}

#[test]
fn sqlite_works_on_every_profile_and_the_disk_sees_no_flush() {
    needs_mounts();
    needs_tools(&["sqlite3"]);
    for profile in ["nvj", "djfs", "djfs4"] {
        let place = Place::new("64M", &[]);
        // Large enough that nothing has to go home meanwhile.
        let memory = Memory::new(32 << 20);
        let m = place.mount(&memory.options(profile));
        fs::write(m.path("first"), b"the use of the log begins").unwrap();
        fs::File::open(m.path("first")).unwrap().sync_all().unwrap();
        let before = (json(&m, "devices.fs.flushes.count"), json(&m, "devices.fs.regions.log.writes.count"));
        for mode in ["DELETE", "PERSIST", "WAL"] {
            work_with_sqlite(&m, mode);
        }
        let after = (json(&m, "devices.fs.flushes.count"), json(&m, "devices.fs.regions.log.writes.count"));
        assert_eq!(before, after, "{profile}: a commit has flushed the disk, or written its log");
        assert!(json(&m, "journal.transactions") > 200 && json(&m, "journal.nvram.fences") > 400);
        if profile != "nvj" {
            assert!(json(&m, "journal.delta_records") > 200, "{profile}");
        }
        let stats = ok(&mut quire(&["stats", m.dir()]));
        assert!(stats.contains(&format!("profile {profile} (")) && stats.contains("NVRAM: "), "{stats}");
        m.unmount();
        place.check();
        // Plain ext4 again: mounted without the memory.
        let m = place.mount("data=ordered");
        for mode in ["DELETE", "PERSIST", "WAL"] {
            intact(&m.path(&format!("{mode}.db")));
        }
        m.unmount();
        place.check();
    }
}

#[test]
fn what_was_synced_survives_a_killed_daemon() {
    needs_mounts();
    needs_tools(&["sqlite3"]);
    for (profile, size) in [("nvj", 2u64 << 20), ("djfs", 1 << 20), ("djfs4", 4 << 20)] {
        let place = Place::new("64M", &[]);
        let image = place.image();
        let memory = Memory::new(size);
        let m = place.mount(&memory.options(profile));
        work_with_sqlite(&m, "WAL");
        let mut file = fs::File::create(m.path("synced")).unwrap();
        file.write_all(&[7; 300_000]).unwrap();
        file.sync_all().unwrap();
        drop(file);
        m.end_by(Signal::KILL);
        take_away(&place);
        // Nobody else touches it.
        for command in [&["e2fsck", "-fy"][..], &["tune2fs", "-L", "x"]] {
            let before = fs::read(&image).unwrap();
            assert_ne!(said(tool(command[0]).args(&command[1..]).arg(&image)).0, 0, "{command:?} works on it");
            assert!(fs::read(&image).unwrap() == before, "{command:?} has changed it");
        }
        let (code, words) = said(&mut quire(&["recover", text(&image)]));
        assert!(code != 0 && words.contains("nvram"), "{code}: {words}");
        let (code, words) = said(&mut quire(&["mount", "-o", "data=ordered", text(&image), text(&place.mnt())]));
        assert!(code != 0 && words.contains("nvram=PATH"), "{code}: {words}");
        assert!(ok(&mut quire(&["info", text(&image)])).contains("Journal in NVRAM"));
        let memory_path = memory.path();
        let dump = ok(&mut quire(&["dump", text(&image), "journal", "--nvram", text(&memory_path)]));
        assert!(dump.contains("NVRAM ") && dump.contains("(region ") && dump.contains("image of"), "{dump}");
        let dry = ["recover", "--dry-run", "--nvram", text(&memory_path), text(&image)];
        let (code, words) = said(&mut quire(&dry));
        assert!(code == 4 && words.contains("transactions to replay"), "{code}: {words}");
        let (code, words) = said(&mut quire(&["recover", "--nvram", text(&memory_path), text(&image)]));
        assert!(code == 1 && words.contains("transactions replayed"), "{code}: {words}");
        check(&image);
        let m = place.mount(&memory.options(profile));
        assert!(fs::read(m.path("synced")).unwrap() == vec![7; 300_000]);
        intact(&m.path("WAL.db"));
        m.unmount();
        place.check();
    }
}

#[test]
fn a_lost_memory_is_given_up_by_an_explicit_word_only() {
    needs_mounts();
    let (place, other) = (Place::new("64M", &[]), Place::new("64M", &[]));
    let image = place.image();
    let memory = Memory::new(2 << 20);
    let m = place.mount(&memory.options("djfs"));
    fs::write(m.path("f"), vec![1; 100_000]).unwrap();
    fs::File::open(m.path("f")).unwrap().sync_all().unwrap();
    m.end_by(Signal::KILL);
    take_away(&place);
    // Another image does not get it, and this one gets no other.
    let (code, words) =
        said(&mut quire(&["mount", "-o", &memory.options("djfs"), text(&other.image()), text(&other.mnt())]));
    assert!(code != 0 && words.contains("another image needs"), "{code}: {words}");
    other.check();
    let fresh = Memory::new(2 << 20);
    let (code, words) = said(&mut quire(&["recover", "--nvram", text(&fresh.path()), text(&image)]));
    assert!(code != 0 && words.contains("no log of Quire's"), "{code}: {words}");
    // A copy of the image with the memory is as good; with an older copy of the memory it is refused.
    let (code, words) = said(&mut quire(&["recover", "--discard-nvram", text(&image)]));
    assert!(code == 4 && words.contains("given up") && words.contains("e2fsck -f"), "{code}: {words}");
    let (code, _) = said(tool("e2fsck").arg("-fy").arg(&image));
    assert!(code <= 2, "e2fsck repairs it: {code}");
    check(&image);
    // The memory still holds what nobody needs any more: that is given up by name, too.
    let (code, words) = said(&mut quire(&["mount", "-o", &memory.options("djfs"), text(&image), text(&place.mnt())]));
    assert!(code != 0 && words.contains("another copy of this image needs"), "{code}: {words}");
    let (code, words) =
        said(&mut quire(&["recover", "--discard-nvram", "--nvram", text(&memory.path()), text(&image)]));
    assert_eq!(code, 0, "{words}");
    let m = place.mount(&memory.options("djfs"));
    m.unmount();
    place.check();
}

#[test]
fn what_is_no_memory_is_refused() {
    needs_mounts();
    let place = Place::new("64M", &[]);
    let memory = Memory::new(2 << 20);
    let refused = |options: &str| {
        let (code, words) = said(&mut quire(&["mount", "-o", options, text(&place.image()), text(&place.mnt())]));
        assert_ne!(code, 0, "{options}: {words}");
        words
    };
    let real = refused(&format!("profile=djfs,nvram={}", memory.path().display()));
    assert!(real.contains("MAP_SYNC") && real.contains("nvram_simulated"), "{real}");
    assert!(refused("profile=djfs").contains("nvram=PATH"));
    let small =
        refused(&format!("profile=djfs4,nvram_simulated,checkpoint=regions:200,nvram={}", memory.path().display()));
    assert!(small.contains("too small"), "{small}");
    fs::write(memory.path(), vec![5; 2 << 20]).unwrap();
    assert!(refused(&memory.options("djfs")).contains("something else"));
    place.check();
}

/// The file of a simulated memory is truncated under the mount: an error, and nothing that was synced is lost.
#[test]
fn a_memory_that_is_truncated_while_it_is_used_ends_no_daemon_and_loses_nothing_that_was_synced() {
    needs_mounts();
    // Deltas with another checkpoint than DJFS' own, too: it waits for what a commit chose.
    for profile in ["nvj", "djfs", "djfs,checkpoint=lazy"] {
        let place = Place::new("64M", &[]);
        let memory = Memory::new(4 << 20);
        let m = place.mount(&memory.options(profile));
        let synced = |name: &str, fill: u8| {
            let mut file = fs::File::create(m.path(name))?;
            file.write_all(&[fill; 50_000])?;
            file.sync_all()
        };
        synced("before", 1).unwrap();
        memory.file.as_file().set_len(0).unwrap();
        assert!(synced("after", 2).is_err(), "{profile}: an fsync that cannot be durable");
        assert!(m.is_alive(), "{profile}");
        assert_eq!(fs::read(m.path("before")).unwrap(), [1; 50_000]);
        assert!(synced("more", 3).is_err(), "{profile}: read-only");
        said(&mut quire(&["umount", m.dir()]));
        crate::common::wait_until("the daemon's end", || !m.is_alive());
        let (code, words) = said(&mut quire(&["recover", "--discard-nvram", text(&place.image())]));
        assert!(code <= 4, "{profile}: {code}: {words}");
        said(tool("e2fsck").arg("-fy").arg(place.image()));
        let m = place.mount("data=ordered");
        assert_eq!(fs::read(m.path("before")).unwrap(), [1; 50_000], "{profile}");
        m.unmount();
        place.check();
    }
}
