//! A file or device mapped into memory.
//!
//! Guarantees: unless it is said to be simulated, the mapping was made with `MAP_SYNC`, so that what the processor has
//! written back is durable, file metadata included; otherwise it is refused, with the reason. A memory has one user
//! (M12): a file or `/dev/dax*` is locked with flock, a block device is claimed with `O_EXCL`. A file that becomes
//! shorter while it is mapped is an error ([`Nvram::is_lost`]), and no end of the process.

use super::loss::Watched;
use super::store::{WriteBack, fence};
use super::{Nvram, NvramStats, WORD, lines};
use crate::busy::retry_while_busy;
use crate::holder::{self, Holder};
use rustix::fd::OwnedFd;
use rustix::fs::{FallocateFlags, FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How to open memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NvramOptions {
    /// Any file will do: what is stored survives the process, not the power.
    pub simulated: bool,
    /// Bytes to use; `None`: all. A simulated file is made as large if it is shorter or not there.
    pub size: Option<u64>,
    /// Added to each cache line that is stored.
    pub latency: Duration,
    /// Only look: stores are refused (they panic), and no lock is taken.
    pub read_only: bool,
}

/// Why memory could not be had.
#[derive(Debug, thiserror::Error)]
pub enum NvramError {
    #[error(
        "{}: is no persistent memory ({why}); only with nvram_simulated it is taken for some, and then loses its bytes with the power",
        path.display()
    )]
    NotPersistent { path: PathBuf, why: &'static str },
    #[error("{}: in use by {holder}", path.display())]
    Busy { path: PathBuf, holder: Holder },
    #[error("{}: has {have} bytes; {need} are needed", path.display())]
    TooSmall { path: PathBuf, have: u64, need: u64 },
    #[error("{}: neither a file nor a device of persistent memory", .0.display())]
    WrongType(PathBuf),
    #[error("{}: {what}: {source}", path.display())]
    Io { path: PathBuf, what: &'static str, source: io::Error },
}

/// Mapped memory.
pub struct NvramMap {
    base: *mut u8,
    size: u64,
    how: WriteBack,
    latency: Duration,
    read_only: bool,
    simulated: bool,
    stats: Counters,
    watched: Watched,
    /// Holds the lock.
    _fd: OwnedFd,
}

#[derive(Default)]
struct Counters {
    stores: AtomicU64,
    bytes: AtomicU64,
    lines: AtomicU64,
    fences: AtomicU64,
}

// SAFETY: the mapping belongs to this value alone, lives as long, and is only reached through copies and atomic stores.
unsafe impl Send for NvramMap {}
// SAFETY: as above; who stores to and reads the same bytes at once gets some of either, never undefined values of a
// type.
unsafe impl Sync for NvramMap {}

impl NvramMap {
    /// The least size of a memory, in bytes.
    pub const MIN: u64 = 1 << 20;

    /// Opens, locks and maps memory.
    ///
    /// # Errors
    /// It is none, in use, too small, or cannot be opened or mapped.
    pub fn open(path: impl AsRef<Path>, options: NvramOptions) -> Result<Self, NvramError> {
        let path = path.as_ref();
        let write = !options.read_only;
        let (fd, stat) = open_and_lock(path, options)?;
        let size = size_of(path, &fd, &stat, options)?;
        let wanted = options.size.unwrap_or(size);
        if size < wanted || wanted < Self::MIN {
            return Err(NvramError::TooSmall {
                path: path.to_owned(),
                have: size.min(wanted),
                need: wanted.max(Self::MIN),
            });
        }
        let size = wanted - wanted % 4096;
        let how = WriteBack::detect();
        let refused = |why| NvramError::NotPersistent { path: path.to_owned(), why };
        if !options.simulated && how == WriteBack::Unknown {
            return Err(refused("this processor has no instruction that writes a cache line back"));
        }
        let mut kind = if options.simulated { MapFlags::SHARED } else { MapFlags::SHARED_VALIDATE | MapFlags::SYNC };
        if write {
            // Mapped now, or each commit into a page that was never touched would pay for a fault.
            kind |= MapFlags::POPULATE;
        }
        let protection = if write { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        let len = usize::try_from(size).map_err(|_| refused("larger than the address space"))?;
        // SAFETY: a new mapping at an address that the kernel chooses; it is unmapped when this value is dropped.
        let mapped = unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, protection, kind, &fd, 0) };
        let base = mapped.map_err(|e| match e {
            Errno::OPNOTSUPP | Errno::INVAL if !options.simulated => {
                refused(match FileType::from_raw_mode(stat.st_mode) {
                    FileType::BlockDevice => {
                        "MAP_SYNC is refused: Linux maps no block device so; take a file on a file system on it, mounted -o dax, or make it \
                         a /dev/dax device (ndctl create-namespace -m devdax)"
                    }
                    _ => "MAP_SYNC is refused: it is not on a DAX file system, and no DAX device",
                })
            }
            e => NvramError::Io { path: path.to_owned(), what: "mmap", source: e.into() },
        })?;
        tracing::debug!(path = %path.display(), size, stores = how.name(), "memory mapped");
        Ok(NvramMap {
            base: base.cast(),
            size,
            how,
            latency: options.latency,
            read_only: options.read_only,
            simulated: options.simulated,
            stats: Counters::default(),
            watched: Watched::new(base.addr(), len),
            _fd: fd,
        })
    }

    /// As [`NvramMap::open`], for who takes what there is: any file, if it is no persistent memory.
    ///
    /// # Errors
    /// As [`NvramMap::open`].
    pub fn open_any(path: impl AsRef<Path>, options: NvramOptions) -> Result<Self, NvramError> {
        match Self::open(&path, options) {
            Err(NvramError::NotPersistent { .. }) => Self::open(path, NvramOptions { simulated: true, ..options }),
            other => other,
        }
    }

    /// What is stored may be lost with the power.
    #[must_use]
    pub fn is_simulated(&self) -> bool {
        self.simulated
    }

    /// The instructions that store.
    #[must_use]
    pub fn stores_by(&self) -> &'static str {
        self.how.name()
    }

    fn range(&self, at: u64, len: usize) -> *mut u8 {
        let end = at.checked_add(len as u64);
        assert!(end.is_some_and(|end| end <= self.size), "{len} bytes at {at} of a memory of {}", self.size);
        // SAFETY: inside the mapping, as was just seen.
        unsafe { self.base.add(usize::try_from(at).expect("mapped")) }
    }
}

