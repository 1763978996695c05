//! An undo file: what a recovery overwrites, in the format of e2fsprogs, so that `e2undo FILE IMAGE` takes it back.
//!
//! ```text
//! block 0: header   1: superblock as it became   2: keys | old block | old block | ...   keys | ...
//! ```
//! Guarantees: the old content of a block is durable in the undo file before the block is first overwritten. Source of
//! the format: e2fsprogs, `undo_io`.

use quire_device::sync::{Mutex, lock};
use quire_device::{BlockDevice, DeviceError, DeviceInfo, Done, ErrorKind, Io, IoOp, Region, Ticket};
use quire_layout::bytes::{put_le32, put_le64};
use quire_layout::checksum::crc32c;
use quire_layout::{BlockSize, superblock};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

const MAGIC: &[u8; 8] = b"E2UNDO02";
const KEY_MAGIC: u32 = 0xCADE_CADE;
const HEADER: usize = 512;
const KEY_HEADER: usize = 16;
const KEY: usize = 16;
/// Where a superblock's magic is.
const SUPERBLOCK_MAGIC: usize = 0x38;
/// Header flags.
const FINISHED: u32 = 1;
const HAS_OFFSET: u32 = 1;
/// Blocks of header and superblock before the first block of keys.
const FIRST_KEYS: u64 = 2;

/// An undo file that is being written.
struct UndoFile {
    file: File,
    block_size: BlockSize,
    /// Where the file system starts in the image, in bytes.
    offset: u64,
    keys: u64,
    /// The block of keys that is being filled, and where it is, in blocks.
    key_block: Vec<u8>,
    key_at: u64,
    /// Keys in it.
    filled: usize,
    /// The end of the file, in blocks.
    end: u64,
}

impl UndoFile {
    fn create(path: &Path, block_size: BlockSize, offset: u64) -> io::Result<Self> {
        let file = File::options().read(true).write(true).create_new(true).open(path)?;
        let key_block = vec![0; block_size.bytes()];
        let undo =
            UndoFile { file, block_size, offset, keys: 0, key_block, key_at: FIRST_KEYS, filled: 0, end: FIRST_KEYS };
        undo.write_header(0)?;
        Ok(undo)
    }

    fn per_block(&self) -> usize {
        (self.block_size.bytes() - KEY_HEADER) / KEY
    }

    /// Adds the old content of a block. Not durable before [`UndoFile::sync`].
    fn add(&mut self, block: u64, old: &[u8]) -> io::Result<()> {
        if self.filled == 0 {
            self.key_at = self.end;
            self.end += 1;
            self.key_block.fill(0);
        }
        let at = KEY_HEADER + KEY * self.filled;
        put_le64(&mut self.key_block, at, block);
        put_le32(&mut self.key_block, at + 8, crc32c(!0, old));
        put_le32(&mut self.key_block, at + 12, u32::try_from(old.len()).expect("a block"));
        self.file.write_all_at(old, self.block_size.bytes64() * self.end)?;
        self.end += 1;
        self.keys += 1;
        self.filled += 1;
        if self.filled == self.per_block() {
            self.write_keys()?;
            self.filled = 0;
        }
        Ok(())
    }

    fn write_keys(&mut self) -> io::Result<()> {
        put_le32(&mut self.key_block, 0, KEY_MAGIC);
        put_le32(&mut self.key_block, 4, 0);
        let sum = crc32c(!0, &self.key_block);
        put_le32(&mut self.key_block, 4, sum);
        self.file.write_all_at(&self.key_block, self.block_size.bytes64() * self.key_at)
    }

    fn sync(&mut self) -> io::Result<()> {
        if self.filled > 0 {
            self.write_keys()?;
        }
        self.write_header(0)?;
        self.file.sync_data()
    }

    /// Says that the recovery ended with this superblock: e2undo works only on the image that it belongs to.
    fn finish(&mut self, superblock: &[u8]) -> io::Result<()> {
        if self.filled > 0 {
            self.write_keys()?;
        }
        // The copy's magic is inverted, so that nobody takes the undo file for a file system.
        let mut copy = superblock.to_vec();
        copy[SUPERBLOCK_MAGIC..SUPERBLOCK_MAGIC + 2].iter_mut().for_each(|b| *b = !*b);
        self.file.write_all_at(&copy, self.block_size.bytes64())?;
        self.write_header(FINISHED)?;
        self.file.sync_all()
    }

    fn write_header(&self, state: u32) -> io::Result<()> {
        let mut h = [0; HEADER];
        h[..8].copy_from_slice(MAGIC);
        let bs = self.block_size.bytes64();
        // Places are in blocks.
        for (at, v) in [(8, self.keys), (16, 1), (24, FIRST_KEYS), (64, self.offset)] {
            put_le64(&mut h, at, v);
        }
        let block_size = u32::try_from(bs).expect("at most 64 KiB");
        let compat = if self.offset == 0 { 0 } else { HAS_OFFSET };
        for (at, v) in [(32, block_size), (36, block_size), (44, state), (48, compat)] {
            put_le32(&mut h, at, v);
        }
        let sum = crc32c(!0, &h[..HEADER - 4]);
        put_le32(&mut h, HEADER - 4, sum);
        self.file.write_all_at(&h, 0)
    }
}

