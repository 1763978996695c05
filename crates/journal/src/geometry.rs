//! Where the log's blocks are: runs of the journal inode, or a device of its own. And how they are read.
//!
//! ```text
//! inside the image            a device of its own
//! log block 0 = superblock    0 (1 KiB: 0, 1)  an ext4 superblock with the feature journal_dev
//! log block 1 ...             1 (1 KiB: 2)     the journal's superblock; then the log
//! ```
//! Guarantees: a log block maps to one block of the device, inside it, and no two share one. Reads are large: one
//! device operation for each piece that lies together, a window of up to 1 MiB at a time.

use crate::error::Error;
use crate::log_map::{LogMap, LogRun};
use quire_device::sync::Arc;
use quire_device::{BlockDevice, Buf, Io, Region};
use quire_layout::{BlockNo, BlockSize, Corrupt, LogBlock, Structure};

/// Where the log's blocks are.
#[derive(Clone)]
pub struct LogGeometry {
    device: Arc<dyn BlockDevice>,
    block_size: BlockSize,
    map: LogMap,
    /// Start and end of each run on the device, in device order; empty for a device of its own.
    at_home: Vec<(u64, u64)>,
    superblock: LogBlock,
}

impl LogGeometry {
    /// A log inside the image: `runs` is the journal inode's map, in order, from its block 0.
    ///
    /// # Errors
    /// Corrupt: holes, blocks outside the device, or blocks that are mapped twice.
    pub fn internal(device: Arc<dyn BlockDevice>, block_size: BlockSize, runs: Vec<LogRun>) -> Result<Self, Error> {
        let bad = |why| Corrupt::new(Structure::JournalInode, why);
        let blocks = device.info().size >> block_size.bits();
        let end_of = |r: &LogRun| r.home.0.checked_add(u64::from(r.len)).filter(|e| *e <= blocks);
        let mut at_home = Vec::with_capacity(runs.len());
        for r in &runs {
            at_home.push((r.home.0, end_of(r).ok_or_else(|| bad("the journal leaves the device"))?));
        }
        let map = LogMap::new(runs)?;
        if map.len() < 2 {
            return Err(bad("the journal has no blocks").into());
        }
        at_home.sort_unstable();
        if let Some(w) = at_home.windows(2).find(|w| w[0].1 > w[1].0) {
            return Err(bad("a block of the journal is mapped twice").at(BlockNo(w[1].0)).into());
        }
        Ok(LogGeometry { device, block_size, map, at_home, superblock: LogBlock(0) })
    }

    /// A log of `len` blocks that fills a device of its own. See [`crate::recover::open_external`] for its checks.
    ///
    /// # Errors
    /// Corrupt: longer than the device, or shorter than its head.
    pub fn external(device: Arc<dyn BlockDevice>, block_size: BlockSize, len: u32) -> Result<Self, Error> {
        let superblock = LogBlock(if block_size == BlockSize::K1 { 2 } else { 1 });
        if u64::from(len) > device.info().size >> block_size.bits() || len <= superblock.0 + 1 {
            return Err(Corrupt::new(Structure::JournalSuperblock, "length does not fit the device").into());
        }
        let map = LogMap::new(vec![LogRun { log: LogBlock(0), home: BlockNo(0), len }])?;
        Ok(LogGeometry { device, block_size, map, at_home: Vec::new(), superblock })
    }

    #[must_use]
    pub fn device(&self) -> &Arc<dyn BlockDevice> {
        &self.device
    }

    #[must_use]
    pub fn block_size(&self) -> BlockSize {
        self.block_size
    }

