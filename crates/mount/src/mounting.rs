//! Attaching a session to a directory, and detaching it.
//!
//! As root by mount(2): type `fuse.quire.PROFILE`, or `fuseblk.quire.PROFILE` for a block device, which gives us
//! sync(2) and an umount(2) that waits for the clean image. Everybody else through the set-user-id helper
//! `fusermount3`.

use crate::daemon;
use crate::options::MountOptions;
use crate::sandbox::broker::{self, BrokerError};
use crate::transport::Channel;
use quire_fs::Atime;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::{Errno, FdFlags};
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use std::ffi::CString;
use std::io::IoSliceMut;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};

const HELPER: &str = "fusermount3";
/// Tells the helper which descriptor to send the mount through.
const HELPER_SOCKET: &str = "_FUSE_COMMFD";

/// Why an attachment failed.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    #[error("/dev/fuse: {} (is the fuse module loaded? modprobe fuse)", crate::fail::words(*.0))]
    NoFuse(Errno),
    #[error("{HELPER} cannot be run: {0} (install the package fuse3, or mount as root)")]
    NoHelper(std::io::Error),
    #[error("{0}")]
    Helper(String),
    #[error("mount: {}", crate::fail::words(*.0))]
    Mount(Errno),
}

/// Whether an error of a call on a mount says that its daemon is dead. Over rings, the kernel breaks the connection a
/// moment after the process has ended: until then it fails to copy a request into memory that is gone (`EFAULT`).
#[must_use]
pub fn is_dead(error: Errno) -> bool {
    matches!(error, Errno::NOTCONN | Errno::CONNABORTED | Errno::FAULT)
}

/// What to attach where.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attach<'a> {
    /// The image, as `/proc/mounts` shows it.
    pub source: &'a Path,
    pub dir: &'a Path,
    pub options: &'a MountOptions,
    /// Tells the profile in `/proc/mounts`, as the end of the type: FUSE shows no options of ours.
    pub label: &'a str,
    pub read_only: bool,
    /// The block size for a block device that is mounted as such.
    pub fuseblk: Option<usize>,
}

/// Linux 5.10. `MS_NOSYMFOLLOW` of mount(2).
const NOSYMFOLLOW: MountFlags = MountFlags::from_bits_retain(256);

impl Attach<'_> {
    /// Others may use it: when asked for, and by default when root mounts.
    fn allow_other(&self) -> bool {
        self.options.allow_other.unwrap_or_else(|| rustix::process::geteuid().is_root())
    }

    /// Mounts; the descriptor is the kernel's end of the session.
    pub(crate) fn attach(&self) -> Result<Channel, AttachError> {
        let fd = Channel::open_device().map_err(AttachError::NoFuse)?;
        if !rustix::process::geteuid().is_root() {
            return self.by_helper();
        }
        match self.by_kernel(&fd) {
            Ok(()) => Ok(Channel::new(fd)),
            // Root of a container that may not mount.
            Err(Errno::PERM) if self.fuseblk.is_none() => self.by_helper(),
            Err(e) => Err(AttachError::Mount(e)),
        }
    }

    fn by_kernel(&self, fd: &OwnedFd) -> Result<(), Errno> {
        let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        let mut data = format!("fd={},rootmode=40000,user_id={uid},group_id={gid}", fd.as_raw_fd());
        if !self.options.fake_root {
            data.push_str(",default_permissions");
        }
        if self.allow_other() {
            data.push_str(",allow_other");
        }
        let mut kind = format!("fuse.quire.{}", self.label);
        if let Some(block_size) = self.fuseblk {
            kind = format!("fuseblk.quire.{}", self.label);
            // The kernel takes no block size beyond its page's here. That of a file comes with its attributes.
            let block_size = block_size.min(rustix::param::page_size());
            data.push_str(&format!(",blksize={block_size}"));
        }
        let data = CString::new(data).map_err(|_| Errno::INVAL)?;
        let flags = kernel_flags(self.options, self.read_only);
        rustix::mount::mount(self.source, self.dir, kind.as_str(), flags, data.as_c_str())
    }

    /// The list of options for the helper.
    fn helper_options(&self) -> String {
        let o = self.options;
        let source = self.source.to_string_lossy().replace('\\', "\\\\").replace(',', "\\,");
        let mut list = vec![format!("fsname={source}"), format!("subtype=quire.{}", self.label)];
        let flags = [
            (!o.fake_root, "default_permissions"),
            (self.read_only, "ro"),
            (self.allow_other(), "allow_other"),
            (o.no_dev, "nodev"),
            (o.no_suid, "nosuid"),
            (o.no_exec, "noexec"),
            (o.sync, "sync"),
            (o.atime == Some(Atime::No), "noatime"),
            (o.no_dir_atime, "nodiratime"),
            // fusermount3 refuses what it does not know, and the mount fails rather than leave it out.
            (o.no_symfollow, "nosymfollow"),
        ];
        list.extend(flags.iter().filter(|(wanted, _)| *wanted).map(|(_, name)| (*name).to_owned()));
        list.join(",")
    }

    fn by_helper(&self) -> Result<Channel, AttachError> {
        let (ours, theirs) = rustix::net::socketpair(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::STREAM,
            rustix::net::SocketFlags::CLOEXEC,
            None,
        )
        .map_err(AttachError::Mount)?;
        // The helper inherits its end.
        rustix::io::fcntl_setfd(&theirs, FdFlags::empty()).map_err(AttachError::Mount)?;
        let child = Command::new(HELPER)
            .arg("-o")
            .arg(self.helper_options())
            .arg("--")
            .arg(self.dir)
            .env(HELPER_SOCKET, theirs.as_raw_fd().to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(AttachError::NoHelper)?;
        drop(theirs);
        let received = receive_fd(&ours);
        let said = child.wait_with_output().map_err(AttachError::NoHelper)?;
        match received {
            Ok(Some(fd)) => Ok(Channel::new(fd)),
            Ok(None) => {
                let text = String::from_utf8_lossy(&said.stderr);
                let text = text.trim();
                Err(AttachError::Helper(if text.is_empty() { format!("{HELPER} failed") } else { text.to_owned() }))
            }
            Err(e) => Err(AttachError::Mount(e)),
        }
    }
}

