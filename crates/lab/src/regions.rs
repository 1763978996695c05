//! Tells journal writes from others on a device that only sees blocks: it looks where the file system on it has its
//! journal.
//!
//! A write of the superblock may mean a new file system; the next flush, which mke2fs ends with, makes us look again.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use quire_device::sync::{Arc, Mutex, lock};
use quire_device::{BlockDevice, DeviceError, DeviceInfo, Done, Io, Region, SystemClock, Ticket};
use quire_layout::Ino;
use quire_layout::superblock::{OFFSET, SIZE};

/// A device whose writes are given their region before they go on.
pub struct Regions<D> {
    inner: Arc<D>,
    /// Bytes of the journal.
    journal: Mutex<Vec<Range<u64>>>,
    stale: AtomicBool,
}

/// Runs of a journal that are looked for at most.
const MAX_RUNS: usize = 1 << 12;

impl<D: BlockDevice + 'static> Regions<D> {
    #[must_use]
    pub fn new(inner: Arc<D>) -> Self {
        Regions { inner, journal: Mutex::default(), stale: AtomicBool::new(true) }
    }

    /// Where the journal of the ext4 on the device lies; nowhere if there is none.
    fn look(&self) -> quire_fs::Result<Vec<Range<u64>>> {
        let v = quire_fs::peek(self.inner.clone(), Arc::new(SystemClock))?;
        let (bs, ino) = (v.superblock().block_size(), v.superblock().journal_ino());
        if ino == Ino(0) {
            return Ok(Vec::new());
        }
        let runs = v.inspect().extents(ino, MAX_RUNS)?;
        Ok(runs.iter().map(|e| bs.offset(e.phys)..bs.offset(e.phys) + u64::from(e.len) * bs.bytes64()).collect())
    }

    fn name(&self, io: &mut Io) {
        let (at, len) = io.range();
        if let Io::Write { region, .. } = io {
            if at < OFFSET + SIZE as u64 && at + len > OFFSET {
                self.stale.store(true, Ordering::Relaxed);
            }
            if lock(&self.journal).iter().any(|r| r.contains(&at)) {
                *region = Region::Log;
            }
        }
    }
}

impl<D: BlockDevice + 'static> BlockDevice for Regions<D> {
    fn info(&self) -> DeviceInfo {
        self.inner.info()
    }

    fn submit(&self, mut batch: Vec<Io>) -> Ticket {
        if batch.iter().any(|io| matches!(io, Io::Flush)) && self.stale.swap(false, Ordering::Relaxed) {
            // What is no ext4 has no journal.
            *lock(&self.journal) = self.look().unwrap_or_default();
        }
        batch.iter_mut().for_each(|io| self.name(io));
        self.inner.submit(batch)
    }

    fn wait(&self, ticket: Ticket) -> Result<Done, DeviceError> {
        self.inner.wait(ticket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quire_device::{Buf, Counted};
    use quire_testkit::MemDevice;

    #[test]
    fn writes_to_the_journal_are_told_from_others() {
        let dir = tempfile::tempdir().unwrap();
        let image = crate::image::Image::make(&dir.path().join("fs"), 16 << 20, &["-b", "4096"]).unwrap();
        let journal = image.journal_blocks().unwrap();
        let counted = Arc::new(Counted::new(MemDevice::new(std::fs::read(image.path()).unwrap())));
        let device = Regions::new(counted.clone());
        device.run(vec![Io::Flush]).unwrap();
        let last = journal.iter().max().unwrap();
        for block in [journal[0], *last, last + 1, 1] {
            device.write(block * 4096, Arc::new(Buf::zeroed(4096)), Region::Data).unwrap();
        }
        let s = counted.snapshot();
        assert_eq!((s.region(Region::Log).writes.count, s.region(Region::Data).writes.count), (2, 2));
    }
}
