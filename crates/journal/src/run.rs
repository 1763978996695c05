//! A closed transaction as Quire's log has it: one run of blocks, built in memory without any lock.
//!
//! ```text
//! revokes, records: packed into the first blocks ─┐
//! whole images: the blocks that follow ───────────┴─> head, its checksum over all of it
//! ```
//! Which record a block gets: the smallest of what [`choices::Record`] allows; a self-contained one where sizes are
//! equal; in a transaction of many blocks a whole image unless ranges spare a sixteenth, as it is written from where it
//! is. A range needs a base in the live log or durable at home (Q3), else it starts from zeros and says so (Q4); a
//! delta needs one in the live log whose chain is not being passed (Q6).

use crate::choices;
use crate::core::{Base, InFlight};
use crate::policy::MANY_BLOCKS;
use quire_cache::Image;
use quire_device::sync::Arc;
use quire_device::{Buf, Mutant};
use quire_layout::checksum::{Known, crc32c};
use quire_layout::jbd2::{LogSeed, needs_escape};
use quire_layout::qlog::delta::Delta;
use quire_layout::qlog::ranges::{Ranges, ZEROS, differs_throughout};
use quire_layout::qlog::{Head, Kind, RECORD, Record, head, pack};
use quire_layout::{BlockNo, BlockSize, Tid};
use std::time::Duration;

/// A transaction as it goes to the log.
pub(crate) struct Run {
    /// In the order of the log; the first has the head.
    pub blocks: Vec<Image>,
    /// Of each block of the transaction: its record is self-contained.
    pub self_contained: Vec<bool>,
    pub kinds: Kinds,
}

/// Records by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kinds {
    pub whole: u64,
    pub ranges: u64,
    pub deltas: u64,
    pub packed_bytes: u64,
    /// Bytes of the deltas among them.
    pub delta_bytes: u64,
}

/// A transaction's records, wherever they go.
pub(crate) struct Packed {
    /// The records and their bodies.
    pub packed: Vec<u8>,
    /// The whole images that they name, in their order, and their records.
    pub images: Vec<(Record, Image)>,
    pub records: u32,
    /// Of each block of the transaction: its record is self-contained.
    pub self_contained: Vec<bool>,
    pub kinds: Kinds,
}

/// What the encoder needs to know.
pub(crate) struct Encoder<'a> {
    pub block_size: BlockSize,
    /// For a block's length.
    pub known: &'a Known,
    pub seed: LogSeed,
    pub record: choices::Record,
    pub epoch: u64,
    pub now: Duration,
}

/// Blocks of log that a transaction takes at most.
pub(crate) fn blocks_at_most(bs: BlockSize, images: usize, revokes: usize) -> u32 {
    // An image that begins with the magic is packed: a record, a table entry, its bytes.
    let packed = images * (bs.bytes() + RECORD + 8) + revokes * RECORD + head::LEN;
    pack::blocks_for(bs, u32::try_from(packed).expect("a transaction is smaller than 4 GiB")) + 1
}

/// The longest run that a log of `blocks` blocks may hold.
pub(crate) fn longest(blocks: u32) -> u32 {
    blocks / 3
}

/// The bound of its runs' lengths that such a log begins with (Q10): readers look no further for what follows a run
/// that is bad.
pub(crate) fn usual(blocks: u32) -> u32 {
    (blocks / 64).clamp(16, 512).min(longest(blocks))
}

/// The bound that a longer run takes: doubled until it fits, so that it is seldom raised.
pub(crate) fn bound_for(run: u32, log: u32) -> u32 {
    let mut bound = usual(log);
    while bound < run {
        bound = bound.saturating_mul(2);
    }
    bound.min(longest(log))
}