    /// Blocks of the journal inode, or of the device.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.map.len()
    }

    /// Never: a journal has blocks.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Where the journal's superblock is.
    #[must_use]
    pub fn superblock(&self) -> LogBlock {
        self.superblock
    }

    /// True for a log on a device of its own.
    #[must_use]
    pub fn is_external(&self) -> bool {
        self.at_home.is_empty()
    }

    #[must_use]
    pub fn map(&self) -> &LogMap {
        &self.map
    }

    /// The block of the device that holds log block `n`; `None` outside the log.
    #[must_use]
    pub fn locate(&self, n: LogBlock) -> Option<BlockNo> {
        (n.0 < self.map.len()).then(|| self.map.home(n))
    }

    /// True if `b` of the file system's device is a block of the log.
    #[must_use]
    pub fn contains(&self, b: BlockNo) -> bool {
        let i = self.at_home.partition_point(|(start, _)| *start <= b.0);
        i > 0 && b.0 < self.at_home[i - 1].1
    }

    /// Adds to an error about a log block where that block is.
    pub(crate) fn locate_error(&self, e: Corrupt, n: LogBlock) -> Corrupt {
        match self.locate(n) {
            Some(block) => e.of(n.0).at(block),
            None => e.of(n.0),
        }
    }
}

impl std::fmt::Debug for LogGeometry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LogGeometry({} blocks, external: {})", self.len(), self.is_external())
    }
}

/// Bytes that a window reads at once.
const WINDOW: usize = 1 << 20;

/// Reads log blocks in order, a large window at a time. The window before is kept: who has looked at a whole
/// transaction goes back to its start, and a disk that turns makes him wait for each read.
pub struct LogWindow<'a> {
    geometry: &'a LogGeometry,
    /// Log blocks from here on are not read ahead of need.
    end: LogBlock,
    pieces: Pieces,
    before: Pieces,
}

type Pieces = Vec<(LogRun, Buf)>;

impl<'a> LogWindow<'a> {
    /// Reads up to, and not past, `end`.
    #[must_use]
    pub fn new(geometry: &'a LogGeometry, end: LogBlock) -> Self {
        LogWindow { geometry, end, pieces: Vec::new(), before: Vec::new() }
    }

    /// Reads the blocks that are asked for one by one: for who needs a few of them.
    #[must_use]
    pub fn without_reading_ahead(geometry: &'a LogGeometry) -> Self {
        Self::new(geometry, LogBlock(0))
    }

    /// From now on reads up to, and not past, `end`.
    pub(crate) fn end_at(&mut self, end: LogBlock) {
        self.end = end;
    }

    /// A log block's bytes.
    ///
    /// # Errors
    /// The device failed at this very block; or the block lies outside the log (corrupt).
    pub fn block(&mut self, n: LogBlock) -> Result<&[u8], Error> {
        if self.find(n).is_none() {
            self.load(n)?;
        }
        Ok(self.find(n).expect("just loaded"))
    }

    fn find(&self, n: LogBlock) -> Option<&[u8]> {
        self.find_in(&self.pieces, n).or_else(|| self.find_in(&self.before, n))
    }

