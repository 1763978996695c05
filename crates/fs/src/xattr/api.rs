//! The attribute calls of [`Volume`].

use super::{MAX_VALUE, get, list, set};
use crate::acl;
use crate::error::{Error, Result};
use crate::flags::may_change;
use crate::mode;
use crate::namei::live;
use crate::op::Op;
use crate::volume::Volume;
use quire_layout::Ino;
use quire_layout::inode::{Inode, Time};
use quire_layout::xattr::{Namespace, Xattr};

/// Longest name after its prefix, in bytes.
const MAX_NAME: usize = 255;

/// Must the attribute be new, or be there?
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum XattrFlags {
    #[default]
    Any,
    /// Fails if it exists.
    Create,
    /// Fails if it does not.
    Replace,
}

impl Volume {
    /// The value of an attribute, by its full name (`user.mime`).
    ///
    /// # Errors
    /// No data; not supported (a prefix that is not stored, or is turned off); range (name too long); corrupt, I/O.
    pub fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        let (ns, rest) = self.attribute(name)?;
        self.run(|op| {
            let inode = live(op, ino)?;
            if ns == Namespace::USER && !(inode.is_file() || inode.is_dir()) {
                return Err(Error::NoData);
            }
            match get(op, ino, &inode, ns, rest)? {
                Some(v) if ns.is_acl() => Ok(acl::decode(ino, &v)?.to_xattr()),
                Some(v) => Ok(v),
                None => Err(Error::NoData),
            }
        })
    }

    /// Sets an attribute.
    ///
    /// # Errors
    /// Exists, no data (`flags`); no space (it fits neither inode nor block, or no block is free); range (name too long);
    /// not permitted (immutable, append-only, `user.` on what is neither file nor directory); invalid or access (ACLs);
    /// not supported; corrupt, I/O, read-only.
    pub fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], flags: XattrFlags) -> Result<()> {
        let (ns, rest) = self.attribute(name)?;
        if value.len() > usize::try_from(MAX_VALUE).expect("fits") {
            return Err(Error::TooBig);
        }
        let says_mode = ns == Namespace::USER && rest == mode::ATTRIBUTE;
        if says_mode {
            // Pages written so far go the way that was said then.
            self.write_back_pending(ino)?;
        }
        self.change(ino, |op, inode| {
            check_settable(ns, inode)?;
            if says_mode {
                mode::attribute_changes(inode, Some(value))?;
            }
            if ns.is_acl() {
                return acl::set(op, ino, inode, ns, value, flags);
            }
            set(op, ino, inode, &Xattr::new(ns, rest, value), false, flags)
        })
    }

    /// Removes an attribute.
    ///
    /// # Errors
    /// No data; not permitted; not supported; corrupt, I/O, read-only.
    pub fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        let (ns, rest) = self.attribute(name)?;
        self.change(ino, |op, inode| {
            check_settable(ns, inode)?;
            if ns == Namespace::USER && rest == mode::ATTRIBUTE {
                mode::attribute_changes(inode, None)?;
            }
            match set(op, ino, inode, &Xattr::new(ns, rest, b""), true, XattrFlags::Any) {
                // An object without an ACL has none already.
                Err(Error::NoData) if ns.is_acl() => Ok(()),
                done => done,
            }
        })
    }

    /// Full names of all attributes.
    ///
    /// # Errors
    /// Corrupt, I/O.
    pub fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        let options = &self.inner.options;
        let all = self.run(|op| {
            let inode = live(op, ino)?;
            list(op, ino, &inode)
        })?;
        let shown = all.into_iter().filter(|(ns, _)| match *ns {
            Namespace::USER => options.user_xattr,
            Namespace::SYSTEM => false,
            ns if ns.is_acl() => options.acl,
            _ => true,
        });
        Ok(shown.map(|(_, name)| name).collect())
    }

    /// Splits a name, if attributes with its prefix are there at all.
    fn attribute<'n>(&self, name: &'n [u8]) -> Result<(Namespace, &'n [u8])> {
        let unknown = Error::NotSupported("attributes with this prefix");
        let (ns, rest) = Namespace::split(name).ok_or(unknown.clone())?;
        let options = &self.inner.options;
        let on = match ns {
            Namespace::USER => options.user_xattr,
            Namespace::SYSTEM => false,
            ns if ns.is_acl() => options.acl,
            _ => true,
        };
        match rest.len() {
            _ if !on => Err(unknown),
            0 if !ns.is_acl() => Err(Error::Invalid("an attribute's name ends with its prefix")),
            n if n > MAX_NAME => Err(Error::Range),
            _ => Ok((ns, rest)),
        }
    }

    /// Runs a change of an inode's attributes.
    fn change(&self, ino: Ino, mut f: impl FnMut(&mut Op<'_>, &mut Inode) -> Result<()>) -> Result<()> {
        // Before the allocator looks at bitmaps that it may not understand.
        self.may_write()?;
        let (sync, tid) = self.run_tid(|op| {
            let mut inode = live(op, ino)?;
            may_change(&inode)?;
            f(op, &mut inode)?;
            inode.set_time(Time::Change, op.now());
            op.put_inode(ino, &mut inode)?;
            Ok(crate::flags::is_sync(&inode))
        })?;
        self.settle(sync, tid)
    }
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
