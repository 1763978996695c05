//! How other processes talk to a mount: a unix socket of the daemon's own, so that a mount that is frozen, hung or
//! hidden under another can still be asked.
//!
//! ```text
//! quire thaw DIR ─> /proc/self/mountinfo: device 0:57 ─> DIRECTORY/0:57.sock ─> listener ─> one thread a client
//! ```
//! A connection is one request and one reply, each a line of JSON. The directory is `/run/quire` for root, else `quire`
//! in `$XDG_RUNTIME_DIR`, else `/tmp/quire-UID`.
//!
//! *Guarantees*: P2: a client trusts only a socket of root or of the user who mounted, and the daemon does only what
//! the peer may (see `control::listener`).

mod client;
pub(crate) mod listener;
mod place;

pub use client::{Control, ControlError};

use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The directory of the socket of this process's mount, made if it is not there.
pub(crate) fn socket_directory(device: &str) -> Option<PathBuf> {
    place::make(device).ok()?.parent().map(Path::to_owned)
}

/// Bytes of a request, at most.
const MAX_REQUEST_BYTES: usize = 4096;

/// What is asked.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Request {
    /// What the mount is: for everybody who reaches the socket.
    About,
    /// Its figures: likewise.
    Stats,
    /// Make the kernel hand over its dirty pages, and wait for them: likewise. Refused while the volume is frozen and
    /// files are open for writing: what the kernel holds of them waits for the thaw.
    WriteBack,
    /// Make what reached the daemon durable: likewise.
    Sync,
    /// For those who may administer it. Whether it could be frozen now, then the freeze itself.
    MayFreeze,
    Freeze,
    Thaw,
    /// Make the file system so large. For those who may take what all share.
    Resize {
        bytes: u64,
    },
    /// Change options: check that they can change, or change what is the daemon's.
    Remount {
        options: String,
        only_check: bool,
    },
}

/// What is answered.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Reply {
    Done,
    About(About),
    /// As JSON.
    Stats(String),
    /// The flags that the kernel is to keep for the mount, if they change.
    Flags(Option<u32>),
    /// What keeps it from being done.
    Because(String),
    /// The system's number for what went wrong.
    Refused(i32),
}

/// Which file of the host something is, whatever its name; a block device is the same by each of its nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileIdentity {
    File { dev: u64, ino: u64 },
    Device(u64),
}

impl FileIdentity {
    #[must_use]
    pub fn of(stat: &rustix::fs::Stat) -> FileIdentity {
        if rustix::fs::FileType::from_raw_mode(stat.st_mode).is_block_device() {
            FileIdentity::Device(stat.st_rdev)
        } else {
            FileIdentity::File { dev: stat.st_dev, ino: stat.st_ino }
        }
    }
}

/// What a mount tells about itself.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct About {
    /// The daemon's process.
    pub pid: u32,
    pub image: PathBuf,
    /// Which file or device that is. `None`: it could not be told.
    #[serde(default)]
    pub file: Option<FileIdentity>,
    /// Where the file system starts in the image, in bytes.
    pub offset: u64,
    /// Nothing was written to it.
    pub read_only: bool,
    /// It was shut down: the next mount recovers it.
    #[serde(default)]
    pub shut_down: bool,
    pub version: String,
}
