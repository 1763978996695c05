//! The fast-commit area: a stream of small records after the last full commit. Unlike the rest of the log it is
//! little-endian, and its checksum starts from 0.
//!
//! ```text
//! record:  0x0 tag (16)  0x2 length (16)  0x4 value
//! 1 add_range  inode, extent[12]       4 link   parent, inode, name      7 pad
//! 2 del_range  inode, block, count     5 unlink parent, inode, name      8 tail  transaction, crc of all since the last tail
//! 3 creat      parent, inode, name     6 inode  inode, raw inode         9 head  features, transaction
//! ```
//! A tail's length reaches to the end of its block. The area is valid if it begins with a head that names the
//! transaction after the last full commit; what precedes the last good tail counts. Source: kernel documentation, "fast
//! commits".

use crate::bytes::{le16, try_le32};
use crate::checksum::crc32c;
use crate::error::{Corrupt, Structure};
use crate::units::{FileBlock, Ino, Tid};

/// A decoded record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FastCommit<'a> {
    AddRange { ino: Ino, extent: &'a [u8] },
    DelRange { ino: Ino, start: FileBlock, count: u32 },
    Create { parent: Ino, ino: Ino, name: &'a [u8] },
    Link { parent: Ino, ino: Ino, name: &'a [u8] },
    Unlink { parent: Ino, ino: Ino, name: &'a [u8] },
    Inode { ino: Ino, raw: &'a [u8] },
    Pad,
    Tail { tid: Tid, crc: u32 },
    Head { features: u32, tid: Tid },
}

/// A record and the bytes that the checksum of its tail covers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FastCommitRecord<'a> {
    pub body: FastCommit<'a>,
    pub summed: &'a [u8],
}

/// The records of one block, in order. Ends after the first that is corrupt.
#[derive(Clone, Debug)]
pub struct FastCommits<'a> {
    rest: &'a [u8],
}

impl<'a> FastCommits<'a> {
    #[must_use]
    pub fn new(block: &'a [u8]) -> Self {
        FastCommits { rest: block }
    }
}

impl<'a> Iterator for FastCommits<'a> {
    type Item = Result<FastCommitRecord<'a>, Corrupt>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.len() < 4 {
            return None;
        }
        let (tag, len) = (le16(self.rest, 0), usize::from(le16(self.rest, 2)));
        let record = self.rest.get(..4 + len).and_then(|whole| decode(tag, whole));
        match record {
            Some(r) => {
                self.rest = &self.rest[4 + len..];
                Some(Ok(r))
            }
            None => {
                self.rest = &[];
                Some(Err(Corrupt::new(Structure::FastCommitBlock, "unknown record or impossible length")))
            }
        }
    }
}

fn decode(tag: u16, whole: &[u8]) -> Option<FastCommitRecord<'_>> {
    let v = &whole[4..];
    let word = |n: usize| try_le32(v, 4 * n);
    let name = || v.get(8..).filter(|n| (1..=255).contains(&n.len()));
    let body = match tag {
        1 if v.len() == 16 => FastCommit::AddRange { ino: Ino(word(0)?), extent: &v[4..] },
        2 if v.len() == 12 => FastCommit::DelRange { ino: Ino(word(0)?), start: FileBlock(word(1)?), count: word(2)? },
        3 => FastCommit::Create { parent: Ino(word(0)?), ino: Ino(word(1)?), name: name()? },
        4 => FastCommit::Link { parent: Ino(word(0)?), ino: Ino(word(1)?), name: name()? },
        5 => FastCommit::Unlink { parent: Ino(word(0)?), ino: Ino(word(1)?), name: name()? },
        6 if v.len() >= 4 + 128 => FastCommit::Inode { ino: Ino(word(0)?), raw: &v[4..] },
        7 => FastCommit::Pad,
        8 if v.len() >= 8 => FastCommit::Tail { tid: Tid(word(0)?), crc: word(1)? },
        9 if v.len() == 8 => FastCommit::Head { features: word(0)?, tid: Tid(word(1)?) },
        _ => return None,
    };
    // A tail's own crc and what pads its block are not summed.
    let summed = if matches!(body, FastCommit::Tail { .. }) { &whole[..8] } else { whole };
    Some(FastCommitRecord { body, summed })
}

