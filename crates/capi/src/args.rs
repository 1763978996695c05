//! Arguments from C: pointers become references, texts and slices.
//!
//! *Relies on* the caller, as C does: what is not null points to what its type says.

use libc::{c_char, c_void};
use quire::{Error, ErrorKind, Result};
use std::ffi::{CStr, OsStr};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

pub(crate) fn invalid(what: &str) -> Error {
    Error::new(ErrorKind::InvalidInput, what)
}

/// The bytes of a text.
///
/// # Safety
/// `text` is null or points to a text with a zero at the end that lives as long as `'a`.
pub(crate) unsafe fn bytes<'a>(text: *const c_char) -> Result<&'a [u8]> {
    if text.is_null() {
        return Err(invalid("a null pointer instead of a text"));
    }
    // SAFETY: not null; the rest is the caller's duty.
    Ok(unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// A path.
///
/// # Safety
/// As [`bytes`].
pub(crate) unsafe fn path<'a>(text: *const c_char) -> Result<&'a Path> {
    // SAFETY: the caller's duty.
    Ok(Path::new(OsStr::from_bytes(unsafe { bytes(text) }?)))
}

/// A handle, or a structure that the caller has filled.
///
/// # Safety
/// `pointer` is null or points to a `T` that lives as long as `'a`.
pub(crate) unsafe fn get<'a, T>(pointer: *const T) -> Result<&'a T> {
    // SAFETY: the caller's duty.
    unsafe { pointer.as_ref() }.ok_or_else(|| invalid("a null pointer instead of a handle"))
}

/// A handle that a call changes.
///
/// # Safety
/// As [`get`], and no other thread uses it meanwhile.
pub(crate) unsafe fn get_mut<'a, T>(pointer: *mut T) -> Result<&'a mut T> {
    // SAFETY: the caller's duty.
    unsafe { pointer.as_mut() }.ok_or_else(|| invalid("a null pointer instead of a handle"))
}

/// Where a result goes.
///
/// # Safety
/// `pointer` is null or may be written.
pub(crate) unsafe fn out<'a, T>(pointer: *mut T) -> Result<&'a mut MaybeUninit<T>> {
    // SAFETY: the caller's duty; nothing is read.
    unsafe { pointer.cast::<MaybeUninit<T>>().as_mut() }.ok_or_else(|| invalid("a null pointer for a result"))
}

/// A new handle for the caller, who ends it by the function for that.
pub(crate) fn give<T>(place: &mut MaybeUninit<*mut T>, value: T) {
    place.write(Box::into_raw(Box::new(value)));
}

/// Takes a handle back. `None`: it is null.
///
/// # Safety
/// `pointer` is null or came from [`give`], and is not used any more.
pub(crate) unsafe fn take<T>(pointer: *mut T) -> Option<Box<T>> {
    // SAFETY: the caller's duty.
    (!pointer.is_null()).then(|| unsafe { Box::from_raw(pointer) })
}

/// Bytes to read from.
///
/// # Safety
/// `data` points to `len` bytes that live as long as `'a`, or `len` is 0.
pub(crate) unsafe fn input<'a>(data: *const c_void, len: usize) -> Result<&'a [u8]> {
    match (data.is_null(), len) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(invalid("a null pointer instead of data")),
        // SAFETY: the caller's duty.
        (false, _) if len <= isize::MAX.unsigned_abs() => Ok(unsafe { std::slice::from_raw_parts(data.cast(), len) }),
        _ => Err(invalid("a length beyond the address space")),
    }
}

/// Bytes to write to. They are set to zero first, so that nothing uninitialized is read.
///
/// # Safety
/// `data` points to `len` bytes that nobody else uses, or `len` is 0.
pub(crate) unsafe fn output<'a>(data: *mut c_void, len: usize) -> Result<&'a mut [u8]> {
    match (data.is_null(), len) {
        (_, 0) => Ok(&mut []),
        (true, _) => Err(invalid("a null pointer instead of a buffer")),
        (false, _) if len <= isize::MAX.unsigned_abs() => {
            // SAFETY: the caller's duty; all bytes are initialized before the slice exists.
            Ok(unsafe {
                data.cast::<u8>().write_bytes(0, len);
                std::slice::from_raw_parts_mut(data.cast(), len)
            })
        }
        _ => Err(invalid("a length beyond the address space")),
    }
}

/// A structure of choices as the caller's version of the header knows it: what is missing at its end is zero, and what
/// this library does not know must be zero.
///
/// # Safety
/// `how` is null or points to `size` bytes.
pub(crate) unsafe fn choices<T: Copy>(how: *const T, size: usize) -> Result<T> {
    let mut known = MaybeUninit::<T>::zeroed();
    // SAFETY: the caller's duty.
    let given = unsafe { input(how.cast(), if how.is_null() { 0 } else { size }) }?;
    let (head, tail) = given.split_at(given.len().min(size_of::<T>()));
    if tail.iter().any(|b| *b != 0) {
        return Err(invalid("choices that this version of libquire does not know"));
    }
    // SAFETY: `head` is no longer than `T`. The types of choices are plain numbers and pointers: any bytes are valid.
    unsafe {
        known.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(head.as_ptr(), head.len());
        Ok(known.assume_init())
    }
}
