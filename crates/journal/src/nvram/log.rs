//! A log in NVRAM: transactions are stored and fenced, not written and flushed (docs/format.md, "Quire's NVRAM log").
//!
//! Guarantees:
//! - V2: the commit word is stored when all that precedes it is fenced, and is fenced when a commit returns;
//! - V4: space is used again only after the label that frees it is durable; a transaction never spans regions;
//! - V5: the label names the file system, and the journal's superblock the label's UUID and use, before the first
//!   transaction: neither is taken for another's.
//!
//! ```text
//! positions ──────────────────────────────────────────────────────────────────────────────────────>
//!       | tail: oldest needed                     head: next transaction |
//!   [ region g, filled: going home ][ region g+1: transactions ... |     ][ free ]
//! ```
//! With `checkpoint=lazy` there is one region that goes round, and the tail moves by transactions.

use super::label::{is_blank, read_label, store_label};
use super::read::Walk;
use crate::choices::{Checkpoint, Format, LogChoices, Record};
use crate::error::{Error, NvramProblem};
use quire_cache::Image;
use quire_device::sync::{Arc, Mutex, lock};
use quire_device::{Mutant, Nvram};
use quire_layout::checksum::{Known, crc32c};
use quire_layout::jbd2::LogSeed;
use quire_layout::nvlog::{Head, LINE, Label, TxnSeed, commit_word, head, label};
use quire_layout::qlog;
use quire_layout::{BlockSize, Tid};
use std::collections::VecDeque;
use std::time::Duration;

/// Least blocks that the largest transaction must hold.
const LEAST_BLOCKS: usize = 32;

/// How a new log is laid out.
#[derive(Clone, Copy, Debug)]
pub struct NvramLayout {
    pub block_size: BlockSize,
    /// 1: one that goes round, reclaimed lazily.
    pub regions: u8,
    /// Descriptors and commits take whole blocks, as in a log on a disk.
    pub whole_blocks: bool,
    pub incompat: u32,
}

impl NvramLayout {
    /// How a log of these choices is laid out for file systems of such blocks. `None`: it is not in NVRAM.
    #[must_use]
    pub fn of(choices: LogChoices, block_size: BlockSize) -> Option<Self> {
        let incompat = choices.features().filter(|_| choices.format() == Format::Nvram)?;
        let regions = match choices.checkpoint {
            Checkpoint::Lazy | Checkpoint::Fsync => 1,
            Checkpoint::Regions(n) => n,
        };
        Some(NvramLayout { block_size, regions, whole_blocks: choices.record == Record::Block, incompat })
    }

    /// The label of an empty log that is laid out so in a memory of `size` bytes, after the label `old`.
    ///
    /// # Errors
    /// The memory is too small.
    fn label(self, size: u64, uuid: [u8; 16], fs_uuid: [u8; 16], old: Option<Label>) -> Result<Label, Error> {
        let label = Label {
            granule: if self.whole_blocks { u32::try_from(self.block_size.bytes()).expect("64 KiB") } else { LINE },
            incompat: self.incompat,
            uuid,
            fs_uuid,
            epoch: old.map_or(0, |l| l.epoch),
            sequence: old.map_or(0, |l| l.sequence),
            size: size.min(label::LARGEST),
            regions: u32::from(self.regions.max(1)),
            block_size: self.block_size,
            tail: 0,
            tid: Tid(0),
        };
        if most_blocks(&label) < LEAST_BLOCKS {
            return Err(NvramProblem::TooSmall { have: label.size, regions: label.regions }.into());
        }
        Ok(label)
    }
}

/// Bytes of the largest transaction.
fn longest(label: &Label) -> u64 {
    // Where the tail goes round, a transaction leaves most of the log to others.
    if label.regions > 1 { label.region_len() } else { label.region_len() / 4 }
}

/// Blocks that the largest transaction may hold.
fn most_blocks(label: &Label) -> usize {
    let in_bytes = |bytes: u64| {
        let each = label.block_size.bytes() + 64;
        usize::try_from(bytes.saturating_sub(4 * u64::from(label.granule) + 2048)).unwrap_or(usize::MAX) / each
    };
    let all = in_bytes(longest(label));
    // Half a region, so that little is left unused at its end; but not too few.
    if label.regions > 1 { in_bytes(longest(label) / 2).max(all.min(128)) } else { all }
}

/// The label of a memory that may be taken, and its slot; no label where nothing is. The log in the memory `replayed`
/// counts as empty.
fn free_label(
    memory: &dyn Nvram,
    fs_uuid: [u8; 16],
    replayed: Option<[u8; 16]>,
) -> Result<(Option<Label>, usize), Error> {
    match read_label(memory) {
        Ok((old, _)) if replayed != Some(old.uuid) && Walk::new(memory, old).holds_any() => {
            Err(NvramProblem::Needed { uuid: old.fs_uuid, same: old.fs_uuid == fs_uuid }.into())
        }
        Ok((old, slot)) => Ok((Some(old), slot)),
        Err(_) if is_blank(memory) => Ok((None, 1)),
        Err(_) => Err(NvramProblem::SomethingElse.into()),
    }
}

