//! Block devices and images as the host has them: write-protected, mounted already, asked where a file lies.

use crate::common::{
    Place, check, copy_program, needs_mounts, needs_root, needs_tools, ok, quire, said, skip, text, tool,
};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

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

/// The kernel claims a device for blocks of up to a page only; the blocks of the file system are Quire's own business.
#[test]
fn a_device_with_blocks_larger_than_a_page_is_mounted() {
    needs_mounts();
    needs_root();
    let place = Place::new("512M", &["-b", "65536"]);
    let device = Loop::new(&[], &place.image());
    let m = place.mount_image(Path::new(&device.0), "");
    let content: Vec<u8> = (0..300_000u32).map(|n| (n % 251) as u8).collect();
    fs::write(m.path("f"), &content).unwrap();
    ok(tool("sync").arg("-f").arg(m.dir()));
    m.unmount();
    let m = place.mount_image(Path::new(&device.0), "");
    let found = fs::read(m.path("f")).unwrap();
    m.unmount();
    drop(device);
    place.check();
    assert!(found == content, "{} bytes were written, {} found", content.len(), found.len());
}

/// The kernel claims no device for root of a user namespace; Quire then holds it by itself.
#[test]
fn root_of_a_user_namespace_mounts_a_device_that_it_may_open() {
    needs_mounts();
    needs_root();
    needs_tools(&["setpriv", "unshare"]);
    const USER: &str = "1000";
    // An image whose root belongs to root of the namespace.
    let place = Place::new("16M", &[]);
    fs::set_permissions(place.path(""), PermissionsExt::from_mode(0o755)).unwrap();
    let program = place.path("quire");
    copy_program(&program);
    let in_namespace = |script: &str| -> Command {
        let mut c = tool("setpriv");
        c.args(["--reuid", USER, "--regid", USER, "--clear-groups", "unshare", "-Urm", "sh", "-euc", script]);
        c
    };
    if said(&mut in_namespace("mount -t tmpfs tmpfs /run")).0 != 0 {
        skip("no user namespaces");
    }
    let device = Loop::new(&[], &place.image());
    // A node of the test's own: that of the system keeps its mode.
    let (node, number) = (place.path("node"), rustix::fs::stat(&device.0).unwrap().st_rdev);
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &node, rustix::fs::FileType::BlockDevice, mode, number).unwrap();
    chown(&node, Some(1000), None).unwrap();
    // Its control socket is not to be found by others, nor left behind.
    let script = format!(
        "mount -t tmpfs tmpfs /run; {quire} mount {node} {dir}; echo kept >{dir}/file; cat {dir}/file; \
         {quire} umount {dir}",
        quire = text(&program),
        node = text(&node),
        dir = text(&place.mnt())
    );
    let (code, words) = said(&mut in_namespace(&script));
    drop(device);
    assert_eq!((code, words.as_str()), (0, "kept\n"));
    place.check();
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
