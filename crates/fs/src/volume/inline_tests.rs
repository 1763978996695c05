//! Files and symbolic links in their inode (`inline_data`), and symbolic links that are not as long as they say: what
//! the kernel makes of them, Quire makes, too. The images are made by mke2fs and debugfs; the kernel's view is asked
//! for where loop mounts are possible.

use super::image_tests::debugfs;
use crate::testing::TestVolume;
use crate::{Error, Options, SetAttr, Volume};
use quire_layout::Ino;
use quire_testkit::{Mounted, mke2fs};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Bytes of a file that are compared; behind them lie zeros.
const LOOK: usize = 200_000;

/// A tree whose small files and links fit their inodes, and one file of 1 GiB that is a hole.
fn tree(at: &Path) {
    let file = |name: &str, bytes: &[u8], len: u64| {
        std::fs::write(at.join(name), bytes).unwrap();
        std::fs::File::options().write(true).open(at.join(name)).unwrap().set_len(len).unwrap();
    };
    file("sparse", b"", 1 << 30);
    file("hole", b"", 4096);
    file("empty", b"", 0);
    file("tiny", b"hello", 5);
    file("zeros", b"", 50);
    file("attribute", &[b'a'; 100], 100);
    file("cut", &[b'b'; 100], 100);
    file("grown", &[b'c'; 100], 100);
    for (name, len) in [("l5", 5), ("l59", 59), ("l60", 60), ("l100", 100), ("l180", 180)] {
        std::os::unix::fs::symlink("x".repeat(len), at.join(name)).unwrap();
    }
}

/// What is seen of a name: size, sectors, and content or target; or the error number.
type Seen = Result<(u64, u64, Vec<u8>), i32>;

fn by_quire(v: &Volume, name: &str) -> Seen {
    let see = || -> Result<_, Error> {
        let ino = v.lookup(Ino::ROOT, name.as_bytes())?.ino;
        let attr = v.getattr(ino)?;
        if name.starts_with('l') {
            return Ok((attr.size, attr.sectors, v.readlink(ino)?));
        }
        let mut content = vec![1; LOOK];
        let n = v.read(ino, 0, &mut content)?;
        content.truncate(n);
        Ok((attr.size, attr.sectors, content))
    };
    see().map_err(|e| e.errno())
}

fn by_kernel(mnt: &Path, name: &str) -> Seen {
    let see = || {
        let path = mnt.join(name);
        let meta = std::fs::symlink_metadata(&path)?;
        let bytes = if meta.is_symlink() {
            std::fs::read_link(&path)?.as_os_str().as_bytes().to_vec()
        } else {
            let mut bytes = Vec::new();
            std::io::Read::read_to_end(&mut std::io::Read::take(std::fs::File::open(&path)?, LOOK as u64), &mut bytes)?;
            bytes
        };
        Ok((meta.size(), meta.blocks(), bytes))
    };
    see().map_err(|e: std::io::Error| e.raw_os_error().unwrap())
}

/// Each name of the tree, as Quire sees it; the kernel must see the same.
fn seen(image: &[u8]) -> impl Fn(&str) -> Seen + use<> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), image).unwrap();
    let kernel = Mounted::if_possible(file.path(), "loop,ro");
    let t = TestVolume::on(image.to_vec(), Options { read_only: true, ..Options::default() });
    move |name| {
        let ours = by_quire(&t.volume, name);
        if let Some(mounted) = &kernel {
            assert!(ours == by_kernel(mounted.at.path(), name), "the kernel sees {name} otherwise than {ours:?}");
        }
        ours
    }
}

fn image(features: &str) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    tree(dir.path());
    mke2fs("16M", &["-t", "ext4", "-b", "1024", "-O", features, "-I", "256", "-d", dir.path().to_str().unwrap()])
}

