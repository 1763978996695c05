//! Trees out of an image as a tar archive in PAX format.
//!
//! *Guarantees*: an export that fails leaves no archive that looks whole. It ends in the middle of an entry, because
//! most programs take an archive that only lacks the two blocks of zeros at its end. Within each 4096 bytes of an
//! archive (what a pipe takes as a whole) there is data, in which a writer that may be killed can stop.

use super::acl_text;
use super::entry::shown;
use super::export::Linked;
use super::options::ExportOptions;
use super::pax::encode;
use super::pax_xattrs::{Record, xattr_key};
use super::progress::{Done, LeftOut};
use crate::attrs::Links;
use crate::dir::Dir;
use crate::error::{Error, ErrorKind, Result};
use crate::fs::FileSystem;
use crate::metadata::{FileType, Metadata, Timestamp};
use quire_layout::acl::Acl;
use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use tar::{EntryType, Header};

/// The name of the entry that an archive ends with after a failure.
const FAILED: &[u8] = b"the export has failed";
/// Entries in a row that are a header and nothing else. With the padding in front of them and the header of a record
/// behind them they take 4096 bytes, which is what a pipe takes as a whole (PIPE_BUF).
const MAX_BARE: u32 = 6;

/// Writes a tree as a tar archive: names relative to `from`, in the order of their bytes; owners as numbers; times in
/// nanoseconds, extended attributes, ACLs and holes as PAX records (`SCHILY.xattr`, `SCHILY.acl`, `GNU.sparse` 1.0).
/// Sockets, which tar does not have, are left out ([`ExportOptions::on_left_out`]). The same tree gives the same bytes.
///
/// # Errors
/// Not found; corrupt; I/O. Those of `out` are of the host, and have no path. After an error the archive ends in the
/// middle of an entry, so that readers of it fail, too.
pub fn export_tar(fs: &FileSystem, from: impl AsRef<Path>, out: &mut dyn Write) -> Result<()> {
    export_tar_with(fs, from, out, &ExportOptions::new())
}

/// As [`export_tar`], with choices.
///
/// ```
/// use quire::archive::{ExportOptions, export_tar_with};
/// use quire::{CreateOptions, ErrorKind};
/// use std::ops::ControlFlow;
/// let fs = CreateOptions::new().size(16 << 20).in_memory()?;
/// let options = ExportOptions::new().on_progress(|_| ControlFlow::Break(()));
/// let done = export_tar_with(&fs, "/", &mut Vec::new(), &options);
/// assert_eq!(done.unwrap_err().kind(), ErrorKind::Cancelled);
/// # Ok::<(), quire::Error>(())
/// ```
///
/// # Errors
/// Those of [`export_tar`]. Cancelled: the caller has ended it.
pub fn export_tar_with(
    fs: &FileSystem,
    from: impl AsRef<Path>,
    out: &mut dyn Write,
    options: &ExportOptions,
) -> Result<()> {
    let from = from.as_ref();
    let dir = fs.open_dir(from)?;
    let done = Done::new(&options.watch);
    let out = tar::Builder::new(Output { out, in_entry: false, failed: false });
    let mut tar = TarWriter { out, dir: &dir, done: &done, linked: Linked::default(), bare: 0 };
    let written = tar.tree(from, &options.left_out);
    if written.is_err() {
        tar.out.get_mut().tear();
    }
    written
}

/// An error of the writer that the archive goes to, or of what the writer itself has asked.
fn output(e: io::Error) -> Error {
    Error::of_stream("the archive cannot be written", e)
}

/// Where an archive goes. After a failure it takes nothing more, because a [`tar::Builder`] writes the end of its
/// archive when it is dropped.
struct Output<'w> {
    out: &'w mut dyn Write,
    /// An entry has begun, and is not complete.
    in_entry: bool,
    failed: bool,
}

impl Output<'_> {
    /// Ends an archive that is not complete: by the header of records that do not follow, which all programs read.
    fn tear(&mut self) {
        if !self.failed && !self.in_entry {
            let mut header = Header::new_ustar();
            header.as_mut_bytes()[..FAILED.len()].copy_from_slice(FAILED);
            header.set_entry_type(EntryType::XHeader);
            header.set_size(512);
            header.set_cksum();
            // The failure before it is the one to tell.
            self.out.write_all(header.as_bytes()).ok();
        }
        self.failed = true;
    }
}

impl Write for Output<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        if self.failed {
            return Err(io::Error::other("the archive has failed"));
        }
        let written = self.out.write(buf);
        self.failed = written.as_ref().is_err_and(|e| e.kind() != io::ErrorKind::Interrupted);
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// A directory and a name in it.
type Place<'w> = (&'w Dir, &'w OsStr);

struct TarWriter<'w> {
    out: tar::Builder<Output<'w>>,
    dir: &'w Dir,
    done: &'w Done<'w>,
    linked: Linked,
    /// Entries since the last one with data or records.
    bare: u32,
}

