//! Further names for an inode.

use super::{MAX_LINKS, directory, live, touch};
use crate::attr::Attr;
use crate::dir;
use crate::error::{Error, Result};
use crate::flags::{is_sync, may_add, may_change};
use crate::orphan;
use crate::volume::Volume;
use quire_layout::Ino;
use quire_layout::dir::FileType;
use quire_layout::inode::Time;

impl Volume {
    /// Gives an inode another name, or one that was made without its first. The caller gets a reference on it.
    ///
    /// # Errors
    /// Exists; not found (inode or directory was removed); not permitted (a directory; immutable, append-only); too many
    /// links; no space; not a directory; name too long; corrupt, I/O, read-only.
    pub fn link(&self, ino: Ino, new_parent: Ino, new_name: &[u8]) -> Result<Attr> {
        self.write_back_pending(ino)?;
        let ((seen, sync), tid) = self.run_tid(|op| {
            let mut dir = directory(op, new_parent)?;
            let mut inode = live(op, ino)?;
            if dir::lookup(op, new_parent, &dir, new_name)?.is_some() {
                return Err(Error::Exists);
            }
            may_add(&dir)?;
            may_change(&inode)?;
            match inode.links() {
                _ if inode.is_dir() => return Err(Error::NotPermitted("a directory has one name")),
                0 if op.state().unnamed.contains(&ino) => {
                    orphan::remove(op, ino, &mut inode)?;
                    inode.set_links(1);
                }
                0 => return Err(Error::NotFound),
                n if n >= MAX_LINKS => return Err(Error::TooManyLinks),
                n => inode.set_links(n + 1),
            }
            dir::add(op, new_parent, &mut dir, new_name, ino, FileType::from_mode(inode.mode()), op.pool())?;
            touch(op, &mut dir);
            op.put_inode(new_parent, &mut dir)?;
            inode.set_time(Time::Change, op.now());
            op.put_inode(ino, &mut inode)?;
            op.add_ref(ino);
            op.note_name(ino, new_name);
            Ok((op.seen(ino, &inode), is_sync(&dir)))
        })?;
        self.settle(sync, tid)?;
        Ok(self.told(seen))
    }
}
