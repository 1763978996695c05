//! The kernel sees our names and attributes as we do, and we see the kernel's. Skipped where loop mounts are not
//! possible.

use super::objects::{IMAGES, dir, file, new};
use crate::testing::TestVolume;
use crate::{NewKind, Options, RenameFlags, SetAttr, SetTime, Volume, XattrFlags};
use quire_layout::Ino;
use quire_layout::inode::{Timestamp, flags, mode};
use quire_testkit::{Mounted, fsck, mke2fs, run};
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

/// Letters of lsattr.
const LETTERS: &[(char, u32)] = &[
    ('s', flags::SECRM),
    ('u', flags::UNRM),
    ('c', flags::COMPR),
    ('S', flags::SYNC),
    ('i', flags::IMMUTABLE),
    ('a', flags::APPEND),
    ('d', flags::NODUMP),
    ('A', flags::NOATIME),
    ('j', flags::JOURNAL_DATA),
    ('D', flags::DIRSYNC),
    ('T', flags::TOPDIR),
    ('e', flags::EXTENTS),
    ('I', flags::INDEX),
    ('t', flags::NOTAIL),
];

/// Attributes of a file as the kernel has them.
fn kernel_xattrs(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let text = run("getfattr", &["-h", "-d", "-m", "-", "-e", "hex", "--absolute-names", path.to_str().unwrap()]);
    let mut out = BTreeMap::new();
    for line in text.lines().filter(|l| !l.starts_with('#')) {
        let Some((name, hex)) = line.split_once('=') else { continue };
        let hex = hex.strip_prefix("0x").unwrap_or("");
        let byte = |i: usize| u8::from_str_radix(&hex[i..i + 2], 16).unwrap();
        out.insert(name.as_bytes().to_vec(), (0..hex.len()).step_by(2).map(byte).collect());
    }
    out
}

fn kernel_flags(path: &Path) -> u32 {
    let text = run("lsattr", &["-d", path.to_str().unwrap()]);
    let letters = text.split(' ').next().unwrap();
    LETTERS.iter().filter(|(c, _)| letters.contains(*c)).fold(0, |f, (_, bit)| f | bit)
}

/// Compares one object.
fn same_object(v: &Volume, ino: Ino, path: &Path) {
    let (a, m) = (v.getattr(ino).unwrap(), std::fs::symlink_metadata(path).unwrap());
    let time = |t: Timestamp| (t.secs, i64::from(t.nanos));
    assert_eq!(u64::from(ino.0), m.ino(), "{path:?}");
    assert_eq!((u32::from(a.mode), a.uid, a.gid), (m.mode(), m.uid(), m.gid()), "{path:?}");
    assert_eq!((u64::from(a.links), a.size, a.sectors), (m.nlink(), m.size(), m.blocks()), "{path:?}");
    assert_eq!(time(a.mtime), (m.mtime(), m.mtime_nsec()), "mtime {path:?}");
    assert_eq!(time(a.ctime), (m.ctime(), m.ctime_nsec()), "ctime {path:?}");
    assert_eq!(time(a.atime), (m.atime(), m.atime_nsec()), "atime {path:?}");
    let names = v.xattrs().list(ino).unwrap();
    let ours = names.iter().map(|n| (n.clone(), v.xattrs().get(ino, n).unwrap())).collect();
    assert_eq!(kernel_xattrs(path), ours, "{path:?}");
    match a.mode & mode::FMT {
        mode::LNK => assert_eq!(v.readlink(ino).unwrap(), std::fs::read_link(path).unwrap().as_os_str().as_bytes()),
        mode::CHR | mode::BLK => {
            let dev = m.rdev();
            let major = u32::try_from(dev >> 8 & 0xFFF).unwrap();
            let minor = u32::try_from(dev & 0xFF | dev >> 12 & 0xF_FF00).unwrap();
            assert_eq!(a.device, (major, minor), "{path:?}");
        }
        mode::REG | mode::DIR => {
            let shown = LETTERS.iter().fold(0, |f, (_, bit)| f | bit);
            assert_eq!(v.inode_flags().get(ino).unwrap() & shown, kernel_flags(path), "{path:?}");
        }
        _ => {}
    }
}

/// Compares two trees; returns how many objects they have.
fn same_tree(v: &Volume, ino: Ino, path: &Path) -> usize {
    same_object(v, ino, path);
    if v.getattr(ino).unwrap().mode & mode::FMT != mode::DIR {
        return 1;
    }
    let mut ours = BTreeMap::new();
    v.readdir(ino, 0, &mut |i| {
        ours.insert(i.name.to_vec(), i.ino);
        true
    })
    .unwrap();
    assert_eq!(ours.remove(&b"."[..]), Some(ino));
    ours.remove(&b".."[..]).unwrap();
    let entries = std::fs::read_dir(path).unwrap().map(|e| e.unwrap());
    let theirs: BTreeMap<Vec<u8>, _> = entries.map(|e| (e.file_name().as_bytes().to_vec(), e.path())).collect();
    assert_eq!(ours.keys().collect::<Vec<_>>(), theirs.keys().collect::<Vec<_>>(), "{path:?}");
    1 + ours.iter().map(|(name, ino)| same_tree(v, *ino, &theirs[name])).sum::<usize>()
}

