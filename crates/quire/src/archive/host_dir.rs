//! A directory of the host as a stream of entries: names in the order of their bytes, so that the result does not
//! depend on the host's file system.
//!
//! *Relies on*: nobody changes the directory meanwhile. Symbolic links in it are entries, and never followed.

use super::entry::{Data, Entry, Kind, Names, NoData, Sink};
use super::image_xattrs;
use crate::error::{Error, Result};
use crate::metadata::{FileType, Timestamp};
use crate::shared::HostFile;
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Reads a directory and all below it, but for some files.
///
/// # Errors
/// The host refuses; those of the sink.
pub(super) fn read(root: &Path, left_out: &[HostFile], sink: &mut dyn Sink) -> Result<()> {
    let mut walk = Walk { root, left_out, links: HashMap::new(), sink };
    walk.object(&Vec::new(), root)?;
    let mut left = vec![(Names::new(), root.to_owned())];
    while let Some((names, path)) = left.pop() {
        let mut below = Vec::new();
        for name in sorted(&path)? {
            let (names, path) =
                ([names.as_slice(), std::slice::from_ref(&name)].concat(), path.join(OsStr::from_bytes(&name)));
            if walk.object(&names, &path)? {
                below.push((names, path));
            }
        }
        left.extend(below.into_iter().rev());
    }
    Ok(())
}

fn sorted(path: &Path) -> Result<Vec<Vec<u8>>> {
    let names = std::fs::read_dir(path).and_then(|dir| dir.map(|e| Ok(e?.file_name().into_vec())).collect());
    let mut names: Vec<Vec<u8>> = names.map_err(|e| Error::host(path, &e))?;
    names.sort();
    Ok(names)
}

struct Walk<'w> {
    root: &'w Path,
    left_out: &'w [HostFile],
    /// The first name of each inode that has several.
    links: HashMap<(u64, u64), Names>,
    sink: &'w mut dyn Sink,
}

impl Walk<'_> {
    /// Hands over one object; true: it is a directory.
    fn object(&mut self, names: &Names, path: &Path) -> Result<bool> {
        let host = |e: std::io::Error| Error::host(path, &e);
        let m = if path == self.root { std::fs::metadata(path) } else { std::fs::symlink_metadata(path) };
        let m = m.map_err(host)?;
        if m.is_file() && self.left_out.contains(&HostFile::of(&m)) {
            tracing::warn!("{}: the image itself is left out", path.display());
            return Ok(false);
        }
        if !m.is_dir() && m.nlink() > 1 {
            if let Some(first) = self.links.get(&(m.dev(), m.ino())) {
                let entry = entry(names, Kind::HardLink(first.clone()), &m, Vec::new());
                return self.sink.entry(&entry, &mut NoData).map(|()| false);
            }
            self.links.insert((m.dev(), m.ino()), names.clone());
        }
        let kind = kind(path, &m)?;
        let entry = entry(names, kind, &m, xattrs(path)?);
        match entry.kind {
            Kind::File(size) if size > 0 => {
                let file = File::open(path).map_err(host)?;
                self.sink.entry(&entry, &mut FileData { file, path: path.to_owned(), at: 0, end: 0, size })?;
            }
            _ => self.sink.entry(&entry, &mut NoData)?,
        }
        Ok(m.is_dir())
    }
}

fn entry(names: &Names, kind: Kind, m: &Metadata, xattrs: Vec<(Vec<u8>, Vec<u8>)>) -> Entry {
    let time = |secs, nanos| Timestamp::new(secs, u32::try_from(nanos).unwrap_or(0));
    Entry {
        path: names.clone(),
        kind,
        permissions: m.mode() & 0o7777,
        uid: m.uid(),
        gid: m.gid(),
        modified: time(m.mtime(), m.mtime_nsec()),
        // Reading the directory changes it: not an attribute of the input.
        accessed: None,
        xattrs,
    }
}