impl TarWriter<'_> {
    /// All objects, and the end.
    fn tree(&mut self, from: &Path, left_out: &LeftOut) -> Result<()> {
        let mut walk = self.dir.walk(".")?;
        while let Some(e) = walk.next() {
            let e = e?;
            self.done.objects(1)?;
            if e.metadata.file_type() == FileType::Socket {
                left_out.tell(&from.join(e.path.strip_prefix(".").unwrap_or(&e.path)));
                continue;
            }
            let place = walk.place_of(&e).unwrap_or((self.dir, OsStr::new(".")));
            let done = self.object(place, &e.path, &e.metadata);
            // What the host says is about the archive.
            done.map_err(|error| if error.is_of_host() { error } else { error.with_path(from.join(&e.path)) })?;
        }
        self.out.finish().map_err(output)
    }

    /// An object, which is looked up in its directory by its last name: a path may be deep.
    fn object(&mut self, place: Place<'_>, path: &Path, m: &Metadata) -> Result<()> {
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
                link = Some(place.0.read_link(place.1)?.as_bytes().to_vec());
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
            header.set_device_major(m.device.0).map_err(output)?;
            header.set_device_minor(m.device.1).map_err(output)?;
        }
        if first.is_none() {
            attributes(place, &mut pax)?;
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
            return self.file(place, &stored, header, pax);
        }
        header.set_size(0);
        self.put(header, &stored, pax, &mut std::io::empty())
    }

    /// A file; one with holes in PAX's sparse format 1.0: the map in front of the data.
    fn file(&mut self, place: Place<'_>, name: &[u8], mut header: Header, mut pax: Vec<Record>) -> Result<()> {
        let file = place.0.open_file(place.1)?;
        // Not that of the directory's listing: a writer beside the export may have changed the file since.
        let len = file.metadata()?.size;
        let mut ranges = Vec::new();
        let mut at = 0;
        while let Some((start, end)) = file.next_data(at)?.filter(|(start, _)| *start < len) {
            ranges.push((start, end.min(len) - start));
            at = end;
        }
        let data: u64 = ranges.iter().map(|(_, len)| len).sum();
        let mut reader = Ranges { file, ranges: ranges.clone(), now: 0, at: 0, done: self.done };
        if data == len {
            size(&mut header, &mut pax, len);
            return self.put(header, name, pax, &mut reader);
        }
        // A file that ends with a hole needs its end in the map.
        if ranges.last().is_none_or(|(start, n)| start + n < len) {
            ranges.push((len, 0));
        }
        let mut map = format!("{}\n", ranges.len());
        ranges.iter().for_each(|(start, len)| map.push_str(&format!("{start}\n{len}\n")));
        let mut map = map.into_bytes();
        map.resize(map.len().next_multiple_of(512), 0);
        pax.push(("GNU.sparse.major".into(), b"1".to_vec()));
        pax.push(("GNU.sparse.minor".into(), b"0".to_vec()));
        pax.push(("GNU.sparse.name".into(), name.to_vec()));
        pax.push(("GNU.sparse.realsize".into(), len.to_string().into_bytes()));
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
        let is_bare = pax.is_empty() && header.entry_size().is_ok_and(|size| size == 0);
        self.bare = if is_bare { self.bare + 1 } else { 0 };
        if self.bare > MAX_BARE {
            // What the header says, too.
            pax.push(("mtime".into(), header.mtime().map_err(output)?.to_string().into_bytes()));
            self.bare = 0;
        }
        self.out.get_mut().in_entry = true;
        if !pax.is_empty() {
            // The crate's own way takes keys in UTF-8 only.
            let records = encode(&pax);
            let mut extended = Header::new_ustar();
            extended.set_entry_type(EntryType::XHeader);
            extended.set_size(records.len() as u64);
            extended.set_cksum();
            self.out.append(&extended, records.as_slice()).map_err(output)?;
        }
        header.set_cksum();
        self.out.append(&header, data).map_err(output)?;
        self.out.get_mut().in_entry = false;
        Ok(())
    }
}

/// Extended attributes, as bytes. ACLs as text, too: `tar --acls` reads no other form.
fn attributes((dir, name): Place<'_>, pax: &mut Vec<Record>) -> Result<()> {
    for attribute in dir.xattrs(name, Links::NoFollow)? {
        let value = dir.xattr(name, Links::NoFollow, &attribute)?;
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
struct Ranges<'w> {
    file: crate::file::File,
    ranges: Vec<(u64, u64)>,
    now: usize,
    at: u64,
    done: &'w Done<'w>,
}

impl Read for Ranges<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while let Some((start, len)) = self.ranges.get(self.now) {
            if self.at < *len {
                let want = buf.len().min(usize::try_from(len - self.at).unwrap_or(usize::MAX));
                let n = self.file.read_at(&mut buf[..want], start + self.at)?;
                if n == 0 && want > 0 {
                    // Its header is written: less data would put the next header in a wrong place.
                    return Err(Error::new(ErrorKind::Io, "the file has become shorter").into());
                }
                self.at += n as u64;
                self.done.bytes(n as u64)?;
                return Ok(n);
            }
            (self.now, self.at) = (self.now + 1, 0);
        }
        Ok(0)
    }
}
