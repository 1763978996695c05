//! Images with features that Quire only reads, or does not: it says so by name, and leaves them as they are.

use crate::common::{Place, has, needs_mounts, ok, quire, said, text, tool};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

/// Names and content of a tree, in order.
fn tree(dir: &Path, out: &mut Vec<(String, Vec<u8>)>, at: &str) {
    let mut names: Vec<_> = fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    for name in names.iter().filter(|n| *n != "lost+found") {
        let (path, at) = (dir.join(name), format!("{at}/{name}"));
        let kind = fs::symlink_metadata(&path).unwrap().file_type();
        if kind.is_dir() {
            out.push((at.clone(), Vec::new()));
            tree(&path, out, &at);
        } else if kind.is_symlink() {
            out.push((at, fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()));
        } else {
            out.push((at, fs::read(&path).unwrap()));
        }
    }
}

fn listed(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let mut out = Vec::new();
    tree(dir, &mut out, "");
    out
}

/// A tree with files of all sizes, for `mke2fs -d`.
fn source(dir: &Path) {
    fs::create_dir_all(dir.join("many/deep")).unwrap();
    for n in 0..150u32 {
        fs::write(dir.join(format!("many/file {n} with a name of some length")), vec![b'x'; 40]).unwrap();
    }
    for (n, len) in [0usize, 59, 61, 150, 4095, 70_000, 3_000_000].into_iter().enumerate() {
        let bytes: Vec<u8> = (0..len).map(|i| u8::try_from(i * 7 % 251).unwrap()).collect();
        fs::write(dir.join(format!("many/deep/{n}")), bytes).unwrap();
    }
    symlink("many/deep/5", dir.join("short")).unwrap();
    symlink("d/".repeat(100), dir.join("long")).unwrap();
}

/// What an image with these features looks like through Quire.
fn only_read(options: &[&str], name: &str) {
    let place = Place::new("16M", &[]);
    let from = place.path("source");
    source(&from);
    fs::remove_file(place.image()).unwrap();
    let (code, words) = said(
        tool("mke2fs").args(["-q", "-F", "-t", "ext4", "-d", text(&from)]).args(options).arg(place.image()).arg("100M"),
    );
    assert_eq!(code, 0, "{options:?}: {words}");
    let before = fs::read(place.image()).unwrap();
    let (image, mnt) = (place.image(), place.mnt());
    let info = ok(&mut quire(&["info", text(&image)]));
    assert!(info.contains(&format!("read-only: {name}")), "{options:?}: {info}");

    let (code, words) = said(&mut quire(&["mount", "-o", "rw", text(&image), text(&mnt)]));
    assert!(code == 0 && words.contains("read-only") && words.contains(name), "{options:?}: {words}");
    let same = listed(&mnt) == listed(&from);
    let refused = fs::write(mnt.join("new"), "x").map_err(|e| e.kind());
    let stats = ok(&mut quire(&["stats", text(&mnt)]));
    ok(&mut quire(&["umount", text(&mnt)]));
    assert!(same, "{options:?}: the tree is another");
    assert_eq!(refused, Err(std::io::ErrorKind::ReadOnlyFilesystem), "{options:?}");
    assert!(stats.contains("read-only: ") && stats.contains(name), "{options:?}: {stats}");
    assert!(fs::read(&image).unwrap() == before, "{options:?}: the image was changed");
}

#[test]
fn features_that_are_only_read_are_named() {
    needs_mounts();
    for name in ["quota", "project", "verity", "ea_inode", "mmp"] {
        only_read(&["-O", name], name);
        only_read(&["-O", name, "-b", "1024"], name);
    }
}

/// With blocks of 1 KiB the superblock is in the second block of a cluster, and the descriptors follow it.
#[test]
fn clusters_of_every_block_size_are_read() {
    needs_mounts();
    for block in ["1024", "2048", "4096"] {
        for features in ["bigalloc", "bigalloc,^metadata_csum", "bigalloc,meta_bg,^resize_inode"] {
            only_read(&["-b", block, "-O", features], "bigalloc");
        }
    }
}

/// The kernel refuses them where its pages are smaller; nothing in Quire depends on the page size.
#[test]
fn blocks_larger_than_a_page_are_written() {
    needs_mounts();
    for (block, data) in [("8192", "ordered"), ("16384", "auto"), ("65536", "journal"), ("65536", "auto")] {
        let place = Place::new("256M", &["-b", block]);
        let m = place.mount(&format!("data={data}"));
        let large: Vec<u8> = (0..1_000_001u32).flat_map(|n| n.to_le_bytes()).take(3_000_001).collect();
        fs::write(m.path("large"), &large).unwrap();
        fs::create_dir(m.path("d")).unwrap();
        for n in 0..700 {
            fs::write(m.path(&format!("d/{n}")), format!("small {n}")).unwrap();
        }
        let file = fs::File::options().write(true).open(m.path("large")).unwrap();
        file.set_len(1_234_567).unwrap();
        file.set_len(2_000_000).unwrap();
        rustix::fs::fsync(&file).unwrap();
        drop(file);
        fs::File::open(m.path("d")).unwrap().sync_all().unwrap();
        let dir = m.dir().to_owned();
        m.end_by(rustix::process::Signal::KILL);
        assert_eq!(said(&mut quire(&["umount", &dir])).0, 32, "the daemon had died");

        let m = place.mount("");
        let read = fs::read(m.path("large")).unwrap();
        assert!(read.len() == 2_000_000 && read[..1_234_567] == large[..1_234_567], "{block}, {data}");
        assert!(read[1_234_567..].iter().all(|b| *b == 0), "{block}, {data}");
        assert_eq!(fs::read_dir(m.path("d")).unwrap().count(), 700, "{block}, {data}");
        fs::remove_dir_all(m.path("d")).unwrap();
        fs::write(m.path("small"), "x").unwrap();
        m.unmount();
        place.check();
    }
}

