//! The command, a mount, and what e2fsck says afterwards.

use crate::common::{
    Place, check, copy_program, has, is_root, needs_mounts, needs_root, needs_tools, ok, quire, said, skip, text, tool,
    wait_until,
};
use rustix::process::Signal;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

fn work(dir: &std::path::Path) {
    fs::create_dir(dir.join("a")).unwrap();
    fs::write(dir.join("a/file"), vec![7; 100_000]).unwrap();
    fs::hard_link(dir.join("a/file"), dir.join("link")).unwrap();
    symlink("a/file", dir.join("soft")).unwrap();
    fs::rename(dir.join("a/file"), dir.join("renamed")).unwrap();
    assert_eq!(fs::metadata(dir.join("link")).unwrap().nlink(), 2);
    assert_eq!(fs::read_link(dir.join("soft")).unwrap().to_str(), Some("a/file"));
    for n in 0..300 {
        File::create(dir.join(format!("a/{n}"))).unwrap();
    }
    assert_eq!(fs::read_dir(dir.join("a")).unwrap().count(), 300);
    fs::remove_dir_all(dir.join("a")).unwrap();
    let f = OpenOptions::new().read(true).write(true).open(dir.join("renamed")).unwrap();
    f.write_all_at(b"in the middle", 50_000).unwrap();
    f.set_len(60_000).unwrap();
    f.sync_all().unwrap();
    fs::set_permissions(dir.join("link"), fs::Permissions::from_mode(0o4711)).unwrap();
    let bytes = fs::read(dir.join("link")).unwrap();
    assert!(bytes.len() == 60_000 && &bytes[50_000..50_013] == b"in the middle");
}

fn found(dir: &std::path::Path) {
    let bytes = fs::read(dir.join("renamed")).unwrap();
    assert!(
        bytes.len() == 60_000 && bytes[..50_000].iter().all(|b| *b == 7) && &bytes[50_000..50_013] == b"in the middle"
    );
    assert_eq!(fs::metadata(dir.join("link")).unwrap().mode() & 0o7777, 0o4711);
    assert!(!dir.join("a").exists());
}

#[test]
fn work_survives_an_unmount() {
    needs_mounts();
    for options in ["", "data=journal", "data=writeback,writethrough", "sync"] {
        let place = Place::new("64M", &[]);
        let m = place.mount(options);
        work(&place.mnt());
        m.unmount();
        place.check();
        let m = place.mount("ro");
        found(&place.mnt());
        assert_eq!(
            File::create(m.path("new")).unwrap_err().raw_os_error(),
            Some(rustix::io::Errno::ROFS.raw_os_error())
        );
        m.unmount();
        place.check();
    }
}

#[test]
fn a_signal_unmounts() {
    needs_mounts();
    let place = Place::new("32M", &[]);
    for signal in [Signal::TERM, Signal::INT] {
        let m = place.mount("");
        fs::write(m.path("f"), vec![9; 300_000]).unwrap();
        m.end_by(signal);
        place.check();
        let m = place.mount("");
        assert_eq!(fs::read(m.path("f")).unwrap(), vec![9; 300_000]);
        m.unmount();
    }
}

#[test]
fn what_was_synced_survives_a_kill() {
    needs_mounts();
    let place = Place::new("32M", &["-b", "1024"]);
    let m = place.mount("");
    let mut f = File::create(m.path("f")).unwrap();
    f.write_all(&[5; 70_000]).unwrap();
    f.sync_all().unwrap();
    drop(f);
    // Counts that only descriptors have by now.
    (0..50).for_each(|n| drop(File::create(m.path(&format!("n{n}"))).unwrap()));
    ok(&mut quire(&["sync", m.dir()]));
    m.end_by(Signal::KILL);
    // Over rings the kernel breaks the connection a moment after the process has ended.
    wait_until("the end of the connection", || fs::metadata(place.mnt()).is_err());
    let (code, words) = said(&mut quire(&["mount", text(&place.image()), text(&place.mnt())]));
    assert!(code == 32 && words.contains("quire umount"), "{code}: {words}");
    let (code, words) = said(&mut quire(&["umount", text(&place.mnt())]));
    assert!(code == 32 && words.contains("daemon had died"), "{code}: {words}");

    let image = place.image();
    let dirty = fs::read(&image).unwrap();
    let (code, words) = said(&mut quire(&["recover", "--dry-run", text(&image)]));
    assert_eq!(code, 4, "{words}");
    assert!(words.contains("transactions to replay"), "{words}");
    assert!(fs::read(&image).unwrap() == dirty, "a dry run wrote");
    let undo = place.path("undo");
    let (code, words) = said(&mut quire(&["recover", "--undo", text(&undo), text(&image)]));
    assert_eq!(code, 1, "{words}");
    place.check();
    let (code, words) = said(&mut quire(&["recover", text(&image)]));
    assert_eq!((code, words.contains("nothing to do")), (0, true), "{words}");
    if has("e2undo") {
        ok(tool("e2undo").arg(&undo).arg(&image));
        assert!(fs::read(&image).unwrap() == dirty, "e2undo left other bytes");
    }
    // A mount recovers by itself.
    let m = place.mount("");
    assert_eq!(fs::read(m.path("f")).unwrap(), [5; 70_000]);
    m.unmount();
    place.check();
}

