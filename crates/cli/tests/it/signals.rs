//! Signals at bad moments: whatever ends the daemon, nobody hangs.

use crate::common::{
    Place, check, needs_mounts, needs_root, needs_tools, ok, quire, said, skip, text, tool, wait_until,
};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Ends the daemon with SIGTERM and, while it unmounts, with SIGKILL.
fn killed_while_it_unmounts(place: &Place, image: &Path) {
    for pause in [0, 1, 3, 10, 30] {
        let mut m = Some(place.mount_image(image, ""));
        let mounted = m.as_ref().unwrap();
        fs::write(mounted.path("f"), vec![1; 20 << 20]).unwrap();
        let pid = Pid::from_raw(mounted.pid).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        std::thread::sleep(Duration::from_millis(pause));
        kill_process(pid, Signal::KILL).ok();
        wait_until("the daemon's end", || !mounted.is_alive());
        // Answers at once, one way or the other.
        let (code, words) = said(tool("timeout").args(["20", "ls"]).arg(place.mnt()));
        assert_ne!(code, 124, "ls hangs: {words}");
        drop(m.take());
        wait_until("the image to be free", || said(&mut quire(&["recover", text(image)])).0 <= 1);
    }
    check(image);
}

#[test]
fn a_kill_during_the_unmount_hangs_nobody() {
    needs_mounts();
    let place = Place::new("64M", &[]);
    killed_while_it_unmounts(&place, &place.image());
}

/// There, umount(2) waits for the daemon's last answer.
#[test]
fn a_kill_during_the_unmount_of_a_block_device_hangs_nobody() {
    needs_mounts();
    needs_root();
    needs_tools(&["losetup"]);
    let place = Place::new("64M", &[]);
    let (code, device) = said(tool("losetup").args(["-f", "--show", text(&place.image())]));
    if code != 0 {
        skip("no loop device");
    }
    killed_while_it_unmounts(&place, Path::new(device.trim()));
    ok(tool("losetup").args(["-d", device.trim()]));
}

/// What others have mounted over the mount point stays, with its data; the image is clean all the same.
#[test]
fn sigterm_leaves_what_is_mounted_over_the_mount() {
    needs_mounts();
    needs_root();
    let place = Place::new("32M", &[]);
    let m = place.mount("");
    let mut hidden = fs::File::create(m.path("hidden")).unwrap();
    std::io::Write::write_all(&mut hidden, &[4; 300_000]).unwrap();
    if said(tool("mount").args(["-t", "tmpfs", "tmpfs"]).arg(m.dir())).0 != 0 {
        skip("no tmpfs");
    }
    fs::write(m.path("theirs"), "stays").unwrap();
    // It can still be asked.
    ok(&mut quire(&["stats", m.dir()]));
    ok(&mut quire(&["freeze", m.dir()]));
    ok(&mut quire(&["thaw", m.dir()]));
    let (code, words) = said(&mut quire(&["umount", m.dir()]));
    assert!(code == 32 && words.contains("hidden under another mount (tmpfs)"), "{code}: {words}");
    let at = place.mnt();
    m.end_by(Signal::TERM);
    drop(hidden);
    assert_eq!(fs::read(at.join("theirs")).unwrap(), b"stays");
    ok(tool("umount").arg(&at));
    // The dead mount point under it.
    said(&mut quire(&["umount", text(&at)]));
    place.check();
    let m = place.mount("");
    assert_eq!(fs::read(m.path("hidden")).unwrap(), [4; 300_000]);
    m.unmount();
}

