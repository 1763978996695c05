//! File systems: open, create, close.

use crate::args::{choices, get, give, out, path, take};
use crate::error::guard0;
use libc::{c_char, c_int};
use quire::{CreateOptions, FileSystem, OpenOptions, Result};

/// An open file system. It may be used by several threads at once.
#[allow(non_camel_case_types)]
pub struct quire_fs {
    pub(crate) fs: FileSystem,
}

/// How an image is opened. Set it to zero, then what differs.
#[repr(C)]
#[derive(Clone, Copy, Default)]
#[allow(non_camel_case_types)]
pub struct quire_open_how {
    /// Where the file system begins in the image, in bytes.
    pub offset: u64,
    /// Memory for blocks and file data, in bytes; 0: 64 MiB.
    pub cache_size: u64,
    /// The file system lies in this partition, counted from 1; 0: in none.
    pub partition: u32,
    /// Owner and group of what is made.
    pub uid: u32,
    pub gid: u32,
    /// Not 0: change nothing.
    pub read_only: u32,
}

/// How an image is made. Set it to zero, then what differs.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(non_camel_case_types)]
pub struct quire_create_how {
    /// Bytes of the image.
    pub size: u64,
    /// At most 16 bytes, or NULL.
    pub label: *const c_char,
    /// 16 bytes, or NULL: a random one.
    pub uuid: *const u8,
    /// Features as mke2fs -O takes them, with commas, or NULL.
    pub features: *const c_char,
    /// Bytes of a block; 0: mke2fs chooses.
    pub block_size: u32,
    pub reserved0: u32,
    /// Inodes; 0: mke2fs chooses.
    pub inodes: u64,
}

/// How full a file system is.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(non_camel_case_types)]
pub struct quire_usage {
    pub blocks: u64,
    pub free_blocks: u64,
    /// Without the reserve of root.
    pub available_blocks: u64,
    pub inodes: u64,
    pub free_inodes: u64,
    /// Bytes of a block.
    pub block_size: u32,
    pub reserved0: u32,
}

/// The version of the library, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn quire_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Opens an image file or a block device, and recovers it if a crash has left it dirty. how may be NULL; size is
/// sizeof(struct quire_open_how). 0, or a negative errno.
///
/// # Safety
/// `image` is a text, `how` null or `size` bytes, `fs` a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_open(
    image: *const c_char,
    how: *const quire_open_how,
    size: usize,
    fs: *mut *mut quire_fs,
) -> c_int {
    guard0(|| {
        // SAFETY: the caller's duty.
        let (image, how, fs) = unsafe { (path(image)?, choices(how, size)?, out(fs)?) };
        give(fs, quire_fs { fs: open_options(&how).open(image)? });
        Ok(())
    })
}

pub(crate) fn open_options(how: &quire_open_how) -> OpenOptions {
    let mut options = OpenOptions::new().read_only(how.read_only != 0).offset(how.offset).owner(how.uid, how.gid);
    if how.partition != 0 {
        options = options.partition(how.partition);
    }
    if how.cache_size != 0 {
        options = options.cache_size(how.cache_size);
    }
    options
}

/// Makes an image by mke2fs and opens it. size is sizeof(struct quire_create_how). 0, or a negative errno.
///
/// # Safety
/// `image` is a text, `how` points to `size` bytes, `fs` is a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_create(
    image: *const c_char,
    how: *const quire_create_how,
    size: usize,
    fs: *mut *mut quire_fs,
) -> c_int {
    guard0(|| {
        // SAFETY: the caller's duty.
        let (image, how, fs) = unsafe { (path(image)?, choices(how, size)?, out(fs)?) };
        // SAFETY: the texts of the choices are the caller's duty, too.
        let options = unsafe { create_options(&how)? };
        give(fs, quire_fs { fs: options.create(image)? });
        Ok(())
    })
}

/// The builder's form of the choices.
///
/// # Safety
/// The pointers are null or point to what the structure's comments say.
pub(crate) unsafe fn create_options(how: &quire_create_how) -> Result<CreateOptions> {
    let mut options = CreateOptions::new().size(how.size);
    if !how.label.is_null() {
        // SAFETY: the caller's duty.
        options = options.label(unsafe { text(how.label)? });
    }
    // SAFETY: the caller's duty; an array of bytes has no alignment.
    if let Some(uuid) = unsafe { how.uuid.cast::<[u8; 16]>().as_ref() } {
        options = options.uuid(*uuid);
    }
    if !how.features.is_null() {
        // SAFETY: the caller's duty.
        options = options.feature(unsafe { text(how.features)? });
    }
    if how.block_size != 0 {
        options = options.block_size(how.block_size);
    }
    if how.inodes != 0 {
        options = options.inodes(how.inodes);
    }
    Ok(options)
}

/// # Safety
/// As [`crate::args::bytes`].
pub(crate) unsafe fn text<'a>(text: *const c_char) -> Result<&'a str> {
    // SAFETY: the caller's duty.
    let bytes = unsafe { crate::args::bytes(text) }?;
    std::str::from_utf8(bytes).map_err(|_| crate::args::invalid("a text that is not UTF-8"))
}

/// Makes everything durable, leaves a clean image, and ends the handle, also when it fails. Files and directories that
/// are still open are of no use afterwards, but must be closed. NULL does nothing. 0, or a negative errno.
///
/// # Safety
/// `fs` is null or open, and not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_close(fs: *mut quire_fs) -> c_int {
    guard0(|| {
        // SAFETY: the caller's duty.
        let Some(fs) = (unsafe { take(fs) }) else { return Ok(()) };
        fs.fs.close()
    })
}

/// Makes everything durable. 0, or a negative errno.
///
/// # Safety
/// `fs` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_sync(fs: *const quire_fs) -> c_int {
    // SAFETY: the caller's duty.
    guard0(|| unsafe { get(fs) }?.fs.sync())
}

/// Makes the image clean and keeps it so until quire_thaw: it may be copied meanwhile. 0, or a negative errno.
///
/// # Safety
/// `fs` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_freeze(fs: *const quire_fs) -> c_int {
    // SAFETY: the caller's duty.
    guard0(|| unsafe { get(fs) }?.fs.freeze())
}

/// Ends a freeze. 0, or a negative errno.
///
/// # Safety
/// `fs` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_thaw(fs: *const quire_fs) -> c_int {
    // SAFETY: the caller's duty.
    guard0(|| unsafe { get(fs) }?.fs.thaw())
}

/// Tells how full the file system is. 0, or a negative errno.
///
/// # Safety
/// `fs` is open, `usage` a place for the result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_statfs(fs: *const quire_fs, usage: *mut quire_usage) -> c_int {
    guard0(|| {
        // SAFETY: the caller's duty.
        let (fs, usage) = unsafe { (get(fs)?, out(usage)?) };
        let u = fs.fs.usage()?;
        usage.write(quire_usage {
            blocks: u.blocks,
            free_blocks: u.free_blocks,
            available_blocks: u.available_blocks,
            inodes: u.inodes,
            free_inodes: u.free_inodes,
            block_size: u.block_size,
            reserved0: 0,
        });
        Ok(())
    })
}
