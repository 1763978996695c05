//! In fuse2fs's place: its command line, its options, and what others see of an image before and after.

use crate::common::{Place, check, is_root, needs_mounts, needs_root, needs_tools, ok, quire, said, text, tool};
use rustix::fs::{FlockOperation, flock};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// The command under fuse2fs's name.
fn fuse2fs(place: &Place) -> Command {
    let link = place.path("fuse2fs");
    if !link.exists() {
        symlink(env!("CARGO_BIN_EXE_quire"), &link).unwrap();
    }
    tool(text(&link))
}

/// As an ordinary user, whoever runs the test: mounts `options`, runs `script` with `$M` as the mount, unmounts.
fn as_user(place: &Place, options: &str, script: &str) -> (i32, String) {
    const USER: u32 = 65534;
    let mut c = if is_root() {
        for path in [place.image(), place.mnt()] {
            std::os::unix::fs::chown(path, Some(USER), Some(USER)).unwrap();
        }
        // The temporary directory is its maker's alone.
        let open = PermissionsExt::from_mode(0o755);
        fs::set_permissions(place.image().parent().unwrap(), open).unwrap();
        let mut c = tool("setpriv");
        c.args(["--reuid", &USER.to_string(), "--regid", &USER.to_string(), "--clear-groups", "sh", "-euc"]);
        c
    } else {
        let mut c = tool("sh");
        c.arg("-euc");
        c
    };
    let (quire, image, mnt) = (env!("CARGO_BIN_EXE_quire"), place.image(), place.mnt());
    let script = format!(
        "M={m}; '{quire}' mount -o {options} {i} $M; trap '\"{quire}\" umount $M' EXIT; {script}",
        m = text(&mnt),
        i = text(&image)
    );
    said(c.arg(script))
}

fn debugfs(image: &Path, request: &str) -> String {
    ok(tool("debugfs").args(["-R", request]).arg(image))
}

#[test]
fn after_fusermount_returns_an_opener_of_the_image_finds_it_clean() {
    needs_mounts();
    needs_tools(&["fusermount3"]);
    let p = Place::new("16M", &[]);
    for round in 0..8 {
        ok(fuse2fs(&p).args([text(&p.image()), text(&p.mnt())]));
        let name = format!("file{round}");
        fs::write(p.mnt().join(&name), "foobar").unwrap();
        ok(tool("fusermount3").args(["-u", text(&p.mnt())]));
        check(&p.image());
        assert!(debugfs(&p.image(), &format!("cat /{name}")).contains("foobar"), "round {round}");
    }
}

#[test]
fn quire_wait_returns_when_the_image_is_clean() {
    needs_mounts();
    needs_tools(&["fusermount3"]);
    let p = Place::new("16M", &[]);
    ok(&mut quire(&["wait", text(&p.image())]));
    let m = p.mount("");
    fs::write(m.path("f"), "foobar").unwrap();
    let (code, words) = said(&mut quire(&["wait", "--timeout", "0", text(&p.image())]));
    assert!(code == 1 && words.contains("in use"), "{code}: {words}");
    ok(tool("fusermount3").args(["-u", m.dir()]));
    ok(&mut quire(&["wait", text(&p.image())]));
    let is_free = || flock(fs::File::open(p.image()).unwrap(), FlockOperation::NonBlockingLockShared).is_ok();
    assert!(!m.is_alive() || is_free(), "the daemon still has it");
    check(&p.image());
    // The daemon is killed before it has made the image clean.
    let m = p.mount("");
    fs::write(m.path("g"), "foobar").unwrap();
    fs::File::open(m.path("g")).unwrap().sync_all().unwrap();
    m.end_by(rustix::process::Signal::KILL);
    ok(tool("fusermount3").args(["-u", "-z", text(&p.mnt())]));
    let (code, words) = said(&mut quire(&["wait", text(&p.image())]));
    assert!(code == 32 && words.contains("quire recover"), "{code}: {words}");
}

#[test]
fn a_mounted_image_is_opened_without_waiting() {
    needs_mounts();
    let p = Place::new("16M", &[]);
    let m = p.mount("");
    for _ in 0..2 {
        let start = Instant::now();
        drop(fs::File::open(p.image()).unwrap());
        assert!(start.elapsed() < Duration::from_secs(5), "the lease was kept for {:?}", start.elapsed());
        // The daemon takes its lease again meanwhile.
        std::thread::sleep(Duration::from_millis(1200));
    }
    m.unmount();
}

#[test]
fn with_fakeroot_a_user_acts_as_root_inside_the_image() {
    needs_mounts();
    needs_tools(&["fusermount3"]);
    let roots_own = || {
        let p = Place::new("16M", &[]);
        ok(tool("mke2fs").args(["-q", "-F", "-t", "ext4", "-E", "root_owner=0:0", text(&p.image()), "16M"]));
        p
    };
    let p = roots_own();
    let (code, words) = as_user(&p, "ro=0,rw", "true");
    assert_eq!(code, 1, "a wrong option is refused: {words}");
    let (code, words) = as_user(&p, "rw", "touch $M/f");
    assert!(code != 0 && words.contains("denied"), "without it the root directory is root's: {words}");
    let p = roots_own();
    let script = "mkdir $M/etc; echo x >$M/etc/f; chown 12:34 $M/etc/f; chmod 600 $M/etc/f; cat $M/etc/f >/dev/null
        stat -c %u:%g:%a $M/etc/f; stat -c %u:%g $M/etc; setfattr -n user.a -v b $M/etc";
    let (code, words) = as_user(&p, "fakeroot", script);
    assert_eq!((code, words.as_str()), (0, "12:34:600\n0:0\n"));
    check(&p.image());
    assert!(debugfs(&p.image(), "stat /etc/f").contains("User:    12   Group:    34"));
}

