//! The first two passes over a log of Quire's: which transactions are whole, and of each home block the records that
//! its image needs.
//!
//! | seen where transaction n is expected | then |
//! |---|---|
//! | its head, and the run matches its checksum | its records count |
//! | its head, of a run that is longer than the superblock allows (Q10) | the log is damaged there, reported, and ends before n |
//! | anything else, and no head of a later transaction within the longest run | the log ends: n was torn off (Q2) |
//! | anything else, and such a head | n was durable once: the log is damaged there, reported, and ends before n |
//!
//! That a later head proves damage follows from commits being serial (J6): n+1 is written when n's flush has returned.
//! No block but a transaction's first begins with the magic (Q1), so a head that matches is one, wherever it stands.
//! How long the longest run is stands in the signature, durably before a longer one is written; where it does not, it
//! is a third of the log. Revokes are applied as they come: a record that is revoked, or that a later one which stands
//! alone makes needless, is dropped at once (R4).

use super::progress::{Phase, Progress};
use super::unrecovered::UnrecoveredLog;
use crate::error::Error;
use crate::geometry::LogWindow;
use crate::policy::MAX_BODIES_IN_MEMORY;
use quire_device::Mutant;
use quire_layout::qlog::ranges::{ENTRY, decode_table};
use quire_layout::qlog::{Head, Kind, RECORD, Record, Signature, pack};
use quire_layout::{BlockNo, BlockSize, Corrupt, LogBlock, Structure, Tid};
use std::collections::BTreeMap;

/// Where a run's blocks are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RunAt {
    /// Its first block.
    pub start: LogBlock,
    pub tid: Tid,
    /// Its first block that is a whole image.
    pub images: u32,
}

/// A record that counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Logged {
    pub run: RunAt,
    pub record: Record,
    /// Its body: the first packed byte; of a whole image, the block of the run.
    pub at: u32,
    /// Bytes of the body, its table included.
    pub len: u32,
}

/// The records of one block that its image needs, oldest first. Never empty.
pub(super) type Chain = Vec<Logged>;

/// Bodies of records as the scan has read them: for those the log is read once. By run and place.
#[derive(Default)]
pub(super) struct Bodies {
    bodies: BTreeMap<(LogBlock, u32), Vec<u8>>,
    bytes: usize,
}

impl Bodies {
    fn has_room(&self, len: usize) -> bool {
        self.bytes + len <= MAX_BODIES_IN_MEMORY
    }

    fn keep(&mut self, l: &Logged, body: Vec<u8>) {
        self.bytes += body.len();
        self.bodies.insert((l.run.start, l.at), body);
    }

    pub(super) fn get(&self, l: &Logged) -> Option<&[u8]> {
        self.bodies.get(&(l.run.start, l.at)).map(Vec::as_slice)
    }
}

/// What the scan found.
pub(super) struct FoundRuns {
    pub start: Tid,
    /// The first transaction that is not replayed.
    pub end: Tid,
    /// The last number that the log may hold.
    pub last_used: Tid,
    /// One past the last transaction.
    pub head: LogBlock,
    pub transactions: u32,
    pub chains: BTreeMap<BlockNo, Chain>,
    pub bodies: Bodies,
    pub logged: u64,
    pub revokes: u64,
    pub revoked: u64,
    /// A transaction that was durable once and is damaged.
    pub failed: Option<Tid>,
    /// Of a log in NVRAM: the position behind the last transaction.
    pub nvram_end: Option<u64>,
}

impl FoundRuns {
    pub(super) fn new(first: Tid, at: LogBlock) -> Self {
        FoundRuns {
            start: first,
            end: first,
            last_used: first,
            head: at,
            transactions: 0,
            chains: BTreeMap::new(),
            bodies: Bodies::default(),
            logged: 0,
            revokes: 0,
            revoked: 0,
            failed: None,
            nvram_end: None,
        }
    }
}

/// Records of these blocks, in the transaction that says so and earlier, are void.
pub(super) fn revoke(found: &mut FoundRuns, r: &Record) {
    found.revokes += 1;
    let range = r.home..r.home.plus(u64::from(r.count));
    let gone: Vec<BlockNo> = found.chains.range(range).map(|(b, _)| *b).collect();
    found.revoked += gone.len() as u64;
    for b in gone {
        found.chains.remove(&b);
    }
}

pub(super) struct RunScan<'a> {
    log: &'a UnrecoveredLog,
    window: LogWindow<'a>,
    at: LogBlock,
    /// Blocks of whole transactions so far: never more than the log has.
    visited: u32,
    /// No transaction has a lower epoch.
    epoch: u64,
    /// Blocks of the longest run.
    longest: u32,
    found: FoundRuns,
}

