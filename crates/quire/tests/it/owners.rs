//! (`uid_t`)-1 is no owner: to the kernel it means that there is none, or that the owner stays.

use crate::common::scratch;
use quire::archive::{BuildOptions, ImportOptions, Size, Source, build, export_dir, import};
use quire::{CreateOptions, ErrorKind, FileSystem, Links, SetMetadata};
use quire_testkit::tar::{BLOCK, header, link, pax, seal};

const NONE: u32 = u32::MAX;

fn assert_refused<T>(done: quire::Result<T>) {
    let e = done.map(drop).expect_err("4294967295 is refused");
    assert_eq!(e.kind(), ErrorKind::InvalidInput, "{e}");
    assert!(e.to_string().contains("4294967295 is no "), "{e}");
}

#[test]
fn minus_one_is_set_as_no_object_s_owner() {
    let fs = scratch();
    fs.write("/f", "1").unwrap();
    fs.chown("/f", 5, 6).unwrap();
    let set = SetMetadata::new().permissions(0o600);
    for set in [set.owner(NONE, 1), set.owner(1, NONE), set.uid(NONE), set.gid(NONE)] {
        assert_refused(fs.set_metadata("/f", Links::Follow, set));
        assert_refused(fs.open_file("/f").unwrap().set_metadata(set));
    }
    assert_refused(fs.chown("/f", NONE, NONE));
    let m = fs.metadata("/f").unwrap();
    assert_eq!((m.uid, m.gid, m.permissions()), (5, 6, 0o644), "nothing has changed");
    let bytes = fs.into_bytes().unwrap().unwrap();
    for (uid, gid) in [(NONE, 0), (0, NONE)] {
        assert_refused(FileSystem::options().owner(uid, gid).open_bytes(bytes.clone()));
        assert_refused(CreateOptions::new().size(16 << 20).root_owner(uid, gid).in_memory());
    }
}

/// An archive of one file whose owner or group a record names.
fn archive(record: &str) -> Vec<u8> {
    [pax(&[(record, "4294967295")]), header("f", b'0', 0), vec![0; 2 * BLOCK]].concat()
}

fn import_tar(fs: &FileSystem, tar: Vec<u8>, options: &ImportOptions) -> quire::Result<()> {
    import(fs, "/", Source::Stream(Box::new(std::io::Cursor::new(tar))), options).map(drop)
}

#[test]
fn minus_one_in_a_tar_is_refused_unless_it_is_mapped_away() {
    let fs = scratch();
    for record in ["uid", "gid"] {
        let done = import_tar(&fs, archive(record), &ImportOptions::new());
        assert_eq!(done.as_ref().unwrap_err().path().unwrap().to_str(), Some("f"));
        assert_refused(done);
    }
    assert!(!fs.exists("/f").unwrap());
    import_tar(&fs, archive("uid"), &ImportOptions::new().map_user(NONE, 7)).unwrap();
    import_tar(&fs, archive("gid"), &ImportOptions::new().owner(None, Some(8))).unwrap();
    assert_eq!(fs.metadata("/f").unwrap().gid, 8);
    // Of a hard link only the name counts. In base 256 the header itself has the number.
    let mut second = link("g", b'1', "f");
    second[108..116].copy_from_slice(&[0x80, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF]);
    seal(&mut second);
    import_tar(&fs, [second.clone(), vec![0; 2 * BLOCK]].concat(), &ImportOptions::new()).unwrap();
    second[156] = b'0';
    seal(&mut second);
    assert_refused(import_tar(&fs, [second, vec![0; 2 * BLOCK]].concat(), &ImportOptions::new()));
}

#[test]
fn minus_one_is_refused_in_the_options_of_an_import_before_anything_is_made() {
    let host = tempfile::tempdir().unwrap();
    let options = ImportOptions::new();
    let all = [
        options.clone().owner(Some(NONE), None),
        options.clone().owner(None, Some(NONE)),
        options.clone().map_user(5, NONE),
        options.clone().map_group(5, NONE),
    ];
    let fs = scratch();
    for import_options in all {
        assert_refused(import(&fs, "/", Source::Dir(host.path().into()), &import_options));
        let image = host.path().join("image");
        let create = CreateOptions::new();
        let options = BuildOptions { size: Size::Bytes(16 << 20), create, import: import_options };
        assert_refused(build(&image, None, &options));
        assert!(!image.exists());
    }
}

#[test]
fn a_damaged_image_s_files_of_no_owner_do_not_become_root_s() {
    quire_testkit::needs_root();
    let (dir, path) = crate::common::image(16 << 20, &[]);
    let fs = FileSystem::open(&path).unwrap();
    fs.write("/f", "1").unwrap();
    fs.close().unwrap();
    crate::common::debugfs_write(&path, "sif /f uid 4294967295");
    let fs = FileSystem::options().read_only(true).open(&path).unwrap();
    assert_eq!(fs.metadata("/f").unwrap().uid, NONE);
    assert_refused(export_dir(&fs, "/", dir.path().join("out")));
}
