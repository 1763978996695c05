//! The one error type of this crate: what went wrong, with which path, in which structure and block.

use quire_layout::Structure;
use std::fmt;
use std::path::{Path, PathBuf};

/// A result whose error is [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What kind of failure an [`Error`] is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// No such file or directory in the image, or no such image.
    NotFound,
    /// The name exists already.
    Exists,
    /// A path component, or the object itself, is no directory.
    NotADirectory,
    /// The object is a directory.
    IsADirectory,
    /// The directory has entries.
    DirectoryNotEmpty,
    /// Following symbolic links does not end.
    TooManySymlinks,
    /// A name leads out of the directory that was given as root.
    OutsideRoot,
    /// A name has more than 255 bytes, or a link's target more than a block holds.
    NameTooLong,
    /// The inode has as many links as ext4 allows.
    TooManyLinks,
    /// The file would be larger than its block map allows.
    FileTooLarge,
    /// The argument makes no sense.
    InvalidInput,
    /// The object is immutable, append-only, or not of a kind that allows this.
    NotPermitted,
    /// The host refuses access to the image or another file.
    PermissionDenied,
    /// No such extended attribute.
    NoAttribute,
    /// The object was freed, or belongs to a batch that was rolled back.
    Stale,
    /// No blocks or inodes are left in the image, or no space on the host.
    NoSpace,
    /// The image may not be changed, or not now.
    ReadOnly,
    /// The image is in use by another process, or the file system is frozen.
    Busy,
    /// The changes of a batch do not fit into one transaction. None of them has happened.
    BatchTooLarge,
    /// The image uses a feature that Quire does not have, or the file system has none that this call needs.
    Unsupported,
    /// A structure of the image breaks the rules of ext4.
    Corrupt,
    /// No ext4 file system.
    NotExt4,
    /// A tar stream, an OCI layout or another input is malformed.
    BadInput,
    /// Reading or writing failed.
    Io,
    /// A program that formatting or checking needs is missing or failed.
    Tool,
    /// The caller asked for the end of the work; what it made has been taken away.
    Cancelled,
}

/// What went wrong, and where.
///
/// ```
/// # use quire::{CreateOptions, ErrorKind};
/// let fs = CreateOptions::new().size(4 << 20).in_memory()?;
/// let error = fs.metadata("/etc/hostname").unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::NotFound);
/// assert_eq!(error.to_string(), "/etc/hostname: no such file or directory");
/// # Ok::<(), quire::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Error {
    kind: ErrorKind,
    path: Option<PathBuf>,
    structure: Option<Structure>,
    block: Option<u64>,
    object: Option<u64>,
    errno: i32,
    of_host: bool,
    what: String,
}

impl std::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = &self.path {
            write!(f, "{}: ", path.display())?;
        }
        f.write_str(&self.what)
    }
}

impl Error {
    /// An error of this kind, described in a few words.
    #[must_use]
    pub fn new(kind: ErrorKind, what: impl Into<String>) -> Self {
        let errno = errno_of(kind);
        Error { kind, path: None, structure: None, block: None, object: None, errno, of_host: false, what: what.into() }
    }

    /// An error of a directory that breaks the tree.
    pub(crate) fn corrupt_dir(ino: u32, why: &str) -> Self {
        let new = Error::new(ErrorKind::Corrupt, format!("corrupt: directory inode {ino} {why}"));
        Error { structure: Some(Structure::DirectoryBlock), object: Some(ino.into()), ..new }
    }

    /// Adds the path that the error is about, unless it has one.
    #[must_use]
    pub fn at(mut self, path: impl AsRef<Path>) -> Self {
        self.path.get_or_insert_with(|| path.as_ref().to_owned());
        self
    }

    /// With the path of a directory in front of its own, which begins there.
    pub(crate) fn below(self, dir: &Path) -> Self {
        let path = self.path.as_ref().map_or_else(|| dir.to_owned(), |own| dir.join(own));
        Error { path: Some(path), ..self }
    }

    /// The same about another path: that of the user's file instead of a temporary one.
    #[must_use]
    pub fn with_path(self, path: impl AsRef<Path>) -> Self {
        Error { path: Some(path.as_ref().to_owned()), ..self }
    }