#[test]
fn exit_codes_are_those_of_mount8() {
    let place = Place::new("16M", &[]);
    let (image, mnt) = (place.image(), place.mnt());
    let code = |args: &[&str]| said(&mut quire(args));
    let before = fs::read(&image).unwrap();
    for (expected, args) in [
        (1, vec!["mount"]),
        (1, vec!["mount", text(&image), text(&mnt), "-o", "no-such-option"]),
        (1, vec!["mount", text(&image), text(&mnt), "-o", "sb=32768"]),
        (32, vec!["mount", "/no/such/image", text(&mnt)]),
        (32, vec!["mount", text(&image), "/no/such/dir"]),
        (32, vec!["mount", text(&image), text(&image)]),
        (32, vec!["mount", text(&mnt), text(&mnt)]),
        (32, vec!["umount", text(&mnt)]),
        (32, vec!["stats", text(&mnt)]),
        (16, vec!["recover"]),
        (8, vec!["recover", "/no/such/image"]),
    ] {
        let (got, words) = code(&args);
        assert_eq!(got, expected, "{args:?}: {words}");
        assert!(!words.is_empty() && !words.contains("os error"), "{args:?}: {words}");
    }
    assert!(fs::read(&image).unwrap() == before, "a refused mount wrote");
}

#[test]
fn damaged_images_are_refused_and_left_alone() {
    needs_mounts();
    let place = Place::new("32M", &["-b", "4096"]);
    let good = fs::read(place.image()).unwrap();
    let bad = place.path("bad");
    type Spoil = fn(&mut Vec<u8>);
    let cases: [(&str, Spoil, &str); 5] = [
        ("no superblock", |b| b[1024..2048].fill(0), "superblock"),
        ("flipped bit", |b| b[1024 + 0x78] ^= 1, "checksum"),
        ("cut", |b| b.truncate(9 << 20), "truncated"),
        ("empty", |b| b.clear(), "too small"),
        ("descriptors", |b| b[4096..8192].fill(0xA5), "descriptor"),
    ];
    for (what, spoil, word) in cases {
        let mut image = good.clone();
        spoil(&mut image);
        fs::write(&bad, &image).unwrap();
        let (code, words) = said(&mut quire(&["mount", text(&bad), text(&place.mnt())]));
        assert_eq!(code, 32, "{what}: {words}");
        assert!(words.contains(word) && words.contains(text(&bad)), "{what}: {words}");
        assert!(fs::read(&bad).unwrap() == image, "{what}: the image was changed");
    }
}

/// The kernel sees what it knows of ext4: birth times, generation, trimming, sync of one file system.
#[test]
fn ioctls_and_attributes_beyond_posix() {
    needs_mounts();
    let place = Place::new("32M", &[]);
    let m = place.mount("discard");
    let f = m.path("f");
    fs::write(&f, vec![1; 3 << 20]).unwrap();
    assert!(fs::metadata(&f).unwrap().created().is_ok(), "no birth time");
    fs::remove_file(&f).unwrap();
    ok(&mut quire(&["sync", m.dir()]));
    if is_root() && has("fstrim") {
        let words = ok(tool("fstrim").arg("-v").arg(place.mnt()));
        assert!(words.contains("trimmed") && !words.contains(" 0 B "), "{words}");
    }
    if has("setfacl") {
        fs::write(&f, "acl").unwrap();
        ok(tool("setfacl").args(["-m", "u:1234:rw"]).arg(&f));
        assert!(ok(tool("getfacl").arg("-n").arg(&f)).contains("user:1234:rw-"));
        fs::create_dir(m.path("d")).unwrap();
        ok(tool("setfacl").args(["-d", "-m", "u:77:r"]).arg(m.path("d")));
        fs::write(m.path("d/inherits"), "").unwrap();
        assert!(ok(tool("getfacl").arg("-n").arg(m.path("d/inherits"))).contains("user:77:r--"));
    }
    m.unmount();
    place.check();
}