impl Encoder<'_> {
    /// Builds the run. `bases` are the transaction's blocks' in their order.
    pub(crate) fn run(&self, txn: &InFlight, bases: &[Option<Base>]) -> Run {
        let mut packed = self.pack(txn, bases, 0);
        let (self_contained, kinds) = (std::mem::take(&mut packed.self_contained), packed.kinds);
        Run { blocks: self.seal(txn.tid, packed), self_contained, kinds }
    }

    /// Builds the records, behind so many zero bytes.
    pub(crate) fn pack(&self, txn: &InFlight, bases: &[Option<Base>], room: usize) -> Packed {
        let mut packed = Vec::with_capacity(self.block_size.bytes());
        packed.resize(room, 0);
        let mut run = Building {
            encoder: self,
            packed,
            images: Vec::new(),
            records: 0,
            kinds: Kinds::default(),
            ranges: Ranges::default(),
            from_zeros: Ranges::default(),
            delta: SCRATCH.take(),
            many: txn.blocks.len() >= MANY_BLOCKS,
        };
        if !Mutant::RevokeForgotten.is_on() {
            run.revokes(&txn.revokes);
        }
        let each = txn.blocks.iter().zip(bases);
        let self_contained = each.map(|((home, image), base)| {
            let is_data = txn.data.contains(home);
            run.record(*home, image, base.as_ref(), is_data).is_self_contained()
        });
        let self_contained = self_contained.collect();
        let kinds = Kinds { packed_bytes: (run.packed.len() - room) as u64, ..run.kinds };
        SCRATCH.set(run.delta);
        Packed { packed: run.packed, images: run.images, records: run.records, self_contained, kinds }
    }

    fn seal(&self, tid: Tid, run: Packed) -> Vec<Image> {
        let bs = self.block_size;
        let small = |n: usize| u32::try_from(n).expect("a transaction is smaller than 4 GiB");
        let packed = pack::blocks_for(bs, small(run.packed.len()));
        let mut bufs: Vec<Buf> = (0..usize::try_from(packed).expect("small"))
            .map(|n| {
                let mut b = Buf::zeroed(bs.bytes());
                pack::fill(bs, &run.packed, n, &mut b);
                b
            })
            .collect();
        let head = Head {
            tid,
            blocks: packed + small(run.images.len()),
            packed: small(run.packed.len()),
            records: run.records,
            images: small(run.images.len()),
            epoch: self.epoch,
            seconds: self.now.as_secs(),
            nanoseconds: self.now.subsec_nanos(),
        };
        let (first, rest) = bufs.split_first_mut().expect("the head's block");
        head.seal(self.seed, first, |sum| {
            let sum = rest.iter().fold(sum, |sum, b| crc32c(sum, b));
            run.images.iter().fold(sum, |sum, (record, _)| record.carry(self.seed, self.known, sum))
        });
        bufs.into_iter().map(Arc::new).chain(run.images.into_iter().map(|(_, image)| image)).collect()
    }
}

thread_local! {
    /// Memory for differences, kept from commit to commit.
    static SCRATCH: std::cell::Cell<Delta> = std::cell::Cell::default();
}

struct Building<'a> {
    encoder: &'a Encoder<'a>,
    packed: Vec<u8>,
    images: Vec<(Record, Image)>,
    records: u32,
    kinds: Kinds,
    ranges: Ranges,
    from_zeros: Ranges,
    delta: Delta,
    /// The transaction has many blocks: to copy a block's bytes costs more than to write a few that did not change.
    many: bool,
}