    /// The same about this file of the host, unless it has a path.
    #[cfg(feature = "archive")]
    pub(crate) fn of_host(self, path: impl AsRef<Path>) -> Self {
        let of_host = self.of_host || self.path.is_none();
        Error { of_host, ..self }.at(path)
    }

    /// True if it is about the host: the path, if there is one, is of the host. Else the path is one in the image.
    #[must_use]
    pub fn is_of_host(&self) -> bool {
        self.of_host
    }

    /// What kind of failure it is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The path in the image, or of the image or a file of the host, that the failed call was about.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The name of the on-disk structure that is damaged, such as `inode` or `directory block`.
    #[must_use]
    pub fn structure(&self) -> Option<String> {
        self.structure.map(|s| s.to_string())
    }

    /// The block of the image that is damaged or could not be read.
    #[must_use]
    pub fn block(&self) -> Option<u64> {
        self.block
    }

    /// The number of the damaged object: of an inode, a group, a log block.
    #[must_use]
    pub fn object(&self) -> Option<u64> {
        self.object
    }

    /// The Linux error number for it.
    #[must_use]
    pub fn errno(&self) -> i32 {
        self.errno
    }

    /// An error of the host about one of its files.
    #[must_use]
    pub fn host(path: impl AsRef<Path>, e: &std::io::Error) -> Self {
        Error::of_io(e, e.to_string()).at(path)
    }

    /// An error of a stream that the caller has given, and that has no path. One of ours inside of it is itself.
    #[cfg(feature = "archive")]
    pub(crate) fn of_stream(what: &str, e: std::io::Error) -> Self {
        e.downcast::<Error>().unwrap_or_else(|e| Error::of_io(&e, format!("{what}: {e}")))
    }

    /// An error of the host that says this.
    pub(crate) fn of_io(e: &std::io::Error, what: String) -> Self {
        use std::io::ErrorKind as K;
        let kind = match e.kind() {
            K::NotFound => ErrorKind::NotFound,
            K::AlreadyExists => ErrorKind::Exists,
            K::PermissionDenied => ErrorKind::PermissionDenied,
            K::NotADirectory => ErrorKind::NotADirectory,
            K::IsADirectory => ErrorKind::IsADirectory,
            K::DirectoryNotEmpty => ErrorKind::DirectoryNotEmpty,
            K::StorageFull => ErrorKind::NoSpace,
            K::ReadOnlyFilesystem => ErrorKind::ReadOnly,
            K::InvalidData | K::UnexpectedEof => ErrorKind::BadInput,
            _ => ErrorKind::Io,
        };
        let new = Error::new(kind, what);
        Error { errno: e.raw_os_error().unwrap_or(new.errno), of_host: true, ..new }
    }
}

fn errno_of(kind: ErrorKind) -> i32 {
    use rustix::io::Errno as E;
    let errno = match kind {
        ErrorKind::NotFound => E::NOENT,
        ErrorKind::Exists => E::EXIST,
        ErrorKind::NotADirectory => E::NOTDIR,
        ErrorKind::IsADirectory => E::ISDIR,
        ErrorKind::DirectoryNotEmpty => E::NOTEMPTY,
        ErrorKind::TooManySymlinks => E::LOOP,
        ErrorKind::OutsideRoot => E::XDEV,
        ErrorKind::NameTooLong => E::NAMETOOLONG,
        ErrorKind::TooManyLinks => E::MLINK,
        ErrorKind::FileTooLarge => E::FBIG,
        ErrorKind::InvalidInput | ErrorKind::BadInput => E::INVAL,
        ErrorKind::NotPermitted => E::PERM,
        ErrorKind::PermissionDenied => E::ACCESS,
        ErrorKind::NoAttribute => E::NODATA,
        ErrorKind::Stale => E::STALE,
        ErrorKind::NoSpace => E::NOSPC,
        ErrorKind::ReadOnly => E::ROFS,
        ErrorKind::Busy | ErrorKind::BatchTooLarge => E::BUSY,
        ErrorKind::Unsupported => E::OPNOTSUPP,
        ErrorKind::Corrupt | ErrorKind::NotExt4 => E::UCLEAN,
        ErrorKind::Io | ErrorKind::Tool => E::IO,
        ErrorKind::Cancelled => E::CANCELED,
    };
    errno.raw_os_error()
}

