//! What is in a log, block by block, for people who debug.
//!
//! Reads only, judges nothing: a checksum that does not match is shown as such and the walk goes on. The live walk
//! follows the transactions as a scan does and ends where it would; the whole walk looks at every block of the log,
//! what earlier rounds left there included.

use crate::error::Error;
use crate::geometry::LogWindow;
use crate::recover::UnrecoveredLog;
use quire_layout::jbd2::fast_commit::{FastCommit, FastCommits};
use quire_layout::jbd2::{BlockKind, Checksums, Commit, Header, JournalSuperblock, Revokes, Tag, TagChecksum, Tags};
use quire_layout::qlog::{BLOCK_TYPE, Head, Kind, Record};
use quire_layout::{BlockNo, LogBlock, Tid};
use std::collections::VecDeque;
use std::fmt;

/// Which blocks are shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// From the start of the log to its end: what recovery would look at.
    Live,
    /// Every block of the log's area.
    Whole,
}

/// An image in the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoggedImage {
    pub at: LogBlock,
    pub tag: Tag,
    /// `None` where the format keeps no checksum of an image.
    pub checksum_matches: Option<bool>,
}

/// Why a live walk ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The log is empty.
    Empty,
    /// A block without the magic.
    NoMagic,
    /// A block of another transaction than the expected one.
    OtherTransaction { expected: Tid, found: Tid },
    /// A block of no known type.
    OtherKind(u32),
    /// No transaction of Quire's: the head does not match its checksum.
    BadHead,
    /// A transaction of Quire's that is not whole: torn, or damaged.
    BadRun,
    /// Every block has been seen.
    AllSeen,
}

/// Something found in the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LogItem {
    Superblock(JournalSuperblock),
    Descriptor {
        at: LogBlock,
        tid: Tid,
        checksum_matches: bool,
        images: Vec<LoggedImage>,
    },
    /// `blocks` is `None` if the count leaves the block.
    Revoke {
        at: LogBlock,
        tid: Tid,
        checksum_matches: bool,
        blocks: Option<Vec<BlockNo>>,
    },
    /// `checksum_matches` is `None` where it is not kept in the block alone (v1) or not at all.
    Commit {
        at: LogBlock,
        commit: Commit,
        checksum_matches: Option<bool>,
    },
    /// A transaction of Quire's log: its head matches its own checksum.
    Transaction {
        at: LogBlock,
        head: Head,
        /// The run matches its checksum.
        whole: bool,
        /// Up to where they make sense, or `None` if the run is not whole.
        records: Option<Vec<Record>>,
    },
    FastCommit {
        at: LogBlock,
        what: String,
    },
    End {
        at: LogBlock,
        why: End,
    },
}

/// Walks over a log.
pub struct LogDump<'a> {
    log: &'a UnrecoveredLog,
    scope: Scope,
    window: LogWindow<'a>,
    at: LogBlock,
    tid: Tid,
    visited: u32,
    ready: VecDeque<LogItem>,
    state: State,
}

#[derive(PartialEq, Eq)]
enum State {
    Log,
    /// The next block of the fast-commit area.
    FastCommits(LogBlock),
    Done,
}

impl<'a> LogDump<'a> {
    /// Begins with the superblock.
    #[must_use]
    pub fn new(log: &'a UnrecoveredLog, scope: Scope) -> Self {
        let sb = log.superblock();
        let start = match scope {
            Scope::Live => sb.start(),
            Scope::Whole => Some(sb.first()),
        };
        let mut dump = LogDump {
            log,
            scope,
            window: LogWindow::new(log.geometry(), sb.end()),
            at: start.unwrap_or(sb.first()),
            tid: sb.sequence(),
            visited: 0,
            ready: VecDeque::from([LogItem::Superblock(sb.clone())]),
            state: State::Log,
        };
        if start.is_none() {
            dump.end(sb.first(), End::Empty);
        }
        dump
    }

    fn end(&mut self, at: LogBlock, why: End) {
        if self.scope == Scope::Live || why == End::AllSeen {
            self.ready.push_back(LogItem::End { at, why });
        }
        let sb = self.log.superblock();
        self.window = LogWindow::new(self.log.geometry(), LogBlock(sb.len()));
        self.state = if sb.fc_blocks() > 0 { State::FastCommits(sb.end().plus(1)) } else { State::Done };
    }

    fn advance(&mut self) -> Option<LogBlock> {
        let sb = self.log.superblock();
        if self.visited == sb.end().0 - sb.first().0 {
            return None;
        }
        self.visited += 1;
        let here = self.at;
        self.at = here.plus(1);
        if self.at >= sb.end() {
            self.at = sb.first();
        }
        Some(here)
    }

