//! An import has what its source says, and no more; an export has what the image says.

use crate::common::{fsck_bytes, scratch};
use quire::archive::{ImportOptions, Source, export_dir, export_tar, import};
use quire::{ErrorKind, FileSystem, FileType, Links, NewNode, SetMetadata};
use quire_testkit::tar::{header, seal};

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

/// The attribute of an ACL with an entry for user 7.
fn acl() -> Vec<u8> {
    let none = u32::MAX;
    let entries = [(1_u16, 7_u16, none), (2, 7, 7), (4, 5, none), (0x10, 7, none), (0x20, 0, none)];
    let bytes =
        entries.map(|(tag, perm, id)| [&tag.to_le_bytes()[..], &perm.to_le_bytes(), &id.to_le_bytes()].concat());
    [2_u32.to_le_bytes().to_vec(), bytes.concat()].concat()
}

fn tar_of(fs: &FileSystem) -> Vec<u8> {
    let mut tar = Vec::new();
    export_tar(fs, "/", &mut tar).unwrap();
    tar
}

fn import_tar(fs: &FileSystem, to: &str, tar: Vec<u8>) -> quire::Result<()> {
    let source = Source::Stream(Box::new(std::io::Cursor::new(tar)));
    import(fs, to, source, &ImportOptions::new()).map(drop)
}

fn permissions(fs: &FileSystem, path: &str) -> u32 {
    fs.metadata(path).unwrap().permissions()
}

#[test]
fn a_default_acl_of_the_source_gives_no_acls_to_what_is_below() {
    let source = scratch();
    source.create_dir_all("/d/sub").unwrap();
    source.write("/d/child", "c").unwrap();
    source.chmod("/d/child", 0o640).unwrap();
    source.set_xattr("/d", Links::Follow, DEFAULT, acl()).unwrap();
    let made = scratch();
    import_tar(&made, "/", tar_of(&source)).unwrap();
    assert_eq!(made.xattr("/d", Links::Follow, DEFAULT).unwrap(), acl());
    for path in ["/d/child", "/d/sub"] {
        assert!(made.xattrs(path, Links::Follow).unwrap().is_empty(), "{path}");
    }
    assert_eq!((permissions(&made, "/d/child"), permissions(&made, "/d/sub")), (0o640, 0o755));
    fsck_bytes(&made.into_bytes().unwrap().unwrap());
}

#[test]
fn a_directory_of_the_image_gives_neither_acl_nor_group_to_what_is_imported_into_it() {
    let made = scratch();
    made.create_dir_all("/to/merged").unwrap();
    for dir in ["/to", "/to/merged"] {
        made.set_metadata(dir, Links::Follow, SetMetadata::new().owner(1, 77).permissions(0o2775)).unwrap();
        made.set_xattr(dir, Links::Follow, DEFAULT, acl()).unwrap();
    }
    made.set_xattr("/to/merged", Links::Follow, ACCESS, acl()).unwrap();
    let tar = [header("a", b'5', 0), header("a/f", b'0', 0), header("merged", b'5', 0), header("made/f", b'0', 0)];
    import_tar(&made, "/to", tar.concat()).unwrap();
    let paths = ["/to/a", "/to/a/f", "/to/merged", "/to/made", "/to/made/f"];
    for (path, mode) in paths.into_iter().zip([0o644, 0o644, 0o644, 0o755, 0o644]) {
        let m = made.metadata(path).unwrap();
        assert_eq!((m.uid, m.gid, m.permissions()), (0, 0, mode), "{path}");
        assert!(made.xattrs(path, Links::Follow).unwrap().is_empty(), "{path}");
    }
    assert_eq!(made.xattr("/to", Links::Follow, DEFAULT).unwrap(), acl());
    fsck_bytes(&made.into_bytes().unwrap().unwrap());
}

