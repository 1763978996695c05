//! How an image is opened.

use crate::error::{Error, ErrorKind, Result};
use crate::fs::FileSystem;
use crate::metadata::{Timestamp, check_owner};
use crate::partition;
use crate::shared::{HostFile, Opened};
use quire_device::MemDevice;
use quire_device::sync::Arc;
use quire_device::{BlockDevice, Clock, FileDevice, SystemClock};
use quire_fs::{Choices, Devices, Options, Profile, Route, first_superblock};
use quire_layout::features::incompat;
use std::path::Path;
use std::time::Duration;

/// Memory for blocks and file data unless told otherwise, in bytes: the metadata of an image with a hundred thousand
/// files, and a transaction of 16 MiB.
const CACHE_BYTES: u64 = 64 << 20;

/// How to open an image: a builder.
///
/// ```no_run
/// use quire::FileSystem;
/// let fs = FileSystem::options().read_only(true).partition(2).open("sdcard.img")?;
/// for entry in fs.read_dir("/")? {
///     println!("{}", entry.name.to_string_lossy());
/// }
/// # Ok::<(), quire::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct OpenOptions {
    read_only: bool,
    offset: u64,
    size: Option<u64>,
    partition: Option<u32>,
    cache_bytes: u64,
    owner: (u32, u32),
    time: Option<Timestamp>,
    journaled: bool,
    quire_log: bool,
    direct: bool,
}

impl Default for OpenOptions {
    fn default() -> Self {
        OpenOptions {
            read_only: false,
            offset: 0,
            size: None,
            partition: None,
            cache_bytes: CACHE_BYTES,
            owner: (0, 0),
            time: None,
            journaled: true,
            quire_log: false,
            direct: false,
        }
    }
}

impl FileSystem {
    /// Opens an image file or a block device for reading and writing, and recovers it if a crash has left it dirty.
    ///
    /// # Errors
    /// Not found; permission denied; busy (in use by another process, or mounted); no ext4; unsupported feature;
    /// corrupt; I/O.
    pub fn open(path: impl AsRef<Path>) -> Result<FileSystem> {
        OpenOptions::new().open(path)
    }

    /// As [`FileSystem::open`], with choices.
    pub fn options() -> OpenOptions {
        OpenOptions::new()
    }
}

impl OpenOptions {
    pub fn new() -> Self {
        OpenOptions::default()
    }

    /// Changes nothing. A dirty image is recovered first, if that is permitted, and refused otherwise.
    pub fn read_only(self, yes: bool) -> Self {
        OpenOptions { read_only: yes, ..self }
    }

    /// Where the file system begins in the image, in bytes.
    pub fn offset(self, bytes: u64) -> Self {
        OpenOptions { offset: bytes, ..self }
    }

    /// The size of the file system's part of the image, in bytes, if it does not reach to the end.
    pub fn size_limit(self, bytes: u64) -> Self {
        OpenOptions { size: Some(bytes), ..self }
    }

    /// The file system lies in partition `n` of the image, counted from 1, by its GPT or MBR.
    pub fn partition(self, n: u32) -> Self {
        OpenOptions { partition: Some(n), ..self }
    }

    /// Memory for blocks and file data, in bytes; 64 MiB if not set. A batch may take half of it.
    pub fn cache_size(self, bytes: u64) -> Self {
        OpenOptions { cache_bytes: bytes.max(1 << 20), ..self }
    }

    /// Owner and group of what is made; root if not set.
    pub fn owner(self, uid: u32, gid: u32) -> Self {
        OpenOptions { owner: (uid, gid), ..self }
    }

    /// The time of all changes, instead of the clock's. With it, the same calls on the same image give the same bytes.
    pub fn time(self, t: Timestamp) -> Self {
        OpenOptions { time: Some(t), ..self }
    }

    /// Without the journal: fastest, and a crash leaves an image that is to be thrown away. For an image that is being
    /// built under a temporary name.
    pub fn without_journal(self) -> Self {
        OpenOptions { journaled: false, ..self }
    }

