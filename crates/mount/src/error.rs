//! Why a mount did not come about, or did not end well, and the exit code of mount(8) for it.

use crate::mounting::AttachError;
use crate::options::OptionError;
use crate::sandbox::SandboxError;
use crate::transport_choice::TransportError;
use quire_device::OpenError;
use quire_device::nvram::NvramError;
use rustix::io::Errno;
use std::path::PathBuf;

/// Why a mount did not come about, or did not end well.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    #[error("{}: {}", path.display(), crate::fail::words(*source))]
    Path { path: PathBuf, source: Errno },
    #[error("{}: not a directory", .0.display())]
    NotDirectory(PathBuf),
    #[error("{}: {}{}", path.display(), crate::fail::words(*source),
        if *source == Errno::EXIST { ": another mount has the image in use (remove the file if none has)" } else { "" })]
    LockFile { path: PathBuf, source: Errno },
    #[error("{}: the mount of a daemon that has died is still there: take it away with quire umount", .0.display())]
    DeadMount(PathBuf),
    #[error("{}: in use: mounted on {} already; to have it in another place too: mount --bind {} DIR",
        image.display(), dir.display(), dir.display())]
    MountedAlready { image: PathBuf, dir: PathBuf },
    #[error("{0}")]
    Open(#[from] OpenError),
    #[error("{0}")]
    Nvram(#[from] NvramError),
    #[error("{}: {source}", image.display())]
    Volume { image: PathBuf, source: quire_fs::Error },
    #[error("{}: {what}", image.display())]
    Image { image: PathBuf, what: String },
    #[error("{}: {source}", dir.display())]
    Attach { dir: PathBuf, source: AttachError },
    #[error("{0}")]
    Transport(#[from] TransportError),
    #[error("{0}")]
    Sandbox(#[from] SandboxError),
    #[error("the FUSE session ended: {}", crate::fail::words(*.0))]
    Session(Errno),
    #[error("{0}")]
    Options(#[from] OptionError),
    #[error("the address space is limited to {limit} MiB (ulimit -v), and {need} MiB are needed; see also cache_size=")]
    AddressSpace { limit: u64, need: u64 },
    #[error("{0}")]
    System(#[from] std::io::Error),
    #[error("{}: unmounted, but not clean: {source}", image.display())]
    NotClean { image: PathBuf, source: quire_fs::Error },
}

impl MountError {
    /// The exit code that mount(8) has for it.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            MountError::Options(_) | MountError::Transport(_) | MountError::Sandbox(_) => 1,
            MountError::System(_) | MountError::AddressSpace { .. } => 2,
            MountError::Attach { source: AttachError::NoFuse(_) | AttachError::NoHelper(_), .. } => 2,
            MountError::Attach { source: AttachError::Mount(Errno::PERM), .. } => 1,
            _ => 32,
        }
    }
}