#[test]
fn fakeroot_is_for_the_user_who_mounts_and_takes_no_privileges_from_the_image() {
    let words = |options: &str| quire_mount::MountOptions::parse(options).unwrap();
    let o = words("fakeroot");
    assert_eq!((o.allow_other, o.no_dev, o.no_suid), (Some(false), true, true));
    assert_eq!(words("allow_other,fakeroot").allow_other, Some(true), "asked for");
}

#[test]
fn uid_and_gid_are_the_owner_that_is_shown() {
    needs_mounts();
    let p = Place::new("16M", &[]);
    let m = p.mount("uid=4321,gid=8765");
    let root = fs::metadata(m.path("")).unwrap();
    if is_root() {
        fs::write(m.path("f"), "x").unwrap();
        let f = fs::metadata(m.path("f")).unwrap();
        let listed = fs::read_dir(m.path("")).unwrap().flatten().find(|e| e.file_name() == "f").unwrap();
        assert_eq!((f.uid(), f.gid(), listed.metadata().unwrap().uid()), (4321, 8765, 4321));
    }
    m.unmount();
    assert_eq!((root.uid(), root.gid()), (4321, 8765));
    assert!(debugfs(&p.image(), "stat /").contains(&format!("User: {:>5}", rustix::process::getuid().as_raw())));
}

#[test]
fn a_lock_file_is_there_while_the_image_is_in_use() {
    needs_mounts();
    let p = Place::new("16M", &[]);
    let lock = p.path("lock");
    let options = format!("lockfile={}", text(&lock));
    let m = p.mount(&options);
    assert!(lock.exists());
    m.unmount();
    assert!(!lock.exists());
    fs::write(&lock, "").unwrap();
    let (code, words) = said(&mut quire(&["mount", "-o", &options, text(&p.image()), text(&p.mnt())]));
    assert!(code == 32 && words.contains(text(&lock)), "{code}: {words}");
    assert!(lock.exists(), "somebody else's stays");
    fs::remove_file(&lock).unwrap();
    fs::write(p.image(), "not ext4").unwrap();
    assert_ne!(said(&mut quire(&["mount", "-o", &options, text(&p.image()), text(&p.mnt())])).0, 0);
    assert!(!lock.exists(), "it goes when the mount fails");
}

#[test]
fn an_image_without_a_name_is_mounted_by_its_descriptor() {
    needs_mounts();
    let p = Place::new("16M", &["-L", "nameless"]);
    let script = format!(
        "exec 7<>{i}; rm {i}; '{q}' mount /proc/self/fd/7 {m}; echo x >{m}/f; '{q}' umount {m}; cp /proc/self/fd/7 {i}",
        i = text(&p.image()),
        m = text(&p.mnt()),
        q = env!("CARGO_BIN_EXE_quire"),
    );
    ok(tool("sh").args(["-euc", &script]));
    check(&p.image());
    assert!(debugfs(&p.image(), "ls -p /").contains("/f/"));
}

#[test]
fn a_connection_that_the_caller_has_mounted_is_served() {
    needs_mounts();
    needs_root();
    let p = Place::new("16M", &[]);
    fs::set_permissions(p.path(""), PermissionsExt::from_mode(0o755)).unwrap();
    for (way, options) in [("--fd", "acl"), ("/dev/fd/", "acl"), ("--fd", "noacl")] {
        let fuse = fs::File::options().read(true).write(true).open("/dev/fuse").unwrap();
        // Not closed in the command.
        let fd = rustix::io::fcntl_dupfd_cloexec(&fuse, 100).unwrap();
        drop(fuse);
        rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::empty()).unwrap();
        let number = std::os::fd::AsRawFd::as_raw_fd(&fd).to_string();
        let data = format!("fd={number},rootmode=40000,user_id=0,group_id=0,allow_other");
        let data = std::ffi::CString::new(data).unwrap();
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("given", p.mnt(), "fuse", flags, data.as_c_str()).unwrap();
        let place = if way == "--fd" { vec![way.to_owned(), number] } else { vec![format!("{way}{number}")] };
        let mut c = quire(&["mount", text(&p.image())]);
        let (code, words) = said(c.args(&place).args(["-o", options]));
        drop(fd);
        let written = fs::write(p.mnt().join("f"), "given");
        // The kernel checks permissions, though the caller's options did not ask for it.
        let seen = [0o700, 0o755].map(|mode| {
            fs::set_permissions(p.mnt(), PermissionsExt::from_mode(mode)).unwrap();
            let mut stranger = tool("setpriv");
            stranger.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "ls", text(&p.mnt())]);
            said(&mut stranger).0 == 0
        });
        ok(tool("umount").arg(p.mnt()));
        assert_eq!(code, 0, "{words}");
        written.unwrap();
        assert_eq!(seen, [false, true], "{options}: a stranger lists what he may, and nothing else");
        check(&p.image());
        assert!(debugfs(&p.image(), "cat /f").contains("given"));
    }
    let (code, words) = said(&mut quire(&["mount", text(&p.image()), "--fd", "0"]));
    assert!(code == 32 && words.contains("/dev/fd/0"), "{code}: {words}");
}