/// With `tune=host` the kernel may keep many dirty pages of a mount, but few while commits are frequent. Without it its
/// own limits stay.
#[test]
fn the_kernels_dirty_pages_are_limited_while_commits_are_frequent_if_asked_for() {
    needs_mounts();
    needs_root();
    let place = Place::new("32G", &["-J", "size=16"]);
    let entry = |dir: &str| {
        let dev = fs::metadata(dir).unwrap().dev();
        PathBuf::from(format!("/sys/class/bdi/{}:{}", rustix::fs::major(dev), rustix::fs::minor(dev)))
    };
    let m = place.mount("");
    let of_kernel = |file| fs::read_to_string(entry(m.dir()).join(file)).unwrap().trim().to_owned();
    assert_eq!((of_kernel("max_ratio").as_str(), of_kernel("read_ahead_kb").as_str()), ("1", "128"));
    m.unmount();
    let m = place.mount("tune=host");
    let bdi = entry(m.dir());
    if !bdi.join("max_bytes").exists() {
        skip("a kernel before 6.2");
    }
    let is_strict = || fs::read_to_string(bdi.join("strict_limit")).unwrap().trim() == "1";
    assert!(!is_strict());
    let mut f = fs::File::create(m.path("f")).unwrap();
    let mut append = |pause| {
        std::thread::sleep(pause);
        f.write_all(b"once more").unwrap();
        f.sync_all().unwrap();
        is_strict()
    };
    assert!(!(0..3).any(|_| append(Duration::from_millis(400))));
    wait_until("little to be held back", || append(Duration::from_millis(5)));
    wait_until("much to be held back", || fs::write(m.path("g"), "no commit").is_ok() && !is_strict());
    drop(f);
    m.unmount();
    place.check();
}

/// A remount with `tune=none` leaves the mount's settings as the kernel had made them.
#[test]
fn a_remount_undoes_what_was_tuned_on_the_host() {
    needs_mounts();
    needs_root();
    let place = Place::new("32M", &[]);
    let m = place.mount("");
    let dev = fs::metadata(m.dir()).unwrap().dev();
    let entry = PathBuf::from(format!("/sys/class/bdi/{}:{}", rustix::fs::major(dev), rustix::fs::minor(dev)));
    let settings = || {
        let files = ["read_ahead_kb", "max_ratio", "strict_limit"];
        files.map(|file| fs::read_to_string(entry.join(file)).unwrap_or_default())
    };
    let usual = settings();
    for _ in 0..2 {
        ok(&mut quire(&["mount", "-o", "remount,tune=host", m.dir()]));
        let tuned = settings();
        assert!(tuned[0].trim() == "3072" && tuned[1] != usual[1], "{tuned:?}, before {usual:?}");
        ok(&mut quire(&["mount", "-o", "remount,tune=none", m.dir()]));
        assert_eq!(settings(), usual, "tuned: {tuned:?}");
    }
    m.unmount();
    place.check();
}

/// What `du` shows is right once the kernel has handed over what was written, though it may have asked before.
#[test]
fn space_taken_is_told_after_write_back() {
    needs_mounts();
    let place = Place::new("32M", &[]);
    let m = place.mount("");
    let mut f = File::create(m.path("f")).unwrap();
    f.write_all(&[1; 1 << 20]).unwrap();
    f.metadata().unwrap();
    f.sync_all().unwrap();
    wait_until("the space to show", || f.metadata().unwrap().blocks() == 2048);
    drop(f);
    let mut g = File::create(m.path("g")).unwrap();
    g.write_all(&[1; 1 << 20]).unwrap();
    g.metadata().unwrap();
    drop(g);
    wait_until("the space to show", || fs::metadata(m.path("g")).unwrap().blocks() == 2048);
    m.unmount();
    place.check();
}

/// `O_TMPFILE`: given its name by linkat(2), or gone.
#[test]
fn a_file_without_a_name_gets_one_or_goes() {
    use rustix::fs::{AtFlags, CWD, Mode, OFlags};
    needs_mounts();
    let place = Place::new("32M", &[]);
    for options in ["", "writethrough", "data=journal"] {
        let m = place.mount(options);
        let make = |flags| {
            let fd =
                rustix::fs::open(m.dir(), OFlags::TMPFILE | OFlags::RDWR | flags, Mode::from_raw_mode(0o640)).unwrap();
            let f = File::from(fd);
            f.write_all_at(&[6; 50_000], 0).unwrap();
            f
        };
        let link = |f: &File, name: &str| {
            let fd = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(f));
            rustix::fs::linkat(CWD, fd, CWD, m.path(name), AtFlags::SYMLINK_FOLLOW)
        };
        let (named, lost, never) = (make(OFlags::empty()), make(OFlags::empty()), make(OFlags::EXCL));
        assert_eq!(named.metadata().unwrap().nlink(), 0);
        let name = format!("named {options}");
        link(&named, &name).unwrap();
        assert!(link(&never, "never").is_err());
        assert_eq!(
            (named.metadata().unwrap().nlink(), fs::metadata(m.path(&name)).unwrap().mode() & 0o777),
            (1, 0o640)
        );
        drop((named, lost, never));
        m.unmount();
        place.check();
        let m = place.mount("ro");
        assert_eq!(fs::read(m.path(&name)).unwrap(), [6; 50_000]);
        m.unmount();
    }
}

