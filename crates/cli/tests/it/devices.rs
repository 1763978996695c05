//! Block devices and images as the host has them: write-protected, mounted already, asked where a file lies.

use crate::common::{Place, check, needs_mounts, needs_root, ok, quire, said, skip, text, tool};
use std::fs;
use std::path::Path;

/// A loop device on an image; given back when dropped.
pub(crate) struct Loop(pub(crate) String);

impl Loop {
    /// Skips the test where there are no loop devices.
    pub(crate) fn new(options: &[&str], image: &Path) -> Self {
        let (code, device) = said(tool("losetup").args(options).args(["-f", "--show", text(image)]));
        if code != 0 {
            skip(device);
        }
        Loop(device.trim().to_owned())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        said(tool("losetup").args(["-d", &self.0]));
    }
}

#[test]
fn a_write_protected_device_is_mounted_read_only() {
    needs_mounts();
    needs_root();
    let place = Place::new("16M", &[]);
    let device = Loop::new(&["-r"], &place.image());
    let m = place.mount_image(Path::new(&device.0), "");
    let refused = fs::write(m.path("f"), "x").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    assert!(m.path("lost+found").is_dir());
    m.unmount();
}

#[test]
fn a_mount_of_a_device_grows_when_the_device_has() {
    needs_mounts();
    needs_root();
    let place = Place::new("40M", &[]);
    let device = Loop::new(&[], &place.image());
    let m = place.mount_image(Path::new(&device.0), "");
    let resize = || said(&mut quire(&["resize", m.dir(), "80M"]));
    let (code, words) = resize();
    assert!(code == 32 && words.contains("unsupported") && words.contains("smaller"), "{code} {words}");
    fs::File::options().write(true).open(place.image()).unwrap().set_len(80 << 20).unwrap();
    ok(tool("losetup").args(["-c", &device.0]));
    assert_eq!(resize(), (0, String::new()));
    fs::write(m.path("f"), vec![0xA7; 50 << 20]).expect("there is space");
    m.unmount();
    drop(device);
    check(&place.image());
}

#[test]
fn a_second_mount_is_refused_and_says_where_the_first_is() {
    needs_mounts();
    let place = Place::new("16M", &[]);
    let m = place.mount("");
    let second = place.path("second");
    fs::create_dir(&second).unwrap();
    let (code, words) = said(&mut quire(&["mount", text(&place.image()), text(&second)]));
    assert_eq!(code, 32, "{words}");
    assert!(words.contains("in use"), "{words}");
    assert!(words.contains(&format!("mounted on {} already", m.dir())) && words.contains("--bind"), "{words}");
    m.unmount();
    place.check();
}

#[test]
fn the_kernel_learns_where_a_file_lies_on_a_block_device() {
    needs_mounts();
    needs_root();
    let place = Place::new("16M", &["-b", "4096"]);
    let device = Loop::new(&[], &place.image());
    let m = place.mount_image(Path::new(&device.0), "");
    fs::write(m.path("f"), vec![0xA7; 3 * 4096]).unwrap();
    let file = fs::File::open(m.path("f")).unwrap();
    // The kernel does not write back before it asks.
    file.sync_all().unwrap();
    let mut first: i32 = 0;
    // SAFETY: FIBMAP (1) reads and writes one int.
    unsafe { rustix::ioctl::ioctl(&file, rustix::ioctl::Updater::<1, i32>::new(&mut first)) }.unwrap();
    drop(file);
    m.unmount();
    drop(device);
    let first = usize::try_from(first).unwrap();
    assert_ne!(first, 0, "a hole");
    let image = fs::read(place.image()).unwrap();
    assert!(image[first * 4096..(first + 3) * 4096].iter().all(|b| *b == 0xA7), "block {first}");
    place.check();
}
