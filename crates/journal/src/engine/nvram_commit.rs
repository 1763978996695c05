//! A commit into NVRAM.
//!
//! ```text
//! leader: close ──> [room: next region, or stall] ──> (label, journal superblock: begins here)? ──> [flush for data in place]
//!         ──> bases ──> encode ──> store, fence, commit word, fence ──> live
//! ```
//! No thread is woken and no device is touched on the way, unless the transaction names data that was written in place
//! (Q5). A commit that stored into memory which was lost fails (V10).

use super::nvram_space::NvramSpace;
use super::shared::Shared;
use crate::core::InFlight;
use crate::error::Error;
use crate::log::Log;
use crate::nvram::{NvramLog, Stored};
use crate::run::Encoder;
use quire_device::sync::lock;
use quire_layout::BlockSize;
use quire_layout::nvlog::{Head, head};
use quire_layout::qlog::RECORD;

/// Bytes that a transaction takes at most.
fn bytes_at_most(bs: BlockSize, granule: u32, images: usize, revokes: usize) -> u64 {
    // An image that begins with jbd2's magic is packed: a record, a table entry, its bytes.
    let packed = images * (bs.bytes() + RECORD + 8) + revokes * RECORD;
    Head::total(u32::try_from(packed).expect("a transaction is smaller than 4 GiB"), 0, bs.bytes64(), granule)
}

/// A commit to a log in NVRAM.
pub(super) struct NvramCommit<'a> {
    pub shared: &'a Shared,
    pub log: &'a Log,
    pub nvram: &'a NvramLog,
}

impl NvramCommit<'_> {
    /// Makes a closed transaction durable. It takes no blocks of the log in the image.
    pub(super) fn write(&self, txn: &InFlight) -> Result<u32, Error> {
        let NvramCommit { shared, log, nvram } = *self;
        let label = nvram.label();
        let most = bytes_at_most(label.block_size, label.granule, txn.blocks.len(), txn.revokes.len());
        if most > nvram.longest() {
            return Err(Error::TooLarge { blocks: txn.blocks.len(), limit: nvram.most_blocks() });
        }
        let space = NvramSpace { shared, log, nvram };
        space.relieve_memory(txn.tid)?;
        space.make_room(most, txn.tid)?;
        let now = shared.config.clock.realtime();
        log.open_at_head(txn.tid, now)?;
        shared.flush_data_of(txn)?;
        let bases = lock(&shared.core).choose_bases(txn, |e| shared.gate.is_durable(e));
        let encoder = Encoder {
            block_size: label.block_size,
            known: log.known(),
            seed: log.format.seed,
            record: shared.config.choices.record,
            epoch: 0,
            now,
        };
        let mut packed = encoder.pack(txn, &bases, head::LEN);
        drop(bases);
        let bytes = u32::try_from(packed.packed.len() - head::LEN).expect("bounded by the log");
        let whole = usize::try_from(Head::descriptor_len(bytes, label.granule)).expect("bounded by the log");
        packed.packed.resize(whole, 0);
        let bodies = u64::from(bytes) - u64::from(packed.records) * RECORD as u64;
        let (images, seed, known) = (&packed.images[..], log.format.seed, log.known());
        let stored = Stored { tid: txn.tid, packed: bytes, records: packed.records, bodies, images, seed, known, now };
        let placed = nvram.store(packed.packed, stored);
        if let Err(lost) = nvram.check() {
            // What the transactions before it have promised is in memory still, and goes home. No delta of this one
            // will be believed, so no home write waits for it, that of this thread least of all.
            shared.chosen_no_more();
            space.empty()?;
            return Err(lost);
        }
        assert!(placed.len() <= most, "a transaction that is larger than it can be");
        // First in the core: a checkpoint that passes it must know its images.
        lock(&shared.core).committed(txn, 0, Some(&packed.self_contained));
        nvram.took(placed);
        nvram.count_deltas(packed.kinds.delta_bytes);
        lock(&shared.counters).encoded(packed.kinds);
        Ok(0)
    }
}