    fn log_step(&mut self) -> Result<(), Error> {
        let Some(at) = self.advance() else {
            self.end(self.at, End::AllSeen);
            return Ok(());
        };
        let live = self.scope == Scope::Live;
        let Some(h) = Header::decode(self.window.block(at)?) else {
            if live {
                self.end(at, End::NoMagic);
            }
            return Ok(());
        };
        if live && h.tid != self.tid {
            self.end(at, End::OtherTransaction { expected: self.tid, found: h.tid });
            return Ok(());
        }
        match h.kind {
            BlockKind::Descriptor => self.descriptor(at, h.tid),
            BlockKind::Revoke => self.revoke(at, h.tid),
            BlockKind::Commit => self.commit(at, h.tid),
            BlockKind::Other(BLOCK_TYPE) => self.transaction(at),
            kind => {
                if live {
                    self.end(at, End::OtherKind(kind.code()));
                }
                Ok(())
            }
        }
    }

    fn transaction(&mut self, at: LogBlock) -> Result<(), Error> {
        let Some((head, whole, records)) = self.log.look_at_run(&mut self.window, at)? else {
            if self.scope == Scope::Live {
                self.end(at, End::BadHead);
            }
            return Ok(());
        };
        self.ready.push_back(LogItem::Transaction { at, head, whole, records });
        if !whole {
            if self.scope == Scope::Live {
                self.end(at, End::BadRun);
            }
            return Ok(());
        }
        for _ in 1..head.blocks {
            self.advance();
        }
        self.tid = head.tid.next();
        Ok(())
    }

    fn descriptor(&mut self, at: LogBlock, tid: Tid) -> Result<(), Error> {
        let f = self.log.format();
        let block = self.window.block(at)?;
        let checksum_matches = f.tail_matches(block);
        let tags: Vec<Tag> = Tags::new(f, block).collect();
        let mut images = Vec::with_capacity(tags.len());
        for tag in tags {
            let Some(at) = self.advance() else { break };
            let checksum_matches = match tag.checksum {
                TagChecksum::None => None,
                sum => Some(self.window.block(at).is_ok_and(|b| f.tag_checksum(tid, b) == sum)),
            };
            images.push(LoggedImage { at, tag, checksum_matches });
        }
        self.ready.push_back(LogItem::Descriptor { at, tid, checksum_matches, images });
        Ok(())
    }

    fn revoke(&mut self, at: LogBlock, tid: Tid) -> Result<(), Error> {
        let f = self.log.format();
        let block = self.window.block(at)?;
        let (checksum_matches, blocks) = (f.tail_matches(block), Revokes::new(f, block).ok().map(Iterator::collect));
        self.ready.push_back(LogItem::Revoke { at, tid, checksum_matches, blocks });
        Ok(())
    }

    fn commit(&mut self, at: LogBlock, tid: Tid) -> Result<(), Error> {
        let f = self.log.format();
        let block = self.window.block(at)?;
        let commit = Commit::decode(block)?;
        let sealed = !matches!(f.checksums, Checksums::None | Checksums::V1);
        let checksum_matches = sealed.then(|| f.commit_matches(block));
        self.ready.push_back(LogItem::Commit { at, commit, checksum_matches });
        self.tid = tid.next();
        Ok(())
    }

    fn fast_commit_step(&mut self, at: LogBlock) -> Result<(), Error> {
        if at.0 >= self.log.superblock().len() {
            self.state = State::Done;
            return Ok(());
        }
        self.state = State::FastCommits(at.plus(1));
        // What an unused block holds is not a record.
        let records = FastCommits::new(self.window.block(at)?).map_while(Result::ok);
        let shown = records.filter(|r| r.body != FastCommit::Pad);
        self.ready.extend(shown.map(|r| LogItem::FastCommit { at, what: describe(&r.body) }));
        Ok(())
    }
}

impl Iterator for LogDump<'_> {
    type Item = Result<LogItem, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Some(Ok(item));
            }
            let step = match self.state {
                State::Log => self.log_step(),
                State::FastCommits(at) => self.fast_commit_step(at),
                State::Done => return None,
            };
            if let Err(e) = step {
                self.state = State::Done;
                return Some(Err(e));
            }
        }
    }
}

fn describe(r: &FastCommit<'_>) -> String {
    let named = |what: &str, parent: &dyn fmt::Display, ino: &dyn fmt::Display, name: &[u8]| {
        format!("{what} \"{}\" in {parent}: {ino}", name.escape_ascii())
    };
    match r {
        FastCommit::AddRange { ino, .. } => format!("add range to {ino}"),
        FastCommit::DelRange { ino, start, count } => format!("delete {count} blocks of {ino} from {start}"),
        FastCommit::Create { parent, ino, name } => named("create", parent, ino, name),
        FastCommit::Link { parent, ino, name } => named("link", parent, ino, name),
        FastCommit::Unlink { parent, ino, name } => named("unlink", parent, ino, name),
        FastCommit::Inode { ino, raw } => format!("{ino}, {} bytes", raw.len()),
        FastCommit::Pad => "padding".into(),
        FastCommit::Tail { tid, crc } => format!("tail, {tid}, checksum {crc:#010x}"),
        FastCommit::Head { features, tid } => format!("head, {tid}, features {features:#x}"),
    }
}