/// A log in NVRAM that holds nothing that any image needs, or what the running volume has put there.
pub struct NvramLog {
    memory: Arc<dyn Nvram>,
    pub(super) state: Mutex<State>,
}

/// A transaction in the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed {
    pub(super) tid: Tid,
    pub(super) start: u64,
    pub(super) end: u64,
}

impl Placed {
    /// Bytes that the transaction takes.
    pub(crate) fn len(self) -> u64 {
        self.end - self.start
    }
}

/// Guarded by its own lock, a leaf.
pub(super) struct State {
    pub(super) label: Label,
    /// The slot that holds it.
    slot: usize,
    /// Position of the next transaction.
    pub(super) head: u64,
    /// Oldest first.
    pub(super) placed: VecDeque<Placed>,
    stats: NvramLogStats,
}

/// Figures of a log in NVRAM since the mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NvramLogStats {
    /// Bytes of all regions, and how many they are.
    pub capacity: u64,
    pub regions: u64,
    /// Bytes from tail to head.
    pub used: u64,
    /// Bytes stored: labels, descriptors without the bodies of records, commits.
    pub metadata_bytes: u64,
    /// Bytes stored: whole images and the bodies of records.
    pub data_bytes: u64,
    /// Bytes of the deltas among them.
    pub delta_bytes: u64,
    /// Regions that were filled and left for the next.
    pub switches: u64,
    /// Commits that waited for a checkpoint, and how long, summed.
    pub stalls: u64,
    pub stalled: Duration,
    /// What the memory itself has counted.
    pub stores: u64,
    pub lines: u64,
    pub fences: u64,
}

impl NvramLog {
    /// Takes a memory for the log of a file system. Nothing is stored before the first transaction.
    ///
    /// # Errors
    /// It is too small, holds something else, or a log that some image needs.
    pub fn take(memory: Arc<dyn Nvram>, fs_uuid: [u8; 16], layout: NvramLayout) -> Result<Self, Error> {
        let (old, slot) = free_label(&*memory, fs_uuid, None)?;
        let uuid = old.map_or_else(|| memory.fresh_uuid(), |l| l.uuid);
        let label = layout.label(memory.size(), uuid, fs_uuid, old)?;
        let state = State { label, slot, head: 0, placed: VecDeque::new(), stats: NvramLogStats::default() };
        Ok(NvramLog { memory, state: Mutex::new(state) })
    }

    /// Whether [`NvramLog::take`] will find the memory fit when the log in the memory `replayed` has been replayed.
    /// Stores nothing.
    ///
    /// # Errors
    /// As [`NvramLog::take`].
    pub fn check_fit(
        memory: &dyn Nvram,
        fs_uuid: [u8; 16],
        layout: NvramLayout,
        replayed: Option<[u8; 16]>,
    ) -> Result<(), Error> {
        let (old, _) = free_label(memory, fs_uuid, replayed)?;
        layout.label(memory.size(), [0; 16], fs_uuid, old).map(drop)
    }

