//! The calls on extended attributes, by their full names (`user.mime`).

use super::acl;
use super::flags::{is_sync, may_change};
use super::journaling_mode;
use super::live::live;
use crate::config::Options;
use crate::error::{Error, Result};
use crate::records;
use crate::txn::Op;
use crate::xattr::{self, MAX_VALUE, XattrFlags};
use quire_layout::Ino;
use quire_layout::inode::{Inode, Time};
use quire_layout::xattr::{Namespace, Xattr};

/// Longest name after its prefix, in bytes.
const MAX_NAME: usize = 255;

/// An attribute's name, split into its namespace and the rest.
#[derive(Clone, Copy)]
pub(crate) struct Name<'n> {
    ns: Namespace,
    rest: &'n [u8],
}

impl<'n> Name<'n> {
    /// # Errors
    /// Not supported: a prefix that is not stored, or that the mount turns off. Range: too long. Invalid: a prefix
    /// alone.
    pub(crate) fn parse(options: &Options, name: &'n [u8]) -> Result<Self> {
        let unknown = Error::NotSupported("attributes with this prefix");
        let (ns, rest) = Namespace::split(name).ok_or(unknown.clone())?;
        match rest.len() {
            _ if !is_on(options, ns) => Err(unknown),
            0 if !ns.is_acl() => Err(Error::Invalid("an attribute's name ends with its prefix")),
            n if n > MAX_NAME => Err(Error::Range),
            _ => Ok(Name { ns, rest }),
        }
    }

    /// True for the attribute that sets the journaling mode.
    pub(crate) fn is_journaling_mode(&self) -> bool {
        self.ns == Namespace::USER && self.rest == journaling_mode::ATTRIBUTE
    }
}

/// True if a mount shows attributes of a namespace.
fn is_on(options: &Options, ns: Namespace) -> bool {
    match ns {
        Namespace::USER => options.user_xattr,
        Namespace::SYSTEM => false,
        ns if ns.is_acl() => options.acl,
        _ => true,
    }
}

/// The value of an attribute.
///
/// # Errors
/// No data; stale; corrupt; miss.
pub(crate) fn getxattr(op: &mut Op<'_>, ino: Ino, name: Name<'_>) -> Result<Vec<u8>> {
    let inode = live(op, ino)?;
    if name.ns == Namespace::USER && !(inode.is_file() || inode.is_dir()) {
        return Err(Error::NoData);
    }
    match xattr::get(op, ino, &inode, name.ns, name.rest)? {
        Some(v) if name.ns.is_acl() => Ok(acl::decode(ino, &v)?.to_xattr()),
        Some(v) => Ok(v),
        None => Err(Error::NoData),
    }
}

/// Sets an attribute. Returns whether the inode asks for durable changes.
///
/// # Errors
/// Exists, no data (`flags`); too big; no space (it fits neither inode nor block, or no block is free); not permitted
/// (immutable, append-only, `user.` on an object that is neither file nor directory); invalid or access (ACLs); not
/// supported; stale; read-only; corrupt; miss.
pub(crate) fn setxattr(op: &mut Op<'_>, ino: Ino, name: Name<'_>, value: &[u8], flags: XattrFlags) -> Result<bool> {
    if value.len() > usize::try_from(MAX_VALUE).expect("fits") {
        return Err(Error::TooBig);
    }
    change(op, ino, name, |op, inode| {
        if name.is_journaling_mode() {
            journaling_mode::attribute_changes(inode, Some(value))?;
        }
        if name.ns.is_acl() {
            return acl::set(op, ino, inode, name.ns, value, flags);
        }
        xattr::set(op, ino, inode, &Xattr::new(name.ns, name.rest, value), false, flags)
    })
}

/// Removes an attribute. Returns whether the inode asks for durable changes.
///
/// # Errors
/// No data; not permitted; not supported; stale; read-only; corrupt; miss.
pub(crate) fn removexattr(op: &mut Op<'_>, ino: Ino, name: Name<'_>) -> Result<bool> {
    change(op, ino, name, |op, inode| {
        if name.is_journaling_mode() {
            journaling_mode::attribute_changes(inode, None)?;
        }
        match xattr::set(op, ino, inode, &Xattr::new(name.ns, name.rest, b""), true, XattrFlags::Any) {
            // An object without an ACL has none already.
            Err(Error::NoData) if name.ns.is_acl() => Ok(()),
            done => done,
        }
    })
}

/// The full names of all attributes that the mount shows.
///
/// # Errors
/// Stale; corrupt; miss.
pub(crate) fn listxattr(op: &mut Op<'_>, ino: Ino) -> Result<Vec<Vec<u8>>> {
    let inode = live(op, ino)?;
    let all = xattr::list(op, ino, &inode)?;
    let options = &op.context.options;
    Ok(all.into_iter().filter(|(ns, _)| is_on(options, *ns)).map(|(_, name)| name).collect())
}

/// Runs a change of an inode's attributes.
fn change(
    op: &mut Op<'_>,
    ino: Ino,
    name: Name<'_>,
    f: impl FnOnce(&mut Op<'_>, &mut Inode) -> Result<()>,
) -> Result<bool> {
    let mut inode = live(op, ino)?;
    may_change(&inode)?;
    check_settable(name.ns, &inode)?;
    f(op, &mut inode)?;
    inode.set_time(Time::Change, op.now());
    records::put_inode(op, ino, &mut inode)?;
    Ok(is_sync(&inode))
}

fn check_settable(ns: Namespace, inode: &Inode) -> Result<()> {
    if ns == Namespace::USER && !(inode.is_file() || inode.is_dir()) {
        return Err(Error::NotPermitted("user attributes are for files and directories"));
    }
    if ns.is_acl() && inode.is_symlink() {
        return Err(Error::NotSupported("an ACL on a symbolic link"));
    }
    Ok(())
}
