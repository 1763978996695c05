//! Files: bytes at a place.

use crate::args::{get, get_mut, give, input, out, output, path, take};
use crate::attrs::{quire_stat, stat_of};
use crate::error::{guard, guard0};
use crate::fs::quire_fs;
use libc::{c_char, c_int, c_void};
use quire::{File, FileOptions};
use std::io::{Read, Seek, SeekFrom, Write};

/// An open file. One thread uses it at a time; quire_pread and quire_pwrite may run at once.
#[allow(non_camel_case_types)]
pub struct quire_file {
    file: File,
}

/// Makes the file if it does not exist.
pub const QUIRE_CREATE: u32 = 1;
/// Makes the file; it must not exist.
pub const QUIRE_EXCLUSIVE: u32 = 2;
/// Empties the file.
pub const QUIRE_TRUNCATE: u32 = 4;
/// quire_write writes at the end of the file.
pub const QUIRE_APPEND: u32 = 8;

/// Opens a file; flags is 0 or a sum of QUIRE_CREATE, QUIRE_EXCLUSIVE, QUIRE_TRUNCATE and QUIRE_APPEND. mode is for a
/// file that is made. 0, or a negative errno.
///
/// # Safety
/// `fs` is open, `name` a text, `file` a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_file_open(
    fs: *const quire_fs,
    name: *const c_char,
    flags: u32,
    mode: u32,
    file: *mut *mut quire_file,
) -> c_int {
    guard0(|| {
        // SAFETY: the caller's duty.
        let (fs, name, file) = unsafe { (get(fs)?, path(name)?, out(file)?) };
        let known = QUIRE_CREATE | QUIRE_EXCLUSIVE | QUIRE_TRUNCATE | QUIRE_APPEND;
        if flags & !known != 0 {
            return Err(crate::args::invalid("an unknown flag").at(name));
        }
        let options = FileOptions::new()
            .create(flags & QUIRE_CREATE != 0)
            .create_new(flags & QUIRE_EXCLUSIVE != 0)
            .truncate(flags & QUIRE_TRUNCATE != 0)
            .append(flags & QUIRE_APPEND != 0)
            .permissions(mode & 0o7777);
        give(file, quire_file { file: fs.fs.open_with(name, options)? });
        Ok(())
    })
}

/// Ends the handle. What was written stays in memory until it is synced or the file system is closed, except what
/// replaces the content of a file that was cut to nothing: it is written to the image here. NULL does nothing.
///
/// # Safety
/// `file` is null or open, and not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_file_close(file: *mut quire_file) -> c_int {
    guard0(|| {
        // SAFETY: the caller's duty.
        drop(unsafe { take(file) });
        Ok(())
    })
}

/// Reads at the handle's position, and moves it. The count, less than len only at the end of the file; or a negative
/// errno.
///
/// # Safety
/// `file` is open, `data` has `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_read(file: *mut quire_file, data: *mut c_void, len: usize) -> i64 {
    guard(|| {
        // SAFETY: the caller's duty.
        let (file, buf) = unsafe { (get_mut(file)?, output(data, len)?) };
        count(file.file.read(buf).map_err(own)?)
    })
}

/// Writes at the handle's position, and moves it. The count, always len, or a negative errno.
///
/// # Safety
/// As [`quire_read`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_write(file: *mut quire_file, data: *const c_void, len: usize) -> i64 {
    guard(|| {
        // SAFETY: the caller's duty.
        let (file, bytes) = unsafe { (get_mut(file)?, input(data, len)?) };
        file.file.write_all(bytes).map_err(own)?;
        count(bytes.len())
    })
}

/// Reads at offset. The count, less than len only at the end of the file; or a negative errno.
///
/// # Safety
/// As [`quire_read`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_pread(file: *const quire_file, data: *mut c_void, len: usize, offset: u64) -> i64 {
    guard(|| {
        // SAFETY: the caller's duty.
        let (file, buf) = unsafe { (get(file)?, output(data, len)?) };
        count(file.file.read_at(buf, offset)?)
    })
}

/// Writes at offset. The count, always len, or a negative errno.
///
/// # Safety
/// As [`quire_read`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_pwrite(file: *const quire_file, data: *const c_void, len: usize, offset: u64) -> i64 {
    guard(|| {
        // SAFETY: the caller's duty.
        let (file, bytes) = unsafe { (get(file)?, input(data, len)?) };
        file.file.write_at(bytes, offset)?;
        count(bytes.len())
    })
}

/// Moves the handle's position; whence is SEEK_SET, SEEK_CUR or SEEK_END. The new position, or a negative errno.
///
/// # Safety
/// `file` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_seek(file: *mut quire_file, offset: i64, whence: c_int) -> i64 {
    guard(|| {
        // SAFETY: the caller's duty.
        let file = unsafe { get_mut(file) }?;
        let to = match (whence, u64::try_from(offset)) {
            (libc::SEEK_SET, Ok(at)) => SeekFrom::Start(at),
            (libc::SEEK_CUR, _) => SeekFrom::Current(offset),
            (libc::SEEK_END, _) => SeekFrom::End(offset),
            _ => return Err(crate::args::invalid("no such place to seek from")),
        };
        let at = file.file.seek(to).map_err(own)?;
        i64::try_from(at).map_err(|_| crate::args::invalid("beyond the largest position"))
    })
}

/// Sets the size. What the file grows over reads as zeros. 0, or a negative errno.
///
/// # Safety
/// `file` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_ftruncate(file: *const quire_file, size: u64) -> c_int {
    // SAFETY: the caller's duty.
    guard0(|| unsafe { get(file) }?.file.set_len(size))
}

/// Makes the file durable; with data_only, its contents and what is needed to read them. 0, or a negative errno.
///
/// # Safety
/// `file` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_fsync(file: *const quire_file, data_only: bool) -> c_int {
    guard0(|| {
        // SAFETY: the caller's duty.
        let file = unsafe { get(file) }?;
        if data_only { file.file.sync_data() } else { file.file.sync_all() }
    })
}

/// What the file system knows of the file. 0, or a negative errno.
///
/// # Safety
/// `file` is open, `stat` a place for the result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_fstat(file: *const quire_file, stat: *mut quire_stat) -> c_int {
    guard0(|| {
        // SAFETY: the caller's duty.
        let (file, stat) = unsafe { (get(file)?, out(stat)?) };
        stat.write(stat_of(&file.file.metadata()?));
        Ok(())
    })
}

fn count(n: usize) -> Result<i64, quire::Error> {
    i64::try_from(n).map_err(|_| crate::args::invalid("a length beyond the address space"))
}

/// The library's error inside of one of std::io.
fn own(e: std::io::Error) -> quire::Error {
    e.downcast::<quire::Error>().unwrap_or_else(|e| quire::Error::new(quire::ErrorKind::InvalidInput, e.to_string()))
}