    fn find_in<'p>(&self, pieces: &'p Pieces, n: LogBlock) -> Option<&'p [u8]> {
        let i = pieces.partition_point(|(r, _)| r.log <= n).checked_sub(1)?;
        let (run, bytes) = &pieces[i];
        let skip = n.0 - run.log.0;
        let bs = self.geometry.block_size.bytes();
        let offset = usize::try_from(skip).ok()? * bs;
        (skip < run.len).then(|| &bytes[offset..offset + bs])
    }

    fn load(&mut self, n: LogBlock) -> Result<(), Error> {
        let window = u32::try_from(WINDOW >> self.geometry.block_size.bits()).expect("at most 1024");
        let count = self.end.0.saturating_sub(n.0).clamp(1, window);
        match self.try_load(n, count) {
            Err(Error::Device(_)) if count > 1 => self.try_load(n, 1),
            other => other,
        }
    }

    fn try_load(&mut self, n: LogBlock, count: u32) -> Result<(), Error> {
        if n.0.checked_add(count).is_none_or(|end| end > self.geometry.len()) {
            return Err(Corrupt::new(Structure::JournalBlock, "outside the journal").of(n.0).into());
        }
        // Buffers go round: freeing and allocating large aligned ones fragments the heap.
        std::mem::swap(&mut self.before, &mut self.pieces);
        let mut spare: Vec<Buf> = self.pieces.drain(..).map(|(_, buf)| buf).collect();
        let runs = self.geometry.map.pieces(n, count);
        let bs = self.geometry.block_size;
        let bytes = |r: &LogRun| usize::try_from(r.len).expect("a window") * bs.bytes();
        let mut buffer = |len: usize| match spare.iter().position(|b| b.len() == len) {
            Some(i) => spare.swap_remove(i),
            None => Buf::zeroed(len),
        };
        let read = |r: &LogRun| Io::Read { at: bs.offset(r.home), buf: buffer(bytes(r)), region: Region::Log };
        let batch = runs.iter().map(read).collect();
        let done = self.geometry.device.run(batch)?;
        self.pieces = runs.into_iter().zip(done.reads).collect();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quire_device::Counted;
    use quire_testkit::MemDevice;

    fn run(log: u32, home: u64, len: u32) -> LogRun {
        LogRun { log: LogBlock(log), home: BlockNo(home), len }
    }

    fn device() -> Arc<dyn BlockDevice> {
        let mut bytes = vec![0; 64 * 1024];
        (0..64).for_each(|n: u8| bytes[usize::from(n) * 1024] = n);
        Arc::new(MemDevice::new(bytes))
    }

    #[test]
    fn blocks_are_found_in_order_and_across_runs() {
        let g =
            LogGeometry::internal(device(), BlockSize::K1, vec![run(0, 40, 3), run(3, 10, 5), run(8, 2, 1)]).unwrap();
        assert_eq!(g.locate(LogBlock(4)), Some(BlockNo(11)));
        assert_eq!(g.locate(LogBlock(9)), None);
        assert!(
            g.contains(BlockNo(42)) && !g.contains(BlockNo(43)) && !g.contains(BlockNo(1)) && g.contains(BlockNo(2))
        );
        let mut w = LogWindow::new(&g, LogBlock(9));
        let seen: Vec<u8> = (0..9).map(|n| w.block(LogBlock(n)).unwrap()[0]).collect();
        assert_eq!(seen, [40, 41, 42, 10, 11, 12, 13, 14, 2]);
        assert_eq!(w.block(LogBlock(1)).unwrap()[0], 41);
        assert!(matches!(w.block(LogBlock(9)), Err(Error::Corrupt(_))));
    }

    /// A megabyte is read at once, and what lies before it stays for who goes back.
    #[test]
    fn each_window_is_read_once_by_who_goes_back_to_the_start_of_a_transaction() {
        let counted = Arc::new(Counted::new(MemDevice::new(vec![0; 4 << 20])));
        let len = 4096;
        let g = LogGeometry::internal(counted.clone(), BlockSize::K1, vec![run(0, 0, len)]).unwrap();
        let mut w = LogWindow::new(&g, LogBlock(len));
        for start in (0..len).step_by(100) {
            let end = len.min(start + 100);
            (start..end).chain(start..end).for_each(|n| assert_eq!(w.block(LogBlock(n)).unwrap()[0], 0));
        }
        assert_eq!(counted.snapshot().region(Region::Log).reads.count, 4);
    }

    #[test]
    fn who_needs_a_few_blocks_reads_only_those() {
        let counted = Arc::new(Counted::new(MemDevice::new(vec![0; 4 << 20])));
        let g = LogGeometry::internal(counted.clone(), BlockSize::K1, vec![run(0, 0, 4096)]).unwrap();
        let mut w = LogWindow::without_reading_ahead(&g);
        for n in [7, 3000, 7, 4095] {
            w.block(LogBlock(n)).unwrap();
        }
        assert_eq!(counted.snapshot().region(Region::Log).reads.bytes, 3 << 10);
    }

    #[test]
    fn impossible_maps_are_refused() {
        for runs in [
            vec![],
            vec![run(0, 5, 1)],
            vec![run(1, 5, 4)],
            vec![run(0, 5, 4), run(5, 20, 4)],
            vec![run(0, 61, 4)],
            vec![run(0, u64::MAX, 4)],
            vec![run(0, 5, 4), run(4, 8, 4)],
            vec![run(0, 5, 4), run(4, 30, 0)],
        ] {
            assert!(LogGeometry::internal(device(), BlockSize::K1, runs.clone()).is_err(), "{runs:?}");
        }
        assert!(LogGeometry::external(device(), BlockSize::K1, 65).is_err());
        assert!(LogGeometry::external(device(), BlockSize::K1, 64).unwrap().superblock() == LogBlock(2));
    }
}
