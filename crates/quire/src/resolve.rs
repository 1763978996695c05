//! From a path to a name in a directory, and the inode that it means, or that is made.
//!
//! Absolute paths, and symbolic links with absolute targets, begin at the root of the image; `..` of the root is the
//! root. So no path leaves the image.

use crate::error::{Error, ErrorKind, Result};
use crate::metadata::permission_bits;
use crate::shared::{Call, InodeRef};
use quire_fs::{Attr, Cred, New, NewKind, Volume};
use quire_layout::Ino;
use quire_layout::inode::mode;
use std::collections::{HashSet, VecDeque};
use std::ops::Deref;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// Symbolic links that one path may lead through, as in the kernel.
const MAX_SYMLINKS: usize = 40;

/// Where a path leads.
pub(crate) struct Place {
    /// The directory that has the last name.
    pub(crate) dir: Arc<InodeRef>,
    /// The last name; empty if the path means the root or ends with `.` or `..`.
    pub(crate) name: Vec<u8>,
    /// What the path means, if it exists.
    pub(crate) node: Option<Node>,
    /// A `/` at the end of the path: only a directory fits.
    pub(crate) must_be_dir: bool,
    /// Only the `/` at the end of the path has made the last name, a symbolic link, be followed: the path means what is
    /// there, but the name is the link's, which is no directory.
    is_link: bool,
    /// No batch begins, or is rolled back, while the path is used. Dropped last.
    whole: Call,
}

/// What a path means, while no batch begins or is rolled back.
pub(crate) struct Found {
    node: Node,
    /// Dropped last.
    _whole: Call,
}

impl Deref for Found {
    type Target = Node;
    fn deref(&self) -> &Node {
        &self.node
    }
}

/// An inode that a path means, with its attributes when it was found.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) inode: Arc<InodeRef>,
    pub(crate) attr: Attr,
}

impl Node {
    pub(crate) fn is_type(&self, file_type: u16) -> bool {
        self.attr.mode & mode::FMT == file_type
    }
}

impl Place {
    /// What the path means.
    ///
    /// # Errors
    /// Not found; not a directory, if the path ends with `/`.
    pub(crate) fn existing(self) -> Result<Found> {
        let Place { node, must_be_dir, whole, .. } = self;
        let node = node.ok_or_else(not_found)?;
        if must_be_dir && !node.is_type(mode::DIR) {
            return Err(Error::new(ErrorKind::NotADirectory, "not a directory"));
        }
        Ok(Found { node, _whole: whole })
    }

    /// The name for a new object.
    ///
    /// # Errors
    /// Exists.
    pub(crate) fn vacant(&self) -> Result<&[u8]> {
        if self.node.is_some() || self.name.is_empty() || self.is_link {
            return Err(Error::new(ErrorKind::Exists, "file exists"));
        }
        Ok(&self.name)
    }

    /// The last name of something that exists.
    ///
    /// # Errors
    /// Not found; not a directory, if the path ends with `/`. Busy: the root, or a path that ends with `.` or `..`, has
    /// no name that could be removed.
    pub(crate) fn named(&self) -> Result<&[u8]> {
        let name = self.last_name()?;
        match &self.node {
            None => Err(not_found()),
            Some(node) if self.must_be_dir && !node.is_type(mode::DIR) => Err(quire_fs::Error::NotDir.into()),
            Some(_) => Ok(name),
        }
    }

    /// The last name, of something that need not exist.
    ///
    /// # Errors
    /// Not a directory: a symbolic link with a `/` behind it, as rmdir(2) and rename(2) have it. Busy: the path has no
    /// last name.
    pub(crate) fn last_name(&self) -> Result<&[u8]> {
        if self.is_link {
            return Err(quire_fs::Error::NotDir.into());
        }
        if self.name.is_empty() {
            return Err(Error::new(ErrorKind::Busy, "the path has no last name"));
        }
        Ok(&self.name)
    }
}

fn not_found() -> Error {
    quire_fs::Error::NotFound.into()
}

/// A lookup of one name.
///
/// # Errors
/// Not found; not a directory; name too long; corrupt; I/O.
pub(crate) fn child(dir: &InodeRef, name: &[u8]) -> Result<Node> {
    let call = dir.call()?;
    let attr = call.volume.lookup(dir.ino, name)?;
    Ok(Node { inode: Arc::new(InodeRef::adopt(&call, attr.ino)), attr })
}

/// The attributes of an inode.
pub(crate) fn attributes(inode: &InodeRef) -> Result<Attr> {
    Ok(inode.call()?.volume.getattr(inode.ino)?)
}

