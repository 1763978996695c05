//! New inodes.

use super::acl;
use super::flags::inherited;
use super::symlink::write_target;
use super::types::{Cred, Inherit, New, NewKind, PERMISSIONS, SETGID};
use crate::error::Result;
use crate::records;
use crate::space;
use crate::txn::Op;
use quire_layout::Ino;
use quire_layout::checksum::{crc32c, crc32c_le32};
use quire_layout::extent::NodeMut;
use quire_layout::features::{incompat, ro_compat};
use quire_layout::inode::{Inode, Time, flags, mode};

/// Bytes of the inode's extended part that this implementation knows.
const KNOWN_EXTRA: u16 = 32;

/// Makes an inode under a directory and writes its record, with its links set. The caller adds the name.
///
/// # Errors
/// No inodes, no space; name too long (a symbolic link's target); invalid; corrupt; miss.
pub(crate) fn make(
    op: &mut Op<'_>,
    (parent, dir): (Ino, &Inode),
    new: &New<'_>,
    inherit: Inherit,
) -> Result<(Ino, Inode)> {
    let file_type = new.file_type()?;
    let ino = space::alloc_inode(op, parent, file_type)?;
    let sb = op.sb();
    let extra = if sb.features().has_ro_compat(ro_compat::EXTRA_ISIZE) { sb.want_extra_isize() } else { 0 };
    let mut inode = Inode::new(sb.inode_size(), extra.max(KNOWN_EXTRA));
    inode.os = sb.creator_os();
    let permissions = if file_type == mode::LNK { 0o777 } else { new.mode & PERMISSIONS };
    inode.set_mode(file_type | permissions);
    inode.set_generation(generation(op, ino));
    inode.set_links(if file_type == mode::DIR { 2 } else { 1 });
    match inherit {
        Inherit::All => own(op, dir, &mut inode, new.cred),
        Inherit::Nothing => {
            inode.set_uid(new.cred.uid);
            inode.set_gid(new.cred.gid);
        }
    }
    let mapped = matches!(file_type, mode::REG | mode::DIR | mode::LNK);
    let extents = if mapped && sb.features().has_incompat(incompat::EXTENTS) { flags::EXTENTS } else { 0 };
    inode.set_flags(extents | if inherit == Inherit::All { inherited(dir, file_type) } else { 0 });
    if extents != 0 {
        NodeMut::init(inode.block_area_mut(), 0);
    }
    for t in [Time::Access, Time::Change, Time::Modify, Time::Create] {
        inode.set_time(t, op.now());
    }
    inode.set_version(1);
    match inherit {
        Inherit::All => acl::inherit(op, (parent, dir), (ino, &mut inode), new.umask)?,
        Inherit::Nothing if file_type == mode::LNK => {}
        Inherit::Nothing => inode.set_mode(inode.mode() & !(new.umask & acl::PERMISSIONS)),
    }
    match new.kind {
        NewKind::Symlink(target) => write_target(op, ino, &mut inode, target, new.cred)?,
        NewKind::Node { device, .. } if matches!(file_type, mode::CHR | mode::BLK) => {
            quire_layout::inode::set_device_number(inode.block_area_mut(), device.0, device.1)
        }
        _ => {}
    }
    records::put_inode(op, ino, &mut inode)?;
    Ok((ino, inode))
}

/// Owner and group: a directory with set-group-id, or the option `grpid`, gives its group.
fn own(op: &Op<'_>, dir: &Inode, inode: &mut Inode, cred: Cred) {
    inode.set_uid(cred.uid);
    if op.context.runtime().grpid {
        inode.set_gid(dir.gid());
    } else if dir.mode() & SETGID != 0 {
        inode.set_gid(dir.gid());
        if inode.is_dir() {
            inode.set_mode(inode.mode() | SETGID);
        }
    } else {
        inode.set_gid(cred.gid);
    }
}

/// A number that the inode's earlier lives did not have, as far as 32 bits allow.
fn generation(op: &mut Op<'_>, ino: Ino) -> u32 {
    let now = op.now();
    // The clock may stand still between two lives.
    let made = &mut op.tables_mut().made;
    *made = made.wrapping_add(1);
    let made = *made;
    let seed = crc32c_le32(crc32c(!0, &op.sb().uuid()), ino.0);
    crc32c_le32(crc32c_le32(crc32c(seed, &now.secs.to_le_bytes()), now.nanos), made)
}
