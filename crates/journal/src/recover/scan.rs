//! The first pass: which transactions are in the log, and what is wrong with them (R6).
//!
//! The rules are the kernel's (`do_one_pass`). The log ends, without an error, at the first block that is not one of
//! the expected transaction. A commit block decides about its transaction:
//!
//! | seen | commit time not before the previous one's | older |
//! |---|---|---|
//! | descriptor or revoke block does not match | error: nothing is replayed | stale: the log ends |
//! | commit block (v1: or an image) does not match | reported, the log ends here | stale: the log ends |
//! | an image does not match (v2, v3), or cannot be read | skipped and reported | the same |
//!
//! In an async-commit log a bad commit is a torn end and not reported, unless (v1) another commit follows. There, too,
//! an image that does not match in the *last* transaction tears that whole transaction off: its commit block may have
//! overtaken it. (The kernel replays the rest of such a transaction.)

use super::plan::{BadBlock, BadReason, Planned};
use super::progress::{Phase, Progress};
use super::unrecovered::UnrecoveredLog;
use crate::error::Error;
use crate::geometry::LogWindow;
use quire_device::Mutant;
use quire_layout::jbd2::fast_commit::{FastCommitArea, FastCommitScan};
use quire_layout::jbd2::{BlockKind, Checksums, Commit, Header, Tag, Tags, checksum::crc32_be};
use quire_layout::{Corrupt, LogBlock, Structure, Tid};

/// What the scan found, in log order.
pub(super) struct Found {
    pub(super) start: Tid,
    /// The first transaction that is not replayed.
    pub(super) end: Tid,
    /// The last number that the log may hold.
    pub(super) last_used: Tid,
    /// Where the log ends: one past its last commit block.
    pub(super) head: LogBlock,
    pub(super) transactions: u32,
    /// Good images of committed transactions.
    pub(super) images: Vec<Planned>,
    pub(super) bad: Vec<BadBlock>,
    /// Revoke blocks of committed transactions.
    pub(super) revokes: Vec<(LogBlock, Tid)>,
    pub(super) failed_commit: Option<Tid>,
    pub(super) fast_commits: FastCommitArea,
}

/// How much of [`Found`] belongs to committed transactions.
#[derive(Clone, Copy)]
struct Mark {
    images: usize,
    bad: usize,
    revokes: usize,
    transactions: u32,
    head: LogBlock,
}

/// Where a scan goes on.
#[derive(PartialEq, Eq)]
enum Flow {
    On,
    End,
}

pub(super) struct Scan<'a> {
    log: &'a UnrecoveredLog,
    window: LogWindow<'a>,
    at: LogBlock,
    /// Blocks looked at: never more than the log has.
    visited: u32,
    tid: Tid,
    /// A descriptor or revoke block of this transaction does not match its checksum.
    suspect: bool,
    last_commit: u64,
    /// v1: over this transaction so far.
    crc: u32,
    /// The first transaction with a bad commit.
    cut: Option<Tid>,
    committed: Mark,
    /// Async: the last transaction has a bad image; where it began.
    torn: Option<(Tid, Mark)>,
    found: Found,
}

impl<'a> Scan<'a> {
    pub(super) fn new(log: &'a UnrecoveredLog, start: LogBlock) -> Self {
        let tid = log.superblock.sequence();
        Scan {
            log,
            window: LogWindow::new(&log.geometry, log.superblock.end()),
            at: start,
            visited: 0,
            tid,
            suspect: false,
            last_commit: 0,
            crc: !0,
            cut: None,
            committed: Mark { images: 0, bad: 0, revokes: 0, transactions: 0, head: start },
            torn: None,
            found: Found {
                start: tid,
                end: tid,
                last_used: tid,
                head: start,
                transactions: 0,
                images: Vec::new(),
                bad: Vec::new(),
                revokes: Vec::new(),
                failed_commit: None,
                fast_commits: FastCommitArea::default(),
            },
        }
    }

    /// Scans the log; also returns the window, which holds a small log whole.
    pub(super) fn run(mut self, progress: &mut dyn FnMut(Progress)) -> Result<(Found, LogWindow<'a>), Error> {
        let total = u64::from(self.log_len());
        let mut told = 0;
        while self.step()? == Flow::On {
            if self.visited - told >= 4096 {
                told = self.visited;
                progress(Progress { phase: Phase::Scan, done: u64::from(told), total });
            }
        }
        self.cut_off();
        self.find_last_used()?;
        self.scan_fast_commits()?;
        progress(Progress { phase: Phase::Scan, done: total, total });
        Ok((self.found, self.window))
    }

    fn log_len(&self) -> u32 {
        self.log.superblock.end().0 - self.log.superblock.first().0
    }

    /// The block here, and on to the next; `None` when every block of the log has been seen.
    fn advance(&mut self) -> Option<LogBlock> {
        if self.visited == self.log_len() {
            return None;
        }
        self.visited += 1;
        let here = self.at;
        self.at = here.plus(1);
        if self.at >= self.log.superblock.end() {
            self.at = self.log.superblock.first();
        }
        Some(here)
    }

    fn step(&mut self) -> Result<Flow, Error> {
        let Some(here) = self.advance() else { return Ok(Flow::End) };
        let Some(header) = Header::decode(self.window.block(here)?) else { return Ok(Flow::End) };
        if header.tid != self.tid {
            return Ok(Flow::End);
        }
        match header.kind {
            BlockKind::Descriptor => self.descriptor(here),
            BlockKind::Revoke => self.revoke(here),
            BlockKind::Commit => self.commit(here),
            _ => Ok(Flow::End),
        }
    }

