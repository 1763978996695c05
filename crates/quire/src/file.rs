//! Files: bytes at a place, or in sequence.

use crate::error::{Error, ErrorKind, Result};
use crate::metadata::Metadata;
use crate::resolve::{Place, attributes, make_at};
use crate::set_metadata::SetMetadata;
use crate::shared::InodeRef;
use crate::update::Update;
use quire_fs::{Falloc, FileUpdate, NewKind, Seek as SeekTo, WriteFlags};
use quire_layout::inode::mode;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How often an open looks for a name again that another call has made, and removed, in between.
const MAX_LOST_RACES: usize = 100;

/// How to open a file; see [`Dir::open_with`](crate::Dir::open_with).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub struct FileOptions {
    pub(crate) create: bool,
    pub(crate) create_new: bool,
    truncate: bool,
    append: bool,
    permissions: u32,
}

impl Default for FileOptions {
    fn default() -> Self {
        FileOptions { create: false, create_new: false, truncate: false, append: false, permissions: 0o644 }
    }
}

impl FileOptions {
    /// An existing file, its contents kept.
    pub fn new() -> Self {
        FileOptions::default()
    }

    /// Makes the file if it does not exist.
    pub fn create(self, yes: bool) -> Self {
        FileOptions { create: yes, ..self }
    }

    /// Makes the file; it must not exist.
    pub fn create_new(self, yes: bool) -> Self {
        FileOptions { create_new: yes, ..self }
    }

    /// Empties the file.
    pub fn truncate(self, yes: bool) -> Self {
        FileOptions { truncate: yes, ..self }
    }

    /// Writes at the end of the file, wherever it is then.
    pub fn append(self, yes: bool) -> Self {
        FileOptions { append: yes, ..self }
    }

    /// Permissions of a file that is made; 0644 if not set.
    pub fn permissions(self, permissions: u32) -> Self {
        FileOptions { permissions, ..self }
    }
}

/// An open file of the image. It reads, writes and seeks as [`std::fs::File`] does, and may be shared by threads.
///
/// What is written is in memory until [`File::sync_all`], [`FileSystem::sync`](crate::FileSystem::sync) or
/// [`FileSystem::close`](crate::FileSystem::close), or until memory is short.
///
/// What replaces the content of a file that was cut to nothing is written to the image, as part of a transaction of the
/// journal, when the last handle of the open that wrote it is dropped. So a crash does not leave the file empty because
/// another sync has made the cut durable. In a batch, that is left to the batch's commit.
pub struct File {
    open: Arc<Description>,
    at: u64,
    append: bool,
}

/// What the handles of one open share: an open file description, as in open(2).
struct Description {
    inode: Arc<InodeRef>,
    /// A handle has changed the file's content.
    wrote: AtomicBool,
}

impl Description {
    /// The inode, for a call that changes the file's content.
    fn to_write(&self) -> &InodeRef {
        self.wrote.store(true, Ordering::Relaxed);
        &self.inode
    }
}

impl Drop for Description {
    /// F30. An error stays with the file: the next sync of it tells it.
    fn drop(&mut self) {
        // The commit of a batch writes back all that the batch has.
        if !self.wrote.load(Ordering::Relaxed) || !matches!(self.inode.shared.is_in_batch(), Ok(false)) {
            return;
        }
        // Without a log, a crash leaves an image that is thrown away.
        if let Ok(call) = self.inode.call()
            && FileUpdate::is_supported(&call.volume)
        {
            quire_fs::closed(&call.volume, self.inode.ino);
        }
    }
}

impl File {
    fn new(inode: Arc<InodeRef>, options: FileOptions) -> File {
        let open = Arc::new(Description { inode, wrote: AtomicBool::new(false) });
        File { open, at: 0, append: options.append }
    }

    /// Opens the file at the place that `find` finds. A file that another call makes between the search and the
    /// creation is found by the next search, unless the file must be new.
    ///
    /// # Errors
    /// As [`Dir::open_with`](crate::Dir::open_with).
    pub(crate) fn open(mut find: impl FnMut() -> Result<Place>, options: FileOptions) -> Result<File> {
        let mut lost_races = 0;
        loop {
            match File::open_at(find()?, options) {
                Err(e) if e.kind() == ErrorKind::Exists && !options.create_new && lost_races < MAX_LOST_RACES => {
                    lost_races += 1;
                }
                opened => return opened,
            }
        }
    }

