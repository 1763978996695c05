//! New files, directories, symbolic links and nodes, with a name or, until they get one, without.

use super::{add_child, directory, touch};
use crate::attr::Attr;
use crate::dir;
use crate::error::{Error, Result};
use crate::flags::{is_sync, may_add};
use crate::inode_ops::{New, NewKind, make};
use crate::mode;
use crate::orphan;
use crate::volume::Volume;
use quire_layout::Ino;
use quire_layout::dir::FileType;

impl Volume {
    /// Makes an object and its name. The caller gets a reference on it.
    ///
    /// # Errors
    /// Exists; not found (the directory was removed); not a directory; name too long; too many links (directories); no
    /// space, no inodes; not permitted (immutable directory); corrupt, I/O, read-only.
    pub fn create(&self, parent: Ino, name: &[u8], new: &New<'_>) -> Result<Attr> {
        let ((attr, sync), tid) = self.run_tid(|op| {
            let mut dir = directory(op, parent)?;
            if dir::lookup(op, parent, &dir, name)?.is_some() {
                return Err(Error::Exists);
            }
            may_add(&dir)?;
            let pool = new.cred.pool(op);
            let (ino, mut inode) = make(op, parent, &dir, new)?;
            if mode::hand_down(op, (parent, &dir), (ino, &mut inode), name)? {
                op.put_inode(ino, &mut inode)?;
            }
            op.note_name(ino, name);
            if inode.is_dir() {
                dir::init(op, ino, &mut inode, parent, pool)?;
                op.put_inode(ino, &mut inode)?;
                add_child(op, &mut dir)?;
            }
            dir::add(op, parent, &mut dir, name, ino, FileType::from_mode(inode.mode()), pool)?;
            touch(op, &mut dir);
            op.put_inode(parent, &mut dir)?;
            op.add_ref(ino);
            Ok((Attr::of(op.sb(), ino, &inode), is_sync(&dir)))
        })?;
        self.settle(sync, tid)?;
        Ok(attr)
    }

    /// Makes a regular file without a name (`O_TMPFILE`), as [`Volume::create`] would make it in this directory. It is an orphan, so a
    /// crash leaves nothing of it; [`Volume::link`] gives it its first name. The caller gets a reference on it.
    ///
    /// # Errors
    /// Invalid (no regular file); otherwise as [`Volume::create`].
    pub fn create_unnamed(&self, parent: Ino, new: &New<'_>) -> Result<Attr> {
        if new.kind != NewKind::File {
            return Err(Error::Invalid("only a regular file can be without a name"));
        }
        self.run(|op| {
            let dir = directory(op, parent)?;
            may_add(&dir)?;
            let (ino, mut inode) = make(op, parent, &dir, new)?;
            if mode::hand_down(op, (parent, &dir), (ino, &mut inode), b"")? {
                op.put_inode(ino, &mut inode)?;
            }
            inode.set_links(0);
            orphan::add(op, ino, &mut inode)?;
            op.deferred.unnamed = Some(ino);
            op.add_ref(ino);
            Ok(Attr::of(op.sb(), ino, &inode))
        })
    }
}
