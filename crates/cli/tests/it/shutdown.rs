//! FS_IOC_SHUTDOWN (EXT4_IOC_SHUTDOWN): the mount stops as the kernel's ext4 does, and what an fsync has acknowledged
//! is there after it.

use crate::common::{Place, check, needs_mounts, needs_root, needs_tools, ok, quire, said, skip, text, tool};
use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::Stdio;

/// Every call of a program on a mount that was shut down with flag `$1`, and what it says.
const PROGRAM: &str = r#"
    cd "$0" || exit 9
    shutdown() { perl -e 'open(F, "<", ".") or die "open: $!\n"; my $v = pack("L", shift); print defined(ioctl(F, 0x8004587d, $v)) ? "done\n" : "$!\n"' "$1"; }
    echo hello > file; mkdir dir; echo x > dir/x; ln -s file link; setfattr -n user.a -v b file; sync file dir dir/x .
    exec 4<file 5>>file; cat <&4
    try() { echo "$*: $("$@" 2>&1 | tail -n1 | sed 's/.*: //')"; }
    shutdown 7; shutdown "$1"; shutdown 2; shutdown 7
    try cat file; try sh -c 'echo more >&5'; try perl -e 'sysseek(STDIN, 0, 0); print sysread(STDIN, $b, 5) // $!' <&4
    try stat -c %s file; try stat -c %s absent; try ls; try ls dir; try readlink link
    try touch new; try mkdir new; try rm file; try mv file other; try ln file other; try chmod 600 file
    try getfattr -n user.a file; try setfattr -n user.c -v d file; try lsattr file
    try sync file; try stat -f -c %S ."#;

fn program(dir: &Path, flag: &str) -> String {
    ok(tool("bash").args(["-c", PROGRAM]).arg(dir).arg(flag))
}

fn needs_shutdowns() {
    needs_mounts();
    needs_root();
    needs_tools(&["bash", "perl", "setfattr", "losetup", "setpriv"]);
}

/// What is refused and what is not is the same on the kernel's ext4; the next mount recovers where that one does, and
/// everything that was synced is there.
#[test]
fn a_shutdown_stops_a_mount_as_it_does_the_kernels_ext4() {
    needs_shutdowns();
    for (flag, options) in
        [("0", ""), ("1", "data=ordered"), ("2", "data=auto"), ("2", "data=journal"), ("0", "writethrough")]
    {
        let theirs = Place::new("32M", &["-b", "4096"]);
        if said(tool("mount").args(["-o", "loop"]).arg(theirs.image()).arg(theirs.mnt())).0 != 0 {
            skip("no loop device");
        }
        let kernel = program(&theirs.mnt(), flag);
        ok(tool("umount").arg(theirs.mnt()));
        let place = Place::new("32M", &["-b", "4096"]);
        let m = place.mount(options);
        let seen = program(&place.mnt(), flag);
        assert_eq!(seen, kernel, "flag {flag}, {options}");
        m.unmount();
        let recovers = |p: &Place| {
            let mut bits = [0; 4];
            fs::File::open(p.image()).unwrap().read_exact_at(&mut bits, 1024 + 0x60).unwrap();
            u32::from_le_bytes(bits) & 4 != 0
        };
        let needed = [recovers(&theirs), recovers(&place)];
        assert_eq!(needed, [flag != "0"; 2], "flag {flag}, {options}: ext4 and Quire need recovery");
        let m = place.mount(options);
        assert_eq!(fs::read_to_string(m.path("file")).unwrap(), "hello\n");
        assert_eq!(fs::read_to_string(m.path("dir/x")).unwrap(), "x\n");
        m.unmount();
        place.check();
    }
}

