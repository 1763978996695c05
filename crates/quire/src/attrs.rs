//! Metadata, extended attributes and ACLs, by path.

use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::metadata::Metadata;
use crate::resolve::{Node, attributes};
use crate::set_metadata::SetMetadata;
use quire_fs::XattrFlags;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// Whether a symbolic link at the end of a path is followed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Links {
    #[default]
    Follow,
    /// The link itself is meant.
    NoFollow,
}

impl Dir {
    /// What a path means, symbolic links followed.
    ///
    /// # Errors
    /// Not found; corrupt; I/O.
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        Ok(Metadata::of(&self.node(path.as_ref(), true)?.attr))
    }

    /// What a path means, without following a symbolic link at its end.
    ///
    /// # Errors
    /// Not found; corrupt; I/O.
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        Ok(Metadata::of(&self.node(path.as_ref(), false)?.attr))
    }

    /// This directory.
    ///
    /// # Errors
    /// Stale; corrupt; I/O.
    pub fn dir_metadata(&self) -> Result<Metadata> {
        Ok(Metadata::of(&attributes(&self.inode)?))
    }

    fn with<T>(&self, path: &Path, links: Links, f: impl FnOnce(&quire_fs::Volume, &Node) -> Result<T>) -> Result<T> {
        let node = self.node(path, links == Links::Follow)?;
        let done = || f(&node.inode.call()?.volume, &node);
        done().map_err(|e| e.at(path))
    }

    /// Changes attributes.
    ///
    /// # Errors
    /// Not found; invalid (4294967295, which is no owner); not permitted (immutable, append-only); read-only; corrupt;
    /// I/O.
    pub fn set_metadata(&self, path: impl AsRef<Path>, links: Links, set: SetMetadata) -> Result<()> {
        self.with(path.as_ref(), links, |volume, node| set.apply(volume, node.inode.ino))
    }

    /// Changes permissions.
    ///
    /// # Errors
    /// As [`Dir::set_metadata`].
    pub fn chmod(&self, path: impl AsRef<Path>, permissions: u32) -> Result<()> {
        self.set_metadata(path, Links::Follow, SetMetadata::new().permissions(permissions))
    }

    /// Changes owner and group.
    ///
    /// # Errors
    /// As [`Dir::set_metadata`].
    pub fn chown(&self, path: impl AsRef<Path>, uid: u32, gid: u32) -> Result<()> {
        self.set_metadata(path, Links::Follow, SetMetadata::new().owner(uid, gid))
    }

    /// Sets the size of a file. What it grows over reads as zeros.
    ///
    /// # Errors
    /// Not found; not a regular file; file too large; read-only; corrupt; I/O.
    pub fn truncate(&self, path: impl AsRef<Path>, size: u64) -> Result<()> {
        self.with(path.as_ref(), Links::Follow, |volume, node| Ok(volume.truncate(node.inode.ino, size)?))
    }

    /// The value of an extended attribute, by its full name (`user.mime`, `security.capability`). ACLs
    /// (`system.posix_acl_access`, `system.posix_acl_default`) have the form in which the kernel shows them.
    ///
    /// # Errors
    /// Not found; no such attribute; corrupt; I/O.
    pub fn xattr(&self, path: impl AsRef<Path>, links: Links, name: impl AsRef<OsStr>) -> Result<Vec<u8>> {
        let name = name.as_ref().as_bytes();
        self.with(path.as_ref(), links, |volume, node| Ok(volume.xattrs().get(node.inode.ino, name)?))
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// Not found; no space (it fits neither inode nor block); invalid (an ACL that breaks the rules); not permitted;
    /// unsupported (a prefix that ext4 does not store); read-only; corrupt; I/O.
    pub fn set_xattr(
        &self,
        path: impl AsRef<Path>,
        links: Links,
        name: impl AsRef<OsStr>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        let (name, value) = (name.as_ref().as_bytes(), value.as_ref());
        self.with(path.as_ref(), links, |volume, node| {
            Ok(volume.xattrs().set(node.inode.ino, name, value, XattrFlags::Any)?)
        })
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// Not found; no such attribute; not permitted; read-only; corrupt; I/O.
    pub fn remove_xattr(&self, path: impl AsRef<Path>, links: Links, name: impl AsRef<OsStr>) -> Result<()> {
        let name = name.as_ref().as_bytes();
        self.with(path.as_ref(), links, |volume, node| Ok(volume.xattrs().remove(node.inode.ino, name)?))
    }

    /// The full names of all extended attributes, sorted.
    ///
    /// # Errors
    /// Not found; corrupt; I/O.
    pub fn xattrs(&self, path: impl AsRef<Path>, links: Links) -> Result<Vec<OsString>> {
        self.with(path.as_ref(), links, |volume, node| {
            let mut names = volume.xattrs().list(node.inode.ino).map_err(Error::from)?;
            names.sort();
            Ok(names.into_iter().map(OsString::from_vec).collect())
        })
    }
}