impl<'a> RunScan<'a> {
    pub(super) fn new(log: &'a UnrecoveredLog, start: LogBlock, signature: &Signature) -> Self {
        let most = crate::run::longest(log.superblock.end().0 - log.superblock.first().0);
        let tid = log.superblock.sequence();
        RunScan {
            log,
            window: LogWindow::new(&log.geometry, log.superblock.end()),
            at: start,
            visited: 0,
            epoch: signature.epoch,
            longest: signature.longest().unwrap_or(most).min(most),
            found: FoundRuns::new(tid, start),
        }
    }

    /// Scans the log; also returns the window, which holds a small log whole.
    pub(super) fn run(mut self, progress: &mut dyn FnMut(Progress)) -> Result<(FoundRuns, LogWindow<'a>), Error> {
        let total = u64::from(self.size());
        let mut told = 0;
        while let Some(head) = self.whole_run()? {
            self.take_in(&head)?;
            if self.visited - told >= 4096 {
                told = self.visited;
                progress(Progress { phase: Phase::Scan, done: u64::from(told), total });
            }
        }
        self.look_behind()?;
        progress(Progress { phase: Phase::Scan, done: total, total });
        Ok((self.found, self.window))
    }

    fn size(&self) -> u32 {
        self.log.superblock.end().0 - self.log.superblock.first().0
    }

    /// The head of the next transaction, if its run is whole.
    fn whole_run(&mut self) -> Result<Option<Head>, Error> {
        let left = self.size() - self.visited;
        if left == 0 {
            return Ok(None);
        }
        let (seed, bs) = (self.log.format.seed, self.log.format.block_size);
        let block = self.window.block(self.at)?;
        let Some((head, mut sum)) = Head::decode(seed, bs, block) else { return Ok(None) };
        if head.tid != self.found.end || head.epoch < self.epoch || head.blocks > left {
            return Ok(None);
        }
        if head.blocks > self.longest {
            self.found.failed = Some(self.found.end);
            return Ok(None);
        }
        sum.feed_first(block);
        for n in 1..head.blocks {
            sum.feed(self.window.block(self.log.nth(self.at, n))?);
        }
        Ok((sum.matches() || Mutant::RunSumIgnored.is_on()).then_some(head))
    }

    /// Reads the records of a run that is whole.
    fn take_in(&mut self, head: &Head) -> Result<(), Error> {
        let bs = self.log.format.block_size;
        let run = RunAt { start: self.at, tid: head.tid, images: pack::blocks_for(bs, head.packed) };
        let bad =
            |why| Error::from(self.log.geometry.locate_error(Corrupt::new(Structure::JournalBlock, why), run.start));
        let mut packed = Packed { log: self.log, run, end: head.packed, at: 0 };
        let mut images = 0;
        let mut revokes = Vec::new();
        for _ in 0..head.records {
            let bytes = packed.take(&mut self.window, RECORD)?.ok_or_else(|| bad("a record leaves its transaction"))?;
            let record = Record::decode(bs, bytes[..].try_into().expect("asked for"))
                .ok_or_else(|| bad("a record that makes no sense"))?;
            if record.kind == Kind::Revoke {
                revokes.push(record);
                continue;
            }
            let logged = if record.kind == Kind::Image {
                images += 1;
                Logged { run, record, at: run.images + images - 1, len: 0 }
            } else {
                let at = packed.at;
                let len = body_len(bs, &record, &mut packed, &mut self.window)?;
                let len = len.ok_or_else(|| bad("a record's body makes no sense"))?;
                let logged = Logged { run, record, at, len };
                let bytes = usize::try_from(len).expect("32 bits");
                if self.found.bodies.has_room(bytes) {
                    self.found.bodies.keep(&logged, self.log.gather(&mut self.window, run, at, bytes)?);
                }
                logged
            };
            self.found.logged += 1;
            let chain = self.found.chains.entry(record.home).or_default();
            if record.kind.is_self_contained() {
                chain.clear();
            }
            chain.push(logged);
        }
        if images != head.images || packed.at != head.packed {
            return Err(bad("a transaction's records do not fill it"));
        }
        revokes.iter().for_each(|r| revoke(&mut self.found, r));
        self.accept(head);
        Ok(())
    }

    fn accept(&mut self, head: &Head) {
        self.visited += head.blocks;
        self.at = self.log.nth(self.at, head.blocks);
        self.epoch = head.epoch + 1;
        self.found.end = head.tid.next();
        self.found.last_used = self.found.end;
        self.found.head = self.at;
        self.found.transactions += 1;
    }

    /// Behind the last whole transaction: a tear, or damage?
    fn look_behind(&mut self) -> Result<(), Error> {
        let left = self.size() - self.visited;
        let long = self.found.failed.is_some();
        if !long && self.latest(left.min(self.longest + 1))?.is_none() {
            return Ok(());
        }
        self.found.failed = Some(self.found.end);
        // All numbers that stand in the log are used (R10).
        if let Some(latest) = self.latest(left)? {
            self.found.last_used = latest;
        }
        Ok(())
    }

