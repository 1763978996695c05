//! From the records of a log of Quire's to the images that they make.
//!
//! ```text
//! chains of some home blocks ─> bases: zeros, the log, home ─> records in the order of the log, one pass ─> images, checked
//! ```
//! Guarantees: an image is what the transaction that logged it last had, byte by byte, or is reported as bad and not
//! written (Q7); it comes out the same when some homes hold it already, or sectors of it (R1): ranges put bytes where
//! they belong whatever was there, and differences start from an image in the log.
//!
//! A chain that begins with a delta has lost the image it starts from: the tail has passed it, and moved only when the
//! chain's last image was durable at home (Q6). So home must hold it, and nothing is to be written.

use super::plan::BadReason;
use super::runs::{Bodies, Chain, Logged};
use super::unrecovered::UnrecoveredLog;
use crate::error::Error;
use crate::geometry::LogWindow;
use crate::policy::BLOCKS_TO_A_TRANSFER;
use quire_device::sync::Arc;
use quire_device::{BlockDevice, Buf, Io, Mutant, Region};
use quire_layout::BlockNo;
use quire_layout::qlog::ranges::{self, decode_table};
use quire_layout::qlog::{Kind, Record, delta};
use std::borrow::Cow;

/// What a chain makes.
pub(super) enum Made {
    /// Is to be written home.
    Image(Arc<Buf>),
    /// Home has it.
    AtHome,
    Bad(BadReason),
}

/// True if the image of a chain needs what lies at home.
fn needs_home(chain: &Chain) -> bool {
    !chain[0].record.kind.is_self_contained()
}

impl UnrecoveredLog {
    /// Makes the images of some blocks, in their order. `bodies` need not be read again; the others are read through
    /// the window.
    pub(super) fn make_images(
        &self,
        home: &Arc<dyn BlockDevice>,
        chains: &[(BlockNo, &Chain)],
        bodies: &Bodies,
        window: &mut LogWindow<'_>,
    ) -> Result<Vec<Made>, Error> {
        let mut images = self.bases(home, chains)?;
        let mut good = vec![true; chains.len()];
        let mut order: Vec<(usize, &Logged)> = Vec::new();
        for (n, (_, chain)) in chains.iter().enumerate() {
            let orphaned = chain[0].record.kind == Kind::Delta;
            order.extend(chain.iter().filter(|_| !orphaned).map(|l| (n, l)));
        }
        let start = self.superblock.start().unwrap_or(self.superblock.first());
        let place = |l: &Logged| (l.run.start < start, l.run.start, l.at);
        // Of one block the chain's order is the log's; in memory no order is faster.
        if self.needs_nvram().is_none() {
            order.sort_by_key(|(_, l)| place(l));
        }
        for (n, logged) in order {
            good[n] &= self.apply(window, bodies, logged, &mut images[n])?;
        }
        let made = chains.iter().zip(images).zip(good).map(|(((b, chain), image), good)| {
            let last = chain.last().expect("never empty").record;
            let result = Record::result_of(self.format.seed, *b, &image);
            match good && (result == last.result || Mutant::ResultSumIgnored.is_on()) {
                false => Made::Bad(BadReason::Result),
                true if chain[0].record.kind == Kind::Delta => Made::AtHome,
                true => Made::Image(Arc::new(image)),
            }
        });
        Ok(made.collect())
    }

    /// Zeros, or what lies at home where the first record needs it.
    fn bases(&self, home: &Arc<dyn BlockDevice>, chains: &[(BlockNo, &Chain)]) -> Result<Vec<Buf>, Error> {
        let bs = self.format.block_size;
        let mut images: Vec<Buf> = chains.iter().map(|_| Buf::zeroed(bs.bytes())).collect();
        let needed: Vec<usize> = (0..chains.len()).filter(|n| needs_home(chains[*n].1)).collect();
        let runs: Vec<&[usize]> = (needed.chunk_by(|a, b| chains[*a].0.0 + 1 == chains[*b].0.0))
            .flat_map(|run| run.chunks(BLOCKS_TO_A_TRANSFER))
            .collect();
        let reads = runs.iter().map(|run| Io::Read {
            at: bs.offset(chains[run[0]].0),
            buf: Buf::zeroed(run.len() * bs.bytes()),
            region: Region::Metadata,
        });
        let done = home.run(reads.collect())?;
        for (run, buf) in runs.iter().zip(&done.reads) {
            for (n, bytes) in run.iter().zip(buf.chunks_exact(bs.bytes())) {
                images[*n].copy_from_slice(bytes);
            }
        }
        Ok(images)
    }

    /// Does to an image what a record says. False: it cannot be done.
    fn apply(&self, window: &mut LogWindow<'_>, bodies: &Bodies, l: &Logged, image: &mut Buf) -> Result<bool, Error> {
        let bs = self.format.block_size;
        let in_memory = self.needs_nvram().and_then(|_| self.nvram_body(l));
        if let (Kind::Image, Some(body)) = (l.record.kind, &in_memory) {
            image.copy_from_slice(body);
            return Ok(true);
        }
        if l.record.kind == Kind::Image {
            image.copy_from_slice(window.block(self.nth(l.run.start, l.at))?);
            return Ok(true);
        }
        let body = match (in_memory, bodies.get(l)) {
            (Some(body), _) => Cow::Owned(body),
            (None, Some(body)) => Cow::Borrowed(body),
            (None, None) => Cow::Owned(self.gather(window, l.run, l.at, usize::try_from(l.len).expect("32 bits"))?),
        };
        Ok(match l.record.kind {
            Kind::Delta => delta::apply(&body, image),
            _ => {
                if l.record.kind == Kind::ZeroRanges {
                    image.fill(0);
                }
                let table = l.record.table_len();
                decode_table(bs, &body, l.record.count).is_some_and(|r| ranges::apply(&r, &body[table..], image))
            }
        })
    }

    /// The file system's device: the log's own, unless [`UnrecoveredLog::with_home`] has said otherwise.
    /// Blocks of the file system's device. A log may have homes behind the end of the file system: what a growth has
    /// written before the superblock that tells of it has come home.
    #[must_use]
    pub fn home_blocks(&self) -> u64 {
        self.home_device().info().size >> self.format.block_size.bits()
    }

    pub(super) fn home_device(&self) -> Arc<dyn BlockDevice> {
        self.home.clone().unwrap_or_else(|| self.geometry.device().clone())
    }
}
