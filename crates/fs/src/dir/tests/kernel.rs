//! The kernel reads our directories, and we read the kernel's. Skipped where loop mounts are not possible.

use super::listing::with_hash;
use super::*;
use quire_testkit::Mounted;
use std::path::Path;

fn path_of(dir: &Path, name: &[u8]) -> std::path::PathBuf {
    use std::os::unix::ffi::OsStrExt;
    dir.join(std::ffi::OsStr::from_bytes(name))
}

fn kernel_names(dir: &Path) -> std::collections::BTreeSet<Vec<u8>> {
    use std::os::unix::ffi::OsStringExt;
    std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_vec()).collect()
}

/// What we wrote: the kernel lists all names and finds each (hashes and index are right). D1, D4.
#[test]
#[ignore = "needs root and loop mounts"]
fn the_kernel_finds_our_names() {
    use std::os::unix::fs::MetadataExt;
    let images: &[(&[&str], &str, bool, usize, usize)] = &[
        (&["-b", "4096"], "half_md4", false, 50_000, 20),
        (&["-b", "1024"], "half_md4", false, 12_000, 230),
        (&["-b", "1024"], "tea", true, 3000, 60),
        (&["-b", "1024"], "half_md4", true, 3000, 60),
        (&["-b", "1024"], "legacy", true, 3000, 60),
        (&["-b", "2048"], "legacy", false, 3000, 60),
        (&["-b", "1024", "-O", "large_dir"], "tea", false, 40_000, 240),
        (&["-b", "1024", "-O", "^dir_index"], "tea", false, 500, 60),
        (&["-b", "1024", "-O", "^metadata_csum"], "half_md4", false, 5000, 60),
        (&["-b", "4096"], "half_md4", false, 40, 20),
    ];
    for (args, alg, unsigned, count, len) in images {
        let mut d = Dirs::on(with_hash(image("64M", &[&["-t", "ext4"], *args].concat()), alg, *unsigned));
        let name = |i: usize| {
            let mut name = format!("{i}-äöü-").into_bytes();
            name.resize(*len, 0xC0 + u8::try_from(i % 60).unwrap());
            name
        };
        for i in 0..*count {
            d.add(&name(i), d.file(i)).unwrap();
        }
        d.check();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), d.t.device.snapshot()).unwrap();
        let m = Mounted::new(file.path(), "loop");
        let dir = m.at.path().join("d");
        for i in 0..*count {
            let found = std::fs::symlink_metadata(path_of(&dir, &name(i))).unwrap();
            assert_eq!(found.ino(), u64::from(d.file(i).0));
        }
        assert_eq!(kernel_names(&dir), d.names().into_keys().collect());
    }
}

/// What the kernel wrote: we list and find all, change half of it, and e2fsck and the kernel agree again. D1, D4.
#[test]
#[ignore = "needs root and loop mounts"]
fn we_find_the_kernels_names() {
    let images: &[(&[&str], usize, usize, u8)] = &[
        (&["-b", "4096"], 30_000, 250, 1),
        (&["-b", "1024"], 12_000, 200, 1),
        (&["-b", "1024", "-O", "large_dir"], 30_000, 250, 2),
        (&["-b", "1024", "-O", "^metadata_csum"], 5000, 60, 1),
    ];
    for (args, count, len, levels) in images {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), image("64M", &[&["-t", "ext4"], *args].concat())).unwrap();
        let name = |i: usize| {
            let mut name = format!("{i}-ßþ-").into_bytes();
            name.resize(*len, 0xA0 + u8::try_from(i % 90).unwrap());
            name
        };
        {
            let m = Mounted::new(file.path(), "loop");
            for i in 0..*count {
                let to = path_of(&m.at.path().join("d"), &name(i));
                std::fs::hard_link(m.at.path().join(format!("f{}", i % FILES)), to).unwrap();
            }
        }
        let mut d = Dirs::on(std::fs::read(file.path()).unwrap());
        assert_eq!(d.levels(), Some(*levels));
        for i in 0..*count {
            assert_eq!(d.lookup(&name(i)).unwrap(), Some(d.file(i)));
        }
        assert_eq!(d.names().len(), *count);
        for i in 0..*count {
            match i % 3 {
                0 => drop(d.remove(&name(i)).unwrap()),
                1 => d.add(&name(i + count), d.file(i)).unwrap(),
                _ => {}
            }
        }
        d.check();
        std::fs::write(file.path(), d.t.device.snapshot()).unwrap();
        let m = Mounted::new(file.path(), "loop");
        let dir = m.at.path().join("d");
        assert_eq!(kernel_names(&dir), d.names().into_keys().collect());
        for i in 0..*count {
            assert_eq!(path_of(&dir, &name(i)).exists(), i % 3 != 0);
        }
    }
}
