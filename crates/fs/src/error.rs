//! Errors of the file system: typed, each with one errno.

use quire_device::{DeviceError, ErrorKind, IoOp};
use quire_journal as journal;
use quire_layout::{BlockNo, Corrupt, Ino, NotExt4, Tid, Unsupported};

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong with a call.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// These blocks are not in memory; the operation is run again when they are. Only for callers through a handle
    /// [`without_waiting`](crate::without_waiting).
    #[error("blocks {0:?} are not in memory")]
    Miss(Vec<BlockNo>),
    /// Internal: no space, but blocks freed up to this transaction become usable when it is durable.
    #[error("no space before {0} is durable")]
    NoSpaceYet(Tid),

    /// Internal: the volume is frozen; the operation is run again after the thaw.
    #[error("the volume is frozen")]
    Frozen,

    #[error("{0}")]
    NotExt4(#[from] NotExt4),
    #[error("{0}")]
    Corrupt(#[from] Corrupt),
    #[error("{0}")]
    Unsupported(#[from] Unsupported),
    #[error("{0}")]
    Device(#[from] DeviceError),
    #[error("{0}")]
    Journal(#[from] journal::Error),
    #[error("no space left")]
    NoSpace,
    #[error("no inodes left")]
    NoInodes,
    /// The calls of a batch need more than one transaction holds.
    #[error("the batch is larger than a transaction, which holds {limit} blocks")]
    BatchFull { limit: usize },
    /// An atomic update of a file needs more than one transaction holds, or than all updates may have in memory.
    #[error("the atomic update is larger than {limit} blocks, or others hold too much")]
    UpdateFull { limit: usize },
    #[error("busy: {0}")]
    Busy(String),
    #[error("read-only: {0}")]
    ReadOnly(String),
    #[error("no such file or directory")]
    NotFound,
    #[error("file exists")]
    Exists,
    #[error("directory not empty")]
    NotEmpty,
    #[error("not a directory")]
    NotDir,
    #[error("is a directory")]
    IsDir,
    #[error("name too long")]
    NameTooLong,
    #[error("too many links")]
    TooManyLinks,
    #[error("file too large")]
    TooLarge,
    #[error("invalid argument: {0}")]
    Invalid(&'static str),
    #[error("operation not permitted: {0}")]
    NotPermitted(&'static str),
    #[error("permission denied")]
    Access,
    #[error("no such attribute")]
    NoData,
    #[error("result too large for the buffer")]
    Range,
    #[error("argument too long")]
    TooBig,
    #[error("no such device or address")]
    NoSuchRange,
    #[error("stale file handle: {0}")]
    Stale(Ino),
    #[error("not supported: {0}")]
    NotSupported(&'static str),
}

/// Linux error numbers that we answer with.
mod errno {
    pub(super) const EPERM: i32 = 1;
    pub(super) const ENOENT: i32 = 2;
    pub(super) const EIO: i32 = 5;
    pub(super) const ENXIO: i32 = 6;
    pub(super) const E2BIG: i32 = 7;
    pub(super) const EACCES: i32 = 13;
    pub(super) const EBUSY: i32 = 16;
    pub(super) const EEXIST: i32 = 17;
    pub(super) const ENODEV: i32 = 19;
    pub(super) const ENOTDIR: i32 = 20;
    pub(super) const EISDIR: i32 = 21;
    pub(super) const EINVAL: i32 = 22;
    pub(super) const EFBIG: i32 = 27;
    pub(super) const ENOSPC: i32 = 28;
    pub(super) const EROFS: i32 = 30;
    pub(super) const EMLINK: i32 = 31;
    pub(super) const ERANGE: i32 = 34;
    pub(super) const ENAMETOOLONG: i32 = 36;
    pub(super) const ENOTEMPTY: i32 = 39;
    pub(super) const ENODATA: i32 = 61;
    pub(super) const EOPNOTSUPP: i32 = 95;
    pub(super) const ESTALE: i32 = 116;
    pub(super) const EUCLEAN: i32 = 117;
}

impl Error {
    /// True if what the disk has is damaged or cannot be read: what lies elsewhere may be sound.
    pub(crate) fn is_damage(&self) -> bool {
        match self {
            Error::Corrupt(_) => true,
            Error::Device(e) | Error::Journal(journal::Error::Device(e)) => e.op == IoOp::Read,
            _ => false,
        }
    }

    /// The Linux error number for this error.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Error::Corrupt(_) | Error::NotExt4(_) => errno::EUCLEAN,
            Error::Unsupported(_) | Error::NotSupported(_) => errno::EOPNOTSUPP,
            Error::Device(e) => device_errno(e),
            Error::Journal(e) => journal_errno(e),
            Error::NoSpace | Error::NoInodes | Error::NoSpaceYet(_) => errno::ENOSPC,
            Error::BatchFull { .. } | Error::Busy(_) | Error::Frozen => errno::EBUSY,
            Error::ReadOnly(_) => errno::EROFS,
            Error::NotFound => errno::ENOENT,
            Error::Exists => errno::EEXIST,
            Error::NotEmpty => errno::ENOTEMPTY,
            Error::NotDir => errno::ENOTDIR,
            Error::IsDir => errno::EISDIR,
            Error::NameTooLong => errno::ENAMETOOLONG,
            Error::TooManyLinks => errno::EMLINK,
            Error::TooLarge | Error::UpdateFull { .. } => errno::EFBIG,
            Error::Invalid(_) => errno::EINVAL,
            Error::NotPermitted(_) => errno::EPERM,
            Error::Access => errno::EACCES,
            Error::NoData => errno::ENODATA,
            Error::Range => errno::ERANGE,
            Error::TooBig => errno::E2BIG,
            Error::NoSuchRange => errno::ENXIO,
            Error::Stale(_) => errno::ESTALE,
            Error::Miss(_) => errno::EIO,
        }
    }
}

fn device_errno(e: &DeviceError) -> i32 {
    match e.kind {
        ErrorKind::NoSpace => errno::ENOSPC,
        ErrorKind::ReadOnly => errno::EROFS,
        ErrorKind::Gone => errno::ENODEV,
        ErrorKind::Io | ErrorKind::OutOfRange => errno::EIO,
    }
}

fn journal_errno(e: &journal::Error) -> i32 {
    match e {
        journal::Error::Corrupt(_) => errno::EUCLEAN,
        journal::Error::Nvram(journal::NvramProblem::Lost) => errno::EIO,
        journal::Error::Nvram(_) => errno::EINVAL,
        journal::Error::Unsupported(_) => errno::EOPNOTSUPP,
        journal::Error::TooLarge { .. } | journal::Error::TooSmall { .. } => errno::ENOSPC,
        // Whatever stopped the journal: what was written since cannot become durable.
        journal::Error::Device(_) | journal::Error::Aborted(_) | journal::Error::ShutDown => errno::EIO,
    }
}