/// A device whose old content is saved before it is overwritten.
pub(crate) struct UndoDevice<D> {
    inner: D,
    block_size: BlockSize,
    state: Mutex<State>,
}

struct State {
    file: UndoFile,
    saved: HashSet<u64>,
    /// Batches that failed before they were submitted.
    failed: HashMap<u64, DeviceError>,
    next_failed: u64,
}

/// Tickets of batches that never reached the device; the device counts from zero.
const FAILED_TICKETS: u64 = 1 << 63;

impl<D: BlockDevice> UndoDevice<D> {
    /// Saves into a new file.
    ///
    /// # Errors
    /// The file exists, or cannot be written.
    pub(crate) fn new(inner: D, path: &Path, block_size: BlockSize, offset: u64) -> io::Result<Self> {
        let file = UndoFile::create(path, block_size, offset)?;
        let state = State { file, saved: HashSet::new(), failed: HashMap::new(), next_failed: FAILED_TICKETS };
        Ok(UndoDevice { inner, block_size, state: Mutex::new(state) })
    }

    /// The recovery is over: the undo file is complete.
    ///
    /// # Errors
    /// The superblock cannot be read, or the file not be written.
    pub(crate) fn finish(&self) -> io::Result<()> {
        let sb = self
            .inner
            .read(superblock::OFFSET, superblock::SIZE, Region::Superblock)
            .map_err(|e| io::Error::other(e.to_string()))?;
        lock(&self.state).file.finish(&sb)
    }

    /// Saves what a batch is about to overwrite.
    fn save(&self, state: &mut State, batch: &[Io]) -> Result<(), DeviceError> {
        let bs = self.block_size.bytes64();
        let mut added = false;
        for io in batch.iter().filter(|io| !matches!(io.op(), IoOp::Read | IoOp::Flush)) {
            let (at, len) = io.range();
            for block in at / bs..(at + len).div_ceil(bs) {
                if !state.saved.insert(block) {
                    continue;
                }
                let start = block * bs;
                // The last block of a device may be cut.
                let here = bs.min(self.inner.info().size - start);
                let old = self.inner.read(start, usize::try_from(here).expect("a block"), Region::Metadata)?;
                let failed = |e: io::Error| DeviceError {
                    op: io.op(),
                    at,
                    len,
                    kind: ErrorKind::Io,
                    errno: e.raw_os_error().unwrap_or(0),
                };
                state.file.add(block, &old).map_err(failed)?;
                added = true;
            }
        }
        if added {
            let failed = |e: io::Error| DeviceError {
                op: IoOp::Write,
                at: 0,
                len: 0,
                kind: ErrorKind::Io,
                errno: e.raw_os_error().unwrap_or(0),
            };
            state.file.sync().map_err(failed)?;
        }
        Ok(())
    }
}

impl<D: BlockDevice> BlockDevice for UndoDevice<D> {
    fn info(&self) -> DeviceInfo {
        self.inner.info()
    }

    fn submit(&self, batch: Vec<Io>) -> Ticket {
        let mut state = lock(&self.state);
        if let Err(e) = self.save(&mut state, &batch) {
            let id = state.next_failed;
            state.next_failed += 1;
            state.failed.insert(id, e);
            return Ticket(id);
        }
        drop(state);
        self.inner.submit(batch)
    }

    fn wait(&self, ticket: Ticket) -> Result<Done, DeviceError> {
        if ticket.0 >= FAILED_TICKETS
            && let Some(e) = lock(&self.state).failed.remove(&ticket.0)
        {
            return Err(e);
        }
        self.inner.wait(ticket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quire_device::Buf;
    use quire_device::sync::Arc;
    use quire_testkit::MemDevice;
    use std::process::Command;

    /// e2undo, which is not ours, takes back what was done through the device.
    #[test]
    fn e2undo_takes_it_back() {
        let dir = tempfile::tempdir().unwrap();
        let (image, undo) = (dir.path().join("image"), dir.path().join("undo"));
        let mke2fs =
            Command::new("mke2fs").args(["-q", "-F", "-t", "ext4", "-b", "1024"]).arg(&image).arg("8M").status();
        assert!(mke2fs.unwrap().success());
        let before = std::fs::read(&image).unwrap();
        let inner = MemDevice::new(before.clone());
        let device = UndoDevice::new(Arc::new(inner), &undo, BlockSize::K1, 0).unwrap();
        // More than one block of keys, one block twice.
        for n in 0..100u64 {
            let at = 4096 + (n % 90) * 3072;
            device.write(at, Arc::new(Buf::copy_of(&[n.to_le_bytes()[0] ^ 0x5A; 2048])), Region::Metadata).unwrap();
        }
        device.finish().unwrap();
        let after = device.inner.snapshot();
        assert_ne!(after, before);
        std::fs::write(&image, &after).unwrap();
        let out = Command::new("e2undo").arg(&undo).arg(&image).output().unwrap();
        assert!(out.status.success(), "{out:?}");
        assert!(std::fs::read(&image).unwrap() == before, "e2undo left other bytes");
    }

    #[test]
    fn an_undo_file_is_not_overwritten() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let made = UndoDevice::new(Arc::new(MemDevice::new(vec![0; 4096])), file.path(), BlockSize::K1, 0);
        assert_eq!(made.err().unwrap().kind(), io::ErrorKind::AlreadyExists);
    }
}
