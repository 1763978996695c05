//! From a name to an inode.

use super::{directory, live, pointed_to};
use crate::attr::Attr;
use crate::dir;
use crate::error::{Error, Result};
use crate::volume::Volume;
use quire_layout::Ino;

impl Volume {
    /// What a name in a directory names. The caller gets a reference on it.
    ///
    /// # Errors
    /// Not found; not a directory; name too long; corrupt, I/O.
    pub fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr> {
        let seen = self.run(|op| {
            let inode = directory(op, parent)?;
            let entry = dir::lookup(op, parent, &inode, name)?.ok_or(Error::NotFound)?;
            let found = pointed_to(op, parent, entry.ino)?;
            op.add_ref(entry.ino);
            op.note_name(entry.ino, name);
            Ok(op.seen(entry.ino, &found))
        })?;
        Ok(self.told(seen))
    }

    /// An inode by its number, for file handles that outlive names. The caller gets a reference on it.
    ///
    /// # Errors
    /// Stale: it was freed, or has no name any more; corrupt, I/O.
    pub fn lookup_ino(&self, ino: Ino) -> Result<Attr> {
        let seen = self.run(|op| {
            let inode = live(op, ino)?;
            if inode.links() == 0 {
                return Err(Error::Stale(ino));
            }
            op.add_ref(ino);
            Ok(op.seen(ino, &inode))
        })?;
        Ok(self.told(seen))
    }

    /// The inode that a name stands for now, without a reference.
    pub(super) fn resolve(&self, parent: Ino, name: &[u8]) -> Result<Ino> {
        self.run(|op| {
            let inode = directory(op, parent)?;
            Ok(dir::lookup(op, parent, &inode, name)?.ok_or(Error::NotFound)?.ino)
        })
    }
}