    fn open_at(place: Place, options: FileOptions) -> Result<File> {
        if options.create_new || (place.node.is_none() && options.create) {
            if place.must_be_dir {
                return Err(Error::new(ErrorKind::IsADirectory, "is a directory"));
            }
            let inode = make_at(&place.dir, place.vacant()?, NewKind::File, options.permissions)?;
            return Ok(File::new(inode, options));
        }
        let node = place.existing()?;
        if !node.is_type(mode::REG) {
            let directory = node.is_type(mode::DIR);
            return Err(if directory {
                Error::new(ErrorKind::IsADirectory, "is a directory")
            } else {
                Error::new(ErrorKind::InvalidInput, "not a regular file")
            });
        }
        let file = File::new(node.inode.clone(), options);
        if options.truncate {
            file.set_len(0)?;
        }
        Ok(file)
    }

    fn inode(&self) -> &InodeRef {
        &self.open.inode
    }

    /// A second handle on the file, with a position of its own.
    #[must_use]
    pub fn duplicate(&self) -> File {
        File { open: self.open.clone(), ..*self }
    }

    /// Reads bytes at `offset`; less than `buf` holds only at the end of the file.
    ///
    /// # Errors
    /// Corrupt; I/O; stale.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        let inode = self.inode();
        Ok(inode.call()?.volume.read(inode.ino, offset, buf)?)
    }

    /// As [`File::read_at`], for a caller that may soon write what it reads, changed in part: the bytes stay in memory
    /// where the journal would log the difference.
    ///
    /// # Errors
    /// As [`File::read_at`].
    pub fn read_to_change(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        let inode = self.inode();
        Ok(quire_fs::read_to_change(&inode.call()?.volume, inode.ino, offset, buf)?)
    }

    /// Begins an [`Update`] of this file: bytes that become the file's all at once.
    ///
    /// # Errors
    /// Busy: the file has one. Unsupported: there is no journal. Not permitted; read-only; corrupt; I/O; stale.
    pub fn begin_update(&self) -> Result<Update> {
        Update::begin(self.open.inode.clone())
    }

    /// Writes all bytes at `offset`.
    ///
    /// # Errors
    /// File too large; no space; not permitted (immutable, append-only); read-only; corrupt; I/O; stale.
    pub fn write_at(&self, mut bytes: &[u8], mut offset: u64) -> Result<()> {
        let inode = self.open.to_write();
        let call = inode.call()?;
        while !bytes.is_empty() {
            let n = call.volume.write(inode.ino, offset, bytes, WriteFlags::default())?;
            (bytes, offset) = (&bytes[n..], offset + n as u64);
        }
        Ok(())
    }

    /// Writes all bytes at the end of the file, and returns where they end. Appends of other handles do not overwrite
    /// them; they may lie between the parts of an append of more than 1 MiB. Without bytes it returns the size.
    ///
    /// # Errors
    /// As [`File::write_at`].
    pub fn append(&self, mut bytes: &[u8]) -> Result<u64> {
        if bytes.is_empty() {
            return Ok(self.metadata()?.size);
        }
        let inode = self.open.to_write();
        let call = inode.call()?;
        loop {
            let (n, end) = quire_fs::append(&call.volume, inode.ino, bytes, WriteFlags::default())?;
            bytes = &bytes[n..];
            if bytes.is_empty() {
                return Ok(end);
            }
        }
    }

    /// What the file system knows of it.
    ///
    /// # Errors
    /// Corrupt; I/O; stale.
    pub fn metadata(&self) -> Result<Metadata> {
        Ok(Metadata::of(&attributes(self.inode())?))
    }

    /// Changes attributes.
    ///
    /// # Errors
    /// Not permitted (immutable, append-only); read-only; corrupt; I/O; stale.
    pub fn set_metadata(&self, set: SetMetadata) -> Result<()> {
        let inode = self.inode();
        set.apply(&inode.call()?.volume, inode.ino)
    }

    /// Sets the size. What the file grows over reads as zeros.
    ///
    /// # Errors
    /// File too large; not permitted; read-only; corrupt; I/O; stale.
    pub fn set_len(&self, size: u64) -> Result<()> {
        let inode = self.open.to_write();
        Ok(inode.call()?.volume.truncate(inode.ino, size)?)
    }

    /// Gives a range space; the file grows to hold it. What was not written reads as zeros.
    ///
    /// # Errors
    /// No space; unsupported (without extents); read-only; corrupt; I/O; stale.
    pub fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        self.fallocate(Falloc::Allocate { keep_size: false }, offset, len)
    }

    /// Takes the space of a range away; it reads as zeros. The size stays.
    ///
    /// # Errors
    /// As [`File::allocate`].
    pub fn punch_hole(&self, offset: u64, len: u64) -> Result<()> {
        self.fallocate(Falloc::PunchHole, offset, len)
    }

    fn fallocate(&self, how: Falloc, offset: u64, len: u64) -> Result<()> {
        let inode = self.inode();
        Ok(inode.call()?.volume.fallocate(inode.ino, how, offset, len)?)
    }

    /// The next range of data from `offset` on, as start and end; `None`: only a hole follows.
    ///
    /// # Errors
    /// Corrupt; I/O; stale.
    pub fn next_data(&self, offset: u64) -> Result<Option<(u64, u64)>> {
        let inode = self.inode();
        let call = inode.call()?;
        match call.volume.seek(inode.ino, offset, SeekTo::Data) {
            Ok(start) => Ok(Some((start, call.volume.seek(inode.ino, start, SeekTo::Hole)?))),
            Err(quire_fs::Error::NoSuchRange) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    /// Makes data and metadata of the file durable. In a batch, that is left to the batch's commit.
    ///
    /// # Errors
    /// Something could not be written, now or earlier.
    pub fn sync_all(&self) -> Result<()> {
        self.sync(false)
    }

    /// Makes the data durable, and the metadata that is needed to read it.
    ///
    /// # Errors
    /// As [`File::sync_all`].
    pub fn sync_data(&self) -> Result<()> {
        self.sync(true)
    }

    fn sync(&self, data_only: bool) -> Result<()> {
        let inode = self.inode();
        if inode.shared.is_in_batch()? {
            return Ok(());
        }
        Ok(inode.call()?.volume.fsync(inode.ino, data_only)?)
    }
}

impl Read for File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.read_at(buf, self.at)?;
        self.at += n as u64;
        Ok(n)
    }
}

