//! `quire resize` of a mount: the file system grows under those who use it.

use crate::common::{
    Mounted, Place, check, copy_program, needs_mounts, needs_root, needs_tools, ok, quire, said, text, tool,
};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const MIB: u64 = 1 << 20;

/// Bytes that statfs tells of.
fn size(m: &Mounted) -> u64 {
    let s = rustix::fs::statvfs(m.dir()).expect("statfs");
    s.f_blocks * s.f_frsize
}

fn resize(dir: &str, size: &str) -> (i32, String) {
    said(&mut quire(&["resize", dir, size]))
}

/// Grows beside a writer that fsyncs; what was acknowledged is there, and e2fsck finds nothing.
fn grows_beside_a_writer(options: &str) {
    needs_mounts();
    let place = Place::new("40M", &[]);
    let m = place.mount(options);
    let before = size(&m);
    let (stop, written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let writer = std::thread::spawn({
        let (stop, written, path) = (stop.clone(), written.clone(), m.path("log"));
        move || {
            let mut file = File::create(path).expect("a file");
            while !stop.load(Ordering::Relaxed) {
                file.write_all(&[5; 5000]).expect("a write");
                file.sync_all().expect("an fsync");
                written.fetch_add(5000, Ordering::SeqCst);
            }
        }
    });
    for to in ["44M", "100M", "700M"] {
        assert_eq!(resize(m.dir(), to), (0, String::new()), "{to}");
    }
    stop.store(true, Ordering::Relaxed);
    writer.join().expect("no panic");
    assert!(size(&m) > before + 500 * MIB, "{before}, then {}", size(&m));
    assert_eq!(fs::metadata(place.image()).expect("the image").len(), 700 * MIB);
    fs::write(m.path("large"), vec![6; 100 << 20]).expect("there is space");
    m.unmount();
    check(&place.image());
    let m = place.mount(options);
    assert_eq!(fs::metadata(m.path("log")).expect("the log").len(), written.load(Ordering::SeqCst));
    assert!(fs::read(m.path("large")).expect("it is there") == vec![6; 100 << 20]);
    m.unmount();
}

#[test]
fn a_mount_grows_beside_a_writer_with_auto() {
    grows_beside_a_writer("data=auto");
}

#[test]
fn a_mount_grows_beside_a_writer_with_ordered() {
    grows_beside_a_writer("data=ordered");
}

#[test]
fn a_full_mount_gets_space_and_the_kernel_mounts_it_afterwards() {
    needs_root();
    needs_mounts();
    let place = Place::new("40M", &[]);
    let m = place.mount("");
    let mut file = File::create(m.path("fill")).expect("a file");
    let all = (0..).take_while(|_| file.write_all(&[1; 1 << 20]).and_then(|()| file.sync_all()).is_ok()).count();
    drop(file);
    assert!(all > 10, "{all} MiB");
    assert_eq!(resize(m.dir(), "80M"), (0, String::new()));
    fs::write(m.path("more"), vec![2; 20 << 20]).expect("there is space now");
    m.unmount();
    check(&place.image());
    ok(tool("mount").args(["-o", "loop"]).arg(place.image()).arg(place.mnt()));
    let read = fs::read(place.mnt().join("more"));
    let wrote = fs::write(place.mnt().join("by the kernel"), vec![3; 10 << 20]);
    ok(tool("umount").arg(place.mnt()));
    assert!(read.expect("it is there") == vec![2; 20 << 20]);
    wrote.expect("the kernel uses the new space");
    check(&place.image());
}

#[test]
fn what_is_no_growth_is_refused() {
    needs_mounts();
    let place = Place::new("40M", &["-O", "^resize_inode"]);
    let m = place.mount("");
    let before = size(&m);
    for (size, why) in [
        ("40M", "a mounted volume can only grow"),
        ("8M", "a mounted volume can only grow"),
        ("min", "a mounted volume can only grow"),
        ("100G", "unsupported: growing to more than"),
    ] {
        let (code, words) = resize(m.dir(), size);
        assert!(code == 32 && words.contains(why), "{size}: {code} {words}");
    }
    assert_eq!(size(&m), before);
    assert_eq!(fs::metadata(place.image()).expect("the image").len(), 40 * MIB, "it was left alone");
    m.unmount();
    let (code, words) = resize(text(&place.mnt()), "80M");
    assert!(code == 32 && words.contains("not a Quire mount"), "{code} {words}");
    check(&place.image());
    let m = place.mount("ro");
    let (code, words) = resize(m.dir(), "80M");
    assert!(code == 32 && words.contains("read-only"), "{code} {words}");
    m.unmount();
}

#[test]
fn strangers_do_not_grow_a_mount() {
    needs_root();
    needs_mounts();
    needs_tools(&["perl"]);
    let place = Place::new("40M", &[]);
    let m = place.mount("allow_other");
    ok(tool("chmod").arg("a+rX").args([place.path(""), m.path("")]));
    let program = place.path("quire");
    copy_program(&program);
    ok(tool("chmod").arg("-R").arg("a+rX").arg(program.parent().expect("a directory")));
    let mut stranger = tool(text(&program));
    let (code, words) = said(stranger.args(["resize", m.dir(), "80M"]).uid(12345).gid(12345));
    assert!(code == 32 && words.to_lowercase().contains("permitted"), "{code} {words}");
    let script = "open(F, '<', $ARGV[0]) or die 'open'; $v = pack('Q', 80 << 10); ioctl(F, 0x40086610, $v) or die $!";
    let (_, words) = said(tool("perl").args(["-e", script, m.dir()]).uid(12345).gid(12345));
    assert!(words.contains("not permitted"), "{words}");
    assert_eq!(fs::metadata(place.image()).expect("the image").len(), 40 * MIB);
    m.unmount();
}

/// resize2fs asks the mount itself. It reads the image, so the log is jbd2's.
#[test]
fn resize2fs_grows_a_mount() {
    needs_root();
    needs_mounts();
    needs_tools(&["resize2fs"]);
    let place = Place::new("40M", &[]);
    let m = place.mount("data=ordered");
    let before = size(&m);
    File::options().write(true).open(place.image()).and_then(|f| f.set_len(200 * MIB)).expect("a longer image");
    let (code, words) = said(tool("resize2fs").arg(place.image()).arg("200M"));
    assert_eq!(code, 0, "{words}");
    assert!(size(&m) > before + 100 * MIB, "{words}");
    m.unmount();
    check(&place.image());
}
