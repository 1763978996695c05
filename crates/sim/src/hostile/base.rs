//! The sound images that are damaged: small, and with something of everything in them.

use super::census;
use super::places::{Kind, Place};
use quire_device::sync::Arc;
use quire_device::{Image, MemDevice, VirtualClock};
use quire_fs::file::{Falloc, WriteFlags};
use quire_fs::{Cred, Devices, New, NewKind, Options, Result, Volume, XattrFlags};
use quire_layout::Ino;
use quire_layout::inode::mode;
use quire_layout::superblock::Superblock;

/// How a base image is made.
#[derive(Clone, Copy, Debug)]
pub struct Recipe {
    pub name: &'static str,
    pub size: &'static str,
    pub mke2fs: &'static [&'static str],
    /// Left with transactions in the log and orphans on record.
    pub dirty: bool,
}

const FIXED: &[&str] =
    &["-U", "3e1f2b00-0000-4000-8000-00000000cafe", "-E", "hash_seed=3e1f2b00-0000-4000-8000-0000000000ff"];
const SMALL: &[&str] = &["-b", "1024", "-g", "2048", "-N", "512", "-J", "size=1"];

/// All base images.
pub const RECIPES: &[Recipe] = &[
    Recipe { name: "ext4", size: "5M", mke2fs: &["-t", "ext4", "-O", "metadata_csum,64bit,orphan_file"], dirty: false },
    Recipe {
        name: "plain",
        size: "5M",
        mke2fs: &["-t", "ext4", "-O", "^metadata_csum,^64bit,^uninit_bg"],
        dirty: false,
    },
    Recipe { name: "ext3", size: "5M", mke2fs: &["-t", "ext3", "-I", "128"], dirty: false },
    Recipe { name: "dirty", size: "5M", mke2fs: &["-t", "ext4", "-O", "metadata_csum,64bit"], dirty: true },
    Recipe {
        name: "dirty-orphan-file",
        size: "5M",
        mke2fs: &["-t", "ext4", "-O", "^metadata_csum,orphan_file"],
        dirty: true,
    },
    Recipe { name: "dirty-ext3", size: "5M", mke2fs: &["-t", "ext3"], dirty: true },
    Recipe {
        name: "no-log",
        size: "5M",
        mke2fs: &["-t", "ext4", "-O", "^has_journal,^metadata_csum,meta_bg,^resize_inode"],
        dirty: false,
    },
];

/// A sound image and where its metadata is.
#[derive(Clone, Debug)]
pub struct Base {
    pub name: &'static str,
    pub image: Image,
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
        let mut args = [FIXED, r.mke2fs].concat();
        let small = if r.name == "no-log" { &SMALL[..6] } else { SMALL };
        args.extend(small);
        let device = Arc::new(MemDevice::new(quire_fs::testing::mke2fs(r.size, &args)));
        let open = || {
            let options = Options { cache_bytes: 1 << 20, ..Options::default() };
            Volume::open(Devices::one(device.clone()), Arc::new(VirtualClock::default()), options).expect("mount")
        };
        let v = open();
        fill(&v).expect("fill");
        v.close().expect("unmount");
        if r.dirty {
            let v = open();
            leave(&v).expect("leave");
        }
        let bytes = device.snapshot();
        let sb = Superblock::decode(&bytes[1024..2048]).expect("a sound superblock");
        let (places, zones) = census::take(&bytes, &sb);
        Base { name: r.name, image: Image::from_bytes(&bytes), sb, dirty: r.dirty, places, zones }
    }

    /// Every base image.
    #[must_use]
    pub fn all() -> Vec<Self> {
        RECIPES.iter().map(Base::new).collect()
    }

    /// Only the log is to be damaged.
    pub fn keep_log_only(&mut self) {
        self.places.retain(|p| p.kind.name().contains("log") || p.kind == Kind::JournalSuperblock);
    }

    /// True if damage of this place may send data anywhere: the places of metadata themselves are in doubt.
    #[must_use]
    pub fn is_geometry(&self, p: &Place) -> bool {
        match p.kind {
            Kind::Superblock | Kind::Descriptor(_) => true,
            Kind::Inode(ino) => ino < self.sb.first_ino() && ino != Ino::ROOT,
            Kind::ExtentNode(ino) | Kind::IndirectBlock(ino) => ino < self.sb.first_ino() && ino != Ino::ROOT,
            k => k.name().contains("log") || k == Kind::JournalSuperblock,
        }
    }
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
        v.setxattr(ino, b"user.short", b"value", XattrFlags::Any)?;
        v.setxattr(ino, b"user.long", &vec![b'v'; 300 + 100 * (i / 2)], XattrFlags::Any)?;
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
    v.sync()?;
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
    v.commit_all()
}
