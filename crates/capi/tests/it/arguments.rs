//! Bad arguments are errors, and structures of other sizes are understood.

use quire_capi::*;
use std::ffi::{CStr, CString};
use std::ptr;

fn last() -> (quire_error_kind, String) {
    // SAFETY: a call of this thread has failed before; its texts live until the next failure.
    unsafe {
        let e = &*quire_last_error();
        (e.kind, CStr::from_ptr(e.message).to_str().unwrap().to_owned())
    }
}

/// An image of 8 MiB, and no other choice.
fn small() -> quire_create_how {
    quire_create_how {
        size: 8 << 20,
        label: ptr::null(),
        uuid: ptr::null(),
        features: ptr::null(),
        block_size: 0,
        reserved0: 0,
        inodes: 0,
    }
}

fn created(dir: &tempfile::TempDir) -> *mut quire_fs {
    let path = CString::new(dir.path().join("image").to_str().unwrap()).unwrap();
    let how = small();
    let mut fs = ptr::null_mut();
    // SAFETY: all pointers are those of live values.
    let done = unsafe { quire_create(path.as_ptr(), &raw const how, size_of_val(&how), &raw mut fs) };
    assert_eq!(done, 0, "{:?}", last());
    fs
}

#[test]
fn null_pointers_are_invalid_arguments() {
    let mut stat = std::mem::MaybeUninit::uninit();
    // SAFETY: null pointers are what is tested; the others are valid.
    unsafe {
        assert_eq!(quire_open(ptr::null(), ptr::null(), 0, ptr::null_mut()), -libc::EINVAL);
        assert_eq!(last().0, quire_error_kind::InvalidInput);
        assert_eq!(quire_stat(ptr::null(), c"/".as_ptr(), stat.as_mut_ptr()), -libc::EINVAL);
        assert_eq!(quire_pread(ptr::null(), ptr::null_mut(), 1, 0), -i64::from(libc::EINVAL));
        assert_eq!(quire_batch_commit(ptr::null_mut()), -libc::EINVAL);
        // As free(3).
        assert_eq!(quire_close(ptr::null_mut()), 0);
        assert_eq!(quire_file_close(ptr::null_mut()), 0);
        assert_eq!(quire_closedir(ptr::null_mut()), 0);
        assert_eq!(quire_batch_rollback(ptr::null_mut()), 0);
    }
}

#[test]
fn choices_of_a_newer_header_are_refused_unless_they_are_zero() {
    let dir = tempfile::tempdir().unwrap();
    let fs = created(&dir);
    #[repr(C)]
    struct Newer {
        known: quire_open_how,
        more: u64,
    }
    let path = CString::new(dir.path().join("image").to_str().unwrap()).unwrap();
    let mut again = ptr::null_mut();
    let mut how = Newer { known: quire_open_how { read_only: 1, ..quire_open_how::default() }, more: 0 };
    // SAFETY: all pointers are those of live values; each handle is closed once.
    unsafe {
        assert_eq!(quire_close(fs), 0);
        let open =
            |how: &Newer, size, fs: &mut *mut quire_fs| quire_open(path.as_ptr(), (&raw const *how).cast(), size, fs);
        assert_eq!(open(&how, size_of::<Newer>(), &mut again), 0, "{:?}", last());
        assert_eq!(quire_mkdir(again, c"/a".as_ptr(), 0o755), -libc::EROFS, "read_only was understood");
        assert_eq!(quire_close(again), 0);
        how.more = 1;
        assert_eq!(open(&how, size_of::<Newer>(), &mut again), -libc::EINVAL);
        // An older program's structure ends earlier: with the offset only, it is opened for writing.
        assert_eq!(open(&how, size_of::<u64>(), &mut again), 0, "{:?}", last());
        assert_eq!(quire_mkdir(again, c"/a".as_ptr(), 0o755), 0);
        assert_eq!(quire_close(again), 0);
    }
}

#[test]
fn a_small_buffer_and_unknown_flags_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    let fs = created(&dir);
    let (name, attribute) = (c"/f".as_ptr(), c"user.note".as_ptr());
    let mut file = ptr::null_mut();
    let mut small = [0_u8; 3];
    // SAFETY: all pointers are those of live values; each handle is closed once.
    unsafe {
        assert_eq!(quire_file_open(fs, name, 1 << 9, 0o644, &raw mut file), -libc::EINVAL);
        assert_eq!(quire_file_open(fs, name, QUIRE_CREATE, 0o644, &raw mut file), 0);
        assert_eq!(quire_setxattr(fs, name, true, attribute, c"value".as_ptr().cast(), 5), 0);
        assert_eq!(quire_getxattr(fs, name, true, attribute, ptr::null_mut(), 0), 5);
        let n = quire_getxattr(fs, name, true, attribute, small.as_mut_ptr().cast(), small.len());
        assert_eq!(n, -i64::from(libc::ERANGE), "as getxattr(2)");
        assert_eq!(quire_mknod(fs, c"/d".as_ptr(), libc::S_IFDIR | 0o755, 0, 0), -libc::EINVAL);
        assert_eq!(quire_file_close(file), 0);
        assert_eq!(quire_close(fs), 0);
    }
}

#[test]
fn a_source_named_as_standard_input_is_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let fs = created(&dir);
    let new = CString::new(dir.path().join("new").to_str().unwrap()).unwrap();
    let how = small();
    // SAFETY: all pointers are those of live values; the handle is closed once.
    unsafe {
        assert_eq!(quire_import(fs, c"/".as_ptr(), c"-".as_ptr(), ptr::null(), 0), -libc::ENOENT);
        let size = size_of_val(&how);
        let built = quire_build(new.as_ptr(), c"-".as_ptr(), &raw const how, size, ptr::null(), 0);
        assert_eq!(built, -libc::ENOENT);
        assert_eq!(quire_close(fs), 0);
    }
}

#[test]
fn an_export_to_a_full_or_closed_descriptor_has_the_errno_of_write() {
    use std::os::fd::AsRawFd;
    let dir = tempfile::tempdir().unwrap();
    let fs = created(&dir);
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    // SAFETY: all pointers are those of live values; the descriptors stay open.
    unsafe {
        assert_eq!(quire_export_tar(fs, c"/".as_ptr(), full.as_raw_fd()), -libc::ENOSPC);
        assert_eq!(last().0, quire_error_kind::NoSpace);
        assert_eq!(quire_export_tar(fs, c"/".as_ptr(), writer.as_raw_fd()), -libc::EPIPE);
        assert_eq!(quire_close(fs), 0);
    }
}
