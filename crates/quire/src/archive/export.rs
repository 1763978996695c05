//! Trees out of an image into a directory of the host.

use super::options::ExportOptions;
use super::progress::Done;
use crate::attrs::Links;
use crate::dir::Dir;
use crate::error::{Error, ErrorKind, Result};
use crate::fs::FileSystem;
use crate::metadata::{FileType, Metadata, Timestamp, check_owner};
use rustix::fs::{AtFlags, CWD, Mode};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const COPY_BYTES: usize = 1 << 20;
/// The bits set-user-id and set-group-id.
const SET_ID: u32 = 0o6000;

/// The first names of inodes that have several.
#[derive(Default)]
pub(super) struct Linked(HashMap<u32, PathBuf>);

impl Linked {
    /// The first name of an inode, if this is not it.
    pub(super) fn first(&mut self, m: &Metadata, path: &Path) -> Option<PathBuf> {
        if m.is_dir() || m.links < 2 {
            return None;
        }
        let known = self.0.get(&m.ino).cloned();
        if known.is_none() {
            self.0.insert(m.ino, path.to_owned());
        }
        known
    }
}

/// Writes a tree into a directory of the host, which is made, or empty. Owners and devices need root there; as another
/// user owners become the user's, and a device is an error. What gets another owner so loses set-user-id and
/// set-group-id.
///
/// # Errors
/// Exists: the directory has entries. The host refuses; not found; corrupt; I/O.
pub fn export_dir(fs: &FileSystem, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
    export_dir_with(fs, from, to, &ExportOptions::new())
}

/// As [`export_dir`], with choices.
///
/// # Errors
/// Those of [`export_dir`]. Cancelled: the caller has ended it.
pub fn export_dir_with(
    fs: &FileSystem,
    from: impl AsRef<Path>,
    to: impl AsRef<Path>,
    options: &ExportOptions,
) -> Result<()> {
    let (from, to) = (from.as_ref(), to.as_ref());
    let dir = fs.open_dir(from)?;
    match std::fs::create_dir(to) {
        Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => return Err(Error::host(to, &e)),
        _ => {}
    }
    if std::fs::read_dir(to).map_err(|e| Error::host(to, &e))?.next().is_some() {
        return Err(Error::new(ErrorKind::DirectoryNotEmpty, "directory not empty").of_host(to));
    }
    let mut linked = Linked::default();
    let mut dirs = Vec::new();
    let done = Done::new(&options.watch);
    for e in dir.walk(".")? {
        let e = e?;
        let host = host_path(to, &e.path);
        done.objects(1)?;
        put(&dir, &e.path, &e.metadata, &host, linked.first(&e.metadata, &host), &done)?;
        if e.metadata.is_dir() {
            dirs.push((e.path, e.metadata));
        }
    }
    // What is inside of a directory has changed it; and one that may not be written could not be filled. A default ACL
    // would be inherited.
    for (path, m) in dirs.iter().rev() {
        let host = host_path(to, path);
        attributes(&dir, path, &host, is_acl)?;
        finish(&host, m)?;
    }
    Ok(())
}

fn host_path(to: &Path, path: &Path) -> PathBuf {
    let name = path.strip_prefix(".").unwrap_or(path);
    if name.as_os_str().is_empty() { to.to_owned() } else { to.join(name) }
}

fn is_acl(attribute: &OsStr) -> bool {
    attribute.as_bytes().starts_with(b"system.posix_acl_")
}

