//! Archives as programs write them: what GNU tar reads is imported, and what is none is refused with its reason.

use crate::common::{fsck_bytes, scratch};
use quire::archive::{ImportOptions, Source, import};
use quire::{ErrorKind, FileSystem, Links, Timestamp};
use quire_testkit::tar::{BLOCK, entry, header, link, pax, seal};

fn imported(archive: Vec<u8>) -> quire::Result<FileSystem> {
    let fs = scratch();
    import(&fs, "/", Source::Stream(Box::new(std::io::Cursor::new(archive))), &ImportOptions::new())?;
    Ok(fs)
}

fn end() -> Vec<u8> {
    vec![0; 2 * BLOCK]
}

/// A global header with these records.
fn global(records: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = pax(records);
    bytes[156] = b'g';
    seal(&mut bytes[..BLOCK]);
    bytes
}

/// The header of an entry with other bytes at some places.
fn with(mut entry: Vec<u8>, changes: &[(usize, &[u8])]) -> Vec<u8> {
    for (at, bytes) in changes {
        entry[*at..at + bytes.len()].copy_from_slice(bytes);
    }
    seal(&mut entry[..BLOCK]);
    entry
}

#[test]
fn global_records_are_about_all_entries_behind_them_unless_these_have_their_own() {
    let about_all = [
        ("uid", "7"),
        ("gid", "8"),
        ("mtime", "1700000000.5"),
        ("SCHILY.xattr.user.a", "of all"),
        ("path", "not/a/name/of/all"),
    ];
    let archive = [
        entry("before", b'0', b""),
        global(&about_all),
        entry("plain", b'0', b"1"),
        pax(&[("uid", "70000"), ("SCHILY.xattr.user.a", "own")]),
        entry("own", b'0', b"22"),
        global(&[("gid", "9")]),
        entry("later", b'5', b""),
        end(),
    ];
    let fs = imported(archive.concat()).unwrap();
    let owner = |path: &str| fs.metadata(path).map(|m| (m.uid, m.gid)).unwrap();
    assert_eq!(["/before", "/plain", "/own", "/later"].map(owner), [(0, 0), (7, 8), (70000, 8), (7, 9)]);
    let modified = |path: &str| fs.metadata(path).unwrap().modified;
    let of_all = Timestamp::new(1_700_000_000, 500_000_000);
    assert_eq!(["/before", "/plain", "/later"].map(modified), [Timestamp::new(0, 0), of_all, of_all]);
    let note = |path: &str| fs.xattr(path, Links::NoFollow, "user.a").unwrap();
    assert_eq!(["/plain", "/own", "/later"].map(note), [&b"of all"[..], b"own", b"of all"]);
    assert_eq!(fs.read("/own").unwrap(), b"22");
    fsck_bytes(&fs.into_bytes().unwrap().unwrap());
}

/// POSIX gives the size of a directory another meaning, and some programs write the size of a link's file or target.
#[test]
fn directories_links_and_nodes_have_no_data_whatever_size_they_name() {
    let size = |mut header: Vec<u8>| {
        header[124..135].copy_from_slice(b"00000001000");
        seal(&mut header);
        header
    };
    let archive = [
        entry("f", b'0', b"data"),
        size(header("d/", b'5', 0)),
        size(link("d/hard", b'1', "f")),
        pax(&[("size", "512")]),
        link("d/second", b'1', "f"),
        size(link("d/soft", b'2', "../f")),
        size(header("d/pipe", b'6', 0)),
        entry("behind", b'0', b"all of them"),
        end(),
    ];
    let fs = imported(archive.concat()).unwrap();
    assert_eq!((fs.read("/d/hard").unwrap(), fs.metadata("/d/second").unwrap().links), (b"data".to_vec(), 3));
    assert_eq!(fs.read("/d/soft").unwrap(), b"data");
    assert_eq!(fs.read("/behind").unwrap(), b"all of them");
}

#[test]
fn numbers_of_nothing_but_zero_bytes_are_zero() {
    let zeros = [(100, &[0; 8][..]), (108, &[0; 8][..]), (116, &[0; 8][..]), (136, &[0; 12][..])];
    let no_size = with(header("d/", b'5', 0), &[(124, &[0; 12][..])]);
    let archive = [with(entry("f", b'0', b"data"), &zeros), with(no_size, &zeros), end()];
    let fs = imported(archive.concat()).unwrap();
    let m = fs.metadata("/f").unwrap();
    assert_eq!((m.permissions(), m.uid, m.gid, m.modified, m.size), (0, 0, 0, Timestamp::new(0, 0), 4));
    assert!(fs.metadata("/d").unwrap().is_dir());
}

#[test]
fn an_archive_without_a_byte_is_refused_and_one_without_an_entry_is_not() {
    let empty_gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()).finish().unwrap();
    for nothing in [Vec::new(), empty_gzip] {
        let error = imported(nothing).map(drop).unwrap_err();
        assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::BadInput, "the archive is empty"));
    }
    imported(end()).unwrap();
    // Some programs leave the end out.
    assert_eq!(imported(entry("f", b'0', b"data")).unwrap().read("/f").unwrap(), b"data");
}

