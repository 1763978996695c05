//! Set-user-id and set-group-id bits and capabilities go when a file is changed, exactly where the kernel's ext4 takes
//! them off.

use crate::common::{Place, has, needs_mounts, needs_root, needs_tools, ok, said, skip, text, tool};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};
use std::path::Path;

const MODES: &[u32] = &[0o2767, 0o6766, 0o6777, 0o4666];
const CHANGES: &[(&str, &str)] = &[
    ("append", "echo more >> $0"),
    ("truncate", "truncate -s 10 $0"),
    ("grow", "truncate -s 100k $0"),
    ("open truncating", "echo new > $0"),
    ("direct", "dd if=/dev/zero of=$0 bs=4k count=1 oflag=direct conv=notrunc"),
    ("fallocate", "fallocate -l 64k $0"),
    ("copy", "xfs_io -c 'copy_range -s 0 -l 4096 '$(dirname $0)/source $0"),
];
const USERS: &[(&str, &[&str])] = &[
    ("nobody", &["--reuid", "65534", "--regid", "65534", "--clear-groups"]),
    ("of the group", &["--reuid", "65534", "--regid", "2000", "--clear-groups"]),
    ("of the group, besides", &["--reuid", "65534", "--regid", "65534", "--groups", "2000"]),
    ("root", &["--clear-groups"]),
];

fn modes_after(dir: &Path, modes: &[u32]) -> Vec<String> {
    fs::write(dir.join("source"), vec![3; 8192]).unwrap();
    let mut out = Vec::new();
    for mode in modes {
        for (change, script) in CHANGES.iter().filter(|(c, _)| *c != "copy" || has("xfs_io")) {
            for (who, ids) in USERS {
                let f = dir.join("f");
                fs::remove_file(&f).ok();
                fs::write(&f, vec![1; 20_000]).unwrap();
                chown(&f, Some(1000), Some(2000)).unwrap();
                fs::set_permissions(&f, fs::Permissions::from_mode(*mode)).unwrap();
                let (code, words) = said(tool("setpriv").args(*ids).args(["sh", "-c", script]).arg(&f));
                assert_eq!(code, 0, "{change} by {who}: {words}");
                let now = fs::metadata(&f).unwrap().mode() & 0o7777;
                out.push(format!("{mode:o}, {change} by {who}: {now:o}"));
            }
        }
    }
    out
}

#[test]
fn bits_go_where_the_kernels_ext4_takes_them_off() {
    needs_mounts();
    needs_root();
    needs_tools(&["setpriv", "fallocate"]);
    let place = Place::new("32M", &[]);
    fs::set_permissions(place.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    let (kernel, at) = (place.path("kernel.img"), place.path("kernel"));
    fs::copy(place.image(), &kernel).unwrap();
    fs::create_dir(&at).unwrap();
    let (code, words) = said(tool("mount").args(["-o", "loop", "-t", "ext4", text(&kernel), text(&at)]));
    if code != 0 {
        skip(words);
    }
    let theirs = modes_after(&at, MODES);
    ok(tool("umount").arg(&at));
    for (options, modes) in [("", MODES), ("writethrough", &MODES[..2]), ("data=journal", &MODES[..2])] {
        let m = place.mount(options);
        let ours = modes_after(Path::new(m.dir()), modes);
        let wrong: Vec<_> = ours.iter().zip(&theirs).filter(|(a, b)| a != b).collect();
        assert!(wrong.is_empty(), "{options}: Quire's and the kernel's: {wrong:#?}");
        m.unmount();
        place.check();
    }
}

/// The mode and the capabilities of a file.
fn privileges(path: &Path) -> (u32, String) {
    let listed = ok(tool("getcap").arg(path));
    let capabilities = listed.trim().strip_prefix(text(path)).unwrap_or_default().trim().to_owned();
    (fs::metadata(path).unwrap().mode() & 0o7777, capabilities)
}

/// Root keeps the bits. Where a write goes past the kernel's cache, the kernel leaves the capabilities to the daemon.
/// `before_open`: what is done to the file before it is opened for writing.
fn roots_write_takes_capabilities(options: &str, image: &[&str], before_open: fn(&Path)) {
    needs_mounts();
    needs_root();
    needs_tools(&["setcap", "getcap", "chattr"]);
    let place = Place::new("64M", image);
    let m = place.mount(options);
    // A large write goes its own way to the device.
    for (name, bytes) in [("small", 1), ("large", 1 << 20)] {
        let path = m.path(name);
        fs::write(&path, vec![1; 2 << 20]).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o4755)).unwrap();
        ok(tool("setcap").arg("cap_net_raw+ep").arg(&path));
        before_open(&path);
        assert_eq!(privileges(&path), (0o4755, "cap_net_raw=ep".to_owned()), "{name}");
        let file = File::options().write(true).open(&path).unwrap();
        file.write_all_at(&vec![2; bytes], 4096).unwrap();
        drop(file);
        assert_eq!(privileges(&path), (0o4755, String::new()), "after a {name} write");
    }
    m.unmount();
    place.check();
}

fn leave(_: &Path) {}

fn make_synchronous(path: &Path) {
    ok(tool("chattr").arg("+S").arg(path));
}

#[test]
fn roots_write_through_the_kernels_cache_takes_capabilities() {
    roots_write_takes_capabilities("", &[], leave);
}

#[test]
fn roots_write_with_writethrough_takes_capabilities() {
    roots_write_takes_capabilities("writethrough", &[], leave);
}

#[test]
fn roots_write_to_a_synchronous_file_takes_capabilities() {
    roots_write_takes_capabilities("", &[], make_synchronous);
}

#[test]
fn roots_write_to_a_synchronous_file_takes_capabilities_out_of_a_block() {
    roots_write_takes_capabilities("", &["-I", "128"], make_synchronous);
}

#[test]
fn roots_write_to_a_journaled_synchronous_file_takes_capabilities() {
    roots_write_takes_capabilities("data=journal", &[], make_synchronous);
}

#[test]
fn roots_write_to_a_database_takes_capabilities() {
    roots_write_takes_capabilities("profile=database", &[], leave);
}

#[test]
fn roots_write_to_a_file_of_atomic_writes_takes_capabilities() {
    roots_write_takes_capabilities("atomic_writes=all", &[], leave);
}

/// A default ACL is for what is made in the directory: it decides nobody's rights to the directory itself.
#[test]
fn set_group_id_of_a_directory_goes_with_its_access_acl_alone() {
    needs_mounts();
    needs_root();
    needs_tools(&["setpriv", "setfacl"]);
    let place = Place::new("16M", &[]);
    fs::set_permissions(place.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    let m = place.mount("");
    let dir = m.path("d");
    fs::create_dir(&dir).unwrap();
    chown(&dir, Some(1000), Some(2000)).unwrap();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o2775)).unwrap();
    // The owner is not in the group.
    let owner = ["--reuid", "1000", "--regid", "1000", "--clear-groups", "setfacl"];
    let mode_after = |options: &[&str]| {
        ok(tool("setpriv").args(owner).args(options).arg(&dir));
        fs::metadata(&dir).unwrap().mode() & 0o7777
    };
    let of_default = mode_after(&["-d", "-m", "u:7:rwx"]);
    let of_access = mode_after(&["-m", "u:7:rwx"]);
    m.unmount();
    place.check();
    assert_eq!((of_default, of_access), (0o2775, 0o775), "after a default ACL, then after an access ACL");
}
