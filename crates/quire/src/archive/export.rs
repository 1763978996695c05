//! Trees out of an image: as a tar archive in PAX format, or into a directory of the host.

use super::acl_text;
use super::entry::shown;
use super::options::ExportOptions;
use super::pax::{Record, encode, xattr_key};
use super::progress::{Progress, Watch};
use crate::attrs::Links;
use crate::dir::Dir;
use crate::error::{Error, ErrorKind, Result};
use crate::fs::FileSystem;
use crate::metadata::{FileType, Metadata, Timestamp, check_owner};
use quire_layout::acl::Acl;
use rustix::fs::{AtFlags, CWD, Mode};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use tar::{EntryType, Header};

const COPY_BYTES: usize = 1 << 20;

/// The first names of inodes that have several.
#[derive(Default)]
struct Linked(HashMap<u32, PathBuf>);

impl Linked {
    /// The first name of an inode, if this is not it.
    fn first(&mut self, m: &Metadata, path: &Path) -> Option<PathBuf> {
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

/// Writes a tree as a tar archive: names relative to `from`, in the order of their bytes; owners as numbers; times in
/// nanoseconds, extended attributes, ACLs and holes as PAX records (`SCHILY.xattr`, `SCHILY.acl`, `GNU.sparse` 1.0).
/// Sockets, which tar does not have, are left out. The same tree gives the same bytes.
///
/// # Errors
/// Not found; corrupt; I/O: of the image, or of `out`.
pub fn export_tar(fs: &FileSystem, from: impl AsRef<Path>, out: &mut dyn Write) -> Result<()> {
    let from = from.as_ref();
    let dir = fs.open_dir(from)?;
    let mut tar = TarWriter { out: tar::Builder::new(out), dir: &dir, linked: Linked::default() };
    for e in dir.walk(".")? {
        let e = e?;
        tar.object(&e.path, &e.metadata).map_err(|error| error.at(from.join(&e.path)))?;
    }
    tar.out.finish().map_err(|e| output(&e))
}

fn output(e: &std::io::Error) -> Error {
    Error::new(ErrorKind::Io, format!("the archive cannot be written: {e}"))
}

struct TarWriter<'w> {
    out: tar::Builder<&'w mut dyn Write>,
    dir: &'w Dir,
    linked: Linked,
}

impl TarWriter<'_> {
    fn object(&mut self, path: &Path, m: &Metadata) -> Result<()> {
        let name = path.strip_prefix(".").unwrap_or(path).to_owned();
        let mut pax = Vec::new();
        let mut header = Header::new_ustar();
        let mut link = None;
        let first = self.linked.first(m, &name);
        let kind = match (m.file_type(), &first) {
            (FileType::Socket, _) => return Ok(()),
            (_, Some(first)) => {
                link = Some(first.as_os_str().as_bytes().to_vec());
                EntryType::Link
            }
            (FileType::File, _) => EntryType::Regular,
            (FileType::Dir, _) => EntryType::Directory,
            (FileType::Symlink, _) => {
                link = Some(self.dir.read_link(path)?.as_bytes().to_vec());
                EntryType::Symlink
            }
            (FileType::CharDevice, _) => EntryType::Char,
            (FileType::BlockDevice, _) => EntryType::Block,
            (FileType::Fifo, _) => EntryType::Fifo,
        };
        header.set_entry_type(kind);
        header.set_mode(m.permissions());
        number(&mut pax, "uid", m.uid.into(), |n| header.set_uid(n));
        number(&mut pax, "gid", m.gid.into(), |n| header.set_gid(n));
        header.set_mtime(u64::try_from(m.modified.secs).unwrap_or(0).min(0o77_777_777_777));
        if m.modified.nanos != 0 || !(0..=0o77_777_777_777).contains(&m.modified.secs) {
            pax.push(("mtime".into(), time(m.modified).into_bytes()));
        }
        if matches!(kind, EntryType::Char | EntryType::Block) {
            header.set_device_major(m.device.0).map_err(|e| output(&e))?;
            header.set_device_minor(m.device.1).map_err(|e| output(&e))?;
        }
        if first.is_none() {
            self.attributes(path, &mut pax)?;
        }
        let mut stored = name.as_os_str().as_bytes().to_vec();
        if stored.is_empty() {
            stored = b".".to_vec();
        }
        if kind == EntryType::Directory {
            stored.push(b'/');
        }
        if let Some(link) = link {
            if link.len() <= 100 {
                header.as_mut_bytes()[157..157 + link.len()].copy_from_slice(&link);
            } else {
                pax.push(("linkpath".into(), link));
            }
        }
        if kind == EntryType::Regular {
            return self.file(path, m, &stored, header, pax);
        }
        header.set_size(0);
        self.put(header, &stored, pax, &mut std::io::empty())
    }