#[test]
fn a_compression_that_is_not_read_is_named_with_its_program() {
    let xz = [&b"\xFD7zXZ\0\0\x04"[..], &[7; 600]].concat();
    let bzip2 = [&b"BZh91AY&SY"[..], &[7; 600]].concat();
    for (archive, name) in [(xz, "xz"), (bzip2, "bzip2"), (b"BZh9\x17rE8P\x90\0\0\0\0".to_vec(), "bzip2")] {
        let error = imported(archive).map(drop).unwrap_err();
        let expected = format!("compressed with {name}: `{name} -dc ... | quire create --from -`");
        assert_eq!((error.kind(), error.to_string()), (ErrorKind::BadInput, expected));
    }
    let fs = imported([entry("BZh9-is-a-name", b'0', b"data"), end()].concat()).unwrap();
    assert_eq!(fs.read("/BZh9-is-a-name").unwrap(), b"data");
}

/// kaniko's layers have an entry `/` and such targets, and `tar -P` keeps the `/` of each name.
#[test]
fn a_slash_in_front_of_a_name_or_of_a_hard_links_target_means_the_root_of_the_import() {
    let root = with(header("/", b'5', 0), &[(100, &b"0000700"[..])]);
    let archive = [
        root,
        entry("//d/", b'5', b""),
        entry("/d/f", b'0', b"data"),
        link("/hard", b'1', "/d/f"),
        link("soft", b'2', "/d/f"),
        link("d/../hard", b'1', "d/f"),
    ];
    let fs = scratch();
    fs.create_dir("/to").unwrap();
    let source = |archive: &[Vec<u8>]| {
        let bytes = [archive.concat(), end()].concat();
        Source::Stream(Box::new(std::io::Cursor::new(bytes)))
    };
    import(&fs, "/to", source(&archive[..5]), &ImportOptions::new()).unwrap();
    assert_eq!((fs.read("/to/hard").unwrap(), fs.metadata("/to/d/f").unwrap().links), (b"data".to_vec(), 2));
    assert_eq!(fs.read_link("/to/soft").unwrap(), "/d/f", "a symbolic link has the target that it had");
    assert_eq!(fs.metadata("/to").unwrap().permissions(), 0o700);
    assert!(!fs.exists("/d").unwrap());
    for evil in [archive[5].clone(), entry("/../f", b'0', b""), link("g", b'1', "/../d/f")] {
        let error = import(&fs, "/to", source(&[evil]), &ImportOptions::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutsideRoot, "{error}");
    }
    fsck_bytes(&fs.into_bytes().unwrap().unwrap());
}

#[test]
fn a_path_longer_than_the_limit_is_refused_with_its_beginning() {
    let long = "name/".repeat((1 << 20) / 5 + 1);
    let archive = [entry("././@LongLink", b'L', long.as_bytes()), entry("f", b'0', b""), end()];
    let error = imported(archive.concat()).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadInput);
    let text = error.to_string();
    assert!(text.ends_with("...: a path of 1048580 bytes, and 1048576 are read") && text.len() < 200, "{text}");
}

/// `tar --listed-incremental` gives a directory the names in it as data.
#[test]
fn a_directory_of_an_incremental_archive_is_one_and_its_list_is_skipped() {
    let names = b"Yf\0Dsub\0\0".repeat(100);
    let archive = [entry("d/", b'D', &names), entry("d/sub/", b'D', b"\0"), entry("d/f", b'0', b"data"), end()];
    let fs = imported(archive.concat()).unwrap();
    assert!(fs.metadata("/d").unwrap().is_dir() && fs.metadata("/d/sub").unwrap().is_dir());
    assert_eq!(fs.read("/d/f").unwrap(), b"data");
}

#[test]
fn what_follows_a_whole_archive_is_ignored_as_gzip_and_tar_do() {
    let plain = [entry("f", b'0', b"data"), end()].concat();
    let pack = |bytes: &[u8]| {
        let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut out, bytes).unwrap();
        out.finish().unwrap()
    };
    let packed = pack(&plain);
    let zeros = vec![0; 10_000];
    for behind in [&b""[..], &zeros, b"garbage", &[&zeros[..], b"garbage"].concat(), &packed] {
        for archive in [&plain, &packed] {
            let fs =
                imported([&archive[..], behind].concat()).unwrap_or_else(|e| panic!("{} behind: {e}", behind.len()));
            assert_eq!(fs.read("/f").unwrap(), b"data");
        }
    }
    // Members one after the other are one archive.
    let (first, second) = plain.split_at(700);
    assert_eq!(imported([pack(first), pack(second), zeros].concat()).unwrap().read("/f").unwrap(), b"data");
}

#[test]
fn garbage_before_the_end_of_an_archive_is_an_error() {
    let mut packed = Vec::new();
    let plain = [entry("f", b'0', b"data"), entry("g", b'0', b"data"), end()].concat();
    for part in [&plain[..1024], &plain[1024..]] {
        let mut out = flate2::write::GzEncoder::new(packed, flate2::Compression::fast());
        std::io::Write::write_all(&mut out, part).unwrap();
        packed = out.finish().unwrap();
        packed.extend(b"garbage");
    }
    let error = imported(packed).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadInput);
    assert!(error.to_string().ends_with("what follows the compressed data is not gzip"), "{error}");
}
