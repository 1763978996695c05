//! The log on its device: where it begins and ends, its superblock, and writes into it.
//!
//! Guarantees: space is used again only after the superblock that frees it is durable (J7); the superblock says
//! that the log is not empty before the first transaction in it can be durable (J8); where the file system has fast
//! commits, their area is left alone (J14).
//!
//! ```text
//!        first          tail                       head              end
//! jsb |    | free ...    | oldest txn ... newest txn | free ...        |
//! jsb |    |             | oldest txn ... newest txn | free ...        | fast commits |       goes back when it is empty
//! ```

use crate::error::Error;
use crate::log_map::{LogMap, LogRun};
use crate::nvram::NvramLog;
use crate::run;
use quire_cache::Image;
use quire_device::sync::{Arc, Mutex, lock};
use quire_device::{Buf, FlushGate, Io, Mutant, Region};
use quire_layout::checksum::Known;
use quire_layout::jbd2::superblock::incompat;
use quire_layout::jbd2::{JournalFeatures, JournalSuperblock, LogFormat};
use quire_layout::qlog::{Signature, signature};
use quire_layout::{BlockSize, LogBlock, Tid};
use std::sync::OnceLock;
use std::time::Duration;

/// A log shorter than this cannot work: jbd2's own minimum.
pub const MIN_LOG_BLOCKS: u32 = 1024;

/// A log that holds nothing to recover, ready to be written.
pub struct Log {
    pub(crate) gate: Arc<FlushGate>,
    pub(crate) format: LogFormat,
    /// [`Log::known`].
    known: OnceLock<Known>,
    map: LogMap,
    /// Where the superblock is: log block 0, or behind the label of a device of its own.
    superblock_at: LogBlock,
    first: LogBlock,
    end: LogBlock,
    /// It goes on at `first` when it comes to `end`. False: it goes back there when it is empty.
    is_circular: bool,
    /// For a log of Quire's: the features that its records need.
    quire: Option<u32>,
    /// The memory that holds the transactions, if they are not here.
    nvram: Option<NvramLog>,
    position: Mutex<Position>,
    superblock: Mutex<Super>,
}

/// What is used. Guarded by its own lock, a leaf.
#[derive(Clone, Copy, Debug)]
struct Position {
    /// Next block to write.
    head: LogBlock,
    /// Oldest block that is still needed.
    tail: LogBlock,
    /// Blocks from tail to head.
    used: u32,
    /// Flush epoch of the next transaction.
    epoch: u64,
}

/// The journal's superblock as it is on disk; its lock is held while it is written.
struct Super {
    sb: JournalSuperblock,
    /// The whole block, for devices whose sector is larger than the superblock.
    block: Buf,
    /// The newest transaction that takes more than the usual bound.
    long: Option<Tid>,
}

impl Super {
    /// Changes the bound of a log of Quire's, in memory. True if it is another now.
    fn set_longest(&mut self, f: impl FnOnce(u32) -> u32) -> bool {
        let Ok(Some(signature)) = self.sb.quire() else { return false };
        let bound = f(signature.longest);
        self.sb.set_quire(Some(&signature.with_longest(bound)));
        bound != signature.longest
    }
}

