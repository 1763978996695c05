//! The sound images that are damaged: small, and with something of everything in them.

use super::census;
use super::make;
use super::places::{Kind, Place};
use quire_device::BlockDevice;
use quire_device::sync::Arc;
use quire_fs::{Cred, Devices, Falloc, New, NewKind, Options, Result, Volume, WriteFlags, XattrFlags};
use quire_layout::Ino;
use quire_layout::inode::mode;
use quire_layout::superblock::Superblock;
use quire_testkit::{Image, MemDevice, VirtualClock};

/// Who puts something of everything into an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    /// Quire.
    Volume,
    /// Quire, and a directory whose index has three levels.
    VolumeDeep,
    /// debugfs: what Quire reads only.
    Debugfs,
    /// Quire: one of each structure, so few that every bit of all of them can be flipped.
    Tiny,
}

/// How a base image is made.
#[derive(Clone, Copy, Debug)]
pub struct Recipe {
    pub name: &'static str,
    pub size: &'static str,
    pub mke2fs: &'static [&'static str],
    /// Left with transactions in the log and orphans on record.
    pub dirty: bool,
    /// The log is on a device of its own.
    pub external: bool,
    pub by: By,
}

const SMALL: &[&str] = &["-b", "1024", "-g", "2048", "-N", "512"];
const LOG: &[&str] = &["-J", "size=1"];