/// Opens memory. What will be written is locked.
fn open_and_lock(path: &Path, options: NvramOptions) -> Result<(OwnedFd, Stat), NvramError> {
    let failed = |what| move |e: Errno| NvramError::Io { path: path.to_owned(), what, source: e.into() };
    let write = !options.read_only;
    // The claim is a part of the open, and to O_CREAT that flag means something else.
    let device = rustix::fs::stat(path).ok().filter(|s| write && is_block_device(s));
    let mut flags = OFlags::CLOEXEC | OFlags::NOCTTY | if write { OFlags::RDWR } else { OFlags::RDONLY };
    if device.is_some() {
        flags |= OFlags::EXCL;
    } else if options.simulated && options.size.is_some() && write {
        flags |= OFlags::CREATE;
    }
    let fd = match (retry_while_busy(|| rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)), device) {
        (Err(Errno::BUSY), Some(stat)) => {
            let holder = holder::device_holder(stat.st_rdev);
            return Err(NvramError::Busy { path: path.to_owned(), holder });
        }
        (opened, _) => opened.map_err(failed("open"))?,
    };
    let stat = rustix::fs::fstat(&fd).map_err(failed("fstat"))?;
    if write && device.is_none() {
        if is_block_device(&stat) {
            // It took the place of something else just now, and is not claimed.
            return Err(NvramError::WrongType(path.to_owned()));
        }
        lock(path, &fd, &stat)?;
    }
    Ok((fd, stat))
}

fn is_block_device(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice
}