fn kind(path: &Path, m: &Metadata) -> Result<Kind> {
    let t = m.file_type();
    let rdev = m.rdev();
    let device = (rustix::fs::major(rdev), rustix::fs::minor(rdev));
    Ok(if t.is_dir() {
        Kind::Dir
    } else if t.is_symlink() {
        let target = std::fs::read_link(path).map_err(|e| Error::host(path, &e))?;
        Kind::Symlink(target.into_os_string().into_vec())
    } else if t.is_char_device() {
        Kind::Node(FileType::CharDevice, device)
    } else if t.is_block_device() {
        Kind::Node(FileType::BlockDevice, device)
    } else if t.is_fifo() {
        Kind::Node(FileType::Fifo, (0, 0))
    } else if t.is_socket() {
        Kind::Node(FileType::Socket, (0, 0))
    } else {
        Kind::File(m.size())
    })
}

/// All extended attributes that the host shows. A host without any is fine. Of those that ext4 does not store only the
/// names are read.
fn xattrs(path: &Path) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let host = |e: Errno| Error::host(path, &e.into());
    let mut list = vec![0; 4096];
    let len = loop {
        match rustix::fs::llistxattr(path, &mut list) {
            Ok(len) => break len,
            Err(Errno::RANGE) => list.resize(list.len() * 2, 0),
            Err(Errno::OPNOTSUPP | Errno::PERM | Errno::ACCESS) => return Ok(Vec::new()),
            Err(e) => return Err(host(e)),
        }
    };
    let mut found = Vec::new();
    for name in list[..len].split(|b| *b == 0).filter(|n| !n.is_empty()) {
        let mut value = Vec::new();
        if image_xattrs::is_stored(name) {
            value = vec![0; 65_536];
            let read = rustix::fs::lgetxattr(path, OsStr::from_bytes(name), &mut value);
            let len = read.map_err(|e| {
                let e = std::io::Error::from(e);
                Error::of_io(&e, format!("attribute {}: {e}", String::from_utf8_lossy(name))).at(path)
            })?;
            value.truncate(len);
        }
        found.push((name.to_vec(), value));
    }
    found.sort();
    Ok(found)
}

/// The data of a file of the host, without its holes.
struct FileData {
    file: File,
    path: PathBuf,
    at: u64,
    /// End of the run of data that is read.
    end: u64,
    size: u64,
}

impl FileData {
    /// Goes to the next run of data, if the last one is over; false: there is none.
    fn find(&mut self) -> bool {
        if self.at < self.end {
            return true;
        }
        if self.at >= self.size {
            return false;
        }
        self.at = match rustix::fs::seek(&self.file, SeekFrom::Data(self.at)) {
            Ok(at) => at,
            Err(Errno::NXIO) => return false,
            Err(_) => self.at, // The host cannot tell: all is data.
        };
        self.end = rustix::fs::seek(&self.file, SeekFrom::Hole(self.at)).unwrap_or(self.size).min(self.size);
        self.at < self.end
    }
}

impl Data for FileData {
    fn next(&mut self, buf: &mut [u8]) -> Result<Option<(u64, usize)>> {
        if !self.find() {
            return Ok(None);
        }
        let want = buf.len().min(usize::try_from(self.end - self.at).unwrap_or(usize::MAX));
        let n = self.file.read_at(&mut buf[..want], self.at).map_err(|e| Error::host(&self.path, &e))?;
        if n == 0 {
            let why = std::io::Error::new(std::io::ErrorKind::UnexpectedEof, "the file has become shorter");
            return Err(Error::host(&self.path, &why));
        }
        let at = self.at;
        self.at += n as u64;
        Ok(Some((at, n)))
    }

    fn ranges(&mut self, each: &mut dyn FnMut(u64, u64)) -> Result<()> {
        while self.find() {
            each(self.at, self.end - self.at);
            self.at = self.end;
        }
        Ok(())
    }
}