fn put(dir: &Dir, path: &Path, m: &Metadata, host: &Path, first: Option<PathBuf>, done: &Done<'_>) -> Result<()> {
    let failed = |e: std::io::Error| Error::host(host, &e);
    if let Some(first) = first {
        return std::fs::hard_link(first, host).map_err(failed);
    }
    let node = |t| {
        let dev = rustix::fs::makedev(m.device.0, m.device.1);
        rustix::fs::mknodat(CWD, host, t, Mode::from_raw_mode(0o600), dev).map_err(|e| failed(e.into()))
    };
    match m.file_type() {
        FileType::Dir if path == Path::new(".") => {}
        FileType::Dir => std::fs::create_dir(host).map_err(failed)?,
        FileType::Symlink => std::os::unix::fs::symlink(dir.read_link(path)?, host).map_err(failed)?,
        FileType::CharDevice => node(rustix::fs::FileType::CharacterDevice)?,
        FileType::BlockDevice => node(rustix::fs::FileType::BlockDevice)?,
        FileType::Fifo => node(rustix::fs::FileType::Fifo)?,
        FileType::Socket => node(rustix::fs::FileType::Socket)?,
        FileType::File => copy(dir, path, m, host, done)?,
    }
    // Before the attributes: a change of owner takes capabilities away.
    own(host, m)?;
    if m.is_dir() {
        return attributes(dir, path, host, |name| !is_acl(name));
    }
    attributes(dir, path, host, |_| true)?;
    finish(host, m)
}

/// The extended attributes that `which` selects.
fn attributes(dir: &Dir, path: &Path, host: &Path, which: impl Fn(&OsStr) -> bool) -> Result<()> {
    for name in dir.xattrs(path, Links::NoFollow)?.into_iter().filter(|name| which(name)) {
        // What only root may set is root's affair.
        let trusted = !name.as_bytes().starts_with(b"user.");
        let value = dir.xattr(path, Links::NoFollow, &name)?;
        match rustix::fs::lsetxattr(host, &name, &value, rustix::fs::XattrFlags::empty()) {
            Err(e) if !trusted || rustix::process::geteuid().is_root() => return Err(Error::host(host, &e.into())),
            _ => {}
        }
    }
    Ok(())
}

fn copy(dir: &Dir, path: &Path, m: &Metadata, host: &Path, done: &Done<'_>) -> Result<()> {
    let failed = |e: std::io::Error| Error::host(host, &e);
    let from = dir.open_file(path)?;
    let out = File::options().write(true).create_new(true).mode(0o600).open(host).map_err(failed)?;
    let mut buf = vec![0; COPY_BYTES.min(usize::try_from(m.size).unwrap_or(COPY_BYTES))];
    let mut at = 0;
    while let Some((start, end)) = from.next_data(at)? {
        at = start;
        while at < end {
            let want = buf.len().min(usize::try_from(end - at).unwrap_or(usize::MAX));
            let n = from.read_at(&mut buf[..want], at)?;
            if n == 0 {
                break;
            }
            out.write_all_at(&buf[..n], at).map_err(failed)?;
            at += n as u64;
            done.bytes(n as u64)?;
        }
        at = at.max(end);
    }
    out.set_len(m.size).map_err(failed)
}

fn own(host: &Path, m: &Metadata) -> Result<()> {
    let failed = |e: rustix::io::Errno| Error::host(host, &e.into());
    if rustix::process::geteuid().is_root() {
        // Of a damaged image: the file would stay root's.
        check_owner(Some(m.uid), Some(m.gid)).map_err(|e| e.at(host))?;
        let (uid, gid) = (rustix::fs::Uid::from_raw(m.uid), rustix::fs::Gid::from_raw(m.gid));
        rustix::fs::chownat(CWD, host, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
    }
    Ok(())
}

/// Permissions and times.
fn finish(host: &Path, m: &Metadata) -> Result<()> {
    let failed = |e: rustix::io::Errno| Error::host(host, &e.into());
    if !m.is_symlink() {
        let mut permissions = m.permissions();
        if permissions & SET_ID != 0 {
            // The programs of one user must not run as another one.
            let now = std::fs::symlink_metadata(host).map_err(|e| Error::host(host, &e))?;
            if (now.uid(), now.gid()) != (m.uid, m.gid) {
                permissions &= !SET_ID;
            }
        }
        rustix::fs::chmodat(CWD, host, Mode::from_raw_mode(permissions), AtFlags::empty()).map_err(failed)?;
    }
    let time = |t: Timestamp| rustix::fs::Timespec { tv_sec: t.secs, tv_nsec: t.nanos.into() };
    let times = rustix::fs::Timestamps { last_access: time(m.accessed), last_modification: time(m.modified) };
    rustix::fs::utimensat(CWD, host, &times, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)
}
