//! Automounts (`x-systemd.automount`, autofs): while one is pending, only the process group that mounts may look at the
//! directory, and everybody else waits for the mount.

use crate::common::{Place, is_within, needs_mounts, needs_root, ok, quire, skip, text, tool};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::ioctl::{IntegerSetter, NoArg, ioctl, opcode};
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::pipe::PipeFlags;
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

/// `linux/auto_fs.h`.
const READY: u32 = opcode::none(0x93, 0x60);
const CATATONIC: u32 = opcode::none(0x93, 0x62);

const LIMIT: Duration = Duration::from_secs(20);

/// A direct mount of autofs, as systemd makes it. The process group that mounts is that of the test.
struct Automount {
    dir: PathBuf,
    root: Option<OwnedFd>,
    requests: OwnedFd,
}

impl Automount {
    fn on(dir: &Path) -> Self {
        if !fs::read_to_string("/proc/filesystems").unwrap_or_default().contains("\tautofs\n") {
            skip("no autofs");
        }
        let (requests, writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).unwrap();
        let group = rustix::process::getpgrp().as_raw_nonzero();
        let options = format!("fd={},pgrp={group},minproto=5,maxproto=5,direct", writer.as_raw_fd());
        let options = std::ffi::CString::new(options).unwrap();
        if let Err(e) = rustix::mount::mount("test", dir, "autofs", MountFlags::empty(), options.as_c_str()) {
            skip(format_args!("autofs cannot be mounted: {e}"));
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(dir, flags, Mode::empty()).unwrap();
        Automount { dir: dir.to_owned(), root: Some(root), requests }
    }

    /// The token of a request, if one comes within this time.
    fn request(&self, limit: Duration) -> Option<u32> {
        let limit = Timespec::try_from(limit).unwrap();
        let n = poll(&mut [PollFd::new(&self.requests, PollFlags::IN)], Some(&limit)).unwrap();
        let mut packet = [0; 512];
        (n > 0).then(|| {
            let n = rustix::io::read(&self.requests, &mut packet).unwrap();
            // Behind the version of the protocol and the kind of the packet.
            u32::from_ne_bytes(packet[8..12].try_into().unwrap_or_else(|_| panic!("a packet of {n} bytes")))
        })
    }

    /// The mount that was asked for is there.
    fn ready(&self, token: u32) {
        let root = self.root.as_ref().expect("open");
        // SAFETY: the argument of this command is a number.
        unsafe { ioctl(root, IntegerSetter::<READY>::new_usize(token as usize)) }.unwrap();
    }
}

impl Drop for Automount {
    fn drop(&mut self) {
        // Everybody who still waits is told that there is no mount.
        if let Some(root) = self.root.take() {
            // SAFETY: the command has no argument.
            unsafe { ioctl(&root, NoArg::<CATATONIC>::new()) }.ok();
        }
        while rustix::mount::unmount(&self.dir, UnmountFlags::DETACH).is_ok() {}
    }
}

/// What `quire mount` ends with, if it does.
fn ends(mut mount: Child) -> Option<i32> {
    let mut code = None;
    is_within(LIMIT, || {
        code = mount.try_wait().unwrap().and_then(|status| status.code());
        code.is_some()
    });
    if code.is_none() {
        // The daemon ends with it, once it gets on.
        mount.kill().ok();
        mount.wait().ok();
    }
    code
}

#[test]
fn an_automount_that_others_wait_for_is_made() {
    needs_mounts();
    needs_root();
    let place = Place::new("16M", &[]);
    let automount = Automount::on(&place.mnt());
    let mut list = tool("ls");
    let waiting = list.arg(place.mnt()).process_group(0).stdout(Stdio::piped()).spawn().unwrap();
    let token = automount.request(LIMIT).expect("the lookup asks for the mount");
    let mount = quire(&["mount", text(&place.image()), text(&place.mnt())]).spawn().unwrap();
    assert_eq!(ends(mount), Some(0), "quire mount, while others wait for it");
    automount.ready(token);
    let listed = waiting.wait_with_output().unwrap();
    ok(&mut quire(&["umount", text(&place.mnt())]));
    assert_eq!(String::from_utf8_lossy(&listed.stdout), "lost+found\n", "what waited for the mount");
    drop(automount);
    place.check();
}

/// As `mount DIR` does where a unit of systemd has an automount that nobody has used yet.
#[test]
fn a_mount_by_hand_on_an_idle_automount_does_not_wait_for_it() {
    needs_mounts();
    needs_root();
    let place = Place::new("16M", &[]);
    let automount = Automount::on(&place.mnt());
    let mut mount = quire(&["mount", text(&place.image()), text(&place.mnt())]);
    let code = ends(mount.process_group(0).spawn().unwrap());
    let asked = automount.request(Duration::ZERO).is_some();
    assert_eq!((code, asked), (Some(0), false), "quire mount's exit code, and whether it began the automount");
    ok(&mut quire(&["umount", text(&place.mnt())]));
    drop(automount);
    place.check();
}