    fn descriptor(&mut self, here: LogBlock) -> Result<Flow, Error> {
        let format = &self.log.format;
        let block = self.window.block(here)?;
        self.suspect |= !format.tail_matches(block);
        let tags: Vec<Tag> = Tags::new(format, block).collect();
        if format.checksums == Checksums::V1 && self.cut.is_none() {
            self.crc = crc32_be(self.crc, block);
        }
        for tag in tags {
            let Some(at) = self.advance() else { return Ok(Flow::End) };
            if !self.suspect && self.cut.is_none() {
                self.image(at, &tag)?;
            }
        }
        Ok(Flow::On)
    }

    fn image(&mut self, at: LogBlock, tag: &Tag) -> Result<(), Error> {
        let format = &self.log.format;
        let bad = |why| BadBlock { home: tag.block, log: at, tid: self.tid, why, revoked: false };
        let logged = match self.window.block(at) {
            Ok(b) => b,
            // The crc of the transaction cannot be had without the image.
            Err(Error::Device(_)) if format.checksums != Checksums::V1 => {
                self.found.bad.push(bad(BadReason::Unreadable));
                return Ok(());
            }
            Err(e) => return Err(e),
        };
        match format.checksums {
            Checksums::V1 => self.crc = crc32_be(self.crc, logged),
            _ if format.tag_checksum(self.tid, logged) != tag.checksum && !Mutant::ChecksumIgnored.is_on() => {
                self.found.bad.push(bad(BadReason::Checksum));
                return Ok(());
            }
            _ => {}
        }
        self.found.images.push(Planned {
            home: tag.block,
            log: at,
            tid: self.tid,
            escaped: tag.escaped,
            revoked: false,
        });
        Ok(())
    }

    fn revoke(&mut self, here: LogBlock) -> Result<Flow, Error> {
        let block = self.window.block(here)?;
        self.suspect |= !self.log.format.tail_matches(block);
        self.found.revokes.push((here, self.tid));
        Ok(Flow::On)
    }

    fn commit(&mut self, here: LogBlock) -> Result<Flow, Error> {
        let format = &self.log.format;
        let block = self.window.block(here)?;
        let commit = Commit::decode(block)?;
        let stale = commit.seconds < self.last_commit;
        if self.suspect {
            let why = "a descriptor or revoke block of a committed transaction does not match its checksum";
            let e = Corrupt::new(Structure::JournalBlock, why);
            return if stale { Ok(Flow::End) } else { Err(self.log.geometry.locate_error(e, here).into()) };
        }
        if let Some(failed) = self.cut {
            // Only a v1 async log goes on after a bad commit: this one proves that it was not the torn end.
            self.found.failed_commit = Some(failed);
            return Ok(Flow::End);
        }
        let good = match format.checksums {
            Checksums::V1 => commit.v1_matches(std::mem::replace(&mut self.crc, !0)),
            _ => format.commit_matches(block),
        };
        if !good && stale {
            return Ok(Flow::End);
        }
        if !good {
            self.cut = Some(self.tid);
            if !format.async_commit {
                self.found.failed_commit = self.cut;
            }
            if !(format.async_commit && format.checksums == Checksums::V1) {
                return Ok(Flow::End);
            }
        } else {
            self.accept();
        }
        self.last_commit = commit.seconds;
        self.tid = self.tid.next();
        Ok(Flow::On)
    }

    /// The transaction is whole.
    fn accept(&mut self) {
        let before = self.committed;
        self.torn = (self.log.format.async_commit && self.found.bad.len() > before.bad).then_some((self.tid, before));
        self.committed = Mark {
            images: self.found.images.len(),
            bad: self.found.bad.len(),
            revokes: self.found.revokes.len(),
            transactions: before.transactions + 1,
            head: self.at,
        };
    }

    /// R9: drops what no commit has made valid.
    fn cut_off(&mut self) {
        self.found.end = self.cut.unwrap_or(self.tid);
        if let Some((tid, before)) = self.torn.take() {
            self.found.end = tid;
            self.committed = before;
        }
        self.found.images.truncate(self.committed.images);
        self.found.bad.truncate(self.committed.bad);
        self.found.revokes.truncate(self.committed.revokes);
        self.found.transactions = self.committed.transactions;
        self.found.head = self.committed.head;
    }

    /// The number after the last transaction counts as used. Where the log breaks off, so do all later ones that stand
    /// anywhere in it: they were durable once, match their checksums, and would pass for what is written next (R10).
    fn find_last_used(&mut self) -> Result<(), Error> {
        self.found.last_used = self.found.end;
        if self.found.failed_commit.is_none() {
            return Ok(());
        }
        let sb = &self.log.superblock;
        for n in sb.first().0..sb.end().0 {
            let block = match self.window.block(LogBlock(n)) {
                Err(Error::Device(_)) => continue,
                block => block?,
            };
            let later = |h: &Header| h.tid.after(self.found.end) && h.tid.after(self.found.last_used);
            if let Some(header) = Header::decode(block).filter(later) {
                self.found.last_used = header.tid;
            }
        }
        Ok(())
    }

    /// Counts the fast commits after the last transaction. The block between log and area is not used.
    fn scan_fast_commits(&mut self) -> Result<(), Error> {
        let sb = &self.log.superblock;
        if sb.fc_blocks() == 0 {
            return Ok(());
        }
        let mut window = LogWindow::new(&self.log.geometry, LogBlock(sb.len()));
        let mut scan = FastCommitScan::new(self.found.end);
        for n in sb.end().0 + 1..sb.len() {
            if !scan.feed(window.block(LogBlock(n))?) {
                break;
            }
        }
        self.found.fast_commits = scan.area();
        Ok(())
    }
}
