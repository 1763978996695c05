//! Directories and files that are in their inode.

use super::*;
use crate::data::Seek;
use crate::records;
use quire_layout::inline_data;
use quire_testkit::Mounted;

type Names = BTreeMap<Vec<u8>, Ino>;

fn list(v: &crate::Volume, ino: Ino, piece: usize) -> Names {
    let (mut out, mut cookie) = (Names::new(), 0);
    loop {
        let found = v.run(|op| {
            let inode = records::inode(op, ino)?;
            let mut found = Vec::new();
            super::super::read(op, ino, &inode, cookie, &mut |i| {
                found.push((i.name.to_vec(), i.ino, i.next_cookie));
                found.len() < piece
            })?;
            Ok(found)
        });
        // The sink refuses the last one of a full piece only after having seen it: go on behind it.
        let found = found.unwrap();
        let Some((_, _, last)) = found.last() else { return out };
        cookie = *last;
        for (name, ino, _) in found {
            assert!(out.insert(name, ino).is_none());
        }
    }
}

#[test]
fn inline_directories_and_files_are_read() {
    for size in ["256", "1024"] {
        let tree = tempfile::tempdir().unwrap();
        let at = |p: &str| tree.path().join(p);
        for dir in ["few", "none"] {
            std::fs::create_dir(at(dir)).unwrap();
        }
        for i in 0..3 {
            std::fs::write(at(&format!("few/{i}")), "x".repeat(40 * i)).unwrap();
        }
        let args = ["-t", "ext4", "-O", "inline_data", "-I", size, "-d", tree.path().to_str().unwrap()];
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), quire_testkit::mke2fs("16M", &args)).unwrap();
        let mut dirs = vec!["few", "none"];
        // A directory that goes on in the attribute: only the kernel makes these.
        if let Some(m) = Mounted::if_possible(file.path(), "loop") {
            for dir in [m.at.path().join("more"), at("more")] {
                std::fs::create_dir(&dir).unwrap();
                for i in 0..if size == "256" { 5 } else { 20 } {
                    std::fs::write(dir.join(format!("name-{i}")), format!("{i}").repeat(11 * i)).unwrap();
                }
            }
            dirs.push("more");
        }
        let t = TestVolume::on(std::fs::read(file.path()).unwrap(), Options::default());
        let root = list(&t.volume, Ino::ROOT, 2);
        let inline: usize = dirs.iter().map(|d| compare(&t.volume, root[d.as_bytes()], &at(d))).sum();
        assert!(inline >= 2 * dirs.len() - 2, "{inline} files are inline");
    }
}

/// An inline directory against the tree it was made from; gives how many of its files are inline, too.
fn compare(v: &crate::Volume, ino: Ino, tree: &std::path::Path) -> usize {
    let mut names = list(v, ino, 3);
    assert_eq!(names.remove(&b"."[..]), Some(ino));
    assert_eq!(names.remove(&b".."[..]), Some(Ino::ROOT));
    let inode = v.run(|op| records::inode(op, ino)).unwrap();
    assert!(inline_data::is_inline(&inode), "{} is inline", tree.display());
    assert_eq!(v.run(|op| super::super::is_empty(op, ino, &inode)).unwrap(), names.is_empty());
    let mut inline = 0;
    for entry in std::fs::read_dir(tree).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_encoded_bytes();
        let file = names.remove(&name).unwrap();
        let found = v.run(|op| Ok(super::super::lookup(op, ino, &inode, &name)?.map(|e| e.ino)));
        assert_eq!(found.unwrap(), Some(file));
        let inode = v.run(|op| records::inode(op, file)).unwrap();
        if inline_data::is_inline(&inode) {
            inline += 1;
            let content = std::fs::read(entry.path()).unwrap();
            assert_eq!(inline_data::content(file, &inode).unwrap(), content);
            let mut read = vec![1; 5000];
            let n = v.read(file, 0, &mut read).unwrap();
            assert_eq!(read[..n], content);
            let mut part = [0; 7];
            let n = v.read(file, 3, &mut part).unwrap();
            assert_eq!(part[..n], content[content.len().min(3)..content.len().min(10)]);
            assert_eq!(v.extents(file, 0, 4096, 9).unwrap(), []);
            if !content.is_empty() {
                assert_eq!(v.seek(file, 0, Seek::Data).unwrap(), 0);
                assert_eq!(v.seek(file, 0, Seek::Hole).unwrap(), inode.size());
            }
        }
    }
    assert!(names.is_empty());
    inline
}
