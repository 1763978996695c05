//! Listings of directories.

use quire_capi::*;
use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::path::Path;
use std::ptr;

fn opened(image: &Path) -> *mut quire_fs {
    let path = CString::new(image.to_str().unwrap()).unwrap();
    let mut fs = ptr::null_mut();
    // SAFETY: all pointers are those of live values.
    assert_eq!(unsafe { quire_open(path.as_ptr(), ptr::null(), 0, &raw mut fs) }, 0);
    fs
}

/// An image with the files `/a`, `/bad` and `/c`, of which the second has no inode.
fn with_damaged_inode(image: &Path) {
    std::fs::write(image, quire_testkit::mke2fs("8M", &["-q", "-F", "-t", "ext4"])).unwrap();
    let fs = opened(image);
    let mut stat = MaybeUninit::<quire_stat>::uninit();
    // SAFETY: the file system is open, and the places for results are valid.
    let ino = unsafe {
        for name in [c"/a", c"/bad", c"/c"] {
            let mut file = ptr::null_mut();
            assert_eq!(quire_file_open(fs, name.as_ptr(), QUIRE_CREATE, 0o644, &raw mut file), 0);
            assert_eq!(quire_file_close(file), 0);
        }
        assert_eq!(quire_stat(fs, c"/bad".as_ptr(), stat.as_mut_ptr()), 0);
        assert_eq!(quire_close(fs), 0);
        stat.assume_init().ino
    };
    quire_testkit::tools::run("debugfs", &["-w", "-R", &format!("sif <{ino}> mode 0"), image.to_str().unwrap()]);
}

#[test]
fn damaged_inode_is_an_error_of_its_own_entry() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    with_damaged_inode(&image);
    let fs = opened(&image);
    let (mut listing, mut entry, mut found) = (ptr::null_mut(), MaybeUninit::<quire_dirent>::uninit(), Vec::new());
    // SAFETY: as above; a name lives until the next call on its listing.
    unsafe {
        assert_eq!(quire_opendir(fs, c"/".as_ptr(), &raw mut listing), 0);
        loop {
            match quire_readdir(listing, entry.as_mut_ptr()) {
                0 => break,
                1 => found.push(CStr::from_ptr(entry.assume_init_ref().name).to_str().unwrap().to_owned()),
                failed => {
                    assert_eq!(failed, -libc::EUCLEAN);
                    let path = CStr::from_ptr((*quire_last_error()).path).to_str().unwrap();
                    found.push(format!("{path} failed"));
                }
            }
        }
        assert_eq!(quire_closedir(listing), 0);
        quire_close(fs);
    }
    assert_eq!(found, ["a", "/bad failed", "c", "lost+found"]);
}