impl Write for File {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.at = if self.append {
            self.append(buf)?
        } else {
            self.write_at(buf, self.at)?;
            self.at + buf.len() as u64
        };
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::Current(d) => self.at.checked_add_signed(d),
            SeekFrom::End(d) => self.metadata()?.size.checked_add_signed(d),
        };
        self.at = at.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "before the start of the file"))?;
        Ok(self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::create::CreateOptions;
    use quire_device::MemDevice;
    use std::path::Path;

    #[test]
    fn open_with_create_finds_the_file_that_another_call_makes_meanwhile() {
        let fs = CreateOptions::new().size(4 << 20).in_memory().unwrap();
        let options = FileOptions::new().create(true);
        let mut searches = 0;
        let find = || {
            let place = fs.place(Path::new("/f"), true)?;
            searches += 1;
            if searches == 1 {
                fs.write("/f", "of another call")?;
            }
            Ok(place)
        };
        let file = File::open(find, options).unwrap();
        assert_eq!(file.metadata().unwrap().size, 15);
        assert_eq!(searches, 2);
    }

    #[test]
    fn close_of_a_replaced_file_without_a_log_writes_nothing() {
        let image = CreateOptions::new().size(4 << 20).in_memory().unwrap().into_bytes().unwrap().unwrap();
        let device = Arc::new(MemDevice::new(image));
        let fs = crate::FileSystem::options().without_journal().open_device(device.clone()).unwrap();
        fs.write("/f", vec![1; 100_000]).unwrap();
        fs.sync().unwrap();
        let file = fs.create_file("/f").unwrap();
        file.write_at(&[2; 100_000], 0).unwrap();
        let before = device.snapshot();
        drop(file);
        assert!(device.snapshot() == before);
    }

    #[test]
    fn open_with_create_ends_where_each_search_misses_the_file() {
        let fs = CreateOptions::new().size(4 << 20).in_memory().unwrap();
        let find = || {
            let mut place = fs.place(Path::new("/f"), true)?;
            fs.write("/f", "")?;
            place.node = None;
            Ok(place)
        };
        let refused = File::open(find, FileOptions::new().create(true)).map(drop).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Exists);
    }
}
