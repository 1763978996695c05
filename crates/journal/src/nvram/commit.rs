//! A commit into NVRAM.
//!
//! ```text
//! leader: close ──> [room: next region, or stall] ──> (label, journal superblock: begins here)? ──> [flush for data in place]
//!         ──> bases ──> encode ──> store, fence, commit word, fence ──> live
//! ```
//! No thread is woken and no device is touched on the way, unless the transaction names data that was written in place
//! (Q5).

use super::{NvramLog, Placed, Stored};
use crate::core::InFlight;
use crate::error::Error;
use crate::journal::Journal;
use crate::log::Log;
use crate::run::Encoder;
use crate::style::Records;
use quire_device::Mutant;
use quire_device::sync::lock;
use quire_layout::nvlog::{Head, head};
use quire_layout::qlog::RECORD;
use quire_layout::{BlockSize, Tid};

/// Bytes that a transaction takes at most.
fn bytes_at_most(bs: BlockSize, granule: u32, images: usize, revokes: usize) -> u64 {
    // An image that begins with jbd2's magic is packed: a record, a table entry, its bytes.
    let packed = images * (bs.bytes() + RECORD + 8) + revokes * RECORD;
    Head::total(u32::try_from(packed).expect("a transaction is smaller than 4 GiB"), 0, bs.bytes64(), granule)
}

/// Where the next transaction fits.
enum Room {
    Here,
    /// At the beginning of the next region, at this position.
    Next(u64),
    /// Nowhere before a checkpoint.
    None,
}

impl Journal {
    /// Makes a closed transaction durable in NVRAM.
    pub(crate) fn write_nvram(
        &self,
        log: &Log,
        nvram: &NvramLog,
        txn: &InFlight,
        records: Records,
    ) -> Result<u32, Error> {
        let label = nvram.label();
        let most = bytes_at_most(label.block_size, label.granule, txn.blocks.len(), txn.revokes.len());
        if most > nvram.longest() {
            return Err(Error::TooLarge { blocks: txn.blocks.len(), limit: nvram.most_blocks() });
        }
        self.relieve_nvram(log, nvram, txn.tid)?;
        self.make_nvram_room(log, nvram, most, txn.tid)?;
        let now = self.config.clock.realtime();
        log.open_at_head(txn.tid, now)?;
        let mutant = Mutant::NoFlushBeforeCommit.is_on() || Mutant::CompletionIsDurable.is_on();
        let stamp = txn.after.filter(|e| !self.gate.is_durable(*e) && !mutant);
        if let Some(stamp) = stamp {
            self.gate.ensure(stamp)?;
        }
        let bases = lock(&self.core).choose_bases(txn, |e| self.gate.is_durable(e));
        let encoder =
            Encoder { block_size: label.block_size, known: log.known(), seed: log.format.seed, records, epoch: 0, now };
        let mut packed = encoder.pack(txn, &bases, head::LEN);
        drop(bases);
        let bytes = u32::try_from(packed.packed.len() - head::LEN).expect("bounded by the log");
        let whole = usize::try_from(Head::descriptor_len(bytes, label.granule)).expect("bounded by the log");
        packed.packed.resize(whole, 0);
        let bodies = u64::from(bytes) - u64::from(packed.records) * RECORD as u64;
        let (images, seed, known) = (&packed.images[..], log.format.seed, log.known());
        let stored = Stored { tid: txn.tid, packed: bytes, records: packed.records, bodies, images, seed, known, now };
        let placed = nvram.store(packed.packed, stored);
        assert!(placed.end - placed.start <= most, "a transaction that is larger than it can be");
        // First in the core: a checkpoint that passes it must know its images.
        lock(&self.core).committed(txn, 0, Some(&packed.alone));
        nvram.took(placed);
        lock(&nvram.state).figures.delta_bytes += packed.kinds.delta_bytes;
        lock(&self.counters).encoded(packed.kinds, stamp.is_some());
        Ok(0)
    }

    /// Makes room for `most` bytes at the head; the transaction `tid` goes there.
    fn make_nvram_room(&self, log: &Log, nvram: &NvramLog, most: u64, tid: Tid) -> Result<(), Error> {
        let mut stall = None;
        loop {
            match nvram.room(most) {
                Room::Here => break,
                Room::Next(at) => {
                    self.enter_region(nvram, at, tid);
                    break;
                }
                Room::None => {
                    stall.get_or_insert_with(|| self.config.clock.monotonic());
                    let moved = self.reclaim_nvram(log, nvram)?;
                    assert!(moved || !matches!(nvram.room(most), Room::None), "an empty log has room");
                }
            }
        }
        if let Some(since) = stall {
            let took = self.config.clock.monotonic().saturating_sub(since);
            let mut s = lock(&nvram.state);
            s.figures.stalls += 1;
            s.figures.stalled += took;
        }
        Ok(())
    }

    /// Goes on in the next region. Blocks are logged whole there first (V6); the one that is left goes home in the
    /// background.
    pub(super) fn enter_region(&self, nvram: &NvramLog, at: u64, tid: Tid) {
        let empty = {
            let mut s = lock(&nvram.state);
            s.head = at;
            s.placed.is_empty()
        };
        if empty && nvram.label().tid == tid {
            // Nothing is behind: the tail comes along.
            nvram.free(at, tid);
        }
        if nvram.label().regions > 1 {
            lock(&self.core).chain_from = Some(tid);
            self.wake();
        }
    }
}

impl NvramLog {
    fn room(&self, most: u64) -> Room {
        let s = lock(&self.state);
        let (region, end) = (s.label.region_len(), s.label.tail + s.label.capacity());
        let left = region - s.head % region;
        // A full region leaves the head at the start of the next, which may still be in use.
        let begins = s.head.is_multiple_of(region) && s.head > 0;
        if most <= left && !begins && s.head + most <= end {
            return Room::Here;
        }
        let next = s.head.next_multiple_of(region);
        // Regions are freed whole; one that goes round, by transactions.
        let need = if s.label.regions > 1 { region } else { most };
        if next + need <= end { Room::Next(next) } else { Room::None }
    }

    /// The position at which the next region begins, if it is free and the current one holds something.
    pub(super) fn next_region(&self) -> Option<u64> {
        let s = lock(&self.state);
        let region = s.label.region_len();
        let next = s.head.next_multiple_of(region);
        let used = s.placed.back().is_some_and(|p: &Placed| p.start / region == s.head / region);
        (s.label.regions > 1 && used && next + region <= s.label.tail + s.label.capacity()).then_some(next)
    }
}
