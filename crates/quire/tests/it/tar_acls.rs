//! ACLs and labels as tar programs write them: GNU tar's `--acls` and `--selinux`, star, libarchive.

use crate::common::{fsck_bytes, scratch};
use quire::archive::{ImportOptions, Source, export_tar, import};
use quire::{ErrorKind, FileSystem, Links};
use quire_testkit::tar::{BLOCK, header, link, pax};
use std::path::Path;
use std::process::Command;

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";
/// As GNU tar writes it.
const LINES: &str = "user::rw-\nuser:7:r--\nuser:1000:rwx\ngroup::r--\nmask::rwx\nother::r--\n";
const ONE_LINE: &str = "user::rw-,user:7:r--,user:1000:rwx,group::r--,mask::rwx,other::r--";

/// The attribute that the kernel shows for [`LINES`].
fn acl() -> Vec<u8> {
    let none = u32::MAX;
    let entries = [(1_u16, 6_u16, none), (2, 4, 7), (2, 7, 1000), (4, 4, none), (0x10, 7, none), (0x20, 4, none)];
    let bytes =
        entries.map(|(tag, perm, id)| [&tag.to_le_bytes()[..], &perm.to_le_bytes(), &id.to_le_bytes()].concat());
    [2_u32.to_le_bytes().to_vec(), bytes.concat()].concat()
}

fn import_tar(fs: &FileSystem, tar: &[Vec<u8>], options: &ImportOptions) -> quire::Result<()> {
    let bytes = [tar.concat(), vec![0; 2 * BLOCK]].concat();
    import(fs, "/", Source::Stream(Box::new(std::io::Cursor::new(bytes))), options).map(drop)
}

fn xattr(fs: &FileSystem, path: &str, name: &str) -> Vec<u8> {
    fs.xattr(path, Links::NoFollow, name).unwrap_or_else(|e| panic!("{name} of {path}: {e}"))
}

#[test]
fn acls_of_tar_become_those_of_the_image() {
    let star = "user::rw-,user:ann:rwx:1000,user:joe:r--:7,group::r--,mask::rwx,other::r--";
    let fs = scratch();
    let tar = [
        pax(&[("SCHILY.acl.access", LINES), ("SCHILY.acl.default", star)]),
        header("d", b'5', 0),
        pax(&[("SCHILY.acl.access", star)]),
        header("f", b'0', 0),
        pax(&[("SCHILY.acl.access", "user::rw-\ngroup::r--\nother::r--\n")]),
        header("plain", b'0', 0),
        pax(&[("SCHILY.acl.access", LINES)]),
        link("symlink", b'2', "f"),
    ];
    import_tar(&fs, &tar, &ImportOptions::new()).unwrap();
    for (path, name) in [("/d", ACCESS), ("/d", DEFAULT), ("/f", ACCESS)] {
        assert_eq!(xattr(&fs, path, name), acl(), "{name} of {path}");
    }
    assert_eq!(fs.metadata("/f").unwrap().permissions(), 0o674, "the group's bits are the mask");
    for path in ["/plain", "/symlink"] {
        assert!(fs.xattrs(path, Links::NoFollow).unwrap().is_empty(), "{path}");
    }
    fsck_bytes(&fs.into_bytes().unwrap().unwrap());
}

#[test]
fn an_acl_with_a_name_and_no_number_is_refused_and_both_are_named() {
    let fs = scratch();
    let text = LINES.replace("1000", "ann");
    let tar = [pax(&[("SCHILY.acl.access", &text)]), header("f", b'0', 0)];
    let e = import_tar(&fs, &tar, &ImportOptions::new()).unwrap_err();
    assert_eq!((e.kind(), e.path()), (ErrorKind::BadInput, Some(Path::new("f"))));
    assert!(e.to_string().contains("user:ann:rwx has a name and no number"), "{e}");
    assert!(!fs.exists("/f").unwrap());
}

#[test]
fn an_attribute_wins_over_the_text_of_the_same_acl() {
    let source = scratch();
    source.write("/f", "").unwrap();
    source.set_xattr("/f", Links::Follow, ACCESS, acl()).unwrap();
    let mut tar = Vec::new();
    export_tar(&source, "/", &mut tar).unwrap();
    let (key, other) = (b"SCHILY.acl.access=user::rw-,user:7:r--", b"SCHILY.acl.access=user::rw-,user:x:-w-");
    let at = tar.windows(key.len()).position(|w| w == key).expect("the text is in the archive");
    tar[at..at + key.len()].copy_from_slice(other);
    let fs = scratch();
    import_tar(&fs, &[tar], &ImportOptions::new()).unwrap();
    assert_eq!(xattr(&fs, "/f", ACCESS), acl());
}

#[test]
fn a_label_of_selinux_becomes_its_attribute_with_the_zero_of_the_kernel() {
    let fs = scratch();
    let label = "system_u:object_r:etc_t:s0";
    let tar = [
        pax(&[("RHT.security.selinux", label)]),
        header("without", b'0', 0),
        pax(&[("RHT.security.selinux", &format!("{label}\0"))]),
        header("with", b'0', 0),
        pax(&[("RHT.security.selinux", label)]),
        link("symlink", b'2', "f"),
        pax(&[("RHT.security.selinux", label), ("SCHILY.xattr.security.selinux", "bytes")]),
        header("both", b'0', 0),
    ];
    import_tar(&fs, &tar, &ImportOptions::new()).unwrap();
    for path in ["/without", "/with", "/symlink"] {
        assert_eq!(xattr(&fs, path, "security.selinux"), format!("{label}\0").as_bytes(), "{path}");
    }
    assert_eq!(xattr(&fs, "/both", "security.selinux"), b"bytes");
}