impl Building<'_> {
    fn revokes(&mut self, sorted: &[BlockNo]) {
        for run in sorted.chunk_by(|a, b| a.0 + 1 == b.0).flat_map(|r| r.chunks(usize::from(u16::MAX))) {
            let count = u16::try_from(run.len()).expect("chunked");
            self.head(Record { home: run[0], kind: Kind::Revoke, count, result: 0 });
        }
    }

    fn head(&mut self, r: Record) {
        self.packed.extend_from_slice(&r.encode());
        self.records += 1;
    }

    fn record(&mut self, home: BlockNo, image: &Image, base: Option<&Base>, is_data: bool) -> Kind {
        let result = Record::result_of(self.encoder.seed, home, image);
        let r = |kind, count| Record { home, kind, count, result };
        let kind = match self.encoder.record {
            choices::Record::Block => Kind::Image,
            choices::Record::RangeData if !is_data => Kind::Image,
            choices::Record::RangeData | choices::Record::Range => self.as_ranges(image, base),
            choices::Record::Delta => match base.filter(|b| b.in_log && b.chains) {
                Some(base) => return self.as_delta(r, image, &base.image),
                None if self.spares_zeros(image) => Kind::ZeroRanges,
                None => Kind::Image,
            },
        };
        match kind {
            Kind::Ranges => {
                self.head(r(kind, self.ranges.count()));
                self.ranges.encode(image, &mut self.packed);
                self.kinds.ranges += 1;
                kind
            }
            Kind::ZeroRanges => {
                let kind = if Mutant::ZeroBaseForgotten.is_on() { Kind::Ranges } else { kind };
                self.head(r(kind, self.from_zeros.count()));
                self.from_zeros.encode(image, &mut self.packed);
                self.kinds.ranges += 1;
                kind
            }
            _ => self.whole(r, image),
        }
    }

    /// What a body takes at most that spares a sixteenth of a block.
    fn sparing(&self) -> usize {
        let whole = self.encoder.block_size.bytes();
        whole - whole / 16
    }

    /// True if ranges over zeros spare a sixteenth of a block, as of a page that is not full: not worth a look at more.
    fn spares_zeros(&mut self, image: &Image) -> bool {
        self.from_zeros.find(&ZEROS[..image.len()], image, self.sparing())
    }

    /// Ranges, zero ranges, or whole: what is smallest, or nearly so where much is written.
    fn as_ranges(&mut self, image: &Image, base: Option<&Base>) -> Kind {
        let zeros = &ZEROS[..image.len()];
        let throughout = |base: &[u8]| differs_throughout(base, image);
        if self.many && throughout(zeros) && base.is_none_or(|b| throughout(&b.image)) {
            return Kind::Image;
        }
        let most = if self.many { self.sparing() } else { self.encoder.block_size.bytes() };
        let over_base = base.filter(|b| self.ranges.find(&b.image, image, most)).map(|_| self.ranges.body_len());
        let limit = over_base.map_or(most, |n| n + 1);
        if self.from_zeros.find(zeros, image, limit) {
            Kind::ZeroRanges
        } else if over_base.is_some() {
            Kind::Ranges
        } else {
            Kind::Image
        }
    }

    fn as_delta(&mut self, r: impl Fn(Kind, u16) -> Record, image: &Image, base: &Image) -> Kind {
        let Some(delta) = self.delta.find(base, image, self.encoder.block_size.bytes()) else {
            return self.whole(r, image);
        };
        let count = u16::try_from(delta.len()).expect("less than a block");
        self.packed.extend_from_slice(&r(Kind::Delta, count).encode());
        self.packed.extend_from_slice(delta);
        self.records += 1;
        self.kinds.deltas += 1;
        self.kinds.delta_bytes += u64::from(count);
        Kind::Delta
    }

    /// In a block of its own; packed if it could be taken for a head there (Q1).
    fn whole(&mut self, r: impl Fn(Kind, u16) -> Record, image: &Image) -> Kind {
        self.kinds.whole += 1;
        if needs_escape(image) && !Mutant::EscapeForgotten.is_on() {
            self.from_zeros.whole(image);
            self.head(r(Kind::ZeroRanges, 1));
            self.from_zeros.encode(image, &mut self.packed);
            return Kind::ZeroRanges;
        }
        let record = r(Kind::Image, 0);
        self.head(record);
        self.images.push((record, image.clone()));
        Kind::Image
    }
}
