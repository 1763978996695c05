//! Extended attributes on their way into an image: which of them ext4 has, and for which it has room.

use super::entry::Kind;
use crate::error::{Error, ErrorKind, Result};
use quire_fs::{Volume, XattrFlags};
use quire_layout::Ino;
use quire_layout::xattr::{Namespace, Xattr, block_capacity};

/// True if ext4 stores attributes of this name at all: not those of other file systems (`system.nfs4_acl`,
/// `btrfs.compression`) and of other systems (`com.apple.quarantine`).
pub(super) fn is_stored(name: &[u8]) -> bool {
    !matches!(Namespace::split(name), None | Some((Namespace::SYSTEM, _)))
}

/// True if ext4 stores an attribute of this name for an object of this kind.
pub(super) fn is_stored_for(name: &[u8], kind: &Kind) -> bool {
    match Namespace::split(name) {
        Some((Namespace::USER, _)) => matches!(kind, Kind::Dir | Kind::File(_)),
        Some((Namespace::ACL_DEFAULT, _)) => *kind == Kind::Dir,
        Some((Namespace::ACL_ACCESS, _)) => !matches!(kind, Kind::Symlink(_)),
        _ => is_stored(name),
    }
}

/// Sets an attribute.
///
/// # Errors
/// Invalid: there is no room for it among the attributes of the object, however large the image. No space: the image is
/// full. Otherwise those of the volume. Each names the attribute.
pub(super) fn set(volume: &Volume, ino: Ino, name: &[u8], value: &[u8]) -> Result<()> {
    let Err(e) = volume.xattrs().set(ino, name, value, XattrFlags::Any) else { return Ok(()) };
    let shown = String::from_utf8_lossy(name);
    let too_large = match e {
        quire_fs::Error::TooBig => true,
        // The volume says so of a full image, too, as the kernel's ext4 does.
        quire_fs::Error::NoSpace => is_too_large(volume, ino, name, value)?,
        _ => false,
    };
    if too_large {
        let room = block_capacity(block_bytes(volume));
        let why = format!("attribute {shown} of {} bytes: ext4 has {room} bytes for all attributes here", value.len());
        return Err(Error::new(ErrorKind::InvalidInput, why));
    }
    let e = Error::from(e);
    Err(Error::new(e.kind(), format!("attribute {shown}: {e}")))
}

fn block_bytes(volume: &Volume) -> usize {
    volume.superblock().block_size().bytes()
}

/// True if an attribute that found no space would find none in a larger image, either.
fn is_too_large(volume: &Volume, ino: Ino, name: &[u8], value: &[u8]) -> Result<bool> {
    let space = |name: &[u8], value: &[u8]| {
        Namespace::split(name).map_or(0, |(namespace, rest)| Xattr::new(namespace, rest, value).space())
    };
    let room = block_capacity(block_bytes(volume));
    let own = space(name, value);
    let mut all = own;
    for other in volume.xattrs().list(ino)?.iter().filter(|other| *other != name) {
        all += space(other, &volume.xattrs().get(ino, other)?);
    }
    // Some of them may lie in the inode. Where a block is free, its lack was not the reason.
    Ok(own > room || all > room && volume.maintenance().free_bytes().0 > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::FileType;

    #[test]
    fn attributes_of_other_systems_and_of_the_wrong_objects_are_not_stored() {
        let (file, dir, link) = (Kind::File(1), Kind::Dir, Kind::Symlink(b"f".to_vec()));
        let fifo = Kind::Node(FileType::Fifo, (0, 0));
        let of = |name: &str| [&file, &dir, &link, &fifo].map(|kind| is_stored_for(name.as_bytes(), kind));
        for name in ["system.nfs4_acl", "system.posix_acl_accessory", "btrfs.compression", "com.apple.quarantine", ""] {
            assert_eq!(of(name), [false; 4], "{name}");
        }
        for name in ["security.selinux", "security.capability", "trusted.overlay.opaque"] {
            assert_eq!(of(name), [true; 4], "{name}");
        }
        assert_eq!(of("user.a"), [true, true, false, false]);
        assert_eq!(of("system.posix_acl_access"), [true, true, false, true]);
        assert_eq!(of("system.posix_acl_default"), [false, true, false, false]);
    }
}