#[test]
fn immutable_and_append_only_files_are_kept() {
    needs_mounts();
    needs_root();
    needs_tools(&["chattr"]);
    let place = Place::new("16M", &[]);
    let m = place.mount("");
    let refused =
        |r: std::io::Result<File>| r.unwrap_err().raw_os_error() == Some(rustix::io::Errno::PERM.raw_os_error());
    let (i, a) = (m.path("i"), m.path("a"));
    fs::write(&i, "i").unwrap();
    fs::write(&a, "a").unwrap();
    ok(tool("chattr").arg("+i").arg(&i));
    ok(tool("chattr").arg("+a").arg(&a));
    assert!(ok(tool("lsattr").arg(&i)).contains("----i"));
    assert!(refused(OpenOptions::new().append(true).open(&i)));
    assert!(refused(File::create(&i)));
    assert!(refused(OpenOptions::new().write(true).open(&a)));
    assert!(refused(File::create(&a)));
    assert!(fs::remove_file(&i).is_err() && fs::remove_file(&a).is_err());
    OpenOptions::new().append(true).open(&a).unwrap().write_all(b"b").unwrap();
    assert_eq!(fs::read(&a).unwrap(), b"ab");
    ok(tool("chattr").arg("-i").arg(&i));
    ok(tool("chattr").arg("-a").arg(&a));
    ok(tool("lsattr").arg("-v").arg(&i));
    fs::remove_file(&i).unwrap();
    m.unmount();
    place.check();
}

#[test]
fn a_frozen_image_is_clean_and_writers_wait() {
    needs_mounts();
    let place = Place::new("32M", &[]);
    let m = place.mount("");
    fs::write(m.path("before"), vec![1; 200_000]).unwrap();
    ok(&mut quire(&["freeze", m.dir()]));
    place.check();
    assert_eq!(said(&mut quire(&["freeze", m.dir()])).0, 32, "frozen twice");
    // More writers than workers.
    let writers: Vec<_> = (0..40)
        .map(|n| {
            let path = m.path(&format!("w{n}"));
            std::thread::spawn(move || fs::write(path, vec![2; 5000]).unwrap())
        })
        .collect();
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!(fs::read(m.path("before")).unwrap().len(), 200_000, "reading goes on");
    assert!(writers.iter().all(|w| !w.is_finished()), "a writer went on in a frozen image");
    place.check();
    ok(&mut quire(&["thaw", m.dir()]));
    writers.into_iter().for_each(|w| w.join().unwrap());
    assert_eq!(fs::read(m.path("w39")).unwrap(), vec![2; 5000]);
    assert_eq!(said(&mut quire(&["thaw", m.dir()])).0, 32, "thawed twice");
    m.unmount();
    place.check();
}

#[test]
fn a_block_device_is_clean_when_umount_returns() {
    needs_mounts();
    needs_root();
    let place = Place::new("32M", &["-b", "4096"]);
    let (code, device) = said(tool("losetup").args(["-f", "--show"]).arg(place.image()));
    if code != 0 {
        skip("no loop devices");
    }
    let device = std::path::PathBuf::from(device.trim());
    let m = place.mount_image(&device, "");
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    assert!(mounts.lines().any(|l| l.contains(text(&place.mnt())) && l.contains("fuseblk.quire")), "{mounts}");
    fs::write(m.path("f"), vec![3; 100_000]).unwrap();
    // sync(2) reaches us: the log has been written, nothing is pending.
    let flushes = || {
        let stats: serde_json::Value = serde_json::from_str(&ok(&mut quire(&["stats", "--json", m.dir()]))).unwrap();
        stats["journal"]["transactions"].as_u64().unwrap()
    };
    let before = flushes();
    rustix::fs::sync();
    let after = flushes();
    if tool("uname").arg("-r").output().is_ok_and(|o| o.stdout.starts_with(b"6.18")) {
        assert!(after > before, "sync(2) did not commit");
    }
    ok(tool("umount").arg(place.mnt()));
    check(&device);
    wait_until("the daemon's end", || !m.is_alive());
    ok(tool("losetup").arg("-d").arg(&device));
    std::mem::forget(m);
}

