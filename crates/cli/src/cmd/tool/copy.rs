//! Files in and out: `get`, `put`.

use super::action::{Action, Out};
use super::failure::Failure;
use super::host_file::{Destination, Stream, Unfinished, check_not_image};
use super::show::COPY_BYTES;
use super::signals::is_stopped;
use super::values::{self, ModeChange, set_owner};
use crate::text::printable_name;

use quire::{FileOptions, FileSystem, Links, Metadata, NewFile, SetMetadata, Timestamp};
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
#[command(after_help = "Example:
  quire get rootfs.img:/var/log/dpkg.log .
  quire get rootfs.img:/boot/vmlinuz - | sha256sum

A new file has the mode of the one in the image, without what the umask takes. A file that is replaced keeps its mode; a
device or a FIFO is written to. Trees come out with `quire export`.")]
pub(crate) struct Get {
    #[arg(value_name = "IMG:PATH")]
    path: OsString,
    /// A file or directory of the host; - is standard output
    #[arg(value_name = "DEST", default_value = ".")]
    dest: PathBuf,
}

impl Action for Get {
    fn names(&mut self) -> Vec<&mut OsString> {
        vec![&mut self.path]
    }

    fn run(&self, fs: &FileSystem, out: &mut Out<'_>) -> Result<(), Failure> {
        let mut made = Unfinished::new(false);
        self.run_unfinished(fs, out, &mut made)?;
        made.finish()
    }

    fn run_unfinished(&self, fs: &FileSystem, out: &mut Out<'_>, made: &mut Unfinished) -> Result<(), Failure> {
        let mut file = fs.open_file(&self.path)?;
        if self.dest.as_os_str() == "-" {
            let mut buf = vec![0; COPY_BYTES];
            loop {
                match file.read(&mut buf).map_err(|e| Failure::image(&self.path, e))? {
                    0 => return Ok(()),
                    n => out.write_all(&buf[..n])?,
                }
            }
        }
        let dest = match Path::new(&self.path).file_name() {
            Some(name) if self.dest.is_dir() => self.dest.join(name),
            _ => self.dest.clone(),
        };
        check_not_image(fs, &dest)?;
        made.check(&dest)?;
        let m = file.metadata()?;
        super::signals::catch_signals();
        // An open of a FIFO waits for its reader: a signal ends that, too.
        let to = Destination::open(&dest, m.permissions())?;
        match to {
            Destination::File(new) => {
                get_file(&file, &m, &new, &dest)?;
                made.push(*new)
            }
            Destination::Special(mut to) => {
                let failed = |e: std::io::Error| Failure::host(quire::Error::host(&dest, &e));
                let mut buf = vec![0; COPY_BYTES];
                loop {
                    match file.read(&mut buf).map_err(|e| Failure::image(&self.path, e))? {
                        0 => return Ok(()),
                        n => to.write_all(&buf[..n]).map_err(failed)?,
                    }
                }
            }
        }
    }
}

/// Copies the data of a file, not its holes, and its time.
fn get_file(file: &quire::File, m: &Metadata, new: &NewFile, dest: &Path) -> Result<(), Failure> {
    let failed = |e: std::io::Error| Failure::host(quire::Error::host(dest, &e));
    let host = new.file();
    host.set_len(m.size).map_err(failed)?;
    let mut at = 0;
    let mut buf = vec![0; COPY_BYTES];
    while let Some((start, end)) = file.next_data(at)? {
        at = start;
        while at < end {
            let want = buf.len().min(usize::try_from(end - at).unwrap_or(usize::MAX));
            let n = file.read_at(&mut buf[..want], at)?;
            if n == 0 {
                break;
            }
            super::work::check()?;
            host.write_all_at(&buf[..n], at).map_err(failed)?;
            at += n as u64;
        }
        at = at.max(end);
    }
    host.set_modified(m.modified.into()).map_err(failed)
}

#[derive(clap::Args)]
#[command(after_help = "Example:
  quire put hosts rootfs.img:/etc/hosts
  make-config | quire put - rootfs.img:/etc/app.conf --mode 0600 --owner 1000:1000