/// Perl that shuts down the mount of its directory.
fn shuts_down(flag: u32) -> String {
    format!(r#"open(F, "<", ".") or die; $v = pack("L", {flag}); ioctl(F, 0x8004587d, $v) or die $!"#)
}

/// With flag 0 what the kernel still keeps comes first; the image is clean at once, while it is mounted.
#[test]
fn a_shutdown_that_writes_first_leaves_a_clean_image_with_unsynced_data() {
    needs_shutdowns();
    let place = Place::new("32M", &[]);
    let m = place.mount("");
    let unsynced = fs::File::create(m.path("unsynced")).unwrap();
    std::io::Write::write_all(&mut &unsynced, &[5; 300_000]).unwrap();
    ok(tool("perl").args(["-e", &shuts_down(0)]).current_dir(m.dir()));
    check(&place.image());
    drop(unsynced);
    m.unmount();
    let m = place.mount("");
    assert_eq!(fs::read(m.path("unsynced")).unwrap(), vec![5; 300_000]);
    m.unmount();
}

/// What was written since the freeze has come to nobody: a shutdown does not wait for it, and ends the freeze.
#[test]
fn a_shutdown_of_a_frozen_mount_does_not_wait_for_a_thaw() {
    needs_shutdowns();
    let place = Place::new("32M", &[]);
    let m = place.mount("");
    fs::write(m.path("f"), [1; 8192]).unwrap();
    fs::File::open(m.path("f")).unwrap().sync_all().unwrap();
    ok(&mut quire(&["freeze", m.dir()]));
    // By a process of its own: whoever starts a program while it has a dirty file open closes it for it, and waits.
    let script = r#"
        open(F, "+<", "f") or die; syswrite(F, "x" x 4096) or die;
        $v = pack("L", 0); ioctl(F, 0x8004587d, $v) or die $!"#;
    ok(tool("timeout").args(["--signal=KILL", "20", "perl", "-e", script]).current_dir(m.dir()));
    check(&place.image());
    m.unmount();
    let m = place.mount("ro");
    assert_eq!(fs::read(m.path("f")).unwrap(), [1; 8192]);
    m.unmount();
}

/// Nor does it where the kernel has begun to hand pages over: of a few files, and of more than there are threads that
/// wait for that.
#[test]
fn a_shutdown_of_a_frozen_mount_lets_go_of_who_waits_for_pages() {
    needs_shutdowns();
    [2, 18].into_iter().for_each(shut_down_beside_lookers);
}

fn shut_down_beside_lookers(files: usize) {
    let place = Place::new("32M", &[]);
    let m = place.mount("");
    for n in 0..files {
        fs::write(m.path(&n.to_string()), [1; 8192]).unwrap();
        fs::File::open(m.path(&n.to_string())).unwrap().sync_all().unwrap();
    }
    ok(&mut quire(&["freeze", m.dir()]));
    // SEEK_DATA after a write.
    let script = r#"open(F, "+<", $ARGV[0]) or die; syswrite(F, "x" x 4096) or die; sysseek(F, 0, 3)"#;
    let look = |n: usize| {
        // It complains of the close that fails.
        tool("perl").args(["-e", script]).arg(m.path(&n.to_string())).stderr(Stdio::null()).spawn().unwrap()
    };
    let mut lookers: Vec<_> = (0..files).map(look).collect();
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(lookers.iter_mut().all(|l| l.try_wait().unwrap().is_none()), "nobody waits: this shows nothing");
    let script = shuts_down(2);
    let (code, words) = said(tool("timeout").args(["--signal=KILL", "20", "perl", "-e", &script]).current_dir(m.dir()));
    // Whatever came of it, nobody is left behind.
    said(&mut quire(&["thaw", m.dir()]));
    assert_eq!(code, 0, "{files} files: {words}");
    for looker in &mut lookers {
        looker.wait().unwrap();
    }
    m.unmount();
}

#[test]
fn a_shutdown_is_for_those_who_may_administer_the_mount() {
    needs_shutdowns();
    let place = Place::new("32M", &[]);
    fs::set_permissions(place.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    let m = place.mount("allow_other");
    let script = r#"open(F, "<", ".") or die; $v = pack("L", 2); exit(!ioctl(F, 0x8004587d, $v))"#;
    let user = ["--reuid=1000", "--regid=1000", "--clear-groups", "perl", "-e", script];
    assert_ne!(said(tool("setpriv").args(user).current_dir(m.dir())).0, 0, "a user");
    let bounded = ["--bounding-set=-sys_admin", "--inh-caps=-sys_admin", "perl", "-e", script];
    assert_ne!(said(tool("setpriv").args(bounded).current_dir(m.dir())).0, 0, "root without CAP_SYS_ADMIN");
    fs::write(m.path("f"), "x").expect("it runs on");
    ok(tool("perl").args(["-e", script]).current_dir(m.dir()));
    assert!(fs::write(m.path("g"), "x").is_err());
    ok(&mut quire(&["umount", text(&place.mnt())]));
}

/// Who may not shut down a mount makes the daemon look at no memory of his: to look at a page of a file of this very
/// mount would wait for the daemon.
#[test]
fn a_shutdown_that_is_not_permitted_makes_nobody_wait() {
    needs_shutdowns();
    needs_tools(&["python3", "timeout"]);
    let place = Place::new("32M", &[]);
    fs::set_permissions(place.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    let m = place.mount("");
    fs::write(m.path("f"), vec![0; 1 << 20]).unwrap();
    fs::set_permissions(m.path("f"), fs::Permissions::from_mode(0o644)).unwrap();
    m.unmount();
    // None of its pages is in the kernel's cache now.
    let m = place.mount("allow_other");
    let script = "import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.ioctl.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p]
page = libc.mmap(None, 4096, 1, 1, os.open('f', os.O_RDONLY), 0)
libc.ioctl(os.open('.', os.O_RDONLY), 0x8004587d, page)
sys.exit(ctypes.get_errno())";
    let user = ["--reuid=1000", "--regid=1000", "--clear-groups", "timeout", "20", "python3", "-c", script];
    let (code, words) = said(tool("setpriv").args(user).current_dir(m.dir()));
    assert_eq!(code, rustix::io::Errno::PERM.raw_os_error(), "{words}");
    ok(tool("timeout").args(["--signal=KILL", "20", "ls", m.dir()]));
    m.unmount();
    place.check();
}

crate::common::over_uring! {
    a_shutdown_that_is_not_permitted_makes_nobody_wait,
    a_shutdown_stops_a_mount_as_it_does_the_kernels_ext4,
    a_shutdown_that_writes_first_leaves_a_clean_image_with_unsynced_data,
    a_shutdown_of_a_frozen_mount_does_not_wait_for_a_thaw,
    a_shutdown_of_a_frozen_mount_lets_go_of_who_waits_for_pages,
}
