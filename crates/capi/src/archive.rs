//! Whole trees: directories, tar archives and OCI layouts into an image, and out of it.

use crate::args::{choices, get, path};
use crate::error::guard0;
use crate::fs::{create_options, quire_create_how, quire_fs};
use libc::{c_char, c_int};
use quire::archive::{self, BuildOptions, ImportOptions, Size, Source};
use std::fs::File;
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;
use std::path::Path;

/// What an import changes on the way. Set it to zero, then what differs.
#[repr(C)]
#[derive(Clone, Copy, Default)]
#[allow(non_camel_case_types)]
pub struct quire_import_how {
    /// Not 0: all objects get uid and gid instead of their own.
    pub set_owner: u32,
    pub uid: u32,
    pub gid: u32,
    /// Permission bits that no object keeps.
    pub remove_permissions: u32,
    /// Not 0: names that begin with ".wh." in a tar hide what is in the image.
    pub whiteouts: u32,
    pub reserved0: u32,
}

fn import_options(how: &quire_import_how) -> ImportOptions {
    let mut options = ImportOptions::new().remove_permissions(how.remove_permissions).whiteouts(how.whiteouts != 0);
    if how.set_owner != 0 {
        options = options.owner(Some(how.uid), Some(how.gid));
    }
    options
}

/// What a path is. "-" is a name for scripts of shells; here it is a file.
fn detect(path: &Path) -> quire::Result<Source> {
    if path.as_os_str() == "-" { Ok(Source::Tar(path.into())) } else { Source::detect(path) }
}

/// Brings a directory of the host, a tar archive (plain, gzip, zstd) or an OCI layout below the directory `to`, which
/// must exist. The image itself is left out of a directory. The source "-" is a file of that name. how may be NULL;
/// size is sizeof(struct quire_import_how). 0, or a negative errno.
///
/// # Safety
/// `fs` is open, the texts are texts, `how` is null or `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_import(
    fs: *const quire_fs,
    to: *const c_char,
    source: *const c_char,
    how: *const quire_import_how,
    size: usize,
) -> c_int {
    guard0(|| {
        // SAFETY: the caller's duty.
        let (fs, to, source, how) = unsafe { (get(fs)?, path(to)?, path(source)?, choices(how, size)?) };
        archive::import(&fs.fs, to, detect(source)?, &import_options(&how)).map(drop)
    })
}

/// Writes what is below the directory `from` as a tar archive to a file descriptor, which stays open. 0, or a negative
/// errno: that of write(2), if the descriptor takes nothing more. After an error readers of the archive miss its end.
///
/// # Safety
/// `fs` is open, `from` a text; `fd` is open and stays so during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_export_tar(fs: *const quire_fs, from: *const c_char, fd: c_int) -> c_int {
    guard0(|| {
        // SAFETY: the caller's duty.
        let (fs, from) = unsafe { (get(fs)?, path(from)?) };
        if fd < 0 {
            return Err(crate::args::invalid("no file descriptor"));
        }
        // SAFETY: the descriptor is open during the call, and not closed by it.
        let mut out = ManuallyDrop::new(unsafe { File::from_raw_fd(fd) });
        archive::export_tar(&fs.fs, from, &mut *out)
    })
}

/// Copies what is below the directory `from` into a directory of the host. 0, or a negative errno.
///
/// # Safety
/// `fs` is open, the texts are texts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_export_dir(fs: *const quire_fs, from: *const c_char, to: *const c_char) -> c_int {
    guard0(|| {
        // SAFETY: the caller's duty.
        let (fs, from, to) = unsafe { (get(fs)?, path(from)?, path(to)?) };
        archive::export_dir(&fs.fs, from, to)
    })
}

/// Builds an image from a directory, a tar archive or an OCI layout. It has its name when it is complete. With
/// how->size 0 it is as small as the tree allows. how_size is sizeof(struct quire_create_how). 0, or a negative errno.
///
/// # Safety
/// The texts are texts, `how` points to `how_size` bytes, `import` is null or has `import_size`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_build(
    image: *const c_char,
    source: *const c_char,
    how: *const quire_create_how,
    how_size: usize,
    import: *const quire_import_how,
    import_size: usize,
) -> c_int {
    guard0(|| {
        // SAFETY: the caller's duty.
        let (image, source) = unsafe { (path(image)?, path(source)?) };
        // SAFETY: the caller's duty.
        let (how, import) = unsafe { (choices(how, how_size)?, choices(import, import_size)?) };
        // SAFETY: the caller's duty.
        let create = unsafe { create_options(&how)? };
        let size = if how.size == 0 { Size::Min { percent: 0 } } else { Size::Bytes(how.size) };
        let options = BuildOptions { size, create, import: import_options(&import) };
        archive::build(image, Some(detect(source)?), &options).map(drop)
    })
}