    /// Commits with one flush, in the log of `data=auto`, instead of ext4's own log. After a crash only Quire can
    /// recover the image: the kernel and e2fsck refuse it until then. A closed image is plain ext4 either way.
    pub fn quire_log(self, yes: bool) -> Self {
        OpenOptions { quire_log: yes, ..self }
    }

    /// Goes past the host's page cache (`O_DIRECT`) where the host can. That is faster where each change is made
    /// durable before the next, and slower for many small reads in a row.
    pub fn direct(self, yes: bool) -> Self {
        OpenOptions { direct: yes, ..self }
    }

    /// Opens an image file or a block device.
    ///
    /// # Errors
    /// As [`FileSystem::open`]; invalid: no such partition, or no such owner.
    pub fn open(self, path: impl AsRef<Path>) -> Result<FileSystem> {
        let path = path.as_ref();
        let opened = || {
            // No error comes between the lock and the file system that gives it up.
            self.check()?;
            let device = self.device(path)?;
            FileSystem::new(Opened { image: HostFile::at(path), owns_lock: true, ..self.opened(device, None) })
        };
        opened().map_err(|e: Error| e.at(path))
    }

    /// Opens an image in memory; [`FileSystem::into_bytes`] returns it.
    ///
    /// # Errors
    /// No ext4; unsupported feature; corrupt; invalid: no such partition, or no such owner.
    pub fn open_bytes(self, image: impl Into<Vec<u8>>) -> Result<FileSystem> {
        self.check()?;
        let mut image: Vec<u8> = image.into();
        if self.offset != 0 || self.partition.is_some() || self.size.is_some() {
            let (start, len) = match self.partition {
                Some(n) => partition::find(&mut std::io::Cursor::new(&image), n)?,
                None => (self.offset, self.size.unwrap_or(u64::MAX)),
            };
            let bad = || Error::new(ErrorKind::InvalidInput, "the file system would lie outside the image");
            let start = usize::try_from(start).ok().filter(|s| *s <= image.len()).ok_or_else(bad)?;
            image.drain(..start);
            image.truncate(usize::try_from(len).unwrap_or(usize::MAX));
        }
        let memory = Arc::new(MemDevice::new(image));
        FileSystem::new(self.opened(memory.clone(), Some(memory)))
    }

    /// Opens a device of the caller's: one in a test, or one that reaches its bytes by other means. Offset, size and
    /// partition do not apply. Keeping others off the bytes is the caller's business: a lock on the device stays.
    ///
    /// # Errors
    /// No ext4; unsupported feature; corrupt; invalid: no such owner; I/O.
    pub fn open_device(self, device: Arc<dyn BlockDevice>) -> Result<FileSystem> {
        self.check()?;
        FileSystem::new(self.opened(device, None))
    }

    /// # Errors
    /// Invalid: no such owner.
    fn check(&self) -> Result<()> {
        check_owner(Some(self.owner.0), Some(self.owner.1))
    }

    fn opened(&self, device: Arc<dyn BlockDevice>, memory: Option<Arc<MemDevice>>) -> Opened {
        let clock: Arc<dyn Clock> = match self.time {
            Some(t) => Arc::new(FixedTime(t)),
            None => Arc::new(SystemClock),
        };
        let choices = match (self.journaled, self.quire_log) {
            (false, _) => Choices::of_route(Route::None),
            (true, false) => Choices::of_route(Route::Overwrite),
            (true, true) => Profile::Auto.choices(),
        };
        let options = Options { read_only: self.read_only, cache_bytes: self.cache_bytes, ..Options::default() };
        let (options, owner) = (options.with(choices), self.owner);
        Opened { device, memory, clock, options, owner, image: None, owns_lock: false }
    }

