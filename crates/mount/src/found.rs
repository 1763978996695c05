//! What the host knows of an image before it is opened: where it is mounted, and whether it is write-protected.

use crate::mountinfo::Mounts;
use rustix::fs::{FileType, major, minor};
use std::fs;
use std::path::{Path, PathBuf};

/// Where Quire has mounted this image.
pub(crate) fn mounted_on(image: &Path) -> Option<PathBuf> {
    Mounts::read().ok()?.quire_of(image).map(|m| m.mount_point.clone())
}

/// True for a block device that the kernel does not let anybody write to, though it can be opened for writing.
pub(crate) fn is_write_protected(image: &Path) -> bool {
    let Ok(stat) = rustix::fs::stat(image) else { return false };
    let number = format!("{}:{}", major(stat.st_rdev), minor(stat.st_rdev));
    FileType::from_raw_mode(stat.st_mode).is_block_device()
        && fs::read_to_string(format!("/sys/dev/block/{number}/ro")).is_ok_and(|ro| ro.trim() == "1")
}
