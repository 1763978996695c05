//! Archives that mean harm: every one is an error that says why, or a sound image, with bounded memory.

use crate::common::{needs_tools, ok, quire, said, tool};
use crate::trees::{Scratch, fsck, make_tree};
use quire_testkit::tar::{entry, header, link, padded, pax};
use std::io::Write;
use std::path::Path;
use std::process::Stdio;

#[test]
fn headers_and_sparse_maps_without_bound_are_refused() {
    needs_tools(&["mke2fs", "tar"]);
    let s = Scratch::new();
    let (image, tar) = (s.text("image"), s.text("bomb.tar"));
    ok(&mut quire(&["create", &image, "--size", "64M"]));
    // Each of the kinds that is kept in memory as a whole, with almost 8 GiB.
    let mut bombs: Vec<(Vec<u8>, &str)> = b"xgLK"
        .iter()
        .map(|kind| (header("h", *kind, (8 << 30) - 1), "an extended header of 8589934591 bytes"))
        .collect();
    // A sparse file in PAX form 1.0 with two million ranges.
    let records = "22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n21 GNU.sparse.name=f\n25 GNU.sparse.realsize=9\n";
    let mut sparse = header("h", b'x', records.len() as u64);
    sparse.extend(padded(records.as_bytes().to_vec()));
    sparse.extend(header("f", b'0', 512));
    sparse.extend(padded(b"2000000\n".to_vec()));
    bombs.push((sparse, "the map of a sparse file is too long"));
    for (bytes, why) in bombs {
        std::fs::write(&tar, bytes).unwrap();
        let (code, text) = said(&mut quire(&["import", &image, &tar]));
        assert!(code == 1 && text.contains(why), "{why}: {code}: {text}");
    }
    fsck(Path::new(&image));
}

/// An archive of 512 bytes of data behind its headers, which the import must refuse with these words.
fn is_refused(archive: &[u8], why: &str) {
    needs_tools(&["mke2fs", "tar"]);
    let s = Scratch::new();
    let (image, tar) = (s.text("image"), s.text("evil.tar"));
    ok(&mut quire(&["create", &image, "--size", "64M"]));
    let before = ok(&mut quire(&["tree", &image]));
    std::fs::write(&tar, archive).unwrap();
    for args in [&["import", &image, &tar][..], &["create", &s.text("new"), "--from", &tar]] {
        let (code, text) = said(&mut quire(args));
        assert!(code == 1 && text.contains(why), "{args:?}: {code}: {text}");
    }
    assert_eq!(ok(&mut quire(&["tree", &image])), before);
    assert!(!s.path("new").exists());
    fsck(Path::new(&image));
}

#[test]
fn a_hard_link_to_nowhere_is_refused_also_a_second_time() {
    is_refused(&link("a", b'1', "none"), "a hard link to none, which is not there");
    is_refused(&[link("a", b'1', "b"), link("b", b'1', "a")].concat(), "a hard link to b, which is not there");
    is_refused(&link("a", b'1', "a"), "a hard link to a, which is not there");
}

#[test]
fn a_hard_link_that_leaves_the_root_is_refused() {
    is_refused(&link("a", b'1', "../etc/passwd"), "leave the root");
    is_refused(&link("a", b'1', "/../etc/passwd"), "leave the root");
    is_refused(&link("a", b'1', "/etc/passwd"), "a hard link to etc/passwd, which is not there");
}

#[test]
fn a_hard_link_to_a_directory_is_refused() {
    let archive = [header("d", b'5', 0), link("a", b'1', "d")].concat();
    is_refused(&archive, "a directory has one name");
}

#[test]
fn a_size_that_overflows_is_refused() {
    let sized = |size| [pax(&[("size", size)]), header("f", b'0', 0), vec![0; 512]].concat();
    is_refused(&sized("18446744073709551615"), "too large");
    is_refused(&sized("99999999999999999999999"), "size");
    is_refused(&sized("-1"), "size");
    is_refused(&sized("9223372036854775807"), "the archive ends in the middle of an entry");
}

#[test]
fn a_sparse_file_larger_than_ext4_allows_is_refused() {
    let sparse = |real: &str, map: &str| {
        let records = [("GNU.sparse.major", "0"), ("GNU.sparse.minor", "1"), ("GNU.sparse.size", real)];
        [pax(&[&records[..], &[("GNU.sparse.map", map)]].concat()), header("f", b'0', 512), vec![1; 512]].concat()
    };
    is_refused(&sparse("9223372036854775807", "9223372036854775295,512"), "f: ");
    is_refused(&sparse("1024", "18446744073709551615,512"), "the map of a sparse file is malformed");
    is_refused(&sparse("1024", "512,512,0,512"), "the map of a sparse file is malformed");
    is_refused(&sparse("4096", "0,4096"), "names more data than there is");
}