/// Bytes of opened memory.
fn size_of(path: &Path, fd: &OwnedFd, stat: &Stat, options: NvramOptions) -> Result<u64, NvramError> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => file_size(path, fd, stat, options),
        FileType::BlockDevice => rustix::fs::seek(fd, rustix::fs::SeekFrom::End(0)).map_err(|e| NvramError::Io {
            path: path.to_owned(),
            what: "size",
            source: e.into(),
        }),
        FileType::CharacterDevice => character_size(stat.st_rdev).ok_or_else(|| NvramError::WrongType(path.to_owned())),
        _ => Err(NvramError::WrongType(path.to_owned())),
    }
}

/// One user at a time.
fn lock(path: &Path, fd: &OwnedFd, stat: &Stat) -> Result<(), NvramError> {
    match retry_while_busy(|| rustix::fs::flock(fd, FlockOperation::NonBlockingLockExclusive)) {
        Err(Errno::WOULDBLOCK) => Err(NvramError::Busy { path: path.to_owned(), holder: holder::lock_holder(stat) }),
        Err(e) if !matches!(e, Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS) => {
            Err(NvramError::Io { path: path.to_owned(), what: "flock", source: e.into() })
        }
        _ => Ok(()),
    }
}

/// The size of a file; a simulated one gets the blocks that it needs, or a store into a hole of a full host would kill
/// us.
fn file_size(path: &Path, fd: &OwnedFd, stat: &Stat, options: NvramOptions) -> Result<u64, NvramError> {
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    if !options.simulated || options.read_only {
        return Ok(size);
    }
    let wanted = size.max(options.size.unwrap_or(0));
    match rustix::fs::fallocate(fd, FallocateFlags::empty(), 0, wanted) {
        Ok(()) => Ok(wanted),
        Err(Errno::OPNOTSUPP | Errno::INVAL) => Ok(size),
        Err(e) => Err(NvramError::Io { path: path.to_owned(), what: "allocating it", source: e.into() }),
    }
}

/// The size of a `/dev/dax*`.
fn character_size(rdev: u64) -> Option<u64> {
    let (major, minor) = (rustix::fs::major(rdev), rustix::fs::minor(rdev));
    std::fs::read_to_string(format!("/sys/dev/char/{major}:{minor}/size")).ok()?.trim().parse().ok()
}

impl Nvram for NvramMap {
    fn size(&self) -> u64 {
        self.size
    }

    fn fresh_uuid(&self) -> [u8; 16] {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap_or_default();
        let digits: Vec<u8> = text.bytes().filter_map(|b| char::from(b).to_digit(16)?.try_into().ok()).collect();
        let mut uuid = [0; 16];
        uuid.iter_mut().zip(digits.chunks_exact(2)).for_each(|(u, d)| *u = d[0] << 4 | d[1]);
        uuid
    }

    fn read(&self, at: u64, buf: &mut [u8]) {
        let from = self.range(at, buf.len());
        // SAFETY: `range` has checked the source; `buf` is elsewhere.
        unsafe { std::ptr::copy_nonoverlapping(from, buf.as_mut_ptr(), buf.len()) };
    }

    fn store(&self, at: u64, bytes: &[u8]) {
        assert!(!self.read_only, "this memory is only read");
        assert!(at.is_multiple_of(WORD) && (bytes.len() as u64).is_multiple_of(WORD), "stores are of whole words");
        let to = self.range(at, bytes.len());
        // SAFETY: `range` has checked the target; it is aligned to a word, since mappings begin with a page.
        unsafe { self.how.copy(to, bytes) };
        let lines = lines(at, bytes.len());
        let count = |c: &AtomicU64, n| c.fetch_add(n, Ordering::Relaxed);
        count(&self.stats.stores, 1);
        count(&self.stats.bytes, bytes.len() as u64);
        count(&self.stats.lines, lines);
        if !self.latency.is_zero() {
            let until = Instant::now() + self.latency * u32::try_from(lines).unwrap_or(u32::MAX);
            while Instant::now() < until {
                std::hint::spin_loop();
            }
        }
    }

    fn fence(&self) {
        fence();
        self.stats.fences.fetch_add(1, Ordering::Relaxed);
    }