/// A mark for what does not match.
fn verdict(matches: bool) -> &'static str {
    if matches { "" } else { " BAD CHECKSUM" }
}

impl fmt::Display for LogItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogItem::Superblock(sb) => show_superblock(f, sb),
            LogItem::Descriptor { at, tid, checksum_matches, images } => {
                write!(f, "{at}: descriptor, {tid}, {} images{}", images.len(), verdict(*checksum_matches))?;
                for i in images {
                    let escaped = if i.tag.escaped { ", escaped" } else { "" };
                    let verdict = verdict(i.checksum_matches != Some(false));
                    write!(f, "\n  {}: image of {}, flags {:#x}{escaped}{verdict}", i.at, i.tag.block, i.tag.flags)?;
                }
                Ok(())
            }
            LogItem::Revoke { at, tid, checksum_matches, blocks } => {
                write!(f, "{at}: revoke, {tid}{}", verdict(*checksum_matches))?;
                let Some(blocks) = blocks else { return write!(f, " BAD COUNT") };
                blocks.iter().try_for_each(|b| write!(f, "\n  {b}"))
            }
            LogItem::Commit { at, commit: c, checksum_matches } => {
                let verdict = verdict(*checksum_matches != Some(false));
                write!(f, "{at}: commit, {}, time {}.{:09}{verdict}", c.tid, c.seconds, c.nanoseconds)
            }
            LogItem::Transaction { at, head, whole, records } => {
                write!(f, "{at}: ")?;
                show_transaction(f, head, *whole, records.as_deref())
            }
            LogItem::FastCommit { at, what } => write!(f, "{at}: fast commit: {what}"),
            LogItem::End { at, why } => write!(f, "{at}: end of the log: {why}"),
        }
    }
}

fn show_superblock(f: &mut fmt::Formatter<'_>, sb: &JournalSuperblock) -> fmt::Result {
    let (version, len, bytes) = (sb.version(), sb.len(), sb.block_size().bytes());
    write!(f, "superblock v{version}: {len} blocks of {bytes} bytes, log from {}", sb.first())?;
    write!(f, ", next {}", sb.sequence())?;
    match sb.start() {
        Some(at) => write!(f, " at {at}")?,
        None => write!(f, ", empty")?,
    }
    if sb.errno() != 0 {
        write!(f, ", error {}", sb.errno())?;
    }
    if sb.fc_blocks() > 0 {
        write!(f, ", {} fast-commit blocks", sb.fc_blocks())?;
    }
    if let Ok(Some(q)) = sb.quire() {
        write!(f, ", Quire's log version {}, features {:#x}, epoch {}", q.version, q.incompat, q.epoch)?;
        if let Some(n) = q.longest() {
            write!(f, ", transactions of at most {n} blocks")?;
        }
    }
    write!(f, ", features: {}", sb.features().names().join(" "))
}

fn show_transaction(f: &mut fmt::Formatter<'_>, h: &Head, whole: bool, records: Option<&[Record]>) -> fmt::Result {
    write!(f, "transaction, {}, {} blocks, {} records, epoch {}", h.tid, h.blocks, h.records, h.epoch)?;
    write!(f, ", time {}.{:09}{}", h.seconds, h.nanoseconds, verdict(whole))?;
    let Some(records) = records else { return Ok(()) };
    records.iter().try_for_each(|r| match r.kind {
        Kind::Image => write!(f, "\n  image of {}", r.home),
        Kind::Ranges => write!(f, "\n  {} ranges of {}", r.count, r.home),
        Kind::ZeroRanges => write!(f, "\n  {} ranges of {}, else zeros", r.count, r.home),
        Kind::Delta => write!(f, "\n  delta of {}, {} bytes", r.home, r.count),
        Kind::Revoke => write!(f, "\n  revoke of {} from {}", r.count, r.home),
    })?;
    if records.len() as u64 != u64::from(h.records) {
        write!(f, "\n  BAD RECORD")?;
    }
    Ok(())
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Empty => f.write_str("it is empty"),
            End::NoMagic => f.write_str("no magic"),
            End::OtherTransaction { expected, found } => write!(f, "{found}, not {expected}"),
            End::OtherKind(n) => write!(f, "block type {n}"),
            End::BadHead => f.write_str("a head that does not match its checksum"),
            End::BadRun => f.write_str("a transaction that is not whole"),
            End::AllSeen => f.write_str("all blocks seen"),
        }
    }
}