#[test]
fn an_inline_file_is_zeros_behind_what_its_inode_holds_and_counts_its_size() {
    // Sizes that are not what the inode holds, as a tool may set them.
    let image = debugfs(&image("inline_data"), &["sif grown size 5000", "sif cut size 70"]);
    let seen = seen(&image);
    assert_eq!(seen("sparse"), Ok((1 << 30, (1 << 30) / 512, vec![0; LOOK])));
    assert_eq!(seen("hole"), Ok((4096, 8, vec![0; 4096])));
    assert_eq!(seen("empty"), Ok((0, 0, vec![])));
    assert_eq!(seen("tiny"), Ok((5, 1, b"hello".to_vec())));
    assert_eq!(seen("zeros"), Ok((50, 1, vec![0; 50])));
    assert_eq!(seen("attribute"), Ok((100, 1, vec![b'a'; 100])));
    assert_eq!(seen("cut"), Ok((70, 1, vec![b'b'; 70])));
    assert_eq!(seen("grown"), Ok((5000, 10, [vec![b'c'; 100], vec![0; 4900]].concat())));
}

#[test]
fn a_link_that_is_shorter_than_its_size_is_read_unless_it_is_in_the_inode_s_map() {
    for (features, sectors_of_inline) in [("inline_data", 0), ("^inline_data", 2), ("ea_inode", 2)] {
        let sizes = ["sif l5 size 9", "sif l59 size 65", "sif l60 size 200", "sif l100 size 150", "sif l180 size 1500"];
        let spoilt = debugfs(&image(features), &sizes);
        let seen = seen(&spoilt);
        let x = |n| vec![b'x'; n];
        for name in ["l5", "l59"] {
            assert_eq!(seen(name), Err(117), "{features}: {name}");
        }
        assert_eq!(seen("l60"), Ok((200, sectors_of_inline, x(60))), "{features}");
        assert_eq!(seen("l100"), Ok((150, sectors_of_inline, x(100))), "{features}");
        assert_eq!(seen("l180"), Ok((1500, 2, x(180))), "{features}");
        let cut = debugfs(&image(features), &["sif l59 size 20", "sif l100 size 70", "sif l180 size 80"]);
        let seen = self::seen(&cut);
        assert_eq!(seen("l59"), Err(117), "{features}");
        assert_eq!(seen("l100"), Ok((70, sectors_of_inline, x(70))), "{features}");
        assert_eq!(seen("l180"), Ok((80, 2, x(80))), "{features}");
    }
}

/// A link of 65 bytes that owns no block: its text is no block map, whoever deletes it.
#[test]
fn a_link_s_text_is_never_named_as_a_block() {
    let block = u32::from_le_bytes(*b"xxxx").to_string();
    for features in ["^inline_data,^extent,^64bit", "^inline_data"] {
        let whole = image(features);
        let find = TestVolume::on(whole.clone(), Options { read_only: true, ..Options::default() });
        let ino = find.volume.lookup(Ino::ROOT, b"l59").unwrap().ino;
        let orphan = format!("ssv last_orphan {}", ino.0);
        let damage = ["sif l5 size 1000", "sif l59 size 65", "sif l59 links_count 0", &orphan, "unlink l59"];
        let t = TestVolume::on(debugfs(&whole, &damage), Options::default());
        let told = |e: Error| {
            let words = e.to_string();
            assert!(e.errno() == 117 && words.contains("symbolic link") && !words.contains(&block), "{words}");
        };
        told(t.volume.lookup(Ino::ROOT, b"l5").unwrap_err());
        told(t.volume.unlink(Ino::ROOT, b"l5").unwrap_err());
        // The orphan is left to e2fsck, as the kernel leaves it; the mount goes on.
        assert_eq!(t.volume.status().read_only, None);
        assert_eq!(t.volume.superblock().last_orphan(), ino);
    }
}

/// A file's map that holds text: the error names the inode, since the number is no block's.
#[test]
fn an_inode_s_pointers_are_never_named_as_blocks() {
    let block = 0x7878_7878_u32;
    let (map, attributes) = (format!("sif cut block[1] {block}"), format!("sif grown file_acl {block}"));
    let t = TestVolume::on(debugfs(&image("^extent,^64bit"), &[&map, &attributes]), Options::default());
    let told = |e: Error| {
        let words = e.to_string();
        assert!(e.errno() == 117 && words.contains("inode") && !words.contains(&block.to_string()), "{words}");
    };
    let ino = |name: &[u8]| t.volume.lookup(Ino::ROOT, name).unwrap().ino;
    told(t.volume.setattr(ino(b"cut"), &SetAttr { size: Some(0), ..SetAttr::default() }).unwrap_err());
    told(t.volume.xattrs().list(ino(b"grown")).unwrap_err());
}
