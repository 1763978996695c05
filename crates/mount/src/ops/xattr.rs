//! Extended attributes. With a size of zero the kernel asks how large the answer would be.

use crate::caller::Capability;
use crate::fail::Fail;
use crate::server::{Answer, Server, ino_of};
use crate::wire::abi::{ACL_KILL_SGID, init};
use crate::wire::{Body, Header, Out};
use quire_fs::{JournalingMode, SetAttr, XattrFlags};
use quire_layout::Ino;
use quire_layout::inode::mode;
use rustix::io::Errno;

/// Says whether the data of one file is journaled.
const JOURNAL_ATTRIBUTE: &[u8] = b"user.quire.journal";

const ACCESS_ACL: &[u8] = b"system.posix_acl_access";
/// The attributes with a file's ACLs.
const ACLS: [&[u8]; 2] = [ACCESS_ACL, b"system.posix_acl_default"];

const CREATE: u32 = 1;
const REPLACE: u32 = 2;

pub(crate) fn getxattr(s: &Server, h: &Header, b: &mut Body<'_>, out: &mut Out<'_>) -> Result<Answer, Fail> {
    let size = b.u32()?;
    b.skip(4)?;
    let (ino, name) = (ino_of(h.node)?, b.name()?);
    match s.volume_for(h).xattrs().get(ino, name) {
        // A kernel that checks ACLs, as of a connection that somebody else has mounted, takes any other error for that
        // of each access to the file.
        Err(quire_fs::Error::NotSupported(_)) if s.has(init::POSIX_ACL) && ACLS.contains(&name) => {
            Err(Fail::of(Errno::NODATA))
        }
        value => sized(&value?, size, out),
    }
}

pub(crate) fn listxattr(s: &Server, h: &Header, b: &mut Body<'_>, out: &mut Out<'_>) -> Result<Answer, Fail> {
    let size = b.u32()?;
    let mut list = Vec::new();
    for name in s.volume_for(h).xattrs().list(ino_of(h.node)?)? {
        // trusted.* is shown to those who may read it; every user of a FUSE mount sees the same list.
        if h.uid == 0 || !name.starts_with(b"trusted.") {
            list.extend_from_slice(&name);
            list.push(0);
        }
    }
    sized(&list, size, out)
}

pub(crate) fn setxattr(s: &Server, h: &Header, b: &mut Body<'_>) -> Result<Answer, Fail> {
    let ino = ino_of(h.node)?;
    let (size, flags) = (b.u32()?, b.u32()?);
    let mut kill_sgid = false;
    if s.has_setxattr_ext() {
        kill_sgid = b.u32()? & ACL_KILL_SGID != 0;
        b.skip(4)?;
    }
    let how = match flags {
        0 => XattrFlags::Any,
        CREATE => XattrFlags::Create,
        REPLACE => XattrFlags::Replace,
        _ => return Err(Fail::of(Errno::INVAL)),
    };
    let (name, value) = (b.name()?, b.bytes(size)?);
    // As `chattr +j`. The other way round it takes nothing from anybody.
    if name == JOURNAL_ATTRIBUTE && value == JournalingMode::Journal.to_string().as_bytes() {
        s.demand(h, Capability::SysResource)?;
    }
    let (space, by) = (s.volume_for(h).getattr(ino)?.sectors, s.first_change(h));
    by.xattrs().set(ino, name, value, how)?;
    // The kernel says so of both ACLs, but a default ACL does not decide who may use the directory itself.
    if kill_sgid && name == ACCESS_ACL {
        let perm = s.volume.getattr(ino)?.mode & !mode::FMT & !0o2000;
        s.volume.setattr(ino, &SetAttr { mode: Some(perm), ..SetAttr::default() })?;
    }
    Ok(changed(s, ino, space).after_commit(&by, None))
}

pub(crate) fn removexattr(s: &Server, h: &Header, b: &mut Body<'_>) -> Result<Answer, Fail> {
    let ino = ino_of(h.node)?;
    let (space, by) = (s.volume_for(h).getattr(ino)?.sectors, s.first_change(h));
    by.xattrs().remove(ino, b.name()?)?;
    Ok(changed(s, ino, space).after_commit(&by, None))
}

/// The answer to a change of extended attributes, given the space that the file took before. The kernel believes that
/// the change time alone is new, so it would show the earlier `st_blocks`.
fn changed(s: &Server, ino: Ino, space: u64) -> Answer {
    let same = s.volume.getattr(ino).is_ok_and(|now| now.sectors == space);
    if same { Answer::Reply } else { Answer::Spoils(ino) }
}

fn sized(value: &[u8], size: u32, out: &mut Out<'_>) -> Result<Answer, Fail> {
    let len = u32::try_from(value.len()).map_err(|_| Fail::of(Errno::TOOBIG))?;
    if size == 0 {
        out.u32(len)?;
        out.u32(0)?;
    } else if len > size {
        return Err(Fail::of(Errno::RANGE));
    } else {
        out.bytes(value)?;
    }
    Ok(Answer::Reply)
}