fn same_statfs(v: &Volume, at: &Path) {
    let text = run("stat", &["-f", "-c", "%b %f %a %c %d %s %l", at.to_str().unwrap()]);
    let s = v.statfs();
    let ours = format!(
        "{} {} {} {} {} {} {}",
        s.blocks, s.free, s.available, s.inodes, s.free_inodes, s.block_size, s.name_max
    );
    assert_eq!(ours, text.trim());
}

/// One of everything, by our hands.
fn build(v: &Volume) {
    let d = dir(v, Ino::ROOT, "dir").ino;
    let sub = dir(v, d, "sub").ino;
    let long = vec![b'x'; 700];
    for (name, kind) in [
        ("fast", NewKind::Symlink(b"some/where")),
        ("slow", NewKind::Symlink(&long)),
        ("edge59", NewKind::Symlink(&long[..59])),
        ("edge60", NewKind::Symlink(&long[..60])),
        ("pipe", NewKind::Node { file_type: mode::FIFO, device: (0, 0) }),
        ("sock", NewKind::Node { file_type: mode::SOCK, device: (0, 0) }),
        ("null", NewKind::Node { file_type: mode::CHR, device: (1, 3) }),
        ("big", NewKind::Node { file_type: mode::BLK, device: (300, 0xF_1234) }),
    ] {
        let made = v.create(d, name.as_bytes(), &new(kind, 0o640)).unwrap();
        v.xattrs().set(made.ino, b"trusted.kind", name.as_bytes(), XattrFlags::Any).unwrap();
    }
    let acl = hex("0200000001000700ffffffff020005000c00000004000500ffffffff10000700ffffffff20000400ffffffff");
    v.xattrs().set(sub, b"system.posix_acl_default", &acl, XattrFlags::Any).unwrap();
    for n in 0..6 {
        let f = file(v, sub, &format!("f{n}")).ino;
        // Two by two the same, in a block that they share.
        v.xattrs().set(f, b"user.block", &vec![n / 2; 300], XattrFlags::Any).unwrap();
        v.xattrs().set(f, b"user.small", &[n], XattrFlags::Any).unwrap();
        let at = SetTime::At(Timestamp { secs: i64::from(n) * 900_000_000 - 1_000_000_000, nanos: 999_999_999 });
        let uid = Some(u32::from(n) * 70_000);
        v.setattr(f, &SetAttr { uid, mtime: Some(at), atime: Some(at), ..SetAttr::default() }).unwrap();
    }
    v.xattrs().set(sub, b"system.posix_acl_access", &acl, XattrFlags::Any).unwrap();
    let f = v.lookup(sub, b"f0").unwrap().ino;
    v.link(f, d, b"hard").unwrap();
    let e = v.inode_flags().get(f).unwrap() & flags::EXTENTS;
    v.inode_flags().set(f, flags::APPEND | flags::NODUMP | flags::NOATIME | flags::SYNC | e).unwrap();
    v.inode_flags().set(d, flags::DIRSYNC | flags::TOPDIR | flags::NODUMP | e).unwrap();
    // Enough names for an index, and then moved about.
    let many = dir(v, Ino::ROOT, "many").ino;
    for n in 0..300 {
        let name = format!("a rather long name of a file {n:05}");
        file(v, many, &name);
        if n % 3 == 0 {
            v.rename(many, name.as_bytes(), d, name.as_bytes(), RenameFlags::default()).unwrap();
        } else if n % 3 == 1 {
            v.unlink(many, name.as_bytes()).unwrap();
        }
    }
    v.rename(d, b"sub", many, b"moved", RenameFlags::default()).unwrap();
}

fn hex(s: &str) -> Vec<u8> {
    (0..s.len()).step_by(2).map(|i| u8::from_str_radix(&s[i..i + 2], 16).unwrap()).collect()
}

#[test]
#[ignore = "needs root and loop mounts"]
fn the_kernel_sees_what_we_made() {
    for args in IMAGES {
        println!("mke2fs {args:?}");
        let t = TestVolume::new("24M", args);
        build(&t.volume);
        t.check();
        let image = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(image.path(), t.device.snapshot()).unwrap();
        let m = Mounted::new(image.path(), "ro,noatime");
        let read_only = Options { read_only: true, ..Options::default() };
        let v = TestVolume::on(t.device.snapshot(), read_only.clone()).volume;
        assert!(same_tree(&v, Ino::ROOT, m.at.path()) > 200);
        same_statfs(&v, m.at.path());
        run("mount", &["-o", "remount,minixdf", m.at.path().to_str().unwrap()]);
        let minix = Options { minix_df: true, ..read_only };
        same_statfs(&TestVolume::on(t.device.snapshot(), minix).volume, m.at.path());
    }
}