#[test]
fn an_ordinary_user_mounts_through_fusermount3() {
    use std::os::unix::process::CommandExt;
    const NOBODY: u32 = 65534;
    needs_mounts();
    needs_tools(&["fusermount3"]);
    if is_root() && fs::metadata("/dev/fuse").unwrap().mode() & 0o006 != 0o006 {
        skip("/dev/fuse is closed to users");
    }
    let owner = if is_root() { format!("root_owner={NOBODY}:{NOBODY}") } else { "root_owner".to_owned() };
    let place = Place::new("32M", &["-E", &owner]);
    let bin = place.path("quire");
    copy_program(&bin);
    let user = |program: &std::path::Path| {
        let mut c = Command::new(program);
        if is_root() {
            c.uid(NOBODY).gid(NOBODY);
        }
        c.stdin(Stdio::null());
        c
    };
    if is_root() {
        for p in [place.path(""), place.image(), place.mnt()] {
            std::os::unix::fs::chown(p, Some(NOBODY), Some(NOBODY)).unwrap();
        }
    }
    let mnt = place.mnt();
    ok(user(&bin).arg("mount").arg(place.image()).arg(&mnt));
    let script = "set -e; cd $0; mkdir d; echo hello > d/f; sync d/f; mv d/f g; cat g";
    let worked = said(user("/bin/sh".as_ref()).args(["-c", script]).arg(&mnt));
    if is_root() {
        assert!(fs::read(mnt.join("g")).is_err(), "others may not look in without allow_other");
    }
    ok(user(&bin).arg("umount").arg(&mnt));
    assert_eq!(worked, (0, "hello\n".to_owned()));
    place.check();
    // An image that the user may only read is only read, and says so.
    fs::set_permissions(place.image(), fs::Permissions::from_mode(0o444)).unwrap();
    let (code, words) = said(user(&bin).arg("mount").arg(place.image()).arg(&mnt));
    assert!(code == 0 && words.contains("read-only: its source is write-protected"), "{code}: {words}");
    let read = said(user("/bin/sh".as_ref()).args(["-c", "cat $0/g; touch $0/h"]).arg(&mnt));
    ok(user(&bin).arg("umount").arg(&mnt));
    assert!(read.0 != 0 && read.1.starts_with("hello\n") && read.1.contains("Read-only"), "{read:?}");
}

#[test]
fn every_command_explains_itself() {
    for name in ["mount", "umount", "sync", "freeze", "thaw", "recover", "info", "dump", "stats", "completions"] {
        let help = ok(&mut quire(&[name, "--help"]));
        assert!(help.contains("Example"), "{name}: {help}");
    }
    assert!(ok(&mut quire(&["completions", "bash"])).contains("quire"));
    let dir = tempfile::tempdir().unwrap();
    ok(&mut quire(&["man", text(dir.path())]));
    assert!(dir.path().join("quire-mount.1").exists());
}

#[test]
fn info_and_dump_read_what_is_there() {
    let place = Place::new("16M", &["-L", "a label"]);
    let image = place.image();
    let info: serde_json::Value = serde_json::from_str(&ok(&mut quire(&["info", "--json", text(&image)]))).unwrap();
    assert_eq!(info["label"], "a label");
    assert_eq!(info["quire_mounts_it"], "read-write");
    assert_eq!(info["journal"]["inode"], 8);
    assert!(ok(&mut quire(&["info", text(&image)])).contains("metadata_csum"));
    assert!(ok(&mut quire(&["dump", text(&image), "dir", "/"])).contains("lost+found"));
    assert!(ok(&mut quire(&["dump", text(&image), "inode", "2"])).contains("directory"));
    assert!(ok(&mut quire(&["dump", text(&image), "block", "1"])).contains("000000 "));
    assert!(ok(&mut quire(&["dump", text(&image), "journal"])).contains("empty"));
    assert_eq!(said(&mut quire(&["dump", text(&image), "dir", "/none"])).0, 32);
}

crate::common::over_uring! {
    work_survives_an_unmount,
    a_signal_unmounts,
    what_was_synced_survives_a_kill,
    ioctls_and_attributes_beyond_posix,
    space_taken_is_told_after_write_back,
    a_file_without_a_name_gets_one_or_goes,
    immutable_and_append_only_files_are_kept,
    a_frozen_image_is_clean_and_writers_wait,
    a_block_device_is_clean_when_umount_returns,
}
