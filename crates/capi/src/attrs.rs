//! Attributes by path: stat, owners, modes, times, extended attributes.

use crate::args::{bytes, get, input, invalid, out, output, path};
use crate::error::{Failure, guard_errno, guard0};
use crate::fs::quire_fs;
use libc::{c_char, c_int, c_void};
use quire::{Dir, Links, Metadata, Result, SetMetadata, Timestamp};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A time: seconds since 1970 and nanoseconds.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(non_camel_case_types)]
pub struct quire_time {
    pub secs: i64,
    /// 0 to 999,999,999.
    pub nanos: u32,
    pub reserved0: u32,
}

/// What the file system knows of an object.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(non_camel_case_types)]
pub struct quire_stat {
    /// Bytes.
    pub size: u64,
    /// Bytes of the image that it takes.
    pub allocated: u64,
    pub ino: u32,
    /// Type and permissions, as st_mode.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub links: u32,
    /// FS_IMMUTABLE_FL and others.
    pub flags: u32,
    pub device_major: u32,
    pub device_minor: u32,
    pub accessed: quire_time,
    pub modified: quire_time,
    pub changed: quire_time,
    /// All zero, if the inode does not have it.
    pub created: quire_time,
}

pub(crate) fn stat_of(m: &Metadata) -> quire_stat {
    let time = |t: Timestamp| quire_time { secs: t.secs, nanos: t.nanos, reserved0: 0 };
    quire_stat {
        size: m.size,
        allocated: m.allocated,
        ino: m.ino,
        mode: m.mode,
        uid: m.uid,
        gid: m.gid,
        links: m.links,
        flags: m.flags,
        device_major: m.device.0,
        device_minor: m.device.1,
        accessed: time(m.accessed),
        modified: time(m.modified),
        changed: time(m.changed),
        created: time(m.created.unwrap_or_default()),
    }
}

fn links(follow: bool) -> Links {
    if follow { Links::Follow } else { Links::NoFollow }
}

/// What the file system knows of an object, after symbolic links. 0, or a negative errno.
///
/// # Safety
/// `fs` is open, `name` a text, `stat` a place for the result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_stat(fs: *const quire_fs, name: *const c_char, stat: *mut quire_stat) -> c_int {
    // SAFETY: the caller's duty.
    unsafe { metadata(fs, name, stat, |fs, name| fs.metadata(name)) }
}

/// What the file system knows of an object, of a symbolic link itself. 0, or a negative errno.
///
/// # Safety
/// As [`quire_stat()`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_lstat(fs: *const quire_fs, name: *const c_char, stat: *mut quire_stat) -> c_int {
    // SAFETY: the caller's duty.
    unsafe { metadata(fs, name, stat, |fs, name| fs.symlink_metadata(name)) }
}

/// # Safety
/// As [`quire_stat()`].
unsafe fn metadata(
    fs: *const quire_fs,
    name: *const c_char,
    stat: *mut quire_stat,
    ask: impl FnOnce(&Dir, &Path) -> Result<Metadata>,
) -> c_int {
    guard0(|| {
        // SAFETY: the caller's duty.
        let (fs, name, stat) = unsafe { (get(fs)?, path(name)?, out(stat)?) };
        stat.write(stat_of(&ask(&fs.fs, name)?));
        Ok(())
    })
}

/// Sets permissions, after symbolic links. 0, or a negative errno.
///
/// # Safety
/// `fs` is open, `name` a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_chmod(fs: *const quire_fs, name: *const c_char, mode: u32) -> c_int {
    guard0(|| {
        // SAFETY: the caller's duty.
        let (fs, name) = unsafe { (get(fs)?, path(name)?) };
        fs.fs.chmod(name, mode & 0o7777)
    })
}

/// Sets owner and group; (uint32_t)-1 leaves one as it is. 0, or a negative errno.
///
/// # Safety
/// `fs` is open, `name` a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_chown(
    fs: *const quire_fs,
    name: *const c_char,
    follow: bool,
    uid: u32,
    gid: u32,
) -> c_int {
    guard0(|| {
        // SAFETY: the caller's duty.
        let (fs, name) = unsafe { (get(fs)?, path(name)?) };
        let mut set = SetMetadata::new();
        if uid != u32::MAX {
            set = set.uid(uid);
        }
        if gid != u32::MAX {
            set = set.gid(gid);
        }
        fs.fs.set_metadata(name, links(follow), set)
    })
}