#[test]
fn a_default_acl_of_the_image_gives_no_acls_to_files_of_the_host() {
    quire_testkit::needs_root();
    let fs = scratch();
    fs.create_dir_all("/d/sub").unwrap();
    fs.write("/d/child", "c").unwrap();
    fs.chmod("/d/child", 0o640).unwrap();
    fs.set_xattr("/d", Links::Follow, DEFAULT, acl()).unwrap();
    let host = tempfile::tempdir().unwrap();
    let mut value = [0; 256];
    if rustix::fs::lsetxattr(host.path(), DEFAULT, &acl(), rustix::fs::XattrFlags::empty()).is_err() {
        quire_testkit::skip("the host's file system has no ACLs");
    }
    rustix::fs::lremovexattr(host.path(), DEFAULT).unwrap();
    export_dir(&fs, "/", host.path()).unwrap();
    assert_eq!(rustix::fs::lgetxattr(host.path().join("d"), DEFAULT, &mut value).unwrap(), acl().len());
    for (name, mode) in [("d/child", 0o640), ("d/sub", 0o755)] {
        let path = host.path().join(name);
        for attribute in [ACCESS, DEFAULT] {
            assert!(rustix::fs::lgetxattr(&path, attribute, &mut value).is_err(), "{name}: {attribute}");
        }
        let found = std::os::unix::fs::PermissionsExt::mode(&path.metadata().unwrap().permissions());
        assert_eq!(found & 0o7777, mode, "{name}");
    }
}

/// An archive of one device.
fn device(major: &str, minor: &str) -> Vec<u8> {
    let mut block = header("dev", b'3', 0);
    block[329..336].copy_from_slice(major.as_bytes());
    block[337..344].copy_from_slice(minor.as_bytes());
    seal(&mut block);
    block
}

#[test]
fn device_numbers_that_ext4_cannot_store_are_refused() {
    let fs = scratch();
    let null = NewNode::new(FileType::CharDevice, 0o600);
    for (major, minor) in [(0x1000, 3), (5, 0x10_0000)] {
        let e = fs.create_node("/n", null.device(major, minor)).unwrap_err();
        assert_eq!((e.kind(), e.path().unwrap().to_str()), (ErrorKind::InvalidInput, Some("/n")), "{e}");
    }
    // 5000 and 2000000.
    for (major, minor) in [("0011610", "0000003"), ("0000005", "7502200")] {
        let e = import_tar(&fs, "/", device(major, minor)).unwrap_err();
        assert_eq!((e.kind(), e.path().unwrap().to_str()), (ErrorKind::InvalidInput, Some("dev")), "{e}");
    }
    fs.create_node("/n", null.device(0xFFF, 0xF_FFFF)).unwrap();
    assert_eq!(fs.metadata("/n").unwrap().device, (0xFFF, 0xF_FFFF));
    assert_eq!(fs.read_dir("/").unwrap().len(), 2);
}

#[test]
fn names_of_attributes_go_through_a_tar_whatever_bytes_they_have() {
    use std::os::unix::ffi::OsStrExt;
    let names = [&b"user.a=b"[..], b"user.100%", b"user.%3D", b"user.\xff\xfe"].map(std::ffi::OsStr::from_bytes);
    let source = scratch();
    source.write("/f", "").unwrap();
    names.iter().for_each(|name| source.set_xattr("/f", Links::Follow, name, name.as_bytes()).unwrap());
    let made = scratch();
    import_tar(&made, "/", tar_of(&source)).unwrap();
    let mut found = made.xattrs("/f", Links::Follow).unwrap();
    let mut wanted = names.map(std::ffi::OsStr::to_owned).to_vec();
    found.sort();
    wanted.sort();
    assert_eq!(found, wanted);
    for name in names {
        assert_eq!(made.xattr("/f", Links::Follow, name).unwrap(), name.as_bytes());
    }
}

#[test]
fn a_tar_has_none_of_the_names_of_a_socket() {
    let source = scratch();
    source.create_node("/s1", NewNode::new(FileType::Socket, 0o644)).unwrap();
    source.hard_link("/s1", "/s2").unwrap();
    source.write("/z1", "").unwrap();
    source.hard_link("/z1", "/z2").unwrap();
    let made = scratch();
    import_tar(&made, "/", tar_of(&source)).unwrap();
    let names: Vec<_> = made.read_dir("/").unwrap().into_iter().map(|e| e.name).collect();
    assert_eq!(names, ["lost+found", "z1", "z2"]);
}
