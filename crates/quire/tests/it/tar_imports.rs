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