const fn ours(name: &'static str, dirty: bool, mke2fs: &'static [&'static str]) -> Recipe {
    Recipe { name, size: "5M", mke2fs, dirty, external: false, by: By::Volume }
}

/// All base images.
pub const RECIPES: &[Recipe] = &[
    ours("ext4", false, &["-t", "ext4", "-O", "metadata_csum,64bit,orphan_file"]),
    ours("plain", false, &["-t", "ext4", "-O", "^metadata_csum,^64bit,^uninit_bg"]),
    ours("ext3", false, &["-t", "ext3", "-I", "128"]),
    ours("dirty", true, &["-t", "ext4", "-O", "metadata_csum,64bit"]),
    ours("dirty-orphan-file", true, &["-t", "ext4", "-O", "^metadata_csum,orphan_file"]),
    ours("dirty-ext3", true, &["-t", "ext3"]),
    ours("no-log", false, &["-t", "ext4", "-O", "^has_journal,^metadata_csum,meta_bg,^resize_inode"]),
    Recipe {
        size: "16M",
        ..ours("4k", true, &["-t", "ext4", "-b", "4096", "-g", "1024", "-J", "size=4", "-O", "metadata_csum,64bit"])
    },
    Recipe { external: true, ..ours("external", true, &["-t", "ext4", "-O", "^has_journal,metadata_csum,64bit"]) },
    Recipe {
        size: "24M",
        by: By::VolumeDeep,
        ..ours("large-dir", false, &["-t", "ext4", "-O", "large_dir,^metadata_csum"])
    },
    Recipe {
        by: By::Debugfs,
        ..ours("inline", false, &["-t", "ext4", "-O", "inline_data,ea_inode,metadata_csum,64bit"])
    },
    Recipe { by: By::Debugfs, ..ours("inline-plain", false, &["-t", "ext4", "-O", "inline_data,^metadata_csum"]) },
    Recipe {
        size: "32M",
        by: By::Debugfs,
        ..ours("bigalloc", false, &["-t", "ext4", "-b", "4096", "-C", "16384", "-J", "size=4", "-O", "bigalloc"])
    },
];

const fn tiny(name: &'static str, dirty: bool, mke2fs: &'static [&'static str]) -> Recipe {
    Recipe { name, size: "2304K", mke2fs, dirty, external: false, by: By::Tiny }
}

/// Images whose metadata is swept bit by bit, whole.
pub const TINY: &[Recipe] = &[
    tiny("tiny", false, &["-t", "ext4", "-O", "metadata_csum,64bit,orphan_file,^resize_inode"]),
    tiny("tiny-plain", false, &["-t", "ext4", "-O", "^metadata_csum,^64bit,^uninit_bg,^resize_inode"]),
    tiny("tiny-ext3", true, &["-t", "ext3", "-I", "128", "-O", "^resize_inode"]),
    tiny("tiny-dirty", true, &["-t", "ext4", "-O", "metadata_csum,64bit,^resize_inode"]),
];

/// A sound image and where its metadata is.
#[derive(Clone, Debug)]
pub struct Base {
    pub name: &'static str,
    /// The file system's bytes, and behind them those of the log's own device, if it has one.
    pub image: Image,
    /// Bytes of the file system's device.
    pub fs_len: u64,
    pub sb: Superblock,
    /// The log has something to replay.
    pub dirty: bool,
    pub places: Vec<Place>,
    pub(super) zones: Vec<(u64, u64)>,
}

impl Base {
    /// Makes the image.
    ///
    /// # Panics
    /// If mke2fs is missing, or the sound image makes trouble.
    #[must_use]
    pub fn new(r: &Recipe) -> Self {
        let has = |option: &str| r.mke2fs.contains(&option);
        let mut args = make::FIXED.to_vec();
        args.extend(match r.by {
            By::Tiny => &["-b", "1024", "-N", "32"][..],
            _ if has("-b") => &[],
            _ => SMALL,
        });
        args.extend(if has("-J") || r.external || r.name == "no-log" { &[][..] } else { LOG });
        args.extend(r.mke2fs);
        let mut bytes = quire_testkit::mke2fs(r.size, &args);
        let fs_len = bytes.len() as u64;
        if r.by == By::Debugfs {
            bytes = make::fill_by_debugfs(&bytes, has("-C"));
        }
        if r.external {
            bytes = make::with_external_log(&bytes);
        }
        let device = Arc::new(MemDevice::new(bytes));
        let open = || {
            let options = Options { cache_bytes: 1 << 20, ..Options::default() };
            Volume::open(devices(&device, fs_len), Arc::new(VirtualClock::default()), options).expect("mount")
        };
        if r.by != By::Debugfs {
            let v = open();
            if r.by == By::Tiny { fill_tiny(&v) } else { fill(&v) }.expect("fill");
            if r.by == By::VolumeDeep {
                three_levels(&v).expect("fill");
            }
            v.close().expect("unmount");
        }
        if r.dirty {
            let v = open();
            if r.by == By::Tiny { leave_tiny(&v) } else { leave(&v) }.expect("leave");
        }
        let bytes = device.snapshot();
        let sb = Superblock::decode(&bytes[1024..2048]).expect("a sound superblock");
        let (places, zones) = census::take(&bytes, &sb);
        Base { name: r.name, image: Image::from_bytes(&bytes), fs_len, sb, dirty: r.dirty, places, zones }
    }

    /// Every base image.
    #[must_use]
    pub fn all() -> Vec<Self> {
        RECIPES.iter().map(Base::new).collect()
    }

    /// A byte of the sound image.
    #[must_use]
    pub fn image_byte(&self, at: u64) -> u8 {
        let mut b = [0];
        self.image.read(at, &mut b);
        b[0]
    }

    /// Only the log is to be damaged.
    pub fn keep_log_only(&mut self) {
        self.places.retain(|p| p.kind.name().contains("log") || p.kind.name().contains("journal"));
    }

    /// True if damage of this place may send data anywhere: the places of metadata themselves are in doubt.
    #[must_use]
    pub fn is_geometry(&self, p: &Place) -> bool {
        match p.kind {
            Kind::Superblock | Kind::Descriptor(_) | Kind::JournalDevice => true,
            Kind::Inode(ino) => ino < self.sb.first_ino() && ino != Ino::ROOT,
            Kind::ExtentNode(ino) | Kind::IndirectBlock(ino) => ino < self.sb.first_ino() && ino != Ino::ROOT,
            k => k.name().contains("log") || k == Kind::JournalSuperblock,
        }
    }
}

/// The devices of an image: the file system's first bytes, and the log behind them.
pub(super) fn devices<D: BlockDevice + 'static>(all: &Arc<D>, fs_len: u64) -> Devices {
    let len = all.info().size;
    if len == fs_len {
        return Devices::one(all.clone());
    }
    let part = |start, len| Arc::new(make::Part { whole: all.clone(), start, len });
    Devices { fs: part(0, fs_len), journal: Some(part(fs_len, len - fs_len)), nvram: None }
}

const CRED: Cred = Cred { uid: 0, gid: 0 };

fn make(v: &Volume, dir: Ino, name: &str, kind: NewKind<'_>) -> Result<Ino> {
    let a = v.create(dir, name.as_bytes(), &New { kind, mode: 0o755, umask: 0, cred: CRED })?;
    v.forget(a.ino, 1);
    Ok(a.ino)
}

/// Files whose maps are deep, directories with and without an index, attributes, links, special files.
fn fill(v: &Volume) -> Result<()> {
    let root = Ino::ROOT;
    let small = make(v, root, "small", NewKind::File)?;
    v.write(small, 0, b"small", WriteFlags::default())?;
    let holes = make(v, root, "holes", NewKind::File)?;
    for n in 0..400 {
        v.write(holes, n * 2048, &[7; 1024], WriteFlags::default())?;
    }
    v.sync()?;
    let far = make(v, root, "far", NewKind::File)?;
    v.write(far, 70 << 20, b"far away", WriteFlags::default())?;
    let room = make(v, root, "room", NewKind::File)?;
    // Indirect maps have no unwritten blocks.
    let _ = v.fallocate(room, Falloc::Allocate { keep_size: true }, 0, 50_000);
    make(v, root, "fast", NewKind::Symlink(b"small"))?;
    make(v, root, "slow", NewKind::Symlink(&[b'x'; 200]))?;
    make(v, root, "pipe", NewKind::Node { file_type: mode::FIFO, device: (0, 0) })?;
    make(v, root, "device", NewKind::Node { file_type: mode::CHR, device: (300, 7000) })?;
    for (i, ino) in [small, holes, far].into_iter().enumerate() {
        v.xattrs().set(ino, b"user.short", b"value", XattrFlags::Any)?;
        v.xattrs().set(ino, b"user.long", &vec![b'v'; 300 + 100 * (i / 2)], XattrFlags::Any)?;
    }
    let plain = make(v, root, "plain", NewKind::Dir)?;
    let deep = make(v, plain, "below", NewKind::Dir)?;
    make(v, deep, "file", NewKind::File)?;
    let two = make(v, root, "indexed", NewKind::Dir)?;
    for n in 0..60 {
        let name = format!("a name that fills its block soon enough, number {n}");
        if n % 20 == 0 {
            make(v, two, &name, NewKind::File)?
        } else {
            v.link_as(small, two, &name)?
        };
    }
    let many = make(v, root, "deep index", NewKind::Dir)?;
    for n in 0..2000 {
        v.link_as(small, many, &format!("{n:05} {}", "name ".repeat(18)))?;
    }
    Ok(())
}

/// Names so long that three fill a block: the index of 1 KiB blocks gets its third level (`large_dir`).
fn three_levels(v: &Volume) -> Result<()> {
    let dir = make(v, Ino::ROOT, "three levels", NewKind::Dir)?;
    let small = v.lookup(Ino::ROOT, b"small")?.ino;
    v.forget(small, 1);
    for n in 0..24_000 {
        v.link_as(small, dir, &format!("{n:0250}"))?;
    }
    Ok(())
}

/// One of each structure: a map with a node of its own (a double indirect block, where maps are so), an attribute
/// block, directories with and without an index, links, a special file.
fn fill_tiny(v: &Volume) -> Result<()> {
    let root = Ino::ROOT;
    v.rmdir(root, b"lost+found")?;
    let holes = make(v, root, "holes", NewKind::File)?;
    for n in 0..6 {
        v.write(holes, n * 2048, &[7; 1024], WriteFlags::default())?;
    }
    v.write(holes, 300 << 10, b"far away", WriteFlags::default())?;
    v.xattrs().set(holes, b"user.short", b"value", XattrFlags::Any)?;
    v.xattrs().set(holes, b"user.long", &[b'v'; 300], XattrFlags::Any)?;
    make(v, root, "fast", NewKind::Symlink(b"holes"))?;
    make(v, root, "slow", NewKind::Symlink(&[b'x'; 200]))?;
    make(v, root, "pipe", NewKind::Node { file_type: mode::FIFO, device: (0, 0) })?;
    let dir = make(v, root, "indexed", NewKind::Dir)?;
    for n in 0..7 {
        v.link_as(holes, dir, &format!("{n:0200}"))?;
    }
    let below = make(v, dir, "below", NewKind::Dir)?;
    make(v, below, "file", NewKind::File)?;
    Ok(())
}

/// A transaction with a revoke, one with an orphan, and then nothing.
fn leave_tiny(v: &Volume) -> Result<()> {
    let dir = make(v, Ino::ROOT, "later", NewKind::Dir)?;
    make(v, dir, "file", NewKind::File)?;
    v.sync()?;
    v.unlink(dir, b"file")?;
    v.rmdir(Ino::ROOT, b"later")?;
    let open = v.lookup(Ino::ROOT, b"slow")?;
    v.unlink(Ino::ROOT, b"slow")?;
    assert_eq!(open.links, 1);
    v.maintenance().commit()
}

trait LinkAs {
    fn link_as(&self, ino: Ino, dir: Ino, name: &str) -> Result<Ino>;
}

impl LinkAs for Volume {
    fn link_as(&self, ino: Ino, dir: Ino, name: &str) -> Result<Ino> {
        let a = self.link(ino, dir, name.as_bytes())?;
        self.forget(a.ino, 1);
        Ok(ino)
    }
}

/// Transactions with revokes, a file that is unlinked but open, and then nothing: as a crash leaves it.
fn leave(v: &Volume) -> Result<()> {
    let dir = make(v, Ino::ROOT, "later", NewKind::Dir)?;
    for n in 0..30 {
        let ino = make(v, dir, &format!("file {n}"), NewKind::File)?;
        v.write(ino, 0, &[1; 3000], WriteFlags::default())?;
    }
    make(v, dir, "gone", NewKind::Dir)?;
    v.sync()?;
    // Its block has an image in the log: a revoke.
    v.rmdir(dir, b"gone")?;
    for n in 0..20 {
        v.unlink(dir, format!("file {n}").as_bytes())?;
    }
    for name in ["holes", "far"] {
        let open = v.lookup(Ino::ROOT, name.as_bytes())?;
        v.unlink(Ino::ROOT, name.as_bytes())?;
        assert_eq!(open.links, 1);
    }
    v.rename(Ino::ROOT, b"plain", dir, b"moved", quire_fs::RenameFlags::default())?;
    let moved = v.lookup(dir, b"moved")?;
    let below = v.lookup(moved.ino, b"below")?;
    v.unlink(below.ino, b"file")?;
    v.rmdir(moved.ino, b"below")?;
    v.maintenance().commit()
}
