//! POSIX ACLs: inherited, kept in step with the mode (N5). Checking them is the kernel's part.

use crate::error::{Error, Result};
use crate::txn::Op;
use crate::xattr::{self, XattrFlags};
use quire_layout::acl::Acl;
use quire_layout::inode::Inode;
use quire_layout::xattr::{Namespace, Xattr};
use quire_layout::{Corrupt, Ino};

pub(super) const PERMISSIONS: u16 = 0o777;

/// A stored list.
///
/// # Errors
/// Corrupt, with the inode as object.
pub(crate) fn decode(ino: Ino, stored: &[u8]) -> Result<Acl, Corrupt> {
    Acl::decode(stored).map_err(|c| c.of(ino.0))
}

fn read(op: &mut Op<'_>, ino: Ino, inode: &Inode, ns: Namespace) -> Result<Option<Acl>> {
    match xattr::get(op, ino, inode, ns, b"")? {
        Some(v) => Ok(Some(decode(ino, &v)?)),
        None => Ok(None),
    }
}

fn write(op: &mut Op<'_>, ino: Ino, inode: &mut Inode, ns: Namespace, acl: &Acl) -> Result<()> {
    xattr::set(op, ino, inode, &Xattr::new(ns, b"", &acl.encode()), false, XattrFlags::Any)
}

/// Sets an ACL given in the attribute's form. A list without entries removes it. An access list that says no more than
/// a mode becomes the mode (N5). The caller writes the inode.
///
/// # Errors
/// Invalid; access (a default list on what is no directory); as [`xattr::set`].
pub(crate) fn set(
    op: &mut Op<'_>,
    ino: Ino,
    inode: &mut Inode,
    ns: Namespace,
    value: &[u8],
    flags: XattrFlags,
) -> Result<()> {
    let acl = Acl::from_xattr(value).ok_or(Error::Invalid("malformed ACL"))?;
    let empty = acl.entries.is_empty();
    if !empty && !acl.is_valid() {
        return Err(Error::Invalid("not a valid ACL"));
    }
    if ns == Namespace::ACL_DEFAULT && !inode.is_dir() {
        return if empty { Ok(()) } else { Err(Error::Access) };
    }
    let minimal = ns == Namespace::ACL_ACCESS && !empty && acl.is_minimal();
    if ns == Namespace::ACL_ACCESS && !empty {
        inode.set_mode((inode.mode() & !PERMISSIONS) | acl.mode());
    }
    let remove = empty || minimal;
    match xattr::set(op, ino, inode, &Xattr::new(ns, b"", &acl.encode()), remove, flags) {
        Err(Error::NoData) if remove => Ok(()),
        done => done,
    }
}

/// After the mode was changed: the access list says the same (N5). The caller writes the inode.
///
/// # Errors
/// Corrupt; no space (its block was shared); miss.
pub(crate) fn follow_mode(op: &mut Op<'_>, ino: Ino, inode: &mut Inode) -> Result<()> {
    match read(op, ino, inode, Namespace::ACL_ACCESS)? {
        Some(mut acl) if acl.mode() != inode.mode() & PERMISSIONS => {
            acl.chmod(inode.mode());
            write(op, ino, inode, Namespace::ACL_ACCESS, &acl)
        }
        _ => Ok(()),
    }
}

/// Gives a new object its permissions: what the directory's default list says, or `mode` without `umask`. The caller
/// writes the inode.
///
/// # Errors
/// Corrupt; no space; miss.
pub(crate) fn inherit(
    op: &mut Op<'_>,
    (parent, dir): (Ino, &Inode),
    (ino, inode): (Ino, &mut Inode),
    umask: u16,
) -> Result<()> {
    if inode.is_symlink() {
        return Ok(());
    }
    let default = if op.context.options.acl { read(op, parent, dir, Namespace::ACL_DEFAULT)? } else { None };
    let Some(default) = default else {
        inode.set_mode(inode.mode() & !(umask & PERMISSIONS));
        return Ok(());
    };
    let mut access = default.clone();
    let permissions = access.create(inode.mode());
    inode.set_mode((inode.mode() & !PERMISSIONS) | permissions);
    if !access.is_minimal() {
        write(op, ino, inode, Namespace::ACL_ACCESS, &access)?;
    }
    if inode.is_dir() {
        write(op, ino, inode, Namespace::ACL_DEFAULT, &default)?;
    }
    Ok(())
}