/// Follows a path from a directory; the last name, too, if it is a symbolic link and `follow` is set.
///
/// # Errors
/// Not found: a directory on the way. Not a directory; too many symbolic links; name too long; corrupt; I/O.
pub(crate) fn resolve(start: &Arc<InodeRef>, path: &Path, follow: bool) -> Result<Place> {
    let whole = start.call()?;
    let bytes = path.as_os_str().as_bytes();
    let root = || Arc::new(InodeRef::root(start.shared.clone()));
    let mut dir = if bytes.first() == Some(&b'/') { root() } else { start.clone() };
    let must_be_dir = bytes.ends_with(b"/");
    let mut left: VecDeque<Vec<u8>> = components(bytes).collect();
    let (mut links, mut is_link) = (0, false);
    let mut at_dir: Option<Node> = None;
    while let Some(name) = left.pop_front() {
        let last = left.is_empty();
        if name == b"." {
            if attributes(&dir)?.mode & mode::FMT != mode::DIR {
                return Err(quire_fs::Error::NotDir.into());
            }
            continue;
        }
        let found = match child(&dir, &name) {
            Ok(node) => node,
            Err(e) if e.kind() == ErrorKind::NotFound && last => {
                return Ok(Place { dir, name, node: None, must_be_dir, is_link, whole });
            }
            Err(e) => return Err(e),
        };
        if found.is_type(mode::LNK) && (!last || follow || must_be_dir) {
            links += 1;
            is_link |= last && !follow;
            if links > MAX_SYMLINKS {
                return Err(Error::new(ErrorKind::TooManySymlinks, "too many levels of symbolic links"));
            }
            let target = found.inode.call()?.volume.readlink(found.inode.ino)?;
            if target.first() == Some(&b'/') {
                dir = root();
            }
            for c in components(&target).collect::<Vec<_>>().into_iter().rev() {
                left.push_front(c);
            }
            if left.is_empty() {
                at_dir = Some(Node { attr: attributes(&dir)?, inode: dir.clone() });
            }
            continue;
        }
        if last && name != b".." {
            return Ok(Place { dir, name, node: Some(found), must_be_dir, is_link, whole });
        }
        if last {
            at_dir = Some(found);
        } else {
            dir = found.inode;
        }
    }
    let node = match at_dir {
        Some(node) => node,
        None => Node { attr: attributes(&dir)?, inode: dir.clone() },
    };
    Ok(Place { dir, name: Vec::new(), node: Some(node), must_be_dir, is_link, whole })
}

/// Checks that a directory which was found in `dir` lies there by its own `..`, too. What goes down a tree asks before
/// each step, because a directory with two names may be one above it.
///
/// # Errors
/// Corrupt: it is below itself, or belongs to another directory.
pub(crate) fn is_child_of(volume: &Volume, ino: Ino, dir: Ino) -> Result<()> {
    let above = parent(volume, ino)?;
    if above == dir {
        return Ok(());
    }
    // The words for it: `..` leads up to the root, or in a circle.
    let (mut at, mut seen) = (dir, HashSet::new());
    while at != ino && seen.insert(at) {
        at = parent(volume, at)?;
    }
    let why = if at == ino {
        "is below itself".to_owned()
    } else {
        format!("lies in inode {dir}, but its .. is inode {above}")
    };
    Err(Error::corrupt_dir(ino.0, &why))
}

/// The directory that a directory's `..` names.
///
/// # Errors
/// Corrupt; I/O.
fn parent(volume: &Volume, ino: Ino) -> Result<Ino> {
    match volume.lookup(ino, b"..") {
        Ok(above) => {
            volume.forget(above.ino, 1);
            Ok(above.ino)
        }
        Err(quire_fs::Error::NotFound) => Err(Error::corrupt_dir(ino.0, "has no ..")),
        Err(e) => Err(e.into()),
    }
}

/// The names of a path. A `.` means something only at the end: what is before it is a directory, and not its last name.
fn components(path: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let names: Vec<&[u8]> = path.split(|b| *b == b'/').filter(|c| !c.is_empty()).collect();
    let end = names.len();
    let kept = names.into_iter().enumerate().filter(move |(n, name)| *name != b"." || n + 1 == end);
    kept.map(|(_, name)| name.to_vec())
}

/// Makes an object in a directory.
pub(crate) fn make_at(dir: &InodeRef, name: &[u8], kind: NewKind<'_>, permissions: u32) -> Result<Arc<InodeRef>> {
    let (uid, gid) = dir.shared.owner;
    let new = New { kind, mode: permission_bits(permissions), umask: 0, cred: Cred { uid, gid } };
    let call = dir.call()?;
    let attr = call.volume.create(dir.ino, name, &new)?;
    Ok(Arc::new(InodeRef::adopt(&call, attr.ino)))
}