impl From<quire_fs::Error> for Error {
    fn from(e: quire_fs::Error) -> Self {
        use quire_fs::Error as F;
        let kind = match &e {
            F::Miss(_) | F::Device(_) | F::Journal(_) => ErrorKind::Io,
            F::NoSpaceYet(_) | F::NoSpace | F::NoInodes => ErrorKind::NoSpace,
            F::Frozen | F::Busy(_) => ErrorKind::Busy,
            F::BatchFull { .. } => ErrorKind::BatchTooLarge,
            F::NotExt4(_) => ErrorKind::NotExt4,
            F::Corrupt(_) => ErrorKind::Corrupt,
            F::Unsupported(_) | F::NotSupported(_) => ErrorKind::Unsupported,
            F::ReadOnly(_) => ErrorKind::ReadOnly,
            F::NotFound => ErrorKind::NotFound,
            F::Exists => ErrorKind::Exists,
            F::NotEmpty => ErrorKind::DirectoryNotEmpty,
            F::NotDir => ErrorKind::NotADirectory,
            F::IsDir => ErrorKind::IsADirectory,
            F::NameTooLong => ErrorKind::NameTooLong,
            F::TooManyLinks => ErrorKind::TooManyLinks,
            F::TooLarge | F::UpdateFull { .. } => ErrorKind::FileTooLarge,
            F::Invalid(_) | F::Range | F::TooBig | F::NoSuchRange => ErrorKind::InvalidInput,
            F::NotPermitted(_) => ErrorKind::NotPermitted,
            F::Access => ErrorKind::PermissionDenied,
            F::NoData => ErrorKind::NoAttribute,
            F::Stale(_) => ErrorKind::Stale,
        };
        let mut new = Error { errno: e.errno(), ..Error::new(kind, e.to_string()) };
        if let F::Corrupt(c) = &e {
            (new.structure, new.block, new.object) = (Some(c.structure), c.block.map(|b| b.0), c.object);
        }
        if let F::Device(d) = &e
            && d.kind == quire_device::ErrorKind::NoSpace
        {
            new.kind = ErrorKind::NoSpace;
        }
        new
    }
}

impl From<quire_device::OpenError> for Error {
    fn from(e: quire_device::OpenError) -> Self {
        use quire_device::OpenError as O;
        let kind = match &e {
            O::NotFound(_) => ErrorKind::NotFound,
            O::Permission(_) => ErrorKind::PermissionDenied,
            O::ReadOnly(_) => ErrorKind::ReadOnly,
            O::IsDirectory(_) => ErrorKind::IsADirectory,
            O::Busy { .. } => ErrorKind::Busy,
            O::WrongType(_) | O::BadRange { .. } | O::Unaligned { .. } => ErrorKind::InvalidInput,
            O::Io { .. } => ErrorKind::Io,
        };
        let (path, words) = (e.path(), e.to_string());
        let what = words.strip_prefix(&format!("{}: ", path.display())).unwrap_or(&words);
        Error { errno: e.errno(), of_host: true, ..Error::new(kind, what) }.at(path)
    }
}

impl From<Error> for std::io::Error {
    fn from(e: Error) -> Self {
        use std::io::ErrorKind as K;
        let kind = match e.kind {
            ErrorKind::NotFound => K::NotFound,
            ErrorKind::Exists => K::AlreadyExists,
            ErrorKind::NotADirectory => K::NotADirectory,
            ErrorKind::IsADirectory => K::IsADirectory,
            ErrorKind::DirectoryNotEmpty => K::DirectoryNotEmpty,
            ErrorKind::InvalidInput => K::InvalidInput,
            ErrorKind::NotPermitted | ErrorKind::PermissionDenied => K::PermissionDenied,
            ErrorKind::NoSpace => K::StorageFull,
            ErrorKind::ReadOnly => K::ReadOnlyFilesystem,
            ErrorKind::Busy => K::ResourceBusy,
            ErrorKind::Unsupported => K::Unsupported,
            ErrorKind::Corrupt | ErrorKind::NotExt4 | ErrorKind::BadInput => K::InvalidData,
            _ => K::Other,
        };
        std::io::Error::new(kind, e)
    }
}

/// The error inside of one of `std::io`, with the path.
pub(crate) fn from_io(path: &Path, e: std::io::Error) -> Error {
    match e.downcast::<Error>() {
        Ok(e) => e.at(path),
        Err(e) => Error::host(path, &e),
    }
}