/// The flags that the kernel keeps for a mount with these options.
pub(crate) fn kernel_flags(o: &MountOptions, read_only: bool) -> MountFlags {
    let atime = o.atime.unwrap_or(Atime::Relative);
    [
        (read_only, MountFlags::RDONLY),
        (o.no_dev, MountFlags::NODEV),
        (o.no_suid, MountFlags::NOSUID),
        (o.no_exec, MountFlags::NOEXEC),
        (o.no_symfollow, NOSYMFOLLOW),
        (o.sync, MountFlags::SYNCHRONOUS),
        (o.dir_sync, MountFlags::DIRSYNC),
        (o.no_dir_atime, MountFlags::NODIRATIME),
        (atime == Atime::No, MountFlags::NOATIME),
        (atime == Atime::Relative, MountFlags::RELATIME),
        (atime == Atime::Strict, MountFlags::STRICTATIME),
    ]
    .into_iter()
    .filter(|(wanted, _)| *wanted)
    .fold(MountFlags::empty(), |all, (_, flag)| all | flag)
}

/// Changes the flags that the kernel keeps for a mount.
///
/// # Errors
/// Not permitted, not mounted, or in use for writing (`ro`).
pub(crate) fn set_kernel_flags(dir: &Path, flags: u32) -> Result<(), Errno> {
    rustix::mount::mount_remount(dir, MountFlags::from_bits_retain(flags), c"")
}