/// One of everything, by the kernel's hands.
const SCRIPT: &str = r#"set -e
mkdir dir dir/sub many; cd dir
for n in 1 2 3; do echo $n > file$n; done
ln file1 hard; ln -s short fast; ln -s $(printf 'x%.0s' $(seq 500)) slow
mkfifo pipe; mknod null c 1 3; mknod big b 300 70000
chown 70000:80000 file1; chmod 6751 file2; chmod 1777 sub
touch -d '2100-01-01 00:00:00.123456789 UTC' file3; touch -a -d '1950-05-05 05:05:05.5 UTC' file3
setfattr -n user.small -v 1 file1; setfattr -n user.empty file1
for f in file1 file2 file3; do setfattr -n trusted.block -v 0x$(head -c 600 /dev/zero | tr '\0' 7) $f; done
setfacl -m u:5:rwx,g:6:r-x file2; setfacl -d -m u:7:rw-,m::rw- sub
touch sub/inherits; mkdir sub/too
chattr +dA file1; chattr +D sub; chattr +a file3; chattr +i file2
cd ../many; for n in $(seq 400); do : > "a rather long name of a file $n"; done
rm *7; mkdir gone; rmdir gone; mv *3 ../dir
"#;

#[test]
#[ignore = "needs root and loop mounts"]
fn we_see_what_the_kernel_made_and_go_on() {
    for args in IMAGES {
        println!("mke2fs {args:?}");
        let image = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(image.path(), mke2fs("24M", args)).unwrap();
        let m = Mounted::new(image.path(), "noatime");
        let done = Command::new("sh").args(["-c", SCRIPT]).current_dir(m.at.path()).status().unwrap();
        assert!(done.success());
        drop(m);
        let m = Mounted::new(image.path(), "ro,noatime");
        let bytes = std::fs::read(image.path()).unwrap();
        let ro = TestVolume::on(bytes.clone(), Options { read_only: true, ..Options::default() });
        assert!(same_tree(&ro.volume, Ino::ROOT, m.at.path()) > 300);
        drop(m);
        go_on(&TestVolume::on(bytes, Options::default()));
    }
}

/// Values in inodes of their own, targets and names in inodes: features that are only read.
#[test]
#[ignore = "needs root and loop mounts"]
fn large_values_and_inline_data_are_read() {
    let script = "set -e
        head -c 20000 /dev/urandom | base64 -w0 > value; setfattr -n user.large -v 0s$(cat value) value
        mkdir dir dir/sub; ln -s $(printf 'x%.0s' $(seq 100)) dir/link; ln -s short dir/fast; mkfifo dir/pipe
        for n in $(seq 6); do : > dir/name$n; setfattr -n trusted.n -v $n dir/name$n; done";
    for args in [&["-b", "4096", "-O", "ea_inode"][..], &["-b", "1024", "-O", "ea_inode,inline_data", "-I", "512"]] {
        println!("mke2fs {args:?}");
        let image = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(image.path(), mke2fs("24M", &[&["-t", "ext4"], args].concat())).unwrap();
        let m = Mounted::new(image.path(), "noatime");
        let done = Command::new("sh").args(["-c", script]).current_dir(m.at.path()).status().unwrap();
        assert!(done.success());
        drop(m);
        let v = TestVolume::on(std::fs::read(image.path()).unwrap(), Options::default()).volume;
        let m = Mounted::new(image.path(), "ro,noatime");
        assert_eq!(same_tree(&v, Ino::ROOT, m.at.path()), 14);
        let value = v.lookup(Ino::ROOT, b"value").unwrap().ino;
        assert_eq!(v.xattrs().get(value, b"user.large").unwrap().len(), 20_000);
        assert!(matches!(v.xattrs().set(value, b"user.x", b"", XattrFlags::Any), Err(crate::Error::ReadOnly(_))));
    }
}

/// Changes what the kernel made.
fn go_on(t: &TestVolume) {
    let v = &t.volume;
    let d = v.lookup(Ino::ROOT, b"dir").unwrap().ino;
    for name in ["file2", "file3"] {
        let f = v.lookup(d, name.as_bytes()).unwrap().ino;
        assert!(v.unlink(d, name.as_bytes()).is_err());
        v.inode_flags().set(f, v.inode_flags().get(f).unwrap() & !(flags::IMMUTABLE | flags::APPEND)).unwrap();
        v.xattrs().set(f, b"trusted.block", &[1; 300], XattrFlags::Any).unwrap();
        v.setattr(f, &SetAttr { mode: Some(0o640), ..SetAttr::default() }).unwrap();
        v.unlink(d, name.as_bytes()).unwrap();
        v.forget(f, 1);
    }
    let f = v.lookup(d, b"file1").unwrap().ino;
    assert_eq!(v.xattrs().get(f, b"trusted.block").unwrap(), [0x77; 300]);
    v.rename(d, b"sub", Ino::ROOT, b"many", RenameFlags { exchange: true, ..RenameFlags::default() }).unwrap();
    let sub = v.lookup(Ino::ROOT, b"many").unwrap().ino;
    let made = file(v, sub, "by us").ino;
    assert!(v.xattrs().get(made, b"system.posix_acl_access").is_ok());
    for name in ["slow", "fast", "pipe", "null", "big", "hard"] {
        v.unlink(d, name.as_bytes()).unwrap();
    }
    v.close().unwrap();
    fsck(&t.device.snapshot());
}
