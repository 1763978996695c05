//! Attributes to change.

use crate::error::Result;
use crate::metadata::{Timestamp, check_owner, permission_bits};
use quire_fs::{SetAttr, SetTime};

/// Attributes to change at once; what is not set stays.
///
/// ```
/// # use quire::{CreateOptions, Links, SetMetadata, Timestamp};
/// # let fs = CreateOptions::new().size(4 << 20).in_memory()?;
/// fs.write("/motd", "hello\n")?;
/// fs.set_metadata("/motd", Links::Follow, SetMetadata::new().owner(1000, 100).permissions(0o640))?;
/// let m = fs.metadata("/motd")?;
/// assert_eq!((m.uid, m.gid, m.permissions()), (1000, 100, 0o640));
/// # Ok::<(), quire::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[must_use]
pub struct SetMetadata {
    permissions: Option<u32>,
    uid: Option<u32>,
    gid: Option<u32>,
    accessed: Option<Timestamp>,
    modified: Option<Timestamp>,
}

impl SetMetadata {
    pub fn new() -> Self {
        SetMetadata::default()
    }

    /// Permissions with set-user-id, set-group-id and sticky.
    pub fn permissions(self, permissions: u32) -> Self {
        SetMetadata { permissions: Some(permissions), ..self }
    }

    pub fn owner(self, uid: u32, gid: u32) -> Self {
        SetMetadata { uid: Some(uid), gid: Some(gid), ..self }
    }

    pub fn uid(self, uid: u32) -> Self {
        SetMetadata { uid: Some(uid), ..self }
    }

    pub fn gid(self, gid: u32) -> Self {
        SetMetadata { gid: Some(gid), ..self }
    }

    pub fn accessed(self, t: Timestamp) -> Self {
        SetMetadata { accessed: Some(t), ..self }
    }

    pub fn modified(self, t: Timestamp) -> Self {
        SetMetadata { modified: Some(t), ..self }
    }

    /// Changes an inode. The owner comes first, because a change of owner removes set-user-id and set-group-id.
    ///
    /// # Errors
    /// Invalid: an owner that no object can have; nothing is changed. Those of the engine.
    pub(crate) fn apply(self, volume: &quire_fs::Volume, ino: quire_layout::Ino) -> Result<()> {
        check_owner(self.uid, self.gid)?;
        if self.uid.is_some() || self.gid.is_some() {
            volume.setattr(ino, &SetAttr { uid: self.uid, gid: self.gid, ..SetAttr::default() })?;
        }
        let at = |t: Option<Timestamp>| t.map(|t| SetTime::At(t.engine()));
        let rest = SetAttr {
            mode: self.permissions.map(permission_bits),
            atime: at(self.accessed),
            mtime: at(self.modified),
            ..SetAttr::default()
        };
        if rest != SetAttr::default() {
            volume.setattr(ino, &rest)?;
        }
        Ok(())
    }
}