/// The daemon unmounts its mount where it is now, not what has come to its old place.
#[test]
fn sigterm_unmounts_a_mount_that_was_moved() {
    needs_mounts();
    needs_root();
    let place = Place::new("16M", &[]);
    let m = place.mount("");
    fs::write(m.path("f"), "x").unwrap();
    // A mount can be moved out of a private one only.
    let (around, new) = (place.path("around"), place.path("around/new"));
    fs::create_dir(&around).unwrap();
    let private = ["--bind", text(&around), text(&around)];
    if said(tool("mount").args(private)).0 != 0 {
        skip("no bind mounts");
    }
    ok(tool("mount").args(["--make-private", text(&around)]));
    fs::create_dir(&new).unwrap();
    if said(tool("mount").args(["--move", m.dir(), text(&new)])).0 != 0 {
        ok(tool("umount").arg(&around));
        m.unmount();
        skip("the mount cannot be moved here");
    }
    ok(tool("mount").args(["-t", "tmpfs", "tmpfs"]).arg(m.dir()));
    let at = place.mnt();
    m.end_by(Signal::TERM);
    assert_eq!(fs::read_dir(&new).unwrap().count(), 0, "the mount is gone from its new place");
    ok(tool("umount").arg(&at));
    ok(tool("umount").arg(&around));
    place.check();
}

/// A signal is heard while a long log is replayed: the daemon ends, and the next recovery begins again.
#[test]
fn a_signal_during_recovery_ends_the_mount() {
    needs_mounts();
    let place = Place::new("1G", &["-J", "size=200"]);
    let m = place.mount("data=journal,record=block,commit_mode=barrier");
    for n in 0..16 {
        let mut f = fs::File::create(m.path(&format!("f{n}"))).unwrap();
        std::io::Write::write_all(&mut f, &vec![n; 8 << 20]).unwrap();
        f.sync_all().unwrap();
    }
    m.end_by(Signal::KILL);
    said(&mut quire(&["umount", "-l", text(&place.mnt())]));
    // A recovery that was over before the signal came has emptied the log: each try begins with the crashed image.
    let crashed = place.path("crashed");
    ok(tool("cp").args(["--sparse=always", text(&place.image()), text(&crashed)]));
    let interrupted = (0..5).any(|_| {
        ok(tool("cp").args(["--sparse=always", text(&crashed), text(&place.image())]));
        let mut c = quire(&["mount", "-f", text(&place.image()), text(&place.mnt())]);
        let mut daemon = c.stderr(std::process::Stdio::null()).spawn().unwrap();
        let pid = Pid::from_raw(i32::try_from(daemon.id()).unwrap()).unwrap();
        // Replay has begun when the image is written to.
        let before = fs::metadata(place.image()).unwrap().modified().unwrap();
        let untouched = || fs::metadata(place.image()).unwrap().modified().unwrap() == before;
        while untouched() && daemon.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_micros(200));
        }
        kill_process(pid, Signal::TERM).ok();
        daemon.wait().unwrap().code() == Some(8)
    });
    assert!(interrupted, "no recovery was interrupted");
    let m = place.mount("");
    for n in 0..16 {
        assert!(fs::read(m.path(&format!("f{n}"))).unwrap() == vec![n; 8 << 20]);
    }
    m.unmount();
    place.check();
}

/// A second signal is no error: the first has unmounted.
#[test]
fn two_signals_are_one_clean_unmount() {
    needs_mounts();
    let place = Place::new("32M", &[]);
    let errors = fs::File::create(place.path("errors")).unwrap();
    let mut c = quire(&["mount", "-f", text(&place.image()), text(&place.mnt())]);
    let mut daemon = c.stderr(errors).spawn().unwrap();
    let said = || fs::read_to_string(place.path("errors")).unwrap();
    wait_until("the mount", || said().contains("mounted on"));
    fs::write(place.mnt().join("f"), vec![1; 1 << 20]).unwrap();
    let pid = Pid::from_raw(i32::try_from(daemon.id()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    kill_process(pid, Signal::INT).ok();
    assert_eq!(daemon.wait().unwrap().code(), Some(0), "{}", said());
    assert!(!said().contains("ERROR") && !said().contains('\u{1b}'), "{}", said());
    place.check();
}

crate::common::over_uring! {
    a_kill_during_the_unmount_hangs_nobody,
    a_kill_during_the_unmount_of_a_block_device_hangs_nobody,
    sigterm_leaves_what_is_mounted_over_the_mount,
    sigterm_unmounts_a_mount_that_was_moved,
    two_signals_are_one_clean_unmount,
}
