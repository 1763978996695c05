//! The calls on extended attributes.

use super::handle::Volume;
use super::manner::{commit_if, manner, run};
use crate::data::write_back_pending;
use crate::error::Result;
use crate::inode::xattrs::{self, Name};
use crate::xattr::XattrFlags;
use quire_layout::Ino;

impl Volume {
    /// The calls on extended attributes.
    #[must_use]
    pub fn xattrs(&self) -> Xattrs<'_> {
        Xattrs { volume: self }
    }
}

/// The extended attributes of inodes, by their full names (`user.mime`).
#[derive(Clone, Copy)]
pub struct Xattrs<'v> {
    volume: &'v Volume,
}

impl Xattrs<'_> {
    fn name<'n>(&self, name: &'n [u8]) -> Result<Name<'n>> {
        Name::parse(&self.volume.inner.engine.context.options, name)
    }

    /// The value of an attribute.
    ///
    /// # Errors
    /// No data; not supported (a prefix that is not stored, or is turned off); range (name too long); corrupt; I/O.
    pub fn get(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        let name = self.name(name)?;
        run(self.volume, |op| xattrs::getxattr(op, ino, name))
    }

    /// Sets an attribute.
    ///
    /// # Errors
    /// Exists, no data (`flags`); no space (it fits neither inode nor block, or no block is free); range (name too
    /// long); not permitted (immutable, append-only, `user.` on an object that is neither file nor directory); invalid
    /// or access (ACLs); not supported; read-only; corrupt; I/O.
    pub fn set(&self, ino: Ino, name: &[u8], value: &[u8], flags: XattrFlags) -> Result<()> {
        let (v, name) = (self.volume, self.name(name)?);
        let _pass = v.inner.enter()?;
        // Before the allocator looks at bitmaps that this mount may not understand.
        v.inner.engine.write_gate.check()?;
        if name.is_journaling_mode() {
            // Pages written so far go the way that the old mode says.
            write_back_pending(&v.inner.data, ino)?;
        }
        let (sync, tid) = v.inner.engine.run_as(manner(v), |op| xattrs::setxattr(op, ino, name, value, flags))?;
        commit_if(v, sync, tid)
    }

    /// Removes an attribute.
    ///
    /// # Errors
    /// No data; not permitted; not supported; read-only; corrupt; I/O.
    pub fn remove(&self, ino: Ino, name: &[u8]) -> Result<()> {
        let (v, name) = (self.volume, self.name(name)?);
        let _pass = v.inner.enter()?;
        v.inner.engine.write_gate.check()?;
        if name.is_journaling_mode() {
            write_back_pending(&v.inner.data, ino)?;
        }
        let (sync, tid) = v.inner.engine.run_as(manner(v), |op| xattrs::removexattr(op, ino, name))?;
        commit_if(v, sync, tid)
    }

    /// The full names of all attributes.
    ///
    /// # Errors
    /// Corrupt; I/O.
    pub fn list(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        run(self.volume, |op| xattrs::listxattr(op, ino))
    }
}
