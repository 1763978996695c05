//! What others do to a mount after it was made: remount it, unmount it while it is frozen, hide it, take its socket
//! away.

use crate::common::{Mounted, Place, check, needs_mounts, needs_root, ok, quire, said, text, tool, wait_until};
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::{Seek, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

fn needs_mounts_by_root() {
    needs_mounts();
    needs_root();
}

/// The feature bits RECOVER and QUIRE_LOG, which a program that does not know the latter does not show.
fn needs_recovery(place: &Place) -> bool {
    let mut bits = [0; 4];
    File::open(place.image()).unwrap().read_exact_at(&mut bits, 1024 + 0x60).unwrap();
    u32::from_le_bytes(bits) & 0x4000_0004 != 0
}

fn remount(m: &Mounted, how: &str) {
    ok(tool("mount").args(["-o", &format!("remount,{how}")]).arg(m.dir()));
}

/// H7: the image is clean while the mount is read-only, and protected by the log again when it is writable.
#[test]
fn a_mount_that_becomes_read_only_leaves_its_image_clean_until_it_is_writable() {
    needs_mounts_by_root();
    let place = Place::new("32M", &[]);
    for options in ["data=auto", "data=ordered", "data=journal,writethrough"] {
        let m = place.mount(options);
        fs::write(m.path("before"), [1; 50_000]).unwrap();
        fs::write(m.path("gone"), "x").unwrap();
        fs::remove_file(m.path("gone")).unwrap();
        assert!(needs_recovery(&place));
        remount(&m, "ro");
        wait_until("a clean image", || !needs_recovery(&place));
        check(&place.image());
        assert_eq!(fs::read(m.path("before")).unwrap(), [1; 50_000]);
        assert!(fs::write(m.path("new"), "x").is_err());
        // What the kernel passes on all the same is refused, and waits for nothing.
        ok(tool("timeout").args(["10", "sh", "-c", "! fstrim \"$0\" 2> /dev/null", m.dir()]));
        let frozen = said(tool("timeout").args(["10", env!("CARGO_BIN_EXE_quire"), "freeze", m.dir()]));
        assert!(frozen.0 != 0 && frozen.1.contains("Read-only"), "{frozen:?}");
        assert_ne!(said(&mut quire(&["thaw", m.dir()])).0, 0);
        remount(&m, "rw");
        let mut file = File::create(m.path("after")).unwrap();
        file.write_all(&[2; 3000]).unwrap();
        file.sync_all().unwrap();
        drop(file);
        assert!(needs_recovery(&place), "a crash must find the log");
        remount(&m, "ro");
        remount(&m, "rw");
        let mut file = File::options().append(true).open(m.path("after")).unwrap();
        file.write_all(&[3; 3000]).unwrap();
        file.sync_all().unwrap();
        m.end_by(Signal::KILL);
        said(&mut quire(&["umount", "-l", text(&place.mnt())]));
        let m = place.mount(options);
        assert_eq!(fs::read(m.path("after")).unwrap(), [[2; 3000], [3; 3000]].concat());
        fs::remove_file(m.path("after")).unwrap();
        remount(&m, "ro");
        m.unmount();
        place.check();
    }
}

/// An unmount ends a freeze: nobody could ask for the thaw any more, and a close that hands data over would wait.
#[test]
fn an_unmount_ends_a_freeze_and_the_wait_of_those_who_close_files() {
    needs_mounts_by_root();
    for program in [[env!("CARGO_BIN_EXE_quire"), "umount", "-l"], ["umount", "-l", "-v"]] {
        let place = Place::new("32M", &[]);
        let m = place.mount("");
        let mut file = File::create(m.path("f")).unwrap();
        file.write_all(&[1; 5000]).unwrap();
        file.sync_all().unwrap();
        ok(&mut quire(&["freeze", m.dir()]));
        let closed = std::thread::spawn(move || {
            file.rewind().unwrap();
            file.write_all(&[2; 5000]).unwrap();
            drop(file);
        });
        std::thread::sleep(std::time::Duration::from_millis(300));
        assert!(!closed.is_finished(), "the close waits for the thaw");
        let (code, words) = said(tool("timeout").args(["-k", "1", "20"]).args(program).arg(m.dir()));
        let waits = m.is_alive() && !closed.is_finished();
        wait_until("the daemon's end", || !m.is_alive());
        closed.join().unwrap();
        assert_eq!(code, 0, "{program:?}: {words}");
        assert!(!waits || program[0] == "umount", "quire umount waits for the end");
        place.check();
        let m = place.mount("");
        assert_eq!(fs::read(m.path("f")).unwrap(), [2; 5000]);
        m.unmount();
    }
}

/// The freeze has what the kernel held, although syncfs(2) cannot reach the mount.
#[test]
fn a_freeze_of_a_hidden_mount_has_what_was_written_before() {
    needs_mounts_by_root();
    let place = Place::new("32M", &[]);
    let m = place.mount("");
    let mut file = File::create(m.path("f")).unwrap();
    file.write_all(&[7; 200_000]).unwrap();
    ok(tool("mount").args(["-t", "tmpfs", "tmpfs", m.dir()]));
    ok(&mut quire(&["freeze", m.dir()]));
    let copy = place.path("copy");
    fs::copy(place.image(), &copy).unwrap();
    ok(&mut quire(&["thaw", m.dir()]));
    ok(tool("umount").arg(m.dir()));
    drop(file);
    m.unmount();
    check(&copy);
    let m = place.mount_image(&copy, "");
    assert_eq!(fs::read(m.path("f")).unwrap(), vec![7; 200_000]);
    m.unmount();
}

/// The socket of the mount at a directory.
fn socket(dir: &Path) -> std::path::PathBuf {
    use std::os::unix::fs::MetadataExt;
    let dev = fs::metadata(dir).unwrap().dev();
    Path::new("/run/quire").join(format!("{}:{}.sock", rustix::fs::major(dev), rustix::fs::minor(dev)))
}

#[test]
fn a_mount_whose_socket_is_gone_is_unmounted_and_waited_for() {
    needs_mounts_by_root();
    let place = Place::new("32M", &[]);
    let m = place.mount("");
    fs::write(m.path("f"), vec![8; 3 << 20]).unwrap();
    fs::remove_file(socket(Path::new(m.dir()))).unwrap();
    assert_ne!(said(&mut quire(&["stats", m.dir()])).0, 0, "it cannot be asked");
    ok(&mut quire(&["umount", m.dir()]));
    assert!(!m.is_alive(), "it was waited for");
    place.check();
}

/// The flags of a mount in `/proc/self/mountinfo`.
fn flags(m: &Mounted) -> String {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = mounts.lines().find(|l| l.split(' ').nth(4) == Some(m.dir())).expect("the mount");
    line.split(' ').nth(5).unwrap().to_owned()
}

fn quire_remount(m: &Mounted, list: &str) -> (i32, String) {
    said(&mut quire(&["mount", "-o", &format!("remount,{list}"), m.dir()]))
}

#[test]
fn a_remount_changes_what_can_change() {
    needs_mounts_by_root();
    let place = Place::new("32M", &[]);
    let m = place.mount("commit=3000,writethrough");
    fs::write(m.path("read"), "x").unwrap();
    // Access times: the kernel's flag and the engine's option.
    let accessed = |list: &str| {
        assert_eq!(quire_remount(&m, list), (0, String::new()), "{list}");
        let before = fs::metadata(m.path("read")).unwrap().accessed().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        // Past the kernel's cache, so that the daemon is asked.
        ok(tool("sh").args(["-c", &format!("echo 3 >/proc/sys/vm/drop_caches; cat {}", text(&m.path("read")))]));
        fs::metadata(m.path("read")).unwrap().accessed().unwrap() > before
    };
    assert!(!accessed("noatime"));
    assert!(accessed("strictatime"));
    assert!(flags(&m).split(',').all(|f| f != "noatime"));
    assert_eq!(quire_remount(&m, "nodev,noexec"), (0, String::new()));
    assert!(flags(&m).contains("nodev") && flags(&m).contains("noexec"), "{}", flags(&m));
    // The commit interval: without it nothing would be durable for an hour.
    ok(&mut quire(&["sync", m.dir()]));
    assert_eq!(quire_remount(&m, "commit=1"), (0, String::new()));
    fs::write(m.path("late"), "x").unwrap();
    std::thread::sleep(std::time::Duration::from_millis(3500));
    m.end_by(Signal::KILL);
    said(&mut quire(&["umount", "-l", text(&place.mnt())]));
    let m = place.mount("");
    assert!(m.path("late").exists(), "it was not committed after a second");
    m.unmount();
    place.check();
}

#[test]
fn a_remount_that_cannot_be_changes_nothing() {
    needs_mounts_by_root();
    let place = Place::new("32M", &[]);
    let m = place.mount("data=ordered");
    for (list, named) in [
        ("noatime,data=journal", "data=journal"),
        ("noatime,cache_size=128M", "cache_size=128M"),
        ("noatime,writethrough", "writethrough"),
        ("noatime,comit=3", "commit"),
    ] {
        let (code, words) = quire_remount(&m, list);
        assert!(code != 0 && words.contains(named), "{list}: {code}: {words}");
        assert!(!flags(&m).contains("noatime"), "{list}: {}", flags(&m));
    }
    // What mount(8) gives back of what the kernel shows.
    let same = "rw,relatime,user_id=0,group_id=0,default_permissions,allow_other,data=ordered";
    assert_eq!(quire_remount(&m, same), (0, String::new()));
    m.unmount();
    let m = place.mount("ro");
    let (code, words) = quire_remount(&m, "rw");
    assert!(code != 0 && words.contains("mounted read-only"), "{words}");
    m.unmount();
}

/// H7, and mount(8)'s way to its helper.
#[test]
fn a_remount_read_only_returns_when_the_image_is_clean() {
    needs_mounts_by_root();
    let place = Place::new("32M", &[]);
    let helper = place.path("mount.fuse.quire");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_quire"), &helper).unwrap();
    let m = place.mount("");
    for round in 0..5 {
        fs::write(m.path("f"), [round; 50_000]).unwrap();
        assert_eq!(quire_remount(&m, "ro"), (0, String::new()));
        assert!(!needs_recovery(&place), "round {round}");
        check(&place.image());
        ok(tool(text(&helper)).args([text(&place.image()), m.dir(), "-o", "remount,rw,relatime,user_id=0,group_id=0"]));
        fs::write(m.path("g"), "writable at once").unwrap();
    }
    let busy = File::create(m.path("busy")).unwrap();
    let (code, words) = quire_remount(&m, "ro,commit=9");
    assert!(code != 0 && words.contains("busy"), "{code}: {words}");
    drop(busy);
    m.unmount();
    place.check();
}

crate::common::over_uring! {
    a_mount_that_becomes_read_only_leaves_its_image_clean_until_it_is_writable,
    an_unmount_ends_a_freeze_and_the_wait_of_those_who_close_files,
    a_freeze_of_a_hidden_mount_has_what_was_written_before,
}