    /// # Errors
    /// The memory has lost bytes: what was stored counts for nothing.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.memory.is_lost() { Err(NvramProblem::Lost.into()) } else { Ok(()) }
    }

    pub(crate) fn label(&self) -> Label {
        lock(&self.state).label
    }

    /// What the journal's superblock in the image must name.
    pub(crate) fn identity(&self) -> ([u8; 16], u64) {
        let label = self.label();
        (label.uuid, label.epoch)
    }

    /// Bytes of the largest transaction.
    pub(crate) fn longest(&self) -> u64 {
        longest(&self.label())
    }

    /// Blocks that the largest transaction may hold.
    pub(crate) fn most_blocks(&self) -> usize {
        most_blocks(&self.label())
    }

    /// Begins a use of the log with transaction `tid`: durable on return. The journal's superblock names it next (V5).
    pub(crate) fn begin(&self, tid: Tid, now: Duration) {
        let mut s = lock(&self.state);
        s.head = 0;
        s.placed.clear();
        let epoch = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX >> 1).max(s.label.epoch + 1);
        let label = Label { epoch, tail: 0, tid, ..s.label };
        self.put_label(&mut s, label);
    }

    /// Everything before `tail`, whose transaction is `tid`, is at home and durable there. Durable on return: then the
    /// space is free (V4).
    pub(crate) fn free(&self, tail: u64, tid: Tid) {
        let mut s = lock(&self.state);
        while s.placed.front().is_some_and(|p| p.end <= tail) {
            s.placed.pop_front();
        }
        let label = Label { tail, tid, ..s.label };
        self.put_label(&mut s, label);
    }

    /// Writes the slot that is not the newest (V3).
    fn put_label(&self, s: &mut State, label: Label) {
        let slot = if Mutant::NvramLabelInPlace.is_on() { s.slot } else { 1 - s.slot };
        let label = Label { sequence: s.label.sequence + 1, ..label };
        store_label(&*self.memory, slot, &label);
        (s.label, s.slot) = (label, slot);
        s.stats.metadata_bytes += label::LEN as u64;
    }

    pub(crate) fn stats(&self) -> NvramLogStats {
        let s = lock(&self.state);
        let memory = self.memory.stats();
        NvramLogStats {
            capacity: s.label.capacity(),
            regions: s.label.regions.into(),
            used: s.head - s.label.tail.min(s.head),
            stores: memory.stores,
            lines: memory.lines,
            fences: memory.fences,
            ..s.stats
        }
    }

    /// Stores a transaction at the head and makes it durable. `descriptor` has space for the head, and whole granules.
    pub(crate) fn store(&self, mut descriptor: Vec<u8>, txn: Stored<'_>) -> Placed {
        let mut s = lock(&self.state);
        let (label, start) = (s.label, s.head);
        let head = txn.head(&label, start, &descriptor);
        let encoded = head.encode(TxnSeed::at(&label, start));
        descriptor[..encoded.len()].copy_from_slice(&encoded);
        let place = label.place(start);
        let payload = || self.store_payload(&label, place, &descriptor, place + head.images_at(label.granule), &txn);
        let commit = || {
            let word = commit_word(txn.tid, &encoded);
            self.store_commit(&label, place + head.commit_at(label.granule), &word);
        };
        // V2.
        if Mutant::NvramWordFirst.is_on() {
            commit();
            payload();
        } else {
            payload();
            commit();
        }
        let data = u64::from(head.images) * label.block_size.bytes64() + txn.bodies;
        s.stats.data_bytes += data;
        s.stats.metadata_bytes +=
            descriptor.len() as u64 - txn.bodies + if label.granule == LINE { 8 } else { u64::from(label.granule) };
        Placed { tid: txn.tid, start, end: start + u64::from(head.bytes) }
    }

    /// Stores and fences all of a transaction but its commit word.
    fn store_payload(&self, label: &Label, place: u64, descriptor: &[u8], images_at: u64, txn: &Stored<'_>) {
        self.memory.store(place, descriptor);
        for (n, (_, image)) in (0u64..).zip(txn.images) {
            self.memory.store(images_at + n * label.block_size.bytes64(), image);
        }
        if !Mutant::NvramFenceDropped.is_on() {
            self.memory.fence();
        }
    }

    /// Stores and fences the word that makes a transaction valid; of a log of whole blocks the rest of its block first.
    fn store_commit(&self, label: &Label, at: u64, word: &[u8]) {
        if label.granule != LINE {
            let rest = vec![0; label.block_size.bytes() - word.len()];
            self.memory.store(at + word.len() as u64, &rest);
        }
        self.memory.store(at, word);
        if !Mutant::NvramCommitUnfenced.is_on() {
            self.memory.fence();
        }
    }

    /// The transaction is live: the head moves.
    pub(crate) fn took(&self, placed: Placed) {
        let mut s = lock(&self.state);
        let region = s.label.region_len();
        s.stats.switches += u64::from(s.placed.back().is_some_and(|p| p.start / region != placed.start / region));
        s.head = placed.end;
        s.placed.push_back(placed);
    }

    /// Counts the bytes of deltas that were stored.
    pub(crate) fn count_deltas(&self, bytes: u64) {
        lock(&self.state).stats.delta_bytes += bytes;
    }

    /// Counts a commit that waited for a checkpoint.
    pub(crate) fn count_stall(&self, took: Duration) {
        let mut s = lock(&self.state);
        s.stats.stalls += 1;
        s.stats.stalled += took;
    }
}

/// What is stored besides the descriptor.
pub(crate) struct Stored<'a> {
    pub tid: Tid,
    pub packed: u32,
    pub records: u32,
    /// Bytes of the records' bodies.
    pub bodies: u64,
    pub images: &'a [(qlog::Record, Image)],
    /// Of the images' checksums.
    pub seed: LogSeed,
    pub known: &'a Known,
    pub now: Duration,
}

impl Stored<'_> {
    /// The head of the transaction at position `start`, whose records follow the space for it in `descriptor`.
    fn head(&self, label: &Label, start: u64, descriptor: &[u8]) -> Head {
        let sum = crc32c(TxnSeed::at(label, start).start(), &descriptor[head::LEN..]);
        let images = u32::try_from(self.images.len()).expect("bounded by the log");
        let bytes = Head::total(self.packed, images, label.block_size.bytes64(), label.granule);
        Head {
            tid: self.tid,
            position: start,
            bytes: u32::try_from(bytes).expect("a transaction is smaller than 4 GiB"),
            packed: self.packed,
            records: self.records,
            images,
            seconds: self.now.as_secs(),
            nanoseconds: self.now.subsec_nanos(),
            body: self.images.iter().fold(sum, |sum, (record, _)| record.carry(self.seed, self.known, sum)),
        }
    }
}
