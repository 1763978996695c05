//! Extended attributes that an image cannot have: those of other systems are left out, for others there must be room.

use crate::common::{fsck_bytes, scratch};
use quire::archive::{BuildOptions, ImportOptions, Size, Source, build, import};
use quire::{CreateOptions, ErrorKind, FileSystem, Links};
use quire_testkit::tar::{BLOCK, entry, header, link};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;

/// A PAX header with these attributes.
fn xattrs(attributes: &[(&str, &[u8])]) -> Vec<u8> {
    let mut data = Vec::new();
    for (name, value) in attributes {
        let rest = [b" SCHILY.xattr.", name.as_bytes(), b"=", value, b"\n"].concat();
        let len = (1..9).map(|digits| rest.len() + digits).find(|len| len.to_string().len() + rest.len() == *len);
        data.extend([len.unwrap().to_string().as_bytes(), &rest].concat());
    }
    entry("pax", b'x', &data)
}

fn stream(parts: &[Vec<u8>]) -> Source {
    Source::Stream(Box::new(std::io::Cursor::new([parts.concat(), vec![0; 2 * BLOCK]].concat())))
}

fn names(fs: &FileSystem, path: &str) -> Vec<OsString> {
    fs.xattrs(path, Links::NoFollow).unwrap()
}

#[test]
fn attributes_that_ext4_does_not_store_are_left_out_and_each_name_is_told_once() {
    let foreign: [(&str, &[u8]); 3] =
        [("system.nfs4_acl", b"\0"), ("btrfs.compression", b"zstd"), ("com.apple.quarantine", b"0081")];
    let acl = [&2_u32.to_le_bytes()[..], b"\x01\0\x07\0\xff\xff\xff\xff"].concat();
    let of_link: [(&str, &[u8]); 3] =
        [("user.a", b"1"), ("security.selinux", b"label\0"), ("system.posix_acl_access", &acl)];
    let archive = [
        xattrs(&[&foreign[..], &[("user.a", &b"1"[..])]].concat()),
        header("f", b'0', 0),
        xattrs(&foreign),
        header("d", b'5', 0),
        xattrs(&of_link),
        link("d/link", b'2', "f"),
        xattrs(&[("user.a", b"1"), ("system.posix_acl_default", &acl)]),
        header("d/fifo", b'6', 0),
        header("behind", b'0', 0),
    ];
    let fs = scratch();
    let (told, left_out) = channel();
    let tell = move |name: &OsStr, path: &Path| told.send((name.to_owned(), path.to_owned())).unwrap();
    let options = ImportOptions::new().on_left_out(tell);
    let expected: [(OsString, PathBuf); 6] = [
        ("system.nfs4_acl", "f"),
        ("btrfs.compression", "f"),
        ("com.apple.quarantine", "f"),
        ("user.a", "d/link"),
        ("system.posix_acl_access", "d/link"),
        ("system.posix_acl_default", "d/fifo"),
    ]
    .map(|(name, path)| (name.into(), path.into()));
    // A second import tells again.
    for _ in 0..2 {
        import(&fs, "/", stream(&archive), &options).unwrap();
        assert_eq!(left_out.try_iter().collect::<Vec<_>>(), expected);
    }
    assert_eq!((names(&fs, "/f"), names(&fs, "/d")), (vec!["user.a".into()], vec![]));
    assert_eq!((names(&fs, "/d/link"), names(&fs, "/d/fifo")), (vec!["security.selinux".into()], vec![]));
    assert!(fs.exists("/behind").unwrap());
    fsck_bytes(&fs.into_bytes().unwrap().unwrap());
}

/// Builds an image as large as it must be.
fn built(archive: &[Vec<u8>], left_out: impl Fn(&OsStr, &Path) + Send + Sync + 'static) -> quire::Result<()> {
    let dir = tempfile::tempdir().unwrap();
    let import = ImportOptions::new().on_left_out(left_out);
    let options = BuildOptions { size: Size::Min { percent: 0 }, create: CreateOptions::new(), import };
    build(dir.path().join("image"), Some(stream(archive)), &options).map(drop)
}

#[test]
fn attributes_without_room_in_ext4_are_an_error_that_names_them_and_no_lack_of_space() {
    let (large, huge) = (vec![b'x'; 5000], vec![b'x'; 70_000]);
    let half = vec![b'y'; 2500];
    for (attributes, what) in [
        (&[("user.small", &b"1"[..]), ("user.large", &large)][..], "user.large of 5000 bytes"),
        (&[("user.huge", &huge)], "user.huge of 70000 bytes"),
        (&[("user.one", &half), ("user.two", &half)], "user.two of 2500 bytes"),
    ] {
        let archive = [xattrs(attributes), header("d/f", b'0', 0)];
        let expected = format!("d/f: attribute {what}: ext4 has 4060 bytes for all attributes here");
        let error = built(&archive, |_, _| ()).unwrap_err();
        assert_eq!((error.kind(), error.to_string()), (ErrorKind::InvalidInput, expected));
    }
    built(&[xattrs(&[("user.fits", &[b'x'; 4000])]), header("f", b'0', 0)], |_, _| ()).unwrap();
}

#[test]
fn a_build_which_reads_its_source_twice_tells_of_a_name_once() {
    let (told, left_out) = channel();
    let archive = [xattrs(&[("btrfs.compression", b"zstd")]), header("f", b'0', 0)];
    built(&archive, move |name, _| told.send(name.to_owned()).unwrap()).unwrap();
    assert_eq!(left_out.try_iter().collect::<Vec<_>>(), ["btrfs.compression"]);
}

#[test]
fn an_attribute_in_a_full_image_is_a_lack_of_space() {
    let fs = scratch();
    let dirs: Vec<String> = (0..40).map(|n| format!("d{n}")).collect();
    dirs.iter().for_each(|dir| drop(fs.create_dir(dir).unwrap()));
    for exponent in (10..24).rev() {
        // Two files of each size, down to a block, take all that is free.
        for n in 0..2 {
            fs.write(format!("/{exponent}-{n}"), vec![7; 1 << exponent]).ok();
            fs.sync().unwrap();
        }
    }
    // No two are equal, so that each needs a block.
    let archive: Vec<Vec<u8>> =
        dirs.iter().flat_map(|dir| [xattrs(&[("user.a", dir.repeat(200).as_bytes())]), header(dir, b'5', 0)]).collect();
    let error = import(&fs, "/", stream(&archive), &ImportOptions::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    assert!(error.to_string().contains("attribute user.a: no space left"), "{error}");
}