/// What the fast-commit area holds for one transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FastCommitArea {
    /// Records before the last good tail, heads, tails and padding included.
    pub records: u64,
    /// Good tails: fast commits that recovery has to replay.
    pub commits: u64,
}

/// Reads a fast-commit area block by block and counts what is valid in it.
#[derive(Clone, Debug)]
pub struct FastCommitScan {
    expected: Tid,
    crc: u32,
    seen: u64,
    first: bool,
    area: FastCommitArea,
}

impl FastCommitScan {
    /// `expected` is the transaction after the last full commit.
    #[must_use]
    pub fn new(expected: Tid) -> Self {
        FastCommitScan { expected, crc: 0, seen: 0, first: true, area: FastCommitArea::default() }
    }

    /// Takes the next block of the area; false if nothing after it counts.
    pub fn feed(&mut self, block: &[u8]) -> bool {
        if std::mem::take(&mut self.first) && block.get(..2).is_none_or(|t| le16(t, 0) != 9) {
            return false;
        }
        FastCommits::new(block).all(|r| r.is_ok_and(|r| self.take(&r)))
    }

    fn take(&mut self, r: &FastCommitRecord<'_>) -> bool {
        self.crc = crc32c(self.crc, r.summed);
        self.seen += 1;
        match r.body {
            FastCommit::Head { tid, .. } => tid == self.expected,
            FastCommit::Tail { tid, crc } => {
                let good = tid == self.expected && crc == std::mem::take(&mut self.crc);
                if good {
                    self.area.records = self.seen;
                    self.area.commits += 1;
                }
                good
            }
            _ => true,
        }
    }

    #[must_use]
    pub fn area(&self) -> FastCommitArea {
        self.area
    }
}

/// The transaction that the area's first block names, if it begins with a head.
#[must_use]
pub fn head_tid(block: &[u8]) -> Option<Tid> {
    match FastCommits::new(block).next()?.ok()?.body {
        FastCommit::Head { tid, .. } => Some(tid),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::{le32, put_le32};

    /// The first blocks of an area that the kernel left after three fast commits, 1 KiB blocks.
    const AREA: &[u8] = include_bytes!("testdata/fast_commit.area");

    fn scan(area: &[u8], tid: Tid) -> FastCommitArea {
        let mut s = FastCommitScan::new(tid);
        let _ = area.chunks(1024).all(|b| s.feed(b));
        s.area()
    }

    #[test]
    fn the_kernels_area() {
        let tid = head_tid(AREA).unwrap();
        let area = scan(AREA, tid);
        assert_eq!(area.commits, 3);
        assert!(area.records > 9);
        assert!(
            FastCommits::new(AREA)
                .any(|r| matches!(r.unwrap().body, FastCommit::Create { name, .. } if name == b"fc1"))
        );
        assert_eq!(scan(AREA, tid.next()), FastCommitArea::default(), "another transaction's");
    }

    #[test]
    fn damage_ends_it_at_the_last_good_tail() {
        let tid = head_tid(AREA).unwrap();
        let mut a = AREA.to_vec();
        a[1024 + 20] ^= 1;
        assert_eq!(scan(&a, tid).commits, 1);
        a[20] ^= 1;
        assert_eq!(scan(&a, tid).commits, 0);
    }

    #[test]
    fn hostile_lengths() {
        for bytes in
            [&[9u8, 0, 0xFF, 0xFF][..], &[1, 0, 4, 0, 1, 2, 3, 4], &[3, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[0; 8]]
        {
            assert!(FastCommits::new(bytes).next().unwrap().is_err());
            assert_eq!(FastCommits::new(bytes).count(), 1);
        }
        assert_eq!(FastCommits::new(&[9, 0]).count(), 0);
        let mut tail = [8u8, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        put_le32(&mut tail, 8, 77);
        assert_eq!(le32(FastCommits::new(&tail).next().unwrap().unwrap().summed, 4), 0);
    }
}