#[test]
fn a_compressed_archive_that_is_cut_off_or_damaged_leaves_nothing() {
    needs_tools(&["mke2fs", "tar"]);
    let s = Scratch::new();
    std::fs::create_dir(s.path("tree")).unwrap();
    make_tree(&s.path("tree"));
    for (compress, file) in [("gzip", "a.gz"), ("zstd", "a.zst")] {
        if !crate::common::has(compress) {
            continue;
        }
        let file = s.text(file);
        let shell = r#"tar -C "$1" -cf - . | "$2" -c >"$3""#;
        ok(tool("sh").args(["-c", shell, "sh", &s.text("tree"), compress, &file]));
        let whole = std::fs::read(&file).unwrap();
        let mut flipped = whole.clone();
        flipped[whole.len() / 2] ^= 0x40;
        let begins = [&whole[..8], &[0x55; 600]].concat();
        for (what, bytes) in [("cut", &whole[..whole.len() / 2]), ("flipped", &flipped), ("noise", &begins)] {
            std::fs::write(&file, bytes).unwrap();
            let (code, text) = said(&mut quire(&["create", &s.text("image"), "--from", &file, "--size", "256M"]));
            assert!(code == 1 && text.contains("archive"), "{compress}, {what}: {code}: {text}");
            assert!(!s.path("image").exists(), "{compress}, {what}");
        }
    }
}

#[test]
fn a_compressed_bomb_ends_with_no_space_and_bounded_memory() {
    needs_tools(&["mke2fs", "tar", "gzip"]);
    let s = Scratch::new();
    let mut gzip = tool("sh");
    gzip.args(["-c", r#"{ cat "$1"; head -c 400M /dev/urandom | tr '\000-\377' 'a'; } | gzip -1 >"$2""#, "sh"]);
    std::fs::write(s.path("header"), header("bomb", b'0', 400 << 20)).unwrap();
    ok(gzip.args([s.path("header"), s.path("bomb.gz")]));
    let args = ["create", &s.text("image"), "--from", &s.text("bomb.gz"), "--size", "64M"];
    let (code, text) = said(&mut quire(&args));
    assert!(code == 1 && text.contains("bomb: no space left"), "{code}: {text}");
    assert!(!s.path("image").exists());
}

/// The most memory that a process has had, in KiB.
fn peak_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|l| l.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn memory_does_not_grow_with_the_number_of_entries() {
    needs_tools(&["mke2fs", "tar"]);
    // The cache of an import is 256 MiB at most.
    const LIMIT_KIB: u64 = 512 << 10;
    let entries = if std::env::var_os("FULL").is_some() { 1_000_000 } else { 20_000 };
    let s = Scratch::new();
    let size = format!("{}M", 64 + entries / 1000);
    let inodes = (entries + entries / 100 + 1000).to_string();
    let mut create = quire(&["create", &s.text("image"), "--from", "-", "--size", &size, "--inodes", &inodes]);
    let mut child = create.stdin(Stdio::piped()).spawn().unwrap();
    let mut out = std::io::BufWriter::with_capacity(1 << 20, child.stdin.take().unwrap());
    for n in 0..entries {
        out.write_all(&header(&format!("{}/{}/file-{n}", n / 10_000, n % 7), b'0', 0)).unwrap();
    }
    out.flush().unwrap();
    let peak = peak_kib(child.id());
    drop(out);
    assert!(child.wait().unwrap().success());
    assert!(peak < LIMIT_KIB, "{peak} KiB for {entries} entries");
    println!("{entries} entries: {peak} KiB");
    fsck(&s.path("image"));
}

#[test]
fn a_deep_path_is_imported_with_bounded_memory_at_the_default_size() {
    needs_tools(&["mke2fs", "tar"]);
    // Where each directory has its whole path in memory, this one takes 20 GiB.
    const LIMIT_KIB: &str = "3000000";
    let s = Scratch::new();
    let (image, tar) = (s.text("image"), s.text("deep.tar"));
    let path = format!("{}f", "a/".repeat(30_000));
    let archive = [entry("././@LongLink", b'L', path.as_bytes()), entry("f", b'0', b"deep"), vec![0; 1024]];
    std::fs::write(&tar, archive.concat()).unwrap();
    let shell = r#"ulimit -v "$1"; shift; exec "$@""#;
    let program = quire(&[]).get_program().to_owned();
    ok(tool("sh").args(["-c", shell, "sh", LIMIT_KIB]).arg(program).args(["create", &image, "--from", &tar]));
    assert_eq!(ok(&mut quire(&["cat", &format!("{image}:/{path}")])), "deep");
    fsck(Path::new(&image));
}