impl Log {
    /// Takes over a recovered, empty log. `block` is the whole block `superblock_at` that holds its superblock.
    /// Sets the features that our logs have (64bit if `wide`), in memory; they reach the disk with the first write.
    ///
    /// # Errors
    /// The log is not empty, too small, of another block size, or longer than its map.
    pub fn open(
        gate: Arc<FlushGate>,
        map: LogMap,
        superblock_at: LogBlock,
        block: &[u8],
        block_size: BlockSize,
        wide: bool,
    ) -> Result<Self, Error> {
        let bad = |why| Error::Corrupt(quire_layout::Corrupt::new(quire_layout::Structure::JournalSuperblock, why));
        let mut sb = JournalSuperblock::decode(block)?;
        sb.log_format()?;
        if sb.start().is_some() {
            return Err(bad("the log has not been recovered"));
        }
        if sb.block_size() != block_size {
            return Err(bad("block size is not the file system's"));
        }
        if sb.len() > map.len() {
            return Err(bad("longer than its inode or device"));
        }
        sb.set_our_features(wide);
        check_len(&sb)?;
        let (first, end) = (sb.first(), sb.end());
        let format = sb.log_format()?;
        let position = Position { head: first, tail: first, used: 0, epoch: 0 };
        let block = Buf::copy_of(block);
        Ok(Log {
            gate,
            format,
            known: OnceLock::new(),
            map,
            superblock_at,
            first,
            end,
            is_circular: true,
            quire: None,
            nvram: None,
            position: Mutex::new(position),
            superblock: Mutex::new(Super { sb, block, long: None }),
        })
    }

    /// Makes it a log of Quire's, whose records need these features of its signature; they reach the disk with the
    /// first write.
    pub(crate) fn set_quire(&mut self, incompat: u32) {
        self.quire = Some(incompat);
    }

    /// Puts the transactions into a memory; the superblock here names it while it holds any.
    pub fn set_nvram(&mut self, nvram: NvramLog) {
        self.nvram = Some(nvram);
    }

    /// Leaves the area of fast commits alone, because the file system has them: a kernel that mounts it takes the last
    /// blocks of the journal for them, and writes on at the head that it finds (J14). Whoever replays the log learns of
    /// no such area, since the journal's superblock has the feature only while the kernel writes: a reader goes on at
    /// the first block when it comes to the journal's last. So the log does not go round. A journal without room for
    /// both is used whole, because no kernel mounts that file system.
    pub fn spare_fast_commits(&mut self) {
        let Some(area) = fast_commit_area(&lock(&self.superblock).sb) else { return };
        self.end = area;
        self.is_circular = false;
    }

    /// For checksums of whole blocks; made when a log of Quire's first needs it.
    pub(crate) fn known(&self) -> &Known {
        self.known.get_or_init(|| Known::of_len(self.format.block_size.bytes()))
    }

    /// True if the log lies on another device than the one with this gate.
    pub(crate) fn is_elsewhere(&self, gate: &Arc<FlushGate>) -> bool {
        !Arc::ptr_eq(&self.gate, gate)
    }

    /// The memory that holds the transactions.
    pub(crate) fn nvram(&self) -> Option<&NvramLog> {
        self.nvram.as_ref()
    }