    fn is_lost(&self) -> bool {
        self.watched.is_lost()
    }

    fn stats(&self) -> NvramStats {
        let get = |c: &AtomicU64| c.load(Ordering::Relaxed);
        let f = &self.stats;
        NvramStats { stores: get(&f.stores), bytes: get(&f.bytes), lines: get(&f.lines), fences: get(&f.fences) }
    }
}

impl Drop for NvramMap {
    fn drop(&mut self) {
        // The place may be another's before it is forgotten as ours: the handler would take its errors for ours.
        self.watched = Watched::none();
        let len = usize::try_from(self.size).expect("mapped");
        // SAFETY: the mapping that `open` made; nobody has a pointer to it any more.
        unsafe { rustix::mm::munmap(self.base.cast(), len).ok() };
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_is_in_the_file_and_read_again() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let options = NvramOptions { simulated: true, size: Some(1 << 20), ..NvramOptions::default() };
        let m = NvramMap::open(file.path(), options).unwrap();
        assert!(m.is_simulated() && m.size() == 1 << 20);
        m.store(4088, &[7; 128]);
        m.fence();
        assert!(matches!(NvramMap::open(file.path(), options), Err(NvramError::Busy { .. })), "one user");
        let stats = m.stats();
        assert_eq!((stats.stores, stats.bytes, stats.lines, stats.fences), (1, 128, 3, 1));
        assert_ne!(m.fresh_uuid(), m.fresh_uuid());
        drop(m);
        let bytes = std::fs::read(file.path()).unwrap();
        assert!(bytes[4088..4216].iter().all(|b| *b == 7) && bytes[4216] == 0 && bytes.len() == 1 << 20);
        let m = NvramMap::open(file.path(), NvramOptions { read_only: true, ..options }).unwrap();
        let mut again = [0; 16];
        m.read(4200, &mut again);
        assert_eq!(again, [7; 16]);
    }

    /// M12. No host of tests has a `/dev/dax*`: what is no memory is locked before its size is asked for.
    #[test]
    fn a_character_device_has_one_user() {
        let open = || NvramMap::open("/dev/full", NvramOptions::default());
        let other = std::fs::File::open("/dev/full").unwrap();
        rustix::fs::flock(&other, FlockOperation::LockExclusive).unwrap();
        assert!(matches!(open(), Err(NvramError::Busy { .. })));
        drop(other);
        assert!(matches!(open(), Err(NvramError::WrongType(_))));
    }

    #[test]
    fn a_file_that_is_truncated_under_its_mapping_is_a_lost_memory_and_no_end() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let options = NvramOptions { simulated: true, size: Some(1 << 20), ..NvramOptions::default() };
        let m = NvramMap::open(file.path(), options).unwrap();
        m.store(1 << 19, &[7; 8192]);
        m.fence();
        file.as_file().set_len(8192).unwrap();
        assert!(!m.is_lost(), "nobody has looked");
        m.store(1 << 19, &[8; 8192]);
        m.fence();
        assert!(m.is_lost());
        let mut read = [1; 64];
        m.read((1 << 20) - 64, &mut read);
        assert_eq!(read, [0; 64]);
        drop(m);
        let m = NvramMap::open(file.path(), options).unwrap();
        m.store(1 << 19, &[8; 64]);
        assert!(!m.is_lost(), "the file has its length again");
    }

    #[test]
    fn what_is_no_memory_is_refused_with_the_reason() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        let e = NvramMap::open(file.path(), NvramOptions::default()).err().unwrap().to_string();
        assert!(e.contains("MAP_SYNC") && e.contains("nvram_simulated"), "{e}");
        let small = NvramOptions { simulated: true, size: Some(4096), ..NvramOptions::default() };
        assert!(matches!(NvramMap::open(file.path(), small), Err(NvramError::TooSmall { .. })));
        assert!(matches!(NvramMap::open("/dev/null", small), Err(NvramError::WrongType(_))));
        assert!(NvramMap::open("/nowhere", NvramOptions::default()).is_err());
    }
}
