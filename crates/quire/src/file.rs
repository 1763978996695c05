//! Files: bytes at a place, or in sequence.

use crate::error::{Error, ErrorKind, Result};
use crate::metadata::Metadata;
use crate::resolve::{Place, attributes, make_at};
use crate::set_metadata::SetMetadata;
use crate::shared::InodeRef;
use crate::update::Update;
use quire_fs::{Falloc, NewKind, Seek as SeekTo, WriteFlags};
use quire_layout::inode::mode;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::sync::Arc;

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
pub struct File {
    inode: Arc<InodeRef>,
    at: u64,
    append: bool,
}

impl File {
    pub(crate) fn open_at(place: Place, options: FileOptions) -> Result<File> {
        if options.create_new || (place.node.is_none() && options.create) {
            if place.must_be_dir {
                return Err(Error::new(ErrorKind::IsADirectory, "is a directory"));
            }
            let inode = make_at(&place.dir, place.vacant()?, NewKind::File, options.permissions)?;
            return Ok(File { inode, at: 0, append: options.append });
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
        let file = File { inode: node.inode.clone(), at: 0, append: options.append };
        if options.truncate {
            file.set_len(0)?;
        }
        Ok(file)
    }

    /// A second handle on the file, with a position of its own.
    #[must_use]
    pub fn duplicate(&self) -> File {
        File { inode: self.inode.clone(), ..*self }
    }

    /// Reads bytes at `offset`; less than `buf` holds only at the end of the file.
    ///
    /// # Errors
    /// Corrupt; I/O; stale.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        Ok(self.inode.call()?.volume.read(self.inode.ino, offset, buf)?)
    }

    /// As [`File::read_at`], for a caller that may soon write what it reads, changed in part: the bytes stay in memory
    /// where the journal would log the difference.
    ///
    /// # Errors
    /// As [`File::read_at`].
    pub fn read_to_change(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        Ok(quire_fs::read_to_change(&self.inode.call()?.volume, self.inode.ino, offset, buf)?)
    }

    /// Begins an [`Update`] of this file: bytes that become the file's all at once.
    ///
    /// # Errors
    /// Busy: the file has one. Unsupported: there is no journal. Not permitted; read-only; corrupt; I/O; stale.
    pub fn begin_update(&self) -> Result<Update> {
        Update::begin(self.inode.clone())
    }

    /// Writes all bytes at `offset`.
    ///
    /// # Errors
    /// File too large; no space; not permitted (immutable, append-only); read-only; corrupt; I/O; stale.
    pub fn write_at(&self, mut bytes: &[u8], mut offset: u64) -> Result<()> {
        let call = self.inode.call()?;
        while !bytes.is_empty() {
            let n = call.volume.write(self.inode.ino, offset, bytes, WriteFlags::default())?;
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
        let call = self.inode.call()?;
        loop {
            let (n, end) = quire_fs::append(&call.volume, self.inode.ino, bytes, WriteFlags::default())?;
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
        Ok(Metadata::of(&attributes(&self.inode)?))
    }

    /// Changes attributes.
    ///
    /// # Errors
    /// Not permitted (immutable, append-only); read-only; corrupt; I/O; stale.
    pub fn set_metadata(&self, set: SetMetadata) -> Result<()> {
        set.apply(&self.inode.call()?.volume, self.inode.ino)
    }

    /// Sets the size. What the file grows over reads as zeros.
    ///
    /// # Errors
    /// File too large; not permitted; read-only; corrupt; I/O; stale.
    pub fn set_len(&self, size: u64) -> Result<()> {
        Ok(self.inode.call()?.volume.truncate(self.inode.ino, size)?)
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
        Ok(self.inode.call()?.volume.fallocate(self.inode.ino, how, offset, len)?)
    }

    /// The next range of data from `offset` on, as start and end; `None`: only a hole follows.
    ///
    /// # Errors
    /// Corrupt; I/O; stale.
    pub fn next_data(&self, offset: u64) -> Result<Option<(u64, u64)>> {
        let call = self.inode.call()?;
        match call.volume.seek(self.inode.ino, offset, SeekTo::Data) {
            Ok(start) => Ok(Some((start, call.volume.seek(self.inode.ino, start, SeekTo::Hole)?))),
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
        if self.inode.shared.is_in_batch() {
            return Ok(());
        }
        Ok(self.inode.call()?.volume.fsync(self.inode.ino, data_only)?)
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