The file is there whole or not at all, if the image has a journal; one that it replaces stays until then. Trees come in
with `quire import`.")]
pub(crate) struct Put {
    /// A file of the host; - is standard input
    #[arg(value_name = "SRC")]
    source: PathBuf,
    /// A name in the image, or a directory
    #[arg(value_name = "IMG:PATH")]
    path: OsString,
    /// Permissions; those of the file that is replaced, or of the source but for set-user-id, set-group-id and sticky,
    /// if not set
    #[arg(short, long, value_parser = values::mode)]
    mode: Option<ModeChange>,
    /// Owner and group, as numbers; root, or those of the file that is replaced, if not set
    #[arg(long, value_name = "UID:GID", value_parser = values::owner)]
    owner: Option<(Option<u32>, Option<u32>)>,
    /// Make missing directories, too
    #[arg(short, long)]
    parents: bool,
}

impl Action for Put {
    fn names(&mut self) -> Vec<&mut OsString> {
        vec![&mut self.path]
    }

    fn writes(&self) -> bool {
        true
    }

    fn host_source(&self) -> Option<&Path> {
        Some(&self.source)
    }

    fn run(&self, fs: &FileSystem, _: &mut Out<'_>) -> Result<(), Failure> {
        let path = self.destination(fs)?;
        let old = fs.metadata(&path).ok();
        if old.is_some_and(|m| !m.is_file()) {
            let why = quire::Error::new(quire::ErrorKind::Exists, "exists, and is no regular file");
            return Err(why.at(&path).into());
        }
        let dir = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("/"));
        if self.parents {
            fs.create_dir_all(dir)?;
        }
        let failed = |e: std::io::Error| Failure::host(quire::Error::host(&self.source, &e));
        let (mut source, m) = Source::open(&self.source).map_err(failed)?;
        let temporary = dir.join(format!(".quire-put.{}", std::process::id()));
        // Users know the name that it gets.
        let named = |e: quire::Error| if e.path() == Some(&temporary) { e.with_path(&path) } else { e };
        let file = fs.open_with(&temporary, FileOptions::new().create_new(true)).map_err(named)?;
        if let Err(e) = source.copy_to(&file) {
            drop(file);
            fs.remove_file(&temporary).map_err(named)?;
            return Err(e.failure(&self.source, &path));
        }
        let mut set = SetMetadata::new();
        if let Some(old) = old {
            set = set.owner(old.uid, old.gid);
            copy_attributes(fs, &path, &temporary).map_err(named)?;
        }
        // The file gets another owner than the source: set-id would give away that owner's rights.
        let usual = old.map_or_else(|| m.as_ref().map_or(0o644, |m| m.mode() & 0o777), |o| o.permissions());
        set = set.permissions(self.mode.as_ref().map_or(usual, |c| c.apply(usual, false)));
        if let Some(m) = &m {
            let nanos = u32::try_from(m.mtime_nsec()).unwrap_or(0);
            set = set.modified(Timestamp::new(m.mtime(), nanos));
        }
        file.set_metadata(set_owner(set, self.owner)).map_err(named)?;
        fs.rename(&temporary, real_path(fs, &path)?).map_err(named)?;
        Ok(())
    }
}

/// What is copied into the image.
enum Source {
    /// A regular file, which may have holes.
    File(File),
    /// Standard input, a pipe or a device.
    Stream(Stream),
}

impl Source {
    /// Opens a file of the host, and tells what is known of it; `-` is standard input, of which nothing is.
    ///
    /// # Errors
    /// Those of open(2). It is a directory.
    fn open(path: &Path) -> std::io::Result<(Source, Option<std::fs::Metadata>)> {
        if path.as_os_str() == "-" {
            return Ok((Source::Stream(Stream::stdin()?), None));
        }
        let m = std::fs::metadata(path)?;
        if m.is_dir() {
            let why = "is a directory; `quire import` takes trees";
            return Err(std::io::Error::new(std::io::ErrorKind::IsADirectory, why));
        }
        if !m.is_file() {
            return Ok((Source::Stream(Stream::from_path(path)?), Some(m)));
        }
        let file = File::open(path)?;
        let m = file.metadata()?;
        Ok((Source::File(file), Some(m)))
    }

    fn copy_to(&mut self, to: &quire::File) -> Result<(), CopyError> {
        match self {
            Source::File(file) => copy_sparse(file, to),
            Source::Stream(stream) => copy_range(stream, to, 0..u64::MAX, &mut vec![0; COPY_BYTES]).map(drop),
        }
    }
}