#[test]
fn permissions_that_an_import_removes_come_back_with_no_acl() {
    let fs = scratch();
    let text = LINES.replace("other::r--", "other::rw-");
    let tar = [pax(&[("SCHILY.acl.access", &text)]), header("f", b'0', 0)];
    import_tar(&fs, &tar, &ImportOptions::new().remove_permissions(0o022)).unwrap();
    assert_eq!(fs.metadata("/f").unwrap().permissions(), 0o654);
    assert!(fs.xattr("/f", Links::Follow, ACCESS).is_ok(), "the ACL is there, with less in its mask");
}

/// A file system with one file and one directory with ACLs, as a tar.
fn exported() -> Vec<u8> {
    let fs = scratch();
    fs.write("/f", "1").unwrap();
    fs.create_dir("/d").unwrap();
    for (path, name) in [("/f", ACCESS), ("/d", ACCESS), ("/d", DEFAULT)] {
        fs.set_xattr(path, Links::Follow, name, acl()).unwrap();
    }
    let mut tar = Vec::new();
    export_tar(&fs, "/", &mut tar).unwrap();
    tar
}

#[test]
fn a_tar_has_acls_as_text_and_as_attributes() {
    let tar = exported();
    let count = |text: &str| tar.windows(text.len()).filter(|w| *w == text.as_bytes()).count();
    assert_eq!(count(&format!(" SCHILY.acl.access={ONE_LINE}\n")), 2);
    assert_eq!(count(&format!(" SCHILY.acl.default={ONE_LINE}\n")), 1);
    assert_eq!(count(&format!(" SCHILY.xattr.{ACCESS}=")), 2);
    assert_eq!(count(&format!(" SCHILY.xattr.{DEFAULT}=")), 1);
}

fn run(command: &mut Command) -> String {
    let out = command.output().unwrap();
    assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

#[test]
fn tar_extracts_the_acls_of_an_export_and_packs_them_for_an_import() {
    quire_testkit::needs_tools(&["tar", "getfacl", "setfacl"]);
    let dir = tempfile::tempdir().unwrap();
    if !Command::new("setfacl").args(["-m", "u:7:r"]).arg(dir.path()).output().unwrap().status.success() {
        quire_testkit::skip("the host's file system has no ACLs");
    }
    run(Command::new("setfacl").arg("-b").arg(dir.path()));
    let (archive, out) = (dir.path().join("archive"), dir.path().join("out"));
    std::fs::write(&archive, exported()).unwrap();
    std::fs::create_dir(&out).unwrap();
    let tar =
        |options: &[&str]| run(Command::new("tar").args(options).arg(&archive).arg("-C").arg(&out).args(["f", "d"]));
    tar(&["--acls", "-xpf"]);
    let getfacl = |name: &str| run(Command::new("getfacl").arg("-cnE").arg(out.join(name)));
    assert_eq!(getfacl("f").trim(), LINES.trim());
    let default = LINES.trim().lines().map(|line| format!("default:{line}")).collect::<Vec<_>>().join("\n");
    assert_eq!(getfacl("d").trim(), format!("{LINES}{default}"));
    // Back again. GNU tar writes names where the host has them, so that numbers come as attributes.
    tar(&["--acls", "--xattrs", "--xattrs-include=system.posix_acl_*", "-cf"]);
    let fs = scratch();
    import_tar(&fs, &[std::fs::read(&archive).unwrap()], &ImportOptions::new()).unwrap();
    for (path, name) in [("/f", ACCESS), ("/d", ACCESS), ("/d", DEFAULT)] {
        assert_eq!(xattr(&fs, path, name), acl(), "{name} of {path}");
    }
}

/// Numbers that no user of the host has are what GNU tar writes.
#[test]
fn tar_packs_acls_without_names_for_an_import() {
    quire_testkit::needs_tools(&["tar", "setfacl"]);
    let dir = tempfile::tempdir().unwrap();
    let (archive, file) = (dir.path().join("archive"), dir.path().join("f"));
    std::fs::write(&file, "").unwrap();
    let acl = "u:54321:rwx,g:54322:r,m:rx";
    if !Command::new("setfacl").args(["-m", acl]).arg(&file).output().unwrap().status.success() {
        quire_testkit::skip("the host's file system has no ACLs");
    }
    run(Command::new("tar").args(["--acls", "-cf"]).arg(&archive).arg("-C").arg(dir.path()).arg("f"));
    let fs = scratch();
    import_tar(&fs, &[std::fs::read(&archive).unwrap()], &ImportOptions::new()).unwrap();
    let mut wanted = [0; 256];
    let len = rustix::fs::lgetxattr(&file, ACCESS, &mut wanted).unwrap();
    assert_eq!(xattr(&fs, "/f", ACCESS), wanted[..len]);
    assert_eq!(fs.metadata("/f").unwrap().permissions() & 0o070, 0o050);
}
