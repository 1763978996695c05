//! The mounts of this process's mount namespace, as `/proc/self/mountinfo` tells them (proc_pid_mountinfo(5)). Reading
//! it asks no file system, so that a frozen or hung one is found as well.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// One mount.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct MountEntry {
    pub id: u64,
    pub parent: u64,
    /// Major and minor number of the file system, as `st_dev` has them: "0:57".
    pub device: String,
    pub mount_point: PathBuf,
    pub kind: String,
    pub source: PathBuf,
    /// The user who mounted it (FUSE).
    pub user: u32,
    /// The file system, and not only this mount of it, is read-only.
    pub read_only: bool,
}

impl MountEntry {
    pub(crate) fn is_quire(&self) -> bool {
        ["fuse.quire", "fuseblk.quire"]
            .iter()
            .any(|k| self.kind.strip_prefix(k).is_some_and(|rest| !rest.contains('/')))
    }
}

/// All mounts, in the order in which they came.
#[derive(Clone, Debug)]
pub(crate) struct Mounts(Vec<MountEntry>);

impl Mounts {
    /// # Errors
    /// There is no `/proc`.
    pub(crate) fn read() -> io::Result<Self> {
        Ok(Self::parse(&fs::read("/proc/self/mountinfo")?))
    }

    fn parse(text: &[u8]) -> Self {
        Mounts(text.split(|b| *b == b'\n').filter_map(entry).collect())
    }

    /// The Quire mount on a directory; of several, the last.
    pub(crate) fn quire_on(&self, dir: &Path) -> Option<&MountEntry> {
        self.0.iter().rev().find(|m| m.mount_point == dir && m.is_quire())
    }

    /// The Quire mount of an image.
    pub(crate) fn quire_of(&self, image: &Path) -> Option<&MountEntry> {
        self.0.iter().find(|m| m.source == image && m.is_quire())
    }

    /// The mount that a path, which has no links, lies in.
    pub(crate) fn containing(&self, path: &Path) -> Option<&MountEntry> {
        let around = self.0.iter().filter(|m| path.starts_with(&m.mount_point));
        around.max_by_key(|m| m.mount_point.components().count())
    }

    /// The mount of a file system, by its device number.
    pub(crate) fn of_device(&self, device: &str) -> Option<&MountEntry> {
        self.0.iter().find(|m| m.device == device)
    }

    /// A mount, if it is still there.
    pub(crate) fn by_id(&self, id: u64, device: &str) -> Option<&MountEntry> {
        self.0.iter().find(|m| m.id == id && m.device == device)
    }

    /// What is mounted over or within a mount.
    pub(crate) fn child_of(&self, id: u64) -> Option<&MountEntry> {
        self.0.iter().find(|m| m.parent == id && m.id != id)
    }

    /// What is mounted over the whole of a mount.
    pub(crate) fn cover_of(&self, mount: &MountEntry) -> Option<&MountEntry> {
        self.0.iter().find(|m| m.parent == mount.id && m.mount_point == mount.mount_point && m.id != mount.id)
    }
}

/// "36 35 0:57 /root /mount/point rw,relatime shared:1 - fuse.quire.auto source rw,user_id=0,..."
fn entry(line: &[u8]) -> Option<MountEntry> {
    let text = |bytes: &[u8]| std::str::from_utf8(bytes).ok().map(str::to_owned);
    let fields: Vec<&[u8]> = line.split(|b| *b == b' ').collect();
    let dash = fields.iter().position(|f| *f == b"-")?;
    let options = text(fields.get(dash + 3)?)?;
    let user = options.split(',').find_map(|o| o.strip_prefix("user_id=")).and_then(|n| n.parse().ok());
    Some(MountEntry {
        id: text(fields.first()?)?.parse().ok()?,
        parent: text(fields.get(1)?)?.parse().ok()?,
        device: text(fields.get(2)?)?,
        mount_point: unescaped(fields.get(4)?),
        kind: text(fields.get(dash + 1)?)?,
        source: unescaped(fields.get(dash + 2)?),
        user: user.unwrap_or(0),
        read_only: options.split(',').any(|o| o == "ro"),
    })
}

/// Blanks, tabs, newlines and backslashes are written as three octal digits.
fn unescaped(field: &[u8]) -> PathBuf {
    let mut out = Vec::new();
    let mut rest = field;
    while let Some((&b, more)) = rest.split_first() {
        let digits = more.get(..3).and_then(|d| std::str::from_utf8(d).ok());
        match digits.and_then(|d| u8::from_str_radix(d, 8).ok()).filter(|_| b == b'\\') {
            Some(byte) => {
                out.push(byte);
                rest = &more[3..];
            }
            None => {
                out.push(b);
                rest = more;
            }
        }
    }
    PathBuf::from(OsString::from_vec(out))
}

/// The path as one argument of a system call.
pub(crate) fn c_path(path: &Path) -> Result<std::ffi::CString, rustix::io::Errno> {
    std::ffi::CString::new(path.as_os_str().as_bytes()).map_err(|_| rustix::io::Errno::INVAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "22 1 254:1 / / rw - ext4 /dev/vda1 rw\n\
        40 22 0:57 / /mnt/a\\040b rw,relatime shared:1 - fuse.quire.auto /tmp/x rw,user_id=1000,group_id=1000\n\
        43 22 0:45 / /mnt/c rw,relatime shared:9 - fuse.quire.auto /tmp/x\\134y.img rw,user_id=0\n\
        44 22 7:1 / /mnt/d rw - ext4 /tmp/kernel.img rw\n\
        41 40 0:60 / /mnt/a\\040b rw - tmpfs tmpfs rw\n\
        42 22 7:0 / /mnt rw - fuseblk.quire.ordered /dev/loop0 ro,user_id=0\n";

    #[test]
    fn mounts_are_found_by_directory_path_and_number() {
        let m = Mounts::parse(TEXT.as_bytes());
        let at = Path::new("/mnt/a b");
        let ours = m.quire_on(at).unwrap();
        assert_eq!((ours.id, ours.device.as_str(), ours.user), (40, "0:57", 1000));
        assert!(!ours.read_only && m.quire_on(Path::new("/mnt")).unwrap().read_only);
        assert_eq!(m.cover_of(ours).unwrap().kind, "tmpfs");
        assert_eq!(m.child_of(40).unwrap().id, 41);
        assert_eq!(m.containing(&at.join("c")).unwrap().id, 41, "the last of those on one directory");
        assert_eq!(m.containing(Path::new("/mnt/e")).unwrap().id, 42);
        assert!(m.by_id(42, "7:0").is_some_and(MountEntry::is_quire) && m.by_id(42, "7:1").is_none());
    }
    #[test]
    fn a_mount_of_ours_is_found_by_its_image() {
        let m = Mounts::parse(TEXT.as_bytes());
        assert_eq!(m.quire_of(Path::new("/tmp/x")).unwrap().mount_point, Path::new("/mnt/a b"));
        assert_eq!(m.quire_of(Path::new(r"/tmp/x\y.img")).unwrap().mount_point, Path::new("/mnt/c"));
        assert_eq!(m.quire_of(Path::new("/tmp/other.img")), None);
        assert_eq!(m.quire_of(Path::new("/tmp/kernel.img")), None);
        assert!(Mounts::parse(b"").0.is_empty());
    }
}
