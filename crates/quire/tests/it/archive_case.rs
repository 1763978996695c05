//! Archives that no program would write: one with an entry of each kind, changed as some bytes say. For tests, and for
//! the fuzzer `import_tar`, which includes this file.

use quire::archive::{ImportOptions, Source, import};
use quire::{ErrorKind, FileSystem};
use quire_testkit::tar::{BLOCK, entry, header, link, padded, pax, seal};
use std::io::Read;

/// Changes of one archive, at most.
const CHANGES: usize = 32;
/// Bytes that one change takes from the input.
pub(crate) const CHANGE: usize = 5;
/// Bytes of a file that are read back: a sparse one may have 16 TiB.
const READ: u64 = 256 << 10;

/// A header of a device with a number.
fn device(name: &str, kind: u8) -> Vec<u8> {
    let mut block = header(name, kind, 0);
    block[329..336].copy_from_slice(b"0000001");
    block[337..344].copy_from_slice(b"0000003");
    seal(&mut block);
    block
}

/// An archive with an entry of each kind that the import knows.
pub(crate) fn base() -> Vec<u8> {
    let long = "n".repeat(200);
    let about = [
        ("SCHILY.xattr.user.a", "b"),
        ("mtime", "1700000000.25"),
        ("uid", "70000"),
        ("SCHILY.acl.access", "user::rw-,user:5:r--,group::r--,mask::r--,other::---"),
    ];
    let sparse = [
        ("GNU.sparse.major", "1"),
        ("GNU.sparse.minor", "0"),
        ("GNU.sparse.name", "sparse"),
        ("GNU.sparse.realsize", "1048576"),
    ];
    let map = [padded(b"2\n0\n512\n524288\n512\n".to_vec()), vec![7; 2 * BLOCK]].concat();
    [
        entry("dir/", b'5', b""),
        entry("dir/file", b'0', &[1; 5000]),
        link("dir/link", b'1', "dir/file"),
        link("dir/symlink", b'2', "../dir/file"),
        device("dir/null", b'3'),
        device("dir/disk", b'4'),
        entry("dir/pipe", b'6', b""),
        entry("././@LongLink", b'L', long.as_bytes()),
        entry("short", b'0', b"under a long name"),
        entry("././@LongLink", b'K', long.as_bytes()),
        link("far", b'2', "short"),
        pax(&about),
        entry("attributes", b'0', b"with attributes"),
        pax(&sparse),
        entry("sparse", b'0', &map),
        entry("dir/.wh.file", b'0', b""),
        vec![0; 2 * BLOCK],
    ]
    .concat()
}

/// The archive after the changes that `input` asks for: bytes set or flipped, blocks left out, repeated, exchanged, and
/// the end cut off. Headers get their checksum anew unless the input begins with an odd byte.
pub(crate) fn changed(input: &[u8]) -> Vec<u8> {
    let mut archive = base();
    let Some((first, changes)) = input.split_first() else { return archive };
    for change in changes.chunks_exact(CHANGE).take(CHANGES) {
        let at = usize::from(u16::from_le_bytes([change[0], change[1]])) % archive.len().max(1);
        let block = at / BLOCK * BLOCK;
        let (how, with) = (change[2], [change[3], change[4]]);
        if block + BLOCK > archive.len() {
            break;
        }
        match how % 8 {
            0..=2 => archive[at] = with[0],
            3 => archive[at] ^= 1 << (with[0] % 8),
            4 => drop(archive.drain(block..block + BLOCK)),
            5 => {
                let again = archive[block..block + BLOCK].to_vec();
                archive.splice(block..block, again);
            }
            6 => {
                let other = usize::from(u16::from_le_bytes(with)) % (archive.len() / BLOCK) * BLOCK;
                for n in 0..BLOCK {
                    archive.swap(block + n, other + n);
                }
            }
            _ => archive.truncate(at),
        }
    }
    if first % 2 == 0 {
        for header in archive.chunks_exact_mut(BLOCK).filter(|block| &block[257..262] == b"ustar") {
            seal(header);
        }
    }
    archive
}

/// Imports an archive into this file system, reads all that is there then, and returns the image.
///
/// # Errors
/// The import damaged the image, or what it has stored cannot be read.
pub(crate) fn import_and_walk(fs: FileSystem, archive: Vec<u8>, whiteouts: bool) -> Result<Vec<u8>, String> {
    let options = ImportOptions::new().whiteouts(whiteouts);
    let imported = import(&fs, "/", Source::Stream(Box::new(std::io::Cursor::new(archive))), &options);
    if let Err(e) = &imported
        && matches!(e.kind(), ErrorKind::Corrupt | ErrorKind::Io)
    {
        return Err(format!("the import blames the image: {e}"));
    }
    let walk = fs.walk("/").map_err(|e| e.to_string())?;
    for found in walk {
        let found = found.map_err(|e| e.to_string())?;
        if found.metadata.is_file() {
            let file = fs.open_file(&found.path).map_err(|e| e.to_string())?;
            std::io::copy(&mut file.take(READ), &mut std::io::sink()).map_err(|e| e.to_string())?;
        }
    }
    fs.into_bytes().map_err(|e| e.to_string()).map(|bytes| bytes.expect("it is in memory"))
}
