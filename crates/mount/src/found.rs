//! What the host knows of an image before it is opened: where it is mounted, and whether it is write-protected.

use rustix::fs::{FileType, major, minor};
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Where Quire has mounted this image, by our own `/proc/self/mountinfo`.
pub(crate) fn mounted_on(image: &Path) -> Option<PathBuf> {
    let mounts = fs::read("/proc/self/mountinfo").ok()?;
    mounts.split(|b| *b == b'\n').find_map(|line| mount_of(line, image))
}

/// The mount point in a line, if it is a mount of Quire's of this image.
fn mount_of(line: &[u8], image: &Path) -> Option<PathBuf> {
    // "36 35 98:0 /root /mount/point options ... - type source superblock-options"
    let fields: Vec<&[u8]> = line.split(|b| *b == b' ').collect();
    let dash = fields.iter().position(|f| *f == b"-")?;
    let (dir, kind, source) = (fields.get(4)?, fields.get(dash + 1)?, fields.get(dash + 2)?);
    let ours = kind.starts_with(b"fuse.quire") || kind.starts_with(b"fuseblk.quire");
    (ours && unescaped(source) == image.as_os_str().as_bytes())
        .then(|| PathBuf::from(OsString::from_vec(unescaped(dir))))
}

/// A field of mountinfo, in which blanks and backslashes are octal numbers.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let octal = after.get(..3).filter(|_| *first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                out.push(byte);
                rest = &after[3..];
            }
            None => {
                out.push(*first);
                rest = after;
            }
        }
    }
    out
}

/// True for a block device that the kernel does not let anybody write to, though it can be opened for writing.
pub(crate) fn is_write_protected(image: &Path) -> bool {
    let Ok(stat) = rustix::fs::stat(image) else { return false };
    let number = format!("{}:{}", major(stat.st_rdev), minor(stat.st_rdev));
    FileType::from_raw_mode(stat.st_mode).is_block_device()
        && fs::read_to_string(format!("/sys/dev/block/{number}/ro")).is_ok_and(|ro| ro.trim() == "1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_of_ours_is_found_by_its_source() {
        let line = br"70 28 0:45 / /mnt/a\040b rw,relatime shared:9 - fuse.quire.auto /tmp/x\134y.img rw,user_id=0";
        let image = Path::new(r"/tmp/x\y.img");
        assert_eq!(mount_of(line, image), Some(PathBuf::from("/mnt/a b")));
        assert_eq!(mount_of(line, Path::new("/tmp/other.img")), None);
        let kernels = br"70 28 7:0 / /mnt rw - ext4 /tmp/x\134y.img rw";
        assert_eq!(mount_of(kernels, image), None);
        assert_eq!(mount_of(b"", image), None);
    }
}
