//! Where the sockets lie.

use crate::mountinfo::MountEntry;
use rustix::fs::{FileType, Mode};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

const FOR_ROOT: &str = "/run/quire";

fn runtime_directory() -> Option<PathBuf> {
    let dir = PathBuf::from(std::env::var_os("XDG_RUNTIME_DIR")?);
    dir.is_absolute().then(|| dir.join("quire"))
}

fn private_directory(user: u32) -> PathBuf {
    PathBuf::from(format!("/tmp/quire-{user}"))
}

fn socket_in(dir: &Path, device: &str) -> PathBuf {
    dir.join(format!("{device}.sock"))
}

/// Where the socket of a mount may be.
pub(super) fn candidates(mount: &MountEntry) -> Vec<PathBuf> {
    let of_user = PathBuf::from(format!("/run/user/{}/quire", mount.user));
    let dirs = [Some(FOR_ROOT.into()), runtime_directory(), Some(of_user), Some(private_directory(mount.user))];
    dirs.into_iter().flatten().map(|dir: PathBuf| socket_in(&dir, &mount.device)).collect()
}

/// Makes the directory for the socket of this process's mount; the socket's path in it.
///
/// # Errors
/// No directory could be had that belongs to us alone.
pub(super) fn make(device: &str) -> Result<PathBuf, Errno> {
    let user = rustix::process::geteuid();
    let dirs = if user.is_root() {
        [Some(PathBuf::from(FOR_ROOT)), None, Some(private_directory(0))]
    } else {
        [None, runtime_directory(), Some(private_directory(user.as_raw()))]
    };
    let mut failed = Errno::NOENT;
    for dir in dirs.into_iter().flatten() {
        // Others may pass through root's directory: the socket asks who they are.
        let mode = if dir.as_os_str() == OsStr::new(FOR_ROOT) { 0o755 } else { 0o700 };
        match own(&dir, mode) {
            Ok(()) => return Ok(socket_in(&dir, device)),
            Err(e) => failed = e,
        }
    }
    Err(failed)
}

/// The file of a socket that this process has bound; gone when dropped.
///
/// The kernel gives the device number of a mount that has ended to the next one, whose socket then has the same name:
/// only our own file is removed.
pub(super) struct SocketFile {
    path: PathBuf,
    ino: u64,
}

impl SocketFile {
    /// # Errors
    /// The file cannot be looked at.
    pub(super) fn bound(path: PathBuf) -> Result<Self, Errno> {
        let ino = rustix::fs::lstat(&path)?.st_ino;
        Ok(SocketFile { path, ino })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if rustix::fs::lstat(&self.path).is_ok_and(|stat| stat.st_ino == self.ino) {
            std::fs::remove_file(&self.path).ok();
        }
    }
}

/// Makes a directory, or sees that it is ours and that nobody else can change it.
fn own(dir: &Path, mode: u32) -> Result<(), Errno> {
    let mode = Mode::from_raw_mode(mode);
    match rustix::fs::mkdir(dir, mode) {
        // Whatever the caller's umask.
        Ok(()) => rustix::fs::chmod(dir, mode)?,
        Err(Errno::EXIST) => {}
        Err(e) => return Err(e),
    }
    let stat = rustix::fs::lstat(dir)?;
    let is_directory = FileType::from_raw_mode(stat.st_mode).is_dir();
    let ours = stat.st_uid == rustix::process::geteuid().as_raw() && stat.st_mode & 0o022 == 0;
    if is_directory && ours { Ok(()) } else { Err(Errno::PERM) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_removes_its_own_file_and_no_later_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0:40.sock");
        let bind = || {
            std::fs::remove_file(&path).ok();
            let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
            (listener, SocketFile::bound(path.clone()).unwrap())
        };
        let first = bind();
        let second = bind();
        drop(first);
        assert!(path.exists(), "that of the second mount");
        drop(second);
        assert!(!path.exists());
    }

    #[test]
    fn a_directory_that_others_can_change_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("quire");
        assert_eq!(own(&at, 0o700), Ok(()));
        assert_eq!(own(&at, 0o700), Ok(()), "again");
        rustix::fs::chmod(&at, Mode::from_raw_mode(0o777)).unwrap();
        assert_eq!(own(&at, 0o700), Err(Errno::PERM));
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(dir.path(), &link).unwrap();
        assert_eq!(own(&link, 0o700), Err(Errno::PERM));
    }
}