impl Put {
    fn destination(&self, fs: &FileSystem) -> Result<PathBuf, Failure> {
        let path = PathBuf::from(&self.path);
        // These ask for a directory, also for one that is not there.
        let asks = [&b"/"[..], b"/."].iter().any(|end| self.path.as_bytes().ends_with(end));
        if !asks && !fs.metadata(&path).is_ok_and(|m| m.is_dir()) {
            return Ok(path);
        }
        match self.source.file_name() {
            Some(name) if self.source.as_os_str() != "-" => Ok(path.join(name)),
            _ => {
                Err(Failure::Usage(format!("{}: standard input needs the name of a file", printable_name(&self.path))))
            }
        }
    }
}

/// Where a symbolic link at the end of a path leads: what is replaced is the file, not the link.
fn real_path(fs: &FileSystem, path: &Path) -> quire::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..40 {
        if !fs.symlink_metadata(&path).is_ok_and(|m| m.is_symlink()) {
            return Ok(path);
        }
        let target = fs.read_link(&path)?;
        path = path.parent().unwrap_or(Path::new("/")).join(target);
    }
    Err(quire::Error::new(quire::ErrorKind::TooManySymlinks, "too many levels of symbolic links").at(&path))
}

/// Extended attributes of the file that is replaced go to the new one, but not capabilities, which a new program would
/// get.
fn copy_attributes(fs: &FileSystem, from: &Path, to: &Path) -> quire::Result<()> {
    for name in fs.xattrs(from, Links::Follow)? {
        if name != "security.capability" {
            fs.set_xattr(to, Links::Follow, &name, fs.xattr(from, Links::Follow, &name)?)?;
        }
    }
    Ok(())
}

/// A copy that failed: on which side.
enum CopyError {
    Host(std::io::Error),
    Image(quire::Error),
    Interrupted,
}

impl CopyError {
    fn failure(self, source: &Path, path: &Path) -> Failure {
        match self {
            CopyError::Host(e) => Failure::host(quire::Error::host(source, &e)),
            CopyError::Image(e) => e.at(path).into(),
            CopyError::Interrupted => Failure::Interrupted,
        }
    }
}

/// Copies what is read up to the end of a range, or to the end of the file; tells where that is.
fn copy_range(from: &mut impl Read, to: &quire::File, range: Range<u64>, buf: &mut [u8]) -> Result<u64, CopyError> {
    let mut at = range.start;
    while at < range.end {
        if is_stopped() {
            return Err(CopyError::Interrupted);
        }
        let want = buf.len().min(usize::try_from(range.end - at).unwrap_or(usize::MAX));
        match from.read(&mut buf[..want]) {
            Ok(0) => break,
            Ok(n) => {
                to.write_at(&buf[..n], at).map_err(CopyError::Image)?;
                at += n as u64;
            }
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(CopyError::Host(e)),
        }
    }
    Ok(at)
}

/// Copies the data of a file, not its holes, up to the end that reading finds: a file of /proc or /sys has another size
/// than the host tells, and so has one that another process cuts meanwhile.
fn copy_sparse(mut from: &File, to: &quire::File) -> Result<(), CopyError> {
    let mut buf = vec![0; COPY_BYTES];
    let mut at = 0;
    let len = loop {
        let range = next_data(from, at).map_err(CopyError::Host)?;
        let end = copy_range(&mut from, to, range.clone(), &mut buf)?;
        if end == range.start && end < range.end {
            // Nothing follows but a hole, as far as the file reaches now.
            break from.metadata().map_err(CopyError::Host)?.size().clamp(at, end);
        }
        if end < range.end {
            break end;
        }
        at = end;
    };
    to.set_len(len).map_err(CopyError::Image)
}

/// The next range of data from `at` on, where the file is left to be read. What the host cannot tell is data; `at` is
/// where the last range has ended.
fn next_data(from: &File, at: u64) -> std::io::Result<Range<u64>> {
    use rustix::fs::{SeekFrom, seek};
    let start = match seek(from, SeekFrom::Data(at)) {
        Ok(start) if start >= at => start,
        // Only a hole is left, or the size is wrong.
        Err(rustix::io::Errno::NXIO) => seek(from, SeekFrom::End(0)).unwrap_or(at).max(at),
        _ => return Ok(at..u64::MAX),
    };
    let end = seek(from, SeekFrom::Hole(start)).ok().filter(|end| *end > start);
    seek(from, SeekFrom::Start(start))?;
    Ok(start..end.unwrap_or(u64::MAX))
}