    fn device(&self, path: &Path) -> Result<Arc<dyn BlockDevice>> {
        let (offset, size) = match self.partition {
            Some(n) => {
                let mut file = std::fs::File::open(path).map_err(|e| Error::host(path, &e))?;
                let (start, len) = partition::find(&mut file, n)?;
                (start, Some(len))
            }
            None => (self.offset, self.size),
        };
        let how =
            quire_device::OpenOptions { read_only: self.read_only, offset, size, direct: self.direct, lock: true };
        let device: Arc<dyn BlockDevice> = Arc::new(FileDevice::open(path, how)?);
        if self.read_only && is_dirty(&device) { open_to_recover(device, path, how) } else { Ok(device) }
    }
}

/// Opens an image for writing that was opened for reading, and is dirty.
///
/// # Errors
/// Read-only.
fn open_to_recover(
    device: Arc<dyn BlockDevice>,
    path: &Path,
    how: quire_device::OpenOptions,
) -> Result<Arc<dyn BlockDevice>> {
    // A child that was forked meanwhile has the same open file, which keeps the lock after the drop.
    device.unlock();
    drop(device);
    match FileDevice::open(path, quire_device::OpenOptions { read_only: false, ..how }) {
        Ok(device) => Ok(Arc::new(device)),
        Err(e) => {
            let why = format!("the image is dirty and must be recovered first, but cannot be written: {e}");
            Err(Error::new(ErrorKind::ReadOnly, why))
        }
    }
}

/// True if the journal must be replayed. What cannot be told is told by the open that follows.
fn is_dirty(device: &Arc<dyn BlockDevice>) -> bool {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let sb = first_superblock(&Devices::one(device.clone()), &clock);
    sb.is_ok_and(|sb| sb.features().has_incompat(incompat::RECOVER | incompat::QUIRE_LOG))
}

/// The system's clock, but for the times that files and superblocks get.
struct FixedTime(Timestamp);

impl Clock for FixedTime {
    fn monotonic(&self) -> Duration {
        SystemClock.monotonic()
    }

    fn realtime(&self) -> Duration {
        Duration::new(u64::try_from(self.0.secs).unwrap_or(0), self.0.nanos)
    }

    fn sleep(&self, d: Duration) {
        SystemClock.sleep(d);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::create::CreateOptions;
    use std::path::PathBuf;

    fn image() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        CreateOptions::new().size(4 << 20).create(&path).unwrap().close().unwrap();
        (dir, path)
    }

    /// True if another open of the image is refused because it is locked.
    fn is_locked(path: &Path) -> bool {
        FileSystem::open(path).is_err_and(|e| e.kind() == ErrorKind::Busy)
    }

    /// A device of the caller's.
    fn locked(path: &Path) -> Arc<dyn BlockDevice> {
        Arc::new(FileDevice::open(path, quire_device::OpenOptions::default()).unwrap())
    }

    #[test]
    fn close_leaves_the_lock_of_a_device_of_the_callers() {
        let (_dir, path) = image();
        let device = locked(&path);
        FileSystem::options().open_device(device.clone()).unwrap().close().unwrap();
        assert!(is_locked(&path));
        drop(device);
        assert!(!is_locked(&path));
    }

    #[test]
    fn failed_open_leaves_the_lock_of_a_device_of_the_callers() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("zeros");
        std::fs::write(&path, vec![0; 1 << 20]).unwrap();
        let device = locked(&path);
        assert!(FileSystem::options().open_device(device.clone()).is_err());
        assert!(is_locked(&path));
        drop(device);
        assert!(!is_locked(&path));
    }

    /// An error behind it would have to give up the lock.
    #[test]
    fn owner_is_checked_before_the_image_is_opened() {
        let refused = FileSystem::options().owner(u32::MAX, 0).open("/no/such/image").map(drop).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{refused}");
    }

    /// M3. `kept` is the open file as a forked child has it.
    #[test]
    fn dirty_image_is_opened_for_writing_while_a_forked_child_has_its_descriptor() {
        let (_dir, path) = image();
        let how = quire_device::OpenOptions { read_only: true, ..Default::default() };
        let device: Arc<dyn BlockDevice> = Arc::new(FileDevice::open(&path, how).unwrap());
        let kept = device.clone();
        assert!(!open_to_recover(device, &path, how).unwrap().info().read_only);
        drop(kept);
    }
}
