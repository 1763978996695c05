//! Loads: blocks that are not in memory are read from their homes, by the caller or while it does something else.
//!
//! ```text
//! begin_load ──> the device reads, run by run ──> end_load ──> nothing is left, or what has changed meanwhile
//!      ^────────────────────────────────────────────────────────────────────────┘
//! ```
//! *Guarantees* J3: what was written home, or in place, while a load reads does not come into memory by it. A block
//! that cannot be read fails the load of others only if it is the first.

use crate::engine::runs_of;
use crate::error::Error;
use crate::journal::Journal;
use quire_device::sync::lock;
use quire_layout::BlockNo;
use std::ops::Deref;

/// What a load found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Loaded {
    /// Blocks read from the device.
    pub blocks: usize,
}

/// A load under way.
#[must_use = "the journal watches the homes of its blocks until it ends"]
pub struct Load {
    number: u64,
    /// In order.
    wanted: Vec<BlockNo>,
}

impl Load {
    /// Neighbours, each to be read at once.
    pub fn runs(&self) -> impl Iterator<Item = &[BlockNo]> {
        runs_of(&self.wanted)
    }
}

impl Journal {
    /// Reads blocks that are not in memory, neighbours at once. The caller needs the first one; the others may be read
    /// ahead. If a read fails, the blocks are read one by one, up to the first that cannot be read: a bad sector costs
    /// two reads that fail.
    ///
    /// # Errors
    /// The device could not read the first block, or that lies outside it.
    pub fn load(&self, blocks: &[BlockNo]) -> Result<Loaded, Error> {
        match (load_at_once(self, blocks), blocks) {
            (Err(Error::Device(_)), [needed, others @ ..]) if !others.is_empty() => {
                let first = load_at_once(self, &[*needed])?.blocks;
                let more = others.iter().map_while(|b| load_at_once(self, &[*b]).ok());
                Ok(Loaded { blocks: first + more.map(|loaded| loaded.blocks).sum::<usize>() })
            }
            (loaded, _) => loaded,
        }
    }

    /// Begins to load those of the blocks that are not in memory. `None`: all are.
    pub fn begin_load(&self, blocks: &[BlockNo]) -> Option<Load> {
        let mut wanted: Vec<BlockNo> = blocks.to_vec();
        wanted.sort_unstable();
        wanted.dedup();
        let mut core = lock(&self.shared.core);
        wanted.retain(|b| core.image(*b).is_none());
        (!wanted.is_empty()).then(|| Load { number: core.begin_load(&wanted), wanted })
    }

    /// Ends a load: what was read of each of its [runs](Load::runs), in their order; nothing if one could not be read.
    /// Blocks whose homes have changed under it begin to be loaded again.
    pub fn end_load(&self, load: Load, read: &[impl Deref<Target = [u8]>]) -> Option<Load> {
        let images = self.shared.images_of(&load.wanted, read);
        end(self, &load, images)
    }
}

fn end(journal: &Journal, load: &Load, images: Vec<(BlockNo, quire_cache::Image)>) -> Option<Load> {
    let changed = {
        let mut core = lock(&journal.shared.core);
        core.misses += images.len() as u64;
        core.end_load(load.number, &load.wanted, images)
    };
    journal.begin_load(&changed)
}

/// Reads blocks that are not in memory, all of them or none.
fn load_at_once(journal: &Journal, blocks: &[BlockNo]) -> Result<Loaded, Error> {
    let mut loaded = 0;
    let mut next = journal.begin_load(blocks);
    while let Some(load) = next {
        next = match journal.shared.read_home(&load.wanted) {
            Ok(images) => {
                loaded += images.len();
                end(journal, &load, images)
            }
            Err(e) => {
                end(journal, &load, Vec::new());
                return Err(e);
            }
        };
    }
    Ok(Loaded { blocks: loaded })
}
