//! Changes of attributes: mode, owner, times, privileges.

use super::acl;
use super::attr::Attr;
use super::flags::{is_sync, may_change};
use super::live::live;
use super::types::{PERMISSIONS, Privileges, SETGID, SETUID, SetAttr, SetTime};
use crate::error::Result;
use crate::records;
use crate::txn::Op;
use crate::xattr;
use quire_layout::Ino;
use quire_layout::inode::{Inode, Time, Timestamp, flags};

const GROUP_EXECUTE: u16 = 0o010;
/// With relatime, a read renews an access time that is older than this, in seconds.
const RELATIME_SECS: i64 = 24 * 60 * 60;

/// Changes attributes other than the size. A change of owner removes set-user-id, set-group-id (of a program) and
/// capabilities of a file. Returns the new attributes, and whether the inode asks for durable changes.
///
/// # Errors
/// Not permitted (immutable, append-only); no space (an ACL that must be copied); stale; corrupt; miss.
pub(crate) fn setattr(op: &mut Op<'_>, ino: Ino, set: &SetAttr) -> Result<(Attr, bool)> {
    let mut inode = live(op, ino)?;
    check_setattr(&inode, set)?;
    change(op, ino, &mut inode, set)?;
    records::put_inode(op, ino, &mut inode)?;
    Ok((Attr::of(op.sb(), ino, &inode), is_sync(&inode)))
}

/// Sets the access time to now.
///
/// # Errors
/// Stale; read-only; corrupt; miss.
pub(crate) fn touch_atime(op: &mut Op<'_>, ino: Ino) -> Result<()> {
    let mut inode = live(op, ino)?;
    inode.set_time(Time::Access, op.now());
    records::put_inode(op, ino, &mut inode)
}

/// relatime: the file was not accessed since its last change, or not within a day.
pub(crate) fn is_atime_due(attr: &Attr, now: Timestamp) -> bool {
    attr.atime <= attr.mtime || attr.atime <= attr.ctime || now.secs.saturating_sub(attr.atime.secs) >= RELATIME_SECS
}

/// Refuses what immutable and append-only files forbid. Times may be set to now on an append-only file, and to those of
/// earlier writes on both.
///
/// # Errors
/// Not permitted.
pub(crate) fn check_setattr(inode: &Inode, set: &SetAttr) -> Result<()> {
    let given = |t: Option<SetTime>| matches!(t, Some(SetTime::At(_)));
    let owner = set.mode.is_some() || set.uid.is_some() || set.gid.is_some();
    let times_alone = !owner && set.size.is_none() && set.privileges == Privileges::Keep;
    if set.of_earlier_writes && times_alone {
        return Ok(());
    }
    if owner || set.size.is_some() || given(set.atime) || given(set.mtime) {
        return may_change(inode);
    }
    let any = set.atime.is_some() || set.mtime.is_some() || set.ctime.is_some();
    if (any || set.privileges != Privileges::Keep) && inode.has(flags::IMMUTABLE) { may_change(inode) } else { Ok(()) }
}

fn change(op: &mut Op<'_>, ino: Ino, inode: &mut Inode, set: &SetAttr) -> Result<()> {
    if let Some(uid) = set.uid {
        inode.set_uid(uid);
    }
    if let Some(gid) = set.gid {
        inode.set_gid(gid);
    }
    let chown = set.uid.is_some() || set.gid.is_some();
    let privileges = if chown { set.privileges.max(Privileges::Drop) } else { set.privileges };
    if !inode.is_dir() {
        drop_privileges(op, ino, inode, privileges)?;
    }
    if let Some(m) = set.mode {
        inode.set_mode(inode.file_type() | (m & PERMISSIONS));
        acl::follow_mode(op, ino, inode)?;
    }
    let now = op.now();
    for (which, time) in [(Time::Access, set.atime), (Time::Modify, set.mtime)] {
        match time {
            Some(SetTime::Now) => inode.set_time(which, now),
            Some(SetTime::At(t)) => inode.set_time(which, t),
            None => {}
        }
    }
    inode.set_time(Time::Change, set.ctime.unwrap_or(now));
    Ok(())
}

/// Removes set-user-id, set-group-id and capabilities, as a write or a change of owner must, or capabilities alone. The
/// caller writes the inode.
///
/// # Errors
/// Corrupt; no space (a shared attribute block); miss.
pub(crate) fn drop_privileges(op: &mut Op<'_>, ino: Ino, inode: &mut Inode, what: Privileges) -> Result<()> {
    let program = inode.mode() & GROUP_EXECUTE != 0;
    let gone = match what {
        Privileges::Keep => return Ok(()),
        Privileges::DropCapabilities if !xattr::may_have_capabilities(op, ino, inode) => return Ok(()),
        Privileges::DropCapabilities => 0,
        Privileges::Drop if !program => SETUID,
        Privileges::Drop | Privileges::DropAll => SETUID | SETGID,
    };
    inode.set_mode(inode.mode() & !gone);
    xattr::drop_capabilities(op, ino, inode)
}