/// Sets times; a null pointer leaves one as it is. 0, or a negative errno.
///
/// # Safety
/// `fs` is open, `name` a text, the times null or filled.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_utimens(
    fs: *const quire_fs,
    name: *const c_char,
    follow: bool,
    accessed: *const quire_time,
    modified: *const quire_time,
) -> c_int {
    guard0(|| {
        // SAFETY: the caller's duty.
        let (fs, name, times) = unsafe { (get(fs)?, path(name)?, [accessed.as_ref(), modified.as_ref()]) };
        let time = |t: &quire_time| {
            (t.nanos < 1_000_000_000)
                .then(|| Timestamp::new(t.secs, t.nanos))
                .ok_or_else(|| invalid("nanoseconds of a second or more").at(name))
        };
        let mut set = SetMetadata::new();
        if let Some(t) = times[0] {
            set = set.accessed(time(t)?);
        }
        if let Some(t) = times[1] {
            set = set.modified(time(t)?);
        }
        fs.fs.set_metadata(name, links(follow), set)
    })
}

/// Copies a result as getxattr(2) does: with len 0 only its size is told.
///
/// # Safety
/// `data` has `len` bytes.
unsafe fn hand_over(value: &[u8], data: *mut c_void, len: usize) -> Result<i64, Failure> {
    if len > 0 {
        // SAFETY: the caller's duty.
        let buf = unsafe { output(data, len) }?;
        let Some(part) = buf.get_mut(..value.len()) else {
            return Err(Failure::with_errno(invalid("the buffer is too small for the result"), libc::ERANGE));
        };
        part.copy_from_slice(value);
    }
    i64::try_from(value.len()).map_err(|_| invalid("a length beyond the address space").into())
}

/// Reads an extended attribute, such as "user.comment". Its size, or a negative errno; with len 0, nothing is copied.
///
/// # Safety
/// `fs` is open, the texts are texts, `data` has `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_getxattr(
    fs: *const quire_fs,
    name: *const c_char,
    follow: bool,
    attribute: *const c_char,
    data: *mut c_void,
    len: usize,
) -> i64 {
    guard_errno(|| {
        // SAFETY: the caller's duty.
        let (fs, name, attribute) = unsafe { (get(fs)?, path(name)?, bytes(attribute)?) };
        let value = fs.fs.xattr(name, links(follow), OsStr::from_bytes(attribute))?;
        // SAFETY: the caller's duty.
        unsafe { hand_over(&value, data, len) }
    })
}

/// Sets an extended attribute, and makes it if need be. 0, or a negative errno.
///
/// # Safety
/// As [`quire_getxattr`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_setxattr(
    fs: *const quire_fs,
    name: *const c_char,
    follow: bool,
    attribute: *const c_char,
    data: *const c_void,
    len: usize,
) -> c_int {
    guard0(|| {
        // SAFETY: the caller's duty.
        let (fs, name, attribute, value) = unsafe { (get(fs)?, path(name)?, bytes(attribute)?, input(data, len)?) };
        fs.fs.set_xattr(name, links(follow), OsStr::from_bytes(attribute), value)
    })
}

/// Removes an extended attribute. 0, or a negative errno.
///
/// # Safety
/// `fs` is open, the texts are texts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_removexattr(
    fs: *const quire_fs,
    name: *const c_char,
    follow: bool,
    attribute: *const c_char,
) -> c_int {
    guard0(|| {
        // SAFETY: the caller's duty.
        let (fs, name, attribute) = unsafe { (get(fs)?, path(name)?, bytes(attribute)?) };
        fs.fs.remove_xattr(name, links(follow), OsStr::from_bytes(attribute))
    })
}

/// Lists the names of extended attributes, each with a zero at the end. Their size, or a negative errno; with len 0,
/// nothing is copied.
///
/// # Safety
/// As [`quire_getxattr`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_listxattr(
    fs: *const quire_fs,
    name: *const c_char,
    follow: bool,
    data: *mut c_void,
    len: usize,
) -> i64 {
    guard_errno(|| {
        // SAFETY: the caller's duty.
        let (fs, name) = unsafe { (get(fs)?, path(name)?) };
        let mut all = Vec::new();
        for attribute in fs.fs.xattrs(name, links(follow))? {
            all.extend_from_slice(attribute.as_bytes());
            all.push(0);
        }
        // SAFETY: the caller's duty.
        unsafe { hand_over(&all, data, len) }
    })
}
