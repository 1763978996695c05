//! Names: directories, links, devices, rename, remove.

use crate::args::{get, output, path};
use crate::error::{guard, guard0};
use crate::fs::quire_fs;
use libc::{c_char, c_int, c_void};
use quire::{Dir, FileType, NewNode, Result};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// # Safety
/// `fs` is open, `name` a text.
unsafe fn with(fs: *const quire_fs, name: *const c_char, f: impl FnOnce(&Dir, &Path) -> Result<()>) -> c_int {
    guard0(|| {
        // SAFETY: the caller's duty.
        let (fs, name) = unsafe { (get(fs)?, path(name)?) };
        f(&fs.fs, name)
    })
}

/// Makes a directory. 0, or a negative errno.
///
/// # Safety
/// `fs` is open, `name` a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_mkdir(fs: *const quire_fs, name: *const c_char, mode: u32) -> c_int {
    // SAFETY: the caller's duty.
    unsafe { with(fs, name, |fs, name| fs.create_node(name, NewNode::new(FileType::Dir, mode & 0o7777))) }
}

/// Makes a directory and those above it, with mode 0755, where they do not exist. 0, or a negative errno.
///
/// # Safety
/// As [`quire_mkdir`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_mkdir_all(fs: *const quire_fs, name: *const c_char) -> c_int {
    // SAFETY: the caller's duty.
    unsafe { with(fs, name, |fs, name| fs.create_dir_all(name).map(drop)) }
}

/// Makes a file, fifo, socket or device; mode has the type, as mknod(2) takes it. 0, or a negative errno.
///
/// # Safety
/// As [`quire_mkdir`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_mknod(
    fs: *const quire_fs,
    name: *const c_char,
    mode: u32,
    device_major: u32,
    device_minor: u32,
) -> c_int {
    let make = |fs: &Dir, name: &Path| {
        let new = NewNode::from_mode(mode).ok_or_else(|| crate::args::invalid("no such type of object").at(name))?;
        fs.create_node(name, new.device(device_major, device_minor))
    };
    // SAFETY: the caller's duty.
    unsafe { with(fs, name, make) }
}

/// Removes a name that is no directory. 0, or a negative errno.
///
/// # Safety
/// As [`quire_mkdir`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_unlink(fs: *const quire_fs, name: *const c_char) -> c_int {
    // SAFETY: the caller's duty.
    unsafe { with(fs, name, |fs, name| fs.remove_file(name)) }
}

/// Removes an empty directory. 0, or a negative errno.
///
/// # Safety
/// As [`quire_mkdir`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_rmdir(fs: *const quire_fs, name: *const c_char) -> c_int {
    // SAFETY: the caller's duty.
    unsafe { with(fs, name, |fs, name| fs.remove_dir(name)) }
}

/// Removes a name and everything below it. Symbolic links are not followed. 0, or a negative errno.
///
/// # Safety
/// As [`quire_mkdir`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_remove_all(fs: *const quire_fs, name: *const c_char) -> c_int {
    // SAFETY: the caller's duty.
    unsafe { with(fs, name, |fs, name| fs.remove_all(name)) }
}

/// Sets the size of a file. 0, or a negative errno.
///
/// # Safety
/// As [`quire_mkdir`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_truncate(fs: *const quire_fs, name: *const c_char, size: u64) -> c_int {
    // SAFETY: the caller's duty.
    unsafe { with(fs, name, |fs, name| fs.truncate(name, size)) }
}

/// Renames; what has the new name is replaced. 0, or a negative errno.
///
/// # Safety
/// `fs` is open, `from` and `to` are texts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_rename(fs: *const quire_fs, from: *const c_char, to: *const c_char) -> c_int {
    guard0(|| {
        // SAFETY: the caller's duty.
        let (fs, from, to) = unsafe { (get(fs)?, path(from)?, path(to)?) };
        fs.fs.rename(from, to)
    })
}

/// Makes a hard link: a second name. 0, or a negative errno.
///
/// # Safety
/// As [`quire_rename`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_link(fs: *const quire_fs, from: *const c_char, to: *const c_char) -> c_int {
    guard0(|| {
        // SAFETY: the caller's duty.
        let (fs, from, to) = unsafe { (get(fs)?, path(from)?, path(to)?) };
        fs.fs.hard_link(from, to)
    })
}

/// Makes a symbolic link that leads to target. 0, or a negative errno.
///
/// # Safety
/// As [`quire_rename`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_symlink(fs: *const quire_fs, target: *const c_char, name: *const c_char) -> c_int {
    guard0(|| {
        // SAFETY: the caller's duty.
        let (fs, target, name) = unsafe { (get(fs)?, path(target)?, path(name)?) };
        fs.fs.symlink(target, name)
    })
}

/// Reads where a symbolic link leads, without a zero at the end, cut to len. The whole length, which may be more than
/// len; or a negative errno.
///
/// # Safety
/// `fs` is open, `name` a text, `data` has `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_readlink(
    fs: *const quire_fs,
    name: *const c_char,
    data: *mut c_char,
    len: usize,
) -> i64 {
    guard(|| {
        // SAFETY: the caller's duty.
        let (fs, name, buf) = unsafe { (get(fs)?, path(name)?, output(data.cast::<c_void>(), len)?) };
        let target = fs.fs.read_link(name)?;
        let part = target.len().min(len);
        buf[..part].copy_from_slice(&target.as_bytes()[..part]);
        i64::try_from(target.len()).map_err(|_| crate::args::invalid("a length beyond the address space"))
    })
}
