//! The tree that a volume shows.

use quire_fs::{Result, Volume};
use quire_layout::Ino;
use quire_layout::dir::is_dot;
use quire_layout::inode::{Timestamp, mode};
use std::collections::BTreeMap;

/// A path below the root, without a leading slash; the root is empty.
pub type Path = Vec<u8>;

/// A file that only takes space.
pub const FILLER: &[u8] = b"filler";

/// What an inode is.
#[derive(Clone, PartialEq, Eq)]
pub enum ObservedKind {
    File(Vec<u8>),
    Dir,
    Symlink(Vec<u8>),
    Fifo,
    Other(u16),
}

impl std::fmt::Debug for ObservedKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ObservedKind::File(d) => write!(f, "a file of {} bytes", d.len()),
            ObservedKind::Dir => f.write_str("a directory"),
            ObservedKind::Symlink(t) => write!(f, "a link to {} bytes", t.len()),
            ObservedKind::Fifo => f.write_str("a fifo"),
            ObservedKind::Other(m) => write!(f, "of mode {m:o}"),
        }
    }
}

/// One name and its inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedNode {
    pub ino: Ino,
    pub kind: ObservedKind,
    /// Permission bits.
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    pub mtime: Timestamp,
    pub links: u32,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// Every name in the tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    pub nodes: BTreeMap<Path, ObservedNode>,
}

/// Reads the whole tree of a volume.
///
/// # Errors
/// Whatever reading it says.
pub fn observe(v: &Volume) -> Result<Observed> {
    observe_below(v, Ino::ROOT)
}

/// Reads the tree that begins at a directory.
///
/// # Errors
/// Whatever reading it says.
pub fn observe_below(v: &Volume, top: Ino) -> Result<Observed> {
    let mut out = Observed::default();
    visit(v, &mut out, Vec::new(), top)?;
    Ok(out)
}

fn visit(v: &Volume, out: &mut Observed, path: Path, ino: Ino) -> Result<()> {
    let a = v.getattr(ino)?;
    let kind = match a.mode & mode::FMT {
        mode::REG => {
            let mut data = vec![0; usize::try_from(a.size).unwrap_or(usize::MAX).min(1 << 24)];
            let n = v.read(ino, 0, &mut data)?;
            data.truncate(n);
            ObservedKind::File(data)
        }
        mode::DIR => ObservedKind::Dir,
        mode::LNK => ObservedKind::Symlink(v.readlink(ino)?),
        mode::FIFO => ObservedKind::Fifo,
        m => ObservedKind::Other(m),
    };
    let mut xattrs = BTreeMap::new();
    for name in v.xattrs().list(ino)? {
        let value = v.xattrs().get(ino, &name)?;
        xattrs.insert(name, value);
    }
    let (mode, uid, gid, mtime, links) = (a.mode & 0o7777, a.uid, a.gid, a.mtime, a.links);
    let is_dir = kind == ObservedKind::Dir;
    let node = ObservedNode { ino, kind, mode, uid, gid, mtime, links, xattrs };
    out.nodes.insert(path.clone(), node);
    if !is_dir {
        return Ok(());
    }
    let mut names = Vec::new();
    v.readdir(ino, 0, &mut |item| {
        names.push(item.name.to_vec());
        true
    })?;
    for name in names {
        if is_dot(&name) || path.is_empty() && (name == b"lost+found" || name == FILLER) {
            continue;
        }
        let child = v.lookup(ino, &name)?;
        let sub = if path.is_empty() { name } else { [path.as_slice(), b"/", &name].concat() };
        let seen = visit(v, out, sub, child.ino);
        v.forget(child.ino, 1);
        seen?;
    }
    Ok(())
}
