//! Directories and files that are in their inode.

use super::*;
use crate::error::Error;
use quire_layout::inline_data;

type Names = BTreeMap<Vec<u8>, Ino>;

fn list(v: &crate::Volume, ino: Ino, piece: usize) -> Names {
    let (mut out, mut cookie) = (Names::new(), 0);
    loop {
        let found = v.run(|op| {
            let inode = op.inode(ino)?;
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
        std::fs::create_dir_all(at("few")).unwrap();
        std::fs::create_dir_all(at("more")).unwrap();
        std::fs::create_dir_all(at("none")).unwrap();
        for i in 0..2 {
            std::fs::write(at(&format!("few/{i}")), vec![b'a'; i]).unwrap();
        }
        for i in 0..if size == "256" { 5 } else { 20 } {
            std::fs::write(at(&format!("more/name-{i}")), format!("{i}").repeat(11 * i)).unwrap();
        }
        let args = ["-t", "ext4", "-O", "inline_data", "-I", size, "-d", tree.path().to_str().unwrap()];
        let t = TestVolume::new("16M", &args);
        let root = list(&t.volume, Ino::ROOT, 2);
        let mut inline = 0;
        for dir in ["few", "more", "none"] {
            let ino = root[dir.as_bytes()];
            let mut names = list(&t.volume, ino, 3);
            assert_eq!(names.remove(&b"."[..]), Some(ino));
            assert_eq!(names.remove(&b".."[..]), Some(Ino::ROOT));
            for entry in std::fs::read_dir(at(dir)).unwrap() {
                let entry = entry.unwrap();
                let name = entry.file_name().into_encoded_bytes();
                let file = names.remove(&name).unwrap();
                let found = t.volume.run(|op| {
                    let inode = op.inode(ino)?;
                    Ok(super::super::lookup(op, ino, &inode, &name)?.map(|e| e.ino))
                });
                assert_eq!(found.unwrap(), Some(file));
                let inode = t.volume.run(|op| op.inode(file)).unwrap();
                if inline_data::is_inline(&inode) {
                    inline += 1;
                    assert_eq!(inline_data::content(file, &inode).unwrap(), std::fs::read(entry.path()).unwrap());
                }
            }
            assert!(names.is_empty());
            let inode = t.volume.run(|op| op.inode(ino)).unwrap();
            assert!(inline_data::is_inline(&inode), "{dir} is inline");
            let empty = t.volume.run(|op| super::super::is_empty(op, ino, &inode)).unwrap();
            assert_eq!(empty, dir == "none");
            let removed = t.volume.run(|op| super::super::remove(op, ino, &inode, b"0"));
            assert!(matches!(removed, Err(Error::ReadOnly(_))));
        }
        assert!(inline >= 6, "{inline}");
    }
}
