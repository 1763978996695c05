//! An open file in an image.

use super::table::Use;
use crate::node::Node;
use crate::storage::{Kind, Promises, StoredFile};
use quire::{ErrorKind, File, Result, Update};
use std::path::PathBuf;
use std::sync::Arc;

pub(super) struct ImageFile {
    // In this order: the update ends before the file, the file before the use of the image.
    update: Option<Update>,
    file: File,
    node: Arc<Node>,
    used: Use,
    path: PathBuf,
    ino: u32,
    kind: Kind,
    may_write: bool,
    /// An update failed. SQLite then writes its journal, and the database, without an `xSync` between both.
    fell_back: bool,
}

impl ImageFile {
    /// # Errors
    /// Corrupt; I/O.
    pub(super) fn new(used: Use, file: File, path: PathBuf, kind: Kind, may_write: bool) -> Result<Self> {
        let ino = file.metadata()?.ino;
        let node = used.image().nodes.of(ino);
        Ok(ImageFile { update: None, file, node, used, path, ino, kind, may_write, fell_back: false })
    }
}

impl StoredFile for ImageFile {
    fn node(&self) -> &Arc<Node> {
        &self.node
    }

    fn promises(&self) -> Promises {
        self.used.image().promises
    }

    fn may_write(&self) -> bool {
        self.may_write
    }

    fn read(&self, buf: &mut [u8], at: u64) -> Result<usize> {
        match &self.update {
            Some(update) => update.read_at(buf, at),
            // SQLite changes a page in part, and writes it whole: what it held is the base of a small record.
            None if self.may_write && self.kind == Kind::Database => self.file.read_to_change(buf, at),
            None => self.file.read_at(buf, at),
        }
    }

    fn write(&mut self, bytes: &[u8], at: u64) -> Result<()> {
        if let Some(update) = &mut self.update {
            return update.write_at(bytes, at).inspect_err(|_| self.fell_back = true);
        }
        if self.fell_back {
            // F26: the journal is durable before the database is written.
            self.used.image().fs.sync()?;
            self.fell_back = false;
        }
        self.file.write_at(bytes, at)
    }

    fn truncate(&mut self, size: u64) -> Result<()> {
        self.file.set_len(size)
    }

    fn sync(&self) -> Result<()> {
        self.file.sync_data()
    }

    fn size(&self) -> Result<u64> {
        Ok(self.file.metadata()?.size)
    }

    fn has_moved(&self) -> Result<bool> {
        match self.used.image().fs.metadata(&self.path) {
            Ok(found) => Ok(found.ino != self.ino),
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(true),
            Err(e) => Err(e),
        }
    }

    fn begin_update(&mut self) -> Result<()> {
        self.update = Some(self.file.begin_update().inspect_err(|_| self.fell_back = true)?);
        self.fell_back = false;
        Ok(())
    }

    fn commit_update(&mut self) -> Result<()> {
        self.update.take().map_or(Ok(()), Update::commit).inspect_err(|_| self.fell_back = true)
    }

    fn abort_update(&mut self) {
        self.update = None;
    }

    fn close(self: Box<Self>) -> Result<()> {
        let ImageFile { update, file, used, .. } = *self;
        drop((update, file));
        used.end()
    }
}
