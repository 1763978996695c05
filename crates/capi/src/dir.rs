//! Directories: their entries, one after the other.

use crate::args::{get, get_mut, give, out, path, take};
use crate::attrs::{quire_stat, stat_of};
use crate::error::{guard, guard0};
use crate::fs::quire_fs;
use libc::{c_char, c_int};
use quire::{Metadata, Result};
use std::ffi::{CString, OsString};
use std::os::unix::ffi::OsStringExt;

/// The entries of a directory as they were when it was opened, in the order of their names.
#[allow(non_camel_case_types)]
pub struct quire_dir {
    left: std::vec::IntoIter<(OsString, Result<Metadata>)>,
    /// Of the entry that was returned last.
    name: CString,
}

/// One entry of a directory.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(non_camel_case_types)]
pub struct quire_dirent {
    /// Valid until the next quire_readdir or quire_closedir.
    pub name: *const c_char,
    /// Of the object itself, also of a symbolic link.
    pub stat: quire_stat,
}

/// Opens a directory. 0, or a negative errno.
///
/// # Safety
/// `fs` is open, `name` a text, `dir` a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_opendir(fs: *const quire_fs, name: *const c_char, dir: *mut *mut quire_dir) -> c_int {
    guard0(|| {
        // SAFETY: the caller's duty.
        let (fs, name, dir) = unsafe { (get(fs)?, path(name)?, out(dir)?) };
        let left = fs.fs.read_dir_each(name)?.into_iter();
        give(dir, quire_dir { left, name: CString::default() });
        Ok(())
    })
}

/// The next entry, without "." and "..". 1, or 0 at the end, or a negative errno: the object cannot be read. The next
/// call goes on behind it.
///
/// # Safety
/// `dir` is open, `entry` a place for the result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_readdir(dir: *mut quire_dir, entry: *mut quire_dirent) -> c_int {
    let n = guard(|| {
        // SAFETY: the caller's duty.
        let (dir, entry) = unsafe { (get_mut(dir)?, out(entry)?) };
        let Some((name, metadata)) = dir.left.next() else { return Ok(0) };
        let metadata = metadata?;
        // The engine refuses names with a zero inside.
        dir.name = CString::new(name.into_vec()).map_err(|_| crate::args::invalid("a name with a zero inside"))?;
        entry.write(quire_dirent { name: dir.name.as_ptr(), stat: stat_of(&metadata) });
        Ok(1)
    });
    c_int::try_from(n).unwrap_or(-libc::EIO)
}

/// Ends the handle. NULL does nothing.
///
/// # Safety
/// `dir` is null or open, and not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_closedir(dir: *mut quire_dir) -> c_int {
    guard0(|| {
        // SAFETY: the caller's duty.
        drop(unsafe { take(dir) });
        Ok(())
    })
}
