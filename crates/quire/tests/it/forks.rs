//! What a child that was forked while an image was open has of it.

use crate::common::image;
use quire::FileSystem;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

/// A descriptor of the open file that this process has of an image, as a forked child has it.
fn inherited(image: &Path) -> OwnedFd {
    let image = image.canonicalize().unwrap();
    let own = std::fs::read_dir("/proc/self/fd").unwrap().map(|e| e.unwrap());
    let of_image = own.filter(|e| std::fs::read_link(e.path()).is_ok_and(|to| to == image));
    let numbers: Vec<i32> = of_image.map(|e| e.file_name().to_str().unwrap().parse().unwrap()).collect();
    let [number] = numbers[..] else { panic!("{} descriptors of {}", numbers.len(), image.display()) };
    // SAFETY: the file system of the calling test has it open.
    unsafe { BorrowedFd::borrow_raw(number) }.try_clone_to_owned().unwrap()
}

#[test]
fn closed_image_can_be_opened_while_a_forked_child_has_its_descriptor() {
    let (_dir, path) = image(4 << 20, &[]);
    let close: fn(FileSystem) = |fs| fs.close().unwrap();
    for end in [close, drop] {
        let fs = FileSystem::open(&path).unwrap();
        let kept = inherited(&path);
        end(fs);
        drop(FileSystem::open(&path).unwrap());
        drop(kept);
    }
}
