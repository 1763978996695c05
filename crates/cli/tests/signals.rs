//! Signals at bad moments: whatever ends the daemon, nobody hangs.

mod common;

use common::{Place, cannot_mount, check, has, is_root, ok, quire, said, skip, text, tool, wait_until};
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
    if cannot_mount("a_kill_during_the_unmount_hangs_nobody") {
        return;
    }
    let place = Place::new("64M", &[]);
    killed_while_it_unmounts(&place, &place.image());
}

/// There, umount(2) waits for the daemon's last answer.
#[test]
fn a_kill_during_the_unmount_of_a_block_device_hangs_nobody() {
    let name = "a_kill_during_the_unmount_of_a_block_device_hangs_nobody";
    if cannot_mount(name) || (!is_root() && skip(name, "needs root")) || (!has("losetup") && skip(name, "no losetup")) {
        return;
    }
    let place = Place::new("64M", &[]);
    let (code, device) = said(tool("losetup").args(["-f", "--show", text(&place.image())]));
    if code != 0 && skip(name, "no loop device") {
        return;
    }
    killed_while_it_unmounts(&place, Path::new(device.trim()));
    ok(tool("losetup").args(["-d", device.trim()]));
}

/// A second signal is no error: the first has unmounted.
#[test]
fn two_signals_are_one_clean_unmount() {
    if cannot_mount("two_signals_are_one_clean_unmount") {
        return;
    }
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
