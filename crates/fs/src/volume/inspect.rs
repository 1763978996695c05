//! A look at the structures of an image, without the rules of a file system: for debuggers and the lab.

use super::handle::Volume;
use crate::dir::{self, DirItem};
use crate::error::{Error, Result};
use crate::map;
use crate::records;
use crate::txn::Op;
use quire_layout::extent::Extent;
use quire_layout::inode::Inode;
use quire_layout::{FileBlock, Ino};

impl Volume {
    /// Looks at structures as they are.
    #[must_use]
    pub fn inspect(&self) -> Inspect<'_> {
        Inspect { volume: self }
    }
}

/// The structures of an image, whether a name leads to them or not. Nothing is changed.
#[derive(Clone, Copy)]
pub struct Inspect<'v> {
    volume: &'v Volume,
}

impl Inspect<'_> {
    /// An inode's record, in use or not.
    ///
    /// # Errors
    /// Corrupt; I/O.
    pub fn inode(&self, ino: Ino) -> Result<Inode> {
        self.volume.inner.engine.run(|op| records::inode(op, ino))
    }

    /// The first extents of an inode's block map, at most `limit`.
    ///
    /// # Errors
    /// Corrupt; I/O.
    pub fn extents(&self, ino: Ino, limit: usize) -> Result<Vec<Extent>> {
        self.volume.inner.engine.run(|op| {
            let inode = records::inode(op, ino)?;
            map::extents(op, ino, &inode, FileBlock(0), limit)
        })
    }

    /// The block of the device that holds a block of a file, if one does and has been written.
    ///
    /// # Errors
    /// Corrupt; I/O.
    pub fn place(&self, ino: Ino, block: u64) -> Result<Option<u64>> {
        let Ok(block) = u32::try_from(block).map(FileBlock) else { return Ok(None) };
        self.volume.inner.engine.run(|op| {
            let inode = records::inode(op, ino)?;
            let found = map::extents(op, ino, &inode, block, 1)?;
            let holds = found.first().filter(|e| e.at <= block && !e.unwritten);
            Ok(holds.map(|e| e.phys.0 + u64::from(block.0 - e.at.0)))
        })
    }

    /// The inode that a name in a directory means.
    ///
    /// # Errors
    /// Not a directory; name too long; corrupt; I/O.
    pub fn find(&self, dir: Ino, name: &[u8]) -> Result<Option<Ino>> {
        self.volume.inner.engine.run(|op| {
            let inode = directory(op, dir)?;
            Ok(dir::lookup(op, dir, &inode, name)?.map(|entry| entry.ino))
        })
    }

    /// Gives the entries of a directory to `sink`, in the order of a listing.
    ///
    /// # Errors
    /// Not a directory; corrupt; I/O.
    pub fn entries(&self, dir: Ino, sink: &mut dyn FnMut(DirItem<'_>)) -> Result<()> {
        let mut cookie = 0;
        loop {
            let mut seen = Vec::new();
            let next = self.volume.inner.engine.run(|op| {
                seen.clear();
                let inode = directory(op, dir)?;
                dir::read(op, dir, &inode, cookie, &mut |i| {
                    seen.push((i.ino, i.name.to_vec(), i.file_type, i.next_cookie));
                    true
                })
            })?;
            for (ino, name, file_type, next_cookie) in &seen {
                sink(DirItem { ino: *ino, name, file_type: *file_type, next_cookie: *next_cookie });
            }
            match next {
                Some(next) => cookie = next,
                None => return Ok(()),
            }
        }
    }
}

fn directory(op: &mut Op<'_>, ino: Ino) -> Result<Inode> {
    let inode = records::inode(op, ino)?;
    if inode.is_dir() { Ok(inode) } else { Err(Error::NotDir) }
}