#[test]
fn features_that_are_not_read_are_refused_by_name() {
    for name in ["encrypt", "casefold", "compression"] {
        let place = Place::new("16M", &[]);
        let (image, mnt) = (place.image(), place.mnt());
        if name == "compression" {
            if !has("debugfs") {
                continue;
            }
            ok(tool("debugfs").args(["-w", "-R", "feature compression", text(&image)]));
        } else {
            ok(tool("mke2fs").args(["-q", "-F", "-t", "ext4", "-O", name, text(&image), "16M"]));
        }
        let before = fs::read(&image).unwrap();
        for options in ["rw", "ro", "ro,noload"] {
            let (code, words) = said(&mut quire(&["mount", "-o", options, text(&image), text(&mnt)]));
            assert!(code == 32 && words.contains(name), "{name}: {words}");
        }
        assert!(
            ok(&mut quire(&["info", text(&image)]))
                .contains(&format!("refused: unsupported: file system feature {name}"))
        );
        assert!(fs::read(&image).unwrap() == before, "{name}: the image was changed");
    }
}

/// Features that change nothing for a reader and a writer, or are fully supported.
#[test]
fn further_features_are_written() {
    needs_mounts();
    for features in [
        "large_dir",
        "inline_data",
        "inline_data,^has_journal",
        "metadata_csum_seed,orphan_file",
        "fast_commit",
        "stable_inodes",
        "sparse_super2",
        "meta_bg,^resize_inode",
        "^has_journal",
        "^metadata_csum,uninit_bg",
        "^flex_bg",
        "^64bit,^extent,^metadata_csum",
    ] {
        let place = Place::new("64M", &["-O", features]);
        let mnt = place.mount("");
        source(Path::new(&mnt.path("made")));
        let seen = listed(&mnt.path("made"));
        mnt.unmount();
        place.check();
        let again = place.mount("ro");
        assert!(listed(&again.path("made")) == seen, "{features}");
        again.unmount();
    }
}

/// Nobody who asks for writing gets less without a word.
#[test]
fn noload_is_read_only_and_says_so() {
    needs_mounts();
    let place = Place::new("16M", &[]);
    let (image, mnt) = (place.image(), place.mnt());
    for (options, warns) in [("noload", true), ("noload,rw", true), ("ro,noload", false), ("ro", false)] {
        let log = place.path("log");
        let (code, words) = said(&mut quire(&["mount", "--log", text(&log), "-o", options, text(&image), text(&mnt)]));
        let refused = fs::write(mnt.join("new"), "x").map_err(|e| e.kind());
        ok(&mut quire(&["umount", text(&mnt)]));
        assert_eq!((code, words.contains("read-only: noload")), (0, warns), "{options}: {words}");
        assert_eq!(refused, Err(std::io::ErrorKind::ReadOnlyFilesystem), "{options}");
    }
}

/// What is no file system is told apart from one that is damaged; a wrong argument from both.
#[test]
fn messages_name_what_is_wrong() {
    let place = Place::new("16M", &[]);
    let (image, mnt) = (place.image(), place.mnt());
    let (zeros, journal) = (place.path("zeros"), place.path("journal"));
    fs::write(&zeros, vec![0; 1 << 20]).unwrap();
    ok(tool("mke2fs").args(["-q", "-F", "-O", "journal_dev", text(&journal), "8M"]));
    let (image, zeros, journal, mnt) = (text(&image), text(&zeros), text(&journal), text(&mnt));
    for (args, words) in [
        (vec!["mount", zeros, mnt], "not an ext4 file system"),
        (vec!["info", zeros], "not an ext4 file system"),
        (vec!["recover", zeros], "not an ext4 file system"),
        (vec!["mount", journal, mnt], "an external journal, not a file system"),
        (vec!["info", journal], "an external journal, not a file system"),
        (vec!["dump", image, "inode", "99999999"], "no inode 99999999: the file system has inodes 1 to"),
        (vec!["dump", image, "inode", "0"], "no inode 0"),
        (vec!["mount", "-o", "commit=99999999999", image, mnt], "the number is too large"),
        (vec!["mount", "-o", "commit=x", image, mnt], "a number is expected"),
        (vec!["mount", "-o", "offset=1", image, mnt], "the offset 1 is not a multiple of the sector size, 512"),
        (vec!["mount", "-o", "offset=1G", image, mnt], "nothing to open at byte 1073741824"),
        (
            vec!["mount", "-o", "sizelimit=1000000", image, mnt],
            "larger than its device (a truncated image, or too small a sizelimit",
        ),
    ] {
        let (code, said) = said(&mut quire(&args));
        assert!(code != 0 && said.contains(words), "{args:?}: {said}");
    }
}
