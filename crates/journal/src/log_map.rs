//! Where the blocks of a log lie on their device. A journal inode need not be contiguous.

use quire_layout::{BlockNo, Corrupt, LogBlock, Structure};

/// A piece of the log that is contiguous on the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogRun {
    pub log: LogBlock,
    pub home: BlockNo,
    pub len: u32,
}

/// Maps log blocks to device blocks, without gaps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogMap {
    runs: Vec<LogRun>,
    len: u32,
}

impl LogMap {
    /// From runs in the order of the log.
    ///
    /// # Errors
    /// Corrupt: the runs leave a gap or overlap, or there are none.
    pub fn new(runs: Vec<LogRun>) -> Result<Self, Corrupt> {
        let bad = |why| Corrupt::new(Structure::JournalInode, why);
        let mut next = 0u32;
        for r in &runs {
            if r.log.0 != next || r.len == 0 {
                return Err(bad("the journal has a hole"));
            }
            next = next.checked_add(r.len).ok_or_else(|| bad("the journal is too long"))?;
            r.home.0.checked_add(u64::from(r.len)).ok_or_else(|| bad("the journal lies outside the device"))?;
        }
        if next == 0 {
            return Err(bad("the journal has no blocks"));
        }
        Ok(LogMap { runs, len: next })
    }

    /// Blocks in the log, its superblock included.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Never: a log has a superblock.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The device block of a log block.
    ///
    /// # Panics
    /// If the log is shorter: positions in it are bounded by its superblock, which was checked against the map.
    #[must_use]
    pub fn home(&self, b: LogBlock) -> BlockNo {
        self.pieces(b, 1)[0].home
    }

    /// The contiguous pieces of `len` log blocks from `at`.
    ///
    /// # Panics
    /// As [`LogMap::home`].
    #[must_use]
    pub fn pieces(&self, at: LogBlock, len: u32) -> Vec<LogRun> {
        let end = at.plus(len);
        assert!(end.0 <= self.len, "{at} and {len} more in a log of {}", self.len);
        let first = self.runs.partition_point(|r| r.log.0 + r.len <= at.0);
        let mut out = Vec::new();
        for r in self.runs[first..].iter().take_while(|r| r.log < end) {
            let start = r.log.max(at);
            let stop = (r.log.0 + r.len).min(end.0);
            out.push(LogRun { log: start, home: r.home.plus(u64::from(start.0 - r.log.0)), len: stop - start.0 });
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(log: u32, home: u64, len: u32) -> LogRun {
        LogRun { log: LogBlock(log), home: BlockNo(home), len }
    }

    #[test]
    fn pieces_follow_the_runs() {
        let m = LogMap::new(vec![run(0, 100, 4), run(4, 50, 2), run(6, 200, 10)]).unwrap();
        assert_eq!(m.len(), 16);
        assert_eq!(m.home(LogBlock(5)), BlockNo(51));
        assert_eq!(m.pieces(LogBlock(3), 5), [run(3, 103, 1), run(4, 50, 2), run(6, 200, 2)]);
        assert_eq!(m.pieces(LogBlock(7), 9), [run(7, 201, 9)]);
    }

    #[test]
    fn holes_and_overlaps_are_corrupt() {
        assert!(LogMap::new(vec![]).is_err());
        assert!(LogMap::new(vec![run(1, 5, 1)]).is_err());
        assert!(LogMap::new(vec![run(0, 5, 2), run(3, 9, 1)]).is_err());
        assert!(LogMap::new(vec![run(0, 5, 2), run(1, 9, 1)]).is_err());
        assert!(LogMap::new(vec![run(0, u64::MAX, 2)]).is_err());
    }
}