/// The descriptor that comes through a socket; `None` if it closes without.
fn receive_fd(socket: &OwnedFd) -> Result<Option<OwnedFd>, Errno> {
    let mut byte = [0u8];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut iov = [IoSliceMut::new(&mut byte)];
    loop {
        match rustix::net::recvmsg(socket, &mut iov, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Ok(_) => break,
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(control.drain().find_map(|m| match m {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    }))
}

/// Detaches what is mounted on `dir`. Lazily: it disappears at once, and ends when nobody uses it any more.
///
/// # Errors
/// Busy, not permitted, not mounted; with the helper's words where it has any.
pub fn detach(dir: &Path, lazy: bool) -> Result<(), DetachError> {
    let flags = if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    by_kernel_or_helper(rustix::mount::unmount(dir, flags | UnmountFlags::NOFOLLOW), dir, lazy)
}

/// Detaches lazily what the daemon itself has mounted: only if it is the mount `id`, where that is known. A process of
/// its own waits for what the daemon has to answer meanwhile, so that the daemon can always be killed.
///
/// # Errors
/// As [`detach`].
pub(crate) fn detach_own(dir: &Path, id: Option<u64>) -> Result<(), DetachError> {
    broker::detach().map_or_else(|| detach_here(dir, id), |done| Ok(done?))
}

/// The same without the broker.
pub(crate) fn detach_here(dir: &Path, id: Option<u64>) -> Result<(), DetachError> {
    by_kernel_or_helper(daemon::detach_in_child(dir, id), dir, true)
}

/// Makes the kernel hand over what it holds of the daemon's own mount.
///
/// # Errors
/// What open(2) and syncfs(2) say; no process can be had, or the broker has ended.
pub(crate) fn sync_own(dir: &Path) -> Result<(), DetachError> {
    match broker::sync() {
        Some(done) => Ok(done?),
        None => daemon::sync_in_child(dir).map_err(DetachError::Kernel),
    }
}

/// Where the kernel does not permit it, the helper does it for the user who mounted.
fn by_kernel_or_helper(outcome: Result<(), Errno>, dir: &Path, lazy: bool) -> Result<(), DetachError> {
    match outcome {
        Ok(()) => return Ok(()),
        Err(Errno::INVAL) => return Err(DetachError::NotMounted),
        Err(Errno::PERM) if !rustix::process::geteuid().is_root() => {}
        Err(e) => return Err(DetachError::Kernel(e)),
    }
    let mut helper = Command::new(HELPER);
    helper.arg("-u");
    if lazy {
        helper.arg("-z");
    }
    let said = helper.arg("--").arg(dir).stdin(Stdio::null()).output().map_err(DetachError::NoHelper)?;
    if said.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&said.stderr).trim().to_owned();
    Err(match () {
        () if text.contains("busy") => DetachError::Kernel(Errno::BUSY),
        () if text.contains("not found in") => DetachError::NotMounted,
        () => DetachError::Helper(text),
    })
}

/// Why a mount could not be detached.
#[derive(Debug, thiserror::Error)]
pub enum DetachError {
    #[error("{}", crate::fail::words(*.0))]
    Kernel(Errno),
    #[error("not a mount point")]
    NotMounted,
    #[error("{HELPER} cannot be run: {0}")]
    NoHelper(std::io::Error),
    #[error("{0}")]
    Helper(String),
    #[error("the broker of the sandbox has ended, and a confined daemon may not unmount")]
    NoBroker,
}

impl From<BrokerError> for DetachError {
    fn from(e: BrokerError) -> Self {
        match e {
            BrokerError::Gone => DetachError::NoBroker,
            BrokerError::NotMounted => DetachError::NotMounted,
            BrokerError::Kernel(e) => DetachError::Kernel(e),
            BrokerError::Helper(said) => DetachError::Helper(said),
        }
    }
}

impl DetachError {
    /// Somebody still uses it.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        matches!(self, DetachError::Kernel(Errno::BUSY))
    }
}

/// The path in a form that `/proc/mounts` and messages can have.
pub(crate) fn printable(path: &Path) -> String {
    String::from_utf8_lossy(path.as_os_str().as_bytes()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_helper_gets_what_it_understands() {
        let options = MountOptions::parse("noexec,nosuid,relatime,data=journal,allow_other").unwrap();
        let a = Attach {
            source: Path::new("/tmp/a,b.img"),
            dir: Path::new("/mnt"),
            options: &options,
            label: "ext4-journal",
            read_only: true,
            fuseblk: None,
        };
        assert_eq!(
            a.helper_options(),
            r"fsname=/tmp/a\,b.img,subtype=quire.ext4-journal,default_permissions,ro,allow_other,nosuid,noexec"
        );
        assert_eq!(
            kernel_flags(&options, true),
            MountFlags::RDONLY | MountFlags::NOEXEC | MountFlags::NOSUID | MountFlags::RELATIME
        );
    }

    #[test]
    fn a_descriptor_comes_through_a_socket_or_not() {
        let (a, b) = rustix::net::socketpair(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::STREAM,
            rustix::net::SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        drop(b);
        assert!(receive_fd(&a).unwrap().is_none());
    }
}