    /// Extended attributes, as bytes. ACLs as text, too: `tar --acls` reads no other form.
    fn attributes(&self, path: &Path, pax: &mut Vec<Record>) -> Result<()> {
        for attribute in self.dir.xattrs(path, Links::NoFollow)? {
            let value = self.dir.xattr(path, Links::NoFollow, &attribute)?;
            let record = acl_text::RECORDS.iter().find(|(_, name)| attribute.as_bytes() == *name);
            if let Some((key, _)) = record
                && let Some(acl) = Acl::from_xattr(&value)
            {
                pax.push(((*key).into(), acl_text::text(&acl).into_bytes()));
            }
            pax.push((xattr_key(attribute.as_bytes()), value));
        }
        Ok(())
    }

    /// A file; one with holes in PAX's sparse format 1.0: the map in front of the data.
    fn file(&mut self, path: &Path, m: &Metadata, name: &[u8], mut header: Header, mut pax: Vec<Record>) -> Result<()> {
        let file = self.dir.open_file(path)?;
        let mut ranges = Vec::new();
        let mut at = 0;
        while let Some((start, end)) = file.next_data(at)? {
            ranges.push((start, end.min(m.size) - start));
            at = end;
        }
        let data: u64 = ranges.iter().map(|(_, len)| len).sum();
        let mut reader = Ranges { file, ranges: ranges.clone(), now: 0, at: 0 };
        if data == m.size {
            size(&mut header, &mut pax, m.size);
            return self.put(header, name, pax, &mut reader);
        }
        // A file that ends with a hole needs its end in the map.
        if ranges.last().is_none_or(|(start, len)| start + len < m.size) {
            ranges.push((m.size, 0));
        }
        let mut map = format!("{}\n", ranges.len());
        ranges.iter().for_each(|(start, len)| map.push_str(&format!("{start}\n{len}\n")));
        let mut map = map.into_bytes();
        map.resize(map.len().next_multiple_of(512), 0);
        pax.push(("GNU.sparse.major".into(), b"1".to_vec()));
        pax.push(("GNU.sparse.minor".into(), b"0".to_vec()));
        pax.push(("GNU.sparse.name".into(), name.to_vec()));
        pax.push(("GNU.sparse.realsize".into(), m.size.to_string().into_bytes()));
        size(&mut header, &mut pax, map.len() as u64 + data);
        let (dir, base) = (Path::new(OsStr::from_bytes(name)).parent(), shown(name));
        let base = base.file_name().unwrap_or_default().to_owned();
        let stand_in = dir.unwrap_or(Path::new("")).join("GNUSparseFile.0").join(base);
        let stand_in = stand_in.as_os_str().as_bytes().to_vec();
        self.put(header, &stand_in, pax, &mut std::io::Cursor::new(map).chain(reader))
    }