    /// The highest number of a later transaction whose head stands in the next `count` blocks.
    fn latest(&mut self, count: u32) -> Result<Option<Tid>, Error> {
        let (seed, bs) = (self.log.format.seed, self.log.format.block_size);
        let mut latest = None;
        let end = self.log.superblock.end();
        self.window.end_at(LogBlock(self.at.0.saturating_add(count)).min(end));
        for n in 0..count {
            let block = self.window.block(self.log.nth(self.at, n))?;
            let Some((head, _)) = Head::decode(seed, bs, block) else { continue };
            if head.tid.after(self.found.end) && head.epoch >= self.epoch {
                latest = Some(latest.filter(|l: &Tid| l.after(head.tid)).unwrap_or(head.tid));
            }
        }
        self.window.end_at(end);
        Ok(latest)
    }
}

/// The length of a record's body, which is skipped. `None`: it makes no sense.
fn body_len(
    bs: BlockSize,
    record: &Record,
    packed: &mut Packed<'_>,
    window: &mut LogWindow<'_>,
) -> Result<Option<u32>, Error> {
    let from = packed.at;
    let bytes = match record.kind {
        Kind::Ranges | Kind::ZeroRanges => {
            let Some(table) = packed.take(window, usize::from(record.count) * ENTRY)? else { return Ok(None) };
            let Some(ranges) = decode_table(bs, &table, record.count) else { return Ok(None) };
            ranges.iter().map(std::iter::ExactSizeIterator::len).sum()
        }
        _ => usize::from(record.count),
    };
    Ok(packed.skip(bytes).map(|at| at - from))
}

/// Reads packed bytes of a run, in order.
struct Packed<'a> {
    log: &'a UnrecoveredLog,
    run: RunAt,
    end: u32,
    at: u32,
}

impl Packed<'_> {
    fn skip(&mut self, len: usize) -> Option<u32> {
        let end = self.at.checked_add(u32::try_from(len).ok()?).filter(|end| *end <= self.end)?;
        self.at = end;
        Some(end)
    }

    fn take(&mut self, window: &mut LogWindow<'_>, len: usize) -> Result<Option<Vec<u8>>, Error> {
        let from = self.at;
        match self.skip(len) {
            Some(_) => self.log.gather(window, self.run, from, len).map(Some),
            None => Ok(None),
        }
    }
}

/// A transaction's head, whether its run is whole, and if so its records as far as they make sense.
pub(crate) type Look = (Head, bool, Option<Vec<Record>>);

impl UnrecoveredLog {
    /// What stands at a block of a log of Quire's, for people. `None`: no head that matches.
    pub(crate) fn look_at_run(&self, window: &mut LogWindow<'_>, at: LogBlock) -> Result<Option<Look>, Error> {
        let (seed, bs) = (self.format.seed, self.format.block_size);
        let block = window.block(at)?;
        let Some((head, mut sum)) = Head::decode(seed, bs, block) else { return Ok(None) };
        if head.blocks > self.superblock.end().0 - self.superblock.first().0 {
            return Ok(Some((head, false, None)));
        }
        sum.feed_first(block);
        for n in 1..head.blocks {
            sum.feed(window.block(self.nth(at, n))?);
        }
        if !sum.matches() {
            return Ok(Some((head, false, None)));
        }
        let run = RunAt { start: at, tid: head.tid, images: pack::blocks_for(bs, head.packed) };
        let mut packed = Packed { log: self, run, end: head.packed, at: 0 };
        let mut records = Vec::new();
        for _ in 0..head.records {
            let Some(bytes) = packed.take(window, RECORD)? else { break };
            let Some(record) = Record::decode(bs, bytes[..].try_into().expect("asked for")) else { break };
            let has_body = !matches!(record.kind, Kind::Image | Kind::Revoke);
            if has_body && body_len(bs, &record, &mut packed, window)?.is_none() {
                break;
            }
            records.push(record);
        }
        Ok(Some((head, true, Some(records))))
    }

    /// The log block `n` blocks after `from`.
    pub(super) fn nth(&self, from: LogBlock, n: u32) -> LogBlock {
        let (first, end) = (self.superblock.first().0, self.superblock.end().0);
        let offset = u64::from(from.0 - first) + u64::from(n);
        LogBlock(first + u32::try_from(offset % u64::from(end - first)).expect("less than the log"))
    }

    /// `len` packed bytes of a run, from byte `at` on.
    pub(super) fn gather(&self, window: &mut LogWindow<'_>, run: RunAt, at: u32, len: usize) -> Result<Vec<u8>, Error> {
        let bs = self.format.block_size;
        let mut out = Vec::with_capacity(len);
        while out.len() < len {
            let at = usize::try_from(at).expect("32 bits") + out.len();
            let (block, offset) = pack::place(bs, at);
            let bytes = window.block(self.nth(run.start, u32::try_from(block).expect("a block of the run")))?;
            let now = (len - out.len()).min(bytes.len() - offset);
            out.extend_from_slice(&bytes[offset..offset + now]);
        }
        Ok(out)
    }
}