    /// Blocks that transactions may take in all. One stays free, so that a full log is not an empty one.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.end.0 - self.first.0 - 1
    }

    /// Blocks that are free at the head now.
    pub(crate) fn free(&self) -> u32 {
        let p = *lock(&self.position);
        if self.is_circular || p.used == 0 { self.capacity() - p.used } else { self.end.0 - 1 - p.head.0 }
    }

    /// Blocks that a checkpoint has to free where `blocks` are needed at the head.
    pub(crate) fn to_free(&self, blocks: u32) -> u32 {
        if self.is_circular { blocks.saturating_sub(self.free()) } else { u32::MAX }
    }

    /// Blocks that hold transactions.
    pub(crate) fn used(&self) -> u32 {
        lock(&self.position).used
    }

    /// Flush epoch of the next transaction.
    pub(crate) fn epoch(&self) -> u64 {
        lock(&self.position).epoch
    }

    /// Blocks that a transaction of Quire's may take at most.
    pub(crate) fn longest_run(&self) -> u32 {
        run::longest(self.size())
    }

    fn size(&self) -> u32 {
        self.end.0 - self.first.0
    }

    /// The next transaction this log expects.
    pub(crate) fn sequence(&self) -> Tid {
        lock(&self.superblock).sb.sequence()
    }

    /// Where `len` blocks from the head lie: one piece, or more where the log wraps or is fragmented.
    pub(crate) fn at_head(&self, skip: u32, len: u32) -> Vec<LogRun> {
        let p = *lock(&self.position);
        let start = self.advance(p.head, skip);
        let before_wrap = (self.end.0 - start.0).min(len);
        let mut pieces = self.map.pieces(start, before_wrap);
        if before_wrap < len {
            pieces.extend(self.map.pieces(self.first, len - before_wrap));
        }
        pieces
    }

    fn advance(&self, b: LogBlock, n: u32) -> LogBlock {
        let size = self.size();
        LogBlock(self.first.0 + (b.0 - self.first.0 + n) % size)
    }

    /// Writes blocks at `skip` blocks past the head, complete on return.
    pub(crate) fn write(&self, skip: u32, blocks: &[Image], fua: bool) -> Result<(), Error> {
        let mut rest = blocks;
        let mut batch = Vec::new();
        for piece in self.at_head(skip, u32::try_from(blocks.len()).expect("bounded by the log")) {
            let (now, later) = rest.split_at(usize::try_from(piece.len).expect("small"));
            let at = self.format.block_size.offset(piece.home);
            batch.push(Io::Write { at, data: now.to_vec(), region: Region::Log, fua });
            rest = later;
        }
        self.gate.device().run(batch)?;
        Ok(())
    }

    /// A transaction of `blocks` log blocks is durable; the head moves.
    pub(crate) fn took(&self, blocks: u32) {
        let mut p = lock(&self.position);
        p.head = self.advance(p.head, blocks);
        p.used += blocks;
        p.epoch += 1;
        assert!(p.used <= self.capacity(), "the log was checked for room");
    }

    /// Before the first transaction in an empty log: the superblock says where it begins (J8). Complete on return; the
    /// flush before the commit block makes it durable. For a log of Quire's it says that, too, and is durable on
    /// return: whoever meets a record of ours has been warned (Q8). Epochs begin at `now`, later than those of any
    /// earlier use of the log. A log that does not go round begins at its first block again.
    pub(crate) fn open_at_head(&self, tid: Tid, now: Duration) -> Result<(), Error> {
        let (head, used) = {
            let mut p = lock(&self.position);
            if !self.is_circular && p.used == 0 {
                (p.head, p.tail) = (self.first, self.first);
            }
            (p.head, p.used)
        };
        let mut s = lock(&self.superblock);
        let before = s.sb.start();
        if used > 0 || before.is_some_and(|start| self.is_circular || start == head) {
            return Ok(());
        }
        s.sb.set_start(Some(head));
        s.sb.set_sequence(tid);
        if before.is_some() {
            // Its signature stands.
            return self.write_superblock(&mut s, self.quire.is_some());
        }
        let Some(incompat) = self.quire else { return self.write_superblock(&mut s, false) };
        if let Some(nvram) = &self.nvram {
            // The label first: a reader of the superblock finds the label that it names (V5).
            nvram.begin(tid, now);
            let (uuid, epoch) = nvram.identity();
            let here = Signature::new(self.format.block_size, incompat | signature::incompat::NVRAM, epoch);
            s.sb.set_quire(Some(&Signature { nvram: uuid, ..here }));
            return self.write_superblock(&mut s, true);
        }
        let epoch = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX >> 1).max(1);
        let signature = Signature::new(self.format.block_size, incompat, epoch).with_longest(run::usual(self.size()));
        s.sb.set_quire(Some(&signature));
        s.long = None;
        lock(&self.position).epoch = epoch;
        self.write_superblock(&mut s, true)
    }

    /// Before transaction `tid` of Quire's, which takes `blocks` blocks, is written: the superblock allows for it,
    /// durably (Q10).
    pub(crate) fn allow(&self, tid: Tid, blocks: u32) -> Result<(), Error> {
        if blocks <= run::usual(self.size()) {
            return Ok(());
        }
        let mut s = lock(&self.superblock);
        s.long = Some(tid);
        if !s.set_longest(|bound| bound.max(run::bound_for(blocks, self.size()))) || Mutant::BoundForgotten.is_on() {
            return Ok(());
        }
        self.write_superblock(&mut s, true)
    }

    /// The records of `blocks` blocks from the tail are needed no more, transaction `oldest` is the next one.
    /// Durable on return; only then is the space free (J7).
    pub(crate) fn free_tail(&self, blocks: u32, oldest: Tid) -> Result<(), Error> {
        let new_tail = {
            let p = lock(&self.position);
            self.advance(p.tail, blocks)
        };
        let mut s = lock(&self.superblock);
        s.sb.set_start(Some(new_tail));
        s.sb.set_sequence(oldest);
        // Of those that remain, and those on their way, none is long.
        if s.long.is_some_and(|long| !long.at_or_after(oldest)) {
            s.long = None;
            s.set_longest(|_| run::usual(self.size()));
        }
        self.write_superblock(&mut s, true)?;
        drop(s);
        let mut p = lock(&self.position);
        p.tail = new_tail;
        p.used -= blocks;
        Ok(())
    }

    /// The transactions in NVRAM before `oldest` are at home: complete on return; the flush that makes the homes
    /// durable makes this so, before the tail there moves (V7).
    pub(crate) fn note_oldest(&self, oldest: Tid) -> Result<(), Error> {
        let mut s = lock(&self.superblock);
        s.sb.set_sequence(oldest);
        self.write_superblock(&mut s, false)
    }

    /// Everything is at home: the superblock says that the log is empty, and is jbd2's again. Durable on return.
    pub(crate) fn set_empty(&self, next: Tid) -> Result<(), Error> {
        let head = {
            let mut p = lock(&self.position);
            p.tail = p.head;
            p.used = 0;
            p.head
        };
        let mut s = lock(&self.superblock);
        s.sb.set_start(None);
        s.sb.set_sequence(next);
        s.sb.set_head(head);
        s.sb.set_quire(None);
        self.write_superblock(&mut s, true)
    }

    /// Notes that the journal was aborted; it stays until a file-system check.
    pub(crate) fn set_errno(&self, errno: i32) -> Result<(), Error> {
        let mut s = lock(&self.superblock);
        s.sb.set_errno(-errno);
        self.write_superblock(&mut s, true)
    }

    /// The sequence fields and the checksum share one 512-byte sector: the write is atomic.
    fn write_superblock(&self, s: &mut Super, fua: bool) -> Result<(), Error> {
        s.sb.seal();
        s.block[..s.sb.bytes().len()].copy_from_slice(s.sb.bytes());
        let at = self.format.block_size.offset(self.map.home(self.superblock_at));
        let data = vec![Arc::new(s.block.clone())];
        self.gate.device().run(vec![Io::Write { at, data, region: Region::LogSuperblock, fua }])?;
        Ok(())
    }
}

/// Refuses a journal whose log would be too short to work with.
pub(crate) fn check_len(sb: &JournalSuperblock) -> Result<(), Error> {
    let is_too_small = sb.len() - sb.first().0 < MIN_LOG_BLOCKS / 2;
    if is_too_small { Err(Error::TooSmall { blocks: sb.len() }) } else { Ok(()) }
}

/// Where the kernel has fast commits in this journal, in a file system with the feature. `None`: it has no room for
/// them beside a log (`jbd2_journal_initialize_fast_commit`).
fn fast_commit_area(sb: &JournalSuperblock) -> Option<LogBlock> {
    let mut with = sb.clone();
    let f = sb.features();
    with.set_features(JournalFeatures { incompat: f.incompat | incompat::FAST_COMMIT, ..f });
    Some(with.end()).filter(|area| area.0 >= MIN_LOG_BLOCKS && area.0 > sb.first().0)
}
