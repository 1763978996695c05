//! A bind mount with an owner mapping of its own (`mount_setattr`, as `mount -o X-mount.idmap` does it).

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Stdio};

use anyhow::{Context as _, Result, ensure};
use rustix::fd::{AsFd, AsRawFd};
use rustix::fs::{AtFlags, CWD, Gid, StatxFlags, Uid};
use rustix::mount::OpenTreeFlags;

use crate::cmd::command;

/// `MOUNT_ATTR_IDMAP`.
const IDMAP: u64 = 0x0010_0000;
/// The owner on disk, and what the mapping shows it as.
const ON_DISK: u32 = 1000;
const SHOWN: u32 = 2000;

/// `struct mount_attr`.
#[repr(C)]
struct MountAttr {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

/// A process in a user namespace of its own, until it is dropped.
struct Namespace(Child);

impl Namespace {
    /// With one user and one group: [`ON_DISK`] is [`SHOWN`].
    fn new() -> Result<Self> {
        let child = command("unshare").args(["-U", "cat"]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
        let of = |name: &str| format!("/proc/{}/ns/{name}", child.id());
        let ours = fs::read_link("/proc/self/ns/user")?;
        while fs::read_link(of("user"))? == ours {
            std::thread::yield_now();
        }
        for map in ["uid_map", "gid_map"] {
            fs::write(format!("/proc/{}/{map}", child.id()), format!("{ON_DISK} {SHOWN} 1"))?;
        }
        Ok(Namespace(child))
    }

    fn file(&self) -> Result<File> {
        Ok(File::open(format!("/proc/{}/ns/user", self.0.id()))?)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        self.0.wait().ok();
    }
}

/// The owner that a file of [`ON_DISK`] has through a mapped mount of its directory, or the error of mapping it.
pub(super) fn shown_owner(dir: &Path) -> Result<String> {
    let file = dir.join("file");
    fs::write(&file, "x")?;
    rustix::fs::chown(&file, Some(Uid::from_raw(ON_DISK)), Some(Gid::from_raw(ON_DISK)))?;
    let namespace = Namespace::new()?;
    let user_namespace = namespace.file()?;
    let tree = rustix::mount::open_tree(CWD, dir, OpenTreeFlags::OPEN_TREE_CLONE).context("open_tree")?;
    let attr = MountAttr {
        set: IDMAP,
        clear: 0,
        propagation: 0,
        user_namespace: user_namespace.as_raw_fd().try_into().context("a descriptor")?,
    };
    // SAFETY: the kernel reads an empty path and a `mount_attr` of the size that it is told; both live.
    let r = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const attr,
            size_of::<MountAttr>(),
        )
    };
    if r != 0 {
        let error = std::io::Error::last_os_error();
        return Ok(format!("error {}", error.raw_os_error().unwrap_or_default()));
    }
    ensure!(file.metadata()?.uid() == ON_DISK, "the mapping is of the other mount alone");
    let seen = rustix::fs::statx(tree.as_fd(), "file", AtFlags::empty(), StatxFlags::BASIC_STATS)?;
    Ok(format!("{} {}", seen.stx_uid, seen.stx_gid))
}