    fn put(&mut self, mut header: Header, name: &[u8], mut pax: Vec<Record>, data: &mut dyn Read) -> Result<()> {
        let sparse = pax.iter().any(|(k, _)| k == b"GNU.sparse.name");
        if name.len() <= 100 {
            header.as_mut_bytes()[..name.len()].copy_from_slice(name);
        } else {
            header.as_mut_bytes()[..100].copy_from_slice(&name[..100]);
            if !sparse || !pax.iter().any(|(k, _)| k == b"path") {
                pax.insert(0, ("path".into(), name.to_vec()));
            }
        }
        if !pax.is_empty() {
            // The crate's own way takes keys in UTF-8 only.
            let records = encode(&pax);
            let mut extended = Header::new_ustar();
            extended.set_entry_type(EntryType::XHeader);
            extended.set_size(records.len() as u64);
            extended.set_cksum();
            self.out.append(&extended, records.as_slice()).map_err(|e| output(&e))?;
        }
        header.set_cksum();
        self.out.append(&header, data).map_err(|e| match e.downcast::<Error>() {
            Ok(e) => e,
            Err(e) => output(&e),
        })
    }
}

/// A number that the header holds, or a PAX record.
fn number(pax: &mut Vec<Record>, key: &str, n: u64, set: impl FnOnce(u64)) {
    if n <= 0o7_777_777 {
        return set(n);
    }
    set(0);
    pax.push((key.into(), n.to_string().into_bytes()));
}

fn size(header: &mut Header, pax: &mut Vec<Record>, n: u64) {
    // More than eleven octal digits are stored in base 256, which every program of today reads.
    header.set_size(n);
    if n > 0o77_777_777_777 {
        pax.push(("size".into(), n.to_string().into_bytes()));
    }
}

fn time(t: Timestamp) -> String {
    let (secs, nanos) =
        if t.secs < 0 && t.nanos > 0 { (t.secs + 1, 1_000_000_000 - t.nanos) } else { (t.secs, t.nanos) };
    let sign = if t.secs < 0 && secs == 0 { "-" } else { "" };
    let text = format!("{sign}{secs}.{nanos:09}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The data of a file, run after run.
struct Ranges {
    file: crate::file::File,
    ranges: Vec<(u64, u64)>,
    now: usize,
    at: u64,
}

impl Read for Ranges {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        while let Some((start, len)) = self.ranges.get(self.now) {
            if self.at < *len {
                let want = buf.len().min(usize::try_from(len - self.at).unwrap_or(usize::MAX));
                let n = self.file.read_at(&mut buf[..want], start + self.at)?;
                self.at += n as u64;
                return Ok(n);
            }
            (self.now, self.at) = (self.now + 1, 0);
        }
        Ok(0)
    }
}

/// Writes a tree into a directory of the host, which is made, or empty. Owners and devices need root there; as another
/// user owners become the user's, and a device is an error.
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
        return Err(Error::new(ErrorKind::DirectoryNotEmpty, "directory not empty").at(to));
    }
    let mut linked = Linked::default();
    let mut dirs = Vec::new();
    let mut done = Done { progress: Progress { writing: true, ..Progress::default() }, watch: &options.watch };
    for e in dir.walk(".")? {
        let e = e?;
        let host = host_path(to, &e.path);
        done.objects(1)?;
        put(&dir, &e.path, &e.metadata, &host, linked.first(&e.metadata, &host), &mut done)?;
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

/// What an export has done, told to the caller.
struct Done<'w> {
    progress: Progress,
    watch: &'w Watch,
}

impl Done<'_> {
    fn objects(&mut self, n: u64) -> Result<()> {
        self.progress.objects += n;
        self.watch.tell(self.progress)
    }

    fn bytes(&mut self, n: u64) -> Result<()> {
        self.progress.bytes += n;
        self.watch.tell(self.progress)
    }
}

fn put(dir: &Dir, path: &Path, m: &Metadata, host: &Path, first: Option<PathBuf>, done: &mut Done<'_>) -> Result<()> {
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

fn copy(dir: &Dir, path: &Path, m: &Metadata, host: &Path, done: &mut Done<'_>) -> Result<()> {
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
        rustix::fs::chmodat(CWD, host, Mode::from_raw_mode(m.permissions()), AtFlags::empty()).map_err(failed)?;
    }
    let time = |t: Timestamp| rustix::fs::Timespec { tv_sec: t.secs, tv_nsec: t.nanos.into() };
    let times = rustix::fs::Timestamps { last_access: time(m.accessed), last_modification: time(m.modified) };
    rustix::fs::utimensat(CWD, host, &times, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)
}
