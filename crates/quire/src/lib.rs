//! Read, build and change ext4 images without mounting them: without root, without FUSE, and safe against crashes.
//!
//! ```no_run
//! use quire::FileSystem;
//! use std::io::{Read, Write};
//!
//! let fs = FileSystem::open("disk.img")?;                      // Recovers it, if a crash has left it dirty.
//! let hostname = fs.read("/etc/hostname")?;                    // Paths begin at the root of the image.
//! fs.write("/etc/hostname", "sandbox\n")?;
//!
//! let mut log = fs.open_with("/var/log/build", quire::FileOptions::new().create(true).append(true))?;
//! writeln!(log, "changed").map_err(std::io::Error::from).unwrap();
//! log.sync_all()?;                                             // Durable from here on.
//!
//! fs.close()?;                                                 // A clean image: the kernel mounts it, e2fsck likes it.
//! # Ok::<(), quire::Error>(())
//! ```
//!
//! # In five minutes
//!
//! **Open.** [`FileSystem::open`] takes an image file or a block device, locks it, and replays its journal if need be.
//! [`FileSystem::options`] opens read-only, a [partition](OpenOptions::partition), or an image
//! [in memory](OpenOptions::open_bytes). [`CreateOptions`] makes a new one, by `mke2fs`.
//!
//! **Use.** A [`FileSystem`] is its root [`Dir`], with the methods that you know from `std::fs`: [`Dir::read`],
//! [`Dir::write`], [`Dir::create_dir_all`], [`Dir::read_dir`], [`Dir::rename`], [`Dir::remove_all`], [`Dir::symlink`],
//! [`Dir::hard_link`], [`Dir::walk`]. A [`Dir`] from [`Dir::open_dir`] takes paths relative to it. A [`File`] is
//! `Read`, `Write` and `Seek`. Owners, modes, times, extended attributes and devices need no privilege, because they
//! are bytes of an image: [`Dir::chown`], [`Dir::set_metadata`], [`Dir::set_xattr`], [`Dir::create_node`].
//!
//! **All or nothing.** What [`FileSystem::batch`] brackets happens as a whole, or not at all, even if the process is
//! killed or the machine loses power:
//!
//! ```
//! # use quire::CreateOptions;
//! # let fs = CreateOptions::new().size(16 << 20).in_memory()?;
//! # fs.create_dir("/etc")?;
//! fs.atomically(|fs| {
//!     fs.write("/etc/passwd", "root:x:0:0::/:/bin/sh\n")?;
//!     fs.write("/etc/shadow", "root:*:::::::\n")?;
//!     fs.chmod("/etc/shadow", 0o600)
//! })?;
//! # Ok::<(), quire::Error>(())
//! ```
//!
//! **End.** [`FileSystem::close`] leaves a clean image and tells errors; dropping the last handle does the same and
//! logs them. Between, changes are in memory until [`FileSystem::sync`], [`File::sync_all`] or the end. A killed
//! process leaves a journal that any ext4 implementation replays; with [`OpenOptions::quire_log`] only Quire does.
//!
//! **Errors.** An [`Error`] has a [kind](Error::kind), and the [path](Error::path), [structure](Error::structure) and
//! [block](Error::block) where it happened. It turns into a `std::io::Error`.
//!
//! **Whole trees.** With the feature `archive` (on by default), [`archive`] brings directories, tar archives
//! and OCI layouts into an image and out of it.
#![forbid(unsafe_code)]

#[cfg(feature = "archive")]
pub mod archive;
mod attrs;
mod batch;
mod create;
mod dir;
mod error;
mod file;
mod fs;
mod listing;
mod metadata;
mod new_file;
mod options;
mod partition;
mod process;
mod resolve;
mod set_metadata;
mod shared;
mod update;
mod walk;

pub use attrs::Links;
pub use batch::Batch;
pub use create::{CreateOptions, MAX_LABEL_BYTES, uuid_from_text, uuid_text};
pub use dir::{Dir, DirEntry, NewNode};
pub use error::{Error, ErrorKind, Result};
pub use file::{File, FileOptions};
pub use fs::{FileSystem, Info};
pub use metadata::{FileType, Metadata, Timestamp, Usage};
pub use new_file::{CompleteFile, NewFile};
pub use options::OpenOptions;
pub use partition::find as find_partition;
pub use quire_device::BlockDevice;
pub use set_metadata::SetMetadata;
pub use update::Update;
pub use walk::{Walk, WalkEntry};
